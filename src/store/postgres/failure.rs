//! The errors behind the failures of the server and of the connection.

use super::connect::DatabaseLabel;
use super::pooler::shared;
use crate::error::{Code, Error};
use crate::store::database::link::{Failure, Fate};
use crate::store::database::refusal;
use std::fmt;
use std::time::Duration;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// The most characters of a detail that the server sends with its message.
const MOST_SHOWN: usize = 500;

/// The statement that was under way, by its author.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked<'a> {
    /// One of our functions.
    Call(&'a str),
    /// One of our texts.
    Ours(&'a str),
    /// The user's own SQL.
    Users(&'a str),
}

/// What [`Asked::Ours`] says of a script of the installation.
pub(super) const INSTALLATION: &str = "a script of the installation";

/// The work that is lost with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtRisk {
    /// A request that commits by itself, or COMMIT.
    Commit,
    /// A part of a transaction.
    Transaction,
    /// None: a read, or a request that may be repeated.
    Nothing,
}

/// The state of the connection after an error.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Whether the connection is closed.
    pub(super) is_closed: bool,
    /// The reason, if it is known.
    pub(super) why: Option<Loss>,
}

/// Why a connection was lost.
#[derive(Debug, Clone)]
pub(super) struct Loss {
    pub(super) why: String,
    state: Option<SqlState>,
}

impl Loss {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        Self { why: chain(error), state: error.code().cloned() }
    }
}

impl AtRisk {
    /// The work that is lost if the server ended the session with this state. A limit on idle sessions ends a session before it
    /// reads the next request, so what was sent has not run.
    fn after(self, state: Option<&SqlState>) -> Self {
        match (self, state.map(SqlState::code)) {
            (Self::Commit, Some("25P03")) => Self::Transaction,
            (Self::Commit, Some("57P05")) => Self::Nothing,
            _ => self,
        }
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name) => write!(f, "function dialoq.{name}"),
            Self::Ours(what) => f.write_str(what),
            Self::Users(text) => {
                let text = text.trim();
                let shown: String = text.chars().take(80).collect();
                write!(f, "the statement '{shown}{}'", if shown.len() < text.len() { "..." } else { "" })
            }
        }
    }
}

impl Asked<'_> {
    /// The error of a statement that was not sent.
    pub(super) fn refused(&self, why: &str) -> Error {
        match self {
            Self::Users(_) => Error::new(Code::USER_SQL_FAILED, format!("{self} failed: {why}")),
            _ => Error::new(Code::STORE_IO, format!("{self} was not called: {why}")),
        }
    }

    /// The error of a statement that ran longer than sql_timeout.
    pub(super) fn overran(&self, limit: Duration) -> Error {
        let limit = limit.as_millis();
        let message = format!(
            "{self} was stopped after {limit} ms (sql_timeout_ms); shorten it, or raise sql_timeout_ms in the URL or \
             OpenOptions::sql_timeout"
        );
        Error::new(Code::SQL_TIMEOUT, message)
    }

    /// The role whose members may do this.
    fn role(&self) -> &'static str {
        match self {
            // Every change of definitions begins and ends with these two.
            Self::Call("define_begin" | "define_end") => "dialoq_admin",
            _ => "dialoq_user or dialoq_admin",
        }
    }

    /// Whether it is part of a change of definitions, or of an installation.
    fn is_definition(&self) -> bool {
        match self {
            Self::Call(name) => ["define_", "put_", "delete_", "on_"].iter().any(|part| name.starts_with(part)),
            Self::Ours(what) => *what == INSTALLATION,
            Self::Users(_) => true,
        }
    }

    pub(super) fn is_users(&self) -> bool {
        matches!(self, Self::Users(_))
    }

    /// Whether it is a statement of the user's with a `?`, which is SQLite's parameter.
    fn has_question_mark(&self) -> bool {
        matches!(self, Self::Users(text) if text.contains('?'))
    }
}

