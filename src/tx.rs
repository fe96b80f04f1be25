//! Transactions: verbs and the user's own SQL in one commit.

mod abandoned;
mod rollback;
mod sql;
#[cfg(test)]
mod tests;
mod turns;

pub use sql::Sql;

use crate::act::{InStore, Perform};
use crate::error::{Code, Error, Result};
use crate::id::ConversationHandle;
use crate::protocol::work::WorkVerb;
use crate::protocol::{EndForm, Outcome, Verb};
use crate::store::{BoxFuture, IntoSqlParams, Seen, SqlRows, SqlStatement, Store, StoreTx};
use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use tracing::Instrument;
use turns::{Call, Turns, Wakers};
use uuid::Uuid;

/// An open transaction: all its work happens at [`Tx::commit`], or not at all. Dropping it rolls it back.
///
/// It owns its data, so it may be kept in a struct across calls. Its methods take `&self` and run one after the
/// other, in the order in which they are first polled. The future of a call may be kept and not polled while others are awaited, as
/// in a loop over `tokio::select!`.
///
/// # Cancelling
/// Dropping the future of a verb does not undo the verb: it runs on with the next call. If it fails then,
/// [`Tx::commit`] gives its error and nothing has happened. Dropping the future of a waiting RECEIVE loses nothing:
/// messages it took but could not hand over are handed to the next RECEIVE of the same queue that may receive them, and
/// a commit without that is refused. If the transaction is rolled back instead, that counts as an attempt only if a caller has got
/// messages or jobs of it. A verb whose future is dropped while an earlier one still runs has not begun, and
/// does not happen.
pub struct Tx {
    store: Arc<dyn Store>,
    /// Locked for each poll of a call, never while one waits.
    state: Mutex<State>,
    wakers: Arc<Wakers>,
    /// Wakes all of them.
    waker: Waker,
    /// Shared with the state.
    may_hold_groups: Arc<AtomicBool>,
    /// Shared with the store.
    seen: Seen,
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

type Session = Box<dyn StoreTx>;

struct State {
    step: Step,
    turns: Turns,
    record: Record,
    ended: Ended,
    /// The savepoints, each with the record at that point.
    savepoints: Vec<(String, Record)>,
    /// The deadlock that ended the transaction.
    deadlock: Option<Deadlock>,
    /// Set by the first verb that may have locked a group; `rollback_to` keeps locks.
    may_hold_groups: Arc<AtomicBool>,
}

struct Deadlock {
    error: Error,
    /// Whether a caller has got the error.
    is_reported: bool,
}

/// The client's own record of the transaction. It is kept at each savepoint and restored by `rollback_to`, so a new
/// fact belongs in here and nowhere else.
#[derive(Clone, Default)]
struct Record {
    /// Results of receiving verbs whose callers had gone away.
    abandoned: Vec<AbandonedResult>,
    /// How many conversations this transaction has ended on its side.
    ended: usize,
    /// The error of a verb whose caller had gone away.
    failed: Option<Arc<Error>>,
    /// The errors of verbs whose callers are there and were not polled since, by their turns.
    unseen_failures: Vec<(u64, Arc<Error>)>,
}

/// The conversations that this transaction has ended on its side, kept once for all savepoints: with a copy for each of 8,000
/// savepoints, a transaction that ended 8,000 conversations took 850 MB.
#[derive(Default)]
struct Ended {
    in_order: Vec<ConversationHandle>,
    all: HashSet<ConversationHandle>,
}

impl Ended {
    /// Adds a conversation, and returns how many there are.
    fn add(&mut self, handle: ConversationHandle) -> usize {
        if self.all.insert(handle) {
            self.in_order.push(handle);
        }
        self.in_order.len()
    }

    /// Keeps the first so many.
    fn keep(&mut self, first: usize) {
        for undone in self.in_order.drain(first..) {
            self.all.remove(&undone);
        }
    }
}

#[derive(Clone)]
struct AbandonedResult {
    verb: Verb,
    outcome: Outcome,
    /// The turn of its caller, if that is there and was not polled since: then the result is still its own.
    owner: Option<u64>,
}

enum Step {
    Idle(Session),
    /// A verb is under way; it outlives the future of its caller.
    Busy {
        running: BoxFuture<'static, (Session, Done)>,
        /// The turn of its caller; `None` once that has gone away.
        owner: Option<u64>,
    },
    Ended,
}

/// The result of a step. Receiving verbs are kept with their outcome until a caller sees it.
enum Done {
    Verb(VerbEffect, Result<Outcome>),
    Savepoint(String, Result<()>),
    RolledBackTo(String, Result<()>),
    Claimed(Result<bool>),
    Changed(Result<u64>),
    Rows(Result<SqlRows>),
}

impl Done {
    fn error(&self) -> Option<&Error> {
        match self {
            Self::Verb(_, done) => done.as_ref().err(),
            Self::Savepoint(_, done) | Self::RolledBackTo(_, done) => done.as_ref().err(),
            Self::Claimed(done) => done.as_ref().err(),
            Self::Changed(done) => done.as_ref().err(),
            Self::Rows(done) => done.as_ref().err(),
        }
    }

