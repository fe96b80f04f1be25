//! One side of a conversation, as memory holds it: about 150 bytes, because a million conversations are two million.

use super::change::{Change, DeliveryClass, EndpointRow, MessageRow};
use super::effects::{Arrival, Effects};
use super::get_transmission_status::Delay;
use super::queuing_orders::QueuingOrders;
use super::session::Overlay;
use super::state::Core;
use crate::catalog::body::Verdict;
use crate::id::{ConversationHandle, ConversationId, GroupId, MessageId};
use crate::protocol::{Body, ConversationState, system};
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use uuid::Uuid;

/// No endpoint.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) handle: Uuid,
    pub(super) conversation_id: Uuid,
    pub(super) endpoint_id: u64,
    pub(super) begun_at: Timestamp,
    pub(super) lifetime: Timestamp,
    /// The moment of its next timer, lifetime or reclaim; registered in the due list. 0 is never.
    pub(super) due: i64,
    pub(super) send_sequence: u64,
    pub(super) receive_sequence: u64,
    /// The sequenced rows that wait in the queue; their numbers end just before `receive_sequence`.
    pub(super) rows: QueuingOrders,
    pub(super) rare_fields: Option<Box<RareFields>>,
    pub(super) group: u32,
    pub(super) peer: u32,
    pub(super) service_id: i32,
    pub(super) contract_id: i32,
    pub(super) far_service: u32,
    pub(super) state: ConversationState,
    pub(super) priority: u8,
    pub(super) is_initiator: bool,
    /// Begun by a transaction that has not committed.
    pub(super) is_uncommitted: bool,
    /// The target endpoint has existed, so a missing peer is gone, not yet to come.
    pub(super) is_peer_known: bool,
    /// Rows of the retained table may exist.
    pub(super) has_retained: bool,
    /// Poison handling quarantined its group.
    pub(super) is_quarantined: bool,
    /// The broker itself holds this side.
    pub(super) is_system: bool,
    /// Its row is to be written by the commit under way.
    pub(super) is_dirty: bool,
    /// Whether its row was written; an endpoint removed before that leaves no row to delete.
    pub(super) is_stored: bool,
}

/// Fields that few endpoints need.
#[derive(Debug, Default, Clone)]
pub(super) struct RareFields {
    /// Rows that RECEIVE gives before those in sequence, in its order: timers, Errors, and redriven messages.
    pub(super) system_rows: Vec<SystemRow>,
    /// The endpoint's rows in the transmission queue, in order.
    pub(super) outbox: VecDeque<Outgoing>,
    /// Why they wait, as last written to the rows.
    pub(super) delay: Option<Delay>,
    pub(super) far_broker_instance: Option<Arc<str>>,
    pub(super) dialog_timer: Option<Timestamp>,
    /// An open transaction has changed the timer, which fires after the end of that transaction at the earliest.
    pub(super) is_timer_held: bool,
    pub(super) security_timestamp: Option<Timestamp>,
    pub(super) end_dialog_sequence: Option<u64>,
    /// When its quarantine ends by itself.
    pub(super) retry_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SystemRow {
    pub(super) delivery_class: DeliveryClass,
    pub(super) queuing_order: u64,
    /// Its number in the conversation, if it is a redriven message; else 0.
    pub(super) sequence: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) transmission_id: u64,
    pub(super) sequence: u64,
    /// The level it goes at under HONOR_BROKER_PRIORITY: that of its row, or of a message before it if that is lower.
    pub(super) level: u8,
    pub(super) is_end: bool,
    pub(super) is_error: bool,
    /// The verdict on its body, if memory has it.
    pub(super) verdict: Option<Arc<Verdict>>,
}

impl Endpoint {
    pub(super) fn system_rows(&self) -> &[SystemRow] {
        self.rare_fields.as_ref().map_or(&[], |rare_fields| &rare_fields.system_rows)
    }

