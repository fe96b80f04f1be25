//! Workers: readers that take jobs and run a handler for each.

mod counters;
mod heartbeat;
mod reader;

use super::strategic::prepare;
use super::{Job, WorkQueue};
use crate::activation::{MonitorRow, Procedure, Ramp, Readers, Session};
use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::protocol::work::AfterFailure;
use crate::receive::strategy::Strategy;
use crate::tx::Tx;
use counters::Counters;
pub use counters::WorkDone;
use reader::Reader;
use std::fmt;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Makes the strategy of each reader.
type MakeStrategy = Arc<dyn Fn() -> Box<dyn Strategy> + Send + Sync>;

type BoxedHandler<T> =
    Arc<dyn Fn(Context, T) -> Pin<Box<dyn Future<Output = std::result::Result<(), String>> + Send>> + Send + Sync>;

/// What a handler gets beside the content of its job.
#[derive(Debug, Clone)]
pub struct Context {
    /// The broker, for calls of their own.
    pub broker: Broker,
    /// The job.
    pub job: Arc<Job>,
    /// The transaction that holds the job, if the worker runs [in transactions](Worker::in_transactions): what is done in
    /// it is committed with the job.
    pub tx: Option<Arc<Tx>>,
    choices: Arc<Mutex<Choices>>,
}

/// What a handler wants for its attempt.
#[derive(Debug, Default)]
struct Choices {
    result: Option<Vec<u8>>,
    after_failure: Option<AfterFailure>,
    /// The handler has not begun with the job.
    is_not_begun: bool,
}

impl Context {
    /// Keeps a result with the history of the job, if the handler succeeds; the last one counts.
    pub fn keep_result(&self, result: impl Into<Vec<u8>>) {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner).result = Some(result.into());
    }

    /// What becomes of the job if this attempt fails, instead of what the queue's options say: dead at once, because no
    /// attempt can succeed, or a pause that the failure itself names. The last one counts, also for a panic.
    ///
    /// ```
    /// # use dialoq::work::{AfterFailure, Context};
    /// # enum Failed { NoSuchAddress, BusyFor(std::time::Duration) }
    /// # async fn send(_: &str) -> Result<(), Failed> { Ok(()) }
    /// async fn handle(context: Context, to: String) -> Result<(), String> {
    ///     send(&to).await.map_err(|failed| match failed {
    ///         Failed::NoSuchAddress => {
    ///             context.after_failure(AfterFailure::Dead);
    ///             "no such address".to_owned()
    ///         }
    ///         Failed::BusyFor(pause) => {
    ///             context.after_failure(AfterFailure::retry_in(pause));
    ///             format!("busy for {pause:?}")
    ///         }
    ///     })
    /// }
    /// ```
    pub fn after_failure(&self, then: AfterFailure) {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner).after_failure = Some(then);
    }

    /// The handler has not begun with the job: if it fails now, a leased job goes back at once and the attempt does not count.
    #[cfg(feature = "cli")]
    pub(crate) fn has_not_begun(&self) {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner).is_not_begun = true;
    }
}

