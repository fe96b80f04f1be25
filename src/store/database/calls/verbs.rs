//! Verbs as calls, and their rows as outcomes.

use crate::catalog::body::Verdict;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, GroupId};
use crate::protocol::{
    Addressee, BeginDialog, Body, ConversationState, EndForm, Outcome, ReceiveFrom, Relation, Verb, system,
};
use crate::store::SqlRow;
use crate::store::database::calls::message::messages;
use crate::store::database::calls::rows::{damaged, only};
use crate::store::database::link::{Arg, Call, Column};
use std::sync::Arc;
use uuid::Uuid;

/// What a call says beyond its verb; made once for a verb, however often that is tried.
#[derive(Debug, Clone, Default)]
pub(in crate::store::database) struct CallContext {
    /// The queue's name as it is compared.
    pub(in crate::store::database) folded: String,
    /// What is wrong with the body: empty for nothing.
    pub(in crate::store::database) body_fault: String,
    /// The definitions that the body was checked against.
    pub(in crate::store::database) catalog_version: i64,
    /// What the body came to under them, if its type has a validation.
    pub(in crate::store::database) verdict: Option<Arc<Verdict>>,
    /// Ids for what the verb makes, in the order in which the embedded store takes them.
    pub(in crate::store::database) ids: [Uuid; 3],
}

/// The call that does the verb.
///
/// # Errors
/// 60008 for definitions, which are made otherwise; 8418 for a SEND that names no conversation.
pub(in crate::store::database) fn call<'a>(verb: &'a Verb, context: &'a CallContext) -> Result<Call<'a>> {
    let (name, args) = match verb {
        Verb::BeginDialog(dialog) => ("begin_dialog_conversation", begin_dialog(dialog, context)),
        Verb::Send { handles, message_type, body, trace } => match handles[..] {
            [] => return Err(no_handle()),
            [handle] => return Ok(send(handle, message_type.as_deref(), body, trace.as_deref(), context)),
            _ => {
                let handles = handles.iter().map(|handle| Some(handle.0)).collect();
                let args = vec![
                    Arg::Rows { type_name: "send_many_rows", columns: vec![Column::Uuid(handles)] },
                    Arg::Text(message_type.as_deref().unwrap_or(system::DEFAULT)),
                    bytes(body),
                    maybe(trace.as_deref()),
                    Arg::Text(&context.body_fault),
                    Arg::BigInt(context.catalog_version),
                ];
                ("send_many", args)
            }
        },
        Verb::Receive { top, from, .. } => ("receive", receive(*top, *from, context)),
        Verb::GetConversationGroup { .. } => ("get_conversation_group", vec![Arg::Text(&context.folded)]),
        Verb::MoveConversation { handle, group } => {
            ("move_conversation", vec![Arg::Uuid(handle.0), Arg::Uuid(group.0)])
        }
        Verb::EndConversation { handle, form } => {
            let (code, description, is_cleanup) = match form {
                EndForm::Plain => (Arg::Null, Arg::Null, false),
                EndForm::WithError { code, description } => (Arg::Int(*code), Arg::Text(description), false),
                EndForm::Cleanup => (Arg::Null, Arg::Null, true),
            };
            ("end_conversation", vec![Arg::Uuid(handle.0), code, description, Arg::Bool(is_cleanup)])
        }
        Verb::BeginConversationTimer { handle, timeout_seconds } => {
            ("begin_conversation_timer", vec![Arg::Uuid(handle.0), Arg::BigInt(*timeout_seconds)])
        }
        Verb::GetTransmissionStatus { handle } => ("get_transmission_status", vec![Arg::Uuid(handle.0)]),
        Verb::Define(_) => return Err(Error::definition_in_transaction()),
        Verb::Reprioritise { handle, level } => {
            ("reprioritise", vec![Arg::Uuid(handle.0), Arg::Int(i32::from(*level))])
        }
        Verb::PostQueueActivation { .. } => ("post_queue_activation", vec![Arg::Text(&context.folded)]),
        Verb::ReleaseQuarantine { group } => ("release_quarantine", vec![Arg::Uuid(group.0)]),
    };
    Ok(Call { name, args })
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
    Call { name: "send", args }
}

