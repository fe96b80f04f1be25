//! Events by time: timers, lifetimes, and the reclaim of closed endpoints (reference 2.9, 2.10, rules 22 to 26).

use super::change::Stored;
use super::effects::Effects;
use super::state::Core;
use crate::protocol::{ConversationState, system};
use crate::time::Timestamp;

/// The most endpoints per call: about a millisecond of work, so that units are not kept waiting.
const MOST_AT_ONCE: usize = 1000;

impl Core {
    /// Handles all due timers and lifetimes. Call again at once while [`Core::next_due`] is not later than `now`.
    pub fn tick(&mut self, now: Timestamp, effects: &mut Effects) {
        if std::mem::take(&mut self.is_restored) {
            self.revisit_outboxes(effects);
        }
        for _ in 0..MOST_AT_ONCE {
            match self.due.first() {
                Some(&(due, _, place)) if due <= now.0 => self.fall_due(place, now, effects),
                _ => break,
            }
        }
        self.write_touched(effects);
    }

    fn fall_due(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        let endpoint = &self.endpoints[place];
        if endpoint.dialog_timer().is_some_and(|timer| timer <= now) {
            self.extra(place).dialog_timer = None;
            self.mark_dirty(place);
            self.add_system_message(place, Stored::Timer, system::DIALOG_TIMER_ID, None, now, effects);
            self.reschedule(place, now);
            return;
        }
        match endpoint.state {
            ConversationState::StartedOutbound
            | ConversationState::Conversing
            | ConversationState::DisconnectedInbound => {
                self.raise_error(place, -8489, "the conversation has reached its LIFETIME", now, effects);
            }
            // No message is sent: this side has ended, and its unsent messages are dropped (rule 23).
            ConversationState::DisconnectedOutbound | ConversationState::Closed => self.erase(place, effects),
            ConversationState::Error | ConversationState::StartedInbound => self.set_due(place, 0),
        }
    }
}
