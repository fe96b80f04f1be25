//! Work queues as an application uses them, on the embedded store.

use super::*;
use dialoq::receive::strategy::dual_queue_loop_classic;
use dialoq::work::{AfterFailure, JobState, WorkQueue};
use dialoq::{Code, Timestamp};

const EMAILS: WorkQueue<String> = WorkQueue::text("emails");

async fn with_queue(options: &str) -> TestBroker {
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute(&format!("CREATE WORK QUEUE emails {options}")).await.unwrap();
    broker
}

async fn push(act: &impl Act, body: &str) {
    assert!(act.push_job(EMAILS, &body.to_owned()).await.unwrap().is_new);
}

#[tokio::test]
async fn a_job_goes_from_its_writer_to_one_reader() {
    let _limit = limit();
    let broker = with_queue("").await;
    let queue: WorkQueue<Vec<u32>> = WorkQueue::json("EMAILS");
    broker.push_job(queue, &vec![1, 2]).job_type("mail").key("k").level(7).pushed_by("me").await.unwrap();
    let jobs = broker.take_jobs("emails").count(5).taken_by("you").await.unwrap();
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(job.decode(queue).unwrap(), [1, 2]);
    assert_eq!((&*job.job_type, job.key.as_deref(), job.level, job.attempt), ("mail", Some("k"), 7, 1));
    assert_eq!((&*job.pushed_by, &*job.queue), ("me", "emails"));
    assert!(broker.take_jobs("emails").await.unwrap().is_empty());
    broker.report_job(job, "half").await.unwrap();
    broker.extend_job(job, Some(Duration::from_secs(5))).await.unwrap();
    broker.complete_job_with(job, "done").await.unwrap();
    assert_eq!(broker.complete_job(job).await.unwrap_err().code(), Code::JOB_NOT_FOUND);
}

#[tokio::test]
async fn a_reader_sleeps_until_a_job_is_pushed_or_due() {
    let _limit = limit();
    let broker = with_queue("").await;
    let reader = tokio::spawn({
        let broker = broker.clone();
        async move { broker.take_jobs(EMAILS).wait_forever().await.unwrap() }
    });
    until_waiting(&broker, "#emails", 1).await;
    push(&*broker, "one").await;
    assert_eq!(reader.await.unwrap()[0].decode(EMAILS).unwrap(), "one");

    broker.push_job(EMAILS, &"later".to_owned()).run_after(Duration::from_secs(60)).await.unwrap();
    let reader = tokio::spawn({
        let broker = broker.clone();
        async move { broker.take_jobs(EMAILS).job_type("").wait(Duration::from_secs(100)).await.unwrap() }
    });
    broker.clock().advance(Duration::from_secs(59));
    assert!(broker.take_jobs(EMAILS).await.unwrap().is_empty());
    broker.clock().advance(Duration::from_secs(1));
    assert_eq!(reader.await.unwrap()[0].decode(EMAILS).unwrap(), "later");
}

