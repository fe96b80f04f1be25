//! The seam: the interface between a store and everything above it.
//!
//! A store executes [`Unit`]s, opens transactions, runs the user's own queries, and reports changes of its queues
//! through its [`ActivityBoard`]. It never waits for messages: waiting is [register, receive, sleep](crate::receive)
//! above this seam and the same for every store.

mod activity;
mod check_room;
mod cut_short;
pub mod database;
#[cfg(test)]
pub(crate) mod fake;
pub mod faulty;
pub(crate) mod handover;
pub(crate) mod layer;
mod lock_holder;
mod monitors;
#[cfg(feature = "mssql")]
pub mod mssql;
mod options;
#[cfg(feature = "postgres")]
pub mod postgres;
mod reader_slot;
mod seen;
mod sql;
pub mod sqlite;
pub(crate) mod statement;
mod texts;
pub mod traced;
pub mod url;

pub use activity::{ActivityBoard, Counts, QueueActivity, QueueFacts, SleepGuard, WaitGuard};
pub(crate) use cut_short::{CutShort, is_cut_short_by_runtime};
pub use lock_holder::LockHolder;
pub use monitors::{ActivatedTaskRow, MonitorBoard, MonitorRow, ProcessRows};
pub use options::{AccessToken, Gathering, OpenOptions};
pub use reader_slot::ReaderSlot;
pub use seen::Seen;
pub use sql::{FromSqlValue, IntoSqlParams, SqlRow, SqlRows, SqlStatement, SqlValue};
pub(crate) use texts::store_texts;
pub use texts::{DoctorTexts, InspectTexts, StatusTexts, StoreTexts, WorkTexts};

use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::protocol::{Outcome, Unit, Verb};
use crate::time::{Clock, Timestamp};
use database::link::EnlistedConnection;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use uuid::Uuid;

/// A boxed future; one small allocation a call, which no measurement of ours could see.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A database that holds a broker. Concrete databases implement it; users never see it.
///
/// No method has a default: a store that wraps another would lose every method that it forgets to forward.
pub trait Store: Send + Sync + 'static {
    /// Executes a unit wholly or not at all and answers once it is durable: one outcome per verb.
    ///
    /// A SEND, END, TIMER or MOVE that meets a group locked by a transaction waits for it.
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>>;

    /// The same under the caller's own id, at most once: `None` if a unit of that id happened before. If the outcome is
    /// unknown, any process may try again with the same id for a week. Stores without it refuse with 60026.
    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>>;

    /// Whether a unit or transaction of that id has happened. Stores without it refuse with 60026.
    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>>;

    /// A place among the readers that all processes together may run on a queue; `None` if all are taken. A store that
    /// one process owns always returns one: its queue monitors count by themselves.
    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>>;

    /// Executes a verb on the user's own connection, in its current transaction if there is one. Stores that are not
    /// servers refuse with 60026.
    fn perform_on<'a>(
        &'a self,
        connection: &'a mut dyn EnlistedConnection,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Outcome>>;

    /// Gives leased jobs back whose handlers have not begun: their attempts do not count. One that cannot be given back is held to the
    /// end of its lease.
    fn give_back_jobs(&self, jobs: Vec<TakenJob>) -> BoxFuture<'_, ()>;

    /// Opens a transaction; dropping it rolls it back. Its rollback counts as an attempt at what it received only if that is seen.
    fn begin(&self, seen: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>>;

    /// Reads committed rows: the catalog views, and the user's own tables.
    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>>;

    /// Runs the user's own SQL in a transaction of its own; returns the number of rows changed.
    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>>;

    /// The definitions as of the last commit.
    fn catalog(&self) -> Arc<Catalog>;

    /// The reads of status and doctor, in this store's dialect.
    fn texts(&self) -> &'static StoreTexts;

    /// Activity in the queues.
    fn activity(&self) -> &ActivityBoard;

    /// Refreshes the facts about the queues, for queue monitors. In a store that one process owns they are always
    /// current.
    fn refresh_facts(&self) -> BoxFuture<'_, ()>;

    /// The session that holds the lock of a conversation group now.
    fn lock_holder(&self, group: Uuid) -> BoxFuture<'_, Result<Option<LockHolder>>>;

    /// The queues from which a definition that waits holds receives back, each with the time until which it does so.
    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, Timestamp)>>>;

    /// The clock that rules timers, lifetimes and waits.
    fn clock(&self) -> &Clock;

    /// Why the store takes nothing more until it is opened again; `None` as long as it does, or may do so again by itself.
    fn ended(&self) -> Option<Error>;

    /// Finishes all accepted work, then closes; later calls fail with 60016.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// An open transaction of a store. Dropping it rolls it back. No method has a default, as in [`Store`].
pub trait StoreTx: Send {
    /// Executes one verb: it takes its locks, and this transaction sees its effects from now on.
    ///
    /// An error leaves the transaction as it was before the verb, but for 1205, which ends it.
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>>;

    /// Runs the user's own SQL, whose effects are a part of the commit; returns the number of rows changed. A statement
    /// that fails is undone, and the transaction goes on.
    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>>;

    /// Runs a statement that returns rows, such as a query. It sees what the transaction's own SQL has written.
    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>>;

    /// Gives the transaction the caller's own id, before any other work in it; false if a unit or transaction of that
    /// id has happened before, and then it should be rolled back. Stores without it refuse with 60026.
    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>>;

    /// Sets a savepoint; names may be reused, the latest counts.
    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Undoes all work since the savepoint but keeps the locks, and the savepoint.
    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Makes all work durable, wholly or not at all.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// Undoes all work and answers when the locks are free. The reason is kept with the messages that become dead letters by
    /// this rollback.
    fn rollback(self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>>;
}

/// The name of a work queue on the board of activity: no queue's name begins with this character.
pub(crate) fn work_queue_on_board(name: &str) -> String {
    format!("#{name}")
}

/// The name of a queue or work queue on the board of activity; `None` if there is none of that id.
pub(crate) fn name_on_board(catalog: &Catalog, queue_id: i32) -> Option<String> {
    let queue = catalog.queues.get(&queue_id).map(|queue| queue.name.to_string());
    queue.or_else(|| catalog.work_queues.get(&queue_id).map(|queue| work_queue_on_board(&queue.name)))
}

/// The methods of [`Store`] that need no work in a store owned by one process.
macro_rules! methods_of_an_embedded_store {
    () => {
        fn perform_on<'a>(
            &'a self,
            _: &'a mut dyn $crate::store::database::link::EnlistedConnection,
            _: $crate::protocol::Verb,
        ) -> $crate::store::BoxFuture<'a, $crate::error::Result<$crate::protocol::Outcome>> {
            Box::pin(async { Err($crate::store::no_enlisted_connections()) })
        }

        fn refresh_facts(&self) -> $crate::store::BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    };
}
pub(crate) use methods_of_an_embedded_store;

/// 60026: this store takes no verbs on connections of others.
pub(crate) fn no_enlisted_connections() -> Error {
    Error::new(
        Code::UNSUPPORTED,
        "this store takes no verbs on connections of others; use Broker::begin, whose Tx takes SQL of your own",
    )
}
