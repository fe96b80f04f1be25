//! Recovery: rows in, a broker out.

use super::change::{Change, DeliveryClass, EndpointRow};
use super::dead_letter::DeadLetter;
use super::effects::Effects;
use super::endpoint::{Endpoint, NONE, Outgoing, RareFields, SystemRow};
use super::get_transmission_status::Delay;
use super::queuing_orders::QueuingOrders;
use super::repair::{Repairs, mend_catalog};
use super::state::{Core, Limits};
use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, IdSource};
use crate::protocol::ConversationState;
use crate::time::Timestamp;
use hashbrown::HashMap;

/// Rebuilds a [`Core`] from the rows of a database.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct Restore {
    pub(super) core: Core,
    /// Endpoint id to place: ids ascend and are dense enough that a map of this kind is the larger part of recovery.
    places: HashMap<u64, u32>,
    by_conversation: HashMap<uuid::Uuid, u32>,
    /// By place, how far an endpoint has received by the side table. Rows around that number wait only if a group with
    /// missing messages was released.
    received: HashMap<u32, u64>,
    damage: Option<String>,
    changes: Vec<Change>,
    repairs: Repairs,
    /// Endpoints whose rows contradict each other.
    aside: Vec<u32>,
    marks: (u64, u64, u64),
    /// The token by the id of a job.
    pub(super) held_jobs: HashMap<u64, u64>,
}

/// A broker rebuilt from its rows.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct Restored {
    /// The broker.
    pub core: Core,
    /// Changes to write before all others.
    pub changes: Vec<Change>,
    /// The repairs made.
    pub repairs: Repairs,
}

impl Restore {
    /// Begins with the definitions.
    pub fn new(mut catalog: Catalog, ids: IdSource, limits: Limits) -> Self {
        let (mut changes, mut repairs) = (Vec::new(), Repairs::default());
        let damage = mend_catalog(&mut catalog, &mut changes, &mut repairs);
        let core = Core::over(catalog, ids, limits);
        let (places, by_conversation, received, held_jobs) = Default::default();
        let (aside, marks) = (Vec::new(), (0, 0, 0));
        Self { core, places, by_conversation, received, damage, changes, repairs, aside, marks, held_jobs }
    }

    /// Announces the number of endpoints, so that memory is allocated at once.
    pub fn expect_endpoints(&mut self, count: usize) {
        self.core.endpoints.reserve(count);
        self.core.groups.reserve(count);
        self.places.reserve(count);
    }

    /// The numbers to go on from, at least.
    pub fn counters(&mut self, next_queuing_order: u64, next_endpoint_id: u64, next_transmission_id: u64) {
        self.marks = (next_queuing_order, next_endpoint_id, next_transmission_id);
        self.core.next_queuing_order = self.core.next_queuing_order.max(next_queuing_order);
        self.core.next_endpoint_id = self.core.next_endpoint_id.max(next_endpoint_id);
        self.core.next_transmission_id = self.core.next_transmission_id.max(next_transmission_id);
    }

    /// A unit that has happened; the oldest first.
    pub fn unit(&mut self, unit_id: uuid::Uuid, done_at: Timestamp) {
        self.core.units.enter(unit_id, done_at);
    }

