//! The store under test, asked as its users ask it: through [`Broker`] and [`Tx`](dialoq::Tx).

use super::flow::{Bodies, Side, Stamp};
use dialoq::act::Outgoing;
use dialoq::internals::ErrorConstructors;
use dialoq::protocol::Verb;
use dialoq::{Act, Broker, ConversationHandle, Error, Level, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The message type of every request.
pub(super) const REQUEST: &str = "//bench/Request";
/// The message type of every reply.
pub(super) const REPLY: &str = "//bench/Reply";
/// The service that begins dialogs.
pub(super) const CLIENT: &str = "//bench/Client";
/// The service they are begun with.
pub(super) const SERVICE: &str = "//bench/Service";
/// Where replies arrive.
pub(super) const REPLIES: &str = "bench_replies";
/// Where requests arrive.
pub(super) const REQUESTS: &str = "bench_requests";

/// How long a receiver waits before it believes that nothing is left.
const SHORT_WAIT: Duration = Duration::from_millis(200);
/// How long a receiver waits for what is on its way.
const LONG_WAIT: Duration = Duration::from_secs(2);
/// How many verbs are put into one unit where nothing is measured.
const UNIT: usize = 1000;

/// Whether each statement commits at once or in a transaction with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// On the broker.
    AtOnce,
    /// In a `Tx`, then committed.
    InTx,
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtOnce => "at once",
            Self::InTx => "in a Tx",
        })
    }
}

/// Which contract a dialog is over; broker priorities give each its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Level 5.
    Plain,
    /// Level 10.
    High,
    /// Level 1.
    Low,
}

impl Class {
    pub(super) fn contract(self) -> &'static str {
        match self {
            Self::Plain => "//bench/Plain",
            Self::High => "//bench/High",
            Self::Low => "//bench/Low",
        }
    }
}

/// A broker in a file of its own.
pub(super) struct Subject {
    pub(super) broker: Broker,
    /// Empty if the broker is not in a file of its own.
    path: PathBuf,
    synced: bool,
}

impl Subject {
    /// Opens the broker in `folder` and defines what the workloads need.
    pub(super) async fn open(folder: &Path, synced: bool) -> Result<Self> {
        let path = folder.join("bench.db");
        let broker = Self::connect(&path, synced).await?;
        Ok(Self { path, synced, ..Self::over(broker).await? })
    }

    /// The same on a broker that is open already.
    pub(super) async fn over(broker: Broker) -> Result<Self> {
        broker
            .ensure(|define| {
                define.message_type(REQUEST).message_type(REPLY);
                for class in [Class::Plain, Class::High, Class::Low] {
                    define.contract(class.contract()).sent_by_initiator(REQUEST).sent_by_target(REPLY);
                }
                define.queue(REPLIES);
                define.queue(REQUESTS);
                define.service(CLIENT, REPLIES, []);
                define.service(SERVICE, REQUESTS, [Class::Plain, Class::High, Class::Low].map(Class::contract));
                for (class, level) in [(Class::High, Level::HIGHEST), (Class::Low, Level::LOWEST)] {
                    define.broker_priority(class.contract()).contract(class.contract()).level(level);
                }
            })
            .await?;
        Ok(Self { broker, path: PathBuf::new(), synced: true })
    }

    async fn connect(path: &Path, synced: bool) -> Result<Broker> {
        let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3F");
        Broker::open(&format!("sqlite:{path}?durability={}", if synced { "full" } else { "normal" })).await
    }

    /// Closes the broker and opens the same file again.
    pub(super) async fn reopen(self) -> Result<Self> {
        self.broker.close().await?;
        let Self { broker, path, synced } = self;
        drop(broker);
        Ok(Self { broker: Self::connect(&path, synced).await?, path, synced })
    }

    /// This many plain conversations, and callers that use them.
    pub(super) async fn conversations(&self, conversations: usize, style: Style) -> Result<Conversations> {
        self.conversations_of(Class::Plain, conversations, style).await
    }

