//! The base of every case: a broker of its own on a fresh database with a clock that only the case moves, short
//! words for the statements, and eyes for the views.

use crate::form::Form;
use crate::servers::{Database, Store};
use dialoq::act::{Dialog, Perform};
use dialoq::protocol::{self, Addressee, Message, ReceiveFrom, Relation, Verb, system};
use dialoq::{
    Act, Broker, Clock, ConversationHandle, ConversationId, Error, GroupId, Result, SqlRow, SqlValue, Timestamp, Tx,
};
use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A case that runs.
pub(crate) type Running = Pin<Box<dyn Future<Output = std::result::Result<(), Failure>>>>;

/// A case, registered wherever [`case!`] stands.
pub(crate) struct Case {
    pub(crate) module: &'static str,
    pub(crate) name: &'static str,
    pub(crate) assertions: &'static [u16],
    pub(crate) run: fn(Rig) -> Running,
}

inventory::collect!(Case);

impl Case {
    /// The file it stands in.
    pub(crate) fn section(&self) -> &'static str {
        self.module.rsplit("::").next().unwrap_or(self.module)
    }
}

/// `case!(name, [assertions], async |t| { ... })`: runs on every store, with a [`Rig`] of its own as `t`.
macro_rules! case {
    ($name:ident, [$($assertion:literal),+], async |$t:ident| $body:block) => {
        inventory::submit! {
            $crate::rig::Case {
                module: module_path!(),
                name: stringify!($name),
                assertions: &[$($assertion),+],
                run: |$t: $crate::rig::Rig| Box::pin(async move {
                    $body
                    #[allow(unreachable_code)]
                    Ok(())
                }),
            }
        }
    };
}

/// An error where none was expected, with the place.
pub(crate) struct Failure(String);

impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self(format!("{}: {error:?}", Location::caller()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Waits for the first future that is done, removes it, and gives its place and its result.
pub(crate) async fn first_done<F: Future + Unpin>(works: &mut [Option<F>]) -> (usize, F::Output) {
    poll_fn(|context| {
        for (place, slot) in works.iter_mut().enumerate() {
            if let Some(work) = slot
                && let Poll::Ready(done) = Pin::new(work).poll(context)
            {
                *slot = None;
                return Poll::Ready((place, done));
            }
        }
        Poll::Pending
    })
    .await
}

/// The number of the error that was expected.
#[track_caller]
pub(crate) fn code<T: fmt::Debug>(result: Result<T>) -> u16 {
    match result {
        Err(error) => error.code().0,
        Ok(value) => panic!("an error was expected, found {value:?}"),
    }
}

/// The definitions of every case; `I` begins, `T` accepts.
const DEFINITIONS: &str = include_str!("definitions.sql");

/// 2026-01-01 00:00 UTC.
const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// One broker on one database.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) broker: Broker,
    pub(crate) clock: Clock,
    pub(crate) database: Database,
    form: Form,
    /// The broker that owns the file, if the other works through it.
    owner: Option<Broker>,
}

/// Both ends of a conversation in which the first message was sent and received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) initiator: ConversationHandle,
    pub(crate) target: ConversationHandle,
}

impl Rig {
    /// Another broker on a fresh database of the same store, in which nothing was made.
    pub(crate) async fn bare(&self) -> Result<Self> {
        Self::at(Database::fresh(self.store()), Clock::manual(START), self.form).await
    }

    /// A broker on a fresh database of that store, with [`DEFINITIONS`] made.
    pub(crate) async fn open(store: Store, form: Form) -> std::result::Result<Self, Failure> {
        let rig = Self::at(Database::fresh(store), Clock::manual(START), form).await?;
        rig.define(DEFINITIONS).await?;
        Ok(rig)
    }

    async fn at(database: Database, clock: Clock, form: Form) -> Result<Self> {
        let open = || Broker::open_with(database.url(), form.options().clock(clock.clone()));
        let mut owner = if form.has_owner() { Some(open().await?) } else { None };
        let broker = open().await?;
        if form == Form::Heir
            && let Some(owner) = owner.take()
        {
            owner.close().await?;
        }
        Ok(Self { broker, clock, database, form, owner })
    }

    pub(crate) fn store(&self) -> Store {
        self.database.store()
    }

