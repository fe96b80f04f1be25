//! Sending many messages in few commits.

use super::lines::{InputPosition, Item, Source};
use super::outcome::Outcomes;
use super::{Send, print_line, refused};
use crate::cli::failure::Failure;
use crate::cli::interrupt::Interrupt;
use crate::cli::lines::{LineWork, has_ended, were};
use crate::cli::output::Output;
use crate::cli::waits::naming_the_holder;
use dialoq::act::{Dialog, Outgoing};
use dialoq::internals::ErrorConstructors;
use dialoq::internals::jsonl::SendLine;
use dialoq::status::{Delivery, SentOn};
use dialoq::{Act, Broker, Code, ConversationHandle, Error, Result, Tx};
use indicatif::ProgressBar;
use std::collections::{HashMap, HashSet, VecDeque};

/// The most messages of one commit.
const BATCH_MESSAGES: usize = 1_000;
/// The most bytes of one commit, but for the last message.
const BATCH_BYTES: usize = 8 << 20;

const SENDS: LineWork = LineWork { thing: "message", done: "sent" };

/// A conversation that was sent on.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) handle: ConversationHandle,
    /// If it was begun here.
    pub(super) dialog: Option<Dialog>,
    pub(super) sent: u64,
    pub(super) is_ended: bool,
}

/// Sends what a source gives; everything here is true of what is committed.
pub(super) struct Sender<'a> {
    options: &'a Send,
    broker: &'a Broker,
    output: &'a Output,
    /// The conversations sent on, in order; of dialogs begun per message only the first ones.
    pub(super) begun: Vec<Begun>,
    /// How many dialogs were begun.
    pub(super) begun_total: usize,
    /// How many messages were sent.
    pub(super) sent: u64,
    /// What became of them.
    pub(super) outcomes: Outcomes,
    places: HashMap<ConversationHandle, usize>,
    /// The dialog of all messages, once begun.
    dialog: Option<Dialog>,
    refused: u64,
    /// The reader of the output has gone, which is no reason not to send.
    is_output_gone: bool,
    progress: ProgressBar,
}

/// What one message did, to be believed once it is committed.
struct Done {
    handle: ConversationHandle,
    dialog: Option<Dialog>,
    is_ended: bool,
}

impl<'a> Sender<'a> {
    pub(super) fn new(options: &'a Send, broker: &'a Broker, output: &'a Output) -> Self {
        let progress = output.spinner("{spinner} {human_pos} messages sent, {per_sec}");
        Self {
            options,
            broker,
            output,
            begun: Vec::new(),
            begun_total: 0,
            sent: 0,
            outcomes: Outcomes::default(),
            places: HashMap::new(),
            dialog: None,
            refused: 0,
            is_output_gone: false,
            progress,
        }
    }

    /// Sends to the end of the source, to the first message refused, or until ctrl-C.
    pub(super) async fn send_all(&mut self, mut source: Source, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let done = self.send_batches(&mut source, interrupt).await;
        self.progress.finish_and_clear();
        done?;
        if self.options.end {
            self.end_all(interrupt).await?;
        }
        match self.refused {
            0 => Ok(()),
            refused => Err(Failure::input(format!("{refused} of {} messages were refused", refused + self.sent))),
        }
    }

    async fn send_batches(&mut self, source: &mut Source, interrupt: &mut Interrupt) -> Result<(), Failure> {
        loop {
            let first = tokio::select! {
                biased;
                () = interrupt.requested() => return Err(self.interrupted()),
                item = source.next() => item,
            };
            let Some(first) = first else { return Ok(()) };
            let mut batch = vec![first];
            let mut bytes = 0;
            while batch.len() < BATCH_MESSAGES && bytes < BATCH_BYTES {
                let Some(item) = source.next_available() else { break };
                bytes += item.line.as_ref().map_or(0, |line| line.body.as_ref().map_or(0, Vec::len));
                batch.push(item);
            }
            self.send_batch(batch, source.is_over(), interrupt).await?;
        }
    }

