//! The objects of every new broker.

use super::objects::{BrokerSettings, Catalog, Contract, MessageType, Service};
use crate::protocol::definition::{ContractEntry, SentBy, Validation};
use crate::protocol::system;
use std::sync::Arc;
use uuid::Uuid;

impl Catalog {
    /// The catalog of a new broker of that identity: the system's types, contracts and services, nothing else.
    ///
    /// The notification service stands on [`system::SYSTEM_QUEUE_ID`], which is no queue of the catalog.
    pub fn with_builtins(broker_guid: Uuid) -> Self {
        let settings = BrokerSettings { broker_guid, ..BrokerSettings::default() };
        let mut catalog = Self { settings, ..Self::default() };
        for (id, name, validation) in [
            (system::ERROR_ID, system::ERROR, Validation::WellFormedXml),
            (system::END_DIALOG_ID, system::END_DIALOG, Validation::Empty),
            (system::DIALOG_TIMER_ID, system::DIALOG_TIMER, Validation::Empty),
            (system::EVENT_NOTIFICATION_ID, system::EVENT_NOTIFICATION, Validation::WellFormedXml),
            (system::DEFAULT_TYPE_ID, system::DEFAULT, Validation::None),
        ] {
            let row = MessageType { id, name: name.into(), owner: None, validation, is_dropped: false };
            catalog.message_types.insert(id, Arc::new(row));
        }
        for (id, name, message_type, sent_by) in [
            (
                system::POST_EVENT_NOTIFICATION_ID,
                system::POST_EVENT_NOTIFICATION,
                system::EVENT_NOTIFICATION,
                SentBy::Initiator,
            ),
            (system::DEFAULT_CONTRACT_ID, system::DEFAULT, system::DEFAULT, SentBy::Any),
        ] {
            let entries = vec![ContractEntry { message_type: message_type.to_owned(), sent_by }];
            let row = Contract { id, name: name.into(), owner: None, entries, is_dropped: false };
            catalog.contracts.insert(id, Arc::new(row));
        }
        let row = Service {
            id: system::NOTIFICATION_SERVICE_ID,
            name: system::EVENT_NOTIFICATION_SERVICE.into(),
            owner: None,
            queue_id: system::SYSTEM_QUEUE_ID,
            contract_ids: Vec::new(),
        };
        catalog.services.insert(row.id, Arc::new(row));
        catalog
    }
}

/// Whether that id belongs to the system: its objects cannot be altered or dropped.
pub(super) fn is_system_id(id: i32) -> bool {
    id < system::FIRST_USER_ID
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_broker_has_default_for_both_sides_without_validation() {
        let catalog = Catalog::with_builtins(Uuid::from_u128(7));
        let message_type = catalog.message_type("DEFAULT").unwrap();
        assert_eq!(message_type.validation_letter().letter(), "N");
        assert_eq!(catalog.contract("DEFAULT").unwrap().sent_by("DEFAULT"), Some(SentBy::Any));
        assert!(catalog.message_type("default").is_none(), "names are compared byte by byte");
        assert_eq!(catalog.settings.broker_guid, Uuid::from_u128(7));
        assert!(catalog.settings.is_broker_enabled);
        assert!(!catalog.settings.is_honor_broker_priority_on);
    }

    #[test]
    fn everything_built_in_has_a_system_id_and_no_queue_shows() {
        let catalog = Catalog::with_builtins(Uuid::nil());
        let ids = catalog.message_types.keys().chain(catalog.contracts.keys()).chain(catalog.services.keys());
        assert!(ids.into_iter().all(|id| is_system_id(*id)));
        assert!(catalog.queues.is_empty());
        assert!(!is_system_id(catalog.settings.next_object_id));
    }
}
