//! Transactions: each is a transaction of the server, on a link of its own.
//!
//! The link is taken for the first request, and returned at once if that was a RECEIVE that found nothing: a waiting
//! receiver holds no connection. A transaction that only receives once and commits takes no link: it holds a claim
//! ([`crate::store::database::batching::claim_batches`]).

mod first_receive;

use crate::error::{Code, Error, Result};
use crate::protocol::work::WorkVerb;
use crate::protocol::{Outcome, Verb};
use crate::store::database::Database;
use crate::store::database::batching::body::normalise_empty_body;
use crate::store::database::calls::rows::{notices_in, only};
use crate::store::database::calls::verbs::{self, received_queue};
use crate::store::database::closing::Ending;
use crate::store::database::link::{Arg, Call, Failure, Fate, Link, Linked};
use crate::store::database::notifications::notice::{Notice, Notices};
use crate::store::database::retry::{Repeat, Retry};
use crate::store::database::transactions::attempts::Attempt;
use crate::store::database::transactions::held_jobs::{HeldJobs, HeldJobsMark};
use crate::store::database::transactions::uncommitted_receives::Share;
use crate::store::database::transactions::unit::{found_nothing, groups_made_ready_at_most};
use crate::store::{BoxFuture, Seen, SqlRow, SqlRows, SqlStatement, StoreTx, is_cut_short_by_runtime};
pub(in crate::store::database) use first_receive::ConnectionsBeyondPool;
use first_receive::{CLAIM_POOL_WAIT, FirstReceive};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// The savepoint around every verb after the first: a refusal keeps the work before it.
const BEFORE_THE_VERB: u32 = 0;

/// The transaction itself; dropping it rolls it back.
struct Session {
    database: Arc<Database>,
    /// Where it lies between the requests of its caller.
    cell: Weak<SessionCell>,
    /// The link, from the first request on that is no claim.
    link: Option<Box<dyn Link>>,
    /// What it has received, if it has done nothing else.
    claim: Option<FirstReceive>,
    /// Held while its link is one beyond the pool.
    beyond_pool: Option<OwnedSemaphorePermit>,
    has_ended: bool,
    /// Why it ended while no request was under way.
    lost_by: Option<Error>,
    /// A request is under way on the link; if it never finishes, the link cannot be used.
    is_busy: bool,
    /// A request was under way on the link when the caller dropped the transaction.
    is_given_up: bool,
    /// Its end without its caller, which later requests wait for.
    ending: Option<Ending>,
    /// In order.
    savepoints: Vec<Savepoint>,
    last_savepoint: u32,
    /// Whether locks are the session's, because there are savepoints.
    holds_locks: bool,
    /// Why it is rolled back, if its caller said so.
    rollback_reason: Option<Arc<str>>,
    /// The notices of its rollback, once that is counted.
    rollback_notices: Notices,
    /// What it has received, for the count of rollbacks.
    attempt: Option<Attempt>,
    /// Whether a caller has got any of that, or jobs.
    seen: Seen,
    /// The user's own SQL has run.
    ran_users_sql: bool,
    /// Requests done, without receives that found nothing.
    steps_done: u64,
    taken: Share,
    held_jobs: HeldJobs,
    /// The server has received who holds the jobs of this transaction.
    is_introduced: bool,
    effects: TransactionEffects,
}

/// A savepoint of the user's.
struct Savepoint {
    name: String,
    number: u32,
    /// The number of receives before it.
    receives: usize,
    held_jobs: HeldJobsMark,
}

/// The effects of the transaction's end on other sessions.
#[derive(Default)]
struct TransactionEffects {
    notices: Notices,
    /// Groups that may become ready.
    ready: usize,
    /// Queues of received messages and of locked groups.
    queues: BTreeSet<i32>,
    /// Whether messages may be left in them.
    has_left_messages: bool,
}

