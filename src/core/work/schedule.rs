//! Work schedules: jobs that the broker pushes at the times of a cron line.

use super::change::WorkChange;
use super::job::{Job, JobRow, NO_NAME};
use super::state::{Due, Work};
use crate::catalog::{Timetable, WorkSchedule};
use crate::core::state::Core;
use crate::protocol::work::JobState;
use crate::time::Timestamp;

/// A work schedule in memory.
#[derive(Debug)]
pub(super) struct ScheduleState {
    timetable: Timetable,
    /// When it fires next; `None` if it is paused.
    pub(super) next_at: Option<Timestamp>,
    /// The time that it last pushed a job for.
    pub(super) last_at: Option<Timestamp>,
}

impl Work {
    /// Forgets a work schedule.
    pub(in crate::core) fn forget_schedule(&mut self, schedule_id: i32) {
        if let Some(ScheduleState { next_at: Some(at), .. }) = self.schedules.remove(&schedule_id) {
            self.due.remove(&(at.0, Due::Schedule { schedule_id }));
        }
    }

    fn set_schedule(&mut self, schedule_id: i32, schedule: ScheduleState) {
        self.forget_schedule(schedule_id);
        if let Some(at) = schedule.next_at {
            self.due.insert((at.0, Due::Schedule { schedule_id }));
        }
        self.schedules.insert(schedule_id, schedule);
    }
}

impl Core {
    /// A work schedule was created or altered: its next time is counted from now, so that times before now are left out.
    pub(in crate::core) fn work_schedule_altered(&mut self, schedule_id: i32, now: Timestamp) {
        let Some(row) = self.catalog.work_schedules.get(&schedule_id) else { return };
        // Definitions were checked.
        let Ok(timetable) = row.timetable() else { return };
        let next_at = if row.is_enabled { timetable.next(now) } else { None };
        let last_at = self.work.schedules.get(&schedule_id).and_then(|schedule| schedule.last_at);
        self.work.set_schedule(schedule_id, ScheduleState { timetable, next_at, last_at });
        self.work.write(WorkChange::SetScheduleTimes { schedule_id, next_at, last_at: None });
    }

    /// Puts a work schedule back into memory. One whose time zone is known no more does not fire until it is altered.
    pub(super) fn restore_schedule(
        &mut self,
        schedule_id: i32,
        next_at: Option<Timestamp>,
        last_at: Option<Timestamp>,
    ) {
        let Some(row) = self.catalog.work_schedules.get(&schedule_id) else { return };
        if let Ok(timetable) = row.timetable() {
            self.work.set_schedule(schedule_id, ScheduleState { timetable, next_at, last_at });
        }
    }

    /// Pushes the jobs of a schedule whose next time is over, and sets its next time, in one commit.
    pub(super) fn fire_schedule(&mut self, schedule_id: i32, due: Timestamp, now: Timestamp) {
        let Some(row) = self.catalog.work_schedules.get(&schedule_id).cloned() else { return };
        let Some(schedule) = self.work.schedules.get_mut(&schedule_id) else { return };
        let firings = schedule.timetable.firings(due, now, row.missed);
        let next_at = firings.last().and_then(|firing| firing.next);
        schedule.next_at = next_at;
        if let Some(at) = next_at {
            self.work.due.insert((at.0, Due::Schedule { schedule_id }));
        }
        // An ALTER may set it back to a time that it has fired at. A last time that is to come is of a clock that was wrong.
        let fired = schedule.last_at.filter(|last| *last <= now);
        let times = firings.iter().filter_map(|firing| firing.time);
        let times: Vec<_> = times.filter(|time| fired.is_none_or(|fired| *time > fired)).collect();
        let last_at = times.last().copied();
        schedule.last_at = last_at.or(schedule.last_at);
        for time in times {
            self.push_for_schedule(&row, time, now);
        }
        self.work.write(WorkChange::SetScheduleTimes { schedule_id, next_at, last_at });
    }

    fn push_for_schedule(&mut self, row: &WorkSchedule, time: Timestamp, now: Timestamp) {
        let work = &mut self.work;
        let job_id = work.take_job_id();
        let (job_type, key) = (work.types.place(&row.job_type), work.keys.optional(row.key.as_ref()));
        let place = work.add(Job {
            id: job_id,
            token: 0,
            at: 0,
            pushed_at: now.0,
            queue_id: row.queue_id,
            job_type,
            key,
            unique: NO_NAME,
            session: 0,
            attempts: 0,
            level: row.level,
            state: JobState::Ready,
            is_uncommitted: false,
            is_reported: false,
            is_finished: false,
            is_retry: false,
        });
        work.write(WorkChange::InsertJob(Box::new(JobRow {
            job_id,
            queue_id: row.queue_id,
            job_type: row.job_type.clone(),
            key: row.key.clone(),
            level: row.level,
            state: JobState::Ready,
            attempts: 0,
            token: 0,
            at: None,
            pushed_at: now,
            pushed_by: row.writer().into(),
            unique_key: None,
            unique_until: None,
            body: row.body_at(time),
        })));
        work.enter(place);
    }
}
