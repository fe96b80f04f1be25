//! Work queues: their verbs, and the jobs that they give.

use super::Body;
use crate::id::JobId;
use crate::time::{Timestamp, whole_ms};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The most jobs of one take.
pub(crate) const MOST_TAKEN: i64 = 10_000;

/// One request to a work queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WorkVerb {
    /// Puts a job into a queue; gives [`Outcome::Pushed`](super::Outcome::Pushed).
    Push(Box<Push>),
    /// Takes jobs that are ready; never waits; gives [`Outcome::Jobs`](super::Outcome::Jobs).
    Take(Box<Take>),
    /// Reports a taken job as done.
    Complete {
        /// The job, as it was taken.
        taken: TakenJob,
        /// Kept with the job's history for those who ask; `None` keeps nothing.
        #[serde(with = "super::body_bytes")]
        result: Body,
    },
    /// Reports that an attempt failed; gives [`Outcome::Failed`](super::Outcome::Failed).
    Fail {
        /// The job, as it was taken.
        taken: TakenJob,
        /// Why, up to 3000 characters.
        reason: Arc<str>,
        /// What happens next.
        then: AfterFailure,
    },
    /// Prolongs the lease of a taken job, counted from now (a heartbeat).
    Extend {
        /// The job, as it was taken.
        taken: TakenJob,
        /// Milliseconds from now; `None` is the LEASE_MS of the queue.
        lease_ms: Option<i64>,
    },
    /// Notes how far a taken job is.
    Report {
        /// The job, as it was taken.
        taken: TakenJob,
        /// Up to 3000 characters.
        progress: Arc<str>,
    },
    /// Takes a job out of its queue, whatever its state, unless an open transaction holds it.
    Cancel {
        /// The job.
        job: JobId,
        /// Only if it is still so (60042).
        seen: Option<Seen>,
    },
    /// Gives a dead job all its attempts again.
    Redrive {
        /// The job.
        job: JobId,
        /// Only if it is still so (60042).
        seen: Option<Seen>,
    },
}

/// A job to be put into a work queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// The work queue, without regard to case.
    pub queue: Arc<str>,
    /// Up to 128 characters; the empty text is a type like any other.
    pub job_type: Arc<str>,
    /// Jobs of one key keep their order and share the limits per key. Up to 128 characters.
    pub key: Option<Arc<str>>,
    /// 1 (low) to 10 (high); read by queues of ORDER = PRIORITY.
    pub level: u8,
    /// When it becomes ready.
    pub due: Due,
    /// At most one job of this name.
    pub unique: Option<Unique>,
    /// The content.
    #[serde(with = "super::body_bytes")]
    pub body: Body,
    /// Who pushes it, for statistics; up to 128 characters.
    pub pushed_by: Arc<str>,
}

/// When a pushed job becomes ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Due {
    /// At the commit.
    #[default]
    Now,
    /// So many milliseconds after the commit, 0 to ten years.
    InMs(i64),
    /// At this time; a time in the past is now.
    At(Timestamp),
}

/// The name by which a job is the only one of its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    /// Up to 128 characters.
    pub key: Arc<str>,
    /// For so many milliseconds after the push, whatever becomes of the job; `None` is until it is done or cancelled.
    pub window_ms: Option<i64>,
}

/// The jobs to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Take {
    /// The work queue, without regard to case.
    pub queue: Arc<str>,
    /// At most so many, 1 to 10000.
    pub count: i64,
    /// Only jobs of this type; `None` is any.
    pub job_type: Option<Arc<str>>,
    /// Which levels.
    pub from: TakeFrom,
    /// How they are held.
    pub hold: Hold,
    /// Who takes them, for statistics; up to 128 characters.
    pub taken_by: Arc<str>,
}

/// The levels that a take may choose from; other than `Any` only in a queue of ORDER = PRIORITY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TakeFrom {
    /// The first job in the order of the queue.
    #[default]
    Any,
    /// The first job whose level is within these bounds, both included.
    Levels {
        /// The lowest level.
        lowest: u8,
        /// The highest level.
        highest: u8,
    },
    /// The job that was pushed first, of any level.
    Oldest,
}

