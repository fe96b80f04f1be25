//! Waiting for messages: register, try a receive, sleep until a signal or the deadline. No polling; no timer when
//! waiting for ever.

use crate::act::{Perform, unexpected};
use crate::catalog::same_name;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId};
use crate::message::Batch;
use crate::protocol::work::{Job, Take, TakeFrom, WorkVerb};
use crate::protocol::{Outcome, ReceiveFrom, Verb};
use crate::store::{BoxFuture, QueueActivity, SleepGuard, Store, WaitGuard, work_queue_on_board};
use crate::time::{Clock, Timestamp};
use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

/// How long a receive attempt waits when it finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deadline {
    /// Not at all.
    #[default]
    Now,
    /// Until the broker's clock shows this.
    At(Timestamp),
    /// For ever.
    Never,
}

impl Deadline {
    /// So long from now by that clock.
    pub fn after(clock: &Clock, wait: Duration) -> Self {
        Self::At(clock.now().after(wait))
    }

    /// The earlier of the two.
    pub(crate) fn or_earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now, _) | (_, Self::Now) => Self::Now,
            (Self::Never, due) | (due, Self::Never) => due,
            (Self::At(one), Self::At(other)) => Self::At(one.min(other)),
        }
    }
}

/// The end of a wait. Judged by the broker's clock once, and by one that is never set from then on: a clock that is put right meanwhile
/// neither ends the wait nor makes it longer.
pub(crate) struct WaitEnd<'a> {
    clock: &'a Clock,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Now,
    At(Instant),
    /// By a clock that only tests move.
    AtManual(Timestamp),
    Never,
}

impl<'a> WaitEnd<'a> {
    pub(crate) fn new(clock: &'a Clock, deadline: Deadline) -> Self {
        let end = match deadline {
            Deadline::Now => End::Now,
            Deadline::At(due) if clock.moves().is_some() => End::AtManual(due),
            Deadline::At(due) => Instant::now().checked_add(due.since(clock.now())).map_or(End::Never, End::At),
            Deadline::Never => End::Never,
        };
        Self { clock, end }
    }

    /// As the clock shows it now.
    pub(crate) fn deadline(&self) -> Deadline {
        match self.end {
            End::Now => Deadline::Now,
            End::At(end) => Deadline::after(self.clock, end.saturating_duration_since(Instant::now())),
            End::AtManual(due) => Deadline::At(due),
            End::Never => Deadline::Never,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        match self.end {
            End::Now => true,
            End::At(end) => Instant::now() >= end,
            End::AtManual(due) => self.clock.now() >= due,
            End::Never => false,
        }
    }

    /// Comes when it is over; `None` if there is nothing to wait for.
    fn alarm(&self) -> Option<BoxFuture<'static, ()>> {
        match self.end {
            End::At(end) => Some(Box::pin(tokio::time::sleep_until(end))),
            End::AtManual(due) => {
                let clock = self.clock.clone();
                Some(Box::pin(async move { clock.sleep_until(due).await }))
            }
            End::Now | End::Never => None,
        }
    }
}

/// One RECEIVE to try: queue, conversations, number of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveAttempt {
    /// The queue, without regard to case.
    pub queue: Arc<str>,
    /// The conversations to receive from.
    pub from: ReceiveFrom,
    /// At most so many messages; `None` is all that are ready in the group.
    pub top: Option<u64>,
}

impl ReceiveAttempt {
    /// A RECEIVE from the best unlocked group of a queue.
    pub fn new(queue: impl Into<Arc<str>>) -> Self {
        Self { queue: queue.into(), from: ReceiveFrom::Any, top: None }
    }

    /// From part of the queue only.
    pub fn only(mut self, from: ReceiveFrom) -> Self {
        self.from = from;
        self
    }

    /// From the best unlocked group whose level is within these bounds.
    pub fn levels(self, levels: RangeInclusive<u8>) -> Self {
        self.only(ReceiveFrom::Levels { lowest: *levels.start(), highest: *levels.end() })
    }

    /// At most so many messages.
    pub fn top(mut self, top: u64) -> Self {
        self.top = Some(top);
        self
    }

    fn question(&self) -> Question {
        let verb = Verb::Receive { queue: self.queue.clone(), top: self.top, from: self.from };
        let levels = match self.from {
            ReceiveFrom::Conversation(_) | ReceiveFrom::Group(_) => 0,
            ReceiveFrom::Levels { lowest, highest } => level_bits(lowest, highest),
            ReceiveFrom::Any | ReceiveFrom::Oldest => EVERY_LEVEL,
        };
        let choosy = !matches!(self.from, ReceiveFrom::Any | ReceiveFrom::Oldest);
        Question { queue: self.queue.clone(), verb, levels, choosy }
    }
}

