//! The user's own SQL: bound, guarded, and counted.

use super::batch::{WriteSide, writing};
use super::disk_room::DiskRoom;
use super::failure::{user, user_failed};
use super::guard::{self, Guard};
use super::known_schema::SchemaFacts;
use super::known_statement::{KnownStatement, beginning};
use super::limit::{Caller, Limits, disk_full};
use super::moment::Moment;
use super::parameters::places;
use super::script::{self, Done, Form, Reported, Script, SharedScript, Step};
use crate::error::{Code, Error, Result};
use crate::sql::sqlite::read::CURRENT_SCHEMA;
use crate::sql::sqlite::transaction::{RELEASE, RESET_LAST_ROW, ROLLBACK_TO, SAVEPOINT};
use crate::store::url::LARGEST_BODY_BYTES;
use crate::store::{SqlRow, SqlRows, SqlStatement, SqlValue};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection, Statement, ToSql, params_from_iter};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

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

/// Begins the text of a statement of the user in the cache of the connection that writes.
const OF_THE_USER: &str = "/* of the user */ ";
/// The longest statement that is kept prepared, in bytes: a list of values written out is not used again.
const LONGEST_KEPT: usize = 4096;

/// The user's SQL of one commit.
pub(super) struct UserUnit<'a> {
    pub(super) work: &'a UserWork,
    /// Its caller, if it may be given up when the caller leaves.
    pub(super) caller: Option<&'a Caller>,
}

/// SQL that a commit runs.
pub(super) enum UserWork {
    /// A statement outside a transaction: it runs once.
    Once(KnownStatement),
    /// The statements of a transaction, which must do what they did when the caller awaited them.
    Again(SharedScript),
}

impl UserUnit<'_> {
    fn failed(&self, why: impl std::fmt::Display) -> Error {
        match self.work {
            UserWork::Once(statement) => user(&statement.text, why),
            UserWork::Again(script) => user(script::lock(script).last_text(), why),
        }
    }

    /// Runs the statements.
    fn run(&self, side: &WriteSide, facts: SchemaFacts) -> Result<Result<u64>> {
        match self.work {
            UserWork::Once(statement) => {
                side.moments.set(&Moment::now());
                if statement.may_read_last_row || facts.may_read_last_row {
                    side.run(RESET_LAST_ROW).map_err(writing)?;
                }
                Ok(watched(side, statement, Keep::Nothing, self.caller).map(|done| done.changed))
            }
            UserWork::Again(script) => Ok(replay(side, &script::lock(script), self.caller, facts)?.map(|()| 0)),
        }
    }
}

/// Runs the statements of one commit, all or none. The outer error is the store's own failure.
///
/// A transaction has done the same when its caller awaited it, so it hardly ever fails here. Unless `is_apart`, it has no savepoint
/// then: a failure undoes the whole transaction of SQLite, and the others start again.
pub(super) fn run_unit(side: &WriteSide, unit: &UserUnit<'_>, is_apart: bool) -> Result<Result<u64>> {
    let connection = &side.connection;
    let facts = side.schema.look(connection).map_err(writing)?;
    let (is_rehearsed, defines, is_apart) = match unit.work {
        UserWork::Once(statement) => (false, statement.may_change_schema, true),
        UserWork::Again(script) => {
            let script = script::lock(script);
            let defines = script.steps.iter().any(|step| step.statement.may_change_schema);
            (side.take_rehearsal(script.position()), defines, is_apart)
        }
    };
    let mut verdict = if is_rehearsed {
        Ok(0)
    } else {
        if is_apart {
            side.run(SAVEPOINT).map_err(writing)?;
        }
        side.guard.take_defined();
        unit.run(side, facts)?
    };
    if verdict.is_ok()
        && (facts.has_virtual_tables || defines)
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
    if verdict.is_ok()
        && (facts.may_have_foreign_keys || defines)
        && side.deferred_keys.are_broken(connection).map_err(writing)?
    {
        verdict = Err(unit.failed("its transaction cannot be committed: a row breaks a deferred foreign key"));
    }
    match &verdict {
        Ok(_) if is_rehearsed || is_apart => side.run(RELEASE).map_err(writing)?,
        Ok(_) => {}
        Err(error) if is_rehearsed || is_apart => undo(side, error)?,
        Err(_) => side.roll_back(),
    }
    Ok(verdict)
}

