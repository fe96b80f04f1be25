//! One trait for all statements: at once on a [`Broker`](crate::Broker), or in a [`Tx`](crate::Tx).

pub use crate::message::{DeclaresType, SendsAs};
pub use crate::store::BoxFuture;
pub use crate::trace::{current_trace, within_trace};
pub use crate::tx::Sql;

use crate::define::Level;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, DeadLetterId, GroupId, JobId};
use crate::message::bytes_body;
use crate::protocol::work::{AfterFailure, JobState, TakenJob, WorkVerb};
use crate::protocol::{self, Addressee, ConversationState, EndForm, Outcome, OutgoingMessage, Relation, Verb};
use crate::receive::wait::{GetConversationGroup, Receive};
use crate::time::whole_ms;
use crate::work::{NamesQueue, PushJob, PushesTo, TakeJobs};
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The target of a verb: a broker commits each at once, a transaction keeps them for its commit.
///
/// [`Broker`](crate::Broker), [`Tx`](crate::Tx), the `Enlisted` of a server and the contexts of handlers implement it. It cannot
/// be implemented outside this crate.
pub trait Perform: InStore {
    /// Executes one verb; a RECEIVE through it never waits.
    ///
    /// Dropping the future does not undo the verb.
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>>;
}

pub(crate) use in_store::InStore;

/// Its trait cannot be named outside this crate, so [`Perform`] cannot be implemented there.
mod in_store {
    use crate::store::Store;

    /// How the waits above it, and handlers, deal with the target of a verb.
    pub trait InStore: Send + Sync {
        /// Where it is done.
        fn store(&self) -> &dyn Store;

        /// Whether it may hold conversation groups. Only their holder receives the messages that arrive in them, so a
        /// signal for one of several receivers may go to a receiver that finds nothing.
        fn may_hold_groups(&self) -> bool;

        /// Whether its verbs take effect with a commit that comes later.
        fn is_transaction(&self) -> bool;
    }
}

/// The statements of a broker. [`Broker`](crate::Broker) commits each at once; [`Tx`](crate::Tx) commits them together.
///
/// Nothing happens before the returned value is awaited.
pub trait Act: Perform {
    /// `BEGIN DIALOG FROM SERVICE from TO SERVICE to ...`; awaiting it returns the initiator's handle.
    ///
    /// # Errors
    /// 8423 no such local service, 8425 no such contract, 8412 or 8413 a TO SERVICE or broker instance that is not usable, 8411 the
    /// lifetime is out of range, 8414 a group id of zeros, 9601 or 9610 the conversations cannot be related, 8426 the related one does not
    /// exist.
    fn begin_dialog(&self, from_service: impl Into<Arc<str>>, to_service: impl Into<Arc<str>>) -> BeginDialog<'_>
    where
        Self: Sized,
    {
        BeginDialog {
            act: self,
            dialog: protocol::BeginDialog {
                from_service: from_service.into(),
                to_service: to_service.into(),
                addressee: Addressee::Anywhere,
                contract: None,
                related: Relation::None,
                lifetime_seconds: None,
                encryption: false,
            },
        }
    }

