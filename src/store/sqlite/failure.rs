//! SQLite's failures as errors of ours.

use crate::error::{Code, Error};
use rusqlite::ErrorCode;

/// The error for a failure of SQLite when the store itself was reading or writing.
pub(super) fn storage(doing: &str, error: rusqlite::Error) -> Error {
    let (code, why) = judge(&error);
    Error::new(code, format!("{doing}: {why} ({error})")).caused_by(error)
}

/// The error of a query of the broker's own. The user's queries and these are run by the same functions, so an error of SQLite comes as
/// that of the user's SQL, 60022. A damaged file is reported as one.
pub fn of_own_query(error: Error) -> Error {
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
    match cause {
        Some(cause) if error.code() == Code::USER_SQL_FAILED => {
            let (code, why) = judge(cause);
            Error::new(code, format!("reading the tables of the broker: {why} ({cause})"))
        }
        _ => error,
    }
}

/// The code for a failure of SQLite in the store's own tables, and its cause with what to do.
fn judge(error: &rusqlite::Error) -> (Code, &'static str) {
    match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) if has_no_descriptor() => (
            Code::STORE_IO,
            "this process or the system has no free file descriptor; close files and connections, or raise the limit (ulimit -n)",
        ),
        Some(ErrorCode::NotADatabase) => {
            (Code::STORE_FOREIGN, "it is not a SQLite database, or its first page is damaged")
        }
        Some(ErrorCode::DatabaseCorrupt) => (Code::STORE_DAMAGED, "the file is damaged; restore it from a copy"),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            Code::STORE_READ_ONLY,
            "the file, its folder, or the -wal or -shm beside it cannot be read or written, or a newer SQLite made the file",
        ),
        Some(ErrorCode::DiskFull) => (Code::STORE_FULL, "the disk is full; make room on it"),
        // Only a batch that uses up the room of the log is interrupted.
        Some(ErrorCode::OperationInterrupted) => (
            Code::STORE_FULL,
            "the disk is almost full, and what is left is needed to write what was committed before into the file; make room on it",
        ),
        _ if is_index_full(error) => {
            (Code::STORE_FULL, "the disk is full, so the index of the log (-shm) cannot grow; make room on it")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            (Code::STORE_OWNED, "another program holds a lock on the file for too long")
        }
        _ => match error {
            rusqlite::Error::StatementChangedRows(_) => (
                Code::STORE_CHANGED,
                "another program changed or deleted a row of the broker; open the database again, and keep other programs \
                 off the tables dialoq_*",
            ),
            // A value of the wrong type in one of our own tables.
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::QueryReturnedNoRows => {
                (Code::STORE_DAMAGED, "the tables do not hold what they must; restore the file from a copy")
            }
            // All texts are our own, so a table or a column is missing.
            rusqlite::Error::SqlInputError { .. } => (Code::STORE_DAMAGED, TABLES_DIFFER),
            _ if error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_ERROR) => {
                (Code::STORE_DAMAGED, TABLES_DIFFER)
            }
            _ => (Code::STORE_IO, "the store failed"),
        },
    }
}

const TABLES_DIFFER: &str = "the tables are not what they must be; restore the file from a copy";

/// Whether no more files can be opened, of the few that an opening needs. SQLite does not say why it could not open one, and has closed
/// those that it could.
fn has_no_descriptor() -> bool {
    /// EMFILE and ENFILE, on Linux, macOS and the BSDs.
    const TOO_MANY: [i32; 2] = [24, 23];
    /// The database, its log, the index of the log, and its folder.
    const NEEDED: usize = 4;
    let opened: std::io::Result<Vec<_>> = (0..NEEDED).map(|_| std::fs::File::open("/dev/null")).collect();
    cfg!(unix) && opened.is_err_and(|error| error.raw_os_error().is_some_and(|code| TOO_MANY.contains(&code)))
}

/// Whether the disk had no room for more of the index of the log. SQLite names any other cause too by this, but it has only written a byte to
/// a file that it has open.
pub(super) fn is_index_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// Whether the store has failed because the disk was full.
pub(super) fn is_of_full_disk(failure: &Error) -> bool {
    [Code::STORE_FULL, Code::COMMIT_UNKNOWN].contains(&failure.code())
}

/// Whether another program holds the needed lock, so that nothing was written.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The tables contradict themselves.
pub(super) fn damaged(why: impl std::fmt::Display) -> Error {
    Error::new(Code::STORE_DAMAGED, format!("the database is damaged: {why}; restore it from a copy"))
}

