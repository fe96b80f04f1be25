//! `mssql://user:password@host:port/database?parameters`, and `mssql:` before an ADO string.

use super::redact::is_name;
use super::server::{NAMES, ServerUrl};
use super::{Durability, bad, decode, number, parameters, refuse_encoded_colon, refuse_twice, shown};
use crate::error::Result;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How far TLS is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Everything, or no connection. The default.
    #[default]
    Required,
    /// As `Required`: the driver (tiberius 0.13) has no connection without TLS if TLS was asked for.
    On,
    /// Nothing, not even the password.
    Off,
    /// TLS before the first word (TDS 8.0, SQL Server 2022 and later).
    Strict,
}

/// Who logs in.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// A login of the server itself.
    Sql {
        /// Its name.
        user: String,
        /// Its password.
        password: String,
    },
    /// An access token of Microsoft Entra, from [`OpenOptions::entra_token`](crate::OpenOptions::entra_token) or, without
    /// that, from the environment's `DIALOQ_ENTRA_TOKEN` at each connection.
    EntraToken,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql { user, .. } => {
                // A colon that was encoded makes the password a part of the user's name.
                let user = if is_name(user) { user } else { "***" };
                f.debug_struct("Sql").field("user", &user).finish_non_exhaustive()
            }
            Self::EntraToken => f.write_str("EntraToken"),
        }
    }
}

/// `mssql://user:password@host:port/database?parameters`, or `mssql:Server=host,port;Database=name;User Id=name;Password=word`.
#[derive(Clone, PartialEq, Eq)]
pub struct MssqlUrl {
    /// The host's name or address.
    pub host: String,
    /// Its port; 1433 if there is neither this nor an instance.
    pub port: Option<u16>,
    /// The named instance, whose port the server's browser service gives.
    pub instance: Option<String>,
    /// The database.
    pub database: String,
    /// Who logs in.
    pub login: Login,
    /// How far TLS is asked for.
    pub encryption: Encryption,
    /// Whether any certificate will do.
    pub trust_server_certificate: bool,
    /// A file of PEM or DER with authorities that are trusted besides those the machine trusts.
    pub trust_server_certificate_ca: Option<PathBuf>,
    /// The name that the certificate must bear, if not the host's.
    pub host_name_in_certificate: Option<String>,
    /// The longest wait for a login. Default 15 s.
    pub connect_timeout: Duration,
    /// The name of this program in the server's own views. Default `dialoq`.
    pub application_name: String,
    /// The parameters of every server.
    pub server: ServerUrl,
}

/// A part that was written wrong may hold the password, so only what may be shown of the URL is.
impl fmt::Debug for MssqlUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MssqlUrl")
            .field("login", &self.login)
            .field("encryption", &self.encryption)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// The parameters by their names here; ADO strings may use ADO's.
const OWN: &str = "encrypt, trust_server_certificate, trust_server_certificate_ca, host_name_in_certificate, authentication, \
                   connect_timeout_s, application_name, instance";

/// The parts of a URL before its parameters.
const NAMED: [&str; 4] = ["host", "database", "user", "password"];

/// Parameters of ADO strings that have no effect here: there is one pool, Dialoq's, and one result set at a time.
const IGNORED: [&str; 9] = [
    "persist security info",
    "persistsecurityinfo",
    "multipleactiveresultsets",
    "multiple active result sets",
    "pooling",
    "min pool size",
    "packet size",
    "type system version",
    "connectretrycount",
];

impl MssqlUrl {
    pub(super) fn parse(url: &str, rest: &str) -> Result<Self> {
        let parsed = match rest.strip_prefix("//") {
            Some(rest) => Self::from_parts(url, rest),
            None => Self::from_ado(url, rest),
        }?;
        if parsed.server.common.durability == Durability::Normal {
            return Err(bad(
                url,
                "durability=normal is the database's own setting in SQL Server: ALTER DATABASE ... SET DELAYED_DURABILITY",
            ));
        }
        if parsed.trust_server_certificate && parsed.trust_server_certificate_ca.is_some() {
            return Err(bad(url, "it trusts any certificate and an authority's only; give one of the two"));
        }
        Ok(parsed)
    }

