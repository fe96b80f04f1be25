//! What the driver itself says to the server.

use crate::store::server::link::Column;
use std::fmt::Write;
use std::sync::LazyLock;

macro_rules! texts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<String> =
            LazyLock::new(|| without_header(include_str!(concat!("../../../sql/mssql/client/", $file, ".sql"))));)*
    };
}

texts! {
    SESSION = "session";
    BEGIN = "begin";
    COMMIT = "commit";
    ROLLBACK = "rollback";
    SAVE = "save";
    ROLLBACK_TO = "rollback_to";
    TRANSACTION_STATE = "transaction_state";
    HOLD_LOCKS = "hold_locks";
    CALL = "call";
    FILL_ROWS = "fill_rows";
    GUEST = "guest";
    QUERY = "query";
}

/// Headers are for readers; the server need not be sent them each time.
fn without_header(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n").trim().to_owned()
}

/// The text that marks a place.
pub(super) fn save(number: u32) -> String {
    SAVE.replace("<number>", &number.to_string())
}

/// The text that goes back to it.
pub(super) fn rollback_to(number: u32) -> String {
    ROLLBACK_TO.replace("<number>", &number.to_string())
}

/// The text that runs the user's query.
pub(super) fn query(text: &str) -> String {
    QUERY.replace("<query>", text)
}

/// The text that calls a procedure.
pub(super) fn call(name: &str, arguments: &str) -> String {
    CALL.replace("<name>", name).replace("<arguments>", arguments)
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
    let text = FILL_ROWS.replace("<rows>", rows).replace("<type>", type_name).replace("<json>", json);
    text.replace("<values>", &values).replace("<declarations>", &declarations)
}
