//! The SQL Server that `DIALOQ_TEST_MSSQL` names, as `mssql://user:password@host:port/?encrypt=off`, and databases on it.

use super::fail;
use dialoq::Broker;
use std::fmt::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

const VARIABLE: &str = "DIALOQ_TEST_MSSQL";

/// Why nothing runs on it here.
pub(super) fn why_skipped() -> Option<String> {
    std::env::var(VARIABLE).is_err().then(|| format!("{VARIABLE} names no server"))
}

/// The URL of that database on the server.
fn of(database: &str) -> String {
    let url = std::env::var(VARIABLE).unwrap_or_else(|_| fail(VARIABLE, "it is not set"));
    with_database(&url, database)
}

fn with_database(url: &str, database: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, place) = place.split_once("://").unwrap_or_else(|| fail(VARIABLE, "it is no URL"));
    let server = place.split_once('/').map_or(place, |(server, _)| server);
    format!("{scheme}://{server}/{database}?{query}")
}

/// A new database; gives its URL.
pub(super) fn create(name: &str) -> String {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    // A relative of SQL Server cannot make two at once.
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(&of("master"), &format!("CREATE DATABASE {name};"));
    // As docs/sqlserver.md recommends; a relative whose reads never block does not know the word.
    let _ = try_sql(&of("master"), &format!("ALTER DATABASE {name} SET READ_COMMITTED_SNAPSHOT ON;"));
    of(name)
}

/// Databases that have been used and made as new: to install a broker takes as long as many tests.
static USED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A database with a broker in which nothing was made: its name and its URL.
pub(super) fn create_installed(name: &str) -> (String, String) {
    if let Some(name) = USED.lock().unwrap_or_else(PoisonError::into_inner).pop() {
        return (of(&name), name);
    }
    let url = create(name);
    super::install(&url);
    run(&url, "CREATE SCHEMA kept;");
    let copies = DEFINITIONS.map(|table| format!(" SELECT * INTO kept.{table} FROM dialoq.{table};"));
    run(&url, &format!("SET NOCOUNT ON;{}", copies.concat()));
    (url, name.to_owned())
}

/// Tables of definitions, which an installation fills.
const DEFINITIONS: [&str; 10] = [
    "broker",
    "message_type",
    "service_contract",
    "service_contract_message_usage",
    "service_queue",
    "service",
    "service_contract_usage",
    "conversation_priority",
    "xml_schema_collection",
    "event_notification",
];

/// Empties a database of `create_installed` for the next test, unless a session still holds locks in it.
pub(super) fn reuse(name: &str) {
    let url = of(name);
    let emptied =
        try_sql(&url, "SELECT t.name, s.name AS s FROM sys.tables t JOIN sys.schemas s ON s.schema_id = t.schema_id");
    let Ok(tables) = emptied else { return };
    let mut text = "SET LOCK_TIMEOUT 5000; BEGIN TRANSACTION;".to_owned();
    for line in tables.lines() {
        let (table, schema) = line.split_once('|').unwrap_or((line, ""));
        let _ = match schema {
            "kept" => Ok(()),
            "dialoq" if table == "installed" => Ok(()),
            "dialoq" if DEFINITIONS.contains(&table) => {
                write!(text, "DELETE dialoq.{table}; INSERT dialoq.{table} SELECT * FROM kept.{table};")
            }
            "dialoq" => write!(text, "DELETE dialoq.{table};"),
            schema => write!(text, "DROP TABLE [{schema}].[{table}];"),
        };
    }
    for sequence in ["next_job_id", "next_job_token"] {
        let _ = write!(text, "ALTER SEQUENCE dialoq.{sequence} RESTART WITH 1;");
    }
    text.push_str("UPDATE dialoq.broker SET service_broker_guid = NEWID(); COMMIT;");
    match try_sql(&url, &text) {
        Ok(_) => USED.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned()),
        Err(why) => eprintln!("database {name} is not used again: {why}"),
    }
}

/// Whether the server is a relative, Babelfish.
async fn is_relative(broker: &Broker) -> bool {
    static IS_RELATIVE: OnceLock<bool> = OnceLock::new();
    if let Some(is_relative) = IS_RELATIVE.get() {
        return *is_relative;
    }
    let asked = "SELECT COALESCE(CAST(SERVERPROPERTY('Babelfish') AS int), 0) AS is_relative";
    let rows = broker.query(asked, ()).await.expect("a broker that is open answers").rows;
    let is_relative = rows[0].get::<i64>("is_relative").expect("a number") == 1;
    *IS_RELATIVE.get_or_init(|| is_relative)
}

