//! Queues and their activation.

use super::{Applied, Consequence, Touched, notification, take_object_id};
use crate::catalog::name::{check_name, check_queue_name};
use crate::catalog::objects::{Activation, Catalog, OffBy, Queue, QueueOff};
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{
    ActivationChange, ActivationOptions, ExecuteAs, Pauses, QueueEvent, QueueOptions, RetryChange, RetryOptions,
    RetryPolicy,
};
use std::sync::Arc;

const WHAT: &str = "queue";

/// The highest limit of readers.
const MOST_QUEUE_READERS: u16 = 32767;
/// The longest REASON, in characters.
const LONGEST_REASON: usize = 1000;

pub(super) fn create(catalog: &mut Catalog, name: &str, options: &QueueOptions) -> Result<Applied> {
    check_queue_name(name)?;
    if catalog.queue(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    let is_enabled = options.status.unwrap_or(true);
    let off = off(name, None, options)?;
    let activation = match &options.activation {
        None => None,
        Some(ActivationChange::Set(set)) => Some(activation(name, None, set, Statement::Create)?),
        Some(ActivationChange::Drop) => {
            return Err(Error::new(
                Code::SYNTAX,
                format!("ACTIVATION (DROP) for the new queue '{name}'; only ALTER QUEUE has it"),
            ));
        }
    };
    let warning = limit_zero(name, activation.as_ref());
    let id = take_object_id(catalog)?;
    let row = Queue {
        id,
        name: name.into(),
        is_receive_enabled: is_enabled,
        is_enqueue_enabled: is_enabled,
        is_retention_enabled: options.retention.unwrap_or(false),
        is_poison_message_handling_enabled: options.poison_message_handling.unwrap_or(true),
        is_poison_quarantine_enabled: options.poison_quarantine.unwrap_or(false),
        retry: match &options.retry {
            None => None,
            Some(RetryChange::Set(set)) => Some(retry(name, RetryPolicy::default(), set)?),
            Some(RetryChange::Drop) => {
                let text = format!("RETRY (DROP) for the new queue '{name}'; only ALTER QUEUE has it");
                return Err(Error::new(Code::SYNTAX, text));
            }
        },
        activation,
        off,
    };
    catalog.queues.insert(id, Arc::new(row));
    Ok(Applied { warnings: warning.into_iter().collect(), ..Applied::created(Touched::Queue(id)) })
}

pub(super) fn alter(catalog: &mut Catalog, name: &str, options: &QueueOptions) -> Result<Applied> {
    let found = catalog.queue(name).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    let mut row = (**found).clone();
    let mut warning = None;
    match &options.activation {
        None => {}
        Some(ActivationChange::Drop) => row.activation = None,
        Some(ActivationChange::Set(set)) => {
            let next = activation(name, row.activation.as_ref(), set, Statement::Alter)?;
            if next.is_enabled && is_watched_for_activation(catalog, row.id) {
                return Err(Error::new(
                    Code::NOTIFICATION_EXCLUDES_ACTIVATION,
                    format!(
                        "activation of queue '{name}' cannot be enabled: an event notification for QUEUE_ACTIVATION \
                         watches it; drop that first"
                    ),
                ));
            }
            warning = limit_zero(name, Some(&next));
            row.activation = Some(next);
        }
    }
    let was_enabled = row.is_enabled();
    row.off = off(name, Some(&row), options)?;
    if let Some(is_enabled) = options.status {
        row.is_receive_enabled = is_enabled;
        row.is_enqueue_enabled = is_enabled;
    }
    row.is_retention_enabled = options.retention.unwrap_or(row.is_retention_enabled);
    row.is_poison_message_handling_enabled =
        options.poison_message_handling.unwrap_or(row.is_poison_message_handling_enabled);
    row.is_poison_quarantine_enabled = options.poison_quarantine.unwrap_or(row.is_poison_quarantine_enabled);
    row.retry = match &options.retry {
        None => row.retry,
        Some(RetryChange::Drop) => None,
        Some(RetryChange::Set(set)) => Some(retry(name, row.retry.unwrap_or_default(), set)?),
    };

    let id = row.id;
    let mut applied = Applied { warnings: warning.into_iter().collect(), ..Applied::of(Touched::Queue(id)) };
    if let Some(is_enabled) = options.status.filter(|is_enabled| *is_enabled != was_enabled) {
        applied.consequences.push(Consequence::QueueStatusChanged { queue_id: id, is_enabled });
    }
    catalog.queues.insert(id, Arc::new(row));
    Ok(applied)
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let id = catalog.queue(name).ok_or_else(|| Error::object_not_found(WHAT, name))?.id;
    if let Some(service) = catalog.services.values().find(|service| service.queue_id == id) {
        return Err(Error::in_use(WHAT, name, format_args!("service '{}'", service.name)));
    }
    let mut applied = Applied::default();
    let watching: Vec<i32> = catalog.event_notifications.values().filter(|n| n.queue_id == id).map(|n| n.id).collect();
    for notification_id in watching {
        notification::remove(catalog, notification_id, &mut applied);
    }
    catalog.queues.remove(&id);
    applied.touched.push(Touched::QueueDeleted(id));
    Ok(applied.then(Consequence::QueueDropped { queue_id: id }))
}

/// The policy after a `RETRY` clause: settings that it does not name stay.
fn retry(queue: &str, current: RetryPolicy, set: &RetryOptions) -> Result<RetryPolicy> {
    const MOST_MS: i64 = 31_536_000_000;
    let checked = |option: &str, value: Option<i64>, current: i64, least: i64, most: i64| match value {
        Some(value) if !(least..=most).contains(&value) => {
            let what = format!("{option} of the RETRY clause of queue '{queue}'");
            Err(Error::out_of_range(&what, value, &format!("{least} to {most}")))
        }
        value => Ok(value.unwrap_or(current)),
    };
    let pauses = current.pauses;
    let max_attempts = checked("MAX_ATTEMPTS", set.max_attempts, current.max_attempts.into(), 1, 32767)?;
    Ok(RetryPolicy {
        max_attempts: u16::try_from(max_attempts).unwrap_or(u16::MAX),
        pauses: Pauses {
            delay_ms: checked("DELAY_MS", set.delay_ms, pauses.delay_ms, 0, MOST_MS)?,
            factor_percent: checked("FACTOR_PERCENT", set.factor_percent, pauses.factor_percent, 100, 1000)?,
            max_delay_ms: checked("MAX_DELAY_MS", set.max_delay_ms, pauses.max_delay_ms, 0, MOST_MS)?,
            jitter_percent: checked("JITTER_PERCENT", set.jitter_percent, pauses.jitter_percent, 0, 100)?,
        },
        then: set.then.unwrap_or(current.then),
    })
}

/// Why the queue is off after the statement. A queue that is off already keeps its moment, and its cause unless a new reason is
/// given.
fn off(name: &str, before: Option<&Queue>, options: &QueueOptions) -> Result<Option<QueueOff>> {
    let reason = options.reason.as_deref();
    if reason.is_some() && options.status != Some(false) {
        return Err(Error::new(
            Code::SYNTAX,
            format!("REASON for queue '{name}' without STATUS = OFF; give both, or leave REASON out"),
        ));
    }
    if let Some(length) = reason.map(|reason| reason.chars().count()).filter(|length| *length > LONGEST_REASON) {
        let (what, found) = (format!("the REASON of queue '{name}'"), format!("{length} characters long"));
        return Err(Error::out_of_range(&what, found, &format!("at most {LONGEST_REASON} characters")));
    }
    let was_off = before.filter(|queue| !queue.is_enabled());
    Ok(match (options.status, was_off) {
        (None, _) => was_off.and_then(|queue| queue.off.clone()),
        (Some(true), _) => None,
        (Some(false), Some(queue)) if reason.is_none() => queue.off.clone(),
        (Some(false), was_off) => Some(QueueOff {
            since: was_off.and_then(|queue| queue.off.as_ref()).and_then(|off| off.since),
            by: OffBy::Statement,
            reason: reason.map(Arc::from),
        }),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Statement {
    Create,
    Alter,
}

/// The activation after an `ACTIVATION` clause: settings that it does not name stay.
///
/// A new activation needs a procedure. It also needs a limit and a user, unless ALTER makes it and leaves it off. If
/// STATUS is not given, CREATE turns activation on and ALTER leaves it unchanged.
fn activation(
    queue: &str,
    current: Option<&Activation>,
    set: &ActivationOptions,
    statement: Statement,
) -> Result<Activation> {
    let is_enabled = set.status.unwrap_or(current.map_or(statement == Statement::Create, |current| current.is_enabled));
    let must_be_whole = is_enabled || statement == Statement::Create;

    let procedure_name = match (&set.procedure_name, current) {
        (Some(name), _) => checked_procedure(queue, name)?,
        (None, Some(current)) => current.procedure_name.clone(),
        (None, None) => {
            return Err(Error::new(
                Code::ACTIVATION_PROCEDURE_MISSING,
                format!("activation of queue '{queue}' has no procedure; give PROCEDURE_NAME"),
            ));
        }
    };
    let max_queue_readers = match (set.max_queue_readers, current) {
        (Some(limit), _) => {
            u16::try_from(limit).ok().filter(|limit| *limit <= MOST_QUEUE_READERS).ok_or_else(|| {
                Error::out_of_range(&format!("MAX_QUEUE_READERS of queue '{queue}'"), limit, "0 to 32767")
            })?
        }
        (None, Some(current)) => current.max_queue_readers,
        (None, None) if must_be_whole => {
            let what = format!("MAX_QUEUE_READERS of queue '{queue}'");
            return Err(Error::out_of_range(&what, "not given", "0 to 32767"));
        }
        (None, None) => 0,
    };
    let execute_as = match (&set.execute_as, current) {
        (Some(user), _) => user.clone(),
        (None, Some(current)) => current.execute_as.clone(),
        (None, None) if must_be_whole => {
            return Err(Error::new(
                Code::ACTIVATION_USER_MISSING,
                format!("activation of queue '{queue}' has no user to run as; give EXECUTE AS SELF, OWNER or 'user'"),
            ));
        }
        (None, None) => ExecuteAs::SelfUser,
    };
    Ok(Activation { is_enabled, procedure_name, max_queue_readers, execute_as })
}

fn checked_procedure(queue: &str, name: &str) -> Result<Arc<str>> {
    check_name("activation procedure", name).map_err(|why| {
        let text = format!("activation of queue '{queue}': {}", why.message());
        Error::new(Code::ACTIVATION_PROCEDURE_MISSING, text)
    })?;
    if name.starts_with('#') {
        return Err(Error::new(
            Code::ACTIVATION_PROCEDURE_TEMPORARY,
            format!("activation procedure '{name}' of queue '{queue}' is temporary; leave the leading '#' out"),
        ));
    }
    Ok(name.into())
}

fn limit_zero(queue: &str, activation: Option<&Activation>) -> Option<String> {
    activation.filter(|activation| activation.is_enabled && activation.max_queue_readers == 0).map(|_| {
        let code = Code::ACTIVATION_LIMIT_ZERO;
        format!("[{code}] activation of queue '{queue}' is on with MAX_QUEUE_READERS = 0: no reader is ever started")
    })
}

fn is_watched_for_activation(catalog: &Catalog, queue_id: i32) -> bool {
    let mut notifications = catalog.event_notifications.values();
    notifications.any(|watch| watch.queue_id == queue_id && watch.event == QueueEvent::QueueActivation)
}
