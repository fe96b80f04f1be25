//! Test support: queues in memory under a clock counted by hand, and a reader that runs a strategy over them.

use super::{Found, Served, Strategy, WhenEmpty};
use crate::id::ConversationHandle;
use crate::protocol::ReceiveFrom;
use crate::time::Timestamp;
use uuid::Uuid;

/// The handle of a conversation of the rig.
pub(super) fn handle(conversation: u64) -> ConversationHandle {
    ConversationHandle(Uuid::from_u128(u128::from(conversation)))
}

/// A message as it was served.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Taken {
    pub(super) queue: String,
    pub(super) level: u8,
    pub(super) conversation: u64,
    pub(super) sent_ms: u64,
    /// When it was first its conversation's oldest message.
    pub(super) offered_ms: u64,
    pub(super) at_ms: u64,
    /// The queues that had messages when it was received.
    pub(super) ready_before: Vec<String>,
}

/// Queues, messages to come, and one reader. A conversation is a group of its own.
pub(super) struct Rig {
    service_ms: u64,
    messages: Vec<Taken>,
}

impl Rig {
    /// A reader that needs so long for a message.
    pub(super) fn new(service_ms: u64) -> Self {
        Self { service_ms, messages: Vec::new() }
    }

    /// A message that arrives at that time.
    pub(super) fn send(&mut self, at_ms: u64, queue: &str, level: u8, conversation: u64) {
        self.messages.push(Taken {
            queue: queue.to_owned(),
            level,
            conversation,
            sent_ms: at_ms,
            offered_ms: at_ms,
            at_ms: 0,
            ready_before: Vec::new(),
        });
    }

    /// Runs the strategy until it finds nothing more; returns the messages in the order they were served.
    pub(super) fn run(mut self, mut strategy: impl Strategy) -> Vec<Taken> {
        self.messages.sort_by_key(|message| message.sent_ms);
        let mut served = Vec::new();
        let mut now_ms = 0;
        loop {
            let planned_at = stamp(now_ms);
            let plan = strategy.plan(planned_at);
            assert!(!plan.attempts.is_empty(), "a plan without attempts would wait for ever");
            assert_eq!(plan, strategy.plan(planned_at), "planning twice must not change the plan");
            let mut batch = None;
            for (index, attempt) in plan.attempts.iter().enumerate() {
                let until_ms = now_ms + u64::try_from(attempt.wait.as_millis()).unwrap();
                let mut found = self.receive(&attempt.receive.queue, attempt.receive.from, attempt.receive.top, now_ms);
                while found.is_empty() && now_ms < until_ms {
                    now_ms = self.next_arrival(now_ms).unwrap_or(until_ms).min(until_ms);
                    found = self.receive(&attempt.receive.queue, attempt.receive.from, attempt.receive.top, now_ms);
                }
                if !found.is_empty() {
                    batch = Some((index, found));
                    break;
                }
            }
            let report = batch.as_ref().map(|(attempt, found)| Found {
                attempt: *attempt,
                messages: found.len() as u64,
                level: found.iter().map(|message| message.level).max().unwrap(),
                oldest: found.iter().map(|message| stamp(message.sent_ms)).min().unwrap(),
            });
            strategy.served(Served { planned_at, found: report, is_empty_certain: true });
            match batch {
                Some((_, found)) => {
                    for mut message in found {
                        message.at_ms = now_ms;
                        now_ms += self.service_ms;
                        served.push(message);
                    }
                }
                None => match (self.next_arrival(now_ms), plan.when_empty) {
                    (None, _) => return served,
                    (Some(at_ms), WhenEmpty::WaitOnAll) => now_ms = at_ms,
                    (Some(_), WhenEmpty::Replan) => {}
                },
            }
        }
    }

    /// The next arrival after now; a strategy that leaves ready messages alone is done when nothing more comes.
    fn next_arrival(&self, now_ms: u64) -> Option<u64> {
        self.messages.iter().map(|message| message.sent_ms).filter(|at_ms| *at_ms > now_ms).min()
    }

    /// RECEIVE: the group of the highest level, the oldest among equals; its messages in order.
    fn receive(&mut self, queue: &str, from: ReceiveFrom, top: Option<u64>, now_ms: u64) -> Vec<Taken> {
        let fits = |message: &Taken| {
            message.sent_ms <= now_ms
                && message.queue == queue
                && match from {
                    ReceiveFrom::Any | ReceiveFrom::Oldest => true,
                    ReceiveFrom::Levels { lowest, highest } => (lowest..=highest).contains(&message.level),
                    ReceiveFrom::Conversation(wanted) => handle(message.conversation) == wanted,
                    ReceiveFrom::Group(_) => unreachable!("no strategy asks for a group"),
                }
        };
        let best = if from == ReceiveFrom::Oldest {
            self.messages.iter().find(|message| fits(message))
        } else {
            // Sorted by arrival, so the first of the highest level is the oldest.
            self.messages.iter().filter(|message| fits(message)).rev().max_by_key(|message| message.level)
        };
        let Some(conversation) = best.map(|message| message.conversation) else { return Vec::new() };
        let mut ready: Vec<String> =
            self.messages.iter().filter(|m| m.sent_ms <= now_ms).map(|m| m.queue.clone()).collect();
        ready.sort();
        ready.dedup();
        let top = top.map_or(usize::MAX, |top| usize::try_from(top).unwrap());
        let mut taken = Vec::new();
        let mut kept = Vec::new();
        for mut message in self.messages.drain(..) {
            let of_group = message.queue == queue && message.conversation == conversation && message.sent_ms <= now_ms;
            if of_group && taken.len() < top {
                message.ready_before.clone_from(&ready);
                taken.push(message);
            } else {
                if of_group {
                    message.offered_ms = now_ms;
                }
                kept.push(message);
            }
        }
        self.messages = kept;
        taken
    }
}

fn stamp(ms: u64) -> Timestamp {
    Timestamp(i64::try_from(ms).unwrap() * 1000)
}
