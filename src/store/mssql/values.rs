//! Rows from the server.

use crate::store::{SqlRow, SqlRows, SqlValue};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::Arc;
use tiberius::{Column, ColumnData, Row};

/// The form of ids and times in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For Dialoq: ids as 16 bytes, times as microseconds since 1970, column names in lower case.
    Raw,
    /// For the user: both as text.
    Text,
}

/// Days from 0001-01-01 to 1970-01-01, and from 1900-01-01.
const EPOCH_DAY: i64 = 719_162;
const EPOCH_DAY_OF_1900: i64 = 25_567;
const DAY_US: i64 = 86_400_000_000;

/// The first result set of an answer.
pub(super) fn rows(columns: &[Column], rows: Vec<Row>, form: Form) -> SqlRows {
    let columns: Arc<[String]> = columns
        .iter()
        .map(|column| match form {
            Form::Raw => column.name().to_ascii_lowercase(),
            Form::Text => column.name().to_owned(),
        })
        .collect();
    let rows = rows
        .into_iter()
        .map(|row| {
            let values = row.into_iter().map(|value| convert(value, form)).collect();
            SqlRow { columns: columns.clone(), values }
        })
        .collect();
    SqlRows { columns, rows }
}

fn convert(value: ColumnData<'static>, form: Form) -> SqlValue {
    let converted = match value {
        ColumnData::U8(value) => value.map(|value| SqlValue::Integer(value.into())),
        ColumnData::I16(value) => value.map(|value| SqlValue::Integer(value.into())),
        ColumnData::I32(value) => value.map(|value| SqlValue::Integer(value.into())),
        ColumnData::I64(value) => value.map(SqlValue::Integer),
        ColumnData::Bit(value) => value.map(|value| SqlValue::Integer(value.into())),
        ColumnData::F32(value) => value.map(|value| SqlValue::Real(value.into())),
        ColumnData::F64(value) => value.map(SqlValue::Real),
        ColumnData::String(value) => value.map(|text| SqlValue::Text(text.into_owned())),
        ColumnData::Xml(value) => value.map(|xml| SqlValue::Text(xml.to_string())),
        ColumnData::Binary(value) => value.map(|bytes| SqlValue::Blob(bytes.into_owned())),
        ColumnData::Guid(value) => value.map(|id| match form {
            Form::Raw => SqlValue::Blob(id.as_bytes().to_vec()),
            Form::Text => SqlValue::Text(id.hyphenated().to_string()),
        }),
        ColumnData::Numeric(value) => value.map(|number| match i64::try_from(number.value()) {
            // The type of our sums.
            Ok(whole) if form == Form::Raw && number.scale() == 0 => SqlValue::Integer(whole),
            _ => SqlValue::Text(decimal(number.value(), number.scale())),
        }),
        ColumnData::DateTime(value) => value.map(|value| {
            // The server counts 300 to the second, which are no whole microseconds: the nearest is given.
            let in_day = (i64::from(value.seconds_fragments()) * 10_000 + 1) / 3;
            moment((i64::from(value.days()) - EPOCH_DAY_OF_1900) * DAY_US + in_day, form)
        }),
        ColumnData::SmallDateTime(value) => value.map(|value| {
            let in_day = i64::from(value.seconds_fragments()) * 60_000_000;
            moment((i64::from(value.days()) - EPOCH_DAY_OF_1900) * DAY_US + in_day, form)
        }),
        ColumnData::DateTime2(value) => value.map(|value| moment(microseconds(value), form)),
        // The server sends UTC, and the offset with which the value was written.
        ColumnData::DateTimeOffset(value) => value.map(|value| moment(microseconds(value.datetime2()), form)),
        ColumnData::Date(value) => value.map(|date| {
            let us = (i64::from(date.days()) - EPOCH_DAY) * DAY_US;
            match form {
                Form::Raw => SqlValue::Integer(us),
                Form::Text => SqlValue::Text(written(us, "%Y-%m-%d")),
            }
        }),
        ColumnData::Time(value) => value.map(|time| {
            let us = in_day(time.increments(), time.scale());
            match form {
                Form::Raw => SqlValue::Integer(us),
                Form::Text => SqlValue::Text(written(us, "%H:%M:%S%.6f")),
            }
        }),
    };
    converted.unwrap_or(SqlValue::Null)
}

