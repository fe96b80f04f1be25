//! Sessions, and the single entry point for verbs.

use super::effects::{Effects, Reply, Step};
use super::group_lock::GroupKey;
use super::own_groups::{OpenSession, Opener};
use super::poison::Ended;
use super::session::{Op, Savepoint, Session};
use super::state::Core;
use super::work::Undone;
use crate::error::{Error, Result};
use crate::protocol::definition::QueueEvent;
use crate::protocol::{Outcome, Verb};
use crate::time::Timestamp;

/// The result of checking a verb: done, or a group that another session holds.
pub(super) type Checked<T> = Result<Result<T, GroupKey>>;

/// Takes a group's lock or leaves the verb with the group it must wait for.
macro_rules! lock {
    ($core:expr, $session:expr, $group:expr) => {
        if let Err(blocked) = $core.lock($session, $group) {
            return Ok(Err(blocked));
        }
    };
}
pub(super) use lock;

/// Operations and endpoints that the spare session has room for.
const MOST_SPARE: usize = 256;

impl Core {
    /// Opens a session that may stay open while others work. It refuses definitions, because the catalog they were
    /// checked against could change before it commits.
    pub fn begin_transaction(&mut self) -> Session {
        let mut session = self.begin();
        session.is_transaction = true;
        session
    }

    /// The same, and keeps who opened it for [`holder`](Self::holder).
    pub fn begin_transaction_of(&mut self, opener: Opener) -> Session {
        let session = self.begin_transaction();
        self.sessions[session.id].opener = Some(opener);
        session
    }

    /// Opens a session for a unit: it is committed, rolled back or abandoned before any other session runs.
    pub fn begin(&mut self) -> Session {
        let id = self.sessions.insert(OpenSession::default());
        match self.spare.take() {
            Some(mut session) => {
                session.id = id;
                session
            }
            None => Session::new(id),
        }
    }

    /// Executes one verb in a session.
    ///
    /// # Errors
    /// Every refusal of the verb. Then nothing has happened, except that locks stay with the session.
    pub fn execute(&mut self, session: &mut Session, verb: Verb, now: Timestamp) -> Result<Step> {
        if matches!(session.log.last(), Some(Op::Define { .. })) {
            return Err(Error::definition_in_transaction());
        }
        verb.check_texts()?;
        let done = match verb {
            Verb::BeginDialog(dialog) => self.begin_dialog(session, dialog, now)?,
            Verb::Send { handles, message_type, body, trace } => {
                self.send(session, &handles, message_type.as_deref(), body, trace)?
            }
            Verb::Receive { queue, top, from } => {
                return Ok(match self.receive(session, &queue, top, from)? {
                    Ok(rows) => Step::Done(Reply::Rows(rows)),
                    Err(blocked) => Step::Blocked(blocked),
                });
            }
            Verb::GetConversationGroup { queue } => self.get_conversation_group(session, &queue)?,
            Verb::MoveConversation { handle, group } => self.move_conversation(session, handle, group)?,
            Verb::EndConversation { handle, form } => self.end_conversation(session, handle, form)?,
            Verb::BeginConversationTimer { handle, timeout_seconds } => {
                self.begin_timer(session, handle, timeout_seconds, now)?
            }
            Verb::CancelConversationTimer { handle } => self.cancel_timer(session, handle)?,
            Verb::GetTransmissionStatus { handle } => Ok(Outcome::Text(self.transmission_status(handle))),
            Verb::Define(definitions) => self.define(session, &definitions)?,
            Verb::Reprioritise { handle, level } => self.reprioritise(session, handle, level)?,
            Verb::PostQueueActivation { queue } => self.post_queue_activation(session, &queue)?,
            Verb::ReleaseQuarantine { group } => self.release_quarantine(session, group)?,
            Verb::SendEach(messages) => self.send_each(session, messages)?,
            Verb::RedriveDeadLetter { letter } => self.redrive_dead_letter(session, letter)?,
            Verb::PurgeDeadLetter { letter } => self.purge_dead_letter(session, letter)?,
            Verb::Work(verb) => return self.execute_work(session, verb, now).map(Step::Done),
        };
        Ok(match done {
            Ok(outcome) => Step::Done(Reply::Outcome(outcome)),
            Err(blocked) => Step::Blocked(blocked),
        })
    }

    /// A savepoint at the session's current position.
    pub fn savepoint(&self, session: &Session) -> Savepoint {
        Savepoint(session.log.len())
    }

    /// Undoes all verbs after the savepoint; the locks stay.
    pub fn rollback_to(&mut self, session: &mut Session, savepoint: Savepoint, effects: &mut Effects) {
        let cut = session.cut(savepoint);
        self.mark_undone(session, &cut);
        self.undo(cut, Undone::ToSavepoint);
        self.hand_on_work(effects);
    }

    /// Applies all verbs of a session. Cannot fail: every verb was checked under the locks it took.
    pub fn commit(&mut self, mut session: Session, now: Timestamp, effects: &mut Effects) {
        for (queue_id, _) in &session.received_queues {
            self.queue_state(*queue_id).forget_rollbacks();
        }
        // The group in which they are now, and the one that they may have left.
        let (now_in, left) = (std::mem::take(&mut session.received_groups), std::mem::take(&mut session.received_from));
        for group in now_in.into_iter().chain(left.into_keys()) {
            if self.groups.get(group).is_some() {
                self.set_group_rollbacks(group, 0);
            }
        }
        let mut log = std::mem::take(&mut session.log);
        for op in log.drain(..) {
            self.apply(op, now, effects);
        }
        session.log = log;
        self.unlock_all(&mut session, effects);
        self.write_touched(effects);
        self.hand_on_work(effects);
        self.close(session);
    }

