//! The PostgreSQL store.

pub mod sql;
