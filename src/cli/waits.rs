//! What is said of a change that waits for a session.

use super::output::{Output, printable, printable_name};
use dialoq::status::{ConversationFilter, LockHolder};
use dialoq::{Broker, ConversationHandle, GroupId, Position, Timestamp};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

/// How long a change waits before the command says for which session. Most waits end sooner.
const SILENT: Duration = Duration::from_secs(2);
/// Of so many sides of a definition it is asked which session holds one: each takes a question to the store.
const MOST_SIDES: u32 = 100;

/// Runs a change of a side, which may also need another group. If a session holds a group for long, a note on standard error names
/// it, once: the change waits for as long as that session does, which looked like a command that hangs.
pub(super) async fn naming_the_holder<T>(
    broker: &Broker,
    handle: Option<ConversationHandle>,
    group: Option<GroupId>,
    output: &Output,
    change: impl Future<Output = T>,
) -> T {
    let note = async {
        tokio::time::sleep(SILENT).await;
        holder(broker, handle, group).await
    };
    with_note(note, output, change).await
}

/// The same for the statements of a script that need all conversations of a service or a contract at one moment. The note names the
/// place of the statement.
pub(super) async fn naming_the_statement<T>(
    broker: &Broker,
    file: &str,
    script: &str,
    output: &Output,
    change: impl Future<Output = T>,
) -> T {
    // If the script is refused, it waits for nothing.
    let needed = dialoq::internals::conversations_needed(broker, script).unwrap_or_default();
    let began = broker.clock().now();
    let note = async {
        loop {
            tokio::time::sleep(SILENT).await;
            for (Position { line, column }, filter) in &needed {
                if let Some(note) = holder_of_any(broker, filter, began).await {
                    return Some(format!("{}:{line}:{column}: {note}", printable_name(file)));
                }
            }
        }
    };
    with_note(note, output, change).await
}

/// Runs a change, and writes a note on standard error if there is one before the change is done.
async fn with_note<T>(
    note: impl Future<Output = Option<String>>,
    output: &Output,
    change: impl Future<Output = T>,
) -> T {
    let mut change = pin!(change);
    let note = async {
        if let Some(note) = note.await {
            output.note(&note);
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        done = &mut change => done,
        never = note => never,
    }
}

/// That a session holds one of these conversations. A transaction that began later may be one in which the change itself is tried.
async fn holder_of_any(broker: &Broker, filter: &ConversationFilter, began: Timestamp) -> Option<String> {
    let sides = broker.conversations(filter, MOST_SIDES).await.ok()?;
    let groups: BTreeSet<GroupId> = sides.iter().map(|side| side.conversation_group_id).collect();
    for group in groups {
        if let Some(note) = holder_of(broker, group, Some(began)).await {
            return Some(note);
        }
    }
    let may_be_more = sides.len() >= MOST_SIDES as usize;
    may_be_more.then(|| "waits, perhaps for transactions that hold conversations; ctrl-C ends the wait".to_owned())
}

async fn holder(broker: &Broker, handle: Option<ConversationHandle>, group: Option<GroupId>) -> Option<String> {
    let own = match handle {
        None => None,
        Some(handle) => {
            let filter = ConversationFilter { id: Some(handle.0), ..ConversationFilter::default() };
            let sides = broker.conversations(&filter, 1).await.ok()?;
            sides.first().map(|side| side.conversation_group_id)
        }
    };
    for group in own.into_iter().chain(group) {
        if let Some(note) = holder_of(broker, group, None).await {
            return Some(note);
        }
    }
    None
}

/// That a session holds this group, if one does in a transaction that is not known to have begun since then.
async fn holder_of(broker: &Broker, group: GroupId, began: Option<Timestamp>) -> Option<String> {
    let is_late = |holder: &LockHolder| holder.since.zip(began).is_some_and(|(since, began)| since >= began);
    match broker.lock_holder(group).await {
        Ok(None) => None,
        Ok(Some(holder)) if is_late(&holder) => None,
        Ok(Some(holder)) => {
            let holder = holder.to_string();
            let holder = printable(&holder);
            Some(format!("waits for conversation group {group}, held by {holder}; ctrl-C ends the wait"))
        }
        Err(error) => {
            let why = printable(error.message());
            Some(format!("waits, perhaps for conversation group {group}: which session holds it is not known: {why}"))
        }
    }
}
