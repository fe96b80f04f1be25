//! The definitions of a list that are still to be made, and those that contradict existing ones.

use super::shown::Shown;
use crate::catalog::ddl::render_definition;
use crate::catalog::{Activation, BrokerSettings, Catalog, Priority, Queue, WorkQueue, WorkSchedule, same_name};
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{
    ActivationChange, ActivationOptions, AnyOr, BrokerOption, Definition, PriorityOptions, QueueOptions, RetryChange,
    RetryOptions, RetryPolicy, Validation, WorkOption, WorkScheduleOptions,
};

/// The definitions of a list of creations that the catalog does not have yet. A STATUS is not compared: operators and poison handling turn
/// that, and a start of the application must not fail because of it ([`turned`] names such objects).
///
/// # Errors
/// 60001 an object of that name exists but differs, 60026 a definition is no creation, nor a setting of the broker that stands so already.
pub(crate) fn missing(catalog: &Catalog, wanted: &[Definition]) -> Result<Vec<Definition>> {
    let mut rest = Vec::new();
    for (index, definition) in wanted.iter().enumerate() {
        if !is_there(catalog, definition).map_err(|error| error.in_statement(index))? {
            rest.push(definition.clone());
        }
    }
    Ok(rest)
}

/// A warning for each object of these creations whose STATUS is not as asked for. A creation without one asks for ON, as CREATE does.
pub(crate) fn turned(catalog: &Catalog, wanted: &[Definition]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut compare = |what: &str, name: &str, found: bool, wanted: Option<bool>| {
        let wanted = wanted.unwrap_or(true);
        if wanted != found {
            let (found, wanted) = (found.shown(), wanted.shown());
            warnings.push(format!(
                "{what} '{name}' has STATUS = {found}, not {wanted}; ensure leaves it so, as an operator or poison handling may have set it; \
                 ALTER changes it"
            ));
        }
    };
    for definition in wanted {
        match definition {
            Definition::CreateQueue { name, options } => {
                let Some(found) = catalog.queue(name) else { continue };
                compare("queue", &found.name, found.is_enabled(), options.status);
                if let (Some(found_activation), Some(ActivationChange::Set(wanted))) =
                    (&found.activation, &options.activation)
                {
                    compare("the ACTIVATION of queue", &found.name, found_activation.is_enabled, wanted.status);
                }
            }
            Definition::CreateWorkQueue { name, options } => {
                let Some(found) = catalog.work_queue(name) else { continue };
                let wanted = options.iter().find_map(|option| match option {
                    WorkOption::Status(is_on) => Some(*is_on),
                    _ => None,
                });
                compare("work queue", &found.name, found.settings.is_enabled, wanted);
            }
            Definition::CreateWorkSchedule { name, options, .. } => {
                let Some(found) = catalog.work_schedule(name) else { continue };
                compare("work schedule", &found.name, found.is_enabled, options.status);
            }
            _ => {}
        }
    }
    warnings
}

fn is_there(catalog: &Catalog, wanted: &Definition) -> Result<bool> {
    match wanted {
        Definition::CreateMessageType { name, validation, .. } => {
            let Some(found) = catalog.message_type(name) else { return Ok(false) };
            match (&found.validation, validation) {
                // Kept as the collection spells itself.
                (Validation::ValidXml { schema_collection: found }, Validation::ValidXml { schema_collection })
                    if same_name(found, schema_collection) =>
                {
                    Ok(true)
                }
                (found, wanted) => same("message type", name, "its validation", found, wanted),
            }
        }
        Definition::CreateContract { name, entries, .. } => {
            let Some(found) = catalog.contract(name) else { return Ok(false) };
            let sorted = |entries: &[_]| {
                let mut entries = entries.to_vec();
                entries
                    .sort_by(|a: &crate::protocol::definition::ContractEntry, b| a.message_type.cmp(&b.message_type));
                entries
            };
            same("contract", name, "its message types", &sorted(&found.entries), &sorted(entries))
        }
        Definition::CreateQueue { name, options } => match catalog.queue(name) {
            Some(found) => same_queue(found, options),
            None => Ok(false),
        },
        Definition::CreateService { name, queue, contracts, .. } => {
            let Some(found) = catalog.service(name) else { return Ok(false) };
            let its_queue = catalog.queues.get(&found.queue_id).map_or("", |queue| &*queue.name);
            if !same_name(its_queue, queue) {
                return Err(differs("service", name, "its queue", its_queue, queue));
            }
            let named = |id: &i32| catalog.contracts.get(id).map_or("", |contract| &*contract.name);
            let mut found: Vec<&str> = found.contract_ids.iter().map(named).collect();
            let mut wanted: Vec<&str> = contracts.iter().map(String::as_str).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            same("service", name, "its contracts", &found, &wanted)
        }
        Definition::CreateBrokerPriority { name, set } => match catalog.priority(name) {
            Some(found) => same_priority(catalog, found, set),
            None => Ok(false),
        },
        Definition::CreateXmlSchemaCollection { name, schemas } => {
            let Some(found) = catalog.xml_schema_collection(name) else { return Ok(false) };
            same("XML schema collection", name, "its schemas", &&*found.schemas, &schemas.as_str())
        }
        Definition::CreateEventNotification { name, queue, event, service } => {
            let queue_id = catalog.queue(queue).map(|queue| queue.id);
            let of_queue = |found: &&std::sync::Arc<crate::catalog::EventNotification>| {
                Some(found.queue_id) == queue_id && &*found.name == name
            };
            let Some(found) = catalog.event_notifications.values().find(of_queue) else { return Ok(false) };
            same(
                "event notification",
                name,
                "its event and service",
                &(found.event, &*found.service),
                &(*event, service.as_str()),
            )
        }
        Definition::CreateWorkQueue { name, options } => match catalog.work_queue(name) {
            Some(found) => same_work_queue(found, options),
            None => Ok(false),
        },
        Definition::CreateWorkSchedule { name, queue, options } => match catalog.work_schedule(name) {
            Some(found) => same_work_schedule(catalog, found, queue, options),
            None => Ok(false),
        },
        Definition::AlterDatabase { option } if stands(&catalog.settings, *option) => Ok(true),
        other => Err(Error::new(
            Code::UNSUPPORTED,
            format!(
                "ensure only creates what is missing; '{}' changes what is there: apply it without --ensure (Broker::execute)",
                render_definition(other)
            ),
        )),
    }
}

