//! `postgres://user:password@host:port/database?parameters`.

use super::server::{NAMES, ServerUrl};
use super::{bad, decode, parameters, refuse_encoded_colon, refuse_twice, shown};
use crate::error::Result;
use std::fmt;
use std::path::PathBuf;

/// How far TLS is asked for, under libpq's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// If the server has it; nothing is verified. The default, as libpq's. Never over a Unix socket.
    #[default]
    Prefer,
    /// Always; the server's certificate is verified only if `sslrootcert` is given, as libpq does.
    Require,
    /// Always, and the certificate must come from an authority that is trusted.
    VerifyCa,
    /// Always, and the certificate must be trusted and made out to the host of the URL.
    VerifyFull,
}

/// `postgres://user:password@host:port/database?parameters`, as libpq has it: the host may be a Unix socket's folder,
/// encoded (`postgres://%2Fvar%2Frun%2Fpostgresql/shop`) or as a parameter (`postgres:///shop?host=/var/run/postgresql`).
///
/// `sslmode`, `sslrootcert` (a file of PEM, or `system`: the machine's authorities, which are the default where a certificate is verified),
/// `sslcert` and `sslkey` are libpq's; the parameters that are not Dialoq's go to the driver unchanged. With `sslrootcert=system` the
/// default of `sslmode` is `verify-full`, and less than `verify-ca` is refused.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    /// The part for the driver. Holds the password.
    pub connection: String,
    /// How far TLS is asked for.
    pub tls: TlsMode,
    /// The file of trusted certificates; by default those of the machine.
    pub root_certificates: Option<PathBuf>,
    /// This side's certificates and their key, both in PEM.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The parameters of every server.
    pub server: ServerUrl,
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUrl")
            .field("tls", &self.tls)
            .field("root_certificates", &self.root_certificates)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// The parameters of libpq that the driver understands.
const PASSED_ON: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

