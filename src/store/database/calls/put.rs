//! The rows of definitions as calls of `put_*`.

use crate::catalog::{
    BrokerSettings, Catalog, Contract, EventNotification, MessageType, Priority, Queue, Service, WorkQueue,
    WorkSchedule, XmlSchemaCollection,
};
use crate::protocol::definition::{AnyOr, ExecuteAs, RetryPolicy, SentBy, Validation, WorkNumber};
use crate::store::database::link::{Arg, Call, Column};
use crate::time::Timestamp;

/// The built-in definitions of every broker, and its settings.
pub fn builtins(catalog: &Catalog) -> Vec<Call<'_>> {
    let mut calls: Vec<Call<'_>> = catalog.message_types.values().map(|row| message_type(row)).collect();
    calls.extend(catalog.contracts.values().map(|row| contract(row)));
    calls.extend(catalog.services.values().map(|row| service(row)));
    calls.push(settings(&catalog.settings));
    calls
}

/// `put_message_type`
pub fn message_type(row: &MessageType) -> Call<'_> {
    let (letter, collection, schema) = match &row.validation {
        Validation::None => ("N", None, None),
        Validation::Empty => ("E", None, None),
        Validation::WellFormedXml => ("X", None, None),
        Validation::ValidXml { schema_collection } => ("V", Some(schema_collection.as_str()), None),
        Validation::Json => ("J", None, None),
        Validation::JsonSchema { schema } => ("S", None, Some(schema.as_str())),
    };
    Call {
        name: "put_message_type",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            text(row.owner.as_deref()),
            Arg::Text(letter),
            text(collection),
            text(schema),
            Arg::Bool(row.is_dropped),
        ],
    }
}

/// `put_service_contract`
pub fn contract(row: &Contract) -> Call<'_> {
    let sent_by = |who: SentBy| row.entries.iter().map(move |entry| Some(i32::from(entry.sent_by != who))).collect();
    Call {
        name: "put_service_contract",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            text(row.owner.as_deref()),
            Arg::Bool(row.is_dropped),
            Arg::Rows {
                type_name: "usage_rows",
                columns: vec![
                    Column::Text(row.entries.iter().map(|entry| Some(entry.message_type.as_str())).collect()),
                    Column::Int(sent_by(SentBy::Target)),
                    Column::Int(sent_by(SentBy::Initiator)),
                ],
            },
        ],
    }
}

/// `put_service_queue`; `folded_name` is the name as it is compared.
pub fn queue<'a>(row: &'a Queue, folded_name: &'a str) -> Call<'a> {
    let activation = row.activation.as_ref();
    let (execute_as, user) = match activation.map(|activation| &activation.execute_as) {
        None => (Arg::Null, Arg::Null),
        Some(ExecuteAs::SelfUser) => (Arg::Text("SELF"), Arg::Null),
        Some(ExecuteAs::Owner) => (Arg::Text("OWNER"), Arg::Null),
        Some(ExecuteAs::User(name)) => (Arg::Text("USER"), Arg::Text(name)),
    };
    let retry = row.retry.as_ref();
    let number = |get: fn(&RetryPolicy) -> i64| retry.map_or(Arg::Null, |retry| Arg::BigInt(get(retry)));
    Call {
        name: "put_service_queue",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            Arg::Text(folded_name),
            Arg::Bool(row.is_receive_enabled),
            Arg::Bool(row.is_enqueue_enabled),
            Arg::Bool(row.is_retention_enabled),
            Arg::Bool(row.is_poison_message_handling_enabled),
            Arg::Bool(row.is_poison_quarantine_enabled),
            activation.map_or(Arg::Null, |activation| Arg::Bool(activation.is_enabled)),
            activation.map_or(Arg::Null, |activation| Arg::Text(&activation.procedure_name)),
            activation.map_or(Arg::Null, |activation| Arg::Int(activation.max_queue_readers.into())),
            execute_as,
            user,
            retry.map_or(Arg::Null, |retry| Arg::Int(retry.max_attempts.into())),
            number(|retry| retry.pauses.delay_ms),
            number(|retry| retry.pauses.factor_percent),
            number(|retry| retry.pauses.max_delay_ms),
            number(|retry| retry.pauses.jitter_percent),
            retry.map_or(Arg::Null, |retry| Arg::Text(retry.then.word())),
            row.off.as_ref().and_then(|off| off.since).map_or(Arg::Null, Arg::Time),
            row.off.as_ref().map_or(Arg::Null, |off| Arg::Text(off.by.word())),
            text(row.off.as_ref().and_then(|off| off.reason.as_deref())),
        ],
    }
}

