//! EXTEND and REPORT: a reader that works for long keeps its job, and says how far it is.

use super::DONE;
use super::change::WorkChange;
use super::fail::check_text;
use super::push::check_delay;
use super::session::WorkOp;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::Result;
use crate::protocol::Outcome;
use crate::protocol::definition::WorkNumber;
use crate::protocol::work::TakenJob;
use crate::time::Timestamp;
use std::sync::Arc;

impl Core {
    /// Prolongs a lease. A job held by its transaction has none, and needs none.
    pub(super) fn extend_job(
        &mut self,
        session: &mut Session,
        taken: TakenJob,
        lease_ms: Option<i64>,
        now: Timestamp,
    ) -> Result<Outcome> {
        if let Some(lease_ms) = lease_ms {
            check_delay("a lease in milliseconds", lease_ms, 1)?;
        }
        let job = self.taken_for(session, taken, now)?;
        if self.work.jobs[job].at == i64::MAX {
            return Ok(DONE);
        }
        let settings = self.work.queues.get(&self.work.jobs[job].queue_id).map(|queue| queue.settings);
        let lease_ms = lease_ms.unwrap_or(settings.unwrap_or_default().get(WorkNumber::LeaseMs));
        let lease_until = Timestamp(now.0.saturating_add(lease_ms.saturating_mul(1000)));
        let was_free = self.hold_job(session, job, false);
        session.record(Op::Work(WorkOp::Extend { job, was_free, lease_until }));
        Ok(DONE)
    }

    pub(super) fn apply_extend(&mut self, place: u32, was_free: bool, lease_until: Timestamp) {
        self.work.change(place, |job| {
            job.at = lease_until.0;
            if was_free {
                job.session = 0;
            }
        });
        let job_id = self.work.jobs[place].id;
        self.work.write(WorkChange::ExtendJob { job_id, lease_until });
    }

    pub(super) fn report_job(
        &mut self,
        session: &mut Session,
        taken: TakenJob,
        progress: Arc<str>,
        now: Timestamp,
    ) -> Result<Outcome> {
        check_text("a note of progress", &progress)?;
        let job = self.taken_for(session, taken, now)?;
        let was_free = self.hold_job(session, job, false);
        session.record(Op::Work(WorkOp::Report { job, was_free, progress }));
        Ok(DONE)
    }

    /// A job that the commit has completed is gone, and its note with it.
    pub(super) fn apply_report(&mut self, place: u32, was_free: bool, progress: Arc<str>) {
        let Some(job) = self.work.jobs.get(place) else { return };
        let job_id = job.id;
        self.work.write(WorkChange::ReportJob { job_id, progress });
        self.free_job(place, was_free);
    }
}
