//! What the driver itself says to the server.

use crate::sql::mssql::client;
use crate::store::database::link::Column;
use std::fmt::Write;

/// The text that marks a place.
pub(super) fn save(number: u32) -> String {
    client::SAVE.replace("<number>", &number.to_string())
}

/// The text that goes back to it.
pub(super) fn rollback_to(number: u32) -> String {
    client::ROLLBACK_TO.replace("<number>", &number.to_string())
}

/// The text that runs the user's query.
pub(super) fn query(text: &str) -> String {
    client::QUERY.replace("<query>", text)
}

/// The text that calls a procedure.
pub(super) fn call(name: &str, arguments: &str) -> String {
    client::CALL.replace("<name>", name).replace("<arguments>", arguments)
}

/// The text that fills a variable with rows of JSON; `beside` is the parameter that has the texts.
pub(super) fn fill_rows(rows: &str, type_name: &str, json: &str, beside: &str, columns: &[Column<'_>]) -> String {
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
                write!(values, ", SUBSTRING({beside}, c{place}, n{place})")
            }
            _ => write!(values, ", c{place}"),
        };
    }
    let text = client::FILL_ROWS.replace("<rows>", rows).replace("<type>", type_name).replace("<json>", json);
    text.replace("<values>", &values).replace("<declarations>", &declarations)
}
