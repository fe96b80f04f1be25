//! Calls that hang, as on a connection that was cut in silence.

use super::jobs::take;
use super::*;
use crate::protocol::work::Hold;
use crate::store::database::closing::LONGEST_ENDING;
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
    let mut tx = store.begin().await.unwrap();
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

/// They waited for the connection beside the transactions, and kept theirs.
#[tokio::test(start_paused = true)]
async fn transactions_beside_a_note_that_hangs_go_on() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
    *stage.hangs.lock().unwrap() = Some("begin_attempt");
    let mut hangs = store.begin().await.unwrap();
    let hangs = tokio::spawn(async move { hangs.execute(receive()).await });
    stage.until_asked("begin_attempt", 1).await;
    let rolled_back = async || {
        let mut tx = store.begin().await.unwrap();
        tx.execute(receive()).await.unwrap();
        tx.rollback(None).await.unwrap();
    };
    let began = Instant::now();
    tokio::time::timeout(Duration::from_secs(2), rolled_back()).await.expect("it waits for the first");
    let first = began.elapsed();
    rolled_back().await;
    assert_eq!(began.elapsed(), first, "the first is known to hang");
    let counted = ["begin_attempt", "begin_attempt", "count_rollback", "begin_attempt", "count_rollback"];
    assert_eq!(stage.asked(&["begin_attempt", "count_rollback"]), counted);
    assert!(!hangs.is_finished());
    hangs.abort();
}

/// They waited for the connection that shows that the process lives.
#[tokio::test(start_paused = true)]
async fn takes_queries_and_ticks_beside_a_check_of_places_that_hangs_go_on() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let taken = async || {
        let mut tx = store.begin().await.unwrap();
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
    assert!(stage.asked(&["hold_presence", "claim_jobs", "tick"]).ends_with(&held.map(str::to_owned)));
    hangs.abort();
}
