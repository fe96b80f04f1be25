//! Ordering: the core and its ordered changes that are not written yet.
//!
//! A caller's verbs run on the caller's own thread, under the one lock around this state; their changes are appended to
//! the batch in the order of the core. So locks of groups are free as soon as a commit is ordered, and the writer does
//! nothing but write. Answers wait for the sync.

use super::batch::{Answer, Batch, PendingRead, Sender, Slot, Slots};
use super::group_handover::Handovers;
use super::known_statement::KnownStatement;
use super::limit::Caller;
use super::parked::Parked;
use super::script::{self, Done, Form, Position, SharedScript};
use super::user_sql::{UserUnit, UserWork};
use crate::catalog::Catalog;
use crate::core::{CLOCK_SET_BACK_US, Core, Effects, GroupKey, Reply, Savepoint, Session, SessionId, Step};
use crate::error::{Error, Result};
use crate::protocol::work::{TakenJob, WorkVerb};
use crate::protocol::{Unit, Verb};
use crate::store::{ActivityBoard, QueueActivity, work_queue_on_board};
use crate::time::Timestamp;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Ticks of the core in one batch, each a bounded piece of work.
const MOST_TICKS: usize = 16;

/// A transaction with the user's own SQL, to be run before its verbs are committed.
pub(super) struct SqlCommit {
    pub(super) session: Session,
    pub(super) work: UserWork,
    pub(super) sender: Sender,
    /// Set if the SQL may be given up when its caller leaves.
    pub(super) caller: Option<Caller>,
}

impl SqlCommit {
    pub(super) fn unit(&self) -> UserUnit<'_> {
        UserUnit { work: &self.work, caller: self.caller.as_ref() }
    }

    /// Whether the statements of this transaction are applied already.
    pub(super) fn is_at(&self, position: Position) -> bool {
        matches!(&self.work, UserWork::Again(script) if script::lock(script).position() == position)
    }
}

/// A statement that an open transaction waits for.
pub(super) struct Rehearsal {
    /// The transaction.
    pub(super) of: SessionId,
    pub(super) script: SharedScript,
    pub(super) form: Form,
    pub(super) statement: KnownStatement,
    pub(super) caller: Caller,
    pub(super) sender: oneshot::Sender<Result<Done>>,
}

/// The result of a transaction's verb that had to wait for a group: the session again, and the verb's reply.
pub(super) type TxSender = oneshot::Sender<(Session, Result<Reply>)>;

/// The core, its ordered changes, and the waiting callers.
pub(super) struct State {
    pub(super) core: Core,
    pub(super) effects: Effects,
    answers: Vec<Answer>,
    reads: Vec<PendingRead>,
    /// Units with a RECEIVE: ordered by the writer, so that none is ordered whose caller has gone.
    deferred: VecDeque<(Unit, Sender)>,
    sql_commits: Vec<SqlCommit>,
    rehearsals: Vec<Rehearsal>,
    pub(super) parked: Parked,
    pub(super) handovers: Handovers,
    /// All numbers ever used are below these, as the tables record.
    marks: (u64, u64, u64),
    names: Names,
    /// The definitions whose queues the board knows.
    on_board: Arc<Catalog>,
    /// The reason why the store takes no more work.
    pub(super) failed: Option<String>,
    /// A process that shares its file opens it again after a full disk.
    pub(super) is_shared: bool,
    /// It has failed because of that.
    pub(super) is_full: bool,
    /// The jobs that other transactions held than those whose commits met it.
    pub(super) held_jobs: Arc<[TakenJob]>,
    pub(super) is_closed: bool,
    /// A close has written its last batch.
    pub(super) is_shut: bool,
    pub(super) is_asleep: bool,
    /// The time at which the sleeping writer will wake by itself.
    pub(super) sleeps_until: Option<Timestamp>,
    /// The latest time of a tick, since the clock was last set back.
    latest: Timestamp,
    /// Batches in a row in which the writer found a single caller.
    lone_batches: u32,
    /// How often a lone caller may still write on its own thread before the writer counts the callers again.
    lone_credit: u32,
}

