//! A statement of the user, and what its text tells: found once by its caller, because the writer runs the statement twice.

use crate::store::SqlStatement;
use crate::store::statement::first_word;
use std::ops::Deref;

/// The functions whose values depend on the statements before. A name in quotes, in a trigger or in a view has these letters
/// too; other texts with them cost a little time.
const OF_THE_LAST_ROW: [&str; 2] = ["last_insert_rowid", "changes"];

/// A statement that the connection that writes is to run.
#[derive(Debug)]
pub(super) struct KnownStatement {
    statement: SqlStatement,
    /// Whether it makes, changes or drops a table or the like.
    pub(super) is_definition: bool,
    /// Whether the schema may be another one after it. ANALYZE makes tables of its own.
    pub(super) may_change_schema: bool,
    /// Whether it may ask for the last row, or for how many rows were changed.
    pub(super) may_read_last_row: bool,
}

impl From<SqlStatement> for KnownStatement {
    fn from(statement: SqlStatement) -> Self {
        let first_word = first_word(&statement.text).0;
        let is_definition = matches!(&*first_word, "CREATE" | "ALTER" | "DROP");
        let may_change_schema = is_definition || matches!(&*first_word, "ANALYZE" | "REINDEX" | "VACUUM");
        let may_read_last_row = OF_THE_LAST_ROW.iter().any(|name| has(&statement.text, name));
        Self { statement, is_definition, may_change_schema, may_read_last_row }
    }
}

impl Deref for KnownStatement {
    type Target = SqlStatement;

    fn deref(&self) -> &SqlStatement {
        &self.statement
    }
}

/// Whether a text has these letters, capital or not.
fn has(text: &str, letters: &str) -> bool {
    text.as_bytes().windows(letters.len()).any(|part| part.eq_ignore_ascii_case(letters.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_tells_what_a_statement_may_do() {
        for (text, expected) in [
            ("INSERT INTO t VALUES (1)", (false, false, false)),
            ("/* a */ ; create table t (n)", (true, true, false)),
            ("analyze", (false, true, false)),
            ("select Last_Insert_RowId()", (false, false, true)),
            ("select \"CHANGES\"()", (false, false, true)),
            ("select total_changes()", (false, false, true)),
            ("", (false, false, false)),
        ] {
            let (text, params) = (text.to_owned(), Vec::new());
            let known = KnownStatement::from(SqlStatement { text, params, expected_rows: None });
            let found = (known.is_definition, known.may_change_schema, known.may_read_last_row);
            assert_eq!(found, expected, "{}", known.text);
        }
    }
}
