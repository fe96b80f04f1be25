//! Poison messages: five rollbacks in a row disable the queue, or quarantine the guilty group (`docs/semantics.md`,
//! "Poison messages"). A queue with a retry policy pauses between the attempts at a group.

use super::change::Change;
use super::effects::{Arrival, Effects};
use super::receive_order::oldest_waiting;
use super::session::{FirstReceived, Session};
use super::state::Core;
use crate::catalog::{OffBy, Queue, QueueOff};
use crate::error::{Code, Error};
use crate::protocol::EndForm;
use crate::protocol::definition::{AfterRetries, QueueEvent, RetryPolicy};
use crate::time::Timestamp;
use std::sync::Arc;

/// Rollbacks in a row that make a message poison, on a queue without a retry policy.
pub const POISON_ROLLBACKS: u8 = 5;

/// How a session ended that did not commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    RolledBack,
    /// Without its caller.
    Lost,
}

impl Core {
    pub(super) fn count_rollback(&mut self, session: &Session, ended: Ended, now: Timestamp, effects: &mut Effects) {
        for &(queue_id, losses_before) in &session.received_queues {
            let Some(queue) = self.catalog.queues.get(&queue_id) else { continue };
            if !queue.is_poison_message_handling_enabled {
                continue;
            }
            let policy = queue.retry;
            if policy.is_some() || queue.is_poison_quarantine_enabled {
                for (&group, &first) in &session.received_from {
                    if self.groups.get(group).is_some_and(|group| group.queue_id == queue_id) {
                        match policy {
                            Some(policy) => {
                                self.retry_group(group, first, policy, session.reason.as_deref(), now, effects);
                            }
                            None => self.count_group_rollback(group),
                        }
                    }
                }
                continue;
            }
            if ended == Ended::Lost && !self.note_loss(queue_id, losses_before) {
                continue;
            }
            let state = self.queue_state(queue_id);
            state.rollbacks += 1;
            if state.rollbacks >= POISON_ROLLBACKS {
                state.forget_rollbacks();
                self.disable_queue(queue_id, now, effects);
            }
        }
    }

    /// Whether the loss of a session counts: not if it was open when another one was lost that has counted. The end of a process with five
    /// readers is one attempt, not five.
    fn note_loss(&mut self, queue_id: i32, losses_before: u64) -> bool {
        let counts = self.queue_state(queue_id).last_loss <= losses_before;
        if counts {
            self.losses += 1;
            self.queue_state(queue_id).last_loss = self.losses;
        }
        counts
    }

    fn count_group_rollback(&mut self, group: u32) {
        let rollbacks = self.groups[group].rollbacks.saturating_add(1);
        let is_poison = rollbacks >= POISON_ROLLBACKS.into();
        // A conversation that joins the group later begins at 0.
        self.set_group_rollbacks(group, if is_poison { 0 } else { rollbacks });
        if is_poison {
            self.set_quarantined(group, true);
        }
    }

    /// An attempt at a group has failed: the group pauses, or the policy gives up on the message that was received first, or on its
    /// conversation. A timer, an Error or a message of a higher level may have come meanwhile, which no reader has seen.
    fn retry_group(
        &mut self,
        group: u32,
        first: FirstReceived,
        policy: RetryPolicy,
        reason: Option<&str>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let attempts = self.groups[group].rollbacks.saturating_add(1);
        if attempts < policy.max_attempts {
            self.set_group_rollbacks(group, attempts);
            self.pause_group(group, &policy, attempts, now);
            return;
        }
        self.set_group_rollbacks(group, 0);
        let queue_id = self.groups[group].queue_id;
        // The session still holds the group, so its conversation is there as before.
        let is_there = self.endpoints.get(first.endpoint).is_some_and(|endpoint| endpoint.group == group);
        debug_assert!(is_there, "a conversation has left a group that was held");
        match policy.then {
            AfterRetries::Quarantine => self.set_quarantined(group, true),
            AfterRetries::QueueOff => self.disable_queue(queue_id, now, effects),
            _ if !is_there => {}
            AfterRetries::EndWithError => {
                self.end_with_retries_used_up(first.endpoint, queue_id, attempts, now, effects)
            }
            AfterRetries::DeadLetter => self.bury(first, attempts, reason, now, effects),
        }
    }