/// Undoes what was done since the last savepoint, and removes the savepoint.
fn undo(side: &WriteSide, failure: &Error) -> Result<()> {
    // After SQLITE_CORRUPT, SQLite refuses each later write of the transaction, so that the others start again without
    // this one.
    if is_damage(failure) {
        side.roll_back();
    }
    undo_to_savepoint(side)
}

fn undo_to_savepoint(side: &WriteSide) -> Result<()> {
    // ON CONFLICT ROLLBACK, or a statement that was stopped, has taken the savepoint with it.
    if !side.connection.is_autocommit() {
        side.run(ROLLBACK_TO).map_err(writing)?;
        side.run(RELEASE).map_err(writing)?;
    }
    Ok(())
}

/// Runs a statement of an open transaction for the first time, and gives the result for its caller. It sees what the transaction has
/// written. Its savepoint stays open, so that the next statement need not begin with the first. The outer error is the
/// store's own failure; 1205 if an earlier statement would now do something else.
pub(super) fn rehearse(
    side: &WriteSide,
    script: &SharedScript,
    form: Form,
    statement: KnownStatement,
    caller: &Caller,
) -> Result<Result<Done>> {
    let connection = &side.connection;
    let mut script = script::lock(script);
    script.note_next(&statement);
    let goes_on = side.take_rehearsal(script.position());
    if !goes_on {
        // The savepoint of another transaction's statements serves again once they are undone.
        if !side.undo_rehearsal().map_err(writing)? {
            side.run(SAVEPOINT).map_err(writing)?;
        }
        // Statements that are kept must be of the schema before the first one.
        let facts = side.schema.look(connection).map_err(writing)?;
        if let Err(refusal) = replay(side, &script, Some(caller), facts)? {
            undo(side, &refusal)?;
            return Ok(Err(refusal));
        }
    }
    let facts = side.schema.look(connection).map_err(writing)?;
    let moment = Moment::now();
    side.moments.set(&moment);
    side.guard.take_defined();
    // The savepoint of the transaction is that of its first statement too.
    let is_first = !goes_on && script.steps.is_empty();
    if !is_first {
        side.run(SAVEPOINT).map_err(writing)?;
    }
    let keep = if form == Form::Rows { Keep::Rows } else { Keep::Nothing };
    let mut done = watched(side, &statement, keep, Some(caller));
    let mut may_repeat = !done.as_ref().is_err_and(is_of_the_run);
    if done.as_ref().is_ok_and(|done| done.has_written)
        && (facts.has_virtual_tables || statement.may_change_schema)
        && let Err(error) = write_virtual_tables(connection)
    {
        (done, may_repeat) = (Err(user(&statement.text, &error).caused_by(error)), false);
    }
    if done.is_ok()
        && side.guard.take_defined()
        && let Some(why) = side.reserved.fault(connection).map_err(writing)?
    {
        (done, may_repeat) = (Err(user(&statement.text, why)), false);
    }
    match &done {
        Ok(_) if is_first => {}
        Ok(_) => side.run(RELEASE).map_err(writing)?,
        Err(error) => {
            undo(side, error)?;
            if is_first && !connection.is_autocommit() {
                side.run(SAVEPOINT).map_err(writing)?;
            }
        }
    }
    let has_written = done.as_ref().is_ok_and(|done| done.has_written);
    let reported = match &done {
        Ok(done) => Reported::Done { changed: done.changed, digest: done.digest },
        Err(error) => Reported::Refused(error.message().to_owned()),
    };
    // A statement that undoes the whole transaction of SQLite would undo that of its batch. Nothing depends on one that
    // changed nothing and returned no rows. CREATE .. IF NOT EXISTS that found its table makes it at the commit if another
    // transaction has dropped it meanwhile.
    let is_reported = done.is_err() || form == Form::Rows || has_written || statement.may_change_schema;
    if may_repeat && is_reported && !connection.is_autocommit() {
        script.steps.push(Step { statement, form, moment, reported, has_written });
    }
    if !connection.is_autocommit() {
        side.keep_rehearsal(script.position());
    }
    Ok(done)
}

/// Whether an error says nothing of the statement and the tables: it ran too long, its caller has gone, or the index is
/// damaged.
fn is_of_the_run(error: &Error) -> bool {
    error.code() != Code::USER_SQL_FAILED || is_damage(error)
}