    /// Undoes all verbs of a session, and counts the rollback against the queues it received from.
    pub fn rollback(&mut self, session: Session, now: Timestamp, effects: &mut Effects) {
        self.end_without_commit(session, Ended::RolledBack, now, effects);
    }

    /// The same for a session that its caller did not end: its process died, or it was cut off. Of sessions that are lost together a queue
    /// counts one.
    pub fn lose(&mut self, session: Session, now: Timestamp, effects: &mut Effects) {
        self.end_without_commit(session, Ended::Lost, now, effects);
    }

    fn end_without_commit(&mut self, mut session: Session, ended: Ended, now: Timestamp, effects: &mut Effects) {
        self.undo(std::mem::take(&mut session.log), Undone::ByRollback(now));
        self.count_rollback(&session, ended, now, effects);
        self.unlock_all(&mut session, effects);
        self.write_touched(effects);
        self.hand_on_work(effects);
        self.close(session);
    }

    /// Undoes all verbs of a session that must give way to another one, or whose caller has seen nothing: no rollback for poison
    /// handling, and its jobs go back as if they had not been taken.
    pub fn give_way(&mut self, mut session: Session, effects: &mut Effects) {
        self.undo(std::mem::take(&mut session.log), Undone::ToSavepoint);
        self.unlock_all(&mut session, effects);
        self.write_touched(effects);
        self.hand_on_work(effects);
        self.close(session);
    }

    /// Undoes a unit that met a locked group half way and will be tried again from its beginning: this is no rollback
    /// for poison handling.
    pub fn abandon(&mut self, mut session: Session, effects: &mut Effects) {
        self.undo(std::mem::take(&mut session.log), Undone::BeforeItsCommit);
        self.unlock_all(&mut session, effects);
        self.hand_on_work(effects);
        self.close(session);
    }

    fn close(&mut self, mut session: Session) {
        self.sessions.remove(session.id);
        session.is_transaction = false;
        session.log.clear();
        session.overlays.clear();
        session.moved.clear();
        // The next session clears the table again, in time in proportion to its capacity.
        session.overlays.shrink_to(MOST_SPARE);
        session.log.shrink_to(MOST_SPARE);
        session.received_queues.clear();
        session.received_groups.clear();
        session.received_from.clear();
        session.reason = None;
        self.spare = Some(session);
    }

    /// Reverts the immediate effects of a log on memory: endpoints that were begun, and the counts of unread rows.
    fn undo(&mut self, log: Vec<Op>, undone: Undone) {
        for op in log.into_iter().rev() {
            match op {
                Op::Begin { endpoint } => {
                    self.remove_endpoint(endpoint);
                }
                Op::Take { endpoint, rows, system, .. } => {
                    let queue_id = self.queue_of(endpoint);
                    self.queue_state(queue_id).unread += u64::from(rows) + system.len() as u64;
                }
                Op::Redrive { letter } | Op::Purge { letter } => self.free_dead_letter(letter),
                Op::Work(op) => self.undo_work(op, undone),
                Op::Unit { unit_id } => self.undo_unit(unit_id),
                _ => {}
            }
        }
    }

    fn apply(&mut self, op: Op, now: Timestamp, effects: &mut Effects) {
        match op {
            Op::Begin { endpoint } => self.apply_begin(endpoint, now),
            Op::Send { endpoint, message_type_id, body, message_id, trace, verdict, retains } => {
                self.apply_send(endpoint, message_type_id, body, message_id, trace, verdict, retains, now, effects);
            }
            Op::Take { endpoint, rows, retains, system, .. } => {
                self.apply_take(endpoint, rows, retains, &system, effects);
            }
            Op::End { endpoint, endpoint_id, form } => {
                if self.endpoints.get(endpoint).is_some_and(|there| there.endpoint_id == endpoint_id) {
                    self.apply_end(endpoint, form, now, effects);
                }
            }
            Op::Timer { endpoint, due } => self.apply_timer(endpoint, due, now),
            Op::Move { endpoint, group } => self.apply_move(endpoint, group),
            Op::Reprioritise { endpoint, level } => self.apply_reprioritise(endpoint, level),
            Op::Release { group } => self.apply_release(group, effects),
            Op::Redrive { letter } => self.apply_redrive_dead_letter(letter, effects),
            Op::Purge { letter } => self.apply_purge_dead_letter(letter, effects),
            Op::Post { queue_id } => self.post_event(queue_id, QueueEvent::QueueActivation, now, effects),
            Op::Work(op) => self.apply_work(op, now),
            Op::Unit { unit_id } => self.apply_unit(unit_id, now, effects),
            Op::Define { catalog, applied } => self.apply_definitions(catalog, applied, now, effects),
        }
    }

    pub(super) fn queue_of(&self, endpoint: u32) -> i32 {
        self.groups[self.endpoints[endpoint].group].queue_id
    }

    /// Whether the endpoint's queue keeps what is received and sent now.
    pub(super) fn retains(&self, endpoint: u32) -> bool {
        self.catalog.queues.get(&self.queue_of(endpoint)).is_some_and(|queue| queue.is_retention_enabled)
    }
}