    /// Sets a group aside until the pause after so many attempts is over. Conversations in a quarantine without an end stay there: the group may
    /// have others, which joined it later.
    fn pause_group(&mut self, group: u32, policy: &RetryPolicy, attempts: u16, now: Timestamp) {
        let members = self.groups[group].members.clone();
        let oldest = members.iter().map(|place| self.endpoints[*place].endpoint_id).min().unwrap_or(0);
        let pause_us = policy.pauses.after_us(oldest, attempts);
        if pause_us <= 0 {
            return;
        }
        for place in members {
            let endpoint = &self.endpoints[place];
            if endpoint.is_quarantined && endpoint.retry_at().is_none() {
                continue;
            }
            self.quarantine(place, true);
            self.rare_fields(place).retry_at = Some(Timestamp(now.0.saturating_add(pause_us)));
            self.mark_dirty(place);
            self.reschedule(place, now);
        }
    }

    /// The pause of an endpoint is over: it gives messages again.
    pub(super) fn end_pause(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        self.rare_fields(place).retry_at = None;
        self.mark_dirty(place);
        self.reschedule(place, now);
        let endpoint = &mut self.endpoints[place];
        if !std::mem::take(&mut endpoint.is_quarantined) {
            return;
        }
        let (group, level, waiting) = (endpoint.group, endpoint.priority, endpoint.waiting_rows());
        let oldest = oldest_waiting(endpoint);
        let queue_id = self.groups[group].queue_id;
        self.queue_state(queue_id).unread += waiting;
        // The pauses of a group end together. A look at all its members for each of them took 46 s for 20,000.
        let newly_ready = usize::from(oldest.is_some_and(|oldest| self.row_added(group, level, oldest)));
        effects.arrivals.push(Arrival { queue_id, newly_ready });
    }

    fn end_with_retries_used_up(
        &mut self,
        place: u32,
        queue_id: i32,
        attempts: u16,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let queue = self.catalog.queues.get(&queue_id).map_or("", |queue| &queue.name);
        let description = Error::retries_used_up(queue, attempts).message().to_owned();
        self.apply_end(place, EndForm::WithError { code: Code::RETRIES_USED_UP.0.into(), description }, now, effects);
    }

    /// Sets the count of a group, which the rows of its endpoints keep.
    pub(super) fn set_group_rollbacks(&mut self, group: u32, rollbacks: u16) {
        if std::mem::replace(&mut self.groups[group].rollbacks, rollbacks) != rollbacks {
            for place in self.groups[group].members.clone() {
                self.mark_dirty(place);
            }
        }
    }

    fn disable_queue(&mut self, queue_id: i32, now: Timestamp, effects: &mut Effects) {
        let mut catalog = (*self.catalog).clone();
        // Transactions that were open when it was turned off may roll back five times more.
        let is_on = |queue: &&mut Arc<Queue>| queue.is_receive_enabled;
        let Some(queue) = catalog.queues.get_mut(&queue_id).filter(is_on) else { return };
        let disabled = Arc::make_mut(queue);
        disabled.is_receive_enabled = false;
        disabled.is_enqueue_enabled = false;
        disabled.off = Some(QueueOff { since: Some(now), by: OffBy::Poison, reason: None });
        effects.changes.push(Change::PutQueue(queue.clone()));
        effects.catalog_changed = true;
        self.set_catalog(Arc::new(catalog));
        self.post_event(queue_id, QueueEvent::BrokerQueueDisabled, now, effects);
    }
}
