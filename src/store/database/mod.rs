//! The store in a database server: everything that the drivers share.
//!
//! The rules are SQL, in the functions and procedures of `sql/<dialect>`. This side calls them, batches the calls of
//! concurrent callers, checks bodies, keeps the definitions, and wakes receivers.

mod batching;
pub mod calls;
mod closing;
mod definitions;
pub mod dialect;
pub mod installation;
pub mod link;
mod maintenance;
mod notifications;
mod presence;
mod retry;
mod schedules;
mod transactions;

#[cfg(test)]
mod tests;

pub use calls::refusal::refusal;

use super::check_room::CheckRoom;
use super::statement::commits_by_itself;
use super::{
    ActivityBoard, BoxFuture, LockHolder, OpenOptions, ReaderSlot, Seen, SqlRows, SqlStatement, SqlValue, Store,
    StoreTexts, StoreTx,
};
use crate::catalog::Catalog;
use crate::catalog::body::BodyChecks;
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::protocol::work::TakenJob;
use crate::protocol::{Outcome, Unit, Verb};
use crate::time::{Clock, Rule, Timestamp};
use batching::{batcher, claim_batches, dialog_batches, job_batches, receive_batches, send_batches};
use definitions::catalog;
use installation::install::{self, Purpose};
use link::{Arg, Call, Driver, EnlistedConnection, Fate};
use notifications::{control_connection, publish, queue_poll};
use retry::{Repeat, Retry, retry};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use transactions::{attempts, claim_ages, held_jobs, job_take_link, tx, uncommitted_receives};
use uuid::Uuid;

/// After this pause a lone SEND that waits for a locked group lets other SENDs go.
const LONE_SEND_WAIT: Duration = Duration::from_millis(20);

/// The longest `note_after`: a moment that no clock can show ended the transaction with a panic.
const LATEST_NOTE: Duration = Duration::from_secs(86_400 * 365);

/// A broker in a database, shared with other processes.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct DatabaseStore {
    database: Arc<Database>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// One close at a time.
    closing: tokio::sync::Mutex<Closing>,
    /// Listens to other processes; it ends by itself once the store leaves.
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// How far the store is closed. A second close waits for the first; if the caller of that has left, it does the rest.
struct Closing {
    /// Notifies other processes; it ends by itself once the outbox is closed.
    notifier: JoinHandle<()>,
    is_over: bool,
}

/// The state that all calls and tasks of a store share.
struct Database {
    // The server, this process, the time.
    driver: Arc<dyn Driver>,
    runtime: tokio::runtime::Handle,
    /// Identifies this process to others.
    process: Uuid,
    /// The server's clock as last read, or the tests'.
    clock: Clock,
    /// The time of a test clock that was last pushed to the server.
    pushed_time: tokio::sync::Mutex<Option<Timestamp>>,
    /// Of a test clock, until the broker is closed.
    clock_rule: Mutex<Option<Arc<Rule>>>,
    ids: Mutex<IdSource>,

    // Definitions, and bodies checked against them.
    definitions: catalog::Definitions,
    max_body_bytes: usize,
    checks: Arc<BodyChecks>,
    check_room: CheckRoom,

    // Calls that may go together with others, by verb.
    sends: batcher::Batcher<send_batches::Sending>,
    begins: batcher::Batcher<dialog_batches::Asked>,
    ends: batcher::Batcher<dialog_batches::Asked>,
    receives: receive_batches::Receives,
    jobs: job_batches::JobBatches,
    /// How long a lone SEND delays other SENDs.
    patience: Duration,

    // What open transactions have received or taken.
    /// Messages of this process that are not committed, by queue.
    uncommitted: Arc<uncommitted_receives::UncommittedReceives>,
    /// Receives to be noted, so that a rollback counts even if the process dies.
    notes: attempts::Notes,
    claim_sessions: claim_batches::ClaimSessions,
    claim_ages: claim_ages::ClaimAges,
    beyond_pool: tx::ConnectionsBeyondPool,
    holders: Arc<held_jobs::OpenHolders>,
    /// Jobs to be given back.
    owed: held_jobs::OwedReleases,

    // Connections of the process beside the pool.
    control: control_connection::ControlConnection,
    maintenance_control: control_connection::ControlConnection,
    /// For takes of transactions that may wait in the line of a work queue with limits.
    line: control_connection::ControlConnection,
    large_jobs: job_take_link::LargeJobs,
    /// Shows readers and monitors to other processes.
    presence: presence::Presence,

