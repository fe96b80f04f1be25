//! A decorator for any store: a span per call, counters and histograms per verb, queue and level.
//!
//! The counters are those of [`metrics`]; without a recorder they cost next to nothing: `dialoq_verbs_total{verb}`,
//! `dialoq_refusals_total{code}`, `dialoq_unit_seconds`, `dialoq_messages_received_total{queue, priority}`,
//! `dialoq_transactions_total{end}`, `dialoq_messages_dropped_total` (received for a caller that had given up); the
//! embedded store adds `dialoq_commit_seconds`.

use super::database::link::EnlistedConnection;
use super::{ActivityBoard, BoxFuture, ReaderSlot, SqlRows, SqlStatement, Store, StoreTexts, StoreTx};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::protocol::{Message, Outcome, Unit, Verb};
use crate::time::Clock;
use metrics::{counter, histogram};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Instrument, Span, debug_span};
use uuid::Uuid;

/// Watches every call to a store.
pub struct Traced(Arc<dyn Store>);

impl Traced {
    /// Watches this store.
    pub fn over(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self(store))
    }
}

impl Store for Traced {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        let span = debug_span!("submit", verbs = unit.len(), first = unit.first().map(|verb| verb.declaration().name));
        let queues = counted(&unit);
        let started = Instant::now();
        let done = self.0.submit(unit);
        let watched = async move {
            let result = done.await;
            histogram!("dialoq_unit_seconds").record(started.elapsed());
            match &result {
                Ok(outcomes) => note_all(outcomes, &queues),
                Err(refusal) => refused(refusal),
            }
            result
        };
        Box::pin(watched.instrument(span))
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        let span = debug_span!("submit_once", %unit_id, verbs = unit.len(), first = unit.first().map(|verb| verb.declaration().name));
        let queues = counted(&unit);
        let started = Instant::now();
        let done = self.0.submit_once(unit_id, unit);
        let watched = async move {
            let result = done.await;
            histogram!("dialoq_unit_seconds").record(started.elapsed());
            match &result {
                Ok(outcomes) => note_all(outcomes.as_deref().unwrap_or_default(), &queues),
                Err(refusal) => refused(refusal),
            }
            result
        };
        Box::pin(watched.instrument(span))
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        self.0.unit_happened(unit_id)
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        self.0.reader_slot(queue_id, max_queue_readers)
    }

    fn perform_on<'a>(
        &'a self,
        connection: &'a mut dyn EnlistedConnection,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Outcome>> {
        count(&verb);
        let queue = received_queue(&verb);
        let span = debug_span!("perform_on", verb = verb.declaration().name);
        let watched = async move {
            let result = self.0.perform_on(connection, verb).await;
            match &result {
                Ok(outcome) => note(outcome, queue.as_ref()),
                Err(refusal) => refused(refusal),
            }
            result
        };
        Box::pin(watched.instrument(span))
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move {
            let inner = self.0.begin().await.inspect_err(refused)?;
            let span = debug_span!("transaction");
            Ok(Box::new(TracedTx { inner: Some(inner), span }) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        let span = debug_span!("query", sql = sql.text);
        Box::pin(self.0.query(sql).instrument(span))
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        let span = debug_span!("run_sql", sql = sql.text);
        Box::pin(self.0.run_sql(sql).instrument(span))
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog()
    }

    fn texts(&self) -> &'static StoreTexts {
        self.0.texts()
    }

    fn activity(&self) -> &ActivityBoard {
        self.0.activity()
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        self.0.refresh_facts()
    }

    fn clock(&self) -> &Clock {
        self.0.clock()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close().instrument(debug_span!("close")))
    }
}

struct TracedTx {
    /// `None` once its end has begun.
    inner: Option<Box<dyn StoreTx>>,
    span: Span,
}

impl TracedTx {
    fn inner(&mut self) -> Result<&mut Box<dyn StoreTx>> {
        self.inner.as_mut().ok_or_else(crate::error::Error::transaction_ended)
    }

    fn end(&mut self, how: &'static str) -> Result<Box<dyn StoreTx>> {
        counter!("dialoq_transactions_total", "end" => how).increment(1);
        self.inner.take().ok_or_else(crate::error::Error::transaction_ended)
    }
}

impl Drop for TracedTx {
    fn drop(&mut self) {
        if self.inner.is_some() {
            counter!("dialoq_transactions_total", "end" => "rollback").increment(1);
        }
    }
}

impl StoreTx for TracedTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        count(&verb);
        let queue = received_queue(&verb);
        let span = debug_span!(parent: &self.span, "verb", name = verb.declaration().name);
        let watched = async move {
            let result = self.inner()?.execute(verb).await;
            match &result {
                Ok(outcome) => note(outcome, queue.as_ref()),
                Err(refusal) => refused(refusal),
            }
            result
        };
        Box::pin(watched.instrument(span))
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<()>> {
        let span = debug_span!(parent: &self.span, "sql", sql = sql.text);
        Box::pin(async move { self.inner()?.sql(sql).await }.instrument(span))
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        let span = debug_span!(parent: &self.span, "query", sql = sql.text);
        Box::pin(async move { self.inner()?.query(sql).await }.instrument(span))
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.inner()?.claim(unit_id).await })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.inner()?.savepoint(name).await })
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.inner()?.rollback_to(name).await })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let span = debug_span!(parent: &self.span, "commit");
        let inner = self.end("commit");
        Box::pin(async move { inner?.commit().await.inspect_err(refused) }.instrument(span))
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let span = debug_span!(parent: &self.span, "rollback");
        let inner = self.end("rollback");
        Box::pin(async move { inner?.rollback().await }.instrument(span))
    }
}

/// Counts the verbs of a unit; returns the queue that each receives from.
fn counted(unit: &Unit) -> Vec<Option<Arc<str>>> {
    unit.iter().for_each(count);
    unit.iter().map(received_queue).collect()
}

fn note_all(outcomes: &[Outcome], queues: &[Option<Arc<str>>]) {
    outcomes.iter().zip(queues).for_each(|(outcome, queue)| note(outcome, queue.as_ref()));
}

fn count(verb: &Verb) {
    counter!("dialoq_verbs_total", "verb" => verb.declaration().name).increment(1);
}

fn refused(refusal: &crate::error::Error) {
    counter!("dialoq_refusals_total", "code" => refusal.code().to_string()).increment(1);
}

fn received_queue(verb: &Verb) -> Option<Arc<str>> {
    match verb {
        Verb::Receive { queue, .. } => Some(queue.clone()),
        _ => None,
    }
}

/// Counts received messages by queue and level; a RECEIVE mostly gives one level.
fn note(outcome: &Outcome, queue: Option<&Arc<str>>) {
    let (Outcome::Received(messages), Some(queue)) = (outcome, queue) else { return };
    for same_level in messages.chunk_by(|one: &Message, other| one.priority == other.priority) {
        let priority = same_level[0].priority.to_string();
        counter!("dialoq_messages_received_total", "queue" => queue.clone(), "priority" => priority)
            .increment(same_level.len() as u64);
    }
}
