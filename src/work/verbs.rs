//! PUSH and TAKE with their options.

use super::Job;
use crate::act::{Answer, Perform, unexpected};
use crate::error::Result;
use crate::id::JobId;
use crate::message::bytes_body;
use crate::protocol::work::{Due, Hold, Push, Take, TakeFrom, TakenJob, Unique, WorkVerb};
use crate::protocol::{Body, Outcome, Verb};
use crate::receive::wait::{WaitLimit, complete_and_take, take_jobs};
use crate::store::BoxFuture;
use crate::time::{Timestamp, whole_ms};
use std::fmt;
use std::future::IntoFuture;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The level of a job that names none.
const DEFAULT_LEVEL: u8 = 5;

/// This process, for statistics: its program and its number.
static THIS_PROCESS: LazyLock<Arc<str>> = LazyLock::new(|| {
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let program: String = program.unwrap_or_default().chars().take(100).collect();
    format!("{program}:{}", std::process::id()).into()
});

/// The job that a push made, or found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// The job; `None` if the job of the unique key is finished and its window is not over.
    pub job: Option<JobId>,
    /// Whether this push made it.
    pub is_new: bool,
}

/// A job to be pushed; set its options, then await it.
#[must_use = "nothing happens before it is awaited"]
pub struct PushJob<'a> {
    act: &'a dyn Perform,
    push: Result<Push>,
}

impl fmt::Debug for PushJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushJob").field("push", &self.push).finish_non_exhaustive()
    }
}

impl<'a> PushJob<'a> {
    pub(crate) fn new(act: &'a dyn Perform, queue: &str, body: Result<Body>) -> Self {
        let push = body.map(|body| Push {
            queue: queue.into(),
            job_type: Arc::default(),
            key: None,
            level: DEFAULT_LEVEL,
            due: Due::Now,
            unique: None,
            body,
            pushed_by: THIS_PROCESS.clone(),
        });
        Self { act, push }
    }

    fn set(mut self, change: impl FnOnce(&mut Push)) -> Self {
        if let Ok(push) = &mut self.push {
            change(push);
        }
        self
    }

    /// The type of the job, by which readers may choose; without it, the empty text.
    pub fn job_type(self, job_type: impl Into<Arc<str>>) -> Self {
        self.set(|push| push.job_type = job_type.into())
    }

    /// The key whose jobs keep their order, where the queue limits jobs by key.
    pub fn key(self, key: impl Into<Arc<str>>) -> Self {
        self.set(|push| push.key = Some(key.into()))
    }

    /// 1 (low) to 10 (high), for queues of ORDER = PRIORITY; without it, 5.
    pub fn level(self, level: u8) -> Self {
        self.set(|push| push.level = level)
    }

    /// Ready so long after the commit, in whole milliseconds rounded up.
    pub fn run_after(self, delay: Duration) -> Self {
        self.set(|push| push.due = Due::InMs(whole_ms(delay)))
    }

    /// Ready at this time.
    pub fn run_at(self, at: Timestamp) -> Self {
        self.set(|push| push.due = Due::At(at))
    }

    /// Pushes only if no job of that name is in the queue.
    pub fn unique(self, key: impl Into<Arc<str>>) -> Self {
        self.set(|push| push.unique = Some(Unique { key: key.into(), window_ms: None }))
    }

    /// Pushes only if the name is free, and takes it for the window from the commit, whatever becomes of the job. After the window
    /// another push makes a second job, also while the first is still in the queue.
    pub fn unique_within(self, key: impl Into<Arc<str>>, window: Duration) -> Self {
        self.set(|push| push.unique = Some(Unique { key: key.into(), window_ms: Some(whole_ms(window)) }))
    }

    /// Who pushes it, for statistics; without it, this program and the number of its process.
    pub fn pushed_by(self, name: impl Into<Arc<str>>) -> Self {
        self.set(|push| push.pushed_by = name.into())
    }
}

impl<'a> IntoFuture for PushJob<'a> {
    type Output = Result<Pushed>;
    type IntoFuture = Answer<'a, Pushed>;

    fn into_future(self) -> Self::IntoFuture {
        let verb = self.push.map(|push| Verb::Work(WorkVerb::Push(Box::new(push))));
        Answer::to_result(self.act, verb, |outcome| match outcome {
            Outcome::Pushed { job, is_new } => Ok(Pushed { job, is_new }),
            other => Err(unexpected(&other)),
        })
    }
}

