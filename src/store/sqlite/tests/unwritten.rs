//! Ordered and unwritten work: its visibility, its answers, and the messages of a caller that gives up.
//!
//! A test holds the lock of the connection that writes, so that nothing is written before it releases the lock.

use super::*;
use crate::core::Step;
use crate::store::Seen;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn set_status(is_on: bool) -> Verb {
    let options = QueueOptions { status: Some(is_on), ..QueueOptions::default() };
    Verb::Define(vec![Definition::AlterQueue { name: "to".into(), options }])
}

#[tokio::test]
async fn a_receive_that_is_given_up_before_the_writer_orders_it_takes_nothing() {
    let _limit = crate::testing::limit();
    for is_redefined in [false, true] {
        let store = defined(SqliteOptions::new(Location::Memory)).await;
        assert!(messages(&store.submit(vec![receive()]).await.unwrap()[0]).is_empty());
        if is_redefined {
            // The name stands for another queue now.
            let again = definitions().into_iter().filter(|definition| match definition {
                Definition::CreateQueue { name, .. } => name == "to",
                Definition::CreateService { name, .. } => name == "b",
                _ => false,
            });
            let drops = [Definition::DropService { name: "b".into() }, Definition::DropQueue { name: "to".into() }];
            store.submit(vec![Verb::Define(drops.into_iter().chain(again).collect())]).await.unwrap();
        }
        let handle = begin(&store).await;
        store.submit(vec![send(handle, "kept")]).await.unwrap();
        {
            let _held = store.engine.write.lock().unwrap();
            let mut given_up = store.submit(vec![receive()]);
            assert_pending(&mut given_up);
        }
        assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["kept"]);
    }
}

#[tokio::test]
async fn a_transaction_receives_a_message_when_it_is_written() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let (one, two) = (begin(&store).await, begin(&store).await);
    let (mut a, mut b) = (store.begin(Seen::always()).await.unwrap(), store.begin(Seen::always()).await.unwrap());
    let (mut first, mut second) = (store.submit(vec![send(one, "one")]), store.submit(vec![send(two, "two")]));
    let (mut of_first, mut of_second) = (a.execute(receive()), b.execute(receive()));
    {
        let write = store.engine.write.lock().unwrap();
        assert_pending(&mut first);
        assert_pending(&mut second);
        let mut rows = Batch::default();
        store.engine.lock_even_failed().take_rows(&mut rows);
        write.write_rows(&mut rows, &mut []).unwrap();
        assert_pending(&mut of_first);
        assert_pending(&mut of_second);
    }
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(bodies(&of_first.await.unwrap()), ["one"]);
    assert_eq!(bodies(&of_second.await.unwrap()), ["two"]);
    a.commit().await.unwrap();
    b.commit().await.unwrap();
}

/// A redriven message has its old number, which is lower than those of messages that are written.
#[tokio::test]
async fn a_transaction_receives_a_redriven_message_when_its_redrive_is_written() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let policy = "ALTER QUEUE [to] WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)";
    let policy = crate::catalog::ddl::parse(policy).unwrap().into_iter().map(|one| one.definition).collect();
    store.submit(vec![Verb::Define(policy)]).await.unwrap();
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "again")]).await.unwrap();
    let mut failed = store.begin(Seen::always()).await.unwrap();
    let letter = crate::id::DeadLetterId(messages(&failed.execute(receive()).await.unwrap())[0].queuing_order);
    failed.rollback(None).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let mut redriven = store.submit(vec![Verb::RedriveDeadLetter { letter }]);
    let mut received = tx.execute(receive());
    {
        let _held = store.engine.write.lock().unwrap();
        assert_pending(&mut redriven);
        assert_pending(&mut received);
    }
    redriven.await.unwrap();
    assert_eq!(bodies(&received.await.unwrap()), ["again"]);
    tx.commit().await.unwrap();
    assert!(messages(&store.submit(vec![receive()]).await.unwrap()[0]).is_empty());
}

#[tokio::test]
async fn a_receive_given_up_before_it_is_written_takes_nothing() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let mut sent = store.submit(vec![send(handle, "kept")]);
    {
        let _held = store.engine.write.lock().unwrap();
        assert_pending(&mut sent);
        assert_pending(&mut tx.execute(receive()));
    }
    sent.await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["kept"]);
}

