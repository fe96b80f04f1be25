//! `dialoq send`

mod batch;
mod lines;
mod outcome;

use super::failure::Failure;
use super::globals::{Globals, parse_group, parse_handle, parse_whole_seconds};
use super::interrupt::Interrupt;
use super::output::{Output, printable, printable_name, table};
use batch::{Begun, Sender};
use clap::Args;
use dialoq::status::Delivery;
use dialoq::{ConversationHandle, GroupId};
use lines::Source;
use serde_json::json;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

/// Send messages, on a new dialog or on a conversation that is open.
///
/// Bodies come from the arguments (as UTF-8 text), from files (as they are), or, if there are neither, from standard
/// input: one JSON object per line with `body` (a string is sent as its text, null as no body, any other value as its JSON
/// text) or `body_base64`, and optionally `type`, `conversation` (a handle) and `end` (true ends the conversation after the
/// message). Lines are committed many at a time, in order.
///
/// At the first message that is refused, everything before it is sent and nothing from it on; --keep-going reports it
/// and goes on. A dialog is kept open unless --end is given; the handles printed are what `end`, `receive` and
/// `send --conversation` take.
///
/// After the commit the conversations are looked at: if messages wait or were refused, standard error says why, in one line for
/// each distinct outcome, and with --json each line has the outcome as `delivery`. Exit code 4: committed, but the broker has refused
/// messages, such as a body that its type does not allow. Exit code 5: committed, but messages wait for what looks like a
/// mistake, such as a service that does not exist. A queue that is busy or turned off is neither.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq send --from //shop/Checkout --to //shop/OrderService --contract //shop/Orders \\
              --type //shop/PlaceOrder '{\"sku\":\"A-1\"}' '{\"sku\":\"A-2\"}'
  dialoq send --conversation 01890a5d-ac96-774b-bcce-b302099a8057 --type //shop/Cancel --no-body --end
  dialoq send --from //a --to //b --contract //c --type //t --file order.xml
  dialoq send --from //a --to //b --contract //c --type //t --dialog-per-message < messages.jsonl

A line of standard input:
  {\"type\": \"//shop/PlaceOrder\", \"body\": {\"sku\": \"A-1\"}}")]
pub(super) struct Send {
    // An option that `requires` one that another given option excludes is accepted by clap, so each excludes that other one too.
    /// Bodies, each a message of its own; the body - comes from standard input only, as {"body":"-"}.
    #[arg(value_name = "BODY", value_parser = parse_body)]
    bodies: Vec<String>,
    /// The service that begins the dialog.
    #[arg(long, value_name = "SERVICE", requires = "to", help_heading = "A new dialog")]
    from: Option<String>,
    /// The service it is with.
    #[arg(long, value_name = "SERVICE", requires = "from", help_heading = "A new dialog")]
    to: Option<String>,
    /// The contract it follows [default: DEFAULT].
    #[arg(
        long,
        value_name = "CONTRACT",
        requires = "from",
        conflicts_with = "conversation",
        help_heading = "A new dialog"
    )]
    contract: Option<String>,
    /// How long it may last, in whole seconds: 90s, 10m, 2h, 7d. Without it, as good as for ever.
    #[arg(long, value_name = "SPAN", value_parser = parse_whole_seconds, requires = "from", conflicts_with = "conversation", help_heading = "A new dialog")]
    lifetime: Option<Duration>,
    /// The conversation group it joins, made if it does not exist.
    #[arg(long, value_name = "ID", value_parser = parse_group, requires = "from", conflicts_with = "conversation", help_heading = "A new dialog")]
    group: Option<GroupId>,
    /// Begin a dialog for every message instead of one for all.
    #[arg(long, requires = "from", conflicts_with = "conversation", help_heading = "A new dialog")]
    dialog_per_message: bool,
    /// The open conversation to send on, instead of a new dialog.
    #[arg(long, value_name = "HANDLE", value_parser = parse_handle, conflicts_with_all = ["from", "to"])]
    conversation: Option<ConversationHandle>,
    /// The message type [default: DEFAULT].
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    message_type: Option<String>,
    /// A file that is a body, byte by byte; may be given more than once.
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Read JSON lines from this file instead of standard input; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bodies", "files", "no_body"])]
    lines: Option<PathBuf>,
    /// Send one message without a body.
    #[arg(long, conflicts_with_all = ["bodies", "files"])]
    no_body: bool,
    /// End the conversations sent on, after the last message; in one commit with it, unless the end of the input was not
    /// read before that commit.
    #[arg(long)]
    end: bool,
    /// Report messages that are refused and send the others.
    #[arg(long)]
    keep_going: bool,
}

/// In other commands a dash is standard input; as a body it made a message of one character, and the input was not read.
fn parse_body(text: &str) -> Result<String, String> {
    match text {
        "-" => Err("without BODY, or with --lines -, standard input is read, as lines of JSON; the line {\"body\":\"-\"} sends a dash".into()),
        _ => Ok(text.to_owned()),
    }
}

