//! The time and the random numbers that a statement of the user sees.
//!
//! A statement of a transaction runs when its caller awaits it, and again at the commit. The commit must give the result that
//! the caller got, so the second run must see the time and the random numbers of the first one. The connection that writes
//! therefore has its own `random`, `randomblob` and functions of date and time. The latter replace 'now' by the time of
//! the statement and leave the rest to SQLite's own functions, on a connection without tables.

use crate::sql::sqlite::transaction::CALL_FUNCTION;
use crate::time::{Clock, Timestamp};
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, Result, ffi, params_from_iter};
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest blob that SQLite makes.
const LONGEST_BLOB: i64 = 1_000_000_000;

/// SQLite's functions of date and time with any number of arguments, and the place of their first time value.
const DATE_FUNCTIONS: [(&str, usize); 6] =
    [("date", 0), ("time", 0), ("datetime", 0), ("julianday", 0), ("unixepoch", 0), ("strftime", 1)];
/// The keywords without arguments, and the function with the same value.
const KEYWORDS: [(&str, &str); 3] =
    [("current_date", "date"), ("current_time", "time"), ("current_timestamp", "datetime")];

/// When a statement ran first, and the key of its random numbers.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    now: Timestamp,
    key: RandomState,
}

impl Moment {
    /// This moment, with random numbers of its own.
    pub(super) fn now() -> Self {
        Self { now: Clock::system().now(), key: RandomState::new() }
    }

    /// The time as SQLite reads it: `2026-01-31T12:00:00.123Z`.
    fn time(&self) -> Value {
        Value::Text(self.now.to_string())
    }
}

/// The moment that the statements of a connection see.
#[derive(Clone)]
pub(super) struct Moments(Arc<Mutex<Seen>>);

struct Seen {
    moment: Moment,
    /// Random numbers given out.
    drawn: u64,
}

impl Moments {
    /// Replaces the functions of a connection.
    pub(super) fn install(connection: &Connection) -> Result<Self> {
        let moments = Self(Arc::new(Mutex::new(Seen { moment: Moment::now(), drawn: 0 })));
        let random = moments.clone();
        connection.create_scalar_function("random", 0, FunctionFlags::SQLITE_UTF8 | INNOCUOUS, move |_| {
            Ok(random.seen().draw().cast_signed())
        })?;
        let random = moments.clone();
        connection.create_scalar_function("randomblob", 1, FunctionFlags::SQLITE_UTF8 | INNOCUOUS, move |context| {
            random.seen().blob(length(context.get_raw(0)))
        })?;
        let originals = Arc::new(Mutex::new(Connection::open_in_memory()?));
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | INNOCUOUS;
        for (name, first) in DATE_FUNCTIONS {
            let (moments, originals) = (moments.clone(), originals.clone());
            connection.create_scalar_function(name, -1, flags, move |context| {
                call(&originals, name, &moments.arguments(context, first..=first)?)
            })?;
        }
        let (timediff, original) = (moments.clone(), originals.clone());
        connection.create_scalar_function("timediff", 2, flags, move |context| {
            call(&original, "timediff", &timediff.arguments(context, 0..=1)?)
        })?;
        for (keyword, function) in KEYWORDS {
            let (moments, originals) = (moments.clone(), originals.clone());
            connection.create_scalar_function(keyword, 0, flags, move |_| {
                call(&originals, function, &[moments.seen().moment.time()])
            })?;
        }
        Ok(moments)
    }

    /// Sets the moment of the next statement.
    pub(super) fn set(&self, moment: &Moment) {
        *self.seen() = Seen { moment: moment.clone(), drawn: 0 };
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The arguments of a function of date and time, with the moment for 'now' in these places. `subsec` in place of a
    /// time means now, and asks for fractions of seconds.
    fn arguments(&self, context: &Context<'_>, times: RangeInclusive<usize>) -> Result<Vec<Value>> {
        let now = || self.seen().moment.time();
        let mut values = Vec::with_capacity(context.len() + 1);
        for place in 0..context.len() {
            let given = context.get_raw(place);
            let is = |words: &[&str]| {
                let text = if times.contains(&place) { given.as_str().unwrap_or_default() } else { "" };
                words.iter().any(|word| text.eq_ignore_ascii_case(word))
            };
            if is(&["now"]) {
                values.push(now());
            } else if is(&["subsec", "subsecond"]) {
                values.extend([now(), Value::Text("subsec".to_owned())]);
            } else {
                values.push(context.get(place)?);
            }
        }
        // date() is date('now'), and strftime('%s') is strftime('%s', 'now').
        if context.len() == *times.start() {
            values.push(now());
        }
        Ok(values)
    }
}

impl Seen {
    /// The next random number: no other statement has the key, which the operating system chose.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.moment.key.hash_one(self.drawn)
    }

    fn blob(&mut self, length: i64) -> Result<Vec<u8>> {
        if length > LONGEST_BLOB {
            return Err(Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_TOOBIG),
                Some("string or blob too big".into()),
            ));
        }
        let length = usize::try_from(length).unwrap_or(0).max(1);
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(self.draw().to_le_bytes());
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Also triggers, views and defaults may use them.
const INNOCUOUS: FunctionFlags = FunctionFlags::SQLITE_INNOCUOUS;

