//! `dialoq receive`

use super::failure::Failure;
use super::globals::{Globals, close_after, parse_group, parse_handle, parse_span};
use super::interrupt::Interrupt;
use super::obstacles::Obstacles;
use super::output::{Output, printable, printable_name, reader_has_gone, shortened, table};
use clap::Args;
use dialoq::internals::jsonl::{BodyText, MessageLine, to_base64};
use dialoq::protocol::{Message, system};
use dialoq::{Act, Batch, Broker, Code, ConversationHandle, GroupId, Tx};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

/// Take messages out of a queue and print them.
///
/// Messages of one conversation group are taken, of the best unlocked one, in order. They leave the queue once they are
/// printed: if printing fails, or on ctrl-C, they stay. A standard output that is closed (`>&-`) counts as /dev/null. Ends with exit
/// code 3 if no message came in time.
///
/// Bodies are printed as text where they are UTF-8 or UTF-16, else as base64. With --json, each message is one line of
/// JSON with the columns of a queue and `body` or `body_base64`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq receive orders                          all that is ready in the best group
  dialoq receive orders --top 1 --wait 5s        one message, waiting up to five seconds
  dialoq receive orders --follow --end --json    everything, for ever, as JSON lines")]
pub(super) struct Receive {
    /// The queue.
    queue: String,
    /// At most so many messages; without it, all that are ready in the group. While following, at most so many in one commit; without it,
    /// those of up to 100 groups or 1 MiB; --end may add to them. The lines of a commit come again together if one of them cannot be printed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    top: Option<u64>,
    /// How long to wait for a message: 5, 5s, 250ms, 2m, 1h. Without it, not at all.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    wait: Option<Duration>,
    /// Only messages of this conversation.
    #[arg(long, value_name = "HANDLE", value_parser = parse_handle, conflicts_with = "group")]
    conversation: Option<ConversationHandle>,
    /// Only messages of this conversation group.
    #[arg(long, value_name = "ID", value_parser = parse_group)]
    group: Option<GroupId>,
    /// Keep receiving: until ctrl-C, or until no message comes for as long as --wait says.
    #[arg(long)]
    follow: bool,
    /// Answer EndDialog and Error messages by END CONVERSATION, in the same transaction. What stands behind an Error comes with it,
    /// whatever --top says: the end would drop it.
    #[arg(long)]
    end: bool,
}

/// The refusals of what it follows once that has ended.
const GONE: [Code; 2] = [Code::CONVERSATION_NOT_FOUND, Code::GROUP_NOT_FOUND];
/// Set before the messages are taken.
const BEFORE_RECEIVE: &str = "before_receive";
/// The most conversation groups of one commit while following.
const FOLLOWED_GROUPS: usize = 100;
/// The most bytes of one commit while following, but for the last group.
const FOLLOWED_BYTES: usize = 1 << 20;

impl Receive {
    pub(super) async fn run(
        &self,
        globals: &Globals,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        let broker = globals.open_unless(interrupt).await?;
        let mut received = 0;
        let done = self.take(&broker, output, interrupt, &mut received).await;
        let why = match received {
            0 if done.is_ok() => dialoq::internals::receives_held_back(&broker, &self.queue).await,
            _ => None,
        };
        close_after(&broker, done).await?;
        match received {
            0 => {
                let why = why.map_or_else(String::new, |why| format!(": {}", printable_name(&why)));
                Err(Failure::Nothing(format!("no message is ready in queue '{}'{why}", printable_name(&self.queue))))
            }
            _ => Ok(()),
        }
    }

    async fn take(
        &self,
        broker: &Broker,
        output: &Output,
        interrupt: &mut Interrupt,
        received: &mut usize,
    ) -> Result<(), Failure> {
        let mut has_ended = false;
        let mut reader_has_gone = pin!(reader_has_gone());
        let mut warning = pin!(Obstacles::of(broker).warn(output));
        loop {
            let tx = broker.begin().await?;
            let batch = tokio::select! {
                biased;
                never = &mut warning, if self.follow => match never {},
                () = interrupt.requested() => {
                    return Err(Failure::Interrupted(format!("interrupted; messages received: {received}")));
                }
                // No message is taken that cannot be printed. A RECEIVE of one conversation or group that has waited cannot be undone
                // without a failed attempt.
                () = &mut reader_has_gone => return Err(Failure::BrokenPipe),
                batch = self.receive_first(&tx) => batch,
            };
            let batch = match batch {
                // It has ended the conversation that it follows, or the last one of the group.
                Err(error) if has_ended && GONE.contains(&error.code()) => return Ok(()),
                batch => batch?,
            };
            let Some(first) = batch else { return Ok(()) };
            let mut batches = vec![first];
            if self.follow {
                self.receive_more(&tx, &mut batches).await?;
            }
            let ended = if self.end { self.receive_rest(&tx, &mut batches).await? } else { BTreeSet::new() };
            if let Err(failure) = batches.iter().try_for_each(|batch| print(batch, output)) {
                // They were not at fault: five readers of the output that had gone turned the queue off. A rollback would count, also
                // after that to the savepoint; there may be none.
                if tx.rollback_to(BEFORE_RECEIVE).await.is_ok() {
                    tx.commit().await?;
                }
                return Err(failure.after(&format!("messages received: {received}")));
            }
            has_ended |= !ended.is_empty();
            for handle in ended {
                tx.end(handle).await?;
            }
            tx.commit().await?;
            *received += batches.iter().map(Batch::len).sum::<usize>();
            if !self.follow {
                return Ok(());
            }
        }
    }

