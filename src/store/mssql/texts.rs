//! Texts of `sql/mssql/client` with placeholders.

use crate::sql::mssql::client;
use crate::store::database::link::Column;
use std::fmt::Write;

/// Sets a savepoint.
pub(super) fn save(number: u32) -> String {
    client::SAVE.replace("<number>", &number.to_string())
}

/// Rolls back to a savepoint.
pub(super) fn rollback_to(number: u32) -> String {
    client::ROLLBACK_TO.replace("<number>", &number.to_string())
}

/// Runs the user's query.
pub(super) fn query(text: &str) -> String {
    client::QUERY.replace("<query>", text)
}

/// Calls a procedure.
pub(super) fn call(name: &str, arguments: &str) -> String {
    client::CALL.replace("<name>", name).replace("<arguments>", arguments)
}

/// Fills a variable with rows of JSON; `text_parameter` names the parameter with the texts.
pub(super) fn fill_rows(
    rows: &str,
    type_name: &str,
    json: &str,
    text_parameter: &str,
    columns: &[Column<'_>],
) -> String {
    let (mut values, mut declarations) = ("c0".to_owned(), "c0 int".to_owned());
    for (place, column) in (1..).zip(columns) {
        let sql_type = match column {
            Column::Int(_) | Column::Text(_) => "int",
            Column::BigInt(_) => "bigint",
            Column::Bytes(_) => "varchar(max)",
            Column::Uuid(_) => "uniqueidentifier",
        };
        let _ = write!(declarations, ", c{place} {sql_type}");
        let _ = match column {
            Column::Bytes(_) => write!(values, ", CONVERT(varbinary(max), c{place}, 2)"),
            Column::Text(_) => {
                let _ = write!(declarations, ", n{place} int");
                write!(values, ", SUBSTRING({text_parameter}, c{place}, n{place})")
            }
            _ => write!(values, ", c{place}"),
        };
    }
    let text = client::FILL_ROWS.replace("<rows>", rows).replace("<type>", type_name).replace("<json>", json);
    text.replace("<values>", &values).replace("<declarations>", &declarations)
}
