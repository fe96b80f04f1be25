//! `dialoq activate`

mod report;

use super::failure::{Failure, without_path};
use super::globals::{Globals, parse_span, parse_time_to_work};
use super::interrupt::Interrupt;
use super::obstacles::Obstacles;
use super::output::Output;
use clap::{Args, ValueEnum};
use dialoq::activation::{Mode, Program, Ramp};
use dialoq::internals::ErrorConstructors;
use dialoq::{Broker, Error};
use report::Report;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Run a program whenever there is work in a queue.
///
/// Readers are launched while messages wait, never more than --max-queue-readers, and leave when nothing comes. Each
/// message is handed to the program in a transaction of its own. With --mode message the program is run once for each:
/// the message is one line of JSON on its standard input, exit code 0 commits, any other rolls back. With --mode stream
/// it is run once for each reader and answers each line by lines of its own, the last of which is {"commit": true} or
/// {"rollback": "why"}. In both modes lines on its standard output are replies, done in the same transaction:
/// {"send": {"type": "...", "body": ...}}, {"end": true}, {"end_error": {"code": 1, "description": "..."}},
/// {"timer": {"seconds": 60}}. The reader holds the conversation group of the message meanwhile: `dialoq send` or `dialoq end` on that
/// conversation, called by the program, would wait for its own reader for ever.
///
/// Runs until ctrl-C or SIGTERM; readers then finish what is in hand. A second one ends them at once, and what they had in
/// hand stays in the queue.
///
/// Standard error tells what is waited for, each reader's start and end, each rollback, and when the queue is turned off or
/// on, or dropped; a terminal has a line with counts and rates, a log a line every 10 s in which something was done; and once a minute
/// why no message can be received, as while the server is away. With --json standard output has one event a line: waiting,
/// started, ended, failed, launch_failed, cannot_receive, queue_off, queue_on, queue_dropped, counts, stopped.
///
/// If an embedded store takes nothing more, as after a commit that failed for another reason than a full disk, it ends with exit code 1: start it
/// again to open the store.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq activate orders --exec ./worker
  dialoq activate orders --exec ./worker --max-queue-readers 4 --mode stream
  dialoq activate orders --exec ./worker --json | jq 'select(.event == \"failed\")'
  dialoq activate orders --exec sh --raw-body -- -c 'cat >> bodies.txt'")]
pub(super) struct Activate {
    /// The queue.
    queue: String,
    /// The program: a path, or a name that is looked up in PATH.
    #[arg(long, value_name = "PROGRAM")]
    exec: OsString,
    /// Its arguments, after --.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
    /// The most readers at a time [default: what the queue's ACTIVATION clause says, or 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32767))]
    max_queue_readers: Option<u16>,
    /// How the program is run.
    #[arg(long, value_name = "MODE", default_value = "message")]
    mode: RunMode,
    /// Hand over the bare body instead of a line of JSON; with --mode message only.
    #[arg(long)]
    raw_body: bool,
    /// Hand over EndDialog and Error messages too, instead of answering them by END CONVERSATION.
    #[arg(long)]
    system_messages: bool,
    /// Roll back if the program sends to a side that has ended (8429), instead of dropping what it sends with a warning.
    #[arg(long)]
    fail_on_ended_peer: bool,
    /// The longest the program may take for one message; then it is killed and the message rolled back.
    #[arg(long, value_name = "SPAN", value_parser = parse_time_to_work)]
    timeout: Option<Duration>,
    /// How the number of readers grows while there is more work than they can do.
    #[arg(long, value_name = "RAMP", default_value = "service-broker")]
    ramp: Growth,
    /// A reader that finds nothing for so long leaves [default: 500ms].
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    idle_wait: Option<Duration>,
}

