//! Receiving: waiting, streams and priority strategies.

pub mod strategy;
pub mod stream;
pub mod wait;

pub use stream::{Arrival, Arrivals, Messages};
pub use wait::{Deadline, GetConversationGroup, Look, Receive, receive_first};