/// Whether a setting of the broker is as asked for, as in a dump. An action, as NEW_BROKER is, never stands.
fn stands(settings: &BrokerSettings, option: BrokerOption) -> bool {
    match option {
        BrokerOption::EnableBroker => settings.is_broker_enabled,
        BrokerOption::DisableBroker => !settings.is_broker_enabled,
        BrokerOption::HonorBrokerPriority(is_on) => settings.is_honor_broker_priority_on == is_on,
        BrokerOption::NewBroker | BrokerOption::ErrorBrokerConversations => false,
    }
}

fn same<A: PartialEq<B> + Shown, B: Shown>(
    what: &str,
    name: &str,
    aspect: &str,
    found: &A,
    wanted: &B,
) -> Result<bool> {
    if found == wanted { Ok(true) } else { Err(differs(what, name, aspect, &found.shown(), &wanted.shown())) }
}

fn differs(what: &str, name: &str, aspect: &str, found: &str, wanted: &str) -> Error {
    // As in Service Broker, not everything can be altered.
    let way = match what {
        "contract" | "event notification" => "drop it and make it again",
        "XML schema collection" => "make another collection and ALTER its message types to it",
        _ => "ALTER it",
    };
    Error::new(
        Code::DUPLICATE_NAME,
        format!(
            "{what} '{name}' exists already but differs: {aspect}: {}; asked for: {}; {way}, or ask for the same",
            part_that_differs(found, wanted),
            part_that_differs(wanted, found)
        ),
    )
}

/// One of found and wanted has the clause, the other has not.
fn clause_differs(queue: &str, clause: &str, is_found: bool) -> Error {
    let (found, wanted) = if is_found { ("set", "none") } else { ("none", "set") };
    differs("queue", queue, clause, found, wanted)
}

/// A text, or the part of a long one from before the place where it begins to differ from the other: schemas and bodies are long, and
/// often differ in the middle.
fn part_that_differs(text: &str, other: &str) -> String {
    const MOST: usize = 200;
    const BEFORE: usize = 40;
    let characters = text.chars().count();
    if characters <= MOST {
        return text.to_owned();
    }
    let same = text.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(BEFORE);
    let part: String = text.chars().skip(from).take(MOST).collect();
    let before = if from > 0 { "... " } else { "" };
    let after = if from + MOST < characters { " ..." } else { "" };
    format!("{before}{part}{after} ({characters} characters)")
}

/// Compares the named settings, and nothing else.
fn named<T: PartialEq + Shown>(what: &str, name: &str, aspect: &str, found: &T, wanted: Option<&T>) -> Result<bool> {
    wanted.map_or(Ok(true), |wanted| same(what, name, aspect, found, wanted))
}

fn same_retry(queue: &str, found: &RetryPolicy, wanted: &RetryOptions) -> Result<()> {
    let found = found.to_options();
    let numbers = [
        ("RETRY MAX_ATTEMPTS", found.max_attempts, wanted.max_attempts),
        ("RETRY DELAY_MS", found.delay_ms, wanted.delay_ms),
        ("RETRY FACTOR_PERCENT", found.factor_percent, wanted.factor_percent),
        ("RETRY MAX_DELAY_MS", found.max_delay_ms, wanted.max_delay_ms),
        ("RETRY JITTER_PERCENT", found.jitter_percent, wanted.jitter_percent),
    ];
    for (aspect, found, wanted) in numbers {
        named("queue", queue, aspect, &found, wanted.map(Some).as_ref())?;
    }
    named("queue", queue, "RETRY THEN", &found.then, wanted.then.map(Some).as_ref()).map(drop)
}

