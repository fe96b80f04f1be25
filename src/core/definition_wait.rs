//! Definitions that need all conversations of a service at one moment, while transactions keep some of them busy: after a second
//! such a definition holds receives back, until it has them (`docs/locks.md`, "Each verb").

use super::effects::{Arrival, Effects};
use super::endpoint::Endpoint;
use super::session::Session;
use super::state::Core;
use crate::catalog::apply::Consequence;
use crate::time::Timestamp;
use std::time::Duration;

/// How long a definition waits before it holds receives back, and for how long it does that the first time.
const FIRST: Duration = Duration::from_secs(1);
/// The longest time that receives are held back at once.
const LONGEST: Duration = Duration::from_secs(32);
/// A definition that was not tried for so long has been given up.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// When a definition that waits holds receives back: after a second for one, then after as long a pause for two, and so on.
#[derive(Debug, Clone, Copy)]
pub struct DefinitionWait {
    /// The end of the time in which receives are held back; `None` while they are not.
    held_until: Option<Timestamp>,
    /// From then on they are held back, or once more: as long as the time before.
    next_hold: Timestamp,
    hold_for: Duration,
}

impl DefinitionWait {
    /// A wait that begins now.
    pub fn begin(now: Timestamp) -> Self {
        Self { held_until: None, next_hold: now.after(FIRST), hold_for: FIRST }
    }

    /// For a definition that still waits: for how long receives are held back from now on, if it is time for that.
    pub fn hold(&mut self, now: Timestamp) -> Option<Duration> {
        // Further away than a hold and the pause after it: the clock was set back.
        if self.next_hold.since(now) > LONGEST * 2 {
            *self = Self::begin(now);
        }
        if now < self.next_hold {
            return None;
        }
        let hold_for = self.hold_for;
        let until = now.after(hold_for);
        *self = Self { held_until: Some(until), next_hold: until.after(hold_for), hold_for: LONGEST.min(hold_for * 2) };
        Some(hold_for)
    }

    pub(super) fn is_holding(&self) -> bool {
        self.held_until.is_some()
    }
}

impl Core {
    /// Whether a session may lock a free group to receive from it. A transaction that holds one already finishes its work: a
    /// definition may wait for what it holds.
    pub(super) fn may_receive(&self, session: &Session, queue_id: i32) -> bool {
        !session.locks.is_empty() || !self.queues.get(&queue_id).is_some_and(super::receive_order::QueueState::is_held)
    }

    /// After [`Step::Blocked`](super::Step::Blocked): if it was a definition that is blocked, it may hold receives back from now on.
    /// Returns for how long, if it does.
    pub fn definition_waits(&mut self, now: Timestamp, effects: &mut Effects) -> Option<Duration> {
        let mut longest = None;
        for queue_id in std::mem::take(&mut self.blocked_queues) {
            let known = self.queues.get(&queue_id).and_then(|queue| queue.definition_wait);
            let mut wait = known
                .filter(|wait| now.since(wait.next_hold) < FORGOTTEN)
                .unwrap_or_else(|| DefinitionWait::begin(now));
            if let Some(hold_for) = wait.hold(now) {
                longest = longest.max(Some(hold_for));
                self.holds.insert((now.after(hold_for), queue_id));
                effects.arrivals.push(Arrival { queue_id, newly_ready: 0 });
            }
            self.queue_state(queue_id).definition_wait = Some(wait);
        }
        longest
    }

    /// Ends the holds whose time is over, and wakes the receivers.
    pub(super) fn end_holds(&mut self, now: Timestamp, effects: &mut Effects) {
        // No hold is longer: the clock was set back.
        let latest = now.after(LONGEST);
        let is_over = |until: Timestamp| until <= now || until > latest;
        let over: Vec<_> = self.holds.iter().copied().filter(|(until, _)| is_over(*until)).collect();
        for (until, queue_id) in over {
            self.holds.remove(&(until, queue_id));
            if let Some(wait) = self.queues.get_mut(&queue_id).and_then(|queue| queue.definition_wait.as_mut())
                && wait.held_until == Some(until)
            {
                wait.held_until = None;
                effects.arrivals.push(Arrival { queue_id, newly_ready: self.depth(queue_id).ready_groups });
            }
        }
    }

    /// The queues that receives are held back from, each with the end of its hold.
    pub fn receive_holds(&self) -> Vec<(i32, Timestamp)> {
        let until = |queue: &super::receive_order::QueueState| queue.definition_wait.and_then(|wait| wait.held_until);
        let mut holds: Vec<_> = self.queues.iter().filter_map(|(id, queue)| Some((*id, until(queue)?))).collect();
        holds.sort_unstable();
        holds
    }

    /// A definition that needs conversations is done: the holds end. Another one that waits begins its second again.
    pub(super) fn end_definition_waits(&mut self, effects: &mut Effects) {
        self.holds.clear();
        let mut held: Vec<i32> = Vec::new();
        for (queue_id, queue) in &mut self.queues {
            if queue.definition_wait.take().is_some_and(|wait| wait.is_holding()) {
                held.push(*queue_id);
            }
        }
        held.sort_unstable();
        for queue_id in held {
            effects.arrivals.push(Arrival { queue_id, newly_ready: self.depth(queue_id).ready_groups });
        }
    }

    /// The queues whose conversations a consequence needs all at one moment.
    pub(super) fn queues_needed(&self, consequence: &Consequence) -> Vec<i32> {
        if !needs_conversations(consequence) {
            return Vec::new();
        }
        let is_needed = |place: &u32| needs(consequence, &self.endpoints[*place]);
        let needed = self.groups.iter().filter(|(_, group)| group.members.iter().any(is_needed));
        let mut queue_ids: Vec<i32> = needed.map(|(_, group)| group.queue_id).collect();
        queue_ids.sort_unstable();
        queue_ids.dedup();
        queue_ids
    }
}

/// Whether a definition with this consequence needs conversations unlocked.
pub(super) fn needs_conversations(consequence: &Consequence) -> bool {
    match consequence {
        Consequence::ContractDropped { .. }
        | Consequence::ServiceMoved { .. }
        | Consequence::ServiceDropped { .. }
        | Consequence::NewBroker => true,
        // The others add rows only, or nothing: arrivals need no lock.
        _ => false,
    }
}

/// Whether it needs this one.
pub(super) fn needs(consequence: &Consequence, endpoint: &Endpoint) -> bool {
    match consequence {
        Consequence::ContractDropped { contract_id } => endpoint.contract_id == *contract_id,
        Consequence::ServiceMoved { service_id, .. } | Consequence::ServiceDropped { service_id, .. } => {
            endpoint.service_id == *service_id
        }
        _ => needs_conversations(consequence),
    }
}
