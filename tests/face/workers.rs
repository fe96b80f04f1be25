//! Workers of work queues: readers that run a handler for each job.

use super::*;
use dialoq::receive::strategy::dual_queue_loop_classic;
use dialoq::receive::weighted;
use dialoq::work::{AfterFailure, JobFilter, RunningWorker, ShownState, StatisticsBy, WorkQueue};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

const TASKS: WorkQueue<u32> = WorkQueue::json("tasks");

async fn broker(options: &str) -> TestBroker {
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute(&format!("CREATE WORK QUEUE tasks {options}")).await.unwrap();
    broker
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, so).await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn finished(worker: &RunningWorker, jobs: u64) {
    until("all jobs", || worker.done().completed + worker.done().failed + worker.done().lost >= jobs).await;
}

fn dead() -> JobFilter {
    JobFilter { state: Some(ShownState::Dead), ..JobFilter::default() }
}

#[tokio::test]
async fn each_job_is_handled_and_statistics_tell_by_whom() {
    let _limit = limit();
    let broker = broker("").await;
    for number in 0..50_u32 {
        broker.push_job(TASKS, &number).pushed_by(if number % 2 == 0 { "even" } else { "odd" }).await.unwrap();
    }
    let sum = Arc::new(AtomicUsize::new(0));
    let counted = sum.clone();
    let worker = broker.worker(TASKS, move |_, number| {
        let sum = counted.clone();
        async move {
            sum.fetch_add(number as usize, SeqCst);
            Ok::<_, String>(())
        }
    });
    let worker = worker.readers(8).name("reader").start();
    finished(&worker, 50).await;
    assert_eq!(worker.stop().await.completed, 50);
    assert_eq!(sum.load(SeqCst), 1225);
    let by_writer = broker.work_statistics(Some("TASKS"), StatisticsBy::Writer).await.unwrap();
    assert_eq!(by_writer.iter().map(|row| (&*row.name, row.jobs)).collect::<Vec<_>>(), [("even", 25), ("odd", 25)]);
    let by_reader = broker.work_statistics(None, StatisticsBy::Reader).await.unwrap();
    assert_eq!(by_reader.iter().map(|row| (&*row.name, row.jobs)).collect::<Vec<_>>(), [("reader", 50)]);
    let queues = broker.work_queues().await.unwrap();
    assert_eq!((queues[0].ready, queues[0].taken, queues[0].finished), (0, 0, 50));
}

