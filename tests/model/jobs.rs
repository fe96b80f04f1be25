//! Random jobs against a store and, step by step, against the pure core with its rows in memory: every answer, and after
//! every step every job, must be the same.

use crate::run::{open, same};
use crate::servers::{Database, Store};
use dialoq::act::Perform;
use dialoq::internals::core::{Limits, Memory, Savepoint, Session};
use dialoq::protocol::definition::{Missed, WorkNumber, WorkOption, WorkOrder, WorkScheduleOptions, WorkSettings};
use dialoq::protocol::work::{AfterFailure, Due, Hold, JobState, Push, Take, TakeFrom, TakenJob, Unique, WorkVerb};
use dialoq::protocol::{Outcome, Verb, definition::Definition};
use dialoq::work::{JobFilter, coming_times};
use dialoq::{Broker, Clock, Error, Gathering, JobId, Timestamp, Tx};
use proptest::prelude::*;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const START: Timestamp = Timestamp(1_767_225_600_000_000);
const SESSIONS: usize = 3;
/// The states in which a job has a time: when it is due, or the end of its lease.
const HAS_TIME: [&str; 3] = ["scheduled", "taken", "lost"];
/// One queue of each order that says which job is next, and the jobs of one key that may be taken at a time at first.
const QUEUES: [(&str, WorkOrder, i64); 6] = [
    ("fifo", WorkOrder::Fifo, 0),
    ("strict", WorkOrder::FifoStrict, 0),
    ("lifo", WorkOrder::Lifo, 0),
    ("levels", WorkOrder::Priority, 0),
    ("keys", WorkOrder::Fifo, 1),
    ("key_levels", WorkOrder::Priority, 1),
];
/// Stores whose strict queues do not hold back every job of a key while a cancel of one is not committed.
const LOOSE_CANCELS: [Store; 1] = [Store::Mssql];
/// Work schedules, of a queue each: name, place of the queue, cron line.
const SCHEDULES: [(&str, usize, &str, Missed); 3] = [
    ("often", 0, "*/2 * * * * *", Missed::Once),
    ("skips", 2, "5,20 * * * * *", Missed::Skip),
    ("all", 3, "*/7 * * * *", Missed::All),
];

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Begin(usize),
    Commit(usize),
    Rollback(usize),
    Savepoint(usize),
    RollbackTo(usize),
    /// In the transaction of that place; at once if none is open there.
    Do(usize, Op),
    /// Several verbs in one call.
    Unit(Vec<Op>),
    /// Calls of several callers at once, all of one kind: on a server one batch.
    Together(Vec<Vec<Op>>),
    AdvanceMs(u16),
    AdvanceSeconds(u16),
    /// The clock is set back; on the embedded store only.
    SetBack(u8),
    /// Pauses a schedule, or lets it go on.
    Schedule(usize, bool),
    Alter(usize, WorkOption),
    Restart,
}

/// Jobs and takings are named by their place among those seen so far.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Push { queue: usize, job_type: u8, key: Option<u8>, level: u8, due: Due, unique: Option<(u8, Option<i64>)> },
    Take { queue: usize, count: i64, job_type: Option<u8>, from: TakeFrom, hold: Hold },
    Complete(usize),
    Fail(usize, AfterFailure),
    Extend(usize, Option<i64>),
    Report(usize),
    Cancel(usize),
    Redrive(usize),
}

