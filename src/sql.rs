//! Every text of `sql/`, by dialect and folder: `sql/postgres/read/broker.sql` is `postgres::read::BROKER`.
//!
//! `build.rs` makes the constants from the files, and in each folder `SCRIPTS`: all its files in the order of their names.
#![allow(dead_code, reason = "a build without a store does not use its texts")]

/// A file of `sql/<dialect>`.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    /// The path below `sql/<dialect>`.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/sql.rs"));
