//! The end of a conversation whose LIFETIME has run out, and of a closed endpoint after its retention.

use super::effects::Effects;
use super::endpoint::Endpoint;
use super::state::Core;
use crate::protocol::ConversationState;
use crate::time::Timestamp;

impl Core {
    /// The time at which an endpoint ends by itself, in microseconds.
    pub(super) fn end_of_life(&self, endpoint: &Endpoint) -> i64 {
        match endpoint.state {
            // An unset security timestamp keeps the endpoint for its whole LIFETIME.
            ConversationState::Closed => {
                endpoint.security_timestamp().unwrap_or_else(|| endpoint.lifetime.after(self.limits.closed_retention)).0
            }
            ConversationState::Error => i64::MAX,
            _ => endpoint.lifetime.0,
        }
    }

    /// Ends an endpoint whose time has run out.
    pub(super) fn expire(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        match self.endpoints[place].state {
            ConversationState::StartedOutbound
            | ConversationState::Conversing
            | ConversationState::DisconnectedInbound => {
                self.raise_error(place, -8489, "the conversation has reached its LIFETIME", now, effects);
            }
            // No message is sent: this side has ended, and its unsent messages are dropped.
            ConversationState::DisconnectedOutbound | ConversationState::Closed => self.erase(place, effects),
            ConversationState::Error | ConversationState::StartedInbound => self.set_due(place, 0),
        }
    }
}
