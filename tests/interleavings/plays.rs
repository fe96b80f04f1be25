//! The plays.

use crate::stage::{Do::*, Play};

/// The second sender waits for the first to end, so each one's messages stay together.
pub(crate) fn two_senders_on_one_dialog() -> Play {
    Play {
        sent_before: &[],
        sessions: &[
            &[Begin, Send('a', "1"), Send('a', "2"), Commit],
            &[Begin, Send('a', "x"), Send('a', "y"), Rollback],
        ],
        outcomes: &["A: ; B: ; target: [1 2]; initiator: []"],
    }
}

/// A group is received by one of them; the other gets nothing and does not wait.
pub(crate) fn two_receivers_of_one_group() -> Play {
    Play {
        sent_before: &[('a', "1"), ('a', "2")],
        sessions: &[&[Begin, Receive, Commit], &[Begin, Receive, Commit]],
        outcomes: &["A: [1 2]; B: []; target: []; initiator: []", "A: []; B: [1 2]; target: []; initiator: []"],
    }
}

/// A lost race for the first group goes on to the second; it is never an empty answer.
pub(crate) fn two_receivers_of_two_groups() -> Play {
    Play {
        sent_before: &[('a', "1"), ('b', "2")],
        sessions: &[&[Begin, Receive, Commit], &[Begin, Receive, Commit]],
        outcomes: &["A: [1]; B: [2]; target: []; initiator: []", "A: [2]; B: [1]; target: []; initiator: []"],
    }
}

/// The peer's end arrives in a group that a reader holds, without waiting for the reader.
pub(crate) fn receive_against_end_by_the_peer() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, Receive, Receive, Commit], &[Begin, EndInitiator('a'), Commit]],
        outcomes: &[
            "A: [1] []; B: ; target: [EndDialog]; initiator: []",
            "A: [1] [EndDialog]; B: ; target: []; initiator: []",
            "A: [1 EndDialog] []; B: ; target: []; initiator: []",
        ],
    }
}

/// END waits for the reader; the second one finds the conversation as the first has left it.
pub(crate) fn receive_against_end_on_the_same_side() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, Receive, Reply('a', "r"), Commit], &[Begin, EndTarget('a'), Commit]],
        outcomes: &[
            // The reader came first.
            "A: [1]; B: ; target: []; initiator: [EndDialog r]",
            // The end came first, and while it was open the reader passed over the group.
            "A: [] 8429; B: ; target: []; initiator: [EndDialog]",
        ],
    }
}

/// The two sides do not block each other; what is sent before the peer's end commits is dropped with the peer.
pub(crate) fn send_against_end_by_the_peer() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, Send('a', "late"), Commit], &[Begin, EndTarget('a'), Commit]],
        outcomes: &["A: ; B: ; target: []; initiator: [EndDialog]", "A: 8429; B: ; target: []; initiator: [EndDialog]"],
    }
}

/// MOVE holds both groups, so a reader sees the messages apart, or together, or not at all.
pub(crate) fn move_against_receive() -> Play {
    Play {
        sent_before: &[('a', "1"), ('b', "2")],
        sessions: &[&[Begin, Move('b', 'a'), Commit], &[Begin, Receive, Commit]],
        outcomes: &[
            "A: ; B: [1 2]; target: []; initiator: []",
            "A: ; B: [1]; target: [2]; initiator: []",
            "A: ; B: []; target: [1 2]; initiator: []",
        ],
    }
}

/// Two circles of waiting: exactly one of the two is rolled back and gets 1205.
pub(crate) fn two_groups_in_opposite_order() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, Send('a', "1"), Send('b', "2"), Commit], &[Begin, Send('b', "x"), Send('a', "y"), Commit]],
        outcomes: &[
            "A: ; B: ; target: [1 2 x y]; initiator: []",
            "A: 1205; B: ; target: [x y]; initiator: []",
            "A: ; B: 1205; target: [1 2]; initiator: []",
        ],
    }
}

/// Rolling back to a savepoint gives the messages back to the holder only.
pub(crate) fn savepoint_keeps_the_lock() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, Savepoint, Receive, RollbackTo, Commit], &[Begin, Receive, Commit]],
        outcomes: &[
            "A: [1]; B: []; target: [1]; initiator: []",
            "A: [1]; B: [1]; target: []; initiator: []",
            "A: []; B: [1]; target: []; initiator: []",
        ],
    }
}

/// After a rollback every session can receive the messages.
pub(crate) fn rollback_returns_received_messages() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, Receive, Rollback], &[Begin, Receive, Commit]],
        outcomes: &[
            "A: [1]; B: []; target: [1]; initiator: []",
            "A: [1]; B: [1]; target: []; initiator: []",
            "A: []; B: [1]; target: []; initiator: []",
        ],
    }
}

/// Both sides end at once: neither waits, and no message is left.
pub(crate) fn two_ends_cross() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, EndInitiator('a'), Commit], &[Begin, EndTarget('a'), Commit]],
        outcomes: &["A: ; B: ; target: []; initiator: []"],
    }
}

/// TIMER waits for the END of its own side, and then finds that it has ended.
pub(crate) fn timer_against_end() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, Timer('a'), Commit], &[Begin, EndTarget('a'), Commit]],
        outcomes: &["A: ; B: ; target: []; initiator: [EndDialog]", "A: 8458; B: ; target: []; initiator: [EndDialog]"],
    }
}

/// A group that GET has locked is passed over by RECEIVE, and the other way round.
pub(crate) fn get_group_against_receive() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, GetGroup, Commit], &[Begin, Receive, Commit]],
        outcomes: &[
            "A: group; B: []; target: [1]; initiator: []",
            "A: group; B: [1]; target: []; initiator: []",
            "A: none; B: [1]; target: []; initiator: []",
        ],
    }
}

/// Two dialogs begun in one chosen group: the second waits for the first, whether or not it stays.
pub(crate) fn begin_in_a_chosen_group() -> Play {
    Play {
        sent_before: &[],
        sessions: &[&[Begin, BeginInChosenGroup, Commit], &[Begin, BeginInChosenGroup, Rollback]],
        outcomes: &["A: ; B: ; target: []; initiator: []"],
    }
}

/// A reply is there for the initiator once its transaction has committed, and not before.
pub(crate) fn reply_against_receive() -> Play {
    Play {
        sent_before: &[('a', "1")],
        sessions: &[&[Begin, Receive, Reply('a', "r"), Commit], &[Begin, ReceiveReplies, Commit]],
        outcomes: &["A: [1]; B: []; target: []; initiator: [r]", "A: [1]; B: [r]; target: []; initiator: []"],
    }
}