    // What wakes callers and other processes, and what is due.
    board: ActivityBoard,
    watch: queue_poll::PollTrigger,
    outbox: publish::Outbox,
    maintenance: maintenance::Maintenance,
    schedule_failures: schedules::ScheduleFailures,

    // The end.
    open_work: closing::OpenWork,
    endings: closing::Endings,
    /// Once, when the store closes.
    leaving: Notify,
}

impl Database {
    fn next_id(&self) -> Uuid {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).next_id()
    }

    /// Runs before every request: waits for pending rollbacks, then pushes the test clock.
    async fn before_work(self: &Arc<Self>) -> Result<()> {
        self.before_work_of(false).await
    }

    async fn before_work_of(self: &Arc<Self>, is_in_transaction: bool) -> Result<()> {
        self.endings.wait_for_rollbacks(is_in_transaction).await;
        self.push_test_clock().await
    }
}

impl DatabaseStore {
    /// Opens the broker behind a driver. Call it in a runtime, which the store's own tasks then run in.
    ///
    /// # Errors
    /// 60030 the server cannot be reached, 60034 it refuses the user, 60035 the database has no Dialoq schema, 60013 it
    /// has one of a newer Dialoq.
    pub async fn open(driver: Arc<dyn Driver>, options: OpenOptions) -> Result<Arc<Self>> {
        Self::open_with(driver, options, LONE_SEND_WAIT).await
    }

    async fn open_with(driver: Arc<dyn Driver>, options: OpenOptions, patience: Duration) -> Result<Arc<Self>> {
        let process = Uuid::new_v4();
        let mut ids = options.ids;
        let mut link = driver.dedicated().await?;
        if options.create {
            install::install(&mut *link, driver.dialect(), &mut ids, Purpose::Opening).await?;
        } else {
            install::check(&mut *link, driver.dialect()).await?;
        }
        drop(link);
        // Before the definitions are read, so that no change of them is missed.
        let listener = driver.listen().await?;
        // The server's clock counts, not this host's; it is read with the definitions.
        let clock = match options.clock.moves() {
            Some(_) => options.clock,
            None => Clock::remote(options.clock.now()),
        };
        let active = batcher::ActiveBatchers::default();
        let note_after = options.note_after.min(LATEST_NOTE);
        let database = Arc::new(Database {
            ids: Mutex::new(ids),
            max_body_bytes: options.max_body_bytes,
            definitions: catalog::Definitions::default(),
            checks: Arc::default(),
            check_room: CheckRoom::default(),
            board: ActivityBoard::default(),
            watch: queue_poll::PollTrigger::default(),
            uncommitted: Arc::default(),
            notes: attempts::Notes::new(options.careful_receives, note_after),
            claim_sessions: claim_batches::ClaimSessions::new(&active),
            claim_ages: claim_ages::ClaimAges::new(note_after),
            beyond_pool: tx::ConnectionsBeyondPool::default(),
            outbox: publish::Outbox::default(),
            sends: batcher::Batcher::new(active.clone()).gathering(options.gathering.clone()),
            begins: batcher::Batcher::new(active.clone()).gathering(options.gathering.clone()),
            ends: batcher::Batcher::new(active.clone()).gathering(options.gathering.clone()),
            receives: receive_batches::Receives::new(active.clone(), options.gathering.clone()),
            jobs: job_batches::JobBatches::new(active, options.gathering),
            maintenance: maintenance::Maintenance::new(clock.clone()),
            control: control_connection::ControlConnection::new(driver.clone()),
            maintenance_control: control_connection::ControlConnection::new(driver.clone()),
            line: control_connection::ControlConnection::new(driver.clone()),
            large_jobs: job_take_link::LargeJobs::default(),
            presence: presence::Presence::new(driver.clone(), process),
            owed: held_jobs::OwedReleases::default(),
            holders: Arc::default(),
            schedule_failures: schedules::ScheduleFailures::default(),
            process,
            patience,
            pushed_time: tokio::sync::Mutex::default(),
            clock_rule: Mutex::default(),
            open_work: closing::OpenWork::default(),
            endings: closing::Endings::default(),
            leaving: Notify::new(),
            runtime: tokio::runtime::Handle::current(),
            clock,
            driver,
        });
        database.reload().await?;
        let default = OpenOptions::default().closed_retention;
        if options.closed_retention != default {
            let seconds = i64::try_from(options.closed_retention.as_secs()).unwrap_or(i64::MAX);
            let call = Call { name: "configure", args: vec![Arg::BigInt(seconds), Arg::Null] };
            database.call_on_a_link(call).await?;
        }
        database.rule_time();
        database.push_test_clock().await?;
        database.set_polling(listener.is_none());
        let notifier = tokio::spawn(database.clone().notify_peers());
        let closing = tokio::sync::Mutex::new(Closing { notifier, is_over: false });
        let tasks = vec![
            tokio::spawn(database.clone().run_queue_poll()),
            tokio::spawn(look_after_receivers(database.clone())),
            tokio::spawn(database.clone().run_notes()),
            tokio::spawn(database.clone().run_claim_ages()),
            tokio::spawn(database.clone().publish_monitors()),
            tokio::spawn(database.clone().announce_lost_answers()),
            tokio::spawn(database.clone().maintain()),
            tokio::spawn(watch_runtime(closing::RuntimeWatch(Arc::downgrade(&database)))),
        ];
        let listening = listener.map(|listener| tokio::spawn(database.clone().listen_to_peers(listener)));
        // From here on a caller that gives the opening up drops the store, and that ends its tasks.
        let store = Arc::new(Self { database, tasks: Mutex::new(tasks), closing, listening: Mutex::new(listening) });
        if options.does_overdue_work {
            let (work, is_over) = store.database.clone().overdue_work();
            store.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(tokio::spawn(work));
            let _ = tokio::time::timeout(maintenance::HANGING_TICK, is_over).await;
        }
        Ok(store)
    }

