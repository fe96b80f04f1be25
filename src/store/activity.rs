//! Activity in the queues: the signals that waiting receivers sleep on, and the facts for queue monitors.
//!
//! A signal is a hint, never a promise: a woken receiver tries again.

use super::monitors::MonitorBoard;
use crate::catalog::fold_name;
use crate::error::Error;
use crate::time::Timestamp;
use dashmap::DashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::watch;

/// One [`QueueActivity`] per queue name, folded to lower case.
#[derive(Debug)]
pub struct ActivityBoard {
    queues: DashMap<String, Arc<QueueActivity>>,
    /// At this number of names, those without users and without a store's report are removed.
    prune_at: AtomicUsize,
    definitions: Arc<Notify>,
    monitors: MonitorBoard,
    sleepers: Arc<Sleepers>,
    last_look: Mutex<Option<Instant>>,
    /// The store does not tell when another process frees the place of a reader.
    hides_free_places: AtomicBool,
    /// What keeps the store from all work now, until it passes: the server is away, or no process can take the file over.
    obstacle: watch::Sender<Option<Arc<Error>>>,
}

/// The sessions that sleep until a signal, on any queue and for any messages.
#[derive(Debug, Default)]
struct Sleepers {
    count: AtomicUsize,
    came: Notify,
}

/// Ends a session's sleep when it is dropped.
#[derive(Debug)]
pub struct SleepGuard(Arc<Sleepers>);

impl Drop for SleepGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, SeqCst);
    }
}

/// Below this number of names nothing is pruned.
const LEAST_PRUNED: usize = 1024;

/// How long a woken receiver may take to come before another one is woken. One that is polled takes a millisecond.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long readers of several work queues leave one out after a refused take: five seconds.
const LEFT_OUT_US: i64 = 5_000_000;

impl Default for ActivityBoard {
    fn default() -> Self {
        let (queues, definitions, monitors, sleepers, last_look, hides_free_places) = Default::default();
        let prune_at = AtomicUsize::new(LEAST_PRUNED);
        let obstacle = watch::Sender::new(None);
        Self { queues, prune_at, definitions, monitors, sleepers, last_look, hides_free_places, obstacle }
    }
}

impl ActivityBoard {
    /// The activity of the queue of that name; made at its first use.
    pub fn queue(&self, name: &str) -> Arc<QueueActivity> {
        let key = fold_name(name);
        if let Some(found) = self.queues.get(&key) {
            return found.clone();
        }
        // A caller may name queues that do not exist.
        if self.queues.len() >= self.prune_at.load(SeqCst) {
            self.queues.retain(|_, queue| Arc::strong_count(queue) > 1 || queue.is_known.load(SeqCst));
            self.prune_at.store((self.queues.len() * 2).max(LEAST_PRUNED), SeqCst);
        }
        self.queues.entry(key).or_default().clone()
    }

    /// What keeps the store from all work, now and later.
    pub fn obstacle(&self) -> watch::Receiver<Option<Arc<Error>>> {
        self.obstacle.subscribe()
    }

    /// Notes what keeps the store from all work, or that nothing does.
    pub(in crate::store) fn meet(&self, obstacle: Option<Arc<Error>>) {
        self.obstacle.send_if_modified(|met| {
            let is_news = met.is_some() || obstacle.is_some();
            *met = obstacle;
            is_news
        });
    }

    /// The names of the queues that are used or known, folded.
    pub fn names(&self) -> Vec<String> {
        self.queues.iter().map(|queue| queue.key().clone()).collect()
    }

    /// The store: no queue has this name any more.
    pub fn forget(&self, name: &str) {
        if let Some(queue) = self.queues.get(&fold_name(name)) {
            queue.set_depth(0, 0);
            queue.is_known.store(false, SeqCst);
        }
    }

    /// Removes a name without a user: no session waits there, and no queue monitor looks. Returns whether it has none.
    pub fn remove_unused(&self, name: &str) -> bool {
        let key = fold_name(name);
        self.queues.remove_if(&key, |_, queue| Arc::strong_count(queue) == 1);
        !self.queues.contains_key(&key)
    }

    /// Wakes all receivers and monitors of all queues: definitions changed, or the store closed.
    pub fn wake_all(&self) {
        for queue in &self.queues {
            queue.wake_all();
        }
        self.definitions.notify_waiters();
    }

    /// The store, now and then: once in [`LOOK_EVERY`] it passes on what woken receivers have not come for. A wait that its caller does
    /// not poll, as in a `select!` whose other branch works, kept its signal from all others for as long as that took.
    pub(crate) fn look_after_receivers(&self) {
        let mut last_look = self.last_look.lock().unwrap_or_else(PoisonError::into_inner);
        if last_look.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        *last_look = Some(Instant::now());
        drop(last_look);
        self.pass_on_unserved();
    }