#[tokio::test]
async fn a_commit_is_answered_after_it_is_written() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(handle, "one")).await.unwrap();
    let mut committed = tx.commit();
    {
        let _held = store.engine.write.lock().unwrap();
        assert_pending(&mut committed);
    }
    committed.await.unwrap();
}

#[tokio::test]
async fn a_rollback_signals_returned_messages_before_it_is_answered() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    store.submit(vec![send(handle, "one")]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert_eq!(bodies(&tx.execute(receive()).await.unwrap()), ["one"]);
    let mut signal: BoxFuture<'_, ()> = Box::pin(store.activity().queue("to").register(true));
    assert_pending(&mut signal);
    tx.rollback(None).await.unwrap();
    assert!(is_ready(&mut signal));
}

#[tokio::test]
async fn one_commit_signals_each_of_its_queues_once_for_each_group() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let (one, two) = (begin(&store).await, begin(&store).await);
    store.submit(vec![send(one, "asks")]).await.unwrap();
    let asked = messages(&store.submit(vec![receive()]).await.unwrap()[0])[0].conversation_handle;
    let (to, from) = (store.activity().queue("to"), store.activity().queue("from"));
    let _waits = [to.wait(), to.wait(), from.wait()];
    let wait = |queue: &crate::store::QueueActivity| -> BoxFuture<'static, ()> { Box::pin(queue.register(false)) };
    // The signal of the first message was not taken.
    assert!(is_ready(&mut wait(&to)));
    let mut signals = [wait(&to), wait(&to), wait(&from)];
    signals.iter_mut().for_each(assert_pending);
    store.submit(vec![send(one, "1"), send(two, "2"), send(asked, "3")]).await.unwrap();
    assert!(signals.iter_mut().all(is_ready));
}

#[tokio::test]
async fn a_queue_that_is_made_again_begins_with_its_own_depth() {
    let _limit = crate::testing::limit();
    let drops = || [Definition::DropService { name: "b".into() }, Definition::DropQueue { name: "to".into() }];
    let makes = || {
        definitions().into_iter().filter(|definition| match definition {
            Definition::CreateQueue { name, .. } => name == "to",
            Definition::CreateService { name, .. } => name == "b",
            _ => false,
        })
    };
    for is_one_script in [false, true] {
        let (store, handle) = with_a_dialog().await;
        store.submit(vec![send(handle, "one")]).await.unwrap();
        let depth = || {
            let facts = store.activity().queue("TO").facts();
            (facts.ready_groups, facts.unread)
        };
        assert_eq!(depth(), (1, 1));
        if is_one_script {
            store.submit(vec![Verb::Define(drops().into_iter().chain(makes()).collect())]).await.unwrap();
        } else {
            store.submit(vec![Verb::Define(drops().into())]).await.unwrap();
            assert_eq!(depth(), (0, 0), "the queue is gone");
            store.submit(vec![Verb::Define(makes().collect())]).await.unwrap();
        }
        assert_eq!(depth(), (0, 0), "a monitor would launch a reader for messages that are gone");
        let handle = begin(&store).await;
        store.submit(vec![send(handle, "two")]).await.unwrap();
        assert_eq!(depth(), (1, 1));
    }
}

#[tokio::test]
async fn one_batch_writes_a_message_answers_a_receive_and_turns_the_queue_on_that_the_message_waits_for() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    store.submit(vec![send(handle, "asks")]).await.unwrap();
    let asked = messages(&store.submit(vec![receive()]).await.unwrap()[0])[0].conversation_handle;
    store.submit(vec![send(asked, "answers")]).await.unwrap();
    store.submit(vec![set_status(false)]).await.unwrap();
    let mut sent = store.submit(vec![send(handle, "waits")]);
    let mut received = store.submit(vec![Verb::Receive { queue: "from".into(), top: None, from: ReceiveFrom::Any }]);
    let mut turned_on = store.submit(vec![set_status(true)]);
    {
        let _held = store.engine.write.lock().unwrap();
        assert_pending(&mut sent);
        assert_pending(&mut received);
        assert_pending(&mut turned_on);
    }
    sent.await.unwrap();
    assert_eq!(bodies(&received.await.unwrap()[0]), ["answers"]);
    turned_on.await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["waits"]);
}

