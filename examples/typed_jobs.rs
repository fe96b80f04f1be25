//! Jobs of three types in one work queue: viewed by type without disturbing a reader, and taken by type, the oldest first.
//!
//! `cargo run --example typed_jobs`

use dialoq::work::{Job, JobFilter, ShownState, WorkQueue};
use dialoq::{Act, Broker, Code, Result};

const DESK: WorkQueue<String> = WorkQueue::text("desk");

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker.execute("CREATE WORK QUEUE desk").await?;

    // A push returns the id of the job at once.
    let mut ids = Vec::new();
    for (job_type, text) in [
        ("invoice", "invoice 1001"),
        ("photo", "passport of ann"),
        ("invoice", "invoice 1002"),
        ("claim", "broken window"),
        ("photo", "passport of bob"),
        ("invoice", "invoice 1003"),
    ] {
        let pushed = broker.push_job(DESK, text).job_type(job_type).pushed_by("front desk").await?;
        ids.extend(pushed.job);
    }
    assert_eq!(ids.len(), 6);

    // A clerk of invoices takes two of them: marked, dated and returned in one call.
    let invoices = take(&broker, Some("invoice"), 2, "clerk").await?;
    assert_eq!(invoices, ["invoice 1001", "invoice 1002"]);
    // The photographer asks for more than there is, and gets what there is. No reader waits for another.
    let photos = take(&broker, Some("photo"), 10, "photographer").await?;
    assert_eq!(photos, ["passport of ann", "passport of bob"]);
    assert!(take(&broker, Some("photo"), 1, "photographer").await?.is_empty());

    // What waits and what is worked on, by type; nothing is locked or changed by looking.
    println!("{:>8} {:>7} {:>6} {:>12} {:>24}", "type", "pending", "taken", "taken by", "since");
    for job_type in ["claim", "invoice", "photo"] {
        let filter =
            |state| JobFilter { state: Some(state), job_type: Some(job_type.to_owned()), ..JobFilter::default() };
        let (pending, taken) =
            (broker.jobs(&filter(ShownState::Ready), 100).await?, broker.jobs(&filter(ShownState::Taken), 100).await?);
        let by = taken.first().and_then(|job| job.taken_by.clone()).unwrap_or_default();
        let since = taken.first().and_then(|job| job.taken_at).map(|at| at.to_string()).unwrap_or_default();
        println!("{job_type:>8} {:>7} {:>6} {by:>12} {since:>24}", pending.len(), taken.len());
        let expected = match job_type {
            "claim" => (1, 0),
            "invoice" => (1, 2),
            _ => (0, 2),
        };
        assert_eq!((pending.len(), taken.len()), expected);
    }

    // A reader of any type gets the oldest job that is left.
    assert_eq!(take(&broker, None, 1, "trainee").await?, ["broken window"]);

    // The customer withdraws the last invoice before a reader has it.
    broker.cancel_job(ids[5]).await?;
    let refused = broker.cancel_job(ids[5]).await.expect_err("it is gone");
    assert_eq!(refused.code(), Code::JOB_NOT_FOUND);
    println!("a second cancel: {refused}");

    // What is left is taken and nothing else; each of them can be reported by id and token.
    let left = broker.jobs(&JobFilter::default(), 100).await?;
    assert!(left.iter().all(|job| job.state == ShownState::Taken), "{left:?}");
    for job in &left {
        broker.complete_job(dialoq::work::TakenJob { job: job.job, token: job.token }).await?;
    }

    println!("history, the last one first:");
    let history = broker.finished_jobs(&JobFilter::default(), 100).await?;
    for job in &history {
        let by = job.taken_by.as_deref().unwrap_or("no reader");
        println!(
            "  job {} ({}): {}, taken by {by}, pushed by {}",
            job.job, job.job_type, job.finished_as, job.pushed_by
        );
    }
    assert_eq!(history.len(), 6);
    assert_eq!(history.iter().filter(|job| job.finished_as == ShownState::Cancelled).count(), 1);
    broker.close().await
}

/// Takes jobs of a type, or of any, and gives their texts.
async fn take(broker: &Broker, job_type: Option<&'static str>, count: u32, name: &str) -> Result<Vec<String>> {
    let take = broker.take_jobs(DESK).count(count).taken_by(name);
    let jobs: Vec<Job> = match job_type {
        Some(job_type) => take.job_type(job_type).await?,
        None => take.await?,
    };
    for job in &jobs {
        println!(
            "{name} took job {} with token {}: {} {:?}",
            job.taken.job,
            job.taken.token,
            job.job_type,
            job.decode(DESK)?
        );
    }
    jobs.iter().map(|job| job.decode(DESK)).collect()
}