    /// For a store without a thread of its own: does so for ever.
    pub(crate) async fn keep_looking_after_receivers(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look_after_receivers();
        }
    }

    fn pass_on_unserved(&self) {
        for queue in &self.queues {
            queue.pass_on_unserved();
        }
    }

    /// Wakes the receivers that wait for one conversation, group or level, of all queues.
    pub fn wake_choosy(&self) {
        for queue in &self.queues {
            queue.choosy.notify_waiters();
        }
    }

    /// Registers for the next change of definitions on any queue; closing the store wakes it too.
    pub fn register_definitions(&self) -> OwnedNotified {
        self.definitions.clone().notified_owned()
    }

    /// A session has found no message and will sleep until a signal; the guard ends the sleep.
    pub fn sleep(&self) -> SleepGuard {
        self.sleepers.count.fetch_add(1, SeqCst);
        self.sleepers.came.notify_one();
        SleepGuard(self.sleepers.clone())
    }

    /// The number of sessions that sleep until a signal.
    pub fn sleeping(&self) -> usize {
        self.sleepers.count.load(SeqCst)
    }

    /// The store: waits until another session goes to sleep.
    pub async fn receiver_sleeps(&self) {
        self.sleepers.came.notified().await;
    }

    /// The store: whether it tells when another process frees the place of a reader (`place_freed`). It does unless this says otherwise.
    pub(crate) fn announce_places(&self, tells: bool) {
        self.hides_free_places.store(!tells, SeqCst);
    }

    /// Whether the store tells when another process frees the place of a reader.
    pub(crate) fn tells_of_places(&self) -> bool {
        !self.hides_free_places.load(SeqCst)
    }

    /// The rows that this process's queue monitors publish.
    pub fn monitors(&self) -> &MonitorBoard {
        &self.monitors
    }
}

/// Activity in one queue. The store writes arrivals and depth; receivers write receives and waits.
#[derive(Debug, Default)]
pub struct QueueActivity {
    /// Woken one at a time: receivers that take anything.
    any: Arc<Notify>,
    /// Woken together: receivers that want one conversation, group or level.
    choosy: Arc<Notify>,
    /// Woken together: queue monitors.
    monitors: Arc<Notify>,
    ready_groups: AtomicUsize,
    unread: AtomicU64,
    receives: AtomicU64,
    /// Those that take any message.
    receives_of_any: AtomicU64,
    waiting: AtomicUsize,
    waits: AtomicU64,
    last_empty_us: AtomicI64,
    places_freed: AtomicU64,
    taken: AtomicU64,
    newly_ready: AtomicU64,
    signals: AtomicU64,
    wakes: AtomicU64,
    /// One more than `receives_of_any` at the last look, if messages were ready and sessions waited.
    receives_seen: AtomicU64,
    /// `signals` at the last look.
    signals_seen: AtomicU64,
    /// How often a signal was passed on for the same messages.
    passed_on: AtomicUsize,
    /// They wait for messages that are ready, and do not come.
    is_unserved: AtomicBool,
    /// When a take was refused because a transaction that stays open has taken from this work queue, in microseconds; 0 if none was.
    refused_us: AtomicI64,
    /// A store has reported the state of the queue, so it exists.
    is_known: AtomicBool,
}

/// A snapshot of a queue's activity, for a queue monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueFacts {
    /// Groups with ready messages that no transaction has locked.
    pub ready_groups: usize,
    /// Ready messages not yet received, those in locked groups included.
    pub unread: u64,
    /// RECEIVE and GET CONVERSATION GROUP statements so far by all callers, empty or not.
    pub receives: u64,
    /// Sessions now waiting in a RECEIVE that takes any message, or in GET CONVERSATION GROUP.
    pub waiting: usize,
    /// Waits of the same kind begun so far.
    pub waits: u64,
    /// Messages are ready, and no receive that takes any has ended for a second: the callers of these sessions do something else
    /// meanwhile, or what is ready may not be taken yet.
    pub is_unserved: bool,
    /// When one of those statements that takes any message last returned empty.
    pub last_empty: Option<Timestamp>,
    /// The number of reader places that other processes have freed so far.
    pub places_freed: u64,
}

/// What has been signalled in a queue so far, for those who pass it on to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Groups that became ready.
    pub newly_ready: u64,
    /// Signals, of groups that became ready or of other arrivals.
    pub signals: u64,
    /// Changes of the queue itself, for which every receiver was woken.
    pub wakes: u64,
}

