//! Polls the queues: finds ready messages that no notice announces, and counts them for queue monitors.
//!
//! A lock that another process frees, or that ends with its host, makes no notice. So a process with a sleeping receiver
//! polls when the receiver goes to sleep, and again while a ready group is locked. On a server without NOTIFY one poller
//! per process polls while a receiver sleeps or a queue monitor runs.

use crate::error::Result;
use crate::store::database::Database;
use crate::store::database::calls::rows::{Row, damaged, only};
use crate::store::database::link::{Call, Listener};
use crate::store::database::notifications::control_connection::{may_hang_after, twice_if_it_hangs};
use crate::store::database::notifications::notice::Notices;
use crate::store::database::retry::{self, listen_again};
use crate::store::work_queue_on_board;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until};

/// The shortest and longest pause between two polls without notifications. A pause grows while nothing changes.
const WITHOUT_NOTIFICATIONS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// The same with notifications, while a ready group is locked.
const WHILE_LOCKED: (Duration, Duration) = (Duration::from_millis(4), Duration::from_secs(1));
/// A poll that is asked for begins after so many times what the last one took.
const ASKED_POLLS_LEAVE: u32 = 20;
/// The pause between two polls for queue monitors under load.
const FOR_MONITORS: Duration = Duration::from_millis(50);
/// The facts of queue monitors are refreshed at most this often.
const REFRESH: Duration = Duration::from_millis(20);
/// A poll can miss changes that happen meanwhile; two polls are accurate enough.
const MOST_POLLS: u32 = 2;
/// The pause between two polls that search for lost notices.
const SAFETY_POLL: Duration = Duration::from_secs(60);

/// How often receivers that wait for one conversation or group try once more. The end of a conversation makes no notice in
/// its queue: they waited without end for what had gone. Each poll may do it, and there is one a minute.
const LOOKS_OF_THE_CHOOSY: Duration = Duration::from_secs(30);

/// A poll without an answer for so long may hang. Longer than of other requests: where many queues have many messages a poll takes long.
const HANGING_POLL: Duration = Duration::from_secs(5);

/// When to poll next.
#[derive(Debug, Default)]
pub(in crate::store::database) struct PollTrigger {
    /// No notifications arrive, so this process must poll.
    is_polling: AtomicBool,
    /// A change makes the poller poll: it has no notifications, or there are queue monitors.
    heeds_changes: AtomicBool,
    has_changed: AtomicBool,
    wants_poll: AtomicBool,
    signal: Notify,
    /// The number of changes seen.
    changes: AtomicU64,
    /// That number at the last poll, plus one; 0 before the first poll.
    polled_changes: AtomicU64,
    refreshing: Mutex<Option<Instant>>,
    /// Held during a poll; how long the last one took.
    polling: Mutex<Duration>,
}

impl PollTrigger {
    /// No change since the last poll.
    fn is_current(&self) -> bool {
        self.changes.load(SeqCst) + 1 == self.polled_changes.load(SeqCst)
    }

    /// A queue changed. Wakes the poller only if it heeds that: to wake it in vain at each push woke a thread.
    pub(in crate::store::database) fn note_change(&self) {
        self.changes.fetch_add(1, SeqCst);
        if !self.has_changed.swap(true, SeqCst) && self.heeds_changes.load(SeqCst) {
            self.signal.notify_one();
        }
    }

    /// The poller heeds changes from now on, or not. One that it has not been woken for wakes it now.
    fn heed_changes(&self, heeds: bool) {
        if heeds && !self.heeds_changes.swap(true, SeqCst) {
            if self.has_changed.load(SeqCst) {
                self.signal.notify_one();
            }
        } else if !heeds {
            self.heeds_changes.store(false, SeqCst);
        }
    }

    /// A group may be ready without a notice.
    pub(in crate::store::database) fn poll_soon(&self) {
        if !self.wants_poll.swap(true, SeqCst) {
            self.signal.notify_one();
        }
    }

    fn set_polling(&self, is_polling: bool) {
        self.is_polling.store(is_polling, SeqCst);
        self.signal.notify_one();
    }
}

