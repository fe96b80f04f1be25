//! Work queues: what operators do with many jobs that they have looked at. Ours.

use crate::rig::code;
use dialoq::act::Perform;
use dialoq::protocol::Verb;
use dialoq::protocol::work::{Seen, WorkVerb};
use dialoq::work::JobState;
use dialoq::{Act, Code};
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
