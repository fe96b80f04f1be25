//! CANCEL: a job leaves its queue without being done.

use super::DONE;
use super::ready::most_of_key;
use super::session::WorkOp;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::Result;
use crate::id::JobId;
use crate::protocol::Outcome;
use crate::protocol::definition::{WorkOrder, WorkSettings};
use crate::protocol::work::{JobState, Seen};
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
        let (job, work) = (&self.work.jobs[place], &self.work);
        let (queue_id, key) = (job.queue_id, job.key);
        let lets_next_go =
            |settings: &WorkSettings| most_of_key(settings, key).is_some() && settings.order != WorkOrder::FifoStrict;
        if was_free
            && job.state == JobState::Ready
            && work.queues.get(&queue_id).is_some_and(|queue| lets_next_go(&queue.settings))
        {
            // The one behind it in its key may be taken now, and may be what another reader waits for.
            self.work.signal(queue_id);
        }
        session.record(Op::Work(WorkOp::Cancel { job: place, was_free, was_reported }));
        Ok(DONE)
    }
}
