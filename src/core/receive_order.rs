//! The order of RECEIVE: the best level first, then the oldest message; and the index of the groups that are ready. The
//! order within a group is in `receive.rs`.

use super::definition_wait::DefinitionWait;
use super::endpoint::Endpoint;
use super::session::Session;
use super::slab::Slab;
use super::state::Core;
use std::collections::BTreeSet;

/// The order in which groups are served: level downwards, then age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// 10 minus the level.
    pub(super) rank_from_top: u8,
    /// The smallest queuing order that waits.
    pub(super) oldest: u64,
}

impl Rank {
    pub(super) fn new(level: u8, oldest: u64) -> Self {
        Self { rank_from_top: 10 - level.min(10), oldest }
    }
}

/// The state of a queue in memory.
#[derive(Debug, Default, Clone)]
pub(super) struct QueueState {
    /// Unlocked groups with ready rows.
    pub(super) ready: BTreeSet<(Rank, u32)>,
    /// Ready rows that no session has taken.
    pub(super) unread: u64,
    /// Consecutive rollbacks of transactions that received from here.
    pub(super) rollbacks: u8,
    /// The number of the last of them that was a loss.
    pub(super) last_loss: u64,
    pub(super) definition_wait: Option<DefinitionWait>,
}

impl QueueState {
    /// A transaction that received from here has committed, or the queue is off: the row of rollbacks ends.
    pub(super) fn forget_rollbacks(&mut self) {
        self.rollbacks = 0;
        self.last_loss = 0;
    }

    /// Whether a definition holds receives back.
    pub(super) fn is_held(&self) -> bool {
        self.definition_wait.is_some_and(|wait| wait.is_holding())
    }

    /// The best ready group of these levels.
    pub(super) fn best(&self, lowest: u8, highest: u8) -> Option<(Rank, u32)> {
        let from = (Rank::new(highest, 0), 0);
        let found = *self.ready.range(from..).next()?;
        (found.0.rank_from_top <= 10 - lowest.min(10)).then_some(found)
    }

    /// The ready group whose row has waited longest, whatever its level: one lookup per occupied level.
    pub(super) fn oldest(&self) -> Option<(Rank, u32)> {
        (1..=10).filter_map(|level| self.best(level, level)).min_by_key(|(rank, _)| rank.oldest)
    }
}

impl Core {
    /// The best group this session may take: an unlocked one, or one of its own that is not yet empty.
    pub(super) fn choose(
        &mut self,
        session: &Session,
        queue_id: i32,
        lowest: u8,
        highest: u8,
        by_age: bool,
    ) -> Option<u32> {
        let own = self.ranked_own(session);
        let own = if by_age { own.oldest(queue_id) } else { own.best(queue_id, lowest, highest) };
        let queue = self.queues.get(&queue_id)?;
        let free = match by_age {
            _ if !self.may_receive(session, queue_id) => None,
            true => queue.oldest(),
            false => queue.best(lowest, highest),
        };
        let key = |rank: Rank| if by_age { (0, rank.oldest) } else { (rank.rank_from_top, rank.oldest) };
        match (free, own) {
            (Some(free), Some(own)) => Some(if key(own.0) <= key(free.0) { own.1 } else { free.1 }),
            (free, own) => free.or(own).map(|(_, group)| group),
        }
    }

    /// The rank of a group this session holds, by its rows not yet received.
    pub(super) fn remaining(&self, session: &Session, group: u32) -> Option<Rank> {
        let mut best: Option<Rank> = None;
        for place in self.conversations(session, group, None) {
            let endpoint = &self.endpoints[place];
            let overlay = session.overlay(place);
            let mut taken = overlay.map(|overlay| overlay.taken).unwrap_or_default();
            let sequenced = endpoint.rows.next(&mut taken);
            let system = endpoint.oldest_system_left(overlay);
            let Some(oldest) = sequenced.into_iter().chain(system).min() else { continue };
            let rank = Rank::new(endpoint.priority, oldest);
            best = Some(best.map_or(rank, |best| Rank {
                rank_from_top: best.rank_from_top.min(rank.rank_from_top),
                oldest: best.oldest.min(rank.oldest),
            }));
        }
        best
    }

    pub(super) fn unready(&mut self, group: u32) {
        if let Some(rank) = self.groups[group].ready.take() {
            let queue_id = self.groups[group].queue_id;
            self.queue_state(queue_id).ready.remove(&(rank, group));
        }
    }

    fn make_ready(&mut self, group: u32, rank: Rank) {
        self.groups[group].ready = Some(rank);
        let queue_id = self.groups[group].queue_id;
        self.queue_state(queue_id).ready.insert((rank, group));
    }

    /// Puts an unlocked group where it belongs in the ready index; returns whether the group became ready by this.
    pub(super) fn rerank(&mut self, group: u32) -> bool {
        let now = &self.groups[group];
        if now.owner != 0 {
            return false;
        }
        let before = now.ready;
        let after = rank(&self.endpoints, &now.members);
        if before != after {
            self.unready(group);
            if let Some(rank) = after {
                self.make_ready(group, rank);
            }
        }
        before.is_none() && after.is_some()
    }

    /// A row of this level and order was added to a group: updates its rank without scanning all members.
    pub(super) fn row_added(&mut self, group: u32, level: u8, order: u64) -> bool {
        let now = &self.groups[group];
        if now.owner != 0 {
            self.mark_stale(group);
            return false;
        }
        match now.ready {
            None => {
                self.make_ready(group, Rank::new(level, order));
                true
            }
            Some(before) => {
                let after =
                    Rank { rank_from_top: before.rank_from_top.min(10 - level), oldest: before.oldest.min(order) };
                if after != before {
                    self.unready(group);
                    self.make_ready(group, after);
                }
                false
            }
        }
    }
}

/// The rank of a group from its members' waiting rows; `None` if no row waits.
pub(super) fn rank(endpoints: &Slab<Endpoint>, members: &[u32]) -> Option<Rank> {
    let mut best: Option<(u8, u64)> = None;
    for &member in members {
        let endpoint = &endpoints[member];
        if endpoint.is_quarantined {
            continue;
        }
        let Some(oldest) = oldest_waiting(endpoint) else { continue };
        best = Some(match best {
            Some((level, order)) => (level.max(endpoint.priority), order.min(oldest)),
            None => (endpoint.priority, oldest),
        });
    }
    best.map(|(level, oldest)| Rank::new(level, oldest))
}

/// The order of the oldest row that waits at an endpoint.
pub(super) fn oldest_waiting(endpoint: &Endpoint) -> Option<u64> {
    endpoint.rows.first().into_iter().chain(endpoint.oldest_system_left(None)).min()
}