    /// Takes more groups that are ready, so that a deep queue is not one commit for each.
    async fn receive_more(&self, tx: &Tx, batches: &mut Vec<Batch>) -> dialoq::Result<()> {
        let mut bytes = 0;
        while batches.len() < FOLLOWED_GROUPS && bytes < FOLLOWED_BYTES {
            let taken: usize = batches.iter().map(Batch::len).sum();
            let left = self.top.map(|top| top.saturating_sub(taken as u64));
            if left == Some(0) {
                break;
            }
            let Some(batch) = self.receive(tx, left).await? else { break };
            bytes += batch.iter().map(|message| message.body().len()).sum::<usize>();
            batches.push(batch);
        }
        Ok(())
    }

    /// Takes what stands behind an EndDialog or an Error, and gives the conversations that are to be ended.
    async fn receive_rest(&self, tx: &Tx, batches: &mut Vec<Batch>) -> dialoq::Result<BTreeSet<ConversationHandle>> {
        let of = |is_last: fn(&Message) -> bool| -> BTreeSet<ConversationHandle> {
            batches.iter().flatten().filter(|message| is_last(message)).map(|message| message.handle()).collect()
        };
        // A conversation may have both. Nothing stands behind an EndDialog.
        let (ended, broken) = (of(|message| message.is_end_dialog() || message.is_error()), of(Message::is_error));
        for handle in &broken {
            batches.extend(tx.receive(self.queue.as_str()).conversation(*handle).await?);
        }
        Ok(ended)
    }

    /// With a savepoint before it, to which a RECEIVE is undone. None is set before a wait, during which a transaction
    /// must hold nothing.
    async fn receive_first(&self, tx: &Tx) -> dialoq::Result<Option<Batch>> {
        let is_of_any = self.conversation.is_none() && self.group.is_none();
        let waits = self.wait.is_some() || self.follow;
        if is_of_any && waits {
            let group = tx.get_conversation_group(self.queue.as_str());
            let group = match self.wait {
                Some(wait) => group.wait(wait).await?,
                None => group.wait_forever().await?,
            };
            let Some(group) = group else { return Ok(None) };
            tx.savepoint(BEFORE_RECEIVE).await?;
            return self.receive(tx, self.top).group(group).await;
        }
        if !waits {
            tx.savepoint(BEFORE_RECEIVE).await?;
        }
        let receive = self.receive(tx, self.top);
        match self.wait {
            Some(wait) => receive.wait(wait).await,
            None if self.follow => receive.wait_forever().await,
            None => receive.await,
        }
    }

    fn receive<'a>(&self, tx: &'a Tx, top: Option<u64>) -> dialoq::receive::Receive<'a> {
        let mut receive = tx.receive(self.queue.as_str());
        if let Some(top) = top {
            receive = receive.top(top);
        }
        if let Some(handle) = self.conversation {
            receive = receive.conversation(handle);
        }
        if let Some(group) = self.group {
            receive = receive.group(group);
        }
        receive
    }
}

fn print(batch: &Batch, output: &Output) -> Result<(), Failure> {
    if output.json {
        return batch.iter().try_for_each(|message| output.json(&MessageLine(message)));
    }
    // One table per conversation, so that its handle stays in one piece and can be copied.
    for messages in batch.messages().chunk_by(|one, next| one.conversation_handle == next.conversation_handle) {
        let Some(first) = messages.first() else { continue };
        let mut table = table(&["#seq", "arrived", "message type", "body"]);
        for message in messages {
            table.add_row([
                message.message_sequence_number.to_string(),
                message.message_enqueue_time.to_string(),
                printable_name(shown_type(message)).into_owned(),
                shown_body(message),
            ]);
        }
        let (handle, service) = (first.conversation_handle, printable_name(&first.service_name));
        output.text(&format!("conversation {handle} at {service}, level {}\n{table}", first.priority))?;
    }
    Ok(())
}

/// The message type; of the system's types only the last part, in which they differ.
fn shown_type(message: &Message) -> &str {
    let name: &str = &message.message_type_name;
    let is_system = [system::END_DIALOG, system::ERROR, system::DIALOG_TIMER].contains(&name);
    if is_system { name.rsplit('/').next().unwrap_or(name) } else { name }
}

fn shown_body(message: &Message) -> String {
    if let Some(error) = message.error() {
        return format!("{}: {}", error.code, printable(&error.description));
    }
    match BodyText::of(message.message_body.as_deref()) {
        BodyText::Absent => String::new(),
        BodyText::Text(text) => shortened(&printable(text), 1_000),
        BodyText::Utf16(text, _) => shortened(&printable(&text), 1_000),
        BodyText::Binary(bytes) => format!("{} bytes: {}", bytes.len(), shortened(&to_base64(bytes), 200)),
    }
}
