//! The jobs that a take may choose from, in the order of their queue; and which jobs of a key are among them.

use super::job::{Job, NO_NAME};
use super::limits::Rate;
use super::state::{Due, Work, WorkQueueState};
use crate::core::state::Names;
use crate::protocol::definition::{WorkNumber, WorkOrder, WorkSettings};
use crate::protocol::work::JobState;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A job's place in the order of its queue; the smallest is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct Place {
    /// 10 minus the level; 0 in a queue that does not look at levels.
    pub(super) rank_from_top: u8,
    /// The id, or minus the id in a LIFO queue.
    pub(super) order: i64,
    pub(super) job: u32,
}

impl Place {
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

/// The jobs of one key in a queue that limits them.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// Jobs that are taken, and in a strict queue those that wait for another attempt.
    held: usize,
    /// When the next job may be taken under KEY_RATE_JOBS, in microseconds.
    pub(super) next_take: i64,
    /// Ready jobs that may be taken.
    offered: BTreeSet<Place>,
    /// Ready jobs behind them.
    behind: BTreeSet<Place>,
}

/// The jobs of a queue that may be taken.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) all: BTreeSet<Place>,
    pub(super) by_type: HashMap<u32, BTreeSet<Place>>,
}

impl Ready {
    fn insert(&mut self, place: Place, job_type: u32) {
        self.all.insert(place);
        self.by_type.entry(job_type).or_default().insert(place);
    }

    fn remove(&mut self, place: Place, job_type: u32) -> bool {
        if let Some(jobs) = self.by_type.get_mut(&job_type) {
            jobs.remove(&place);
            if jobs.is_empty() {
                self.by_type.remove(&job_type);
            }
        }
        self.all.remove(&place)
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

/// Whether a job occupies one of the places of its key.
fn occupies(settings: &WorkSettings, job: &Job) -> bool {
    job.state == JobState::Taken
        || settings.order == WorkOrder::FifoStrict && job.state == JobState::Scheduled && job.is_retry
}

impl Work {
    /// Offers a job that has become free; true if one more job of its queue may be taken now.
    pub(super) fn offer(&mut self, place: u32) -> bool {
        let job = &self.jobs[place];
        debug_assert!(job.is_free(), "{job:?}");
        let (queue_id, key) = (job.queue_id, job.key);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return false };
        let position = Place::new(queue.settings.order, job, place);
        if most_of_key(&queue.settings, key).is_none() {
            queue.ready.insert(position, job.job_type);
            return true;
        }
        queue.key_state(key, &mut self.keys).behind.insert(position);
        self.fill_key(queue_id, key)
    }

    /// Takes a job out of those that may be chosen, because it was chosen or has left.
    pub(super) fn withdraw(&mut self, place: u32) {
        let job = &self.jobs[place];
        let (queue_id, key) = (job.queue_id, job.key);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return };
        let position = Place::new(queue.settings.order, job, place);
        if queue.ready.remove(position, job.job_type) {
            // No reader is woken: the depth of the queue has changed.
            self.signal_many(queue_id, 0);
        }
        let Some(queue) = self.queues.get_mut(&queue_id) else { return };
        if let Some(of_key) = queue.keys.get_mut(&key) {
            of_key.offered.remove(&position);
            of_key.behind.remove(&position);
            self.fill_key(queue_id, key);
        }
    }

    /// Counts a job into its key, or out of it. True if one more job may be taken now.
    pub(super) fn count_in_key(&mut self, place: u32, is_held: bool) -> bool {
        let job = &self.jobs[place];
        let (queue_id, key) = (job.queue_id, job.key);
        let Some(queue) = self.queues.get_mut(&queue_id) else { return false };
        if most_of_key(&queue.settings, key).is_none() || !occupies(&queue.settings, job) {
            return false;
        }
        let of_key = queue.key_state(key, &mut self.keys);
        of_key.held = if is_held { of_key.held + 1 } else { of_key.held.saturating_sub(1) };
        self.fill_key(queue_id, key)
    }

    /// Lets as many of the first jobs of a key be taken as its limits have room for. True if one more may be taken now.
    pub(super) fn fill_key(&mut self, queue_id: i32, key: u32) -> bool {
        let now = self.now.0;
        let Some(queue) = self.queues.get_mut(&queue_id) else { return false };
        let settings = queue.settings;
        let most = most_of_key(&settings, key).unwrap_or(usize::MAX);
        let (ready, Some(of_key)) = (&mut queue.ready, queue.keys.get_mut(&key)) else { return false };
        let rate = Rate::new(&settings, WorkNumber::KeyRateJobs).filter(|_| key != NO_NAME);
        let by_rate = rate.map_or(usize::MAX, |rate| rate.room(of_key.next_take, now));
        let room = most.saturating_sub(of_key.held).min(by_rate);
        let mut is_more = false;
        loop {
            let (last, next) = (of_key.offered.last().copied(), of_key.behind.first().copied());
            let is_too_many = of_key.offered.len() > room;
            match (last, next) {
                // The first ones are offered, whenever they came.
                (Some(last), next) if is_too_many || next.is_some_and(|next| next < last) => {
                    of_key.offered.remove(&last);
                    of_key.behind.insert(last);
                    ready.remove(last, self.jobs[last.job].job_type);
                }
                (_, Some(next)) if of_key.offered.len() < room => {
                    of_key.behind.remove(&next);
                    of_key.offered.insert(next);
                    ready.insert(next, self.jobs[next.job].job_type);
                    is_more = true;
                }
                _ => break,
            }
        }
        let is_unused = of_key.held == 0 && of_key.offered.is_empty() && of_key.behind.is_empty();
        match rate {
            Some(rate) if of_key.next_take > now && (is_unused || !of_key.behind.is_empty()) => {
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
