//! Work queues and work schedules by builder.

use super::{Definitions, Level, view};
use crate::protocol::definition::{
    Definition, Missed, TakingTechnique, WorkNumber, WorkOption, WorkOrder, WorkScheduleOptions,
};
use crate::time::whole_ms;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

impl Definitions {
    /// `CREATE WORK QUEUE`; its options are set on the returned view.
    pub fn work_queue(&mut self, name: impl Into<String>) -> WorkQueueDefinition<'_> {
        self.add(Definition::CreateWorkQueue { name: name.into(), options: Vec::new() });
        WorkQueueDefinition(self)
    }

    /// `ALTER WORK QUEUE`; the changes are set on the returned view.
    pub fn alter_work_queue(&mut self, name: impl Into<String>) -> WorkQueueDefinition<'_> {
        self.add(Definition::AlterWorkQueue { name: name.into(), options: Vec::new() });
        WorkQueueDefinition(self)
    }

    /// `DROP WORK QUEUE`
    pub fn drop_work_queue(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropWorkQueue { name: name.into() })
    }

    /// `CREATE WORK SCHEDULE name ON WORK QUEUE queue WITH CRON = cron`: the queue gets a job at each time of the line. Its
    /// other options are set on the returned view.
    pub fn work_schedule(
        &mut self,
        name: impl Into<String>,
        queue: impl Into<String>,
        cron: impl Into<String>,
    ) -> WorkScheduleDefinition<'_> {
        let options = WorkScheduleOptions { cron: Some(cron.into()), ..WorkScheduleOptions::default() };
        self.add(Definition::CreateWorkSchedule { name: name.into(), queue: queue.into(), options });
        WorkScheduleDefinition(self)
    }

    /// `ALTER WORK SCHEDULE`; the changes are set on the returned view.
    pub fn alter_work_schedule(&mut self, name: impl Into<String>) -> WorkScheduleDefinition<'_> {
        self.add(Definition::AlterWorkSchedule { name: name.into(), options: WorkScheduleOptions::default() });
        WorkScheduleDefinition(self)
    }

    /// `DROP WORK SCHEDULE`
    pub fn drop_work_schedule(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(Definition::DropWorkSchedule { name: name.into() })
    }
}

view! {
    /// The work queue just named: its options.
    WorkQueueDefinition
}

impl WorkQueueDefinition<'_> {
    /// An option whose value is a number, by its name in the DDL.
    pub fn number(self, number: WorkNumber, value: i64) -> Self {
        self.option(WorkOption::Number(number, value))
    }

    /// `STATUS = ON | OFF`: whether jobs may be taken.
    pub fn status(self, on: bool) -> Self {
        self.option(WorkOption::Status(on))
    }

    /// `ORDER = ...`: the order of taking.
    pub fn order(self, order: WorkOrder) -> Self {
        self.option(WorkOption::Order(order))
    }

    /// `HISTORY = ON | OFF`: whether finished jobs are kept.
    pub fn history(self, on: bool) -> Self {
        self.option(WorkOption::History(on))
    }

    /// `TAKE_BY = ...`: how takes lock and mark jobs on a server.
    pub fn take_by(self, technique: TakingTechnique) -> Self {
        self.option(WorkOption::TakeBy(technique))
    }

    /// `MAX_ATTEMPTS = n`: how often a job is handed out before it is dead.
    pub fn max_attempts(self, attempts: u16) -> Self {
        self.number(WorkNumber::MaxAttempts, attempts.into())
    }

    /// `RETRY_DELAY_MS = n`: the pause after the first failed attempt.
    pub fn retry_delay(self, delay: Duration) -> Self {
        self.number(WorkNumber::RetryDelayMs, whole_ms(delay))
    }

    /// `LEASE_MS = n`: how long a reader holds a job that it does not prolong.
    pub fn lease(self, lease: Duration) -> Self {
        self.number(WorkNumber::LeaseMs, whole_ms(lease))
    }

    /// `MAX_TAKEN = n`: the most jobs taken at a time.
    pub fn max_taken(self, jobs: u32) -> Self {
        self.number(WorkNumber::MaxTaken, jobs.into())
    }

    /// `MAX_TAKEN_PER_KEY = n`: the most jobs of one key taken at a time.
    pub fn max_taken_per_key(self, jobs: u32) -> Self {
        self.number(WorkNumber::MaxTakenPerKey, jobs.into())
    }

    fn option(self, option: WorkOption) -> Self {
        if let Some(Definition::CreateWorkQueue { options, .. } | Definition::AlterWorkQueue { options, .. }) =
            self.0.list.last_mut()
        {
            // The last value counts. A queue that was made with it differed from the first one at the next start.
            let is_same = |other: &WorkOption| match (other, &option) {
                (WorkOption::Number(one, _), WorkOption::Number(other, _)) => one == other,
                (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
            };
            options.retain(|other| !is_same(other));
            options.push(option);
        }
        self
    }
}

view! {
    /// The work schedule just named: its options.
    WorkScheduleDefinition
}

impl WorkScheduleDefinition<'_> {
    /// `CRON = '...'`: when it fires.
    pub fn cron(self, line: impl Into<String>) -> Self {
        self.set(|options| options.cron = Some(line.into()))
    }

    /// `TIME_ZONE = '...'`: whose clocks the line means, such as `Europe/Berlin`. Default UTC.
    pub fn time_zone(self, zone: impl Into<String>) -> Self {
        self.set(|options| options.time_zone = Some(zone.into()))
    }

    /// `MISSED = ONCE | SKIP | ALL`: what happens to the times that passed while no process ran the broker.
    pub fn missed(self, missed: Missed) -> Self {
        self.set(|options| options.missed = Some(missed))
    }

    /// `JOB_TYPE = '...'`: the type of the jobs.
    pub fn job_type(self, job_type: impl Into<String>) -> Self {
        self.set(|options| options.job_type = Some(job_type.into()))
    }

    /// `JOB_KEY = '...'`: the key of the jobs; the empty text is none.
    pub fn job_key(self, key: impl Into<String>) -> Self {
        self.set(|options| options.job_key = Some(key.into()))
    }

    /// `LEVEL = n`: the level of the jobs.
    pub fn level(self, level: Level) -> Self {
        self.set(|options| options.level = Some(level.get().into()))
    }

    /// `BODY = '...'`: the body of the jobs, with the time that fired in place of `{time}`.
    pub fn body(self, body: impl Into<String>) -> Self {
        self.set(|options| options.body = Some(body.into()))
    }

    /// `STATUS = ON | OFF`: OFF pauses the schedule.
    pub fn status(self, on: bool) -> Self {
        self.set(|options| options.status = Some(on))
    }

    fn set(self, change: impl FnOnce(&mut WorkScheduleOptions)) -> Self {
        if let Some(Definition::CreateWorkSchedule { options, .. } | Definition::AlterWorkSchedule { options, .. }) =
            self.0.list.last_mut()
        {
            change(options);
        }
        self
    }
}
