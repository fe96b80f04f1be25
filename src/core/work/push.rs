//! PUSH: a job into a queue.

use super::change::WorkChange;
use super::job::{Job, JobRow, NO_NAME};
use super::session::WorkOp;
use super::state::Due as DueAt;
use super::unique::UniqueName;
use crate::catalog::WorkQueue;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::{Code, Error, Result};
use crate::id::JobId;
use crate::protocol::Outcome;
use crate::protocol::work::{Due, JobState, Push};
use crate::time::Timestamp;
use std::sync::Arc;

/// The longest type, key, unique key or name of a reader or writer, in characters.
pub(super) const MOST_NAME_CHARACTERS: usize = 128;

/// Ten years: the longest delay.
const MOST_DELAY_MS: i64 = 10 * 365 * 86_400_000;

impl Core {
    pub(super) fn push_job(&mut self, session: &mut Session, push: Push, now: Timestamp) -> Result<Outcome> {
        let queue = self.work_queue(&push.queue)?;
        check_push(&push, self.limits.max_body_bytes)?;
        if let Some(unique) = &push.unique
            && let Some(holder) = self.work.job_of_name(queue.id, &unique.key, now)
            && !self.has_finished(session, &holder)
        {
            let pusher = self.work.places.get(&holder.job_id).map(|place| &self.work.jobs[*place]);
            if pusher.is_some_and(|job| job.is_uncommitted && job.session != session.id) {
                return Err(Error::job_locked(format_args!(
                    "a job with the unique key '{}' is being pushed to work queue '{}'",
                    unique.key, queue.name
                )));
            }
            let is_there =
                holder.job_id != 0 && !pusher.is_some_and(|job| job.is_finished && job.session == session.id);
            return Ok(Outcome::Pushed { job: is_there.then_some(JobId(holder.job_id)), is_new: false });
        }
        let work = &mut self.work;
        let id = work.take_job_id();
        let (job_type, key) = (work.types.place(&push.job_type), work.keys.optional(push.key.as_ref()));
        let unique = push.unique.as_ref().map_or(NO_NAME, |unique| {
            work.unique.insert(UniqueName {
                queue_id: queue.id,
                key: unique.key.clone(),
                job_id: id,
                until: None,
                has_window: unique.window_ms.is_some(),
                before: None,
            })
        });
        let place = work.add(Job {
            id,
            token: 0,
            at: 0,
            pushed_at: now.0,
            queue_id: queue.id,
            job_type,
            key,
            unique,
            session: session.id,
            attempts: 0,
            level: push.level,
            state: JobState::Ready,
            is_uncommitted: true,
            is_reported: false,
            is_finished: false,
            is_retry: false,
        });
        session.record(Op::Work(WorkOp::Push { job: place, push: Box::new(push) }));
        Ok(Outcome::Pushed { job: Some(JobId(id)), is_new: true })
    }

    pub(super) fn apply_push_job(&mut self, place: u32, push: Push, now: Timestamp) {
        let work = &mut self.work;
        let at = match push.due {
            Due::Now => None,
            Due::InMs(delay_ms) => Some(now.0.saturating_add(delay_ms.saturating_mul(1000))),
            Due::At(at) => Some(at.0),
        };
        let at = at.filter(|at| *at > now.0);
        let job = &mut work.jobs[place];
        job.pushed_at = now.0;
        job.at = at.unwrap_or(0);
        job.state = if at.is_some() { JobState::Scheduled } else { JobState::Ready };
        (job.session, job.is_uncommitted) = (0, false);
        let (job_id, queue_id, state, unique) = (job.id, job.queue_id, job.state, job.unique);
        let window_ms = push.unique.as_ref().and_then(|unique| unique.window_ms);
        let until = window_ms.map(|window_ms| now.0.saturating_add(window_ms.saturating_mul(1000)));
        if let Some(until) = until {
            work.unique.names[unique].until = Some(until);
            work.due.insert((until, DueAt::Unique { name: unique }));
        }
        work.write(WorkChange::InsertJob(Box::new(JobRow {
            job_id,
            queue_id,
            job_type: push.job_type,
            key: push.key,
            level: push.level,
            state,
            attempts: 0,
            token: 0,
            at: at.map(Timestamp),
            pushed_at: now,
            pushed_by: push.pushed_by,
            unique_key: push.unique.map(|unique| unique.key),
            unique_until: until.map(Timestamp),
            body: push.body.filter(|body| !body.is_empty()),
        })));
        work.enter(place);
    }

    /// Whether the session has completed or cancelled the job of a name, so that the name is free for it.
    fn has_finished(&self, session: &Session, holder: &UniqueName) -> bool {
        let job = self.work.places.get(&holder.job_id).map(|place| &self.work.jobs[*place]);
        !holder.has_window && job.is_some_and(|job| job.is_finished && job.session == session.id)
    }

    /// Forgets a job whose push was rolled back.
    pub(super) fn undo_push_job(&mut self, place: u32) {
        let work = &mut self.work;
        let unique = std::mem::replace(&mut work.jobs[place].unique, NO_NAME);
        if unique != NO_NAME {
            work.unique.remove(unique);
        }
        work.remove(place);
    }

    /// The work queue of that name.
    pub(super) fn work_queue(&self, name: &str) -> Result<Arc<WorkQueue>> {
        self.catalog.work_queue(name).cloned().ok_or_else(|| Error::object_not_found("work queue", name))
    }
}

fn check_push(push: &Push, max_body_bytes: usize) -> Result<()> {
    check_name("the type of a job", &push.job_type)?;
    check_name("the name of a writer", &push.pushed_by)?;
    if let Some(key) = &push.key {
        check_name("the key of a job", key)?;
    }
    if !(1..=10).contains(&push.level) {
        return Err(Error::out_of_range("the level of a job", push.level, "1 to 10"));
    }
    if let Due::InMs(delay_ms) = push.due {
        check_delay("the delay of a job in milliseconds", delay_ms, 0)?;
    }
    if let Some(unique) = &push.unique {
        check_name("the unique key of a job", &unique.key)?;
        if let Some(window_ms) = unique.window_ms {
            check_delay("the window of a unique key in milliseconds", window_ms, 1)?;
        }
    }
    check_bytes("the body of a job", push.body.as_ref().map_or(0, |body| body.len()), max_body_bytes)
}

/// 8459: more bytes than the broker takes.
pub(super) fn check_bytes(what: &str, bytes: usize, most: usize) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(Error::new(Code::MESSAGE_TOO_LARGE, format!("{what} has {bytes} bytes; the most is {most}")))
}

/// 60005: a name longer than the tables keep.
pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    match name.chars().count() {
        0..=MOST_NAME_CHARACTERS => Ok(()),
        count => Err(Error::out_of_range(
            what,
            format_args!("a text of {count} characters"),
            &format!("at most {MOST_NAME_CHARACTERS} characters"),
        )),
    }
}

/// 60005: a time span below the least or above ten years.
pub(super) fn check_delay(what: &str, given_ms: i64, least: i64) -> Result<()> {
    if (least..=MOST_DELAY_MS).contains(&given_ms) {
        return Ok(());
    }
    Err(Error::out_of_range(what, given_ms, &format!("{least} to {MOST_DELAY_MS} (ten years)")))
}
