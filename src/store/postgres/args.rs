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
            Self::Real(number) if *base(ty) == Type::FLOAT4 => out.put_f32(*number as f32),
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
}
