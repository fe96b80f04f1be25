//! Dead letters: messages that a retry policy has taken out of their queue, and their way back (`docs/semantics.md`, "Dead
//! letters").

use super::change::{Change, DeadLetterRow, DeliveryClass};
use super::effects::Effects;
use super::endpoint::SystemRow;
use super::execute::{Checked, lock};
use super::session::{FirstReceived, Op, Session};
use super::state::Core;
use crate::error::{Error, Result};
use crate::id::{ConversationHandle, ConversationId, DeadLetterId, GroupId};
use crate::protocol::Outcome;
use crate::time::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// The most characters of a reason that are kept.
const MOST_REASON: usize = 1000;

/// What memory has of a dead letter; its body is in its row.
#[derive(Debug, Clone)]
pub(super) struct DeadLetter {
    pub(super) endpoint_id: u64,
    pub(super) handle: Uuid,
    pub(super) delivery_class: DeliveryClass,
    pub(super) sequence: u64,
    /// The session that redrives or purges it; 0 if none does.
    pub(super) owner: u32,
}

impl Core {
    /// Moves a message into the dead letters that a session had received first, and that its rollback has given back.
    pub(super) fn bury(
        &mut self,
        first: FirstReceived,
        attempts: u16,
        reason: Option<&str>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let place = first.endpoint;
        let group = self.endpoints[place].group;
        let queue_id = self.groups[group].queue_id;
        let endpoint = &mut self.endpoints[place];
        let row = match endpoint.system_rows().iter().position(|row| row.queuing_order == first.queuing_order) {
            Some(at) => endpoint.rare_fields_mut().system_rows.remove(at),
            None => {
                let sequence = endpoint.receive_sequence.saturating_sub(u64::from(endpoint.rows.len()));
                let Some(queuing_order) = endpoint.rows.pop() else { return };
                if endpoint.rows.is_empty() {
                    self.touched.drained.push(place);
                }
                SystemRow { delivery_class: DeliveryClass::Sequenced, queuing_order, sequence }
            }
        };
        self.queue_state(queue_id).unread -= 1;
        let SystemRow { delivery_class, queuing_order, sequence } = row;
        let endpoint = &self.endpoints[place];
        let (endpoint_id, handle) = (endpoint.endpoint_id, endpoint.handle);
        let name = |name: Option<&Arc<str>>| name.cloned().unwrap_or_default();
        let catalog = &self.catalog;
        effects.changes.push(Change::BuryMessage(Box::new(DeadLetterRow {
            queuing_order,
            endpoint_id,
            delivery_class,
            sequence,
            queue: name(catalog.queues.get(&queue_id).map(|queue| &queue.name)),
            service: name(catalog.services.get(&endpoint.service_id).map(|service| &service.name)),
            far_service: self.names.name(endpoint.far_service).clone(),
            contract: name(catalog.contracts.get(&endpoint.contract_id).map(|contract| &contract.name)),
            handle: ConversationHandle(handle),
            conversation_id: ConversationId(endpoint.conversation_id),
            group: GroupId(self.groups[group].id),
            priority: endpoint.priority,
            attempts,
            died_at: now,
            reason: reason.map(|reason| reason.chars().take(MOST_REASON).collect::<String>().into()),
        })));
        self.dead_letters.insert(queuing_order, DeadLetter { endpoint_id, handle, delivery_class, sequence, owner: 0 });
    }

    pub(super) fn redrive_dead_letter(&mut self, session: &mut Session, id: DeadLetterId) -> Checked<Outcome> {
        let letter = self.dead_letter(session, id)?.clone();
        let handle = ConversationHandle(letter.handle);
        let place = self
            .place_of_letter(&letter)
            .filter(|place| !session.has_ended(*place, &self.endpoints[*place]))
            .ok_or_else(|| Error::dead_letter_without_conversation(id, handle))?;
        lock!(self, session, session.group_of(place, &self.endpoints[place]));
        self.own_dead_letter(session, id);
        session.record(Op::Redrive { letter: id });
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn purge_dead_letter(&mut self, session: &mut Session, id: DeadLetterId) -> Checked<Outcome> {
        self.dead_letter(session, id)?;
        self.own_dead_letter(session, id);
        session.record(Op::Purge { letter: id });
        Ok(Ok(Outcome::Done))
    }

    /// A dead letter that this session may redrive or purge.
    fn dead_letter(&self, session: &Session, id: DeadLetterId) -> Result<&DeadLetter> {
        match self.dead_letters.get(&id.0) {
            Some(letter) if letter.owner == 0 => Ok(letter),
            Some(letter) if letter.owner != session.id => Err(Error::dead_letter_locked(id)),
            // This session has redriven or purged it already.
            _ => Err(Error::dead_letter_not_found(id)),
        }
    }

    fn own_dead_letter(&mut self, session: &Session, id: DeadLetterId) {
        if let Some(letter) = self.dead_letters.get_mut(&id.0) {
            letter.owner = session.id;
        }
    }

    /// A session does not redrive or purge it after all.
    pub(super) fn free_dead_letter(&mut self, id: DeadLetterId) {
        if let Some(letter) = self.dead_letters.get_mut(&id.0) {
            letter.owner = 0;
        }
    }

    /// The endpoint that a dead letter goes back to, if it still receives.
    fn place_of_letter(&self, letter: &DeadLetter) -> Option<u32> {
        let place = self.find(letter.handle)?;
        let endpoint = &self.endpoints[place];
        (endpoint.endpoint_id == letter.endpoint_id && !endpoint.state.is_ended()).then_some(place)
    }

    pub(super) fn apply_redrive_dead_letter(&mut self, id: DeadLetterId, effects: &mut Effects) {
        let Some(letter) = self.dead_letters.remove(&id.0) else { return };
        let Some(place) = self.place_of_letter(&letter) else {
            self.dead_letters.insert(id.0, DeadLetter { owner: 0, ..letter });
            return;
        };
        let DeadLetter { endpoint_id, delivery_class, sequence, .. } = letter;
        self.endpoints[place].add_system_row(SystemRow { delivery_class, queuing_order: id.0, sequence });
        effects.changes.push(Change::RedriveMessage { queuing_order: id.0 });
        // Its number is lower than those that were received since: an opening takes the gap behind it for accepted.
        let receive_sequence = self.endpoints[place].receive_sequence;
        effects.changes.push(Change::NoteReceiveSequence { endpoint_id, receive_sequence });
        // It has all its attempts, also if the message that was first before it has failed meanwhile.
        self.set_group_rollbacks(self.endpoints[place].group, 0);
        self.count_arrival(place, id.0, effects);
    }

    pub(super) fn apply_purge_dead_letter(&mut self, id: DeadLetterId, effects: &mut Effects) {
        if self.dead_letters.remove(&id.0).is_some() {
            effects.changes.push(Change::DeleteDeadLetter { queuing_order: id.0 });
        }
    }
}
