//! What a worker has done: numbers for its owner, and the metrics of its handlers.
//!
//! `dialoq_attempts_total{queue, end}`, `dialoq_jobs_dead_total{queue}`, `dialoq_jobs_running{queue}`, `dialoq_job_seconds{queue}`.

use crate::error::Code;
use crate::protocol::work::{Job, JobState};
use crate::raised_gauge::RaisedGauge;
use metrics::{counter, gauge, histogram};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After so long it is said again that readers cannot go on.
pub(super) const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Numbers of a worker since it was started.
#[derive(Debug, Default)]
pub(super) struct Counters {
    completed: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    unreported: AtomicU64,
    /// Why its readers cannot go on.
    pub(super) failure: Said,
    /// Why no job can be taken.
    pub(super) no_take: Said,
    /// Why no end of a job can be reported.
    pub(super) no_report: Said,
}

/// The last reason, and when it was said; `None` if there is none any more.
#[derive(Debug, Default)]
pub(super) struct Said(pub(super) Mutex<Option<(Code, Instant)>>);

impl Said {
    /// Whether it is to be said: once a minute for all readers of the worker.
    pub(super) fn is_to_be_said(&self, code: Code) -> bool {
        let mut reason = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_said = reason.is_some_and(|(said, at)| said == code && at.elapsed() < SAID_AGAIN_AFTER);
        if !is_said {
            *reason = Some((code, Instant::now()));
        }
        !is_said
    }

    pub(super) fn is_over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Counters {
    pub(super) fn completed(&self, job: &Job) {
        end(&self.completed, job, "completed");
    }

    pub(super) fn failed(&self, job: &Job) {
        end(&self.failed, job, "failed");
    }

    pub(super) fn lost(&self, job: &Job) {
        end(&self.lost, job, "lost");
    }

    pub(super) fn unreported(&self, job: &Job) {
        end(&self.unreported, job, "unreported");
    }

    pub(super) fn done(&self) -> WorkDone {
        WorkDone {
            completed: self.completed.load(Relaxed),
            failed: self.failed.load(Relaxed),
            lost: self.lost.load(Relaxed),
            unreported: self.unreported.load(Relaxed),
        }
    }
}

/// What a worker has done since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkDone {
    /// Jobs completed.
    pub completed: u64,
    /// Attempts that failed: an error, a panic, a body that does not decode, a commit that was refused for what the handler did.
    pub failed: u64,
    /// Jobs that were cancelled, or whose lease was over, while the handler ran; also those that a handler completed itself in
    /// a queue with `HISTORY = OFF`, which look the same.
    pub lost: u64,
    /// Leased jobs whose end could not be reported, as while a server is away: they come back when their leases are over.
    pub unreported: u64,
}

/// Counts the end of an attempt.
fn end(count: &AtomicU64, job: &Job, how: &'static str) {
    count.fetch_add(1, Relaxed);
    counter!("dialoq_attempts_total", "queue" => job.queue.clone(), "end" => how).increment(1);
}

/// Counts a job that its failed attempt has made a dead letter.
pub(super) fn note_state(job: &Job, state: JobState) {
    if state == JobState::Dead {
        counter!("dialoq_jobs_dead_total", "queue" => job.queue.clone()).increment(1);
    }
}

/// A handler at work on a job.
pub(super) struct AtWork {
    queue: Arc<str>,
    began: Instant,
    _running: RaisedGauge,
}

impl AtWork {
    pub(super) fn on(job: &Job) -> Self {
        let running = RaisedGauge::new(gauge!("dialoq_jobs_running", "queue" => job.queue.clone()));
        Self { queue: job.queue.clone(), began: Instant::now(), _running: running }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        histogram!("dialoq_job_seconds", "queue" => self.queue.clone()).record(self.began.elapsed());
    }
}