/// The text that counts as `working` the sessions of the broker's database that do something else than wait for a lock.
pub(super) async fn working(broker: &Broker) -> &'static str {
    if is_relative(broker).await {
        // A session without a state is one that logs in.
        "SELECT CAST(COUNT(*) AS bigint) AS working
         FROM pg_catalog.pg_stat_activity AS a
         LEFT JOIN sys.dm_exec_sessions AS s ON s.session_id = a.pid
         WHERE a.backend_type = 'client backend' AND a.pid <> @@SPID
           AND (a.state IS NULL OR a.state = 'active' AND s.database_id = DB_ID())
           AND COALESCE(a.wait_event_type, '') <> 'Lock'"
    } else {
        // A login without the right to see the state of the server sees only its own session here.
        "SELECT COUNT_BIG(*) AS working
         FROM sys.dm_exec_requests AS r
         WHERE r.session_id <> @@SPID AND r.database_id = DB_ID() AND r.status IN ('running', 'runnable', 'suspended')
           AND COALESCE(r.wait_type, '') NOT LIKE 'LCK%'"
    }
}

/// The text that counts as `waiting` the sessions of the broker's database that wait for a lock.
pub(super) async fn waiting(broker: &Broker) -> &'static str {
    if is_relative(broker).await {
        "SELECT CAST(COUNT(*) AS bigint) AS waiting
         FROM pg_catalog.pg_stat_activity AS a
         JOIN sys.dm_exec_sessions AS s ON s.session_id = a.pid
         WHERE a.wait_event_type = 'Lock' AND s.database_id = DB_ID()"
    } else {
        "SELECT COUNT_BIG(*) AS waiting
         FROM sys.dm_exec_requests AS r WHERE r.database_id = DB_ID() AND r.wait_type LIKE 'LCK%'"
    }
}

/// The statement, the wait and the locks of every session of that database, as far as the server shows them.
pub(super) fn describe_waits(url: &str) -> String {
    let parts = [
        (
            "sessions",
            "SELECT session_id, status, command, wait_type, blocking_session_id FROM sys.dm_exec_requests WHERE database_id = DB_ID() AND session_id <> @@SPID",
        ),
        (
            "locks",
            "SELECT request_session_id, resource_type, resource_description, request_mode, request_status FROM sys.dm_tran_locks WHERE resource_type IN ('APPLICATION', 'KEY', 'OBJECT') AND request_session_id <> @@SPID",
        ),
        (
            "sessions of a relative",
            "SELECT pid, state, wait_event_type, wait_event, query FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend' AND pid <> @@SPID",
        ),
        (
            "locks of a relative",
            "SELECT pid, locktype, classid, objid, mode, granted FROM pg_catalog.pg_locks WHERE locktype = 'advisory' OR granted = false",
        ),
    ];
    parts.map(|(what, text)| format!("{what}:\n{}", try_sql(url, text).unwrap_or_else(|why| why))).join("\n")
}

/// Ends that session and waits until it is gone.
pub(super) fn end_session(url: &str, session: i64) {
    let there = format!("SELECT CAST(session_id AS bigint) FROM sys.dm_exec_sessions WHERE session_id = {session}");
    // One that is being ended rolls back first.
    while !try_sql(url, &there).unwrap_or_else(|why| fail(&there, why)).is_empty() {
        // It may have gone meanwhile, which KILL takes for a mistake.
        let _ = try_sql(url, &format!("KILL {session};"));
    }
}

/// Ends every session of the database but the one that does it.
pub(super) fn end_sessions(url: &str) {
    let there = "SELECT CAST(session_id AS bigint) FROM sys.dm_exec_sessions
        WHERE database_id = DB_ID() AND session_id IS NOT NULL AND session_id <> @@SPID";
    for session in try_sql(url, there).unwrap_or_else(|why| fail(there, why)).lines() {
        let _ = try_sql(&of("master"), &format!("KILL {session};"));
    }
}

