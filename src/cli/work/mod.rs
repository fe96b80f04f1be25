//! `dialoq work`

mod change;
mod lines;
mod push;
mod report;
mod run;
mod schedule;
mod show;
mod take;

pub(in crate::cli) use show::queue_table;

use super::failure::Failure;
use super::globals::Globals;
use super::interrupt::Interrupt;
use super::output::{Output, printable_name};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use dialoq::internals::shell_command;
use dialoq::work::{JobFilter, ShownState};
use dialoq::{JobId, Timestamp};
use std::time::Duration;

/// Push, take and complete jobs of work queues, and look after them.
///
/// A work queue is made with `dialoq apply`: CREATE WORK QUEUE emails. A job that is taken is held by a lease; report it
/// with complete or fail before the lease is over, or the attempt has failed. After its last attempt a job is dead, and
/// stays until it is redriven or cancelled.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work push emails '{\"to\":\"ann@example.org\"}'
  dialoq work take emails --count 5 --wait 10s --json
  dialoq work complete 17 42
  dialoq work run emails --exec ./send-mail --readers 8
  dialoq work stats emails --by reader
  dialoq work redrive emails --error timeout --yes
  dialoq work schedule add nightly reports '0 3 * * *' --time-zone Europe/Berlin")]
pub(super) struct Work {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Push(push::Push),
    Take(take::Take),
    Complete(report::Complete),
    Fail(report::Fail),
    Extend(report::Extend),
    Run(run::Run),
    List(show::List),
    Show(show::Show),
    Stats(show::Stats),
    Redrive(change::Redrive),
    Cancel(change::Cancel),
    Pause(change::Pause),
    Resume(change::Resume),
    Schedule(schedule::Schedule),
}

impl Work {
    pub(super) async fn run(
        &self,
        globals: &Globals,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        match &self.command {
            Command::Push(command) => command.run(globals, output, interrupt).await,
            Command::Take(command) => interrupt.stops(command.run(globals, output)).await,
            Command::Complete(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
            Command::Fail(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
            Command::Extend(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
            Command::Run(command) => command.run(globals, output, interrupt).await,
            Command::List(command) => interrupt.stops(command.run(globals, output)).await,
            Command::Show(command) => interrupt.stops(command.run(globals, output)).await,
            Command::Stats(command) => interrupt.stops(command.run(globals, output)).await,
            Command::Redrive(command) => command.run(globals, output, interrupt).await,
            Command::Cancel(command) => command.run(globals, output, interrupt).await,
            Command::Pause(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
            Command::Resume(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
            Command::Schedule(command) if command.looks_only() => interrupt.stops(command.run(globals, output)).await,
            Command::Schedule(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        }
    }
}

/// Which jobs a command means.
#[derive(Debug, Args)]
struct Filter {
    /// The work queue; without it, all of them.
    queue: Option<String>,
    /// Only this job.
    #[arg(long, value_name = "ID", value_parser = parse_job)]
    job: Option<JobId>,
    /// Only jobs of this type.
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Only jobs whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only jobs in this state: scheduled, ready, taken, lost or dead.
    #[arg(long, value_name = "STATE", value_parser = states())]
    state: Option<ShownState>,
    /// Only jobs that were taken longer ago than this and not reported.
    #[arg(long, value_name = "SPAN", value_parser = super::globals::parse_span)]
    taken_for: Option<Duration>,
}

impl Filter {
    /// Refuses a change of all jobs that was not asked for.
    fn check_choice(&self, is_all: bool, verb: &str) -> Result<(), Failure> {
        let Self { queue, job, job_type, error, state, taken_for } = self;
        let is_filtered = [queue, job_type, error].iter().any(|given| given.is_some()) || state.is_some();
        if is_all || is_filtered || job.is_some() || taken_for.is_some() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "which jobs? Give a work queue, a filter such as --job, or --all to {verb} those of all work queues"
        )))
    }

    fn of(&self, now: Timestamp) -> JobFilter {
        let Self { queue, job, job_type, error, state, taken_for } = self;
        let taken_before = taken_for.map(|span| {
            let span_us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
            Timestamp(now.0.saturating_sub(span_us))
        });
        JobFilter {
            queue: queue.clone(),
            state: *state,
            job_type: job_type.clone(),
            error: error.clone(),
            job: *job,
            taken_before,
        }
    }
}

/// Why a paused work queue gives no job.
fn paused(queue: &str) -> String {
    let (name, resume) = (printable_name(queue), shell_command("dialoq work resume", queue, ""));
    let resume = printable_name(&resume);
    format!("work queue '{name}' is paused, so it hands out no job; `{resume}` ends that")
}

/// Reads the state of a job that is not finished.
fn states() -> impl TypedValueParser<Value = ShownState> {
    PossibleValuesParser::new(["scheduled", "ready", "taken", "lost", "dead"])
        .try_map(|name| name.parse::<ShownState>())
}

/// Reads a job id.
fn parse_job(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|_| "a job id is a number".to_owned())
}
