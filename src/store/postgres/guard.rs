//! What a statement of the user's may not be. Transactions and the session are Dialoq's: one that ends the one or clears the
//! other is refused.

use super::failure::Asked;
use super::link::refuse;
use crate::store::server::link::Linked;
use crate::store::statement::first_word;

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
    let (word, rest) = first_word(text);
    let is_prepared_transaction = word == "PREPARE" && first_word(rest).0 == "TRANSACTION";
    if FORBIDDEN.contains(&word.as_str()) || is_prepared_transaction {
        let why = format!("{word} belongs to Dialoq, which opens and ends transactions; use a Tx and its savepoints");
        return Err(refuse(Asked::Users(text), &why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_transaction_is_refused() {
        for text in ["COMMIT", " -- so\n rollback", "prepare /* it */ transaction 'x'", "DISCARD ALL"] {
            assert!(guard(text).is_err(), "{text}");
        }
        for text in ["", "-- COMMIT", "select 'COMMIT'", "prepare x as select 1", "ends"] {
            assert!(guard(text).is_ok(), "{text}");
        }
    }
}
