//! Writing what the core changed: one statement per kind of row.

use super::options::Fault;
use crate::catalog::{Activation, Contract, MessageType, Queue, Service};
use crate::core::{Change, EndpointRow, MessageRow, TransmissionRow};
use crate::protocol::definition::{AnyOr, ExecuteAs, QueueEvent, SentBy, Validation};
use rusqlite::{CachedStatement, Connection, Params, Result, params};

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(const $name: &str = include_str!(concat!("../../../sql/sqlite/rows/", $file, ".sql"));)*
    };
}

statements! {
    PUT_MESSAGE_TYPE = "put_message_type";
    PUT_CONTRACT = "put_service_contract";
    DELETE_CONTRACT_USAGES = "delete_service_contract_message_usages";
    INSERT_CONTRACT_USAGE = "insert_service_contract_message_usage";
    PUT_QUEUE = "put_service_queue";
    DELETE_QUEUE = "delete_service_queue";
    PUT_SERVICE = "put_service";
    DELETE_SERVICE = "delete_service";
    DELETE_SERVICE_CONTRACTS = "delete_service_contract_usages";
    INSERT_SERVICE_CONTRACT = "insert_service_contract_usage";
    PUT_PRIORITY = "put_conversation_priority";
    DELETE_PRIORITY = "delete_conversation_priority";
    PUT_XML_SCHEMA_COLLECTION = "put_xml_schema_collection";
    DELETE_XML_SCHEMA_COLLECTION = "delete_xml_schema_collection";
    PUT_EVENT_NOTIFICATION = "put_event_notification";
    DELETE_EVENT_NOTIFICATION = "delete_event_notification";
    PUT_SETTINGS = "put_settings";
    SET_MARKS = "set_marks";
    PUT_ENDPOINT = "put_conversation_endpoint";
    DELETE_ENDPOINT = "delete_conversation_endpoint";
    PUT_RECEIVE_SEQUENCE = "put_receive_sequence";
    DELETE_RECEIVE_SEQUENCE = "delete_receive_sequence";
    INSERT_MESSAGE = "insert_queue_message";
    DELETE_MESSAGE = "delete_queue_message";
    RETAIN_MESSAGE = "retain_queue_message";
    INSERT_RETAINED = "insert_retained_message";
    DELETE_RETAINED = "delete_retained_messages";
    INSERT_TRANSMISSION = "insert_transmission";
    DELETE_TRANSMISSION = "delete_transmission";
    SET_TRANSMISSION_STATUS = "set_transmission_status";
}

/// The letters by which the tables tell the validations apart.
pub(super) const VALIDATIONS: [&str; 6] = ["N", "E", "X", "V", "J", "S"];

/// Writes changes in the open transaction of a connection. The statements of the hot rows are looked up once.
pub(super) struct Writer<'c> {
    connection: &'c Connection,
    fault: Option<&'c Fault>,
    insert_message: Option<CachedStatement<'c>>,
    delete_message: Option<CachedStatement<'c>>,
    put_receive_sequence: Option<CachedStatement<'c>>,
}

impl<'c> Writer<'c> {
    pub(super) fn new(connection: &'c Connection, fault: Option<&'c Fault>) -> Self {
        Self { connection, fault, insert_message: None, delete_message: None, put_receive_sequence: None }
    }

    fn run(&self, text: &str, params: impl Params) -> Result<usize> {
        strike(self.fault, || self.connection.prepare_cached(text)?.execute(params))
    }

