//! Values for the server, in the binary format of the type that the server declares.

use crate::store::SqlValue;
use crate::store::database::link::{Arg, Column};
use bytes::{BufMut, BytesMut};
use std::error::Error;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

/// Microseconds from 1970, the start of our times, to 2000, the start of the server's.
pub(super) const EPOCH_US: i64 = 946_684_800_000_000;

type Written = Result<IsNull, Box<dyn Error + Sync + Send>>;

/// An argument of a call, or one column of its rows.
#[derive(Debug)]
pub(super) enum Argument<'a> {
    One(&'a Arg<'a>),
    Column(&'a Column<'a>),
}

/// The arguments of a call as the function declares them: rows become one array for each column.
pub(super) fn arguments<'a>(args: &'a [Arg<'a>]) -> Vec<Argument<'a>> {
    let mut flat = Vec::with_capacity(args.len() + 6);
    for arg in args {
        match arg {
            Arg::Rows { columns, .. } => flat.extend(columns.iter().map(Argument::Column)),
            one => flat.push(Argument::One(one)),
        }
    }
    flat
}

impl Argument<'_> {
    /// The type to declare if the statement is not prepared on the server first.
    pub(super) fn declared(&self) -> Type {
        match self {
            Self::One(arg) => match arg {
                Arg::Null | Arg::Rows { .. } => Type::UNKNOWN,
                Arg::Bool(_) => Type::BOOL,
                Arg::Int(_) => Type::INT4,
                Arg::BigInt(_) => Type::INT8,
                Arg::Text(_) => Type::TEXT,
                Arg::Bytes(_) => Type::BYTEA,
                Arg::Uuid(_) => Type::UUID,
                Arg::Time(_) => Type::TIMESTAMPTZ,
            },
            Self::Column(column) => match column {
                Column::Int(_) => Type::INT4_ARRAY,
                Column::BigInt(_) => Type::INT8_ARRAY,
                Column::Text(_) => Type::TEXT_ARRAY,
                Column::Bytes(_) => Type::BYTEA_ARRAY,
                Column::Uuid(_) => Type::UUID_ARRAY,
            },
        }
    }
}

