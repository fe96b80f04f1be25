//! A transaction: its locks, its verbs so far, and its view of the broker.
//!
//! A session's verbs are logged, not applied: the log is applied when it commits. Until then an [`Overlay`] per
//! endpoint holds the session's own view. Only the lock holder of an endpoint's group changes the endpoint, while
//! arrivals may still be added to it; so a log that was checked when it was written can be applied without fail.

use super::endpoint::Endpoint;
use super::queuing_orders::Position;
use super::work::WorkOp;
use crate::catalog::Catalog;
use crate::catalog::body::Verdict;
use crate::id::{DeadLetterId, MessageId};
use crate::protocol::{Body, EndForm};
use crate::time::Timestamp;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// An open transaction of the core. Hand it back to [`Core::commit`](super::Core::commit) or
/// [`Core::rollback`](super::Core::rollback); its locks stay until then.
#[derive(Debug)]
pub struct Session {
    pub(super) id: u32,
    /// It may stay open while other sessions work.
    pub(super) is_transaction: bool,
    pub(super) locks: SmallVec<[u32; 4]>,
    pub(super) log: Vec<Op>,
    pub(super) overlays: HashMap<u32, Overlay>,
    /// The conversations it moved, by the group each is in now.
    pub(super) moved: BTreeSet<(u32, u32)>,
    /// The endpoints whose timers wait for its end, also if a savepoint undid its change of them, with their ids.
    pub(super) held_timers: SmallVec<[(u32, u64); 2]>,
    /// Queues from which rows were received, also if a savepoint returned them: a full rollback counts for these. Each with the number of
    /// the last loss before.
    pub(super) received_queues: SmallVec<[(i32, u64); 2]>,
    /// Groups from which rows were received, by the same rule.
    pub(super) received_groups: BTreeSet<u32>,
    /// The groups that have the first message of each RECEIVE again after a rollback, with that message.
    pub(super) received_from: BTreeMap<u32, FirstReceived>,
    /// Why it is rolled back, if its caller said so.
    pub(super) reason: Option<Arc<str>>,
}

/// The name of an open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionId(pub(super) u32);

/// The first message that a session received of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstReceived {
    pub(super) endpoint: u32,
    pub(super) queuing_order: u64,
}

/// A position in a session's log to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint(pub(super) usize);

/// One thing a session did.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Unit {
        unit_id: Uuid,
    },
    Begin {
        endpoint: u32,
    },
    Send {
        endpoint: u32,
        message_type_id: i32,
        body: Body,
        message_id: MessageId,
        trace: Option<Arc<str>>,
        verdict: Option<Arc<Verdict>>,
        /// Whether the queue kept a copy when it was sent. A change of RETENTION before the commit is for later messages, as on servers.
        retains: bool,
    },
    Take {
        endpoint: u32,
        rows: u32,
        /// Whether the queue kept what was received at that time.
        retains: bool,
        system: SmallVec<[u64; 2]>,
        /// How many of `system`, at its end, are redriven messages.
        redriven: u32,
        /// Where the session's next RECEIVE begins.
        after: Position,
    },
    /// With the endpoint's id: an ended endpoint may be reclaimed meanwhile, and its place reused.
    End {
        endpoint: u32,
        endpoint_id: u64,
        form: EndForm,
    },
    Timer {
        endpoint: u32,
        /// `None` takes the timer back.
        due: Option<Timestamp>,
    },
    Move {
        endpoint: u32,
        group: u32,
    },
    Reprioritise {
        endpoint: u32,
        level: u8,
    },
    Release {
        group: u32,
    },
    Redrive {
        letter: DeadLetterId,
    },
    Purge {
        letter: DeadLetterId,
    },
    Post {
        queue_id: i32,
    },
    Define {
        catalog: Arc<Catalog>,
        applied: Vec<crate::catalog::apply::Applied>,
    },
    Work(WorkOp),
}

/// A session's view of an endpoint beyond what is committed.
#[derive(Debug, Default, Clone)]
pub(super) struct Overlay {
    /// Sequenced rows taken from the front.
    pub(super) taken: Position,
    /// Timers and Errors taken, by their order.
    pub(super) taken_system: SmallVec<[u64; 2]>,
    /// Redriven messages taken from the front.
    pub(super) taken_redriven: u32,
    /// Whether it sent.
    pub(super) has_sent: bool,
    /// The endpoint_id of the endpoint that the session ended, in whatever form.
    pub(super) ended: Option<u64>,
    /// The group it was moved to.
    pub(super) group: Option<u32>,
}

