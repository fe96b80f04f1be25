//! A transaction: a session of the core, and the user's own SQL, which the writer runs between two batches.

use super::SqliteStore;
use super::batch::{Sender, Slot, Slots};
use super::disk_room::{Adds, Promise};
use super::engine::Engine;
use super::group_handover::{HandedOver, Handover};
use super::known_statement::KnownStatement;
use super::limit::Caller;
use super::owner::Peer;
use super::read::Reader;
use super::readers::Readers;
use super::script::{self, Done, Form, Script, SharedScript};
use super::state::{Rehearsal, SqlCommit, State, TxSender};
use super::user_sql::UserWork;
use crate::core::{Opener, ReadRow, Reply, Savepoint, Session, Step, Taken, TakenRow};
use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Verb};
use crate::store::{BoxFuture, Seen, SqlRows, SqlStatement, StoreTx, is_cut_short_by_runtime};
use crate::time::Timestamp;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::oneshot;

/// An open transaction; it holds nothing but its session in the core.
pub(super) struct SqliteTx {
    store: Arc<SqliteStore>,
    /// `None` once it has ended.
    session: Option<Session>,
    /// Made by the first statement.
    script: Option<SharedScript>,
    savepoints: Vec<(String, Savepoint, usize)>,
    handed_over: HandedOver,
    /// The room for what it adds.
    promise: Promise,
    adds: Adds,
    /// Whether a caller has got messages or jobs of it. A unit with an id gives everything at its end, so until then none of it is seen.
    seen: Seen,
}

impl SqliteTx {
    pub(super) fn begin(store: Arc<SqliteStore>, peer: Peer, seen: Seen) -> Result<Self> {
        let since = store.engine.clock.now();
        let opener = Opener { process_id: peer.process_id, user_id: peer.user_id, since };
        let session = store.engine.lock()?.core.begin_transaction_of(opener);
        Ok(Self {
            store,
            session: Some(session),
            script: None,
            savepoints: Vec::new(),
            handed_over: HandedOver::default(),
            promise: Promise::default(),
            adds: Adds::More,
            seen,
        })
    }

    fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().ok_or_else(Error::transaction_ended)
    }

    async fn run(&mut self, verb: Verb) -> Result<Outcome> {
        let _judgements = self.store.engine.checking.judge(std::slice::from_ref(&verb)).await;
        let (turn, before) = self.order(verb)?;
        match turn {
            Next::Reply(reply, handover) => self.finish(reply, handover, before).await,
            Next::Wait(id, receiver) => {
                let engine = self.store.engine.clone();
                let (home, seen) = (&mut self.session, &self.seen);
                let reply = GroupWait { engine, home, before, id, receiver, seen }.wait().await?;
                let handover = self.handover()?;
                self.finish(reply, handover, before).await
            }
        }
    }

    /// Runs a verb in the core; if it meets a locked group, registers the wait.
    fn order(&mut self, verb: Verb) -> Result<(Next, Savepoint)> {
        let engine = &self.store.engine;
        self.promise.join(engine.disk.admit(std::slice::from_ref(&verb), self.adds)?);
        let queue = match &verb {
            Verb::Receive { queue, .. } | Verb::GetConversationGroup { queue } => Some(queue.clone()),
            _ => None,
        };
        let mut state = engine.lock()?;
        let mut session = self.session.take().ok_or_else(Error::transaction_ended)?;
        let now = engine.clock.now();
        state.tick(now, 1);
        let before = state.core.savepoint(&session);
        let step = state.execute(&mut session, verb.clone(), now);
        if let (Some(queue), Ok(_)) = (&queue, &step) {
            state.publish_depth(queue, &engine.board);
        }
        let next = match step {
            Err(refusal) => {
                self.session = Some(session);
                Err(refusal)
            }
            Ok(Step::Done(reply)) => {
                let State { core, handovers, .. } = &mut *state;
                let handover = handovers.wait(core, &session, &mut self.handed_over);
                self.session = Some(session);
                Ok((Next::Reply(reply, handover), before))
            }
            Ok(Step::Blocked(group)) => match state.core.wait(&session, group) {
                Ok(()) => {
                    let (sender, receiver): (TxSender, _) = oneshot::channel();
                    let id = state.parked.next_id();
                    state.parked.tx(group, id, session, verb, sender);
                    Ok((Next::Wait(id, receiver), before))
                }
                Err(deadlock) => {
                    undo(&mut state, session, &self.seen, now);
                    Err(deadlock)
                }
            },
        };
        wake_if_work(engine, state);
        next
    }

    /// What it waits for before it goes on with the groups it holds.
    fn handover(&mut self) -> Result<Option<Handover>> {
        let mut state = self.store.engine.lock()?;
        let State { core, handovers, .. } = &mut *state;
        let session = self.session.as_ref().ok_or_else(Error::transaction_ended)?;
        Ok(handovers.wait(core, session, &mut self.handed_over))
    }

    /// Makes the outcome, reading the rows of a RECEIVE. If the caller stops waiting for it, the verb is undone.
    async fn finish(&mut self, reply: Reply, handover: Option<Handover>, before: Savepoint) -> Result<Outcome> {
        let engine = self.store.engine.clone();
        let mut undo = UndoVerb { engine: &engine, session: &mut self.session, before, is_armed: true };
        let outcome = match handed_over(&engine, handover, &mut self.handed_over).await {
            Err(error) => Err(error),
            Ok(()) => match reply {
                Reply::Outcome(outcome) => Ok(outcome),
                Reply::Rows(taken) if taken.is_empty() => Ok(Outcome::Received(Vec::new())),
                Reply::Rows(taken) => read_taken(&self.store, taken).await,
                Reply::Jobs(taken) if taken.is_empty() => Ok(Outcome::Jobs(Vec::new())),
                Reply::Jobs(taken) => read_jobs(&engine, taken).await,
            },
        };
        undo.is_armed = outcome.is_err();
        match &outcome {
            Ok(Outcome::Received(messages)) if !messages.is_empty() => self.adds = Adds::Answers,
            Ok(Outcome::Jobs(jobs)) if !jobs.is_empty() => self.adds = Adds::Answers,
            _ => {}
        }
        outcome
    }

    /// Has the writer run a statement.
    async fn rehearse(&mut self, form: Form, statement: SqlStatement) -> Result<Done> {
        let of = self.session()?.id();
        let script = self.script.get_or_insert_with(Script::shared).clone();
        let (sender, receiver) = oneshot::channel();
        let caller = Caller::default();
        let _waits = caller.guard();
        let engine = self.store.engine.clone();
        let statement = KnownStatement::from(statement);
        {
            let mut state = engine.lock()?;
            state.push_rehearsal(Rehearsal { of, script, form, statement, caller, sender });
            engine.write_ordered(state);
        }
        let done = receiver.await.unwrap_or_else(|_| Err(engine.why_unanswered()));
        if let Err(conflict) = &done
            && conflict.code() == Code::DEADLOCK
            && let Some(session) = self.session.take()
        {
            let mut state = engine.lock_even_failed();
            state.give_way(session, engine.clock.now());
            wake_if_work(&engine, state);
        }
        done
    }

    fn has_written(&self) -> bool {
        self.script.as_ref().is_some_and(|script| script::lock(script).has_written())
    }

    async fn end(mut self: Box<Self>) -> Result<()> {
        let store = self.store.clone();
        // It takes no room: the units that fill it may wait for this transaction's groups.
        super::answered(&store.engine, self.order_end()?).await.map(drop)
    }

    fn order_end(&mut self) -> Result<oneshot::Receiver<Result<Slots>>> {
        let session = self.session.take().ok_or_else(Error::transaction_ended)?;
        let script = self.script.take().filter(|script| !script::lock(script).steps.is_empty());
        let (sender, receiver) = oneshot::channel();
        let sender = Sender::new(sender, None);
        let engine = &self.store.engine;
        let mut state = engine.lock()?;
        match script {
            None => {
                let now = engine.clock.now();
                state.order_commit(session, Slots::new(), sender, now);
                state.retry_unlocked(now);
            }
            Some(script) => {
                let work = UserWork::Again(script);
                state.push_sql_commit(SqlCommit { session, work, sender, caller: None });
            }
        }
        engine.write_ordered(state);
        Ok(receiver)
    }

    /// Rolls back; `None` if the rollback changed only memory, and then it is complete.
    fn order_rollback(&mut self) -> Result<Option<oneshot::Receiver<Result<Slots>>>> {
        let session = self.session.take().ok_or_else(Error::transaction_ended)?;
        let (sender, receiver) = oneshot::channel();
        let sender = Sender::new(sender, None);
        let engine = &self.store.engine;
        let mut state = engine.lock()?;
        let before = state.effects.changes.len();
        undo(&mut state, session, &self.seen, engine.clock.now());
        if state.effects.changes.len() == before {
            wake_if_work(engine, state);
            return Ok(None);
        }
        state.push_answer(Slots::new(), sender);
        engine.write_ordered(state);
        Ok(Some(receiver))
    }
}

/// Waits until the SQL of the last holders of a transaction's groups is committed.
async fn handed_over(engine: &Engine, handover: Option<Handover>, handed_over: &mut HandedOver) -> Result<()> {
    if let Some(Handover { committed, then }) = handover {
        committed.await.map_err(|_| engine.why_unanswered())?;
        *handed_over = then;
    }
    Ok(())
}

