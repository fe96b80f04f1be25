//! The words with which a statement of the user's may not begin, because Dialoq opens and ends transactions. If a later
//! statement of the batch ends the transaction, the server finds it (266, 3902).

use crate::error::{Code, Error};
use crate::store::database::link::{Failure, Fate, Linked};
use crate::store::statement::first_word;

/// Refuses a statement that opens, marks or ends a transaction.
pub(super) fn guard(text: &str) -> Linked<()> {
    let (word, rest) = first_word(text);
    let forbidden = match word.as_str() {
        "COMMIT" | "ROLLBACK" | "SAVE" => true,
        // BEGIN alone opens a block of statements.
        "BEGIN" => ["TRAN", "TRANSACTION", "DISTRIBUTED"].contains(&first_word(rest).0.as_str()),
        _ => false,
    };
    if !forbidden {
        return Ok(());
    }
    let message = format!(
        "the statement failed: {word} belongs to Dialoq, which opens and ends transactions; use a Tx and its savepoints"
    );
    let error = Error::new(Code::USER_SQL_FAILED, message);
    Err(Failure { error, fate: Fate::Undone, is_link_usable: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_statements_are_refused() {
        for text in
            ["commit", "/* so */ ROLLBACK TRAN x", "save transaction a", "begin  tran", "BEGIN DISTRIBUTED TRAN"]
        {
            let failure = guard(text).expect_err(text);
            assert_eq!((failure.error.code(), failure.fate), (Code::USER_SQL_FAILED, Fate::Undone));
        }
        for text in ["", "BEGIN SELECT 1 END", "BEGIN TRY SELECT 1 END TRY BEGIN CATCH END CATCH", "SELECT 'COMMIT'"] {
            assert!(guard(text).is_ok(), "{text}");
        }
    }
}
