//! What the store knows of the user's part of the schema, so that a transaction pays only for what the schema has.
//!
//! Most databases have neither foreign keys nor virtual tables. Asking for broken keys and writing virtual tables all the
//! same took a sixth of the writer's time with 64 callers of one INSERT each, and preparing their statements again an eighth.

use crate::sql::sqlite::read::{SCHEMA_FACTS, SCHEMA_VERSION};
use rusqlite::{Connection, Result};
use std::cell::Cell;

/// What a commit has to ask because of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SchemaFacts {
    pub(super) may_have_foreign_keys: bool,
    pub(super) has_virtual_tables: bool,
    /// Whether a trigger, a view or a default may ask for the last row, or for how many rows were changed.
    pub(super) may_read_last_row: bool,
}

/// How far the schema is known.
#[derive(Debug, Clone, Copy, Default)]
enum Known {
    #[default]
    Nothing,
    /// The number of its last change, and the facts.
    At(i64, SchemaFacts),
    /// The open transaction has changed it. If that is undone, another change gets the same number.
    Tentative,
}

/// The schema as the connection that writes last saw it.
#[derive(Debug, Default)]
pub(super) struct KnownSchema {
    known: Cell<Known>,
    /// Whether it was looked at in the open transaction, in which only a statement of ours can change it.
    is_current: Cell<bool>,
}

impl KnownSchema {
    /// The facts as they are. After a change of the schema the statements in the cache are dropped: SQLite prepares them
    /// again by itself, but how many columns they have is known before.
    ///
    /// Call it in a transaction, in which no other program can change the schema.
    pub(super) fn look(&self, connection: &Connection) -> Result<SchemaFacts> {
        let known = self.known.get();
        if let Known::At(_, facts) = known
            && self.is_current.get()
        {
            return Ok(facts);
        }
        let version = connection.prepare_cached(SCHEMA_VERSION)?.query_row([], |row| row.get(0))?;
        if let Known::At(seen, facts) = known
            && seen == version
        {
            self.is_current.set(true);
            return Ok(facts);
        }
        connection.flush_prepared_statement_cache();
        let facts = connection.query_row(SCHEMA_FACTS, [], |row| {
            Ok(SchemaFacts {
                may_have_foreign_keys: row.get(0)?,
                has_virtual_tables: row.get(1)?,
                may_read_last_row: row.get(2)?,
            })
        })?;
        if !matches!(known, Known::Tentative) {
            self.known.set(Known::At(version, facts));
            self.is_current.set(true);
        }
        Ok(facts)
    }

    /// After a change of the schema in the open transaction.
    pub(super) fn forget(&self, connection: &Connection) {
        connection.flush_prepared_statement_cache();
        self.known.set(Known::Tentative);
    }

    /// A transaction has begun: what an earlier one changed is committed or undone.
    pub(super) fn begin(&self, connection: &Connection) {
        self.is_current.set(false);
        if matches!(self.known.get(), Known::Tentative) {
            connection.flush_prepared_statement_cache();
            self.known.set(Known::Nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_also_if_its_number_was_another_changes_before() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, other] = [0, 1].map(|_| Connection::open(folder.path().join("a.db")).unwrap());
        let schema = KnownSchema::default();
        let begin = || {
            ours.execute_batch("begin immediate").unwrap();
            schema.begin(&ours);
        };
        let look = || {
            let facts = schema.look(&ours).unwrap();
            (facts.may_have_foreign_keys, facts.has_virtual_tables)
        };
        begin();
        assert_eq!(look(), (false, false));
        ours.execute_batch("create table a (x integer primary key)").unwrap();
        schema.forget(&ours);
        assert_eq!(look(), (false, false));
        ours.execute_batch("commit; begin immediate; create table b (x references a)").unwrap();
        schema.forget(&ours);
        assert_eq!(look(), (true, false));
        ours.execute_batch("rollback").unwrap();
        other.execute_batch("create virtual table c using fts5(x)").unwrap();
        begin();
        assert_eq!(look(), (false, true), "another program has made the change of that number");
        ours.execute_batch("rollback").unwrap();
        other.execute_batch("drop table c").unwrap();
        begin();
        assert_eq!(look(), (false, false));
    }

    #[test]
    fn a_kept_statement_has_the_columns_of_the_schema_that_was_looked_at() {
        let connection = Connection::open_in_memory().unwrap();
        let schema = KnownSchema::default();
        connection.execute_batch("create table a (x)").unwrap();
        schema.look(&connection).unwrap();
        let columns = || connection.prepare_cached("select * from a").unwrap().column_count();
        assert_eq!(columns(), 1);
        connection.execute_batch("alter table a add y").unwrap();
        schema.begin(&connection);
        schema.look(&connection).unwrap();
        assert_eq!(columns(), 2);
    }

    #[test]
    fn a_trigger_a_view_or_a_default_may_ask_for_the_last_row() {
        let connection = Connection::open_in_memory().unwrap();
        let schema = KnownSchema::default();
        connection.execute_batch("create table a (x)").unwrap();
        for text in [
            "create trigger t after update on a begin insert into a values (Last_Insert_Rowid()); end",
            "create view t as select changes()",
            "create table t (x default (\"total_changes\"()))",
        ] {
            schema.begin(&connection);
            assert!(!schema.look(&connection).unwrap().may_read_last_row);
            connection.execute_batch(text).unwrap();
            schema.begin(&connection);
            assert!(schema.look(&connection).unwrap().may_read_last_row, "{text}");
            let kind = text.split(' ').nth(1).unwrap();
            connection.execute_batch(&format!("drop {kind} t")).unwrap();
        }
    }

    #[test]
    fn a_change_that_was_undone_is_not_taken_for_another_one_of_its_number() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let [ours, other] = [0, 1].map(|_| Connection::open(folder.path().join("a.db")).unwrap());
        let schema = KnownSchema::default();
        let begin = || {
            ours.execute_batch("begin immediate").unwrap();
            schema.begin(&ours);
        };
        let number =
            |of: &Connection| of.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0)).unwrap();
        begin();
        ours.execute_batch("create table a (x integer primary key)").unwrap();
        schema.forget(&ours);
        assert!(!schema.look(&ours).unwrap().may_have_foreign_keys);
        let undone = number(&ours);
        ours.execute_batch("rollback").unwrap();
        other.execute_batch("create table b (x references a)").unwrap();
        assert_eq!(number(&other), undone);
        begin();
        assert!(schema.look(&ours).unwrap().may_have_foreign_keys);
    }
}
