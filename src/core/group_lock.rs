//! Conversation groups and their locks: which session holds which group, and which waits.

use super::effects::{Arrival, Effects};
use super::own_groups::Opener;
use super::receive_order::Rank;
use super::session::Session;
use super::state::Core;
use crate::error::{Error, Result};
use smallvec::SmallVec;
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
    /// Consecutive rollbacks that returned its messages, for quarantine and retries.
    pub(super) rollbacks: u16,
    /// To be quarantined when its holder, who may have received some of its rows, releases the lock.
    pub(super) is_set_aside_later: bool,
    /// Its holder has it in the list of groups to be ranked again.
    pub(super) is_stale: bool,
    pub(super) members: SmallVec<[u32; 2]>,
    /// Its place in the ready index, while it is in it.
    pub(super) ready: Option<Rank>,
}

impl Core {
    /// Takes a group's lock for a session; returns the blocking group if another session holds it.
    pub(super) fn lock(&mut self, session: &mut Session, group: u32) -> Result<(), GroupKey> {
        let owner = self.groups[group].owner;
        if owner == session.id {
            return Ok(());
        }
        if owner != 0 {
            return Err(GroupKey(group));
        }
        let has_rows = self.groups[group].ready.is_some();
        self.unready(group);
        self.groups[group].owner = session.id;
        session.locks.push(group);
        if has_rows {
            self.mark_stale(group);
        }
        Ok(())
    }

    /// Takes the locks of several groups in the one order of all sessions: by the group's id.
    pub(super) fn lock_in_order(
        &mut self,
        session: &mut Session,
        mut groups: SmallVec<[u32; 4]>,
    ) -> Result<(), GroupKey> {
        groups.sort_unstable_by_key(|group| self.groups[*group].id);
        groups.into_iter().try_for_each(|group| self.lock(session, group))
    }

    pub(super) fn unlock_all(&mut self, session: &mut Session, effects: &mut Effects) {
        self.free_timers(session);
        for group in std::mem::take(&mut session.locks) {
            self.groups[group].owner = 0;
            self.groups[group].is_stale = false;
            effects.released.push(GroupKey(group));
            if std::mem::take(&mut self.groups[group].is_set_aside_later) {
                self.set_quarantined(group, true);
            }
            let queue_id = self.groups[group].queue_id;
            if self.groups[group].members.is_empty() {
                self.remove_group(group);
                // A RECEIVE that waits for this group has to find that it is gone.
                effects.arrivals.push(Arrival { queue_id, newly_ready: 0 });
                continue;
            }
            let newly_ready = usize::from(self.rerank(group));
            // Messages that were only sent neither took rows from the queue nor made any ready: no receiver need try.
            if newly_ready > 0 || !session.received_queues.is_empty() {
                effects.arrivals.push(Arrival { queue_id, newly_ready });
            }
        }
    }

    /// The groups that a session holds, in the order in which it locked them, without the first ones.
    pub fn groups_of<'c>(&'c self, session: &'c Session, first: usize) -> impl Iterator<Item = Uuid> + 'c {
        session.locks.iter().skip(first).map(|group| self.groups[*group].id)
    }

    /// The session that holds a group's lock, with who opened it.
    pub fn holder(&self, group: Uuid) -> Option<(u32, Option<Opener>)> {
        let owner = self.groups[self.find_group(group)?].owner;
        (owner != 0).then(|| (owner, self.sessions.get(owner).and_then(|session| session.opener)))
    }

    /// Registers that a session waits for a group that another session holds.
    ///
    /// # Errors
    /// 1205 if the holder waits, directly or through other sessions, for this session: then roll it back.
    pub fn wait(&mut self, session: &Session, group: GroupKey) -> Result<()> {
        let mut holder = self.groups.get(group.0).map_or(0, |group| group.owner);
        while holder != 0 {
            if holder == session.id {
                return Err(Error::deadlock(self.groups[group.0].id));
            }
            let waited_for = self.sessions.get(holder).and_then(|session| session.waits_for);
            holder = waited_for.and_then(|group| self.groups.get(group)).map_or(0, |group| group.owner);
        }
        self.sessions[session.id].waits_for = Some(group.0);
        Ok(())
    }

    /// Forgets that a session waits.
    pub fn stop_waiting(&mut self, session: &Session) {
        self.sessions[session.id].waits_for = None;
    }

    /// One line for each locked group and each session that waits, for a test that does not end.
    pub fn describe_waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (_, group) in self.groups.iter().filter(|(_, group)| group.owner != 0) {
            let members: Vec<String> = group
                .members
                .iter()
                .map(|member| format!("{} {}", self.endpoints[*member].handle, self.endpoints[*member].state.code()))
                .collect();
            lines.push(format!(
                "group {} of service {} and queue {} is held by session {}; conversations: {}",
                group.id,
                group.service_id,
                group.queue_id,
                group.owner,
                members.join(", ")
            ));
        }
        for (id, session) in self.sessions.iter() {
            if let Some(group) = session.waits_for {
                lines.push(format!("session {id} waits for {}", self.describe_group(GroupKey(group))));
            }
        }
        lines
    }

    /// The group's id and the session that holds it.
    pub fn describe_group(&self, group: GroupKey) -> String {
        match self.groups.get(group.0) {
            Some(found) => format!("group {}, held by session {}", found.id, found.owner),
            None => "a group that is gone".to_owned(),
        }
    }
}

impl Session {
    /// How many groups it holds.
    pub fn group_count(&self) -> usize {
        self.locks.len()
    }

    /// The session's number and how much it has done, for [`Core::describe_waits`].
    pub fn describe(&self) -> String {
        format!("session {} with {} groups locked and {} operations", self.id, self.locks.len(), self.log.len())
    }
}
