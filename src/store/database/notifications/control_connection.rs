//! A link beside the pool, for short calls that must not wait for open transactions: notifications, polls, attempts of
//! open transactions.

use crate::store::database::link::{Call, Driver, Link, Linked};
use crate::store::database::retry::{KeptLink, call_reconnecting};
use crate::store::{BoxFuture, SqlRow};
use std::sync::Arc;
use tokio::sync::Mutex;

/// One link, made when it is first needed and again when it is lost. Calls take turns.
pub(in crate::store::database) struct ControlConnection(Mutex<Kept>);

struct Kept {
    driver: Arc<dyn Driver>,
    link: Option<Box<dyn Link>>,
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

    /// Makes a call that may be made twice.
    pub(in crate::store::database) async fn call(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        call_reconnecting(&mut *self.0.lock().await, call).await
    }

    /// Lets the link go.
    pub(in crate::store::database) async fn close(&self) {
        self.0.lock().await.link.take();
    }
}
