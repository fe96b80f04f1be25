//! The queue monitor: when readers are launched, as a pure state machine (`docs/semantics.md`,
//! "Activation").
//!
//! It has no clock, no tasks and no queue: a driver passes it the facts and carries out its decisions.

use crate::store::QueueFacts;
use crate::time::Timestamp;
use std::time::Duration;

/// How long no RECEIVE may have returned empty before one more reader is launched, and the delay before a failed launch
/// is tried again. Fixed, as in Service Broker.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long no reader is launched after one that asked for a part of the queue and found nothing in it: time for other processes to take
/// its place. The first pause, and the longest: it doubles while one reader after the other finds nothing, because a distant server
/// needs several round trips to pass a place on.
pub(super) const PASS_ON: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// After how long a place is asked for again where nothing tells that another process has freed it. Less than the longest pause of
/// [`PASS_ON`]: a process that asked each five seconds got the place only if it was free at that moment.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The state of a queue monitor; the names of `dm_broker_queue_monitors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum MonitorState {
    /// Nothing is ready to be received.
    #[default]
    Inactive,
    /// A reader was launched and no RECEIVE was seen since.
    Notified,
    /// RECEIVE statements are being issued.
    ReceivesOccurring,
}

impl MonitorState {
    /// The text of the `state` column.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Inactive => "INACTIVE",
            Self::Notified => "NOTIFIED",
            Self::ReceivesOccurring => "RECEIVES_OCCURRING",
        }
    }
}

/// How the number of readers grows while there is more work than they can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ramp {
    /// One more reader each 5 s, while no RECEIVE returns empty and no session waits: eight readers take 35 s.
    #[default]
    ServiceBroker,
    /// As many as there are ready groups without a reader, at once. Not in Service Broker.
    Fast,
}

/// Whether readers or events may be launched for the queue, and of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MonitorSettings {
    /// Whether the monitor exists: the broker is enabled, the queue is on, and its activation is on and configured.
    pub exists: bool,
    /// The kind of launch.
    pub launches: Launches,
}

impl MonitorSettings {
    fn is_fast(&self) -> bool {
        matches!(self.launches, Launches::Readers { ramp: Ramp::Fast, .. })
    }
}

/// The kind of launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launches {
    /// A reader of this process.
    Readers {
        /// The most at a time, 0 to 32767.
        max: u16,
        /// How their number grows.
        ramp: Ramp,
    },
    /// A QUEUE_ACTIVATION event. External readers cannot be counted, so there is no limit.
    Events,
}

/// The readers as the driver counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Running {
    /// Launched and not yet gone.
    pub readers: usize,
    /// Readers among them that have not reached their first RECEIVE.
    pub starting: usize,
}

/// The decision after a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Decision {
    /// So many readers, or events.
    pub launch: usize,
    /// Check again at this moment even if nothing happens.
    pub next_check: Option<Timestamp>,
}

/// How a reader ended, as far as it matters to the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ReaderEnd {
    /// It received and left.
    Left,
    /// Its RECEIVE failed because its queue was off or gone.
    WithQueue,
    /// It never ran a RECEIVE (28087).
    WithoutReceive,
    /// It failed (28088, 8415).
    Failed {
        /// Whether it ran a RECEIVE before.
        received: bool,
    },
    /// The store failed, so the next reader would most likely fail too.
    StoreFailed,
}

/// The counters of `Broker Activation` for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ActivationCounters {
    /// Readers launched.
    pub tasks_started: u64,
    /// Readers that failed or never received.
    pub tasks_aborted: u64,
    /// Launches that the limit forbade.
    pub task_limit_reached: u64,
    /// Readers that failed, and launches that found no procedure.
    pub activation_errors: u64,
}

/// One queue's monitor.
#[derive(Debug, Clone, Default)]
pub(super) struct Monitor {
    state: MonitorState,
    exists: bool,
    /// Just made: waiting rows are served at once, even if earlier readers still run.
    is_new: bool,
    /// `receives` and `waits` of the last check.
    seen: (u64, u64),
    /// The start of the time without an empty RECEIVE and without a launch.
    quiet_since: Timestamp,
    /// The limit forbade the last launch that was due.
    refused: bool,
    last_max: u16,
    /// No launch before this.
    hold_until: Option<Timestamp>,
    /// Readers of other processes fill the queue: no launch before this, unless a place becomes free here.
    full_until: Option<Timestamp>,
    /// A reader found nothing in its part of the queue: no launch before this.
    passed_on_until: Option<Timestamp>,
    /// Readers in a row that found nothing.
    found_nothing: u32,
    /// `places_freed` of the last check.
    places_freed: u64,
    last_activated: Option<Timestamp>,
    /// `last_activated` before the last check.
    activated_before: Option<Timestamp>,
    /// A reader failed.
    reader_failed: bool,
    /// A reader failed because the store did.
    store_failed: bool,
    /// A reader was ended with its queue.
    ended_with_queue: bool,
    counters: ActivationCounters,
}

