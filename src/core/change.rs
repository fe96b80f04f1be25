//! Row changes: the writes that bring the tables up to the state in memory.

use super::work::WorkChange;
use crate::catalog::{
    BrokerSettings, Contract, EventNotification, MessageType, Priority, Queue, Service, WorkQueue, WorkSchedule,
    XmlSchemaCollection,
};
use crate::id::{ConversationHandle, ConversationId, GroupId, MessageId};
use crate::protocol::{Body, ConversationState};
use crate::time::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// One row to write. Changes are applied in order, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Writes a message type, new or not.
    PutMessageType(Arc<MessageType>),
    /// Writes a contract with its entries, new or not.
    PutContract(Arc<Contract>),
    /// Writes a queue, new or not.
    PutQueue(Arc<Queue>),
    /// Removes a queue.
    DeleteQueue(i32),
    /// Writes a service with its contracts, new or not.
    PutService(Arc<Service>),
    /// Removes a service.
    DeleteService(i32),
    /// Writes a broker priority, new or not.
    PutPriority(Arc<Priority>),
    /// Removes a broker priority.
    DeletePriority(i32),
    /// Writes an XML schema collection.
    PutXmlSchemaCollection(Arc<XmlSchemaCollection>),
    /// Removes an XML schema collection.
    DeleteXmlSchemaCollection(i32),
    /// Writes an event notification.
    PutEventNotification(Arc<EventNotification>),
    /// Removes an event notification.
    DeleteEventNotification(i32),
    /// Writes the broker's settings.
    PutSettings(BrokerSettings),
    /// Writes that a unit of this id has happened.
    InsertDoneUnit {
        /// The caller's id.
        unit_id: Uuid,
        /// When it was committed.
        done_at: Timestamp,
    },
    /// Removes an old id.
    DeleteDoneUnit {
        /// The caller's id.
        unit_id: Uuid,
    },
    /// Writes an endpoint, new or not, all columns.
    PutEndpoint(Box<EndpointRow>),
    /// Removes an endpoint.
    DeleteEndpoint(u64),
    /// Records how far an endpoint has received, because its last row is about to go.
    /// Its true `receive_sequence` is the largest of this, the endpoint's column, and the rows' numbers plus one.
    NoteReceiveSequence {
        /// The endpoint.
        endpoint_id: u64,
        /// The next number it will receive.
        receive_sequence: u64,
    },
    /// Writes a message that arrived in a queue.
    InsertMessage(Box<MessageRow>),
    /// Removes a message.
    DeleteMessage {
        /// Its row.
        queuing_order: u64,
    },
    /// Moves a message out of its queue, into the dead letters.
    BuryMessage(Box<DeadLetterRow>),
    /// Moves a dead letter back into its queue.
    RedriveMessage {
        /// Its row.
        queuing_order: u64,
    },
    /// Removes a dead letter.
    DeleteDeadLetter {
        /// Its row.
        queuing_order: u64,
    },
    /// Keeps a received message for its conversation's life, with status 0 (RETENTION).
    RetainMessage {
        /// Its row.
        queuing_order: u64,
    },
    /// Keeps a copy of a sent message, with status 3 (RETENTION).
    InsertRetained(Box<MessageRow>),
    /// Removes all retained rows of an endpoint.
    DeleteRetained {
        /// The endpoint.
        endpoint_id: u64,
    },
    /// Writes a message that cannot be delivered yet.
    InsertTransmission(Box<TransmissionRow>),
    /// Removes a message from the transmission queue.
    DeleteTransmission {
        /// Its row.
        transmission_id: u64,
    },
    /// Sets the reason why a message of the transmission queue still waits.
    SetTransmissionStatus {
        /// Its row.
        transmission_id: u64,
        /// The text of `transmission_status`.
        status: Arc<str>,
    },
    /// Writes a work queue, new or not.
    PutWorkQueue(Arc<WorkQueue>),
    /// Removes a work queue.
    DeleteWorkQueue(i32),
    /// Writes a work schedule, new or not; its times are a row change of their own.
    PutWorkSchedule(Arc<WorkSchedule>),
    /// Removes a work schedule.
    DeleteWorkSchedule(i32),
    /// Writes a row of a work queue.
    Work(WorkChange),
}

/// The class of a message row in a queue: RECEIVE gives timers first, then Errors, then messages in sequence. Column `stored` of SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DeliveryClass {
    /// A message of the application or an EndDialog: in sequence.
    Sequenced = 0,
    /// An Error: before all sequenced messages.
    Error = 1,
    /// A DialogTimer: before all other rows.
    Timer = 2,
}

