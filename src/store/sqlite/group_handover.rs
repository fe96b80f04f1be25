//! Groups that pass on before the SQL of their last holder can be read.
//!
//! A commit frees its groups as soon as it is ordered, and its rows come with the batch. The next holder's messages are guarded by
//! their numbers ([`Engine::committed_below`](super::engine::Engine)). Rows of the user's have no number, so the next holder waits
//! for the batch: what it reads under the lock is what the last one left.

use crate::core::{Core, Session};
use std::collections::HashSet;
use tokio::sync::oneshot;
use uuid::Uuid;

/// The groups whose last holder's SQL is in the batch that is filled or written now.
#[derive(Default)]
pub(super) struct Handovers {
    /// By their ids. Not by their places: a group that ends with its last conversation may be made again under its id.
    freed: HashSet<Uuid>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// How many of the groups of a transaction it has for itself: nothing more comes of their last holders.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HandedOver(usize);

/// Answered when the SQL of the last holders is committed; dropped if the store fails or is closed.
pub(super) struct Handover {
    pub(super) committed: oneshot::Receiver<()>,
    /// What is handed over then.
    pub(super) then: HandedOver,
}

impl Handovers {
    /// A transaction with SQL of the user's is about to free its groups. The lock of the write side is held from here to the commit of the
    /// batch, so all groups here are of one batch.
    pub(super) fn free(&mut self, core: &Core, session: &Session) {
        self.freed.extend(core.groups_of(session, 0));
    }

    /// The batch is committed.
    pub(super) fn committed(&mut self) {
        self.freed.clear();
        for waiter in self.waiting.drain(..) {
            let _ = waiter.send(());
        }
    }

    /// What a transaction waits for before it goes on with the groups it holds. Each group is looked at once: one that a transaction
    /// holds is freed by no other.
    pub(super) fn wait(&mut self, core: &Core, session: &Session, handed_over: &mut HandedOver) -> Option<Handover> {
        let then = HandedOver(session.group_count());
        if self.freed.is_empty() || !core.groups_of(session, handed_over.0).any(|group| self.freed.contains(&group)) {
            *handed_over = then;
            return None;
        }
        let (sender, committed) = oneshot::channel();
        self.waiting.push(sender);
        Some(Handover { committed, then })
    }

    /// Nothing more is written.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}
