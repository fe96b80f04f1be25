//! REDRIVE: a dead job gets all its attempts again.

use super::DONE;
use super::change::WorkChange;
use super::session::WorkOp;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::protocol::Outcome;
use crate::protocol::work::{JobState, Seen};
use crate::time::Timestamp;

impl Core {
    pub(super) fn redrive_job(
        &mut self,
        session: &mut Session,
        job: JobId,
        seen: Option<&Seen>,
        now: Timestamp,
    ) -> Result<Outcome> {
        let place = self.job_for(session, job)?;
        self.check_seen(place, seen, now)?;
        let found = &self.work.jobs[place];
        if found.state != JobState::Dead || found.is_reported {
            return Err(Error::job_not_dead(job, found.state.name()));
        }
        self.hold_job(session, place, true);
        session.record(Op::Work(WorkOp::Redrive { job: place }));
        Ok(DONE)
    }

    pub(super) fn apply_redrive(&mut self, place: u32) {
        self.work.change(place, |job| {
            job.state = JobState::Ready;
            (job.session, job.attempts, job.at) = (0, 0, 0);
            (job.is_reported, job.is_retry) = (false, false);
        });
        let job_id = self.work.jobs[place].id;
        self.work.write(WorkChange::RedriveJob { job_id });
    }
}