impl Monitor {
    /// A monitor that has seen nothing.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Its state; `None` while it does not exist.
    pub(super) fn state(&self) -> Option<MonitorState> {
        self.exists.then_some(self.state)
    }

    /// When it last launched.
    pub(super) fn last_activated(&self) -> Option<Timestamp> {
        self.last_activated
    }

    /// Its counters so far.
    pub(super) fn counters(&self) -> ActivationCounters {
        self.counters
    }

    /// Decides on launches from the facts. Every launch it decides counts as done; if one fails, call
    /// [`Monitor::launch_failed`].
    pub(super) fn check(
        &mut self,
        settings: &MonitorSettings,
        facts: &QueueFacts,
        running: Running,
        now: Timestamp,
    ) -> Decision {
        if !settings.exists {
            *self = Self { last_activated: self.last_activated, counters: self.counters, ..Self::default() };
            return Decision::default();
        }
        if !self.exists {
            self.exists = true;
            self.is_new = true;
            self.seen = (facts.receives, facts.waits);
        }
        self.bound_waits(now);
        self.activated_before = self.last_activated;
        if facts.places_freed != self.places_freed {
            self.places_freed = facts.places_freed;
            self.full_until = None;
        }
        self.settings_changed(settings, now);
        self.observe(facts, now);
        // A RECEIVE that fails changes no fact, nor does a reader that fails before it receives. Without this, readers launched
        // while a server is down would leave the queue NOTIFIED for ever; the pause prevents a loop of failures. The same for a
        // queue that was turned off and on again between two checks: only the end of its reader shows it.
        let was_off = std::mem::take(&mut self.ended_with_queue) && running.readers == 0 && !settings.is_fast();
        if (std::mem::take(&mut self.reader_failed) || was_off) && self.state == MonitorState::Notified {
            self.state = MonitorState::ReceivesOccurring;
            self.quiet_since = now;
            self.hold(now);
        }
        // A RECEIVE may succeed each time and the COMMIT after it fail, so a RECEIVE does not end this pause.
        if std::mem::take(&mut self.store_failed) {
            if self.state == MonitorState::Notified {
                self.state = MonitorState::ReceivesOccurring;
                self.quiet_since = now;
            }
            self.hold(now);
        }
        if self.state == MonitorState::ReceivesOccurring && facts.unread == 0 {
            self.state = MonitorState::Inactive;
        }
        let mut launch = match self.state {
            MonitorState::Inactive => self.if_inactive(settings, facts, running, now),
            MonitorState::Notified => self.if_notified(settings, facts, now),
            MonitorState::ReceivesOccurring => self.if_receiving(settings, facts, running, now),
        };
        if let Launches::Readers { max, ramp: Ramp::Fast } = settings.launches {
            launch += self.fast_ramp(max, facts, running, launch, now);
        }
        if facts.unread == 0 {
            self.is_new = false;
        }
        Decision { launch, next_check: self.next_check(settings, facts, now) }
    }

    /// A reader has gone.
    pub(super) fn reader_ended(&mut self, end: ReaderEnd, now: Timestamp) {
        self.full_until = None;
        let received = match end {
            ReaderEnd::Left => true,
            ReaderEnd::WithQueue => {
                self.ended_with_queue = true;
                true
            }
            ReaderEnd::WithoutReceive => {
                self.counters.tasks_aborted += 1;
                false
            }
            ReaderEnd::Failed { received } => {
                self.counters.tasks_aborted += 1;
                self.counters.activation_errors += 1;
                self.reader_failed = true;
                received
            }
            ReaderEnd::StoreFailed => {
                self.counters.tasks_aborted += 1;
                self.counters.activation_errors += 1;
                self.store_failed = true;
                false
            }
        };
        if !received {
            // Another launch at once would only fail again; a RECEIVE by any session ends the pause.
            self.hold(now);
        }
    }

