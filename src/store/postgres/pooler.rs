//! Refuses a pooler that gives each transaction another session of the server.
//!
//! The locks of readers and claims, LISTEN and the settings of a connection belong to a session. Behind such a pooler two connections
//! share one, and each would free what the other holds.

use super::connect::DatabaseLabel;
use crate::error::{Code, Error, Result};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio_postgres::Client;

/// A pooler of sessions may close a connection and give its session to the next one before this process has read the end of the first.
const END_IS_READ: Duration = Duration::from_millis(200);

/// The sessions of the server that the connections of this process have.
#[derive(Default)]
pub(super) struct OwnSessions(Mutex<Vec<(String, Weak<Client>)>>);

impl OwnSessions {
    /// Notes the session of a new connection; `session` names it among all servers.
    ///
    /// # Errors
    /// 60026 another open connection has the same.
    pub(super) async fn add(&self, session: String, client: &Arc<Client>, label: &DatabaseLabel) -> Result<()> {
        let Some(other) = self.note(&session, client) else { return Ok(()) };
        tokio::time::sleep(END_IS_READ).await;
        if other.upgrade().is_none_or(|other| other.is_closed()) {
            return Ok(());
        }
        let process = session.split(' ').next().unwrap_or_default();
        Err(shared(label, &format!("two open connections lead to the same process {process} of the server")))
    }

    /// The other open connection with that session.
    fn note(&self, session: &str, client: &Arc<Client>) -> Option<Weak<Client>> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|(_, client)| client.upgrade().is_some_and(|client| !client.is_closed()));
        let other = sessions.iter().find(|(name, _)| name == session).map(|(_, client)| client.clone());
        sessions.push((session.to_owned(), Arc::downgrade(client)));
        other
    }
}

/// The error of a connection that shares its session with others.
pub(super) fn shared(label: &DatabaseLabel, why: &str) -> Error {
    Error::new(
        Code::UNSUPPORTED,
        format!(
            "{label} is behind a pooler that gives each transaction another session: {why}; let the pooler keep a session for each \
             connection (pool_mode = session in PgBouncer), or name the server itself"
        ),
    )
}
