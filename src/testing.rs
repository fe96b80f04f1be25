//! Brokers for tests: in memory or in a file of their own, on a clock that stands still until the test moves it.
//!
//! ```
//! use dialoq::{Act, testing::TestBroker};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
//! let broker = TestBroker::in_memory().await?;
//! broker.define(|d| { d.queue("q"); d.service("s", "q", ["DEFAULT"]); }).await?;
//! let dialog = broker.begin_dialog("s", "s").await?;
//! broker.timer(dialog, Duration::from_secs(3600)).await?;
//! broker.advance(Duration::from_secs(3600));
//! let batch = broker.receive("q").wait_forever().await?.expect("the hour is over");
//! assert!(batch.first().is_dialog_timer());
//! # Ok(()) }
//! ```

use crate::broker::Broker;
use crate::error::Result;
use crate::id::IdSource;
use crate::store::OpenOptions;
use crate::time::{Clock, Timestamp};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;

/// When the clock of a test stands still at first: 2026-01-01 00:00 UTC.
pub const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// Checks a line that an external program wrote: whether the reader of a [`Program`](crate::activation::Program)
/// understands it, in either mode.
///
/// # Errors
/// 60025 says what is wrong with it.
pub fn check_program_line(line: &str) -> Result<()> {
    crate::activation::check_program_line(line)
}

/// A broker for one test. It is used like a [`Broker`]; its file is removed when it is dropped.
#[derive(Debug)]
pub struct TestBroker {
    broker: Broker,
    clock: Clock,
    folder: Option<Folder>,
}

/// A folder of the system's temporary folder, removed when it is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed over its files has more to tell than this.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl TestBroker {
    /// In memory, with a manual clock and ids that are counted, so that runs repeat exactly.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn in_memory() -> Result<Self> {
        let clock = Clock::manual(START);
        let options = OpenOptions::new().clock(clock.clone()).ids(IdSource::Counted(0));
        let broker = Broker::open_with("sqlite::memory:", options).await?;
        Ok(Self { broker, clock, folder: None })
    }

    /// In a file of its own, with a manual clock.
    ///
    /// # Errors
    /// Those of the store; 60018 if the temporary folder cannot be written.
    pub async fn in_file() -> Result<Self> {
        let folder = Folder(std::env::temp_dir().join(format!("dialoq-{}", Uuid::new_v4())));
        std::fs::create_dir_all(&folder.0).map_err(|cause| {
            let what = format!("the folder {} cannot be made: {cause}", folder.0.display());
            crate::Error::new(crate::Code::STORE_IO, what).caused_by(cause)
        })?;
        let clock = Clock::manual(START);
        let broker = open_file(&folder.0, &clock).await?;
        Ok(Self { broker, clock, folder: Some(folder) })
    }

    /// Closes it and opens its file again; one in memory stays as it is.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn reopen(&mut self) -> Result<()> {
        if let Some(folder) = &self.folder {
            self.broker.close().await?;
            self.broker = open_file(&folder.0, &self.clock).await?;
        }
        Ok(())
    }

    /// Moves the clock.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// The file of a broker that has one.
    pub fn file(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.0.join(FILE))
    }
}

/// What each open embedded store of this process holds and waits for: locked conversation groups, their sessions, and
/// verbs that are parked. For a test that does not end.
pub fn describe_waits() -> Vec<String> {
    crate::store::sqlite::waits::describe()
}

/// A limit for a test of this crate, held to the test's end.
#[cfg(test)]
pub(crate) fn limit() -> dialoq_test_support::limit::Limit {
    dialoq_test_support::limit::limit(|| describe_waits().join("\n"))
}

const FILE: &str = "test.db";

async fn open_file(folder: &Path, clock: &Clock) -> Result<Broker> {
    let url = format!("sqlite:{}", folder.join(FILE).display());
    Broker::open_with(&url, OpenOptions::new().clock(clock.clone())).await
}

impl Deref for TestBroker {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}
