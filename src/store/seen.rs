//! What the rollback of a transaction is to poison handling.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// What the face knows of a transaction, and its store has to know when it rolls back. Shared by both: a dropped transaction may own nothing
/// but a future that is under way, to which nothing can be said any more.
///
/// Only once a caller has got messages or jobs of it, its rollback is a failed attempt at them: of a RECEIVE whose future was dropped by a
/// timeout no caller has got anything, and five of them in a row turned the queue off.
#[derive(Debug, Clone, Default)]
pub struct Seen(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    is_set: AtomicBool,
    is_lost: AtomicBool,
    is_excused: AtomicBool,
    reason: OnceLock<Arc<str>>,
}

impl Seen {
    /// For a transaction whose caller gets every outcome.
    pub fn always() -> Self {
        let seen = Self::default();
        seen.set();
        seen
    }

    /// A caller gets messages or jobs now.
    pub(crate) fn set(&self) {
        self.0.is_set.store(true, Relaxed);
    }

    /// Whether its rollback is a failed attempt.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_set.load(Relaxed) && !self.0.is_excused.load(Relaxed)
    }

    /// Why it is rolled back.
    pub(crate) fn explain(&self, reason: Arc<str>) {
        let _ = self.0.reason.set(reason);
    }

    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.0.reason.get().cloned()
    }

    /// The process that owns the file ends it, because that one closes: its rollback is no attempt of anyone's.
    pub(crate) fn excuse(&self) {
        self.0.is_excused.store(true, Relaxed);
    }

    /// The transaction ends without its caller's doing, as by the end of a process. Of those that are lost together a queue counts one.
    pub(crate) fn lose(&self) {
        self.0.is_lost.store(true, Relaxed);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Relaxed)
    }
}
