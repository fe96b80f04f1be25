//! Jobs that are given back while another session has their rows locked.

use super::*;
use crate::protocol::work::{Hold, Take, TakeFrom, WorkVerb};
use crate::store::Seen;
use crate::store::database::link::Call;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

pub(super) fn take(hold: Hold) -> Verb {
    Verb::Work(WorkVerb::Take(Box::new(Take {
        queue: "w".into(),
        count: 1,
        job_type: None,
        from: TakeFrom::Any,
        hold,
        taken_by: "me".into(),
    })))
}

/// The row of a take.
pub(super) fn taken() -> crate::store::SqlRow {
    row([
        ("item", 0.into()),
        ("job_id", 1.into()),
        ("token", 1.into()),
        ("queue", "w".into()),
        ("job_type", "t".into()),
        ("job_key", SqlValue::Null),
        ("level", 5.into()),
        ("attempt", 1.into()),
        ("pushed_at", 0.into()),
        ("pushed_by", "".into()),
        ("lease_until", 1.into()),
        ("last_error", SqlValue::Null),
        ("body", SqlValue::Null),
        ("notices", SqlValue::Null),
    ])
}

/// A server that gives a job, and that finds it locked twice when it is given back.
async fn stage_with_a_locked_job() -> (Arc<Stage>, Arc<DatabaseStore>) {
    let stage = Stage::new();
    let store = stage.open().await;
    let found = AtomicUsize::new(0);
    stage.play(move |name, _| match name {
        "claim_jobs" | "take_jobs" => Some(Ok(vec![taken()])),
        "release_jobs" | "return_jobs" => {
            let is_locked = found.fetch_add(1, Relaxed) < 2;
            Some(Ok(vec![row([("has_more", is_locked.into()), ("notices", SqlValue::Null)])]))
        }
        _ => None,
    });
    (stage, store)
}

#[tokio::test]
async fn a_rollback_is_answered_when_its_jobs_can_be_taken_again() {
    let _limit = crate::testing::limit();
    let (stage, store) = stage_with_a_locked_job().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let outcome = tx.execute(take(Hold::Transaction)).await.unwrap();
    assert!(matches!(&outcome, Outcome::Jobs(jobs) if jobs.len() == 1), "{outcome:?}");
    tx.rollback(None).await.unwrap();
    assert_eq!(stage.asked(&["release_jobs"]).len(), 3, "it is asked again while rows are locked");
}

#[tokio::test]
async fn a_rollback_counts_no_job_of_a_take_whose_answer_was_lost() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let claims = AtomicUsize::new(0);
    let released = Arc::new(Mutex::new(Vec::new()));
    let calls = released.clone();
    stage.play(move |name, args| match name {
        "claim_jobs" if claims.fetch_add(1, Relaxed) == 0 => Some(Ok(vec![taken()])),
        "claim_jobs" => Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Unknown))),
        "release_jobs" => {
            let [_, _, Arg::BigInt(after), Arg::BigInt(last), Arg::Bool(is_attempt)] = args else { panic!("{args:?}") };
            calls.lock().unwrap().push((*after, *last, *is_attempt));
            Some(Ok(vec![row([("has_more", false.into()), ("notices", SqlValue::Null)])]))
        }
        _ => None,
    });
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(take(Hold::Transaction)).await.unwrap();
    assert_eq!(tx.execute(take(Hold::Transaction)).await.unwrap_err().code(), Code::COMMIT_UNKNOWN);
    tx.rollback(None).await.unwrap();
    assert_eq!(*released.lock().unwrap(), [(0, 1, true), (1, i64::MAX, false)], "the second may have taken a job");
}

#[tokio::test]
async fn leased_jobs_of_a_caller_that_has_left_are_returned_once_they_are_free() {
    let _limit = crate::testing::limit();
    let (stage, store) = stage_with_a_locked_job().await;
    leaving::leave_during(&stage, store.submit(vec![take(Hold::Lease(None))]), "take_jobs").await;
    // A close waits for it: after that their leases would have to end first.
    store.close().await.unwrap();
    assert_eq!(stage.asked(&["return_jobs"]).len(), 3);
}

