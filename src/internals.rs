//! For the command and the tests of this repository only. No version covers it: any release may change or remove it.
//!
//! An application that needs something of this module should ask for it, so that it gets a place in the documented API.

pub use crate::broker::server_driver;

#[cfg(feature = "cli")]
pub use crate::activation::external::StartedProgram;
use crate::broker::Broker;
use crate::error::{Code, Error, Position};
use crate::protocol::Outcome;
use crate::store::ActivityBoard;
use std::fmt::Display;

/// The effects of definitions on a catalog.
pub mod apply {
    pub use crate::catalog::apply::*;
}

/// The checks of bodies.
pub mod body {
    pub use crate::catalog::body::*;
}

/// The broker as a state machine.
pub mod core {
    pub use crate::core::*;
}

/// Messages as lines of JSON.
pub mod jsonl {
    pub use crate::jsonl::*;
}

/// The seam and the stores.
pub mod store {
    pub use crate::store::*;
}

/// A command of a shell on one name.
#[cfg(feature = "cli")]
pub fn shell_command(verb: &str, name: &str, options: &str) -> String {
    crate::status::shell::shell_command(verb, name, options)
}

/// An option with a value, in a shell.
#[cfg(feature = "cli")]
pub fn shell_option(option: &str, value: &str) -> String {
    crate::status::shell::shell_option(option, value)
}

/// The handler of this job has not begun with it: if it fails now, a leased job goes back at once and the attempt does not count.
#[cfg(feature = "cli")]
pub fn has_not_begun(context: &crate::work::Context) {
    context.has_not_begun();
}

/// Refuses what every take of the readers of a worker would be refused for.
#[cfg(feature = "cli")]
pub fn check_reader(name: Option<&str>, job_type: Option<&str>) -> crate::Result<()> {
    crate::core::check_reader(name.unwrap_or_default(), job_type)
}

/// The warnings of [`Broker::ensure_script`](crate::Broker::ensure_script), before it.
#[cfg(feature = "cli")]
pub fn preview_warnings(broker: &crate::Broker, script: &str) -> crate::Result<Vec<String>> {
    broker.preview_warnings(script)
}

/// The conversations that statements of a script need all at one moment, with the places of the statements: each waits for the
/// transactions that hold one.
#[cfg(feature = "cli")]
pub fn conversations_needed(
    broker: &crate::Broker,
    script: &str,
) -> crate::Result<Vec<(Position, crate::status::ConversationFilter)>> {
    broker.conversations_needed(script)
}

/// That a definition which waits holds receives back from a queue, if one does.
#[cfg(feature = "cli")]
pub async fn receives_held_back(broker: &crate::Broker, queue: &str) -> Option<String> {
    broker.receives_held_back(queue).await
}

/// The same of a queue whose status was read.
#[cfg(feature = "cli")]
pub fn held_back(queue: &crate::status::QueueStatus) -> Option<String> {
    queue.receives_held_until.map(|until| crate::status::held_back(&queue.name, until))
}

/// What keeps the broker's store from all work, now and later: the server is away, or no process can take the file over.
#[cfg(feature = "cli")]
pub fn obstacle(broker: &crate::Broker) -> tokio::sync::watch::Receiver<Option<std::sync::Arc<crate::Error>>> {
    broker.shared_store().activity().obstacle()
}

#[cfg(feature = "cli")]
pub use crate::work::worker::WorkerEvent;

/// Calls this for every attempt of the worker's readers that does not complete its job, and if none can be taken.
#[cfg(feature = "cli")]
pub fn observed_by<T: Send + 'static>(
    worker: crate::work::Worker<T>,
    observer: impl Fn(WorkerEvent<'_>) + Send + Sync + 'static,
) -> crate::work::Worker<T> {
    worker.observed_by(observer)
}

/// Kills all external programs of activated readers and their children, and lets none start from now on: for the end of a
/// process that runs no destructors.
#[cfg(all(unix, feature = "cli"))]
pub fn kill_all() {
    crate::activation::kill_all();
}

/// [`Broker::finished_jobs`](crate::Broker::finished_jobs) without their results, for a table that does not show them.
#[cfg(feature = "cli")]
pub async fn finished_without_results(
    broker: &crate::Broker,
    filter: &crate::work::JobFilter,
    most: u32,
) -> crate::Result<Vec<crate::work::FinishedJob>> {
    broker.finished_jobs_with(filter, most, false).await
}

