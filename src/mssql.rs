//! Verbs in a SQL Server transaction of your own.
//!
//! An application that already connects to its database through `tiberius` enlists its own connection: what it sends and
//! receives commits with what it writes, and nothing is sent if it rolls back.
//!
//! ```no_run
//! use dialoq::mssql::{Client, Enlisted};
//! use dialoq::{Act, Broker};
//!
//! # async fn example(broker: Broker, mut client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! client.begin_transaction().await?;
//! client.execute("UPDATE stock SET pieces = pieces - 1 WHERE sku = @P1", &[&"A-1"]).await?;
//! {
//!     let enlisted = Enlisted::new(&broker, &mut client);
//!     let handle = enlisted.begin_dialog("//shop/Stock", "//shop/Orders").contract("//shop/Restock").await?;
//!     enlisted.send(handle, "//shop/Low", "A-1").await?;
//! }
//! client.commit_transaction().await?;
//! # Ok(()) }
//! ```

use crate::act::{InStore, Perform};
use crate::broker::Broker;
use crate::error::Result;
use crate::protocol::{Outcome, Verb};
use crate::store::mssql::MssqlEnlisted;
use crate::store::{BoxFuture, Store};
use std::fmt;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_util::compat::Compat;
use tracing::Instrument;

pub use tiberius;

/// A connection of `tiberius` over tokio.
pub type Client = tiberius::Client<Compat<TcpStream>>;

/// A connection of your own to the broker's database, on which [`Act`](crate::Act) does every verb: in the transaction that
/// is open on it, or each by itself if none is.
///
/// - It must lead to the broker's own database, as a member of `dialoq_user`; the transaction should be READ COMMITTED.
/// - With `XACT_ABORT OFF`, which is the default, a refusal leaves the transaction as it was before the verb; 1205 ends it.
///   With `XACT_ABORT ON` every refusal does.
/// - Locks of conversation groups last as long as your transaction, but a rollback to a savepoint of your own gives back
///   those taken since. If it rolls back after a RECEIVE, the messages are back in their queue at once; such a rollback is not
///   counted against the queue as one of a [`Tx`](crate::Tx) is, so that a message that always fails does not disable it.
/// - Receivers wake at the next poll of their process: SQL Server sends no notifications.
/// - A verb whose future is dropped leaves an answer on the connection: close it, as `tiberius` asks.
/// - Definitions are refused with 60008: make them with the broker.
pub struct Enlisted<'c> {
    store: Arc<dyn Store>,
    client: Mutex<&'c mut Client>,
}

impl fmt::Debug for Enlisted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enlisted").finish_non_exhaustive()
    }
}

impl<'c> Enlisted<'c> {
    /// Enlists a connection, for as long as this lives. It must lead to the database of
    /// the broker: in another one with Dialoq the work would happen there.
    pub fn new(broker: &Broker, client: &'c mut Client) -> Self {
        Self { store: broker.shared_store().clone(), client: Mutex::new(client) }
    }
}

impl Perform for Enlisted<'_> {
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        let span = verb.span();
        let answer = async move {
            let mut client = self.client.lock().await;
            let mut connection = MssqlEnlisted::new(&mut client);
            self.store.perform_on(&mut connection, verb).await
        };
        Box::pin(answer.instrument(span))
    }
}

impl InStore for Enlisted<'_> {
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
