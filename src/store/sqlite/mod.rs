//! The embedded store: the core in memory, its rows in SQLite, group commit between them.

mod answered;
mod batch;
mod board;
mod checks;
mod deferred;
mod disk_room;
mod engine;
mod failure;
mod group_handover;
mod guard;
mod known_schema;
mod known_statement;
mod limit;
mod load;
mod moment;
mod open;
mod options;
mod owner;
mod parameters;
mod parked;
mod read;
mod read_only;
mod reader_slots;
mod readers;
mod recent;
mod rehearse;
mod reserved;
mod script;
mod share;
mod state;
mod temp_store;
mod tx;
mod user_sql;
pub(crate) mod waits;
mod work;
mod write;

#[cfg(test)]
mod tests;

pub use failure::of_own_query;
pub use options::{Fault, SqliteOptions};
pub use read_only::ReadOnlyStore;
pub use share::SharedStore;

use super::handover::HoldsMessages;
use super::url::{LARGEST_BODY_BYTES, Location};
use super::{
    ActivityBoard, BoxFuture, LockHolder, ReaderSlot, Seen, SqlRows, SqlStatement, Store, StoreTexts, StoreTx,
    name_on_board,
};
use crate::catalog::Catalog;
use crate::core::{Core, Effects, Repair};
use crate::error::{Code, Error, Result};
use crate::protocol::work::{TakenJob, WorkVerb};
use crate::protocol::{Outcome, Unit, Verb};
use crate::sql::sqlite::transaction::LAST_ROW;
use crate::time::{Clock, Timestamp};
use answered::Answered;
use batch::{Batch, Sender, Slot, Slots, WriteSide};
use deferred::DeferredKeys;
use disk_room::{Adds, DiskRoom};
use engine::Engine;
use failure::{poisoned, storage};
use known_schema::KnownSchema;
use limit::{Caller, Ending, Limits};
use moment::Moments;
use open::OpenFor;
use owner::{Owner, Peer};
use reader_slots::ReaderSlots;
use reserved::Reserved;
use state::{SqlCommit, State};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use user_sql::UserWork;
use uuid::Uuid;

/// The highest total cost of the units under way: a unit counts one, and one more for every [`BODY_SHARE_BYTES`] of its
/// bodies.
const ROOM: u32 = 16 * 1024;
const BODY_SHARE_BYTES: usize = 16 * 1024;

/// A broker in one SQLite file that this process owns, or in memory.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct SqliteStore {
    engine: Arc<Engine>,
    room: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Ends the thread that listens to a manual clock.
    stop_listening: Arc<Notify>,
    sql_limits: Limits,
    repairs: Arc<[Repair]>,
    /// One close at a time.
    closing: Mutex<()>,
    /// The readers of this process, if no others share the file.
    slots: Arc<ReaderSlots>,
    this: Weak<SqliteStore>,
}

