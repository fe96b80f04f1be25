//! A RECEIVE without a transaction that is given up: its messages stay, or are dropped and counted, and never come later.

use crate::stage::{Stage, soon};
use dialoq::{Act, Broker};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;

/// How many messages were dropped in this process. Nothing else here drops any.
static DROPPED: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

/// Held by the test that reads the counter.
static ALONE: Mutex<()> = Mutex::const_new(());

struct CountsDropped;

impl Recorder for CountsDropped {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "dialoq_messages_dropped_total" => Counter::from_arc(DROPPED.clone()),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

async fn alone() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().await;
    // The test of another store may have set it.
    let _ = metrics::set_global_recorder(CountsDropped);
    DROPPED.store(0, SeqCst);
    alone
}

/// Polls a future at most so often, letting other tasks run in between; what it gave, and how often it was polled.
async fn polled<F: IntoFuture>(future: F, most: usize) -> (Option<F::Output>, usize) {
    let mut future = pin!(future.into_future());
    for polls in 0..most {
        let done = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(output) = done.await {
            return (Some(output), polls + 1);
        }
        tokio::task::yield_now().await;
    }
    (None, most)
}

/// Senders that keep the store busy, so that a RECEIVE waits for its turn.
fn noise(broker: &Broker) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for _ in 0..3 {
        let broker = broker.clone();
        senders.spawn(async move {
            let dialog = broker.begin_dialog("client", "noise").await.unwrap();
            loop {
                broker.send(dialog, "DEFAULT", "noise").await.unwrap();
            }
        });
    }
    senders
}

/// How many moments of giving up are tried, evenly over the time that a RECEIVE takes.
const MOMENTS: usize = 40;

staged!(threads, a_receive_that_is_given_up_breaks_no_order_and_what_it_loses_is_counted, async |store| {
    let stage = Stage::new(store).await;
    let _alone = alone().await;
    stage.ddl("CREATE QUEUE noise; CREATE SERVICE noise ON QUEUE noise ([DEFAULT])").await;
    let mut noise = noise(&stage);
    let dialog = stage.begin_one().await;
    stage.send_on(dialog).await;
    let (first, polls) = polled(stage.receive("work"), usize::MAX).await;
    assert_eq!(first.unwrap().unwrap().unwrap().len(), 1);
    let mut received = 0;
    let mut sent = 0;
    for moment in 0..MOMENTS {
        let dialog = stage.begin_one().await;
        for number in 0..3 {
            stage.send(dialog, "DEFAULT", &number.to_string()).await.unwrap();
        }
        sent += 3;
        let mut numbers = Vec::new();
        let take = |batch: Option<dialoq::Batch>, numbers: &mut Vec<u32>| {
            let batch = batch.into_iter().flat_map(dialoq::Batch::into_messages);
            numbers.extend(batch.map(|message| message.text().unwrap().parse::<u32>().unwrap()));
        };
        let (given, _) = polled(stage.receive("work").top(1), 1 + moment * polls / MOMENTS * 2).await;
        take(given.transpose().unwrap().flatten(), &mut numbers);
        let tx = stage.begin().await.unwrap();
        take(tx.receive("work").top(1).await.unwrap(), &mut numbers);
        tx.commit().await.unwrap();
        // What is left is there, or is dropped and counted; the call that was given up may still be under way.
        let rest = async {
            while received + (numbers.len() as u64) + DROPPED.load(SeqCst) < sent {
                take(stage.receive("work").top(1).await.unwrap(), &mut numbers);
                tokio::task::yield_now().await;
            }
        };
        soon("every message received or counted", rest).await;
        received += numbers.len() as u64;
        assert!(numbers.is_sorted_by(|one, next| one < next), "given up at moment {moment}: {numbers:?}");
        assert_eq!(received + DROPPED.load(SeqCst), sent, "given up at moment {moment}");
        assert!(stage.receive("work").await.unwrap().is_none(), "given up at moment {moment}");
    }
    noise.shutdown().await;
});
