//! The run of one reader, and what becomes of its transactions if it is cut short: by an abort, or by the end of the runtime.

use super::HandlerResult;
use super::session::Traces;
use crate::store::BoxFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Runs a reader to its end. If it is dropped before, its open transactions are lost with the others of its process, and count as one
/// rollback together: five readers of a program whose `main` returned were five, and turned their queue off for all processes.
pub(super) struct ReaderRun {
    traces: Arc<Traces>,
    running: BoxFuture<'static, HandlerResult>,
    /// It waits: a drop is not its own doing then. A reader that panics is dropped in the middle of a step.
    waits: bool,
}

impl ReaderRun {
    pub(super) fn new(traces: Arc<Traces>, running: BoxFuture<'static, HandlerResult>) -> Self {
        Self { traces, running, waits: true }
    }
}

impl Future for ReaderRun {
    type Output = HandlerResult;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<HandlerResult> {
        self.waits = false;
        let step = self.running.as_mut().poll(task);
        self.waits = step.is_pending();
        step
    }
}

impl Drop for ReaderRun {
    /// Before its future, which holds the transactions.
    fn drop(&mut self) {
        if self.waits {
            self.traces.lose_open();
        }
    }
}
