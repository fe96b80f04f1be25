//! Verbs: all requests to a broker, as data, and the table of them.

use super::declared::{Declaration, ResultForm, Value, sql_type, verbs};
use super::definition::Definition;
use super::work::{AfterFailure, Hold, TakeFrom, WorkVerb};
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, DeadLetterId, GroupId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tracing::{Span, debug_span};
use uuid::Uuid;

/// A message body: shared, so that one body sent on many conversations is held once. `None` is no body at all.
pub type Body = Option<Arc<Vec<u8>>>;

/// Refuses a body above the limit of the broker.
///
/// # Errors
/// 8459
pub(crate) fn check_body_size(body: &Body, limit: usize) -> Result<()> {
    match body.as_ref().map(|body| body.len()).filter(|length| *length > limit) {
        None => Ok(()),
        Some(length) => Err(Error::new(
            Code::MESSAGE_TOO_LARGE,
            format!("the message body has {length} bytes; the limit of this broker is {limit} (max_body_bytes)"),
        )),
    }
}

/// A list of verbs that happens wholly or not at all.
pub type Unit = Vec<Verb>;

/// One request to a broker; Service Broker's statements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Verb {
    /// `BEGIN DIALOG CONVERSATION`; gives [`Outcome::Began`](super::Outcome::Began).
    BeginDialog(BeginDialog),
    /// `SEND ON CONVERSATION ( h1, h2, ... ) MESSAGE TYPE t ( body )`; gives [`Outcome::Done`](super::Outcome::Done).
    Send {
        /// On which conversations; all of them get the message or none.
        handles: Vec<ConversationHandle>,
        /// `None` is the type `DEFAULT`.
        message_type: Option<Arc<str>>,
        /// An empty body is stored as none.
        #[serde(with = "super::body_bytes")]
        body: Body,
        /// Trace context that travels with the message, W3C `traceparent` form.
        trace: Option<Arc<str>>,
    },
    /// `RECEIVE [TOP (n)] * FROM queue [WHERE ...]`; never waits; gives
    /// [`Outcome::Received`](super::Outcome::Received).
    Receive {
        /// The queue, without regard to case.
        queue: Arc<str>,
        /// At most so many messages; `None` is all that are ready in the group.
        top: Option<u64>,
        /// The conversations to receive from.
        from: ReceiveFrom,
    },
    /// `GET CONVERSATION GROUP`; never waits; gives [`Outcome::Group`](super::Outcome::Group).
    GetConversationGroup {
        /// The queue, without regard to case.
        queue: Arc<str>,
    },
    /// `MOVE CONVERSATION h TO g`
    MoveConversation {
        /// The conversation.
        handle: ConversationHandle,
        /// An existing group of the same service.
        group: GroupId,
    },
    /// `END CONVERSATION h ...`
    EndConversation {
        /// The conversation.
        handle: ConversationHandle,
        /// Which of the three forms.
        form: EndForm,
    },
    /// `BEGIN CONVERSATION TIMER ( h ) TIMEOUT = seconds`
    BeginConversationTimer {
        /// The conversation.
        handle: ConversationHandle,
        /// 1 to 2147483647.
        timeout_seconds: i64,
    },
    /// `CANCEL CONVERSATION TIMER ( h )`. Not in Service Broker, which can only set another timer.
    CancelConversationTimer {
        /// The conversation; that it has no timer is no error.
        handle: ConversationHandle,
    },
    /// `GET_TRANSMISSION_STATUS ( h )`; gives [`Outcome::Text`](super::Outcome::Text).
    GetTransmissionStatus {
        /// Any handle; unknown ones give the empty text.
        handle: ConversationHandle,
    },
    /// Definitions, applied wholly or not at all; not inside a transaction. Gives
    /// [`Outcome::Warnings`](super::Outcome::Warnings).
    Define(Vec<Definition>),
    /// Changes the level of one endpoint. Not in Service Broker, which freezes it at the beginning.
    Reprioritise {
        /// The endpoint.
        handle: ConversationHandle,
        /// 1 (low) to 10 (high).
        level: u8,
    },
    /// Posts an event to the QUEUE_ACTIVATION notifications of a queue: there is work and no receiver. For queue
    /// monitors.
    PostQueueActivation {
        /// The queue, without regard to case.
        queue: Arc<str>,
    },
    /// Puts a conversation group that poison handling quarantined back into its queue. Not in Service Broker.
    ReleaseQuarantine {
        /// The group.
        group: GroupId,
    },
    /// Puts a dead letter back into its queue, at its old place in its conversation. Not in Service Broker.
    RedriveDeadLetter {
        /// The dead letter.
        letter: DeadLetterId,
    },
    /// Removes a dead letter for good. Not in Service Broker.
    PurgeDeadLetter {
        /// The dead letter.
        letter: DeadLetterId,
    },
    /// A request to a work queue. Not in Service Broker.
    Work(WorkVerb),
    /// Many messages, each with a conversation, type and body of its own: all of them are sent, or none. Messages of one
    /// conversation keep their order. Gives [`Outcome::Done`](super::Outcome::Done). Not in Service Broker.
    SendEach(Vec<OutgoingMessage>),
}

