//! Installation: what stands in the database, what is missing, and the script that makes it.

pub mod install;
pub mod script;