    /// Why the transaction must not be committed if no caller has seen this. A verb that only reads has left nothing
    /// out.
    fn failure(&self) -> Option<Error> {
        match self {
            Self::Verb(VerbEffect::Receives(_) | VerbEffect::ReadsOnly, _) => None,
            Self::Claimed(Ok(false)) => Some(Error::new(
                Code::TRANSACTION_ENDED,
                "a unit of the id that this transaction claims has happened before",
            )),
            // Rows may be those of a statement that writes.
            done => done.error().map(Error::duplicate),
        }
    }
}

/// The part of a verb that matters after it was done.
enum VerbEffect {
    Receives(Verb),
    Ends(ConversationHandle),
    ReadsOnly,
    LocksNoGroup,
    Other,
}

impl VerbEffect {
    fn of(verb: &Verb) -> Self {
        match verb {
            Verb::Receive { .. } | Verb::GetConversationGroup { .. } | Verb::Work(WorkVerb::Take(_)) => {
                Self::Receives(verb.clone())
            }
            Verb::Work(_) => Self::LocksNoGroup,
            Verb::EndConversation { handle, form: EndForm::Plain | EndForm::WithError { .. } | EndForm::Cleanup } => {
                Self::Ends(*handle)
            }
            verb if verb.declaration().reads_only => Self::ReadsOnly,
            _ => Self::Other,
        }
    }
}

impl Done {
    /// Whether a group may be locked since.
    fn may_have_locked(&self) -> bool {
        match self {
            Self::Verb(VerbEffect::Receives(Verb::Work(_)) | VerbEffect::ReadsOnly | VerbEffect::LocksNoGroup, _) => {
                false
            }
            Self::Verb(VerbEffect::Receives(_), outcome) => outcome.as_ref().is_ok_and(holds_something),
            Self::Verb(VerbEffect::Ends(_) | VerbEffect::Other, _) => true,
            _ => false,
        }
    }
}

/// A commit does not lose a group that was only locked; it would lose messages and jobs.
fn is_lost_by_commit(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Received(_) | Outcome::Jobs(_))
}

impl State {
    /// Records what a step has done: its caller may be gone by now.
    fn note(&mut self, session: Session, done: &Done) {
        if done.may_have_locked() {
            self.may_hold_groups.store(true, Relaxed);
        }
        match done {
            Done::Verb(VerbEffect::Ends(handle), Ok(_)) => {
                self.record.ended = self.ended.add(*handle);
                self.record.drop_abandoned_of(*handle);
            }
            Done::Savepoint(name, Ok(())) => self.savepoints.push((name.clone(), self.record.clone())),
            Done::RolledBackTo(name, Ok(())) => {
                if let Some(place) = self.savepoints.iter().rposition(|(known, _)| known == name) {
                    self.savepoints.truncate(place + 1);
                    self.record = self.savepoints[place].1.clone();
                    self.ended.keep(self.record.ended);
                }
            }
            _ => {}
        }
        // A deadlock rolls the whole transaction back, whichever step met it: nothing is left to hand over.
        match done.error().filter(|error| is_deadlock(error)) {
            None => self.step = Step::Idle(session),
            Some(error) => {
                self.deadlock = Some(Deadlock { error: error.duplicate(), is_reported: false });
                self.record = Record::default();
                self.ended.keep(0);
                self.savepoints.clear();
                self.step = Step::Ended;
            }
        }
    }

    /// Keeps what a step has done whose caller went away.
    fn abandon(&mut self, done: Done) {
        match done {
            Done::Verb(VerbEffect::Receives(verb), Ok(outcome)) if holds_something(&outcome) => {
                self.record.abandoned.push(AbandonedResult { verb, outcome, owner: None });
            }
            done if self.deadlock.is_none() => {
                if let Some(error) = done.failure() {
                    self.record.failed.get_or_insert(Arc::new(error));
                }
            }
            _ => {}
        }
    }

    /// Changes the record, and what it was at each savepoint.
    fn record_of_all(&mut self, change: impl Fn(&mut Record)) {
        change(&mut self.record);
        self.savepoints.iter_mut().for_each(|(_, record)| change(record));
    }

