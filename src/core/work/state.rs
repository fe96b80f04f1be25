//! The jobs of all work queues, and the indexes that find them.

use super::change::WorkChange;
use super::job::{Job, NO_NAME};
use super::limits::Rate;
use super::ready::{KeyState, Ready};
use super::schedule::ScheduleState;
use super::unique::UniqueJobs;
use crate::catalog::Catalog;
use crate::core::change::Change;
use crate::core::effects::{Arrival, Effects};
use crate::core::slab::Slab;
use crate::core::state::Names;
use crate::protocol::definition::{WorkNumber, WorkSettings};
use crate::protocol::work::JobState;
use crate::time::Timestamp;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// The marks run this far ahead, and are written again when half of it is used. A push in a transaction is answered before anything is
/// written, so the mark above its number must be there long before: after a crash another job got the number of a push whose commit had
/// no answer. Half a block is half a million pushes in the time of one sync.
const BLOCK: u64 = 1 << 20;

/// All jobs that are not finished.
#[derive(Debug, Default)]
pub(in crate::core) struct Work {
    pub(super) jobs: Slab<Job>,
    pub(super) places: HashMap<u64, u32>,
    pub(super) queues: HashMap<i32, WorkQueueState>,
    pub(super) types: Names,
    pub(super) keys: Names,
    pub(super) unique: UniqueJobs,
    pub(super) schedules: HashMap<i32, ScheduleState>,
    /// What falls due, by its time: scheduled jobs and leases by job id, then the end of a unique name or of a rate's
    /// pause.
    pub(super) due: BTreeSet<(i64, Due)>,
    next_job_id: u64,
    next_token: u64,
    /// All numbers ever used are below these, as the tables record.
    marks: (u64, u64),
    /// The time of the verb that runs.
    pub(super) now: Timestamp,
    /// The latest time of a verb, since the clock was last set back: callers come in some disorder.
    pub(super) latest: Timestamp,
    /// The latest time of a scheduled job that has become ready, in microseconds. Rows of times up to it may say that a job is
    /// scheduled which is ready.
    pub(super) latest_ready: i64,
    /// The effects since they were last handed on.
    pub(super) effects: Effects,
}

/// What falls due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A scheduled job, or a lease.
    Job { id: u64, place: u32 },
    /// A unique name whose window is over.
    Unique { name: u32 },
    /// A queue whose rate lets the next job go.
    Rate { queue_id: i32 },
    /// A key whose rate lets the next job go.
    KeyRate { queue_id: i32, key: u32 },
    /// A history that is to be cut.
    History { queue_id: i32 },
    /// A work schedule that fires.
    Schedule { schedule_id: i32 },
}

/// A work queue in memory.
#[derive(Debug)]
pub(super) struct WorkQueueState {
    pub(super) settings: WorkSettings,
    pub(super) ready: Ready,
    pub(super) keys: HashMap<u32, KeyState>,
    /// How many jobs readers may take together, but for the limits of the queue itself.
    pub(super) takeable: usize,
    pub(super) taken: usize,
    /// When the next job may be taken under RATE_JOBS, in microseconds.
    pub(super) next_take: i64,
    /// Jobs finished since the history was last cut.
    pub(super) finished: u32,
    /// When the history is cut next, in microseconds; `None` if nothing is to be cut.
    pub(super) cut_at: Option<i64>,
    /// The last number in the history.
    pub(super) finish_number: u64,
    /// When the last job finished, in microseconds.
    pub(super) last_finished: i64,
}

impl WorkQueueState {
    pub(super) fn new(settings: WorkSettings) -> Self {
        Self {
            settings,
            ready: Ready::default(),
            keys: HashMap::new(),
            takeable: 0,
            taken: 0,
            next_take: 0,
            finished: 0,
            cut_at: None,
            finish_number: 0,
            last_finished: 0,
        }
    }
}

impl Work {
    pub(in crate::core) fn new(catalog: &Catalog) -> Self {
        let queues = catalog.work_queues.values().map(|queue| (queue.id, WorkQueueState::new(queue.settings)));
        Self { queues: queues.collect(), next_job_id: 1, next_token: 1, marks: (1, 1), ..Self::default() }
    }

    /// A number for a pushed job.
    pub(super) fn take_job_id(&mut self) -> u64 {
        self.next_job_id += 1;
        self.keep_marks();
        self.next_job_id - 1
    }

    /// A number for the taking of a job.
    pub(super) fn take_token(&mut self) -> u64 {
        self.next_token += 1;
        self.keep_marks();
        self.next_token - 1
    }

    /// Goes on with numbers not below these.
    pub(super) fn continue_from(&mut self, next_job_id: u64, next_token: u64) {
        self.next_job_id = self.next_job_id.max(next_job_id);
        self.next_token = self.next_token.max(next_token);
        self.marks = (self.next_job_id, self.next_token);
    }

    /// The row of the marks as they are when a store is closed: the next opening goes on without a gap.
    pub(super) fn exact_marks(&mut self) -> Option<Change> {
        let exact = (self.next_job_id, self.next_token);
        let is_ahead = std::mem::replace(&mut self.marks, exact) != exact;
        let (next_job_id, next_token) = exact;
        is_ahead.then_some(Change::Work(WorkChange::SetWorkMarks { next_job_id, next_token }))
    }

