//! "Why is this not moving": what holds a queue, a conversation or a message up.

use super::conversation::{ConversationFilter, ConversationSide};
use super::doctor::rough;
use super::names::NameKind;
use super::peek::{MessageFilter, PeekedMessage, WaitingMessage};
use super::shell::shell_word;
use super::{BY_POISON, QueueStatus, Status};
use crate::broker::Broker;
use crate::catalog::OffBy;
use crate::error::{Code, Error, Result};
use crate::id::{GroupId, MessageId};
use crate::protocol::ConversationState;
use crate::work::WorkQueueStatus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// What an explanation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SubjectKind {
    /// A queue.
    Queue,
    /// A work queue.
    WorkQueue,
    /// A conversation, by a handle of it or its id.
    Conversation,
    /// A conversation group.
    ConversationGroup,
    /// A message in a queue or on its way to one.
    Message,
}

/// The kind of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonKind {
    /// The broker delivers nothing: DISABLE_BROKER.
    BrokerDisabled,
    /// The queue is off.
    QueueOff,
    /// Poison handling has quarantined the group.
    Quarantined,
    /// The group pauses after a rollback, and comes back in time: RETRY.
    Pausing,
    /// Messages cannot be delivered to their target.
    Undelivered,
    /// This side is in error, and waits to be ended.
    InError,
    /// The other side has ended, and this one has not.
    PeerEnded,
    /// This side has ended, and waits for the other.
    Ended,
    /// The conversation's LIFETIME is over or near its end.
    Lifetime,
    /// A timer is set.
    Timer,
    /// Nothing was sent yet.
    NothingSent,
    /// Other messages come first.
    Ahead,
    /// No reader of the queue runs, and none waits.
    NoReader,
    /// All readers that may run are running.
    ReadersBusy,
    /// Readers are there.
    Readers,
    /// Nothing waits.
    Empty,
    /// A work queue is paused.
    Paused,
    /// Jobs wait for their time: a delay, a back-off or a schedule.
    NotDue,
    /// Jobs wait for a limit or a rate.
    Limited,
    /// Jobs have used up their attempts.
    Dead,
    /// A session holds the conversation group.
    Held,
    /// Messages have used up the attempts of a retry policy.
    DeadLetters,
    /// A RECEIVE gives it next, unless a session holds its group.
    Ready,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reason {
    /// The kind of reason.
    pub kind: ReasonKind,
    /// Whether this alone stops it.
    pub is_blocking: bool,
    /// The reason, as text.
    pub what: String,
    /// What to do; empty if there is nothing to do.
    pub advice: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

/// Why something does not move. Serializes to the object that `dialoq explain --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// What it is about.
    pub kind: SubjectKind,
    /// Its name or id.
    pub subject: String,
    /// What it is, in a sentence.
    pub summary: String,
    /// The reasons, the blocking ones first.
    pub reasons: Vec<Reason>,
}

impl Explanation {
    /// Whether a reason alone stops it.
    pub fn is_blocked(&self) -> bool {
        self.reasons.iter().any(|reason| reason.is_blocking)
    }
}

/// Reasons as they are found.
#[derive(Default)]
struct Reasons(Vec<Reason>);

impl Reasons {
    fn blocks(&mut self, kind: ReasonKind, what: impl Into<String>, advice: impl Into<String>) {
        self.0.push(Reason { kind, is_blocking: true, what: what.into(), advice: advice.into() });
    }

    fn notes(&mut self, kind: ReasonKind, what: impl Into<String>, advice: impl Into<String>) {
        self.0.push(Reason { kind, is_blocking: false, what: what.into(), advice: advice.into() });
    }

    fn of(mut self, kind: SubjectKind, subject: String, summary: String) -> Explanation {
        self.0.sort_by_key(|reason| !reason.is_blocking);
        Explanation { kind, subject, summary, reasons: self.0 }
    }
}

