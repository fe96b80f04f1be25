//! Retries: which work is repeated after which failure, how often, and after which pause.
//!
//! A deadlock and a lost connection pass. Work that certainly did not happen is repeated after them. Work whose outcome
//! is unknown is repeated only if a second time changes nothing.

use crate::error::{Code, Error, Result};
use crate::store::database::link::{Call, Driver, Failure, Fate, Link, Linked, Listener};
use crate::store::{BoxFuture, SqlRow};
use std::time::Duration;
use tokio::time::sleep;
use uuid::Uuid;

/// Attempts of one piece of work. With the pauses below a server has two to three seconds to come back.
const ATTEMPTS: u32 = 6;
/// The base of the pause after a deadlock, which passes as soon as its winner has committed.
const AFTER_DEADLOCK: Duration = Duration::from_millis(2);
/// The base of the pause after a lost connection.
const AFTER_LOSS: Duration = Duration::from_millis(40);

/// The pause of a definition that meets a locked conversation. There is no limit of attempts: the transaction that holds
/// the lock ends, and other definitions go on meanwhile.
pub(in crate::store::database) const LOCKED_DEFINITION: Duration = Duration::from_millis(20);

/// Attempts of an installation that meets locks of other sessions, and the pause in which the sessions that queue behind
/// it go on.
pub(in crate::store::database) const INSTALLATION_ATTEMPTS: u32 = 20;
pub(in crate::store::database) const INSTALLATION: Duration = Duration::from_secs(1);

/// The pause of a task of the store that failed. There is no limit of attempts.
pub(in crate::store::database) const TASK: Duration = Duration::from_secs(1);

/// The first and the longest pause before an attempt to listen again. There is no limit of attempts.
const LISTENING: (Duration, Duration) = (Duration::from_millis(4), Duration::from_secs(5));

/// When work may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::database) enum Repeat {
    /// Only for new definitions: the transaction has other work in it.
    Never,
    /// If it certainly did not happen.
    IfUndone,
    /// Always: a second time changes nothing.
    Always,
}

/// What to do before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::database) enum Again {
    /// Read the definitions again, and check the work against them.
    WithNewDefinitions,
    /// Give it new ids: the server may still roll the last attempt back, and refuses their reuse with 60005.
    WithNewIds,
}

/// The failed attempts of one piece of work.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Retry(u32);

impl Retry {
    /// Returns after the pause before the next attempt, or returns the failure if there is none.
    pub(in crate::store::database) async fn after(
        &mut self,
        failure: Failure,
        repeat: Repeat,
    ) -> std::result::Result<Again, Failure> {
        let is_repeatable = match repeat {
            // Not even a query, which may have been a statement that writes.
            _ if failure.fate == Fate::Alone => false,
            Repeat::Never => false,
            Repeat::IfUndone => !failure.fate.may_have_happened(),
            Repeat::Always => true,
        };
        let base = match failure.error.code() {
            Code::CATALOG_STALE => None,
            Code::DEADLOCK if is_repeatable => Some(AFTER_DEADLOCK),
            Code::SERVER_UNREACHABLE | Code::COMMIT_UNKNOWN if is_repeatable => Some(AFTER_LOSS),
            _ => return Err(failure),
        };
        self.0 += 1;
        if self.0 >= ATTEMPTS {
            return Err(failure);
        }
        let Some(base) = base else { return Ok(Again::WithNewDefinitions) };
        let longest = base * 2_u32.pow(self.0);
        // A random pause in the upper half, so that two that met do not meet again.
        let share = u32::from(Uuid::new_v4().as_bytes()[0]);
        sleep(longest / 2 + longest / 2 * share / 256).await;
        Ok(Again::WithNewIds)
    }
}

