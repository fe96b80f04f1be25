//! `dialoq work redrive`, `cancel`, `pause` and `resume`

use super::Filter;

use crate::cli::confirm::{confirm, previewed};
use crate::cli::failure::Failure;
use crate::cli::globals::{Globals, close_after};
use crate::cli::interrupt::Interrupt;
use crate::cli::output::{Output, counted, printable};
use clap::Args;
use dialoq::Broker;
use dialoq::internals::{counting, jobs_to_change};
use dialoq::protocol::definition::{Definition, WorkOption};
use dialoq::work::{JobFilter, ShownState};
use serde_json::json;

/// Give dead jobs all their attempts again.
///
/// Prints how many jobs that would be. Asks on a terminal; elsewhere without --yes, nothing changes, and the exit code is 6.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work redrive emails --error timeout           how many?
  dialoq work redrive emails --error timeout --yes
  dialoq work redrive --job 17 --yes")]
pub(super) struct Redrive {
    #[command(flatten)]
    filter: Filter,
    /// All of all work queues.
    #[arg(long, conflicts_with_all = ["queue", "job", "job_type", "error", "state", "taken_for"])]
    all: bool,
    /// Do it without a question.
    #[arg(long)]
    yes: bool,
}

impl Redrive {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        if let Some(state) = self.filter.state.filter(|state| *state != ShownState::Dead) {
            return Err(Failure::Usage(format!("--state {state}: only dead jobs can be redriven; leave --state out")));
        }
        self.filter.check_choice(self.all, "redrive")?;
        let broker = globals.open_unless(interrupt).await?;
        let mut filter = self.filter.of(broker.clock().now());
        filter.state = Some(ShownState::Dead);
        let done = each(&broker, &filter, self.yes, output, interrupt, Change::Redrive).await;
        close_after(&broker, done).await
    }
}

/// Take jobs out of their queues, whatever their state.
///
/// Prints how many jobs that would be. Asks on a terminal; elsewhere without --yes, nothing changes, and the exit code is 6. A
/// reader that works on a cancelled job finds no job at its next report.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work cancel emails --state scheduled          how many?
  dialoq work cancel --job 17 --yes")]
pub(super) struct Cancel {
    #[command(flatten)]
    filter: Filter,
    /// All of all work queues.
    #[arg(long, conflicts_with_all = ["queue", "job", "job_type", "error", "state", "taken_for"])]
    all: bool,
    /// Do it without a question.
    #[arg(long)]
    yes: bool,
}

impl Cancel {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        self.filter.check_choice(self.all, "cancel")?;
        let broker = globals.open_unless(interrupt).await?;
        let filter = self.filter.of(broker.clock().now());
        let done = each(&broker, &filter, self.yes, output, interrupt, Change::Cancel).await;
        close_after(&broker, done).await
    }
}

#[derive(Clone, Copy)]
enum Change {
    Redrive,
    Cancel,
}

async fn each(
    broker: &Broker,
    filter: &JobFilter,
    is_confirmed: bool,
    output: &Output,
    interrupt: &Interrupt,
    change: Change,
) -> Result<(), Failure> {
    // Jobs that come after the preview are not touched.
    let jobs = interrupt.stops(async { Ok(jobs_to_change(broker, filter).await?) }).await?;
    let found = jobs.len();
    let (verb, done) = match change {
        Change::Redrive => ("redrive", "redriven"),
        Change::Cancel => ("cancel", "cancelled"),
    };
    if found == 0 {
        return Err(Failure::Nothing(format!("there is no job to {verb}")));
    }
    if !is_confirmed {
        let printed = match output.json {
            true => output.json(&json!({ "would": verb, "jobs": found })),
            false => output.text(&format!("would {verb} {}", counted(found, "job"))),
        };
        previewed(false, printed)?;
        let question = format!("{verb} {}?", counted(found, "job"));
        interrupt.stops(confirm(false, &question, output)).await?;
    }
    let mut number = 0;
    let changed = async {
        match change {
            Change::Redrive => counting::redrive_jobs(broker, filter, &jobs, &mut number).await,
            Change::Cancel => counting::cancel_jobs(broker, filter, &jobs, &mut number).await,
        }
    };
    let ended = interrupt.unless_requested(changed).await;
    Failure::unless_whole(ended, number, &format!("{done} {}", counted(number, "job")))?;
    let left = found as u64 - number;
    match output.json {
        true => output.result_json(&json!({ done: number, "left": left })),
        false => output.result(&text(done, number, left)),
    }
}

/// What was done, and how many of the jobs that were found were not changed.
fn text(done: &str, number: u64, left: u64) -> String {
    let changed = format!("{done} {}", counted(number, "job"));
    match left {
        0 => changed,
        left => format!("{changed}; left {left} that a transaction holds or that changed meanwhile"),
    }
}

/// Let no job of a work queue be taken; pushes go on, and jobs that are taken may be finished.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work pause emails
  dialoq work resume emails")]
pub(super) struct Pause {
    /// The work queue.
    queue: String,
}

impl Pause {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        set_status(globals, output, &self.queue, false).await
    }
}

/// Let the jobs of a paused work queue be taken again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work resume emails")]
pub(super) struct Resume {
    /// The work queue.
    queue: String,
}

impl Resume {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        set_status(globals, output, &self.queue, true).await
    }
}

async fn set_status(globals: &Globals, output: &Output, queue: &str, is_on: bool) -> Result<(), Failure> {
    let broker = globals.open().await?;
    let alter = Definition::AlterWorkQueue { name: queue.to_owned(), options: vec![WorkOption::Status(is_on)] };
    let done = broker.apply(vec![alter]).await;
    close_after(&broker, done).await?;
    let state = if is_on { "resumed" } else { "paused" };
    match output.json {
        true => output.result_json(&json!({ "queue": queue, "status": state })),
        false => output.result(&format!("{state} work queue '{}'", printable(queue))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_were_found_and_not_changed_are_said_to_be_left() {
        assert_eq!(text("cancelled", 1, 0), "cancelled 1 job");
        let left = "cancelled 2 jobs; left 2 that a transaction holds or that changed meanwhile";
        assert_eq!(text("cancelled", 2, 2), left);
    }
}
