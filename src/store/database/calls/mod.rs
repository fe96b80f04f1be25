//! Calls: verbs as calls of functions and procedures, and their rows as outcomes and errors.

pub(in crate::store::database) mod caller;
pub(in crate::store::database) mod job;
pub(in crate::store::database) mod message;
pub mod put;
pub mod refusal;
pub(in crate::store::database) mod rows;
pub(in crate::store::database) mod verbs;
