//! URLs: which store, where, and how.

mod mssql;
mod postgres;
mod redact;
mod server;
mod sqlite;

pub use mssql::{Encryption, Login, MssqlUrl};
pub use postgres::{PostgresUrl, TlsMode};
pub(crate) use redact::redacted;
#[cfg(any(feature = "cli", test))]
pub use redact::redacted_in;
pub use server::ServerUrl;
pub use sqlite::{Location, SqliteUrl};

use crate::error::{Code, Error, Result};
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// What an answered commit has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A loss of power: every commit is synced before it is answered.
    #[default]
    Full,
    /// A crash of the process, not of the machine: the last commits may be lost together, never half of one.
    Normal,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Normal => "normal",
        })
    }
}

/// A URL taken apart, by the store that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:`, the embedded store.
    Sqlite(SqliteUrl),
    /// `postgres:` or `postgresql:`, a PostgreSQL server.
    Postgres(PostgresUrl),
    /// `mssql:`, SQL Server or Azure SQL Database.
    Mssql(MssqlUrl),
}

/// The parameters that every store takes: `durability=full|normal`, `max_body_bytes=n`, `closed_retention_s=n`,
/// `sql_timeout_ms=n`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommonParameters {
    /// What an answered commit has survived.
    pub durability: Durability,
    /// The largest body that is taken, in bytes, if not the default.
    pub max_body_bytes: Option<usize>,
    /// The time for which a closed target endpoint is kept against replay, if not the default.
    pub closed_retention: Option<Duration>,
    /// The longest run of one statement of the user's own SQL, if the URL limits it.
    pub sql_timeout: Option<Duration>,
}

/// The names of [`CommonParameters`], for messages.
const COMMON_NAMES: &str = "durability, max_body_bytes, closed_retention_s, sql_timeout_ms";

/// No store holds a value above this: SQLite's limit, and just under PostgreSQL's.
pub(crate) const LARGEST_BODY_BYTES: usize = 999_000_000;

impl StoreUrl {
    /// The parameters of a server; `None` if it names an embedded database.
    pub fn server(&self) -> Option<&ServerUrl> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(url) => Some(&url.server),
            Self::Mssql(url) => Some(&url.server),
        }
    }

    /// The limit of the user's own SQL from the URL, else from the options.
    pub(crate) fn set_sql_timeout(&mut self, otherwise: Option<Duration>) {
        let common = match self {
            Self::Sqlite(_) => return,
            Self::Postgres(url) => &mut url.server.common,
            Self::Mssql(url) => &mut url.server.common,
        };
        common.sql_timeout = common.sql_timeout.or(otherwise);
    }

    /// The same without the parameters that change the database of a server when it is opened.
    pub(crate) fn without_changes(mut self) -> Self {
        let server = match &mut self {
            Self::Sqlite(_) => return self,
            Self::Postgres(url) => &mut url.server,
            Self::Mssql(url) => &mut url.server,
        };
        (server.install, server.common.closed_retention) = (None, None);
        self
    }

    /// Takes a URL apart.
    ///
    /// # Errors
    /// 60019, naming the part that is not understood and what would be. A password is never repeated.
    pub fn parse(url: &str) -> Result<Self> {
        match url.split_once(':') {
            Some(("sqlite", rest)) => SqliteUrl::parse(url, rest).map(Self::Sqlite),
            Some(("postgres" | "postgresql", rest)) => PostgresUrl::parse(url, rest).map(Self::Postgres),
            Some(("mssql", rest)) => MssqlUrl::parse(url, rest).map(Self::Mssql),
            _ => Err(bad(
                url,
                "it must begin with 'sqlite:', as in 'sqlite:shop.db' or 'sqlite::memory:', with 'postgres:', as in \
                 'postgres://shop@localhost/shop', or with 'mssql:', as in 'mssql://shop:password@localhost/shop'",
            )),
        }
    }
}

