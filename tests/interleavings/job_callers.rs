//! Two callers on one job beside the ends of leases, pauses and rollbacks, in every order of their steps. No verb of a work queue waits, so a step is done
//! when the next one begins.

use crate::servers::{Database, Store, limit};
use crate::stage::orders;
use Do::*;
use dialoq::work::{AfterFailure, Job, JobFilter, TakenJob};
use dialoq::{Act, Broker, Clock, Error, JobId, OpenOptions, Timestamp, Tx};
use std::collections::BTreeMap;
use std::time::Duration;

const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// One thing a session does: in its transaction, if it has begun one.
#[derive(Debug, Clone, Copy)]
enum Do {
    Begin,
    Commit,
    Rollback,
    Take,
    /// Reports on the job that it has taken, or that was taken before.
    Complete,
    Fail,
    Cancel,
    Redrive,
    Pause,
    Resume,
    /// Lets the lease end of the job that was taken before.
    LeaseEnds,
}

/// How the job stands when the sessions begin.
#[derive(Debug, Clone, Copy)]
enum Before {
    Ready,
    Leased,
    Dead,
}

struct Play {
    name: &'static str,
    before: Before,
    sessions: [&'static [Do]; 2],
    /// What each session saw, then the job: its state and attempts, or how it finished.
    outcomes: &'static [&'static str],
}

const PLAYS: &[Play] = &[
    Play {
        name: "take that is rolled back against cancel",
        before: Before::Ready,
        sessions: [&[Begin, Take, Rollback], &[Begin, Cancel, Commit]],
        outcomes: &["A: job; B: 60043; ready 1", "A: job; B: ; cancelled", "A: none; B: ; cancelled"],
    },
    Play {
        name: "take against cancel that is rolled back",
        before: Before::Ready,
        sessions: [&[Begin, Take, Commit], &[Begin, Cancel, Rollback]],
        outcomes: &["A: job; B: 60043; done", "A: job; B: 60040; done", "A: none; B: ; ready 0", "A: job; B: ; done"],
    },
    Play {
        name: "complete against the end of the lease",
        before: Before::Leased,
        sessions: [&[Begin, Complete, Commit], &[LeaseEnds, Take]],
        outcomes: &["A: ; B: none; done", "A: 60041; B: job; taken 2", "A: 60042; B: job; taken 2"],
    },
    Play {
        name: "complete that is rolled back against the end of the lease",
        before: Before::Leased,
        sessions: [&[Begin, Complete, Rollback], &[LeaseEnds, Take]],
        outcomes: &[
            "A: ; B: none; ready 1",
            "A: ; B: job; taken 2",
            "A: 60041; B: job; taken 2",
            "A: 60042; B: job; taken 2",
        ],
    },
    Play {
        name: "complete against fail",
        before: Before::Leased,
        sessions: [&[Begin, Complete, Commit], &[Fail]],
        outcomes: &["A: ; B: 60043; done", "A: ; B: 60040; done", "A: 60041; B: ; ready 1"],
    },
    Play {
        name: "complete against cancel",
        before: Before::Leased,
        sessions: [&[Begin, Complete, Commit], &[Begin, Cancel, Commit]],
        outcomes: &[
            "A: ; B: 60043; done",
            "A: ; B: 60040; done",
            "A: 60043; B: ; cancelled",
            "A: 60040; B: ; cancelled",
        ],
    },
    Play {
        name: "redrive against redrive and cancel",
        before: Before::Dead,
        sessions: [&[Begin, Redrive, Rollback], &[Redrive, Cancel]],
        outcomes: &[
            "A: ; B: 60043; dead 1",
            "A: ; B: ; cancelled",
            "A: 60044; B: ; cancelled",
            "A: 60040; B: ; cancelled",
        ],
    },
    Play {
        name: "pause against take",
        before: Before::Ready,
        sessions: [&[Pause, Resume], &[Begin, Take, Commit]],
        outcomes: &["A: ; B: job; done", "A: ; B: none; ready 0"],
    },
];

struct Stage {
    broker: Broker,
    clock: Clock,
    store: Store,
    queue: String,
    /// The job, and the taking of it before the sessions begin.
    job: JobId,
    before: Option<TakenJob>,
}

#[derive(Default)]
struct Session {
    next: usize,
    tx: Option<Tx>,
    taken: Option<TakenJob>,
    seen: Vec<String>,
    is_out: bool,
}

