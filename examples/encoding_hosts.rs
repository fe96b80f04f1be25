//! Encoding hosts that take films in batches. One host hangs: its lease ends, another host takes its films, and what the
//! first host reports afterwards is refused.
//!
//! `cargo run --example encoding_hosts`

use dialoq::work::{Job, JobFilter, ShownState, StatisticsBy, WorkQueue};
use dialoq::{Act, Broker, Clock, Code, OpenOptions, Result, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

const FILMS: WorkQueue<String> = WorkQueue::text("films");
const BATCH: u32 = 4;
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
    let broker = Broker::open_with("sqlite::memory:", OpenOptions::new().clock(clock.clone())).await?;
    // A host holds its films for ten minutes at a time. No customer has more than three films in work.
    broker.execute("CREATE WORK QUEUE films WITH LEASE_MS = 600000, RETRY_DELAY_MS = 0, MAX_TAKEN_PER_KEY = 3").await?;
    for number in 1..=10 {
        let customer = if number <= 5 { "ann" } else { "bob" };
        broker.push_job(FILMS, &format!("film {number}")).key(customer).await?;
    }

    // Two hosts take a batch each. The first batch holds three films of ann's, the most that her key allows.
    let first = take(&broker, "host a").await?;
    let hanging = take(&broker, "host b").await?;
    let of_ann = |jobs: &[Job]| jobs.iter().filter(|job| job.key.as_deref() == Some("ann")).count();
    assert_eq!((of_ann(&first), of_ann(&hanging)), (3, 0));
    // Three of ann's and three of bob's are in work: a third host finds nothing, although four films wait.
    assert!(take(&broker, "host c").await?.is_empty());
    assert_eq!(broker.jobs(&JobFilter { state: Some(ShownState::Ready), ..JobFilter::default() }, 100).await?.len(), 4);

    // Host a keeps its leases while it encodes, and notes how far it is. A whole batch is completed by one commit.
    for percent in [50, 100] {
        clock.advance(5 * MINUTE - Duration::from_secs(1));
        for job in &first {
            broker.extend_job(job, None).await?;
            broker.report_job(job, format!("{percent} %")).await?;
        }
        let taken = JobFilter { state: Some(ShownState::Taken), ..JobFilter::default() };
        for job in broker.jobs(&taken, 100).await? {
            let by = job.taken_by.as_deref().unwrap_or_default();
            println!("{} job {} on {by}: {}", clock.now(), job.job, job.progress.as_deref().unwrap_or("no news"));
        }
    }
    finish(&broker, &first).await?;

    // Host b is silent for more than ten minutes. Its films are given to host c, with higher tokens.
    clock.advance(MINUTE);
    let mut encoded = first.len();
    loop {
        let batch = take(&broker, "host c").await?;
        if batch.is_empty() {
            break;
        }
        for job in batch.iter().filter(|job| job.attempt == 2) {
            let before = hanging.iter().find(|held| held.taken.job == job.taken.job).expect("a film of host b's");
            assert!(job.taken.token > before.taken.token);
            assert_eq!(job.last_error.as_deref(), Some("its lease was over"));
        }
        if encoded == first.len() {
            // Now host b wakes up, in the middle of host c's work.
            let late = broker.complete_job(&hanging[0]).await.expect_err("its lease is over");
            println!("host b is too late: {late}");
            assert_eq!(late.code(), Code::LEASE_LOST);
        }
        clock.advance(2 * MINUTE);
        finish(&broker, &batch).await?;
        encoded += batch.len();
    }
    assert_eq!(encoded, 10);

    // Every film is done once.
    let mut films = BTreeMap::<u64, u32>::new();
    for job in broker.finished_jobs(&JobFilter::default(), 100).await? {
        *films.entry(job.job.0).or_default() += 1;
    }
    assert!(films.len() == 10 && films.values().all(|count| *count == 1), "{films:?}");
    for host in broker.work_statistics(Some("films"), StatisticsBy::Reader).await? {
        println!("{}: {} films, {} s each", host.name, host.jobs, host.to_complete.average_us / 1_000_000);
    }
    broker.close().await
}

/// Takes a batch for a host.
async fn take(broker: &Broker, host: &str) -> Result<Vec<Job>> {
    let jobs = broker.take_jobs(FILMS).count(BATCH).taken_by(host).await?;
    for job in &jobs {
        let (film, customer) = (job.decode(FILMS)?, job.key.as_deref().unwrap_or_default());
        println!("{host}: {film} of {customer}, attempt {}, token {}", job.attempt, job.taken.token);
    }
    Ok(jobs)
}

/// Completes all jobs of a batch, or none.
async fn finish(broker: &Broker, batch: &[Job]) -> Result<()> {
    let tx = broker.begin().await?;
    for job in batch {
        tx.complete_job_with(job, format!("{}.mp4", job.taken.job)).await?;
    }
    tx.commit().await
}
