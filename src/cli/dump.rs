//! `dialoq dump`

use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use clap::Args;
use serde_json::json;

/// Print the definitions as statements that `apply` understands.
///
/// Applied to an empty database, what it prints makes the same definitions again, those of work queues and work schedules too.
/// Messages, conversations and jobs are not part of it. Works while another process runs the broker.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq dump > shop.sql
  dialoq --db sqlite:old.db dump | dialoq --db sqlite:new.db apply -")]
pub(super) struct Dump {}

impl Dump {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let script = broker.dump();
        broker.close().await?;
        match output.json {
            true => output.json(&json!({ "script": script })),
            false => output.bytes(script.as_bytes()),
        }
    }
}
