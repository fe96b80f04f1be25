//! The definitions, read from the tables and kept until they change.

use crate::catalog::{
    Activation, BrokerSettings, Catalog, Contract, EventNotification, MessageType, OffBy, Priority, Queue, QueueOff,
    Service, WorkQueue, WorkSchedule, XmlSchemaCollection,
};
use crate::error::{Code, Result};
use crate::protocol::definition::{
    AfterRetries, AnyOr, ContractEntry, ExecuteAs, Missed, Pauses, QueueEvent, RetryPolicy, SentBy, TakingTechnique,
    Validation, WorkNumber, WorkOption, WorkOrder, WorkSettings,
};
use crate::store::SqlRow;
use crate::store::database::Database;
use crate::store::database::calls::rows::{Row, damaged, only};
use crate::store::database::link::{HANGING, Link, Linked};
use crate::store::database::notifications::control_connection::{may_hang_after, twice_if_it_hangs};
use crate::store::database::retry::{Repeat, retry};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Attempts to read the definitions while a lock is in the way, which ends each attempt after a second on SQL Server. Between two
/// attempts open transactions use the control connection.
const LOCKED_READS: u32 = 30;

/// The definitions of one version.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Known {
    pub(in crate::store::database) catalog: Arc<Catalog>,
    pub(in crate::store::database) version: i64,
}

/// The definitions that this process uses.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Definitions {
    known: Mutex<Arc<Known>>,
    /// Held while they are read, so that callers that find them stale together read them once; how long the last read took.
    reading: tokio::sync::Mutex<Duration>,
}

impl Definitions {
    pub(in crate::store::database) fn known(&self) -> Arc<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes definitions over unless newer ones are known; returns whether they are new.
    pub(in crate::store::database) fn learn(&self, known: Known) -> bool {
        self.learn_after(known, i64::MIN, false)
    }

    /// The same for definitions that were read when `before` was known. The version only rises, so an earlier one is that of
    /// a database that was restored, or of a standby that had not received the last definitions when it became the primary.
    /// If `is_unproven`, so may be the same version.
    fn learn_after(&self, known: Known, before: i64, is_unproven: bool) -> bool {
        let mut place = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_restored = known.version < before;
        if is_restored {
            tracing::warn!(
                "the database has version {} of the definitions, and this process had read version {before}; the database was \
                 restored, and its definitions count",
                known.version
            );
        }
        let is_new = known.version > place.version || is_restored || is_unproven && known.version == place.version;
        if is_new {
            *place = Arc::new(known);
        }
        is_new
    }
}

impl Database {
    /// Reads the definitions if they have changed, and wakes all sleeping receivers then.
    pub(in crate::store::database) async fn reload(&self) -> Result<()> {
        self.read(false).await
    }

    /// Reads the definitions even if their version is the known one. While no connection stood, the database may have been
    /// restored, and another process may have made other definitions of that version.
    pub(in crate::store::database) async fn reload_unproven(&self) -> Result<()> {
        self.read(true).await
    }

    async fn read(&self, is_unproven: bool) -> Result<()> {
        let mut last = self.definitions.reading.lock().await;
        let before = self.definitions.known().version;
        // Not on a link of the pool: transactions that hold all of them may wait for the definitions. All of the process that need new
        // definitions wait for this, and so do its receivers, for the notices of other processes come behind.
        let read = || async {
            let began = Instant::now();
            let mut lent = self.control.lend().await?;
            let read = self.read_definitions(&mut *lent.link, is_unproven).await;
            if read.as_ref().err().is_none_or(|failure| failure.is_link_usable) {
                lent.give_back();
            }
            read.map(|known| known.map(|known| (known, began.elapsed())))
        };
        let mut attempts = 1;
        let read = loop {
            let after = may_hang_after(HANGING, *last);
            match retry(Repeat::Always, || twice_if_it_hangs(after, read)).await {
                Err(error) if error.code() == Code::LOCK_TIMEOUT && attempts < LOCKED_READS => attempts += 1,
                read => break read?,
            }
        };
        if let Some((known, took)) = read {
            *last = took;
            if self.definitions.learn_after(known, before, is_unproven) {
                self.board.wake_all();
            }
        }
        Ok(())
    }

