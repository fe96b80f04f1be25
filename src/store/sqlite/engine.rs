//! The engine: which thread writes, when, and what happens when a write fails.
//!
//! Group commit without a timer: each caller appends its ordered unit to the batch; the writer takes the whole batch,
//! writes it in one transaction, syncs once and answers all callers. While it syncs the next batch grows. A caller that
//! is alone writes on its own thread, because handing over to another thread and back costs more than the sync.

mod batches;
mod closing;

use super::answered::UnseenAnswers;
use super::batch::WriteSide;
use super::checks::Checking;
use super::disk_room::DiskRoom;
use super::failure::{is_busy, poisoned, storage};
use super::limit::Ending;
use super::owner::Owner;
use super::read;
use super::readers::Readers;
use super::recent::Recent;
use super::state::State;
use crate::catalog::Catalog;
use crate::core::{MessageRow, ReadRow, Taken, TransmissionRow};
use crate::error::{Error, Result};
use crate::store::ActivityBoard;
use crate::time::{Clock, Timestamp};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

/// Shortest time between two writes of the monitors' board, and the interval of its check when nothing else wakes the
/// writer.
const BOARD_EVERY: Duration = Duration::from_secs(1);

/// How long the statements of an open transaction stay applied if nothing else happens; other programs cannot write
/// meanwhile. Longer in tests of this crate, which count repeated statements on a machine that runs others beside them.
const REHEARSAL_HOLD: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 2 });

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
    pub(super) disk: Arc<DiskRoom>,
    /// The store has failed because the disk was full. Asked before each call, so not under the lock of the state.
    pub(super) is_full: AtomicBool,
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
        disk: Arc<DiskRoom>,
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
            disk,
            is_full: AtomicBool::new(false),
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
                state.fail(&poisoned("a thread panicked while it ordered"), None);
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
            // A rollback may have freed a timer that is due before the writer wakes by itself.
            if state.must_wake_writer() {
                self.leave_to_writer(state);
            } else {
                drop(state);
            }
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
        let read_beside =
            self.readers.as_ref().and_then(|readers| readers.lend_if_possible(|reader| read(&reader.connection)));
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
        self.lock_even_failed().fail(&poisoned("a thread panicked while it wrote"), None);
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
}

/// Initial time of the last board write: old enough that the board is written at once.
pub(super) fn long_ago() -> Instant {
    Instant::now().checked_sub(BOARD_EVERY).unwrap_or_else(Instant::now)
}
