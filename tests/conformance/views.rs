//! Views and counters.

use dialoq::Act;
use dialoq::activation::{Procedure, Session};
use dialoq::work::WorkQueue;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit};
use std::collections::{HashMap, HashSet};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

case!(sequences_in_the_view, [226], async |t| {
    let pairs = [t.pair().await?, t.pair().await?];
    for number in 1..4 {
        t.send(pairs[0].initiator, "Text", &number.to_string()).await?;
    }
    t.send(pairs[1].target, "Text", "answer").await?;
    let endpoints = t.endpoints().await?;
    let keys: HashSet<_> = endpoints.iter().map(|endpoint| (endpoint.conversation_id, endpoint.is_initiator)).collect();
    assert_eq!(keys.len(), 4);
    let sequences = |handle| {
        let endpoint = endpoints.iter().find(|endpoint| endpoint.handle == handle).expect("the endpoint");
        (endpoint.send_sequence, endpoint.receive_sequence)
    };
    // Each pair has sent one message before.
    assert_eq!((sequences(pairs[0].initiator), sequences(pairs[0].target)), ((4, 0), (0, 4)));
    assert_eq!((sequences(pairs[1].initiator), sequences(pairs[1].target)), ((1, 1), (1, 1)));
    t.receive("QT").await?;
    t.receive("QI").await?;
    let t = t.restart().await?;
    let after = t.endpoints().await?;
    for (before, after) in endpoints.iter().zip(&after) {
        assert_eq!((before.send_sequence, before.receive_sequence), (after.send_sequence, after.receive_sequence));
    }
    t.send(pairs[0].initiator, "Text", "next").await?;
    assert_eq!(t.receive("QT").await?[0].message_sequence_number, 4, "and the numbers go on");
});

case!(how_far_an_ended_side_has_received, [226], async |t| {
    let (by_initiator, by_target, plain) = (t.pair().await?, t.pair().await?, t.pair().await?);
    let received = async |handle| {
        let endpoints = t.endpoints().await?;
        let endpoint = endpoints.iter().find(|endpoint| endpoint.handle == handle).expect("the endpoint");
        Ok::<_, crate::rig::Failure>(endpoint.receive_sequence)
    };
    for queue in ["QI", "QT"] {
        t.define(&format!("ALTER QUEUE [{queue}] WITH STATUS = OFF")).await?;
    }
    for number in ["2", "3"] {
        t.send(by_initiator.initiator, "Text", number).await?;
        t.send(by_target.target, "Text", number).await?;
        t.send(plain.initiator, "Text", number).await?;
    }
    t.end_with_error(by_initiator.initiator, 4, "x").await?;
    t.end_with_error(by_target.target, 4, "x").await?;
    t.end(plain.initiator).await?;
    for queue in ["QI", "QT"] {
        t.define(&format!("ALTER QUEUE [{queue}] WITH STATUS = ON")).await?;
    }
    // Two messages and EndDialog after the first.
    assert_eq!(received(plain.target).await?, 4);
    t.end(plain.target).await?;
    assert_eq!(received(plain.target).await?, 4, "also without the other side");
    // DIFFERENCE(received-before-an-error): a server counts the error and what it dropped, and nothing once the
    // other side is erased.
    let expected = if t.store().is_server() { (0, 3) } else { (1, 0) };
    assert_eq!((received(by_initiator.target).await?, received(by_target.initiator).await?), expected);
});

case!(waiting_ends_in_the_view, [227], async |t| {
    let (plain, error) = (t.pair().await?, t.pair().await?);
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.end(plain.initiator).await?;
    t.end_with_error(error.initiator, 4, "x").await?;
    let waiting = t.transmission().await?;
    let flags = |handle: dialoq::ConversationHandle| {
        let row = waiting.iter().find(|row| row.text("conversation_handle") == handle.to_string()).expect("it waits");
        (row.int("is_end_of_dialog"), row.int("is_conversation_error"))
    };
    assert_eq!((flags(plain.initiator), flags(error.initiator)), ((1, 0), (0, 1)));
});

case!(services_and_usages_in_the_views, [29, 226], async |t| {
    let services = t.view("services").await?;
    let service = services.iter().find(|row| row.text("name") == "T").expect("service T");
    assert_eq!(service.int("service_queue_id"), t.queue("QT").await?.int("object_id"));
    let usages = t.view("service_contract_usages").await?;
    let listed = usages.iter().filter(|row| row.int("service_id") == service.int("service_id")).count();
    assert_eq!(listed, 1);
    let queues = t.view("service_queue_usages").await?;
    let of_service = queues.iter().find(|row| row.int("service_id") == service.int("service_id")).expect("its queue");
    assert_eq!(of_service.int("service_queue_id"), service.int("service_queue_id"));
    assert_eq!(queues.len(), services.len(), "one for each");
    let ids: HashSet<i64> = services.iter().map(|row| row.int("service_id")).collect();
    assert_eq!(ids.len(), services.len());
    assert!(service.int("service_id") >= 65536);
});

case!(monitors_count_every_waiting_session, [228], async |t| {
    let readers = t.broker.activate("QT", idle_procedure()).max_queue_readers(1).start();
    assert_eq!(readers.monitor().await.expect("a monitor").tasks_waiting, 0);
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_receive("QT", Some(60)).await });
    t.still_waits(&mut waiting).await;
    assert_eq!(readers.monitor().await.expect("a monitor").tasks_waiting, 1, "no activation started it");
    t.advance(60).await?;
    waiting.await?;
    assert_eq!(readers.monitor().await.expect("a monitor").tasks_waiting, 0);
});

