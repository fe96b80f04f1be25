//! Batches: verbs of many callers in one call to the server.

pub(in crate::store::database) mod batcher;
pub(in crate::store::database) mod body;
pub(in crate::store::database) mod claim_batches;
pub(in crate::store::database) mod dialog_batches;
pub(in crate::store::database) mod job_batches;
pub(in crate::store::database) mod receive_batches;
mod search_start;
pub(in crate::store::database) mod send_batches;