    /// This many conversations of a class, and callers that use them.
    pub(super) async fn conversations_of(
        &self,
        class: Class,
        conversations: usize,
        style: Style,
    ) -> Result<Conversations> {
        let handles = begin_dialogs(&self.broker, class, conversations).await?;
        Ok(Conversations {
            broker: self.broker.clone(),
            handles,
            next: AtomicUsize::new(0),
            style,
            spreads: false,
            row: None,
            note: None,
            run: 1,
            by_list: false,
        })
    }

    /// Receives whatever waits in the queue of requests.
    pub(super) async fn drain(&self) -> Result<()> {
        loop {
            let receive = Verb::Receive { queue: REQUESTS.into(), top: None, from: dialoq::protocol::ReceiveFrom::Any };
            let outcomes = self.broker.submit(vec![receive; 100]).await?;
            let nothing =
                |outcome| matches!(outcome, dialoq::protocol::Outcome::Received(messages) if messages.is_empty());
            if outcomes.into_iter().all(nothing) {
                return Ok(());
            }
        }
    }

    /// Receives whatever waits in the queue of replies.
    #[cfg(feature = "postgres")]
    pub(super) async fn drain_replies(&self) -> Result<()> {
        while self.broker.receive(REPLIES).top(1000).await?.is_some() {}
        Ok(())
    }

    pub(super) async fn close(self) -> Result<()> {
        self.broker.close().await
    }
}

/// Begins this many dialogs, unmeasured, a thousand in a commit.
pub(super) async fn begin_dialogs(broker: &Broker, class: Class, count: usize) -> Result<Vec<ConversationHandle>> {
    let mut handles = Vec::with_capacity(count);
    while handles.len() < count {
        let begin = Verb::BeginDialog(dialoq::protocol::BeginDialog {
            from_service: CLIENT.into(),
            to_service: SERVICE.into(),
            addressee: dialoq::protocol::Addressee::Anywhere,
            contract: Some(class.contract().into()),
            related: dialoq::protocol::Relation::None,
            lifetime_seconds: None,
            encryption: false,
        });
        let unit = vec![begin; UNIT.min(count - handles.len())];
        for outcome in broker.submit(unit).await? {
            match outcome {
                dialoq::protocol::Outcome::Began { handle, .. } => handles.push(handle),
                other => return Err(dialoq::internals::unexpected(&other)),
            }
        }
    }
    Ok(handles)
}

/// Some conversations, used in turn.
pub(super) struct Conversations {
    broker: Broker,
    handles: Vec<ConversationHandle>,
    next: AtomicUsize,
    style: Style,
    spreads: bool,
    /// The statement with which a transaction that receives writes a row, before it answers.
    row: Option<&'static str>,
    /// The statement with which a transaction that receives writes a row, and nothing else.
    note: Option<&'static str>,
    run: usize,
    /// Whether the messages of a transaction go in one call.
    by_list: bool,
}

impl Conversations {
    /// The same, but the messages of a transaction go in one call of `send_each`.
    #[cfg(feature = "postgres")]
    pub(super) fn by_list(mut self) -> Self {
        self.by_list = true;
        self
    }

    /// The same, but every message of a transaction goes on another conversation.
    pub(super) fn spread(mut self) -> Self {
        self.spreads = true;
        self
    }

    /// The same conversations, used in transactions; with a statement, those that receive write a row with it and answer.
    #[cfg(feature = "postgres")]
    pub(super) fn in_tx(&self, row: Option<&'static str>) -> Self {
        let next = AtomicUsize::new(self.next.load(Relaxed));
        let (broker, handles) = (self.broker.clone(), self.handles.clone());
        Self { broker, handles, next, style: Style::InTx, row, ..*self }
    }

    /// The same, but a transaction that receives also writes a row with this statement.
    pub(super) fn with_note(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }

    /// The same, but a backlog is filled with so many messages in a row on each conversation, not with one.
    pub(super) fn in_runs(mut self, run: usize) -> Self {
        self.run = run;
        self
    }

