//! SEND ON CONVERSATION (`docs/semantics.md`, "A conversation's life").

use super::change::{Change, DeliveryClass, MessageRow};
use super::delivery::SentMessage;
use super::effects::Effects;
use super::execute::Checked;
use super::session::{Op, Session};
use super::state::Core;
use crate::catalog::body::Verdict;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, MessageId};
use crate::protocol::definition::SentBy;
use crate::protocol::{Body, ConversationState, Outcome, OutgoingMessage, check_body_size, system};
use crate::time::Timestamp;
use smallvec::SmallVec;
use std::sync::Arc;

impl Core {
    pub(super) fn send(
        &mut self,
        session: &mut Session,
        handles: &[ConversationHandle],
        message_type: Option<&str>,
        body: Body,
        trace: Option<Arc<str>>,
    ) -> Checked<Outcome> {
        let places = self.addressed(session, handles)?;
        let name = message_type.unwrap_or(system::DEFAULT);
        let message_type_id = self.lookup.message_type(name).ok_or_else(|| Error::message_type_not_found(name))?;
        self.check_size(&body)?;
        // A zero-length body is stored as none.
        let body = body.filter(|body| !body.is_empty());
        // A conversation that has ended never sends again, and its contract does not change: check before any wait. The
        // core runs a verb without interruption, so these checks still hold under the locks.
        for &place in &places {
            self.check_may_send(session, place, message_type_id, name)?;
        }
        let groups = places.iter().map(|place| session.group_of(*place, &self.endpoints[*place])).collect();
        if let Err(blocked) = self.lock_in_order(session, groups) {
            return Ok(Err(blocked));
        }
        let verdict = body.as_ref().and_then(|body| self.body_checks.verdict(message_type_id, body));
        for place in places {
            let message_id = MessageId(self.ids.next_id());
            let (body, trace, verdict) = (body.clone(), trace.clone(), verdict.clone());
            let retains = self.retains(place);
            session.record(Op::Send { endpoint: place, message_type_id, body, message_id, trace, verdict, retains });
        }
        Ok(Ok(Outcome::Done))
    }

    /// Many messages, each with a conversation, type and body of its own. The first that is refused refuses all.
    pub(super) fn send_each(&mut self, session: &mut Session, messages: Vec<OutgoingMessage>) -> Checked<Outcome> {
        let count = messages.len();
        let mut checked = Vec::with_capacity(count);
        for (index, message) in messages.into_iter().enumerate() {
            let to = self.check_one(session, &message).map_err(|error| error.of_message(index, count))?;
            checked.push((to, message));
        }
        let mut groups: SmallVec<[_; 4]> =
            checked.iter().map(|((place, _), _)| session.group_of(*place, &self.endpoints[*place])).collect();
        groups.sort_unstable();
        groups.dedup();
        if let Err(blocked) = self.lock_in_order(session, groups) {
            return Ok(Err(blocked));
        }
        for ((endpoint, message_type_id), OutgoingMessage { body, trace, .. }) in checked {
            let body = body.filter(|body| !body.is_empty());
            let verdict = body.as_ref().and_then(|body| self.body_checks.verdict(message_type_id, body));
            let message_id = MessageId(self.ids.next_id());
            let retains = self.retains(endpoint);
            session.record(Op::Send { endpoint, message_type_id, body, message_id, trace, verdict, retains });
        }
        Ok(Ok(Outcome::Done))
    }

    /// The endpoint and the type of a message that may be sent.
    fn check_one(&self, session: &Session, message: &OutgoingMessage) -> Result<(u32, i32)> {
        let place = self.addressed(session, &[message.handle])?[0];
        let name = message.message_type.as_deref().unwrap_or(system::DEFAULT);
        let message_type_id = self.lookup.message_type(name).ok_or_else(|| Error::message_type_not_found(name))?;
        self.check_size(&message.body)?;
        self.check_may_send(session, place, message_type_id, name)?;
        Ok((place, message_type_id))
    }

    fn check_size(&self, body: &Body) -> Result<()> {
        check_body_size(body, self.limits.max_body_bytes)
    }