/// A row of `conversation_endpoint`.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointRow {
    /// Ascends; the key.
    pub endpoint_id: u64,
    /// Names this side.
    pub handle: ConversationHandle,
    /// Names the conversation.
    pub conversation_id: ConversationId,
    /// The group on this side.
    pub group: GroupId,
    /// The local service.
    pub service_id: i32,
    /// The contract.
    pub contract_id: i32,
    /// Whether this side began the conversation.
    pub is_initiator: bool,
    /// The name of the other side's service.
    pub far_service: Arc<str>,
    /// The broker of the other side, if named or learned.
    pub far_broker_instance: Option<Arc<str>>,
    /// The state of the endpoint.
    pub state: ConversationState,
    /// 1 to 10.
    pub priority: u8,
    /// When the conversation expires.
    pub lifetime: Timestamp,
    /// When the timer fires.
    pub dialog_timer: Option<Timestamp>,
    /// The earliest removal of a closed target endpoint; `None` is unset.
    pub security_timestamp: Option<Timestamp>,
    /// The next number to send.
    pub send_sequence: u64,
    /// The next number to receive.
    pub receive_sequence: u64,
    /// The number of the EndDialog this side sent.
    pub end_dialog_sequence: Option<u64>,
    /// Whether the broker itself holds this side (event notifications).
    pub is_system: bool,
    /// Whether poison handling quarantined the group (ours).
    pub is_quarantined: bool,
    /// Rollbacks in a row that gave back messages of the group (ours).
    pub rollbacks: u16,
    /// When the quarantine ends by itself (ours).
    pub retry_at: Option<Timestamp>,
    /// When it was begun here.
    pub begun_at: Timestamp,
}

/// A row of `queue_message` or of `retained_message`.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// Arrival order; the key.
    pub queuing_order: u64,
    /// The endpoint it arrived at.
    pub endpoint_id: u64,
    /// Its class.
    pub delivery_class: DeliveryClass,
    /// The sequence number in the conversation; 0 for a row that is not sequenced.
    pub sequence: u64,
    /// Its type.
    pub message_type_id: i32,
    /// Names it.
    pub message_id: MessageId,
    /// When it arrived.
    pub enqueued_at: Timestamp,
    /// The body.
    pub body: Body,
    /// Trace context.
    pub trace: Option<Arc<str>>,
}

/// What a row of `dead_letter` has besides its message. Names and ids are those of the moment of its death: the objects may be
/// gone when someone reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetterRow {
    /// The message's row.
    pub queuing_order: u64,
    /// The endpoint it arrived at.
    pub endpoint_id: u64,
    /// The class of the message.
    pub delivery_class: DeliveryClass,
    /// Its number in the conversation; 0 for a system message.
    pub sequence: u64,
    /// The queue it was in.
    pub queue: Arc<str>,
    /// The service that received it.
    pub service: Arc<str>,
    /// The service that sent it.
    pub far_service: Arc<str>,
    /// The contract.
    pub contract: Arc<str>,
    /// The side that received it.
    pub handle: ConversationHandle,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The group on this side.
    pub group: GroupId,
    /// 1 to 10.
    pub priority: u8,
    /// How often it was received.
    pub attempts: u16,
    /// When it died.
    pub died_at: Timestamp,
    /// Why the last attempt failed, if its caller said so.
    pub reason: Option<Arc<str>>,
}

/// A row of `transmission`.
#[derive(Debug, Clone, PartialEq)]
pub struct TransmissionRow {
    /// Ascends; the key.
    pub transmission_id: u64,
    /// The sending endpoint.
    pub endpoint_id: u64,
    /// Its number in the conversation.
    pub sequence: u64,
    /// The type; for an EndDialog or an Error that of the system.
    pub message_type_id: i32,
    /// Whether it is an Error of the application.
    pub is_conversation_error: bool,
    /// Whether it is an EndDialog.
    pub is_end_of_dialog: bool,
    /// Names it.
    pub message_id: MessageId,
    /// When it was sent.
    pub enqueued_at: Timestamp,
    /// The level it is sent with.
    pub priority: u8,
    /// The body.
    pub body: Body,
    /// Trace context.
    pub trace: Option<Arc<str>>,
    /// Why it waits.
    pub status: Arc<str>,
}