#[tokio::test]
async fn a_lone_caller_leaves_it_to_the_writer_to_wait_for_the_lock_of_another_program() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let mut quick = options(folder.path());
    // A caller writes on its own thread only while batches are short. On a slow disk the writer waits for the lock
    // anyway.
    quick.durability = crate::store::url::Durability::Normal;
    let store = defined(quick).await;
    let handle = begin(&store).await;
    for number in 0..20 {
        store.submit(vec![send(handle, &number.to_string())]).await.unwrap();
    }
    for _ in 0..10 {
        store.engine.lock_even_failed().note_callers(1, true);
    }
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let mut sent = store.submit(vec![send(handle, "last")]);
    // This thread returns, and can release the lock.
    assert_pending(&mut sent);
    other.execute_batch("rollback").unwrap();
    sent.await.unwrap();
}

/// A caller that ends, with the last handle of its store, as soon as it is answered.
struct EndsWhenAnswered(std::sync::Mutex<Option<BoxFuture<'static, Result<()>>>>);

impl std::task::Wake for EndsWhenAnswered {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[tokio::test]
async fn a_store_whose_last_handle_its_own_writer_drops_frees_its_file() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(handle, "one")).await.unwrap();
    let (engine, caller) = (store.engine.clone(), Arc::new(EndsWhenAnswered(Default::default())));
    {
        let _held = engine.write.lock().unwrap();
        let mut committed = tx.commit();
        let waker = Waker::from(caller.clone());
        assert!(committed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *caller.0.lock().unwrap() = Some(committed);
        drop(store);
    }
    until(|| engine.is_released.load(SeqCst)).await;
    // The writer holds this lock until it has released the file.
    drop(engine.write.lock());
    drop(SqliteStore::open(options(folder.path())).unwrap());
}

/// Counts on this thread the messages that were dropped and the commits that were timed.
#[derive(Default)]
pub(in crate::store::sqlite) struct Counts {
    pub(in crate::store::sqlite) dropped: Arc<AtomicU64>,
    commits: Arc<Commits>,
}

#[derive(Default)]
struct Commits(AtomicU64);

impl metrics::HistogramFn for Commits {
    fn record(&self, seconds: f64) {
        assert!(seconds >= 0.0);
        self.0.fetch_add(1, SeqCst);
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "dialoq_messages_dropped_total" => Counter::from_arc(self.dropped.clone()),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "dialoq_commit_seconds" => Histogram::from_arc(self.commits.clone()),
            _ => Histogram::noop(),
        }
    }
}

#[tokio::test]
async fn each_message_whose_caller_has_gone_is_counted_unless_a_transaction_gives_it_back() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let (held, other) = (begin(&store).await, begin(&store).await);
    store.submit(vec![send(other, "one")]).await.unwrap();
    let mut holder = store.begin(Seen::always()).await.unwrap();
    holder.execute(send(held, "held")).await.unwrap();
    let counts = Counts::default();
    // A unit that waits for a group is ordered when the holder commits, and its caller goes before that is written.
    let mut received = store.submit(vec![send(held, "waits"), receive()]);
    assert_pending(&mut received);
    until(|| !store.engine.lock_even_failed().parked.is_empty()).await;
    let mut committed = holder.commit();
    {
        let mut write = store.engine.write.lock().unwrap();
        assert_pending(&mut committed);
        drop(received);
        metrics::with_local_recorder(&counts, || store.engine.run_batch(&mut write, true));
    }
    assert_eq!((counts.dropped.load(SeqCst), counts.commits.0.load(SeqCst)), (1, 1));
    committed.await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["held", "waits"]);

    // The caller goes when it is answered, and has not read the answer.
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let (mut sent, mut of_tx) = (store.submit(vec![send(other, "two"), send(other, "three")]), tx.execute(receive()));
    {
        let mut write = store.engine.write.lock().unwrap();
        assert_pending(&mut sent);
        assert_pending(&mut of_tx);
        drop(of_tx);
        metrics::with_local_recorder(&counts, || store.engine.run_batch(&mut write, true));
    }
    sent.await.unwrap();
    assert_eq!(counts.dropped.load(SeqCst), 1, "the transaction has given it back");
    tx.rollback(None).await.unwrap();
    let mut received = store.submit(vec![receive()]);
    {
        let mut write = store.engine.write.lock().unwrap();
        assert_pending(&mut received);
        store.engine.run_batch(&mut write, true);
    }
    metrics::with_local_recorder(&counts, || drop(received));
    assert_eq!(counts.dropped.load(SeqCst), 3);
}

