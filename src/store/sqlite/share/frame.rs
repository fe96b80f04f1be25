//! Frames: what travels between the process that owns a file and the others that use it.
//!
//! A frame is a length of four bytes, little-endian, and a value in the postcard format. The owner answers requests in any
//! order; the number of a request comes back with its answer. Before the first frame both sides send a greeting of fixed
//! form, so that versions can tell each other apart.

use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, GroupId, JobId, MessageId};
use crate::protocol::work::{Job, JobState, TakenJob};
use crate::protocol::{ConversationState, Message, MessageValidation, Outcome, Unit, Verb};
use crate::store::url::{Durability, LARGEST_BODY_BYTES};
use crate::store::{
    ActivatedTaskRow, LockHolder, MonitorBoard, MonitorRow, ProcessRows, SqlRow, SqlRows, SqlStatement, SqlValue,
};
use crate::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::io;
use std::sync::Arc;
use uuid::Uuid;

/// The version of the frames. A change of any type below, or of a verb or outcome, is a new version.
pub(super) const VERSION: u32 = 12;
/// The first bytes of a greeting.
const GREETING: [u8; 8] = *b"dialoq/s";
/// The longest frame: a unit of the largest body, with room for what stands around it. Short in tests of this crate.
pub(super) const MAX_FRAME_BYTES: usize = if cfg!(test) { 1 << 20 } else { LARGEST_BODY_BYTES + (1 << 20) };

/// Bytes read from a connection at a time.
const READ_BYTES: usize = 64 * 1024;

/// What a process says before its first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) version: u32,
    pub(super) durability: Durability,
}

impl Greeting {
    pub(super) const BYTES: usize = GREETING.len() + 5;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&GREETING);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12] = u8::from(self.durability == Durability::Normal);
        bytes
    }

    /// `None` if it is no greeting of Dialoq.
    pub(super) fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let durability = if bytes[12] == 0 { Durability::Full } else { Durability::Normal };
        (bytes[..8] == GREETING).then_some(Self { version, durability })
    }
}

/// A request to the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Names the request on its connection.
    pub(super) id: u64,
    pub(super) call: Call,
}

/// Calls of the seam, and what has no answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    Submit(Unit),
    SubmitOnce(Uuid, Unit),
    UnitHappened(Uuid),
    /// The session that holds the lock of a conversation group.
    LockHolder(Uuid),
    RunSql(Statement),
    /// A step of a transaction; the first one of a number begins it. Whether a caller has seen messages or jobs of it by now.
    InTx {
        tx: u64,
        is_seen: bool,
        step: TxStep,
    },
    /// The slot of an activated reader that wants to start. The process gives it an id, unique in its connection.
    TakeSlot {
        slot: u64,
        queue_id: i32,
        most: u16,
    },
    /// From here on nothing is answered: the slot of a reader that ran under an earlier owner.
    EnterSlot {
        slot: u64,
        queue_id: i32,
        number: i32,
    },
    /// The reader has ended, or its start was given up.
    FreeSlot {
        slot: u64,
    },
    /// The transaction was dropped, by its caller or without its doing.
    DropTx {
        tx: u64,
        is_seen: bool,
        is_lost: bool,
        /// Why it is rolled back, if its caller has said it.
        reason: Option<Arc<str>>,
    },
    /// The caller of a request has gone.
    Cancel {
        request: u64,
    },
    /// Jobs of an answer whose caller had gone.
    GiveBack(Vec<TakenJob>),
    /// Tell what happens in this queue.
    Watch {
        queue: String,
    },
    /// The queue monitors and activated readers of the process.
    Publish(Readers),
    /// Tell no more of this queue.
    Unwatch {
        queue: String,
    },
    /// This is answered: the queues from which a definition that waits holds receives back.
    ReceiveHolds,
}

/// One step of a transaction.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TxStep {
    Execute(Verb),
    Sql(Statement),
    Query(Statement),
    Claim(Uuid),
    Savepoint(String),
    RollbackTo(String),
    Commit,
    Rollback { reason: Option<Arc<str>> },
}

