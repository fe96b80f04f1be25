//! From one endpoint to the other: straight into the peer's queue, or into the transmission queue with the reason.
//! Waiting messages are tried again after a definition, such as a queue turned on.

use super::change::{Change, DeliveryClass, MessageRow, TransmissionRow};
use super::effects::{Arrival, Effects, Redelivery};
use super::endpoint::{Endpoint, NONE, Outgoing};
use super::get_transmission_status::{Delay, status_text};
use super::queuing_orders::QueuingOrders;
use super::state::Core;
use crate::catalog::body::{Rejection, Verdict};
use crate::id::MessageId;
use crate::protocol::definition::Validation;
use crate::protocol::{Body, ConversationState, system};
use crate::time::Timestamp;
use std::sync::Arc;

/// Quick body checks per batch; beyond it the store checks the bodies later, so that other units can run.
const MOST_QUICK_CHECKS: usize = 64;

/// Bodies of one outbox that are checked before the first of them is delivered.
const MOST_CHECKED_AHEAD: usize = 64;

/// A message or an end on its way to the peer.
#[derive(Debug, Clone)]
pub(super) struct SentMessage {
    pub(super) sequence: u64,
    pub(super) message_type_id: i32,
    pub(super) message_id: MessageId,
    pub(super) body: Body,
    pub(super) trace: Option<Arc<str>>,
    pub(super) is_end: bool,
    pub(super) is_error: bool,
    pub(super) verdict: Option<Arc<Verdict>>,
}

/// The destination of an endpoint's next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// To the peer that is there.
    Peer(u32),
    /// To this service, where its first message makes the target endpoint.
    Service(i32),
    /// Nowhere: the peer has ended and takes no more messages.
    PeerEnded,
    /// Nowhere: the peer vanished without a message.
    PeerMissing,
    /// Nowhere yet.
    Delayed(Delay),
    /// Nowhere: the sender gets an Error, the message is held until it ENDs.
    Refused(i32),
}

impl Core {
    /// Sends a message: delivers it if no row waits before it and its route is free, else puts it in the transmission
    /// queue.
    pub(super) fn dispatch(&mut self, from: u32, message: SentMessage, now: Timestamp, effects: &mut Effects) {
        // An Error overtakes; every other message keeps its place behind the waiting rows.
        let must_queue = self.endpoints[from].has_outbox() && !message.is_error;
        let route = self.route(from);
        match route {
            Route::Delayed(delay) => self.enqueue_outgoing(from, message, delay, now, effects),
            _ if must_queue => {
                // The route has just become free and the waiting rows are about to leave: this one follows them.
                self.enqueue_outgoing(from, message, Delay::Behind, now, effects);
                // A body under check has its row named when the check is over.
                let delay = self.endpoints[from].rare_fields.as_ref().and_then(|rare_fields| rare_fields.delay);
                if delay != Some(Delay::Unchecked) {
                    self.name_first(from, effects);
                }
            }
            Route::Refused(code) => {
                self.enqueue_outgoing(from, message, Delay::PeerErrored, now, effects);
                let description = self.refusal(from, code);
                self.raise_error(from, code, &description, now, effects);
            }
            Route::PeerMissing => {
                let description = "the other endpoint of the conversation is gone".to_owned();
                self.raise_error(from, -8462, &description, now, effects);
            }
            // A dropped message leaves no row with its sequence number, so the endpoint's counter is written.
            Route::PeerEnded => self.mark_dirty(from),
            Route::Peer(_) | Route::Service(_) => {
                let Some(ruling) = self.judge(route, &message, effects) else {
                    self.enqueue_outgoing(from, message, Delay::Unchecked, now, effects);
                    return self.name_first(from, effects);
                };
                let peer = self.peer_of(route, from, now);
                self.arrive(from, peer, message, ruling, now, effects);
            }
        }
    }

