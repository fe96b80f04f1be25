//! Definitions: the statements of Service Broker's DDL, as data.
//!
//! Every statement is one [`Definition`]; a script is a list of them that is applied wholly or not at all. The builder
//! and the DDL text both produce these, and `dump` turns them into text again.

pub use super::retry::{AfterRetries, Pauses, RetryChange, RetryOptions, RetryPolicy};
pub use super::work_queue::{TakingTechnique, WorkNumber, WorkOption, WorkOrder, WorkSettings};
pub use super::work_schedule::{Missed, WorkScheduleOptions};
use serde::{Deserialize, Serialize};

/// One statement of the definition language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Definition {
    /// `CREATE MESSAGE TYPE name [AUTHORIZATION owner] [VALIDATION = ...]`
    CreateMessageType {
        /// Up to 128 characters, compared byte by byte.
        name: String,
        /// Kept for compatibility; the embedded store has no principals.
        owner: Option<String>,
        /// The form that a message body must have at its destination.
        validation: Validation,
    },
    /// `ALTER MESSAGE TYPE name VALIDATION = ...`
    AlterMessageType {
        /// The type.
        name: String,
        /// The new validation; messages already delivered are not checked again.
        validation: Validation,
    },
    /// `DROP MESSAGE TYPE name`
    DropMessageType {
        /// The type; refused with 3716 while a contract lists it.
        name: String,
    },
    /// `CREATE CONTRACT name [AUTHORIZATION owner] (type SENT BY ..., ...)`
    CreateContract {
        /// Up to 128 characters, compared byte by byte.
        name: String,
        /// Kept for compatibility.
        owner: Option<String>,
        /// The types, and the sides that may send them.
        entries: Vec<ContractEntry>,
    },
    /// `DROP CONTRACT name`
    DropContract {
        /// The contract; refused with 3716 while a service or a broker priority names it.
        name: String,
    },
    /// `CREATE QUEUE name [WITH ...]`
    CreateQueue {
        /// Up to 128 characters, compared without regard to case; may not begin with `#`.
        name: String,
        /// The settings named; the others get their defaults.
        options: QueueOptions,
    },
    /// `ALTER QUEUE name WITH ...`
    AlterQueue {
        /// The queue.
        name: String,
        /// The settings named; the others stay.
        options: QueueOptions,
    },
    /// `DROP QUEUE name`
    DropQueue {
        /// The queue; refused with 3716 while a service uses it.
        name: String,
    },
    /// `CREATE SERVICE name [AUTHORIZATION owner] ON QUEUE queue [(contract, ...)]`
    CreateService {
        /// Up to 128 characters, compared byte by byte.
        name: String,
        /// Kept for compatibility.
        owner: Option<String>,
        /// The queue its messages arrive in.
        queue: String,
        /// The contracts it accepts as a target.
        contracts: Vec<String>,
    },
    /// `ALTER SERVICE name [ON QUEUE queue] [(ADD CONTRACT c, DROP CONTRACT c, ...)]`
    AlterService {
        /// The service.
        name: String,
        /// The queue to move to, with all messages.
        queue: Option<String>,
        /// Contracts to accept from now on.
        add_contracts: Vec<String>,
        /// Contracts to accept no longer; live conversations over them get Error -8469.
        drop_contracts: Vec<String>,
    },
    /// `DROP SERVICE name`
    DropService {
        /// The service; refused with 3716 while a broker priority names it.
        name: String,
    },
    /// `CREATE BROKER PRIORITY name FOR CONVERSATION [SET (...)]`
    CreateBrokerPriority {
        /// Up to 128 characters.
        name: String,
        /// The criteria and level; a criterion not named is ANY, a level not named is 5.
        set: PriorityOptions,
    },
    /// `ALTER BROKER PRIORITY name FOR CONVERSATION SET (...)`
    AlterBrokerPriority {
        /// The priority.
        name: String,
        /// The settings named; the others stay.
        set: PriorityOptions,
    },
    /// `DROP BROKER PRIORITY name`
    DropBrokerPriority {
        /// The priority; conversations keep the level they began with.
        name: String,
    },
    /// `CREATE XML SCHEMA COLLECTION name AS 'schema'`
    CreateXmlSchemaCollection {
        /// Up to 128 characters, compared without regard to case.
        name: String,
        /// One or more `xs:schema` documents, one after the other.
        schemas: String,
    },
    /// `DROP XML SCHEMA COLLECTION name`
    DropXmlSchemaCollection {
        /// The collection; refused with 3716 while a message type uses it.
        name: String,
    },
    /// `CREATE EVENT NOTIFICATION name ON QUEUE queue FOR event TO SERVICE 'service', 'current database'`
    CreateEventNotification {
        /// Unique among the notifications of its queue.
        name: String,
        /// The queue watched.
        queue: String,
        /// The event.
        event: QueueEvent,
        /// The service that gets the event.
        service: String,
    },
    /// `DROP EVENT NOTIFICATION name ON QUEUE queue`
    DropEventNotification {
        /// The notification.
        name: String,
        /// The queue watched.
        queue: String,
    },
    /// `CREATE WORK QUEUE name [WITH ...]`. Not in Service Broker.
    CreateWorkQueue {
        /// Up to 128 characters, compared without regard to case.
        name: String,
        /// The options named; the others get their defaults.
        options: Vec<WorkOption>,
    },
    /// `ALTER WORK QUEUE name WITH ...`
    AlterWorkQueue {
        /// The work queue.
        name: String,
        /// The options named; the others stay.
        options: Vec<WorkOption>,
    },
    /// `DROP WORK QUEUE name`
    DropWorkQueue {
        /// The work queue; its jobs and its history go with it. Refused with 3716 while a work schedule pushes into it.
        name: String,
    },
    /// `CREATE WORK SCHEDULE name ON WORK QUEUE queue WITH CRON = '...' [, ...]`. Not in Service Broker.
    CreateWorkSchedule {
        /// Up to 128 characters, compared without regard to case.
        name: String,
        /// The work queue that gets the jobs.
        queue: String,
        /// The options named; the others get their defaults.
        options: WorkScheduleOptions,
    },
    /// `ALTER WORK SCHEDULE name WITH ...`
    AlterWorkSchedule {
        /// The work schedule; its next time is counted from now.
        name: String,
        /// The options named; the others stay.
        options: WorkScheduleOptions,
    },
    /// `DROP WORK SCHEDULE name`
    DropWorkSchedule {
        /// The work schedule; jobs that it has pushed stay.
        name: String,
    },
    /// `ALTER DATABASE { CURRENT | name } SET option`
    AlterDatabase {
        /// The broker option.
        option: BrokerOption,
    },
}

