//! `dialoq dead list`, `show`, `redrive` and `purge`

use super::confirm::{confirm, previewed};
use super::failure::Failure;
use super::globals::{Globals, close_after, parse_handle, parse_span};
use super::interrupt::Interrupt;
use super::output::{Output, counted, fitting_with_text, printable, printable_name, shortened, table};
use super::peek::{Form, before, short_type, shown};
use clap::{Args, Subcommand};
use dialoq::catalog::Catalog;
use dialoq::internals::counting;
use dialoq::status::{DeadLetter, DeadLetterFilter, MOST_DEAD_LETTERS, Redriven, SHOWN_BODY_BYTES};
use dialoq::{Broker, ConversationHandle, DeadLetterId};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Dead letters: messages that a retry policy has taken out of their queue.
///
/// A queue with `RETRY (..., THEN = DEAD_LETTER)` makes them: after the last attempt the message leaves its queue, and its
/// conversation goes on with the next one. A dead letter is kept until it is redriven or purged.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq dead list
  dialoq dead show 17
  dialoq dead redrive 17
  dialoq dead redrive --queue orders --yes
  dialoq dead purge --older-than 30d")]
pub(super) struct Dead {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Redrive(Redrive),
    Purge(Purge),
}

impl Dead {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        match &self.command {
            Command::List(command) => interrupt.stops(command.run(globals, output)).await,
            Command::Show(command) => interrupt.stops(command.run(globals, output)).await,
            Command::Redrive(command) => command.run(globals, output, interrupt).await,
            Command::Purge(command) => command.run(globals, output, interrupt).await,
        }
    }
}

fn parse_letter(text: &str) -> Result<DeadLetterId, String> {
    text.parse().map_err(|_| "the id of a dead letter is a number; `dialoq dead list` shows them".to_owned())
}

/// Which dead letters are meant.
#[derive(Debug, Args)]
struct Filter {
    /// Only those that died in this queue.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only those of this service.
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Only those of this message type.
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    message_type: Option<String>,
    /// Only those of this conversation, by the handle of the side that received them.
    #[arg(long, value_name = "HANDLE", value_parser = parse_handle)]
    conversation: Option<ConversationHandle>,
    /// Only those that died at least so long ago: 10m, 2h, 7d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    older_than: Option<Duration>,
}

impl Filter {
    /// Why nothing was found. A queue may have been dropped since, so one that does not exist is no error.
    fn nothing(&self, catalog: &Catalog, why: &str) -> String {
        let unknown = |kind: &str, name: &Option<String>, is_known: &dyn Fn(&str) -> bool| {
            name.as_deref()
                .filter(|name| !is_known(name))
                .map(|name| format!("; no {kind} is named '{}'", printable_name(name)))
        };
        let queue = unknown("queue", &self.queue, &|name| catalog.queue(name).is_some());
        let service = unknown("service", &self.service, &|name| catalog.service(name).is_some());
        let message_type = unknown("message type", &self.message_type, &|name| catalog.message_type(name).is_some());
        [Some(why.to_owned()), queue, service, message_type].into_iter().flatten().collect()
    }

    fn is_empty(&self) -> bool {
        let Self { queue, service, message_type, conversation, older_than } = self;
        queue.is_none() && service.is_none() && message_type.is_none() && conversation.is_none() && older_than.is_none()
    }

    fn of(&self, broker: &Broker) -> DeadLetterFilter {
        DeadLetterFilter {
            letter: None,
            queue: self.queue.clone(),
            service: self.service.clone(),
            message_type: self.message_type.clone(),
            conversation: self.conversation,
            before: self.older_than.map(|span| before(broker.clock().now(), span)),
        }
    }
}

/// List dead letters.
///
/// In the order in which their messages arrived. Nothing is changed or locked; it also works while another process owns the
/// file. Ends with exit code 3 if there is none.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq dead list                          the first hundred
  dialoq dead list --queue orders --older-than 1d
  dialoq dead list --json")]
struct List {
    #[command(flatten)]
    filter: Filter,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..i64::from(MOST_DEAD_LETTERS)))]
    top: u32,
}

impl List {
    async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let found = broker.dead_letters(&self.filter.of(&broker), self.top + 1, SHOWN_BODY_BYTES).await;
        let catalog = broker.catalog();
        broker.close().await?;
        let mut letters = found?;
        let has_more = letters.len() > self.top as usize;
        letters.truncate(self.top as usize);
        if letters.is_empty() {
            return Err(Failure::Nothing(self.filter.nothing(&catalog, "there is no such dead letter")));
        }
        if output.json {
            return letters.iter().try_for_each(|letter| output.json(letter));
        }
        output.text(&listed(&letters))?;
        if has_more {
            output.text(&format!("and more; --top shows more than {}", self.top))?;
        }
        Ok(())
    }
}

