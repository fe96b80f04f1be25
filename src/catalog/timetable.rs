//! When a work schedule fires: a cron line, read in a time zone.
//!
//! The time zones are those that are compiled in, so that two processes of one version never differ, and nothing is read
//! from the disk.

use crate::error::{Code, Error, Result};
use crate::protocol::definition::Missed;
use crate::time::Timestamp;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, JobType};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Zoned};
use std::sync::LazyLock;

/// The most jobs for times that passed: MISSED = ALL.
const MOST_MISSED: usize = 1000;
/// How late a schedule of MISSED = SKIP may fire: a host may be busy, and the clocks of two hosts differ.
const PUNCTUAL_US: i64 = 60_000_000;
/// Any time: a line that never comes from then on never comes.
const ANY_TIME: Timestamp = Timestamp(1_704_067_200_000_000);

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The fields of a line with seconds: each with its name, and what it may be.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of month", "1 to 31, or L for the last day"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of week", "0 to 7, where 0 and 7 are Sunday, or SUN to SAT"),
];

/// When a work schedule fires.
#[derive(Debug, Clone)]
pub struct Timetable {
    cron: Cron,
    zone: TimeZone,
    /// Its line names times of the day: no field of the time has a `*` or a step. The library takes such a line for one of
    /// intervals if a field has more than one value, such as `30 2,14`.
    has_fixed_times: bool,
}

/// One step of a schedule: at most one job, and the time it fires next. A store takes it if the schedule's next time is still
/// `due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// The schedule's next time before the step.
    pub due: Timestamp,
    /// Its next time after the step; `None` if it fires no more.
    pub next: Option<Timestamp>,
    /// The time that a job is pushed for; `None` if the times that passed are left out.
    pub time: Option<Timestamp>,
}

impl Timetable {
    /// Reads the line and the name of the time zone of a schedule, whose name is for errors and may be empty.
    ///
    /// # Errors
    /// 60045 if the line is malformed or never comes, or if there is no such time zone.
    pub fn parse(schedule: &str, line: &str, zone: &str) -> Result<Self> {
        let of = if schedule.is_empty() { String::new() } else { format!(" of work schedule '{schedule}'") };
        let bad = |option: &str, given: &str, why: String| {
            Error::new(Code::BAD_CRON, format!("{option} '{given}'{of} is not usable: {why}"))
        };
        // `Etc/Unknown` is a name of the library's own.
        let zone = ZONES.get(zone).ok().filter(|zone| !zone.is_unknown()).ok_or_else(|| {
            let why = "there is no such time zone; give a name of the IANA database, such as Europe/Berlin or UTC";
            bad("TIME_ZONE", zone, why.to_owned())
        })?;
        let parsed = match fault(line) {
            Some(why) => return Err(bad("CRON", line, why)),
            None => parser().parse(line).map_err(|error| bad("CRON", line, error.to_string()))?,
        };
        let has_fixed_times = match line.trim_start().starts_with('@') {
            true => parsed.determine_job_type() == JobType::FixedTime,
            false => {
                let fields = line.split_whitespace().count();
                !line.split_whitespace().take(fields - DATE_FIELDS).any(|field| field.contains(['*', '?', '/']))
            }
        };
        let timetable = Self { cron: parsed, zone, has_fixed_times };
        if timetable.next(ANY_TIME).is_none() {
            let why = "it never comes: none of its months has such a day".to_owned();
            return Err(bad("CRON", line, why));
        }
        Ok(timetable)
    }

