//! Poison messages: five rollbacks in a row disable the queue, or quarantine the guilty group (`docs/semantics.md`,
//! "Poison messages").

use super::change::Change;
use super::effects::Effects;
use super::session::Session;
use super::state::Core;
use crate::catalog::Queue;
use crate::protocol::definition::QueueEvent;
use crate::time::Timestamp;
use std::sync::Arc;

/// Rollbacks in a row that make a message poison.
pub const POISON_ROLLBACKS: u8 = 5;

impl Core {
    pub(super) fn count_rollback(&mut self, session: &Session, now: Timestamp, effects: &mut Effects) {
        for &queue_id in &session.received_queues {
            let Some(queue) = self.catalog.queues.get(&queue_id) else { continue };
            if !queue.is_poison_message_handling_enabled {
                continue;
            }
            if queue.is_poison_quarantine_enabled {
                for &group in &session.received_groups {
                    self.count_group_rollback(group, queue_id);
                }
                continue;
            }
            let rollbacks = &mut self.queue_state(queue_id).rollbacks;
            *rollbacks += 1;
            if *rollbacks >= POISON_ROLLBACKS {
                *rollbacks = 0;
                self.disable_queue(queue_id, now, effects);
            }
        }
    }

    fn count_group_rollback(&mut self, group: u32, queue_id: i32) {
        let Some(state) = self.groups.get(group).filter(|group| group.queue_id == queue_id) else { return };
        let rollbacks = state.rollbacks.saturating_add(1);
        let is_poison = rollbacks >= POISON_ROLLBACKS;
        // A conversation that joins the group later begins at 0.
        self.groups[group].rollbacks = if is_poison { 0 } else { rollbacks };
        if is_poison {
            self.set_quarantined(group, true);
        }
    }

    fn disable_queue(&mut self, queue_id: i32, now: Timestamp, effects: &mut Effects) {
        let mut catalog = (*self.catalog).clone();
        // Transactions that were open when it was turned off may roll back five times more.
        let is_on = |queue: &&mut Arc<Queue>| queue.is_receive_enabled;
        let Some(queue) = catalog.queues.get_mut(&queue_id).filter(is_on) else { return };
        let disabled = Arc::make_mut(queue);
        disabled.is_receive_enabled = false;
        disabled.is_enqueue_enabled = false;
        effects.changes.push(Change::PutQueue(queue.clone()));
        effects.catalog_changed = true;
        self.set_catalog(Arc::new(catalog));
        self.post_event(queue_id, QueueEvent::BrokerQueueDisabled, now, effects);
    }
}
