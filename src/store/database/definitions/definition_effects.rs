//! Definitions as calls: the rows that are written or removed, and the effects on open conversations.

use crate::catalog::apply::{Applied, Consequence, Touched};
use crate::catalog::{Catalog, fold_name};
use crate::store::database::calls::put;
use crate::store::database::link::{Arg, Call};
use crate::time::Timestamp;
use std::collections::{HashMap, HashSet};

/// The folded name of a queue, for [`row`]; empty for other objects.
pub(in crate::store::database) fn folded_name(catalog: &Catalog, touched: Touched) -> String {
    match touched {
        Touched::Queue(id) => catalog.queues.get(&id).map_or(String::new(), |queue| fold_name(&queue.name)),
        Touched::WorkQueue(id) => catalog.work_queues.get(&id).map_or(String::new(), |queue| fold_name(&queue.name)),
        Touched::WorkSchedule(id) => {
            catalog.work_schedules.get(&id).map_or(String::new(), |schedule| fold_name(&schedule.name))
        }
        _ => String::new(),
    }
}

/// The call that writes or removes a row; the times of a schedule are counted from `now`; `None` if a later statement of the same script dropped the object.
pub(in crate::store::database) fn row<'a>(
    catalog: &'a Catalog,
    touched: Touched,
    folded_name: &'a str,
    now: Timestamp,
) -> Option<Call<'a>> {
    let delete = |name, id| Call { name, args: vec![Arg::Int(id)] };
    Some(match touched {
        Touched::MessageType(id) => put::message_type(catalog.message_types.get(&id)?),
        Touched::Contract(id) => put::contract(catalog.contracts.get(&id)?),
        Touched::Queue(id) => put::queue(catalog.queues.get(&id)?, folded_name),
        Touched::QueueDeleted(id) => delete("delete_service_queue", id),
        Touched::Service(id) => put::service(catalog.services.get(&id)?),
        Touched::ServiceDeleted(id) => delete("delete_service", id),
        Touched::Priority(id) => put::priority(catalog.priorities.get(&id)?),
        Touched::PriorityDeleted(id) => delete("delete_conversation_priority", id),
        Touched::XmlSchemaCollection(id) => put::xml_schema_collection(catalog.xml_schema_collections.get(&id)?),
        Touched::XmlSchemaCollectionDeleted(id) => delete("delete_xml_schema_collection", id),
        Touched::EventNotification(id) => put::event_notification(catalog.event_notifications.get(&id)?),
        Touched::EventNotificationDeleted(id) => delete("delete_event_notification", id),
        Touched::WorkQueue(id) => put::work_queue(catalog.work_queues.get(&id)?, folded_name),
        // With its jobs. Before the rows of later statements, of which one may create a queue of that name.
        Touched::WorkQueueDeleted(id) => delete("delete_work_queue", id),
        Touched::WorkSchedule(id) => put::work_schedule(catalog.work_schedules.get(&id)?, folded_name, now),
        Touched::WorkScheduleDeleted(id) => delete("delete_work_schedule", id),
        Touched::Settings => put::settings(&catalog.settings),
    })
}

/// The call that holds receives back, for a consequence that needs all conversations of a contract or a service.
pub(in crate::store::database) fn hold(consequence: &Consequence, hold_ms: i32) -> Option<Call<'static>> {
    let (contract, service) = match consequence {
        Consequence::ContractDropped { contract_id } => (Some(*contract_id), None),
        Consequence::ServiceMoved { service_id, .. } | Consequence::ServiceDropped { service_id, .. } => {
            (None, Some(*service_id))
        }
        Consequence::NewBroker => (None, None),
        _ => return None,
    };
    let args = vec![contract.map_or(Arg::Null, Arg::Int), service.map_or(Arg::Null, Arg::Int), Arg::Int(hold_ms)];
    Some(Call { name: "hold_receives", args })
}

