//! Texts of `sql/postgres/session` and `transaction` with placeholders, and which queries are the library's own.

use crate::sql::postgres::{doctor, inspect, session, status, transaction, work};
use crate::store::url::Durability;
use std::time::Duration;
use uuid::Uuid;

/// The call of one of our functions with that number of arguments.
pub(super) fn call(name: &str, arguments: usize) -> String {
    filled_call(session::CALL, name, arguments)
}

/// The same in one flight with BEGIN: it fails if the server refuses to begin.
pub(super) fn call_after_begin(name: &str, arguments: usize) -> String {
    filled_call(session::CALL_AFTER_BEGIN, name, arguments)
}

fn filled_call(text: &str, name: &str, arguments: usize) -> String {
    let places: Vec<String> = (1..=arguments).map(|place| format!("${place}")).collect();
    text.replace("{name}", name).replace("{arguments}", &places.join(", "))
}

/// Readies a session.
pub(super) fn connect(durability: Durability) -> String {
    let level = match durability {
        Durability::Full => session::DURABILITY_FULL,
        Durability::Normal => session::DURABILITY_NORMAL,
    };
    session::CONNECT.replace("{durability}", level.trim_end())
}

/// Limits each statement after it; for the session if no transaction is open.
pub(super) fn limit(limit: Duration, is_in_transaction: bool) -> String {
    let text = transaction::LIMIT.replace("{is_local}", if is_in_transaction { "true" } else { "false" });
    text.replace("{milliseconds}", &milliseconds(limit))
}

/// Ends that limit, in its transaction.
pub(super) fn no_limit(limit: Duration) -> String {
    transaction::NO_LIMIT.replace("{milliseconds}", &milliseconds(limit))
}

pub(super) fn savepoint(number: u32) -> String {
    numbered(transaction::SAVEPOINT, number)
}

pub(super) fn release(number: u32) -> String {
    numbered(transaction::RELEASE, number)
}

pub(super) fn rollback_to(number: u32) -> String {
    numbered(transaction::ROLLBACK_TO, number)
}

/// Takes the lock of a group alone that the transaction shares with a claim.
pub(super) fn hold_group(group: Uuid) -> String {
    transaction::HOLD_GROUP.replace("{group}", &group.to_string())
}

/// Whether a query is one of the library's own, about the broker's state: its operators are PostgreSQL's own, whatever the
/// search path of the user says.
pub(super) fn is_ours(text: &str) -> bool {
    let folders = [status::SCRIPTS, doctor::SCRIPTS, inspect::SCRIPTS, work::SCRIPTS];
    folders.into_iter().flatten().any(|script| script.text == text)
}

fn milliseconds(limit: Duration) -> String {
    limit.as_millis().clamp(1, i32::MAX as u128).to_string()
}

fn numbered(text: &str, number: u32) -> String {
    text.replace("{number}", &number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off_and_places_are_filled() {
        assert!(transaction::BEGIN.starts_with("BEGIN"), "{}", transaction::BEGIN);
        assert!(call("send", 3).ends_with("dialoq.send($1, $2, $3) /* client */"), "{}", call("send", 3));
        let after_begin = call_after_begin("send", 3);
        assert!(after_begin.ends_with("dialoq.send($1, $2, $3) /* client */"), "{after_begin}");
        assert!(savepoint(7).ends_with("dialoq_7"));
        assert!(rollback_to(7).ends_with("dialoq_7"));
    }
}
