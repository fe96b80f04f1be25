//! Priority strategies: which receive comes next, as pure values.
//!
//! A [`Strategy`] names the next receive attempts, takes their results, and states how long a class can be starved
//! under it ([`Strategy::bound`]). It uses no database: the same value runs on any store
//! ([`Broker::receive_by`](crate::broker::Broker::receive_by)) and in tests under a clock that is counted by hand.
//!
//! | constructor | what it does | bound |
//! |---|---|---|
//! | [`drain_high_then_one_low`] | every high message first, then one low; one queue | none |
//! | [`dual_queue_loop`] | the high queue first, one message of the low queue when it is empty | none |
//! | [`independent_readers`] | a pool of readers for each queue | the class's own backlog |
//! | [`weighted`] | shares: in every window each class with messages gets its weight | a window of receives |
//! | [`aging`] | a message gains one level per period of waiting | an age difference |

mod aging;
mod bound;
mod class;
mod drain;
mod dual;
mod readers;
#[cfg(test)]
mod rig;
mod weighted;

pub use aging::{Aging, aging};
pub use bound::Bound;
pub use class::{HighClass, by_contract, by_levels};
pub use drain::{ClassicDrain, DrainHighThenOneLow, drain_high_then_one_low, drain_one_conversation};
pub use dual::{ClassicDualQueueLoop, DualQueueLoop, dual_queue_loop, dual_queue_loop_classic};
pub use readers::{ReaderPools, independent_readers};
pub use weighted::{Share, Weighted, weighted};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::protocol::ReceiveFrom;
use crate::receive::wait::ReceiveAttempt;
use crate::time::Timestamp;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Decides which receive comes next.
pub trait Strategy: Send {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// As first published, or ours.
    fn form(&self) -> Form;

    /// How long a class can be starved under it.
    fn bound(&self) -> Bound;

    /// Checks its settings against the definitions, once, before the first plan.
    fn prepare(&mut self, catalog: &Catalog) -> Result<()>;

    /// The receive attempts to make now. Changes nothing: the same plan comes again until [`Strategy::served`] is
    /// called.
    fn plan(&self, now: Timestamp) -> Plan;

    /// Takes the result of the last plan.
    fn served(&mut self, served: Served);
}

impl<S: Strategy + ?Sized> Strategy for Box<S> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn form(&self) -> Form {
        (**self).form()
    }

    fn bound(&self) -> Bound {
        (**self).bound()
    }

    fn prepare(&mut self, catalog: &Catalog) -> Result<()> {
        (**self).prepare(catalog)
    }

    fn plan(&self, now: Timestamp) -> Plan {
        (**self).plan(now)
    }

    fn served(&mut self, served: Served) {
        (**self).served(served);
    }
}

/// Whether a strategy is the one first published for Service Broker, with its limits, or ours without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// With the limits of its first publication.
    Classic,
    /// Not in Service Broker.
    Improved,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classic => "classic",
            Self::Improved => "improved",
        })
    }
}

/// The receive attempts to make, in order; the first that finds messages is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// At least one, and not all with a top of 0; a plan without one is refused (60005).
    pub attempts: Vec<ClassAttempt>,
    /// What to do when none of them found messages.
    pub when_empty: WhenEmpty,
}

/// One RECEIVE to try, for a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassAttempt {
    /// The class it serves, by the strategy's name for it.
    pub class: Arc<str>,
    /// The RECEIVE: queue, conversations, number of messages.
    pub receive: ReceiveAttempt,
    /// How long this attempt waits before the next one is made: the TIMEOUT of a WAITFOR.
    pub wait: Duration,
}

impl ClassAttempt {
    /// An attempt that does not wait.
    pub fn new(class: impl Into<Arc<str>>, queue: impl Into<Arc<str>>, from: ReceiveFrom, top: Option<u64>) -> Self {
        let receive = ReceiveAttempt { queue: queue.into(), from, top };
        Self { class: class.into(), receive, wait: Duration::ZERO }
    }

    /// The same attempt, which waits so long for messages before the next one is made.
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// What a driver does when no attempt found messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenEmpty {
    /// Sleep until a message arrives for any of the attempts, then make them in order.
    WaitOnAll,
    /// Request a new plan at once, because an attempt has waited. If none has, it is as [`WhenEmpty::WaitOnAll`].
    Replan,
}

/// The result of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// When the attempts began: the `now` the plan was made for.
    pub planned_at: Timestamp,
    /// The messages received; `None` if no attempt found any.
    pub found: Option<Found>,
    /// An attempt that found nothing says that nothing waited for it. Not so if a queue was off, or a work queue was paused or has limits.
    pub is_empty_certain: bool,
}

/// Messages that an attempt found; all attempts before it found none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The index of the attempt in the plan.
    pub attempt: usize,
    /// How many messages.
    pub messages: u64,
    /// The highest level among them.
    pub level: u8,
    /// When the oldest of them was enqueued.
    pub oldest: Timestamp,
}
