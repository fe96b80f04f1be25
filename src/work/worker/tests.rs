//! Workers over a store whose answers fail for a moment.

use super::counters::{SAID_AGAIN_AFTER, Said};
use super::*;
use crate::act::Act;
use crate::error::Code;
use crate::protocol::work::WorkVerb;
use crate::protocol::{Outcome, Verb};
use crate::store::layer::{CallState, Done, Layer, Request, Unchanged};
use crate::store::sqlite::{Fault, SharedStore, SqliteOptions};
use crate::store::url::Location;
use crate::store::{OpenOptions, Seen, Store, StoreTx};
use crate::testing::TestBroker;
use crate::time::{Clock, Timestamp};
use crate::work::{JobFilter, ShownState};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

#[test]
fn readers_that_cannot_go_on_say_so_once_a_minute_and_after_they_could() {
    let reason = Said::default();
    let said = |code| reason.is_to_be_said(code);
    assert_eq!([said(Code::OBJECT_NOT_FOUND), said(Code::OBJECT_NOT_FOUND)], [true, false]);
    assert_eq!([said(Code::JOB_LOCKED), said(Code::JOB_LOCKED)], [true, false], "another reason");
    reason.is_over();
    assert!(said(Code::JOB_LOCKED));
    if let Some(before) = Instant::now().checked_sub(SAID_AGAIN_AFTER) {
        *reason.0.lock().unwrap() = Some((Code::JOB_LOCKED, before));
        assert!(said(Code::JOB_LOCKED), "a minute ago");
    }
}

#[cfg(feature = "cli")]
#[tokio::test]
async fn readers_that_can_take_nothing_say_why() {
    let _limit = crate::testing::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE tasks").await.unwrap();
    for is_activated in [false, true] {
        broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
        let (said, mut received) = tokio::sync::mpsc::unbounded_channel();
        let worker = broker.worker(TASKS, async |_, _| Ok::<_, String>(())).name("x".repeat(200));
        let worker = worker.observed_by(move |event| {
            if let WorkerEvent::NoTake(error) = event {
                let _ = said.send(error.code());
            }
        });
        let running = if is_activated { worker.activated().start() } else { worker.start() };
        assert_eq!(received.recv().await, Some(Code::OUT_OF_RANGE));
        drop(running);
    }
}

const TASKS: WorkQueue<String> = WorkQueue::text("tasks");

/// Refuses the next reports on jobs with a code; counts the reports, and those that take the next job along.
struct Cut {
    inner: Arc<dyn Store>,
    code: Code,
    left: Arc<AtomicU64>,
    reports: Arc<AtomicU64>,
    with_next: Arc<AtomicU64>,
}

impl Layer for Cut {
    type Call = ();
    type Tx = Unchanged;

    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, request: Request<'_>) -> Result<()> {
        let is_report = |verb: &Verb| matches!(verb, Verb::Work(WorkVerb::Complete { .. } | WorkVerb::Fail { .. }));
        if !request.verbs().iter().any(is_report) {
            return Ok(());
        }
        self.reports.fetch_add(1, SeqCst);
        self.with_next.fetch_add(u64::from(request.verbs().len() > 1), SeqCst);
        if self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::new(self.code, "the connection is gone, as the test asked"));
        }
        Ok(())
    }

    fn open(&self, inner: Box<dyn StoreTx>, _: Seen) -> (Unchanged, Box<dyn StoreTx>) {
        (Unchanged, inner)
    }
}

/// Runs one job whose handler succeeds or fails, over a store that refuses two reports with the code. Gives what the worker has
/// done, and the state and error of the job if it is not done.
async fn reported(code: Code, succeeds: bool) -> (WorkDone, Option<String>) {
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE tasks WITH MAX_ATTEMPTS = 1").await.unwrap();
    broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
    let left = Arc::new(AtomicU64::new(2));
    let (reports, with_next) = Default::default();
    let cut = Cut { inner: broker.shared_store().clone(), code, left: left.clone(), reports, with_next };
    let worker = Broker::over(Arc::new(cut))
        .worker(TASKS, move |_, _| async move { if succeeds { Ok(()) } else { Err("no such address") } });
    let running = worker.start();
    let state = loop {
        tokio::task::yield_now().await;
        let jobs = broker.jobs(&JobFilter::default(), 1).await.unwrap();
        match jobs.first() {
            Some(job) if matches!(job.state, ShownState::Ready | ShownState::Taken) => {}
            job => break job.map(|job| format!("{}: {}", job.state, job.last_error.clone().unwrap_or_default())),
        }
    };
    (running.stop().await, state)
}

