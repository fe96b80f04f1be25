//! The rival of a `Tx`: a table queue by hand in an explicit transaction, on a connection for each caller.

use super::job_tables::Connections;
use crate::bench::flow::{Bodies, Side, Stamp};
use crate::bench::sql::postgres as texts;
use dialoq::Result;
use std::sync::Arc;
use std::time::Duration;

/// The pause of a receiver that found nothing.
const PAUSE: Duration = Duration::from_millis(1);

/// The table of messages. Sends and receives are transactions: BEGIN, a statement, COMMIT.
pub(in crate::bench) struct TableTx {
    connections: Arc<Connections>,
    /// Whether a transaction that receives also writes a row of the user's, and an answer.
    answers: bool,
    /// Whether a send is a transaction; else its statement commits by itself.
    sends_in_tx: bool,
}

impl TableTx {
    pub(in crate::bench) fn new(connections: &Arc<Connections>) -> Self {
        Self { connections: connections.clone(), answers: false, sends_in_tx: true }
    }

    pub(in crate::bench) fn answering(connections: &Arc<Connections>) -> Self {
        Self { answers: true, ..Self::new(connections) }
    }

    /// One whose sends commit by themselves.
    pub(in crate::bench) fn sending_at_once(connections: &Arc<Connections>) -> Self {
        Self { sends_in_tx: false, ..Self::new(connections) }
    }
}

impl Side for TableTx {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        let mut connection = self.connections.take().await?;
        if self.sends_in_tx {
            connection.script(texts::TX_BEGIN).await?;
        }
        match &bodies[..] {
            [body] => connection.rows(texts::INSERT_MESSAGE, &[body]).await?,
            _ => connection.rows(texts::TX_INSERT_MANY, &[&bodies]).await?,
        };
        if self.sends_in_tx {
            connection.script(texts::TX_COMMIT).await?;
        }
        self.connections.give_back(connection);
        Ok(())
    }

    async fn receive(&self, count: usize, waits: bool) -> Result<Vec<Stamp>> {
        let mut connection = self.connections.take().await?;
        connection.script(texts::TX_BEGIN).await?;
        let rows = match count {
            1 => connection.rows(texts::DELETE_MESSAGE, &[]).await?,
            _ => connection.rows(texts::TX_DELETE_MANY, &[&(count as i64)]).await?,
        };
        let bodies: Vec<Vec<u8>> = rows.iter().map(|row| row.get(0)).collect();
        if let (true, Some(body)) = (self.answers, bodies.first()) {
            connection.rows(texts::TX_ROW, &[&(body.len() as i64)]).await?;
            connection.rows(texts::TX_ANSWER, &[body]).await?;
        }
        connection.script(texts::TX_COMMIT).await?;
        self.connections.give_back(connection);
        if bodies.is_empty() && waits {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(bodies.iter().map(|body| Stamp::of(body)).collect())
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        self.connections.fill(texts::FILL_MESSAGE, &bodies.next(), count).await
    }
}