    /// One commit: of the messages before the first refused one, or of all that are not refused. If it is the last one,
    /// it also ends the conversations that are to be ended.
    async fn send_batch(&mut self, batch: Vec<Item>, is_last: bool, interrupt: &Interrupt) -> Result<(), Failure> {
        let before = self.dialog;
        let (first, last) = (batch[0].place, batch[batch.len() - 1].place);
        let (broker, output, is_lone) = (self.broker, self.output, batch.len() == 1);
        let (conversation, group) = (self.options.conversation, self.options.group);
        // Before its commit ctrl-C takes all of it back.
        let filled = async {
            let tx = self.broker.begin().await?;
            let (done, stopped_by) = self.fill(&tx, batch).await?;
            let ends_all = is_last && self.options.end && stopped_by.is_none() && !done.is_empty();
            if ends_all {
                self.end_in(&tx, &done).await?;
            }
            Ok::<_, Error>((tx, done, stopped_by, ends_all))
        };
        let filled = async {
            if is_lone {
                naming_the_holder(broker, conversation, group, output, filled).await
            } else {
                // Its own transaction holds the group after the first message, and many take long.
                filled.await
            }
        };
        let filled = match interrupt.unless_requested(filled).await {
            Ok(Some(filled)) => Ok(filled),
            Ok(None) => {
                self.dialog = before;
                return Err(self.interrupted());
            }
            Err(error) => Err((error, false)),
        };
        let committed = match filled {
            Ok((_, done, stopped_by, ends_all)) if done.is_empty() => Ok((done, stopped_by, ends_all)),
            Ok((tx, done, stopped_by, ends_all)) => match interrupt.finishes(tx.commit()).await {
                Some(Ok(())) => Ok((done, stopped_by, ends_all)),
                Some(Err(error)) => Err((error, true)),
                None => return Err(Failure::cut_off(&format!("messages sent: {}", self.sent))),
            },
            Err(lost) => Err(lost),
        };
        let (done, stopped_by, ends_all) = match committed {
            Ok(committed) => committed,
            Err((error, is_of_commit)) => {
                self.dialog = before;
                return Err(SENDS.lost(error, is_of_commit, (first, last), self.sent).into());
            }
        };
        self.record_results(done).await?;
        if ends_all {
            self.begun.iter_mut().for_each(|begun| begun.is_ended = true);
        }
        match stopped_by {
            None => Ok(()),
            Some((place, error)) => {
                let message = match place {
                    InputPosition::Line(1) => format!("{}; nothing was sent", refused(&place, &error)),
                    InputPosition::Line(_) => {
                        format!("{}; what stands before it was sent, nothing else", refused(&place, &error))
                    }
                    InputPosition::Body(_) => {
                        format!("{}; {} before it were sent, nothing else", refused(&place, &error), self.sent)
                    }
                };
                Err(Error::new(error.code(), message).into())
            }
        }
    }

    /// Sends the messages of a batch in a transaction, to the first that is refused, or all that are not: what they did, and the refusal
    /// that ends it. The error is that of a transaction that is lost.
    async fn fill(&mut self, tx: &Tx, batch: Vec<Item>) -> Result<(Vec<Done>, Option<(InputPosition, Error)>)> {
        let mut done = Vec::with_capacity(batch.len());
        let mut items = VecDeque::from(batch);
        // So many of the next go one by one, because their list was refused: so each refusal names its line.
        let mut alone = 0;
        while !items.is_empty() {
            if alone == 0 {
                let list = self.list(&items);
                let sends = match list.len() {
                    0 | 1 => false,
                    _ => match tx.send_each(self.outgoing(&list)).await {
                        Ok(_) => true,
                        Err(error) if has_ended(tx).await => return Err(error),
                        Err(_) => false,
                    },
                };
                let handles: Vec<_> = list.into_iter().map(|(handle, _)| handle).collect();
                if sends {
                    items.drain(..handles.len());
                    done.extend(handles.into_iter().map(|handle| Done { handle, dialog: None, is_ended: false }));
                    continue;
                }
                alone = handles.len().max(1);
            }
            alone -= 1;
            let Some(Item { place, line }) = items.pop_front() else { break };
            let sent = match line {
                Ok(line) => self.send_one(tx, line).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(one) => done.push(one),
                Err(error) if has_ended(tx).await => return Err(error),
                Err(error) if self.options.keep_going => {
                    self.refused += 1;
                    self.progress.suspend(|| self.note_refused(&place, &error));
                }
                Err(error) => return Ok((done, Some((place, error)))),
            }
        }
        Ok((done, None))
    }