#[tokio::test]
async fn a_report_is_made_again_if_the_server_was_gone_for_a_moment() {
    let _limit = crate::testing::limit();
    for code in
        [Code::SERVER_UNREACHABLE, Code::POOL_EXHAUSTED, Code::OWNER_GONE, Code::COMMIT_UNKNOWN, Code::JOB_LOCKED]
    {
        let (done, state) = reported(code, true).await;
        assert_eq!((done.completed, state), (1, None), "{code}");
        let (done, state) = reported(code, false).await;
        assert_eq!((done.failed, state), (1, Some("dead: no such address".to_owned())), "{code}");
    }
}

/// Its process ended, and the job came back with an attempt less at each start, until it was dead, though its handler had succeeded each
/// time.
#[tokio::test]
async fn a_job_whose_report_meets_a_full_disk_is_done_once() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    let mut options = SqliteOptions::new(Location::File(folder.path().join("a.db")));
    options.fault = Some(disk.clone());
    let store = SharedStore::open(options).unwrap();
    let broker = Broker::over(store);
    broker.execute("CREATE WORK QUEUE tasks WITH MAX_ATTEMPTS = 1").await.unwrap();
    broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
    let fills = disk.clone();
    let worker = broker.worker(TASKS, move |_, _| {
        fills.fill();
        async { Ok::<_, String>(()) }
    });
    let running = worker.start();
    // The report, and one after the file was opened again.
    while disk.strikes() < 2 {
        tokio::task::yield_now().await;
    }
    disk.make_room();
    loop {
        match broker.jobs(&JobFilter::default(), 1).await {
            Ok(jobs) if jobs.is_empty() => break,
            // It has met the store that is given up.
            Err(error) => assert_eq!(error.code(), Code::OWNER_GONE, "{error}"),
            Ok(_) => {}
        }
        tokio::task::yield_now().await;
    }
    let done = running.stop().await;
    assert_eq!((done.completed, done.failed, done.lost), (1, 0, 0));
}

/// As where the server stops with its workers: the job comes back when its lease is over, and the worker says so.
#[tokio::test]
async fn a_job_whose_end_is_not_reported_before_the_stop_is_counted() {
    let _limit = crate::testing::limit();
    for succeeds in [true, false] {
        let broker = TestBroker::in_memory().await.unwrap();
        broker.execute("CREATE WORK QUEUE tasks").await.unwrap();
        broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
        let (inner, code, left) =
            (broker.shared_store().clone(), Code::SERVER_UNREACHABLE, Arc::new(AtomicU64::new(u64::MAX)));
        let (reports, with_next) = (Arc::<AtomicU64>::default(), Default::default());
        let cut = Cut { inner, code, left, reports: reports.clone(), with_next };
        let worker = Broker::over(Arc::new(cut))
            .worker(TASKS, move |_, _| async move { if succeeds { Ok(()) } else { Err("no such address") } });
        let running = worker.start();
        while reports.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let done = running.stop().await;
        assert_eq!((done.completed, done.unreported), (0, 1), "{done:?}");
        let job = &broker.jobs(&JobFilter::default(), 1).await.unwrap()[0];
        assert_eq!((job.state, job.attempts), (ShownState::Taken, 1), "{job:?}");
    }
}

/// Each answer with jobs comes when their leases are over, as to a process that was stopped.
struct Stopped {
    inner: Arc<dyn Store>,
    clock: Clock,
}

struct StoppedCall(Clock);

