//! The core with its rows in memory: the model for comparing stores, and the base of the core's tests.

use super::change::{Change, DeadLetterRow, EndpointRow, MessageRow, TransmissionRow};
use super::effects::{Effects, ReadRow, Reply, Step, Taken};
use super::restore::Restore;
use super::session::{Savepoint, Session};
use super::state::{Core, Limits};
use super::tick::CLOCK_SET_BACK_US;
use super::work::JobRows;
use crate::catalog::body::Verdict;
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::protocol::{Message, Outcome, Unit, Verb};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// A [`Core`] and the rows it has written.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct Memory {
    /// The broker.
    pub core: Core,
    limits: Limits,
    endpoints: BTreeMap<u64, EndpointRow>,
    received: BTreeMap<u64, u64>,
    messages: BTreeMap<u64, MessageRow>,
    retained: BTreeMap<u64, (u8, MessageRow)>,
    transmissions: BTreeMap<u64, TransmissionRow>,
    dead_letters: BTreeMap<u64, (DeadLetterRow, MessageRow)>,
    units: BTreeMap<Uuid, Timestamp>,
    jobs: JobRows,
    /// The latest time of a tick, since the clock was last set back.
    latest: Timestamp,
}

impl Memory {
    /// A new broker whose ids count from 1.
    pub fn new(limits: Limits) -> Self {
        let core = Core::new(IdSource::Counted(0), limits.clone());
        let (endpoints, received, messages) = Default::default();
        let (retained, transmissions, dead_letters, units, jobs) = Default::default();
        let latest = Timestamp(i64::MIN);
        Self { core, limits, endpoints, received, messages, retained, transmissions, dead_letters, units, jobs, latest }
    }

    /// Executes a unit, wholly or not at all. `Ok(None)`: an open session holds a group that it needs.
    ///
    /// # Errors
    /// Those of its verbs.
    pub fn submit(&mut self, unit: Unit, now: Timestamp) -> Result<Option<Vec<Outcome>>> {
        let mut session = self.core.begin();
        let mut outcomes = Vec::with_capacity(unit.len());
        let mut effects = Effects::default();
        for verb in unit {
            match self.execute(&mut session, verb, now) {
                Ok(Some(outcome)) => outcomes.push(outcome),
                Ok(None) => {
                    self.core.abandon(session, &mut effects);
                    self.write(effects, now);
                    return Ok(None);
                }
                Err(error) => {
                    // No caller saw the rows it received before, so this rollback does not count as poison.
                    self.core.abandon(session, &mut effects);
                    self.write(effects, now);
                    return Err(error);
                }
            }
        }
        self.commit(session, now);
        Ok(Some(outcomes))
    }

    /// Executes a verb in a session. `Ok(None)`: another session holds a group that it needs.
    ///
    /// # Errors
    /// Those of the verb.
    pub fn execute(&mut self, session: &mut Session, verb: Verb, now: Timestamp) -> Result<Option<Outcome>> {
        let _schemas = match &verb {
            // A definition that is submitted gets its schemas compiled before it is ordered, as in a store.
            Verb::Define(definitions) => Some(self.core.body_checks().compile_schemas(definitions)),
            _ => None,
        };
        let step = self.core.execute(session, verb, now);
        // As in a store: what a verb has written at once is there although its session has not ended.
        let mut effects = Effects::default();
        self.core.hand_on_work(&mut effects);
        self.write(effects, now);
        Ok(match step? {
            Step::Blocked(_) => None,
            Step::Done(Reply::Outcome(outcome)) => Some(outcome),
            Step::Done(Reply::Rows(taken)) => {
                let messages = taken.into_iter().map(|taken| self.read(taken)).collect::<Result<_>>()?;
                Some(Outcome::Received(messages))
            }
            Step::Done(Reply::Jobs(taken)) => {
                Some(Outcome::Jobs(taken.into_iter().map(|taken| self.jobs.read(taken)).collect::<Result<_>>()?))
            }
        })
    }

    /// Commits a session.
    pub fn commit(&mut self, session: Session, now: Timestamp) {
        let mut effects = Effects::default();
        self.core.commit(session, now, &mut effects);
        self.write(effects, now);
    }

    /// Undoes what a session did since a savepoint.
    pub fn rollback_to(&mut self, session: &mut Session, savepoint: Savepoint, now: Timestamp) {
        let mut effects = Effects::default();
        self.core.rollback_to(session, savepoint, &mut effects);
        self.write(effects, now);
    }

