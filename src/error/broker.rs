//! Conditions that Service Broker knows, under its numbers.

use super::{Code, Error};
use std::fmt::Display;

impl Error {
    /// 8426: the handle names no conversation endpoint here.
    pub(crate) fn conversation_not_found(handle: impl Display) -> Self {
        Self::new(
            Code::CONVERSATION_NOT_FOUND,
            format!("conversation handle {handle} was not found: it was never begun here, or it has ended"),
        )
    }

    /// 8429: the state of the conversation forbids SEND. The rules of the databases say it in the same words.
    pub(crate) fn state_forbids_send(handle: impl Display, state: impl Display) -> Self {
        Self::new(
            Code::STATE_FORBIDS_SEND,
            format!("conversation {handle} is {state}; SEND needs STARTED_OUTBOUND or CONVERSING"),
        )
    }

    /// Whether a SEND was refused because the other side has ended or the conversation broke, and not because this side has
    /// ended. A database gives no more than the number and this text.
    pub(crate) fn is_send_to_ended_peer(&self) -> bool {
        let states = [" is DISCONNECTED_INBOUND; ", " is ERROR; "];
        self.code() == Code::STATE_FORBIDS_SEND && states.iter().any(|state| self.message().contains(state))
    }

    /// 8423: no service of that name here.
    pub(crate) fn service_not_found(name: &str) -> Self {
        Self::new(Code::SERVICE_NOT_FOUND, format!("service '{name}' was not found; names are compared byte by byte"))
    }

    /// 8425: no contract of that name here.
    pub(crate) fn contract_not_found(name: &str) -> Self {
        Self::new(Code::CONTRACT_NOT_FOUND, format!("contract '{name}' was not found; names are compared byte by byte"))
    }

    /// 8428: no message type of that name here.
    pub(crate) fn message_type_not_found(name: &str) -> Self {
        Self::new(
            Code::MESSAGE_TYPE_NOT_FOUND,
            format!("message type '{name}' was not found; names are compared byte by byte"),
        )
    }

    /// 9617: the queue gives nothing out.
    pub(crate) fn queue_disabled(queue: &str) -> Self {
        Self::new(
            Code::QUEUE_DISABLED,
            format!("queue '{queue}' is disabled; ALTER QUEUE [{queue}] WITH STATUS = ON enables it"),
        )
    }

    /// 3716: others still refer to the object.
    pub(crate) fn in_use(what: &str, name: &str, by: impl Display) -> Self {
        Self::new(Code::OBJECT_IN_USE, format!("{what} '{name}' cannot be dropped: {by} refers to it; drop that first"))
    }

    /// 9663: the object belongs to the system.
    pub(crate) fn system_object(what: &str, name: &str) -> Self {
        Self::new(
            Code::SYSTEM_OBJECT,
            format!("{what} '{name}' belongs to the system and cannot be created, altered or dropped"),
        )
    }

    /// 8436: no conversation group of that id here.
    pub(crate) fn group_not_found(group: impl Display) -> Self {
        Self::new(
            Code::GROUP_NOT_FOUND,
            format!("conversation group {group} was not found: it has no conversations here"),
        )
    }

    /// 1205: two transactions wait for each other.
    pub(crate) fn deadlock(group: impl Display) -> Self {
        Self::new(
            Code::DEADLOCK,
            format!(
                "the transaction was chosen as a deadlock victim and rolled back: it waited for conversation group \
                 {group}, whose holder waits for one of this transaction's; run the transaction again"
            ),
        )
    }
}
