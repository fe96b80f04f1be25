//! A priority messaging broker with the semantics of SQL Server Service Broker, over SQL tables.

pub mod act;
pub mod activation;
#[cfg(feature = "cli")]
pub mod bench;
pub mod broker;
pub mod catalog;
#[cfg(feature = "cli")]
pub mod cli;
pub mod core;
pub mod define;
pub mod error;
pub mod id;
pub mod jsonl;
#[cfg(feature = "cli")]
pub mod lab;
pub mod maintain;
pub mod message;
pub mod protocol;
pub mod receive;
pub mod store;
pub mod time;
pub mod trace;
pub mod tx;

pub use act::Act;
pub use broker::Broker;
pub use define::Level;
pub use error::{Code, Error, ErrorKind, Result};
pub use id::{ConversationHandle, ConversationId, GroupId, MessageId};
pub use message::{Batch, BrokerError, MessageType};
pub use protocol::Message;
pub use store::OpenOptions;
pub use tx::Tx;