/// Lookups by name in the catalog, valid for one catalog.
#[derive(Default)]
struct Names {
    catalog: Option<Arc<Catalog>>,
    /// By the name as it was written.
    ids: HashMap<Box<str>, i32>,
    activities: HashMap<i32, Arc<QueueActivity>>,
}

impl Names {
    fn keep_up(&mut self, catalog: &Arc<Catalog>) {
        if !self.catalog.as_ref().is_some_and(|known| Arc::ptr_eq(known, catalog)) {
            *self = Self::default();
            self.catalog = Some(catalog.clone());
        }
    }
}

/// Queues with arrivals, and how many of their groups became ready.
#[derive(Default)]
pub(super) struct Arrivals(SmallVec<[(i32, Arc<QueueActivity>, usize); 2]>);

impl Arrivals {
    /// Wakes the receivers of these queues; not under the lock, because a woken receiver takes it.
    pub(super) fn signal(self) {
        for (_, activity, newly_ready) in self.0 {
            activity.signal(newly_ready);
        }
    }
}

/// The marks run this far ahead, so they are written once per so many numbers.
const BLOCK: u64 = 1 << 16;

/// Spellings of queue names kept at most.
const MOST_NAMES: usize = 4096;

/// Batches with one caller before that caller writes on its own thread.
const LONE_AFTER: u32 = 4;

/// How often it then does so before the writer's thread counts the callers again.
const LONE_FOR: u32 = 15;

impl State {
    pub(super) fn new(core: Core, marks: (u64, u64, u64)) -> Self {
        let on_board = core.catalog().clone();
        Self {
            core,
            effects: Effects::default(),
            answers: Vec::new(),
            reads: Vec::new(),
            deferred: VecDeque::new(),
            sql_commits: Vec::new(),
            rehearsals: Vec::new(),
            parked: Parked::default(),
            handovers: Handovers::default(),
            marks,
            names: Names::default(),
            on_board,
            failed: None,
            is_shared: false,
            is_full: false,
            held_jobs: Arc::default(),
            is_closed: false,
            is_shut: false,
            is_asleep: false,
            sleeps_until: None,
            latest: Timestamp(i64::MIN),
            lone_batches: 0,
            lone_credit: 0,
        }
    }

    /// Whether the writer has anything to do.
    pub(super) fn has_work(&self, now: Timestamp) -> bool {
        !self.rehearsals.is_empty() || self.has_batch_work(now)
    }

    /// The same without the statements of open transactions, which run between two batches.
    pub(super) fn has_batch_work(&self, now: Timestamp) -> bool {
        self.has_batch_orders()
            || !self.effects.arrivals.is_empty()
            || self.core.next_due().is_some_and(|due| due <= now)
            || self.is_clock_set_back(now)
    }

    /// Whether the clock was set back, so that what is due lies far ahead: rates and holds begin again at the new time.
    fn is_clock_set_back(&self, now: Timestamp) -> bool {
        self.latest.0.saturating_sub(now.0) >= CLOCK_SET_BACK_US
    }

    /// Whether anything is ordered, or to be ordered by the writer.
    pub(super) fn has_orders(&self) -> bool {
        !self.rehearsals.is_empty() || self.has_batch_orders()
    }

    fn has_batch_orders(&self) -> bool {
        !(self.answers.is_empty()
            && self.deferred.is_empty()
            && self.sql_commits.is_empty()
            && self.effects.changes.is_empty()
            && self.effects.redeliver.is_empty()
            && !self.effects.catalog_changed)
    }

    /// The ordered work that is not answered yet, as text.
    pub(super) fn describe_orders(&self) -> String {
        format!(
            "{} answers wait for the sync, {} units for the writer, {} commits for their SQL, {} statements for the writer",
            self.answers.len(),
            self.deferred.len(),
            self.sql_commits.len(),
            self.rehearsals.len()
        )
    }

    /// Whether work is due sooner than the sleeping writer will wake, because a caller wrote it by itself.
    pub(super) fn must_wake_writer(&self) -> bool {
        match (self.core.next_due(), self.sleeps_until) {
            (Some(due), Some(known)) => due < known,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Refuses all work after a failed commit or a close.
    pub(super) fn check_open(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Self::refusal(first, self.is_full)),
            None if self.is_closed => Err(Error::closed()),
            None => Ok(()),
        }
    }