impl PostgresUrl {
    pub(super) fn parse(url: &str, rest: &str) -> Result<Self> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(bad(url, "two slashes must follow, as in 'postgres://shop@localhost/shop'"));
        };
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        if query.is_some_and(|query| query.contains('@')) && !place.contains('@') {
            return Err(bad(url, "a '?' in a password is written '%3F'"));
        }
        // The driver takes what follows the first one for the host, which errors show and a name server is asked for.
        let host = place.split_once('@').map_or("", |(_, host)| host);
        if host.contains('@')
            || decode(host.split('/').next().unwrap_or_default()).is_some_and(|host| host.contains('@'))
        {
            return Err(bad(url, "no host has an '@'; in a user, a password or a database it is written '%40'"));
        }
        refuse_encoded_colon(url, place)?;
        let (mut connection, mut separator) = (format!("postgresql://{place}"), '?');
        if parameters(query).any(|(name, _)| name == "host") {
            let (without, port) = without_host(place);
            connection = format!("postgresql://{without}");
            if let Some(port) = port.filter(|_| !parameters(query).any(|(name, _)| name == "port")) {
                connection.extend(["?port=", port]);
                separator = '&';
            }
        }
        let mut parsed = Self {
            connection: String::new(),
            tls: TlsMode::Prefer,
            root_certificates: None,
            client_certificate: None,
            server: ServerUrl::new(url),
        };
        refuse_twice(url, query)?;
        let (mut certificate, mut key) = (None, None);
        let (mut is_verified_at_least, mut is_of_system, mut is_mode_given) = (false, false, false);
        for (name, value) in parameters(query) {
            let file = || {
                decode(value).filter(|path| !path.is_empty()).map(PathBuf::from).ok_or_else(|| {
                    let value = shown(url, value);
                    bad(url, format!("{name} is '{value}'; it must name a file, with '%xx' for what is not a letter"))
                })
            };
            match name {
                "sslmode" => {
                    is_mode_given = true;
                    parsed.tls = match value {
                        "disable" => TlsMode::Disable,
                        "prefer" => TlsMode::Prefer,
                        "require" => TlsMode::Require,
                        "verify-ca" => TlsMode::VerifyCa,
                        "verify-full" => TlsMode::VerifyFull,
                        _ => {
                            return Err(bad(
                                url,
                                format!(
                                    "sslmode is '{}'; it must be 'disable', 'prefer', 'require', 'verify-ca' or \
                                     'verify-full'",
                                    shown(url, value)
                                ),
                            ));
                        }
                    }
                }
                "sslrootcert" if value == "system" => is_of_system = true,
                "sslrootcert" => {
                    parsed.root_certificates = Some(file()?);
                    is_verified_at_least = true;
                }
                "sslcert" => certificate = Some(file()?),
                "sslkey" => key = Some(file()?),
                // The driver has another name for it.
                "keepalives_count" => {
                    connection.push(separator);
                    connection.extend(["keepalives_retries=", value]);
                    separator = '&';
                }
                _ if PASSED_ON.contains(&name) => {
                    connection.push(separator);
                    connection.extend([name, "=", value]);
                    separator = '&';
                }
                _ if parsed.server.set(url, name, value)? => {}
                _ => {
                    return Err(bad(
                        url,
                        format!(
                            "'{}' is not a parameter; there are {NAMES}, sslmode, sslrootcert, sslcert, sslkey, and \
                             libpq's {}, \
                             keepalives_count",
                            shown(url, name),
                            PASSED_ON.join(", ")
                        ),
                    ));
                }
            }
        }
        if is_verified_at_least && parsed.tls == TlsMode::Require {
            parsed.tls = TlsMode::VerifyCa;
        }
        // An attacker too has a certificate of some authority of the machine.
        if is_of_system && !is_mode_given {
            parsed.tls = TlsMode::VerifyFull;
        }
        if is_of_system && ![TlsMode::VerifyCa, TlsMode::VerifyFull].contains(&parsed.tls) {
            let why = "sslrootcert=system asks for a certificate that is verified, and its sslmode for less; write sslmode=verify-full";
            return Err(bad(url, why));
        }
        parsed.client_certificate = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(bad(url, "sslcert and sslkey belong together; give both or none")),
        };
        parsed.connection = connection;
        Ok(parsed)
    }
}