/// One request on the link.
enum Step<'a> {
    Call(Call<'a>),
    /// With the place for the number of rows changed.
    Sql(&'a SqlStatement, &'a mut u64),
    Query(&'a SqlStatement),
}

impl Step<'_> {
    async fn on(self, link: &mut dyn Link) -> Linked<SqlRows> {
        let nameless = |rows| SqlRows { columns: Arc::default(), rows };
        match self {
            Self::Call(call) => link.call(call).await.map(nameless),
            Self::Query(sql) => link.query(sql).await,
            Self::Sql(sql, count) => {
                let changed = link.execute(sql).await?;
                *count = changed;
                match sql.expected_rows {
                    Some(expected) if expected != changed => Err(Failure {
                        error: Error::new(
                            Code::USER_SQL_FAILED,
                            format!(
                                "the statement '{}' changed {changed} rows where {expected} were expected; it was undone",
                                sql.text
                            ),
                        ),
                        fate: Fate::Undone,
                        is_link_usable: true,
                    }),
                    _ => Ok(nameless(Vec::new())),
                }
            }
        }
    }
}

impl Session {
    fn new(database: Arc<Database>, seen: Seen) -> Self {
        Self {
            seen,
            taken: Share::of(&database.uncommitted),
            database,
            cell: Weak::new(),
            link: None,
            claim: None,
            beyond_pool: None,
            has_ended: false,
            lost_by: None,
            is_busy: false,
            is_given_up: false,
            ending: None,
            savepoints: Vec::new(),
            last_savepoint: BEFORE_THE_VERB,
            holds_locks: false,
            rollback_reason: None,
            rollback_notices: Notices::default(),
            attempt: None,
            ran_users_sql: false,
            steps_done: 0,
            held_jobs: HeldJobs::default(),
            is_introduced: false,
            effects: TransactionEffects::default(),
        }
    }

    fn check(&self) -> Result<()> {
        if self.has_ended {
            return Err(self.lost_by.as_ref().map_or_else(Error::transaction_ended, Error::duplicate));
        }
        self.database.open_work.check()
    }

    /// Runs a step; a refusal leaves the transaction as it was before, unless the server has ended it.
    async fn step(&mut self, step: Step<'_>) -> Linked<SqlRows> {
        self.is_busy = true;
        let done = self.guarded(step).await;
        self.is_busy = false;
        done
    }

    async fn guarded(&mut self, step: Step<'_>) -> Linked<SqlRows> {
        let Some(link) = &mut self.link else { return self.first_step(step).await };
        if let Err(failure) = link.savepoint(BEFORE_THE_VERB).await {
            return Err(self.lost(failure).await);
        }
        match step.on(&mut **link).await {
            Ok(rows) => match link.release(BEFORE_THE_VERB).await {
                Ok(()) => Ok(rows),
                Err(failure) => Err(self.lost(failure).await),
            },
            Err(failure) if failure.fate == Fate::Undone && failure.is_link_usable => {
                let undone = link.rollback_to(BEFORE_THE_VERB).await;
                match undone {
                    Ok(()) => match link.release(BEFORE_THE_VERB).await {
                        Ok(()) => Err(failure),
                        Err(lost) => Err(self.lost(lost).await),
                    },
                    // The refusal came before the savepoint, from the lock of a claim's group.
                    Err(lost) if lost.is_link_usable => {
                        self.lost(lost).await;
                        Err(Failure { fate: Fate::TransactionUndone, ..failure })
                    }
                    Err(lost) => Err(self.lost(lost).await),
                }
            }
            Err(failure) => Err(self.lost(failure).await),
        }
    }

    /// No work was done before, so a refusal of a verb costs only the link.
    async fn first_step(&mut self, step: Step<'_>) -> Linked<SqlRows> {
        let is_users = !matches!(step, Step::Call(_));
        let mut link = self.database.take().await?;
        link.begin().await.map_err(Failure::before_commit)?;
        match step.on(&mut *link).await {
            Ok(rows) => {
                self.link = Some(link);
                Ok(rows)
            }
            Err(failure) => {
                if failure.is_link_usable {
                    // If that fails too, the link is closed.
                    let _ = link.rollback().await;
                }
                let failure = if failure.fate == Fate::Alone { failure } else { failure.before_commit() };
                // A COMMIT that succeeded would say that nothing of it has happened before, or that the user's statement has.
                if failure.fate == Fate::Alone || is_users && failure.fate == Fate::TransactionUndone {
                    return Err(self.lost(failure).await);
                }
                Err(failure)
            }
        }
    }

