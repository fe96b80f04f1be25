//! Whether the caller of work that runs in a task of its own still waits for the answer.

use crate::error::Error;
use std::sync::{Arc, Weak};

/// Held by the caller's future as long as it waits.
pub(in crate::store::database) struct WaitingCaller(
    #[allow(dead_code, reason = "it counts the caller as present until it is dropped")] Arc<()>,
);

/// The caller, as the task sees it.
pub(in crate::store::database) struct Caller(Weak<()>);

/// A caller that waits until the first of the two is dropped.
pub(in crate::store::database) fn present() -> (WaitingCaller, Caller) {
    let here = Arc::new(());
    let caller = Caller(Arc::downgrade(&here));
    (WaitingCaller(here), caller)
}

impl Caller {
    /// Whether the caller's future was dropped.
    pub(in crate::store::database) fn has_left(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The answer to a caller that has left.
pub(in crate::store::database) fn left() -> Error {
    Error::closed()
}