case!(monitors_note_empty_receives_and_launches, [229], async |t| {
    let readers = t.broker.activate("QT", idle_procedure()).max_queue_readers(1).start();
    let before = readers.monitor().await.expect("a monitor");
    assert_eq!((before.last_empty_rowset_time, before.last_activated_time), (None, None));
    t.advance(3).await?;
    let empty_at = t.now();
    assert!(t.receive("QT").await?.is_empty());
    let row = readers.monitor().await.expect("a monitor");
    assert_eq!((row.last_empty_rowset_time, row.last_activated_time), (Some(empty_at), None));
    t.advance(3).await?;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "x").await?;
    // A process that works through the owner of a file asks it for a place first.
    let mut row = readers.monitor().await.expect("a monitor");
    while row.last_activated_time.is_none() {
        tokio::task::yield_now().await;
        row = readers.monitor().await.expect("a monitor");
    }
    assert_eq!((row.last_empty_rowset_time, row.last_activated_time), (Some(empty_at), Some(t.now())));
});

/// A reader that leaves at once.
fn idle_procedure() -> Procedure {
    Procedure::new("idle", async |_: Session| Ok(()))
}

case!(messages_are_counted_by_level, [230], async |t| {
    // DIFFERENCE(counted-when-received): messages are counted by queue and level when they leave the queue.
    let counts = Counts::default();
    let _listening = metrics::set_default_local_recorder(&counts);
    for (level, messages) in [(3, 2), (9, 1)] {
        let dialog = t.begin_at_level(level).await?;
        for _ in 0..messages {
            t.send(dialog, "Text", "x").await?;
        }
    }
    let count = |level: &str| counts.of("dialoq_messages_received_total", &[("queue", "QT"), ("priority", level)]);
    assert_eq!((count("3"), count("9")), (0, 0));
    t.receive("QT").await?;
    t.receive("QT").await?;
    assert_eq!((count("3"), count("9"), count("5")), (2, 1, 0));
});

case!(jobs_are_counted_by_queue, [299], async |t| {
    let counts = Counts::default();
    let _listening = metrics::set_default_local_recorder(&counts);
    for (queue, in_transactions) in [("leased", false), ("in_transactions", true)] {
        let options = "MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0";
        t.define(&format!("CREATE WORK QUEUE {queue} WITH {options}")).await?;
        let jobs = WorkQueue::<String>::text(queue);
        for (level, name) in [(3, "good"), (9, "bad")] {
            let push = || t.broker.push_job(jobs, name).level(level).unique(name).into_future();
            push().await?;
            push().await?;
        }
        let (seen, running) = (counts.clone(), Arc::new(Mutex::new(Vec::new())));
        let noted = running.clone();
        let worker = t.broker.worker(jobs, async move |_, name: String| {
            let running = seen.gauge("dialoq_jobs_running", &[("queue", queue)]);
            noted.lock().expect("no handler panics").push(running);
            if name == "bad" { Err("no") } else { Ok(()) }
        });
        let worker = if in_transactions { worker.in_transactions() } else { worker };
        let worker = worker.start();
        while worker.done().completed == 0 || worker.done().failed < 2 {
            tokio::task::yield_now().await;
        }
        worker.stop().await;
        let count = |name, more: &[(&'static str, &str)]| counts.of(name, &[&[("queue", queue)], more].concat());
        assert_eq!(count("dialoq_jobs_pushed_total", &[]), 2, "the second push of a unique name makes no job");
        let taken = |level| count("dialoq_jobs_taken_total", &[("level", level)]);
        assert_eq!((taken("3"), taken("9")), (1, 2), "{queue}");
        let ended = |end| count("dialoq_attempts_total", &[("end", end)]);
        assert_eq!((ended("completed"), ended("failed"), ended("lost")), (1, 2, 0), "{queue}");
        assert_eq!(count("dialoq_jobs_dead_total", &[]), 1, "{queue}");
        assert_eq!(*running.lock().expect("no handler panics"), [1.0; 3], "{queue}");
        assert!(counts.gauge("dialoq_jobs_running", &[("queue", queue)]) == 0.0, "{queue}");
    }
});

case!(rollbacks_are_counted, [231], async |t| {
    let counts = Counts::default();
    let _listening = metrics::set_default_local_recorder(&counts);
    let rollbacks = || counts.of("dialoq_transactions_total", &[("end", "rollback")]);
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "x").await?;
    let tx = t.begin().await?;
    tx.send(dialog, "Text", "y").await?;
    tx.rollback().await?;
    assert_eq!(rollbacks(), 1);
    let tx = t.begin().await?;
    tx.receive("QT").await?;
    drop(tx);
    assert_eq!(rollbacks(), 2);
    let tx = t.begin().await?;
    tx.receive("QT").await?;
    tx.commit().await?;
    assert_eq!(rollbacks(), 2);
});

/// Counters and gauges by name and labels, recorded on this thread only.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<HashMap<Key, Arc<AtomicU64>>>>);

impl Counts {
    fn of(&self, name: &'static str, labels: &[(&'static str, &str)]) -> u64 {
        let labels: Vec<Label> = labels.iter().map(|(key, value)| Label::new(*key, (*value).to_owned())).collect();
        let counts = self.0.lock().expect("no thread panics while counting");
        counts.get(&Key::from_parts(name, labels)).map_or(0, |count| count.load(SeqCst))
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> f64 {
        f64::from_bits(self.of(name, labels))
    }

    fn entry(&self, key: &Key) -> Arc<AtomicU64> {
        self.0.lock().expect("no thread panics while counting").entry(key.clone()).or_default().clone()
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.entry(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
