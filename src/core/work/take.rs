//! TAKE: jobs that are ready, to a reader.

use super::change::WorkChange;
use super::job::FinishedAs;
use super::limits::NextTakes;
use super::push::{check_delay, check_name};
use super::ready::OrderKey;
use super::session::{Undone, UnwrittenTake, WorkOp};
use crate::catalog::WorkQueue;
use crate::core::effects::Effects;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::{Code, Error, Result};
use crate::id::JobId;
use crate::protocol::definition::{WorkNumber, WorkOrder};
use crate::protocol::work::{AfterFailure, Hold, Job, JobState, MOST_TAKEN, Take, TakeFrom, TakenJob};
use crate::time::Timestamp;
use std::sync::Arc;

/// A job that was taken: the parts that are in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenRow(Job);

impl TakenRow {
    /// The job and this taking of it.
    pub fn taken(&self) -> TakenJob {
        self.0.taken
    }

    /// The key of its row.
    pub fn job_id(&self) -> u64 {
        self.0.taken.job.0
    }

    /// The job, with the parts that are in its row.
    pub fn into_job(self, row: super::JobRead) -> Job {
        Job { pushed_by: row.pushed_by, last_error: row.last_error, body: row.body, ..self.0 }
    }
}

impl Core {
    pub(super) fn take_jobs(&mut self, session: &mut Session, take: &Take, now: Timestamp) -> Result<Vec<TakenRow>> {
        let queue = self.work_queue(&take.queue)?;
        check_take(take, &queue)?;
        let mut rows = Vec::new();
        if !queue.settings.is_enabled {
            return Ok(rows);
        }
        let job_type = match &take.job_type {
            None => None,
            Some(job_type) => match self.work.types.find(job_type) {
                None => return Ok(rows),
                known => known,
            },
        };
        let lease_until = match take.hold {
            Hold::Transaction => None,
            Hold::Lease(lease_ms) => {
                let lease_ms = lease_ms.unwrap_or(queue.settings.get(WorkNumber::LeaseMs));
                Some(Timestamp(now.0.saturating_add(lease_ms.saturating_mul(1000))))
            }
        };
        while rows.len() < usize::try_from(take.count).unwrap_or(usize::MAX) {
            let Some(chosen) = self.work.next_within_limits(queue.id, job_type, take.from, now) else { break };
            rows.push(self.take_one(session, &queue, chosen, lease_until, &take.taken_by, now));
        }
        Ok(rows)
    }

    fn take_one(
        &mut self,
        session: &mut Session,
        queue: &WorkQueue,
        (place, next_takes): (u32, NextTakes),
        lease_until: Option<Timestamp>,
        taken_by: &Arc<str>,
        now: Timestamp,
    ) -> TakenRow {
        let work = &mut self.work;
        let token = work.take_token();
        let (session_id, token_before, at_before) = (session.id, work.jobs[place].token, work.jobs[place].at);
        work.change(place, |job| {
            job.state = JobState::Taken;
            job.session = session_id;
            job.token = token;
            job.attempts += 1;
            job.at = lease_until.map_or(i64::MAX, |until| until.0);
        });
        let job = &work.jobs[place];
        let (job_id, attempt) = (job.id, job.attempts);
        let row = TakenRow(Job {
            taken: TakenJob { job: JobId(job_id), token },
            queue: queue.name.clone(),
            job_type: work.types.name(job.job_type).clone(),
            key: work.keys.optional_name(job.key),
            level: job.level,
            attempt,
            pushed_at: Timestamp(job.pushed_at),
            pushed_by: Arc::default(),
            lease_until,
            last_error: None,
            body: None,
        });
        let taken_by = taken_by.clone();
        let change = WorkChange::TakeJob { job_id, attempts: attempt, token, lease_until, taken_at: now, taken_by };
        // A transaction may end with its process: the attempt counts at once.
        let unwritten = if session.is_transaction {
            work.write(change);
            None
        } else {
            Some(Box::new(UnwrittenTake { change, token_before, at_before, next_takes }))
        };
        session.record(Op::Work(WorkOp::Take { job: place, token, unwritten }));
        row
    }

    /// At the commit: a job held by the transaction is done, a leased one stays taken.
    pub(super) fn apply_take_job(
        &mut self,
        place: u32,
        token: u64,
        unwritten: Option<Box<UnwrittenTake>>,
        now: Timestamp,
    ) {
        let work = &mut self.work;
        if let Some(unwritten) = unwritten {
            work.write(unwritten.change);
        }
        let Some(job) = work.jobs.get(place).filter(|job| job.token == token && job.state == JobState::Taken) else {
            return;
        };
        if job.is_reported {
            // What it reported comes later in the log.
            return;
        }
        if job.at == i64::MAX {
            self.finish_job(place, FinishedAs::Done, None, now);
        } else {
            work.change(place, |job| job.session = 0);
        }
    }