/// What a poll found.
#[derive(Debug, Default, PartialEq, Eq)]
struct QueueStates {
    /// Ready groups that no session holds, by queue.
    ready: BTreeMap<i32, usize>,
    /// Messages in groups that a session holds, as last committed, by queue.
    held: BTreeMap<i32, usize>,
    has_locked: bool,
}

impl QueueStates {
    /// Whether a queue has more ready groups than at an earlier poll. That it has some says nothing: a queue without readers has a
    /// backlog at each poll.
    fn has_more_than(&self, earlier: &Self) -> bool {
        self.ready.iter().any(|(queue, groups)| groups > earlier.ready.get(queue).unwrap_or(&0))
    }
}

/// When the last poll was, and the pause before the next.
struct PollPause {
    polled_at: Instant,
    pause: Duration,
    /// The last poll failed.
    has_failed: bool,
    /// The same of polls that a transaction of this process asked for when it let go of a group. Their pause does not grow while the
    /// group is locked: a receiver was woken up to a second after the commit.
    asked_at: Option<Instant>,
    asked_pause: Duration,
}

impl PollPause {
    fn new(shortest: Duration) -> Self {
        let (has_failed, asked_at) = (false, None);
        Self { polled_at: Instant::now(), pause: shortest, has_failed, asked_at, asked_pause: WHILE_LOCKED.0 }
    }

    /// When the next poll may be made.
    fn next(&self) -> Instant {
        self.polled_at + self.pause
    }

    /// When one that is asked for may be. Polls that take long leave most of the time to others.
    fn next_asked(&self, last_took: Duration) -> Instant {
        let soonest = self.polled_at + WHILE_LOCKED.0.max(last_took * ASKED_POLLS_LEAVE);
        let next = self.asked_at.map_or(soonest, |asked_at| soonest.max(asked_at + self.asked_pause));
        if self.has_failed { self.next() } else { next.min(self.next()) }
    }

    /// Polls that are asked for are as frequent as they find something: each commit beside a sleeping receiver asks for one.
    fn note_asked(&mut self, has_found: bool) {
        self.asked_at = Some(self.polled_at);
        self.asked_pause = if has_found { WHILE_LOCKED.0 } else { self.asked_pause.mul_f64(1.5).min(WHILE_LOCKED.1) };
    }

    /// Nothing has changed: polls less often.
    fn slow_down(&mut self, longest: Duration) {
        self.pause = (self.pause.mul_f64(1.5)).min(longest);
    }

    /// The poll failed. While a server was away each process asked it for ten logins a second, and warned as often.
    fn fail(&mut self, longest: Duration) {
        self.pause = match self.has_failed {
            true => (self.pause * 2).clamp(longest, retry::TASK.max(longest)),
            false => longest,
        };
        self.has_failed = true;
    }

    /// Something wakes the poller: a pause that has grown over quiet polls is short again, one after a failure is kept.
    fn wake(&mut self, (shortest, longest): (Duration, Duration)) {
        if self.polled_at.elapsed() > longest && !self.has_failed {
            self.pause = shortest;
        }
    }
}