    /// Why no more steps are possible: the deadlock if no caller has got its error, else 60020.
    fn ended(&mut self) -> Error {
        match &mut self.deadlock {
            Some(deadlock) if !deadlock.is_reported => {
                deadlock.is_reported = true;
                deadlock.error.duplicate()
            }
            _ => Error::transaction_ended(),
        }
    }

    /// Why the transaction must be rolled back instead of committed.
    fn refusal(&self) -> Option<Error> {
        let unseen = self.record.unseen_failures.first().map(|(_, error)| error);
        match self.record.failed.as_ref().or(unseen) {
            Some(error) => Some(abandoned_failure(error)),
            None => {
                let is_lost = |abandoned: &AbandonedResult| is_lost_by_commit(&abandoned.outcome);
                self.record.abandoned.iter().any(is_lost).then(abandoned_messages)
            }
        }
    }
}

fn is_deadlock(error: &Error) -> bool {
    error.code() == Code::DEADLOCK
}

fn holds_something(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Received(messages) => !messages.is_empty(),
        Outcome::Group(group) => group.is_some(),
        Outcome::Jobs(jobs) => !jobs.is_empty(),
        _ => false,
    }
}

impl Tx {
    /// What its store knows of it when it rolls back.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(crate) fn new(store: Arc<dyn Store>, session: Session, seen: Seen) -> Self {
        let may_hold_groups = Arc::new(AtomicBool::new(false));
        let wakers = Arc::<Wakers>::default();
        Self {
            store,
            waker: wakers.clone().into(),
            wakers,
            state: Mutex::new(State {
                step: Step::Idle(session),
                turns: Turns::default(),
                record: Record::default(),
                ended: Ended::default(),
                savepoints: Vec::new(),
                deadlock: None,
                may_hold_groups: may_hold_groups.clone(),
            }),
            may_hold_groups,
            seen,
        }
    }

    /// The caller gets this outcome now.
    fn hands_over(&self, outcome: &Outcome) {
        if is_lost_by_commit(outcome) && holds_something(outcome) {
            self.seen.set();
        }
    }

    /// Runs the user's own SQL and returns the number of rows that it changed; parameters are always bound. They are `?1` or `$1` in the
    /// embedded store, `$1` on PostgreSQL, `@P1` on SQL Server.
    ///
    /// A statement that fails is undone, and the transaction goes on: the application may handle the error and commit. The
    /// statement sees what the transaction's own SQL has written before, and [`Tx::rollback_to`] undoes it.
    ///
    /// ```no_run
    /// # async fn example(tx: dialoq::Tx) -> dialoq::Result<()> {
    /// tx.sql("insert into basket(id, sku) values (?1, ?2)", (7, "A-1")).expect_rows(1).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// 60022 the statement failed, or changed another number of rows than expected (a broken deferred foreign key: from
    /// [`Tx::commit`]); 60036 it ran too long; 1205, in the embedded store and also from [`Tx::commit`], if a statement would
    /// now give another result, because another transaction was committed meanwhile: run the transaction again.
    pub fn sql(&self, text: impl Into<String>, params: impl IntoSqlParams) -> Sql<'_> {
        let statement = SqlStatement { text: text.into(), params: params.into_sql_params(), expected_rows: None };
        Sql { tx: self, statement }
    }

    /// Runs a statement that returns rows: a query of the user's own tables or of the catalog views, or a statement that
    /// writes and returns rows (`INSERT .. RETURNING`, on SQL Server `OUTPUT`).
    ///
    /// It sees what the transaction's own SQL has written before. In a database server the catalog views also show the
    /// transaction's own verbs, and a transaction that has run a query keeps its connection to its end. In the embedded
    /// store the views show committed rows, and the rows of a query after the first write must be the same at the commit.
    ///
    /// # Errors
    /// As [`Tx::sql`]; 60022 also if the statement returns no rows by its nature, 60020 the transaction has ended.
    pub async fn query(&self, text: impl Into<String>, params: impl IntoSqlParams) -> Result<SqlRows> {
        let statement = SqlStatement { text: text.into(), params: params.into_sql_params(), expected_rows: None };
        let statement = statement.checked()?;
        match self.turn(Call::Query(statement)).await? {
            Done::Rows(rows) => rows,
            _ => unreachable!("a query gives rows"),
        }
    }

    /// Gives the transaction the caller's own id, before all other work in it; false if a unit or transaction of that
    /// id has happened before: then roll it back. See
    /// [`Broker::unit_happened`](crate::Broker::unit_happened).
    ///
    /// # Errors
    /// 60026 the store keeps no ids, 60020 the transaction has ended. 1222 in the embedded store if an open transaction has the id, this
    /// one too; a server waits for the end of another one.
    pub async fn claim(&self, unit_id: Uuid) -> Result<bool> {
        match self.turn(Call::Claim(unit_id)).await? {
            Done::Claimed(is_new) => is_new,
            _ => unreachable!("a claim says whether the id is new"),
        }
    }

    /// Sets a savepoint for [`Tx::rollback_to`]; names may be reused, the latest counts.
    ///
    /// # Errors
    /// 60020 the transaction has ended.
    pub async fn savepoint(&self, name: &str) -> Result<()> {
        match self.turn(Call::Savepoint(name.to_owned())).await? {
            Done::Savepoint(_, done) => done,
            _ => unreachable!("a savepoint has no result"),
        }
    }

    /// Undoes all work since the savepoint but keeps the locks, and the savepoint.
    ///
    /// # Errors
    /// 60023 no such savepoint, 60020 the transaction has ended.
    pub async fn rollback_to(&self, name: &str) -> Result<()> {
        match self.turn(Call::RollbackTo(name.to_owned())).await? {
            Done::RolledBackTo(_, done) => done,
            _ => unreachable!("a rollback has no result"),
        }
    }

    /// Whether this transaction has ended its side of that conversation, so that END has deleted its unread messages.
    /// An END that `rollback_to` has undone does not count.
    pub(crate) async fn has_ended(&self, handle: ConversationHandle) -> bool {
        self.idle().await;
        self.state().ended.all.contains(&handle)
    }

    /// The deadlock that has ended this transaction, if one has.
    pub(crate) async fn deadlock(&self) -> Option<Error> {
        self.idle().await;
        self.state().deadlock.as_ref().map(|deadlock| deadlock.error.duplicate())
    }

    /// Whether a deadlock has ended this transaction, as far as is known: a verb that was given up may still be at work.
    pub(crate) fn has_given_way(&self) -> bool {
        self.state().deadlock.is_some()
    }

    /// Makes all work durable, wholly or not at all.
    ///
    /// # Errors
    /// 60020 the transaction has ended; 60022 the user's own SQL failed; the code of a verb that failed after its
    /// future had been dropped, unless [`Tx::rollback_to`] has undone it; the store's own. After any error nothing of
    /// the transaction has happened, except after 60031, which says that it may have, and when the store has lost its
    /// disk (60015, 60018): then a reopen shows the outcome.
    pub async fn commit(self) -> Result<()> {
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        poll_fn(|context| state.poll_idle(context)).await;
        let (refusal, ended) = (state.refusal(), state.ended());
        match state.step {
            Step::Idle(session) => match refusal {
                None => session.commit().await,
                Some(refusal) => {
                    session.rollback(Some(refusal.to_string().into())).await?;
                    Err(refusal)
                }
            },
            Step::Busy { .. } | Step::Ended => Err(ended),
        }
    }
}

