//! A database that another process owns, opened for reading.

use super::limit::{Caller, Limits};
use super::open::{self, OpenFor, ReadConnection};
use super::readers::Readers;
use super::{SqliteOptions, blocking, load, read, share, user_sql};
use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::protocol::{Outcome, Unit};
use crate::store::url::Location;
use crate::store::{
    ActivityBoard, BoxFuture, LockHolder, ReaderSlot, Seen, SqlRows, SqlStatement, Store, StoreTexts, StoreTx,
};
use crate::time::{Clock, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

/// A database that is only read: queries, and the definitions as they were when it was opened.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct ReadOnlyStore {
    readers: Arc<Readers>,
    limits: Limits,
    catalog: Arc<Catalog>,
    board: ActivityBoard,
    clock: Clock,
}

impl ReadOnlyStore {
    pub(super) fn open(options: SqliteOptions) -> Result<Arc<Self>> {
        let Location::File(path) = options.location else {
            return Err(Error::new(
                Code::BAD_URL,
                "a database in memory belongs to the process that made it; name a file to read",
            ));
        };
        let path = open::absolute_path(&path);
        open::check_file(&path, OpenFor::Reading)?;
        open::check_mount(&path)?;
        let reader = ReadConnection::open(&path)?;
        let connection = &reader.connection;
        if open::identify(connection, &Location::File(path.clone()))? {
            return Err(open::holds_no_tables(&path));
        }
        open::check_version(connection, &path)?;
        let catalog = Arc::new(load::catalog(connection)?.0);
        let readers = Arc::new(Readers::new(path));
        readers.keep(reader);
        let limits = Limits { timeout: options.sql_timeout, ..Limits::default() };
        Ok(Arc::new(Self { readers, limits, catalog, board: ActivityBoard::default(), clock: options.clock }))
    }

    /// The definitions as of now.
    pub(super) fn read_catalog(&self) -> Result<Arc<Catalog>> {
        self.readers.lend(|reader| Ok(Arc::new(load::catalog(&reader.connection)?.0)))
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::new(
            Code::STORE_READ_ONLY,
            format!("database '{}' was opened only to be read", self.readers.path().display()),
        ))
    }
}

impl Store for ReadOnlyStore {
    crate::store::methods_of_an_embedded_store!();

    fn reader_slot(&self, _: i32, _: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        Box::pin(async { Ok(Some(ReaderSlot::granted())) })
    }

    fn submit(&self, _: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async { self.refuse() })
    }

    fn submit_once(&self, _: Uuid, _: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async { self.refuse() })
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.readers.lend(|reader| load::unit_happened(&reader.connection, unit_id)) })
    }

    /// Nothing was taken from it.
    fn give_back_jobs(&self, _: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn begin(&self, _: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async { self.refuse() })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        let (readers, limits, caller) = (self.readers.clone(), self.limits.clone(), Caller::default());
        Box::pin(async move {
            if limits.ending.is_closing() {
                return Err(Error::closed());
            }
            let _waits = caller.guard();
            blocking(move || {
                readers.lend(|reader| user_sql::query(&reader.connection, &reader.guard, &limits, &sql, Some(&caller)))
            })
            .await
        })
    }

    fn run_sql(&self, _: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { self.refuse() })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn lock_holder(&self, group: Uuid) -> BoxFuture<'_, Result<Option<LockHolder>>> {
        let readers = self.readers.clone();
        Box::pin(blocking(move || share::lock_holder(readers.path(), group)))
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, Timestamp)>>> {
        let readers = self.readers.clone();
        Box::pin(blocking(move || share::receive_holds(readers.path())))
    }

    fn texts(&self) -> &'static StoreTexts {
        &read::TEXTS
    }

    fn activity(&self) -> &ActivityBoard {
        &self.board
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn ended(&self) -> Option<Error> {
        self.limits.ending.is_closing().then(Error::closed)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.limits.ending.close();
        Box::pin(async { Ok(()) })
    }
}
