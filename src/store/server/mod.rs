//! What the server stores have in common: everything but how a server is reached and the SQL it runs.

pub mod dialect;
pub mod install;
pub mod link;
pub mod put;
mod refusal;

pub use refusal::refusal;