/// Makes the attempts in order and returns the first that finds messages; while all are empty, waits on all of them at
/// once. Returns the index of the attempt with its batch, or `None` at the deadline.
///
/// # Errors
/// 9617 a queue is disabled, 60002 a queue does not exist, also when that happens during the wait; 8426 or 8436 for a
/// conversation or group that is not of its queue. If it ends during the wait, a server says so a minute and a half later at most.
pub async fn receive_first(
    act: &dyn Perform,
    attempts: &[ReceiveAttempt],
    deadline: Deadline,
) -> Result<Option<(usize, Batch)>> {
    let questions: Vec<Question> = attempts.iter().map(ReceiveAttempt::question).collect();
    // TOP (0) never finds messages, so a wait for it would never end.
    let deadline = if attempts.iter().all(|attempt| attempt.top == Some(0)) { Deadline::Now } else { deadline };
    match first_answer(act, &questions, deadline).await? {
        Some((place, Outcome::Received(messages))) => Ok(Batch::new(messages).map(|batch| (place, batch))),
        Some((_, other)) => Err(unexpected(&other)),
        None => Ok(None),
    }
}

/// Takes jobs, or waits for the first.
pub(crate) async fn take_jobs(act: &dyn Perform, take: Take, wait: WaitLimit) -> Result<Vec<Job>> {
    let deadline = wait.deadline(act.store());
    Ok(take_first(act, vec![take], deadline).await?.map_or_else(Vec::new, |(_, jobs)| jobs))
}

/// Reports a job as done and takes others by one commit, or waits for the first of them. These are two statements in a transaction,
/// and where the end of the job may be what lets another one go.
pub(crate) async fn complete_and_take(
    act: &dyn Perform,
    completed: WorkVerb,
    take: Take,
    wait: WaitLimit,
) -> Result<Vec<Job>> {
    let (completed, store) = (Verb::Work(completed), act.store());
    let is_limited =
        |take: &Take| store.catalog().work_queue(&take.queue).is_some_and(|queue| queue.settings.is_limited());
    if act.is_transaction() || is_limited(&take) {
        act.perform(completed).await?;
        return take_jobs(act, take, wait).await;
    }
    let question = question_of_take(take.clone());
    match store.submit(vec![completed, question.verb.clone()]).await?.pop() {
        Some(Outcome::Jobs(jobs)) if jobs.is_empty() && !matches!(wait, WaitLimit::None) => {
            take_jobs(act, take, wait).await
        }
        Some(Outcome::Jobs(jobs)) => {
            note_answer(store, &[question], (!jobs.is_empty()).then_some(0));
            Ok(jobs)
        }
        other => Err(unexpected(&other.unwrap_or(Outcome::Done))),
    }
}

/// Makes the takes in order and returns the first that finds jobs, with its index; as [`receive_first`]. If a transaction holds
/// one of several work queues, `None` may come before the deadline, and the caller tries again without it.
pub(crate) async fn take_first(
    act: &dyn Perform,
    takes: Vec<Take>,
    deadline: Deadline,
) -> Result<Option<(usize, Vec<Job>)>> {
    let questions: Vec<Question> = takes.into_iter().map(question_of_take).collect();
    match first_answer(act, &questions, deadline).await? {
        Some((place, Outcome::Jobs(jobs))) => Ok(Some((place, jobs))),
        Some((_, other)) => Err(unexpected(&other)),
        None => Ok(None),
    }
}

fn question_of_take(take: Take) -> Question {
    let levels = match (&take.job_type, take.from) {
        (Some(_), _) => 0,
        (None, TakeFrom::Levels { lowest, highest }) => level_bits(lowest, highest),
        (None, TakeFrom::Any | TakeFrom::Oldest) => EVERY_LEVEL,
    };
    let choosy = levels != EVERY_LEVEL;
    let queue = work_queue_on_board(&take.queue).into();
    Question { queue, verb: Verb::Work(WorkVerb::Take(Box::new(take))), levels, choosy }
}

fn level_bits(lowest: u8, highest: u8) -> u16 {
    (lowest..=highest.min(10)).fold(0, |levels, level| levels | 1 << level)
}

