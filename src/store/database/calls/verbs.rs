//! Verbs as calls, and their rows as outcomes.

use crate::catalog::body::Verdict;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, GroupId};
use crate::protocol::declared::{ResultForm, Value};
use crate::protocol::{Body, ConversationState, Outcome, OutgoingMessage, Verb, system, verb};
use crate::store::SqlRow;
use crate::store::database::calls::job;
use crate::store::database::calls::message::messages;
use crate::store::database::calls::rows::{damaged, only};
use crate::store::database::link::{Arg, Call, Column};
use std::sync::Arc;
use uuid::Uuid;

/// The parts of a call that are not in its verb; made once for all attempts of a verb.
#[derive(Debug, Clone, Default)]
pub(in crate::store::database) struct CallContext {
    /// The queue's name as it is compared.
    pub(in crate::store::database) folded_name: String,
    /// The fault of the body; empty if it has none.
    pub(in crate::store::database) body_fault: String,
    /// The version of the definitions that the body was checked against.
    pub(in crate::store::database) catalog_version: i64,
    /// The verdict on the body under them, if its type has a validation.
    pub(in crate::store::database) verdict: Option<Arc<Verdict>>,
    /// Ids for the objects that the verb makes, in the order in which the embedded store takes them.
    pub(in crate::store::database) ids: [Uuid; 3],
    /// Those of each message of a `SendEach`.
    pub(in crate::store::database) each: Vec<CallContext>,
}

/// The call that does the verb.
///
/// # Errors
/// 60008 for a definition, which has calls of its own; 8418 for a SEND that names no conversation.
pub(in crate::store::database) fn call<'a>(verb: &'a Verb, context: &'a CallContext) -> Result<Call<'a>> {
    match verb {
        Verb::Define(_) => return Err(Error::definition_in_transaction()),
        Verb::Send { handles, .. } if handles.is_empty() => return Err(no_handle()),
        Verb::SendEach(messages) => return Ok(send_each(messages, context)),
        _ => {}
    }
    let args = verb.arguments().into_iter().map(|value| arg(value, context)).collect();
    Ok(Call { name: verb.declaration().name, args })
}

fn arg<'a>(value: Value<'a>, context: &'a CallContext) -> Arg<'a> {
    match value {
        Value::Uuid(id) => id.map_or(Arg::Null, Arg::Uuid),
        Value::NewId(place) => Arg::Uuid(context.ids[place]),
        Value::Bool(value) => Arg::Bool(value),
        Value::Int(value) => value.map_or(Arg::Null, Arg::Int),
        Value::BigInt(value) => value.map_or(Arg::Null, Arg::BigInt),
        Value::Text(text) => maybe(text),
        Value::Queue(_) => Arg::Text(&context.folded_name),
        Value::Bytes(body) => bytes(body),
        Value::Handles(handles) => {
            let handles = handles.iter().map(|handle| Some(handle.0)).collect();
            Arg::Rows { type_name: "send_many_rows", columns: vec![Column::Uuid(handles)] }
        }
        Value::BodyFault => Arg::Text(&context.body_fault),
        Value::CatalogVersion => Arg::BigInt(context.catalog_version),
        Value::HandleColumn(_)
        | Value::TypeColumn
        | Value::BodyColumn
        | Value::TraceColumn
        | Value::FaultColumn
        | Value::IdColumn => unreachable!("columns are made together"),
    }
}

/// Many messages in one call.
fn send_each<'a>(messages: &'a [OutgoingMessage], context: &'a CallContext) -> Call<'a> {
    let rows = messages.iter().zip(&context.each).map(|(message, context)| SendRow { message, context });
    // NULL for an empty list: no body was checked with any version.
    let version = context.each.iter().map(|context| context.catalog_version).min().map_or(Arg::Null, Arg::BigInt);
    Call { name: verb::SEND_EACH.name, args: vec![send_rows(&rows.collect::<Vec<_>>()), version] }
}

/// A message of a call that sends many.
pub(in crate::store::database) struct SendRow<'a> {
    pub(in crate::store::database) message: &'a OutgoingMessage,
    pub(in crate::store::database) context: &'a CallContext,
}

