//! END CONVERSATION (`docs/semantics.md`, "A conversation's life").

use super::check::check_form;
use super::delivery::SentMessage;
use super::effects::{Arrival, Effects};
use super::endpoint::Endpoint;
use super::execute::{Checked, lock};
use super::session::{Op, Session};
use super::state::Core;
use crate::error::{Code, Error};
use crate::id::{ConversationHandle, MessageId};
use crate::protocol::{ConversationState, EndForm, Outcome, system};
use crate::time::Timestamp;
use std::sync::Arc;

impl Core {
    pub(super) fn end_conversation(
        &mut self,
        session: &mut Session,
        handle: ConversationHandle,
        form: EndForm,
    ) -> Checked<Outcome> {
        check_form(&form)?;
        let place = self.find_for(session, handle).ok_or_else(|| Error::conversation_not_found(handle))?;
        // A committed END refuses a second one whichever session holds the group: check first, then wait for the lock.
        let endpoint = &self.endpoints[place];
        let has_ended = session.has_ended(place, endpoint);
        if has_ended || (endpoint.state.is_ended() && form != EndForm::Cleanup) {
            let state = if has_ended { ConversationState::DisconnectedOutbound } else { endpoint.state };
            return Err(Error::new(
                Code::STATE_FORBIDS_END,
                format!("conversation {handle} is {state}: this side has ended it already"),
            ));
        }
        lock!(self, session, session.group_of(place, &self.endpoints[place]));
        let endpoint = &self.endpoints[place];
        let (state, endpoint_id) = (endpoint.state, endpoint.endpoint_id);
        session.record(Op::End { endpoint: place, endpoint_id, form });
        self.mark_groups_of(session, place);
        Ok(Ok(Outcome::Ended(state)))
    }

    pub(super) fn apply_end(&mut self, place: u32, form: EndForm, now: Timestamp, effects: &mut Effects) {
        let queue_id = self.queue_of(place);
        self.drop_rows(place, effects);
        effects.arrivals.push(Arrival { queue_id, newly_ready: 0 });
        let endpoint = &self.endpoints[place];
        let (state, peer) = (endpoint.state, endpoint.peer);
        // Where there is none, it was erased, or it was never made.
        let had_peer = endpoint.is_peer_known || !endpoint.is_initiator;
        match (form, state) {
            (EndForm::Cleanup, _) => {
                self.drop_outbox(place, effects);
                self.erase(place, effects);
            }
            (EndForm::Plain, ConversationState::Conversing) => self.send_end(place, None, now, effects),
            (EndForm::WithError { code, description }, ConversationState::Conversing) => {
                self.drop_outbox(place, effects);
                if self.endpoints[place].is_initiator && !self.endpoints[place].is_peer_known {
                    // The target has not got a message of this conversation, and its first may not be an Error.
                    self.erase(place, effects);
                } else {
                    self.send_end(place, Some((code, description)), now, effects);
                }
            }
            (_, ConversationState::DisconnectedInbound) => {
                self.drop_outbox(place, effects);
                self.finish(place, now, effects);
            }
            (_, ConversationState::Error) => {
                self.drop_outbox(place, effects);
                // The other side waits for a message only if the error was this side's alone.
                let peer = self.endpoints[place].peer;
                if self.endpoints.get(peer).is_some_and(|peer| peer.state.may_send()) {
                    self.raise_error(peer, -8462, "the other endpoint of the conversation has ended", now, effects);
                }
                self.erase(place, effects);
            }
            (_, ConversationState::StartedOutbound | ConversationState::StartedInbound) => self.erase(place, effects),
            (_, ConversationState::DisconnectedOutbound | ConversationState::Closed) => {}
        }
        // Both have ended now: no side's unsent messages reach anyone, whatever delays them, and none need wait for an answer.
        let is_over = match self.endpoints.get(peer) {
            Some(peer) => peer.state.is_ended(),
            None => had_peer,
        };
        for side in [peer, place] {
            let waits = |endpoint: &Endpoint| endpoint.state == ConversationState::DisconnectedOutbound;
            if is_over && self.endpoints.get(side).is_some_and(waits) {
                self.drop_outbox(side, effects);
                self.finish(side, now, effects);
            }
        }
    }

    /// Sends the end to the peer, behind the waiting rows, and leaves this side disconnected until it is delivered.
    fn send_end(&mut self, place: u32, error: Option<(i32, String)>, now: Timestamp, effects: &mut Effects) {
        let message_id = MessageId(self.ids.next_id());
        let endpoint = &mut self.endpoints[place];
        let sequence = endpoint.send_sequence;
        endpoint.send_sequence += 1;
        endpoint.state = ConversationState::DisconnectedOutbound;
        let rare_fields = endpoint.rare_fields_mut();
        rare_fields.end_dialog_sequence = Some(sequence);
        rare_fields.dialog_timer = None;
        self.mark_dirty(place);
        self.reschedule(place, now);
        let message = SentMessage {
            sequence,
            message_type_id: if error.is_some() { system::ERROR_ID } else { system::END_DIALOG_ID },
            message_id,
            is_end: error.is_none(),
            verdict: None,
            is_error: error.is_some(),
            body: error.map(|(code, description)| Arc::new(system::error_body(code, &description))),
            trace: None,
        };
        self.dispatch(place, message, now, effects);
        if self.endpoints.get(place).is_some_and(|endpoint| !endpoint.waits_to_send()) {
            self.finish(place, now, effects);
        }
    }

    /// An end that waited in the transmission queue has reached the peer.
    pub(super) fn acknowledge_end(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        let endpoint = self.endpoints.get(place);
        if endpoint.is_some_and(|endpoint| endpoint.state == ConversationState::DisconnectedOutbound) {
            self.finish(place, now, effects);
        }
    }
}
