//! Activated readers of work queues: started while there are jobs, at most MAX_QUEUE_READERS over all processes.

#[cfg(unix)]
use crate::hosts::Host;
#[cfg(unix)]
use crate::servers::Database;
use crate::stage::{FIVE_SECONDS, Stage, soon, until};
use dialoq::activation::MonitorRow;
use dialoq::internals::has_not_begun;
use dialoq::work::{JobFilter, RunningWorker, ShownState, WorkDone, WorkQueue};
use dialoq::{Act, Broker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::Semaphore;

const JOBS: WorkQueue<u32> = WorkQueue::json("jobs");

/// Handlers that work until they are let go.
#[derive(Clone)]
struct Desk {
    at_work: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Desk {
    fn new() -> Self {
        Self { at_work: Arc::default(), most: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    /// A worker of at most so many readers.
    fn activate(&self, host: &Broker, readers: usize) -> RunningWorker {
        let desk = self.clone();
        let worker = host.worker(JOBS, move |_, _| {
            let desk = desk.clone();
            async move {
                let _at_work = AtWork::begin(&desk);
                desk.gate.acquire().await.map(tokio::sync::SemaphorePermit::forget)
            }
        });
        worker.readers(readers).activated().start()
    }

    fn now(&self) -> usize {
        self.at_work.load(SeqCst)
    }

    fn let_go(&self, jobs: usize) {
        self.gate.add_permits(jobs);
    }
}

/// A handler that works; it may be dropped.
struct AtWork(Arc<AtomicUsize>);

impl AtWork {
    fn begin(desk: &Desk) -> Self {
        desk.most.fetch_max(desk.at_work.fetch_add(1, SeqCst) + 1, SeqCst);
        Self(desk.at_work.clone())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

async fn push(host: &Broker, jobs: u32) {
    for job in 0..jobs {
        host.push_job(JOBS, &job).await.unwrap();
    }
}

/// The monitor's row after a check.
async fn row(worker: &RunningWorker) -> MonitorRow {
    soon("the check of the monitor", worker.monitor()).await.expect("the monitor exists")
}

/// Moves the clock until this worker has so many readers.
async fn comes_to(stage: &Stage, worker: &RunningWorker, readers: u64) {
    let checking = async {
        while row(worker).await.tasks_running != readers {
            stage.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    soon(&format!("{readers} readers"), checking).await;
}

staged!(readers_start_for_jobs_and_leave_when_none_come, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs").await;
    let desk = Desk::new();
    let worker = desk.activate(&stage, 3);
    assert_eq!(row(&worker).await.tasks_started_total, 0, "there is no job");
    push(&stage, 5).await;
    until("three readers at work", || desk.now() == 3).await;
    assert_eq!(row(&worker).await.tasks_running, 3);
    desk.let_go(5);
    until("five jobs done", || worker.done().completed == 5).await;
    comes_to(&stage, &worker, 0).await;
    // A reader comes for one job, and no second.
    let before = row(&worker).await.tasks_started_total;
    desk.let_go(1);
    push(&stage, 1).await;
    until("the sixth job done", || worker.done().completed == 6).await;
    comes_to(&stage, &worker, 0).await;
    // On a server one more may come for nothing: the monitor read that a job waits just before it was taken.
    let started = row(&worker).await.tasks_started_total - before;
    assert!(started == 1 || store.is_server() && started == 2, "{started} were started");
    assert_eq!(desk.most.load(SeqCst), 3);
    assert_eq!(soon("the end of the worker", worker.stop()).await.completed, 6);
});

staged!(a_paused_queue_has_no_monitor_and_a_job_that_falls_due_starts_a_reader, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH STATUS = OFF").await;
    let desk = Desk::new();
    let worker = desk.activate(&stage, 3);
    push(&stage, 1).await;
    assert!(soon("the check", worker.monitor()).await.is_none());
    stage.ddl("ALTER WORK QUEUE jobs WITH STATUS = ON").await;
    until("the job in work", || desk.now() == 1).await;
    desk.let_go(2);
    comes_to(&stage, &worker, 0).await;
    stage.push_job(JOBS, &1).run_after(FIVE_SECONDS).await.unwrap();
    assert_eq!(row(&worker).await.tasks_running, 0);
    stage.advance(FIVE_SECONDS);
    until("both jobs done", || worker.done().completed == 2).await;
    soon("the end of the worker", worker.stop()).await;
});

// On SQLite the readers came again and again, each for nothing.
staged!(a_rate_that_is_used_up_starts_no_reader, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH RATE_JOBS = 1, RATE_MS = 60000").await;
    let desk = Desk::new();
    let worker = desk.activate(&stage, 3);
    desk.let_go(2);
    push(&stage, 2).await;
    until("the first job done", || worker.done().completed == 1).await;
    // In these 40 s each reader that finds nothing leaves, and would be followed by the next.
    for _ in 0..80 {
        stage.advance(Duration::from_millis(500));
        row(&worker).await;
        tokio::task::yield_now().await;
    }
    let started = row(&worker).await.tasks_started_total;
    assert!(started < 5, "{started} were started");
    assert_eq!(worker.done().completed, 1);
    stage.advance(Duration::from_secs(60));
    until("the second job done", || worker.done().completed == 2).await;
    soon("the end of the worker", worker.stop()).await;
});

staged!(a_job_whose_handler_has_not_begun_goes_back_uncounted, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH MAX_ATTEMPTS = 1").await;
    push(&stage, 1).await;
    let desk = Desk::new();
    let handling = desk.clone();
    let worker = stage.worker(JOBS, move |context, _| {
        let desk = handling.clone();
        async move {
            let _at_work = AtWork::begin(&desk);
            let _ = desk.gate.acquire().await;
            has_not_begun(&context);
            Err("it could not begin")
        }
    });
    let worker = worker.start();
    until("the job in work", || desk.now() == 1).await;
    let stopped = async { tokio::join!(worker.stop(), async { desk.let_go(1) }).0 };
    assert_eq!(soon("the end of the worker", stopped).await, WorkDone::default());
    // SQLite writes it a moment later.
    let job = soon("the job in its queue", async {
        loop {
            match stage.jobs(&JobFilter::default(), 1).await.unwrap().remove(0) {
                job if job.state == ShownState::Taken => tokio::task::yield_now().await,
                job => return job,
            }
        }
    });
    let job = job.await;
    assert_eq!((job.state, job.attempts, job.last_error), (ShownState::Ready, 0, None));
});

staged!(a_maximum_that_is_altered_takes_effect_while_readers_run, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH MAX_QUEUE_READERS = 2").await;
    let desk = Desk::new();
    let worker = desk.activate(&stage, 8);
    push(&stage, 12).await;
    until("two readers at work", || desk.now() == 2).await;
    let shown = row(&worker).await;
    assert_eq!((shown.max_queue_readers, shown.tasks_running), (2, 2));
    stage.ddl("ALTER WORK QUEUE jobs WITH MAX_QUEUE_READERS = 5").await;
    until("five readers at work", || desk.now() == 5).await;
    // Three of them leave after their jobs, though more jobs wait.
    stage.ddl("ALTER WORK QUEUE jobs WITH MAX_QUEUE_READERS = 2").await;
    assert_eq!(row(&worker).await.max_queue_readers, 2);
    desk.let_go(3);
    until("three jobs done", || worker.done().completed == 3).await;
    let fewer = async { while row(&worker).await.tasks_running != 2 {} };
    soon("two readers", fewer).await;
    until("two readers at work", || desk.now() == 2).await;
    // Without a maximum of the queue, that of the worker counts.
    stage.ddl("ALTER WORK QUEUE jobs WITH MAX_QUEUE_READERS = 0").await;
    until("eight readers at work, for nine jobs", || desk.now() == 8).await;
    desk.let_go(9);
    until("all jobs done", || worker.done().completed == 12).await;
    soon("the end of the worker", worker.stop()).await;
});

staged!(a_worker_that_is_stopped_in_time_leaves_and_one_that_is_not_is_ended, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH RETRY_DELAY_MS = 0").await;
    let desk = Desk::new();
    let worker = desk.activate(&stage, 2);
    push(&stage, 2).await;
    until("two readers at work", || desk.now() == 2).await;
    let ended = soon("the end of the worker", worker.stop_within(Duration::ZERO)).await;
    assert_eq!(ended.completed, 0);
    assert_eq!(stage.broker_tasks(), 0);
    let worker = desk.activate(&stage, 2);
    stage.advance(Duration::from_secs(61));
    desk.let_go(2);
    until("both jobs, after their leases", || worker.done().completed == 2).await;
    drop(worker);
    until("no reader", || stage.broker_tasks() == 0).await;
});

// In memory, and in a file that is not shared, the readers of one process.
staged!(workers_of_one_broker_share_the_maximum, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH MAX_QUEUE_READERS = 1, LEASE_MS = 31536000000").await;
    let desk = Desk::new();
    let workers = [desk.activate(&stage, 2), desk.activate(&stage, 2)];
    push(&stage, 4).await;
    until("a reader at work", || desk.now() == 1).await;
    let refused = async {
        while row(&workers[0]).await.task_limit_reached_total + row(&workers[1]).await.task_limit_reached_total == 0 {}
    };
    soon("a refusal", refused).await;
    desk.let_go(4);
    until("all jobs", || workers.iter().map(|worker| worker.done().completed).sum::<u64>() == 4).await;
    assert_eq!(desk.most.load(SeqCst), 1);
    // The one that has the place leaves it to the other.
    push(&stage, 1).await;
    until("a reader at work", || desk.now() == 1).await;
    desk.let_go(2);
    let [first, second] = workers;
    soon("the end of a worker", first.stop()).await;
    push(&stage, 1).await;
    let after = async {
        while stage.work_queues().await.unwrap()[0].ready > 0 || desk.now() > 0 {
            stage.advance(Duration::from_millis(100));
        }
    };
    soon("the last job by the other", after).await;
    soon("the end of the other", second.stop()).await;
});

staged!(hosts, hosts_share_the_maximum, async |store| {
    let stage = Stage::shared(store).await;
    stage.ddl("CREATE WORK QUEUE jobs WITH MAX_QUEUE_READERS = 3, LEASE_MS = 31536000000").await;
    let desk = Desk::new();
    let mut hosts = Vec::new();
    for _ in 0..4 {
        let host = stage.another().await;
        let worker = desk.activate(&host, 2);
        hosts.push((host, worker));
    }
    push(&stage, 20).await;
    until("three readers at work", || desk.now() == 3).await;
    let mut running = 0;
    for (_, worker) in &hosts {
        running += row(worker).await.tasks_running;
    }
    assert_eq!(running, 3);
    let shown = async { while stage.work_queues().await.unwrap()[0].readers_running != Some(3) {} };
    soon("the readers of all hosts in the status", shown).await;
    stage.advance(FIVE_SECONDS);
    // The maximum is altered by one broker, and the others are notified.
    stage.ddl("ALTER WORK QUEUE jobs WITH MAX_QUEUE_READERS = 1").await;
    let noticed = async {
        for (_, worker) in &hosts {
            while row(worker).await.max_queue_readers != 1 {}
        }
    };
    soon("the new maximum on every host", noticed).await;
    desk.let_go(3);
    let fewer = async {
        loop {
            let mut running = 0;
            for (_, worker) in &hosts {
                running += row(worker).await.tasks_running;
            }
            if running == 1 {
                break;
            }
            stage.advance(Duration::from_millis(100));
        }
    };
    soon("one reader", fewer).await;
    assert_eq!(desk.most.load(SeqCst), 3);
    // The places of a host that stops go to the others.
    stage.ddl("ALTER WORK QUEUE jobs WITH MAX_QUEUE_READERS = 8").await;
    let all = async {
        while desk.now() != 8 {
            stage.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    };
    soon("two readers on each host", all).await;
    desk.let_go(20);
    for (host, worker) in hosts {
        soon("the end of a worker", worker.stop()).await;
        host.close().await.unwrap();
    }
});

#[cfg(unix)]
staged!(hosts, the_place_and_the_job_of_a_killed_process_go_to_another, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    broker
        .execute("CREATE WORK QUEUE jobs WITH MAX_QUEUE_READERS = 1, LEASE_MS = 2000, RETRY_DELAY_MS = 0")
        .await
        .unwrap();
    let command = ["work", "run", "jobs", "--activated", "--exec", "sleep", "--", "600"];
    let mut host = Host::start(database.url(), &command);
    push(&broker, 1).await;
    let taken = async { while broker.work_queues().await.unwrap()[0].taken == 0 {} };
    soon("the job in work in the other process", taken).await;
    push(&broker, 1).await;
    let desk = Desk::new();
    // More than two: where the server is slow, a lease may end before the job is reported, and the job is handled once more.
    desk.let_go(100);
    let worker = desk.activate(&broker, 1);
    let refused = async { while row(&worker).await.task_limit_reached_total == 0 {} };
    soon("a refusal", refused).await;
    assert_eq!(worker.done().completed, 0, "the other process has the only place");
    host.kill();
    until("both jobs, that of the killed process too", || worker.done().completed == 2).await;
    worker.stop().await;
    broker.close().await.unwrap();
});

#[cfg(unix)]
staged!(hosts, a_process_whose_type_has_no_jobs_leaves_the_places_to_others, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    broker.execute("CREATE WORK QUEUE jobs WITH MAX_QUEUE_READERS = 1").await.unwrap();
    broker.push_job(JOBS, &1).job_type("ours").await.unwrap();
    let command = ["work", "run", "jobs", "--activated", "--readers", "4", "--type", "theirs", "--exec", "cat"];
    let _host = Host::start(database.url(), &command);
    let text = format!("select count(*) as n from {}", store.view("dm_broker_activated_tasks"));
    let there = async { while broker.query(&*text, ()).await.unwrap().rows[0].get::<i64>("n").unwrap() == 0 {} };
    soon("the reader of the other process in the view", there).await;
    let desk = Desk::new();
    desk.let_go(1);
    let handling = desk.clone();
    let worker = broker.worker(JOBS, move |_, _| {
        let desk = handling.clone();
        async move { desk.gate.acquire().await.map(tokio::sync::SemaphorePermit::forget) }
    });
    let worker = worker.job_type("ours").activated().start();
    until("the job of our type", || worker.done().completed == 1).await;
    worker.stop().await;
    broker.close().await.unwrap();
});