impl SqliteStore {
    /// Opens a database, makes it if it is missing, and recovers its content. Reads every row's key, so call it where a
    /// thread may block: a million conversations take seconds.
    ///
    /// # Errors
    /// 60010 if another process owns the file, 60011 if it is not one of Dialoq, has several hard links or is mounted
    /// without its folder, or its lock file is a symbolic link or holds something else, 60012 if it is damaged,
    /// 60013 if a newer Dialoq wrote it,
    /// 60014 if it cannot be written, 60017 if the disk is full, 60018 if it cannot be read.
    pub fn open(options: SqliteOptions) -> Result<Arc<Self>> {
        let SqliteOptions {
            location,
            durability,
            create_if_missing,
            clock,
            ids,
            mut limits,
            sql_timeout,
            is_shared,
            lock_wait,
            board,
            held_jobs,
            fault,
            vfs,
        } = options;
        limits.max_body_bytes = limits.max_body_bytes.min(LARGEST_BODY_BYTES);
        let (location, file) = match location {
            Location::Memory => (Location::Memory, None),
            Location::File(path) => {
                let path = open::absolute_path(&path);
                open::check_file(&path, if create_if_missing { OpenFor::Making } else { OpenFor::Writing })?;
                let mut owner = Owner::lock(&path)?;
                open::check_links(&path)?;
                open::check_ours(&path, create_if_missing)?;
                owner.announce(is_shared)?;
                (Location::File(path.clone()), Some((path, owner)))
            }
        };
        // Declared after the owner, so that a connection is closed before the lock goes if the opening fails.
        let disk = DiskRoom::new(file.as_ref().map(|(path, _)| &**path), fault.clone());
        let (mut connection, is_new) = open::write_connection(&location, durability, lock_wait, &disk, vfs.as_deref())?;
        disk.measure(&connection);
        disk.check_log()?;
        let now = clock.now();
        let doing = || format!("opening database '{location}'");
        let guard = guard::Guard::install(&mut connection).map_err(|error| storage(&doing(), error))?;
        let deferred_keys = DeferredKeys::install(&connection).map_err(|error| storage(&doing(), error))?;
        let moments = Moments::install(&connection).map_err(|error| storage(&doing(), error))?;
        connection.execute_batch(LAST_ROW).map_err(|error| storage(&doing(), error))?;
        reserved::check_foreign_keys(&connection, &doing())?;
        let reserved = Reserved::read(&connection).map_err(|error| storage(&doing(), error))?;
        let sql_limits = Limits { timeout: sql_timeout, ending: Arc::new(Ending::default()), disk: None };
        let mut write = WriteSide {
            connection,
            guard,
            deferred_keys,
            schema: KnownSchema::default(),
            limits: Limits { disk: Some(disk.clone()), ..sql_limits.clone() },
            moments,
            rehearsal: Cell::default(),
            reserved,
            fault: None,
            spare: Batch::default(),
            recent: Arc::default(),
            recent_jobs: RefCell::default(),
            board_version: 0,
            board_written: engine::long_ago(),
            file_checked: engine::long_ago(),
            is_shut: false,
        };
        let mut repairs = Vec::new();
        let (core, marks) = if is_new {
            let core = Core::new(ids, limits);
            let mut effects = Effects::default();
            core.install(&mut effects);
            // The marks of a new table are right: no number has been given out.
            write.commit(&mut Batch { changes: effects.changes, ..Batch::default() })?;
            let marks = core.counters();
            (core, marks)
        } else {
            // Reading and mending are one transaction, so that no other program writes in between.
            board::clear(&write).map_err(|error| storage(&doing(), error))?;
            let load::Loaded { restored, orphans, largest_body, marks } =
                load::core(&write.connection, ids, limits, &held_jobs, now)?;
            disk.expect_body(largest_body);
            orphans.delete(&write.connection)?;
            write.commit(&mut Batch { changes: restored.changes, ..Batch::default() })?;
            repairs = restored.repairs.into_list();
            for repair in &repairs {
                tracing::warn!(table = repair.table, rows = repair.rows, "database '{location}' was mended: {repair}");
            }
            (restored.core, marks)
        };
        let file = file.map(|(path, mut owner)| {
            owner.note_log();
            (path, owner)
        });
        write.fault = fault;
        open::wait_briefly(&write.connection).map_err(|error| storage(&doing(), error))?;
        let mut state = State::new(core, marks);
        state.is_shared = is_shared;
        disk.measure(&write.connection);
        let engine = Arc::new(Engine::new(state, write, clock, board, file, disk));
        engine.checking.serve(&engine);
        engine.publish_depths();
        waits::register(&engine);
        let stop_listening = Arc::new(Notify::new());
        let threads = Mutex::new(Self::start(&engine, &stop_listening, &doing())?);
        let room = Arc::new(Semaphore::new(ROOM as usize));
        let closing = Mutex::new(());
        Ok(Arc::new_cyclic(|this| Self {
            engine,
            room,
            threads,
            stop_listening,
            sql_limits,
            repairs: repairs.into(),
            closing,
            slots: Arc::default(),
            this: this.clone(),
        }))
    }

    /// Opens a database to read it while another process owns it.
    ///
    /// # Errors
    /// As [`SqliteStore::open`], but for 60010.
    pub fn open_read_only(options: SqliteOptions) -> Result<Arc<ReadOnlyStore>> {
        ReadOnlyStore::open(options)
    }

    /// Waits until all is written that was done until now, also what is in a batch under way.
    async fn write_all(&self) -> Result<()> {
        written(&self.engine).await
    }

    /// Gives leased jobs back that no handler has seen; false if the store writes nothing more.
    fn give_back(&self, jobs: &[TakenJob]) -> bool {
        self.engine.give_back_jobs(jobs.iter().copied())
    }

    /// Whether a commit has failed: the store takes no more work.
    fn has_failed(&self) -> bool {
        self.engine.lock_even_failed().failed.is_some()
    }

