//! Looking at work queues: what waits, what is worked on, what is dead, and how long jobs took. Nothing is locked or
//! changed. It also works on [`Broker::open_read_only`], while another process owns the file.

use super::ShownState;
use crate::broker::Broker;
use crate::error::{Code, Error, Result};
use crate::id::JobId;
use crate::protocol::work::{Seen, WorkVerb};
use crate::protocol::{Verb, check_nul};
use crate::store::{SqlRow, SqlValue, WorkTexts};
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::HashMap;

/// The jobs that one unit cancels or redrives.
const AT_ONCE: usize = 500;

/// The jobs that one query reads. With the longest texts so many take 250 MB, and an embedded store refuses rows of more than 1 GB:
/// 450,000 dead jobs with reasons of 2,000 bytes could not be redriven.
const A_PAGE: u32 = if cfg!(test) { 100 } else { 10_000 };

/// A work queue with the number of its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkQueueStatus {
    /// The name as declared.
    pub name: String,
    /// Whether jobs may be taken.
    pub is_enabled: bool,
    /// The order of taking, as the DDL writes it.
    pub order: String,
    /// Jobs whose time has not come.
    pub scheduled: u64,
    /// Jobs that can be taken.
    pub ready: u64,
    /// Jobs that a reader works on.
    pub taken: u64,
    /// Taken jobs whose lease is over and whose reader has reported nothing; they become ready or dead in a moment.
    pub lost: u64,
    /// Jobs without another attempt.
    pub dead: u64,
    /// How long the oldest ready job has waited, in milliseconds.
    pub oldest_ready_ms: Option<u64>,
    /// Finished jobs in the history.
    pub finished: u64,
    /// The activated readers that run now, in all processes; `None` if no process activates this work queue. Other readers are not
    /// counted.
    pub readers_running: Option<u64>,
}

/// Which jobs are meant; the default is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of this work queue.
    pub queue: Option<String>,
    /// In this state.
    pub state: Option<ShownState>,
    /// Of this type.
    pub job_type: Option<String>,
    /// Whose last error contains this text.
    pub error: Option<String>,
    /// Only this one.
    pub job: Option<JobId>,
    /// Taken before this time and not reported yet.
    pub taken_before: Option<Timestamp>,
}

/// A job that is not finished. Times serialize as UTC text with milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobStatus {
    /// The job.
    pub job: JobId,
    /// Its work queue.
    pub queue: String,
    /// Its type.
    pub job_type: String,
    /// Its key.
    pub key: Option<String>,
    /// 1 (low) to 10 (high).
    pub level: u64,
    /// Its state.
    pub state: ShownState,
    /// How often it was handed out.
    pub attempts: u64,
    /// Of the latest taking.
    pub token: u64,
    /// When a scheduled job is due, or the end of a lease.
    pub due_at: Option<Timestamp>,
    /// When it was pushed.
    pub pushed_at: Timestamp,
    /// By whom.
    pub pushed_by: String,
    /// When it was last taken.
    pub taken_at: Option<Timestamp>,
    /// By whom.
    pub taken_by: Option<String>,
    /// When an attempt last failed.
    pub failed_at: Option<Timestamp>,
    /// Why.
    pub last_error: Option<String>,
    /// What its reader noted last.
    pub progress: Option<String>,
}

/// A finished job. Times serialize as UTC text with milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FinishedJob {
    /// The job.
    pub job: JobId,
    /// Its work queue.
    pub queue: String,
    /// Its type.
    pub job_type: String,
    /// Its key.
    pub key: Option<String>,
    /// [`Done`](ShownState::Done) or [`Cancelled`](ShownState::Cancelled).
    pub finished_as: ShownState,
    /// How often it was handed out.
    pub attempts: u64,
    /// When it was pushed.
    pub pushed_at: Timestamp,
    /// By whom.
    pub pushed_by: String,
    /// When it was last taken; `None` if it never was.
    pub taken_at: Option<Timestamp>,
    /// By whom.
    pub taken_by: Option<String>,
    /// When it was completed or cancelled.
    pub finished_at: Timestamp,
    /// Why its last failed attempt failed.
    pub last_error: Option<String>,
    /// The result that its reader gave.
    #[serde(skip)]
    pub result: Option<Vec<u8>>,
}

