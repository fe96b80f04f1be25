//! Batches: how one is filled, written, synced and answered, and what happens when a write fails.

use super::Engine;
use crate::core::SessionId;
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::store::sqlite::batch::{Batch, Slot, Slots, WriteSide, note_dropped, writing};
use crate::store::sqlite::failure::{is_busy, storage};
use crate::store::sqlite::state::{SqlCommit, State};
use crate::store::sqlite::{board, read};
use crate::time::Timestamp;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Rows of the transmission queue that one batch tries again, and bytes of their bodies; the rest wait for the next
/// batch.
const MOST_REDELIVERED: usize = 1000;
const MOST_REDELIVERED_BYTES: usize = 16 * 1024 * 1024;

/// How long another program may hold the write lock before that is worth a warning, and how often it is repeated.
const BUSY_WARNING: Duration = Duration::from_secs(1);
const BUSY_WARNING_EVERY: Duration = Duration::from_secs(20);

/// How long readers that hold the log back are waited for if the log or its index was deleted: what is not written into the tables
/// then is lost.
const RESCUE_WAIT: Duration = Duration::from_secs(10);

/// How often a store that writes looks whether its file is still there: so long a batch may be acknowledged after the file was
/// deleted. A look takes some microseconds. One that writes nothing looks every second.
const FILE_CHECK_EVERY: Duration = Duration::from_millis(100);

impl Engine {
    /// Runs the statements that open transactions wait for, then writes the ordered batch, syncs, answers. After a close
    /// nothing is written: the file's marks are exact.
    pub(in crate::store::sqlite) fn run_batch(&self, write: &mut WriteSide, by_writer: bool) {
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
        write.guard.watch.batch(self.disk.for_statement());
        let filled = self
            .check_file(write, started)
            .and_then(|()| self.disk.check_log())
            .and_then(|()| self.fill_batch(write, &mut batch, by_writer))
            .and_then(|()| self.begin_for(write, &batch));
        let committed = filled.and_then(|()| write.commit(&mut batch));
        write.guard.watch.batch(None);
        match committed {
            Ok(sync) => {
                self.note_times(sync, started.elapsed());
                if sync.is_some() && self.disk.is_short() {
                    self.disk.measure(&write.connection);
                }
                self.finish_batch(&mut batch, by_writer);
            }
            Err(failure) => self.fail_batch(write, &mut batch, &failure, None),
        }
        write.spare = batch;
    }