/// The length of a blob, as SQLite reads an argument of any type.
fn length(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Integer(number) => number,
        // The cast stops at the limits.
        ValueRef::Real(number) => number as i64,
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            let text = text.trim_start();
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().unwrap_or(0)
        }
        ValueRef::Null | ValueRef::Blob(_) => 0,
    }
}

/// The value of SQLite's own function.
fn call(originals: &Mutex<Connection>, function: &str, arguments: &[Value]) -> Result<ToSqlOutput<'static>> {
    let places: Vec<String> = (1..=arguments.len()).map(|place| format!("?{place}")).collect();
    let text = CALL_FUNCTION.replace("FUNCTION", function).replace("ARGUMENTS", &places.join(", "));
    let originals = originals.lock().unwrap_or_else(PoisonError::into_inner);
    let mut statement = originals.prepare_cached(&text)?;
    statement.query_row(params_from_iter(arguments), |row| row.get(0)).map(ToSqlOutput::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections() -> (Connection, Moments, Connection) {
        let ours = Connection::open_in_memory().unwrap();
        let moments = Moments::install(&ours).unwrap();
        (ours, moments, Connection::open_in_memory().unwrap())
    }

    fn value(connection: &Connection, expression: &str) -> Value {
        connection.query_row(&format!("select {expression}"), [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_statement_that_runs_again_sees_the_same_time_and_the_same_random_numbers() {
        let (ours, moments, _) = connections();
        let all = "random() || hex(randomblob(20)) || hex(randomblob(3)) || strftime('%f', 'now') || julianday()
                   || unixepoch('subsec') || current_timestamp || timediff('now', '2000-01-01')";
        let (first, second) = (Moment::now(), Moment::now());
        moments.set(&first);
        let reported = value(&ours, all);
        assert_ne!(value(&ours, all), reported, "the next statement draws other numbers");
        moments.set(&second);
        assert_ne!(value(&ours, all), reported);
        moments.set(&first);
        assert_eq!(value(&ours, all), reported);
        // Within a statement each call gives another number.
        assert_eq!(value(&ours, "random() = random()"), Value::Integer(0));
    }

    #[test]
    fn other_calls_have_the_value_of_sqlites_own_functions() {
        let (ours, _, sqlites) = connections();
        for expression in [
            "date('2024-02-29', '+1 year')",
            "time('12:34:56.789', 'subsec')",
            "datetime(0, 'unixepoch')",
            "julianday('2000-01-01 12:00')",
            "unixepoch('2000-01-01', 'localtime', 'utc')",
            "strftime('%Y %j', 1700000000, 'auto')",
            "timediff('2001-01-01', '2000-02-29')",
            "date('no date')",
            "date(null)",
            "strftime('%Y', '2001-01-01', 'no modifier')",
            "strftime()",
            "length(randomblob(9))",
            "length(randomblob(-1))",
            "length(randomblob('3x'))",
            "length(randomblob(2.9))",
            "length(randomblob(null))",
        ] {
            assert_eq!(value(&ours, expression), value(&sqlites, expression), "{expression}");
        }
        assert!(ours.query_row("select randomblob(1000000001)", [], |_| Ok(())).is_err());
    }

    #[test]
    fn now_is_the_time_of_the_statement_in_every_form() {
        let (ours, moments, sqlites) = connections();
        let moment = Moment { now: Timestamp(1_580_702_706_789_000), key: RandomState::new() };
        let time = moment.now.to_string();
        assert_eq!(time, "2020-02-03T04:05:06.789Z");
        moments.set(&moment);
        for (expression, with_the_time) in [
            ("date()", "date('TIME')"),
            ("time('NOW', '+1 hour')", "time('TIME', '+1 hour')"),
            ("datetime('now', 'subsec')", "datetime('TIME', 'subsec')"),
            ("datetime('subsec')", "datetime('TIME', 'subsec')"),
            ("datetime('now', 'utc')", "datetime('TIME')"),
            ("datetime('now', 'localtime')", "datetime('TIME', 'localtime')"),
            ("unixepoch('subsecond')", "unixepoch('TIME', 'subsec')"),
            ("strftime('%s')", "strftime('%s', 'TIME')"),
            ("strftime('now')", "strftime('now', 'TIME')"),
            ("timediff('now', '2000-01-01')", "timediff('TIME', '2000-01-01')"),
            ("timediff('2000-01-01', 'now')", "timediff('2000-01-01', 'TIME')"),
            ("current_date || current_time || current_timestamp", "date('TIME') || time('TIME') || datetime('TIME')"),
        ] {
            let expected = value(&sqlites, &with_the_time.replace("TIME", &time));
            assert_eq!(value(&ours, expression), expected, "{expression}");
        }
    }

    #[test]
    fn tables_with_an_index_a_check_a_default_or_a_trigger_of_them_stay_usable() {
        let (ours, ..) = connections();
        ours.execute_batch(
            "create table t (d text check (d <= datetime('2999-01-01')), at text default current_timestamp,
                             day text generated always as (date(d)) stored, lucky integer default (random()),
                             salt blob default (randomblob(4)));
             create index by_day on t (date(d));
             create table log (at text);
             create trigger noted after insert on t begin insert into log values (datetime('now')); end;
             pragma trusted_schema = off;
             insert into t (d) values ('2024-01-01 10:00');",
        )
        .unwrap();
        let found = value(&ours, "day || (select count(*) from t where date(d) = '2024-01-01') from t");
        assert_eq!(found, Value::Text("2024-01-011".to_owned()));
    }
}
