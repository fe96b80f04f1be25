//! From definitions back to text.

use crate::catalog::builtin::is_system_id;
use crate::catalog::objects::{Activation, Catalog, Priority, Queue, Service, WorkSchedule};
use crate::protocol::definition::{
    ActivationChange, ActivationOptions, AnyOr, BrokerOption, ContractEntry, Definition, ExecuteAs, Missed,
    PriorityOptions, QueueOptions, RetryChange, Validation, WorkOption, WorkScheduleOptions,
};
use std::sync::Arc;

/// The script of all user-defined objects: applied to an empty broker, it gives the same definitions.
///
/// The ids and the broker's identity are not in it, as no statement can name them.
pub fn render(catalog: &Catalog) -> String {
    definitions(catalog).iter().map(|definition| render_definition(definition) + "\n").collect()
}

/// All user-defined objects, each after the objects it refers to, kind by kind in order of creation.
pub fn definitions(catalog: &Catalog) -> Vec<Definition> {
    let mut all = Vec::new();
    all.extend(catalog.xml_schema_collections.values().map(|collection| Definition::CreateXmlSchemaCollection {
        name: collection.name.to_string(),
        schemas: collection.schemas.to_string(),
    }));
    let types = catalog.message_types.values().filter(|row| !row.is_dropped && !is_system_id(row.id));
    all.extend(types.map(|row| Definition::CreateMessageType {
        name: row.name.to_string(),
        owner: row.owner.clone(),
        validation: row.validation.clone(),
    }));
    let contracts = catalog.contracts.values().filter(|row| !row.is_dropped && !is_system_id(row.id));
    all.extend(contracts.map(|row| Definition::CreateContract {
        name: row.name.to_string(),
        owner: row.owner.clone(),
        entries: row.entries.clone(),
    }));
    all.extend(catalog.queues.values().map(|row| create_queue(row)));
    let services = catalog.services.values().filter(|row| !is_system_id(row.id));
    all.extend(services.map(|row| create_service(catalog, row)));
    all.extend(catalog.priorities.values().map(|row| create_priority(catalog, row)));
    all.extend(catalog.event_notifications.values().map(|row| Definition::CreateEventNotification {
        name: row.name.to_string(),
        queue: name_of(catalog.queues.get(&row.queue_id).map(|queue| &queue.name)),
        event: row.event,
        service: row.service.to_string(),
    }));
    all.extend(
        catalog
            .work_queues
            .values()
            .map(|row| Definition::CreateWorkQueue { name: row.name.to_string(), options: row.settings.options() }),
    );
    all.extend(catalog.work_schedules.values().map(|row| create_work_schedule(catalog, row)));
    if !catalog.settings.is_broker_enabled {
        all.push(Definition::AlterDatabase { option: BrokerOption::DisableBroker });
    }
    if catalog.settings.is_honor_broker_priority_on {
        all.push(Definition::AlterDatabase { option: BrokerOption::HonorBrokerPriority(true) });
    }
    all
}

/// A reference to an object prevents its drop, so there is always a name.
fn name_of(name: Option<&Arc<str>>) -> String {
    name.map(|name| name.to_string()).unwrap_or_default()
}

fn create_queue(row: &Queue) -> Definition {
    // Settings at their defaults are left out, so that a plain queue reads plainly.
    let options = QueueOptions {
        status: (!row.is_receive_enabled).then_some(false),
        reason: row.off.as_ref().and_then(|off| off.reason.as_deref()).map(str::to_owned),
        retention: row.is_retention_enabled.then_some(true),
        poison_message_handling: (!row.is_poison_message_handling_enabled).then_some(false),
        poison_quarantine: row.is_poison_quarantine_enabled.then_some(true),
        retry: row.retry.map(|policy| RetryChange::Set(policy.to_options())),
        activation: row.activation.as_ref().map(|activation| {
            let Activation { is_enabled, procedure_name, max_queue_readers, execute_as } = activation;
            ActivationChange::Set(ActivationOptions {
                status: Some(*is_enabled),
                procedure_name: Some(procedure_name.to_string()),
                max_queue_readers: Some(i64::from(*max_queue_readers)),
                execute_as: Some(execute_as.clone()),
            })
        }),
    };
    Definition::CreateQueue { name: row.name.to_string(), options }
}