    /// Begins the transaction of a batch. While another program holds the file's write lock nothing has been written,
    /// so the batch is kept and tried again, until the store is closed or dropped. Never under the lock of the state.
    pub(in crate::store::sqlite) fn begin(&self, write: &WriteSide) -> Result<()> {
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
        self.disk.measure(&write.connection);
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
    pub(super) fn rescue_log(write: &WriteSide) {
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
    fn order_sql_commits(&self, write: &WriteSide, commits: Vec<SqlCommit>) -> Result<()> {
        let units: Vec<_> = commits.iter().map(SqlCommit::unit).collect();
        let verdicts = match write.run_user_sql(&units, || self.begin(write)) {
            Ok(verdicts) => verdicts,
            Err(failure) => {
                let now = self.clock.now();
                for commit in commits {
                    // Never written. The jobs of these transactions are not among those that were held by others.
                    self.lock_even_failed().order_rollback(commit.session, now);
                    let _ = commit.sender.send(Err(failure.duplicate()));
                }
                return Err(failure);
            }
        };
        let mut state = self.lock_even_failed();
        if self.ending.is_abandoned() {
            return Err(Error::closed());
        }
        // The statements, or another program that held the write lock, may have taken long, and timers and pauses count from now.
        let now = self.clock.now();
        let mut commits = commits.into_iter();
        for (verdict, mut commit) in verdicts.into_iter().zip(commits.by_ref()) {
            match verdict {
                Ok(changed) => {
                    let slots = Slots::from_iter([Slot::Changed(changed)]);
                    state.push_answer(slots, commit.sender);
                    let state = &mut *state;
                    state.handovers.free(&state.core, &commit.session);
                    state.core.commit(commit.session, now, &mut state.effects);
                }
                Err(refusal) => {
                    // Neither other transactions nor the close, which stops a statement that takes long, are the fault of its messages.
                    if matches!(refusal.code(), Code::DEADLOCK | Code::STORE_CLOSED) {
                        state.give_way(commit.session, now);
                    } else {
                        // Of a message that becomes a dead letter by it.
                        commit.session.set_reason(Some(refusal.message().into()));
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
    pub(in crate::store::sqlite) fn lock_to_write(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock_even_failed();
        match state.check_open() {
            Err(error) if state.failed.is_some() => Err(error),
            _ if self.ending.is_abandoned() => Err(Error::closed()),
            _ => Ok(state),
        }
    }

    /// Orders the work reserved for the writer, and takes the whole batch.
    fn fill_batch(&self, write: &mut WriteSide, batch: &mut Batch, by_writer: bool) -> Result<()> {
        let mut state = self.lock_to_write()?;
        let mut commits = if by_writer { state.take_sql_commits() } else { Vec::new() };
        if !commits.is_empty() {
            drop(state);
            // The transaction whose statements are applied already is the first, so that they need not run again.
            match write.rehearsal.get().and_then(|at| commits.iter().position(|commit| commit.is_at(at))) {
                Some(place) => commits.swap(0, place),
                None => write.close_rehearsal().map_err(writing)?,
            }
            self.order_sql_commits(write, commits)?;
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
            state = self.redeliver(state, write, batch, self.clock.now())?;
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
        let most = MOST_REDELIVERED_BYTES.min(usize::try_from(self.disk.log_bytes() / 4).unwrap_or(usize::MAX));
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
            if bytes > most {
                break;
            }
        }
        state.effects.redeliver.extend(later);
        state.retry_unlocked(now);
        Ok(state)
    }

    /// How long batches take of late.
    pub(in crate::store::sqlite) fn batch_time(&self) -> Duration {
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
        state.handovers.committed();
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
    pub(in crate::store::sqlite) fn give_back(&self, slots: &Slots) {
        note_dropped(slots);
        let jobs = slots.iter().flat_map(|slot| if let Slot::Jobs { taken, .. } = slot { &taken[..] } else { &[] });
        self.give_back_jobs(jobs.map(|taken| taken.taken()));
    }

    /// Gives jobs back to their queues; false if the store writes nothing more.
    pub(in crate::store::sqlite) fn give_back_jobs(&self, jobs: impl Iterator<Item = TakenJob>) -> bool {
        let mut jobs = jobs.peekable();
        if jobs.peek().is_none() {
            return true;
        }
        let mut state = self.lock_even_failed();
        // Also while the store closes: the answer of a caller that left just before it comes then.
        let takes_back = state.failed.is_none() && !state.is_shut;
        if takes_back {
            let State { core, effects, .. } = &mut *state;
            jobs.for_each(|taken| core.give_back(taken, effects));
        }
        drop(state);
        self.wake_writer();
        takes_back
    }

    /// After a failed write memory cannot be rolled back, so the store takes no more work: opening the file again gives
    /// exactly the acknowledged state. It may have been a statement of an open transaction.
    pub(in crate::store::sqlite) fn fail_batch(
        &self,
        write: &WriteSide,
        batch: &mut Batch,
        failure: &Error,
        transaction: Option<SessionId>,
    ) {
        write.roll_back();
        // Marked first, so that a caller that gets the failure finds the store poisoned.
        let mut state = self.lock_even_failed();
        let is_first = state.failed.is_none();
        state.fail(failure, transaction);
        let is_full = state.is_full;
        // Under the lock: else the store had ended for a moment, and `work run` with it.
        self.is_full.store(is_full, SeqCst);
        let held_jobs = state.held_jobs.clone();
        drop(state);
        match is_full {
            // A disk that stays full is met again and again; the thread that opens the file again warns once a minute.
            true => tracing::debug!(%failure, "a batch could not be written; the database is opened again"),
            false => tracing::error!(%failure, "a batch could not be written; the store takes nothing more"),
        }
        for answer in batch.answers.drain(..) {
            let _ = answer.sender.send(Err(failure.duplicate()));
        }
        *batch = Batch::default();
        self.board.wake_all();
        // Of transactions that were not in the batch: these few rows often fit. If they do not, the next store of this process returns
        // them, unless another process takes the file over before.
        if is_first
            && !held_jobs.is_empty()
            && let Err(error) = write.return_held_jobs(&held_jobs)
        {
            write.roll_back();
            tracing::debug!(%error, "the jobs that other transactions held are not returned yet");
        }
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
