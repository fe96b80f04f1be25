//! The steps of a random run. Conversations, groups and savepoints are named by their place among those seen so far.

use crate::known::TYPES;
use dialoq::protocol::definition::AfterRetries;
use proptest::prelude::*;

/// Sessions that may be open at a time.
pub(crate) const SESSIONS: usize = 3;
/// The queues of the definitions: two of initiators, two of targets.
pub(crate) const QUEUES: [&str; 3] = ["QI", "QT", "QU"];

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Opens a transaction in that place, if none is open there.
    Begin(usize),
    Commit(usize),
    Rollback(usize),
    Savepoint(usize),
    RollbackTo(usize),
    /// The user's own SQL in the transaction of that place: a row, or one that is refused when it commits.
    Sql(usize, bool),
    /// In the transaction of that place; at once if none is open there.
    Do(usize, Op),
    /// Several verbs in one call, which happen together or not at all.
    Unit(Vec<Op>),
    /// SENDs of so many callers at once: the conversation and the message type of each.
    Sends(Vec<(usize, usize)>),
    /// Conversations that so many callers begin at once: the services of each.
    Begins(Vec<(usize, usize)>),
    /// ENDs of so many callers at once: the conversation of each.
    Ends(Vec<usize>),
    /// RECEIVEs of so many callers at once from a queue: TOP of each.
    Receives(usize, Vec<Option<u8>>),
    Advance(u16),
    QueueStatus(usize, bool),
    Retention(usize, bool),
    Quarantine(usize, bool),
    /// A retry policy: its attempts, and what follows the last one; 0 attempts is none.
    Retry(usize, u8, AfterRetries),
    /// Redrives a dead letter, or purges it.
    Letter(usize, bool),
    BrokerEnabled(bool),
    HonorPriority(bool),
    /// Whether rollbacks turn the queue off.
    Poisonable(usize, bool),
    /// Makes, alters or drops a broker priority: which one, its level (0: drops it), whether it is altered.
    Priority(usize, u8, bool),
    /// Moves a target service to another queue.
    MoveService(usize, usize),
    Break(Break),
    /// Receives from a queue and rolls back, five times.
    Poison(usize),
    /// All transactions are lost, the store is opened again.
    Restart,
}

/// Definitions that break conversations.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Break {
    DropContractOfService,
    AddContractToService,
    DropService,
    CreateService,
    ErrorConversations,
    NewBroker,
    CreateNotification,
    DropNotification,
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Dialog {
        from: usize,
        to: usize,
        related: Option<usize>,
        /// A group that was seen, or one of the caller's choice.
        group: Option<usize>,
        lifetime: Option<u16>,
    },
    Send {
        first: usize,
        second: Option<usize>,
        message_type: usize,
    },
    /// Many messages in one call: the conversation and the type of each.
    SendEach(Vec<(usize, usize)>),
    Receive {
        queue: usize,
        top: Option<u8>,
        from: Source,
    },
    GetGroup {
        queue: usize,
    },
    Move {
        conversation: usize,
        group: usize,
    },
    End {
        conversation: usize,
        form: Form,
    },
    Timer {
        conversation: usize,
        seconds: u8,
    },
    CancelTimer {
        conversation: usize,
    },
    Reprioritise {
        conversation: usize,
        level: u8,
    },
    Status {
        conversation: usize,
    },
    Release {
        group: usize,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Any,
    Conversation(usize),
    Group(usize),
    Levels(u8, u8),
    Oldest,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Plain,
    WithError,
    Cleanup,
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        6 => Just(Source::Any),
        1 => any::<usize>().prop_map(Source::Conversation),
        1 => any::<usize>().prop_map(Source::Group),
        1 => (1..=10u8, 1..=10u8).prop_map(|(one, other)| Source::Levels(one.min(other), one.max(other))),
        1 => Just(Source::Oldest),
    ]
}

fn quiet_op() -> BoxedStrategy<Op> {
    prop_oneof![
        3 => (0..2usize, 0..2usize, prop::option::weighted(0.3, any::<usize>()))
            .prop_map(|(from, to, related)| Op::Dialog { from, to, related, group: None, lifetime: None }),
        1 => (0..2usize, 0..2usize, any::<usize>())
            .prop_map(|(from, to, group)| Op::Dialog { from, to, related: None, group: Some(group), lifetime: None }),
        10 => (any::<usize>(), prop::option::weighted(0.15, any::<usize>()))
            .prop_map(|(first, second)| Op::Send { first, second, message_type: 0 }),
        3 => prop::collection::vec(any::<usize>().prop_map(|conversation| (conversation, 0)), 0..5).prop_map(Op::SendEach),
        8 => (0..QUEUES.len(), prop::option::weighted(0.4, 0..4u8), source())
            .prop_map(|(queue, top, from)| Op::Receive { queue, top, from }),
        1 => (0..QUEUES.len()).prop_map(|queue| Op::GetGroup { queue }),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(conversation, group)| Op::Move { conversation, group }),
        1 => (any::<usize>(), 1..40u8).prop_map(|(conversation, seconds)| Op::Timer { conversation, seconds }),
        1 => any::<usize>().prop_map(|conversation| Op::CancelTimer { conversation }),
        1 => (any::<usize>(), 1..=10u8).prop_map(|(conversation, level)| Op::Reprioritise { conversation, level }),
    ]
    .boxed()
}

