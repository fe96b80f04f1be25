//! `dialoq purge`

use super::confirm::{confirm, previewed};
use super::failure::Failure;
use super::globals::{Globals, close_after, parse_handle, parse_span};
use super::interrupt::Interrupt;
use super::output::{Output, counted, printable, printable_name, table};
use super::peek::{before, known};
use clap::Args;
use dialoq::internals::counting;
use dialoq::status::{MessageFilter, Purgeable, Purged};
use dialoq::{Broker, ConversationHandle};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why messages stay.
const STAYS: &str = "they stand behind others, would end a conversation that has others, or are quarantined";

/// Remove messages of a queue: receive and drop them.
///
/// Conversations go on, and the other sides are not notified; only a conversation whose EndDialog or Error was removed is ended.
/// A message behind one that the filter does not choose stays, as do an Error before such a one and messages that are
/// quarantined. At most 10000 at a time: if there are more, it says so, and the next call goes on.
///
/// From a queue that is off nothing can be received: `dialoq resume` it first, or `dialoq end --all --queue QUEUE --cleanup`, which
/// erases the conversations with their messages.
///
/// Asks on a terminal; elsewhere without --yes, the preview is printed, nothing changes, and the exit code is 6.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq purge orders --type //shop/PlaceOrder --older-than 7d          how many?
  dialoq purge orders --type //shop/PlaceOrder --older-than 7d --yes")]
pub(super) struct Purge {
    /// The queue.
    queue: String,
    /// Only of this message type.
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    message_type: Option<String>,
    /// Only of this service.
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Only of this conversation.
    #[arg(long, value_name = "HANDLE", value_parser = parse_handle)]
    conversation: Option<ConversationHandle>,
    /// Only messages that have waited for at least so long: 10m, 2h, 7d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    older_than: Option<Duration>,
    /// Do it without a question.
    #[arg(long)]
    yes: bool,
}

impl Purge {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let broker = globals.open_unless(interrupt).await?;
        let done = self.purge(&broker, output, interrupt).await;
        close_after(&broker, done).await
    }

    async fn purge(&self, broker: &Broker, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let found = interrupt.stops(self.confirmed(broker, output)).await?;
        let mut purged = Purged::default();
        let ended = interrupt.unless_requested(counting::purge(broker, &self.queue, found, &mut purged)).await;
        let done = format!("removed {}", counted(purged.messages, "message"));
        Failure::unless_whole(ended, purged.messages, &done)?;
        match output.json {
            true => output.result_json(&purged),
            false => output.result(&format!(
                "removed {}; ended {}; left {}{}",
                counted(purged.messages, "message"),
                counted(purged.ended, "conversation"),
                counted(purged.left, "message"),
                if purged.has_more { "; there are more than those: run it again" } else { "" }
            )),
        }
    }

    /// Prints the preview and asks; gives the messages that were shown.
    async fn confirmed(&self, broker: &Broker, output: &Output) -> Result<Purgeable, Failure> {
        let filter = MessageFilter {
            conversation: self.conversation,
            message_type: self.message_type.clone(),
            service: self.service.clone(),
            before: self.older_than.map(|span| before(broker.clock().now(), span)),
            ..MessageFilter::default()
        };
        let found = broker.purgeable(&self.queue, &filter).await?;
        let (messages, left, has_more) = (&found.messages, found.left, found.has_more);
        if messages.is_empty() {
            // Looked at only then: messages may outlive the definition of their type.
            known(&broker.catalog(), self.service.as_deref(), self.message_type.as_deref())?;
            return Err(Failure::Nothing(match left {
                0 => "there is no message to purge".to_owned(),
                left => format!(
                    "there is no message to purge; {left}{} stay: {STAYS}",
                    if has_more { " or more" } else { "" }
                ),
            }));
        }
        if output.json {
            // What was done is the one object of a confirmed change.
            if !self.yes {
                let preview =
                    json!({ "would": "purge", "messages": messages.len(), "left": left, "has_more": has_more });
                previewed(self.yes, output.json(&preview))?;
            }
        } else {
            let mut types: BTreeMap<&str, (usize, _)> = BTreeMap::new();
            for message in messages {
                let entry = types.entry(&message.message_type_name).or_insert((0, message.message_enqueue_time));
                *entry = (entry.0 + 1, entry.1.min(message.message_enqueue_time));
            }
            let mut shown = table(&["message type", "#messages", "oldest"]);
            for (name, (number, oldest)) in types {
                shown.add_row([printable_name(name).into_owned(), number.to_string(), oldest.to_string()]);
            }
            let mut text = format!("would purge from queue '{}'\n{shown}", printable(&self.queue));
            if left > 0 {
                text.push_str(&format!("\n{left} more stay: {STAYS}"));
            }
            if has_more {
                text.push_str("\nthere are more than those, for the next purge");
            }
            previewed(self.yes, output.text(&text))?;
        }
        confirm(self.yes, &format!("remove {} for good?", counted(messages.len(), "message")), output).await?;
        Ok(found)
    }
}
