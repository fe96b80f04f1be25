//! The calls of a transaction, one after the other, however many tasks make them at once.
//!
//! The session of the store does one call at a time. Each poll of any of the calls drives the one under way, so that a call whose
//! future is kept and not polled, as in a loop over `tokio::select!`, stops no other one. Its result waits for it.

use super::{Done, Session, State, Step, Tx, VerbEffect, is_deadlock};
use crate::error::Result;
use crate::protocol::Verb;
use crate::store::SqlStatement;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use uuid::Uuid;

/// What a call asks of the session.
pub(super) enum Call {
    Verb(Verb),
    Claim(Uuid),
    Savepoint(String),
    RollbackTo(String),
    Sql(SqlStatement),
    Query(SqlStatement),
}

impl Call {
    /// Does it, whether or not its caller still waits.
    pub(super) async fn run(self, mut session: Session) -> (Session, Done) {
        let done = match self {
            Self::Verb(verb) => {
                let effect = VerbEffect::of(&verb);
                Done::Verb(effect, session.execute(verb).await)
            }
            Self::Claim(unit_id) => Done::Claimed(session.claim(unit_id).await),
            Self::Savepoint(name) => {
                let done = session.savepoint(&name).await;
                Done::Savepoint(name, done)
            }
            Self::RollbackTo(name) => {
                let done = session.rollback_to(&name).await;
                Done::RolledBackTo(name, done)
            }
            Self::Sql(statement) => Done::Changed(session.sql(statement).await),
            Self::Query(statement) => Done::Rows(session.query(statement).await),
        };
        (session, done)
    }
}

/// The calls that have begun to wait, and the results that their callers have not got yet, by their turns.
#[derive(Default)]
pub(super) struct Turns {
    waiting: BTreeMap<u64, Call>,
    results: BTreeMap<u64, Waited>,
    /// Those that got their results by polls of others, and are to be woken.
    given: Vec<u64>,
    last: u64,
}

struct Waited {
    done: Done,
    /// The record of the transaction has it too, for the case that its caller goes away.
    is_recorded: bool,
}

impl Turns {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl State {
    /// Drives the transaction until this call has its result.
    fn result_of(&mut self, turn: u64, context: &mut Context<'_>) -> Poll<Result<Done>> {
        loop {
            if let Some(Waited { done, is_recorded }) = self.turns.results.remove(&turn) {
                if is_recorded {
                    self.record_of_all(|record| record.forget_result_of(turn));
                }
                if done.error().is_some_and(is_deadlock)
                    && let Some(deadlock) = &mut self.deadlock
                {
                    deadlock.is_reported = true;
                }
                return Poll::Ready(Ok(done));
            }
            if self.is_busy() {
                ready!(self.poll_step(Some(turn), context));
                continue;
            }
            let Step::Idle(session) = std::mem::replace(&mut self.step, Step::Ended) else {
                // Each call hears of it when it is polled: an error that is given to a call that is kept may reach no caller.
                self.turns.waiting.remove(&turn);
                return Poll::Ready(Err(self.ended()));
            };
            let (next, call) = self.turns.waiting.pop_first().expect("this call waits");
            match self.abandoned_for(&call) {
                Some((place, done)) => {
                    self.step = Step::Idle(session);
                    self.give(next, done, Some(turn), place);
                }
                None => self.step = Step::Busy { running: Box::pin(call.run(session)), owner: Some(next) },
            }
        }
    }

    fn is_busy(&self) -> bool {
        matches!(self.step, Step::Busy { .. })
    }

    /// Drives the step under way, if there is one, to its end.
    pub(super) fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.is_busy() {
            if self.poll_step(None, context).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Drives the step under way once. `polling` is the call that drives it.
    fn poll_step(&mut self, polling: Option<u64>, context: &mut Context<'_>) -> Poll<()> {
        // It is not there meanwhile: after a panic the transaction has ended.
        let Step::Busy { mut running, owner } = std::mem::replace(&mut self.step, Step::Ended) else {
            return Poll::Ready(());
        };
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Err(panic) => {
                // The others would wait for ever.
                context.waker().wake_by_ref();
                resume_unwind(panic)
            }
            Ok(Poll::Pending) => {
                self.step = Step::Busy { running, owner };
                Poll::Pending
            }
            Ok(Poll::Ready((session, done))) => {
                self.note(session, &done);
                match owner {
                    Some(owner) => self.give(owner, done, polling, self.record.abandoned.len()),
                    None => self.abandon(done),
                }
                Poll::Ready(())
            }
        }
    }

