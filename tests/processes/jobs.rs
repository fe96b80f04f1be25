//! The jobs of each process until it is killed, and whether what became of them can be true.

use crate::servers::Store;
use crate::worker::{LENGTH, WAIT, is_of_a_lost_server, outlived, print};
use dialoq::work::Job;
use dialoq::{Act, Broker, Code, Error, Tx};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A lease that a stopped process outlives now and then.
const LEASE: Duration = Duration::from_secs(2);

/// The jobs that a round pushes.
const PUSHED: u64 = 25;

const QUEUES: [&str; 3] = ["plain", "strict", "keyed"];

pub(crate) const DEFINITIONS: &str = "
    CREATE WORK QUEUE [plain] WITH MAX_ATTEMPTS = 32767, RETRY_DELAY_MS = 0;
    CREATE WORK QUEUE [strict] WITH ORDER = FIFO_STRICT, MAX_ATTEMPTS = 32767, RETRY_DELAY_MS = 0;
    CREATE WORK QUEUE [keyed] WITH ORDER = PRIORITY, MAX_TAKEN_PER_KEY = 1, MAX_ATTEMPTS = 32767, RETRY_DELAY_MS = 0";

/// Jobs that are done, written by the commit that completes them: how many of its key were done before.
pub(crate) const TABLE: &str =
    "create table finished (body varchar(80) not null, job_key varchar(80) not null, place bigint not null)";

/// Pushes jobs of a key of its own into each queue, alone and in transactions, and works on as many, so that few are left in the end.
pub(crate) async fn push(broker: Broker, store: Store, name: String) -> Result<(), Error> {
    for round in 0_u64.. {
        outlived(push_round(&broker, &format!("{name}.{round}")).await)?;
        for turn in 0..PUSHED {
            work_once(&broker, store, round + turn).await?;
        }
    }
    Ok(())
}

async fn push_round(broker: &Broker, key: &str) -> Result<(), Error> {
    for number in 0..LENGTH {
        let bodies = QUEUES.map(|queue| (queue, format!("{queue} {key} {number}")));
        match number % 4 {
            0 => {
                let tx = broker.begin().await?;
                for (queue, body) in &bodies {
                    tx.push_job(*queue, body.as_str()).key(key).await?;
                }
                tx.rollback().await?;
            }
            1 => {
                bodies.iter().for_each(|(_, body)| print("pushes", body));
                let tx = broker.begin().await?;
                for (queue, body) in &bodies {
                    tx.push_job(*queue, body.as_str()).key(key).await?;
                }
                tx.commit().await?;
                bodies.iter().for_each(|(_, body)| print("pushed", body));
            }
            _ => {
                let (queue, body) = &bodies[number % 3];
                print("pushes", body);
                broker.push_job(*queue, body.as_str()).key(key).await?;
                print("pushed", body);
            }
        }
    }
    Ok(())
}

/// Works on jobs, held by a transaction or by a lease; now and then gives one back.
pub(crate) async fn work(broker: Broker, store: Store) -> Result<(), Error> {
    for round in 0_u64.. {
        work_once(&broker, store, round).await?;
    }
    Ok(())
}

async fn work_once(broker: &Broker, store: Store, round: u64) -> Result<(), Error> {
    match outlived(work_round(broker, store, round).await) {
        // Another process took the job over, or its transactions held the line of takes for long.
        Err(error) if is_of_another_holder(&error) => Ok(()),
        done => done,
    }
}

fn is_of_another_holder(error: &Error) -> bool {
    [Code::JOB_NOT_FOUND, Code::JOB_NOT_TAKEN, Code::LEASE_LOST, Code::JOB_LOCKED].contains(&error.code())
}

async fn work_round(broker: &Broker, store: Store, round: u64) -> Result<(), Error> {
    let queue = QUEUES[usize::try_from(round % 3).expect("small")];
    let body = match round % 2 {
        0 => {
            let tx = broker.begin().await?;
            let Some(job) = tx.take_jobs(queue).wait(WAIT).await?.pop() else { return Ok(()) };
            record(&tx, store, &job).await?;
            if round % 7 == 3 {
                return tx.rollback().await;
            }
            tx.commit().await?;
            text(&job)
        }
        _ => {
            let Some(job) = broker.take_jobs(queue).lease(LEASE).wait(WAIT).await?.pop() else { return Ok(()) };
            complete(broker, store, &job).await?;
            text(&job)
        }
    };
    print("did", &body);
    Ok(())
}

