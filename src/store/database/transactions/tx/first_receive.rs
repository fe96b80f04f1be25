//! A transaction that has only received once: its messages are a claim, until it does more, ends, or grows old.

use super::{Session, SessionCell};
use crate::error::Result;
use crate::protocol::{Message, Outcome, ReceiveFrom, Verb};
use crate::store::BoxFuture;
use crate::store::database::Database;
use crate::store::database::batching::claim_batches::{Claim, Claimed, silent};
use crate::store::database::batching::receive_batches::Alone;
use crate::store::database::link::{Failure, HANGING, Link, Linked};
use crate::store::database::transactions::attempts::Attempt;
use crate::store::database::transactions::claim_ages::HoldsClaim;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use uuid::Uuid;

/// How long a transaction with a claim waits for a connection of the pool before it takes one beyond the pool. Longer than usual
/// statements take, so that a busy pool alone does not add a connection.
pub(super) const CLAIM_POOL_WAIT: Duration = Duration::from_millis(250);

/// The pause of an old claim that finds no spare connection, and of one whose session hangs. Those that waited in the pool's line
/// got every connection that came back, and kept it: of 24 transactions of 500 ms on 8 connections a SEND beside them took 450
/// ms, without old claims 3 ms.
const NO_SPARE: Duration = Duration::from_millis(100);

/// Connections beyond the pool: one for transactions that do more than their claim, and one for rollbacks. The rollbacks
/// of dropped transactions delay later requests, so they do not wait for a transaction of the user's.
pub(in crate::store::database) struct ConnectionsBeyondPool {
    work: Arc<Semaphore>,
    rollback: Arc<Semaphore>,
}

impl Default for ConnectionsBeyondPool {
    fn default() -> Self {
        Self { work: Arc::new(Semaphore::new(1)), rollback: Arc::new(Semaphore::new(1)) }
    }
}

impl Database {
    /// A link for a transaction with a claim. Those that hold the links of the pool may wait for the claim, so after a while
    /// the transaction takes a link beyond the pool, if `beyond` has one left.
    async fn take_for_claim(&self, beyond: &Arc<Semaphore>) -> Linked<(Box<dyn Link>, Option<OwnedSemaphorePermit>)> {
        let mut pooled = pin!(self.take());
        let permit = async {
            tokio::time::sleep(CLAIM_POOL_WAIT).await;
            beyond.clone().acquire_owned().await
        };
        let permit = tokio::select! {
            biased;
            link = &mut pooled => return Ok((link?, None)),
            permit = permit => permit,
        };
        match self.driver.beyond_pool().await {
            Ok(link) => Ok((link, permit.ok())),
            Err(error) => {
                tracing::debug!(%error, "a transaction with a claim gets no connection beyond the pool");
                Ok((pooled.await?, None))
            }
        }
    }
}

/// A RECEIVE that was done by a claim.
pub(super) struct FirstReceive {
    claim: Claim,
    queue: i32,
    /// The conversation and the queuing order of its first message.
    first: Option<(Uuid, u64)>,
    /// Whether rollbacks are counted on the queue.
    counts: bool,
    /// Whether it has all messages of the group.
    has_all: bool,
    since: Instant,
}