impl Broker {
    /// Why a queue, work queue, conversation or message does not move. The subject is the name of a queue, a work queue or
    /// a service, or the id of a message, a conversation, a group, or one side's handle. Reads of a few moments make up the
    /// answer. No lock is taken. The session that holds a conversation group is named as far as the store shows it:
    /// [`Broker::lock_holder`].
    ///
    /// # Errors
    /// 60002 no queue, work queue or service of that name; 8426 no message or conversation of that id; else those of
    /// [`Broker::query`].
    pub async fn explain(&self, subject: &str) -> Result<Explanation> {
        let catalog = self.catalog();
        if let Some(queue) = catalog.queue(subject) {
            let mut found = self.explain_queue(&queue.name).await?;
            if let Some(namesake) = catalog.work_queue(subject) {
                let word = shell_word(&namesake.name);
                found.summary =
                    format!("{}; there is a work queue of this name too, see `dialoq work list {word}`", found.summary);
            }
            return Ok(found);
        }
        if let Some(queue) = catalog.work_queue(subject) {
            return self.explain_work_queue(&queue.name).await;
        }
        if let Some(queue) = catalog.service(subject).and_then(|service| catalog.queues.get(&service.queue_id)) {
            return self.explain_queue(&queue.name).await;
        }
        match Uuid::parse_str(subject) {
            Ok(id) => self.explain_id(id).await,
            Err(_) => {
                let kinds = [NameKind::Queue, NameKind::WorkQueue, NameKind::Service];
                let near = kinds.into_iter().find_map(|kind| self.did_you_mean(kind, subject));
                let hint = match near {
                    Some(name) => format!("; did you mean '{name}'?"),
                    None if subject.parse::<u64>().is_ok() => {
                        format!("; if it is the id of a job, use `dialoq work show {subject}`")
                    }
                    None => String::new(),
                };
                let text = format!("no queue, work queue or service is named '{subject}', and it is no id{hint}");
                Err(Error::new(Code::OBJECT_NOT_FOUND, text))
            }
        }
    }

    async fn explain_id(&self, id: Uuid) -> Result<Explanation> {
        let filter = ConversationFilter { id: Some(id), ..ConversationFilter::default() };
        let mut sides = self.conversations(&filter, 100).await?;
        let of_it = sides.iter().find(|side| side.conversation_handle.0 == id).map(|side| side.conversation_id);
        if let Some(conversation) = of_it {
            // What holds one side up may be at the other.
            let both = ConversationFilter { id: Some(conversation.0), ..ConversationFilter::default() };
            sides = self.conversations(&both, 2).await?;
            sides.sort_by_key(|side| side.conversation_handle.0 != id);
        }
        if !sides.is_empty() {
            return self.explain_sides(id, sides).await;
        }
        let kept = MessageFilter { with_kept: false, ..MessageFilter::default() };
        if let Some(message) = self.messages(None, &kept, Some(MessageId(id)), 1, 0).await?.pop() {
            return self.explain_message(message).await;
        }
        if let Some(message) = self.undelivered(None, Some(MessageId(id)), 1, 0).await?.pop() {
            return self.explain_undelivered(message).await;
        }
        Err(Error::new(
            Code::CONVERSATION_NOT_FOUND,
            format!("no message, conversation or group {id} is here: it was received or has ended, or never was"),
        ))
    }

    async fn explain_queue(&self, name: &str) -> Result<Explanation> {
        let status = self.status_of_messages().await?;
        let mut reasons = Reasons::default();
        let waiting = self.queue_reasons(&status, name, &mut reasons);
        // RECEIVE passes over the groups that sessions hold; the first one is named.
        if let Some(first) = self.messages(Some(name), &MessageFilter::default(), None, 1, 0).await?.first()
            && let Ok(Some(holder)) = self.lock_holder(first.conversation_group_id).await
        {
            reasons.notes(
                ReasonKind::Held,
                format!(
                    "its first message, of conversation group {}, is held by {holder}",
                    first.conversation_group_id
                ),
                "",
            );
        }
        let summary = format!("queue '{name}' holds {}", messages(waiting));
        Ok(reasons.of(SubjectKind::Queue, name.to_owned(), summary))
    }

