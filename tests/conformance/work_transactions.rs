//! What transactions do to jobs, what their savepoints undo, and which names and keys are free meanwhile. Ours.

use crate::poison::leave_unseen;
use crate::rig::{Rig, Session, code};
use crate::servers::Store;
use dialoq::work::{AfterFailure, Job, JobFilter, JobState, ShownState, WorkQueue};
use dialoq::{Act, Code, JobId, Result};
use std::time::Duration;

const W: WorkQueue<String> = WorkQueue::text("w");

async fn push(act: &impl Act, name: &str) -> Result<JobId> {
    let pushed = act.push_job(W, &name.to_owned()).await?;
    Ok(pushed.job.expect("a new job has an id"))
}

async fn take(act: &impl Act, count: u32) -> Result<Vec<Job>> {
    act.take_jobs(W).count(count).lease(Duration::from_secs(60)).await
}

/// The names of the jobs that a take gives now.
async fn taken(act: &impl Act) -> Result<String> {
    Ok(names(&take(act, 9).await?))
}

fn names(jobs: &[Job]) -> String {
    jobs.iter().map(|job| std::str::from_utf8(job.body()).unwrap()).collect::<Vec<_>>().join(" ")
}

/// Finished jobs, the last one first, with what became of them.
async fn finished(t: &Rig) -> Result<Vec<(JobId, &'static str, Option<Vec<u8>>)>> {
    let jobs = t.broker.finished_jobs(&JobFilter::default(), 9).await?;
    Ok(jobs.into_iter().map(|job| (job.job, job.finished_as.name(), job.result)).collect())
}

case!(a_transaction_ends_its_own_jobs_as_it_has_reported, [248, 251], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    for name in ["done", "with a result", "cancelled"] {
        push(&t.broker, name).await?;
    }
    let tx = t.begin().await?;
    let jobs = tx.0.take_jobs(W).count(9).await?;
    tx.0.complete_job_with(&jobs[1], "result").await?;
    tx.0.cancel_job(jobs[2].taken.job).await?;
    for gone in [&jobs[1], &jobs[2]] {
        assert_eq!(code(tx.0.complete_job(gone).await), Code::JOB_NOT_FOUND.0);
    }
    tx.commit().await?;
    let mut ends = finished(&t).await?;
    ends.sort();
    let result = Some(b"result".to_vec());
    let right = [(0, "done", None), (1, "done", result), (2, "cancelled", None)];
    assert_eq!(ends, right.map(|(place, end, result)| (jobs[place].taken.job, end, result)));
});

case!(a_job_of_a_transaction_has_its_unique_key_until_it_is_completed, [242], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    let again = async |act: &dialoq::Tx| act.push_job(W, &"again".to_owned()).unique("u").await;
    t.broker.push_job(W, &"first".to_owned()).unique("u").await?;
    for completes in [true, false] {
        let tx = t.begin().await?;
        let jobs = tx.0.take_jobs(W).await?;
        if completes {
            tx.0.complete_job(&jobs[0]).await?;
        }
        let pushed = again(&tx.0).await?;
        assert_eq!((pushed.is_new, pushed.job == Some(jobs[0].taken.job)), (completes, !completes));
        tx.commit().await?;
        assert_eq!(t.broker.jobs(&JobFilter::default(), 9).await?.len(), usize::from(completes));
    }
});

case!(a_failure_in_a_transaction_has_the_settings_of_its_call, [251], async |t| {
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 5000, RETRY_JITTER_PERCENT = 0").await?;
    push(&t.broker, "x").await?;
    let jobs = take(&t.broker, 1).await?;
    let tx = t.begin().await?;
    assert_eq!(tx.0.fail_job(&jobs[0], "why").await?, JobState::Scheduled);
    t.define("ALTER WORK QUEUE w WITH MAX_ATTEMPTS = 1, RETRY_DELAY_MS = 60000").await?;
    tx.commit().await?;
    t.advance(5).await?;
    assert_eq!(taken(&t.broker).await?, "x", "as the caller was answered");
});

case!(a_savepoint_undoes_each_verb_of_a_job, [252], async |t| {
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "leased").await?;
    let dead = push(&t.broker, "dead").await?;
    let jobs = take(&t.broker, 2).await?;
    t.broker.fail_job_then(&jobs[1], "", AfterFailure::Dead).await?;
    let tx = t.begin().await?;
    // The transaction holds it from here on.
    tx.0.report_job(&jobs[0], "begun").await?;
    let undone = async |tx: &Session, name: &str| tx.rollback_to(name).await;
    for round in ["first", "second"] {
        tx.savepoint(round).await?;
        tx.0.complete_job(&jobs[0]).await?;
        tx.0.redrive_job(dead).await?;
        assert_eq!(code(tx.0.redrive_job(dead).await), Code::JOB_NOT_DEAD.0);
        undone(&tx, round).await?;
        tx.savepoint(round).await?;
        tx.0.cancel_job(jobs[0].taken.job).await?;
        tx.0.cancel_job(dead).await?;
        undone(&tx, round).await?;
        tx.savepoint(round).await?;
        tx.0.fail_job(&jobs[0], "").await?;
        undone(&tx, round).await?;
    }
    tx.0.report_job(&jobs[0], "half").await?;
    // Nothing of it is held by the transaction, which is open.
    t.broker.redrive_job(dead).await?;
    let again = take(&t.broker, 9).await?;
    assert_eq!((names(&again), again[0].attempt), ("dead".to_owned(), 1));
    t.broker.complete_job(&again[0]).await?;
    tx.0.fail_job(&jobs[0], "").await?;
    tx.savepoint("failed").await?;
    tx.0.cancel_job(jobs[0].taken.job).await?;
    undone(&tx, "failed").await?;
    assert_eq!(code(tx.0.fail_job(&jobs[0], "").await), Code::JOB_NOT_TAKEN.0, "it has failed before the savepoint");
    tx.rollback().await?;
    t.broker.complete_job(&jobs[0]).await?;
});

