//! Ids of units: what was done under an id is done once, however often a caller that lost its answer tries.

use super::change::Change;
use super::effects::Effects;
use super::session::{Op, Session};
use super::state::Core;
use crate::error::{Code, Error, Result};
use crate::time::Timestamp;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;
use uuid::Uuid;

/// How long an id is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Ids that one commit removes; each adds one, so that the table shrinks.
const MOST_REMOVED: usize = 8;

/// The ids of units.
#[derive(Debug, Default)]
pub(super) struct Units {
    done: HashMap<Uuid, Timestamp>,
    /// The oldest first. A clock that was ahead for a while has left ids of a later time, which hold up no other one.
    by_age: BTreeSet<(Timestamp, Uuid)>,
    /// Those of open transactions.
    claimed: HashSet<Uuid>,
}

impl Units {
    /// Enters a unit that has happened.
    pub(super) fn enter(&mut self, unit_id: Uuid, done_at: Timestamp) {
        if self.done.insert(unit_id, done_at).is_none() {
            self.by_age.insert((done_at, unit_id));
        }
    }
}

impl Core {
    /// Gives a session the id of a unit; false if a unit of that id has happened.
    ///
    /// # Errors
    /// 1222 an open transaction has the same id.
    pub fn claim(&mut self, session: &mut Session, unit_id: Uuid) -> Result<bool> {
        if self.units.done.contains_key(&unit_id) {
            return Ok(false);
        }
        if !self.units.claimed.insert(unit_id) {
            return Err(Error::new(
                Code::LOCK_TIMEOUT,
                format!("an open transaction has the id {unit_id} of a unit; try again when it has ended"),
            ));
        }
        session.record(Op::Unit { unit_id });
        Ok(true)
    }

    /// Whether a unit of that id has happened.
    pub fn unit_happened(&self, unit_id: Uuid) -> bool {
        self.units.done.contains_key(&unit_id)
    }

    /// Whether an open transaction has that id.
    pub fn is_unit_under_way(&self, unit_id: Uuid) -> bool {
        self.units.claimed.contains(&unit_id)
    }

    pub(super) fn apply_unit(&mut self, unit_id: Uuid, now: Timestamp, effects: &mut Effects) {
        self.units.claimed.remove(&unit_id);
        self.units.enter(unit_id, now);
        effects.changes.push(Change::InsertDoneUnit { unit_id, done_at: now });
        for _ in 0..MOST_REMOVED {
            let oldest = self.units.by_age.first().copied();
            let Some((done_at, old)) = oldest.filter(|(done_at, _)| now.since(*done_at) > KEPT) else { return };
            self.units.by_age.remove(&(done_at, old));
            self.units.done.remove(&old);
            effects.changes.push(Change::DeleteDoneUnit { unit_id: old });
        }
    }

    pub(super) fn undo_unit(&mut self, unit_id: Uuid) {
        self.units.claimed.remove(&unit_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Limits, Memory};

    const START: Timestamp = Timestamp(1_000_000);

    #[test]
    fn an_id_is_claimed_once_and_free_again_after_a_rollback() {
        let mut memory = Memory::new(Limits::default());
        let id = Uuid::from_u128(1);
        let mut first = memory.core.begin_transaction();
        assert!(memory.core.claim(&mut first, id).unwrap());
        let mut second = memory.core.begin_transaction();
        assert_eq!(memory.core.claim(&mut second, id).unwrap_err().code(), Code::LOCK_TIMEOUT);
        memory.rollback(first, START);
        assert!(memory.core.claim(&mut second, id).unwrap());
        assert!(!memory.core.unit_happened(id), "before its commit");
        memory.commit(second, START);
        assert!(memory.core.unit_happened(id));
        let mut third = memory.core.begin_transaction();
        assert!(!memory.core.claim(&mut third, id).unwrap());
        memory.rollback(third, START);
    }

    #[test]
    fn a_savepoint_gives_an_id_back() {
        let mut memory = Memory::new(Limits::default());
        let id = Uuid::from_u128(1);
        let mut session = memory.core.begin_transaction();
        let before = memory.core.savepoint(&session);
        assert!(memory.core.claim(&mut session, id).unwrap());
        memory.rollback_to(&mut session, before, START);
        memory.commit(session, START);
        assert!(!memory.core.unit_happened(id));
    }

    #[test]
    fn ids_are_kept_for_a_week() {
        let mut memory = Memory::new(Limits::default());
        let (old, new) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for (id, at) in [(old, START), (new, START.after(KEPT + Duration::from_secs(1)))] {
            let mut session = memory.core.begin_transaction();
            assert!(memory.core.claim(&mut session, id).unwrap());
            memory.commit(session, at);
        }
        assert!(!memory.core.unit_happened(old));
        assert!(memory.core.unit_happened(new));
    }

    #[test]
    fn an_id_of_a_clock_that_was_ahead_keeps_no_other_one() {
        let mut memory = Memory::new(Limits::default());
        let years = START.after(Duration::from_secs(40 * 365 * 86_400));
        let after = START.after(KEPT + Duration::from_secs(1));
        let ids = [1, 2, 3].map(Uuid::from_u128);
        for (id, at) in ids.into_iter().zip([years, START, after]) {
            let mut session = memory.core.begin_transaction();
            assert!(memory.core.claim(&mut session, id).unwrap());
            memory.commit(session, at);
        }
        assert_eq!(ids.map(|id| memory.core.unit_happened(id)), [true, false, true]);
    }

    #[test]
    fn an_id_is_kept_for_exactly_a_week_in_memory_and_in_its_row() {
        let mut memory = Memory::new(Limits::default());
        let ids = [1, 2, 3].map(Uuid::from_u128);
        let week = START.after(Duration::from_secs(604_800));
        for (id, at, kept) in [
            (ids[0], START, [true, false, false]),
            (ids[1], week, [true, true, false]),
            (ids[2], week.after_seconds(1), [false, true, true]),
        ] {
            let mut session = memory.core.begin_transaction();
            assert!(memory.core.claim(&mut session, id).unwrap());
            memory.commit(session, at);
            assert_eq!(ids.map(|id| memory.core.unit_happened(id)), kept, "{at}");
            let restored = memory.restored(at).unwrap();
            assert_eq!(ids.map(|id| restored.unit_happened(id)), kept, "restored, {at}");
        }
    }
}
