//! Conditions of our own, from 60001.

use super::{Code, Error};
use crate::id::{ConversationHandle, DeadLetterId};
use std::fmt::Display;

impl Error {
    /// 60047: the policy of a queue gives up. The rules of the databases say it in the same words.
    pub(crate) fn retries_used_up(queue: &str, attempts: u16) -> Self {
        Self::new(
            Code::RETRIES_USED_UP,
            format!(
                "the message was received {attempts} times from queue '{queue}', and each time its transaction rolled back"
            ),
        )
    }

    /// 60048: the dead letter is not there.
    pub(crate) fn dead_letter_not_found(id: DeadLetterId) -> Self {
        Self::new(
            Code::DEAD_LETTER_NOT_FOUND,
            format!("dead letter {id} was not found; it was redriven or purged, or never was one"),
        )
    }

    /// 60049: an open transaction is in the way.
    pub(crate) fn dead_letter_locked(id: DeadLetterId) -> Self {
        Self::new(
            Code::DEAD_LETTER_LOCKED,
            format!("dead letter {id} is redriven or purged by another transaction; try again when that has ended"),
        )
    }

    /// 60050: no conversation takes the message back.
    pub(crate) fn dead_letter_without_conversation(id: DeadLetterId, handle: ConversationHandle) -> Self {
        Self::new(
            Code::DEAD_LETTER_WITHOUT_CONVERSATION,
            format!(
                "dead letter {id} cannot be redriven: its conversation {handle} has ended; read its body and send it on a new \
                 conversation, or purge it"
            ),
        )
    }

    /// 60001: the name is taken.
    pub(crate) fn duplicate_name(what: &str, name: &str) -> Self {
        Self::new(Code::DUPLICATE_NAME, format!("{what} '{name}' exists already"))
    }

    /// 60002: a definition names what does not exist.
    pub(crate) fn object_not_found(what: &str, name: &str) -> Self {
        Self::new(Code::OBJECT_NOT_FOUND, format!("{what} '{name}' was not found"))
    }

    /// 60003: the name is empty, too long, or begins with a character it may not.
    pub(crate) fn bad_name(what: &str, name: &str, why: impl Display) -> Self {
        Self::new(Code::BAD_NAME, format!("'{name}' cannot name a {what}: {why}"))
    }

    /// 60005: a value is out of its range.
    pub(crate) fn out_of_range(what: &str, found: impl Display, right: &str) -> Self {
        Self::new(Code::OUT_OF_RANGE, format!("{what} is {found}; it must be {right}"))
    }

    /// 60008: definitions stand alone.
    pub(crate) fn definition_in_transaction() -> Self {
        Self::new(
            Code::DEFINITION_IN_TRANSACTION,
            "definitions and other verbs do not mix in one transaction; make definitions on their own, all in one script",
        )
    }

    /// 60020: nothing more can be done in this transaction.
    pub(crate) fn transaction_ended() -> Self {
        Self::new(
            Code::TRANSACTION_ENDED,
            "the transaction has ended: it was committed, rolled back, or lost to an earlier error; begin another",
        )
    }

    /// 60016: the broker is closed.
    pub(crate) fn closed() -> Self {
        Self::new(Code::STORE_CLOSED, "the broker is closed; open it again")
    }

    /// 60026: a URL of a server that this build cannot speak to.
    #[cfg(not(all(feature = "postgres", feature = "mssql")))]
    pub(crate) fn without_driver(server: &str, feature: &str) -> Self {
        Self::new(
            Code::UNSUPPORTED,
            format!("this build has no driver for {server}; build Dialoq with feature '{feature}'"),
        )
    }
}