    /// `SEND ON CONVERSATION handle MESSAGE TYPE t (body)`. The type is a [`MessageType`](crate::MessageType) with a
    /// value of its Rust type, or a plain name with any bytes. An empty body is no body.
    ///
    /// # Errors
    /// 8426 no such conversation, 8429 its state forbids SEND, 8428 no such message type, 8431 the type is not in the
    /// contract, 8432 or 8434 the other side sends it, 8459 too large, 60027 the value cannot be written.
    fn send<V: ?Sized>(&self, handle: ConversationHandle, message_type: impl SendsAs<V>, body: &V) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        self.send_many(&[handle], message_type, body)
    }

    /// `SEND ON CONVERSATION (h1, h2, ...)`: one body on many conversations, on all of them or on none.
    ///
    /// # Errors
    /// Those of [`Act::send`], with 8435 for a handle not found and 8451 for one given twice.
    fn send_many<V: ?Sized>(
        &self,
        handles: &[ConversationHandle],
        message_type: impl SendsAs<V>,
        body: &V,
    ) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        let verb = message_type.body(body).map(|body| Verb::Send {
            handles: handles.to_vec(),
            message_type: Some(message_type.type_name().into()),
            body,
            trace: current_trace(),
        });
        Answer::to_result(self, verb, done)
    }

    /// Many messages in one call, each with a conversation, type and body of its own: all of them are sent, or none. The
    /// messages of one conversation keep their order. An empty list sends nothing. Not in Service Broker.
    ///
    /// On a server it is one call instead of one for each message, so it is the fast way to send many.
    ///
    /// ```
    /// # async fn example(broker: dialoq::Broker, orders: Vec<(dialoq::ConversationHandle, String)>) -> dialoq::Result<()> {
    /// use dialoq::Act;
    /// use dialoq::act::Outgoing;
    ///
    /// broker.send_each(orders.iter().map(|(handle, sku)| Outgoing::new(*handle, "//shop/Order", sku.as_str()))).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Act::send`]; the error begins with the place of the refused message, which [`Error::statement`] gives
    /// from 0. 60005 for more than 10,000 messages, or more than 256 MiB of bodies.
    fn send_each(&self, messages: impl IntoIterator<Item = Outgoing>) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        let messages: Vec<Outgoing> = messages.into_iter().collect();
        let (count, trace) = (messages.len(), current_trace());
        let messages = messages.into_iter().enumerate().map(|(index, Outgoing { handle, message_type, body })| {
            let body = body.map_err(|error| error.of_message(index, count))?;
            Ok(OutgoingMessage { handle, message_type: Some(message_type), body, trace: trace.clone() })
        });
        Answer::to_result(self, messages.collect::<Result<_>>().map(Verb::SendEach), done)
    }

    /// `END CONVERSATION handle`: the peer gets EndDialog after all earlier messages. Returns the state it was in.
    ///
    /// # Errors
    /// 8426 no such conversation, 8427 this side has ended it already.
    fn end(&self, handle: ConversationHandle) -> Answer<'_, ConversationState>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::EndConversation { handle, form: EndForm::Plain }, ended)
    }

    /// `END CONVERSATION handle WITH ERROR = code DESCRIPTION = '...'`: the peer gets Error before all other messages.
    ///
    /// # Errors
    /// 8426 no such conversation, 8427 this side has ended it already, 8424 the code is not above zero, 60005 the description is over 3000
    /// characters.
    fn end_with_error(
        &self,
        handle: ConversationHandle,
        code: i32,
        description: impl Into<String>,
    ) -> Answer<'_, ConversationState>
    where
        Self: Sized,
    {
        let form = EndForm::WithError { code, description: description.into() };
        Answer::to(self, Verb::EndConversation { handle, form }, ended)
    }

    /// `END CONVERSATION handle WITH CLEANUP`: this side is erased and the peer gets no message.
    ///
    /// # Errors
    /// 8426 no such conversation.
    fn end_with_cleanup(&self, handle: ConversationHandle) -> Answer<'_, ConversationState>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::EndConversation { handle, form: EndForm::Cleanup }, ended)
    }

    /// `BEGIN CONVERSATION TIMER (handle) TIMEOUT = seconds`: a DialogTimer message arrives on this side then. Parts of
    /// a second count as a whole one; setting it again replaces it.
    ///
    /// # Errors
    /// 8426 no such conversation, 8411 out of range, 8410 beyond the conversation's lifetime, 8458 its state forbids
    /// it.
    fn timer(&self, handle: ConversationHandle, due_in: Duration) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::BeginConversationTimer { handle, timeout_seconds: whole_seconds(due_in) }, done)
    }

    /// `MOVE CONVERSATION handle TO group`
    ///
    /// # Errors
    /// 8426 no such conversation, 8436 no such group, 8438 its state forbids it, 8439 the group is of another service.
    fn move_conversation(&self, handle: ConversationHandle, group: GroupId) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::MoveConversation { handle, group }, done)
    }

    /// `GET CONVERSATION GROUP FROM queue`: locks the best ready group and names it. See [`GetConversationGroup`].
    ///
    /// # Errors
    /// 9617 the queue is disabled, 60002 no such queue.
    fn get_conversation_group(&self, queue: impl Into<Arc<str>>) -> GetConversationGroup<'_>
    where
        Self: Sized,
    {
        GetConversationGroup::new(self, queue.into())
    }

    /// `RECEIVE ... FROM queue`: takes ready messages of one group. See [`Receive`].
    ///
    /// # Errors
    /// 9617 the queue is disabled, 60002 no such queue, 8426 or 8436 for a conversation or group that is not of it.
    fn receive(&self, queue: impl Into<Arc<str>>) -> Receive<'_>
    where
        Self: Sized,
    {
        Receive::new(self, queue.into())
    }

    /// Takes back the timer of [`Act::timer`]; a DialogTimer message that has arrived already stays. Nothing happens if
    /// there is no timer. Not in Service Broker, which can only set another one.
    ///
    /// # Errors
    /// 8426 no such conversation, 8458 its state forbids timers.
    fn cancel_timer(&self, handle: ConversationHandle) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::CancelConversationTimer { handle }, done)
    }

    /// `GET_TRANSMISSION_STATUS (handle)`: why the conversation's first waiting message was not delivered at the latest
    /// try, or empty.
    ///
    /// # Errors
    /// Those of the store only.
    fn transmission_status(&self, handle: ConversationHandle) -> Answer<'_, String>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::GetTransmissionStatus { handle }, |outcome| match outcome {
            Outcome::Text(text) => Ok(text),
            other => Err(unexpected(&other)),
        })
    }

    /// Changes the level of one endpoint. Not in Service Broker, which freezes it when the conversation begins.
    ///
    /// # Errors
    /// 8426 no such conversation, 8438 its state forbids it.
    fn reprioritise(&self, handle: ConversationHandle, level: Level) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::Reprioritise { handle, level: level.get() }, done)
    }

    /// Puts a job into a work queue. The queue is a [`WorkQueue`](crate::work::WorkQueue) with a value of its Rust type,
    /// or a plain name with any bytes. See [`PushJob`].
    ///
    /// # Errors
    /// 60002 no such work queue, 60005 an option is out of its range, 60027 the value cannot be written, 8459 too large,
    /// 60043 another transaction is pushing a job of this unique key.
    fn push_job<V: ?Sized>(&self, queue: impl PushesTo<V>, job: &V) -> PushJob<'_>
    where
        Self: Sized,
    {
        PushJob::new(self, queue.queue_name(), queue.job_body(job))
    }

    /// Takes jobs of a work queue that are ready. See [`TakeJobs`].
    ///
    /// # Errors
    /// 60002 no such work queue, 60005 an option is out of its range, 60043 on a server: an open transaction of plain SQL
    /// has taken from the queue, which has limits or `ORDER = FIFO_STRICT`.
    fn take_jobs(&self, queue: impl NamesQueue) -> TakeJobs<'_>
    where
        Self: Sized,
    {
        TakeJobs::new(self, queue.queue_name())
    }

    /// Reports a taken job as done.
    ///
    /// # Errors
    /// 60040 no such job, 60041 it is not taken or was reported already, 60042 the lease was over, 60043 an open
    /// transaction holds it.
    fn complete_job(&self, job: impl Into<TakenJob>) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::Work(WorkVerb::Complete { taken: job.into(), result: None }), done)
    }

    /// Reports a taken job as done, and keeps a result with its history.
    ///
    /// # Errors
    /// Those of [`Act::complete_job`], and 8459 for a result that is too large.
    fn complete_job_with(&self, job: impl Into<TakenJob>, result: impl AsRef<[u8]>) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        let result = bytes_body(result.as_ref());
        Answer::to(self, Verb::Work(WorkVerb::Complete { taken: job.into(), result }), done)
    }

    /// Reports that an attempt failed; the queue's settings decide what happens next. Returns the job's state then.
    ///
    /// # Errors
    /// Those of [`Act::complete_job`], and 60005 for a reason over 3000 characters.
    fn fail_job(&self, job: impl Into<TakenJob>, reason: impl Into<Arc<str>>) -> Answer<'_, JobState>
    where
        Self: Sized,
    {
        self.fail_job_then(job, reason, AfterFailure::Policy)
    }

    /// The same, with what happens next.
    ///
    /// # Errors
    /// Those of [`Act::fail_job`], and 60005 for a delay below zero or above ten years.
    fn fail_job_then(
        &self,
        job: impl Into<TakenJob>,
        reason: impl Into<Arc<str>>,
        then: AfterFailure,
    ) -> Answer<'_, JobState>
    where
        Self: Sized,
    {
        let verb = WorkVerb::Fail { taken: job.into(), reason: reason.into(), then };
        Answer::to(self, Verb::Work(verb), |outcome| match outcome {
            Outcome::Failed(state) => Ok(state),
            other => Err(unexpected(&other)),
        })
    }

    /// Prolongs the lease of a taken job, counted from now: a heartbeat. `None` is the queue's LEASE_MS.
    ///
    /// # Errors
    /// Those of [`Act::complete_job`], and 60005 for a lease below a millisecond or above ten years.
    fn extend_job(&self, job: impl Into<TakenJob>, lease: Option<Duration>) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        let lease_ms = lease.map(whole_ms);
        Answer::to(self, Verb::Work(WorkVerb::Extend { taken: job.into(), lease_ms }), done)
    }

    /// Notes how far a taken job is, for those who look at it.
    ///
    /// # Errors
    /// Those of [`Act::complete_job`], and 60005 for a note over 3000 characters.
    fn report_job(&self, job: impl Into<TakenJob>, progress: impl Into<Arc<str>>) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        let verb = WorkVerb::Report { taken: job.into(), progress: progress.into() };
        Answer::to(self, Verb::Work(verb), done)
    }

    /// Takes a job out of its queue, whatever its state; its reader finds no job at its next report.
    ///
    /// # Errors
    /// 60040 no such job, 60043 an open transaction holds it.
    fn cancel_job(&self, job: JobId) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::Work(WorkVerb::Cancel { job, seen: None }), done)
    }

    /// Gives a dead job all its attempts again.
    ///
    /// # Errors
    /// 60040 no such job, 60043 an open transaction holds it, 60044 it is not dead.
    fn redrive_job(&self, job: JobId) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::Work(WorkVerb::Redrive { job, seen: None }), done)
    }

    /// Puts a dead letter back into its queue, at its old place in its conversation: it is received before the messages that
    /// came after it and still wait. Not in Service Broker.
    ///
    /// # Errors
    /// 60048 no such dead letter, 60049 another transaction redrives or purges it, 60050 its conversation has ended.
    fn redrive_dead_letter(&self, letter: DeadLetterId) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::RedriveDeadLetter { letter }, done)
    }

    /// Removes a dead letter for good. Not in Service Broker.
    ///
    /// # Errors
    /// 60048 no such dead letter, 60049 another transaction redrives or purges it.
    fn purge_dead_letter(&self, letter: DeadLetterId) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::PurgeDeadLetter { letter }, done)
    }

    /// Puts a group that poison handling quarantined back into its queue. Not in Service Broker.
    ///
    /// # Errors
    /// 8436 no such group.
    fn release_quarantine(&self, group: GroupId) -> Answer<'_, ()>
    where
        Self: Sized,
    {
        Answer::to(self, Verb::ReleaseQuarantine { group }, done)
    }
}

