//! A priority messaging broker with the semantics of SQL Server Service Broker, over SQL tables.

pub mod catalog;
pub mod core;
pub mod error;
pub mod id;
pub mod protocol;
pub mod store;
pub mod time;

pub use error::{Code, Error, ErrorKind, Result};
