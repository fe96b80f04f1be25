//! A store that fails after a set number of calls, for tests of the levels above it.

use super::layer::{Layer, Request, TxLayer, TxRequest};
use super::{Seen, Store, StoreTx};
use crate::error::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Forwards a set number of calls, then fails each call with 60018 before it reaches the store.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
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
    /// Fails after this many calls; opening a transaction, each call in it, and its end count one each.
    pub fn after(store: Arc<dyn Store>, calls: u64) -> Arc<Self> {
        Arc::new(Self { inner: store, left: Arc::new(Left(AtomicU64::new(calls))) })
    }

    /// Fails after this many more calls; until then failed operations work again.
    pub fn set(&self, calls: u64) {
        self.left.0.store(calls, SeqCst);
    }
}

impl Layer for Faulty {
    type Call = ();
    type Tx = FaultyTx;

    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, request: Request<'_>) -> Result<()> {
        if matches!(request, Request::Close) { Ok(()) } else { self.left.spend() }
    }

    fn open(&self, inner: Box<dyn StoreTx>, _: Seen) -> (FaultyTx, Box<dyn StoreTx>) {
        (FaultyTx(self.left.clone()), inner)
    }
}

pub(crate) struct FaultyTx(Arc<Left>);

impl TxLayer for FaultyTx {
    type Call = ();

    fn before(&mut self, _: TxRequest<'_>) -> Result<()> {
        self.0.spend()
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
        let mut tx = faulty.begin(crate::store::Seen::always()).await.unwrap();
        tx.savepoint("here").await.unwrap();
        assert_eq!(tx.commit().await.unwrap_err().code(), Code::STORE_IO);
        assert!(faulty.submit(Vec::new()).await.is_err());
        faulty.set(1);
        faulty.submit(Vec::new()).await.unwrap();
    }
}
