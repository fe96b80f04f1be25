//! Trace context that travels with a message from its sender to its receiver.
//!
//! The context is the text of a W3C `traceparent`; Dialoq carries it and never reads it. An application that uses a tracing
//! system sets it with [`within_trace`] around the work, and reads it from
//! [`Message::trace`](crate::protocol::Message::trace).

use std::sync::Arc;

tokio::task_local! {
    static CURRENT: Arc<str>;
}

/// Runs a future in which every message sent carries this trace context: the text of a W3C `traceparent`, which Dialoq
/// carries and never reads. The receiver finds it in [`Message::trace`](crate::protocol::Message::trace).
///
/// ```
/// # use dialoq::{Act, Broker, act::{current_trace, within_trace}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
/// # let broker = Broker::open("sqlite::memory:").await?;
/// # broker.ensure(|d| { d.queue("q").service("//a", "q", ["DEFAULT"]); }).await?;
/// let dialog = broker.begin_dialog("//a", "//a").await?;
/// let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// within_trace(context, async { broker.send(dialog, "DEFAULT", "traced").await }).await?;
/// let batch = broker.receive("q").await?.expect("the message is there");
/// assert_eq!(batch.first().trace.as_deref(), Some(context));
/// assert_eq!(current_trace(), None);
/// # Ok(()) }
/// ```
pub async fn within_trace<F: Future>(traceparent: impl Into<Arc<str>>, work: F) -> F::Output {
    CURRENT.scope(traceparent.into(), work).await
}

/// The trace context of the running task, if any.
pub fn current_trace() -> Option<Arc<str>> {
    CURRENT.try_with(Clone::clone).ok()
}
