//! The owner's side: the calls of other processes, carried out on the store.
//!
//! Each connection has a task that reads requests and one that writes answers. Each request and each transaction has a task
//! of its own, so that a call that waits holds up no other one. When the connection ends its tasks are aborted: their
//! transactions roll back, as if they had been dropped in this process.

use super::frame::{self, Answer, Call, FrameReader, FromOwner, QueueNews, Refusal, Request, TxStep, WireOutcome};
use super::places::Places;
use super::{Stop, socket};
use crate::catalog::{Catalog, fold_name};
use crate::error::{Code, Error, Result};
use crate::protocol::Outcome;
use crate::protocol::work::TakenJob;
use crate::store::handover::{HoldsMessages, note_dropped};
use crate::store::sqlite::SqliteStore;
use crate::store::url::Durability;
use crate::store::{
    ActivityBoard, Counts, ProcessRows, QueueActivity, QueueFacts, Store, StoreTx, work_queue_on_board,
};
use interprocess::local_socket::tokio::{Listener, Stream, prelude::*};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The room for frames that is kept between two writes.
const WRITE_BYTES: usize = 64 * 1024;
/// Frames written together.
const MOST_TOGETHER: usize = 1024;
/// News of queues that wait for a slow connection; more are put together.
const NEWS_WAITING: usize = 64;
/// How long a client may take to end the connection after the owner has announced that it closes.
const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// How long the last answers may take to be written.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// The shortest interval between two reports of a queue's depth in which nothing has arrived.
const DEPTH_EVERY: Duration = Duration::from_millis(5);
/// Queues that one connection may watch.
const MOST_WATCHED: usize = 100_000;

/// What the owner's connections share.
pub(super) struct Office {
    pub(super) store: Arc<SqliteStore>,
    pub(super) places: Arc<Places>,
    pub(super) board: Arc<ActivityBoard>,
    /// The ids of queues in which a place has become free.
    pub(super) freed: broadcast::Sender<i32>,
    /// The definitions as the last answer found them, and how often they have changed.
    definitions: Mutex<(Arc<Catalog>, u64)>,
    last_connection: AtomicU64,
}

impl Office {
    pub(super) fn new(store: Arc<SqliteStore>, board: Arc<ActivityBoard>) -> Self {
        let definitions = Mutex::new((store.catalog(), 1));
        Self {
            store,
            places: Arc::default(),
            board,
            freed: broadcast::channel(256).0,
            definitions,
            last_connection: AtomicU64::new(0),
        }
    }

    /// The version of the definitions.
    fn definitions(&self) -> u64 {
        let now = self.store.catalog();
        let mut last = lock(&self.definitions);
        if !Arc::ptr_eq(&last.0, &now) {
            *last = (now, last.1 + 1);
        }
        last.1
    }

    /// Frees a place, and tells this process and the others.
    pub(super) fn free_place(&self, queue_id: i32, number: i32) {
        if self.places.free(queue_id, number) {
            if let Some(name) = self.name_of(queue_id) {
                self.board.queue(&name).place_freed();
            }
            let _ = self.freed.send(queue_id);
        }
    }

    /// The name of a queue on the board of activity.
    fn name_of(&self, queue_id: i32) -> Option<String> {
        let catalog = self.store.catalog();
        let queue = catalog.queues.get(&queue_id).map(|queue| queue.name.to_string());
        queue.or_else(|| catalog.work_queues.get(&queue_id).map(|queue| work_queue_on_board(&queue.name)))
    }
}

