//! Work queues on PostgreSQL, beside a table queue by hand, River and graphile-worker.

use super::fixture::{Fixture, OldReader};
use super::texts::Server;
use crate::bench::Options;
use crate::bench::flow::{self, Bodies, Side};
use crate::bench::load::{Round, median};
use crate::bench::report::{Figure, Measured, Report};
use crate::bench::rival::job_tables::{Connections, JobTable, Kind};
use crate::bench::sql::postgres as texts;
use crate::bench::work::Jobs;
use dialoq::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const QUEUE: &str = "bench_jobs";
const BY_HAND: &str = "by hand, marked in two transactions";
const BY_HAND_IN_ONE: &str = "by hand, in one transaction";
const RIVER: &str = "River 0.43";
const GRAPHILE: &str = "graphile-worker 0.17";

/// How many jobs a second no side reaches with so many callers: so many are waiting for each second of a round.
fn most_per_s(callers: usize) -> usize {
    if callers < 32 { 6_000 } else { 30_000 }
}

/// The sides, in the order of their turns.
struct Sides<'a> {
    options: &'a Options,
    server: &'a Server,
    connections: Arc<Connections>,
    ours: Arc<Jobs>,
    with_next: Arc<Jobs>,
    in_tx: Arc<Jobs>,
    enlisted: Arc<JobTable>,
    by_hand: Arc<JobTable>,
    by_hand_in_one: Arc<JobTable>,
    river: Arc<JobTable>,
    graphile: Arc<JobTable>,
}

/// The rounds of each side.
#[derive(Clone, Default)]
struct Rounds {
    ours: Vec<Round>,
    rivals: Vec<(&'static str, Vec<Round>)>,
}

impl Rounds {
    fn add(&mut self, rival: &'static str, round: Round) {
        match self.rivals.iter_mut().find(|(name, _)| *name == rival) {
            Some((_, rounds)) => rounds.push(round),
            None => self.rivals.push((rival, vec![round])),
        }
    }
}

/// Pushes; takes with completions; the same in the user's transaction; and takes from backlogs of three lengths.
pub(super) async fn work(options: &Options, server: &Server, fixture: &Fixture, report: &mut Report) -> Result<()> {
    if !server.is_postgres() {
        return Ok(());
    }
    for script in [texts::JOB_HAND_CREATE, texts::JOB_RIVER_CREATE, texts::JOB_GRAPHILE_CREATE] {
        server.script(script).await?;
    }
    let broker = &fixture.subject.broker;
    let ours = Arc::new(Jobs::create(broker, QUEUE, "").await?);
    let connections = Connections::new(server);
    let table = |kind| Arc::new(JobTable::new(kind, &connections));
    let sides = Sides {
        options,
        server,
        connections: connections.clone(),
        with_next: Arc::new(ours.with_next()),
        in_tx: Arc::new(ours.in_tx(texts::JOB_RESULT)),
        enlisted: Arc::new(JobTable::enlisted(broker, &connections)),
        ours,
        by_hand: table(Kind::TwoTransactions),
        by_hand_in_one: table(Kind::OneTransaction),
        river: table(Kind::River),
        graphile: table(Kind::Graphile),
    };
    let measured = sides.measure(report).await;
    drop((sides, connections));
    let dropped = broker.execute(&format!("DROP WORK QUEUE {QUEUE}")).await;
    let removed = server.script(texts::JOB_DROP).await;
    measured.and(dropped).and(removed)
}

impl Sides<'_> {
    async fn measure(&self, report: &mut Report) -> Result<()> {
        let mut callers = self.options.callers.clone();
        if callers.len() == 1 {
            callers.extend([1, 8]);
            callers.sort_unstable();
            callers.dedup();
        }
        for callers in &callers {
            self.push(*callers, report).await?;
            self.take(*callers, report).await?;
            self.in_transactions(*callers, report).await?;
        }
        let callers = callers.last().copied().unwrap_or(1);
        self.depth(callers, report).await?;
        self.scheduled(callers, report).await?;
        self.old_snapshot(callers, report).await?;
        self.count_mistakes(report);
        Ok(())
    }

    fn bodies(&self) -> Bodies {
        Bodies::new(self.options.body_bytes)
    }

    fn length(&self) -> Duration {
        self.options.round_length
    }

    /// More jobs than a round can take.
    fn enough(&self, callers: usize) -> usize {
        (self.length().as_secs_f64() * most_per_s(callers) as f64) as usize + 1000
    }

    async fn empty(&self) -> Result<()> {
        self.ours.drain().await?;
        self.with_next.drain().await?;
        self.in_tx.drain().await?;
        for table in [&self.by_hand, &self.by_hand_in_one, &self.river, &self.graphile, &self.enlisted] {
            table.mistakes.forget_jobs();
        }
        self.server.script(texts::JOB_EMPTY).await
    }

    async fn clean(&self) -> Result<()> {
        self.server.script(texts::JOB_CLEAN).await?;
        self.server.script(texts::JOB_SETTLE).await
    }

