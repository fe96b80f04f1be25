//! The base of every test: a broker with two services, and readers that do one step at a time at the test's request.

use crate::servers::{Database, Store};
use dialoq::activation::{HandlerError, MonitorRow, Procedure, ReaderEvent, ReaderEvents, Readers, Session};
use dialoq::internals::activity;
use dialoq::testing::START;
use dialoq::{Act, Broker, Clock, ConversationHandle, OpenOptions, Tx};
use std::ops::Deref;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The longest a test waits for what must happen; nothing takes that long unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// A broker with the queue `work` of service `worker`, and the queue `home` of service `client`.
pub(crate) struct Stage {
    broker: Broker,
    clock: Clock,
    store: Store,
    url: String,
    _database: Option<Database>,
}

impl Deref for Stage {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

impl Stage {
    pub(crate) async fn new(store: Store) -> Self {
        let stage = if store.is_server() {
            Self::bare(store).await
        } else {
            Self::at(store, "sqlite::memory:".to_owned(), None).await
        };
        define(&stage).await;
        stage
    }

    /// One on a database that other brokers can use too.
    pub(crate) async fn shared(store: Store) -> Self {
        let stage = Self::bare(store).await;
        define(&stage).await;
        stage
    }

    /// One that can be opened again, in which nothing was defined.
    pub(crate) async fn bare(store: Store) -> Self {
        let database = Database::fresh(store);
        Self::at(store, database.url().to_owned(), Some(database)).await
    }

    async fn at(store: Store, url: String, database: Option<Database>) -> Self {
        let clock = Clock::manual(START);
        let broker =
            Broker::open_with(&url, OpenOptions::new().clock(clock.clone()).careful_receives(0)).await.unwrap();
        Self { broker, clock, store, url, _database: database }
    }

    /// Closes the broker and opens the same database.
    pub(crate) async fn reopen(&mut self) {
        self.broker.close().await.unwrap();
        let options = OpenOptions::new().clock(self.clock.clone()).careful_receives(0);
        self.broker = Broker::open_with(&self.url, options).await.unwrap();
    }

    /// Another broker on the same database, with the same clock: another process, to a server.
    pub(crate) async fn another(&self) -> Broker {
        let options = OpenOptions::new().clock(self.clock.clone()).careful_receives(0);
        Broker::open_with(&self.url, options).await.unwrap()
    }

    /// The activated readers of this broker.
    pub(crate) fn broker_tasks(&self) -> usize {
        self.activated_tasks().len()
    }

