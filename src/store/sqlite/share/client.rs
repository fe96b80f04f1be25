//! The connection of a guest to the owner: calls and their answers, and what the owner reports by itself.

use super::connection::Connection;
use super::frame::{self, Answer, Call, FrameBuffer, FromOwner, QueueNews, Readers, Request, TxStep};
use super::room::Room;
use super::session::taken_jobs;
#[cfg(unix)]
use super::spin::{Polling, Spin, has_spare_core};
use super::{blocking, commit_unknown, lock, owner_gone, unexpected};
use crate::catalog::{Catalog, fold_name};
use crate::error::{Code, Error, Result};
use crate::protocol::work::WorkVerb;
use crate::protocol::{Outcome, Verb};
use crate::store::handover::{HoldsMessages, note_dropped};
use crate::store::sqlite::ReadOnlyStore;
use crate::store::sqlite::answered::takes_leased_jobs;
use crate::store::{ActivityBoard, Store, work_queue_on_board};
use interprocess::local_socket::tokio::Stream;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
#[cfg(unix)]
use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;
#[cfg(unix)]
use std::time::Instant;
use tokio::sync::{Notify, oneshot, watch};

/// The shortest interval between two reports of this process's readers.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// How long the end of a connection waits until what is queued is written, and a close for the next of the last answers. An owner that hangs
/// reads nothing.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// In the id of a step of a transaction: what its caller does not take is rolled back.
const IN_TX: u64 = 1 << 63;

/// So many calls one after the other, none beside another, show a lone caller.
const LONE_AFTER: u32 = 8;
/// How long a lone caller waits on its own thread, which may drive other tasks. An in-process caller writes on its own
/// thread if a batch takes at most as long.
#[cfg(unix)]
const LONE_WAIT: Duration = Duration::from_millis(1);
/// The longest time for which a lone caller polls for its answer. An answer takes 130 to 400 us on the disks of
/// docs/measurements/sqlite.md; on one that takes longer the wake-up that polling saves hardly counts.
#[cfg(unix)]
const MOST_POLLING: Duration = Duration::from_micros(500);
/// How long the task leaves the socket to a lone caller that reads from it, and how often it looks itself if it cannot watch the socket.
#[cfg(unix)]
const LONE_READS: Duration = Duration::from_millis(1);

/// A connection to the owner.
pub(super) struct Client {
    pub(super) connection: Connection,
    /// What has arrived. A lone caller or the task reads.
    arrived: Mutex<FrameBuffer>,
    waiting: Mutex<Waiting>,
    last_id: AtomicU64,
    /// Calls in a row that were alone and answered soon.
    lone_calls: AtomicU32,
    /// Answers that a lone caller has waited for on its own thread.
    #[cfg(unix)]
    lone_reads: AtomicU64,
    /// How long lone callers wait for their answers.
    #[cfg(unix)]
    spin: Mutex<Spin>,
    watched: Mutex<Watched>,
    board: Arc<ActivityBoard>,
    room: Room,
    definitions: Definitions,
    is_lost: AtomicBool,
    /// This process has closed its broker.
    is_closed: AtomicBool,
    /// Signalled when the owner closes.
    closing: Notify,
    /// Signalled when the owner closes, the last caller has its answer and the last transaction has ended.
    finished: Notify,
    /// Signalled at each answer once this process has closed its broker.
    answered: Notify,
}

/// The definitions, read from the file.
struct Definitions {
    reader: Arc<ReadOnlyStore>,
    catalog: Arc<Mutex<Arc<Catalog>>>,
    /// The owner's number of those in the catalog.
    version: AtomicU64,
    /// The highest number that an answer has named.
    named: AtomicU64,
    changed: Notify,
    /// The highest number that was named before a reading that has ended, well or not. Only the connection's task reads: a caller may
    /// keep its future and not poll it, and all calls of the process waited for one that held a lock.
    tried: watch::Sender<u64>,
}

/// The queues that the owner tells of.
struct Watched {
    names: HashSet<String>,
    /// At this number of names, those that are of no use any more are given up.
    prune_at: usize,
}

/// Below this number of watched names none is given up.
const LEAST_PRUNED: usize = 1024;

impl Default for Watched {
    fn default() -> Self {
        Self { names: HashSet::new(), prune_at: LEAST_PRUNED }
    }
}