/// No store takes a larger body.
const LARGEST_FILE_BYTES: u64 = 999_000_000;
/// How many dialogs are listed one by one for people.
const LISTED: usize = 20;

impl Send {
    pub(super) async fn run(
        &self,
        globals: &Globals,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        let source = tokio::select! {
            source = self.source() => source?,
            () = interrupt.requested() => return Err(Failure::Interrupted("interrupted; nothing was sent".into())),
        };
        let broker = globals.open_unless(interrupt).await?;
        let mut sender = Sender::new(self, &broker, output);
        let done = sender.send_all(source, interrupt).await;
        let deliveries = sender.look().await;
        let closed = broker.close().await;
        let shown = self.summary(&sender, &deliveries, output).map_err(|failure| failure.after(&sender.all_sent()));
        sender.outcomes.report(output);
        // A refusal is reported although the reader of the output has gone.
        done?;
        closed?;
        sender.outcomes.end()?;
        shown
    }

    /// A pipe gives nothing before its other end does, so files are opened and read on a thread of their own.
    async fn source(&self) -> Result<Source, Failure> {
        let (lines, bodies, files, no_body) =
            (self.lines.clone(), self.bodies.clone(), self.files.clone(), self.no_body);
        let opening = tokio::task::spawn_blocking(move || {
            match (lines, no_body, bodies.is_empty() && files.is_empty()) {
                (Some(path), ..) => Source::of_lines(path),
                (None, true, _) => Ok(Source::of_bodies(vec![Vec::new()])),
                (None, false, true) => {
                    if std::io::stdin().is_terminal() {
                        Output::new(false)
                            .note("reading messages from standard input, one line of JSON each; ctrl-D ends, --help says more");
                    }
                    Source::of_lines(PathBuf::from("-"))
                }
                (None, false, false) => {
                    let given = bodies.into_iter().map(|body| Ok(body.into_bytes()));
                    Ok(Source::of_bodies(given.chain(files.iter().map(read_body)).collect::<Result<_, _>>()?))
                }
            }
        });
        opening.await.map_err(|error| Failure::input(error.to_string()))?
    }

    fn summary(&self, sender: &Sender<'_>, deliveries: &[Delivery], output: &Output) -> Result<(), Failure> {
        if output.json {
            // With a dialog per message, each was printed when it was committed.
            return match self.dialog_per_message {
                true => Ok(()),
                false => {
                    let found = deliveries.iter().map(Some).chain(std::iter::repeat(None));
                    sender.begun.iter().zip(found).try_for_each(|(begun, delivery)| print_line(begun, delivery, output))
                }
            };
        }
        let mut shown = table(&["conversation", "#messages", "ended"]);
        for Begun { handle, sent, is_ended, .. } in sender.begun.iter().take(LISTED) {
            shown.add_row([handle.to_string(), sent.to_string(), if *is_ended { "yes" } else { "no" }.into()]);
        }
        if !sender.begun.is_empty() {
            output.text(&shown.to_string())?;
        }
        let conversations = sender.begun_total.max(sender.begun.len());
        if conversations > LISTED {
            output.text(&format!("and {} more conversations; --json lists all", conversations - LISTED))?;
        }
        let plural = if sender.sent == 1 { "" } else { "s" };
        output.text(&format!("{} message{plural} sent", sender.sent))
    }

    /// The rest of a sentence about a message: its type.
    fn type_of<'a>(&'a self, line: Option<&'a str>) -> &'a str {
        line.or(self.message_type.as_deref()).unwrap_or(dialoq::protocol::system::DEFAULT)
    }
}

/// Reads a body up to the largest that any store takes.
fn read_body(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE_BYTES + 1).read_to_end(&mut body));
    read.map_err(|error| Failure::file("read", path.display(), error))?;
    if body.len() as u64 > LARGEST_FILE_BYTES {
        let path = path.display().to_string();
        let path = printable_name(&path);
        return Err(Failure::input(format!("'{path}' is no body: it holds more than {LARGEST_FILE_BYTES} bytes")));
    }
    Ok(body)
}

fn print_line(begun: &Begun, delivery: Option<&Delivery>, output: &Output) -> Result<(), Failure> {
    output.json(&json!({
        "conversation_handle": begun.handle,
        "conversation_group_id": begun.dialog.map(|dialog| dialog.group),
        "conversation_id": begun.dialog.map(|dialog| dialog.conversation_id),
        "sent": begun.sent,
        "ended": begun.is_ended,
        "delivery": delivery.map(|delivery| &delivery.outcome),
    }))
}

fn refused(place: &lines::InputPosition, error: &dialoq::Error) -> String {
    format!("{place}: {}", printable(error.message()))
}
