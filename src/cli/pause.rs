//! `dialoq pause` and `dialoq resume`

use super::deliveries::settle;
use super::failure::Failure;
use super::globals::{Globals, close_after};
use super::output::{Output, printable};
use clap::Args;
use dialoq::Broker;
use serde_json::json;

/// Turn a queue off: nothing is received from it, and messages for it wait in the transmission queue.
///
/// ALTER QUEUE ... WITH STATUS = OFF, REASON = '...'. `dialoq status`, `doctor` and `explain` show the reason, and since when.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq pause orders --reason 'the warehouse counts its stock'
  dialoq resume orders")]
pub(super) struct Pause {
    /// The queue.
    queue: String,
    /// Why, up to 1000 characters.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Pause {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let off = || broker.catalog().queue(&self.queue).and_then(|queue| queue.off.clone());
        let before = off();
        let done = broker.pause(self.queue.as_str(), self.reason.as_deref()).await;
        if matches!(done, Ok(false)) && off() != before {
            broker.close().await?;
            return match output.json {
                true => output.result_json(&json!({ "queue": self.queue, "status": "paused", "has_changed": true })),
                false => {
                    let queue = printable(&self.queue);
                    output.result(&format!("queue '{queue}' was off already; its reason is the new one"))
                }
            };
        }
        report(&broker, done, &self.queue, "paused", output).await
    }
}

/// Turn a queue on again, whatever turned it off; messages that wait for it are delivered.
///
/// It waits while they are, 10 s at most: deliveries happen while a process has the broker open.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq resume orders")]
pub(super) struct Resume {
    /// The queue.
    queue: String,
}

impl Resume {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open().await?;
        let done = broker.resume(self.queue.as_str()).await;
        if matches!(done, Ok(true)) {
            settle(&broker, output).await;
        }
        report(&broker, done, &self.queue, "resumed", output).await
    }
}

async fn report(
    broker: &Broker,
    done: dialoq::Result<bool>,
    queue: &str,
    state: &str,
    output: &Output,
) -> Result<(), Failure> {
    let has_changed = close_after(broker, done).await?;
    match output.json {
        true => output.result_json(&json!({ "queue": queue, "status": state, "has_changed": has_changed })),
        false if has_changed => output.result(&format!("{state} queue '{}'", printable(queue))),
        // Poison handling may have turned it off.
        false => {
            let status = if state == "paused" { "off" } else { "on" };
            output.result(&format!("queue '{}' was {status} already", printable(queue)))
        }
    }
}
