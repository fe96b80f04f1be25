//! Event notifications on queues: the broker's own conversations (`docs/semantics.md`, "Activation").

use super::begin_dialog_conversation::LONGEST_SECONDS;
use super::change::Change;
use super::delivery::SentMessage;
use super::effects::Effects;
use super::endpoint::{Endpoint, NONE};
use super::execute::Checked;
use super::queuing_orders::QueuingOrders;
use super::session::{Op, Session};
use super::state::Core;
use crate::catalog::EventNotification;
use crate::error::Error;
use crate::id::MessageId;
use crate::protocol::definition::QueueEvent;
use crate::protocol::{ConversationState, Outcome, system};
use crate::time::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

impl Core {
    /// Begins the conversation over which a notification sends its events.
    pub(super) fn begin_notification(&mut self, notification: &EventNotification, now: Timestamp) {
        let group_id = self.ids.next_id();
        let service_id = system::NOTIFICATION_SERVICE_ID;
        let queue_id = self.catalog.services.get(&service_id).map_or(0, |service| service.queue_id);
        let group = self.group_place(group_id, service_id, queue_id);
        let endpoint = Endpoint {
            handle: notification.conversation_handle,
            conversation_id: self.ids.next_id(),
            endpoint_id: self.take_endpoint_id(),
            begun_at: now,
            lifetime: now.after_seconds(LONGEST_SECONDS),
            due: 0,
            send_sequence: 0,
            receive_sequence: 0,
            rows: QueuingOrders::default(),
            rare_fields: None,
            group,
            peer: NONE,
            service_id,
            contract_id: system::POST_EVENT_NOTIFICATION_ID,
            far_service: self.names.place(&notification.service),
            state: ConversationState::StartedOutbound,
            priority: 5,
            is_initiator: true,
            is_uncommitted: false,
            is_peer_known: false,
            has_retained: false,
            is_quarantined: false,
            is_system: true,
            is_dirty: false,
            is_stored: false,
        };
        let place = self.add_endpoint(endpoint);
        self.mark_dirty(place);
    }

    pub(super) fn end_notification(&mut self, handle: Uuid, now: Timestamp, effects: &mut Effects) {
        if let Some(place) = self.find(handle).filter(|place| self.endpoints[*place].is_system) {
            self.apply_end(place, crate::protocol::EndForm::Plain, now, effects);
        }
    }

    /// The other side of a notification's conversation ended or broke it: the notification is dropped.
    pub(super) fn break_notification(&mut self, place: u32, effects: &mut Effects) {
        let handle = self.endpoints[place].handle;
        self.erase(place, effects);
        let mut catalog = (*self.catalog).clone();
        let broken =
            catalog.event_notifications.values().find(|notification| notification.conversation_handle == handle);
        if let Some(id) = broken.map(|notification| notification.id) {
            catalog.event_notifications.remove(&id);
            effects.changes.push(Change::DeleteEventNotification(id));
            effects.catalog_changed = true;
            self.set_catalog(Arc::new(catalog));
        }
    }

    pub(super) fn post_queue_activation(&mut self, session: &mut Session, queue: &str) -> Checked<Outcome> {
        let queue_id = self.lookup.queue(queue).ok_or_else(|| Error::object_not_found("queue", queue))?;
        session.record(Op::Post { queue_id });
        Ok(Ok(Outcome::Done))
    }

    /// Posts this event of this queue to every notification on it.
    pub(super) fn post_event(&mut self, queue_id: i32, event: QueueEvent, now: Timestamp, effects: &mut Effects) {
        let catalog = self.catalog.clone();
        let Some(queue) = catalog.queues.get(&queue_id) else { return };
        let asked = catalog.event_notifications.values();
        for notification in asked.filter(|asked| asked.queue_id == queue_id && asked.event == event) {
            let place = self.find(notification.conversation_handle).filter(|place| self.endpoints[*place].is_system);
            let Some(place) = place else { continue };
            let body = event_body(event, &queue.name, now);
            let endpoint = &mut self.endpoints[place];
            let sequence = endpoint.send_sequence;
            endpoint.send_sequence += 1;
            let is_first = std::mem::replace(&mut endpoint.state, ConversationState::Conversing);
            if is_first == ConversationState::StartedOutbound {
                self.mark_dirty(place);
            }
            let message = SentMessage {
                sequence,
                message_type_id: system::EVENT_NOTIFICATION_ID,
                message_id: MessageId(self.ids.next_id()),
                body: Some(Arc::new(body)),
                trace: None,
                is_end: false,
                is_error: false,
                verdict: None,
            };
            self.dispatch(place, message, now, effects);
        }
    }
}

/// The body of an event notification.
fn event_body(event: QueueEvent, queue: &str, now: Timestamp) -> Vec<u8> {
    let (event_type, queue) = (event.word(), system::xml_text(queue));
    system::body_of(&format!(
        "<EVENT_INSTANCE><EventType>{event_type}</EventType><PostTime>{now}</PostTime><SchemaName>dbo</SchemaName>\
         <ObjectName>{queue}</ObjectName><ObjectType>QUEUE</ObjectType></EVENT_INSTANCE>"
    ))
}