/// The failure behind an error of the driver.
pub(super) fn failure(
    error: tokio_postgres::Error,
    asked: Asked<'_>,
    at_risk: AtRisk,
    loss: ConnectionState,
    label: &DatabaseLabel,
) -> Failure {
    if let Some(server) = error.as_db_error() {
        let is_fatal = matches!(server.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        // A pooler may say it without that. If it is the server, which names a place in its source, the user's SQL speaks of another
        // connection, as that of dblink.
        let is_of_another = asked.is_users() && server.line().is_some();
        if is_fatal || (is_lost(server.code()) && !is_of_another) {
            let at_risk = at_risk.after(Some(server.code()));
            return lost(format!("{} ({})", server.message(), server.code().code()), at_risk, label);
        }
        let (error, fate) = refused(server, asked, label);
        return Failure { error: error.caused_by(chain(&error_of(server))), fate, is_link_usable: true };
    }
    if loss.is_closed || error.is_closed() || is_io(&error) {
        let loss = loss.why.unwrap_or_else(|| Loss::of(&error));
        return lost(loss.why, at_risk.after(loss.state.as_ref()), label);
    }
    // Nothing was sent: a value does not fit its parameter, or their number is wrong.
    Failure { error: asked.refused(&chain(&error)), fate: Fate::Undone, is_link_usable: true }
}

/// The failure of a lost connection.
pub(super) fn lost(why: String, at_risk: AtRisk, label: &DatabaseLabel) -> Failure {
    let unreachable =
        |lost: &str| Error::new(Code::SERVER_UNREACHABLE, format!("the connection to {label} was lost: {why}; {lost}"));
    let (error, fate) = match at_risk {
        AtRisk::Commit => (
            Error::new(
                Code::COMMIT_UNKNOWN,
                format!(
                    "the connection to {label} was lost while a commit was under way: {why}; it is unknown whether it happened"
                ),
            ),
            Fate::Unknown,
        ),
        AtRisk::Transaction => (unreachable("the transaction is rolled back"), Fate::TransactionUndone),
        AtRisk::Nothing => (unreachable("nothing was changed"), Fate::Undone),
    };
    Failure { error, fate, is_link_usable: false }
}

/// The failure of connecting.
pub(super) fn not_connected(error: &tokio_postgres::Error, label: &DatabaseLabel) -> Error {
    let why = chain(error);
    if error.code().is_none() && why.contains(NO_PASSWORD) {
        return no_password(label);
    }
    login_failed(error.code(), &why, label)
}

/// What the driver says if the server asks for a password and none was given. Its kind of error is not public.
const NO_PASSWORD: &str = "password missing";

fn no_password(label: &DatabaseLabel) -> Error {
    let why = "the server asks for a password, and none is given; give one in the URL, as in postgres://USER:PASSWORD@HOST/DATABASE";
    Error::new(Code::ACCESS_DENIED, format!("{label} refuses the login: {why}"))
}

fn login_failed(code: Option<&SqlState>, why: &str, label: &DatabaseLabel) -> Error {
    match code {
        Some(code) if is_access(code) => Error::new(Code::ACCESS_DENIED, format!("{label} refuses the login: {why}")),
        // Another session's end frees a connection, so the same call may succeed later.
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => Error::new(
            Code::SERVER_UNREACHABLE,
            format!(
                "{label} has no free connection: {why}; try again, lower pool_size in the URLs of its processes, or {}",
                raised(why)
            ),
        ),
        _ => Error::new(Code::SERVER_UNREACHABLE, format!("{label} cannot be reached: {why}")),
    }
}

/// What gives room for more connections, where the server says what is full.
fn raised(why: &str) -> &'static str {
    // A full server says that its last places are reserved for roles with some attribute.
    if why.contains("too many connections for role") {
        "raise the limit of the role (ALTER ROLE ... CONNECTION LIMIT)"
    } else if why.contains("too many connections for database") {
        "raise the limit of the database (ALTER DATABASE ... CONNECTION LIMIT)"
    } else {
        "raise the server's max_connections"
    }
}

/// The failure of connecting to a server that takes the connection and never answers.
pub(super) fn silent(limit: Duration, label: &DatabaseLabel) -> Error {
    let message = format!("{label} cannot be reached: no answer within {} s (connect_timeout)", limit.as_secs());
    Error::new(Code::SERVER_UNREACHABLE, message)
}

/// An error and its causes in one line, each once.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = next.source();
    }
    text
}

