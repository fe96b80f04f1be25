//! A link outside the pool, for short calls that must not wait for open transactions: notifications, polls, attempts of
//! open transactions, reads of the definitions.

use crate::store::database::link::{Call, Driver, Link, Linked};
use crate::store::database::retry::{KeptLink, call_reconnecting};
use crate::store::{BoxFuture, SqlRow};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// One link, made when it is first needed and again when it is lost. It runs one call at a time.
pub(in crate::store::database) struct ControlConnection(Mutex<Kept>);

struct Kept {
    driver: Arc<dyn Driver>,
    link: Option<Box<dyn Link>>,
}

/// The link for several requests. It is closed unless it is given back.
pub(in crate::store::database) struct LentLink<'c> {
    kept: MutexGuard<'c, Kept>,
    pub(in crate::store::database) link: Box<dyn Link>,
}

impl LentLink<'_> {
    pub(in crate::store::database) fn give_back(mut self) {
        self.kept.link = Some(self.link);
    }
}

impl KeptLink for Kept {
    fn kept(&mut self) -> &mut Option<Box<dyn Link>> {
        &mut self.link
    }

    fn connect(&mut self) -> BoxFuture<'_, Linked<Box<dyn Link>>> {
        Box::pin(async { Ok(self.driver.dedicated().await?) })
    }
}

impl ControlConnection {
    pub(in crate::store::database) fn new(driver: Arc<dyn Driver>) -> Self {
        Self(Mutex::new(Kept { driver, link: None }))
    }

    /// Makes a call that may be repeated.
    pub(in crate::store::database) async fn call(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        call_reconnecting(&mut *self.0.lock().await, call).await
    }

    /// Lends the link; calls of others wait until it is back.
    pub(in crate::store::database) async fn lend(&self) -> Linked<LentLink<'_>> {
        let mut kept = self.0.lock().await;
        let link = match kept.link.take() {
            Some(link) => link,
            None => kept.connect().await?,
        };
        Ok(LentLink { kept, link })
    }

    /// No request is under way while this is held.
    pub(in crate::store::database) async fn rest(&self) -> impl Drop + '_ {
        self.0.lock().await
    }

    /// Closes the link.
    pub(in crate::store::database) async fn close(&self) {
        self.0.lock().await.link.take();
    }
}
