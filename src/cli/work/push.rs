//! `dialoq work push`

use crate::cli::failure::Failure;
use crate::cli::globals::{Globals, parse_span};
use crate::cli::output::Output;
use clap::Args;
use dialoq::work::{PushJob, Pushed};
use dialoq::{Act, Tx};
use serde_json::json;
use std::io::BufRead;
use std::time::Duration;

/// The most lines of one commit.
const LINES_AT_ONCE: usize = 1000;

/// Put jobs into a work queue.
///
/// Without BODY, each line of standard input is the body of a job; up to 1000 lines are one commit. Prints the id of each
/// job. A job whose unique key is taken is not pushed again; its id is printed as that of the job that is there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work push emails '{\"to\":\"ann@example.org\"}' --type welcome
  dialoq work push reports nightly --after 2h --unique nightly
  cat jobs.jsonl | dialoq work push emails --key tenant-7")]
pub(super) struct Push {
    /// The work queue.
    queue: String,
    /// The body of the job.
    body: Option<String>,
    /// The type of the job, by which readers may choose.
    #[arg(long = "type", value_name = "TYPE", default_value = "")]
    job_type: String,
    /// The key whose jobs keep their order, where the queue limits jobs by key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// 1 (low) to 10 (high), for queues of ORDER = PRIORITY.
    #[arg(long, value_name = "LEVEL", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=10))]
    level: u8,
    /// Ready so long from now: 5, 5s, 250ms, 2m, 1h, 7d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    after: Option<Duration>,
    /// Push only if no job of this name is in the queue.
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// Push only if no job of that name was pushed within this time, whatever became of it.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, requires = "unique")]
    unique_for: Option<Duration>,
}

impl Push {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let done = async {
            if let Some(body) = &self.body {
                let pushed = self.options(broker.push_job(&self.queue, body)).await?;
                return print(output, pushed);
            }
            let mut lines = std::io::stdin().lock().lines();
            loop {
                let tx = broker.begin().await?;
                let pushed = self.lines(&tx, &mut lines).await?;
                let is_last = pushed.len() < LINES_AT_ONCE;
                tx.commit().await?;
                pushed.into_iter().try_for_each(|pushed| print(output, pushed))?;
                if is_last {
                    return Ok(());
                }
            }
        };
        let done = done.await;
        broker.close().await?;
        done
    }

    async fn lines(
        &self,
        tx: &Tx,
        lines: &mut impl Iterator<Item = std::io::Result<String>>,
    ) -> Result<Vec<Pushed>, Failure> {
        let mut pushed = Vec::new();
        for line in lines.take(LINES_AT_ONCE) {
            let line = line.map_err(|error| Failure::file("read", "standard input", error))?;
            pushed.push(self.options(tx.push_job(&self.queue, &line)).await?);
        }
        Ok(pushed)
    }

    fn options<'a>(&self, push: PushJob<'a>) -> PushJob<'a> {
        let mut push = push.job_type(self.job_type.as_str()).level(self.level);
        if let Some(key) = &self.key {
            push = push.key(key.as_str());
        }
        if let Some(after) = self.after {
            push = push.run_after(after);
        }
        match (&self.unique, self.unique_for) {
            (Some(key), None) => push.unique(key.as_str()),
            (Some(key), Some(window)) => push.unique_within(key.as_str(), window),
            (None, _) => push,
        }
    }
}

fn print(output: &Output, pushed: Pushed) -> Result<(), Failure> {
    if output.json {
        return output.json(&json!({ "job": pushed.job, "is_new": pushed.is_new }));
    }
    output.text(&match (pushed.job, pushed.is_new) {
        (Some(job), true) => format!("job {job}"),
        (Some(job), false) => format!("not pushed: job {job} has this unique key"),
        (None, _) => "not pushed: a job of this unique key was pushed within its window".to_owned(),
    })
}
