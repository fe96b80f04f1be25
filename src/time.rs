//! Time as the broker keeps it: microseconds of UTC, handed in from outside.

use jiff::tz::TimeZone;
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use uuid::Uuid;

/// Lets other threads have the processor. Linux takes it from a busy thread after 3 ms only: beside a check of a body on one of two
/// processors more than one SEND of a hundred waited so long. A lower priority of the thread does not change that.
pub(crate) fn give_way() {
    std::thread::yield_now();
}

/// Whether the clock of the machine is before 1970, for which some crates panic.
pub(crate) fn is_before_1970() -> bool {
    SystemTime::now() < UNIX_EPOCH
}

/// Milliseconds, rounded up, so that a short time is not none.
pub(crate) fn whole_ms(duration: Duration) -> i64 {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A moment in UTC, in microseconds since 1970-01-01.
///
/// In JSON and other texts it is written as it is printed, with milliseconds: `2026-01-01T00:00:00.000Z`. A text with
/// more digits, and a number of microseconds, can be read too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment this long after, or the last one that can be written.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The moment this many seconds after.
    pub fn after_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// How long it is from `earlier` to this; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// From a text of SQL: UTC, if it names no zone.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        // The name of a zone would not be looked at.
        if text.contains('[') {
            return None;
        }
        let without_zone = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
        let moment = text.parse().ok().or_else(|| Some(without_zone()?.timestamp()))?;
        Some(Self(jiff::Timestamp::as_microsecond(moment)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} us", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_str(self),
            // Frames between processes keep the microseconds.
            false => serializer.serialize_i64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(TextOrMicroseconds),
            false => i64::deserialize(deserializer).map(Self),
        }
    }
}

struct TextOrMicroseconds;

impl Visitor<'_> for TextOrMicroseconds {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as 2026-01-01T00:00:00.000Z, or microseconds since 1970-01-01 UTC")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
        // A moment beyond the years of the calendar is printed as its number.
        let beyond = || text.strip_suffix(" us").and_then(|number| number.parse().ok()).map(Timestamp);
        match text.parse::<jiff::Timestamp>() {
            Ok(moment) => Ok(Timestamp(moment.as_microsecond())),
            Err(error) => beyond().ok_or_else(|| E::custom(error)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, us: i64) -> Result<Timestamp, E> {
        Ok(Timestamp(us))
    }

    fn visit_u64<E: serde::de::Error>(self, us: u64) -> Result<Timestamp, E> {
        i64::try_from(us).map(Timestamp).map_err(E::custom)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn system_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The one clock of a broker: the system's in production, the test's in tests.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    /// The system's, and so many microseconds: the clock of a host that is wrong.
    Wrong(Arc<AtomicI64>),
    /// Another machine's, as last read: what it showed at a moment here.
    Remote(Arc<Mutex<(Instant, Timestamp)>>),
    Manual(Arc<Manual>),
}

#[derive(Debug)]
struct Manual {
    now_us: AtomicI64,
    moved: tokio::sync::watch::Sender<i64>,
    /// The databases on servers whose time it rules, each with what its brokers of this process share.
    ruled: Mutex<HashMap<Uuid, Weak<Rule>>>,
}

/// A manual clock rules the time of a database while one of these is there. The time that a broker of this process has set last.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    pub(crate) set: Mutex<Option<Timestamp>>,
}

impl Manual {
    fn advance(&self, by_us: i64) {
        self.moved.send_replace(add(&self.now_us, by_us));
    }
}

