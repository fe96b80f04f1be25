//! `dialoq doctor`

use super::failure::Failure;
use super::globals::{Globals, parse_span};
use super::output::{Output, printable};
use clap::Args;
use dialoq::status::PATIENCE;
use std::time::Duration;

/// Find the usual faults, with advice: a broker or queues that are off, schemas that this version refuses, quarantined groups, dead letters,
/// conversations that are never ended, messages that no caller receives or that cannot be delivered.
///
/// Work queues are not looked at: `dialoq work list` is for them.
///
/// Nothing is changed or locked; it also works while another process owns the file. Ends with exit code 3 if there is a
/// finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq doctor
  dialoq doctor --after 0s --json")]
pub(super) struct Doctor {
    /// How old a fault must be: 30s, 10m, 2h, 7d; 0s finds every one [default: 5m].
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    after: Option<Duration>,
}

impl Doctor {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let findings = broker.doctor_after(self.after.unwrap_or(PATIENCE)).await;
        broker.close().await?;
        let findings = findings?;
        for finding in &findings {
            match output.json {
                true => output.json(finding)?,
                false => output.text(&format!("- {}\n  {}", printable(&finding.what), printable(&finding.advice)))?,
            }
        }
        match findings.len() {
            0 if output.json => Ok(()),
            0 => output.text("no fault was found"),
            _ => Err(Failure::Reported { code: 3, text: None }),
        }
    }
}
