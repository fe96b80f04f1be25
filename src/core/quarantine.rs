//! Quarantine: a group that poison handling has set aside gives no messages until RELEASE QUARANTINE.

use super::change::Change;
use super::effects::Effects;
use super::execute::{Checked, lock};
use super::session::{Op, Session};
use super::state::Core;
use crate::error::Error;
use crate::id::GroupId;
use crate::protocol::{ConversationState, Outcome};

impl Core {
    pub(super) fn release_quarantine(&mut self, session: &mut Session, group: GroupId) -> Checked<Outcome> {
        let place = self.find_group_for(session, group.0).ok_or_else(|| Error::group_not_found(group))?;
        lock!(self, session, place);
        session.record(Op::Release { group: place });
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn apply_release(&mut self, group: u32, effects: &mut Effects) {
        self.set_group_rollbacks(group, 0);
        self.set_quarantined(group, false);
        for place in self.groups[group].members.clone() {
            self.accept_gaps(place, effects);
        }
    }

    /// Gives up missing messages: the conversation goes on with the next message of the other side.
    fn accept_gaps(&mut self, place: u32, effects: &mut Effects) {
        let endpoint = &self.endpoints[place];
        let Some(peer) = self.endpoints.get(endpoint.peer) else { return };
        let first = peer
            .rare_fields
            .as_ref()
            .and_then(|rare_fields| rare_fields.outbox.front())
            .filter(|first| !first.is_error);
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

    /// Quarantines or releases a group: its rows are neither unread nor ready meanwhile. A quarantine without an end takes the
    /// place of a pause, which has one.
    pub(super) fn set_quarantined(&mut self, group: u32, is_quarantined: bool) {
        for place in self.groups[group].members.clone() {
            let endpoint = &mut self.endpoints[place];
            if endpoint.retry_at().is_some() {
                endpoint.rare_fields_mut().retry_at = None;
                self.mark_dirty(place);
            }
            self.quarantine(place, is_quarantined);
        }
    }

    /// The same for one conversation of a group; its pause stays as it is.
    pub(super) fn quarantine(&mut self, place: u32, is_quarantined: bool) {
        let endpoint = &mut self.endpoints[place];
        if std::mem::replace(&mut endpoint.is_quarantined, is_quarantined) != is_quarantined {
            let (group, waiting) = (endpoint.group, endpoint.waiting_rows());
            self.mark_dirty(place);
            let queue_id = self.groups[group].queue_id;
            let unread = &mut self.queue_state(queue_id).unread;
            *unread = if is_quarantined { *unread - waiting } else { *unread + waiting };
        }
    }
}
