//! What is said of a change that waits for a session.

use super::output::{Output, printable};
use dialoq::status::ConversationFilter;
use dialoq::{Broker, ConversationHandle, GroupId};
use std::pin::pin;
use std::time::Duration;

/// How long a change waits before the command says for which session. Most waits end sooner.
const SILENT: Duration = Duration::from_secs(2);

/// Runs a change of a side, which may also need another group. If a session holds a group for long, a note on standard error names
/// it, once: the change waits for as long as that session does, which looked like a command that hangs.
pub(super) async fn naming_the_holder<T>(
    broker: &Broker,
    handle: Option<ConversationHandle>,
    group: Option<GroupId>,
    output: &Output,
    change: impl Future<Output = T>,
) -> T {
    let mut change = pin!(change);
    let note = async {
        tokio::time::sleep(SILENT).await;
        if let Some(note) = holder(broker, handle, group).await {
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
        match broker.lock_holder(group).await {
            Ok(None) => {}
            Ok(Some(holder)) => {
                let holder = holder.to_string();
                let holder = printable(&holder);
                return Some(format!("waits for conversation group {group}, held by {holder}; ctrl-C ends the wait"));
            }
            Err(error) => {
                let why = printable(error.message());
                return Some(format!(
                    "waits, perhaps for conversation group {group}: which session holds it is not known: {why}"
                ));
            }
        }
    }
    None
}