    fn route(&self, from: u32) -> Route {
        let endpoint = &self.endpoints[from];
        if !self.catalog.settings.is_broker_enabled {
            return Route::Delayed(Delay::BrokerDisabled);
        }
        if endpoint.peer != NONE {
            let peer = &self.endpoints[endpoint.peer];
            if peer.state.is_ended() {
                return Route::PeerEnded;
            }
            // The system's own conversations have no queue that could be turned off.
            if peer.is_system {
                return Route::Peer(endpoint.peer);
            }
            return match self.queue_delay(self.groups[peer.group].queue_id) {
                Some(delay) => Route::Delayed(delay),
                None => Route::Peer(endpoint.peer),
            };
        }
        if endpoint.is_peer_known || !endpoint.is_initiator {
            return Route::PeerMissing;
        }
        let instance = endpoint.rare_fields.as_ref().and_then(|rare_fields| rare_fields.far_broker_instance.as_deref());
        let ours = self.catalog.settings.broker_guid.to_string();
        if instance.is_some_and(|instance| instance != ours) {
            return Route::Delayed(Delay::NoRoute);
        }
        let Some(service_id) = self.lookup.service(self.names.name(endpoint.far_service)) else {
            // Only a target with this broker's own identity certainly exists nowhere else.
            return if instance.is_some() { Route::Refused(-8490) } else { Route::Delayed(Delay::NoService) };
        };
        let Some(service) = self.catalog.services.get(&service_id) else { return Route::Delayed(Delay::NoService) };
        if !service.contract_ids.contains(&endpoint.contract_id) {
            return Route::Refused(-8408);
        }
        match self.queue_delay(service.queue_id) {
            Some(delay) => Route::Delayed(delay),
            None => Route::Service(service_id),
        }
    }

    fn queue_delay(&self, queue_id: i32) -> Option<Delay> {
        let enabled = self.catalog.queues.get(&queue_id).is_some_and(|queue| queue.is_enqueue_enabled);
        (!enabled).then_some(Delay::QueueDisabled)
    }

    fn refusal(&self, from: u32, code: i32) -> String {
        let endpoint = &self.endpoints[from];
        let far_service = self.names.name(endpoint.far_service);
        let contract = self.catalog.contracts.get(&endpoint.contract_id).map_or("", |contract| &contract.name);
        match code {
            -8490 => format!("the broker named in BEGIN DIALOG has no service '{far_service}'"),
            _ => format!("the target service '{far_service}' does not support contract '{contract}'"),
        }
    }

    /// The target endpoint of a conversation, made when its first message arrives.
    fn make_target(&mut self, from: u32, service_id: i32, now: Timestamp) -> u32 {
        let queue_id = self.catalog.services.get(&service_id).map_or(0, |service| service.queue_id);
        let initiator = &self.endpoints[from];
        let far_service = self.catalog.services.get(&initiator.service_id).map(|service| service.name.clone());
        // An endpoint's service exists as long as the endpoint; opening the store refuses a row that contradicts this.
        let far_service = far_service.unwrap_or_default();
        let (conversation_id, lifetime, contract_id) =
            (initiator.conversation_id, initiator.lifetime, initiator.contract_id);
        let priority = self.catalog.level_for(contract_id, service_id, &far_service);
        let group_id = self.ids.next_id();
        let group = self.group_place(group_id, service_id, queue_id);
        let endpoint = Endpoint {
            handle: self.ids.next_id(),
            conversation_id,
            endpoint_id: self.take_endpoint_id(),
            begun_at: now,
            lifetime,
            due: 0,
            send_sequence: 0,
            receive_sequence: 0,
            rows: QueuingOrders::default(),
            rare_fields: None,
            group,
            peer: from,
            service_id,
            contract_id,
            far_service: self.names.place(&far_service),
            state: ConversationState::Conversing,
            priority,
            is_initiator: false,
            is_uncommitted: false,
            is_peer_known: true,
            has_retained: false,
            is_quarantined: false,
            is_system: false,
            is_dirty: false,
            is_stored: false,
        };
        let place = self.add_endpoint(endpoint);
        let initiator = &mut self.endpoints[from];
        initiator.peer = place;
        initiator.is_peer_known = true;
        self.mark_dirty(place);
        self.reschedule(place, now);
        place
    }

    /// The other endpoint, made if it does not exist.
    fn peer_of(&mut self, route: Route, from: u32, now: Timestamp) -> u32 {
        match route {
            Route::Service(service_id) => self.make_target(from, service_id, now),
            _ => self.endpoints[from].peer,
        }
    }

