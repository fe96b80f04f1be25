//! The outcomes of verbs.

use super::state::ConversationState;
use super::work::{Job, JobState};
use crate::id::{ConversationHandle, ConversationId, GroupId, JobId, MessageId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The outcome of one verb.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done, with no result.
    Done,
    /// A conversation was begun.
    Began {
        /// The initiator's endpoint.
        handle: ConversationHandle,
        /// The group it belongs to.
        group: GroupId,
        /// The id both sides share.
        conversation_id: ConversationId,
    },
    /// Messages of one group, in order; empty if nothing was ready.
    Received(Vec<Message>),
    /// The group that was locked, if any was ready.
    Group(Option<GroupId>),
    /// A text, possibly empty.
    Text(String),
    /// Warnings of definitions that were applied all the same.
    Warnings(Vec<String>),
    /// A conversation was ended; the state it was in.
    Ended(ConversationState),
    /// A job was pushed, or one of its unique key had been.
    Pushed {
        /// The job; `None` if the one of the unique key is finished already.
        job: Option<JobId>,
        /// Whether this push made it.
        is_new: bool,
    },
    /// Jobs that were taken; empty if none was ready.
    Jobs(Vec<Job>),
    /// An attempt failed; the state that its job is in now.
    Failed(JobState),
}

/// The form of a verb's result: which [`Outcome`] it is, and the columns that a database gives it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultForm {
    /// [`Outcome::Done`]; no columns.
    Nothing,
    /// [`Outcome::Began`]
    Began,
    /// [`Outcome::Received`], a row for each message.
    Messages,
    /// [`Outcome::Group`]; NULL is none.
    Group,
    /// [`Outcome::Ended`], the two letters of the state.
    StateBefore,
    /// [`Outcome::Text`] in the column of this name; NULL or no row is the empty text.
    Text(&'static str),
    /// [`Outcome::Pushed`]
    Pushed,
    /// [`Outcome::Jobs`], a row for each job.
    Jobs,
    /// [`Outcome::Failed`], the name of the state.
    JobState,
    /// [`Outcome::Warnings`], which the client makes.
    Warnings,
}

impl ResultForm {
    /// The columns in order, without `notices`, which is for other processes.
    pub fn columns(self) -> Vec<&'static str> {
        match self {
            Self::Nothing | Self::Warnings => Vec::new(),
            Self::Began => vec!["conversation_handle", "conversation_group_id", "conversation_id"],
            Self::Messages => Message::COLUMNS.to_vec(),
            Self::Group => vec!["conversation_group_id"],
            Self::StateBefore => vec!["state"],
            Self::Text(column) => vec![column],
            Self::Pushed => vec!["job_id", "is_new"],
            Self::Jobs => Job::COLUMNS.to_vec(),
            Self::JobState => vec!["job_state"],
        }
    }
}

/// One received message: the columns of a queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    /// 1: the image of the row before it was taken.
    pub status: u8,
    /// The endpoint's level, 1 (low) to 10 (high).
    pub priority: u8,
    /// Arrival order.
    pub queuing_order: u64,
    /// The group the conversation belongs to on this side.
    pub conversation_group_id: GroupId,
    /// This side's endpoint.
    pub conversation_handle: ConversationHandle,
    /// Order inside the conversation, from 0, per direction.
    pub message_sequence_number: u64,
    /// The service the message was sent to.
    pub service_name: Arc<str>,
    /// Its id.
    pub service_id: i32,
    /// The contract of the conversation.
    pub service_contract_name: Arc<str>,
    /// Its id.
    pub service_contract_id: i32,
    /// The message type, application's or system's.
    pub message_type_name: Arc<str>,
    /// Its id.
    pub message_type_id: i32,
    /// The check made when the message arrived.
    pub validation: MessageValidation,
    /// The body; `None` if there is none.
    #[serde(skip)]
    pub message_body: Option<Vec<u8>>,
    /// Unique per message.
    pub message_id: MessageId,
    /// When it entered the queue.
    pub message_enqueue_time: Timestamp,
    /// The sender's trace context.
    pub trace: Option<Arc<str>>,
}

impl Message {
    /// The columns in which a database gives a message; the trace context is the last.
    pub(crate) const COLUMNS: [&'static str; 17] = [
        "status",
        "priority",
        "queuing_order",
        "conversation_group_id",
        "conversation_handle",
        "message_sequence_number",
        "service_name",
        "service_id",
        "service_contract_name",
        "service_contract_id",
        "message_type_name",
        "message_type_id",
        "validation",
        "message_body",
        "message_id",
        "message_enqueue_time",
        "trace",
    ];
}

/// The validation column of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageValidation {
    /// Empty.
    E,
    /// None.
    N,
    /// XML.
    X,
    /// JSON (ours).
    J,
}

impl MessageValidation {
    /// The letter that the catalog views show.
    pub fn letter(self) -> &'static str {
        match self {
            Self::E => "E",
            Self::N => "N",
            Self::X => "X",
            Self::J => "J",
        }
    }
}
