//! The state of a broker, as data: [`Broker::status`] shows queues, conversations, undelivered messages and work queues,
//! [`Broker::doctor`] names faults with advice.
//!
//! Both read tables, and ask the process that owns a SQLite file whether a definition holds receives back. They also work on
//! [`Broker::open_read_only`], while another process owns the file.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
//! # let broker = dialoq::testing::TestBroker::in_memory().await?;
//! let status = broker.status().await?;
//! for queue in &status.queues {
//!     let messages: u64 = queue.levels.iter().map(|level| level.messages).sum();
//!     println!("{}: {messages} messages", queue.name);
//! }
//! for finding in broker.doctor().await? {
//!     println!("{finding}");
//! }
//! # Ok(()) }
//! ```

pub(crate) mod change;
mod conversation;
mod dead_letters;
mod definition_wait;
mod delivery;
mod doctor;
mod explain;
mod held;
mod names;
mod pause;
mod peek;
mod read;
pub(crate) mod shell;

pub use crate::catalog::OffBy;
pub use crate::store::LockHolder;
pub use change::{Changed, MOST_CONVERSATIONS, Purgeable, Purged, Released};
pub use conversation::{Conversation, ConversationFilter, ConversationSide, ConversationSideDetails};
pub use dead_letters::{DeadLetter, DeadLetterFilter, MOST_DEAD_LETTERS, Redriven};
#[cfg(feature = "cli")]
pub(crate) use definition_wait::held_back;
pub use delivery::{Delivery, DeliveryOutcome, SentOn};
pub use doctor::{FAULT_AGE, Finding, FindingKind};
pub use explain::{Explanation, Reason, ReasonKind, SubjectKind};
pub use names::NameKind;
pub use peek::{
    MOST_MESSAGES, MessageFilter, MessageState, Peek, PeekedBody, PeekedError, PeekedMessage, SHOWN_BODY_BYTES,
    WaitingMessage,
};

use crate::broker::Broker;
use crate::error::{Code, Error, Result};
use crate::protocol::ConversationState;
use crate::store::{SqlRow, StatusTexts};
use crate::time::Timestamp;
use crate::work::WorkQueueStatus;
use serde::Serialize;
use std::collections::HashMap;
use uuid::Uuid;

/// What turned a queue off, if poison handling did.
const BY_POISON: &str = "by poison handling, after five rollbacks in a row or the last attempt of a retry policy";

/// The state of a broker. Serializes to the object that `dialoq status --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// When it was read, by the broker's clock. Serializes as UTC text with milliseconds: `2026-01-01T00:00:00.000Z`.
    pub at: Timestamp,
    /// The GUID of this broker, by which routes and dialogs address it.
    pub service_broker_guid: Uuid,
    /// Whether messages are delivered: ENABLE_BROKER.
    pub is_broker_enabled: bool,
    /// Whether RECEIVE follows the levels of broker priorities: HONOR_BROKER_PRIORITY.
    pub is_honor_broker_priority_on: bool,
    /// Every queue, by name.
    pub queues: Vec<QueueStatus>,
    /// The number of endpoints by service and state, without those of the broker's own services.
    pub conversations: Vec<ConversationCount>,
    /// The undelivered messages, by target service and reason.
    pub transmission_queue: Vec<Undelivered>,
    /// Every work queue, by name, as [`Broker::work_queues`] gives it.
    pub work_queues: Vec<WorkQueueStatus>,
}

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The name as declared.
    pub name: String,
    /// Whether RECEIVE is allowed; false after five rollbacks in a row, or after STATUS = OFF.
    pub is_receive_enabled: bool,
    /// Whether messages enter the queue; if not, they wait in the transmission queue.
    pub is_enqueue_enabled: bool,
    /// Whether messages are kept until their conversation ends: RETENTION.
    pub is_retention_enabled: bool,
    /// Whether readers are launched: ACTIVATION (STATUS).
    pub is_activation_enabled: bool,
    /// The procedure that the readers run: ACTIVATION (PROCEDURE_NAME).
    pub activation_procedure: Option<String>,
    /// The most readers at a time, over all processes: MAX_QUEUE_READERS. In SQLite the highest limit of a process that activates it, if
    /// one does.
    pub max_queue_readers: Option<u64>,
    /// The readers that run now, in all processes; `None` if no process activates this queue.
    pub readers_running: Option<u64>,
    /// The sessions that wait in RECEIVE without WHERE; `None` if no process activates this queue.
    pub sessions_waiting: Option<u64>,
    /// The processes that activate this queue, with the state of the queue monitor of each.
    pub monitors: Vec<MonitorStatus>,
    /// The number of dead letters that died in it.
    pub dead_letters: u64,
    /// Why the queue is off, and since when; `None` while it is on, and if an earlier version of Dialoq turned it off.
    pub off: Option<QueueOff>,
    /// Until when, at most, a definition that waits for open transactions holds receives back; `None` while none does, or if the process
    /// that owns the file does not answer. Serializes as UTC text with milliseconds.
    pub receives_held_until: Option<Timestamp>,
    /// The waiting messages by level, highest first; a level without messages is left out.
    pub levels: Vec<LevelStatus>,
}