    /// Orders a unit now, or lets the writer do it if it receives. An empty one is answered when all that is due is
    /// done.
    pub(super) fn take_unit(&mut self, unit: Unit, sender: Sender, now: Timestamp) {
        // What is due now is ready for a unit that takes it.
        self.tick(now, 1);
        let is_for_writer = match &unit[..] {
            [] => true,
            // If nothing is ready, nothing can be received: the caller gets the empty answer at once.
            [Verb::Receive { queue, .. }] => self.has_ready(queue),
            [Verb::Work(WorkVerb::Take(take))] => self.has_ready_jobs(&take.queue),
            verbs => verbs.iter().any(|verb| matches!(verb, Verb::Receive { .. } | Verb::Work(WorkVerb::Take(_)))),
        };
        if is_for_writer {
            self.deferred.push_back((unit, sender));
        } else {
            self.order_unit(unit, sender, now);
            self.retry_unlocked(now);
        }
    }

    /// Handles due timers and lifetimes, in bounded pieces.
    pub(super) fn tick(&mut self, now: Timestamp, most: usize) {
        let mut is_set_back = self.is_clock_set_back(now);
        self.latest = if is_set_back { now } else { self.latest.max(now) };
        for _ in 0..most {
            if self.core.next_due().is_none_or(|due| due > now) && !is_set_back {
                return;
            }
            is_set_back = false;
            self.core.tick(now, &mut self.effects);
            self.retry_unlocked(now);
        }
    }

    /// Whether a unit reserved for the writer takes jobs.
    pub(super) fn takes_jobs(&self) -> bool {
        let takes = |verb: &Verb| matches!(verb, Verb::Work(WorkVerb::Take(_)));
        self.deferred.iter().any(|(unit, _)| unit.iter().any(takes))
    }

