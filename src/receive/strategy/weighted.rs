//! Shares of the receives by weight.

use super::drain::check_queue;
use super::{Bound, ClassAttempt, Form, Plan, Served, Strategy, WhenEmpty};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::protocol::ReceiveFrom;
use crate::time::Timestamp;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Shares receives by weight: of any `sum(weights)` receives in a row, a class that has messages throughout is served
/// at least its weight; slots that a class leaves go to the others.
///
/// The slots of a class are spread evenly over the window. Bound: one window of receives.
pub fn weighted<S: Into<Share>>(shares: impl IntoIterator<Item = S>) -> Weighted {
    let shares: Vec<Share> = shares.into_iter().map(Into::into).collect();
    Weighted { credits: vec![0; shares.len()], shares, top: Some(1) }
}

/// One class of [`weighted`]: a queue, or some levels of it, and its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    class: Arc<str>,
    queue: Arc<str>,
    from: ReceiveFrom,
    weight: u32,
}

impl Share {
    /// A whole queue.
    pub fn queue(queue: impl Into<Arc<str>>, weight: u32) -> Self {
        let queue = queue.into();
        Self { class: queue.clone(), queue, from: ReceiveFrom::Any, weight }
    }

    /// Some levels of a queue, under a name of its own.
    pub fn levels(
        class: impl Into<Arc<str>>,
        queue: impl Into<Arc<str>>,
        levels: RangeInclusive<u8>,
        weight: u32,
    ) -> Self {
        let from = ReceiveFrom::Levels { lowest: *levels.start(), highest: *levels.end() };
        Self { class: class.into(), queue: queue.into(), from, weight }
    }
}

impl<Q: Into<Arc<str>>> std::convert::From<(Q, u32)> for Share {
    fn from((queue, weight): (Q, u32)) -> Self {
        Self::queue(queue, weight)
    }
}

/// Shares by weight; made by [`weighted`].
#[derive(Debug, Clone)]
pub struct Weighted {
    shares: Vec<Share>,
    /// Smooth weighted round robin: each step every class earns its weight and the owner of the slot pays the sum. The
    /// owners repeat after `sum(weights)` steps, so every window of that length holds each class exactly its weight.
    credits: Vec<i64>,
    top: Option<u64>,
}

impl Weighted {
    /// Takes at most so many messages per receive; 1 by default. The bound counts receives.
    pub fn top(mut self, top: u64) -> Self {
        self.top = Some(top.max(1));
        self
    }

    fn sum(&self) -> i64 {
        self.shares.iter().map(|share| i64::from(share.weight)).sum()
    }

    /// The classes, the owner of the next slot first.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.shares.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(self.credits[index] + i64::from(self.shares[index].weight)));
        order
    }
}

impl Strategy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn form(&self) -> Form {
        Form::Improved
    }

    fn bound(&self) -> Bound {
        let weights = self.shares.iter().map(|share| (share.class.clone(), u64::from(share.weight))).collect();
        Bound::Window { receives: u64::try_from(self.sum()).unwrap_or(0), weights }
    }

    fn prepare(&mut self, catalog: &Catalog) -> Result<()> {
        if self.shares.is_empty() {
            return Err(Error::out_of_range("the number of weighted classes", 0, "at least 1"));
        }
        for share in &self.shares {
            if share.weight == 0 {
                return Err(Error::out_of_range(
                    &format!("the weight of class '{}'", share.class),
                    0,
                    "1 or more, or the class would never be served",
                ));
            }
            if let ReceiveFrom::Levels { lowest, highest } = share.from {
                super::class::check_levels(lowest, highest)?;
            }
            check_queue(catalog, &share.queue)?;
        }
        Ok(())
    }

    fn plan(&self, _now: Timestamp) -> Plan {
        let attempts = self.order().into_iter().map(|index| {
            let share = &self.shares[index];
            ClassAttempt::new(share.class.clone(), share.queue.clone(), share.from, self.top)
        });
        Plan { attempts: attempts.collect(), when_empty: WhenEmpty::WaitOnAll }
    }

    fn served(&mut self, served: Served) {
        if served.found.is_none() {
            return;
        }
        // The slot is used up whichever class was served in it; else a class could save slots up and then starve the
        // others.
        let owner = self.order()[0];
        let sum = self.sum();
        for (credit, share) in self.credits.iter_mut().zip(&self.shares) {
            *credit += i64::from(share.weight);
        }
        self.credits[owner] -= sum;
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::Rig;
    use super::*;
    use proptest::prelude::{prop, prop_assert, proptest};

    #[test]
    fn a_flood_leaves_low_its_share() {
        let mut rig = Rig::new(1);
        for n in 0..900 {
            rig.send(0, "high", 5, n % 5);
            rig.send(0, "low", 5, 10 + n % 5);
        }
        let order = rig.run(weighted([("high", 8), ("low", 1)]));
        for window in order[..900].windows(9) {
            assert_eq!(window.iter().filter(|taken| taken.queue == "low").count(), 1, "exactly one in nine, anywhere");
        }
    }

    #[test]
    fn an_idle_class_saves_nothing_up() {
        let mut rig = Rig::new(1);
        for n in 0..200 {
            rig.send(0, "low", 5, n);
        }
        for n in 0..100 {
            rig.send(100, "high", 5, 300 + n);
        }
        let order = rig.run(weighted([("high", 3), ("low", 1)]));
        let after: Vec<&str> = order[100..140].iter().map(|taken| &*taken.queue).collect();
        for window in after.windows(4) {
            assert_eq!(window.iter().filter(|queue| **queue == "low").count(), 1, "{after:?}");
        }
    }

    #[test]
    fn a_weight_of_nothing_is_refused() {
        let refused = weighted([("high", 8), ("low", 0)]).prepare(&Catalog::default()).unwrap_err();
        assert_eq!(refused.code(), crate::Code::OBJECT_NOT_FOUND, "the first queue is not there: {refused}");
        let mut none = weighted(Vec::<Share>::new());
        assert_eq!(none.prepare(&Catalog::default()).unwrap_err().code(), crate::Code::OUT_OF_RANGE);
        let mut zero = weighted([("low", 0)]);
        assert_eq!(zero.prepare(&Catalog::default()).unwrap_err().code(), crate::Code::OUT_OF_RANGE);
    }

    proptest! {
        #![proptest_config(dialoq_test_support::seeds::config(256))]

        /// With any weights and arrivals, every window gives each backlogged class its weight.
        #[test]
        fn every_window_keeps_the_bound(
            weights in prop::collection::vec(1_u32..9, 1..5),
            arrivals in prop::collection::vec((0_u64..400, 0_usize..5), 1..400),
        ) {
            let name = |class: usize| format!("q{class}");
            let mut rig = Rig::new(1);
            for (at, class) in arrivals {
                rig.send(at, &name(class % weights.len()), 5, (class % weights.len()) as u64);
            }
            let strategy = weighted(weights.iter().enumerate().map(|(n, weight)| (name(n), *weight)));
            let window = weights.iter().sum::<u32>() as usize;
            let order = rig.run(strategy);
            for taken in order.windows(window) {
                for (class, weight) in weights.iter().enumerate() {
                    // Backlogged throughout: there was a message before each receive of the window.
                    if taken.iter().all(|taken| taken.ready_before.iter().any(|queue| *queue == name(class))) {
                        let count = taken.iter().filter(|taken| taken.queue == name(class)).count();
                        prop_assert!(count >= *weight as usize, "{} of {window} for weight {weight}", count);
                    }
                }
            }
        }
    }
}
