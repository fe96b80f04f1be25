//! Identity constraints whose rows the validator compares one by one.
//!
//! It finds most rows by a hash of their fields. Dates, times, durations and lists have one hash for all: 10,000 dates took 12 s.

use super::{NodeId, Schema, local};
use std::collections::{HashMap, HashSet};

/// Eighths of a step that the comparison of two values takes: half of it for each pair of rows, as each is compared with those before.
pub(super) const OF_DATES: u64 = 5;
pub(super) const OF_DURATIONS: u64 = 17;
pub(super) const OF_LISTS: u64 = 2;

/// A constraint with no other fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::catalog::body) struct Alike {
    /// The local names of the elements that it selects; none stands for any.
    selected: HashSet<String>,
    eighths: u64,
}

impl Alike {
    pub(in crate::catalog::body) fn selects(&self, element: &str) -> bool {
        self.selected.is_empty() || self.selected.contains(element)
    }

    /// The steps for so many rows.
    pub(in crate::catalog::body) fn steps(&self, rows: u64) -> u64 {
        rows.saturating_mul(rows).saturating_mul(self.eighths) / 8
    }
}

/// For each name of an element or attribute, what a comparison of its values takes; of several types the least.
pub(super) type Compared<'d> = HashMap<(&'d str, &'d str), u64>;

impl<'d> Schema<'d> {
    pub(super) fn compared(&self) -> Compared<'d> {
        let mut compared = Compared::new();
        for &node in self.elements.iter().filter(|node| ["element", "attribute"].contains(&self.kind(**node))) {
            let Some(name) = self.attribute(node, "name") else { continue };
            let inside =
                || self.children(node).find(|child| ["simpleType", "complexType"].contains(&self.kind(*child)));
            let value = match self.attribute(node, "type") {
                Some(named) => self.value_of_named(named, 0),
                None => inside().map(|inside| self.value_of_type(inside, 0)).unwrap_or_default(),
            };
            let least = compared.entry((self.kind(node), name)).or_insert(u64::MAX);
            *least = value.alike.min(*least);
        }
        compared
    }

    /// The constraint, if the validator compares its rows one by one.
    pub(super) fn alike(&self, constraint: NodeId, compared: &Compared<'d>) -> Option<Alike> {
        let paths = |kind: &'static str| {
            let nodes = self.children(constraint).filter(move |child| self.kind(*child) == kind);
            nodes.map(|node| self.attribute(node, "xpath").unwrap_or_default().split('|').map(last).collect::<Vec<_>>())
        };
        let selected: Vec<&str> = paths("selector").flatten().collect();
        let of_name = |kind: &'static str, name: &'d str| compared.get(&(kind, name)).copied().unwrap_or(0);
        let of_path = |path: &&'d str| match path.strip_prefix('@') {
            Some(attribute) => of_name("attribute", local(attribute)),
            None if *path == "." => selected.iter().map(|element| of_name("element", element)).min().unwrap_or(0),
            None => of_name("element", local(path)),
        };
        let of_field = |paths: Vec<&'d str>| paths.iter().map(of_path).min().unwrap_or(0);
        let eighths = paths("field").map(of_field).min().filter(|eighths| *eighths > 0)?;
        let is_any = selected.iter().any(|name| [".", "*"].contains(name));
        let selected = if is_any { HashSet::new() } else { selected.into_iter().map(str::to_owned).collect() };
        Some(Alike { selected, eighths })
    }
}

/// The last step of a path: the local name of an element, an attribute with its `@`, `*` or `.`.
fn last(path: &str) -> &str {
    let step = path.trim().rsplit('/').next().unwrap_or_default().trim();
    let step = step.strip_prefix("child::").unwrap_or(step);
    if step.starts_with('@') { step } else { local(step) }
}
