//! Futures that their callers keep and do not poll, as in a `select!` loop whose other branch is at work.

use crate::{PATIENCE, Place};
use dialoq::{Act, Broker};
use std::pin::pin;
use std::time::Duration;

/// Of a file with a work queue `w`.
async fn owner_and_guest(place: &Place) -> (Broker, Broker) {
    let owner = place.defined().await;
    let guest = place.open().await;
    owner.execute("CREATE WORK QUEUE w").await.unwrap();
    guest.push_job("w", "x").await.unwrap();
    (owner, guest)
}

/// Other calls of the guest have answers, and it has the new definitions.
async fn goes_on(guest: &Broker, round: u64) {
    let goes_on = async {
        while !guest.dump().contains(&format!("[{round}]")) {
            guest.push_job("w", "x").await.unwrap();
        }
        guest.push_job("w", "x").await.unwrap();
    };
    let done = tokio::time::timeout(PATIENCE, goes_on).await;
    done.unwrap_or_else(|_| panic!("round {round}: a push waits for a call that is not polled"));
}

/// The transaction stays open, and goes on with the RECEIVE at its next call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_that_was_given_up_holds_up_no_other_call_when_definitions_change() {
    let _limit = crate::limit();
    let place = Place::new();
    let (owner, guest) = owner_and_guest(&place).await;
    for round in 0..40 {
        let tx = guest.begin().await.unwrap();
        owner.execute(&format!("CREATE MESSAGE TYPE [{round}]")).await.unwrap();
        let _ = tokio::time::timeout(Duration::from_micros(round * 137 % 4000), async { tx.receive("to").await }).await;
        goes_on(&guest, round).await;
    }
    guest.close().await.unwrap();
    owner.close().await.unwrap();
}

/// Each change of definitions wakes the waits of a guest, which then read the new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_not_polled_holds_up_no_other_call_when_definitions_change() {
    let _limit = crate::limit();
    let place = Place::new();
    let (owner, guest) = owner_and_guest(&place).await;
    let mut wait = pin!(guest.receive("to").wait_forever().into_future());
    for round in 0..40 {
        let changed = {
            let owner = owner.clone();
            tokio::spawn(async move { owner.execute(&format!("CREATE MESSAGE TYPE [{round}]")).await })
        };
        let polled = tokio::time::timeout(Duration::from_micros(round * 137 % 8000), &mut wait).await;
        assert!(polled.is_err(), "there is no message");
        goes_on(&guest, round).await;
        changed.await.unwrap().unwrap();
    }
    guest.close().await.unwrap();
    owner.close().await.unwrap();
}

/// The first reading that failed left a caller waiting for a second one, and woke all others, which asked for the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_cannot_be_read_hold_up_no_call() {
    let _limit = crate::limit();
    let place = Place::new();
    let (owner, guest) = owner_and_guest(&place).await;
    let file = rusqlite::Connection::open(&place.path).unwrap();
    file.execute_batch("ALTER TABLE dialoq_event_notification RENAME TO away").unwrap();
    owner.execute("CREATE MESSAGE TYPE [0]").await.unwrap();
    for _ in 0..3 {
        let pushed = tokio::time::timeout(PATIENCE, async { guest.push_job("w", "x").await }).await;
        pushed.expect("a push waits for definitions that cannot be read").unwrap();
    }
    assert!(!guest.dump().contains("[0]"));
    file.execute_batch("ALTER TABLE away RENAME TO dialoq_event_notification").unwrap();
    goes_on(&guest, 0).await;
    guest.close().await.unwrap();
    owner.close().await.unwrap();
}