    /// Keeps a result until its caller is polled, which may be now. A caller that goes away instead leaves it to the transaction, as it
    /// was at this time: a savepoint that is set before that has it too. `place` is its place among the abandoned results.
    fn give(&mut self, owner: u64, done: Done, polling: Option<u64>, place: usize) {
        let is_recorded =
            polling != Some(owner) && self.deadlock.is_none() && self.record.keep_result_of(owner, &done, place);
        self.turns.results.insert(owner, Waited { done, is_recorded });
        if polling != Some(owner) {
            self.turns.given.push(owner);
        }
    }

    /// A caller goes away before it has its result.
    fn leave(&mut self, turn: u64) {
        self.turns.waiting.remove(&turn);
        if let Step::Busy { owner, .. } = &mut self.step
            && *owner == Some(turn)
        {
            *owner = None;
        }
        if let Some(Waited { done, is_recorded }) = self.turns.results.remove(&turn) {
            if is_recorded {
                self.record_of_all(|record| record.abandon_result_of(turn));
            } else {
                self.abandon(done);
            }
        }
    }
}

/// Wakes the calls that wait: which of them is polled next is not known.
///
/// A waker is dropped after all locks: it may own other calls, which leave then.
#[derive(Default)]
pub(super) struct Wakers(Mutex<BTreeMap<u64, Waker>>);

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, turn: u64, waker: &Waker) {
        let mut all = self.lock();
        if all.get(&turn).is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        let before = all.insert(turn, waker.clone());
        drop(all);
        drop(before);
    }

    fn leave(&self, turn: u64) {
        let left = self.lock().remove(&turn);
        drop(left);
    }

    fn wake_these(&self, turns: &[u64]) {
        for turn in turns {
            let waker = self.lock().get(turn).cloned();
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let all: SmallVec<[Waker; 2]> = self.lock().values().cloned().collect();
        all.into_iter().for_each(Waker::wake);
    }
}

impl Tx {
    /// Does a call when those before it are done.
    pub(super) fn turn(&self, call: Call) -> Turn<'_> {
        Turn { tx: self, place: Place::New(call) }
    }

    /// Waits until no call is under way.
    pub(super) async fn idle(&self) {
        Turn { tx: self, place: Place::OfNoCall }.until_idle().await;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of a call. Dropped before the call has begun, it does not happen; later it runs on.
pub(super) struct Turn<'a> {
    tx: &'a Tx,
    place: Place,
}

enum Place {
    New(Call),
    Waiting(u64),
    /// It only waits for the others.
    OfNoCall,
    Done,
}

impl Turn<'_> {
    async fn until_idle(mut self) {
        std::future::poll_fn(|context| {
            let turn = match self.place {
                Place::Waiting(turn) => turn,
                _ => self.tx.state().turns.next(),
            };
            self.place = Place::Waiting(turn);
            self.tx.wakers.enter(turn, context.waker());
            self.tx.state().poll_idle(&mut Context::from_waker(&self.tx.waker))
        })
        .await;
        // One of the others may have its result now, or may begin.
        self.tx.waker.wake_by_ref();
    }
}

impl Future for Turn<'_> {
    type Output = Result<Done>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let tx = self.tx;
        if let Place::Waiting(turn) = self.place {
            tx.wakers.enter(turn, context.waker());
        }
        let mut state = tx.state();
        let turn = match std::mem::replace(&mut self.place, Place::Done) {
            Place::New(call) => {
                let turn = state.turns.next();
                state.turns.waiting.insert(turn, call);
                tx.wakers.enter(turn, context.waker());
                turn
            }
            Place::Waiting(turn) => turn,
            Place::OfNoCall | Place::Done => unreachable!("a call is polled until it is done"),
        };
        self.place = Place::Waiting(turn);
        let result = state.result_of(turn, &mut Context::from_waker(&tx.waker));
        let given = std::mem::take(&mut state.turns.given);
        let is_busy = state.is_busy();
        drop(state);
        if result.is_ready() {
            self.place = Place::Done;
            tx.wakers.leave(turn);
        }
        // The step under way wakes the others; without one, they begin, or have waited for its end.
        if !is_busy {
            tx.waker.wake_by_ref();
        } else {
            tx.wakers.wake_these(&given);
        }
        result
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Place::Waiting(turn) = self.place {
            self.tx.state().leave(turn);
            self.tx.wakers.leave(turn);
        }
    }
}