/// A verb that may find nothing, and the kind of wait for it.
struct Question {
    queue: Arc<str>,
    verb: Verb,
    /// The levels of which it takes any message, a bit each; none if it names a conversation or a group.
    levels: u16,
    /// It accepts only some messages, so every arrival must wake it.
    choosy: bool,
}

/// The levels 1 to 10.
const EVERY_LEVEL: u16 = 0b111_1111_1110;

/// Whether these together take every message of that queue. Queue monitors count only such waits and empty answers: others
/// say nothing of the messages that they pass over.
fn take_all(questions: &[Question], queue: &str) -> bool {
    let of_queue = questions.iter().filter(|question| same_name(&question.queue, queue));
    of_queue.fold(0, |levels, question| levels | question.levels) & EVERY_LEVEL == EVERY_LEVEL
}

fn found(outcome: &Outcome) -> Result<bool> {
    match outcome {
        Outcome::Received(messages) => Ok(!messages.is_empty()),
        Outcome::Group(group) => Ok(group.is_some()),
        Outcome::Jobs(jobs) => Ok(!jobs.is_empty()),
        other => Err(unexpected(other)),
    }
}

async fn first_answer(
    act: &dyn Perform,
    questions: &[Question],
    deadline: Deadline,
) -> Result<Option<(usize, Outcome)>> {
    let store = act.store();
    let answer = match deadline {
        Deadline::Now => try_each(act, questions).await?,
        _ => wait(act, questions, deadline).await?,
    };
    note_answer(store, questions, answer.as_ref().map(|(taken, _)| *taken));
    Ok(answer)
}

/// Tells the queue monitors which question found something, and that those before it found nothing.
fn note_answer(store: &dyn Store, questions: &[Question], taken: Option<usize>) {
    let now = store.clock().now();
    let empty = &questions[..taken.unwrap_or(questions.len())];
    for question in empty.iter().chain(taken.map(|taken| &questions[taken])) {
        let has_more = taken.is_some_and(|taken| same_name(&questions[taken].queue, &question.queue));
        let is_empty = !has_more && take_all(empty, &question.queue);
        let is_of_any = take_all(questions, &question.queue);
        store.activity().queue(&question.queue).received(is_empty.then_some(now), is_of_any);
    }
}

/// Whether a take was refused because a transaction that stays open has taken from a queue with limits.
pub(super) fn is_held(error: &Error) -> bool {
    error.code() == Code::JOB_LOCKED
}