    /// A message reaches the other endpoint.
    fn arrive(
        &mut self,
        from: u32,
        to: u32,
        message: SentMessage,
        ruling: Result<(), Rejection>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        if message.is_error {
            let parsed = message.body.as_ref().and_then(|body| system::parse_error_body(body.as_slice()));
            // If the text of an Error is damaged, the Error itself must still arrive.
            let (code, description) = parsed.unwrap_or_else(|| {
                (-8462, "the other endpoint ended the conversation with an error whose body cannot be read".to_owned())
            });
            self.raise_error(to, code, &description, now, effects);
            return;
        }
        // An endpoint that is disconnected or broken accepts no more messages.
        if self.endpoints[to].state != ConversationState::Conversing {
            self.mark_dirty(from);
            return;
        }
        if message.is_end && self.endpoints[to].is_system {
            self.break_notification(to, effects);
            return;
        }
        if message.is_end {
            self.endpoints[to].state = ConversationState::DisconnectedInbound;
            self.mark_dirty(to);
            self.hold_outbox(to, Delay::PeerEnded, effects);
        } else if let Err(rejection) = ruling {
            self.reject(from, to, &rejection, now, effects);
            return;
        }
        let endpoint = &mut self.endpoints[to];
        // Delivery inside one store keeps the order, so a gap means that rows are missing in the tables.
        let has_gap = endpoint.receive_sequence != message.sequence;
        endpoint.receive_sequence = message.sequence + 1;
        let order = self.take_queuing_order();
        let endpoint = &mut self.endpoints[to];
        endpoint.rows.push(order);
        effects.changes.push(Change::InsertMessage(Box::new(MessageRow {
            queuing_order: order,
            endpoint_id: endpoint.endpoint_id,
            delivery_class: DeliveryClass::Sequenced,
            sequence: message.sequence,
            message_type_id: message.message_type_id,
            message_id: message.message_id,
            enqueued_at: now,
            body: message.body,
            trace: message.trace,
        })));
        self.count_arrival(to, order, effects);
        if has_gap {
            let group = self.endpoints[to].group;
            if self.groups[group].owner == 0 {
                self.set_quarantined(group, true);
                self.rerank(group);
            } else {
                self.groups[group].is_set_aside_later = true;
            }
        }
    }

    /// Whether a body passes under the current definition: the verdict from before the SEND, or a check here within
    /// milliseconds. `None` if the check may take longer: then it must run outside all locks.
    fn judge(&self, route: Route, message: &SentMessage, effects: &mut Effects) -> Option<Result<(), Rejection>> {
        // An end has no body to check, and a receiver that is not open drops every message.
        let is_open = match route {
            Route::Peer(peer) => self.endpoints[peer].state == ConversationState::Conversing,
            _ => true,
        };
        if message.is_end || message.is_error || !is_open {
            return Some(Ok(()));
        }
        let Some(message_type) = self.catalog.message_types.get(&message.message_type_id) else { return Some(Ok(())) };
        let known = message.verdict.as_ref().and_then(|verdict| verdict.under(&self.catalog, message_type));
        if let Some(result) = known {
            return Some(result.clone());
        }
        if !message_type.is_checked() {
            return Some(Ok(()));
        }
        // A missing body passes as any type, and a type without a body is checked without reading the body: neither
        // check can take long.
        let body = message.body.as_ref().map(|body| body.as_slice()).filter(|body| !body.is_empty());
        if body.is_some() && message_type.validation != Validation::Empty {
            effects.quick_checks += 1;
            if effects.quick_checks > MOST_QUICK_CHECKS {
                return None;
            }
        }
        self.body_checks.quick_check(&self.catalog, message_type, body)
    }

    /// Stores the verdict on the body of a row in the transmission queue; the first row is then tried again. Returns
    /// the next row of the conversation, whose body can be checked meanwhile.
    pub fn checked(
        &mut self,
        transmission_id: u64,
        endpoint_id: u64,
        verdict: Arc<Verdict>,
        effects: &mut Effects,
    ) -> Option<u64> {
        let place = *self.outboxes.get(&endpoint_id)?;
        let outbox = &mut self.rare_fields(place).outbox;
        // The numbers ascend.
        let at = outbox.binary_search_by_key(&transmission_id, |outgoing| outgoing.transmission_id).ok()?;
        outbox[at].verdict = Some(verdict);
        let next = outbox.get(at + 1).filter(|_| at < MOST_CHECKED_AHEAD);
        // An Error is never behind another row: END WITH ERROR drops the waiting rows.
        let next = next.filter(|next| next.verdict.is_none() && !next.is_end);
        let next = next.map(|next| next.transmission_id);
        if at == 0 {
            self.name_first(place, effects);
        }
        next
    }

