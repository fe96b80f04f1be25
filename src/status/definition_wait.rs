//! A definition that waits for open transactions: what it needs, and the queues from which it holds receives back meanwhile.

use crate::broker::Broker;
use crate::time::Timestamp;
use std::collections::HashMap;
use std::time::Duration;

/// No hold is longer: after a change of the clock its end may be further away, and the store ignores such a hold.
const LONGEST: Duration = Duration::from_secs(60);

/// What to do about a hold.
pub(super) const HELD_BACK_ADVICE: &str = "commit or roll back the transactions that hold its conversation groups, or cancel the definition; \
     while the definition waits, it holds receives back again after each pause";

/// That receives are held back from a queue.
pub(crate) fn held_back(queue: &str, until: Timestamp) -> String {
    format!(
        "a definition waits for open transactions, and holds receives back from queue '{queue}' until {until} at most"
    )
}

impl Broker {
    /// The ends of the holds at this time, by queue. An owner of a file that does not answer makes no status fail.
    pub(super) async fn receive_holds(&self, at: Timestamp) -> HashMap<String, Timestamp> {
        let catalog = self.catalog();
        let holds = self.shared_store().receive_holds().await.unwrap_or_default();
        let lasts = |until: Timestamp| until > at && until.since(at) <= LONGEST;
        let named = |id| Some(catalog.queues.get(&id)?.name.to_string());
        holds
            .into_iter()
            .filter(|(_, until)| lasts(*until))
            .filter_map(|(id, until)| Some((named(id)?, until)))
            .collect()
    }

    /// That receives are held back from a queue now, if they are.
    pub(crate) async fn receives_held_back(&self, queue: &str) -> Option<String> {
        let name = self.catalog().queue(queue)?.name.to_string();
        let until = self.receive_holds(self.clock().now()).await.remove(&name)?;
        Some(held_back(&name, until))
    }
}
