//! The loop of a reader with handlers: receive a batch of one group, handle it, commit.

use super::handlers::{Context, HandlerError, HandlerResult};
use super::session::Session;
use crate::act::within_trace;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::message::Batch;
use crate::protocol::definition::AfterRetries;
use crate::protocol::{Message, ReceiveFrom};
use crate::receive::{Deadline, ReceiveAttempt, receive_first};
use crate::store::BoxFuture;
use crate::tx::Tx;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How a reader receives.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// At most so many messages at a time; `None` as many as the policy of the queue lets one rollback accuse.
    pub(super) top: Option<u64>,
    pub(super) from: ReceiveFrom,
    pub(super) idle_wait: Duration,
    pub(super) timeout: Option<Duration>,
    /// A SEND to a side that has ended fails, rather than being dropped with a warning.
    pub(super) fails_on_ended_peer: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            top: None,
            from: ReceiveFrom::Any,
            idle_wait: Duration::from_millis(500),
            timeout: None,
            fails_on_ended_peer: false,
        }
    }
}

/// Serves one message; one value lives as long as its reader.
pub(super) trait Serve: Send + 'static {
    fn serve<'a>(&'a mut self, context: &'a Context) -> BoxFuture<'a, HandlerResult>;

    /// Whether what serves the messages is there; asked after each transaction, so that a reader without it leaves.
    fn is_able(&self) -> bool {
        true
    }

    /// Starts what serves the next message; the time limit of a handler does not run yet.
    fn prepare<'a>(&'a mut self, _: &'a Session, _: &'a Message) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the message that was just refused is served again, from [`Serve::prepare`] on: what should have served it was gone.
    fn takes_again(&mut self) -> bool {
        false
    }

    /// The reader leaves.
    fn finish(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// After more failures in a row than this a reader pauses between them, unless the queue lets the groups that failed pause: poison
/// handling would have disabled it, so it is off, and trying again at once only burns time. A queue with quarantine gives a partner
/// that is down the same time: without it every group that is served meanwhile would be set aside at once.
const FAILURES_BEFORE_PAUSE: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Why a batch was rolled back.
enum Unserved {
    /// The store of the queue refused a call of the reader's own.
    ByStore(Error),
    /// An error of the handler, which may be that of another store. If such a one ended the reader, the groups behind the one that failed
    /// were not served at all: the next reader received the same group first.
    ByHandler(Error),
}

impl Unserved {
    /// Whether the group pauses by the policy of its queue, and others may do better. No attempt is counted if the transaction gave way. If the
    /// handler has met a store that is unwell, maybe its own, all groups may use their attempts up.
    fn counts_for_its_group(&self) -> bool {
        match self {
            Self::ByStore(error) => error.kind() != ErrorKind::Conflict,
            Self::ByHandler(error) => error.kind() != ErrorKind::Store,
        }
    }
}

impl From<Error> for Unserved {
    fn from(error: Error) -> Self {
        Self::ByStore(error)
    }
}

/// Receives and serves until nothing comes for the idle wait, or the reader is stopped.
pub(super) async fn run(session: Session, options: Options, mut server: impl Serve) -> HandlerResult {
    let done = receive_and_serve(&session, &options, &mut server).await;
    server.finish().await;
    done
}

async fn receive_and_serve(session: &Session, options: &Options, server: &mut impl Serve) -> HandlerResult {
    let mut failures = 0;
    let mut has_found = false;
    while !session.is_stopping() {
        let tx = session.begin().await?;
        let served = match next_batch(session, &tx, options).await {
            Ok(None) => {
                tx.rollback().await?;
                if !has_found && options.from != ReceiveFrom::Any {
                    session.note_found_nothing();
                }
                return Ok(());
            }
            Ok(Some(batch)) => {
                has_found = true;
                let messages = batch.messages().len();
                serve_batch(session, server, tx, batch, options).await.map(|()| session.note_served(messages))
            }
            // Another transaction won; this one is rolled back, and the same RECEIVE may succeed.
            Err(error) if error.kind() == ErrorKind::Conflict => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        match served {
            Ok(()) => failures = 0,
            // The connection, or the process that owned the file, has gone; the next transaction gets another.
            Err(Unserved::ByStore(error)) if error.code() == Code::COMMIT_UNKNOWN => {
                tracing::warn!(queue = %session.queue(), %error, "it is unknown whether a transaction was committed");
            }
            // The store itself is unusable, so the reader ends.
            Err(Unserved::ByStore(error)) if error.kind() == ErrorKind::Store => return Err(error.into()),
            Err(unserved) => {
                let pauses_by_itself = unserved.counts_for_its_group() && lets_groups_pause(session);
                let (Unserved::ByStore(error) | Unserved::ByHandler(error)) = unserved;
                tracing::warn!(queue = %session.queue(), %error, "the transaction was rolled back");
                session.note_failure(error);
                failures += 1;
                if failures > FAILURES_BEFORE_PAUSE && !pauses_by_itself {
                    let due = session.clock().now().after(PAUSE);
                    tokio::select! {
                        () = session.clock().sleep_until(due) => {}
                        () = session.stopping() => {}
                    }
                }
            }
        }
        if !server.is_able() {
            break;
        }
    }
    Ok(())
}

/// Whether a group whose messages failed pauses by the retry policy of the queue. If the reader paused too, it would hold up all other
/// groups: one that met a failing group after the other served one a second.
fn lets_groups_pause(session: &Session) -> bool {
    let catalog = session.catalog();
    let queue = catalog.queue(session.queue());
    queue.is_some_and(|queue| queue.is_poison_message_handling_enabled && queue.retry.is_some())
}

/// One, if the retry policy of the queue picks out the first message of what was rolled back: of a batch that would be a message that
/// was handled well. Two good ones became dead letters before the bad one behind them.
fn default_top(session: &Session) -> u64 {
    let catalog = session.catalog();
    let queue = catalog.queue(session.queue()).filter(|queue| queue.is_poison_message_handling_enabled);
    match queue.and_then(|queue| queue.retry).map(|policy| policy.then) {
        Some(AfterRetries::DeadLetter | AfterRetries::EndWithError) => 1,
        Some(AfterRetries::Quarantine | AfterRetries::QueueOff) | None => 100,
    }
}

async fn next_batch(session: &Session, tx: &Tx, options: &Options) -> Result<Option<Batch>> {
    let top = options.top.unwrap_or_else(|| default_top(session));
    let attempts = [ReceiveAttempt::new(session.queue().clone()).only(options.from).top(top)];
    let deadline = Deadline::after(session.clock(), options.idle_wait);
    tokio::select! {
        biased;
        batch = receive_first(tx, &attempts, deadline) => Ok(batch?.map(|(_, batch)| batch)),
        () = session.stopping() => {
            // The cancelled wait may just have taken a batch: that batch is still handled.
            Ok(receive_first(tx, &attempts, Deadline::Now).await?.map(|(_, batch)| batch))
        }
    }
}

async fn serve_batch(
    session: &Session,
    server: &mut impl Serve,
    tx: Tx,
    batch: Batch,
    options: &Options,
) -> std::result::Result<(), Unserved> {
    let mut messages = batch.into_messages().into_iter();
    let Some(first) = messages.next() else { return Ok(tx.rollback().await?) };
    let mut context = Context::new(tx, first, options.fails_on_ended_peer);
    loop {
        if !context.has_ended().await
            && let Err(unserved) = serve_message(session, server, &context, options).await
        {
            let has_given_way = context.has_given_way();
            let (Unserved::ByStore(error) | Unserved::ByHandler(error)) = &unserved;
            context.into_tx().rollback_because(error.message()).await?;
            return Err(match unserved {
                Unserved::ByHandler(error) if has_given_way && error.kind() == ErrorKind::Conflict => error.into(),
                unserved => unserved,
            });
        }
        // A handler may have ignored the error, but the transaction cannot commit.
        if let Some(deadlock) = context.deadlock().await {
            return Err(deadlock.into());
        }
        let Some(next) = messages.next() else { break };
        context.turn_to(next);
    }
    Ok(context.into_tx().commit().await?)
}

async fn serve_message(
    session: &Session,
    server: &mut impl Serve,
    context: &Context,
    options: &Options,
) -> std::result::Result<(), Unserved> {
    loop {
        let done = try_message(session, server, context, options).await;
        if done.is_ok() || !server.takes_again() {
            return done;
        }
    }
}

async fn try_message(
    session: &Session,
    server: &mut impl Serve,
    context: &Context,
    options: &Options,
) -> std::result::Result<(), Unserved> {
    let clock = session.clock();
    server.prepare(session, context.message()).await.map_err(|error| named(error, context.message()))?;
    let trace: Option<Arc<str>> = context.message().trace.clone();
    let serving = server.serve(context);
    let serving = async move {
        match trace {
            Some(trace) => within_trace(trace, catch_panic(serving)).await,
            None => catch_panic(serving).await,
        }
    };
    let done = match options.timeout {
        None => serving.await,
        Some(timeout) => {
            let due = clock.now().after(timeout);
            tokio::select! {
                biased;
                done = serving => done,
                () = clock.sleep_until(due) => {
                    Err(HandlerError::from(failed(format!("the handler did not finish within {timeout:?}"))))
                }
            }
        }
    };
    done.map_err(|error| Unserved::ByHandler(named(error.into_error(), context.message())))
}

/// A panic becomes an error, so that the batch is rolled back and the reader continues.
async fn catch_panic(mut serving: BoxFuture<'_, HandlerResult>) -> HandlerResult {
    std::future::poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(task))) {
        Ok(poll) => poll,
        Err(panic) => Poll::Ready(Err(failed(format!("the handler panicked: {}", panic_text(&*panic))).into())),
    })
    .await
}

/// The text of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "the panic has no text",
    }
}

fn failed(what: String) -> Error {
    Error::new(Code::HANDLER_FAILED, what)
}

/// The error of a handler with the message that it failed for: an error of the broker's own, as of a reply, names its object only.
fn named(error: Error, message: &Message) -> Error {
    let what = format!(
        "message {} of type '{}' on conversation {}: {}",
        message.message_id,
        message.message_type_name,
        message.conversation_handle,
        error.message()
    );
    Error::new(error.code(), what).caused_by(error)
}
