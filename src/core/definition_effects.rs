//! The effects of definitions on open conversations (`docs/semantics.md`, "Objects").

use super::effects::{Arrival, Effects};
use super::endpoint::Endpoint;
use super::state::Core;
use crate::catalog::apply::Consequence;
use crate::time::Timestamp;

impl Core {
    pub(super) fn apply_consequence(&mut self, consequence: Consequence, now: Timestamp, effects: &mut Effects) {
        match consequence {
            Consequence::ContractDropped { contract_id } => {
                for place in self.places(|endpoint| endpoint.contract_id == contract_id) {
                    self.raise_error(place, -8487, "the contract of the conversation was dropped", now, effects);
                }
            }
            Consequence::ServiceContractsDropped { service_id, contract_ids } => {
                let targets = self.places(|endpoint| {
                    !endpoint.is_initiator
                        && endpoint.service_id == service_id
                        && contract_ids.contains(&endpoint.contract_id)
                });
                for place in targets {
                    let peer = self.endpoints[place].peer;
                    self.raise_error(place, -8468, "the service was altered: it lost the contract", now, effects);
                    if self.endpoints.get(peer).is_some() {
                        let description = "the remote service was altered: it lost the contract";
                        self.raise_error(peer, -8469, description, now, effects);
                    }
                }
            }
            Consequence::ServiceMoved { service_id, from_queue_id, to_queue_id } => {
                self.move_service(service_id, from_queue_id, to_queue_id, effects);
            }
            Consequence::ServiceDropped { service_id, queue_id } => {
                for place in self.places(|endpoint| endpoint.service_id == service_id) {
                    let peer = self.endpoints[place].peer;
                    if self.endpoints.get(peer).is_some() {
                        self.raise_error(peer, -8470, "the remote service was dropped", now, effects);
                    }
                    self.erase(place, effects);
                }
                effects.arrivals.push(Arrival { queue_id, newly_ready: 0 });
            }
            Consequence::QueueDropped { queue_id } => {
                self.queues.remove(&queue_id);
            }
            Consequence::QueueStatusChanged { queue_id, is_enabled } => {
                if is_enabled {
                    self.queue_state(queue_id).forget_rollbacks();
                }
                let newly_ready = if is_enabled { self.depth(queue_id).ready_groups } else { 0 };
                effects.arrivals.push(Arrival { queue_id, newly_ready });
            }
            Consequence::NewBroker => {
                for place in self.places(|_| true) {
                    let queue_id = self.queue_of(place);
                    self.erase(place, effects);
                    effects.arrivals.push(Arrival { queue_id, newly_ready: 0 });
                }
            }
            Consequence::ErrorBrokerConversations => {
                // A conversation begun by an open transaction has no endpoint row yet, so no message row may be written
                // for it.
                for place in self.places(|endpoint| !endpoint.is_system && !endpoint.is_uncommitted) {
                    let description = "the conversations of this database were ended by ERROR_BROKER_CONVERSATIONS";
                    self.raise_error(place, -9719, description, now, effects);
                }
            }
            Consequence::WorkQueueAltered { queue_id } => self.work_queue_altered(queue_id),
            Consequence::WorkQueueDropped { queue_id } => self.work_queue_dropped(queue_id),
            Consequence::WorkScheduleAltered { schedule_id } => self.work_schedule_altered(schedule_id, now),
            Consequence::WorkScheduleDropped { schedule_id } => self.work.forget_schedule(schedule_id),
            // Waiting messages are tried again after all definitions are in.
            Consequence::BrokerEnabledChanged { .. } => {}
            Consequence::NotificationCreated { notification } => self.begin_notification(&notification, now),
            Consequence::NotificationDropped { conversation_handle, .. } => {
                self.end_notification(conversation_handle, now, effects);
            }
        }
    }

    /// Oldest first, whatever their places: the consequences must not depend on whether the broker was opened again.
    fn places(&self, affects: impl Fn(&Endpoint) -> bool) -> Vec<u32> {
        let found = self.endpoints.iter().filter(|(_, endpoint)| affects(endpoint));
        let mut places: Vec<u32> = found.map(|(place, _)| place).collect();
        places.sort_unstable_by_key(|place| self.endpoints[*place].endpoint_id);
        places
    }

    /// All messages of a service go to another queue (assertion 22): rows name endpoints, so only memory moves.
    fn move_service(&mut self, service_id: i32, from_queue_id: i32, to_queue_id: i32, effects: &mut Effects) {
        let groups: Vec<u32> =
            self.groups.iter().filter(|(_, group)| group.service_id == service_id).map(|(place, _)| place).collect();
        let mut newly_ready = 0;
        for place in groups {
            self.unready(place);
            let members = &self.groups[place].members;
            let counted = members.iter().map(|member| &self.endpoints[*member]);
            let waiting: u64 = counted.filter(|endpoint| !endpoint.is_quarantined).map(Endpoint::waiting_rows).sum();
            self.queue_state(from_queue_id).unread -= waiting;
            self.groups[place].queue_id = to_queue_id;
            self.queue_state(to_queue_id).unread += waiting;
            newly_ready += usize::from(self.rerank(place));
        }
        effects.arrivals.push(Arrival { queue_id: from_queue_id, newly_ready: 0 });
        effects.arrivals.push(Arrival { queue_id: to_queue_id, newly_ready });
    }
}
