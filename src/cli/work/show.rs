//! `dialoq work list`, `show` and `stats`

use super::{Filter, parse_job};
use crate::cli::failure::Failure;
use crate::cli::globals::Globals;
use crate::cli::output::{
    Output, fitting, fitting_with_text, marked, printable, printable_name, shortened, span, table,
};
use clap::{Args, ValueEnum};
use comfy_table::Cell;
use dialoq::internals::finished_without_results;
use dialoq::internals::jsonl::{BodyText, to_base64};
use dialoq::work::{FinishedJob, JobFilter, JobStatus, ShownState, Spread, StatisticsBy, WorkQueueStatus};
use dialoq::{Broker, JobId, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// List work queues, or their jobs.
///
/// Without a filter, every work queue with the number of its jobs by state; a narrow terminal leaves columns out, --json has
/// all. Readers are those that are activated. With one, the jobs that are not finished, the
/// first pushed first; with --finished, those that are. Reads only, so that it works while another process runs the
/// broker. A job is lost when its lease is over and its reader has reported nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work list
  dialoq work list emails --state dead --error timeout
  dialoq work list --taken-for 1h                  what may hang
  dialoq work list emails --finished --limit 20 --json")]
pub(super) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Jobs that are done or cancelled, of each queue the last one first.
    #[arg(long, conflicts_with_all = ["state", "error", "taken_for"])]
    finished: bool,
    /// At most so many jobs.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl List {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let now = broker.clock().now();
        let filter = self.filter.of(now);
        if self.finished {
            let most = self.limit.saturating_add(1);
            let mut jobs = match output.json {
                true => broker.finished_jobs(&filter, most).await?,
                false => finished_without_results(&broker, &filter, most).await?,
            };
            let has_more = self.leave(&mut jobs);
            finished(output, &jobs)?;
            return self.say_more(output, has_more);
        }
        if filter == JobFilter::default() {
            return queues(output, &broker).await;
        }
        let mut jobs = broker.jobs(&filter, self.limit.saturating_add(1)).await?;
        let has_more = self.leave(&mut jobs);
        if output.json {
            return jobs.iter().try_for_each(|job| output.json(job));
        }
        if jobs.is_empty() {
            return output.text("there is no such job");
        }
        let headings = ["#job", "queue", "type", "state", "#attempts", "#age", "taken by", "progress or last error"];
        let row = |job: &JobStatus| {
            vec![
                job.job.to_string(),
                printable_name(&job.queue).into_owned(),
                printable_name(&job.job_type).into_owned(),
                state(job, now),
                job.attempts.to_string(),
                span(now.since(job.pushed_at)),
                printable_name(job.taken_by.as_deref().unwrap_or_default()).into_owned(),
                note(job),
            ]
        };
        // In a narrow terminal first the reader goes, then the type, the attempts, the queue and the age.
        output.text(&fitting_with_text(&headings, &[6, 2, 4, 1, 5], jobs.iter().map(row).collect()).to_string())?;
        self.say_more(output, has_more)
    }

    /// Leaves as many as are asked for; whether there were more.
    fn leave<T>(&self, jobs: &mut Vec<T>) -> bool {
        let has_more = jobs.len() > self.limit as usize;
        jobs.truncate(self.limit as usize);
        has_more
    }

    fn say_more(&self, output: &Output, has_more: bool) -> Result<(), Failure> {
        match has_more && !output.json {
            true => output.text(&format!("and more; --limit shows more than {}", self.limit)),
            false => Ok(()),
        }
    }
}

/// The state; of a scheduled job also when it is due.
fn state(job: &JobStatus, now: Timestamp) -> String {
    match job.due_at.filter(|_| job.state == ShownState::Scheduled) {
        Some(due) => format!("{}, due in {}", job.state, span(due.since(now))),
        None => job.state.to_string(),
    }
}

