//! Workers: readers that take jobs and run a handler for each.

use super::strategic::{Takes, prepare};
use super::{Job, JobFilter, TakenJob, WorkQueue};
use crate::act::Act;
use crate::activation::{HandlerResult, MonitorRow, Procedure, Ramp, Readers, Session};
use crate::broker::Broker;
use crate::error::{Code, Error, Result};
use crate::protocol::definition::WorkNumber;
use crate::protocol::work::AfterFailure;
use crate::receive::strategy::Strategy;
use crate::receive::{Deadline, next_by};
use crate::time::Timestamp;
use crate::tx::Tx;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a reader pauses after the store has failed, before it takes again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How long one take waits before it looks whether the worker is to stop; the stop itself ends it at once.
const TAKE_WAIT: Duration = Duration::from_secs(60);

/// How long an activated reader waits for its next job before it leaves; as that of a queue of messages.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// How long a report waits before it is made again.
const PAUSE_BEFORE_REPORT: Duration = Duration::from_millis(50);

/// Set between the taking of a job and its handler.
const BEFORE_HANDLER: &str = "dialoq_before_handler";

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
    /// # enum Failed { NoSuchAddress, BusyFor(i64) }
    /// # async fn send(_: &str) -> Result<(), Failed> { Ok(()) }
    /// async fn handle(context: Context, to: String) -> Result<(), String> {
    ///     send(&to).await.map_err(|failed| match failed {
    ///         Failed::NoSuchAddress => {
    ///             context.after_failure(AfterFailure::Dead);
    ///             "no such address".to_owned()
    ///         }
    ///         Failed::BusyFor(ms) => {
    ///             context.after_failure(AfterFailure::RetryInMs(ms));
    ///             format!("busy for {ms} ms")
    ///         }
    ///     })
    /// }
    /// ```
    pub fn after_failure(&self, then: AfterFailure) {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner).after_failure = Some(then);
    }
}

/// Numbers of a worker since it was started.
#[derive(Debug, Default)]
struct Counters {
    completed: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
}

impl Counters {
    fn done(&self) -> WorkDone {
        WorkDone {
            completed: self.completed.load(Relaxed),
            failed: self.failed.load(Relaxed),
            lost: self.lost.load(Relaxed),
        }
    }
}

/// What a worker has done since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkDone {
    /// Jobs completed.
    pub completed: u64,
    /// Attempts that failed: an error, a panic, a body that does not decode.
    pub failed: u64,
    /// Jobs that were cancelled, or whose lease was over, while the handler ran; also those that a handler completed itself in
    /// a queue with `HISTORY = OFF`, which look the same.
    pub lost: u64,
}

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
}

impl Broker {
    /// Runs a handler for each job of a work queue: set the options, then [`Worker::start`]. An error of the handler, and
    /// a panic, is a failed attempt; its text is the reason.
    ///
    /// ```
    /// # use dialoq::work::WorkQueue;
    /// # use dialoq::{Act, testing::TestBroker};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// const EMAILS: WorkQueue<String> = WorkQueue::text("emails");
    /// let broker = TestBroker::in_memory().await?;
    /// broker.execute("CREATE WORK QUEUE emails").await?;
    /// let worker = broker.worker(EMAILS, async |_context, to: String| {
    ///     println!("to {to}");
    ///     Ok::<_, std::io::Error>(())
    /// });
    /// let running = worker.readers(8).start();
    /// broker.push_job(EMAILS, &"ann@example.org".to_owned()).await?;
    /// # while running.done().completed == 0 { tokio::task::yield_now().await; }
    /// running.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn worker<T, H, F, E>(&self, queue: WorkQueue<T>, handler: H) -> Worker<T>
    where
        H: Fn(Context, T) -> F + Send + Sync + 'static,
        F: Future<Output = std::result::Result<(), E>> + Send + 'static,
        E: Display,
    {
        let handler: BoxedHandler<T> = Arc::new(move |context, value| {
            let running = handler(context, value);
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
        }
    }
}

impl<T: Send + 'static> Worker<T> {
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
    /// third of it has passed, so it may work for as long as it likes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Each job is held by a transaction of its own ([`Context::tx`]), whose commit completes it.
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

impl<T: Send + 'static> StrategicWorker<T> {
    /// Starts the readers.
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

    /// Takes nothing more, and waits until the handlers that run have ended and are reported.
    pub async fn stop(self) -> WorkDone {
        self.stop_in(None).await
    }

