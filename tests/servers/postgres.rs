//! PostgreSQL for tests.

use super::fail;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// Databases are copies of this one, in which the broker was installed once.
const TEMPLATE: &str = "dialoq_template";

#[derive(Debug)]
pub(crate) struct Server {
    /// Everything of a URL but the database.
    url: Url,
    psql: PathBuf,
    /// The server's standard input: its end, at the end of this process, ends the server.
    keeper: Option<Child>,
    _said: Option<BufReader<ChildStdout>>,
    template: OnceLock<String>,
    copies: OnceLock<&'static str>,
}

#[derive(Debug)]
struct Url {
    before: String,
    after: String,
}

impl Url {
    fn of(&self, database: &str) -> String {
        format!("{}{database}{}", self.before, self.after)
    }

    /// `postgres://host/database?parameters` for any database.
    fn parse(url: &str) -> Self {
        let (base, parameters) =
            url.split_once('?').map_or((url, "?".to_owned()), |(base, rest)| (base, format!("?{rest}")));
        let authority = base.find("://").map_or(0, |at| at + 3);
        let end = base[authority..].find('/').map_or(base.len(), |at| authority + at);
        Self { before: format!("{}/", &base[..end]), after: parameters }
    }
}

/// The folder of the server's programs, and the client's.
fn programs() -> Option<(PathBuf, PathBuf)> {
    let mut folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    for (base, below) in [("/usr/lib/postgresql", "bin"), ("/opt/homebrew/opt", "bin"), ("/usr/local/opt", "bin")] {
        let mut versions: Vec<PathBuf> =
            std::fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        versions.retain(|path| base.ends_with("postgresql") || path.to_string_lossy().contains("postgresql"));
        versions.sort();
        folders.extend(versions.into_iter().rev().map(|version| version.join(below)));
    }
    folders.push(PathBuf::from("/usr/local/pgsql/bin"));
    let has = |folder: &PathBuf, name: &str| folder.join(name).is_file();
    let server = folders.iter().find(|folder| has(folder, "initdb") && has(folder, "postgres"))?;
    // Programs that are links find their own files beside what they link to.
    let server = server.join("postgres").canonicalize().ok()?.parent()?.to_owned();
    let client = [server.clone()].into_iter().chain(folders).find(|folder| has(folder, "psql"))?;
    Some((server, client.join("psql")))
}

pub(super) fn why_skipped() -> Option<String> {
    let is_named = env::var_os("DIALOQ_TEST_POSTGRES").is_some();
    let found = if is_named { client().is_some() } else { programs().is_some() && cfg!(unix) };
    (!found).then(|| {
        if is_named {
            "DIALOQ_TEST_POSTGRES names a server, but there is no psql on PATH to make databases with".to_owned()
        } else {
            "initdb, postgres and psql are not on PATH nor in /usr/lib/postgresql/*/bin, and DIALOQ_TEST_POSTGRES names no server"
                .to_owned()
        }
    })
}

fn client() -> Option<PathBuf> {
    let on_path =
        || env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("psql")).find(|psql| psql.is_file());
    programs().map(|(_, psql)| psql).or_else(on_path)
}

/// The server of this process, started by the first caller.
pub(super) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| match env::var("DIALOQ_TEST_POSTGRES") {
        Ok(url) => {
            let psql = client().unwrap_or_else(|| fail("PostgreSQL", "there is no psql"));
            Server {
                url: Url::parse(&url),
                psql,
                keeper: None,
                _said: None,
                template: OnceLock::new(),
                copies: OnceLock::new(),
            }
        }
        Err(_) => start(None).unwrap_or_else(|why| fail("PostgreSQL does not start", why)),
    })
}

/// A server of a test's own, for tests that do it harm.
pub(super) fn alone() -> &'static Server {
    // It lives as long as the process, like the shared one.
    Box::leak(Box::new(start(None).unwrap_or_else(|why| fail("PostgreSQL does not start", why))))
}

/// The same, which listens to that port of 127.0.0.1 too.
pub(super) fn alone_at(port: u16) -> &'static Server {
    Box::leak(Box::new(start(Some(port)).unwrap_or_else(|why| fail("PostgreSQL does not start", why))))
}

