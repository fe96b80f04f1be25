//! The stores a test can run on, and a fresh database on any of them.
//!
//! PostgreSQL is one private server per test process, started when the first test asks for it and gone with the process;
//! its programs are found on `PATH` and in the folders of packages. `DIALOQ_TEST_POSTGRES` and `DIALOQ_TEST_MSSQL` name a
//! server to use instead, as `postgres://user:password@host/` and `mssql://user:password@host/`; the user in it must
//! have the right to create databases. `DIALOQ_TEST_REQUIRE=postgres,mssql` makes it an error that one is missing.

// Each test target uses its own part of this.
#![allow(dead_code)]

pub(crate) mod called_by;
mod mssql;
mod postgres;

pub(crate) use dialoq_test_support::limit;

use dialoq::{Act, Broker, ConversationHandle};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// A store that tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
    Mssql,
}

impl Store {
    pub(crate) const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Mssql];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mssql => "mssql",
        }
    }

    /// Whether Dialoq was built with it.
    fn is_built(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres => cfg!(feature = "postgres"),
            Self::Mssql => cfg!(feature = "mssql"),
        }
    }

    /// Whether it is a server, which many processes may use at once.
    pub(crate) fn is_server(self) -> bool {
        self != Self::Sqlite
    }

    /// Why nothing runs on it here.
    pub(crate) fn why_skipped(self) -> Option<String> {
        if !self.is_built() {
            return Some("Dialoq was built without it".to_owned());
        }
        self.why_missing()
    }

    /// Why there is no server of it here.
    pub(crate) fn why_missing(self) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => postgres::why_skipped(),
            Self::Mssql => mssql::why_skipped(),
        }
    }

    /// The stores that tests run on here.
    pub(crate) fn here() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|store| store.why_skipped().is_none())
    }

    /// A catalog view, by Service Broker's name without its schema.
    pub(crate) fn view(self, name: &str) -> String {
        if self.is_server() { format!("dialoq.sys_{name}") } else { format!("sys_{name}") }
    }

    /// The view of every queue's messages.
    pub(crate) fn queue_messages(self) -> &'static str {
        if self.is_server() { "dialoq.queue_messages" } else { "queue_messages" }
    }

    /// The text that shows as `session` the session that a server runs it in.
    pub(crate) fn session(self) -> &'static str {
        match self {
            Self::Sqlite => fail("session", "the embedded store has no sessions"),
            Self::Postgres => "SELECT pg_backend_pid() AS session",
            Self::Mssql => "SELECT CAST(@@SPID AS bigint) AS session",
        }
    }

    /// A statement of the tests' own, written with `?1`, `?2`, in this store's words.
    pub(crate) fn sql(self, text: &str) -> String {
        match self {
            Self::Sqlite => text.to_owned(),
            Self::Postgres => text.replace('?', "$"),
            Self::Mssql => text.replace('?', "@P"),
        }
    }
}

/// The socket of the PostgreSQL server whose folder a URL names.
pub(crate) fn socket_of(url: &str) -> PathBuf {
    let (_, query) = url.split_once('?').expect("a URL with the folder of the socket");
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let folder = value("host").expect("the tests' server is reached by a socket");
    Path::new(folder).join(format!(".s.PGSQL.{}", value("port").unwrap_or("5432")))
}

/// Checks in a row that must find the server quiet.
const QUIET_LOOKS: u32 = 3;

impl Store {
    /// Returns when each earlier request is answered or waits: the tasks spawned on this thread's runtime have run, and every
    /// request on the server waits.
    pub(crate) async fn barrier(self, broker: &Broker) {
        match self {
            // It runs requests in order, so after this answer it has begun all earlier ones.
            Self::Sqlite => {
                let unknown = ConversationHandle(Uuid::nil());
                broker.transmission_status(unknown).await.expect("a broker that is open answers");
            }
            Self::Postgres | Self::Mssql => {
                let mut quiet_looks = 0;
                while quiet_looks < QUIET_LOOKS {
                    for _ in 0..8 {
                        tokio::task::yield_now().await;
                    }
                    // What was written to a socket is nowhere to be seen until the process at its other end gets its
                    // turn, and no server signals that it has nothing left to read. Nothing is right because of this pause:
                    // it gives way, and without it the checks below may all come before that turn.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    quiet_looks = if self.is_quiet(broker).await { quiet_looks + 1 } else { 0 };
                }
            }
        }
    }

    /// Whether no session of this database works: it has nothing to do, or waits for a lock.
    async fn is_quiet(self, broker: &Broker) -> bool {
        let text = match self {
            Self::Sqlite => return true,
            Self::Postgres => {
                "SELECT count(*) AS working FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
                   AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock'"
            }
            Self::Mssql => mssql::working(broker).await,
        };
        let rows = broker.query(text, ()).await.expect("a broker that is open answers").rows;
        rows[0].get::<i64>("working").expect("a number") == 0
    }
}