#[derive(Default)]
struct Waiting {
    /// No call is made any more: the connection has ended, or this process has closed its broker.
    takes_none: bool,
    /// Whether the owner closes: it refuses what it has not read yet, and ends the connection after the last answer.
    is_closing: bool,
    callers: HashMap<u64, Asked>,
    /// Calls whose answer holds leased jobs and is on its way to the caller, and whether they only take jobs. A close takes it from the
    /// caller.
    giving: HashMap<u64, bool>,
    /// Transactions with something to commit, or with a step under way: they may end while the owner closes.
    transactions: HashSet<u64>,
}

/// A call under way.
struct Asked {
    caller: oneshot::Sender<Answered>,
    /// It takes leased jobs and does nothing else, so that it can be asked again once these went back.
    only_takes: bool,
}

/// An answer, and the version of the definitions that its caller may expect.
type Answered = (u64, Result<Answer>);

/// What a reading of the socket has left.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrived {
    /// All that has arrived is read.
    Nothing,
    /// The other side has ended the connection.
    End,
    /// Another thread reads.
    Busy,
}

impl Client {
    pub(super) fn new(
        stream: Stream,
        board: Arc<ActivityBoard>,
        reader: Arc<ReadOnlyStore>,
        catalog: Arc<Mutex<Arc<Catalog>>>,
    ) -> io::Result<Arc<Self>> {
        let connection = Connection::new(stream)?;
        *lock(&catalog) = reader.catalog();
        Ok(Arc::new(Self {
            connection,
            arrived: Mutex::default(),
            waiting: Mutex::default(),
            last_id: AtomicU64::new(0),
            lone_calls: AtomicU32::new(0),
            #[cfg(unix)]
            lone_reads: AtomicU64::new(0),
            #[cfg(unix)]
            spin: Mutex::new(Spin::new(MOST_POLLING)),
            watched: Mutex::default(),
            board,
            room: Room::new(),
            definitions: Definitions {
                reader,
                catalog,
                version: AtomicU64::new(0),
                named: AtomicU64::new(0),
                changed: Notify::new(),
                tried: watch::Sender::new(0),
            },
            is_lost: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
            finished: Notify::new(),
            answered: Notify::new(),
        }))
    }

    /// Carries requests and answers until the connection ends. Every caller that still waits gets 60046, or 60016 if this process has
    /// closed its broker.
    pub(super) async fn run(self: &Arc<Self>) {
        let error = tokio::select! {
            read = self.read() => read.err(),
            written = self.connection.write_queued() => written.err(),
            () = self.finished() => None,
            () = self.follow_definitions() => None,
            () = self.publish_readers() => None,
            () = self.board.keep_looking_after_receivers() => None,
            () = self.room.make_room() => None,
        };
        if let Some(error) = error {
            tracing::warn!(%error, "the connection to the owner of the database was lost");
        }
        self.lose();
    }

    /// Returns when the owner closes, and this process has nothing more for it.
    async fn finished(&self) {
        self.finished.notified().await;
        self.take_unseen_back();
        let _ = tokio::time::timeout(LAST_WORDS, self.connection.flushed()).await;
    }

    /// Has an owner that closes take back the jobs that their callers have not looked at. A caller that was dropped after the end of the
    /// connection could not give its job back: the job stayed taken to the end of its lease. One that looks asks the next owner.
    fn take_unseen_back(&self) {
        let mut waiting = lock(&self.waiting);
        for (request, _) in waiting.giving.extract_if(|_, only_takes| *only_takes) {
            self.notify(Call::Cancel { request });
        }
    }

    /// Reads until the connection ends.
    #[cfg(unix)]
    async fn read(&self) -> io::Result<()> {
        let socket = self.connection.socket()?;
        let mut seen = self.lone_reads.load(Relaxed);
        loop {
            let lone_reads = self.lone_reads.load(Relaxed);
            let found = self.read_arrived(&socket)?;
            // While lone callers read, each answer would wake this task for nothing.
            if found == Arrived::Busy || lone_reads != seen {
                seen = lone_reads;
                tokio::time::sleep(LONE_READS).await;
                continue;
            }
            let mut found = found;
            // Without a free descriptor the connection goes on all the same. A process at its limit lost it, with the calls under way.
            let Ok(watch) = socket.watch() else {
                tokio::time::sleep(LONE_READS).await;
                continue;
            };
            while found == Arrived::Nothing && self.lone_reads.load(Relaxed) == seen {
                // Forgotten before the reading, so that what arrives after it wakes this task again.
                watch.arrival().await?;
                found = self.read_arrived(&socket)?;
            }
            if found == Arrived::End {
                return Ok(());
            }
        }
    }