/// Asks each question until one finds something. The error of a held queue is given at the end, since another queue may have a job;
/// that queue is asked once, also for several levels, because each take of it waits for two seconds.
async fn try_each(act: &dyn Perform, questions: &[Question]) -> Result<Option<(usize, Outcome)>> {
    let store = act.store();
    let has_several = questions.iter().any(|question| !same_name(&question.queue, &questions[0].queue));
    let mut held = None;
    let mut are_refused: Vec<&str> = Vec::new();
    for (place, question) in questions.iter().enumerate() {
        if are_refused.iter().any(|queue| same_name(queue, &question.queue)) {
            continue;
        }
        // A reader of one queue leaves nothing out, so its refusals do not put off the next look of those that do.
        let activity = has_several.then(|| store.activity().queue(&question.queue));
        if let Some(activity) = &activity {
            activity.note_attempt(store.clock().now());
        }
        match act.perform(question.verb.clone()).await {
            Ok(outcome) => {
                let has_found = found(&outcome)?;
                // That some levels are empty says nothing of the others of its queue.
                let is_asked_again =
                    questions[place + 1..].iter().any(|other| same_name(&other.queue, &question.queue));
                if let (Some(activity), true) = (&activity, has_found || !is_asked_again) {
                    activity.note_answer();
                }
                if has_found {
                    return Ok(Some((place, outcome)));
                }
            }
            Err(error) if is_held(&error) => {
                if let Some(activity) = &activity {
                    activity.note_refusal(store.clock().now());
                }
                are_refused.push(&question.queue);
                held = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    held.map_or(Ok(None), Err)
}

/// Whether one of several queues is left out now, and another is not. The caller tries again without it: here each signal of
/// another queue would begin with a take of this one.
fn leaves_some_out(store: &dyn Store, questions: &[Question]) -> bool {
    if questions.len() < 2 {
        return false;
    }
    let now = store.clock().now();
    let is_left_out = |question: &Question| store.activity().queue(&question.queue).is_held(now);
    let first = is_left_out(&questions[0]);
    questions.iter().any(|question| is_left_out(question) != first)
}

async fn wait(act: &dyn Perform, questions: &[Question], deadline: Deadline) -> Result<Option<(usize, Outcome)>> {
    let store = act.store();
    let mut waiting = Waiting::begin(store, questions, act.may_hold_groups());
    let end = WaitEnd::new(store.clock(), deadline);
    let mut is_due = end.is_over();
    let mut alarm = end.alarm();
    let mut refusals = 0;
    loop {
        let mut signals = waiting.register();
        match try_each(act, questions).await {
            Ok(None) => {}
            Ok(Some(answer)) => return Ok(Some(answer)),
            Err(error) if is_held(&error) && !is_due => {
                refusals += 1;
                if refusals == 2 {
                    // A worker waits on, and nothing else says why it finds no job.
                    tracing::warn!(%error, "takes of jobs are refused; the reader tries on");
                }
                // The take itself has waited for two seconds. With another one a wait of 100 ms lasted five seconds.
                if let Some(alarm) = &mut alarm
                    && poll_fn(|context| Poll::Ready(alarm.as_mut().poll(context).is_ready())).await
                {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        if is_due || leaves_some_out(store, questions) {
            return Ok(None);
        }
        waiting.sleeps(store);
        // After each wake-up, by a signal or by the deadline, all are tried once more.
        poll_fn(|context| {
            let signalled = signals.iter_mut().any(|signal| signal.as_mut().poll(context).is_ready());
            is_due = alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(context).is_ready());
            if signalled || is_due { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        // Another reader was refused meanwhile.
        if !is_due && leaves_some_out(store, questions) {
            return Ok(None);
        }
    }
}

/// A session waiting on some queues. However it ends, it wakes another receiver for each signal it may have used.
struct Waiting {
    places: Vec<WaitedQueue>,
    guarded: Vec<Arc<QueueActivity>>,
    guards: Vec<WaitGuard>,
    asleep: Option<SleepGuard>,
}

struct WaitedQueue {
    activity: Arc<QueueActivity>,
    choosy: bool,
}

impl Waiting {
    /// `choosy`: the session receives messages that no other session can.
    fn begin(store: &dyn Store, questions: &[Question], choosy: bool) -> Self {
        let mut places: Vec<WaitedQueue> = Vec::with_capacity(questions.len());
        let mut guarded: Vec<Arc<QueueActivity>> = Vec::new();
        for question in questions {
            let activity = store.activity().queue(&question.queue);
            if !guarded.iter().any(|known| Arc::ptr_eq(known, &activity)) && take_all(questions, &question.queue) {
                guarded.push(activity.clone());
            }
            let choosy = choosy || question.choosy;
            let known = |place: &WaitedQueue| place.choosy == choosy && Arc::ptr_eq(&place.activity, &activity);
            if !places.iter().any(known) {
                places.push(WaitedQueue { activity, choosy });
            }
        }
        Self { places, guarded, guards: Vec::new(), asleep: None }
    }

    /// Nothing was found. Only from now on does the session count as waiting for the queue monitors: if it finds
    /// messages at its first attempt it is busy, and must not keep them from launching readers.
    fn sleeps(&mut self, store: &dyn Store) {
        // Marked at every sleep: a store that other processes write to then checks for arrivals since the attempt.
        self.asleep = Some(store.activity().sleep());
        if self.guards.is_empty() {
            self.guards = self.guarded.iter().map(QueueActivity::wait).collect();
        }
    }

    fn register(&self) -> Vec<Pin<Box<OwnedNotified>>> {
        let enabled = |place: &WaitedQueue| {
            let mut signal = Box::pin(place.activity.register(place.choosy));
            // Before it is enabled, a signal meant for one of several sleepers could be lost in another's.
            signal.as_mut().enable();
            signal
        };
        self.places.iter().map(enabled).collect()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for place in self.places.iter().filter(|place| !place.choosy) {
            place.activity.pass_on();
        }
    }
}

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitLimit {
    None,
    For(Duration),
    Forever,
}

impl WaitLimit {
    pub(crate) fn deadline(self, store: &dyn Store) -> Deadline {
        match self {
            Self::None => Deadline::Now,
            Self::For(wait) => Deadline::after(store.clock(), wait),
            Self::Forever => Deadline::Never,
        }
    }
}

/// `RECEIVE`; set its options, then await it. Awaiting it gives `None` if nothing was ready in time.
///
/// All messages of the answer belong to one conversation group, which stays locked to the end of the transaction. On a
/// [`Broker`](crate::Broker) the messages are gone once the RECEIVE has committed, even if the caller has left without
/// them; the counter `dialoq_messages_dropped_total` counts those. If losing them would hurt, receive in a
/// [`Tx`](crate::Tx).
#[must_use = "nothing happens before it is awaited"]
pub struct Receive<'a> {
    act: &'a dyn Perform,
    attempt: ReceiveAttempt,
    wait_limit: WaitLimit,
}

impl fmt::Debug for Receive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive")
            .field("attempt", &self.attempt)
            .field("wait_limit", &self.wait_limit)
            .finish_non_exhaustive()
    }
}

impl<'a> Receive<'a> {
    pub(crate) fn new(act: &'a dyn Perform, queue: Arc<str>) -> Self {
        Self { act, attempt: ReceiveAttempt::new(queue), wait_limit: WaitLimit::None }
    }

    /// `TOP (n)`: at most so many messages; without it, all that are ready in the group.
    pub fn top(mut self, top: u64) -> Self {
        self.attempt.top = Some(top);
        self
    }

    /// `WHERE conversation_handle = ...`
    pub fn conversation(mut self, handle: ConversationHandle) -> Self {
        self.attempt.from = ReceiveFrom::Conversation(handle);
        self
    }

    /// `WHERE conversation_group_id = ...`
    pub fn group(mut self, group: GroupId) -> Self {
        self.attempt.from = ReceiveFrom::Group(group);
        self
    }

    /// Receives only from groups whose level is within these bounds. Not in Service Broker.
    pub fn levels(mut self, levels: RangeInclusive<u8>) -> Self {
        self.attempt = self.attempt.levels(levels);
        self
    }

    /// Takes the oldest ready group of any level. Not in Service Broker.
    pub fn oldest(mut self) -> Self {
        self.attempt.from = ReceiveFrom::Oldest;
        self
    }

    /// `WAITFOR (...), TIMEOUT`: waits so long, by the broker's clock.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait_limit = WaitLimit::For(wait);
        self
    }

    /// `WAITFOR (...)`: waits for ever.
    pub fn wait_forever(mut self) -> Self {
        self.wait_limit = WaitLimit::Forever;
        self
    }
}

impl<'a> IntoFuture for Receive<'a> {
    type Output = Result<Option<Batch>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let deadline = self.wait_limit.deadline(self.act.store());
            let answer = receive_first(self.act, &[self.attempt], deadline).await?;
            Ok(answer.map(|(_, batch)| batch))
        })
    }
}

/// `GET CONVERSATION GROUP`; set its options, then await it. Awaiting it gives `None` if nothing was ready in time.
///
/// The group stays locked to the end of the transaction; on a [`Broker`](crate::Broker) that is at once.
#[must_use = "nothing happens before it is awaited"]
pub struct GetConversationGroup<'a> {
    act: &'a dyn Perform,
    queue: Arc<str>,
    wait_limit: WaitLimit,
}

