//! Strategy 3: a pool of readers for each queue.

use super::drain::check_queue;
use super::{Bound, Form};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The pause between the launches of two readers that Service Broker's queue monitor keeps.
const CLASSIC_LAUNCH_PAUSE: Duration = Duration::from_secs(5);

/// Independent readers per queue, each pool with its own maximum; the improved form launches readers at once, as many
/// as have work.
///
/// Not a loop that chooses, but a setting for activation: each queue is read by readers of its own, so that the classes
/// never wait for each other, only for processor and disk. Bound: the backlog of the message's own queue: with `n`
/// messages before it, a message waits at most the launch of a reader and then `n + 1` receives with the service of
/// their messages ([`Bound::OwnBacklog`]).
pub fn independent_readers<Q: Into<Arc<str>>>(pools: impl IntoIterator<Item = (Q, u16)>) -> ReaderPools {
    ReaderPools {
        pools: pools.into_iter().map(|(queue, most)| (queue.into(), most)).collect(),
        form: Form::Improved,
        launch_pause: Duration::ZERO,
    }
}

/// Strategy 3 as data; made by [`independent_readers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderPools {
    pools: Vec<(Arc<str>, u16)>,
    form: Form,
    launch_pause: Duration,
}

impl ReaderPools {
    /// The classic form: a queue gets at most one more reader each 5 s.
    pub fn classic(mut self) -> Self {
        self.form = Form::Classic;
        self.launch_pause = CLASSIC_LAUNCH_PAUSE;
        self
    }

    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        "independent_readers"
    }

    /// As first published, or ours.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Each queue and the most readers it gets.
    pub fn pools(&self) -> &[(Arc<str>, u16)] {
        &self.pools
    }

    /// The pause between the launches of two readers; zero is none.
    pub fn launch_pause(&self) -> Duration {
        self.launch_pause
    }

    /// How long a class can be starved under it.
    pub fn bound(&self) -> Bound {
        Bound::OwnBacklog { readers: self.pools.clone(), launch_pause: self.launch_pause }
    }

    /// Checks the queues and the maxima against the definitions.
    pub fn prepare(&self, catalog: &Catalog) -> Result<()> {
        for (queue, most) in &self.pools {
            if *most == 0 {
                return Err(Error::out_of_range(
                    &format!("the most readers of queue '{queue}'"),
                    0,
                    "1 or more, or its messages would wait for ever",
                ));
            }
            check_queue(catalog, queue)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::Rig;
    use super::*;
    use crate::receive::strategy::dual_queue_loop;

    /// One reader of a pool is a loop over one queue.
    fn reader(queue: &str) -> super::super::DualQueueLoop {
        dual_queue_loop(queue, queue).high_top(1)
    }

    #[test]
    fn a_flood_of_high_leaves_the_low_pool_alone() {
        let pools = independent_readers([("high", 1), ("low", 1)]);
        let service_ms = 3;
        let mut finished = Vec::new();
        for (queue, _) in pools.pools() {
            let mut rig = Rig::new(service_ms);
            for n in 0..400 {
                rig.send(n, "high", 5, n % 5);
            }
            for n in 0..20 {
                rig.send(n, "low", 5, 10 + n % 5);
            }
            finished.push(rig.run(reader(queue)));
        }
        assert_eq!(finished[0].len(), 400);
        let low = &finished[1];
        assert_eq!(low.len(), 20);
        for (before, message) in low.iter().enumerate() {
            let wait_ms = message.at_ms - message.sent_ms;
            assert!(wait_ms <= (before as u64 + 1) * service_ms, "{message:?} waited for more than its own queue");
        }
    }

    #[test]
    fn the_forms_differ_by_how_readers_are_launched() {
        let pools = independent_readers([("high", 10), ("low", 1)]);
        assert_eq!((pools.form(), pools.launch_pause()), (Form::Improved, Duration::ZERO));
        let classic = pools.clone().classic();
        assert_eq!((classic.form(), classic.launch_pause()), (Form::Classic, Duration::from_secs(5)));
        assert!(classic.bound().to_string().contains("high 1 to 10 readers, low 1 reader, one more each 5s"));
    }

    #[test]
    fn a_pool_without_readers_is_refused() {
        let refused = independent_readers([("low", 0)]).prepare(&Catalog::default()).unwrap_err();
        assert_eq!(refused.code(), crate::Code::OUT_OF_RANGE);
        assert!(refused.message().contains("'low'"), "{refused}");
    }
}