/// What the readers of a worker met other than jobs that were completed.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "cli"),
    allow(unreachable_pub, dead_code, reason = "only the command has it from `internals`")
)]
pub enum WorkerEvent<'a> {
    /// An attempt failed, for this reason.
    Failed(&'a Job, &'a str),
    /// The job was cancelled, or its lease was over.
    Lost(&'a Job, &'a Error),
    /// The end of the attempt could not be reported.
    Unreported(&'a Job, &'a Error),
    /// The lease was not prolonged for so long, because handlers blocked the threads of the runtime, or the process was stopped.
    HeldUp(&'a Job, Duration),
    /// No job can be taken; the readers try again, and this is said once a minute.
    NoTake(&'a Error),
    /// The end of the attempt cannot be reported yet, as while the disk is full; the reader keeps the job and tries again. The same.
    NoReport(&'a Job, &'a Error),
}

type Observer = Arc<dyn Fn(WorkerEvent<'_>) + Send + Sync>;

/// Readers to be started; see [`Broker::worker`].
#[must_use = "no reader runs before start"]
pub struct Worker<T> {
    broker: Broker,
    queue: WorkQueue<T>,
    handler: BoxedHandler<T>,
    readers: usize,
    activated: Option<Ramp>,
    job_type: Option<Arc<str>>,
    lease: Option<Duration>,
    in_transactions: bool,
    name: Option<Arc<str>>,
    strategy: Option<MakeStrategy>,
    observer: Option<Observer>,
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue.name())
            .field("readers", &self.readers)
            .field("job_type", &self.job_type)
            .field("lease", &self.lease)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// Runs a handler for each job of a work queue: set the options, then [`Worker::start`]. An error of the handler, and
    /// a panic, is a failed attempt; its text is the reason. The handler is cloned for each job, and what it has captured with it, such as
    /// a client of a mail server; a number that it counts up begins with each job, so jobs share state by an `Arc`.
    ///
    /// A handler runs on the caller's runtime, and must not block its threads: no lease is prolonged meanwhile, and the job may come to another
    /// reader. What computes or blocks for long belongs into [`tokio::task::spawn_blocking`].
    ///
    /// ```
    /// # use dialoq::work::WorkQueue;
    /// # use dialoq::{Act, testing::TestBroker};
    /// # use std::sync::{Arc, Mutex};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// const EMAILS: WorkQueue<String> = WorkQueue::text("emails");
    /// let broker = TestBroker::in_memory().await?;
    /// broker.execute("CREATE WORK QUEUE emails").await?;
    /// let sent = Arc::new(Mutex::new(Vec::new()));
    /// let outbox = sent.clone();
    /// let worker = broker.worker(EMAILS, async move |_context, to: String| {
    ///     outbox.lock().unwrap().push(to);
    ///     Ok::<_, std::io::Error>(())
    /// });
    /// let running = worker.readers(8).start();
    /// broker.push_job(EMAILS, "ann@example.org").await?;
    /// # while running.done().completed == 0 { tokio::task::yield_now().await; }
    /// running.stop().await;
    /// assert_eq!(*sent.lock().unwrap(), ["ann@example.org"]);
    /// # Ok(()) }
    /// ```
    pub fn worker<T, H, F, E>(&self, queue: WorkQueue<T>, handler: H) -> Worker<T>
    where
        H: FnOnce(Context, T) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = std::result::Result<(), E>> + Send + 'static,
        E: Display,
    {
        let handler: BoxedHandler<T> = Arc::new(move |context, value| {
            let running = handler.clone()(context, value);
            Box::pin(async move { running.await.map_err(|error| error.to_string()) })
        });
        Worker {
            broker: self.clone(),
            queue,
            handler,
            readers: 1,
            activated: None,
            job_type: None,
            lease: None,
            in_transactions: false,
            name: None,
            strategy: None,
            observer: None,
        }
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Calls this for every attempt that does not complete its job, and if none can be taken.
    #[cfg(feature = "cli")]
    pub(crate) fn observed_by(mut self, observer: impl Fn(WorkerEvent<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// How many jobs are worked on at a time; 1 without it. Readers that wait cost a task each and nothing else.
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Readers are started while there are jobs, one for each job that no reader takes, and leave when none came for half a
    /// second. [`Worker::readers`] is the most of this worker, the queue's `MAX_QUEUE_READERS` the most over all workers of
    /// all processes; 0, its default, is no such maximum. A process that dies gives its readers' places back. ALTER WORK
    /// QUEUE changes the maximum while readers run: those that it has no room for leave after their job.
    ///
    /// With [`Worker::job_type`], jobs of other types start readers too, which leave again.
    pub fn activated(mut self) -> Self {
        self.activated = Some(Ramp::Fast);
        self
    }

    /// As [`Worker::activated`], with another growth of their number.
    pub fn activated_by(mut self, ramp: Ramp) -> Self {
        self.activated = Some(ramp);
        self
    }

    /// Only jobs of this type.
    pub fn job_type(mut self, job_type: impl Into<Arc<str>>) -> Self {
        self.job_type = Some(job_type.into());
        self
    }

    /// How long a job is held at a time, instead of the queue's LEASE_MS. A running handler's lease is prolonged when a
    /// third of it has passed, so it may work for as long as it likes, unless it blocks the threads of the runtime
    /// ([`Broker::worker`]). From a millisecond to ten years: with another length each take is refused (60005), and a warning says so.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Each job is held by a transaction of its own ([`Context::tx`]), whose commit completes it. A handler that pushes a successor under the
    /// unique key of its job completes that first (`complete_job`): until the commit the job has the key, and the push would make no other.
    pub fn in_transactions(mut self) -> Self {
        self.in_transactions = true;
        self
    }

    /// The name of the readers in statistics; without it, this program and the number of its process.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Takes the jobs that a strategy chooses, from several work queues or several levels of one: those of
    /// [`Broker::take_jobs_by`], one job at a time. Each reader has a strategy of its own, so a bound holds for the takes of
    /// one reader. The jobs of all these queues have the type of this worker's; its own queue is not read unless the
    /// strategy names it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// # use dialoq::{Act, testing::TestBroker, work::WorkQueue};
    /// # let broker = TestBroker::in_memory().await?;
    /// use dialoq::receive::weighted;
    /// const URGENT: WorkQueue<String> = WorkQueue::text("urgent");
    /// broker.execute("CREATE WORK QUEUE urgent; CREATE WORK QUEUE routine").await?;
    /// # broker.push_job("routine", "tidy").await?;
    /// let worker = broker.worker(URGENT, async |context, text| {
    ///     println!("{text} of {}", context.job.queue);
    ///     Ok::<_, String>(())
    /// });
    /// let running = worker.readers(4).by(weighted([("urgent", 8), ("routine", 1)]))?.start();
    /// # while running.done().completed == 0 { tokio::task::yield_now().await; }
    /// running.stop().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Broker::take_jobs_by`]; 60005 for a worker with a job type, or one that is activated: its readers are
    /// started for one queue.
    pub fn by(mut self, strategy: impl Strategy + Clone + Sync + 'static) -> Result<StrategicWorker<T>> {
        let refused = match (&self.job_type, self.activated) {
            (Some(_), _) => Some("a job type"),
            (None, Some(_)) => Some("activated readers"),
            (None, None) => None,
        };
        if let Some(found) = refused {
            return Err(Error::out_of_range("a worker by strategy", found, "neither a job type nor activated readers"));
        }
        prepare(&mut strategy.clone(), &self.broker)?;
        let broker = self.broker.clone();
        self.strategy = Some(Arc::new(move || {
            let mut strategy: Box<dyn Strategy> = Box::new(strategy.clone());
            if let Err(error) = prepare(&mut *strategy, &broker) {
                tracing::warn!(%error, "the definitions have changed since the strategy of a worker was checked");
            }
            strategy
        }));
        Ok(StrategicWorker(self))
    }

    /// Starts the readers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> RunningWorker {
        let (stop, stopped) = watch::channel(false);
        let counters = Arc::new(Counters::default());
        let worker = Arc::new(self);
        let Some(ramp) = worker.activated else {
            let mut readers = JoinSet::new();
            for _ in 0..worker.readers {
                readers.spawn(Reader::new(&worker, stopped.clone(), &counters, None).run());
            }
            return RunningWorker { readers: Running::Fixed { stop, readers }, counters };
        };
        let of_readers = (worker.clone(), counters.clone());
        let procedure = Procedure::new("worker", async move |session: Session| {
            let (worker, counters) = of_readers;
            Reader::new(&worker, session.stop_signal(), &counters, Some(session)).run_while_busy().await
        });
        let most = u16::try_from(worker.readers).unwrap_or(u16::MAX);
        let readers = Readers::of_worker(&worker.broker, worker.queue.name().into(), procedure, most, ramp);
        RunningWorker { readers: Running::Activated(readers), counters }
    }
}

/// A worker whose jobs a strategy chooses; see [`Worker::by`].
#[must_use = "no reader runs before start"]
pub struct StrategicWorker<T>(Worker<T>);

impl<T> fmt::Debug for StrategicWorker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StrategicWorker").field("worker", &self.0).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> StrategicWorker<T> {
    /// Starts the readers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> RunningWorker {
        self.0.start()
    }
}

/// Readers that run; dropping it ends them at once: their jobs are given back when the leases are over.
#[must_use = "dropping it ends the readers"]
pub struct RunningWorker {
    readers: Running,
    counters: Arc<Counters>,
}

enum Running {
    Fixed { stop: watch::Sender<bool>, readers: JoinSet<()> },
    Activated(Readers),
}

impl fmt::Debug for RunningWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorker").field("done", &self.done()).finish_non_exhaustive()
    }
}

