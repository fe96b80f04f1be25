//! Notifications: what processes tell each other after their commits, and polling where a server cannot notify.

pub(in crate::store::database) mod control_connection;
pub(in crate::store::database) mod notices;
pub(in crate::store::database) mod queue_poll;
