//! A report every night at half past two in Berlin, on a clock that the program moves: over the night in which the clocks go
//! forward, and over three nights on which no process ran.
//!
//! `cargo run --example nightly_schedule`

use dialoq::protocol::definition::Missed;
use dialoq::work::{Job, WorkQueue, coming_times};
use dialoq::{Act, Broker, Clock, Error, OpenOptions, Result, Timestamp};
use std::time::Duration;

const REPORTS: WorkQueue<String> = WorkQueue::text("reports");
const LINE: &str = "30 2 * * *";
const ZONE: &str = "Europe/Berlin";
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<()> {
    // 27 March 2026, noon in Greenwich; the clocks go forward on the 29th.
    let clock = Clock::manual(Timestamp(1_774_612_800_000_000));
    let folder = std::env::temp_dir().join(format!("dialoq-nightly-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    let url = format!("sqlite:{}", folder.join("broker.db").display());

    let broker = open(&url, &clock).await?;
    // Nothing changes if they are there, so each start may call it, in every process.
    broker
        .ensure(|d| {
            d.work_queue("reports").max_attempts(3);
            d.work_schedule("nightly", "reports", LINE).time_zone(ZONE).missed(Missed::Once).body("report of {time}");
        })
        .await?;
    println!("The coming nights:");
    for time in coming_times(LINE, ZONE, clock.now(), 3)? {
        println!("  {time}");
    }

    // Half past two does not exist on the 29th: the job comes when the clocks show three, which is 01:00 in Greenwich.
    for night in ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"] {
        clock.advance(DAY);
        let jobs = report(&broker).await?;
        assert_eq!(jobs, [format!("report of {night}")]);
    }

    // Three nights without a process: one report for all of them, because MISSED is ONCE.
    broker.close().await?;
    println!("{}: closed", clock.now());
    clock.advance(3 * DAY);
    let broker = open(&url, &clock).await?;
    println!("{}: open again", clock.now());
    assert_eq!(report(&broker).await?, ["report of 2026-04-02T00:30:00Z"]);

    // A pause, and a line with an error.
    broker.execute("ALTER WORK SCHEDULE nightly WITH STATUS = OFF").await?;
    clock.advance(DAY);
    assert!(broker.take_jobs(REPORTS).await?.is_empty());
    let refused: Error = broker.execute("ALTER WORK SCHEDULE nightly WITH CRON = '30 26 * * *'").await.unwrap_err();
    println!("{refused}");
    for schedule in broker.work_schedules().await? {
        let last = schedule.last_at.map(|at| at.to_string()).unwrap_or_default();
        println!("schedule {}: {} {}, last {last}, paused", schedule.name, schedule.cron, schedule.time_zone);
        assert_eq!(schedule.next_at, None);
    }
    broker.close().await?;
    // Only this program has used it.
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

async fn open(url: &str, clock: &Clock) -> Result<Broker> {
    Broker::open_with(url, OpenOptions::new().clock(clock.clone())).await
}

/// Takes the jobs of the night, which a worker would do for you, and completes them.
async fn report(broker: &Broker) -> Result<Vec<String>> {
    let jobs: Vec<Job> = broker.take_jobs(REPORTS).count(10).wait(DAY).await?;
    let mut bodies = Vec::new();
    for job in &jobs {
        bodies.push(job.decode(REPORTS)?);
        println!("{}: {}, pushed by {}", broker.clock().now(), job.decode(REPORTS)?, job.pushed_by);
        broker.complete_job(job).await?;
    }
    Ok(bodies)
}
