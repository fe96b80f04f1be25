//! REPRIORITISE: a new level for one endpoint. Service Broker has no such statement; its levels never change.

use super::execute::{Checked, lock};
use super::session::{Op, Session};
use super::state::Core;
use crate::error::{Code, Error};
use crate::id::ConversationHandle;
use crate::protocol::Outcome;

impl Core {
    pub(super) fn reprioritise(
        &mut self,
        session: &mut Session,
        handle: ConversationHandle,
        level: u8,
    ) -> Checked<Outcome> {
        if !(1..=10).contains(&level) {
            return Err(Error::out_of_range("the level", level, "1 (low) to 10 (high)"));
        }
        let place = self.find_not_ended(session, handle, Code::STATE_FORBIDS_MOVE, "REPRIORITISE")?;
        lock!(self, session, session.group_of(place, &self.endpoints[place]));
        session.record(Op::Reprioritise { endpoint: place, level });
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn apply_reprioritise(&mut self, place: u32, level: u8) {
        self.endpoints[place].priority = level;
        self.mark_dirty(place);
    }
}