impl CallState for StoppedCall {
    fn end(self, done: Done<'_>) {
        if let Ok([Outcome::Jobs(jobs)]) = done
            && !jobs.is_empty()
        {
            self.0.advance(Duration::from_secs(61));
        }
    }
}

impl Layer for Stopped {
    type Call = StoppedCall;
    type Tx = Unchanged;

    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, _: Request<'_>) -> Result<StoppedCall> {
        Ok(StoppedCall(self.clock.clone()))
    }

    fn open(&self, inner: Box<dyn StoreTx>, _: Seen) -> (Unchanged, Box<dyn StoreTx>) {
        (Unchanged, inner)
    }
}

#[tokio::test]
async fn a_handler_does_not_begin_after_the_end_of_its_lease() {
    let _limit = crate::testing::limit();
    let clock = Clock::manual(Timestamp(1_800_000_000_000_000));
    let options = OpenOptions::default().clock(clock.clone());
    let broker = Broker::open_with("sqlite::memory:", options).await.unwrap();
    broker.execute("CREATE WORK QUEUE tasks WITH MAX_ATTEMPTS = 1, LEASE_MS = 60000").await.unwrap();
    broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
    let stopped = Stopped { inner: broker.shared_store().clone(), clock };
    let worker = Broker::over(Arc::new(stopped))
        .worker(TASKS, async |_, _| -> std::result::Result<(), String> { panic!("another reader may have the job") });
    let running = worker.start();
    while running.done().lost == 0 {
        tokio::task::yield_now().await;
    }
    let done = running.stop().await;
    assert_eq!((done.lost, done.failed), (1, 0), "{done:?}");
}

/// How many reports a worker makes on ten jobs, and how many of them take the next job along.
async fn reports_on_ten_jobs(options: &str) -> (u64, u64) {
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute(&format!("CREATE WORK QUEUE tasks {options}")).await.unwrap();
    for _ in 0..10 {
        broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
    }
    let (reports, with_next) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let inner = broker.shared_store().clone();
    let left = Arc::default();
    let cut = Cut { inner, code: Code::JOB_LOCKED, left, reports: reports.clone(), with_next: with_next.clone() };
    let worker = Broker::over(Arc::new(cut)).worker(TASKS, async |_, _| Ok::<_, String>(()));
    let running = worker.start();
    while running.done().completed < 10 {
        tokio::task::yield_now().await;
    }
    running.stop().await;
    (reports.load(SeqCst), with_next.load(SeqCst))
}

#[tokio::test]
async fn a_reader_takes_its_next_job_with_its_report() {
    let _limit = crate::testing::limit();
    assert_eq!(reports_on_ten_jobs("").await, (10, 10));
    assert_eq!(reports_on_ten_jobs("WITH MAX_TAKEN = 5").await, (10, 0), "a take may wait there");
}

#[cfg(feature = "cli")]
#[tokio::test]
async fn a_handler_that_blocks_the_runtime_is_named() {
    let _limit = crate::testing::limit();
    let broker = Broker::open("sqlite::memory:").await.unwrap();
    broker.execute("CREATE WORK QUEUE tasks").await.unwrap();
    const BLOCKED: Duration = Duration::from_millis(40);
    for (lease, is_named) in [(Duration::from_millis(30), true), (Duration::from_secs(60), false)] {
        broker.push_job(TASKS, "x").await.unwrap();
        let (said, mut received) = tokio::sync::mpsc::unbounded_channel();
        let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let worker = broker.worker(TASKS, async move |_, _| {
            let _ = began.send(());
            // What a handler must not do.
            std::thread::sleep(BLOCKED);
            Ok::<_, String>(())
        });
        let worker = worker.lease(lease).observed_by(move |event| {
            if let WorkerEvent::HeldUp(_, held_up) = event {
                let _ = said.send(held_up);
            }
        });
        let running = worker.start();
        begins.recv().await.unwrap();
        running.stop().await;
        assert_eq!(received.recv().await.is_some_and(|held_up| held_up >= BLOCKED), is_named, "{lease:?}");
    }
    broker.close().await.unwrap();
}
