//! Rows of the inspecting queries as values.

use super::{damaged, flag};
use crate::error::Result;
use crate::protocol::ConversationState;
use crate::store::SqlRow;
use crate::time::Timestamp;
use uuid::Uuid;

/// Each dialect writes an id as text, with hyphens or without.
pub(super) fn id(row: &SqlRow, column: &str) -> Result<Uuid> {
    let text: String = row.get(column)?;
    Uuid::parse_str(&text).map_err(|_| damaged(&format!("'{text}' in column '{column}' is no id")))
}

pub(super) fn time(row: &SqlRow, column: &str) -> Result<Timestamp> {
    Ok(Timestamp(row.get(column)?))
}

pub(super) fn maybe_time(row: &SqlRow, column: &str) -> Result<Option<Timestamp>> {
    Ok(row.get::<Option<i64>>(column)?.map(Timestamp))
}

pub(super) fn state(row: &SqlRow) -> Result<ConversationState> {
    let code: String = row.get("state")?;
    ConversationState::from_code(code.trim_end())
        .ok_or_else(|| damaged(&format!("a conversation endpoint has state '{code}', which does not exist")))
}

pub(super) fn is(row: &SqlRow, column: &str) -> Result<bool> {
    flag(row, column)
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
