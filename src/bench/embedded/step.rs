//! The steps of a run: which workload, against which limit, in which order.

use super::{jobs, sizes};
use crate::bench::cycle::Cycle;
use crate::bench::flow::{self, Bodies, Pace, Senders, Side, Watch};
use crate::bench::load::{self, Round, median};
use crate::bench::report::{Measured, Report};
use crate::bench::rival::log::{Keep, Log};
use crate::bench::rival::sqlite::Rival;
use crate::bench::sql::sqlite as texts;
use crate::bench::subject::{Style, Subject};
use crate::bench::work::Jobs;
use crate::bench::{Options, Workload};
use dialoq::Result;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// How many conversations "many" are.
pub(in crate::bench) const MANY: usize = 1000;
const PER_TRANSACTION: usize = 100;
const BATCH_CALLERS: usize = 8;

/// One step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Step {
    Backlog,
    Conversations,
    Send { callers: usize },
    Receive { callers: usize, conversations: usize, style: Style },
    Both { callers: usize },
    OwnSql { callers: usize },
    Window,
    SendBatch,
    ReceiveBatch,
    Cycle { callers: usize, style: Style },
    Depth,
    Flood,
    Hostile,
    Work { callers: usize, has_history: bool },
    JobWindow,
    JobBacklog,
    JobSchedule,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backlog => write!(f, "memory of a backlog"),
            Self::Conversations => write!(f, "memory of open conversations"),
            Self::Send { callers } => write!(f, "send, {callers} callers"),
            Self::Receive { callers, conversations, style } => {
                write!(f, "receive {style}, {callers} callers, {conversations} conversations")
            }
            Self::Both { callers } => write!(f, "send and receive, {callers}+{callers} callers"),
            Self::OwnSql { callers } => write!(f, "receive and one INSERT in a Tx, {callers} callers"),
            Self::Window => write!(f, "one consumer of a stream"),
            Self::SendBatch => write!(f, "send, {PER_TRANSACTION} per transaction"),
            Self::ReceiveBatch => write!(f, "receive, {PER_TRANSACTION} per transaction"),
            Self::Cycle { callers, style } => write!(f, "dialog cycle {style}, {callers} callers"),
            Self::Depth => write!(f, "receive from deep queues"),
            Self::Flood => write!(f, "the high class under a flood of low"),
            Self::Hostile => write!(f, "send beside hostile bodies"),
            Self::JobWindow => write!(f, "one worker"),
            Self::JobBacklog => write!(f, "jobs from long backlogs"),
            Self::JobSchedule => write!(f, "jobs beside scheduled ones"),
            Self::Work { callers, has_history } => {
                write!(f, "work queue {} history, {callers} callers", if *has_history { "with" } else { "without" })
            }
        }
    }
}

/// The steps of these options, in order.
pub(in crate::bench) fn plan(options: &Options) -> Vec<Step> {
    let mut plan = Vec::new();
    let all = options.callers.iter().copied();
    for workload in &options.workloads {
        match workload {
            Workload::Backlog => plan.push(Step::Backlog),
            Workload::Conversations => plan.push(Step::Conversations),
            Workload::Send => plan.extend(all.clone().map(|callers| Step::Send { callers })),
            Workload::Receive => {
                let receive = |callers, conversations, style| Step::Receive { callers, conversations, style };
                plan.extend(all.clone().map(|callers| receive(callers, MANY, Style::AtOnce)));
                plan.push(receive(64, MANY, Style::InTx));
                plan.push(receive(64, 8, Style::AtOnce));
                plan.push(receive(64, 8, Style::InTx));
            }
            Workload::Both => {
                plan.extend(all.clone().filter(|callers| *callers > 1).map(|callers| Step::Both { callers }))
            }
            Workload::Batch => plan.extend([Step::SendBatch, Step::ReceiveBatch]),
            Workload::Cycle => {
                plan.extend([Style::AtOnce, Style::InTx].map(|style| Step::Cycle { callers: 64, style }));
            }
            Workload::Depth => plan.push(Step::Depth),
            Workload::Flood => plan.push(Step::Flood),
            Workload::Hostile => plan.push(Step::Hostile),
            Workload::Work => {
                let step = |(has_history, callers)| Step::Work { callers, has_history };
                plan.extend([true, false].into_iter().flat_map(|kept| all.clone().map(move |n| (kept, n))).map(step));
                plan.extend([Step::JobWindow, Step::JobBacklog, Step::JobSchedule]);
            }
            Workload::Tx => {
                plan.extend(all.clone().map(|callers| Step::OwnSql { callers }));
                plan.push(Step::Window);
            }
            // Not on an embedded store.
            Workload::WakeUp | Workload::Idle | Workload::Load | Workload::OldSnapshot => {}
        }
    }
    plan
}