fn op() -> BoxedStrategy<Op> {
    let due = prop_oneof![
        4 => Just(Due::Now),
        1 => (0..4000i64).prop_map(Due::InMs),
        1 => (-2000..4000i64).prop_map(|ms| Due::At(Timestamp(START.0 + ms * 1000))),
    ];
    let unique = prop::option::weighted(0.25, (0..3u8, prop::option::of(1..5000i64)));
    let from = prop_oneof![
        4 => Just(TakeFrom::Any),
        1 => (1..=10u8, 1..=10u8).prop_map(|(one, other)| TakeFrom::Levels { lowest: one.min(other), highest: one.max(other) }),
        1 => Just(TakeFrom::Oldest),
    ];
    let hold = prop_oneof![
        2 => Just(Hold::Transaction),
        2 => Just(Hold::Lease(None)),
        2 => (1..4000i64).prop_map(|ms| Hold::Lease(Some(ms))),
    ];
    let then = prop_oneof![
        4 => Just(AfterFailure::Policy),
        1 => (0..2000i64).prop_map(AfterFailure::RetryInMs),
        1 => Just(AfterFailure::Dead),
    ];
    let place = any::<usize>();
    prop_oneof![
        8 => (0..QUEUES.len(), 0..3u8, prop::option::of(0..2u8), 1..=10u8, due, unique)
            .prop_map(|(queue, job_type, key, level, due, unique)| Op::Push { queue, job_type, key, level, due, unique }),
        8 => (0..QUEUES.len(), 1..4i64, prop::option::weighted(0.3, 0..4u8), from, hold)
            .prop_map(|(queue, count, job_type, from, hold)| Op::Take { queue, count, job_type, from, hold }),
        4 => place.prop_map(Op::Complete),
        4 => (place, then).prop_map(|(place, then)| Op::Fail(place, then)),
        1 => (place, prop::option::of(1..4000i64)).prop_map(|(place, ms)| Op::Extend(place, ms)),
        1 => place.prop_map(Op::Report),
        1 => place.prop_map(Op::Cancel),
        2 => place.prop_map(Op::Redrive),
    ]
    .boxed()
}

/// Calls that can go in one batch: pushes into one queue; takes by leases from one queue, of one type; reports; reports that take the
/// next jobs along.
fn together() -> BoxedStrategy<Vec<Vec<Op>>> {
    let one = |op: Op| vec![op];
    let due = prop_oneof![3 => Just(Due::Now), 1 => (0..4000i64).prop_map(Due::InMs)];
    let pushes = (0..QUEUES.len(), prop::collection::vec((0..3u8, prop::option::of(0..2u8), 1..=10u8, due), 2..6))
        .prop_map(move |(queue, jobs)| {
            let push = |(job_type, key, level, due)| Op::Push { queue, job_type, key, level, due, unique: None };
            jobs.into_iter().map(push).map(one).collect()
        });
    let wanted = || (0..QUEUES.len(), prop::option::weighted(0.3, 0..4u8));
    let take = |(queue, job_type): (usize, Option<u8>), count, lease_ms| Op::Take {
        queue,
        count,
        job_type,
        from: TakeFrom::Any,
        hold: Hold::Lease(lease_ms),
    };
    let lease = || prop::option::of(1..4000i64);
    let takes = (wanted(), prop::collection::vec((1..4i64, lease()), 2..6)).prop_map(move |(wanted, readers)| {
        readers.into_iter().map(|(count, lease_ms)| one(take(wanted, count, lease_ms))).collect()
    });
    let reports = prop::collection::vec(any::<usize>().prop_map(Op::Complete).prop_map(one), 2..6);
    let with_next = (wanted(), prop::collection::vec((any::<usize>(), 1..4i64, lease()), 1..6)).prop_map(
        move |(wanted, readers)| {
            let unit = |(place, count, lease_ms)| vec![Op::Complete(place), take(wanted, count, lease_ms)];
            readers.into_iter().map(unit).collect()
        },
    );
    prop_oneof![1 => pushes, 2 => takes, 1 => reports, 2 => with_next].boxed()
}

