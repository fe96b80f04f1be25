//! After a commit: wakes the receivers, monitors and timers of this process at once, and notifies the other processes
//! soon.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::store::database::Database;
use crate::store::database::link::{Arg, Call};
use crate::store::database::notifications::notice::{Notice, Notices};
use crate::store::database::retry;
use crate::store::{QueueActivity, work_queue_on_board};
use crate::time::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The pause after a NOTIFY, in which further notices gather. An idle process notifies at once; under load a NOTIFY every
/// millisecond cost a twentieth of two cores.
const GATHERING: Duration = Duration::from_millis(5);

/// The pause before the notice of a lost answer goes out once more: the server may still work on what the lost connection had asked for.
const AFTER_A_LOSS: Duration = Duration::from_secs(1);

/// The notices that other processes have not got yet.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Outbox {
    notices: Mutex<Notices>,
    added: Notify,
    /// The store closes: the notices in the outbox are sent, later ones are not.
    is_closing: AtomicBool,
}

impl Outbox {
    fn notices(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store::database) fn put(&self, notices: impl IntoIterator<Item = Notice>) {
        let mut waiting = self.notices();
        waiting.extend(notices);
        if !waiting.is_empty() {
            self.added.notify_one();
        }
    }

    /// Lets [`Database::notify_peers`] end once it has sent the notices that wait now.
    pub(in crate::store::database) fn close(&self) {
        self.is_closing.store(true, SeqCst);
        self.added.notify_one();
    }

    /// Whether the store closes and the outbox is empty. The flag is read first: no notice comes after it.
    fn is_over(&self) -> bool {
        self.is_closing.load(SeqCst) && self.notices().is_empty()
    }

    fn take(&self) -> Notices {
        std::mem::take(&mut *self.notices())
    }

    /// Keeps notices that could not be sent, unless the store closes; whether they are kept.
    fn put_back(&self, notices: Notices) -> bool {
        let keeps = !self.is_closing.load(SeqCst);
        if keeps {
            let mut waiting = self.notices();
            waiting.extend(notices);
            waiting.forget_later_dues();
            self.added.notify_one();
        }
        keeps
    }
}

impl Database {
    /// Publishes the notices of a commit of this process: here at once, to other processes soon. At most `groups_ready`
    /// groups became ready.
    pub(in crate::store::database) async fn publish_local(self: &Arc<Self>, notices: &Notices, groups_ready: usize) {
        if !notices.is_empty() {
            self.outbox.put(notices.iter());
            self.apply_notices(notices, groups_ready).await;
        }
    }

    /// Acts on the notices of other processes. A notice names a queue once, however many groups became ready: one
    /// receiver is woken, and a poll finds out about more.
    pub(in crate::store::database) async fn apply_peer_notices(self: &Arc<Self>, notices: &Notices) {
        self.apply_notices(notices, 1).await;
        if notices.queues() > 0 {
            self.lock_released();
        }
    }

    async fn apply_notices(self: &Arc<Self>, notices: &Notices, groups_ready: usize) {
        if notices.has_definitions()
            && let Err(error) = self.reload().await
        {
            tracing::warn!(%error, "definitions have changed and could not be read; the next verb that needs them reads them");
        }
        let catalog = &self.definitions.known().catalog;
        let activity = |id| self.activity_of(catalog, id);
        for notice in notices.iter() {
            match notice {
                Notice::Definitions => {}
                Notice::Due(at) => self.maintenance.falls_due(at),
                Notice::Lost => {
                    self.watch.poll_soon();
                    self.maintenance.falls_due(Timestamp(0));
                }
                Notice::Queue(id) => {
                    if let Some(activity) = activity(id) {
                        let facts = activity.facts();
                        let unread = facts.unread + groups_ready as u64;
                        activity.arrived(groups_ready, facts.ready_groups + groups_ready, unread);
                    }
                    self.watch.note_change();
                }
                Notice::PlaceFree(id) => {
                    if let Some(activity) = activity(id) {
                        activity.place_freed();
                    }
                }
            }
        }
    }

    /// The activity of a queue, or of a work queue.
    fn activity_of(&self, catalog: &Catalog, id: i32) -> Option<Arc<QueueActivity>> {
        match catalog.queues.get(&id) {
            Some(queue) => Some(self.board.queue(&queue.name)),
            None => catalog.work_queues.get(&id).map(|queue| self.board.queue(&work_queue_on_board(&queue.name))),
        }
    }

    /// Messages that were ready before may be left in these queues: wakes a receiver of each, and counts no message as new.
    pub(in crate::store::database) fn publish_left_messages(&self, queues: impl IntoIterator<Item = i32>) {
        let catalog = self.definitions.known().catalog.clone();
        for id in queues {
            self.outbox.put([Notice::Queue(id)]);
            if let Some(queue) = catalog.queues.get(&id) {
                let activity = self.board.queue(&queue.name);
                let facts = activity.facts();
                activity.arrived(1, facts.ready_groups + 1, facts.unread);
            }
        }
        self.watch.note_change();
    }

    /// Lets all processes look for what the server did and could not tell, until the store closes. A message whose SEND lost its answer
    /// waited for the poll of the next minute, and a schedule stood still as long.
    pub(in crate::store::database) async fn announce_lost_answers(self: Arc<Self>) {
        let lost = [Notice::Lost].into_iter().collect();
        loop {
            self.driver.answer_lost().await;
            self.publish_local(&lost, 0).await;
            tokio::time::sleep(AFTER_A_LOSS).await;
            self.publish_local(&lost, 0).await;
        }
    }

    /// A group may be unlocked now: polls if a session of this process sleeps.
    pub(in crate::store::database) fn lock_released(&self) {
        if self.board.sleeping() > 0 {
            self.watch.poll_soon();
        }
    }

    /// Notifies other processes until the store closes, and then sends the notices that still wait: a process that misses
    /// one polls after a minute. What could not be sent is sent as soon as the server can be reached again: while the network of
    /// this process was away, the notices of its lost answers were dropped too.
    pub(in crate::store::database) async fn notify_peers(self: Arc<Self>) {
        let mut is_known = false;
        loop {
            self.outbox.added.notified().await;
            let notices = self.outbox.take();
            let sent = self.notify(&notices).await;
            let is_kept = match &sent {
                Ok(()) => false,
                Err(error) => {
                    if !std::mem::replace(&mut is_known, true) {
                        tracing::warn!(%error, "other processes could not be notified; it is tried again each second");
                    }
                    self.outbox.put_back(notices)
                }
            };
            is_known &= is_kept;
            if self.outbox.is_over() {
                return;
            }
            tokio::time::sleep(if is_kept { retry::TASK } else { GATHERING }).await;
        }
    }

    async fn notify(&self, notices: &Notices) -> Result<()> {
        for payload in notices.payloads(self.process) {
            let call = Call { name: "notify_processes", args: vec![Arg::Text(&payload)] };
            self.control.quick_call(call).await.map_err(|failure| failure.error)?;
        }
        Ok(())
    }
}