    /// A reader asked for a part of the queue, and left without having found anything in it.
    pub(super) fn reader_found_nothing(&mut self, now: Timestamp) {
        let pause = PASS_ON.0.saturating_mul(1 << self.found_nothing.min(4)).min(PASS_ON.1);
        self.passed_on_until = Some(now.after(pause));
        self.found_nothing += 1;
    }

    /// A reader found something, or asked for the whole queue.
    pub(super) fn reader_found_something(&mut self) {
        self.found_nothing = 0;
    }

    /// A handler failed and its reader goes on.
    pub(super) fn handler_failed(&mut self) {
        self.counters.activation_errors += 1;
    }

    /// The launch just decided failed, because the procedure does not exist; it is tried again in 5 s.
    pub(super) fn launch_failed(&mut self, launches: usize, now: Timestamp) {
        self.counters.tasks_started -= launches as u64;
        self.counters.activation_errors += 1;
        self.state = MonitorState::Inactive;
        self.hold(now);
    }

    /// Readers of other processes hold the places that so many of the launches just decided needed. They are tried
    /// again when one becomes free or the limit is raised, and in 5 s; `is_notified`: whether the store tells when one becomes free.
    pub(super) fn places_taken(&mut self, launches: usize, running: Running, is_notified: bool, now: Timestamp) {
        self.counters.tasks_started -= launches as u64;
        self.counters.task_limit_reached += 1;
        self.refused = true;
        self.full_until = Some(now.after(if is_notified { CHECK_INTERVAL } else { ASK_AGAIN }));
        if running.starting == 0 {
            self.last_activated = self.activated_before;
        }
        if running.readers == 0 {
            self.state = MonitorState::Inactive;
        }
    }

    /// The obstacle to launches may be gone: a procedure was registered.
    pub(super) fn retry_now(&mut self) {
        self.hold_until = None;
    }

    fn hold(&mut self, now: Timestamp) {
        self.hold_until = Some(now.after(CHECK_INTERVAL));
    }

    /// No wait lasts longer than the interval, even if the clock was put back meanwhile.
    fn bound_waits(&mut self, now: Timestamp) {
        let latest = now.after(CHECK_INTERVAL);
        for until in [&mut self.hold_until, &mut self.full_until] {
            *until = until.map(|until| until.min(latest));
        }
        self.passed_on_until = self.passed_on_until.map(|until| until.min(now.after(PASS_ON.1)));
        self.quiet_since = self.quiet_since.min(now);
    }