    /// The server has ended the transaction, or the connection is lost.
    async fn lost(&mut self, failure: Failure) -> Failure {
        self.has_ended = true;
        self.end_quietly(failure.is_link_usable).await;
        failure.before_commit()
    }

    /// Rolls back, and counts the rollback if a caller has seen what it received.
    async fn end_quietly(&mut self, is_link_usable: bool) {
        self.has_ended = true;
        self.give_up_claim().await;
        if !self.seen.is_set()
            && let Some(attempt) = self.attempt.take()
        {
            self.database.withdraw_notes(&attempt).await;
        }
        if let Some(attempt) = &self.attempt {
            self.database.send_notes(attempt).await;
        }
        if self.is_given_up {
            self.count_given_up().await;
        }
        if !is_link_usable || self.database.open_work.check().is_err() {
            self.seen.lose();
        }
        if let Some(mut link) = self.link.take() {
            let counts_here = is_link_usable && self.keep_counted_groups(&mut *link).await;
            let is_clean = is_link_usable && link.rollback().await.is_ok();
            if !is_clean {
                self.seen.lose();
            }
            if is_clean && counts_here {
                self.count_rollback(&mut *link).await;
            }
            if is_clean && self.holds_locks {
                // If that fails, the link is closed, and its locks go with it.
                let _ = link.call(unlock_session()).await;
            }
        }
        self.after_rollback().await;
    }

    /// Keeps the groups locked if the rollback counts against them, so that a pause begins before another receiver gets their
    /// messages. Only this session can count it then. A transaction that the server has ended keeps no locks.
    async fn keep_counted_groups(&mut self, link: &mut dyn Link) -> bool {
        let catalog = self.database.definitions.known().catalog.clone();
        let counts_by_group = |queue: i32| {
            let queue = catalog.queues.get(&queue);
            queue.is_some_and(|queue| queue.retry.is_some() || queue.is_poison_quarantine_enabled)
        };
        let is_wanted = self.attempt.as_ref().is_some_and(|attempt| attempt.queues().any(counts_by_group));
        let is_kept = is_wanted && link.keep_locks().await.is_ok();
        self.holds_locks |= is_kept;
        is_kept
    }

    /// Counts the rollback on the link that had the transaction; if that fails, it is still to be counted.
    async fn count_rollback(&mut self, link: &mut dyn Link) {
        if let Some(attempt) = &self.attempt
            && let Ok(rows) = link.call(self.count(attempt)).await
        {
            self.rollback_notices.extend(notices_in(&rows));
            self.attempt = None;
        }
    }

    /// Closes the link, which was kept for the notes: with that the server ends the statement that was given up. The rollback is counted at
    /// that end, by a call that waits in the line for the groups, so that no other receiver comes before it. Counts that came too early
    /// were left to the next tick: a conversation was received a hundred times without a pause, and then its next messages became dead
    /// letters. If this fails, it is still to be counted.
    async fn count_given_up(&mut self) {
        let mut given_up = self.link.take();
        if self.attempt.is_none() || self.seen.is_lost() || self.database.open_work.check().is_err() {
            return;
        }
        if !self.database.driver.has_free() {
            given_up = None;
        }
        // Later requests wait for this, and it waits no longer for the transactions that have all connections.
        let Ok(Ok(mut link)) = timeout(CLAIM_POOL_WAIT, self.database.driver.take()).await else { return };
        let Some(attempt) = &self.attempt else { return };
        self.ending.iter().for_each(Ending::stands_in_line);
        let counted = link.call(attempt.count_when_ended(self.rollback_reason.as_deref(), given_up.is_some()));
        // It stands in the line before the statement is cancelled, which takes a connection of its own.
        let (counted, ()) = tokio::join!(biased; counted, async move { drop(given_up) });
        if let Ok(rows) = counted {
            self.rollback_notices.extend(notices_in(&rows));
            self.attempt = None;
        }
    }