    /// What holds the messages of a queue up; gives their number.
    fn queue_reasons(&self, status: &Status, name: &str, reasons: &mut Reasons) -> u64 {
        self.broker_reasons(status, reasons);
        let Some(queue) = status.queues.iter().find(|queue| queue.name == name) else { return 0 };
        let waiting: u64 = queue.levels.iter().map(|level| level.messages).sum();
        let quarantined: u64 =
            queue.levels.iter().filter(|level| level.is_quarantined).map(|level| level.messages).sum();
        let pausing: u64 =
            queue.levels.iter().filter(|level| level.retry_in_ms.is_some()).map(|level| level.messages).sum();
        off_reason(queue, reasons);
        let word = shell_word(name);
        if quarantined > pausing {
            reasons.0.push(Reason {
                kind: ReasonKind::Quarantined,
                is_blocking: waiting == quarantined,
                what: format!("poison handling has quarantined {}", messages(quarantined - pausing)),
                advice: format!(
                    "look at them with `dialoq peek {word}`, and release a group with `dialoq release GROUP`"
                ),
            });
        }
        if queue.dead_letters > 0 {
            let (number, plural) = (queue.dead_letters, if queue.dead_letters == 1 { "" } else { "s" });
            reasons.notes(
                ReasonKind::DeadLetters,
                format!("{number} dead letter{plural}: messages that used up their attempts"),
                format!("look at them with `dialoq dead list --queue {word}`, then `dialoq dead redrive`"),
            );
        }
        let first = queue.levels.iter().filter_map(|level| level.retry_in_ms).min();
        if let Some(first) = first {
            // RECEIVE gives nothing until the first pause is over.
            let is_blocking = waiting == quarantined;
            reasons.0.push(Reason {
                kind: ReasonKind::Pausing,
                is_blocking,
                what: format!(
                    "{} after rollbacks, the first for {} more",
                    of_messages(pausing, "pauses", "pause"),
                    rough(Duration::from_millis(first.next_multiple_of(1_000)))
                ),
                advice: "wait, or end the pause of a group with `dialoq release GROUP`".to_owned(),
            });
        }
        for undelivered in status.transmission_queue.iter().filter(|row| self.is_served_by(&row.to_service_name, name))
        {
            reasons.notes(
                ReasonKind::Undelivered,
                format!(
                    "{} to service '{}' {} to be delivered: {}",
                    messages(undelivered.messages),
                    undelivered.to_service_name,
                    if undelivered.messages == 1 { "waits" } else { "wait" },
                    undelivered.transmission_status
                ),
                "",
            );
        }
        if waiting == 0 {
            reasons.notes(ReasonKind::Empty, "the queue is empty", "");
            let running = queue.readers_running.unwrap_or(0);
            if !queue.monitors.is_empty() {
                let what = format!("{}; readers running: {running}", activators(queue));
                reasons.notes(ReasonKind::Readers, what, "");
            }
        } else if waiting == quarantined {
            reasons.notes(ReasonKind::Empty, "all its messages are quarantined or pause", "");
        } else if queue.is_receive_enabled {
            self.reader_reasons(queue, reasons);
        }
        waiting
    }

    fn broker_reasons(&self, status: &Status, reasons: &mut Reasons) {
        if !status.is_broker_enabled {
            reasons.blocks(
                ReasonKind::BrokerDisabled,
                "the broker is disabled: nothing is delivered",
                "ALTER DATABASE CURRENT SET ENABLE_BROKER",
            );
        }
    }

    fn is_served_by(&self, service: &str, queue: &str) -> bool {
        let catalog = self.catalog();
        let id = catalog.service(service).map(|service| service.queue_id);
        id.and_then(|id| catalog.queues.get(&id)).is_some_and(|found| &*found.name == queue)
    }