/// `put_work_queue`; `folded_name` is the name as it is compared.
pub fn work_queue<'a>(row: &'a WorkQueue, folded_name: &'a str) -> Call<'a> {
    let settings = &row.settings;
    let mut args = vec![
        Arg::Int(row.id),
        Arg::Text(&row.name),
        Arg::Text(folded_name),
        Arg::Bool(settings.is_enabled),
        Arg::Text(settings.order.word()),
        Arg::Bool(settings.has_history),
        Arg::Text(settings.take_by.word()),
    ];
    args.extend(WorkNumber::ALL.iter().map(|number| Arg::BigInt(settings.get(*number))));
    Call { name: "put_work_queue", args }
}

/// `put_work_schedule`, which fires next at the first of its times after `now`.
pub fn work_schedule<'a>(row: &'a WorkSchedule, folded_name: &'a str, now: Timestamp) -> Call<'a> {
    // Definitions were checked.
    let next_at = row.timetable().ok().filter(|_| row.is_enabled).and_then(|timetable| timetable.next(now));
    Call {
        name: "put_work_schedule",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            Arg::Text(folded_name),
            Arg::Int(row.queue_id),
            Arg::Bool(row.is_enabled),
            Arg::Text(&row.cron),
            Arg::Text(&row.time_zone),
            Arg::Text(row.missed.word()),
            Arg::Text(&row.job_type),
            text(row.key.as_deref()),
            Arg::Int(row.level.into()),
            Arg::Text(&row.body),
            next_at.map_or(Arg::Null, Arg::Time),
        ],
    }
}

/// `put_service`
pub fn service(row: &Service) -> Call<'_> {
    Call {
        name: "put_service",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            text(row.owner.as_deref()),
            Arg::Int(row.queue_id),
            contract_ids(&row.contract_ids),
        ],
    }
}

/// `put_conversation_priority`
pub fn priority(row: &Priority) -> Call<'_> {
    Call {
        name: "put_conversation_priority",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            row.contract_id.map_or(Arg::Null, Arg::Int),
            row.local_service_id.map_or(Arg::Null, Arg::Int),
            match &row.remote_service {
                AnyOr::Any => Arg::Null,
                AnyOr::Name(name) => Arg::Text(name),
            },
            Arg::Int(row.level.into()),
        ],
    }
}

/// `put_xml_schema_collection`
pub fn xml_schema_collection(row: &XmlSchemaCollection) -> Call<'_> {
    Call {
        name: "put_xml_schema_collection",
        args: vec![Arg::Int(row.id), Arg::Text(&row.name), Arg::Text(&row.schemas)],
    }
}

/// `put_event_notification`
pub fn event_notification(row: &EventNotification) -> Call<'_> {
    Call {
        name: "put_event_notification",
        args: vec![
            Arg::Int(row.id),
            Arg::Text(&row.name),
            Arg::Int(row.queue_id),
            Arg::Text(row.event.word()),
            Arg::Text(&row.service),
            Arg::Uuid(row.conversation_handle),
        ],
    }
}

/// `put_settings`
pub fn settings(row: &BrokerSettings) -> Call<'static> {
    Call {
        name: "put_settings",
        args: vec![
            Arg::Uuid(row.broker_guid),
            Arg::Bool(row.is_broker_enabled),
            Arg::Bool(row.is_honor_broker_priority_on),
            Arg::Int(row.next_object_id),
        ],
    }
}

/// `contract_id_rows`
pub fn contract_ids(ids: &[i32]) -> Arg<'static> {
    Arg::Rows { type_name: "contract_id_rows", columns: vec![Column::Int(ids.iter().copied().map(Some).collect())] }
}

fn text(value: Option<&str>) -> Arg<'_> {
    value.map_or(Arg::Null, Arg::Text)
}
