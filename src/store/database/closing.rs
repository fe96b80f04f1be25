//! Counts work that is under way, so that closing can wait for it.

use crate::error::{Code, Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinError;
use tokio::time::Instant;

/// The longest wait of a close. Work may wait for the lock of a transaction that never ends.
pub(super) const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// The longest wait for the ends of requests and rollbacks under way.
pub(super) const LONGEST_ENDING: Duration = Duration::from_secs(1);

/// The longest wait for a rollback that stands in the line for a group, behind other transactions. Alone it takes 25 to 40 ms.
const LONGEST_IN_LINE: Duration = Duration::from_millis(250);

/// Whether the store is open, and the amount of work under way.
#[derive(Debug, Default)]
pub(super) struct OpenWork(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_closed: AtomicBool,
    has_lost_runtime: AtomicBool,
    under_way: AtomicUsize,
    done: Notify,
}

/// Accepted work; closing waits until it is dropped.
#[derive(Debug)]
pub(super) struct Work(Arc<State>);

impl Drop for Work {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, SeqCst) == 1 {
            self.0.done.notify_waiters();
        }
    }
}

/// Dropped transactions whose rollback is under way. A request after the drop waits for it.
#[derive(Debug, Default)]
pub(super) struct Endings {
    under_way: AtomicUsize,
    /// Their numbers are in the order of the drops.
    began: Mutex<BTreeMap<u64, Rollback>>,
    done: Notify,
}

#[derive(Debug)]
struct Rollback {
    /// Until when others wait for it.
    until: Instant,
    /// It waits for the lock of a group, which another transaction of this process may hold.
    is_in_line: bool,
}

/// The end of one dropped transaction.
pub(super) struct Ending {
    database: Arc<super::Database>,
    number: u64,
    /// A process ends soon after its close, and the count of the rollback would be lost with it.
    _work: Work,
}

impl Ending {
    pub(super) fn begin(database: &Arc<super::Database>) -> Self {
        let number = database.endings.begin();
        Self { database: database.clone(), number, _work: database.open_work.begin() }
    }

    /// It is about to wait for the lock of a group. Open transactions do not wait for it: one that holds the group, or comes before it in the
    /// line, waited for its own end, and every request of the process with it for a second.
    pub(super) fn stands_in_line(&self) {
        let endings = &self.database.endings;
        if let Some(rollback) = endings.began().get_mut(&self.number) {
            rollback.is_in_line = true;
            rollback.until = rollback.until.min(Instant::now() + LONGEST_IN_LINE);
        }
        endings.done.notify_waiters();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.database.endings.end(self.number);
    }
}

impl Endings {
    fn began(&self) -> MutexGuard<'_, BTreeMap<u64, Rollback>> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> u64 {
        let mut began = self.began();
        self.under_way.fetch_add(1, SeqCst);
        let number = began.last_key_value().map_or(0, |(last, _)| last + 1);
        began.insert(number, Rollback { until: Instant::now() + LONGEST_ENDING, is_in_line: false });
        number
    }

    fn end(&self, number: u64) {
        self.began().remove(&number);
        self.under_way.fetch_sub(1, SeqCst);
        self.done.notify_waiters();
    }

    /// Waits until the transactions that were dropped before are rolled back, [`LONGEST_ENDING`] after the drop at most. One may hang, as on
    /// a connection that was cut in silence; when the time was counted from the request, every request of the process waited for all of it.
    pub(super) async fn wait_for_rollbacks(&self, is_in_transaction: bool) {
        if self.under_way.load(SeqCst) == 0 {
            return;
        }
        let Some(last) = self.began().last_key_value().map(|(last, _)| *last) else { return };
        loop {
            let changed = self.done.notified();
            let now = Instant::now();
            let until = {
                let began = self.began();
                let under_way = began.range(..=last).map(|(_, rollback)| rollback);
                let waited_for =
                    |rollback: &&Rollback| rollback.until > now && !(is_in_transaction && rollback.is_in_line);
                under_way.filter(waited_for).map(|rollback| rollback.until).max()
            };
            let Some(until) = until else { return };
            let _ = tokio::time::timeout_at(until, changed).await;
        }
    }
}

/// Held by a task of the store: tasks go with their runtime. Batches are tasks, and their callers waited for ever.
pub(super) struct RuntimeWatch(pub(super) Weak<super::Database>);

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        if let Some(database) = self.0.upgrade() {
            database.open_work.0.has_lost_runtime.store(true, SeqCst);
            database.drop_waiting_items();
            database.board.wake_all();
        }
    }
}

impl super::Database {
    /// Waits for the answer of a batch, which the item must have been added to before: if the runtime of the batches has ended since, or
    /// ends now, the item is dropped.
    pub(super) async fn await_answer<T>(&self, answered: oneshot::Receiver<Result<T>>) -> Result<T> {
        if self.open_work.has_lost_runtime() {
            return Err(self.open_work.lost_answer());
        }
        answered.await.unwrap_or_else(|_| Err(self.open_work.lost_answer()))
    }

    /// 60018: a task of the store ended without an answer.
    pub(super) fn cut_short(&self, failure: JoinError) -> Error {
        if failure.is_cancelled() {
            return self.open_work.lost_answer();
        }
        Error::new(Code::STORE_IO, "work on the store was cut short").caused_by(failure)
    }

    /// Drops the items that wait for a batch, so that their callers get an answer.
    fn drop_waiting_items(&self) {
        self.sends.drop_waiting();
        self.begins.drop_waiting();
        self.ends.drop_waiting();
        self.receives.drop_waiting();
        self.jobs.drop_waiting();
        self.claim_sessions.drop_waiting();
    }
}

impl OpenWork {
    /// Accepts work.
    ///
    /// # Errors
    /// 60016 once the store is closed, or the runtime of its tasks has ended.
    pub(super) fn enter(&self) -> Result<Work> {
        let work = self.begin();
        self.check().map(|()| work)
    }

    /// Begins work that a caller has left behind: a rollback, or jobs that go back. A store that closes does it too.
    pub(super) fn begin(&self) -> Work {
        self.0.under_way.fetch_add(1, SeqCst);
        Work(self.0.clone())
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.0.is_closed.load(SeqCst) {
            Err(Error::closed())
        } else if self.has_lost_runtime() {
            Err(Error::new(
                Code::STORE_CLOSED,
                "the tokio runtime in which the broker was opened has ended; open the broker in one that runs as long as the program",
            ))
        } else {
            Ok(())
        }
    }

    fn has_lost_runtime(&self) -> bool {
        self.0.has_lost_runtime.load(SeqCst)
    }

    /// 60016, or 60031 if the runtime of the store's tasks has ended: the answer to a call under way whose task or batch is gone.
    pub(super) fn lost_answer(&self) -> Error {
        if !self.has_lost_runtime() {
            return Error::closed();
        }
        Error::new(
            Code::COMMIT_UNKNOWN,
            "the tokio runtime in which the broker was opened has ended during the call, so the work may have happened or not; check, and \
             open the broker in a runtime that runs as long as the program",
        )
    }

    /// Accepts no more work and waits for the work under way.
    pub(super) async fn close(&self) {
        self.0.is_closed.store(true, SeqCst);
        let emptied = async {
            loop {
                let done = self.0.done.notified();
                if self.0.under_way.load(SeqCst) == 0 {
                    return;
                }
                done.await;
            }
        };
        if tokio::time::timeout(LONGEST_CLOSE, emptied).await.is_err() {
            tracing::warn!("the broker is closed while units or rollbacks still wait for locks; they are given up");
        }
    }
}