impl QueueActivity {
    /// Registers for the next signal. Try a receive after registering, then sleep on the returned future.
    /// `choosy`: the receiver wants one conversation, group or level, or holds groups itself.
    pub fn register(&self, choosy: bool) -> OwnedNotified {
        if choosy { &self.choosy } else { &self.any }.clone().notified_owned()
    }

    /// Registers a queue monitor for the next change of any kind.
    pub fn register_monitor(&self) -> OwnedNotified {
        self.monitors.clone().notified_owned()
    }

    /// The store: this many groups have become ready; also sets the current state of the queue.
    pub fn arrived(&self, newly_ready: usize, ready_groups: usize, unread: u64) {
        self.set_depth(ready_groups, unread);
        self.signal(newly_ready);
    }

    /// The store: this many groups have become ready; the state of the queue was reported before.
    pub fn signal(&self, newly_ready: usize) {
        self.newly_ready.fetch_add(newly_ready as u64, SeqCst);
        self.signals.fetch_add(1, SeqCst);
        // One permit per ready group, and no more: more receivers would wake for nothing.
        for _ in 0..newly_ready.min(self.waiting.load(SeqCst).max(1)) {
            self.any.notify_one();
        }
        // A conversation may get a message while its group is ready already, so these wake at every arrival.
        self.choosy.notify_waiters();
        self.monitors.notify_waiters();
    }

    /// The store: the current state of the queue, without waking a receiver or monitor.
    pub fn set_depth(&self, ready_groups: usize, unread: u64) {
        self.is_known.store(true, SeqCst);
        self.ready_groups.store(ready_groups, SeqCst);
        self.unread.store(unread, SeqCst);
    }

    /// The store: the current state of the queue; wakes only its monitors.
    pub fn set_depth_for_monitors(&self, ready_groups: usize, unread: u64) {
        self.set_depth(ready_groups, unread);
        self.monitors.notify_waiters();
    }

    /// The store: this process has received this many more messages, committed or not.
    pub fn took(&self, messages: u64) {
        self.taken.fetch_add(messages, SeqCst);
    }

    /// The number of messages that this process has received so far, if its store counts them.
    pub fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// A receiver that was woken found more than it could take: pass the signal on.
    pub fn pass_on(&self) {
        if self.ready_groups.load(SeqCst) > 0 {
            self.any.notify_one();
        }
    }

    /// Wakes one more receiver, and the monitors, if there were messages and waiting sessions at the last look too and none has tried
    /// since. Each session is woken for the same messages once: what is ready may be more than may be taken.
    fn pass_on_unserved(&self) {
        let waiting = self.waiting.load(SeqCst);
        let is_stuck = waiting > 0 && self.ready_groups.load(SeqCst) > 0;
        // Sessions that ask for one conversation, group or level leave these messages.
        let seen = if is_stuck { self.receives_of_any.load(SeqCst) + 1 } else { 0 };
        let signals = self.signals.load(SeqCst);
        if self.signals_seen.swap(signals, SeqCst) != signals {
            self.passed_on.store(0, SeqCst);
        }
        let is_unserved = self.receives_seen.swap(seen, SeqCst) == seen && is_stuck;
        self.is_unserved.store(is_unserved, SeqCst);
        if !is_unserved {
            self.passed_on.store(0, SeqCst);
        } else if self.passed_on.fetch_add(1, SeqCst) < waiting {
            self.any.notify_one();
            self.monitors.notify_waiters();
        }
    }

    /// Wakes every receiver and monitor of this queue: it was turned off, on, moved or dropped.
    pub fn wake_all(&self) {
        self.wakes.fetch_add(1, SeqCst);
        self.any.notify_waiters();
        self.any.notify_one();
        self.choosy.notify_waiters();
        self.monitors.notify_waiters();
    }

    /// A RECEIVE or GET CONVERSATION GROUP ran; `empty_at` if it had no WHERE and returned nothing. `is_of_any`: it takes any message.
    pub fn received(&self, empty_at: Option<Timestamp>, is_of_any: bool) {
        self.receives.fetch_add(1, SeqCst);
        self.receives_of_any.fetch_add(u64::from(is_of_any), SeqCst);
        if let Some(at) = empty_at {
            self.last_empty_us.store(at.0, SeqCst);
        }
        self.monitors.notify_waiters();
    }

    /// A take was refused because another transaction has taken from this work queue and stays open.
    pub(crate) fn note_refusal(&self, now: Timestamp) {
        self.refused_us.store(now.0.max(1), SeqCst);
    }

    /// A reader of several work queues takes from this one. If the last take was refused, other readers leave the queue out while this
    /// take waits.
    pub(crate) fn note_attempt(&self, now: Timestamp) {
        if self.refused_us.load(SeqCst) != 0 {
            self.note_refusal(now);
        }
    }

