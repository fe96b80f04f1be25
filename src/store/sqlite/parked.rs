//! Units and verbs that wait for a locked group, in the order they came.

use super::batch::Sender;
use super::state::TxSender;
use super::{ROOM, cost};
use crate::core::{GroupKey, Session};
use crate::error::Error;
use crate::protocol::{Unit, Verb};
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;
use uuid::Uuid;

/// A waiting unit, verb or caller.
#[expect(clippy::large_enum_variant, reason = "few wait at a time, and what waits is moved twice")]
pub(super) enum Waiter {
    /// A unit that holds nothing while it waits, and starts again from its first verb.
    Unit { unit: Unit, sender: Sender },
    /// A verb of an open transaction, which keeps its locks.
    Tx { id: u64, session: Session, verb: Verb, sender: TxSender },
    /// A caller that keeps its unit, and orders it again.
    Caller { unlocked: oneshot::Sender<()> },
}

impl Waiter {
    /// Whether the waiting caller has gone; a transaction withdraws its verb instead.
    fn has_gone(&self) -> bool {
        match self {
            Self::Unit { sender, .. } => sender.is_closed(),
            Self::Caller { unlocked } => unlocked.is_closed(),
            Self::Tx { .. } => false,
        }
    }
}

/// All waiters.
#[derive(Default)]
pub(super) struct Parked {
    queues: HashMap<GroupKey, VecDeque<Waiter>>,
    /// Callers that wait for the end of the transaction that has the id of a unit.
    of_units: Vec<(Uuid, oneshot::Sender<()>)>,
    last_id: u64,
    /// The cost of the waiting units.
    cost: u32,
}

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Each waiter with the group it waits for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupKey, &Waiter)> {
        self.queues.iter().flat_map(|(group, waiters)| waiters.iter().map(|waiter| (*group, waiter)))
    }

    /// The waiters of a group. A full queue drops the waiters whose callers have gone before it grows, so that callers
    /// that give up and come again fill no memory. A waiter just taken from the queue fits without that.
    fn queue(&mut self, group: GroupKey) -> &mut VecDeque<Waiter> {
        let queue = self.queues.entry(group).or_default();
        if queue.len() == queue.capacity() {
            queue.retain(|waiter| {
                // Evaluated once: the caller may go at any time.
                let has_gone = waiter.has_gone();
                if let (true, Waiter::Unit { unit, .. }) = (has_gone, waiter) {
                    self.cost -= cost(unit).min(ROOM);
                }
                !has_gone
            });
            queue.reserve(queue.len() + 1);
        }
        queue
    }

    /// The cost of the units that wait here, as [`cost`] counts.
    #[cfg(test)]
    pub(super) fn cost(&self) -> u32 {
        self.cost
    }

    /// Parks a unit; returns it if the parked units already cost as much as the whole room.
    pub(super) fn unit(&mut self, group: GroupKey, unit: Unit, sender: Sender) -> Result<(), (Unit, Sender)> {
        if self.cost >= ROOM {
            return Err((unit, sender));
        }
        self.cost += cost(&unit).min(ROOM);
        self.queue(group).push_back(Waiter::Unit { unit, sender });
        Ok(())
    }

    /// Parks a caller without its unit.
    pub(super) fn caller(&mut self, group: GroupKey) -> oneshot::Receiver<()> {
        let (unlocked, receiver) = oneshot::channel();
        self.queue(group).push_back(Waiter::Caller { unlocked });
        receiver
    }

    /// Parks a caller until the transaction that has the id of that unit ends.
    pub(super) fn until_unit_ends(&mut self, unit_id: Uuid) -> oneshot::Receiver<()> {
        let (ended, receiver) = oneshot::channel();
        self.of_units.push((unit_id, ended));
        receiver
    }

    /// Wakes the callers that wait for a unit, and forgets those that have gone, unless it is still under way.
    pub(super) fn wake_for_units(&mut self, is_under_way: impl Fn(Uuid) -> bool) {
        self.of_units.retain(|(unit_id, ended)| !ended.is_closed() && is_under_way(*unit_id));
    }

    /// A name for a verb that will wait.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn tx(&mut self, group: GroupKey, id: u64, session: Session, verb: Verb, sender: TxSender) {
        self.queue(group).push_back(Waiter::Tx { id, session, verb, sender });
    }

    pub(super) fn waiting_for(&self, group: GroupKey) -> usize {
        self.queues.get(&group).map_or(0, VecDeque::len)
    }

    /// Takes the waiter that has waited longest for the group.
    pub(super) fn next(&mut self, group: GroupKey) -> Option<Waiter> {
        let queue = self.queues.get_mut(&group)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&group);
        }
        if let Some(Waiter::Unit { unit, .. }) = &waiter {
            self.cost -= cost(unit).min(ROOM);
        }
        waiter
    }

    /// The waiter parked last for the group was first before its try, and is again.
    pub(super) fn last_becomes_first(&mut self, group: GroupKey) {
        if let Some(queue) = self.queues.get_mut(&group) {
            queue.rotate_right(1);
        }
    }

    /// Takes a transaction's verb back when its caller stops waiting; `None` if it has been tried already.
    pub(super) fn withdraw(&mut self, wanted: u64) -> Option<Session> {
        let is_it = |waiter: &Waiter| matches!(waiter, Waiter::Tx { id, .. } if *id == wanted);
        let (group, place) =
            self.queues.iter().find_map(|(group, queue)| Some((*group, queue.iter().position(is_it)?)))?;
        let queue = self.queues.get_mut(&group)?;
        let waiter = queue.remove(place);
        if queue.is_empty() {
            self.queues.remove(&group);
        }
        match waiter {
            Some(Waiter::Tx { session, .. }) => Some(session),
            _ => None,
        }
    }

    /// Fails all waiters.
    pub(super) fn fail(&mut self, why: impl Fn() -> Error) {
        self.cost = 0;
        self.of_units.clear();
        for waiter in std::mem::take(&mut self.queues).into_values().flatten() {
            match waiter {
                Waiter::Unit { sender, .. } => drop(sender.send(Err(why()))),
                Waiter::Tx { session, sender, .. } => drop(sender.send((session, Err(why())))),
                // The caller orders its unit again, and gets the reason then.
                Waiter::Caller { unlocked } => drop(unlocked),
            }
        }
    }
}
