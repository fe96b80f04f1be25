//! Says why a store cannot be worked with, for commands that wait and make no calls meanwhile.

use super::output::Output;
use dialoq::{Broker, Error};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

/// What passes sooner is not said: another process takes a file over, or a server is started again.
const LASTS: Duration = Duration::from_secs(2);
/// After so long it is said again.
const AGAIN: Duration = Duration::from_secs(60);
/// After so long another one is said.
const NEXT: Duration = Duration::from_secs(10);

/// What keeps a store from all work.
pub(super) struct Obstacles {
    met: Receiver<Option<Arc<Error>>>,
    since: Option<Instant>,
    /// None is said before.
    not_before: Option<Instant>,
}

impl Obstacles {
    pub(super) fn of(broker: &Broker) -> Self {
        Self { met: dialoq::internals::obstacle(broker), since: None, not_before: None }
    }

    /// Writes each of them as a warning.
    pub(super) async fn warn(mut self, output: &Output) -> Infallible {
        loop {
            let why = self.next().await;
            output.warning(&format!("no message can be received: {why}; trying again"));
        }
    }

    /// Waits until one is to be said: once it has lasted, then once a minute. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Arc<Error> {
        loop {
            // A value that is looked at keeps the store from noting another one.
            let met = self.met.borrow_and_update().clone();
            let Some(error) = met else {
                if self.since.take().is_some() {
                    self.not_before = self.not_before.map(|at| at.min(Instant::now() + NEXT));
                }
                if self.met.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            };
            let since = *self.since.get_or_insert_with(Instant::now);
            let due = self.not_before.unwrap_or(since).max(since + LASTS);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(due) => {
                    self.not_before = Some(Instant::now() + AGAIN);
                    return error;
                }
                // The latest one is said.
                changed = self.met.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
            }
        }
    }
}
