//! `dialoq status`

mod show;

use super::failure::Failure;
use super::globals::{Globals, parse_span};
use super::output::Output;
use clap::Args;
use dialoq::Broker;
use std::io::IsTerminal;
use std::time::Duration;

/// Show queues per level, readers, conversations, and what waits to be transmitted.
///
/// Reads the tables without owning them, so that it works while another process runs the broker. Of a queue it shows
/// per level how many messages are ready in how many conversation groups, and for how long the oldest has waited; of
/// an activated queue how many readers run, and how many may.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq status
  dialoq status --watch          again every two seconds, until ctrl-C
  dialoq status --json | jq '.queues[] | select(.name == \"orders\")'")]
pub(super) struct Status {
    /// Show it again and again; with --json, one line each time.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, num_args = 0..=1, default_missing_value = "2s")]
    watch: Option<Duration>,
}

/// Clears the screen and goes to its upper left corner.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

impl Status {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = Broker::open_read_only(&globals.db).await?;
        loop {
            let status = broker.status().await?;
            if output.json {
                output.json(&status)?;
            } else {
                let clear = if self.watch.is_some() && std::io::stdout().is_terminal() { CLEAR } else { "" };
                output.text(&format!("{clear}{}", show::tables(&status)))?;
            }
            match self.watch {
                Some(interval) => tokio::time::sleep(interval.max(Duration::from_millis(50))).await,
                None => return Ok(()),
            }
        }
    }
}
