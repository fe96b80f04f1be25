//! Deferred foreign keys: whether SQLite would refuse the commit of a transaction because of one.
//!
//! SQLite counts the rows of a transaction that break a deferred foreign key, and refuses COMMIT while the count is not zero. One
//! COMMIT serves many callers, so the store must know the count before. `PRAGMA foreign_key_check` reads every table that has a
//! foreign key: 18 ms for 300,000 rows, for each transaction. SQLite gives the count itself only to unsafe code. But a
//! DELETE from a table with a deferred foreign key shows it: SQLite searches the parent row only if the count is not zero. The
//! store deletes such a row of a temporary table, and the collation of the parent's key notices the search.

use crate::sql::sqlite::deferred::{DELETE_CHILD, INSERT_CHILD, TABLES};
use rusqlite::{Connection, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Tells for one connection whether a row breaks a deferred foreign key.
#[derive(Debug)]
pub(super) struct DeferredKeys {
    /// Set when SQLite compares a key of the temporary parent table.
    has_searched: Arc<AtomicBool>,
}

impl DeferredKeys {
    /// Makes the temporary tables of the connection.
    pub(super) fn install(connection: &Connection) -> Result<Self> {
        let has_searched = Arc::new(AtomicBool::new(false));
        let searched = has_searched.clone();
        connection.create_collation("dialoq_watched", move |one, other| {
            searched.store(true, Relaxed);
            one.cmp(other)
        })?;
        connection.execute_batch(TABLES)?;
        Ok(Self { has_searched })
    }

    /// Whether SQLite would refuse to commit the open transaction.
    pub(super) fn are_broken(&self, connection: &Connection) -> Result<bool> {
        connection.prepare_cached(INSERT_CHILD)?.execute([])?;
        self.has_searched.store(false, Relaxed);
        connection.prepare_cached(DELETE_CHILD)?.execute([])?;
        Ok(self.has_searched.load(Relaxed))
    }
}
