//! Writes the core's changes: one statement per kind of row.

use super::options::Fault;
use crate::catalog::{Activation, Contract, MessageType, Queue, Service};
use crate::core::{Change, DeadLetterRow, EndpointRow, MessageRow, TransmissionRow};
use crate::protocol::definition::{AnyOr, ExecuteAs, SentBy, Validation};
use crate::sql::sqlite::rows;
use rusqlite::{CachedStatement, Connection, Params, Result, params};

macro_rules! statements {
    ($($name:ident = $text:ident;)*) => {
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Write {
            $($name),*
        }

        const TEXTS: &[&str] = &[$(rows::$text),*];
    };
}

statements! {
    PutMessageType = PUT_MESSAGE_TYPE;
    PutContract = PUT_SERVICE_CONTRACT;
    DeleteContractUsages = DELETE_SERVICE_CONTRACT_MESSAGE_USAGES;
    InsertContractUsage = INSERT_SERVICE_CONTRACT_MESSAGE_USAGE;
    PutQueue = PUT_SERVICE_QUEUE;
    DeleteQueue = DELETE_SERVICE_QUEUE;
    PutService = PUT_SERVICE;
    DeleteService = DELETE_SERVICE;
    DeleteServiceContracts = DELETE_SERVICE_CONTRACT_USAGES;
    InsertServiceContract = INSERT_SERVICE_CONTRACT_USAGE;
    PutPriority = PUT_CONVERSATION_PRIORITY;
    DeletePriority = DELETE_CONVERSATION_PRIORITY;
    PutXmlSchemaCollection = PUT_XML_SCHEMA_COLLECTION;
    DeleteXmlSchemaCollection = DELETE_XML_SCHEMA_COLLECTION;
    PutEventNotification = PUT_EVENT_NOTIFICATION;
    DeleteEventNotification = DELETE_EVENT_NOTIFICATION;
    PutSettings = PUT_SETTINGS;
    SetMarks = SET_MARKS;
    InsertDoneUnit = INSERT_DONE_UNIT;
    DeleteDoneUnit = DELETE_DONE_UNIT;
    PutEndpoint = PUT_CONVERSATION_ENDPOINT;
    DeleteEndpoint = DELETE_CONVERSATION_ENDPOINT;
    PutReceiveSequence = PUT_RECEIVE_SEQUENCE;
    DeleteReceiveSequence = DELETE_RECEIVE_SEQUENCE;
    InsertMessage = INSERT_QUEUE_MESSAGE;
    DeleteMessage = DELETE_QUEUE_MESSAGE;
    InsertDeadLetter = INSERT_DEAD_LETTER;
    RedriveDeadLetter = REDRIVE_DEAD_LETTER;
    DeleteDeadLetter = DELETE_DEAD_LETTER;
    RetainMessage = RETAIN_QUEUE_MESSAGE;
    InsertRetained = INSERT_RETAINED_MESSAGE;
    DeleteRetained = DELETE_RETAINED_MESSAGES;
    InsertTransmission = INSERT_TRANSMISSION;
    DeleteTransmission = DELETE_TRANSMISSION;
    SetTransmissionStatus = SET_TRANSMISSION_STATUS;
    PutWorkQueue = PUT_WORK_QUEUE;
    DeleteWorkQueue = DELETE_WORK_QUEUE;
    PutWorkSchedule = PUT_WORK_SCHEDULE;
    DeleteWorkSchedule = DELETE_WORK_SCHEDULE;
    SetScheduleTimes = SET_SCHEDULE_TIMES;
    DeleteJobs = DELETE_JOBS;
    DeleteJobBodies = DELETE_JOB_BODIES;
    DeleteJobHistory = DELETE_JOB_HISTORY;
    SetWorkMarks = SET_WORK_MARKS;
    InsertJob = INSERT_JOB;
    InsertJobBody = INSERT_JOB_BODY;
    TakeJob = TAKE_JOB;
    FailJob = FAIL_JOB;
    ReturnJob = RETURN_JOB;
    ReadyJob = READY_JOB;
    ExtendJob = EXTEND_JOB;
    ReportJob = REPORT_JOB;
    RedriveJob = REDRIVE_JOB;
    InsertJobHistory = INSERT_JOB_HISTORY;
    DeleteJob = DELETE_JOB;
    DeleteJobBody = DELETE_JOB_BODY;
    CutJobHistory = CUT_JOB_HISTORY;
    InsertUniqueJob = INSERT_UNIQUE_JOB;
    DeleteUniqueJob = DELETE_UNIQUE_JOB;
}

