//! `dialoq work schedule`

use crate::cli::failure::Failure;
use crate::cli::globals::{Globals, close_after};
use crate::cli::output::{Output, fitting, printable_name};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use dialoq::internals::ErrorConstructors;
use dialoq::protocol::definition::{Definition, Missed, WorkScheduleOptions};
use dialoq::work::{WorkScheduleStatus, coming_times};
use dialoq::{Code, Error, Timestamp};
use jiff::tz::TimeZoneDatabase;
use serde_json::json;

/// Let a work queue get a job at certain times: each night, each minute, the last day of a month.
///
/// A schedule fires while a process runs the broker, and each time fires once, however many processes there are. The times are
/// a cron line: minute, hour, day of month, month, day of week; a sixth field before them is the second.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work schedule add nightly reports '0 3 * * *' --time-zone Europe/Berlin --body '{\"for\":\"{time}\"}'
  dialoq work schedule list
  dialoq work schedule next nightly --count 10
  dialoq work schedule next --cron '*/15 8-18 * * MON-FRI'
  dialoq work schedule pause nightly
  dialoq work schedule drop nightly")]
pub(super) struct Schedule {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show every schedule with its next and its last time.
    #[command(after_long_help = "\
Examples:
  dialoq work schedule list
  dialoq work schedule list --json")]
    List,
    Add(Add),
    /// Remove a schedule; jobs that it has pushed stay.
    #[command(after_long_help = "\
Examples:
  dialoq work schedule drop nightly")]
    Drop(Named),
    /// Let a schedule push no jobs.
    #[command(after_long_help = "\
Examples:
  dialoq work schedule pause nightly")]
    Pause(Named),
    /// Let a paused schedule go on; the times of its pause are left out.
    #[command(after_long_help = "\
Examples:
  dialoq work schedule resume nightly")]
    Resume(Named),
    Next(Next),
}

/// Make a schedule.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work schedule add nightly reports '0 3 * * *' --time-zone Europe/Berlin
  dialoq work schedule add quarter reports '*/15 * * * *' --body '{\"for\":\"{time}\"}'
  dialoq work schedule add weekly reports @weekly --missed skip --paused")]
struct Add {
    /// The name of the schedule.
    name: String,
    /// The work queue that gets the jobs.
    queue: String,
    /// When: minute hour day-of-month month day-of-week, or @hourly, @daily, @weekly, @monthly, @yearly.
    cron: String,
    /// Whose clocks the line means, such as Europe/Berlin. Without it, UTC.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// The type of the jobs.
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// The key of the jobs.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The level of the jobs, 1 (low) to 10 (high).
    #[arg(long, value_name = "N")]
    level: Option<i64>,
    /// The body of the jobs; {time} in it becomes the time that fired.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Times that passed while no process ran the broker: once gives one job for all of them, skip none, all one for each of
    /// the last 1000.
    #[arg(long, value_name = "HOW", value_parser = ["once", "skip", "all"])]
    missed: Option<String>,
    /// Make it paused.
    #[arg(long)]
    paused: bool,
}

#[derive(Debug, Args)]
struct Named {
    /// The name of the schedule.
    name: String,
}

/// Print the coming times of a schedule, or of a line that is no schedule yet.
///
/// Of a paused schedule, which fires at none of them, standard error says so; with --json each line has `is_paused`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work schedule next nightly --count 10
  dialoq work schedule next --cron '*/15 8-18 * * MON-FRI' --time-zone Europe/Berlin")]
struct Next {
    /// The name of the schedule.
    #[arg(required_unless_present = "cron", conflicts_with = "cron")]
    name: Option<String>,
    /// A cron line; no broker is asked.
    #[arg(long, value_name = "LINE")]
    cron: Option<String>,
    /// The time zone of the line.
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "cron", conflicts_with = "name")]
    time_zone: String,
    /// How many times.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

impl Schedule {
    /// Whether it changes nothing.
    pub(super) fn looks_only(&self) -> bool {
        matches!(self.command, Command::List | Command::Next(_))
    }

    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        match &self.command {
            Command::List => list(globals, output).await,
            Command::Add(add) => {
                let added = format!("added work schedule '{}'", printable_name(&add.name));
                change(globals, output, add.definition(), &add.name, "added", &added).await
            }
            Command::Drop(Named { name }) => {
                let drop = Definition::DropWorkSchedule { name: name.clone() };
                let dropped = format!("dropped work schedule '{}'", printable_name(name));
                change(globals, output, drop, name, "dropped", &dropped).await
            }
            Command::Pause(Named { name }) => set_status(globals, output, name, false).await,
            Command::Resume(Named { name }) => set_status(globals, output, name, true).await,
            Command::Next(next) => next.run(globals, output).await,
        }
    }
}