/// One message of [`Verb::SendEach`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutgoingMessage {
    /// On which conversation.
    pub handle: ConversationHandle,
    /// `None` is the type `DEFAULT`.
    pub message_type: Option<Arc<str>>,
    /// An empty body is stored as none.
    #[serde(with = "super::body_bytes")]
    pub body: Body,
    /// Trace context that travels with the message, W3C `traceparent` form.
    pub trace: Option<Arc<str>>,
}

/// The most messages of one [`Verb::SendEach`]: a transaction of a server holds a lock for each conversation group.
pub const MOST_MESSAGES: usize = 10_000;

/// The most bytes of their bodies together; a call is one piece in the memory of client and server.
pub const MOST_MESSAGE_BYTES: usize = 256 << 20;

verbs! {
    BEGIN_DIALOG_CONVERSATION = "begin_dialog_conversation", "BEGIN DIALOG CONVERSATION":
    Verb::BeginDialog(dialog) => (
        from_service Text(&*dialog.from_service), to_service Text(&*dialog.to_service),
        broker_instance Text(dialog.addressee.instance()), contract Text(dialog.contract()),
        related_conversation Uuid(dialog.related.conversation()), related_group Uuid(dialog.related.group()),
        lifetime_seconds BigInt(dialog.lifetime_seconds), encryption Bool(dialog.encryption),
        conversation_handle NewId(1usize), conversation_id NewId(2usize), conversation_group_id NewId(0usize)
    ) -> ResultForm::Began, [8411, 8412, 8413, 8414, 8423, 8425, 8426, 9601, 9610, 60005], batched("begin_batch");

    SEND = "send", "SEND ON CONVERSATION, one conversation":
    Verb::Send { handles, message_type, body, trace } if handles.len() == 1 => (
        conversation_handle Uuid(handles[0].0), message_type_name Text(type_name(message_type)),
        message_body Bytes(body), trace Text(trace.as_deref()), body_fault BodyFault, catalog_version CatalogVersion,
        message_id NewId(0usize)
    ) -> ResultForm::Nothing, [8426, 8428, 8429, 8431, 8432, 8434, 8459, 9618, 60005, 60026, 60033], batched("send_batch");

    SEND_MANY = "send_many", "SEND ON CONVERSATION, one message on many conversations: on all of them or on none":
    Verb::Send { handles, message_type, body, trace } => (
        conversation_handles Handles(&handles[..]), message_type_name Text(type_name(message_type)),
        message_body Bytes(body), trace Text(trace.as_deref()), body_fault BodyFault, catalog_version CatalogVersion
    ) -> ResultForm::Nothing,
        [8418, 8426, 8428, 8429, 8431, 8432, 8434, 8435, 8451, 8459, 9618, 60005, 60026, 60033], alone;

    SEND_EACH = "send_each",
        "many messages, each with a conversation, type and body of its own: all of them are sent or none (ours)":
    Verb::SendEach(messages) => (
        conversation_handles HandleColumn(messages.len()), message_type_names TypeColumn, message_bodies BodyColumn,
        traces TraceColumn, body_faults FaultColumn, message_ids IdColumn, catalog_version CatalogVersion
    ) -> ResultForm::Nothing,
        [1205, 8426, 8428, 8429, 8431, 8432, 8434, 8459, 9618, 60005, 60026, 60033], alone;

    RECEIVE = "receive", "RECEIVE":
    Verb::Receive { queue, top, from } => (
        queue Queue(&**queue), top BigInt(top.map(most)), conversation_handle Uuid(from.conversation()),
        conversation_group_id Uuid(from.group()), lowest Int(from.levels().map(|levels| levels.0)),
        highest Int(from.levels().map(|levels| levels.1)),
        oldest Bool(*from == ReceiveFrom::Oldest)
    ) -> ResultForm::Messages, [8426, 8436, 9617, 60002, 60005], batched("receive_batch");

    GET_CONVERSATION_GROUP = "get_conversation_group", "GET CONVERSATION GROUP":
    Verb::GetConversationGroup { queue } => (queue Queue(&**queue))
        -> ResultForm::Group, [9617, 60002], alone;

    MOVE_CONVERSATION = "move_conversation", "MOVE CONVERSATION":
    Verb::MoveConversation { handle, group } => (conversation_handle Uuid(handle.0), conversation_group_id Uuid(group.0))
        -> ResultForm::Nothing, [8426, 8436, 8438, 8439], alone;

    END_CONVERSATION = "end_conversation", "END CONVERSATION, plain, WITH ERROR or WITH CLEANUP":
    Verb::EndConversation { handle, form } => (
        conversation_handle Uuid(handle.0), error_code Int(form.error_code()), description Text(form.description()),
        cleanup Bool(matches!(form, EndForm::Cleanup))
    ) -> ResultForm::StateBefore, [8424, 8426, 8427, 60005], batched("end_batch");

    BEGIN_CONVERSATION_TIMER = "begin_conversation_timer", "BEGIN CONVERSATION TIMER":
    Verb::BeginConversationTimer { handle, timeout_seconds } => (
        conversation_handle Uuid(handle.0), timeout_seconds BigInt(*timeout_seconds)
    ) -> ResultForm::Nothing, [8410, 8411, 8426, 8458], alone;

    CANCEL_CONVERSATION_TIMER = "cancel_conversation_timer", "takes back a conversation's timer (ours)":
    Verb::CancelConversationTimer { handle } => (conversation_handle Uuid(handle.0)) -> ResultForm::Nothing, [8426, 8458], alone;

    GET_TRANSMISSION_STATUS = "get_transmission_status", "GET_TRANSMISSION_STATUS":
    Verb::GetTransmissionStatus { handle } => (conversation_handle Uuid(handle.0))
        -> ResultForm::Text("transmission_status"), [], reads_only;

    DEFINE = "define", "CREATE, ALTER and DROP; no routine, a client writes the rows":
    Verb::Define(_) => () -> ResultForm::Warnings, [], alone;

    REPRIORITISE = "reprioritise", "changes the level of one endpoint (ours)":
    Verb::Reprioritise { handle, level } => (conversation_handle Uuid(handle.0), level Int(i32::from(*level)))
        -> ResultForm::Nothing, [8426, 8438, 60005], alone;

    POST_QUEUE_ACTIVATION = "post_queue_activation",
        "posts an event to the QUEUE_ACTIVATION notifications of a queue (ours, for queue monitors)":
    Verb::PostQueueActivation { queue } => (queue Queue(&**queue)) -> ResultForm::Nothing, [60002], alone;

    RELEASE_QUARANTINE = "release_quarantine", "puts a quarantined conversation group back into its queue (ours)":
    Verb::ReleaseQuarantine { group } => (conversation_group_id Uuid(group.0)) -> ResultForm::Nothing, [8436], alone;

    REDRIVE_DEAD_LETTER = "redrive_dead_letter", "puts a dead letter back into its queue (ours)":
    Verb::RedriveDeadLetter { letter } => (dead_letter_id BigInt(signed(letter.0)))
        -> ResultForm::Nothing, [60048, 60049, 60050], alone;

    PURGE_DEAD_LETTER = "purge_dead_letter", "removes a dead letter for good (ours)":
    Verb::PurgeDeadLetter { letter } => (dead_letter_id BigInt(signed(letter.0)))
        -> ResultForm::Nothing, [60048, 60049], alone;

    PUSH_JOB = "push_job", "puts a job into a work queue (ours)":
    Verb::Work(WorkVerb::Push(push)) => (
        queue Queue(&*push.queue), job_type Text(&*push.job_type), job_key Text(push.key.as_deref()),
        level Int(i32::from(push.level)), delay_ms BigInt(push.due.delay_ms()), due_us BigInt(push.due.at_us()),
        unique_key Text(push.unique.as_ref().map(|unique| &*unique.key)),
        unique_ms BigInt(push.unique.as_ref().and_then(|unique| unique.window_ms)), body Bytes(&push.body),
        pushed_by Text(&*push.pushed_by)
    ) -> ResultForm::Pushed, [8459, 60002, 60005, 60043], batched("push_job_batch");

    TAKE_JOBS = "take_jobs", "takes jobs that are ready (ours)":
    Verb::Work(WorkVerb::Take(take)) => (
        queue Queue(&*take.queue), job_count BigInt(take.count), job_type Text(take.job_type.as_deref()),
        lowest Int(take.from.levels().map(|levels| levels.0)), highest Int(take.from.levels().map(|levels| levels.1)),
        oldest Bool(take.from == TakeFrom::Oldest), has_lease Bool(matches!(take.hold, Hold::Lease(_))),
        lease_ms BigInt(take.hold.lease_ms()), taken_by Text(&*take.taken_by)
    ) -> ResultForm::Jobs, [60002, 60005, 60043], batched("take_job_batch");

    COMPLETE_JOB = "complete_job", "reports a taken job as done (ours)":
    Verb::Work(WorkVerb::Complete { taken, result }) => (
        job_id BigInt(signed(taken.job.0)), token BigInt(signed(taken.token)), result Bytes(result)
    ) -> ResultForm::Nothing, [8459, 60040, 60041, 60042, 60043], batched("complete_job_batch");

    FAIL_JOB = "fail_job", "reports that an attempt failed (ours)":
    Verb::Work(WorkVerb::Fail { taken, reason, then }) => (
        job_id BigInt(signed(taken.job.0)), token BigInt(signed(taken.token)), reason Text(&**reason),
        retry_in_ms BigInt(then.retry_in_ms()), is_last Bool(*then == AfterFailure::Dead)
    ) -> ResultForm::JobState, [60005, 60040, 60041, 60042, 60043], alone;

    EXTEND_JOB = "extend_job", "prolongs the lease of a taken job (ours)":
    Verb::Work(WorkVerb::Extend { taken, lease_ms }) => (
        job_id BigInt(signed(taken.job.0)), token BigInt(signed(taken.token)), lease_ms BigInt(*lease_ms)
    ) -> ResultForm::Nothing, [60005, 60040, 60041, 60042, 60043], alone;

    REPORT_JOB = "report_job", "notes how far a taken job is (ours)":
    Verb::Work(WorkVerb::Report { taken, progress }) => (
        job_id BigInt(signed(taken.job.0)), token BigInt(signed(taken.token)), progress Text(&**progress)
    ) -> ResultForm::Nothing, [60005, 60040, 60041, 60042, 60043], alone;

    CANCEL_JOB = "cancel_job", "takes a job out of its work queue (ours)":
    Verb::Work(WorkVerb::Cancel { job, seen }) => (
        job_id BigInt(signed(job.0)), seen_token BigInt(seen.as_ref().map(|seen| signed(seen.token))),
        seen_state Text(seen.as_ref().and_then(|seen| seen.state.as_deref()))
    ) -> ResultForm::Nothing, [60040, 60042, 60043], alone;

    REDRIVE_JOB = "redrive_job", "gives a dead job all its attempts again (ours)":
    Verb::Work(WorkVerb::Redrive { job, seen }) => (
        job_id BigInt(signed(job.0)), seen_token BigInt(seen.as_ref().map(|seen| signed(seen.token))),
        seen_state Text(seen.as_ref().and_then(|seen| seen.state.as_deref()))
    ) -> ResultForm::Nothing, [60040, 60042, 60043, 60044], alone;
}