impl TxStep {
    /// Whether it ends the transaction.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback { .. })
    }
}

/// What the owner sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromOwner {
    /// With the version of the definitions, which the process may have to read again.
    Answer {
        id: u64,
        definitions: u64,
        answer: Result<Answer, Refusal>,
    },
    /// The owner closes: nothing that is sent from now on will be done. What is under way is still answered.
    Closing,
    Queue {
        queue: String,
        news: QueueNews,
    },
    /// Definitions have changed.
    Redefined,
    /// A slot among the readers of this queue is free; of any queue if none is named.
    SlotFreed {
        queue: Option<String>,
    },
}

/// The state of a queue, and what has happened in it since the last news.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct QueueNews {
    pub(super) ready_groups: u64,
    pub(super) unread: u64,
    /// Groups that have become ready.
    pub(super) newly_ready: u64,
    /// A message or job has arrived, ready or not.
    pub(super) has_arrivals: bool,
    /// The queue was turned off or on, or moved.
    pub(super) is_changed: bool,
}

/// The result of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Outcomes(Vec<WireOutcome>),
    Happened(bool),
    Changed(u64),
    Rows(Rows),
    /// The number of a reader's slot; `None` if all are taken.
    Slot(Option<i32>),
    Holder(Option<Holder>),
    /// Queues, each with the time until which receives are held back.
    Holds(Vec<(i32, Timestamp)>),
}

/// An answer of more bytes is large: to make its frame takes a thread too long for the callers that wait for it meanwhile.
const LARGE_BYTES: usize = 256 * 1024;
/// What a value or a message counts besides its text or body.
const VALUE_BYTES: usize = 16;

impl Answer {
    /// Whether its frame should be made on a thread of its own. Looks no further than needed.
    pub(super) fn is_large(&self) -> bool {
        match self {
            Self::Rows(rows) => rows.is_large(),
            Self::Outcomes(outcomes) => {
                let length = |body: &Option<ByteBuf>| body.as_ref().map_or(0, |body| body.len());
                let messages = outcomes.iter().flat_map(WireOutcome::messages);
                let jobs = outcomes.iter().flat_map(WireOutcome::jobs);
                exceed(messages.map(|row| length(&row.message_body)).chain(jobs.map(|row| length(&row.body))))
            }
            _ => false,
        }
    }

    /// The jobs in it.
    pub(super) fn taken_jobs(&self) -> Vec<TakenJob> {
        let Self::Outcomes(outcomes) = self else { return Vec::new() };
        outcomes.iter().flat_map(WireOutcome::jobs).map(|job| job.taken).collect()
    }

    /// Whether jobs are in it.
    pub(super) fn has_jobs(&self) -> bool {
        matches!(self, Self::Outcomes(outcomes) if outcomes.iter().any(|outcome| !outcome.jobs().is_empty()))
    }
}

/// Whether the bytes of these values are those of a large answer.
fn exceed(bytes: impl Iterator<Item = usize>) -> bool {
    let mut left = LARGE_BYTES;
    for bytes in bytes {
        match left.checked_sub(bytes + VALUE_BYTES) {
            Some(rest) => left = rest,
            None => return true,
        }
    }
    false
}

/// Whether these rows are a large answer.
pub(super) fn are_large(rows: &SqlRows) -> bool {
    exceed(rows.rows.iter().flat_map(|row| &row.values).map(|value| match value {
        SqlValue::Text(text) => text.len(),
        SqlValue::Blob(bytes) => bytes.len(),
        _ => 0,
    }))
}

/// The session that holds a lock, as the embedded store knows it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    session_id: Option<i64>,
    process_id: Option<i64>,
    principal: Option<String>,
    since: Option<Timestamp>,
}

impl From<LockHolder> for Holder {
    fn from(holder: LockHolder) -> Self {
        let LockHolder { session_id, process_id, principal, since, .. } = holder;
        Self { session_id, process_id, principal, since }
    }
}

