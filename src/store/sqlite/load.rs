//! Recovery: the tables read once, a core made of them.

use super::failure::{damaged, storage};
use super::read::{id, unsigned};
use super::work;
use super::write::VALIDATIONS;
use crate::catalog::{
    Activation, BrokerSettings, Catalog, Contract, EventNotification, MessageType, OffBy, Priority, Queue, QueueOff,
    Service, XmlSchemaCollection,
};
use crate::core::{DeliveryClass, EndpointRow, Limits, Repairs, Restore, Restored};
use crate::error::Result;
use crate::id::{ConversationHandle, ConversationId, GroupId, IdSource};
use crate::protocol::ConversationState;
use crate::protocol::definition::{
    AfterRetries, AnyOr, ContractEntry, ExecuteAs, Pauses, QueueEvent, RetryPolicy, SentBy, Validation,
};
use crate::protocol::work::TakenJob;
use crate::sql::sqlite::read::{
    self, BROKER, DEAD_LETTER_KEYS, DONE_UNITS, EVENT_NOTIFICATIONS, JOB_BODY_ORPHANS, MESSAGE_TYPES,
    RECEIVE_SEQUENCES, RETAINED_ORPHANS, SERVICES, TRANSMISSION_KEYS, XML_SCHEMA_COLLECTIONS,
};
use crate::sql::sqlite::rows::{self, DELETE_JOB_BODY, DELETE_RECEIVE_SEQUENCE};
use crate::time::Timestamp;
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;
use std::sync::Arc;

const CONTRACTS: &str = read::SERVICE_CONTRACTS;
const CONTRACT_USAGES: &str = read::SERVICE_CONTRACT_MESSAGE_USAGES;
const QUEUES: &str = read::SERVICE_QUEUES;
const SERVICE_CONTRACTS: &str = read::SERVICE_CONTRACT_USAGES;
const PRIORITIES: &str = read::CONVERSATION_PRIORITIES;
const ENDPOINT_COUNT: &str = read::CONVERSATION_ENDPOINT_COUNT;
const ENDPOINTS: &str = read::CONVERSATION_ENDPOINTS;
const MESSAGE_KEYS: &str = read::QUEUE_MESSAGE_KEYS;

const DELETE_CONTRACT_USAGES: &str = rows::DELETE_SERVICE_CONTRACT_MESSAGE_USAGES;
const DELETE_SERVICE_CONTRACTS: &str = rows::DELETE_SERVICE_CONTRACT_USAGES;
const DELETE_RETAINED: &str = rows::DELETE_RETAINED_MESSAGES;

