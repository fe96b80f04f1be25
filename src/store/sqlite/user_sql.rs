//! The user's own SQL: bound, guarded, and counted.

use super::batch::{WriteSide, writing};
use super::failure::user;
use super::guard::{self, Guard};
use super::limit::{Caller, Limits};
use super::write::strike;
use crate::error::{Error, Result};
use crate::sql::sqlite::transaction::{RELEASE, ROLLBACK_TO, SAVEPOINT};
use crate::store::statement::first_word;
use crate::store::{SqlRow, SqlRows, SqlStatement, SqlValue};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Statement, ToSql, params_from_iter};
use std::sync::Arc;

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Integer(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Self::Real(number) => ToSqlOutput::Owned(Value::Real(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::Uuid(id) => ToSqlOutput::Borrowed(ValueRef::Blob(id.as_bytes())),
        })
    }
}

/// The statements of one transaction.
pub(super) struct UserUnit<'a> {
    pub(super) sql: &'a [SqlStatement],
    /// Their caller, if they may be given up when it leaves.
    pub(super) caller: Option<&'a Caller>,
}

impl UserUnit<'_> {
    fn failed(&self, why: impl std::fmt::Display) -> Error {
        user(self.sql.last().map_or("", |statement| &statement.text), why)
    }
}

/// Runs the statements of one transaction, all or none. The outer error is the store's own failure.
pub(super) fn run_unit(side: &WriteSide, unit: &UserUnit<'_>) -> Result<Result<u64>> {
    let connection = &side.connection;
    let run = |text| {
        strike(side.fault.as_deref(), || connection.prepare_cached(text)?.execute([])).map(drop).map_err(writing)
    };
    run(SAVEPOINT)?;
    side.guard.take_defined();
    let one = |statement: &SqlStatement| {
        let watch = &side.guard.watch;
        watch.run(&side.limits, &statement.text, unit.caller, || side.guard.guarded(|| run_one(connection, statement)))
    };
    let mut verdict = unit.sql.iter().try_fold(0, |changed, statement| Ok(changed + one(statement)?));
    if verdict.is_ok()
        && let Err(error) = write_virtual_tables(connection)
    {
        verdict = Err(unit.failed(&error).caused_by(error));
    }
    if verdict.is_ok()
        && side.guard.take_defined()
        && let Some(why) = side.reserved.fault(connection).map_err(writing)?
    {
        verdict = Err(unit.failed(why));
    }
    if verdict.is_ok() && side.deferred_keys.are_broken(connection).map_err(writing)? {
        verdict = Err(unit.failed("its transaction cannot be committed: a row breaks a deferred foreign key"));
    }
    if let Err(error) = &verdict {
        // After SQLITE_CORRUPT, SQLite refuses each later write of the transaction, so that the others start again
        // without this unit.
        if is_damage(error) {
            side.roll_back();
        }
        // ON CONFLICT ROLLBACK, or a statement that was stopped, has taken the savepoint with it.
        if !connection.is_autocommit() {
            run(ROLLBACK_TO)?;
            run(RELEASE)?;
        }
    } else {
        run(RELEASE)?;
    }
    Ok(verdict)
}

/// Makes virtual tables, such as full-text search, write their buffers: a savepoint does that. Otherwise they would
/// write at the commit, and a failure would be the failure of every transaction of the batch.
fn write_virtual_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached(SAVEPOINT)?.execute([])?;
    connection.prepare_cached(RELEASE)?.execute([]).map(drop)
}

/// Runs one statement and gives the number of rows it changed.
fn run_one(connection: &Connection, statement: &SqlStatement) -> Result<u64> {
    let mut prepared = prepare(connection, statement)?;
    let before = connection.total_changes();
    let mut run = || -> rusqlite::Result<()> {
        let mut rows = prepared.query(params_from_iter(&statement.params))?;
        while rows.next()?.is_some() {}
        Ok(())
    };
    run().map_err(|error| refused(statement, error))?;
    // Definitions and queries do not reset the count of the statement before.
    let changed = if connection.total_changes() == before { 0 } else { connection.changes() };
    match statement.expected_rows {
        Some(expected) if expected != changed => Err(user(
            &statement.text,
            format!("it changed {changed} rows where {expected} were expected; its transaction is rolled back"),
        )),
        _ => Ok(changed),
    }
}

/// Checks a statement without running it.
pub(super) fn check(connection: &Connection, guard: &Guard, statement: &SqlStatement) -> Result<()> {
    guard.guarded(|| prepare(connection, statement).map(drop))
}

/// Runs a query.
pub(super) fn query(
    connection: &Connection,
    guard: &Guard,
    limits: &Limits,
    statement: &SqlStatement,
    caller: Option<&Caller>,
) -> Result<SqlRows> {
    guard.watch.run(limits, &statement.text, caller, || guard.guarded(|| read_all(connection, statement)))
}

fn read_all(connection: &Connection, statement: &SqlStatement) -> Result<SqlRows> {
    let mut prepared = prepare(connection, statement)?;
    if !prepared.readonly() {
        return Err(user(&statement.text, "a query may only read; run it as a statement of a transaction"));
    }
    let columns: Arc<[String]> = prepared.column_names().map(str::to_owned).collect();
    let mut read = || -> rusqlite::Result<Vec<SqlRow>> {
        let mut found = Vec::new();
        let mut rows = prepared.query(params_from_iter(&statement.params))?;
        while let Some(row) = rows.next()? {
            let values =
                (0..columns.len()).map(|place| row.get_ref(place).map(value)).collect::<rusqlite::Result<_>>()?;
            found.push(SqlRow { columns: columns.clone(), values });
        }
        Ok(found)
    };
    let rows = read().map_err(|error| refused(statement, error))?;
    Ok(SqlRows { columns, rows })
}

/// Whether the statement makes or changes tables, so that statements after it cannot be checked before it has run.
pub(super) fn defines(statement: &SqlStatement) -> bool {
    matches!(first_word(&statement.text).0.as_str(), "CREATE" | "ALTER" | "DROP")
}

fn prepare<'c>(connection: &'c Connection, statement: &SqlStatement) -> Result<Statement<'c>> {
    if statement.text.trim().is_empty() {
        return Err(user(&statement.text, "it is empty"));
    }
    let prepared = connection.prepare(&statement.text).map_err(|error| refused(statement, error))?;
    let (wanted, given) = (prepared.parameter_count(), statement.params.len());
    if wanted != given {
        return Err(user(&statement.text, format!("it has {wanted} parameters and was given {given}")));
    }
    Ok(prepared)
}

fn refused(statement: &SqlStatement, error: rusqlite::Error) -> Error {
    let refusal = match (guard::explain(&error), &error) {
        (Some(why), _) => user(&statement.text, why),
        (None, rusqlite::Error::MultipleStatement) => {
            user(&statement.text, "it holds several statements; give them one by one")
        }
        (None, error) => user(&statement.text, error),
    };
    refusal.caused_by(error)
}

/// Whether the user's SQL met damaged pages or rows: of its own tables, for example a full-text index whose shadow table
/// another program has dropped.
fn is_damage(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
    cause.and_then(rusqlite::Error::sqlite_error_code) == Some(rusqlite::ErrorCode::DatabaseCorrupt)
}

fn value(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Integer(number),
        ValueRef::Real(number) => SqlValue::Real(number),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
    }
}
