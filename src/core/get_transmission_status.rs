//! GET_TRANSMISSION_STATUS: why a message waits in the transmission queue. The numbers are those of Service
//! Broker, the texts our own (`docs/semantics.md`, "The transmission queue").

use super::state::Core;
use crate::id::ConversationHandle;
use std::sync::{Arc, LazyLock};

impl Core {
    /// Why the conversation's first waiting message was not delivered at the latest try.
    pub(super) fn transmission_status(&self, handle: ConversationHandle) -> String {
        let rare_fields = self.find_open(handle).and_then(|place| self.endpoints[place].rare_fields.as_ref());
        let delay =
            rare_fields.filter(|rare_fields| !rare_fields.outbox.is_empty()).and_then(|rare_fields| rare_fields.delay);
        delay.map_or_else(String::new, |delay| status_text(delay).to_string())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    /// Earlier messages of the conversation wait.
    Behind,
    BrokerDisabled,
    NoRoute,
    NoService,
    QueueDisabled,
    /// A thread of its own checks the body.
    Unchecked,
    /// Held until END.
    PeerEnded,
    /// Held until END.
    PeerErrored,
}

/// The text of `transmission_status`; shared, since a queue that is off may hold millions of rows.
pub(super) fn status_text(delay: Delay) -> Arc<str> {
    static TEXTS: LazyLock<[Arc<str>; 8]> = LazyLock::new(|| {
        [
            "",
            "9791: the broker is disabled in this database",
            "9750: no route leads to the broker instance named",
            "9793: no service of that name exists here",
            "11219: the queue of the target service is disabled",
            "9779: the other side has ended the conversation; the message is held until END CONVERSATION",
            "the body is being checked against its message type",
            "9784: the conversation is in error; the message is held until END CONVERSATION",
        ]
        .map(Arc::from)
    });
    TEXTS[match delay {
        Delay::Behind => 0,
        Delay::BrokerDisabled => 1,
        Delay::NoRoute => 2,
        Delay::NoService => 3,
        Delay::QueueDisabled => 4,
        Delay::PeerEnded => 5,
        Delay::Unchecked => 6,
        Delay::PeerErrored => 7,
    }]
    .clone()
}
