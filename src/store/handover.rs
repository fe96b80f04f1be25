//! Messages between a committed RECEIVE and its caller.
//!
//! A RECEIVE without a transaction commits before its caller sees the messages. If the caller has left by then, the
//! messages are lost ([0024](../../docs/decisions/0024-a-receive-that-is-given-up-drops-its-messages.md)). All stores
//! count them here.

use crate::protocol::{Message, Outcome};
use metrics::counter;

/// An outcome or a list that may hold messages.
pub(crate) trait HoldsMessages {
    /// The number of messages that it holds.
    fn messages(&self) -> usize;
}

impl HoldsMessages for Vec<Message> {
    fn messages(&self) -> usize {
        self.len()
    }
}

impl HoldsMessages for Outcome {
    fn messages(&self) -> usize {
        match self {
            Self::Received(messages) => messages.len(),
            _ => 0,
        }
    }
}

impl HoldsMessages for Vec<Outcome> {
    fn messages(&self) -> usize {
        self.iter().map(HoldsMessages::messages).sum()
    }
}

impl<T: HoldsMessages> HoldsMessages for Option<T> {
    fn messages(&self) -> usize {
        self.as_ref().map_or(0, HoldsMessages::messages)
    }
}

/// The outcomes of a committed unit. If this is dropped before its caller takes it, the messages in it are dropped.
pub(crate) struct Handover<T: HoldsMessages>(Option<T>);

impl<T: HoldsMessages> Handover<T> {
    pub(crate) fn new(given: T) -> Self {
        Self(Some(given))
    }

    /// Only the caller takes it, with no await between this and its answer.
    pub(crate) fn take(mut self) -> T {
        self.0.take().expect("it is taken once")
    }
}

impl<T: HoldsMessages> Drop for Handover<T> {
    fn drop(&mut self) {
        note_dropped(self.0.messages());
    }
}

/// Logs and counts messages whose caller had left.
pub(crate) fn note_dropped(messages: usize) {
    if messages > 0 {
        counter!("dialoq_messages_dropped_total").increment(messages as u64);
        tracing::warn!(
            messages,
            "the caller of a RECEIVE without a transaction gave up after its commit; the messages are dropped; use \
             Broker::begin where that must not happen"
        );
    }
}
