//! What `dialoq activate` says while it runs: notes, a live line in a terminal, counts in a log; or events as JSON.

use crate::cli::failure::Failure;
use crate::cli::output::{Output, counted, printable, printable_name};
use dialoq::activation::ReaderEvent;
use dialoq::internals::shell_command;
use dialoq::{Code, Error};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How often the live line changes.
const LIVE: Duration = Duration::from_millis(250);
/// How often counts go to a log, if they have changed.
const LOGGED: Duration = Duration::from_secs(10);

/// The story of one run.
pub(super) struct Report<'a> {
    output: &'a Output,
    /// As it is; for people it is printed escaped.
    queue: &'a str,
    /// Hidden unless standard error is a terminal.
    line: ProgressBar,
    counts: Counts,
    /// The messages of readers that have gone.
    of_gone: u64,
    is_off: bool,
    is_dropped: bool,
    /// Standard output cannot be written, so the events go to standard error: who stops reading does not stop the work, nor does a full
    /// disk of the log.
    is_output_gone: bool,
    /// The counts that were printed last, and when.
    printed: (Counts, Instant),
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    /// Messages in transactions that were committed.
    messages: u64,
    /// Transactions that were rolled back.
    rolled_back: u64,
    /// Readers that run now.
    readers: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(output: &'a Output, queue: &'a str) -> Self {
        Self {
            output,
            queue,
            line: output.spinner("{spinner} {msg}"),
            counts: Counts::default(),
            of_gone: 0,
            is_off: false,
            is_dropped: false,
            is_output_gone: false,
            printed: (Counts::default(), Instant::now()),
        }
    }

    /// What is waited for.
    pub(super) fn waiting(&mut self, most: u16, is_on: bool, is_activation_on: bool) {
        let up_to = if most == 1 { "1 reader".to_owned() } else { format!("up to {most} readers") };
        let text = format!("waiting for messages in queue '{}', {up_to}; ctrl-C ends", printable_name(self.queue));
        let event = json!({
            "event": "waiting", "queue": self.queue, "max_queue_readers": most, "is_activation_on": is_activation_on,
        });
        self.say(event, &text);
        if !is_activation_on {
            let in_brackets = self.queue.replace(']', "]]");
            self.note(&format!(
                "the ACTIVATION clause of the queue has STATUS = OFF, so no reader starts; ALTER QUEUE [{}] WITH ACTIVATION \
                 (STATUS = ON) turns it on",
                printable_name(&in_brackets)
            ));
        }
        if !is_on {
            self.turned(false);
        }
    }

    /// An event of the readers.
    pub(super) fn event(&mut self, event: &ReaderEvent) {
        match event {
            ReaderEvent::Started { task_id } => {
                self.counts.readers += 1;
                self.say(json!({ "event": "started", "task_id": task_id }), &format!("reader {task_id} started"));
            }
            ReaderEvent::Ended { task_id, code, why, messages } => {
                self.counts.readers = self.counts.readers.saturating_sub(1);
                self.of_gone += messages;
                self.counts.messages = self.counts.messages.max(self.of_gone);
                let done = counted(*messages, "message");
                let has_rolled_back =
                    |code: &Code| [Code::READER_FAILED, Code::ACTIVATED_TASK_OPEN_TRANSACTION].contains(code);
                self.counts.rolled_back += u64::from(code.as_ref().is_some_and(has_rolled_back));
                let text = match code {
                    Some(code) => format!("reader {task_id} ended[{code}]: {}; {done}", printable(why)),
                    None => format!("reader {task_id} ended; {done}"),
                };
                let code = code.map(|code| code.0);
                let event =
                    json!({ "event": "ended", "task_id": task_id, "code": code, "why": why, "messages": messages });
                self.say(event, &text);
            }
            ReaderEvent::HandlerFailed { task_id, code, why } => {
                self.counts.rolled_back += 1;
                let event = json!({ "event": "failed", "task_id": task_id, "code": code.0, "why": why });
                self.say(event, &format!("reader {task_id} rolled back[{code}]: {}", printable(why)));
            }
            ReaderEvent::LaunchFailed { why } => {
                let text = format!("not started: {}", printable(why));
                self.say(json!({ "event": "launch_failed", "why": why }), &text);
            }
            ReaderEvent::QueueOff => self.turned(false),
            ReaderEvent::QueueOn => self.turned(true),
            _ => {}
        }
    }

    /// The store cannot be worked with; the readers go on when that has passed.
    pub(super) fn cannot_receive(&mut self, why: &Error) {
        let text = format!("no message can be received: {}; trying again", printable(&why.to_string()));
        self.say(json!({ "event": "cannot_receive", "why": why.to_string() }), &text);
    }

    /// Whether the queue is there. That it was dropped is said once each time; the readers wait until it is made again.
    pub(super) fn checked(&mut self, is_there: bool) {
        if !is_there && !self.is_dropped {
            let name = printable_name(self.queue);
            let text = format!("warning: queue '{name}' was dropped; activation goes on once it is made again");
            self.say(json!({ "event": "queue_dropped", "queue": self.queue }), &text);
        }
        self.is_dropped = !is_there;
    }

    /// The queue was turned off or on. Said once: the readers may tell what was said at the start.
    fn turned(&mut self, is_on: bool) {
        if is_on != self.is_off {
            return;
        }
        self.is_off = !is_on;
        let name = printable_name(self.queue);
        let [explain, resume] = ["dialoq explain", "dialoq resume"].map(|verb| shell_command(verb, self.queue, ""));
        let (explain, resume) = (printable_name(&explain), printable_name(&resume));
        let event = if is_on { "queue_on" } else { "queue_off" };
        let text = match is_on {
            true => format!("queue '{name}' is on again"),
            false => format!(
                "queue '{name}' is OFF, so it hands out no message; `{explain}` says why, and `{resume}` turns it on"
            ),
        };
        self.say(json!({ "event": event, "queue": self.queue }), &text);
    }

    /// How long until [`Report::counts`] is due.
    pub(super) fn interval(&self) -> Duration {
        if self.line.is_hidden() { LOGGED } else { LIVE }
    }

    /// The readers have served so many messages.
    pub(super) fn counts(&mut self, messages: u64) {
        self.counts.messages = self.counts.messages.max(messages);
        let (counts, now) = (self.counts, Instant::now());
        let seconds = now.duration_since(self.printed.1).as_secs_f64().max(0.001);
        let rate = (counts.messages - self.printed.0.messages) as f64 / seconds;
        if !self.line.is_hidden() {
            let off = if self.is_off { "  OFF" } else { "" };
            let (name, readers) = (printable_name(self.queue), counted(counts.readers, "reader"));
            self.line.set_message(format!("{name}{off}  {readers}  {}  {rate:.0}/s", self.done()));
            // The rate of the last seconds.
            if seconds > 2.0 {
                self.printed = (counts, now);
            }
            return;
        }
        if counts == self.printed.0 {
            self.printed.1 = now;
            return;
        }
        self.printed = (counts, now);
        let text = format!("{}, {}; {rate:.1} a second", counted(counts.readers, "reader"), self.done());
        let Counts { messages, rolled_back, readers } = counts;
        let event = json!({ "event": "counts", "messages": messages, "rolled_back": rolled_back, "readers": readers });
        self.say(event, &text);
    }

    /// A note for people only.
    pub(super) fn note(&self, text: &str) {
        if !self.output.json {
            self.line.suspend(|| self.output.note(text));
        }
    }

    /// The end: what was done in all.
    pub(super) fn stopped(&mut self) -> String {
        self.line.finish_and_clear();
        let Counts { messages, rolled_back, .. } = self.counts;
        if self.output.json {
            self.say(json!({ "event": "stopped", "messages": messages, "rolled_back": rolled_back }), "");
        }
        format!("stopped: {}", self.done())
    }

    fn done(&self) -> String {
        format!("{} done, {} rolled back", counted(self.counts.messages, "message"), self.counts.rolled_back)
    }

    fn say(&mut self, event: Value, text: &str) {
        if !self.output.json {
            self.note(text);
            return;
        }
        if !self.is_output_gone {
            match self.output.json(&event) {
                Ok(()) => return,
                // A full disk of the log ended the readers, and kept them from starting again. If the reader of the output does not
                // read, a stop has ended the wait for it; the readers finish what they have in hand.
                Err(failure) => {
                    self.is_output_gone = true;
                    let why = match &failure {
                        Failure::Unwritten(error) => Some(error.message()),
                        _ => None,
                    };
                    self.output.note(&json!({ "event": "output_gone", "why": why }).to_string());
                }
            }
        }
        self.output.note(&event.to_string());
    }
}