    /// A take got jobs, or none were ready.
    pub(crate) fn note_answer(&self) {
        if self.refused_us.load(SeqCst) != 0 {
            self.refused_us.store(0, SeqCst);
        }
    }

    /// Whether a take was refused a moment ago. A reader of several work queues leaves this one out then, because each take of it waits
    /// for two seconds.
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        let refused_us = self.refused_us.load(SeqCst);
        refused_us != 0 && (0..LEFT_OUT_US).contains(&now.0.saturating_sub(refused_us))
    }

    /// The store: a process has freed the place of a reader, which a queue monitor may want.
    pub fn place_freed(&self) {
        self.places_freed.fetch_add(1, SeqCst);
        self.monitors.notify_waiters();
    }

    /// A session begins to wait without WHERE; the guard ends the wait.
    pub fn wait(self: &Arc<Self>) -> WaitGuard {
        self.waiting.fetch_add(1, SeqCst);
        self.waits.fetch_add(1, SeqCst);
        WaitGuard(self.clone())
    }

    /// What has been signalled so far.
    pub fn counts(&self) -> Counts {
        Counts {
            newly_ready: self.newly_ready.load(SeqCst),
            signals: self.signals.load(SeqCst),
            wakes: self.wakes.load(SeqCst),
        }
    }

    /// The current facts about the queue.
    pub fn facts(&self) -> QueueFacts {
        let last_empty_us = self.last_empty_us.load(SeqCst);
        QueueFacts {
            ready_groups: self.ready_groups.load(SeqCst),
            unread: self.unread.load(SeqCst),
            receives: self.receives.load(SeqCst),
            waiting: self.waiting.load(SeqCst),
            waits: self.waits.load(SeqCst),
            is_unserved: self.is_unserved.load(SeqCst),
            last_empty: (last_empty_us != 0).then_some(Timestamp(last_empty_us)),
            places_freed: self.places_freed.load(SeqCst),
        }
    }
}

/// Ends a session's wait when it is dropped.
#[derive(Debug)]
pub struct WaitGuard(Arc<QueueActivity>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
        // A waiting session keeps readers from being launched; now it no longer does.
        self.0.monitors.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_no_session_comes_for_goes_to_each_other_one_once() {
        let board = ActivityBoard::default();
        let queue = board.queue("q");
        let _waits = [queue.wait(), queue.wait()];
        let mut signals: Vec<_> = (0..2).map(|_| Box::pin(queue.register(false))).collect();
        let mut come = || -> Vec<bool> { signals.iter_mut().map(|signal| signal.as_mut().enable()).collect() };
        assert_eq!(come(), [false, false]);
        queue.arrived(1, 1, 1);
        board.pass_on_unserved();
        assert_eq!((come(), queue.facts().is_unserved), (vec![true, false], false), "it may still come");
        board.pass_on_unserved();
        assert_eq!((come(), queue.facts().is_unserved), (vec![true, true], true));
        let mut later = Box::pin(queue.register(false));
        // For the session that came first, then no more.
        board.pass_on_unserved();
        assert!(later.as_mut().enable());
        let mut last = Box::pin(queue.register(false));
        board.pass_on_unserved();
        assert!(!last.as_mut().enable());
        queue.received(None, false);
        board.pass_on_unserved();
        assert!(queue.facts().is_unserved, "it came for one conversation");
        queue.received(None, true);
        board.pass_on_unserved();
        assert!(!queue.facts().is_unserved && !last.as_mut().enable(), "one has come");
    }

    #[test]
    fn names_that_no_queue_has_are_forgotten() {
        let board = ActivityBoard::default();
        let (used, known) = (board.queue("used"), board.queue("known"));
        known.set_depth(1, 7);
        drop(known);
        for number in 0..20_000 {
            drop(board.queue(&format!("nowhere {number}")));
        }
        assert!(board.queues.len() <= LEAST_PRUNED + 1, "{}", board.queues.len());
        assert!(Arc::ptr_eq(&used, &board.queue("USED")), "who waits there is still found");
        assert_eq!(board.queue("known").facts().unread, 7);
        assert!(!board.remove_unused("Used") && board.remove_unused("Known") && board.remove_unused("nowhere"));
        assert!(Arc::ptr_eq(&used, &board.queue("used")) && board.queue("known").facts().unread == 0);
    }

    #[test]
    fn a_board_of_many_queues_is_not_scanned_each_time() {
        let board = ActivityBoard::default();
        for number in 0..5_000 {
            board.queue(&number.to_string()).set_depth(0, 0);
        }
        assert_eq!(board.queues.len(), 5_000);
        assert!(board.prune_at.load(SeqCst) > 5_000);
    }
}