    /// The endpoints of a list of handles: none missing, none twice.
    fn addressed(&self, session: &Session, handles: &[ConversationHandle]) -> Result<SmallVec<[u32; 4]>> {
        if handles.is_empty() {
            return Err(Error::new(Code::HANDLE_MISSING, "SEND names no conversation; it needs at least one handle"));
        }
        let mut places = SmallVec::with_capacity(handles.len());
        for (index, handle) in handles.iter().enumerate() {
            let place = self.find_for(session, *handle).ok_or_else(|| {
                if handles.len() == 1 {
                    return Error::conversation_not_found(handle);
                }
                Error::new(
                    Code::LISTED_CONVERSATION_NOT_FOUND,
                    format!("handle {} of {} in the list, {handle}, was not found", index + 1, handles.len()),
                )
            })?;
            places.push(place);
        }
        if handles.len() > 1 {
            let mut sorted = places.clone();
            sorted.sort_unstable();
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Error::new(
                    Code::LISTED_HANDLE_TWICE,
                    format!(
                        "handle {} is listed twice; each conversation may be named once",
                        self.endpoints[pair[0]].handle
                    ),
                ));
            }
        }
        Ok(places)
    }

    fn check_may_send(&self, session: &Session, place: u32, message_type_id: i32, name: &str) -> Result<()> {
        let endpoint = &self.endpoints[place];
        let contract = || self.catalog.contracts.get(&endpoint.contract_id).map_or("", |contract| &contract.name);
        let has_ended = session.has_ended(place, endpoint);
        if has_ended || !endpoint.state.may_send() {
            let state = if has_ended { ConversationState::DisconnectedOutbound } else { endpoint.state };
            return Err(Error::state_forbids_send(endpoint.handle, state));
        }
        match (self.lookup.sent_by(endpoint.contract_id, message_type_id), endpoint.is_initiator) {
            (None, _) => {
                return Err(Error::new(
                    Code::MESSAGE_TYPE_NOT_IN_CONTRACT,
                    format!("message type '{name}' is not in contract '{}'", contract()),
                ));
            }
            (Some(SentBy::Target), true) => {
                return Err(Error::new(
                    Code::SENT_BY_TARGET_ONLY,
                    format!("contract '{}' lets only the target send '{name}'; this side is the initiator", contract()),
                ));
            }
            (Some(SentBy::Initiator), false) => {
                return Err(Error::new(
                    Code::SENT_BY_INITIATOR_ONLY,
                    format!("contract '{}' lets only the initiator send '{name}'; this side is the target", contract()),
                ));
            }
            _ => {}
        }
        // A system service has no queue; an application can send from one only if a row is damaged.
        if let Some(queue) = self.catalog.queues.get(&self.queue_of(place))
            && !queue.is_enqueue_enabled
            && queue.is_retention_enabled
        {
            return Err(Error::new(
                Code::OWN_QUEUE_DISABLED_WITH_RETENTION,
                format!(
                    "queue '{}' of the sending service is disabled and retains messages, so the copy cannot be kept; \
                     ALTER QUEUE [{}] WITH STATUS = ON enables it",
                    queue.name, queue.name
                ),
            ));
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of a message")]
    pub(super) fn apply_send(
        &mut self,
        place: u32,
        message_type_id: i32,
        body: Body,
        message_id: MessageId,
        trace: Option<Arc<str>>,
        verdict: Option<Arc<Verdict>>,
        retains: bool,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let endpoint = &mut self.endpoints[place];
        // The peer may have ended, or the conversation broken, since the SEND was checked. Messages that arrive after
        // END are dropped, and so is this one.
        if !endpoint.state.may_send() {
            return;
        }
        if endpoint.state == ConversationState::StartedOutbound {
            endpoint.state = ConversationState::Conversing;
            self.mark_dirty(place);
        }
        let endpoint = &mut self.endpoints[place];
        let sequence = endpoint.send_sequence;
        endpoint.send_sequence += 1;
        if retains {
            self.endpoints[place].has_retained = true;
            let queuing_order = self.take_queuing_order();
            effects.changes.push(Change::InsertRetained(Box::new(MessageRow {
                queuing_order,
                endpoint_id: self.endpoints[place].endpoint_id,
                delivery_class: DeliveryClass::Sequenced,
                sequence,
                message_type_id,
                message_id,
                enqueued_at: now,
                body: body.clone(),
                trace: trace.clone(),
            })));
        }
        let (is_end, is_error) = (false, false);
        let message = SentMessage { sequence, message_type_id, message_id, body, trace, is_end, is_error, verdict };
        self.dispatch(place, message, now, effects);
    }
}