#[tokio::test]
async fn errors_panics_and_bodies_that_do_not_decode_are_failed_attempts() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0").await;
    broker.push_job("tasks", "no number").await.unwrap();
    for number in [1, 2, 3_u32] {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    let worker = broker.worker(TASKS, async |_, number| match number {
        1 => Err("cannot"),
        2 => panic!("over"),
        _ => Ok(()),
    });
    let worker = worker.readers(2).start();
    finished(&worker, 6).await;
    let done = worker.stop().await;
    assert_eq!((done.completed, done.failed, done.lost), (1, 5, 0));
    let dead_jobs = broker.jobs(&dead(), 10).await.unwrap();
    let errors: Vec<_> = dead_jobs.iter().map(|job| (job.attempts, job.last_error.as_deref().unwrap())).collect();
    assert!(errors[0].1.contains("does not decode"), "{errors:?}");
    assert_eq!(errors[0].0, 1, "it will not decode the next time either");
    assert_eq!(errors[1..], [(2, "cannot"), (2, "its handler panicked: over")]);
    let cannot = JobFilter { error: Some("cannot".into()), ..JobFilter::default() };
    assert_eq!(broker.redrive_jobs(&cannot).await.unwrap(), 1);
    assert_eq!(broker.cancel_jobs(&dead()).await.unwrap(), 2);
    assert_eq!(broker.redrive_jobs(&JobFilter::default()).await.unwrap(), 0);
    assert_eq!(broker.finished_jobs(&JobFilter::default(), 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_change_of_the_jobs_of_a_preview_leaves_later_ones_alone() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 1").await;
    let kill = async |number: u32| {
        broker.push_job(TASKS, &number).await.unwrap();
        let worker = broker.worker(TASKS, async |_, _| Err::<(), _>("cannot")).start();
        finished(&worker, 1).await;
        worker.stop().await;
    };
    kill(1).await;
    let all = JobFilter::default();
    let previewed = broker.jobs(&dead(), 10).await.unwrap();
    kill(2).await;
    assert_eq!(broker.redrive_found_jobs(&all, &previewed).await.unwrap(), 1);
    assert_eq!(broker.redrive_found_jobs(&all, &previewed).await.unwrap(), 0, "it is not dead any more");
    assert_eq!(broker.jobs(&dead(), 10).await.unwrap().len(), 1, "the second died after the preview");

    let previewed = broker.jobs(&all, 10).await.unwrap();
    broker.push_job(TASKS, &3).await.unwrap();
    assert_eq!(broker.cancel_found_jobs(&all, &previewed).await.unwrap(), 2);
    assert_eq!(broker.jobs(&all, 10).await.unwrap().len(), 1, "the third came after the preview");
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_its_attempt_and_is_named() {
    let _limit = limit();
    for in_transactions in [false, true] {
        let broker = Broker::open("sqlite::memory:?max_body_bytes=100").await.unwrap();
        broker.execute("CREATE WORK QUEUE tasks WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0").await.unwrap();
        broker.push_job(TASKS, &1).await.unwrap();
        let worker = broker.worker(TASKS, async |context, _| {
            context.keep_result(vec![0; 101]);
            Ok::<_, String>(())
        });
        let worker = if in_transactions { worker.in_transactions() } else { worker }.start();
        finished(&worker, 2).await;
        assert_eq!(worker.stop().await.failed, 2);
        let job = broker.jobs(&dead(), 10).await.unwrap().remove(0);
        let error = job.last_error.unwrap();
        assert!(error.contains("the result of a job has 101 bytes"), "in transactions: {in_transactions}, {error}");
    }
}

#[tokio::test]
async fn a_stop_waits_for_handlers_and_takes_nothing_more() {
    let _limit = limit();
    let broker = broker("").await;
    for number in [1, 2_u32] {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let started = Arc::new(AtomicUsize::new(0));
    let starts = started.clone();
    let worker = broker.worker(TASKS, move |_, _| {
        let (gate, starts) = (held.clone(), starts.clone());
        async move {
            starts.fetch_add(1, SeqCst);
            gate.acquire().await.map(drop)
        }
    });
    let worker = worker.start();
    until("a handler runs", || started.load(SeqCst) == 1).await;
    let stopping = tokio::spawn(worker.stop());
    gate.add_permits(9);
    assert_eq!(stopping.await.unwrap().completed, 1);
    assert_eq!(broker.work_queues().await.unwrap()[0].ready, 1);
}

#[tokio::test]
async fn a_long_handler_keeps_its_lease_and_a_cancelled_job_ends_its_handler() {
    let _limit = limit();
    let broker = broker("WITH LEASE_MS = 3000").await;
    let job = broker.push_job(TASKS, &1).await.unwrap().job.unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let counter = dropped.clone();
    let started = Arc::new(AtomicUsize::new(0));
    let starts = started.clone();
    let worker = broker.worker(TASKS, move |_, _| {
        let (counts, starts) = (Counts(counter.clone()), starts.clone());
        async move {
            let _counts = counts;
            starts.fetch_add(1, SeqCst);
            std::future::pending::<Result<(), String>>().await
        }
    });
    let worker = worker.start();
    let is_taken = async |until: i64| {
        let rows = broker.jobs(&JobFilter::default(), 9).await.unwrap();
        rows.first().is_some_and(|row| row.state == ShownState::Taken && row.due_at.is_some_and(|due| due.0 >= until))
    };
    let begin = broker.clock().now().0;
    // Its heartbeat counts from then on; the row says "taken" earlier.
    until("the handler runs", || started.load(SeqCst) == 1).await;
    for step in 0..5 {
        // Each heartbeat comes a third of a lease later.
        while !is_taken(begin + step * 1_000_000 + 3_000_000).await {
            tokio::task::yield_now().await;
        }
        broker.clock().advance(Duration::from_secs(1));
    }
    while broker.cancel_job(job).await.is_err() {}
    until("the handler is dropped", || {
        broker.clock().advance(Duration::from_secs(1));
        dropped.load(SeqCst) == 1
    })
    .await;
    finished(&worker, 1).await;
    assert_eq!(worker.stop().await.lost, 1);
}

/// The reader waited for the statement without end, and all writers with it.
#[tokio::test]
async fn a_statement_that_a_failed_handler_has_given_up_keeps_no_reader() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0").await;
    broker.sql("create table note (n)", ()).await.unwrap();
    broker.push_job(TASKS, &1).await.unwrap();
    let worker = broker.worker(TASKS, async |context: dialoq::work::Context, _| {
        let tx = context.tx.as_ref().expect("the worker runs in transactions");
        let endless =
            "insert into note with recursive r (n) as (select 1 union all select n + 1 from r) select count(*) from r";
        if context.job.attempt == 1 {
            let given_up = tokio::time::timeout(Duration::from_millis(1), tx.sql(endless, ())).await;
            return given_up.map(drop).map_err(|_| "it takes too long");
        }
        Ok(())
    });
    let worker = worker.in_transactions().start();
    finished(&worker, 2).await;
    let counted = worker.stop().await;
    assert_eq!((counted.failed, counted.completed), (1, 1));
}

#[tokio::test]
async fn what_a_handler_does_in_its_transaction_is_committed_with_the_job() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0").await;
    broker.execute("CREATE WORK QUEUE after").await.unwrap();
    broker.sql("create table note (n)", ()).await.unwrap();
    for number in [1, 2_u32] {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    let worker = broker.worker(TASKS, async |context: dialoq::work::Context, number| {
        let tx = context.tx.as_ref().expect("the worker runs in transactions");
        tx.sql("insert into note values (?)", (i64::from(number),)).await.map_err(|error| error.to_string())?;
        tx.push_job("after", "x").await.map_err(|error| error.to_string())?;
        if number == 1 { Err("not this one".to_owned()) } else { Ok(()) }
    });
    let worker = worker.in_transactions().start();
    finished(&worker, 3).await;
    worker.stop().await;
    let notes = broker.query("select sum(n) from note", ()).await.unwrap();
    assert_eq!(notes.rows[0].get::<i64>("sum(n)").unwrap(), 2);
    assert_eq!(broker.take_jobs("after").count(9).await.unwrap().len(), 1);
    let dead_jobs = broker.jobs(&dead(), 9).await.unwrap();
    assert_eq!(dead_jobs[0].last_error.as_deref(), Some("not this one"));
}

/// All counted as completed.
#[tokio::test]
async fn a_job_that_its_handler_reports_itself_counts_as_it_was_reported() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 1, HISTORY = ON").await;
    for number in [0, 1, 2, 2_u32] {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    let worker = broker.worker(TASKS, async |context: dialoq::work::Context, number| {
        let tx = context.tx.as_ref().expect("the worker runs in transactions");
        let reported = match number {
            0 => tx.complete_job(&*context.job).await,
            1 => tx.cancel_job(context.job.taken.job).await,
            _ => tx.fail_job(&*context.job, "by the handler").await.map(drop),
        };
        reported.map_err(|error| error.to_string())
    });
    let worker = worker.in_transactions().start();
    finished(&worker, 4).await;
    let done = worker.stop().await;
    assert_eq!((done.completed, done.lost, done.failed), (1, 1, 2));
    assert_eq!(broker.jobs(&dead(), 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_commit_that_is_refused_is_a_failed_attempt_of_its_job() {
    let _limit = limit();
    for activated in [false, true] {
        let broker = broker("WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0").await;
        broker.sql("create table parent (id integer primary key)", ()).await.unwrap();
        let child = "create table child (id integer references parent (id) deferrable initially deferred)";
        broker.sql(child, ()).await.unwrap();
        for number in [1, 1, 1, 0_u32] {
            broker.push_job(TASKS, &number).await.unwrap();
        }
        let worker = broker.worker(TASKS, async |context: dialoq::work::Context, number| {
            let tx = context.tx.as_ref().expect("the worker runs in transactions");
            // There is no parent 1.
            let rows = if number == 1 { "insert into child values (1)" } else { "insert into parent values (2)" };
            tx.sql(rows, ()).await.map(drop).map_err(|error| error.to_string())
        });
        let worker = worker.in_transactions();
        let worker = if activated { worker.activated().start() } else { worker.start() };
        finished(&worker, 7).await;
        let done = worker.stop().await;
        assert_eq!((done.completed, done.failed), (1, 6), "activated: {activated}");
        assert_eq!(broker.jobs(&dead(), 9).await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_transaction_that_gives_way_to_another_is_no_failure_of_its_handler() {
    let _limit = limit();
    let broker = broker("").await;
    broker.sql("create table counter (n)", ()).await.unwrap();
    broker.sql("insert into counter values (0)", ()).await.unwrap();
    broker.push_job(TASKS, &1).await.unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let worker = broker.worker(TASKS, move |context: dialoq::work::Context, _| {
        let is_first = counted.fetch_add(1, SeqCst) == 0;
        async move {
            let tx = context.tx.as_ref().expect("the worker runs in transactions");
            let next = || tx.query("update counter set n = n + 1 returning n", ());
            next().await.map_err(|error| error.to_string())?;
            if is_first {
                context.broker.sql("update counter set n = 10", ()).await.map_err(|error| error.to_string())?;
            }
            next().await.map(drop).map_err(|error| error.to_string())
        }
    });
    let worker = worker.in_transactions().start();
    finished(&worker, 1).await;
    let done = worker.stop().await;
    assert_eq!((done.completed, done.failed, attempts.load(SeqCst)), (1, 0, 2));
    assert_eq!(broker.finished_jobs(&JobFilter::default(), 9).await.unwrap()[0].attempts, 1);
}

/// A body that no one should decode.
#[derive(Debug, serde::Serialize)]
struct Bomb;

impl<'de> serde::Deserialize<'de> for Bomb {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> std::result::Result<Self, D::Error> {
        panic!("this body is a bomb")
    }
}

#[tokio::test]
async fn a_panic_while_a_body_is_decoded_is_a_failed_attempt() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 1").await;
    for number in 0..3_u32 {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    let bombs: WorkQueue<Bomb> = WorkQueue::json("tasks");
    let worker = broker.worker(bombs, async |_, _| Ok::<_, String>(())).readers(1).start();
    finished(&worker, 3).await;
    assert_eq!(worker.stop().await.failed, 3);
    let dead_jobs = broker.jobs(&dead(), 9).await.unwrap();
    assert_eq!(dead_jobs[0].last_error.as_deref(), Some("its handler panicked: this body is a bomb"));
}

#[tokio::test]
async fn a_handler_may_report_the_job_of_its_transaction() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 1").await;
    broker.sql("create table note (n int)", ()).await.unwrap();
    for number in 0..2_u32 {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    let worker = broker.worker(TASKS, async |context: dialoq::work::Context, number| {
        let tx = context.tx.as_ref().unwrap();
        tx.sql("insert into note values (?1)", (1,)).await.map_err(|error| error.to_string())?;
        let reported = match number {
            0 => tx.complete_job_with(&*context.job, "its own").await,
            _ => tx.fail_job(&*context.job, "not today").await.map(drop),
        };
        reported.map_err(|error| error.to_string())
    });
    let worker = worker.in_transactions().start();
    finished(&worker, 2).await;
    let done = worker.stop().await;
    assert_eq!((done.completed, done.lost, done.failed), (1, 0, 1));
    let notes = broker.query("select sum(n) from note", ()).await.unwrap();
    assert_eq!(notes.rows[0].get::<i64>("sum(n)").unwrap(), 2, "what the handlers wrote is kept");
    let results = broker.finished_jobs(&JobFilter::default(), 9).await.unwrap();
    assert_eq!(results[0].result.as_deref(), Some(&b"its own"[..]));
    assert_eq!(broker.jobs(&dead(), 9).await.unwrap()[0].last_error.as_deref(), Some("not today"));
}

#[tokio::test]
async fn a_handler_chooses_what_becomes_of_its_job() {
    let _limit = limit();
    let broker = broker("WITH MAX_ATTEMPTS = 3, RETRY_DELAY_MS = 0").await;
    for number in 0..4_u32 {
        broker.push_job(TASKS, &number).await.unwrap();
    }
    for in_transactions in [false, true] {
        let worker = broker.worker(TASKS, async |context: dialoq::work::Context, number| {
            match number {
                0 => context.after_failure(AfterFailure::Dead),
                1 => context.after_failure(AfterFailure::RetryInMs(7000)),
                2 => context.after_failure(AfterFailure::RetryInMs(-1)),
                _ => {
                    context.after_failure(AfterFailure::Dead);
                    panic!("hopeless");
                }
            }
            Err::<(), _>(format!("no {number}"))
        });
        let worker = if in_transactions { worker.in_transactions() } else { worker };
        let worker = worker.start();
        // The pause of -1 ms is none, so the options of the queue count: three attempts.
        finished(&worker, 6).await;
        assert_eq!(worker.stop().await.failed, 6);
        let jobs = broker.jobs(&JobFilter::default(), 9).await.unwrap();
        let mut ends: Vec<_> = jobs
            .iter()
            .map(|job| (job.last_error.as_deref().unwrap(), job.state.name(), job.attempts, job.due_at))
            .collect();
        ends.sort_unstable();
        let later = Some(broker.clock().now().after(Duration::from_secs(7)));
        let panicked = ("its handler panicked: hopeless", "dead", 1, None);
        let right = [panicked, ("no 0", "dead", 1, None), ("no 1", "scheduled", 1, later), ("no 2", "dead", 3, None)];
        assert_eq!(ends, right);
        broker.redrive_jobs(&dead()).await.unwrap();
        broker.cancel_jobs(&JobFilter { state: Some(ShownState::Scheduled), ..JobFilter::default() }).await.unwrap();
        broker.push_job(TASKS, &1).await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_serves_several_queues_by_a_strategy() {
    let _limit = limit();
    let broker = broker("").await;
    broker.execute("CREATE WORK QUEUE routine WITH LEASE_MS = 5000").await.unwrap();
    for in_transactions in [false, true] {
        for number in 0..30_u32 {
            broker.push_job(if number % 3 == 0 { "routine" } else { "tasks" }, &number.to_string()).await.unwrap();
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = order.clone();
        let worker = broker.worker(TASKS, move |context, _| {
            seen.lock().unwrap().push(context.job.queue.to_string());
            async { Ok::<_, String>(()) }
        });
        let worker = if in_transactions { worker.in_transactions() } else { worker };
        let worker = worker.by(weighted([("tasks", 2), ("routine", 1)])).unwrap().start();
        finished(&worker, 30).await;
        // It waits on both queues, with a clock that stands still.
        broker.push_job("routine", "1").await.unwrap();
        finished(&worker, 31).await;
        assert_eq!(worker.stop().await.completed, 31);
        let order = order.lock().unwrap();
        for window in order[..30].windows(3) {
            assert_eq!(window.iter().filter(|queue| *queue == "routine").count(), 1, "{order:?}");
        }
    }
    let typed = broker.worker(TASKS, async |_, _| Ok::<_, String>(())).job_type("x");
    let activated = broker.worker(TASKS, async |_, _| Ok::<_, String>(())).activated();
    for worker in [typed.by(weighted([("tasks", 1)])), activated.by(weighted([("tasks", 1)]))] {
        assert_eq!(worker.err().unwrap().code(), dialoq::Code::OUT_OF_RANGE);
    }
}

/// It counted as completed by both, and the handler went on.
#[tokio::test]
async fn a_job_that_another_reader_has_taken_and_done_is_lost() {
    let _limit = limit();
    let broker = broker("WITH RETRY_DELAY_MS = 0").await;
    broker.push_job(TASKS, &1).await.unwrap();
    let worker = broker.worker(TASKS, async |context, _| {
        context.broker.fail_job(&*context.job, "as at the end of its lease").await?;
        let again = context.broker.take_jobs(TASKS).await?;
        context.broker.complete_job(&again[0]).await
    });
    let worker = worker.start();
    finished(&worker, 1).await;
    let done = worker.stop().await;
    assert_eq!((done.completed, done.failed, done.lost), (0, 0, 1));
}

/// One queue that was dropped ended the takes from all others.
#[tokio::test]
async fn a_worker_by_strategy_goes_on_without_a_queue_that_was_dropped() {
    let _limit = limit();
    for in_transactions in [false, true] {
        for dropped in ["tasks", "routine"] {
            let broker = broker("").await;
            broker.execute("CREATE WORK QUEUE routine").await.unwrap();
            let worker = broker.worker(TASKS, async |_, _| Ok::<_, String>(()));
            let worker = if in_transactions { worker.in_transactions() } else { worker };
            let worker = worker.readers(2).by(weighted([("tasks", 2), ("routine", 1)])).unwrap().start();
            let other = if dropped == "tasks" { "routine" } else { "tasks" };
            broker.push_job(other, "1").await.unwrap();
            finished(&worker, 1).await;
            broker.execute(&format!("DROP WORK QUEUE {dropped}")).await.unwrap();
            for _ in 0..9 {
                broker.push_job(other, "1").await.unwrap();
            }
            finished(&worker, 10).await;
            broker.execute(&format!("CREATE WORK QUEUE {dropped}")).await.unwrap();
            broker.push_job(dropped, "1").await.unwrap();
            let again = async {
                while worker.done().completed < 11 {
                    broker.clock().advance(Duration::from_millis(100));
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(SOON, again).await.expect("the queue is there again");
            worker.stop().await;
        }
    }
}

/// The classic loop makes its attempts one by one. It failed at the queue that was dropped before it came to the other.
#[tokio::test]
async fn a_worker_by_the_classic_loop_goes_on_without_its_high_queue() {
    let _limit = limit();
    let broker = broker("").await;
    broker.execute("CREATE WORK QUEUE routine").await.unwrap();
    let worker = broker.worker(TASKS, async |_, _| Ok::<_, String>(()));
    let worker = worker.by(dual_queue_loop_classic("tasks", "routine")).unwrap().start();
    broker.push_job("tasks", "1").await.unwrap();
    finished(&worker, 1).await;
    broker.execute("DROP WORK QUEUE tasks").await.unwrap();
    for _ in 0..9 {
        broker.push_job("routine", "1").await.unwrap();
    }
    finished(&worker, 10).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_leased_handler_may_report_its_job_itself() {
    let _limit = limit();
    for is_kept in [true, false] {
        let broker = broker(if is_kept { "" } else { "WITH HISTORY = OFF" }).await;
        broker.push_job(TASKS, &1).await.unwrap();
        let go_on = Arc::new(Semaphore::new(0));
        let (reported, ended) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let of_handler = (reported.clone(), go_on.clone(), ended.clone());
        let worker = broker.worker(TASKS, move |context, _| {
            let (reported, go_on, ended) = of_handler.clone();
            async move {
                context.broker.complete_job(&*context.job).await?;
                reported.add_permits(1);
                go_on.acquire().await.unwrap().forget();
                ended.add_permits(1);
                Ok::<_, dialoq::Error>(())
            }
        });
        let worker = worker.start();
        reported.acquire().await.unwrap().forget();
        if is_kept {
            // Its lease is to be prolonged while it goes on, and there is none.
            broker.clock().advance(Duration::from_secs(30));
            tokio::task::yield_now().await;
        }
        go_on.add_permits(1);
        finished(&worker, 1).await;
        let done = worker.stop().await;
        // Without a history it looks as if the job was cancelled.
        let right = if is_kept { (1, 0, 0) } else { (0, 0, 1) };
        assert_eq!((done.completed, done.failed, done.lost), right, "history {is_kept}");
        assert_eq!(ended.available_permits(), 1, "the handler ran to its end");
    }
}

/// Panics when it plans for the second time.
#[derive(Clone)]
struct Panicking<S>(S, Arc<AtomicUsize>);

impl<S: dialoq::receive::strategy::Strategy> dialoq::receive::strategy::Strategy for Panicking<S> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn form(&self) -> dialoq::receive::strategy::Form {
        self.0.form()
    }

    fn bound(&self) -> dialoq::receive::strategy::Bound {
        self.0.bound()
    }

    fn prepare(&mut self, catalog: &dialoq::catalog::Catalog) -> dialoq::Result<()> {
        self.0.prepare(catalog)
    }

    fn plan(&self, now: dialoq::Timestamp) -> dialoq::receive::strategy::Plan {
        // Each preparation plans too: once before the worker starts and once for its reader.
        assert_ne!(self.1.fetch_add(1, SeqCst), 3, "the strategy is wrong");
        self.0.plan(now)
    }

    fn served(&mut self, served: dialoq::receive::strategy::Served) {
        self.0.served(served);
    }
}

#[tokio::test]
async fn a_strategy_that_panics_does_not_end_its_reader() {
    let _limit = limit();
    for in_transactions in [false, true] {
        let broker = broker("").await;
        let plans = Arc::new(AtomicUsize::new(0));
        let worker = broker.worker(TASKS, async |_, _| Ok::<_, String>(()));
        let worker = if in_transactions { worker.in_transactions() } else { worker };
        let worker = worker.by(Panicking(weighted([("tasks", 1)]), plans.clone())).unwrap().start();
        for number in 0..3 {
            broker.push_job(TASKS, &number).await.unwrap();
            finished(&worker, u64::from(number) + 1).await;
        }
        assert!(plans.load(SeqCst) > 4, "it has panicked");
        assert_eq!(worker.stop().await.completed, 3);
    }
}

/// A process that works through the owner of the file gets the answers to its takes late, so a stop often meets one on its way.
#[tokio::test]
async fn a_stop_in_the_middle_of_a_take_costs_no_attempt() {
    let _limit = limit();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let owner = Broker::open(&url).await.unwrap();
    owner.execute("CREATE WORK QUEUE tasks WITH MAX_ATTEMPTS = 1").await.unwrap();
    let guest = Broker::open(&url).await.unwrap();
    let mut completed = 0;
    for round in 0..200_u32 {
        let worker = guest.worker(TASKS, async |_, _| Ok::<_, String>(())).in_transactions();
        let worker = if round % 2 == 0 { worker.start() } else { worker.activated().start() };
        let stop = async {
            for _ in 0..round % 23 {
                tokio::task::yield_now().await;
            }
            worker.stop().await
        };
        let (pushed, done) = tokio::join!(owner.push_job(TASKS, &round).into_future(), stop);
        pushed.unwrap();
        assert_eq!((done.failed, done.lost), (0, 0));
        completed += done.completed;
    }
    assert!(owner.jobs(&dead(), 1).await.unwrap().is_empty(), "no handler has failed");
    let worker = guest.worker(TASKS, async |_, _| Ok::<_, String>(())).in_transactions().readers(4).start();
    until("all jobs", || worker.done().completed + completed == 200).await;
    worker.stop().await;
    guest.close().await.unwrap();
    owner.close().await.unwrap();
}
