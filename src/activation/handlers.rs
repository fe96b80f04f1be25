//! Handlers by message type, and the context passed to a handler.

use super::reader::{self, Options, Serve};
use super::{IntoProcedure, Procedure};
use crate::act::{Act, Answer, InStore, Perform};
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId};
use crate::message::{BrokerError, MessageType, SendsAs};
use crate::protocol::{ConversationState, Message, Outcome, OutgoingMessage, ReceiveFrom, Verb};
use crate::store::{BoxFuture, Store};
use crate::tx::Tx;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Why a handler failed: any error, converted by `?`, or a text.
///
/// It is no [`std::error::Error`] itself, so that every error type converts to it.
pub struct HandlerError(Box<dyn std::error::Error + Send + Sync>);

impl HandlerError {
    /// A failure described by a text.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into().into())
    }

    /// An error of Dialoq's own is kept; any other becomes 60024.
    pub(super) fn into_error(self) -> Error {
        match self.0.downcast::<Error>() {
            Ok(error) => *error,
            Err(cause) => {
                let what = format!("the handler failed: {cause}");
                Error::new(Code::HANDLER_FAILED, what).caused_by(cause)
            }
        }
    }
}

/// Any error, also a boxed one, and a text: `?` on all of them, and `Err("no stock".into())`.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for HandlerError {
    fn from(cause: E) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The result of handlers and procedures: `Ok` commits, an error rolls back.
pub type HandlerResult = std::result::Result<(), HandlerError>;

/// One message, and the transaction that received it.
///
/// Every statement of [`Act`] on it, and every method of [`Tx`] except its end, runs in that transaction, which commits
/// when all messages of the batch are handled.
///
/// A SEND to a side that has ended does nothing here and logs a warning: its sender wants no answer, and a rollback would
/// bring the same message again. [`Handlers::fail_on_ended_peer`] makes it an error; on [`Context::tx`] it always is one.
pub struct Context {
    tx: Tx,
    message: Message,
    fails_on_ended_peer: bool,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("message_id", &self.message.message_id).finish_non_exhaustive()
    }
}

impl Context {
    pub(super) fn new(tx: Tx, first: Message, fails_on_ended_peer: bool) -> Self {
        Self { tx, message: first, fails_on_ended_peer }
    }

    /// Sends the messages whose other side has not ended.
    async fn send_each_unless_ended(&self, mut messages: Vec<OutgoingMessage>) -> Result<Outcome> {
        loop {
            let error = match self.tx.perform(Verb::SendEach(messages.clone())).await {
                Err(error) if error.is_send_to_ended_peer() => error,
                done => return done,
            };
            match error.statement() {
                Some(index) if index < messages.len() => {
                    let OutgoingMessage { handle, .. } = messages.remove(index);
                    tracing::warn!(conversation_handle = %handle, %error, "a SEND is dropped: the other side has ended");
                }
                _ => return Err(error),
            }
        }
    }

    /// SEND on each of these conversations whose other side has not ended. One SEND of all of them would be refused for all.
    async fn send_unless_ended(&self, verb: Verb) -> Result<Outcome> {
        if let Verb::SendEach(messages) = verb {
            return self.send_each_unless_ended(messages).await;
        }
        let Verb::Send { handles, message_type, body, trace } = &verb else { return self.tx.perform(verb).await };
        let to = |handles| Verb::Send {
            handles,
            message_type: message_type.clone(),
            body: body.clone(),
            trace: trace.clone(),
        };
        let error = match self.tx.perform(to(handles.clone())).await {
            Err(error) if error.is_send_to_ended_peer() => error,
            done => return done,
        };
        if let [handle] = handles[..] {
            tracing::warn!(conversation_handle = %handle, %error, "a SEND is dropped: the other side has ended");
            return Ok(Outcome::Done);
        }
        for handle in handles {
            Box::pin(self.send_unless_ended(to(vec![*handle]))).await?;
        }
        Ok(Outcome::Done)
    }

    pub(super) fn turn_to(&mut self, message: Message) {
        self.message = message;
    }

    pub(super) fn into_tx(self) -> Tx {
        self.tx
    }

    /// Whether this batch has ended the message's conversation already: its other messages of the conversation are
    /// void, as END deletes unread messages.
    pub(super) async fn has_ended(&self) -> bool {
        self.tx.has_ended(self.handle()).await
    }

