//! How a store is opened.

use super::url::ServerUrl;
use crate::id::IdSource;
use crate::time::Clock;
use std::time::Duration;

/// How a broker's store is opened: what a URL cannot say, and what would rather be said in code. What a URL says counts
/// over it.
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
    /// Whether a database that does not exist is made. Default true.
    pub create: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            ids: IdSource::Random,
            max_body_bytes: 64 << 20,
            closed_retention: Duration::from_secs(30 * 60),
            create: true,
        }
    }
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock, for tests that rule time.
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

    /// Sets how long an ended target endpoint is kept against replays.
    pub fn closed_retention(mut self, retention: Duration) -> Self {
        self.closed_retention = retention;
        self
    }

    /// The same, with what a URL of a server says.
    pub(crate) fn said_by(mut self, url: &ServerUrl) -> Self {
        self.max_body_bytes = url.common.max_body_bytes.unwrap_or(self.max_body_bytes);
        self.closed_retention = url.common.closed_retention.unwrap_or(self.closed_retention);
        self.create = url.install.unwrap_or(self.create);
        self
    }

    /// Sets whether a database that does not exist is made.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }
}
