//! URLs of stores, and where their passwords go.

use crate::harness::text;
use dialoq::Code;
use dialoq::internals::store::url::{Login, StoreUrl};

pub(crate) const WORDS: &[&str] = &[
    "sqlite:",
    "sqlite::memory:",
    "postgres://",
    "postgresql://",
    "mssql://",
    "mssql:",
    "user:",
    "@",
    "host",
    ":5432",
    "/db",
    "?",
    "&",
    "=",
    "%",
    "%3A",
    "%zz",
    "%ff",
    "[::1]",
    "[",
    "]",
    ",",
    ";",
    "\\",
    "\\instance",
    "durability=normal",
    "max_body_bytes=1",
    "closed_retention_s=0",
    "pool_size=7",
    "pool_wait_s=0",
    "install=no",
    "sslmode=verify-full",
    "sslmode=x",
    "sslrootcert=",
    "sslcert=a",
    "sslkey=b",
    "host=/run",
    "port=1",
    "options=-c%20x",
    "target_session_attrs=",
    "Server=",
    "Data Source=tcp:h,1",
    "Database=d",
    "User Id=u",
    "UID=u",
    "Password=",
    "pwd=",
    "Encrypt=strict",
    "TrustServerCertificate=yes",
    "Authentication=entra_token",
    "Integrated Security=SSPI",
    "connect_timeout_s=x",
    "Max Pool Size=0",
    "\"",
    "'",
    "\"\"",
    "Application Name=",
    "App=\"",
    "instance=",
    "create=no",
];

/// The part of each password that no output may show.
const SECRET: &str = "S3CR3T";

/// Any text at all: it is understood or refused.
pub(crate) fn url(input: &[u8]) {
    let url = text(input);
    match StoreUrl::parse(&url) {
        Ok(url) => drop(format!("{url:?}")),
        Err(error) => {
            assert_eq!(error.code(), Code::BAD_URL, "{error}");
            assert_eq!(StoreUrl::parse(&url).expect_err("it was refused before").message(), error.message());
        }
    }
}

/// A password among other things, written in each of the ways there are: it is read as it was written, and neither an
/// error nor what is shown of the URL holds it. The lines of an input: the way, the password before and after the secret,
/// and what follows it in the URL.
pub(crate) fn password(input: &[u8]) {
    let input = text(input);
    let mut lines = input.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (way, before, after, rest) = (line(), line(), line(), line());
    let password = format!("{before}{SECRET}{after}");
    let encoded = encode(&password);
    let quoted = password.replace('"', "\"\"");
    let (url, must_read) = match way {
        "raw" => (format!("postgres://user:{password}@host/db?{rest}"), false),
        "raw mssql" => (format!("mssql://user:{password}@host/db?{rest}"), false),
        "encoded" => (format!("postgres://user:{encoded}@host/db?{rest}"), false),
        "encoded mssql" => (format!("mssql://user:{encoded}@host/db?{rest}"), true),
        "parameter" => (format!("postgres://user@host/db?{rest}&password={password}"), false),
        "parameter first" => (format!("postgres://user@host/db?password={password}&{rest}"), false),
        "ado" => (format!("mssql:Server=h;Database=d;User Id=u;Password={password};{rest}"), false),
        "bare ado" => (format!("Server=h;Password={password};{rest}"), false),
        "dsn" => (format!("host=h user=u password={password} {rest}"), false),
        "no slashes" => (format!("postgres:user:{password}@host/db?{rest}"), false),
        "one slash" => (format!("mssql:/user:{password}@host/db?{rest}"), false),
        "no scheme" => (format!("user:{password}@host/db?{rest}"), false),
        "encoded colon" => (format!("postgres://user%3A{encoded}@host/db?{rest}"), false),
        "semicolons" => (format!("mssql://h;user=u;password={password};{rest}"), false),
        "capitals" => (format!("postgres://user@host/db?PASSWORD={password}&{rest}"), false),
        "ado last" => (format!("mssql:{rest};PWD={password}"), false),
        _ => (format!("mssql:Server=h;Database=d;User Id=u;Password=\"{quoted}\";{rest}"), true),
    };
    match StoreUrl::parse(&url) {
        Ok(read) => {
            let shown = read.server().expect("the URL names a server").shown.clone();
            assert!(!shows_secret(&shown), "{shown}");
            let debug = format!("{read:?}");
            // A password that was not encoded may be read as the user, the host or parameters.
            assert!(!must_read || !shows_secret(&debug), "{debug}");
            if let StoreUrl::Mssql(url) = &read
                && let Login::Sql { password: found, .. } = &url.login
                && must_read
                && !rest.to_ascii_lowercase().contains("p")
            {
                assert_eq!(*found, password, "another password");
            }
        }
        Err(error) => {
            assert_eq!(error.code(), Code::BAD_URL, "{error}");
            let shown = format!("{error:?} {error}");
            assert!(!shows_secret(&shown), "{shown}\nfor {url}");
        }
    }
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn shows_secret(text: &str) -> bool {
    text.contains(SECRET) || text.contains(&encode(SECRET))
}