/// The dead letters as a table.
pub(super) fn listed(letters: &[DeadLetter]) -> String {
    let row = |letter: &DeadLetter| {
        vec![
            letter.dead_letter_id.to_string(),
            letter.died_at.to_string(),
            printable_name(&letter.queue).into_owned(),
            letter.attempts.to_string(),
            printable_name(short_type(&letter.message_type_name)).into_owned(),
            shortened(&printable(&shown(&letter.body, Form::Text)), 100),
        ]
    };
    let headings = ["#id", "died", "queue", "#attempts", "message type", "body"];
    // In a narrow terminal first the attempts go, then the time.
    fitting_with_text(&headings, &[3, 1], letters.iter().map(row).collect()).to_string()
}

/// Show a dead letter with its whole body.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq dead show 17
  dialoq dead show 17 --as json
  dialoq dead show 17 --json")]
struct Show {
    /// The dead letter.
    #[arg(value_name = "ID", value_parser = parse_letter)]
    letter: DeadLetterId,
    /// How the body is printed.
    #[arg(long = "as", value_name = "FORM", value_enum, default_value_t = Form::Text)]
    form: Form,
}

impl Show {
    async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        let filter = DeadLetterFilter { letter: Some(self.letter), ..DeadLetterFilter::default() };
        let found = broker.dead_letters(&filter, 1, i32::MAX as u32).await;
        broker.close().await?;
        let Some(letter) = found?.pop() else {
            return Err(Failure::Nothing(format!("there is no dead letter {}", self.letter)));
        };
        if output.json {
            return output.json(&letter);
        }
        let back = match letter.is_conversation_open {
            true => "open: the letter can be redriven",
            false => "ended: the letter cannot be redriven",
        };
        output.text(&format!(
            "dead letter {} of queue {}\n  died {} after {}{}\n  {} at service {}, from {}, contract {}\n  \
             message {} of conversation {}, level {}, arrived {}\n  conversation {back}",
            letter.dead_letter_id,
            printable_name(&letter.queue),
            letter.died_at,
            counted(letter.attempts, "attempt"),
            letter.reason.as_deref().map(|reason| format!(": {}", printable(reason))).unwrap_or_default(),
            printable_name(&letter.message_type_name),
            printable_name(&letter.service_name),
            printable_name(&letter.far_service),
            printable_name(&letter.service_contract_name),
            letter.message_sequence_number,
            letter.conversation_handle,
            letter.priority,
            letter.message_enqueue_time,
        ))?;
        output.text(&shown(&letter.body, self.form))
    }
}

/// Put dead letters back into their queues.
///
/// Each goes back to its old place in its conversation, and is received before the messages that came after it and still
/// wait. One whose conversation has ended stays. One letter is redriven at once; of many the preview is printed first.
///
/// Asks on a terminal; elsewhere without --yes, nothing changes, and the exit code is 6.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq dead redrive 17
  dialoq dead redrive --queue orders --type //shop/PlaceOrder        how many?
  dialoq dead redrive --queue orders --type //shop/PlaceOrder --yes")]
struct Redrive {
    /// One dead letter.
    #[arg(value_name = "ID", value_parser = parse_letter, conflicts_with_all = ["queue", "service", "message_type", "conversation", "older_than", "all"])]
    letter: Option<DeadLetterId>,
    #[command(flatten)]
    filter: Filter,
    /// All dead letters.
    #[arg(long)]
    all: bool,
    /// Do it without a question.
    #[arg(long)]
    yes: bool,
}

impl Redrive {
    async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        check_choice(self.letter, &self.filter, self.all, "redrive")?;
        let broker = globals.open_unless(interrupt).await?;
        let done = self.redrive(&broker, output, interrupt).await;
        close_after(&broker, done).await
    }

    async fn redrive(&self, broker: &Broker, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        if let Some(letter) = self.letter {
            use dialoq::Act;
            interrupt.stops_change(async { Ok(broker.redrive_dead_letter(letter).await?) }).await?;
            return match output.json {
                true => output.result_json(&json!({ "redriven": 1, "ended": 0, "gone": 0, "held": 0 })),
                false => output.result(&format!("redrove dead letter {letter}")),
            };
        }
        let confirmed = async {
            let letters = preview(broker, &self.filter, &self.filter.of(broker), "redrive", self.yes, output).await?;
            confirm(self.yes, &format!("redrive {}?", counted(letters.len(), "dead letter")), output).await?;
            Ok(letters)
        };
        let letters = interrupt.stops(confirmed).await?;
        let mut done = Redriven::default();
        let ended = interrupt.unless_requested(counting::redrive_dead(broker, &letters, &mut done)).await;
        let redrove = format!("redrove {}", counted(done.redriven, "dead letter"));
        Failure::unless_whole(ended, done.redriven, &redrove)?;
        if output.json {
            return output.result_json(&done);
        }
        let mut text = format!("redrove {}", counted(done.redriven, "dead letter"));
        for (number, why) in [
            (done.ended, "whose conversation has ended"),
            (done.gone, "that were gone meanwhile"),
            (done.held, "that other sessions hold"),
        ] {
            if number > 0 {
                text.push_str(&format!("; left {number} {why}"));
            }
        }
        output.result(&text)
    }
}