    /// An endpoint; before its messages.
    pub fn endpoint(&mut self, row: EndpointRow) {
        let core = &mut self.core;
        let Some(service) = core.catalog.services.get(&row.service_id) else {
            let what = format!("conversation {} names service {}, which does not exist", row.handle, row.service_id);
            self.damage.get_or_insert(what);
            return;
        };
        let queue_id = service.queue_id;
        if core.find(row.handle.0).is_some() {
            self.damage.get_or_insert(format!("two conversations have the handle {}", row.handle));
            return;
        }
        let has_contract = core.catalog.contracts.contains_key(&row.contract_id);
        let group = core.group_place(row.group.0, row.service_id, queue_id);
        let rollbacks = &mut core.groups[group].rollbacks;
        *rollbacks = row.rollbacks.max(*rollbacks);
        let has_extra = row.far_broker_instance.is_some()
            || row.dialog_timer.is_some()
            || row.security_timestamp.is_some()
            || row.end_dialog_sequence.is_some()
            || row.retry_at.is_some();
        let rare_fields = has_extra.then(|| {
            Box::new(RareFields {
                far_broker_instance: row.far_broker_instance,
                dialog_timer: row.dialog_timer,
                security_timestamp: row.security_timestamp,
                end_dialog_sequence: row.end_dialog_sequence,
                retry_at: row.retry_at,
                ..RareFields::default()
            })
        });
        let peer = self.by_conversation.remove(&row.conversation_id.0).unwrap_or(NONE);
        let endpoint = Endpoint {
            handle: row.handle.0,
            conversation_id: row.conversation_id.0,
            endpoint_id: row.endpoint_id,
            begun_at: row.begun_at,
            lifetime: row.lifetime,
            due: 0,
            send_sequence: row.send_sequence,
            receive_sequence: row.receive_sequence,
            rows: QueuingOrders::default(),
            rare_fields,
            group,
            peer,
            service_id: row.service_id,
            contract_id: row.contract_id,
            far_service: core.names.place(&row.far_service),
            state: row.state,
            // A level out of range would be a rank below zero.
            priority: row.priority.clamp(1, 10),
            is_initiator: row.is_initiator,
            is_uncommitted: false,
            is_peer_known: peer != NONE || !row.is_initiator,
            // Retained rows are not read: deleting rows that may not exist costs one lookup by key at END.
            has_retained: true,
            is_quarantined: row.is_quarantined,
            is_system: row.is_system,
            is_dirty: false,
            is_stored: true,
        };
        let place = core.add_endpoint(endpoint);
        if peer == NONE {
            self.by_conversation.insert(row.conversation_id.0, place);
        } else {
            core.endpoints[peer].peer = place;
            core.endpoints[peer].is_peer_known = true;
        }
        if !has_contract {
            let what = "its contract does not exist; its group is set aside (quarantined)";
            self.repairs.note("dialoq_conversation_endpoint", what, format!("conversation {}", row.handle));
            self.aside.push(place);
        }
        self.places.insert(row.endpoint_id, place);
        core.next_endpoint_id = core.next_endpoint_id.max(row.endpoint_id.saturating_add(1));
    }

    /// Takes an endpoint's receive position from the side table; false if there is no such endpoint.
    pub fn received_up_to(&mut self, endpoint_id: u64, receive_sequence: u64) -> bool {
        let Some(&place) = self.places.get(&endpoint_id) else { return false };
        let endpoint = &mut self.core.endpoints[place];
        endpoint.receive_sequence = endpoint.receive_sequence.max(receive_sequence);
        self.received.insert(place, receive_sequence);
        true
    }

    /// A message that waits in a queue; in ascending order of `queuing_order`.
    pub fn message(
        &mut self,
        queuing_order: u64,
        endpoint_id: u64,
        delivery_class: DeliveryClass,
        sequence: u64,
        message_type_id: i32,
    ) {
        self.core.next_queuing_order = self.core.next_queuing_order.max(queuing_order + 1);
        let Some(&place) = self.places.get(&endpoint_id) else {
            let example = format!("message {queuing_order} of endpoint {endpoint_id}");
            let table = "dialoq_queue_message";
            self.orphan(table, endpoint_id, Change::DeleteMessage { queuing_order }, example);
            return;
        };
        if !self.core.catalog.message_types.contains_key(&message_type_id) {
            let what = "its message type does not exist; the group of its conversation is set aside (quarantined)";
            self.repairs.note("dialoq_queue_message", what, format!("message {queuing_order}"));
            self.aside.push(place);
        }
        let endpoint = &mut self.core.endpoints[place];
        if delivery_class != DeliveryClass::Sequenced {
            endpoint.add_system_row(SystemRow { delivery_class, queuing_order, sequence });
        } else {
            let is_accepted = || self.received.get(&place).is_some_and(|received| sequence <= *received);
            if !endpoint.rows.is_empty() && endpoint.receive_sequence != sequence && is_accepted() {
                endpoint.separate_rows();
            } else if !endpoint.rows.is_empty() && endpoint.receive_sequence != sequence {
                let (expected, handle) = (endpoint.receive_sequence, endpoint.handle);
                let example = format!(
                    "message {queuing_order} of conversation {handle}, number {sequence} instead of {expected}"
                );
                let what = "messages before it are missing; the group of its conversation is set aside (quarantined)";
                self.repairs.note("dialoq_queue_message", what, example);
                self.aside.push(place);
            }
            endpoint.rows.push(queuing_order);
            endpoint.receive_sequence = sequence + 1;
        }
        if !endpoint.is_quarantined {
            let queue_id = self.core.queue_of(place);
            self.core.queue_state(queue_id).unread += 1;
        }
    }

