//! Time that passes, definitions that change, and recovery.

use super::change::WorkChange;
use super::job::{Job, JobRow, NO_NAME};
use super::state::{Due, Work, WorkQueueState};
use super::unique::UniqueName;
use crate::core::change::Change;
use crate::core::restore::Restore;
use crate::core::session::SessionId;
use crate::core::state::Core;
use crate::error::{Code, Error, Result};
use crate::id::JobId;
use crate::protocol::definition::{WorkNumber, WorkSettings};
use crate::protocol::work::{AfterFailure, JobState, TakenJob};
use crate::time::Timestamp;
use std::sync::Arc;

/// The most that falls due in one step: well under a millisecond of work.
const MOST_AT_ONCE: usize = 1000;

impl Restore {
    /// The numbers of jobs and takings to go on from, at least.
    pub fn work_marks(&mut self, next_job_id: u64, next_token: u64) {
        self.core.work.continue_from(next_job_id, next_token);
    }

    /// The last number in the history of a work queue.
    pub fn finish_number(&mut self, queue_id: i32, finish_number: u64, now: Timestamp) {
        if let Some(queue) = self.core.work.queues.get_mut(&queue_id) {
            queue.finish_number = finish_number;
            queue.last_finished = now.0;
            self.core.work.cut_by(queue_id, now.0);
        }
    }

    /// Jobs that transactions held when another commit met a full disk, before the jobs: they go back to their queues without a
    /// failed attempt.
    pub fn held_jobs(&mut self, held: &[TakenJob]) {
        self.held_jobs = held.iter().map(|taken| (taken.job.0, taken.token)).collect();
    }

    /// A job; after the marks.
    pub fn job(&mut self, row: JobRow, now: Timestamp) {
        let is_given_back = row.attempts > 0 && self.held_jobs.get(&row.job_id) == Some(&row.token);
        self.core.restore_job(row, is_given_back, now);
    }

    /// When a work schedule fires next, and the time that it last pushed a job for.
    pub fn schedule_times(&mut self, schedule_id: i32, next_at: Option<Timestamp>, last_at: Option<Timestamp>) {
        self.core.restore_schedule(schedule_id, next_at, last_at);
    }

    /// A unique name; after the jobs.
    pub fn unique_job(&mut self, queue_id: i32, key: Arc<str>, job_id: u64, until: Option<Timestamp>) {
        self.core.restore_unique_job(queue_id, key, job_id, until);
    }
}

impl Core {
    /// Handles what is due: jobs become ready, leases end, names and limits are freed.
    pub(in crate::core) fn tick_work(&mut self, now: Timestamp) {
        self.work.set_time(now);
        for _ in 0..MOST_AT_ONCE {
            let Some(&(at, due)) = self.work.due.first().filter(|(at, _)| *at <= now.0) else { return };
            self.work.due.remove(&(at, due));
            match due {
                Due::Job { place, .. } => self.job_is_due(place, now),
                Due::Unique { name } => self.work.forget_name(name),
                Due::Rate { queue_id } => self.work.signal_rate(queue_id, now),
                Due::KeyRate { queue_id, key } => {
                    if self.work.fill_key(queue_id, key) {
                        self.work.signal(queue_id);
                    }
                }
                Due::History { queue_id } => self.cut_history(queue_id, now),
                Due::Schedule { schedule_id } => self.fire_schedule(schedule_id, Timestamp(at), now),
            }
        }
    }

    fn job_is_due(&mut self, place: u32, now: Timestamp) {
        match self.work.jobs[place].state {
            // Its row says the same with the time that has passed, so nothing is written.
            JobState::Scheduled => {
                self.work.change(place, |job| job.state = JobState::Ready);
                self.work.note_ready(place);
            }
            JobState::Taken => self.fail_attempt(place, "its lease was over".into(), AfterFailure::Policy, now),
            JobState::Ready | JobState::Dead => {}
        }
    }