/// A copy of the server's error, kept as the cause.
fn error_of(server: &DbError) -> std::io::Error {
    let mut text = format!("{}: {} (SQLSTATE {})", server.severity(), server.message(), server.code().code());
    for (name, part) in [("detail", server.detail()), ("hint", server.hint()), ("where", server.where_())] {
        if let Some(part) = part {
            text.push_str(&format!("; {name}: {}", shortened(part)));
        }
    }
    std::io::Error::other(text)
}

/// The first words of a text, for an error message: a statement may name every function of ours.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

fn is_lost(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || ["57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04"].contains(&code.code())
}

fn is_access(code: &SqlState) -> bool {
    code.code().starts_with("28") || ["3D000", "42501"].contains(&code.code())
}

/// The error behind a refusal of the server, and whether the refusal ended the transaction.
fn refused(server: &DbError, asked: Asked<'_>, label: &DatabaseLabel) -> (Error, Fate) {
    let (said, what) = (server.message(), asked);
    let store = |code, text: String| (Error::new(code, text), Fate::Undone);
    if server.code().code().starts_with("SB")
        && let Some(number) =
            server.detail().and_then(|detail| detail.strip_prefix("dialoq ")).and_then(|n| n.trim().parse().ok())
    {
        let error = refusal(number, said);
        let fate = if error.code() == Code::DEADLOCK { Fate::TransactionUndone } else { Fate::Undone };
        return (error, fate);
    }
    match server.code().code() {
        "40P01" => (
            Error::new(
                Code::DEADLOCK,
                format!(
                    "the transaction was chosen as a deadlock victim and rolled back: {what} waited for a lock whose holder \
                     waits for one of this transaction's; run the transaction again"
                ),
            ),
            Fate::TransactionUndone,
        ),
        "55P03" if !asked.is_users() => (
            Error::new(
                Code::DEADLOCK,
                format!(
                    "the transaction waited too long for a lock and was rolled back: {said} ({what}); run it again"
                ),
            ),
            Fate::TransactionUndone,
        ),
        "40001" => (
            Error::new(
                Code::DEADLOCK,
                format!(
                    "the transaction met another one and was rolled back: {said} ({what}); run the transaction again"
                ),
            ),
            Fate::TransactionUndone,
        ),
        // An installation drops and creates the functions, also those that run.
        "XX000" if !asked.is_users() && said.starts_with("cache lookup failed for function") => (
            Error::new(
                Code::DEADLOCK,
                format!(
                    "an installation of Dialoq replaced the functions during the transaction, which was rolled back: {said} \
                     ({what}); run the transaction again"
                ),
            ),
            Fate::TransactionUndone,
        ),
        "53100" => store(Code::STORE_FULL, format!("the disk of {label} is full: {said} ({what}); make room on it")),
        // The hint names the setting in every language.
        "53200" if server.hint().is_some_and(|hint| hint.contains("max_locks_per_transaction")) => store(
            Code::STORE_IO,
            format!(
                "{label} has no room for another lock: {said} ({what}); raise max_locks_per_transaction in the server's \
                 configuration, each locked conversation group takes one, or touch fewer groups in one transaction"
            ),
        ),
        "25006" if !asked.is_users() => store(
            Code::STORE_READ_ONLY,
            format!(
                "{label} only reads: {said} ({what}); begin a transaction of your own READ WRITE; of a standby name its primary, or several \
                 hosts with target_session_attrs=read-write; otherwise lift default_transaction_read_only of the role or the database"
            ),
        ),
        // The role would not help the user's own statement: it lacks a right on a table of the user's.
        _ if is_access(server.code()) && !asked.is_users() => {
            let role = asked.role();
            store(
                Code::ACCESS_DENIED,
                format!(
                    "{what} is refused on {label}: {said}; the login that installed the broker, or an administrator, grants {role}"
                ),
            )
        }
        "3F000" | "42883" | "42P01" if !asked.is_users() => store(
            Code::SCHEMA_MISSING,
            format!("schema dialoq on {label} is missing or not whole: {said} ({what}); 'dialoq install' makes it"),
        ),
        "2BP01" if !asked.is_users() => {
            let what_stands = shortened(server.detail().unwrap_or(said));
            let text = format!(
                "{what} is refused on {label}, for something of yours is built on the broker's objects: {what_stands}; drop it \
                 and make it again afterwards"
            );
            (Error::new(Code::OBJECT_IN_USE, text), Fate::Undone)
        }
        // The link reports sql_timeout, because it measures how long the statement runs. A cancel has the same SQLSTATE as a
        // limit; where its text is not English, it counts as one.
        "57014" if asked.is_users() && said == "canceling statement due to user request" => (
            Error::new(
                Code::USER_SQL_FAILED,
                format!("{what} was stopped: {said}; another session cancelled it; run it again"),
            ),
            Fate::Undone,
        ),
        "57014" if asked.is_users() => (
            Error::new(
                Code::SQL_TIMEOUT,
                format!(
                    "{what} was stopped: {said}; shorten it, or raise the statement_timeout that the role, the database or \
                     the transaction has set"
                ),
            ),
            Fate::Undone,
        ),
        // A definition is tried again without end after a lock timeout, but a limit would stop it each time.
        "57014" if !asked.is_definition() => store(
            Code::LOCK_TIMEOUT,
            format!(
                "{what} was stopped: {said}; another session cancelled it, or the role or the database has a statement_timeout, \
                 which may pass while it waits for a lock; try again, or raise that limit"
            ),
        ),
        // Dialoq gives the statements of a connection names that no other statement of it has.
        "42P05" if !asked.is_users() => (shared(label, &format!("{said} ({what})")), Fate::Undone),
        "XX001" | "XX002" => store(Code::STORE_DAMAGED, format!("{label} says it is damaged: {said} ({what})")),
        state if asked.is_users() => {
            let detail = server.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
            let hint = if asked.has_question_mark() && ["42601", "42883", "42P18"].contains(&state) {
                "; if the ? is to be a parameter, write $1, $2"
            } else {
                ""
            };
            (Error::new(Code::USER_SQL_FAILED, format!("{what} failed: {said}{detail} [{state}]{hint}")), Fate::Undone)
        }
        state => {
            let position = server.where_().map(|place| format!("; in {}", shortened(place))).unwrap_or_default();
            store(Code::STORE_IO, format!("{what} failed on {label}: {said} [{state}]{position}"))
        }
    }
}