    /// Sends this many messages from so many callers at once, unmeasured.
    pub(super) async fn fill_by_callers(self: &Arc<Self>, callers: usize, bodies: Bodies, count: usize) -> Result<()> {
        let left = Arc::new(AtomicUsize::new(count));
        self.by_callers(callers, move |conversations| {
            let left = left.clone();
            async move {
                while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                    conversations.send(vec![bodies.next()]).await?;
                }
                Ok(())
            }
        })
        .await
    }

    /// Receives whatever waits, by so many callers at once.
    pub(super) async fn drain_by_callers(self: &Arc<Self>, callers: usize) -> Result<()> {
        self.by_callers(callers, |conversations| async move {
            while conversations.broker.receive(REQUESTS).wait(SHORT_WAIT).await?.is_some() {}
            Ok(())
        })
        .await
    }

    async fn by_callers<F, Running>(self: &Arc<Self>, callers: usize, call: F) -> Result<()>
    where
        F: Fn(Arc<Self>) -> Running,
        Running: Future<Output = Result<()>> + Send + 'static,
    {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            tasks.spawn(call(self.clone()));
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|_| Error::closed())??;
        }
        Ok(())
    }

    fn next_handle(&self) -> ConversationHandle {
        self.handles[self.next.fetch_add(1, Relaxed) % self.handles.len()]
    }
}

impl Side for Conversations {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        if let (Style::AtOnce, [body]) = (self.style, &bodies[..]) {
            return self.broker.send(self.next_handle(), REQUEST, body).await;
        }
        let tx = self.broker.begin().await?;
        let mut handle = self.next_handle();
        if self.by_list {
            let next = || if self.spreads { self.next_handle() } else { handle };
            tx.send_each(bodies.iter().map(|body| Outgoing::new(next(), REQUEST, body))).await?;
            return tx.commit().await;
        }
        for body in &bodies {
            tx.send(handle, REQUEST, body).await?;
            if self.spreads {
                handle = self.next_handle();
            }
        }
        tx.commit().await
    }

    async fn receive(&self, count: usize, waits: bool) -> Result<Vec<Stamp>> {
        let patience = if waits { LONG_WAIT } else { SHORT_WAIT };
        let top = count as u64;
        let batch = match self.style {
            Style::AtOnce => self.broker.receive(REQUESTS).top(top).wait(patience).await?,
            Style::InTx => {
                let tx = self.broker.begin().await?;
                let batch = tx.receive(REQUESTS).top(top).wait(patience).await?;
                if let (Some(row), Some(message)) = (self.row, batch.iter().flatten().next()) {
                    let body = message.body();
                    tx.sql(row, (body.len() as i64,)).await?;
                    tx.send(message.conversation_handle, REPLY, body).await?;
                }
                if let (Some(note), Some(message)) = (self.note, batch.iter().flatten().next()) {
                    tx.sql(note, (message.body().len() as i64,)).await?;
                }
                if batch.is_some() {
                    tx.commit().await?;
                }
                batch
            }
        };
        let now = self.broker.clock().now();
        let stamp = |message: &dialoq::Message| Stamp {
            waited_ns: now.since(message.message_enqueue_time).as_nanos() as u64,
            ..Stamp::of(message.body())
        };
        Ok(batch.iter().flatten().map(stamp).collect())
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let some = left.min(UNIT);
            let mut handle = self.next_handle();
            let send = |(place, body): (usize, Vec<u8>)| {
                if place > 0 && place.is_multiple_of(self.run) {
                    handle = self.next_handle();
                }
                Verb::Send {
                    handles: vec![handle],
                    message_type: Some(REQUEST.into()),
                    body: Some(Arc::new(body)),
                    trace: None,
                }
            };
            self.broker.submit(bodies.many(some).into_iter().enumerate().map(send).collect()).await?;
            left -= some;
        }
        Ok(())
    }
}

/// What a workload says when its messages do not come.
pub(super) fn stalled(what: &str) -> Error {
    use dialoq::Code;
    Error::new(Code::STORE_DAMAGED, format!("{what} did not arrive within 10 seconds"))
}