    /// Names the first row of an outbox in [`Effects::redeliver`].
    fn name_first(&self, place: u32, effects: &mut Effects) {
        let endpoint = &self.endpoints[place];
        if let Some(first) = endpoint.rare_fields.as_ref().and_then(|rare_fields| rare_fields.outbox.front()) {
            let honor = self.catalog.settings.is_honor_broker_priority_on;
            // REPRIORITISE changes the level of later messages only.
            let rank_from_top = if honor { 10 - first.level } else { 0 };
            let (transmission_id, endpoint_id) = (first.transmission_id, endpoint.endpoint_id);
            effects.redeliver.insert(Redelivery { rank_from_top, transmission_id, endpoint_id });
        }
    }

    /// Whether that row is the first of its outbox and may be sent: call this before reading its body.
    pub fn is_first_to_send(&self, row: Redelivery) -> bool {
        self.sender_of(row.transmission_id, row.endpoint_id).is_some()
    }

    /// A body that fails validation breaks both sides.
    fn reject(&mut self, from: u32, to: u32, rejection: &Rejection, now: Timestamp, effects: &mut Effects) {
        // The receiver of bad XML gets another number than its sender.
        let code_at_receiver = if rejection.code == -9615 { -9616 } else { rejection.code };
        self.raise_error(to, code_at_receiver, &rejection.description, now, effects);
        self.raise_error(from, rejection.code, &rejection.description, now, effects);
    }

    pub(super) fn count_arrival(&mut self, place: u32, order: u64, effects: &mut Effects) {
        let endpoint = &self.endpoints[place];
        let (group, level) = (endpoint.group, endpoint.priority);
        let queue_id = self.groups[group].queue_id;
        let mut newly_ready = 0;
        // A quarantined group's rows are neither unread nor ready.
        if !endpoint.is_quarantined {
            newly_ready = usize::from(self.row_added(group, level, order));
            self.queue_state(queue_id).unread += 1;
        }
        effects.arrivals.push(Arrival { queue_id, newly_ready });
    }

    pub(super) fn take_queuing_order(&mut self) -> u64 {
        let order = self.next_queuing_order;
        self.next_queuing_order += 1;
        order
    }

    // The transmission queue.

    fn enqueue_outgoing(
        &mut self,
        from: u32,
        message: SentMessage,
        delay: Delay,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let transmission_id = self.next_transmission_id;
        self.next_transmission_id += 1;
        let SentMessage { sequence, message_type_id, message_id, body, trace, is_end, is_error, verdict } = message;
        // The rows already waiting now wait for the same reason.
        if delay != Delay::Behind {
            self.hold_outbox(from, delay, effects);
        }
        let endpoint = &mut self.endpoints[from];
        let level = endpoint.priority;
        let rare_fields = endpoint.rare_fields_mut();
        rare_fields.outbox.push_back(Outgoing { transmission_id, sequence, level, is_end, is_error, verdict });
        if delay != Delay::Behind {
            rare_fields.delay = Some(delay);
        }
        let row = TransmissionRow {
            transmission_id,
            endpoint_id: endpoint.endpoint_id,
            sequence,
            message_type_id,
            is_conversation_error: is_error,
            is_end_of_dialog: is_end,
            message_id,
            enqueued_at: now,
            priority: level,
            body,
            trace,
            status: status_text(delay),
        };
        self.outboxes.insert(row.endpoint_id, from);
        effects.changes.push(Change::InsertTransmission(Box::new(row)));
    }

    /// The endpoint may not send any more: its waiting rows stay until END, with another reason.
    pub(super) fn hold_outbox(&mut self, place: u32, delay: Delay, effects: &mut Effects) {
        let Some(rare_fields) = &mut self.endpoints[place].rare_fields else { return };
        if rare_fields.delay.replace(delay) == Some(delay) {
            return;
        }
        let status = status_text(delay);
        for outgoing in &rare_fields.outbox {
            let transmission_id = outgoing.transmission_id;
            effects.changes.push(Change::SetTransmissionStatus { transmission_id, status: status.clone() });
        }
    }

    pub(super) fn drop_outbox(&mut self, place: u32, effects: &mut Effects) {
        if let Some(rare_fields) = &mut self.endpoints[place].rare_fields {
            for outgoing in rare_fields.outbox.drain(..) {
                let transmission_id = outgoing.transmission_id;
                effects.changes.push(Change::DeleteTransmission { transmission_id });
            }
        }
        self.outboxes.remove(&self.endpoints[place].endpoint_id);
    }

