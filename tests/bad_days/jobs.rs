//! Work queues under load while every connection of the database is ended, again and again.

use crate::servers::Store;
use crate::{Database, SOON, on};
use dialoq::work::{JobFilter, ShownState, WorkQueue};
use dialoq::{Act, Broker, Code, Error, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const QUEUE: WorkQueue<String> = WorkQueue::text("w");
const ROUNDS: usize = 6;

/// What the tasks have got answers to.
#[derive(Debug, Default)]
struct Answered {
    stop: AtomicBool,
    count: AtomicUsize,
    pushed: Mutex<BTreeSet<String>>,
    completed: Mutex<BTreeSet<u64>>,
}

impl Answered {
    fn completed(&self, job: u64) {
        assert!(self.completed.lock().unwrap().insert(job), "job {job} was completed twice");
        self.count.fetch_add(1, SeqCst);
    }
}

/// Whether an error may come of a connection that was ended. A transaction whose process has lost the session that shows that
/// it lives may be refused at its commit.
fn is_expected(error: &Error) -> bool {
    let codes = [
        Code::COMMIT_UNKNOWN,
        Code::SERVER_UNREACHABLE,
        Code::TRANSACTION_ENDED,
        Code::LEASE_LOST,
        Code::JOB_NOT_TAKEN,
        Code::JOB_NOT_FOUND,
    ];
    error.is_retryable() || codes.contains(&error.code())
}

async fn push_until(broker: Broker, writer: usize, answered: Arc<Answered>) {
    for number in 0.. {
        if answered.stop.load(SeqCst) {
            return;
        }
        let name = format!("{writer}/{number}");
        let push = async {
            if number % 3 > 0 {
                return broker.push_job(QUEUE, &name).job_type(name.as_str()).await.map(drop);
            }
            let tx = broker.begin().await?;
            tx.push_job(QUEUE, &name).job_type(name.as_str()).await?;
            tx.commit().await
        };
        match push.await {
            Ok(()) => {
                answered.pushed.lock().unwrap().insert(name);
                answered.count.fetch_add(1, SeqCst);
            }
            Err(error) => assert!(is_expected(&error), "{error:?}"),
        }
    }
}

/// By leases, whose reports one reader makes together with its next take, in transactions that write a row for each job, or by takes that complete.
async fn work_until(broker: Broker, reader: usize, answered: Arc<Answered>) {
    while !answered.stop.load(SeqCst) {
        let round = async {
            match reader % 3 {
                0 => {
                    let mut jobs = broker.take_jobs(QUEUE).count(2).await?;
                    while let Some(job) = jobs.pop().filter(|_| !answered.stop.load(SeqCst)) {
                        match reader {
                            0 => broker.complete_job(&job).await?,
                            _ => jobs.extend(broker.take_jobs(QUEUE).completing(&job).await?),
                        }
                        answered.completed(job.taken.job.0);
                    }
                }
                1 => {
                    let tx = broker.begin().await?;
                    let jobs = tx.take_jobs(QUEUE).count(2).await?;
                    for (place, job) in jobs.iter().enumerate() {
                        tx.sql("insert into done (name) values ($1)", (job.decode(QUEUE)?,)).await?;
                        // The commit completes the others.
                        if place == 0 {
                            tx.complete_job_with(job, "by a report").await?;
                        }
                    }
                    tx.commit().await?;
                    jobs.iter().for_each(|job| answered.completed(job.taken.job.0));
                }
                _ => broker
                    .take_jobs(QUEUE)
                    .taken_by("pop")
                    .pop()
                    .await?
                    .iter()
                    .for_each(|job| answered.completed(job.taken.job.0)),
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = round.await {
            assert!(is_expected(&error), "{error:?}");
        }
    }
}

pub(crate) fn every_connection_ended_under_load_loses_and_doubles_no_job(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await?;
        broker.execute("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1000, RETRY_DELAY_MS = 0").await?;
        broker.sql("create table done (name text not null unique)", ()).await?;
        let answered = Arc::new(Answered::default());
        let mut tasks = tokio::task::JoinSet::new();
        (0..4).for_each(|writer| drop(tasks.spawn(push_until(broker.clone(), writer, answered.clone()))));
        (0..6).for_each(|reader| drop(tasks.spawn(work_until(broker.clone(), reader, answered.clone()))));
        for round in 1..=ROUNDS {
            // Work must go on between one blow and the next.
            let worked = async {
                while answered.count.load(SeqCst) < round * 100 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(SOON, worked).await.expect("the work goes on");
            tokio::task::block_in_place(|| database.end_sessions());
        }
        answered.stop.store(true, SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
        nothing_is_held(&broker).await;
        check(&broker, &answered).await
    });
}

/// No transaction is open, so each job that one has held comes back.
async fn nothing_is_held(broker: &Broker) {
    let held = async || {
        let text = "select count(*) as n from dialoq.job where holder is not null";
        broker.query(text, ()).await.map_or(1, |found| found.rows[0].get::<i64>("n").unwrap())
    };
    let freed = async {
        while held().await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, freed).await.expect("jobs are held by a transaction that has ended");
}

async fn check(broker: &Broker, answered: &Answered) -> Result<()> {
    let rows = broker.query("select name from done", ()).await?.rows;
    let rows: BTreeSet<String> = rows.iter().map(|row| row.get("name")).collect::<Result<_>>()?;
    let jobs = broker.jobs(&JobFilter::default(), 1_000_000).await?;
    let finished = broker.finished_jobs(&JobFilter::default(), 1_000_000).await?;
    let mut ids: Vec<u64> = jobs.iter().map(|job| job.job.0).chain(finished.iter().map(|job| job.job.0)).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "a job is in two places");
    assert!(jobs.iter().all(|job| job.state != ShownState::Dead), "a job is dead");
    let finished_ids: BTreeSet<u64> = finished.iter().map(|job| job.job.0).collect();
    let completed = answered.completed.lock().unwrap();
    let undone: Vec<_> = completed.difference(&finished_ids).collect();
    assert!(undone.is_empty(), "acknowledged as completed and not in the history: {undone:?}");
    // The type of each job is its name.
    let names: BTreeSet<&str> =
        jobs.iter().map(|job| &*job.job_type).chain(finished.iter().map(|job| &*job.job_type)).collect();
    let pushed = answered.pushed.lock().unwrap();
    let lost: Vec<_> = pushed.iter().filter(|name| !names.contains(name.as_str())).collect();
    assert!(lost.is_empty(), "acknowledged as pushed and lost: {lost:?}");
    let by_transactions: BTreeSet<String> = {
        let finished_names: BTreeSet<&str> = finished.iter().map(|job| &*job.job_type).collect();
        let unfinished: Vec<_> = rows.iter().filter(|row| !finished_names.contains(row.as_str())).collect();
        assert!(unfinished.is_empty(), "a transaction wrote its row, and its job is not done: {unfinished:?}");
        let reported = finished.iter().filter(|job| job.result.is_some());
        reported.map(|job| job.job_type.to_string()).collect()
    };
    let without_row: Vec<_> = by_transactions.difference(&rows).collect();
    assert!(without_row.is_empty(), "a job was done by a transaction whose row is not there: {without_row:?}");
    assert!(pushed.len() > ROUNDS && completed.len() > ROUNDS, "there was no work");
    Ok(())
}
