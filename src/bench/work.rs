//! Jobs through a work queue: pushed, taken, completed.

use super::flow::{Bodies, Side, Stamp};
use dialoq::internals::ErrorConstructors;
use dialoq::protocol::Verb;
use dialoq::protocol::work::{Due, Push, WorkVerb};
use dialoq::work::Job;
use dialoq::{Act, Broker, Code, Error, Result};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a reader waits for a job that is on its way.
const LONG_WAIT: Duration = Duration::from_secs(2);
/// How many pushes are put into one unit where nothing is measured.
const UNIT: usize = 1000;

/// A work queue, and whether each job is handed out once.
pub(super) struct Jobs {
    broker: Broker,
    queue: Arc<str>,
    seen: Mutex<HashSet<u64>>,
    /// How often a take that did not wait got nothing.
    empties: AtomicU64,
    /// The user's statement in the transaction of each take; without one a take is leased, and completed by a second call.
    statement: Option<&'static str>,
    /// Jobs of readers that take the next one with the report on the last, between their calls.
    on_hand: Option<Mutex<Vec<Job>>>,
}

impl Jobs {
    /// Makes the work queue, with these options.
    pub(super) async fn create(broker: &Broker, queue: &str, options: &str) -> Result<Self> {
        broker.execute(&format!("CREATE WORK QUEUE {queue} {options}")).await?;
        Ok(Self::on(broker, queue, None))
    }

    fn on(broker: &Broker, queue: &str, statement: Option<&'static str>) -> Self {
        let (seen, empties) = Default::default();
        Self { broker: broker.clone(), queue: queue.into(), seen, empties, statement, on_hand: None }
    }

    /// The same queue, from which each job is taken and completed in a transaction with this statement about its id.
    #[cfg(feature = "postgres")]
    pub(super) fn in_tx(&self, statement: &'static str) -> Self {
        Self::on(&self.broker, &self.queue, Some(statement))
    }

    /// The same queue, whose readers take the next job with the report on the last one, as workers do.
    #[cfg(feature = "postgres")]
    pub(super) fn with_next(&self) -> Self {
        Self { on_hand: Some(Mutex::default()), ..Self::on(&self.broker, &self.queue, None) }
    }

    /// Completes the jobs that are on hand between two rounds.
    #[cfg(feature = "postgres")]
    pub(super) async fn put_down(&self) -> Result<()> {
        let left = self.on_hand.as_ref().map(|jobs| std::mem::take(&mut *lock(jobs)));
        for job in left.unwrap_or_default() {
            self.broker.complete_job(&job).await?;
        }
        Ok(())
    }

    async fn complete_and_take(&self, on_hand: &Mutex<Vec<Job>>) -> Result<Vec<Stamp>> {
        let last = lock(on_hand).pop();
        let job = match last {
            Some(job) => Some(job),
            None => self.counted(self.broker.take_jobs(&*self.queue).await?)?.pop(),
        };
        let Some(job) = job else { return Ok(Vec::new()) };
        let next = self.counted(self.broker.take_jobs(&*self.queue).completing(&job).await?)?;
        lock(on_hand).extend(next);
        Ok(vec![Stamp::of(job.body())])
    }

    /// The jobs of a take that did not wait.
    fn counted(&self, jobs: Vec<Job>) -> Result<Vec<Job>> {
        self.empties.fetch_add(u64::from(jobs.is_empty()), Relaxed);
        self.note(&jobs)?;
        Ok(jobs)
    }

    /// How often a take that did not wait got nothing.
    #[cfg(feature = "postgres")]
    pub(super) fn empties(&self) -> u64 {
        self.empties.load(Relaxed)
    }

    async fn take_in_tx(&self, statement: &'static str) -> Result<Vec<Job>> {
        let tx = self.broker.begin().await?;
        let jobs = tx.take_jobs(&*self.queue).await?;
        self.note(&jobs)?;
        for job in &jobs {
            tx.sql(statement, (job.taken.job.0.cast_signed(),)).await?;
        }
        tx.commit().await?;
        Ok(jobs)
    }

    /// Pushes jobs without a body that become ready in a day.
    pub(super) async fn schedule(&self, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let some = left.min(UNIT);
            let unit = (0..some).map(|_| push(&self.queue, Vec::new(), Due::InMs(86_400_000))).collect();
            self.broker.submit(unit).await?;
            left -= some;
        }
        Ok(())
    }

    /// Takes and completes whatever waits.
    pub(super) async fn drain(&self) -> Result<()> {
        while !self.broker.take_jobs(&*self.queue).count(10_000).pop().await?.is_empty() {}
        lock(&self.seen).clear();
        Ok(())
    }

    /// A job that is handed out twice without a failure between is a defect of the store.
    fn note(&self, jobs: &[Job]) -> Result<()> {
        let mut seen = lock(&self.seen);
        match jobs.iter().find(|job| !seen.insert(job.taken.job.0)) {
            Some(job) => {
                let why = format!("job {} was handed out twice, with token {} now", job.taken.job, job.taken.token);
                Err(Error::new(Code::STORE_DAMAGED, why))
            }
            None => Ok(()),
        }
    }
}

impl Side for Jobs {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        if let [body] = &bodies[..] {
            return self.broker.push_job(&*self.queue, body).await.map(drop);
        }
        self.broker.submit(bodies.into_iter().map(|body| push(&self.queue, body, Due::Now)).collect()).await.map(drop)
    }

    async fn receive(&self, count: usize, waits: bool) -> Result<Vec<Stamp>> {
        if let Some(statement) = self.statement {
            let jobs = self.take_in_tx(statement).await?;
            self.empties.fetch_add(u64::from(jobs.is_empty()), Relaxed);
            return Ok(jobs.iter().map(|job| Stamp::of(job.body())).collect());
        }
        if let Some(on_hand) = &self.on_hand {
            return self.complete_and_take(on_hand).await;
        }
        let mut take = self.broker.take_jobs(&*self.queue).count(u32::try_from(count).unwrap_or(1));
        if waits {
            take = take.wait(LONG_WAIT);
        }
        let jobs = take.await?;
        self.empties.fetch_add(u64::from(jobs.is_empty() && !waits), Relaxed);
        self.note(&jobs)?;
        let now = self.broker.clock().now();
        for job in &jobs {
            self.broker.complete_job(job).await?;
        }
        let stamp =
            |job: &Job| Stamp { waited_ns: now.since(job.pushed_at).as_nanos() as u64, ..Stamp::of(job.body()) };
        Ok(jobs.iter().map(stamp).collect())
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let some = left.min(UNIT);
            let unit = bodies.many(some).into_iter().map(|body| push(&self.queue, body, Due::Now)).collect();
            self.broker.submit(unit).await?;
            left -= some;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push(queue: &Arc<str>, body: Vec<u8>, due: Due) -> Verb {
    Verb::Work(WorkVerb::Push(Box::new(Push {
        queue: queue.clone(),
        job_type: Arc::default(),
        key: None,
        level: 5,
        due,
        unique: None,
        body: Some(Arc::new(body)),
        pushed_by: "bench".into(),
    })))
}
