//! MOVE CONVERSATION: a conversation changes its group.

use super::execute::Checked;
use super::session::{Op, Session};
use super::state::Core;
use crate::error::{Code, Error};
use crate::id::{ConversationHandle, GroupId};
use crate::protocol::Outcome;
use smallvec::SmallVec;

impl Core {
    pub(super) fn move_conversation(
        &mut self,
        session: &mut Session,
        handle: ConversationHandle,
        to: GroupId,
    ) -> Checked<Outcome> {
        let place = self.find_not_ended(session, handle, Code::STATE_FORBIDS_MOVE, "MOVE CONVERSATION")?;
        let group = self.find_group_for(session, to.0).ok_or_else(|| Error::group_not_found(to))?;
        if self.groups[group].service_id != self.endpoints[place].service_id {
            let name = |service_id| self.catalog.services.get(&service_id).map_or("", |service| &service.name);
            return Err(Error::new(
                Code::BAD_DESTINATION_GROUP,
                format!(
                    "conversation group {to} belongs to service '{}', the conversation to '{}'; MOVE stays within one",
                    name(self.groups[group].service_id),
                    name(self.endpoints[place].service_id)
                ),
            ));
        }
        let own = session.group_of(place, &self.endpoints[place]);
        if let Err(blocked) = self.lock_in_order(session, SmallVec::from_slice(&[own, group])) {
            return Ok(Err(blocked));
        }
        session.record(Op::Move { endpoint: place, group });
        self.mark_stale(own);
        self.mark_stale(group);
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn apply_move(&mut self, place: u32, group: u32) {
        let from = self.endpoints[place].group;
        if from == group {
            return;
        }
        self.groups[group].members.push(place);
        self.endpoints[place].group = group;
        self.leave_group(place, from);
        self.mark_dirty(place);
    }
}
