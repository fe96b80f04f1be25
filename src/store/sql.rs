//! The user's own SQL as it crosses the seam: text, parameters, and the expected result.

use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, DeadLetterId, GroupId, JobId, MessageId};
use crate::time::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use uuid::Uuid;

/// One value of a parameter or a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// An integer, also booleans and times.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
    /// A UUID, as our ids are: the 16 bytes in SQLite, a `uuid` or `uniqueidentifier` elsewhere. For parameters only: a
    /// query returns it as bytes or text, and [`SqlRow::get`] reads both.
    Uuid(Uuid),
}

/// A statement with its parameters, always bound, never spliced.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlStatement {
    /// The text in the store's dialect.
    pub text: String,
    /// The parameters in order.
    pub params: Vec<SqlValue>,
    /// How many rows it must change; another number fails the transaction with 60022.
    pub expected_rows: Option<u64>,
}

impl SqlStatement {
    /// Refuses a text with a NUL character: SQLite would run the part before it, and PostgreSQL's protocol cannot send it.
    ///
    /// # Errors
    /// 60022
    pub(crate) fn checked(self) -> Result<Self> {
        if !self.text.contains('\0') {
            return Ok(self);
        }
        let shown: String = self.text.trim().chars().take(80).collect();
        Err(Error::new(
            Code::USER_SQL_FAILED,
            format!(
                "the statement {shown:?} was not run: it holds a NUL character; remove it, or give it as a parameter"
            ),
        ))
    }
}

/// The rows of a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SqlRows {
    /// The names of the columns.
    pub columns: Arc<[String]>,
    /// The rows.
    pub rows: Vec<SqlRow>,
}

/// One row of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlRow {
    pub(crate) columns: Arc<[String]>,
    pub(crate) values: Vec<SqlValue>,
}

impl SqlRow {
    /// The value of a column by name.
    ///
    /// # Errors
    /// 60022 if there is no such column or its value is of another type.
    pub fn get<T: FromSqlValue>(&self, column: &str) -> Result<T> {
        let refuse = |why: String| Error::new(Code::USER_SQL_FAILED, why);
        let place = self.columns.iter().position(|name| name == column).ok_or_else(|| {
            refuse(format!("the query gives no column '{column}'; its columns are {}", self.columns.join(", ")))
        })?;
        T::from_sql_value(&self.values[place])
            .ok_or_else(|| refuse(format!("column '{column}' holds {:?}, not the type asked for", self.values[place])))
    }

    /// As [`SqlRow::get`], of a row of Dialoq's own.
    ///
    /// # Errors
    /// 60014 if there is no such column or its value is of another type.
    pub(crate) fn own<T: FromSqlValue>(&self, column: &str) -> Result<T> {
        let damaged =
            |error: Error| Error::new(Code::STORE_DAMAGED, format!("{}; the database is damaged", error.message()));
        self.get(column).map_err(damaged)
    }

    /// A number of Dialoq's own that is not below zero.
    ///
    /// # Errors
    /// As [`SqlRow::own`].
    pub(crate) fn count(&self, column: &str) -> Result<u64> {
        Ok(u64::try_from(self.own::<i64>(column)?).unwrap_or_default())
    }

    /// The values in the order of the columns.
    pub fn values(&self) -> &[SqlValue] {
        &self.values
    }
}

/// A type a column can be read as: what can be a parameter, and [`Timestamp`].
pub trait FromSqlValue: Sized {
    /// The value, if it is of this type.
    fn from_sql_value(value: &SqlValue) -> Option<Self>;
}

impl FromSqlValue for i64 {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {
        $(impl FromSqlValue for $type {
            fn from_sql_value(value: &SqlValue) -> Option<Self> {
                i64::from_sql_value(value)?.try_into().ok()
            }
        })*
    };
}

whole_numbers! { i32 i16 u64 u32 u16 u8 }

impl FromSqlValue for bool {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        i64::from_sql_value(value).map(|number| number != 0)
    }
}

impl FromSqlValue for f64 {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Real(number) => Some(*number),
            SqlValue::Integer(number) => Some(*number as f64),
            _ => None,
        }
    }
}

impl FromSqlValue for String {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromSqlValue for Vec<u8> {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

/// From the 16 bytes that SQLite keeps, or from text, as servers give it.
impl FromSqlValue for Uuid {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Uuid(id) => Some(*id),
            SqlValue::Blob(bytes) => Self::from_slice(bytes).ok(),
            SqlValue::Text(text) => Self::parse_str(text).ok(),
            _ => None,
        }
    }
}