/// How often the definitions are asked whether the queue is there.
const CHECK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunMode {
    /// Once for each message.
    Message,
    /// Once for each reader, with a line for each message.
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Growth {
    /// One more reader each 5 s.
    ServiceBroker,
    /// As many as there are conversation groups to serve, at once.
    Fast,
}

impl Activate {
    pub(super) async fn run(
        &self,
        globals: &Globals,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        if self.raw_body && self.mode == RunMode::Stream {
            return Err(Failure::Usage("--raw-body is for --mode message: a stream needs lines".to_owned()));
        }
        let program = self.program();
        program.check().map_err(|error| without_path(error, &self.exec))?;
        let broker = globals.open_service(interrupt).await?;
        if broker.catalog().queue(&self.queue).is_none() {
            broker.close().await?;
            return Err(Error::object_not_found("queue", &self.queue).into());
        }
        self.serve(&broker, program, output, interrupt).await
    }

    async fn serve(
        &self,
        broker: &Broker,
        program: Program,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        let ramp = match self.ramp {
            Growth::ServiceBroker => Ramp::ServiceBroker,
            Growth::Fast => Ramp::Fast,
        };
        let mut activate = broker.activate(self.queue.as_str(), program).ramp(ramp);
        if let Some(readers) = self.max_queue_readers {
            activate = activate.max_queue_readers(readers);
        }
        let queue = broker.catalog().queue(&self.queue).cloned();
        let clause = queue.as_ref().and_then(|queue| queue.activation.clone());
        let declared = clause.as_ref().map(|clause| clause.max_queue_readers);
        let is_activation_on = clause.is_none_or(|clause| clause.is_enabled);
        let is_on = queue.is_some_and(|queue| queue.is_receive_enabled) && broker.catalog().settings.is_broker_enabled;
        let mut report = Report::new(output, &self.queue);
        report.waiting(self.max_queue_readers.or(declared).unwrap_or(1), is_on, is_activation_on);
        let readers = activate.start();
        let mut events = readers.events();
        let interval = report.interval();
        let mut due = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Other processes may have failed the store that this one owns, and no reader of this one meets that while it is idle.
        let mut failed = std::pin::pin!(broker.failed());
        let mut obstacles = Obstacles::of(broker);
        let stopped = loop {
            tokio::select! {
                biased;
                () = interrupt.requested() => break None,
                error = &mut failed => break Some(Err(error.into())),
                event = events.next() => match event {
                    Some(event) => report.event(&event),
                    None => break Some(Ok(())),
                },
                why = obstacles.next() => report.cannot_receive(&why),
                _ = check.tick() => report.checked(broker.catalog().queue(&self.queue).is_some()),
                // It may ask a store that hangs; ctrl-C does not wait for it.
                _ = due.tick() => tokio::select! {
                    () = interrupt.requested() => break None,
                    served = readers.served() => report.counts(served),
                },
            }
        };
        let running = broker.activated_tasks().len();
        if running > 0 {
            let (what, them) = match running {
                1 => ("1 reader finishes".to_owned(), "it"),
                _ => (format!("{running} readers finish"), "them"),
            };
            report.note(&format!("stopping: {what} the current messages; ctrl-C ends {them} at once"));
        }
        tokio::select! {
            () = readers.stop() => {}
            () = interrupt.requested_times(2) => {
                // Not even the broker is closed: as after a crash, what is in hand was never received.
                let done = report.stopped();
                return Err(Failure::Interrupted(format!("{done}; stopped at once, what was in hand stays in the queue")));
            }
        }
        while let Some(event) = events.next().await {
            report.event(&event);
        }
        broker.close().await?;
        let done = report.stopped();
        stopped.unwrap_or_else(|| Err(interrupt.after_the_work(done)))
    }

    fn program(&self) -> Program {
        let mode = match self.mode {
            RunMode::Message => Mode::Message,
            RunMode::Stream => Mode::Stream,
        };
        let mut program = Program::new(&self.exec).args(&self.arguments).mode(mode);
        if self.raw_body {
            program = program.raw_body();
        }
        if self.system_messages {
            program = program.system_messages();
        }
        if self.fail_on_ended_peer {
            program = program.fail_on_ended_peer();
        }
        if let Some(timeout) = self.timeout {
            program = program.timeout(timeout);
        }
        if let Some(wait) = self.idle_wait {
            program = program.idle_wait(wait);
        }
        program
    }
}
