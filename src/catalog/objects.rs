//! The objects of the catalog.

use super::name_index::{NameIndex, Named};
use super::timetable::Timetable;
use crate::error::Result;
use crate::protocol::definition::{
    AnyOr, ContractEntry, ExecuteAs, Missed, QueueEvent, RetryPolicy, SentBy, Validation, WorkSettings,
};
use crate::protocol::system::FIRST_USER_ID;
use crate::protocol::{Body, MessageValidation};
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// All definitions of one broker. Cheap to clone: objects are shared.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// By id; dropped types stay, marked, while rows may still name them.
    pub message_types: BTreeMap<i32, Arc<MessageType>>,
    /// By id; dropped contracts stay, marked.
    pub contracts: BTreeMap<i32, Arc<Contract>>,
    /// By id.
    pub queues: BTreeMap<i32, Arc<Queue>>,
    /// By id.
    pub services: BTreeMap<i32, Arc<Service>>,
    /// By id.
    pub priorities: BTreeMap<i32, Arc<Priority>>,
    /// By id.
    pub xml_schema_collections: BTreeMap<i32, Arc<XmlSchemaCollection>>,
    /// By id.
    pub event_notifications: BTreeMap<i32, Arc<EventNotification>>,
    /// By id.
    pub work_queues: BTreeMap<i32, Arc<WorkQueue>>,
    /// By id.
    pub work_schedules: BTreeMap<i32, Arc<WorkSchedule>>,
    /// The broker's own settings.
    pub settings: BrokerSettings,
    pub(crate) names: Names,
}

/// The indexes by name of the objects of which there may be many.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    queues: NameIndex,
    services: NameIndex,
    work_queues: NameIndex,
}

macro_rules! named {
    ($($object:ty: $is_folded:literal;)*) => {
        $(impl Named for $object {
            const IS_FOLDED: bool = $is_folded;

            fn name(&self) -> &str {
                &self.name
            }
        })*
    };
}

named! {
    Queue: true;
    Service: false;
    WorkQueue: true;
}

/// `sys.service_message_types`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageType {
    /// From 65536 for user types.
    pub id: i32,
    /// Compared byte by byte.
    pub name: Arc<str>,
    /// As declared.
    pub owner: Option<String>,
    /// The required form of a body.
    pub validation: Validation,
    /// Dropped; kept for the rows that still name it.
    pub is_dropped: bool,
}

impl MessageType {
    /// Whether a body must be read for its check.
    pub fn is_checked(&self) -> bool {
        self.validation != Validation::None
    }

    /// The letter of the validation column.
    pub fn validation_letter(&self) -> MessageValidation {
        match self.validation {
            Validation::None => MessageValidation::N,
            Validation::Empty => MessageValidation::E,
            Validation::WellFormedXml | Validation::ValidXml { .. } => MessageValidation::X,
            Validation::Json | Validation::JsonSchema { .. } => MessageValidation::J,
        }
    }
}

/// `sys.service_contracts` with its usages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contract {
    /// From 65536 for user contracts.
    pub id: i32,
    /// Compared byte by byte.
    pub name: Arc<str>,
    /// As declared.
    pub owner: Option<String>,
    /// The types that may be sent, and the sides that may send them; immutable.
    pub entries: Vec<ContractEntry>,
    /// Dropped; kept for the conversations that ran over it.
    pub is_dropped: bool,
}

impl Contract {
    /// The side that may send that type over this contract; `None` if neither may.
    pub fn sent_by(&self, message_type: &str) -> Option<SentBy> {
        self.entries.iter().find(|entry| entry.message_type == message_type).map(|entry| entry.sent_by)
    }
}

/// `sys.service_queues`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// From 65536.
    pub id: i32,
    /// As declared; compared without regard to case.
    pub name: Arc<str>,
    /// Whether RECEIVE is allowed.
    pub is_receive_enabled: bool,
    /// Whether messages are taken in.
    pub is_enqueue_enabled: bool,
    /// Whether rows are kept until their conversation ends.
    pub is_retention_enabled: bool,
    /// Whether five rollbacks in a row disable the queue.
    pub is_poison_message_handling_enabled: bool,
    /// Whether poison handling quarantines the guilty group rather than disable the queue (ours).
    pub is_poison_quarantine_enabled: bool,
    /// Pauses between the attempts at a group, and what follows the last (ours).
    pub retry: Option<RetryPolicy>,
    /// How readers are launched.
    pub activation: Option<Activation>,
    /// Why its STATUS is OFF; `None` while it is ON, and if an earlier version turned it off.
    pub off: Option<QueueOff>,
}

