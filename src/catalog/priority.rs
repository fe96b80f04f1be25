//! Which level an endpoint gets: the eight ranks of broker priorities.

use super::objects::{Catalog, Priority};
use crate::protocol::definition::AnyOr;

/// The level of an endpoint that no broker priority matches.
pub(crate) const DEFAULT_LEVEL: u8 = 5;

impl Catalog {
    /// The level, 1 (low) to 10 (high), of an endpoint of that service that talks to `remote_service` over that
    /// contract.
    ///
    /// Of the priorities that match, the first in this order of exactness wins: contract and both services, contract
    /// and local service, contract and remote service, contract, both services, local service, remote service, nothing.
    pub fn level_for(&self, contract_id: i32, local_service_id: i32, remote_service: &str) -> u8 {
        self.priorities
            .values()
            .filter_map(|priority| {
                Some((exactness(priority, contract_id, local_service_id, remote_service)?, priority))
            })
            .max_by_key(|(exactness, _)| *exactness)
            .map_or(DEFAULT_LEVEL, |(_, priority)| priority.level)
    }
}

/// How exact the match is: one bit per criterion, the contract weighs most and the remote service least.
fn exactness(priority: &Priority, contract_id: i32, local_service_id: i32, remote_service: &str) -> Option<u8> {
    let contract = weigh(priority.contract_id.map(|wanted| wanted == contract_id), 4)?;
    let local = weigh(priority.local_service_id.map(|wanted| wanted == local_service_id), 2)?;
    let remote = match &priority.remote_service {
        AnyOr::Any => 0,
        AnyOr::Name(wanted) => weigh(Some(wanted == remote_service), 1)?,
    };
    Some(contract + local + remote)
}

/// A wildcard weighs nothing, a match its weight, and a mismatch rules the priority out.
fn weigh(is_match: Option<bool>, weight: u8) -> Option<u8> {
    match is_match {
        None => Some(0),
        Some(true) => Some(weight),
        Some(false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const C: i32 = 65536;
    const L: i32 = 65537;

    /// Contract, local service, remote service, level.
    type Row<'a> = (Option<i32>, Option<i32>, Option<&'a str>, u8);

    fn catalog(rows: &[Row<'_>]) -> Catalog {
        let mut catalog = Catalog::default();
        for (at, &(contract_id, local_service_id, remote, level)) in rows.iter().enumerate() {
            let id = 70000 + i32::try_from(at).unwrap();
            let remote_service = remote.map_or(AnyOr::Any, |name| AnyOr::Name(name.to_owned()));
            let name = format!("p{at}").into();
            let row = Priority { id, name, contract_id, local_service_id, remote_service, level };
            catalog.priorities.insert(id, Arc::new(row));
        }
        catalog
    }

    #[test]
    fn the_eight_ranks_win_in_order_then_five() {
        let ranks = [
            (Some(C), Some(L), Some("r"), 1),
            (Some(C), Some(L), None, 2),
            (Some(C), None, Some("r"), 3),
            (Some(C), None, None, 4),
            (None, Some(L), Some("r"), 6),
            (None, Some(L), None, 7),
            (None, None, Some("r"), 8),
            (None, None, None, 9),
        ];
        for first in 0..ranks.len() {
            assert_eq!(catalog(&ranks[first..]).level_for(C, L, "r"), ranks[first].3);
            let backwards: Vec<_> = ranks[first..].iter().rev().copied().collect();
            assert_eq!(catalog(&backwards).level_for(C, L, "r"), ranks[first].3, "creation order means nothing");
        }
        assert_eq!(catalog(&[]).level_for(C, L, "r"), 5);
    }

    #[test]
    fn the_contract_outweighs_both_services_and_the_local_service_the_remote() {
        assert_eq!(catalog(&[(Some(C), None, None, 3), (None, Some(L), Some("r"), 9)]).level_for(C, L, "r"), 3);
        assert_eq!(catalog(&[(Some(C), Some(L), None, 2), (Some(C), None, Some("r"), 8)]).level_for(C, L, "r"), 2);
    }

    #[test]
    fn a_mismatch_of_any_criterion_rules_a_priority_out() {
        let exact = catalog(&[(Some(C), Some(L), Some("r"), 9)]);
        assert_eq!(exact.level_for(C + 10, L, "r"), 5);
        assert_eq!(exact.level_for(C, L + 10, "r"), 5);
        assert_eq!(exact.level_for(C, L, "R"), 5, "remote names are compared byte by byte");
        assert_eq!(exact.level_for(C, L, "r"), 9);
    }
}