    /// No launch before this, if it is not over.
    fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.hold_until.max(self.full_until).max(self.passed_on_until).filter(|until| now < *until)
    }

    fn held(&self, now: Timestamp) -> bool {
        self.held_until(now).is_some()
    }

    /// A raised limit makes the launch that it forbade due at once; no other change needs a record.
    fn settings_changed(&mut self, settings: &MonitorSettings, now: Timestamp) {
        let Launches::Readers { max, .. } = settings.launches else { return };
        if max > self.last_max && self.refused {
            self.refused = false;
            self.hold_until = None;
            self.full_until = None;
            self.quiet_since = Timestamp(now.0.saturating_sub(CHECK_INTERVAL.as_micros() as i64));
        }
        self.last_max = max;
    }

    /// Takes in the new receives and waits of all sessions.
    fn observe(&mut self, facts: &QueueFacts, now: Timestamp) {
        let receives = facts.receives != self.seen.0;
        let waits = facts.waits != self.seen.1;
        self.seen = (facts.receives, facts.waits);
        if self.state == MonitorState::Notified && (receives || waits) {
            self.state = MonitorState::ReceivesOccurring;
            self.quiet_since = now;
            self.hold_until = None;
        }
        // A waiting session has tried and found nothing, so it counts like an empty result from now on.
        if waits || is_awaited(facts) {
            self.quiet_since = self.quiet_since.max(now);
        }
        if let Some(empty) = facts.last_empty.filter(|empty| *empty <= now) {
            self.quiet_since = self.quiet_since.max(empty);
        }
    }

    /// INACTIVE: a row that becomes ready launches one reader, unless a session waits to take it.
    fn if_inactive(
        &mut self,
        settings: &MonitorSettings,
        facts: &QueueFacts,
        running: Running,
        now: Timestamp,
    ) -> usize {
        if facts.unread == 0 || is_awaited(facts) || self.held(now) {
            return 0;
        }
        if running.readers > 0 && !self.is_new {
            self.state = MonitorState::ReceivesOccurring;
            self.quiet_since = now;
            return 0;
        }
        self.launch(settings, running, now, MonitorState::Notified)
    }

    /// NOTIFIED: no second reader before a RECEIVE; an event is sent again after 5 s.
    fn if_notified(&mut self, settings: &MonitorSettings, facts: &QueueFacts, now: Timestamp) -> usize {
        let is_due = self.last_activated.is_none_or(|last| now < last || now >= last.after(CHECK_INTERVAL));
        if settings.launches == Launches::Events && facts.unread > 0 && is_due {
            return self.launch(settings, Running::default(), now, MonitorState::Notified);
        }
        0
    }

    /// RECEIVES_OCCURRING with rows left: at once if all readers have gone, else one more each 5 s of constant work.
    fn if_receiving(
        &mut self,
        settings: &MonitorSettings,
        facts: &QueueFacts,
        running: Running,
        now: Timestamp,
    ) -> usize {
        if is_awaited(facts) || self.held(now) {
            return 0;
        }
        let counted = settings.launches != Launches::Events;
        // A new reader gets nothing from a group that another session holds, so only unlocked groups count here.
        if counted && running.readers == 0 && facts.ready_groups > 0 {
            return self.launch(settings, running, now, MonitorState::Notified);
        }
        if now >= self.quiet_since.after(CHECK_INTERVAL) && (!settings.is_fast() || facts.ready_groups > 0) {
            return self.launch(settings, running, now, MonitorState::ReceivesOccurring);
        }
        0
    }

    /// The fast ramp: a reader for every ready group that no waiting or starting session is about to serve.
    fn fast_ramp(&mut self, max: u16, facts: &QueueFacts, running: Running, launched: usize, now: Timestamp) -> usize {
        if self.state == MonitorState::Inactive || self.held(now) {
            return 0;
        }
        let waiting = if is_awaited(facts) { facts.waiting } else { 0 };
        let unserved = facts.ready_groups.saturating_sub(waiting + running.starting + launched);
        let room = usize::from(max).saturating_sub(running.readers + launched);
        let launch = unserved.min(room);
        self.count(launch, now);
        launch
    }

    /// Launches one if the limit allows it.
    fn launch(&mut self, settings: &MonitorSettings, running: Running, now: Timestamp, then: MonitorState) -> usize {
        self.quiet_since = now;
        self.is_new = false;
        if let Launches::Readers { max, .. } = settings.launches
            && running.readers >= usize::from(max)
        {
            self.counters.task_limit_reached += 1;
            self.refused = true;
            if self.state == MonitorState::Inactive || running.readers == 0 {
                self.hold(now);
            }
            return 0;
        }
        self.refused = false;
        self.state = then;
        self.count(1, now);
        1
    }

    fn count(&mut self, launched: usize, now: Timestamp) {
        if launched > 0 {
            self.counters.tasks_started += launched as u64;
            self.last_activated = Some(now);
        }
    }

    fn next_check(&self, settings: &MonitorSettings, facts: &QueueFacts, now: Timestamp) -> Option<Timestamp> {
        if facts.unread == 0 {
            return None;
        }
        let held = self.held_until(now);
        if self.passed_on_until.is_some_and(|until| now < until) {
            return held;
        }
        match self.state {
            MonitorState::Inactive => Some(held.unwrap_or_else(|| now.after(CHECK_INTERVAL))),
            MonitorState::Notified if settings.launches == Launches::Events => {
                Some(self.last_activated.unwrap_or(now).min(now).after(CHECK_INTERVAL))
            }
            // The fast ramp does not give up on a queue whose readers never received.
            MonitorState::Notified => held.filter(|_| settings.is_fast()),
            MonitorState::ReceivesOccurring => {
                let due = self.quiet_since.after(CHECK_INTERVAL).max(held.unwrap_or(now));
                // If a launch is due and was not made, the fast ramp waits for a group that no session holds.
                Some(if due > now { due } else { now.after(CHECK_INTERVAL) })
            }
        }
    }
}

/// Whether sessions wait that will take what comes.
fn is_awaited(facts: &QueueFacts) -> bool {
    facts.waiting > 0 && !facts.is_unserved
}

#[cfg(test)]
mod tests;
