//! Groups that pass on before the SQL of their last holder can be read.
//!
//! A commit frees its groups as soon as it is ordered, and its rows come with the batch. The next holder's messages are guarded by
//! their numbers ([`Engine::committed_below`](super::engine::Engine)). Rows of the user's have no number, so the next holder waits
//! for the batch: what it reads under the lock is what the last one left.

use crate::core::{GroupKey, Session};
use std::collections::HashMap;
use tokio::sync::oneshot;

/// Which batch has the SQL of a group's last holder.
#[derive(Default)]
pub(super) struct Handovers {
    /// The number of the batch that is filled now.
    filling: u64,
    /// By group, until that batch is committed. The place of a group that is gone may name another one, which then waits for nothing.
    freed: HashMap<GroupKey, u64>,
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

impl Handovers {
    /// A transaction with SQL of the user's is about to free its groups.
    pub(super) fn free(&mut self, session: &Session) {
        self.freed.extend(session.groups().map(|group| (group, self.filling)));
    }

    /// The number of the batch that is taken now.
    pub(super) fn take_batch(&mut self) -> u64 {
        self.filling += 1;
        self.filling - 1
    }

    /// A batch is committed.
    pub(super) fn committed(&mut self, batch: u64) {
        if self.freed.is_empty() {
            return;
        }
        self.freed.retain(|_, freed_by| *freed_by > batch);
        for (_, waiter) in self.waiting.extract_if(.., |(awaited, _)| *awaited <= batch) {
            let _ = waiter.send(());
        }
    }

    /// What a transaction waits for before it goes on with the groups it holds. Dropped if the store fails or is closed.
    pub(super) fn wait(&mut self, session: &Session) -> Option<oneshot::Receiver<()>> {
        if self.freed.is_empty() {
            return None;
        }
        let batch = session.groups().filter_map(|group| self.freed.get(&group).copied()).max()?;
        let (sender, receiver) = oneshot::channel();
        self.waiting.push((batch, sender));
        Some(receiver)
    }

    /// Nothing more is written.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}
