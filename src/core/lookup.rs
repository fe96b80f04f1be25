//! Names to ids, built once per change of the catalog: verbs look names up a hundred thousand times a second.

use crate::catalog::{Catalog, fold_name};
use crate::protocol::definition::SentBy;
use hashbrown::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Lookup {
    message_types: HashMap<Arc<str>, i32>,
    contracts: HashMap<Arc<str>, i32>,
    services: HashMap<Arc<str>, i32>,
    queues: HashMap<Box<str>, i32>,
    sent_by: HashMap<(i32, i32), SentBy>,
}

impl Lookup {
    pub(super) fn new(catalog: &Catalog) -> Self {
        let mut lookup = Self::default();
        for message_type in catalog.message_types.values().filter(|candidate| !candidate.is_dropped) {
            lookup.message_types.insert(message_type.name.clone(), message_type.id);
        }
        for contract in catalog.contracts.values().filter(|candidate| !candidate.is_dropped) {
            lookup.contracts.insert(contract.name.clone(), contract.id);
            for entry in &contract.entries {
                if let Some(id) = lookup.message_types.get(&*entry.message_type) {
                    lookup.sent_by.insert((contract.id, *id), entry.sent_by);
                }
            }
        }
        for service in catalog.services.values() {
            lookup.services.insert(service.name.clone(), service.id);
        }
        for queue in catalog.queues.values() {
            lookup.queues.insert(fold_name(&queue.name).into(), queue.id);
        }
        lookup
    }

    pub(super) fn message_type(&self, name: &str) -> Option<i32> {
        self.message_types.get(name).copied()
    }

    pub(super) fn contract(&self, name: &str) -> Option<i32> {
        self.contracts.get(name).copied()
    }

    pub(super) fn service(&self, name: &str) -> Option<i32> {
        self.services.get(name).copied()
    }

    pub(super) fn queue(&self, name: &str) -> Option<i32> {
        self.queues.get(name).or_else(|| self.queues.get(&*fold_name(name))).copied()
    }

    /// The side that may send that type over that contract.
    pub(super) fn sent_by(&self, contract_id: i32, message_type_id: i32) -> Option<SentBy> {
        self.sent_by.get(&(contract_id, message_type_id)).copied()
    }
}
