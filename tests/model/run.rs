//! One random run on both sides.

use crate::definitions::{alter_retry, alter_service, definitions, priority, service};
use crate::known::Known;
use crate::ledger::{Entry, Ledger, Open};
use crate::servers::{Database, Store};
use crate::steps::{Break, Op, QUEUES, SESSIONS, Source, Step};
use crate::together::is_over;
use dialoq::act::Perform;
use dialoq::internals::core::{Limits, Memory, Savepoint, Session};
use dialoq::protocol::definition::{AfterRetries, BrokerOption, Definition, QueueEvent, QueueOptions};
use dialoq::protocol::{Message, Outcome, ReceiveFrom, Verb, system};
use dialoq::{Broker, Clock, ConversationHandle, Error, Gathering, GroupId, OpenOptions, Timestamp, Tx};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// Ids as the order in which this side first showed them.
#[derive(Default, Clone)]
pub(crate) struct Names(HashMap<Uuid, usize>);

impl Names {
    fn name(&mut self, id: Uuid) -> usize {
        let next = self.0.len();
        *self.0.entry(id).or_insert(next)
    }
}

/// The outcome of a verb, with names for ids: the same on both sides.
pub(crate) fn shown(names: &mut Names, outcome: &Result<Outcome, Error>) -> String {
    match outcome {
        Err(error) => format!("error {}", error.code()),
        Ok(Outcome::Began { handle, group, .. }) => {
            let group = names.name(group.0);
            format!("began {} in {group}", names.name(handle.0))
        }
        Ok(Outcome::Received(messages)) => {
            let lines: Vec<String> = messages.iter().map(|message| shown_message(names, message)).collect();
            format!("received [{}]", lines.join("; "))
        }
        Ok(Outcome::Group(group)) => format!("group {:?}", group.map(|group| names.name(group.0))),
        Ok(other) => format!("{other:?}"),
    }
}

fn shown_message(names: &mut Names, message: &Message) -> String {
    let group = names.name(message.conversation_group_id.0);
    let handle = names.name(message.conversation_handle.0);
    format!(
        "{} #{} of {handle} in {group} at {}: {:?} {:?} {} {}",
        message.message_type_name,
        message.message_sequence_number,
        message.priority,
        message.message_body.as_deref().filter(|_| !is_event(message)).map(String::from_utf8_lossy),
        message.message_enqueue_time,
        message.service_name,
        message.validation.letter(),
    )
}

/// The body of an event names moments and ids.
pub(crate) fn is_event(message: &Message) -> bool {
    &*message.message_type_name == system::EVENT_NOTIFICATION
}

pub(crate) struct Pair {
    model: Session,
    model_savepoint: Option<Savepoint>,
    tx: Tx,
    open: Open,
    /// The conversations that it has ended, or sent on without a sure delivery: DIFFERENCE(reads-committed).
    is_done_with: HashSet<ConversationHandle>,
    /// What it has sent on: an END says in which state it was.
    has_sent_on: HashSet<ConversationHandle>,
    has_ended: bool,
    has_moved: bool,
    /// It has given a conversation another level.
    has_new_level: bool,
}

pub(crate) struct Run {
    pub(crate) model: Memory,
    pub(crate) model_known: Known,
    pub(crate) model_names: Names,
    pub(crate) broker: Broker,
    pub(crate) known: Known,
    pub(crate) names: Names,
    pub(crate) clock: Clock,
    pub(crate) database: Database,
    /// On a server: whose transaction has put something into a queue. See [`Run::is_out_of_turn`].
    pub(crate) sender: Option<usize>,
    /// Who has begun a conversation, and in which group; the place after the last one for those begun at once.
    pub(crate) begun: HashMap<ConversationHandle, usize>,
    pub(crate) begun_in: HashMap<ConversationHandle, GroupId>,
    pub(crate) sessions: [Option<Pair>; SESSIONS],
    pub(crate) ledger: Ledger,
    /// Who sent that number, if one did: bodies are the same on both sides, so they cannot say it.
    pub(crate) senders: HashMap<u64, Option<ConversationHandle>>,
    /// The number of callers that a server's next batch waits for.
    pub(crate) gathering: Gathering,
    /// By queue: the last RECEIVEs went in a batch, so the next batch may pass over what is older.
    pub(crate) has_trail: [bool; QUEUES.len()],
    /// Groups that were received from while a transaction that sends was open, and not since: DIFFERENCE(oldest-in-batches).
    pub(crate) received_beside_sender: HashSet<GroupId>,
    /// Definitions were taken away under conversations.
    pub(crate) is_broken: bool,
    /// A retry policy may end any conversation, or take messages out of it.
    gives_up: bool,
}

