//! Levels that rise with waiting.

use super::drain::check_queue;
use super::{Bound, ClassAttempt, Form, Plan, Served, Strategy, WhenEmpty};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::protocol::ReceiveFrom;
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

const LEVELS: usize = 10;
const CLASSES: [&str; LEVELS] =
    ["level 1", "level 2", "level 3", "level 4", "level 5", "level 6", "level 7", "level 8", "level 9", "level 10"];

/// A waiting message's level rises by one per `per_level`, without end; the highest is served.
///
/// The rule orders messages by `enqueued - level * per_level`, which does not change while they wait. Per level the
/// oldest goes first anyway, so the strategy needs only the age of each level's head. It cannot see heads, but it has a
/// moment before which none of a level's messages was enqueued: the age of the last one it took there, or of the last
/// receive attempt that found nothing. It takes the level whose moment is first in that order, which then becomes
/// exact. So a message is overtaken against the rule at most once by each other level.
///
/// Bound: a message of level `l` is ahead of all that come more than `(10 - l) * per_level` after it, except for one
/// receive of each other level. With `per_level` zero it is first come, first served.
pub fn aging(queue: impl Into<Arc<str>>, per_level: Duration) -> Aging {
    Aging { queue: queue.into(), per_level, top: Some(1), none_before: [Timestamp(i64::MIN); LEVELS] }
}

/// Levels that rise with waiting; made by [`aging`].
#[derive(Debug, Clone)]
pub struct Aging {
    queue: Arc<str>,
    per_level: Duration,
    top: Option<u64>,
    /// Per level, from 1: nothing that waits there was enqueued earlier.
    none_before: [Timestamp; LEVELS],
}

impl Aging {
    /// Takes at most so many messages per receive; 1 by default. All of them come from the group served.
    pub fn top(mut self, top: u64) -> Self {
        self.top = Some(top.max(1));
        self
    }

    /// The levels in the order they are tried.
    fn order(&self) -> [u8; LEVELS] {
        let mut order = [10, 9, 8, 7, 6, 5, 4, 3, 2, 1];
        let per_level_us = i64::try_from(self.per_level.as_micros()).unwrap_or(i64::MAX);
        // Stable: among equals the higher level goes first.
        order.sort_by_key(|&level| {
            let head_start_us = per_level_us.saturating_mul(i64::from(level));
            self.none_before[usize::from(level) - 1].0.saturating_sub(head_start_us)
        });
        order
    }
}

impl Strategy for Aging {
    fn name(&self) -> &'static str {
        "aging"
    }

    fn form(&self) -> Form {
        Form::Improved
    }

    fn bound(&self) -> Bound {
        Bound::Age { per_level: self.per_level }
    }

    fn prepare(&mut self, catalog: &Catalog) -> Result<()> {
        check_queue(catalog, &self.queue)
    }

    fn plan(&self, _now: Timestamp) -> Plan {
        let attempts = self.order().into_iter().map(|level| {
            let from = ReceiveFrom::Levels { lowest: level, highest: level };
            ClassAttempt::new(CLASSES[usize::from(level) - 1], self.queue.clone(), from, self.top)
        });
        Plan { attempts: attempts.collect(), when_empty: WhenEmpty::WaitOnAll }
    }

    fn served(&mut self, served: Served) {
        let order = self.order();
        let empty = served.found.map_or(LEVELS, |found| found.attempt.min(LEVELS));
        for level in &order[..empty] {
            let known = &mut self.none_before[usize::from(*level) - 1];
            *known = (*known).max(served.planned_at);
        }
        if let Some(found) = served.found
            && let Some(level) = order.get(found.attempt)
        {
            // A rolled-back message may be older than the moment recorded.
            self.none_before[usize::from(*level) - 1] = found.oldest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, Taken};
    use super::*;
    use proptest::prelude::{prop, prop_assert, proptest};

    fn rank(message: &Taken, per_level_ms: u64) -> i64 {
        message.sent_ms as i64 - i64::from(message.level) * per_level_ms as i64
    }

    #[test]
    fn a_low_message_overtakes_a_flood_once_it_is_old_enough() {
        let mut rig = Rig::new(1);
        rig.send(0, "q", 3, 100);
        rig.send(0, "q", 3, 100);
        for n in 0..600 {
            rig.send(n, "q", 10, n % 7);
        }
        let order = rig.run(aging("q", Duration::from_millis(20)));
        // The first was taken to learn how old its level is.
        let low = order.iter().filter(|taken| taken.level == 3).nth(1).unwrap();
        // 141 of level 10 may go before it, the other low one, and one against the rule: 1 ms each.
        assert!(low.at_ms <= 141 + 2, "ahead of all that came 140 ms later, it was served at {} ms", low.at_ms);
        assert!(low.at_ms >= 7 * 20, "and not earlier: the ten still went first, at {} ms", low.at_ms);
    }

    #[test]
    fn no_time_per_level_is_first_come_first_served() {
        let mut rig = Rig::new(5);
        for n in 0..50 {
            rig.send(n, "q", 1 + (n % 10) as u8, n);
        }
        let order = rig.run(aging("q", Duration::ZERO));
        let late = order.windows(2).filter(|pair| pair[1].sent_ms + 10 < pair[0].sent_ms).count();
        assert_eq!(late, 0, "each level may be out of turn by one receive");
    }

    #[test]
    fn endless_patience_is_strict_priority() {
        let mut rig = Rig::new(1);
        for n in 0..100 {
            rig.send(0, "q", 1 + (n % 10) as u8, n);
        }
        let order = rig.run(aging("q", Duration::from_secs(1_000_000)));
        // The first ten were taken to learn how old their levels are.
        assert!(order[10..].windows(2).all(|pair| pair[0].level >= pair[1].level));
    }

    proptest! {
        #![proptest_config(crate::seeds::config(256))]

        /// A message is overtaken against the rule at most once by each other level.
        #[test]
        fn out_of_turn_at_most_once_per_level(
            arrivals in prop::collection::vec((0_u64..300, 1_u8..=10, 0_u64..8), 1..300),
            per_level_ms in 0_u64..60,
        ) {
            let mut rig = Rig::new(1);
            for (at, level, conversation) in arrivals {
                rig.send(at, "q", level, u64::from(level) * 10 + conversation);
            }
            let order = rig.run(aging("q", Duration::from_millis(per_level_ms)));
            for (place, message) in order.iter().enumerate() {
                // Heads only: a message behind another of its conversation is not on offer yet.
                let on_offer = message.offered_ms;
                for level in (1..=10).filter(|level| *level != message.level) {
                    let against = order[..place]
                        .iter()
                        .filter(|other| other.level == level && other.at_ms >= on_offer)
                        .filter(|other| rank(other, per_level_ms) > rank(message, per_level_ms))
                        .count();
                    prop_assert!(against <= 1, "level {level} overtook {message:?} {against} times");
                }
            }
        }
    }
}