impl ToSql for Argument<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        match self {
            Self::One(arg) => match arg {
                Arg::Null => return Ok(IsNull::Yes),
                Arg::Bool(value) => integer(i64::from(*value), ty, out)?,
                Arg::Int(value) => integer(i64::from(*value), ty, out)?,
                Arg::BigInt(value) => integer(*value, ty, out)?,
                Arg::Text(text) => out.extend_from_slice(text.as_bytes()),
                Arg::Bytes(bytes) => out.extend_from_slice(bytes),
                Arg::Uuid(id) => out.extend_from_slice(id.as_bytes()),
                Arg::Time(moment) => integer(moment.0, ty, out)?,
                Arg::Rows { .. } => return Err("rows are handed over by column".into()),
            },
            Self::Column(column) => {
                let Kind::Array(member) = ty.kind() else {
                    return Err(format!("the function takes {ty} where a column of rows is given").into());
                };
                match column {
                    Column::Int(values) => {
                        array(member, values, out, |value, out| integer((*value).into(), member, out))?
                    }
                    Column::BigInt(values) => array(member, values, out, |value, out| integer(*value, member, out))?,
                    Column::Text(values) => array(member, values, out, |text, out| plain(text.as_bytes(), out))?,
                    Column::Bytes(values) => array(member, values, out, |bytes, out| plain(bytes, out))?,
                    Column::Uuid(values) => array(member, values, out, |id, out| plain(id.as_bytes(), out))?,
                }
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl ToSql for SqlValue {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Integer(number) if is_numeric(ty) => integer(*number, ty, out)?,
            Self::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Real(number) if *base(ty) == Type::FLOAT8 => out.put_f64(*number),
            Self::Real(number) if *base(ty) == Type::FLOAT4 => {
                let narrowed = *number as f32;
                if number.is_finite() && !narrowed.is_finite() {
                    return Err(format!("{number} is out of the range of type {ty}").into());
                }
                out.put_f32(narrowed);
            }
            Self::Real(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Uuid(id) => match *base(ty) {
                Type::UUID | Type::BYTEA => out.extend_from_slice(id.as_bytes()),
                _ => out.extend_from_slice(id.to_string().as_bytes()),
            },
            Self::Blob(bytes) => {
                match *base(ty) {
                    Type::BYTEA => {}
                    Type::UUID if bytes.len() == 16 => {}
                    Type::UUID => return Err(format!("an id has 16 bytes, this value has {}", bytes.len()).into()),
                    _ => return Err(format!("bytes do not fit type {ty}; only bytea and uuid take bytes").into()),
                }
                out.extend_from_slice(bytes);
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    /// Text in the server's text format, which every type reads.
    fn encode_format(&self, ty: &Type) -> Format {
        let is_text = match self {
            Self::Null | Self::Blob(_) => false,
            Self::Integer(_) => !is_numeric(ty),
            Self::Real(_) => ![Type::FLOAT4, Type::FLOAT8].contains(base(ty)),
            Self::Text(_) => true,
            Self::Uuid(_) => ![Type::UUID, Type::BYTEA].contains(base(ty)),
        };
        if is_text { Format::Text } else { Format::Binary }
    }

    to_sql_checked!();
}

/// Whether a parameter that the server once declared to be of this type still gives the value whole. The declaration stays with a prepared
/// statement when its column becomes another one by ALTER TABLE: a date then cut off the time of day that the column has now.
pub(super) fn fits(value: &SqlValue, ty: &Type) -> bool {
    let ty = base(ty);
    match value {
        SqlValue::Null | SqlValue::Uuid(_) => true,
        SqlValue::Integer(number) => match *ty {
            Type::INT2 => i16::try_from(*number).is_ok(),
            Type::INT4 => i32::try_from(*number).is_ok(),
            Type::OID => u32::try_from(*number).is_ok(),
            // The digits that the server gives back.
            Type::FLOAT4 => number.unsigned_abs() < 1_000_000,
            Type::FLOAT8 => number.unsigned_abs() < 1_000_000_000_000_000,
            Type::BOOL => matches!(number, 0 | 1),
            _ => true,
        },
        SqlValue::Real(number) => match *ty {
            Type::FLOAT4 => f64::from(*number as f32) == *number,
            Type::FLOAT8 | Type::NUMERIC => true,
            _ => is_text(ty),
        },
        SqlValue::Text(text) => text_fits(text, ty),
        SqlValue::Blob(bytes) => *ty == Type::BYTEA || *ty == Type::UUID && bytes.len() == 16,
    }
}

/// Whether a type keeps a text letter by letter, or refuses it.
fn is_text(ty: &Type) -> bool {
    let types = [Type::TEXT, Type::VARCHAR, Type::JSON, Type::JSONB, Type::XML, Type::UNKNOWN, Type::BYTEA];
    types.contains(ty) || ty.name() == "citext" || matches!(ty.kind(), Kind::Enum(_))
}

fn text_fits(text: &str, ty: &Type) -> bool {
    let are_digits =
        |part: &str, others: &[u8]| part.bytes().all(|byte| byte.is_ascii_digit() || others.contains(&byte));
    match *ty {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            text.parse::<i64>().is_ok_and(|number| number.to_string() == text && fits(&SqlValue::Integer(number), ty))
        }
        Type::NUMERIC => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let whole = digits.split('.').next().unwrap_or_default();
            are_digits(digits, b".") && !whole.is_empty() && (whole == "0" || !whole.starts_with('0'))
        }
        Type::BOOL => matches!(text, "true" | "false"),
        Type::UUID => uuid::Uuid::parse_str(text).is_ok_and(|id| id.to_string() == text),
        Type::DATE => {
            let parts: Vec<&str> = text.split('-').collect();
            parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.iter().all(|part| are_digits(part, b""))
        }
        // A moment: in which form the server writes it matters only to a column of text.
        Type::TIMESTAMPTZ => true,
        // It has no zone, and a text may have one.
        Type::TIMESTAMP => text.get(11..).is_some_and(|time| are_digits(time, b":.")),
        Type::TIME => are_digits(text, b":."),
        Type::BPCHAR => !text.ends_with(' '),
        Type::NAME => text.len() < 64,
        _ => match ty.kind() {
            Kind::Array(member) => is_text(base(member)),
            _ => is_text(ty),
        },
    }
}

/// The type under a domain.
pub(super) fn base(ty: &Type) -> &Type {
    match ty.kind() {
        Kind::Domain(inner) => base(inner),
        _ => ty,
    }
}

/// Whether [`integer`] can write it.
fn is_numeric(ty: &Type) -> bool {
    let types = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::OID,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::TIMESTAMPTZ,
        Type::TIMESTAMP,
    ];
    types.contains(base(ty))
}

fn integer(value: i64, ty: &Type, out: &mut BytesMut) -> Result<(), Box<dyn Error + Sync + Send>> {
    let beyond = |_| format!("{value} is out of the range of type {ty}");
    match *base(ty) {
        Type::INT8 => out.put_i64(value),
        Type::INT4 => out.put_i32(i32::try_from(value).map_err(beyond)?),
        Type::INT2 => out.put_i16(i16::try_from(value).map_err(beyond)?),
        Type::OID => out.put_u32(u32::try_from(value).map_err(beyond)?),
        Type::BOOL => out.put_u8(u8::from(value != 0)),
        Type::FLOAT8 => out.put_f64(value as f64),
        Type::FLOAT4 => out.put_f32(value as f32),
        Type::TIMESTAMPTZ | Type::TIMESTAMP => out.put_i64(value.saturating_sub(EPOCH_US)),
        _ => return Err(format!("a number does not fit type {ty}").into()),
    }
    Ok(())
}

fn plain(bytes: &[u8], out: &mut BytesMut) -> Result<(), Box<dyn Error + Sync + Send>> {
    out.extend_from_slice(bytes);
    Ok(())
}

/// An array of one dimension in the server's own format.
fn array<T>(
    member: &Type,
    values: &[Option<T>],
    out: &mut BytesMut,
    write: impl Fn(&T, &mut BytesMut) -> Result<(), Box<dyn Error + Sync + Send>>,
) -> Result<(), Box<dyn Error + Sync + Send>> {
    if values.is_empty() {
        out.put_i32(0);
        out.put_i32(0);
        out.put_u32(member.oid());
        return Ok(());
    }
    out.put_i32(1);
    out.put_i32(i32::from(values.iter().any(Option::is_none)));
    out.put_u32(member.oid());
    out.put_i32(i32::try_from(values.len())?);
    out.put_i32(1);
    for value in values {
        let Some(value) = value else {
            out.put_i32(-1);
            continue;
        };
        let length_at = out.len();
        out.put_i32(0);
        write(value, out)?;
        let length = i32::try_from(out.len() - length_at - 4)?;
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &impl ToSql, ty: &Type) -> Result<Vec<u8>, String> {
        let mut out = BytesMut::new();
        value.to_sql(ty, &mut out).map_err(|error| error.to_string())?;
        Ok(out.to_vec())
    }

    #[test]
    fn numbers_take_the_width_of_the_declared_type() {
        assert_eq!(written(&SqlValue::Integer(7), &Type::INT2).unwrap(), [0, 7]);
        assert_eq!(written(&SqlValue::Integer(7), &Type::INT4).unwrap(), [0, 0, 0, 7]);
        assert_eq!(written(&SqlValue::Integer(1), &Type::BOOL).unwrap(), [1]);
        assert_eq!(written(&SqlValue::Integer(7), &Type::NUMERIC).unwrap(), b"7");
        assert!(matches!(SqlValue::Integer(7).encode_format(&Type::NUMERIC), Format::Text));
        assert_eq!(written(&SqlValue::Integer(EPOCH_US), &Type::TIMESTAMPTZ).unwrap(), [0; 8]);
        assert!(written(&SqlValue::Integer(40_000), &Type::INT2).unwrap_err().contains("40000"));
        assert!(written(&SqlValue::Real(1e300), &Type::FLOAT4).unwrap_err().contains("out of the range"));
        assert_eq!(written(&SqlValue::Real(f64::INFINITY), &Type::FLOAT4).unwrap(), f32::INFINITY.to_be_bytes());
    }

    #[test]
    fn bytes_are_ids_where_ids_are_declared() {
        assert_eq!(written(&SqlValue::Blob(vec![1; 16]), &Type::UUID).unwrap(), [1; 16]);
        assert!(written(&SqlValue::Blob(vec![1; 15]), &Type::UUID).unwrap_err().contains("15"));
        assert!(written(&SqlValue::Blob(vec![1]), &Type::TEXT).unwrap_err().contains("bytea"));
    }

    #[test]
    fn a_column_is_an_array_with_its_nulls() {
        let column = Column::Text(vec![Some("ab"), None]);
        let bytes = written(&Argument::Column(&column), &Type::TEXT_ARRAY).unwrap();
        let expected =
            [&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 2, 0, 0, 0, 1][..], &[0, 0, 0, 2], b"ab", &[255; 4]];
        assert_eq!(bytes, expected.concat());
        let none = Column::Int(Vec::new());
        assert_eq!(
            written(&Argument::Column(&none), &Type::INT4_ARRAY).unwrap(),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 23]
        );
        assert!(written(&Argument::Column(&none), &Type::INT4).is_err());
    }

    #[test]
    fn a_declared_type_fits_a_value_that_it_keeps_whole() {
        let text = |text: &str| SqlValue::Text(text.to_owned());
        for (value, ty) in [
            (SqlValue::Null, Type::DATE),
            (SqlValue::Integer(-32_768), Type::INT2),
            (SqlValue::Integer(1), Type::BOOL),
            (SqlValue::Integer(999_999), Type::FLOAT4),
            (text("-1.50"), Type::NUMERIC),
            (text("{a,b}"), Type::TEXT_ARRAY),
            (text("12:30"), Type::TIME),
            (SqlValue::Real(0.1), Type::FLOAT8),
            (SqlValue::Real(0.5), Type::FLOAT4),
            (text("7"), Type::INT4),
            (text("2026-12-31"), Type::DATE),
            (text("2026-12-31 23:59:59.5"), Type::TIMESTAMP),
            (text("2026-12-31 23:59:59+02"), Type::TIMESTAMPTZ),
            (text("x "), Type::TEXT),
            (text("true"), Type::BOOL),
            (text("00000000-0000-0000-0000-00000000000a"), Type::UUID),
            (SqlValue::Blob(vec![1; 16]), Type::UUID),
        ] {
            assert!(fits(&value, &ty), "{value:?} {ty}");
        }
        for (value, ty) in [
            (SqlValue::Integer(32_768), Type::INT2),
            (SqlValue::Integer(1 << 31), Type::INT4),
            (SqlValue::Integer(-1), Type::OID),
            (SqlValue::Integer(2), Type::BOOL),
            (SqlValue::Integer(1 << 24), Type::FLOAT4),
            (SqlValue::Real(0.5), Type::INT4),
            (text("007"), Type::NUMERIC),
            (text("{2026-01-01 12:30}"), Type::DATE_ARRAY),
            (text("12:30+05"), Type::TIME),
            (text("1234567890"), Type::DATE),
            (text("1 day"), Type::INTERVAL),
            (SqlValue::Real(0.1), Type::FLOAT4),
            (text("007"), Type::INT4),
            (text("3000000000"), Type::INT4),
            (text("0.1"), Type::FLOAT4),
            (text("2026-12-31 12:00"), Type::DATE),
            (text("20261231"), Type::DATE),
            (text("2026-12-31 23:59:59+02"), Type::TIMESTAMP),
            (text("x "), Type::BPCHAR),
            (text("yes"), Type::BOOL),
            (text("00000000-0000-0000-0000-00000000000A"), Type::UUID),
            (SqlValue::Blob(vec![1; 3]), Type::TEXT),
        ] {
            assert!(!fits(&value, &ty), "{value:?} {ty}");
        }
    }
}