    /// Stops, but gives handlers this long; then they are dropped, and their jobs are given back as failed attempts.
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

struct Reader<T> {
    worker: Arc<Worker<T>>,
    stopped: watch::Receiver<bool>,
    counters: Arc<Counters>,
    /// Of an activated reader.
    session: Option<Session>,
    strategy: Option<tokio::sync::Mutex<Box<dyn Strategy>>>,
}

/// How an attempt ended.
enum Ended {
    Done(Option<Vec<u8>>),
    Failed(String, AfterFailure),
}

impl<T: Send + 'static> Reader<T> {
    fn new(
        worker: &Arc<Worker<T>>,
        stopped: watch::Receiver<bool>,
        counters: &Arc<Counters>,
        session: Option<Session>,
    ) -> Self {
        let strategy = worker.strategy.as_ref().map(|make| tokio::sync::Mutex::new(make()));
        Self { worker: worker.clone(), stopped, counters: counters.clone(), session, strategy }
    }

    async fn run(self) {
        while !*self.stopped.borrow() {
            let mut stopped = self.stopped.clone();
            if let Err(error) = caught(self.turn()).await {
                if error.code() == Code::STORE_CLOSED {
                    return;
                }
                tracing::warn!(queue = self.worker.queue.name(), %error, "a reader of a work queue could not go on; it tries again");
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => {}
                }
            }
        }
    }

    /// Works until no job comes, or the reader is to leave.
    async fn run_while_busy(self) -> HandlerResult {
        let is_surplus = || self.session.as_ref().is_some_and(Session::is_surplus);
        while !*self.stopped.borrow() && !is_surplus() {
            if !self.turn().await? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a job and handles it; false if none came.
    async fn turn(&self) -> Result<bool> {
        if self.worker.in_transactions { self.in_transaction().await } else { self.leased().await }
    }

    /// Takes one job; `None` if the worker stops or none came.
    async fn take(&self, act: &impl Act) -> Result<Option<Job>> {
        let worker = &self.worker;
        if let Some(session) = &self.session {
            session.note_receive();
        }
        let lease = worker.lease.filter(|_| !worker.in_transactions);
        let mut stopped = self.stopped.clone();
        let taking = async {
            if let Some(strategy) = &self.strategy {
                let takes = Takes { lease, taken_by: worker.name.clone(), is_single: true };
                let deadline = Deadline::after(worker.broker.clock(), TAKE_WAIT);
                let turn = next_by(&takes, act, &mut **strategy.lock().await, deadline).await?;
                return Ok(turn.and_then(|(_, mut jobs)| jobs.pop()));
            }
            let idle = if self.session.is_some() { IDLE_WAIT } else { TAKE_WAIT };
            let mut take = act.take_jobs(worker.queue).wait(idle);
            if let Some(job_type) = &worker.job_type {
                take = take.job_type(job_type.clone());
            }
            if let Some(lease) = lease {
                take = take.lease(lease);
            }
            if let Some(name) = &worker.name {
                take = take.taken_by(name.clone());
            }
            Ok(take.await?.pop())
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => Ok(None),
            taken = taking => taken,
        }
    }

    async fn leased(&self) -> Result<bool> {
        let broker = &self.worker.broker;
        let Some(job) = self.take(broker).await? else { return Ok(false) };
        let job = Arc::new(job);
        let ended = {
            let mut handled = std::pin::pin!(self.handle(job.clone(), None));
            let beating = beat(broker, &job, self.lease(&job));
            tokio::select! {
                ended = &mut handled => ended,
                lost = beating => if self.is_completed(&job, &lost).await {
                    // By the handler itself, which may go on.
                    handled.await
                } else {
                    self.counters.lost.fetch_add(1, Relaxed);
                    tracing::warn!(job = job.taken.job.0, error = %lost, "a job was lost while its handler ran");
                    return Ok(true);
                }
            }
        };
        let (reason, then) = match ended {
            Ended::Done(result) => {
                let lease = self.lease(&job);
                let completed = match self.report(lease, || complete(broker, &job, result.clone())).await {
                    Err(error) if self.is_completed(&job, &error).await => Ok(()),
                    completed => completed,
                };
                match self.note(&job, completed)? {
                    None => return Ok(true),
                    Some(refused) => refused,
                }
            }
            Ended::Failed(reason, then) => (reason, then),
        };
        self.note_failure(&job, &reason);
        let report = || report_failure(broker, &job, reason.clone(), then);
        match self.report(self.lease(&job), report).await {
            Err(error) if !is_lost(&error) => return Err(error),
            // A job that was lost meanwhile has failed already.
            Ok(_) | Err(_) => {}
        }
        Ok(true)
    }

    /// Whether a job that is gone was completed, by its handler; known if its queue has a history.
    async fn is_completed(&self, job: &Job, lost: &Error) -> bool {
        if lost.code() != Code::JOB_NOT_FOUND {
            return false;
        }
        let filter = JobFilter { job: Some(job.taken.job), state: Some("done".to_owned()), ..JobFilter::default() };
        self.worker.broker.finished_jobs(&filter, 1).await.is_ok_and(|done| !done.is_empty())
    }

    async fn in_transaction(&self) -> Result<bool> {
        let tx = Arc::new(self.worker.broker.begin().await?);
        let job = match self.take(&*tx).await? {
            Some(job) => job,
            // A take that the stop has cut off may have taken a job all the same. A rollback would be a failed attempt, although no
            // handler has seen the job.
            None => match tx.abandoned_jobs().await.pop() {
                Some(job) => job,
                None => return Ok(false),
            },
        };
        let job = Arc::new(job);
        tx.savepoint(BEFORE_HANDLER).await?;
        let ended = self.handle(job.clone(), Some(tx.clone())).await;
        let Some(tx) = Arc::into_inner(tx) else {
            self.note_failure(&job, "its handler kept the transaction; the job is given back when it lets go");
            return Ok(true);
        };
        let (reason, then) = match ended {
            Ended::Done(result) => {
                let completed = match complete(&tx, &job, result).await {
                    // The transaction holds the job, so only its handler can have reported it.
                    Err(error) if [Code::JOB_NOT_FOUND, Code::JOB_NOT_TAKEN].contains(&error.code()) => Ok(()),
                    completed => completed,
                };
                match completed {
                    Ok(()) => return self.note(&job, tx.commit().await).map(|_| true),
                    Err(error) => match self.note(&job, Err(error))? {
                        None => return Ok(true),
                        Some(refused) => refused,
                    },
                }
            }
            Ended::Failed(reason, then) => (reason, then),
        };
        self.note_failure(&job, &reason);
        // Undoes what the handler did and keeps why it failed; if that cannot be, a rollback gives the job back.
        tx.rollback_to(BEFORE_HANDLER).await?;
        report_failure(&tx, &job, reason, then).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Runs the handler on one job.
    async fn handle(&self, job: Arc<Job>, tx: Option<Arc<Tx>>) -> Ended {
        let choices = Arc::<Mutex<Choices>>::default();
        let worker = self.worker.clone();
        let chosen = choices.clone();
        // A task of its own, so that a panic of the handler or of the decoding is an error here.
        let mut running = tokio::spawn(async move {
            let value = match job.decode(worker.queue) {
                Ok(value) => value,
                Err(error) => {
                    // It will not decode the next time either.
                    chosen.lock().unwrap_or_else(PoisonError::into_inner).after_failure = Some(AfterFailure::Dead);
                    return Err(error.to_string());
                }
            };
            (worker.handler)(Context { broker: worker.broker.clone(), job, tx, choices: chosen }, value).await
        });
        let _aborts = AbortOnDrop(running.abort_handle());
        let reason = match (&mut running).await {
            Ok(Ok(())) => {
                return Ended::Done(choices.lock().unwrap_or_else(PoisonError::into_inner).result.take());
            }
            Ok(Err(reason)) => shortened(reason),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => shortened(panic_text(&*panic)),
                Err(_) => "its handler was ended with the runtime".to_owned(),
            },
        };
        let then = choices.lock().unwrap_or_else(PoisonError::into_inner).after_failure;
        Ended::Failed(reason, then.unwrap_or(AfterFailure::Policy))
    }

    fn lease(&self, job: &Job) -> Duration {
        let of_queue = || {
            let catalog = self.worker.broker.catalog();
            let queue = catalog.work_queue(&job.queue);
            queue.map_or(60_000, |queue| queue.settings.get(WorkNumber::LeaseMs)).unsigned_abs()
        };
        self.worker.lease.unwrap_or_else(|| Duration::from_millis(of_queue()))
    }

    /// Makes a report on a leased job again while it may succeed, for the length of a lease at most: if another session holds the
    /// row of the job, as a take on a server does to its commit, or if the server or the owner of the file has gone for a moment.
    /// A job whose handler had succeeded came back at the end of its lease, or was dead. A report may be made twice, because of its
    /// token. A reader that is to stop does not wait for a server.
    async fn report<R, F: Future<Output = Result<R>>>(&self, lease: Duration, report: impl Fn() -> F) -> Result<R> {
        let begun = tokio::time::Instant::now();
        loop {
            let error = match report().await {
                Err(error) if begun.elapsed() < lease => error,
                done => return done,
            };
            let is_given_up = match error.code() {
                Code::JOB_LOCKED => false,
                Code::COMMIT_UNKNOWN => *self.stopped.borrow(),
                _ => !error.is_retryable() || *self.stopped.borrow(),
            };
            if is_given_up {
                return Err(error);
            }
            tokio::time::sleep(PAUSE_BEFORE_REPORT).await;
        }
    }

    fn note_failure(&self, job: &Job, reason: &str) {
        self.counters.failed.fetch_add(1, Relaxed);
        tracing::warn!(job = job.taken.job.0, queue = &*job.queue, attempt = job.attempt, reason, "a job failed");
    }

    /// Counts a job that is done. A job that was cancelled or lost meanwhile is no failure of the reader. A result that is too
    /// large is one of the attempt: it is returned, to be reported. Such a job came back at the end of its lease, until it was
    /// dead, and its error did not name the cause.
    fn note(&self, job: &Job, reported: Result<()>) -> Result<Option<(String, AfterFailure)>> {
        match reported {
            Ok(()) => {
                self.counters.completed.fetch_add(1, Relaxed);
                Ok(None)
            }
            Err(error) if is_lost(&error) => {
                self.counters.lost.fetch_add(1, Relaxed);
                tracing::warn!(job = job.taken.job.0, %error, "a job was lost while its handler ran");
                Ok(None)
            }
            Err(error) if error.code() == Code::MESSAGE_TOO_LARGE => {
                Ok(Some((shortened(error.to_string()), AfterFailure::Policy)))
            }
            Err(error) => Err(error),
        }
    }
}

async fn complete(act: &impl Act, job: &Job, result: Option<Vec<u8>>) -> Result<()> {
    match result {
        Some(result) => act.complete_job_with(job, result).await,
        None => act.complete_job(job).await,
    }
}

/// A pause that no job can have is the handler's error, not the job's: the queue's options decide then.
async fn report_failure(act: &impl Act, job: &Job, reason: String, then: AfterFailure) -> Result<()> {
    match act.fail_job_then(job, reason.as_str(), then).await {
        Err(error) if error.code() == Code::OUT_OF_RANGE => {
            tracing::warn!(job = job.taken.job.0, %error, "the pause that its handler asked for is not possible");
            act.fail_job_then(job, reason, AfterFailure::Policy).await.map(drop)
        }
        done => done.map(drop),
    }
}

/// A panic of a strategy is an error, so that its reader goes on.
async fn caught<T>(turn: impl Future<Output = Result<T>>) -> Result<T> {
    let mut turn = std::pin::pin!(turn);
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            let what = format!("a turn of a reader {}", panicked(&*panic));
            std::task::Poll::Ready(Err(Error::new(Code::HANDLER_FAILED, what)))
        })
    })
    .await
}

/// Ends a task that no caller waits for any more.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Prolongs a lease for ever; ends when the job is lost.
async fn beat(broker: &Broker, job: &Job, lease: Duration) -> Error {
    let taken: TakenJob = job.taken;
    // Counted from the taking, and from each request: an answer that takes long must not cost a part of the lease.
    let lease_us = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
    let mut begins = job.lease_until.map_or(broker.clock().now(), |until| Timestamp(until.0.saturating_sub(lease_us)));
    loop {
        broker.clock().sleep_until(begins.after(lease / 3)).await;
        begins = broker.clock().now();
        match broker.extend_job(taken, Some(lease)).await {
            Err(error) if is_lost(&error) => return error,
            // The next beat tries again; there is time for one more.
            Ok(()) | Err(_) => {}
        }
    }
}

fn is_lost(error: &Error) -> bool {
    [Code::JOB_NOT_FOUND, Code::JOB_NOT_TAKEN, Code::LEASE_LOST].contains(&error.code())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    format!("its handler {}", panicked(panic))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_default())
}

/// A reason as the tables keep it.
fn shortened(reason: String) -> String {
    reason.replace('\0', "\\0").chars().take(3000).collect()
}

#[cfg(test)]
mod tests;