/// Whether a value cannot be read as the type of its parameter, which may be that of a column before an ALTER TABLE.
pub(super) fn is_of_a_value(code: Option<&SqlState>) -> bool {
    let unread = [
        &SqlState::INVALID_TEXT_REPRESENTATION,
        &SqlState::INVALID_DATETIME_FORMAT,
        &SqlState::DATETIME_FIELD_OVERFLOW,
        &SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        &SqlState::DATATYPE_MISMATCH,
        // The type itself is gone.
        &SqlState::INTERNAL_ERROR,
    ];
    code.is_some_and(|code| unread.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_free_connection_may_be_tried_again() {
        let label = DatabaseLabel::enlisted();
        let full = login_failed(Some(&SqlState::TOO_MANY_CONNECTIONS), "sorry, too many clients already", &label);
        assert_eq!(full.code(), Code::SERVER_UNREACHABLE);
        assert!(full.is_retryable() && full.message().contains("max_connections"), "{full}");
        for (full, raised) in [
            ("too many connections for role \"shop\"", "ALTER ROLE ..."),
            ("too many connections for database \"shop\"", "ALTER DATABASE ..."),
            ("remaining connection slots are reserved for roles with the SUPERUSER attribute", "max_connections"),
        ] {
            let full = login_failed(Some(&SqlState::TOO_MANY_CONNECTIONS), full, &label);
            assert!(full.message().contains(raised), "{full}");
        }
        let denied = login_failed(Some(&SqlState::INVALID_PASSWORD), "password authentication failed", &label);
        assert_eq!(denied.code(), Code::ACCESS_DENIED);
        assert!(!denied.is_retryable(), "{denied}");
    }

    #[test]
    fn a_refused_definition_asks_for_the_role_that_defines() {
        assert_eq!(Asked::Call("define_begin").role(), "dialoq_admin");
        assert_eq!(Asked::Call("send").role(), "dialoq_user or dialoq_admin");
    }
}