/// Serves connections until the store ends, then until the requests under way are answered.
pub(super) async fn run(
    office: Arc<Office>,
    listener: Listener,
    durability: Durability,
    mut stopping: watch::Receiver<Stop>,
) {
    let mut connections = JoinSet::new();
    let of_connections = stopping.clone();
    loop {
        tokio::select! {
            _ = stopping.wait_for(Stop::is_asked) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let (office, stopping) = (office.clone(), of_connections.clone());
                    connections.spawn(async move {
                        if let Err(error) = serve(office, stream, durability, stopping).await {
                            tracing::warn!(%error, "the connection of another process was ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "another process could not be connected");
                    // Without a free descriptor the next attempt fails at once too.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(
    office: Arc<Office>,
    stream: Stream,
    durability: Durability,
    mut stopping: watch::Receiver<Stop>,
) -> io::Result<()> {
    tokio::select! {
        greeted = socket::greet_client(&stream, durability) => greeted?,
        _ = stopping.wait_for(Stop::is_asked) => return Ok(()),
    }
    let stream = Arc::new(stream);
    let (answers, to_write) = mpsc::unbounded_channel();
    let (news, news_to_write) = mpsc::channel(NEWS_WAITING);
    // Registered before the first request, so that no change is missed after the client has read the definitions.
    let redefined = office.board.register_definitions();
    let mut helpers = JoinSet::new();
    let writer = tokio::spawn(write(stream.clone(), to_write, news_to_write));
    helpers.spawn(tell_definitions(office.board.clone(), redefined, news.clone()));
    helpers.spawn(tell_places(office.clone(), office.freed.subscribe(), news.clone()));
    let mut desk = Desk {
        outbox: Outbox { office: office.clone(), send: answers },
        connection: office.last_connection.fetch_add(1, Relaxed) + 1,
        office,
        news,
        helpers,
        watched: HashSet::new(),
        transactions: HashMap::new(),
        requests: Arc::default(),
        tasks: JoinSet::new(),
        places: HashSet::new(),
    };
    let mut reader = FrameReader::new(&*stream);
    let done = loop {
        tokio::select! {
            _ = stopping.wait_for(Stop::is_asked) => break Ok(()),
            read = reader.next::<Request>() => match read {
                Ok(Some(request)) => desk.take(request),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
        }
    };
    if *stopping.borrow() == Stop::Close {
        let _ = desk.outbox.send.send(encoded(&FromOwner::Closing));
        desk.drop_transactions();
        // The client ends the connection once it has all answers. What it has sent meanwhile is refused as not done.
        let last = async {
            while let Ok(Some(request)) = reader.next::<Request>().await {
                desk.refuse(request);
            }
        };
        let _ = tokio::time::timeout(LAST_REQUESTS, last).await;
        desk.finish().await;
    }
    drop(desk);
    // Ends when the last sender of answers has gone, unless the other side does not read.
    let _ = tokio::time::timeout(LAST_ANSWERS, writer).await;
    done
}

/// One connection's state.
struct Desk {
    office: Arc<Office>,
    /// Names the connection in the rows of its readers.
    connection: u64,
    outbox: Outbox,
    news: mpsc::Sender<Vec<u8>>,
    helpers: JoinSet<()>,
    watched: HashSet<String>,
    transactions: HashMap<u64, OpenTx>,
    /// The tasks of requests, for those whose caller goes away.
    requests: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    tasks: JoinSet<()>,
    places: HashSet<(i32, i32)>,
}

/// A transaction that goes on: the way to its task.
struct OpenTx {
    steps: mpsc::UnboundedSender<(u64, TxStep)>,
    task: AbortHandle,
}

impl Drop for Desk {
    fn drop(&mut self) {
        for (queue_id, number) in self.places.drain() {
            self.office.free_place(queue_id, number);
        }
        self.office.board.monitors().put_guest(self.connection, None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    fn take(&mut self, Request { id, call }: Request) {
        while self.tasks.try_join_next().is_some() {}
        let store = self.office.store.clone();
        match call {
            Call::Submit(unit) => self.answer(id, async move { store.submit(unit).await.map(outcomes) }),
            Call::SubmitOnce(unit_id, unit) => self.answer(id, async move {
                store.submit_once(unit_id, unit).await.map(|done| done.map_or(Answer::Done, outcomes))
            }),
            Call::UnitHappened(unit_id) => {
                self.answer(id, async move { store.unit_happened(unit_id).await.map(Answer::Happened) });
            }
            Call::RunSql(sql) => self.answer(id, async move { store.run_sql(sql.into()).await.map(Answer::Changed) }),
            Call::InTx { tx, step } => self.step(id, tx, step),
            Call::DropTx { tx } => {
                // Its step may wait for a lock.
                if let Some(open) = self.transactions.remove(&tx) {
                    open.task.abort();
                }
            }
            Call::Cancel { request } => {
                if let Some(task) = lock(&self.requests).remove(&request) {
                    task.abort();
                }
            }
            Call::TakePlace { queue_id, most, number } => {
                let number = match number {
                    Some(number) => Some(self.office.places.enter(queue_id, number)),
                    None => self.office.places.take(queue_id, most),
                };
                self.places.extend(number.map(|number| (queue_id, number)));
                self.outbox.answer(id, Ok(Answer::Place(number)));
            }
            Call::FreePlace { queue_id, number } => {
                if self.places.remove(&(queue_id, number)) {
                    self.office.free_place(queue_id, number);
                }
            }
            Call::GiveBack(jobs) => store.give_back(&jobs),
            Call::Watch { queue } => self.watch(queue),
            Call::Publish(readers) => {
                self.office.board.monitors().put_guest(self.connection, Some(ProcessRows::from(readers)));
            }
        }
    }

    /// Runs a request; its answer is sent by its task.
    fn answer(&mut self, id: u64, work: impl Future<Output = Result<Answer>> + Send + 'static) {
        let (outbox, requests, store) = (self.outbox.clone(), self.requests.clone(), self.office.store.clone());
        // Held until the task is entered, so that the task cannot end before.
        let mut entered = lock(&self.requests);
        let task = self.tasks.spawn(async move {
            let answer = work.await;
            if lock(&requests).remove(&id).is_none() {
                // Cancelled in this moment.
                return put_back(&store, answer);
            }
            outbox.answer(id, answer);
        });
        entered.insert(id, task);
    }

    fn step(&mut self, id: u64, tx: u64, step: TxStep) {
        let open = self.transactions.entry(tx).or_insert_with(|| {
            let (steps, to_take) = mpsc::unbounded_channel();
            let task = self.tasks.spawn(transaction(self.office.store.clone(), to_take, self.outbox.clone()));
            OpenTx { steps, task }
        });
        let is_last = step.is_last();
        // The task ends only after the last step.
        let _ = open.steps.send((id, step));
        if is_last {
            self.transactions.remove(&tx);
        }
    }

    fn watch(&mut self, queue: String) {
        let known = fold_name(&queue);
        if self.watched.len() >= MOST_WATCHED || !self.watched.insert(known) {
            return;
        }
        let activity = self.office.board.queue(&queue);
        let changed = activity.register_monitor();
        self.helpers.spawn(tell_queue(queue, activity, changed, self.news.clone()));
    }

    /// Rolls open transactions back.
    fn drop_transactions(&mut self) {
        for (_, open) in self.transactions.drain() {
            open.task.abort();
        }
    }

    /// Refuses a request that came after the store began to close: it was not done.
    fn refuse(&self, Request { id, call }: Request) {
        match call {
            // Its transaction is gone.
            Call::InTx { .. } => self.outbox.answer(id, Err(super::owner_gone())),
            Call::Submit(_)
            | Call::SubmitOnce(..)
            | Call::UnitHappened(_)
            | Call::RunSql(_)
            | Call::TakePlace { .. } => {
                self.outbox.answer(id, Err(Error::closed()));
            }
            _ => {}
        }
    }

    /// Waits for the requests under way, which the closing store answers.
    async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

fn outcomes(outcomes: Vec<Outcome>) -> Answer {
    Answer::Outcomes(outcomes.into_iter().map(WireOutcome::from).collect())
}

/// The way of answers to a connection.
#[derive(Clone)]
struct Outbox {
    office: Arc<Office>,
    send: mpsc::UnboundedSender<Vec<u8>>,
}

impl Outbox {
    fn answer(&self, id: u64, answer: Result<Answer>) {
        let definitions = self.office.definitions();
        let mut bytes = Vec::new();
        let answer = answer.map_err(Refusal::from);
        if frame::encode(&FromOwner::Answer { id, definitions, answer }, &mut bytes).is_err() {
            let too_long = Error::new(
                Code::OUT_OF_RANGE,
                "the answer is longer than a frame between two processes may be (1 GB); ask for less at a time",
            );
            bytes = encoded(&FromOwner::Answer { id, definitions, answer: Err(too_long.into()) });
        }
        // Fails if the connection has ended.
        let _ = self.send.send(bytes);
    }
}

/// An answer without a caller: its jobs go back, its messages are dropped and counted.
fn put_back(store: &SqliteStore, answer: Result<Answer>) {
    let Ok(Answer::Outcomes(outcomes)) = answer else { return };
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(Outcome::from).collect();
    note_dropped(outcomes.messages());
    store.give_back(&taken_jobs(&outcomes));
}

/// The jobs in these outcomes.
pub(super) fn taken_jobs(outcomes: &[Outcome]) -> Vec<TakenJob> {
    let jobs = outcomes.iter().flat_map(|outcome| match outcome {
        Outcome::Jobs(jobs) => jobs.as_slice(),
        _ => &[],
    });
    jobs.map(|job| job.taken).collect()
}

/// One transaction of another process, until its last step or until its sender is dropped.
async fn transaction(store: Arc<SqliteStore>, mut steps: mpsc::UnboundedReceiver<(u64, TxStep)>, outbox: Outbox) {
    let mut tx = None;
    while let Some((id, step)) = steps.recv().await {
        let is_last = step.is_last();
        let opened = match tx.take() {
            Some(open) => Ok(open),
            None => store.begin().await,
        };
        let answer = match opened {
            Ok(open) => run_step(open, step, &mut tx).await,
            Err(error) => Err(error),
        };
        // The store that closes is not the caller's: another process takes over, without this transaction.
        let answer =
            answer.map_err(|error| if error.code() == Code::STORE_CLOSED { super::owner_gone() } else { error });
        outbox.answer(id, answer);
        if is_last {
            return;
        }
    }
}

/// Runs one step and puts the transaction back, if it goes on.
async fn run_step(mut open: Box<dyn StoreTx>, step: TxStep, home: &mut Option<Box<dyn StoreTx>>) -> Result<Answer> {
    let answer = match step {
        TxStep::Commit => return open.commit().await.map(|()| Answer::Done),
        TxStep::Rollback => return open.rollback().await.map(|()| Answer::Done),
        TxStep::Execute(verb) => open.execute(verb).await.map(|outcome| outcomes(vec![outcome])),
        TxStep::Sql(sql) => open.sql(sql.into()).await.map(|()| Answer::Done),
        TxStep::Query(sql) => open.query(sql.into()).await.map(|rows| Answer::Rows(rows.into())),
        TxStep::Claim(unit_id) => open.claim(unit_id).await.map(Answer::Happened),
        TxStep::Savepoint(name) => open.savepoint(&name).await.map(|()| Answer::Done),
        TxStep::RollbackTo(name) => open.rollback_to(&name).await.map(|()| Answer::Done),
    };
    *home = Some(open);
    answer
}

/// Writes frames; those that wait go together. Answers come before news.
async fn write(stream: Arc<Stream>, mut answers: mpsc::UnboundedReceiver<Vec<u8>>, mut news: mpsc::Receiver<Vec<u8>>) {
    let (mut frames, mut bytes) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            biased;
            count = answers.recv_many(&mut frames, MOST_TOGETHER) => if count == 0 {
                return;
            },
            Some(one) = news.recv() => frames.push(one),
        }
        for frame in frames.drain(..) {
            bytes.extend_from_slice(&frame);
        }
        if (&mut &*stream).write_all(&bytes).await.is_err() {
            return;
        }
        bytes.clear();
        bytes.shrink_to(WRITE_BYTES);
    }
}

fn encoded(message: &FromOwner) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = frame::encode(message, &mut bytes);
    bytes
}

/// Tells a connection of every change of definitions.
async fn tell_definitions(
    board: Arc<ActivityBoard>,
    first: tokio::sync::futures::OwnedNotified,
    news: mpsc::Sender<Vec<u8>>,
) {
    let mut next = first;
    loop {
        next.await;
        next = board.register_definitions();
        if news.send(encoded(&FromOwner::Redefined)).await.is_err() {
            return;
        }
    }
}

/// Tells a connection of the places of readers that become free.
async fn tell_places(office: Arc<Office>, mut freed: broadcast::Receiver<i32>, news: mpsc::Sender<Vec<u8>>) {
    loop {
        let queue_id = match freed.recv().await {
            Ok(queue_id) => queue_id,
            // A monitor asks for a place again by itself, only later.
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if let Some(queue) = office.name_of(queue_id)
            && news.send(encoded(&FromOwner::PlaceFreed { queue })).await.is_err()
        {
            return;
        }
    }
}

/// Tells a connection what happens in one queue. While the connection is slow, changes are put together.
async fn tell_queue(
    queue: String,
    activity: Arc<QueueActivity>,
    first: tokio::sync::futures::OwnedNotified,
    news: mpsc::Sender<Vec<u8>>,
) {
    let mut next = first;
    let mut reported: Option<(Counts, QueueFacts)> = None;
    loop {
        let (counts, facts) = (activity.counts(), activity.facts());
        let is_silent = reported.is_some_and(|(reported, _)| reported == counts);
        let is_same = reported.is_some_and(|(_, reported)| {
            (reported.ready_groups, reported.unread) == (facts.ready_groups, facts.unread)
        });
        if !is_silent || !is_same {
            let before = reported.map_or(counts, |(counts, _)| counts);
            let report = FromOwner::Queue {
                queue: queue.clone(),
                news: QueueNews {
                    ready_groups: facts.ready_groups as u64,
                    unread: facts.unread,
                    // What is ready at the beginning may have become so after the client polled.
                    newly_ready: reported
                        .map_or(facts.ready_groups as u64, |_| counts.newly_ready - before.newly_ready),
                    has_arrivals: counts.signals != before.signals || reported.is_none(),
                    is_changed: counts.wakes != before.wakes,
                },
            };
            reported = Some((counts, facts));
            if news.send(encoded(&report)).await.is_err() {
                return;
            }
        }
        // A queue that is only being emptied is reported now and then.
        let arrival = activity.register(true);
        if is_silent && !is_same && activity.counts() == counts {
            tokio::select! {
                () = arrival => {}
                () = tokio::time::sleep(DEPTH_EVERY) => {}
            }
        } else {
            next.await;
        }
        next = activity.register_monitor();
    }
}
