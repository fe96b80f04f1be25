//! Values from the server.

use super::args::{EPOCH_US, base};
use crate::store::{SqlRow, SqlValue};
use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use tokio_postgres::types::{FromSql, Kind, Type};
use tokio_postgres::{Column, Row, Statement};

/// A statement that the server has prepared, and the readers of its columns.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) statement: Statement,
    row_reader: RowReader,
}

/// How rows are read.
#[derive(Debug)]
pub(super) struct RowReader {
    columns: Arc<[String]>,
    readers: Vec<Reader>,
}

/// The reader of rows: Dialoq gets ids as bytes and times as numbers, the user gets both as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsFor {
    Ours,
    Users,
}

/// How the values of a column are read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reader {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Text,
    Jsonb,
    Bytes,
    Uuid,
    Moment,
    Date,
    Time,
    Numeric,
    Void,
    /// The name of a type that cannot be read here.
    Unknown(String),
}

impl Prepared {
    pub(super) fn new(statement: Statement) -> Self {
        let row_reader = RowReader::of(statement.columns());
        Self { statement, row_reader }
    }

    pub(super) fn columns(&self) -> &Arc<[String]> {
        &self.row_reader.columns
    }

    /// The rows for that reader; the error names the column.
    pub(super) fn rows(&self, rows: &[Row], rows_for: RowsFor) -> Result<Vec<SqlRow>, String> {
        self.row_reader.rows(rows, rows_for)
    }
}

impl RowReader {
    pub(super) fn of(columns: &[Column]) -> Self {
        let readers = columns.iter().map(Column::type_).map(Reader::of).collect();
        Self { columns: columns.iter().map(|column| column.name().to_owned()).collect(), readers }
    }

    pub(super) fn rows(&self, rows: &[Row], rows_for: RowsFor) -> Result<Vec<SqlRow>, String> {
        rows.iter().map(|row| self.row(row, rows_for)).collect()
    }

    fn row(&self, row: &Row, rows_for: RowsFor) -> Result<SqlRow, String> {
        let mut values = Vec::with_capacity(self.readers.len());
        for (place, reader) in self.readers.iter().enumerate() {
            let read = match row.try_get::<_, Option<Raw<'_>>>(place) {
                Ok(None) => Ok(SqlValue::Null),
                Ok(Some(Raw(bytes))) => reader.read(bytes, rows_for),
                Err(error) => Err(error.to_string()),
            };
            values.push(read.map_err(|why| format!("column '{}' {why}", self.columns[place]))?);
        }
        Ok(SqlRow { columns: self.columns.clone(), values })
    }
}

/// The bytes as the server sent them.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Reader {
    fn of(ty: &Type) -> Self {
        let ty = base(ty);
        match *ty {
            Type::BOOL => Self::Bool,
            Type::INT2 => Self::Int2,
            Type::INT4 => Self::Int4,
            Type::INT8 => Self::Int8,
            Type::OID => Self::Oid,
            Type::FLOAT4 => Self::Float4,
            Type::FLOAT8 => Self::Float8,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::XML | Type::CHAR => Self::Text,
            Type::UNKNOWN => Self::Text,
            Type::JSONB => Self::Jsonb,
            Type::BYTEA => Self::Bytes,
            Type::UUID => Self::Uuid,
            Type::TIMESTAMPTZ | Type::TIMESTAMP => Self::Moment,
            Type::DATE => Self::Date,
            Type::TIME => Self::Time,
            Type::NUMERIC => Self::Numeric,
            Type::VOID => Self::Void,
            _ if matches!(ty.kind(), Kind::Enum(_)) => Self::Text,
            _ if ty.name() == "citext" => Self::Text,
            _ => Self::Unknown(ty.to_string()),
        }
    }

    fn read(&self, bytes: &[u8], rows_for: RowsFor) -> Result<SqlValue, String> {
        Ok(match self {
            Self::Bool => SqlValue::Integer(i64::from(fixed::<1>(bytes)?[0])),
            Self::Int2 => SqlValue::Integer(i16::from_be_bytes(fixed(bytes)?).into()),
            Self::Int4 => SqlValue::Integer(i32::from_be_bytes(fixed(bytes)?).into()),
            Self::Int8 => SqlValue::Integer(i64::from_be_bytes(fixed(bytes)?)),
            Self::Oid => SqlValue::Integer(u32::from_be_bytes(fixed(bytes)?).into()),
            Self::Float4 => SqlValue::Real(f32::from_be_bytes(fixed(bytes)?).into()),
            Self::Float8 => SqlValue::Real(f64::from_be_bytes(fixed(bytes)?)),
            Self::Text => text(bytes)?,
            Self::Jsonb => text(bytes.get(1..).unwrap_or_default())?,
            Self::Bytes => SqlValue::Blob(bytes.to_vec()),
            Self::Uuid => match rows_for {
                RowsFor::Ours => SqlValue::Blob(bytes.to_vec()),
                RowsFor::Users => SqlValue::Text(uuid::Uuid::from_bytes(fixed(bytes)?).to_string()),
            },
            Self::Moment => {
                let since_2000 = i64::from_be_bytes(fixed(bytes)?);
                match rows_for {
                    RowsFor::Ours => SqlValue::Integer(since_2000.saturating_add(EPOCH_US)),
                    RowsFor::Users => SqlValue::Text(moment(since_2000)?),
                }
            }
            Self::Date => SqlValue::Text(date(i32::from_be_bytes(fixed(bytes)?))?),
            Self::Time => SqlValue::Text(time(i64::from_be_bytes(fixed(bytes)?))),
            Self::Numeric => SqlValue::Text(numeric(bytes)?),
            Self::Void => SqlValue::Null,
            Self::Unknown(name) => {
                return Err(format!("is of type {name}, which is not read here; cast it to text in the statement"));
            }
        })
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    bytes.try_into().map_err(|_| format!("holds {} bytes where {N} belong", bytes.len()))
}