/// An id or a token as databases keep it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The name that a SEND means.
fn type_name(message_type: &Option<std::sync::Arc<str>>) -> &str {
    message_type.as_deref().unwrap_or(super::system::DEFAULT)
}

/// TOP as databases count.
pub(crate) fn most(top: u64) -> i64 {
    i64::try_from(top).unwrap_or(i64::MAX)
}

/// `BEGIN DIALOG CONVERSATION ... FROM SERVICE ... TO SERVICE ... ON CONTRACT ... WITH ...`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeginDialog {
    /// A service of this database.
    pub from_service: Arc<str>,
    /// The service addressed; need not exist yet.
    pub to_service: Arc<str>,
    /// Which database's copy of it.
    pub addressee: Addressee,
    /// `None` is the contract `DEFAULT`.
    pub contract: Option<Arc<str>>,
    /// Which group to join.
    pub related: Relation,
    /// Seconds until the conversation expires, 1 to 2147483647; `None` is the longest.
    pub lifetime_seconds: Option<i64>,
    /// Accepted and stored; delivery inside one store is never encrypted.
    pub encryption: bool,
}

impl BeginDialog {
    /// The contract's name.
    pub(super) fn contract(&self) -> &str {
        self.contract.as_deref().unwrap_or(super::system::DEFAULT)
    }
}

