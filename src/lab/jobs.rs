//! The same run on work queues: a sender that pushes the load as jobs, and readers that take them.

use super::contestant::{Contestant, Reading};
use super::load::{Arrival, Class, Load};
use super::play::{Recorder, Run, Served, Trace, ramp};
use super::scene::{HIGH_LEVEL, HIGH_QUEUE, LOW_LEVEL, LOW_QUEUE, Layout, Line, QUEUE, Site};
use crate::cli::Interrupt;
use dialoq::receive::strategy::Strategy;
use dialoq::work::{Job, WorkQueue};
use dialoq::{Act, Broker, Clock, Result, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const HIGH_JOBS: WorkQueue<Item> = WorkQueue::json(HIGH_QUEUE);
const LOW_JOBS: WorkQueue<Item> = WorkQueue::json(LOW_QUEUE);

/// An item of the load as a job.
#[derive(Serialize, Deserialize)]
struct Item {
    line: Line,
    /// Its place in the conversation of the load, which is its key here.
    sequence: u64,
    body: serde_json::Value,
}

impl Layout {
    /// Its work queues. One job of a key is taken at a time, as one reader has a conversation at a time.
    fn work_queues(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::OneQueue | Self::OneQueueWithLevels => &[QUEUE],
            Self::TwoQueues => &[HIGH_QUEUE, LOW_QUEUE],
        };
        let order = if self == Self::OneQueueWithLevels { "PRIORITY" } else { "FIFO" };
        let create = |name: &&str| format!("CREATE WORK QUEUE {name} WITH ORDER = {order}, MAX_TAKEN_PER_KEY = 1");
        names.iter().map(create).collect()
    }
}

/// Plays the load to a contestant on a database of its own.
pub(super) async fn play(
    contestant: Contestant,
    load: &Load,
    service: Duration,
    site: Site<'_>,
    mut progress: impl FnMut(usize),
    interrupt: &Interrupt,
) -> Result<Option<Trace>> {
    let (broker, folder) = site.open().await?;
    let layout = contestant.layout();
    let mut made = Vec::new();
    let set = async {
        for statement in layout.work_queues() {
            broker.execute(&statement).await?;
            made.push(statement);
        }
        Ok(())
    };
    let played = match set.await {
        Ok(()) => {
            let played = play_in(&broker, contestant, load, service, &mut progress);
            interrupt.unless_requested(played).await
        }
        Err(error) => Err(error),
    };
    // The objects are removed after a failure or a stop too; the caller gets that failure.
    let struck = strike(&broker, if folder.is_none() { &made } else { &[] }).await;
    broker.close().await?;
    drop(folder);
    let trace = played?;
    struck.map(|()| trace)
}

/// Removes the work queues that these statements made.
async fn strike(broker: &Broker, made: &[String]) -> Result<()> {
    for statement in made {
        let name = statement.split_whitespace().nth(3).unwrap_or_default();
        broker.execute(&format!("DROP WORK QUEUE {name}")).await?;
    }
    Ok(())
}

async fn play_in(
    broker: &Broker,
    contestant: Contestant,
    load: &Load,
    service: Duration,
    progress: &mut impl FnMut(usize),
) -> Result<Trace> {
    let run = Run { reading: contestant.reading(None)?, clock: broker.clock().clone(), load, service };
    let layout = contestant.layout();
    let send = |clock, start| push(broker.clone(), layout, load.arrivals.clone(), clock, start);
    run.go(send, |reading, recorder, total| read(broker.clone(), reading, recorder, total), progress).await
}

/// Pushes each job at its time; what is due together goes in one transaction.
async fn push(broker: Broker, layout: Layout, arrivals: Vec<Arrival>, clock: Clock, start: Timestamp) -> Result<()> {
    let mut sequences: HashMap<Line, u64> = HashMap::new();
    let mut rest = arrivals.as_slice();
    while let Some(next) = rest.first() {
        clock.sleep_until(start.after(Duration::from_micros(next.at_us))).await;
        let now_us = clock.now().since(start).as_micros();
        let due = rest.partition_point(|arrival| u128::from(arrival.at_us) <= now_us).max(1);
        let tx = broker.begin().await?;
        for arrival in &rest[..due] {
            let line = (arrival.class, arrival.conversation);
            let sequence = sequences.entry(line).or_default();
            *sequence += 1;
            let queue: WorkQueue<Item> = WorkQueue::json(layout.queue_of(arrival.class));
            let level = if arrival.class == Class::High { HIGH_LEVEL } else { LOW_LEVEL };
            let item = Item { line, sequence: *sequence, body: arrival.body.clone() };
            tx.push_job(queue, &item).key(format!("{} {}", arrival.class, arrival.conversation)).level(level).await?;
        }
        tx.commit().await?;
        rest = &rest[due..];
    }
    Ok(())
}

fn served(job: &Job, item: &Item) -> Served {
    Served { line: item.line, sequence: item.sequence, enqueued: job.pushed_at }
}

async fn read(broker: Broker, reading: Reading, recorder: Arc<Recorder>, total: usize) -> Result<()> {
    let pools = match reading {
        Reading::ByStrategy(strategy) => return read_by_strategy(&broker, strategy, &recorder, total).await,
        Reading::ByPools(pools) => pools,
    };
    let mut received = recorder.done.subscribe();
    let running: Vec<_> = pools
        .pools()
        .iter()
        .map(|(queue, most)| {
            let recorder = recorder.clone();
            let jobs = if **queue == *HIGH_QUEUE { HIGH_JOBS } else { LOW_JOBS };
            let worker = broker.worker(jobs, move |context, item| {
                let recorder = recorder.clone();
                async move { recorder.serve(served(&context.job, &item)).await }
            });
            worker.readers(usize::from(*most)).activated_by(ramp(pools.form())).start()
        })
        .collect();
    // The recorder holds the sender, so this ends only when everything was served.
    let _ = received.wait_for(|done| *done >= total).await;
    for worker in running {
        worker.stop().await;
    }
    Ok(())
}

async fn read_by_strategy(
    broker: &Broker,
    strategy: Box<dyn Strategy>,
    recorder: &Recorder,
    total: usize,
) -> Result<()> {
    let mut turns = broker.take_jobs_by(strategy)?;
    let mut count = 0;
    while count < total {
        let Some(turn) = turns.next(broker).await? else { continue };
        for job in &turn.jobs {
            recorder.serve(served(job, &job.decode(HIGH_JOBS)?)).await?;
            broker.complete_job(job).await?;
            count += 1;
        }
    }
    Ok(())
}