impl Write {
    /// Whether the change affects exactly one row. Another number of rows means that another program wrote to the
    /// broker's tables, so that memory is no longer true.
    fn changes_one_row(self) -> bool {
        !matches!(
            self,
            Self::DeleteContractUsages
                | Self::DeleteServiceContracts
                | Self::DeleteReceiveSequence
                | Self::DeleteRetained
                | Self::DeleteJobs
                | Self::DeleteJobBodies
                | Self::DeleteJobBody
                | Self::DeleteJobHistory
                | Self::CutJobHistory
        )
    }
}

/// The letters of the validations in the tables.
pub(super) const VALIDATIONS: [&str; 6] = ["N", "E", "X", "V", "J", "S"];

/// Writes changes in the open transaction of a connection. Each statement is prepared once a batch.
pub(super) struct Writer<'c> {
    connection: &'c Connection,
    fault: Option<&'c Fault>,
    statements: [Option<CachedStatement<'c>>; TEXTS.len()],
    /// Work queues whose histories have more rows to cut than one change may.
    pub(super) uncut: Vec<i32>,
}

impl<'c> Writer<'c> {
    pub(super) fn new(connection: &'c Connection, fault: Option<&'c Fault>) -> Self {
        Self { connection, fault, statements: [const { None }; TEXTS.len()], uncut: Vec::new() }
    }

    pub(super) fn run(&mut self, which: Write, params: impl Params) -> Result<usize> {
        let place = &mut self.statements[which as usize];
        let statement = match place {
            Some(statement) => statement,
            None => place.insert(self.connection.prepare_cached(TEXTS[which as usize])?),
        };
        let changed = strike(self.fault, || statement.execute(params))?;
        if changed != 1 && which.changes_one_row() {
            return Err(rusqlite::Error::StatementChangedRows(changed));
        }
        Ok(changed)
    }

