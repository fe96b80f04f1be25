//! Encrypted connections to PostgreSQL: the servers that each `sslmode` accepts and refuses, and the errors.

use crate::servers::{Database, Store};
use dialoq::{Broker, Code, Error, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to read its settings again.
const SOON: Duration = Duration::from_secs(60);

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Gives a server a certificate for `127.0.0.1`, and nothing else, of that authority, and turns TLS on.
fn turn_tls_on(database: &Database, authority: &CertifiedIssuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    // The server writes them itself, because it takes no key file of another user.
    for (file, text) in [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())] {
        database.sql(&format!(
            "COPY (SELECT line FROM unnest(string_to_array('{}', E'\\n')) AS t (line)) TO PROGRAM 'umask 077; cat >{file}'",
            text.trim()
        ));
    }
    database.sql("ALTER SYSTEM SET ssl = on");
    database.sql("SELECT pg_reload_conf()");
    let until = std::time::Instant::now() + SOON;
    while database.sql("SHOW ssl") != "on" {
        assert!(std::time::Instant::now() < until, "the server never turned TLS on");
    }
}

/// The message of an error and of its causes.
fn whole(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

pub(crate) fn the_url_chooses_how_much_tls_verifies(_: Store) {
    // Free a moment ago; a server that finds it taken does not start, and says so.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = Database::on_a_server_at(port);
    let name = database.sql("SELECT current_database()");
    let folder = tempfile::TempDir::new().unwrap();
    let (ours, others) = (authority("Authority of the shop"), authority("Authority of another shop"));
    let (ours_file, others_file) = (folder.path().join("ours.pem"), folder.path().join("others.pem"));
    std::fs::write(&ours_file, ours.pem()).unwrap();
    std::fs::write(&others_file, others.pem()).unwrap();
    let url = |host: &str, mode: &str, trusted: Option<&Path>| {
        let trusted = trusted.map_or(String::new(), |file| format!("&sslrootcert={}", file.display()));
        format!("postgres://dialoq@{host}:{port}/{name}?sslmode={mode}{trusted}&pool_size=2")
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Whether the session with which the broker answers is encrypted.
    let open = |url: String| -> Result<bool> {
        runtime.block_on(async {
            let broker = Broker::open(&url).await?;
            let rows =
                broker.query("select ssl::int as ssl from pg_stat_ssl where pid = pg_backend_pid()", ()).await?.rows;
            broker.close().await?;
            Ok(rows[0].get::<i64>("ssl")? == 1)
        })
    };
    let refused = |url: String, part: &str| {
        let error = open(url.clone()).expect_err(&url);
        assert_eq!(error.code(), Code::SERVER_UNREACHABLE, "{url}: {error:?}");
        let text = whole(&error);
        assert!(text.contains(part) && text.contains("127.0.0.1") | text.contains("localhost"), "{url}: {text}");
    };

    // A server without TLS: what asks for it is refused, the default takes what there is.
    for mode in ["require", "verify-ca", "verify-full"] {
        refused(url("127.0.0.1", mode, Some(&ours_file)), "TLS");
    }
    for mode in ["disable", "prefer"] {
        assert!(!open(url("127.0.0.1", mode, None)).unwrap(), "{mode}");
    }

    turn_tls_on(&database, &ours);
    assert!(!open(url("127.0.0.1", "disable", None)).unwrap());
    for mode in ["prefer", "require"] {
        assert!(open(url("127.0.0.1", mode, None)).unwrap(), "{mode}: encrypted, and verified only if asked");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        assert!(open(url("127.0.0.1", mode, Some(&ours_file))).unwrap(), "{mode}: the right authority");
        refused(url("127.0.0.1", mode, Some(&others_file)), "certificate");
    }
    // The machine's own authorities know nothing of ours.
    refused(url("127.0.0.1", "verify-full", None), "certificate");
    // The certificate is another name's.
    assert!(open(url("localhost", "verify-ca", Some(&ours_file))).unwrap());
    refused(url("localhost", "verify-full", Some(&ours_file)), "certificate");
    // A file that holds no certificate is a fault of the URL.
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    for missing in [empty, folder.path().join("missing.pem")] {
        let error = open(url("127.0.0.1", "verify-full", Some(&missing))).unwrap_err();
        assert_eq!(error.code(), Code::BAD_URL, "{error:?}");
        assert!(error.to_string().contains(&*missing.display().to_string()), "{error}");
    }
}
