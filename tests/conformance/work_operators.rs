//! Work queues: what operators do with many jobs that they have looked at, and which finished ones they can see. Ours.

use crate::rig::{Rig, code};
use dialoq::act::Perform;
use dialoq::protocol::Verb;
use dialoq::protocol::work::{Hold, Seen, Take, TakeFrom, TakenJob, WorkVerb};
use dialoq::work::{AfterFailure, JobFilter, JobState, ShownState, StatisticsBy};
use dialoq::{Act, Code, JobId, Result};
use std::sync::Arc;

case!(a_job_that_has_changed_since_it_was_looked_at_stays, [243], async |t| {
    t.define("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1").await?;
    let id = t.broker.push_job("w", "a").await?.job.expect("a new job has an id");
    let seen = |state: Option<&str>, token| Some(Seen { state: state.map(Arc::from), token });
    let cancel = |state, token| Verb::Work(WorkVerb::Cancel { job: id, seen: seen(state, token) });
    let redrive = |state, token| Verb::Work(WorkVerb::Redrive { job: id, seen: seen(state, token) });
    let tx = t.broker.begin().await?;
    assert_eq!(code(tx.perform(cancel(Some("scheduled"), 0)).await), Code::LEASE_LOST.0);
    // The refusal has left no lock.
    let job = t.broker.take_jobs("w").await?.remove(0);
    tx.rollback().await?;
    let token = job.taken.token;
    for (state, token) in [
        (Some("ready"), 0),
        (Some("taken"), 0),
        (None, 0),
        (None, token + 1),
        (Some("ready"), token),
        (Some("lost"), token),
        (Some("no such state"), token),
    ] {
        assert_eq!(code(t.broker.perform(cancel(state, token)).await), Code::LEASE_LOST.0, "{state:?} {token}");
        assert_eq!(code(t.broker.perform(redrive(state, token)).await), Code::LEASE_LOST.0, "{state:?} {token}");
    }
    assert_eq!(code(t.broker.perform(redrive(Some("taken"), token)).await), Code::JOB_NOT_DEAD.0);
    assert_eq!(t.broker.fail_job(&job, "no").await?, JobState::Dead);
    assert_eq!(code(t.broker.perform(redrive(Some("taken"), token)).await), Code::LEASE_LOST.0);
    t.broker.perform(redrive(Some("dead"), token)).await?;
    assert_eq!(code(t.broker.perform(redrive(Some("dead"), token)).await), Code::LEASE_LOST.0);
    assert_eq!(code(t.broker.submit(vec![cancel(Some("dead"), token)]).await), Code::LEASE_LOST.0);
    t.broker.submit(vec![cancel(Some("ready"), token)]).await?;
    assert_eq!(code(t.broker.perform(cancel(None, token)).await), Code::JOB_NOT_FOUND.0);
});

case!(the_content_of_a_job_is_read_without_taking_it, [257], async |t| {
    t.define("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1").await?;
    let body = Some(b"a".to_vec());
    let id = t.broker.push_job("w", "a").await?.job.expect("a new job has an id");
    assert_eq!(t.broker.job_body(id).await?, body);
    let tx = t.broker.begin().await?;
    let empty = tx.push_job("w", "").await?.job.expect("a new job has an id");
    let job = tx.take_jobs("w").await?.remove(0);
    assert_eq!(t.broker.job_body(id).await?, body, "a transaction has it");
    assert_eq!(t.broker.job_body(empty).await?, None, "it is not committed");
    tx.fail_job(&job, "no").await?;
    tx.commit().await?;
    assert_eq!(t.broker.job_body(id).await?, body, "it is dead");
    assert_eq!(t.broker.job_body(empty).await?, None, "it has no content");
    t.broker.cancel_job(id).await?;
    assert_eq!(t.broker.job_body(id).await?, None, "it is finished");
});

