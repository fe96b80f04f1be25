//! Plain SQLite, and the results of statements that are compared with its own.

use super::*;
use rusqlite::types::Value;

/// The result of a statement.
#[derive(Debug, PartialEq)]
pub(super) enum Reported {
    Count(u64),
    Rows(Vec<Vec<SqlValue>>),
    Refused(String),
}

/// A statement that has run.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) statement: SqlStatement,
    pub(super) is_query: bool,
    pub(super) reported: Reported,
    pub(super) is_proven: bool,
}

impl Ran {
    /// Whether it has certainly written, so that later queries are proved. A definition with IF may have had nothing to do.
    pub(super) fn has_written(&self) -> bool {
        let text = &self.statement.text;
        !matches!(self.reported, Reported::Refused(_)) && !text.starts_with("select") && !text.contains(" exists ")
    }

    /// SQLite has undone the whole transaction: the refusal is not proved, and the statement has left nothing.
    pub(super) fn is_left_out(&self) -> bool {
        let Reported::Refused(why) = &self.reported else { return false };
        let is_of_a_row = why.contains("constraint failed") && !why.contains("FOREIGN KEY");
        is_of_a_row && self.statement.text.contains(" or rollback ")
    }
}

/// Plain SQLite.
pub(super) struct Plain(rusqlite::Connection);

impl Plain {
    pub(super) fn open() -> Self {
        Self(rusqlite::Connection::open_in_memory().unwrap())
    }

    pub(super) fn do_all(&self, text: &str) {
        self.0.execute_batch(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    pub(super) fn rows(&self, text: &str) -> rusqlite::Result<Vec<Vec<SqlValue>>> {
        let mut prepared = self.0.prepare(text)?;
        let width = prepared.column_count();
        let value = |value| match value {
            Value::Null => SqlValue::Null,
            Value::Integer(number) => SqlValue::Integer(number),
            Value::Real(number) => SqlValue::Real(number),
            Value::Text(text) => SqlValue::Text(text),
            Value::Blob(bytes) => SqlValue::Blob(bytes),
        };
        let row = |row: &rusqlite::Row<'_>| (0..width).map(|place| row.get(place).map(value)).collect();
        prepared.query_map([], row)?.collect()
    }

    /// Runs a statement; one that fails is undone alone. OR ROLLBACK would undo the transaction, which the store never lets
    /// a statement do.
    pub(super) fn run(&self, statement: &SqlStatement, is_query: bool) -> Reported {
        self.do_all("savepoint one");
        let before = self.0.total_changes();
        let reported = match self.rows(&statement.text.replace("or rollback", "or abort")) {
            Err(rusqlite::Error::SqlInputError { msg, .. }) => Reported::Refused(msg),
            Err(error) => Reported::Refused(error.to_string()),
            Ok(rows) if is_query => Reported::Rows(rows),
            Ok(_) => {
                let keeps_count =
                    ["create", "drop", "alter", "reindex"].iter().any(|word| statement.text.starts_with(word));
                let is_same = keeps_count || self.0.total_changes() == before;
                let changed = if is_same { 0 } else { self.0.changes() };
                match statement.expected_rows {
                    Some(expected) if expected != changed => Reported::Refused(format!("it changed {changed} rows")),
                    _ => Reported::Count(changed),
                }
            }
        };
        if matches!(reported, Reported::Refused(_)) {
            self.do_all("rollback to one");
        }
        self.do_all("release one");
        reported
    }

    /// Runs the statements of a transaction. Returns each result that is another one here, and whether it is proved.
    pub(super) fn differences(&self, ran: &[Ran]) -> Vec<(bool, String)> {
        self.do_all("begin");
        let mut differences = Vec::new();
        for ran in ran.iter().filter(|ran| !ran.is_left_out()) {
            let here = self.run(&ran.statement, ran.is_query);
            if !is_same(&ran.reported, &here) {
                differences.push((ran.is_proven, format!("{ran:?}: SQLite gives {here:?}")));
            }
        }
        differences
    }

    /// Whether the open transaction could be committed; else it is rolled back.
    pub(super) fn commit(&self) -> bool {
        let is_committed = self.0.execute_batch("commit").is_ok();
        if !is_committed {
            self.do_all("rollback");
        }
        is_committed
    }
}

/// The store's refusal names the statement too.
pub(super) fn is_same(ours: &Reported, plain: &Reported) -> bool {
    match (ours, plain) {
        (Reported::Refused(ours), Reported::Refused(plain)) => ours.contains(plain),
        (ours, plain) => ours == plain,
    }
}