// On servers it was over while the transaction held the job: what the transaction reported then was refused, and its work was lost.
case!(a_lease_does_not_end_while_a_transaction_that_has_reported_is_open, [251, 252], async |t| {
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0, RETRY_JITTER_PERCENT = 0").await?;
    for name in ["done", "failed", "extended", "undone", "not reported"] {
        push(&t.broker, name).await?;
    }
    let jobs = take(&t.broker, 5).await?;
    let tx = t.begin().await?;
    tx.savepoint("undone").await?;
    tx.0.report_job(&jobs[3], "half").await?;
    tx.rollback_to("undone").await?;
    for _ in 0..2 {
        tx.0.report_job(&jobs[0], "half").await?;
        tx.0.report_job(&jobs[1], "half").await?;
        tx.0.extend_job(&jobs[2], Some(Duration::from_secs(1))).await?;
        t.advance(61).await?;
    }
    // A rollback of SQL Server keeps the locks of jobs.
    if t.store() != Store::Mssql {
        assert_eq!(code(tx.0.complete_job(&jobs[3]).await), Code::JOB_NOT_TAKEN.0);
    }
    assert_eq!(code(tx.0.report_job(&jobs[4], "half").await), Code::JOB_NOT_TAKEN.0);
    tx.0.complete_job(&jobs[0]).await?;
    assert_eq!(tx.0.fail_job(&jobs[1], "").await?, JobState::Ready);
    tx.0.complete_job(&jobs[2]).await?;
    tx.commit().await?;
    let mut ends = finished(&t).await?;
    ends.sort();
    assert_eq!(ends, [0, 2].map(|place| (jobs[place].taken.job, "done", None)));
    let again = take(&t.broker, 9).await?;
    assert_eq!(again.iter().map(|job| job.attempt).collect::<Vec<_>>(), [2, 2, 2]);
});

case!(a_job_that_is_pushed_or_ended_in_a_transaction_is_not_so_for_others, [242, 243, 250], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    let unique = async |act: &dialoq::Broker| act.push_job(W, &"u".to_owned()).unique("u").await;
    let first = unique(&t.broker).await?;
    let tx = t.begin().await?;
    let pushed = push(&tx.0, "pushed").await?;
    assert_eq!(code(t.broker.cancel_job(pushed).await), Code::JOB_NOT_FOUND.0);
    tx.0.cancel_job(first.job.unwrap()).await?;
    let same = unique(&t.broker).await?;
    assert_eq!((same.job, same.is_new), (first.job, false), "the cancel is not committed");
    tx.rollback().await?;
    assert_eq!(taken(&t.broker).await?, "u");
});

case!(a_window_that_is_over_lets_another_job_of_its_key_in, [242], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    let unique = async || t.broker.push_job(W, &"u".to_owned()).unique("u").await;
    let first = t.broker.push_job(W, &"u".to_owned()).unique_within("u", Duration::from_secs(1)).await?;
    t.advance(1).await?;
    let second = unique().await?;
    assert!(second.is_new && second.job != first.job);
    t.broker.cancel_job(first.job.unwrap()).await?;
    let third = unique().await?;
    assert_eq!((third.job, third.is_new), (second.job, false), "the end of the first job frees no key of another");
    t.broker.cancel_job(second.job.unwrap()).await?;
    // A window outlives the broker too.
    t.broker.push_job(W, &"v".to_owned()).unique_within("v", Duration::from_secs(60)).await?;
    t.broker.take_jobs(W).pop().await?;
    let t = t.restart().await?;
    let kept = t.broker.push_job(W, &"v".to_owned()).unique("v").await?;
    assert_eq!((kept.job, kept.is_new), (None, false));
});

case!(a_time_that_has_come_is_no_delay, [241], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    t.broker.push_job(W, &"after".to_owned()).run_after(Duration::ZERO).await?;
    t.broker.push_job(W, &"at".to_owned()).run_at(t.now()).await?;
    assert_eq!(taken(&t.broker).await?, "after at");
    // DIFFERENCE(time-in-a-transaction)
    let tx = t.begin().await?;
    push(&tx.0, "later").await?;
    let at_call = t.now();
    t.advance(5).await?;
    tx.commit().await?;
    let right = if t.store().is_server() { at_call } else { t.now() };
    assert_eq!(take(&t.broker, 1).await?[0].pushed_at, right);
});

