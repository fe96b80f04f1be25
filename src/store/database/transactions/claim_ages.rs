//! Transactions that hold a claim and take their time: each takes its messages on a connection of its own, so that its
//! rollback counts even if this process dies ([`super::attempts`]).

use crate::store::BoxFuture;
use crate::store::database::Database;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A transaction that may still hold a claim.
pub(in crate::store::database) trait HoldsClaim: Send + Sync {
    /// Takes the messages of the claim, if there still is one.
    fn grow_old(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// The transactions that hold claims, the oldest claim first; those that have ended since are among them.
pub(in crate::store::database) struct ClaimAges {
    waiting: Mutex<VecDeque<(Instant, Weak<dyn HoldsClaim>)>>,
    came: Notify,
    /// The age at which a claim ends.
    age: Duration,
}

impl ClaimAges {
    pub(in crate::store::database) fn new(age: Duration) -> Self {
        Self { waiting: Mutex::default(), came: Notify::new(), age }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<dyn HoldsClaim>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the claim that this transaction has just got.
    pub(in crate::store::database) fn put(&self, holder: Weak<dyn HoldsClaim>) {
        let mut waiting = self.waiting();
        waiting.push_back((Instant::now() + self.age, holder));
        if waiting.len() == 1 {
            self.came.notify_one();
        }
    }

    fn next_due_at(&self) -> Option<Instant> {
        self.waiting().front().map(|(at, _)| *at)
    }

    fn due(&self, now: Instant) -> Vec<Arc<dyn HoldsClaim>> {
        let mut waiting = self.waiting();
        let due = waiting.iter().take_while(|(at, _)| *at <= now).count();
        waiting.drain(..due).filter_map(|(_, holder)| holder.upgrade()).collect()
    }
}

impl Database {
    /// Lets claims grow old, until the store closes.
    pub(in crate::store::database) async fn run_claim_ages(self: Arc<Self>) {
        loop {
            match self.claim_ages.next_due_at() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => self.claim_ages.came.notified().await,
            }
            for holder in self.claim_ages.due(Instant::now()) {
                tokio::spawn(holder.grow_old());
            }
        }
    }
}