/// The form that a message body must have at its destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Validation {
    /// Anything, including no body.
    #[default]
    None,
    /// No body.
    Empty,
    /// Well-formed XML, or no body.
    WellFormedXml,
    /// XML valid against some schema of the collection.
    ValidXml {
        /// The name of the XML schema collection.
        schema_collection: String,
    },
    /// A JSON text in UTF-8, or no body. Ours: `VALIDATION = JSON`.
    Json,
    /// A JSON text valid against this JSON Schema. Ours: `VALIDATION = JSON SCHEMA '...'`.
    JsonSchema {
        /// The text of the schema.
        schema: String,
    },
}

/// One line of a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractEntry {
    /// The message type.
    pub message_type: String,
    /// The side that may send it.
    pub sent_by: SentBy,
}

/// The side that may send a message type over a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SentBy {
    /// The side that began the conversation.
    Initiator,
    /// The side that was addressed.
    Target,
    /// Both.
    Any,
}

impl SentBy {
    /// All of them, with their words in the DDL.
    pub const ALL: [(&'static str, Self); 3] =
        [("INITIATOR", Self::Initiator), ("TARGET", Self::Target), ("ANY", Self::Any)];

    /// Its word in the DDL.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, side)| *side == self).map_or("ANY", |(word, _)| *word)
    }
}

/// The settings of a queue that a statement names; `None` is "not named".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueOptions {
    /// `STATUS = ON | OFF`: whether the queue accepts and delivers messages. Default ON.
    pub status: Option<bool>,
    /// `RETENTION = ON | OFF`: whether rows are kept until their conversation ends. Default OFF.
    pub retention: Option<bool>,
    /// `POISON_MESSAGE_HANDLING ( STATUS = ON | OFF )`: whether five rollbacks in a row disable the queue. Default ON.
    pub poison_message_handling: Option<bool>,
    /// `POISON_MESSAGE_HANDLING ( QUARANTINE = ON | OFF )`, ours: quarantine only the guilty group. Default OFF.
    pub poison_quarantine: Option<bool>,
    /// `RETRY ( ... )`, ours: pauses between the attempts, and what follows the last. Default none.
    pub retry: Option<RetryChange>,
    /// `ACTIVATION ( ... )`.
    pub activation: Option<ActivationChange>,
    /// `REASON = '...'`, ours: why a queue is turned off, at most 1000 characters; only beside `STATUS = OFF`.
    pub reason: Option<String>,
}

