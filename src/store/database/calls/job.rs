//! Rows of the verbs of work queues as their outcomes.

use crate::error::Result;
use crate::id::JobId;
use crate::protocol::Outcome;
use crate::protocol::work::{Job, JobState, TakenJob};
use crate::store::database::calls::rows::{Row, damaged, only};
use crate::store::{SqlRow, SqlValue};
use crate::time::Timestamp;
use std::sync::Arc;

/// The answer of a push.
pub(in crate::store::database) fn pushed(rows: &[SqlRow]) -> Result<Outcome> {
    let row = only(rows)?;
    let job = row.maybe_int("job_id")?.map(|id| unsigned(id).map(JobId)).transpose()?;
    Ok(Outcome::Pushed { job, is_new: row.flag("is_new")? })
}

/// The jobs of a take. A row without a job has notices only.
pub(in crate::store::database) fn jobs(rows: Vec<SqlRow>) -> Result<Outcome> {
    let jobs = rows.into_iter().filter(|row| Row(row).has("job_id")).map(job);
    jobs.collect::<Result<_>>().map(Outcome::Jobs)
}

/// One of them.
pub(in crate::store::database) fn job(mut row: SqlRow) -> Result<Job> {
    let place = row.columns.iter().position(|name| name == "body").ok_or_else(|| damaged("a take gives no body"))?;
    let body = match std::mem::replace(&mut row.values[place], SqlValue::Null) {
        SqlValue::Blob(bytes) => Some(bytes),
        SqlValue::Null => None,
        other => return Err(damaged(format!("a take gives {other:?} as the body of a job"))),
    };
    let row = Row(&row);
    Ok(Job {
        taken: TakenJob { job: JobId(unsigned(row.int("job_id")?)?), token: unsigned(row.int("token")?)? },
        queue: row.name("queue")?,
        job_type: row.name("job_type")?,
        key: row.maybe_text("job_key")?.map(Arc::from),
        level: narrow(row.int("level")?)?,
        attempt: narrow(row.int("attempt")?)?,
        pushed_at: Timestamp(row.int("pushed_at")?),
        pushed_by: row.name("pushed_by")?,
        lease_until: row.maybe_int("lease_until")?.map(Timestamp),
        last_error: row.maybe_text("last_error")?.map(Arc::from),
        body,
    })
}

/// The answer of a failure.
pub(in crate::store::database) fn failed(rows: &[SqlRow]) -> Result<Outcome> {
    let name = only(rows)?.text("job_state")?.trim_end();
    let all = [JobState::Scheduled, JobState::Ready, JobState::Taken, JobState::Dead];
    let state = all.into_iter().find(|state| state.name() == name);
    state.map(Outcome::Failed).ok_or_else(|| damaged(format!("'{name}' is no state of a job")))
}

fn unsigned(number: i64) -> Result<u64> {
    narrow(number)
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T> {
    T::try_from(number).map_err(|_| damaged(format!("{number} is out of the range of its column")))
}
