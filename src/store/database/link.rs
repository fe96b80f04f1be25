//! A connection to a database server: the thin trait between the shared store and a driver.
//!
//! A driver reaches its server, calls our functions and procedures, and maps the errors of the server to ours. It
//! contains nothing about queues and conversations.

use crate::error::{Code, Error, Result};
use crate::store::database::dialect::Dialect;
use crate::store::{BoxFuture, SqlRow, SqlRows, SqlStatement};
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A request without an answer for so long may hang, as on a connection that was cut in silence: the others wait for it no longer.
pub(in crate::store::database) const HANGING: Duration = Duration::from_secs(1);

/// A function or procedure of schema `dialoq` with its arguments in order. The same names and arguments in every dialect.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The name without the schema: `send`.
    pub name: &'static str,
    /// The arguments, all of them, in the order of the declaration.
    pub args: Vec<Arg<'a>>,
}

/// One argument.
#[derive(Debug, Clone)]
pub enum Arg<'a> {
    /// NULL of the declared type.
    Null,
    /// `boolean`, `bit`.
    Bool(bool),
    /// `integer`, `int`.
    Int(i32),
    /// `bigint`.
    BigInt(i64),
    /// `text`, `nvarchar`.
    Text(&'a str),
    /// `bytea`, `varbinary(max)`; shared, because a body may be in a batch while its sender waits.
    Bytes(Arc<Vec<u8>>),
    /// `uuid`, `uniqueidentifier`.
    Uuid(Uuid),
    /// `timestamptz`, `datetime2`: UTC, to the microsecond.
    Time(Timestamp),
    /// Rows. PostgreSQL takes each column as an array argument of its own, in order; SQL Server takes one
    /// table-valued parameter of the type of that name, whose columns are these after `item int`, which counts from 0.
    Rows {
        /// The table type in schema `dialoq`.
        type_name: &'static str,
        /// The columns in order, all of one length.
        columns: Vec<Column<'a>>,
    },
}

/// A column of rows that are handed over together.
#[derive(Debug, Clone)]
pub enum Column<'a> {
    /// `int`
    Int(Vec<Option<i32>>),
    /// `bigint`
    BigInt(Vec<Option<i64>>),
    /// `text`, `nvarchar`
    Text(Vec<Option<&'a str>>),
    /// `bytea`, `varbinary(max)`
    Bytes(Vec<Option<Arc<Vec<u8>>>>),
    /// `uuid`, `uniqueidentifier`
    Uuid(Vec<Option<Uuid>>),
}

/// A request that failed.
#[derive(Debug)]
pub struct Failure {
    /// The error for the caller.
    pub error: Error,
    /// Whether the work was done.
    pub fate: Fate,
    /// Whether the link may be used again, after a rollback.
    pub is_link_usable: bool,
}

impl Failure {
    /// The failure of a call before COMMIT: the transaction has not happened.
    pub(in crate::store::database) fn before_commit(mut self) -> Self {
        if self.fate == Fate::Unknown {
            self.fate = Fate::TransactionUndone;
            if self.error.code() == Code::COMMIT_UNKNOWN {
                let message = format!("the connection was lost before COMMIT: {}", self.error.message());
                self.error = Error::new(Code::SERVER_UNREACHABLE, message);
            }
        }
        self
    }

    /// Whether a single item of a batch may be at fault, so that the items are done one by one and only that one fails. Not if the
    /// server cannot be reached or refuses all of them, nor for takes of a queue with limits, which are refused (60043) after two
    /// seconds in line.
    pub(in crate::store::database) fn may_be_of_one_item(&self) -> bool {
        let concerns_all = matches!(
            self.error.code(),
            Code::SERVER_UNREACHABLE | Code::POOL_EXHAUSTED | Code::ACCESS_DENIED | Code::JOB_LOCKED
        );
        !concerns_all && !self.fate.may_have_happened()
    }

    /// 60020: the transaction of a [`EnlistedConnection`] takes no more requests, because a statement of the user's in it failed.
    #[cfg(any(feature = "postgres", feature = "mssql"))]
    pub(crate) fn of_a_failed_enlisted_transaction(verb: &str) -> Self {
        let message =
            format!("{verb} was not done: an earlier statement of this transaction of your own failed; roll it back");
        let error = Error::new(Code::TRANSACTION_ENDED, message);
        Self { error, fate: Fate::TransactionUndone, is_link_usable: true }
    }
}

/// Whether failed work happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It did not happen: the server refused it, or it never reached the server.
    Undone,
    /// It did not happen and the whole transaction is gone: a deadlock, a lost connection before COMMIT was sent.
    TransactionUndone,
    /// Unknown: COMMIT, or a call that commits by itself, was sent and no answer came.
    Unknown,
    /// It has happened, but alone: the server refused to begin its transaction, and ran it all the same.
    Alone,
}

impl Fate {
    /// Whether the work may have happened, so that it must not be done again.
    pub(in crate::store::database) fn may_have_happened(self) -> bool {
        matches!(self, Self::Unknown | Self::Alone)
    }
}

/// The result of a link's work.
pub type Linked<T> = std::result::Result<T, Failure>;

/// One connection to a server. Outside [`Link::begin`] and [`Link::commit`] every call is a transaction of its own.
///
/// Rows of calls hold ids as their 16 bytes (`SqlValue::Blob`), times as microseconds and booleans as 0 and 1 (`SqlValue::Integer`).
pub trait Link: Send {
    /// Calls one of our functions; gives its rows, whose columns are named as in the declaration, in lower case.
    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>>;

    /// Runs a read of ours (a text of `sql/<dialect>`), without arguments.
    fn read<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Linked<Vec<SqlRow>>>;

