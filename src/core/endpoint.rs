//! One side of a conversation, as memory holds it: about 150 bytes, because a million conversations are two million.

use super::orders::Orders;
use super::status::Delay;
use crate::catalog::body::Verdict;
use crate::core::{EndpointRow, Stored};
use crate::id::{ConversationHandle, ConversationId, GroupId};
use crate::protocol::ConversationState;
use crate::time::Timestamp;
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
    pub(super) rows: Orders,
    pub(super) extra: Option<Box<Extra>>,
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
pub(super) struct Extra {
    /// Error and DialogTimer rows that wait, in the order in which they are received.
    pub(super) system_rows: Vec<SystemRow>,
    /// The endpoint's rows in the transmission queue, in order.
    pub(super) outbox: VecDeque<Outgoing>,
    /// Why they wait, as last written to the rows.
    pub(super) delay: Option<Delay>,
    pub(super) far_broker_instance: Option<Arc<str>>,
    pub(super) dialog_timer: Option<Timestamp>,
    pub(super) security_timestamp: Option<Timestamp>,
    pub(super) end_dialog_sequence: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SystemRow {
    pub(super) stored: Stored,
    pub(super) queuing_order: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) transmission_id: u64,
    pub(super) sequence: u64,
    pub(super) is_end: bool,
    pub(super) is_error: bool,
    /// The verdict on its body, if memory has it.
    pub(super) verdict: Option<Arc<Verdict>>,
}

impl Endpoint {
    pub(super) fn system_rows(&self) -> &[SystemRow] {
        self.extra.as_ref().map_or(&[], |extra| &extra.system_rows)
    }

    pub(super) fn has_outbox(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| !extra.outbox.is_empty())
    }

    /// Its end or error waits in the transmission queue.
    pub(super) fn waits_to_send(&self) -> bool {
        let last = self.extra.as_ref().and_then(|extra| extra.outbox.back());
        last.is_some_and(|outgoing| outgoing.is_end || outgoing.is_error)
    }

    pub(super) fn dialog_timer(&self) -> Option<Timestamp> {
        self.extra.as_ref().and_then(|extra| extra.dialog_timer)
    }

    pub(super) fn security_timestamp(&self) -> Option<Timestamp> {
        self.extra.as_ref().and_then(|extra| extra.security_timestamp)
    }

    pub(super) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Adds an Error or DialogTimer row where RECEIVE will find it: timers first, then errors.
    pub(super) fn add_system_row(&mut self, row: SystemRow) {
        let rows = &mut self.extra_mut().system_rows;
        let place = match row.stored {
            Stored::Timer => rows.iter().take_while(|other| other.stored == Stored::Timer).count(),
            Stored::Error | Stored::Sequenced => rows.len(),
        };
        rows.insert(place, row);
    }

    /// Every row that waits in the queue.
    pub(super) fn waiting_rows(&self) -> u64 {
        u64::from(self.rows.len()) + self.system_rows().len() as u64
    }

    /// The row that writes this endpoint.
    pub(super) fn to_row(&self, group: Uuid, far_service: Arc<str>) -> EndpointRow {
        EndpointRow {
            endpoint_id: self.endpoint_id,
            handle: ConversationHandle(self.handle),
            conversation_id: ConversationId(self.conversation_id),
            group: GroupId(group),
            service_id: self.service_id,
            contract_id: self.contract_id,
            is_initiator: self.is_initiator,
            far_service,
            far_broker_instance: self.extra.as_ref().and_then(|extra| extra.far_broker_instance.clone()),
            state: self.state,
            priority: self.priority,
            lifetime: self.lifetime,
            dialog_timer: self.dialog_timer(),
            security_timestamp: self.security_timestamp(),
            send_sequence: self.send_sequence,
            receive_sequence: self.receive_sequence,
            end_dialog_sequence: self.extra.as_ref().and_then(|extra| extra.end_dialog_sequence),
            is_system: self.is_system,
            is_quarantined: self.is_quarantined,
            begun_at: self.begun_at,
        }
    }
}
