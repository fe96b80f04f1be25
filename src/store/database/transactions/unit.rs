//! Units outside the batches: one verb in a call that commits by itself, several in a transaction of their own.

use crate::error::{Error, Result};
use crate::protocol::work::{Hold, WorkVerb};
use crate::protocol::{Outcome, ReceiveFrom, Unit, Verb};
use crate::store::SqlRow;
use crate::store::database::Database;
use crate::store::database::batching::body::normalise_empty_body;
use crate::store::database::calls::caller::{self, Caller};
use crate::store::database::calls::rows::{notices_in, only};
use crate::store::database::calls::verbs::{self, CallContext, received_queue};
use crate::store::database::closing::Work;
use crate::store::database::definitions::define::claim;
use crate::store::database::link::{Arg, Call, Failure, HANGING, Link, Linked};
use crate::store::database::notifications::control_connection::first_answer;
use crate::store::database::notifications::notice::{Notice, Notices};
use crate::store::database::retry::{Again, Repeat, Retry, retry};
use crate::store::database::transactions::unseen_jobs::UnseenJobs;
use crate::store::handover::HoldsMessages;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// How long a heartbeat waits for a connection of the pool. Open transactions of this process may hold all of them for minutes; leases ended
/// meanwhile, and their jobs were handled twice.
const HEARTBEAT_POOL_WAIT: Duration = Duration::from_millis(250);

/// However long the lease, a request that prolongs it may hang after so long.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// A unit in an open transaction.
enum Filled {
    Done(Done),
    /// An attempt that claimed the id at this time has happened; the transaction is rolled back.
    Before(Option<i64>),
}

/// What an attempt has done, if its transaction commits.
struct Done {
    outcomes: Vec<Outcome>,
    notices: Notices,
    /// When it claimed the unit's id.
    claimed_at: Option<i64>,
}

/// An attempt whose COMMIT had no answer. What it received is nowhere else if it has happened.
struct Unanswered {
    done: Done,
    error: Error,
}

impl Done {
    /// Whether it has taken messages or jobs, which go back for a caller that has left.
    fn has_taken(&self) -> bool {
        let has_jobs = self.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Jobs(jobs) if !jobs.is_empty()));
        self.outcomes.messages() > 0 || has_jobs
    }
}

impl Database {
    /// A link of the pool.
    pub(in crate::store::database) async fn take(&self) -> Linked<Box<dyn Link>> {
        Ok(self.driver.take().await?)
    }

    /// One call on any link of the pool.
    pub(in crate::store::database) async fn call_on_a_link(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        self.take().await?.call(call).await
    }

    /// Whether a unit of that id has happened.
    pub(in crate::store::database) async fn unit_happened(&self, unit_id: Uuid) -> Result<bool> {
        let call = Call { name: "unit_happened", args: vec![Arg::Uuid(unit_id)] };
        let rows = retry(Repeat::Always, || self.call_on_a_link(call.clone())).await?;
        only(&rows)?.flag("happened")
    }

    /// Executes a unit in the cheapest way.
    pub(in crate::store::database) async fn submit(self: Arc<Self>, unit: Unit, work: Work) -> Result<Vec<Outcome>> {
        unit.iter().try_for_each(Verb::check_texts)?;
        self.before_work().await?;
        if unit.len() > 1 {
            if self.goes_in_batch(&unit, false) {
                let unit = unit.into_iter().map(normalise_empty_body).collect();
                return self.ask_in_batch(unit, None, Some(work)).await;
            }
            let done = self.transact_detached(unit, None, work).await?;
            return Ok(done.take().unwrap_or_default());
        }
        let Some(verb) = unit.into_iter().next() else { return Ok(Vec::new()) };
        let outcome = match normalise_empty_body(verb) {
            Verb::Define(definitions) => {
                let (_here, caller) = caller::present();
                let defined = self.detached(|database| async move {
                    let _work = work;
                    database.define(&definitions, None, &caller).await
                });
                defined.await?.unwrap_or(Outcome::Done)
            }
            Verb::Receive { queue, top, from: ReceiveFrom::Any } => {
                self.clone().receive_in_batch(&queue, top, work).await?
            }
            verb @ Verb::Send { .. } if is_single(&verb) => self.clone().send_in_batch(verb, work).await?,
            verb if self.goes_with_dialogs(&verb) => self.begin_or_end_in_batch(verb, work).await?,
            verb if self.goes_in_batch(std::slice::from_ref(&verb), false) => {
                return self.ask_in_batch(vec![verb], None, Some(work)).await;
            }
            verb => {
                let (_here, caller) = caller::present();
                self.detached(|database| async move {
                    let _work = work;
                    let outcome = database.clone().alone(verb, &caller).await?;
                    Ok(UnseenJobs::new(database, outcome))
                })
                .await?
                .take()
            }
        };
        Ok(vec![outcome])
    }

