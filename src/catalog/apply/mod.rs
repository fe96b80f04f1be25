//! Applying definitions to the catalog, with every refusal.
//!
//! [`apply`] is pure: it changes the catalog, or refuses and leaves it unchanged. A script is applied to a clone that
//! replaces the catalog only if every statement succeeded. Effects on live conversations are not carried out here; they
//! are returned as [`Consequence`]s.

mod broker;
mod contract;
mod message_type;
mod notification;
mod priority;
mod queue;
mod service;
mod work_queue;
mod work_schedule;

use super::body::BodyChecks;
use super::objects::{Catalog, EventNotification};
use crate::error::{Error, Result};
use crate::id::IdSource;
use crate::protocol::definition::Definition;
use crate::protocol::system::FIRST_USER_ID;
use std::sync::Arc;
use uuid::Uuid;

/// The result of one definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The rows to write or remove, in order; the written ones are read from the catalog by id.
    pub touched: Vec<Touched>,
    /// Odd but allowed settings, each text beginning with its number in brackets.
    pub warnings: Vec<String>,
    /// The effects on live conversations and readers, in order.
    pub consequences: Vec<Consequence>,
}

/// A row of the catalog that was written, new or not, or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Touched {
    /// Written; a dropped message type is written too, marked.
    MessageType(i32),
    /// Written; a dropped contract is written too, marked.
    Contract(i32),
    /// Written.
    Queue(i32),
    /// Removed.
    QueueDeleted(i32),
    /// Written, with the contracts it accepts.
    Service(i32),
    /// Removed.
    ServiceDeleted(i32),
    /// Written.
    Priority(i32),
    /// Removed.
    PriorityDeleted(i32),
    /// Written.
    XmlSchemaCollection(i32),
    /// Removed.
    XmlSchemaCollectionDeleted(i32),
    /// Written.
    EventNotification(i32),
    /// Removed.
    EventNotificationDeleted(i32),
    /// Written.
    WorkQueue(i32),
    /// Removed, with its jobs.
    WorkQueueDeleted(i32),
    /// Written.
    WorkSchedule(i32),
    /// Removed.
    WorkScheduleDeleted(i32),
    /// The broker's settings, among them the next object id.
    Settings,
}

/// An effect of a definition on conversations, messages and readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consequence {
    /// Conversations over the contract end with an error; their peers get Error -8487.
    ContractDropped {
        /// The contract; its row stays, marked as dropped.
        contract_id: i32,
    },
    /// All messages of the service move to the other queue, and receivers waiting for its conversations wake with an
    /// error.
    ServiceMoved {
        /// The service.
        service_id: i32,
        /// Where its messages are.
        from_queue_id: i32,
        /// Where they go.
        to_queue_id: i32,
    },
    /// Conversations over these contracts with the service as target get Error -8469.
    ServiceContractsDropped {
        /// The service.
        service_id: i32,
        /// The contracts it accepts no longer.
        contract_ids: Vec<i32>,
    },
    /// The service's messages are deleted, its endpoints vanish, and their peers get Error -8470.
    ServiceDropped {
        /// The service.
        service_id: i32,
        /// The queue its messages are in.
        queue_id: i32,
    },
    /// Receivers waiting in the queue wake with an error; readers end with 28085.
    QueueDropped {
        /// The queue.
        queue_id: i32,
    },
    /// The queue was enabled or disabled: waiting messages arrive, or waiting receivers are woken with 9617.
    QueueStatusChanged {
        /// The queue.
        queue_id: i32,
        /// Whether the queue accepts and delivers messages from now on.
        is_enabled: bool,
    },
    /// A work queue was created or altered: its limits may let more jobs be taken, or it was paused or resumed.
    WorkQueueAltered {
        /// The work queue.
        queue_id: i32,
    },
    /// The jobs and the history of the work queue go.
    WorkQueueDropped {
        /// The work queue.
        queue_id: i32,
    },
    /// A work schedule was created or altered: its next time is counted from now.
    WorkScheduleAltered {
        /// The work schedule.
        schedule_id: i32,
    },
    /// A work schedule fires no more.
    WorkScheduleDropped {
        /// The work schedule.
        schedule_id: i32,
    },
    /// All conversations, groups and messages vanish; no peer gets a message.
    NewBroker,
    /// Every conversation gets Error -9719, the peers Error -9720.
    ErrorBrokerConversations,
    /// Delivery was turned on or off.
    BrokerEnabledChanged {
        /// Whether messages are delivered from now on.
        is_enabled: bool,
    },
    /// The conversation of an event notification begins, held by the broker itself.
    NotificationCreated {
        /// The notification, with the handle of its conversation.
        notification: Arc<EventNotification>,
    },
    /// The conversation of an event notification ends.
    NotificationDropped {
        /// The notification as it was.
        notification_id: i32,
        /// Its conversation.
        conversation_handle: Uuid,
    },
}

