//! Makes connections, prepares them for use, and keeps them in a pool.

use super::failure::{Loss, chain, not_connected, silent};
use super::pooler::OwnSessions;
use super::values::Prepared;
use super::{texts, tls};
use crate::error::{Code, Error, Result};
use crate::sql::postgres::{session, transaction};
use crate::store::BoxFuture;
use crate::store::url::{PostgresUrl, TlsMode};
use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The longest wait for one host, unless the URL sets another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A name may stand for several addresses, which are tried one after the other.
const ADDRESSES: u32 = 3;

/// The server and the database, as error messages name them.
#[derive(Debug, Clone)]
pub(super) struct DatabaseLabel(String);

impl fmt::Display for DatabaseLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DatabaseLabel {
    /// For a connection that the user has opened: its server is unknown here.
    pub(super) fn enlisted() -> Self {
        Self("the database of the enlisted connection".to_owned())
    }
}

/// Makes connections to one database as one user.
pub(super) struct Connector {
    /// One for each host, in the order in which they are tried.
    hosts: Vec<Config>,
    /// The longest wait for one of them. The driver's own limit is for opening one socket: it does not cover a server that takes the
    /// connection and then never answers.
    limit: Duration,
    tls: MakeRustlsConnect,
    /// Readies a session.
    connect: Arc<str>,
    label: Arc<DatabaseLabel>,
    /// The longest run of a statement of the user's own SQL.
    pub(super) sql_timeout: Option<Duration>,
    running: Running,
    /// How many times the server refused to write because it only reads. Sessions made before that are not used again: they
    /// may lead to a server that is no primary any more, or keep the setting of a database that only read.
    read_only_refusals: AtomicU64,
    /// A connection was lost with an answer.
    lost_answer: Notify,
    /// The runtime of the first connection, which opened the store. A connection works only while its runtime runs, and a
    /// caller's runtime may end before other callers have done with the connection.
    home: OnceLock<tokio::runtime::Handle>,
    own_sessions: OwnSessions,
    ends: Arc<Ends>,
}

/// The statements of the user that are under way, so that closing can stop them.
#[derive(Default)]
struct Running {
    next: AtomicU64,
    statements: Mutex<BTreeMap<u64, Stoppable>>,
}

struct Stoppable {
    token: CancelToken,
    /// The request to stop it was sent, or is about to be.
    is_stopped: bool,
}

/// A statement of the user that is under way.
pub(super) struct RunningStatement {
    connector: Arc<Connector>,
    number: u64,
}

impl RunningStatement {
    pub(super) fn begin(connector: &Arc<Connector>, client: &Client) -> Self {
        let number = connector.running.next.fetch_add(1, Relaxed);
        let stoppable = Stoppable { token: client.cancel_token(), is_stopped: false };
        connector.running().insert(number, stoppable);
        Self { connector: connector.clone(), number }
    }

    /// Ends the statement; returns whether a request to stop it was sent. That request travels on a connection of its own and
    /// stops the statement that the session runs when it arrives, so the session must not be used again.
    pub(super) fn end(self) -> bool {
        self.connector.running().remove(&self.number).is_some_and(|statement| statement.is_stopped)
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        self.connector.running().remove(&self.number);
    }
}