    fn stop_tasks(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
    }

    fn take_listening(&self) -> Option<JoinHandle<()>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Stops the tasks while none of them waits for an answer: a session that goes away in the middle of a request, or before a
    /// notification, is an error in the server's log.
    async fn stop_tasks_between_requests(&self) {
        let database = &self.database;
        let mut listening = self.take_listening();
        database.leaving.notify_one();
        let between = async {
            if let Some(listening) = &mut listening {
                let _ = listening.await;
            }
            let _resting = (
                database.maintenance_control.rest().await,
                database.control.rest().await,
                database.line.rest().await,
                database.presence.rest().await,
            );
            self.stop_tasks();
        };
        if tokio::time::timeout(closing::LONGEST_ENDING, between).await.is_err() {
            self.stop_tasks();
            if let Some(listening) = listening {
                listening.abort();
            }
        }
    }

    async fn close_now(&self) {
        let mut closing = self.closing.lock().await;
        if closing.is_over {
            return;
        }
        let database = &self.database;
        database.open_work.close().await;
        self.stop_tasks_between_requests().await;
        database.board.wake_all();
        // Before the driver closes its links.
        database.return_server_time().await;
        let notifier = &mut closing.notifier;
        let abort_notifier = notifier.abort_handle();
        let context = async {
            database.outbox.close();
            if !notifier.is_finished() {
                let _ = notifier.await;
            }
            database.claim_sessions.close().await;
            database.presence.close().await;
            database.control.close().await;
            database.maintenance_control.close().await;
            database.line.close().await;
        };
        let context = tokio::time::timeout(closing::LONGEST_CLOSE, context);
        if let (Err(_), ()) = tokio::join!(context, database.driver.close()) {
            tracing::warn!(
                "the broker is closed while calls beside its transactions wait for locks; they are given up"
            );
            abort_notifier.abort();
        }
        database.driver.wait_for_ends().await;
        closing.is_over = true;
    }
}

impl Drop for DatabaseStore {
    fn drop(&mut self) {
        self.stop_tasks();
        if let Some(listening) = self.take_listening() {
            listening.abort();
        }
        self.database.outbox.close();
    }
}

async fn look_after_receivers(database: Arc<Database>) {
    database.board.keep_looking_after_receivers().await;
}

async fn watch_runtime(_watch: closing::RuntimeWatch) {
    std::future::pending().await
}

