//! The load benchmark on a database server, against a table queue written by hand on the same server.
//!
//! Broker and rival run in turn (A B A B), in one process, over the same driver with the same durability; the median round
//! counts. The broker has one connection pool for all callers, the rival a connection for each.

mod cycle;
mod fixture;
mod idle;
mod old_snapshot;
pub(super) mod texts;
#[cfg(feature = "postgres")]
mod transactions;
#[cfg(feature = "postgres")]
mod work;

pub(crate) use fixture::check_unused;

use super::embedded::MANY;
use super::flow::{self, Bodies, Pace, Senders, Side, Watch};
use super::hostile;
use super::load::{Round, median};
use super::machine::Machine;
use super::report::{Measured, Report, ServerSettings, Settings, Slice};
use super::rival::table_queue::TableQueue;
use super::{Options, Progress, Workload};
use crate::cli::Interrupt;
use dialoq::internals::store::url::Durability;
use dialoq::{Broker, Error, Result};
use fixture::{Fixture, OldReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use texts::Server;

const INSERT: &str = "a plain INSERT per transaction, a connection per caller";
const DELETE: &str = "DELETE of the first unlocked row per transaction, a connection per caller";
const TABLE_QUEUE: &str = "both of them at once";

pub(super) async fn run(
    options: &Options,
    url: &str,
    is_in_use: bool,
    progress: impl Fn(Progress) + Send + Sync,
    interrupt: &Interrupt,
) -> Result<Option<Report>> {
    let server = Server::new(url)?;
    let opened = interrupt.unless_requested(async {
        let broker = Broker::open(url).await?;
        if !is_in_use {
            check_unused(url, "the bench").await?;
        }
        Ok::<_, Error>((broker, server.read(server.texts.settings).await?))
    });
    let Some((broker, facts)) = opened.await? else { return Ok(None) };
    let of_server = ServerSettings {
        server: facts.get("version")?,
        server_settings: facts.get("settings")?,
        callers: options.callers[0],
        load_seconds: options.load_length.as_secs_f64(),
    };
    let durability = match server.durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    let settings = Settings { server: Some(of_server), ..Settings::of(options, durability) };
    let mut report = Report::new(settings, Machine::detect(Path::new(".")));
    let fixture = Fixture::set(broker.clone(), MANY).await?;
    let measured = interrupt.unless_requested(measure(options, &server, &fixture, &mut report, progress)).await;
    // The objects are removed after a failure or a stop too; the caller gets that failure.
    let (left, dropped) = (fixture.leave().await, server.script(server.texts.drop_message).await);
    broker.close().await?;
    let is_measured = measured?.is_some();
    left.and(dropped)?;
    report.judge_server(server.is_postgres());
    Ok(is_measured.then_some(report))
}

async fn measure(
    options: &Options,
    server: &Server,
    fixture: &Fixture,
    report: &mut Report,
    progress: impl Fn(Progress) + Send + Sync,
) -> Result<()> {
    // Those that only send or only receive have one end; PostgreSQL takes 100 connections by default.
    let ends = match options.workloads.iter().all(|one| matches!(one, Workload::Send | Workload::Receive)) {
        true => 1,
        false => 2,
    };
    let rival = Arc::new(TableQueue::create(server, ends * options.callers[0]).await?);
    let bench = ServerBench { options, server, fixture, rival };
    let total = options.workloads.len();
    for (done, workload) in options.workloads.iter().enumerate() {
        progress(Progress { done, total, next: format!("{workload:?}").to_lowercase() });
        match workload {
            Workload::Send => bench.send(report).await?,
            Workload::Receive => bench.receive(report).await?,
            Workload::Both => bench.both(report).await?,
            Workload::Cycle => cycle::cycle(&bench, report).await?,
            Workload::WakeUp => idle::wake_up(options, server, fixture, report).await?,
            Workload::Hostile => bench.hostile(report).await?,
            Workload::Idle => idle::idle(options, server, fixture, report).await?,
            Workload::Load => bench.load(report).await?,
            Workload::OldSnapshot => old_snapshot::old_snapshot(&bench, report).await?,
            Workload::Depth => bench.depth(report).await?,
            #[cfg(feature = "postgres")]
            Workload::Tx => transactions::transactions(&bench, report).await?,
            #[cfg(feature = "postgres")]
            Workload::Work => work::work(options, server, fixture, report).await?,
            _ => {}
        }
    }
    progress(Progress { done: total, total, next: String::new() });
    Ok(())
}

/// Where the workloads run.
struct ServerBench<'a> {
    options: &'a Options,
    server: &'a Server,
    fixture: &'a Fixture,
    rival: Arc<TableQueue>,
}

