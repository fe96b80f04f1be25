//! Looking at work schedules. Nothing is locked or changed.

use crate::broker::Broker;
use crate::catalog::Timetable;
use crate::error::Result;
use crate::store::SqlRow;
use crate::time::Timestamp;
use serde::Serialize;

/// A work schedule with its times. Times serialize as UTC text with milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkScheduleStatus {
    /// The name as declared.
    pub name: String,
    /// The work queue that gets the jobs.
    pub queue: String,
    /// Whether it fires; a paused one does not.
    pub is_enabled: bool,
    /// As declared.
    pub cron: String,
    /// The time zone in which `cron` is read.
    pub time_zone: String,
    /// What happens to missed times, as the DDL writes it.
    pub missed: String,
    /// The type of its jobs.
    pub job_type: String,
    /// The key of its jobs.
    pub key: Option<String>,
    /// The level of its jobs, 1 (low) to 10 (high).
    pub level: u64,
    /// When it fires next; `None` if it is paused.
    pub next_at: Option<Timestamp>,
    /// The time that it last pushed a job for.
    pub last_at: Option<Timestamp>,
}

impl Broker {
    /// Every work schedule with its next and its last time.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn work_schedules(&self) -> Result<Vec<WorkScheduleStatus>> {
        let rows = self.query_own(self.work_texts().schedules, ()).await?.rows;
        let status = |row: &SqlRow| {
            Ok(WorkScheduleStatus {
                name: row.own("name")?,
                queue: row.own("queue")?,
                is_enabled: row.own("is_enabled")?,
                cron: row.own("cron")?,
                time_zone: row.own("time_zone")?,
                missed: row.own("missed")?,
                job_type: row.own("job_type")?,
                key: row.own("job_key")?,
                level: row.count("level")?,
                next_at: row.own("next_us")?,
                last_at: row.own("last_us")?,
            })
        };
        rows.iter().map(status).collect()
    }
}

/// The first times of a cron line after a time, at most so many; the time zone is a name of the IANA database. It is what a
/// work schedule of that line would do, and asks no broker.
///
/// ```
/// use dialoq::Timestamp;
///
/// let new_year = Timestamp(1_798_761_600_000_000);
/// let times = dialoq::work::coming_times("0 3 * * *", "Europe/Berlin", new_year, 2)?;
/// assert_eq!(times[0].to_string(), "2027-01-01T02:00:00.000Z");
/// # Ok::<(), dialoq::Error>(())
/// ```
///
/// # Errors
/// 60045 if the line or the time zone is not usable.
pub fn coming_times(cron: &str, time_zone: &str, after: Timestamp, most: usize) -> Result<Vec<Timestamp>> {
    let timetable = Timetable::parse("", cron, time_zone)?;
    Ok(std::iter::successors(timetable.next(after), |last| timetable.next(*last)).take(most).collect())
}