    /// A dead letter. Its conversation may have ended long ago.
    pub fn dead_letter(
        &mut self,
        queuing_order: u64,
        endpoint_id: u64,
        handle: ConversationHandle,
        delivery_class: DeliveryClass,
        sequence: u64,
    ) {
        self.core.next_queuing_order = self.core.next_queuing_order.max(queuing_order + 1);
        let letter = DeadLetter { endpoint_id, handle: handle.0, delivery_class, sequence, owner: 0 };
        self.core.dead_letters.insert(queuing_order, letter);
    }

    /// A message that waits in the transmission queue; in ascending order of `transmission_id`.
    pub fn transmission(
        &mut self,
        transmission_id: u64,
        endpoint_id: u64,
        sequence: u64,
        level: u8,
        is_end_of_dialog: bool,
        is_conversation_error: bool,
    ) {
        self.core.next_transmission_id = self.core.next_transmission_id.max(transmission_id + 1);
        let Some(&place) = self.places.get(&endpoint_id) else {
            let example = format!("transmission {transmission_id} of endpoint {endpoint_id}");
            let table = "dialoq_transmission";
            self.orphan(table, endpoint_id, Change::DeleteTransmission { transmission_id }, example);
            return;
        };
        // An Error overtakes the rows it drops, so its number may be any. The group that gets the next message is
        // quarantined.
        let last = self.core.rare_fields(place).outbox.back().map(|last| last.sequence);
        if let Some(last) = last.filter(|last| last + 1 != sequence && !is_conversation_error) {
            let handle = self.core.endpoints[place].handle;
            let example =
                format!("transmission {transmission_id} of conversation {handle}, number {sequence} after {last}");
            let what = "messages before it are missing; the group that it arrives in will be set aside (quarantined)";
            self.repairs.note("dialoq_transmission", what, example);
        }
        let outgoing = Outgoing {
            transmission_id,
            sequence,
            level: level.clamp(1, 10),
            is_end: is_end_of_dialog,
            is_error: is_conversation_error,
            verdict: None,
        };
        self.core.rare_fields(place).outbox.push_back(outgoing);
        self.core.outboxes.insert(endpoint_id, place);
    }

    /// A row whose endpoint does not exist. If the endpoint's number was never used, the row is removed. Otherwise the
    /// endpoint existed: the row is evidence of damage and stays, where no verb reaches it.
    fn orphan(&mut self, table: &'static str, endpoint_id: u64, removal: Change, example: String) {
        if endpoint_id >= self.marks.1 {
            self.repairs.each(table, "its conversation never existed; removed", example);
            self.changes.push(removal);
        } else {
            let what = "its conversation is missing; kept, and reported at every opening until you delete the row";
            self.repairs.each(table, what, example);
        }
    }

