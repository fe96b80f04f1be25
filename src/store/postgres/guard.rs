//! What a statement of the user's may not be. Transactions and the session are Dialoq's: one that ends the one or clears the
//! other is refused.

use super::failure::Asked;
use super::link::refuse;
use crate::store::server::link::Linked;

const FORBIDDEN: [&str; 12] = [
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "DISCARD",
    "DEALLOCATE",
    "LISTEN",
    "UNLISTEN",
];

/// Refuses it by its first word: the server takes one statement at a time.
pub(super) fn guard(text: &str) -> Linked<()> {
    let rest = beginning(text);
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let word = rest[..end].to_ascii_uppercase();
    let is_prepared_transaction =
        word == "PREPARE" && beginning(&rest[end..]).to_ascii_uppercase().starts_with("TRANSACTION");
    if FORBIDDEN.contains(&word.as_str()) || is_prepared_transaction {
        let why = format!("{word} belongs to Dialoq, which opens and ends transactions; use a Tx and its savepoints");
        return Err(refuse(Asked::Users(text), &why));
    }
    Ok(())
}

/// The text from its first word on: without comments, which may hold others, and without empty statements.
fn beginning(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.find(['\n', '\r']).map_or("", |end| &comment[end..])
        } else if rest.starts_with("/*") {
            after_comment(rest)
        } else {
            return rest;
        };
    }
}

fn after_comment(text: &str) -> &str {
    let (mut rest, mut depth) = (text, 0);
    loop {
        if let Some(inner) = rest.strip_prefix("/*") {
            (rest, depth) = (inner, depth + 1);
        } else if let Some(after) = rest.strip_prefix("*/") {
            (rest, depth) = (after, depth - 1);
            if depth == 0 {
                return rest;
            }
        } else {
            let mut characters = rest.chars();
            if characters.next().is_none() {
                return "";
            }
            rest = characters.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_transaction_is_found_behind_whatever_means_nothing() {
        for text in [
            "COMMIT",
            " -- so\n/* and so */ rollback",
            "-- so\rend",
            "/* a /* b */ c */ COMMIT",
            ";; /* */ ; abort",
            "prepare /* it */ transaction 'x'",
            "DISCARD ALL",
        ] {
            assert!(guard(text).is_err(), "{text}");
        }
        for text in
            ["", "-- COMMIT", "/* COMMIT", "/* /* */ COMMIT", "select 'COMMIT'", "prepare x as select 1", "ends"]
        {
            assert!(guard(text).is_ok(), "{text}");
        }
    }
}