    /// Reads what is there.
    #[cfg(unix)]
    fn read_arrived(&self, socket: &super::connection::Socket) -> io::Result<Arrived> {
        let Some(mut arrived) = self.try_arrived() else { return Ok(Arrived::Busy) };
        loop {
            match socket.try_read(arrived.room()) {
                Ok(0) => return Ok(Arrived::End),
                Ok(_) => self.take_frames(&mut arrived)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Arrived::Nothing),
                Err(error) => return Err(error),
            }
        }
    }

    #[cfg(not(unix))]
    async fn read(&self) -> io::Result<()> {
        let socket = self.connection.socket()?;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if socket.read(&mut bytes).await? == 0 {
                return Ok(());
            }
            let mut arrived = lock(&self.arrived);
            arrived.room().extend_from_slice(&bytes);
            self.take_frames(&mut arrived)?;
        }
    }

    /// What has arrived, unless another thread reads.
    #[cfg(unix)]
    fn try_arrived(&self) -> Option<MutexGuard<'_, FrameBuffer>> {
        match self.arrived.try_lock() {
            Ok(arrived) => Some(arrived),
            Err(TryLockError::Poisoned(arrived)) => Some(arrived.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Hands over the answers that have arrived, and publishes the rest.
    fn take_frames(&self, arrived: &mut FrameBuffer) -> io::Result<()> {
        while let Some(frame) = arrived.next::<FromOwner>()? {
            match frame {
                FromOwner::Answer { id, definitions, answer } => {
                    self.hand_over(id, (definitions, answer.map_err(Error::from)));
                }
                FromOwner::Closing => {
                    lock(&self.waiting).is_closing = true;
                    self.closing.notify_one();
                    self.finish_if_idle();
                }
                FromOwner::Queue { queue, news } => self.publish(&queue, news),
                FromOwner::Redefined => self.definitions.changed.notify_one(),
                FromOwner::SlotFreed { queue: Some(queue) } => self.board.queue(&queue).place_freed(),
                FromOwner::SlotFreed { queue: None } => {
                    self.board.names().iter().for_each(|name| self.board.queue(name).place_freed());
                }
            }
        }
        Ok(())
    }

    /// Ends the connection if the owner closes, no caller waits and no transaction goes on.
    fn finish_if_idle(&self) {
        if self.is_closed.load(Relaxed) {
            self.answered.notify_one();
        }
        let waiting = lock(&self.waiting);
        if waiting.is_closing && waiting.callers.is_empty() && waiting.transactions.is_empty() {
            self.finished.notify_one();
        }
    }

    /// Whether the connection has ended.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// An id for a transaction or the slot of a reader.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// The owner need not wait for a transaction when it closes: it has ended, or has nothing to commit.
    pub(super) fn let_go(&self, tx: u64) {
        lock(&self.waiting).transactions.remove(&tx);
        self.finish_if_idle();
    }

    /// Ends the connection because this process closes its broker, once the calls under way have their answers. The callers of those that
    /// wait for a group get none. The owner may have sent them meanwhile, and takes the jobs in them back. A caller that has left, and has
    /// not been dropped yet, could not give them back later.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.room.close();
        lock(&self.waiting).takes_none = true;
        self.last_answers().await;
        self.leave().await;
    }

    /// Ends the connection because this process has dropped its broker.
    pub(super) async fn leave(&self) {
        self.is_closed.store(true, Relaxed);
        let callers = self.lose_callers();
        let giving = std::mem::take(&mut lock(&self.waiting).giving);
        callers.keys().chain(giving.keys()).for_each(|id| self.notify(Call::Cancel { request: *id }));
        drop(callers);
        let _ = tokio::time::timeout(LAST_WORDS, self.connection.flushed()).await;
        self.lose();
    }

    /// Returns when no caller waits, or no answer comes any more. Most of the calls that were given up here had happened: of 640 SENDs under
    /// way 549, and 217 received messages had no reader. Of the answers that hold jobs only those to a mere take can be taken back.
    async fn last_answers(&self) {
        let is_waited_for =
            |waiting: &Waiting| !waiting.callers.is_empty() || waiting.giving.values().any(|only_takes| !only_takes);
        while is_waited_for(&lock(&self.waiting)) {
            if tokio::time::timeout(LAST_WORDS, self.answered.notified()).await.is_err() {
                return;
            }
        }
    }

    /// No call is made any more, and the callers get no answer.
    fn lose_callers(&self) -> HashMap<u64, Asked> {
        self.is_lost.store(true, Relaxed);
        self.definitions.tried.send_replace(u64::MAX);
        self.room.close();
        let mut waiting = lock(&self.waiting);
        waiting.takes_none = true;
        std::mem::take(&mut waiting.callers)
    }

    /// Ends the connection for all callers.
    pub(super) fn lose(&self) {
        // Each caller finds that no answer comes.
        drop(self.lose_callers());
        // A transaction that outlives its connection keeps nothing open.
        self.connection.end();
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
            let definitions = &self.definitions;
            definitions.changed.notified().await;
            let (named, reader) = (definitions.named.load(Relaxed), definitions.reader.clone());
            match blocking(move || reader.read_catalog()).await {
                Ok(catalog) => {
                    *lock(&definitions.catalog) = catalog;
                    definitions.version.store(named, Relaxed);
                    self.board.wake_all();
                }
                Err(error) => tracing::warn!(%error, "the definitions could not be read again"),
            }
            definitions.tried.send_if_modified(|tried| {
                named > *tried && {
                    *tried = named;
                    true
                }
            });
        }
    }

    /// Waits until the definitions of that version are read, or cannot be, or the connection has ended.
    async fn definitions_of(&self, version: u64) {
        let definitions = &self.definitions;
        let mut tried = definitions.tried.subscribe();
        definitions.named.fetch_max(version, Relaxed);
        definitions.changed.notify_one();
        let _ = tried.wait_for(|tried| *tried >= version).await;
    }

    /// Tells the owner of this process's queue monitors and readers.
    async fn publish_readers(&self) {
        let monitors = self.board.monitors();
        let mut published = 0;
        loop {
            if monitors.version() != published {
                published = monitors.version();
                self.notify(Call::Publish(Readers::from(monitors)));
            }
            monitors.moved().await;
            tokio::time::sleep(PUBLISH_EVERY).await;
        }
    }

    fn hand_over(&self, id: u64, answer: Answered) {
        let unclaimed = {
            let mut waiting = lock(&self.waiting);
            match waiting.callers.remove(&id) {
                Some(Asked { caller, only_takes }) => {
                    if gives_jobs(id, &answer) {
                        waiting.giving.insert(id, only_takes);
                    }
                    caller.send(answer).err()
                }
                None => Some(answer),
            }
        };
        if let Some((_, Ok(Answer::Outcomes(outcomes)))) = unclaimed
            && id & IN_TX == 0
        {
            self.put_back(&outcomes.into_iter().map(Outcome::from).collect::<Vec<_>>());
        }
        self.finish_if_idle();
    }

    /// Outcomes whose caller has gone: messages are dropped and counted, jobs go back.
    fn put_back(&self, outcomes: &[Outcome]) {
        note_dropped(outcomes.iter().map(HoldsMessages::messages).sum());
        let jobs = taken_jobs(outcomes);
        if !jobs.is_empty() {
            self.notify(Call::GiveBack(jobs));
        }
    }

    /// Whether the jobs of this answer are the caller's: no close has taken them back.
    fn is_given(&self, id: u64) -> bool {
        let is_given = lock(&self.waiting).giving.remove(&id).is_some();
        self.finish_if_idle();
        is_given
    }

    /// Sends a call that has no answer.
    pub(super) fn notify(&self, call: Call) {
        let mut bytes = Vec::new();
        if frame::encode(&Request { id: 0, call }, &mut bytes).is_ok() {
            self.connection.queue(&bytes);
        }
    }

    /// Sends a call and waits for its answer. If the future is dropped, the owner drops the call too.
    pub(super) async fn call(&self, call: &Call) -> Result<Answer> {
        self.connection.room().await;
        let tx = if let Call::InTx { tx, .. } = call { Some(*tx) } else { None };
        let in_tx = if tx.is_some() { IN_TX } else { 0 };
        let id = self.next_id() | in_tx;
        let mut bytes = Vec::new();
        frame::encode(&(id, call), &mut bytes).map_err(|_| {
            Error::new(
                Code::OUT_OF_RANGE,
                "the request is longer than a frame between two processes may be (1 GB); send its bodies one by one",
            )
        })?;
        let (caller, receiver) = oneshot::channel();
        let only_takes = matches!(call, Call::Submit(unit) if takes_leased_jobs(unit));
        let is_alone = {
            let mut waiting = lock(&self.waiting);
            // A call that came between the last answer and the end of the connection would not know what became of it.
            let goes_on = tx.is_some_and(|tx| waiting.transactions.contains(&tx));
            if waiting.takes_none || waiting.is_closing && !goes_on {
                // Nothing was sent.
                return Err(if in_tx == 0 { not_done() } else { self.gone() });
            }
            waiting.transactions.extend(tx);
            waiting.callers.insert(id, Asked { caller, only_takes });
            waiting.callers.len() == 1
        };
        let may_wait = is_alone && self.lone_calls.load(Relaxed) >= LONE_AFTER;
        if !is_alone {
            self.lone_calls.store(0, Relaxed);
            self.connection.queue(&bytes);
        } else if self.connection.send(&bytes).is_err() {
            lock(&self.waiting).callers.remove(&id);
            self.finish_if_idle();
            // The task meets the error too, and the role changes then.
            return Err(if in_tx == 0 { not_done() } else { self.gone() });
        }
        if may_wait {
            self.read_alone(&receiver);
        }
        let mut pending = Pending { client: self, id, receiver: Some(receiver), answered: None };
        let answered = match &mut pending.receiver {
            Some(receiver) => receiver.await.unwrap_or_else(|_| (0, Err(self.unanswered(call)))),
            None => (0, Err(self.unanswered(call))),
        };
        pending.receiver = None;
        if is_alone {
            self.lone_calls.fetch_add(1, Relaxed);
        }
        // A caller that has an answer finds the definitions that it was made with.
        let definitions = answered.0;
        // Its caller may leave meanwhile: a job that it was given stayed with no reader to the end of its lease.
        pending.answered = Some(answered);
        if definitions > self.definitions.version.load(Relaxed) {
            self.definitions_of(definitions).await;
        }
        match pending.answered.take() {
            Some(answered) if !gives_jobs(id, &answered) || self.is_given(id) => answered.1,
            Some(_) if only_takes => Err(not_done()),
            _ => Err(self.unanswered(call)),
        }
    }

    /// The error of a call that was sent and has no answer. A commit may have happened: with an error that can be tried again, its
    /// caller would do it twice.
    fn unanswered(&self, call: &Call) -> Error {
        let is_commit = matches!(call, Call::InTx { step: TxStep::Commit, .. });
        if is_commit { commit_unknown() } else { self.gone() }
    }

    /// The error of a step of a transaction whose connection has ended.
    fn gone(&self) -> Error {
        if self.is_closed.load(Relaxed) { Error::closed() } else { owner_gone() }
    }

    /// Waits for the answer of a lone caller on its own thread, and reads whatever arrives before it. The task goes on
    /// with what has not arrived in time.
    #[cfg(unix)]
    fn read_alone(&self, receiver: &oneshot::Receiver<Answered>) {
        let (Some(mut arrived), Ok(socket)) = (self.try_arrived(), self.connection.socket()) else { return };
        self.lone_reads.fetch_add(1, Relaxed);
        let started = Instant::now();
        let until = started + LONE_WAIT;
        let mut polling = lock(&self.spin).begin().filter(|_| has_spare_core()).map(Polling::new);
        while receiver.is_empty() {
            // The task meets an error, or the end, again.
            match socket.try_read(arrived.room()) {
                Ok(1..) => {
                    // A flood of reports holds this thread up no longer than an answer may.
                    if self.take_frames(&mut arrived).is_err() || Instant::now() >= until {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(polls) = &mut polling {
                        if !polls.goes_on() {
                            lock(&self.spin).note_vain();
                            polling = None;
                        }
                        continue;
                    }
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || !socket.wait_readable(left) {
                        // The owner takes longer than this thread should be held up.
                        lock(&self.spin).note(started.elapsed());
                        return self.lone_calls.store(0, Relaxed);
                    }
                }
                Ok(0) | Err(_) => return,
            }
        }
        let mut spin = lock(&self.spin);
        spin.note(started.elapsed());
        if polling.is_some() {
            spin.note_paid();
        }
    }

    #[cfg(not(unix))]
    fn read_alone(&self, _: &oneshot::Receiver<Answered>) {}

    /// Executes a unit in the owner.
    pub(super) async fn submit(&self, call: &Call) -> Result<Answer> {
        let (Call::Submit(unit) | Call::SubmitOnce(_, unit)) = call else { return self.call(call).await };
        let _room = self.room.take(unit).await.map_err(|_| not_done())?;
        unit.iter().for_each(|verb| self.watch_queue_of(verb));
        self.call(call).await
    }

    /// Has the owner tell what happens in a queue; before the first RECEIVE of it, so that no arrival is missed.
    pub(super) fn watch(&self, name: &str) {
        let known = fold_name(name);
        let mut watched = lock(&self.watched);
        if watched.names.contains(&known) {
            return;
        }
        if watched.names.len() >= watched.prune_at {
            self.give_up_unused(&mut watched);
        }
        watched.names.insert(known);
        self.notify(Call::Watch { queue: name.to_owned() });
    }

    /// Gives up queues that do not exist and where no session waits. The owner has room for so many: a process that had used 10,000
    /// queues, each made for one answer and dropped, got no report of another one, and its receivers slept beside messages.
    fn give_up_unused(&self, watched: &mut Watched) {
        let catalog = lock(&self.definitions.catalog).clone();
        let queues = catalog.queues.values().map(|queue| fold_name(&queue.name));
        let work_queues = catalog.work_queues.values().map(|queue| fold_name(&work_queue_on_board(&queue.name)));
        let exist: HashSet<String> = queues.chain(work_queues).collect();
        watched.names.retain(|name| {
            let is_kept = exist.contains(name) || !self.board.remove_unused(name);
            if !is_kept {
                self.notify(Call::Unwatch { queue: name.clone() });
            }
            is_kept
        });
        watched.prune_at = (watched.names.len() * 2).max(LEAST_PRUNED);
    }

    pub(super) fn watch_queue_of(&self, verb: &Verb) {
        match verb {
            Verb::Receive { queue, .. } | Verb::GetConversationGroup { queue } => self.watch(queue),
            Verb::Work(WorkVerb::Take(take)) => self.watch(&work_queue_on_board(&take.queue)),
            _ => {}
        }
    }
}