/// The rows of a call that sends many messages.
pub(in crate::store::database) fn send_rows<'a>(rows: &[SendRow<'a>]) -> Arg<'a> {
    let columns = vec![
        Column::Uuid(rows.iter().map(|row| Some(row.message.handle.0)).collect()),
        Column::Text(
            rows.iter().map(|row| Some(row.message.message_type.as_deref().unwrap_or(system::DEFAULT))).collect(),
        ),
        Column::Bytes(rows.iter().map(|row| row.message.body.clone()).collect()),
        Column::Text(rows.iter().map(|row| row.message.trace.as_deref()).collect()),
        Column::Text(rows.iter().map(|row| Some(&*row.context.body_fault)).collect()),
        Column::Uuid(rows.iter().map(|row| Some(row.context.ids[0])).collect()),
    ];
    Arg::Rows { type_name: "send_batch_rows", columns }
}

/// A SEND on one conversation.
pub(in crate::store::database) fn send<'a>(
    handle: ConversationHandle,
    message_type: Option<&'a str>,
    body: &Body,
    trace: Option<&'a str>,
    context: &'a CallContext,
) -> Call<'a> {
    let args = vec![
        Arg::Uuid(handle.0),
        Arg::Text(message_type.unwrap_or(system::DEFAULT)),
        bytes(body),
        maybe(trace),
        Arg::Text(&context.body_fault),
        Arg::BigInt(context.catalog_version),
        Arg::Uuid(context.ids[0]),
    ];
    Call { name: verb::SEND.name, args }
}

pub(in crate::store::database) fn bytes<'a>(body: &Body) -> Arg<'a> {
    body.clone().map_or(Arg::Null, Arg::Bytes)
}

pub(in crate::store::database) fn maybe(text: Option<&str>) -> Arg<'_> {
    text.map_or(Arg::Null, Arg::Text)
}

/// The outcome in the rows of a verb's call.
pub(in crate::store::database) fn outcome(verb: &Verb, rows: Vec<SqlRow>) -> Result<Outcome> {
    let maybe_only = || if rows.is_empty() { Ok(None) } else { only(&rows).map(Some) };
    Ok(match verb.declaration().gives {
        ResultForm::Nothing | ResultForm::Warnings => Outcome::Done,
        ResultForm::Began => {
            let row = only(&rows)?;
            Outcome::Began {
                handle: ConversationHandle(row.uuid("conversation_handle")?),
                group: GroupId(row.uuid("conversation_group_id")?),
                conversation_id: ConversationId(row.uuid("conversation_id")?),
            }
        }
        ResultForm::Messages => Outcome::Received(messages(rows)?.into_iter().map(|(_, message)| message).collect()),
        ResultForm::Group => {
            let group = maybe_only()?.map(|row| row.maybe_uuid("conversation_group_id")).transpose()?;
            Outcome::Group(group.flatten().map(GroupId))
        }
        ResultForm::StateBefore => {
            let state = only(&rows)?.text("state")?;
            let known = ConversationState::from_code(state.trim_end());
            Outcome::Ended(known.ok_or_else(|| damaged(format!("'{state}' is no state of a conversation")))?)
        }
        ResultForm::Text(column) => {
            let text = maybe_only()?.map(|row| row.maybe_text(column)).transpose()?;
            Outcome::Text(text.flatten().unwrap_or_default().to_owned())
        }
        ResultForm::Pushed => job::pushed(&rows)?,
        ResultForm::Jobs => job::jobs(rows)?,
        ResultForm::JobState => job::failed(&rows)?,
    })
}

/// The queue that a verb receives from.
pub(in crate::store::database) fn received_queue(verb: &Verb) -> Option<&Arc<str>> {
    match verb {
        Verb::Receive { queue, .. } | Verb::GetConversationGroup { queue } => Some(queue),
        _ => None,
    }
}

fn no_handle() -> Error {
    let message = "SEND names no conversation; it needs at least one handle";
    Error::new(Code::HANDLE_MISSING, message)
}