/// The optional second argument of `TO SERVICE`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Addressee {
    /// Any copy of the service.
    #[default]
    Anywhere,
    /// `'CURRENT DATABASE'`
    CurrentDatabase,
    /// The `service_broker_guid` of a database.
    Instance(Arc<str>),
}

impl Addressee {
    /// As the statement writes it; `None` if it leaves it out.
    pub(crate) fn instance(&self) -> Option<&str> {
        match self {
            Self::Anywhere => None,
            Self::CurrentDatabase => Some("CURRENT DATABASE"),
            Self::Instance(instance) => Some(instance),
        }
    }
}

/// `WITH RELATED_CONVERSATION = h | RELATED_CONVERSATION_GROUP = g`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Relation {
    /// A new group.
    #[default]
    None,
    /// The group of this conversation, which must exist.
    Conversation(ConversationHandle),
    /// This group; made if it does not exist.
    Group(GroupId),
}

impl Relation {
    /// The handle of `RELATED_CONVERSATION`.
    pub(super) fn conversation(self) -> Option<Uuid> {
        match self {
            Self::Conversation(handle) => Some(handle.0),
            Self::None | Self::Group(_) => None,
        }
    }

    /// The id of `RELATED_CONVERSATION_GROUP`.
    pub(super) fn group(self) -> Option<Uuid> {
        match self {
            Self::Group(group) => Some(group.0),
            Self::None | Self::Conversation(_) => None,
        }
    }
}

