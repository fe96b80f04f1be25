//! A queue turned off with a reason, and on again.

use super::names::NameKind;
use crate::broker::Broker;
use crate::error::Result;

impl Broker {
    /// Turns a queue off, with a reason for those who look at it: `ALTER QUEUE ... WITH STATUS = OFF, REASON = '...'`. Returns
    /// whether it was on.
    ///
    /// # Errors
    /// 60002 no such queue, 60005 the reason is over 1000 characters.
    pub async fn pause(&self, queue: &str, reason: Option<&str>) -> Result<bool> {
        let was_on = self.is_on(queue)?;
        self.define(|definitions| {
            let altered = definitions.alter_queue(queue).status(false);
            if let Some(reason) = reason {
                altered.reason(reason);
            }
        })
        .await?;
        Ok(was_on)
    }

    /// Turns a queue on: `ALTER QUEUE ... WITH STATUS = ON`. Returns whether it was off.
    ///
    /// # Errors
    /// 60002 no such queue.
    pub async fn resume(&self, queue: &str) -> Result<bool> {
        let was_on = self.is_on(queue)?;
        self.define(|definitions| {
            definitions.alter_queue(queue).status(true);
        })
        .await?;
        Ok(!was_on)
    }

    fn is_on(&self, queue: &str) -> Result<bool> {
        let catalog = self.catalog();
        catalog.queue(queue).map(|queue| queue.is_enabled()).ok_or_else(|| self.unknown(NameKind::Queue, queue))
    }
}
