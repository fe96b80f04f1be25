//! The answers of the core: steps, rows to read, and the effects of a commit.

use super::change::Change;
use super::group_lock::GroupKey;
use super::work::TakenRow;
use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId, MessageId};
use crate::protocol::{Message, Outcome};
use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The result of executing a verb.
#[derive(Debug)]
pub enum Step {
    /// It is done, in this session's eyes.
    Done(Reply),
    /// Another session holds this group; nothing happened. Try again when the group is in [`Effects::released`].
    Blocked(GroupKey),
}

/// The answer of a verb that is done.
#[derive(Debug)]
pub enum Reply {
    /// The outcome itself.
    Outcome(Outcome),
    /// A RECEIVE: rows that the store reads and makes messages of.
    Rows(Vec<Taken>),
    /// A taking of jobs: rows that the store reads and makes jobs of.
    Jobs(Vec<TakenRow>),
}

/// A row that a RECEIVE took: the parts of the message that are in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The key of the row.
    pub queuing_order: u64,
    /// The endpoint's level.
    pub priority: u8,
    /// The group.
    pub group: GroupId,
    /// The endpoint.
    pub handle: ConversationHandle,
    /// The number in the conversation.
    pub sequence: u64,
    /// The service the message was sent to.
    pub service_id: i32,
    /// The contract of the conversation.
    pub contract_id: i32,
}

/// The parts of a message that are in its table row.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRow {
    /// Its type.
    pub message_type_id: i32,
    /// Names it.
    pub message_id: MessageId,
    /// When it arrived.
    pub enqueued_at: Timestamp,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// Trace context.
    pub trace: Option<Arc<str>>,
}

impl Taken {
    /// The message, from the parts in memory and in the table.
    ///
    /// # Errors
    /// 60012 if the row names a message type, service or contract that the catalog does not have.
    pub fn into_message(self, catalog: &Catalog, row: ReadRow) -> Result<Message> {
        let missing = |what: &str, id: i32| {
            Error::new(
                Code::STORE_DAMAGED,
                format!("message {} names {what} {id}, which the catalog does not have", self.queuing_order),
            )
        };
        let service = catalog.services.get(&self.service_id).ok_or_else(|| missing("service", self.service_id))?;
        let contract = catalog.contracts.get(&self.contract_id).ok_or_else(|| missing("contract", self.contract_id))?;
        let message_type = catalog
            .message_types
            .get(&row.message_type_id)
            .ok_or_else(|| missing("message type", row.message_type_id))?;
        Ok(Message {
            status: 1,
            priority: self.priority,
            queuing_order: self.queuing_order,
            conversation_group_id: self.group,
            conversation_handle: self.handle,
            message_sequence_number: self.sequence,
            service_name: service.name.clone(),
            service_id: self.service_id,
            service_contract_name: contract.name.clone(),
            service_contract_id: self.contract_id,
            message_type_name: message_type.name.clone(),
            message_type_id: row.message_type_id,
            validation: message_type.validation_letter(),
            message_body: row.body,
            message_id: row.message_id,
            message_enqueue_time: row.enqueued_at,
            trace: row.trace,
        })
    }
}

/// The effects of commits, rollbacks and the passing of time. Every list is appended to.
#[derive(Debug, Default)]
pub struct Effects {
    /// Rows to write, in order.
    pub changes: Vec<Change>,
    /// Groups that were unlocked: their waiting callers try again.
    pub released: Vec<GroupKey>,
    /// Queues whose depth changed.
    pub arrivals: Vec<Arrival>,
    /// Rows of the transmission queue to read and hand to [`Core::deliver`](super::Core::deliver), the first one first:
    /// of each conversation the row before all others; a delivery adds the next.
    pub redeliver: BTreeSet<Redelivery>,
    /// Rows of the transmission queue whose bodies must be checked before they can be delivered: check each outside all
    /// locks with [`Core::body_checks`](super::Core::body_checks), then pass the verdict to
    /// [`Core::checked`](super::Core::checked).
    pub unchecked: Vec<u64>,
    /// Bodies that the core checked itself; beyond a bound it leaves the check to its store.
    pub quick_checks: usize,
    /// The catalog was replaced: publish it and wake all receivers.
    pub catalog_changed: bool,
}

/// A row of the transmission queue to try again; ordered as the rows are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Redelivery {
    /// 10 minus the level if HONOR_BROKER_PRIORITY is ON, else 0.
    pub rank_from_top: u8,
    /// The key of the row.
    pub transmission_id: u64,
    /// The endpoint that sends it.
    pub endpoint_id: u64,
}

/// A queue whose depth changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The queue.
    pub queue_id: i32,
    /// Groups that became ready to be received; 0 if the queue only lost rows.
    pub newly_ready: usize,
}

/// How deep a queue is; of a work queue both are the jobs that may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// Groups with ready messages that no session has locked.
    pub ready_groups: usize,
    /// Ready messages that no session has taken.
    pub unread: u64,
}
