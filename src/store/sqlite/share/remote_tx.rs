//! A transaction of a guest, carried out by the owner.

use super::client::{Client, outcomes};
use super::frame::{Answer, Call, TxStep};
use super::unexpected;
use crate::error::{Code, Result};
use crate::protocol::{Outcome, Verb};
use crate::store::{BoxFuture, SqlRows, SqlStatement, StoreTx};
use std::sync::Arc;
use uuid::Uuid;

/// A transaction in the owner. Its first step begins it there.
pub(super) struct RemoteTx {
    client: Arc<Client>,
    id: u64,
    is_begun: bool,
    has_ended: bool,
}

impl RemoteTx {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let id = client.next_id();
        Self { client, id, is_begun: false, has_ended: false }
    }

    async fn step(&mut self, step: TxStep) -> Result<Answer> {
        self.is_begun = true;
        self.client.call(&Call::InTx { tx: self.id, step }).await
    }

    async fn done(&mut self, step: TxStep) -> Result<()> {
        match self.step(step).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for RemoteTx {
    fn drop(&mut self) {
        if self.is_begun && !self.has_ended {
            self.client.notify(Call::DropTx { tx: self.id });
        }
    }
}

impl StoreTx for RemoteTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            self.client.watch_queue_of(&verb);
            let answer = self.step(TxStep::Execute(verb)).await?;
            outcomes(answer)?.into_iter().next().ok_or_else(|| unexpected(&Answer::Done))
        })
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            match self.step(TxStep::Sql(sql.into())).await? {
                Answer::Changed(rows) => Ok(rows),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            match self.step(TxStep::Query(sql.into())).await? {
                Answer::Rows(rows) => Ok(rows.into()),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            match self.step(TxStep::Claim(unit_id)).await? {
                Answer::Happened(is_first) => Ok(is_first),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.done(TxStep::Savepoint(name.to_owned())))
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.done(TxStep::RollbackTo(name.to_owned())))
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if !self.is_begun && !self.client.is_lost() {
                return Ok(());
            }
            let done = self.done(TxStep::Commit).await;
            self.has_ended = true;
            done
        })
    }

    fn rollback(mut self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if !self.is_begun {
                return Ok(());
            }
            let done = self.done(TxStep::Rollback { reason }).await;
            self.has_ended = true;
            // A transaction whose owner has gone is rolled back by its end.
            done.or_else(|error| if error.code() == Code::OWNER_GONE { Ok(()) } else { Err(error) })
        })
    }
}