    /// Finishes the broker.
    ///
    /// # Errors
    /// 60012 if the rows contradict each other and no repair is certainly right.
    pub fn finish(self, now: Timestamp) -> Result<Restored> {
        let Self { mut core, places, received, damage, mut changes, mut repairs, aside, marks, .. } = self;
        if let Some(what) = damage {
            return Err(Error::new(Code::STORE_DAMAGED, format!("the database is damaged: {what}; restore a backup")));
        }
        let counters = core.counters();
        if counters.0 > marks.0 || counters.1 > marks.1 || counters.2 > marks.2 {
            let example = format!("queuing_order {}, endpoint {}, transmission {}", marks.0, marks.1, marks.2);
            repairs.note("dialoq_broker", "a number above the marks was in use; numbers go on above it", example);
        }
        for (place, received) in received {
            let endpoint = &mut core.endpoints[place];
            if received > endpoint.receive_sequence {
                endpoint.separate_rows();
                endpoint.receive_sequence = received;
            }
        }
        for place in aside {
            let group = core.endpoints[place].group;
            core.set_quarantined(group, true);
        }
        for place in places.into_values() {
            core.reschedule(place, now);
            let endpoint = &core.endpoints[place];
            let outbox = endpoint.rare_fields.as_ref().map(|rare_fields| &rare_fields.outbox);
            let last_out = outbox.and_then(|outbox| outbox.back()).map_or(0, |outgoing| outgoing.sequence + 1);
            let first_out = outbox.and_then(|outbox| outbox.front()).map_or(u64::MAX, |outgoing| outgoing.sequence);
            let peer_has = if endpoint.peer == NONE { 0 } else { core.endpoints[endpoint.peer].receive_sequence };
            let send_sequence = endpoint.send_sequence.max(last_out).max(peer_has);
            let waiting = outbox.and_then(|outbox| outbox.front());
            // An Error overtakes the rows it drops, so its number may be any.
            let next_out =
                waiting.map_or(send_sequence, |first| if first.is_error { peer_has } else { first.sequence });
            if next_out != peer_has && can_deliver(&core, place) {
                let peer = &core.endpoints[endpoint.peer];
                let what =
                    "what was sent to it does not go on where it has received; its group is set aside (quarantined)";
                let example = format!(
                    "conversation {}, which has received {peer_has} messages; number {next_out} is next",
                    ConversationHandle(peer.handle)
                );
                repairs.note("dialoq_conversation_endpoint", what, example);
                let group = peer.group;
                core.set_quarantined(group, true);
            }
            let endpoint = &mut core.endpoints[place];
            endpoint.send_sequence = send_sequence;
            // Rows held until END are not checked again, so their reason must be set from the start.
            let held = match endpoint.state {
                ConversationState::DisconnectedInbound => Some(Delay::PeerEnded),
                ConversationState::Error => Some(Delay::PeerErrored),
                _ => None,
            };
            if let Some(rare_fields) =
                endpoint.rare_fields.as_mut().filter(|rare_fields| !rare_fields.outbox.is_empty())
            {
                rare_fields.delay = held;
            }
            // The first message has left and there is no peer: the peer is gone, not yet to come.
            endpoint.is_peer_known |= send_sequence > 0 && first_out > 0;
        }
        let groups: Vec<u32> = core.groups.iter().map(|(place, _)| place).collect();
        for group in groups {
            core.rerank(group);
        }
        core.is_restored = !core.outboxes.is_empty();
        let mut effects = Effects::default();
        core.write_touched(&mut effects);
        changes.append(&mut effects.changes);
        if !core.catalog.work_queues.is_empty() {
            core.work.keep_marks();
        }
        // What happened to jobs whose readers have gone, and the marks of those to come.
        let mut effects = Effects::default();
        core.hand_on_work(&mut effects);
        changes.append(&mut effects.changes);
        Ok(Restored { core, changes, repairs })
    }
}

/// Whether the next message of an endpoint would be delivered to a peer whose group is in use.
fn can_deliver(core: &Core, place: u32) -> bool {
    use ConversationState::{Conversing, DisconnectedOutbound, StartedOutbound};
    let endpoint = &core.endpoints[place];
    let may_send = matches!(endpoint.state, StartedOutbound | Conversing | DisconnectedOutbound);
    let peer = core.endpoints.get(endpoint.peer);
    may_send && peer.is_some_and(|peer| peer.state == Conversing && !peer.is_quarantined)
}
