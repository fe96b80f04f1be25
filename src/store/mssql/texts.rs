//! What the driver itself says to the server.

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

/// The text that calls a procedure.
pub(super) fn call(name: &str, arguments: &str) -> String {
    CALL.replace("<name>", name).replace("<arguments>", arguments)
}