impl<P: Perform> Act for P {}

/// One message of [`Act::send_each`].
#[derive(Debug)]
pub struct Outgoing {
    handle: ConversationHandle,
    message_type: Arc<str>,
    body: Result<protocol::Body>,
}

impl Outgoing {
    /// A message on a conversation; type and body as in [`Act::send`].
    pub fn new<V: ?Sized>(handle: ConversationHandle, message_type: impl SendsAs<V>, body: &V) -> Self {
        Self { handle, message_type: message_type.type_name().into(), body: message_type.body(body) }
    }
}

/// The answer to one verb, to be awaited.
#[must_use = "nothing happens before it is awaited"]
pub struct Answer<'a, T> {
    asked: Result<Asked<'a>, Option<Error>>,
    read: fn(Outcome) -> Result<T>,
}

enum Asked<'a> {
    NotYet(&'a dyn Perform, Option<Verb>),
    Running(BoxFuture<'a, Result<Outcome>>),
}

impl<T> fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("is_running", &matches!(self.asked, Ok(Asked::Running(_))))
            .finish_non_exhaustive()
    }
}

impl<'a, T> Answer<'a, T> {
    fn to(act: &'a dyn Perform, verb: Verb, read: fn(Outcome) -> Result<T>) -> Self {
        Self::to_result(act, Ok(verb), read)
    }

