//! The SQL Server that `DIALOQ_TEST_MSSQL` names, as `mssql://user:password@host:port/?encrypt=off`, and databases on it.

use super::fail;
use dialoq::store::mssql::MssqlDriver;
use dialoq::store::server::link::Driver;
use dialoq::store::url::StoreUrl;
use dialoq::store::{SqlStatement, SqlValue};
use std::fmt::Write;

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
    run(&of("master"), &format!("CREATE DATABASE {name};"));
    of(name)
}

pub(super) fn remove(name: &str) {
    // Connections of brokers that were dropped may still be on their way out.
    for _ in 0..100 {
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

fn run(url: &str, text: &str) {
    try_sql(url, text).unwrap_or_else(|why| fail(text, why));
}

/// Runs a text as whom the URL names; gives the values of its rows, a line for each, with bars between.
pub(super) fn try_sql(url: &str, text: &str) -> Result<String, String> {
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
