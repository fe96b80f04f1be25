//! RECEIVEs of concurrent callers without a filter, batched by queue.

use crate::catalog::fold_name;
use crate::error::{Code, Error, Result};
use crate::protocol::verb::most;
use crate::protocol::{Message, Outcome};
use crate::store::database::Database;
use crate::store::database::batching::batcher::{ActiveBatchers, Batcher, Item};
use crate::store::database::calls::message::messages;
use crate::store::database::calls::rows::notices_in;
use crate::store::database::closing::Work;
use crate::store::database::link::{Arg, Call, Column, HANGING};
use crate::store::database::retry::{Repeat, Retry};
use crate::store::handover::Handover;
use crate::store::{Gathering, QueueActivity};
use dashmap::DashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use uuid::Uuid;

/// One RECEIVE and its caller.
pub(in crate::store::database) struct Receiving {
    top: Option<u64>,
    answer: oneshot::Sender<Result<Handover<Vec<Message>>>>,
    _work: Work,
}

impl Item for Receiving {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn bytes(&self) -> usize {
        0
    }

    fn key(&self) -> Option<Uuid> {
        None
    }

    fn kind(&self) -> usize {
        0
    }
}

/// One batch in this many begins at the first row of the claim index.
const BATCHES_BETWEEN_FULL_SCANS: usize = 16;

/// The place in the claim index at which batches of a queue begin. The claim index keeps traces of deleted rows until the server cleans up; at 30,000
/// receives a second, scanning them took a fifth of a receive after three seconds. Rows before the start of the last
/// batch were taken or locked when it ran. Rows that have come there since wait until no other is left, or for the next
/// batch that begins at the first row.
#[derive(Debug, Default)]
pub(super) struct ScanStart {
    from: Option<Start>,
    batches: usize,
}

/// The level of the messages of a batch, and the oldest of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    level: u8,
    order: u64,
}

impl Start {
    pub(super) fn of(message: &Message) -> Self {
        Self { level: message.priority, order: message.queuing_order }
    }

    /// The arguments that name it, or the first row.
    pub(super) fn args(start: Option<Self>) -> (Arg<'static>, Arg<'static>) {
        start.map_or((Arg::Null, Arg::Null), |start| {
            (Arg::Int(start.level.into()), Arg::BigInt(start.order.cast_signed()))
        })
    }
}

impl ScanStart {
    /// The place at which the next batch begins; `None` is the first row.
    pub(super) fn next(&mut self) -> Option<Start> {
        self.batches += 1;
        if self.batches >= BATCHES_BETWEEN_FULL_SCANS {
            *self = Self::default();
        }
        self.from
    }

