//! `dialoq show`

use super::dead::listed;
use super::failure::Failure;
use super::globals::{Globals, parse_id};
use super::output::{Output, printable, printable_name, shortened, table};
use super::peek::{Form, messages_table, short_type, shown};
use clap::Args;
use dialoq::status::{ConversationSideDetails, MOST_MESSAGES, SHOWN_BODY_BYTES, WaitingMessage};
use uuid::Uuid;

/// Show a conversation: both sides with their states, groups and timers, the messages that wait and those that are kept.
///
/// Nothing is changed or locked; it also works while another process owns the file.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq show 01890a5d-ac96-774b-bcce-b302099a8057
  dialoq show 01890a5d-ac96-774b-bcce-b302099a8057 --top 5 --json")]
pub(super) struct Show {
    /// The handle of either side, or the conversation's id.
    #[arg(value_parser = parse_id)]
    conversation: Uuid,
    /// At most so many messages of each kind.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_MESSAGES)))]
    top: u32,
}

impl Show {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let found = broker.conversation(self.conversation, self.top, SHOWN_BODY_BYTES).await;
        broker.close().await?;
        let found = found?;
        if output.json {
            return output.json(&found);
        }
        output.text(&format!("conversation {}", found.conversation_id))?;
        found.sides.iter().try_for_each(|side| output.text(&side_text(side)))?;
        match found.sides.as_slice() {
            [only] if only.side.is_initiator => {
                output.text("the target has no side: no message has arrived, or it is gone")
            }
            [_] => output.text("the initiator has no side: it has ended and is gone"),
            _ => Ok(()),
        }
    }
}

fn side_text(details: &ConversationSideDetails) -> String {
    let side = &details.side;
    let role = if side.is_initiator { "initiator" } else { "target" };
    let mut text = format!(
        "\n{role} {} at {}, queue {}\n  state {} ({}), level {}, begun {}\n  group {}",
        side.conversation_handle,
        printable_name(&side.service_name),
        printable_name(&side.queue),
        side.state.code(),
        side.state_desc,
        side.priority,
        side.begun_at,
        side.conversation_group_id,
    );
    match side.retry_at {
        Some(at) => text.push_str(&format!(", pauses until {at}")),
        None if side.is_quarantined => text.push_str(", quarantined"),
        None => {}
    }
    if let Some(holder) = &details.held_by {
        text.push_str(&format!(", held by {}", printable(&holder.to_string())));
    }
    if let Some(why) = &details.held_by_error {
        text.push_str(&format!(", held by: not known: {}", printable(why)));
    }
    if !details.related.is_empty() {
        text.push_str(&format!(" with {} more conversations", details.related.len()));
    }
    if let Some(contract) = &side.service_contract_name {
        text.push_str(&format!("\n  contract {}", printable_name(contract)));
    }
    if let Some(end) = side.lifetime {
        text.push_str(&format!("\n  lifetime ends {end}"));
    }
    if let Some(timer) = side.dialog_timer {
        text.push_str(&format!("\n  timer fires {timer}"));
    }
    if !details.messages.is_empty() {
        text.push_str(&format!("\nmessages to receive\n{}", messages_table(&details.messages, Form::Text)));
    }
    if !details.dead_letters.is_empty() {
        text.push_str(&format!("\ndead letters\n{}", listed(&details.dead_letters)));
    }
    if !details.undelivered.is_empty() {
        text.push_str(&format!("\nnot delivered yet\n{}", undelivered_table(&details.undelivered)));
    }
    if !details.kept.is_empty() {
        text.push_str(&format!("\nkept by RETENTION\n{}", messages_table(&details.kept, Form::Text)));
    }
    if details.has_more {
        text.push_str("\nand more messages; --top shows more");
    }
    text
}

fn undelivered_table(messages: &[WaitingMessage]) -> String {
    let mut shown_table = table(&["#seq", "since", "message type", "body", "why"]);
    for message in messages {
        shown_table.add_row([
            message.message_sequence_number.to_string(),
            message.since.to_string(),
            printable_name(short_type(message.message_type_name.as_deref().unwrap_or_default())).into_owned(),
            shortened(&shown(&message.body, Form::Text), 100),
            printable(&message.transmission_status).into_owned(),
        ]);
    }
    shown_table.to_string()
}
