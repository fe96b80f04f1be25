//! Receiving: waiting, streams and priority strategies.

mod strategic;
pub mod strategy;
mod stream;
pub(crate) mod wait;
mod window;

pub(crate) use strategic::{Chosen, next_by};
pub use strategic::{Strategic, Turn};
pub use strategy::{
    aging, by_contract, by_levels, drain_high_then_one_low, dual_queue_loop, independent_readers, weighted,
};
pub use stream::{Arrival, Arrivals, Messages};
pub use wait::{Deadline, GetConversationGroup, Receive, ReceiveAttempt, receive_first};
