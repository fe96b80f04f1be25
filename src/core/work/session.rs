//! What sessions do to jobs: logged when it is checked, applied at the commit.

use super::change::WorkChange;
use super::fail::NextAttempt;
use super::job::FinishedAs;
use super::limits::NextTakes;
use crate::core::change::Change;
use crate::core::effects::Effects;
use crate::core::session::Session;
use crate::core::state::Core;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::protocol::Body;
use crate::protocol::work::{JobState, Push, Seen, TakenJob};
use crate::time::Timestamp;
use std::sync::Arc;

/// One thing a session did to a job. `was_free`: no earlier one of the same session holds the job.
#[derive(Debug, Clone)]
pub(in crate::core) enum WorkOp {
    Push {
        job: u32,
        push: Box<Push>,
    },
    /// Written at once in a transaction, with the commit in a unit.
    Take {
        job: u32,
        token: u64,
        unwritten: Option<Box<UnwrittenTake>>,
    },
    Complete {
        job: u32,
        was_free: bool,
        result: Body,
    },
    Fail {
        job: u32,
        was_free: bool,
        reason: Arc<str>,
        next: NextAttempt,
    },
    Extend {
        job: u32,
        was_free: bool,
        lease_until: Timestamp,
    },
    Report {
        job: u32,
        was_free: bool,
        progress: Arc<str>,
    },
    Cancel {
        job: u32,
        was_free: bool,
        /// The same session has reported how its attempt ends.
        was_reported: bool,
    },
    Redrive {
        job: u32,
    },
}

/// A taking that is written with the commit of its unit, and what memory had before it.
#[derive(Debug, Clone)]
pub(in crate::core) struct UnwrittenTake {
    pub(super) change: WorkChange,
    /// Of the taking before; 0 if there was none.
    pub(super) token_before: u64,
    /// When the job became ready, if its row says so; else 0.
    pub(super) at_before: i64,
    pub(super) next_takes: NextTakes,
}

/// How a session's work is undone.
#[derive(Debug, Clone, Copy)]
pub(in crate::core) enum Undone {
    /// A unit that was refused or met a lock: its reader has seen no job.
    BeforeItsCommit,
    /// The transaction goes on, or no caller has seen anything of it.
    ToSavepoint,
    /// The transaction has ended.
    ByRollback(Timestamp),
}

impl Core {
    /// The place of a job that this session may change.
    pub(super) fn job_for(&self, session: &Session, job: JobId) -> Result<u32> {
        let place = self.work.places.get(&job.0).copied();
        let is_seen = |place: &u32| {
            let job = &self.work.jobs[*place];
            let is_own = job.session == session.id;
            !(job.is_uncommitted && !is_own || job.is_finished && is_own)
        };
        let place = place.filter(is_seen).ok_or_else(|| Error::job_not_found(job))?;
        let holder = self.work.jobs[place].session;
        if holder != 0 && holder != session.id {
            return Err(Error::job_locked(format_args!("job {job} is held by an open transaction")));
        }
        Ok(place)
    }

    /// Refuses a job that is not as its caller saw it.
    pub(super) fn check_seen(&self, place: u32, seen: Option<&Seen>, now: Timestamp) -> Result<()> {
        let job = &self.work.jobs[place];
        let state = match job.state {
            JobState::Scheduled if job.at <= now.0 => JobState::Ready.name(),
            JobState::Taken if job.at <= now.0 => "lost",
            state => state.name(),
        };
        let is_so = |seen: &Seen| seen.token == job.token && seen.state.as_deref().is_none_or(|seen| seen == state);
        if seen.is_none_or(is_so) { Ok(()) } else { Err(Error::job_changed(JobId(job.id))) }
    }

