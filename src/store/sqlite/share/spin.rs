//! Short waits without sleep: when it pays that a thread polls instead of blocking.
//!
//! A call of a lone caller has two wake-ups, of the owner's thread and of the caller's. On the virtual machine of
//! docs/measurements/sqlite.md an idle core takes some 30 us for each, while the call itself takes 120 to 200 us. So both sides poll for
//! what they expect soon, for a bounded time, and then block. Each side learns from its own waits ([`Spin`]); without calls
//! neither polls.

use super::lock;
use std::num::NonZero;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The shortest bound of a wait that polls: one wake-up, which it is to save.
const LEAST: Duration = Duration::from_micros(50);
/// The longest time between two polls. A longer one shows that another thread wants the core: `yield_now` gives it away for a
/// slice of some 3 ms, while a thread that blocks gets the core back at once. The host of a virtual machine takes less.
const SLOW_POLL: Duration = Duration::from_micros(250);
/// Waits without a poll after one that did not pay, at first and at most. They double with each failure in a row. With at most
/// 512, polling that never pays costs 1 us of each wait, and after a moment of a slow disk polling comes back within 0.2 s.
const PAUSES: (u32, u32) = (16, 512);

/// What the waits of one side were like, and whether the next one should poll.
pub(super) struct Spin {
    /// A wait that is expected to take longer does not poll, and none polls for longer.
    most: Duration,
    /// The duration of a wait, smoothed. A long one counts as twice the most, so that one alone changes little.
    expected: Duration,
    /// Waits that are left without a poll, and how many the next failure adds.
    pause: u32,
    next_pause: u32,
}

impl Spin {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, expected: most * 2, pause: 0, next_pause: PAUSES.0 }
    }

    /// How long the wait that begins now should poll; `None` if it should block at once.
    pub(super) fn begin(&mut self) -> Option<Duration> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        (self.expected < self.most).then(|| (self.expected * 2).max(LEAST).min(self.most))
    }

    /// Notes how long a wait took.
    pub(super) fn note(&mut self, waited: Duration) {
        self.expected = (self.expected * 7 + waited.min(self.most * 2)) / 8;
    }

    /// Notes that polling has found what it was for.
    pub(super) fn note_paid(&mut self) {
        self.next_pause = (self.next_pause / 2).max(PAUSES.0);
    }

    /// Notes that polling has ended in vain.
    pub(super) fn note_vain(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(PAUSES.1);
    }

    /// Notes that waits do not follow one another: the next ones are expected to be long.
    pub(super) fn forget(&mut self) {
        self.expected = self.most * 2;
    }
}

/// The time that polling may still take.
pub(super) struct Polling {
    until: Instant,
    last: Instant,
}

impl Polling {
    pub(super) fn new(most: Duration) -> Self {
        let now = Instant::now();
        Self { until: now + most, last: now }
    }

    /// Whether to poll once more. Lets other threads have the core before.
    pub(super) fn goes_on(&mut self) -> bool {
        std::thread::yield_now();
        let now = Instant::now();
        let is_slow = now.saturating_duration_since(self.last) > SLOW_POLL;
        self.last = now;
        !is_slow && now < self.until
    }
}

/// Whether this machine has a core for a thread that polls, besides that of the thread it waits for.
pub(super) fn has_spare_core() -> bool {
    static HAS_SPARE: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|cores| cores > NonZero::<usize>::MIN));
    *HAS_SPARE
}

/// The longest time for which the owner's thread polls for the next call. A guest that calls again and again needs some 10 us
/// if it polls for its answer, and some 60 us more if it has to be woken.
const MOST_IDLE: Duration = Duration::from_micros(150);

/// Whose turn it is between the owner and its guests: a guest that is alone asks and is answered in turn.
pub(super) struct Turns {
    state: Mutex<TurnState>,
    answered: Notify,
}

struct TurnState {
    turn: Turn,
    spin: Spin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Several calls are under way, or none was seen yet.
    Unknown,
    /// A guest has asked.
    Asked { connection: u64 },
    /// It has its answer, and no other guest has asked meanwhile.
    Answered { connection: u64, at: Instant },
}

impl Turns {
    pub(super) fn new() -> Self {
        Self::with(MOST_IDLE)
    }

    fn with(most: Duration) -> Self {
        Self { state: Mutex::new(TurnState { turn: Turn::Unknown, spin: Spin::new(most) }), answered: Notify::new() }
    }

    /// Notes a call of a guest.
    pub(super) fn asked(&self, connection: u64) {
        let mut state = lock(&self.state);
        let TurnState { turn, spin } = &mut *state;
        match *turn {
            Turn::Answered { connection: last, at } if last == connection => spin.note(at.elapsed()),
            _ => spin.forget(),
        }
        *turn = if let Turn::Asked { .. } = turn { Turn::Unknown } else { Turn::Asked { connection } };
    }

    /// Notes that answers to a guest were written.
    pub(super) fn answered(&self, connection: u64) {
        let mut state = lock(&self.state);
        if state.turn == (Turn::Asked { connection }) {
            state.turn = Turn::Answered { connection, at: Instant::now() };
            drop(state);
            self.answered.notify_one();
        }
    }