impl Overlay {
    /// How many rows of the endpoint it has taken.
    pub(super) fn taken_rows(&self) -> u64 {
        u64::from(self.taken.rows) + u64::from(self.taken_redriven) + self.taken_system.len() as u64
    }
}

impl Session {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            is_transaction: false,
            locks: SmallVec::new(),
            log: Vec::new(),
            overlays: HashMap::new(),
            moved: BTreeSet::new(),
            held_timers: SmallVec::new(),
            received_queues: SmallVec::new(),
            received_groups: BTreeSet::new(),
            received_from: BTreeMap::new(),
            reason: None,
        }
    }

    /// Its name as long as it is open.
    pub fn id(&self) -> SessionId {
        SessionId(self.id)
    }

    /// Says why it will be rolled back.
    pub fn set_reason(&mut self, reason: Option<Arc<str>>) {
        self.reason = reason;
    }

    pub(super) fn overlay(&self, endpoint: u32) -> Option<&Overlay> {
        if self.overlays.is_empty() { None } else { self.overlays.get(&endpoint) }
    }

    /// Whether this session has ended the endpoint. After END WITH CLEANUP of a closed endpoint a timer may remove that
    /// endpoint first, and another endpoint may get its place, so the id decides.
    pub(super) fn has_ended(&self, place: u32, endpoint: &Endpoint) -> bool {
        self.overlay(place).is_some_and(|overlay| overlay.ended == Some(endpoint.endpoint_id))
    }

    /// The group an endpoint is in, as this session sees it.
    pub(super) fn group_of(&self, place: u32, endpoint: &Endpoint) -> u32 {
        self.overlay(place).and_then(|overlay| overlay.group).unwrap_or(endpoint.group)
    }

    /// The conversations that the session has moved into a group.
    pub(super) fn moved_into(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        self.moved.range((group, 0)..=(group, u32::MAX)).map(|(_, place)| *place)
    }

    /// Logs an operation and applies it to the session's own view.
    pub(super) fn record(&mut self, op: Op) {
        show(&mut self.overlays, &mut self.moved, &op);
        self.log.push(op);
    }

    /// Removes all verbs after the savepoint and returns them, oldest first.
    pub(super) fn cut(&mut self, savepoint: Savepoint) -> Vec<Op> {
        let cut = self.log.split_off(savepoint.0.min(self.log.len()));
        self.overlays.clear();
        self.moved.clear();
        for op in &self.log {
            show(&mut self.overlays, &mut self.moved, op);
        }
        cut
    }
}

fn show(overlays: &mut HashMap<u32, Overlay>, moved: &mut BTreeSet<(u32, u32)>, op: &Op) {
    match op {
        Op::Send { endpoint, .. } => overlays.entry(*endpoint).or_default().has_sent = true,
        Op::Take { endpoint, system, redriven, after, .. } => {
            let overlay = overlays.entry(*endpoint).or_default();
            overlay.taken = *after;
            overlay.taken_system.extend_from_slice(&system[..system.len() - *redriven as usize]);
            overlay.taken_redriven += redriven;
        }
        Op::End { endpoint, endpoint_id, .. } => overlays.entry(*endpoint).or_default().ended = Some(*endpoint_id),
        Op::Move { endpoint, group } => {
            if let Some(before) = overlays.entry(*endpoint).or_default().group.replace(*group) {
                moved.remove(&(before, *endpoint));
            }
            moved.insert((*group, *endpoint));
        }
        // The place may have been that of an endpoint which this session has ended.
        Op::Begin { endpoint } => {
            if let Some(group) = overlays.remove(endpoint).and_then(|overlay| overlay.group) {
                moved.remove(&(group, *endpoint));
            }
        }
        Op::Timer { .. }
        | Op::Reprioritise { .. }
        | Op::Release { .. }
        | Op::Redrive { .. }
        | Op::Purge { .. }
        | Op::Post { .. }
        | Op::Define { .. }
        | Op::Unit { .. }
        | Op::Work(_) => {}
    }
}