fn microseconds(value: tiberius::time::DateTime2) -> i64 {
    let days = i64::from(value.date().days()) - EPOCH_DAY;
    days * DAY_US + in_day(value.time().increments(), value.time().scale())
}

/// Microseconds of a count of 10^-scale seconds; a seventh digit is cut off.
fn in_day(increments: u64, scale: u8) -> i64 {
    let increments = i64::try_from(increments).unwrap_or(0);
    let scale = u32::from(scale.min(7));
    if scale > 6 { increments / 10 } else { increments * 10_i64.pow(6 - scale) }
}

fn moment(us: i64, form: Form) -> SqlValue {
    match form {
        Form::Raw => SqlValue::Integer(us),
        Form::Text => SqlValue::Text(written(us, "%Y-%m-%d %H:%M:%S%.6f")),
    }
}

fn written(us: i64, format: &str) -> String {
    // The server's years, 1 to 9999, are within jiff's.
    let moment = Timestamp::from_microsecond(us).unwrap_or_default();
    moment.to_zoned(TimeZone::UTC).strftime(format).to_string()
}

fn decimal(value: i128, scale: u8) -> String {
    let (sign, digits) = (if value < 0 { "-" } else { "" }, value.unsigned_abs().to_string());
    let scale = usize::from(scale);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{part}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiberius::time::{Date, DateTime, DateTime2, SmallDateTime, Time};

    #[test]
    fn times_are_microseconds_for_us_and_text_for_the_user() {
        let value = || ColumnData::DateTime2(Some(DateTime2::new(Date::new(719_163), Time::new(12_345_678, 7))));
        assert_eq!(convert(value(), Form::Raw), SqlValue::Integer(DAY_US + 1_234_567));
        assert_eq!(convert(value(), Form::Text), SqlValue::Text("1970-01-02 00:00:01.234567".to_owned()));
        let value = ColumnData::DateTime(Some(DateTime::new(25_567, 100)));
        assert_eq!(convert(value, Form::Raw), SqlValue::Integer(333_333));
        let value = ColumnData::SmallDateTime(Some(SmallDateTime::new(25_567, 2)));
        assert_eq!(convert(value, Form::Text), SqlValue::Text("1970-01-01 00:02:00.000000".to_owned()));
        assert_eq!(convert(ColumnData::Date(Some(Date::new(0))), Form::Text), SqlValue::Text("0001-01-01".to_owned()));
        assert_eq!(
            convert(ColumnData::Time(Some(Time::new(5, 0))), Form::Text),
            SqlValue::Text("00:00:05.000000".to_owned())
        );
    }

    #[test]
    fn ids_are_bytes_in_the_order_of_their_text_for_us() {
        let id = uuid::Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(convert(ColumnData::Guid(Some(id)), Form::Raw), SqlValue::Blob(id.as_bytes().to_vec()));
        let text = SqlValue::Text("00112233-4455-6677-8899-aabbccddeeff".to_owned());
        assert_eq!(convert(ColumnData::Guid(Some(id)), Form::Text), text);
        assert_eq!(convert(ColumnData::Guid(None), Form::Text), SqlValue::Null);
    }

    #[test]
    fn decimals_keep_every_digit() {
        for (value, scale, text) in [(12_345, 2, "123.45"), (-5, 3, "-0.005"), (7, 0, "7"), (0, 2, "0.00")] {
            assert_eq!(decimal(value, scale), text);
        }
    }
}
