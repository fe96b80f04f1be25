//! Arguments and parameters for the server.

use super::texts;
use crate::store::database::link::{Arg, Call, Column};
use crate::store::{SqlStatement, SqlValue};
use crate::time::Timestamp;
use std::borrow::Cow;
use std::fmt::Write;
use tiberius::time::{Date, DateTime2, Time};
use tiberius::{ColumnData, Command, IntoSql, SqlTableDataRow, TableValueRow};

/// A batch with parameters, as `sp_executesql` takes it: one plan for each text, whatever the values.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    /// The batch.
    pub(super) text: String,
    types: String,
    names: Vec<String>,
    values: Vec<Value<'a>>,
}

/// The form of rows in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RowsForm {
    /// As a table-valued parameter.
    #[default]
    Table,
    /// As JSON, from which the batch fills a variable of the table type: Babelfish gives the rows of the first
    /// table-valued parameter of a session for every later one. Texts are a parameter of their own, because Babelfish leaves those of JSON escaped.
    Json,
}

#[derive(Debug)]
enum Value<'a> {
    One(ColumnData<'a>),
    Rows { table_type: String, rows: Vec<TableRow<'a>> },
}

/// Days from 0001-01-01 to 1970-01-01.
const EPOCH_DAY: i64 = 719_162;
const DAY_US: i64 = 86_400_000_000;

impl<'a> Request<'a> {
    /// A call of one of our procedures.
    pub(super) fn of_call(call: &'a Call<'a>, form: RowsForm) -> Self {
        let mut request = Self::default();
        let (mut arguments, mut filling) = (String::new(), String::new());
        for arg in &call.args {
            if !arguments.is_empty() {
                arguments.push_str(", ");
            }
            match arg {
                Arg::Null => arguments.push_str("NULL"),
                Arg::Rows { type_name, columns } if form == RowsForm::Json => {
                    let json = format!("@P{}", request.names.len() + 1);
                    let rows = format!("@R{}", request.names.len() + 1);
                    let text_parameter = format!("@T{}", request.names.len() + 1);
                    let (made, texts) = json_rows(columns);
                    filling.push_str(&texts::fill_rows(&rows, type_name, &json, &text_parameter, columns));
                    filling.push(' ');
                    request.add(json, "nvarchar(max)", Value::One(ColumnData::String(Some(made.into()))));
                    if columns.iter().any(|column| matches!(column, Column::Text(_))) {
                        request.add(
                            text_parameter,
                            "nvarchar(max)",
                            Value::One(ColumnData::String(Some(texts.into()))),
                        );
                    }
                    arguments.push_str(&rows);
                }
                arg => arguments.push_str(&request.add_arg(arg)),
            }
        }
        request.text = filling + &texts::call(call.name, &arguments);
        request
    }

    /// The user's own statement, whose parameters are `@P1`, `@P2` and so on. A NULL among them is written into the text,
    /// because only there it fits every type.
    pub(super) fn of_statement(statement: &'a SqlStatement) -> Self {
        let mut request = Self::default();
        let mut nulls = Vec::new();
        for (place, value) in statement.params.iter().enumerate() {
            let name = format!("@P{}", place + 1);
            let (sql_type, value) = match value {
                SqlValue::Null => {
                    nulls.push(name);
                    continue;
                }
                SqlValue::Integer(number) => ("bigint", ColumnData::I64(Some(*number))),
                SqlValue::Real(number) => ("float(53)", ColumnData::F64(Some(*number))),
                SqlValue::Text(text) => ("nvarchar(max)", ColumnData::String(Some(text.as_str().into()))),
                SqlValue::Blob(bytes) => ("varbinary(max)", ColumnData::Binary(Some(bytes.as_slice().into()))),
                SqlValue::Uuid(id) => ("uniqueidentifier", ColumnData::Guid(Some(*id))),
            };
            request.add(name, sql_type, Value::One(value));
        }
        request.text = if nulls.is_empty() { statement.text.clone() } else { with_nulls(&statement.text, &nulls) };
        request
    }

    /// The request for the server.
    pub(super) fn command(&self) -> Command<'_> {
        let mut command = Command::new("sp_executesql");
        command.bind_param("@stmt", Bound(ColumnData::String(Some(self.text.as_str().into()))));
        if !self.names.is_empty() {
            command.bind_param("@params", Bound(ColumnData::String(Some(self.types.as_str().into()))));
        }
        for (name, value) in self.names.iter().zip(&self.values) {
            match value {
                Value::One(value) => command.bind_param(name.as_str(), Bound(value.clone())),
                Value::Rows { table_type, rows } => {
                    command.bind_table_with_dbtype(name.as_str(), table_type, rows.iter().cloned());
                }
            }
        }
        command
    }

    fn add_arg(&mut self, arg: &'a Arg<'a>) -> String {
        let (sql_type, value) = match arg {
            Arg::Null => ("int", ColumnData::I32(None)),
            Arg::Bool(value) => ("bit", ColumnData::Bit(Some(*value))),
            Arg::Int(value) => ("int", ColumnData::I32(Some(*value))),
            Arg::BigInt(value) => ("bigint", ColumnData::I64(Some(*value))),
            Arg::Text(text) => ("nvarchar(max)", ColumnData::String(Some(Cow::Borrowed(text)))),
            Arg::Bytes(bytes) => ("varbinary(max)", ColumnData::Binary(Some(bytes.as_slice().into()))),
            Arg::Uuid(id) => ("uniqueidentifier", ColumnData::Guid(Some(*id))),
            Arg::Time(time) => ("datetime2(6)", ColumnData::DateTime2(Some(datetime(*time)))),
            Arg::Rows { type_name, columns } => {
                let name = format!("@P{}", self.names.len() + 1);
                let table_type = format!("dialoq.{type_name}");
                let declared = format!("{table_type} READONLY");
                self.add(name.clone(), &declared, Value::Rows { table_type, rows: rows(columns) });
                return name;
            }
        };
        let name = format!("@P{}", self.names.len() + 1);
        self.add(name.clone(), sql_type, Value::One(value));
        name
    }

    fn add(&mut self, name: String, sql_type: &str, value: Value<'a>) {
        let comma = if self.types.is_empty() { "" } else { ", " };
        let _ = write!(self.types, "{comma}{name} {sql_type}");
        self.names.push(name);
        self.values.push(value);
    }
}

