//! Futures dropped at any moment lose nothing that is in a transaction.

use super::*;
use dialoq::{Broker, Code};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const MESSAGES: u64 = 300;

/// Receivers that give up all the time, while messages arrive: each message is received exactly once all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_give_up_lose_and_double_nothing() {
    let _limit = crate::limit();
    let broker = rig().await;
    let mut receivers = JoinSet::new();
    for seed in 1..=4_u64 {
        receivers.spawn(receive_impatiently((*broker).clone(), seed));
    }
    for number in 0..MESSAGES {
        send(&*broker, number).await;
    }
    for _ in 0..4 {
        send(&*broker, u64::MAX).await;
    }
    let received = tokio::time::timeout(SOON, receivers.join_all()).await.expect("all of them find their end");
    let all: Vec<u64> = received.into_iter().flatten().collect();
    let once: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!((all.len() as u64, once.len() as u64), (MESSAGES, MESSAGES));
}

async fn receive_impatiently(broker: Broker, seed: u64) -> Vec<u64> {
    let (mut mine, mut dice) = (Vec::new(), seed);
    loop {
        let tx = broker.begin().await.unwrap();
        let mut got = None;
        while got.is_none() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut receive = std::pin::pin!(tx.receive("server").top(1).wait_forever().into_future());
            // Gives up after a few polls: before, while or after the store has answered.
            for _ in 0..dice >> 61 {
                if let Some(answer) = poll_once(receive.as_mut()).await {
                    got = answer.unwrap();
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let number = got.expect("just received").first().decode(NUMBER).unwrap();
        match tx.commit().await {
            Ok(()) if number == u64::MAX => return mine,
            Ok(()) => mine.push(number),
            // Something else was taken for a RECEIVE that had been given up: everything is back in the queue.
            Err(error) => assert_eq!(error.code(), Code::TRANSACTION_ENDED, "{error}"),
        }
    }
}

async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn a_wait_that_was_given_up_leaves_the_transaction_as_it_was() {
    let _limit = crate::limit();
    let broker = rig().await;
    let tx = broker.begin().await.unwrap();
    let handle = send(&tx, 1).await;
    let given_up = tokio::time::timeout(Duration::ZERO, tx.receive("asker").wait_forever().into_future()).await;
    assert!(given_up.is_err());
    assert_eq!(broker.sessions_waiting("asker"), 0);
    tx.send(handle, NUMBER, &2).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(broker.receive("server").await.unwrap().unwrap().len(), 2);
}

/// A verb that waits for a lock does not keep a rollback waiting.
#[tokio::test]
async fn rolling_back_gives_up_a_verb_that_waits_for_a_lock() {
    let _limit = crate::limit();
    let broker = rig().await;
    let handle = dialog(&*broker).await;
    let holder = broker.begin().await.unwrap();
    holder.send(handle, NUMBER, &1).await.unwrap();
    let blocked = broker.begin().await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(1), blocked.send(handle, NUMBER, &2)).await;
    assert!(given_up.is_err(), "the group is locked");
    tokio::time::timeout(SOON, blocked.rollback()).await.expect("it waits for no lock").unwrap();
    holder.commit().await.unwrap();
    assert_eq!(broker.receive("server").await.unwrap().unwrap().len(), 1);
}

/// A call that is dropped runs on, so a statement that does not end runs as long as its transaction.
#[tokio::test]
async fn a_statement_that_does_not_end_is_stopped_when_its_transaction_is_dropped() {
    let _limit = crate::limit();
    const ENDLESS: &str = "insert into t with recursive r (n) as (select 1 union all select n + 1 from r) \
                           select n from r where n < 0";
    let broker = rig().await;
    broker.sql("create table t (n integer)", ()).await.unwrap();
    let tx = broker.begin().await.unwrap();
    let moment = Duration::from_millis(50);
    assert!(tokio::time::timeout(moment, tx.sql(ENDLESS, ()).into_future()).await.is_err());
    // It holds up all writers, once it has begun.
    let mut given_up = 0;
    while tokio::time::timeout(moment, broker.sql("insert into t values (?1)", (given_up,))).await.is_ok() {
        given_up += 1;
    }
    drop(tx);
    let other = broker.sql("insert into t values (-1)", ());
    tokio::time::timeout(SOON, other).await.expect("the writer is free").unwrap();
    let rows = broker.query("select n from t where n in (-1, ?1)", (given_up,)).await.unwrap().rows;
    assert_eq!(rows.len(), 1, "the caller of the other one had gone before it ran");
}
