//! What a server does for an endpoint only after the transaction that holds its group: DIFFERENCE(events-after-holders).

use crate::run::Run;
use crate::steps::Step;
use dialoq::internals::core::EndpointRow;
use std::collections::HashSet;
use std::time::Duration;

impl Run {
    /// Whether the step lets something happen to an endpoint whose group a transaction holds.
    pub(crate) fn comes_after_a_holder(&self, step: &Step) -> bool {
        match step {
            Step::BrokerEnabled(true) | Step::QueueStatus(_, true) | Step::MoveService(..) | Step::Break(_) => {
                let waiting: HashSet<u64> = self.model.transmissions().map(|row| row.endpoint_id).collect();
                self.holds_any(|endpoint| waiting.contains(&endpoint.endpoint_id))
            }
            Step::Advance(seconds) => {
                let until = self.now().after(Duration::from_secs(u64::from(*seconds)));
                self.holds_any(|endpoint| {
                    let due = [
                        endpoint.dialog_timer,
                        endpoint.security_timestamp,
                        endpoint.retry_at,
                        Some(endpoint.lifetime),
                    ];
                    due.iter().flatten().any(|due| *due <= until)
                })
            }
            _ => false,
        }
    }

    fn holds_any(&self, meant: impl Fn(&EndpointRow) -> bool) -> bool {
        let mut endpoints = self.model.endpoints().filter(|endpoint| meant(endpoint));
        endpoints.any(|endpoint| self.model.core.holder(endpoint.group.0).is_some())
    }
}
