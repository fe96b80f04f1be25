//! Work queues in the tables: the rows that their changes write, and the rows that opening the file reads.

use super::failure::storage;
use super::read::unsigned;
use super::write::{Write, Writer, int};
use crate::catalog::{Catalog, WorkQueue, WorkSchedule};
use crate::core::{JobRead, JobRow, Restore, WorkChange};
use crate::protocol::Body;
use crate::protocol::definition::{Missed, TakingTechnique, WorkNumber, WorkOption, WorkOrder, WorkSettings};
use crate::protocol::work::JobState;
use crate::sql::sqlite::read::{JOBS, LAST_FINISH_NUMBERS, UNIQUE_JOBS, WORK_MARKS, WORK_QUEUES, WORK_SCHEDULES};
use crate::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Result, Row, params, params_from_iter};
use std::sync::Arc;

/// Rows that one statement cuts from a history, and statements in a row: 200,000 rows, about a tenth of a second. The rest is left
/// to a later batch.
const CUT_ROWS: usize = 2000;
const MOST_CUTS: u32 = 100;

/// A longer body has a row of its own, which is not written again when its job is taken, reported or failed: jobs of 2 MB filled a disk of
/// 20 MB when they were taken.
const MOST_BODY_INSIDE: usize = 1024;

impl Writer<'_> {
    /// Writes a change of a work queue.
    pub(super) fn write_work(&mut self, change: &WorkChange) -> Result<()> {
        match change {
            WorkChange::DeleteJobs { queue_id } => {
                self.run(Write::DeleteJobBodies, [queue_id])?;
                self.run(Write::DeleteJobs, [queue_id])?;
                self.run(Write::DeleteJobHistory, [queue_id])?;
            }
            WorkChange::SetWorkMarks { next_job_id, next_token } => {
                self.run(Write::SetWorkMarks, [int(*next_job_id), int(*next_token)])?;
            }
            WorkChange::InsertJob(row) => self.insert_job(row)?,
            WorkChange::TakeJob { job_id, attempts, token, lease_until, taken_at, taken_by } => {
                let due_at = lease_until.map(|until| until.0);
                self.run(
                    Write::TakeJob,
                    params![int(*job_id), attempts, int(*token), due_at, taken_at.0, &**taken_by],
                )?;
            }
            WorkChange::FailJob { job_id, state, at, last_error, failed_at } => {
                let due_at = at.map(|at| at.0);
                self.run(Write::FailJob, params![int(*job_id), *state as u8, due_at, &**last_error, failed_at.0])?;
            }
            WorkChange::ReturnJob { job_id, attempts, .. } => {
                self.run(Write::ReturnJob, params![int(*job_id), attempts])?;
            }
            WorkChange::ReadyJob { job_id } => drop(self.run(Write::ReadyJob, [int(*job_id)])?),
            WorkChange::ExtendJob { job_id, lease_until } => {
                self.run(Write::ExtendJob, [int(*job_id), lease_until.0])?;
            }
            WorkChange::ReportJob { job_id, progress } => {
                self.run(Write::ReportJob, params![int(*job_id), &**progress])?;
            }
            WorkChange::RedriveJob { job_id } => drop(self.run(Write::RedriveJob, [int(*job_id)])?),
            WorkChange::FinishJob { job_id, finished_as, finished_at, result, finish_number, .. } => {
                if let Some(finish_number) = finish_number {
                    let result: &Body = result;
                    self.run(
                        Write::InsertJobHistory,
                        params![
                            int(*job_id),
                            int(*finish_number),
                            *finished_as as u8,
                            finished_at.0,
                            result.as_deref()
                        ],
                    )?;
                }
                self.run(Write::DeleteJob, [int(*job_id)])?;
                self.run(Write::DeleteJobBody, [int(*job_id)])?;
            }
            WorkChange::CutHistory { queue_id, finished_before, first_number, now } => {
                let cut = params![queue_id, finished_before.0, int(*first_number), now.0];
                let mut rounds = 0;
                while self.run(Write::CutJobHistory, cut)? == CUT_ROWS && rounds < MOST_CUTS {
                    rounds += 1;
                }
                if rounds == MOST_CUTS {
                    self.uncut.push(*queue_id);
                }
            }
            WorkChange::SetScheduleTimes { schedule_id, next_at, last_at } => {
                let times = (next_at.map(|at| at.0), last_at.map(|at| at.0));
                self.run(Write::SetScheduleTimes, params![schedule_id, times.0, times.1])?;
            }
            WorkChange::DeleteUniqueJob { queue_id, key } => {
                self.run(Write::DeleteUniqueJob, params![queue_id, &**key])?;
            }
        }
        Ok(())
    }

    /// Writes a work queue, new or not.
    pub(super) fn put_work_queue(&mut self, row: &WorkQueue) -> Result<()> {
        let settings = &row.settings;
        let mut values = vec![
            Value::from(row.id),
            Value::from(row.name.to_string()),
            Value::from(settings.is_enabled),
            Value::from(settings.order.word().to_owned()),
            Value::from(settings.has_history),
            Value::from(settings.take_by.word().to_owned()),
        ];
        values.extend(WorkNumber::ALL.iter().map(|number| Value::from(settings.get(*number))));
        self.run(Write::PutWorkQueue, params_from_iter(values)).map(drop)
    }

    /// Writes a work schedule, new or not.
    pub(super) fn put_work_schedule(&mut self, row: &WorkSchedule) -> Result<()> {
        self.run(
            Write::PutWorkSchedule,
            params![
                row.id,
                &*row.name,
                row.queue_id,
                row.is_enabled,
                &*row.cron,
                &*row.time_zone,
                row.missed.word(),
                &*row.job_type,
                row.key.as_deref(),
                row.level,
                &*row.body,
            ],
        )
        .map(drop)
    }

    fn insert_job(&mut self, row: &JobRow) -> Result<()> {
        let body = row.body.as_ref().map(|body| &body[..]);
        let (inside, outside) =
            if body.is_some_and(|body| body.len() > MOST_BODY_INSIDE) { (None, body) } else { (body, None) };
        self.run(
            Write::InsertJob,
            params![
                int(row.job_id),
                row.queue_id,
                &*row.job_type,
                row.key.as_deref(),
                row.level,
                row.state as u8,
                row.at.map(|at| at.0),
                row.pushed_at.0,
                &*row.pushed_by,
                inside,
            ],
        )?;
        if outside.is_some() {
            self.run(Write::InsertJobBody, params![int(row.job_id), outside])?;
        }
        if let Some(unique_key) = &row.unique_key {
            let until_at = row.unique_until.map(|until| until.0);
            self.run(Write::InsertUniqueJob, params![row.queue_id, &**unique_key, int(row.job_id), until_at])?;
        }
        Ok(())
    }
}

