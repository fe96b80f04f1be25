//! `dialoq release`

use super::failure::Failure;
use super::globals::{Globals, close_after, parse_id};
use super::output::Output;
use clap::Args;
use dialoq::status::Released;
use serde_json::json;
use uuid::Uuid;

/// Release a conversation group from quarantine, or from the pause of a retry policy.
///
/// `dialoq peek QUEUE` shows the messages that are quarantined or pause, with their conversations.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq release 01890a5d-ac96-774b-bcce-b302099a8057")]
pub(super) struct Release {
    /// The group, or the handle of a conversation of it.
    #[arg(value_name = "GROUP|CONVERSATION", value_parser = parse_id)]
    id: Uuid,
}

impl Release {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let released = broker.release(self.id).await;
        let Released { group, was_quarantined, .. } = close_after(&broker, released).await?;
        match (output.json, was_quarantined) {
            (true, _) => output.result_json(&json!({ "group": group, "was_quarantined": was_quarantined })),
            (false, true) => output.result(&format!("released group {group}")),
            (false, false) => output.result(&format!("group {group} was not quarantined; nothing has changed")),
        }
    }
}