/// The queue monitor of a process that activates a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MonitorStatus {
    /// The host of the process; `None` in SQLite, whose processes share one.
    pub host_name: Option<String>,
    /// The operating system's id of the process.
    pub process_id: i64,
    /// INACTIVE: no message waits. NOTIFIED: a reader was started and has not received yet. RECEIVES_OCCURRING: readers
    /// receive.
    pub state: String,
    /// The most readers at a time that this process allows; the limit of the queue holds for all processes together.
    pub max_queue_readers: u64,
    /// Its readers that run now.
    pub readers_running: u64,
    /// Its sessions that wait in RECEIVE without WHERE.
    pub sessions_waiting: u64,
}

/// Why a queue is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueOff {
    /// Since when. Serializes as UTC text with milliseconds.
    pub since: Timestamp,
    /// What turned it off: a statement of a person or a program, or poison handling.
    pub by: OffBy,
    /// The reason that the statement gave: `REASON = '...'`.
    pub reason: Option<String>,
}

/// The waiting messages of a queue at one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LevelStatus {
    /// The level of the conversations, 1 to 10.
    pub priority: u64,
    /// The number of messages.
    pub messages: u64,
    /// The number of conversation groups that have them.
    pub conversation_groups: u64,
    /// For how long the oldest message has waited, in milliseconds.
    pub oldest_waiting_ms: u64,
    /// Whether these groups are quarantined, or pause; such groups count apart from the others.
    pub is_quarantined: bool,
    /// If these groups pause under a retry policy, and are not quarantined for good: in how long the first of them gives
    /// messages again, in milliseconds.
    pub retry_in_ms: Option<u64>,
}

/// The number of endpoints of a service in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConversationCount {
    /// The service of this side.
    pub service_name: String,
    /// The state. Serializes as the two letters of `sys.conversation_endpoints`.
    pub state: ConversationState,
    /// The state as a word: [`ConversationState::description`].
    pub state_desc: &'static str,
    /// The number of endpoints.
    pub endpoints: u64,
}

/// The undelivered messages to one service for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Undelivered {
    /// The target service.
    pub to_service_name: String,
    /// The reason, as [`transmission_status`](crate::Act::transmission_status) gives it. Empty behind an earlier message.
    pub transmission_status: String,
    /// The number of messages.
    pub messages: u64,
    /// For how long the oldest message has waited, in milliseconds.
    pub oldest_waiting_ms: u64,
}

impl Broker {
    /// The state of queues, readers, conversations, undelivered messages and work queues. Reads of a few moments make up one status:
    /// a message or job that moves meanwhile may be counted twice or not at all.
    ///
    /// # Errors
    /// 60012 a row of the broker is missing or holds an impossible value; else those of [`Broker::query`].
    pub async fn status(&self) -> Result<Status> {
        let mut status = Status { work_queues: self.work_queues().await?, ..self.status_of_messages().await? };
        let holds = self.receive_holds(status.at).await;
        for queue in &mut status.queues {
            queue.receives_held_until = holds.get(&queue.name).copied();
        }
        Ok(status)
    }

    /// The same without work queues, whose jobs may be many, and without the holds, which the owner of a file is asked for.
    async fn status_of_messages(&self) -> Result<Status> {
        let at = self.clock().now();
        let broker = self.status_rows(|texts| texts.broker).await?;
        let broker =
            broker.first().ok_or_else(|| damaged("the database has no row with the settings of its broker"))?;
        let mut levels: HashMap<i64, Vec<LevelStatus>> = HashMap::new();
        for row in self.status_rows(|texts| texts.levels).await? {
            levels.entry(row.own("queue_id")?).or_default().push(level(&row, at)?);
        }
        let mut monitors: HashMap<i64, Vec<MonitorStatus>> = HashMap::new();
        for row in self.status_rows(|texts| texts.monitors).await? {
            monitors.entry(row.own("queue_id")?).or_default().push(monitor(&row)?);
        }
        let mut queues = Vec::new();
        for row in self.status_rows(|texts| texts.queues).await? {
            let id = row.own::<i64>("queue_id")?;
            let levels = levels.remove(&id).unwrap_or_default();
            queues.push(queue(&row, levels, monitors.remove(&id).unwrap_or_default())?);
        }
        let conversations = self.status_rows(|texts| texts.conversations).await?;
        let transmission_queue = self.status_rows(|texts| texts.transmission).await?;
        Ok(Status {
            at,
            service_broker_guid: broker.own("service_broker_guid")?,
            is_broker_enabled: broker.own("is_broker_enabled")?,
            is_honor_broker_priority_on: broker.own("is_honor_broker_priority_on")?,
            queues,
            conversations: conversations.iter().map(conversation_count).collect::<Result<_>>()?,
            transmission_queue: transmission_queue.iter().map(|row| undelivered(row, at)).collect::<Result<_>>()?,
            work_queues: Vec::new(),
        })
    }