/// Reads the work queues into the catalog.
pub(super) fn work_queues(connection: &Connection, catalog: &mut Catalog) -> crate::error::Result<()> {
    each(connection, WORK_QUEUES, |row| {
        let order: WorkOrder = keyword(row, 3, &WorkOrder::ALL)?;
        let technique = keyword(row, 5, &TakingTechnique::ALL)?;
        let mut settings = WorkSettings::default();
        settings.set(WorkOption::Status(row.get(2)?));
        settings.set(WorkOption::Order(order));
        settings.set(WorkOption::History(row.get(4)?));
        settings.set(WorkOption::TakeBy(technique));
        for (column, number) in WorkNumber::ALL.iter().enumerate() {
            settings.set(WorkOption::Number(*number, row.get(6 + column)?));
        }
        let queue = WorkQueue { id: row.get(0)?, name: row.get::<_, String>(1)?.into(), settings };
        catalog.work_queues.insert(queue.id, Arc::new(queue));
        Ok(())
    })
}

/// The value of the keyword in a column.
fn keyword<T: Copy>(row: &rusqlite::Row<'_>, column: usize, known: &[(&str, T)]) -> rusqlite::Result<T> {
    let word = row.get_ref(column)?.as_str()?;
    let found = known.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        rusqlite::Error::InvalidColumnType(column, "a known keyword".to_owned(), rusqlite::types::Type::Text)
    })
}

/// Reads the work schedules into the catalog.
pub(super) fn work_schedules(connection: &Connection, catalog: &mut Catalog) -> crate::error::Result<()> {
    each(connection, WORK_SCHEDULES, |row| {
        let word = row.get_ref(6)?.as_str()?;
        let missed = Missed::ALL.into_iter().find(|(known, _)| *known == word);
        let (_, missed) = missed.ok_or_else(|| {
            rusqlite::Error::InvalidColumnType(6, "a known keyword".to_owned(), rusqlite::types::Type::Text)
        })?;
        let text = |column| Ok::<Arc<str>, rusqlite::Error>(row.get_ref(column)?.as_str()?.into());
        let schedule = WorkSchedule {
            id: row.get(0)?,
            name: text(1)?,
            queue_id: row.get(2)?,
            is_enabled: row.get(3)?,
            cron: text(4)?,
            time_zone: text(5)?,
            missed,
            job_type: text(7)?,
            key: row.get::<_, Option<String>>(8)?.map(Arc::from),
            // Of a level out of range no take would find the jobs.
            level: row.get::<_, u8>(9)?.clamp(1, 10),
            body: text(10)?,
        };
        catalog.work_schedules.insert(schedule.id, Arc::new(schedule));
        Ok(())
    })
}

