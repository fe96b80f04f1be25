//! Whether the caller of work that runs in a task of its own still waits for the answer.

use crate::error::Error;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How long a call may go on after its caller has left. One that waits for nothing is done by then, and keeps its connection; one that
/// waits for a lock is ended. Without that a loop of calls that were given up after 100 ms had every connection of the pool wait for
/// one group, and did all its calls once that was free.
const GRACE: Duration = Duration::from_millis(250);

/// Held by the caller's future as long as it waits.
pub(in crate::store::database) struct WaitingCaller(
    #[allow(dead_code, reason = "it counts the caller as present until it is dropped")] watch::Receiver<()>,
);

/// The caller, as the task sees it.
pub(in crate::store::database) struct Caller(watch::Sender<()>);

/// A caller that waits until the first of the two is dropped.
pub(in crate::store::database) fn present() -> (WaitingCaller, Caller) {
    let (sender, receiver) = watch::channel(());
    (WaitingCaller(receiver), Caller(sender))
}

impl Caller {
    /// Whether the caller's future was dropped.
    pub(in crate::store::database) fn has_left(&self) -> bool {
        self.0.is_closed()
    }

    /// Awaits work on a link; `None` if the caller has left and the work is not done a moment later. It is dropped then, and its link with it,
    /// which ends the call on the server.
    pub(in crate::store::database) async fn unless_left<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        unless(work, self.0.closed()).await
    }
}

/// The same for a caller that waits for this answer.
pub(in crate::store::database) async fn unless_closed<T, A>(
    answer: &mut oneshot::Sender<A>,
    work: impl Future<Output = T>,
) -> Option<T> {
    unless(work, answer.closed()).await
}

async fn unless<T>(work: impl Future<Output = T>, left: impl Future<Output = ()>) -> Option<T> {
    let is_over = async {
        left.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = is_over => None,
    }
}

/// The answer to a caller that has left.
pub(in crate::store::database) fn left() -> Error {
    Error::closed()
}