    async fn status_rows(&self, text: impl Fn(&StatusTexts) -> &'static str) -> Result<Vec<SqlRow>> {
        Ok(self.query_own(text(&self.shared_store().texts().status), ()).await?.rows)
    }
}

fn monitor(row: &SqlRow) -> Result<MonitorStatus> {
    Ok(MonitorStatus {
        host_name: row.own("host_name")?,
        process_id: row.own("process_id")?,
        state: row.own("state")?,
        max_queue_readers: row.count("max_queue_readers")?,
        readers_running: row.count("readers_running")?,
        sessions_waiting: row.count("sessions_waiting")?,
    })
}

fn queue(row: &SqlRow, levels: Vec<LevelStatus>, monitors: Vec<MonitorStatus>) -> Result<QueueStatus> {
    Ok(QueueStatus {
        name: row.own("name")?,
        is_receive_enabled: row.own("is_receive_enabled")?,
        is_enqueue_enabled: row.own("is_enqueue_enabled")?,
        is_retention_enabled: row.own("is_retention_enabled")?,
        is_activation_enabled: row.own("is_activation_enabled")?,
        activation_procedure: row.own("activation_procedure")?,
        max_queue_readers: count_or_none(row, "max_queue_readers")?,
        readers_running: count_or_none(row, "readers_running")?,
        sessions_waiting: count_or_none(row, "sessions_waiting")?,
        monitors,
        dead_letters: row.count("dead_letters")?,
        off: off(row)?,
        receives_held_until: None,
        levels,
    })
}

fn off(row: &SqlRow) -> Result<Option<QueueOff>> {
    let (since, by) = (row.own::<Option<i64>>("off_since")?, row.own::<Option<String>>("off_by")?);
    let (Some(since), Some(by)) = (since, by) else { return Ok(None) };
    let by = OffBy::from_word(by.trim_end()).ok_or_else(|| damaged(&format!("'{by}' turns no queue off")))?;
    Ok(Some(QueueOff { since: Timestamp(since), by, reason: row.own("off_reason")? }))
}

fn level(row: &SqlRow, at: Timestamp) -> Result<LevelStatus> {
    Ok(LevelStatus {
        priority: row.count("priority")?,
        messages: row.count("messages")?,
        conversation_groups: row.count("conversation_groups")?,
        oldest_waiting_ms: waiting_ms(row, at)?,
        is_quarantined: row.own("is_quarantined")?,
        retry_in_ms: row
            .get::<Option<i64>>("retry_at")?
            .map(|retry_at| u64::try_from(Timestamp(retry_at).since(at).as_millis()).unwrap_or(u64::MAX)),
    })
}

fn conversation_count(row: &SqlRow) -> Result<ConversationCount> {
    let code: String = row.own("state")?;
    let state = ConversationState::from_code(&code)
        .ok_or_else(|| damaged(&format!("a conversation endpoint has state '{code}', which does not exist")))?;
    Ok(ConversationCount {
        service_name: row.own("service_name")?,
        state,
        state_desc: state.description(),
        endpoints: row.count("endpoints")?,
    })
}

fn undelivered(row: &SqlRow, at: Timestamp) -> Result<Undelivered> {
    Ok(Undelivered {
        to_service_name: row.own("to_service_name")?,
        transmission_status: row.own("transmission_status")?,
        messages: row.count("messages")?,
        oldest_waiting_ms: waiting_ms(row, at)?,
    })
}

fn count_or_none(row: &SqlRow, column: &str) -> Result<Option<u64>> {
    Ok(row.own::<Option<i64>>(column)?.map(|count| u64::try_from(count).unwrap_or_default()))
}

fn waiting_ms(row: &SqlRow, at: Timestamp) -> Result<u64> {
    let oldest = row.own("oldest")?;
    Ok(u64::try_from(at.since(oldest).as_millis()).unwrap_or(u64::MAX))
}

fn damaged(what: &str) -> Error {
    Error::new(Code::STORE_DAMAGED, format!("{what}; the database is damaged"))
}