    /// Executes a unit at most once under an id.
    pub(in crate::store::database) async fn submit_once(
        self: Arc<Self>,
        unit_id: Uuid,
        unit: Unit,
        work: Work,
    ) -> Result<Option<Vec<Outcome>>> {
        unit.iter().try_for_each(Verb::check_texts)?;
        self.before_work().await?;
        if let [Verb::Define(definitions)] = &unit[..] {
            let definitions = definitions.clone();
            let (_here, caller) = caller::present();
            let defined = self.detached(|database| async move {
                let _work = work;
                database.define(&definitions, Some(unit_id), &caller).await
            });
            return Ok(defined.await?.map(|outcome| vec![outcome]));
        }
        self.transact_detached(unit, Some(unit_id), work).await.map(UnseenJobs::take)
    }

    async fn transact_detached(
        self: &Arc<Self>,
        unit: Unit,
        unit_id: Option<Uuid>,
        work: Work,
    ) -> Result<UnseenJobs<Option<Vec<Outcome>>>> {
        let (_here, caller) = caller::present();
        self.detached(|database| async move {
            let _work = work;
            let done = database.transact(&unit, unit_id, &caller).await;
            if !matches!(done, Ok(Some(_))) {
                database.publish_given_back(&unit).await;
            }
            done.map(|outcomes| UnseenJobs::new(database, outcomes))
        })
        .await
    }

