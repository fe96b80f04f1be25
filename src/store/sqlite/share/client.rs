//! The side of a process that works through the owner.

use super::frame::{self, Answer, Call, FrameReader, FromOwner, QueueNews, Readers, Request, TxStep};
use super::serve::taken_jobs;
use super::{blocking, lock, owner_gone, unexpected};
use crate::catalog::{Catalog, fold_name};
use crate::error::{Code, Error, Result};
use crate::protocol::work::WorkVerb;
use crate::protocol::{Outcome, Verb};
use crate::store::handover::{HoldsMessages, note_dropped};
use crate::store::sqlite::{ROOM, ReadOnlyStore, cost};
use crate::store::{ActivityBoard, BoxFuture, SqlRows, SqlStatement, Store, StoreTx, work_queue_on_board};
use interprocess::local_socket::tokio::Stream;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use uuid::Uuid;

/// Frames written together.
const MOST_TOGETHER: usize = 1024;

/// The shortest interval between two reports of this process's readers.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// In the number of a step of a transaction: what its caller does not take is rolled back.
const IN_TX: u64 = 1 << 63;

/// A connection to the owner.
pub(super) struct Client {
    requests: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Mutex<Waiting>,
    last_id: AtomicU64,
    watched: Mutex<HashSet<String>>,
    board: Arc<ActivityBoard>,
    /// As in the store: a flood waits in its callers and not in memory.
    room: Semaphore,
    definitions: Definitions,
    is_lost: AtomicBool,
    /// Whether the owner closes.
    is_closing: AtomicBool,
    /// Signalled when the owner closes, and when the last answer has come since.
    closing: Notify,
}

/// The definitions, read from the file.
struct Definitions {
    reader: Arc<ReadOnlyStore>,
    catalog: Arc<Mutex<Arc<Catalog>>>,
    /// The owner's number of those in the catalog.
    version: AtomicU64,
    changed: Notify,
    /// One reading at a time.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    is_lost: bool,
    callers: HashMap<u64, oneshot::Sender<Answered>>,
}

/// An answer, and the version of the definitions that its caller may expect.
type Answered = (u64, Result<Answer>);

