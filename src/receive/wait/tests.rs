use super::*;
use crate::act::Act;
use crate::broker::Broker;
use crate::error::Code;
use crate::store::fake::{FakeStore, Shared};
use std::task::{Context, Waker};

fn rig() -> (Arc<FakeStore>, Broker) {
    let store = FakeStore::new(&["high", "low"]);
    let broker = Broker::over(Arc::new(Shared(store.clone())));
    (store, broker)
}

fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn texts(batch: Option<Batch>) -> Vec<String> {
    batch.into_iter().flatten().map(|message| message.text().unwrap().into_owned()).collect()
}

#[tokio::test]
async fn without_wait_an_empty_queue_answers_at_once() {
    let _limit = crate::testing::limit();
    let (_, broker) = rig();
    assert_eq!(broker.receive("low").await.unwrap(), None);
    let facts = broker.activity().queue("low").facts();
    assert_eq!((facts.receives, facts.last_empty), (1, Some(broker.clock().now())));
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline_by_the_brokers_clock() {
    let _limit = crate::testing::limit();
    let (_, broker) = rig();
    let mut receive = broker.receive("low").wait(Duration::from_secs(60)).into_future();
    assert!(poll_once(&mut receive).is_pending());
    broker.clock().advance(Duration::from_millis(59_999));
    assert!(poll_once(&mut receive).is_pending());
    assert_eq!(broker.activity().queue("low").facts().waiting, 1);
    broker.clock().advance(Duration::from_millis(1));
    assert_eq!(receive.await.unwrap(), None);
    assert_eq!(broker.activity().queue("low").facts().waiting, 0);
}

#[tokio::test]
async fn an_arrival_ends_a_wait() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let mut receive = broker.receive("low").wait_forever().into_future();
    assert!(poll_once(&mut receive).is_pending());
    store.arrive("low", 5, &["a", "b"]);
    assert_eq!(texts(receive.await.unwrap()), ["a", "b"]);
}

#[tokio::test]
async fn as_many_arrivals_serve_as_many_waits() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let mut waits: Vec<_> = (0..5).map(|_| broker.receive("low").wait_forever().into_future()).collect();
    for wait in &mut waits {
        assert!(poll_once(wait).is_pending());
    }
    for _ in 0..5 {
        store.arrive("low", 5, &["x"]);
    }
    for wait in waits {
        assert_eq!(texts(wait.await.unwrap()), ["x"]);
    }
}

#[tokio::test]
async fn a_receiver_that_leaves_passes_its_signal_on() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let mut leaves = broker.receive("low").wait_forever().into_future();
    let mut stays = broker.receive("low").wait_forever().into_future();
    assert!(poll_once(&mut leaves).is_pending());
    assert!(poll_once(&mut stays).is_pending());
    store.arrive("low", 5, &["x"]);
    // The first has been signalled, and goes away before its receive.
    drop(leaves);
    assert_eq!(texts(stays.await.unwrap()), ["x"]);
}

#[tokio::test]
async fn a_receiver_cancelled_during_an_attempt_passes_its_signal_on() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let tx = broker.begin().await.unwrap();
    let mut leaves = tx.receive("low").wait_forever().into_future();
    let mut stays = broker.receive("low").wait_forever().into_future();
    assert!(poll_once(&mut leaves).is_pending());
    assert!(poll_once(&mut stays).is_pending());
    store.gate.forget_permits(usize::MAX);
    store.arrive("low", 5, &["x"]);
    // It swallows the signal and calls the store, which does not answer yet.
    assert!(poll_once(&mut leaves).is_pending());
    drop(leaves);
    drop(tx);
    store.gate.add_permits(10);
    assert_eq!(texts(stays.await.unwrap()), ["x"]);
}

#[tokio::test]
async fn a_queue_turned_off_or_dropped_ends_the_wait_with_its_error() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let mut high = broker.receive("high").wait_forever().into_future();
    let mut low = broker.get_conversation_group("low").wait_forever().into_future();
    let mut chosen = broker.receive("low").levels(1..=3).wait_forever().into_future();
    assert!(poll_once(&mut high).is_pending());
    assert!(poll_once(&mut chosen).is_pending());
    assert!(poll_once(&mut low).is_ready(), "the fake store has no GET CONVERSATION GROUP");
    store.turn_off("high");
    assert_eq!(high.await.unwrap_err().code(), Code::QUEUE_DISABLED);
    store.drop_queue("low");
    assert_eq!(chosen.await.unwrap_err().code(), Code::OBJECT_NOT_FOUND);
}

