//! `dialoq peek`

use super::failure::Failure;
use super::globals::{Globals, parse_handle, parse_span};
use super::output::{Output, fitting_with_text, folded, printable, printable_name, shortened};
use super::status::show::since_and_why;
use clap::{Args, ValueEnum};
use dialoq::catalog::Catalog;
use dialoq::internals::jsonl::{BodyText, to_base64};
use dialoq::protocol::system;
use dialoq::status::{
    MOST_MESSAGES, MessageFilter, MessageState, Peek as Seen, PeekedBody, PeekedMessage, SHOWN_BODY_BYTES,
};
use dialoq::{ConversationHandle, Timestamp};
use std::time::Duration;

/// Show the messages of a queue without receiving them.
///
/// Also of a queue that is off, and of conversation groups that a session holds or that are quarantined. Those that RECEIVE
/// gives first come first. Nothing is changed or locked; it also works while another process owns the file. Ends with
/// exit code 3 if there is none.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq peek orders                                 the first twenty
  dialoq peek orders --top 1 --body                  the message at the head, with its whole body
  dialoq peek orders --type //shop/PlaceOrder --json")]
pub(super) struct Peek {
    /// The queue.
    queue: String,
    /// At most so many messages.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_MESSAGES)))]
    top: u32,
    /// Only of this message type.
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    message_type: Option<String>,
    /// Only of this conversation.
    #[arg(long, value_name = "HANDLE", value_parser = parse_handle)]
    conversation: Option<ConversationHandle>,
    /// Only messages that have waited for at least so long: 10m, 2h, 7d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    older_than: Option<Duration>,
    /// Also those that RETENTION keeps.
    #[arg(long)]
    kept: bool,
    /// Print whole bodies, as they are, below each message.
    #[arg(long)]
    body: bool,
    /// How bodies are printed.
    #[arg(long = "as", value_name = "FORM", value_enum, default_value_t = Form::Text)]
    form: Form,
}

/// How a body is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// As text if it is text, else as base64.
    Text,
    /// JSON with one value to a line.
    Json,
    /// Bytes in hexadecimal.
    Hex,
}

impl Peek {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let filter = MessageFilter {
            conversation: self.conversation,
            message_type: self.message_type.clone(),
            before: self.older_than.map(|span| before(broker.clock().now(), span)),
            with_kept: self.kept,
            ..MessageFilter::default()
        };
        let most = if self.body { i32::MAX as u32 } else { SHOWN_BODY_BYTES };
        let seen = broker.peek(&self.queue, &filter, self.top, most).await;
        let catalog = broker.catalog();
        broker.close().await?;
        let seen = seen?;
        if seen.messages.is_empty() {
            known(&catalog, None, self.message_type.as_deref())?;
        }
        self.print(&seen, output)?;
        match seen.messages.is_empty() {
            true => Err(Failure::Nothing(self.nothing(&seen.queue))),
            false => Ok(()),
        }
    }

    fn nothing(&self, queue: &str) -> String {
        let queue = printable_name(queue);
        match self.message_type.is_none() && self.conversation.is_none() && self.older_than.is_none() {
            true if self.kept => format!("queue '{queue}' is empty, and keeps no message"),
            true => format!("queue '{queue}' is empty"),
            false => format!("queue '{queue}' has no such message"),
        }
    }

    fn print(&self, seen: &Seen, output: &Output) -> Result<(), Failure> {
        if output.json {
            return seen.messages.iter().try_for_each(|message| output.json(message));
        }
        if !seen.is_receive_enabled {
            let since = seen.off.as_ref().map_or_else(String::new, |off| format!(" {}", since_and_why(off)));
            output.text(&folded(&format!("queue '{}' is off{since}", printable_name(&seen.queue))))?;
        }
        if self.body {
            for message in &seen.messages {
                output.text(&heading(message))?;
                output.text(&shown(&message.body, self.form))?;
            }
        } else if !seen.messages.is_empty() {
            output.text(&messages_table(&seen.messages, self.form))?;
        }
        if seen.has_more {
            output.text(&format!("and more; --top shows more than {}", self.top))?;
        }
        Ok(())
    }
}