/// What happens next with a verb.
enum Next {
    /// It is done, and goes on after this.
    Reply(Reply, Option<Handover>),
    /// It waits for a group under this name.
    Wait(u64, oneshot::Receiver<(Session, Result<Reply>)>),
}

/// Undoes a session. What no caller has seen is given back uncounted.
fn undo(state: &mut State, session: Session, seen: &Seen, now: Timestamp) {
    if !seen.is_set() {
        state.give_way(session, now);
    } else if seen.is_lost() {
        state.order_loss(session, now);
    } else {
        state.order_rollback(session, now);
    }
}

/// Wakes the writer if a tick or a rollback has left it work.
fn wake_if_work(engine: &Engine, state: std::sync::MutexGuard<'_, State>) {
    if state.has_work(engine.clock.now()) {
        engine.write_ordered(state);
    }
}

/// Reads rows that a RECEIVE took: at once if they are committed, else when the batch that writes them is.
async fn read_taken(store: &SqliteStore, taken: Vec<Taken>) -> Result<Outcome> {
    let engine = &store.engine;
    let below = engine.committed_below.load(Relaxed);
    if taken.iter().all(|taken| taken.queuing_order < below) {
        let kept = engine.recent_rows(&taken);
        let rows = if kept.iter().all(Option::is_some) {
            Some(kept.into_iter().flatten().collect())
        } else {
            let read =
                |readers: &Readers| readers.lend_if_possible(|reader| read_missing(&reader.connection, &taken, kept));
            engine.readers.as_ref().and_then(read).transpose()?.flatten()
        };
        if let Some(rows) = rows {
            let catalog = engine.lock()?.core.catalog().clone();
            return Slot::Rows { taken, rows, catalog }.into_outcome();
        }
    }
    let receiver = order_read(engine, taken)?;
    let slots = super::answered(engine, receiver).await?;
    slots.into_iter().next().map_or(Ok(Outcome::Received(Vec::new())), Slot::into_outcome)
}

/// The rows, read where they are not kept; `None` if one is not there yet: a redriven message has its old number, and its row
/// comes with the batch that redrives it.
fn read_missing(connection: &Connection, taken: &[Taken], kept: Vec<Option<ReadRow>>) -> Result<Option<Vec<ReadRow>>> {
    let mut reader = Reader::new(connection);
    let read = |(taken, kept): (&Taken, Option<ReadRow>)| match kept {
        Some(row) => Ok(row),
        None => reader.message(taken.queuing_order),
    };
    let rows: rusqlite::Result<_> = taken.iter().zip(kept).map(read).collect();
    match rows {
        Ok(rows) => Ok(Some(rows)),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
        Err(error) => Err(super::failure::storage("reading a message that memory knows of", error)),
    }
}

fn order_read(engine: &Engine, taken: Vec<Taken>) -> Result<oneshot::Receiver<Result<Slots>>> {
    let (sender, receiver) = oneshot::channel();
    let sender = Sender::new(sender, None);
    let mut state = engine.lock()?;
    let slot = state.slot(Reply::Rows(taken));
    state.push_read(Slots::from_iter([slot]), sender);
    engine.write_ordered(state);
    Ok(receiver)
}

/// The rows of taken jobs, read when their taking is written: it counts an attempt, also if the process dies now.
async fn read_jobs(engine: &Engine, taken: Vec<TakenRow>) -> Result<Outcome> {
    let (sender, receiver) = oneshot::channel();
    let sender = Sender::new(sender, None);
    {
        let mut state = engine.lock()?;
        let slot = state.slot(Reply::Jobs(taken));
        state.push_read(Slots::from_iter([slot]), sender);
        engine.write_ordered(state);
    }
    let mut outcomes = super::batch::outcomes(super::answered(engine, receiver).await?)?;
    Ok(outcomes.pop().unwrap_or(Outcome::Jobs(Vec::new())))
}

/// Undoes a verb if its caller stops waiting for it, or if the rows that it received cannot be read.
struct UndoVerb<'a> {
    engine: &'a Engine,
    session: &'a mut Option<Session>,
    before: Savepoint,
    is_armed: bool,
}

impl Drop for UndoVerb<'_> {
    fn drop(&mut self) {
        if self.is_armed
            && let Some(session) = self.session.as_mut()
        {
            let mut state = self.engine.lock_even_failed();
            state.roll_back_to(session, self.before);
            wake_if_work(self.engine, state);
        }
    }
}

