//! A connection that only listens.

use super::connect::{Connector, Session};
use super::failure::{Asked, AtRisk, ConnectionState, failure, lost};
use crate::error::Result;
use crate::sql::postgres::session;
use crate::store::BoxFuture;
use crate::store::database::link::Listener;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Receives the notifications of channel `dialoq`.
pub(super) struct PgListener {
    connector: Arc<Connector>,
    payloads: UnboundedReceiver<String>,
    /// Kept open: the client ends with it.
    session: Session,
}

impl PgListener {
    pub(super) async fn start(connector: Arc<Connector>) -> Result<Self> {
        let (sender, payloads) = unbounded_channel();
        // The receiver was dropped with the listener, so the connection ends.
        let session = connector.connect(move |payload| drop(sender.send(payload))).await?;
        connector.lift_limit(&session.client).await?;
        session.client.batch_execute(session::LISTEN).await.map_err(|error| {
            let loss = ConnectionState { is_closed: session.client.is_closed(), why: session.lost.get().cloned() };
            failure(error, Asked::Ours("listening"), AtRisk::Nothing, loss, connector.label()).error
        })?;
        Ok(Self { connector, payloads, session })
    }
}

impl Listener for PgListener {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let Some(first) = self.payloads.recv().await else {
                let why =
                    self.session.lost.get().map_or_else(|| "the server closed it".to_owned(), |loss| loss.why.clone());
                return Err(lost(why, AtRisk::Nothing, self.connector.label()).error);
            };
            let others = std::iter::from_fn(|| self.payloads.try_recv().ok());
            Ok(std::iter::once(first).chain(others).collect())
        })
    }

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // If that fails, the connection is lost.
            let _ = self.session.client.batch_execute(session::UNLISTEN).await;
        })
    }
}