    /// The rows before those in sequence that a session has not taken: timers and Errors, then redriven messages.
    ///
    /// A session takes redriven messages from the front, and none comes while it holds the group, so their number says which
    /// are left. A search for each of them took 7 s in a transaction that received 3,000 redriven messages one by one.
    pub(super) fn system_left<'e>(
        &'e self,
        overlay: Option<&'e Overlay>,
    ) -> (impl Iterator<Item = &'e SystemRow>, &'e [SystemRow]) {
        let rows = self.system_rows();
        let (others, redriven) =
            rows.split_at(rows.partition_point(|row| row.delivery_class != DeliveryClass::Sequenced));
        let is_left = move |row: &&SystemRow| {
            note_look();
            overlay.is_none_or(|overlay| !overlay.taken_system.contains(&row.queuing_order))
        };
        let taken = overlay.map_or(0, |overlay| overlay.taken_redriven as usize);
        (others.iter().filter(is_left), redriven.get(taken..).unwrap_or_default())
    }

    /// The oldest of these rows.
    pub(super) fn oldest_system_left(&self, overlay: Option<&Overlay>) -> Option<u64> {
        let (others, redriven) = self.system_left(overlay);
        others.chain(redriven.first()).map(|row| row.queuing_order).min()
    }

    pub(super) fn has_outbox(&self) -> bool {
        self.rare_fields.as_ref().is_some_and(|rare_fields| !rare_fields.outbox.is_empty())
    }

    /// Its end or error waits in the transmission queue.
    pub(super) fn waits_to_send(&self) -> bool {
        let last = self.rare_fields.as_ref().and_then(|rare_fields| rare_fields.outbox.back());
        last.is_some_and(|outgoing| outgoing.is_end || outgoing.is_error)
    }

    pub(super) fn dialog_timer(&self) -> Option<Timestamp> {
        self.rare_fields.as_ref().and_then(|rare_fields| rare_fields.dialog_timer)
    }

    /// Whether an open transaction has changed its timer.
    pub(super) fn is_timer_held(&self) -> bool {
        self.rare_fields.as_ref().is_some_and(|rare_fields| rare_fields.is_timer_held)
    }

    pub(super) fn security_timestamp(&self) -> Option<Timestamp> {
        self.rare_fields.as_ref().and_then(|rare_fields| rare_fields.security_timestamp)
    }

    pub(super) fn retry_at(&self) -> Option<Timestamp> {
        self.rare_fields.as_ref().and_then(|rare_fields| rare_fields.retry_at)
    }

    pub(super) fn rare_fields_mut(&mut self) -> &mut RareFields {
        self.rare_fields.get_or_insert_default()
    }

    /// Adds a row that RECEIVE gives before those in sequence: timers first, then Errors, then redriven messages; of each the
    /// oldest first.
    pub(super) fn add_system_row(&mut self, row: SystemRow) {
        let rows = &mut self.rare_fields_mut().system_rows;
        let key = |row: &SystemRow| (Reverse(row.delivery_class as u8), row.queuing_order);
        let place = rows.partition_point(|other| key(other) < key(&row));
        rows.insert(place, row);
    }

    /// Gives each row in sequence its own number: what follows does not follow them in sequence.
    pub(super) fn separate_rows(&mut self) {
        let mut sequence = self.receive_sequence.saturating_sub(u64::from(self.rows.len()));
        while let Some(queuing_order) = self.rows.pop() {
            self.add_system_row(SystemRow { delivery_class: DeliveryClass::Sequenced, queuing_order, sequence });
            sequence += 1;
        }
    }

    /// Every row that waits in the queue.
    pub(super) fn waiting_rows(&self) -> u64 {
        u64::from(self.rows.len()) + self.system_rows().len() as u64
    }

    /// The row that writes this endpoint.
    pub(super) fn to_row(&self, group: Uuid, rollbacks: u16, far_service: Arc<str>) -> EndpointRow {
        EndpointRow {
            endpoint_id: self.endpoint_id,
            handle: ConversationHandle(self.handle),
            conversation_id: ConversationId(self.conversation_id),
            group: GroupId(group),
            service_id: self.service_id,
            contract_id: self.contract_id,
            is_initiator: self.is_initiator,
            far_service,
            far_broker_instance: self
                .rare_fields
                .as_ref()
                .and_then(|rare_fields| rare_fields.far_broker_instance.clone()),
            state: self.state,
            priority: self.priority,
            lifetime: self.lifetime,
            dialog_timer: self.dialog_timer(),
            security_timestamp: self.security_timestamp(),
            send_sequence: self.send_sequence,
            receive_sequence: self.receive_sequence,
            end_dialog_sequence: self.rare_fields.as_ref().and_then(|rare_fields| rare_fields.end_dialog_sequence),
            is_system: self.is_system,
            is_quarantined: self.is_quarantined,
            rollbacks,
            retry_at: self.retry_at(),
            begun_at: self.begun_at,
        }
    }
}

