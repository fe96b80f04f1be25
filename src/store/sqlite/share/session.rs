//! The owner's side of one connection: the calls of a guest, carried out on the store.
//!
//! A connection has a task that reads requests and one that writes answers. Each request and each transaction has a task of
//! its own, so a call that waits holds up no other one. When the connection ends, its tasks are aborted. Their transactions
//! roll back, as if they had been dropped in this process.

use super::calls::Calls;
use super::frame::{
    self, Answer, Call, FrameBuffer, FromOwner, Holder, QueueNews, Refusal, Request, TxStep, WireOutcome,
};
use super::owned::OwnedStore;
use super::unsent::{LONGEST_END, Unsent, Written, write};
use super::{lock, socket};
use crate::catalog::fold_name;
use crate::error::{Code, Error, Result};
use crate::protocol::work::{TakenJob, WorkVerb};
use crate::protocol::{Outcome, Verb};
use crate::store::handover::{HoldsMessages, note_dropped};
use crate::store::sqlite::owner::Peer;
use crate::store::sqlite::{SqliteStore, blocking};
use crate::store::url::Durability;
use crate::store::{ActivityBoard, Counts, ProcessRows, QueueActivity, QueueFacts, Seen, Store, StoreTx};
use interprocess::local_socket::tokio::Stream;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Reports of queues that wait for a slow connection; more are put together.
const MOST_REPORTS: usize = 64;
/// How long a guest may take to end its transactions and the connection after the owner has announced that it closes.
pub(super) const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// How long the last answers may wait for the next call to end, or for the guest to take some more bytes. A store that closes answers
/// in less: it stops a statement of the user's after five seconds. All answers had six seconds together before, and of twelve messages of 48 MB
/// on their way nine were lost.
const LAST_ANSWERS: Duration = Duration::from_secs(6);
/// The shortest interval between two reports of a queue's depth in which nothing has arrived.
const DEPTH_EVERY: Duration = Duration::from_millis(5);

// A guest is a process of the same user, which may do worse to the file than to send too much. The bounds keep a fault of
// one process from filling the memory of another.

/// Calls under way of one connection.
const MOST_CALLS: usize = 64 * 1024;
/// Open transactions of one connection.
const MOST_TRANSACTIONS: usize = 8 * 1024;
/// Names that one connection may watch besides those of queues that exist, and the longest of them in bytes.
const MOST_WATCHED: usize = 10_000;
const LONGEST_NAME: usize = 1024;
/// Readers of one connection.
const MOST_SLOTS: usize = 64 * 1024;
/// Bytes of answers that the guest has not read. With more, its next requests wait.
const MOST_UNSENT: usize = 64 * 1024 * 1024;

/// Whether and how an owner ends its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    /// Transactions that are open may end.
    AfterTransactions,
    /// The store takes nothing more.
    AtOnce,
}

impl Closing {
    fn is_announced(&self) -> bool {
        *self != Self::No
    }
}

/// Held by a connection while its transactions may go on, and by each of them until its end is ordered: a store that has closed counts
/// no rollback.
pub(super) type Draining = mpsc::Sender<std::convert::Infallible>;

