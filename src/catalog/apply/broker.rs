//! The broker's own settings.

use super::{Applied, Consequence, Touched};
use crate::catalog::objects::{Catalog, EventNotification};
use crate::id::IdSource;
use crate::protocol::definition::BrokerOption;
use std::sync::Arc;

pub(super) fn alter(catalog: &mut Catalog, option: BrokerOption, ids: &mut IdSource) -> Applied {
    let mut applied = Applied::of(Touched::Settings);
    match option {
        BrokerOption::EnableBroker => enable(catalog, true, &mut applied),
        BrokerOption::DisableBroker => enable(catalog, false, &mut applied),
        BrokerOption::HonorBrokerPriority(is_on) => catalog.settings.is_honor_broker_priority_on = is_on,
        BrokerOption::ErrorBrokerConversations => {
            applied.consequences.push(Consequence::ErrorBrokerConversations);
            enable(catalog, true, &mut applied);
        }
        BrokerOption::NewBroker => {
            catalog.settings.broker_guid = ids.next_id();
            applied.consequences.push(Consequence::NewBroker);
            enable(catalog, true, &mut applied);
            // Their conversations vanish with all others; the notifications stay, so each begins a new one.
            for row in catalog.event_notifications.values_mut() {
                *row = Arc::new(EventNotification { conversation_handle: ids.next_id(), ..(**row).clone() });
                applied.touched.push(Touched::EventNotification(row.id));
                applied.consequences.push(Consequence::NotificationCreated { notification: row.clone() });
            }
        }
    }
    applied
}

fn enable(catalog: &mut Catalog, is_enabled: bool, applied: &mut Applied) {
    if catalog.settings.is_broker_enabled != is_enabled {
        catalog.settings.is_broker_enabled = is_enabled;
        applied.consequences.push(Consequence::BrokerEnabledChanged { is_enabled });
    }
}