    /// The deadlock that has rolled the batch's transaction back.
    pub(super) async fn deadlock(&self) -> Option<Error> {
        self.tx.deadlock().await
    }

    /// Whether a verb of the batch has met such a deadlock. Waits for none that was given up.
    pub(super) fn has_given_way(&self) -> bool {
        self.tx.has_given_way()
    }

    /// The message being handled.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// This side's endpoint of its conversation.
    pub fn handle(&self) -> ConversationHandle {
        self.message.conversation_handle
    }

    /// Its conversation group: the key for the application's own state. The transaction holds it.
    pub fn group(&self) -> GroupId {
        self.message.conversation_group_id
    }

    /// The transaction.
    pub fn tx(&self) -> &Tx {
        &self.tx
    }

    /// SEND on the message's own conversation.
    ///
    /// # Errors
    /// Those of [`Act::send`].
    pub fn reply<V: ?Sized>(&self, message_type: impl SendsAs<V>, body: &V) -> Answer<'_, ()> {
        self.send(self.handle(), message_type, body)
    }

    /// END on the message's own conversation; its remaining messages in the batch are skipped.
    ///
    /// # Errors
    /// Those of [`Act::end`].
    pub fn end_conversation(&self) -> Answer<'_, ConversationState> {
        self.end(self.handle())
    }

    /// END WITH ERROR on the message's own conversation; its remaining messages in the batch are skipped.
    ///
    /// # Errors
    /// Those of [`Act::end_with_error`].
    pub fn fail_conversation(&self, code: i32, description: impl Into<String>) -> Answer<'_, ConversationState> {
        self.end_with_error(self.handle(), code, description)
    }
}

impl Deref for Context {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl Perform for Context {
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        if self.fails_on_ended_peer || !matches!(verb, Verb::Send { .. } | Verb::SendEach(_)) {
            return self.tx.perform(verb);
        }
        Box::pin(self.send_unless_ended(verb))
    }
}

impl InStore for Context {
    fn store(&self) -> &dyn Store {
        self.tx.store()
    }

    fn may_hold_groups(&self) -> bool {
        self.tx.may_hold_groups()
    }

    fn is_transaction(&self) -> bool {
        self.tx.is_transaction()
    }
}

/// A handler of a `T`: an `async` closure `async |context, value| {...}` or a function, cloned for each message.
///
/// It is implemented for all of them; there is nothing to implement by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler",
    label = "a handler is `async |context, value| {{ ...; Ok(()) }}`, or an async function of a `&Context` and the value",
    note = "the value is the body as the message type declares it, or the `Message`; what is awaited must be `Send`"
)]
pub trait Handle<'a, T>: FnOnce(&'a Context, T) -> <Self as Handle<'a, T>>::Handling {
    /// Its future.
    type Handling: Future<Output = HandlerResult> + Send + 'a;
}

impl<'a, T, F, Handling> Handle<'a, T> for F
where
    F: FnOnce(&'a Context, T) -> Handling,
    Handling: Future<Output = HandlerResult> + Send + 'a,
{
    type Handling = Handling;
}

type Handler = Arc<dyn for<'a> Fn(&'a Context) -> Result<BoxFuture<'a, HandlerResult>> + Send + Sync>;

fn handler<T, F>(take: impl Fn(&Message) -> Result<T> + Send + Sync + 'static, handle: F) -> Handler
where
    T: Send + 'static,
    F: AsyncFnOnce(&Context, T) -> HandlerResult + for<'a> Handle<'a, T> + Clone + Send + Sync + 'static,
{
    Arc::new(move |context| {
        let value = take(context.message())?;
        Ok(Box::pin((handle.clone())(context, value)))
    })
}

/// Handlers by message type: an activated reader calls one for each message it receives.
///
/// A reader receives a batch of one conversation group, hands each message to its handler, and commits. A handler that
/// returns an error, panics, or takes longer than [`Handlers::timeout`] rolls the whole batch back; five rollbacks in a
/// row disable the queue, unless its poison handling is off or it has a retry policy.
///
/// Messages without a handler: an EndDialog or Error message ends this side of the conversation; a DialogTimer is
/// dropped; any other type ends the conversation WITH ERROR 60029, so that its sender learns of it and the queue stays
/// on. A body that does not decode ends the conversation with 60021.
///
/// ```no_run
/// # use dialoq::{Act, Broker, MessageType, activation::Handlers};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct PlaceOrder { sku: String }
/// const PLACE_ORDER: MessageType<PlaceOrder> = MessageType::json("//shop/PlaceOrder");
/// const ORDER_PLACED: MessageType<String> = MessageType::text("//shop/OrderPlaced");
///
/// # async fn example(broker: Broker) {
/// let handlers = Handlers::new().on(PLACE_ORDER, async |context, order| {
///     context.reply(ORDER_PLACED, &order.sku).await?;
///     context.end_conversation().await?;
///     Ok(())
/// });
/// let readers = broker.activate("orders", handlers).max_queue_readers(10).start();
/// # readers.stop().await;
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Handlers {
    by_type: HashMap<String, Handler>,
    end_dialog: Option<Handler>,
    error: Option<Handler>,
    dialog_timer: Option<Handler>,
    otherwise: Option<Handler>,
    options: Options,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("types", &self.by_type.keys()).field("options", &self.options).finish()
    }
}

