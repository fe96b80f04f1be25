//! The errors behind the server's numbers.

use crate::error::{Code, Error};
use crate::store::database::refusal;
use tiberius::error::TokenError;

/// The author of the text that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// Dialoq.
    Ours,
    /// The user.
    Users,
}

/// The error behind an answer of the server.
pub(super) fn refused(error: &TokenError, text: Text) -> Error {
    let refusal = refused_number(error.code(), error.message(), text);
    if refusal.code() != Code::STORE_IO || error.procedure().is_empty() {
        return refusal;
    }
    let message = format!("{} (line {} of {})", refusal.message(), error.line(), error.procedure());
    Error::new(refusal.code(), message)
}

fn refused_number(number: u32, message: &str, text: Text) -> Error {
    if is_passing(number) {
        let why = format!("the server asks to be tried again ({number}): {message}");
        return Error::new(Code::SERVER_UNREACHABLE, why);
    }
    match (number, text) {
        (1205 | 51205, _) => Error::new(
            Code::DEADLOCK,
            format!("the transaction was chosen as a deadlock victim and rolled back; run it again ({message})"),
        ),
        // A row moved while it was read uncommitted. Microsoft says to do as after a deadlock.
        (601, Text::Ours) => Error::new(
            Code::DEADLOCK,
            format!("the transaction met another one and was rolled back; run it again ({message})"),
        ),
        // Two transactions under SNAPSHOT changed one row; the server has rolled back the later one.
        (3960, _) => Error::new(
            Code::DEADLOCK,
            format!("the transaction met another one and was rolled back; run it again ({message})"),
        ),
        // The second is Babelfish's.
        (1222 | 33_557_097, Text::Ours) if number == 1222 || message.contains("lock timeout") => {
            Error::new(Code::LOCK_TIMEOUT, format!("a lock was not granted in time ({number}): {message}"))
        }
        (1105 | 1101 | 9002, _) => Error::new(Code::STORE_FULL, format!("the database is full ({number}): {message}")),
        (3906 | 3908 | 976 | 978, Text::Ours) => {
            Error::new(Code::STORE_READ_ONLY, format!("the database cannot be written ({number}): {message}"))
        }
        // 4060 hides from a login whether the database exists.
        (4060 | 911, Text::Ours) => Error::new(
            Code::ACCESS_DENIED,
            format!(
                "the database of the URL cannot be opened ({number}): {message}; if it does not exist, CREATE DATABASE makes \
                 it; if it does, CREATE USER in it lets the login in"
            ),
        ),
        (18_456 | 18_452 | 18_470 | 18_486 | 18_487 | 18_488 | 4064 | 916 | 40_615 | 47_073, Text::Ours) => {
            Error::new(Code::ACCESS_DENIED, format!("the server refuses the login ({number}): {message}"))
        }
        (102, Text::Users) if message.contains("'?'") => Error::new(
            Code::USER_SQL_FAILED,
            format!("the statement failed ({number}): {message}; parameters are @P1, @P2 on SQL Server"),
        ),
        (_, Text::Users) => Error::new(Code::USER_SQL_FAILED, format!("the statement failed ({number}): {message}")),
        (229 | 230 | 262 | 297 | 300 | 2760 | 15_151 | 15_247, _) => Error::new(
            Code::ACCESS_DENIED,
            format!("this user may not do that ({number}): {message}; a member of dialoq_admin can grant it"),
        ),
        (208 | 2812, _) if message.contains("dialoq") => Error::new(
            Code::SCHEMA_MISSING,
            format!("the database has no Dialoq schema, or only part of one ({number}): {message}"),
        ),
        (50_001..=59_999, _) => refusal(i64::from(number) - 50_000, message),
        (60_001..=65_535, _) => refusal(i64::from(number), message),
        _ => Error::new(Code::STORE_IO, format!("the server failed ({number}): {message}")),
    }
}

/// Whether the number means that the same request may work soon: failovers, throttling, a shutdown, a restart.
fn is_passing(number: u32) -> bool {
    matches!(
        number,
        40_613 | 40_197 | 40_501 | 40_540 | 40_143 | 10_928 | 10_929 | 10_936 | 49_918
            ..=49_920 | 41_301 | 41_302 | 41_305 | 41_325 | 4221 | 615 | 6005 | 17_142
            // The database recovers, is restored, or its replica has just lost its role.
            | 922 | 927 | 952 | 983
    )
}

/// Whether the number says that the server gave a request up in the middle, as in a failover. A commit may have happened then: what is
/// refused before it begins, as by throttling, has not.
pub(super) fn may_have_happened(number: u32) -> bool {
    matches!(number, 40_613 | 40_197 | 40_540 | 40_143 | 6005 | 952 | 983)
}

/// The error of a lost connection.
pub(super) fn lost(error: &tiberius::error::Error, is_unknown: bool) -> Error {
    if is_unknown {
        return Error::new(
            Code::COMMIT_UNKNOWN,
            format!("the connection was lost before the server answered ({error}): it may have happened or not"),
        );
    }
    Error::new(
        Code::SERVER_UNREACHABLE,
        format!("the connection was lost before anything was committed ({error}); try it again"),
    )
}

/// The error of a connection that the server closes with a reason.
pub(super) fn closed(error: &TokenError) -> Error {
    Error::new(
        Code::SERVER_UNREACHABLE,
        format!("the server closed the connection and rolled back ({}): {}", error.code(), error.message()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn code(number: u32, text: Text) -> (u16, ErrorKind) {
        let error = refused_number(number, "Could not find stored procedure 'dialoq.send'", text);
        (error.code().0, error.kind())
    }

    #[test]
    fn numbers_have_their_meaning() {
        for (number, expected, kind) in [
            (58_426, 8426, ErrorKind::NotFound),
            (59_617, 9617, ErrorKind::State),
            (60_033, 60_033, ErrorKind::Conflict),
            (1205, 1205, ErrorKind::Conflict),
            (51_205, 1205, ErrorKind::Conflict),
            (3960, 1205, ErrorKind::Conflict),
            (601, 1205, ErrorKind::Conflict),
            (1222, 1222, ErrorKind::Conflict),
            (40_613, 60_030, ErrorKind::Store),
            (18_456, 60_034, ErrorKind::Store),
            (4060, 60_034, ErrorKind::Store),
            (229, 60_034, ErrorKind::Store),
            (2812, 60_035, ErrorKind::Store),
            (9002, 60_017, ErrorKind::Store),
            (3906, 60_014, ErrorKind::Store),
            (8134, 60_018, ErrorKind::Store),
        ] {
            assert_eq!(code(number, Text::Ours), (expected, kind), "{number}");
        }
    }

    #[test]
    fn a_database_that_is_not_there_is_no_refused_login() {
        for number in [4060, 911] {
            let text = refused_number(number, "Cannot open database \"shop\"", Text::Ours).to_string();
            assert!(text.contains("CREATE DATABASE") && !text.contains("refuses the login"), "{text}");
        }
    }

    #[test]
    fn the_users_own_sql_fails_as_such() {
        assert_eq!(code(8134, Text::Users), (60_022, ErrorKind::User));
        assert_eq!(code(229, Text::Users), (60_022, ErrorKind::User));
        assert_eq!(code(58_426, Text::Users), (60_022, ErrorKind::User));
        assert_eq!(code(1222, Text::Users), (60_022, ErrorKind::User), "the limit is the user's own");
        assert_eq!(code(601, Text::Users), (60_022, ErrorKind::User), "and so is NOLOCK");
        for number in [1205, 3960] {
            assert_eq!(code(number, Text::Users), (1205, ErrorKind::Conflict));
        }
    }
}
