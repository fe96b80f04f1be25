//! `dialoq doctor`

use super::failure::Failure;
use super::globals::{Globals, parse_span};
use super::output::{Output, printable_name, span};
use clap::Args;
use dialoq::status::FAULT_AGE;
use std::time::Duration;

/// The exit code if there is a finding.
const FOUND: u8 = 3;

/// Find faults and print advice.
///
/// A broker or queues that are off, schemas that this version refuses, quarantined groups, dead letters, conversations that are never ended
/// or have no LIFETIME, messages that no caller receives or that cannot be delivered. Of work queues: paused ones with ready jobs, dead
/// jobs, jobs that no reader takes, lost jobs, schedules that do not fire.
///
/// A broker or queues that are off, paused work queues, refused schemas, quarantined groups, dead letters and dead jobs are reported
/// whatever their age; the others if they have lasted for longer than --after says.
///
/// Nothing is changed or locked; it also works while another process owns the file. Ends with exit code 3 if there is a
/// finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq doctor
  dialoq doctor --after 0s --json")]
pub(super) struct Doctor {
    /// How long messages and jobs must have waited, conversations been open, leases been over and schedules been due: 30s, 10m, 2h, 7d;
    /// 0s finds every one [default: 5m].
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    after: Option<Duration>,
}

impl Doctor {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let after = self.after.unwrap_or(FAULT_AGE);
        let findings = broker.doctor_after(after).await;
        broker.close().await?;
        let findings = findings?;
        for finding in &findings {
            let printed = match output.json {
                true => output.json(finding),
                false => {
                    output.text(&format!("- {}\n  {}", printable_name(&finding.what), printable_name(&finding.advice)))
                }
            };
            // A check by the exit code may leave the text unread.
            printed.map_err(|failure| failure.or_code(FOUND))?;
        }
        match findings.len() {
            0 if output.json => Ok(()),
            0 if after.is_zero() => output.text("no fault was found"),
            0 => {
                let after = span(after);
                output.text(&format!(
                    "no fault was found; what lasts for less than {after} does not count, --after 0s counts all"
                ))
            }
            _ => Err(Failure::Reported { code: FOUND, text: None }),
        }
    }
}
