//! The engine: which thread writes, when, and what happens when a write fails.
//!
//! Group commit without a timer: each caller appends its ordered unit to the batch; the writer takes the whole batch,
//! writes it in one transaction, syncs once and answers all callers. While it syncs the next batch grows. A caller that
//! is alone writes on its own thread, because handing over to another thread and back costs more than the sync.

use super::answered::UnseenAnswers;
use super::batch::{Batch, Slot, Slots, WriteSide, note_dropped, writing};
use super::checks::Checking;
use super::failure::{is_busy, poisoned, storage};
use super::limit::Ending;
use super::owner::Owner;
use super::readers::Readers;
use super::recent::Recent;
use super::state::{SqlCommit, State};
use super::{board, read};
use crate::catalog::Catalog;
use crate::core::{Change, MessageRow, ReadRow, Taken, TransmissionRow};
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::store::ActivityBoard;
use crate::time::{Clock, Timestamp};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Rows of the transmission queue that one batch tries again, and bytes of their bodies; the rest wait for the next
/// batch.
const MOST_REDELIVERED: usize = 1000;
const MOST_REDELIVERED_BYTES: usize = 16 * 1024 * 1024;

/// How long another program may hold the write lock before that is worth a warning, and how often it is repeated.
const BUSY_WARNING: Duration = Duration::from_secs(1);
const BUSY_WARNING_EVERY: Duration = Duration::from_secs(20);

/// The counters as they are when all is written, and the last rows of work queues.
type LastRows = ((u64, u64, u64), Vec<Change>);

/// How long a close waits for readers that hold the log back.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(1);

/// The same if the log or its index was deleted: what is not written into the tables then is lost.
const RESCUE_WAIT: Duration = Duration::from_secs(10);

/// Shortest time between two writes of the monitors' board, and the interval of its check when nothing else wakes the
/// writer.
const BOARD_EVERY: Duration = Duration::from_secs(1);

/// How long the statements of an open transaction stay applied if nothing else happens; other programs cannot write
/// meanwhile. Longer in tests of this crate, which count repeated statements on a machine that runs others beside them.
const REHEARSAL_HOLD: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 2 });

/// How often a store that writes looks whether its file is still there: so long a batch may be acknowledged after the file was
/// deleted. A look takes some microseconds. One that writes nothing looks every second.
const FILE_CHECK_EVERY: Duration = Duration::from_millis(100);

/// The longest batch that a caller may run on its own thread.
const SHORT_BATCH_NS: u64 = 1_000_000;

/// The shared part of all handles of one store.
pub(super) struct Engine {
    pub(super) state: Mutex<State>,
    /// A thread that locks both locks this before `state`.
    pub(super) write: Mutex<WriteSide>,
    wake: Condvar,
    pub(super) clock: Clock,
    pub(super) board: Arc<ActivityBoard>,
    pub(super) catalog: RwLock<Arc<Catalog>>,
    pub(super) checking: Arc<Checking>,
    /// Messages below this are committed, so that any connection can read them.
    pub(super) committed_below: AtomicU64,
    /// Duration of a batch with its sync and the user's own SQL, smoothed, in nanoseconds.
    batch_ns: AtomicU64,
    /// `None` if the database is in memory.
    pub(super) readers: Option<Readers>,
    recent: Arc<Mutex<Recent<MessageRow>>>,
    pub(super) ending: Arc<Ending>,
    pub(super) unseen: UnseenAnswers,
    /// Set once the connections are released.
    pub(super) is_released: AtomicBool,
    /// The last field, so that the lock goes after every connection of the store is closed.
    owner: Mutex<Option<Owner>>,
}

impl Engine {
    pub(super) fn new(
        state: State,
        write: WriteSide,
        clock: Clock,
        board: Arc<ActivityBoard>,
        file: Option<(PathBuf, Owner)>,
    ) -> Self {
        let (recent, ending) = (write.recent.clone(), write.limits.ending.clone());
        let (path, owner) = file.unzip();
        let readers = path.map(Readers::new);
        let catalog = RwLock::new(state.core.catalog().clone());
        let core = &state.core;
        let checking = Checking::new(core.body_checks().clone(), core.max_body_bytes(), core.catalog());
        let committed_below = AtomicU64::new(core.counters().0);
        Self {
            state: Mutex::new(state),
            write: Mutex::new(write),
            wake: Condvar::new(),
            clock,
            board,
            catalog,
            checking: Arc::new(checking),
            committed_below,
            batch_ns: AtomicU64::new(u64::MAX),
            readers,
            recent,
            ending,
            unseen: UnseenAnswers::default(),
            is_released: AtomicBool::new(false),
            owner: Mutex::new(owner),
        }
    }