    /// Writes one change.
    pub(super) fn write(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::InsertMessage(row) => return self.insert_message(row),
            Change::DeleteMessage { queuing_order } => return self.delete_message(*queuing_order),
            Change::NoteReceiveSequence { endpoint_id, receive_sequence } => {
                self.run(Write::PutReceiveSequence, [int(*endpoint_id), int(*receive_sequence)])?;
            }
            Change::PutEndpoint(row) => self.put_endpoint(row)?,
            Change::DeleteEndpoint(id) => {
                self.run(Write::DeleteEndpoint, [int(*id)])?;
                self.run(Write::DeleteReceiveSequence, [int(*id)])?;
            }
            Change::RetainMessage { queuing_order } => {
                self.run(Write::RetainMessage, [int(*queuing_order)])?;
                self.delete_message(*queuing_order)?;
            }
            Change::BuryMessage(row) => self.bury_message(row)?,
            Change::RedriveMessage { queuing_order } => {
                self.run(Write::RedriveDeadLetter, [int(*queuing_order)])?;
                self.run(Write::DeleteDeadLetter, [int(*queuing_order)])?;
            }
            Change::DeleteDeadLetter { queuing_order } => {
                self.run(Write::DeleteDeadLetter, [int(*queuing_order)])?;
            }
            Change::InsertRetained(row) => self.insert_retained(row)?,
            Change::DeleteRetained { endpoint_id } => drop(self.run(Write::DeleteRetained, [int(*endpoint_id)])?),
            Change::InsertTransmission(row) => self.insert_transmission(row)?,
            Change::DeleteTransmission { transmission_id } => {
                self.run(Write::DeleteTransmission, [int(*transmission_id)])?;
            }
            Change::SetTransmissionStatus { transmission_id, status } => {
                self.run(Write::SetTransmissionStatus, params![int(*transmission_id), &**status])?;
            }
            Change::PutMessageType(row) => self.put_message_type(row)?,
            Change::PutContract(row) => self.put_contract(row)?,
            Change::PutQueue(row) => self.put_queue(row)?,
            Change::DeleteQueue(id) => drop(self.run(Write::DeleteQueue, [id])?),
            Change::PutService(row) => self.put_service(row)?,
            Change::DeleteService(id) => {
                self.run(Write::DeleteServiceContracts, [id])?;
                self.run(Write::DeleteService, [id])?;
            }
            Change::PutPriority(row) => {
                let remote_service = match &row.remote_service {
                    AnyOr::Any => None,
                    AnyOr::Name(name) => Some(name),
                };
                self.run(
                    Write::PutPriority,
                    params![row.id, &*row.name, row.contract_id, row.local_service_id, remote_service, row.level],
                )?;
            }
            Change::DeletePriority(id) => drop(self.run(Write::DeletePriority, [id])?),
            Change::PutXmlSchemaCollection(row) => {
                self.run(Write::PutXmlSchemaCollection, params![row.id, &*row.name, &*row.schemas])?;
            }
            Change::DeleteXmlSchemaCollection(id) => drop(self.run(Write::DeleteXmlSchemaCollection, [id])?),
            Change::PutEventNotification(row) => {
                let event = row.event.word();
                let handle = row.conversation_handle.as_bytes();
                self.run(
                    Write::PutEventNotification,
                    params![row.id, &*row.name, row.queue_id, event, &*row.service, handle],
                )?;
            }
            Change::DeleteEventNotification(id) => drop(self.run(Write::DeleteEventNotification, [id])?),
            Change::PutSettings(settings) => {
                self.run(
                    Write::PutSettings,
                    params![
                        settings.broker_guid.as_bytes(),
                        settings.is_broker_enabled,
                        settings.is_honor_broker_priority_on,
                        settings.next_object_id,
                    ],
                )?;
            }
            Change::PutWorkQueue(row) => self.put_work_queue(row)?,
            Change::DeleteWorkQueue(id) => drop(self.run(Write::DeleteWorkQueue, [id])?),
            Change::PutWorkSchedule(row) => self.put_work_schedule(row)?,
            Change::DeleteWorkSchedule(id) => drop(self.run(Write::DeleteWorkSchedule, [id])?),
            Change::InsertDoneUnit { unit_id, done_at } => {
                self.run(Write::InsertDoneUnit, params![unit_id.as_bytes(), done_at.0])?;
            }
            Change::DeleteDoneUnit { unit_id } => drop(self.run(Write::DeleteDoneUnit, [unit_id.as_bytes()])?),
            Change::Work(change) => self.write_work(change)?,
        }
        Ok(())
    }

    /// Writes the marks: all numbers ever used are below them.
    pub(super) fn set_marks(&mut self, (order, endpoint, transmission): (u64, u64, u64)) -> Result<()> {
        self.run(Write::SetMarks, [int(order), int(endpoint), int(transmission)])?;
        Ok(())
    }

    fn insert_message(&mut self, row: &MessageRow) -> Result<()> {
        self.run(
            Write::InsertMessage,
            params![
                int(row.queuing_order),
                int(row.endpoint_id),
                row.delivery_class as u8,
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

    fn delete_message(&mut self, queuing_order: u64) -> Result<()> {
        self.run(Write::DeleteMessage, [int(queuing_order)])?;
        Ok(())
    }

    fn bury_message(&mut self, row: &DeadLetterRow) -> Result<()> {
        self.run(
            Write::InsertDeadLetter,
            params![
                int(row.queuing_order),
                int(row.endpoint_id),
                &*row.queue,
                &*row.service,
                &*row.far_service,
                &*row.contract,
                row.handle.0.as_bytes(),
                row.conversation_id.0.as_bytes(),
                row.group.0.as_bytes(),
                row.priority,
                row.attempts,
                row.died_at.0,
                row.reason.as_deref(),
            ],
        )?;
        self.delete_message(row.queuing_order)
    }

    fn insert_retained(&mut self, row: &MessageRow) -> Result<()> {
        self.run(
            Write::InsertRetained,
            params![
                int(row.endpoint_id),
                int(row.queuing_order),
                3,
                row.delivery_class as u8,
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

    fn insert_transmission(&mut self, row: &TransmissionRow) -> Result<()> {
        self.run(
            Write::InsertTransmission,
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

    fn put_endpoint(&mut self, row: &EndpointRow) -> Result<()> {
        self.run(
            Write::PutEndpoint,
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
                row.rollbacks,
                row.retry_at.map(|at| at.0),
            ],
        )?;
        Ok(())
    }

    fn put_message_type(&mut self, row: &MessageType) -> Result<()> {
        let [none, empty, xml, valid_xml, json, json_schema] = VALIDATIONS;
        let (letter, collection, schema) = match &row.validation {
            Validation::None => (none, None, None),
            Validation::Empty => (empty, None, None),
            Validation::WellFormedXml => (xml, None, None),
            Validation::ValidXml { schema_collection } => (valid_xml, Some(schema_collection), None),
            Validation::Json => (json, None, None),
            Validation::JsonSchema { schema } => (json_schema, None, Some(schema)),
        };
        self.run(
            Write::PutMessageType,
            params![row.id, &*row.name, row.owner, letter, collection, schema, row.is_dropped],
        )?;
        Ok(())
    }

    fn put_contract(&mut self, row: &Contract) -> Result<()> {
        self.run(Write::PutContract, params![row.id, &*row.name, row.owner, row.is_dropped])?;
        self.run(Write::DeleteContractUsages, [row.id])?;
        for (position, entry) in row.entries.iter().enumerate() {
            let by_initiator = entry.sent_by != SentBy::Target;
            let by_target = entry.sent_by != SentBy::Initiator;
            self.run(
                Write::InsertContractUsage,
                params![row.id, position as i64, entry.message_type, by_initiator, by_target],
            )?;
        }
        Ok(())
    }

    fn put_queue(&mut self, row: &Queue) -> Result<()> {
        let activation = row.activation.as_ref();
        let execute_as = activation.map(|activation: &Activation| match &activation.execute_as {
            ExecuteAs::SelfUser => ("SELF", None),
            ExecuteAs::Owner => ("OWNER", None),
            ExecuteAs::User(name) => ("USER", Some(name)),
        });
        self.run(
            Write::PutQueue,
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
                row.retry.map(|retry| retry.max_attempts),
                row.retry.map(|retry| retry.pauses.delay_ms),
                row.retry.map(|retry| retry.pauses.factor_percent),
                row.retry.map(|retry| retry.pauses.max_delay_ms),
                row.retry.map(|retry| retry.pauses.jitter_percent),
                row.retry.map(|retry| retry.then.word()),
                row.off.as_ref().and_then(|off| off.since).map(|since| since.0),
                row.off.as_ref().map(|off| off.by.word()),
                row.off.as_ref().and_then(|off| off.reason.as_deref()),
            ],
        )?;
        Ok(())
    }

    fn put_service(&mut self, row: &Service) -> Result<()> {
        self.run(Write::PutService, params![row.id, &*row.name, row.owner, row.queue_id])?;
        self.run(Write::DeleteServiceContracts, [row.id])?;
        for (position, contract_id) in row.contract_ids.iter().enumerate() {
            self.run(Write::InsertServiceContract, params![row.id, position as i64, contract_id])?;
        }
        Ok(())
    }
}

/// The subject of a change, for messages.
pub(super) fn subject(change: &Change) -> String {
    match change {
        Change::InsertMessage(row) => format!("message {}", row.queuing_order),
        Change::DeleteMessage { queuing_order } | Change::RetainMessage { queuing_order } => {
            format!("message {queuing_order}")
        }
        Change::NoteReceiveSequence { endpoint_id, .. } | Change::DeleteRetained { endpoint_id } => {
            format!("endpoint {endpoint_id}")
        }
        Change::PutEndpoint(row) => format!("endpoint {}", row.endpoint_id),
        Change::DeleteEndpoint(id) => format!("endpoint {id}"),
        Change::InsertRetained(row) => format!("retained message {}", row.queuing_order),
        Change::InsertTransmission(row) => format!("transmission {}", row.transmission_id),
        Change::DeleteTransmission { transmission_id } | Change::SetTransmissionStatus { transmission_id, .. } => {
            format!("transmission {transmission_id}")
        }
        Change::InsertDoneUnit { unit_id, .. } | Change::DeleteDoneUnit { unit_id } => format!("unit {unit_id}"),
        Change::Work(change) => change.subject(),
        _ => "a definition".to_owned(),
    }
}

/// Runs the operation, unless a requested fault strikes it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::DeliveryClass;
    use crate::id::{ConversationHandle, ConversationId, GroupId, MessageId};
    use crate::protocol::ConversationState;
    use crate::time::Timestamp;
    use uuid::Uuid;

    fn message() -> Box<MessageRow> {
        Box::new(MessageRow {
            queuing_order: 7,
            endpoint_id: 3,
            delivery_class: DeliveryClass::Sequenced,
            sequence: 0,
            message_type_id: 1,
            message_id: MessageId(Uuid::nil()),
            enqueued_at: Timestamp(0),
            body: None,
            trace: None,
        })
    }

    fn endpoint() -> Box<EndpointRow> {
        Box::new(EndpointRow {
            endpoint_id: 3,
            handle: ConversationHandle(Uuid::nil()),
            conversation_id: ConversationId(Uuid::nil()),
            group: GroupId(Uuid::nil()),
            service_id: 1,
            contract_id: 1,
            is_initiator: true,
            far_service: "b".into(),
            far_broker_instance: None,
            state: ConversationState::Conversing,
            priority: 5,
            lifetime: Timestamp(0),
            dialog_timer: None,
            security_timestamp: None,
            send_sequence: 0,
            receive_sequence: 0,
            end_dialog_sequence: None,
            is_system: false,
            is_quarantined: false,
            rollbacks: 0,
            retry_at: None,
            begun_at: Timestamp(0),
        })
    }

    fn transmission() -> Box<TransmissionRow> {
        Box::new(TransmissionRow {
            transmission_id: 9,
            endpoint_id: 3,
            sequence: 0,
            message_type_id: 1,
            is_conversation_error: false,
            is_end_of_dialog: false,
            message_id: MessageId(Uuid::nil()),
            enqueued_at: Timestamp(0),
            priority: 5,
            body: None,
            trace: None,
            status: "".into(),
        })
    }

    #[test]
    fn a_failed_write_names_the_row() {
        for (change, row) in [
            (Change::InsertMessage(message()), "message 7"),
            (Change::DeleteMessage { queuing_order: 7 }, "message 7"),
            (Change::RetainMessage { queuing_order: 7 }, "message 7"),
            (Change::InsertRetained(message()), "retained message 7"),
            (Change::DeleteRetained { endpoint_id: 3 }, "endpoint 3"),
            (Change::NoteReceiveSequence { endpoint_id: 3, receive_sequence: 1 }, "endpoint 3"),
            (Change::PutEndpoint(endpoint()), "endpoint 3"),
            (Change::DeleteEndpoint(3), "endpoint 3"),
            (Change::InsertTransmission(transmission()), "transmission 9"),
            (Change::SetTransmissionStatus { transmission_id: 9, status: "x".into() }, "transmission 9"),
            (Change::DeleteTransmission { transmission_id: 9 }, "transmission 9"),
            (
                Change::InsertDoneUnit { unit_id: Uuid::nil(), done_at: Timestamp(0) },
                "unit 00000000-0000-0000-0000-000000000000",
            ),
            (Change::DeleteDoneUnit { unit_id: Uuid::nil() }, "unit 00000000-0000-0000-0000-000000000000"),
            (Change::Work(crate::core::WorkChange::ReadyJob { job_id: 5 }), "job 5"),
            (Change::DeleteQueue(1), "a definition"),
        ] {
            assert_eq!(subject(&change), row, "{change:?}");
        }
    }
}
