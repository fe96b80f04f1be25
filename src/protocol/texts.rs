//! Texts of a verb that no broker can keep.
//!
//! PostgreSQL keeps no NUL character in a text, and SQLite's own tools end a text there. So every store refuses it,
//! with the same code, before the verb reaches it.

use super::definition::{ActivationChange, Definition, ExecuteAs, Validation, WorkScheduleOptions};
use super::verb::{MOST_MESSAGE_BYTES, MOST_MESSAGES, OutgoingMessage};
use super::work::WorkVerb;
use super::{Addressee, EndForm, Verb};
use crate::error::{Code, Error, Result};

impl Verb {
    /// Refuses NUL characters in every name and text of the verb; bodies may hold any bytes.
    ///
    /// # Errors
    /// 8412 in the TO SERVICE, 60003 in any other name, 60005 in any other text.
    pub fn check_texts(&self) -> Result<()> {
        match self {
            Self::BeginDialog(dialog) => {
                name("service", &dialog.from_service)?;
                if dialog.to_service.contains('\0') {
                    return Err(Error::new(
                        Code::BAD_SERVICE_NAME,
                        "the name of the TO SERVICE contains a NUL character; leave that out",
                    ));
                }
                if let Some(contract) = &dialog.contract {
                    name("contract", contract)?;
                }
                match &dialog.addressee {
                    Addressee::Instance(instance) => text("the broker instance", instance),
                    Addressee::Anywhere | Addressee::CurrentDatabase => Ok(()),
                }
            }
            Self::Send { message_type, trace, .. } => {
                if let Some(message_type) = message_type {
                    name("message type", message_type)?;
                }
                trace.as_deref().map_or(Ok(()), trace_context)
            }
            Self::SendEach(messages) => each(messages),
            Self::Receive { queue, .. }
            | Self::GetConversationGroup { queue }
            | Self::PostQueueActivation { queue } => name("queue", queue),
            Self::EndConversation { form: EndForm::WithError { description, .. }, .. } => {
                text("the description of the Error", description)
            }
            Self::Work(verb) => work(verb),
            Self::Define(definitions) => {
                let mut checks = definitions.iter().enumerate();
                checks.try_for_each(|(index, one)| definition(one).map_err(|error| error.in_statement(index)))
            }
            _ => Ok(()),
        }
    }
}

/// The limits of one call, and the texts of each message.
fn each(messages: &[OutgoingMessage]) -> Result<()> {
    let count = messages.len();
    if count > MOST_MESSAGES {
        let found = format!("{count} messages");
        return Err(Error::out_of_range("the list of send_each", found, &format!("at most {MOST_MESSAGES} messages")));
    }
    let bytes: usize = messages.iter().filter_map(|message| message.body.as_ref()).map(|body| body.len()).sum();
    if bytes > MOST_MESSAGE_BYTES {
        let found = format!("{bytes} bytes of bodies");
        return Err(Error::out_of_range(
            "the list of send_each",
            found,
            &format!("at most {MOST_MESSAGE_BYTES} bytes"),
        ));
    }
    messages.iter().enumerate().try_for_each(|(index, OutgoingMessage { message_type, trace, .. })| {
        let checked = message_type.as_deref().map_or(Ok(()), |message_type| name("message type", message_type));
        let checked = checked.and_then(|()| trace.as_deref().map_or(Ok(()), trace_context));
        checked.map_err(|error| error.of_message(index, count))
    })
}

/// W3C allows a traceparent of 55 characters and a tracestate of 512; this leaves room for any other form. No bound
/// would let one text fill a row of the database, or the memory of all callers.
const MOST_TRACE_BYTES: usize = 64 << 10;

fn trace_context(trace: &str) -> Result<()> {
    if trace.len() > MOST_TRACE_BYTES {
        let found = format_args!("{} bytes long", trace.len()).to_string();
        return Err(Error::out_of_range("the trace context", found, &format!("at most {MOST_TRACE_BYTES} bytes")));
    }
    text("the trace context", trace)
}