/// What statistics are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatisticsBy {
    /// By work queue.
    #[default]
    Queue,
    /// By the name of the reader.
    Reader,
    /// By the name of the writer.
    Writer,
}

/// How long the completed jobs of the history took, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkStatistics {
    /// The work queue.
    pub queue: String,
    /// The reader or the writer; empty for the whole queue.
    pub name: String,
    /// How many jobs.
    pub jobs: u64,
    /// From the push to the last taking.
    pub to_take: Spread,
    /// From there to the completion.
    pub to_complete: Spread,
}

/// An average and percentiles, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub average_us: u64,
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
}

impl Broker {
    /// Every work queue with the number of its jobs. Every job is read, finished ones of the history too.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn work_queues(&self) -> Result<Vec<WorkQueueStatus>> {
        let now = self.clock().now();
        let rows = self.query_own(self.work_texts().queues, (now.0,)).await?.rows;
        let monitors = self.query_own(self.shared_store().texts().status.monitors, ()).await?.rows;
        let mut readers: HashMap<i64, u64> = HashMap::new();
        for row in &monitors {
            *readers.entry(row.own("queue_id")?).or_default() += row.count("readers_running")?;
        }
        let status = |row: &SqlRow| {
            let oldest: Option<i64> = row.own("oldest_ready_us")?;
            Ok(WorkQueueStatus {
                name: row.own("name")?,
                is_enabled: row.own("is_enabled")?,
                order: row.own("work_order")?,
                scheduled: row.count("scheduled")?,
                ready: row.count("ready")?,
                taken: row.count("taken")?,
                lost: row.count("lost")?,
                dead: row.count("dead")?,
                oldest_ready_ms: oldest.map(|oldest| u64::try_from((now.0 - oldest) / 1000).unwrap_or(0)),
                finished: row.count("finished")?,
                readers_running: readers.get(&row.own("queue_id")?).copied(),
            })
        };
        rows.iter().map(status).collect()
    }

    /// Jobs that are not finished, the first pushed first; at most so many. More than 10,000 are read in portions one after the other,
    /// each as of its own moment.
    ///
    /// # Errors
    /// 60002 for a work queue that is not there; 60005 a text of the filter contains a NUL character; those of the store.
    pub async fn jobs(&self, filter: &JobFilter, most: u32) -> Result<Vec<JobStatus>> {
        self.jobs_as(filter, most, |job| job).await
    }

    /// All jobs of a filter without the texts that a change of many does not need: their reasons and notes may take gigabytes.
    pub(crate) async fn jobs_to_change(&self, filter: &JobFilter) -> Result<Vec<JobStatus>> {
        self.jobs_as(filter, u32::MAX, |job| JobStatus { last_error: None, progress: None, ..job }).await
    }

    async fn jobs_as(
        &self,
        filter: &JobFilter,
        most: u32,
        keep: impl Fn(JobStatus) -> JobStatus,
    ) -> Result<Vec<JobStatus>> {
        check_filter(filter)?;
        let JobFilter { queue, state, job_type, error, job, taken_before } = filter;
        let mut jobs: Vec<JobStatus> = Vec::new();
        loop {
            let left = most.saturating_sub(u32::try_from(jobs.len()).unwrap_or(u32::MAX)).min(A_PAGE);
            let params = vec![
                text(queue),
                state_of(*state),
                text(job_type),
                text(error),
                number(job.map(|job| job.0.cast_signed())),
                number(taken_before.map(|at| at.0)),
                SqlValue::Integer(left.into()),
                SqlValue::Integer(self.clock().now().0),
                SqlValue::Integer(jobs.last().map_or(0, |last| last.job.0.cast_signed())),
            ];
            let rows = self.query_own(self.work_texts().jobs, params).await?.rows;
            let is_last = rows.len() < A_PAGE as usize;
            for row in &rows {
                jobs.push(keep(job_status(row)?));
            }
            if is_last || jobs.len() >= most as usize {
                break;
            }
        }
        self.check_named(jobs.len(), filter.queue.as_deref()).await?;
        Ok(jobs)
    }

    /// Finished jobs that the history keeps, of each queue the last one first; at most so many. Of the filter, `error` and
    /// `taken_before` are not for finished jobs.
    ///
    /// # Errors
    /// 60002 for a work queue that is not there; 60005 a text of the filter contains a NUL character; those of the store.
    pub async fn finished_jobs(&self, filter: &JobFilter, most: u32) -> Result<Vec<FinishedJob>> {
        self.finished_jobs_with(filter, most, true).await
    }

    /// The same, with or without their results, which may take gigabytes.
    pub(crate) async fn finished_jobs_with(
        &self,
        filter: &JobFilter,
        most: u32,
        results: bool,
    ) -> Result<Vec<FinishedJob>> {
        check_filter(filter)?;
        let params = vec![
            text(&filter.queue),
            state_of(filter.state),
            text(&filter.job_type),
            number(filter.job.map(|job| job.0.cast_signed())),
            SqlValue::Integer(most.into()),
            SqlValue::Integer(results.into()),
        ];
        let rows = self.query_own(self.work_texts().finished, params).await?.rows;
        self.check_named(rows.len(), filter.queue.as_deref()).await?;
        rows.iter().map(finished_job).collect()
    }

    /// The content of a job that is not finished, without taking it; `None` if there is no such job, or it has no content.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn job_body(&self, job: JobId) -> Result<Option<Vec<u8>>> {
        let rows = self.query_own(self.work_texts().job_body, (job,)).await?.rows;
        Ok(rows.first().map(|row| row.own("body")).transpose()?.flatten())
    }

    /// How a job ended that was finished lately, and after how many attempts; `None` if the history of its queue does not say.
    pub(crate) async fn finish_of(&self, queue: &str, job: JobId) -> Result<Option<(ShownState, u64)>> {
        let Some(queue_id) = self.catalog().work_queue(queue).map(|queue| queue.id) else { return Ok(None) };
        let params = vec![SqlValue::Integer(queue_id.into()), SqlValue::Integer(job.0.cast_signed())];
        let rows = self.query_own(self.work_texts().finish, params).await?.rows;
        rows.first().map(|row| Ok((row.own("finished_as")?, row.count("attempts")?))).transpose()
    }

    /// How long the completed jobs of the history waited and took, by queue, reader or writer.
    ///
    /// # Errors
    /// 60002 for a work queue that is not there; 60005 its name contains a NUL character; those of the store.
    pub async fn work_statistics(&self, queue: Option<&str>, by: StatisticsBy) -> Result<Vec<WorkStatistics>> {
        check_nul("the work queue of statistics", queue.unwrap_or_default())?;
        let by = match by {
            StatisticsBy::Queue => "queue",
            StatisticsBy::Reader => "reader",
            StatisticsBy::Writer => "writer",
        };
        let params = vec![text(&queue.map(str::to_owned)), SqlValue::Text(by.to_owned())];
        let rows = self.query_own(self.work_texts().statistics, params).await?.rows;
        self.check_named(rows.len(), queue).await?;
        let spread = |row: &SqlRow, what: &str| -> Result<Spread> {
            Ok(Spread {
                average_us: row.count(&format!("{what}_avg_us"))?,
                p50_us: row.count(&format!("{what}_p50_us"))?,
                p95_us: row.count(&format!("{what}_p95_us"))?,
                p99_us: row.count(&format!("{what}_p99_us"))?,
            })
        };
        let statistics = |row: &SqlRow| {
            Ok(WorkStatistics {
                queue: row.own("queue")?,
                name: row.own::<Option<String>>("name")?.unwrap_or_default(),
                jobs: row.count("jobs")?,
                to_take: spread(row, "take")?,
                to_complete: spread(row, "complete")?,
            })
        };
        rows.iter().map(statistics).collect()
    }

    /// Refuses a name of no work queue, which is why nothing was found.
    async fn check_named(&self, found: usize, queue: Option<&str>) -> Result<()> {
        let Some(name) = queue.filter(|_| found == 0) else { return Ok(()) };
        if self.work_queues().await?.iter().any(|queue| queue.name.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        Err(Error::object_not_found("work queue", name))
    }

    /// Gives every dead job of a filter all its attempts again; a filter of another state means none. Returns how many; jobs
    /// that were redriven or cancelled meanwhile are left out. [`Broker::jobs`] shows them before.
    ///
    /// # Errors
    /// 60002 for a work queue that is not there; 60005 a text of the filter contains a NUL character; those of the store; then
    /// jobs before the failure are redriven.
    pub async fn redrive_jobs(&self, filter: &JobFilter) -> Result<u64> {
        check_filter(filter)?;
        if filter.state.is_some_and(|state| state != ShownState::Dead) {
            return Ok(0);
        }
        let dead = JobFilter { state: Some(ShownState::Dead), ..filter.clone() };
        let jobs = self.jobs_to_change(&dead).await?;
        let mut redriven = 0;
        self.redrive_found_counting(&dead, &jobs, &mut redriven).await?;
        Ok(redriven)
    }

    /// As [`Broker::redrive_jobs`], but only of these jobs, which [`Broker::jobs`] has found by this filter: those of a preview. A
    /// job that died after it is left out.
    ///
    /// # Errors
    /// Those of the store; then jobs before the failure are redriven.
    pub async fn redrive_found_jobs(&self, filter: &JobFilter, found: &[JobStatus]) -> Result<u64> {
        let mut redriven = 0;
        self.redrive_found_counting(filter, found, &mut redriven).await?;
        Ok(redriven)
    }

    /// The same for a caller that wants the number although it gives the call up.
    pub(crate) async fn redrive_found_counting(
        &self,
        filter: &JobFilter,
        found: &[JobStatus],
        redriven: &mut u64,
    ) -> Result<()> {
        check_filter(filter)?;
        if filter.state.is_some_and(|state| state != ShownState::Dead) {
            return Ok(());
        }
        let dead = JobFilter { state: Some(ShownState::Dead), ..filter.clone() };
        self.each_job(&dead, found, |job, seen| WorkVerb::Redrive { job, seen }, redriven).await
    }

    /// Cancels every job of a filter. Returns how many; jobs that an open transaction holds, or that are finished
    /// meanwhile, are left out. So are jobs that no longer match the filter, such as a ready one that was taken.
    /// [`Broker::jobs`] shows them before.
    ///
    /// # Errors
    /// 60002 for a work queue that is not there; 60005 a text of the filter contains a NUL character; those of the store; then
    /// jobs before the failure are cancelled.
    pub async fn cancel_jobs(&self, filter: &JobFilter) -> Result<u64> {
        let jobs = self.jobs_to_change(filter).await?;
        self.cancel_found_jobs(filter, &jobs).await
    }

    /// As [`Broker::cancel_jobs`], but only of these jobs, which [`Broker::jobs`] has found by this filter: those of a preview. A
    /// job that was pushed after it is left out.
    ///
    /// # Errors
    /// Those of the store; then jobs before the failure are cancelled.
    pub async fn cancel_found_jobs(&self, filter: &JobFilter, found: &[JobStatus]) -> Result<u64> {
        let mut cancelled = 0;
        self.cancel_found_counting(filter, found, &mut cancelled).await?;
        Ok(cancelled)
    }

    /// The same for a caller that wants the number although it gives the call up.
    pub(crate) async fn cancel_found_counting(
        &self,
        filter: &JobFilter,
        found: &[JobStatus],
        cancelled: &mut u64,
    ) -> Result<()> {
        self.each_job(filter, found, |job, seen| WorkVerb::Cancel { job, seen }, cancelled).await
    }

    async fn each_job(
        &self,
        filter: &JobFilter,
        found: &[JobStatus],
        verb: impl Fn(JobId, Option<Seen>) -> WorkVerb,
        done: &mut u64,
    ) -> Result<()> {
        // Queue, type and id never change.
        let may_change = filter.state.is_some() || filter.error.is_some() || filter.taken_before.is_some();
        let verb = |job: &JobStatus| {
            // The state beside the token: an attempt that has ended keeps its token.
            let state = Some(filter.state.unwrap_or(job.state).name().into());
            Verb::Work(verb(job.job, may_change.then_some(Seen { state, token: job.token })))
        };
        for jobs in found.chunks(AT_ONCE) {
            let unit = jobs.iter().map(verb).collect();
            match self.submit(unit).await {
                Ok(outcomes) => *done += outcomes.len() as u64,
                // One of them has changed meanwhile: each by itself.
                Err(error) if is_changed(&error) => {
                    for job in jobs {
                        *done += u64::from(self.change_job(filter, job, verb).await?);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Changes a job that a filter has found, if it still matches; whether it did. One whose state has changed since is looked at
    /// again: a scheduled job of an error is ready now, and its error is the same.
    async fn change_job(
        &self,
        filter: &JobFilter,
        found: &JobStatus,
        verb: impl Fn(&JobStatus) -> Verb,
    ) -> Result<bool> {
        let mut job = found.clone();
        loop {
            match self.submit(vec![verb(&job)]).await {
                Ok(_) => return Ok(true),
                Err(error) if error.code() == Code::LEASE_LOST && filter.state.is_none() => {}
                Err(error) if is_changed(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
            let only = JobFilter { job: Some(job.job), ..filter.clone() };
            match self.jobs(&only, 1).await?.pop() {
                Some(now) if now.token == job.token && now.state != job.state => job = now,
                _ => return Ok(false),
            }
        }
    }

    pub(super) fn work_texts(&self) -> WorkTexts {
        self.shared_store().texts().work
    }
}

fn is_changed(error: &Error) -> bool {
    [Code::JOB_NOT_FOUND, Code::LEASE_LOST, Code::JOB_LOCKED, Code::JOB_NOT_DEAD].contains(&error.code())
}

fn job_status(row: &SqlRow) -> Result<JobStatus> {
    Ok(JobStatus {
        job: row.own("job_id")?,
        queue: row.own("queue")?,
        job_type: row.own("job_type")?,
        key: row.own("job_key")?,
        level: row.count("level")?,
        state: row.own("state")?,
        attempts: row.count("attempts")?,
        token: row.count("token")?,
        due_at: row.own("due_at")?,
        pushed_at: row.own("pushed_at")?,
        pushed_by: row.own("pushed_by")?,
        taken_at: row.own("taken_at")?,
        taken_by: row.own("taken_by")?,
        failed_at: row.own("failed_at")?,
        last_error: row.own("last_error")?,
        progress: row.own("progress")?,
    })
}

fn finished_job(row: &SqlRow) -> Result<FinishedJob> {
    Ok(FinishedJob {
        job: row.own("job_id")?,
        queue: row.own("queue")?,
        job_type: row.own("job_type")?,
        key: row.own("job_key")?,
        finished_as: row.own("finished_as")?,
        attempts: row.count("attempts")?,
        pushed_at: row.own("pushed_at")?,
        pushed_by: row.own("pushed_by")?,
        taken_at: row.own("taken_at")?,
        taken_by: row.own("taken_by")?,
        finished_at: row.own("finished_at")?,
        last_error: row.own("last_error")?,
        result: row.own("result")?,
    })
}

/// Refuses a NUL character, which PostgreSQL takes in no text: it was said that a statement of the user's own had failed (60022).
fn check_filter(filter: &JobFilter) -> Result<()> {
    let texts = [
        ("the work queue of a filter", &filter.queue),
        ("the type of a filter", &filter.job_type),
        ("the error of a filter", &filter.error),
    ];
    texts.iter().try_for_each(|(what, text)| check_nul(what, text.as_deref().unwrap_or_default()))
}

fn state_of(state: Option<ShownState>) -> SqlValue {
    state.map(ShownState::name).into()
}

fn text(value: &Option<String>) -> SqlValue {
    value.clone().map_or(SqlValue::Null, SqlValue::Text)
}

fn number(value: Option<i64>) -> SqlValue {
    value.map_or(SqlValue::Null, SqlValue::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Act;
    use crate::testing::TestBroker;
    use std::time::Duration;

    #[tokio::test]
    async fn a_filter_that_can_find_nothing_is_refused_on_every_store() {
        let _limit = crate::testing::limit();
        let broker = TestBroker::in_memory().await.unwrap();
        let nul = || Some("a\0b".to_owned());
        let filters = [
            JobFilter { queue: nul(), ..JobFilter::default() },
            JobFilter { job_type: nul(), ..JobFilter::default() },
            JobFilter { error: nul(), ..JobFilter::default() },
        ];
        for filter in filters {
            assert_eq!(broker.jobs(&filter, 9).await.unwrap_err().code(), Code::OUT_OF_RANGE, "{filter:?}");
            assert_eq!(broker.cancel_jobs(&filter).await.unwrap_err().code(), Code::OUT_OF_RANGE, "{filter:?}");
            assert_eq!(broker.finished_jobs(&filter, 9).await.unwrap_err().code(), Code::OUT_OF_RANGE, "{filter:?}");
        }
        let refused = broker.work_statistics(Some("a\0b"), StatisticsBy::Queue).await.unwrap_err();
        assert_eq!(refused.code(), Code::OUT_OF_RANGE);
    }

    /// 450,000 dead jobs, whose rows took more bytes than one query may give.
    #[tokio::test]
    async fn dead_jobs_whose_texts_are_too_long_for_one_query_are_redriven_and_cancelled() {
        let _limit = crate::testing::limit();
        const JOBS: usize = 450;
        let broker = TestBroker::in_memory().await.unwrap();
        broker.execute("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1").await.unwrap();
        for number in 0..JOBS {
            broker.push_job("w", &number.to_string()).await.unwrap();
        }
        let (long, all) = ("\u{1F69A}".repeat(3000), JobFilter::default());
        let dead = JobFilter { state: Some(ShownState::Dead), ..all.clone() };
        for round in ["redrive", "cancel"] {
            let taken = broker.take_jobs("w").count(JOBS as u32).lease(Duration::from_secs(60)).await.unwrap();
            assert_eq!(taken.len(), JOBS, "{round}");
            for job in &taken {
                broker.report_job(job, long.as_str()).await.unwrap();
                broker.fail_job(job, long.as_str()).await.unwrap();
            }
            let found = broker.jobs(&dead, u32::MAX).await.unwrap();
            assert!(found.is_sorted_by_key(|job| job.job) && found.len() == JOBS);
            assert_eq!(found[JOBS - 1].last_error.as_deref(), Some(long.as_str()));
            for most in [0, 1, A_PAGE, A_PAGE + 1] {
                let some = broker.jobs(&all, most).await.unwrap();
                assert_eq!(some, found[..most as usize]);
            }
            let changed = match round {
                "redrive" => broker.redrive_jobs(&all).await,
                _ => broker.cancel_jobs(&dead).await,
            };
            assert_eq!(changed.unwrap(), JOBS as u64, "{round}");
        }
        assert_eq!(broker.jobs(&all, 1).await.unwrap(), []);
    }
}