impl Handlers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles messages of that type, decoded, by `async |context, value| { ...; Ok(()) }`.
    ///
    /// The closure itself is `async`: with `|context, value| async move { ... }` the compiler answers "implementation of
    /// `AsyncFnOnce` is not general enough" or "type annotations needed". An async function does as well, and
    /// `async move |context, value|` if it takes values along, which it clones for each message.
    ///
    /// ```
    /// use dialoq::activation::Handlers;
    /// use dialoq::MessageType;
    ///
    /// const PLACE_ORDER: MessageType<String> = MessageType::text("//shop/PlaceOrder");
    ///
    /// let handlers = Handlers::new().on(PLACE_ORDER, async |context, order| {
    ///     let pieces: u32 = order.parse()?;
    ///     if pieces > 100 {
    ///         return Err("the stock has 100 pieces".into());
    ///     }
    ///     context.end_conversation().await?;
    ///     Ok(())
    /// });
    /// # drop(handlers);
    /// ```
    pub fn on<T, F>(mut self, message_type: MessageType<T>, handle: F) -> Self
    where
        T: Send + 'static,
        F: AsyncFnOnce(&Context, T) -> HandlerResult + for<'a> Handle<'a, T> + Clone + Send + Sync + 'static,
    {
        let take = move |message: &Message| message.decode(message_type);
        self.by_type.insert(message_type.name().to_owned(), handler(take, handle));
        self
    }

    /// Handles messages of the type of that name, undecoded.
    pub fn on_message<F>(mut self, message_type: impl Into<String>, handle: F) -> Self
    where
        F: AsyncFnOnce(&Context, Message) -> HandlerResult
            + for<'a> Handle<'a, Message>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.by_type.insert(message_type.into(), whole(handle));
        self
    }

    /// Handles EndDialog messages; the handler must END the conversation itself.
    pub fn on_end_dialog<F>(mut self, handle: F) -> Self
    where
        F: AsyncFnOnce(&Context, Message) -> HandlerResult
            + for<'a> Handle<'a, Message>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.end_dialog = Some(whole(handle));
        self
    }

    /// Handles Error messages; the handler must END the conversation itself.
    pub fn on_error<F>(mut self, handle: F) -> Self
    where
        F: AsyncFnOnce(&Context, BrokerError) -> HandlerResult
            + for<'a> Handle<'a, BrokerError>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let take = |message: &Message| {
            let unread = || BrokerError { code: 0, description: String::new() };
            Ok(message.error().unwrap_or_else(unread))
        };
        self.error = Some(handler(take, handle));
        self
    }

    /// Handles DialogTimer messages.
    pub fn on_dialog_timer<F>(mut self, handle: F) -> Self
    where
        F: AsyncFnOnce(&Context, Message) -> HandlerResult
            + for<'a> Handle<'a, Message>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.dialog_timer = Some(whole(handle));
        self
    }

    /// Handles messages without a handler of their own, except EndDialog and Error.
    pub fn otherwise<F>(mut self, handle: F) -> Self
    where
        F: AsyncFnOnce(&Context, Message) -> HandlerResult
            + for<'a> Handle<'a, Message>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.otherwise = Some(whole(handle));
        self
    }

    /// At most so many messages a transaction; 100 by default, and 1 while the queue has a `RETRY` policy that ends in `DEAD_LETTER` or
    /// `END_WITH_ERROR`. Such a policy picks out the first message of a group whose attempts have failed, which of a batch may be
    /// one that was handled well.
    pub fn top(mut self, top: u64) -> Self {
        self.options.top = Some(top.max(1));
        self
    }

    /// The part of the queue to receive from; by default the best group. All activations of one queue share its places
    /// (MAX_QUEUE_READERS): classes that must not wait for each other need queues of their own.
    pub fn only(mut self, from: ReceiveFrom) -> Self {
        self.options.from = from;
        self
    }

    /// If a reader finds nothing for this long, it leaves; 500 ms by default.
    pub fn idle_wait(mut self, wait: Duration) -> Self {
        self.options.idle_wait = wait;
        self
    }

    /// The longest a handler may take for one message, by the broker's clock; no limit by default. One that takes
    /// longer is dropped at its next await, and its batch is rolled back.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// A SEND to a side that has ended is an error (8429), which rolls back unless the handler takes it. By default it is
    /// dropped with a warning and the rest commits.
    pub fn fail_on_ended_peer(mut self) -> Self {
        self.options.fails_on_ended_peer = true;
        self
    }

    fn of(&self, message: &Message) -> Option<&Handler> {
        match message {
            message if message.is_end_dialog() => self.end_dialog.as_ref(),
            message if message.is_error() => self.error.as_ref(),
            message if message.is_dialog_timer() => self.dialog_timer.as_ref().or(self.otherwise.as_ref()),
            message => self.by_type.get(&*message.message_type_name).or(self.otherwise.as_ref()),
        }
    }
}