/// Runs the steps on both sides; returns the first difference.
pub(crate) async fn run(store: Store, steps: &[Step]) -> Result<(), String> {
    let database = Database::fresh(store);
    let clock = Clock::manual(START);
    let gathering = Gathering::default();
    let broker = open(database.url(), &clock, &gathering).await?;
    let mut run = Run {
        model: Memory::new(Limits::default()),
        model_known: Known::default(),
        model_names: Names::default(),
        broker,
        known: Known::default(),
        names: Names::default(),
        clock,
        database,
        sender: None,
        begun: HashMap::new(),
        begun_in: HashMap::new(),
        sessions: Default::default(),
        ledger: Ledger::default(),
        senders: HashMap::new(),
        gathering,
        has_trail: Default::default(),
        received_beside_sender: HashSet::new(),
        is_broken: false,
        gives_up: false,
    };
    for text in ["CREATE TABLE note (number INTEGER PRIMARY KEY)", "INSERT INTO note (number) VALUES (0)"] {
        run.broker.sql(text, ()).await.map_err(|error| format!("{error:?}"))?;
    }
    run.define(definitions()).await?;
    for (place, step) in steps.iter().enumerate() {
        if run.is_out_of_turn(step) {
            continue;
        }
        run.step(step).await.map_err(|why| format!("step {place}, {step:?}: {why}"))?;
        run.settle().await;
    }
    run.finish().await
}

pub(crate) async fn open(url: &str, clock: &Clock, gathering: &Gathering) -> Result<Broker, String> {
    // The first receives are noted at once, the later ones are claims where the store has them.
    let options = OpenOptions::default().clock(clock.clone()).gathering(gathering.clone()).careful_receives(4);
    Broker::open_with(url, options).await.map_err(|error| format!("{error:?}"))
}

pub(crate) fn same(model: &str, store: &str) -> Result<(), String> {
    if model == store { Ok(()) } else { Err(format!("the core says\n  {model}\nthe store says\n  {store}")) }
}

impl Run {
    pub(crate) fn store(&self) -> Store {
        self.database.store()
    }

    /// The core puts the messages of a transaction into the queues at its commit; a server does so at each call, invisible to
    /// others until the commit. For the same order on both, one transaction at a time sends on a server. While it is open no
    /// other session sends, and it does not receive itself.
    fn is_out_of_turn(&self, step: &Step) -> bool {
        if !self.store().is_server() {
            return false;
        }
        // There it waits for the groups of conversations that have no target yet: docs/locks.md. No other session of the run would end
        // the transaction that holds one.
        if matches!(step, Step::Break(Break::ErrorConversations)) && self.sessions.iter().any(Option::is_some) {
            return true;
        }
        if self.comes_after_a_holder(step) {
            return true;
        }
        if let Step::Do(place, op) = step {
            // On a server a transaction sees at once what it has done, the core does it at the commit.
            let shows_it = |pair: &Pair, handle: &ConversationHandle| {
                pair.is_done_with.contains(handle) || matches!(op, Op::End { .. }) && pair.has_sent_on.contains(handle)
            };
            let own = self.sessions.get(*place).and_then(Option::as_ref);
            if own.is_some_and(|pair| self.named(op).iter().any(|handle| shows_it(pair, handle))) {
                return true;
            }
            // It receives by the new level at once.
            if matches!(op, Op::Receive { .. } | Op::GetGroup { .. }) && own.is_some_and(|pair| pair.has_new_level) {
                return true;
            }
            // A group is gone at once with the last conversation that the transaction has ended or moved away.
            if matches!(op, Op::Dialog { group: Some(_), .. } | Op::Move { .. })
                && own.is_some_and(|pair| pair.has_ended || pair.has_moved)
            {
                return true;
            }
            // Conversations of a group are received in the order of their handles, and a server names targets by chance.
            if let Op::Move { conversation, .. } = op
                && !self.begun.contains_key(&self.known.handle(*conversation))
            {
                return true;
            }
        }
        let Some(sender) = self.sender.filter(|sender| self.sessions[*sender].is_some()) else { return false };
        match step {
            Step::Begin(_) | Step::Commit(_) | Step::Savepoint(_) | Step::RollbackTo(_) | Step::Restart => false,
            Step::Rollback(place) | Step::Sql(place, _) => *place != sender,
            Step::Do(place, op) => match op {
                // On a server an END that erases its side also holds the peer's group if it is free: docs/locks.md.
                Op::Receive { .. } | Op::GetGroup { .. } => *place == sender || self.has_ended_in(sender),
                Op::Dialog { .. } | Op::Status { .. } => false,
                _ => *place != sender,
            },
            _ => true,
        }
    }