case!(a_job_that_no_longer_matches_its_filter_stays, [243], async |t| {
    t.define("CREATE WORK QUEUE w WITH RETRY_JITTER_PERCENT = 0").await?;
    let of_error = |text: &str| JobFilter { error: Some(text.into()), ..JobFilter::default() };
    let take = async || Ok::<_, dialoq::Error>(t.broker.take_jobs("w").await?.remove(0));
    t.broker.push_job("w", "a").await?;
    let first = take().await?;
    t.advance(1).await?;
    let hanging = JobFilter { taken_before: Some(t.now()), ..JobFilter::default() };
    let found = t.broker.jobs(&hanging, 9).await?;
    assert_eq!(found.len(), 1);
    t.broker.fail_job(&first, "timeout").await?;
    assert_eq!(t.broker.cancel_found_jobs(&hanging, &found).await?, 0, "its reader has reported");
    t.advance(1).await?;
    let second = take().await?;
    let found = t.broker.jobs(&of_error("timeout"), 9).await?;
    t.broker.fail_job_then(&second, "no such address", AfterFailure::RetryInMs(0)).await?;
    assert_eq!((found.len(), t.broker.cancel_found_jobs(&of_error("timeout"), &found).await?), (1, 0), "another error");
    t.broker.fail_job_then(&take().await?, "timeout", AfterFailure::RetryInMs(1000)).await?;
    let found = t.broker.jobs(&of_error("timeout"), 9).await?;
    t.advance(1).await?;
    assert_eq!(found[0].state, ShownState::Scheduled);
    assert_eq!(t.broker.jobs(&of_error("timeout"), 9).await?[0].state, ShownState::Ready);
    assert_eq!(t.broker.cancel_found_jobs(&of_error("timeout"), &found).await?, 1, "its error is the same");
});

case!(a_take_whose_unit_is_refused_leaves_no_trace, [243, 244], async |t| {
    t.define("CREATE WORK QUEUE w WITH RATE_JOBS = 1, RATE_MS = 60000").await?;
    t.broker.push_job("w", "a").await?;
    let take = Take {
        queue: "w".into(),
        count: 1,
        job_type: None,
        from: TakeFrom::Any,
        hold: Hold::Lease(None),
        taken_by: "reader".into(),
    };
    let stranger = TakenJob { job: JobId(7_000), token: 7 };
    let refused = Verb::Work(WorkVerb::Complete { taken: stranger, result: None });
    let unit = vec![Verb::Work(WorkVerb::Take(Box::new(take))), refused];
    assert_eq!(code(t.broker.submit(unit).await), Code::JOB_NOT_FOUND.0);
    let ready = JobFilter { state: Some(ShownState::Ready), ..JobFilter::default() };
    let found = t.broker.jobs(&ready, 9).await?;
    assert_eq!((found.len(), found[0].attempts, found[0].token), (1, 0, 0));
    assert_eq!(t.broker.cancel_found_jobs(&ready, &found).await?, 1, "it is as it was found");
    t.broker.push_job("w", "b").await?;
    assert_eq!(t.broker.take_jobs("w").await?.len(), 1, "it counts against no rate");
});

case!(a_history_keeps_to_its_bounds, [257], async |t| {
    t.define("CREATE WORK QUEUE w WITH HISTORY_ROWS = 3, HISTORY_SECONDS = 60").await?;
    let finish = async |queue: &str| -> Result<JobId> {
        let job = t.broker.push_job(queue, "a").await?.job.expect("a new job has an id");
        t.broker.complete_job(&t.broker.take_jobs(queue).await?[0]).await?;
        Ok(job)
    };
    let kept = async |queue: &str| -> Result<Vec<JobId>> {
        let filter = JobFilter { queue: Some(queue.into()), ..JobFilter::default() };
        Ok(t.broker.finished_jobs(&filter, 9).await?.iter().map(|job| job.job).collect())
    };
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(finish("w").await?);
    }
    t.advance(10).await?;
    assert_eq!(kept("w").await?, [ids[4], ids[3], ids[2]]);
    t.advance(40).await?;
    let last = finish("w").await?;
    t.advance(20).await?;
    assert_eq!(kept("w").await?, [last], "the others are over a minute old");
    t.advance(50).await?;
    assert_eq!(kept("w").await?, [], "also if no job finishes any more");
    // The first job of a queue, and a cut at the moment at which it is just not too old.
    t.define("CREATE WORK QUEUE v WITH HISTORY_SECONDS = 10").await?;
    finish("v").await?;
    for left in [1, 0] {
        t.advance(10).await?;
        assert_eq!(kept("v").await?.len(), left);
    }
    t.define("CREATE WORK QUEUE u WITH HISTORY = OFF").await?;
    finish("u").await?;
    assert_eq!(kept("u").await?, []);
});