/// How a taken job is held until it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// By the transaction: its commit completes the job, its rollback is a failed attempt. Outside a transaction the
    /// take itself completes the job.
    Transaction,
    /// By a lease of so many milliseconds, `None` for the LEASE_MS of the queue. When it is over, the attempt has
    /// failed.
    Lease(Option<i64>),
}

/// Names a job and one taking of it. A report about an earlier taking is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TakenJob {
    /// The job.
    pub job: JobId,
    /// Grows with every taking of any job of the store, so that a system beyond it can refuse late writes (a fencing
    /// token).
    pub token: u64,
}

/// What happens after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AfterFailure {
    /// As the queue's settings say: another attempt after a pause, or the dead letter.
    #[default]
    Policy,
    /// Another attempt after so many milliseconds, if attempts are left.
    RetryInMs(i64),
    /// No other attempt.
    Dead,
}

/// The state of a job that is in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum JobState {
    /// Its time has not come.
    Scheduled = 0,
    /// It can be taken.
    Ready = 1,
    /// A reader works on it.
    Taken = 2,
    /// All attempts failed.
    Dead = 3,
}

impl Due {
    /// The delay, if it is one.
    pub(crate) fn delay_ms(self) -> Option<i64> {
        match self {
            Self::InMs(delay_ms) => Some(delay_ms),
            Self::Now | Self::At(_) => None,
        }
    }

    /// The time in microseconds, if it is one.
    pub(crate) fn at_us(self) -> Option<i64> {
        match self {
            Self::At(at) => Some(at.0),
            Self::Now | Self::InMs(_) => None,
        }
    }
}

impl TakeFrom {
    /// The lowest and the highest level, where they are limited.
    pub(super) fn levels(self) -> Option<(i32, i32)> {
        match self {
            Self::Levels { lowest, highest } => Some((lowest.into(), highest.into())),
            Self::Any | Self::Oldest => None,
        }
    }
}

impl Hold {
    /// The length of the lease, if one is given.
    pub(crate) fn lease_ms(self) -> Option<i64> {
        match self {
            Self::Lease(lease_ms) => lease_ms,
            Self::Transaction => None,
        }
    }
}

impl AfterFailure {
    /// Another attempt after this pause, if attempts are left. A part of a millisecond counts as a whole one.
    pub fn retry_in(pause: Duration) -> Self {
        Self::RetryInMs(whole_ms(pause))
    }

    /// The delay of the next attempt, if one is given.
    pub(super) fn retry_in_ms(self) -> Option<i64> {
        match self {
            Self::RetryInMs(delay_ms) => Some(delay_ms),
            Self::Policy | Self::Dead => None,
        }
    }
}

impl JobState {
    /// Its name in views and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Taken => "taken",
            Self::Dead => "dead",
        }
    }
}

/// A job that was taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    /// The job and this taking of it.
    #[serde(flatten)]
    pub taken: TakenJob,
    /// The name of the work queue.
    pub queue: Arc<str>,
    /// Its type.
    pub job_type: Arc<str>,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// 1 (low) to 10 (high).
    pub level: u8,
    /// The number of this attempt, 1 at the first taking. Of a job in a list `attempts` is how many there were.
    pub attempt: u16,
    /// When it was pushed.
    pub pushed_at: Timestamp,
    /// By whom.
    pub pushed_by: Arc<str>,
    /// The end of the lease; `None` if the transaction holds it.
    pub lease_until: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_error: Option<Arc<str>>,
    /// The content.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
}

impl From<&Job> for TakenJob {
    fn from(job: &Job) -> Self {
        job.taken
    }
}

impl Job {
    /// The columns in which a database gives a job.
    pub(crate) const COLUMNS: [&'static str; 12] = [
        "job_id",
        "token",
        "queue",
        "job_type",
        "job_key",
        "level",
        "attempt",
        "pushed_at",
        "pushed_by",
        "lease_until",
        "last_error",
        "body",
    ];
}

/// A job as a look at its queue found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The name of its state, if it matters.
    pub state: Option<Arc<str>>,
    /// The token of its latest taking; 0 before the first.
    pub token: u64,
}