impl Catalog {
    /// Gives the queues that a statement has just turned off their moment.
    pub(crate) fn date_queues(&mut self, now: Timestamp) {
        let is_undated = |queue: &&mut Arc<Queue>| queue.off.as_ref().is_some_and(|off| off.since.is_none());
        for queue in self.queues.values_mut().filter(is_undated) {
            if let Some(off) = &mut Arc::make_mut(queue).off {
                off.since = Some(now);
            }
        }
    }
}

/// Why a queue is off, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOff {
    /// When it was turned off; `None` until the statement that does it commits.
    pub since: Option<Timestamp>,
    /// What turned it off.
    pub by: OffBy,
    /// The REASON of the statement.
    pub reason: Option<Arc<str>>,
}

/// What turned a queue off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OffBy {
    /// A definition: CREATE QUEUE or ALTER QUEUE.
    Statement,
    /// Poison message handling: five rollbacks in a row.
    Poison,
}

impl OffBy {
    /// The word that the tables hold.
    pub fn word(self) -> &'static str {
        match self {
            Self::Statement => "statement",
            Self::Poison => "poison",
        }
    }

    /// The reverse of [`OffBy::word`].
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Statement, Self::Poison].into_iter().find(|by| by.word() == word)
    }
}

impl Queue {
    /// Whether its STATUS is ON.
    pub fn is_enabled(&self) -> bool {
        self.is_receive_enabled && self.is_enqueue_enabled
    }
}

/// The activation of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// Whether readers are launched.
    pub is_enabled: bool,
    /// The handler, or the procedure it stands for.
    pub procedure_name: Arc<str>,
    /// The most readers at a time, 0 to 32767.
    pub max_queue_readers: u16,
    /// As declared.
    pub execute_as: ExecuteAs,
}

/// `sys.services`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// From 65536 for user services.
    pub id: i32,
    /// Compared byte by byte.
    pub name: Arc<str>,
    /// As declared.
    pub owner: Option<String>,
    /// Where its messages arrive.
    pub queue_id: i32,
    /// The contracts it accepts as a target.
    pub contract_ids: Vec<i32>,
}

/// `sys.conversation_priorities`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority {
    /// From 65536.
    pub id: i32,
    /// Unique.
    pub name: Arc<str>,
    /// `None` is ANY.
    pub contract_id: Option<i32>,
    /// `None` is ANY.
    pub local_service_id: Option<i32>,
    /// Compared byte by byte.
    pub remote_service: AnyOr,
    /// 1 (low) to 10 (high).
    pub level: u8,
}

/// `sys.xml_schema_collections`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XmlSchemaCollection {
    /// From 65536.
    pub id: i32,
    /// Compared without regard to case.
    pub name: Arc<str>,
    /// The text as declared.
    pub schemas: Arc<str>,
}

/// `sys.event_notifications` on queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNotification {
    /// From 65536.
    pub id: i32,
    /// Unique per queue.
    pub name: Arc<str>,
    /// The queue watched.
    pub queue_id: i32,
    /// The event.
    pub event: QueueEvent,
    /// The service that gets the event.
    pub service: Arc<str>,
    /// The conversation the events are sent on; its handle.
    pub conversation_handle: Uuid,
}

/// A work queue (ours).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQueue {
    /// From 65536.
    pub id: i32,
    /// As declared; compared without regard to case.
    pub name: Arc<str>,
    /// Its options.
    pub settings: WorkSettings,
}