    /// The place of a job that its reader reports on.
    pub(super) fn taken_for(&self, session: &Session, taken: TakenJob, now: Timestamp) -> Result<u32> {
        let place = self.job_for(session, taken.job)?;
        let job = &self.work.jobs[place];
        if job.token == 0 {
            return Err(Error::job_never_taken(taken.job, taken.token));
        }
        if job.token != taken.token {
            return Err(Error::lease_lost(taken.job, taken.token, "its latest taking has another token"));
        }
        if job.state != JobState::Taken || job.is_reported {
            return Err(Error::job_not_taken(taken.job));
        }
        if job.session == 0 && job.at <= now.0 {
            return Err(Error::lease_lost(taken.job, taken.token, "its lease is over"));
        }
        Ok(place)
    }

    /// Holds a job for a session until it ends. Whether it was free before.
    pub(super) fn hold_job(&mut self, session: &Session, place: u32, is_report: bool) -> bool {
        let was_free = self.work.jobs[place].session == 0;
        if was_free {
            self.work.change(place, |job| job.session = session.id);
        }
        self.work.jobs[place].is_reported |= is_report;
        was_free
    }

    /// Applies a logged operation at the commit.
    pub(in crate::core) fn apply_work(&mut self, op: WorkOp, now: Timestamp) {
        match op {
            WorkOp::Push { job, push } => self.apply_push_job(job, *push, now),
            WorkOp::Take { job, token, unwritten } => self.apply_take_job(job, token, unwritten, now),
            WorkOp::Complete { job, result, .. } => self.finish_job(job, FinishedAs::Done, result, now),
            WorkOp::Fail { job, reason, next, .. } => self.apply_fail(job, reason, next, now),
            WorkOp::Extend { job, was_free, lease_until } => self.apply_extend(job, was_free, lease_until),
            WorkOp::Report { job, was_free, progress } => self.apply_report(job, was_free, progress),
            WorkOp::Cancel { job, .. } => self.finish_job(job, FinishedAs::Cancelled, None, now),
            WorkOp::Redrive { job } => self.apply_redrive(job),
        }
    }

    /// Undoes a logged operation.
    pub(in crate::core) fn undo_work(&mut self, op: WorkOp, undone: Undone) {
        match op {
            WorkOp::Push { job, .. } => self.undo_push_job(job),
            WorkOp::Take { job, token, unwritten } => self.undo_take_job(job, token, unwritten, undone),
            WorkOp::Complete { job, was_free, .. } => {
                (self.work.jobs[job].is_reported, self.work.jobs[job].is_finished) = (false, false);
                self.free_job(job, was_free);
            }
            WorkOp::Cancel { job, was_free, was_reported } => {
                (self.work.jobs[job].is_reported, self.work.jobs[job].is_finished) = (was_reported, false);
                self.free_job(job, was_free);
            }
            WorkOp::Fail { job, was_free, .. } => {
                self.work.jobs[job].is_reported = false;
                self.free_job(job, was_free);
            }
            WorkOp::Extend { job, was_free, .. } | WorkOp::Report { job, was_free, .. } => {
                self.free_job(job, was_free);
            }
            WorkOp::Redrive { job } => {
                self.work.jobs[job].is_reported = false;
                self.free_job(job, true);
            }
        }
    }

    pub(super) fn free_job(&mut self, place: u32, was_free: bool) {
        if was_free {
            self.work.change(place, |job| job.session = 0);
        }
    }

    /// The rows that a close writes last: the exact marks of jobs and takings, if the tables have others, and jobs that are ready
    /// although the clock was set back.
    pub fn last_work_changes(&mut self, now: Timestamp) -> Vec<Change> {
        self.work.keep_ready(now);
        let ready = std::mem::take(&mut self.work.effects.changes);
        ready.into_iter().chain(self.work.exact_marks()).collect()
    }

    /// Passes on what happened to jobs since the last call.
    pub fn hand_on_work(&mut self, effects: &mut Effects) {
        effects.changes.append(&mut self.work.effects.changes);
        effects.arrivals.append(&mut self.work.effects.arrivals);
    }
}
