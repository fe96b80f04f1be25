//! Jobs of one key, and takes that ask for a type or for levels. Ours.

use crate::rig::{Case, Rig};
use crate::servers::Store;
use dialoq::work::{AfterFailure, Job, TakeJobs};
use dialoq::{Act, JobId, Result};
use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) fn runs_on(case: &Case, store: Store) -> bool {
    // The embedded store has no functions.
    let is_for_servers = case.name.starts_with("plain_sql_");
    store.is_server() || !is_for_servers
}

async fn with(t: &Rig, options: &str) -> Result<()> {
    t.define(&format!("CREATE WORK QUEUE w WITH RETRY_JITTER_PERCENT = 0, {options}")).await.map(drop)
}

/// Pushes jobs of a key; each name is a type, a number, and perhaps `/` and a level.
async fn push(t: &Rig, key: Option<&str>, names: &str) -> Result<Vec<JobId>> {
    let mut ids = Vec::new();
    for name in names.split(' ') {
        let (_, level) = name.split_once('/').unwrap_or((name, "5"));
        let push = t.broker.push_job("w", name).job_type(&name[..1]).level(level.parse().unwrap());
        let pushed = match key {
            Some(key) => push.key(key).await?,
            None => push.await?,
        };
        ids.extend(pushed.job);
    }
    Ok(ids)
}

fn leased(t: &Rig, count: u32) -> TakeJobs<'_> {
    t.broker.take_jobs("w").count(count).lease(Duration::from_secs(60))
}

async fn of_type(t: &Rig, job_type: &str, count: u32) -> Result<Vec<Job>> {
    leased(t, count).job_type(job_type).await
}

async fn of_levels(t: &Rig, levels: RangeInclusive<u8>, count: u32) -> Result<Vec<Job>> {
    leased(t, count).levels(levels).await
}

fn names(jobs: &[Job]) -> String {
    jobs.iter().map(|job| std::str::from_utf8(job.body()).unwrap()).collect::<Vec<_>>().join(" ")
}

