//! `dialoq timer`

use super::failure::Failure;
use super::globals::{Globals, close_after, parse_handle, parse_span};
use super::output::Output;
use super::waits::naming_the_holder;
use clap::Args;
use dialoq::{Act, ConversationHandle};
use serde_json::json;
use std::time::Duration;

/// Set the timer of a conversation, or take it back: BEGIN CONVERSATION TIMER.
///
/// A DialogTimer message arrives on this side then. A timer fires only while a process runs the broker; one that is due fires
/// when the next process does. Each side has one timer; setting it again replaces it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq timer 01890a5d-ac96-774b-bcce-b302099a8057 90
  dialoq timer 01890a5d-ac96-774b-bcce-b302099a8057 2h
  dialoq timer 01890a5d-ac96-774b-bcce-b302099a8057 --cancel")]
pub(super) struct Timer {
    /// The handle of the side that gets the message.
    #[arg(value_parser = parse_handle)]
    conversation: ConversationHandle,
    /// When: so many seconds from now, or 10m, 2h, 7d.
    #[arg(value_name = "SECONDS", value_parser = parse_span, required_unless_present = "cancel", conflicts_with = "cancel")]
    due_in: Option<Duration>,
    /// Take the timer back.
    #[arg(long)]
    cancel: bool,
}

impl Timer {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let done = async {
            match self.due_in {
                Some(due_in) => broker.timer(self.conversation, due_in).await,
                None => broker.cancel_timer(self.conversation).await,
            }
        };
        let done = naming_the_holder(&broker, Some(self.conversation), None, output, done).await;
        close_after(&broker, done).await?;
        let seconds = self.due_in.map(|due_in| due_in.as_secs() + u64::from(due_in.subsec_nanos() > 0));
        match (output.json, seconds) {
            (true, _) => output.result_json(&json!({ "conversation_handle": self.conversation, "timer_s": seconds })),
            (false, Some(seconds)) => output.result(&format!("the timer fires in {seconds} s")),
            (false, None) => output.result("the timer was taken back"),
        }
    }
}