/// Runs the statements of a transaction again; 1205 if one gives another result than its caller got.
fn replay(side: &WriteSide, script: &Script, caller: Option<&Caller>, facts: SchemaFacts) -> Result<Result<()>> {
    let may_read_last_row = script.reads_last_row() || facts.may_read_last_row;
    // The table for it is in the temporary database, whose transactions and savepoints cost as much again.
    if may_read_last_row || facts.has_virtual_tables {
        side.run(RESET_LAST_ROW).map_err(writing)?;
    }
    for step in &script.steps {
        if let Err(refusal) = repeat(side, step, caller)? {
            return Ok(Err(refusal));
        }
        // changes() counts what a virtual table writes to its own tables, so it must write when it did the first time.
        if may_read_last_row
            && step.has_written
            && facts.has_virtual_tables
            && let Err(error) = write_virtual_tables(&side.connection)
        {
            return Ok(Err(user(&step.statement.text, &error).caused_by(error)));
        }
    }
    Ok(Ok(()))
}

/// Runs one statement again. A savepoint of its own is gone when this returns, whatever the statement did: a caller that undoes
/// the transaction undoes what was done since the last savepoint, and would leave the statements before this one.
fn repeat(side: &WriteSide, step: &Step, caller: Option<&Caller>) -> Result<Result<()>> {
    let was_refused = matches!(step.reported, Reported::Refused(_));
    if was_refused {
        side.run(SAVEPOINT).map_err(writing)?;
    }
    side.moments.set(&step.moment);
    let keep = if step.form == Form::Rows { Keep::Digest } else { Keep::Nothing };
    let done = watched(side, &step.statement, keep, caller);
    let is_same = match (&step.reported, &done) {
        (Reported::Done { changed, digest }, Ok(done)) => (*changed, *digest) == (done.changed, done.digest),
        (Reported::Refused(message), Err(error)) => message == error.message() && !side.connection.is_autocommit(),
        _ => false,
    };
    if was_refused {
        match &done {
            Ok(_) => undo_to_savepoint(side)?,
            Err(error) => undo(side, error)?,
        }
    }
    Ok(match done {
        Err(error) if is_of_the_run(&error) => Err(error),
        done if !is_same => Err(script::conflict(step, &done)),
        _ => Ok(()),
    })
}

/// Runs one statement of the user under guard and within its limits.
fn watched(side: &WriteSide, statement: &KnownStatement, keep: Keep, caller: Option<&Caller>) -> Result<Done> {
    let (connection, began) = (&side.connection, Instant::now());
    let done = side.guard.watch.run(&side.limits, &statement.text, caller, || {
        side.guard.guarded(|| {
            let changes_schema = statement.may_change_schema;
            let prepared =
                if changes_schema { prepare(connection, statement) } else { prepare_kept(connection, statement) };
            let done = prepared.and_then(|prepared| run_one(connection, prepared, statement, keep, changes_schema));
            if changes_schema {
                side.schema.forget(connection);
            }
            done
        })
    })?;
    let has_outgrown = |disk: &Arc<DiskRoom>| disk.has_outgrown(connection, began.elapsed());
    if done.has_written && side.limits.disk.as_ref().is_some_and(has_outgrown) {
        return Err(disk_full(&statement.text));
    }
    Ok(done)
}

/// Makes virtual tables, such as full-text search, write their buffers: a savepoint does that. Otherwise they would
/// write at the commit, and a failure would be the failure of every transaction of the batch.
fn write_virtual_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached(SAVEPOINT)?.execute([])?;
    connection.prepare_cached(RELEASE)?.execute([]).map(drop)
}

/// What is kept of the rows that a statement returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    Digest,
    Rows,
}

/// The most that the rows of one query take, as many bytes as a frame between two processes: a query without a LIMIT
/// must not take the memory of all processes of the file with it. Fewer in tests of this crate.
const MOST_ROWS_BYTES: usize = if cfg!(test) { 8 << 20 } else { LARGEST_BODY_BYTES + (1 << 20) };

/// Runs one statement.
fn run_one(
    connection: &Connection,
    prepared: Prepared<'_>,
    statement: &SqlStatement,
    keep: Keep,
    may_change_schema: bool,
) -> Result<Done> {
    run_one_within(connection, prepared, statement, keep, may_change_schema, MOST_ROWS_BYTES)
}