    /// "2 messages were sent".
    pub(super) fn all_sent(&self) -> String {
        format!("{} sent", were(self.sent, "message"))
    }

    fn interrupted(&self) -> Failure {
        Failure::Interrupted(format!("interrupted; messages sent: {}", self.sent))
    }

    fn note_refused(&self, place: &InputPosition, error: &Error) {
        let text = refused(place, error);
        match self.output.json {
            true => drop(Failure::from(Error::new(error.code(), text)).report(self.output)),
            false => self.output.note(&format!("refused[{}]: {text}", error.code())),
        }
    }

    /// The longest beginning of messages that only have to be sent: on conversations that are known, and not ended after it.
    fn list<'l>(&self, items: &'l VecDeque<Item>) -> Vec<(ConversationHandle, &'l SendLine)> {
        let known = self.dialog.filter(|_| !self.options.dialog_per_message).map(|dialog| dialog.handle);
        let listed = items.iter().map_while(|item| {
            let line = item.line.as_ref().ok().filter(|line| !line.end)?;
            line.conversation.or(self.options.conversation).or(known).map(|handle| (handle, line))
        });
        listed.collect()
    }

    fn outgoing(&self, list: &[(ConversationHandle, &SendLine)]) -> Vec<Outgoing> {
        let outgoing = |(handle, line): &(ConversationHandle, &SendLine)| {
            let message_type = self.options.type_of(line.message_type.as_deref());
            Outgoing::new(*handle, message_type, line.body.as_deref().unwrap_or_default())
        };
        list.iter().map(outgoing).collect()
    }

    /// Ends the conversations that were sent on before, and those of the batch.
    async fn end_in(&self, tx: &Tx, done: &[Done]) -> Result<()> {
        let mut ended: HashSet<_> = done.iter().filter(|one| one.is_ended).map(|one| one.handle).collect();
        let earlier = self.begun.iter().filter(|begun| !begun.is_ended).map(|begun| begun.handle);
        for handle in earlier.chain(done.iter().map(|one| one.handle)) {
            if ended.insert(handle) {
                tx.end(handle).await?;
            }
        }
        Ok(())
    }

    /// One message, wholly or not at all: a dialog begun for a message that is refused is not begun.
    async fn send_one(&mut self, tx: &Tx, line: SendLine) -> Result<Done> {
        let given = line.conversation.or(self.options.conversation);
        let known = self.dialog.filter(|_| !self.options.dialog_per_message).map(|dialog| dialog.handle);
        let ends = line.end || (self.options.end && self.options.dialog_per_message && given.is_none());
        let handle = given.or(known);
        if handle.is_some() && !ends {
            return self.send_on(tx, handle, line, ends).await;
        }
        tx.savepoint("message").await?;
        let sent = self.send_on(tx, handle, line, ends).await;
        if sent.is_err() {
            // If the transaction is lost, the first error says why; the caller finds that it has ended.
            let _ = tx.rollback_to("message").await;
        }
        sent
    }

    async fn send_on(
        &mut self,
        tx: &Tx,
        handle: Option<ConversationHandle>,
        line: SendLine,
        ends: bool,
    ) -> Result<Done> {
        let dialog = match handle {
            Some(_) => None,
            None => Some(self.begin(tx).await?),
        };
        let Some(handle) = handle.or(dialog.map(|dialog| dialog.handle)) else {
            unreachable!("without a handle a dialog was begun");
        };
        let message_type = self.options.type_of(line.message_type.as_deref());
        tx.send(handle, message_type, line.body.as_deref().unwrap_or_default()).await?;
        if ends {
            tx.end(handle).await?;
        }
        if dialog.is_some() && !self.options.dialog_per_message {
            // The next message begins another dialog once this one is ended.
            self.dialog = dialog.filter(|_| !ends);
        } else if ends && self.dialog.is_some_and(|dialog| dialog.handle == handle) {
            self.dialog = None;
        }
        Ok(Done { handle, dialog, is_ended: ends })
    }

    async fn begin(&self, tx: &Tx) -> Result<Dialog> {
        let (Some(from), Some(to)) = (&self.options.from, &self.options.to) else {
            let why = "it names no conversation, and there is neither --conversation nor --from and --to";
            return Err(Error::new(Code::BAD_INPUT, why));
        };
        let mut dialog = tx.begin_dialog(from.as_str(), to.as_str());
        if let Some(contract) = &self.options.contract {
            dialog = dialog.contract(contract.as_str());
        }
        if let Some(lifetime) = self.options.lifetime {
            dialog = dialog.lifetime(lifetime);
        }
        if let Some(group) = self.options.group {
            dialog = dialog.in_group(group);
        }
        dialog.with_ids().await
    }

    async fn record_results(&mut self, done: Vec<Done>) -> Result<(), Failure> {
        // Dialogs of one message are looked at batch by batch; the others once, at the end.
        let begun_here: Vec<SentOn> = match self.options.dialog_per_message {
            true => done.iter().filter_map(|one| one.dialog).map(SentOn::from).collect(),
            false => Vec::new(),
        };
        let mut deliveries = self.outcomes.look(self.broker, &begun_here, self.output).await.into_iter();
        self.sent += done.len() as u64;
        for Done { handle, dialog, is_ended } in done {
            self.begun_total += usize::from(dialog.is_some());
            if self.options.dialog_per_message && dialog.is_some() {
                let begun = Begun { handle, dialog, sent: 1, is_ended };
                let delivery = deliveries.next();
                if self.output.json && !self.is_output_gone {
                    match print_line(&begun, delivery.as_ref(), self.output) {
                        Err(Failure::BrokenPipe) => self.is_output_gone = true,
                        printed => printed.map_err(|failure| failure.after(&self.all_sent()))?,
                    }
                }
                // All of them are kept only if they still have to be ended.
                if self.begun.len() < super::LISTED {
                    self.begun.push(begun);
                }
                continue;
            }
            let place = *self.places.entry(handle).or_insert_with(|| {
                self.begun.push(Begun { handle, dialog, sent: 0, is_ended: false });
                self.begun.len() - 1
            });
            self.begun[place].sent += 1;
            self.begun[place].is_ended |= is_ended;
        }
        self.progress.set_position(self.sent);
        Ok(())
    }

    /// Looks at the conversations that are not looked at yet: one outcome for each of `begun`, if the look succeeds.
    pub(super) async fn look(&mut self) -> Vec<Delivery> {
        let is_seen = |begun: &&Begun| !(self.options.dialog_per_message && begun.dialog.is_some());
        let sent: Vec<SentOn> = self
            .begun
            .iter()
            .filter(is_seen)
            .map(|begun| begun.dialog.map_or(begun.handle.into(), SentOn::from))
            .collect();
        self.outcomes.look(self.broker, &sent, self.output).await
    }

    async fn end_all(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        let open = |begun: &&mut Begun| !begun.is_ended;
        let filled = async {
            let tx = self.broker.begin().await?;
            self.end_in(&tx, &[]).await?;
            Ok::<_, Error>(tx)
        };
        let Some(tx) = interrupt.unless_requested(filled).await? else { return Err(self.interrupted()) };
        let Some(committed) = interrupt.finishes(tx.commit()).await else {
            return Err(Failure::cut_off(&format!("messages sent: {}", self.sent)));
        };
        committed?;
        self.begun.iter_mut().filter(open).for_each(|begun| begun.is_ended = true);
        Ok(())
    }
}
