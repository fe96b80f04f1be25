//! COMPLETE: a taken job is done; and the end of every job.

use super::DONE;
use super::change::WorkChange;
use super::job::FinishedAs;
use super::session::WorkOp;
use super::state::{Due, Work};
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::Result;
use crate::protocol::definition::WorkNumber;
use crate::protocol::work::TakenJob;
use crate::protocol::{Body, Outcome};
use crate::time::Timestamp;

/// Finished jobs after which the history is cut, and how long it may be uncut otherwise.
const CUT_EVERY: u32 = 1000;
const CUT_EVERY_US: i64 = 10_000_000;

impl Core {
    pub(super) fn complete_job(
        &mut self,
        session: &mut Session,
        taken: TakenJob,
        result: Body,
        now: Timestamp,
    ) -> Result<Outcome> {
        let job = self.taken_for(session, taken, now)?;
        let bytes = result.as_ref().map_or(0, |result| result.len());
        super::push::check_bytes("the result of a job", bytes, self.limits.max_body_bytes)?;
        let was_free = self.hold_job(session, job, true);
        self.work.jobs[job].is_finished = true;
        session.record(Op::Work(WorkOp::Complete { job, was_free, result }));
        Ok(DONE)
    }

    /// A job leaves its queue.
    pub(super) fn finish_job(&mut self, place: u32, finished_as: FinishedAs, result: Body, now: Timestamp) {
        let work = &mut self.work;
        let job = &work.jobs[place];
        let (job_id, token, queue_id) = (job.id, job.token, job.queue_id);
        let Some(queue) = work.queues.get_mut(&queue_id) else { return };
        let is_first = queue.settings.has_history && queue.finished == 0;
        let finish_number = queue.settings.has_history.then(|| {
            queue.finished += 1;
            queue.last_finished = now.0;
            queue.finish_number += 1;
            queue.finish_number
        });
        let is_cut = queue.finished >= CUT_EVERY;
        work.write(WorkChange::FinishJob { job_id, token, finished_as, finished_at: now, result, finish_number });
        work.remove(place);
        if is_cut {
            self.cut_history(queue_id, now);
        } else if is_first {
            work.cut_by(queue_id, now.0.saturating_add(CUT_EVERY_US));
        }
    }

    /// Lets the rows go that HISTORY_SECONDS and HISTORY_ROWS do not keep.
    pub(super) fn cut_history(&mut self, queue_id: i32, now: Timestamp) {
        let work = &mut self.work;
        let Some(queue) = work.queues.get_mut(&queue_id) else { return };
        queue.finished = 0;
        let kept_us = queue.settings.get(WorkNumber::HistorySeconds).saturating_mul(1_000_000);
        if let Some(at) = queue.cut_at.take() {
            work.due.remove(&(at, Due::History { queue_id }));
        }
        // Until the last one is too old: a tenth of the time apart, so that a quiet queue costs few writes.
        let next = (now.0.saturating_sub(queue.last_finished) <= kept_us)
            .then(|| now.0.saturating_add((kept_us / 10).max(CUT_EVERY_US)));
        let finished_before = Timestamp(now.0.saturating_sub(kept_us));
        let most_rows = queue.settings.get(WorkNumber::HistoryRows).unsigned_abs();
        let first_number = (queue.finish_number + 1).saturating_sub(most_rows);
        work.write(WorkChange::CutHistory { queue_id, finished_before, first_number, now });
        if let Some(next) = next {
            work.cut_by(queue_id, next);
        }
    }
}

impl Core {
    /// The last cut of a history has left rows that it need not keep. After HISTORY_ROWS was lowered, 98,000 of 300,000 rows stayed for
    /// a tenth of HISTORY_SECONDS.
    pub fn cut_history_again(&mut self, queue_id: i32, now: Timestamp) {
        self.work.cut_by(queue_id, now.0);
    }
}

impl Work {
    /// The next cut of a history may be hours away, if the clock was ahead when it was set.
    pub(super) fn cut_soon(&mut self, queue_id: i32, now: Timestamp) {
        if self.queues.get(&queue_id).is_some_and(|queue| queue.cut_at.is_some()) {
            self.cut_by(queue_id, now.0.saturating_add(CUT_EVERY_US));
        }
    }

    /// The history of the queue is to be cut then, unless it is cut sooner.
    pub(super) fn cut_by(&mut self, queue_id: i32, at: i64) {
        let Some(queue) = self.queues.get_mut(&queue_id) else { return };
        if queue.cut_at.is_some_and(|sooner| sooner <= at) {
            return;
        }
        if let Some(later) = queue.cut_at.replace(at) {
            self.due.remove(&(later, Due::History { queue_id }));
        }
        self.due.insert((at, Due::History { queue_id }));
    }
}
