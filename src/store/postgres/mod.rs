//! The driver of PostgreSQL: connections, calls of our functions, errors of the server.

mod args;
mod connect;
mod enlisted;
mod failure;
mod guard;
mod link;
mod listen;
mod pooler;
mod texts;
mod tls;
mod values;

use crate::error::{Code, Error, Result};
use crate::store::BoxFuture;
use crate::store::database::dialect::{Dialect, dialect};
use crate::store::database::link::{Driver, Link, Listener};
use crate::store::url::PostgresUrl;
use connect::{Connector, Pooling};
use deadpool::Runtime;
use deadpool::managed::{PoolError, QueueMode, TimeoutType};
use link::PgLink;
use listen::PgListener;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use enlisted::{EnlistedStatements, PgEnlisted};

type Pool = deadpool::managed::Pool<Pooling>;

/// A PostgreSQL server as a store of brokers.
pub struct PostgresDriver {
    connector: Arc<Connector>,
    pool: Pool,
    size: usize,
    wait: Duration,
    /// Held while a spare link is taken: two that ask at once would each count the other's as free.
    taking_spare: tokio::sync::Mutex<()>,
}

impl fmt::Debug for PostgresDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresDriver").field("size", &self.size).field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl PostgresDriver {
    /// The server of that URL. The first link makes the first connection.
    ///
    /// # Errors
    /// 60019 a parameter or a file of certificates cannot be used.
    pub fn new(url: &PostgresUrl) -> Result<Self> {
        let connector = Arc::new(Connector::new(url)?);
        let (size, wait) = (url.server.pool_size, url.server.pool_wait);
        let pool = Pool::builder(Pooling(connector.clone()))
            .max_size(size)
            .wait_timeout(Some(wait))
            // The connection used last has its statements prepared and is warm; gateways may close the idle others.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::new(Code::STORE_IO, format!("the pool cannot be made: {error}")))?;
        Ok(Self { connector, pool, size, wait, taking_spare: tokio::sync::Mutex::default() })
    }

    /// A connection of its own, ready as every connection of this driver, without the driver's bookkeeping.
    ///
    /// # Errors
    /// 60030 the server cannot be reached, 60034 it refuses this user.
    pub async fn plain(&self) -> Result<Arc<tokio_postgres::Client>> {
        Ok(self.connector.connect(|_| ()).await?.client.clone())
    }

    /// The links of the pool that are in use, and those that callers wait for.
    fn in_use(&self) -> usize {
        let status = self.pool.status();
        status.size + status.waiting - status.available
    }

    async fn taken(&self) -> Result<PgLink> {
        match self.pool.get().await {
            Ok(session) => Ok(PgLink::pooled(self.connector.clone(), session)),
            Err(PoolError::Backend(error)) => Err(error),
            Err(PoolError::Closed) => Err(Error::closed()),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(Error::new(
                Code::POOL_EXHAUSTED,
                format!(
                    "none of the {} connections to {} became free within {} s; end transactions sooner, or raise pool_size \
                     or pool_wait_s in the URL",
                    self.size,
                    self.connector.label(),
                    self.wait.as_secs()
                ),
            )),
            Err(other) => Err(Error::new(Code::STORE_IO, format!("the pool failed: {other}"))),
        }
    }
}

/// The SQL of PostgreSQL.
pub static DIALECT: Dialect = dialect!(
    postgres,
    has_batches: false,
    call: texts::install::CALL,
    stop: "",
    has_job_batches: true,
    has_dialog_batches: true,
    notes_later: true,
    has_claims: true,
    corrects_rights: true,
    texts: crate::store::store_texts!(postgres)
);

impl Driver for PostgresDriver {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn take(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        Box::pin(async { Ok(Box::new(self.taken().await?) as Box<dyn Link>) })
    }

    fn take_spare(&self) -> BoxFuture<'_, Result<Option<Box<dyn Link>>>> {
        Box::pin(async {
            let _alone = self.taking_spare.lock().await;
            if self.in_use() + 2 > self.size { Ok(None) } else { self.take().await.map(Some) }
        })
    }

    fn has_free(&self) -> bool {
        self.in_use() < self.size
    }

    fn dedicated(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        Box::pin(async {
            let session = self.connector.connect(|_| ()).await?;
            self.connector.lift_limit(&session.client).await?;
            Ok(Box::new(PgLink::own(self.connector.clone(), session)) as Box<dyn Link>)
        })
    }

    fn beyond_pool(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        Box::pin(async {
            let session = self.connector.connect(|_| ()).await?;
            Ok(Box::new(PgLink::own(self.connector.clone(), session)) as Box<dyn Link>)
        })
    }

    fn answer_lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.connector.answer_lost())
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>>> {
        Box::pin(async {
            let listener = PgListener::start(self.connector.clone()).await?;
            Ok(Some(Box::new(listener) as Box<dyn Listener>))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.pool.close();
        Box::pin(self.connector.stop_users_statements())
    }

    fn wait_for_ends(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.connector.wait_for_ends())
    }
}
