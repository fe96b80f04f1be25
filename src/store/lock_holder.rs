//! The session that holds the lock of a conversation group.

use crate::time::Timestamp;
use serde::Serialize;
use std::fmt;

/// The session that holds the lock of a conversation group, as far as the store shows it. A server shows a login the sessions
/// of other logins in part only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockHolder {
    /// The session: the server's number of it, in SQLite the number of the transaction.
    pub session_id: Option<i64>,
    /// The name of the prepared transaction, which no session has: PostgreSQL's PREPARE TRANSACTION.
    pub prepared: Option<String>,
    /// The operating system's id of its process; PostgreSQL does not know it.
    pub process_id: Option<i64>,
    /// The host it has connected from; `None` for the server's own.
    pub host_name: Option<String>,
    /// The name of the program, as it calls itself at the server: `application_name`.
    pub program_name: Option<String>,
    /// The login; in SQLite the user id.
    pub principal: Option<String>,
    /// Since when its transaction is open. Serializes as UTC text with milliseconds.
    pub since: Option<Timestamp>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.session_id, &self.prepared) {
            (Some(session), _) => write!(f, "session {session}")?,
            (None, Some(name)) => write!(f, "prepared transaction '{name}'")?,
            (None, None) => f.write_str("a session that this login is not shown")?,
        }
        if let Some(process) = self.process_id {
            write!(f, " of process {process}")?;
        }
        if let Some(program) = self.program_name.as_deref().filter(|name| !name.is_empty()) {
            write!(f, ", program '{program}'")?;
        }
        if let Some(host) = self.host_name.as_deref().filter(|name| !name.is_empty()) {
            write!(f, " on host '{host}'")?;
        }
        if let Some(principal) = &self.principal {
            write!(f, ", login '{principal}'")?;
        }
        match self.since {
            Some(since) if self.prepared.is_some() => {
                write!(f, ", prepared at {since}; COMMIT PREPARED or ROLLBACK PREPARED ends it")
            }
            Some(since) => write!(f, ", in a transaction open since {since}"),
            None => Ok(()),
        }
    }
}