/// Changes of many, for a caller that wants to know how many were made if it gives one up: the number is in what it passes.
#[cfg(feature = "cli")]
pub mod counting {
    use crate::broker::Broker;
    use crate::define::Level;
    use crate::error::Result;
    use crate::protocol::{ConversationState, EndForm};
    use crate::status::{Changed, ConversationFilter, ConversationSide, DeadLetter};
    use crate::status::{MOST_CONVERSATIONS, Purgeable, Purged, Redriven};
    use crate::work::{JobFilter, JobStatus};

    /// The sides that a change of many takes, and whether there are more.
    pub async fn sides(
        broker: &Broker,
        filter: &ConversationFilter,
        takes_ended: bool,
    ) -> Result<(Vec<ConversationSide>, bool)> {
        broker.sides_to_change(filter, takes_ended, MOST_CONVERSATIONS).await
    }

    /// [`Broker::end_conversations`] for these sides, if they are still in that state.
    pub async fn end(
        broker: &Broker,
        sides: &[ConversationSide],
        state: Option<ConversationState>,
        form: EndForm,
        changed: &mut Changed,
    ) -> Result<()> {
        broker.end_sides(sides, state, form, changed).await
    }

    /// [`Broker::reprioritise_conversations`] for these sides.
    pub async fn reprioritise(
        broker: &Broker,
        sides: &[ConversationSide],
        level: Level,
        changed: &mut Changed,
    ) -> Result<()> {
        broker.reprioritise_sides(sides, level, changed).await
    }

    /// [`Broker::purge_found`]
    pub async fn purge(broker: &Broker, queue: &str, found: Purgeable, purged: &mut Purged) -> Result<()> {
        broker.purge_found_counting(queue, found, purged).await
    }

    /// [`Broker::redrive_dead_letters`] for these letters.
    pub async fn redrive_dead(broker: &Broker, letters: &[DeadLetter], done: &mut Redriven) -> Result<()> {
        broker.redrive_letters(letters, done).await
    }

    /// [`Broker::purge_dead_letters`] for these letters.
    pub async fn purge_dead(broker: &Broker, letters: &[DeadLetter], purged: &mut u64) -> Result<()> {
        broker.purge_letters(letters, purged).await
    }

    /// [`Broker::redrive_found_jobs`]
    pub async fn redrive_jobs(
        broker: &Broker,
        filter: &JobFilter,
        found: &[JobStatus],
        redriven: &mut u64,
    ) -> Result<()> {
        broker.redrive_found_counting(filter, found, redriven).await
    }

    /// [`Broker::cancel_found_jobs`]
    pub async fn cancel_jobs(
        broker: &Broker,
        filter: &JobFilter,
        found: &[JobStatus],
        cancelled: &mut u64,
    ) -> Result<()> {
        broker.cancel_found_counting(filter, found, cancelled).await
    }
}

/// Activity in the queues: depth, waits, receives.
pub fn activity(broker: &Broker) -> &ActivityBoard {
    broker.activity()
}

/// 60012: the store answered one verb with the outcome of another.
pub fn unexpected(outcome: &Outcome) -> Error {
    crate::act::unexpected(outcome)
}

/// The errors of the command, which has the numbers of the library.
pub trait ErrorConstructors: Sized {
    /// An error of this number.
    fn new(code: Code, message: impl Into<String>) -> Self;
    /// The same with its cause.
    fn caused_by(self, source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>) -> Self;
    /// The same with its place in a script.
    fn at(self, position: Position) -> Self;
    /// 60005: a value is out of its range.
    fn out_of_range(what: &str, found: impl Display, right: &str) -> Self;
    /// 60002: an object does not exist.
    fn object_not_found(what: &str, name: &str) -> Self;
    /// 60016: the broker is closed.
    fn closed() -> Self;
    /// A copy for another caller of the same failed batch.
    fn duplicate(&self) -> Self;
}

impl ErrorConstructors for Error {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, message)
    }

    fn caused_by(self, source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>) -> Self {
        self.caused_by(source)
    }

    fn at(self, position: Position) -> Self {
        self.at(position)
    }

    fn out_of_range(what: &str, found: impl Display, right: &str) -> Self {
        Self::out_of_range(what, found, right)
    }

    fn object_not_found(what: &str, name: &str) -> Self {
        Self::object_not_found(what, name)
    }

    fn closed() -> Self {
        Self::closed()
    }

    fn duplicate(&self) -> Self {
        self.duplicate()
    }
}

/// The jobs of a filter that a command is to change, without their long texts.
///
/// # Errors
/// Those of [`Broker::jobs`](crate::Broker::jobs).
#[cfg(feature = "cli")]
pub async fn jobs_to_change(
    broker: &crate::Broker,
    filter: &crate::work::JobFilter,
) -> crate::Result<Vec<crate::work::JobStatus>> {
    broker.jobs_to_change(filter).await
}