fn whole<F>(handle: F) -> Handler
where
    F: AsyncFnOnce(&Context, Message) -> HandlerResult + for<'a> Handle<'a, Message> + Clone + Send + Sync + 'static,
{
    handler(|message: &Message| Ok(message.clone()), handle)
}

impl Serve for Arc<Handlers> {
    fn serve<'a>(&'a mut self, context: &'a Context) -> BoxFuture<'a, HandlerResult> {
        Box::pin(async move {
            let Some(handler) = self.of(context.message()) else { return unhandled(context).await };
            match handler(context) {
                Ok(handling) => handling.await,
                Err(error) => {
                    let code = i32::from(Code::BODY_UNDECODABLE.0);
                    refuse(context, code, error.message().to_owned()).await
                }
            }
        })
    }
}

/// Handles a message without a handler.
pub(super) async fn unhandled(context: &Context) -> HandlerResult {
    let message = context.message();
    if message.is_dialog_timer() {
        tracing::warn!(conversation_handle = %message.conversation_handle, "a DialogTimer has no handler");
        return Ok(());
    }
    if message.is_end_dialog() || message.is_error() {
        if let Some(error) = message.error() {
            tracing::warn!(conversation_handle = %message.conversation_handle, %error, "a conversation ended with an error");
        }
        return match context.end_conversation().await {
            // Ended by a definition or its lifetime since the message arrived: the wanted state.
            Err(error) if error.code() == Code::CONVERSATION_NOT_FOUND => Ok(()),
            other => Ok(other.map(drop)?),
        };
    }
    let what = format!(
        "service '{}' has no handler for messages of type '{}'",
        message.service_name, message.message_type_name
    );
    refuse(context, i32::from(Code::MESSAGE_TYPE_UNHANDLED.0), what).await
}

/// The longest description END WITH ERROR takes, in characters.
const LONGEST_DESCRIPTION: usize = 3000;

async fn refuse(context: &Context, code: i32, what: String) -> HandlerResult {
    tracing::warn!(conversation_handle = %context.handle(), code, what, "a message is refused by END WITH ERROR");
    // The fault may repeat a NUL of the body. END WITH ERROR refuses that, and the message would be received again and
    // again.
    let without_nul = what.chars().map(|character| if character == '\0' { '\u{fffd}' } else { character });
    let description: String = without_nul.take(LONGEST_DESCRIPTION).collect();
    context.fail_conversation(code, description).await?;
    Ok(())
}

impl IntoProcedure for Handlers {
    fn into_procedure(self) -> Procedure {
        let options = self.options.clone();
        let handlers = Arc::new(self);
        Procedure::new("handlers", move |session| reader::run(session, options.clone(), handlers.clone()))
    }
}
