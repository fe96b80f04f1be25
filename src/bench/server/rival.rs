//! The rival: a table queue as it is written by hand, one statement a transaction, on a connection for each caller.

use super::texts::{Server, error};
use crate::bench::flow::{Bodies, Side, Stamp};
use dialoq::internals::store::SqlStatement;
use dialoq::internals::store::database::link::Link;
use dialoq::{Result, SqlValue};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// After so many looks that found nothing a receiver believes that nothing is left.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// Rows that are filled in with one statement.
const UNIT: usize = 100_000;

/// A table, and as many connections as there are callers.
pub(super) struct TableQueue {
    server: Server,
    links: Mutex<Vec<Box<dyn Link>>>,
}

impl TableQueue {
    /// Makes the table and opens the connections.
    pub(super) async fn create(server: &Server, connections: usize) -> Result<Self> {
        server.script(server.texts.create_message).await?;
        let mut links = Vec::with_capacity(connections);
        for _ in 0..connections {
            links.push(server.driver.dedicated().await?);
        }
        Ok(Self { server: server.clone(), links: Mutex::new(links) })
    }

    async fn link(&self) -> Result<Box<dyn Link>> {
        let free = self.links.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match free {
            Some(link) => Ok(link),
            None => self.server.driver.dedicated().await,
        }
    }

    fn give_back(&self, link: Box<dyn Link>) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).push(link);
    }

    async fn execute(&self, link: &mut Box<dyn Link>, text: &str, params: Vec<SqlValue>) -> Result<u64> {
        let statement = SqlStatement { text: text.to_owned(), params, expected_rows: None };
        link.execute(&statement).await.map_err(error)
    }

    /// Takes every row away.
    pub(super) async fn empty(&self) -> Result<()> {
        self.server.script(self.server.texts.empty_message).await
    }
}

impl Side for TableQueue {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        let mut link = self.link().await?;
        for body in bodies {
            self.execute(&mut link, self.server.texts.insert_message, vec![SqlValue::Blob(body)]).await?;
        }
        self.give_back(link);
        Ok(())
    }

    async fn receive(&self, _count: usize, waits: bool) -> Result<Vec<Stamp>> {
        let mut link = self.link().await?;
        let mut looks = 0;
        let stamps = loop {
            let rows = link.rival(self.server.texts.delete_message).await.map_err(error)?;
            looks += 1;
            if rows.is_empty() && !waits && looks < LOOKS {
                continue;
            }
            let mut stamps = Vec::with_capacity(rows.len());
            for row in rows {
                stamps.push(Stamp::of(&row.get::<Vec<u8>>("body")?));
            }
            break stamps;
        };
        self.give_back(link);
        if stamps.is_empty() && waits {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(stamps)
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        let mut link = self.link().await?;
        let mut left = count;
        while left > 0 {
            let some = left.min(UNIT);
            let params = vec![SqlValue::Blob(bodies.next()), SqlValue::Integer(some as i64)];
            self.execute(&mut link, self.server.texts.fill_message, params).await?;
            left -= some;
        }
        self.give_back(link);
        Ok(())
    }
}