    fn has_ended_in(&self, place: usize) -> bool {
        self.sessions[place].as_ref().is_some_and(|pair| pair.has_ended)
    }

    /// The conversations that an op names.
    pub(crate) fn named(&self, op: &Op) -> Vec<ConversationHandle> {
        match op {
            Op::Dialog { related, .. } => related.iter().map(|place| self.known.handle(*place)).collect(),
            Op::Send { first, second, .. } => self.known.addressed(*first, *second),
            Op::SendEach(messages) => messages.iter().map(|(place, _)| self.known.handle(*place)).collect(),
            Op::Receive { from: Source::Conversation(conversation), .. }
            | Op::Move { conversation, .. }
            | Op::End { conversation, .. }
            | Op::Timer { conversation, .. }
            | Op::CancelTimer { conversation }
            | Op::Reprioritise { conversation, .. }
            | Op::Status { conversation } => vec![self.known.handle(*conversation)],
            // Groups that hold conversations not committed yet are named like these.
            Op::Receive { from: Source::Group(group), .. } | Op::Release { group } => {
                let group = self.known.group(*group);
                self.begun_in.iter().filter(|(_, begun)| **begun == group).map(|(handle, _)| *handle).collect()
            }
            Op::Receive { .. } | Op::GetGroup { .. } => Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn define(&mut self, definitions: Vec<Definition>) -> Result<(), String> {
        let verb = Verb::Define(definitions);
        let model = match self.model.submit(vec![verb.clone()], self.now()) {
            // It would wait for an open transaction, and this run has no other session to end that.
            Ok(None) => return Ok(()),
            Ok(Some(mut outcomes)) => Ok(outcomes.remove(0)),
            Err(refusal) => Err(refusal),
        };
        let store = self.broker.perform(verb).await;
        same(&shown(&mut self.model_names, &model), &shown(&mut self.names, &store))
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Begin(place) => {
                if self.sessions[*place].is_none() {
                    let tx = self.broker.begin().await.map_err(|error| format!("{error:?}"))?;
                    let model = self.model.core.begin();
                    self.sessions[*place] = Some(Pair {
                        model,
                        model_savepoint: None,
                        tx,
                        open: Open::default(),
                        is_done_with: HashSet::new(),
                        has_sent_on: HashSet::new(),
                        has_ended: false,
                        has_moved: false,
                        has_new_level: false,
                    });
                }
                Ok(())
            }
            Step::Commit(place) => match self.sessions[*place].take() {
                Some(pair) => self.commit(pair).await,
                None => Ok(()),
            },
            Step::Rollback(place) => match self.sessions[*place].take() {
                Some(pair) => {
                    self.model.rollback(pair.model, self.clock.now());
                    pair.tx.rollback().await.map_err(|error| format!("{error:?}"))
                }
                None => Ok(()),
            },
            Step::Savepoint(place) => {
                let Some(pair) = &mut self.sessions[*place] else { return Ok(()) };
                pair.model_savepoint = Some(self.model.core.savepoint(&pair.model));
                pair.open.savepoint();
                pair.tx.savepoint("s").await.map_err(|error| format!("{error:?}"))
            }
            Step::RollbackTo(place) => {
                let Some(pair) = &mut self.sessions[*place] else { return Ok(()) };
                if !pair.open.rollback_to() {
                    let refused = pair.tx.rollback_to("s").await;
                    return match refused {
                        Err(error) if error.code().0 == 60023 => Ok(()),
                        other => Err(format!("there was no savepoint, and ROLLBACK TO gave {other:?}")),
                    };
                }
                let savepoint = pair.model_savepoint.expect("the ledger has one too");
                self.model.rollback_to(&mut pair.model, savepoint, self.clock.now());
                pair.tx.rollback_to("s").await.map_err(|error| format!("{error:?}"))
            }
            Step::Sql(place, fails) => {
                let number = i64::try_from(self.ledger.next_number()).expect("a short run");
                let Some(pair) = &mut self.sessions[*place] else { return Ok(()) };
                let number = if *fails { 0 } else { number };
                let text = self.database.store().sql("INSERT INTO note (number) VALUES (?1)");
                let done = pair.tx.sql(text, (number,)).await;
                if *fails {
                    // The transaction goes on without it.
                    return match done {
                        Err(error) if error.code().0 == 60022 => Ok(()),
                        other => Err(format!("a row is refused, and the statement gave {other:?}")),
                    };
                }
                pair.open.note(Entry::Noted { number });
                done.map(drop).map_err(|error| format!("{error:?}"))
            }
            Step::Do(place, op) => self.op(*place, op).await,
            Step::Unit(ops) => self.unit(ops).await,
            Step::Sends(sends) => self.sends(sends).await,
            Step::Begins(begins) => self.begins(begins).await,
            Step::Ends(ends) => self.ends(ends).await,
            Step::Receives(queue, tops) => self.receives(*queue, tops).await,
            Step::Advance(seconds) => {
                self.clock.advance(Duration::from_secs(u64::from(*seconds)));
                self.settle().await;
                self.compare_rows().await
            }
            Step::QueueStatus(queue, on) => {
                let options = QueueOptions { status: Some(*on), ..QueueOptions::default() };
                self.define(vec![Definition::AlterQueue { name: QUEUES[*queue].into(), options }]).await
            }
            Step::Retention(queue, on) => {
                let options = QueueOptions { retention: Some(*on), ..QueueOptions::default() };
                self.define(vec![Definition::AlterQueue { name: QUEUES[*queue].into(), options }]).await
            }
            Step::Quarantine(queue, on) => {
                let options = QueueOptions { poison_quarantine: Some(*on), ..QueueOptions::default() };
                self.define(vec![Definition::AlterQueue { name: QUEUES[*queue].into(), options }]).await
            }
            Step::Retry(queue, attempts, then) => {
                if matches!(then, AfterRetries::EndWithError | AfterRetries::DeadLetter) && *attempts > 0 {
                    // From here on any rollback may end a conversation or take a message out of it, also of one that is begun
                    // later.
                    self.is_broken = true;
                    self.gives_up = true;
                    self.known.handles.iter().for_each(|handle| self.ledger.disturb(*handle));
                }
                self.define(vec![alter_retry(QUEUES[*queue], *attempts, *then)]).await
            }
            Step::Poisonable(queue, on) => {
                let options = QueueOptions { poison_message_handling: Some(*on), ..QueueOptions::default() };
                self.define(vec![Definition::AlterQueue { name: QUEUES[*queue].into(), options }]).await
            }
            Step::Priority(place, level, alters) => self.define(vec![priority(*place, *level, *alters)]).await,
            Step::Letter(place, goes_back) => self.letter(*place, *goes_back).await,
            Step::BrokerEnabled(on) => {
                let option = if *on { BrokerOption::EnableBroker } else { BrokerOption::DisableBroker };
                self.define(vec![Definition::AlterDatabase { option }]).await
            }
            Step::HonorPriority(on) => {
                self.define(vec![Definition::AlterDatabase { option: BrokerOption::HonorBrokerPriority(*on) }]).await
            }
            Step::MoveService(service, queue) => {
                self.define(vec![alter_service(["T", "U"][*service], Some(QUEUES[*queue]), &[], &[])]).await
            }
            Step::Break(what) => {
                let definition = match what {
                    Break::DropContractOfService => alter_service("T", None, &[], &["C"]),
                    Break::AddContractToService => alter_service("T", None, &["C"], &[]),
                    Break::DropService => Definition::DropService { name: "U".into() },
                    Break::CreateService => service("U", "QU", &["C"]),
                    Break::ErrorConversations => {
                        Definition::AlterDatabase { option: BrokerOption::ErrorBrokerConversations }
                    }
                    Break::NewBroker => Definition::AlterDatabase { option: BrokerOption::NewBroker },
                    Break::CreateNotification => Definition::CreateEventNotification {
                        name: "N".into(),
                        queue: "QT".into(),
                        event: QueueEvent::BrokerQueueDisabled,
                        service: "Watched".into(),
                    },
                    Break::DropNotification => {
                        Definition::DropEventNotification { name: "N".into(), queue: "QT".into() }
                    }
                };
                self.is_broken = true;
                self.known.handles.iter().for_each(|handle| self.ledger.disturb(*handle));
                self.define(vec![definition]).await
            }
            Step::Poison(queue) => {
                for _ in 0..5 {
                    self.receive_and_roll_back(QUEUES[*queue]).await?;
                }
                Ok(())
            }
            Step::Restart => self.restart().await,
        }
    }

    async fn commit(&mut self, pair: Pair) -> Result<(), String> {
        self.model.commit(pair.model, self.clock.now());
        pair.tx.commit().await.map_err(|error| format!("COMMIT: {error:?}"))?;
        self.ledger.commit(pair.open)
    }

    async fn op(&mut self, place: usize, op: &Op) -> Result<(), String> {
        if self.store().is_server()
            && place < SESSIONS
            && matches!(op, Op::Send { .. } | Op::SendEach(_) | Op::End { .. })
        {
            self.sender = Some(place);
        }
        let number = self.ledger.next_number();
        let named = self.both_sides(&self.named(op));
        let (model_verb, verb) = (self.model_known.verb(op, number), self.known.verb(op, number));
        let now = self.now();
        let pair = self.sessions.get_mut(place).and_then(Option::as_mut);
        let (model, store) = match pair {
            Some(pair) => {
                let model = self.model.execute(&mut pair.model, model_verb, now).transpose();
                let Some(model) = model else { return self.abandon(place, verb).await };
                (model, pair.tx.perform(verb.clone()).await)
            }
            None => {
                let model = self.model.submit(vec![model_verb], now).transpose();
                // It would wait for an open transaction, and this run has no other session to end that.
                let Some(model) = model else { return Ok(()) };
                if let Op::Receive { queue, .. } = op {
                    self.has_trail[*queue] = false;
                }
                (model.map(|mut outcomes| outcomes.remove(0)), self.broker.perform(verb.clone()).await)
            }
        };
        let is_in_transaction = self.sessions.get(place).is_some_and(Option::is_some);
        if !(self.store().is_server() && is_in_transaction && is_over(&model) && is_over(&store)) {
            same(&shown(&mut self.model_names, &model), &shown(&mut self.names, &store))?;
        }
        if let Some(pair) = self.sessions.get_mut(place).and_then(Option::as_mut) {
            // The body is not of the types that judge bodies.
            let may_come_back = |op: &Op| match op {
                Op::Send { message_type, .. } => self.is_broken || *message_type != 0,
                Op::SendEach(messages) => self.is_broken || messages.iter().any(|(_, message_type)| *message_type != 0),
                _ => false,
            };
            if matches!(op, Op::End { .. }) || may_come_back(op) {
                pair.is_done_with.extend(&named);
            }
            pair.has_ended |= matches!(op, Op::End { .. });
            pair.has_moved |= matches!(op, Op::Move { .. });
            pair.has_new_level |= matches!(op, Op::Reprioritise { .. });
            if matches!(op, Op::Send { .. } | Op::SendEach(_)) {
                pair.has_sent_on.extend(&named);
            }
        }
        self.model_known.learn(&model);
        self.known.learn(&store);
        // On SQL Server a refused verb keeps the lock it took: DIFFERENCE(reads-committed).
        if store.is_err() && self.store() == Store::Mssql && place < SESSIONS && self.sessions[place].is_some() {
            return Box::pin(self.step(&Step::Rollback(place))).await;
        }
        if let Ok(Outcome::Began { handle, group, .. }) = &store {
            self.begun.insert(*handle, place);
            self.begun_in.insert(*handle, *group);
        }
        self.enter(place, &verb, number, &store)
    }

    async fn receive_and_roll_back(&mut self, queue: &str) -> Result<(), String> {
        let verb = Verb::Receive { queue: queue.into(), top: None, from: ReceiveFrom::Any };
        let mut session = self.model.core.begin();
        let model = self.model.execute(&mut session, verb.clone(), self.clock.now());
        let model = model.map(|outcome| outcome.expect("RECEIVE waits for no lock"));
        let tx = self.broker.begin().await.map_err(|error| format!("{error:?}"))?;
        let store = tx.perform(verb).await;
        same(&shown(&mut self.model_names, &model), &shown(&mut self.names, &store))?;
        self.model_known.learn(&model);
        self.known.learn(&store);
        self.link(&store);
        self.model.rollback(session, self.clock.now());
        tx.rollback().await.map_err(|error| format!("{error:?}"))
    }

    /// The verb would wait for another transaction: it must, and giving up while it waits undoes the transaction.
    async fn abandon(&mut self, place: usize, verb: Verb) -> Result<(), String> {
        let pair = self.sessions[place].take().expect("it was just there");
        {
            let mut waiting = pin!(pair.tx.perform(verb));
            for _ in 0..if self.database.store().is_server() { 8 } else { 2 } {
                let polled = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
                if let Poll::Ready(outcome) = polled {
                    return Err(format!("it should wait for a lock, but gave {outcome:?}"));
                }
                self.barrier().await;
            }
        }
        drop(pair.tx);
        self.model.rollback(pair.model, self.clock.now());
        self.barrier().await;
        Ok(())
    }

    /// Records which endpoint receives from which.
    fn link(&mut self, outcome: &Result<Outcome, Error>) {
        let Ok(Outcome::Received(messages)) = outcome else { return };
        for message in messages {
            let number = String::from_utf8_lossy(message.body()).parse();
            if let Some(by) = number.ok().and_then(|number: u64| *self.senders.get(&number)?) {
                self.ledger.link(by, message.conversation_handle);
            }
        }
    }

    /// Keeps the books.
    pub(crate) fn enter(
        &mut self,
        place: usize,
        verb: &Verb,
        number: u64,
        outcome: &Result<Outcome, Error>,
    ) -> Result<(), String> {
        self.link(outcome);
        let Ok(outcome) = outcome else { return Ok(()) };
        let groups: Vec<GroupId> = match outcome {
            Outcome::Received(messages) => messages.iter().map(|message| message.conversation_group_id).collect(),
            Outcome::Group(group) => group.iter().copied().collect(),
            _ => Vec::new(),
        };
        if self.store().is_server() && matches!(outcome, Outcome::Received(_)) {
            let is_beside = self.sender.is_some_and(|sender| self.sessions[sender].is_some());
            for group in &groups {
                if is_beside {
                    self.received_beside_sender.insert(*group);
                } else {
                    self.received_beside_sender.remove(group);
                }
            }
        }
        for (other, pair) in self.sessions.iter().enumerate() {
            let held = groups
                .iter()
                .find(|group| other != place && pair.as_ref().is_some_and(|pair| pair.open.holds(**group)));
            if let Some(group) = held {
                return Err(format!("group {group} is in two hands"));
            }
        }
        let mut at_once = Open::default();
        let open = match self.sessions.get_mut(place).and_then(Option::as_mut) {
            Some(pair) => &mut pair.open,
            None => &mut at_once,
        };
        groups.iter().for_each(|group| open.hold(*group));
        match (verb, outcome) {
            (Verb::Send { handles, message_type, .. }, Outcome::Done) => {
                for by in handles {
                    open.note(Entry::Sent { by: *by, number });
                    self.senders.insert(number, (handles.len() == 1).then_some(*by));
                    if message_type.as_deref() != Some("Text") || handles.len() > 1 || self.gives_up {
                        // It may break the conversation, or its number does not name one sender.
                        self.ledger.disturb(*by);
                    }
                }
            }
            (Verb::SendEach(messages), Outcome::Done) => {
                for message in messages {
                    open.note(Entry::Sent { by: message.handle, number });
                    self.senders.insert(number, (messages.len() == 1).then_some(message.handle));
                    if message.message_type.as_deref() != Some("Text") || messages.len() > 1 || self.gives_up {
                        // It may break the conversation, or its number does not name one sender.
                        self.ledger.disturb(message.handle);
                    }
                }
            }
            (Verb::BeginDialog(dialog), Outcome::Began { handle, .. }) if dialog.lifetime_seconds.is_some() => {
                self.ledger.disturb(*handle);
            }
            (Verb::EndConversation { handle, .. }, Outcome::Ended(_)) => self.ledger.disturb(*handle),
            (_, Outcome::Received(messages)) => {
                for message in messages.iter().filter(|message| !is_event(message)) {
                    let is_system = [system::ERROR, system::END_DIALOG, system::DIALOG_TIMER]
                        .contains(&&*message.message_type_name);
                    if is_system {
                        if &*message.message_type_name != system::DIALOG_TIMER {
                            self.ledger.disturb(message.conversation_handle);
                        }
                        continue;
                    }
                    let number =
                        String::from_utf8_lossy(message.body()).parse().map_err(|_| "a body that was never sent")?;
                    let by = *self.senders.get(&number).ok_or("a number that was never sent")?;
                    if let Some(by) = by.filter(|by| !self.ledger.is_disturbed(*by)) {
                        open.note(Entry::Received { at: message.conversation_handle, by, number });
                    }
                }
            }
            _ => {}
        }
        self.ledger.commit(at_once)
    }

    /// Transactions are lost, everything else must be as before. The core goes on; the store reads its rows.
    async fn restart(&mut self) -> Result<(), String> {
        for place in 0..SESSIONS {
            if let Some(pair) = self.sessions[place].take() {
                self.model.rollback(pair.model, self.clock.now());
                pair.tx.rollback().await.map_err(|error| format!("{error:?}"))?;
            }
        }
        self.compare_rows().await?;
        self.model.restored(self.now()).map_err(|error| format!("the core's rows contradict each other: {error:?}"))?;
        self.broker.close().await.map_err(|error| format!("{error:?}"))?;
        self.broker = open(self.database.url(), &self.clock, &self.gathering).await?;
        self.settle().await;
        self.compare_rows().await?;
        // Rollbacks are counted in memory, so the store has forgotten them.
        self.queues_on().await?;
        self.compare_rows().await
    }

    /// Turns every queue off and on: it is on now, and the count of its rollbacks starts again.
    async fn queues_on(&mut self) -> Result<(), String> {
        for status in [false, true] {
            let options = QueueOptions { status: Some(status), ..QueueOptions::default() };
            let all = QUEUES.map(|name| Definition::AlterQueue { name: name.into(), options: options.clone() });
            self.define(all.to_vec()).await?;
        }
        Ok(())
    }

    /// What became due by the step has happened on both sides: a commit may make something that is due already.
    async fn settle(&mut self) {
        self.model.tick(self.now());
        self.barrier().await;
    }

    pub(crate) async fn barrier(&self) {
        for _ in 0..2 {
            self.store().barrier(&self.broker).await;
            tokio::task::yield_now().await;
        }
    }

    /// The rows of endpoints and of the transmission queue must be the same on both sides.
    pub(crate) async fn compare_rows(&mut self) -> Result<(), String> {
        let query = async |text: &str| self.broker.query(text, ()).await.map_err(|error| format!("{text}: {error:?}"));
        let endpoints = query(&format!("SELECT * FROM {}", self.store().view("conversation_endpoints"))).await?;
        let waiting = query(&format!(
            "SELECT count(CASE WHEN status = 1 THEN 1 END) AS ready, count(CASE WHEN status <> 1 THEN 1 END) AS kept FROM {}",
            self.store().queue_messages()
        )).await?;
        let mut store: Vec<String> = Vec::new();
        for row in &endpoints.rows {
            let text = |column: &str| row.get::<String>(column).map_err(|error| format!("{error:?}"));
            let number = |column: &str| row.get::<i64>(column).map_err(|error| format!("{error:?}"));
            let handle = self.known_place(&self.known, &text("conversation_handle")?);
            store.push(format!(
                "{handle} {} {} initiator {}",
                text("state")?,
                number("priority")?,
                number("is_initiator")?
            ));
        }
        let mut model: Vec<String> = Vec::new();
        for row in self.model.endpoints() {
            let handle = self.known_place(&self.model_known, &row.handle.to_string());
            model.push(format!(
                "{handle} {} {} initiator {}",
                row.state.code(),
                row.priority,
                i64::from(row.is_initiator)
            ));
        }
        store.sort();
        model.sort();
        same(&model.join("\n  "), &store.join("\n  "))?;

        self.compare_letters().await?;
        let number = |column: &str| waiting.rows[0].get::<i64>(column).map_err(|error| format!("{error:?}"));
        let store = format!("{} ready, {} kept", number("ready")?, number("kept")?);
        same(&format!("{} ready, {} kept", self.model.messages().count(), self.model.retained().count()), &store)?;
        self.compare_transmissions().await
    }

    fn known_place(&self, known: &Known, handle: &str) -> String {
        let place = known.handles.iter().position(|other| other.to_string() == handle);
        place.map_or("unseen".to_owned(), |place| place.to_string())
    }

    /// Ends every transaction, receives whatever is left, and balances the ledger.
    async fn finish(&mut self) -> Result<(), String> {
        for place in 0..SESSIONS {
            if let Some(pair) = self.sessions[place].take() {
                self.commit(pair).await?;
                self.settle().await;
            }
        }
        // Whatever keeps messages waiting is taken away; the service may be there, which both sides refuse alike.
        self.define(vec![Definition::AlterDatabase { option: BrokerOption::EnableBroker }]).await?;
        self.define(vec![service("U", "QU", &["C"])]).await?;
        self.queues_on().await?;
        for group in 0..self.known.groups.len() {
            self.op(SESSIONS, &Op::Release { group }).await?;
        }
        self.compare_rows().await?;
        self.model.restored(self.now()).map_err(|error| format!("the core's rows contradict each other: {error:?}"))?;
        for queue in 0..QUEUES.len() {
            loop {
                let before = self.model.messages().count();
                self.op(SESSIONS, &Op::Receive { queue, top: None, from: Source::Any }).await?;
                if self.model.messages().count() == before {
                    break;
                }
            }
        }
        if self.model.messages().count() > 0 {
            return Err("rows are left that no RECEIVE gives".to_owned());
        }
        self.compare_rows().await?;
        self.ledger.balance()?;
        let notes = self.broker.query("SELECT number FROM note WHERE number > 0 ORDER BY number", ()).await;
        let notes = notes.map_err(|error| format!("{error:?}"))?;
        let notes: Vec<i64> = notes.rows.iter().map(|row| row.get("number").unwrap_or_default()).collect();
        let mut right = self.ledger.noted().to_vec();
        right.sort_unstable();
        same(&format!("notes {right:?}"), &format!("notes {notes:?}"))?;
        self.broker.close().await.map_err(|error| format!("{error:?}"))
    }
}
