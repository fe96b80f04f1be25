//! What the readers of `work run` meet other than jobs that were completed, as lines of the command.
//!
//! A thread of its own writes them: a write waits for as long as the reader of a pipe does not read, and the threads that drive tasks
//! have readers and leases to look after.

use crate::cli::failure::Failure;
use crate::cli::interrupt::Interrupt;
use crate::cli::output::{Output, printable};
use dialoq::JobId;
use dialoq::internals::WorkerEvent;
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

/// Where the lines go.
#[derive(Clone)]
pub(super) struct Lines {
    lines: mpsc::Sender<Line>,
    missed: Arc<AtomicU64>,
}

/// Ends when all lines are written whose senders are gone.
pub(super) struct Written(oneshot::Receiver<()>);

enum Line {
    /// An attempt has ended without completing its job.
    End {
        event: &'static str,
        has: &'static str,
        job: JobId,
        attempt: u16,
        why: String,
    },
    /// No job can be taken.
    NoTake(String),
    /// The end of a job cannot be reported yet.
    NoReport(JobId, String),
    Warning(String),
    Note(String),
}

impl Lines {
    /// Starts the thread.
    pub(super) fn written_by_a_thread(is_json: bool, interrupt: &Interrupt) -> Result<(Self, Written), Failure> {
        let output = Output::new(is_json);
        output.stops_by(interrupt)?;
        let (sender, mut waiting) = mpsc::channel::<Line>(MOST_UNWRITTEN);
        let (is_over, over) = oneshot::channel();
        let lines = Self { lines: sender, missed: Arc::default() };
        let missed = lines.missed.clone();
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
        Ok((lines, Written(over)))
    }

    pub(super) fn event(&self, event: WorkerEvent<'_>) {
        let end = |event, has, job: &Job, why| Line::End { event, has, job: job.taken.job, attempt: job.attempt, why };
        self.hand_over(match event {
            WorkerEvent::Failed(job, why) => end("failed", "failed", job, why.to_owned()),
            WorkerEvent::Lost(job, error) => end("lost", "was lost", job, error.to_string()),
            WorkerEvent::Unreported(job, error) => {
                end("unreported", "has ended and could not be reported", job, error.to_string())
            }
            // Here no handler blocks a thread: the process was stopped, and what came of it is an event of its own.
            WorkerEvent::HeldUp(..) => return,
            WorkerEvent::NoTake(error) => Line::NoTake(error.to_string()),
            WorkerEvent::NoReport(job, error) => Line::NoReport(job.taken.job, error.to_string()),
        });
    }

    pub(super) fn warning(&self, text: String) {
        self.hand_over(Line::Warning(text));
    }

    pub(super) fn note(&self, text: &str) {
        self.hand_over(Line::Note(text.to_owned()));
    }

    fn hand_over(&self, line: Line) {
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
    match line {
        Line::End { event, job, attempt, why, .. } if output.json => {
            say_event(output, &json!({ "event": event, "job": job, "attempt": attempt, "why": why }));
        }
        Line::End { has, job, attempt, why, .. } => {
            output.note(&format!("job {job}: attempt {attempt} {has}: {}", printable(why)));
        }
        Line::NoTake(why) if output.json => say_event(output, &json!({ "event": "cannot_take", "why": why })),
        Line::NoTake(why) => output.warning(&format!("no job can be taken: {why}; trying again")),
        Line::NoReport(job, why) if output.json => {
            say_event(output, &json!({ "event": "cannot_report", "job": job, "why": why }));
        }
        Line::NoReport(job, why) => {
            output.warning(&format!("the end of job {job} cannot be reported: {why}; trying again"));
        }
        Line::Warning(text) => output.warning(text),
        Line::Note(text) => output.note(text),
    }
}

fn say_missed(output: &Output, number: u64) {
    match output.json {
        true => say_event(output, &json!({ "event": "missed", "events": number })),
        false => output.note(&format!("{number} more lines were not written, because these were not read")),
    }
}

/// One line of JSON on standard output; on a full disk, or without a reader, it goes to standard error. A stop gives up what is not read.
pub(super) fn say_event(output: &Output, event: &Value) {
    match output.json(event) {
        Ok(()) | Err(Failure::NotRead) => {}
        Err(_) => output.note(&event.to_string()),
    }
}