/// A caller that begins to wait for a signal as soon as it is answered.
struct WaitsWhenAnswered(Arc<SqliteStore>, std::sync::Mutex<Option<BoxFuture<'static, ()>>>);

impl std::task::Wake for WaitsWhenAnswered {
    fn wake(self: Arc<Self>) {
        *self.1.lock().unwrap() = Some(Box::pin(self.0.activity().queue("to").register(true)));
    }
}

#[tokio::test]
async fn a_receiver_that_begins_to_wait_after_a_definition_is_answered_is_not_woken_for_it() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let waits = Arc::new(WaitsWhenAnswered(store.clone(), Default::default()));
    let mut altered = store.submit(vec![set_status(true)]);
    {
        let mut write = store.engine.write.lock().unwrap();
        assert!(altered.as_mut().poll(&mut Context::from_waker(&Waker::from(waits.clone()))).is_pending());
        store.engine.run_batch(&mut write, true);
    }
    let mut signal = waits.1.lock().unwrap().take().expect("the answer wakes its caller");
    assert_pending(&mut signal);
    altered.await.unwrap();
}

#[tokio::test]
async fn a_close_that_cannot_tidy_the_file_wakes_receivers() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let mut signal: BoxFuture<'_, ()> = Box::pin(store.activity().queue("to").register(true));
    assert_pending(&mut signal);
    store.engine.write.lock().unwrap().fault = Some(Fault::before(1));
    store.close().await.expect("all that was acknowledged is written");
    assert!(is_ready(&mut signal), "a receiver that waits without a deadline would never return");
}

#[tokio::test]
async fn the_writer_of_an_idle_store_sleeps() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    for options in [SqliteOptions::new(Location::Memory), options(folder.path())] {
        let store = defined(options).await;
        let handle = begin(&store).await;
        store.submit(vec![Verb::BeginConversationTimer { handle, timeout_seconds: 3600 }]).await.unwrap();
        until(|| store.engine.lock_even_failed().is_asleep).await;
    }
}

/// The writer would wake by itself within a second of its falling asleep, and it has just fallen asleep.
#[tokio::test]
async fn a_writer_that_sleeps_is_woken_for_a_unit() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let mut took = Vec::new();
    for _ in 0..20 {
        until(|| store.engine.lock_even_failed().is_asleep).await;
        // The caller does not write by itself.
        store.engine.lock_even_failed().note_callers(2, true);
        let asked = std::time::Instant::now();
        begin(&store).await;
        took.push(asked.elapsed());
    }
    // A busy machine delays some, not each of them.
    assert!(took.iter().any(|took| took.as_millis() < 500), "{took:?}");
}

#[tokio::test]
async fn a_unit_has_happened_when_it_is_written() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let handle = begin(&store).await;
    let unit_id = uuid::Uuid::from_u128(1);
    let mut claiming = store.begin(Seen::always()).await.unwrap();
    let mut first = store.submit_once(unit_id, vec![send(handle, "once")]);
    let mut again = store.submit_once(unit_id, vec![send(handle, "once")]);
    let mut happened = store.unit_happened(unit_id);
    let mut claimed = claiming.claim(unit_id);
    {
        let _held = store.engine.write.lock().unwrap();
        assert_pending(&mut first);
        assert_pending(&mut again);
        assert_pending(&mut happened);
        assert_pending(&mut claimed);
    }
    assert!(first.await.unwrap().is_some());
    assert!(again.await.unwrap().is_none());
    assert!(happened.await.unwrap());
    assert!(!claimed.await.unwrap());
}

/// A transaction that has sent on the conversation, with SQL of the user's, frees its group in the batch that is filled now.
fn free_with_sql(store: &SqliteStore, handle: ConversationHandle) {
    let mut state = store.engine.lock_even_failed();
    let state = &mut *state;
    let now = store.engine.clock.now();
    let mut session = state.core.begin();
    assert!(matches!(state.core.execute(&mut session, send(handle, "gone"), now), Ok(Step::Done(_))));
    state.handovers.free(&state.core, &session);
    state.core.give_way(session, &mut state.effects);
}