/// A verb that waits for a group. The session comes back to the transaction however the wait ends.
struct GroupWait<'a> {
    engine: Arc<Engine>,
    home: &'a mut Option<Session>,
    before: Savepoint,
    id: u64,
    receiver: oneshot::Receiver<(Session, Result<Reply>)>,
    seen: &'a Seen,
}

impl GroupWait<'_> {
    async fn wait(&mut self) -> Result<Reply> {
        match (&mut self.receiver).await {
            Ok((session, reply)) => self.arrive(session, reply),
            Err(_) => Err(self.engine.why_unanswered()),
        }
    }

    fn arrive(&mut self, session: Session, reply: Result<Reply>) -> Result<Reply> {
        match &reply {
            Err(lost) if lost.code() == Code::DEADLOCK => {
                let mut state = self.engine.lock_even_failed();
                undo(&mut state, session, self.seen, self.engine.clock.now());
                wake_if_work(&self.engine, state);
            }
            _ => *self.home = Some(session),
        }
        reply
    }
}

impl Drop for GroupWait<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        let mut state = self.engine.lock_even_failed();
        let withdrawn = state.parked.withdraw(self.id).inspect(|session| state.core.stop_waiting(session));
        drop(state);
        match withdrawn {
            Some(session) => *self.home = Some(session),
            // It has been tried, and its caller has not seen the result: undo it.
            None => {
                if let Ok((session, reply)) = self.receiver.try_recv() {
                    let _ = self.arrive(session, reply);
                    if let Some(session) = self.home.as_mut() {
                        let mut state = self.engine.lock_even_failed();
                        state.roll_back_to(session, self.before);
                    }
                }
            }
        }
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if let Some(mut session) = self.session.take() {
            if self.seen.is_set() && is_cut_short_by_runtime() {
                self.seen.lose();
            }
            session.set_reason(self.seen.reason());
            let engine = &self.store.engine;
            let mut state = engine.lock_even_failed();
            // After a failure the core in memory is not the truth any more.
            if state.failed.is_none() {
                undo(&mut state, session, &self.seen, engine.clock.now());
                wake_if_work(engine, state);
            }
        }
    }
}

impl StoreTx for SqliteTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self.run(verb))
    }

    fn sql(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            self.session()?;
            Ok(self.rehearse(Form::Count, sql).await?.changed)
        })
    }

    fn query(&mut self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            self.session()?;
            // A verb that was refused, or whose caller left it, may have locked groups.
            let handover = self.handover()?;
            handed_over(&self.store.engine, handover, &mut self.handed_over).await?;
            if !self.has_written()
                && let Some(rows) = self.store.try_query(&sql).await?
            {
                return Ok(rows);
            }
            Ok(self.rehearse(Form::Rows, sql).await?.rows)
        })
    }

    fn claim(&mut self, unit_id: uuid::Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let session = self.session.as_mut().ok_or_else(Error::transaction_ended)?;
            let is_first = self.store.engine.lock()?.core.claim(session, unit_id)?;
            if !is_first {
                super::written(&self.store.engine).await?;
            }
            Ok(is_first)
        })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let session = self.session.as_ref().ok_or_else(Error::transaction_ended)?;
            let place = self.store.engine.lock()?.core.savepoint(session);
            let statements = self.script.as_ref().map_or(0, |script| script::lock(script).steps.len());
            // No rollback finds the one before of the same name any more.
            self.savepoints.pop_if(|(known, ..)| known == name);
            self.savepoints.push((name.to_owned(), place, statements));
            Ok(())
        })
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let session = self.session.as_mut().ok_or_else(Error::transaction_ended)?;
            let found = self.savepoints.iter().rposition(|(known, ..)| known == name).ok_or_else(|| {
                Error::new(
                    Code::SAVEPOINT_NOT_FOUND,
                    format!("this transaction has no savepoint '{name}', or it was undone with an earlier one"),
                )
            })?;
            let (_, place, statements) = self.savepoints[found];
            let engine = &self.store.engine;
            let mut state = engine.lock()?;
            state.roll_back_to(session, place);
            wake_if_work(engine, state);
            self.savepoints.truncate(found + 1);
            if let Some(script) = &self.script {
                script::lock(script).cut(statements);
            }
            Ok(())
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end())
    }

    fn rollback(mut self: Box<Self>, reason: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if let Some(session) = &mut self.session {
                session.set_reason(reason);
            }
            let done = match self.order_rollback() {
                Ok(None) => Ok(()),
                Ok(Some(receiver)) => super::answered(&self.store.engine, receiver).await.map(drop),
                Err(error) => Err(error),
            };
            // Of a store that is opened again nothing is left of it.
            if self.store.is_full() { Ok(()) } else { done }
        })
    }
}
