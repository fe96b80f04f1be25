//! Jobs of several work queues, or of several levels of one, taken in the order of a strategy.

use super::{Job, TakeJobs};
use crate::act::{Act, Perform};
use crate::broker::Broker;
use crate::catalog::{Catalog, Queue};
use crate::error::{Code, Error, Result};
use crate::protocol::ReceiveFrom;
use crate::protocol::definition::WorkOrder;
use crate::protocol::work::{MOST_TAKEN, Take, TakeFrom};
use crate::receive::strategy::{ClassAttempt, Found, Strategy};
use crate::receive::wait::{WaitLimit, take_first};
use crate::receive::{Chosen, Deadline, next_by};
use crate::store::{BoxFuture, work_queue_on_board};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Jobs of one take, and the class that it was for.
#[derive(Debug)]
pub struct JobTurn {
    /// At least one.
    pub jobs: Vec<Job>,
    /// The class, by the strategy's name for it.
    pub class: Arc<str>,
}

/// Takes that a strategy chooses; see [`Broker::take_jobs_by`].
#[must_use = "nothing is taken before next"]
pub struct JobTurns {
    strategy: Box<dyn Strategy>,
    takes: Takes,
    wait: WaitLimit,
}

impl fmt::Debug for JobTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTurns").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl Broker {
    /// Takes jobs of several work queues, or of several levels of a PRIORITY queue, in the order that a strategy chooses: the
    /// strategies are those of [`Broker::receive_by`], with the same bounds. A strategy counts takes as receives, and a job
    /// is a group of its own: where no number is set, a take gives one job.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// # use dialoq::{Act, testing::TestBroker};
    /// # let broker = TestBroker::in_memory().await?;
    /// use dialoq::receive::weighted;
    /// broker.execute("CREATE WORK QUEUE urgent; CREATE WORK QUEUE routine").await?;
    /// # broker.push_job("routine", "tidy").await?;
    /// let mut turns = broker.take_jobs_by(weighted([("urgent", 8), ("routine", 1)]))?;
    /// let turn = turns.next(&*broker).await?.expect("it waits until there is a job");
    /// assert_eq!(&*turn.class, "routine");
    /// broker.complete_job(&turn.jobs[0]).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// 60002 a work queue of the strategy does not exist, as far as this process knows; 60005 one of its settings is out of range, it asks a queue without
    /// ORDER = PRIORITY for levels, or it asks for conversations or contracts, which jobs do not have.
    pub fn take_jobs_by(&self, strategy: impl Strategy + 'static) -> Result<JobTurns> {
        let mut strategy: Box<dyn Strategy> = Box::new(strategy);
        prepare(&mut *strategy, self)?;
        Ok(JobTurns { strategy, takes: Takes::default(), wait: WaitLimit::Forever })
    }
}

impl JobTurns {
    /// Held for so long, instead of the queue's LEASE_MS or by the transaction.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.takes.lease = Some(lease);
        self
    }

    /// Who takes them, for statistics; without it, this program and the number of its process.
    pub fn taken_by(mut self, name: impl Into<Arc<str>>) -> Self {
        self.takes.taken_by = Some(name.into());
        self
    }

    /// Each turn waits so long for jobs, by the broker's clock; without it, for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = WaitLimit::For(wait);
        self
    }

    /// The jobs of the next take, on a [`Broker`] leased, in a [`Tx`](crate::Tx) held by the transaction; `None` if none came
    /// in time. On a [`Broker`] a call that is dropped gives its jobs back; in a transaction the next take of the same kind gives them, and a
    /// commit without one is refused (60038).
    ///
    /// # Errors
    /// Those of [`Act::take_jobs`].
    pub async fn next(&mut self, act: &impl Act) -> Result<Option<JobTurn>> {
        let deadline = self.wait.deadline(act.store());
        let turn = next_by(&self.takes, act, &mut *self.strategy, deadline).await?;
        Ok(turn.map(|(class, jobs)| JobTurn { jobs, class }))
    }
}

/// How the jobs of a strategy are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Takes {
    pub(super) lease: Option<Duration>,
    pub(super) taken_by: Option<Arc<str>>,
    /// One job each, whatever the strategy asks for.
    pub(super) is_single: bool,
    /// Of a reader: work queues that are missing are left out, and whether that was said. One that was dropped ended the takes from all
    /// others.
    pub(super) leaves_missing_out: Option<Arc<AtomicBool>>,
}

impl Takes {
    fn take(&self, act: &dyn Perform, attempt: &ClassAttempt) -> Result<Take> {
        let mut take = TakeJobs::new(act, &attempt.receive.queue);
        if let Some(lease) = self.lease {
            take = take.lease(lease);
        }
        if let Some(name) = &self.taken_by {
            take = take.taken_by(name.clone());
        }
        let mut take = take.into_take();
        if !self.is_single {
            take.count = i64::try_from(attempt.receive.top.unwrap_or(1)).unwrap_or(i64::MAX);
        }
        take.from = match attempt.receive.from {
            ReceiveFrom::Any => TakeFrom::Any,
            ReceiveFrom::Oldest => TakeFrom::Oldest,
            ReceiveFrom::Levels { lowest, highest } => TakeFrom::Levels { lowest, highest },
            ReceiveFrom::Conversation(_) | ReceiveFrom::Group(_) => return Err(no_conversations()),
        };
        Ok(take)
    }
}

