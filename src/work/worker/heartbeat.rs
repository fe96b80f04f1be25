//! The heartbeat of a leased job, which prolongs its lease.

use crate::act::{Act, Answer};
use crate::broker::Broker;
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::time::Timestamp;
use crate::work::Job;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

/// The most requests for a longer lease that wait for their answers: they hold a job for some thirty leases.
const MOST_BEATS_UNANSWERED: usize = 100;

/// The timers of the runtime count milliseconds, and a busy machine takes some more.
const SHORTEST_NAMED: Duration = Duration::from_millis(20);

/// How long a request waits after one that has failed in an embedded store. On a full disk it shared a batch with reports that did not fit, and a third of the
/// lease later it met the next ones: with three readers, jobs that were done were lost until they were dead. A server that is away or
/// full would get such requests of all readers.
const AFTER_FAILURE: Duration = Duration::from_millis(150);

/// It waits for the store, which is no fault of the runtime.
const AT_THE_STORE: u64 = u64::MAX;

/// Prolongs the lease of a job while it is awaited, as a future of the caller's runtime: a handler that blocks all threads of that stops it.
pub(super) struct Heartbeat<'a> {
    broker: &'a Broker,
    job: &'a Job,
    lease: Duration,
    made: Instant,
    /// When it ran last, in microseconds since it was made, or [`AT_THE_STORE`].
    ran_us: AtomicU64,
    /// The longest time that it did not run, in microseconds.
    longest_us: AtomicU64,
    /// When the lease was prolonged last, in microseconds since it was made.
    prolonged_us: AtomicU64,
}

impl<'a> Heartbeat<'a> {
    pub(super) fn of(broker: &'a Broker, job: &'a Job, lease: Duration) -> Self {
        let [ran_us, longest_us, prolonged_us] = [0; 3].map(AtomicU64::new);
        Self { broker, job, lease, made: Instant::now(), ran_us, longest_us, prolonged_us }
    }

    /// Prolongs the lease for ever; ends when the job is lost.
    pub(super) async fn beat_since_the_taking(&self) -> Error {
        // Counted from the taking, and from each request: an answer that takes long must not cost a part of the lease.
        let lease_us = i64::try_from(self.lease.as_micros()).unwrap_or(i64::MAX);
        let begins = |until: Timestamp| Timestamp(until.0.saturating_sub(lease_us));
        self.beat_since(self.job.lease_until.map_or(self.broker.clock().now(), begins)).await
    }

    /// The same for a lease that was prolonged a third of it before at most.
    pub(super) async fn beat(&self) -> Error {
        self.beat_since(self.broker.clock().now()).await
    }

    async fn beat_since(&self, mut begins: Timestamp) -> Error {
        let (broker, lease) = (self.broker, self.lease);
        let taken: TakenJob = self.job.taken;
        // An embedded store prolongs a lease when it is asked and answers when that is written. Meanwhile another program may hold the
        // write lock, or a statement of the user run, for longer than the lease. A server that does not answer has not prolonged it
        // either, and each request more takes a connection.
        let most_asked = if broker.clock().is_remote() { 1 } else { MOST_BEATS_UNANSWERED };
        let mut asked: Vec<Answer<'_, ()>> = Vec::new();
        loop {
            self.ran();
            // A server's clock may have jumped ahead since it was read last: the lease began an hour from now then, and the request came
            // when it was over.
            let (clock, third) = (broker.clock(), lease / 3);
            let mut pause = std::pin::pin!(clock.sleep_until(begins.after(third).min(clock.now().after(third))));
            loop {
                tokio::select! {
                    biased;
                    answer = answered(&mut asked), if !asked.is_empty() => {
                        let has_failed = answer.is_err();
                        if let Some(lost) = self.lost_by(answer) {
                            // It has ended, and what follows is no fault of the runtime.
                            self.ran();
                            self.ran_us.store(AT_THE_STORE, Relaxed);
                            return lost;
                        }
                        if has_failed && !clock.is_remote() {
                            pause.set(clock.sleep_until(clock.now().after(third.min(AFTER_FAILURE))));
                        }
                    }
                    () = &mut pause => break,
                }
            }
            self.ran();
            begins = clock.now();
            asked.push(broker.extend_job(taken, Some(lease)));
            self.ran_us.store(AT_THE_STORE, Relaxed);
            while asked.len() >= most_asked {
                if let Some(lost) = self.lost_by(answered(&mut asked).await) {
                    return lost;
                }
            }
        }
    }

    /// The error if the job is lost. After any other the next beat tries again; there is time for one more.
    fn lost_by(&self, answer: Result<()>) -> Option<Error> {
        match answer {
            Ok(()) => {
                self.prolonged_us.store(self.now_us(), Relaxed);
                None
            }
            Err(error) => is_lost(&error).then_some(error),
        }
    }

    /// Whether the lease may still run: it was prolonged, or this was made, less than its length before.
    pub(super) fn may_hold(&self) -> bool {
        let since = self.now_us().saturating_sub(self.prolonged_us.load(Relaxed));
        Duration::from_micros(since) < self.lease
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_micros()).unwrap_or(AT_THE_STORE - 1)
    }

    fn ran(&self) {
        let now_us = self.now_us();
        let before_us = self.ran_us.swap(now_us, Relaxed);
        if before_us != AT_THE_STORE {
            self.longest_us.fetch_max(now_us.saturating_sub(before_us), Relaxed);
        }
    }

    /// For how long it could not run, if that is more than two thirds of the lease: a third is its pause, and another one is left for the
    /// answer. `None` with a clock that is set by hand, and below what a timer of the runtime can tell.
    pub(super) fn held_up(&self) -> Option<Duration> {
        self.ran();
        let longest = Duration::from_micros(self.longest_us.load(Relaxed));
        (longest > (self.lease / 3 * 2).max(SHORTEST_NAMED) && self.broker.clock().moves().is_none()).then_some(longest)
    }
}

/// Waits for one of these answers.
async fn answered(asked: &mut Vec<Answer<'_, ()>>) -> Result<()> {
    std::future::poll_fn(|context| {
        for place in 0..asked.len() {
            if let Poll::Ready(answer) = Pin::new(&mut asked[place]).poll(context) {
                drop(asked.remove(place));
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
}

/// Whether the job is no longer that of who took it.
pub(super) fn is_lost(error: &Error) -> bool {
    [Code::JOB_NOT_FOUND, Code::JOB_NOT_TAKEN, Code::LEASE_LOST].contains(&error.code())
}

/// Waits for what is done for the job while its lease is prolonged: that waits for a connection like any call, and open transactions may hold
/// the pool for longer than what is left of the lease.
pub(super) async fn while_beating<R>(heartbeat: &Heartbeat<'_>, done: impl Future<Output = R>) -> R {
    let mut done = std::pin::pin!(done);
    tokio::select! {
        biased;
        done = &mut done => done,
        // Lost, or ended by what is done: that says which.
        _ = heartbeat.beat() => done.await,
    }
}