/// Jobs to be taken; set the options, then await it. Awaiting it gives no job if none was ready in time.
#[must_use = "nothing happens before it is awaited"]
pub struct TakeJobs<'a> {
    act: &'a dyn Perform,
    take: Take,
    wait: WaitLimit,
    completed: Option<WorkVerb>,
}

impl fmt::Debug for TakeJobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeJobs").field("take", &self.take).field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<'a> TakeJobs<'a> {
    pub(crate) fn new(act: &'a dyn Perform, queue: &str) -> Self {
        let hold = if act.is_transaction() { Hold::Transaction } else { Hold::Lease(None) };
        let take = Take {
            queue: queue.into(),
            count: 1,
            job_type: None,
            from: TakeFrom::Any,
            hold,
            taken_by: THIS_PROCESS.clone(),
        };
        Self { act, take, wait: WaitLimit::None, completed: None }
    }

    /// What is asked of the store.
    pub(super) fn into_take(self) -> Take {
        self.take
    }

    /// At most so many, 1 to 10000; without it, one.
    pub fn count(mut self, count: u32) -> Self {
        self.take.count = i64::from(count);
        self
    }

    /// Only jobs of this type.
    pub fn job_type(mut self, job_type: impl Into<Arc<str>>) -> Self {
        self.take.job_type = Some(job_type.into());
        self
    }

    /// Only jobs whose level is within these bounds; for queues of ORDER = PRIORITY. It replaces an `oldest` before it.
    pub fn levels(mut self, levels: RangeInclusive<u8>) -> Self {
        self.take.from = TakeFrom::Levels { lowest: *levels.start(), highest: *levels.end() };
        self
    }

    /// The job that was pushed first, of any level; for queues of ORDER = PRIORITY. It replaces `levels` before it.
    pub fn oldest(mut self) -> Self {
        self.take.from = TakeFrom::Oldest;
        self
    }

    /// Held for so long, in whole milliseconds rounded up, instead of the queue's LEASE_MS or by the transaction.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.take.hold = Hold::Lease(Some(whole_ms(lease)));
        self
    }

    /// Completed by the taking itself, or in a transaction by its commit: nothing needs to be reported, and outside a
    /// transaction a job whose reader dies is gone. So is one whose take is dropped after the store has done it and before
    /// its answer has come.
    pub fn pop(mut self) -> Self {
        self.take.hold = Hold::Transaction;
        self
    }

    /// Who takes them, for statistics; without it, this program and the number of its process.
    pub fn taken_by(mut self, name: impl Into<Arc<str>>) -> Self {
        self.take.taken_by = name.into();
        self
    }

    /// Reports a taken job as done first, by the same commit: if it is refused, nothing is taken, and if the take is, the job
    /// is not completed. So a reader that goes from job to job needs one commit for each and not two. In a transaction, and for a
    /// queue with limits or of ORDER = FIFO_STRICT, these are two statements: a refused take leaves the job completed. So does one
    /// that fails while it waits.
    ///
    /// ```
    /// # async fn example(broker: dialoq::Broker) -> dialoq::Result<()> {
    /// use dialoq::Act;
    ///
    /// let mut jobs = broker.take_jobs("emails").await?;
    /// while let Some(job) = jobs.pop() {
    ///     println!("send to {}", String::from_utf8_lossy(job.body()));
    ///     jobs = broker.take_jobs("emails").completing(&job).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Act::complete_job`](crate::Act::complete_job) too.
    pub fn completing(mut self, job: impl Into<TakenJob>) -> Self {
        self.completed = Some(WorkVerb::Complete { taken: job.into(), result: None });
        self
    }

    /// The same, and keeps a result with the history of that job.
    ///
    /// # Errors
    /// Those of [`Act::complete_job_with`](crate::Act::complete_job_with) too.
    pub fn completing_with(mut self, job: impl Into<TakenJob>, result: impl AsRef<[u8]>) -> Self {
        self.completed = Some(WorkVerb::Complete { taken: job.into(), result: bytes_body(result.as_ref()) });
        self
    }

    /// Waits so long for the first job, by the broker's clock.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = WaitLimit::For(wait);
        self
    }

    /// Waits for ever.
    pub fn wait_forever(mut self) -> Self {
        self.wait = WaitLimit::Forever;
        self
    }
}

impl<'a> IntoFuture for TakeJobs<'a> {
    type Output = Result<Vec<Job>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        match self.completed {
            Some(completed) => Box::pin(complete_and_take(self.act, completed, self.take, self.wait)),
            None => Box::pin(take_jobs(self.act, self.take, self.wait)),
        }
    }
}