fn any_op() -> BoxedStrategy<Op> {
    let form = prop_oneof![3 => Just(Form::Plain), 1 => Just(Form::WithError), 1 => Just(Form::Cleanup)];
    prop_oneof![
        12 => quiet_op(),
        1 => (0..2usize, 0..2usize, 5..120u16)
            .prop_map(|(from, to, seconds)| Op::Dialog { from, to, related: None, group: None, lifetime: Some(seconds) }),
        2 => (any::<usize>(), 0..TYPES.len()).prop_map(|(first, message_type)| Op::Send { first, second: None, message_type }),
        2 => prop::collection::vec((any::<usize>(), 0..TYPES.len()), 1..4).prop_map(Op::SendEach),
        3 => (any::<usize>(), form).prop_map(|(conversation, form)| Op::End { conversation, form }),
        1 => any::<usize>().prop_map(|conversation| Op::Status { conversation }),
        1 => any::<usize>().prop_map(|group| Op::Release { group }),
    ]
    .boxed()
}

fn breaks() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Break::DropContractOfService),
        4 => Just(Break::AddContractToService),
        2 => Just(Break::DropService),
        4 => Just(Break::CreateService),
        1 => Just(Break::ErrorConversations),
        1 => Just(Break::NewBroker),
        3 => Just(Break::CreateNotification),
        1 => Just(Break::DropNotification),
    ]
    .prop_map(Step::Break)
}

fn quiet_step(op: BoxedStrategy<Op>, message_type: BoxedStrategy<usize>) -> impl Strategy<Value = Step> {
    let place = 0..SESSIONS;
    prop_oneof![
        4 => place.clone().prop_map(Step::Begin),
        3 => place.clone().prop_map(Step::Commit),
        1 => place.clone().prop_map(Step::Rollback),
        1 => place.clone().prop_map(Step::Savepoint),
        1 => place.clone().prop_map(Step::RollbackTo),
        2 => (place.clone(), prop::bool::weighted(0.2)).prop_map(|(place, fails)| Step::Sql(place, fails)),
        // The place after the last one never has a transaction.
        24 => (0..=SESSIONS, op.clone()).prop_map(|(place, op)| Step::Do(place, op)),
        3 => prop::collection::vec(op, 2..5).prop_map(Step::Unit),
        4 => prop::collection::vec((any::<usize>(), message_type), 2..9).prop_map(Step::Sends),
        2 => prop::collection::vec((0..2usize, 0..2usize), 2..7).prop_map(Step::Begins),
        3 => (0..QUEUES.len(), prop::collection::vec(prop::option::weighted(0.5, 0..4u8), 2..7))
            .prop_map(|(queue, tops)| Step::Receives(queue, tops)),
        2 => (1..30u16).prop_map(Step::Advance),
        2 => (0..QUEUES.len(), any::<bool>()).prop_map(|(queue, on)| Step::QueueStatus(queue, on)),
        1 => (0..QUEUES.len(), any::<bool>()).prop_map(|(queue, on)| Step::Retention(queue, on)),
        1 => (0..QUEUES.len(), any::<bool>()).prop_map(|(queue, on)| Step::Quarantine(queue, on)),
        1 => (0..QUEUES.len(), 0..5u8, loses_nothing()).prop_map(|(queue, attempts, then)| Step::Retry(queue, attempts, then)),
        1 => any::<bool>().prop_map(Step::BrokerEnabled),
        1 => any::<bool>().prop_map(Step::HonorPriority),
        1 => (0..2usize, 0..QUEUES.len()).prop_map(|(service, queue)| Step::MoveService(service, queue)),
        1 => (0..QUEUES.len()).prop_map(Step::Poison),
        1 => (0..QUEUES.len(), prop::bool::weighted(0.7)).prop_map(|(queue, on)| Step::Poisonable(queue, on)),
        2 => (0..3usize, 0..11u8, any::<bool>()).prop_map(|(place, level, alters)| Step::Priority(place, level, alters)),
        1 => Just(Step::Restart),
    ]
}

fn loses_nothing() -> impl Strategy<Value = AfterRetries> {
    prop_oneof![Just(AfterRetries::Quarantine), Just(AfterRetries::QueueOff)]
}

/// A policy that ends conversations or takes messages out of them, after one or two attempts. The ledger cannot be balanced
/// after it.
fn gives_up() -> impl Strategy<Value = Step> {
    let then = prop_oneof![Just(AfterRetries::EndWithError), Just(AfterRetries::DeadLetter)];
    (0..QUEUES.len(), 1..3u8, then).prop_map(|(queue, attempts, then)| Step::Retry(queue, attempts, then))
}

fn any_step() -> impl Strategy<Value = Step> {
    let any_type = prop_oneof![6 => Just(0), 1 => 0..TYPES.len()].boxed();
    prop_oneof![
        48 => quiet_step(any_op(), any_type),
        2 => breaks(),
        1 => gives_up(),
        2 => prop::collection::vec(any::<usize>(), 2..6).prop_map(Step::Ends),
        2 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(place, goes_back)| Step::Letter(place, goes_back)),
    ]
}

pub(crate) fn any_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    (prop::collection::vec(gives_up(), 0..2), prop::collection::vec(any_step(), 1..most))
        .prop_map(|(first, steps)| first.into_iter().chain(steps).collect())
}

/// Nothing that ends or breaks a conversation.
pub(crate) fn peaceful_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(quiet_step(quiet_op(), Just(0).boxed()), 1..most)
}
