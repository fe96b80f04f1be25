//! Another program holds the write lock: nothing was written, so the commit waits and the store stays usable.

use crate::shop::{began, bodies, definitions, dialog, open, receive, send, sql};
use crate::{PATIENCE, until};
use dialoq::internals::store::Seen;
use dialoq::internals::store::Store;
use dialoq::protocol::Verb;
use dialoq::work::{Context, Job, WorkQueue};
use dialoq::{Act, Broker, Clock, Code};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const JOBS: WorkQueue<String> = WorkQueue::text("jobs");
/// By the clock of the machine, so a test that shows that a lease would be over waits for that time: nothing signals it.
const LEASE: Duration = Duration::from_millis(800);

/// Takes the write lock as another program would.
fn lock(path: &Path) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(path).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("create table if not exists mine (n); begin immediate; insert into mine values (1)").unwrap();
    other
}

/// Longer than many tries of the writer. `DIALOQ_BUSY_MS` lengthens it: above 20 s the store was once poisoned.
fn a_while() -> Duration {
    let asked = std::env::var("DIALOQ_BUSY_MS").ok().and_then(|asked| asked.parse().ok());
    Duration::from_millis(asked.unwrap_or(1200))
}

async fn wait_is_over_when_the_lock_goes(is_lone: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store.run_sql(sql("create table t (n integer)", Vec::new())).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    if is_lone {
        // Enough to be known as a lone caller, which writes on its own thread.
        for _ in 0..20 {
            store.submit(vec![send(handle, "before")]).await.unwrap();
        }
        store.submit(vec![receive(100)]).await.unwrap();
    }
    let other = lock(&path);
    let started = Instant::now();
    let mut verbs = tokio::task::JoinSet::new();
    for number in 0..3 {
        let store = store.clone();
        verbs.spawn(async move { store.submit(vec![send(handle, &number.to_string())]).await.map(drop) });
    }
    // The user's SQL begins the transaction of its batch before the broker's rows do.
    if !is_lone {
        let with_sql = store.clone();
        verbs.spawn(async move { with_sql.run_sql(sql("insert into t values (1)", Vec::new())).await.map(drop) });
    }
    until("a while has passed", || started.elapsed() > a_while()).await;
    assert!(verbs.try_join_next().is_none(), "nothing is answered before it is written");
    other.execute_batch("commit").unwrap();
    while let Some(done) = tokio::time::timeout(PATIENCE, verbs.join_next()).await.expect("the lock is gone") {
        done.unwrap().unwrap();
    }
    let mut received = bodies(&store.submit(vec![receive(100)]).await.unwrap()[0]);
    received.sort();
    assert_eq!(received, ["0", "1", "2"]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn commits_wait_while_another_program_holds_the_lock() {
    let _limit = crate::limit();
    wait_is_over_when_the_lock_goes(false).await;
}

#[tokio::test]
async fn a_lone_caller_waits_too() {
    let _limit = crate::limit();
    wait_is_over_when_the_lock_goes(true).await;
}

#[tokio::test]
async fn a_worker_keeps_its_job_while_another_program_holds_the_lock() {
    let _limit = crate::limit();
    while !keeps_its_job().await {}
}

/// Whether it was seen: this machine may have spent the lease that begins when the lock goes elsewhere.
async fn keeps_its_job() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let broker = with_a_job(&path, LEASE).await;
    let (begun, (may_end, end)) = (Arc::new(Notify::new()), tokio::sync::watch::channel(false));
    let handler = {
        let begun = begun.clone();
        move |_: Context, _: String| {
            begun.notify_one();
            let mut end = end.clone();
            async move { end.wait_for(|may_end| *may_end).await.map(drop) }
        }
    };
    let running = broker.worker(JOBS, handler).start();
    begun.notified().await;
    let other = lock(&path);
    let started = Instant::now();
    until("more than a lease has passed", || started.elapsed() > LEASE * 3).await;
    // Whatever is ordered handles first what is due.
    let pushing = broker.clone();
    let pushed = tokio::spawn(async move { pushing.push_job(JOBS, &"y".to_owned()).run_after(PATIENCE).await });
    until("a lease more has passed", || started.elapsed() > LEASE * 4).await;
    assert!(!pushed.is_finished(), "nothing is answered before it is written");
    let released = Instant::now();
    other.execute_batch("commit").unwrap();
    pushed.await.unwrap().unwrap();
    may_end.send(true).unwrap();
    let done = running.stop().await;
    broker.close().await.unwrap();
    if done.completed == 0 && released.elapsed() > LEASE / 2 {
        return false;
    }
    assert_eq!((done.completed, done.failed, done.lost), (1, 0, 0), "{done:?}");
    true
}

/// A broker with one job, which has one attempt and a lease.
async fn with_a_job(path: &Path, lease: Duration) -> Broker {
    let broker = Broker::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let queue = format!("CREATE WORK QUEUE jobs WITH MAX_ATTEMPTS = 1, LEASE_MS = {}", lease.as_millis());
    broker.execute(&queue).await.unwrap();
    broker.push_job(JOBS, &"x".to_owned()).await.unwrap();
    broker
}

/// Completes a job, unless this machine has spent its lease elsewhere.
async fn complete_in_time(broker: &Broker, job: &Job) {
    if let Err(error) = broker.complete_job(job).await {
        assert!(Clock::default().now() > job.lease_until.unwrap(), "{error}");
    }
}

#[tokio::test]
async fn a_job_that_is_taken_while_another_program_holds_the_lock_has_its_whole_lease() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let broker = with_a_job(&path, LEASE).await;
    let other = lock(&path);
    let started = Instant::now();
    let taking = broker.clone();
    let taken = tokio::spawn(async move { taking.take_jobs(JOBS).await });
    until("more than a lease has passed", || started.elapsed() > LEASE * 2).await;
    assert!(!taken.is_finished(), "nothing is answered before it is written");
    let released_at = Clock::default().now();
    other.execute_batch("commit").unwrap();
    let job = taken.await.unwrap().unwrap().pop().unwrap();
    let lease_until = job.lease_until.unwrap();
    assert!(lease_until >= released_at.after(LEASE), "the lease ends at {lease_until}, the lock went at {released_at}");
    complete_in_time(&broker, &job).await;
    broker.close().await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_taken_while_a_statement_runs_has_its_whole_lease() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    // A third of what the statement takes on a fast machine.
    let lease = LEASE / 2;
    let broker = with_a_job(&folder.path().join("a.db"), lease).await;
    broker.sql("create table t (n integer)", ()).await.unwrap();
    let running = broker.clone();
    let (started, started_at) = (Instant::now(), Clock::default().now());
    let long = "insert into t with recursive c (n) as (select 1 union all select n + 1 from c where n < 12000000) select max(n) from c";
    let statement = tokio::spawn(async move { running.sql(long, ()).await.map(|_| started.elapsed()) });
    until("the statement runs", || started.elapsed() > lease / 4).await;
    let job = broker.take_jobs(JOBS).await.unwrap().pop().unwrap();
    let lease_until = job.lease_until.unwrap();
    complete_in_time(&broker, &job).await;
    let took = statement.await.unwrap().unwrap();
    assert!(took > lease, "the statement took {took:?}, too short to show anything");
    // Begun before the statement it would end a lease and a quarter after it.
    let earliest = started_at.after(lease + lease / 2);
    assert!(
        lease_until >= earliest,
        "the lease ends at {lease_until}, the statement began at {started_at} and took {took:?}"
    );
    broker.close().await.unwrap();
}