/// A connection with the statements that the server has prepared for it.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    /// Why it was lost, once it was.
    pub(super) lost: Arc<OnceLock<Loss>>,
    pub(super) calls: HashMap<(&'static str, usize), Arc<Prepared>>,
    /// Those that travel with BEGIN.
    pub(super) calls_after_begin: HashMap<(&'static str, usize), Arc<Prepared>>,
    pub(super) texts: HashMap<String, Arc<Prepared>>,
    /// Cleaning after the last user is under way; the result says whether it succeeded.
    pub(super) renewal: Option<Renewal>,
    /// What makes it ready again after the user's own SQL.
    readying: Arc<Readying>,
    /// The connector's `read_only_refusals` when it was made.
    made_after: u64,
    /// The task of its connection, and where it goes with the session's end.
    task: Option<JoinHandle<()>>,
    ends: Arc<Ends>,
}

/// The sessions of a store, so that closing can wait for their ends.
#[derive(Default)]
struct Ends {
    /// How many sessions are in use or in the pool.
    held: AtomicUsize,
    /// The connections of dropped sessions: each still tells the server that it ends.
    ending: Mutex<Vec<JoinHandle<()>>>,
    /// The connections of all sessions.
    connections: Mutex<Vec<AbortHandle>>,
}

/// The `made_after` of a session that the pool does not give to a second caller.
const USED_ONCE: u64 = u64::MAX;

/// The setting by which a server says at the login that a session only reads. One of a standby writes after its promotion.
const READ_ONLY: &str = "default_transaction_read_only";

/// The longest wait for connections that end, and for sessions that are still held: work that has answered its caller gives
/// its session back a moment later, a transaction that is open does not.
const LONGEST_END: Duration = Duration::from_secs(1);
const LONGEST_HOLD: Duration = Duration::from_millis(100);

impl Ends {
    fn begin(&self, connection: AbortHandle) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.is_finished());
        connections.push(connection);
    }

    /// Cuts the connections of sessions that are still held.
    fn cut(&self) {
        let connections = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        connections.iter().for_each(AbortHandle::abort);
    }

    fn ending(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut ending = self.ends.ending();
        ending.retain(|task| !task.is_finished());
        ending.extend(self.task.take());
        self.ends.held.fetch_sub(1, Relaxed);
    }
}

impl Session {
    /// Lets the pool open another in its place.
    pub(super) fn retire(&mut self) {
        self.made_after = USED_ONCE;
    }
}

pub(super) type Renewal = BoxFuture<'static, bool>;

/// The statements that make a session ready again after the user's own SQL. The first renewal prepares the second one: as texts
/// it and what is now part of it took the server 80 us of the 105 us of a renewal.
struct Readying {
    /// Sets what Dialoq needs.
    connect: Arc<str>,
    /// Takes back what the user's SQL left.
    reset: String,
    prepared: Mutex<Option<Statement>>,
}

impl Readying {
    fn new(connect: Arc<str>, notices_lost_clients: bool) -> Self {
        let parts = [session::RESET, session::NOTICE_LOST_CLIENTS];
        let reset = parts[..if notices_lost_clients { 2 } else { 1 }].join(";");
        Self { connect, reset, prepared: Mutex::default() }
    }

    fn prepared(&self) -> MutexGuard<'_, Option<Statement>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn renew(&self, client: &Client, clean: &str) -> Result<(), tokio_postgres::Error> {
        let clean = async { if clean.is_empty() { Ok(()) } else { client.batch_execute(clean).await } };
        let reset = client.batch_execute(&self.reset);
        let prepared = self.prepared().take();
        if let Some(connect) = prepared {
            let (cleaned, reset, connected) = tokio::join!(biased; clean, reset, client.execute(&connect, &[]));
            cleaned.and(reset)?;
            if connected.is_ok() {
                *self.prepared() = Some(connect);
                return Ok(());
            }
            // The user's SQL has removed the prepared statement.
        } else {
            let (cleaned, reset) = tokio::join!(biased; clean, reset);
            cleaned.and(reset)?;
        }
        // After the reset: a statement is planned again if the search path is another one than when it was prepared.
        let connect = client.prepare(&self.connect).await?;
        client.execute(&connect, &[]).await?;
        *self.prepared() = Some(connect);
        Ok(())
    }
}