#[tokio::test]
async fn attempts_run_in_order_and_wait_together() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let attempts = [ReceiveAttempt::new("high"), ReceiveAttempt::new("low").top(1)];
    store.arrive("low", 1, &["l1"]);
    store.arrive("high", 9, &["h1"]);
    let (place, batch) = receive_first(&broker, &attempts, Deadline::Never).await.unwrap().unwrap();
    assert_eq!((place, texts(Some(batch))), (0, vec!["h1".to_owned()]));
    let (place, batch) = receive_first(&broker, &attempts, Deadline::Never).await.unwrap().unwrap();
    assert_eq!((place, texts(Some(batch))), (1, vec!["l1".to_owned()]));

    let mut both = Box::pin(receive_first(&broker, &attempts, Deadline::Never));
    assert!(poll_once(&mut both).is_pending());
    assert_eq!(broker.activity().queue("high").facts().waiting, 1);
    store.arrive("low", 1, &["l2", "l3"]);
    let (place, batch) = both.await.unwrap().unwrap();
    assert_eq!((place, texts(Some(batch))), (1, vec!["l2".to_owned()]), "TOP (1) leaves l3");
    assert_eq!(texts(broker.receive("low").await.unwrap()), ["l3"]);
}

#[tokio::test]
async fn a_receiver_of_two_queues_gives_the_signal_of_the_other_back() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let attempts = [ReceiveAttempt::new("high"), ReceiveAttempt::new("low")];
    let mut both = Box::pin(receive_first(&broker, &attempts, Deadline::Never));
    let mut low = broker.receive("low").wait_forever().into_future();
    assert!(poll_once(&mut both).is_pending());
    assert!(poll_once(&mut low).is_pending());
    store.arrive("high", 9, &["h"]);
    store.arrive("low", 1, &["l"]);
    let (place, _) = both.await.unwrap().unwrap();
    assert_eq!(place, 0);
    assert_eq!(texts(low.await.unwrap()), ["l"], "its signal went to the other receiver first");
}

#[tokio::test]
async fn a_choosy_receiver_wakes_for_every_arrival_and_takes_only_its_own() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let mut chosen = broker.receive("low").levels(8..=10).wait_forever().into_future();
    assert!(poll_once(&mut chosen).is_pending());
    store.arrive("low", 3, &["not mine"]);
    assert!(poll_once(&mut chosen).is_pending());
    store.arrive("low", 9, &["mine"]);
    assert_eq!(texts(chosen.await.unwrap()), ["mine"]);
}

#[tokio::test]
async fn with_where_a_wait_is_not_one_of_the_queue_monitors() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let group = GroupId(uuid::Uuid::from_u128(1));
    let mut chosen = broker.receive("low").group(group).wait_forever().into_future();
    assert!(poll_once(&mut chosen).is_pending());
    assert_eq!(broker.activity().queue("low").facts().waiting, 0);
    store.arrive("low", 5, &["x"]);
    assert_eq!(texts(chosen.await.unwrap()), ["x"]);
    assert_eq!(broker.activity().queue("low").facts().last_empty, None);
}

#[tokio::test]
async fn a_wait_for_some_levels_is_not_one_of_the_queue_monitors_but_a_wait_for_all_of_them_is() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let waiting = || broker.activity().queue("low").facts().waiting;
    let levels = |levels| ReceiveAttempt::new("low").levels(levels);
    for (attempts, counted) in [
        (vec![levels(8..=10)], 0),
        (vec![levels(8..=10), levels(1..=6)], 0),
        (vec![levels(8..=10), levels(1..=7)], 1),
        (vec![levels(8..=10), ReceiveAttempt::new("low").top(1)], 1),
        (vec![levels(1..=10)], 1),
    ] {
        let mut chosen = Box::pin(receive_first(&broker, &attempts, Deadline::Never));
        assert!(poll_once(&mut chosen).is_pending());
        assert_eq!(waiting(), counted, "{attempts:?}");
        drop(chosen);
        assert_eq!(waiting(), 0);
    }
    drop(store);
}

