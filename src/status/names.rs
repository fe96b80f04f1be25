//! "Did you mean": the name that exists and is nearest to one that does not.

use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::protocol::system::FIRST_USER_ID;
use serde::Serialize;

/// The kind of object that a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NameKind {
    /// A message type.
    MessageType,
    /// A contract.
    Contract,
    /// A queue.
    Queue,
    /// A service.
    Service,
    /// A broker priority.
    BrokerPriority,
    /// A work queue.
    WorkQueue,
    /// A work schedule.
    WorkSchedule,
}

impl NameKind {
    /// The words for it in messages, such as `message type`.
    pub fn words(self) -> &'static str {
        match self {
            Self::MessageType => "message type",
            Self::Contract => "contract",
            Self::Queue => "queue",
            Self::Service => "service",
            Self::BrokerPriority => "broker priority",
            Self::WorkQueue => "work queue",
            Self::WorkSchedule => "work schedule",
        }
    }

    /// The name of this kind that is nearest to one that does not exist; `None` if none is near.
    pub fn nearest(self, catalog: &Catalog, name: &str) -> Option<String> {
        nearest(name, self.names(catalog)).map(str::to_owned)
    }

    fn names(self, catalog: &Catalog) -> Vec<&str> {
        match self {
            Self::MessageType => {
                let types = catalog.message_types.values().filter(|row| !row.is_dropped);
                types.map(|row| &*row.name).filter(|name| !name.contains("schemas.microsoft.com")).collect()
            }
            Self::Contract => {
                let contracts = catalog.contracts.values().filter(|row| !row.is_dropped);
                contracts.map(|row| &*row.name).filter(|name| !name.contains("schemas.microsoft.com")).collect()
            }
            Self::Queue => catalog.queues.values().map(|row| &*row.name).collect(),
            Self::Service => {
                catalog.services.values().filter(|row| row.id >= FIRST_USER_ID).map(|row| &*row.name).collect()
            }
            Self::BrokerPriority => catalog.priorities.values().map(|row| &*row.name).collect(),
            Self::WorkQueue => catalog.work_queues.values().map(|row| &*row.name).collect(),
            Self::WorkSchedule => catalog.work_schedules.values().map(|row| &*row.name).collect(),
        }
    }
}

impl Broker {
    /// The name of that kind which is nearest to one that does not exist; `None` if none is near.
    pub fn did_you_mean(&self, kind: NameKind, name: &str) -> Option<String> {
        kind.nearest(&self.catalog(), name)
    }
}

/// The candidate that a writer most probably meant: a few letters off, in another case, or the name without its path.
pub(super) fn nearest<'a>(name: &str, candidates: Vec<&'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    // Names of another length by more than this are further off than any misspelling; long texts are not compared.
    let allowed = (folded.chars().count() / 4).clamp(1, 3);
    let near =
        candidates.iter().filter(|candidate| **candidate != name && candidate.len() <= 1_000).filter_map(|candidate| {
            let other = candidate.to_lowercase();
            let difference = other.chars().count().abs_diff(folded.chars().count());
            let distance = if difference > allowed { usize::MAX } else { strsim::damerau_levenshtein(&folded, &other) };
            (distance <= allowed).then_some((distance, *candidate))
        });
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase();
    near.min().map(|(_, candidate)| candidate).or_else(|| {
        let mut same =
            candidates.iter().filter(|candidate| !last(&folded).is_empty() && last(candidate) == last(&folded));
        // Two of them would be a guess.
        same.next().filter(|_| same.next().is_none()).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_its_misspelling_its_case_and_its_end() {
        let names = || vec!["//shop/OrderService", "//shop/Checkout", "orders", "order_lines"];
        for (wrong, right) in [
            ("//shop/OrdrService", Some("//shop/OrderService")),
            ("//SHOP/orderservice", Some("//shop/OrderService")),
            ("oders", Some("orders")),
            ("Checkout", Some("//shop/Checkout")),
            ("emails", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names()), right, "{wrong}");
        }
        assert_eq!(nearest("c", vec!["//a/c", "//b/c"]), None, "two names end alike");
    }
}