async fn complete(broker: &Broker, store: Store, job: &Job) -> Result<(), Error> {
    let tx = broker.begin().await?;
    record(&tx, store, job).await?;
    tx.complete_job(job).await?;
    tx.commit().await
}

fn text(job: &Job) -> String {
    String::from_utf8_lossy(job.body()).into_owned()
}

async fn record(tx: &Tx, store: Store, job: &Job) -> Result<(), Error> {
    let text_of_sql = "insert into finished (body, job_key, place)
        select cast(?1 as varchar(80)), cast(?2 as varchar(80)), count(*) from finished where job_key = cast(?2 as varchar(80))";
    let key = format!("{} {}", job.queue, job.key.as_deref().unwrap_or_default());
    tx.sql(store.sql(text_of_sql), (text(job), key)).await?;
    Ok(())
}

/// Does what is left, and gives all that is done: body, key and place.
pub(crate) async fn drain(
    broker: &Broker,
    store: Store,
    patience: Duration,
) -> Result<Vec<(String, String, i64)>, Error> {
    let [plain, strict, keyed] = QUEUES.map(|queue| drain_one(broker, store, queue, patience));
    tokio::try_join!(plain, strict, keyed)?;
    let rows = broker.query("select body, job_key, place from finished", ()).await?.rows;
    rows.iter().map(|row| Ok((row.get("body")?, row.get("job_key")?, row.get("place")?))).collect()
}

async fn drain_one(broker: &Broker, store: Store, queue: &str, patience: Duration) -> Result<(), Error> {
    loop {
        let taken = broker.take_jobs(queue).lease(LEASE).wait(patience).await;
        let done = match taken.map(|mut jobs| jobs.pop()) {
            Ok(None) => return Ok(()),
            Ok(Some(job)) => complete(broker, store, &job).await,
            Err(error) => Err(error),
        };
        match done {
            // A server may take a moment to see that a process is gone.
            Err(error) if !is_of_another_holder(&error) && !is_of_a_lost_server(&error) => return Err(error),
            _ => {}
        }
    }
}

/// What the processes have said of jobs.
#[derive(Default)]
pub(crate) struct JobLedger {
    /// Bodies whose PUSH was begun, answered or not.
    tried: BTreeSet<String>,
    pushed: BTreeSet<String>,
    done: BTreeSet<String>,
}

impl JobLedger {
    /// Enters a line of a process; whether it is one that counts as progress, `None` if it is of something else.
    pub(crate) fn record(&mut self, word: &str, body: &str) -> Option<bool> {
        let entered = match word {
            "pushes" => &mut self.tried,
            "pushed" => &mut self.pushed,
            "did" => &mut self.done,
            _ => return None,
        };
        entered.insert(body.to_owned());
        Some(word != "pushes")
    }

    pub(crate) fn summary(&self) -> String {
        format!("{} jobs pushed, {} done", self.pushed.len(), self.done.len())
    }

    pub(crate) fn check(&self, finished: &[(String, String, i64)]) {
        let mut in_table = BTreeSet::new();
        let doubled: Vec<_> = finished.iter().map(|(body, ..)| body).filter(|body| !in_table.insert(*body)).collect();
        assert!(doubled.is_empty(), "done twice: {doubled:?}");
        let undone: Vec<_> = self.done.iter().filter(|body| !in_table.contains(body)).collect();
        assert!(undone.is_empty(), "answered as done and undone: {undone:?}");
        let invented: Vec<_> = in_table.iter().filter(|body| !self.tried.contains(**body)).collect();
        assert!(invented.is_empty(), "done and never pushed: {invented:?}");
        let lost: Vec<_> = self.pushed.iter().filter(|body| !in_table.contains(body)).collect();
        assert!(lost.is_empty(), "answered as pushed and lost: {lost:?}");

        let mut strict: BTreeMap<&str, Vec<(i64, u64)>> = BTreeMap::new();
        for (body, key, place) in finished.iter().filter(|(_, key, _)| key.starts_with("strict ")) {
            let number = body.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number");
            strict.entry(key).or_default().push((*place, number));
        }
        for (key, jobs) in &mut strict {
            jobs.sort_unstable();
            let in_order = jobs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
            assert!(in_order, "the jobs of {key} were not done in their order: {jobs:?}");
        }
        assert!(strict.len() > 2 && self.pushed.len() > 50, "the processes did no jobs: {}", self.summary());
    }
}