fn text(bytes: &[u8]) -> Result<SqlValue, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(SqlValue::Text(text.to_owned())),
        Err(_) => Err("holds text that is not UTF-8".to_owned()),
    }
}

/// `YYYY-MM-DD hh:mm:ss.ffffff` of UTC.
fn moment(since_2000: i64) -> Result<String, String> {
    match since_2000 {
        i64::MAX => return Ok("infinity".to_owned()),
        i64::MIN => return Ok("-infinity".to_owned()),
        _ => {}
    }
    let moment = since_2000.checked_add(EPOCH_US).and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    match moment {
        Some(moment) => Ok(moment.strftime("%Y-%m-%d %H:%M:%S%.6f").to_string()),
        None => Err("holds a moment beyond the year 9999; cast it to text in the statement".to_owned()),
    }
}

fn date(days_since_2000: i32) -> Result<String, String> {
    match days_since_2000 {
        i32::MAX => Ok("infinity".to_owned()),
        i32::MIN => Ok("-infinity".to_owned()),
        days => moment(i64::from(days) * 86_400_000_000).map(|text| text[..text.len() - 16].to_owned()),
    }
}

fn time(us: i64) -> String {
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    format!("{:02}:{:02}:{:02}.{us:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Digits in groups of four, from the one of the weight given.
fn numeric(bytes: &[u8]) -> Result<String, String> {
    let words: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let [count, weight, sign, scale, digits @ ..] = &words[..] else {
        return Err(format!("holds a numeric of {} bytes", bytes.len()));
    };
    match sign {
        0xC000 => return Ok("NaN".to_owned()),
        0xD000 => return Ok("Infinity".to_owned()),
        0xF000 => return Ok("-Infinity".to_owned()),
        _ => {}
    }
    if usize::from(*count) != digits.len() {
        return Err("holds a numeric that is cut short".to_owned());
    }
    let weight = i32::from(weight.cast_signed());
    let group = |place: i32| usize::try_from(place).ok().and_then(|place| digits.get(place)).copied().unwrap_or(0);
    let mut text = String::from(if *sign == 0x4000 { "-" } else { "" });
    if weight < 0 {
        text.push('0');
    }
    for place in 0..=weight {
        // A write to a string cannot fail.
        let _ = if place == 0 { write!(text, "{}", group(place)) } else { write!(text, "{:04}", group(place)) };
    }
    let scale = usize::from(*scale);
    if scale > 0 {
        let mut after = String::new();
        let mut place = weight + 1;
        while after.len() < scale {
            let _ = write!(after, "{:04}", group(place));
            place += 1;
        }
        text.push('.');
        text.push_str(&after[..scale]);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric_of(words: &[u16]) -> String {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        numeric(&bytes).unwrap()
    }

    #[test]
    fn numerics_are_read_exactly() {
        assert_eq!(numeric_of(&[0, 0, 0, 0]), "0");
        assert_eq!(numeric_of(&[0, 0, 0, 2]), "0.00");
        assert_eq!(numeric_of(&[2, 1, 0, 0, 1, 2345]), "12345");
        assert_eq!(numeric_of(&[1, 1, 0, 0, 1]), "10000");
        assert_eq!(numeric_of(&[2, 0, 0x4000, 2, 12, 3400]), "-12.34");
        assert_eq!(numeric_of(&[1, (-1i16).cast_unsigned(), 0, 3, 50]), "0.005");
        assert_eq!(numeric_of(&[1, (-2i16).cast_unsigned(), 0, 6, 1200]), "0.000012");
        assert_eq!(numeric_of(&[0, 0, 0xC000, 0]), "NaN");
    }

    #[test]
    fn times_are_text_for_users_and_numbers_for_us() {
        let bytes = 1_500_000i64.to_be_bytes();
        assert_eq!(
            Reader::Moment.read(&bytes, RowsFor::Users),
            Ok(SqlValue::Text("2000-01-01 00:00:01.500000".into()))
        );
        assert_eq!(Reader::Moment.read(&bytes, RowsFor::Ours), Ok(SqlValue::Integer(EPOCH_US + 1_500_000)));
        assert_eq!(date(-1).unwrap(), "1999-12-31");
        assert_eq!(time(3_723_000_004), "01:02:03.000004");
        assert!(moment(i64::MAX - 1).is_err());
    }

    #[test]
    fn an_unreadable_column_is_reported_with_its_type() {
        let why = Reader::of(&Type::INTERVAL).read(&[0; 16], RowsFor::Users).unwrap_err();
        assert!(why.contains("interval") && why.contains("cast"), "{why}");
    }
}
