//! The groups that a session holds and can receive from, in the order of RECEIVE.
//!
//! A transaction that received from 4,000 groups took 8 s under the lock of the store, because each RECEIVE looked at every
//! group that the session held. The index here is brought up to date only for the groups that have changed.

use super::receive_order::Rank;
use super::session::{Op, Session};
use super::state::Core;
use crate::time::Timestamp;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Who opened a transaction, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    /// The operating system's id of the process, if the system says it.
    pub process_id: Option<u32>,
    /// The operating system's id of the user, if it has one.
    pub user_id: Option<u32>,
    /// When it was opened.
    pub since: Timestamp,
}

/// An open session, as the core keeps it.
#[derive(Debug, Default)]
pub(super) struct OpenSession {
    /// The group it waits for.
    pub(super) waits_for: Option<u32>,
    /// Who opened it, if it is a transaction of a store.
    pub(super) opener: Option<Opener>,
    pub(super) own: OwnGroups,
}

/// Groups of one session that have rows left for it.
#[derive(Debug, Default)]
pub(super) struct OwnGroups {
    /// Groups whose rows have changed since they were ranked, each once: they have [`Group::is_stale`] set.
    ///
    /// [`Group::is_stale`]: super::group_lock::Group::is_stale
    stale: SmallVec<[u32; 2]>,
    ranks: BTreeMap<u32, (i32, Rank)>,
    /// The same by queue and rank.
    ready: BTreeSet<(i32, Rank, u32)>,
    /// Groups ranked so far.
    #[cfg(test)]
    pub(super) ranked: u64,
}

impl OwnGroups {
    fn set(&mut self, group: u32, rank: Option<(i32, Rank)>) {
        let before = match rank {
            Some(rank) => self.ranks.insert(group, rank),
            None => self.ranks.remove(&group),
        };
        if before == rank {
            return;
        }
        if let Some((queue_id, rank)) = before {
            self.ready.remove(&(queue_id, rank, group));
        }
        if let Some((queue_id, rank)) = rank {
            self.ready.insert((queue_id, rank, group));
        }
    }

    #[cfg(test)]
    pub(super) fn ranks(&self) -> &BTreeMap<u32, (i32, Rank)> {
        assert_eq!(self.ranks.len(), self.ready.len());
        &self.ranks
    }

    /// The best group of these levels.
    pub(super) fn best(&self, queue_id: i32, lowest: u8, highest: u8) -> Option<(Rank, u32)> {
        let (queue, rank, group) = *self.ready.range((queue_id, Rank::new(highest, 0), 0)..).next()?;
        (queue == queue_id && rank.rank_from_top <= 10 - lowest.min(10)).then_some((rank, group))
    }

    /// The group whose row has waited longest, whatever its level.
    pub(super) fn oldest(&self, queue_id: i32) -> Option<(Rank, u32)> {
        (1..=10).filter_map(|level| self.best(queue_id, level, level)).min_by_key(|(rank, _)| rank.oldest)
    }
}

impl Core {
    /// The rows of a group may have changed for the session that holds it.
    pub(super) fn mark_stale(&mut self, group: u32) {
        let Some(state) = self.groups.get(group).filter(|state| state.owner != 0 && !state.is_stale) else { return };
        let owner = state.owner;
        self.groups[group].is_stale = true;
        self.sessions[owner].own.stale.push(group);
    }

    /// The groups of an endpoint, for its session and for all others, may have other rows for the session.
    pub(super) fn mark_groups_of(&mut self, session: &Session, place: u32) {
        if let Some(endpoint) = self.endpoints.get(place) {
            let (seen, committed) = (session.group_of(place, endpoint), endpoint.group);
            self.mark_stale(seen);
            self.mark_stale(committed);
        }
    }

    /// The same for operations of a session that are undone.
    pub(super) fn mark_undone(&mut self, session: &Session, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Take { endpoint, .. } | Op::End { endpoint, .. } => self.mark_groups_of(session, *endpoint),
                Op::Move { endpoint, group } => {
                    self.mark_groups_of(session, *endpoint);
                    self.mark_stale(*group);
                }
                _ => {}
            }
        }
    }

    /// Ranks the groups that have changed; gives the index.
    pub(super) fn ranked_own(&mut self, session: &Session) -> &OwnGroups {
        for group in std::mem::take(&mut self.sessions[session.id].own.stale) {
            self.groups[group].is_stale = false;
            let rank = self.remaining(session, group).map(|rank| (self.groups[group].queue_id, rank));
            let own = &mut self.sessions[session.id].own;
            own.set(group, rank);
            #[cfg(test)]
            {
                own.ranked += 1;
            }
        }
        &self.sessions[session.id].own
    }
}