    /// Orders the units reserved for the writer.
    pub(super) fn order_deferred(&mut self, now: Timestamp) {
        self.tick(now, MOST_TICKS);
        while let Some((unit, sender)) = self.deferred.pop_front() {
            // A caller that has gone can be given no message any more.
            if !sender.is_closed() {
                self.order_unit(unit, sender, now);
                self.retry_unlocked(now);
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
                    self.definition_waits(now);
                    self.core.abandon(session, &mut self.effects);
                    return self.park(group, unit, sender);
                }
                Err(refusal) => {
                    // No caller saw the rows it received before, so this rollback does not count as poison.
                    self.core.abandon(session, &mut self.effects);
                    let _ = sender.send(Err(refusal));
                    return;
                }
            }
        }
        self.order_commit(session, slots, sender, now);
    }

    /// Keeps a unit until the group that blocks it is unlocked. It returns its share of the room, so that units waiting
    /// for one group do not stop units that need another. If the parked units already fill the whole room, the unit
    /// goes back to its caller, which orders it again when the group is unlocked.
    fn park(&mut self, group: GroupKey, unit: Unit, mut sender: Sender) {
        sender.room = None;
        if let Err((unit, sender)) = self.parked.unit(group, unit, sender) {
            let unlocked = self.parked.caller(group);
            let _ = sender.send(Ok(Slots::from_iter([Slot::Later { unit, unlocked }])));
        }
    }

    /// Commits a session; the answer waits for the sync, unless all its receives were empty.
    pub(super) fn order_commit(&mut self, session: Session, slots: Slots, sender: Sender, now: Timestamp) {
        let is_empty = |slot: &Slot| match slot {
            Slot::Rows { taken, .. } => taken.is_empty(),
            Slot::Jobs { taken, .. } => taken.is_empty(),
            _ => false,
        };
        if !slots.is_empty() && slots.iter().all(is_empty) {
            self.core.commit(session, now, &mut self.effects);
            let _ = sender.send(Ok(slots));
            return;
        }
        self.push_answer(slots, sender);
        self.core.commit(session, now, &mut self.effects);
    }

    /// Rolls a session back; its changes are written with the next batch.
    pub(super) fn order_rollback(&mut self, session: Session, now: Timestamp) {
        self.core.rollback(session, now, &mut self.effects);
        self.retry_unlocked(now);
    }

    /// The same for a session that ends without its caller's doing.
    pub(super) fn order_loss(&mut self, session: Session, now: Timestamp) {
        self.core.lose(session, now, &mut self.effects);
        self.retry_unlocked(now);
    }

    /// Rolls back a session that the store refuses because of other transactions, or of which no caller has seen anything: its
    /// messages and jobs are not at fault, so it does not count as a rollback of theirs.
    pub(super) fn give_way(&mut self, session: Session, now: Timestamp) {
        self.core.give_way(session, &mut self.effects);
        self.retry_unlocked(now);
    }

    /// Executes a verb of an open transaction. The taking of a job is written at once.
    pub(super) fn execute(&mut self, session: &mut Session, verb: Verb, now: Timestamp) -> Result<Step> {
        let step = self.core.execute(session, verb, now);
        if let Ok(Step::Blocked(_)) = step {
            self.definition_waits(now);
        }
        self.core.hand_on_work(&mut self.effects);
        step
    }

    /// A verb is blocked: a definition may hold receives back now.
    fn definition_waits(&mut self, now: Timestamp) {
        if let Some(hold_for) = self.core.definition_waits(now, &mut self.effects) {
            let hold_ms = hold_for.as_millis();
            tracing::warn!(hold_ms, "a definition waits for conversations that are busy, and holds receives back");
        }
    }

    /// Undoes what a transaction did since a savepoint.
    pub(super) fn roll_back_to(&mut self, session: &mut Session, savepoint: Savepoint) {
        self.core.rollback_to(session, savepoint, &mut self.effects);
        self.wake_for_units();
    }

    fn wake_for_units(&mut self) {
        let core = &self.core;
        self.parked.wake_for_units(|unit_id| core.is_unit_under_way(unit_id));
    }

    /// Answers after the next sync, with the rows read just before all later changes.
    pub(super) fn push_answer(&mut self, slots: Slots, sender: Sender) {
        let (at, answer) = (self.effects.changes.len(), self.answers.len());
        for (slot, _) in
            slots.iter().enumerate().filter(|(_, slot)| matches!(slot, Slot::Rows { .. } | Slot::Jobs { .. }))
        {
            self.reads.push(PendingRead { at, answer, slot });
        }
        self.answers.push(Answer { sender, slots, is_in_transaction: false });
    }

    /// The same for rows that an open transaction has received.
    pub(super) fn push_read(&mut self, slots: Slots, sender: Sender) {
        self.push_answer(slots, sender);
        if let Some(answer) = self.answers.last_mut() {
            answer.is_in_transaction = true;
        }
    }

    /// Adds a commit with SQL; the writer runs the SQL first.
    pub(super) fn push_sql_commit(&mut self, commit: SqlCommit) {
        self.sql_commits.push(commit);
    }

    /// Adds a statement of an open transaction; the writer runs it between two batches.
    pub(super) fn push_rehearsal(&mut self, rehearsal: Rehearsal) {
        self.rehearsals.push(rehearsal);
    }

    pub(super) fn has_rehearsals(&self) -> bool {
        !self.rehearsals.is_empty()
    }

    pub(super) fn take_rehearsals(&mut self) -> Vec<Rehearsal> {
        std::mem::take(&mut self.rehearsals)
    }

    /// Commits with SQL that did not run in this batch run in the next one, before all that came later.
    pub(super) fn return_sql_commits(&mut self, commits: impl IntoIterator<Item = SqlCommit>) {
        self.sql_commits.splice(..0, commits);
    }

    /// Whether a store that closes has to write one more batch: commits whose SQL did not run in the last one, or what its callers
    /// have left behind.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.sql_commits.is_empty() || !self.effects.changes.is_empty()
    }

    pub(super) fn take_sql_commits(&mut self) -> Vec<SqlCommit> {
        std::mem::take(&mut self.sql_commits)
    }

    /// The form of a reply until it is answered.
    pub(super) fn slot(&self, reply: Reply) -> Slot {
        match reply {
            Reply::Outcome(outcome) => Slot::Outcome(outcome),
            Reply::Jobs(taken) => Slot::Jobs { taken, rows: Vec::new() },
            Reply::Rows(taken) => Slot::Rows { taken, rows: Vec::new(), catalog: self.core.catalog().clone() },
        }
    }

    /// Retries the units and verbs whose group was unlocked, in the order they came.
    pub(super) fn retry_unlocked(&mut self, now: Timestamp) {
        self.wake_for_units();
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
                super::parked::Waiter::Caller { unlocked } => {
                    let _ = unlocked.send(());
                    false
                }
                super::parked::Waiter::Unit { unit, sender } => {
                    if sender.is_closed() {
                        continue;
                    }
                    let before = self.parked.waiting_for(group);
                    self.order_unit(unit, sender, now);
                    // The unit was parked again, at the end of the line: the group has another holder now, so it goes back to the front.
                    let is_parked_again = self.parked.waiting_for(group) > before;
                    if is_parked_again {
                        self.parked.last_becomes_first(group);
                    }
                    is_parked_again
                }
                super::parked::Waiter::Tx { id, mut session, verb, sender } => {
                    self.core.stop_waiting(&session);
                    match self.execute(&mut session, verb.clone(), now) {
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

    /// Hands all ordered changes to the writer; `batch` comes back with its allocations from the batch before.
    pub(super) fn take_batch(&mut self, batch: &mut Batch) {
        std::mem::swap(&mut self.effects.changes, &mut batch.changes);
        std::mem::swap(&mut self.answers, &mut batch.answers);
        std::mem::swap(&mut self.reads, &mut batch.reads);
        let counters = self.core.counters();
        batch.ordered_below = counters.0;
        if let Some(marks) = marks_above(counters, self.marks) {
            self.marks = marks;
            batch.marks = Some(marks);
        }
        batch.unchecked.append(&mut self.effects.unchecked);
        self.effects.quick_checks = 0;
        if std::mem::take(&mut self.effects.catalog_changed) {
            batch.catalog = Some(self.core.catalog().clone());
        }
    }

    /// Takes the pending signals, and publishes the depths of those queues on the board: here, under the lock, so that
    /// an older depth never comes after a newer one.
    pub(super) fn take_arrivals(&mut self, board: &ActivityBoard) -> Arrivals {
        self.forget_dropped_queues(board);
        let mut taken = Arrivals::default();
        if self.effects.arrivals.is_empty() {
            return taken;
        }
        let mut arrivals = std::mem::take(&mut self.effects.arrivals);
        for arrival in arrivals.drain(..) {
            if let Some((.., newly_ready)) = taken.0.iter_mut().find(|(id, ..)| *id == arrival.queue_id) {
                *newly_ready += arrival.newly_ready;
            } else if let Some(activity) = self.activity(arrival.queue_id, board) {
                taken.0.push((arrival.queue_id, activity, arrival.newly_ready));
            }
        }
        for (queue_id, activity, _) in &taken.0 {
            let depth = self.core.depth(*queue_id);
            // The take of the last job wakes no reader, but other processes are sent the depth 0: else their monitors go on to start readers
            // that find nothing.
            if depth.ready_groups == 0 && activity.facts().ready_groups > 0 {
                activity.set_depth_for_monitors(depth.ready_groups, depth.unread);
            } else {
                activity.set_depth(depth.ready_groups, depth.unread);
            }
        }
        // A job that was taken is news for no reader: those of one type would all wake at each take.
        let work_queues = &self.core.catalog().work_queues;
        taken.0.retain(|(queue_id, _, newly_ready)| *newly_ready > 0 || !work_queues.contains_key(queue_id));
        self.effects.arrivals = arrivals;
        taken
    }

    /// Removes the depths of dropped queues from the board, so that a new queue of the same name does not begin with them.
    fn forget_dropped_queues(&mut self, board: &ActivityBoard) {
        let catalog = self.core.catalog();
        if Arc::ptr_eq(&self.on_board, catalog) {
            return;
        }
        let before = std::mem::replace(&mut self.on_board, catalog.clone());
        for dropped in before.queues.values().filter(|queue| !catalog.queues.contains_key(&queue.id)) {
            match catalog.queue(&dropped.name) {
                Some(queue) => {
                    let depth = self.core.depth(queue.id);
                    board.queue(&queue.name).set_depth(depth.ready_groups, depth.unread);
                }
                None => board.forget(&dropped.name),
            }
        }
        for dropped in before.work_queues.values().filter(|queue| !catalog.work_queues.contains_key(&queue.id)) {
            let depth = catalog.work_queue(&dropped.name).map(|queue| self.core.depth(queue.id)).unwrap_or_default();
            board.queue(&work_queue_on_board(&dropped.name)).set_depth(depth.ready_groups, depth.unread);
        }
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

    /// Whether any group of the queue can be received; a queue that does not exist has none.
    fn has_ready(&mut self, queue: &str) -> bool {
        self.queue_id(queue).is_some_and(|queue_id| self.core.depth(queue_id).ready_groups > 0)
    }

    /// The same of a work queue.
    fn has_ready_jobs(&self, queue: &str) -> bool {
        self.core.catalog().work_queue(queue).is_some_and(|queue| self.core.depth(queue.id).ready_groups > 0)
    }

    fn queue_id(&mut self, name: &str) -> Option<i32> {
        self.names.keep_up(self.core.catalog());
        if let Some(known) = self.names.ids.get(name) {
            return Some(*known);
        }
        let queue_id = self.core.catalog().queue(name)?.id;
        // A name has very many spellings.
        if self.names.ids.len() >= MOST_NAMES {
            self.names.ids.clear();
        }
        self.names.ids.insert(name.into(), queue_id);
        Some(queue_id)
    }

    fn activity(&mut self, queue_id: i32, board: &ActivityBoard) -> Option<Arc<QueueActivity>> {
        self.names.keep_up(self.core.catalog());
        if let Some(known) = self.names.activities.get(&queue_id) {
            return Some(known.clone());
        }
        let catalog = self.core.catalog();
        let activity = match catalog.queues.get(&queue_id) {
            Some(queue) => board.queue(&queue.name),
            None => board.queue(&work_queue_on_board(&catalog.work_queues.get(&queue_id)?.name)),
        };
        self.names.activities.insert(queue_id, activity.clone());
        Some(activity)
    }

    /// Publishes a queue's depth after a transaction took or released a group, with no arrival to signal.
    pub(super) fn publish_depth(&mut self, queue: &str, board: &ActivityBoard) {
        if let Some(queue_id) = self.queue_id(queue) {
            self.publish_depth_of(queue_id, board);
        }
    }

    /// Publishes the depth of a queue or of a work queue.
    pub(super) fn publish_depth_of(&mut self, queue_id: i32, board: &ActivityBoard) {
        let depth = self.core.depth(queue_id);
        if let Some(activity) = self.activity(queue_id, board) {
            activity.set_depth(depth.ready_groups, depth.unread);
        }
    }

    /// Whether the caller of the unit just ordered may write it on its own thread.
    pub(super) fn may_write_itself(&mut self, batches_are_short: bool) -> bool {
        // A statement of the user may take any time, or not end: its caller's thread may be the one that drives the
        // runtime.
        if self.lone_credit == 0
            || !batches_are_short
            || !self.sql_commits.is_empty()
            || !self.rehearsals.is_empty()
            || self.answers.len() + self.deferred.len() > 1
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

    /// Fails all pending work after a failed commit, or a failed statement of an open transaction, so that no caller waits for ever.
    pub(super) fn fail(&mut self, first: &Error, transaction: Option<SessionId>) {
        if self.failed.is_none() {
            self.is_full = self.is_shared && super::failure::is_of_full_disk(first);
            if self.is_full {
                // Not those that the failed batch was to finish: one of them may have filled the disk.
                self.held_jobs = self.core.held_jobs(&self.effects.changes, transaction).into();
            }
            self.failed = Some(first.to_string());
        }
        let is_full = self.is_full;
        self.forget(|| Self::refusal(&first.to_string(), is_full));
    }

    fn refusal(first: &str, is_full: bool) -> Error {
        if is_full { super::failure::opened_again(first) } else { super::failure::poisoned(first) }
    }

    /// Drops all unwritten work, and sends the error to its callers.
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
        for rehearsal in self.rehearsals.drain(..) {
            let _ = rehearsal.sender.send(Err(why()));
        }
        self.parked.fail(why);
        self.handovers.forget();
        self.reads.clear();
        self.effects = Effects::default();
    }
}

/// The marks to be written next; `None` while all numbers ever used are below the old ones.
fn marks_above(counters: (u64, u64, u64), marks: (u64, u64, u64)) -> Option<(u64, u64, u64)> {
    let is_passed = counters.0 > marks.0 || counters.1 > marks.1 || counters.2 > marks.2;
    is_passed.then_some((counters.0 + BLOCK, counters.1 + BLOCK, counters.2 + BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Limits;
    use crate::id::IdSource;

    #[test]
    fn marks_are_written_when_a_counter_passes_its_own_and_then_lie_a_block_ahead_of_all() {
        assert_eq!(marks_above((7, 8, 9), (7, 8, 9)), None, "the number of a counter is the next one");
        assert_eq!(marks_above((6, 7, 8), (7, 8, 9)), None);
        for counters in [(8, 8, 9), (7, 9, 9), (7, 8, 10), (100, 8, 9), (8, 1, 1), (1, 9, 1), (1, 1, 10)] {
            let ahead = (counters.0 + BLOCK, counters.1 + BLOCK, counters.2 + BLOCK);
            assert_eq!(marks_above(counters, (7, 8, 9)), Some(ahead), "{counters:?}");
            let later = (counters.0 + 1000, counters.1 + 1000, counters.2 + 1000);
            assert_eq!(marks_above(later, ahead), None, "a write of the marks in so many numbers");
        }
    }

    /// A state whose last batches had one caller each.
    fn with_a_lone_caller() -> State {
        let mut state = State::new(Core::new(IdSource::Random, Limits::default()), (1, 1, 1));
        for _ in 0..LONE_AFTER {
            assert!(!state.may_write_itself(true), "it is not known yet that it is alone");
            state.note_callers(1, true);
        }
        state
    }

    #[test]
    fn a_lone_caller_writes_on_its_own_thread_until_the_writers_next_check() {
        let mut state = with_a_lone_caller();
        for _ in 0..LONE_FOR {
            assert!(state.may_write_itself(true));
            state.note_callers(1, false);
        }
        assert!(!state.may_write_itself(true), "the writer counts the callers");
        state.note_callers(1, true);
        assert!(state.may_write_itself(true), "still no other caller");
        state.note_callers(0, true);
        assert!(state.may_write_itself(true), "a batch without callers proves nothing");
        state.note_callers(2, false);
        assert!(!state.may_write_itself(true), "another has come");
        state.note_callers(1, true);
        assert!(!state.may_write_itself(true), "one batch is too few");
    }

    #[test]
    fn a_lone_caller_keeps_off_long_batches_the_users_sql_and_the_orders_of_others() {
        assert!(!with_a_lone_caller().may_write_itself(false));

        let mut state = with_a_lone_caller();
        let (sender, _receiver) = oneshot::channel();
        let session = state.core.begin();
        let work = UserWork::Again(script::Script::shared());
        state.push_sql_commit(SqlCommit { session, work, sender: Sender::new(sender, None), caller: None });
        assert!(!state.may_write_itself(true));

        let mut state = with_a_lone_caller();
        let push = |state: &mut State| {
            let (sender, _) = oneshot::channel();
            state.push_answer(Slots::new(), Sender::new(sender, None));
        };
        push(&mut state);
        assert!(state.may_write_itself(true), "its own order");
        push(&mut state);
        assert!(!state.may_write_itself(true));

        let mut state = with_a_lone_caller();
        push(&mut state);
        let (sender, _) = oneshot::channel();
        state.deferred.push_back((Unit::new(), Sender::new(sender, None)));
        assert!(!state.may_write_itself(true), "one to be answered and one for the writer are two");
    }
}
