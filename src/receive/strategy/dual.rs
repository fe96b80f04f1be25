//! Strategy 2: one loop over a queue for high and a queue for low.

use super::drain::check_queue;
use super::{Bound, ClassAttempt, Form, Plan, Served, Strategy, WhenEmpty};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::protocol::ReceiveFrom;
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "dual_queue_loop";

/// How long the classic form waits on the high queue before it tries the low one.
const CLASSIC_TIMEOUT: Duration = Duration::from_millis(10);

/// Serves the high queue; when it is empty, one message of the low queue. Sleeps on both queues at once.
///
/// Bound: none. High messages that come as fast as they are served starve the low queue for ever.
pub fn dual_queue_loop(high: impl Into<Arc<str>>, low: impl Into<Arc<str>>) -> DualQueueLoop {
    DualQueueLoop { high: high.into(), low: low.into(), high_top: None }
}

/// The classic form: waits 10 ms on the high queue, then tries the low queue, and again.
///
/// A message of the low queue pays up to those 10 ms each time the high queue is empty. One loop therefore serves at
/// most 100 low messages a second even on an otherwise idle broker. Bound: none.
pub fn dual_queue_loop_classic(high: impl Into<Arc<str>>, low: impl Into<Arc<str>>) -> ClassicDualQueueLoop {
    ClassicDualQueueLoop { high: high.into(), low: low.into(), high_top: None, timeout: CLASSIC_TIMEOUT }
}

/// Strategy 2 that waits on both queues; made by [`dual_queue_loop`].
#[derive(Debug, Clone)]
pub struct DualQueueLoop {
    high: Arc<str>,
    low: Arc<str>,
    high_top: Option<u64>,
}

impl DualQueueLoop {
    /// Takes at most so many high messages per receive; by default all that are ready in the group.
    pub fn high_top(mut self, top: u64) -> Self {
        self.high_top = Some(top.max(1));
        self
    }
}

impl Strategy for DualQueueLoop {
    fn name(&self) -> &'static str {
        NAME
    }

    fn form(&self) -> Form {
        Form::Improved
    }

    fn bound(&self) -> Bound {
        Bound::None
    }

    fn prepare(&mut self, catalog: &Catalog) -> Result<()> {
        check_queue(catalog, &self.high)?;
        check_queue(catalog, &self.low)
    }

    fn plan(&self, _now: Timestamp) -> Plan {
        Plan {
            attempts: vec![
                ClassAttempt::new("high", self.high.clone(), ReceiveFrom::Any, self.high_top),
                ClassAttempt::new("low", self.low.clone(), ReceiveFrom::Any, Some(1)),
            ],
            when_empty: WhenEmpty::WaitOnAll,
        }
    }

    fn served(&mut self, _served: Served) {}
}

/// Strategy 2 that polls; made by [`dual_queue_loop_classic`].
#[derive(Debug, Clone)]
pub struct ClassicDualQueueLoop {
    high: Arc<str>,
    low: Arc<str>,
    high_top: Option<u64>,
    timeout: Duration,
}

impl ClassicDualQueueLoop {
    /// Takes at most so many high messages per receive; by default all that are ready in the group.
    pub fn high_top(mut self, top: u64) -> Self {
        self.high_top = Some(top.max(1));
        self
    }

    /// Waits so long on the high queue instead of 10 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl Strategy for ClassicDualQueueLoop {
    fn name(&self) -> &'static str {
        NAME
    }

    fn form(&self) -> Form {
        Form::Classic
    }

    fn bound(&self) -> Bound {
        Bound::None
    }

    fn prepare(&mut self, catalog: &Catalog) -> Result<()> {
        check_queue(catalog, &self.high)?;
        check_queue(catalog, &self.low)
    }

    fn plan(&self, _now: Timestamp) -> Plan {
        Plan {
            attempts: vec![
                ClassAttempt::new("high", self.high.clone(), ReceiveFrom::Any, self.high_top).waiting(self.timeout),
                ClassAttempt::new("low", self.low.clone(), ReceiveFrom::Any, Some(1)),
            ],
            when_empty: WhenEmpty::Replan,
        }
    }

    fn served(&mut self, _served: Served) {}
}

#[cfg(test)]
mod tests {
    use super::super::rig::Rig;
    use super::*;

    #[test]
    fn a_flood_of_high_starves_the_low_queue_in_both_forms() {
        let forms: [Box<dyn Strategy>; 2] = [
            Box::new(dual_queue_loop("high", "low").high_top(1)),
            Box::new(dual_queue_loop_classic("high", "low").high_top(1)),
        ];
        for strategy in forms {
            let mut rig = Rig::new(1);
            rig.send(0, "low", 5, 0);
            for n in 0..400 {
                rig.send(n, "high", 5, 1 + n % 3);
            }
            let order = rig.run(strategy);
            assert_eq!(
                order.iter().position(|taken| taken.queue == "low"),
                Some(400),
                "served after the last high one"
            );
        }
    }

    #[test]
    fn each_low_message_pays_ten_ms_in_the_classic_form_and_none_in_ours() {
        let waits = |strategy: Box<dyn Strategy>| {
            let mut rig = Rig::new(2);
            for _ in 0..20 {
                rig.send(0, "low", 5, 0);
            }
            rig.run(strategy).iter().map(|taken| taken.at_ms).collect::<Vec<_>>()
        };
        let classic = waits(Box::new(dual_queue_loop_classic("high", "low")));
        let ours = waits(Box::new(dual_queue_loop("high", "low")));
        assert_eq!(classic, (0..20).map(|n| 10 + n * 12).collect::<Vec<u64>>(), "10 ms of polling before each");
        assert_eq!(ours, (0..20).map(|n| n * 2).collect::<Vec<u64>>(), "served one after the other");
    }

    #[test]
    fn high_goes_first_as_soon_as_it_is_there() {
        let mut rig = Rig::new(10);
        for n in 0..4 {
            rig.send(0, "low", 5, n);
        }
        rig.send(11, "high", 5, 9);
        let order = rig.run(dual_queue_loop("high", "low"));
        let queues: Vec<&str> = order.iter().map(|taken| &*taken.queue).collect();
        assert_eq!(queues, ["low", "low", "high", "low", "low"]);
    }
}