fn note(job: &JobStatus) -> String {
    let is_taken = matches!(job.state, ShownState::Taken | ShownState::Lost);
    let text = if is_taken { &job.progress } else { &job.last_error };
    shortened(&printable(text.as_deref().unwrap_or_default()), 200)
}

async fn queues(output: &Output, broker: &Broker) -> Result<(), Failure> {
    let queues = broker.work_queues().await?;
    if output.json {
        return queues.iter().try_for_each(|queue| output.json(queue));
    }
    if queues.is_empty() {
        return output.text("no work queue is defined");
    }
    output.text(&queue_table(&queues))
}

/// Every work queue with the number of its jobs, for a terminal.
pub(in crate::cli) fn queue_table(queues: &[WorkQueueStatus]) -> String {
    let headings =
        ["work queue", "order", "#scheduled", "#ready", "#oldest", "#taken", "#lost", "#dead", "#finished", "#readers"];
    let row = |queue: &WorkQueueStatus| {
        let paused = if queue.is_enabled { "" } else { " (paused)" };
        vec![
            marked(format!("{}{paused}", printable_name(&queue.name)), !queue.is_enabled),
            Cell::new(&queue.order),
            Cell::new(queue.scheduled),
            Cell::new(queue.ready),
            Cell::new(queue.oldest_ready_ms.map_or(String::new(), |ms| span(Duration::from_millis(ms)))),
            Cell::new(queue.taken),
            marked(queue.lost.to_string(), queue.lost > 0),
            marked(queue.dead.to_string(), queue.dead > 0),
            Cell::new(queue.finished),
            Cell::new(queue.readers_running.map_or("–".to_owned(), |readers| readers.to_string())),
        ]
    };
    // In a narrow terminal first the order goes, then the finished jobs, the readers, the age, and those that are scheduled.
    fitting(&headings, &[1, 8, 9, 4, 2], &queues.iter().map(row).collect::<Vec<_>>()).to_string()
}

fn finished(output: &Output, jobs: &[FinishedJob]) -> Result<(), Failure> {
    if output.json {
        return jobs.iter().try_for_each(|job| output.json(&with_bytes(job, "result", job.result.as_deref())));
    }
    if jobs.is_empty() {
        return output.text("no such job has finished, or none is kept");
    }
    let row = |job: &FinishedJob| {
        let between = |from: Option<Timestamp>, to: Option<Timestamp>| match (from, to) {
            (Some(from), Some(to)) => exact(to.since(from)),
            _ => String::new(),
        };
        let row = [
            job.job.to_string(),
            printable_name(&job.queue).into_owned(),
            printable_name(&job.job_type).into_owned(),
            job.finished_as.to_string(),
            job.attempts.to_string(),
            between(Some(job.pushed_at), job.taken_at),
            between(job.taken_at, Some(job.finished_at)),
            printable_name(job.taken_by.as_deref().unwrap_or_default()).into_owned(),
        ];
        row.map(Cell::new).to_vec()
    };
    let headings = ["#job", "queue", "type", "finished as", "#attempts", "#to take", "#to complete", "taken by"];
    // In a narrow terminal first the reader goes, then the attempts, the type and the queue.
    output.text(&fitting(&headings, &[7, 4, 2, 1], &jobs.iter().map(row).collect::<Vec<_>>()).to_string())
}

/// A job with its content or its result, as text or as base64.
fn with_bytes(shown: &impl Serialize, name: &str, bytes: Option<&[u8]>) -> Value {
    let mut value = serde_json::to_value(shown).unwrap_or_default();
    if let Value::Object(columns) = &mut value {
        match BodyText::of(bytes) {
            BodyText::Absent => {}
            BodyText::Text(text) => drop(columns.insert(name.to_owned(), json!(text))),
            _ => drop(columns.insert(format!("{name}_base64"), json!(to_base64(bytes.unwrap_or_default())))),
        }
    }
    value
}

