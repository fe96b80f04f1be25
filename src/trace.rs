//! Tracing: a span for every verb, and trace context that travels with a message from who sends to who receives.
//!
//! The context is the text of a W3C `traceparent`; Dialoq carries it and never looks into it. Whoever uses a tracing
//! system sets it with [`within`] around the work, and reads it from
//! [`Message::trace`](crate::protocol::Message::trace).

use crate::protocol::Verb;
use std::sync::Arc;
use tracing::{Span, debug_span};

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

/// The span of one verb, at level debug.
pub(crate) fn span(verb: &Verb) -> Span {
    match verb {
        Verb::BeginDialog(dialog) => {
            debug_span!("begin_dialog", from = &*dialog.from_service, to = &*dialog.to_service)
        }
        Verb::Send { handles, message_type, body, trace } => debug_span!(
            "send",
            conversations = handles.len(),
            conversation_handle = handles.first().map(tracing::field::display),
            message_type = message_type.as_deref(),
            body_bytes = body.as_ref().map_or(0, |body| body.len()),
            traceparent = trace.as_deref(),
        ),
        Verb::Receive { queue, top, .. } => debug_span!("receive", queue = &**queue, top),
        Verb::GetConversationGroup { queue } => debug_span!("get_conversation_group", queue = &**queue),
        Verb::MoveConversation { handle, group } => {
            debug_span!("move_conversation", conversation_handle = %handle, conversation_group_id = %group)
        }
        Verb::EndConversation { handle, .. } => debug_span!("end_conversation", conversation_handle = %handle),
        Verb::BeginConversationTimer { handle, timeout_seconds } => {
            debug_span!("begin_conversation_timer", conversation_handle = %handle, timeout_seconds)
        }
        Verb::GetTransmissionStatus { handle } => {
            debug_span!("get_transmission_status", conversation_handle = %handle)
        }
        Verb::Define(definitions) => debug_span!("define", definitions = definitions.len()),
        Verb::Reprioritise { handle, level } => debug_span!("reprioritise", conversation_handle = %handle, level),
        Verb::PostQueueActivation { queue } => debug_span!("post_queue_activation", queue = &**queue),
        Verb::ReleaseQuarantine { group } => debug_span!("release_quarantine", conversation_group_id = %group),
    }
}