/// From microseconds since 1970, as Dialoq's tables in SQLite have times, or from text, as servers give them: UTC, if the text names
/// no zone.
impl FromSqlValue for Timestamp {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Integer(us) => Some(Self(*us)),
            SqlValue::Text(text) => Self::from_text(text),
            _ => None,
        }
    }
}

macro_rules! ids {
    ($($name:ident)*) => {
        $(impl FromSqlValue for $name {
            fn from_sql_value(value: &SqlValue) -> Option<Self> {
                FromSqlValue::from_sql_value(value).map(Self)
            }
        })*
    };
}

ids! { ConversationHandle ConversationId GroupId MessageId JobId DeadLetterId }

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Null => Some(None),
            other => T::from_sql_value(other).map(Some),
        }
    }
}

macro_rules! value_from {
    ($($type:ty => |$value:ident| $made:expr;)*) => {
        $(impl From<$type> for SqlValue {
            fn from($value: $type) -> Self {
                $made
            }
        })*
    };
}

value_from! {
    i64 => |value| Self::Integer(value);
    i32 => |value| Self::Integer(value.into());
    i16 => |value| Self::Integer(value.into());
    u32 => |value| Self::Integer(value.into());
    u16 => |value| Self::Integer(value.into());
    u8 => |value| Self::Integer(value.into());
    bool => |value| Self::Integer(value.into());
    f64 => |value| Self::Real(value);
    &str => |value| Self::Text(value.to_owned());
    String => |value| Self::Text(value);
    &[u8] => |value| Self::Blob(value.to_vec());
    Vec<u8> => |value| Self::Blob(value);
    Uuid => |value| Self::Uuid(value);
    ConversationHandle => |value| value.0.into();
    ConversationId => |value| value.0.into();
    GroupId => |value| value.0.into();
    MessageId => |value| value.0.into();
    JobId => |value| number_of(value.0);
    DeadLetterId => |value| number_of(value.0);
}

/// No column holds a higher number than the highest that is signed.
fn number_of(id: u64) -> SqlValue {
    SqlValue::Integer(i64::try_from(id).unwrap_or(i64::MAX))
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The parameters of a statement: `()`, a tuple, or a list.
pub trait IntoSqlParams {
    /// The values in order.
    fn into_sql_params(self) -> Vec<SqlValue>;
}

impl IntoSqlParams for () {
    fn into_sql_params(self) -> Vec<SqlValue> {
        Vec::new()
    }
}

impl IntoSqlParams for Vec<SqlValue> {
    fn into_sql_params(self) -> Vec<SqlValue> {
        self
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))*) => {
        $(impl<$($name: Into<SqlValue>),+> IntoSqlParams for ($($name,)+) {
            #[allow(non_snake_case)]
            fn into_sql_params(self) -> Vec<SqlValue> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        })*
    };
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: FromSqlValue>(value: impl Into<SqlValue>) -> Option<T> {
        T::from_sql_value(&value.into())
    }

    #[test]
    fn what_was_written_is_read_in_its_type() {
        let id = Uuid::from_u128(7);
        assert_eq!(read(id), Some(ConversationHandle(id)));
        assert_eq!(read(id.as_bytes().to_vec()), Some(GroupId(id)), "SQLite");
        assert_eq!(read(id.to_string().to_uppercase()), Some(MessageId(id)), "SQL Server");
        assert_eq!(read(id.simple().to_string()), Some(ConversationId(id)));
        assert_eq!(read::<Uuid>(vec![7; 15]), None);
        assert_eq!(read(JobId(5)), Some(JobId(5)));
        assert_eq!(read(DeadLetterId(u64::MAX)), Some(DeadLetterId(i64::MAX as u64)));
        assert_eq!((read(true), read(0)), (Some(true), Some(false)));
        assert_eq!((read(255), read::<u8>(256), read::<u32>(-1)), (Some(255_u8), None, None));
        assert_eq!(read::<Option<u16>>(None::<u16>), Some(None));
    }

    #[test]
    fn a_time_is_read_as_each_store_gives_it() {
        let time = Timestamp(1_767_225_600_123_456);
        assert_eq!(read(time.0), Some(time));
        for text in ["2026-01-01 00:00:00.123456", "2026-01-01T00:00:00.123456Z", "2026-01-01 01:00:00.123456+01:00"] {
            assert_eq!(read(text), Some(time), "{text}");
        }
        assert_eq!(read("2026-01-01 00:00:00"), Some(Timestamp(1_767_225_600_000_000)), "SQLite's datetime()");
        for text in ["yesterday", "infinity", "2026-13-01 00:00:00", "2026-01-01 00:00:00[Europe/Berlin]", ""] {
            assert_eq!(read::<Timestamp>(text), None, "{text}");
        }
    }
}