    /// The state, for ordering something.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock_even_failed();
        state.check_open()?;
        Ok(state)
    }

    /// The state even if the store is closed or failed. If a thread panicked while holding it, its content is unknown:
    /// all waiting callers get the error and the store takes no more work.
    pub(super) fn lock_even_failed(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|panicked| {
            let mut state = panicked.into_inner();
            if state.failed.is_none() {
                state.fail(&poisoned("a thread panicked while it ordered"));
            }
            state
        })
    }

    /// Why a caller gets no answer. A thread that panics drops the senders before it marks the store as failed.
    pub(super) fn why_unanswered(&self) -> Error {
        let why = self.lock_even_failed().check_open().err();
        why.unwrap_or_else(|| poisoned("a thread panicked while it wrote"))
    }

    /// Ensures that the unit just ordered gets written: by this thread if it is alone, else by the writer.
    ///
    /// Receivers are signalled before the sync: their own receives are answered after it, often in the same batch.
    pub(super) fn write_ordered<'s>(&'s self, mut state: MutexGuard<'s, State>) {
        // A transaction that outlives its closed store writes nothing.
        if self.is_released.load(SeqCst) {
            return;
        }
        let arrivals = state.take_arrivals(&self.board);
        if !state.has_orders() {
            drop(state);
            arrivals.signal();
            return;
        }
        if state.may_write_itself(self.batch_ns.load(Relaxed) < SHORT_BATCH_NS) {
            drop(state);
            arrivals.signal();
            match self.write.try_lock() {
                Ok(mut write) if !write.is_shut && write.begin().as_ref().err().is_none_or(|error| !is_busy(error)) => {
                    self.run_batch(&mut write, false);
                    return;
                }
                Err(TryLockError::Poisoned(_)) => return self.fail_after_panic(),
                Ok(_) | Err(TryLockError::WouldBlock) => {}
            }
            // Another caller writes, or another program holds the lock: waiting is the writer's work.
            return self.leave_to_writer(self.lock_even_failed());
        }
        self.leave_to_writer(state);
        arrivals.signal();
    }

    /// Leaves the unit just ordered to the writer.
    pub(super) fn leave_to_writer(&self, mut state: MutexGuard<'_, State>) {
        let is_asleep = std::mem::take(&mut state.is_asleep);
        drop(state);
        if is_asleep {
            self.wake.notify_one();
        }
    }

    /// A committed row of the transmission queue, for a thread that must not wait for a sync unless no reader can read
    /// it: a message whose check is skipped would wait for ever.
    pub(super) fn read_transmission(&self, transmission_id: u64) -> Option<TransmissionRow> {
        let read = |connection: &rusqlite::Connection| {
            read::transmission(connection, transmission_id)
                .map_err(|error| storage("reading a message to check", error))
        };
        let read_beside = self.readers.as_ref().map(|readers| readers.lend(|reader| read(&reader.connection)));
        let row = match read_beside {
            Some(Ok(row)) => Ok(row),
            Some(Err(_)) | None => read(&self.write.lock().ok()?.connection),
        };
        row.inspect_err(|error| tracing::warn!(%error, transmission_id, "a body could not be read for its check"))
            .ok()?
    }

    /// Publishes the depths of all queues on the board, when the store has just been opened.
    pub(super) fn publish_depths(&self) {
        {
            let mut state = self.lock_even_failed();
            let catalog = state.core.catalog().clone();
            for queue_id in catalog.queues.keys().chain(catalog.work_queues.keys()) {
                state.publish_depth_of(*queue_id, &self.board);
            }
        }
    }

    /// The rows of committed messages that are still in memory, in their order; `None` where they must be read.
    pub(super) fn recent_rows(&self, taken: &[Taken]) -> Vec<Option<ReadRow>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().map(|taken| recent.read(taken.queuing_order)).collect()
    }

    /// Wakes the writer to read the clock again.
    pub(super) fn wake_writer(&self) {
        self.lock_even_failed().is_asleep = false;
        self.wake.notify_one();
    }

    /// The writer's loop, until the store is closed or dropped.
    pub(super) fn run_writer(&self) {
        self.write_until_closed();
        // The drop of the store waits for this thread, unless this thread dropped it.
        if self.ending.is_abandoned() {
            let _ = self.release();
        }
    }

    fn write_until_closed(&self) {
        let mut is_holding = false;
        loop {
            {
                self.board.look_after_receivers();
                let mut state = self.lock_even_failed();
                // After a failure the store takes no work and all callers were answered. Timers stay due, so the writer
                // would fail again for ever, and `close` would wait for it.
                if self.ending.is_abandoned() || state.failed.is_some() {
                    return;
                }
                while state.is_closed || !state.has_work(self.clock.now()) && !self.has_pending() {
                    if state.is_closed || state.failed.is_some() {
                        return;
                    }
                    state.is_asleep = true;
                    state.sleeps_until = state.core.next_due();
                    let pause = self.pause(state.core.next_due());
                    let pause = if is_holding { pause.min(REHEARSAL_HOLD) } else { pause };
                    state = match self.wake.wait_timeout(state, pause) {
                        Ok((woken, _)) => woken,
                        Err(panicked) => {
                            drop(panicked);
                            self.lock_even_failed()
                        }
                    };
                    state.is_asleep = false;
                    drop(state);
                    self.board.look_after_receivers();
                    state = self.lock_even_failed();
                    if is_holding && !state.has_work(self.clock.now()) {
                        is_holding = false;
                        drop(state);
                        if let Ok(write) = self.write.lock() {
                            write.drop_rehearsal();
                        }
                        state = self.lock_even_failed();
                    }
                }
            }
            match self.write.lock() {
                Ok(mut write) => {
                    self.run_batch(&mut write, true);
                    is_holding = write.is_rehearsing();
                }
                Err(_) => return self.fail_after_panic(),
            }
        }
    }

    /// A thread panicked while it wrote: how much of its batch is written is unknown, so every caller gets the error
    /// and the store takes no more work.
    fn fail_after_panic(&self) {
        self.lock_even_failed().fail(&poisoned("a thread panicked while it wrote"));
        self.board.wake_all();
    }

    fn pause(&self, due: Option<Timestamp>) -> Duration {
        // A manual clock moves by hand, and moving it wakes the writer.
        match due {
            Some(due) if self.clock.moves().is_none() => due.since(self.clock.now()).min(BOARD_EVERY),
            _ => BOARD_EVERY,
        }
    }

    fn has_pending(&self) -> bool {
        self.write.try_lock().is_ok_and(|write| self.is_board_due(&write) || self.is_look_due(&write))
    }

    /// Whether a store that writes nothing is to look whether its file is still there.
    fn is_look_due(&self, write: &WriteSide) -> bool {
        self.readers.is_some() && write.file_checked.elapsed() >= BOARD_EVERY && !write.is_rehearsing()
    }

    /// The monitors change with every message; their rows are written less often.
    fn is_board_due(&self, write: &WriteSide) -> bool {
        self.readers.is_some()
            && write.board_version != self.board.monitors().version()
            && write.board_written.elapsed() >= BOARD_EVERY
    }

    /// Runs the statements that open transactions wait for, then writes the ordered batch, syncs, answers. After a close
    /// nothing is written: the file's marks are exact.
    pub(super) fn run_batch(&self, write: &mut WriteSide, by_writer: bool) {
        if write.is_shut {
            return;
        }
        let started = Instant::now();
        let mut batch = std::mem::take(&mut write.spare);
        // Dropped before the batch, so that a caller whose sender is dropped finds the failure.
        let _on_panic = OnPanic::new(self);
        // A caller on its own thread leaves the statements of users to the writer, which they have woken.
        if by_writer && !self.rehearse(write) {
            write.spare = batch;
            return;
        }
        let filled = self
            .check_file(write, started)
            .and_then(|()| self.fill_batch(write, &mut batch, by_writer))
            .and_then(|()| self.begin_for(write, &batch));
        match filled.and_then(|()| write.commit(&mut batch)) {
            Ok(sync) => {
                self.note_times(sync, started.elapsed());
                self.finish_batch(&mut batch, by_writer);
            }
            Err(failure) => self.fail_batch(write, &mut batch, &failure),
        }
        write.spare = batch;
    }

    /// Begins the transaction of a batch. While another program holds the file's write lock nothing has been written,
    /// so the batch is kept and tried again, until the store is closed or dropped. Never under the lock of the state.
    pub(super) fn begin(&self, write: &WriteSide) -> Result<()> {
        let started = Instant::now();
        let mut warn_after = BUSY_WARNING;
        loop {
            if self.ending.is_abandoned() {
                return Err(Error::closed());
            }
            match write.begin() {
                Err(busy) if is_busy(&busy) && !self.ending.is_over() => {
                    let waited = started.elapsed();
                    if waited >= warn_after {
                        tracing::warn!(
                            waited_s = waited.as_secs(),
                            "another program holds the write lock of the database; commits wait until it releases the lock"
                        );
                        warn_after = waited + BUSY_WARNING_EVERY;
                    }
                }
                done => return done.map_err(writing),
            }
        }
    }

    /// Fails if the file or its log was deleted or replaced: what is written to it is lost, that of the log if the process is killed.
    fn check_file(&self, write: &mut WriteSide, now: Instant) -> Result<()> {
        if self.readers.is_none() || now.saturating_duration_since(write.file_checked) < FILE_CHECK_EVERY {
            return Ok(());
        }
        write.file_checked = now;
        let Some(deleted) = self.deleted() else { return Ok(()) };
        // The log may have the name of the file that is there now, which would be read with it. All that was acknowledged goes into
        // this one, which may have got another name.
        write.roll_back();
        Self::rescue_log(write);
        Err(deleted)
    }

    /// The error if the file, its log or the index of that was deleted.
    fn deleted(&self) -> Option<Error> {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = owner.as_ref()?;
        if owner.is_deleted() {
            return Some(owner.deleted());
        }
        // A close writes the log into the file anyway.
        let beside = owner.deleted_beside().filter(|_| !self.ending.is_closing());
        beside.map(|path| owner.log_deleted(path))
    }

    /// Writes a log that no later opening finds, or that another file would be read with, into its own file.
    fn rescue_log(write: &WriteSide) {
        match write.empty_log(RESCUE_WAIT) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                "a reader of another program holds the log back; what was acknowledged since it began to read may be lost"
            ),
            Err(error) => {
                tracing::warn!(%error, "the log of the file could not be emptied; if the file was replaced, remove the log before the new \
                                        one is used");
            }
        }
    }

    fn begin_for(&self, write: &WriteSide, batch: &Batch) -> Result<()> {
        if write.must_begin(batch) {
            return self.begin(write);
        }
        if self.ending.is_abandoned() { Err(Error::closed()) } else { Ok(()) }
    }

    /// Runs the user's SQL of transactions, then orders their verbs. The sessions hold their locks meanwhile; the
    /// user's SQL and the broker's rows never meet.
    fn order_sql_commits(&self, write: &WriteSide, commits: Vec<SqlCommit>, now: Timestamp) -> Result<()> {
        let units: Vec<_> = commits.iter().map(SqlCommit::unit).collect();
        let verdicts = match write.run_user_sql(&units, || self.begin(write)) {
            Ok(verdicts) => verdicts,
            Err(failure) => {
                for commit in commits {
                    let _ = commit.sender.send(Err(failure.duplicate()));
                }
                return Err(failure);
            }
        };
        let mut state = self.lock_even_failed();
        if self.ending.is_abandoned() {
            return Err(Error::closed());
        }
        let mut commits = commits.into_iter();
        for (verdict, commit) in verdicts.into_iter().zip(commits.by_ref()) {
            match verdict {
                Ok(changed) => {
                    let slots = Slots::from_iter([Slot::Changed(changed)]);
                    state.push_answer(slots, commit.sender);
                    let state = &mut *state;
                    state.core.commit(commit.session, now, &mut state.effects);
                }
                Err(refusal) => {
                    if refusal.code() == Code::DEADLOCK {
                        state.give_way(commit.session, now);
                    } else {
                        state.order_rollback(commit.session, now);
                    }
                    let _ = commit.sender.send(Err(refusal));
                }
            }
            state.retry_unlocked(now);
        }
        state.return_sql_commits(commits);
        Ok(())
    }

    /// The state for the writer; an error if nothing more may be written.
    pub(super) fn lock_to_write(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock_even_failed();
        match &state.failed {
            Some(first) => Err(poisoned(first)),
            None if self.ending.is_abandoned() => Err(Error::closed()),
            None => Ok(state),
        }
    }

    /// Orders the work reserved for the writer, and takes the whole batch.
    fn fill_batch(&self, write: &mut WriteSide, batch: &mut Batch, by_writer: bool) -> Result<()> {
        let now = self.clock.now();
        let mut state = self.lock_to_write()?;
        let mut commits = if by_writer { state.take_sql_commits() } else { Vec::new() };
        if !commits.is_empty() {
            drop(state);
            // The transaction whose statements are applied already is the first, so that they need not run again.
            match write.rehearsal.get().and_then(|at| commits.iter().position(|commit| commit.is_at(at))) {
                Some(place) => commits.swap(0, place),
                None => write.close_rehearsal().map_err(writing)?,
            }
            self.order_sql_commits(write, commits, now)?;
            state = self.lock_to_write()?;
        } else if write.is_rehearsing() {
            drop(state);
            write.close_rehearsal().map_err(writing)?;
            state = self.lock_to_write()?;
        }
        // The lease of a job begins when it can be written: statements of the user, or another program that holds the write lock, may
        // take longer than it lasts.
        if state.takes_jobs() && write.connection.is_autocommit() {
            drop(state);
            self.begin(write)?;
            state = self.lock_to_write()?;
        }
        let now = self.clock.now();
        state.order_deferred(now);
        if !state.effects.redeliver.is_empty() {
            if write.connection.is_autocommit() {
                drop(state);
                self.begin(write)?;
                state = self.lock_to_write()?;
            }
            state = self.redeliver(state, write, batch, now)?;
        }
        state.take_batch(batch);
        let arrivals = state.take_arrivals(&self.board);
        drop(state);
        arrivals.signal();
        if self.is_board_due(write) {
            self.begin(write)?;
            board::write(write, self.board.monitors(), now).map_err(writing)?;
        }
        Ok(())
    }

    /// Tries messages of the transmission queue again. Ordered changes are written first, so that the rows are there. A
    /// body is read outside the lock of the state, and only if its row is the next of its conversation.
    fn redeliver<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        write: &WriteSide,
        batch: &mut Batch,
        now: Timestamp,
    ) -> Result<MutexGuard<'s, State>> {
        state.take_rows(batch);
        write.write_rows(batch, state.answers_mut())?;
        let written_below = state.core.counters().2;
        let (mut later, mut bytes) = (Vec::new(), 0);
        for _ in 0..MOST_REDELIVERED {
            let Some(first) = state.effects.redeliver.pop_first() else { break };
            if first.transmission_id >= written_below {
                later.push(first);
                continue;
            }
            if !state.core.is_first_to_send(first) {
                continue;
            }
            drop(state);
            let row = read::transmission(&write.connection, first.transmission_id).map_err(writing)?;
            state = self.lock_to_write()?;
            match row {
                Some(row) => {
                    bytes += row.body.as_ref().map_or(0, |body| body.len());
                    let State { core, effects, .. } = &mut *state;
                    core.deliver(row, now, effects);
                }
                None if state.core.is_first_to_send(first) => {
                    let doing = format!("delivering transmission {}", first.transmission_id);
                    return Err(storage(&doing, rusqlite::Error::StatementChangedRows(0)));
                }
                None => {}
            }
            if bytes > MOST_REDELIVERED_BYTES {
                break;
            }
        }
        state.effects.redeliver.extend(later);
        state.retry_unlocked(now);
        Ok(state)
    }

    /// How long batches take of late.
    pub(super) fn batch_time(&self) -> Duration {
        Duration::from_nanos(self.batch_ns.load(Relaxed))
    }

    fn note_times(&self, sync: Option<Duration>, whole: Duration) {
        let Some(sync) = sync else { return };
        let (last, this) = (self.batch_ns.load(Relaxed), u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX));
        let smooth = if last == u64::MAX { this } else { last - last / 8 + this / 8 };
        self.batch_ns.store(smooth, Relaxed);
        metrics::histogram!("dialoq_commit_seconds").record(sync.as_secs_f64());
    }

    fn finish_batch(&self, batch: &mut Batch, by_writer: bool) {
        self.committed_below.fetch_max(batch.ordered_below, Relaxed);
        let callers = batch.answers.len();
        let mut state = self.lock_even_failed();
        state.note_callers(callers, by_writer);
        batch.uncut.drain(..).for_each(|queue_id| state.core.cut_history_again(queue_id, self.clock.now()));
        // Retries beyond one batch are left to the writer.
        let is_wanted = state.is_asleep && (state.must_wake_writer() || !state.effects.redeliver.is_empty());
        drop(state);
        if is_wanted {
            self.wake_writer();
        }
        if let Some(catalog) = batch.catalog.take() {
            self.checking.publish(&catalog);
            *self.catalog.write().unwrap_or_else(|held| held.into_inner()) = catalog;
            // Before the answers: a receiver that begins to wait after a definition was answered is not woken for it.
            self.board.wake_all();
        }
        if !batch.unchecked.is_empty() {
            self.checking.check_later(std::mem::take(&mut batch.unchecked));
        }
        // Returned together, because each return takes a lock.
        let mut room: Option<OwnedSemaphorePermit> = None;
        for mut answer in batch.answers.drain(..) {
            match (&mut room, answer.sender.room.take()) {
                (Some(room), Some(more)) => room.merge(more),
                (none @ None, share) => *none = share,
                (Some(_), None) => {}
            }
            if let Err(Ok(slots)) = answer.sender.send(Ok(answer.slots))
                && !answer.is_in_transaction
            {
                self.give_back(&slots);
            }
        }
        drop(room);
    }

    /// A caller has gone before it got these: its jobs go back, its messages are lost and counted.
    pub(super) fn give_back(&self, slots: &Slots) {
        note_dropped(slots);
        let jobs = slots.iter().flat_map(|slot| if let Slot::Jobs { taken, .. } = slot { &taken[..] } else { &[] });
        self.give_back_jobs(jobs.map(|taken| taken.taken()));
    }

    /// Gives jobs back to their queues.
    pub(super) fn give_back_jobs(&self, jobs: impl Iterator<Item = TakenJob>) {
        let mut jobs = jobs.peekable();
        if jobs.peek().is_none() {
            return;
        }
        let mut state = self.lock_even_failed();
        // Also while the store closes: the answer of a caller that left just before it comes then.
        if state.failed.is_none() {
            let State { core, effects, .. } = &mut *state;
            jobs.for_each(|taken| core.give_back(taken, effects));
        }
        drop(state);
        self.wake_writer();
    }

    /// After a failed write memory cannot be rolled back, so the store takes no more work: opening the file again gives
    /// exactly the acknowledged state.
    pub(super) fn fail_batch(&self, write: &WriteSide, batch: &mut Batch, failure: &Error) {
        write.roll_back();
        tracing::error!(%failure, "a batch could not be written; the store takes nothing more");
        // Marked first, so that a caller that gets the failure finds the store poisoned.
        self.lock_even_failed().fail(failure);
        for answer in batch.answers.drain(..) {
            let _ = answer.sender.send(Err(failure.duplicate()));
        }
        *batch = Batch::default();
        self.board.wake_all();
    }

    /// Writes the remaining ordered changes, leaves exact marks and an empty log. The store takes no more work.
    pub(super) fn shut(&self) -> Result<()> {
        {
            let mut state = self.lock_even_failed();
            if state.is_closed {
                return Ok(());
            }
            state.is_closed = true;
            self.ending.close();
            state.parked.fail(Error::closed);
            // Their transactions cannot be committed any more.
            for rehearsal in state.take_rehearsals() {
                let _ = rehearsal.sender.send(Err(Error::closed()));
            }
        }
        let mut write = self.write.lock().map_err(|_| {
            self.fail_after_panic();
            poisoned("a thread panicked while it wrote")
        })?;
        self.run_batch(&mut write, true);
        loop {
            while self.lock_even_failed().has_unwritten() {
                self.run_batch(&mut write, true);
            }
            // A store that has failed takes nothing back.
            if self.lock_even_failed().failed.is_some() {
                break;
            }
            self.unseen.take().iter().for_each(|slots| self.give_back(slots));
            if !self.lock_even_failed().has_unwritten() {
                break;
            }
        }
        write.is_shut = true;
        let last = {
            let mut state = self.lock_even_failed();
            // The last batch may have parked units at groups that open transactions hold.
            state.forget(Error::closed);
            if let Some(first) = &state.failed {
                return Err(poisoned(first));
            }
            (state.core.counters(), state.core.last_work_changes(self.clock.now()))
        };
        // All that was acknowledged is in the log and synced. A failure from here on costs the next opening some work; as the
        // error of the close, callers took it for that of their own work and did it again. Damage is reported all the same.
        let Err(error) = self.leave_tidy(&mut write, last) else { return Ok(()) };
        write.roll_back();
        if [Code::STORE_DAMAGED, Code::STORE_CHANGED].contains(&error.code()) {
            return Err(error);
        }
        tracing::warn!(%error, "the file could not be tidied at its close; the next opening does it, and nothing is lost");
        Ok(())
    }

    /// Leaves exact marks and an empty log.
    fn leave_tidy(&self, write: &mut WriteSide, (counters, changes): LastRows) -> Result<()> {
        let mut last = Batch { marks: Some(counters), changes, ..Batch::default() };
        self.begin(write)?;
        board::clear(write).map_err(writing)?;
        write.commit(&mut last)?;
        if self.readers.is_some() {
            let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
            let is_log_deleted = owner.as_ref().is_some_and(|owner| owner.deleted_beside().is_some());
            drop(owner);
            if is_log_deleted {
                Self::rescue_log(write);
                return Ok(());
            }
            // A reader of another program may hold the log back; the next opening writes it into the tables then.
            write.empty_log(CHECKPOINT_WAIT).map_err(writing)?;
        }
        Ok(())
    }

    /// Whether the path by which other processes look for the file still names it.
    pub(super) fn is_at_its_path(&self) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().is_some_and(Owner::is_at_its_path)
    }

    /// Whether the lock file is still beside the file.
    pub(super) fn is_announced(&self) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().is_none_or(Owner::is_announced)
    }

    /// Says in the lock file whether other processes may work through this one.
    pub(super) fn announce(&self, is_shared: bool) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = owner.as_mut().map(|owner| owner.announce(is_shared)) {
            tracing::warn!(%error, "the lock file does not name this process");
        }
    }

    /// Stops without another write, for a store that is dropped: all acknowledged work is synced already.
    pub(super) fn abandon(&self) {
        {
            let mut state = self.lock_even_failed();
            state.is_closed = true;
            self.ending.abandon();
            state.forget(Error::closed);
        }
        self.wake_writer();
    }

    /// Closes every connection, then releases the file; a second call does nothing.
    pub(super) fn release(&self) -> Result<()> {
        let mut write = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_released.load(SeqCst) {
            return Ok(());
        }
        write.is_shut = true;
        self.lock_even_failed().forget(Error::closed);
        let nothing = rusqlite::Connection::open_in_memory().map_err(writing)?;
        let closed = std::mem::replace(&mut write.connection, nothing).close();
        self.is_released.store(true, SeqCst);
        if let Some(readers) = &self.readers {
            readers.close();
        }
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        closed.map_err(|(_, error)| writing(error))
    }
}

/// Fails the store if the thread panics while it holds this.
struct OnPanic<'e> {
    engine: &'e Engine,
    /// A panic of the application drops a transaction, and its rollback may be written by that thread. Such a panic failed the
    /// store.
    was_panicking: bool,
}

impl<'e> OnPanic<'e> {
    fn new(engine: &'e Engine) -> Self {
        Self { engine, was_panicking: std::thread::panicking() }
    }
}

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.engine.fail_after_panic();
        }
    }
}

/// Initial time of the last board write: old enough that the board is written at once.
pub(super) fn long_ago() -> Instant {
    Instant::now().checked_sub(BOARD_EVERY).unwrap_or_else(Instant::now)
}
