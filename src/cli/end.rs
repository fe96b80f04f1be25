//! `dialoq end`

use super::failure::Failure;
use super::globals::{Globals, parse_handle};
use super::output::Output;
use clap::Args;
use dialoq::{Act, ConversationHandle};
use serde_json::json;

/// End this side of a conversation.
///
/// The peer gets EndDialog after everything sent before. With --error it gets an Error at once instead, and what still
/// waits to be transmitted is dropped. With --cleanup this side is erased with all its messages, without a
/// message to the peer: for conversations whose other side is gone for good.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq end 01890a5d-ac96-774b-bcce-b302099a8057
  dialoq end 01890a5d-ac96-774b-bcce-b302099a8057 --error 42 --description 'out of stock'
  dialoq end 01890a5d-ac96-774b-bcce-b302099a8057 --cleanup")]
pub(super) struct End {
    /// The handle of this side's endpoint.
    #[arg(value_parser = parse_handle)]
    handle: ConversationHandle,
    /// END CONVERSATION ... WITH ERROR: a number above zero.
    #[arg(
        long,
        value_name = "CODE",
        requires = "description",
        conflicts_with = "cleanup",
        allow_negative_numbers = true
    )]
    error: Option<i32>,
    /// What went wrong, up to 3000 characters.
    #[arg(long, value_name = "TEXT", requires = "error")]
    description: Option<String>,
    /// END CONVERSATION ... WITH CLEANUP.
    #[arg(long)]
    cleanup: bool,
}

impl End {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let ended = match (&self.error, &self.description) {
            (Some(code), Some(text)) => broker.end_with_error(self.handle, *code, text.as_str()).await,
            _ if self.cleanup => broker.end_with_cleanup(self.handle).await,
            _ => broker.end(self.handle).await,
        };
        broker.close().await?;
        let state = ended?;
        match output.json {
            true => output.json(&json!({ "conversation_handle": self.handle, "state_before": state.code() })),
            false => output.text(&format!("ended conversation {}, which was {state}", self.handle)),
        }
    }
}