impl Database {
    /// Polls as often as needed, until the store closes.
    pub(in crate::store::database) async fn run_queue_poll(self: Arc<Self>) {
        let mut pause_state = PollPause::new(WITHOUT_NOTIFICATIONS.0);
        let mut last = QueueStates::default();
        let mut choosy_looked_at = Instant::now();
        loop {
            let is_polling = self.watch.is_polling.load(SeqCst);
            let has_monitors = self.board.monitors().has_monitors();
            self.watch.heed_changes(is_polling || has_monitors);
            let is_awaited = self.board.sleeping() > 0 || has_monitors;
            // A poll that failed may have missed a group that was freed without a notice.
            let next = match (is_awaited, is_polling || last.has_locked || pause_state.has_failed) {
                (false, _) => None,
                (true, true) => Some(pause_state.next()),
                (true, false) => Some(pause_state.polled_at + SAFETY_POLL),
            };
            let alarm = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            let (shortest, longest) = if is_polling { WITHOUT_NOTIFICATIONS } else { WHILE_LOCKED };
            let mut is_asked = false;
            tokio::select! {
                () = self.board.receiver_sleeps() => {}
                () = self.board.monitors().began() => {}
                () = self.watch.signal.notified() => {
                    let wants_poll = self.watch.wants_poll.swap(false, SeqCst);
                    let has_changed = self.watch.has_changed.swap(false, SeqCst);
                    is_asked = wants_poll && !is_polling;
                    if is_polling && !pause_state.has_failed {
                        pause_state.pause = shortest;
                    } else if !is_polling && !wants_poll {
                        if !has_changed || !has_monitors {
                            continue;
                        }
                        sleep_until(pause_state.polled_at + FOR_MONITORS).await;
                    }
                }
                () = alarm => {}
            }
            pause_state.wake((shortest, longest));
            is_asked = self.pause_before_poll(&pause_state, is_asked, is_polling).await;
            if self.board.sleeping() == 0 && !self.board.monitors().has_monitors() {
                continue;
            }
            pause_state.polled_at = Instant::now();
            if choosy_looked_at.elapsed() >= LOOKS_OF_THE_CHOOSY {
                choosy_looked_at = Instant::now();
                self.board.wake_choosy();
            }
            match self.poll_queues().await {
                Ok(states) => {
                    self.board.meet(None);
                    pause_state.has_failed = false;
                    if is_asked {
                        pause_state.note_asked(states.has_more_than(&last));
                    }
                    if states == last || !is_polling {
                        pause_state.slow_down(longest);
                    } else {
                        pause_state.pause = shortest;
                    }
                    last = states;
                }
                Err(error) => {
                    tracing::warn!(%error, "the queues could not be polled");
                    self.board.meet(Some(Arc::new(error)));
                    pause_state.fail(longest);
                }
            }
        }
    }

    /// Waits until the next poll may be made; whether it is one that was asked for, perhaps meanwhile.
    async fn pause_before_poll(&self, pause: &PollPause, mut is_asked: bool, is_polling: bool) -> bool {
        let took = *self.watch.polling.lock().await;
        let next = |is_asked| if is_asked { pause.next_asked(took) } else { pause.next() };
        loop {
            tokio::select! {
                () = sleep_until(next(is_asked)) => break,
                () = self.watch.signal.notified(), if !is_polling && !is_asked => {
                    is_asked = self.watch.wants_poll.swap(false, SeqCst);
                }
            }
        }
        // Its signal may have been taken here.
        if self.watch.has_changed.load(SeqCst) {
            self.watch.signal.notify_one();
        }
        is_asked
    }

    /// Refreshes the facts for queue monitors, if anything has happened since the last poll.
    pub(in crate::store::database) async fn refresh_facts(self: &Arc<Self>) {
        if self.watch.is_current() {
            return;
        }
        let mut refreshed = self.watch.refreshing.lock().await;
        if self.watch.is_current() {
            return;
        }
        if let Some(last) = *refreshed
            && !self.is_manual()
        {
            sleep_until(last + REFRESH).await;
        }
        for _ in 0..MOST_POLLS {
            if let Err(error) = self.poll_queues().await {
                tracing::warn!(%error, "the queues could not be polled");
            }
            if self.watch.is_current() {
                break;
            }
        }
        *refreshed = Some(Instant::now());
    }

