//! Jobs of plays, each in a work queue of its own, and the plays about them.

use crate::stage::{Do, Do::*, Play};
use dialoq::work::{AfterFailure, JobFilter, TakenJob};
use dialoq::{Act, Broker, Error, Tx};
use std::collections::BTreeMap;
use std::time::Duration;

/// A job in each is as its name says when the sessions begin.
pub(crate) const QUEUES: &str = "
    CREATE WORK QUEUE ready WITH RETRY_DELAY_MS = 0; CREATE WORK QUEUE leased WITH RETRY_DELAY_MS = 0;
    CREATE WORK QUEUE dead WITH RETRY_DELAY_MS = 0;";

/// What a session does with a job, in its transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobStep {
    Take,
    Complete,
    Fail,
    Cancel,
    Redrive,
}

/// The jobs of a play by queue, with the token of the lease, or none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs(BTreeMap<&'static str, TakenJob>);

impl Jobs {
    /// Makes those that the steps of a play name.
    pub(crate) async fn make(play: &Play, broker: &Broker) -> Result<Self, Error> {
        let mut jobs = BTreeMap::new();
        for step in play.sessions.iter().flat_map(|steps| steps.iter()) {
            let Do::Job(queue, _) = step else { continue };
            if jobs.contains_key(queue) {
                continue;
            }
            let job = broker.push_job(*queue, "").await?.job.expect("it is new");
            let mut taken = TakenJob { job, token: 0 };
            if *queue != "ready" {
                let job = broker.take_jobs(*queue).lease(Duration::from_secs(3600)).await?.remove(0);
                taken = job.taken;
                if *queue == "dead" {
                    broker.fail_job_then(&job, "", AfterFailure::Dead).await?;
                }
            }
            jobs.insert(*queue, taken);
        }
        Ok(Self(jobs))
    }

    /// Does a step; gives what was taken.
    pub(crate) async fn perform(&self, tx: &Tx, queue: &str, step: JobStep) -> Result<String, Error> {
        let job = self.0[queue];
        let nothing = |()| String::new();
        match step {
            JobStep::Take => {
                let taken = tx.take_jobs(queue).await?;
                Ok(taken.first().map_or_else(|| "none".to_owned(), |job| format!("attempt {}", job.attempt)))
            }
            JobStep::Complete => tx.complete_job(job).await.map(nothing),
            JobStep::Fail => tx.fail_job(job, "failed").await.map(|_| String::new()),
            JobStep::Cancel => tx.cancel_job(job.job).await.map(nothing),
            JobStep::Redrive => tx.redrive_job(job.job).await.map(nothing),
        }
    }

    /// The states of those that are left, which are removed; nothing for a play without jobs.
    pub(crate) async fn left(&self, broker: &Broker) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut states = Vec::new();
        for job in broker.jobs(&JobFilter::default(), 100).await.expect("the broker is open") {
            states.push(format!("{} after {}", job.state, job.attempts));
            broker.cancel_job(job.job).await.expect("no transaction is open");
        }
        Some(format!("jobs: [{}]", states.join(", ")))
    }
}

/// A job is taken or cancelled, never both; no session waits for the other.
pub(crate) fn take_against_cancel() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, Job("ready", JobStep::Take), Commit], &[Begin, Job("ready", JobStep::Cancel), Commit]],
        outcomes: &[
            "A: attempt 1; B: 60043; target: []; initiator: []; jobs: []",
            "A: attempt 1; B: 60040; target: []; initiator: []; jobs: []",
            "A: none; B: ; target: []; initiator: []; jobs: []",
        ],
    }
}

/// Only one of two reports on an attempt counts; the other one is refused until the first is undone.
pub(crate) fn complete_against_fail() -> Play {
    Play {
        sent_before: &[],
        sessions: &[
            &[Begin, Job("leased", JobStep::Complete), Rollback],
            &[Begin, Job("leased", JobStep::Fail), Commit],
        ],
        outcomes: &[
            "A: ; B: ; target: []; initiator: []; jobs: [ready after 1]",
            "? A: ; B: 60043; target: []; initiator: []; jobs: [taken after 1]",
            "? A: 60043; B: ; target: []; initiator: []; jobs: [ready after 1]",
            "A: 60041; B: ; target: []; initiator: []; jobs: [ready after 1]",
        ],
    }
}

/// A redrive takes effect at its commit.
pub(crate) fn redrive_against_take() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, Job("dead", JobStep::Redrive), Commit], &[Begin, Job("dead", JobStep::Take), Commit]],
        outcomes: &[
            "A: ; B: none; target: []; initiator: []; jobs: [ready after 0]",
            "A: ; B: attempt 1; target: []; initiator: []; jobs: []",
        ],
    }
}

/// A job that a transaction has taken goes to no other one, and its rollback is a failed attempt.
pub(crate) fn take_against_a_rolled_back_take() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, Job("ready", JobStep::Take), Rollback], &[Begin, Job("ready", JobStep::Take), Commit]],
        outcomes: &[
            "A: attempt 1; B: attempt 2; target: []; initiator: []; jobs: []",
            "A: attempt 1; B: none; target: []; initiator: []; jobs: [ready after 1]",
            "A: none; B: attempt 1; target: []; initiator: []; jobs: []",
        ],
    }
}