    fn new(url: &str) -> Self {
        Self {
            host: String::new(),
            port: None,
            instance: None,
            database: String::new(),
            login: Login::EntraToken,
            encryption: Encryption::Required,
            trust_server_certificate: false,
            trust_server_certificate_ca: None,
            host_name_in_certificate: None,
            connect_timeout: Duration::from_secs(15),
            application_name: "dialoq".to_owned(),
            server: ServerUrl::new(url),
        }
    }

    fn from_parts(url: &str, rest: &str) -> Result<Self> {
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        if query.is_some_and(|query| query.contains('@')) && !place.contains('@') {
            return Err(bad(url, "a '?' in a password is written '%3F'"));
        }
        refuse_encoded_colon(url, place)?;
        let text = |what: &str, value: &str| {
            decode(value).ok_or_else(|| {
                let what = if NAMED.contains(&what) { what } else { shown(url, what) };
                bad(url, format!("its {what} has a '%' without two hexadecimal digits, or bytes that are not UTF-8"))
            })
        };
        let mut parsed = Self::new(url);
        let (user, place) = place.rsplit_once('@').map_or((None, place), |(user, place)| (Some(user), place));
        let (address, database) = place.split_once('/').unwrap_or((place, ""));
        parsed.set_address(url, &text("host", address)?, ':')?;
        parsed.database = text("database", database)?;
        let mut is_token = false;
        refuse_twice(url, query)?;
        for (name, value) in parameters(query) {
            match name {
                "authentication" => is_token = parse_authentication(url, value)?,
                _ => parsed.set(url, name, &text(name, value)?)?,
            }
        }
        let user = match user {
            Some(user) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                Some((text("user", user)?, text("password", password)?))
            }
            None => None,
        };
        parsed.finish(url, user, is_token)
    }

    fn from_ado(url: &str, rest: &str) -> Result<Self> {
        let mut parsed = Self::new(url);
        let (mut user, mut password, mut is_token) = (None, None, false);
        for (name, value) in ado_pairs(url, rest)? {
            match name.to_ascii_lowercase().as_str() {
                "server" | "data source" | "address" | "addr" | "network address" => {
                    parsed.set_address(url, value.strip_prefix("tcp:").unwrap_or(&value), ',')?;
                }
                "database" | "initial catalog" => parsed.database = value,
                "user id" | "uid" | "user" | "username" => user = Some(value),
                "password" | "pwd" => password = Some(value),
                "authentication" => is_token = parse_authentication(url, &value)?,
                "trustservercertificate" | "trust server certificate" => {
                    parsed.set(url, "trust_server_certificate", &value)?;
                }
                "trustservercertificateca" => parsed.set(url, "trust_server_certificate_ca", &value)?,
                "hostnameincertificate" | "host name in certificate" => {
                    parsed.set(url, "host_name_in_certificate", &value)?;
                }
                "connect timeout" | "connection timeout" | "timeout" => parsed.set(url, "connect_timeout_s", &value)?,
                "application name" | "app" => parsed.set(url, "application_name", &value)?,
                "max pool size" => parsed.set(url, "pool_size", &value)?,
                ignored if IGNORED.contains(&ignored) => {}
                "integrated security" | "trusted_connection" if !is_yes(&value) => {}
                "integrated security" | "trusted_connection" => {
                    return Err(bad(
                        url,
                        "Windows logins are not supported; use a login of the server, or a token of Entra",
                    ));
                }
                other => parsed.set(url, other, &value)?,
            }
        }
        let user = user.map(|user| (user, password.unwrap_or_default()));
        parsed.finish(url, user, is_token)
    }

    fn finish(mut self, url: &str, user: Option<(String, String)>, is_token: bool) -> Result<Self> {
        if self.host.is_empty() {
            return Err(bad(url, "it names no host; write 'mssql://shop:password@db.example:1433/shop'"));
        }
        if self.database.is_empty() {
            return Err(bad(url, "it names no database; write 'mssql://shop:password@db.example:1433/shop'"));
        }
        self.login = match (user, is_token) {
            (None, true) => Login::EntraToken,
            (Some((user, password)), false) if !user.is_empty() => Login::Sql { user, password },
            (Some(_), true) => {
                return Err(bad(url, "a token names its user already: leave the user and the password out"));
            }
            _ => {
                return Err(bad(
                    url,
                    "it names no user; write 'mssql://shop:password@...', or authentication=entra_token",
                ));
            }
        };
        Ok(self)
    }

    /// `host`, `host:1433`, `host\instance`; in brackets if the host is an IPv6 address. ADO has a comma for the colon.
    fn set_address(&mut self, url: &str, address: &str, separator: char) -> Result<()> {
        let (host, rest) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest),
            None => address.split_at(address.find([separator, '\\']).unwrap_or(address.len())),
        };
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || "=;@:/?&".contains(c)) && !is_address(host) {
            return Err(bad(
                url,
                "its host holds a character that no host's name has; an ADO string has no slashes before it",
            ));
        }
        self.host = match host {
            "." | "(local)" => "localhost".to_owned(),
            host => host.to_owned(),
        };
        let (instance, port) = match rest.split_once(separator) {
            Some((instance, port)) => (instance, Some(port)),
            None => (rest, None),
        };
        if let Some(instance) = instance.strip_prefix('\\') {
            self.instance = Some(instance.to_owned());
        }
        if let Some(port) = port {
            let port = number(url, "the port", port.trim(), 1, u64::from(u16::MAX))?;
            self.port = u16::try_from(port).ok();
        }
        Ok(())
    }

    fn set(&mut self, url: &str, name: &str, value: &str) -> Result<()> {
        match name {
            "encrypt" => {
                self.encryption = match value.to_ascii_lowercase().as_str() {
                    "required" | "mandatory" | "true" | "yes" => Encryption::Required,
                    "on" | "optional" => Encryption::On,
                    "off" | "false" | "no" => Encryption::Off,
                    "strict" => Encryption::Strict,
                    _ => {
                        let value = shown(url, value);
                        let why = format!("encrypt is '{value}'; it must be 'required', 'on', 'off' or 'strict'");
                        return Err(bad(url, why));
                    }
                };
            }
            "trust_server_certificate" => {
                self.trust_server_certificate = match value.to_ascii_lowercase().as_str() {
                    "yes" | "true" => true,
                    "no" | "false" => false,
                    _ => return Err(bad(url, format!("{name} is '{}'; it must be 'yes' or 'no'", shown(url, value)))),
                };
            }
            "trust_server_certificate_ca" if !value.is_empty() => self.trust_server_certificate_ca = Some(value.into()),
            "host_name_in_certificate" if !value.is_empty() => self.host_name_in_certificate = Some(value.to_owned()),
            "application_name" => self.application_name = value.to_owned(),
            "instance" if !value.is_empty() => self.instance = Some(value.to_owned()),
            "connect_timeout_s" => self.connect_timeout = Duration::from_secs(number(url, name, value, 1, 3600)?),
            _ if self.server.set(url, name, value)? => {}
            _ => {
                return Err(bad(
                    url,
                    format!("'{}' is not a parameter, or has no value; there are {NAMES}, {OWN}", shown(url, name)),
                ));
            }
        }
        Ok(())
    }
}