    /// The call that counts its rollback.
    fn count<'a>(&'a self, attempt: &Attempt) -> Call<'a> {
        if self.seen.is_lost() { attempt.count_loss() } else { attempt.count(self.rollback_reason.as_deref()) }
    }

    async fn after_rollback(&mut self) {
        let mut notices = std::mem::take(&mut self.rollback_notices);
        self.taken.clear();
        self.beyond_pool = None;
        if let Some(attempt) = self.attempt.take() {
            match self.database.control.call(self.count(&attempt)).await {
                Ok(rows) => notices.extend(notices_in(&rows)),
                Err(failure) => {
                    tracing::warn!(error = %failure.error, "a rollback could not be counted; it is at the next tick");
                }
            }
        }
        for release in std::mem::take(&mut self.held_jobs).release(self.seen.is_set()) {
            self.database.give_back_jobs(release).await;
        }
        let effects = std::mem::take(&mut self.effects);
        notices.extend(effects.queues.into_iter().map(Notice::Queue));
        self.database.publish_local(&notices, 1).await;
        self.database.lock_released();
    }

    async fn run(&mut self, verb: Verb) -> Result<Outcome> {
        self.check()?;
        if matches!(verb, Verb::Define(_)) {
            return Err(Error::definition_in_transaction());
        }
        verb.check_texts()?;
        self.database.before_work_of(self.link.is_some() || self.claim.is_some()).await?;
        let verb = normalise_empty_body(verb);
        // Until the messages count as received: those that come meanwhile are not alone.
        let _alone = match self.receive_by_claim(&verb).await? {
            ControlFlow::Break(outcome) => return Ok(outcome),
            ControlFlow::Continue(alone) => alone,
        };
        if matches!(&verb, Verb::Work(WorkVerb::Take(_))) {
            return self.take_jobs(verb).await;
        }
        let mut context = self.database.call_context(&verb).await?;
        self.introduce(&verb).await?;
        let mut tries = Retry::default();
        let rows = loop {
            let is_first = self.link.is_none();
            let failure = match self.step(Step::Call(verbs::call(&verb, &context)?)).await {
                Ok(done) => break done.rows,
                Err(failure) => failure,
            };
            if self.has_ended {
                return Err(failure.into());
            }
            let repeat = if is_first { Repeat::IfUndone } else { Repeat::Never };
            let again = tries.after(failure, repeat).await?;
            self.database.renew(again, [(&verb, &mut context)]).await?;
        };
        self.note_effects(&verb, rows).await
    }

    /// Jobs are taken on another connection, so a reader that waits for them holds none.
    async fn take_jobs(&mut self, verb: Verb) -> Result<Outcome> {
        let outcome = self.database.clone().take_jobs_for_transaction(&mut self.held_jobs, verb).await?;
        if found_nothing(&outcome) {
            self.give_back_if_untouched().await;
        } else {
            self.steps_done += 1;
        }
        Ok(outcome)
    }

    /// After the commit.
    async fn release_leftover(&mut self) {
        if let Some(release) = std::mem::take(&mut self.held_jobs).leftover() {
            self.database.give_back_jobs(release).await;
        }
    }

    /// Tells the server that the jobs of this transaction are its own, before a report on one of them.
    async fn introduce(&mut self, verb: &Verb) -> Result<()> {
        if let Some(call) = self.held_jobs.introduction(verb).filter(|_| !self.is_introduced) {
            self.step(Step::Call(call)).await?;
            self.is_introduced = true;
        }
        Ok(())
    }

    /// Records the effects of a verb.
    async fn note_effects(&mut self, verb: &Verb, rows: Vec<SqlRow>) -> Result<Outcome> {
        self.effects.notices.extend(notices_in(&rows));
        let outcome = verbs::outcome(verb, rows)?;
        self.effects.ready += groups_made_ready_at_most(verb);
        self.held_jobs.note(verb);
        if found_nothing(&outcome) {
            self.database.observe(verb, &outcome);
            self.give_back_if_untouched().await;
            return Ok(outcome);
        }
        self.steps_done += 1;
        let queue = match received_queue(verb) {
            Some(queue) => self.database.counted_queue(queue).await,
            None => None,
        };
        if let (Some((queue_id, _)), Outcome::Received(messages)) = (queue, &outcome) {
            self.taken.add(queue_id, messages.len() as u64);
        }
        self.database.observe(verb, &outcome);
        let Some((queue_id, counts)) = queue else { return Ok(outcome) };
        self.effects.queues.insert(queue_id);
        match (verb, &outcome) {
            (Verb::Receive { top, .. }, Outcome::Received(messages)) => {
                self.effects.has_left_messages |= top.is_some();
                if counts && let Some(first) = messages.first() {
                    let attempt = self.attempt.get_or_insert_with(|| Attempt::since(Instant::now()));
                    let from = (queue_id, first.conversation_group_id.0);
                    let message = Some((first.conversation_handle.0, first.queuing_order));
                    self.database.note_receive(attempt, from, message, top.is_none()).await;
                }
            }
            _ => self.effects.has_left_messages = true,
        }
        Ok(outcome)
    }

    /// Returns the link of a transaction without work, so that a waiting receiver holds no connection.
    async fn give_back_if_untouched(&mut self) {
        let is_untouched = self.steps_done == 0 && self.savepoints.is_empty();
        if is_untouched && let Some(mut link) = self.link.take() {
            // If that fails, the link is closed.
            let _ = link.rollback().await;
        }
    }

    async fn commit(mut self) -> Result<()> {
        self.check()?;
        // Closing waits for the commit and its notification of other processes.
        let _work = self.database.open_work.enter()?;
        if self.claim.is_some() {
            return self.commit_claim().await;
        }
        let finish = self.held_jobs.finish(self.database.process);
        let mut link = match self.link.take() {
            Some(link) => link,
            None if finish.is_none() => {
                self.has_ended = true;
                self.release_leftover().await;
                return Ok(());
            }
            None => {
                let mut link = self.database.take().await?;
                link.begin().await?;
                link
            }
        };
        self.database.before_work_of(true).await?;
        self.has_ended = true;
        let effects = std::mem::take(&mut self.effects);
        let end = self.attempt.as_ref().map(|attempt| attempt.end(self.database.driver.dialect().notes_later));
        // The server says that it refuses a COMMIT before it has ended the transaction. Another session could not count the rollback
        // then, nor give jobs back, and a pause would begin after others have received the messages again. Only the user's SQL
        // brings deferred constraints.
        let checks_first = self.ran_users_sql && (end.is_some() || finish.is_some());
        let calls = finish.into_iter().chain(end.into_iter().flatten()).collect();
        match link.finish(calls, checks_first).await {
            Ok(answers) => {
                self.attempt = None;
                self.release_leftover().await;
                self.taken.clear();
                if self.holds_locks {
                    // If that fails, the link is closed, and its locks go with it.
                    let _ = link.call(unlock_session()).await;
                }
                drop(link);
                let mut all = effects.notices;
                answers.iter().for_each(|rows| all.extend(notices_in(rows)));
                self.database.publish_local(&all, effects.ready.max(1)).await;
                if effects.has_left_messages {
                    self.database.publish_left_messages(effects.queues);
                }
                self.database.lock_released();
                Ok(())
            }
            Err(failure) => {
                let is_unknown = failure.fate.may_have_happened();
                if is_unknown {
                    // If it happened, there is no rollback to count; if not, the next tick that finds the attempt counts it.
                    self.attempt = None;
                }
                (self.effects, self.rollback_reason) = (effects, Some(failure.error.message().into()));
                self.link = Some(link);
                self.end_quietly(failure.is_link_usable && !is_unknown).await;
                Err(failure.into())
            }
        }
    }

    async fn sql(&mut self, sql: SqlStatement) -> Result<u64> {
        self.check()?;
        self.become_ordinary().await?;
        self.steps_done += 1;
        self.ran_users_sql = true;
        let mut changed = 0;
        self.step(Step::Sql(&sql, &mut changed)).await?;
        Ok(changed)
    }

    async fn query(&mut self, sql: SqlStatement) -> Result<SqlRows> {
        self.check()?;
        self.become_ordinary().await?;
        self.database.before_work_of(self.link.is_some()).await?;
        self.database.publish_before_query().await;
        self.steps_done += 1;
        self.ran_users_sql = true;
        Ok(self.step(Step::Query(&sql)).await?)
    }

    async fn claim(&mut self, unit_id: Uuid) -> Result<bool> {
        self.check()?;
        self.become_ordinary().await?;
        self.steps_done += 1;
        let claim = Call { name: "claim_unit", args: vec![Arg::Uuid(unit_id)] };
        let done = self.step(Step::Call(claim)).await?;
        only(&done.rows)?.flag("is_new")
    }

    async fn mark(&mut self, name: &str) -> Result<()> {
        self.check()?;
        self.become_ordinary().await?;
        if self.link.is_none() {
            let mut link = self.database.take().await?;
            link.begin().await?;
            self.link = Some(link);
        }
        let number = self.last_savepoint + 1;
        let link = self.link.as_mut().ok_or_else(Error::transaction_ended)?;
        self.is_busy = true;
        let marked = match self.holds_locks {
            true => link.savepoint(number).await,
            false => match link.hold_locks().await {
                Ok(()) => link.savepoint(number).await,
                Err(failure) => Err(failure),
            },
        };
        self.is_busy = false;
        if let Err(failure) = marked {
            return Err(self.lost(failure).await.into());
        }
        self.holds_locks = true;
        self.last_savepoint = number;
        let (receives, held_jobs) = (self.taken.len(), self.held_jobs.mark());
        self.savepoints.push(Savepoint { name: name.to_owned(), number, receives, held_jobs });
        Ok(())
    }

    async fn go_back(&mut self, name: &str) -> Result<()> {
        self.check()?;
        let place = self.savepoints.iter().rposition(|known| known.name == name).ok_or_else(|| {
            Error::new(
                Code::SAVEPOINT_NOT_FOUND,
                format!("this transaction has no savepoint '{name}', or it was undone with an earlier one"),
            )
        })?;
        let Savepoint { number, receives, held_jobs, .. } = self.savepoints[place];
        if let Some(attempt) = &self.attempt {
            // After it nothing proves what was received since.
            self.database.send_notes(attempt).await;
        }
        let link = self.link.as_mut().ok_or_else(Error::transaction_ended)?;
        self.is_busy = true;
        let undone = link.rollback_to(number).await;
        self.is_busy = false;
        if let Err(failure) = undone {
            return Err(self.lost(failure).await.into());
        }
        self.savepoints.truncate(place + 1);
        self.taken.truncate(receives);
        // Set since, the server has forgotten it.
        self.is_introduced = false;
        if let Some(release) = self.held_jobs.go_back(held_jobs) {
            self.database.give_back_jobs(release).await;
        }
        self.database.watch.note_change();
        Ok(())
    }
}