fn create_service(catalog: &Catalog, row: &Service) -> Definition {
    let contract = |id| name_of(catalog.contracts.get(id).map(|contract| &contract.name));
    Definition::CreateService {
        name: row.name.to_string(),
        owner: row.owner.clone(),
        queue: name_of(catalog.queues.get(&row.queue_id).map(|queue| &queue.name)),
        contracts: row.contract_ids.iter().map(contract).collect(),
    }
}

fn create_priority(catalog: &Catalog, row: &Priority) -> Definition {
    let contract = |id| name_of(catalog.contracts.get(&id).map(|contract| &contract.name));
    let service = |id| name_of(catalog.services.get(&id).map(|service| &service.name));
    let set = PriorityOptions {
        contract: Some(row.contract_id.map_or(AnyOr::Any, |id| AnyOr::Name(contract(id)))),
        local_service: Some(row.local_service_id.map_or(AnyOr::Any, |id| AnyOr::Name(service(id)))),
        remote_service: Some(row.remote_service.clone()),
        level: Some(i64::from(row.level)),
    };
    Definition::CreateBrokerPriority { name: row.name.to_string(), set }
}

fn create_work_schedule(catalog: &Catalog, row: &WorkSchedule) -> Definition {
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    let options = WorkScheduleOptions {
        cron: Some(row.cron.to_string()),
        time_zone: text(&row.time_zone).filter(|zone| zone != "UTC"),
        missed: (row.missed != Missed::default()).then_some(row.missed),
        job_type: text(&row.job_type),
        job_key: row.key.as_deref().and_then(text),
        level: (row.level != 5).then_some(row.level.into()),
        body: text(&row.body),
        status: (!row.is_enabled).then_some(false),
    };
    let queue = name_of(catalog.work_queues.get(&row.queue_id).map(|queue| &queue.name));
    Definition::CreateWorkSchedule { name: row.name.to_string(), queue, options }
}

