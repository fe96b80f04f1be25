//! What is tried again, and how often.
//!
//! Work that is known not to have happened is tried again when the reason may pass: a deadlock, a connection that was
//! lost. Work whose fate nobody knows is not, unless doing it twice is as good as doing it once.

use crate::error::{Code, Error};
use crate::store::database::link::{Failure, Fate};
use std::time::Duration;
use uuid::Uuid;

const MOST_TRIES: u32 = 6;
/// A deadlock passes as soon as its winner has committed; a server needs a second or two to come back.
const AFTER_DEADLOCK: Duration = Duration::from_millis(2);
const AFTER_LOSS: Duration = Duration::from_millis(40);

/// Counts the tries of one piece of work.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Tries(u32);

impl Tries {
    /// Whether to try again after that failure; waits before it says yes.
    pub(in crate::store::database) async fn again(&mut self, failure: &Failure) -> bool {
        failure.fate != Fate::Unknown && self.again_after(&failure.error).await
    }

    /// The same for work that may be done twice.
    pub(in crate::store::database) async fn again_after(&mut self, error: &Error) -> bool {
        let step = match error.code() {
            Code::DEADLOCK => AFTER_DEADLOCK,
            Code::SERVER_UNREACHABLE | Code::COMMIT_UNKNOWN => AFTER_LOSS,
            _ => return false,
        };
        self.0 += 1;
        if self.0 >= MOST_TRIES {
            return false;
        }
        let longest = step * 2_u32.pow(self.0);
        // Somewhere in the upper half, so that two that met do not meet again.
        let share = u32::from(Uuid::new_v4().as_bytes()[0]);
        tokio::time::sleep(longest / 2 + longest / 2 * share / 256).await;
        true
    }

    /// Whether another try is left for definitions that had changed.
    pub(in crate::store::database) fn again_with_new_definitions(&mut self, error: &Error) -> bool {
        if error.code() != Code::CATALOG_STALE {
            return false;
        }
        self.0 += 1;
        self.0 < MOST_TRIES
    }
}

impl Failure {
    /// The error that the caller gets: 60031 if the outcome is unknown.
    pub(in crate::store::database) fn into_caller_error(self) -> Error {
        match self.fate {
            Fate::Unknown if self.error.code() != Code::COMMIT_UNKNOWN => unknown(self.error),
            _ => self.error,
        }
    }

    /// A failure before anything was sent.
    pub(in crate::store::database) fn unsent(error: Error) -> Self {
        Self { error, fate: Fate::Undone, is_link_usable: false }
    }
}

/// 60031: it is unknown whether the work happened.
fn unknown(cause: Error) -> Error {
    let message = format!(
        "the answer of the server never came, so that the work may have happened or not: {}; look, or do it under an id \
         of its own, which can be tried again",
        cause.message()
    );
    Error::new(Code::COMMIT_UNKNOWN, message).caused_by(cause)
}