case!(a_ready_job_stays_ready_when_the_clock_is_set_back, [241], async |t| {
    // On SQLite it waited for its time once more after an opening, and was shown as scheduled before that although readers got it.
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 1000, RETRY_JITTER_PERCENT = 0").await?;
    let in_a_second = async |t: &Rig, name: &str| {
        t.broker.push_job(W, &name.to_owned()).run_after(Duration::from_secs(1)).await.map(|_| ())
    };
    in_a_second(&t, "opened").await?;
    t.advance(1).await?;
    t.clock.jump(-3600);
    let t = t.restart().await?;
    let job = take(&t.broker, 9).await?;
    assert_eq!(names(&job), "opened");
    t.broker.fail_job(&job[0], "").await?;
    in_a_second(&t, "pushed").await?;
    t.advance(1).await?;
    t.clock.jump(-3600);
    in_a_second(&t, "later").await?;
    let state = |state| JobFilter { state: Some(state), ..JobFilter::default() };
    let ready = t.broker.jobs(&state(ShownState::Ready), 9).await?;
    assert!(ready.len() == 2 && ready.iter().all(|job| job.due_at.is_none()), "{ready:?}");
    assert_eq!(t.broker.work_queues().await?[0].ready, 2);
    assert_eq!(t.broker.cancel_jobs(&state(ShownState::Scheduled)).await?, 1);
    let t = t.restart().await?;
    assert_eq!(taken(&t.broker).await?, "opened pushed");
});

case!(a_key_counts_what_is_taken_and_nothing_else, [235, 245], async |t| {
    let key = async |act: &dialoq::Broker, name: &str| act.push_job(W, &name.to_owned()).key("k").await;
    t.define("CREATE WORK QUEUE w WITH RETRY_JITTER_PERCENT = 0, MAX_TAKEN_PER_KEY = 1").await?;
    for name in ["a1", "a2", "a3"] {
        key(&t.broker, name).await?;
    }
    push(&t.broker, "free").await?;
    push(&t.broker, "free").await?;
    let first = take(&t.broker, 9).await?;
    assert_eq!(names(&first), "a1 free free", "no limit without a key");
    t.broker.fail_job(&first[0], "").await?;
    let second = take(&t.broker, 9).await?;
    assert_eq!(names(&second), "a2", "a job that waits for its next attempt is not taken");
    t.broker.complete_job(&second[0]).await?;
    let third = t.broker.jobs(&JobFilter { state: Some(ShownState::Ready), ..JobFilter::default() }, 9).await?;
    let tx = t.begin().await?;
    tx.0.cancel_job(third[0].job).await?;
    key(&t.broker, "a4").await?;
    assert_eq!(taken(&t.broker).await?, "a4", "nor is one that is being cancelled");
    tx.rollback().await?;
    t.define("DROP WORK QUEUE w; CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 2").await?;
    for name in ["a", "b"] {
        push(&t.broker, name).await?;
    }
    assert_eq!(taken(&t.broker).await?, "a", "jobs without a key are one line");
});

case!(a_push_that_is_rolled_back_gives_no_place_of_its_key, [235], async |t| {
    let key = async |act: &dialoq::Broker, name: &str| act.push_job(W, &name.to_owned()).key("k").await;
    t.define("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await?;
    let first = key(&t.broker, "a1").await?;
    let job = take(&t.broker, 1).await?.remove(0);
    let tx = t.begin().await?;
    tx.0.push_job(W, &"a2".to_owned()).key("k").await?;
    tx.rollback().await?;
    key(&t.broker, "a3").await?;
    assert_eq!(taken(&t.broker).await?, "", "a1 is taken");
    t.broker.fail_job_then(&job, "", AfterFailure::RetryInMs(0)).await?;
    // The commit of a cancel wakes the reader that waits behind the job.
    let tx = t.begin().await?;
    tx.0.cancel_job(first.job.unwrap()).await?;
    let other = t.clone();
    let mut reader = Box::pin(async move { other.broker.take_jobs(W).wait_forever().await });
    t.still_waits(&mut reader).await;
    tx.commit().await?;
    assert_eq!(names(&reader.await?), "a3");
});

// A timeout around a take that is shorter than its answer takes: the job died without a reader that had got it.
case!(a_take_that_no_caller_has_seen_is_no_attempt, [251], async |t| {
    t.define("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0, RETRY_JITTER_PERCENT = 0").await?;
    push(&t.broker, "x").await?;
    for attempt in 0..12 {
        let tx = t.begin().await?;
        if tokio::time::timeout(Duration::ZERO, tx.0.take_jobs(W)).await.is_ok() {
            tx.rollback().await?;
            return Ok(());
        }
        leave_unseen(tx, attempt).await?;
    }
    let jobs = t.soon(|| take(&t.broker, 1), |jobs| !jobs.is_empty()).await?;
    assert_eq!(jobs[0].attempt, 1);
});