/// Counts a row that is looked at, for the tests of bounds.
pub(super) fn note_look() {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
}

#[cfg(test)]
thread_local! {
    /// Rows before those in sequence that this thread has looked at.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Core {
    /// Breaks an endpoint: an Error row before all others, and no more sending.
    pub(super) fn raise_error(
        &mut self,
        place: u32,
        code: i32,
        description: &str,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let endpoint = &self.endpoints[place];
        match endpoint.state {
            ConversationState::StartedOutbound
            | ConversationState::Conversing
            | ConversationState::DisconnectedInbound => {}
            // Broken or ended already: an Error that reaches an endpoint after its END is discarded.
            _ => return,
        }
        if endpoint.is_system {
            self.break_notification(place, effects);
            return;
        }
        self.endpoints[place].state = ConversationState::Error;
        self.mark_dirty(place);
        self.reschedule(place, now);
        self.hold_outbox(place, Delay::PeerErrored, effects);
        let body = Some(Arc::new(system::error_body(code, description)));
        self.add_system_message(place, DeliveryClass::Error, system::ERROR_ID, body, now, effects);
    }

    /// Queues an Error or a DialogTimer.
    pub(super) fn add_system_message(
        &mut self,
        place: u32,
        delivery_class: DeliveryClass,
        message_type_id: i32,
        body: Body,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let order = self.take_queuing_order();
        let message_id = MessageId(self.ids.next_id());
        let endpoint = &mut self.endpoints[place];
        endpoint.add_system_row(SystemRow { delivery_class, queuing_order: order, sequence: 0 });
        effects.changes.push(Change::InsertMessage(Box::new(MessageRow {
            queuing_order: order,
            endpoint_id: endpoint.endpoint_id,
            delivery_class,
            sequence: 0,
            message_type_id,
            message_id,
            enqueued_at: now,
            body,
            trace: None,
        })));
        self.count_arrival(place, order, effects);
    }

    /// This side has ended and has no row left to send: an initiator is erased, a target stays CLOSED for a while.
    pub(super) fn finish(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        let endpoint = &self.endpoints[place];
        if endpoint.is_initiator {
            self.erase(place, effects);
            return;
        }
        // The initiator has an answer of the target if it got a message, or the target's own end before its own.
        let is_confirmed = endpoint.send_sequence > 0;
        let keep = if is_confirmed { Some(self.limits.closed_retention) } else { self.limits.unconfirmed_retention };
        let endpoint = &mut self.endpoints[place];
        endpoint.state = ConversationState::Closed;
        if endpoint.rare_fields.is_some() || keep.is_some() {
            let rare_fields = endpoint.rare_fields_mut();
            rare_fields.dialog_timer = None;
            rare_fields.security_timestamp = keep.map(|keep| now.after(keep));
        }
        self.mark_dirty(place);
        self.reschedule(place, now);
    }

    /// Removes an endpoint with its rows and its outbox.
    pub(super) fn erase(&mut self, place: u32, effects: &mut Effects) {
        self.drop_rows(place, effects);
        self.drop_outbox(place, effects);
        let queue_id = self.queue_of(place);
        let endpoint = self.remove_endpoint(place);
        if self.groups.get(endpoint.group).is_none() {
            // A RECEIVE that waits for this group has to find that it is gone.
            effects.arrivals.push(Arrival { queue_id, newly_ready: 0 });
        }
        // The rows with the peer's send position are gone, so the peer's counter is written.
        if self.endpoints.get(endpoint.peer).is_some_and(|peer| !peer.state.is_ended()) {
            self.mark_dirty(endpoint.peer);
        }
        if endpoint.is_stored {
            effects.changes.push(Change::DeleteEndpoint(endpoint.endpoint_id));
        }
    }
}