/// The ends of a connection, for the task that serves it.
pub(super) struct Ends {
    stream: Arc<Stream>,
    to_write: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Client {
    pub(super) fn new(
        stream: Stream,
        board: Arc<ActivityBoard>,
        reader: Arc<ReadOnlyStore>,
        catalog: Arc<Mutex<Arc<Catalog>>>,
    ) -> (Arc<Self>, Ends) {
        *lock(&catalog) = reader.catalog();
        let (requests, to_write) = mpsc::unbounded_channel();
        let client = Self {
            requests,
            waiting: Mutex::default(),
            last_id: AtomicU64::new(0),
            watched: Mutex::default(),
            board,
            room: Semaphore::new(ROOM as usize),
            definitions: Definitions {
                reader,
                catalog,
                version: AtomicU64::new(0),
                changed: Notify::new(),
                reading: tokio::sync::Mutex::default(),
            },
            is_lost: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            closing: Notify::new(),
        };
        (Arc::new(client), Ends { stream: Arc::new(stream), to_write })
    }

    /// Carries requests and answers until the connection ends. Every caller that still waits gets 60046.
    pub(super) async fn run(self: &Arc<Self>, ends: Ends) {
        let Ends { stream, to_write } = ends;
        let writer = write(stream.clone(), to_write);
        let mut reader = FrameReader::new(&*stream);
        let read = async {
            loop {
                match reader.next::<FromOwner>().await {
                    Ok(Some(FromOwner::Answer { id, definitions, answer })) => {
                        self.hand_over(id, (definitions, answer.map_err(Error::from)));
                        if self.is_closing.load(Relaxed) && lock(&self.waiting).callers.is_empty() {
                            return;
                        }
                    }
                    Ok(Some(FromOwner::Closing)) => {
                        self.is_closing.store(true, Relaxed);
                        self.closing.notify_one();
                        if lock(&self.waiting).callers.is_empty() {
                            return;
                        }
                    }
                    Ok(Some(FromOwner::Queue { queue, news })) => self.publish(&queue, news),
                    Ok(Some(FromOwner::Redefined)) => self.definitions.changed.notify_one(),
                    Ok(Some(FromOwner::PlaceFreed { queue })) => self.board.queue(&queue).place_freed(),
                    Ok(None) => return,
                    Err(error) => return tracing::warn!(%error, "the connection to the owner of the database was lost"),
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = writer => {}
            () = self.follow_definitions() => {}
            () = self.publish_readers() => {}
        }
        self.lose();
    }

    /// Ends the connection for all callers.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Relaxed);
        let callers = {
            let mut waiting = lock(&self.waiting);
            waiting.is_lost = true;
            std::mem::take(&mut waiting.callers)
        };
        for (_, caller) in callers {
            let _ = caller.send((0, Err(owner_gone())));
        }
        self.room.close();
    }

    fn publish(&self, queue: &str, news: QueueNews) {
        let activity = self.board.queue(queue);
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let ready_groups = number(news.ready_groups);
        if news.has_arrivals {
            activity.arrived(number(news.newly_ready), ready_groups, news.unread);
        } else {
            activity.set_depth_for_monitors(ready_groups, news.unread);
        }
        if news.is_changed {
            activity.wake_all();
        }
    }

    /// Waits until the owner says that it closes: new calls go to the next owner.
    pub(super) async fn owner_closes(&self) {
        self.closing.notified().await;
    }

    /// Reads the definitions again whenever they have changed.
    async fn follow_definitions(&self) {
        loop {
            self.definitions.changed.notified().await;
            self.read_definitions(None).await;
            self.board.wake_all();
        }
    }

    /// Reads the definitions, unless those of that version have been read.
    async fn read_definitions(&self, version: Option<u64>) {
        let definitions = &self.definitions;
        let _reading = definitions.reading.lock().await;
        if version.is_some_and(|version| version <= definitions.version.load(Relaxed)) {
            return;
        }
        let reader = definitions.reader.clone();
        match blocking(move || reader.read_catalog()).await {
            Ok(catalog) => {
                *lock(&definitions.catalog) = catalog;
                if let Some(version) = version {
                    definitions.version.store(version, Relaxed);
                }
            }
            Err(error) => tracing::warn!(%error, "the definitions could not be read again"),
        }
    }

    /// Tells the owner of this process's queue monitors and readers.
    async fn publish_readers(&self) {
        let monitors = self.board.monitors();
        let mut published = 0;
        loop {
            if monitors.version() != published {
                published = monitors.version();
                self.tell(Call::Publish(Readers::from(monitors)));
            }
            monitors.moved().await;
            tokio::time::sleep(PUBLISH_EVERY).await;
        }
    }

    fn hand_over(&self, id: u64, answer: Answered) {
        let caller = lock(&self.waiting).callers.remove(&id);
        let unclaimed = match caller {
            Some(caller) => caller.send(answer).err(),
            None => Some(answer),
        };
        if let Some((_, Ok(Answer::Outcomes(outcomes)))) = unclaimed
            && id & IN_TX == 0
        {
            self.put_back(&outcomes.into_iter().map(Outcome::from).collect::<Vec<_>>());
        }
    }

    /// Outcomes whose caller has gone: messages are dropped and counted, jobs go back.
    fn put_back(&self, outcomes: &[Outcome]) {
        note_dropped(outcomes.iter().map(HoldsMessages::messages).sum());
        let jobs = taken_jobs(outcomes);
        if !jobs.is_empty() {
            self.tell(Call::GiveBack(jobs));
        }
    }

    /// Sends what has no answer.
    pub(super) fn tell(&self, call: Call) {
        let mut bytes = Vec::new();
        if frame::encode(&Request { id: 0, call }, &mut bytes).is_ok() {
            let _ = self.requests.send(bytes);
        }
    }

    /// Sends a request and waits for its answer. If the future is dropped, the owner drops the request too.
    pub(super) async fn call(&self, call: &Call) -> Result<Answer> {
        let in_tx = if matches!(call, Call::InTx { .. }) { IN_TX } else { 0 };
        let id = (self.last_id.fetch_add(1, Relaxed) + 1) | in_tx;
        let mut bytes = Vec::new();
        frame::encode(&(id, call), &mut bytes).map_err(|_| {
            Error::new(
                Code::OUT_OF_RANGE,
                "the request is longer than a frame between two processes may be (1 GB); send its bodies one by one",
            )
        })?;
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.is_lost {
                // Nothing was sent.
                return Err(if in_tx == 0 { not_done() } else { owner_gone() });
            }
            waiting.callers.insert(id, sender);
        }
        let mut pending = Pending { client: self, id, receiver: Some(receiver) };
        let _ = self.requests.send(bytes);
        let (definitions, answer) = match &mut pending.receiver {
            Some(receiver) => receiver.await.unwrap_or_else(|_| (0, Err(owner_gone()))),
            None => (0, Err(owner_gone())),
        };
        pending.receiver = None;
        // A caller that has an answer finds the definitions that it was made with.
        if definitions > self.definitions.version.load(Relaxed) {
            self.read_definitions(Some(definitions)).await;
        }
        answer
    }

    /// Executes a unit in the owner.
    pub(super) async fn submit(&self, call: &Call) -> Result<Answer> {
        let (Call::Submit(unit) | Call::SubmitOnce(_, unit)) = call else { return self.call(call).await };
        let _room = self.room.acquire_many(cost(unit).min(ROOM)).await.map_err(|_| not_done())?;
        unit.iter().for_each(|verb| self.watch_queue_of(verb));
        self.call(call).await
    }

    /// Has the owner tell what happens in a queue; before the first RECEIVE of it, so that no arrival is missed.
    pub(super) fn watch(&self, name: &str) {
        let known = fold_name(name);
        let mut watched = lock(&self.watched);
        if !watched.contains(&known) {
            watched.insert(known);
            self.tell(Call::Watch { queue: name.to_owned() });
        }
    }

    fn watch_queue_of(&self, verb: &Verb) {
        match verb {
            Verb::Receive { queue, .. } | Verb::GetConversationGroup { queue } => self.watch(queue),
            Verb::Work(WorkVerb::Take(take)) => self.watch(&work_queue_on_board(&take.queue)),
            _ => {}
        }
    }
}

/// The owner has not done it: the next owner is asked.
fn not_done() -> Error {
    Error::closed()
}

/// The outcomes of an answer.
pub(super) fn outcomes(answer: Answer) -> Result<Vec<Outcome>> {
    match answer {
        Answer::Outcomes(outcomes) => Ok(outcomes.into_iter().map(Outcome::from).collect()),
        other => Err(unexpected(&other)),
    }
}

/// A request whose caller may go away.
struct Pending<'c> {
    client: &'c Client,
    id: u64,
    receiver: Option<oneshot::Receiver<Answered>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        let is_open = lock(&self.client.waiting).callers.remove(&self.id).is_some();
        receiver.close();
        match receiver.try_recv() {
            Ok((_, Ok(Answer::Outcomes(outcomes)))) if self.id & IN_TX == 0 => {
                self.client.put_back(&outcomes.into_iter().map(Outcome::from).collect::<Vec<_>>());
            }
            _ if is_open => self.client.tell(Call::Cancel { request: self.id }),
            _ => {}
        }
    }
}