#[tokio::test]
async fn a_close_ends_while_another_program_holds_the_lock_and_names_the_unwritten_work() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    store.submit(vec![send(handle, "kept")]).await.unwrap();
    let other = lock(&path);
    let sender = store.clone();
    let lost = tokio::spawn(async move { sender.submit(vec![send(handle, "not written")]).await.map(drop) });
    tokio::task::yield_now().await;
    let closed = tokio::time::timeout(PATIENCE, store.close()).await.expect("a close ends");
    assert!(closed.is_err(), "{closed:?}");
    let lost = lost.await.unwrap().unwrap_err();
    assert!([Code::STORE_OWNED, Code::STORE_POISONED].contains(&lost.code()), "{lost}");
    other.execute_batch("rollback").unwrap();
    drop(other);
    drop(store);
    let store = open(&path);
    assert_eq!(bodies(&store.submit(vec![receive(100)]).await.unwrap()[0]), ["kept"]);
}

#[tokio::test]
async fn a_drop_does_not_wait_for_the_lock_of_another_program() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    let other = lock(&path);
    {
        let mut send = store.submit(vec![send(handle, "never")]);
        tokio::select! {
            biased;
            _ = &mut send => panic!("the lock is held"),
            () = std::future::ready(()) => {}
        }
    }
    let started = Instant::now();
    drop(store);
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    other.execute_batch("rollback").unwrap();
    let store = open(&path);
    assert!(bodies(&store.submit(vec![receive(100)]).await.unwrap()[0]).is_empty());
}

#[tokio::test]
async fn a_close_answers_a_caller_that_its_last_batch_finds_at_a_locked_group() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let held = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    let free = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    store.submit(vec![send(free, "ready")]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(held, "held")).await.unwrap();
    let other = lock(&path);
    let mut waiting = tokio::task::JoinSet::new();
    let spawn = |waiting: &mut tokio::task::JoinSet<_>, unit| {
        let store = store.clone();
        waiting.spawn(async move { store.submit(unit).await.map(drop) });
    };
    spawn(&mut waiting, vec![send(free, "keeps the writer at the lock")]);
    // The writer orders a unit that receives: it meets the locked group only when the other program releases its lock.
    spawn(&mut waiting, vec![receive(1), send(held, "waits")]);
    tokio::task::yield_now().await;
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    while store.begin(Seen::always()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    other.execute_batch("rollback").unwrap();
    tokio::time::timeout(PATIENCE, closing).await.expect("a close ends").unwrap().unwrap();
    while let Some(done) = tokio::time::timeout(PATIENCE, waiting.join_next()).await.expect("no caller waits for ever")
    {
        let _ = done.unwrap();
    }
    drop(tx);
    drop(store);
    let store = open(&path);
    assert!(store.repairs().is_empty(), "{:?}", store.repairs());
}