/// The consequences of a script in their order. The moves of a service are one, and none if it is dropped: its row, which is written
/// before all of them, says only what became of it in the end.
pub(in crate::store::database) fn gathered(applied: &[Applied]) -> Vec<Consequence> {
    let all = || applied.iter().flat_map(|applied| &applied.consequences);
    // From its first queue to its last.
    let mut moves: HashMap<i32, (i32, i32)> = HashMap::new();
    for consequence in all() {
        if let Consequence::ServiceMoved { service_id, from_queue_id, to_queue_id } = consequence {
            moves.entry(*service_id).or_insert((*from_queue_id, *to_queue_id)).1 = *to_queue_id;
        }
    }
    let is_dropped = |service: i32| {
        all().any(|it| matches!(it, Consequence::ServiceDropped { service_id, .. } if *service_id == service))
    };
    let mut moved = HashSet::new();
    all()
        .filter_map(|consequence| match consequence {
            Consequence::ServiceMoved { service_id, .. } => {
                let (from_queue_id, to_queue_id) = *moves.get(service_id)?;
                let is_first = moved.insert(*service_id) && !is_dropped(*service_id);
                is_first.then_some(Consequence::ServiceMoved { service_id: *service_id, from_queue_id, to_queue_id })
            }
            Consequence::ServiceDropped { service_id, queue_id } => {
                let queue_id = moves.get(service_id).map_or(*queue_id, |(from, _)| *from);
                Some(Consequence::ServiceDropped { service_id: *service_id, queue_id })
            }
            other => Some(other.clone()),
        })
        .collect()
}

/// The call that applies the effect of a definition on conversations; `None` if `define_end` applies it.
pub(in crate::store::database) fn follow(consequence: &Consequence) -> Option<Call<'static>> {
    let (name, args) = match consequence {
        Consequence::ContractDropped { contract_id } => ("on_contract_dropped", vec![Arg::Int(*contract_id)]),
        Consequence::ServiceMoved { service_id, from_queue_id, to_queue_id } => {
            ("on_service_moved", vec![Arg::Int(*service_id), Arg::Int(*from_queue_id), Arg::Int(*to_queue_id)])
        }
        Consequence::ServiceContractsDropped { service_id, contract_ids: ids } => {
            ("on_service_contracts_dropped", vec![Arg::Int(*service_id), put::contract_ids(ids)])
        }
        Consequence::ServiceDropped { service_id, queue_id } => {
            ("on_service_dropped", vec![Arg::Int(*service_id), Arg::Int(*queue_id)])
        }
        Consequence::QueueDropped { queue_id } => ("on_queue_dropped", vec![Arg::Int(*queue_id)]),
        Consequence::QueueStatusChanged { queue_id, is_enabled } => {
            ("on_queue_status_changed", vec![Arg::Int(*queue_id), Arg::Bool(*is_enabled)])
        }
        Consequence::NewBroker => ("on_new_broker", Vec::new()),
        Consequence::ErrorBrokerConversations => ("on_error_broker_conversations", Vec::new()),
        Consequence::WorkScheduleAltered { schedule_id } => ("on_work_schedule_altered", vec![Arg::Int(*schedule_id)]),
        Consequence::WorkScheduleDropped { .. } => return None,
        // It went with its row.
        Consequence::WorkQueueDropped { .. } => return None,
        // Every process that reads the definitions wakes its readers.
        Consequence::WorkQueueAltered { .. } => return None,
        // `define_end` checks waiting messages again, after all definitions are written.
        Consequence::BrokerEnabledChanged { .. } => return None,
        Consequence::NotificationCreated { notification } => {
            ("on_notification_created", vec![Arg::Int(notification.id)])
        }
        Consequence::NotificationDropped { conversation_handle, .. } => {
            ("on_notification_dropped", vec![Arg::Uuid(*conversation_handle)])
        }
    };
    Some(Call { name, args })
}
