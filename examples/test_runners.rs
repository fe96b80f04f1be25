//! A run of 2,000 tests by 200 runners on four hosts: each test runs once, and the statistics say which host is slow.
//!
//! `cargo run --example test_runners`

use dialoq::work::{JobFilter, StatisticsBy, WorkDone, WorkQueue, WorkStatistics};
use dialoq::{Act, Broker, Result};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const TESTS: WorkQueue<u32> = WorkQueue::json("tests");
const WRITERS: u32 = 10;
const TESTS_OF_A_WRITER: u32 = 200;
const HOSTS: [&str; 4] = ["host a", "host b", "host c", "host d"];
const RUNNERS_OF_A_HOST: usize = 50;

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker.execute("CREATE WORK QUEUE tests WITH RETRY_DELAY_MS = 0").await?;

    // A runner takes a test and dies. Its lease of 100 ms ends, and another runner gets the test.
    broker.push_job(TESTS, &0).pushed_by("nightly").await?;
    let lost = broker.take_jobs(TESTS).lease(Duration::from_millis(100)).taken_by("host e").await?.remove(0);

    let (done, mut finished) = mpsc::unbounded_channel();
    let hosts: Vec<_> = HOSTS
        .map(|host| {
            let done = done.clone();
            let worker = broker.worker(TESTS, move |context, test| {
                let done = done.clone();
                async move {
                    run(host, test).await;
                    // A test that fails is a result, not a failed attempt: the runner did its work.
                    context.keep_result(if test % 97 == 13 { "failed" } else { "passed" });
                    let _ = done.send(test);
                    Ok::<_, std::convert::Infallible>(())
                }
            });
            worker.readers(RUNNERS_OF_A_HOST).name(host).start()
        })
        .into_iter()
        .collect();

    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let broker = broker.clone();
        writers.spawn(async move {
            for number in 1..=TESTS_OF_A_WRITER {
                let test = writer * TESTS_OF_A_WRITER + number;
                broker.push_job(TESTS, &test).pushed_by(format!("suite {writer}")).await?;
            }
            Ok::<_, dialoq::Error>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written.expect("a writer does not panic")?;
    }

    // Each test once: 2,000 of the writers, and the one that the dead runner held.
    let all = WRITERS * TESTS_OF_A_WRITER + 1;
    let mut seen = HashSet::new();
    while seen.len() < all as usize {
        let test = finished.recv().await.expect("the runners are there");
        assert!(seen.insert(test), "test {test} ran twice");
    }
    let mut sum = WorkDone::default();
    for host in hosts {
        let of_host = host.stop().await;
        sum.completed += of_host.completed;
        sum.failed += of_host.failed;
    }
    assert_eq!((sum.completed, sum.failed), (u64::from(all), 0));
    println!("{} tests, {} runners: each ran once", sum.completed, HOSTS.len() * RUNNERS_OF_A_HOST);

    let filter = JobFilter { job: Some(lost.taken.job), ..JobFilter::default() };
    let rescued = broker.finished_jobs(&filter, 1).await?.remove(0);
    println!(
        "job {} was taken by host e, which died; {} ran it as attempt {} ({})",
        rescued.job,
        rescued.taken_by.as_deref().unwrap_or_default(),
        rescued.attempts,
        rescued.last_error.as_deref().unwrap_or_default()
    );
    assert_eq!((rescued.attempts, rescued.last_error.as_deref()), (2, Some("its lease was over")));

    let failed = broker.finished_jobs(&JobFilter::default(), all).await?;
    let failed = failed.iter().filter(|job| job.result.as_deref() == Some(b"failed")).count();
    println!("{failed} tests failed");
    assert_eq!(failed, (0..all).filter(|test| test % 97 == 13).count());

    println!("{:>10} {:>6} {:>22} {:>22}", "", "jobs", "to take p50, p99", "to complete p50, p99");
    let of_queue = broker.work_statistics(Some("tests"), StatisticsBy::Queue).await?;
    let by_host = broker.work_statistics(Some("tests"), StatisticsBy::Reader).await?;
    let by_suite = broker.work_statistics(Some("tests"), StatisticsBy::Writer).await?;
    of_queue.iter().chain(&by_host).chain(by_suite.iter().take(3)).for_each(print);
    assert_eq!(of_queue[0].jobs, u64::from(all));
    assert_eq!(by_host.iter().map(|host| host.jobs).sum::<u64>(), u64::from(all));
    assert_eq!(by_suite.len(), WRITERS as usize + 1);
    // Host d is the slow one, in its median as in its tail.
    let median = |name: &str| by_host.iter().find(|host| host.name == name).map_or(0, |host| host.to_complete.p50_us);
    assert!(median("host d") >= 20_000, "{by_host:?}");
    broker.close().await
}

/// Runs a test; host d needs longer.
async fn run(host: &str, test: u32) {
    let ms = if host == "host d" { 20 } else { 1 + u64::from(test % 5) };
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn print(row: &WorkStatistics) {
    let name = if row.name.is_empty() { "all" } else { &row.name };
    let ms = |p50: u64, p99: u64| format!("{:.1} ms, {:.1} ms", p50 as f64 / 1000.0, p99 as f64 / 1000.0);
    let to_take = ms(row.to_take.p50_us, row.to_take.p99_us);
    let to_complete = ms(row.to_complete.p50_us, row.to_complete.p99_us);
    println!("{name:>10} {:>6} {to_take:>22} {to_complete:>22}", row.jobs);
}