    /// Rolls a session back.
    pub fn rollback(&mut self, session: Session, now: Timestamp) {
        let mut effects = Effects::default();
        self.core.rollback(session, now, &mut effects);
        self.write(effects, now);
    }

    /// Undoes a session that ended without its caller's doing.
    pub fn lose(&mut self, session: Session, now: Timestamp) {
        let mut effects = Effects::default();
        self.core.lose(session, now, &mut effects);
        self.write(effects, now);
    }

    /// Handles all due timers and lifetimes, and a clock that was set back by a second or more.
    pub fn tick(&mut self, now: Timestamp) {
        let mut is_set_back = self.latest.0.saturating_sub(now.0) >= CLOCK_SET_BACK_US;
        self.latest = if is_set_back { now } else { self.latest.max(now) };
        while is_set_back || self.core.next_due().is_some_and(|due| due <= now) {
            is_set_back = false;
            let mut effects = Effects::default();
            self.core.tick(now, &mut effects);
            self.write(effects, now);
        }
    }

    /// Closes the broker and opens it again.
    ///
    /// # Errors
    /// As [`Self::restored`].
    pub fn reopen(&mut self, now: Timestamp) -> Result<()> {
        for change in self.core.last_work_changes(now) {
            self.write_change(change);
        }
        self.core = self.restored(now)?;
        Ok(())
    }

    /// A second broker, rebuilt from the rows as after a crash.
    ///
    /// # Errors
    /// 60012 if the rows contradict each other: a defect of the core.
    pub fn restored(&self, now: Timestamp) -> Result<Core> {
        let catalog = (**self.core.catalog()).clone();
        let mut restore = Restore::new(catalog, self.core.ids.clone(), self.limits.clone());
        let (next_queuing_order, next_endpoint_id, next_transmission_id) = self.core.counters();
        restore.counters(next_queuing_order, next_endpoint_id, next_transmission_id);
        for row in self.endpoints.values() {
            restore.endpoint(row.clone());
        }
        for (endpoint_id, receive_sequence) in &self.received {
            restore.received_up_to(*endpoint_id, *receive_sequence);
        }
        for row in self.messages.values() {
            restore.message(row.queuing_order, row.endpoint_id, row.delivery_class, row.sequence, row.message_type_id);
        }
        for row in self.transmissions.values() {
            let (is_end, is_error) = (row.is_end_of_dialog, row.is_conversation_error);
            restore.transmission(row.transmission_id, row.endpoint_id, row.sequence, row.priority, is_end, is_error);
        }
        for (order, (row, _)) in &self.dead_letters {
            restore.dead_letter(*order, row.endpoint_id, row.handle, row.delivery_class, row.sequence);
        }
        for (unit_id, done_at) in &self.units {
            restore.unit(*unit_id, *done_at);
        }
        self.jobs.restore(&mut restore, now);
        let restored = restore.finish(now)?;
        let repairs = restored.repairs.into_list();
        // Jobs of transactions that are open now have changes.
        let changes: Vec<_> = restored.changes.iter().filter(|change| !matches!(change, Change::Work(_))).collect();
        match (&repairs[..], &changes[..]) {
            ([], []) => Ok(restored.core),
            (_, changes) => Err(Error::new(Code::STORE_DAMAGED, format!("{repairs:?} {changes:?}"))),
        }
    }