/// An `ACTIVATION` clause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivationChange {
    /// `ACTIVATION ( DROP )`
    Drop,
    /// `ACTIVATION ( [STATUS = ..,] [PROCEDURE_NAME = ..,] [MAX_QUEUE_READERS = ..,] [EXECUTE AS ..] )`
    Set(ActivationOptions),
}

/// The settings of an `ACTIVATION` clause; `None` is "not named".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActivationOptions {
    /// Whether readers are launched. Default ON when the clause creates the activation.
    pub status: Option<bool>,
    /// The name of the handler, or of the stored procedure it stands for.
    pub procedure_name: Option<String>,
    /// 0 to 32767. Kept wide so that the error can name a value out of range.
    pub max_queue_readers: Option<i64>,
    /// Kept for compatibility.
    pub execute_as: Option<ExecuteAs>,
}

/// The user a reader runs as; kept for compatibility, the embedded store has no principals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecuteAs {
    /// The principal that ran the statement.
    SelfUser,
    /// The owner of the queue.
    Owner,
    /// A named user.
    User(String),
}

/// The criteria and level of a broker priority that a statement names; the outer `None` is "not named".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PriorityOptions {
    /// `CONTRACT_NAME = name | ANY`
    pub contract: Option<AnyOr>,
    /// `LOCAL_SERVICE_NAME = name | ANY`
    pub local_service: Option<AnyOr>,
    /// `REMOTE_SERVICE_NAME = 'name' | ANY`
    pub remote_service: Option<AnyOr>,
    /// `PRIORITY_LEVEL = 1..10
    /// DEFAULT`. Kept wide so that the error can name a value out of range.
    pub level: Option<i64>,
}

/// A name, or the wildcard.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AnyOr {
    /// `ANY`
    Any,
    /// A name.
    Name(String),
}

impl AnyOr {
    /// The name of a contract or service of this broker; `None` for the wildcard, which `[ANY]` is there too.
    pub(crate) fn object(&self) -> Option<&str> {
        match self {
            Self::Name(name) if name != "ANY" => Some(name),
            Self::Name(_) | Self::Any => None,
        }
    }
}

/// The event of an event notification on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QueueEvent {
    /// `QUEUE_ACTIVATION`: there is work and no receiver.
    QueueActivation,
    /// `BROKER_QUEUE_DISABLED`: poison handling turned the queue off.
    BrokerQueueDisabled,
}

impl QueueEvent {
    /// All of them, with their words in the DDL.
    pub const ALL: [(&'static str, Self); 2] =
        [("QUEUE_ACTIVATION", Self::QueueActivation), ("BROKER_QUEUE_DISABLED", Self::BrokerQueueDisabled)];

    /// Its word in the DDL, in the tables and in the notification's body.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, event)| *event == self).map_or("QUEUE_ACTIVATION", |(word, _)| *word)
    }
}

/// `ALTER DATABASE ... SET` options of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BrokerOption {
    /// Delivery on, identity kept.
    EnableBroker,
    /// Delivery off: sent messages wait in the transmission queue.
    DisableBroker,
    /// A new identity; all conversations vanish.
    NewBroker,
    /// Identity kept, every conversation gets Error -9719.
    ErrorBrokerConversations,
    /// Whether levels rule the order in which the transmission queue is emptied.
    HonorBrokerPriority(bool),
}
