//! `dialoq bench work`: the taking techniques and the orders of work queues side by side.
//!
//! Each cell has as many readers as writers on a backlog of a given depth. The techniques of a cell run in turn, round after
//! round, on the same queue, which is altered between them; the median round counts. On a server the callers are spread over
//! several brokers, as over hosts: callers of one broker leave together in batches and meet no lock of each other.

use super::embedded::Scratch;
use super::flow::Bodies;
use super::load::{Part, Round, gather, new_histogram};
use super::machine::Machine;
use super::report::{Report, ServerSettings, Settings};
use super::server::check_unused;
use super::server::texts::Server;
use super::{Options, Progress, Site};
use crate::cli::Interrupt;
use dialoq::act::Perform;
use dialoq::internals::store::url::{Durability, StoreUrl};
use dialoq::protocol::Verb;
use dialoq::protocol::definition::{TakingTechnique, WorkOrder};
use dialoq::protocol::work::{Due, Push, WorkVerb};
use dialoq::{Act, Broker, Result};
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The queue of the bench; it is dropped at the end.
const QUEUE: &str = "bench_techniques";
/// Jobs of a take with more than one.
const BATCH: u32 = 100;
/// Brokers that the callers of a server are spread over.
const HOSTS: usize = 4;
/// Keys of the jobs of a strict queue: each is a line of its own.
const KEYS: u64 = 997;
/// Jobs that are pushed in one unit where nothing is measured.
const UNIT: usize = 1000;

/// A cell: the median round of a technique.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Technique {
    /// The order of the queue.
    pub order: &'static str,
    /// Its `TAKE_BY`.
    pub take_by: &'static str,
    /// Jobs that wait.
    pub depth: usize,
    /// Readers, and as many writers.
    pub callers: usize,
    /// Jobs of a take at most.
    pub batch: u32,
    /// Jobs taken and completed a second.
    pub take_per_s: f64,
    /// From the take to the answer of the completion, in microseconds.
    pub take_p50_us: f64,
    /// Likewise.
    pub take_p99_us: f64,
    /// Jobs pushed a second meanwhile.
    pub push_per_s: f64,
    /// Of a push, in microseconds.
    pub push_p50_us: f64,
    /// Likewise.
    pub push_p99_us: f64,
    /// The slowest and the quickest round, jobs taken a second.
    pub take_per_s_range: [f64; 2],
    /// Jobs handed out twice in all rounds; must be 0.
    pub duplicates: u64,
    /// Empty answers while work was pending, in all rounds; must be 0.
    pub empties: u64,
}

/// Measures; `None` if a stop was requested.
///
/// # Errors
/// 60026 the database is in use; whatever a store raises.
pub(crate) async fn run_work(
    options: &Options,
    progress: impl Fn(Progress) + Send + Sync,
    interrupt: &Interrupt,
) -> Result<Option<Report>> {
    options.check()?;
    let mut settings = Settings::of(options, durability(options)?);
    let (hosts, scratch, techniques) = match &options.site {
        Site::Folder { path, synced } => {
            let scratch = Scratch::create(path)?;
            let file = scratch.path.join("work.db");
            let durability = if *synced { "full" } else { "normal" };
            let url = format!("sqlite:{}?durability={durability}", file.display());
            (vec![Broker::open(&url).await?], Some(scratch), vec![TakingTechnique::Default])
        }
        Site::Server { url, is_in_use } => {
            let mut hosts = vec![Broker::open(url).await?];
            if !is_in_use {
                check_unused(url, "the bench").await?;
            }
            let server = Server::new(url)?;
            let facts = server.read(server.texts.settings).await?;
            settings.server = Some(ServerSettings {
                server: facts.get("version")?,
                server_settings: facts.get("settings")?,
                callers: options.callers.iter().copied().max().unwrap_or(1),
                load_seconds: 0.0,
            });
            while hosts.len() < HOSTS {
                hosts.push(Broker::open(url).await?);
            }
            let named = TakingTechnique::ALL.into_iter().map(|(_, technique)| technique);
            (hosts, None, named.filter(|technique| *technique != TakingTechnique::Default).collect())
        }
    };
    let machine = Machine::detect(scratch.as_ref().map_or(Path::new("."), |scratch| &scratch.path));
    let mut report = Report::new(settings, machine);
    let bench = WorkBench { options, hosts, techniques };
    let measured = interrupt.unless_requested(bench.measure(&mut report, progress)).await;
    let dropped = bench.hosts[0].execute(&format!("DROP WORK QUEUE {QUEUE}")).await;
    for host in &bench.hosts {
        host.close().await?;
    }
    let is_measured = measured?.is_some();
    // A stop may come while there is no queue.
    if is_measured && let Err(error) = dropped {
        return Err(error);
    }
    Ok(is_measured.then_some(report))
}

fn durability(options: &Options) -> Result<&'static str> {
    let is_full = match &options.site {
        Site::Folder { synced, .. } => *synced,
        Site::Server { url, .. } => {
            StoreUrl::parse(url)?.server().is_none_or(|server| server.common.durability == Durability::Full)
        }
    };
    Ok(if is_full { "full" } else { "normal" })
}