    /// Reads until the version has not changed meanwhile; `None` if the known definitions are current.
    async fn read_definitions(&self, link: &mut dyn Link, is_unproven: bool) -> Linked<Option<Known>> {
        let reads = &self.driver.dialect().reads;
        let mut broker = link.read(reads.broker).await?;
        // A malformed row is refused below.
        let _ = only(&broker).and_then(|row| self.maintenance.learn_time(row));
        loop {
            if !is_unproven && version(&broker).is_ok_and(|version| version == self.definitions.known().version) {
                return Ok(None);
            }
            let tables = Tables {
                message_types: link.read(reads.message_types).await?,
                contracts: link.read(reads.service_contracts).await?,
                contract_usages: link.read(reads.service_contract_message_usages).await?,
                queues: link.read(reads.service_queues).await?,
                services: link.read(reads.services).await?,
                service_contracts: link.read(reads.service_contract_usages).await?,
                priorities: link.read(reads.conversation_priorities).await?,
                collections: link.read(reads.xml_schema_collections).await?,
                notifications: link.read(reads.event_notifications).await?,
                work_queues: link.read(reads.work_queues).await?,
                work_schedules: link.read(reads.work_schedules).await?,
            };
            let again = link.read(reads.broker).await?;
            if version(&again).ok() == version(&broker).ok() {
                return Ok(Some(known(&again, &tables)?));
            }
            broker = again;
        }
    }
}

struct Tables {
    message_types: Vec<SqlRow>,
    contracts: Vec<SqlRow>,
    contract_usages: Vec<SqlRow>,
    queues: Vec<SqlRow>,
    services: Vec<SqlRow>,
    service_contracts: Vec<SqlRow>,
    priorities: Vec<SqlRow>,
    collections: Vec<SqlRow>,
    notifications: Vec<SqlRow>,
    work_queues: Vec<SqlRow>,
    work_schedules: Vec<SqlRow>,
}

fn version(broker: &[SqlRow]) -> Result<i64> {
    only(broker)?.int("catalog_version")
}

fn known(broker: &[SqlRow], tables: &Tables) -> Result<Known> {
    let row = only(broker)?;
    let settings = BrokerSettings {
        broker_guid: row.uuid("service_broker_guid")?,
        is_broker_enabled: row.flag("is_broker_enabled")?,
        is_honor_broker_priority_on: row.flag("is_honor_broker_priority_on")?,
        next_object_id: row.id("next_object_id")?,
    };
    let catalog = Catalog {
        message_types: by_id(&tables.message_types, message_type)?,
        contracts: contracts(tables)?,
        queues: by_id(&tables.queues, queue)?,
        services: services(tables)?,
        priorities: by_id(&tables.priorities, priority)?,
        xml_schema_collections: by_id(&tables.collections, collection)?,
        event_notifications: by_id(&tables.notifications, notification)?,
        work_queues: by_id(&tables.work_queues, work_queue)?,
        work_schedules: by_id(&tables.work_schedules, work_schedule)?,
        settings,
        names: Default::default(),
    };
    Ok(Known { catalog: Arc::new(catalog), version: row.int("catalog_version")? })
}