#[tokio::test]
async fn a_queue_is_empty_for_its_monitor_only_after_attempts_on_all_levels() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    let empty = |queue: &str| broker.activity().queue(queue).facts().last_empty.is_some();
    let urgent = ReceiveAttempt::new("low").levels(8..=10);
    assert!(receive_first(&broker, std::slice::from_ref(&urgent), Deadline::Now).await.unwrap().is_none());
    assert!(!empty("low"), "of the other levels it says nothing");
    store.arrive("low", 3, &["x"]);
    let drain = [urgent, ReceiveAttempt::new("low").top(1)];
    assert!(receive_first(&broker, &drain, Deadline::Now).await.unwrap().is_some());
    assert!(!empty("low"), "the second attempt found a message");
    store.arrive("low", 3, &["y"]);
    let both = [ReceiveAttempt::new("high"), ReceiveAttempt::new("low")];
    assert!(receive_first(&broker, &both, Deadline::Now).await.unwrap().is_some());
    assert!(empty("high") && !empty("low"));
    assert!(receive_first(&broker, &drain, Deadline::Now).await.unwrap().is_none());
    assert!(empty("low"));
}

#[tokio::test]
async fn top_0_never_waits() {
    let _limit = crate::testing::limit();
    let (store, broker) = rig();
    store.arrive("low", 5, &["x"]);
    assert_eq!(broker.receive("low").top(0).wait_forever().await.unwrap(), None);
    assert_eq!(broker.activity().queue("low").facts().receives, 1, "it counts as a RECEIVE all the same");
}

#[tokio::test]
async fn a_stream_gives_transactions_and_ends_after_an_error() {
    let _limit = crate::testing::limit();
    use tokio_stream::StreamExt;
    let (store, broker) = rig();
    store.arrive("low", 5, &["a", "b"]);
    let mut arrivals = broker.stream("low").top(1);
    let arrival = arrivals.next().await.unwrap().unwrap();
    assert_eq!(arrival.batch.first().text().unwrap(), "a");
    arrival.rollback().await.unwrap();
    let arrival = arrivals.next().await.unwrap().unwrap();
    assert_eq!(arrival.batch.first().text().unwrap(), "a", "it was given back");
    arrival.commit().await.unwrap();
    store.turn_off("low");
    let error = arrivals.next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::QUEUE_DISABLED);
    assert!(arrivals.next().await.is_none());
}

/// The last side of a group goes without a verb: when the other side has received its END, or at the end of its lifetime.
#[tokio::test]
async fn a_wait_for_a_group_ends_when_its_last_side_goes_by_itself() {
    let _limit = crate::testing::limit();
    for is_acknowledged in [true, false] {
        let broker = crate::testing::TestBroker::in_memory().await.unwrap();
        let script = "CREATE QUEUE a; CREATE QUEUE b WITH STATUS = OFF; CREATE SERVICE a ON QUEUE a; CREATE SERVICE b ON QUEUE b ([DEFAULT])";
        broker.execute(script).await.unwrap();
        let group = crate::id::GroupId(uuid::Uuid::from_u128(1));
        let dialog = broker.begin_dialog("a", "b").in_group(group).lifetime(Duration::from_secs(60)).await.unwrap();
        broker.send(dialog, "DEFAULT", "x").await.unwrap();
        let mut receive = broker.receive("a").group(group).wait_forever().into_future();
        assert!(poll_once(&mut receive).is_pending());
        broker.end(dialog).await.unwrap();
        assert!(poll_once(&mut receive).is_pending(), "the END waits for its queue");
        match is_acknowledged {
            true => drop(broker.execute("ALTER QUEUE b WITH STATUS = ON").await.unwrap()),
            false => broker.advance(Duration::from_secs(61)),
        }
        assert_eq!(receive.await.unwrap_err().code(), Code::GROUP_NOT_FOUND, "{is_acknowledged}");
    }
}