    /// Whether it has failed because the disk was full. Nothing that was acknowledged is lost, and another opening may find room.
    fn is_full(&self) -> bool {
        self.engine.is_full.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// The jobs that other transactions held than those whose commits met the full disk.
    fn held_jobs(&self) -> Arc<[TakenJob]> {
        self.engine.lock_even_failed().held_jobs.clone()
    }

    /// The repairs made when the database was opened.
    pub fn repairs(&self) -> &Arc<[Repair]> {
        &self.repairs
    }

    fn start(engine: &Arc<Engine>, stop_listening: &Arc<Notify>, doing: &str) -> Result<Vec<JoinHandle<()>>> {
        let failed = |error: std::io::Error| {
            Error::new(Code::STORE_IO, format!("{doing}: no thread could be started ({error})"))
        };
        let mut threads = Vec::new();
        let writer = engine.clone();
        let name = |name: &str| std::thread::Builder::new().name(format!("dialoq-{name}"));
        threads.push(name("writer").spawn(move || writer.run_writer()).map_err(failed)?);
        if let Some(mut moves) = engine.clock.moves() {
            let (engine, stop) = (engine.clone(), stop_listening.clone());
            let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
            let listen = move || {
                runtime.block_on(async {
                    loop {
                        tokio::select! {
                            moved = moves.changed() => match moved {
                                Ok(()) => engine.wake_writer(),
                                Err(_) => return,
                            },
                            () = stop.notified() => return,
                        }
                    }
                });
            };
            threads.push(name("clock").spawn(listen).map_err(failed)?);
        }
        Ok(threads)
    }

    /// Waits until there is room for a unit of that cost, so that a flood waits in its callers and not in memory.
    async fn room(&self, cost: u32) -> Result<OwnedSemaphorePermit> {
        match self.room.clone().try_acquire_many_owned(cost) {
            Ok(room) => Ok(room),
            Err(_) => self.room.clone().acquire_many_owned(cost).await.map_err(|_| self.engine.why_unanswered()),
        }
    }

    /// Lends a connection for the user's SQL: a reading one, or the only one there is.
    fn with_guarded<T>(&self, work: impl FnOnce(&rusqlite::Connection, &guard::Guard) -> Result<T>) -> Result<T> {
        if let Some(readers) = &self.engine.readers {
            return readers.lend(|reader| work(&reader.connection, &reader.guard));
        }
        self.with_writing(work)
    }

    /// Lends the connection that writes.
    fn with_writing<T>(&self, work: impl FnOnce(&rusqlite::Connection, &guard::Guard) -> Result<T>) -> Result<T> {
        let side = self.engine.write.lock().map_err(|_| poisoned("a thread panicked while it wrote"))?;
        // What an open transaction has written is not committed.
        side.drop_rehearsal();
        work(&side.connection, &side.guard)
    }

    /// Runs a query of a transaction that has written nothing; `None` if the statement would write.
    async fn try_query(&self, sql: &SqlStatement) -> Result<Option<SqlRows>> {
        let (this, sql) = (self.this.upgrade().ok_or_else(Error::closed)?, sql.clone());
        let caller = Caller::default();
        let _waits = caller.guard();
        blocking(move || {
            let limits = &this.sql_limits;
            this.with_guarded(|connection, guard| user_sql::try_query(connection, guard, limits, &sql, &caller))
        })
        .await
    }

    async fn check_sql(&self, sql: &SqlStatement) -> Result<()> {
        let check = |reader: &open::ReadConnection| user_sql::check(&reader.connection, &reader.guard, sql);
        if let Some(checked) = self.engine.readers.as_ref().and_then(|readers| readers.lend_if_possible(check)) {
            return checked;
        }
        // Else there is one connection, and a statement may run on it for any time.
        if let Ok(side) = self.engine.write.try_lock() {
            side.drop_rehearsal();
            return user_sql::check(&side.connection, &side.guard, sql);
        }
        let (this, sql) = (self.this.upgrade().ok_or_else(Error::closed)?, sql.clone());
        blocking(move || this.with_writing(|connection, guard| user_sql::check(connection, guard, &sql))).await
    }

    /// Returns whether all have ended: if the store is dropped by its own writer's last answer, that thread ends by
    /// itself.
    fn stop_threads(&self) -> bool {
        self.stop_listening.notify_one();
        let threads = self.threads.lock().map(|mut threads| std::mem::take(&mut *threads)).unwrap_or_default();
        let mut have_ended = true;
        for thread in threads {
            if thread.thread().id() == std::thread::current().id() {
                have_ended = false;
            } else {
                let _ = thread.join();
            }
        }
        have_ended
    }

    fn close_now(&self) -> Result<()> {
        let _closing = self.closing.lock();
        let closed = self.engine.shut();
        // Also after a close that failed: the writer may sleep, and receivers may wait for a signal.
        self.engine.wake_writer();
        self.engine.board.wake_all();
        self.stop_threads();
        self.room.close();
        closed.and(self.engine.release())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.engine.abandon();
        // A thread that checks bodies may still hold the engine; the file must be free for the next owner.
        if self.stop_threads() {
            let _ = self.engine.release();
        }
    }
}

/// The cost of a unit against the room.
fn cost(unit: &Unit) -> u32 {
    let bytes: usize = unit
        .iter()
        .map(|verb| match verb {
            Verb::Send { body: Some(body), handles, .. } => body.len() * handles.len().max(1),
            Verb::SendEach(messages) => {
                messages.iter().filter_map(|message| message.body.as_ref()).map(|body| body.len()).sum()
            }
            Verb::Work(WorkVerb::Push(push)) => push.body.as_ref().map_or(0, |body| body.len()),
            Verb::Work(WorkVerb::Complete { result: Some(result), .. }) => result.len(),
            _ => 0,
        })
        .sum();
    u32::try_from(1 + bytes / BODY_SHARE_BYTES).unwrap_or(ROOM)
}

/// Waits for the answer; a dropped sender means that the engine has stopped or failed.
async fn answered(engine: &Engine, receiver: oneshot::Receiver<Result<Slots>>) -> Result<Slots> {
    receiver.await.unwrap_or_else(|_| Err(engine.why_unanswered()))
}

/// Waits until all that is ordered now is written.
async fn written(engine: &Engine) -> Result<()> {
    let (sender, receiver) = oneshot::channel();
    {
        let mut state = engine.lock()?;
        state.push_answer(batch::Slots::new(), Sender::new(sender, None));
        engine.write_ordered(state);
    }
    answered(engine, receiver).await.map(drop)
}

/// The outcomes of a unit with an id during its commit. If its caller leaves then, leased jobs go back.
struct UnseenOutcomes<'e> {
    engine: &'e Engine,
    outcomes: Vec<Outcome>,
}