    /// Writes one change.
    pub(super) fn write(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::InsertMessage(row) => return self.insert_message(row),
            Change::DeleteMessage { queuing_order } => return self.delete_message(*queuing_order),
            Change::NoteReceiveSequence { endpoint_id, receive_sequence } => {
                let statement = hot(&mut self.put_receive_sequence, self.connection, PUT_RECEIVE_SEQUENCE)?;
                strike(self.fault, || statement.execute((int(*endpoint_id), int(*receive_sequence))))?;
            }
            Change::PutEndpoint(row) => self.put_endpoint(row)?,
            Change::DeleteEndpoint(id) => {
                self.run(DELETE_ENDPOINT, [int(*id)])?;
                self.run(DELETE_RECEIVE_SEQUENCE, [int(*id)])?;
            }
            Change::RetainMessage { queuing_order } => {
                self.run(RETAIN_MESSAGE, [int(*queuing_order)])?;
                self.delete_message(*queuing_order)?;
            }
            Change::InsertRetained(row) => self.insert_retained(row)?,
            Change::DeleteRetained { endpoint_id } => drop(self.run(DELETE_RETAINED, [int(*endpoint_id)])?),
            Change::InsertTransmission(row) => self.insert_transmission(row)?,
            Change::DeleteTransmission { transmission_id } => {
                self.run(DELETE_TRANSMISSION, [int(*transmission_id)])?;
            }
            Change::SetTransmissionStatus { transmission_id, status } => {
                self.run(SET_TRANSMISSION_STATUS, params![int(*transmission_id), &**status])?;
            }
            Change::PutMessageType(row) => self.put_message_type(row)?,
            Change::PutContract(row) => self.put_contract(row)?,
            Change::PutQueue(row) => self.put_queue(row)?,
            Change::DeleteQueue(id) => drop(self.run(DELETE_QUEUE, [id])?),
            Change::PutService(row) => self.put_service(row)?,
            Change::DeleteService(id) => {
                self.run(DELETE_SERVICE_CONTRACTS, [id])?;
                self.run(DELETE_SERVICE, [id])?;
            }
            Change::PutPriority(row) => {
                let remote_service = match &row.remote_service {
                    AnyOr::Any => None,
                    AnyOr::Name(name) => Some(name),
                };
                self.run(
                    PUT_PRIORITY,
                    params![row.id, &*row.name, row.contract_id, row.local_service_id, remote_service, row.level],
                )?;
            }
            Change::DeletePriority(id) => drop(self.run(DELETE_PRIORITY, [id])?),
            Change::PutXmlSchemaCollection(row) => {
                self.run(PUT_XML_SCHEMA_COLLECTION, params![row.id, &*row.name, &*row.schemas])?;
            }
            Change::DeleteXmlSchemaCollection(id) => drop(self.run(DELETE_XML_SCHEMA_COLLECTION, [id])?),
            Change::PutEventNotification(row) => {
                let event = event_name(row.event);
                let handle = row.conversation_handle.as_bytes();
                self.run(
                    PUT_EVENT_NOTIFICATION,
                    params![row.id, &*row.name, row.queue_id, event, &*row.service, handle],
                )?;
            }
            Change::DeleteEventNotification(id) => drop(self.run(DELETE_EVENT_NOTIFICATION, [id])?),
            Change::PutSettings(settings) => {
                self.run(
                    PUT_SETTINGS,
                    params![
                        settings.broker_guid.as_bytes(),
                        settings.is_broker_enabled,
                        settings.is_honor_broker_priority_on,
                        settings.next_object_id,
                    ],
                )?;
            }
        }
        Ok(())
    }

    /// Writes the marks at or above which no number was ever given out.
    pub(super) fn set_marks(&self, (order, endpoint, transmission): (u64, u64, u64)) -> Result<()> {
        self.run(SET_MARKS, [int(order), int(endpoint), int(transmission)])?;
        Ok(())
    }

    fn insert_message(&mut self, row: &MessageRow) -> Result<()> {
        let statement = hot(&mut self.insert_message, self.connection, INSERT_MESSAGE)?;
        strike(self.fault, || {
            statement.execute(params![
                int(row.queuing_order),
                int(row.endpoint_id),
                row.stored as u8,
                int(row.sequence),
                row.message_type_id,
                row.message_id.0.as_bytes(),
                row.enqueued_at.0,
                row.body.as_deref(),
                row.trace.as_deref(),
            ])
        })?;
        Ok(())
    }

    fn delete_message(&mut self, queuing_order: u64) -> Result<()> {
        let statement = hot(&mut self.delete_message, self.connection, DELETE_MESSAGE)?;
        strike(self.fault, || statement.execute([int(queuing_order)]))?;
        Ok(())
    }

    fn insert_retained(&self, row: &MessageRow) -> Result<()> {
        self.run(
            INSERT_RETAINED,
            params![
                int(row.endpoint_id),
                int(row.queuing_order),
                3,
                row.stored as u8,
                int(row.sequence),
                row.message_type_id,
                row.message_id.0.as_bytes(),
                row.enqueued_at.0,
                row.body.as_deref(),
                row.trace.as_deref(),
            ],
        )?;
        Ok(())
    }

    fn insert_transmission(&self, row: &TransmissionRow) -> Result<()> {
        self.run(
            INSERT_TRANSMISSION,
            params![
                int(row.transmission_id),
                int(row.endpoint_id),
                int(row.sequence),
                row.message_type_id,
                row.is_conversation_error,
                row.is_end_of_dialog,
                row.message_id.0.as_bytes(),
                row.enqueued_at.0,
                row.priority,
                row.body.as_deref(),
                row.trace.as_deref(),
                &*row.status,
            ],
        )?;
        Ok(())
    }

    fn put_endpoint(&self, row: &EndpointRow) -> Result<()> {
        self.run(
            PUT_ENDPOINT,
            params![
                int(row.endpoint_id),
                row.handle.0.as_bytes(),
                row.conversation_id.0.as_bytes(),
                row.group.0.as_bytes(),
                row.service_id,
                row.contract_id,
                row.is_initiator,
                &*row.far_service,
                row.far_broker_instance.as_deref(),
                row.state.code(),
                row.priority,
                row.lifetime.0,
                row.dialog_timer.map(|due| due.0),
                row.security_timestamp.map(|due| due.0),
                int(row.send_sequence),
                int(row.receive_sequence),
                row.end_dialog_sequence.map(int),
                row.is_system,
                row.is_quarantined,
                row.begun_at.0,
            ],
        )?;
        Ok(())
    }

    fn put_message_type(&self, row: &MessageType) -> Result<()> {
        let [none, empty, xml, valid_xml, json, json_schema] = VALIDATIONS;
        let (letter, collection, schema) = match &row.validation {
            Validation::None => (none, None, None),
            Validation::Empty => (empty, None, None),
            Validation::WellFormedXml => (xml, None, None),
            Validation::ValidXml { schema_collection } => (valid_xml, Some(schema_collection), None),
            Validation::Json => (json, None, None),
            Validation::JsonSchema { schema } => (json_schema, None, Some(schema)),
        };
        self.run(PUT_MESSAGE_TYPE, params![row.id, &*row.name, row.owner, letter, collection, schema, row.is_dropped])?;
        Ok(())
    }

    fn put_contract(&self, row: &Contract) -> Result<()> {
        self.run(PUT_CONTRACT, params![row.id, &*row.name, row.owner, row.is_dropped])?;
        self.run(DELETE_CONTRACT_USAGES, [row.id])?;
        for (position, entry) in row.entries.iter().enumerate() {
            let by_initiator = entry.sent_by != SentBy::Target;
            let by_target = entry.sent_by != SentBy::Initiator;
            self.run(
                INSERT_CONTRACT_USAGE,
                params![row.id, position as i64, entry.message_type, by_initiator, by_target],
            )?;
        }
        Ok(())
    }

    fn put_queue(&self, row: &Queue) -> Result<()> {
        let activation = row.activation.as_ref();
        let execute_as = activation.map(|activation: &Activation| match &activation.execute_as {
            ExecuteAs::SelfUser => ("SELF", None),
            ExecuteAs::Owner => ("OWNER", None),
            ExecuteAs::User(name) => ("USER", Some(name)),
        });
        self.run(
            PUT_QUEUE,
            params![
                row.id,
                &*row.name,
                row.is_receive_enabled,
                row.is_enqueue_enabled,
                row.is_retention_enabled,
                row.is_poison_message_handling_enabled,
                row.is_poison_quarantine_enabled,
                activation.map(|activation| activation.is_enabled),
                activation.map(|activation| &*activation.procedure_name),
                activation.map(|activation| activation.max_queue_readers),
                execute_as.map(|(form, _)| form),
                execute_as.and_then(|(_, name)| name),
            ],
        )?;
        Ok(())
    }

    fn put_service(&self, row: &Service) -> Result<()> {
        self.run(PUT_SERVICE, params![row.id, &*row.name, row.owner, row.queue_id])?;
        self.run(DELETE_SERVICE_CONTRACTS, [row.id])?;
        for (position, contract_id) in row.contract_ids.iter().enumerate() {
            self.run(INSERT_SERVICE_CONTRACT, params![row.id, position as i64, contract_id])?;
        }
        Ok(())
    }
}

/// The statement, looked up at its first use.
fn hot<'s, 'c>(
    place: &'s mut Option<CachedStatement<'c>>,
    connection: &'c Connection,
    text: &str,
) -> Result<&'s mut CachedStatement<'c>> {
    match place {
        Some(statement) => Ok(statement),
        None => Ok(place.insert(connection.prepare_cached(text)?)),
    }
}

/// Does the operation, unless a fault was asked for and strikes it.
pub(super) fn strike<T>(fault: Option<&Fault>, operation: impl FnOnce() -> Result<T>) -> Result<T> {
    match fault {
        None => operation(),
        Some(fault) => fault.strike(operation),
    }
}

/// Numbers are handed out one by one from 1, so that none ever reaches the sign.
pub(super) fn int(number: u64) -> i64 {
    number.cast_signed()
}

/// How the tables write what a notification tells.
pub(super) fn event_name(event: QueueEvent) -> &'static str {
    match event {
        QueueEvent::QueueActivation => "QUEUE_ACTIVATION",
        QueueEvent::BrokerQueueDisabled => "BROKER_QUEUE_DISABLED",
    }
}