    /// When [`Core::tick_work`] has something to do.
    pub(in crate::core) fn work_due(&self) -> Option<Timestamp> {
        self.work.due.first().map(|(at, _)| Timestamp(*at))
    }

    /// A work queue was created or altered.
    pub(in crate::core) fn work_queue_altered(&mut self, queue_id: i32) {
        let Some(queue) = self.catalog.work_queues.get(&queue_id) else { return };
        let settings = queue.settings;
        let work = &mut self.work;
        if !work.queues.contains_key(&queue_id) {
            work.queues.insert(queue_id, WorkQueueState::new(settings));
            return;
        }
        let is_by_key = |settings: &WorkSettings| {
            [WorkNumber::MaxTakenPerKey, WorkNumber::KeyRateJobs].iter().any(|limit| settings.limit(*limit).is_some())
        };
        let before = work.queues.get_mut(&queue_id).map(|queue| queue.settings);
        if before.is_some_and(|before| is_by_key(&before) == is_by_key(&settings)) {
            work.set_settings(queue_id, settings);
            let keys: Vec<u32> =
                work.queues.get(&queue_id).map_or(Vec::new(), |queue| queue.keys.keys().copied().collect());
            for key in keys {
                work.fill_key(queue_id, key);
            }
        } else {
            // Whether keys have limits decides what stands in the indexes, so all jobs leave and enter again.
            let places: Vec<u32> =
                work.jobs.iter().filter(|(_, job)| job.queue_id == queue_id).map(|(place, _)| place).collect();
            for place in &places {
                work.leave(*place);
            }
            work.set_settings(queue_id, settings);
            for place in &places {
                work.enter(*place);
            }
        }
        // One reader for each job that may be taken now.
        let takeable = work.queues.get(&queue_id).filter(|_| settings.is_enabled).map_or(0, |queue| queue.takeable);
        work.signal_many(queue_id, takeable);
        // A lower rate may be used up, which no take has found.
        work.wait_for_rate(queue_id, work.now);
        // The history may have to be shorter now.
        let now = work.now.0;
        work.cut_by(queue_id, now);
    }

    /// Refuses to drop a work queue while a transaction holds a job of it.
    pub(in crate::core) fn check_jobs_are_free(&self, queue_id: i32) -> Result<()> {
        let held = self.work.jobs.iter().find(|(_, job)| job.queue_id == queue_id && job.session != 0);
        let (Some((_, job)), Some(queue)) = (held, self.catalog.work_queues.get(&queue_id)) else { return Ok(()) };
        let (name, id) = (&queue.name, job.id);
        let text = format!("work queue '{name}' cannot be dropped: a transaction holds job {id}; wait for its end");
        Err(Error::new(Code::OBJECT_IN_USE, text))
    }

    /// A work queue was dropped: its jobs and its history go.
    pub(in crate::core) fn work_queue_dropped(&mut self, queue_id: i32) {
        let work = &mut self.work;
        let places: Vec<u32> =
            work.jobs.iter().filter(|(_, job)| job.queue_id == queue_id).map(|(place, _)| place).collect();
        for place in places {
            work.remove(place);
        }
        let names: Vec<u32> =
            work.unique.names.iter().filter(|(_, name)| name.queue_id == queue_id).map(|(place, _)| place).collect();
        for name in names {
            work.forget_name(name);
        }
        // A key whose rate is used up has its name without a job.
        for key in work.queues.remove(&queue_id).into_iter().flat_map(|queue| queue.keys.into_keys()) {
            work.keys.release_optional(key);
        }
        work.write(WorkChange::DeleteJobs { queue_id });
    }