    pub(crate) fn to_result(act: &'a dyn Perform, verb: Result<Verb>, read: fn(Outcome) -> Result<T>) -> Self {
        Self { asked: verb.map(|verb| Asked::NotYet(act, Some(verb))).map_err(Some), read }
    }
}

impl<T> Future for Answer<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = &mut *self;
        loop {
            match &mut answer.asked {
                Err(error) => return Poll::Ready(Err(error.take().expect("polled after it was ready"))),
                Ok(Asked::NotYet(act, verb)) => {
                    let verb = verb.take().expect("a verb is asked once");
                    answer.asked = Ok(Asked::Running(act.perform(verb)));
                }
                Ok(Asked::Running(running)) => {
                    return running.as_mut().poll(context).map(|outcome| outcome.and_then(answer.read));
                }
            }
        }
    }
}

fn done(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn ended(outcome: Outcome) -> Result<ConversationState> {
    match outcome {
        Outcome::Ended(state) => Ok(state),
        other => Err(unexpected(&other)),
    }
}

/// 60012: the store answered one verb with the outcome of another.
pub(crate) fn unexpected(outcome: &Outcome) -> Error {
    Error::new(Code::STORE_DAMAGED, format!("the store gave an answer of the wrong kind: {outcome:?}"))
}

/// Whole seconds, rounded up, for statements that count in seconds.
fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// The two sides' names for a conversation just begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialog {
    /// The initiator's endpoint.
    pub handle: ConversationHandle,
    /// The group it belongs to on this side.
    pub group: GroupId,
    /// The id both sides share.
    pub conversation_id: ConversationId,
}