impl fmt::Debug for GetConversationGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetConversationGroup")
            .field("queue", &self.queue)
            .field("wait_limit", &self.wait_limit)
            .finish_non_exhaustive()
    }
}

impl<'a> GetConversationGroup<'a> {
    pub(crate) fn new(act: &'a dyn Perform, queue: Arc<str>) -> Self {
        Self { act, queue, wait_limit: WaitLimit::None }
    }

    /// `WAITFOR (...), TIMEOUT`: waits so long, by the broker's clock.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait_limit = WaitLimit::For(wait);
        self
    }

    /// `WAITFOR (...)`: waits for ever.
    pub fn wait_forever(mut self) -> Self {
        self.wait_limit = WaitLimit::Forever;
        self
    }
}

impl<'a> IntoFuture for GetConversationGroup<'a> {
    type Output = Result<Option<GroupId>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let deadline = self.wait_limit.deadline(self.act.store());
            let verb = Verb::GetConversationGroup { queue: self.queue.clone() };
            let question = Question { queue: self.queue, verb, levels: EVERY_LEVEL, choosy: false };
            match first_answer(self.act, &[question], deadline).await? {
                Some((_, Outcome::Group(group))) => Ok(group),
                Some((_, other)) => Err(unexpected(&other)),
                None => Ok(None),
            }
        })
    }
}

#[cfg(test)]
mod tests;
