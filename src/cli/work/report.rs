//! `dialoq work complete`, `fail` and `extend`

use super::parse_job;
use crate::cli::failure::Failure;
use crate::cli::globals::{Globals, close_after, parse_span};
use crate::cli::output::Output;
use clap::Args;
use dialoq::work::{AfterFailure, TakenJob};
use dialoq::{Act, Broker, JobId};
use serde_json::json;
use std::time::Duration;

/// A job, as `dialoq work take` printed it.
#[derive(Debug, Args)]
struct Taken {
    /// The job.
    #[arg(value_parser = parse_job)]
    job: JobId,
    /// The token of its taking.
    token: u64,
}

impl Taken {
    fn get(&self) -> TakenJob {
        TakenJob { job: self.job, token: self.token }
    }
}

/// Report a taken job as done.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work complete 17 42
  dialoq work complete 17 42 --result '{\"pages\":12}'")]
pub(super) struct Complete {
    #[command(flatten)]
    taken: Taken,
    /// Kept with the job's history.
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,
}

impl Complete {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let done = match &self.result {
            Some(result) => broker.complete_job_with(self.taken.get(), result).await,
            None => broker.complete_job(self.taken.get()).await,
        };
        close_after(&broker, done).await?;
        match output.json {
            true => output.result_json(&json!({ "job": self.taken.job })),
            false => output.result(&format!("completed job {}", self.taken.job)),
        }
    }
}

/// Report that an attempt at a taken job failed.
///
/// The job is due again after the queue's pause, or dead if that was its last attempt.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work fail 17 42 'the server does not answer'
  dialoq work fail 17 42 'no such address' --dead")]
pub(super) struct Fail {
    #[command(flatten)]
    taken: Taken,
    /// Why, up to 3000 characters.
    reason: String,
    /// The next attempt after this time, if attempts are left.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    retry_in: Option<Duration>,
    /// No other attempt.
    #[arg(long, conflicts_with = "retry_in")]
    dead: bool,
}

impl Fail {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let then = match (self.retry_in, self.dead) {
            (_, true) => AfterFailure::Dead,
            (Some(delay), _) => AfterFailure::retry_in(delay),
            (None, false) => AfterFailure::Policy,
        };
        let broker = globals.open().await?;
        let failed = broker.fail_job_then(self.taken.get(), self.reason.as_str(), then).await;
        let state = close_after(&broker, failed).await?.name();
        match output.json {
            true => output.result_json(&json!({ "job": self.taken.job, "state": state })),
            false => output.result(&format!("job {} is {state}", self.taken.job)),
        }
    }
}

/// Prolong the lease of a taken job, counted from now.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work extend 17 42 --lease 10m")]
pub(super) struct Extend {
    #[command(flatten)]
    taken: Taken,
    /// How long; without it, the LEASE_MS of the queue.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    lease: Option<Duration>,
    /// A note of how far it is, shown by `dialoq work list`.
    #[arg(long, value_name = "TEXT")]
    progress: Option<String>,
}

impl Extend {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let done = self.extend(&broker).await;
        close_after(&broker, done).await?;
        match output.json {
            true => output.result_json(&json!({ "job": self.taken.job })),
            false => output.result(&format!("job {} is held on", self.taken.job)),
        }
    }

    /// Both or nothing: with a note that was refused the lease was longer all the same.
    async fn extend(&self, broker: &Broker) -> dialoq::Result<()> {
        let Some(progress) = &self.progress else { return broker.extend_job(self.taken.get(), self.lease).await };
        let tx = broker.begin().await?;
        tx.extend_job(self.taken.get(), self.lease).await?;
        tx.report_job(self.taken.get(), progress.as_str()).await?;
        tx.commit().await
    }
}
