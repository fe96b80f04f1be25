//! The broker: a store opened by URL, with every statement on it.

use crate::act::{InStore, Perform, unexpected};
use crate::catalog::{Catalog, apply, ddl};
use crate::core::Repair;
use crate::define::{Definitions, missing, turned};
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::protocol::definition::Definition;
use crate::protocol::{Outcome, Unit, Verb};
use crate::store::database::DatabaseStore;
use crate::store::database::link::Driver;
use crate::store::sqlite::{self, SharedStore, SqliteOptions, SqliteStore};
use crate::store::traced::Traced;
use crate::store::url::{Location, StoreUrl};
use crate::store::{
    AccessToken, ActivityBoard, BoxFuture, IntoSqlParams, OpenOptions, Seen, SqlRows, SqlStatement, Store,
};
use crate::time::Clock;
use crate::tx::Tx;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use uuid::Uuid;

/// A broker. Clones are cheap and share it; [`Act`](crate::Act) on it commits each statement at once.
#[derive(Clone)]
pub struct Broker {
    store: Arc<dyn Store>,
    repairs: Arc<[Repair]>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").finish_non_exhaustive()
    }
}

impl Broker {
    /// Opens the broker at a URL; a missing database is made.
    ///
    /// `sqlite:path` is a file that this process then owns, or uses through the process that owns it (`docs/operations.md`,
    /// "One owner"); `sqlite::memory:` is gone when it is closed.
    /// `postgres://user:password@host/database` and `mssql://user:password@host/database` are databases of servers,
    /// shared with other processes; the latter may also be an ADO string after `mssql:`. Parameters follow a question
    /// mark:
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `durability` | `full` | `full`: an acknowledged commit is synced; `normal`: a power cut may lose the latest ones |
    /// | `max_body_bytes` | 67108864 | the largest body that SEND takes, in bytes |
    /// | `closed_retention_s` | 1800 | how long an ended target endpoint is kept against replays, in seconds; a server keeps it for all processes |
    /// | `sql_timeout_ms` | no limit | how long one statement of the user's own SQL may run, in milliseconds |
    /// | `share` | `on` | `sqlite:` files: whether other processes may use the file at the same time |
    /// | `pool_size` | 32 | servers: the most connections for callers; the process opens up to seven more for itself, and six if requests hang |
    /// | `pool_wait_s` | 30 | servers: how long a caller waits for a free connection before 60032, in seconds |
    /// | `install` | `yes` | servers: whether schema `dialoq` is made or brought up to date |
    ///
    /// The servers' own parameters are in `docs/servers.md` and `docs/sqlserver.md`.
    ///
    /// A broker on a server works in the tokio runtime in which it was opened. Once that has ended, later calls from other runtimes
    /// get 60016, and those under way 60016 or 60031; so tests that share a broker share a runtime too. Calls hang while that runtime
    /// exists and runs nothing, as one of `current_thread` does outside its `block_on`, and time out at once under `start_paused`.
    ///
    /// Queries, checks of bodies against a schema and the close of an embedded store run on the blocking pool of the caller's runtime. So
    /// never wait for them by `block_on` on all threads of that pool, 512 by default: no thread is left for them.
    ///
    /// # Errors
    /// 60019 the URL is not understood, 60010 another process owns the file and this one cannot
    /// work through it, 60011 it is not a Dialoq database, 60012
    /// it is damaged, 60013 it was written by a newer Dialoq, 60014 it cannot be written, 60018 it cannot be read. Of a
    /// server: 60030 it cannot be reached, 60034 it refuses this user, 60035 the schema is missing or not whole, 60026
    /// this build has no driver for it.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, OpenOptions::default()).await
    }

    /// The same, with options; the URL overrides them.
    ///
    /// # Errors
    /// Those of [`Broker::open`].
    pub async fn open_with(url: &str, options: OpenOptions) -> Result<Self> {
        match StoreUrl::parse(url)? {
            StoreUrl::Sqlite(url) => {
                let options = SqliteOptions::from_url(url, options);
                if options.is_shared && matches!(options.location, Location::File(_)) {
                    let store = blocking(move || SharedStore::open(options)).await?;
                    let repairs = store.repairs().clone();
                    return Ok(Self { store: Traced::over(store), repairs });
                }
                let store = blocking(move || SqliteStore::open(options)).await?;
                let repairs = store.repairs().clone();
                Ok(Self { store: Traced::over(store), repairs })
            }
            url => Ok(Self::over(Traced::over(open_server(&url, options).await?))),
        }
    }

    /// Opens a database that another process may own, for reading: [`Broker::query`] and [`Broker::catalog`], the
    /// latter as of the opening, and what looks by queries, such as [`Broker::jobs`] and [`Broker::peek`]. All other calls are
    /// refused with 60014. On a server that is not so: it is opened as by [`Broker::open`], and all calls work. But nothing is
    /// installed in it, its settings stay, whatever the URL says, and what had fallen due before waits for another
    /// process, for a minute at most.
    ///
    /// # Errors
    /// Those of [`Broker::open`], but for 60010.
    pub async fn open_read_only(url: &str) -> Result<Self> {
        match StoreUrl::parse(url)? {
            StoreUrl::Sqlite(url) => {
                let options = SqliteOptions::from_url(url, OpenOptions::default());
                let store = blocking(move || SqliteStore::open_read_only(options)).await?;
                Ok(Self::over(Traced::over(store)))
            }
            url => {
                let options = OpenOptions { does_overdue_work: false, ..OpenOptions::default().create(false) };
                Ok(Self::over(Traced::over(open_server(&url.without_changes(), options).await?)))
            }
        }
    }

    /// A broker over any store.
    pub(crate) fn over(store: Arc<dyn Store>) -> Self {
        Self { store, repairs: Arc::default() }
    }

    /// Repairs made when the embedded store was opened: removed rows that belonged to nothing, and quarantined
    /// conversation groups whose rows contradict each other. Empty as a rule.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// The store itself, for modules next to the broker.
    pub(crate) fn shared_store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Opens a transaction; dropping it rolls it back.
    ///
    /// # Errors
    /// 60016 the broker is closed, 60015 an earlier commit failed.
    pub async fn begin(&self) -> Result<Tx> {
        let seen = Seen::default();
        Ok(Tx::new(self.store.clone(), self.store.begin(seen.clone()).await?, seen))
    }

    /// Executes a list of verbs wholly or not at all, in one round: one outcome per verb.
    ///
    /// # Errors
    /// That of the first verb refused.
    pub async fn submit(&self, unit: Unit) -> Result<Vec<Outcome>> {
        self.store.submit(unit).await
    }

    /// Executes a unit under the caller's own id, at most once: `None` if a unit of that id happened before. If the
    /// outcome is unknown, try again with the same id; ids are kept for a week. If a server's answer to COMMIT
    /// is lost, the call tries again: once the server answers, it gives its own outcomes (for definitions `None`), and 60031 if the
    /// server stays away.
    ///
    /// # Errors
    /// That of the first verb refused; 60031 the outcome is unknown; 60026 the store keeps no ids; 60008 definitions, in the embedded store.
    pub async fn submit_once(&self, unit_id: Uuid, unit: Unit) -> Result<Option<Vec<Outcome>>> {
        self.store.submit_once(unit_id, unit).await
    }

    /// Whether a unit of [`Broker::submit_once`] or a transaction of [`Tx::claim`] has happened. It waits while that is under way, so do not
    /// ask from the flow of that transaction itself.
    ///
    /// # Errors
    /// 60026 the store keeps no ids.
    pub async fn unit_happened(&self, unit_id: Uuid) -> Result<bool> {
        self.store.unit_happened(unit_id).await
    }

    /// Makes definitions, all or none; returns the warnings.
    ///
    /// # Errors
    /// Those of the statements: 60001 the name is taken (see [`Broker::ensure`]), 60002 something named does not exist,
    /// 60003 the name is unusable, and so on by statement.
    pub async fn define(&self, build: impl FnOnce(&mut Definitions)) -> Result<Vec<String>> {
        let mut definitions = Definitions::default();
        build(&mut definitions);
        self.apply(definitions.into_list()).await
    }

    /// Makes the missing definitions, all or none; an application calls it at every start. Existing objects stay
    /// unchanged; of a queue or broker priority only the settings named here are compared, and no STATUS: what poison handling or an
    /// operator has turned off stays so, and is among the warnings that this returns.
    ///
    /// # Errors
    /// 60001 an object of that name exists but differs; 60026 the list holds a statement other than CREATE, or than ALTER DATABASE with what
    /// stands so already; else those of [`Broker::define`].
    pub async fn ensure(&self, build: impl Fn(&mut Definitions)) -> Result<Vec<String>> {
        let mut definitions = Definitions::default();
        build(&mut definitions);
        self.ensure_list(&definitions.into_list()).await
    }

    pub(crate) async fn ensure_list(&self, wanted: &[Definition]) -> Result<Vec<String>> {
        loop {
            let redefined = self.store.activity().register_definitions();
            let catalog = self.catalog();
            let (rest, mut warnings) = (missing(&catalog, wanted)?, turned(&catalog, wanted));
            if rest.is_empty() {
                return Ok(warnings);
            }
            match self.apply(rest.clone()).await {
                // Another caller is making it: its commit is ordered before this refusal but may not be visible yet.
                Err(error) if error.code() == Code::DUPLICATE_NAME && is_possible(&catalog, &rest) => redefined.await,
                other => {
                    warnings.extend(other?);
                    return Ok(warnings);
                }
            }
        }
    }

    /// Applies a list of definitions, all or none; returns the warnings.
    ///
    /// # Errors
    /// Those of [`Broker::define`].
    pub async fn apply(&self, definitions: Vec<Definition>) -> Result<Vec<String>> {
        match self.perform(Verb::Define(definitions)).await? {
            Outcome::Warnings(warnings) => Ok(warnings),
            Outcome::Done => Ok(Vec::new()),
            other => Err(unexpected(&other)),
        }
    }

    /// Applies a script in Service Broker's own definition language, all of it or nothing; returns the warnings.
    ///
    /// ```no_run
    /// # async fn example(broker: dialoq::Broker) -> dialoq::Result<()> {
    /// broker.execute("CREATE QUEUE orders; CREATE SERVICE [//shop/OrderService] ON QUEUE orders").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// 60004 the script is not understood, 60026 it holds a statement that Dialoq does not have, else those of
    /// [`Broker::define`]; each with the [position](Error::position) of its statement.
    pub async fn execute(&self, script: &str) -> Result<Vec<String>> {
        let (definitions, positions): (Vec<_>, Vec<_>) =
            ddl::parse(script)?.into_iter().map(|statement| (statement.definition, statement.position)).unzip();
        self.apply(definitions).await.map_err(|error| match error.statement().and_then(|index| positions.get(index)) {
            Some(&position) => error.at(position),
            None => error,
        })
    }

    /// The script that makes the definitions of this broker again: input for [`Broker::execute`].
    pub fn dump(&self) -> String {
        ddl::render(&self.catalog())
    }

    /// The definitions as of the last commit.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.store.catalog()
    }

    /// Reads committed rows with the user's own SQL: the catalog views and the user's own tables. Parameters are written as for
    /// [`Tx::sql`].
    ///
    /// # Errors
    /// 60022 the statement fails or is not a query.
    pub async fn query(&self, text: impl Into<String>, params: impl IntoSqlParams) -> Result<SqlRows> {
        self.store.query(statement(text, params).checked()?).await
    }

    /// Reads committed rows of the broker with a text of the store. A damaged file is reported as 60012; in the user's own SQL it is 60022.
    pub(crate) async fn query_own(&self, text: &'static str, params: impl IntoSqlParams) -> Result<SqlRows> {
        self.query(text, params).await.map_err(sqlite::of_own_query)
    }

    /// Runs the user's own SQL at once, in a transaction of its own; returns the number of rows changed. Parameters are written as for
    /// [`Tx::sql`].
    ///
    /// # Errors
    /// 60022 the statement fails.
    pub async fn sql(&self, text: impl Into<String>, params: impl IntoSqlParams) -> Result<u64> {
        self.store.run_sql(statement(text, params).checked()?).await
    }

    /// The clock that rules timers, lifetimes and waits.
    pub fn clock(&self) -> &Clock {
        self.store.clock()
    }

    /// The sessions of this process that wait in a RECEIVE without WHERE or in GET CONVERSATION GROUP on this queue. A
    /// test with a [`Clock`] of its own waits for them before it moves the clock.
    pub fn sessions_waiting(&self, queue: &str) -> usize {
        self.store.activity().queue(queue).facts().waiting
    }

    /// Activity in the queues: depth, waits, receives.
    pub(crate) fn activity(&self) -> &ActivityBoard {
        self.store.activity()
    }

    /// Waits until the store takes nothing more, and gives its error: 60015 after a commit that failed, 60016 after a close; 60011 to
    /// 60013 if the file of several processes is foreign, damaged or of a newer version when this one is to take it over.
    ///
    /// For a process that makes no calls of its own. Its activated handlers and workers wait for messages, and would wait for ever
    /// in a store that another caller has failed. Close the broker then, and open it again. It asks once a second, and opens no
    /// transaction for that. A server that is away, a file that another process takes over, or a full disk may come to an end, and is no
    /// failure.
    pub async fn failed(&self) -> Error {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            if let Some(error) = self.store.ended() {
                return error;
            }
        }
    }

    /// Finishes all accepted work, then closes: for all clones; later calls fail with 60016. In an embedded store so do calls that
    /// wait for a group, and transactions that are not being committed.
    ///
    /// A process that works through the owner of a SQLite file waits for its answers as long as one comes each second. If the owner is
    /// busy with one statement or its disk hangs for longer, a call that ends with 60016 may have happened.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}

