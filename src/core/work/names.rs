//! Names of types, keys and unique jobs, each held once while a job has it.

use super::job::NO_NAME;
use crate::core::state::Names;
use std::sync::Arc;

impl Names {
    /// The place of a name that may be missing, counting one more use.
    pub(super) fn optional(&mut self, name: Option<&Arc<str>>) -> u32 {
        name.map_or(NO_NAME, |name| self.place(name))
    }

    /// Counts one more use of a name that may be missing.
    pub(super) fn hold_optional(&mut self, place: u32) {
        if place != NO_NAME {
            self.hold(place);
        }
    }

    /// Removes one use of a name that may be missing.
    pub(super) fn release_optional(&mut self, place: u32) {
        if place != NO_NAME {
            self.release(place);
        }
    }

    /// The name at a place, if there is one.
    pub(super) fn optional_name(&self, place: u32) -> Option<Arc<str>> {
        (place != NO_NAME).then(|| self.name(place).clone())
    }
}