    async fn push(&self, callers: usize, report: &mut Report) -> Result<()> {
        let mut rounds = Rounds::default();
        self.empty().await?;
        for _ in 0..self.options.rounds {
            self.clean().await?;
            rounds.ours.push(self.push_into(&self.ours, callers).await?);
            rounds.add(BY_HAND, self.push_into(&self.by_hand, callers).await?);
            rounds.add(RIVER, self.push_into(&self.river, callers).await?);
            rounds.add(GRAPHILE, self.push_into(&self.graphile, callers).await?);
        }
        self.conclude("push_job", callers, rounds, report);
        Ok(())
    }

    async fn push_into<S: Side>(&self, side: &Arc<S>, callers: usize) -> Result<Round> {
        flow::send(side, self.bodies(), callers, 1, self.length()).await
    }

    async fn take(&self, callers: usize, report: &mut Report) -> Result<()> {
        let (mut rounds, mut with_next) = (Rounds::default(), Vec::new());
        self.empty().await?;
        let mut left = [0; 4];
        for _ in 0..self.options.rounds {
            self.top_up(&self.ours, callers, &mut left[0]).await?;
            self.top_up(&self.by_hand, callers, &mut left[1]).await?;
            self.top_up(&self.river, callers, &mut left[2]).await?;
            self.top_up(&self.graphile, callers, &mut left[3]).await?;
            self.clean().await?;
            rounds.ours.push(self.take_from(&self.ours, callers, &mut left[0]).await?);
            rounds.add(BY_HAND, self.take_from(&self.by_hand, callers, &mut left[1]).await?);
            rounds.add(RIVER, self.take_from(&self.river, callers, &mut left[2]).await?);
            rounds.add(GRAPHILE, self.take_from(&self.graphile, callers, &mut left[3]).await?);
            self.top_up(&self.ours, callers, &mut left[0]).await?;
            with_next.push(self.take_from(&self.with_next, callers, &mut left[0]).await?);
            self.with_next.put_down().await?;
        }
        self.conclude("complete_and_take", callers, Rounds { ours: with_next, ..rounds.clone() }, report);
        self.conclude("take_and_complete", callers, rounds, report);
        Ok(())
    }

    async fn in_transactions(&self, callers: usize, report: &mut Report) -> Result<()> {
        let (mut rounds, mut enlisted) = (Rounds::default(), Rounds::default());
        self.empty().await?;
        let mut left = [0; 2];
        for _ in 0..self.options.rounds {
            self.top_up(&self.in_tx, callers, &mut left[0]).await?;
            self.top_up(&self.by_hand_in_one, callers, &mut left[1]).await?;
            self.clean().await?;
            rounds.ours.push(self.take_from(&self.in_tx, callers, &mut left[0]).await?);
            rounds.add(BY_HAND_IN_ONE, self.take_from(&self.by_hand_in_one, callers, &mut left[1]).await?);
            self.top_up(&self.in_tx, callers, &mut left[0]).await?;
            self.top_up(&self.by_hand_in_one, callers, &mut left[1]).await?;
            enlisted.ours.push(self.take_from(&self.enlisted, callers, &mut left[0]).await?);
            enlisted.add(BY_HAND_IN_ONE, self.take_from(&self.by_hand_in_one, callers, &mut left[1]).await?);
        }
        self.conclude("take_in_enlisted_tx", callers, enlisted, report);
        self.conclude("take_in_tx", callers, rounds, report);
        Ok(())
    }

    /// Takes from a backlog of a hundredth of the largest, of a tenth, and of all of it.
    async fn depth(&self, callers: usize, report: &mut Report) -> Result<()> {
        self.empty().await?;
        let (mut ours, mut by_hand) = (0, 0);
        for depth in [self.options.largest / 100, self.options.largest / 10, self.options.largest] {
            let mut rounds = Rounds::default();
            for _ in 0..self.options.rounds {
                let wanted = depth + self.enough(callers) / 4;
                self.ours.fill_by(&self.connections, self.bodies(), wanted.saturating_sub(ours)).await?;
                self.by_hand.fill(self.bodies(), wanted.saturating_sub(by_hand)).await?;
                (ours, by_hand) = (ours.max(wanted), by_hand.max(wanted));
                self.clean().await?;
                let length = self.length() / 4;
                let round = flow::receive(&self.ours, callers, 1, length).await?;
                ours -= round.messages as usize;
                rounds.ours.push(round);
                let round = flow::receive(&self.by_hand, callers, 1, length).await?;
                by_hand -= round.messages as usize;
                rounds.add(BY_HAND, round);
            }
            self.conclude(&format!("take_and_complete_at_{depth}"), callers, rounds, report);
        }
        self.empty().await
    }

