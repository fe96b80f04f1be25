//! A batch: the content of one SQLite transaction, and the callers to answer when it is synced.

use super::deferred::DeferredKeys;
use super::failure::{is_index_full, storage};
use super::known_schema::KnownSchema;
use super::limit::Limits;
use super::moment::Moments;
use super::read::Reader;
use super::recent::Recent;
use super::reserved::Reserved;
use super::script::Position;
use super::user_sql::{self, UserUnit};
use super::write::{Writer, strike, subject};
use super::{guard::Guard, options::Fault};
use crate::catalog::Catalog;
use crate::core::{Change, JobRead, JobRow, MessageRow, ReadRow, Taken, TakenRow, WorkChange};
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::protocol::{Outcome, Unit};
use crate::sql::sqlite::rows::RETURN_HELD_JOB;
use crate::sql::sqlite::transaction::{BEGIN, COMMIT, RELEASE, ROLLBACK, ROLLBACK_TO};
use rusqlite::Connection;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// After so many failures that undid the work of others, the rest of a batch waits for the next one. Without a bound, 64
/// transactions with ON CONFLICT ROLLBACK made a batch of 32 others take 35 times as long.
const MOST_RESTARTS: u32 = 4;

/// The channel of an answer, and the unit's share of the store's room until then.
pub(super) struct Sender {
    answer: oneshot::Sender<Result<Slots>>,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl Sender {
    pub(super) fn new(answer: oneshot::Sender<Result<Slots>>, room: Option<OwnedSemaphorePermit>) -> Self {
        Self { answer, room }
    }

    pub(super) fn send(self, result: Result<Slots>) -> std::result::Result<(), Result<Slots>> {
        self.answer.send(result)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.answer.is_closed()
    }
}

/// One slot per verb.
pub(super) type Slots = SmallVec<[Slot; 1]>;

/// The result of one verb.
pub(super) enum Slot {
    /// The outcome itself.
    Outcome(Outcome),
    /// The number of rows that the user's own SQL changed.
    Changed(u64),
    /// A RECEIVE: the rows it took, and their table rows once read.
    Rows { taken: Vec<Taken>, rows: Vec<ReadRow>, catalog: Arc<Catalog> },
    /// Taken jobs, and their table rows once read.
    Jobs { taken: Vec<TakenRow>, rows: Vec<JobRead> },
    /// The whole unit goes back to its caller, who orders it again when the group that blocked it is unlocked.
    Later { unit: Unit, unlocked: oneshot::Receiver<()> },
}

impl Slot {
    /// The outcome; messages are put together here, on the caller's thread.
    pub(super) fn into_outcome(self) -> Result<Outcome> {
        match self {
            Self::Outcome(outcome) => Ok(outcome),
            Self::Changed(_) | Self::Later { .. } => Ok(Outcome::Done),
            Self::Rows { taken, rows, catalog } => taken
                .into_iter()
                .zip(rows)
                .map(|(taken, row)| taken.into_message(&catalog, row))
                .collect::<Result<_>>()
                .map(Outcome::Received),
            Self::Jobs { taken, rows } => {
                Ok(Outcome::Jobs(taken.into_iter().zip(rows).map(|(taken, row)| taken.into_job(row)).collect()))
            }
        }
    }
}

/// A caller to answer after the sync.
pub(super) struct Answer {
    pub(super) sender: Sender,
    pub(super) slots: Slots,
    /// Whether an open transaction has received the messages; it returns them itself if its caller is gone.
    pub(super) is_in_transaction: bool,
}

/// The outcomes of a committed unit. If one cannot be put together, the messages of the unit are lost and counted.
pub(super) fn outcomes(slots: Slots) -> Result<Vec<Outcome>> {
    let messages = messages(&slots);
    let outcomes: Result<_> = slots.into_iter().map(Slot::into_outcome).collect();
    outcomes.inspect_err(|_| crate::store::handover::note_dropped(messages))
}

/// The unit if it is to be ordered again, and when; else its slots.
pub(super) fn take_retry(mut slots: Slots) -> std::result::Result<(Unit, oneshot::Receiver<()>), Slots> {
    match slots.pop() {
        Some(Slot::Later { unit, unlocked }) => Ok((unit, unlocked)),
        Some(last) => {
            slots.push(last);
            Err(slots)
        }
        None => Err(slots),
    }
}

/// Counts and logs the messages of a committed unit that its caller does not take.
pub(super) fn note_dropped(slots: &Slots) {
    crate::store::handover::note_dropped(messages(slots));
}

fn messages(slots: &Slots) -> usize {
    slots.iter().map(|slot| if let Slot::Rows { taken, .. } = slot { taken.len() } else { 0 }).sum()
}

/// Rows to read before the change at this place is written.
pub(super) struct PendingRead {
    pub(super) at: usize,
    pub(super) answer: usize,
    pub(super) slot: usize,
}

/// The content of one SQLite transaction, and the callers to answer then.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    pub(super) reads: Vec<PendingRead>,
    pub(super) answers: Vec<Answer>,
    pub(super) marks: Option<(u64, u64, u64)>,
    pub(super) catalog: Option<Arc<Catalog>>,
    /// Rows of the transmission queue whose bodies are to be checked when they are committed.
    pub(super) unchecked: Vec<u64>,
    /// Every message ordered so far has a smaller `queuing_order`.
    pub(super) ordered_below: u64,
    /// Work queues whose histories have more rows to cut.
    pub(super) uncut: Vec<i32>,
}