impl Drop for UnseenOutcomes<'_> {
    fn drop(&mut self) {
        super::handover::note_dropped(self.outcomes.messages());
        let jobs =
            self.outcomes.iter().flat_map(|outcome| if let Outcome::Jobs(jobs) = outcome { &jobs[..] } else { &[] });
        self.engine.give_back_jobs(jobs.map(|job| job.taken));
    }
}

impl SqliteStore {
    /// Opens a transaction for a process: this one, or a guest.
    fn begin_for(&self, peer: Peer, seen: Seen) -> Result<Box<dyn StoreTx>> {
        let this = self.this.upgrade().ok_or_else(Error::closed)?;
        Ok(Box::new(tx::SqliteTx::begin(this, peer, seen)?))
    }
}

impl Store for SqliteStore {
    crate::store::methods_of_an_embedded_store!();

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        Box::pin(async move {
            let Some(number) = self.slots.take(queue_id, max_queue_readers) else { return Ok(None) };
            let (slots, engine) = (self.slots.clone(), Arc::downgrade(&self.engine));
            Ok(Some(ReaderSlot::freed_by(Some(number), move || {
                slots.free(queue_id, number);
                let Some(engine) = engine.upgrade() else { return };
                let catalog = engine.catalog.read().unwrap_or_else(|held| held.into_inner()).clone();
                if let Some(name) = name_on_board(&catalog, queue_id) {
                    engine.board.queue(&name).place_freed();
                }
            })))
        })
    }

    fn submit(&self, mut unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let _judgements = self.engine.checking.judge(&unit).await;
            let _promise = self.engine.disk.admit(&unit, Adds::More)?;
            let cost = cost(&unit).min(ROOM);
            let takes_leased_jobs = answered::takes_leased_jobs(&unit);
            loop {
                let room = self.room(cost).await?;
                let (sender, receiver) = oneshot::channel();
                // Before the unit is ordered: a close finds it.
                let answered = Answered::new(&self.engine, receiver, takes_leased_jobs);
                {
                    let mut state = self.engine.lock()?;
                    state.take_unit(unit, Sender::new(sender, Some(room)), self.engine.clock.now());
                    self.engine.write_ordered(state);
                }
                match batch::take_retry(answered.wait().await?) {
                    Ok((retried, unlocked)) => {
                        unit = retried;
                        // A store that closes drops the other end; the next order is refused then.
                        let _ = unlocked.await;
                    }
                    Err(slots) => return batch::outcomes(slots),
                }
            }
        })
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async move {
            let this = self.this.upgrade().ok_or_else(Error::closed)?;
            let mut tx: Box<dyn StoreTx> = Box::new(tx::SqliteTx::begin(this, Peer::this(), Seen::default())?);
            if !tx.claim(unit_id).await? {
                tx.rollback(None).await?;
                return Ok(None);
            }
            let mut outcomes = Vec::with_capacity(unit.len());
            for verb in unit {
                match tx.execute(verb).await {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(refusal) => {
                        // A transaction that met a deadlock has ended.
                        let _ = tx.rollback(None).await;
                        return Err(refusal);
                    }
                }
            }
            let mut unseen = UnseenOutcomes { engine: &self.engine, outcomes };
            let committed = tx.commit().await;
            let outcomes = std::mem::take(&mut unseen.outcomes);
            committed.map(|()| Some(outcomes))
        })
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            loop {
                let ended = {
                    let mut state = self.engine.lock()?;
                    if state.core.unit_happened(unit_id) {
                        break;
                    }
                    if !state.core.is_unit_under_way(unit_id) {
                        return Ok(false);
                    }
                    state.parked.until_unit_ends(unit_id)
                };
                // The sender is dropped at the end of the transaction, and at that of the store, which the next look finds.
                let _ = ended.await;
            }
            // The core knows it before it is written, and it may never be.
            written(&self.engine).await?;
            Ok(true)
        })
    }

    fn give_back_jobs(&self, jobs: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        Box::pin(async move { _ = self.give_back(&jobs) })
    }

    fn begin(&self, seen: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move { self.begin_for(Peer::this(), seen) })
    }

    fn lock_holder(&self, group: Uuid) -> BoxFuture<'_, Result<Option<LockHolder>>> {
        Box::pin(async move {
            let found = self.engine.lock()?.core.holder(group);
            Ok(found.map(|(session, opener)| LockHolder {
                session_id: Some(session.into()),
                process_id: opener.and_then(|opener| opener.process_id).map(i64::from),
                principal: opener.and_then(|opener| opener.user_id).map(|user| format!("uid {user}")),
                since: opener.map(|opener| opener.since),
                ..LockHolder::default()
            }))
        })
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, Timestamp)>>> {
        Box::pin(async move { Ok(self.engine.lock()?.core.receive_holds()) })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            drop(self.engine.lock()?);
            let this = self.this.upgrade().ok_or_else(Error::closed)?;
            let caller = Caller::default();
            let _waits = caller.guard();
            blocking(move || {
                let limits = &this.sql_limits;
                this.with_guarded(|connection, guard| user_sql::query(connection, guard, limits, &sql, Some(&caller)))
            })
            .await
        })
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            // A failed store has closed its connections.
            drop(self.engine.lock()?);
            self.check_sql(&sql).await?;
            let _room = self.room(1).await?;
            let (sender, receiver) = oneshot::channel();
            let caller = Caller::default();
            let _waits = caller.guard();
            {
                let mut state = self.engine.lock()?;
                let session = state.core.begin();
                let (work, sender) = (UserWork::Once(sql.into()), Sender::new(sender, None));
                state.push_sql_commit(SqlCommit { session, work, sender, caller: Some(caller) });
                self.engine.write_ordered(state);
            }
            match answered(&self.engine, receiver).await?.first() {
                Some(Slot::Changed(changed)) => Ok(*changed),
                _ => Ok(0),
            }
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.engine.catalog.read().unwrap_or_else(|held| held.into_inner()).clone()
    }

    fn texts(&self) -> &'static StoreTexts {
        &read::TEXTS
    }

    fn activity(&self) -> &ActivityBoard {
        &self.engine.board
    }

    fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    fn ended(&self) -> Option<Error> {
        self.engine.lock().err()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let this = self.this.upgrade().ok_or_else(Error::closed)?;
            blocking(move || this.close_now()).await
        })
    }
}

/// Runs work that may take long on a thread of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) if ended.is_cancelled() => Err(Error::new(Code::STORE_CLOSED, "the runtime of this call has ended")),
        Err(panicked) => Err(poisoned(&panicked.to_string())),
    }
}
