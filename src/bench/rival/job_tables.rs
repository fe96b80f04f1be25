//! The rivals of a work queue on PostgreSQL: a table queue by hand, River and graphile-worker, each with its own tables and
//! statements, on plain connections.
//!
//! River fetches for all its free workers in one statement and completes in batches. Here it does both as soon as a worker is
//! free and as soon as a job is done: without the pause between its fetches (100 ms) and the tick of its completer (50 ms),
//! and without its notifications, which favours it. A worker waits until its job is completed, as with Dialoq.

use crate::bench::flow::{Bodies, Side, Stamp};
use crate::bench::server::texts::Server;
use crate::bench::sql::postgres as texts;
use dialoq::internals::ErrorConstructors;
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::internals::store::url::StoreUrl;
use dialoq::postgres::tokio_postgres::types::ToSql;
use dialoq::postgres::tokio_postgres::{Client, Row, Statement};
use dialoq::postgres::{Enlisted, Statements};
use dialoq::{Act, Broker, Code, Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Rows that are filled in with one statement.
const UNIT: usize = 100_000;

/// A plain connection with the statements that it has prepared.
pub(super) struct Connection {
    client: Arc<Client>,
    prepared: HashMap<&'static str, Statement>,
    /// Those of Dialoq in the user's own transaction.
    statements: Statements,
}

impl Connection {
    pub(super) async fn rows(&mut self, text: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let statement = match self.prepared.get(text) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(text).await.map_err(failed)?;
                self.prepared.insert(text, statement.clone());
                statement
            }
        };
        self.client.query(&statement, parameters).await.map_err(failed)
    }

    pub(super) async fn script(&mut self, text: &'static str) -> Result<()> {
        self.client.batch_execute(text).await.map_err(failed)
    }
}

/// The connections of all rivals; each caller has one at a time.
pub(in crate::bench) struct Connections {
    server: Server,
    free: Mutex<Vec<Connection>>,
}

impl Connections {
    pub(in crate::bench) fn new(server: &Server) -> Arc<Self> {
        Arc::new(Self { server: server.clone(), free: Mutex::default() })
    }

    pub(super) async fn take(&self) -> Result<Connection> {
        if let Some(free) = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(free);
        }
        let StoreUrl::Postgres(url) = &self.server.url else {
            return Err(Error::new(Code::UNSUPPORTED, "the rivals of work queues need PostgreSQL"));
        };
        let client = PostgresDriver::new(url)?.plain().await?;
        Ok(Connection { client, prepared: HashMap::new(), statements: Statements::default() })
    }

    /// Fills in so many rows of one body, some with each statement.
    pub(in crate::bench) async fn fill(
        &self,
        text: &'static str,
        body: &(dyn ToSql + Sync),
        count: usize,
    ) -> Result<()> {
        let (mut connection, mut left) = (self.take().await?, count);
        while left > 0 {
            let some = left.min(UNIT);
            connection.rows(text, &[body, &i64::try_from(some).unwrap_or(i64::MAX)]).await?;
            left -= some;
        }
        self.give_back(connection);
        Ok(())
    }

    pub(super) fn give_back(&self, connection: Connection) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

/// Which rival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Kind {
    /// By hand: one transaction marks the job as taken, another as completed.
    TwoTransactions,
    /// By hand: one transaction takes the job, writes a row of the user's and completes the job.
    OneTransaction,
    River,
    Graphile,
    /// No rival: Dialoq in a transaction of the user's own connection, with the same row of the user's.
    Enlisted,
}

/// How often a job was handed out twice, and how often a caller got none although jobs were pending.
#[derive(Debug, Default)]
pub(in crate::bench) struct Mistakes {
    seen: Mutex<HashSet<i64>>,
    pub(in crate::bench) duplicates: AtomicU64,
    pub(in crate::bench) empties: AtomicU64,
}