fn run_one_within(
    connection: &Connection,
    mut prepared: Prepared<'_>,
    statement: &SqlStatement,
    keep: Keep,
    may_change_schema: bool,
    most_bytes: usize,
) -> Result<Done> {
    if keep != Keep::Nothing && prepared.column_count() == 0 {
        return Err(user(&statement.text, "it is not a query: it returns no rows; run it as a statement"));
    }
    let has_written = !prepared.readonly();
    let places = places(&prepared, &statement.text)?;
    let columns: Arc<[String]> = match keep {
        Keep::Rows => prepared.column_names().map(str::to_owned).collect(),
        Keep::Nothing | Keep::Digest => Arc::default(),
    };
    let before = connection.total_changes();
    let mut digest = DefaultHasher::new();
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut run = || -> rusqlite::Result<()> {
        let width = prepared.column_count();
        let mut rows = match &places {
            None => prepared.query(params_from_iter(&statement.params))?,
            Some(places) => prepared.query(params_from_iter(places.iter().map(|place| &statement.params[*place])))?,
        };
        while let Some(row) = rows.next()? {
            if keep == Keep::Nothing {
                continue;
            }
            for place in 0..width {
                hash(row.get_ref(place)?, &mut digest);
            }
            if keep == Keep::Rows {
                bytes += bytes_of(row, width)?;
                if bytes > most_bytes {
                    break;
                }
                found.push(sql_row(row, &columns)?);
            }
        }
        Ok(())
    };
    run().map_err(|error| refused(statement, error))?;
    if bytes > most_bytes {
        let why = format!("its rows take more than {most_bytes} bytes; ask for fewer at a time, as with LIMIT");
        return Err(user(&statement.text, why));
    }
    // Definitions, REINDEX and queries do not reset the count of the statement before. A definition of a virtual table writes
    // rows of its shadow tables, and how many differs from run to run; before a REINDEX, full-text search may write its buffer.
    let is_same = connection.total_changes() == before;
    let changed = if is_same || may_change_schema { 0 } else { connection.changes() };
    match statement.expected_rows {
        Some(expected) if expected != changed => Err(user(
            &statement.text,
            format!("it changed {changed} rows where {expected} were expected; it was undone"),
        )),
        _ => {
            let rows = SqlRows { columns, rows: found };
            Ok(Done { changed, rows, digest: digest.finish(), has_written })
        }
    }
}

/// About as many bytes as the row takes in memory.
fn bytes_of(row: &rusqlite::Row<'_>, width: usize) -> rusqlite::Result<usize> {
    let values = (0..width).map(|place| {
        let beyond = match row.get_ref(place)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        Ok(beyond + size_of::<SqlValue>())
    });
    values.sum()
}

fn sql_row(row: &rusqlite::Row<'_>, columns: &Arc<[String]>) -> rusqlite::Result<SqlRow> {
    let values = (0..columns.len()).map(|place| row.get_ref(place).map(value)).collect::<rusqlite::Result<_>>()?;
    Ok(SqlRow { columns: columns.clone(), values })
}

fn hash(value: ValueRef<'_>, digest: &mut DefaultHasher) {
    match value {
        ValueRef::Null => digest.write_u8(0),
        ValueRef::Integer(number) => (1_u8, number).hash(digest),
        ValueRef::Real(number) => (2_u8, number.to_bits()).hash(digest),
        ValueRef::Text(text) => (3_u8, text).hash(digest),
        ValueRef::Blob(bytes) => (4_u8, bytes).hash(digest),
    }
}

/// Checks a statement without running it.
pub(super) fn check(connection: &Connection, guard: &Guard, statement: &SqlStatement) -> Result<()> {
    guard.guarded(|| with_current_schema(connection, statement, || prepare(connection, statement).map(drop)))
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
    match read_only(connection, statement)? {
        Some(rows) => Ok(rows),
        None => Err(user(&statement.text, "a query may only read; run it as a statement, or in a transaction")),
    }
}

/// Runs a query of a transaction that has written nothing; `None` if it would write.
pub(super) fn try_query(
    connection: &Connection,
    guard: &Guard,
    limits: &Limits,
    statement: &SqlStatement,
    caller: &Caller,
) -> Result<Option<SqlRows>> {
    let read = || guard.guarded(|| read_only(connection, statement));
    guard.watch.run(limits, &statement.text, Some(caller), read)
}

fn read_only(connection: &Connection, statement: &SqlStatement) -> Result<Option<SqlRows>> {
    with_current_schema(connection, statement, || {
        let prepared = prepare(connection, statement)?;
        if !prepared.readonly() {
            return Ok(None);
        }
        Ok(Some(run_one(connection, prepared, statement, Keep::Rows, false)?.rows))
    })
}