/// Reads the jobs into a broker that is being restored.
pub(super) fn jobs(connection: &Connection, restore: &mut Restore, now: Timestamp) -> crate::error::Result<()> {
    each(connection, WORK_MARKS, |row| {
        restore.work_marks(unsigned(row, 0)?, unsigned(row, 1)?);
        Ok(())
    })?;
    each(connection, LAST_FINISH_NUMBERS, |row| {
        restore.finish_number(row.get(0)?, unsigned(row, 1)?, now);
        Ok(())
    })?;
    each(connection, WORK_SCHEDULES, |row| {
        let [next_at, last_at] = [row.get::<_, Option<i64>>(11)?, row.get(12)?].map(|at| at.map(Timestamp));
        restore.schedule_times(row.get(0)?, next_at, last_at);
        Ok(())
    })?;
    each(connection, JOBS, |row| {
        restore.job(job(row)?, now);
        Ok(())
    })?;
    each(connection, UNIQUE_JOBS, |row| {
        let until = row.get::<_, Option<i64>>(3)?.map(Timestamp);
        restore.unique_job(row.get(0)?, row.get::<_, String>(1)?.into(), unsigned(row, 2)?, until);
        Ok(())
    })
}

fn job(row: &Row<'_>) -> Result<JobRow> {
    let state = match row.get::<_, u8>(5)? {
        0 => JobState::Scheduled,
        1 => JobState::Ready,
        2 => JobState::Taken,
        3 => JobState::Dead,
        other => return Err(rusqlite::Error::IntegralValueOutOfRange(5, other.into())),
    };
    Ok(JobRow {
        job_id: unsigned(row, 0)?,
        queue_id: row.get(1)?,
        job_type: row.get_ref(2)?.as_str()?.into(),
        key: row.get::<_, Option<String>>(3)?.map(Arc::from),
        level: row.get(4)?,
        state,
        attempts: row.get(6)?,
        token: unsigned(row, 7)?,
        at: row.get::<_, Option<i64>>(8)?.map(Timestamp),
        pushed_at: Timestamp(row.get(9)?),
        pushed_by: Arc::default(),
        unique_key: None,
        unique_until: None,
        body: None,
    })
}

/// The parts of a taken job that are in its row.
pub(super) fn job_read(row: &Row<'_>) -> Result<JobRead> {
    Ok(JobRead {
        pushed_by: row.get_ref(0)?.as_str()?.into(),
        last_error: row.get::<_, Option<String>>(1)?.map(Arc::from),
        body: row.get(2)?,
    })
}

fn each(connection: &Connection, text: &str, mut take: impl FnMut(&Row<'_>) -> Result<()>) -> crate::error::Result<()> {
    let mut run = || -> Result<()> {
        let mut statement = connection.prepare(text)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    };
    run().map_err(|error| storage("reading the tables of the work queues", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_cuts_a_bounded_part_of_a_history_and_names_its_queue_if_more_is_left() {
        let _limit = crate::testing::limit();
        let connection = Connection::open_in_memory().unwrap();
        for script in crate::sql::sqlite::schema::SCRIPTS {
            connection.execute_batch(script.text).unwrap();
        }
        let fill = "with recursive n (n) as (select 1 union all select n + 1 from n where n < 202001)
            insert into dialoq_job_history (
                queue_id, finish_number, job_id, job_type, level, finished_as, attempts, pushed_at, pushed_by, finished_at)
            select 7, n, n, '', 5, 4, 1, 0, '', 0 from n";
        connection.execute_batch(fill).unwrap();
        let (finished_before, now) = (Timestamp(1), Timestamp(1));
        let cut = WorkChange::CutHistory { queue_id: 7, finished_before, first_number: 202_002, now };
        let mut writer = Writer::new(&connection, None);
        for left in [1, 0] {
            writer.write_work(&cut).unwrap();
            let rows = "select count(*) from dialoq_job_history";
            let rows: i64 = connection.query_row(rows, [], |row| row.get(0)).unwrap();
            assert_eq!((rows, &writer.uncut[..]), (left, &[7][..]));
        }
    }
}