impl Connector {
    pub(super) fn new(url: &PostgresUrl) -> Result<Self> {
        let shown = &url.server.shown;
        let refuse = |why: String| Error::new(Code::BAD_URL, format!("the URL '{shown}' is not understood: {why}"));
        // Its errors name the parameter and not its value.
        let mut config = Config::from_str(&url.connection).map_err(|error| refuse(chain(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            default_host(&mut config);
        }
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("dialoq");
        }
        // A cut network makes no error by itself; these settings find it within half a minute.
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if !url.connection.contains("keepalives_idle=") {
            config.keepalives_idle(Duration::from_secs(10));
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(Duration::from_secs(5));
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(3);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(30));
        }
        config.ssl_mode(match url.tls {
            // As libpq does if no server listens on a socket of this machine.
            _ if is_local(&config) => SslMode::Disable,
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        let label = Arc::new(label(&config));
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT).saturating_mul(ADDRESSES);
        Ok(Self {
            hosts: each_host(config),
            limit,
            tls: tls::connector(url)?,
            connect: texts::connect(url.server.common.durability).into(),
            label,
            sql_timeout: url.server.common.sql_timeout,
            running: Running::default(),
            read_only_refusals: AtomicU64::new(0),
            lost_answer: Notify::new(),
            home: OnceLock::new(),
            own_sessions: OwnSessions::default(),
            ends: Arc::default(),
        })
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Stoppable>> {
        self.running.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server to stop every statement of the user that is under way.
    pub(super) async fn stop_users_statements(&self) {
        let stop = |statement: &mut Stoppable| {
            statement.is_stopped = true;
            statement.token.clone()
        };
        let tokens: Vec<CancelToken> = self.running().values_mut().map(stop).collect();
        let mut stops = tokio::task::JoinSet::new();
        for token in tokens {
            // The session is closed in any case; the server detects that within two seconds.
            let tls = self.tls.clone();
            stops.spawn(async move { tokio::time::timeout(CONNECT_TIMEOUT, token.cancel_query(tls)).await });
        }
        // In parallel: if the server does not answer, each takes the whole limit.
        stops.join_all().await;
    }

    /// Waits until the connections of dropped sessions have said to the server that they end, and cuts those of transactions that are
    /// still open: their callers can do nothing with them, and they kept their groups from every other broker.
    pub(super) async fn wait_for_ends(&self) {
        let began = Instant::now();
        let all = async {
            loop {
                let ending = std::mem::take(&mut *self.ends.ending());
                for task in ending {
                    let _ = task.await;
                }
                let is_over = self.ends.held.load(Relaxed) == 0 && self.ends.ending().is_empty();
                if is_over || began.elapsed() > LONGEST_HOLD {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(LONGEST_END, all).await;
        self.ends.cut();
    }

    /// Cleans a session whose user left a transaction open, and makes one that ran the user's SQL like new.
    pub(super) fn renewal(session: &Session, is_dirty: bool, ran_users_sql: bool) -> Renewal {
        let (client, readying) = (session.client.clone(), session.readying.clone());
        let clean = if is_dirty { transaction::ABANDON } else { "" };
        Box::pin(async move {
            let renewed = match ran_users_sql {
                true => readying.renew(&client, clean).await,
                false => client.batch_execute(clean).await,
            };
            renewed.is_ok()
        })
    }

    /// Readies a session for work of ours that no caller waits for.
    pub(super) async fn lift_limit(&self, client: &Client) -> Result<()> {
        let done = client.batch_execute(session::NO_LIMIT).await;
        done.map_err(|error| not_connected(&error, &self.label))
    }

    /// The server only reads: no idle session is used again.
    pub(super) fn note_read_only(&self) {
        self.read_only_refusals.fetch_add(1, Relaxed);
    }

    /// A connection was lost with the answer to something that may have committed.
    pub(super) fn note_lost_answer(&self) {
        self.lost_answer.notify_one();
    }

    pub(super) async fn answer_lost(&self) {
        self.lost_answer.notified().await;
    }

    pub(super) fn label(&self) -> &Arc<DatabaseLabel> {
        &self.label
    }

    pub(super) fn tls(&self) -> &MakeRustlsConnect {
        &self.tls
    }

    /// A connection that is ready for use. Notifications of the server go to `on_notification`.
    pub(super) async fn connect(
        self: &Arc<Self>,
        on_notification: impl FnMut(String) + Send + 'static,
    ) -> Result<Session> {
        let connector = self.clone();
        let home = self.home.get_or_init(tokio::runtime::Handle::current);
        match home.spawn(async move { connector.connect_here(on_notification).await }).await {
            Ok(connected) => connected,
            Err(failure) if failure.is_cancelled() => Err(Error::closed().caused_by(failure)),
            Err(failure) => Err(Error::new(
                Code::STORE_IO,
                format!(
                    "{} cannot be reached: connecting panicked; open the broker in a tokio runtime with network and timers \
                     (`enable_all`)",
                    self.label
                ),
            )
            .caused_by(failure)),
        }
    }

    async fn connect_here(&self, mut on_notification: impl FnMut(String) + Send + 'static) -> Result<Session> {
        let limit = self.limit;
        let made_after = self.read_only_refusals.load(Relaxed);
        let mut connected = Err(silent(limit, &self.label));
        let mut refused = None;
        for host in &self.hosts {
            connected = match tokio::time::timeout(limit, host.connect(self.tls.clone())).await {
                Ok(connected) => connected.map_err(|error| not_connected(&error, &self.label)),
                // It may be stopped, and the next one have taken over.
                Err(_) => Err(silent(limit, &self.label)),
            };
            match &connected {
                Ok(_) => break,
                Err(error) if error.code() == Code::ACCESS_DENIED => refused = Some(error.message().to_owned()),
                Err(_) => {}
            }
        }
        let (client, mut connection) = connected.map_err(|error| beside_refusal(error, refused))?;
        // Such a session keeps that setting of its database when the time in which the server only reads is over.
        let only_reads = connection.parameter(READ_ONLY) == Some("on");
        let lost = Arc::new(OnceLock::new());
        let why = lost.clone();
        let task = tokio::spawn(async move {
            loop {
                match std::future::poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(said))) => on_notification(said.payload().to_owned()),
                    Some(Ok(AsyncMessage::Notice(notice))) if notice.message().starts_with("dialoq: ") => {
                        tracing::warn!(target: "dialoq", "{}", notice.message());
                    }
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        tracing::debug!(target: "dialoq", severity = notice.severity(), "{}", notice.message());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        let _ = why.set(Loss::of(&error));
                        return;
                    }
                    None => return,
                }
            }
        });
        // The server refuses the last setting if its system cannot detect a lost client; the other settings stay.
        let readying = async {
            tokio::join!(
                biased;
                client.simple_query(&self.connect),
                client.batch_execute(session::NOTICE_LOST_CLIENTS),
            )
        };
        let Ok((readied, notices)) = tokio::time::timeout(limit, readying).await else {
            return Err(silent(limit, &self.label));
        };
        let readied = readied.map_err(|error| not_connected(&error, &self.label))?;
        let client = Arc::new(client);
        let own_session = readied.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get("session"),
            _ => None,
        });
        if let Some(own_session) = own_session {
            self.own_sessions.add(own_session.to_owned(), &client, &self.label).await?;
        }
        self.ends.held.fetch_add(1, Relaxed);
        self.ends.begin(task.abort_handle());
        Ok(Session {
            client,
            lost,
            calls: HashMap::new(),
            calls_after_begin: HashMap::new(),
            texts: HashMap::new(),
            renewal: None,
            readying: Arc::new(Readying::new(self.connect.clone(), notices.is_ok())),
            made_after: if only_reads { USED_ONCE } else { made_after },
            task: Some(task),
            ends: self.ends.clone(),
        })
    }
}

