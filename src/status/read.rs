//! Rows of the inspecting queries as values.

use super::damaged;
use crate::error::Result;
use crate::protocol::ConversationState;
use crate::store::SqlRow;
use uuid::Uuid;

pub(super) fn state(row: &SqlRow) -> Result<ConversationState> {
    let code: String = row.own("state")?;
    ConversationState::from_code(code.trim_end())
        .ok_or_else(|| damaged(&format!("a conversation endpoint has state '{code}', which does not exist")))
}

/// A list of ids as the queries take it.
pub(super) fn list<'a>(ids: impl IntoIterator<Item = &'a Uuid>) -> String {
    let mut list = String::new();
    for id in ids {
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&id.to_string());
    }
    list
}