    /// Checks all waiting messages after definitions have changed: rows that can go first are put in
    /// [`Effects::redeliver`]; the others get their current reason.
    ///
    /// After a restart, messages whose target was erased while they waited go on waiting, as they would have without it.
    pub(super) fn revisit_outboxes(&mut self, is_restart: bool, effects: &mut Effects) {
        let mut delayed: Vec<(u32, Delay)> = Vec::new();
        for &place in self.outboxes.values() {
            let endpoint = &self.endpoints[place];
            if matches!(endpoint.state, ConversationState::DisconnectedInbound | ConversationState::Error) {
                continue;
            }
            match self.route(place) {
                Route::Delayed(delay) => delayed.push((place, delay)),
                Route::PeerMissing if is_restart => {}
                _ => self.name_first(place, effects),
            }
        }
        for (place, delay) in delayed {
            self.hold_outbox(place, delay, effects);
        }
    }

    /// Tries again to deliver a row of the transmission queue that [`Effects::redeliver`] named.
    pub fn deliver(&mut self, row: TransmissionRow, now: Timestamp, effects: &mut Effects) {
        let Some(from) = self.sender_of(row.transmission_id, row.endpoint_id) else { return };
        let message = SentMessage {
            sequence: row.sequence,
            message_type_id: row.message_type_id,
            message_id: row.message_id,
            body: row.body,
            trace: row.trace,
            is_end: row.is_end_of_dialog,
            is_error: row.is_conversation_error,
            verdict: self.rare_fields(from).outbox.front().and_then(|outgoing| outgoing.verdict.clone()),
        };
        let transmission_id = row.transmission_id;
        let route = self.route(from);
        match route {
            // Rows behind a queue that rollbacks have disabled keep their old reason until a delivery is tried.
            Route::Delayed(delay) => return self.hold_outbox(from, delay, effects),
            Route::Refused(code) => {
                if self.endpoints[from].state == ConversationState::DisconnectedOutbound {
                    // Fire and forget: the sender has ended and does not get the refusal.
                    self.erase(from, effects);
                } else {
                    let description = self.refusal(from, code);
                    self.raise_error(from, code, &description, now, effects);
                }
                self.write_touched(effects);
                return;
            }
            Route::PeerMissing => {
                self.take_outgoing(from, transmission_id, effects);
                self.raise_error(from, -8462, "the other endpoint of the conversation is gone", now, effects);
            }
            Route::PeerEnded => self.take_outgoing(from, transmission_id, effects),
            Route::Peer(_) | Route::Service(_) => {
                let Some(ruling) = self.judge(route, &message, effects) else {
                    effects.unchecked.push(transmission_id);
                    return self.hold_outbox(from, Delay::Unchecked, effects);
                };
                self.take_outgoing(from, transmission_id, effects);
                let peer = self.peer_of(route, from, now);
                self.arrive(from, peer, message, ruling, now, effects);
            }
        }
        if row.is_end_of_dialog || row.is_conversation_error {
            self.acknowledge_end(from, now, effects);
        }
        self.write_touched(effects);
    }

    /// The endpoint whose outbox begins with that row, if it may still send.
    fn sender_of(&self, transmission_id: u64, endpoint_id: u64) -> Option<u32> {
        let place = *self.outboxes.get(&endpoint_id)?;
        let endpoint = &self.endpoints[place];
        let first = endpoint.rare_fields.as_ref()?.outbox.front()?.transmission_id;
        let may_send = !matches!(endpoint.state, ConversationState::DisconnectedInbound | ConversationState::Error);
        (may_send && first == transmission_id).then_some(place)
    }

    /// Removes the first row of an endpoint's outbox; the next one is tried then.
    fn take_outgoing(&mut self, place: u32, transmission_id: u64, effects: &mut Effects) {
        let endpoint_id = self.endpoints[place].endpoint_id;
        let outbox = &mut self.rare_fields(place).outbox;
        let gone = outbox.pop_front();
        if let (Some(gone), Some(next)) = (gone, outbox.front_mut()) {
            next.level = next.level.min(gone.level);
        }
        if outbox.is_empty() {
            self.outboxes.remove(&endpoint_id);
            // The sequence number of a message that has left is in no row any more.
            self.mark_dirty(place);
        } else {
            self.name_first(place, effects);
        }
        effects.changes.push(Change::DeleteTransmission { transmission_id });
    }
}
