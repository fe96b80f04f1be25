//! Whether a caller has seen what a transaction received.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Set once a caller of a transaction has got messages or jobs of it. Only then its rollback is a failed attempt at them: of a RECEIVE
/// whose future was dropped by a timeout no caller has got anything, and five of them in a row turned the queue off.
#[derive(Debug, Clone, Default)]
pub struct Seen(Arc<AtomicBool>);

impl Seen {
    /// For a transaction whose caller gets every outcome.
    pub fn always() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// A caller gets messages or jobs now.
    pub(crate) fn set(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}