fn option() -> impl Strategy<Value = WorkOption> {
    prop_oneof![
        any::<bool>().prop_map(WorkOption::Status),
        (1..5i64).prop_map(|most| WorkOption::Number(WorkNumber::MaxAttempts, most)),
        (0..3i64).prop_map(|most| WorkOption::Number(WorkNumber::MaxTaken, most)),
        (0..3i64).prop_map(|most| WorkOption::Number(WorkNumber::MaxTakenPerKey, most)),
        (0..2000i64).prop_map(|ms| WorkOption::Number(WorkNumber::RetryDelayMs, ms)),
        (0..=100i64).prop_map(|percent| WorkOption::Number(WorkNumber::RetryJitterPercent, percent)),
        (1..4000i64).prop_map(|ms| WorkOption::Number(WorkNumber::LeaseMs, ms)),
    ]
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let place = 0..SESSIONS;
    let step = prop_oneof![
        4 => place.clone().prop_map(Step::Begin),
        3 => place.clone().prop_map(Step::Commit),
        2 => place.clone().prop_map(Step::Rollback),
        2 => place.clone().prop_map(Step::Savepoint),
        2 => place.prop_map(Step::RollbackTo),
        // The place after the last one never has a transaction.
        26 => (0..=SESSIONS, op()).prop_map(|(place, op)| Step::Do(place, op)),
        3 => prop::collection::vec(op(), 2..5).prop_map(Step::Unit),
        6 => together().prop_map(Step::Together),
        5 => (1..3000u16).prop_map(Step::AdvanceMs),
        1 => (1..2000u16).prop_map(Step::AdvanceSeconds),
        1 => (1..10u8).prop_map(Step::SetBack),
        1 => (0..SCHEDULES.len(), any::<bool>()).prop_map(|(schedule, is_on)| Step::Schedule(schedule, is_on)),
        2 => (0..QUEUES.len(), option()).prop_map(|(queue, option)| Step::Alter(queue, option)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..most)
}

/// One side's ids; both sides learn them in the same order.
#[derive(Default)]
struct Known {
    jobs: Vec<JobId>,
    taken: Vec<TakenJob>,
    tokens: HashMap<u64, usize>,
}

impl Known {
    fn job(&self, place: usize) -> JobId {
        self.jobs.get(place % self.jobs.len().max(1)).copied().unwrap_or(JobId(u64::from(u32::MAX)))
    }

    /// Mostly the latest takings; the others are stale.
    fn taken(&self, place: usize) -> TakenJob {
        let recent = self.taken.len().min(if place.is_multiple_of(4) { usize::MAX } else { 4 });
        let unknown = TakenJob { job: JobId(u64::from(u32::MAX)), token: 1 };
        self.taken.iter().rev().take(recent).nth(place / 4 % recent.max(1)).copied().unwrap_or(unknown)
    }

    fn name(&mut self, job: JobId) -> usize {
        self.jobs.iter().position(|known| *known == job).unwrap_or_else(|| {
            self.jobs.push(job);
            self.jobs.len() - 1
        })
    }

    fn token(&mut self, token: u64) -> usize {
        let next = self.tokens.len();
        if token == 0 { usize::MAX } else { *self.tokens.entry(token).or_insert(next) }
    }

    /// The outcome with names for ids.
    fn shown(&mut self, outcome: &Result<Outcome, Error>) -> String {
        match outcome {
            Err(error) => format!("error {}", error.code()),
            Ok(Outcome::Pushed { job, is_new }) => format!("job {:?}, new {is_new}", job.map(|job| self.name(job))),
            Ok(Outcome::Jobs(jobs)) => {
                let mut lines = Vec::new();
                for job in jobs {
                    self.taken.push(job.taken);
                    let (name, token) = (self.name(job.taken.job), self.token(job.taken.token));
                    let mut rest = job.clone();
                    rest.taken = TakenJob { job: JobId(0), token: 0 };
                    lines.push(format!("{name} by {token}: {rest:?}"));
                }
                format!("took [{}]", lines.join("\n    "))
            }
            Ok(other) => format!("{other:?}"),
        }
    }

    /// The outcomes of a unit.
    fn shown_whole(&mut self, outcomes: Result<Vec<Outcome>, Error>) -> String {
        match outcomes {
            Ok(outcomes) => {
                outcomes.into_iter().map(|outcome| self.shown(&Ok(outcome))).collect::<Vec<_>>().join("\n  ")
            }
            Err(error) => self.shown(&Err(error)),
        }
    }

    /// `number` is the content of a push.
    fn verb(&self, op: &Op, number: u64) -> Verb {
        Verb::Work(match op {
            Op::Push { queue, job_type, key, level, due, unique } => WorkVerb::Push(Box::new(Push {
                queue: QUEUES[*queue].0.into(),
                job_type: format!("t{job_type}").into(),
                key: key.map(|key| format!("k{key}").into()),
                level: *level,
                due: *due,
                unique: unique.map(|(key, window_ms)| Unique { key: format!("u{key}").into(), window_ms }),
                body: Some(Arc::new(number.to_string().into_bytes())),
                pushed_by: "writer".into(),
            })),
            Op::Take { queue, count, job_type, from, hold } => WorkVerb::Take(Box::new(Take {
                queue: QUEUES[*queue].0.into(),
                count: *count,
                job_type: job_type.map(|job_type| format!("t{job_type}").into()),
                from: *from,
                hold: *hold,
                taken_by: "reader".into(),
            })),
            Op::Complete(place) => WorkVerb::Complete {
                taken: self.taken(*place),
                result: place.is_multiple_of(2).then(|| Arc::new(number.to_string().into_bytes())),
            },
            Op::Fail(place, then) => {
                WorkVerb::Fail { taken: self.taken(*place), reason: format!("why {number}").into(), then: *then }
            }
            Op::Extend(place, lease_ms) => WorkVerb::Extend { taken: self.taken(*place), lease_ms: *lease_ms },
            Op::Report(place) => {
                WorkVerb::Report { taken: self.taken(*place), progress: format!("at {number}").into() }
            }
            Op::Cancel(place) => WorkVerb::Cancel { job: self.job(*place), seen: None },
            Op::Redrive(place) => WorkVerb::Redrive { job: self.job(*place), seen: None },
        })
    }
}

struct Pair {
    model: Session,
    savepoint: Option<Savepoint>,
    tx: Tx,
    /// It has pushed or reported.
    has_changed: bool,
    has_failed: bool,
}

struct Run {
    model: Memory,
    model_known: Known,
    broker: Broker,
    gathering: Gathering,
    known: Known,
    clock: Clock,
    database: Database,
    sessions: [Option<Pair>; SESSIONS],
    numbers: u64,
    /// The job of each time of each schedule.
    fired: HashMap<(Arc<str>, Vec<u8>), u64>,
    was_set_back: bool,
    /// A schedule was altered after that: its next time is computed again.
    is_recomputed: bool,
}

/// Runs the steps on both sides; returns the first difference.
pub(crate) async fn run(store: Store, steps: &[Step]) -> Result<(), String> {
    let database = Database::fresh(store);
    let clock = Clock::manual(START);
    let gathering = Gathering::default();
    let broker = open(database.url(), &clock, &gathering).await?;
    let mut run = Run {
        model: Memory::new(Limits::default()),
        model_known: Known::default(),
        broker,
        gathering,
        known: Known::default(),
        clock,
        database,
        sessions: Default::default(),
        numbers: 0,
        fired: HashMap::new(),
        was_set_back: false,
        is_recomputed: false,
    };
    let definitions = QUEUES.map(|(name, order, of_key)| Definition::CreateWorkQueue {
        name: name.to_owned(),
        options: vec![
            WorkOption::Order(order),
            WorkOption::History(order != WorkOrder::Lifo),
            WorkOption::Number(WorkNumber::MaxTakenPerKey, of_key),
            // It is made of the number of the job, and a push that finds its unique key in use takes a number on a server.
            WorkOption::Number(WorkNumber::RetryJitterPercent, 0),
        ],
    });
    run.define(definitions.to_vec()).await?;
    let schedules = SCHEDULES.map(|(name, queue, cron, missed)| Definition::CreateWorkSchedule {
        name: name.to_owned(),
        queue: QUEUES[queue].0.to_owned(),
        options: WorkScheduleOptions {
            cron: Some(cron.to_owned()),
            missed: Some(missed),
            job_type: Some("t1".to_owned()),
            body: Some("{time}".to_owned()),
            ..WorkScheduleOptions::default()
        },
    });
    run.define(schedules.to_vec()).await?;
    for (place, step) in steps.iter().enumerate() {
        let step = &loosened(store, step);
        run.step(step).await.map_err(|why| format!("step {place}, {step:?}: {why}"))?;
        run.settle().await;
        run.compare().await.map_err(|why| format!("after step {place}, {step:?}: {why}"))?;
        run.check_schedules().map_err(|why| format!("after step {place}, {step:?}: {why}"))?;
    }
    for place in 0..SESSIONS {
        run.step(&Step::Commit(place)).await?;
        run.settle().await;
    }
    run.compare().await?;
    run.broker.close().await.map_err(|error| format!("{error:?}"))
}

/// The step without what a loose store answers otherwise.
fn loosened(store: Store, step: &Step) -> Step {
    let mut step = step.clone();
    // On a server a take of a unit sees what the unit has changed, and a later verb what the take has: DIFFERENCE(reads-committed).
    if store.is_server()
        && let Step::Unit(ops) = &mut step
    {
        let is_take = |op: &Op| matches!(op, Op::Take { .. });
        let begins_with_take = ops.first().is_some_and(is_take);
        ops.retain(|op| is_take(op) == begins_with_take);
        // What the unit has failed is dead at once on a server, in the core with the commit: docs/semantics.md, transactions.
        if let Some(failed) = ops.iter().position(|op| matches!(op, Op::Fail(..))) {
            let later = ops.split_off(failed);
            ops.extend(later.into_iter().filter(|op| !matches!(op, Op::Redrive(_))));
        }
    }
    if LOOSE_CANCELS.contains(&store) {
        match &mut step {
            Step::Do(place, Op::Cancel(_)) => *place = SESSIONS,
            Step::Unit(ops) => {
                for op in ops.iter_mut() {
                    if let Op::Cancel(place) = *op {
                        *op = Op::Report(place);
                    }
                }
            }
            _ => {}
        }
    }
    step
}

impl Run {
    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let now = self.clock.now();
        match step {
            Step::Begin(place) => {
                if self.sessions[*place].is_none() {
                    let tx = self.broker.begin().await.map_err(text)?;
                    self.sessions[*place] = Some(Pair {
                        model: self.model.core.begin_transaction(),
                        savepoint: None,
                        tx,
                        has_changed: false,
                        has_failed: false,
                    });
                }
            }
            Step::Commit(place) => {
                if let Some(pair) = self.sessions[*place].take() {
                    self.model.commit(pair.model, now);
                    pair.tx.commit().await.map_err(text)?;
                }
            }
            Step::Rollback(place) => {
                if let Some(pair) = self.sessions[*place].take() {
                    self.model.rollback(pair.model, now);
                    pair.tx.rollback().await.map_err(text)?;
                }
            }
            Step::Savepoint(place) => {
                if let Some(pair) = &mut self.sessions[*place] {
                    pair.savepoint = Some(self.model.core.savepoint(&pair.model));
                    pair.tx.savepoint("s").await.map_err(text)?;
                }
            }
            Step::RollbackTo(place) => {
                if let Some(pair) = &mut self.sessions[*place]
                    && let Some(savepoint) = pair.savepoint
                {
                    self.model.rollback_to(&mut pair.model, savepoint, now);
                    pair.tx.rollback_to("s").await.map_err(text)?;
                }
            }
            Step::Do(place, op) => self.op(*place, op).await?,
            Step::Unit(ops) => self.unit(ops).await?,
            Step::Together(units) => self.together(units).await?,
            // On a server a change in a transaction has the time of its call, in the core that of the commit.
            Step::AdvanceMs(_) | Step::AdvanceSeconds(_) if self.database.store().is_server() && self.is_changed() => {}
            Step::AdvanceMs(ms) => self.clock.advance(Duration::from_millis(u64::from(*ms))),
            Step::AdvanceSeconds(seconds) => self.clock.advance(Duration::from_secs(u64::from(*seconds))),
            Step::SetBack(_) if self.database.store().is_server() => {}
            Step::SetBack(seconds) => {
                self.clock.jump(-i64::from(*seconds));
                self.was_set_back = true;
            }
            Step::Schedule(schedule, is_on) => {
                let options = WorkScheduleOptions { status: Some(*is_on), ..WorkScheduleOptions::default() };
                let name = SCHEDULES[*schedule].0.to_owned();
                self.is_recomputed |= self.was_set_back;
                self.define(vec![Definition::AlterWorkSchedule { name, options }]).await?;
            }
            Step::Alter(queue, option) => {
                let options = vec![*option];
                self.define(vec![Definition::AlterWorkQueue { name: QUEUES[*queue].0.to_owned(), options }]).await?;
            }
            Step::Restart => {
                for place in 0..SESSIONS {
                    if let Some(pair) = self.sessions[place].take() {
                        self.model.rollback(pair.model, now);
                        pair.tx.rollback().await.map_err(text)?;
                    }
                }
                // A server goes on without its client.
                let reopened = match self.database.store().is_server() {
                    true => self.model.restored(now).map(drop),
                    false => self.model.reopen(now),
                };
                reopened.map_err(|error| format!("the core's rows contradict each other: {error:?}"))?;
                self.broker.close().await.map_err(text)?;
                self.broker = open(self.database.url(), &self.clock, &self.gathering).await?;
            }
        }
        Ok(())
    }

    fn is_changed(&self) -> bool {
        self.sessions.iter().flatten().any(|pair| pair.has_changed)
    }

    async fn define(&mut self, definitions: Vec<Definition>) -> Result<(), String> {
        let verb = Verb::Define(definitions);
        let model = self.model.submit(vec![verb.clone()], self.clock.now()).transpose().expect("no lock is in the way");
        let store = self.broker.perform(verb).await;
        same(&self.model_known.shown(&model.map(|mut all| all.remove(0))), &self.known.shown(&store))
    }

    async fn op(&mut self, place: usize, op: &Op) -> Result<(), String> {
        // As in a unit: see `loosened`.
        if self.database.store().is_server()
            && matches!(op, Op::Redrive(_))
            && self.sessions.get(place).and_then(Option::as_ref).is_some_and(|pair| pair.has_failed)
        {
            return Ok(());
        }
        self.numbers += 1;
        let (model_verb, verb) = (self.model_known.verb(op, self.numbers), self.known.verb(op, self.numbers));
        let now = self.clock.now();
        let (model, store) = match self.sessions.get_mut(place).and_then(Option::as_mut) {
            Some(pair) => {
                pair.has_changed |= !matches!(op, Op::Take { .. });
                pair.has_failed |= matches!(op, Op::Fail(..));
                let model = self.model.execute(&mut pair.model, model_verb, now).transpose();
                (model.expect("no verb of a work queue waits"), pair.tx.perform(verb).await)
            }
            None => {
                let model =
                    self.model.submit(vec![model_verb], now).transpose().expect("no verb of a work queue waits");
                (model.map(|mut all| all.remove(0)), self.broker.perform(verb).await)
            }
        };
        same(&self.model_known.shown(&model), &self.known.shown(&store))
    }

    async fn unit(&mut self, ops: &[Op]) -> Result<(), String> {
        let (mut model_unit, mut unit) = (Vec::new(), Vec::new());
        for op in ops {
            self.numbers += 1;
            model_unit.push(self.model_known.verb(op, self.numbers));
            unit.push(self.known.verb(op, self.numbers));
        }
        let model = self.model.submit(model_unit, self.clock.now()).transpose().expect("no verb of a work queue waits");
        let store = self.broker.submit(unit).await;
        same(&self.model_known.shown_whole(model), &self.known.shown_whole(store))
    }

    /// All calls at once; the core does them in the order of their callers.
    async fn together(&mut self, units: &[Vec<Op>]) -> Result<(), String> {
        // SQL Server has no such batches, so the order of the callers is free there.
        if self.database.store() == Store::Mssql {
            return Ok(());
        }
        // Of reports on one job by two of its takings either may come first on a server: 60042 or 60040 for the stale one.
        let reports: Vec<TakenJob> = units
            .iter()
            .filter_map(|ops| match ops.first() {
                Some(Op::Complete(place)) => Some(self.known.taken(*place)),
                _ => None,
            })
            .collect();
        let are_of_one = |one: &TakenJob, other: &TakenJob| one.job == other.job && one.token != other.token;
        if self.database.store().is_server()
            && reports.iter().any(|one| reports.iter().any(|other| are_of_one(one, other)))
        {
            return Ok(());
        }
        let mut calls = Vec::new();
        for ops in units {
            self.numbers += 1;
            let verbs = |known: &Known| ops.iter().map(|op| known.verb(op, self.numbers)).collect::<Vec<_>>();
            calls.push((verbs(&self.model_known), verbs(&self.known)));
        }
        if let [Op::Complete(_), Op::Take { queue, .. }] = &units[0][..]
            && self.broker.catalog().work_queue(QUEUES[*queue].0).is_some_and(|queue| has_limits(&queue.settings))
        {
            // The end of one job may let another go at once on a server, or with the commit: DIFFERENCE(reads-committed).
            return Ok(());
        }
        if self.database.store().is_server() {
            self.gathering.wait_for(calls.len());
        }
        let store = all(calls.iter().map(|(_, unit)| self.broker.submit(unit.clone()))).await;
        for (number, ((model_unit, _), store)) in calls.into_iter().zip(store).enumerate() {
            let model = self.model.submit(model_unit, self.clock.now()).transpose();
            let model = model.expect("no verb of a work queue waits");
            same(&self.model_known.shown_whole(model), &self.known.shown_whole(store))
                .map_err(|why| format!("caller {number}: {why}"))?;
        }
        Ok(())
    }

    /// What is due has happened on both sides.
    async fn settle(&mut self) {
        self.model.tick(self.clock.now());
        for _ in 0..2 {
            self.database.store().barrier(&self.broker).await;
            tokio::task::yield_now().await;
        }
    }

    /// No time has two jobs, and the next time of a schedule is the first one of its line after now.
    fn check_schedules(&mut self) -> Result<(), String> {
        for (row, _) in self.model.jobs().jobs.values().filter(|(row, _)| row.pushed_by.starts_with("schedule ")) {
            let time = row.body.as_deref().cloned().unwrap_or_default();
            let first = *self.fired.entry((row.pushed_by.clone(), time)).or_insert(row.job_id);
            if first != row.job_id && !self.is_recomputed {
                return Err(format!("{} has pushed jobs {first} and {} for one time", row.pushed_by, row.job_id));
            }
        }
        let now = self.clock.now();
        for (schedule_id, (next_at, _)) in &self.model.jobs().schedules {
            let schedule = &self.model.core.catalog().work_schedules[schedule_id];
            let right = coming_times(&schedule.cron, "UTC", now, 1).map_err(text)?.first().copied();
            let is_right = if self.was_set_back { *next_at >= right } else { *next_at == right };
            if schedule.is_enabled != next_at.is_some() || schedule.is_enabled && !is_right {
                return Err(format!("{} fires next at {next_at:?}, not {right:?}", schedule.name));
            }
        }
        Ok(())
    }

    /// Every job that is not finished, every one that is kept, and the times of every schedule.
    async fn compare(&mut self) -> Result<(), String> {
        let mut store = Vec::new();
        for mut job in self.broker.jobs(&JobFilter::default(), 10_000).await.map_err(text)? {
            job.due_at = job.due_at.filter(|_| HAS_TIME.contains(&job.state.name()));
            let (name, token) = (self.known.name(job.job), self.known.token(job.token));
            store.push(format!(
                "job {name} in {}: {} {:?} {} {} {} by {token} {:?} {:?} {:?}",
                job.queue,
                job.job_type,
                job.key,
                job.level,
                job.state,
                job.attempts,
                job.due_at,
                job.pushed_at,
                job.last_error,
            ));
        }
        for job in self.broker.finished_jobs(&JobFilter::default(), 10_000).await.map_err(text)? {
            let name = self.known.name(job.job);
            store.push(format!("job {name}: {} {:?} {:?}", job.finished_as, job.finished_at, job.result));
        }
        let mut model = Vec::new();
        for (row, last_error) in self.model.jobs().jobs.values() {
            let (name, token) = (self.model_known.name(JobId(row.job_id)), self.model_known.token(row.token));
            let queue = &self.model.core.catalog().work_queues[&row.queue_id].name;
            // A time that has come writes no row.
            let state = match row.state {
                JobState::Scheduled if row.at.is_some_and(|at| at <= self.clock.now()) => "ready",
                JobState::Taken if row.at.is_some_and(|at| at <= self.clock.now()) => "lost",
                state => state.name(),
            };
            let at = row.at.filter(|_| HAS_TIME.contains(&state));
            model.push(format!(
                "job {name} in {queue}: {} {:?} {} {state} {} by {token} {at:?} {:?} {last_error:?}",
                row.job_type, row.key, row.level, row.attempts, row.pushed_at,
            ));
        }
        for schedule in self.broker.work_schedules().await.map_err(text)? {
            store.push(format!("schedule {}: {:?} {:?}", schedule.name, schedule.next_at, schedule.last_at));
        }
        for (schedule_id, (next_at, last_at)) in &self.model.jobs().schedules {
            let name = &self.model.core.catalog().work_schedules[schedule_id].name;
            model.push(format!("schedule {name}: {next_at:?} {last_at:?}"));
        }
        for job in self.model.jobs().history.values() {
            let name = self.model_known.name(JobId(job.job_id));
            let finished_as = format!("{:?}", job.finished_as).to_lowercase();
            model.push(format!("job {name}: {finished_as} {:?} {:?}", job.finished_at, job.result));
        }
        store.sort();
        model.sort();
        same(&model.join("\n  "), &store.join("\n  "))
    }
}

fn has_limits(settings: &WorkSettings) -> bool {
    let limits = [WorkNumber::MaxTaken, WorkNumber::MaxTakenPerKey];
    settings.order == WorkOrder::FifoStrict || limits.into_iter().any(|limit| settings.limit(limit).is_some())
}

/// Polls works in order, so that they begin in order; gives their answers.
async fn all<T, F: Future<Output = T>>(works: impl Iterator<Item = F>) -> Vec<T> {
    let mut works: Vec<_> = works.map(|work| (Box::pin(work), None)).collect();
    poll_fn(|context| {
        for (work, done) in &mut works {
            if done.is_none()
                && let Poll::Ready(answer) = work.as_mut().poll(context)
            {
                *done = Some(answer);
            }
        }
        if works.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    works.into_iter().filter_map(|(_, done)| done).collect()
}

fn text(error: Error) -> String {
    format!("{error:?}")
}
