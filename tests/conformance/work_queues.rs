//! Work queues: jobs without conversations. Ours.

use crate::rig::{Rig, code};
use dialoq::work::{AfterFailure, Job, JobFilter, JobState, ShownState, StatisticsBy, TakenJob, WorkQueue};
use dialoq::{Act, Broker, Code, JobId, Result, Timestamp};
use std::time::Duration;

const W: WorkQueue<String> = WorkQueue::text("w");

/// A broker with a work queue `w`; pauses have no jitter, unless the options say so.
async fn with(t: &Rig, options: &str) -> Result<()> {
    let more = if options.is_empty() { String::new() } else { format!(", {options}") };
    t.define(&format!("CREATE WORK QUEUE w WITH RETRY_JITTER_PERCENT = 0{more}")).await.map(drop)
}

async fn push(act: &impl Act, name: &str) -> Result<JobId> {
    let pushed = act.push_job(W, &name.to_owned()).await?;
    assert!(pushed.is_new);
    Ok(pushed.job.expect("a new job has an id"))
}

async fn push_key(act: &impl Act, name: &str, key: &str) -> Result<()> {
    act.push_job(W, &name.to_owned()).key(key).await.map(drop)
}

async fn take(act: &impl Act, count: u32) -> Result<Vec<Job>> {
    act.take_jobs(W).count(count).lease(Duration::from_secs(60)).await
}

fn names(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| std::str::from_utf8(job.body()).unwrap()).collect()
}

/// The names of the jobs that a take gives now.
async fn taken(act: &impl Act, count: u32) -> Result<String> {
    Ok(names(&take(act, count).await?).join(" "))
}

case!(a_job_goes_from_its_writer_to_one_reader, [233, 234], async |t| {
    with(&t, "").await?;
    let queue: WorkQueue<Vec<u32>> = WorkQueue::json("W");
    let pushed = t.broker.push_job(queue, &vec![1, 2]).job_type("mail").key("k").level(7).pushed_by("me").await?;
    let jobs = t.broker.take_jobs("w").count(5).taken_by("you").await?;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((job.decode(queue)?, Some(job.taken.job)), (vec![1, 2], pushed.job));
    assert_eq!((&*job.job_type, job.key.as_deref(), job.level, job.attempt), ("mail", Some("k"), 7, 1));
    assert_eq!((&*job.pushed_by, &*job.queue, job.pushed_at), ("me", "w", t.now()));
    assert_eq!(job.lease_until, Some(t.now().after(Duration::from_secs(60))));
    assert!(t.broker.take_jobs("w").await?.is_empty());
    t.broker.report_job(job, "half").await?;
    t.broker.complete_job_with(job, "done").await?;
    assert_eq!(code(t.broker.complete_job(job).await), Code::JOB_NOT_FOUND.0);
});

case!(bodies_of_every_kind_come_back, [233], async |t| {
    with(&t, "").await?;
    for body in [vec![], vec![0, 255, 10], vec![7; 300_000]] {
        t.broker.push_job("w", &body).await?;
        let jobs = take(&t.broker, 1).await?;
        assert!(jobs[0].body() == body, "{} bytes", body.len());
    }
});

