//! What the server stores have in common: everything but how a server is reached and the SQL it runs.

pub mod dialect;
pub mod link;
mod refusal;

pub use refusal::refusal;
