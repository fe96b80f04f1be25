//! Calls that hang, as on a connection that was cut in silence.

use super::jobs::take;
use super::*;
use crate::id::JobId;
use crate::protocol::work::{Hold, TakenJob, WorkVerb};
use crate::store::Seen;
use crate::store::database::closing::LONGEST_ENDING;
use crate::store::database::link::Call;
use tokio::time::Instant;

/// Callers that all wait for their answers send no further item, which would find the batch slow.
#[tokio::test]
async fn callers_beside_a_call_that_hangs_go_on() {
    let _limit = crate::testing::limit();
    for call in ["send", "receive"] {
        let stage = Stage::new();
        let store = stage.open().await;
        stage.gate.forget_permits(usize::MAX);
        let mut asked = Vec::new();
        for number in 0..8 {
            let verb = if call == "send" { send(number, "Text", b"x") } else { receive() };
            let store = store.clone();
            asked.push(tokio::spawn(async move { store.submit(vec![verb]).await }));
        }
        stage.until_asked(call, 2).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        // The first of the two comes back, and the second hangs.
        stage.gate.add_permits(1);
        stage.until_asked(call, 3).await;
        assert_eq!(stage.asked(&[call]), [call, call, &format!("{call}_batch 6")]);
        stage.gate.add_permits(10);
        assert_eq!(codes(asked).await, [None; 8]);
    }
}

/// The time was counted from the request, so each request waited for all of it.
#[tokio::test(start_paused = true)]
async fn a_rollback_that_hangs_is_waited_for_once() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(receive()).await.unwrap();
    stage.rollbacks.forget_permits(usize::MAX);
    let dropped = Instant::now();
    drop(tx);
    store.submit(vec![send(1, "Text", b"x")]).await.unwrap();
    assert!(dropped.elapsed() >= LONGEST_ENDING);
    let asked = Instant::now();
    store.submit(vec![send(2, "Text", b"x")]).await.unwrap();
    assert!(asked.elapsed() < LONGEST_ENDING);
    stage.rollbacks.add_permits(10);
    store.close().await.unwrap();
    assert_eq!(stage.asked(&["rollback", "count_rollback"]), ["rollback", "count_rollback"]);
}

/// The count waited for a group that the transaction held, and the transaction for the end of the count: each request of the process stood
/// still for a second.
#[tokio::test(start_paused = true)]
async fn a_transaction_beside_a_count_that_waits_for_its_group_goes_on() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
    let mut open = store.begin(Seen::always()).await.unwrap();
    open.execute(send(1, "Text", b"x")).await.unwrap();
    let mut given_up = store.begin(Seen::always()).await.unwrap();
    given_up.execute(receive()).await.unwrap();
    *stage.hangs.lock().unwrap() = Some("send");
    let hanging = given_up.execute(send(2, "Text", b"x"));
    tokio::time::timeout(Duration::from_millis(10), hanging).await.unwrap_err();
    *stage.hangs.lock().unwrap() = Some("count_rollback");
    drop(given_up);
    stage.until_asked("count_rollback", 1).await;
    let asked = Instant::now();
    open.execute(send(3, "Text", b"x")).await.unwrap();
    open.commit().await.unwrap();
    assert_eq!(asked.elapsed(), Duration::ZERO);
    store.submit(vec![send(4, "Text", b"x")]).await.unwrap();
    assert!(asked.elapsed() < LONGEST_ENDING);
}

/// They waited for the connection beside the transactions, and kept theirs.
#[tokio::test(start_paused = true)]
async fn transactions_beside_a_count_of_a_rollback_that_hangs_go_on() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
    let mut hangs = store.begin(Seen::always()).await.unwrap();
    hangs.execute(receive()).await.unwrap();
    *stage.hangs.lock().unwrap() = Some("count_rollback");
    let hangs = tokio::spawn(async move { hangs.rollback(None).await });
    stage.until_asked("count_rollback", 1).await;
    let rolled_back = async || {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(receive()).await.unwrap();
        tx.rollback(None).await.unwrap();
    };
    let began = Instant::now();
    tokio::time::timeout(Duration::from_secs(2), rolled_back()).await.expect("it waits for the first");
    let first = began.elapsed();
    rolled_back().await;
    assert_eq!(began.elapsed(), first, "the first is known to hang");
    assert_eq!(stage.asked(&["begin_attempt", "count_rollback"]), ["begin_attempt", "count_rollback"].repeat(3));
    assert!(!hangs.is_finished());
    hangs.abort();
}