    fn reader_reasons(&self, queue: &QueueStatus, reasons: &mut Reasons) {
        let waits = queue.sessions_waiting.unwrap_or(0).max(self.sessions_waiting(&queue.name) as u64);
        let running = queue.readers_running.unwrap_or(0);
        let word = shell_word(&queue.name);
        let procedure = queue.activation_procedure.as_deref().filter(|_| queue.is_activation_enabled);
        // A program activates it, and the queue has no clause.
        let is_by_program = queue.activation_procedure.is_none() && !queue.monitors.is_empty();
        let most = match is_by_program {
            true => queue.monitors.iter().map(|monitor| monitor.max_queue_readers).max(),
            false => queue.max_queue_readers.filter(|_| procedure.is_some()),
        };
        match (running, most) {
            (running, Some(most)) if running >= most && most > 0 => reasons.notes(
                ReasonKind::ReadersBusy,
                match most {
                    1 => "the only reader that may run is running".to_owned(),
                    most => format!("all {most} readers that may run are running"),
                },
                match is_by_program {
                    true => "if they do not keep up, let the program that activates it run more",
                    false => "if they do not keep up, raise MAX_QUEUE_READERS",
                },
            ),
            (0, Some(0)) if waits == 0 => reasons.blocks(
                ReasonKind::NoReader,
                "MAX_QUEUE_READERS is 0, so no reader is started",
                match is_by_program {
                    true => "let the program that activates it run more".to_owned(),
                    false => "raise MAX_QUEUE_READERS".to_owned(),
                },
            ),
            (0, _) if waits == 0 && is_by_program => reasons.notes(
                ReasonKind::Readers,
                format!("{}, and no reader runs", activators(queue)),
                "a reader that is stopping may hold the place of the next one until it has done what it has in hand",
            ),
            (0, _) if waits == 0 => match procedure {
                Some(procedure) => reasons.blocks(
                    ReasonKind::NoReader,
                    format!("activation with procedure '{procedure}' is on, but no process runs readers for it"),
                    format!("start one, such as `dialoq activate {word} --exec PROGRAM`"),
                ),
                None => {
                    let (off, advice) = match queue.activation_procedure {
                        // `dialoq activate` starts no reader either.
                        Some(_) => (
                            "its ACTIVATION clause has STATUS = OFF",
                            format!(
                                "receive from it, or turn activation on: ALTER QUEUE [{}] WITH ACTIVATION (STATUS = ON)",
                                queue.name.replace(']', "]]")
                            ),
                        ),
                        None => (
                            "activation is off",
                            format!("receive from it, or run `dialoq activate {word} --exec PROGRAM`"),
                        ),
                    };
                    let what = format!(
                        "no reader is known: {off}; sessions of other processes that only wait in a RECEIVE are not recorded"
                    );
                    reasons.notes(ReasonKind::NoReader, what, advice);
                }
            },
            (running, _) => {
                let runs = if running == 1 { "1 reader runs".to_owned() } else { format!("{running} readers run") };
                let wait = if waits == 1 { "1 session waits".to_owned() } else { format!("{waits} sessions wait") };
                reasons.notes(ReasonKind::Readers, format!("{runs}, and {wait} in a RECEIVE"), "");
            }
        }
    }

    async fn explain_sides(&self, id: Uuid, sides: Vec<ConversationSide>) -> Result<Explanation> {
        let is_group = sides.iter().all(|side| side.conversation_handle.0 != id && side.conversation_id.0 != id);
        let mut reasons = Reasons::default();
        let status = self.status_of_messages().await?;
        self.broker_reasons(&status, &mut reasons);
        let (kind, summary) = if is_group {
            let summary = format!("group of {} at service '{}'", sides.len(), sides[0].service_name);
            (SubjectKind::ConversationGroup, summary)
        } else {
            let side = &sides[0];
            let summary = format!(
                "conversation of '{}' with '{}', {} here, at level {}",
                side.service_name, side.far_service, side.state_desc, side.priority
            );
            (SubjectKind::Conversation, summary)
        };
        for side in &sides {
            self.side_reasons(&status, side, &mut reasons).await?;
        }
        if let Some(side) = sides.iter().find(|side| side.is_quarantined) {
            aside_reason(side, &mut reasons);
        }
        let groups: BTreeMap<_, _> =
            sides.iter().map(|side| (side.conversation_group_id, &*side.service_name)).collect();
        for (group, service) in groups {
            // An owner of a file that is stopped would be waited for again.
            if !self.held_reason(group, service, &mut reasons).await {
                break;
            }
        }
        Ok(reasons.of(kind, id.to_string(), summary))
    }