/// Show one job, finished or not, with all that is known of it: its content, or its result if it is finished.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work show 17")]
pub(super) struct Show {
    /// The job.
    #[arg(value_parser = parse_job)]
    job: JobId,
}

impl Show {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let filter = JobFilter { job: Some(self.job), ..JobFilter::default() };
        let value = match broker.jobs(&filter, 1).await?.first() {
            Some(job) => with_bytes(job, "body", broker.job_body(self.job).await?.as_deref()),
            None => match broker.finished_jobs(&filter, 1).await?.first() {
                Some(job) => with_bytes(job, "result", job.result.as_deref()),
                None => {
                    let text = format!("job {} is in no work queue and in no history", self.job);
                    return Err(Failure::Nothing(text));
                }
            },
        };
        if output.json {
            return output.json(&value);
        }
        let mut table = table(&["column", "value"]);
        for (name, value) in value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let text = match value {
                Value::String(text) => printable(text).into_owned(),
                other => other.to_string(),
            };
            table.add_row([name.clone(), shortened(&text, 1_000)]);
        }
        output.text(&table.to_string())
    }
}

/// Show how long completed jobs waited and took, over the history.
///
/// A job waits from its push to its last taking, and takes from there to its completion.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work stats
  dialoq work stats emails --by reader")]
pub(super) struct Stats {
    /// The work queue; without it, all of them.
    queue: Option<String>,
    /// What to group by.
    #[arg(long, value_enum, default_value_t = By::Queue)]
    by: By,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    Queue,
    Reader,
    Writer,
}

impl Stats {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let (by, heading) = match self.by {
            By::Queue => (StatisticsBy::Queue, "of"),
            By::Reader => (StatisticsBy::Reader, "reader"),
            By::Writer => (StatisticsBy::Writer, "writer"),
        };
        let statistics = broker.work_statistics(self.queue.as_deref(), by).await?;
        if output.json {
            return statistics.iter().try_for_each(|row| output.json(row));
        }
        if statistics.is_empty() {
            return output.text("no job has been completed yet, or none is kept");
        }
        let headings = ["work queue", heading, "#jobs", "", "#average", "#p50", "#p95", "#p99"];
        let mut rows = Vec::new();
        for row in &statistics {
            let name = match (self.by, row.name.as_str()) {
                (By::Queue, "") => "all",
                // A reader or a writer may have no name; "all" would make a total of its row.
                (_, "") => "–",
                (_, name) => name,
            };
            for (what, spread) in [("to take", row.to_take), ("to complete", row.to_complete)] {
                let Spread { average_us, p50_us, p95_us, p99_us } = spread;
                let mut cells = vec![
                    printable_name(&row.queue).into_owned(),
                    printable_name(name).into_owned(),
                    row.jobs.to_string(),
                    what.to_owned(),
                ];
                cells.extend([average_us, p50_us, p95_us, p99_us].map(|us| exact(Duration::from_micros(us))));
                rows.push(cells.into_iter().map(Cell::new).collect());
            }
        }
        // In a narrow terminal first the average goes, then p95 and the number of jobs.
        output.text(&fitting(&headings, &[4, 6, 2], &rows).to_string())
    }
}

/// A time of which thousandths count.
fn exact(time: Duration) -> String {
    let us = time.as_micros();
    match us {
        0..1_000_000 => format!("{}.{:03} ms", us / 1000, us % 1000),
        1_000_000..60_000_000 => format!("{}.{:03} s", us / 1_000_000, us / 1000 % 1000),
        _ => span(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_seconds_has_thousandths() {
        let texts =
            [7, 999_999, 1_000_000, 1_994_600, 59_999_999, 61_000_000].map(|us| exact(Duration::from_micros(us)));
        assert_eq!(texts, ["0.007 ms", "999.999 ms", "1.000 s", "1.994 s", "59.999 s", "1 min 1 s"]);
    }
}
