//! The session of an activated reader: its own broker, which records its receives and its open transactions.

use super::driver::Failure;
use crate::act::{InStore, Perform};
use crate::broker::Broker;
use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Verb};
use crate::store::layer::{CallState, Done, Layer, Request, TxLayer, TxRequest, tx_methods};
use crate::store::{BoxFuture, Seen, SqlRows, SqlStatement, Store, StoreTx};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as BlockingMutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Mutex, mpsc, watch};
use uuid::Uuid;

/// The session of an activated reader. It is a [`Broker`] in every respect, and signals the reader when to stop.
///
/// A reader should leave after a short wait that finds nothing; it is launched again when there is work. A reader that
/// ends without a RECEIVE counts as failed (28087), and so does one that leaves a transaction with work open (8415):
/// the transaction is rolled back.
pub struct Session {
    broker: Broker,
    queue: Arc<str>,
    task_id: u64,
    traces: Arc<Traces>,
    stopping: watch::Receiver<bool>,
    failures: mpsc::UnboundedSender<Failure>,
    surplus: Arc<AtomicUsize>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("queue", &self.queue).field("task_id", &self.task_id).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(
        store: Arc<dyn Store>,
        queue: Arc<str>,
        task_id: u64,
        stopping: watch::Receiver<bool>,
        failures: mpsc::UnboundedSender<Failure>,
        surplus: Arc<AtomicUsize>,
    ) -> (Self, Arc<Traces>) {
        let traces = Arc::new(Traces::default());
        let broker = Broker::over(Arc::new(WatchedStore { inner: store, traces: traces.clone() }));
        (Self { broker, queue, task_id, traces: traces.clone(), stopping, failures, surplus }, traces)
    }

    /// The queue this reader was launched for.
    pub fn queue(&self) -> &Arc<str> {
        &self.queue
    }

    /// Names the reader in this process.
    pub fn task_id(&self) -> u64 {
        self.task_id
    }

    /// Whether the reader should finish its current messages and leave.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the reader should finish its current messages and leave.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // If the driver is gone, the reader need not stop.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// The signal to stop, for a reader that is no receive loop.
    pub(crate) fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    /// The reader asks for work now, though not with a RECEIVE of this session.
    pub(crate) fn note_receive(&self) {
        self.traces.received.store(true, SeqCst);
    }

    /// Whether a maximum that was lowered has no room for one of the readers: this one leaves then.
    pub(crate) fn is_surplus(&self) -> bool {
        self.traces.is_leaving.store(true, SeqCst);
        let is_surplus = self.surplus.fetch_update(SeqCst, SeqCst, |surplus| surplus.checked_sub(1)).is_ok();
        self.traces.is_leaving.store(is_surplus, SeqCst);
        is_surplus
    }

    /// The reader asks for a part of the queue only, and leaves without having found anything in it.
    pub(crate) fn note_found_nothing(&self) {
        self.traces.found_nothing.store(true, SeqCst);
    }

    /// So many messages of a transaction that was committed.
    pub(super) fn note_served(&self, messages: usize) {
        self.traces.served.fetch_add(messages as u64, SeqCst);
    }

    /// Reports to the monitor a failure that the reader survives, and whose transaction it has rolled back: also one that
    /// was dropped with a verb under way was not left open.
    pub(super) fn note_failure(&self, error: Error) {
        self.traces.left_open.store(false, SeqCst);
        // If the driver is gone, failures are not counted.
        let _ = self.failures.send(Failure::Handler(self.task_id, error));
    }

    /// Reports to the monitor that a program cannot be started.
    pub(super) fn note_failed_start(&self, error: Error) {
        let _ = self.failures.send(Failure::Start(error));
    }
}

impl Deref for Session {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

impl Perform for Session {
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        self.broker.perform(verb)
    }
}

impl InStore for Session {
    fn store(&self) -> &dyn Store {
        self.broker.store()
    }

    fn may_hold_groups(&self) -> bool {
        self.broker.may_hold_groups()
    }

    fn is_transaction(&self) -> bool {
        self.broker.is_transaction()
    }
}

/// The parts of a reader's work that matter to activation.
#[derive(Default)]
pub(super) struct Traces {
    received: AtomicBool,
    is_leaving: AtomicBool,
    found_nothing: AtomicBool,
    left_open: AtomicBool,
    served: AtomicU64,
    next_id: AtomicU64,
    /// The reader is about to be ended.
    is_lost: AtomicBool,
    open: BlockingMutex<HashMap<u64, OpenTx>>,
}

struct OpenTx {
    slot: Weak<Slot>,
    seen: Seen,
}

/// A transaction that can be taken away from its holder.
type Slot = Mutex<Option<Box<dyn StoreTx>>>;

impl Traces {
    /// Whether a RECEIVE or GET CONVERSATION GROUP was run.
    pub(super) fn received(&self) -> bool {
        self.received.load(SeqCst)
    }

    /// The messages in transactions that were committed.
    pub(super) fn served(&self) -> u64 {
        self.served.load(SeqCst)
    }

    /// Whether the part of the queue that the reader asked for had nothing.
    pub(super) fn found_nothing(&self) -> bool {
        self.found_nothing.load(SeqCst)
    }