    async fn side_reasons(&self, status: &Status, side: &ConversationSide, reasons: &mut Reasons) -> Result<()> {
        let (handle, at) = (side.conversation_handle, &side.service_name);
        match side.state {
            ConversationState::StartedOutbound => {
                reasons.blocks(
                    ReasonKind::NothingSent,
                    format!("service '{at}' has begun it and sent nothing yet"),
                    "SEND on it",
                );
            }
            ConversationState::Error => {
                let error = self.error_texts(vec![handle.0]).await?.remove(&handle.0);
                let text = error.map_or_else(
                    || "its Error message was received".to_owned(),
                    |(code, text)| format!("Error {code}: {text}"),
                );
                reasons.blocks(
                    ReasonKind::InError,
                    format!("the side of service '{at}' is in error: {text}"),
                    format!("receive the Error, and `dialoq end {handle}`"),
                );
            }
            ConversationState::DisconnectedInbound => reasons.blocks(
                ReasonKind::PeerEnded,
                format!("the other side has ended; the side of service '{at}' has not"),
                format!("receive what is left, and `dialoq end {handle}`"),
            ),
            ConversationState::DisconnectedOutbound | ConversationState::Closed => {
                reasons.notes(ReasonKind::Ended, format!("the side of service '{at}' has ended"), "");
            }
            _ => {}
        }
        if let Some(end) = side.lifetime {
            let over = end <= status.at;
            let what = format!(
                "the LIFETIME of the side of service '{at}' {} {end}",
                if over { "ended at" } else { "ends at" }
            );
            if over {
                reasons.blocks(ReasonKind::Lifetime, what, "END it");
            } else {
                reasons.notes(ReasonKind::Lifetime, what, "");
            }
        }
        if let Some(timer) = side.dialog_timer {
            match timer <= status.at {
                true => reasons.notes(
                    ReasonKind::Timer,
                    format!("a timer of service '{at}' is due since {timer} and has not fired"),
                    "it fires while a process has the broker open, once no session holds its conversation group",
                ),
                false => reasons.notes(ReasonKind::Timer, format!("a timer of service '{at}' fires at {timer}"), ""),
            }
        }
        if let Some(first) = self.undelivered(Some(handle), None, 1, 0).await?.first() {
            self.undelivered_reason(first, reasons);
        }
        let filter = MessageFilter { conversation: Some(handle), ..MessageFilter::default() };
        if let Some(first) = self.messages(None, &filter, None, 1, 0).await?.first() {
            self.waiting_reasons(status, first, reasons).await?;
        }
        Ok(())
    }

    /// The session that holds a group, if one does; false if that is not known.
    async fn held_reason(&self, group: GroupId, service: &str, reasons: &mut Reasons) -> bool {
        let found = self.lock_holder(group).await;
        let is_known = found.is_ok();
        match found {
            Ok(None) => {}
            Ok(Some(holder)) => reasons.blocks(
                ReasonKind::Held,
                format!("conversation group {group} of service '{service}' is held by {holder}"),
                "RECEIVE passes over it until that transaction commits or rolls back",
            ),
            Err(error) => reasons.notes(
                ReasonKind::Held,
                format!("which session holds conversation group {group} is not known: {}", error.message()),
                "",
            ),
        }
        is_known
    }

    fn undelivered_reason(&self, message: &WaitingMessage, reasons: &mut Reasons) {
        let code = message.transmission_status.split(':').next().and_then(|code| code.trim().parse().ok());
        let (hint, _) = self.waiting_hint(code, &message.to_service_name);
        let status = match message.transmission_status.as_str() {
            "" => "it stands behind an earlier message of its conversation",
            status => status,
        };
        reasons.blocks(
            ReasonKind::Undelivered,
            format!(
                "message {} to service '{}' waits to be delivered since {}: {status}",
                message.message_sequence_number, message.to_service_name, message.since
            ),
            hint.unwrap_or_default(),
        );
    }

    /// What a message in a queue waits for.
    async fn waiting_reasons(&self, status: &Status, message: &PeekedMessage, reasons: &mut Reasons) -> Result<()> {
        let Some(queue) = status.queues.iter().find(|queue| queue.name == message.queue) else { return Ok(()) };
        if !queue.is_receive_enabled {
            off_reason(queue, reasons);
            return Ok(());
        }
        if message.state != super::peek::MessageState::Waiting {
            return Ok(());
        }
        let waiting = || queue.levels.iter().filter(|level| !level.is_quarantined);
        let higher = waiting().filter(|level| level.priority > message.priority);
        let higher: u64 = higher.map(|level| level.messages).sum();
        if higher > 0 {
            reasons.notes(
                ReasonKind::Ahead,
                format!(
                    "{} of higher levels than {} come first in queue '{}'",
                    messages(higher),
                    message.priority,
                    queue.name
                ),
                "raise its level with `dialoq reprioritise`, or use a strategy that does not starve low levels",
            );
        }
        let same = waiting().filter(|level| level.priority == message.priority);
        let same: u64 = same.map(|level| level.messages).sum();
        if same > 1 {
            reasons.notes(
                ReasonKind::Ahead,
                format!("{} wait at level {}; the older ones come first", messages(same), message.priority),
                "",
            );
        }
        self.reader_reasons(queue, reasons);
        if !reasons.0.iter().any(|reason| reason.is_blocking) {
            reasons.notes(
                ReasonKind::Ready,
                format!("it waits in queue '{}' since {}", queue.name, message.message_enqueue_time),
                "",
            );
        }
        Ok(())
    }