impl Database {
    /// The queue's id, and whether rollbacks are counted there.
    pub(in crate::store::database) async fn counted_queue(&self, name: &str) -> Option<(i32, bool)> {
        let find = || {
            let catalog = &self.definitions.known().catalog;
            catalog.queue(name).map(|queue| (queue.id, queue.is_poison_message_handling_enabled))
        };
        if let Some(found) = find() {
            return Some(found);
        }
        // Another process has just made the queue.
        if let Err(error) = self.reload().await {
            tracing::warn!(%error, "queue {name} is not known; a rollback of what was received there would not be counted");
        }
        find()
    }
}

fn unlock_session() -> Call<'static> {
    Call { name: "unlock_session", args: Vec::new() }
}

impl Drop for Session {
    fn drop(&mut self) {
        let is_untouched = self.link.is_none() && self.claim.is_none() && self.attempt.is_none();
        if self.has_ended || (is_untouched && !self.held_jobs.may_hold()) {
            return;
        }
        if self.seen.is_set() && is_cut_short_by_runtime() {
            self.seen.lose();
        }
        let mut rest = std::mem::replace(self, Self::new(self.database.clone(), self.seen.clone()));
        rest.is_given_up = rest.is_busy;
        rest.rollback_reason = rest.seen.reason();
        // This is not tried again.
        rest.has_ended = true;
        // Spawned where the store was opened: a transaction may be dropped where no runtime is.
        rest.ending = Some(Ending::begin(&self.database));
        self.database.runtime.spawn(async move { rest.end_quietly(true).await });
    }
}