/// The conversations that a RECEIVE may take from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReceiveFrom {
    /// The best unlocked group of the queue.
    #[default]
    Any,
    /// `WHERE conversation_handle = ...`
    Conversation(ConversationHandle),
    /// `WHERE conversation_group_id = ...`
    Group(GroupId),
    /// The best unlocked group whose level is within these bounds, both included. Ours, for the strategies.
    Levels {
        /// The lowest level.
        lowest: u8,
        /// The highest level.
        highest: u8,
    },
    /// The oldest ready group of any level. Ours, for the aging strategy.
    Oldest,
}

impl ReceiveFrom {
    /// The handle of `WHERE conversation_handle`.
    pub(super) fn conversation(self) -> Option<Uuid> {
        match self {
            Self::Conversation(handle) => Some(handle.0),
            _ => None,
        }
    }

    /// The id of `WHERE conversation_group_id`.
    pub(super) fn group(self) -> Option<Uuid> {
        match self {
            Self::Group(group) => Some(group.0),
            _ => None,
        }
    }

    /// The lowest and the highest level, where they are limited.
    pub(super) fn levels(self) -> Option<(i32, i32)> {
        match self {
            Self::Levels { lowest, highest } => Some((lowest.into(), highest.into())),
            _ => None,
        }
    }
}

/// The forms of `END CONVERSATION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndForm {
    /// The peer gets EndDialog after all earlier messages.
    Plain,
    /// `WITH ERROR = code DESCRIPTION = 'text'`: the peer gets Error, and waiting rows in the transmission queue are
    /// dropped.
    WithError {
        /// Above zero.
        code: i32,
        /// Up to 3000 characters.
        description: String,
    },
    /// `WITH CLEANUP`: this side is erased and the peer gets no message.
    Cleanup,
}

impl EndForm {
    /// The code of `WITH ERROR`.
    pub(super) fn error_code(&self) -> Option<i32> {
        match self {
            Self::WithError { code, .. } => Some(*code),
            Self::Plain | Self::Cleanup => None,
        }
    }

    /// The description of `WITH ERROR`.
    pub(super) fn description(&self) -> Option<&str> {
        match self {
            Self::WithError { description, .. } => Some(description),
            Self::Plain | Self::Cleanup => None,
        }
    }
}