/// Serves a connection until it ends, or until the store does.
pub(super) async fn serve(
    owned: Arc<OwnedStore>,
    stream: Stream,
    durability: Durability,
    mut closing: watch::Receiver<Closing>,
    draining: Draining,
) -> io::Result<()> {
    tokio::select! {
        greeted = socket::greet_client(&stream, durability) => greeted?,
        _ = closing.wait_for(Closing::is_announced) => return Ok(()),
    }
    let stream = Arc::new(stream);
    let (send, to_write) = mpsc::unbounded_channel();
    let (reports, reports_to_write) = mpsc::channel(MOST_REPORTS);
    let unsent = Arc::new(Unsent::default());
    // Registered before the first request, so that no change is missed after the guest has read the definitions.
    let redefined = owned.board.register_definitions();
    let mut reporters = JoinSet::new();
    let connection = owned.next_connection();
    let written = Written::new(unsent.clone(), owned.turns.clone(), connection);
    let mut writer = tokio::spawn(write(stream.clone(), to_write, reports_to_write, written));
    reporters.spawn(report_definitions(owned.board.clone(), redefined, reports.clone()));
    reporters.spawn(report_freed_slots(owned.clone(), owned.freed_slots(), reports.clone()));
    let mut session = GuestSession {
        answers: Answers { owned: owned.clone(), send, unsent: unsent.clone() },
        connection,
        peer: socket::peer_of(&stream),
        owned,
        reports,
        reporters,
        watched: HashMap::new(),
        transactions: HashMap::new(),
        calls: Arc::default(),
        in_hand: Arc::new(Semaphore::new(MOST_CALLS)),
        tasks: JoinSet::new(),
        slots: HashMap::new(),
        draining: Some(draining),
    };
    let mut requests = Requests { stream: &stream, buffer: FrameBuffer::default() };
    let done = loop {
        tokio::select! {
            _ = &mut writer => break None,
            _ = closing.wait_for(Closing::is_announced) => break Some(Ok(())),
            read = async {
                unsent.below(MOST_UNSENT).await;
                requests.next().await
            } => match read {
                Ok(Some(request)) => session.handle(request),
                Ok(None) => break Some(Ok(())),
                Err(error) => break Some(Err(error)),
            },
        }
    };
    let Some(done) = done else {
        // The guest has ended the connection and reads no more. What its callers have not seen, it has said before.
        session.handle_rest(&mut requests).await;
        return Ok(());
    };
    let longest = Instant::now() + LONGEST_END;
    let announced = *closing.borrow();
    if announced.is_announced() {
        session.answers.push(encoded(&FromOwner::Closing));
        if announced == Closing::AtOnce {
            session.excuse_transactions();
        }
        // The guest ends the connection once it has all answers and has ended its transactions.
        if session.handle_rest(&mut requests).await {
            session.lose_transactions();
        } else {
            session.excuse_transactions();
        }
        session.draining = None;
        unsent.while_it_shrinks(LAST_ANSWERS, longest, session.finish(&mut requests)).await;
    }
    drop(session);
    // Ends when the last sender of answers has gone, unless the other side does not read.
    unsent.while_it_shrinks(LAST_ANSWERS, longest, writer).await;
    done
}

/// The requests of a connection, in order.
struct Requests<'s> {
    stream: &'s Stream,
    buffer: FrameBuffer,
}