    /// Closes the broker and opens the same database.
    pub(crate) async fn restart(self) -> Result<Self> {
        self.restart_after(0).await
    }

    /// The same with so many seconds in between.
    pub(crate) async fn restart_after(self, seconds: u64) -> Result<Self> {
        self.broker.close().await?;
        if let Some(owner) = &self.owner {
            owner.close().await?;
        }
        let Self { broker, clock, database, form, owner } = self;
        drop((broker, owner));
        clock.advance(Duration::from_secs(seconds));
        Self::at(database, clock, form).await
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock, and runs the events that are due by then.
    pub(crate) async fn advance(&self, seconds: u64) -> Result<()> {
        self.advance_ms(seconds * 1000).await
    }

    /// The same in milliseconds.
    pub(crate) async fn advance_ms(&self, ms: u64) -> Result<()> {
        self.clock.advance(Duration::from_millis(ms));
        self.settle().await;
        Ok(())
    }

    /// The same after all other tasks had their turn to begin waiting.
    pub(crate) async fn advance_after_settling(&self, seconds: u64) -> Result<()> {
        self.settle().await;
        self.advance(seconds).await
    }

    /// Asks again and again until the answer is right: for what happens by itself some time after a transaction was dropped.
    /// Gives the last answer after a time that nothing takes unless it never happens.
    pub(crate) async fn soon<T>(&self, ask: impl AsyncFn() -> Result<T>, is_right: impl Fn(&T) -> bool) -> Result<T> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = ask().await?;
            if is_right(&answer) || Instant::now() > until {
                return Ok(answer);
            }
            self.settle().await;
        }
    }

    /// Lets everything that was asked before be answered.
    pub(crate) async fn settle(&self) {
        for _ in 0..4 {
            self.barrier().await;
            tokio::task::yield_now().await;
        }
    }

    async fn barrier(&self) {
        self.store().barrier(&self.broker).await;
    }

    /// Proves that the work waits: it is not done although everything asked before it, and itself, had its turn.
    #[track_caller]
    pub(crate) fn still_waits<F: Future<Output: fmt::Debug> + Unpin>(&self, work: &mut F) -> impl Future<Output = ()> {
        let place = Location::caller();
        // A verb is one step of the embedded store, but several questions to a server.
        let polls = if self.store().is_server() { 12 } else { 4 };
        async move {
            for _ in 0..polls {
                let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context))).await;
                if let Poll::Ready(done) = polled {
                    panic!("{place}: it should wait, but is done: {done:?}");
                }
                self.barrier().await;
            }
        }
    }

    pub(crate) async fn define(&self, script: &str) -> Result<Vec<String>> {
        let warnings = self.broker.execute(script).await?;
        self.form.prepare(&self.broker).await?;
        Ok(warnings)
    }

    pub(crate) async fn begin(&self) -> Result<Session> {
        Ok(Session(self.broker.begin().await?))
    }

    /// BEGIN DIALOG from `I` over `C` to that service.
    pub(crate) fn to(&self, service: &str) -> Begin {
        Begin {
            from_service: "I".into(),
            to_service: service.into(),
            addressee: Addressee::Anywhere,
            contract: Some("C".into()),
            related: Relation::None,
            lifetime: None,
        }
    }

    /// BEGIN DIALOG from `I` over `C` to `T`.
    pub(crate) fn to_target(&self) -> Begin {
        self.to("T")
    }

    /// A dialog from `I` to `T` without messages yet.
    pub(crate) async fn dialog(&self) -> Result<ConversationHandle> {
        Ok(self.begin_dialog(self.to_target()).await?.handle)
    }

    /// A dialog from `I` to `T` whose first message was sent and received.
    pub(crate) async fn pair(&self) -> Result<Pair> {
        self.open_dialog(self.to_target(), "Text", "QT").await
    }

    pub(crate) async fn pair_with_lifetime(&self, seconds: i64) -> Result<Pair> {
        self.open_dialog(self.to_target().lifetime(seconds), "Text", "QT").await
    }

    /// The same over contract `DEFAULT`, from `I` to `Plain`.
    pub(crate) async fn pair_over_default(&self) -> Result<Pair> {
        self.open_dialog(self.to("Plain").without_contract(), "DEFAULT", "QPlain").await
    }

    async fn open_dialog(&self, begin: Begin, message_type: &str, queue: &str) -> Result<Pair> {
        let initiator = self.begin_dialog(begin).await?.handle;
        self.send(initiator, message_type, "open").await?;
        let target = self.peer_of(initiator).await?.expect("its first message makes the target's endpoint");
        assert_eq!(self.receive_from(queue, target).await?.texts(), ["open"]);
        Ok(Pair { initiator, target })
    }

    async fn peer_of(&self, handle: ConversationHandle) -> Result<Option<ConversationHandle>> {
        let endpoints = self.endpoints().await?;
        let own = endpoints.iter().find(|endpoint| endpoint.handle == handle).expect("the endpoint exists");
        let is_peer = |other: &&Endpoint| other.conversation_id == own.conversation_id && other.handle != handle;
        Ok(endpoints.iter().find(is_peer).map(|endpoint| endpoint.handle))
    }

    /// Lets the target of a dialog send, after a first message if there was none.
    pub(crate) async fn answer(&self, initiator: ConversationHandle, text: &str) -> Result<()> {
        let target = match self.peer_of(initiator).await? {
            Some(target) => target,
            None => {
                self.send(initiator, "Text", "open").await?;
                let target = self.peer_of(initiator).await?.expect("its first message makes the target's endpoint");
                assert_eq!(self.receive_from("QT", target).await?.texts(), ["open"]);
                target
            }
        };
        self.send(target, "Text", text).await
    }

    /// Services `To1` to `To10` on the target's queue, as named, whose dialogs have that level at the initiator.
    pub(crate) async fn levels_by_target(&self, levels: &[u8]) -> Result<()> {
        for level in levels {
            self.define(&format!(
                "CREATE SERVICE [To{level}] ON QUEUE [QT] ([C]);
                 CREATE BROKER PRIORITY [To{level}] FOR CONVERSATION
                    SET (REMOTE_SERVICE_NAME = 'To{level}', PRIORITY_LEVEL = {level})"
            ))
            .await?;
        }
        Ok(())
    }

    /// A dialog to `T` that has that level on both sides.
    pub(crate) async fn begin_at_level(&self, level: u8) -> Result<ConversationHandle> {
        let name = format!("From{level}");
        if self.broker.catalog().service(&name).is_none() {
            self.define(&format!(
                "CREATE SERVICE [{name}] ON QUEUE [QI];
                 CREATE BROKER PRIORITY [{name} here] FOR CONVERSATION
                    SET (LOCAL_SERVICE_NAME = [{name}], PRIORITY_LEVEL = {level});
                 CREATE BROKER PRIORITY [{name} there] FOR CONVERSATION
                    SET (REMOTE_SERVICE_NAME = '{name}', PRIORITY_LEVEL = {level})"
            ))
            .await?;
        }
        Ok(self.begin_dialog(self.to_target().from(&name)).await?.handle)
    }

    pub(crate) async fn send_at_level(&self, level: u8, text: &str) -> Result<()> {
        let dialog = self.begin_at_level(level).await?;
        self.send(dialog, "Text", text).await
    }

    pub(crate) async fn wait_for_conversation(
        &self,
        queue: &str,
        handle: ConversationHandle,
        seconds: u64,
    ) -> Result<Vec<Message>> {
        let batch = self.broker.receive(queue).conversation(handle).wait(Duration::from_secs(seconds)).await?;
        Ok(batch.map(dialoq::Batch::into_messages).unwrap_or_default())
    }

    pub(crate) async fn wait_for_group(&self, queue: &str, seconds: u64) -> Result<Option<GroupId>> {
        self.broker.get_conversation_group(queue).wait(Duration::from_secs(seconds)).await
    }

    /// Sends each body to `T` over `C`: the good ones must arrive, the bad ones come back as an Error of that code.
    pub(crate) async fn verdicts(
        &self,
        message_type: &str,
        good: Vec<Vec<u8>>,
        bad: Vec<Vec<u8>>,
        code: i32,
    ) -> Result<()> {
        self.verdicts_over("C", message_type, good, bad, code).await
    }

    pub(crate) async fn verdicts_over(
        &self,
        contract: &str,
        message_type: &str,
        good: Vec<Vec<u8>>,
        bad: Vec<Vec<u8>>,
        code: i32,
    ) -> Result<()> {
        for (bodies, passes) in [(good, true), (bad, false)] {
            for body in bodies {
                let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
                let dialog = self.begin_dialog(self.to_target().on(contract)).await?.handle;
                self.send_bytes(dialog, message_type, Some(body.clone())).await?;
                let arrived = self.receive("QT").await?;
                let application: Vec<_> = arrived.iter().filter(|message| !message.is_error()).collect();
                let came_back = self.receive("QI").await?.error_codes();
                if passes {
                    assert_eq!(application.len(), 1, "{message_type}: {shown}: {came_back:?}");
                    assert_eq!(application[0].message_body, (!body.is_empty()).then_some(body), "{shown}");
                    assert!(came_back.is_empty(), "{message_type}: {shown}: {came_back:?}");
                } else {
                    assert!(application.is_empty(), "{message_type} must refuse {shown}");
                    assert_eq!(came_back, [code], "{message_type}: {shown}");
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn query(&self, text: &str) -> Result<Vec<Row>> {
        Ok(self.broker.query(text, ()).await?.rows.into_iter().map(Row).collect())
    }

    pub(crate) async fn sql(&self, text: &str) -> Result<u64> {
        self.broker.sql(text, ()).await
    }

    /// All rows of one catalog view, named without its schema.
    pub(crate) async fn view(&self, name: &str) -> Result<Vec<Row>> {
        self.query(&format!("SELECT * FROM {}", self.store().view(name))).await
    }

    /// The view that shows all queues.
    pub(crate) fn queue_view(&self) -> &'static str {
        self.store().queue_messages()
    }

    /// `SELECT * FROM queue`, in order of arrival.
    pub(crate) async fn rows_of(&self, queue: &str) -> Result<Vec<Row>> {
        let text = format!("SELECT * FROM {} WHERE queue_name = ?1 ORDER BY queuing_order", self.queue_view());
        Ok(self.broker.query(self.store().sql(&text), (queue,)).await?.rows.into_iter().map(Row).collect())
    }

    pub(crate) fn bodies(&self, rows: &[Row]) -> Vec<String> {
        rows.iter()
            .map(|row| String::from_utf8(row.bytes("message_body").unwrap_or_default()).expect("UTF-8"))
            .collect()
    }

    /// `sys.transmission_queue`.
    pub(crate) async fn transmission(&self) -> Result<Vec<Row>> {
        self.view("transmission_queue").await
    }

    /// The row of a queue in `sys.service_queues`.
    pub(crate) async fn queue(&self, name: &str) -> Result<Row> {
        let found = self.view("service_queues").await?.into_iter().find(|row| row.text("name") == name);
        Ok(found.unwrap_or_else(|| panic!("queue {name} is not in the view")))
    }

    pub(crate) async fn is_on(&self, queue: &str) -> Result<bool> {
        Ok(self.queue(queue).await?.int("is_receive_enabled") == 1)
    }

    /// The row of this database in `sys.databases`.
    pub(crate) async fn database(&self) -> Result<Row> {
        Ok(self.view("databases").await?.remove(0))
    }

    pub(crate) async fn groups(&self) -> Result<Vec<GroupId>> {
        let rows = self.view("conversation_groups").await?;
        Ok(rows.iter().map(|row| GroupId(row.uuid("conversation_group_id"))).collect())
    }

    pub(crate) async fn endpoints(&self) -> Result<Vec<Endpoint>> {
        Ok(self.view("conversation_endpoints").await?.iter().map(Endpoint::read).collect())
    }

    pub(crate) async fn endpoint(&self, handle: ConversationHandle) -> Result<Option<Endpoint>> {
        Ok(self.endpoints().await?.into_iter().find(|endpoint| endpoint.handle == handle))
    }

    /// The two letters of an endpoint that must exist.
    pub(crate) async fn state(&self, handle: ConversationHandle) -> Result<String> {
        let found = self.endpoint(handle).await?;
        Ok(found.unwrap_or_else(|| panic!("endpoint {handle} is gone")).state)
    }

    /// The levels of initiator and target.
    pub(crate) async fn levels_of(&self, pair: Pair) -> Result<(u8, u8)> {
        let level = |endpoint: Option<Endpoint>| endpoint.expect("the endpoint exists").priority;
        Ok((level(self.endpoint(pair.initiator).await?), level(self.endpoint(pair.target).await?)))
    }
}

/// An open transaction.
pub(crate) struct Session(pub(crate) Tx);

impl Session {
    pub(crate) async fn commit(self) -> Result<()> {
        self.0.commit().await
    }

    pub(crate) async fn rollback(self) -> Result<()> {
        self.0.rollback().await
    }

    pub(crate) async fn savepoint(&self, name: &str) -> Result<()> {
        self.0.savepoint(name).await
    }

    pub(crate) async fn rollback_to(&self, name: &str) -> Result<()> {
        self.0.rollback_to(name).await
    }

    pub(crate) async fn sql(&self, text: &str) -> Result<u64> {
        self.0.sql(text, ()).await
    }

    pub(crate) async fn query(&self, text: &str) -> Result<Vec<Row>> {
        Ok(self.0.query(text, ()).await?.rows.into_iter().map(Row).collect())
    }
}

/// BEGIN DIALOG as a value.
#[derive(Clone)]
pub(crate) struct Begin {
    from_service: Arc<str>,
    to_service: Arc<str>,
    pub(crate) addressee: Addressee,
    contract: Option<Arc<str>>,
    pub(crate) related: Relation,
    lifetime: Option<i64>,
}

impl Begin {
    pub(crate) fn from(mut self, service: &str) -> Self {
        self.from_service = service.into();
        self
    }

    pub(crate) fn on(mut self, contract: &str) -> Self {
        self.contract = Some(contract.into());
        self
    }

    pub(crate) fn without_contract(mut self) -> Self {
        self.contract = None;
        self
    }

    pub(crate) fn lifetime(mut self, seconds: i64) -> Self {
        self.lifetime = Some(seconds);
        self
    }

    pub(crate) fn related_to(mut self, handle: ConversationHandle) -> Self {
        self.related = Relation::Conversation(handle);
        self
    }

    pub(crate) fn in_group(mut self, group: GroupId) -> Self {
        self.related = Relation::Group(group);
        self
    }
}

/// The statements, on a broker (each commits at once) and in a transaction.
macro_rules! statements {
    ($on:ty, $self:ident => $act:expr) => {
        #[allow(dead_code)]
        impl $on {
            pub(crate) async fn perform(&$self, verb: Verb) -> Result<protocol::Outcome> {
                $act.perform(verb).await
            }

            pub(crate) async fn begin_dialog(&$self, begin: Begin) -> Result<Dialog> {
                let mut dialog = $act.begin_dialog(begin.from_service.clone(), begin.to_service.clone());
                if let Some(contract) = begin.contract.clone() {
                    dialog = dialog.contract(contract);
                }
                dialog = match begin.related {
                    Relation::None => dialog,
                    Relation::Conversation(handle) => dialog.related_to(handle),
                    Relation::Group(group) => dialog.in_group(group),
                };
                dialog = match begin.addressee.clone() {
                    Addressee::Anywhere => dialog,
                    Addressee::CurrentDatabase => dialog.current_database(),
                    Addressee::Instance(instance) => dialog.broker_instance(instance),
                };
                match begin.lifetime {
                    None => dialog.with_ids().await,
                    Some(seconds) if seconds >= 0 => dialog.lifetime(Duration::from_secs(seconds.unsigned_abs())).with_ids().await,
                    // A Duration cannot be negative; the verb can.
                    lifetime_seconds => {
                        let verb = Verb::BeginDialog(protocol::BeginDialog {
                            from_service: begin.from_service,
                            to_service: begin.to_service,
                            addressee: begin.addressee,
                            contract: begin.contract,
                            related: begin.related,
                            lifetime_seconds,
                            encryption: false,
                        });
                        match $act.perform(verb).await? {
                            protocol::Outcome::Began { handle, group, conversation_id } => {
                                Ok(Dialog { handle, group, conversation_id })
                            }
                            other => panic!("BEGIN DIALOG gave {other:?}"),
                        }
                    }
                }
            }

            pub(crate) async fn send(&$self, handle: ConversationHandle, message_type: &str, text: &str) -> Result<()> {
                $act.send(handle, message_type, text).await
            }

            pub(crate) async fn send_many(&$self, handles: &[ConversationHandle], message_type: &str, text: &str) -> Result<()> {
                $act.send_many(handles, message_type, text).await
            }

            pub(crate) async fn send_bytes(&$self, handle: ConversationHandle, message_type: &str, body: Option<Vec<u8>>) -> Result<()> {
                let body = body.map(Arc::new);
                let verb = Verb::Send { handles: vec![handle], message_type: Some(message_type.into()), body, trace: None };
                $act.perform(verb).await.map(drop)
            }

            /// SEND without MESSAGE TYPE.
            pub(crate) async fn send_default(&$self, handle: ConversationHandle, text: &str) -> Result<()> {
                let body = Some(Arc::new(text.as_bytes().to_vec()));
                $act.perform(Verb::Send { handles: vec![handle], message_type: None, body, trace: None }).await.map(drop)
            }

            pub(crate) async fn receive(&$self, queue: &str) -> Result<Vec<Message>> {
                Ok($act.receive(queue).await?.map(dialoq::Batch::into_messages).unwrap_or_default())
            }

            pub(crate) async fn wait_receive(&$self, queue: &str, seconds: Option<u64>) -> Result<Vec<Message>> {
                let receive = $act.receive(queue);
                let batch = match seconds {
                    Some(seconds) => receive.wait(Duration::from_secs(seconds)).await?,
                    None => receive.wait_forever().await?,
                };
                Ok(batch.map(dialoq::Batch::into_messages).unwrap_or_default())
            }

            pub(crate) async fn receive_top(&$self, queue: &str, top: u64) -> Result<Vec<Message>> {
                Ok($act.receive(queue).top(top).await?.map(dialoq::Batch::into_messages).unwrap_or_default())
            }

            pub(crate) async fn receive_from(&$self, queue: &str, handle: ConversationHandle) -> Result<Vec<Message>> {
                Ok($act.receive(queue).conversation(handle).await?.map(dialoq::Batch::into_messages).unwrap_or_default())
            }

            pub(crate) async fn receive_group(&$self, queue: &str, group: GroupId) -> Result<Vec<Message>> {
                Ok($act.receive(queue).group(group).await?.map(dialoq::Batch::into_messages).unwrap_or_default())
            }

            pub(crate) async fn get_group(&$self, queue: &str) -> Result<Option<GroupId>> {
                $act.get_conversation_group(queue).await
            }

            pub(crate) async fn end(&$self, handle: ConversationHandle) -> Result<()> {
                $act.end(handle).await.map(drop)
            }

            pub(crate) async fn end_with_error(&$self, handle: ConversationHandle, code: i32, text: &str) -> Result<()> {
                $act.end_with_error(handle, code, text).await.map(drop)
            }

            pub(crate) async fn cleanup(&$self, handle: ConversationHandle) -> Result<()> {
                $act.end_with_cleanup(handle).await.map(drop)
            }

            pub(crate) async fn move_conversation(&$self, handle: ConversationHandle, group: GroupId) -> Result<()> {
                $act.move_conversation(handle, group).await
            }

            /// A Duration cannot be negative; the verb can.
            pub(crate) async fn timer(&$self, handle: ConversationHandle, timeout_seconds: i64) -> Result<()> {
                $act.perform(Verb::BeginConversationTimer { handle, timeout_seconds }).await.map(drop)
            }

            pub(crate) async fn transmission_status(&$self, handle: ConversationHandle) -> Result<String> {
                $act.transmission_status(handle).await
            }

            pub(crate) async fn release_quarantine(&$self, group: GroupId) -> Result<()> {
                $act.release_quarantine(group).await
            }

            /// RECEIVE of all messages of the best group that `from` allows.
            pub(crate) async fn receive_where(&$self, queue: &str, from: ReceiveFrom) -> Result<Vec<Message>> {
                match $act.perform(Verb::Receive { queue: queue.into(), top: None, from }).await? {
                    protocol::Outcome::Received(messages) => Ok(messages),
                    other => panic!("RECEIVE gave {other:?}"),
                }
            }
        }
    };
}

statements!(Rig, self => self.broker);
statements!(Session, self => self.0);

/// Reads of received messages, for the cases.
pub(crate) trait Text {
    fn texts(&self) -> Vec<String>;
    fn types(&self) -> Vec<String>;
    fn error_codes(&self) -> Vec<i32>;
    fn first_handle(&self) -> ConversationHandle;
}

impl Text for Vec<Message> {
    /// The bodies as text.
    fn texts(&self) -> Vec<String> {
        self.iter().map(|message| message.text().expect("the body is text").into_owned()).collect()
    }

    fn types(&self) -> Vec<String> {
        self.iter().map(|message| message.message_type_name.to_string()).collect()
    }

    /// The codes of the Error messages among them.
    fn error_codes(&self) -> Vec<i32> {
        let errors = self.iter().filter(|message| &*message.message_type_name == system::ERROR);
        errors.map(|message| message.error().expect("an Error has a code").code).collect()
    }

    fn first_handle(&self) -> ConversationHandle {
        self.first().expect("something was received").conversation_handle
    }
}

/// One row of a view; asking for a column that is not there, or is of another type, fails the case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row(pub(crate) SqlRow);

impl Row {
    #[track_caller]
    pub(crate) fn text(&self, column: &str) -> String {
        self.0.get(column).unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub(crate) fn int(&self, column: &str) -> i64 {
        self.0.get(column).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_int(&self, column: &str) -> Option<i64> {
        self.0.get(column).ok()
    }

    #[track_caller]
    pub(crate) fn bytes(&self, column: &str) -> Option<Vec<u8>> {
        self.0.get(column).unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub(crate) fn is_null(&self, column: &str) -> bool {
        self.0.get::<Option<AnyValue>>(column).unwrap_or_else(|error| panic!("{error}")).is_none()
    }

    #[track_caller]
    pub(crate) fn uuid(&self, column: &str) -> Uuid {
        Uuid::parse_str(&self.text(column)).expect("an id")
    }

    /// A moment as the views write it, in UTC; what was never set is `None`.
    #[track_caller]
    fn moment(&self, column: &str) -> Option<Timestamp> {
        let text: Option<String> = self.0.get(column).unwrap_or_else(|error| panic!("{error}"));
        let moment: jiff::civil::DateTime = text?.parse().expect("a date and a time");
        let unset = jiff::civil::date(1900, 1, 1).at(0, 0, 0, 0);
        let utc = moment.to_zoned(jiff::tz::TimeZone::UTC).expect("UTC has every moment");
        (moment != unset).then(|| Timestamp(utc.timestamp().as_microsecond()))
    }
}

struct AnyValue;

impl dialoq::FromSqlValue for AnyValue {
    fn from_sql_value(_: &SqlValue) -> Option<Self> {
        Some(Self)
    }
}

/// A row of `sys.conversation_endpoints`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) handle: ConversationHandle,
    pub(crate) conversation_id: ConversationId,
    pub(crate) group: GroupId,
    pub(crate) is_initiator: bool,
    pub(crate) state: String,
    pub(crate) priority: u8,
    pub(crate) far_broker_instance: Option<String>,
    pub(crate) lifetime: Timestamp,
    pub(crate) security_timestamp: Option<Timestamp>,
    pub(crate) send_sequence: i64,
    pub(crate) receive_sequence: i64,
}

impl Endpoint {
    fn read(row: &Row) -> Self {
        Self {
            handle: ConversationHandle(row.uuid("conversation_handle")),
            conversation_id: ConversationId(row.uuid("conversation_id")),
            group: GroupId(row.uuid("conversation_group_id")),
            is_initiator: row.int("is_initiator") == 1,
            state: row.text("state"),
            priority: u8::try_from(row.int("priority")).expect("a level"),
            far_broker_instance: row.0.get("far_broker_instance").unwrap_or_else(|error| panic!("{error}")),
            lifetime: row.moment("lifetime").expect("every conversation has a lifetime"),
            security_timestamp: row.moment("security_timestamp"),
            send_sequence: row.int("send_sequence"),
            receive_sequence: row.int("receive_sequence"),
        }
    }
}
