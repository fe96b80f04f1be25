//! Trace context that travels with a message from its sender to its receiver.
//!
//! The context is the text of a W3C `traceparent`; Dialoq carries it and never reads it. An application that uses a tracing
//! system sets it with [`within`] around the work, and reads it from
//! [`Message::trace`](crate::protocol::Message::trace).

use std::sync::Arc;

tokio::task_local! {
    static CURRENT: Arc<str>;
}

/// Runs a future in which everything sent carries this trace context.
pub async fn within<F: Future>(traceparent: impl Into<Arc<str>>, work: F) -> F::Output {
    CURRENT.scope(traceparent.into(), work).await
}

/// The trace context of the running task, if any.
pub fn current() -> Option<Arc<str>> {
    CURRENT.try_with(Clone::clone).ok()
}
