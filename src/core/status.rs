//! Why a message waits in the transmission queue: the numbers of reference 6.6, with our own texts.

use std::sync::{Arc, LazyLock};

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
pub(super) fn text(delay: Delay) -> Arc<str> {
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