impl Store {
    /// Whether a session of this database waits for a lock. The embedded store does not say; there what takes long waits.
    pub(crate) async fn waits_for_a_lock(self, broker: &Broker) -> bool {
        let text = match self {
            Self::Sqlite => return true,
            Self::Postgres => {
                "SELECT count(*) AS waiting FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'"
            }
            Self::Mssql => mssql::waiting(broker).await,
        };
        let rows = broker.query(text, ()).await.expect("a broker that is open answers").rows;
        rows[0].get::<i64>("waiting").expect("a number") > 0
    }
}

/// A fresh database without a broker, or with one in which nothing was made; it goes when this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    store: Store,
    url: String,
    place: Arc<Place>,
}

#[derive(Debug)]
enum Place {
    Folder(TempDir),
    Postgres(&'static postgres::Server, String),
    Mssql { name: String, is_bare: bool },
}

impl Database {
    /// Panics if the store is not here.
    pub(crate) fn fresh(store: Store) -> Self {
        let name = unique();
        let (url, place) = match store {
            Store::Sqlite => {
                let folder = TempDir::new().expect("a folder");
                (format!("sqlite:{}", folder.path().join("broker.db").display()), Place::Folder(folder))
            }
            Store::Postgres => {
                let server = postgres::server();
                (server.create(&name), Place::Postgres(server, name))
            }
            Store::Mssql => {
                let (url, name) = mssql::create_installed(&name);
                (url, Place::Mssql { name, is_bare: false })
            }
        };
        Self::placed(store, url, place)
    }

    /// If the test of this thread does not end, what this database waits for is shown.
    fn placed(store: Store, url: String, place: Place) -> Self {
        let place = Arc::new(place);
        let (there, at) = (Arc::downgrade(&place), url.clone());
        limit::report_on(move || match there.upgrade().as_deref() {
            None => format!("{at} is gone"),
            Some(Place::Folder(folder)) => describe_embedded(&folder.path().display().to_string()),
            Some(Place::Postgres(server, _)) => format!("{at}:\n{}", server.describe_waits(&at)),
            Some(Place::Mssql { .. }) => format!("{at}:\n{}", mssql::describe_waits(&at)),
        });
        Self { store, url, place }
    }

    /// A database without a broker on a PostgreSQL that no other test uses. Not a copy of another: PostgreSQL 15 may lose
    /// the indexes of unlogged tables when a server falls that has such a copy.
    pub(crate) fn on_a_server_of_its_own() -> Self {
        let (server, name) = (postgres::alone(), unique());
        Self::placed(Store::Postgres, server.create_bare(&name), Place::Postgres(server, name))
    }

    /// The same on a PostgreSQL that also listens to that port of 127.0.0.1, without passwords.
    pub(crate) fn on_a_server_at(port: u16) -> Self {
        let (server, name) = (postgres::alone_at(port), unique());
        Self::placed(Store::Postgres, server.create_bare(&name), Place::Postgres(server, name))
    }

    /// A database of a server without a broker; not for the embedded store.
    pub(crate) fn bare(store: Store) -> Self {
        let name = unique();
        let (url, place) = match store {
            Store::Sqlite => fail("bare", "an embedded database is made with its broker"),
            Store::Postgres => {
                let server = postgres::server();
                (server.create_bare(&name), Place::Postgres(server, name))
            }
            Store::Mssql => (mssql::create(&name), Place::Mssql { name, is_bare: true }),
        };
        Self::placed(store, url, place)
    }

    /// Runs SQL as the owner of a server's database, past the broker; gives what it prints. Panics if it fails.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.try_sql_as(&self.url, text).unwrap_or_else(|why| fail(text, why))
    }

    /// The same as whom the URL names.
    pub(crate) fn try_sql_as(&self, url: &str, text: &str) -> Result<String, String> {
        match &*self.place {
            Place::Postgres(server, _) => server.try_sql(url, text),
            Place::Mssql { .. } => mssql::try_sql(url, text),
            Place::Folder(_) => fail(text, "the embedded store has no users"),
        }
    }

    /// Ends that session of the server, named as [`Store::session`] shows it, and waits until it is gone.
    pub(crate) fn end_session(&self, session: i64) {
        match &*self.place {
            Place::Postgres(..) => {
                self.sql(&format!("SELECT pg_terminate_backend({session}, 20000)"));
            }
            Place::Mssql { .. } => mssql::end_session(&self.url, session),
            Place::Folder(_) => fail("end_session", "the embedded store has no sessions"),
        }
    }

    /// Ends every session in a server's database but the one that does it.
    pub(crate) fn end_sessions(&self) {
        match &*self.place {
            Place::Postgres(..) => {
                self.sql(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                );
            }
            Place::Mssql { .. } => mssql::end_sessions(&self.url),
            Place::Folder(_) => fail("end_sessions", "the embedded store has no sessions"),
        }
    }

