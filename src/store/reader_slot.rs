//! A place among the readers of a queue that all processes share.

use std::fmt;

/// Held while a reader runs; dropping it frees the place. The end of the process also frees the place.
#[must_use = "dropping it frees the place"]
pub struct ReaderSlot {
    number: Option<i32>,
    free: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl ReaderSlot {
    /// A place that nothing counts.
    pub fn granted() -> Self {
        Self { number: None, free: None }
    }

    /// A place of this number that this function frees.
    pub(crate) fn freed_by(number: Option<i32>, free: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { number, free: Some(Box::new(free)) }
    }

    /// Whether the place is beyond a maximum that was lowered since it was taken; one that was taken again after a lost
    /// connection keeps its first number.
    pub(crate) fn is_beyond(&self, maximum: u16) -> bool {
        self.number.is_some_and(|number| number >= i32::from(maximum))
    }
}

impl fmt::Debug for ReaderSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReaderSlot").finish()
    }
}

impl Drop for ReaderSlot {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free();
        }
    }
}
