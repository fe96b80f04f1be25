//! Event notifications on queues.

use super::{Applied, Consequence, Touched, take_object_id};
use crate::catalog::name::{check_far_service_name, check_name};
use crate::catalog::objects::{Catalog, EventNotification};
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::protocol::definition::QueueEvent;
use std::sync::Arc;

const WHAT: &str = "event notification";

pub(super) fn create(
    catalog: &mut Catalog,
    name: &str,
    queue: &str,
    event: QueueEvent,
    service: &str,
    ids: &mut IdSource,
) -> Result<Applied> {
    check_name(WHAT, name)?;
    check_far_service_name(service)?;
    let watched = catalog.queue(queue).ok_or_else(|| Error::object_not_found("queue", queue))?.clone();
    if find(catalog, name, watched.id).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    if event == QueueEvent::QueueActivation && watched.activation.as_ref().is_some_and(|a| a.is_enabled) {
        return Err(Error::new(
            Code::ACTIVATION_EXCLUDES_NOTIFICATION,
            format!(
                "event notification '{name}' for QUEUE_ACTIVATION cannot be created: activation of queue '{queue}' is \
                 enabled; ALTER QUEUE [{queue}] WITH ACTIVATION (STATUS = OFF) disables it"
            ),
        ));
    }
    let id = take_object_id(catalog)?;
    let notification = Arc::new(EventNotification {
        id,
        name: name.into(),
        queue_id: watched.id,
        event,
        service: service.into(),
        conversation_handle: ids.next_id(),
    });
    catalog.event_notifications.insert(id, notification.clone());
    Ok(Applied::created(Touched::EventNotification(id)).then(Consequence::NotificationCreated { notification }))
}

pub(super) fn drop(catalog: &mut Catalog, name: &str, queue: &str) -> Result<Applied> {
    let queue_id = catalog.queue(queue).ok_or_else(|| Error::object_not_found("queue", queue))?.id;
    let id = find(catalog, name, queue_id).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    let mut applied = Applied::default();
    remove(catalog, id, &mut applied);
    Ok(applied)
}

/// Removes a notification and records the consequence.
pub(super) fn remove(catalog: &mut Catalog, id: i32, applied: &mut Applied) {
    if let Some(removed) = catalog.event_notifications.remove(&id) {
        applied.touched.push(Touched::EventNotificationDeleted(id));
        applied.consequences.push(Consequence::NotificationDropped {
            notification_id: id,
            conversation_handle: removed.conversation_handle,
        });
    }
}

fn find(catalog: &Catalog, name: &str, queue_id: i32) -> Option<i32> {
    let mut notifications = catalog.event_notifications.values();
    notifications.find(|found| found.queue_id == queue_id && &*found.name == name).map(|found| found.id)
}
