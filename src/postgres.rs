//! Verbs in a PostgreSQL transaction of your own.
//!
//! An application that already connects to its database through `tokio-postgres`, or a pool over it, enlists its own
//! transaction: what it sends and receives commits with what it writes, and nothing is sent if it rolls back.
//!
//! ```no_run
//! use dialoq::postgres::{Enlisted, tokio_postgres};
//! use dialoq::{Act, Broker};
//!
//! # async fn example(broker: Broker, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! transaction.execute("UPDATE stock SET count = count - 1 WHERE sku = $1", &[&"A-1"]).await?;
//! let enlisted = Enlisted::new(&broker, &transaction);
//! let handle = enlisted.begin_dialog("//shop/Stock", "//shop/Orders").contract("//shop/Restock").await?;
//! enlisted.send(handle, "//shop/Low", "A-1").await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use crate::act::{InStore, Perform};
use crate::broker::Broker;
use crate::error::Result;
use crate::protocol::{Outcome, Verb};
use crate::store::postgres::{EnlistedStatements, PgEnlisted};
use crate::store::{BoxFuture, Store};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_postgres::GenericClient;
use tracing::Instrument;

pub use tokio_postgres;

/// The verbs that are prepared on one connection of yours. Keep one beside each connection that you use again, and give it to
/// [`Enlisted::prepared`].
///
/// With another connection it does no harm: the server refuses a statement that the connection does not have, and the verb is
/// prepared there.
///
/// ```no_run
/// use dialoq::postgres::{Enlisted, Statements, tokio_postgres};
/// use dialoq::{Act, Broker};
///
/// struct Connection {
///     client: tokio_postgres::Client,
///     statements: Statements,
/// }
///
/// # async fn example(broker: Broker, connection: &mut Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let Connection { client, statements } = connection;
/// let transaction = client.transaction().await?;
/// let jobs = Enlisted::new(&broker, &transaction).prepared(statements).take_jobs("emails").await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Statements(EnlistedStatements);

/// A transaction of your own in the broker's database, on which [`Act`](crate::Act) does every verb. Given a connection
/// without a transaction, each verb commits by itself.
///
/// - The connection must lead to the broker's own database, as a member of `dialoq_user`; the transaction must be READ
///   COMMITTED, which is PostgreSQL's default: at every other level the verbs are refused with 60026.
/// - A refusal leaves the transaction as it was before the verb; 1205 ends it.
/// - If the connection is lost, a verb in a transaction fails with 60030. On a connection it fails with 60031 if its answer never came,
///   because it may have committed; also after a BEGIN by SQL, which is not seen.
/// - While a verb is under way, send nothing else over the connection.
/// - Locks of conversation groups last as long as your transaction. If it rolls back after a RECEIVE, the messages are back
///   in their queue at once; such a rollback is not counted against the queue as one of a [`Tx`](crate::Tx) is, so that a
///   message that always fails does not disable it.
/// - A take without a lease has completed its job when it answers. No report on that job is possible in the transaction (60040), and
///   the commit keeps it done. Take with [`lease`](crate::work::TakeJobs::lease) a job that you may have to fail.
/// - If you drop the future of a verb before its answer, roll the transaction back. The verb still runs: your COMMIT would
///   delete messages that a RECEIVE has taken. If the verb fails, PostgreSQL answers COMMIT with a rollback, and
///   `tokio-postgres` reports that as success.
/// - Definitions are refused with 60008: make them with the broker.
pub struct Enlisted<'c, C> {
    store: Arc<dyn Store>,
    client: &'c C,
    statements: Option<&'c Statements>,
    one_at_a_time: Mutex<()>,
}

impl<C> fmt::Debug for Enlisted<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enlisted").finish_non_exhaustive()
    }
}

impl<'c, C: GenericClient> Enlisted<'c, C> {
    /// Enlists a transaction, or a connection, of `tokio-postgres` or of a pool over it. It must lead to the database of
    /// the broker: in another one with Dialoq the work would happen there.
    pub fn new(broker: &Broker, client: &'c C) -> Self {
        Self { store: broker.shared_store().clone(), client, statements: None, one_at_a_time: Mutex::new(()) }
    }

    /// Keeps the verbs prepared on the connection. Otherwise the server plans every call.
    #[must_use]
    pub fn prepared(mut self, statements: &'c Statements) -> Self {
        self.statements = Some(statements);
        self
    }
}

impl<C: GenericClient + Send + Sync> Perform for Enlisted<'_, C> {
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        let span = verb.span();
        let answer = async move {
            let _alone = self.one_at_a_time.lock().await;
            let statements = self.statements.map(|statements| &statements.0);
            let mut connection = PgEnlisted::new(self.client, statements);
            self.store.perform_on(&mut connection, verb).await
        };
        Box::pin(answer.instrument(span))
    }
}

impl<C: GenericClient + Send + Sync> InStore for Enlisted<'_, C> {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn may_hold_groups(&self) -> bool {
        true
    }

    fn is_transaction(&self) -> bool {
        true
    }
}
