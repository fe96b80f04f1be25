//! A process that pushes and works off jobs is killed, again and again on the same file.
//!
//! The child prints what was answered: jobs pushed, and jobs completed, by a report, by one that takes the next job along, by a
//! transaction that writes into a table of its own, and by a take that completes. After each kill every job that was printed as pushed is in its queue or
//! in the history, once; every one printed as completed is in the history; the table has a row for exactly those jobs that
//! transactions have completed; and no job was handed out more often than it may be.

use crate::kill::{print_line, rounds, run_and_kill};
use crate::shop::texts;
use dialoq::internals::store::Store;
use dialoq::work::{JobFilter, ShownState, WorkQueue};
use dialoq::{Act, Broker};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const QUEUE: WorkQueue<String> = WorkQueue::text("w");
/// More than the rounds of a run, so that no job is dead.
const ATTEMPTS: u64 = 1000;

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// Not a test of its own: what the killed process runs.
#[test]
#[ignore = "run by no_job_is_lost_or_done_twice_by_a_kill"]
fn child() {
    let _limit = crate::limit();
    let Some(path) = std::env::var_os(crate::kill::FILE).map(PathBuf::from) else { return };
    let round = std::env::var(crate::kill::ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work(&path, &round));
}

async fn work(path: &Path, round: &str) {
    let broker = Broker::open(&url(path)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (broker, round) = (broker.clone(), round.to_owned());
        tasks.spawn(async move {
            for number in 0.. {
                let name = format!("{round}/{writer}/{number}");
                if number % 3 == 0 {
                    let tx = broker.begin().await.unwrap();
                    tx.push_job(QUEUE, &name).job_type(name.as_str()).await.unwrap();
                    tx.commit().await.unwrap();
                } else {
                    broker.push_job(QUEUE, &name).job_type(name.as_str()).await.unwrap();
                }
                print_line(&format!("sent {name}"));
            }
        });
    }
    for reader in 0..4 {
        let broker = broker.clone();
        tasks.spawn(async move {
            loop {
                let mut done = Vec::new();
                match reader {
                    0 => {
                        for job in broker.take_jobs(QUEUE).count(2).wait_forever().await.unwrap() {
                            broker.complete_job(&job).await.unwrap();
                            done.push(job);
                        }
                    }
                    1 => {
                        let tx = broker.begin().await.unwrap();
                        done = tx.take_jobs(QUEUE).count(2).wait_forever().await.unwrap();
                        for job in &done {
                            tx.sql("insert into done (name) values (?1)", (job.decode(QUEUE).unwrap(),)).await.unwrap();
                            tx.complete_job_with(job, "by a transaction").await.unwrap();
                        }
                        tx.commit().await.unwrap();
                    }
                    2 => done = broker.take_jobs(QUEUE).pop().wait_forever().await.unwrap(),
                    _ => {
                        let mut next = broker.take_jobs(QUEUE).wait_forever().await.unwrap();
                        while let Some(job) = next.pop() {
                            next = broker.take_jobs(QUEUE).completing(&job).await.unwrap();
                            print_line(&format!("received {reader} {}", job.taken.job));
                        }
                    }
                }
                for job in done {
                    print_line(&format!("received {reader} {}", job.taken.job));
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

#[test]
fn no_job_is_lost_or_done_twice_by_a_kill() {
    let limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::open(&url(&path)).await.unwrap();
        let options = format!("MAX_ATTEMPTS = {ATTEMPTS}, RETRY_DELAY_MS = 0");
        broker.execute(&format!("CREATE WORK QUEUE w WITH {options}")).await.unwrap();
        broker.sql("create table done (name text not null unique)", ()).await.unwrap();
        broker.close().await.unwrap();
    });
    let (mut pushed, mut completed) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..rounds() {
        limit.doing(format!("round {round}"));
        for line in run_and_kill("kill_jobs::child", &path, round, 20 + round * 37 % 400) {
            if let Some((_, name)) = line.split_once("sent ") {
                pushed.insert(name.to_owned());
            } else if let Some((_, reader_and_job)) = line.split_once("received ") {
                completed.insert(reader_and_job.split_once(' ').unwrap().1.parse::<u64>().unwrap());
            }
        }
        runtime.block_on(check(&path, &pushed, &completed));
    }
    assert!(pushed.len() >= rounds() && !completed.is_empty(), "the children did no work");
}

async fn check(path: &Path, pushed: &BTreeSet<String>, completed: &BTreeSet<u64>) {
    let store = crate::shop::open(path);
    let rows = texts(&*store, "select name from done").await;
    store.close().await.unwrap();
    let broker = Broker::open(&url(path)).await.unwrap();
    let jobs = broker.jobs(&JobFilter::default(), 1_000_000).await.unwrap();
    let finished = broker.finished_jobs(&JobFilter::default(), 1_000_000).await.unwrap();
    broker.close().await.unwrap();

    let most = jobs.iter().map(|job| job.attempts).max().unwrap_or(0);
    assert!(most < ATTEMPTS && jobs.iter().all(|job| job.state != ShownState::Dead), "{most} attempts at one job");
    let mut ids: Vec<u64> = jobs.iter().map(|job| job.job.0).chain(finished.iter().map(|job| job.job.0)).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "a job is in two places");
    let finished_ids: BTreeSet<u64> = finished.iter().map(|job| job.job.0).collect();
    let undone: Vec<_> = completed.difference(&finished_ids).collect();
    assert!(undone.is_empty(), "acknowledged as completed and not in the history: {undone:?}");
    // The type of each job is its name.
    let everywhere: Vec<&str> =
        jobs.iter().map(|job| &*job.job_type).chain(finished.iter().map(|job| &*job.job_type)).collect();
    let names: BTreeSet<&str> = everywhere.iter().copied().collect();
    assert_eq!(names.len(), everywhere.len(), "a job was pushed twice");
    let lost: Vec<_> = pushed.iter().filter(|name| !names.contains(name.as_str())).collect();
    assert!(lost.is_empty(), "acknowledged as pushed and lost: {lost:?}");
    let by_transactions = finished.iter().filter(|job| job.result.is_some()).map(|job| &*job.job_type);
    let (by_transactions, rows): (BTreeSet<&str>, BTreeSet<&str>) =
        (by_transactions.collect(), rows.iter().map(|row| &**row).collect());
    assert_eq!(by_transactions, rows, "the row of a transaction and the end of its job are one commit");
}