    /// Kills a process of the server, upon which all of it falls and recovers; waits until it answers again. For a
    /// PostgreSQL that no other test uses.
    pub(crate) fn fall(&self) {
        /// Another one after each fall.
        const CHECKPOINTER: &str = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        let before = self.sql(CHECKPOINTER);
        assert!(before.trim().parse::<u32>().is_ok(), "the checkpointer is {before}");
        let pid = self.sql(
            "SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status().expect("kill");
        assert!(killed.success(), "the session {pid} is served by a process");
        let until = std::time::Instant::now() + Duration::from_secs(60);
        // It answers until it has noticed.
        while self.try_sql_as(&self.url, CHECKPOINTER).is_ok_and(|now| now == before) {
            assert!(std::time::Instant::now() < until, "the server does not fall");
        }
        while self.try_sql_as(&self.url, "SELECT 1").is_err() {
            assert!(std::time::Instant::now() < until, "the server does not come back");
        }
    }

    /// The URL of a new user of a server's database, who is a member of that role, if one is named, and may nothing else.
    pub(crate) fn login(&self, role: &str) -> String {
        match &*self.place {
            Place::Postgres(server, _) => server.login(&unique(), role, &self.url),
            Place::Mssql { .. } => mssql::login(&unique(), role, &self.url),
            Place::Folder(_) => fail(role, "the embedded store has no users"),
        }
    }

    /// What a PostgreSQL of the tests has written into its log about this database.
    pub(crate) fn server_log(&self) -> Option<Vec<String>> {
        match &*self.place {
            Place::Postgres(server, name) => server.log(name),
            Place::Folder(_) | Place::Mssql { .. } => None,
        }
    }

    pub(crate) fn store(&self) -> Store {
        self.store
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// A name that no other test has.
fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("dialoq_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

impl Drop for Place {
    fn drop(&mut self) {
        match self {
            Self::Folder(_) => {}
            Self::Postgres(server, name) => server.remove(name),
            Self::Mssql { name, is_bare: true } => mssql::remove(name),
            Self::Mssql { name, is_bare: false } => mssql::reuse(name),
        }
    }
}

/// Runs the trials, then names the stores that were skipped; an error if one of them was required.
pub(crate) fn conclude(arguments: &Arguments, trials: Vec<Trial>) -> ExitCode {
    let conclusion: Conclusion = libtest_mimic::run(arguments, trials);
    mssql::sweep();
    if arguments.list {
        return conclusion.exit_code();
    }
    let required = std::env::var("DIALOQ_TEST_REQUIRE").unwrap_or_default();
    let mut is_complete = true;
    for store in Store::ALL {
        let Some(why) = store.why_skipped() else { continue };
        let is_required = required.split(',').any(|name| name.trim() == store.name());
        is_complete &= !is_required;
        println!("{} store: {} ({why})", if is_required { "missing" } else { "skipped" }, store.name());
    }
    if is_complete { conclusion.exit_code() } else { ExitCode::FAILURE }
}

/// A test of that name with a limit: see [`limit`].
pub(crate) fn trial(name: String, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let shown = name.clone();
    Trial::test(name, move || limit::run(&shown, test).map_err(Failed::from).flatten())
}

/// The waits of the embedded stores of this process with a file in that folder.
fn describe_embedded(folder: &str) -> String {
    let stores = dialoq::testing::describe_waits();
    stores.into_iter().filter(|store| store.contains(folder)).collect::<Vec<_>>().join("\n")
}

/// A test that runs once on each store that is here.
pub(crate) struct OnStores {
    pub(crate) name: &'static str,
    pub(crate) stores: &'static [Store],
    pub(crate) run: fn(Store),
}

/// The `main` of a target whose tests each run on several stores: `name::of::the::test::store`.
pub(crate) fn run(tests: &[OnStores]) -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for test in tests {
        for store in Store::here().filter(|store| test.stores.contains(store)) {
            let run = test.run;
            trials.push(trial(format!("{}::{}", store.name(), test.name), move || {
                // The harness reports a panic as a failure.
                run(store);
                Ok(())
            }));
        }
    }
    conclude(&arguments, trials)
}

/// Opens the broker at that URL once, which installs it there.
fn install(url: &str) {
    let url = url.to_owned();
    // Tests have runtimes of their own, in which another cannot be waited for.
    let installing = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { dialoq::Broker::open(&url).await?.close().await })
    });
    match installing.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => fail("installing", format!("{error:?}")),
        Err(_) => fail("installing", "it panicked"),
    }
}

/// The text of a statement about a server that failed.
fn fail(what: &str, why: impl std::fmt::Display) -> ! {
    panic!("the tests' database server: {what}: {why}")
}