struct WorkBench<'a> {
    options: &'a Options,
    hosts: Vec<Broker>,
    techniques: Vec<TakingTechnique>,
}

/// What the readers and writers of a round share.
struct Shared {
    order: WorkOrder,
    bodies: Bodies,
    next: AtomicU64,
    /// Jobs whose push was answered, and those of the backlog.
    pushed: AtomicI64,
    /// Jobs whose take was answered.
    taken: AtomicI64,
    /// Jobs that takes under way ask for.
    asked: AtomicI64,
    seen: Mutex<HashSet<u64>>,
    duplicates: AtomicU64,
    empties: AtomicU64,
}

impl Shared {
    fn push(&self) -> Push {
        let number = self.next.fetch_add(1, Relaxed);
        Push {
            queue: QUEUE.into(),
            job_type: Arc::default(),
            key: (self.order == WorkOrder::FifoStrict).then(|| format!("key {}", number % KEYS).into()),
            level: (1 + number % 10) as u8,
            due: Due::Now,
            unique: None,
            body: Some(Arc::new(self.bodies.next())),
            pushed_by: "bench".into(),
        }
    }
}

/// The rounds of a technique in a cell.
#[derive(Default)]
struct Rounds {
    takes: Vec<Round>,
    pushes: Vec<Round>,
    duplicates: u64,
    empties: u64,
}

impl WorkBench<'_> {
    async fn measure(&self, report: &mut Report, progress: impl Fn(Progress)) -> Result<()> {
        let mut depths: Vec<usize> = [100, 10, 1].map(|part| (self.options.largest / part).max(100)).to_vec();
        depths.dedup();
        let middle = depths[depths.len() / 2];
        let total = WorkOrder::ALL.len() * depths.len() * self.options.callers.len();
        let mut done = 0;
        for (word, order) in WorkOrder::ALL {
            let broker = &self.hosts[0];
            broker.execute(&format!("CREATE WORK QUEUE {QUEUE} WITH ORDER = {word}")).await?;
            for depth in depths.iter().copied() {
                for callers in &self.options.callers {
                    progress(Progress {
                        done,
                        total,
                        next: format!("{word}, {depth} jobs, {callers} readers and writers"),
                    });
                    self.cell(order, depth, *callers, 1, report).await?;
                    if order == WorkOrder::Fifo && depth == middle {
                        self.cell(order, depth, *callers, BATCH, report).await?;
                    }
                    done += 1;
                }
            }
            if order != WorkOrder::ALL[WorkOrder::ALL.len() - 1].1 {
                broker.execute(&format!("DROP WORK QUEUE {QUEUE}")).await?;
            }
        }
        progress(Progress { done: total, total, next: String::new() });
        Ok(())
    }

    /// All techniques in turn.
    async fn cell(
        &self,
        order: WorkOrder,
        depth: usize,
        callers: usize,
        batch: u32,
        report: &mut Report,
    ) -> Result<()> {
        // Takes of a strict queue are the same by every technique.
        let techniques = match order {
            WorkOrder::FifoStrict => &[TakingTechnique::Default][..],
            _ => &self.techniques,
        };
        let mut all: Vec<Rounds> = techniques.iter().map(|_| Rounds::default()).collect();
        for turn in 0..self.options.rounds {
            for place in 0..techniques.len() {
                // Each technique is the first one sometimes.
                let place = (place + turn) % techniques.len();
                let (technique, rounds) = (techniques[place], &mut all[place]);
                let alter = format!("ALTER WORK QUEUE {QUEUE} WITH TAKE_BY = {}", technique.word());
                self.hosts[0].execute(&alter).await?;
                self.level(order, depth).await?;
                self.round(order, depth, callers, batch, rounds).await?;
            }
        }
        for (technique, rounds) in techniques.iter().zip(all) {
            report.techniques.extend(conclude(order, *technique, depth, callers, batch, rounds));
        }
        Ok(())
    }

    /// Brings the backlog to its depth.
    async fn level(&self, order: WorkOrder, depth: usize) -> Result<()> {
        let broker = &self.hosts[0];
        let queues = broker.work_queues().await?;
        let found: u64 = queues.iter().filter(|queue| queue.name == QUEUE).map(|queue| queue.ready).sum();
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        let shared = self.shared(order, found);
        let mut missing = depth.saturating_sub(found);
        while missing > 0 {
            let some = missing.min(UNIT);
            let unit = (0..some).map(|_| Verb::Work(WorkVerb::Push(Box::new(shared.push())))).collect();
            broker.submit(unit).await?;
            missing -= some;
        }
        let mut excess = found.saturating_sub(depth);
        while excess > 0 {
            let jobs = broker.take_jobs(QUEUE).count(excess.min(10_000) as u32).pop().await?;
            if jobs.is_empty() {
                break;
            }
            excess -= jobs.len().min(excess);
        }
        Ok(())
    }

    fn shared(&self, order: WorkOrder, depth: usize) -> Shared {
        let (next, taken, asked, seen, duplicates, empties) = Default::default();
        let (bodies, pushed) = (Bodies::new(self.options.body_bytes), AtomicI64::new(depth as i64));
        Shared { order, bodies, next, pushed, taken, asked, seen, duplicates, empties }
    }

    async fn round(
        &self,
        order: WorkOrder,
        depth: usize,
        callers: usize,
        batch: u32,
        rounds: &mut Rounds,
    ) -> Result<()> {
        let shared = Arc::new(self.shared(order, depth));
        let (start, length) = (Instant::now(), self.options.round_length);
        let (mut readers, mut writers) = (JoinSet::new(), JoinSet::new());
        for place in 0..callers {
            let host = &self.hosts[place % self.hosts.len()];
            readers.spawn(read(host.clone(), shared.clone(), batch, start, length));
            writers.spawn(write(host.clone(), shared.clone(), batch, start, length));
        }
        let (taken, pushed) = tokio::join!(gather(readers, start), gather(writers, start));
        rounds.takes.push(taken?);
        rounds.pushes.push(pushed?);
        rounds.duplicates += shared.duplicates.load(Relaxed);
        rounds.empties += shared.empties.load(Relaxed);
        Ok(())
    }
}