    /// Polls once; wakes receivers and updates the facts of the queues.
    async fn poll_queues(self: &Arc<Self>) -> Result<QueueStates> {
        let mut last = self.watch.polling.lock().await;
        let changes = self.watch.changes.load(SeqCst);
        let taken: BTreeMap<i32, u64> = {
            let queues = &self.definitions.known().catalog.queues;
            queues.values().map(|queue| (queue.id, self.board.queue(&queue.name).taken())).collect()
        };
        let call = Call { name: "poll", args: Vec::new() };
        let poll = || async {
            let began = Instant::now();
            Ok((self.control.call(call.clone()).await?, began.elapsed()))
        };
        let (rows, took) = twice_if_it_hangs(may_hang_after(HANGING_POLL, *last), poll).await?;
        *last = took;
        let row = only(&rows)?;
        let states = QueueStates {
            ready: counts(row, "ready_queues")?,
            held: counts(row, "held_queues")?,
            has_locked: row.flag("has_locked")?,
        };
        self.maintenance.learn(row)?;
        // If the definitions cannot be read now, the receivers of the known queues are woken all the same.
        let reloaded = match row.int("catalog_version")? != self.definitions.known().version {
            true => self.reload().await,
            false => Ok(()),
        };
        let catalog = self.definitions.known().catalog.clone();
        let is_awaited = self.board.sleeping() > 0;
        for queue in catalog.queues.values() {
            let activity = self.board.queue(&queue.name);
            let facts = activity.facts();
            let groups = states.ready.get(&queue.id).copied().unwrap_or(0);
            let held = states.held.get(&queue.id).copied().unwrap_or(0) as u64;
            let shown = groups as u64 + held.saturating_sub(self.uncommitted.of(queue.id));
            let meanwhile = activity.taken() - taken.get(&queue.id).copied().unwrap_or_default();
            let unread = unread_after(facts.unread, shown, meanwhile);
            if groups > 0 && is_awaited {
                activity.arrived(groups, groups, unread);
            } else if (groups, unread) != (facts.ready_groups, facts.unread) {
                activity.set_depth_for_monitors(groups, unread);
            }
        }
        for queue in catalog.work_queues.values() {
            let jobs = states.ready.get(&queue.id).copied().unwrap_or(0);
            let activity = self.board.queue(&work_queue_on_board(&queue.name));
            if jobs > 0 && is_awaited {
                activity.arrived(jobs, jobs, jobs as u64);
            } else if jobs != activity.facts().ready_groups {
                activity.set_depth_for_monitors(jobs, jobs as u64);
            }
        }
        reloaded?;
        self.watch.polled_changes.store(changes + 1, SeqCst);
        Ok(states)
    }

    /// Listens to other processes until the store closes. Polls while the connection is lost.
    pub(in crate::store::database) async fn listen_to_peers(self: Arc<Self>, mut listener: Box<dyn Listener>) {
        loop {
            let error = loop {
                let said = tokio::select! {
                    biased;
                    () = self.leaving.notified() => return listener.stop().await,
                    said = listener.next() => said,
                };
                match said {
                    Ok(payloads) => {
                        let of_peers = payloads.iter().map(|payload| Notices::of_peer(payload, self.process));
                        self.apply_peer_notices(&of_peers.flatten().collect()).await;
                    }
                    Err(error) => break error,
                }
            };
            tracing::warn!(%error, "the connection for notifications of other processes was lost");
            self.board.meet(Some(Arc::new(error)));
            self.set_polling(true);
            let again = tokio::select! {
                biased;
                () = self.leaving.notified() => return,
                again = listen_again(&*self.driver) => again,
            };
            let Some(again) = again else { return };
            listener = again;
            self.board.meet(None);
            self.set_polling(false);
            self.catch_up().await;
        }
    }

    /// Whether no notifications arrive, so that this process must ask.
    pub(in crate::store::database) fn set_polling(&self, is_polling: bool) {
        self.board.announce_places(!is_polling);
        self.watch.set_polling(is_polling);
    }

    /// Notices may have been lost: reads the definitions, wakes all receivers, and polls.
    async fn catch_up(self: &Arc<Self>) {
        if let Err(error) = self.reload_unproven().await {
            tracing::warn!(%error, "the definitions could not be read");
        }
        self.board.wake_all();
        self.maintenance.falls_due(Timestamp(0));
        self.watch.poll_soon();
    }
}

/// How many messages are unread after a poll that shows `shown`, while this process received `received_meanwhile`: those
/// may be counted in it or not. So a poll beside a RECEIVE never reports an empty queue where a message was. A queue
/// monitor that believed it would go INACTIVE, and launch once more for the messages that it did not expect.
fn unread_after(before: u64, shown: u64, received_meanwhile: u64) -> u64 {
    match shown.saturating_sub(received_meanwhile) {
        0 => before.min(shown).min(1),
        at_least => at_least,
    }
}

