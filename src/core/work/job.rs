//! A job in memory, and its rows.

use crate::protocol::Body;
use crate::protocol::work::JobState;
use crate::time::Timestamp;
use std::sync::Arc;

/// No name.
pub(super) const NO_NAME: u32 = u32::MAX;

/// A job in its queue: what the rules need. Texts and the body are in its row.
#[derive(Debug, Clone)]
pub(in crate::core) struct Job {
    pub(super) id: u64,
    /// Of the latest taking; 0 before the first.
    pub(super) token: u64,
    /// Scheduled: when it is due. Taken: the end of the lease, `i64::MAX` if a transaction holds it.
    pub(super) at: i64,
    pub(super) pushed_at: i64,
    pub(super) queue_id: i32,
    pub(super) job_type: u32,
    pub(super) key: u32,
    pub(super) unique: u32,
    /// The session with an uncommitted change of it; 0 is none.
    pub(super) session: u32,
    pub(super) attempts: u16,
    pub(super) level: u8,
    pub(super) state: JobState,
    /// Pushed by a session that has not committed.
    pub(super) is_uncommitted: bool,
    /// Its session has reported how it ends.
    pub(super) is_reported: bool,
    /// Its session has completed or cancelled it.
    pub(super) is_finished: bool,
    /// It waits for another attempt, not for its first.
    pub(super) is_retry: bool,
}

impl Job {
    /// Whether it can be chosen by a take.
    pub(super) fn is_free(&self) -> bool {
        self.state == JobState::Ready && self.session == 0
    }
}

/// A row of `job`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Ascends; the key.
    pub job_id: u64,
    /// The work queue.
    pub queue_id: i32,
    /// Its type.
    pub job_type: Arc<str>,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// 1 to 10.
    pub level: u8,
    /// Where it stands.
    pub state: JobState,
    /// How often it was handed out since it was pushed or redriven.
    pub attempts: u16,
    /// Of the latest taking; 0 before the first.
    pub token: u64,
    /// When it is due, or the end of the lease; `None` if there is no such time.
    pub at: Option<Timestamp>,
    /// When it was pushed.
    pub pushed_at: Timestamp,
    /// By whom.
    pub pushed_by: Arc<str>,
    /// The name by which it is the only one.
    pub unique_key: Option<Arc<str>>,
    /// The end of its uniqueness; `None` is its own end.
    pub unique_until: Option<Timestamp>,
    /// The content.
    pub body: Body,
}

/// The parts of a taken job that are in its row.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRead {
    /// Who pushed it.
    pub pushed_by: Arc<str>,
    /// Why the last attempt failed.
    pub last_error: Option<Arc<str>>,
    /// The content.
    pub body: Option<Vec<u8>>,
}

/// How a job left its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FinishedAs {
    /// A reader completed it.
    Done = 4,
    /// It was cancelled.
    Cancelled = 5,
}
