//! Installation: the state of the schema, its missing parts, and the script that creates them.

pub mod install;
pub mod script;