impl From<Holder> for LockHolder {
    fn from(holder: Holder) -> Self {
        let Holder { session_id, process_id, principal, since } = holder;
        Self { session_id, process_id, principal, since, ..Self::default() }
    }
}

/// An error as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    code: u16,
    message: String,
    statement: Option<u64>,
    cause: Option<String>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self {
            code: error.code().0,
            message: error.message().to_owned(),
            statement: error.statement().map(|place| place as u64),
            cause: std::error::Error::source(&error).map(ToString::to_string),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let mut error = Error::new(Code(refusal.code), refusal.message);
        if let Some(place) = refusal.statement.and_then(|place| usize::try_from(place).ok()) {
            error = error.in_statement(place);
        }
        match refusal.cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

/// A statement of the user's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Statement {
    text: String,
    params: Vec<Value>,
    expected_rows: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(ByteBuf),
    Uuid(Uuid),
}

impl From<SqlValue> for Value {
    fn from(value: SqlValue) -> Self {
        match value {
            SqlValue::Null => Self::Null,
            SqlValue::Integer(number) => Self::Integer(number),
            SqlValue::Real(number) => Self::Real(number),
            SqlValue::Text(text) => Self::Text(text),
            SqlValue::Blob(bytes) => Self::Blob(ByteBuf::from(bytes)),
            SqlValue::Uuid(id) => Self::Uuid(id),
        }
    }
}

impl From<Value> for SqlValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Real(number) => Self::Real(number),
            Value::Text(text) => Self::Text(text),
            Value::Blob(bytes) => Self::Blob(bytes.into_vec()),
            Value::Uuid(id) => Self::Uuid(id),
        }
    }
}

impl From<SqlStatement> for Statement {
    fn from(sql: SqlStatement) -> Self {
        let params = sql.params.into_iter().map(Value::from).collect();
        Self { text: sql.text, params, expected_rows: sql.expected_rows }
    }
}

impl From<Statement> for SqlStatement {
    fn from(sql: Statement) -> Self {
        let params = sql.params.into_iter().map(SqlValue::from).collect();
        Self { text: sql.text, params, expected_rows: sql.expected_rows }
    }
}

/// The rows of a query.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Rows {
    fn is_large(&self) -> bool {
        exceed(self.rows.iter().flatten().map(|value| match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            _ => 0,
        }))
    }
}

impl From<SqlRows> for Rows {
    fn from(rows: SqlRows) -> Self {
        let values = |row: SqlRow| row.values.into_iter().map(Value::from).collect();
        Self { columns: rows.columns.to_vec(), rows: rows.rows.into_iter().map(values).collect() }
    }
}

impl From<Rows> for SqlRows {
    fn from(rows: Rows) -> Self {
        let columns: Arc<[String]> = rows.columns.into();
        // Every row has a value for each column, whatever the other side sent.
        let row = |values: Vec<Value>| {
            let mut values: Vec<_> = values.into_iter().map(SqlValue::from).collect();
            values.resize(columns.len(), SqlValue::Null);
            SqlRow { columns: columns.clone(), values }
        };
        let rows = rows.rows.into_iter().map(row).collect();
        Self { columns, rows }
    }
}

/// An outcome as it travels: the types of the API leave bodies out of their JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireOutcome {
    Done,
    Began(ConversationHandle, GroupId, ConversationId),
    Received(Vec<WireMessage>),
    Group(Option<GroupId>),
    Text(String),
    Warnings(Vec<String>),
    Ended(ConversationState),
    Pushed(Option<JobId>, bool),
    Jobs(Vec<WireJob>),
    Failed(JobState),
}

impl WireOutcome {
    fn messages(&self) -> &[WireMessage] {
        if let Self::Received(messages) = self { messages } else { &[] }
    }

    fn jobs(&self) -> &[WireJob] {
        if let Self::Jobs(jobs) = self { jobs } else { &[] }
    }

    /// Whether messages or jobs are in it.
    pub(super) fn holds_something(&self) -> bool {
        !self.messages().is_empty() || !self.jobs().is_empty()
    }
}

