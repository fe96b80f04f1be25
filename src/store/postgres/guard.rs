//! Refuses statements of the user that change the transaction or the session, because the session serves other callers
//! afterwards. A session that ran a user's statement is reset when it returns to the pool, because a function can change
//! it too (`sql/postgres/session/reset.sql`).

use super::failure::Asked;
use super::link::refuse;
use crate::store::database::link::Linked;
use crate::store::statement::{copies_through_the_connection, first_word};

const FORBIDDEN: [&str; 16] = [
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
    "RESET",
    "PREPARE",
    "EXECUTE",
    "LOAD",
];

/// Refuses a statement by its first word: the server takes one statement at a time.
pub(super) fn guard(text: &str) -> Linked<()> {
    let (word, rest) = first_word(text);
    if FORBIDDEN.contains(&word.as_str()) {
        let why = format!("{word} belongs to Dialoq, which opens and ends transactions; use a Tx and its savepoints");
        return Err(refuse(Asked::Users(text), &why));
    }
    if word == "COPY" && copies_through_the_connection(rest) {
        let why = "COPY FROM STDIN and TO STDOUT send rows beside the statement, which this connection does not do; use INSERT or \
                   SELECT, COPY with a file of the server, or a connection of your own";
        return Err(refuse(Asked::Users(text), why));
    }
    // LOCAL, TRANSACTION and CONSTRAINTS change the transaction only.
    if word == "SET" && !["LOCAL", "TRANSACTION", "CONSTRAINTS"].contains(&first_word(rest).0.as_str()) {
        let why = "SET would outlast the transaction on a connection that others use; write SET LOCAL in a Tx (a role ends before the \
                   next verb and the commit by SET LOCAL ROLE NONE), or set it for \
                   the role with ALTER ROLE ... SET";
        return Err(refuse(Asked::Users(text), why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_end_a_transaction_are_refused() {
        for text in [
            "COMMIT",
            " -- so\n rollback",
            "prepare /* it */ transaction 'x'",
            "prepare x as select 1",
            "execute x",
            "DISCARD ALL",
            "set role dialoq_user",
            "SET SESSION AUTHORIZATION x",
            "set /* LOCAL */ statement_timeout = 1",
            "reset all",
            "copy t from stdin",
            "COPY t (a, \"from\") FROM/* */STDIN WITH (FORMAT csv)",
            "copy (select 'it''s' from t) to -- so\n stdout",
            "copy t from stdout",
            "copy binary t from stdin",
            "copy (select $a$ ( $a$) to stdout",
        ] {
            assert!(guard(text).is_err(), "{text}");
        }
        for text in [
            "copy stdin from '/stdin'",
            "copy t to program 'to stdout'",
            "copy \"from stdin\" to '/a'",
            "copy (select 1 from stdin) to '/a'",
            "",
            "-- COMMIT",
            "select 'COMMIT'",
            "set local work_mem = '1MB'",
            "set constraints all deferred",
            "ends",
        ] {
            assert!(guard(text).is_ok(), "{text}");
        }
    }
}