/// The part before the question mark without its host, which a parameter of that name replaces as in libpq; and the
/// port that was given with it.
fn without_host(place: &str) -> (String, Option<&str>) {
    let (authority, path) = place.find('/').map_or((place, ""), |end| place.split_at(end));
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.bytes().all(|c| c.is_ascii_digit()));
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    (format!("{user}{path}"), port.filter(|port| !port.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::store::url::{Durability, StoreUrl};
    use std::time::Duration;

    fn parsed(url: &str) -> PostgresUrl {
        match StoreUrl::parse(url).unwrap() {
            StoreUrl::Postgres(url) => url,
            other => panic!("{url} is {other:?}"),
        }
    }

    #[test]
    fn our_own_parameters_are_taken_out_and_the_rest_is_handed_on() {
        let url = parsed(
            "postgres://shop:p%40ss@db:5433/shop?durability=normal&connect_timeout=3&pool_size=7&pool_wait_s=2\
             &install=no&max_body_bytes=9&closed_retention_s=60&options=-c%20search_path%3Dshop&sslmode=verify-full",
        );
        assert_eq!(
            url.connection,
            "postgresql://shop:p%40ss@db:5433/shop?connect_timeout=3&options=-c%20search_path%3Dshop"
        );
        assert_eq!(url.tls, TlsMode::VerifyFull);
        assert_eq!((url.server.pool_size, url.server.pool_wait), (7, Duration::from_secs(2)));
        assert_eq!(url.server.install, Some(false));
        assert_eq!(url.server.common.durability, Durability::Normal);
        assert_eq!(url.server.common.max_body_bytes, Some(9));
        assert_eq!(url.server.common.closed_retention, Some(Duration::from_secs(60)));
    }

    #[test]
    fn omitted_parameters_have_defaults() {
        let url = parsed("postgresql:///shop?host=/run/postgresql");
        assert_eq!(url.connection, "postgresql:///shop?host=/run/postgresql");
        assert_eq!((url.tls, url.server.pool_size, url.server.install), (TlsMode::Prefer, 32, None));
    }

    #[test]
    fn a_host_among_the_parameters_replaces_the_other() {
        for (url, connection) in [
            ("postgres://u:p@h:5433/d?host=/run", "postgresql://u:p@/d?port=5433&host=/run"),
            ("postgres://h/d?host=/run", "postgresql:///d?host=/run"),
            ("postgres://u@h:1/d?port=2&host=i", "postgresql://u@/d?port=2&host=i"),
            ("postgres://u@h:1/d?port=2", "postgresql://u@h:1/d?port=2"),
        ] {
            assert_eq!(parsed(url).connection, connection);
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn the_count_of_keepalives_has_libpqs_name() {
        let url = parsed("postgres://h/d?keepalives_count=7&port=2");
        assert_eq!(url.connection, "postgresql://h/d?keepalives_retries=7&port=2");
        let config: tokio_postgres::Config = url.connection.parse().unwrap();
        assert_eq!(config.get_keepalives_retries(), Some(7));
    }

    #[test]
    fn a_root_certificate_makes_require_verify() {
        assert_eq!(parsed("postgres://h/d?sslmode=require").tls, TlsMode::Require);
        let url = parsed("postgres://h/d?sslmode=require&sslrootcert=%2Fca.pem&sslcert=a&sslkey=b");
        assert_eq!(url.tls, TlsMode::VerifyCa);
        assert_eq!(url.root_certificates, Some(PathBuf::from("/ca.pem")));
        assert_eq!(url.client_certificate, Some((PathBuf::from("a"), PathBuf::from("b"))));
    }

    #[test]
    fn the_authorities_of_the_machine_verify() {
        assert_eq!(parsed("postgres://h/d?sslrootcert=system").tls, TlsMode::VerifyFull);
        assert_eq!(parsed("postgres://h/d?sslmode=verify-ca&sslrootcert=system").tls, TlsMode::VerifyCa);
        for weak in ["disable", "prefer", "require"] {
            for url in [
                format!("postgres://h/d?sslmode={weak}&sslrootcert=system"),
                format!("postgres://h/d?sslrootcert=system&sslmode={weak}"),
            ] {
                let error = StoreUrl::parse(&url).unwrap_err();
                assert!(error.message().contains("verify-full"), "{url}: {error}");
            }
        }
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name_and_without_the_password() {
        for (url, part) in [
            ("postgres:shop", "two slashes"),
            ("postgres://u:secret@h/d?pool_size=0", "pool_size"),
            ("postgres://u:secret@h/d?pool_wait_s=x", "'x'"),
            ("postgres://u:secret@h/d?install=maybe", "'maybe'"),
            ("postgres://u:secret@h/d?sslmode=allow", "'allow'"),
            ("postgres://u:secret@h/d?sslcert=a", "sslkey"),
            ("postgres://u:secret@h/d?sslrootcert=", "sslrootcert"),
            ("postgres://u:secret@h/d?durability=some", "'some'"),
            ("postgres://u:secret@h/d?pool_size=2&pool_size=3", "'pool_size' is there twice"),
            ("postgres://u:secret@h/d?colour=red", "'colour'"),
            ("postgres://u:sec?ret@h/d", "%3F"),
            ("postgres://u:p@sec@h/d", "%40"),
            ("postgres://u:p@sec/ret@h/d", "%40"),
            ("postgres://u:p@sec@h/d?host=%2Frun", "%40"),
            ("postgres://u:p@sec%40h/d", "%40"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), Code::BAD_URL, "{url}");
            assert!(error.message().contains(part), "{url}: {error}");
            assert!(!error.message().contains("sec"), "{url}: {error}");
        }
        let shown = format!("{:?}", parsed("postgres://u:secret@h/d"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