/// Takes one step, in a folder of its own.
pub(in crate::bench) async fn take(step: Step, at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    match step {
        Step::Backlog => sizes::backlog(at, report).await,
        Step::Conversations => sizes::conversations(at, report).await,
        Step::Send { callers } => at.send(callers, report).await,
        Step::Receive { callers, conversations, style } => at.receive(callers, conversations, style, report).await,
        Step::Both { callers } => at.both(callers, report).await,
        Step::OwnSql { callers } => at.own_sql(callers, report).await,
        Step::Window => super::window::measure(at, report).await,
        Step::SendBatch => at.send_batch(report).await,
        Step::ReceiveBatch => at.receive_batch(report).await,
        Step::Cycle { callers, style } => at.cycle(callers, style, report).await,
        Step::Depth => sizes::depth(at, report).await,
        Step::Flood => super::flood::measure(at, report).await,
        Step::Hostile => crate::bench::hostile::measure(at, report).await,
        Step::JobWindow => jobs::window(at, report).await,
        Step::JobBacklog => jobs::backlog(at, report).await,
        Step::JobSchedule => jobs::schedule(at, report).await,
        Step::Work { callers, has_history } => at.work(callers, has_history, report).await,
    }
}

/// Where a step is taken, and how.
pub(in crate::bench) struct StepSetting<'a> {
    pub(in crate::bench) options: &'a Options,
    pub(in crate::bench) folder: &'a Path,
    pub(in crate::bench) synced: bool,
}