    /// Takes from a short backlog, alone and then beside ten times as many jobs as the largest has, which are due in a day.
    async fn scheduled(&self, callers: usize, report: &mut Report) -> Result<()> {
        for scheduled in [0, 10 * self.options.largest] {
            self.connections.fill(texts::JOB_FILL_LATER, &self.bodies().next(), scheduled).await?;
            let (mut rounds, mut left) = (Rounds::default(), [0; 2]);
            for _ in 0..self.options.rounds {
                self.top_up(&self.ours, callers, &mut left[0]).await?;
                self.top_up(&self.by_hand, callers, &mut left[1]).await?;
                self.clean().await?;
                rounds.ours.push(self.take_from(&self.ours, callers, &mut left[0]).await?);
                rounds.add(BY_HAND, self.take_from(&self.by_hand, callers, &mut left[1]).await?);
            }
            self.conclude(&format!("take_and_complete_beside_{scheduled}"), callers, rounds, report);
            self.empty().await?;
        }
        Ok(())
    }

    /// Takes from a short backlog before and after a third of the load in which a reader holds an old snapshot: the server removes
    /// nothing of what was taken since.
    async fn old_snapshot(&self, callers: usize, report: &mut Report) -> Result<()> {
        let mut left = [0; 2];
        self.clean().await?;
        let mut before = Rounds::default();
        for _ in 0..self.options.rounds {
            self.take_in_turn(callers, &mut left, &mut before).await?;
        }
        self.conclude("take_and_complete_before_an_old_snapshot", callers, before, report);
        let reader = OldReader::begin(self.server).await?;
        let until = Instant::now() + self.options.load_length / 3;
        let mut under = Rounds::default();
        while Instant::now() < until {
            under = Rounds::default();
            for _ in 0..self.options.rounds {
                self.take_in_turn(callers, &mut left, &mut under).await?;
            }
        }
        self.conclude("take_and_complete_under_an_old_snapshot", callers, under, report);
        reader.end().await?;
        self.empty().await
    }

    async fn take_in_turn(&self, callers: usize, left: &mut [usize; 2], rounds: &mut Rounds) -> Result<()> {
        self.top_up(&self.ours, callers, &mut left[0]).await?;
        self.top_up(&self.by_hand, callers, &mut left[1]).await?;
        rounds.ours.push(self.take_from(&self.ours, callers, &mut left[0]).await?);
        rounds.add(BY_HAND, self.take_from(&self.by_hand, callers, &mut left[1]).await?);
        Ok(())
    }

    async fn top_up<S: Fill>(&self, side: &Arc<S>, callers: usize, left: &mut usize) -> Result<()> {
        let enough = self.enough(callers);
        side.fill_by(&self.connections, self.bodies(), enough.saturating_sub(*left)).await?;
        *left = enough.max(*left);
        Ok(())
    }

    async fn take_from<S: Side>(&self, side: &Arc<S>, callers: usize, left: &mut usize) -> Result<Round> {
        let round = flow::receive(side, callers, 1, self.length()).await?;
        *left = left.saturating_sub(round.messages as usize);
        Ok(round)
    }

    fn conclude(&self, workload: &str, callers: usize, rounds: Rounds, report: &mut Report) {
        let Some(ours) = median(rounds.ours) else { return };
        let name = format!("{workload}, {callers}");
        for (rival, rounds) in rounds.rivals {
            let row = Measured::new(&name, callers, 1, self.options.body_bytes, &ours);
            report.results.push(row.beside_rival(rival, median(rounds).as_ref()));
        }
    }

    fn count_mistakes(&self, report: &mut Report) {
        let mut note = |name: &str, value: u64, unit| {
            report.figures.push(Figure { name: name.to_owned(), value: value as f64, unit });
        };
        // A second hand-out ends the bench with an error.
        note("jobs of Dialoq handed out twice", 0, "jobs");
        note(
            "empty answers of Dialoq while jobs were ready",
            self.ours.empties() + self.with_next.empties() + self.in_tx.empties(),
            "answers",
        );
        for (name, table) in [
            ("Dialoq in the user's own transaction", &self.enlisted),
            (BY_HAND, &self.by_hand),
            (BY_HAND_IN_ONE, &self.by_hand_in_one),
            (RIVER, &self.river),
            (GRAPHILE, &self.graphile),
        ] {
            note(&format!("{name}: jobs handed out twice"), table.mistakes.duplicates.load(Relaxed), "jobs");
            let empties = table.mistakes.empties.load(Relaxed);
            note(&format!("{name}: empty answers while jobs were pending"), empties, "answers");
        }
    }
}

/// A side whose backlog is filled in by the server.
trait Fill {
    async fn fill_by(&self, connections: &Connections, bodies: Bodies, count: usize) -> Result<()>;
}

impl Fill for Jobs {
    async fn fill_by(&self, connections: &Connections, bodies: Bodies, count: usize) -> Result<()> {
        connections.fill(texts::JOB_FILL, &bodies.next(), count).await
    }
}

impl Fill for JobTable {
    async fn fill_by(&self, _: &Connections, bodies: Bodies, count: usize) -> Result<()> {
        self.fill(bodies, count).await
    }
}