    fn is_answered(&self) -> bool {
        matches!(lock(&self.state).turn, Turn::Answered { .. })
    }

    /// Keeps the thread of this task polling, briefly after each answer if the next call is expected soon: while a task yields, the
    /// runtime looks at its sockets without blocking.
    pub(super) async fn keep_awake(&self) {
        if !has_spare_core() {
            return;
        }
        loop {
            self.answered.notified().await;
            let Some(most) = lock(&self.state).spin.begin() else { continue };
            let mut polling = Polling::new(most);
            let is_paid = loop {
                let goes_on = polling.goes_on();
                tokio::task::yield_now().await;
                if !self.is_answered() {
                    break true;
                }
                if !goes_on {
                    break false;
                }
            };
            let spin = &mut lock(&self.state).spin;
            if is_paid { spin.note_paid() } else { spin.note_vain() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// After so many short waits the next one is expected to be short.
    const SHORT_ONES: u32 = 10;

    fn after_short_waits(most: Duration) -> Spin {
        let mut spin = Spin::new(most);
        (0..100).for_each(|_| spin.note(most / 10));
        spin
    }

    #[test]
    fn a_wait_polls_after_short_ones_and_blocks_after_long_ones() {
        let mut spin = Spin::new(500 * US);
        assert_eq!(spin.begin(), None, "nothing is known");
        (0..SHORT_ONES).for_each(|_| spin.note(200 * US));
        let most = spin.begin().expect("the next one is expected to be short");
        assert!(most > 200 * US && most <= 500 * US, "{most:?}");
        (0..100).for_each(|_| spin.note(10 * US));
        assert_eq!(spin.begin(), Some(LEAST), "the bound follows the waits");
        spin.note(3000 * US);
        assert!(spin.begin().is_some(), "one long wait changes little");
        (0..10).for_each(|_| spin.note(3000 * US));
        assert_eq!(spin.begin(), None, "a slow disk is waited for without polling");
        let mut spin = after_short_waits(500 * US);
        spin.forget();
        assert_eq!(spin.begin(), None);
    }

    #[test]
    fn polling_that_never_pays_is_all_but_given_up_and_polling_that_pays_comes_back() {
        let mut spin = after_short_waits(500 * US);
        let polls =
            |spin: &mut Spin| (0..1_000_000).filter(|_| spin.begin().inspect(|_| spin.note_vain()).is_some()).count();
        assert!((1000..2000).contains(&polls(&mut spin)), "one wait of 512");
        let pause = |spin: &mut Spin| (0..).take_while(|_| spin.begin().is_none()).count();
        spin.note_vain();
        assert_eq!(pause(&mut spin), PAUSES.1 as usize);
        (0..20).for_each(|_| spin.note_paid());
        spin.note_vain();
        assert_eq!(pause(&mut spin), PAUSES.0 as usize);
    }

    #[test]
    fn polling_ends_at_its_bound() {
        let mut polling = Polling::new(Duration::ZERO);
        assert!(!polling.goes_on());
        let mut polling = Polling { until: Instant::now() + 3600 * 1000 * 1000 * US, last: Instant::now() };
        polling.last -= SLOW_POLL * 2;
        assert!(!polling.goes_on(), "another thread had the core");
        let later = Instant::now() + HOUR;
        assert!(Polling { until: later, last: later }.goes_on());
    }

    /// So that the speed of the machine does not count.
    const HOUR: Duration = Duration::from_secs(3600);

    fn call(turns: &Turns, connection: u64) {
        turns.asked(connection);
        turns.answered(connection);
    }

    fn is_awake(turns: &Turns) -> bool {
        lock(&turns.state).spin.begin().is_some()
    }

    #[test]
    fn the_owner_polls_only_for_a_guest_that_is_alone() {
        let turns = Turns::with(HOUR);
        let alone = |turns: &Turns| (0..=SHORT_ONES).for_each(|_| call(turns, 1));
        assert!(!is_awake(&turns));
        alone(&turns);
        assert!(is_awake(&turns));
        call(&turns, 2);
        assert!(!is_awake(&turns), "another guest has called");
        call(&turns, 1);
        alone(&turns);
        assert!(is_awake(&turns));
        // Two calls under way.
        turns.asked(1);
        turns.asked(1);
        turns.answered(1);
        turns.answered(1);
        assert!(!is_awake(&turns) && !turns.is_answered());
    }

    #[tokio::test]
    async fn an_owner_whose_guest_is_silent_stops_polling() {
        let _limit = crate::testing::limit();
        let turns = Turns::with(Duration::from_millis(50));
        if !has_spare_core() {
            return;
        }
        (0..=SHORT_ONES).for_each(|_| call(&turns, 1));
        let has_ended = async {
            while lock(&turns.state).spin.pause == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = turns.keep_awake() => unreachable!("it waits for the next answer"),
            done = tokio::time::timeout(Duration::from_secs(60), has_ended) => done.expect("it has not stopped"),
        }
    }
}
