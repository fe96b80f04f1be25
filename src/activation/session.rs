//! The session of an activated reader: its own broker, which records its receives and its open transactions.

use super::driver::Failure;
use crate::act::Perform;
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Unit, Verb};
use crate::store::database::link::EnlistedConnection;
use crate::store::{ActivityBoard, BoxFuture, ReaderSlot, SqlRows, SqlStatement, Store, StoreTexts, StoreTx};
use crate::time::Clock;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex as BlockingMutex, PoisonError, Weak};
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
    ) -> (Self, Arc<Traces>) {
        let traces = Arc::new(Traces::default());
        let broker = Broker::over(Arc::new(WatchedStore { inner: store, traces: traces.clone() }));
        (Self { broker, queue, task_id, traces: traces.clone(), stopping, failures }, traces)
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

    /// Reports to the monitor a failure that the reader survives, and whose transaction it has rolled back: also one that
    /// was dropped with a verb under way was not left open.
    pub(super) fn note_failure(&self, error: Error) {
        self.traces.left_open.store(false, SeqCst);
        // If the driver is gone, failures are not counted.
        let _ = self.failures.send((self.task_id, error));
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

    fn store(&self) -> &dyn Store {
        self.broker.store()
    }

    fn may_hold_groups(&self) -> bool {
        self.broker.may_hold_groups()
    }
}

/// The parts of a reader's work that matter to activation.
#[derive(Default)]
pub(super) struct Traces {
    received: AtomicBool,
    left_open: AtomicBool,
    next_id: AtomicU64,
    open: BlockingMutex<HashMap<u64, Weak<Slot>>>,
}

/// A transaction that can be taken away from its holder.
type Slot = Mutex<Option<Box<dyn StoreTx>>>;

impl Traces {
    /// Whether a RECEIVE or GET CONVERSATION GROUP was run.
    pub(super) fn received(&self) -> bool {
        self.received.load(SeqCst)
    }

    /// Rolls back the reader's open transactions; returns whether they, or those it dropped without an end, did any
    /// work.
    pub(super) fn close(&self) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let slots: Vec<_> = open.drain().filter_map(|(_, slot)| slot.upgrade()).collect();
        drop(open);
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

impl Store for WatchedStore {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        unit.iter().for_each(|verb| self.traces.note(verb));
        self.inner.submit(unit)
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        unit.iter().for_each(|verb| self.traces.note(verb));
        self.inner.submit_once(unit_id, unit)
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        self.inner.unit_happened(unit_id)
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        self.inner.reader_slot(queue_id, max_queue_readers)
    }

    fn perform_on<'a>(
        &'a self,
        connection: &'a mut dyn EnlistedConnection,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Outcome>> {
        self.traces.note(&verb);
        self.inner.perform_on(connection, verb)
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move {
            let slot = Arc::new(Mutex::new(Some(self.inner.begin().await?)));
            let id = self.traces.next_id.fetch_add(1, SeqCst);
            let mut open = self.traces.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.insert(id, Arc::downgrade(&slot));
            drop(open);
            let watched = WatchedTx { slot, id, traces: self.traces.clone(), has_work: false, savepoints: Vec::new() };
            Ok(Box::new(watched) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        self.inner.query(sql)
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        self.inner.run_sql(sql)
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }

    fn texts(&self) -> &'static StoreTexts {
        self.inner.texts()
    }

    fn activity(&self) -> &ActivityBoard {
        self.inner.activity()
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        self.inner.refresh_facts()
    }

    fn clock(&self) -> &Clock {
        self.inner.clock()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

struct WatchedTx {
    slot: Arc<Slot>,
    id: u64,
    traces: Arc<Traces>,
    /// It received something or changed something.
    has_work: bool,
    /// The savepoints, and whether it had work at each.
    savepoints: Vec<(String, bool)>,
}

impl WatchedTx {
    /// The store's result. A deadlock has ended the transaction and rolled its work back, so nothing of it is left
    /// open.
    fn seen<T>(&mut self, done: Result<T>) -> Result<T> {
        if matches!(&done, Err(error) if error.code() == Code::DEADLOCK) {
            self.ended();
        }
        done
    }

    fn ended(&mut self) {
        self.has_work = false;
        self.traces.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
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

impl StoreTx for WatchedTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        self.traces.note(&verb);
        Box::pin(async move {
            let done = self.slot.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.execute(verb).await;
            let outcome = self.seen(done)?;
            self.has_work |= !matches!(&outcome, Outcome::Received(messages) if messages.is_empty())
                && outcome != Outcome::Group(None);
            Ok(outcome)
        })
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.has_work = true;
            let done = self.slot.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.sql(sql).await;
            self.seen(done)
        })
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            let done = self.slot.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.query(sql).await;
            self.seen(done)
        })
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.has_work = true;
            let done = self.slot.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.claim(unit_id).await;
            self.seen(done)
        })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.slot.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.savepoint(name).await?;
            self.savepoints.push((name.to_owned(), self.has_work));
            Ok(())
        })
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.slot.lock().await.as_mut().ok_or_else(Error::transaction_ended)?.rollback_to(name).await?;
            if let Some(place) = self.savepoints.iter().rposition(|(known, _)| known == name) {
                self.savepoints.truncate(place + 1);
                self.has_work = self.savepoints[place].1;
            }
            Ok(())
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let tx = self.slot.lock().await.take();
            self.ended();
            tx.ok_or_else(Error::transaction_ended)?.commit().await
        })
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let tx = self.slot.lock().await.take();
            self.ended();
            match tx {
                Some(tx) => tx.rollback().await,
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