    async fn explain_message(&self, message: PeekedMessage) -> Result<Explanation> {
        let mut reasons = Reasons::default();
        let status = self.status_of_messages().await?;
        let own = ConversationFilter { id: Some(message.conversation_handle.0), ..ConversationFilter::default() };
        if let Some(side) = self.conversations(&own, 1).await?.iter().find(|side| side.is_quarantined) {
            aside_reason(side, &mut reasons);
        }
        let filter = MessageFilter { conversation: Some(message.conversation_handle), ..MessageFilter::default() };
        let first = self.messages(None, &filter, None, 1, 0).await?.pop();
        if let Some(first) = first.filter(|first| first.message_id != message.message_id) {
            reasons.notes(
                ReasonKind::Ahead,
                format!("message {} of its conversation comes first", first.message_sequence_number),
                "",
            );
        }
        self.held_reason(message.conversation_group_id, &message.service_name, &mut reasons).await;
        self.waiting_reasons(&status, &message, &mut reasons).await?;
        let summary = format!(
            "message {} of conversation {}, of type '{}', in queue '{}' at level {}",
            message.message_sequence_number,
            message.conversation_handle,
            message.message_type_name,
            message.queue,
            message.priority
        );
        Ok(reasons.of(SubjectKind::Message, message.message_id.to_string(), summary))
    }

    async fn explain_undelivered(&self, message: WaitingMessage) -> Result<Explanation> {
        let mut reasons = Reasons::default();
        self.broker_reasons(&self.status_of_messages().await?, &mut reasons);
        self.undelivered_reason(&message, &mut reasons);
        let first = self.undelivered(Some(message.conversation_handle), None, 1, 0).await?.pop();
        if let Some(first) = first.filter(|first| first.message_id != message.message_id) {
            self.undelivered_reason(&first, &mut reasons);
        }
        let summary = format!(
            "message {} of conversation {} on its way to service '{}'",
            message.message_sequence_number, message.conversation_handle, message.to_service_name
        );
        Ok(reasons.of(SubjectKind::Message, message.message_id.to_string(), summary))
    }

    async fn explain_work_queue(&self, name: &str) -> Result<Explanation> {
        let mut reasons = Reasons::default();
        let queues = self.work_queues().await?;
        let limits = self.work_limits(name);
        let summary = match queues.into_iter().find(|queue| queue.name == name) {
            None => format!("work queue '{name}'"),
            Some(queue) => {
                work_reasons(&queue, !limits.is_empty(), &mut reasons);
                let (ready, taken, scheduled) = (jobs(queue.ready), queue.taken, queue.scheduled);
                match queue.lost {
                    0 => format!("work queue '{name}' has {ready} ready, {taken} taken and {scheduled} scheduled"),
                    lost => format!(
                        "work queue '{name}' has {ready} ready, {taken} taken, {scheduled} scheduled and {lost} lost"
                    ),
                }
            }
        };
        for limit in limits {
            reasons.notes(ReasonKind::Limited, limit, "");
        }
        Ok(reasons.of(SubjectKind::WorkQueue, name.to_owned(), summary))
    }

    /// What can keep a ready job of a work queue from being taken, as its definition says.
    fn work_limits(&self, name: &str) -> Vec<String> {
        use crate::protocol::definition::{WorkNumber as N, WorkOrder};
        let catalog = self.catalog();
        let Some(settings) = catalog.work_queue(name).map(|queue| &queue.settings) else { return Vec::new() };
        let numbers = [N::MaxTaken, N::MaxTakenPerKey, N::RateJobs, N::KeyRateJobs].into_iter();
        let numbers = numbers.filter_map(|number| Some(format!("{} = {}", number.word(), settings.limit(number)?)));
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        let numbers = (!numbers.is_empty()).then(|| format!("it has limits: {numbers}"));
        let order = (settings.order == WorkOrder::FifoStrict).then(|| {
            "its ORDER is FIFO_STRICT: a job waits for those of its key that were pushed before it, also while one of them is \
             taken or waits for its next attempt; jobs without a key are one line"
                .to_owned()
        });
        numbers.into_iter().chain(order).collect()
    }
}

