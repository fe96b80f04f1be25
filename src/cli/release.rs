//! `dialoq release`

use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use clap::Args;
use serde_json::json;
use uuid::Uuid;

/// Put a conversation group back that poison handling has set aside.
///
/// `dialoq peek QUEUE` shows the messages that are set aside, with their conversations.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq release 01890a5d-ac96-774b-bcce-b302099a8057")]
pub(super) struct Release {
    /// The group, or the handle of a conversation of it.
    #[arg(value_name = "GROUP|CONVERSATION")]
    id: Uuid,
}

impl Release {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let released = broker.release(self.id).await;
        broker.close().await?;
        let group = released?;
        match output.json {
            true => output.json(&json!({ "released": group })),
            false => output.text(&format!("released group {group}")),
        }
    }
}