impl RunningWorker {
    /// What has been done so far.
    pub fn done(&self) -> WorkDone {
        self.counters.done()
    }

    /// The monitor that starts the readers, if they are [activated](Worker::activated); `None` while the queue is paused.
    pub async fn monitor(&self) -> Option<MonitorRow> {
        match &self.readers {
            Running::Fixed { .. } => None,
            Running::Activated(readers) => readers.monitor().await,
        }
    }

    /// Takes nothing more, and waits until the handlers that run have ended and are reported; a job that is on its way to a
    /// reader with its last report is handled too.
    pub async fn stop(self) -> WorkDone {
        self.stop_in(None).await
    }

    /// Stops, but gives handlers this long; then they are dropped, and their jobs are given back as failed attempts, leased ones
    /// when the leases are over.
    pub async fn stop_within(self, patience: Duration) -> WorkDone {
        self.stop_in(Some(patience)).await
    }

    async fn stop_in(mut self, patience: Option<Duration>) -> WorkDone {
        match &mut self.readers {
            Running::Fixed { stop, readers } => {
                let _ = stop.send(true);
                let ended = async { while readers.join_next().await.is_some() {} };
                match patience {
                    None => ended.await,
                    Some(patience) => drop(tokio::time::timeout(patience, ended).await),
                }
                readers.shutdown().await;
            }
            Running::Activated(readers) => readers.stop_within(patience).await,
        }
        self.counters.done()
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        if let Running::Activated(readers) = &self.readers {
            readers.end();
        }
    }
}

#[cfg(test)]
mod tests;