    /// The endpoints' rows.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointRow> {
        self.endpoints.values()
    }

    /// The rows that wait in queues.
    pub fn messages(&self) -> impl Iterator<Item = &MessageRow> {
        self.messages.values()
    }

    /// The rows that are kept by RETENTION, with their status.
    pub fn retained(&self) -> impl Iterator<Item = &(u8, MessageRow)> {
        self.retained.values()
    }

    /// The dead letters with their messages, the oldest message first.
    pub fn dead_letters(&self) -> impl Iterator<Item = &(DeadLetterRow, MessageRow)> {
        self.dead_letters.values()
    }

    /// The rows of the transmission queue.
    pub fn transmissions(&self) -> impl Iterator<Item = &TransmissionRow> {
        self.transmissions.values()
    }

    /// The jobs that are not finished, and the history of the others.
    pub fn jobs(&self) -> &JobRows {
        &self.jobs
    }

    fn read(&self, taken: Taken) -> Result<Message> {
        let row = self
            .messages
            .get(&taken.queuing_order)
            .ok_or_else(|| Error::object_not_found("message", &taken.queuing_order.to_string()))?;
        let row = ReadRow {
            message_type_id: row.message_type_id,
            message_id: row.message_id,
            enqueued_at: row.enqueued_at,
            body: row.body.as_ref().map(|body| body.to_vec()),
            trace: row.trace.clone(),
        };
        taken.into_message(self.core.catalog(), row)
    }

    pub(super) fn write(&mut self, mut effects: Effects, now: Timestamp) {
        loop {
            for change in effects.changes.drain(..) {
                self.write_change(change);
            }
            for transmission_id in std::mem::take(&mut effects.unchecked) {
                self.check(transmission_id, &mut effects);
            }
            if effects.redeliver.is_empty() && effects.changes.is_empty() {
                return;
            }
            while let Some(first) = effects.redeliver.pop_first() {
                if let Some(row) = self.transmissions.get(&first.transmission_id).cloned() {
                    self.core.deliver(row, now, &mut effects);
                    for change in effects.changes.drain(..) {
                        self.write_change(change);
                    }
                }
            }
        }
    }

    /// Checks the body of a message that waits for its check.
    fn check(&mut self, transmission_id: u64, effects: &mut Effects) {
        let Some(row) = self.transmissions.get(&transmission_id) else { return };
        let (endpoint_id, catalog) = (row.endpoint_id, self.core.catalog().clone());
        let (Some(message_type), Some(body)) = (catalog.message_types.get(&row.message_type_id), &row.body) else {
            return;
        };
        let verdict = Verdict::check(self.core.body_checks(), &catalog, message_type, body);
        self.core.checked(transmission_id, endpoint_id, Arc::new(verdict), effects);
    }

    fn write_change(&mut self, change: Change) {
        match change {
            Change::PutEndpoint(row) => {
                self.endpoints.insert(row.endpoint_id, *row);
            }
            Change::DeleteEndpoint(endpoint_id) => {
                self.endpoints.remove(&endpoint_id);
                self.received.remove(&endpoint_id);
            }
            Change::NoteReceiveSequence { endpoint_id, receive_sequence } => {
                self.received.insert(endpoint_id, receive_sequence);
            }
            Change::InsertMessage(row) => {
                self.messages.insert(row.queuing_order, *row);
            }
            Change::DeleteMessage { queuing_order } => {
                self.messages.remove(&queuing_order).expect("a message is removed once");
            }
            Change::BuryMessage(row) => {
                let message = self.messages.remove(&row.queuing_order).expect("a message dies once");
                self.dead_letters.insert(row.queuing_order, (*row, message));
            }
            Change::RedriveMessage { queuing_order } => {
                let (_, message) = self.dead_letters.remove(&queuing_order).expect("a dead letter is redriven once");
                self.messages.insert(queuing_order, message);
            }
            Change::DeleteDeadLetter { queuing_order } => {
                self.dead_letters.remove(&queuing_order).expect("a dead letter is purged once");
            }
            Change::RetainMessage { queuing_order } => {
                let row = self.messages.remove(&queuing_order).expect("a message is received once");
                self.retained.insert(queuing_order, (0, row));
            }
            Change::InsertRetained(row) => {
                self.retained.insert(row.queuing_order, (3, *row));
            }
            Change::DeleteRetained { endpoint_id } => {
                self.retained.retain(|_, (_, row)| row.endpoint_id != endpoint_id);
            }
            Change::InsertTransmission(row) => {
                self.transmissions.insert(row.transmission_id, *row);
            }
            Change::DeleteTransmission { transmission_id } => {
                self.transmissions.remove(&transmission_id).expect("a transmission is removed once");
            }
            Change::SetTransmissionStatus { transmission_id, status } => {
                if let Some(row) = self.transmissions.get_mut(&transmission_id) {
                    row.status = status;
                }
            }
            Change::InsertDoneUnit { unit_id, done_at } => drop(self.units.insert(unit_id, done_at)),
            Change::DeleteDoneUnit { unit_id } => drop(self.units.remove(&unit_id)),
            Change::Work(change) => self.jobs.write(change),
            Change::DeleteWorkSchedule(id) => drop(self.jobs.schedules.remove(&id)),
            // Definitions live in the core's catalog.
            _ => {}
        }
    }
}