/// `BEGIN DIALOG`; set its options, then await it.
#[must_use = "nothing happens before it is awaited"]
pub struct BeginDialog<'a> {
    act: &'a dyn Perform,
    dialog: protocol::BeginDialog,
}

impl fmt::Debug for BeginDialog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeginDialog").field("dialog", &self.dialog).finish_non_exhaustive()
    }
}

impl<'a> BeginDialog<'a> {
    /// `ON CONTRACT`; without it, the contract `DEFAULT`.
    pub fn contract(mut self, contract: impl Into<Arc<str>>) -> Self {
        self.dialog.contract = Some(contract.into());
        self
    }

    /// `LIFETIME`, in whole seconds rounded up; without it, the longest.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.dialog.lifetime_seconds = Some(whole_seconds(lifetime));
        self
    }

    /// `RELATED_CONVERSATION`: joins the group of that conversation, which must exist.
    pub fn related_to(mut self, handle: ConversationHandle) -> Self {
        self.dialog.related = Relation::Conversation(handle);
        self
    }

    /// `RELATED_CONVERSATION_GROUP`: joins that group; made if it does not exist.
    pub fn in_group(mut self, group: GroupId) -> Self {
        self.dialog.related = Relation::Group(group);
        self
    }

    /// `ENCRYPTION = ON | OFF`: accepted and kept; delivery inside one store is never encrypted.
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.dialog.encryption = encryption;
        self
    }

    /// Addresses the copy of the service in the database of that `service_broker_guid`.
    pub fn broker_instance(mut self, instance: impl Into<Arc<str>>) -> Self {
        self.dialog.addressee = Addressee::Instance(instance.into());
        self
    }

    /// Addresses the copy of the service in this database.
    pub fn current_database(mut self) -> Self {
        self.dialog.addressee = Addressee::CurrentDatabase;
        self
    }

    /// Begins it and returns all its ids.
    pub fn with_ids(self) -> Answer<'a, Dialog> {
        Answer::to(self.act, Verb::BeginDialog(self.dialog), began)
    }
}

fn began(outcome: Outcome) -> Result<Dialog> {
    match outcome {
        Outcome::Began { handle, group, conversation_id } => Ok(Dialog { handle, group, conversation_id }),
        other => Err(unexpected(&other)),
    }
}

impl<'a> IntoFuture for BeginDialog<'a> {
    type Output = Result<ConversationHandle>;
    type IntoFuture = Answer<'a, ConversationHandle>;

    fn into_future(self) -> Self::IntoFuture {
        Answer::to(self.act, Verb::BeginDialog(self.dialog), |outcome| began(outcome).map(|dialog| dialog.handle))
    }
}