    /// Runs work that goes on when its caller leaves, in the runtime of the store: the caller's runtime may end first.
    pub(in crate::store::database) async fn detached<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        match self.runtime.spawn(work(self.clone())).await {
            Ok(done) => done,
            Err(failure) => Err(self.cut_short(failure)),
        }
    }

    /// One verb in a call of its own.
    pub(in crate::store::database) async fn alone(self: Arc<Self>, verb: Verb, caller: &Caller) -> Result<Outcome> {
        let mut context = self.call_context(&verb).await?;
        let repeat = if verb.declaration().reads_only { Repeat::Always } else { Repeat::IfUndone };
        let is_heartbeat = matches!(verb, Verb::Work(WorkVerb::Extend { .. }));
        let mut tries = Retry::default();
        loop {
            let attempt = async {
                let link = match is_heartbeat {
                    true => timeout(HEARTBEAT_POOL_WAIT, self.take()).await.ok(),
                    false => Some(self.take().await),
                };
                match link {
                    // After the call, which commits by itself, what was taken for a caller that has left is lost.
                    Some(Ok(_)) if caller.has_left() => Err(caller::left().into()),
                    Some(Ok(mut link)) if is_heartbeat => {
                        let call = || verbs::call(&verb, &context);
                        let mut first = pin!(link.call(call()?));
                        match timeout(heartbeat_hangs_after(&verb), &mut first).await {
                            Ok(answer) => answer,
                            // The lease would end while its connection hangs. But the first may only be slow.
                            Err(_) => first_answer(first, self.control.quick_call(call()?)).await,
                        }
                    }
                    Some(Ok(mut link)) => link.call(verbs::call(&verb, &context)?).await,
                    Some(Err(failure)) => Err(failure),
                    None => self.control.quick_call(verbs::call(&verb, &context)?).await,
                }
            };
            // A call that takes may have committed when it is cut off, and nothing would give back what it took. It waits for no group; in a
            // queue with limits for the takes before it.
            let answer = if takes(&verb) { Some(attempt.await) } else { caller.unless_left(attempt).await };
            let Some(answer) = answer else { return Err(caller::left()) };
            let failure = match answer {
                Ok(rows) => {
                    let notices = notices_in(&rows);
                    let outcome = verbs::outcome(&verb, rows)?;
                    self.publish_local(&notices, groups_made_ready_at_most(&verb)).await;
                    self.observe(&verb, &outcome);
                    return Ok(outcome);
                }
                Err(failure) => failure,
            };
            let again = tries.after(failure, repeat).await?;
            self.renew(again, [(&verb, &mut context)]).await?;
        }
    }

    /// Prepares calls for their next attempt.
    pub(in crate::store::database) async fn renew<'c>(
        &self,
        again: Again,
        calls: impl IntoIterator<Item = (&'c Verb, &'c mut CallContext)>,
    ) -> Result<()> {
        if again == Again::WithNewDefinitions {
            self.reload().await?;
        }
        self.renew_contexts(again, calls).await
    }

    /// The same once the definitions are read.
    pub(in crate::store::database) async fn renew_contexts<'c>(
        &self,
        again: Again,
        calls: impl IntoIterator<Item = (&'c Verb, &'c mut CallContext)>,
    ) -> Result<()> {
        for (verb, context) in calls {
            match (again, verb) {
                (Again::WithNewDefinitions, Verb::Send { message_type, body, .. }) => {
                    self.check_body(context, message_type.as_deref(), body).await;
                }
                (Again::WithNewDefinitions, Verb::SendEach(messages)) => {
                    for (message, one) in messages.iter().zip(&mut context.each) {
                        self.check_body(one, message.message_type.as_deref(), &message.body).await;
                    }
                }
                (Again::WithNewIds, Verb::BeginDialog(_)) => {
                    for id in context.ids.iter_mut().filter(|id| !id.is_nil()) {
                        *id = self.next_id();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Updates the facts of a queue after a receiving verb.
    pub(in crate::store::database) fn observe(&self, verb: &Verb, outcome: &Outcome) {
        if matches!(verb, Verb::Work(WorkVerb::Take(_))) {
            return self.jobs_were_asked_for();
        }
        let (Some(queue), is_whole) = (received_queue(verb), takes_anything(verb)) else { return };
        let is_empty = found_nothing(outcome);
        if is_whole || !is_empty {
            let messages = match outcome {
                Outcome::Received(messages) => messages.len(),
                // A group that was only locked keeps its messages.
                _ => 0,
            };
            self.update_queue_facts(&self.board.queue(queue), usize::from(!is_empty), messages, is_empty);
        }
    }

    /// A take has changed the depth of its work queue; only queue monitors want it, and a poll counts it.
    pub(in crate::store::database) fn jobs_were_asked_for(&self) {
        if self.board.monitors().has_monitors() {
            self.watch.note_change();
        }
    }

    /// Wakes receivers that saw the groups of a unit locked: it was rolled back.
    async fn publish_given_back(self: &Arc<Self>, unit: &[Verb]) {
        let mut notices = Notices::default();
        for queue in unit.iter().filter_map(received_queue) {
            if let Some((queue_id, _)) = self.counted_queue(queue).await {
                notices.extend([Notice::Queue(queue_id)]);
            }
        }
        if !notices.is_empty() {
            self.publish_local(&notices, 1).await;
            self.lock_released();
        }
    }

    /// Wakes those that wait for what a unit has done.
    async fn publish_done(self: &Arc<Self>, unit: &[Verb], Done { outcomes, notices, .. }: Done) -> Vec<Outcome> {
        self.publish_local(&notices, unit.iter().map(groups_made_ready_at_most).sum()).await;
        unit.iter().zip(&outcomes).for_each(|(verb, outcome)| self.observe(verb, outcome));
        outcomes
    }

    async fn transact(
        self: &Arc<Self>,
        unit: &[Verb],
        unit_id: Option<Uuid>,
        caller: &Caller,
    ) -> Result<Option<Vec<Outcome>>> {
        if unit.iter().any(|verb| matches!(verb, Verb::Define(_))) {
            return Err(Error::definition_in_transaction());
        }
        let unit: Vec<Verb> = unit.iter().cloned().map(normalise_empty_body).collect();
        let mut contexts = Vec::with_capacity(unit.len());
        for verb in &unit {
            contexts.push(self.call_context(verb).await?);
        }
        let mut unanswered = None;
        match self.try_unit(&unit, contexts, unit_id, caller, &mut unanswered).await {
            // No later attempt has found out whether that one happened, as while the server is away.
            Err(later) => Err(unanswered.map_or(later, |attempt| attempt.error)),
            done => done,
        }
    }

    async fn try_unit(
        self: &Arc<Self>,
        unit: &[Verb],
        mut contexts: Vec<CallContext>,
        unit_id: Option<Uuid>,
        caller: &Caller,
        unanswered: &mut Option<Unanswered>,
    ) -> Result<Option<Vec<Outcome>>> {
        let repeat = if unit_id.is_some() { Repeat::Always } else { Repeat::IfUndone };
        let mut tries = Retry::default();
        loop {
            let has_taken = unanswered.as_ref().is_some_and(|attempt| attempt.done.has_taken());
            let attempt = async {
                let mut link = self.take().await?;
                let filled = fill(&mut *link, unit, &contexts, unit_id, unanswered).await;
                let filled = or_rolled_back(&mut *link, filled).await?;
                Ok::<_, Failure>((link, filled))
            };
            // Not the COMMIT: it waits for no lock, and nothing would give back what the unit took. So it is after one without an answer.
            let filled = if has_taken { Some(attempt.await) } else { caller.unless_left(attempt).await };
            let Some(filled) = filled else { return Err(caller::left()) };
            let failure = match filled {
                Err(failure) => failure,
                Ok((_, Filled::Before(done_at))) => {
                    let Some(Unanswered { done, .. }) = unanswered.take() else { return Ok(None) };
                    let is_own = done_at.is_some() && done.claimed_at == done_at;
                    return Ok(if is_own { Some(self.publish_done(unit, done).await) } else { None });
                }
                Ok((mut link, Filled::Done(done))) => {
                    if done.has_taken() && caller.has_left() {
                        let given_back = link.rollback().await;
                        or_rolled_back(&mut *link, given_back).await?;
                        return Err(caller::left());
                    }
                    let committed = link.commit().await;
                    match or_rolled_back(&mut *link, committed).await {
                        Ok(()) => return Ok(Some(self.publish_done(unit, done).await)),
                        Err(failure) => {
                            if failure.fate.may_have_happened() {
                                *unanswered = Some(Unanswered { done, error: failure.caller_error() });
                            }
                            failure
                        }
                    }
                }
            };
            let again = tries.after(failure, repeat).await?;
            self.renew(again, unit.iter().zip(&mut contexts)).await?;
        }
    }
}

/// Does the verbs of a unit in a transaction, up to its COMMIT, unless a unit of that id has happened before.
async fn fill(
    link: &mut dyn Link,
    unit: &[Verb],
    contexts: &[CallContext],
    unit_id: Option<Uuid>,
    unanswered: &mut Option<Unanswered>,
) -> Linked<Filled> {
    link.begin().await?;
    let mut claimed_at = None;
    if let Some(unit_id) = unit_id {
        let claimed = claim(link, unit_id).await?;
        if !claimed.is_new {
            link.rollback().await?;
            return Ok(Filled::Before(claimed.done_at));
        }
        // So the earlier one has not happened.
        *unanswered = None;
        claimed_at = claimed.done_at;
    }
    let mut notices = Notices::default();
    let mut outcomes = Vec::with_capacity(unit.len());
    for (verb, context) in unit.iter().zip(contexts) {
        let rows = link.call(verbs::call(verb, context)?).await?;
        notices.extend(notices_in(&rows));
        outcomes.push(verbs::outcome(verb, rows)?);
    }
    Ok(Filled::Done(Done { outcomes, notices, claimed_at }))
}

/// The result; after a failure the transaction is rolled back, if the link can do that.
async fn or_rolled_back<T>(link: &mut dyn Link, result: Linked<T>) -> Linked<T> {
    if result.as_ref().is_err_and(|failure| failure.is_link_usable) {
        // If that fails too, the link is closed.
        let _ = link.rollback().await;
    }
    result
}

/// After how long a request that prolongs a lease may hang. One that is only slow is not made twice, which would double the load of a server that
/// has too much. Two thirds of a lease are left when a worker prolongs it.
fn heartbeat_hangs_after(verb: &Verb) -> Duration {
    let lease_ms = match verb {
        Verb::Work(WorkVerb::Extend { lease_ms: Some(lease_ms), .. }) => lease_ms.unsigned_abs(),
        _ => 0,
    };
    Duration::from_millis(lease_ms / 6).clamp(HANGING, LONGEST_HEARTBEAT)
}

/// Whether what a verb has taken for a caller that has left is counted as dropped, or can be given back. A job that a pop has taken is lost.
fn takes(verb: &Verb) -> bool {
    match verb {
        Verb::Receive { .. } => true,
        Verb::Work(WorkVerb::Take(take)) => matches!(take.hold, Hold::Lease(_)),
        _ => false,
    }
}

fn is_single(verb: &Verb) -> bool {
    matches!(verb, Verb::Send { handles, .. } if handles.len() == 1)
}

/// The most groups that a verb can make ready.
pub(in crate::store::database) fn groups_made_ready_at_most(verb: &Verb) -> usize {
    match verb {
        Verb::Send { handles, .. } => handles.len(),
        Verb::SendEach(messages) => messages.len(),
        Verb::Receive { .. } | Verb::GetConversationGroup { .. } => 0,
        _ => 1,
    }
}

/// Whether a receiving verb has no filter, so that an empty result means an empty queue.
fn takes_anything(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Receive { from: ReceiveFrom::Any | ReceiveFrom::Oldest, .. } | Verb::GetConversationGroup { .. }
    )
}

/// Whether a receiving verb found nothing.
pub(in crate::store::database) fn found_nothing(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Received(messages) => messages.is_empty(),
        Outcome::Group(group) => group.is_none(),
        Outcome::Jobs(jobs) => jobs.is_empty(),
        _ => false,
    }
}