impl From<Outcome> for WireOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Began { handle, group, conversation_id } => Self::Began(handle, group, conversation_id),
            Outcome::Received(messages) => Self::Received(messages.into_iter().map(WireMessage::from).collect()),
            Outcome::Group(group) => Self::Group(group),
            Outcome::Text(text) => Self::Text(text),
            Outcome::Warnings(warnings) => Self::Warnings(warnings),
            Outcome::Ended(state) => Self::Ended(state),
            Outcome::Pushed { job, is_new } => Self::Pushed(job, is_new),
            Outcome::Jobs(jobs) => Self::Jobs(jobs.into_iter().map(WireJob::from).collect()),
            Outcome::Failed(state) => Self::Failed(state),
        }
    }
}

impl From<WireOutcome> for Outcome {
    fn from(outcome: WireOutcome) -> Self {
        match outcome {
            WireOutcome::Done => Self::Done,
            WireOutcome::Began(handle, group, conversation_id) => Self::Began { handle, group, conversation_id },
            WireOutcome::Received(messages) => Self::Received(messages.into_iter().map(Message::from).collect()),
            WireOutcome::Group(group) => Self::Group(group),
            WireOutcome::Text(text) => Self::Text(text),
            WireOutcome::Warnings(warnings) => Self::Warnings(warnings),
            WireOutcome::Ended(state) => Self::Ended(state),
            WireOutcome::Pushed(job, is_new) => Self::Pushed { job, is_new },
            WireOutcome::Jobs(jobs) => Self::Jobs(jobs.into_iter().map(Job::from).collect()),
            WireOutcome::Failed(state) => Self::Failed(state),
        }
    }
}

/// A struct with the fields of one of the API's, and its body as one run of bytes.
macro_rules! wire {
    ($wire:ident of $api:ident, body $body:ident; $($field:ident: $type:ty,)*) => {
        #[derive(Debug, Serialize, Deserialize)]
        pub(super) struct $wire {
            $($field: $type,)*
            $body: Option<ByteBuf>,
        }

        impl From<$api> for $wire {
            fn from(from: $api) -> Self {
                Self { $($field: from.$field,)* $body: from.$body.map(ByteBuf::from) }
            }
        }

        impl From<$wire> for $api {
            fn from(from: $wire) -> Self {
                Self { $($field: from.$field,)* $body: from.$body.map(ByteBuf::into_vec) }
            }
        }
    };
}

wire! {
    WireMessage of Message, body message_body;
    status: u8, priority: u8, queuing_order: u64, conversation_group_id: GroupId, conversation_handle: ConversationHandle,
    message_sequence_number: u64, service_name: Arc<str>, service_id: i32, service_contract_name: Arc<str>,
    service_contract_id: i32, message_type_name: Arc<str>, message_type_id: i32, validation: MessageValidation,
    message_id: MessageId, message_enqueue_time: Timestamp, trace: Option<Arc<str>>,
}

wire! {
    WireJob of Job, body body;
    taken: TakenJob, queue: Arc<str>, job_type: Arc<str>, key: Option<Arc<str>>, level: u8, attempt: u16,
    pushed_at: Timestamp, pushed_by: Arc<str>, lease_until: Option<Timestamp>, last_error: Option<Arc<str>>,
}

/// The queue monitors and activated readers of a process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Readers {
    process_id: u32,
    monitors: Vec<Monitor>,
    tasks: Vec<Task>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Monitor {
    ids: (u64, i32),
    queue_name: Arc<str>,
    state: String,
    times: (Option<Timestamp>, Option<Timestamp>),
    max_queue_readers: u16,
    tasks: (u64, u64, u64, u64, u64, u64),
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    ids: (u64, u64, i32),
    queue_name: Arc<str>,
    procedure_name: Arc<str>,
    started_at: Timestamp,
}