/// A value for a parameter.
struct Bound<'a>(ColumnData<'a>);

impl<'a> IntoSql<'a> for Bound<'a> {
    fn into_sql(self) -> ColumnData<'a> {
        self.0
    }
}

/// A row of a table-valued parameter.
#[derive(Debug, Clone)]
struct TableRow<'a>(Vec<ColumnData<'a>>);

impl<'a> TableValueRow<'a> for TableRow<'a> {
    fn bind_fields(&self, row: &mut SqlTableDataRow<'a>) {
        for value in &self.0 {
            row.add_field(Bound(value.clone()));
        }
    }

    fn get_db_type() -> &'static str {
        // Every call names the type itself.
        "dialoq.rows"
    }
}

/// The same rows as a JSON array of objects, bytes in hexadecimal, and all texts one after the other: `c` of a text is the
/// place of its first character, from 1, and `n` its number of characters.
fn json_rows(columns: &[Column<'_>]) -> (String, String) {
    let (mut texts, mut characters) = (String::new(), 0);
    let made = rows(columns).into_iter().map(|row| {
        let mut cells = serde_json::Map::new();
        for (place, cell) in row.0.into_iter().enumerate() {
            let cell = match cell {
                ColumnData::I32(Some(number)) => number.into(),
                ColumnData::I64(Some(number)) => number.into(),
                ColumnData::String(Some(text)) => {
                    let (begins, length) = (characters + 1, text.chars().count());
                    texts.push_str(&text);
                    characters += length;
                    cells.insert(format!("n{place}"), length.into());
                    begins.into()
                }
                ColumnData::Guid(Some(id)) => id.to_string().into(),
                ColumnData::Binary(Some(bytes)) => {
                    let hex = bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
                        let _ = write!(hex, "{byte:02x}");
                        hex
                    });
                    hex.into()
                }
                _ => serde_json::Value::Null,
            };
            cells.insert(format!("c{place}"), cell);
        }
        serde_json::Value::Object(cells)
    });
    let made = serde_json::Value::Array(made.collect()).to_string();
    (made, texts)
}

/// The rows of the columns, each with its number before it.
fn rows<'a>(columns: &'a [Column<'a>]) -> Vec<TableRow<'a>> {
    let count = columns.first().map_or(0, |column| match column {
        Column::Int(values) => values.len(),
        Column::BigInt(values) => values.len(),
        Column::Text(values) => values.len(),
        Column::Bytes(values) => values.len(),
        Column::Uuid(values) => values.len(),
    });
    let cell = |column: &'a Column<'a>, place: usize| match column {
        Column::Int(values) => ColumnData::I32(values[place]),
        Column::BigInt(values) => ColumnData::I64(values[place]),
        Column::Text(values) => ColumnData::String(values[place].map(Cow::Borrowed)),
        Column::Bytes(values) => ColumnData::Binary(values[place].as_ref().map(|bytes| bytes.as_slice().into())),
        Column::Uuid(values) => ColumnData::Guid(values[place]),
    };
    (0..count)
        .map(|place| {
            let item = ColumnData::I32(Some(i32::try_from(place).unwrap_or(i32::MAX)));
            TableRow(std::iter::once(item).chain(columns.iter().map(|column| cell(column, place))).collect())
        })
        .collect()
}

fn datetime(time: Timestamp) -> DateTime2 {
    let days = (time.0.div_euclid(DAY_US) + EPOCH_DAY).max(0);
    let in_day = time.0.rem_euclid(DAY_US).unsigned_abs();
    DateTime2::new(Date::new(u32::try_from(days).unwrap_or(u32::MAX)), Time::new(in_day, 6))
}

/// The text with the parameters of these names replaced by NULL, outside strings, quoted names and comments.
fn with_nulls(text: &str, names: &[String]) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            '[' => rest.find(']').map_or(rest.len(), |end| end + 1),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            '@' | '#' | '_' | '$' => word(rest),
            first if first.is_alphanumeric() => word(rest),
            first => first.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        let is_null = names.iter().any(|name| name.eq_ignore_ascii_case(part));
        made.push_str(if is_null { "NULL" } else { part });
        rest = after;
    }
    made
}