/// The user's own SQL failed.
pub(super) fn user(text: &str, why: impl std::fmt::Display) -> Error {
    let shown: String = text.trim().chars().take(80).collect();
    let dots = if text.trim().chars().count() > 80 { "..." } else { "" };
    Error::new(Code::USER_SQL_FAILED, format!("the statement '{shown}{dots}' failed: {why}"))
}

/// The user's own SQL failed in SQLite. Of a text that SQLite cannot read, its own message repeats the whole.
pub(super) fn user_failed(text: &str, error: rusqlite::Error) -> Error {
    let refusal = match &error {
        rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
            let before = usize::try_from(*offset).ok().and_then(|offset| sql.get(..offset));
            match before {
                Some(before) => user(text, format!("{msg}, at character {}", before.chars().count() + 1)),
                None => user(text, msg),
            }
        }
        error => user(text, error),
    };
    refusal.caused_by(error)
}

/// An earlier commit failed.
pub(super) fn poisoned(first: &str) -> Error {
    Error::new(
        Code::STORE_POISONED,
        format!("an earlier commit failed, so nothing more is taken until the store is opened again: {first}"),
    )
}

/// The same for a store that is opened again because the disk was full. The call has not happened.
pub(super) fn opened_again(first: &str) -> Error {
    Error::new(
        Code::OWNER_GONE,
        format!(
            "an earlier commit met a full disk, so the database is opened again; the call has not happened, and its transaction was \
             rolled back: try again ({first})"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn every_failure_of_sqlite_has_a_code() {
        for (number, code) in [
            (ffi::SQLITE_NOTADB, Code::STORE_FOREIGN),
            (ffi::SQLITE_CORRUPT, Code::STORE_DAMAGED),
            (ffi::SQLITE_READONLY, Code::STORE_READ_ONLY),
            (ffi::SQLITE_CANTOPEN, Code::STORE_READ_ONLY),
            (ffi::SQLITE_PERM, Code::STORE_READ_ONLY),
            (ffi::SQLITE_FULL, Code::STORE_FULL),
            (ffi::SQLITE_IOERR_SHMSIZE, Code::STORE_FULL),
            (ffi::SQLITE_BUSY, Code::STORE_OWNED),
            (ffi::SQLITE_LOCKED, Code::STORE_OWNED),
            (ffi::SQLITE_PROTOCOL, Code::STORE_OWNED),
            (ffi::SQLITE_ERROR, Code::STORE_DAMAGED),
            (ffi::SQLITE_IOERR, Code::STORE_IO),
        ] {
            let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(number), None);
            assert_eq!(is_busy(&failure), [ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED].contains(&number), "{failure}");
            let error = storage("testing", failure);
            assert_eq!(error.code(), code, "{error}");
            assert!(error.message().starts_with("testing: "), "{error}");
        }
        for value in [
            rusqlite::Error::InvalidColumnType(0, "state".to_owned(), rusqlite::types::Type::Text),
            rusqlite::Error::IntegralValueOutOfRange(0, -1),
            rusqlite::Error::QueryReturnedNoRows,
            rusqlite::Error::Utf8Error(3, String::from_utf8(vec![0xff]).unwrap_err().utf8_error()),
            rusqlite::Connection::open_in_memory().unwrap().prepare("SELECT missing").unwrap_err(),
        ] {
            assert_eq!(storage("testing", value).code(), Code::STORE_DAMAGED);
        }
        assert_eq!(storage("testing", rusqlite::Error::StatementChangedRows(0)).code(), Code::STORE_CHANGED);
    }

    #[test]
    fn a_query_of_the_brokers_own_reports_a_damaged_file() {
        let failed = |number| rusqlite::Error::SqliteFailure(ffi::Error::new(number), None);
        for (number, code) in [(ffi::SQLITE_CORRUPT, Code::STORE_DAMAGED), (ffi::SQLITE_IOERR, Code::STORE_IO)] {
            let error = of_own_query(user_failed("SELECT 1", failed(number)));
            assert_eq!(error.code(), code, "{error}");
        }
        let other = Error::new(Code::SQL_TIMEOUT, "it ran too long").caused_by(failed(ffi::SQLITE_INTERRUPT));
        assert_eq!(of_own_query(other).code(), Code::SQL_TIMEOUT);
    }

    #[test]
    fn a_statement_is_shown_whole_up_to_80_characters() {
        let shown = |length: usize| user(&format!(" {} ", "x".repeat(length)), "why").message().to_owned();
        assert_eq!(shown(79), format!("the statement '{}' failed: why", "x".repeat(79)));
        assert_eq!(shown(80), format!("the statement '{}' failed: why", "x".repeat(80)));
        assert_eq!(shown(81), format!("the statement '{}...' failed: why", "x".repeat(80)));
    }
}