/// One statement with its `;`, names in brackets.
pub fn render_definition(definition: &Definition) -> String {
    use Definition as D;
    match definition {
        D::CreateMessageType { name, owner, validation } => {
            format!(
                "CREATE MESSAGE TYPE {}{} VALIDATION = {};",
                id(name),
                authorization(owner),
                render_validation(validation)
            )
        }
        D::AlterMessageType { name, validation } => {
            format!("ALTER MESSAGE TYPE {} VALIDATION = {};", id(name), render_validation(validation))
        }
        D::DropMessageType { name } => format!("DROP MESSAGE TYPE {};", id(name)),
        D::CreateContract { name, owner, entries } => {
            format!("CREATE CONTRACT {}{} {};", id(name), authorization(owner), render_entries(entries))
        }
        D::DropContract { name } => format!("DROP CONTRACT {};", id(name)),
        D::CreateQueue { name, options } => {
            let options = queue_options(options);
            let with = if options.is_empty() { "" } else { " WITH " };
            format!("CREATE QUEUE {}{with}{options};", id(name))
        }
        D::AlterQueue { name, options } if *options == QueueOptions::default() => {
            format!("ALTER QUEUE {} REORGANIZE;", id(name))
        }
        D::AlterQueue { name, options } => format!("ALTER QUEUE {} WITH {};", id(name), queue_options(options)),
        D::DropQueue { name } => format!("DROP QUEUE {};", id(name)),
        D::CreateService { name, owner, queue, contracts } => {
            let list = join(contracts.iter().map(|contract| id(contract)));
            let list = if list.is_empty() { list } else { format!(" ({list})") };
            format!("CREATE SERVICE {}{} ON QUEUE {}{list};", id(name), authorization(owner), id(queue))
        }
        D::AlterService { name, queue, add_contracts, drop_contracts } => {
            let queue = queue.as_ref().map(|queue| format!(" ON QUEUE {}", id(queue))).unwrap_or_default();
            let added = add_contracts.iter().map(|contract| format!("ADD CONTRACT {}", id(contract)));
            let dropped = drop_contracts.iter().map(|contract| format!("DROP CONTRACT {}", id(contract)));
            let list = join(added.chain(dropped));
            let list = if list.is_empty() { list } else { format!(" ({list})") };
            format!("ALTER SERVICE {}{queue}{list};", id(name))
        }
        D::DropService { name } => format!("DROP SERVICE {};", id(name)),
        D::CreateBrokerPriority { name, set } if *set == PriorityOptions::default() => {
            format!("CREATE BROKER PRIORITY {} FOR CONVERSATION;", id(name))
        }
        D::CreateBrokerPriority { name, set } => {
            format!("CREATE BROKER PRIORITY {} FOR CONVERSATION SET ({});", id(name), priority_options(set))
        }
        D::AlterBrokerPriority { name, set } => {
            format!("ALTER BROKER PRIORITY {} FOR CONVERSATION SET ({});", id(name), priority_options(set))
        }
        D::DropBrokerPriority { name } => format!("DROP BROKER PRIORITY {};", id(name)),
        D::CreateXmlSchemaCollection { name, schemas } => {
            format!("CREATE XML SCHEMA COLLECTION {} AS {};", id(name), text(schemas))
        }
        D::DropXmlSchemaCollection { name } => format!("DROP XML SCHEMA COLLECTION {};", id(name)),
        D::CreateEventNotification { name, queue, event, service } => {
            format!(
                "CREATE EVENT NOTIFICATION {} ON QUEUE {} FOR {} TO SERVICE {}, 'current database';",
                id(name),
                id(queue),
                event.word(),
                text(service)
            )
        }
        D::DropEventNotification { name, queue } => {
            format!("DROP EVENT NOTIFICATION {} ON QUEUE {};", id(name), id(queue))
        }
        D::CreateWorkQueue { name, options } => {
            let with = if options.is_empty() { "" } else { " WITH " };
            format!("CREATE WORK QUEUE {}{with}{};", id(name), work_options(options))
        }
        D::AlterWorkQueue { name, options } => {
            format!("ALTER WORK QUEUE {} WITH {};", id(name), work_options(options))
        }
        D::DropWorkQueue { name } => format!("DROP WORK QUEUE {};", id(name)),
        D::CreateWorkSchedule { name, queue, options } => {
            format!("CREATE WORK SCHEDULE {} ON WORK QUEUE {} WITH {};", id(name), id(queue), schedule_options(options))
        }
        D::AlterWorkSchedule { name, options } => {
            format!("ALTER WORK SCHEDULE {} WITH {};", id(name), schedule_options(options))
        }
        D::DropWorkSchedule { name } => format!("DROP WORK SCHEDULE {};", id(name)),
        D::AlterDatabase { option } => {
            let option = match option {
                BrokerOption::EnableBroker => "ENABLE_BROKER",
                BrokerOption::DisableBroker => "DISABLE_BROKER",
                BrokerOption::NewBroker => "NEW_BROKER",
                BrokerOption::ErrorBrokerConversations => "ERROR_BROKER_CONVERSATIONS",
                BrokerOption::HonorBrokerPriority(true) => "HONOR_BROKER_PRIORITY ON",
                BrokerOption::HonorBrokerPriority(false) => "HONOR_BROKER_PRIORITY OFF",
            };
            format!("ALTER DATABASE CURRENT SET {option};")
        }
    }
}

fn id(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

fn text(value: &str) -> String {
    let prefix = if value.is_ascii() { "" } else { "N" };
    format!("{prefix}'{}'", value.replace('\'', "''"))
}

fn join(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn authorization(owner: &Option<String>) -> String {
    owner.as_ref().map(|owner| format!(" AUTHORIZATION {}", id(owner))).unwrap_or_default()
}

/// The message types of a contract, in parentheses.
pub(crate) fn render_entries(entries: &[ContractEntry]) -> String {
    let entry = |entry: &ContractEntry| format!("{} SENT BY {}", id(&entry.message_type), entry.sent_by.word());
    format!("({})", join(entries.iter().map(entry)))
}

/// What follows `VALIDATION =`.
pub(crate) fn render_validation(validation: &Validation) -> String {
    match validation {
        Validation::None => "NONE".to_owned(),
        Validation::Empty => "EMPTY".to_owned(),
        Validation::WellFormedXml => "WELL_FORMED_XML".to_owned(),
        Validation::ValidXml { schema_collection } => {
            format!("VALID_XML WITH SCHEMA COLLECTION {}", id(schema_collection))
        }
        Validation::Json => "JSON".to_owned(),
        Validation::JsonSchema { schema } => format!("JSON SCHEMA {}", text(schema)),
    }
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "ON" } else { "OFF" }
}

fn work_options(options: &[WorkOption]) -> String {
    join(options.iter().map(|option| match option {
        WorkOption::Status(is_on) => format!("STATUS = {}", on_off(*is_on)),
        WorkOption::Order(order) => format!("ORDER = {}", order.word()),
        WorkOption::History(is_on) => format!("HISTORY = {}", on_off(*is_on)),
        WorkOption::TakeBy(technique) => format!("TAKE_BY = {}", technique.word()),
        WorkOption::Number(number, value) => format!("{} = {value}", number.word()),
    }))
}

fn schedule_options(options: &WorkScheduleOptions) -> String {
    let WorkScheduleOptions { cron, time_zone, missed, job_type, job_key, level, body, status } = options;
    let texts = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} = {}", text(value)));
    let all = [
        texts("CRON", cron),
        texts("TIME_ZONE", time_zone),
        missed.map(|missed| format!("MISSED = {}", missed.word())),
        texts("JOB_TYPE", job_type),
        texts("JOB_KEY", job_key),
        level.map(|level| format!("LEVEL = {level}")),
        texts("BODY", body),
        status.map(|is_on| format!("STATUS = {}", on_off(is_on))),
    ];
    join(all.into_iter().flatten())
}