/// Adds to a time, up to the last one that can be written. Gives the sum.
fn add(time_us: &AtomicI64, by_us: i64) -> i64 {
    let sum = |time_us: i64| time_us.saturating_add(by_us);
    match time_us.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |time_us| Some(sum(time_us))) {
        Ok(before) | Err(before) => sum(before),
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The system's clock of a host on which it is wrong by so many seconds, ahead if above zero: for tests of what that
    /// may do.
    pub fn wrong_by(seconds: i64) -> Self {
        let clock = Self(Source::Wrong(Arc::default()));
        clock.jump(seconds);
        clock
    }

    /// Sets a clock that is wrong, or a manual one, by so many seconds, ahead if above zero; every other clock ignores it.
    pub fn jump(&self, seconds: i64) {
        let by_us = seconds.saturating_mul(1_000_000);
        match &self.0 {
            Source::Wrong(by) => drop(add(by, by_us)),
            Source::Manual(manual) => manual.advance(by_us),
            Source::System | Source::Remote(_) => {}
        }
    }

    /// A clock that goes on steadily from what another machine's showed just now, whatever this machine's shows.
    pub(crate) fn remote(now: Timestamp) -> Self {
        Self(Source::Remote(Arc::new(Mutex::new((Instant::now(), now)))))
    }

    /// Whether it is the clock of another machine: of a server.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.0, Source::Remote(_))
    }

    /// What the other machine's clock shows now; every other clock ignores it.
    pub(crate) fn set_remote(&self, now: Timestamp) {
        if let Source::Remote(shown) = &self.0 {
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), now);
        }
    }

    /// A clock that stands still until [`Clock::advance`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        let (moved, _) = tokio::sync::watch::channel(start.0);
        Self(Source::Manual(Arc::new(Manual { now_us: AtomicI64::new(start.0), moved, ruled: Mutex::default() })))
    }

    /// The rule of a manual clock over the time of that database: all brokers of this process with this clock have the same one.
    pub(crate) fn rule(&self, database: Uuid) -> Option<Arc<Rule>> {
        let Source::Manual(manual) = &self.0 else { return None };
        let mut ruled = manual.ruled.lock().unwrap_or_else(PoisonError::into_inner);
        let place = ruled.entry(database).or_default();
        let rule = place.upgrade().unwrap_or_default();
        *place = Arc::downgrade(&rule);
        Some(rule)
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Wrong(by) => Timestamp(system_now().0.saturating_add(by.load(Ordering::SeqCst))),
            Source::Remote(shown) => {
                let (at, showed) = *shown.lock().unwrap_or_else(PoisonError::into_inner);
                showed.after(at.elapsed())
            }
            Source::Manual(manual) => Timestamp(manual.now_us.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward and wakes its sleepers; a system clock ignores it.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(manual) = &self.0 {
            manual.advance(i64::try_from(by.as_micros()).unwrap_or(i64::MAX));
        }
    }

    /// Receives every move of a manual clock; `None` for a system clock, which moves by itself.
    pub(crate) fn moves(&self) -> Option<tokio::sync::watch::Receiver<i64>> {
        match &self.0 {
            Source::System | Source::Wrong(_) | Source::Remote(_) => None,
            Source::Manual(manual) => Some(manual.moved.subscribe()),
        }
    }

    /// Sleeps until the clock shows `due`.
    pub async fn sleep_until(&self, due: Timestamp) {
        match &self.0 {
            Source::System | Source::Wrong(_) | Source::Remote(_) => {
                let left = due.since(self.now());
                if !left.is_zero() {
                    tokio::time::sleep(left).await;
                }
            }
            Source::Manual(manual) => {
                let mut moves = manual.moved.subscribe();
                // The sender lives as long as this clock, so waiting cannot fail.
                let _ = moves.wait_for(|now| *now >= due.0).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Timestamp, whole_ms};
    use std::time::Duration;

    #[test]
    fn a_part_of_a_millisecond_is_a_whole_one() {
        assert_eq!([0, 1, 999_999, 1_000_000, 1_000_001].map(|ns| whole_ms(Duration::from_nanos(ns))), [0, 1, 1, 1, 2]);
        assert_eq!(whole_ms(Duration::MAX), i64::MAX);
    }

    #[test]
    fn a_clock_stops_at_the_last_moment_that_can_be_written() {
        for clock in [Clock::manual(Timestamp(1)), Clock::wrong_by(1)] {
            clock.advance(Duration::MAX);
            clock.jump(i64::MAX);
            assert_eq!(clock.now(), Timestamp(i64::MAX));
        }
        let clock = Clock::manual(Timestamp(-2));
        clock.jump(i64::MIN);
        assert_eq!(clock.now(), Timestamp(i64::MIN));
    }

    #[test]
    fn a_moment_is_a_text_in_json_and_a_number_in_frames() {
        let moment = Timestamp(1_767_225_600_123_456);
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(text, r#""2026-01-01T00:00:00.123Z""#);
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), Timestamp(1_767_225_600_123_000));
        for exact in [r#""2026-01-01T00:00:00.123456Z""#, "1767225600123456"] {
            assert_eq!(serde_json::from_str::<Timestamp>(exact).unwrap(), moment, "{exact}");
        }
        for beyond in [Timestamp(i64::MAX), Timestamp(i64::MIN)] {
            let text = serde_json::to_string(&beyond).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), beyond, "{text}");
        }
        for wrong in ["\"yesterday\"", "1.5", "null", "18446744073709551615"] {
            assert!(serde_json::from_str::<Timestamp>(wrong).is_err(), "{wrong}");
        }
        let frame = postcard::to_stdvec(&moment).unwrap();
        assert_eq!(frame, postcard::to_stdvec(&moment.0).unwrap());
        assert_eq!(postcard::from_bytes::<Timestamp>(&frame).unwrap(), moment);
    }
}