/// A work schedule (ours): the jobs that a work queue gets at certain times. When it fires next is no definition; it stands
/// in the row beside this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkSchedule {
    /// From 65536.
    pub id: i32,
    /// As declared; compared without regard to case.
    pub name: Arc<str>,
    /// The work queue that gets the jobs.
    pub queue_id: i32,
    /// Whether it fires.
    pub is_enabled: bool,
    /// As declared.
    pub cron: Arc<str>,
    /// The name in the IANA time zone database.
    pub time_zone: Arc<str>,
    /// What happens to times that passed while no process ran the broker.
    pub missed: Missed,
    /// The type of its jobs.
    pub job_type: Arc<str>,
    /// The key of its jobs.
    pub key: Option<Arc<str>>,
    /// The level of its jobs, 1 to 10.
    pub level: u8,
    /// The body of its jobs.
    pub body: Arc<str>,
}

impl WorkSchedule {
    /// When it fires.
    ///
    /// # Errors
    /// 60045 if the line or the time zone is not usable.
    pub fn timetable(&self) -> Result<Timetable> {
        Timetable::parse(&self.name, &self.cron, &self.time_zone)
    }

    /// The body of the job of a time; `None` if it is empty.
    pub fn body_at(&self, time: Timestamp) -> Body {
        let body = match jiff::Timestamp::from_microsecond(time.0) {
            Ok(time) => self.body.replace("{time}", &time.to_string()),
            Err(_) => self.body.to_string(),
        };
        (!body.is_empty()).then(|| Arc::new(body.into_bytes()))
    }

    /// The writer of its jobs.
    pub fn writer(&self) -> String {
        const MOST: usize = 128;
        format!("schedule {}", self.name).chars().take(MOST).collect()
    }
}

/// The broker columns of `sys.databases`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerSettings {
    /// `service_broker_guid`
    pub broker_guid: Uuid,
    /// Whether messages are delivered.
    pub is_broker_enabled: bool,
    /// Whether levels rule the transmission queue.
    pub is_honor_broker_priority_on: bool,
    /// The id of the next object to be created. Ids are never reused, so it is stored, not derived.
    pub next_object_id: i32,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            broker_guid: Uuid::nil(),
            is_broker_enabled: true,
            is_honor_broker_priority_on: false,
            next_object_id: FIRST_USER_ID,
        }
    }
}

impl Catalog {
    /// The live message type of that name.
    pub fn message_type(&self, name: &str) -> Option<&Arc<MessageType>> {
        self.message_types.values().find(|candidate| &*candidate.name == name && !candidate.is_dropped)
    }

    /// The live contract of that name.
    pub fn contract(&self, name: &str) -> Option<&Arc<Contract>> {
        self.contracts.values().find(|candidate| &*candidate.name == name && !candidate.is_dropped)
    }

    /// The service of that name.
    pub fn service(&self, name: &str) -> Option<&Arc<Service>> {
        self.names.services.find(&self.services, name)
    }

    /// The queue of that name, without regard to case.
    pub fn queue(&self, name: &str) -> Option<&Arc<Queue>> {
        self.names.queues.find(&self.queues, name)
    }

    /// The work queue of that name, without regard to case.
    pub fn work_queue(&self, name: &str) -> Option<&Arc<WorkQueue>> {
        self.names.work_queues.find(&self.work_queues, name)
    }

    /// The work schedule of that name, without regard to case.
    pub fn work_schedule(&self, name: &str) -> Option<&Arc<WorkSchedule>> {
        self.work_schedules.values().find(|candidate| same_name(&candidate.name, name))
    }

    /// The broker priority of that name.
    pub fn priority(&self, name: &str) -> Option<&Arc<Priority>> {
        self.priorities.values().find(|candidate| &*candidate.name == name)
    }

    /// The XML schema collection of that name, without regard to case.
    pub fn xml_schema_collection(&self, name: &str) -> Option<&Arc<XmlSchemaCollection>> {
        self.xml_schema_collections.values().find(|candidate| same_name(&candidate.name, name))
    }
}

/// Whether two identifiers are the same without regard to the case of ASCII letters. Allocates nothing: it runs at each
/// RECEIVE.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The name of a queue as it is compared. Only A to Z fold, so that every store, server collation and Unicode version
/// folds alike (decision 0021).
pub(crate) fn fold_name(name: &str) -> String {
    name.to_ascii_lowercase()
}