/// The failure of a verb whose caller went away, under its own code.
fn abandoned_failure(error: &Error) -> Error {
    let message = format!(
        "the transaction was rolled back: something in it failed after its future had been dropped: {}",
        error.message()
    );
    Error::new(error.code(), message).caused_by(error.duplicate())
}

/// 60038: committing would remove messages that no caller has seen.
fn abandoned_messages() -> Error {
    Error::new(
        Code::RECEIVE_CANCELLED,
        "a RECEIVE of this transaction was cancelled after it had taken messages (or jobs) and before it could hand them \
         over; the transaction was rolled back, so that they are not lost: run it again, or RECEIVE from that queue before \
         COMMIT",
    )
}

impl Perform for Tx {
    fn perform(&self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        let span = verb.span();
        let answer = async move {
            match self.turn(Call::Verb(verb)).await? {
                // What cannot be read, or is too long for a frame, cannot be the next time either.
                Done::Verb(VerbEffect::Receives(_), Err(error)) => {
                    if [Code::STORE_DAMAGED, Code::OUT_OF_RANGE].contains(&error.code()) {
                        self.seen.set();
                    }
                    Err(error)
                }
                Done::Verb(_, outcome) => outcome.inspect(|outcome| self.hands_over(outcome)),
                _ => unreachable!("a verb gives an outcome"),
            }
        };
        Box::pin(answer.instrument(span))
    }
}

impl InStore for Tx {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn may_hold_groups(&self) -> bool {
        self.may_hold_groups.load(Relaxed)
    }

    fn is_transaction(&self) -> bool {
        true
    }
}