#[tokio::test]
async fn a_verb_goes_on_when_the_sql_of_the_last_holder_of_its_group_is_written() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let (handle, other) = (begin(&store).await, begin(&store).await);
    let mut left = store.begin(Seen::always()).await.unwrap();
    left.execute(send(other, "of another group")).await.unwrap();
    {
        let _held = store.engine.write.lock().unwrap();
        free_with_sql(&store, handle);
        let mut sent = left.execute(send(handle, "left"));
        assert_pending(&mut sent);
        // Its caller has gone: the verb is undone, and the group stays.
        drop(sent);
        let mut asked = left.query(sql("SELECT 1"));
        assert_pending(&mut asked);
    }
    store.submit(Vec::new()).await.unwrap();
    left.query(sql("SELECT 1")).await.unwrap();
    left.execute(send(handle, "sent")).await.unwrap();
    left.commit().await.unwrap();
    let received: Vec<_> = [receive(), receive()].map(|receive| store.submit(vec![receive])).into();
    let mut texts = Vec::new();
    for received in received {
        texts.extend(bodies(&received.await.unwrap()[0]));
    }
    texts.sort();
    assert_eq!(texts, ["of another group", "sent"]);
}

#[tokio::test]
async fn a_verb_that_waits_for_sql_ends_with_the_store() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let handle = begin(&store).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let mut sent = tx.execute(send(handle, "never"));
    {
        let _held = store.engine.write.lock().unwrap();
        free_with_sql(&store, handle);
        assert_pending(&mut sent);
        store.engine.lock_even_failed().fail(&Error::closed(), None);
    }
    assert_eq!(sent.await.unwrap_err().code(), Code::STORE_POISONED);
}

#[tokio::test]
async fn a_rollback_that_changes_rows_is_answered_after_they_are_written() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    let policy = "ALTER QUEUE [to] WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)";
    let policy = crate::catalog::ddl::parse(policy).unwrap().into_iter().map(|one| one.definition).collect();
    store.submit(vec![Verb::Define(policy)]).await.unwrap();
    store.submit(vec![send(handle, "dies")]).await.unwrap();
    let [mut failed, idle, _] = three_transactions(&store).await;
    failed.execute(receive()).await.unwrap();
    let mut rolled_back = failed.rollback(None);
    {
        let _held = store.engine.write.lock().unwrap();
        assert_pending(&mut rolled_back);
        assert!(is_ready(&mut idle.rollback(None)), "it has nothing to write");
    }
    rolled_back.await.unwrap();
}

#[tokio::test]
async fn every_message_signals_who_wants_a_certain_one_a_taken_job_no_reader_and_a_dropped_queue_has_no_job() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    let define = async |text: &str| {
        let parsed = crate::catalog::ddl::parse(text).unwrap();
        store.submit(vec![Verb::Define(parsed.into_iter().map(|one| one.definition).collect())]).await.unwrap();
    };
    define("CREATE WORK QUEUE w").await;
    store.submit(vec![send(handle, "one"), super::jobs::push(None), super::jobs::push(None)]).await.unwrap();
    let work_queue = crate::store::work_queue_on_board("w");
    let wait = |name: &str| -> BoxFuture<'static, ()> { Box::pin(store.activity().queue(name).register(true)) };
    let (mut message, mut job) = (wait("to"), wait(&work_queue));
    assert_pending(&mut message);
    assert_pending(&mut job);
    store.submit(vec![super::jobs::take(crate::protocol::work::Hold::Lease(None))]).await.unwrap();
    assert_pending(&mut job);
    store.submit(vec![send(handle, "two")]).await.unwrap();
    assert!(is_ready(&mut message), "its group was ready before");

    let ready = || store.activity().queue(&work_queue).facts().ready_groups;
    assert_eq!(ready(), 1);
    define("DROP WORK QUEUE w").await;
    assert_eq!(ready(), 0);
    define("CREATE WORK QUEUE w").await;
    assert_eq!(ready(), 0);
}
