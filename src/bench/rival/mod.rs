//! What the broker is measured against.

pub(super) mod log;
mod plain;
pub(super) mod sqlite;
pub(super) mod table_queue;