/// Writes frames; those that wait go together. Ends when a write fails.
async fn write(stream: Arc<Stream>, mut to_write: mpsc::UnboundedReceiver<Vec<u8>>) {
    let (mut frames, mut bytes) = (Vec::new(), Vec::new());
    while to_write.recv_many(&mut frames, MOST_TOGETHER).await > 0 {
        for frame in frames.drain(..) {
            bytes.extend_from_slice(&frame);
        }
        if (&mut &*stream).write_all(&bytes).await.is_err() {
            return;
        }
        bytes.clear();
        bytes.shrink_to(64 * 1024);
    }
}

/// A transaction in the owner. Its first step begins it there.
pub(super) struct RemoteTx {
    client: Arc<Client>,
    id: u64,
    is_begun: bool,
    has_ended: bool,
}

impl RemoteTx {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let id = client.last_id.fetch_add(1, Relaxed) + 1;
        Self { client, id, is_begun: false, has_ended: false }
    }

    async fn step(&mut self, step: TxStep) -> Result<Answer> {
        self.is_begun = true;
        self.client.call(&Call::InTx { tx: self.id, step }).await
    }

    async fn done(&mut self, step: TxStep) -> Result<()> {
        match self.step(step).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for RemoteTx {
    fn drop(&mut self) {
        if self.is_begun && !self.has_ended {
            self.client.tell(Call::DropTx { tx: self.id });
        }
    }
}

impl StoreTx for RemoteTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            self.client.watch_queue_of(&verb);
            let answer = self.step(TxStep::Execute(verb)).await?;
            outcomes(answer)?.into_iter().next().ok_or_else(|| unexpected(&Answer::Done))
        })
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.done(TxStep::Sql(sql.into())))
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            match self.step(TxStep::Query(sql.into())).await? {
                Answer::Rows(rows) => Ok(rows.into()),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            match self.step(TxStep::Claim(unit_id)).await? {
                Answer::Happened(is_first) => Ok(is_first),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.done(TxStep::Savepoint(name.to_owned())))
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.done(TxStep::RollbackTo(name.to_owned())))
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if !self.is_begun && !self.client.is_lost.load(Relaxed) {
                return Ok(());
            }
            let done = self.done(TxStep::Commit).await;
            self.has_ended = true;
            done
        })
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if !self.is_begun {
                return Ok(());
            }
            let done = self.done(TxStep::Rollback).await;
            self.has_ended = true;
            // A transaction whose owner has gone is rolled back by its end.
            done.or_else(|error| if error.code() == Code::OWNER_GONE { Ok(()) } else { Err(error) })
        })
    }
}