/// Whether a filter that has found no message names a service and a message type that exist.
pub(super) fn known(catalog: &Catalog, service: Option<&str>, message_type: Option<&str>) -> Result<(), Failure> {
    if let Some(service) = service.filter(|service| catalog.service(service).is_none()) {
        return Err(Failure::unknown("service", service));
    }
    match message_type.filter(|message_type| catalog.message_type(message_type).is_none()) {
        Some(message_type) => Err(Failure::unknown("message type", message_type)),
        None => Ok(()),
    }
}

/// The moment so long ago.
pub(super) fn before(now: Timestamp, span: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
}

fn heading(message: &PeekedMessage) -> String {
    format!(
        "message {} of conversation {} at {}, level {}, {}, {}: {}",
        message.message_sequence_number,
        message.conversation_handle,
        printable_name(&message.service_name),
        message.priority,
        state(message.state),
        message.message_enqueue_time,
        printable_name(&message.message_type_name),
    )
}

/// The messages as a table, one per conversation, so that its handle stays in one piece.
pub(super) fn messages_table(messages: &[PeekedMessage], form: Form) -> String {
    let mut text = String::new();
    for some in messages.chunk_by(|one, next| one.conversation_handle == next.conversation_handle) {
        let Some(first) = some.first() else { continue };
        let row = |message: &PeekedMessage| {
            vec![
                message.message_sequence_number.to_string(),
                message.message_enqueue_time.to_string(),
                state(message.state).to_owned(),
                printable_name(short_type(&message.message_type_name)).into_owned(),
                message.body.length.to_string(),
                shown_line(message, form),
            ]
        };
        let headings = ["#seq", "arrived", "state", "message type", "#bytes", "body"];
        // In a narrow terminal first the length goes, then the time.
        let shown_table = fitting_with_text(&headings, &[4, 1], some.iter().map(row).collect());
        if !text.is_empty() {
            text.push('\n');
        }
        let (handle, service) = (first.conversation_handle, printable_name(&first.service_name));
        text.push_str(&format!("conversation {handle} at {service}, level {}\n{shown_table}", first.priority));
    }
    text
}

pub(super) fn short_type(name: &str) -> &str {
    let is_system = [system::END_DIALOG, system::ERROR, system::DIALOG_TIMER].contains(&name);
    if is_system { name.rsplit('/').next().unwrap_or(name) } else { name }
}

fn state(state: MessageState) -> &'static str {
    match state {
        MessageState::Waiting => "waits",
        MessageState::Quarantined => "quarantined",
        MessageState::Pausing => "pauses",
        MessageState::Received => "received, kept",
        MessageState::Sent => "sent, kept",
        _ => "?",
    }
}

fn shown_line(message: &PeekedMessage, form: Form) -> String {
    match &message.error {
        Some(error) => format!("{}: {}", error.code, printable(&error.description)),
        None => shortened(&printable(&shown(&message.body, form)), 200),
    }
}

/// A body for people.
pub(super) fn shown(body: &PeekedBody, form: Form) -> String {
    let cut = if body.is_cut() { format!("… ({} bytes)", body.length) } else { String::new() };
    if form == Form::Hex {
        let bytes: String = body.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        return bytes + &cut;
    }
    let text = match body.text() {
        BodyText::Absent => String::new(),
        BodyText::Text(text) => text.to_owned(),
        BodyText::Utf16(text, _) => text,
        BodyText::Binary(bytes) => format!("base64:{}", to_base64(bytes)),
    };
    let text = match form {
        Form::Json => serde_json::from_str::<serde_json::Value>(&text)
            .and_then(|value| serde_json::to_string_pretty(&value))
            .unwrap_or(text),
        _ => text,
    };
    printable(&text).into_owned() + &cut
}
