//! Every layer forwards every method.

use super::*;
use crate::act::Act;
use crate::catalog::Catalog;
use crate::error::Code;
use crate::protocol::work::TakenJob;
use crate::protocol::{ReceiveFrom, Unit};
use crate::store::database::link::{Call, EnlistedConnection, Linked};
use crate::store::fake::{FakeStore, Shared};
use crate::store::faulty::Faulty;
use crate::store::sqlite::{SqliteOptions, SqliteStore};
use crate::store::traced::Traced;
use crate::store::url::Location;
use crate::store::{ActivityBoard, ReaderSlot, Seen, SqlRow, StoreTexts};
use crate::time::Clock;
use std::time::Duration;

/// The names of the methods that reached the innermost store, in order.
type Calls = Arc<BlockingMutex<Vec<&'static str>>>;

/// A store that records which of its methods are called.
struct Recorder {
    calls: Calls,
    inner: Arc<SqliteStore>,
}

impl Recorder {
    fn called(&self, name: &'static str) {
        self.calls.lock().unwrap().push(name);
    }
}

impl Store for Recorder {
    fn submit(&self, _: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        self.called("submit");
        Box::pin(async { Ok(Vec::new()) })
    }

    fn submit_once(&self, _: Uuid, _: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        self.called("submit_once");
        Box::pin(async { Ok(None) })
    }

    fn unit_happened(&self, _: Uuid) -> BoxFuture<'_, Result<bool>> {
        self.called("unit_happened");
        Box::pin(async { Ok(true) })
    }

    fn reader_slot(&self, _: i32, _: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        self.called("reader_slot");
        Box::pin(async { Ok(None) })
    }

    fn perform_on<'a>(&'a self, _: &'a mut dyn EnlistedConnection, _: Verb) -> BoxFuture<'a, Result<Outcome>> {
        self.called("perform_on");
        Box::pin(async { Ok(Outcome::Done) })
    }

    fn give_back_jobs(&self, _: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        self.called("give_back_jobs");
        Box::pin(async {})
    }

    fn begin(&self, _: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        self.called("begin");
        let tx = RecorderTx(self.calls.clone());
        Box::pin(async { Ok(Box::new(tx) as Box<dyn StoreTx>) })
    }

    fn query(&self, _: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        self.called("query");
        Box::pin(async { Err(Error::closed()) })
    }

    fn run_sql(&self, _: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        self.called("run_sql");
        Box::pin(async { Ok(0) })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.called("catalog");
        Arc::default()
    }

    fn texts(&self) -> &'static StoreTexts {
        self.called("texts");
        self.inner.texts()
    }

    fn activity(&self) -> &ActivityBoard {
        self.called("activity");
        self.inner.activity()
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        self.called("refresh_facts");
        Box::pin(async {})
    }

    fn lock_holder(&self, _: Uuid) -> BoxFuture<'_, Result<Option<crate::store::LockHolder>>> {
        self.called("lock_holder");
        Box::pin(async { Ok(None) })
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, crate::time::Timestamp)>>> {
        self.called("receive_holds");
        Box::pin(async { Ok(Vec::new()) })
    }

    fn clock(&self) -> &Clock {
        self.called("clock");
        self.inner.clock()
    }

    fn ended(&self) -> Option<Error> {
        self.called("ended");
        self.calls.lock().unwrap().contains(&"close").then(Error::closed)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.called("close");
        Box::pin(async { Ok(()) })
    }
}

struct RecorderTx(Calls);

impl RecorderTx {
    fn called(&self, name: &'static str) {
        self.0.lock().unwrap().push(name);
    }
}