    /// The name of the time zone, as the database spells it.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The first time after another.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = self.zoned(after)?;
        if !self.has_fixed_times {
            return Some(timestamp(&self.cron.find_next_occurrence(&after, false).ok()?));
        }
        // Clocks that show a later time never show an earlier moment, so the first time that lies behind is the next one.
        let mut clock = as_utc(after.datetime())?;
        loop {
            clock = self.cron.find_next_occurrence(&clock, false).ok()?;
            let moment = self.moment_of(clock.datetime())?;
            if moment > after {
                return Some(timestamp(&moment));
            }
        }
    }

    /// The steps of a schedule whose next time is `due`; none if that is not over.
    pub fn firings(&self, due: Timestamp, now: Timestamp, missed: Missed) -> Vec<Firing> {
        if due > now {
            return Vec::new();
        }
        let after_now = self.next(now);
        let latest = self.previous(now, true).filter(|latest| *latest >= due).unwrap_or(due);
        let times = match missed {
            Missed::Once => vec![Some(latest)],
            Missed::Skip => vec![(now.0.saturating_sub(latest.0) <= PUNCTUAL_US).then_some(latest)],
            Missed::All => self.times_back(latest, due).into_iter().rev().map(Some).collect(),
        };
        let mut firings: Vec<Firing> = Vec::with_capacity(times.len());
        for time in times {
            let due = match (firings.last_mut(), time) {
                (Some(before), Some(time)) => {
                    before.next = Some(time);
                    time
                }
                _ => due,
            };
            firings.push(Firing { due, next: after_now, time });
        }
        firings
    }

    /// The last times, from the latest back to the first that is due, and no more than a bounded number.
    fn times_back(&self, latest: Timestamp, due: Timestamp) -> Vec<Timestamp> {
        let mut times = vec![latest];
        while times.len() < MOST_MISSED
            && let Some(before) = times.last().and_then(|last| self.previous(*last, false)).filter(|time| *time >= due)
        {
            times.push(before);
        }
        times
    }

    fn previous(&self, before: Timestamp, is_inclusive: bool) -> Option<Timestamp> {
        let before = self.zoned(before)?;
        if !self.has_fixed_times {
            return Some(timestamp(&self.cron.find_previous_occurrence(&before, is_inclusive).ok()?));
        }
        let mut clock = as_utc(self.latest_shown(&before)?)?;
        let mut is_first = true;
        loop {
            clock = self.cron.find_previous_occurrence(&clock, std::mem::take(&mut is_first)).ok()?;
            let moment = self.moment_of(clock.datetime())?;
            if moment < before || is_inclusive && moment == before {
                return Some(timestamp(&moment));
            }
        }
    }

    /// The moment of a fixed time: the first at which the clocks show it, or the end of the gap that leaves it out.
    fn moment_of(&self, clock: DateTime) -> Option<Zoned> {
        let found = self.zone.to_ambiguous_zoned(clock);
        let AmbiguousOffset::Gap { before, .. } = found.offset() else { return found.earlier().ok() };
        // As if the clocks had not been changed; their change is the last one up to that moment.
        let unchanged = before.to_timestamp(clock).ok()?;
        let change = self.zone.preceding(unchanged + SignedDuration::from_secs(1)).next()?;
        Some(change.timestamp().to_zoned(self.zone.clone()))
    }

    /// The latest time that the clocks have shown up to a moment: after they went back, one that they will show again.
    fn latest_shown(&self, moment: &Zoned) -> Option<DateTime> {
        let now = moment.datetime();
        let AmbiguousOffset::Fold { before, .. } = self.zone.to_ambiguous_zoned(now).offset() else { return Some(now) };
        if moment.offset() == before {
            return Some(now);
        }
        let change = self.zone.preceding(moment.timestamp() + SignedDuration::from_secs(1)).next()?;
        Some(before.to_datetime(change.timestamp()))
    }

    /// A time as the zone's clocks show it, without fractions of a second, which no line names.
    fn zoned(&self, at: Timestamp) -> Option<Zoned> {
        let at = jiff::Timestamp::from_second(at.0.div_euclid(1_000_000)).ok()?;
        Some(at.to_zoned(self.zone.clone()))
    }
}

/// A time of the clocks, for a search that knows of no changes of them.
fn as_utc(clock: DateTime) -> Option<Zoned> {
    clock.to_zoned(TimeZone::UTC).ok()
}

fn timestamp(time: &Zoned) -> Timestamp {
    Timestamp(time.timestamp().as_microsecond())
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build()
}

/// Day of month, month and day of week.
const DATE_FIELDS: usize = 3;

/// What is wrong with a line, and where.
fn fault(line: &str) -> Option<String> {
    if line.trim_start().starts_with('@') {
        let why = "the words are @yearly, @monthly, @weekly, @daily and @hourly".to_owned();
        return parser().parse(line).is_err().then_some(why);
    }
    let fields: Vec<&str> = line.split_whitespace().collect();
    if !(5..=6).contains(&fields.len()) {
        return Some(format!(
            "it has {} fields; give 5 (minute, hour, day of month, month, day of week), or 6 with the second before them",
            fields.len()
        ));
    }
    let names = &FIELDS[FIELDS.len() - fields.len()..];
    for (place, (field, (name, range))) in fields.iter().zip(names).enumerate() {
        let alone: Vec<&str> = (0..fields.len()).map(|other| if other == place { field } else { "*" }).collect();
        let has_gap = field.split(',').any(str::is_empty);
        if has_gap || parser().parse(&alone.join(" ")).is_err() {
            let before = field.as_ptr().addr() - line.as_ptr().addr();
            let character = line[..before].chars().count() + 1;
            return Some(format!(
                "field {} ({name}) is '{field}', at character {character}; it must be {range}, or of these a range (1-5), a list \
                 (1,3), a step (*/2) or *",
                place + 1
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests;
