//! The rival: a table queue as it is written by hand, one statement a transaction, on a connection for each caller.

use super::plain::{self, Plain};
use crate::bench::flow::{Bodies, Side, Stamp};
use crate::bench::server::texts::Server;
use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// After so many attempts that found nothing a receiver believes that nothing is left.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// Rows that are filled in with one statement.
const UNIT: usize = 100_000;

/// A table, and as many connections as there are callers.
pub(in crate::bench) struct TableQueue {
    server: Server,
    free: Mutex<Vec<Box<dyn Plain>>>,
}

impl TableQueue {
    /// Makes the table and opens the connections.
    pub(in crate::bench) async fn create(server: &Server, connections: usize) -> Result<Self> {
        server.script(server.texts.create_message).await?;
        let mut free = Vec::with_capacity(connections);
        while free.len() < connections {
            let opened = plain::open(&server.url).await;
            free.push(opened.map_err(|error| too_many(&error, connections, free.len()).unwrap_or(error))?);
        }
        Ok(Self { server: server.clone(), free: Mutex::new(free) })
    }

    async fn take(&self) -> Result<Box<dyn Plain>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match free {
            Some(connection) => Ok(connection),
            None => plain::open(&self.server.url).await,
        }
    }

    fn give_back(&self, connection: Box<dyn Plain>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// Takes every row away.
    pub(in crate::bench) async fn empty(&self) -> Result<()> {
        self.server.script(self.server.texts.empty_message).await
    }
}

/// What to do where the server gives fewer connections than the callers need.
fn too_many(error: &Error, needed: usize, opened: usize) -> Option<Error> {
    // The first one fails for another reason. The driver's advice, to lower pool_size, is about the pool of a broker.
    (opened > 0 && error.code() == Code::SERVER_UNREACHABLE).then(|| {
        let text = format!(
            "the table queue beside the broker needs {needed} connections, and the server gave {opened}; use fewer --callers, or \
             raise max_connections"
        );
        Error::new(error.code(), text)
    })
}

impl Side for TableQueue {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        let mut connection = self.take().await?;
        for body in bodies {
            connection.insert(self.server.texts.insert_message, &body).await?;
        }
        self.give_back(connection);
        Ok(())
    }

    async fn receive(&self, _count: usize, waits: bool) -> Result<Vec<Stamp>> {
        let mut connection = self.take().await?;
        let mut attempts = 0;
        let body = loop {
            let body = connection.delete(self.server.texts.delete_message).await?;
            attempts += 1;
            if body.is_some() || waits || attempts >= ATTEMPTS {
                break body;
            }
        };
        self.give_back(connection);
        if body.is_none() && waits {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(body.iter().map(|body| Stamp::of(body)).collect())
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        let mut connection = self.take().await?;
        let mut left = count;
        while left > 0 {
            let some = left.min(UNIT);
            connection.fill(self.server.texts.fill_message, &bodies.next(), some as i64).await?;
            left -= some;
        }
        self.give_back(connection);
        Ok(())
    }
}