impl Chosen for Takes {
    type Batch = Vec<Job>;

    fn first<'a>(
        &'a self,
        act: &'a dyn Perform,
        attempts: &'a [ClassAttempt],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Option<(usize, Vec<Job>)>>> {
        Box::pin(async move {
            let takes = attempts.iter().map(|attempt| self.take(act, attempt)).collect::<Result<_>>()?;
            take_first(act, takes, deadline).await
        })
    }

    /// All if no attempt has its work queue, so that the takes fail. Work queues that another transaction holds are left out for a while
    /// too, unless all are held.
    fn places(&self, act: &dyn Perform, attempts: &[ClassAttempt]) -> Option<Vec<usize>> {
        let store = act.store();
        let (catalog, now) = (store.catalog(), store.clock().now());
        let name = |place: &usize| &attempts[*place].receive.queue;
        let mut there: Vec<usize> = (0..attempts.len()).collect();
        if let Some(is_said) = &self.leaves_missing_out {
            let missing: Vec<usize>;
            (there, missing) = there.into_iter().partition(|place| catalog.work_queue(name(place)).is_some());
            let was_said = is_said.swap(!missing.is_empty(), Relaxed);
            if let (Some(place), false) = (missing.first(), was_said) {
                let queue = name(place);
                tracing::warn!(%queue, "a work queue of a strategy is missing; its reader takes from the others meanwhile");
            }
        }
        let is_held = |place: &usize| store.activity().queue(&work_queue_on_board(name(place))).is_held(now);
        let free: Vec<usize> = there.iter().copied().filter(|place| !is_held(place)).collect();
        if !free.is_empty() {
            there = free;
        }
        (!there.is_empty() && there.len() < attempts.len()).then_some(there)
    }

    fn note_held(&self, act: &dyn Perform, attempt: &ClassAttempt) {
        let store = act.store();
        store.activity().queue(&work_queue_on_board(&attempt.receive.queue)).note_refusal(store.clock().now());
    }

    fn tries_all_at_last(&self) -> bool {
        self.leaves_missing_out.is_none()
    }

    /// A pause or a limit refuses jobs that wait. An hour's pause made `aging` forget how old they were, and it served the highest level only.
    fn is_empty_certain(&self, act: &dyn Perform, attempts: &[ClassAttempt]) -> bool {
        let catalog = act.store().catalog();
        attempts.iter().all(|attempt| {
            let queue = catalog.work_queue(&attempt.receive.queue);
            queue.is_some_and(|queue| queue.settings.is_enabled && !queue.settings.is_limited())
        })
    }

    /// The age of a job counts from its push.
    fn describe(attempt: usize, jobs: &Vec<Job>) -> Option<Found> {
        let level = jobs.iter().map(|job| job.level).max()?;
        let oldest = jobs.iter().map(|job| job.pushed_at).min()?;
        Some(Found { attempt, messages: jobs.len() as u64, level, oldest })
    }
}

/// Checks a strategy against the work queues.
pub(super) fn prepare(strategy: &mut dyn Strategy, broker: &Broker) -> Result<()> {
    let catalog = broker.catalog();
    for attempt in strategy.plan(broker.clock().now()).attempts {
        let name = &attempt.receive.queue;
        let queue = catalog.work_queue(name).ok_or_else(|| Error::object_not_found("work queue", name))?;
        if let Some(top) = attempt.receive.top
            && !(1..=MOST_TAKEN.unsigned_abs()).contains(&top)
        {
            return Err(Error::out_of_range("the number of jobs to take", top, &format!("1 to {MOST_TAKEN}")));
        }
        match attempt.receive.from {
            ReceiveFrom::Conversation(_) | ReceiveFrom::Group(_) => return Err(no_conversations()),
            ReceiveFrom::Levels { .. } | ReceiveFrom::Oldest if queue.settings.order != WorkOrder::Priority => {
                let found = format!("ORDER = {}", queue.settings.order.word());
                return Err(Error::out_of_range(
                    &format!("the order of work queue '{name}'"),
                    found,
                    "PRIORITY, for levels",
                ));
            }
            _ => {}
        }
    }
    strategy.prepare(&as_queues(&catalog)).map_err(|error| match error.code() {
        Code::CONTRACT_NOT_FOUND => no_conversations(),
        _ => error,
    })
}

fn no_conversations() -> Error {
    Error::out_of_range(
        "the class of a strategy over work queues",
        "a conversation or a contract",
        "levels or a work queue: a job has no conversation",
    )
}

/// The work queues as a strategy looks queues up: by name.
fn as_queues(catalog: &Catalog) -> Catalog {
    let mut queues = Catalog::default();
    for queue in catalog.work_queues.values() {
        let named = Queue {
            id: queue.id,
            name: queue.name.clone(),
            is_receive_enabled: queue.settings.is_enabled,
            is_enqueue_enabled: true,
            is_retention_enabled: false,
            is_poison_message_handling_enabled: false,
            is_poison_quarantine_enabled: false,
            retry: None,
            activation: None,
            off: None,
        };
        queues.queues.insert(named.id, Arc::new(named));
    }
    queues
}

#[cfg(test)]
mod tests;