/// Repeats work that carries neither definitions nor ids.
pub(in crate::store::database) async fn retry<T, F>(repeat: Repeat, mut work: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Linked<T>>,
{
    let mut retry = Retry::default();
    loop {
        match work().await {
            Ok(done) => return Ok(done),
            Err(failure) => retry.after(failure, repeat).await?,
        };
    }
}

/// Listens again, as soon as the server lets it; `None` if it does not notify.
pub(in crate::store::database) async fn listen_again(driver: &dyn Driver) -> Option<Box<dyn Listener>> {
    let (mut pause, longest) = LISTENING;
    loop {
        sleep(pause).await;
        match driver.listen().await {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(%error, "the server still cannot be listened to"),
        }
        pause = (pause * 2).min(longest);
    }
}

/// A link that is kept, made when it is first needed and again when it is lost.
pub(in crate::store::database) trait KeptLink: Send {
    fn kept(&mut self) -> &mut Option<Box<dyn Link>>;

    /// A new link, with all that depends on it.
    fn connect(&mut self) -> BoxFuture<'_, Linked<Box<dyn Link>>>;
}

/// Makes a call that may be made twice: once more on a new link if the kept one turns out to be lost.
///
/// If the caller drops this future, no link is kept, so no later call meets an unfinished one.
pub(in crate::store::database) async fn call_reconnecting(
    owner: &mut dyn KeptLink,
    call: Call<'_>,
) -> Linked<Vec<SqlRow>> {
    let mut is_new = false;
    loop {
        let mut link = match owner.kept().take() {
            Some(link) => link,
            None => {
                is_new = true;
                owner.connect().await?
            }
        };
        let done = link.call(call.clone()).await;
        let failure = match &done {
            Err(failure) if !failure.is_link_usable => failure,
            _ => {
                *owner.kept() = Some(link);
                return done;
            }
        };
        // A link of a time in which the server only read stays so.
        let is_lost = failure.fate == Fate::Unknown
            || [Code::SERVER_UNREACHABLE, Code::STORE_READ_ONLY].contains(&failure.error.code());
        if is_new || !is_lost {
            return done;
        }
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

    /// The same of a failure after which the work is tried again.
    pub(in crate::store::database) fn caller_error(&self) -> Error {
        let Self { ref error, fate, is_link_usable } = *self;
        Self { error: error.duplicate(), fate, is_link_usable }.into_caller_error()
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.into_caller_error()
    }
}

/// A failure on this side of the link: before anything was sent, or with an answer that cannot be understood.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, fate: Fate::Undone, is_link_usable: true }
    }
}

/// 60031: it is unknown whether the work happened.
fn unknown(cause: Error) -> Error {
    let message = format!(
        "the server's answer never came, so the work may have happened or not: {}; check, or submit it under an id of \
         its own, which can be tried again",
        cause.message()
    );
    Error::new(Code::COMMIT_UNKNOWN, message).caused_by(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_repeated_after_passing_failures_and_only_if_a_second_time_does_no_harm() {
        let _limit = crate::testing::limit();
        use Repeat::{Always, IfUndone, Never};
        let cases = [
            (Code::DEADLOCK, Fate::TransactionUndone, IfUndone, Some(Again::WithNewIds)),
            (Code::SERVER_UNREACHABLE, Fate::Undone, IfUndone, Some(Again::WithNewIds)),
            (Code::COMMIT_UNKNOWN, Fate::Unknown, IfUndone, None),
            (Code::COMMIT_UNKNOWN, Fate::Unknown, Always, Some(Again::WithNewIds)),
            (Code::DEADLOCK, Fate::TransactionUndone, Never, None),
            (Code::CATALOG_STALE, Fate::Undone, Never, Some(Again::WithNewDefinitions)),
            (Code::LOCK_TIMEOUT, Fate::Undone, Always, None),
        ];
        for (code, fate, repeat, expected) in cases {
            let failure = || Failure { error: Error::new(code, "as the test asked"), fate, is_link_usable: true };
            let mut retry = Retry::default();
            for _ in 1..ATTEMPTS {
                assert_eq!(retry.after(failure(), repeat).await.ok(), expected, "{code} {fate:?} {repeat:?}");
            }
            assert!(retry.after(failure(), repeat).await.is_err(), "{code} has no end");
        }
    }
}