    /// Whether the reader leaves because it is one too many.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(SeqCst)
    }

    /// Rolls back the reader's open transactions; returns whether they, or those it dropped without an end, did any
    /// work.
    pub(super) fn close(&self) -> bool {
        let slots: Vec<_> = self.open().drain().filter_map(|(_, open)| open.slot.upgrade()).collect();
        for slot in slots {
            self.left_open.store(true, SeqCst);
            // Another task may be in the middle of a verb on it; the end of the reader need not wait for that.
            let is_free = slot.try_lock().map(|mut tx| drop(tx.take())).is_ok();
            if !is_free {
                tokio::spawn(async move { drop(slot.lock().await.take()) });
            }
        }
        self.left_open.load(SeqCst)
    }

    /// The reader is about to be ended: what it has open is rolled back without its doing.
    pub(super) fn lose_open(&self) {
        let open = self.open();
        self.is_lost.store(true, SeqCst);
        open.values().for_each(|open| open.seen.lose());
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenTx>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, verb: &Verb) {
        if matches!(verb, Verb::Receive { .. } | Verb::GetConversationGroup { .. }) {
            self.received.store(true, SeqCst);
        }
    }
}

struct WatchedStore {
    inner: Arc<dyn Store>,
    traces: Arc<Traces>,
}

impl Layer for WatchedStore {
    type Call = ();
    type Tx = WatchedTx;

    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, request: Request<'_>) -> Result<()> {
        request.verbs().iter().for_each(|verb| self.traces.note(verb));
        Ok(())
    }

    fn open(&self, inner: Box<dyn StoreTx>, seen: Seen) -> (WatchedTx, Box<dyn StoreTx>) {
        let slot = Arc::new(Mutex::new(Some(inner)));
        let id = self.traces.next_id.fetch_add(1, SeqCst);
        let mut open = self.traces.open();
        if self.traces.is_lost.load(SeqCst) {
            seen.lose();
        }
        open.insert(id, OpenTx { slot: Arc::downgrade(&slot), seen });
        drop(open);
        let watched = WatchedTx { id, traces: self.traces.clone(), has_work: false, savepoints: Vec::new() };
        (watched, Box::new(SlotTx(slot)))
    }
}

pub(super) struct WatchedTx {
    id: u64,
    traces: Arc<Traces>,
    /// It received something or changed something.
    has_work: bool,
    /// The savepoints, and whether it had work at each.
    savepoints: Vec<(String, bool)>,
}

impl WatchedTx {
    fn ended(&mut self) {
        self.has_work = false;
        self.traces.open().remove(&self.id);
    }
}

impl Drop for WatchedTx {
    fn drop(&mut self) {
        if self.has_work {
            self.traces.left_open.store(true, SeqCst);
        }
        self.ended();
    }
}

/// A call that sets a savepoint or goes back to one.
pub(super) enum Marking {
    Set(String),
    Back(String),
}

impl CallState for Option<Marking> {
    fn end(self, _: Done<'_>) {}
}

impl TxLayer for WatchedTx {
    type Call = Option<Marking>;

    fn before(&mut self, request: TxRequest<'_>) -> Result<Option<Marking>> {
        match request {
            TxRequest::Execute(verb) => self.traces.note(verb),
            TxRequest::Sql(_) | TxRequest::Claim => self.has_work = true,
            TxRequest::Savepoint(name) => return Ok(Some(Marking::Set(name.to_owned()))),
            TxRequest::RollbackTo(name) => return Ok(Some(Marking::Back(name.to_owned()))),
            TxRequest::Commit | TxRequest::Rollback => self.ended(),
            TxRequest::Query(_) => {}
        }
        Ok(None)
    }

    fn after(&mut self, marking: Option<Marking>, done: Done<'_>) {
        let outcomes = match done {
            Ok(outcomes) => outcomes,
            // A deadlock has ended the transaction and rolled its work back, so no work is left open.
            Err(error) if error.code() == Code::DEADLOCK => return self.ended(),
            Err(_) => return,
        };
        self.has_work |= !outcomes.iter().all(is_no_work);
        match marking {
            Some(Marking::Set(name)) => self.savepoints.push((name, self.has_work)),
            Some(Marking::Back(name)) => {
                if let Some(place) = self.savepoints.iter().rposition(|(known, _)| *known == name) {
                    self.savepoints.truncate(place + 1);
                    self.has_work = self.savepoints[place].1;
                }
            }
            None => {}
        }
    }
}

/// Whether a verb has found nothing, or has only read.
fn is_no_work(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Group(None) | Outcome::Text(_) => true,
        Outcome::Received(messages) => messages.is_empty(),
        Outcome::Jobs(jobs) => jobs.is_empty(),
        _ => false,
    }
}

/// A transaction that can be taken away from its holder; 60020 then.
struct SlotTx(Arc<Slot>);

macro_rules! forward_to_slot {
    ($self:ident, $request:expr, $method:ident($argument:ident), $outcomes:ident) => {
        Box::pin(
            async move { $self.0.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.$method($argument).await },
        )
    };
}

impl StoreTx for SlotTx {
    tx_methods!(forward_to_slot);

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let tx = self.0.lock().await.take();
            tx.ok_or_else(Error::transaction_ended)?.commit().await
        })
    }

    fn rollback(self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let Some(tx) = self.0.lock().await.take() else { return Ok(()) };
            tx.rollback(reason).await
        })
    }
}

#[cfg(test)]
mod tests;