fn work(verb: &WorkVerb) -> Result<()> {
    match verb {
        WorkVerb::Push(push) => {
            name("work queue", &push.queue)?;
            text("the type of a job", &push.job_type)?;
            text("the name of a writer", &push.pushed_by)?;
            push.key.as_deref().map_or(Ok(()), |key| text("the key of a job", key))?;
            push.unique.as_ref().map_or(Ok(()), |unique| text("the unique key of a job", &unique.key))
        }
        WorkVerb::Take(take) => {
            name("work queue", &take.queue)?;
            text("the name of a reader", &take.taken_by)?;
            take.job_type.as_deref().map_or(Ok(()), |job_type| text("the type of a job", job_type))
        }
        WorkVerb::Fail { reason, .. } => text("the reason of a failure", reason),
        WorkVerb::Report { progress, .. } => text("a note of progress", progress),
        WorkVerb::Complete { .. } | WorkVerb::Extend { .. } | WorkVerb::Cancel { .. } | WorkVerb::Redrive { .. } => {
            Ok(())
        }
    }
}

fn name(what: &str, name: &str) -> Result<()> {
    if name.contains('\0') {
        let shown = name.replace('\0', "\\0");
        return Err(Error::bad_name(what, &shown, "it contains a NUL character; leave that out"));
    }
    Ok(())
}

/// Refuses a text with a NUL character.
pub(crate) fn text(what: &str, text: &str) -> Result<()> {
    match text.find('\0') {
        None => Ok(()),
        Some(at) => {
            Err(Error::out_of_range(what, format_args!("a text with a NUL character at byte {at}"), "one without"))
        }
    }
}

/// Names are checked where they are defined; these are the other texts.
fn definition(definition: &Definition) -> Result<()> {
    match definition {
        Definition::CreateMessageType { owner, validation, .. } => {
            owned(owner)?;
            validated(validation)
        }
        Definition::AlterMessageType { validation, .. } => validated(validation),
        Definition::CreateContract { owner, .. } | Definition::CreateService { owner, .. } => owned(owner),
        Definition::CreateQueue { options, .. } | Definition::AlterQueue { options, .. } => {
            options.reason.as_deref().map_or(Ok(()), |reason| text("the REASON of a queue", reason))?;
            match &options.activation {
                Some(ActivationChange::Set(settings)) => {
                    if let Some(procedure) = &settings.procedure_name {
                        name("procedure", procedure)?;
                    }
                    match &settings.execute_as {
                        Some(ExecuteAs::User(user)) => name("user", user),
                        _ => Ok(()),
                    }
                }
                _ => Ok(()),
            }
        }
        Definition::CreateXmlSchemaCollection { schemas, .. } => text("the XML schema collection", schemas),
        Definition::CreateWorkSchedule { options, .. } | Definition::AlterWorkSchedule { options, .. } => {
            let WorkScheduleOptions { cron, time_zone, job_type, job_key, body, .. } = options;
            let texts = [
                ("the CRON of a work schedule", cron),
                ("the TIME_ZONE of a work schedule", time_zone),
                ("the JOB_TYPE of a work schedule", job_type),
                ("the JOB_KEY of a work schedule", job_key),
                ("the BODY of a work schedule", body),
            ];
            texts.into_iter().try_for_each(|(what, given)| given.as_deref().map_or(Ok(()), |given| text(what, given)))
        }
        _ => Ok(()),
    }
}

fn owned(owner: &Option<String>) -> Result<()> {
    owner.as_deref().map_or(Ok(()), |owner| name("user", owner))
}

fn validated(validation: &Validation) -> Result<()> {
    match validation {
        Validation::ValidXml { schema_collection } => name("XML schema collection", schema_collection),
        Validation::JsonSchema { schema } => text("the JSON Schema", schema),
        _ => Ok(()),
    }
}