    /// Remembers the start of a batch only if every caller got a message and all have one level.
    pub(super) fn remember(&mut self, ranks: impl Iterator<Item = Start>) {
        self.from = None;
        for rank in ranks {
            match &mut self.from {
                None => self.from = Some(rank),
                Some(from) if from.level == rank.level => from.order = from.order.min(rank.order),
                Some(_) => return self.reset(),
            }
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Whether transactions that receive from a queue claim their messages. A claim that is not committed as such costs more than
/// none; where that happens again and again, few are tried.
#[derive(Debug, Default)]
struct ClaimTrials {
    /// Receives that pass before the next claim.
    left: u32,
    /// The number of receives that passed after the last claim that was in vain.
    last: u32,
}

/// The most receives without a claim before the next one.
const MOST_WITHOUT_CLAIM: u32 = 32;

/// The number of queue names above which those not in use are removed.
const MOST_QUEUES: usize = 1024;

/// The state that the receivers of a queue share, by its folded name.
pub(in crate::store::database) struct Receives {
    active: ActiveBatchers,
    gathering: Gathering,
    queues: DashMap<String, Arc<Queue>>,
}

pub(super) struct Queue {
    folded_name: String,
    batcher: Batcher<Receiving>,
    scan_start: Mutex<ScanStart>,
    claim_trials: Mutex<ClaimTrials>,
    /// A transaction receives as if it were alone, and has no message yet.
    has_lone: AtomicBool,
    activity: Arc<QueueActivity>,
}

/// A receive of a transaction that claims nothing, because no other transaction has received. Of those that come at once only one is alone:
/// all of them would wait for connections of the pool.
pub(in crate::store::database) struct Alone(Arc<Queue>);

impl Alone {
    /// `None` if another receive of the queue is under way.
    pub(super) fn begin(queue: &Arc<Queue>) -> Option<Self> {
        (!queue.has_lone.swap(true, SeqCst)).then(|| Self(queue.clone()))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.has_lone.store(false, SeqCst);
    }
}

impl Queue {
    pub(super) fn scan_start(&self) -> std::sync::MutexGuard<'_, ScanStart> {
        self.scan_start.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn claim_trials(&self) -> std::sync::MutexGuard<'_, ClaimTrials> {
        self.claim_trials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next receive of a transaction tries a claim.
    pub(super) fn tries_claim(&self) -> bool {
        let mut trials = self.claim_trials();
        let tries = trials.left == 0;
        // Now, not when this trial has ended: all who come meanwhile would try too.
        trials.left = if tries { trials.last } else { trials.left - 1 };
        tries
    }

    /// A claim was committed, or was in vain.
    pub(super) fn note_claim(&self, was_committed: bool) {
        let mut trials = self.claim_trials();
        if was_committed {
            trials.last /= 2;
            trials.left = trials.left.min(trials.last);
        } else {
            trials.last = (2 * trials.last).clamp(1, MOST_WITHOUT_CLAIM);
            trials.left = trials.last;
        }
    }
}

impl Receives {
    /// The batchers of all queues count in `active`.
    pub(in crate::store::database) fn new(active: ActiveBatchers, gathering: Gathering) -> Self {
        Self { active, gathering, queues: DashMap::default() }
    }

    pub(super) fn queue(&self, folded_name: &str, activity: impl FnOnce() -> Arc<QueueActivity>) -> Arc<Queue> {
        if let Some(found) = self.queues.get(folded_name) {
            return found.clone();
        }
        let made = || {
            Arc::new(Queue {
                folded_name: folded_name.to_owned(),
                batcher: Batcher::new(self.active.clone()).gathering(self.gathering.clone()),
                scan_start: Mutex::default(),
                claim_trials: Mutex::default(),
                has_lone: AtomicBool::new(false),
                activity: activity(),
            })
        };
        // Callers may name queues that do not exist: entries without users are removed.
        if self.queues.len() >= MOST_QUEUES {
            self.queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        self.queues.entry(folded_name.to_owned()).or_insert_with(made).clone()
    }

    /// Drops what waits in each queue: no batch will take it.
    pub(in crate::store::database) fn drop_waiting(&self) {
        self.queues.iter().for_each(|queue| queue.batcher.drop_waiting());
    }

    /// Removes the entry of a queue that does not exist, so that names chosen by callers take no room.
    fn forget(&self, queue: &Queue) {
        self.queues.remove(&queue.folded_name);
    }
}

impl Database {
    /// Receives from any group, in a batch with other callers.
    pub(in crate::store::database) async fn receive_in_batch(
        self: Arc<Self>,
        queue: &str,
        top: Option<u64>,
        work: Work,
    ) -> Result<Outcome> {
        let folded_name = fold_name(queue);
        let queue = self.receives.queue(&folded_name, || self.board.queue(&folded_name));
        let (answer, answered) = oneshot::channel();
        let receiving = Receiving { top, answer, _work: work };
        self.spawn_receives(&queue, queue.batcher.add(receiving));
        let given = self.await_answer(answered).await?;
        Ok(Outcome::Received(given.take()))
    }

    fn spawn_receives(self: &Arc<Self>, queue: &Arc<Queue>, batch: Vec<Receiving>) {
        if !batch.is_empty() {
            self.runtime.spawn(self.clone().run_receives(queue.clone(), batch));
        }
    }

    async fn run_receives(self: Arc<Self>, queue: Arc<Queue>, mut batch: Vec<Receiving>) {
        while !batch.is_empty() {
            let asked = batch.len();
            let receives = self.receive_batch(&queue, batch);
            let leave = |late| self.spawn_receives(&queue, late);
            if !queue.batcher.await_batch(asked, receives, HANGING, leave).await {
                return;
            }
            batch = queue.batcher.next_batch(asked).await;
        }
    }

    async fn receive_batch(self: &Arc<Self>, queue: &Queue, mut batch: Vec<Receiving>) {
        let mut tries = Retry::default();
        let rows = loop {
            // The pool may be slow, and callers may leave meanwhile.
            let link = self.take().await;
            // The call commits by itself, so a caller that has left must be dropped now.
            batch.retain(|receiving| !receiving.is_abandoned());
            if batch.is_empty() {
                return;
            }
            let from = if batch.len() > 1 { queue.scan_start().next() } else { None };
            let done = match link {
                Ok(mut link) => link.call(call(&queue.folded_name, &batch, from)).await,
                Err(failure) => Err(failure),
            };
            match done {
                Ok(rows) => break Ok(rows),
                Err(failure) => {
                    if let Err(failure) = tries.after(failure, Repeat::IfUndone).await {
                        break Err(Error::from(failure));
                    }
                }
            }
        };
        let received = match rows {
            Ok(rows) => {
                self.publish_local(&notices_in(&rows), 0).await;
                messages(rows)
            }
            Err(error) => Err(error),
        };
        match received {
            Err(error) => {
                queue.scan_start().reset();
                if error.code() == Code::OBJECT_NOT_FOUND {
                    self.receives.forget(queue);
                }
                for receiving in batch {
                    let _ = receiving.answer.send(Err(error.duplicate()));
                }
            }
            Ok(received) => {
                let mut shares: Vec<Vec<Message>> = batch.iter().map(|_| Vec::new()).collect();
                for (item, message) in received {
                    let place = item.min(shares.len() - 1);
                    shares[place].push(message);
                }
                let is_empty = shares.iter().any(Vec::is_empty);
                match is_empty || batch.len() == 1 {
                    true => queue.scan_start().reset(),
                    false => queue.scan_start().remember(shares.iter().flatten().map(Start::of)),
                }
                let groups = shares.iter().filter(|share| !share.is_empty()).count();
                let messages = shares.iter().map(Vec::len).sum();
                self.update_queue_facts(&queue.activity, groups, messages, is_empty);
                for (receiving, share) in batch.into_iter().zip(shares) {
                    // If its caller has left, the handover counts the messages as dropped.
                    let _ = receiving.answer.send(Ok(Handover::new(share)));
                }
            }
        }
    }

    /// Updates the facts of a queue after a RECEIVE.
    pub(in crate::store::database) fn update_queue_facts(
        &self,
        activity: &QueueActivity,
        groups: usize,
        messages: usize,
        is_empty: bool,
    ) {
        let facts = activity.facts();
        activity.took(messages as u64);
        match is_empty {
            // Messages may be left in groups that a session holds.
            true => activity.set_depth(0, facts.unread.saturating_sub(facts.ready_groups as u64)),
            // A poll may have counted the queue without these already, so this never reports an empty queue.
            false => activity.set_depth(
                facts.ready_groups.saturating_sub(groups),
                facts.unread.saturating_sub(messages as u64).max(facts.unread.min(1)),
            ),
        }
        if groups > 0 || facts.ready_groups > 0 {
            self.watch.note_change();
        }
    }
}

fn call<'a>(queue: &'a str, batch: &[Receiving], from: Option<Start>) -> Call<'a> {
    if let [only] = batch {
        let top = only.top.map_or(Arg::Null, |top| Arg::BigInt(most(top)));
        let args = vec![Arg::Text(queue), top, Arg::Null, Arg::Null, Arg::Null, Arg::Null, Arg::Bool(false)];
        return Call { name: "receive", args };
    }
    let tops = batch.iter().map(|receiving| receiving.top.map(most)).collect();
    let rows = Arg::Rows { type_name: "receive_batch_rows", columns: vec![Column::BigInt(tops)] };
    let (level, order) = Start::args(from);
    Call { name: "receive_batch", args: vec![Arg::Text(queue), rows, level, order] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(level: u8, order: u64) -> Start {
        Start { level, order }
    }

    #[test]
    fn a_batch_begins_at_the_oldest_of_the_one_before() {
        let mut scan_start = ScanStart::default();
        assert_eq!(scan_start.next(), None);
        scan_start.remember([start(5, 12), start(5, 10), start(5, 11)].into_iter());
        assert_eq!(scan_start.next(), Some(start(5, 10)));
        scan_start.remember([start(7, 12), start(5, 10)].into_iter());
        assert_eq!(scan_start.next(), None, "two levels");
        scan_start.remember([start(5, 20)].into_iter());
        scan_start.reset();
        assert_eq!(scan_start.next(), None);
    }

    #[test]
    fn claims_in_vain_are_tried_less_and_less() {
        let receives = Receives::new(ActiveBatchers::default(), Gathering::default());
        let queue = receives.queue("q", || Arc::new(QueueActivity::default()));
        let mut tried = 0;
        for _ in 0..1000 {
            if queue.tries_claim() {
                tried += 1;
                queue.note_claim(false);
            }
        }
        assert_eq!(tried, 6 + (1000 - 37) / 33, "after 1, 2, 4, 8 and 16 receives, then after 32 each");
        // These come while the trials before them are under way.
        let tried = (0..330).filter(|_| queue.tries_claim()).count();
        assert_eq!(tried, 10);
        (0..40).for_each(|_| queue.note_claim(true));
        assert!((0..=MOST_WITHOUT_CLAIM).any(|_| queue.tries_claim()), "the pause ends");
        queue.note_claim(false);
        assert!(!queue.tries_claim() && queue.tries_claim(), "those that were committed shorten the pause");
    }

    #[test]
    fn now_and_then_one_begins_at_the_first_row() {
        let mut scan_start = ScanStart::default();
        let mut whole = 0;
        for order in 0..10 * BATCHES_BETWEEN_FULL_SCANS as u64 {
            whole += usize::from(scan_start.next().is_none());
            scan_start.remember([start(5, order)].into_iter());
        }
        assert_eq!(whole, 1 + 10, "the first, and one of so many");
    }
}
