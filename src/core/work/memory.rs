//! The rows of work queues in memory, for the model.

use super::change::WorkChange;
use super::job::{FinishedAs, JobRead, JobRow};
use super::take::TakenRow;
use crate::core::restore::Restore;
use crate::error::{Error, Result};
use crate::protocol::Body;
use crate::protocol::work::{Job, JobState};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows that the core has written.
#[derive(Debug, Clone, Default)]
pub struct JobRows {
    /// Jobs that are not finished, with the reason of their last failure.
    pub jobs: BTreeMap<u64, (JobRow, Option<Arc<str>>)>,
    /// Finished jobs, by queue and number.
    pub history: BTreeMap<(i32, u64), Finished>,
    unique: BTreeMap<(i32, Arc<str>), (u64, Option<Timestamp>)>,
    /// The next and the last time of each work schedule.
    pub schedules: BTreeMap<i32, (Option<Timestamp>, Option<Timestamp>)>,
    marks: (u64, u64),
}

/// A finished job.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The job.
    pub job_id: u64,
    /// How it left its queue.
    pub finished_as: FinishedAs,
    /// When.
    pub finished_at: Timestamp,
    /// What its reader gave.
    pub result: Body,
}

impl JobRows {
    pub(in crate::core) fn read(&self, taken: TakenRow) -> Result<Job> {
        let (row, last_error) = self.jobs.get(&taken.job_id()).ok_or_else(|| Error::job_not_found(taken.job_id()))?;
        let body = row.body.as_ref().map(|body| body.to_vec());
        Ok(taken.into_job(JobRead { pushed_by: row.pushed_by.clone(), last_error: last_error.clone(), body }))
    }

    pub(in crate::core) fn restore(&self, restore: &mut Restore, now: Timestamp) {
        restore.work_marks(self.marks.0, self.marks.1);
        for (queue_id, finish_number) in self.history.keys() {
            restore.finish_number(*queue_id, *finish_number, now);
        }
        for (schedule_id, (next_at, last_at)) in &self.schedules {
            restore.schedule_times(*schedule_id, *next_at, *last_at);
        }
        for (row, _) in self.jobs.values() {
            restore.job(row.clone(), now);
        }
        for ((queue_id, key), (job_id, until)) in &self.unique {
            restore.unique_job(*queue_id, key.clone(), *job_id, *until);
        }
    }

    pub(in crate::core) fn write(&mut self, change: WorkChange) {
        match change {
            WorkChange::DeleteJobs { queue_id } => {
                self.jobs.retain(|_, (row, _)| row.queue_id != queue_id);
                self.history.retain(|(of_queue, _), _| *of_queue != queue_id);
            }
            WorkChange::SetWorkMarks { next_job_id, next_token } => self.marks = (next_job_id, next_token),
            WorkChange::InsertJob(row) => {
                if let Some(key) = &row.unique_key {
                    let before = self.unique.insert((row.queue_id, key.clone()), (row.job_id, row.unique_until));
                    assert_eq!(before, None, "a unique key is used once");
                }
                self.jobs.insert(row.job_id, (*row, None));
            }
            WorkChange::TakeJob { job_id, attempts, token, lease_until, .. } => {
                let (row, _) = self.jobs.get_mut(&job_id).expect("a job is there until it is finished");
                (row.state, row.attempts, row.token, row.at) = (JobState::Taken, attempts, token, lease_until);
            }
            WorkChange::FailJob { job_id, state, at, last_error, .. } => {
                let (row, error) = self.jobs.get_mut(&job_id).expect("a job is there until it is finished");
                (row.state, row.at, *error) = (state, at, Some(last_error));
            }
            WorkChange::ReturnJob { job_id, attempts, .. } => {
                let (row, _) = self.jobs.get_mut(&job_id).expect("a job is there until it is finished");
                (row.state, row.attempts, row.at) = (JobState::Ready, attempts, None);
            }
            WorkChange::ReadyJob { job_id } => {
                let (row, _) = self.jobs.get_mut(&job_id).expect("a job is there until it is finished");
                (row.state, row.at) = (JobState::Ready, None);
            }
            WorkChange::ExtendJob { job_id, lease_until } => {
                self.jobs.get_mut(&job_id).expect("a job is there until it is finished").0.at = Some(lease_until);
            }
            WorkChange::ReportJob { .. } => {}
            WorkChange::RedriveJob { job_id } => {
                let (row, _) = self.jobs.get_mut(&job_id).expect("a job is there until it is finished");
                (row.state, row.attempts, row.at) = (JobState::Ready, 0, None);
            }
            WorkChange::FinishJob { job_id, finished_as, finished_at, result, finish_number, .. } => {
                let (row, _) = self.jobs.remove(&job_id).expect("a job is finished once");
                if let Some(number) = finish_number {
                    let finished = Finished { job_id, finished_as, finished_at, result };
                    self.history.insert((row.queue_id, number), finished);
                }
            }
            WorkChange::CutHistory { queue_id, finished_before, first_number, .. } => {
                let is_kept =
                    |number: u64, row: &Finished| number >= first_number && row.finished_at >= finished_before;
                self.history.retain(|(of_queue, number), row| *of_queue != queue_id || is_kept(*number, row));
            }
            WorkChange::SetScheduleTimes { schedule_id, next_at, last_at } => {
                let times = self.schedules.entry(schedule_id).or_default();
                *times = (next_at, last_at.or(times.1));
            }
            WorkChange::DeleteUniqueJob { queue_id, key } => {
                self.unique.remove(&(queue_id, key)).expect("a unique key is freed once");
            }
        }
    }
}
