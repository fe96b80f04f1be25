//! When a statement of the user's own SQL must end early: it runs too long, its caller has gone, or the store closes.

use super::disk_room::{DiskRoom, StatementRoom};
use super::failure::user;
use crate::error::{Code, Error};
use rusqlite::Connection;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Steps of SQLite's machine between two checks of the time: well under a millisecond.
const STEPS: i32 = 10_000;

/// How long a statement of the user may go on, and how long a lock of another program is waited for, once the store
/// closes.
pub(super) const CLOSING_GRACE: Duration = Duration::from_secs(5);

/// How the store ends; seen by the writer, by its wait for a lock and by the user's statements.
#[derive(Debug, Default)]
pub(super) struct Ending {
    is_abandoned: AtomicBool,
    closes_by: OnceLock<Instant>,
}

impl Ending {
    /// The store is dropped: nothing more may be written.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, SeqCst);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(SeqCst)
    }

    /// The store closes: statements still running have [`CLOSING_GRACE`] left.
    pub(super) fn close(&self) {
        self.closes_by.get_or_init(|| Instant::now() + CLOSING_GRACE);
    }

    /// Whether the store closes or is closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closes_by.get().is_some()
    }

    /// Whether statements still running must end now.
    pub(super) fn is_over(&self) -> bool {
        self.is_abandoned() || self.closes_by.get().is_some_and(|by| Instant::now() >= *by)
    }
}

/// Marks the caller of a statement as gone when it is dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller(Arc<AtomicBool>);

impl Caller {
    pub(super) fn has_gone(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Marks the caller as gone when the guard is dropped.
    pub(super) fn guard(&self) -> CallerGuard {
        CallerGuard(self.clone())
    }
}

/// Held by the future of the caller.
pub(super) struct CallerGuard(Caller);

impl Drop for CallerGuard {
    fn drop(&mut self) {
        self.0.0.store(true, SeqCst);
    }
}

/// The limits of the user's statements on one store.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    pub(super) timeout: Option<Duration>,
    pub(super) ending: Arc<Ending>,
    /// The disk of a connection that writes.
    pub(super) disk: Option<Arc<DiskRoom>>,
}

/// Why a statement was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    TimedOut,
    CallerGone,
    Closing,
    DiskFull,
}

/// The user's statement that runs on a connection.
#[derive(Debug)]
struct Running {
    ending: Arc<Ending>,
    caller: Option<Caller>,
    deadline: Option<Instant>,
    room: Option<StatementRoom>,
    stopped_for: Option<Reason>,
}

impl Running {
    fn must_stop(&mut self) -> bool {
        self.stopped_for = if self.ending.is_over() {
            Some(Reason::Closing)
        } else if self.caller.as_ref().is_some_and(Caller::has_gone) {
            Some(Reason::CallerGone)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(Reason::TimedOut)
        } else if self.room.as_mut().is_some_and(StatementRoom::is_used_up) {
            Some(Reason::DiskFull)
        } else {
            None
        };
        self.stopped_for.is_some()
    }
}

/// Watches the statements of one connection; SQLite calls it every [`STEPS`] steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Watched>>);

/// What runs on a connection.
#[derive(Debug, Default)]
struct Watched {
    running: Option<Running>,
    /// For the store's own statements, while a batch is written.
    batch: Option<StatementRoom>,
}

impl Watched {
    fn must_stop(&mut self) -> bool {
        match (&mut self.running, &mut self.batch) {
            (Some(running), _) => running.must_stop(),
            (None, Some(batch)) => batch.is_used_up(),
            (None, None) => false,
        }
    }
}

impl Watch {
    pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let watch = Self::default();
        let watched = watch.clone();
        connection.progress_handler(STEPS, Some(move || watched.lock().must_stop()))?;
        Ok(watch)
    }

    /// From now on statements of the store itself leave that room; one that does not fails with SQLITE_INTERRUPT.
    pub(super) fn batch(&self, room: Option<StatementRoom>) {
        self.lock().batch = room;
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.lock().running.is_some()
    }

    /// Runs one statement, which ends early if it reaches a limit.
    pub(super) fn run<T>(
        &self,
        limits: &Limits,
        text: &str,
        caller: Option<&Caller>,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = limits.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut running = Running {
            ending: limits.ending.clone(),
            caller: caller.cloned(),
            deadline,
            room: limits.disk.as_ref().and_then(DiskRoom::for_statement),
            stopped_for: None,
        };
        // A short statement may end before SQLite calls the watch once.
        let done = if running.must_stop() {
            Err(Error::closed())
        } else {
            self.lock().running = Some(running);
            let done = work();
            running = match self.lock().running.take() {
                Some(running) => running,
                None => return done,
            };
            done
        };
        match (done, running.stopped_for) {
            (Err(_), Some(Reason::TimedOut)) => Err(timed_out(limits, text)),
            (Err(_), Some(Reason::CallerGone)) => Err(user(text, "its caller has gone, so it was stopped")),
            (Err(_), Some(Reason::Closing)) => Err(Error::closed()),
            (Err(_), Some(Reason::DiskFull)) => Err(disk_full(text)),
            (done, _) => done,
        }
    }
}

/// The statement would use up the room that the log needs.
pub(super) fn disk_full(text: &str) -> Error {
    let shown: String = text.trim().chars().take(80).collect();
    Error::new(
        Code::STORE_FULL,
        format!(
            "the disk is almost full: the statement '{shown}' was undone, because it would use the room that is needed to write what \
             was committed before into the file; make room on the disk, or change fewer rows at a time"
        ),
    )
}

fn timed_out(limits: &Limits, text: &str) -> Error {
    let limit = limits.timeout.unwrap_or_default().as_millis();
    let shown: String = text.trim().chars().take(80).collect();
    Error::new(
        Code::SQL_TIMEOUT,
        format!(
            "the statement '{shown}' ran longer than {limit} ms (sql_timeout_ms) and was stopped and undone. Make the \
             statement faster, or raise the limit"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_running_at_a_close_has_a_grace_period() {
        let ending = Ending::default();
        assert!(!ending.is_over());
        let before = Instant::now();
        ending.close();
        assert!(*ending.closes_by.get().unwrap() >= before + CLOSING_GRACE);

        let closed = Ending::default();
        closed.closes_by.set(Instant::now()).unwrap();
        assert!(closed.is_over());

        let abandoned = Ending::default();
        abandoned.abandon();
        assert!(abandoned.is_over() && abandoned.is_abandoned());
    }
}
