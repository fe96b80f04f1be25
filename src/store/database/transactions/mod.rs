//! Transactions: a `Tx` on a server, units, and connections of the user's own.

pub(in crate::store::database) mod attempts;
pub(in crate::store::database) mod claim_ages;
pub(in crate::store::database) mod enlisted;
pub(in crate::store::database) mod held_jobs;
pub(in crate::store::database) mod job_take_link;
pub(in crate::store::database) mod tx;
pub(in crate::store::database) mod uncommitted_receives;
pub(in crate::store::database) mod unit;
pub(in crate::store::database) mod unseen_jobs;
