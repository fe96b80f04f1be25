//! `dialoq work push`

use crate::cli::failure::Failure;
use crate::cli::globals::{Globals, close_after, parse_span};
use crate::cli::interrupt::Interrupt;
use crate::cli::lines::{LineWork, has_ended, read_lines, were};
use crate::cli::output::{Output, counted, printable};
use crate::cli::read_ahead::ReadAhead;
use clap::Args;
use dialoq::internals::ErrorConstructors;
use dialoq::work::{PushJob, Pushed};
use dialoq::{Act, Broker, Error, Result};
use serde_json::json;
use std::io::IsTerminal;
use std::time::Duration;

/// The most lines of one commit, and the bytes after which it takes no further line.
const LINES_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 8 << 20;

const PUSHES: LineWork = LineWork { thing: "job", done: "pushed" };

/// Put jobs into a work queue.
///
/// Without BODY, each line of standard input is the body of a job, an empty line that of a job without content. Lines that have come are
/// pushed without waiting for more, up to 1000 or 8 MiB in one commit; ctrl-C ends it and says how many jobs were pushed. At the first
/// line that is refused, the lines before it are pushed and nothing from it on. Prints the id of each job. A job whose unique key is
/// taken is not pushed again; its id is printed as that of the job that is there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work push emails '{\"to\":\"ann@example.org\"}' --type welcome
  dialoq work push reports nightly --after 2h --unique nightly
  cat jobs.jsonl | dialoq work push emails --key tenant-7")]
pub(super) struct Push {
    /// The work queue.
    queue: String,
    /// The body of the job; the body - comes from standard input only, as a line.
    #[arg(value_parser = parse_body)]
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

/// In other commands a dash is standard input; as a body it made a job of one character, and the input was not read.
fn parse_body(text: &str) -> Result<String, String> {
    match text {
        "-" => Err("without BODY each line of standard input is a body, also the line -".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

impl Push {
    pub(super) async fn run(
        &self,
        globals: &Globals,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        let broker = globals.open_unless(interrupt).await?;
        let done = match &self.body {
            Some(body) => {
                let push = async {
                    let pushed = self.options(broker.push_job(&self.queue, body)).await?;
                    let done = format!("{} pushed", were(u64::from(pushed.is_new), "job"));
                    print(output, pushed).map_err(|failure| failure.after(&done))
                };
                interrupt.stops_change(push).await
            }
            None => self.lines(&broker, output, interrupt).await,
        };
        close_after(&broker, done).await
    }

    /// The lines that have come are one commit, so that no transaction waits for the next one.
    async fn lines(&self, broker: &Broker, output: &Output, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let mut lines = standard_input();
        let mut jobs = 0;
        // The reader of the output has gone, which is no reason not to push.
        let mut is_output_gone = false;
        loop {
            let first = tokio::select! {
                biased;
                () = interrupt.requested() => {
                    return Err(Failure::Interrupted(format!("interrupted; pushed {}", counted(jobs, "job"))));
                }
                line = lines.recv() => line,
            };
            let Some(first) = first else { return Ok(()) };
            let (first_number, mut last_number) = (first.number, first.number);
            let (mut next, mut pushed, mut refused, mut bytes) = (Some(first), Vec::new(), None, 0);
            // Before its commit ctrl-C takes all of it back.
            let filled = async {
                let tx = broker.begin().await?;
                while let Some(Line { number, text }) = next {
                    bytes += text.as_ref().map_or(0, String::len);
                    let push = match text {
                        Ok(text) => self.options(tx.push_job(&self.queue, &text)).await,
                        Err(error) => Err(error),
                    };
                    match push {
                        Ok(done) => {
                            last_number = number;
                            pushed.push(done);
                        }
                        Err(error) if has_ended(&tx).await => {
                            last_number = number;
                            return Err(error);
                        }
                        Err(error) => {
                            refused = Some(refusal(number, &error));
                            break;
                        }
                    }
                    let has_room = pushed.len() < LINES_AT_ONCE && bytes < BYTES_AT_ONCE;
                    next = if has_room { lines.try_recv() } else { None };
                }
                Ok::<_, Error>(tx)
            };
            let filled = interrupt.unless_requested(filled).await;
            let lost = |error, is_of_commit| {
                let lines = (format!("line {first_number}"), format!("line {last_number}"));
                PUSHES.lost(error, is_of_commit, lines, jobs)
            };
            let Some(tx) = filled.map_err(|error| lost(error, false))? else {
                return Err(Failure::Interrupted(format!("interrupted; pushed {}", counted(jobs, "job"))));
            };
            if !pushed.is_empty() {
                let Some(committed) = interrupt.finishes(tx.commit()).await else {
                    return Err(Failure::cut_off(&format!("pushed {}", counted(jobs, "job"))));
                };
                committed.map_err(|error| lost(error, true))?;
            }
            jobs += pushed.iter().filter(|pushed| pushed.is_new).count() as u64;
            let pushed_in_all = format!("{} pushed", were(jobs, "job"));
            for pushed in pushed {
                match if is_output_gone { Ok(()) } else { print(output, pushed) } {
                    Err(Failure::BrokenPipe) => is_output_gone = true,
                    printed => printed.map_err(|failure| failure.after(&pushed_in_all))?,
                }
            }
            if let Some(refused) = refused {
                return Err(refused.into());
            }
        }
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

/// A line of standard input, or why it cannot be read.
struct Line {
    /// From 1.
    number: u64,
    text: Result<String>,
}

/// The lines of standard input, without their ends.
fn standard_input() -> ReadAhead<Line> {
    if std::io::stdin().is_terminal() {
        Output::new(false).note("reading jobs from standard input, one line each; ctrl-D ends, --help says more");
    }
    ReadAhead::new(LINES_AT_ONCE, |reading| {
        read_lines(std::io::stdin().lock(), |number, line| {
            let text = line.map(|line| {
                let line = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
                let mark = if number == 1 { "\u{feff}" } else { "" };
                line.strip_prefix(mark).unwrap_or(line).to_owned()
            });
            let bytes = text.as_ref().map_or(0, String::len);
            reading.pass_on(Line { number, text }, bytes)
        });
    })
}

fn refusal(line: u64, error: &Error) -> Error {
    let before = if line == 1 { "nothing was pushed" } else { "what stands before it was pushed, nothing else" };
    let why = printable(error.message());
    Error::new(error.code(), format!("line {line} of standard input: {why}; {before}"))
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