/// Whether the answer of this call holds leased jobs.
fn gives_jobs(id: u64, (_, answer): &Answered) -> bool {
    id & IN_TX == 0 && answer.as_ref().is_ok_and(Answer::has_jobs)
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
    /// The answer, while its caller does not have it yet.
    answered: Option<Answered>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let (answered, receiver) = match (self.answered.take(), self.receiver.take()) {
            (None, None) => return,
            left => left,
        };
        // What is sent here goes before the end of the connection, which a close brings about at the same moment.
        let mut waiting = lock(&self.client.waiting);
        let is_open = waiting.callers.remove(&self.id).is_some();
        let answered = answered.or_else(|| {
            let mut receiver = receiver?;
            receiver.close();
            receiver.try_recv().ok()
        });
        let is_taken_back = answered.as_ref().is_some_and(|answered| gives_jobs(self.id, answered))
            && waiting.giving.remove(&self.id).is_none();
        match answered {
            _ if is_taken_back => {}
            Some((_, Ok(Answer::Outcomes(outcomes)))) if self.id & IN_TX == 0 => {
                self.client.put_back(&outcomes.into_iter().map(Outcome::from).collect::<Vec<_>>());
            }
            // What a step has taken for its caller goes back with the transaction, whether its answer has arrived or not.
            answered if is_open || answered.is_some() => self.client.notify(Call::Cancel { request: self.id }),
            _ => {}
        }
        drop(waiting);
        self.client.finish_if_idle();
    }
}
