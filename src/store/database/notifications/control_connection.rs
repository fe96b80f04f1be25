//! A link beside the pool, for short calls that must not wait for what transactions hold: what is told to others, looks
//! at the queues, attempts of open transactions.

use crate::error::Code;
use crate::store::SqlRow;
use crate::store::database::link::{Call, Driver, Failure, Fate, Link, Linked};
use std::sync::Arc;
use tokio::sync::Mutex;

/// One link, made when it is first needed and again when it is lost. Calls take turns.
pub(in crate::store::database) struct ControlConnection {
    driver: Arc<dyn Driver>,
    link: Mutex<Option<Box<dyn Link>>>,
}

impl ControlConnection {
    pub(in crate::store::database) fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver, link: Mutex::new(None) }
    }

    /// Makes a call that may be made twice: it is made again, once, on a new link if the old one turns out to be dead.
    pub(in crate::store::database) async fn call(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let mut place = self.link.lock().await;
        let mut is_new = false;
        loop {
            // Taken out meanwhile: a caller that goes away in the middle leaves nothing half done behind.
            let mut link = match place.take() {
                Some(link) => link,
                None => {
                    is_new = true;
                    self.driver.dedicated().await.map_err(Failure::unsent)?
                }
            };
            match link.call(call.clone()).await {
                Ok(rows) => {
                    *place = Some(link);
                    return Ok(rows);
                }
                Err(failure) if failure.is_link_usable => {
                    *place = Some(link);
                    return Err(failure);
                }
                Err(failure) => {
                    let is_lost = failure.fate == Fate::Unknown || failure.error.code() == Code::SERVER_UNREACHABLE;
                    if is_new || !is_lost {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Lets the link go.
    pub(in crate::store::database) async fn close(&self) {
        self.link.lock().await.take();
    }
}