/// Prepares and runs a statement on a reading connection, with the schema as it is now. SQLite prepares a statement with the
/// schema that the connection has in memory: after an ALTER TABLE a query gave the columns of before, and a DROP and a CREATE
/// of one name were refused.
fn with_current_schema<T>(
    connection: &Connection,
    statement: &SqlStatement,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let failed = |error| refused(statement, error);
    let mut schema = connection.prepare_cached(CURRENT_SCHEMA).map_err(failed)?;
    let mut held = schema.query([]).map_err(failed)?;
    held.next().map_err(failed)?;
    work()
}

/// A statement that is ready to run.
enum Prepared<'c> {
    Once(Statement<'c>),
    /// It goes back into the connection's cache.
    Kept(CachedStatement<'c>),
}

impl<'c> Deref for Prepared<'c> {
    type Target = Statement<'c>;

    fn deref(&self) -> &Statement<'c> {
        match self {
            Self::Once(statement) => statement,
            Self::Kept(statement) => statement,
        }
    }
}

impl<'c> DerefMut for Prepared<'c> {
    fn deref_mut(&mut self) -> &mut Statement<'c> {
        match self {
            Self::Once(statement) => statement,
            Self::Kept(statement) => statement,
        }
    }
}

fn prepare<'c>(connection: &'c Connection, statement: &SqlStatement) -> Result<Prepared<'c>> {
    if beginning(&statement.text).is_empty() {
        return Err(user(&statement.text, "it is empty: it has nothing but spaces and comments"));
    }
    let prepared = connection.prepare(&statement.text).map_err(|error| refused(statement, error))?;
    checked(Prepared::Once(prepared), statement)
}

/// As `prepare`, by the connection's cache.
fn prepare_kept<'c>(connection: &'c Connection, statement: &SqlStatement) -> Result<Prepared<'c>> {
    if statement.text.len() > LONGEST_KEPT || beginning(&statement.text).is_empty() {
        return prepare(connection, statement);
    }
    // The guard judges a statement when it is prepared. The store's own statements are in the cache unjudged, so the user's
    // have other keys than any of those.
    let text = [OF_THE_USER, &statement.text].concat();
    match connection.prepare_cached(&text) {
        Ok(prepared) => checked(Prepared::Kept(prepared), statement),
        // Its message shows the statement as it was written.
        Err(_) => prepare(connection, statement),
    }
}

fn checked<'c>(prepared: Prepared<'c>, statement: &SqlStatement) -> Result<Prepared<'c>> {
    let numbered =
        places(&prepared, &statement.text)?.map(|places| places.into_iter().max().map_or(0, |last| last + 1));
    let (wanted, given) = (numbered.unwrap_or_else(|| prepared.parameter_count()), statement.params.len());
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
        (None, _) => return user_failed(&statement.text, error),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_query_are_bounded() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute("CREATE TABLE t (n integer)", []).unwrap();
        let run = |text: &str, most_bytes| {
            let statement = SqlStatement { text: text.to_owned(), params: Vec::new(), expected_rows: None };
            let prepared = prepare(&connection, &statement).unwrap();
            run_one_within(&connection, prepared, &statement, Keep::Rows, false, most_bytes)
                .map(|done| done.rows.rows.len())
        };
        let values = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 100) \
                      SELECT n, zeroblob(1000) AS b FROM r";
        assert_eq!(run(values, 200_000).unwrap(), 100);
        let refused = run(values, 50_000).unwrap_err();
        assert!(refused.code() == Code::USER_SQL_FAILED && refused.message().contains("LIMIT"), "{refused}");
        let two = "SELECT 1 AS n UNION ALL SELECT 2";
        assert_eq!(run(two, 2 * size_of::<SqlValue>()).unwrap(), 2);
        assert!(run(two, 2 * size_of::<SqlValue>() - 1).is_err());
        // One without an end does not fill the memory first.
        assert!(run(&values.replace("n < 100", "true"), 50_000).is_err());
        assert_eq!(run(&format!("{values} LIMIT 10"), 50_000).unwrap(), 10);
        let written = "INSERT INTO t SELECT value FROM json_each('[1,2,3]') RETURNING n";
        assert!(run(written, 50).is_err());
        assert_eq!(run(written, 500).unwrap(), 3);
    }
}