#[tokio::test]
async fn a_push_joins_a_transaction_with_messages_and_sql() {
    let _limit = limit();
    let broker = rig().await;
    broker.execute("CREATE WORK QUEUE emails").await.unwrap();
    broker.sql("create table note (n)", ()).await.unwrap();
    for is_commit in [false, true] {
        let tx = broker.begin().await.unwrap();
        push(&tx, "a").await;
        send(&tx, 1).await;
        tx.sql("insert into note values (1)", ()).await.unwrap();
        if is_commit {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        let found = broker.take_jobs(EMAILS).pop().await.unwrap().len();
        assert_eq!(found, usize::from(is_commit));
    }
}

#[tokio::test]
async fn a_transaction_completes_its_jobs_or_gives_them_back() {
    let _limit = limit();
    let broker = with_queue("WITH RETRY_DELAY_MS = 0, MAX_ATTEMPTS = 2").await;
    push(&*broker, "a").await;
    let tx = broker.begin().await.unwrap();
    let job = tx.take_jobs(EMAILS).await.unwrap().remove(0);
    assert_eq!(job.lease_until, None);
    assert_eq!(broker.complete_job(&job).await.unwrap_err().code(), Code::JOB_LOCKED);
    tx.rollback().await.unwrap();

    let tx = broker.begin().await.unwrap();
    tx.savepoint("before").await.unwrap();
    let job = tx.take_jobs(EMAILS).await.unwrap().remove(0);
    assert_eq!((job.attempt, job.last_error.as_deref()), (2, Some("its transaction was rolled back")));
    tx.rollback_to("before").await.unwrap();
    assert_eq!(tx.take_jobs(EMAILS).await.unwrap()[0].attempt, 2);
    drop(tx);
    // The drop of a transaction is a rollback, the second and last attempt.
    while broker.redrive_job(job.taken.job).await.is_err_and(|error| error.code() == Code::JOB_LOCKED) {}
    let tx = broker.begin().await.unwrap();
    assert_eq!(tx.take_jobs(EMAILS).await.unwrap()[0].attempt, 1);
    tx.commit().await.unwrap();
    assert_eq!(broker.cancel_job(job.taken.job).await.unwrap_err().code(), Code::JOB_NOT_FOUND);
}

#[tokio::test]
async fn a_taking_that_is_given_up_is_no_attempt() {
    let _limit = limit();
    let broker = with_queue("").await;
    push(&*broker, "a").await;
    for _ in 0..20 {
        let take = broker.take_jobs(EMAILS).into_future();
        // Polled once, so that the taking is ordered, then dropped.
        let polled =
            tokio::select! { biased; taken = take => Some(taken.unwrap()), () = std::future::ready(()) => None };
        // The taking before may hold the job still: then there is nothing.
        if let Some(job) = polled.as_ref().and_then(|jobs| jobs.first()) {
            broker.fail_job_then(job, "", AfterFailure::RetryInMs(0)).await.unwrap();
            break;
        }
    }
    let job = broker.take_jobs(EMAILS).wait(Duration::from_secs(5)).await.unwrap().remove(0);
    assert!(job.attempt <= 2, "{job:?}");
}

#[tokio::test]
async fn a_taking_in_a_transaction_that_is_given_up_loses_no_job() {
    let _limit = limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let broker = Broker::open(&format!("sqlite:{}", path.display())).await.unwrap();
    broker.execute("CREATE WORK QUEUE emails WITH RETRY_DELAY_MS = 0").await.unwrap();
    for name in ["a", "b"] {
        push(&broker, name).await;
    }
    for takes_again in [false, true] {
        let tx = broker.begin().await.unwrap();
        // The taking is written before it is answered, and now nothing can be written.
        let other = rusqlite::Connection::open(&path).unwrap();
        other.busy_timeout(SOON).unwrap();
        other.execute_batch("begin immediate").unwrap();
        {
            let mut take = std::pin::pin!(tx.take_jobs(EMAILS).count(2).into_future());
            let polled = std::future::poll_fn(|context| std::task::Poll::Ready(take.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }
        drop(other);
        if takes_again {
            for name in ["a", "b"] {
                let jobs = tx.take_jobs(EMAILS).await.unwrap();
                assert_eq!(jobs[0].decode(EMAILS).unwrap(), name, "those of the taking that was given up, one by one");
            }
            tx.commit().await.unwrap();
        } else {
            assert_eq!(tx.commit().await.unwrap_err().code(), Code::RECEIVE_CANCELLED);
        }
    }
    assert!(broker.take_jobs(EMAILS).await.unwrap().is_empty());
    broker.close().await.unwrap();
}

#[tokio::test]
async fn hundreds_of_readers_and_writers_meet_each_job_once() {
    let _limit = limit();
    let broker = with_queue("WITH HISTORY = OFF").await;
    let writers = (0..100_u32).map(|writer| {
        let broker = broker.clone();
        tokio::spawn(async move {
            for number in 0..20 {
                push(&broker, &format!("{writer}-{number}")).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let readers = (0..100).map(|_| {
        let broker = broker.clone();
        tokio::spawn(async move {
            let mut mine = Vec::new();
            while mine.len() < 20 {
                for job in broker.take_jobs(EMAILS).count(3.min(20 - mine.len() as u32)).wait_forever().await.unwrap() {
                    broker.complete_job(&job).await.unwrap();
                    mine.push(job.decode(EMAILS).unwrap());
                }
            }
            mine
        })
    });
    let readers: Vec<_> = readers.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut all = Vec::new();
    for reader in readers {
        all.extend(reader.await.unwrap());
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 2000);
}

#[tokio::test]
async fn a_store_that_is_opened_again_has_its_jobs() {
    let _limit = limit();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    let broker = Broker::open(&url).await.unwrap();
    broker
        .execute("CREATE WORK QUEUE emails WITH ORDER = LIFO, RETRY_DELAY_MS = 0, MAX_TAKEN_PER_KEY = 1")
        .await
        .unwrap();
    for name in ["leased", "held", "dead", "ready"] {
        push(&broker, name).await;
    }
    broker.push_job(EMAILS, &"later".to_owned()).run_at(Timestamp(i64::MAX / 2)).unique("u").await.unwrap();
    let of = |jobs: Vec<dialoq::work::Job>| jobs.into_iter().map(|job| job.decode(EMAILS).unwrap()).collect::<Vec<_>>();
    let taken = broker.take_jobs(EMAILS).count(2).await.unwrap();
    assert_eq!(broker.fail_job_then(&taken[1], "broken", AfterFailure::Dead).await.unwrap(), JobState::Dead);
    let tx = broker.begin().await.unwrap();
    assert_eq!(of(tx.take_jobs(EMAILS).await.unwrap()), ["held"]);
    // As after a crash: the transaction ends with its broker.
    broker.close().await.unwrap();
    drop(tx);
    let broker = Broker::open(&url).await.unwrap();
    assert!(broker.dump().contains("MAX_TAKEN_PER_KEY = 1"), "{}", broker.dump());
    let again = broker.take_jobs(EMAILS).count(9).await.unwrap();
    assert_eq!(again.iter().map(|job| job.attempt).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(
        again[0].last_error.as_deref(),
        Some("its transaction ended with its reader, or with the process that owned the database file")
    );
    assert_eq!(again[0].taken.token, 4, "numbers go on without a gap");
    assert_eq!(of(again), ["held", "leased"]);
    broker.complete_job(&taken[0]).await.unwrap();
    assert!(!broker.push_job(EMAILS, &"later".to_owned()).unique("u").await.unwrap().is_new);
    broker.redrive_job(taken[1].taken.job).await.unwrap();
    assert_eq!(of(broker.take_jobs(EMAILS).await.unwrap()), ["dead"]);
    broker.close().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_job_lets_the_reader_of_the_next_one_of_its_key_go_on() {
    let _limit = limit();
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN_PER_KEY = 1").await.unwrap();
    let first = broker.push_job("w", "a").job_type("a").key("k").await.unwrap();
    broker.push_job("w", "b").job_type("b").key("k").await.unwrap();
    let other = broker.clone();
    let mut reader = Box::pin(async move { other.take_jobs("w").job_type("b").wait_forever().await });
    for _ in 0..20 {
        let polled = std::future::poll_fn(|task| std::task::Poll::Ready(reader.as_mut().poll(task))).await;
        if polled.is_ready() {
            // It may be given before the one that was pushed first.
            return;
        }
        tokio::task::yield_now().await;
    }
    broker.cancel_job(first.job.unwrap()).await.unwrap();
    assert_eq!(reader.await.unwrap()[0].body(), b"b");
}

/// The pause of the classic loop was waited out, however little time the turn had.
#[tokio::test]
async fn a_turn_waits_no_longer_than_it_may() {
    let _limit = limit();
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE high; CREATE WORK QUEUE low").await.unwrap();
    let strategy = dual_queue_loop_classic("high", "low").timeout(Duration::from_secs(3600));
    let mut turns = broker.take_jobs_by(strategy).unwrap().wait(Duration::from_secs(1));
    let begun = broker.clock().now();
    let passes = async {
        loop {
            broker.clock().advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        turn = turns.next(&*broker) => assert!(turn.unwrap().is_none()),
        () = passes => {}
    }
    let waited = broker.clock().now().since(begun);
    assert!(waited < Duration::from_secs(60), "it waited for {waited:?}");
}