impl Requests<'_> {
    /// The next one; `None` at the end of the connection. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// `InvalidData` if it is no request of this version; those of the connection.
    async fn next(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some(request) = self.buffer.next()? {
                return Ok(Some(request));
            }
            if (&mut &*self.stream).read_buf(self.buffer.room()).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// The state of one connection.
struct GuestSession {
    owned: Arc<OwnedStore>,
    /// Names the connection in the rows of its readers.
    connection: u64,
    peer: Peer,
    answers: Answers,
    reports: mpsc::Sender<Vec<u8>>,
    reporters: JoinSet<()>,
    /// The tasks that report what happens in these queues.
    watched: HashMap<String, AbortHandle>,
    transactions: HashMap<u64, OpenTx>,
    /// For those whose caller goes away.
    calls: Arc<Mutex<Calls>>,
    /// Room for more calls.
    in_hand: Arc<Semaphore>,
    tasks: JoinSet<()>,
    /// The running readers: queue and number by the guest's id.
    slots: HashMap<u64, (i32, i32)>,
    /// `None` once no transaction goes on.
    draining: Option<Draining>,
}

/// A step of a transaction, the id of its call, and its room; the last step needs none.
type Step = (u64, TxStep, Option<OwnedSemaphorePermit>);

/// A transaction that goes on: the way to its task.
struct OpenTx {
    steps: mpsc::UnboundedSender<Step>,
    task: AbortHandle,
    /// The call of its last step.
    last_step: u64,
    /// The caller of its last step has gone before it got the answer.
    is_unseen: Arc<AtomicBool>,
    /// Messages or jobs were sent to the guest. If it ends without a word, its callers may have seen them.
    is_answered: Arc<AtomicBool>,
    /// What the guest has said.
    seen: Seen,
}

impl OpenTx {
    fn says(&self, is_seen: bool) {
        if is_seen {
            self.seen.set();
        }
    }

    /// Ends it because the owner closes, which the guest has no part in: with `RETRY` three closes made a message a dead letter that its
    /// receiver would have handled.
    fn excuse(&self) {
        self.seen.excuse();
        self.task.abort();
    }

    /// Ends it without a word of the guest.
    fn lose(&self) {
        self.seen.lose();
        self.says(self.is_answered.load(Relaxed) && !self.is_unseen.load(Relaxed));
        self.task.abort();
    }
}

impl Drop for GuestSession {
    fn drop(&mut self) {
        self.lose_transactions();
        for (_, (queue_id, number)) in self.slots.drain() {
            self.owned.free_slot(queue_id, number);
        }
        self.owned.board.monitors().put_guest(self.connection, None);
    }
}

impl GuestSession {
    fn handle(&mut self, request: Request) {
        // Nothing more is done here, and another process takes the file over. With the error of the store every RECEIVE of a guest that
        // waited ended: the failure wakes them all.
        if self.owned.store.has_failed() {
            self.owned.note_failure();
            return self.refuse(request);
        }
        let Request { id, call } = request;
        while self.tasks.try_join_next().is_some() {}
        // A notification has the id 0.
        if id != 0 {
            self.owned.turns.asked(self.connection);
        }
        let store = self.owned.store.clone();
        match call {
            Call::Submit(unit) => self.run(id, async move { store.submit(unit).await.map(outcomes) }),
            Call::SubmitOnce(unit_id, unit) => self.run(id, async move {
                store.submit_once(unit_id, unit).await.map(|done| done.map_or(Answer::Done, outcomes))
            }),
            Call::UnitHappened(unit_id) => {
                self.run(id, async move { store.unit_happened(unit_id).await.map(Answer::Happened) });
            }
            Call::LockHolder(group) => self.run(id, async move {
                store.lock_holder(group).await.map(|holder| Answer::Holder(holder.map(Holder::from)))
            }),
            Call::ReceiveHolds => self.run(id, async move { store.receive_holds().await.map(Answer::Holds) }),
            Call::RunSql(sql) => self.run(id, async move { store.run_sql(sql.into()).await.map(Answer::Changed) }),
            Call::InTx { tx, is_seen, step } => self.step(id, (tx, is_seen), step),
            Call::DropTx { tx, is_seen, is_lost, reason } => {
                // Its step may wait for a lock.
                if let Some(open) = self.transactions.remove(&tx) {
                    open.says(is_seen);
                    if is_lost {
                        open.seen.lose();
                    }
                    if let Some(reason) = reason {
                        open.seen.explain(reason);
                    }
                    open.task.abort();
                }
            }
            Call::Cancel { request } => {
                let jobs = lock(&self.calls).cancel(request);
                store.give_back(&jobs);
                if let Some(open) = self.transactions.values().find(|open| open.last_step == request) {
                    open.is_unseen.store(true, Relaxed);
                }
            }
            Call::TakeSlot { slot, queue_id, most } => {
                let number = self.has_room_for(slot).then(|| self.owned.slots.take(queue_id, most)).flatten();
                if let Some(number) = number {
                    self.slots.insert(slot, (queue_id, number));
                }
                self.answers.answer(id, Ok(Answer::Slot(number)));
            }
            Call::EnterSlot { slot, queue_id, number } => {
                if self.has_room_for(slot) {
                    self.slots.insert(slot, (queue_id, self.owned.slots.enter(queue_id, number)));
                }
            }
            Call::FreeSlot { slot } => {
                if let Some((queue_id, number)) = self.slots.remove(&slot) {
                    self.owned.free_slot(queue_id, number);
                }
            }
            Call::GiveBack(jobs) => {
                let is_given = store.give_back(&jobs);
                if id != 0 {
                    // The next owner reads the file: one that dies now must have written it.
                    self.run(id, async move {
                        store.write_all().await?;
                        if is_given { Ok(Answer::Done) } else { Err(Error::closed()) }
                    });
                }
            }
            Call::Watch { queue } => self.watch(queue),
            Call::Publish(readers) => {
                self.owned.board.monitors().put_guest(self.connection, Some(ProcessRows::from(readers)));
            }
            Call::Unwatch { queue } => self.unwatch(&queue),
        }
    }

    /// Room for one more call; none if the guest has too many under way, and then the call is answered.
    fn room(&self, id: u64) -> Option<OwnedSemaphorePermit> {
        let room = self.in_hand.clone().try_acquire_owned().ok();
        if room.is_none() {
            self.answers.answer(id, Err(too_many("calls under way", MOST_CALLS)));
        }
        room
    }

    /// Runs a call; its answer is sent by its task.
    fn run(&mut self, id: u64, work: impl Future<Output = Result<Answer>> + Send + 'static) {
        let Some(room) = self.room(id) else { return };
        let (answers, calls) = (self.answers.clone(), self.calls.clone());
        // Held until the task is entered, so that the task cannot end before.
        let mut entered = lock(&self.calls);
        let task = self.tasks.spawn(async move {
            let answer = work.await.map_err(|error| answers.of_a_failed_store(error, super::owner_gone));
            let jobs = answer.as_ref().map(Answer::taken_jobs).unwrap_or_default();
            if !lock(&calls).answer(id, jobs) {
                // Cancelled in this moment.
                return put_back(&answers.owned.store, answer);
            }
            if let Some(unsent) = answers.try_answer_apart(id, answer).await {
                put_back(&answers.owned.store, Ok(unsent));
            }
            drop(room);
        });
        entered.begin(id, task);
    }

    /// Whether the guest may have one more reader, of this id.
    fn has_room_for(&self, slot: u64) -> bool {
        self.slots.len() < MOST_SLOTS && !self.slots.contains_key(&slot)
    }

    fn step(&mut self, id: u64, (tx, is_seen): (u64, bool), step: TxStep) {
        // The end of a transaction makes room. Refused, it left the transaction open, with all that it held.
        let ends = step.is_last() && self.transactions.contains_key(&tx);
        let room = if ends { None } else { self.room(id) };
        if room.is_none() && !ends {
            return;
        }
        if self.transactions.len() >= MOST_TRANSACTIONS && !self.transactions.contains_key(&tx) {
            return self.answers.answer(id, Err(too_many("open transactions", MOST_TRANSACTIONS)));
        }
        let open = self.transactions.entry(tx).or_insert_with(|| {
            let (steps, to_take) = mpsc::unbounded_channel();
            let (is_unseen, is_answered, seen) =
                (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default(), Seen::default());
            let tx = Some(self.owned.store.begin_for(self.peer, seen.clone()));
            let held = HeldTx {
                tx,
                has_taken: false,
                is_unseen: Arc::clone(&is_unseen),
                is_answered: Arc::clone(&is_answered),
                seen: seen.clone(),
                draining: self.draining.clone(),
            };
            let task = self.tasks.spawn(transaction(held, to_take, self.answers.clone()));
            OpenTx { steps, task, last_step: id, is_unseen, is_answered, seen }
        });
        open.says(is_seen);
        open.last_step = id;
        open.is_unseen.store(false, Relaxed);
        let is_last = step.is_last();
        // The task ends only after the last step.
        let _ = open.steps.send((id, step, room));
        if is_last {
            self.transactions.remove(&tx);
        }
    }

    fn watch(&mut self, queue: String) {
        let name = fold_name(&queue);
        let has_room = self.watched.len() < MOST_WATCHED || self.owned.is_queue(&queue);
        if !has_room || queue.len() > LONGEST_NAME || self.watched.contains_key(&name) {
            return;
        }
        let activity = self.owned.board.queue(&queue);
        let changed = activity.register_monitor();
        let reporter = self.reporters.spawn(report_queue(queue, activity, changed, self.reports.clone()));
        self.watched.insert(name, reporter);
    }

    fn unwatch(&mut self, queue: &str) {
        if let Some(reporter) = self.watched.remove(&fold_name(queue)) {
            reporter.abort();
        }
        while self.reporters.try_join_next().is_some() {}
    }

    /// Rolls open transactions back that the guest has left.
    fn lose_transactions(&mut self) {
        self.transactions.drain().for_each(|(_, open)| open.lose());
    }

    /// Rolls open transactions back, as the owner closes.
    fn excuse_transactions(&mut self) {
        self.transactions.drain().for_each(|(_, open)| open.excuse());
    }

    /// Handles what still comes, until the guest ends the connection, but not for long. Whether the guest has ended it.
    async fn handle_rest(&mut self, requests: &mut Requests<'_>) -> bool {
        let rest = async {
            while let Ok(Some(request)) = requests.next().await {
                self.handle_last(request);
            }
        };
        tokio::time::timeout(LAST_REQUESTS, rest).await.is_ok()
    }

    /// A call that came after the owner has announced that it closes: transactions that are open go on.
    fn handle_last(&mut self, request: Request) {
        let goes_on = match &request.call {
            Call::InTx { tx, .. } => self.transactions.contains_key(tx),
            Call::DropTx { .. } | Call::Cancel { .. } | Call::GiveBack(_) => true,
            _ => false,
        };
        if goes_on { self.handle(request) } else { self.refuse(request) }
    }

    /// Refuses a call: it was not done.
    fn refuse(&self, Request { id, call }: Request) {
        match call {
            // Its transaction is gone.
            Call::InTx { .. } => self.answers.answer(id, Err(super::owner_gone())),
            Call::Submit(_)
            | Call::SubmitOnce(..)
            | Call::UnitHappened(_)
            | Call::LockHolder(_)
            | Call::ReceiveHolds
            | Call::RunSql(_)
            | Call::TakeSlot { .. } => {
                self.answers.answer(id, Err(Error::closed()));
            }
            Call::GiveBack(_) if id != 0 => self.answers.answer(id, Err(Error::closed())),
            _ => {}
        }
    }

    /// Waits for the calls under way. Their callers may still leave: the job of one that had left was taken until its lease ended.
    async fn finish(&mut self, requests: &mut Requests<'_>) {
        let unsent = self.answers.unsent.clone();
        let mut has_ended = false;
        loop {
            tokio::select! {
                joined = self.tasks.join_next() => if joined.is_none() { return },
                read = async {
                    unsent.below(MOST_UNSENT).await;
                    requests.next().await
                }, if !has_ended => match read {
                    Ok(Some(request)) => self.handle_last(request),
                    Ok(None) | Err(_) => has_ended = true,
                },
            }
        }
    }
}

fn too_many(what: &str, most: usize) -> Error {
    Error::new(
        Code::POOL_EXHAUSTED,
        format!("this process has {most} {what} with the owner of the database, which is the most; end some of them"),
    )
}

fn outcomes(outcomes: Vec<Outcome>) -> Answer {
    Answer::Outcomes(outcomes.into_iter().map(WireOutcome::from).collect())
}

/// The way of answers to the guest.
#[derive(Clone)]
struct Answers {
    owned: Arc<OwnedStore>,
    send: mpsc::UnboundedSender<Vec<u8>>,
    unsent: Arc<Unsent>,
}

impl Answers {
    /// Sends an answer that holds no messages.
    fn answer(&self, id: u64, answer: Result<Answer>) {
        self.try_answer(id, answer);
    }

    /// The same as [`Self::try_answer`], on a thread of its own if the answer is large: one thread serves all guests.
    async fn try_answer_apart(&self, id: u64, answer: Result<Answer>) -> Option<Answer> {
        if !answer.as_ref().is_ok_and(Answer::is_large) {
            return self.try_answer(id, answer);
        }
        let answers = self.clone();
        tokio::task::spawn_blocking(move || answers.try_answer(id, answer)).await.unwrap_or_default()
    }

    /// Sends an answer. If it is longer than a frame may be, the guest gets an error, and the answer comes back.
    fn try_answer(&self, id: u64, answer: Result<Answer>) -> Option<Answer> {
        let definitions = self.owned.definitions();
        let mut bytes = Vec::new();
        let answer = answer.map_err(|error| {
            self.owned.note_error(&error);
            Refusal::from(error)
        });
        let frame = FromOwner::Answer { id, definitions, answer };
        let mut unsent = None;
        if frame::encode(&frame, &mut bytes).is_err() {
            if let FromOwner::Answer { answer: Ok(answer), .. } = frame {
                unsent = Some(answer);
            }
            let too_long = Error::new(
                Code::OUT_OF_RANGE,
                "the answer is longer than a frame between two processes may be (1 GB); ask for less at a time. Messages that \
                 it held are dropped, or go back with their transaction, which was rolled back",
            );
            bytes = encoded(&FromOwner::Answer { id, definitions, answer: Err(too_long.into()) });
        }
        self.push(bytes);
        unsent
    }

    /// The error of a guest whose call the failure of the store has met: the guest need not open the file again, another process takes
    /// it over. An error that names the cause stays.
    fn of_a_failed_store(&self, error: Error, gone: fn() -> Error) -> Error {
        if error.code() != Code::STORE_POISONED || !self.owned.store.has_failed() {
            return error;
        }
        self.owned.note_failure();
        gone().caused_by(error)
    }

    fn push(&self, frame: Vec<u8>) {
        self.unsent.add(frame.len());
        // Fails if the connection has ended.
        let _ = self.send.send(frame);
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

/// Set before a take: its jobs go back uncounted if its caller does not get them. No application can name it.
const BEFORE_TAKE: &str = "\0before a take";

/// A transaction of a guest, while no step runs.
struct HeldTx {
    tx: Option<Result<Box<dyn StoreTx>>>,
    /// Its last step was a take.
    has_taken: bool,
    is_unseen: Arc<AtomicBool>,
    is_answered: Arc<AtomicBool>,
    seen: Seen,
    /// Dropped last.
    draining: Option<Draining>,
}

impl Drop for HeldTx {
    /// Its rollback counts an attempt at each of its jobs, but not at those that no reader has seen.
    fn drop(&mut self) {
        if let Some(Ok(tx)) = self.tx.as_mut().filter(|_| self.has_taken && self.is_unseen.load(Relaxed)) {
            // It changes memory only, and waits for nothing.
            let undone = std::pin::pin!(tx.rollback_to(BEFORE_TAKE)).poll(&mut Context::from_waker(Waker::noop()));
            debug_assert!(undone.is_ready());
        }
    }
}

/// One transaction of a guest, until its last step or until its sender is dropped.
async fn transaction(mut held: HeldTx, mut steps: mpsc::UnboundedReceiver<Step>, answers: Answers) {
    while let Some((id, step, room)) = steps.recv().await {
        // The guest may send steps and read no answers.
        answers.unsent.below(MOST_UNSENT).await;
        let is_last = step.is_last();
        let is_commit = matches!(step, TxStep::Commit);
        // A transaction that could not begin, or that a step has ended, stays so: a later step is not a new one.
        held.has_taken = false;
        let answer = match held.tx.take() {
            Some(Ok(mut open)) => {
                let mut home = None;
                let takes = matches!(step, TxStep::Execute(Verb::Work(WorkVerb::Take(_))));
                if takes {
                    // Fails only if the step fails too.
                    let _ = open.savepoint(BEFORE_TAKE).await;
                }
                if is_last {
                    // Its end is ordered at once, and may wait for the store that closes.
                    drop(held.draining.take());
                }
                let answer = run_step(open, step, &mut home).await;
                held.has_taken = takes && answer.is_ok();
                held.tx = home.map(Ok);
                answer
            }
            Some(Err(error)) => Err(error),
            None => Err(Error::transaction_ended()),
        };
        // The store that closes is not the caller's: another process takes over, without this transaction.
        let answer = answer.map_err(|error| match error.code() {
            Code::STORE_CLOSED => super::owner_gone(),
            _ => answers.of_a_failed_store(error, if is_commit { super::commit_unknown } else { super::owner_gone }),
        });
        if let Ok(Answer::Outcomes(outcomes)) = &answer
            && outcomes.iter().any(WireOutcome::holds_something)
        {
            held.is_answered.store(true, Relaxed);
        }
        if let Some(Answer::Outcomes(_)) = answers.try_answer_apart(id, answer).await {
            // The guest has not seen the messages, so it must not commit. It gets an error about them each time, which poison
            // handling must end; jobs go back uncounted.
            held.is_unseen.store(true, Relaxed);
            held.seen.set();
            let (is_unseen, is_answered) = (Arc::default(), Arc::default());
            held = HeldTx { tx: None, has_taken: false, is_unseen, is_answered, seen: Seen::default(), draining: None };
        }
        drop(room);
        if is_last {
            return;
        }
    }
}

/// Runs one step and puts the transaction back, if it goes on.
async fn run_step(mut open: Box<dyn StoreTx>, step: TxStep, home: &mut Option<Box<dyn StoreTx>>) -> Result<Answer> {
    let answer = match step {
        TxStep::Commit => return open.commit().await.map(|()| Answer::Done),
        TxStep::Rollback { reason } => return open.rollback(reason).await.map(|()| Answer::Done),
        TxStep::Execute(verb) => open.execute(verb).await.map(|outcome| outcomes(vec![outcome])),
        TxStep::Sql(sql) => open.sql(sql.into()).await.map(Answer::Changed),
        TxStep::Query(sql) => match open.query(sql.into()).await {
            Ok(rows) if frame::are_large(&rows) => blocking(move || Ok(Answer::Rows(rows.into()))).await,
            rows => rows.map(|rows| Answer::Rows(rows.into())),
        },
        TxStep::Claim(unit_id) => open.claim(unit_id).await.map(Answer::Happened),
        TxStep::Savepoint(name) => open.savepoint(&name).await.map(|()| Answer::Done),
        TxStep::RollbackTo(name) => open.rollback_to(&name).await.map(|()| Answer::Done),
    };
    *home = Some(open);
    answer
}

fn encoded(message: &FromOwner) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = frame::encode(message, &mut bytes);
    bytes
}

/// Reports every change of definitions.
async fn report_definitions(
    board: Arc<ActivityBoard>,
    first: tokio::sync::futures::OwnedNotified,
    reports: mpsc::Sender<Vec<u8>>,
) {
    let mut next = first;
    loop {
        next.await;
        next = board.register_definitions();
        if reports.send(encoded(&FromOwner::Redefined)).await.is_err() {
            return;
        }
    }
}

/// Reports the slots of readers that become free.
async fn report_freed_slots(
    owned: Arc<OwnedStore>,
    mut freed: broadcast::Receiver<Option<i32>>,
    reports: mpsc::Sender<Vec<u8>>,
) {
    loop {
        let queue_id = match freed.recv().await {
            Ok(queue_id) => queue_id,
            // Some were missed.
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if let Some(report) = owned.freed_report(queue_id)
            && reports.send(encoded(&report)).await.is_err()
        {
            return;
        }
    }
}

/// Reports what happens in one queue. While the connection is slow, changes are put together.
async fn report_queue(
    queue: String,
    activity: Arc<QueueActivity>,
    first: tokio::sync::futures::OwnedNotified,
    reports: mpsc::Sender<Vec<u8>>,
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
            if reports.send(encoded(&report)).await.is_err() {
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
