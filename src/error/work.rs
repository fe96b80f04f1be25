//! Refusals of work queues.

use super::{Code, Error};
use std::fmt::Display;

impl Error {
    /// 60040: no such job.
    pub(crate) fn job_not_found(job: impl Display) -> Self {
        Self::new(
            Code::JOB_NOT_FOUND,
            format!("job {job} is in no work queue: it is done, was cancelled, or never was; its history may tell"),
        )
    }

    /// 60041: no reader works on the job.
    pub(crate) fn job_not_taken(job: impl Display) -> Self {
        Self::new(
            Code::JOB_NOT_TAKEN,
            format!(
                "job {job} is not taken, so nothing can be reported on it; its last attempt has been reported already, or its lease was over"
            ),
        )
    }

    /// 60042: another reader may have the job.
    pub(crate) fn lease_lost(job: impl Display, token: u64, why: impl Display) -> Self {
        Self::new(
            Code::LEASE_LOST,
            format!("job {job} is not held with token {token}: {why}; drop what was done for it, or take it again"),
        )
    }

    /// 60042: the job is not as a look has found it.
    pub(crate) fn job_changed(job: impl Display) -> Self {
        Self::new(Code::LEASE_LOST, format!("job {job} has changed since it was looked at; look again"))
    }

    /// 60042: no reader has the job.
    pub(crate) fn job_never_taken(job: impl Display, token: u64) -> Self {
        let what = format!("job {job} is not held with token {token}: no reader has taken it yet; take it first");
        Self::new(Code::LEASE_LOST, what)
    }

    /// 60043: an open transaction is in the way.
    pub(crate) fn job_locked(what: impl Display) -> Self {
        Self::new(Code::JOB_LOCKED, format!("{what}; try again when that transaction has ended"))
    }

    /// 60044: the job needs no other attempts.
    pub(crate) fn job_not_dead(job: impl Display, state: &str) -> Self {
        Self::new(Code::JOB_NOT_DEAD, format!("job {job} is {state}; only a dead job can be redriven"))
    }
}
