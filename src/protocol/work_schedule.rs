//! The options of work schedules, as data.

use serde::{Deserialize, Serialize};

/// What happens to the times that passed while no process ran the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Missed {
    /// One job for all of them.
    #[default]
    Once,
    /// No job, if the last of them is more than a minute ago.
    Skip,
    /// A job for each of the last 1000.
    All,
}

impl Missed {
    /// Each with its word in the DDL, which the tables keep.
    pub const ALL: [(&'static str, Self); 3] = [("ONCE", Self::Once), ("SKIP", Self::Skip), ("ALL", Self::All)];

    /// Its word in the DDL.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, missed)| *missed == self).map_or("ONCE", |(word, _)| *word)
    }
}

/// The options of a work schedule that a statement names; `None` is "not named".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkScheduleOptions {
    /// `CRON = '...'`: five fields, six with seconds, or a word such as `@daily`. CREATE must name it.
    pub cron: Option<String>,
    /// `TIME_ZONE = '...'`: a name of the IANA time zone database. Default UTC.
    pub time_zone: Option<String>,
    /// `MISSED = ONCE | SKIP | ALL`. Default ONCE.
    pub missed: Option<Missed>,
    /// `JOB_TYPE = '...'`: the type of the jobs. Default none.
    pub job_type: Option<String>,
    /// `JOB_KEY = '...'`: the key of the jobs; the empty text is no key, which is the default.
    pub job_key: Option<String>,
    /// `LEVEL = 1..10`: the level of the jobs. Default 5. Kept wide so that the error can name a value out of range.
    pub level: Option<i64>,
    /// `BODY = '...'`: the body of the jobs, in UTF-8, with the time that fired in place of `{time}`. Default empty.
    pub body: Option<String>,
    /// `STATUS = ON | OFF`: OFF pauses the schedule. Default ON.
    pub status: Option<bool>,
}
