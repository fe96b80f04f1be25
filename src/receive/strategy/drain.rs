//! Strategy 1: drain every high-priority message, then take one low.

use super::{Bound, ClassAttempt, Form, HighClass, Plan, Served, Strategy, WhenEmpty};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::id::ConversationHandle;
use crate::protocol::ReceiveFrom;
use crate::time::Timestamp;
use std::sync::Arc;

const NAME: &str = "drain_high_then_one_low";

/// Serves a high message of any conversation whenever one is ready; when none is, one other message.
///
/// Bound: none. High messages that come as fast as they are served starve the others for ever.
pub fn drain_high_then_one_low(queue: impl Into<Arc<str>>, high: impl Into<HighClass>) -> DrainHighThenOneLow {
    DrainHighThenOneLow { queue: queue.into(), high: high.into(), levels: None, high_top: None }
}

/// The classic form: high is *one* conversation, named by its handle on the receiving side.
///
/// Messages of every other conversation, however urgent, are taken one by one when that one is empty. Once the
/// conversation is gone, receiving fails with 8426. Bound: none.
pub fn drain_one_conversation(queue: impl Into<Arc<str>>, high: ConversationHandle) -> ClassicDrain {
    ClassicDrain { queue: queue.into(), high, high_top: None }
}

/// Strategy 1 over any number of high-priority conversations; made by [`drain_high_then_one_low`].
#[derive(Debug, Clone)]
pub struct DrainHighThenOneLow {
    queue: Arc<str>,
    high: HighClass,
    levels: Option<(u8, u8)>,
    high_top: Option<u64>,
}

impl DrainHighThenOneLow {
    /// Takes at most so many high messages per receive; by default all that are ready in the group.
    pub fn high_top(mut self, top: u64) -> Self {
        self.high_top = Some(top.max(1));
        self
    }
}

impl Strategy for DrainHighThenOneLow {
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
        self.levels = Some(self.high.resolve(catalog, &self.queue)?);
        Ok(())
    }

    fn plan(&self, _now: Timestamp) -> Plan {
        // A class named by contract has levels only once it was resolved; until then nothing is high.
        let (lowest, highest) = self.levels.or(self.high.levels()).unwrap_or((10, 10));
        Plan {
            attempts: vec![
                ClassAttempt::new("high", self.queue.clone(), ReceiveFrom::Levels { lowest, highest }, self.high_top),
                // Not the levels below: a message above the range must not be forgotten.
                ClassAttempt::new("low", self.queue.clone(), ReceiveFrom::Any, Some(1)),
            ],
            when_empty: WhenEmpty::WaitOnAll,
        }
    }

    fn served(&mut self, _served: Served) {}
}

/// Strategy 1 with one high-priority conversation; made by [`drain_one_conversation`].
#[derive(Debug, Clone)]
pub struct ClassicDrain {
    queue: Arc<str>,
    high: ConversationHandle,
    high_top: Option<u64>,
}

impl ClassicDrain {
    /// Takes at most so many high messages per receive; by default all that are ready.
    pub fn high_top(mut self, top: u64) -> Self {
        self.high_top = Some(top.max(1));
        self
    }
}

impl Strategy for ClassicDrain {
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
        check_queue(catalog, &self.queue)
    }

    fn plan(&self, _now: Timestamp) -> Plan {
        Plan {
            attempts: vec![
                ClassAttempt::new("high", self.queue.clone(), ReceiveFrom::Conversation(self.high), self.high_top),
                ClassAttempt::new("low", self.queue.clone(), ReceiveFrom::Any, Some(1)),
            ],
            when_empty: WhenEmpty::WaitOnAll,
        }
    }

    fn served(&mut self, _served: Served) {}
}

/// Refuses a queue that is not defined.
pub(super) fn check_queue(catalog: &Catalog, queue: &str) -> Result<()> {
    match catalog.queue(queue) {
        Some(_) => Ok(()),
        None => Err(Error::object_not_found("queue", queue)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_levels;
    use super::super::rig::{Rig, handle};
    use super::*;

    /// High messages arrive just as fast as they are served.
    fn flood(rig: &mut Rig, messages: u64, conversations: u64) {
        for n in 0..messages {
            rig.send(n, "q", 9, n % conversations);
        }
    }

    #[test]
    fn a_flood_of_high_starves_low_until_it_ends() {
        let mut rig = Rig::new(1);
        rig.send(0, "q", 3, 100);
        flood(&mut rig, 500, 7);
        let order = rig.run(drain_high_then_one_low("q", by_levels(8..=10)).high_top(1));
        let place = order.iter().position(|taken| taken.level == 3).unwrap();
        assert_eq!(place, 500, "the oldest message of all is served last: there is no bound");
    }

    #[test]
    fn only_one_low_is_taken_before_high_is_tried_again() {
        let mut rig = Rig::new(10);
        for n in 0..5 {
            rig.send(0, "q", 3, n);
        }
        rig.send(15, "q", 9, 50);
        let order = rig.run(drain_high_then_one_low("q", by_levels(8..=10)));
        let levels: Vec<u8> = order.iter().map(|taken| taken.level).collect();
        assert_eq!(levels, [3, 3, 9, 3, 3, 3], "high came during the second low and was next");
    }

    #[test]
    fn the_classic_form_favours_one_conversation_only() {
        let messages = |rig: &mut Rig| {
            for n in 0..4 {
                rig.send(0, "q", 5, n);
            }
            rig.send(1, "q", 5, 50);
            rig.send(1, "q", 5, 51);
        };
        let mut rig = Rig::new(10);
        messages(&mut rig);
        let order = rig.run(drain_one_conversation("q", handle(50)));
        let conversations: Vec<u64> = order.iter().map(|taken| taken.conversation).collect();
        assert_eq!(conversations, [0, 50, 1, 2, 3, 51], "the second urgent conversation waits behind all low ones");
    }

    #[test]
    fn the_classic_form_starves_everything_else_under_a_flood() {
        let mut rig = Rig::new(1);
        rig.send(0, "q", 3, 1);
        for n in 0..300 {
            rig.send(n, "q", 3, 50);
        }
        let order = rig.run(drain_one_conversation("q", handle(50)).high_top(1));
        assert_eq!(order.last().map(|taken| taken.conversation), Some(1));
        assert_eq!(order.len(), 301);
    }
}