fn is_address(text: &str) -> bool {
    text.split('%').next().is_some_and(|text| text.parse::<std::net::IpAddr>().is_ok())
}

fn is_yes(value: &str) -> bool {
    ["true", "yes", "sspi"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

fn parse_authentication(url: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "sql" | "sqlpassword" | "sql password" => Ok(false),
        "entra_token" => Ok(true),
        _ => {
            let value = shown(url, value);
            Err(bad(url, format!("authentication is '{value}'; it must be 'sql' or 'entra_token'")))
        }
    }
}

/// The pairs of an ADO string: `name=value;`, where a value may stand in quotes of either sort, doubled inside.
fn ado_pairs(url: &str, text: &str) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start_matches([';', ' ']);
    while !rest.is_empty() {
        let Some((name, after)) = rest.split_once('=') else {
            return Err(bad(url, "an ADO string is made of 'name=value' with semicolons between"));
        };
        let after = after.trim_start();
        let (value, after) = match after.chars().next() {
            Some(quote @ ('"' | '\'')) => quoted(&after[1..], quote)
                .ok_or_else(|| bad(url, format!("the value of {} has no closing quote", shown(url, name.trim()))))?,
            _ => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim_end().to_owned(), &after[end..])
            }
        };
        pairs.push((name.trim().to_owned(), value));
        rest = after.trim_start_matches([';', ' ']);
    }
    Ok(pairs)
}

fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find(quote)?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(quote) {
            Some(more) => {
                value.push(quote);
                rest = more;
            }
            None => return Some((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::store::url::StoreUrl;

    fn parsed(url: &str) -> MssqlUrl {
        match StoreUrl::parse(url).unwrap() {
            StoreUrl::Mssql(url) => url,
            other => panic!("{url} is {other:?}"),
        }
    }

    fn sql(user: &str, password: &str) -> Login {
        Login::Sql { user: user.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn a_url_is_taken_apart() {
        let url = parsed(
            "mssql://shop:p%40s%3Bs@db.example:14330/orders?encrypt=strict&trust_server_certificate_ca=%2Fca.pem&pool_size=7\
             &pool_wait_s=2&connect_timeout_s=3&max_body_bytes=9&host_name_in_certificate=sql&application_name=till%201",
        );
        assert_eq!((url.host.as_str(), url.port, url.database.as_str()), ("db.example", Some(14330), "orders"));
        assert_eq!(url.login, sql("shop", "p@s;s"));
        assert_eq!(url.encryption, Encryption::Strict);
        assert_eq!(url.trust_server_certificate_ca, Some(PathBuf::from("/ca.pem")));
        assert_eq!((url.server.pool_size, url.server.pool_wait), (7, Duration::from_secs(2)));
        assert_eq!((url.connect_timeout, url.application_name.as_str()), (Duration::from_secs(3), "till 1"));
        assert_eq!(url.server.common.max_body_bytes, Some(9));
    }

    #[test]
    fn omitted_parameters_have_defaults() {
        let url = parsed("mssql://sa:x@[::1]/master");
        assert_eq!((url.host.as_str(), url.port, url.instance.as_deref()), ("::1", None, None));
        assert_eq!((url.encryption, url.trust_server_certificate), (Encryption::Required, false));
        let url = parsed("mssql://host\\LAB/master?authentication=entra_token");
        assert_eq!((url.host.as_str(), url.instance.as_deref(), url.login), ("host", Some("LAB"), Login::EntraToken));
    }

    #[test]
    fn an_ado_string_means_the_same() {
        let url = parsed(
            "mssql:Server=tcp:db.example,1434;Initial Catalog=orders;User Id=shop;Password=\"p;\"\"q\";Encrypt=True;\
             TrustServerCertificate=yes;Connection Timeout=30;MultipleActiveResultSets=False;pool_size=5;",
        );
        assert_eq!((url.host.as_str(), url.port, url.database.as_str()), ("db.example", Some(1434), "orders"));
        assert_eq!(url.login, sql("shop", "p;\"q"));
        assert_eq!((url.encryption, url.trust_server_certificate), (Encryption::Required, true));
        assert_eq!((url.connect_timeout, url.server.pool_size), (Duration::from_secs(30), 5));
        let url = parsed("mssql:data source=(local)\\LAB;database=d;uid=u;pwd='a''b'");
        assert_eq!((url.host.as_str(), url.instance.as_deref()), ("localhost", Some("LAB")));
        assert_eq!(url.login, sql("u", "a'b"));
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name_and_without_the_password() {
        for (url, part) in [
            ("mssql://u:secret@/d", "no host"),
            ("mssql://u:secret@h", "no database"),
            ("mssql://h/d", "no user"),
            ("mssql://u:secret@h:0/d", "the port"),
            ("mssql://u:secret@h/d?encrypt=maybe", "'maybe'"),
            ("mssql://u:secret@h/d?pool_size=2&pool_size=3", "'pool_size' is there twice"),
            ("mssql://u:secret@h/d?colour=red", "'colour'"),
            ("mssql://u:secret@h/d?authentication=entra_token", "token"),
            ("mssql://u:secret@h/d?durability=normal", "DELAYED_DURABILITY"),
            ("mssql://u:secret@h/d?trust_server_certificate=yes&trust_server_certificate_ca=x", "one of the two"),
            ("mssql:Server=h;Database=d;User Id=u;Colour=red;Password=secret", "'colour'"),
            ("mssql:Server=h;Database=d;User Id=u;Password=secret;Colour=red", "'***' is not a parameter"),
            ("mssql:Server=h;Database=d;User Id=u;Password='secret", "closing quote"),
            ("mssql:Server=h;Database=d;Integrated Security=SSPI", "Windows"),
            ("mssql:Server", "name=value"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), Code::BAD_URL, "{url}");
            assert!(error.message().contains(part), "{url}: {error}");
            assert!(!error.message().contains("secret"), "{url}: {error}");
        }
        let shown = format!("{:?}", parsed("mssql:Server=h;Database=d;User Id=u;Password=secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