/// They waited for the connection that shows that the process lives.
#[tokio::test(start_paused = true)]
async fn takes_queries_and_ticks_beside_a_check_of_places_that_hangs_go_on() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.until_asked("tick", 1).await;
    let taken = async || {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(take(Hold::Transaction)).await.unwrap();
    };
    taken().await;
    *stage.hangs.lock().unwrap() = Some("take_reader_slot");
    let database = store.database.clone();
    let hangs = tokio::spawn(async move { database.keep_places().await });
    stage.until_asked("take_reader_slot", 1).await;
    let others = async {
        taken().await;
        store.query(SqlStatement { text: "mine".to_owned(), params: Vec::new(), expected_rows: None }).await.unwrap();
        store.database.tick().await.unwrap();
        store.database.keep_places().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(9), others).await.expect("they wait for the places");
    assert!(!hangs.is_finished());
    // The server may have ended the session that hangs; a tick would take this process for dead.
    let held = ["hold_presence", "claim_jobs", "hold_presence", "claim_jobs", "hold_presence", "tick"];
    let asked = stage.asked(&["hold_presence", "claim_jobs", "tick"]);
    assert!(asked.ends_with(&held.map(str::to_owned)), "{asked:?}");
    hangs.abort();
}

/// Its receivers got no notice of another process meanwhile, and each verb that had to read the definitions waited for it.
#[tokio::test(start_paused = true)]
async fn a_read_of_the_definitions_that_hangs_is_made_once_more() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    *stage.version.lock().unwrap() = 2;
    *stage.hangs.lock().unwrap() = Some("broker");
    stage.notify("c");
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    stage.notify(&format!("p:other q:{QUEUE}"));
    tokio::time::timeout(Duration::from_secs(3), signal).await.expect("it waits for the definitions");
    assert_eq!(store.database.definitions.known().version, 2);
}

/// A receiver found no group whose lock its holder had freed without a notice, and no queue monitor launched a reader.
#[tokio::test(start_paused = true)]
async fn a_poll_that_hangs_is_made_once_more() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| {
        let ready = || ("ready_queues", format!("{QUEUE}:1").into());
        let row =
            || row([("catalog_version", 1.into()), ("due_at", SqlValue::Null), ready(), ("has_locked", false.into())]);
        (name == "poll").then(|| Ok(vec![row()]))
    });
    *stage.hangs.lock().unwrap() = Some("poll");
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    let _sleeping = store.activity().sleep();
    tokio::time::timeout(Duration::from_secs(9), signal).await.expect("it waits for the poll");
    *stage.hangs.lock().unwrap() = Some("poll");
    store.database.watch.note_change();
    tokio::time::timeout(Duration::from_secs(9), store.refresh_facts()).await.expect("it waits for the poll");
}

/// A receiver found a group whose lock its holder had freed without a notice after a minute.
#[tokio::test(start_paused = true)]
async fn a_poll_that_fails_is_soon_made_once_more() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut failures = 3;
    stage.play(move |name, _| {
        let columns = [
            ("catalog_version", 1.into()),
            ("due_at", SqlValue::Null),
            ("ready_queues", format!("{QUEUE}:1").into()),
            ("has_locked", false.into()),
        ];
        let is_failure = name == "poll" && failures > 0;
        failures -= i32::from(is_failure);
        (name == "poll").then(|| match is_failure {
            true => Err(failure(Code::ACCESS_DENIED, Fate::Undone)),
            false => Ok(vec![row(columns)]),
        })
    });
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    let _sleeping = store.activity().sleep();
    tokio::time::timeout(Duration::from_secs(9), signal).await.expect("it waits for the next poll of a quiet process");
}

