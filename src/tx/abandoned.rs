//! What a dropped call of a transaction has taken.

use super::turns::Call;
use super::{AbandonedResult, Done, Record, State, Tx, VerbEffect, holds_something};
use crate::catalog::same_name;
use crate::id::ConversationHandle;
use crate::protocol::work::{Job, WorkVerb};
use crate::protocol::{Message, Outcome, ReceiveFrom, Verb};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

impl Tx {
    /// Whether a dropped call is still under way after this time.
    pub(crate) async fn is_at_work_after(&self, time: Duration) -> bool {
        timeout(time, self.idle()).await.is_err()
    }

    /// The jobs that dropped takes of this transaction have taken, whatever they asked for.
    pub(crate) async fn abandoned_jobs(&self) -> Vec<Job> {
        self.idle().await;
        let mut found = Vec::new();
        self.state().record.abandoned.retain_mut(|abandoned| match &mut abandoned.outcome {
            Outcome::Jobs(jobs) if abandoned.owner.is_none() => {
                found.append(jobs);
                false
            }
            _ => true,
        });
        if !found.is_empty() {
            self.seen.set();
        }
        found
    }
}

impl State {
    /// What an earlier verb took for a caller that went away, if this call may receive it, and the place that it had.
    pub(super) fn abandoned_for(&mut self, call: &Call) -> Option<(usize, Done)> {
        let Call::Verb(verb) = call else { return None };
        let (place, outcome) = self.take_abandoned(verb)?;
        Some((place, Done::Verb(VerbEffect::Receives(verb.clone()), Ok(outcome))))
    }

    fn take_abandoned(&mut self, verb: &Verb) -> Option<(usize, Outcome)> {
        let abandoned = &mut self.record.abandoned;
        if let Verb::Receive { queue, top, from } = verb {
            let most = top.map_or(usize::MAX, |top| usize::try_from(top).unwrap_or(usize::MAX));
            let (place, messages) = take_messages(abandoned, queue, most, *from)?;
            return Some((place, Outcome::Received(messages)));
        }
        let is_alike =
            |abandoned: &AbandonedResult| abandoned.owner.is_none() && takes_from_same(&abandoned.verb, verb);
        let place = abandoned.iter().position(is_alike)?;
        let most = match verb {
            Verb::Work(WorkVerb::Take(take)) => usize::try_from(take.count).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let outcome = match &mut abandoned[place].outcome {
            Outcome::Jobs(jobs) if jobs.len() > most => {
                let rest = jobs.split_off(most);
                Outcome::Jobs(std::mem::replace(jobs, rest))
            }
            _ => abandoned.remove(place).outcome,
        };
        Some((place, outcome))
    }
}

impl Record {
    /// Keeps the result of a caller that is there and is not polled now, if there is something to keep. Messages that come from an
    /// abandoned result stay before the rest of it: it has the later messages of their conversation.
    pub(super) fn keep_result_of(&mut self, owner: u64, done: &Done, place: usize) -> bool {
        if let Done::Verb(VerbEffect::Receives(verb), Ok(outcome)) = done
            && holds_something(outcome)
        {
            let (verb, outcome) = (verb.clone(), outcome.clone());
            self.abandoned.insert(place, AbandonedResult { verb, outcome, owner: Some(owner) });
            return true;
        }
        let failure = done.failure();
        let is_failure = failure.is_some();
        self.unseen_failures.extend(failure.map(|error| (owner, Arc::new(error))));
        is_failure
    }

    /// Its caller gets it now.
    pub(super) fn forget_result_of(&mut self, owner: u64) {
        self.abandoned.retain(|abandoned| abandoned.owner != Some(owner));
        self.unseen_failures.retain(|(turn, _)| *turn != owner);
    }

    /// Its caller has gone away.
    pub(super) fn abandon_result_of(&mut self, owner: u64) {
        for abandoned in self.abandoned.iter_mut().filter(|abandoned| abandoned.owner == Some(owner)) {
            abandoned.owner = None;
        }
        if let Some(place) = self.unseen_failures.iter().position(|(turn, _)| *turn == owner) {
            let (_, error) = self.unseen_failures.remove(place);
            self.failed.get_or_insert(error);
        }
    }

    /// END deletes the unread messages of its conversation.
    pub(super) fn drop_abandoned_of(&mut self, handle: ConversationHandle) {
        self.abandoned.retain_mut(|abandoned| match &mut abandoned.outcome {
            Outcome::Received(messages) => {
                messages.retain(|message| message.conversation_handle != handle);
                !messages.is_empty()
            }
            _ => true,
        });
    }
}

/// Messages that a RECEIVE may receive, of the first dropped RECEIVE that took such: one with another filter gave it the later
/// messages of their conversation, and the commit was not refused.
fn take_messages(
    abandoned: &mut Vec<AbandonedResult>,
    queue: &str,
    most: usize,
    from: ReceiveFrom,
) -> Option<(usize, Vec<Message>)> {
    for place in 0..abandoned.len() {
        let AbandonedResult {
            verb: Verb::Receive { queue: of, from: here, .. },
            outcome: Outcome::Received(messages),
            owner: None,
        } = &mut abandoned[place]
        else {
            continue;
        };
        if !same_name(of, queue) {
            continue;
        }
        // A group has the highest level of its messages.
        let is_of_levels = messages.iter().any(|message| is_of(message, from));
        let is_whole = *here == from || matches!(from, ReceiveFrom::Levels { .. }) && is_of_levels;
        let mut count = 0;
        let (taken, rest): (Vec<_>, Vec<_>) = std::mem::take(messages).into_iter().partition(|message| {
            let is_taken = count < most && (is_whole || is_of(message, from));
            count += usize::from(is_taken);
            is_taken
        });
        *messages = rest;
        if messages.is_empty() {
            abandoned.remove(place);
        }
        if !taken.is_empty() {
            return Some((place, taken));
        }
    }
    None
}

fn is_of(message: &Message, from: ReceiveFrom) -> bool {
    match from {
        ReceiveFrom::Any | ReceiveFrom::Oldest => true,
        ReceiveFrom::Conversation(handle) => message.conversation_handle == handle,
        ReceiveFrom::Group(group) => message.conversation_group_id == group,
        ReceiveFrom::Levels { lowest, highest } => (lowest..=highest).contains(&message.priority),
    }
}

/// Whether two verbs lock the next group of the same queue, or take the same kind of jobs.
fn takes_from_same(one: &Verb, other: &Verb) -> bool {
    match (one, other) {
        (Verb::GetConversationGroup { queue: a }, Verb::GetConversationGroup { queue: b }) => same_name(a, b),
        (Verb::Work(WorkVerb::Take(one)), Verb::Work(WorkVerb::Take(other))) => {
            let is_alike = one.job_type == other.job_type && one.from == other.from && one.hold == other.hold;
            is_alike && same_name(&one.queue, &other.queue)
        }
        _ => false,
    }
}