#[tokio::test]
async fn jobs_of_a_lone_caller_that_has_left_are_returned() {
    let _limit = crate::testing::limit();
    let (stage, store) = stage_with_a_locked_job().await;
    // From the second call on it does not gather.
    store.submit(vec![take(Hold::Lease(None))]).await.unwrap();
    let before = stage.asked(&["take_jobs"]).len();
    stage.gate.forget_permits(usize::MAX);
    {
        let mut left = std::pin::pin!(store.submit(vec![take(Hold::Lease(None))]));
        let polled = left.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        stage.until_asked("take_jobs", before + 1).await;
    }
    stage.gate.add_permits(100);
    store.close().await.unwrap();
    assert_eq!(stage.asked(&["return_jobs"]).len(), 3);
}

#[tokio::test]
async fn a_lone_caller_that_does_not_poll_holds_up_no_other() {
    let _limit = crate::testing::limit();
    let (stage, store) = stage_with_a_locked_job().await;
    store.submit(vec![take(Hold::Lease(None))]).await.unwrap();
    stage.gate.forget_permits(usize::MAX);
    let mut waiting = std::pin::pin!(store.submit(vec![take(Hold::Lease(None))]));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    stage.gate.add_permits(100);
    for _ in 0..3 {
        store.submit(vec![take(Hold::Lease(None))]).await.unwrap();
    }
    waiting.await.unwrap();
    store.close().await.unwrap();
}

/// One take that was refused for want of a connection stopped every timer, delivery and lease of the process until the server had one.
#[tokio::test]
async fn ticks_go_on_where_the_server_takes_no_new_connection_unless_transactions_hold_jobs() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| match name {
        "claim_jobs" => Some(Ok(vec![taken()])),
        "release_jobs" => Some(Ok(vec![row([("has_more", false.into()), ("notices", SqlValue::Null)])])),
        "take_reader_slot" => Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Undone))),
        _ => None,
    });
    // On the connection that it keeps.
    store.database.tick().await.unwrap();
    stage.is_full.store(true, Relaxed);
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let refused = tx.execute(take(Hold::Transaction)).await.unwrap_err();
    assert_eq!(refused.code(), Code::SERVER_UNREACHABLE);
    store.database.tick().await.unwrap();
    stage.is_full.store(false, Relaxed);
    tx.execute(take(Hold::Transaction)).await.unwrap();
    stage.is_full.store(true, Relaxed);
    store.database.keep_places().await.unwrap_err();
    let ended = store.database.tick().await.expect_err("it would end the attempt at the job");
    assert_eq!(ended.code(), Code::SERVER_UNREACHABLE);
    tx.rollback(None).await.unwrap();
    store.database.tick().await.unwrap();
}

/// The connection that shows that the process lives was lost, the server took no other, and the jobs that were still to be given back kept
/// the process from going on without it, for as long as the server was full.
#[tokio::test]
async fn a_tick_first_gives_back_what_ended_transactions_held() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    store.database.tick().await.expect("it has its connection from now on");
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    stage.play(move |name, _| match name {
        "claim_jobs" => Some(Ok(vec![taken()])),
        "release_jobs" if down.load(Relaxed) => Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Undone))),
        "release_jobs" => Some(Ok(vec![row([("has_more", false.into()), ("notices", SqlValue::Null)])])),
        _ => None,
    });
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(take(Hold::Transaction)).await.unwrap();
    tx.rollback(None).await.unwrap();
    is_down.store(false, Relaxed);
    store.database.control.call(Call { name: "notify_processes", args: Vec::new() }).await.unwrap();
    stage.has_ended_sessions.store(true, Relaxed);
    stage.is_full.store(true, Relaxed);
    store.database.tick().await.expect("no transaction of this process holds jobs");
    assert_eq!(stage.asked(&["release_jobs", "tick"]).last().map(String::as_str), Some("tick"));
}

/// Ticks failed while a worker waited for jobs in a transaction, and nothing was due any more until the server took a connection.
#[tokio::test]
async fn a_tick_goes_on_beside_transactions_whose_takes_got_nothing() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    store.database.tick().await.expect("it has its connection from now on");
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let outcome = tx.execute(take(Hold::Transaction)).await.unwrap();
    assert!(matches!(&outcome, Outcome::Jobs(jobs) if jobs.is_empty()), "{outcome:?}");
    stage.has_ended_sessions.store(true, Relaxed);
    stage.is_full.store(true, Relaxed);
    store.database.tick().await.expect("no transaction of this process holds jobs");
    stage.play(|name, _| (name == "claim_jobs").then(|| Ok(vec![taken()])));
    stage.is_full.store(false, Relaxed);
    tx.execute(take(Hold::Transaction)).await.unwrap();
    stage.is_full.store(true, Relaxed);
    store.database.tick().await.expect_err("another process may take this one for dead");
}
