//! Hides the secrets of a connection string: every error, log, help and `Debug` shows strings through this file.
//!
//! A part is shown only if its form proves that it holds no password. In doubt only the scheme is shown.

#[cfg(any(feature = "cli", test))]
mod command_line;

use super::decode;
#[cfg(any(feature = "cli", test))]
pub use command_line::redacted_in;

/// The schemes that may be shown; another word before a colon may be a user's name, or a password.
const SCHEMES: [&str; 10] =
    ["sqlite", "postgres", "postgresql", "mssql", "sqlserver", "mysql", "mariadb", "jdbc", "odbc", "oracle"];

/// The parameters whose values are no secrets: those of the URLs here, of libpq and of ADO strings.
const KNOWN: &[&str] = &[
    "addr",
    "address",
    "app",
    "application name",
    "application_name",
    "authentication",
    "channel_binding",
    "closed_retention_s",
    "connect timeout",
    "connect_timeout",
    "connect_timeout_s",
    "connection timeout",
    "data source",
    "database",
    "dbname",
    "durability",
    "encrypt",
    "host",
    "host name in certificate",
    "host_name_in_certificate",
    "hostaddr",
    "hostnameincertificate",
    "initial catalog",
    "install",
    "instance",
    "integrated security",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "max pool size",
    "max_body_bytes",
    "min pool size",
    "multiple active result sets",
    "multipleactiveresultsets",
    "network address",
    "packet size",
    "persist security info",
    "persistsecurityinfo",
    "pool_size",
    "pool_wait_s",
    "pooling",
    "port",
    "server",
    "share",
    "sql_timeout_ms",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "timeout",
    "trust server certificate",
    "trust_server_certificate",
    "trust_server_certificate_ca",
    "trusted_connection",
    "trustservercertificate",
    "trustservercertificateca",
    "uid",
    "user",
    "user id",
    "username",
];

/// Replaces every hidden part.
const HIDDEN: &str = "***";

/// The text without its secrets: a URL, an ADO string, a DSN of libpq, or a malformed one of these.
pub(crate) fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once(':') else {
        // A file whose scheme was forgotten. Nothing with a name and a value in it is one.
        return if is_plain_path(text) { text.to_owned() } else { HIDDEN.to_owned() };
    };
    let shown = match scheme {
        "sqlite" => file(rest),
        "postgres" | "postgresql" | "mssql" if rest.starts_with("//") => {
            server(&rest[2..]).map(|rest| format!("//{rest}"))
        }
        "mssql" => Some(pairs(rest, ';')),
        _ => None,
    };
    match shown {
        Some(shown) => format!("{scheme}:{shown}"),
        None if SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) => format!("{scheme}:{HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

/// The part after `sqlite:`. A server's URL with the wrong scheme is no file's name.
fn file(rest: &str) -> Option<String> {
    let (path, query) = split_query(rest);
    let is_path = !path.contains(['@', ';', '=']) && decode(path).is_none_or(|path| !path.contains(['@', ';', '=']));
    let looks_like_server = path.strip_prefix("//").is_some_and(|place| !place.starts_with('/') && place.contains(':'));
    (is_path && !looks_like_server).then(|| with_query(path, query)).flatten()
}

/// The part after the two slashes of a server's URL: `user:password@host:port/database?parameters`.
fn server(rest: &str) -> Option<String> {
    let (place, query) = split_query(rest);
    let shown = match place.split_once('@') {
        // The end of the password is ambiguous.
        Some((_, place)) if place.contains('@') => return None,
        // An ADO string behind two slashes: the `@` stands in its password.
        Some((login, _)) if login.contains([';', '=']) => return None,
        Some((login, place)) => {
            let login = match login.split_once(':') {
                Some((user, _)) if is_name(user) => format!("{user}:{HIDDEN}"),
                None if is_name(login) => login.to_owned(),
                _ => HIDDEN.to_owned(),
            };
            format!("{login}@{}", is_place(place).then_some(place)?)
        }
        None => is_place(place).then_some(place)?.to_owned(),
    };
    with_query(&shown, query)
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(place, query)| (place, Some(query)))
}

fn with_query(place: &str, query: Option<&str>) -> Option<String> {
    match query {
        None => Some(place.to_owned()),
        // The mark is a part of a password that was not encoded.
        Some(query) if query.contains('@') => None,
        Some(query) => Some(format!("{place}?{}", pairs(query, '&'))),
    }
}

/// Pairs of names and values up to the first that may hold a secret. A password that was not encoded may hold anything,
/// so nothing after one is shown.
fn pairs(text: &str, separator: char) -> String {
    let mut shown = String::new();
    for pair in text.split_inclusive(separator) {
        let bare = pair.strip_suffix(separator).unwrap_or(pair);
        if bare.trim().is_empty() {
            shown.push_str(pair);
            continue;
        }
        let Some((name, value)) = bare.split_once('=') else { return shown + HIDDEN };
        let is_known = KNOWN.contains(&name.trim().to_ascii_lowercase().as_str());
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_ ".contains(&byte));
        match (is_known, is_plain) {
            (true, _) if is_value(value) => shown.push_str(pair),
            (_, true) => return format!("{shown}{name}={HIDDEN}"),
            _ => return shown + HIDDEN,
        }
    }
    shown
}

/// A value in which no further name and no login can be read.
fn is_value(text: &str) -> bool {
    let text = text.trim();
    let is_plain = |text: &str| is_name(text) || is_place(text.strip_prefix("tcp:").unwrap_or(text));
    text.is_empty() || text == "(local)" || is_plain(text) && decode(text).is_some_and(|text| is_plain(&text))
}

/// A word as names of users are.
pub(super) fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_.- ".contains(c))
}

/// Hosts with ports, and a database: `host`, `host:port`, several with commas, `[::1]:port`, `host\instance`, or the
/// folder of a socket.
fn is_place(text: &str) -> bool {
    let Some(text) = decode(text) else { return false };
    let (hosts, path) = text.find('/').map_or((text.as_str(), ""), |slash| text.split_at(slash));
    is_path(path) && hosts.split(',').all(is_host)
}

fn is_host(text: &str) -> bool {
    let (host, rest) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, rest)) => {
            let is_address = address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
            return is_address && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    host.chars().all(|c| c.is_alphanumeric() || "_.-\\".contains(c)) && rest.is_none_or(is_port)
}

/// A longer number than any port may be a password.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_path(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_.-/ ".contains(c))
}

fn is_plain_path(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_.-/\\".contains(c))
}

#[cfg(test)]
mod tests;
