//! Options for opening a store.

use super::BoxFuture;
use super::url::ServerUrl;
use crate::error::Result;
use crate::id::IdSource;
use crate::time::Clock;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Options for opening a broker's store: those a URL cannot hold, and those better set in code. The URL overrides them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The clock that rules timers, lifetimes and waits. Default the system's.
    pub clock: Clock,
    /// Where ids come from. Default random.
    pub ids: IdSource,
    /// The largest body in bytes that SEND takes. Default 64 MiB.
    pub max_body_bytes: usize,
    /// How long an ended target endpoint is kept against replays. Default 30 minutes.
    pub closed_retention: Duration,
    /// How long one statement of the user's own SQL may run. A statement that runs longer is stopped and fails with
    /// 60036. Default no limit.
    pub sql_timeout: Option<Duration>,
    /// Whether a database that does not exist is made. Default true.
    pub create: bool,
    /// The source of access tokens for SQL Server if the URL has `authentication=entra_token`. Default the
    /// environment's `DIALOQ_ENTRA_TOKEN`.
    pub entra_token: Option<AccessToken>,
    /// Has a server's next batch wait for callers, for tests. Default it never does.
    #[doc(hidden)]
    pub gathering: Gathering,
    /// The receives in transactions of this process after which PostgreSQL may batch them and note them late, for
    /// tests. Default 256.
    #[doc(hidden)]
    pub careful_receives: usize,
    /// The age at which PostgreSQL has a note of a transaction that has received, for tests. Default 20 ms.
    #[doc(hidden)]
    pub note_after: Duration,
    /// Whether what has fallen due while no process ran is done at the opening of a broker in a server. Not by a command that looks:
    /// it would not find what waits for a process. Default true.
    #[doc(hidden)]
    pub does_overdue_work: bool,
}

/// The number of callers that the next batch of SENDs or RECEIVEs waits for, so that a test controls the batch.
/// The embedded store has no such batches.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct Gathering(Arc<AtomicUsize>);

impl Gathering {
    /// Makes the next calls that can be batched wait until this many have come; they then go in one batch.
    pub fn wait_for(&self, callers: usize) {
        self.0.store(callers, SeqCst);
    }

    /// The number of callers to wait for; 0 for none.
    pub(crate) fn wanted(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Returns an access token for each new connection, because tokens expire.
#[derive(Clone)]
#[cfg_attr(not(feature = "mssql"), allow(dead_code))]
pub struct AccessToken(Arc<dyn Fn() -> BoxFuture<'static, Result<String>> + Send + Sync>);

impl AccessToken {
    /// Tokens from this function.
    pub fn from_fn<F>(give: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(give())))
    }

    /// A token that is valid now.
    #[cfg(feature = "mssql")]
    pub(crate) async fn give(&self) -> Result<String> {
        (self.0)().await
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            ids: IdSource::Random,
            max_body_bytes: 64 << 20,
            closed_retention: Duration::from_secs(30 * 60),
            sql_timeout: None,
            create: true,
            entra_token: None,
            gathering: Gathering::default(),
            careful_receives: 256,
            note_after: Duration::from_millis(20),
            does_overdue_work: true,
        }
    }
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock, for tests that control time. On a server a manual clock sets the time of the database, for every process, and needs the
    /// rights of its owner: give it a database that only the test uses. [`Broker::close`](crate::Broker::close) of the last broker with
    /// that clock returns the database to the server's time; a broker that is dropped does not.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets where ids come from, for runs that must be repeatable.
    pub fn ids(mut self, ids: IdSource) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the largest body in bytes that SEND takes.
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets how long an ended target endpoint is kept against replays. A server keeps it for all processes, until another opening sets
    /// another value; the default changes nothing there.
    pub fn closed_retention(mut self, retention: Duration) -> Self {
        self.closed_retention = retention;
        self
    }

    /// Sets how long one statement of the user's own SQL may run, from 1 ms to 24 days; `None` for no limit.
    pub fn sql_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        // What a server takes. It would take 0 for no limit, and the embedded store refused every statement.
        let (shortest, longest) = (Duration::from_millis(1), Duration::from_millis(i32::MAX as u64));
        self.sql_timeout = timeout.into().map(|limit| limit.clamp(shortest, longest));
        self
    }

    /// The same, overridden by the parameters of a server's URL.
    pub(crate) fn with_url(mut self, url: &ServerUrl) -> Self {
        self.max_body_bytes = url.common.max_body_bytes.unwrap_or(self.max_body_bytes);
        self.closed_retention = url.common.closed_retention.unwrap_or(self.closed_retention);
        self.sql_timeout = url.common.sql_timeout.or(self.sql_timeout);
        self.create = url.install.unwrap_or(self.create);
        self
    }

    /// Sets the number of callers that a server's next batch waits for, for tests.
    #[doc(hidden)]
    pub fn gathering(mut self, gathering: Gathering) -> Self {
        self.gathering = gathering;
        self
    }

    /// Sets after how many receives in transactions PostgreSQL may batch them and note them late, for tests.
    #[doc(hidden)]
    pub fn careful_receives(mut self, receives: usize) -> Self {
        self.careful_receives = receives;
        self
    }

    /// Sets the age at which PostgreSQL has a note of a transaction that has received, for tests.
    #[doc(hidden)]
    pub fn note_after(mut self, age: Duration) -> Self {
        self.note_after = age;
        self
    }

    /// Sets whether a database that does not exist is made.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets where access tokens of Microsoft Entra come from.
    pub fn entra_token(mut self, token: AccessToken) -> Self {
        self.entra_token = Some(token);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_statements_is_one_that_every_store_takes() {
        let limit = |limit| OpenOptions::new().sql_timeout(limit).sql_timeout;
        let (shortest, longest) = (Duration::from_millis(1), Duration::from_millis(2_147_483_647));
        assert_eq!(limit(Some(Duration::ZERO)), Some(shortest));
        assert_eq!(limit(Some(Duration::from_secs(9))), Some(Duration::from_secs(9)));
        assert_eq!(limit(Some(Duration::MAX)), Some(longest));
        assert_eq!(limit(None), None);
    }
}
