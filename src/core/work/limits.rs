//! Limits: how many jobs are taken at a time, and how fast.

use super::job::NO_NAME;
use super::state::{Due, Work};
use crate::core::CLOCK_SET_BACK_US;
use crate::protocol::definition::{WorkNumber, WorkSettings};
use crate::protocol::work::TakeFrom;
use crate::time::Timestamp;

/// A limit of so many jobs in RATE_MS: that many may be taken at once, after that one job each gap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    gap: i64,
    burst: i64,
}

impl Rate {
    /// The rate that a queue has set; `None` is no limit.
    pub(super) fn new(settings: &WorkSettings, jobs: WorkNumber) -> Option<Self> {
        let jobs = settings.limit(jobs)?;
        let rate_us = settings.get(WorkNumber::RateMs) * 1000;
        // Rounded up, so that no time has more jobs than the rate. With a gap rounded down, 3,003 of 3,000 jobs a second went at once.
        let gap = (rate_us + jobs - 1) / jobs;
        Some(Self { gap, burst: (jobs - 1) * gap })
    }

    /// When the next job would be taken if they came evenly. After the burst it is a gap beyond it at most; a later time
    /// was counted before the clock was set back, and lets one job go now.
    fn next(self, next: i64, now: i64) -> i64 {
        let latest = now.saturating_add(self.burst);
        if next > latest.saturating_add(self.gap) { latest } else { next.max(now) }
    }

    /// How many jobs may be taken now.
    pub(super) fn room(self, next: i64, now: i64) -> usize {
        let latest = now.saturating_add(self.burst);
        let next = self.next(next, now);
        if next > latest { 0 } else { usize::try_from((latest - next) / self.gap + 1).unwrap_or(usize::MAX) }
    }

    /// The same `next` after one more job.
    pub(super) fn after(self, next: i64, now: i64) -> i64 {
        self.next(next, now).saturating_add(self.gap)
    }

    /// When one more job may be taken than now.
    pub(super) fn next_time(self, next: i64, now: i64) -> i64 {
        let room = i64::try_from(self.room(next, now)).unwrap_or(i64::MAX);
        self.next(next, now).saturating_add(room.saturating_mul(self.gap)).saturating_sub(self.burst)
    }
}

/// When the next job of a queue, and of a key of it, would be taken if they came evenly.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextTakes {
    queue: i64,
    key: i64,
}

impl Work {
    /// The time of what runs now. If the clock was set back, jobs that are ready stay so, and readers that wait for a rate wait for
    /// the new time.
    pub(in crate::core) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
        if self.latest_ready.saturating_sub(now.0) >= CLOCK_SET_BACK_US {
            self.keep_ready(now);
        }
        if self.latest.0.saturating_sub(now.0) < CLOCK_SET_BACK_US {
            self.latest = self.latest.max(now);
            return;
        }
        self.latest = now;
        let queues: Vec<(i32, WorkSettings)> = self.queues.iter().map(|(id, queue)| (*id, queue.settings)).collect();
        for (queue_id, settings) in queues {
            self.cut_soon(queue_id, now);
            if settings.limit(WorkNumber::KeyRateJobs).is_some() {
                let keys = self.queues.get(&queue_id).map_or(Vec::new(), |queue| queue.keys.keys().copied().collect());
                for key in keys {
                    if self.fill_key(queue_id, key) {
                        self.signal(queue_id);
                    }
                }
            }
            if settings.limit(WorkNumber::RateJobs).is_some() {
                self.signal_rate(queue_id, now);
            }
        }
    }

    /// Wakes as many readers as a queue's rate lets jobs go now.
    pub(super) fn signal_rate(&mut self, queue_id: i32, now: Timestamp) {
        let Some(queue) = self.queues.get(&queue_id) else { return };
        let rate = Rate::new(&queue.settings, WorkNumber::RateJobs);
        let room = rate.map_or(usize::MAX, |rate| rate.room(queue.next_take, now.0));
        self.signal_many(queue_id, room.min(queue.takeable));
        self.wait_for_rate(queue_id, now);
    }

    /// If the rate of a queue is used up, readers sleep until it lets one more job go.
    pub(super) fn wait_for_rate(&mut self, queue_id: i32, now: Timestamp) {
        let Some(queue) = self.queues.get(&queue_id) else { return };
        let rate = Rate::new(&queue.settings, WorkNumber::RateJobs);
        if let Some(rate) = rate.filter(|rate| rate.room(queue.next_take, now.0) == 0) {
            self.due.insert((rate.next_time(queue.next_take, now.0), Due::Rate { queue_id }));
        }
    }

    /// The next job that the limits of its queue and key let go, counted against them; and the rates before that.
    pub(super) fn next_within_limits(
        &mut self,
        queue_id: i32,
        job_type: Option<u32>,
        from: TakeFrom,
        now: Timestamp,
    ) -> Option<(u32, NextTakes)> {
        let queue = self.queues.get(&queue_id)?;
        let settings = queue.settings;
        if settings.limit(WorkNumber::MaxTaken).is_some_and(|most| queue.taken as u64 >= most.unsigned_abs()) {
            return None;
        }
        let rate = Rate::new(&settings, WorkNumber::RateJobs);
        if rate.is_some_and(|rate| rate.room(queue.next_take, now.0) == 0) {
            self.wait_for_rate(queue_id, now);
            return None;
        }
        let place = self.first(queue_id, job_type, from)?.job;
        let key = self.jobs[place].key;
        let queue = self.queues.get_mut(&queue_id)?;
        let before =
            NextTakes { queue: queue.next_take, key: queue.keys.get(&key).map_or(0, |of_key| of_key.next_take) };
        if let Some(rate) = rate {
            queue.next_take = rate.after(queue.next_take, now.0);
        }
        if let Some(rate) = Rate::new(&settings, WorkNumber::KeyRateJobs).filter(|_| key != NO_NAME)
            && let Some(of_key) = queue.keys.get_mut(&key)
        {
            of_key.next_take = rate.after(of_key.next_take, now.0);
        }
        self.wait_for_rate(queue_id, now);
        Some((place, before))
    }

    /// A job that was counted against the rates was not taken after all.
    pub(super) fn uncount(&mut self, place: u32, before: NextTakes) {
        let job = &self.jobs[place];
        let Some(queue) = self.queues.get_mut(&job.queue_id) else { return };
        queue.next_take = before.queue;
        if let Some(of_key) = queue.keys.get_mut(&job.key) {
            of_key.next_take = before.key;
        }
    }
}
