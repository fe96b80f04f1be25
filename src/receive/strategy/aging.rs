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
/// receive of each other level. With `per_level` zero it is first come, first served. If a receive of its level
/// passes a message over because another reader holds it, its group pauses or gives another conversation's messages
/// first, or its transaction has not committed yet, its age counts from that receive. On a server a message is enqueued
/// when it is sent, in the embedded store when its transaction commits. If one gives a later message, such as a DialogTimer or an Error, its age
/// counts from the arrival of that one.
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
    fn order(&self, now: Timestamp) -> [u8; LEVELS] {
        let mut order = [10, 9, 8, 7, 6, 5, 4, 3, 2, 1];
        // Without a limit: the longest period is still strict priority.
        let per_level_us = i128::try_from(self.per_level.as_micros()).unwrap_or(i128::MAX / 16);
        // Stable: among equals the higher level goes first.
        order.sort_by_key(|&level| {
            // A clock that was set back gives new messages earlier moments than those recorded.
            let none_before = self.none_before[usize::from(level) - 1].min(now);
            i128::from(none_before.0) - per_level_us * i128::from(level)
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

    fn plan(&self, now: Timestamp) -> Plan {
        let attempts = self.order(now).into_iter().map(|level| {
            let from = ReceiveFrom::Levels { lowest: level, highest: level };
            ClassAttempt::new(CLASSES[usize::from(level) - 1], self.queue.clone(), from, self.top)
        });
        Plan { attempts: attempts.collect(), when_empty: WhenEmpty::WaitOnAll }
    }

    fn served(&mut self, served: Served) {
        let order = self.order(served.planned_at);
        let empty = served.found.map_or(LEVELS, |found| found.attempt.min(LEVELS));
        for known in &mut self.none_before {
            *known = (*known).min(served.planned_at);
        }
        // Without certainty the old moment stays: such a level is asked first each time, and out of turn once if it has something.
        let empty = if served.is_empty_certain { &order[..empty] } else { &[] };
        for level in empty {
            self.none_before[usize::from(*level) - 1] = served.planned_at;
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
    use super::super::Found;
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

    #[test]
    fn the_longest_period_is_strict_priority() {
        let mut rig = Rig::new(1);
        for n in 0..100 {
            rig.send(0, "q", 1 + (n % 10) as u8, n);
        }
        let order = rig.run(aging("q", Duration::MAX));
        assert!(order.windows(2).all(|pair| pair[0].level >= pair[1].level), "{order:?}");
    }

    /// A message with the moment that the clock showed when it was enqueued, and when it is on offer.
    #[derive(Debug, Clone)]
    struct Late {
        level: u8,
        enqueued: i64,
        /// By a clock that is never set back.
        on_offer: i64,
    }

    /// Receives one message each millisecond; the clock is set back once. Gives the messages in the order served, each with
    /// the time by the steady clock.
    fn serve(strategy: Aging, waiting: Vec<Late>, clock: impl Fn(i64) -> i64) -> Vec<(Late, i64)> {
        serve_unless(strategy, waiting, clock, None)
    }

    /// The same for jobs of a work queue that refuses them at some moments, and where an empty answer may mean that.
    fn serve_unless(
        mut strategy: Aging,
        mut waiting: Vec<Late>,
        clock: impl Fn(i64) -> i64,
        refuses: Option<&dyn Fn(i64) -> bool>,
    ) -> Vec<(Late, i64)> {
        let (mut order, mut steady) = (Vec::new(), 0);
        let is_empty_certain = refuses.is_none();
        while !waiting.is_empty() {
            let planned_at = Timestamp(clock(steady) * 1000);
            let plan = strategy.plan(planned_at);
            let found = plan.attempts.iter().enumerate().find_map(|(attempt, tried)| {
                let ReceiveFrom::Levels { lowest, .. } = tried.receive.from else {
                    unreachable!("aging asks for levels")
                };
                let is_refused = refuses.is_some_and(|refuses| refuses(steady));
                let is_ready = |late: &Late| late.level == lowest && late.on_offer <= steady && !is_refused;
                Some((attempt, waiting.iter().position(is_ready)?))
            });
            let report = found.map(|(attempt, place)| {
                let oldest = Timestamp(waiting[place].enqueued * 1000);
                Found { attempt, messages: 1, level: waiting[place].level, oldest }
            });
            strategy.served(Served { planned_at, found: report, is_empty_certain });
            if let Some((_, place)) = found {
                order.push((waiting.remove(place), steady));
            }
            steady += 1;
        }
        order
    }

    #[test]
    fn a_clock_that_is_set_back_starves_no_level() {
        // Level 10 was empty until the clock was set back by an hour; level 1 always has messages.
        let clock = |steady: i64| if steady < 100 { 3_600_000 + steady } else { steady };
        let mut waiting: Vec<Late> = (0..2000).map(|n| Late { level: 1, enqueued: clock(n), on_offer: n }).collect();
        waiting.push(Late { level: 10, enqueued: clock(500), on_offer: 500 });
        waiting.sort_by_key(|late| late.on_offer);
        let order = serve(aging("q", Duration::from_millis(20)), waiting, clock);
        let (_, at) = order.iter().find(|(late, _)| late.level == 10).unwrap();
        assert!(*at <= 502, "a message of level 10 waited from 500 to {at}");
    }

    proptest! {
        #![proptest_config(dialoq_test_support::seeds::config(256))]

        /// A message that was hidden counts from when it was on offer: as one held by another reader that gave it back, or
        /// a job whose time had not come.
        #[test]
        fn a_message_that_was_hidden_is_overtaken_as_if_it_came_when_it_was_on_offer(
            arrivals in prop::collection::vec((0_i64..400, 1_u8..=10, prop::option::of(0_i64..300)), 1..300),
            per_level_ms in prop::option::of(0_i64..60),
        ) {
            let per_level = per_level_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms.unsigned_abs()));
            let mut waiting: Vec<Late> = arrivals
                .into_iter()
                .map(|(enqueued, level, hidden)| Late { level, enqueued, on_offer: enqueued + hidden.unwrap_or(0) })
                .collect();
            waiting.sort_by_key(|late| late.enqueued);
            let order = serve(aging("q", per_level), waiting, |steady| steady);
            let rank = |moment: i64, level: u8| i128::from(moment) - i128::from(level) * per_level.as_millis() as i128;
            for (place, (message, _)) in order.iter().enumerate() {
                for level in (1..=10).filter(|level| *level != message.level) {
                    let against = order[..place]
                        .iter()
                        .filter(|(other, at)| other.level == level && *at >= message.on_offer)
                        .filter(|(other, _)| rank(other.enqueued, level) > rank(message.on_offer, message.level))
                        .count();
                    prop_assert!(against <= 1, "level {level} overtook {message:?} {against} times");
                }
            }
        }

        /// A pause or a limit that holds jobs back makes none of them younger.
        #[test]
        fn jobs_that_were_refused_keep_their_age(
            arrivals in prop::collection::vec((0_i64..400, 1_u8..=10), 1..300),
            pauses in prop::collection::vec((0_i64..800, 0_i64..300), 0..4),
            per_level_ms in prop::option::of(0_i64..60),
        ) {
            let per_level = per_level_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms.unsigned_abs()));
            let mut waiting: Vec<Late> = arrivals
                .into_iter()
                .map(|(enqueued, level)| Late { level, enqueued, on_offer: enqueued })
                .collect();
            waiting.sort_by_key(|late| late.enqueued);
            let is_paused = |steady: i64| pauses.iter().any(|(from, long)| (*from..from + long).contains(&steady));
            let order = serve_unless(aging("q", per_level), waiting, |steady| steady, Some(&is_paused));
            let rank = |late: &Late| i128::from(late.enqueued) - i128::from(late.level) * per_level.as_millis() as i128;
            for (place, (message, _)) in order.iter().enumerate() {
                for level in (1..=10).filter(|level| *level != message.level) {
                    let against = order[..place]
                        .iter()
                        .filter(|(other, at)| other.level == level && *at >= message.enqueued)
                        .filter(|(other, _)| rank(other) > rank(message))
                        .count();
                    prop_assert!(against <= 1, "level {level} overtook {message:?} {against} times");
                }
            }
        }

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