impl Add {
    fn definition(&self) -> Definition {
        let Self { name, queue, cron, time_zone, job_type, key, level, body, missed, paused } = self;
        let missed = missed.as_deref().and_then(|word| {
            Missed::ALL.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, missed)| missed)
        });
        let options = WorkScheduleOptions {
            cron: Some(cron.clone()),
            time_zone: time_zone.clone(),
            missed,
            job_type: job_type.clone(),
            job_key: key.clone(),
            level: *level,
            body: body.clone(),
            status: paused.then_some(false),
        };
        Definition::CreateWorkSchedule { name: name.clone(), queue: queue.clone(), options }
    }
}

impl Next {
    async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let count = usize::from(self.count);
        let mut is_paused = false;
        let (times, zone) = match (&self.name, &self.cron) {
            (Some(name), _) => {
                let broker = globals.open_read_only().await?;
                let all = broker.work_schedules().await?;
                let found =
                    all.into_iter().find(|schedule| schedule.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
                        let text =
                            format!("work schedule '{name}' does not exist; dialoq work schedule list shows all");
                        Error::new(Code::OBJECT_NOT_FOUND, text)
                    })?;
                is_paused = !found.is_enabled;
                if is_paused && !output.json {
                    let name = printable_name(&found.name);
                    output.warning(&format!("schedule '{name}' is paused: it fires at none of these times"));
                }
                let now = broker.clock().now();
                // A time that is over and has not fired yet is still to come.
                let from = found.next_at.map_or(now, |next| Timestamp(next.0 - 1));
                (coming_times(&found.cron, &found.time_zone, from, count)?, found.time_zone)
            }
            (None, line) => {
                let now = dialoq::Clock::system().now();
                let line = line.as_deref().unwrap_or_default();
                (coming_times(line, &self.time_zone, now, count)?, self.time_zone.clone())
            }
        };
        match output.json {
            true => times.iter().try_for_each(|at| {
                output.json(&json!({ "at": at, "local": local(*at, &zone), "is_paused": is_paused }))
            }),
            false => times.iter().try_for_each(|at| output.text(&local(*at, &zone))),
        }
    }
}

async fn list(globals: &Globals, output: &Output) -> Result<(), Failure> {
    let schedules = globals.open_read_only().await?.work_schedules().await?;
    if output.json {
        return schedules.iter().try_for_each(|schedule| output.json(schedule));
    }
    if schedules.is_empty() {
        return output.text("no schedule is defined");
    }
    let row = |schedule: &WorkScheduleStatus| {
        let WorkScheduleStatus { name, queue, cron, time_zone, missed, next_at, last_at, .. } = schedule;
        let time = |at: Option<Timestamp>| at.map(|at| local(at, time_zone));
        let row = [
            printable_name(name).into_owned(),
            printable_name(queue).into_owned(),
            printable_name(cron).into_owned(),
            time_zone.clone(),
            time(*next_at).unwrap_or_else(|| "paused".to_owned()),
            time(*last_at).unwrap_or_default(),
            missed.clone(),
        ];
        row.map(Cell::new).to_vec()
    };
    let headings = ["schedule", "work queue", "cron", "time zone", "next", "last", "missed"];
    // In a narrow terminal first goes what happens to missed times, then the last time and the zone.
    output.text(&fitting(&headings, &[6, 5, 3], &schedules.iter().map(row).collect::<Vec<_>>()).to_string())
}

async fn set_status(globals: &Globals, output: &Output, name: &str, is_on: bool) -> Result<(), Failure> {
    let options = WorkScheduleOptions { status: Some(is_on), ..WorkScheduleOptions::default() };
    let state = if is_on { "resumed" } else { "paused" };
    let alter = Definition::AlterWorkSchedule { name: name.to_owned(), options };
    change(globals, output, alter, name, state, &format!("{state} work schedule '{}'", printable_name(name))).await
}

async fn change(
    globals: &Globals,
    output: &Output,
    definition: Definition,
    name: &str,
    state: &str,
    done: &str,
) -> Result<(), Failure> {
    let broker = globals.open().await?;
    let applied = broker.apply(vec![definition]).await;
    close_after(&broker, applied).await?;
    match output.json {
        true => output.result_json(&json!({ "schedule": name, "status": state })),
        false => output.result(done),
    }
}

/// A time as the clocks of a zone show it.
fn local(at: Timestamp, zone: &str) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0).ok();
    let zone = TimeZoneDatabase::bundled().get(zone).ok();
    match (time, zone) {
        (Some(time), Some(zone)) => time.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
        _ => at.to_string(),
    }
}
