//! RECEIVE and GET CONVERSATION GROUP (`docs/semantics.md`, "Order", "Levels" and "Locks").

use super::change::{Change, DeliveryClass};
use super::check::check_levels;
use super::effects::{Effects, Taken};
use super::endpoint::note_look;
use super::execute::Checked;
use super::group_lock::GroupKey;
use super::session::{FirstReceived, Op, Overlay, Session};
use super::state::Core;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId};
use crate::protocol::{Outcome, ReceiveFrom};
use smallvec::SmallVec;

impl Core {
    pub(super) fn receive(
        &mut self,
        session: &mut Session,
        queue: &str,
        top: Option<u64>,
        from: ReceiveFrom,
    ) -> Result<Result<Vec<Taken>, GroupKey>> {
        let queue_id = self.receivable(queue)?;
        let mut only = None;
        let group = match from {
            ReceiveFrom::Any => self.choose(session, queue_id, 1, 10, false),
            ReceiveFrom::Levels { lowest, highest } => {
                check_levels(lowest, highest)?;
                self.choose(session, queue_id, lowest, highest, false)
            }
            ReceiveFrom::Oldest => self.choose(session, queue_id, 1, 10, true),
            ReceiveFrom::Conversation(handle) => {
                let place = self.receiver(session, queue, queue_id, handle)?;
                only = Some(place);
                self.free_or_own(session, queue_id, session.group_of(place, &self.endpoints[place]))
            }
            ReceiveFrom::Group(id) => {
                let group = self
                    .find_group_for(session, id.0)
                    .filter(|group| self.groups[*group].queue_id == queue_id)
                    .ok_or_else(|| Error::group_not_found(format!("{id} of queue '{queue}'")))?;
                self.free_or_own(session, queue_id, group)
            }
        };
        let limit = top.unwrap_or(u64::MAX);
        let Some(group) = group.filter(|_| limit > 0) else { return Ok(Ok(Vec::new())) };
        let conversations = self.conversations(session, group, only);
        if conversations.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        // The chosen group is unlocked, so this cannot block.
        let _ = self.lock(session, group);
        let mut taken = Vec::new();
        for place in conversations {
            if taken.len() as u64 >= limit {
                break;
            }
            let is_first = taken.is_empty();
            self.take(session, group, place, limit, &mut taken);
            if let (true, Some(first)) = (is_first, taken.first()) {
                let first = FirstReceived { endpoint: place, queuing_order: first.queuing_order };
                // Where it is after a rollback: the session may have moved it.
                session.received_from.entry(self.endpoints[place].group).or_insert(first);
            }
        }
        self.mark_stale(group);
        self.queue_state(queue_id).unread -= taken.len() as u64;
        if !session.received_queues.iter().any(|(known, _)| *known == queue_id) {
            session.received_queues.push((queue_id, self.losses));
        }
        session.received_groups.insert(group);
        Ok(Ok(taken))
    }

    pub(super) fn get_conversation_group(&mut self, session: &mut Session, queue: &str) -> Checked<Outcome> {
        let queue_id = self.receivable(queue)?;
        let Some(group) = self.choose(session, queue_id, 1, 10, false) else { return Ok(Ok(Outcome::Group(None))) };
        let _ = self.lock(session, group);
        Ok(Ok(Outcome::Group(Some(GroupId(self.groups[group].id)))))
    }

    fn receivable(&self, name: &str) -> Result<i32> {
        let queue_id = self.lookup.queue(name).ok_or_else(|| Error::object_not_found("queue", name))?;
        let queue = self.catalog.queues.get(&queue_id).ok_or_else(|| Error::object_not_found("queue", name))?;
        if queue.is_receive_enabled { Ok(queue_id) } else { Err(Error::queue_disabled(&queue.name)) }
    }

    /// The endpoint that a RECEIVE names, if it is one of this queue that may still receive.
    fn receiver(&self, session: &Session, queue: &str, queue_id: i32, handle: ConversationHandle) -> Result<u32> {
        let place = self.find_for(session, handle).ok_or_else(|| Error::conversation_not_found(handle))?;
        let endpoint = &self.endpoints[place];
        if session.has_ended(place, endpoint) || endpoint.state.is_ended() {
            return Err(Error::conversation_not_found(handle));
        }
        if self.queue_of(place) != queue_id {
            return Err(Error::new(
                Code::CONVERSATION_NOT_FOUND,
                format!(
                    "conversation handle {handle} was not found in queue '{queue}': its service uses another queue"
                ),
            ));
        }
        Ok(place)
    }

    fn free_or_own(&self, session: &Session, queue_id: i32, group: u32) -> Option<u32> {
        let owner = self.groups[group].owner;
        (owner == session.id || owner == 0 && self.may_receive(session, queue_id)).then_some(group)
    }