    /// The jobs that transactions hold which are open, or whose commits are among these changes, or which these changes give back. Not
    /// those of one transaction.
    pub fn held_jobs(&self, unwritten: &[Change], but_of: Option<SessionId>) -> Vec<TakenJob> {
        let of = but_of.map_or(0, |session| session.0);
        let is_held = |job: &Job| ![0, of].contains(&job.session) && job.state == JobState::Taken && job.at == i64::MAX;
        let held = self.work.jobs.iter().filter(|(_, job)| is_held(job)).map(|(_, job)| (job.id, job.token));
        let finished = unwritten.iter().filter_map(|change| match change {
            Change::Work(WorkChange::FinishJob { job_id, token, .. } | WorkChange::ReturnJob { job_id, token, .. }) => {
                Some((*job_id, *token))
            }
            _ => None,
        });
        held.chain(finished).map(|(job_id, token)| TakenJob { job: JobId(job_id), token }).collect()
    }

    /// Puts a job back into memory. A job that a transaction held has lost its reader, which is a failed attempt unless it
    /// `is_given_back`.
    fn restore_job(&mut self, row: JobRow, is_given_back: bool, now: Timestamp) {
        let work = &mut self.work;
        work.now = now;
        if !work.queues.contains_key(&row.queue_id) || work.places.contains_key(&row.job_id) {
            return;
        }
        work.continue_from(row.job_id + 1, row.token + 1);
        let is_due = row.at.is_none_or(|at| at <= now);
        let state = if row.state == JobState::Scheduled && is_due { JobState::Ready } else { row.state };
        let job_type = work.types.place(&row.job_type);
        let key = work.keys.optional(row.key.as_ref());
        let place = work.add(Job {
            id: row.job_id,
            token: row.token,
            at: row.at.map_or(if state == JobState::Taken { i64::MAX } else { 0 }, |at| at.0),
            pushed_at: row.pushed_at.0,
            queue_id: row.queue_id,
            job_type,
            key,
            unique: NO_NAME,
            session: 0,
            attempts: row.attempts,
            level: row.level.clamp(1, 10),
            state,
            is_uncommitted: false,
            is_reported: false,
            is_finished: false,
            is_retry: row.attempts > 0,
        });
        work.enter(place);
        if state == JobState::Ready {
            work.note_ready(place);
        }
        if state == JobState::Taken && row.at.is_none() {
            if is_given_back {
                self.return_job(place, true);
                return;
            }
            self.fail_attempt(
                place,
                "its transaction ended with its reader, or with the process that owned the database file".into(),
                AfterFailure::Policy,
                now,
            );
        }
    }

    /// Puts a unique name back into memory, after the jobs.
    fn restore_unique_job(&mut self, queue_id: i32, key: Arc<str>, job_id: u64, until: Option<Timestamp>) {
        let work = &mut self.work;
        let job = work.places.get(&job_id).copied();
        if !work.queues.contains_key(&queue_id) || job.is_none() && until.is_none() {
            work.write(WorkChange::DeleteUniqueJob { queue_id, key });
            return;
        }
        let until = until.map(|until| until.0);
        let (job_id, has_window) = (job.map_or(0, |_| job_id), until.is_some());
        let name = work.unique.insert(UniqueName { queue_id, key, job_id, until, has_window, before: None });
        if let Some(job) = job {
            work.jobs[job].unique = name;
        }
        if let Some(until) = until {
            work.due.insert((until, Due::Unique { name }));
        }
    }
}

impl Work {
    /// A job has become ready, and its row may still have the time at which it did.
    fn note_ready(&mut self, place: u32) {
        self.latest_ready = self.latest_ready.max(self.jobs[place].at);
    }

    /// Jobs that have become ready stay so if the clock is set back: their rows, which say it with the time that has passed, are
    /// written. They showed such a job as scheduled, which a reader could take, and an opening let it wait for its time once more.
    pub(super) fn keep_ready(&mut self, now: Timestamp) {
        if self.latest_ready <= now.0 {
            return;
        }
        self.latest_ready = now.0;
        let is_early = |job: &Job| job.state == JobState::Ready && job.at > now.0;
        let early: Vec<u32> = self.jobs.iter().filter(|(_, job)| is_early(job)).map(|(place, _)| place).collect();
        for place in early {
            self.jobs[place].at = 0;
            let job_id = self.jobs[place].id;
            self.write(WorkChange::ReadyJob { job_id });
        }
    }
}