/// An open transaction of a server.
///
/// Each request runs in a task of its own, so that it goes on if the caller does not poll it: the victim of a deadlock
/// frees its locks at once.
pub(in crate::store::database) struct DatabaseTx {
    database: Arc<Database>,
    cell: Arc<SessionCell>,
}

/// Where a session lies between requests. It is locked while one runs; empty after the end.
struct SessionCell(Mutex<Option<Session>>);

impl Drop for DatabaseTx {
    fn drop(&mut self) {
        // A claim that is to grow old keeps the cell while it waits for a connection, so the session is taken out of it.
        if let Ok(mut cell) = self.cell.0.try_lock() {
            drop(cell.take());
            return;
        }
        // A request runs, or the claim grows old at this moment: the session is dropped after that. A request after this drop
        // waits for it.
        let (cell, ending) = (self.cell.clone(), Ending::begin(&self.database));
        self.database.runtime.spawn(async move {
            drop(cell.0.lock().await.take());
            drop(ending);
        });
    }
}

/// A task that is aborted with its caller.
struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl DatabaseTx {
    pub(in crate::store::database) fn new(database: Arc<Database>, seen: Seen) -> Self {
        let mut session = Session::new(database.clone(), seen);
        let cell = Arc::new_cyclic(|cell: &Weak<SessionCell>| {
            session.cell = cell.clone();
            SessionCell(Mutex::new(Some(session)))
        });
        Self { cell, database }
    }

    /// Runs work on the session, which comes back with the result.
    async fn run<T, F>(&mut self, work: impl FnOnce(Session) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = (Session, Result<T>)> + Send + 'static,
    {
        let cell = self.cell.clone();
        let mut running = Running(self.database.runtime.spawn(async move {
            let mut cell = cell.0.lock().await;
            let session = cell.take().ok_or_else(Error::transaction_ended)?;
            let (session, done) = work(session).await;
            *cell = Some(session);
            done
        }));
        match (&mut running.0).await {
            Ok(done) => done,
            Err(failure) => Err(self.database.cut_short(failure)),
        }
    }
}

impl StoreTx for DatabaseTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self.run(|mut session| async move {
            let outcome = session.run(verb).await;
            (session, outcome)
        }))
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.run(|mut session| async move {
            let done = session.sql(sql).await;
            (session, done)
        }))
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(self.run(|mut session| async move {
            let rows = session.query(sql).await;
            (session, rows)
        }))
    }

    fn claim(&mut self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.run(move |mut session| async move {
            let is_new = session.claim(unit_id).await;
            (session, is_new)
        }))
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        let name = name.to_owned();
        Box::pin(self.run(|mut session| async move {
            let done = session.mark(&name).await;
            (session, done)
        }))
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        let name = name.to_owned();
        Box::pin(self.run(|mut session| async move {
            let done = session.go_back(&name).await;
            (session, done)
        }))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let session = self.cell.0.lock().await.take().ok_or_else(Error::transaction_ended)?;
            self.database.detached(|_| session.commit()).await
        })
    }

    fn rollback(self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let session = self.cell.0.lock().await.take();
            let Some(mut session) = session.filter(|session| !session.has_ended) else { return Ok(()) };
            session.rollback_reason = reason;
            let work = self.database.open_work.begin();
            let undo = async move {
                session.end_quietly(true).await;
                drop(work);
                Ok(())
            };
            self.database.detached(|_| undo).await
        })
    }
}
