//! Notifications: what processes report to each other after their commits, and polling where a server cannot notify.

pub(in crate::store::database) mod control_connection;
pub(in crate::store::database) mod notice;
pub(in crate::store::database) mod publish;
pub(in crate::store::database) mod queue_poll;
