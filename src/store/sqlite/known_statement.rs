//! A statement of the user, and what its text tells: found once by its caller, because the writer runs the statement twice.

use crate::store::SqlStatement;
use std::ops::Deref;

/// The functions whose values depend on the statements before. A name in quotes, in a trigger or in a view has these letters
/// too; other texts with them cost a little time.
const OF_THE_LAST_ROW: [&str; 2] = ["last_insert_rowid", "changes"];

/// A statement that the connection that writes is to run.
#[derive(Debug)]
pub(super) struct KnownStatement {
    statement: SqlStatement,
    /// Whether the schema may be another one after it. ANALYZE makes tables of its own.
    pub(super) may_change_schema: bool,
    /// Whether it may ask for the last row, or for how many rows were changed.
    pub(super) may_read_last_row: bool,
}

impl From<SqlStatement> for KnownStatement {
    fn from(statement: SqlStatement) -> Self {
        let text = beginning(&statement.text);
        let first_word = &text[..text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len())];
        let is_one_of = |words: &[&str]| words.iter().any(|word| first_word.eq_ignore_ascii_case(word));
        let may_change_schema = is_one_of(&["CREATE", "ALTER", "DROP", "ANALYZE", "REINDEX", "VACUUM"]);
        let may_read_last_row = OF_THE_LAST_ROW.iter().any(|name| has(&statement.text, name));
        Self { statement, may_change_schema, may_read_last_row }
    }
}

impl Deref for KnownStatement {
    type Target = SqlStatement;

    fn deref(&self) -> &SqlStatement {
        &self.statement
    }
}

/// The text from its first word on, as SQLite reads it. Unlike on servers, comments are not nested, only '\n' ends a comment of
/// one line, and a byte order mark is a space. A definition that was not noticed left out the check of its foreign keys, and
/// the commit of every caller failed.
pub(super) fn beginning(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r', '\u{feff}', ';']);
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            return rest;
        };
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
            ("INSERT INTO t VALUES (1)", (false, false)),
            ("/* a */ ; create table t (n)", (true, false)),
            ("analyze", (true, false)),
            ("\u{feff}Drop table t", (true, false)),
            ("-- a\rSELECT\n /* /* */ alter table t add n", (true, false)),
            ("-- a\rCREATE", (false, false)),
            (" \u{b}CREATE TABLE t (n)", (true, false)),
            ("/*/ CREATE */ insert into t values (1)", (false, false)),
            ("select Last_Insert_RowId()", (false, true)),
            ("select \"CHANGES\"()", (false, true)),
            ("select total_changes()", (false, true)),
            ("", (false, false)),
        ] {
            let (text, params) = (text.to_owned(), Vec::new());
            let known = KnownStatement::from(SqlStatement { text, params, expected_rows: None });
            let found = (known.may_change_schema, known.may_read_last_row);
            assert_eq!(found, expected, "{}", known.text);
        }
    }
}