/// Polls of a server that has too much were made twice each, and kept both connections from notifications and notes.
#[tokio::test(start_paused = true)]
async fn a_poll_is_not_made_twice_where_polls_are_slow() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let slow_poll = async |attempts: usize| {
        let before = stage.asked(&["poll"]).len();
        store.database.watch.note_change();
        let polled = store.clone();
        let poll = tokio::spawn(async move { polled.refresh_facts().await });
        for _ in 0..attempts {
            *stage.hangs.lock().unwrap() = Some("poll");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        // The one that has waited longest.
        stage.resumes.notify_one();
        poll.await.unwrap();
        assert_eq!(stage.asked(&["poll"]).len() - before, attempts);
    };
    // The second of these hangs too.
    slow_poll(2).await;
    slow_poll(1).await;
}

/// A tick that had to give jobs back waited for it, and so did all that fell due.
#[tokio::test(start_paused = true)]
async fn jobs_go_back_once_more_if_that_hangs() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| match name {
        "claim_jobs" => Some(Ok(vec![super::jobs::taken()])),
        "release_jobs" => Some(Ok(vec![row([("has_more", false.into()), ("notices", SqlValue::Null)])])),
        _ => None,
    });
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(take(Hold::Transaction)).await.unwrap();
    *stage.hangs.lock().unwrap() = Some("release_jobs");
    tokio::time::timeout(Duration::from_secs(3), tx.rollback(None)).await.expect("it waits for the jobs").unwrap();
    assert_eq!(stage.asked(&["release_jobs"]), ["release_jobs", "release_jobs"]);
}

/// The second attempt failed, and the first was given up for it: a notification of a process at the limit of connections was lost.
#[tokio::test(start_paused = true)]
async fn a_slow_request_is_answered_where_the_server_takes_no_new_connection() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.is_full.store(true, std::sync::atomic::Ordering::SeqCst);
    *stage.version.lock().unwrap() = 2;
    for slow in ["broker", "notify_processes"] {
        *stage.hangs.lock().unwrap() = Some(slow);
        let database = store.database.clone();
        let answer = tokio::spawn(async move {
            if slow == "broker" {
                return database.reload().await;
            }
            Ok(database.control.quick_call(Call { name: slow, args: Vec::new() }).await.map(drop)?)
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.resumes.notify_one();
        answer.await.unwrap().unwrap_or_else(|error| panic!("{slow}: {error}"));
    }
    assert_eq!(store.database.definitions.known().version, 2);
}

/// The second waits for what the first has locked, or the server refuses it for another reason of its own.
#[tokio::test(start_paused = true)]
async fn a_slow_request_is_answered_whatever_the_second_attempt_fails_by() {
    let _limit = crate::testing::limit();
    for code in [Code::LOCK_TIMEOUT, Code::DEADLOCK, Code::ACCESS_DENIED] {
        let stage = Stage::new();
        let store = stage.open().await;
        *stage.hangs.lock().unwrap() = Some("notify_processes");
        let attempts = std::sync::atomic::AtomicUsize::new(0);
        stage.play(move |name, _| {
            let is_second =
                name == "notify_processes" && attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            is_second.then(|| Err(failure(code, Fate::Undone)))
        });
        let database = store.database.clone();
        let call = || Call { name: "notify_processes", args: Vec::new() };
        let answer = tokio::spawn(async move { database.control.quick_call(call()).await.map(drop) });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(stage.asked(&["notify_processes"]).len(), 2);
        stage.resumes.notify_one();
        answer.await.unwrap().unwrap_or_else(|failure| panic!("{code:?}: {}", failure.error));
    }
}

/// They asked for a new connection in the place of the lost one, which the server refused, and a take of a transaction failed beside a
/// connection that was idle.
#[tokio::test(start_paused = true)]
async fn requests_go_by_the_connection_that_stands_where_the_server_takes_no_new_one() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let call = || Call { name: "notify_processes", args: Vec::new() };
    let control = &store.database.control;
    control.call(call()).await.unwrap();
    *stage.hangs.lock().unwrap() = Some("notify_processes");
    control.quick_call(call()).await.expect("the second connection answers");
    stage.is_full.store(true, std::sync::atomic::Ordering::SeqCst);
    control.call(call()).await.expect("the second connection is idle");
    let (one, other) = tokio::join!(control.call(call()), control.call(call()));
    one.expect("the second connection is idle");
    other.expect("the second connection is in use for a moment");
}