/// How often [`Broker::failed`] asks the store whether it still works.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Whether these definitions can be made on top of those.
fn is_possible(catalog: &Catalog, definitions: &[Definition]) -> bool {
    let (mut catalog, mut ids) = (catalog.clone(), IdSource::Random);
    definitions.iter().all(|definition| apply::apply(&mut catalog, definition, &mut ids).is_ok())
}

async fn open_server(url: &StoreUrl, options: OpenOptions) -> Result<Arc<dyn Store>> {
    let options = match url.server() {
        Some(server) => options.with_url(server),
        None => options,
    };
    let mut url = url.clone();
    url.set_sql_timeout(options.sql_timeout);
    let driver = server_driver(&url, options.entra_token.clone())?;
    let driver =
        driver.ok_or_else(|| Error::new(Code::UNSUPPORTED, "the URL names an embedded database, not a server"))?;
    Ok(DatabaseStore::open(driver, options).await?)
}

/// The driver for the server of a URL; `None` if the URL names an embedded database.
///
/// # Errors
/// 60019 it cannot be used; 60026 this build has no driver for it.
pub fn server_driver(url: &StoreUrl, entra_token: Option<AccessToken>) -> Result<Option<Arc<dyn Driver>>> {
    match url {
        StoreUrl::Sqlite(_) => Ok(None),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Some(Arc::new(crate::store::postgres::PostgresDriver::new(url)?))),
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(Error::without_driver("PostgreSQL", "postgres")),
        #[cfg(feature = "mssql")]
        StoreUrl::Mssql(url) => Ok(Some(Arc::new(crate::store::mssql::MssqlDriver::new(url, entra_token)?))),
        #[cfg(not(feature = "mssql"))]
        StoreUrl::Mssql(_) => {
            drop(entra_token);
            Err(Error::without_driver("SQL Server", "mssql"))
        }
    }
}

/// Recovery reads the disk for an unbounded time, which must not hold up other tasks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failure) => Err(Error::new(Code::STORE_IO, "opening the store was cut short").caused_by(failure)),
    }
}

fn statement(text: impl Into<String>, params: impl IntoSqlParams) -> SqlStatement {
    SqlStatement { text: text.into(), params: params.into_sql_params(), expected_rows: None }
}

impl Perform for Broker {
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        let span = verb.span();
        let answer = async move {
            let outcomes = self.store.submit(vec![verb]).await?;
            outcomes
                .into_iter()
                .next()
                .ok_or_else(|| Error::new(Code::STORE_DAMAGED, "the store gave no answer to a verb it was asked"))
        };
        Box::pin(answer.instrument(span))
    }
}

impl InStore for Broker {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn may_hold_groups(&self) -> bool {
        false
    }

    fn is_transaction(&self) -> bool {
        false
    }
}
