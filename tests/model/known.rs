//! The ids that a run has seen, and the verbs that name them.

use crate::steps::{Form, Op, QUEUES, Source};
use dialoq::protocol::{Addressee, BeginDialog, EndForm, Outcome, OutgoingMessage, ReceiveFrom, Relation, Verb};
use dialoq::{ConversationHandle, Error, GroupId};
use std::sync::Arc;
use uuid::Uuid;

pub(crate) const TYPES: [&str; 6] = ["Text", "Nothing", "Xml", "Unlisted", "OfInitiators", "OfTargets"];

/// One side's ids of what the steps name by place; both sides learn them in the same order.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) handles: Vec<ConversationHandle>,
    pub(crate) groups: Vec<GroupId>,
}

impl Known {
    pub(crate) fn learn(&mut self, outcome: &Result<Outcome, Error>) {
        match outcome {
            Ok(Outcome::Began { handle, group, .. }) => self.add(Some(*handle), *group),
            Ok(Outcome::Received(messages)) => {
                for message in messages {
                    self.add(Some(message.conversation_handle), message.conversation_group_id);
                }
            }
            Ok(Outcome::Group(Some(group))) => self.add(None, *group),
            _ => {}
        }
    }

    fn add(&mut self, handle: Option<ConversationHandle>, group: GroupId) {
        if let Some(handle) = handle.filter(|handle| !self.handles.contains(handle)) {
            self.handles.push(handle);
        }
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
    }

    /// One of those seen so far; before the first, an unknown one.
    pub(crate) fn handle(&self, place: usize) -> ConversationHandle {
        let unknown = ConversationHandle(Uuid::from_u128(u128::MAX));
        self.handles.get(place % self.handles.len().max(1)).copied().unwrap_or(unknown)
    }

    pub(crate) fn group(&self, place: usize) -> GroupId {
        let unknown = GroupId(Uuid::from_u128(u128::MAX));
        self.groups.get(place % self.groups.len().max(1)).copied().unwrap_or(unknown)
    }

    pub(crate) fn verb(&self, op: &Op, number: u64) -> Verb {
        match op {
            Op::Dialog { from, to, related, group, lifetime } => Verb::BeginDialog(BeginDialog {
                from_service: ["I", "J"][*from].into(),
                to_service: ["T", "U"][*to].into(),
                addressee: Addressee::Anywhere,
                contract: Some("C".into()),
                related: match (related, group) {
                    (Some(place), _) => Relation::Conversation(self.handle(*place)),
                    (None, Some(place)) if place.is_multiple_of(3) => Relation::Group(self.group(*place)),
                    (None, Some(place)) => Relation::Group(GroupId(Uuid::from_u128((1 << 120) + *place as u128 % 4))),
                    (None, None) => Relation::None,
                },
                lifetime_seconds: lifetime.map(i64::from),
                encryption: false,
            }),
            Op::Send { first, second, message_type } => Verb::Send {
                handles: self.addressed(*first, *second),
                message_type: Some(TYPES[*message_type].into()),
                body: Some(Arc::new(number.to_string().into_bytes())),
                trace: None,
            },
            Op::SendEach(messages) => {
                let body = Some(Arc::new(number.to_string().into_bytes()));
                let message = |(place, message_type): &(usize, usize)| OutgoingMessage {
                    handle: self.handle(*place),
                    message_type: Some(TYPES[*message_type].into()),
                    body: body.clone(),
                    trace: None,
                };
                Verb::SendEach(messages.iter().map(message).collect())
            }
            Op::Receive { queue, top, from } => Verb::Receive {
                queue: QUEUES[*queue].into(),
                top: top.map(u64::from),
                from: match from {
                    Source::Any => ReceiveFrom::Any,
                    Source::Conversation(place) => ReceiveFrom::Conversation(self.handle(*place)),
                    Source::Group(place) => ReceiveFrom::Group(self.group(*place)),
                    Source::Levels(lowest, highest) => ReceiveFrom::Levels { lowest: *lowest, highest: *highest },
                    Source::Oldest => ReceiveFrom::Oldest,
                },
            },
            Op::GetGroup { queue } => Verb::GetConversationGroup { queue: QUEUES[*queue].into() },
            Op::Move { conversation, group } => {
                Verb::MoveConversation { handle: self.handle(*conversation), group: self.group(*group) }
            }
            Op::End { conversation, form } => Verb::EndConversation {
                handle: self.handle(*conversation),
                form: match form {
                    Form::Plain => EndForm::Plain,
                    Form::WithError => EndForm::WithError { code: 7, description: "given up".into() },
                    Form::Cleanup => EndForm::Cleanup,
                },
            },
            Op::Timer { conversation, seconds } => Verb::BeginConversationTimer {
                handle: self.handle(*conversation),
                timeout_seconds: i64::from(*seconds),
            },
            Op::Reprioritise { conversation, level } => {
                Verb::Reprioritise { handle: self.handle(*conversation), level: *level }
            }
            Op::CancelTimer { conversation } => Verb::CancelConversationTimer { handle: self.handle(*conversation) },
            Op::Status { conversation } => Verb::GetTransmissionStatus { handle: self.handle(*conversation) },
            Op::Release { group } => Verb::ReleaseQuarantine { group: self.group(*group) },
        }
    }

    pub(crate) fn addressed(&self, first: usize, second: Option<usize>) -> Vec<ConversationHandle> {
        [Some(first), second].into_iter().flatten().map(|place| self.handle(place)).collect()
    }
}
