//! A place among the readers of a queue that all processes share.

use std::fmt;

/// Held while a reader runs; dropping it frees the place. The end of the process also frees the place.
#[must_use = "dropping it frees the place"]
pub struct ReaderSlot(Option<Box<dyn FnOnce() + Send + Sync>>);

impl ReaderSlot {
    /// A place without a shared count: only one process owns the store.
    pub fn granted() -> Self {
        Self(None)
    }

    /// A place that this function frees.
    pub(crate) fn freed_by(free: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(free)))
    }
}

impl fmt::Debug for ReaderSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReaderSlot").finish()
    }
}

impl Drop for ReaderSlot {
    fn drop(&mut self) {
        if let Some(free) = self.0.take() {
            free();
        }
    }
}
