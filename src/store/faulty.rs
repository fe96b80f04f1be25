//! A store that fails on request, for tests of the levels above it.

use super::database::link::EnlistedConnection;
use super::{ActivityBoard, BoxFuture, ReaderSlot, SqlRows, SqlStatement, Store, StoreTexts, StoreTx};
use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Unit, Verb};
use crate::time::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use uuid::Uuid;

/// Lets so many calls through, then fails every one with 60018, before it reaches the store.
pub struct Faulty {
    inner: Arc<dyn Store>,
    left: Arc<Left>,
}

#[derive(Debug)]
struct Left(AtomicU64);

impl Left {
    fn spend(&self) -> Result<()> {
        self.0
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .map(drop)
            .map_err(|_| Error::new(Code::STORE_IO, "the store failed, as the test asked it to"))
    }
}

impl Faulty {
    /// Fails after so many calls; opening a transaction, each call in it, and its end count one each.
    pub fn after(store: Arc<dyn Store>, calls: u64) -> Arc<Self> {
        Arc::new(Self { inner: store, left: Arc::new(Left(AtomicU64::new(calls))) })
    }

    /// Fails after this many more calls; until then failed operations work again.
    pub fn set(&self, calls: u64) {
        self.left.0.store(calls, SeqCst);
    }
}

impl Store for Faulty {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.submit(unit).await
        })
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.submit_once(unit_id, unit).await
        })
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        self.inner.unit_happened(unit_id)
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        self.inner.reader_slot(queue_id, max_queue_readers)
    }

    fn perform_on<'a>(
        &'a self,
        connection: &'a mut dyn EnlistedConnection,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.perform_on(connection, verb).await
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move {
            self.left.spend()?;
            let inner = self.inner.begin().await?;
            Ok(Box::new(FaultyTx { inner, left: self.left.clone() }) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.query(sql).await
        })
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.run_sql(sql).await
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }

    fn texts(&self) -> &'static StoreTexts {
        self.inner.texts()
    }

    fn activity(&self) -> &ActivityBoard {
        self.inner.activity()
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        self.inner.refresh_facts()
    }

    fn clock(&self) -> &Clock {
        self.inner.clock()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

struct FaultyTx {
    inner: Box<dyn StoreTx>,
    left: Arc<Left>,
}

impl StoreTx for FaultyTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.execute(verb).await
        })
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.sql(sql).await
        })
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.query(sql).await
        })
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.claim(unit_id).await
        })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.savepoint(name).await
        })
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.rollback_to(name).await
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // Failing drops the transaction, and that is a rollback.
            self.left.spend()?;
            self.inner.commit().await
        })
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.left.spend()?;
            self.inner.rollback().await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    use crate::store::traced::Traced;
    use crate::store::url::Location;

    #[tokio::test]
    async fn calls_fail_from_the_one_that_was_named() {
        let _limit = crate::testing::limit();
        let store = Traced::over(SqliteStore::open(SqliteOptions::new(Location::Memory)).unwrap());
        let faulty = Faulty::after(store, 3);
        faulty.submit(Vec::new()).await.unwrap();
        let mut tx = faulty.begin().await.unwrap();
        tx.savepoint("here").await.unwrap();
        assert_eq!(tx.commit().await.unwrap_err().code(), Code::STORE_IO);
        assert!(faulty.submit(Vec::new()).await.is_err());
        faulty.set(1);
        faulty.submit(Vec::new()).await.unwrap();
    }
}