/// Numbers by queue, `<queue_id>:<number> ...`; empty if the server reports none.
fn counts(row: Row<'_>, column: &str) -> Result<BTreeMap<i32, usize>> {
    let text = if row.has(column) { row.text(column)? } else { "" };
    let pair = |word: &str| {
        let (queue, number) = word.split_once(':')?;
        Some((queue.parse().ok()?, number.parse().ok()?))
    };
    let pairs = text.split_ascii_whitespace();
    pairs
        .map(|word| pair(word).ok_or_else(|| damaged(format!("'{word}' in {column} is no queue and number"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SqlRow, SqlValue};

    #[tokio::test]
    async fn a_change_wakes_the_poller_only_if_it_heeds_changes() {
        let _limit = crate::testing::limit();
        let trigger = PollTrigger::default();
        let is_woken = async || tokio::time::timeout(Duration::ZERO, trigger.signal.notified()).await.is_ok();
        trigger.note_change();
        assert!(!is_woken().await);
        trigger.heed_changes(true);
        assert!(is_woken().await, "for the change before it");
        trigger.has_changed.store(false, SeqCst);
        trigger.heed_changes(true);
        assert!(!is_woken().await, "nothing has changed");
        trigger.note_change();
        trigger.note_change();
        assert!(is_woken().await);
        assert!(!is_woken().await, "once for both");
        trigger.has_changed.store(false, SeqCst);
        trigger.heed_changes(false);
        trigger.note_change();
        assert!(!is_woken().await);
    }

    #[test]
    fn failing_polls_become_rare_and_the_first_good_one_ends_that() {
        let mut pause = PollPause::new(WITHOUT_NOTIFICATIONS.0);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pause.fail(WITHOUT_NOTIFICATIONS.1);
            pause.polled_at -= pause.pause * 2;
            pause.wake(WITHOUT_NOTIFICATIONS);
            pauses.push(pause.pause.as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000], "a caller that comes does not make it short");
        pause.has_failed = false;
        pause.wake(WITHOUT_NOTIFICATIONS);
        assert_eq!(pause.pause, WITHOUT_NOTIFICATIONS.0);
    }

    #[test]
    fn polls_that_are_asked_for_do_not_wait_for_those_of_a_locked_group() {
        let ms = Duration::from_millis;
        let mut pause = PollPause::new(WHILE_LOCKED.0);
        (0..20).for_each(|_| pause.slow_down(WHILE_LOCKED.1));
        assert_eq!(pause.next() - pause.polled_at, WHILE_LOCKED.1);
        assert_eq!(pause.next_asked(ms(0)) - pause.polled_at, WHILE_LOCKED.0);
        assert_eq!(pause.next_asked(ms(2)) - pause.polled_at, ms(40), "a poll of 2 ms leaves 40 to others");
        assert_eq!(pause.next_asked(ms(500)), pause.next(), "but is not later than any");
        for _ in 0..20 {
            pause.note_asked(false);
        }
        assert_eq!(pause.next_asked(ms(0)) - pause.polled_at, WHILE_LOCKED.1, "they found nothing");
        pause.note_asked(true);
        assert_eq!(pause.next_asked(ms(0)) - pause.polled_at, WHILE_LOCKED.0);
    }

    #[test]
    fn a_backlog_that_nothing_reads_is_no_find() {
        let states =
            |ready: &[(i32, usize)]| QueueStates { ready: ready.iter().copied().collect(), ..Default::default() };
        let backlog = states(&[(1, 5)]);
        assert!(backlog.has_more_than(&states(&[])) && backlog.has_more_than(&states(&[(1, 4), (2, 9)])));
        assert!(!backlog.has_more_than(&backlog) && !states(&[]).has_more_than(&backlog));
    }

    #[test]
    fn numbers_by_queue_are_read_or_refused() {
        let row = |value| SqlRow { columns: vec!["ready_queues".to_owned()].into(), values: vec![value] };
        let read = |text: &str| counts(Row(&row(SqlValue::Text(text.to_owned()))), "ready_queues");
        assert_eq!(read("7:2  8:1").unwrap(), BTreeMap::from([(7, 2), (8, 1)]));
        assert!(read("").unwrap().is_empty());
        assert!(counts(Row(&row(SqlValue::Null)), "ready_queues").unwrap().is_empty());
        for text in ["7", "7:x", "x:7", "7:2 8:-1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
