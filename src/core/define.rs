//! Definitions: their checks, and their rows.

use super::change::Change;
use super::definition_wait::{needs, needs_conversations};
use super::effects::Effects;
use super::execute::Checked;
use super::group_lock::GroupKey;
use super::session::{Op, Session};
use super::state::Core;
use crate::catalog::Catalog;
use crate::catalog::apply::{self, Applied, Consequence, Touched};
use crate::error::Error;
use crate::protocol::Outcome;
use crate::protocol::definition::Definition;
use crate::time::Timestamp;
use std::sync::Arc;

impl Core {
    pub(super) fn define(&mut self, session: &mut Session, definitions: &[Definition]) -> Checked<Outcome> {
        if session.is_transaction || !session.log.is_empty() || !session.locks.is_empty() {
            return Err(Error::definition_in_transaction());
        }
        let mut catalog = (*self.catalog).clone();
        let mut applied = Vec::with_capacity(definitions.len());
        for (index, definition) in definitions.iter().enumerate() {
            let done = apply::apply_with(&mut catalog, definition, &mut self.ids, &self.body_checks);
            applied.push(done.map_err(|error| error.in_statement(index))?);
        }
        for consequence in applied.iter().flat_map(|applied| &applied.consequences) {
            if let Consequence::WorkQueueDropped { queue_id } = consequence {
                self.check_jobs_are_free(*queue_id)?;
            }
        }
        // If another session holds a conversation that this would change, that session finishes first.
        let consequences = applied.iter().flat_map(|applied| &applied.consequences);
        if let Some(blocked) = consequences.clone().find_map(|consequence| self.held(session, consequence)) {
            self.blocked_queues = consequences.flat_map(|consequence| self.queues_needed(consequence)).collect();
            return Ok(Err(blocked));
        }
        let warnings = applied.iter().flat_map(|applied| applied.warnings.iter().cloned()).collect();
        session.record(Op::Define { catalog: Arc::new(catalog), applied });
        Ok(Ok(Outcome::Warnings(warnings)))
    }

    /// A group that a consequence would change and another session holds.
    fn held(&self, session: &Session, consequence: &Consequence) -> Option<GroupKey> {
        if !needs_conversations(consequence) {
            return None;
        }
        self.groups
            .iter()
            .filter(|(_, group)| group.owner != 0 && group.owner != session.id)
            .find(|(_, group)| group.members.iter().any(|place| needs(consequence, &self.endpoints[*place])))
            .map(|(place, _)| GroupKey(place))
    }

    pub(super) fn apply_definitions(
        &mut self,
        catalog: Arc<Catalog>,
        applied: Vec<Applied>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let before = self.catalog.clone();
        let mut catalog = catalog;
        Arc::make_mut(&mut catalog).date_queues(now);
        self.set_catalog(catalog);
        effects.catalog_changed = true;
        if !self.catalog.work_queues.is_empty() {
            self.work.keep_marks();
        }
        // The conversations that it waited for may be gone, so it is not known which of the waits were its own.
        if applied.iter().flat_map(|applied| &applied.consequences).any(needs_conversations) {
            self.end_definition_waits(effects);
        }
        for applied in applied {
            for touched in applied.touched {
                effects.changes.extend(self.change_of(&before, touched));
            }
            for consequence in applied.consequences {
                self.apply_consequence(consequence, now, effects);
            }
        }
        self.revisit_outboxes(false, effects);
    }

    /// The row of a definition; nothing if a later statement of the same script removes the object again.
    fn change_of(&self, before: &Catalog, touched: Touched) -> Option<Change> {
        let catalog = &self.catalog;
        Some(match touched {
            Touched::MessageType(id) => Change::PutMessageType(catalog.message_types.get(&id)?.clone()),
            Touched::Contract(id) => Change::PutContract(catalog.contracts.get(&id)?.clone()),
            Touched::Queue(id) => Change::PutQueue(catalog.queues.get(&id)?.clone()),
            Touched::QueueDeleted(id) => Change::DeleteQueue(before.queues.get(&id).map(|_| id)?),
            Touched::Service(id) => Change::PutService(catalog.services.get(&id)?.clone()),
            Touched::ServiceDeleted(id) => Change::DeleteService(before.services.get(&id).map(|_| id)?),
            Touched::Priority(id) => Change::PutPriority(catalog.priorities.get(&id)?.clone()),
            Touched::PriorityDeleted(id) => Change::DeletePriority(before.priorities.get(&id).map(|_| id)?),
            Touched::XmlSchemaCollection(id) => {
                Change::PutXmlSchemaCollection(catalog.xml_schema_collections.get(&id)?.clone())
            }
            Touched::XmlSchemaCollectionDeleted(id) => {
                Change::DeleteXmlSchemaCollection(before.xml_schema_collections.get(&id).map(|_| id)?)
            }
            Touched::EventNotification(id) => {
                Change::PutEventNotification(catalog.event_notifications.get(&id)?.clone())
            }
            Touched::EventNotificationDeleted(id) => {
                Change::DeleteEventNotification(before.event_notifications.get(&id).map(|_| id)?)
            }
            Touched::WorkQueue(id) => Change::PutWorkQueue(catalog.work_queues.get(&id)?.clone()),
            Touched::WorkQueueDeleted(id) => Change::DeleteWorkQueue(before.work_queues.get(&id).map(|_| id)?),
            Touched::WorkSchedule(id) => Change::PutWorkSchedule(catalog.work_schedules.get(&id)?.clone()),
            Touched::WorkScheduleDeleted(id) => Change::DeleteWorkSchedule(before.work_schedules.get(&id).map(|_| id)?),
            Touched::Settings => Change::PutSettings(catalog.settings),
        })
    }
}
