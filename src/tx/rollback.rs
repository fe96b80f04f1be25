//! The end of a transaction without a commit.

use super::{Step, Tx};
use crate::error::Result;
use std::sync::{Arc, PoisonError};

/// The most characters of a reason that are kept.
const MOST_REASON: usize = 1000;

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
    /// it, up to 1000 characters. A NUL character, which PostgreSQL does not take, becomes U+FFFD. Handlers and programs do so
    /// with their error.
    ///
    /// # Errors
    /// As [`Tx::rollback`].
    pub async fn rollback_because(self, reason: impl Into<Arc<str>>) -> Result<()> {
        self.roll_back(Some(kept(reason.into()))).await
    }

    async fn roll_back(self, reason: Option<Arc<str>>) -> Result<()> {
        match self.state.into_inner().unwrap_or_else(PoisonError::into_inner).step {
            Step::Idle(session) => session.rollback(reason).await,
            Step::Busy { running, .. } => {
                if let Some(reason) = reason {
                    self.seen.explain(reason);
                }
                drop(running);
                Ok(())
            }
            Step::Ended => Ok(()),
        }
    }
}

/// The part of a reason that is kept: no store fails to count a rollback because of its reason.
fn kept(reason: Arc<str>) -> Arc<str> {
    let end = reason.char_indices().nth(MOST_REASON).map_or(reason.len(), |(end, _)| end);
    let start = &reason[..end];
    if start.contains('\0') {
        start.replace('\0', "\u{FFFD}").into()
    } else if end < reason.len() {
        start.into()
    } else {
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn a_reason_is_cut_between_characters_and_has_no_nul() {
        for (reason, expected) in [
            (String::new(), String::new()),
            ("é".repeat(1000), "é".repeat(1000)),
            ("é".repeat(1001), "é".repeat(1000)),
            ("a\0b\0".to_owned(), "a\u{FFFD}b\u{FFFD}".to_owned()),
            (format!("{}\0\0", "x".repeat(999)), format!("{}\u{FFFD}", "x".repeat(999))),
        ] {
            assert_eq!(*kept(reason.into()), *expected);
        }
    }
}