fn by_id<T>(rows: &[SqlRow], read: impl Fn(Row<'_>) -> Result<(i32, T)>) -> Result<BTreeMap<i32, Arc<T>>> {
    rows.iter().map(|row| read(Row(row)).map(|(id, object)| (id, Arc::new(object)))).collect()
}

fn owner(row: Row<'_>) -> Result<Option<String>> {
    Ok(row.maybe_text("owner")?.map(str::to_owned))
}

fn message_type(row: Row<'_>) -> Result<(i32, MessageType)> {
    let text = |column| row.text(column).map(str::to_owned);
    let validation = match row.text("validation")?.trim_end() {
        "N" => Validation::None,
        "E" => Validation::Empty,
        "X" => Validation::WellFormedXml,
        "V" => Validation::ValidXml { schema_collection: text("xml_schema_collection")? },
        "J" => Validation::Json,
        "S" => Validation::JsonSchema { schema: text("json_schema")? },
        other => return Err(damaged(format!("'{other}' is no validation"))),
    };
    let id = row.id("message_type_id")?;
    let is_dropped = row.flag("is_dropped")?;
    Ok((id, MessageType { id, name: row.name("name")?, owner: owner(row)?, validation, is_dropped }))
}

fn contracts(tables: &Tables) -> Result<BTreeMap<i32, Arc<Contract>>> {
    let mut contracts = BTreeMap::new();
    for row in tables.contracts.iter().map(Row) {
        let id = row.id("service_contract_id")?;
        let (name, is_dropped) = (row.name("name")?, row.flag("is_dropped")?);
        contracts.insert(id, Contract { id, name, owner: owner(row)?, entries: Vec::new(), is_dropped });
    }
    for row in tables.contract_usages.iter().map(Row) {
        let sent_by = match (row.flag("is_sent_by_initiator")?, row.flag("is_sent_by_target")?) {
            (true, true) => SentBy::Any,
            (_, false) => SentBy::Initiator,
            (false, true) => SentBy::Target,
        };
        if let Some(contract) = contracts.get_mut(&row.id("service_contract_id")?) {
            contract.entries.push(ContractEntry { message_type: row.text("message_type")?.to_owned(), sent_by });
        }
    }
    Ok(contracts.into_iter().map(|(id, contract)| (id, Arc::new(contract))).collect())
}

fn services(tables: &Tables) -> Result<BTreeMap<i32, Arc<Service>>> {
    let mut services = BTreeMap::new();
    for row in tables.services.iter().map(Row) {
        let id = row.id("service_id")?;
        let (name, queue_id) = (row.name("name")?, row.id("queue_id")?);
        services.insert(id, Service { id, name, owner: owner(row)?, queue_id, contract_ids: Vec::new() });
    }
    for row in tables.service_contracts.iter().map(Row) {
        if let Some(service) = services.get_mut(&row.id("service_id")?) {
            service.contract_ids.push(row.id("service_contract_id")?);
        }
    }
    Ok(services.into_iter().map(|(id, service)| (id, Arc::new(service))).collect())
}

fn queue(row: Row<'_>) -> Result<(i32, Queue)> {
    let id = row.id("queue_id")?;
    let activation = match row.has("is_activation_enabled") {
        false => None,
        true => Some(Activation {
            is_enabled: row.flag("is_activation_enabled")?,
            procedure_name: row.name("activation_procedure")?,
            max_queue_readers: u16::try_from(row.int("max_queue_readers")?)
                .map_err(|_| damaged("max_queue_readers is out of its range"))?,
            execute_as: match row.text("execute_as")?.trim_end() {
                "SELF" => ExecuteAs::SelfUser,
                "OWNER" => ExecuteAs::Owner,
                "USER" => ExecuteAs::User(row.text("execute_as_user")?.to_owned()),
                other => return Err(damaged(format!("'{other}' is no EXECUTE AS"))),
            },
        }),
    };
    let retry = match row.has("retry_max_attempts") {
        false => None,
        true => Some(RetryPolicy {
            max_attempts: u16::try_from(row.int("retry_max_attempts")?)
                .map_err(|_| damaged("retry_max_attempts is out of its range"))?,
            pauses: Pauses {
                delay_ms: row.int("retry_delay_ms")?,
                factor_percent: row.int("retry_factor_percent")?,
                max_delay_ms: row.int("retry_max_delay_ms")?,
                jitter_percent: row.int("retry_jitter_percent")?,
            },
            then: {
                let word = row.text("retry_then")?.trim_end();
                let then = AfterRetries::ALL.iter().find(|(known, _)| *known == word);
                then.map(|(_, then)| *then).ok_or_else(|| damaged(format!("'{word}' is no THEN of a RETRY")))?
            },
        }),
    };
    let off = match row.maybe_text("off_by")? {
        None => None,
        Some(by) => Some(QueueOff {
            since: row.maybe_int("off_since")?.map(Timestamp),
            by: OffBy::from_word(by.trim_end()).ok_or_else(|| damaged(format!("'{by}' turns no queue off")))?,
            reason: row.maybe_text("off_reason")?.map(Arc::from),
        }),
    };
    let queue = Queue {
        id,
        name: row.name("name")?,
        is_receive_enabled: row.flag("is_receive_enabled")?,
        is_enqueue_enabled: row.flag("is_enqueue_enabled")?,
        is_retention_enabled: row.flag("is_retention_enabled")?,
        is_poison_message_handling_enabled: row.flag("is_poison_message_handling_enabled")?,
        is_poison_quarantine_enabled: row.flag("is_poison_quarantine_enabled")?,
        retry,
        activation,
        off,
    };
    Ok((id, queue))
}

fn priority(row: Row<'_>) -> Result<(i32, Priority)> {
    let id = row.id("priority_id")?;
    let priority = Priority {
        id,
        name: row.name("name")?,
        contract_id: row.maybe_id("service_contract_id")?,
        local_service_id: row.maybe_id("local_service_id")?,
        remote_service: row.maybe_text("remote_service_name")?.map_or(AnyOr::Any, |name| AnyOr::Name(name.to_owned())),
        level: u8::try_from(row.int("priority")?).map_err(|_| damaged("a priority is out of its range"))?,
    };
    Ok((id, priority))
}

fn collection(row: Row<'_>) -> Result<(i32, XmlSchemaCollection)> {
    let id = row.id("xml_collection_id")?;
    Ok((id, XmlSchemaCollection { id, name: row.name("name")?, schemas: row.name("schemas")? }))
}

fn notification(row: Row<'_>) -> Result<(i32, EventNotification)> {
    let id = row.id("event_notification_id")?;
    let word = row.text("event")?.trim_end();
    let event = QueueEvent::ALL.iter().find(|(known, _)| *known == word).map(|(_, event)| *event);
    let event = event.ok_or_else(|| damaged(format!("'{word}' is no event")))?;
    let notification = EventNotification {
        id,
        name: row.name("name")?,
        queue_id: row.id("queue_id")?,
        event,
        service: row.name("service")?,
        conversation_handle: row.uuid("conversation_handle")?,
    };
    Ok((id, notification))
}

fn work_queue(row: Row<'_>) -> Result<(i32, WorkQueue)> {
    let id = row.id("queue_id")?;
    let word = row.text("work_order")?;
    let order = WorkOrder::ALL.into_iter().find(|(known, _)| *known == word);
    let (_, order) = order.ok_or_else(|| damaged(format!("'{word}' is no order of a work queue")))?;
    let word = row.text("take_by")?;
    let technique = TakingTechnique::ALL.into_iter().find(|(known, _)| *known == word);
    let (_, technique) = technique.ok_or_else(|| damaged(format!("'{word}' is no TAKE_BY of a work queue")))?;
    let mut settings = WorkSettings::default();
    settings.set(WorkOption::Status(row.flag("is_enabled")?));
    settings.set(WorkOption::Order(order));
    settings.set(WorkOption::History(row.flag("has_history")?));
    settings.set(WorkOption::TakeBy(technique));
    for number in WorkNumber::ALL {
        settings.set(WorkOption::Number(*number, row.int(&number.word().to_ascii_lowercase())?));
    }
    Ok((id, WorkQueue { id, name: row.name("name")?, settings }))
}

/// A work schedule of [`Reads::work_schedules`](crate::store::database::dialect::Reads), with its id.
pub(in crate::store::database) fn work_schedule(row: Row<'_>) -> Result<(i32, WorkSchedule)> {
    let id = row.id("schedule_id")?;
    let word = row.text("missed")?;
    let missed = Missed::ALL.into_iter().find(|(known, _)| *known == word);
    let (_, missed) = missed.ok_or_else(|| damaged(format!("'{word}' is no MISSED of a work schedule")))?;
    let schedule = WorkSchedule {
        id,
        name: row.name("name")?,
        queue_id: row.id("queue_id")?,
        is_enabled: row.flag("is_enabled")?,
        cron: row.name("cron")?,
        time_zone: row.name("time_zone")?,
        missed,
        job_type: row.name("job_type")?,
        key: row.maybe_text("job_key")?.map(Arc::from),
        level: u8::try_from(row.int("level")?)
            .map_err(|_| damaged("the level of a work schedule is out of its range"))?,
        body: row.name("body")?,
    };
    Ok((id, schedule))
}
