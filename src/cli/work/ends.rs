//! The ends of attempts that did not complete their jobs, as lines of the command.
//!
//! A thread of its own writes them: a write waits for as long as the reader of a pipe does not read, and the threads that drive tasks
//! have readers and leases to look after.

use crate::cli::failure::Failure;
use crate::cli::interrupt::Interrupt;
use crate::cli::output::{Output, printable};
use dialoq::JobId;
use dialoq::internals::AttemptEnd;
use dialoq::work::Job;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Lines that wait to be written; what comes while there are as many is counted only.
const MOST_UNWRITTEN: usize = 1024;

/// How long a command that stops waits for them.
const LAST_LINES: Duration = Duration::from_secs(2);

/// What becomes of the ends of attempts.
#[derive(Clone)]
pub(super) struct Ends {
    lines: mpsc::Sender<Line>,
    missed: Arc<AtomicU64>,
}

/// Ends when all lines are written whose senders are gone.
pub(super) struct Written(oneshot::Receiver<()>);

struct Line {
    event: &'static str,
    /// The same in a sentence.
    has: &'static str,
    job: JobId,
    attempt: u16,
    why: String,
}

impl Ends {
    /// Starts the thread.
    pub(super) fn written_by_a_thread(is_json: bool, interrupt: &Interrupt) -> Result<(Self, Written), Failure> {
        let output = Output::new(is_json);
        output.stops_by(interrupt)?;
        let (lines, mut waiting) = mpsc::channel::<Line>(MOST_UNWRITTEN);
        let (is_over, over) = oneshot::channel();
        let ends = Self { lines, missed: Arc::default() };
        let missed = ends.missed.clone();
        let started = std::thread::Builder::new().spawn(move || {
            while let Some(line) = waiting.blocking_recv() {
                say(&output, &line);
                match missed.swap(0, Relaxed) {
                    0 => {}
                    number => say_missed(&output, number),
                }
            }
            let _ = is_over.send(());
        });
        started.map_err(|error| Failure::input(format!("no thread for the output can be started: {error}")))?;
        Ok((ends, Written(over)))
    }

    /// Hands a line to the thread.
    pub(super) fn note(&self, job: &Job, end: AttemptEnd<'_>) {
        let (event, has, why) = match end {
            AttemptEnd::Failed(why) => ("failed", "failed", why.to_owned()),
            AttemptEnd::Lost(error) => ("lost", "was lost", error.to_string()),
            AttemptEnd::Unreported(error) => ("unreported", "has ended and could not be reported", error.to_string()),
        };
        let line = Line { event, has, job: job.taken.job, attempt: job.attempt, why };
        if self.lines.try_send(line).is_err() {
            self.missed.fetch_add(1, Relaxed);
        }
    }
}

impl Written {
    /// Waits for the last lines, but not for a reader that does not read.
    pub(super) async fn wait(self) {
        let _ = tokio::time::timeout(LAST_LINES, self.0).await;
    }
}

fn say(output: &Output, line: &Line) {
    let Line { event, has, job, attempt, why } = line;
    match output.json {
        true => say_event(output, &json!({ "event": event, "job": job, "attempt": attempt, "why": why })),
        false => output.note(&format!("job {job}: attempt {attempt} {has}: {}", printable(why))),
    }
}

fn say_missed(output: &Output, number: u64) {
    match output.json {
        true => say_event(output, &json!({ "event": "missed", "events": number })),
        false => output.note(&format!("{number} more attempts ended without completing their jobs")),
    }
}

/// One line of JSON on standard output; on a full disk, or without a reader, it goes to standard error. A stop gives up what is not read.
pub(super) fn say_event(output: &Output, event: &Value) {
    match output.json(event) {
        Ok(()) | Err(Failure::NotRead) => {}
        Err(_) => output.note(&event.to_string()),
    }
}