impl StoreTx for RecorderTx {
    fn execute(&mut self, _: Verb) -> BoxFuture<'_, Result<Outcome>> {
        self.called("execute");
        Box::pin(async { Ok(Outcome::Done) })
    }

    fn sql(&mut self, _: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        self.called("sql");
        Box::pin(async { Ok(0) })
    }

    fn query(&mut self, _: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        self.called("query");
        Box::pin(async { Err(Error::closed()) })
    }

    fn claim(&mut self, _: Uuid) -> BoxFuture<'_, Result<bool>> {
        self.called("claim");
        Box::pin(async { Ok(true) })
    }

    fn savepoint<'a>(&'a mut self, _: &'a str) -> BoxFuture<'a, Result<()>> {
        self.called("savepoint");
        Box::pin(async { Ok(()) })
    }

    fn rollback_to<'a>(&'a mut self, _: &'a str) -> BoxFuture<'a, Result<()>> {
        self.called("rollback_to");
        Box::pin(async { Ok(()) })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.called("commit");
        Box::pin(async { Ok(()) })
    }

    fn rollback(self: Box<Self>, _: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        self.called("rollback");
        Box::pin(async { Ok(()) })
    }
}

struct NoConnection;

impl EnlistedConnection for NoConnection {
    fn dialect(&self) -> &'static str {
        "none"
    }

    fn call<'a>(&'a mut self, _: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        unreachable!("the recorder calls nothing")
    }
}

fn statement() -> SqlStatement {
    SqlStatement { text: String::new(), params: Vec::new(), expected_rows: None }
}

fn verb() -> Verb {
    Verb::Receive { queue: "q".into(), top: None, from: ReceiveFrom::Any }
}

/// Calls every method of a store once, and every method of its transactions.
async fn call_all(store: &dyn Store) {
    store.submit(vec![verb()]).await.unwrap();
    assert!(store.submit_once(Uuid::nil(), Vec::new()).await.unwrap().is_none());
    assert!(store.unit_happened(Uuid::nil()).await.unwrap());
    assert!(store.reader_slot(1, 1).await.unwrap().is_none());
    assert_eq!(store.perform_on(&mut NoConnection, verb()).await.unwrap(), Outcome::Done);
    store.give_back_jobs(Vec::new()).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(verb()).await.unwrap();
    tx.sql(statement()).await.unwrap();
    assert_eq!(tx.query(statement()).await.unwrap_err().code(), Code::STORE_CLOSED);
    assert!(tx.claim(Uuid::nil()).await.unwrap());
    tx.savepoint("s").await.unwrap();
    tx.rollback_to("s").await.unwrap();
    tx.commit().await.unwrap();
    store.begin(Seen::always()).await.unwrap().rollback(None).await.unwrap();
    assert_eq!(store.query(statement()).await.unwrap_err().code(), Code::STORE_CLOSED);
    store.run_sql(statement()).await.unwrap();
    store.catalog();
    store.texts();
    store.activity();
    store.refresh_facts().await;
    assert!(store.lock_holder(Uuid::nil()).await.unwrap().is_none());
    assert!(store.receive_holds().await.unwrap().is_empty());
    store.clock();
    assert!(store.ended().is_none());
    store.close().await.unwrap();
}

fn recorder() -> (Arc<dyn Store>, Calls) {
    let calls = Calls::default();
    let recorder =
        Recorder { calls: calls.clone(), inner: SqliteStore::open(SqliteOptions::new(Location::Memory)).unwrap() };
    (Arc::new(recorder), calls)
}