/// The connection that writes.
pub(super) struct WriteSide {
    pub(super) connection: Connection,
    pub(super) guard: Guard,
    pub(super) deferred_keys: DeferredKeys,
    pub(super) schema: KnownSchema,
    /// Ends a statement of the user early.
    pub(super) limits: Limits,
    /// The time and the random numbers that a statement of the user sees.
    pub(super) moments: Moments,
    /// The statements of an open transaction that are applied in a savepoint, to be continued or rolled back. Nothing else
    /// is in the transaction of SQLite then.
    pub(super) rehearsal: Cell<Option<Position>>,
    /// The broker's own part of the schema.
    pub(super) reserved: Reserved,
    pub(super) fault: Option<Arc<Fault>>,
    /// Shared with the threads that read for a transaction.
    pub(super) recent: Arc<Mutex<Recent<MessageRow>>>,
    pub(super) recent_jobs: RefCell<Recent<JobRow>>,
    /// Kept for its room.
    pub(super) spare: Batch,
    /// The version of the monitors' board that the tables show.
    pub(super) board_version: u64,
    pub(super) board_written: Instant,
    /// When it was last looked whether the file is still there.
    pub(super) file_checked: Instant,
    /// Set by a close: the marks in the tables are exact, and no later write may follow.
    pub(super) is_shut: bool,
}

impl WriteSide {
    /// Whether writing this batch needs a transaction that has not begun.
    pub(super) fn must_begin(&self, batch: &Batch) -> bool {
        self.connection.is_autocommit() && (!batch.changes.is_empty() || batch.marks.is_some())
    }

