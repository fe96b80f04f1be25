//! Conversation groups: membership, locks, and the index of what is ready.

use super::endpoint::Endpoint;
use super::slab::Slab;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Names a group inside the core, while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(pub(super) u32);

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) id: Uuid,
    pub(super) service_id: i32,
    pub(super) queue_id: i32,
    /// The session that holds the lock; 0 if unlocked.
    pub(super) owner: u32,
    /// Consecutive rollbacks that returned its messages, for quarantine.
    pub(super) rollbacks: u8,
    /// To be quarantined when its holder, who may have received some of its rows, releases the lock.
    pub(super) is_set_aside_later: bool,
    pub(super) members: SmallVec<[u32; 2]>,
    /// Its place in the ready index, while it is in it.
    pub(super) ready: Option<Rank>,
}

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
}

impl QueueState {
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

/// The rank of a group from its members' waiting rows; `None` if no row waits.
pub(super) fn rank(endpoints: &Slab<Endpoint>, members: &[u32]) -> Option<Rank> {
    let mut best: Option<(u8, u64)> = None;
    for &member in members {
        let endpoint = &endpoints[member];
        if endpoint.is_quarantined {
            continue;
        }
        let sequenced = endpoint.rows.first();
        let system = endpoint.system_rows().iter().map(|row| row.queuing_order).min();
        let Some(oldest) = sequenced.into_iter().chain(system).min() else { continue };
        best = Some(match best {
            Some((level, order)) => (level.max(endpoint.priority), order.min(oldest)),
            None => (endpoint.priority, oldest),
        });
    }
    best.map(|(level, oldest)| Rank::new(level, oldest))
}
