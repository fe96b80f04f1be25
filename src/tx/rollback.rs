//! The end of a transaction without a commit.

use super::{Step, Tx};
use crate::error::Result;
use std::sync::Arc;

impl Tx {
    /// Undoes all work and answers when its locks are free. A verb whose future was dropped, and which may still wait
    /// for a lock, is given up; then the locks are freed soon after.
    ///
    /// # Errors
    /// Those of the store. A transaction that has ended is rolled back already, which is no error.
    pub async fn rollback(self) -> Result<()> {
        self.roll_back(None).await
    }

    /// The same, and says why: if a message that it received becomes a dead letter by this rollback, the reason is kept with
    /// it, up to 1000 characters. Handlers and programs do so with their error.
    ///
    /// # Errors
    /// As [`Tx::rollback`].
    pub async fn rollback_because(self, reason: impl Into<Arc<str>>) -> Result<()> {
        self.roll_back(Some(reason.into())).await
    }

    async fn roll_back(self, reason: Option<Arc<str>>) -> Result<()> {
        match self.state.into_inner().step {
            Step::Idle(session) => session.rollback(reason).await,
            Step::Busy(_) | Step::Ended => Ok(()),
        }
    }
}