/// Remove dead letters for good.
///
/// The preview is printed first. Asks on a terminal; elsewhere without --yes, nothing changes, and the exit code is 6.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq dead purge 17 --yes
  dialoq dead purge --older-than 30d          how many?
  dialoq dead purge --all --yes")]
struct Purge {
    /// One dead letter.
    #[arg(value_name = "ID", value_parser = parse_letter, conflicts_with_all = ["queue", "service", "message_type", "conversation", "older_than", "all"])]
    letter: Option<DeadLetterId>,
    #[command(flatten)]
    filter: Filter,
    /// All dead letters.
    #[arg(long)]
    all: bool,
    /// Do it without a question.
    #[arg(long)]
    yes: bool,
}

impl Purge {
    async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        check_choice(self.letter, &self.filter, self.all, "purge")?;
        let broker = globals.open_unless(interrupt).await?;
        let done = self.purge(&broker, output, interrupt).await;
        close_after(&broker, done).await
    }

    async fn purge(&self, broker: &Broker, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let filter = DeadLetterFilter { letter: self.letter, ..self.filter.of(broker) };
        let confirmed = async {
            let letters = preview(broker, &self.filter, &filter, "purge", self.yes, output).await?;
            confirm(self.yes, &format!("remove {} for good?", counted(letters.len(), "dead letter")), output).await?;
            Ok(letters)
        };
        let letters = interrupt.stops(confirmed).await?;
        let mut purged = 0;
        let ended = interrupt.unless_requested(counting::purge_dead(broker, &letters, &mut purged)).await;
        Failure::unless_whole(ended, purged, &format!("removed {}", counted(purged, "dead letter")))?;
        match output.json {
            true => output.result_json(&json!({ "purged": purged })),
            false => output.result(&format!("removed {}", counted(purged, "dead letter"))),
        }
    }
}

/// Refuses a change of all that was not asked for.
fn check_choice(letter: Option<DeadLetterId>, filter: &Filter, is_all: bool, verb: &str) -> Result<(), Failure> {
    if letter.is_some() || is_all || !filter.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "which dead letters? Give the number of one, a filter such as --queue, or --all to {verb} all"
    )))
}

/// Prints which dead letters a change would touch, and gives them; there must be one.
async fn preview(
    broker: &Broker,
    given: &Filter,
    filter: &DeadLetterFilter,
    verb: &str,
    is_confirmed: bool,
    output: &Output,
) -> Result<Vec<DeadLetter>, Failure> {
    let letters = broker.dead_letters(filter, MOST_DEAD_LETTERS, 0).await?;
    if letters.is_empty() {
        let why = format!("there is no dead letter to {verb}");
        return Err(Failure::Nothing(given.nothing(&broker.catalog(), &why)));
    }
    let open = letters.iter().filter(|letter| letter.is_conversation_open).count();
    if output.json {
        // What was done is the one object of a confirmed change.
        if is_confirmed {
            return Ok(letters);
        }
        let printed =
            output.json(&json!({ "would": verb, "dead_letters": letters.len(), "of_open_conversations": open }));
        previewed(is_confirmed, printed)?;
        return Ok(letters);
    }
    let mut groups: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for letter in &letters {
        let entry = groups.entry((&letter.queue, &letter.message_type_name)).or_default();
        *entry = (entry.0 + 1, entry.1 + usize::from(letter.is_conversation_open));
    }
    let mut shown = table(&["queue", "message type", "#dead letters", "#conversation open"]);
    for ((queue, message_type), (number, open)) in groups {
        let names = [printable_name(queue).into_owned(), printable_name(short_type(message_type)).into_owned()];
        shown.add_row([names, [number.to_string(), open.to_string()]].concat());
    }
    previewed(is_confirmed, output.text(&format!("would {verb}\n{shown}")))?;
    Ok(letters)
}