/// The maker of the pool's connections.
pub(super) struct Pooling(pub(super) Arc<Connector>);

impl managed::Manager for Pooling {
    type Type = Session;
    type Error = Error;

    async fn create(&self) -> Result<Session> {
        self.0.connect(|_| ()).await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Error> {
        if let Some(renewal) = session.renewal.take()
            && !renewal.await
        {
            return Err(RecycleError::message("what its last user left could not be taken back"));
        }
        if session.made_after != self.0.read_only_refusals.load(Relaxed) {
            return Err(RecycleError::message("the server only read when it was made"));
        }
        if session.client.is_closed() { Err(RecycleError::message("it was lost")) } else { Ok(()) }
    }
}

/// The same for each host alone: the driver has one limit for all of them, so one that is silent would keep the next ones from being asked.
fn each_host(config: Config) -> Vec<Config> {
    let (names, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let hosts = names.len().max(addresses.len());
    let is_usual = [1, hosts].contains(&ports.len()) || ports.is_empty();
    let fits = |number: usize| number == 0 || number == hosts;
    // One host; hosts in any order; or numbers that the driver refuses.
    if hosts < 2
        || config.get_load_balance_hosts() != LoadBalanceHosts::Disable
        || !is_usual
        || !fits(names.len())
        || !fits(addresses.len())
    {
        return vec![config];
    }
    let alone = |place: usize| {
        let mut one = Config::new();
        match names.get(place) {
            Some(Host::Tcp(name)) => drop(one.host(name.clone())),
            #[cfg(unix)]
            Some(Host::Unix(folder)) => drop(one.host_path(folder)),
            None => {}
        }
        addresses.get(place).map(|address| one.hostaddr(*address));
        ports.get(place).or(ports.first()).map(|port| one.port(*port));
        config.get_user().map(|user| one.user(user));
        config.get_password().map(|password| one.password(password));
        config.get_dbname().map(|name| one.dbname(name));
        config.get_options().map(|options| one.options(options));
        config.get_application_name().map(|name| one.application_name(name));
        config.get_connect_timeout().map(|limit| one.connect_timeout(*limit));
        config.get_tcp_user_timeout().map(|limit| one.tcp_user_timeout(*limit));
        config.get_keepalives_interval().map(|pause| one.keepalives_interval(pause));
        config.get_keepalives_retries().map(|number| one.keepalives_retries(number));
        one.keepalives(config.get_keepalives())
            .keepalives_idle(config.get_keepalives_idle())
            .ssl_mode(config.get_ssl_mode())
            .ssl_negotiation(config.get_ssl_negotiation())
            .target_session_attrs(config.get_target_session_attrs())
            .channel_binding(config.get_channel_binding());
        one
    };
    (0..hosts).map(alone).collect()
}

/// The folders in which packages of PostgreSQL put the server's socket.
fn default_host(config: &mut Config) {
    #[cfg(unix)]
    for folder in ["/var/run/postgresql", "/tmp"] {
        let port = config.get_ports().first().copied().unwrap_or(5432);
        if std::path::Path::new(folder).join(format!(".s.PGSQL.{port}")).exists() {
            config.host_path(folder);
            return;
        }
    }
    config.host("localhost");
}

fn is_local(config: &Config) -> bool {
    config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)))
}

fn label(config: &Config) -> DatabaseLabel {
    let mut hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        })
        .collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    let ports = config.get_ports();
    for (place, host) in hosts.iter_mut().enumerate() {
        if let Some(port) = ports.get(place).or(ports.first()) {
            host.push_str(&format!(":{port}"));
        }
    }
    let user = config.get_user().unwrap_or("of this process");
    let database = config.get_dbname().or(config.get_user()).unwrap_or("of this user");
    DatabaseLabel(format!("PostgreSQL server {}, database '{database}', user '{user}'", hosts.join(",")))
}

/// The error of the last host, with what an earlier one has refused: that host can be reached, and its answer is the one to act on.
fn beside_refusal(error: Error, refused: Option<String>) -> Error {
    match refused {
        Some(refused) if error.code() != Code::ACCESS_DENIED => {
            let message = format!("{}; another of its hosts answers: {refused}", error.message());
            Error::new(error.code(), message).caused_by(error)
        }
        _ => error,
    }
}
