//! A transaction of a guest, carried out by the owner.

use super::client::{Client, outcomes};
use super::frame::{Answer, Call, TxStep};
use super::membership::{Giver, Membership, RemoteStore};
use super::unexpected;
use crate::error::{Code, Result};
use crate::protocol::{Outcome, Verb};
use crate::store::{BoxFuture, Seen, SqlRows, SqlStatement, Store, StoreTx, is_cut_short_by_runtime};
use std::sync::Arc;
use uuid::Uuid;

/// A transaction in the owner. Its first step begins it there.
pub(super) struct RemoteTx {
    client: Arc<Client>,
    id: u64,
    seen: Seen,
    is_begun: bool,
    has_ended: bool,
}

impl RemoteTx {
    pub(super) fn new(client: Arc<Client>, seen: Seen) -> Self {
        let id = client.next_id();
        Self { client, id, seen, is_begun: false, has_ended: false }
    }

    async fn step(&mut self, step: TxStep) -> Result<Answer> {
        self.is_begun = true;
        let answer = self.client.call(&Call::InTx { tx: self.id, is_seen: self.seen.is_set(), step }).await;
        if answer.as_ref().is_err_and(|error| error.code() == Code::OWNER_GONE) {
            self.client.let_go(self.id);
        }
        answer
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
            if self.seen.is_set() && is_cut_short_by_runtime() {
                self.seen.lose();
            }
            let (is_seen, is_lost, reason) = (self.seen.is_set(), self.seen.is_lost(), self.seen.reason());
            self.client.notify(Call::DropTx { tx: self.id, is_seen, is_lost, reason });
        }
        self.client.let_go(self.id);
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
            // A transaction whose connection has ended is rolled back by that, and one that the owner has ended is rolled back.
            let is_gone = |code| [Code::OWNER_GONE, Code::STORE_CLOSED, Code::TRANSACTION_ENDED].contains(&code);
            done.or_else(|error| if is_gone(error.code()) { Ok(()) } else { Err(error) })
        })
    }
}

/// A transaction of a process that may work through another one. Until it has done something, it outlives its owner: a
/// RECEIVE that waits in a transaction goes on with the next owner.
pub(super) struct SharedTx {
    membership: Arc<Membership>,
    open: Box<dyn StoreTx>,
    /// The connection that it runs on; none if this process owns the file.
    remote: Option<Arc<RemoteStore>>,
    /// Its id on that connection.
    id: u64,
    /// It has done nothing, or only looked for messages, groups or jobs and found none.
    is_untouched: bool,
    seen: Seen,
}

impl SharedTx {
    pub(super) fn new(membership: Arc<Membership>, remote: Arc<RemoteStore>, seen: Seen) -> Self {
        let open = RemoteTx::new(remote.client.clone(), seen.clone());
        let id = open.id;
        Self { membership, open: Box::new(open), remote: Some(remote), id, is_untouched: true, seen }
    }

    /// Runs a step; again with the next owner if this one goes and the transaction has done nothing. The steps of a
    /// transaction whose owner has gone are rolled back.
    async fn step<T>(
        &mut self,
        found_nothing: impl Fn(&T) -> bool,
        run: impl for<'a> Fn(&'a mut dyn StoreTx) -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        loop {
            let done = run(&mut *self.open).await;
            match &done {
                Ok(found) => {
                    self.is_untouched &= found_nothing(found);
                    if self.is_untouched
                        && let Some(remote) = &self.remote
                    {
                        remote.client.let_go(self.id);
                    }
                }
                Err(error) if error.code() == Code::OWNER_GONE && self.is_untouched => {
                    if let Some(lost) = self.remote.take() {
                        self.begin_again(&lost).await?;
                        continue;
                    }
                }
                Err(_) => self.is_untouched = false,
            }
            return done;
        }
    }

    async fn begin_again(&mut self, lost: &Arc<RemoteStore>) -> Result<()> {
        self.membership.await_other_role(lost).await;
        match self.membership.role().await? {
            Giver::Owner(owned) => self.open = owned.store.begin(self.seen.clone()).await?,
            Giver::Guest(remote) => {
                let open = RemoteTx::new(remote.client.clone(), self.seen.clone());
                self.id = open.id;
                self.open = Box::new(open);
                self.remote = Some(remote);
            }
        }
        Ok(())
    }
}

fn found_nothing(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Received(messages) => messages.is_empty(),
        Outcome::Group(group) => group.is_none(),
        Outcome::Jobs(jobs) => jobs.is_empty(),
        _ => false,
    }
}

impl StoreTx for SharedTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self.step(found_nothing, move |tx| tx.execute(verb.clone())))
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.step(|_| false, move |tx| tx.sql(sql.clone())))
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(self.step(|_| false, move |tx| tx.query(sql.clone())))
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.step(|_| false, move |tx| tx.claim(unit_id)))
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        let name: Arc<str> = name.into();
        Box::pin(self.step(
            |()| false,
            move |tx| {
                let name = name.clone();
                Box::pin(async move { tx.savepoint(&name).await })
            },
        ))
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.open.rollback_to(name)
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let Self { open, is_untouched, .. } = *self;
        Box::pin(async move {
            let done = open.commit().await;
            // Nothing was to be committed.
            let is_gone = |code| [Code::OWNER_GONE, Code::COMMIT_UNKNOWN].contains(&code);
            done.or_else(|error| if is_untouched && is_gone(error.code()) { Ok(()) } else { Err(error) })
        })
    }

    fn rollback(self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        self.open.rollback(reason)
    }
}
