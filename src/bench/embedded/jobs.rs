//! A worker with one job at a time and with many in flight; takes from long backlogs, and beside jobs that are not due yet.

use super::sizes::some;
use super::step::StepSetting;
use crate::bench::flow::Side;
use crate::bench::load::{Round, median, new_histogram};
use crate::bench::report::{Measured, Report};
use crate::bench::rival::log::io_error;
use crate::bench::subject::Subject;
use crate::bench::work::Jobs;
use dialoq::work::WorkQueue;
use dialoq::{Broker, Result};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const QUEUE: WorkQueue<Vec<u8>> = WorkQueue::raw("bench_jobs");
/// Jobs that a worker has in flight.
const WINDOW: usize = 64;
/// Jobs of a round of takes from a backlog, and how many are ready beside scheduled ones.
const PER_ROUND: usize = 5_000;
const READY: usize = 10_000;
const CALLERS: usize = 64;

/// Jobs that one worker completes, one by one and with a window.
pub(super) async fn window(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let subject = at.subject().await?;
    let jobs = Jobs::create(&subject.broker, QUEUE.name(), "").await?;
    let waiting = at.options.enough(200_000);
    let (mut ones, mut windows) = (Vec::new(), Vec::new());
    for _ in 0..at.options.rounds {
        for (readers, rounds) in [(1, &mut ones), (WINDOW, &mut windows)] {
            jobs.fill(at.bodies(), waiting).await?;
            rounds.push(work(&subject.broker, readers, at.options.round_length, waiting as u64).await);
            jobs.drain().await?;
        }
    }
    at.conclude("worker_one_by_one", 1, 1, ones, Vec::new(), Vec::new(), report);
    at.conclude("worker_window_64", 1, 1, windows, Vec::new(), Vec::new(), report);
    subject.close().await
}

/// Works for `length`, or until nothing is left: a worker that waits for jobs would have the rate of their number. The time
/// ends when the last job is durably completed; the latency is from one job to the next.
async fn work(broker: &Broker, readers: usize, length: Duration, waiting: u64) -> Round {
    let start = Instant::now();
    let seen = Arc::new(Mutex::new((start, new_histogram())));
    let all_seen = Arc::new(Notify::new());
    let (noted, last_seen) = (seen.clone(), all_seen.clone());
    let worker = broker.worker(QUEUE, move |_context, _body: Vec<u8>| {
        let (last, latency) = &mut *noted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        latency.saturating_record(now.duration_since(std::mem::replace(last, now)).as_nanos() as u64);
        if latency.len() >= waiting {
            last_seen.notify_one();
        }
        std::future::ready(Ok::<_, Infallible>(()))
    });
    let running = worker.readers(readers).start();
    let _ = tokio::time::timeout(length, all_seen.notified()).await;
    let done = running.stop().await;
    let latency = std::mem::replace(&mut seen.lock().unwrap_or_else(PoisonError::into_inner).1, new_histogram());
    Round { messages: done.completed, elapsed: start.elapsed(), latency }
}

/// A work queue in a file of its own.
async fn jobs(at: &StepSetting<'_>, folder: &str) -> Result<(Subject, Arc<Jobs>)> {
    let folder = at.folder.join(folder);
    std::fs::create_dir_all(&folder).map_err(io_error)?;
    let subject = StepSetting { folder: &folder, ..*at }.subject().await?;
    let jobs = Arc::new(Jobs::create(&subject.broker, QUEUE.name(), "").await?);
    Ok((subject, jobs))
}

/// Takes and completes a few thousand jobs at each depth, the depths in turn.
pub(super) async fn backlog(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let deepest = at.options.largest;
    let mut places = Vec::new();
    for depth in [deepest / 100, deepest / 10, deepest] {
        let (subject, jobs) = jobs(at, &depth.to_string()).await?;
        jobs.fill(at.bodies(), depth).await?;
        places.push((format!("take_and_complete_at_{depth}"), subject, jobs, Vec::new()));
    }
    in_turn(at, places, PER_ROUND.min(deepest / 200).max(1), report).await
}

/// The same from a short backlog: alone, and beside jobs that become ready in a day.
pub(super) async fn schedule(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let mut places = Vec::new();
    for scheduled in [0, 10 * at.options.largest] {
        let (subject, jobs) = jobs(at, &scheduled.to_string()).await?;
        jobs.schedule(scheduled).await?;
        jobs.fill(at.bodies(), at.options.enough(READY)).await?;
        places.push((format!("take_and_complete_beside_{scheduled}"), subject, jobs, Vec::new()));
    }
    in_turn(at, places, at.options.enough(PER_ROUND).max(1), report).await
}

async fn in_turn(
    at: &StepSetting<'_>,
    mut places: Vec<(String, Subject, Arc<Jobs>, Vec<Round>)>,
    per_round: usize,
    report: &mut Report,
) -> Result<()> {
    // Short rounds, so more of them.
    for _ in 0..at.options.rounds * 3 {
        for (_, _, jobs, rounds) in &mut places {
            rounds.push(some(jobs, per_round as u64).await?);
            jobs.fill(at.bodies(), per_round).await?;
        }
    }
    for (workload, subject, _, rounds) in places {
        if let Some(round) = median(rounds) {
            report.results.push(Measured::new(&workload, CALLERS, 1, at.options.body_bytes, &round));
        }
        subject.close().await?;
    }
    Ok(())
}
