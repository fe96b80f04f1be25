//! The jobs that a take may choose from, in the order of their queue; and which jobs of a key are among them.

use super::job::{Job, NO_NAME};
use super::limits::Rate;
use super::state::{Due, Work, WorkQueueState};
use crate::core::slab::Slab;
use crate::core::state::Names;
use crate::protocol::definition::{WorkNumber, WorkOrder, WorkSettings};
use crate::protocol::work::JobState;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A job's place in the order of its queue; the smallest is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct OrderKey {
    /// 10 minus the level; 0 in a queue that does not look at levels.
    pub(super) rank_from_top: u8,
    /// The id, or minus the id in a LIFO queue.
    pub(super) order: i64,
    pub(super) job: u32,
}

impl OrderKey {
    pub(super) fn new(order: WorkOrder, job: &Job, place: u32) -> Self {
        let id = job.id.cast_signed();
        Self {
            rank_from_top: if order == WorkOrder::Priority { 10 - job.level } else { 0 },
            order: if order == WorkOrder::Lifo { -id } else { id },
            job: place,
        }
    }

    /// Before all jobs of that level.
    pub(super) fn first_of(level: u8) -> Self {
        Self { rank_from_top: 10 - level, order: i64::MIN, job: 0 }
    }
}

/// What a take may ask for of the jobs of one key: a type and a level. In a strict queue nothing, so that the first job of
/// a key holds back the later ones whatever their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LineId {
    job_type: u32,
    rank_from_top: u8,
}

impl LineId {
    fn new(order: WorkOrder, position: OrderKey, job_type: u32) -> Self {
        let job_type = if order == WorkOrder::FifoStrict { NO_NAME } else { job_type };
        Self { job_type, rank_from_top: position.rank_from_top }
    }
}

/// Ready jobs of one key, type and level; in a strict queue also those that an open transaction has cancelled. A rollback brings them back,
/// so they keep their places in the line.
#[derive(Debug, Default)]
struct Line {
    /// The first ones, which may be taken unless they are cancelled.
    offered: BTreeSet<OrderKey>,
    /// The ones behind them.
    behind: BTreeSet<OrderKey>,
    /// How many of the first ones are cancelled.
    kept: usize,
}

impl Line {
    /// Offers its first jobs, whenever they came, as many as there is room for. True if one more is offered.
    fn fill(&mut self, room: usize, cancelled: &BTreeSet<OrderKey>, ready: &mut Ready, jobs: &Slab<Job>) -> bool {
        let mut is_more = false;
        loop {
            let (last, next) = (self.offered.last().copied(), self.behind.first().copied());
            let is_before = last.zip(next).is_some_and(|(last, next)| next < last);
            match (last, next) {
                (Some(last), _) if self.offered.len() > room => {
                    self.offered.remove(&last);
                    self.behind.insert(last);
                    if cancelled.contains(&last) {
                        self.kept -= 1;
                    } else {
                        ready.remove(last, jobs[last.job].job_type);
                    }
                }
                (_, Some(next)) if is_before || self.offered.len() < room => {
                    self.behind.remove(&next);
                    self.offered.insert(next);
                    if cancelled.contains(&next) {
                        self.kept += 1;
                    } else {
                        ready.insert(next, jobs[next.job].job_type);
                        is_more = true;
                    }
                }
                _ => return is_more,
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.offered.is_empty() && self.behind.is_empty()
    }
}

/// The jobs of one key in a queue that limits them.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// Jobs that are taken, and in a strict queue those that wait for their next attempt.
    held: usize,
    /// In a strict queue: those in its line that an open transaction has cancelled.
    cancelled: BTreeSet<OrderKey>,
    /// When the next job may be taken under KEY_RATE_JOBS, in microseconds.
    pub(super) next_take: i64,
    /// How many more may be taken. Each line offers as many: a take of any type or level finds its first jobs.
    room: usize,
    /// Its ready jobs, and how many of them readers may take together.
    ready: usize,
    takeable: usize,
    /// Sorted. Most keys have one.
    lines: Vec<(LineId, Line)>,
}

impl KeyState {
    /// Puts a job into its line; one that is not cancelled is ready.
    fn insert(&mut self, id: LineId, position: OrderKey, is_cancelled: bool) {
        let at = self.lines.binary_search_by_key(&id, |(id, _)| *id).unwrap_or_else(|at| {
            // Most keys never have a second line.
            if self.lines.is_empty() {
                self.lines.reserve_exact(1);
            }
            self.lines.insert(at, (id, Line::default()));
            at
        });
        self.lines[at].1.behind.insert(position);
        if is_cancelled {
            self.cancelled.insert(position);
        } else {
            self.ready += 1;
        }
    }

