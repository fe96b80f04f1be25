//! "Why is this not moving": what holds a queue, a conversation or a message up.

mod work_queue;

use super::conversation::{ConversationFilter, ConversationSide};
use super::dead_letters::{DeadLetter, DeadLetterFilter};
use super::definition_wait::HELD_BACK_ADVICE;
use super::doctor::rough;
use super::names::NameKind;
use super::peek::{MessageFilter, PeekedMessage, WaitingMessage};
use super::shell::{shell_command, shell_option};
use super::{BY_POISON, QueueStatus, Status};
use crate::broker::Broker;
use crate::catalog::OffBy;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId, MessageId};
use crate::protocol::ConversationState;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
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
    /// A definition waits for open transactions, and holds receives back.
    ReceivesHeld,
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
                let list = shell_command("dialoq work list", &namesake.name, "");
                found.summary = format!("{}; there is a work queue of this name too, see `{list}`", found.summary);
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
                    _ if catalog.work_schedule(subject).is_some() => {
                        let next = shell_command("dialoq work schedule next", subject, "");
                        format!("; it is the name of a work schedule: `dialoq work schedule list`, `{next}`")
                    }
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
        if let Some(letter) = self.dead_letter_of(id).await? {
            return Ok(explain_dead(&letter));
        }
        Err(Error::new(
            Code::CONVERSATION_NOT_FOUND,
            format!("no message, conversation or group {id} is here: it was received or has ended, or never was"),
        ))
    }

    /// The dead letter of a message, or the first one of a conversation that is gone.
    async fn dead_letter_of(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        let all = DeadLetterFilter::default();
        if let Some(letter) = self.dead_letters_of(&all, Some(MessageId(id)), 1, 0).await?.pop() {
            return Ok(Some(letter));
        }
        let of_conversation = DeadLetterFilter { conversation: Some(ConversationHandle(id)), ..all };
        Ok(self.dead_letters(&of_conversation, 1, 0).await?.pop())
    }

    async fn explain_queue(&self, name: &str) -> Result<Explanation> {
        let status = self.status_of_messages().await?;
        let mut reasons = Reasons::default();
        let waiting = self.queue_reasons(&status, name, &mut reasons);
        // RECEIVE passes over the groups that sessions hold; the first one is named.
        let mut is_known = true;
        if let Some(first) = self.messages(Some(name), &MessageFilter::default(), None, 1, 0).await?.first() {
            let group = first.conversation_group_id;
            let found = self.lock_holder(group).await;
            is_known = found.is_ok();
            match found {
                Ok(None) => {}
                Ok(Some(holder)) => reasons.notes(
                    ReasonKind::Held,
                    format!("its first message, of conversation group {group}, is held by {holder}"),
                    "",
                ),
                Err(error) => reasons.notes(
                    ReasonKind::Held,
                    format!(
                        "which session holds its first message, of conversation group {group}, is not known: {}",
                        error.message()
                    ),
                    "",
                ),
            }
        }
        // An owner of a file that is stopped would be waited for again.
        if is_known {
            self.held_back_reason(&status, name, &mut reasons).await;
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
        if quarantined > pausing {
            reasons.0.push(Reason {
                kind: ReasonKind::Quarantined,
                is_blocking: waiting == quarantined,
                what: format!("poison handling has quarantined {}", messages(quarantined - pausing)),
                advice: format!(
                    "look at them with `{}`, and release a group with `dialoq release GROUP`",
                    shell_command("dialoq peek", name, "")
                ),
            });
        }
        if queue.dead_letters > 0 {
            let of_it = shell_option("--queue", name);
            let (number, plural) = (queue.dead_letters, if queue.dead_letters == 1 { "" } else { "s" });
            reasons.notes(
                ReasonKind::DeadLetters,
                format!("{number} dead letter{plural}: messages that used up their attempts"),
                format!("look at them with `dialoq dead list {of_it}`, then `dialoq dead redrive {of_it}`"),
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
        let activate = shell_command("dialoq activate", &queue.name, "--exec PROGRAM");
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
                    format!("start one, such as `{activate}`"),
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
                        None => ("activation is off", format!("receive from it, or run `{activate}`")),
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
        let mut queues = BTreeSet::new();
        for side in &sides {
            if self.side_reasons(&status, side, &mut reasons).await? {
                queues.insert(&*side.queue);
            }
        }
        if let Some(side) = sides.iter().find(|side| side.is_quarantined) {
            aside_reason(side, &mut reasons);
        }
        let groups: BTreeMap<_, _> =
            sides.iter().map(|side| (side.conversation_group_id, &*side.service_name)).collect();
        for (group, service) in groups {
            // An owner of a file that is stopped would be waited for again.
            if !self.held_reason(group, service, &mut reasons).await {
                queues.clear();
                break;
            }
        }
        for queue in queues {
            self.held_back_reason(&status, queue, &mut reasons).await;
        }
        Ok(reasons.of(kind, id.to_string(), summary))
    }

    /// What holds a side up. Returns whether messages wait for a RECEIVE on it.
    async fn side_reasons(&self, status: &Status, side: &ConversationSide, reasons: &mut Reasons) -> Result<bool> {
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
                let (text, before) = match error {
                    Some((code, text)) => (format!("Error {code}: {text}"), "receive the Error, and "),
                    None => ("its Error message was received".to_owned(), ""),
                };
                reasons.blocks(
                    ReasonKind::InError,
                    format!("the side of service '{at}' is in error: {text}"),
                    format!("{before}`dialoq end {handle}`"),
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
        let first = self.messages(None, &filter, None, 1, 0).await?.pop();
        if let Some(first) = &first {
            self.waiting_reasons(status, first, reasons).await?;
        }
        let filter = DeadLetterFilter { conversation: Some(handle), ..DeadLetterFilter::default() };
        let letters = self.dead_letters(&filter, 2, 0).await?;
        if let Some(first) = letters.first() {
            let (what, mut advice) = dead_letter_texts(first);
            if letters.len() > 1 {
                advice.push_str(&format!("; it is not the only one: `dialoq dead list --conversation {handle}`"));
            }
            reasons.notes(ReasonKind::DeadLetters, what, advice);
        }
        Ok(first.is_some_and(|first| first.state == super::peek::MessageState::Waiting))
    }

    /// That a definition holds receives back from a queue. RECEIVE refuses a queue that is off.
    async fn held_back_reason(&self, status: &Status, queue: &str, reasons: &mut Reasons) {
        let is_on = status.queues.iter().any(|row| row.name == queue && row.is_receive_enabled);
        if is_on && let Some(what) = self.receives_held_back(queue).await {
            reasons.blocks(ReasonKind::ReceivesHeld, what, HELD_BACK_ADVICE);
        }
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
        let (hint, is_mistake) = self.waiting_hint(code, &message.to_service_name);
        let mut advice = hint.unwrap_or_default();
        if is_mistake {
            let handle = message.conversation_handle;
            advice.push_str(&format!("; or erase its side with what it sent: `dialoq end {handle} --cleanup`"));
        }
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
            advice,
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
                format!(
                    "raise its level with `dialoq reprioritise LEVEL {}`, or use a strategy that does not starve low levels",
                    message.conversation_handle
                ),
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
        let is_known = self.held_reason(message.conversation_group_id, &message.service_name, &mut reasons).await;
        if is_known && message.state == super::peek::MessageState::Waiting {
            self.held_back_reason(&status, &message.queue, &mut reasons).await;
        }
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
}

/// A dead letter, and what to do with it.
fn dead_letter_texts(letter: &DeadLetter) -> (String, String) {
    let DeadLetter { dead_letter_id: id, message_sequence_number, died_at, attempts, reason, .. } = letter;
    let plural = if *attempts == 1 { "" } else { "s" };
    let why = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let what = format!("message {message_sequence_number} died at {died_at} after {attempts} attempt{plural}{why}");
    let advice = match letter.is_conversation_open {
        true => format!("look at it with `dialoq dead show {id}`, mend what failed, then `dialoq dead redrive {id}`"),
        false => format!(
            "look at it with `dialoq dead show {id}`; its conversation has ended, so it can only be removed: `dialoq dead purge {id}`"
        ),
    };
    (what, advice)
}

fn explain_dead(letter: &DeadLetter) -> Explanation {
    let mut reasons = Reasons::default();
    let (what, advice) = dead_letter_texts(letter);
    reasons.blocks(ReasonKind::DeadLetters, what, advice);
    let summary = format!(
        "message {} of conversation {}, of type '{}', is a dead letter of queue '{}'",
        letter.message_sequence_number, letter.conversation_handle, letter.message_type_name, letter.queue
    );
    reasons.of(SubjectKind::Message, letter.message_id.to_string(), summary)
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
    let advice = format!("{before}`{}`", shell_command("dialoq resume", &queue.name, ""));
    reasons.blocks(ReasonKind::QueueOff, format!("queue '{}' is off{why}", queue.name), advice);
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