    /// Runs the user's own query. Ids are given as text with hyphens, times as `YYYY-MM-DD hh:mm:ss.ffffff` of UTC.
    fn query<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<SqlRows>>;

    /// Runs the user's own statement; gives the number of rows changed.
    fn execute<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<u64>>;

    /// Runs a script of ours as it is, many statements together: installation.
    fn script<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, Linked<()>>;

    /// Opens a transaction.
    fn begin(&mut self) -> BoxFuture<'_, Linked<()>>;

    /// Commits it, durably.
    fn commit(&mut self) -> BoxFuture<'_, Linked<()>>;

    /// Makes the last calls of a transaction and commits it, durably, if possible in one flight; gives the rows of each
    /// call. With `checks_first` deferred constraints are checked before COMMIT, so that after a refusal the transaction
    /// is still open, for a rollback.
    fn finish<'a>(&'a mut self, calls: Vec<Call<'a>>, _checks_first: bool) -> BoxFuture<'a, Linked<Vec<Vec<SqlRow>>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(calls.len());
            for call in calls {
                answers.push(self.call(call).await.map_err(Failure::before_commit)?);
            }
            self.commit().await?;
            Ok(answers)
        })
    }

    /// Makes calls that do not depend on each other, each a transaction of its own, in order and if possible in one flight;
    /// gives the answer of each. Fails if none was sent.
    fn calls<'a>(&'a mut self, calls: Vec<Call<'a>>) -> BoxFuture<'a, Linked<Vec<Linked<Vec<SqlRow>>>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(calls.len());
            for call in calls {
                answers.push(self.call(call).await);
            }
            Ok(answers)
        })
    }

    /// Whether the connection is known to be closed. The server is not asked.
    fn is_closed(&self) -> bool;

    /// With the next request the transaction takes the lock of a group alone that it shares with a claim
    /// ([`Dialect::has_claims`]).
    fn hold_group(&mut self, _group: Uuid) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Rolls it back; no error if the server has done so already.
    fn rollback(&mut self) -> BoxFuture<'_, Linked<()>>;

    /// Sets a savepoint. `number` names it: the caller maps the user's names to numbers. Number 0 is set and released around
    /// every verb, so a driver should send both with the next request.
    fn savepoint(&mut self, number: u32) -> BoxFuture<'_, Linked<()>>;

    /// Releases the savepoint and keeps the work since, with its locks. A server without RELEASE does nothing.
    fn release(&mut self, number: u32) -> BoxFuture<'_, Linked<()>>;

    /// Undoes all work since the savepoint, and keeps the savepoint.
    fn rollback_to(&mut self, number: u32) -> BoxFuture<'_, Linked<()>>;

    /// From now to the end of the transaction, locks of conversation groups are taken for the session, so that they
    /// outlive [`Link::rollback_to`]; called in the transaction, before its first savepoint of the user. The caller calls
    /// `unlock_session` after the end.
    fn hold_locks(&mut self) -> BoxFuture<'_, Linked<()>>;

    /// Keeps the locks of conversation groups that the transaction holds beyond its rollback, if the server can; called just
    /// before that. The caller calls `unlock_session` after it.
    fn keep_locks(&mut self) -> BoxFuture<'_, Linked<()>>;
}

/// A connection of the user's own, in a transaction of the user's own or in none. The server notifies other processes
/// after the commit.
pub trait EnlistedConnection: Send {
    /// The name of its server's dialect.
    fn dialect(&self) -> &'static str;

    /// Calls one of our functions; a refusal leaves the user's transaction as it was before, unless the server has ended it.
    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>>;
}

/// Makes links to a server.
pub trait Driver: Send + Sync + 'static {
    /// The texts of SQL.
    fn dialect(&self) -> &'static Dialect;

    /// A link from the pool, ready for a transaction. When it is dropped it returns to the pool, or is closed if it is not
    /// clean. Waits for one up to the pool's limit, then fails with 60032.
    fn take(&self) -> BoxFuture<'_, Result<Box<dyn Link>>>;

    /// A link from the pool, if another one stays free; `None` if not. For work that can wait, so that callers do not wait for it: that
    /// of old claims. By default the same as [`Self::take`], because only PostgreSQL's transactions claim.
    fn take_spare(&self) -> BoxFuture<'_, Result<Option<Box<dyn Link>>>> {
        Box::pin(async { Ok(Some(self.take().await?)) })
    }

    /// Whether [`Self::take`] need not wait until another caller gives a link back.
    fn has_free(&self) -> bool {
        true
    }

    /// A link outside the pool: for installation, and for work that holds locks of the session.
    fn dedicated(&self) -> BoxFuture<'_, Result<Box<dyn Link>>>;

    /// A link outside the pool for a transaction of the user's, with the limits of its role: those that hold the pool's links
    /// may wait for that transaction.
    fn beyond_pool(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        self.dedicated()
    }

    /// Waits until a connection was lost with the answer to something that may have committed. A server without notifications is polled,
    /// and need not say so.
    fn answer_lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Begins to listen to notifications. The listener fails when its connection is lost. A server without
    /// notifications returns `None`, and is polled.
    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>>>;

    /// Closes every idle link, and the others when they come back.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Waits until the server has learned of the end of every link that was dropped, a second at most: a process that ends
    /// earlier looks like a lost one in the server's log.
    fn wait_for_ends(&self) -> BoxFuture<'_, ()>;
}

/// Receives notifications.
pub trait Listener: Send {
    /// The payloads that have arrived; waits for the first.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<String>>>;

    /// Asks the server to send nothing more. A notification to a listener that is gone is an error in the server's log.
    fn stop(&mut self) -> BoxFuture<'_, ()>;
}
