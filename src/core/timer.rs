//! BEGIN CONVERSATION TIMER and the dialog timer, and the time of the next event of an endpoint.

use super::begin_dialog_conversation::LONGEST_SECONDS;
use super::change::DeliveryClass;
use super::effects::Effects;
use super::execute::{Checked, lock};
use super::session::{Op, Session};
use super::state::Core;
use crate::error::{Code, Error};
use crate::id::ConversationHandle;
use crate::protocol::{Outcome, system};
use crate::time::Timestamp;

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
        self.hold_timer(session, place);
        session.record(Op::Timer { endpoint: place, due: Some(due) });
        Ok(Ok(Outcome::Done))
    }

    pub(super) fn cancel_timer(&mut self, session: &mut Session, handle: ConversationHandle) -> Checked<Outcome> {
        let place = self.find_not_ended(session, handle, Code::STATE_FORBIDS_TIMER, "CANCEL CONVERSATION TIMER")?;
        lock!(self, session, session.group_of(place, &self.endpoints[place]));
        self.hold_timer(session, place);
        session.record(Op::Timer { endpoint: place, due: None });
        Ok(Ok(Outcome::Done))
    }

    /// Keeps a timer that an open transaction changes from firing before that transaction has ended.
    fn hold_timer(&mut self, session: &mut Session, place: u32) {
        let endpoint = &mut self.endpoints[place];
        if session.is_transaction && endpoint.dialog_timer().is_some() {
            let rare_fields = endpoint.rare_fields_mut();
            if !std::mem::replace(&mut rare_fields.is_timer_held, true) {
                session.held_timers.push((place, endpoint.endpoint_id));
            }
        }
    }

    /// Schedules the timers that a session has held, as they are after its end.
    pub(super) fn free_timers(&mut self, session: &mut Session) {
        for (place, endpoint_id) in session.held_timers.drain(..) {
            if self.endpoints.get(place).is_none_or(|there| there.endpoint_id != endpoint_id) {
                continue;
            }
            let endpoint = &mut self.endpoints[place];
            endpoint.rare_fields_mut().is_timer_held = false;
            if let Some(timer) = endpoint.dialog_timer().map(|timer| timer.0.max(1))
                && (endpoint.due == 0 || timer < endpoint.due)
            {
                self.set_due(place, timer);
            }
        }
    }

    pub(super) fn apply_timer(&mut self, place: u32, due: Option<Timestamp>, now: Timestamp) {
        if self.endpoints[place].state.is_ended() {
            return;
        }
        self.rare_fields(place).dialog_timer = due;
        self.mark_dirty(place);
        self.reschedule(place, now);
    }

    /// Sends the DialogTimer message of a timer that is due, and clears the timer.
    pub(super) fn fire_timer(&mut self, place: u32, now: Timestamp, effects: &mut Effects) {
        self.rare_fields(place).dialog_timer = None;
        self.mark_dirty(place);
        self.add_system_message(place, DeliveryClass::Timer, system::DIALOG_TIMER_ID, None, now, effects);
    }

    /// Registers the moment of an endpoint's next event; 0 is never.
    pub(super) fn set_due(&mut self, place: u32, due: i64) {
        let endpoint = &mut self.endpoints[place];
        let before = std::mem::replace(&mut endpoint.due, due);
        let endpoint_id = endpoint.endpoint_id;
        if before != due {
            if before != 0 {
                self.due.remove(&(before, endpoint_id, place));
            }
            if due != 0 {
                self.due.insert((due, endpoint_id, place));
            }
        }
    }

    /// Registers an endpoint's next moment from its timer, lifetime and state.
    pub(super) fn reschedule(&mut self, place: u32, now: Timestamp) {
        // A conversation of the default lifetime, 68 years, is not worth an entry for each of a million. All others
        // have one: a machine without a battery may show 1970 when the database is opened, and the right time a minute
        // later.
        const FAR: i64 = 20 * 365 * 86_400 * 1_000_000;
        let endpoint = &self.endpoints[place];
        let end_of_life = self.end_of_life(endpoint);
        let is_far = end_of_life >= now.0.max(endpoint.begun_at.0).saturating_add(FAR);
        let end_of_life = (!is_far).then_some(end_of_life);
        let timer =
            endpoint.dialog_timer().filter(|timer| !endpoint.is_timer_held() || *timer > now).map(|timer| timer.0);
        let retry = endpoint.retry_at().map(|retry| retry.0);
        let due = end_of_life.into_iter().chain(timer).chain(retry).min();
        self.set_due(place, due.map_or(0, |due| due.max(1)));
    }
}