case!(a_history_that_is_bounded_anew_or_opened_again_is_cut, [257], async |t| {
    t.define("CREATE WORK QUEUE w WITH HISTORY_SECONDS = 60").await?;
    for _ in 0..3 {
        t.broker.push_job("w", "a").await?;
        t.broker.take_jobs("w").pop().await?;
    }
    let kept = async |t: &Rig| Ok::<_, dialoq::Error>(t.broker.finished_jobs(&JobFilter::default(), 9).await?.len());
    t.advance(10).await?;
    t.define("ALTER WORK QUEUE w WITH HISTORY_ROWS = 2").await?;
    t.advance(1).await?;
    assert_eq!(kept(&t).await?, 2);
    let t = t.restart_after(40).await?;
    t.advance(1).await?;
    assert_eq!(kept(&t).await?, 2, "they are 52 s old");
    t.advance(20).await?;
    assert_eq!(kept(&t).await?, 0, "though no job has finished since");
});

case!(a_rate_that_is_altered_wakes_readers_at_its_new_times, [246, 247], async |t| {
    for (limit, key) in [("RATE_JOBS", ""), ("KEY_RATE_JOBS", "k")] {
        t.define(&format!("CREATE WORK QUEUE w WITH {limit} = 1, RATE_MS = 40000")).await?;
        for _ in 0..3 {
            t.broker.push_job("w", "a").key(key).await?;
        }
        assert_eq!(t.broker.take_jobs("w").count(9).await?.len(), 1);
        let other = t.clone();
        let mut reader = Box::pin(async move { other.broker.take_jobs("w").wait_forever().await });
        t.still_waits(&mut reader).await;
        // One each ten seconds, and the first has gone.
        t.define(&format!("ALTER WORK QUEUE w WITH {limit} = 4")).await?;
        t.advance(9).await?;
        t.still_waits(&mut reader).await;
        t.advance(1).await?;
        assert_eq!(reader.await?.len(), 1, "{limit}");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_look_compares_types_to_their_last_space, [257], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    let types = ["a", "a "];
    let of_type = |name: &str| JobFilter { job_type: Some(name.into()), ..JobFilter::default() };
    for name in types {
        t.broker.push_job("w", "x").job_type(name).await?;
    }
    for name in types {
        let found = t.broker.jobs(&of_type(name), 9).await?;
        assert_eq!(found.iter().map(|job| &*job.job_type).collect::<Vec<_>>(), [name]);
    }
    for job in t.broker.take_jobs("w").count(9).await? {
        t.broker.complete_job(&job).await?;
    }
    for name in types {
        let found = t.broker.finished_jobs(&of_type(name), 9).await?;
        assert_eq!(found.iter().map(|job| &*job.job_type).collect::<Vec<_>>(), [name]);
    }
});

case!(statistics_tell_names_apart_to_their_last_space, [257], async |t| {
    for queue in ["work", "[ｗork]"] {
        t.define(&format!("CREATE WORK QUEUE {queue}")).await?;
    }
    for queue in ["work", "ｗork"] {
        for reader in ["r", "r ", "R"] {
            t.broker.push_job(queue, "x").await?;
            let job = t.broker.take_jobs(queue).taken_by(reader).await?.remove(0);
            t.broker.complete_job(&job).await?;
        }
    }
    for (by, right) in [(StatisticsBy::Queue, (2, 3)), (StatisticsBy::Reader, (6, 1))] {
        let rows = t.broker.work_statistics(None, by).await?;
        assert_eq!((rows.len(), rows.iter().all(|row| row.jobs == right.1)), (right.0, true), "{rows:?}");
    }
});