    fn remove(&mut self, id: LineId, position: OrderKey) {
        let is_cancelled = self.cancelled.remove(&position);
        let Ok(at) = self.lines.binary_search_by_key(&id, |(id, _)| *id) else { return };
        let line = &mut self.lines[at].1;
        let was_offered = line.offered.remove(&position);
        let is_found = was_offered || line.behind.remove(&position);
        match is_cancelled {
            true => line.kept -= usize::from(was_offered),
            false => self.ready -= usize::from(is_found),
        }
        if line.is_empty() {
            self.lines.remove(at);
        }
    }

    /// The places that cancelled jobs keep among the first jobs of the key.
    fn kept(&self) -> usize {
        if self.cancelled.is_empty() {
            return 0;
        }
        self.lines.iter().map(|(_, line)| line.kept).sum()
    }

    /// Where that line is among the lines.
    fn line(&self, id: LineId) -> Option<usize> {
        self.lines.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

/// The jobs of a queue that may be taken next: of a key with a limit more than may be taken together.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) all: BTreeSet<OrderKey>,
    pub(super) by_type: HashMap<u32, BTreeSet<OrderKey>>,
}

impl Ready {
    fn insert(&mut self, position: OrderKey, job_type: u32) {
        self.all.insert(position);
        self.by_type.entry(job_type).or_default().insert(position);
    }

    fn remove(&mut self, position: OrderKey, job_type: u32) -> bool {
        if let Some(jobs) = self.by_type.get_mut(&job_type) {
            jobs.remove(&position);
            if jobs.is_empty() {
                self.by_type.remove(&job_type);
            }
        }
        self.all.remove(&position)
    }
}

/// The most jobs of one key that may be held at a time; `None` if its jobs need not be counted.
pub(super) fn most_of_key(settings: &WorkSettings, key: u32) -> Option<usize> {
    let limit = settings.limit(WorkNumber::MaxTakenPerKey).filter(|_| key != NO_NAME);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if settings.order == WorkOrder::FifoStrict {
        return Some(limit.unwrap_or(1));
    }
    let has_rate = key != NO_NAME && settings.limit(WorkNumber::KeyRateJobs).is_some();
    if has_rate { Some(limit.unwrap_or(usize::MAX)) } else { limit }
}

/// Whether a job occupies one of the places of its key without being one of its ready jobs.
fn occupies(settings: &WorkSettings, job: &Job) -> bool {
    match job.state {
        JobState::Taken => true,
        JobState::Scheduled => settings.order == WorkOrder::FifoStrict && job.is_retry,
        JobState::Ready | JobState::Dead => false,
    }
}

/// Whether a transaction that may be rolled back has cancelled a job that has a place in the line of its key.
fn is_cancelled_in_line(settings: &WorkSettings, job: &Job) -> bool {
    settings.order == WorkOrder::FifoStrict && job.state == JobState::Ready && job.session != 0 && !job.is_uncommitted
}

impl Work {
    /// Offers a job that has become free; true if a take may find one more job now.
    pub(super) fn offer(&mut self, place: u32) -> bool {
        let job = &self.jobs[place];
        debug_assert!(job.is_free(), "{job:?}");
        let (queue_id, key) = (job.queue_id, job.key);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return false };
        let order = queue.settings.order;
        let position = OrderKey::new(order, job, place);
        if most_of_key(&queue.settings, key).is_none() {
            queue.ready.insert(position, job.job_type);
            queue.takeable += 1;
            return true;
        }
        let line = LineId::new(order, position, job.job_type);
        queue.key_state(key, &mut self.keys).insert(line, position, false);
        self.fill_lines(queue_id, key, Some(line))
    }