/// Why the group of this side is quarantined.
fn aside_reason(side: &ConversationSide, reasons: &mut Reasons) {
    match side.retry_at {
        Some(at) => reasons.blocks(
            ReasonKind::Pausing,
            format!(
                "its conversation group pauses until {at} after a rollback, as the RETRY of queue '{}' says",
                side.queue
            ),
            format!("wait, or end the pause with `dialoq release {}`", side.conversation_group_id),
        ),
        None => reasons.blocks(
            ReasonKind::Quarantined,
            "poison handling has quarantined its conversation group",
            format!("find out why its messages are rolled back, then `dialoq release {}`", side.conversation_group_id),
        ),
    }
}

fn off_reason(queue: &QueueStatus, reasons: &mut Reasons) {
    if queue.is_receive_enabled {
        return;
    }
    let why = match &queue.off {
        None => String::new(),
        Some(off) => match (off.by, &off.reason) {
            (OffBy::Poison, _) => format!(" since {} {BY_POISON}", off.since),
            (OffBy::Statement, Some(reason)) => format!(" since {}: {reason}", off.since),
            (OffBy::Statement, None) => format!(" since {} by a statement that gave no reason", off.since),
        },
    };
    let is_poison = queue.off.as_ref().is_some_and(|off| off.by == OffBy::Poison);
    let before = if is_poison { "find out why they happened, then " } else { "" };
    let advice = format!("{before}`dialoq resume {}`", shell_word(&queue.name));
    reasons.blocks(ReasonKind::QueueOff, format!("queue '{}' is off{why}", queue.name), advice);
}

fn work_reasons(queue: &WorkQueueStatus, has_limits: bool, reasons: &mut Reasons) {
    let name = shell_word(&queue.name);
    if !queue.is_enabled {
        reasons.blocks(ReasonKind::Paused, "it is paused", format!("`dialoq work resume {name}`"));
    }
    if queue.scheduled > 0 {
        let what = format!(
            "{} for a later time: a delay, or the back-off after a failure",
            of_jobs(queue.scheduled, "waits", "wait")
        );
        reasons.notes(ReasonKind::NotDue, what, format!("`dialoq work list {name} --state scheduled` shows when"));
    }
    if queue.dead > 0 {
        let what = format!("{} without an attempt left", of_jobs(queue.dead, "is", "are"));
        reasons.notes(ReasonKind::Dead, what, format!("`dialoq work redrive {name}` gives them new ones"));
    }
    if queue.lost > 0 {
        let (are, its) = if queue.lost == 1 { ("is", "its") } else { ("are", "their") };
        let reader = if queue.lost == 1 { "reader has" } else { "readers have" };
        reasons.notes(
            ReasonKind::NoReader,
            format!("{} lost: {its} lease is over, and {its} {reader} reported nothing", of_jobs(queue.lost, are, are)),
            format!(
                "see that a process that opens the broker for changes runs, such as `dialoq work run {name} --exec PROGRAM`: \
                 it gives them to other readers, or makes them dead"
            ),
        );
    }
    match (queue.ready, queue.taken) {
        (0, 0) if queue.lost > 0 => {}
        (0, 0) => reasons.notes(ReasonKind::Empty, "no job is ready", ""),
        (0, taken) => {
            reasons.notes(ReasonKind::Readers, format!("{} being worked on", of_jobs(taken, "is", "are")), "")
        }
        (ready, 0) if queue.is_enabled => reasons.notes(
            ReasonKind::NoReader,
            format!("{} ready and none is taken", of_jobs(ready, "is", "are")),
            format!(
                "{}see that a reader runs, such as `dialoq work run {name} --exec PROGRAM`",
                if has_limits { "unless what follows holds them up, " } else { "" }
            ),
        ),
        (ready, taken) => {
            reasons.notes(
                ReasonKind::Readers,
                format!("{} ready, {} being worked on", of_jobs(ready, "is", "are"), of_jobs(taken, "is", "are")),
                "",
            );
        }
    }
}

/// The processes that activate a queue.
fn activators(queue: &QueueStatus) -> String {
    match queue.monitors.len() {
        1 => "1 process activates it".to_owned(),
        processes => format!("{processes} processes activate it"),
    }
}

fn messages(number: u64) -> String {
    if number == 1 { "1 message".to_owned() } else { format!("{number} messages") }
}

fn of_messages(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", messages(number), if number == 1 { one } else { many })
}

fn jobs(number: u64) -> String {
    if number == 1 { "1 job".to_owned() } else { format!("{number} jobs") }
}

fn of_jobs(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", jobs(number), if number == 1 { one } else { many })
}
