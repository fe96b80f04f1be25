//! `dialoq explain`

use super::failure::Failure;
use super::globals::Globals;
use super::output::{Output, printable_name};
use clap::Args;

/// Say why a queue, a conversation or a message does not move.
///
/// The subject is the name of a queue, a work queue or a service, or the id of a message, a conversation, a conversation group
/// or a side's handle. Nothing is changed or locked; it also works while another process owns the file. A reason that
/// alone stops it is marked with an exclamation mark.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq explain orders
  dialoq explain 01890a5d-ac96-774b-bcce-b302099a8057 --json")]
pub(super) struct Explain {
    /// A queue, a work queue or a service, or an id.
    subject: String,
}

impl Explain {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let explanation = broker.explain(&self.subject).await;
        broker.close().await?;
        let explanation = explanation?;
        if output.json {
            return output.json(&explanation);
        }
        let mut text = printable_name(&explanation.summary).into_owned();
        for reason in &explanation.reasons {
            text.push_str(&format!(
                "\n{} {}",
                if reason.is_blocking { "!" } else { "-" },
                printable_name(&reason.what)
            ));
            if !reason.advice.is_empty() {
                text.push_str(&format!("\n  {}", printable_name(&reason.advice)));
            }
        }
        if explanation.reasons.is_empty() {
            text.push_str("\nnothing holds it up");
        }
        output.text(&text)
    }
}