fn same_queue(found: &Queue, wanted: &QueueOptions) -> Result<bool> {
    let check = |aspect, found: bool, wanted: Option<bool>, name: &str| {
        named("queue", name, aspect, &found, wanted.as_ref()).map(drop)
    };
    let name = &found.name;
    check("RETENTION", found.is_retention_enabled, wanted.retention, name)?;
    let handles_poison = found.is_poison_message_handling_enabled;
    check("POISON_MESSAGE_HANDLING STATUS", handles_poison, wanted.poison_message_handling, name)?;
    check("QUARANTINE", found.is_poison_quarantine_enabled, wanted.poison_quarantine, name)?;
    match (&found.retry, &wanted.retry) {
        (_, None) | (None, Some(RetryChange::Drop)) => {}
        (Some(found), Some(RetryChange::Set(wanted))) => same_retry(name, found, wanted)?,
        (found, _) => return Err(clause_differs(name, "RETRY", found.is_some())),
    }
    match (&found.activation, &wanted.activation) {
        (_, None) | (None, Some(ActivationChange::Drop)) => Ok(true),
        (Some(found), Some(ActivationChange::Set(wanted))) => same_activation(name, found, wanted),
        (found, _) => Err(clause_differs(name, "ACTIVATION", found.is_some())),
    }
}

fn same_activation(queue: &str, found: &Activation, wanted: &ActivationOptions) -> Result<bool> {
    let procedure = found.procedure_name.to_string();
    named("queue", queue, "PROCEDURE_NAME", &procedure, wanted.procedure_name.as_ref())?;
    let readers = i64::from(found.max_queue_readers);
    named("queue", queue, "MAX_QUEUE_READERS", &readers, wanted.max_queue_readers.as_ref())
}

fn same_work_queue(found: &WorkQueue, wanted: &[WorkOption]) -> Result<bool> {
    let (what, name, settings) = ("work queue", &*found.name, &found.settings);
    for option in wanted {
        match option {
            WorkOption::Status(_) => true,
            WorkOption::Order(order) => same(what, name, "ORDER", &settings.order, order)?,
            WorkOption::History(is_on) => same(what, name, "HISTORY", &settings.has_history, is_on)?,
            WorkOption::TakeBy(technique) => same(what, name, "TAKE_BY", &settings.take_by, technique)?,
            WorkOption::Number(number, value) => same(what, name, number.word(), &settings.get(*number), value)?,
        };
    }
    Ok(true)
}

fn same_work_schedule(
    catalog: &Catalog,
    found: &WorkSchedule,
    queue: &str,
    wanted: &WorkScheduleOptions,
) -> Result<bool> {
    let (what, name) = ("work schedule", &*found.name);
    let its_queue = catalog.work_queues.get(&found.queue_id).map_or("", |queue| &*queue.name);
    if !same_name(its_queue, queue) {
        return Err(differs(what, name, "its work queue", its_queue, queue));
    }
    let WorkScheduleOptions { cron, time_zone, missed, job_type, job_key, level, body, status: _ } = wanted;
    if let Some(zone) = time_zone.as_ref().filter(|zone| !same_name(&found.time_zone, zone)) {
        return Err(differs(what, name, "TIME_ZONE", &found.time_zone, zone));
    }
    let key = found.key.as_deref().unwrap_or_default();
    named(what, name, "CRON", &found.cron.to_string(), cron.as_ref())?;
    named(what, name, "MISSED", &found.missed, missed.as_ref())?;
    named(what, name, "JOB_TYPE", &found.job_type.to_string(), job_type.as_ref())?;
    named(what, name, "JOB_KEY", &key.to_owned(), job_key.as_ref())?;
    named(what, name, "LEVEL", &i64::from(found.level), level.as_ref())?;
    named(what, name, "BODY", &found.body.to_string(), body.as_ref())
}

fn same_priority(catalog: &Catalog, found: &Priority, wanted: &PriorityOptions) -> Result<bool> {
    let name_or_any = |name: Option<&str>| name.map_or(AnyOr::Any, |name| AnyOr::Name(name.to_owned()));
    let wanted_object = |wanted: &Option<AnyOr>| wanted.as_ref().map(|wanted| name_or_any(wanted.object()));
    let contract = found.contract_id.and_then(|id| catalog.contracts.get(&id)).map(|contract| &*contract.name);
    let service = found.local_service_id.and_then(|id| catalog.services.get(&id)).map(|service| &*service.name);
    let (what, name) = ("broker priority", &*found.name);
    named(what, name, "CONTRACT_NAME", &name_or_any(contract), wanted_object(&wanted.contract).as_ref())?;
    named(what, name, "LOCAL_SERVICE_NAME", &name_or_any(service), wanted_object(&wanted.local_service).as_ref())?;
    named(what, name, "REMOTE_SERVICE_NAME", &found.remote_service, wanted.remote_service.as_ref())?;
    named(what, name, "PRIORITY_LEVEL", &i64::from(found.level), wanted.level.as_ref())
}