impl CommonParameters {
    /// Takes a parameter that every store has; false if it is not one of them.
    fn set(&mut self, url: &str, name: &str, value: &str) -> Result<bool> {
        match name {
            "durability" => {
                self.durability = match value {
                    "full" => Durability::Full,
                    "normal" => Durability::Normal,
                    _ => {
                        return Err(bad(
                            url,
                            format!("durability is '{}'; it must be 'full' or 'normal'", shown(url, value)),
                        ));
                    }
                }
            }
            "max_body_bytes" => {
                self.max_body_bytes = usize::try_from(number(url, name, value, 1, LARGEST_BODY_BYTES as u64)?).ok();
            }
            "closed_retention_s" => {
                let seconds = number(url, name, value, 0, i32::MAX as u64)?;
                self.closed_retention = Some(Duration::from_secs(seconds));
            }
            "sql_timeout_ms" => {
                let milliseconds = number(url, name, value, 1, i32::MAX as u64)?;
                self.sql_timeout = Some(Duration::from_millis(milliseconds));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The names and values after the question mark, as they are written.
fn parameters(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// A parameter that is written twice would have one value or the other.
fn refuse_twice(url: &str, query: Option<&str>) -> Result<()> {
    let mut names = HashSet::new();
    match parameters(query).find(|(name, _)| !names.insert(*name)) {
        Some((name, _)) => Err(bad(url, format!("its parameter '{}' is there twice; leave one out", shown(url, name)))),
        None => Ok(()),
    }
}

fn number(url: &str, name: &str, value: &str, lowest: u64, highest: u64) -> Result<u64> {
    value.parse::<u64>().ok().filter(|number| (lowest..=highest).contains(number)).ok_or_else(|| {
        let value = shown(url, value);
        bad(url, format!("{name} is '{value}'; it must be a whole number from {lowest} to {highest}"))
    })
}

/// The colon between user and password is written as it is. An encoded one would make the password a part of the user's
/// name, which errors and the server's log show.
fn refuse_encoded_colon(url: &str, place: &str) -> Result<()> {
    let user = place.rsplit_once('@').map_or("", |(login, _)| login.split(':').next().unwrap_or_default());
    match user.to_ascii_lowercase().contains("%3a") {
        true => {
            Err(bad(url, "its user's name holds an encoded colon; write the colon between user and password as ':'"))
        }
        false => Ok(()),
    }
}

/// A part of the URL as an error may show it. Of a password that was not encoded, what follows a `&` or `;` reads as
/// parameters, so an error shows only what [`redacted`] shows too.
fn shown<'a>(url: &str, part: &'a str) -> &'a str {
    let (url, lower) = (redacted(url).to_lowercase(), part.to_lowercase());
    let is_shown = url.contains(&lower) || decode(&url).is_some_and(|url| url.contains(&lower));
    if is_shown { part } else { "***" }
}

fn bad(url: &str, why: impl fmt::Display) -> Error {
    let url = redacted(url);
    Error::new(Code::BAD_URL, format!("the URL '{url}' is not understood: {why}"))
}

/// The text with `%xx` replaced by that byte.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            // `from_str_radix` alone takes a sign.
            let digits = std::str::from_utf8(&digits)
                .ok()
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_no_store_is_refused() {
        for url in ["mysql://x", "shop.db", "", "postgres", "SQLITE:x"] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), Code::BAD_URL, "{url}");
            assert!(error.message().contains("'sqlite:'") && error.message().contains("'postgres:'"), "{error}");
        }
    }

    #[test]
    fn a_byte_is_two_hexadecimal_digits() {
        assert_eq!(decode("a%2fb%2F").as_deref(), Some("a/b/"));
        for wrong in ["%", "%4", "%+4", "%-4", "% 4", "%4g", "%é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn errors_show_no_part_of_a_password_that_reads_as_parameters() {
        for url in [
            "postgres://u:sec@ret?sslmode=hidden&hidden=1@h/db",
            "postgres://u@h/db?password=a&sslmode=hidden",
            "mssql:Server=h;Password=a;hidden=b",
            "mssql:Server=h;Password=a;Connect Timeout=hidden",
            "mssql:Server=h;Password=a;hidden='b",
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert!(!error.message().contains("hidden"), "{error}");
        }
    }
}
