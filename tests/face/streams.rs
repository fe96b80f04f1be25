//! Streams with a window: commits under way while the consumer goes on.

use super::*;
use dialoq::Code;
use dialoq::receive::{Arrival, Arrivals};
use tokio_stream::StreamExt;

const PATIENCE: Duration = Duration::from_secs(60);

async fn next(arrivals: &mut Arrivals) -> dialoq::Result<Arrival> {
    tokio::time::timeout(PATIENCE, arrivals.next()).await.expect("an arrival in time").expect("the stream goes on")
}

/// Whether the stream has nothing to give now, though everything that it waits for has had its turn.
async fn has_nothing(arrivals: &mut Arrivals) -> bool {
    for _ in 0..100 {
        tokio::select! {
            biased;
            _ = arrivals.next() => return false,
            () = tokio::task::yield_now() => {}
        }
    }
    true
}

fn number(arrival: &Arrival) -> u64 {
    arrival.batch.first().decode(NUMBER).unwrap()
}

#[tokio::test]
async fn a_window_bounds_the_arrivals_that_are_neither_committed_nor_rolled_back() {
    let _limit = crate::limit();
    let broker = rig().await;
    for number in 1..=4 {
        send(&*broker, number).await;
    }
    let mut arrivals = broker.stream("server").top(1).window(2);
    let first = next(&mut arrivals).await.unwrap();
    let second = next(&mut arrivals).await.unwrap();
    assert_eq!((number(&first), number(&second)), (1, 2));
    assert!(has_nothing(&mut arrivals).await, "two are open");
    second.commit().await.unwrap();
    let third = next(&mut arrivals).await.unwrap();
    assert_eq!(number(&third), 3);
    assert!(has_nothing(&mut arrivals).await);
    drop(first);
    assert_eq!(number(&next(&mut arrivals).await.unwrap()), 1, "given back, and the oldest");
    third.rollback().await.unwrap();
}

#[tokio::test]
async fn confirmed_arrivals_are_durable_when_the_stream_is_settled() {
    let _limit = crate::limit();
    let broker = rig().await;
    for number in 1..=200 {
        send(&*broker, number).await;
    }
    let mut arrivals = broker.stream("server").top(1).window(64);
    for expected in 1..=200 {
        let arrival = next(&mut arrivals).await.unwrap();
        assert_eq!(number(&arrival), expected);
        arrival.confirm();
    }
    tokio::time::timeout(PATIENCE, arrivals.settled()).await.expect("settled in time").unwrap();
    drop(arrivals);
    assert_eq!(broker.receive("server").await.unwrap(), None);
    assert_eq!(broker.stream("server").settled().await.map_err(|error| error.code()), Ok(()), "nothing was confirmed");
}

#[tokio::test]
async fn messages_of_one_conversation_come_in_order_while_commits_are_under_way() {
    let _limit = crate::limit();
    let broker = rig().await;
    let handle = dialog(&*broker).await;
    for number in 1..=50 {
        broker.send(handle, NUMBER, &number).await.unwrap();
    }
    let mut arrivals = broker.stream("server").top(1).window(8);
    for expected in 1..=50 {
        let arrival = next(&mut arrivals).await.unwrap();
        assert_eq!(number(&arrival), expected);
        arrival.confirm();
    }
    arrivals.settled().await.unwrap();
}

#[tokio::test]
async fn a_confirmed_commit_that_fails_is_an_item_of_the_stream_and_its_message_comes_again() {
    let _limit = crate::limit();
    let broker = rig().await;
    broker.sql("create table note (number integer)", ()).await.unwrap();
    broker.sql("insert into note values (0)", ()).await.unwrap();
    send(&*broker, 1).await;
    send(&*broker, 2).await;
    let conflicting = async |arrival: Arrival| {
        arrival.tx.query("update note set number = number + 1 returning number", ()).await.unwrap();
        broker.sql("update note set number = number + 1", ()).await.unwrap();
        arrival.confirm();
    };
    let mut arrivals = broker.stream("server").top(1).window(1);
    let arrival = next(&mut arrivals).await.unwrap();
    assert_eq!(number(&arrival), 1);
    conflicting(arrival).await;
    assert_eq!(next(&mut arrivals).await.unwrap_err().code(), Code::DEADLOCK);
    let again = next(&mut arrivals).await.unwrap();
    assert_eq!(number(&again), 1);
    conflicting(again).await;
    assert_eq!(arrivals.settled().await.unwrap_err().code(), Code::DEADLOCK);
    assert_eq!(arrivals.settled().await.map_err(|error| error.code()), Ok(()), "it was reported once");
    let again = next(&mut arrivals).await.unwrap();
    assert_eq!(number(&again), 1);
    again.confirm();
    assert_eq!(number(&next(&mut arrivals).await.unwrap()), 2);
}
