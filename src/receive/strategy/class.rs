//! The conversations that count as high.

use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::protocol::definition::AnyOr;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The messages that a strategy on one queue treats as high; made by [`by_levels`] or [`by_contract`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HighClass(Named);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    Levels(u8, u8),
    Contract(Arc<str>),
}

/// Conversations whose level is within these bounds, 1 (low) to 10 (high).
pub fn by_levels(levels: RangeInclusive<u8>) -> HighClass {
    HighClass(Named::Levels(*levels.start(), *levels.end()))
}

/// Conversations over that contract. Broker priorities must give it a level in the queue above that of every other
/// contract: a RECEIVE chooses by level, so only the level separates the contract's conversations from the rest.
///
/// A conversation keeps the level it began with; one begun before the broker priority was made is not high.
/// The level is looked up when the strategy starts: after a change of the broker priority start it again.
pub fn by_contract(contract: impl Into<Arc<str>>) -> HighClass {
    HighClass(Named::Contract(contract.into()))
}

impl From<RangeInclusive<u8>> for HighClass {
    fn from(levels: RangeInclusive<u8>) -> Self {
        by_levels(levels)
    }
}

impl HighClass {
    /// The lowest and the highest level, if they do not depend on the definitions.
    pub(super) fn levels(&self) -> Option<(u8, u8)> {
        match self.0 {
            Named::Levels(lowest, highest) => Some((lowest, highest)),
            Named::Contract(_) => None,
        }
    }

    /// The lowest and the highest level of the class in that queue.
    pub(super) fn resolve(&self, catalog: &Catalog, queue: &str) -> Result<(u8, u8)> {
        super::drain::check_queue(catalog, queue)?;
        match &self.0 {
            Named::Levels(lowest, highest) => check_levels(*lowest, *highest).map(|()| (*lowest, *highest)),
            Named::Contract(contract) => above_the_rest(catalog, queue, contract).map(|lowest| (lowest, 10)),
        }
    }
}

/// The lowest level that conversations over that contract get in that queue, if all others get lower ones.
fn above_the_rest(catalog: &Catalog, queue: &str, high: &str) -> Result<u8> {
    let high = catalog.contract(high).ok_or_else(|| Error::contract_not_found(high))?;
    let queue_id = catalog.queue(queue).map(|queue| queue.id);
    // All peers that no priority names have one level, so one unnamed peer stands for them.
    let named = catalog.priorities.values().filter_map(|priority| match &priority.remote_service {
        AnyOr::Name(name) => Some(name.as_str()),
        AnyOr::Any => None,
    });
    let remotes: Vec<&str> = named.chain([""]).collect();
    let mut lowest_high = 10;
    let mut highest_other: Option<(u8, &str)> = None;
    for service in catalog.services.values().filter(|service| Some(service.queue_id) == queue_id) {
        for remote in &remotes {
            for contract in catalog.contracts.values().filter(|contract| !contract.is_dropped) {
                let level = catalog.level_for(contract.id, service.id, remote);
                if contract.id == high.id {
                    lowest_high = lowest_high.min(level);
                } else if highest_other.is_none_or(|(highest, _)| level > highest) {
                    highest_other = Some((level, &contract.name));
                }
            }
        }
    }
    match highest_other {
        Some((level, other)) if level >= lowest_high => Err(Error::new(
            Code::OUT_OF_RANGE,
            format!(
                "contract '{}' has level {lowest_high} in queue '{queue}' and contract '{other}' has level {level}: give \
                 '{}' a broker priority above all others, or name the high class by levels",
                high.name, high.name
            ),
        )),
        _ => Ok(lowest_high),
    }
}

/// Refuses a range that holds no level.
pub(super) fn check_levels(lowest: u8, highest: u8) -> Result<()> {
    if lowest == 0 || highest > 10 || lowest > highest {
        let found = format!("{lowest} to {highest}");
        return Err(Error::out_of_range("the range of levels", found, "an ascending range within 1 to 10"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Contract, Priority, Queue, Service};

    fn catalog(priorities: &[(i32, Option<i32>, u8)]) -> Catalog {
        let mut catalog = Catalog::default();
        let queue = Queue {
            id: 1,
            name: "inventory".into(),
            is_receive_enabled: true,
            is_enqueue_enabled: true,
            is_retention_enabled: false,
            is_poison_message_handling_enabled: true,
            is_poison_quarantine_enabled: false,
            retry: None,
            activation: None,
            off: None,
        };
        catalog.queues.insert(1, Arc::new(queue));
        for (id, name) in [(10, "high"), (11, "low")] {
            let contract = Contract { id, name: name.into(), owner: None, entries: Vec::new(), is_dropped: false };
            catalog.contracts.insert(id, Arc::new(contract));
        }
        let service = Service { id: 20, name: "stock".into(), owner: None, queue_id: 1, contract_ids: vec![10, 11] };
        catalog.services.insert(20, Arc::new(service));
        for (id, contract_id, level) in priorities {
            let priority = Priority {
                id: *id,
                name: format!("p{id}").into(),
                contract_id: *contract_id,
                local_service_id: None,
                remote_service: AnyOr::Any,
                level: *level,
            };
            catalog.priorities.insert(*id, Arc::new(priority));
        }
        catalog
    }

    #[test]
    fn a_contract_is_high_where_its_level_is_above_all_others() {
        assert_eq!(by_contract("high").resolve(&catalog(&[(30, Some(10), 8)]), "inventory").unwrap(), (8, 10));
        let both = catalog(&[(30, Some(10), 8), (31, Some(11), 8)]);
        let refused = by_contract("high").resolve(&both, "inventory").unwrap_err();
        assert!(refused.message().contains("'low' has level 8"), "{refused}");
        let refused = by_contract("high").resolve(&catalog(&[]), "inventory").unwrap_err();
        assert_eq!(refused.code(), Code::OUT_OF_RANGE, "level 5 for all is no class");
        let unknown = by_contract("other").resolve(&catalog(&[]), "inventory").unwrap_err();
        assert_eq!(unknown.code(), Code::CONTRACT_NOT_FOUND);
        let nowhere = by_contract("high").resolve(&catalog(&[]), "orders").unwrap_err();
        assert_eq!(nowhere.code(), Code::OBJECT_NOT_FOUND);
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "it is what must be refused")]
    fn ranges_that_hold_no_level_are_refused() {
        for range in [0..=3, 8..=11, 7..=6] {
            let refused = by_levels(range).resolve(&catalog(&[]), "inventory").unwrap_err();
            assert_eq!(refused.code(), Code::OUT_OF_RANGE);
        }
        assert_eq!(by_levels(1..=10).resolve(&catalog(&[]), "INVENTORY").unwrap(), (1, 10));
    }
}
