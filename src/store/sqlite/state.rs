//! Ordering: the core and everything it has ordered that is not written yet.
//!
//! A caller's verbs run on the caller's own thread, under the one lock that guards this; what they change is appended
//! to the batch in the order in which the core did it. So locks of groups are free as soon as a commit is ordered, and
//! the writer does nothing but write. Answers wait for the sync.

use super::batch::{Answer, Batch, PendingRead, Sender, Slot, Slots, Sounded};
use super::parked::Parked;
use crate::core::{Core, Effects, GroupKey, Reply, Session, Step};
use crate::error::{Error, Result};
use crate::protocol::{Unit, Verb};
use crate::store::{ActivityBoard, QueueActivity, SqlStatement};
use crate::time::Timestamp;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Ticks of the core in one batch, each a bounded piece of work.
const MOST_TICKS: usize = 16;

/// A transaction with the user's own SQL, to be run before its verbs are committed.
pub(super) struct SqlCommit {
    pub(super) session: Session,
    pub(super) sql: Vec<SqlStatement>,
    pub(super) sender: Sender,
}

/// What comes of a verb of a transaction that had to wait for a group: the session again, and what the verb gave.
pub(super) type TxSender = oneshot::Sender<(Session, Result<Reply>)>;

/// The core, what it has ordered, and who waits.
pub(super) struct State {
    pub(super) core: Core,
    pub(super) effects: Effects,
    answers: Vec<Answer>,
    reads: Vec<PendingRead>,
    /// Units with a RECEIVE: ordered by the writer, so that none is ordered whose caller has gone.
    deferred: VecDeque<(Unit, Sender)>,
    sql_commits: Vec<SqlCommit>,
    pub(super) parked: Parked,
    /// At or above these no number was ever given out, as the tables say.
    marks: (u64, u64, u64),
    activities: HashMap<i32, Arc<QueueActivity>>,
    /// Why nothing more is taken.
    pub(super) failed: Option<String>,
    pub(super) is_closed: bool,
    pub(super) is_asleep: bool,
    /// Batches in a row in which the writer found a single caller.
    lone_batches: u32,
    /// How often a lone caller may still write on its own thread before the writer looks again who is there.
    lone_credit: u32,
}

/// How far the marks run ahead: a write of them in so many.
const BLOCK: u64 = 1 << 16;

/// Batches with one caller before that caller writes on its own thread.
const LONE_AFTER: u32 = 4;

/// How often it then does before the writer's thread looks whether others have come.
const LONE_FOR: u32 = 15;

impl State {
    pub(super) fn new(core: Core, marks: (u64, u64, u64)) -> Self {
        Self {
            core,
            effects: Effects::default(),
            answers: Vec::new(),
            reads: Vec::new(),
            deferred: VecDeque::new(),
            sql_commits: Vec::new(),
            parked: Parked::default(),
            marks,
            activities: HashMap::new(),
            failed: None,
            is_closed: false,
            is_asleep: false,
            lone_batches: 0,
            lone_credit: 0,
        }
    }

    /// Whether the writer has anything to do.
    pub(super) fn has_work(&self, now: Timestamp) -> bool {
        !(self.answers.is_empty()
            && self.deferred.is_empty()
            && self.sql_commits.is_empty()
            && self.effects.changes.is_empty()
            && self.effects.redeliver.is_empty()
            && self.effects.arrivals.is_empty()
            && !self.effects.catalog_changed)
            || self.core.next_due().is_some_and(|due| due <= now)
    }