/// Removes the databases that can be, at the end of the tests.
pub(super) fn sweep() {
    for name in USED.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        remove(&name);
    }
}

pub(super) fn remove(name: &str) {
    // Connections of dropped brokers may still be closing. The server makes no notification when the last connection to a
    // database is closed, so this tries again. No test waits for it.
    for _ in 0..20 {
        match try_sql(&of("master"), &format!("DROP DATABASE {name};")) {
            Ok(_) => return,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
    eprintln!("database {name} stays: it is in use");
}

/// A new login with a user in that database, who is a member of that role, if one is named.
pub(super) fn login(name: &str, role: &str, database: &str) -> String {
    run(&of("master"), &format!("CREATE LOGIN {name} WITH PASSWORD = 'Dialoq-Test-1';"));
    run(database, &format!("CREATE USER {name} FOR LOGIN {name};"));
    if !role.is_empty() {
        run(database, &format!("ALTER ROLE {role} ADD MEMBER {name};"));
    }
    let (scheme, rest) = database.split_once("://").unwrap_or_else(|| fail(database, "it is no URL"));
    let (_, place) = rest.rsplit_once('@').unwrap_or_else(|| fail(database, "it names no user"));
    format!("{scheme}://{name}:Dialoq-Test-1@{place}")
}

/// What a relative says to one of two sessions, of two test processes for example, that change databases, logins or members
/// of roles at once. Nothing is left of that statement.
const TOGETHER: &str = "tuple concurrently updated";

fn run(url: &str, text: &str) {
    for _ in 0..50 {
        match try_sql(url, text) {
            Err(why) if why.contains(TOGETHER) => {}
            answer => return drop(answer.unwrap_or_else(|why| fail(text, why))),
        }
    }
    fail(text, TOGETHER)
}

/// Runs a text as whom the URL names; gives the values of its rows, a line for each, with bars between.
pub(super) fn try_sql(url: &str, text: &str) -> Result<String, String> {
    asking::ask(url, text)
}

#[cfg(not(feature = "mssql"))]
mod asking {
    pub(super) fn ask(_: &str, _: &str) -> Result<String, String> {
        Err("built without SQL Server".to_owned())
    }
}

#[cfg(feature = "mssql")]
mod asking {
    use crate::servers::fail;
    use dialoq::SqlValue;
    use dialoq::internals::store::SqlStatement;
    use dialoq::internals::store::database::link::Driver;
    use dialoq::internals::store::mssql::MssqlDriver;
    use dialoq::internals::store::url::StoreUrl;
    use std::fmt::Write;

    pub(super) fn ask(url: &str, text: &str) -> Result<String, String> {
        let (url, text) = (url.to_owned(), text.to_owned());
        // Tests have runtimes of their own, in which another cannot be waited for.
        let asking = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let StoreUrl::Mssql(url) = StoreUrl::parse(&url)? else { fail(&url, "it names no SQL Server") };
                let mut link = MssqlDriver::new(&url, None)?.dedicated().await?;
                // Definitions of databases, views and procedures must stand alone in a batch.
                if text.trim_start().to_uppercase().starts_with("SELECT") {
                    let statement = SqlStatement { text, params: Vec::new(), expected_rows: None };
                    let rows = link.query(&statement).await.map_err(|failure| failure.error)?;
                    return Ok(shown(rows.rows.iter().map(dialoq::SqlRow::values)));
                }
                link.script(&text).await.map_err(|failure| failure.error)?;
                dialoq::Result::Ok(String::new())
            })
        });
        match asking.join() {
            Ok(answer) => answer.map_err(|error: dialoq::Error| error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        }
    }

    fn shown<'a>(rows: impl Iterator<Item = &'a [SqlValue]>) -> String {
        let mut text = String::new();
        for row in rows {
            let values: Vec<String> = row
                .iter()
                .map(|value| match value {
                    SqlValue::Null => String::new(),
                    SqlValue::Integer(number) => number.to_string(),
                    SqlValue::Real(number) => number.to_string(),
                    SqlValue::Text(text) => text.clone(),
                    SqlValue::Uuid(id) => id.to_string(),
                    SqlValue::Blob(bytes) => format!("{bytes:02x?}"),
                })
                .collect();
            let _ = writeln!(text, "{}", values.join("|"));
        }
        text
    }
}