pub(crate) fn two_callers_on_one_job(store: Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (database, clock) = (Database::fresh(store), Clock::manual(START));
        let options = OpenOptions::default().clock(clock.clone());
        let broker = Broker::open_with(database.url(), options).await.expect("an empty database");
        let mut number = 0;
        for play in PLAYS {
            let mut seen = BTreeMap::new();
            for order in orders(&play.sessions.map(<[Do]>::len)) {
                limit::doing(format!("{}: {order:?}", play.name));
                number += 1;
                let stage = Stage::build(&broker, &clock, store, number, play.before).await.expect("a queue");
                let outcome = stage.run(play, &order).await;
                assert!(
                    play.outcomes.contains(&&*outcome),
                    "{}, in the order {order:?}: came\n    {outcome}\nallowed are\n    {}",
                    play.name,
                    play.outcomes.join("\n    ")
                );
                seen.entry(outcome).or_insert(order);
            }
            for outcome in play.outcomes {
                assert!(seen.contains_key(*outcome), "{}: no order gives {outcome}; found were {seen:#?}", play.name);
            }
        }
        broker.close().await.expect("it was open");
    });
}

impl Stage {
    async fn build(broker: &Broker, clock: &Clock, store: Store, number: usize, before: Before) -> Result<Self, Error> {
        let queue = format!("q{number}");
        let attempts = if matches!(before, Before::Dead) { 1 } else { 3 };
        broker
            .execute(&format!(
                "CREATE WORK QUEUE {queue} WITH RETRY_DELAY_MS = 0, MAX_ATTEMPTS = {attempts}, LEASE_MS = 1000"
            ))
            .await?;
        let job = broker.push_job(&*queue, "x").await?.job.expect("it is new");
        let mut taken = None;
        if !matches!(before, Before::Ready) {
            taken = broker.take_jobs(&*queue).await?.first().map(|job| job.taken);
        }
        if let (Before::Dead, Some(taken)) = (before, taken) {
            broker.fail_job(taken, "broken").await?;
        }
        Ok(Self { broker: broker.clone(), clock: clock.clone(), store, queue, job, before: taken })
    }

    async fn run(&self, play: &Play, order: &[usize]) -> String {
        let mut sessions = [Session::default(), Session::default()];
        for place in order {
            let session = &mut sessions[*place];
            let step = play.sessions[*place][session.next];
            session.next += 1;
            if session.is_out {
                continue;
            }
            match self.step(step, session).await {
                Ok(seen) => session.seen.extend(seen),
                Err(error) => {
                    session.seen.push(error.code().to_string());
                    session.is_out = true;
                    if let Some(tx) = session.tx.take() {
                        tx.rollback().await.expect("it is open");
                    }
                }
            }
            self.store.barrier(&self.broker).await;
        }
        let [a, b] = sessions.map(|session| session.seen.join(" "));
        format!("A: {a}; B: {b}; {}", self.left().await.expect("the queue is there"))
    }

    async fn step(&self, step: Do, session: &mut Session) -> Result<Option<String>, Error> {
        match step {
            Begin => session.tx = Some(self.broker.begin().await?),
            Commit => session.tx.take().expect("it has begun").commit().await?,
            Rollback => session.tx.take().expect("it has begun").rollback().await?,
            Pause | Resume => {
                let status = if matches!(step, Pause) { "OFF" } else { "ON" };
                self.broker.execute(&format!("ALTER WORK QUEUE {} WITH STATUS = {status}", self.queue)).await?;
            }
            LeaseEnds => {
                self.clock.advance(Duration::from_secs(2));
                for _ in 0..2 {
                    self.store.barrier(&self.broker).await;
                    tokio::task::yield_now().await;
                }
            }
            _ => {
                let taken = session.taken.or(self.before);
                return match &session.tx {
                    Some(tx) => self.verb(step, tx, taken).await,
                    None => self.verb(step, &self.broker, taken).await,
                };
            }
        }
        Ok(None)
    }

    async fn verb(&self, step: Do, act: &impl Act, taken: Option<TakenJob>) -> Result<Option<String>, Error> {
        match step {
            Take => {
                let jobs: Vec<Job> = act.take_jobs(&*self.queue).await?;
                return Ok(Some(if jobs.is_empty() { "none" } else { "job" }.to_owned()));
            }
            Complete => act.complete_job(taken.expect("it was taken")).await?,
            Fail => drop(act.fail_job_then(taken.expect("it was taken"), "broken", AfterFailure::Policy).await?),
            Cancel => act.cancel_job(self.job).await?,
            Redrive => act.redrive_job(self.job).await?,
            Begin | Commit | Rollback | Pause | Resume | LeaseEnds => unreachable!("these are no verbs"),
        }
        Ok(None)
    }

    /// The job, when the sessions have ended.
    async fn left(&self) -> Result<String, Error> {
        let filter = JobFilter { job: Some(self.job), ..JobFilter::default() };
        if let Some(job) = self.broker.jobs(&filter, 1).await?.first() {
            return Ok(format!("{} {}", job.state, job.attempts));
        }
        let finished = self.broker.finished_jobs(&filter, 1).await?;
        Ok(finished.first().map_or("gone".to_owned(), |job| job.finished_as.to_string()))
    }
}