    /// Refuses whatever comes after a failed commit or a close.
    pub(super) fn check_open(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(super::failure::poisoned(first)),
            None if self.is_closed => Err(Error::closed()),
            None => Ok(()),
        }
    }

    /// Orders a unit now, or lets the writer do it if it receives. An empty one is answered when all that is due is done.
    pub(super) fn take_unit(&mut self, unit: Unit, sender: Sender, now: Timestamp) {
        if unit.is_empty() || unit.iter().any(|verb| matches!(verb, Verb::Receive { .. })) {
            self.deferred.push_back((unit, sender));
        } else {
            self.tick(now, 1);
            self.order_unit(unit, sender, now);
            self.settle(now);
        }
    }

    /// Does what is due, in bounded pieces.
    pub(super) fn tick(&mut self, now: Timestamp, most: usize) {
        for _ in 0..most {
            if self.core.next_due().is_none_or(|due| due > now) {
                return;
            }
            self.core.tick(now, &mut self.effects);
            self.settle(now);
        }
    }

    /// Orders what only the writer orders.
    pub(super) fn order_deferred(&mut self, now: Timestamp) {
        self.tick(now, MOST_TICKS);
        while let Some((unit, sender)) = self.deferred.pop_front() {
            // Whoever has gone cannot be given a message any more.
            if !sender.is_closed() {
                self.order_unit(unit, sender, now);
                self.settle(now);
            }
        }
    }

    /// Runs a unit and commits it; parks it if it meets a locked group, refuses it if a verb is refused.
    fn order_unit(&mut self, unit: Unit, sender: Sender, now: Timestamp) {
        let mut session = self.core.begin();
        let mut slots = Slots::new();
        for verb in &unit {
            match self.core.execute(&mut session, verb.clone(), now) {
                Ok(Step::Done(reply)) => slots.push(self.slot(reply)),
                Ok(Step::Blocked(group)) => {
                    self.core.abandon(session, &mut self.effects);
                    self.parked.unit(group, unit, sender);
                    return;
                }
                Err(refusal) => {
                    // Nobody saw what it took before, so this is no rollback that counts as poison.
                    self.core.abandon(session, &mut self.effects);
                    let _ = sender.send(Err(refusal));
                    return;
                }
            }
        }
        self.order_commit(session, slots, sender, now);
    }

    /// Commits a session; the answer waits for the sync.
    pub(super) fn order_commit(&mut self, session: Session, slots: Slots, sender: Sender, now: Timestamp) {
        self.push_answer(slots, sender);
        self.core.commit(session, now, &mut self.effects);
    }

    /// Rolls a session back; what that changes is written with the next batch.
    pub(super) fn order_rollback(&mut self, session: Session, now: Timestamp) {
        self.core.rollback(session, now, &mut self.effects);
        self.settle(now);
    }

    /// Answers after the next sync, with the rows read just before whatever is ordered from now on.
    pub(super) fn push_answer(&mut self, slots: Slots, sender: Sender) {
        let (at, answer) = (self.effects.changes.len(), self.answers.len());
        for (slot, _) in slots.iter().enumerate().filter(|(_, slot)| matches!(slot, Slot::Rows { .. })) {
            self.reads.push(PendingRead { at, answer, slot });
        }
        self.answers.push(Answer { sender, slots });
    }

    /// Adds a commit with SQL; the writer runs the SQL first.
    pub(super) fn push_sql_commit(&mut self, commit: SqlCommit) {
        self.sql_commits.push(commit);
    }

    pub(super) fn take_sql_commits(&mut self) -> Vec<SqlCommit> {
        std::mem::take(&mut self.sql_commits)
    }

    /// What a reply becomes until it is answered.
    pub(super) fn slot(&self, reply: Reply) -> Slot {
        match reply {
            Reply::Outcome(outcome) => Slot::Outcome(outcome),
            Reply::Rows(taken) => Slot::Rows { taken, rows: Vec::new(), catalog: self.core.catalog().clone() },
        }
    }

    /// Lets those try again who waited for a group that was unlocked, in the order they came.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if self.parked.is_empty() {
            self.effects.released.clear();
            return;
        }
        while let Some(group) = self.effects.released.pop() {
            self.retry(group, now);
        }
    }

    fn retry(&mut self, group: GroupKey, now: Timestamp) {
        for _ in 0..self.parked.waiting_for(group) {
            let Some(waiter) = self.parked.next(group) else { return };
            let blocked = match waiter {
                super::parked::Waiter::Unit { unit, sender } => {
                    if sender.is_closed() {
                        continue;
                    }
                    let before = self.parked.waiting_for(group);
                    self.order_unit(unit, sender, now);
                    // Parked again at the end: the group has found another holder, and it keeps its place.
                    let again = self.parked.waiting_for(group) > before;
                    if again {
                        self.parked.last_becomes_first(group);
                    }
                    again
                }
                super::parked::Waiter::Tx { id, mut session, verb, sender } => {
                    self.core.stop_waiting(&session);
                    match self.core.execute(&mut session, verb.clone(), now) {
                        Ok(Step::Blocked(next)) => match self.core.wait(&session, next) {
                            Ok(()) => {
                                self.parked.tx(next, id, session, verb, sender);
                                if next == group {
                                    self.parked.last_becomes_first(group);
                                }
                                next == group
                            }
                            Err(deadlock) => {
                                let _ = sender.send((session, Err(deadlock)));
                                false
                            }
                        },
                        Ok(Step::Done(reply)) => {
                            let _ = sender.send((session, Ok(reply)));
                            false
                        }
                        Err(refusal) => {
                            let _ = sender.send((session, Err(refusal)));
                            false
                        }
                    }
                }
            };
            if blocked {
                return;
            }
        }
    }

    /// Hands everything that is ordered to the writer; `batch` comes back with its room from the batch before.
    pub(super) fn take_batch(&mut self, batch: &mut Batch, board: &ActivityBoard) {
        std::mem::swap(&mut self.effects.changes, &mut batch.changes);
        std::mem::swap(&mut self.answers, &mut batch.answers);
        std::mem::swap(&mut self.reads, &mut batch.reads);
        let counters = self.core.counters();
        batch.ordered_below = counters.0;
        if counters.0 > self.marks.0 || counters.1 > self.marks.1 || counters.2 > self.marks.2 {
            self.marks = (counters.0 + BLOCK, counters.1 + BLOCK, counters.2 + BLOCK);
            batch.marks = Some(self.marks);
        }
        if std::mem::take(&mut self.effects.catalog_changed) {
            self.activities.clear();
            batch.catalog = Some(self.core.catalog().clone());
        }
        for index in 0..self.effects.arrivals.len() {
            let arrival = self.effects.arrivals[index];
            if let Some(sounded) = batch.sounded.iter_mut().find(|sounded| sounded.queue_id == arrival.queue_id) {
                sounded.newly_ready += arrival.newly_ready;
                continue;
            }
            if let Some(activity) = self.activity(arrival.queue_id, board) {
                let depth = self.core.depth(arrival.queue_id);
                let queue_id = arrival.queue_id;
                batch.sounded.push(Sounded { queue_id, activity, newly_ready: arrival.newly_ready, depth });
            }
        }
        self.effects.arrivals.clear();
    }

    /// Takes only the rows ordered so far; answers stay.
    pub(super) fn take_rows(&mut self, batch: &mut Batch) {
        std::mem::swap(&mut self.effects.changes, &mut batch.changes);
        std::mem::swap(&mut self.reads, &mut batch.reads);
    }

    /// The answers that reads ordered so far belong to.
    pub(super) fn answers_mut(&mut self) -> &mut Vec<Answer> {
        &mut self.answers
    }

    fn activity(&mut self, queue_id: i32, board: &ActivityBoard) -> Option<Arc<QueueActivity>> {
        if let Some(known) = self.activities.get(&queue_id) {
            return Some(known.clone());
        }
        let activity = board.queue(&self.core.catalog().queues.get(&queue_id)?.name);
        self.activities.insert(queue_id, activity.clone());
        Some(activity)
    }

    /// Tells how a queue stands after a transaction took or gave back a group, with no arrival to signal.
    pub(super) fn sound(&mut self, queue: &str, board: &ActivityBoard) {
        let Some(queue_id) = self.core.catalog().queue(queue).map(|queue| queue.id) else { return };
        let depth = self.core.depth(queue_id);
        if let Some(activity) = self.activity(queue_id, board) {
            activity.stands(depth.ready_groups, depth.unread);
        }
    }

    /// Whether this caller, who has just ordered something, may write it on its own thread.
    pub(super) fn may_lead(&mut self, sync_is_short: bool) -> bool {
        if self.lone_credit == 0
            || !sync_is_short
            || self.answers.len() + self.deferred.len() + self.sql_commits.len() > 1
        {
            return false;
        }
        self.lone_credit -= 1;
        true
    }

    /// Notes how many callers a batch answered.
    pub(super) fn note_callers(&mut self, callers: usize, by_writer: bool) {
        if callers > 1 {
            (self.lone_batches, self.lone_credit) = (0, 0);
        } else if callers == 1 && by_writer {
            self.lone_batches += 1;
            if self.lone_batches >= LONE_AFTER {
                self.lone_credit = LONE_FOR;
            }
        }
    }

    /// Ends everything after a failed commit: nobody is left waiting.
    pub(super) fn fail(&mut self, first: &Error) {
        self.failed.get_or_insert_with(|| first.to_string());
        self.forget(|| super::failure::poisoned(&first.to_string()));
    }

    /// Drops all that is not written, and tells whoever waits for it.
    pub(super) fn forget(&mut self, why: impl Fn() -> Error) {
        for answer in self.answers.drain(..) {
            let _ = answer.sender.send(Err(why()));
        }
        for (_, sender) in self.deferred.drain(..) {
            let _ = sender.send(Err(why()));
        }
        for commit in self.sql_commits.drain(..) {
            let _ = commit.sender.send(Err(why()));
        }
        self.parked.fail(why);
        self.reads.clear();
        self.effects = Effects::default();
    }
}
