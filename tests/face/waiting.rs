//! Waiting on the embedded store.

use super::*;
use dialoq::receive::{Deadline, ReceiveAttempt, receive_first};
use dialoq::{Broker, Clock, Code, OpenOptions};
use std::collections::BTreeSet;
use tokio::task::JoinSet;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_however_many_wait() {
    let _limit = crate::limit();
    let broker = rig().await;
    for round in 0..20 {
        let mut receivers = JoinSet::new();
        for _ in 0..16 {
            let broker: Broker = broker.clone();
            receivers.spawn(async move {
                let batch = broker.receive("server").wait_forever().await.unwrap().unwrap();
                batch.first().decode(NUMBER).unwrap()
            });
        }
        if round % 2 == 0 {
            until_waiting(&broker, "server", 16).await;
        }
        for number in 0..16 {
            send(&*broker, number).await;
        }
        let received: BTreeSet<u64> =
            timeout(SOON, receivers.join_all()).await.expect("all are served").into_iter().collect();
        assert_eq!(received.len(), 16, "round {round}: each message once");
    }
}

#[tokio::test]
async fn where_a_group_is_locked_elsewhere_only_a_wait_waits() {
    let _limit = crate::limit();
    let broker = rig().await;
    send(&*broker, 1).await;
    let holder = broker.begin().await.unwrap();
    let group = holder.get_conversation_group("server").await.unwrap().expect("a group is ready");
    assert_eq!(broker.receive("server").group(group).await.unwrap(), None);
    assert_eq!(broker.receive("server").await.unwrap(), None, "locked groups are passed over");

    let waiting = broker.clone();
    let waiting = tokio::spawn(async move { waiting.receive("server").group(group).wait_forever().await });
    tokio::task::yield_now().await;
    holder.rollback().await.unwrap();
    let batch = timeout(SOON, waiting).await.expect("the lock is free").unwrap().unwrap().unwrap();
    assert_eq!(batch.group(), group);
}

#[tokio::test]
async fn a_rollback_wakes_waiting_receivers() {
    let _limit = crate::limit();
    let broker = rig().await;
    send(&*broker, 1).await;
    let holder = broker.begin().await.unwrap();
    holder.receive("server").await.unwrap().expect("it is there");
    let waiting = broker.clone();
    let waiting = tokio::spawn(async move { waiting.receive("server").wait_forever().await });
    until_waiting(&broker, "server", 1).await;
    drop(holder);
    let batch = timeout(SOON, waiting).await.expect("it is given back").unwrap().unwrap().unwrap();
    assert_eq!(batch.first().decode(NUMBER).unwrap(), 1);
}

#[tokio::test]
async fn a_queue_turned_off_dropped_or_closed_ends_every_wait() {
    let _limit = crate::limit();
    let broker = rig().await;
    broker
        .define(|d| {
            d.queue("other").queue("last");
        })
        .await
        .unwrap();
    let waits = |queue: &'static str| {
        let broker: Broker = broker.clone();
        tokio::spawn(async move {
            let tx = broker.begin().await.unwrap();
            let code = tx.receive(queue).wait_forever().await.unwrap_err().code();
            (code, tx.rollback().await.is_ok())
        })
    };
    let (off, gone, closed) = (waits("server"), waits("other"), waits("last"));
    for queue in ["server", "other", "last"] {
        until_waiting(&broker, queue, 1).await;
    }
    broker
        .define(|d| {
            d.alter_queue("server").status(false);
        })
        .await
        .unwrap();
    assert_eq!(timeout(SOON, off).await.unwrap().unwrap(), (Code::QUEUE_DISABLED, true));
    broker.execute("DROP QUEUE other").await.unwrap();
    assert_eq!(timeout(SOON, gone).await.unwrap().unwrap(), (Code::OBJECT_NOT_FOUND, true));
    broker.close().await.unwrap();
    assert_eq!(timeout(SOON, closed).await.unwrap().unwrap().0, Code::STORE_CLOSED);
    assert_eq!(broker.begin().await.unwrap_err().code(), Code::STORE_CLOSED);
    assert_eq!(broker.receive("last").await.unwrap_err().code(), Code::STORE_CLOSED);
}

#[tokio::test]
async fn one_wait_spans_queues_and_levels() {
    let _limit = crate::limit();
    let broker = rig().await;
    let attempts = [
        ReceiveAttempt::new("server").levels(8..=10),
        ReceiveAttempt::new("asker"),
        ReceiveAttempt::new("server").top(1),
    ];
    let waiting: Broker = broker.clone();
    let waiting = tokio::spawn(async move { receive_first(&waiting, &attempts, Deadline::Never).await });
    until_waiting(&broker, "asker", 1).await;
    let handle = send(&*broker, 1).await;
    let (place, batch) = timeout(SOON, waiting).await.unwrap().unwrap().unwrap().unwrap();
    assert_eq!((place, batch.first().priority), (2, 5), "level 5 is not in the first attempt");

    broker.reprioritise(batch.first().handle(), dialoq::Level::new(9)).await.unwrap();
    broker.send(handle, NUMBER, &2).await.unwrap();
    let attempts = [ReceiveAttempt::new("asker"), ReceiveAttempt::new("server").levels(8..=10)];
    let (place, _) = receive_first(&*broker, &attempts, Deadline::Now).await.unwrap().unwrap();
    assert_eq!(place, 1);
}

#[tokio::test]
async fn a_stream_of_messages_takes_one_at_a_time() {
    let _limit = crate::limit();
    use tokio_stream::StreamExt;
    let broker = rig().await;
    let handle = dialog(&*broker).await;
    for number in 0..3 {
        broker.send(handle, NUMBER, &number).await.unwrap();
    }
    let mut messages = broker.stream_messages("server");
    for number in 0..2 {
        assert_eq!(messages.next().await.unwrap().unwrap().decode(NUMBER).unwrap(), number);
    }
    drop(messages);
    let left = broker.receive("server").await.unwrap().expect("the last was not taken");
    assert_eq!(left.first().decode(NUMBER).unwrap(), 2);
}

#[tokio::test]
async fn a_clock_that_is_put_back_does_not_lengthen_a_wait() {
    let _limit = crate::limit();
    let clock = Clock::wrong_by(3600);
    let broker = Broker::open_with("sqlite::memory:", OpenOptions::new().clock(clock.clone())).await.unwrap();
    broker
        .define(|d| {
            d.queue("server");
        })
        .await
        .unwrap();
    loop {
        let waiting = {
            let broker = broker.clone();
            tokio::spawn(async move { broker.receive("server").wait(Duration::from_millis(50)).await })
        };
        while broker.sessions_waiting("server") == 0 && !waiting.is_finished() {
            tokio::task::yield_now().await;
        }
        // On a machine that stands still for a moment the wait may be over before it is seen.
        let is_seen = !waiting.is_finished();
        if is_seen {
            clock.jump(-3600);
        }
        let ended = timeout(SOON, waiting).await.expect("the wait ends").expect("no panic");
        assert_eq!(ended.unwrap(), None);
        if is_seen {
            break;
        }
    }
}
