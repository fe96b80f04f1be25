//! A reader of a worker: takes a job, runs the handler on it, reports it, and takes the next.

use super::counters::{AtWork, Counters, note_state};
use super::heartbeat::{Heartbeat, is_lost, while_beating};
use super::{Choices, Context, Worker, WorkerEvent};
use crate::act::Act;
use crate::activation::{HandlerResult, Session};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::protocol::definition::WorkNumber;
use crate::protocol::work::{AfterFailure, Job, JobState};
use crate::receive::strategy::Strategy;
use crate::receive::{Deadline, next_by};
use crate::store::CutShort;
use crate::tx::Tx;
use crate::work::ShownState;
use crate::work::TakeJobs;
use crate::work::strategic::Takes;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;

/// How long a reader pauses after the store has failed, before it takes again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How long one take waits before it looks whether the worker is to stop; the stop itself ends it at once.
const TAKE_WAIT: Duration = Duration::from_secs(60);

/// How long an activated reader waits for its next job before it leaves; as that of a queue of messages.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// How long a reader waits for a statement that a failed handler has given up. Then it rolls back, which ends the statement.
const LAST_STATEMENT: Duration = Duration::from_secs(1);

/// How long a report waits before it is made again, at first and at most: 30 readers on a full disk made 616 lines a second in the log of
/// the server when none waited for longer.
const PAUSES_BEFORE_REPORT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What keeps a report for longer is said.
const SAID_AFTER: Duration = Duration::from_secs(2);

/// After more conflicts in a row than this a reader pauses: an embedded store counts none of them as an attempt.
const CONFLICTS_BEFORE_PAUSE: u32 = 5;

/// Set between the taking of a job and its handler.
const BEFORE_HANDLER: &str = "dialoq_before_handler";

/// One reader of a worker.
pub(super) struct Reader<T> {
    worker: Arc<Worker<T>>,
    stopped: watch::Receiver<bool>,
    counters: Arc<Counters>,
    /// Of an activated reader.
    session: Option<Session>,
    /// The maximum has no room for it.
    is_surplus: AtomicBool,
    strategy: Option<tokio::sync::Mutex<Box<dyn Strategy>>>,
    /// A work queue of the strategy is missing, and that was said.
    is_missing_said: Arc<AtomicBool>,
    /// Transactions in a row that gave way to others.
    conflicts: AtomicU32,
}

/// How an attempt ended.
enum Ended {
    Done(Option<Vec<u8>>),
    Failed(String, AfterFailure),
    NotBegun(String),
}