case!(orders, [235], async |t| {
    let orders = [("FIFO", "a b c d"), ("LIFO", "d c b a"), ("PRIORITY", "b c a d"), ("FIFO_STRICT", "a")];
    for (order, right) in orders {
        with(&t, &format!("ORDER = {order}")).await?;
        for (name, level) in [("a", 3), ("b", 9), ("c", 9), ("d", 1)] {
            t.broker.push_job(W, &name.to_owned()).level(level).await?;
        }
        assert_eq!(taken(&t.broker, 10).await?, right, "{order}");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_strict_queue_waits_for_the_next_attempt_of_a_failed_job, [235], async |t| {
    with(&t, "ORDER = FIFO_STRICT").await?;
    push(&t.broker, "a").await?;
    push(&t.broker, "b").await?;
    let first = take(&t.broker, 2).await?;
    assert_eq!(t.broker.fail_job(&first[0], "broken").await?, JobState::Scheduled);
    assert_eq!(taken(&t.broker, 2).await?, "");
    t.advance(1).await?;
    let again = take(&t.broker, 2).await?;
    assert_eq!((names(&again), again[0].attempt, again[0].last_error.as_deref()), (vec!["a"], 2, Some("broken")));
    t.broker.fail_job_then(&again[0], "broken", AfterFailure::Dead).await?;
    assert_eq!(taken(&t.broker, 2).await?, "b", "a dead job holds none up");
});

case!(levels_and_the_oldest, [236], async |t| {
    with(&t, "ORDER = PRIORITY").await?;
    for (name, level) in [("a", 1), ("b", 10), ("c", 5), ("d", 5)] {
        t.broker.push_job(W, &name.to_owned()).level(level).job_type(name).await?;
    }
    assert_eq!(names(&t.broker.take_jobs(W).levels(3..=8).await?), ["c"]);
    assert_eq!(names(&t.broker.take_jobs(W).oldest().job_type("d").await?), ["d"]);
    assert!(t.broker.take_jobs(W).levels(3..=8).await?.is_empty());
    assert_eq!(names(&t.broker.take_jobs(W).oldest().count(2).await?), ["a", "b"]);
    for (lowest, highest) in [(5, 4), (0, 3), (5, 11)] {
        let levels = std::ops::RangeInclusive::new(lowest, highest);
        assert_eq!(code(t.broker.take_jobs(W).levels(levels).await), Code::OUT_OF_RANGE.0);
    }
    t.define("CREATE WORK QUEUE plain").await?;
    assert_eq!(code(t.broker.take_jobs("plain").oldest().await), Code::OUT_OF_RANGE.0);
});

case!(a_type_is_taken_without_the_others, [237], async |t| {
    with(&t, "").await?;
    for (name, job_type) in [("a", "mail"), ("b", "print"), ("c", "mail"), ("d", "Mail")] {
        t.broker.push_job(W, &name.to_owned()).job_type(job_type).await?;
    }
    for (job_type, right) in [("print", vec!["b"]), ("unknown", vec![]), ("mail", vec!["a", "c"])] {
        assert_eq!(names(&t.broker.take_jobs(W).job_type(job_type).count(9).await?), right);
    }
    assert_eq!(taken(&t.broker, 9).await?, "d");
});

case!(attempts_end_in_the_dead_letter_and_begin_again_after_a_redrive, [238, 239], async |t| {
    with(&t, "MAX_ATTEMPTS = 3").await?;
    let id = push(&t.broker, "a").await?;
    assert_eq!(code(t.broker.redrive_job(id).await), Code::JOB_NOT_DEAD.0);
    for (attempt, pause_ms) in [(1, 1000), (2, 2000), (3, 0)] {
        let job = take(&t.broker, 1).await?.remove(0);
        assert_eq!(job.attempt, attempt);
        let expected = if attempt < 3 { JobState::Scheduled } else { JobState::Dead };
        assert_eq!(t.broker.fail_job(&job, "broken").await?, expected);
        if pause_ms > 0 {
            t.advance_ms(pause_ms - 1).await?;
            assert_eq!(taken(&t.broker, 1).await?, "", "attempt {attempt}");
            t.advance_ms(1).await?;
        }
    }
    t.advance(9999).await?;
    assert_eq!(taken(&t.broker, 1).await?, "");
    t.broker.redrive_job(id).await?;
    assert_eq!(take(&t.broker, 1).await?[0].attempt, 1);
});

case!(pauses_have_the_same_jitter_on_every_store, [238], async |t| {
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 1000, RETRY_JITTER_PERCENT = 50, RETRY_FACTOR_PERCENT = 150")
        .await?;
    let job = push(&t.broker, "a").await?;
    // By the formula, with the id of the first job.
    assert_eq!(job, JobId(1));
    for (attempt, pause_us) in [(1_i64, 1_000_000_i64), (2, 1_500_000)] {
        let spread = (7919 + attempt * 104_729) % 2001;
        let pause_ms = (pause_us + pause_us / 1000 * (spread - 1000) / 100 * 50).cast_unsigned() / 1000;
        let job = take(&t.broker, 1).await?.remove(0);
        t.broker.fail_job(&job, "").await?;
        t.advance_ms(pause_ms - 1).await?;
        assert_eq!(taken(&t.broker, 1).await?, "", "{attempt}");
        t.advance_ms(2).await?;
    }
    assert_eq!(taken(&t.broker, 1).await?, "a");
});

case!(a_reader_may_say_when_the_next_attempt_is, [238], async |t| {
    with(&t, "").await?;
    push(&t.broker, "a").await?;
    let job = take(&t.broker, 1).await?.remove(0);
    assert_eq!(t.broker.fail_job_then(&job, "", AfterFailure::RetryInMs(0)).await?, JobState::Ready);
    let job = take(&t.broker, 1).await?.remove(0);
    assert_eq!(t.broker.fail_job_then(&job, "", AfterFailure::RetryInMs(70)).await?, JobState::Scheduled);
    t.advance_ms(70).await?;
    assert_eq!(taken(&t.broker, 1).await?, "a");
});

case!(a_lease_ends_by_itself_unless_it_is_extended, [240], async |t| {
    with(&t, "LEASE_MS = 100, RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "a").await?;
    let first = t.broker.take_jobs(W).await?.remove(0);
    let untaken = TakenJob { job: push(&t.broker, "b").await?, token: 0 };
    assert_eq!(code(t.broker.complete_job(untaken).await), Code::LEASE_LOST.0, "no reader has taken it");
    t.broker.cancel_job(untaken.job).await?;
    t.advance_ms(50).await?;
    t.broker.extend_job(&first, Some(Duration::from_millis(300))).await?;
    t.advance_ms(299).await?;
    t.broker.report_job(&first, "half").await?;
    t.advance_ms(1).await?;
    assert_eq!(code(t.broker.complete_job(&first).await), Code::JOB_NOT_TAKEN.0);
    let second = t.broker.take_jobs(W).await?.remove(0);
    assert_eq!((second.attempt, second.last_error.as_deref()), (2, Some("its lease was over")));
    assert!(second.taken.token > first.taken.token, "the fencing token grows");
    for stale in [t.broker.complete_job(&first).await, t.broker.report_job(&first, "").await] {
        assert_eq!(code(stale), Code::LEASE_LOST.0);
    }
    t.broker.extend_job(&second, None).await?;
    t.advance_ms(99).await?;
    t.broker.complete_job(&second).await?;
});

case!(a_job_becomes_ready_at_its_time, [241], async |t| {
    with(&t, "").await?;
    let at = |ms: i64| Timestamp(t.now().0 + ms * 1000);
    t.broker.push_job(W, &"later".to_owned()).run_after(Duration::from_millis(100)).await?;
    t.broker.push_job(W, &"sooner".to_owned()).run_at(at(50)).await?;
    t.broker.push_job(W, &"past".to_owned()).run_at(at(-50)).await?;
    t.broker.push_job(W, &"never".to_owned()).run_at(Timestamp(i64::MAX)).await?;
    assert_eq!(taken(&t.broker, 9).await?, "past");
    for right in ["sooner", "later"] {
        t.advance_ms(49).await?;
        assert_eq!(taken(&t.broker, 9).await?, "");
        t.advance_ms(1).await?;
        assert_eq!(taken(&t.broker, 9).await?, right);
    }
});

case!(a_unique_key_takes_one_job, [242], async |t| {
    with(&t, "").await?;
    let again = async |window: Option<u64>| {
        let push = t.broker.push_job("w", "u");
        let pushed = match window {
            Some(ms) => push.unique_within("u", Duration::from_millis(ms)).await?,
            None => push.unique("u").await?,
        };
        Ok::<_, dialoq::Error>((pushed.job, pushed.is_new))
    };
    let (first, is_new) = again(None).await?;
    assert!(is_new);
    assert_eq!(again(None).await?, (first, false));
    let job = take(&t.broker, 1).await?.remove(0);
    assert_eq!(again(None).await?, (first, false), "while a reader works on it");
    t.broker.complete_job(&job).await?;
    let (second, is_new) = again(Some(100)).await?;
    assert!(is_new && second != first);
    t.broker.complete_job(&take(&t.broker, 1).await?[0]).await?;
    t.advance_ms(99).await?;
    assert_eq!(again(None).await?, (None, false), "the window outlasts the job");
    t.advance_ms(1).await?;
    let (third, is_new) = again(None).await?;
    assert!(is_new && third.is_some());
    t.broker.cancel_job(third.unwrap()).await?;
    assert!(again(None).await?.1, "a cancelled job gives its name back");
});

case!(two_transactions_do_not_push_one_unique_key, [242], async |t| {
    with(&t, "").await?;
    let tx = t.begin().await?;
    let first = tx.0.push_job("w", "a").unique("u").await?;
    assert!(first.is_new);
    let own = tx.0.push_job("w", "a").unique("u").await?;
    assert_eq!((own.job, own.is_new), (first.job, false));
    assert_eq!(code(t.broker.push_job("w", "a").unique("u").await), Code::JOB_LOCKED.0);
    assert!(t.broker.push_job("w", "a").unique("other").await?.is_new);
    tx.rollback().await?;
    assert!(t.broker.push_job("w", "a").unique("u").await?.is_new);
});

case!(a_transaction_may_replace_a_unique_job, [242], async |t| {
    with(&t, "").await?;
    let again = async |act: &dialoq::Tx| act.push_job(W, &"again".to_owned()).unique("u").await;
    t.broker.push_job(W, &"first".to_owned()).unique("u").await?;
    for (is_cancelled, is_commit, left) in [(true, false, "first"), (true, true, "again"), (false, true, "again")] {
        let job = take(&t.broker, 1).await?.remove(0);
        let tx = t.begin().await?;
        assert!(!again(&tx.0).await?.is_new);
        if is_cancelled {
            tx.0.cancel_job(job.taken.job).await?;
        } else {
            tx.0.complete_job(&job).await?;
        }
        let pushed = again(&tx.0).await?;
        assert!(pushed.is_new && !again(&tx.0).await?.is_new);
        if is_commit {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
            t.broker.fail_job_then(&job, "", AfterFailure::RetryInMs(0)).await?;
        }
        let now = take(&t.broker, 9).await?;
        assert_eq!(names(&now), [left]);
        assert!(!t.broker.push_job(W, &"no".to_owned()).unique("u").await?.is_new);
        t.broker.fail_job_then(&now[0], "", AfterFailure::RetryInMs(0)).await?;
    }
    // A job of the transaction itself, and a name that is kept for its time.
    let tx = t.begin().await?;
    for _ in 0..2 {
        let own = tx.0.push_job(W, &"own".to_owned()).unique("v").await?;
        assert!(own.is_new);
        tx.0.cancel_job(own.job.unwrap()).await?;
    }
    let kept = tx.0.push_job(W, &"kept".to_owned()).unique_within("v", Duration::from_secs(9)).await?;
    tx.0.cancel_job(kept.job.unwrap()).await?;
    let no = tx.0.push_job(W, &"no".to_owned()).unique("v").await?;
    assert_eq!((no.job, no.is_new), (None, false), "its job is finished");
    tx.commit().await?;
    assert_eq!(taken(&t.broker, 9).await?, "again");
});

case!(a_cancelled_job_is_gone_for_its_reader_too, [243], async |t| {
    with(&t, "").await?;
    let one = push(&t.broker, "a").await?;
    let two = t.broker.push_job(W, &"b".to_owned()).run_after(Duration::from_secs(9)).await?.job.unwrap();
    let job = take(&t.broker, 1).await?.remove(0);
    for id in [one, two] {
        t.broker.cancel_job(id).await?;
        assert_eq!(code(t.broker.cancel_job(id).await), Code::JOB_NOT_FOUND.0);
    }
    assert_eq!(code(t.broker.complete_job(&job).await), Code::JOB_NOT_FOUND.0);
});

case!(bad_input_changes_nothing, [244], async |t| {
    with(&t, "").await?;
    let (long, too_long) = ("ä".repeat(128), "ä".repeat(129));
    assert_eq!(code(t.broker.push_job("nowhere", "a").await), Code::OBJECT_NOT_FOUND.0);
    assert_eq!(code(t.broker.take_jobs("nowhere").await), Code::OBJECT_NOT_FOUND.0);
    let push = || t.broker.push_job("w", "a");
    let bad = [
        push().level(0).await,
        push().level(11).await,
        push().run_after(Duration::MAX).await,
        push().key(&*too_long).await,
        push().job_type(&*too_long).await,
        push().job_type("a\0").await,
        push().pushed_by(&*too_long).await,
        push().unique(&*too_long).await,
        push().unique_within("u", Duration::ZERO).await,
    ];
    for (place, refused) in bad.into_iter().enumerate() {
        assert_eq!(code(refused), Code::OUT_OF_RANGE.0, "{place}");
    }
    for count in [0, 10_001] {
        assert_eq!(code(t.broker.take_jobs(W).count(count).await), Code::OUT_OF_RANGE.0);
    }
    for refused in [
        t.broker.take_jobs(W).lease(Duration::ZERO).await,
        t.broker.take_jobs(W).taken_by(&*too_long).await,
        t.broker.take_jobs(W).job_type(&*too_long).await,
    ] {
        assert_eq!(code(refused), Code::OUT_OF_RANGE.0);
    }
    let stranger = TakenJob { job: JobId(7_000), token: 7 };
    assert_eq!(code(t.broker.complete_job(stranger).await), Code::JOB_NOT_FOUND.0);
    assert_eq!(code(t.broker.fail_job(stranger, "x".repeat(3001)).await), Code::OUT_OF_RANGE.0);
    assert_eq!(code(t.broker.fail_job_then(stranger, "", AfterFailure::RetryInMs(-1)).await), Code::OUT_OF_RANGE.0);
    assert_eq!(code(t.broker.report_job(stranger, "x".repeat(3001)).await), Code::OUT_OF_RANGE.0);
    assert_eq!(code(t.broker.extend_job(stranger, Some(Duration::ZERO)).await), Code::OUT_OF_RANGE.0);
    assert_eq!(code(t.broker.redrive_job(JobId(7_000)).await), Code::JOB_NOT_FOUND.0);
    assert_eq!(taken(&t.broker, 9).await?, "");
    push().key(&*long).job_type(&*long).pushed_by(&*long).unique(&*long).await?;
    let job = take(&t.broker, 1).await?.remove(0);
    t.broker.fail_job(&job, "ä".repeat(3000)).await?;
});

case!(max_taken_is_a_limit_of_the_queue, [245], async |t| {
    with(&t, "MAX_TAKEN = 2").await?;
    for name in ["a", "b", "c"] {
        push(&t.broker, name).await?;
    }
    let first = take(&t.broker, 9).await?;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(taken(&t.broker, 9).await?, "");
    t.broker.complete_job(&first[1]).await?;
    assert_eq!(taken(&t.broker, 9).await?, "c");
});

case!(jobs_of_one_key_keep_their_order, [245], async |t| {
    with(&t, "MAX_TAKEN_PER_KEY = 1").await?;
    for (name, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")] {
        push_key(&t.broker, name, key).await?;
    }
    push(&t.broker, "free").await?;
    let first = take(&t.broker, 9).await?;
    assert_eq!(names(&first), ["a1", "b1", "free"], "one of each key, and any without");
    t.broker.complete_job(&first[0]).await?;
    let second = take(&t.broker, 9).await?;
    assert_eq!(names(&second), ["a2"]);
    t.broker.cancel_job(second[0].taken.job).await?;
    t.broker.complete_job(&first[1]).await?;
    assert_eq!(taken(&t.broker, 9).await?, "a3 b2");
});

case!(a_strict_queue_with_keys_is_strict_in_each_key, [235, 245], async |t| {
    with(&t, "ORDER = FIFO_STRICT").await?;
    for (name, key) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        push_key(&t.broker, name, key).await?;
    }
    let first = take(&t.broker, 9).await?;
    assert_eq!(names(&first), ["a1", "b1"]);
    t.broker.fail_job(&first[0], "").await?;
    assert_eq!(taken(&t.broker, 9).await?, "", "a2 waits for the next attempt of a1");
});

case!(a_rate_lets_a_burst_go_and_then_one_job_after_the_other, [246], async |t| {
    for (limit, key) in [("RATE_JOBS", None), ("KEY_RATE_JOBS", Some("k"))] {
        with(&t, &format!("{limit} = 4, RATE_MS = 1000")).await?;
        for _ in 0..20 {
            let push = t.broker.push_job("w", "a");
            match key {
                Some(key) => push.key(key).await?,
                None => push.await?,
            };
        }
        let mut at = Vec::new();
        for ms in (0..1500).step_by(125) {
            at.extend(take(&t.broker, 9).await?.iter().map(|_| ms));
            t.advance_ms(125).await?;
        }
        assert_eq!(at, [0, 0, 0, 0, 250, 500, 750, 1000, 1250], "{limit}");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_key_over_its_rate_holds_no_other_up, [246], async |t| {
    with(&t, "KEY_RATE_JOBS = 1, RATE_MS = 1000").await?;
    for (name, key) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")] {
        push_key(&t.broker, name, key).await?;
    }
    assert_eq!(taken(&t.broker, 9).await?, "a1 b1");
    // Readers are woken for the next.
    let other = t.clone();
    let mut reader = Box::pin(async move { other.broker.take_jobs(W).wait_forever().await });
    t.still_waits(&mut reader).await;
    t.advance(1).await?;
    assert_eq!(names(&reader.await?), ["a2"]);
});

case!(a_clock_that_is_set_back_does_not_stop_a_rate, [246], async |t| {
    for (limit, key) in [("RATE_JOBS", None), ("KEY_RATE_JOBS", Some("k"))] {
        with(&t, &format!("{limit} = 2, RATE_MS = 1000")).await?;
        for _ in 0..9 {
            let push = t.broker.push_job("w", "a");
            match key {
                Some(key) => push.key(key).await?,
                None => push.await?,
            };
        }
        assert_eq!(take(&t.broker, 9).await?.len(), 2);
        t.clock.jump(-3600);
        t.settle().await;
        let mut counts = Vec::new();
        for _ in 0..4 {
            counts.push(take(&t.broker, 9).await?.len());
            t.advance_ms(250).await?;
        }
        assert_eq!(counts, [1, 0, 1, 0], "{limit}: one now, then one each gap");
        t.define("DROP WORK QUEUE w").await?;
    }
});

case!(a_paused_queue_takes_jobs_and_gives_none, [247], async |t| {
    with(&t, "").await?;
    t.define("ALTER WORK QUEUE W WITH STATUS = OFF").await?;
    push(&t.broker, "a").await?;
    let other = t.clone();
    let mut reader = Box::pin(async move { other.broker.take_jobs(W).wait_forever().await });
    t.still_waits(&mut reader).await;
    t.define("ALTER WORK QUEUE w WITH STATUS = ON").await?;
    assert_eq!(names(&reader.await?), ["a"]);
});

case!(a_limit_that_is_altered_holds_for_jobs_that_wait, [247], async |t| {
    with(&t, "").await?;
    for name in ["a1", "a2", "a3"] {
        push_key(&t.broker, name, "a").await?;
    }
    t.define("ALTER WORK QUEUE w WITH MAX_TAKEN_PER_KEY = 1").await?;
    assert_eq!(taken(&t.broker, 9).await?, "a1");
    t.define("ALTER WORK QUEUE w WITH MAX_TAKEN_PER_KEY = 0").await?;
    assert_eq!(taken(&t.broker, 9).await?, "a2 a3");
});

case!(a_commit_completes_and_a_rollback_is_a_failed_attempt, [248], async |t| {
    with(&t, "RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "a").await?;
    for attempt in [1, 2] {
        let tx = t.begin().await?;
        let job = tx.0.take_jobs(W).await?.remove(0);
        assert_eq!((job.attempt, job.lease_until), (attempt, None));
        assert_eq!(taken(&t.broker, 1).await?, "");
        assert_eq!(code(t.broker.complete_job(&job).await), Code::JOB_LOCKED.0);
        assert_eq!(code(t.broker.cancel_job(job.taken.job).await), Code::JOB_LOCKED.0);
        assert_eq!(code(t.broker.redrive_job(job.taken.job).await), Code::JOB_LOCKED.0);
        if attempt == 1 {
            tx.rollback().await?;
        } else {
            assert_eq!(job.last_error.as_deref(), Some("its transaction was rolled back"));
            tx.commit().await?;
            assert_eq!(code(t.broker.cancel_job(job.taken.job).await), Code::JOB_NOT_FOUND.0);
        }
    }
});

case!(a_transaction_that_is_dropped_is_a_failed_attempt, [248], async |t| {
    with(&t, "RETRY_DELAY_MS = 0, MAX_ATTEMPTS = 1").await?;
    push(&t.broker, "a").await?;
    let tx = t.begin().await?;
    let job = tx.0.take_jobs(W).await?.remove(0);
    drop(tx);
    let redriven = t.soon(async || Ok(t.broker.redrive_job(job.taken.job).await.is_ok()), |is_done| *is_done).await?;
    assert!(redriven);
    assert_eq!(take(&t.broker, 1).await?[0].attempt, 1);
});

case!(a_lease_may_outlive_its_transaction, [248], async |t| {
    with(&t, "RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "a").await?;
    let tx = t.begin().await?;
    let job = tx.0.take_jobs(W).lease(Duration::from_secs(10)).await?.remove(0);
    t.advance(20).await?;
    assert_eq!(taken(&t.broker, 1).await?, "", "no lease ends while a transaction holds its job");
    tx.0.extend_job(&job, Some(Duration::from_secs(10))).await?;
    tx.commit().await?;
    assert_eq!(taken(&t.broker, 1).await?, "");
    t.broker.complete_job(&job).await?;
});

case!(a_take_outside_a_transaction_without_a_lease_completes_the_job, [249], async |t| {
    with(&t, "MAX_TAKEN = 1").await?;
    let id = push(&t.broker, "a").await?;
    push(&t.broker, "b").await?;
    assert_eq!(names(&t.broker.take_jobs(W).pop().await?), ["a"]);
    assert_eq!(code(t.broker.cancel_job(id).await), Code::JOB_NOT_FOUND.0);
    assert_eq!(names(&t.broker.take_jobs(W).pop().await?), ["b"]);
});

case!(a_push_joins_its_transaction, [250], async |t| {
    with(&t, "").await?;
    let pair = t.pair().await?;
    for is_commit in [false, true] {
        let tx = t.begin().await?;
        push(&tx.0, "a").await?;
        tx.send(pair.initiator, "Text", "with it").await?;
        assert!(tx.0.take_jobs(W).await?.is_empty());
        assert_eq!(taken(&t.broker, 1).await?, "");
        if is_commit {
            tx.commit().await?
        } else {
            tx.rollback().await?
        }
        assert_eq!(t.broker.take_jobs(W).pop().await?.len(), usize::from(is_commit));
        assert_eq!(t.receive("QT").await?.len(), usize::from(is_commit));
    }
});

case!(a_push_in_a_transaction_counts_its_delay, [241, 250], async |t| {
    // DIFFERENCE(time-in-a-transaction): on SQLite the delay counts from the commit, on a server from the call.
    with(&t, "").await?;
    let tx = t.begin().await?;
    tx.0.push_job(W, &"a".to_owned()).run_after(Duration::from_secs(10)).await?;
    t.advance(6).await?;
    tx.commit().await?;
    t.advance(5).await?;
    let by_then = if t.store().is_server() { "a" } else { "" };
    assert_eq!(taken(&t.broker, 1).await?, by_then);
    t.advance(5).await?;
    let since = if t.store().is_server() { "" } else { "a" };
    assert_eq!(taken(&t.broker, 1).await?, since);
});

case!(a_report_in_a_transaction_comes_with_its_commit, [251], async |t| {
    with(&t, "RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "a").await?;
    let job = take(&t.broker, 1).await?.remove(0);
    let tx = t.begin().await?;
    tx.0.complete_job(&job).await?;
    assert_eq!(code(t.broker.complete_job(&job).await), Code::JOB_LOCKED.0);
    t.advance(70).await?;
    assert_eq!(code(t.broker.cancel_job(job.taken.job).await), Code::JOB_LOCKED.0, "no lease ends under a report");
    tx.rollback().await?;
    // Its lease is over now.
    t.advance(1).await?;
    let again = take(&t.broker, 1).await?.remove(0);
    assert_eq!(again.attempt, 2);
    let tx = t.begin().await?;
    tx.0.complete_job(&again).await?;
    tx.commit().await?;
    assert_eq!(code(t.broker.complete_job(&again).await), Code::JOB_NOT_FOUND.0);
});

case!(a_savepoint_undoes_reports_and_gives_taken_jobs_back, [252], async |t| {
    with(&t, "RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "a").await?;
    let tx = t.begin().await?;
    tx.savepoint("before").await?;
    assert_eq!(tx.0.take_jobs(W).await?.len(), 1);
    tx.rollback_to("before").await?;
    let again = tx.0.take_jobs(W).await?.remove(0);
    assert_eq!(again.attempt, 1, "what a savepoint undoes is no attempt");
    tx.savepoint("taken").await?;
    tx.0.fail_job_then(&again, "broken", AfterFailure::Dead).await?;
    tx.rollback_to("taken").await?;
    tx.0.report_job(&again, "still here").await?;
    tx.commit().await?;
    assert_eq!(code(t.broker.redrive_job(again.taken.job).await), Code::JOB_NOT_FOUND.0, "the commit completed it");
});

case!(a_transaction_may_fail_one_of_its_jobs_and_complete_the_others, [251], async |t| {
    with(&t, "").await?;
    push(&t.broker, "a").await?;
    push(&t.broker, "b").await?;
    let tx = t.begin().await?;
    let jobs = tx.0.take_jobs(W).count(2).await?;
    assert_eq!(tx.0.fail_job(&jobs[0], "broken").await?, JobState::Scheduled);
    assert_eq!(code(tx.0.fail_job(&jobs[0], "broken").await), Code::JOB_NOT_TAKEN.0);
    tx.commit().await?;
    t.advance(1).await?;
    assert_eq!(taken(&t.broker, 9).await?, "a");
    assert_eq!(code(t.broker.cancel_job(jobs[1].taken.job).await), Code::JOB_NOT_FOUND.0);
});

case!(a_queue_is_not_dropped_under_a_transaction_that_holds_its_job, [253], async |t| {
    with(&t, "").await?;
    push(&t.broker, "a").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.0.take_jobs(W).await?.len(), 1);
    assert_eq!(code(t.define("DROP WORK QUEUE w").await), Code::OBJECT_IN_USE.0);
    tx.rollback().await?;
    t.define("DROP WORK QUEUE w").await?;
    assert_eq!(code(t.broker.take_jobs(W).await), Code::OBJECT_NOT_FOUND.0);
    with(&t, "").await?;
    t.advance(5).await?;
    assert_eq!(taken(&t.broker, 9).await?, "", "its jobs went with it");
    push(&t.broker, "b").await?;
    t.define("DROP WORK QUEUE w; CREATE WORK QUEUE W; DROP WORK QUEUE w; CREATE WORK QUEUE w").await?;
    assert_eq!(taken(&t.broker, 9).await?, "", "another queue of that name, of the same script");
});

case!(a_reader_sleeps_until_a_job_is_pushed_or_due, [254], async |t| {
    with(&t, "").await?;
    let wait = |t: &Rig| {
        let other = t.clone();
        Box::pin(async move { other.broker.take_jobs(W).wait_forever().await })
    };
    let mut reader = wait(&t);
    t.still_waits(&mut reader).await;
    push(&t.broker, "one").await?;
    assert_eq!(names(&reader.await?), ["one"]);

    t.broker.push_job(W, &"later".to_owned()).run_after(Duration::from_secs(60)).await?;
    let mut reader = wait(&t);
    t.still_waits(&mut reader).await;
    t.advance(60).await?;
    assert_eq!(names(&reader.await?), ["later"]);

    let tx = t.begin().await?;
    push(&tx.0, "three").await?;
    let mut reader = wait(&t);
    t.still_waits(&mut reader).await;
    tx.commit().await?;
    assert_eq!(names(&reader.await?), ["three"]);
});

case!(the_end_of_a_job_wakes_the_reader_that_a_limit_held_back, [254], async |t| {
    with(&t, "MAX_TAKEN = 1, RETRY_DELAY_MS = 0").await?;
    push(&t.broker, "one").await?;
    push(&t.broker, "two").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.0.take_jobs(W).await?.len(), 1);
    let other = t.clone();
    let mut reader = Box::pin(async move { other.broker.take_jobs(W).wait_forever().await });
    t.still_waits(&mut reader).await;
    tx.commit().await?;
    assert_eq!(names(&reader.await?), ["two"]);
});

case!(a_store_that_is_opened_again_has_its_jobs, [255], async |t| {
    with(&t, "ORDER = LIFO, RETRY_DELAY_MS = 0, MAX_TAKEN_PER_KEY = 1").await?;
    for name in ["leased", "held", "dead", "ready"] {
        push(&t.broker, name).await?;
    }
    t.broker.push_job(W, &"later".to_owned()).run_after(Duration::from_secs(1_000_000)).unique("u").await?;
    let jobs = take(&t.broker, 3).await?;
    assert_eq!(names(&jobs), ["ready", "dead", "held"]);
    assert_eq!(t.broker.fail_job_then(&jobs[1], "broken", AfterFailure::Dead).await?, JobState::Dead);
    assert_eq!(t.broker.fail_job_then(&jobs[2], "broken", AfterFailure::RetryInMs(0)).await?, JobState::Ready);
    let tx = t.begin().await?;
    assert_eq!(names(&tx.0.take_jobs(W).await?), ["held"]);
    // As after a crash: the transaction ends with its broker.
    t.broker.close().await?;
    drop(tx);
    let t = t.restart().await?;
    assert!(t.broker.dump().contains("MAX_TAKEN_PER_KEY = 1"), "{}", t.broker.dump());
    let again = t
        .soon(async || t.broker.take_jobs(W).job_type("").count(9).await, |jobs| names(jobs).contains(&"held"))
        .await?;
    let held = again.iter().find(|job| job.body() == b"held").unwrap();
    assert_eq!(held.attempt, 3);
    assert!(held.taken.token > jobs[0].taken.token);
    t.broker.complete_job(&jobs[0]).await?;
    assert!(!t.broker.push_job(W, &"later".to_owned()).unique("u").await?.is_new);
    t.broker.redrive_job(jobs[1].taken.job).await?;
    assert_eq!(taken(&t.broker, 9).await?, "dead");
});

case!(many_readers_and_writers_meet_each_job_once, [234], async |t| {
    with(&t, "HISTORY = OFF").await?;
    let writers = (0..10).map(|writer| {
        let broker = t.broker.clone();
        tokio::spawn(async move {
            for number in 0..20 {
                push(&broker, &format!("{writer}-{number}")).await?;
            }
            Ok::<_, dialoq::Error>(Vec::new())
        })
    });
    let reader = async |broker: Broker| {
        let mut mine = Vec::new();
        while mine.len() < 20 {
            for job in broker.take_jobs(W).count(3.min(20 - mine.len() as u32)).wait_forever().await? {
                broker.complete_job(&job).await?;
                mine.push(job.decode(W)?);
            }
        }
        Ok::<_, dialoq::Error>(mine)
    };
    let readers = (0..10).map(|_| {
        let broker = t.broker.clone();
        tokio::spawn(async move { reader(broker).await })
    });
    let tasks: Vec<_> = writers.chain(readers).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("it does not panic")?);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200);
});

case!(a_taking_that_is_given_up_is_no_attempt, [256], async |t| {
    with(&t, "").await?;
    push(&t.broker, "a").await?;
    {
        let mut take = Box::pin(std::future::IntoFuture::into_future(t.broker.take_jobs(W)));
        // Polled once, so that the taking is ordered, then dropped.
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(take.as_mut().poll(context))).await;
        if let std::task::Poll::Ready(jobs) = polled {
            t.broker.fail_job_then(&jobs?[0], "", AfterFailure::RetryInMs(0)).await?;
        }
    }
    let job = t.broker.take_jobs(W).wait_forever().await?.remove(0);
    assert!(job.attempt <= 2, "{job:?}");
});

case!(work_queues_show_their_jobs, [257], async |t| {
    with(&t, "MAX_ATTEMPTS = 1, LEASE_MS = 5000").await?;
    t.define("CREATE WORK QUEUE idle WITH STATUS = OFF, ORDER = LIFO").await?;
    for (name, job_type) in [("done", "x"), ("dead", "x"), ("taken", "y"), ("ready", "y"), ("cancelled", "y")] {
        t.broker.push_job(W, &name.to_owned()).job_type(job_type).key(name).pushed_by("writer").await?;
    }
    t.broker.push_job(W, &"scheduled".to_owned()).run_after(Duration::from_secs(60)).await?;
    t.advance(2).await?;
    let jobs = t.broker.take_jobs(W).count(3).taken_by("reader").await?;
    t.advance(1).await?;
    t.broker.complete_job_with(&jobs[0], "result").await?;
    t.broker.fail_job(&jobs[1], "it broke").await?;
    t.broker.report_job(&jobs[2], "half").await?;
    let all = t.broker.jobs(&JobFilter::default(), 100).await?;
    let states: Vec<&str> = all.iter().map(|job| job.state.name()).collect();
    assert_eq!(states, ["dead", "taken", "ready", "ready", "scheduled"]);
    assert_eq!((all[0].last_error.as_deref(), all[0].failed_at), (Some("it broke"), Some(t.now())));
    assert_eq!((all[1].progress.as_deref(), all[1].taken_by.as_deref()), (Some("half"), Some("reader")));
    assert_eq!(all[1].due_at, jobs[2].lease_until);
    let of = |state: ShownState, error: Option<&str>| JobFilter {
        queue: Some("W".into()),
        state: Some(state),
        error: error.map(str::to_owned),
        ..JobFilter::default()
    };
    assert_eq!(t.broker.jobs(&of(ShownState::Dead, Some("broke")), 9).await?.len(), 1);
    assert!(t.broker.jobs(&of(ShownState::Dead, Some("other")), 9).await?.is_empty());
    let y = JobFilter { job_type: Some("y".into()), ..JobFilter::default() };
    assert_eq!(t.broker.jobs(&y, 2).await?.len(), 2);
    t.broker.cancel_job(all[3].job).await?;
    let finished = t.broker.finished_jobs(&JobFilter::default(), 9).await?;
    let ends: Vec<_> = finished.iter().map(|job| (job.key.as_deref().unwrap(), job.finished_as.name())).collect();
    assert_eq!(ends, [("cancelled", "cancelled"), ("done", "done")], "the last one first");
    assert_eq!((finished[1].result.as_deref(), finished[1].finished_at), (Some(&b"result"[..]), t.now()));
    let queues = t.broker.work_queues().await?;
    let shown: Vec<_> = queues.iter().map(|queue| (&*queue.name, queue.is_enabled, &*queue.order)).collect();
    assert_eq!(shown, [("idle", false, "LIFO"), ("w", true, "FIFO")]);
    let w = &queues[1];
    assert_eq!((w.scheduled, w.ready, w.taken, w.lost, w.dead, w.finished), (1, 1, 1, 0, 1, 2));
    assert_eq!(w.oldest_ready_ms, Some(3000));
    let statistics = t.broker.work_statistics(Some("W"), StatisticsBy::Reader).await?;
    let row = &statistics[0];
    assert_eq!((statistics.len(), &*row.name, row.jobs), (1, "reader", 1));
    assert_eq!((row.to_take.p50_us, row.to_complete.average_us), (2_000_000, 1_000_000));
    assert_eq!(t.broker.redrive_jobs(&of(ShownState::Dead, None)).await?, 1);
    assert_eq!(t.broker.cancel_jobs(&JobFilter { queue: Some("w".into()), ..JobFilter::default() }).await?, 4);
    assert!(t.broker.jobs(&JobFilter::default(), 9).await?.is_empty());
    let misspelled = JobFilter { queue: Some("ww".into()), ..JobFilter::default() };
    for refused in [
        code(t.broker.jobs(&misspelled, 9).await),
        code(t.broker.finished_jobs(&misspelled, 9).await),
        code(t.broker.cancel_jobs(&misspelled).await),
        code(t.broker.redrive_jobs(&misspelled).await),
        code(t.broker.work_statistics(Some("ww"), StatisticsBy::Queue).await),
    ] {
        assert_eq!(refused, Code::OBJECT_NOT_FOUND.0);
    }
});
