//! `dialoq reprioritise`

use super::confirm::confirm;
use super::failure::Failure;
use super::globals::{Globals, close_after, parse_handle};
use super::interrupt::Interrupt;
use super::many::{Filter, preview, report};
use super::output::{Output, counted};
use super::waits::naming_the_holder;
use clap::Args;
use dialoq::internals::counting;
use dialoq::status::Changed;
use dialoq::{Act, Broker, ConversationHandle, Level};
use serde_json::json;

/// Change the level of a side of a conversation, or of many by a filter.
///
/// The level of a side is that of the messages it receives. Many are changed after a preview, and a question on a terminal;
/// elsewhere without --yes the preview is printed, nothing changes, and the exit code is 6.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq reprioritise 9 01890a5d-ac96-774b-bcce-b302099a8057
  dialoq reprioritise 2 --service //shop/OrderService --older-than 1h          how many?
  dialoq reprioritise 2 --service //shop/OrderService --older-than 1h --yes")]
pub(super) struct Reprioritise {
    /// The level, 1 (low) to 10 (high).
    #[arg(value_parser = clap::value_parser!(u8).range(1..=10))]
    level: u8,
    /// The handle of one side.
    #[arg(value_parser = parse_handle)]
    conversation: Option<ConversationHandle>,
    #[command(flatten)]
    filter: Filter,
    /// Change many without a question.
    #[arg(long)]
    yes: bool,
}

impl Reprioritise {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        if self.conversation.is_none() == self.filter.is_empty() {
            let text = "give the handle of one side, or a filter such as --service; not both";
            return Err(Failure::Usage(text.to_owned()));
        }
        let broker = globals.open_unless(interrupt).await?;
        let done = self.change(&broker, output, interrupt).await;
        close_after(&broker, done).await
    }

    async fn change(&self, broker: &Broker, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let level = Level::try_from(self.level)?;
        if let Some(handle) = self.conversation {
            let change = async { Ok(broker.reprioritise(handle, level).await?) };
            let change = naming_the_holder(broker, Some(handle), None, output, change);
            interrupt.stops_change(change).await?;
            return match output.json {
                true => output.result_json(&json!({ "conversation_handle": handle, "priority": self.level })),
                false => output.result(&format!("conversation {handle} has level {level} here")),
            };
        }
        let filter = self.filter.of(broker, None)?;
        let confirmed = async {
            let (sides, has_more) = preview(broker, &filter, "reprioritise", false, self.yes, output).await?;
            confirm(self.yes, &format!("give them level {level}?"), output).await?;
            Ok((sides, has_more))
        };
        let (sides, has_more) = interrupt.stops(confirmed).await?;
        let mut changed = Changed::default();
        let ended = interrupt.unless_requested(counting::reprioritise(broker, &sides, level, &mut changed)).await;
        let done = format!("{} changed", counted(changed.changed, "conversation"));
        Failure::unless_whole(ended, changed.changed, &done)?;
        changed.has_more = has_more;
        report(&changed, "changed", output)
    }
}