impl Mistakes {
    pub(in crate::bench) fn note(&self, job: Option<i64>) {
        let Some(job) = job else {
            self.empties.fetch_add(1, Relaxed);
            return;
        };
        if !self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(job) {
            self.duplicates.fetch_add(1, Relaxed);
        }
    }

    /// The jobs that come have other ids, or begin again.
    pub(in crate::bench) fn forget_jobs(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// One rival.
pub(in crate::bench) struct JobTable {
    kind: Kind,
    connections: Arc<Connections>,
    pub(in crate::bench) mistakes: Mistakes,
    river: Option<River>,
    broker: Option<Broker>,
}

impl JobTable {
    pub(in crate::bench) fn new(kind: Kind, connections: &Arc<Connections>) -> Self {
        let river = (kind == Kind::River).then(|| River::start(connections));
        Self { kind, connections: connections.clone(), mistakes: Mistakes::default(), river, broker: None }
    }

    /// Dialoq on the user's own connections.
    pub(in crate::bench) fn enlisted(broker: &Broker, connections: &Arc<Connections>) -> Self {
        Self { broker: Some(broker.clone()), ..Self::new(Kind::Enlisted, connections) }
    }

    async fn take_enlisted(broker: &Broker, connection: &mut Connection) -> Result<Option<i64>> {
        connection.client.batch_execute("BEGIN").await.map_err(failed)?;
        let enlisted = Enlisted::new(broker, &*connection.client).prepared(&connection.statements);
        let jobs = enlisted.take_jobs("bench_jobs").await?;
        let job = jobs.first().map(|job| job.taken.job.0.cast_signed());
        if let Some(job) = job {
            connection.rows(texts::JOB_RESULT, &[&job]).await?;
        }
        connection.client.batch_execute("COMMIT").await.map_err(failed)?;
        Ok(job)
    }

    async fn push(&self, connection: &mut Connection, body: Vec<u8>) -> Result<()> {
        match self.kind {
            Kind::River => connection.rows(texts::JOB_RIVER_PUSH, &[&json(&body)]).await,
            Kind::Graphile => connection.rows(texts::JOB_GRAPHILE_PUSH, &[&json(&body)]).await,
            _ => connection.rows(texts::JOB_HAND_PUSH, &[&body]).await,
        }
        .map(drop)
    }

    async fn take_and_complete(&self, connection: &mut Connection) -> Result<Option<i64>> {
        let (take, complete) = match self.kind {
            Kind::Graphile => (texts::JOB_GRAPHILE_TAKE, texts::JOB_GRAPHILE_COMPLETE),
            _ => (texts::JOB_HAND_TAKE, texts::JOB_HAND_COMPLETE),
        };
        let is_one = self.kind == Kind::OneTransaction;
        if is_one {
            connection.client.batch_execute("BEGIN").await.map_err(failed)?;
        }
        let job = connection.rows(take, &[&"bench"]).await?.first().map(|row| row.get::<_, i64>(0));
        if let Some(job) = job {
            if is_one {
                connection.rows(texts::JOB_RESULT, &[&job]).await?;
            }
            connection.rows(complete, &[&job]).await?;
        }
        if is_one {
            connection.client.batch_execute("COMMIT").await.map_err(failed)?;
        }
        Ok(job)
    }
}

impl Side for JobTable {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        let mut connection = self.connections.take().await?;
        for body in bodies {
            self.push(&mut connection, body).await?;
        }
        self.connections.give_back(connection);
        Ok(())
    }

    async fn receive(&self, _count: usize, _waits: bool) -> Result<Vec<Stamp>> {
        let job = match &self.river {
            Some(river) => river.take_and_complete().await?,
            None => {
                let mut connection = self.connections.take().await?;
                let job = match &self.broker {
                    Some(broker) => Self::take_enlisted(broker, &mut connection).await?,
                    None => self.take_and_complete(&mut connection).await?,
                };
                self.connections.give_back(connection);
                job
            }
        };
        self.mistakes.note(job);
        Ok(job.map(|_| Stamp::of(&[])).into_iter().collect())
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        let body = bodies.next();
        match self.kind {
            Kind::River => self.connections.fill(texts::JOB_RIVER_FILL, &json(&body), count).await,
            Kind::Enlisted => self.connections.fill(texts::JOB_FILL, &body, count).await,
            Kind::Graphile => self.connections.fill(texts::JOB_GRAPHILE_FILL, &json(&body), count).await,
            _ => self.connections.fill(texts::JOB_HAND_FILL, &body, count).await,
        }
    }
}

/// River's producer, which fetches for all free workers, and its completer.
struct River {
    workers: mpsc::UnboundedSender<oneshot::Sender<Result<Option<i64>>>>,
    done: mpsc::UnboundedSender<(i64, oneshot::Sender<Result<()>>)>,
}

impl River {
    fn start(connections: &Arc<Connections>) -> Self {
        let ((workers, free), (done, completed)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        tokio::spawn(produce(connections.clone(), free));
        tokio::spawn(complete(connections.clone(), completed));
        Self { workers, done }
    }

    async fn take_and_complete(&self) -> Result<Option<i64>> {
        let (answer, job) = oneshot::channel();
        let _ = self.workers.send(answer);
        let Some(job) = job.await.map_err(|_| Error::closed())?? else { return Ok(None) };
        let (answer, completed) = oneshot::channel();
        let _ = self.done.send((job, answer));
        completed.await.map_err(|_| Error::closed())??;
        Ok(Some(job))
    }
}

async fn produce(
    connections: Arc<Connections>,
    mut free: mpsc::UnboundedReceiver<oneshot::Sender<Result<Option<i64>>>>,
) {
    let mut waiting = Vec::new();
    while free.recv_many(&mut waiting, 10_000).await > 0 {
        let fetched = async {
            let mut connection = connections.take().await?;
            let count = i32::try_from(waiting.len()).unwrap_or(i32::MAX);
            let rows = connection.rows(texts::JOB_RIVER_TAKE, &[&count]).await?;
            connections.give_back(connection);
            Ok(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>())
        };
        match fetched.await {
            Ok(jobs) => {
                let mut jobs = jobs.into_iter();
                for worker in waiting.drain(..) {
                    let _ = worker.send(Ok(jobs.next()));
                }
            }
            Err(error) => answer_all(waiting.drain(..), &error),
        }
    }
}

async fn complete(
    connections: Arc<Connections>,
    mut completed: mpsc::UnboundedReceiver<(i64, oneshot::Sender<Result<()>>)>,
) {
    let mut waiting = Vec::new();
    // Its completer writes up to 5,000 in a statement.
    while completed.recv_many(&mut waiting, 5_000).await > 0 {
        let ids: Vec<i64> = waiting.iter().map(|(job, _)| *job).collect();
        let written = async {
            let mut connection = connections.take().await?;
            connection.rows(texts::JOB_RIVER_COMPLETE, &[&ids]).await?;
            connections.give_back(connection);
            Ok(())
        };
        match written.await {
            Ok(()) => waiting.drain(..).for_each(|(_, worker)| _ = worker.send(Ok(()))),
            Err(error) => answer_all(waiting.drain(..).map(|(_, worker)| worker), &error),
        }
    }
}

fn answer_all<T>(workers: impl Iterator<Item = oneshot::Sender<Result<T>>>, error: &Error) {
    for worker in workers {
        let _ = worker.send(Err(Error::new(error.code(), error.message())));
    }
}

/// A body as the arguments of a job in JSON, of about as many bytes.
fn json(body: &[u8]) -> String {
    format!("{{\"body\":\"{}\"}}", "x".repeat(body.len().saturating_sub(11)))
}

fn failed(error: dialoq::postgres::tokio_postgres::Error) -> Error {
    Error::new(Code::STORE_IO, format!("a statement of the bench's rival failed: {error}")).caused_by(error)
}
