//! Reports on jobs that take the next ones along. Ours.

use crate::rig::{Rig, code};
use dialoq::work::{Job, JobFilter, TakenJob, WorkQueue};
use dialoq::{Act, Code, Result};
use std::future::IntoFuture;
use std::time::Duration;

const W: WorkQueue<String> = WorkQueue::text("w");

async fn with(t: &Rig, options: &str) -> Result<()> {
    let more = if options.is_empty() { String::new() } else { format!(", {options}") };
    t.define(&format!("CREATE WORK QUEUE w WITH RETRY_JITTER_PERCENT = 0{more}")).await.map(drop)
}

async fn push(act: &impl Act, name: &str) -> Result<()> {
    act.push_job(W, &name.to_owned()).await.map(drop)
}

async fn take(act: &impl Act, count: u32) -> Result<Vec<Job>> {
    act.take_jobs(W).count(count).lease(Duration::from_secs(60)).await
}

fn names(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| std::str::from_utf8(job.body()).unwrap()).collect()
}

case!(a_report_takes_the_next_job_along, [298], async |t| {
    with(&t, "").await?;
    for name in ["a", "b", "c", "d"] {
        t.broker.push_job(W, &name.to_owned()).job_type(if name == "c" { "other" } else { "" }).await?;
    }
    let a = take(&t.broker, 1).await?.remove(0);
    let next = || t.broker.take_jobs(W).lease(Duration::from_secs(60)).taken_by("me");
    let b = next().completing_with(&a, "done").await?.remove(0);
    assert_eq!((names(std::slice::from_ref(&b)), b.attempt), (vec!["b"], 1));
    assert_eq!(b.lease_until, Some(t.now().after(Duration::from_secs(60))));
    let done = t.broker.finished_jobs(&JobFilter::default(), 9).await?;
    assert_eq!(
        done.iter().map(|done| (done.job, done.result.as_deref())).collect::<Vec<_>>(),
        [(a.taken.job, Some(&b"done"[..]))]
    );

    // A report that is refused takes nothing, a take that is refused reports nothing.
    assert_eq!(code(next().completing(&a).await), Code::JOB_NOT_FOUND.0);
    let stale = TakenJob { token: b.taken.token + 1, ..b.taken };
    assert_eq!(code(next().completing(stale).await), Code::LEASE_LOST.0);
    assert_eq!(code(t.broker.take_jobs("nowhere").completing(&b).await), Code::OBJECT_NOT_FOUND.0);
    assert_eq!(code(next().count(0).completing(&b).await), Code::OUT_OF_RANGE.0);
    assert_eq!(t.broker.finished_jobs(&JobFilter::default(), 9).await?.len(), 1);

    let d = next().count(5).completing(&b).await?;
    assert_eq!(names(&d), ["c", "d"], "as many as it asks for");
    assert!(next().completing(&d[0]).await?.is_empty(), "no job is left");
    assert_eq!(code(t.broker.complete_job(&d[0]).await), Code::JOB_NOT_FOUND.0);
    // With a wait it is a take like any other, after the report.
    let waiting = next().wait(Duration::from_secs(60)).completing(&d[1]).into_future();
    let (waited, pushed) = tokio::join!(waiting, push(&t.broker, "e"));
    assert_eq!((names(&waited?), pushed.is_ok()), (vec!["e"], true));
});

case!(a_report_in_a_transaction_takes_the_next_job_along, [298, 251], async |t| {
    with(&t, "MAX_TAKEN = 1").await?;
    for name in ["a", "b"] {
        push(&t.broker, name).await?;
    }
    let a = take(&t.broker, 1).await?.remove(0);
    assert!(take(&t.broker, 1).await?.is_empty(), "one at a time");
    let b = t.broker.take_jobs(W).completing(&a).await?;
    assert_eq!(names(&b), ["b"], "the end of the job before lets it go");
    push(&t.broker, "c").await?;
    t.define("ALTER WORK QUEUE w WITH MAX_TAKEN = 0").await?;
    for is_commit in [false, true] {
        let tx = t.begin().await?;
        let c = tx.0.take_jobs(W).completing(&b[0]).await?;
        assert_eq!(names(&c), ["c"]);
        if is_commit {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
            t.advance(1).await?;
        }
    }
    assert!(t.broker.jobs(&JobFilter::default(), 9).await?.is_empty());
});