impl<T: Send + 'static> Reader<T> {
    pub(super) fn new(
        worker: &Arc<Worker<T>>,
        stopped: watch::Receiver<bool>,
        counters: &Arc<Counters>,
        session: Option<Session>,
    ) -> Self {
        let strategy = worker.strategy.as_ref().map(|make| tokio::sync::Mutex::new(make()));
        Self {
            worker: worker.clone(),
            stopped,
            counters: counters.clone(),
            session,
            is_surplus: AtomicBool::new(false),
            strategy,
            is_missing_said: Arc::default(),
            conflicts: AtomicU32::new(0),
        }
    }

    /// Works until the worker stops.
    pub(super) async fn run(self) {
        while !*self.stopped.borrow() {
            let mut stopped = self.stopped.clone();
            match caught(self.turn()).await {
                Ok(_) => self.counters.failure.is_over(),
                Err(error) if error.code() == Code::STORE_CLOSED => return,
                Err(error) => {
                    if self.counters.failure.is_to_be_said(error.code()) {
                        let queue = self.worker.queue.name();
                        tracing::warn!(queue, %error, "readers of a work queue cannot go on; they try again each second");
                    }
                    tokio::select! {
                        _ = stopped.wait_for(|stopped| *stopped) => {}
                        () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => {}
                    }
                }
            }
        }
    }

    /// Works until no job comes, or the reader is to leave.
    pub(super) async fn run_while_busy(self) -> HandlerResult {
        let mut has_found = false;
        while !self.is_to_leave() {
            if !self.turn().await? {
                break;
            }
            has_found = true;
        }
        if let (false, Some(_), Some(session)) = (has_found, &self.worker.job_type, &self.session) {
            session.note_found_nothing();
        }
        Ok(())
    }

    /// Takes a job and handles it; false if none came.
    async fn turn(&self) -> Result<bool> {
        if self.worker.in_transactions { self.in_transaction().await } else { self.leased().await }
    }

    /// The take of one job.
    fn wanted<'a>(&self, act: &'a impl Act) -> TakeJobs<'a> {
        let worker = &self.worker;
        let mut take = act.take_jobs(worker.queue);
        if let Some(job_type) = &worker.job_type {
            take = take.job_type(job_type.clone());
        }
        if let Some(lease) = self.own_lease() {
            take = take.lease(lease);
        }
        if let Some(name) = &worker.name {
            take = take.taken_by(name.clone());
        }
        take
    }

    /// The length of the leases, if it is not that of the queue.
    fn own_lease(&self) -> Option<Duration> {
        self.worker.lease.filter(|_| !self.worker.in_transactions)
    }

    /// Takes one job; `None` if the worker stops or none came.
    async fn take(&self, act: &impl Act) -> Result<Option<Job>> {
        let taken = self.try_take(act).await;
        match &taken {
            Ok(_) => self.counters.no_take.is_over(),
            Err(error) => self.note_no_take(error),
        }
        taken
    }

    async fn try_take(&self, act: &impl Act) -> Result<Option<Job>> {
        let worker = &self.worker;
        if let Some(session) = &self.session {
            session.note_receive();
        }
        let mut stopped = self.stopped.clone();
        let taking = async {
            if let Some(strategy) = &self.strategy {
                let takes = Takes {
                    lease: self.own_lease(),
                    taken_by: worker.name.clone(),
                    is_single: true,
                    leaves_missing_out: Some(self.is_missing_said.clone()),
                };
                let deadline = Deadline::after(worker.broker.clock(), TAKE_WAIT);
                let turn = next_by(&takes, act, &mut **strategy.lock().await, deadline).await?;
                return Ok(turn.and_then(|(_, mut jobs)| jobs.pop()));
            }
            let idle = if self.session.is_some() { IDLE_WAIT } else { TAKE_WAIT };
            Ok(self.wanted(act).wait(idle).await?.pop())
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => Ok(None),
            taken = taking => taken,
        }
    }

    async fn leased(&self) -> Result<bool> {
        let mut next = self.take(&self.worker.broker).await?;
        let has_begun = next.is_some();
        while let Some(job) = next {
            let job = Arc::new(job);
            next = self.handle_leased(job.clone()).await.inspect_err(|error| self.note_unreported(&job, error))?;
        }
        Ok(has_begun)
    }

    /// Handles a job and reports it; gives the next one if it was taken with the report.
    async fn handle_leased(&self, job: Arc<Job>) -> Result<Option<Job>> {
        let broker = &self.worker.broker;
        // A process that was stopped since the taking: another reader may have the job.
        if job.lease_until.is_some_and(|until| until <= broker.clock().now())
            && let Err(lost) = broker.extend_job(job.taken, Some(self.lease(&job))).await
            && is_lost(&lost)
        {
            self.note_lost(&job, &lost);
            return Ok(None);
        }
        let heartbeat = Heartbeat::of(broker, &job, self.lease(&job));
        let ended = {
            let mut handled = std::pin::pin!(self.handle(job.clone(), None));
            tokio::select! {
                ended = &mut handled => Ok(ended),
                lost = heartbeat.beat_since_the_taking() => if self.is_completed(&job, &lost).await {
                    // By the handler itself, which may go on.
                    Ok(handled.await)
                } else {
                    Err(lost)
                }
            }
        };
        if let Some(held_up) = heartbeat.held_up() {
            self.note_held_up(&job, held_up);
        }
        let ended = match ended {
            Ok(ended) => ended,
            Err(lost) => {
                self.note_lost(&job, &lost);
                return Ok(None);
            }
        };
        let (reason, then) = match ended {
            Ended::Done(result) => {
                if self.takes_with_report() {
                    let heartbeat = self.heartbeat(&job);
                    match while_beating(&heartbeat, self.complete_and_take(&job, result.clone())).await {
                        Ok(next) => return self.note(&job, Ok(())).map(|_| next),
                        // As a rule neither was done. The report alone says why, and is made again where that helps.
                        Err(error) => tracing::debug!(job = job.taken.job.0, %error, "a report took no job with it"),
                    }
                }
                let completed = match self.report(&job, || complete(broker, &job, result.clone())).await {
                    Err(error) if self.is_completed(&job, &error).await => Ok(()),
                    completed => completed,
                };
                match self.note(&job, completed)? {
                    None => return Ok(None),
                    Some(refused) => refused,
                }
            }
            Ended::NotBegun(reason) => {
                tracing::debug!(job = job.taken.job.0, reason, "a job is given back before its handler has begun");
                broker.shared_store().give_back_jobs(vec![job.taken]).await;
                return Ok(None);
            }
            Ended::Failed(reason, then) => (reason, then),
        };
        self.note_failure(&job, &reason);
        match self.report(&job, || report_failure(broker, &job, reason.clone(), then)).await {
            Ok(state) => note_state(&job, state),
            Err(error) if !is_lost(&error) => return Err(error),
            // A job that was lost meanwhile has failed already.
            Err(_) => {}
        }
        Ok(None)
    }

    /// Whether a reader takes its next job by the commit that completes the last one. In a queue with limits a take may wait, and
    /// the report would wait with it.
    fn takes_with_report(&self) -> bool {
        let catalog = self.worker.broker.catalog();
        let is_free = catalog.work_queue(self.worker.queue.name()).is_some_and(|queue| !queue.settings.is_limited());
        self.strategy.is_none() && is_free && !self.is_to_leave()
    }

    /// Whether the worker stops, or has no room for this reader. A surplus is asked for once: the answer counts it off.
    fn is_to_leave(&self) -> bool {
        if *self.stopped.borrow() || self.is_surplus.load(Relaxed) {
            return true;
        }
        let is_surplus = self.session.as_ref().is_some_and(Session::is_surplus);
        self.is_surplus.store(is_surplus, Relaxed);
        is_surplus
    }

    fn heartbeat<'a>(&'a self, job: &'a Job) -> Heartbeat<'a> {
        Heartbeat::of(&self.worker.broker, job, self.lease(job))
    }

    async fn complete_and_take(&self, job: &Job, result: Option<Vec<u8>>) -> Result<Option<Job>> {
        if let Some(session) = &self.session {
            session.note_receive();
        }
        let take = self.wanted(&self.worker.broker);
        let take = match result {
            Some(result) => take.completing_with(job, result),
            None => take.completing(job),
        };
        Ok(take.await?.pop())
    }

    /// Whether a job that is gone was completed by its handler; known if its queue has a history. A reader that took it later, as the
    /// lease was over, has made another attempt.
    async fn is_completed(&self, job: &Job, lost: &Error) -> bool {
        if lost.code() != Code::JOB_NOT_FOUND {
            return false;
        }
        self.has_finished(job, ShownState::Done).await
    }

    /// Whether the history has this attempt at the job, finished in that way.
    async fn has_finished(&self, job: &Job, state: ShownState) -> bool {
        let finish = self.worker.broker.finish_of(&job.queue, job.taken.job).await;
        finish.is_ok_and(|finish| {
            finish.is_some_and(|(as_state, attempts)| as_state == state && attempts == u64::from(job.attempt))
        })
    }

    /// Counts a job that its handler has reported itself, in the transaction that is committed now.
    async fn note_own_report(&self, job: &Job, refused: Error) -> Result<bool> {
        if refused.code() == Code::JOB_NOT_TAKEN {
            self.conflicts.store(0, Relaxed);
            self.note_failure(job, "its handler has failed it");
            return Ok(true);
        }
        // Known if its queue has a history.
        let is_cancelled = self.has_finished(job, ShownState::Cancelled).await;
        self.note_end(job, if is_cancelled { Err(refused) } else { Ok(()) })
    }

    async fn in_transaction(&self) -> Result<bool> {
        let begun = self.worker.broker.begin().await.inspect_err(|error| self.note_no_take(error));
        let tx = Arc::new(begun?);
        let seen = tx.seen().clone();
        CutShort::new(move || seen.lose(), Box::pin(self.serve_in(tx))).await
    }

    async fn serve_in(&self, tx: Arc<Tx>) -> Result<bool> {
        let job = match self.take(&*tx).await? {
            Some(job) => job,
            // A take that the stop has cut off may have taken a job all the same.
            None => match tx.abandoned_jobs().await.pop() {
                Some(job) => job,
                None => return Ok(false),
            },
        };
        let job = Arc::new(job);
        self.mark_before_handler(&tx).await?;
        let ended = self.handle(job.clone(), Some(tx.clone())).await;
        let Some(tx) = Arc::into_inner(tx) else {
            self.note_failure(&job, "its handler kept the transaction; the job is given back when it lets go");
            return Ok(true);
        };
        if let Ended::Failed(reason, _) | Ended::NotBegun(reason) = &ended
            && tx.is_at_work_after(LAST_STATEMENT).await
        {
            // Its rollback is a failed attempt, without the reason. The reader waited for the statement, and on SQLite all writers with it.
            self.note_failure(&job, reason);
            tx.rollback().await?;
            return Ok(true);
        }
        if let Some(conflict) = tx.deadlock().await {
            return self.note_end(&job, Err(conflict));
        }
        let (reason, then) = match ended {
            Ended::Done(result) => {
                match complete(&tx, &job, result).await {
                    Ok(()) => return self.note_end(&job, tx.commit().await),
                    // The transaction holds the job, so only its handler can have reported it.
                    Err(error) if [Code::JOB_NOT_FOUND, Code::JOB_NOT_TAKEN].contains(&error.code()) => {
                        return match tx.commit().await {
                            Ok(()) => self.note_own_report(&job, error).await,
                            Err(error) => self.note_end(&job, Err(error)),
                        };
                    }
                    Err(error) => match self.note(&job, Err(error))? {
                        None => return Ok(true),
                        Some(refused) => refused,
                    },
                }
            }
            Ended::Failed(reason, then) => (reason, then),
            // The end of the transaction is a failed attempt.
            Ended::NotBegun(reason) => (reason, AfterFailure::Policy),
        };
        self.note_failure(&job, &reason);
        // Undoes what the handler did and keeps why it failed; if that cannot be, a rollback gives the job back.
        tx.rollback_to(BEFORE_HANDLER).await?;
        let state = report_failure(&tx, &job, reason, then).await?;
        tx.commit().await?;
        note_state(&job, state);
        Ok(true)
    }

    /// Counts a job by the end of its transaction. If the commit is refused for what the handler did, such as a row that breaks a deferred
    /// foreign key, the attempt has failed, and the reader goes on at once: eight such jobs held up eight others for 20 s. So it does
    /// after a few conflicts with other transactions.
    fn note_end(&self, job: &Job, ended: Result<()>) -> Result<bool> {
        let error = match self.note(job, ended) {
            Ok(refused) => {
                self.conflicts.store(0, Relaxed);
                if let Some((reason, _)) = refused {
                    self.note_failure(job, &reason);
                }
                return Ok(true);
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Store => return Err(error),
            ErrorKind::Conflict if self.conflicts.fetch_add(1, Relaxed) >= CONFLICTS_BEFORE_PAUSE => return Err(error),
            ErrorKind::Conflict => {
                tracing::debug!(job = job.taken.job.0, %error, "the transaction of a job gave way to another one");
            }
            _ => self.note_failure(job, &error.to_string()),
        }
        Ok(true)
    }

    /// Sets the savepoint before the handler. On a server it needs a connection of the pool, and all may serve handlers that work for long:
    /// the job waits then. A rollback would be a failed attempt, so that jobs were dead that no handler had seen.
    async fn mark_before_handler(&self, tx: &Tx) -> Result<()> {
        loop {
            match tx.savepoint(BEFORE_HANDLER).await {
                Err(error) if error.code() == Code::POOL_EXHAUSTED => {
                    tracing::debug!(%error, "a job waits for a connection");
                }
                marked => return marked,
            }
        }
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
            let _at_work = AtWork::on(&job);
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
        let choices = choices.lock().unwrap_or_else(PoisonError::into_inner);
        match choices.is_not_begun {
            true => Ended::NotBegun(reason),
            false => Ended::Failed(reason, choices.after_failure.unwrap_or(AfterFailure::Policy)),
        }
    }

    fn lease(&self, job: &Job) -> Duration {
        let of_queue = || {
            let catalog = self.worker.broker.catalog();
            let queue = catalog.work_queue(&job.queue);
            queue.map_or(60_000, |queue| queue.settings.get(WorkNumber::LeaseMs)).unsigned_abs()
        };
        self.worker.lease.unwrap_or_else(|| Duration::from_millis(of_queue()))
    }

    /// Makes a report on a leased job again while it may succeed and the lease is prolonged, and for the length of a lease after that: if
    /// another session holds the row of the job, as a take on a server does to its commit; if the server or the owner of the file has
    /// gone for a moment; if the disk is full, where a take still finds room and a report does not. A job whose handler had succeeded
    /// came back at the end of its lease, or was dead. A report may be made twice, because of its token. A reader that is to stop does
    /// not wait for a server.
    async fn report<R, F: Future<Output = Result<R>>>(&self, job: &Job, report: impl Fn() -> F) -> Result<R> {
        let heartbeat = self.heartbeat(job);
        let (begun, mut pause) = (tokio::time::Instant::now(), PAUSES_BEFORE_REPORT.0);
        let mut stopped = self.stopped.clone();
        let reporting = async {
            loop {
                let error = match report().await {
                    Err(error) if heartbeat.may_hold() => error,
                    done => return done,
                };
                let is_stopped = *stopped.borrow_and_update();
                let is_given_up = match error.code() {
                    Code::JOB_LOCKED => false,
                    Code::COMMIT_UNKNOWN => is_stopped,
                    _ => !(error.is_retryable() || may_last(&error)) || is_stopped,
                };
                if is_given_up {
                    return Err(error);
                }
                if begun.elapsed() >= SAID_AFTER && self.counters.no_report.is_to_be_said(error.code()) {
                    tracing::warn!(job = job.taken.job.0, queue = &*job.queue, %error, "the end of a job cannot be reported yet; trying again");
                    self.observe(WorkerEvent::NoReport(job, &error));
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    // A last try.
                    Ok(()) = stopped.changed() => {}
                }
                // The row of a job is locked for a moment only.
                if error.code() != Code::JOB_LOCKED {
                    pause = (pause * 2).min(PAUSES_BEFORE_REPORT.1).min(self.lease(job) / 3);
                }
            }
        };
        while_beating(&heartbeat, reporting).await
    }

    fn note_no_take(&self, error: &Error) {
        if error.code() != Code::STORE_CLOSED && self.counters.no_take.is_to_be_said(error.code()) {
            self.observe(WorkerEvent::NoTake(error));
        }
    }

    fn note_failure(&self, job: &Job, reason: &str) {
        self.counters.failed(job);
        tracing::warn!(job = job.taken.job.0, queue = &*job.queue, attempt = job.attempt, reason, "a job failed");
        self.observe(WorkerEvent::Failed(job, reason));
    }

    /// The job is no longer that of this reader: it was cancelled, or its lease was over.
    fn note_lost(&self, job: &Job, error: &Error) {
        self.counters.lost(job);
        tracing::warn!(job = job.taken.job.0, queue = &*job.queue, attempt = job.attempt, %error, "a job was lost");
        self.observe(WorkerEvent::Lost(job, error));
    }

    /// The lease was not prolonged in time, because no thread of the runtime was free.
    fn note_held_up(&self, job: &Job, held_up: Duration) {
        tracing::warn!(
            job = job.taken.job.0,
            queue = &*job.queue,
            held_up_ms = u64::try_from(held_up.as_millis()).unwrap_or(u64::MAX),
            "the lease of a job was not prolonged in time: handlers block the threads of the runtime, or the process was stopped; what blocks \
             or computes for long belongs into tokio::task::spawn_blocking"
        );
        self.observe(WorkerEvent::HeldUp(job, held_up));
    }

    /// The end of the attempt could not be reported: the job comes back when its lease is over.
    fn note_unreported(&self, job: &Job, error: &Error) {
        self.counters.unreported(job);
        tracing::warn!(job = job.taken.job.0, queue = &*job.queue, attempt = job.attempt, %error, "the end of a job could not be reported");
        self.observe(WorkerEvent::Unreported(job, error));
    }

    fn observe(&self, event: WorkerEvent<'_>) {
        if let Some(observer) = &self.worker.observer {
            observer(event);
        }
    }

    /// Counts a job that is done. A job that was cancelled or lost meanwhile is no failure of the reader. A result that is too
    /// large is one of the attempt: it is returned, to be reported. Such a job came back at the end of its lease, until it was
    /// dead, and its error did not name the cause.
    fn note(&self, job: &Job, reported: Result<()>) -> Result<Option<(String, AfterFailure)>> {
        match reported {
            Ok(()) => {
                self.counters.completed(job);
                Ok(None)
            }
            Err(error) if is_lost(&error) => {
                self.note_lost(job, &error);
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

/// Whether the store takes no report, of any job, until an operator or a failover changes that.
fn may_last(error: &Error) -> bool {
    [Code::STORE_FULL, Code::STORE_READ_ONLY].contains(&error.code())
}

/// A pause that no job can have is the handler's error, not the job's: the queue's options decide then.
async fn report_failure(act: &impl Act, job: &Job, reason: String, then: AfterFailure) -> Result<JobState> {
    match act.fail_job_then(job, reason.as_str(), then).await {
        Err(error) if error.code() == Code::OUT_OF_RANGE => {
            tracing::warn!(job = job.taken.job.0, %error, "the pause that its handler asked for is not possible");
            act.fail_job_then(job, reason, AfterFailure::Policy).await
        }
        done => done,
    }
}

/// A panic of a strategy is an error, so that its reader goes on.
async fn caught<T>(turn: impl Future<Output = Result<T>>) -> Result<T> {
    let mut turn = std::pin::pin!(turn);
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| turn.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            let what = format!("a turn of a reader {}", panicked(&*panic));
            Poll::Ready(Err(Error::new(Code::HANDLER_FAILED, what)))
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