    /// The conversations of a group with rows left for this session, best level first, then by handle.
    pub(super) fn conversations(&self, session: &Session, group: u32, only: Option<u32>) -> SmallVec<[u32; 2]> {
        let has_more = |place: u32| {
            let endpoint = &self.endpoints[place];
            let taken = session.overlay(place).map_or(0, Overlay::taken_rows);
            !session.has_ended(place, endpoint) && !endpoint.is_quarantined && endpoint.waiting_rows() > taken
        };
        let stays = |place: u32| session.group_of(place, &self.endpoints[place]) == group;
        let mut found: SmallVec<[u32; 2]> = match only {
            Some(place) => SmallVec::from_iter(has_more(place).then_some(place)),
            None => {
                self.groups[group].members.iter().copied().filter(|place| stays(*place) && has_more(*place)).collect()
            }
        };
        if only.is_none() {
            let moved_in = session.moved_into(group).filter(|place| self.endpoints[*place].group != group);
            found.extend(moved_in.filter(|place| has_more(*place)));
        }
        found.sort_by_key(|place| {
            let endpoint = &self.endpoints[*place];
            (10 - endpoint.priority, endpoint.handle)
        });
        found
    }

    /// Takes rows of one conversation: timers, errors, redriven messages, then in sequence.
    fn take(&mut self, session: &mut Session, group: u32, place: u32, limit: u64, taken: &mut Vec<Taken>) {
        let endpoint = &self.endpoints[place];
        let overlay = session.overlay(place);
        let group_id = GroupId(self.groups[group].id);
        let row = |queuing_order: u64, sequence: u64| Taken {
            queuing_order,
            priority: endpoint.priority,
            group: group_id,
            handle: ConversationHandle(endpoint.handle),
            sequence,
            service_id: endpoint.service_id,
            contract_id: endpoint.contract_id,
        };
        let mut system = SmallVec::new();
        let mut redriven = 0;
        let (others, redriven_left) = endpoint.system_left(overlay);
        let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(taken.len());
        for waiting in others.chain(redriven_left).take(room) {
            note_look();
            system.push(waiting.queuing_order);
            redriven += u32::from(waiting.delivery_class == DeliveryClass::Sequenced);
            taken.push(row(waiting.queuing_order, waiting.sequence));
        }
        let before = overlay.map(|overlay| overlay.taken).unwrap_or_default();
        let mut after = before;
        let first_sequence = endpoint.receive_sequence.saturating_sub(u64::from(endpoint.rows.len()));
        while (taken.len() as u64) < limit {
            let sequence = first_sequence + u64::from(after.rows);
            let Some(order) = endpoint.rows.next(&mut after) else { break };
            taken.push(row(order, sequence));
        }
        let retains = self.retains(place);
        session.record(Op::Take { endpoint: place, rows: after.rows - before.rows, retains, system, redriven, after });
    }

    pub(super) fn apply_take(&mut self, place: u32, rows: u32, retains: bool, system: &[u64], effects: &mut Effects) {
        let endpoint = &mut self.endpoints[place];
        endpoint.has_retained |= retains;
        let mut remove = |queuing_order| {
            effects.changes.push(if retains {
                Change::RetainMessage { queuing_order }
            } else {
                Change::DeleteMessage { queuing_order }
            });
        };
        if !system.is_empty() {
            // They were taken in the order of the rows.
            let mut next = system.iter().copied().peekable();
            endpoint.rare_fields_mut().system_rows.retain(|row| next.next_if_eq(&row.queuing_order).is_none());
            system.iter().copied().for_each(&mut remove);
        }
        for _ in 0..rows {
            remove(endpoint.rows.pop().expect("rows that were taken stay until the taker commits"));
        }
        if rows > 0 && endpoint.rows.is_empty() {
            self.touched.drained.push(place);
        }
    }

    /// Removes every waiting row of an endpoint.
    pub(super) fn drop_rows(&mut self, place: u32, effects: &mut Effects) {
        let queue_id = self.queue_of(place);
        let endpoint = &mut self.endpoints[place];
        let mut dropped = 0;
        while let Some(queuing_order) = endpoint.rows.pop() {
            effects.changes.push(Change::DeleteMessage { queuing_order });
            dropped += 1;
        }
        if let Some(rare_fields) = &mut endpoint.rare_fields {
            for row in rare_fields.system_rows.drain(..) {
                effects.changes.push(Change::DeleteMessage { queuing_order: row.queuing_order });
                dropped += 1;
            }
        }
        let (is_quarantined, endpoint_id) = (endpoint.is_quarantined, endpoint.endpoint_id);
        if std::mem::take(&mut endpoint.has_retained) {
            effects.changes.push(Change::DeleteRetained { endpoint_id });
        }
        if !is_quarantined {
            self.queue_state(queue_id).unread -= dropped;
        }
    }
}
