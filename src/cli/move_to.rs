//! `dialoq move`

use super::failure::Failure;
use super::globals::{Globals, close_after, parse_group, parse_handle};
use super::output::Output;
use super::waits::naming_the_holder;
use clap::Args;
use dialoq::{Act, ConversationHandle, GroupId};
use serde_json::json;

/// Move a side of a conversation to another conversation group of its service: MOVE CONVERSATION.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq move 01890a5d-ac96-774b-bcce-b302099a8057 01890a5d-b000-7000-8000-000000000001")]
pub(super) struct Move {
    /// The handle of the side that moves.
    #[arg(value_parser = parse_handle)]
    conversation: ConversationHandle,
    /// The group it joins.
    #[arg(value_parser = parse_group)]
    group: GroupId,
}

impl Move {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let moved = async { broker.move_conversation(self.conversation, self.group).await };
        let moved = naming_the_holder(&broker, Some(self.conversation), Some(self.group), output, moved).await;
        close_after(&broker, moved).await?;
        match output.json {
            true => output
                .result_json(&json!({ "conversation_handle": self.conversation, "conversation_group_id": self.group })),
            false => output.result(&format!("moved conversation {} to group {}", self.conversation, self.group)),
        }
    }
}
