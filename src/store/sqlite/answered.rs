//! The answers to units, from when they are sent to when their callers look at them.

use super::batch::Slots;
use super::engine::Engine;
use crate::error::{Error, Result};
use crate::protocol::work::{Hold, WorkVerb};
use crate::protocol::{Unit, Verb};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::sync::oneshot;

type Receiver = oneshot::Receiver<Result<Slots>>;

/// `None` once a close has taken the answer.
type Kept = Arc<Mutex<Option<Receiver>>>;

/// The answer to a unit. Its caller may be dropped after the answer arrives and before it is polled.
pub(super) struct Answered<'e> {
    engine: &'e Engine,
    receiver: Waits,
}

enum Waits {
    Alone(Receiver),
    /// A close may take the answer.
    Kept(Kept),
}

/// The answers with leased jobs that no caller has looked at yet. A close takes these and gives the jobs back: a caller that
/// was dropped later, or whose task had been aborted and not been dropped yet, kept its job to the end of the lease.
#[derive(Default)]
pub(super) struct UnseenAnswers(Mutex<HashMap<usize, Kept>>);

impl UnseenAnswers {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes them from their callers, which get the error of a closed store.
    pub(super) fn take(&self) -> Vec<Slots> {
        let kept: Vec<Kept> = self.all().values().cloned().collect();
        let unseen = |kept: &Kept| {
            let mut kept = lock(kept);
            // One that is still to come wakes its caller as ever.
            let answer = kept.as_mut()?.try_recv().ok()?;
            *kept = None;
            answer.ok()
        };
        kept.iter().filter_map(unseen).collect()
    }
}

impl<'e> Answered<'e> {
    pub(super) fn new(engine: &'e Engine, receiver: Receiver, takes_leased_jobs: bool) -> Self {
        if !takes_leased_jobs {
            return Self { engine, receiver: Waits::Alone(receiver) };
        }
        let kept = Arc::new(Mutex::new(Some(receiver)));
        engine.unseen.all().insert(place(&kept), kept.clone());
        Self { engine, receiver: Waits::Kept(kept) }
    }

    pub(super) async fn wait(mut self) -> Result<Slots> {
        let answer = poll_fn(|context| match &mut self.receiver {
            Waits::Alone(receiver) => Pin::new(receiver).poll(context),
            Waits::Kept(kept) => match &mut *lock(kept) {
                Some(receiver) => Pin::new(receiver).poll(context),
                None => Poll::Ready(Ok(Err(Error::closed()))),
            },
        });
        answer.await.unwrap_or_else(|_| Err(self.engine.why_unanswered()))
    }
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        let engine = self.engine;
        let give_back = |slots: Slots| engine.give_back(&slots);
        match &mut self.receiver {
            Waits::Alone(receiver) => {
                closed(receiver).map(give_back);
            }
            Waits::Kept(kept) => {
                // A close that finds the entry waits here until the jobs are ordered, and writes them.
                let mut receiver = lock(kept);
                receiver.as_mut().and_then(closed).map(give_back);
                drop(receiver);
                engine.unseen.all().remove(&place(kept));
            }
        }
    }
}

/// Whether a unit only takes jobs by leases: what it did is undone when the jobs go back.
pub(super) fn takes_leased_jobs(unit: &Unit) -> bool {
    let [Verb::Work(WorkVerb::Take(take))] = &unit[..] else { return false };
    matches!(take.hold, Hold::Lease(_))
}

/// Closes it; the answer that its caller has not looked at.
fn closed(receiver: &mut Receiver) -> Option<Slots> {
    receiver.close();
    receiver.try_recv().ok()?.ok()
}

fn lock(kept: &Kept) -> MutexGuard<'_, Option<Receiver>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(kept: &Kept) -> usize {
    Arc::as_ptr(kept).addr()
}