impl ServerBench<'_> {
    fn bodies(&self) -> Bodies {
        Bodies::new(self.options.body_bytes)
    }

    /// More than a round can take.
    fn enough(&self) -> usize {
        (self.options.round_length.as_secs_f64() * 60_000.0) as usize
    }

    async fn send(&self, report: &mut Report) -> Result<()> {
        let (callers, length) = (self.options.callers[0], self.options.round_length);
        let (mut ours, mut rivals) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            self.clear().await?;
            ours.push(flow::send(&self.fixture.conversations, self.bodies(), callers, 1, length).await?);
            rivals.push(flow::send(&self.rival, self.bodies(), callers, 1, length).await?);
        }
        self.conclude(report, "send", ours, INSERT, rivals);
        self.clear().await
    }

    async fn receive(&self, report: &mut Report) -> Result<()> {
        let (callers, length) = (self.options.callers[0], self.options.round_length);
        let (mut ours, mut rivals) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            self.clear().await?;
            self.fixture.fill(self.bodies(), self.enough()).await?;
            self.rival.fill(self.bodies(), self.enough()).await?;
            ours.push(flow::receive(&self.fixture.conversations, callers, 1, length).await?);
            rivals.push(flow::receive(&self.rival, callers, 1, length).await?);
        }
        self.conclude(report, "receive", ours, DELETE, rivals);
        self.clear().await
    }

    async fn both(&self, report: &mut Report) -> Result<()> {
        let (mut ours, mut rivals) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            self.clear().await?;
            ours.push(self.through(&self.fixture.conversations, Pace::Closed, self.options.round_length).await?);
            rivals.push(self.through(&self.rival, Pace::Closed, self.options.round_length).await?);
        }
        self.conclude(report, "both", ours, TABLE_QUEUE, rivals);
        self.clear().await
    }

    async fn hostile(&self, report: &mut Report) -> Result<()> {
        let (conversations, rounds, length) =
            (&self.fixture.conversations, self.options.rounds, self.options.round_length);
        for kind in hostile::kinds() {
            self.clear().await?;
            let drain = async || self.fixture.drain().await;
            let broker = &self.fixture.subject.broker;
            let pair = hostile::send_beside(broker, conversations, &kind, self.bodies(), rounds, length, drain).await?;
            report.figures.push(pair.figure(&kind));
            for (workload, round) in pair.named(&kind) {
                report.results.push(self.measured(&workload, &round));
            }
        }
        self.clear().await
    }

    async fn through<S: Side>(&self, side: &Arc<S>, pace: Pace, length: Duration) -> Result<Round> {
        let callers = self.options.callers[0];
        let senders = vec![Senders { side: side.clone(), callers, pace, bodies: self.bodies() }];
        flow::through(senders, side.clone(), callers, length, Watch::All).await
    }

    /// A constant load, in slices: an eighth of them before and after a reader that holds an old snapshot, the others with it.
    async fn load(&self, report: &mut Report) -> Result<()> {
        let both = report.results.iter().find(|row| row.workload == "both").map(|both| both.per_s);
        let per_s = match (self.options.load_per_s, both) {
            (Some(per_s), _) => per_s,
            (None, Some(most)) => most / 2.0,
            (None, None) => {
                let round = self.through(&self.fixture.conversations, Pace::Closed, self.options.round_length).await?;
                self.fixture.drain().await?;
                round.rate() / 2.0
            }
        };
        let eighth = (self.options.load_length.as_secs() / 40).clamp(1, 20) as usize;
        let slices = 8 * eighth;
        let length = self.options.load_length / slices as u32;
        let start = Instant::now();
        let mut reader = None;
        for slice in 0..slices {
            let holds = (eighth..7 * eighth).contains(&slice);
            if holds && reader.is_none() {
                reader = Some(OldReader::begin(self.server).await?);
            } else if !holds && let Some(reader) = reader.take() {
                reader.end().await?;
            }
            let round = self.through(&self.fixture.conversations, Pace::PerSecond(per_s), length).await?;
            let sizes = match self.server.read(self.server.texts.sizes).await {
                Ok(sizes) => Some(sizes),
                Err(error) if self.server.is_postgres() => return Err(error),
                // Relatives of SQL Server have no such views.
                Err(_) => None,
            };
            report.curve.push(Slice {
                at_seconds: start.elapsed().as_secs_f64(),
                reader_holds_snapshot: holds,
                per_s: round.rate(),
                p50_us: round.quantile_us(0.5),
                p99_us: round.quantile_us(0.99),
                mib: sizes.as_ref().and_then(|row| row.get::<i64>("bytes").ok()).map(|b| b as f64 / (1 << 20) as f64),
                dead_rows: sizes.as_ref().and_then(|row| row.get("dead_rows").ok()),
            });
        }
        if let Some(reader) = reader {
            reader.end().await?;
        }
        self.fixture.drain().await
    }

    /// Receiving a few messages at a time at a hundredth of the depth, then at all of it.
    async fn depth(&self, report: &mut Report) -> Result<()> {
        let deepest = self.options.largest;
        let per_round = 5000.min(deepest as u64 / 200).max(1);
        let mut filled = 0;
        for depth in [deepest / 100, deepest] {
            self.fixture.fill(self.bodies(), depth - filled).await?;
            filled = depth;
            let mut rounds = Vec::new();
            // Short rounds, so more of them.
            for _ in 0..self.options.rounds * 3 {
                rounds.push(super::embedded::some(&self.fixture.conversations, per_round).await?);
                self.fixture.fill(self.bodies(), per_round as usize).await?;
            }
            if let Some(round) = median(rounds) {
                report.results.push(self.measured(&format!("receive_at_{depth}"), &round));
            }
        }
        Ok(())
    }

    /// Both sides as they were at the beginning. A round that began on what others left would measure how much that was.
    async fn clear(&self) -> Result<()> {
        self.fixture.drain().await?;
        self.rival.empty().await?;
        self.clean().await
    }

    async fn clean(&self) -> Result<()> {
        self.server.script(self.server.texts.clean).await
    }

    fn measured(&self, workload: &str, round: &Round) -> Measured {
        Measured::new(workload, self.options.callers[0], 1, self.options.body_bytes, round)
    }

    fn conclude(&self, report: &mut Report, workload: &str, ours: Vec<Round>, rival: &'static str, rivals: Vec<Round>) {
        if let Some(round) = median(ours) {
            report.results.push(self.measured(workload, &round).beside_rival(rival, median(rivals).as_ref()));
        }
    }
}