    /// A rollback is a failed attempt. What a savepoint undoes, or what no reader has seen, never was.
    pub(super) fn undo_take_job(
        &mut self,
        place: u32,
        token: u64,
        unwritten: Option<Box<UnwrittenTake>>,
        undone: Undone,
    ) {
        if self.work.jobs.get(place).is_none_or(|job| job.token != token || job.state != JobState::Taken) {
            return;
        }
        match undone {
            Undone::ByRollback(now) => {
                self.fail_attempt(place, "its transaction was rolled back".into(), AfterFailure::Policy, now);
            }
            Undone::ToSavepoint => self.return_job(place, true),
            Undone::BeforeItsCommit => {
                if let Some(unwritten) = &unwritten {
                    self.work.uncount(place, unwritten.next_takes);
                }
                self.return_job(place, false);
                if let Some(unwritten) = unwritten {
                    // Its row has the earlier ones, and callers that look at it compare that.
                    (self.work.jobs[place].token, self.work.jobs[place].at) =
                        (unwritten.token_before, unwritten.at_before);
                }
            }
        }
    }

    /// Gives a job back that its reader never got; nothing happens if it is no longer taken.
    pub fn give_back(&mut self, taken: TakenJob, effects: &mut Effects) {
        let TakenJob { job, token } = taken;
        if let Some(place) = self.work.places.get(&job.0).copied()
            && self.work.jobs[place].token == token
            && self.work.jobs[place].state == JobState::Taken
            && self.work.jobs[place].session == 0
        {
            self.return_job(place, true);
            self.hand_on_work(effects);
        }
    }

    pub(super) fn return_job(&mut self, place: u32, is_written: bool) {
        let work = &mut self.work;
        work.change(place, |job| {
            job.state = JobState::Ready;
            (job.session, job.is_reported, job.at) = (0, false, 0);
            job.attempts -= 1;
        });
        let (job_id, attempts, token) = (work.jobs[place].id, work.jobs[place].attempts, work.jobs[place].token);
        if is_written {
            work.write(WorkChange::ReturnJob { job_id, attempts, token });
        }
    }
}

/// 60005: a name or a type that is too long.
pub(crate) fn check_reader(name: &str, job_type: Option<&str>) -> Result<()> {
    check_name("the name of a reader", name)?;
    job_type.map_or(Ok(()), |job_type| check_name("the type of a job", job_type))
}

fn check_take(take: &Take, queue: &WorkQueue) -> Result<()> {
    if !(1..=MOST_TAKEN).contains(&take.count) {
        return Err(Error::out_of_range("the number of jobs to take", take.count, &format!("1 to {MOST_TAKEN}")));
    }
    check_reader(&take.taken_by, take.job_type.as_deref())?;
    if let Hold::Lease(Some(lease_ms)) = take.hold {
        check_delay("a lease in milliseconds", lease_ms, 1)?;
    }
    if let TakeFrom::Levels { lowest, highest } = take.from
        && !(1 <= lowest && lowest <= highest && highest <= 10)
    {
        let text = format!("the levels to take from are {lowest} to {highest}; they must be 1 to 10, the lowest first");
        return Err(Error::new(Code::OUT_OF_RANGE, text));
    }
    if take.from != TakeFrom::Any && queue.settings.order != WorkOrder::Priority {
        return Err(Error::new(
            Code::OUT_OF_RANGE,
            format!(
                "work queue '{}' has ORDER = {}: only a queue of ORDER = PRIORITY can be asked for levels or for the oldest",
                queue.name,
                queue.settings.order.word()
            ),
        ));
    }
    Ok(())
}

impl super::Work {
    /// The next job in the order of the queue.
    pub(super) fn first(&self, queue_id: i32, job_type: Option<u32>, from: TakeFrom) -> Option<OrderKey> {
        let ready = &self.queues.get(&queue_id)?.ready;
        let jobs = match job_type {
            None => &ready.all,
            Some(job_type) => ready.by_type.get(&job_type)?,
        };
        let of_levels = |lowest: u8, highest: u8| {
            let first = jobs.range(OrderKey::first_of(highest)..).next().copied()?;
            (first.rank_from_top <= 10 - lowest).then_some(first)
        };
        match from {
            TakeFrom::Any => jobs.first().copied(),
            TakeFrom::Levels { lowest, highest } => of_levels(lowest, highest),
            TakeFrom::Oldest => (1..=10).filter_map(|level| of_levels(level, level)).min_by_key(|place| place.order),
        }
    }
}
