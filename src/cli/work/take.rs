//! `dialoq work take`

use crate::cli::failure::Failure;
use crate::cli::globals::{Globals, close_after, parse_span};
use crate::cli::lines::were;
use crate::cli::output::{Output, printable, printable_name, reader_has_gone, shortened, table};
use clap::Args;
use dialoq::internals::jsonl::{BodyText, to_base64};
use dialoq::work::Job;
use dialoq::{Act, Broker};
use serde_json::{Value, json};
use std::time::Duration;

/// Take jobs that are ready, and print them.
///
/// A taken job is held by a lease; report it with `dialoq work complete` or `fail`, by its id and token. Ends with exit
/// code 3 if no job came in time.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work take emails
  dialoq work take emails --count 10 --type welcome --lease 5m --json
  dialoq work take emails --pop --wait 1m          completed by the taking itself")]
pub(super) struct Take {
    /// The work queue.
    queue: String,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Only jobs of this type.
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// How long they are held: 5, 5s, 250ms, 2m, 1h; without it, the LEASE_MS of the queue.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, conflicts_with = "pop")]
    lease: Option<Duration>,
    /// Completed by the taking itself. A job that is popped and not printed is lost: use a lease if it matters.
    #[arg(long)]
    pop: bool,
    /// How long to wait for a job. Without it, not at all.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    wait: Option<Duration>,
    /// The name of the reader in statistics.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Take {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let mut take = broker.take_jobs(&self.queue).count(self.count);
        if let Some(job_type) = &self.job_type {
            take = take.job_type(job_type.as_str());
        }
        if let Some(lease) = self.lease {
            take = take.lease(lease);
        }
        if self.pop {
            take = take.pop();
        }
        if let Some(name) = &self.name {
            take = take.taken_by(name.as_str());
        }
        if let Some(wait) = self.wait {
            take = take.wait(wait);
        }
        // Printed before anything else can fail: a job that was popped is nowhere else.
        let done = tokio::select! {
            biased;
            // A job that cannot be printed would be lost, or have a failed attempt at the end of its lease.
            () = reader_has_gone() => Err(Failure::BrokenPipe),
            taken = async { take.await } => match taken {
                Ok(jobs) if jobs.is_empty() => Err(Failure::Nothing(self.why_none(&broker))),
                Ok(jobs) => {
                    let taken = format!("{} taken", were(jobs.len() as u64, "job"));
                    self.print(output, &jobs).map_err(|failure| failure.after(&taken))
                }
                Err(error) => Err(error.into()),
            },
        };
        // Said before ctrl-C drops the close.
        if let Err(Failure::Interrupted(_)) = done {
            return done;
        }
        close_after(&broker, done).await
    }

    fn why_none(&self, broker: &Broker) -> String {
        match broker.catalog().work_queue(&self.queue) {
            Some(queue) if !queue.settings.is_enabled => super::paused(&self.queue),
            _ => format!("no job is ready in work queue '{}'", printable(&self.queue)),
        }
    }

    fn print(&self, output: &Output, jobs: &[Job]) -> Result<(), Failure> {
        if output.json {
            return jobs.iter().try_for_each(|job| output.json(&line(job)));
        }
        let mut table = table(&["#job", "#token", "#attempt", "type", "key", "body"]);
        for job in jobs {
            table.add_row([
                job.taken.job.to_string(),
                job.taken.token.to_string(),
                job.attempt.to_string(),
                printable_name(&job.job_type).into_owned(),
                printable_name(job.key.as_deref().unwrap_or_default()).into_owned(),
                shown(job),
            ]);
        }
        output.text(&table.to_string())
    }
}

/// A job as a line of JSON: its columns, and `body` or `body_base64`.
pub(super) fn line(job: &Job) -> Value {
    let mut line = serde_json::to_value(job).unwrap_or_default();
    if let Value::Object(columns) = &mut line {
        match BodyText::of(job.body.as_deref()) {
            BodyText::Absent => columns.insert("body".to_owned(), Value::Null),
            BodyText::Text(text) => columns.insert("body".to_owned(), json!(text)),
            BodyText::Utf16(..) | BodyText::Binary(_) => {
                columns.insert("body_base64".to_owned(), json!(to_base64(job.body())))
            }
        };
    }
    line
}

fn shown(job: &Job) -> String {
    match BodyText::of(job.body.as_deref()) {
        BodyText::Absent => String::new(),
        BodyText::Text(text) => shortened(&printable(text), 1_000),
        BodyText::Utf16(text, _) => shortened(&printable(&text), 1_000),
        BodyText::Binary(bytes) => format!("{} bytes: {}", bytes.len(), shortened(&to_base64(bytes), 200)),
    }
}