fn begin_dialog<'a>(dialog: &'a BeginDialog, context: &'a CallContext) -> Vec<Arg<'a>> {
    let instance = match &dialog.addressee {
        Addressee::Anywhere => Arg::Null,
        Addressee::CurrentDatabase => Arg::Text("CURRENT DATABASE"),
        Addressee::Instance(instance) => Arg::Text(instance),
    };
    let (conversation, group) = match dialog.related {
        Relation::None => (Arg::Null, Arg::Null),
        Relation::Conversation(handle) => (Arg::Uuid(handle.0), Arg::Null),
        Relation::Group(group) => (Arg::Null, Arg::Uuid(group.0)),
    };
    let [new_group, handle, conversation_id] = context.ids;
    vec![
        Arg::Text(&dialog.from_service),
        Arg::Text(&dialog.to_service),
        instance,
        Arg::Text(dialog.contract.as_deref().unwrap_or(system::DEFAULT)),
        conversation,
        group,
        dialog.lifetime_seconds.map_or(Arg::Null, Arg::BigInt),
        Arg::Bool(dialog.encryption),
        Arg::Uuid(handle),
        Arg::Uuid(conversation_id),
        Arg::Uuid(new_group),
    ]
}

fn receive<'a>(top: Option<u64>, from: ReceiveFrom, context: &'a CallContext) -> Vec<Arg<'a>> {
    let (mut handle, mut group, mut lowest, mut highest) = (Arg::Null, Arg::Null, Arg::Null, Arg::Null);
    match from {
        ReceiveFrom::Any | ReceiveFrom::Oldest => {}
        ReceiveFrom::Conversation(only) => handle = Arg::Uuid(only.0),
        ReceiveFrom::Group(only) => group = Arg::Uuid(only.0),
        ReceiveFrom::Levels { lowest: low, highest: high } => {
            (lowest, highest) = (Arg::Int(low.into()), Arg::Int(high.into()));
        }
    }
    let top = top.map_or(Arg::Null, |top| Arg::BigInt(most(top)));
    vec![Arg::Text(&context.folded), top, handle, group, lowest, highest, Arg::Bool(from == ReceiveFrom::Oldest)]
}

/// TOP as servers count.
pub(in crate::store::database) fn most(top: u64) -> i64 {
    i64::try_from(top).unwrap_or(i64::MAX)
}

pub(in crate::store::database) fn bytes<'a>(body: &Body) -> Arg<'a> {
    body.clone().map_or(Arg::Null, Arg::Bytes)
}

pub(in crate::store::database) fn maybe(text: Option<&str>) -> Arg<'_> {
    text.map_or(Arg::Null, Arg::Text)
}

/// What the rows of a verb's call mean.
pub(in crate::store::database) fn outcome(verb: &Verb, rows: Vec<SqlRow>) -> Result<Outcome> {
    Ok(match verb {
        Verb::BeginDialog(_) => {
            let row = only(&rows)?;
            Outcome::Began {
                handle: ConversationHandle(row.uuid("conversation_handle")?),
                group: GroupId(row.uuid("conversation_group_id")?),
                conversation_id: ConversationId(row.uuid("conversation_id")?),
            }
        }
        Verb::Receive { .. } => Outcome::Received(messages(rows)?.into_iter().map(|(_, message)| message).collect()),
        Verb::GetConversationGroup { .. } => {
            let group = match rows.is_empty() {
                true => None,
                false => only(&rows)?.maybe_uuid("conversation_group_id")?,
            };
            Outcome::Group(group.map(GroupId))
        }
        Verb::EndConversation { .. } => {
            let state = only(&rows)?.text("state")?;
            let known = ConversationState::from_code(state.trim_end());
            Outcome::Ended(known.ok_or_else(|| damaged(format!("'{state}' is no state of a conversation")))?)
        }
        Verb::GetTransmissionStatus { .. } => {
            let status = match rows.is_empty() {
                true => None,
                false => only(&rows)?.maybe_text("transmission_status")?,
            };
            Outcome::Text(status.unwrap_or_default().to_owned())
        }
        _ => Outcome::Done,
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