/// Timers, delayed jobs and leases of a process waited as long as the connection of its ticks hung.
#[tokio::test(start_paused = true)]
async fn what_falls_due_beside_a_tick_that_hangs_is_done() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let _store = stage.open().await;
    stage.until_asked("tick", 1).await;
    *stage.hangs.lock().unwrap() = Some("tick");
    stage.notify("p:other d:0");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(stage.hangs.lock().unwrap().is_none());
    assert_eq!(stage.asked(&["tick"]).len(), 3, "the first, the one that hangs, and one beside it");
}

/// The lease ended, and the job was handled a second time while its handler ran.
#[tokio::test(start_paused = true)]
async fn a_lease_is_prolonged_by_another_connection_if_one_hangs() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    *stage.hangs.lock().unwrap() = Some("extend_job");
    let extend = WorkVerb::Extend { taken: TakenJob { job: JobId(1), token: 1 }, lease_ms: None };
    let extended = store.submit(vec![Verb::Work(extend)]);
    tokio::time::timeout(Duration::from_secs(3), extended).await.expect("it waits for the first").unwrap();
    assert_eq!(stage.asked(&["extend_job"]), ["extend_job", "extend_job"]);
}

/// The answer of the earlier tick was taken for that of the next one, and so on: from then on two ticks ran whenever something fell due, and the
/// answer of one was received with the next.
#[tokio::test(start_paused = true)]
async fn a_tick_that_fails_or_hangs_after_a_slow_one_is_made_again_soon() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let _store = stage.open().await;
    stage.until_asked("tick", 1).await;
    let asked_in = async |time: u64| {
        let before = stage.asked(&["tick"]).len();
        stage.notify("p:other d:0");
        tokio::time::sleep(Duration::from_secs(time)).await;
        stage.asked(&["tick"]).len() - before
    };
    *stage.hangs.lock().unwrap() = Some("tick");
    assert_eq!(asked_in(9).await, 2, "the one that is slow, and one beside it");
    stage.resumes.notify_one();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut ticks = 0;
    stage.play(move |name, _| {
        ticks += i32::from(name == "tick");
        (name == "tick" && ticks == 1).then(|| Err(failure(Code::DEADLOCK, Fate::Undone)))
    });
    assert_eq!(asked_in(3).await, 2, "the one that fails, and the next");
    *stage.hangs.lock().unwrap() = Some("tick");
    assert_eq!(asked_in(9).await, 2, "the one that hangs, and one beside it");
}

/// The first was given up after a second, and those of many leases waited for each other on the connection for notifications: where each took
/// the server 1.5 s, leases ended, and notifications waited too.
#[tokio::test(start_paused = true)]
async fn a_lease_is_prolonged_by_the_first_request_if_that_is_only_slow() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let extend = |lease_ms| WorkVerb::Extend { taken: TakenJob { job: JobId(1), token: 1 }, lease_ms };
    let extended = async |lease_ms, hangs_after: u64| {
        let before = stage.asked(&["extend_job"]).len();
        *stage.hangs.lock().unwrap() = Some("extend_job");
        let mut attempts = 0;
        stage.play(move |name, _| {
            attempts += i32::from(name == "extend_job");
            let is_second = name == "extend_job" && attempts == 1;
            is_second.then(|| Err(failure(Code::ACCESS_DENIED, Fate::Undone)))
        });
        let store = store.clone();
        let extended = tokio::spawn(async move { store.submit(vec![Verb::Work(extend(lease_ms))]).await });
        tokio::time::sleep(Duration::from_millis(hangs_after - 100)).await;
        assert_eq!(stage.asked(&["extend_job"]).len() - before, 1);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(stage.asked(&["extend_job"]).len() - before, 2);
        stage.resumes.notify_one();
        extended.await.unwrap().expect("the first has its answer");
    };
    extended(None, 1000).await;
    extended(Some(3000), 1000).await;
    extended(Some(60_000), 5000).await;
}