/// Rows of side tables whose owner does not exist, by the statement that removes them.
#[derive(Default)]
pub(super) struct Orphans(Vec<(&'static str, i64)>);

impl Orphans {
    /// Removes them, in the open transaction.
    pub(super) fn delete(&self, connection: &Connection) -> Result<()> {
        for (statement, id) in &self.0 {
            connection.prepare_cached(statement).and_then(|mut found| found.execute([id])).map_err(failed)?;
        }
        Ok(())
    }

    fn add(&mut self, repairs: &mut Repairs, table: &'static str, statement: &'static str, id: i64) {
        // The rows come in the order of their keys.
        if self.0.last() != Some(&(statement, id)) {
            self.0.push((statement, id));
        }
        repairs.note(table, "what it belongs to does not exist; removed", id);
    }
}

/// The content of the tables.
pub(super) struct Loaded {
    pub(super) restored: Restored,
    pub(super) orphans: Orphans,
    /// The bytes of the longest body of a message.
    pub(super) largest_body: i64,
    /// All numbers ever used are below these.
    pub(super) marks: (u64, u64, u64),
}

const DOING: &str = "reading the tables of the broker";

/// The broker in the tables, and the repairs they need.
pub(super) fn core(
    connection: &Connection,
    ids: IdSource,
    limits: Limits,
    held_jobs: &[TakenJob],
    now: Timestamp,
) -> Result<Loaded> {
    let (mut orphans, mut repairs) = (Orphans::default(), Repairs::default());
    let (catalog, marks) = catalog(connection)?;
    each(connection, CONTRACT_USAGES, |row| {
        let id: i32 = row.get(0)?;
        if !catalog.contracts.contains_key(&id) {
            let table = "dialoq_service_contract_message_usage";
            orphans.add(&mut repairs, table, DELETE_CONTRACT_USAGES, id.into());
        }
        Ok(())
    })?;
    each(connection, SERVICE_CONTRACTS, |row| {
        let id: i32 = row.get(0)?;
        if !catalog.services.contains_key(&id) {
            orphans.add(&mut repairs, "dialoq_service_contract_usage", DELETE_SERVICE_CONTRACTS, id.into());
        }
        Ok(())
    })?;
    let mut restore = Restore::new(catalog, ids, limits);
    restore.counters(marks.0, marks.1, marks.2);
    let count = connection.query_row(ENDPOINT_COUNT, [], |row| unsigned(row, 0)).map_err(failed)?;
    restore.expect_endpoints(usize::try_from(count).unwrap_or(0));
    let mut names = Names::default();
    each(connection, ENDPOINTS, |row| {
        restore.endpoint(endpoint(row, &mut names)?);
        Ok(())
    })?;
    each(connection, RECEIVE_SEQUENCES, |row| {
        if !restore.received_up_to(unsigned(row, 0)?, unsigned(row, 1)?) {
            orphans.add(&mut repairs, "dialoq_receive_sequence", DELETE_RECEIVE_SEQUENCE, row.get(0)?);
        }
        Ok(())
    })?;
    let mut largest_body = None;
    each(connection, MESSAGE_KEYS, |row| {
        let class = delivery_class(row, 2)?;
        restore.message(unsigned(row, 0)?, unsigned(row, 1)?, class, unsigned(row, 3)?, row.get(4)?);
        largest_body = largest_body.max(row.get(5)?);
        Ok(())
    })?;
    each(connection, DEAD_LETTER_KEYS, |row| {
        let handle = ConversationHandle(id(row, 2)?);
        restore.dead_letter(unsigned(row, 0)?, unsigned(row, 1)?, handle, delivery_class(row, 3)?, unsigned(row, 4)?);
        largest_body = largest_body.max(row.get(5)?);
        Ok(())
    })?;
    each(connection, TRANSMISSION_KEYS, |row| {
        // A level that is none costs an early place only.
        let level = row.get::<_, u8>(3).unwrap_or(1);
        let (id, endpoint_id, sequence) = (unsigned(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?);
        restore.transmission(id, endpoint_id, sequence, level, row.get(4)?, row.get(5)?);
        largest_body = largest_body.max(row.get(6)?);
        Ok(())
    })?;
    each(connection, RETAINED_ORPHANS, |row| {
        orphans.add(&mut repairs, "dialoq_retained_message", DELETE_RETAINED, row.get(0)?);
        Ok(())
    })?;
    each(connection, DONE_UNITS, |row| {
        restore.unit(id(row, 0)?, Timestamp(row.get(1)?));
        Ok(())
    })?;
    each(connection, JOB_BODY_ORPHANS, |row| {
        orphans.add(&mut repairs, "dialoq_job_body", DELETE_JOB_BODY, row.get(0)?);
        Ok(())
    })?;
    restore.held_jobs(held_jobs);
    work::jobs(connection, &mut restore, now)?;
    let mut restored = restore.finish(now)?;
    restored.repairs.append(repairs);
    Ok(Loaded { restored, orphans, largest_body: largest_body.unwrap_or(0), marks })
}

fn delivery_class(row: &Row<'_>, column: usize) -> rusqlite::Result<DeliveryClass> {
    match row.get::<_, u8>(column)? {
        0 => Ok(DeliveryClass::Sequenced),
        1 => Ok(DeliveryClass::Error),
        2 => Ok(DeliveryClass::Timer),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(column, other.into())),
    }
}

/// Whether a unit of that id has happened.
pub(super) fn unit_happened(connection: &Connection, unit_id: uuid::Uuid) -> crate::error::Result<bool> {
    let mut has_happened = false;
    let mut statement = connection.prepare_cached(read::DONE_UNIT).map_err(failed)?;
    let mut rows = statement.query([unit_id.as_bytes()]).map_err(failed)?;
    while rows.next().map_err(failed)?.is_some() {
        has_happened = true;
    }
    Ok(has_happened)
}

/// The definitions, and the marks.
pub(super) fn catalog(connection: &Connection) -> Result<(Catalog, (u64, u64, u64))> {
    let mut catalog = Catalog::default();
    let mut marks = None;
    each(connection, BROKER, |row| {
        catalog.settings = BrokerSettings {
            broker_guid: id(row, 0)?,
            is_broker_enabled: row.get(1)?,
            is_honor_broker_priority_on: row.get(2)?,
            next_object_id: row.get(3)?,
        };
        marks = Some((unsigned(row, 4)?, unsigned(row, 5)?, unsigned(row, 6)?));
        Ok(())
    })?;
    let marks = marks.ok_or_else(|| damaged("table dialoq_broker has no row"))?;
    each(connection, MESSAGE_TYPES, |row| {
        let row = message_type(row)?;
        catalog.message_types.insert(row.id, Arc::new(row));
        Ok(())
    })?;
    contracts(connection, &mut catalog)?;
    each(connection, QUEUES, |row| {
        let row = queue(row)?;
        catalog.queues.insert(row.id, Arc::new(row));
        Ok(())
    })?;
    services(connection, &mut catalog)?;
    each(connection, PRIORITIES, |row| {
        let id = row.get(0)?;
        let remote_service = row.get::<_, Option<String>>(4)?.map_or(AnyOr::Any, AnyOr::Name);
        let priority = Priority {
            id,
            name: name(row, 1)?,
            contract_id: row.get(2)?,
            local_service_id: row.get(3)?,
            remote_service,
            // Of a level out of range no RECEIVE would find the messages.
            level: row.get::<_, u8>(5)?.clamp(1, 10),
        };
        catalog.priorities.insert(id, Arc::new(priority));
        Ok(())
    })?;
    each(connection, XML_SCHEMA_COLLECTIONS, |row| {
        let id = row.get(0)?;
        let collection = XmlSchemaCollection { id, name: name(row, 1)?, schemas: name(row, 2)? };
        catalog.xml_schema_collections.insert(id, Arc::new(collection));
        Ok(())
    })?;
    each(connection, EVENT_NOTIFICATIONS, |row| {
        let notification_id = row.get(0)?;
        let notification = EventNotification {
            id: notification_id,
            name: name(row, 1)?,
            queue_id: row.get(2)?,
            event: event(row, 3)?,
            service: name(row, 4)?,
            conversation_handle: id(row, 5)?,
        };
        catalog.event_notifications.insert(notification_id, Arc::new(notification));
        Ok(())
    })?;
    work::work_queues(connection, &mut catalog)?;
    work::work_schedules(connection, &mut catalog)?;
    Ok((catalog, marks))
}

fn contracts(connection: &Connection, catalog: &mut Catalog) -> Result<()> {
    let mut contracts = BTreeMap::new();
    each(connection, CONTRACTS, |row| {
        let id: i32 = row.get(0)?;
        let contract =
            Contract { id, name: name(row, 1)?, owner: row.get(2)?, entries: Vec::new(), is_dropped: row.get(3)? };
        contracts.insert(id, contract);
        Ok(())
    })?;
    each(connection, CONTRACT_USAGES, |row| {
        let sent_by = match (row.get(3)?, row.get(4)?) {
            (true, true) => SentBy::Any,
            (_, false) => SentBy::Initiator,
            (false, true) => SentBy::Target,
        };
        if let Some(contract) = contracts.get_mut(&row.get::<_, i32>(0)?) {
            contract.entries.push(ContractEntry { message_type: row.get(2)?, sent_by });
        }
        Ok(())
    })?;
    catalog.contracts = contracts.into_iter().map(|(id, contract)| (id, Arc::new(contract))).collect();
    Ok(())
}

fn services(connection: &Connection, catalog: &mut Catalog) -> Result<()> {
    let mut services = BTreeMap::new();
    each(connection, SERVICES, |row| {
        let id: i32 = row.get(0)?;
        let service =
            Service { id, name: name(row, 1)?, owner: row.get(2)?, queue_id: row.get(3)?, contract_ids: Vec::new() };
        services.insert(id, service);
        Ok(())
    })?;
    each(connection, SERVICE_CONTRACTS, |row| {
        if let Some(service) = services.get_mut(&row.get::<_, i32>(0)?) {
            service.contract_ids.push(row.get(2)?);
        }
        Ok(())
    })?;
    catalog.services = services.into_iter().map(|(id, service)| (id, Arc::new(service))).collect();
    Ok(())
}

fn message_type(row: &Row<'_>) -> rusqlite::Result<MessageType> {
    let letter: String = row.get(3)?;
    let validation = match VALIDATIONS.iter().position(|known| *known == letter) {
        Some(0) => Validation::None,
        Some(1) => Validation::Empty,
        Some(2) => Validation::WellFormedXml,
        Some(3) => Validation::ValidXml { schema_collection: row.get(4)? },
        Some(4) => Validation::Json,
        Some(5) => Validation::JsonSchema { schema: row.get(5)? },
        _ => return Err(unknown(3)),
    };
    Ok(MessageType { id: row.get(0)?, name: name(row, 1)?, owner: row.get(2)?, validation, is_dropped: row.get(6)? })
}

fn queue(row: &Row<'_>) -> rusqlite::Result<Queue> {
    let activation = match row.get::<_, Option<bool>>(7)? {
        None => None,
        Some(is_enabled) => Some(Activation {
            is_enabled,
            procedure_name: name(row, 8)?,
            max_queue_readers: row.get(9)?,
            execute_as: match row.get_ref(10)?.as_str()? {
                "SELF" => ExecuteAs::SelfUser,
                "OWNER" => ExecuteAs::Owner,
                "USER" => ExecuteAs::User(row.get(11)?),
                _ => return Err(unknown(10)),
            },
        }),
    };
    let retry = match row.get::<_, Option<u16>>(12)? {
        None => None,
        Some(max_attempts) => Some(RetryPolicy {
            max_attempts,
            pauses: Pauses {
                delay_ms: row.get(13)?,
                factor_percent: row.get(14)?,
                max_delay_ms: row.get(15)?,
                jitter_percent: row.get(16)?,
            },
            then: {
                let word = row.get_ref(17)?.as_str()?;
                let then = AfterRetries::ALL.iter().find(|(known, _)| *known == word);
                then.map(|(_, then)| *then).ok_or_else(|| unknown(17))?
            },
        }),
    };
    let off = match row.get::<_, Option<String>>(19)? {
        None => None,
        Some(by) => Some(QueueOff {
            since: row.get::<_, Option<i64>>(18)?.map(Timestamp),
            by: OffBy::from_word(&by).ok_or_else(|| unknown(19))?,
            reason: row.get::<_, Option<String>>(20)?.map(Arc::from),
        }),
    };
    Ok(Queue {
        id: row.get(0)?,
        name: name(row, 1)?,
        is_receive_enabled: row.get(2)?,
        is_enqueue_enabled: row.get(3)?,
        is_retention_enabled: row.get(4)?,
        is_poison_message_handling_enabled: row.get(5)?,
        is_poison_quarantine_enabled: row.get(6)?,
        retry,
        activation,
        off,
    })
}

fn endpoint(row: &Row<'_>, names: &mut Names) -> rusqlite::Result<EndpointRow> {
    let state = row.get_ref(9)?.as_str()?;
    let state = ConversationState::ALL.into_iter().find(|known| known.code() == state).ok_or_else(|| unknown(9))?;
    Ok(EndpointRow {
        endpoint_id: unsigned(row, 0)?,
        handle: ConversationHandle(id(row, 1)?),
        conversation_id: ConversationId(id(row, 2)?),
        group: GroupId(id(row, 3)?),
        service_id: row.get(4)?,
        contract_id: row.get(5)?,
        is_initiator: row.get(6)?,
        far_service: names.shared(row.get_ref(7)?.as_str()?),
        far_broker_instance: row.get::<_, Option<String>>(8)?.map(Arc::from),
        state,
        priority: row.get(10)?,
        lifetime: Timestamp(row.get(11)?),
        dialog_timer: row.get::<_, Option<i64>>(12)?.map(Timestamp),
        security_timestamp: row.get::<_, Option<i64>>(13)?.map(Timestamp),
        send_sequence: unsigned(row, 14)?,
        receive_sequence: unsigned(row, 15)?,
        end_dialog_sequence: row.get::<_, Option<i64>>(16)?.map(i64::cast_unsigned),
        is_system: row.get(17)?,
        is_quarantined: row.get(18)?,
        begun_at: Timestamp(row.get(19)?),
        rollbacks: row.get(20)?,
        retry_at: row.get::<_, Option<i64>>(21)?.map(Timestamp),
    })
}

/// The last names seen, each held once: neighbours in the table mostly name the same services.
#[derive(Default)]
struct Names([Option<Arc<str>>; 4], usize);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.iter().flatten().find(|known| ***known == *name) {
            return known.clone();
        }
        let made: Arc<str> = name.into();
        self.0[self.1 % 4] = Some(made.clone());
        self.1 += 1;
        made
    }
}

fn event(row: &Row<'_>, column: usize) -> rusqlite::Result<QueueEvent> {
    let text = row.get_ref(column)?.as_str()?;
    QueueEvent::ALL.iter().find(|(word, _)| *word == text).map(|(_, event)| *event).ok_or_else(|| unknown(column))
}

fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
    Ok(row.get_ref(column)?.as_str()?.into())
}

fn unknown(column: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(column, "a known keyword".to_owned(), rusqlite::types::Type::Text)
}

fn failed(error: rusqlite::Error) -> crate::error::Error {
    storage(DOING, error)
}

fn each(connection: &Connection, text: &str, mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) -> Result<()> {
    let mut run = || -> rusqlite::Result<()> {
        let mut statement = connection.prepare(text)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    };
    run().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_names_are_held_once_however_many_there_were() {
        let _limit = crate::testing::limit();
        let mut names = Names::default();
        for number in 0..20 {
            let name = number.to_string();
            assert_eq!(&*names.shared(&name), name);
        }
        assert!(Arc::ptr_eq(&names.shared("16"), &names.shared("16")));
    }
}
