//! The smaller verbs on one conversation: TIMER, MOVE, our REPRIORITISE and RELEASE, and the transmission status.

use super::begin::LONGEST_SECONDS;
use super::change::Change;
use super::effects::Effects;
use super::endpoint::Endpoint;
use super::execute::{Checked, lock};
use super::session::{Op, Session};
use super::state::Core;
use super::status;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId};
use crate::protocol::{ConversationState, Outcome};
use crate::time::Timestamp;
use smallvec::SmallVec;

impl Core {
    pub(super) fn begin_timer(
        &mut self,
        session: &mut Session,
        handle: ConversationHandle,
        timeout_seconds: i64,
        now: Timestamp,
    ) -> Checked<Outcome> {
        if !(1..=LONGEST_SECONDS).contains(&timeout_seconds) {
            return Err(Error::new(
                Code::LIFETIME_OUT_OF_RANGE,
                format!("TIMEOUT is {timeout_seconds} seconds; it must be 1 to {LONGEST_SECONDS}"),
            ));
        }
        let place = self.find_not_ended(session, handle, Code::STATE_FORBIDS_TIMER, "BEGIN CONVERSATION TIMER")?;
        let due = now.after_seconds(timeout_seconds);
        let lifetime = self.endpoints[place].lifetime;
        if due > lifetime {
            return Err(Error::new(
                Code::TIMER_BEYOND_LIFETIME,
                format!("the timer would fire at {due}, after the conversation expires at {lifetime}"),
            ));
        }
        lock!(self, session, session.group_of(place, &self.endpoints[place]));
        session.record(Op::Timer { endpoint: place, due });
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn apply_timer(&mut self, place: u32, due: Timestamp, now: Timestamp) {
        if self.endpoints[place].state.is_ended() {
            return;
        }
        self.extra(place).dialog_timer = Some(due);
        self.mark_dirty(place);
        self.reschedule(place, now);
    }

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

    pub(super) fn release_quarantine(&mut self, session: &mut Session, group: GroupId) -> Checked<Outcome> {
        let place = self.find_group_for(session, group.0).ok_or_else(|| Error::group_not_found(group))?;
        lock!(self, session, place);
        session.record(Op::Release { group: place });
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn apply_release(&mut self, group: u32, effects: &mut Effects) {
        self.groups[group].rollbacks = 0;
        self.set_quarantined(group, false);
        for place in self.groups[group].members.clone() {
            self.accept_gaps(place, effects);
        }
    }

    /// Gives up missing messages: the conversation goes on with the next message of the other side.
    fn accept_gaps(&mut self, place: u32, effects: &mut Effects) {
        let endpoint = &self.endpoints[place];
        let Some(peer) = self.endpoints.get(endpoint.peer) else { return };
        let first = peer.extra.as_ref().and_then(|extra| extra.outbox.front()).filter(|first| !first.is_error);
        let next = first.map_or(peer.send_sequence, |first| first.sequence);
        let next = if endpoint.state == ConversationState::Conversing { next } else { endpoint.receive_sequence };
        if endpoint.rows.is_empty() && endpoint.receive_sequence == next {
            return;
        }
        let endpoint = &mut self.endpoints[place];
        endpoint.receive_sequence = next;
        // An opening finds rows below this number, and takes the gaps among them for accepted.
        let endpoint_id = endpoint.endpoint_id;
        effects.changes.push(Change::NoteReceiveSequence { endpoint_id, receive_sequence: next });
        self.mark_dirty(place);
    }

    /// Quarantines or releases a group: its rows are neither unread nor ready meanwhile.
    pub(super) fn set_quarantined(&mut self, group: u32, is_quarantined: bool) {
        let queue_id = self.groups[group].queue_id;
        for place in self.groups[group].members.clone() {
            let endpoint = &mut self.endpoints[place];
            if std::mem::replace(&mut endpoint.is_quarantined, is_quarantined) != is_quarantined {
                let waiting = endpoint.waiting_rows();
                self.mark_dirty(place);
                let unread = &mut self.queue_state(queue_id).unread;
                *unread = if is_quarantined { *unread - waiting } else { *unread + waiting };
            }
        }
    }

    /// GET_TRANSMISSION_STATUS: why the conversation's first waiting message was not delivered at the latest try.
    pub(super) fn transmission_status(&self, handle: ConversationHandle) -> String {
        let extra = self.find_open(handle).and_then(|place| self.endpoints[place].extra.as_ref());
        let delay = extra.filter(|extra| !extra.outbox.is_empty()).and_then(|extra| extra.delay);
        delay.map_or_else(String::new, |delay| status::text(delay).to_string())
    }

    /// The endpoint of a handle, if this side has not ended it. A committed END is final, so this is checked before the
    /// group's lock is waited for; the core runs a verb without interruption, so it still holds under the lock.
    fn find_not_ended(
        &self,
        session: &Session,
        handle: ConversationHandle,
        code: Code,
        statement: &str,
    ) -> Result<u32> {
        let place = self.find_for(session, handle).ok_or_else(|| Error::conversation_not_found(handle))?;
        let endpoint: &Endpoint = &self.endpoints[place];
        let has_ended = session.has_ended(place, endpoint);
        if has_ended || endpoint.state.is_ended() {
            let state = if has_ended { ConversationState::DisconnectedOutbound } else { endpoint.state };
            return Err(Error::new(
                code,
                format!("conversation {handle} is {state}; {statement} needs one that this side has not ended"),
            ));
        }
        Ok(place)
    }
}