/// The length of the name at the beginning of the text.
fn word(text: &str) -> usize {
    text.find(|found: char| !(found.is_alphanumeric() || "@#_$".contains(found))).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_call_has_its_arguments_in_order_and_nulls_as_they_are() {
        let args = vec![
            Arg::Uuid(Uuid::nil()),
            Arg::Null,
            Arg::Rows { type_name: "usage_rows", columns: vec![Column::Int(vec![Some(1), None])] },
            Arg::Text("x"),
        ];
        let call = Call { name: "put_x", args };
        let request = Request::of_call(&call, RowsForm::Table);
        assert_eq!(request.text, "EXEC dialoq.put_x @P1, NULL, @P2, @P3;");
        assert_eq!(request.types, "@P1 uniqueidentifier, @P2 dialoq.usage_rows READONLY, @P3 nvarchar(max)");
    }

    #[test]
    fn rows_can_go_as_json() {
        let columns = vec![
            Column::Bytes(vec![Some(std::sync::Arc::new(vec![1, 255])), None]),
            Column::Text(vec![Some("a\"🚚"), None]),
            Column::Text(vec![Some(""), Some("c")]),
        ];
        let args = vec![Arg::Text("q"), Arg::Rows { type_name: "x_rows", columns }];
        let call = Call { name: "put_x", args };
        let request = Request::of_call(&call, RowsForm::Json);
        assert_eq!(
            request.text,
            "DECLARE @R2 dialoq.x_rows;\nINSERT @R2 SELECT c0, CONVERT(varbinary(max), c1, 2), SUBSTRING(@T2, c2, n2), \
             SUBSTRING(@T2, c3, n3) FROM OPENJSON(@P2) WITH (c0 int, c1 varchar(max), c2 int, n2 int, c3 int, n3 int); \
             EXEC dialoq.put_x @P1, @R2;"
        );
        let text = |place: usize| match &request.values[place] {
            Value::One(ColumnData::String(Some(text))) => text.as_ref(),
            other => panic!("{other:?}"),
        };
        let json = r#"[{"c0":0,"c1":"01ff","c2":1,"c3":4,"n2":3,"n3":0},{"c0":1,"c1":null,"c2":null,"c3":4,"n3":1}]"#;
        assert_eq!((text(1), text(2)), (json, "a\"🚚c"));
        assert_eq!(request.types, "@P1 nvarchar(max), @P2 nvarchar(max), @T2 nvarchar(max)");
    }

    #[test]
    fn rows_count_from_zero() {
        let columns = [Column::Text(vec![Some("a"), None]), Column::BigInt(vec![None, Some(7)])];
        let made: Vec<Vec<ColumnData<'_>>> = rows(&columns).into_iter().map(|row| row.0).collect();
        let text = |text: Option<&'static str>| ColumnData::String(text.map(Cow::Borrowed));
        assert_eq!(made[0], [ColumnData::I32(Some(0)), text(Some("a")), ColumnData::I64(None)]);
        assert_eq!(made[1], [ColumnData::I32(Some(1)), text(None), ColumnData::I64(Some(7))]);
    }

    #[test]
    fn a_null_of_the_users_is_of_any_type() {
        let statement = SqlStatement {
            text: "INSERT t VALUES (@P1, @p2, @P12, '@P2''@P2', [@P2], \"@P2\") /* @P2 */ -- @P2\n, x@P2".to_owned(),
            params: vec![SqlValue::Integer(1), SqlValue::Null],
            expected_rows: None,
        };
        let request = Request::of_statement(&statement);
        assert_eq!(
            request.text,
            "INSERT t VALUES (@P1, NULL, @P12, '@P2''@P2', [@P2], \"@P2\") /* @P2 */ -- @P2\n, x@P2"
        );
        assert_eq!(request.types, "@P1 bigint");
    }

    #[test]
    fn times_are_days_since_year_one() {
        let time = datetime(Timestamp(-1));
        assert_eq!(time.date().days(), 719_161);
        assert_eq!((time.time().increments(), time.time().scale()), (86_399_999_999, 6));
    }
}
