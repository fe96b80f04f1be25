//! `dialoq end`

use super::confirm::confirm;
use super::failure::Failure;
use super::globals::{Globals, close_after, parse_handle};
use super::interrupt::Interrupt;
use super::many::{Filter, preview, report};
use super::output::{Output, counted};
use super::waits::naming_the_holder;
use clap::Args;
use dialoq::internals::counting;
use dialoq::protocol::EndForm;
use dialoq::status::Changed;
use dialoq::{Act, Broker, ConversationHandle};
use serde_json::json;

/// End this side of a conversation, or many sides by a filter.
///
/// The peer gets EndDialog after everything sent before. With --error it gets an Error at once instead, and what still
/// waits to be transmitted is dropped. With --cleanup this side is erased with all its messages, without a
/// message to the peer: for conversations whose other side is gone for good.
///
/// With --all, the sides that the filter chooses are ended, one commit each, after a preview and a question on a terminal;
/// elsewhere without --yes the preview is printed, nothing changes, and the exit code is 6. A side that has ended already is
/// left out, unless --cleanup erases it. A side whose group another session holds for more than five seconds is left alone. At most
/// 100000 at a time: if there are more, it says so.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq end 01890a5d-ac96-774b-bcce-b302099a8057
  dialoq end 01890a5d-ac96-774b-bcce-b302099a8057 --error 42 --description 'out of stock'
  dialoq end 01890a5d-ac96-774b-bcce-b302099a8057 --cleanup
  dialoq end --all --service //shop/Checkout --state ER                       how many?
  dialoq end --all --queue orders --older-than 7d --error 1 --description 'too old' --yes")]
pub(super) struct End {
    /// The handle of this side's endpoint.
    #[arg(value_parser = parse_handle, conflicts_with = "all")]
    handle: Option<ConversationHandle>,
    /// All sides that the filter chooses.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// End many without a question.
    #[arg(long, requires = "all")]
    yes: bool,
    /// END CONVERSATION ... WITH ERROR: a number above zero.
    #[arg(
        long,
        value_name = "CODE",
        requires = "description",
        conflicts_with = "cleanup",
        allow_negative_numbers = true
    )]
    error: Option<i32>,
    /// What went wrong, up to 3000 characters.
    #[arg(long, value_name = "TEXT", requires = "error", conflicts_with = "cleanup")]
    description: Option<String>,
    /// END CONVERSATION ... WITH CLEANUP.
    #[arg(long)]
    cleanup: bool,
}

impl End {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        if self.all == self.filter.is_empty() {
            let why = match self.all {
                true => {
                    "--all without a filter would end every conversation; give --queue, --service, --state, --contract or --older-than"
                }
                false => "a filter chooses many conversations; give --all with it",
            };
            return Err(Failure::Usage(why.to_owned()));
        }
        if self.handle.is_none() && !self.all {
            return Err(Failure::Usage(
                "give the handle of one side, or --all with a filter such as --queue".to_owned(),
            ));
        }
        let broker = globals.open_unless(interrupt).await?;
        let done = match self.handle {
            Some(handle) => interrupt.stops_change(self.end_one(&broker, handle, output)).await,
            None => self.end_all(&broker, output, interrupt).await,
        };
        close_after(&broker, done).await
    }

    async fn end_one(&self, broker: &Broker, handle: ConversationHandle, output: &Output) -> Result<(), Failure> {
        let ended = async {
            match self.form() {
                EndForm::WithError { code, description } => broker.end_with_error(handle, code, description).await,
                EndForm::Cleanup => broker.end_with_cleanup(handle).await,
                EndForm::Plain => broker.end(handle).await,
            }
        };
        let state = naming_the_holder(broker, Some(handle), None, output, ended).await?;
        match output.json {
            true => output.result_json(&json!({ "conversation_handle": handle, "state_before": state.code() })),
            false => output.result(&format!("ended conversation {handle}, which was {state}")),
        }
    }

    async fn end_all(&self, broker: &Broker, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let filter = self.filter.of(broker, None)?;
        let confirmed = async {
            let (sides, has_more) = preview(broker, &filter, "end", self.cleanup, self.yes, output).await?;
            confirm(self.yes, &format!("end {}?", counted(sides.len(), "conversation")), output).await?;
            Ok((sides, has_more))
        };
        let (sides, has_more) = interrupt.stops(confirmed).await?;
        let mut changed = Changed::default();
        let ending = counting::end(broker, &sides, filter.state, self.form(), &mut changed);
        let ended = interrupt.unless_requested(ending).await;
        let done = format!("{} ended", counted(changed.changed, "conversation"));
        Failure::unless_whole(ended, changed.changed, &done)?;
        changed.has_more = has_more;
        report(&changed, "ended", output)
    }

    fn form(&self) -> EndForm {
        match (&self.error, &self.description) {
            (Some(code), Some(text)) => EndForm::WithError { code: *code, description: text.clone() },
            _ if self.cleanup => EndForm::Cleanup,
            _ => EndForm::Plain,
        }
    }
}