impl StepSetting<'_> {
    fn log(&self, takable: bool) -> Result<Arc<Log>> {
        let keep = Keep { synced: self.synced, takable, in_place: false };
        Log::create(&self.folder.join("bare.log"), keep).map(Arc::new)
    }

    fn log_in_place(&self) -> Result<Arc<Log>> {
        let keep = Keep { synced: self.synced, takable: false, in_place: true };
        Log::create(&self.folder.join("in_place.log"), keep).map(Arc::new)
    }

    fn rival(&self) -> Result<Rival> {
        Rival::create(&self.folder.join("bare.db"), self.synced)
    }

    pub(in crate::bench) async fn subject(&self) -> Result<Subject> {
        Subject::open(self.folder, self.synced).await
    }

    pub(in crate::bench) fn bodies(&self) -> Bodies {
        Bodies::new(self.options.body_bytes)
    }

    fn measured(&self, workload: &str, callers: usize, batch: usize, store: &Round) -> Measured {
        Measured::new(workload, callers, batch, self.options.body_bytes, store)
    }

    async fn send(&self, callers: usize, report: &mut Report) -> Result<()> {
        let (subject, log, bodies) = (self.subject().await?, self.log(false)?, self.bodies());
        let store = Arc::new(subject.conversations(MANY, Style::AtOnce).await?);
        let in_place = self.log_in_place()?;
        let rival = if callers == 1 { Some(self.rival()?) } else { None };
        let length = self.options.round_length;
        let (mut stores, mut logs, mut rivals) = (Vec::new(), Vec::new(), Vec::new());
        let mut in_places = Vec::new();
        for _ in 0..self.options.rounds {
            stores.push(flow::send(&store, bodies, callers, 1, length).await?);
            logs.push(flow::send(&log, bodies, callers, 1, length).await?);
            in_places.push(flow::send(&in_place, bodies, callers, 1, length).await?);
            if let Some(rival) = &rival {
                rivals.push(rival.insert(self.options.body_bytes, length).await?);
            }
        }
        self.conclude("send", callers, 1, stores, logs, rivals, report);
        self.conclude("log_in_place", callers, 1, in_places, Vec::new(), Vec::new(), report);
        subject.close().await
    }

    async fn receive(&self, callers: usize, conversations: usize, style: Style, report: &mut Report) -> Result<()> {
        let (subject, log, bodies) = (self.subject().await?, self.log(true)?, self.bodies());
        let store = Arc::new(subject.conversations(conversations, style).await?);
        let rival = if callers == 1 { Some(self.rival()?) } else { None };
        // More than a round can take, so that time ends it; what is left stays for the next.
        let waiting = self.options.enough(if callers == 1 { 20_000 } else { 200_000 });
        let length = self.options.round_length;
        let (mut stores, mut logs, mut rivals) = (Vec::new(), Vec::new(), Vec::new());
        let (mut in_store, mut in_log) = (0, 0);
        for _ in 0..self.options.rounds {
            store.fill(bodies, waiting - in_store).await?;
            log.fill(bodies, waiting - in_log).await?;
            let taken = flow::receive(&store, callers, 1, length).await?;
            in_store = waiting - taken.messages as usize;
            stores.push(taken);
            let taken = flow::receive(&log, callers, 1, length).await?;
            in_log = waiting - taken.messages as usize;
            logs.push(taken);
            if let Some(rival) = &rival {
                rivals.push(rival.delete(self.options.body_bytes, waiting, length).await?);
            }
        }
        let mut workload = "receive".to_owned();
        if style == Style::InTx {
            workload.push_str("_in_tx");
        }
        if conversations != MANY {
            workload.push_str(&format!("_{conversations}_conversations"));
        }
        self.conclude(&workload, callers, 1, stores, logs, rivals, report);
        subject.close().await
    }

    async fn both(&self, callers: usize, report: &mut Report) -> Result<()> {
        let (subject, log, bodies) = (self.subject().await?, self.log(true)?, self.bodies());
        let store = Arc::new(subject.conversations(MANY, Style::AtOnce).await?);
        let length = self.options.round_length;
        let (mut stores, mut logs) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            stores.push(through(&store, bodies, callers, Pace::Closed, length).await?);
            subject.drain().await?;
            logs.push(through(&log, bodies, callers, Pace::Closed, length).await?);
            while !log.take(1000, false).await?.is_empty() {}
        }
        let half = median_rate(&stores) / 2.0;
        self.conclude("both", callers, 1, stores, logs, Vec::new(), report);
        if callers == 64 {
            let pace = Pace::PerSecond(half);
            let (mut stores, mut logs) = (Vec::new(), Vec::new());
            for _ in 0..self.options.rounds {
                stores.push(through(&store, bodies, callers, pace, length).await?);
                subject.drain().await?;
                logs.push(through(&log, bodies, callers, pace, length).await?);
                while !log.take(1000, false).await?.is_empty() {}
            }
            self.conclude("end_to_end", callers, 1, stores, logs, Vec::new(), report);
        }
        subject.close().await
    }

    /// A RECEIVE in a transaction, alone and with one INSERT of the user's own.
    async fn own_sql(&self, callers: usize, report: &mut Report) -> Result<()> {
        let (subject, bodies) = (self.subject().await?, self.bodies());
        subject.broker.sql(texts::TX_CREATE, ()).await?;
        let alone = Arc::new(subject.conversations(MANY, Style::InTx).await?);
        let noting = Arc::new(subject.conversations(MANY, Style::InTx).await?.with_note(texts::TX_ROW));
        let waiting = self.options.enough(if callers == 1 { 20_000 } else { 200_000 });
        let length = self.options.round_length;
        let (mut alones, mut notings) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            for (side, rounds) in [(&alone, &mut alones), (&noting, &mut notings)] {
                side.fill(bodies, waiting).await?;
                rounds.push(flow::receive(side, callers, 1, length).await?);
                subject.drain().await?;
            }
        }
        self.conclude("receive_in_tx_alone", callers, 1, alones, Vec::new(), Vec::new(), report);
        self.conclude("receive_in_tx_and_insert", callers, 1, notings, Vec::new(), Vec::new(), report);
        subject.close().await
    }

    async fn send_batch(&self, report: &mut Report) -> Result<()> {
        let (subject, log, bodies) = (self.subject().await?, self.log(false)?, self.bodies());
        let one = Arc::new(subject.conversations(MANY, Style::InTx).await?);
        let spread = Arc::new(subject.conversations(MANY, Style::InTx).await?.spread());
        let length = self.options.round_length;
        let (mut ones, mut spreads, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            ones.push(flow::send(&one, bodies, BATCH_CALLERS, PER_TRANSACTION, length).await?);
            logs.push(flow::send(&log, bodies, BATCH_CALLERS, PER_TRANSACTION, length).await?);
            // Callers would wait for each other's conversations, in a circle at last, so each takes its own.
            spreads.push(flow::send(&spread, bodies, 1, PER_TRANSACTION, length).await?);
        }
        self.conclude("send_100", BATCH_CALLERS, PER_TRANSACTION, ones, logs, Vec::new(), report);
        self.conclude("send_100_spread", 1, PER_TRANSACTION, spreads, Vec::new(), Vec::new(), report);
        subject.close().await
    }

    async fn receive_batch(&self, report: &mut Report) -> Result<()> {
        let (log, bodies) = (self.log(true)?, self.bodies());
        // As it was sent 100 per transaction; and scattered, each message between those of other conversations.
        let subject = self.subject().await?;
        let together = Arc::new(subject.conversations(MANY, Style::InTx).await?.in_runs(PER_TRANSACTION));
        let scattered = Arc::new(subject.conversations(MANY, Style::InTx).await?);
        let waiting = self.options.enough(300_000);
        let length = self.options.round_length;
        let (mut togethers, mut scattereds, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            together.fill(bodies, waiting).await?;
            togethers.push(flow::receive(&together, BATCH_CALLERS, PER_TRANSACTION, length).await?);
            subject.drain().await?;
            log.fill(bodies, waiting).await?;
            logs.push(flow::receive(&log, BATCH_CALLERS, PER_TRANSACTION, length).await?);
            while !log.take(1000, false).await?.is_empty() {}
            scattered.fill(bodies, waiting).await?;
            scattereds.push(flow::receive(&scattered, BATCH_CALLERS, PER_TRANSACTION, length).await?);
            subject.drain().await?;
        }
        self.conclude("receive_100", BATCH_CALLERS, PER_TRANSACTION, togethers, logs, Vec::new(), report);
        self.conclude(
            "receive_100_scattered",
            BATCH_CALLERS,
            PER_TRANSACTION,
            scattereds,
            Vec::new(),
            Vec::new(),
            report,
        );
        subject.close().await
    }

    async fn work(&self, callers: usize, has_history: bool, report: &mut Report) -> Result<()> {
        let (subject, bodies) = (self.subject().await?, self.bodies());
        let options = if has_history { "" } else { "WITH HISTORY = OFF" };
        let jobs = Arc::new(Jobs::create(&subject.broker, "bench_jobs", options).await?);
        let (writes, reads) = (self.log(false)?, self.log(true)?);
        let length = self.options.round_length;
        let waiting = self.options.enough(if callers == 1 { 20_000 } else { 200_000 });
        let (mut pushes, mut takes, mut boths) = (Vec::new(), Vec::new(), Vec::new());
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            pushes.push(flow::send(&jobs, bodies, callers, 1, length).await?);
            jobs.drain().await?;
            written.push(flow::send(&writes, bodies, callers, 1, length).await?);
            jobs.fill(bodies, waiting).await?;
            takes.push(flow::receive(&jobs, callers, 1, length).await?);
            jobs.drain().await?;
            reads.fill(bodies, waiting).await?;
            read.push(flow::receive(&reads, callers, 1, length).await?);
            while !reads.take(1000, false).await?.is_empty() {}
            if callers > 1 {
                boths.push(through(&jobs, bodies, callers, Pace::Closed, length).await?);
                jobs.drain().await?;
            }
        }
        let name = |what: &str| format!("{what}{}", if has_history { "_history" } else { "" });
        self.conclude(&name("push_job"), callers, 1, pushes, written, Vec::new(), report);
        self.conclude(&name("take_and_complete"), callers, 1, takes, read, Vec::new(), report);
        self.conclude(&name("work_both"), callers, 1, boths, Vec::new(), Vec::new(), report);
        subject.close().await
    }

    async fn cycle(&self, callers: usize, style: Style, report: &mut Report) -> Result<()> {
        let (subject, bodies) = (self.subject().await?, self.bodies());
        let mut rounds = Vec::new();
        for _ in 0..self.options.rounds {
            let cycles = (0..callers).map(|_| Cycle::new(&subject, style, bodies));
            rounds.push(load::run(cycles, self.options.round_length).await?);
        }
        let workload = if style == Style::InTx { "dialog_cycle_in_tx" } else { "dialog_cycle" };
        self.conclude(workload, callers, 1, rounds, Vec::new(), Vec::new(), report);
        subject.close().await
    }

    #[allow(clippy::too_many_arguments, reason = "three lists of rounds and what they are called")]
    pub(super) fn conclude(
        &self,
        workload: &str,
        callers: usize,
        batch: usize,
        stores: Vec<Round>,
        logs: Vec<Round>,
        rivals: Vec<Round>,
        report: &mut Report,
    ) {
        if let Some(store) = median(stores) {
            let row = self.measured(workload, callers, batch, &store);
            report.results.push(row.with_log(median(logs).as_ref()).with_rival(median(rivals).as_ref()));
        }
    }
}

async fn through<S: flow::Side>(
    side: &Arc<S>,
    bodies: Bodies,
    callers: usize,
    pace: Pace,
    length: std::time::Duration,
) -> Result<Round> {
    let senders = vec![Senders { side: side.clone(), callers, pace, bodies }];
    flow::through(senders, side.clone(), callers, length, Watch::All).await
}

fn median_rate(rounds: &[Round]) -> f64 {
    let mut rates: Vec<f64> = rounds.iter().map(Round::rate).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