    /// Moves the marks on if less than half a block is left. Before a number is given out, once when the store opens and when a work
    /// queue is made.
    pub(in crate::core) fn keep_marks(&mut self) {
        if self.next_job_id + BLOCK / 2 > self.marks.0 || self.next_token + BLOCK / 2 > self.marks.1 {
            self.marks = (self.next_job_id + BLOCK, self.next_token + BLOCK);
            let (next_job_id, next_token) = self.marks;
            self.write(WorkChange::SetWorkMarks { next_job_id, next_token });
        }
    }

    /// Enters a job into the indexes of its state.
    pub(super) fn enter(&mut self, place: u32) {
        let job = &self.jobs[place];
        let (queue_id, is_free, at, id) = (job.queue_id, job.session == 0, job.at, job.id);
        let is_more = match job.state {
            JobState::Ready if is_free => self.offer(place),
            JobState::Scheduled => {
                if is_free {
                    self.due.insert((at, Due::Job { id, place }));
                }
                self.count_in_key(place, true)
            }
            JobState::Taken => {
                if is_free && at != i64::MAX {
                    self.due.insert((at, Due::Job { id, place }));
                }
                if let Some(queue) = self.queues.get_mut(&queue_id) {
                    queue.taken += 1;
                }
                self.count_in_key(place, true)
            }
            JobState::Ready => self.count_in_key(place, true),
            JobState::Dead => false,
        };
        if is_more {
            self.signal(queue_id);
        }
    }

    /// Takes a job out of the indexes of its state, before the state changes.
    pub(super) fn leave(&mut self, place: u32) {
        let job = &self.jobs[place];
        let (queue_id, is_free, at, id) = (job.queue_id, job.session == 0, job.at, job.id);
        match job.state {
            JobState::Ready => {
                if is_free {
                    self.withdraw(place);
                } else if self.count_in_key(place, false) {
                    self.signal(queue_id);
                }
            }
            JobState::Scheduled | JobState::Taken => {
                self.due.remove(&(at, Due::Job { id, place }));
                let is_taken = job.state == JobState::Taken;
                let mut is_more = self.count_in_key(place, false);
                if is_taken && let Some(queue) = self.queues.get_mut(&queue_id) {
                    queue.taken = queue.taken.saturating_sub(1);
                    is_more |= queue.settings.limit(WorkNumber::MaxTaken).is_some() && !queue.ready.all.is_empty();
                }
                if is_more {
                    self.signal(queue_id);
                }
            }
            JobState::Dead => {}
        }
    }

    /// Changes a job between leaving its indexes and entering those of its new state.
    pub(super) fn change(&mut self, place: u32, change: impl FnOnce(&mut Job)) {
        let mut changed = self.jobs[place].clone();
        change(&mut changed);
        let job = &mut self.jobs[place];
        if (job.state, changed.state) == (JobState::Taken, JobState::Taken) {
            // A heartbeat or a report: only the end of its lease.
            let before = (job.at, Due::Job { id: job.id, place });
            let after = (changed.at, before.1);
            self.due.remove(&before);
            if changed.session == 0 && changed.at != i64::MAX {
                self.due.insert(after);
            }
            self.jobs[place] = changed;
            return;
        }
        self.leave(place);
        self.jobs[place] = changed;
        self.enter(place);
    }

    /// Adds a job to memory.
    pub(super) fn add(&mut self, job: Job) -> u32 {
        let id = job.id;
        let place = self.jobs.insert(job);
        self.places.insert(id, place);
        place
    }

    /// Takes a job out of memory; its row is the caller's work.
    pub(super) fn remove(&mut self, place: u32) {
        self.leave(place);
        let Some(job) = self.jobs.remove(place) else { return };
        self.places.remove(&job.id);
        self.types.release(job.job_type);
        self.keys.release_optional(job.key);
        if job.unique != NO_NAME {
            self.release_name(job.unique);
        }
    }

    /// How many jobs of a work queue may be taken; `None` if it is no work queue.
    pub(in crate::core) fn ready_jobs(&self, queue_id: i32) -> Option<usize> {
        let queue = self.queues.get(&queue_id)?;
        let most = queue
            .settings
            .limit(WorkNumber::MaxTaken)
            .map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(queue.taken));
        // By the latest time: after the end of a rate's pause, a caller that is a moment late must not close the queue again, which no
        // event would open.
        let by_rate = Rate::new(&queue.settings, WorkNumber::RateJobs)
            .map_or(usize::MAX, |rate| rate.room(queue.next_take, self.latest.0));
        Some(if queue.settings.is_enabled { queue.takeable.min(most).min(by_rate) } else { 0 })
    }

    /// Writes a row with the effects of what runs.
    pub(super) fn write(&mut self, change: WorkChange) {
        self.effects.changes.push(Change::Work(change));
    }

    pub(super) fn set_settings(&mut self, queue_id: i32, settings: WorkSettings) {
        if let Some(queue) = self.queues.get_mut(&queue_id) {
            queue.settings = settings;
        }
    }

    /// One more job of the queue may be taken.
    pub(super) fn signal(&mut self, queue_id: i32) {
        self.signal_many(queue_id, 1);
    }

    /// So many more jobs of the queue may be taken.
    pub(super) fn signal_many(&mut self, queue_id: i32, jobs: usize) {
        match self.effects.arrivals.iter_mut().find(|arrival| arrival.queue_id == queue_id) {
            Some(arrival) => arrival.newly_ready += jobs,
            None => self.effects.arrivals.push(Arrival { queue_id, newly_ready: jobs }),
        }
    }
}
