//! Layers over a store: code that runs before and after its calls.
//!
//! All layers share the two implementations here, so a new method of [`Store`] or [`StoreTx`] is forwarded once for all
//! of them, and the compiler requires it.

use super::database::link::EnlistedConnection;
use super::{ActivityBoard, BoxFuture, ReaderSlot, SqlRows, SqlStatement, Store, StoreTexts, StoreTx};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::protocol::{Outcome, Unit, Verb};
use crate::time::Clock;
use std::slice::from_ref;
use std::sync::Arc;
use tracing::{Instrument, Span};
use uuid::Uuid;

/// A call of a store, as its layers see it.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    Submit(&'a [Verb]),
    SubmitOnce(Uuid, &'a [Verb]),
    PerformOn(&'a Verb),
    Begin,
    Query(&'a SqlStatement),
    RunSql(&'a SqlStatement),
    Close,
}

impl<'a> Request<'a> {
    pub(crate) fn verbs(self) -> &'a [Verb] {
        match self {
            Self::Submit(unit) | Self::SubmitOnce(_, unit) => unit,
            Self::PerformOn(verb) => from_ref(verb),
            _ => &[],
        }
    }
}

/// A call of a transaction.
#[derive(Clone, Copy)]
pub(crate) enum TxRequest<'a> {
    Execute(&'a Verb),
    Sql(&'a SqlStatement),
    Query(&'a SqlStatement),
    Claim,
    Savepoint(&'a str),
    RollbackTo(&'a str),
    Commit,
    Rollback,
}

/// The outcomes of a call's verbs, or its error.
pub(crate) type Done<'a> = std::result::Result<&'a [Outcome], &'a Error>;

/// A store over another store.
pub(crate) trait Layer: Send + Sync + 'static {
    /// What the layer keeps during a call.
    type Call: Send;
    type Tx: TxLayer + 'static;

    fn inner(&self) -> &dyn Store;

    /// Runs before a call; an error refuses it.
    fn before(&self, request: Request<'_>) -> Result<Self::Call>;

    /// The span of a call.
    fn span(_: &Self::Call) -> Span {
        Span::none()
    }

    /// Runs after a call.
    fn after(&self, _: Self::Call, _: Done<'_>) {}

    /// The layer of a new transaction, and the transaction below it.
    fn open(&self, inner: Box<dyn StoreTx>) -> (Self::Tx, Box<dyn StoreTx>);
}

/// A transaction over another transaction. It is dropped before the other.
pub(crate) trait TxLayer: Send {
    /// What the layer keeps during a call.
    type Call: Send;

    /// Runs before a call; an error refuses it.
    fn before(&mut self, request: TxRequest<'_>) -> Result<Self::Call>;

    /// The span of a call.
    fn span(_: &Self::Call) -> Span {
        Span::none()
    }

    /// Runs after a call.
    fn after(&mut self, _: Self::Call, _: Done<'_>) {}
}

/// An answer, which may hold outcomes of verbs.
trait Answer {
    fn outcomes(&self) -> &[Outcome] {
        &[]
    }
}

impl Answer for () {}
impl Answer for bool {}
impl Answer for u64 {}
impl Answer for SqlRows {}
impl Answer for Box<dyn StoreTx> {}

impl Answer for Outcome {
    fn outcomes(&self) -> &[Outcome] {
        from_ref(self)
    }
}

impl Answer for Vec<Outcome> {
    fn outcomes(&self) -> &[Outcome] {
        self
    }
}

impl Answer for Option<Vec<Outcome>> {
    fn outcomes(&self) -> &[Outcome] {
        self.as_deref().unwrap_or_default()
    }
}

fn around<'a, L: Layer, T: Answer + Send + 'a>(
    layer: &'a L,
    call: Result<L::Call>,
    work: impl FnOnce(&'a dyn Store) -> BoxFuture<'a, Result<T>> + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    let span = call.as_ref().map_or_else(|_| Span::none(), L::span);
    let done = async move {
        let call = call?;
        let done = work(layer.inner()).await;
        layer.after(call, done.as_ref().map(Answer::outcomes));
        done
    };
    Box::pin(done.instrument(span))
}

impl<L: Layer> Store for L {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        let call = self.before(Request::Submit(&unit));
        around(self, call, move |inner| inner.submit(unit))
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        let call = self.before(Request::SubmitOnce(unit_id, &unit));
        around(self, call, move |inner| inner.submit_once(unit_id, unit))
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        self.inner().unit_happened(unit_id)
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        self.inner().reader_slot(queue_id, max_queue_readers)
    }

    fn perform_on<'a>(
        &'a self,
        connection: &'a mut dyn EnlistedConnection,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Outcome>> {
        let call = self.before(Request::PerformOn(&verb));
        around(self, call, move |inner| inner.perform_on(connection, verb))
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        let opened = around(self, self.before(Request::Begin), |inner| inner.begin());
        Box::pin(async move {
            let (layer, inner) = self.open(opened.await?);
            Ok(Box::new(LayeredTx { layer, inner }) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        let call = self.before(Request::Query(&sql));
        around(self, call, move |inner| inner.query(sql))
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        let call = self.before(Request::RunSql(&sql));
        around(self, call, move |inner| inner.run_sql(sql))
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.inner().catalog()
    }

    fn texts(&self) -> &'static StoreTexts {
        self.inner().texts()
    }

    fn activity(&self) -> &ActivityBoard {
        self.inner().activity()
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        self.inner().refresh_facts()
    }

    fn clock(&self) -> &Clock {
        self.inner().clock()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        around(self, self.before(Request::Close), |inner| inner.close())
    }
}

struct LayeredTx<T> {
    layer: T,
    inner: Box<dyn StoreTx>,
}

impl<L: TxLayer> LayeredTx<L> {
    fn around<'a, T: Answer + Send + 'a>(
        &'a mut self,
        call: Result<L::Call>,
        work: impl FnOnce(&'a mut dyn StoreTx) -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        let span = call.as_ref().map_or_else(|_| Span::none(), L::span);
        let done = async move {
            let call = call?;
            let done = work(&mut *self.inner).await;
            self.layer.after(call, done.as_ref().map(Answer::outcomes));
            done
        };
        Box::pin(done.instrument(span))
    }

    fn end(
        mut self,
        request: TxRequest<'_>,
        work: impl FnOnce(Box<dyn StoreTx>) -> BoxFuture<'static, Result<()>> + Send + 'static,
    ) -> BoxFuture<'static, Result<()>>
    where
        L: 'static,
    {
        let call = self.layer.before(request);
        let span = call.as_ref().map_or_else(|_| Span::none(), L::span);
        let done = async move {
            // A refusal drops the transaction, which rolls it back.
            let Self { mut layer, inner } = self;
            let call = call?;
            let done = work(inner).await;
            layer.after(call, done.as_ref().map(Answer::outcomes));
            done
        };
        Box::pin(done.instrument(span))
    }
}

impl<L: TxLayer + 'static> StoreTx for LayeredTx<L> {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        let call = self.layer.before(TxRequest::Execute(&verb));
        self.around(call, move |inner| inner.execute(verb))
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<()>> {
        let call = self.layer.before(TxRequest::Sql(&sql));
        self.around(call, move |inner| inner.sql(sql))
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        let call = self.layer.before(TxRequest::Query(&sql));
        self.around(call, move |inner| inner.query(sql))
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        let call = self.layer.before(TxRequest::Claim);
        self.around(call, move |inner| inner.claim(unit_id))
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        let call = self.layer.before(TxRequest::Savepoint(name));
        self.around(call, move |inner| inner.savepoint(name))
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        let call = self.layer.before(TxRequest::RollbackTo(name));
        self.around(call, move |inner| inner.rollback_to(name))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.end(TxRequest::Commit, |inner| inner.commit())
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.end(TxRequest::Rollback, |inner| inner.rollback())
    }
}