impl From<&MonitorBoard> for Readers {
    fn from(board: &MonitorBoard) -> Self {
        let monitor = |row: MonitorRow| Monitor {
            ids: (row.monitor_id, row.queue_id),
            queue_name: row.queue_name,
            state: row.state.to_owned(),
            times: (row.last_empty_rowset_time, row.last_activated_time),
            max_queue_readers: row.max_queue_readers,
            tasks: (
                row.tasks_waiting,
                row.tasks_running,
                row.tasks_started_total,
                row.tasks_aborted_total,
                row.task_limit_reached_total,
                row.activation_errors_total,
            ),
        };
        let task = |row: ActivatedTaskRow| Task {
            ids: (row.task_id, row.monitor_id, row.queue_id),
            queue_name: row.queue_name,
            procedure_name: row.procedure_name,
            started_at: row.started_at,
        };
        Self {
            process_id: std::process::id(),
            monitors: board.monitors().into_iter().map(monitor).collect(),
            tasks: board.tasks().into_iter().map(task).collect(),
        }
    }
}

impl From<Readers> for ProcessRows {
    fn from(readers: Readers) -> Self {
        let monitor = |row: Monitor| MonitorRow {
            monitor_id: row.ids.0,
            queue_id: row.ids.1,
            queue_name: row.queue_name,
            state: MonitorRow::STATES.into_iter().find(|state| *state == row.state).unwrap_or(MonitorRow::STATES[0]),
            last_empty_rowset_time: row.times.0,
            last_activated_time: row.times.1,
            tasks_waiting: row.tasks.0,
            max_queue_readers: row.max_queue_readers,
            tasks_running: row.tasks.1,
            tasks_started_total: row.tasks.2,
            tasks_aborted_total: row.tasks.3,
            task_limit_reached_total: row.tasks.4,
            activation_errors_total: row.tasks.5,
        };
        let task = |row: Task| ActivatedTaskRow {
            task_id: row.ids.0,
            monitor_id: row.ids.1,
            queue_id: row.ids.2,
            queue_name: row.queue_name,
            procedure_name: row.procedure_name,
            started_at: row.started_at,
        };
        Self {
            process_id: readers.process_id,
            monitors: readers.monitors.into_iter().map(monitor).collect(),
            tasks: readers.tasks.into_iter().map(task).collect(),
        }
    }
}

/// Appends a frame.
///
/// # Errors
/// `InvalidInput` if the value is larger than a frame may be; nothing is appended then.
pub(super) fn encode(value: &impl Serialize, bytes: &mut Vec<u8>) -> io::Result<()> {
    let start = bytes.len();
    bytes.extend([0; 4]);
    let done = match postcard::to_extend(value, std::mem::take(bytes)) {
        Ok(extended) => {
            *bytes = extended;
            let length = bytes.len() - start - 4;
            u32::try_from(length).ok().filter(|_| length <= MAX_FRAME_BYTES).ok_or(io::ErrorKind::InvalidInput)
        }
        Err(_) => Err(io::ErrorKind::InvalidInput),
    };
    match done {
        Ok(length) => {
            bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
            Ok(())
        }
        Err(kind) => {
            bytes.truncate(start);
            Err(kind.into())
        }
    }
}

/// Bytes that have arrived, and the frames in them.
#[derive(Default)]
pub(super) struct FrameBuffer {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    start: usize,
}

impl FrameBuffer {
    /// The next frame; `None` if more bytes must come first.
    ///
    /// # Errors
    /// `InvalidData` if it is no frame of this version.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((length, rest)) = self.bytes[self.start..].split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(value) = rest.get(..length) else { return Ok(None) };
        let value = decode(value)?;
        self.start += 4 + length;
        Ok(Some(value))
    }

    /// The bytes, with room for more after them.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.start = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(READ_BYTES);
        }
        let announced = self.bytes.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        // The announced length is believed as far as bytes arrive.
        let wanted = (announced + 4).saturating_sub(self.bytes.len());
        self.bytes.reserve(wanted.clamp(READ_BYTES, self.bytes.len().max(READ_BYTES)));
        &mut self.bytes
    }
}

/// Reads the value of a frame.
///
/// # Errors
/// `InvalidData` if it is no value of this version.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
