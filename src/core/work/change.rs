//! Row changes of work queues.

use super::job::{FinishedAs, JobRow};
use crate::protocol::Body;
use crate::protocol::work::JobState;
use crate::time::Timestamp;
use std::sync::Arc;

/// One row to write, or the rows of one job.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkChange {
    /// Removes all jobs of a work queue, and its history.
    DeleteJobs {
        /// The work queue.
        queue_id: i32,
    },
    /// Writes the marks of work queues: all numbers ever used are below them.
    SetWorkMarks {
        /// Of jobs.
        next_job_id: u64,
        /// Of their takings.
        next_token: u64,
    },
    /// Writes a pushed job, and its unique name if it has one.
    InsertJob(Box<JobRow>),
    /// A reader took a job.
    TakeJob {
        /// The job.
        job_id: u64,
        /// How often it has been handed out, this time included.
        attempts: u16,
        /// The token of this taking.
        token: u64,
        /// The end of the lease; `None` if a transaction holds it.
        lease_until: Option<Timestamp>,
        /// When.
        taken_at: Timestamp,
        /// By whom.
        taken_by: Arc<str>,
    },
    /// An attempt failed.
    FailJob {
        /// The job.
        job_id: u64,
        /// Scheduled, ready or dead.
        state: JobState,
        /// When it is due, if it is scheduled.
        at: Option<Timestamp>,
        /// Why.
        last_error: Arc<str>,
        /// When.
        failed_at: Timestamp,
    },
    /// A taken job went back before its reader saw it.
    ReturnJob {
        /// The job.
        job_id: u64,
        /// How often it has been handed out before.
        attempts: u16,
        /// The token of the taking that is undone.
        token: u64,
    },
    /// The time of a scheduled job had come before the clock was set back.
    ReadyJob {
        /// The job.
        job_id: u64,
    },
    /// A lease was prolonged.
    ExtendJob {
        /// The job.
        job_id: u64,
        /// The end of the lease.
        lease_until: Timestamp,
    },
    /// A reader noted how far it is.
    ReportJob {
        /// The job.
        job_id: u64,
        /// The note.
        progress: Arc<str>,
    },
    /// A dead job is ready again.
    RedriveJob {
        /// The job.
        job_id: u64,
    },
    /// A job left its queue.
    FinishJob {
        /// The job.
        job_id: u64,
        /// Of its last taking; 0 if it was never taken.
        token: u64,
        /// Done or cancelled.
        finished_as: FinishedAs,
        /// When.
        finished_at: Timestamp,
        /// The result that its reader gave.
        result: Body,
        /// Its number in the history of its queue; `None` if it is not kept.
        finish_number: Option<u64>,
    },
    /// Removes finished jobs that the history need not keep: the oldest first, a bounded number.
    CutHistory {
        /// The work queue.
        queue_id: i32,
        /// Those finished before this time.
        finished_before: Timestamp,
        /// Those with a number below this one, whatever their age.
        first_number: u64,
        /// When.
        now: Timestamp,
    },
    /// A work schedule has fired, or its next time was computed again.
    SetScheduleTimes {
        /// The work schedule.
        schedule_id: i32,
        /// When it fires next; `None` if it does not.
        next_at: Option<Timestamp>,
        /// The time that it last pushed a job for; `None` leaves it as it is.
        last_at: Option<Timestamp>,
    },
    /// Frees a unique name.
    DeleteUniqueJob {
        /// The work queue.
        queue_id: i32,
        /// The name.
        key: Arc<str>,
    },
}

impl WorkChange {
    /// Its subject, for messages.
    pub fn subject(&self) -> String {
        match self {
            Self::InsertJob(row) => format!("job {}", row.job_id),
            Self::TakeJob { job_id, .. }
            | Self::FailJob { job_id, .. }
            | Self::ReturnJob { job_id, .. }
            | Self::ReadyJob { job_id }
            | Self::ExtendJob { job_id, .. }
            | Self::ReportJob { job_id, .. }
            | Self::RedriveJob { job_id }
            | Self::FinishJob { job_id, .. } => format!("job {job_id}"),
            Self::DeleteUniqueJob { key, .. } => format!("the unique key '{key}'"),
            Self::DeleteJobs { queue_id } | Self::CutHistory { queue_id, .. } => format!("work queue {queue_id}"),
            Self::SetScheduleTimes { schedule_id, .. } => format!("work schedule {schedule_id}"),
            Self::SetWorkMarks { .. } => "the marks of the work queues".to_owned(),
        }
    }
}