fn start(port: Option<u16>) -> Result<Server, String> {
    let (bin, psql) = programs().ok_or("its programs are gone")?;
    let mut command = Command::new("sh");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/postgres.sh"))
        .arg(&bin)
        .args(port.map(|port| port.to_string()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A signal to the tests from the terminal reaches their process alone; the server goes after it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut keeper = command.spawn().map_err(|error| error.to_string())?;
    let mut said = BufReader::new(keeper.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    said.read_line(&mut line).map_err(|error| error.to_string())?;
    let folder = line.trim().strip_prefix("ready ").ok_or_else(|| line.trim().to_owned())?;
    let url = Url {
        before: "postgres://dialoq@localhost/".to_owned(),
        after: format!("?host={folder}&port={}", port.unwrap_or(5432)),
    };
    Ok(Server {
        url,
        psql,
        keeper: Some(keeper),
        _said: Some(said),
        template: OnceLock::new(),
        copies: OnceLock::new(),
    })
}

impl Server {
    /// Makes a database in which the broker is installed, and gives its URL.
    pub(super) fn create(&self, name: &str) -> String {
        let template = self.template.get_or_init(|| self.install());
        self.sql(&format!("CREATE DATABASE {name} TEMPLATE {template} {}", self.copies()));
        self.url.of(name)
    }

    /// Makes an empty database, and gives its URL.
    pub(super) fn create_bare(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE {name} {}", self.copies()));
        self.url.of(name)
    }

    /// How databases are copied. From PostgreSQL 15 on its own choice is through the log, block by block: 74 ms a database,
    /// and 17 ms to drop it, where copies of files take 16 ms and 5 ms, and older versions know nothing else.
    fn copies(&self) -> &'static str {
        self.copies.get_or_init(|| {
            let version = self.try_sql(&self.url.of("postgres"), "SHOW server_version_num");
            let is_a_choice = version.is_ok_and(|number| number.parse().is_ok_and(|number: u32| number >= 150_000));
            if is_a_choice { "STRATEGY FILE_COPY" } else { "" }
        })
    }

    /// Makes a user, a member of that role if one is named, and gives the URL with which he comes to that database.
    pub(super) fn login(&self, name: &str, role: &str, database: &str) -> String {
        self.sql(&format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'"));
        if !role.is_empty() {
            self.sql(&format!("GRANT {role} TO {name}"));
        }
        let (scheme, rest) = database.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').expect("a URL with a database");
        let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        format!("{scheme}://{name}:{name}@{place}/{path}")
    }

    /// A database of a server of this process goes with everything in it, perhaps sooner than this. The test does not wait for it: the
    /// server takes 100 ms to see that the sessions have ended.
    pub(super) fn remove(&'static self, name: &str) {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        let remove = move || {
            let _ = self.try_sql(&self.url.of("postgres"), &drop);
        };
        match self.keeper {
            Some(_) => _ = std::thread::spawn(remove),
            None => remove(),
        }
    }

    /// What the server has written into its log about that database; `None` of a server that the tests have not started.
    pub(super) fn log(&self, name: &str) -> Option<Vec<String>> {
        self.keeper.as_ref()?;
        let folder = self.url.after.strip_prefix("?host=")?.split('&').next()?;
        let log = std::fs::read_to_string(Path::new(folder).join("log")).expect("the server's log");
        Some(log.lines().filter(|line| line.contains(&format!(" {name} "))).map(str::to_owned).collect())
    }

    /// The statement, the wait and the locks of every session of that database.
    pub(super) fn describe_waits(&self, url: &str) -> String {
        let text = "SET statement_timeout = '20s';
            SELECT format('session %s (%s, transaction open for %s) waits for %s %s, blocked by sessions %s; holds %s; last statement: %s',
                a.pid, a.state, clock_timestamp() - a.xact_start, coalesce(a.wait_event_type, 'nothing'), a.wait_event,
                pg_blocking_pids(a.pid), l.locks, left(regexp_replace(a.query, '\\s+', ' ', 'g'), 300))
            FROM pg_stat_activity AS a
            LEFT JOIN LATERAL (
                SELECT string_agg(concat_ws(' ', l.locktype, l.relation::regclass, l.mode,
                    CASE WHEN l.locktype = 'advisory' THEN (l.classid::bigint << 32 | l.objid::bigint)::text END,
                    CASE WHEN NOT l.granted THEN '(waits)' END), ', ') AS locks
                FROM pg_locks AS l
                WHERE l.pid = a.pid AND (l.locktype IN ('advisory', 'transactionid', 'tuple') OR NOT l.granted)
            ) AS l ON true
            WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
            ORDER BY a.pid";
        self.try_sql(url, text).unwrap_or_else(|why| why)
    }

    fn install(&self) -> String {
        let name = format!("{TEMPLATE}_{}", std::process::id());
        self.sql(&format!("CREATE DATABASE {name}"));
        super::install(&self.url.of(&name));
        name
    }

    fn sql(&self, text: &str) {
        if let Err(why) = self.try_sql(&self.url.of("postgres"), text) {
            fail(text, why);
        }
    }

    /// The output of a statement that runs as the user of the URL.
    pub(super) fn try_sql(&self, url: &str, text: &str) -> Result<String, String> {
        let mut psql = Command::new(&self.psql);
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1"]);
        // An argument has a length that an installation exceeds.
        let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        if text.len() < 100_000 {
            psql.args(["--command", text]);
        } else {
            std::fs::write(file.path(), text).map_err(|error| error.to_string())?;
            psql.arg("--file").arg(file.path());
        }
        let output = psql.arg(url).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }
}