/// Applies one definition, or refuses it and leaves the catalog unchanged.
///
/// `ids` supplies a new broker identity and the handles of event notifications.
///
/// # Errors
/// Service Broker's numbers for what it refuses too (3716, 8403, 8404, 8492, 8493, 9613, 9614, 9663, 9717, 9718, 9742);
/// 60001 for a name that is taken, 60002 for a name that does not exist, 60003 for a name that is not usable, 60004 for
/// an option that the statement does not have, 60005 for a value out of its range, 60006 for a schema that is not
/// usable, 60007 for broker priorities with the same criteria, 60045 for a time of a work schedule that is not usable.
pub fn apply(catalog: &mut Catalog, definition: &Definition, ids: &mut IdSource) -> Result<Applied> {
    apply_with(catalog, definition, ids, &BodyChecks::new())
}

/// The same with the schemas that [`BodyChecks::compile_schemas`] has compiled, so that none need be compiled here.
///
/// # Errors
/// Those of [`apply`].
pub fn apply_with(
    catalog: &mut Catalog,
    definition: &Definition,
    ids: &mut IdSource,
    checks: &BodyChecks,
) -> Result<Applied> {
    use Definition as D;
    match definition {
        D::CreateMessageType { name, owner, validation } => {
            message_type::create(catalog, name, owner, validation, checks)
        }
        D::AlterMessageType { name, validation } => message_type::alter(catalog, name, validation, checks),
        D::DropMessageType { name } => message_type::drop(catalog, name),
        D::CreateXmlSchemaCollection { name, schemas } => {
            message_type::create_collection(catalog, name, schemas, checks)
        }
        D::DropXmlSchemaCollection { name } => message_type::drop_collection(catalog, name),
        D::CreateContract { name, owner, entries } => contract::create(catalog, name, owner, entries),
        D::DropContract { name } => contract::drop(catalog, name),
        D::CreateQueue { name, options } => queue::create(catalog, name, options),
        D::AlterQueue { name, options } => queue::alter(catalog, name, options),
        D::DropQueue { name } => queue::drop(catalog, name),
        D::CreateEventNotification { name, queue, event, service } => {
            notification::create(catalog, name, queue, *event, service, ids)
        }
        D::DropEventNotification { name, queue } => notification::drop(catalog, name, queue),
        D::CreateService { name, owner, queue, contracts } => service::create(catalog, name, owner, queue, contracts),
        D::AlterService { name, queue, add_contracts, drop_contracts } => {
            service::alter(catalog, name, queue.as_deref(), add_contracts, drop_contracts)
        }
        D::DropService { name } => service::drop(catalog, name),
        D::CreateBrokerPriority { name, set } => priority::create(catalog, name, set),
        D::AlterBrokerPriority { name, set } => priority::alter(catalog, name, set),
        D::DropBrokerPriority { name } => priority::drop(catalog, name),
        D::CreateWorkQueue { name, options } => work_queue::create(catalog, name, options),
        D::AlterWorkQueue { name, options } => work_queue::alter(catalog, name, options),
        D::DropWorkQueue { name } => work_queue::drop(catalog, name),
        D::CreateWorkSchedule { name, queue, options } => work_schedule::create(catalog, name, queue, options),
        D::AlterWorkSchedule { name, options } => work_schedule::alter(catalog, name, options),
        D::DropWorkSchedule { name } => work_schedule::drop(catalog, name),
        D::AlterDatabase { option } => Ok(broker::alter(catalog, *option, ids)),
    }
}

impl Applied {
    /// One row written or removed, without consequences.
    fn of(touched: Touched) -> Self {
        Self { touched: vec![touched], ..Self::default() }
    }

    /// A new object: its row, and the settings that keep the next id.
    fn created(touched: Touched) -> Self {
        Self { touched: vec![touched, Touched::Settings], ..Self::default() }
    }

    /// The same with one more consequence.
    fn then(mut self, consequence: Consequence) -> Self {
        self.consequences.push(consequence);
        self
    }
}

/// Takes the next object id. Called last in a statement, after all refusals.
fn take_object_id(catalog: &mut Catalog) -> Result<i32> {
    let id = catalog.settings.next_object_id.max(FIRST_USER_ID);
    let next = id.checked_add(1).ok_or_else(|| {
        Error::out_of_range("the number of objects ever created", id, "less: no ids are left for another object")
    })?;
    catalog.settings.next_object_id = next;
    Ok(id)
}

#[cfg(test)]
mod tests;