/// The methods that the traits `Store` and `StoreTx` declare.
fn declared() -> Vec<&'static str> {
    let source = include_str!("../../store/mod.rs");
    let mut names = Vec::new();
    for start in ["pub trait Store:", "pub trait StoreTx:"] {
        let body = source.split(start).nth(1).and_then(|rest| rest.split("\n}").next()).expect("the trait is there");
        names.extend(body.split("\n    fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()));
        assert!(
            !body.contains(") {\n") && !body.contains("> {\n"),
            "a method of a trait that is wrapped has a default"
        );
    }
    names
}

#[tokio::test]
async fn every_layer_forwards_every_method() {
    let _limit = crate::testing::limit();
    let (direct, calls) = recorder();
    call_all(&*direct).await;
    let expected = std::mem::take(&mut *calls.lock().unwrap());
    for name in declared() {
        assert!(expected.contains(&name), "this test does not call {name}");
    }
    type Wrap = fn(Arc<dyn Store>) -> Arc<dyn Store>;
    let wrap: [Wrap; 3] = [
        |store| Traced::over(store),
        |store| Faulty::after(store, u64::MAX),
        |store| Arc::new(WatchedStore { inner: store, traces: Arc::default() }),
    ];
    for (place, wrap) in wrap.into_iter().enumerate() {
        let (direct, calls) = recorder();
        call_all(&*wrap(direct)).await;
        assert_eq!(*calls.lock().unwrap(), expected, "wrapper {place}");
    }
}

/// The counter of rollbacks rose by one a second.
#[tokio::test(start_paused = true)]
async fn to_wait_for_a_failure_opens_no_transaction() {
    let _limit = crate::testing::limit();
    let (store, calls) = recorder();
    let broker = crate::Broker::over(Traced::over(store));
    tokio::time::timeout(Duration::from_millis(8500), broker.failed()).await.unwrap_err();
    assert_eq!(*calls.lock().unwrap(), ["ended"; 8]);
    broker.close().await.unwrap();
    assert_eq!(broker.failed().await.code(), Code::STORE_CLOSED);
}

#[tokio::test]
async fn a_receive_on_a_connection_of_the_users_own_counts_as_the_readers_receive() {
    let _limit = crate::testing::limit();
    let (inner, _) = recorder();
    let traces = Arc::new(Traces::default());
    let watched = WatchedStore { inner, traces: traces.clone() };
    watched.perform_on(&mut NoConnection, verb()).await.unwrap();
    assert!(traces.received());
}

#[tokio::test]
async fn work_that_a_savepoint_has_undone_is_not_left_open() {
    let _limit = crate::testing::limit();
    let (inner, _) = recorder();
    for (undone_to, left_open) in [("first", false), ("second", true)] {
        let traces = Arc::new(Traces::default());
        let watched = WatchedStore { inner: inner.clone(), traces: traces.clone() };
        let mut tx = watched.begin(Seen::always()).await.unwrap();
        tx.savepoint("first").await.unwrap();
        tx.execute(verb()).await.unwrap();
        tx.savepoint("second").await.unwrap();
        tx.execute(verb()).await.unwrap();
        tx.rollback_to(undone_to).await.unwrap();
        drop(tx);
        assert_eq!(traces.close(), left_open, "{undone_to}");
    }
}

#[tokio::test]
async fn a_transaction_that_a_deadlock_has_ended_was_not_left_open() {
    let _limit = crate::testing::limit();
    for code in [Code::DEADLOCK, Code::CONVERSATION_NOT_FOUND] {
        let store = FakeStore::new(&["q"]);
        store.arrive("q", 5, &["a"]);
        let (_stop, stopping) = watch::channel(false);
        let (failures, _failures) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared(store.clone()));
        let (session, traces) = Session::new(shared, "q".into(), 1, stopping, failures, Arc::default());
        let tx = session.begin().await.unwrap();
        assert!(tx.receive("q").await.unwrap().is_some());
        store.refuse_next(code);
        assert_eq!(tx.end(crate::id::ConversationHandle(Uuid::nil())).await.unwrap_err().code(), code);
        drop(tx);
        assert_eq!(traces.close(), code != Code::DEADLOCK, "{code}");
    }
}

#[tokio::test]
async fn a_transaction_that_has_only_looked_was_not_left_open() {
    let _limit = crate::testing::limit();
    let broker = crate::testing::TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE w; CREATE QUEUE q").await.unwrap();
    for has_job in [false, true] {
        let (_stop, stopping) = watch::channel(false);
        let (failures, _failures) = mpsc::unbounded_channel();
        let store = broker.shared_store().clone();
        let (session, traces) = Session::new(store, "q".into(), 1, stopping, failures, Arc::default());
        let tx = session.begin().await.unwrap();
        assert!(tx.receive("q").await.unwrap().is_none());
        let nowhere = crate::id::ConversationHandle(Uuid::nil());
        assert_eq!(tx.transmission_status(nowhere).await.unwrap(), "");
        assert_eq!(tx.take_jobs("w").await.unwrap().len(), usize::from(has_job));
        drop(tx);
        assert_eq!(traces.close(), has_job);
        broker.push_job("w", "x").await.unwrap();
    }
}