impl Session {
    /// The queue and the number of messages of a RECEIVE that may be a claim: the first request, without a filter.
    fn claimable<'v>(&self, verb: &'v Verb) -> Option<(&'v str, Option<u64>)> {
        let Verb::Receive { queue, top, from: ReceiveFrom::Any } = verb else { return None };
        let is_untouched = self.steps_done == 0 && self.link.is_none() && !self.held_jobs.may_hold();
        let may_claim = self.database.driver.dialect().has_claims;
        (is_untouched && may_claim && *top != Some(0)).then_some((&**queue, *top))
    }

    /// Receives by a claim, if that is possible; before any other verb the messages of a claim are taken.
    pub(super) async fn receive_by_claim(&mut self, verb: &Verb) -> Result<ControlFlow<Outcome, Option<Alone>>> {
        let Some((name, top)) = self.claimable(verb) else {
            self.become_ordinary().await?;
            return Ok(ControlFlow::Continue(None));
        };
        let Some((queue, counts)) = self.database.counted_queue(name).await else {
            return Ok(ControlFlow::Continue(None));
        };
        // Where rollbacks do not count, none of the first receives is noted.
        if counts && !self.database.notes.may_be_late() {
            return Ok(ControlFlow::Continue(None));
        }
        let messages = match self.database.claim_messages(name, queue, top).await {
            Claimed::Alone(alone) => return Ok(ControlFlow::Continue(Some(alone))),
            Claimed::General => return Ok(ControlFlow::Continue(None)),
            Claimed::Nothing => Vec::new(),
            Claimed::Given(claim, messages) => {
                let first = messages.first().map(|first| (first.conversation_handle.0, first.queuing_order));
                let (has_all, since) = (top.is_none(), Instant::now());
                self.claim = Some(FirstReceive { claim, queue, first, counts, has_all, since });
                self.note_claimed(queue, &messages, top.is_some());
                messages
            }
        };
        let outcome = Outcome::Received(messages);
        self.database.observe(verb, &outcome);
        Ok(ControlFlow::Break(outcome))
    }

    fn note_claimed(&mut self, queue: i32, messages: &[Message], may_be_more: bool) {
        self.steps_done += 1;
        self.taken.add(queue, messages.len() as u64);
        self.effects.queues.insert(queue);
        self.effects.has_left_messages |= may_be_more;
        self.database.claim_ages.put(self.cell.clone());
    }

    /// Takes the messages of a claim on a link of its own, so that the transaction can do more.
    pub(super) async fn become_ordinary(&mut self) -> Linked<()> {
        let beyond = self.database.beyond_pool.work.clone();
        self.become_ordinary_on(&beyond).await
    }

    async fn become_ordinary_on(&mut self, beyond: &Arc<Semaphore>) -> Linked<()> {
        if self.claim.is_none() {
            return Ok(());
        }
        // A connection would only wait too.
        let until = Instant::now() + HANGING;
        while self.claim.as_ref().is_some_and(|first| first.claim.hangs()) {
            if Instant::now() >= until {
                return Err(self.lose_claim(silent().into()).await);
            }
            tokio::time::sleep(NO_SPARE).await;
        }
        // Without a connection the claim stays as it is.
        let (link, permit) = self.database.take_for_claim(beyond).await?;
        self.beyond_pool = permit;
        self.take_over(link).await
    }

    async fn take_over(&mut self, mut link: Box<dyn Link>) -> Linked<()> {
        let Some(FirstReceive { claim, queue, first, counts, has_all, since }) = self.claim.take() else {
            return Ok(());
        };
        let group = claim.group();
        match self.database.take_over(&mut *link, claim).await {
            Ok(notices) => {
                self.effects.notices.extend(notices.iter());
                self.link = Some(link);
                if counts {
                    let attempt = self.attempt.get_or_insert_with(|| Attempt::since(since));
                    self.database.note_receive(attempt, (queue, group), first, has_all).await;
                }
                Ok(())
            }
            Err(failure) => {
                if failure.is_link_usable {
                    // If that fails too, the link is closed.
                    let _ = link.rollback().await;
                }
                drop(link);
                Err(self.lose_claim(failure).await)
            }
        }
    }

    /// Ends a transaction whose claim cannot be taken over. The messages are free once the session that claimed them goes on.
    async fn lose_claim(&mut self, failure: Failure) -> Failure {
        self.has_ended = true;
        self.claim = None;
        self.after_rollback().await;
        failure.before_commit()
    }

    /// Ends a claim without its commit. If its rollback counts, it becomes one of an ordinary transaction.
    pub(super) async fn give_up_claim(&mut self) {
        let beyond = self.database.beyond_pool.rollback.clone();
        if self.seen.is_set()
            && self.claim.as_ref().is_some_and(|first| first.counts)
            && let Err(failure) = self.become_ordinary_on(&beyond).await
        {
            tracing::warn!(error = %failure.error, "the rollback of a RECEIVE could not be counted");
        }
        if let Some(first) = self.claim.take() {
            // A lost session has released it.
            let _ = self.database.release_claim(first.claim).await;
        }
    }

    /// Commits with other transactions.
    pub(super) async fn commit_claim(mut self) -> Result<()> {
        self.database.before_work_of(true).await?;
        let Some(first) = self.claim.take() else { return Ok(()) };
        self.has_ended = true;
        match self.database.commit_claim(first.claim).await {
            Ok(()) => {
                self.taken.clear();
                Ok(())
            }
            Err(error) => {
                self.after_rollback().await;
                Err(error)
            }
        }
    }
}

impl HoldsClaim for SessionCell {
    fn grow_old(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let holder = |session: &Session| {
                    session.claim.as_ref().map(|first| (session.database.clone(), first.claim.hangs()))
                };
                let Some((database, hangs)) = self.0.lock().await.as_ref().and_then(holder) else { return };
                // Before the session is locked: its caller does not wait for a connection.
                let link = if hangs { Ok(None) } else { database.driver.take_spare().await };
                match link {
                    Ok(Some(link)) => {
                        if self.leave_claim(link, &database).await {
                            return;
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a claim stays: its transaction gets no connection");
                        return;
                    }
                }
                drop(database);
                tokio::time::sleep(NO_SPARE).await;
            }
        })
    }
}

impl SessionCell {
    /// Takes the messages of an old claim on this link. Returns false if the session that claimed them hangs by now, which would cost the
    /// caller its transaction.
    async fn leave_claim(&self, link: Box<dyn Link>, database: &Database) -> bool {
        // While a request runs, it takes the messages itself. It may wait for this very link, so the link is given up.
        let Ok(mut cell) = self.0.try_lock() else { return true };
        let Some(session) = cell.as_mut() else { return true };
        if session.claim.as_ref().is_some_and(|first| first.claim.hangs()) {
            return false;
        }
        if let Err(failure) = session.take_over(link).await {
            session.lost_by = Some(failure.error);
            return true;
        }
        let attempt = session.attempt.clone();
        // The connection for notes may hang: the caller's next request does not wait for it.
        drop(cell);
        if let Some(attempt) = attempt {
            database.send_waiting_notes(&attempt).await;
        }
        true
    }
}