impl Store for DatabaseStore {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let work = self.database.open_work.enter()?;
            self.database.clone().submit(unit, work).await
        })
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async move {
            let work = self.database.open_work.enter()?;
            self.database.clone().submit_once(unit_id, unit, work).await
        })
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.database.open_work.check()?;
            self.database.unit_happened(unit_id).await
        })
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        Box::pin(async move {
            self.database.open_work.check()?;
            self.database.take_slot(queue_id, max_queue_readers).await
        })
    }

    fn perform_on<'a>(
        &'a self,
        connection: &'a mut dyn EnlistedConnection,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let _work = self.database.open_work.enter()?;
            self.database.perform_on(connection, verb).await
        })
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self.database.before_work().await {
                Ok(()) => self.database.refresh_facts().await,
                // The caller uses the facts of the last poll.
                Err(error) => tracing::warn!(%error, "the queues could not be polled"),
            }
        })
    }

    fn give_back_jobs(&self, jobs: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _work = self.database.open_work.begin();
            self.database.return_unseen_jobs(&jobs).await;
        })
    }

    fn begin(&self, seen: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move {
            self.database.open_work.check()?;
            Ok(Box::new(tx::DatabaseTx::new(self.database.clone(), seen)) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            let _work = self.database.open_work.enter()?;
            self.database.before_work().await?;
            self.database.publish_before_query().await;
            retry(Repeat::Always, || async { self.database.take().await?.query(&sql).await }).await
        })
    }

    fn lock_holder(&self, group: Uuid) -> BoxFuture<'_, Result<Option<LockHolder>>> {
        let text = self.database.driver.dialect().lock_holder.to_owned();
        let params = vec![SqlValue::Text(group.to_string())];
        Box::pin(async move {
            let rows = self.query(SqlStatement { text, params, expected_rows: None }).await?.rows;
            let Some(row) = rows.first() else { return Ok(None) };
            Ok(Some(LockHolder {
                session_id: row.get("session_id")?,
                prepared: row.get("prepared")?,
                process_id: row.get("process_id")?,
                host_name: row.get("host_name")?,
                program_name: row.get("program_name")?,
                principal: row.get("principal")?,
                since: row.get::<Option<i64>>("since")?.map(Timestamp),
            }))
        })
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, Timestamp)>>> {
        let text = self.database.driver.dialect().receive_holds.to_owned();
        Box::pin(async move {
            let rows = self.query(SqlStatement { text, params: Vec::new(), expected_rows: None }).await?.rows;
            rows.iter().map(|row| Ok((row.get("queue_id")?, Timestamp(row.get("held_until")?)))).collect()
        })
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let _work = self.database.open_work.enter()?;
            self.database.before_work().await?;
            // Part of it may be committed before it fails: a procedure may commit, and outside a transaction each
            // statement of a T-SQL batch commits by itself.
            let has_batches = self.database.driver.dialect().has_batches;
            let may_be_done_in_part = sql.expected_rows.is_none() && (has_batches || commits_by_itself(&sql.text));
            let mut tries = Retry::default();
            loop {
                let (failure, was_sent) = match self.database.take().await {
                    Ok(mut link) => match run_alone(&mut *link, &sql).await {
                        Ok(changed) => return Ok(changed),
                        Err(failure) => (failure, true),
                    },
                    Err(failure) => (failure, false),
                };
                if was_sent && may_be_done_in_part && (has_batches || failure.error.code() == Code::DEADLOCK) {
                    return Err(failure.into());
                }
                tries.after(failure, Repeat::IfUndone).await?;
            }
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.database.definitions.known().catalog.clone()
    }

    fn texts(&self) -> &'static StoreTexts {
        &self.database.driver.dialect().texts
    }

    fn activity(&self) -> &ActivityBoard {
        &self.database.board
    }

    fn clock(&self) -> &Clock {
        &self.database.clock
    }

    fn ended(&self) -> Option<Error> {
        self.database.open_work.check().err()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.close_now().await;
            Ok(())
        })
    }
}

/// Runs the user's statement in a transaction of its own if its rows are counted.
async fn run_alone(link: &mut dyn link::Link, sql: &SqlStatement) -> link::Linked<u64> {
    let Some(expected) = sql.expected_rows else { return link.execute(sql).await };
    link.begin().await?;
    let changed = match link.execute(sql).await {
        Ok(changed) => changed,
        Err(failure) => {
            if failure.is_link_usable {
                // If that fails too, the link is closed.
                let _ = link.rollback().await;
            }
            return Err(failure);
        }
    };
    if changed == expected {
        link.commit().await?;
        return Ok(changed);
    }
    link.rollback().await?;
    let message =
        format!("the statement '{}' changed {changed} rows where {expected} were expected; it was undone", sql.text);
    let error = Error::new(Code::USER_SQL_FAILED, message);
    Err(link::Failure { error, fate: Fate::Undone, is_link_usable: true })
}
