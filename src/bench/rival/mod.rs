//! What the broker is measured against.

#[cfg(feature = "postgres")]
pub(super) mod job_tables;
pub(super) mod log;
mod plain;
pub(super) mod sqlite;
pub(super) mod table_queue;
#[cfg(feature = "postgres")]
pub(super) mod table_tx;