fn queue_options(options: &QueueOptions) -> String {
    let QueueOptions { status, retention, poison_message_handling, poison_quarantine, retry, activation, reason } =
        options;
    let switch = |name: &str, value: &Option<bool>| value.map(|is_on| format!("{name} = {}", on_off(is_on)));
    let poison = [switch("STATUS", poison_message_handling), switch("QUARANTINE", poison_quarantine)];
    let poison = join(poison.into_iter().flatten());
    let poison = (!poison.is_empty()).then(|| format!("POISON_MESSAGE_HANDLING ({poison})"));
    let activation = activation.as_ref().map(|change| match change {
        ActivationChange::Drop => "ACTIVATION (DROP)".to_owned(),
        ActivationChange::Set(set) => {
            let parts = [
                switch("STATUS", &set.status),
                set.procedure_name.as_ref().map(|name| format!("PROCEDURE_NAME = {}", id(name))),
                set.max_queue_readers.map(|limit| format!("MAX_QUEUE_READERS = {limit}")),
                set.execute_as.as_ref().map(|user| match user {
                    ExecuteAs::SelfUser => "EXECUTE AS SELF".to_owned(),
                    ExecuteAs::Owner => "EXECUTE AS OWNER".to_owned(),
                    ExecuteAs::User(user) => format!("EXECUTE AS {}", text(user)),
                }),
            ];
            format!("ACTIVATION ({})", join(parts.into_iter().flatten()))
        }
    });
    let retry = retry.as_ref().map(|change| match change {
        RetryChange::Drop => "RETRY (DROP)".to_owned(),
        RetryChange::Set(set) => {
            let number = |name: &str, value: Option<i64>| value.map(|value| format!("{name} = {value}"));
            let parts = [
                number("MAX_ATTEMPTS", set.max_attempts),
                number("DELAY_MS", set.delay_ms),
                number("FACTOR_PERCENT", set.factor_percent),
                number("MAX_DELAY_MS", set.max_delay_ms),
                number("JITTER_PERCENT", set.jitter_percent),
                set.then.map(|then| format!("THEN = {}", then.word())),
            ];
            format!("RETRY ({})", join(parts.into_iter().flatten()))
        }
    });
    let reason = reason.as_ref().map(|reason| format!("REASON = {}", text(reason)));
    let all = [switch("STATUS", status), reason, switch("RETENTION", retention), activation, poison, retry];
    join(all.into_iter().flatten())
}

fn priority_options(set: &PriorityOptions) -> String {
    let any_or = |value: &Option<AnyOr>, option: &str, write: fn(&str) -> String| {
        value.as_ref().map(|value| match value {
            AnyOr::Any => format!("{option} = ANY"),
            AnyOr::Name(name) => format!("{option} = {}", write(name)),
        })
    };
    let all = [
        any_or(&set.contract, "CONTRACT_NAME", id),
        any_or(&set.local_service, "LOCAL_SERVICE_NAME", id),
        any_or(&set.remote_service, "REMOTE_SERVICE_NAME", text),
        set.level.map(|level| format!("PRIORITY_LEVEL = {level}")),
    ];
    join(all.into_iter().flatten())
}