/// Takes and completes.
async fn read(broker: Broker, shared: Arc<Shared>, batch: u32, start: Instant, length: Duration) -> Result<Part> {
    let (mut messages, mut latency) = (0, new_histogram());
    while start.elapsed() < length {
        let before = Instant::now();
        let pushed = shared.pushed.load(SeqCst);
        shared.asked.fetch_add(batch.into(), SeqCst);
        let jobs = broker.take_jobs(QUEUE).count(batch).await?;
        shared.taken.fetch_add(jobs.len() as i64, SeqCst);
        shared.asked.fetch_sub(batch.into(), SeqCst);
        // Work was pending for sure if more was there before than all others have got, or are getting.
        if jobs.is_empty() && pushed - shared.asked.load(SeqCst) - shared.taken.load(SeqCst) > 0 {
            shared.empties.fetch_add(1, Relaxed);
        }
        {
            let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let twice = jobs.iter().filter(|job| !seen.insert(job.taken.job.0)).count();
            shared.duplicates.fetch_add(twice as u64, Relaxed);
        }
        match &jobs[..] {
            [] => {
                // A caller that gets nothing polls again.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            [job] => broker.complete_job(job).await?,
            _ => {
                let done = |job: &dialoq::work::Job| Verb::Work(WorkVerb::Complete { taken: job.taken, result: None });
                broker.submit(jobs.iter().map(done).collect()).await.map(drop)?;
            }
        }
        messages += jobs.len() as u64;
        latency.saturating_record(before.elapsed().as_nanos() as u64);
    }
    Ok(Part { messages, latency, ended: Instant::now() })
}

/// Pushes as many jobs in a unit as a take asks for.
async fn write(broker: Broker, shared: Arc<Shared>, batch: u32, start: Instant, length: Duration) -> Result<Part> {
    let (mut messages, mut latency) = (0, new_histogram());
    while start.elapsed() < length {
        let before = Instant::now();
        if batch == 1 {
            broker.perform(Verb::Work(WorkVerb::Push(Box::new(shared.push())))).await?;
        } else {
            let unit = (0..batch).map(|_| Verb::Work(WorkVerb::Push(Box::new(shared.push())))).collect();
            broker.submit(unit).await?;
        }
        shared.pushed.fetch_add(batch.into(), SeqCst);
        messages += u64::from(batch);
        latency.saturating_record(before.elapsed().as_nanos() as u64);
    }
    Ok(Part { messages, latency, ended: Instant::now() })
}

/// The round in the middle, by the rate of takes.
fn conclude(
    order: WorkOrder,
    technique: TakingTechnique,
    depth: usize,
    callers: usize,
    batch: u32,
    rounds: Rounds,
) -> Option<Technique> {
    let Rounds { takes, pushes, duplicates, empties } = rounds;
    let mut pairs: Vec<(Round, Round)> = takes.into_iter().zip(pushes).collect();
    pairs.sort_by(|(a, _), (b, _)| a.rate().total_cmp(&b.rate()));
    let range = [pairs.first()?.0.rate(), pairs.last()?.0.rate()];
    let (take, push) = &pairs[pairs.len() / 2];
    Some(Technique {
        order: order.word(),
        take_by: technique.word(),
        depth,
        callers,
        batch,
        take_per_s: take.rate(),
        take_p50_us: take.quantile_us(0.5),
        take_p99_us: take.quantile_us(0.99),
        push_per_s: push.rate(),
        push_p50_us: push.quantile_us(0.5),
        push_p99_us: push.quantile_us(0.99),
        take_per_s_range: range,
        duplicates,
        empties,
    })
}
