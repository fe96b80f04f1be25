//! The background step: timers, lifetimes and the reclaim of closed endpoints at their time.

use super::effects::Effects;
use super::state::Core;
use crate::time::Timestamp;

/// A time so much before the last one is not the disorder of callers on their way, but a clock that was set back.
pub(crate) const CLOCK_SET_BACK_US: i64 = 1_000_000;

/// The most endpoints per call: about a millisecond of work, so that units are not kept waiting.
const MOST_AT_ONCE: usize = 1000;

impl Core {
    /// Handles all due timers and lifetimes. Call again at once while [`Core::next_due`] is not later than `now`.
    pub fn tick(&mut self, now: Timestamp, effects: &mut Effects) {
        if std::mem::take(&mut self.is_restored) {
            self.revisit_outboxes(true, effects);
        }
        for _ in 0..MOST_AT_ONCE {
            match self.due.first() {
                Some(&(due, _, place)) if due <= now.0 => self.fall_due(place, now, effects),
                _ => break,
            }
        }
        self.write_touched(effects);
        self.end_holds(now, effects);
        self.tick_work(now);
        self.hand_on_work(effects);
    }

    /// Handles the next event of an endpoint: the end of its pause, its timer unless a transaction holds it, else the end of its time.
    fn fall_due(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        if self.endpoints[place].retry_at().is_some_and(|retry| retry <= now) {
            self.end_pause(place, now, effects);
        } else if self.endpoints[place].dialog_timer().is_some_and(|timer| timer <= now)
            && !self.endpoints[place].is_timer_held()
        {
            self.fire_timer(place, now, effects);
            self.reschedule(place, now);
        } else if self.end_of_life(&self.endpoints[place]) > now.0 {
            // Its timer is held by a transaction, whose end schedules it again; or it is kept for longer since.
            self.reschedule(place, now);
        } else {
            self.expire(place, now, effects);
        }
    }

    /// The time of the next work for [`Core::tick`].
    pub fn next_due(&self) -> Option<Timestamp> {
        if self.is_restored {
            return Some(Timestamp(0));
        }
        let endpoint = self.due.first().map(|(at, ..)| Timestamp(*at));
        let hold = self.holds.first().map(|(until, _)| *until);
        endpoint.into_iter().chain(self.work_due()).chain(hold).min()
    }
}
