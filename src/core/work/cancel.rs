//! CANCEL: a job leaves its queue without being done.

use super::DONE;
use super::session::WorkOp;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::Result;
use crate::id::JobId;
use crate::protocol::Outcome;
use crate::protocol::work::Seen;
use crate::time::Timestamp;

impl Core {
    /// The reader of a leased job learns it from its next report, which finds no job.
    pub(super) fn cancel_job(
        &mut self,
        session: &mut Session,
        job: JobId,
        seen: Option<&Seen>,
        now: Timestamp,
    ) -> Result<Outcome> {
        let place = self.job_for(session, job)?;
        self.check_seen(place, seen, now)?;
        let was_reported = self.work.jobs[place].is_reported;
        let was_free = self.hold_job(session, place, true);
        self.work.jobs[place].is_finished = true;
        session.record(Op::Work(WorkOp::Cancel { job: place, was_free, was_reported }));
        Ok(DONE)
    }
}