    /// Waits until the facts show this many messages in queue `work`. A server's queues are polled now and then, and the poll
    /// counts groups, so this is for groups of one message each.
    pub(crate) async fn left(&self, messages: u64) {
        let queue = activity(self).queue("work");
        until("the depth of the queue", || queue.facts().unread == messages).await;
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// A catalog view, by Service Broker's name without its schema.
    pub(crate) fn view(&self, name: &str) -> String {
        self.store.view(name)
    }

    /// Begins a conversation.
    pub(crate) async fn begin_one(&self) -> ConversationHandle {
        self.begin_dialog("client", "worker").await.unwrap()
    }

    /// Begins this many conversations, each in a group of its own, and sends one message on each.
    pub(crate) async fn arrive(&self, groups: usize) -> Vec<ConversationHandle> {
        let mut dialogs = Vec::new();
        for _ in 0..groups {
            let dialog = self.begin_one().await;
            self.send_on(dialog).await;
            dialogs.push(dialog);
        }
        dialogs
    }

    pub(crate) async fn send_on(&self, dialog: ConversationHandle) {
        self.send(dialog, "DEFAULT", "work").await.unwrap();
    }

    pub(crate) async fn ddl(&self, script: &str) {
        self.execute(script).await.unwrap();
    }
}

/// Defines what a stage has.
pub(crate) async fn define(broker: &Broker) {
    let defining = broker.define(|d| {
        d.queue("work");
        d.queue("home");
        d.service("worker", "work", ["DEFAULT"]);
        d.service("client", "home", []);
    });
    defining.await.unwrap();
}

/// Waits for what must happen.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// Waits until a condition holds; checks it whenever other tasks have run.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let checking = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    soon(what, checking).await;
}

/// The monitor's row after a check.
pub(crate) async fn row(readers: &Readers) -> MonitorRow {
    soon("the check of the monitor", readers.monitor()).await.expect("the monitor exists")
}

/// The monitor's state, and the number of readers that it has started.
pub(crate) async fn state(readers: &Readers) -> (&'static str, u64) {
    let row = row(readers).await;
    (row.state, row.tasks_started_total)
}

/// Waits until the monitor has this state and has started this many readers: a server's queues are polled now and then.
pub(crate) async fn comes_to(readers: &Readers, state: (&'static str, u64)) {
    let checking = async {
        while self::state(readers).await != state {
            tokio::task::yield_now().await;
        }
    };
    soon(&format!("{state:?}"), checking).await;
}

/// Waits for the next reader that goes, and gives the code it went with; 0 if it just left.
pub(crate) async fn ended(events: &mut ReaderEvents) -> u16 {
    loop {
        match soon("the end of a reader", events.next()).await {
            Some(ReaderEvent::Ended { code, .. }) => return code.map_or(0, |code| code.0),
            Some(_) => {}
            None => panic!("the readers were stopped"),
        }
    }
}

/// Waits for the next failure of a handler, and gives its code and text.
pub(crate) async fn failed(events: &mut ReaderEvents) -> (u16, String) {
    loop {
        match soon("the failure of a handler", events.next()).await {
            Some(ReaderEvent::HandlerFailed { code, why, .. }) => return (code.0, why),
            Some(_) => {}
            None => panic!("the readers were stopped"),
        }
    }
}

/// An order to a reader.
enum Order {
    /// RECEIVE TOP (n) in a transaction, without waiting.
    Receive(u64),
    /// The same, waiting for so long.
    Wait(Duration),
    Commit,
    Rollback,
    /// Waits until it is to leave.
    Stop,
    /// Asks whether it is to leave.
    IsStopping,
    /// Keeps the transaction alive beyond the reader's end.
    LeakTx,
    /// Drops the transaction without an end.
    DropTx,
    Leave,
    Fail,
    Panic,
}

/// A reader that does one step at a time.
pub(crate) struct Puppet {
    orders: mpsc::UnboundedSender<(Order, oneshot::Sender<usize>)>,
}

impl Puppet {
    async fn send_order(&self, order: Order) -> usize {
        let (answer, answered) = oneshot::channel();
        self.orders.send((order, answer)).unwrap_or_else(|_| panic!("the reader has gone"));
        // A reader that ends does not answer.
        soon("a step of a reader", answered).await.unwrap_or(0)
    }

    /// How many messages it got.
    pub(crate) async fn receives(&self) -> usize {
        self.send_order(Order::Receive(1000)).await
    }

    pub(crate) async fn receives_top(&self, top: u64) -> usize {
        self.send_order(Order::Receive(top)).await
    }

    /// Orders it to wait for messages, without waiting for it.
    pub(crate) fn waits(&self, wait: Duration) -> oneshot::Receiver<usize> {
        let (answer, answered) = oneshot::channel();
        self.orders.send((Order::Wait(wait), answer)).unwrap_or_else(|_| panic!("the reader has gone"));
        answered
    }

    pub(crate) async fn commits(&self) {
        self.send_order(Order::Commit).await;
    }

    pub(crate) async fn rolls_back(&self) {
        self.send_order(Order::Rollback).await;
    }

    pub(crate) async fn leaks_its_tx(&self) {
        self.send_order(Order::LeakTx).await;
    }

    pub(crate) async fn drops_its_tx(&self) {
        self.send_order(Order::DropTx).await;
    }

    /// Waits until it is to leave.
    pub(crate) async fn is_stopped(&self) {
        self.send_order(Order::Stop).await;
    }

    pub(crate) async fn is_stopping(&self) -> bool {
        self.send_order(Order::IsStopping).await == 1
    }

    pub(crate) async fn leaves(self) {
        self.send_order(Order::Leave).await;
    }

    pub(crate) async fn fails(self) {
        self.send_order(Order::Fail).await;
    }

    pub(crate) async fn panics(self) {
        self.send_order(Order::Panic).await;
    }
}

/// Where puppets appear when they are launched, and the transactions they have leaked.
pub(crate) struct Theatre {
    launched: mpsc::UnboundedReceiver<Puppet>,
    pub(crate) leaked: mpsc::UnboundedReceiver<Tx>,
}

impl Theatre {
    /// A theatre, and the procedure whose readers appear there.
    pub(crate) fn new() -> (Self, Procedure) {
        let (appear, launched) = mpsc::unbounded_channel();
        let (leak, leaked) = mpsc::unbounded_channel();
        let procedure = Procedure::new("puppet", async move |session: Session| {
            let (orders, orders_in) = mpsc::unbounded_channel();
            appear.send(Puppet { orders }).map_err(|_| HandlerError::new("the theatre is closed"))?;
            play(session, orders_in, leak).await
        });
        (Self { launched, leaked }, procedure)
    }

    /// The next reader launched.
    pub(crate) async fn next(&mut self) -> Puppet {
        soon("the launch of a reader", self.launched.recv()).await.expect("the procedure lives")
    }

    /// Whether a reader was launched that was not taken yet.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.launched.is_empty()
    }
}

async fn play(
    session: Session,
    mut orders_in: mpsc::UnboundedReceiver<(Order, oneshot::Sender<usize>)>,
    leak: mpsc::UnboundedSender<Tx>,
) -> Result<(), HandlerError> {
    let mut tx: Option<Tx> = None;
    while let Some((order, answer)) = orders_in.recv().await {
        let received = match order {
            Order::Receive(top) => {
                let open = if let Some(open) = tx.take() { open } else { session.begin().await? };
                let batch = open.receive(session.queue().clone()).top(top).await?;
                tx = Some(open);
                batch.map_or(0, |batch| batch.len())
            }
            Order::Wait(wait) => {
                let open = if let Some(open) = tx.take() { open } else { session.begin().await? };
                let batch = open.receive(session.queue().clone()).wait(wait).await?;
                tx = Some(open);
                batch.map_or(0, |batch| batch.len())
            }
            Order::Commit => {
                tx.take().expect("a transaction is open").commit().await?;
                0
            }
            Order::Rollback => {
                tx.take().expect("a transaction is open").rollback().await?;
                0
            }
            Order::Stop => {
                session.stopping().await;
                0
            }
            Order::IsStopping => usize::from(session.is_stopping()),
            Order::LeakTx => {
                let tx = tx.take().expect("a transaction is open");
                leak.send(tx).map_err(|_| HandlerError::new("the theatre is closed"))?;
                0
            }
            Order::DropTx => {
                drop(tx.take());
                0
            }
            Order::Leave => return Ok(()),
            Order::Fail => return Err(HandlerError::new("ordered to fail")),
            Order::Panic => panic!("ordered to panic"),
        };
        // The test may have dropped the answer.
        let _ = answer.send(received);
    }
    Ok(())
}
