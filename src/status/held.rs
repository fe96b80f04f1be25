//! How long a change of many waits for sessions that hold conversation groups.

use crate::id::GroupId;
use std::collections::HashSet;
use std::time::Duration;

/// The longest wait for one group, and the shortest, which also an answer that comes late has.
const LONGEST: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_millis(250);
/// For so long the waits may be the longest: a session can hold any number of groups, and a thousand of them took 83 minutes.
const ALL: Duration = Duration::from_secs(30);

/// The groups that were found held.
#[derive(Default)]
pub(super) struct HeldGroups {
    groups: HashSet<GroupId>,
    waited: Duration,
}

impl HeldGroups {
    /// How long to wait for a group; `None` if it was found held before.
    pub(super) fn wait_for(&self, group: GroupId) -> Option<Duration> {
        let left = ALL.saturating_sub(self.waited);
        (!self.groups.contains(&group)).then(|| LONGEST.min(left).max(SHORTEST))
    }

    /// It was held for so long.
    pub(super) fn note(&mut self, group: GroupId, wait: Duration) {
        self.groups.insert(group);
        self.waited += wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_is_waited_for_once_and_many_of_them_briefly() {
        let mut held = HeldGroups::default();
        let mut waited = Duration::ZERO;
        for number in 0..1000 {
            let group = GroupId(uuid::Uuid::from_u128(number));
            let wait = held.wait_for(group).unwrap();
            waited += wait;
            held.note(group, wait);
            assert_eq!(held.wait_for(group), None, "its other conversations");
        }
        assert_eq!(waited, ALL + 994 * SHORTEST);
    }
}
