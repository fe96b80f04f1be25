//! Plain connections for the rival, as an application without a broker opens them: nothing of ours runs on them.

use dialoq::act::BoxFuture;
use dialoq::internals::ErrorConstructors;
use dialoq::internals::store::url::StoreUrl;
use dialoq::{Code, Error, Result};

/// One connection, whose statements each commit by themselves.
pub(in crate::bench) trait Plain: Send {
    /// Runs a statement with a body as its parameter.
    fn insert<'a>(&'a mut self, text: &'static str, body: &'a [u8]) -> BoxFuture<'a, Result<()>>;

    /// Runs a statement with a body and a number as its parameters.
    fn fill<'a>(&'a mut self, text: &'static str, body: &'a [u8], count: i64) -> BoxFuture<'a, Result<()>>;

    /// Runs a statement that gives a body or nothing.
    fn delete<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Result<Option<Vec<u8>>>>;
}

/// Opens a connection as the broker's driver does: same server, user, encryption and durability.
pub(in crate::bench) async fn open(url: &StoreUrl) -> Result<Box<dyn Plain>> {
    match url {
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Box::new(postgres::Connection::open(url).await?)),
        #[cfg(feature = "mssql")]
        StoreUrl::Mssql(url) => Ok(Box::new(mssql::open(url).await?)),
        _ => Err(Error::new(
            Code::UNSUPPORTED,
            "the rival of the bench needs the URL of a server that this build can reach",
        )),
    }
}

#[cfg(any(feature = "postgres", feature = "mssql"))]
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Code::STORE_IO, format!("a statement of the bench's rival failed: {error}")).caused_by(error)
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{Plain, failed};
    use dialoq::Result;
    use dialoq::act::BoxFuture;
    use dialoq::internals::store::postgres::PostgresDriver;
    use dialoq::internals::store::url::PostgresUrl;
    use dialoq::postgres::tokio_postgres::{Client, Statement};
    use std::collections::HashMap;
    use std::sync::Arc;

    pub(in crate::bench) struct Connection {
        client: Arc<Client>,
        prepared: HashMap<&'static str, Statement>,
    }

    impl Connection {
        pub(in crate::bench) async fn open(url: &PostgresUrl) -> Result<Self> {
            Ok(Self { client: PostgresDriver::new(url)?.plain().await?, prepared: HashMap::new() })
        }

        async fn prepared(&mut self, text: &'static str) -> Result<Statement> {
            if let Some(statement) = self.prepared.get(text) {
                return Ok(statement.clone());
            }
            let statement = self.client.prepare(text).await.map_err(failed)?;
            self.prepared.insert(text, statement.clone());
            Ok(statement)
        }
    }

    impl Plain for Connection {
        fn insert<'a>(&'a mut self, text: &'static str, body: &'a [u8]) -> BoxFuture<'a, Result<()>> {
            Box::pin(async move {
                let statement = self.prepared(text).await?;
                self.client.execute(&statement, &[&body]).await.map(drop).map_err(failed)
            })
        }

        fn fill<'a>(&'a mut self, text: &'static str, body: &'a [u8], count: i64) -> BoxFuture<'a, Result<()>> {
            Box::pin(async move { self.client.execute(text, &[&body, &count]).await.map(drop).map_err(failed) })
        }

        fn delete<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
            Box::pin(async move {
                let statement = self.prepared(text).await?;
                let row = self.client.query_opt(&statement, &[]).await.map_err(failed)?;
                row.map(|row| row.try_get(0)).transpose().map_err(failed)
            })
        }
    }
}

#[cfg(feature = "mssql")]
mod mssql {
    use super::{Plain, failed};
    use dialoq::Result;
    use dialoq::act::BoxFuture;
    use dialoq::internals::store::mssql::MssqlDriver;
    use dialoq::internals::store::url::MssqlUrl;
    use dialoq::mssql::Client;

    pub(in crate::bench) async fn open(url: &MssqlUrl) -> Result<Client> {
        MssqlDriver::new(url, None)?.plain().await
    }

    impl Plain for Client {
        fn insert<'a>(&'a mut self, text: &'static str, body: &'a [u8]) -> BoxFuture<'a, Result<()>> {
            Box::pin(async move { self.execute(text, &[&body]).await.map(drop).map_err(failed) })
        }

        fn fill<'a>(&'a mut self, text: &'static str, body: &'a [u8], count: i64) -> BoxFuture<'a, Result<()>> {
            Box::pin(async move { self.execute(text, &[&body, &count]).await.map(drop).map_err(failed) })
        }

        fn delete<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
            Box::pin(async move {
                let row = self.simple_query(text).await.map_err(failed)?.into_row().await.map_err(failed)?;
                let body = row.as_ref().map(|row| row.try_get::<&[u8], _>(0)).transpose().map_err(failed)?;
                Ok(body.flatten().map(<[u8]>::to_vec))
            })
        }
    }
}