    /// Takes a job out of those that may be chosen, because it was chosen or has left.
    pub(super) fn withdraw(&mut self, place: u32) {
        let job = &self.jobs[place];
        let (queue_id, key, job_type) = (job.queue_id, job.key, job.job_type);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return };
        let order = queue.settings.order;
        let position = OrderKey::new(order, job, place);
        let was_offered = queue.ready.remove(position, job_type);
        if most_of_key(&queue.settings, key).is_none() {
            queue.takeable -= 1;
        } else if let Some(of_key) = queue.keys.get_mut(&key) {
            let line = LineId::new(order, position, job_type);
            of_key.remove(line, position);
            self.fill_lines(queue_id, key, Some(line));
        }
        if was_offered {
            // No reader is woken: the depth of the queue has changed.
            self.signal_many(queue_id, 0);
        }
    }

    /// Counts a job into its key, or out of it. True if a take may find one more job now.
    pub(super) fn count_in_key(&mut self, place: u32, is_held: bool) -> bool {
        let job = &self.jobs[place];
        let (queue_id, key) = (job.queue_id, job.key);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return false };
        if most_of_key(&queue.settings, key).is_none() {
            return false;
        }
        if is_cancelled_in_line(&queue.settings, job) {
            let order = queue.settings.order;
            let position = OrderKey::new(order, job, place);
            let line = LineId::new(order, position, job.job_type);
            let of_key = queue.key_state(key, &mut self.keys);
            if is_held {
                of_key.insert(line, position, true);
            } else {
                of_key.remove(line, position);
            }
            return self.fill_lines(queue_id, key, Some(line));
        } else if occupies(&queue.settings, job) {
            let of_key = queue.key_state(key, &mut self.keys);
            of_key.held = if is_held { of_key.held + 1 } else { of_key.held.saturating_sub(1) };
        } else {
            return false;
        }
        self.fill_key(queue_id, key)
    }

    /// Lets as many of the first jobs of a key be taken as its limits have room for. True if a take may find one more now.
    pub(super) fn fill_key(&mut self, queue_id: i32, key: u32) -> bool {
        self.fill_lines(queue_id, key, None)
    }

    /// The same if nothing has happened to the ready jobs of other lines than this one.
    fn fill_lines(&mut self, queue_id: i32, key: u32, changed: Option<LineId>) -> bool {
        let now = self.now.0;
        let Some(queue) = self.queues.get_mut(&queue_id) else { return false };
        let settings = queue.settings;
        let most = most_of_key(&settings, key).unwrap_or(usize::MAX);
        let (ready, Some(of_key)) = (&mut queue.ready, queue.keys.get_mut(&key)) else { return false };
        let rate = Rate::new(&settings, WorkNumber::KeyRateJobs).filter(|_| key != NO_NAME);
        let by_rate = rate.map_or(usize::MAX, |rate| rate.room(of_key.next_take, now));
        let room = most.saturating_sub(of_key.held).min(by_rate);
        let mut is_more = false;
        if std::mem::replace(&mut of_key.room, room) != room {
            for (_, line) in &mut of_key.lines {
                is_more |= line.fill(room, &of_key.cancelled, ready, &self.jobs);
            }
        } else if let Some(at) = changed.and_then(|changed| of_key.line(changed)) {
            is_more = of_key.lines[at].1.fill(room, &of_key.cancelled, ready, &self.jobs);
        }
        let takeable = of_key.ready.min(room - of_key.kept());
        queue.takeable = queue.takeable + takeable - std::mem::replace(&mut of_key.takeable, takeable);
        let is_unused = of_key.held == 0 && of_key.ready == 0 && of_key.cancelled.is_empty();
        let has_more = of_key.ready > takeable;
        match rate {
            Some(rate) if of_key.next_take > now && (is_unused || has_more) => {
                self.due.insert((rate.next_time(of_key.next_take, now), Due::KeyRate { queue_id, key }));
            }
            _ if is_unused => {
                queue.keys.remove(&key);
                self.keys.release_optional(key);
            }
            _ => {}
        }
        is_more
    }
}

impl WorkQueueState {
    /// The state of a key; it keeps the key's name.
    fn key_state(&mut self, key: u32, names: &mut Names) -> &mut KeyState {
        self.keys.entry(key).or_insert_with(|| {
            names.hold_optional(key);
            KeyState::default()
        })
    }
}
