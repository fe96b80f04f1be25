//! Layers over a store: code that runs before and after its calls.
//!
//! All layers share the two implementations here, so a new method of [`Store`] or [`StoreTx`] is forwarded once for all
//! of them, and the compiler requires it.

use super::database::link::EnlistedConnection;
use super::{
    ActivityBoard, BoxFuture, LockHolder, ReaderSlot, Seen, SqlRows, SqlStatement, Store, StoreTexts, StoreTx,
};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::protocol::work::TakenJob;
use crate::protocol::{Outcome, Unit, Verb};
use crate::time::{Clock, Timestamp};
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

/// What a layer keeps during a call.
pub(crate) trait CallState: Send {
    /// The span of the call.
    fn span(&self) -> Span {
        Span::none()
    }

    /// Runs after the call.
    fn end(self, done: Done<'_>);
}

impl CallState for () {
    fn end(self, _: Done<'_>) {}
}

/// A store over another store.
pub(crate) trait Layer: Send + Sync + 'static {
    type Call: CallState;
    type Tx: TxLayer;

    fn inner(&self) -> &dyn Store;

    /// Runs before a call; an error refuses it.
    fn before(&self, request: Request<'_>) -> Result<Self::Call>;

    /// The layer of a new transaction, and the transaction below it.
    fn open(&self, inner: Box<dyn StoreTx>, seen: Seen) -> (Self::Tx, Box<dyn StoreTx>);
}

/// A transaction over another transaction. It is dropped before the other.
pub(crate) trait TxLayer: Send + 'static {
    type Call: CallState;

    /// Runs before a call; an error refuses it.
    fn before(&mut self, request: TxRequest<'_>) -> Result<Self::Call>;

    /// Runs after a call.
    fn after(&mut self, call: Self::Call, done: Done<'_>) {
        call.end(done);
    }
}

fn none<T>(_: &T) -> &[Outcome] {
    &[]
}

/// A call with a layer's code around it; `outcomes` reads those of the verbs.
fn around<'a, C: CallState + 'a, T: Send + 'a>(
    call: Result<C>,
    work: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send + 'a,
    outcomes: fn(&T) -> &[Outcome],
    after: impl FnOnce(C, Done<'_>) + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    let span = call.as_ref().map_or_else(|_| Span::none(), C::span);
    let done = async move {
        let call = call?;
        let done = work().await;
        after(call, done.as_ref().map(outcomes));
        done
    };
    Box::pin(done.instrument(span))
}

impl<L: Layer> Store for L {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        let call = self.before(Request::Submit(&unit));
        around(call, move || self.inner().submit(unit), Vec::as_slice, CallState::end)
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        let call = self.before(Request::SubmitOnce(unit_id, &unit));
        around(
            call,
            move || self.inner().submit_once(unit_id, unit),
            |done| done.as_deref().unwrap_or_default(),
            CallState::end,
        )
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
        around(call, move || self.inner().perform_on(connection, verb), from_ref, CallState::end)
    }

    fn give_back_jobs(&self, jobs: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        self.inner().give_back_jobs(jobs)
    }

    fn begin(&self, seen: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        let shared = seen.clone();
        let opened = around(self.before(Request::Begin), || self.inner().begin(shared), none, CallState::end);
        Box::pin(async move {
            let (layer, inner) = self.open(opened.await?, seen);
            Ok(Box::new(LayeredTx { layer, inner }) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        let call = self.before(Request::Query(&sql));
        around(call, move || self.inner().query(sql), none, CallState::end)
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        let call = self.before(Request::RunSql(&sql));
        around(call, move || self.inner().run_sql(sql), none, CallState::end)
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

    fn lock_holder(&self, group: Uuid) -> BoxFuture<'_, Result<Option<LockHolder>>> {
        self.inner().lock_holder(group)
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, Timestamp)>>> {
        self.inner().receive_holds()
    }

    fn clock(&self) -> &Clock {
        self.inner().clock()
    }

    fn ended(&self) -> Option<Error> {
        self.inner().ended()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        around(self.before(Request::Close), || self.inner().close(), none, CallState::end)
    }
}

struct LayeredTx<L> {
    layer: L,
    inner: Box<dyn StoreTx>,
}

/// The methods of [`StoreTx`] that do not end it; `$forward` is called with the request, the method, and the reader of its
/// outcomes.
macro_rules! tx_methods {
    ($forward:ident) => {
        fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
            $forward!(self, TxRequest::Execute(&verb), execute(verb), from_ref)
        }

        fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
            $forward!(self, TxRequest::Sql(&sql), sql(sql), none)
        }

        fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
            $forward!(self, TxRequest::Query(&sql), query(sql), none)
        }

        fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
            $forward!(self, TxRequest::Claim, claim(unit_id), none)
        }

        fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
            $forward!(self, TxRequest::Savepoint(name), savepoint(name), none)
        }

        fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
            $forward!(self, TxRequest::RollbackTo(name), rollback_to(name), none)
        }
    };
}
pub(crate) use tx_methods;

macro_rules! forward {
    ($self:ident, $request:expr, $method:ident($argument:ident), $outcomes:ident) => {{
        let Self { layer, inner } = $self;
        let call = layer.before($request);
        around(call, move || inner.$method($argument), $outcomes, |call, done| layer.after(call, done))
    }};
}

macro_rules! forward_end {
    ($self:ident, $request:expr, $method:ident($($argument:ident)?)) => {{
        let Self { mut layer, inner } = *$self;
        let call = layer.before($request);
        // A refusal drops the transaction, which rolls it back.
        around(call, move || inner.$method($($argument)?), none, move |call, done| layer.after(call, done))
    }};
}

impl<L: TxLayer> StoreTx for LayeredTx<L> {
    tx_methods!(forward);

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        forward_end!(self, TxRequest::Commit, commit())
    }

    fn rollback(self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        forward_end!(self, TxRequest::Rollback, rollback(reason))
    }
}

/// A layer of tests over a transaction that it changes in nothing.
#[cfg(test)]
pub(crate) struct Unchanged;

#[cfg(test)]
impl TxLayer for Unchanged {
    type Call = ();

    fn before(&mut self, _: TxRequest<'_>) -> Result<()> {
        Ok(())
    }
}