case!(a_strict_queue_gives_no_type_before_the_first_job_of_its_key, [235, 237], async |t| {
    for key in [Some("k"), None] {
        with(&t, "ORDER = FIFO_STRICT, MAX_ATTEMPTS = 2").await?;
        push(&t, key, "a1 b2 b3").await?;
        push(&t, Some("other"), "b4").await?;
        assert_eq!(names(&of_type(&t, "b", 9).await?), "b4", "a1 is ready");
        let first = of_type(&t, "a", 1).await?;
        assert_eq!(names(&of_type(&t, "b", 9).await?), "", "a1 is taken");
        t.broker.fail_job(&first[0], "broken").await?;
        assert_eq!(names(&of_type(&t, "b", 9).await?), "", "a1 waits for its next attempt");
        t.advance(1).await?;
        assert_eq!(names(&of_type(&t, "b", 9).await?), "", "a1 is ready again");
        let again = of_type(&t, "a", 9).await?;
        assert_eq!(names(&again), "a1");
        t.broker.complete_job(&again[0]).await?;
        let second = of_type(&t, "b", 9).await?;
        assert_eq!(names(&second), "b2", "one of its key at a time");
        t.broker.fail_job_then(&second[0], "broken", AfterFailure::Dead).await?;
        assert_eq!(names(&of_type(&t, "b", 9).await?), "b3", "a dead job holds none up");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_scheduled_job_of_a_strict_queue_holds_no_type_up_before_it_is_due, [235, 237, 241], async |t| {
    with(&t, "ORDER = FIFO_STRICT").await?;
    let later = t.broker.push_job("w", "a1").job_type("a").key("k").run_after(Duration::from_secs(5)).await?;
    assert!(later.is_new);
    push(&t, Some("k"), "b2").await?;
    assert_eq!(names(&of_type(&t, "b", 9).await?), "b2");
    push(&t, Some("k"), "b3").await?;
    t.advance(5).await?;
    assert_eq!(names(&of_type(&t, "a", 9).await?), "", "b2 is taken");
});

case!(a_strict_queue_looks_for_a_type_among_as_many_jobs_as_may_be_taken, [235, 245], async |t| {
    with(&t, "ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 2").await?;
    push(&t, Some("k"), "a1 b2 b3 b4").await?;
    let second = of_type(&t, "b", 9).await?;
    assert_eq!(names(&second), "b2", "a1 and b2 are the first two");
    t.broker.complete_job(&second[0]).await?;
    assert_eq!(names(&of_type(&t, "b", 9).await?), "b3");
    assert_eq!(names(&leased(&t, 9).await?), "a1");
    push(&t, None, "a5 b6").await?;
    assert_eq!(names(&of_type(&t, "b", 9).await?), "", "of jobs without a key one at a time");
});

case!(a_strict_queue_looks_for_a_type_no_further_than_the_rate_of_its_key_goes, [235, 245, 246], async |t| {
    with(&t, "ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 3, KEY_RATE_JOBS = 2, RATE_MS = 2000").await?;
    push(&t, Some("k"), "a1 b2 b3 a4 b5").await?;
    assert_eq!(names(&of_type(&t, "b", 9).await?), "b2", "the rate lets a1 and b2 go");
    assert_eq!(names(&of_type(&t, "b", 9).await?), "", "a1 would use the rate up");
    t.advance(1).await?;
    assert_eq!(names(&of_type(&t, "b", 1).await?), "b3", "it lets a1 and b3 go");
    assert_eq!(names(&of_type(&t, "a", 9).await?), "a1");
    t.advance(4).await?;
    assert_eq!(names(&of_type(&t, "b", 9).await?), "", "three of the key are taken");
});

case!(a_cancel_that_is_not_committed_holds_up_the_later_jobs_of_a_strict_queue, [235, 243], async |t| {
    with(&t, "ORDER = FIFO_STRICT").await?;
    let ids = push(&t, Some("k"), "a1 b2").await?;
    for is_commit in [false, true] {
        let tx = t.begin().await?;
        tx.0.cancel_job(ids[0]).await?;
        assert_eq!(names(&leased(&t, 9).await?), "", "a rollback would bring a1 back");
        if is_commit {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
            let first = leased(&t, 9).await?;
            assert_eq!(names(&first), "a1");
            t.broker.fail_job_then(&first[0], "", AfterFailure::RetryInMs(0)).await?;
        }
    }
    assert_eq!(names(&leased(&t, 9).await?), "b2");
});

case!(a_cancel_that_is_not_committed_holds_up_no_earlier_job_of_a_strict_queue, [235, 243], async |t| {
    for (limit, key, given) in
        [("", None, "a1"), ("", Some("k"), "a1"), (", MAX_TAKEN_PER_KEY = 2", Some("k"), "a1 b2")]
    {
        with(&t, &format!("ORDER = FIFO_STRICT{limit}")).await?;
        let ids = push(&t, key, "a1 b2 a3 b4").await?;
        let tx = t.begin().await?;
        tx.0.cancel_job(ids[2]).await?;
        let first = leased(&t, 9).await?;
        assert_eq!(names(&first), given);
        for job in &first {
            t.broker.complete_job(job).await?;
        }
        tx.rollback().await?;
        let second = leased(&t, 9).await?;
        assert_eq!(names(&second), if limit.is_empty() { "b2" } else { "a3 b4" });
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_key_with_a_limit_gives_a_job_of_a_type_behind_one_of_another, [237, 245], async |t| {
    for order in ["FIFO", "LIFO", "UNORDERED", "PRIORITY"] {
        with(&t, &format!("MAX_TAKEN_PER_KEY = 1, ORDER = {order}")).await?;
        push(&t, Some("k"), "a1 b2 a3").await?;
        let second = of_type(&t, "b", 9).await?;
        assert_eq!(names(&second), "b2", "{order}");
        for job_type in ["a", "b"] {
            assert_eq!(names(&of_type(&t, job_type, 9).await?), "", "{order}: one of the key is taken");
        }
        assert_eq!(names(&leased(&t, 9).await?), "", "{order}");
        t.broker.complete_job(&second[0]).await?;
        assert_eq!(of_type(&t, "a", 9).await?.len(), 1, "{order}");
        assert_eq!(names(&of_type(&t, "a", 9).await?), "", "{order}");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_batch_takes_of_each_key_what_its_limit_leaves, [237, 245], async |t| {
    with(&t, "MAX_TAKEN_PER_KEY = 2").await?;
    push(&t, Some("k"), "a1 a2 b3 b4 b5").await?;
    push(&t, Some("l"), "a6 b7 a8 a9").await?;
    push(&t, None, "b0").await?;
    let first = of_type(&t, "b", 9).await?;
    assert_eq!(names(&first), "b3 b4 b7 b0");
    let second = leased(&t, 9).await?;
    assert_eq!(names(&second), "a6", "of k two are taken, of l one");
    t.broker.complete_job(&first[1]).await?;
    t.broker.fail_job_then(&second[0], "", AfterFailure::Dead).await?;
    assert_eq!(names(&of_type(&t, "a", 9).await?), "a1 a8");
    t.broker.cancel_job(first[0].taken.job).await?;
    assert_eq!(names(&leased(&t, 9).await?), "a2");
});

/// Many jobs of one key, of which one may be taken, and it is.
async fn fill_a_key(t: &Rig, levels: &[u8]) -> Result<()> {
    let tx = t.begin().await?;
    for level in levels {
        for _ in 0..210 {
            tx.0.push_job("w", "full").job_type("a").key("full").level(*level).await?;
        }
    }
    tx.commit().await?;
    let first = leased(t, 1).await?;
    assert_eq!(names(&first), "full");
    Ok(())
}

case!(jobs_behind_many_of_a_full_key_are_taken_in_the_order_of_their_queue, [235, 237, 245], async |t| {
    for order in ["FIFO", "LIFO"] {
        with(&t, &format!("MAX_TAKEN_PER_KEY = 1, ORDER = {order}")).await?;
        let mut others = [(Some("k"), "a1"), (Some("l"), "b2"), (None, "a3"), (Some("k"), "b4"), (None, "b5")];
        let mut first = Vec::new();
        if order == "LIFO" {
            others.reverse();
        } else {
            fill_a_key(&t, &[5]).await?;
        }
        for (key, name) in others {
            push(&t, key, name).await?;
        }
        if order == "LIFO" {
            fill_a_key(&t, &[5]).await?;
        }
        for (job_type, count, given) in [("b", 1, "b2"), ("a", 1, "a1"), ("b", 9, "b5"), ("a", 9, "a3"), ("b", 9, "")] {
            let jobs = of_type(&t, job_type, count).await?;
            assert_eq!(names(&jobs), given, "{order}: {job_type}");
            first.extend(jobs);
        }
        assert_eq!(names(&leased(&t, 9).await?), "", "{order}: a1 is taken");
        t.broker.complete_job(&first[1]).await?;
        push(&t, Some("m"), "a6").await?;
        push(&t, None, "a7").await?;
        let given = if order == "LIFO" { "a7 a6 b4" } else { "b4 a6 a7" };
        assert_eq!(names(&leased(&t, 9).await?), given, "{order}");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(jobs_behind_many_of_a_full_key_are_taken_by_level_and_by_age, [235, 236, 245], async |t| {
    with(&t, "MAX_TAKEN_PER_KEY = 1, ORDER = PRIORITY").await?;
    fill_a_key(&t, &[9, 5]).await?;
    push(&t, Some("k"), "b1/2 b2/8").await?;
    push(&t, Some("l"), "a3/8 b4/5").await?;
    push(&t, None, "b5/8 a6/2").await?;
    assert_eq!(names(&leased(&t, 1).levels(2..=5).await?), "b4/5");
    assert_eq!(names(&leased(&t, 1).oldest().await?), "b1/2");
    assert_eq!(names(&leased(&t, 1).oldest().await?), "b5/8", "k and l are taken");
    assert_eq!(names(&of_levels(&t, 5..=9, 9).await?), "");
    push(&t, Some("m"), "a7/3 a8/7").await?;
    assert_eq!(names(&leased(&t, 2).oldest().await?), "a6/2 a7/3");
    assert_eq!(names(&leased(&t, 9).await?), "");
});

case!(a_key_with_a_limit_gives_a_job_of_a_level_behind_one_of_another, [236, 245], async |t| {
    with(&t, "MAX_TAKEN_PER_KEY = 1, ORDER = PRIORITY").await?;
    push(&t, Some("k"), "a1/9 b2/3 a3/3").await?;
    push(&t, Some("l"), "b4/2 a5/3").await?;
    let low = of_levels(&t, 1..=3, 9).await?;
    assert_eq!(names(&low), "b2/3 a5/3");
    assert_eq!(names(&of_levels(&t, 9..=9, 9).await?), "", "b2 is taken");
    t.broker.complete_job(&low[0]).await?;
    assert_eq!(names(&leased(&t, 9).levels(1..=3).job_type("a").await?), "a3/3");
    t.broker.complete_job(&low[1]).await?;
    assert_eq!(names(&leased(&t, 9).oldest().job_type("b").await?), "b4/2");
    assert_eq!(names(&leased(&t, 9).oldest().await?), "", "a1 waits for a3");
});

case!(a_key_under_a_rate_gives_a_job_of_a_type_behind_one_of_another, [237, 246], async |t| {
    with(&t, "KEY_RATE_JOBS = 1, RATE_MS = 1000").await?;
    push(&t, Some("k"), "a1 b2 b3 a4").await?;
    for (job_type, right) in [("b", "b2"), ("a", "a1"), ("a", "a4"), ("b", "b3")] {
        assert_eq!(names(&of_type(&t, job_type, 9).await?), right);
        for other in ["a", "b"] {
            assert_eq!(names(&of_type(&t, other, 9).await?), "", "one each second");
        }
        t.advance(1).await?;
    }
});

case!(a_rate_lets_as_many_jobs_go_at_once_as_it_says, [246], async |t| {
    for (limit, key) in [("RATE_JOBS", None), ("KEY_RATE_JOBS", Some("k"))] {
        with(&t, &format!("{limit} = 60, RATE_MS = 1")).await?;
        push(&t, key, &["a"; 64].join(" ")).await?;
        assert_eq!(leased(&t, 64).await?.len(), 60, "{limit}");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_reader_that_its_caller_does_not_poll_keeps_no_job_from_another, [254], async |t| {
    with(&t, "LEASE_MS = 60000").await?;
    let wait = |t: &Rig| {
        let other = t.clone();
        Box::pin(async move { other.broker.take_jobs("w").wait_forever().await })
    };
    let (mut unpolled, mut waiting) = (wait(&t), wait(&t));
    t.still_waits(&mut unpolled).await;
    t.still_waits(&mut waiting).await;
    push(&t, None, "a1").await?;
    assert_eq!(names(&waiting.await?), "a1");
    push(&t, None, "a2").await?;
    assert_eq!(names(&unpolled.await?), "a2");
});

case!(a_reader_of_one_type_is_woken_though_its_key_has_a_job_of_another, [237, 245, 254], async |t| {
    with(&t, "MAX_TAKEN_PER_KEY = 1").await?;
    push(&t, Some("k"), "a1").await?;
    let reader = |t: &Rig| {
        let other = t.clone();
        Box::pin(async move { other.broker.take_jobs("w").job_type("b").wait_forever().await })
    };
    let mut first = reader(&t);
    t.still_waits(&mut first).await;
    push(&t, Some("k"), "b2 b3").await?;
    let second = first.await?;
    assert_eq!(names(&second), "b2");
    let mut next = reader(&t);
    t.still_waits(&mut next).await;
    t.broker.complete_job(&second[0]).await?;
    assert_eq!(names(&next.await?), "b3");
});

case!(a_unique_key_ends_with_its_job_or_window_also_after_a_restart, [242, 255], async |t| {
    with(&t, "ORDER = FIFO").await?;
    t.broker.push_job("w", "a").unique("of a job").await?;
    t.broker.push_job("w", "b").unique_within("of a window", Duration::from_secs(100)).await?;
    let t = t.restart().await?;
    let again = async |key: &str| Ok::<_, dialoq::Error>(t.broker.push_job("w", "c").unique(key).await?.is_new);
    assert!(!again("of a job").await? && !again("of a window").await?);
    for job in leased(&t, 9).await? {
        t.broker.complete_job(&job).await?;
    }
    assert!(again("of a job").await? && !again("of a window").await?);
    t.advance(100).await?;
    assert!(again("of a window").await?);
});
