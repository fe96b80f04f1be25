//! The states of a conversation endpoint (`docs/semantics.md`, "A conversation's life").

use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of an endpoint. The codes and descriptions are those of `sys.conversation_endpoints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConversationState {
    /// Begun here, nothing sent yet.
    #[serde(rename = "SO")]
    StartedOutbound,
    /// The first message is only partly here; never seen in a store that delivers to itself.
    #[serde(rename = "SI")]
    StartedInbound,
    /// Both sides may send.
    #[serde(rename = "CO")]
    Conversing,
    /// The peer ended; this side may receive, not send.
    #[serde(rename = "DI")]
    DisconnectedInbound,
    /// Ended here, not yet acknowledged by the peer.
    #[serde(rename = "DO")]
    DisconnectedOutbound,
    /// An error is queued or was received; this side may receive the rest, not send.
    #[serde(rename = "ER")]
    Error,
    /// Ended on both sides; kept against replay only.
    #[serde(rename = "CD")]
    Closed,
}

impl ConversationState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::StartedOutbound,
        Self::StartedInbound,
        Self::Conversing,
        Self::DisconnectedInbound,
        Self::DisconnectedOutbound,
        Self::Error,
        Self::Closed,
    ];

    /// The two letters of the `state` column.
    pub fn code(self) -> &'static str {
        match self {
            Self::StartedOutbound => "SO",
            Self::StartedInbound => "SI",
            Self::Conversing => "CO",
            Self::DisconnectedInbound => "DI",
            Self::DisconnectedOutbound => "DO",
            Self::Error => "ER",
            Self::Closed => "CD",
        }
    }

    /// The text of the `state_desc` column.
    pub fn description(self) -> &'static str {
        match self {
            Self::StartedOutbound => "STARTED_OUTBOUND",
            Self::StartedInbound => "STARTED_INBOUND",
            Self::Conversing => "CONVERSING",
            Self::DisconnectedInbound => "DISCONNECTED_INBOUND",
            Self::DisconnectedOutbound => "DISCONNECTED_OUTBOUND",
            Self::Error => "ERROR",
            Self::Closed => "CLOSED",
        }
    }

    /// The state of those two letters.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Whether SEND is allowed.
    pub fn may_send(self) -> bool {
        matches!(self, Self::StartedOutbound | Self::Conversing)
    }

    /// Whether this side has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::DisconnectedOutbound | Self::Closed)
    }
}

impl fmt::Display for ConversationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}
