//! The driver of SQL Server and Azure SQL Database: connections, calls of our procedures, errors of the server. The shared
//! store is [`database`](crate::store::database); the broker's rules are in `sql/mssql`.

mod args;
mod connect;
mod enlisted;
mod failure;
mod guard;
mod link;
mod session;
#[cfg(test)]
mod tests;
mod texts;
mod values;

use crate::error::{Code, Error, Result};
use crate::store::database::dialect::{Dialect, dialect};
use crate::store::database::link::{Driver, Link, Listener};
use crate::store::url::MssqlUrl;
use crate::store::{AccessToken, BoxFuture};
use connect::Connector;
use deadpool::managed::{Pool, PoolError, QueueMode, TimeoutType, Timeouts};
pub(crate) use enlisted::MssqlEnlisted;
use link::{Held, MssqlLink};
use std::fmt;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_util::compat::Compat;

/// Connections to one database of SQL Server.
pub struct MssqlDriver {
    connector: Arc<Connector>,
    pool: Pool<Connector>,
    pool_size: usize,
    pool_wait_s: u64,
}

impl fmt::Debug for MssqlDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MssqlDriver").field("pool_size", &self.pool_size).finish_non_exhaustive()
    }
}

impl MssqlDriver {
    /// Makes a pool, which connects when a link is asked for. `entra_token` is asked at each connection of a URL that says
    /// `authentication=entra_token`.
    ///
    /// # Errors
    /// 60019 if the URL's settings make no pool.
    pub fn new(url: &MssqlUrl, entra_token: Option<AccessToken>) -> Result<Self> {
        let (pool_size, pool_wait) = (url.server.pool_size, url.server.pool_wait);
        let connector = Connector::new(url.clone(), entra_token);
        let pool = Pool::builder(connector.clone())
            .max_size(pool_size)
            // Gateways close idle connections; the one used last is the least likely to be closed.
            .queue_mode(QueueMode::Lifo)
            .timeouts(Timeouts { wait: Some(pool_wait), create: None, recycle: None })
            .runtime(deadpool::Runtime::Tokio1)
            .build()
            .map_err(|error| Error::new(Code::BAD_URL, "the pool cannot be made").caused_by(error))?;
        Ok(Self { connector: Arc::new(connector), pool, pool_size, pool_wait_s: pool_wait.as_secs() })
    }

    /// A connection of its own, ready as every connection of this driver, without the driver's bookkeeping.
    ///
    /// # Errors
    /// 60030 the server cannot be reached, 60034 it refuses this user.
    pub async fn plain(&self) -> Result<tiberius::Client<Compat<TcpStream>>> {
        Ok(self.connector.connect().await?.client)
    }

    fn exhausted(&self) -> Error {
        let (size, seconds) = (self.pool_size, self.pool_wait_s);
        Error::new(
            Code::POOL_EXHAUSTED,
            format!(
                "no connection became free within {seconds} s: all {size} are in use; end transactions sooner, or raise \
                 pool_size in the URL"
            ),
        )
    }
}

/// The SQL of SQL Server.
pub static DIALECT: Dialect = dialect!(
    mssql,
    has_batches: true,
    call: texts::client::CALL,
    stop: texts::install::STOP,
    has_job_batches: false,
    has_dialog_batches: false,
    notes_later: false,
    has_claims: false,
    corrects_rights: false,
    texts: crate::store::store_texts!(mssql)
);

impl Driver for MssqlDriver {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn take(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        Box::pin(async {
            match self.pool.get().await {
                Ok(connection) => Ok(Box::new(MssqlLink::new(Held::Pooled(connection))) as Box<dyn Link>),
                Err(PoolError::Backend(error)) => Err(error),
                Err(PoolError::Timeout(TimeoutType::Wait)) => Err(self.exhausted()),
                Err(PoolError::Closed) => Err(Error::closed()),
                Err(error) => {
                    let why = format!("no connection could be had: {error}");
                    Err(Error::new(Code::SERVER_UNREACHABLE, why))
                }
            }
        })
    }

    fn has_free(&self) -> bool {
        let status = self.pool.status();
        status.size.saturating_sub(status.available) < status.max_size
    }

    fn dedicated(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        Box::pin(async {
            let connection = self.connector.connect().await?;
            Ok(Box::new(MssqlLink::new(Held::Own(connection))) as Box<dyn Link>)
        })
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.pool.close() })
    }

    fn wait_for_ends(&self) -> BoxFuture<'_, ()> {
        // A connection that is closed without a word is no error to this server.
        Box::pin(async {})
    }
}