    /// Begins the transaction unless it has begun.
    pub(super) fn begin(&self) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() {
            self.run(BEGIN)?;
            self.schema.begin(&self.connection);
        }
        Ok(())
    }

    /// Runs one of the statements that begin and end transactions and savepoints.
    pub(super) fn run(&self, text: &str) -> rusqlite::Result<()> {
        strike(self.fault.as_deref(), || self.connection.prepare_cached(text)?.execute([])).map(drop)
    }

    /// Rolls back all uncommitted work. After a failure the connection is used only to return jobs, and for that it must have been
    /// rolled back, so a failure here changes nothing.
    pub(super) fn roll_back(&self) {
        self.rehearsal.set(None);
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch(ROLLBACK);
        }
    }

    /// Writes the log into the tables and empties it; false if a reader has held it back for so long.
    pub(super) fn empty_log(&self, wait: Duration) -> rusqlite::Result<bool> {
        self.connection.busy_timeout(wait)?;
        let is_held_back = |row: &rusqlite::Row<'_>| row.get::<_, bool>(0);
        self.connection
            .pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", is_held_back)
            .map(|is_held| !is_held)
    }

    /// Whether statements of an open transaction are applied in a savepoint.
    pub(super) fn is_rehearsing(&self) -> bool {
        self.rehearsal.get().is_some()
    }

    /// Leaves the savepoint of statements that were run for an open transaction.
    pub(super) fn keep_rehearsal(&self, position: Position) {
        self.rehearsal.set(Some(position));
    }

    /// Whether exactly these statements are applied; their savepoint is the caller's then.
    pub(super) fn take_rehearsal(&self, position: Position) -> bool {
        let is_it = self.rehearsal.get() == Some(position);
        if is_it {
            self.rehearsal.set(None);
        }
        is_it
    }

    /// Undoes statements that were run for an open transaction.
    pub(super) fn close_rehearsal(&self) -> rusqlite::Result<()> {
        if self.rehearsal.take().is_some() {
            self.run(ROLLBACK_TO)?;
            self.run(RELEASE)?;
        }
        Ok(())
    }

    /// Undoes them, and leaves the savepoint open. Returns whether there were any.
    pub(super) fn undo_rehearsal(&self) -> rusqlite::Result<bool> {
        let has_rehearsal = self.rehearsal.take().is_some();
        if has_rehearsal {
            self.run(ROLLBACK_TO)?;
        }
        Ok(has_rehearsal)
    }

    /// As `close_rehearsal`, for a connection that no other caller waits for: another program can write then.
    pub(super) fn drop_rehearsal(&self) {
        if self.is_rehearsing() {
            self.roll_back();
        }
    }

    /// Runs the user's own SQL of several transactions, each wholly or not at all; `begin` begins the
    /// batch's transaction if none is open. If too many of them undo the work of others, the last ones have not run, and get
    /// no verdict.
    pub(super) fn run_user_sql(
        &self,
        units: &[UserUnit<'_>],
        begin: impl Fn() -> Result<()>,
    ) -> Result<Vec<Result<u64>>> {
        let mut verdicts: Vec<Result<u64>> = units.iter().map(|_| Ok(0)).collect();
        let (mut restarts, mut is_apart) = (0, false);
        'again: loop {
            begin()?;
            for place in 0..verdicts.len() {
                if verdicts[place].is_err() {
                    continue;
                }
                verdicts[place] = user_sql::run_unit(self, &units[place], is_apart)?;
                // ON CONFLICT ROLLBACK, a statement that was stopped, or a failure without a savepoint has undone the others'
                // work too: they start again without this one, each in a savepoint.
                if self.connection.is_autocommit() {
                    is_apart = true;
                    restarts += u32::from(verdicts[..place].iter().any(Result::is_ok));
                    if restarts >= MOST_RESTARTS {
                        verdicts.truncate(place + 1);
                    }
                    continue 'again;
                }
            }
            return Ok(verdicts);
        }
    }

    /// Writes rows in their order, and reads what must be read between them. Both lists come back empty.
    pub(super) fn write_rows(&self, batch: &mut Batch, answers: &mut [Answer]) -> Result<()> {
        if batch.changes.is_empty() && batch.reads.is_empty() && batch.marks.is_none() {
            return Ok(());
        }
        if !batch.changes.is_empty() || batch.marks.is_some() {
            self.begin().map_err(writing)?;
        }
        let mut writer = Writer::new(&self.connection, self.fault.as_deref());
        let mut reader = Reader::new(&self.connection);
        let mut reads = batch.reads.drain(..).peekable();
        let mut read = |read: PendingRead| -> Result<()> {
            let (taken, rows) = match &mut answers[read.answer].slots[read.slot] {
                Slot::Rows { taken, rows, .. } => (taken, rows),
                Slot::Jobs { taken, rows } => {
                    for taken in taken {
                        let kept = self.recent_jobs.borrow().read(taken.job_id());
                        rows.push(match kept {
                            Some(row) => row,
                            None => reader.job(taken.job_id()).map_err(reading)?,
                        });
                    }
                    return Ok(());
                }
                _ => return Ok(()),
            };
            rows.reserve_exact(taken.len());
            for taken in taken {
                let kept = self.recent().read(taken.queuing_order);
                rows.push(match kept {
                    Some(row) => row,
                    None => reader.message(taken.queuing_order).map_err(reading)?,
                });
            }
            Ok(())
        };
        for (place, change) in batch.changes.drain(..).enumerate() {
            while let Some(next) = reads.next_if(|read| read.at <= place) {
                read(next)?;
            }
            writer.write(&change).map_err(|error| changing(&change, error))?;
            match change {
                Change::InsertMessage(row) => self.recent().keep(row),
                Change::DeleteMessage { queuing_order } | Change::RetainMessage { queuing_order } => {
                    self.recent().forget(queuing_order);
                }
                Change::BuryMessage(row) => self.recent().forget(row.queuing_order),
                Change::Work(WorkChange::InsertJob(row)) => self.recent_jobs.borrow_mut().keep(row),
                Change::Work(WorkChange::FailJob { job_id, .. } | WorkChange::FinishJob { job_id, .. }) => {
                    self.recent_jobs.borrow_mut().forget(job_id);
                }
                _ => {}
            }
        }
        reads.try_for_each(read)?;
        batch.uncut.append(&mut writer.uncut);
        if let Some(marks) = batch.marks.take() {
            writer.set_marks(marks).map_err(writing)?;
        }
        Ok(())
    }

    /// Returns jobs without a failed attempt, those that transactions hold by their rows. After a batch that was not rolled back it
    /// does nothing: its commit would be that of the batch, whose callers have their errors.
    pub(super) fn return_held_jobs(&self, held_jobs: &[TakenJob]) -> rusqlite::Result<()> {
        if !self.connection.is_autocommit() {
            return Ok(());
        }
        self.begin()?;
        for held in held_jobs {
            let of = [held.job.0.cast_signed(), held.token.cast_signed()];
            strike(self.fault.as_deref(), || self.connection.prepare_cached(RETURN_HELD_JOB)?.execute(of))?;
        }
        self.run(COMMIT)
    }

    /// Locked for one row at a time, so that no reader waits long.
    fn recent(&self) -> MutexGuard<'_, Recent<MessageRow>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a batch and makes it durable. Returns the duration of the sync; `None` if there was nothing to commit.
    pub(super) fn commit(&self, batch: &mut Batch) -> Result<Option<Duration>> {
        let mut answers = std::mem::take(&mut batch.answers);
        let written = self.write_rows(batch, &mut answers);
        batch.answers = answers;
        written?;
        if self.connection.is_autocommit() {
            return Ok(None);
        }
        let started = Instant::now();
        self.run(COMMIT).map_err(committing)?;
        Ok(Some(started.elapsed()))
    }
}

/// The error for a failure while writing.
pub(super) fn writing(error: rusqlite::Error) -> Error {
    storage("writing a batch", error)
}

/// The error for a failed commit. The index of the log is written after the log, and an opening that finds no index makes one of all that is
/// in the log.
fn committing(error: rusqlite::Error) -> Error {
    if !is_index_full(&error) {
        return writing(error);
    }
    let text = format!(
        "the disk was full when the index of the log was to grow, so the commit may have happened or not: {error}"
    );
    Error::new(Code::COMMIT_UNKNOWN, text).caused_by(error)
}

/// The error for a failure while writing one row.
fn changing(change: &Change, error: rusqlite::Error) -> Error {
    storage(&format!("writing {}", subject(change)), error)
}

fn reading(error: rusqlite::Error) -> Error {
    storage("reading a message that memory knows of", error)
}
