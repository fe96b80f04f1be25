//! The arrivals of a stream that are not durably committed yet: how many there may be, and what became of them.

use crate::error::{Code, Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Shared by a stream, its arrivals and their commits.
#[derive(Clone, Default)]
pub(super) struct Window(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    most: Option<usize>,
    /// Arrivals that were handed out and are neither committed nor rolled back.
    open: usize,
    /// Those of them whose commit is under way.
    confirming: usize,
    /// Commits that failed, for the stream's next item.
    failures: VecDeque<Error>,
    waker: Option<Waker>,
}

impl Window {
    pub(super) fn bound(&self, most: usize) {
        self.lock().most = Some(most.max(1));
    }

    /// The failure of an earlier commit; or whether there is a place for an arrival. The stream is woken when one of
    /// the two changes.
    pub(super) fn poll_place(&self, context: &Context<'_>) -> Poll<Result<()>> {
        let mut state = self.lock();
        if let Some(failure) = state.failures.pop_front() {
            return Poll::Ready(Err(failure));
        }
        state.waker = Some(context.waker().clone());
        match state.most {
            Some(most) if state.open >= most => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Ready when no commit is under way.
    pub(super) fn poll_settled(&self, context: &Context<'_>) -> Poll<Result<()>> {
        let mut state = self.lock();
        if state.confirming > 0 {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.failures.pop_front().map_or(Ok(()), Err))
    }

    pub(super) fn enter(&self) -> WindowPlace {
        self.lock().open += 1;
        WindowPlace { window: self.clone(), is_confirming: false }
    }

    /// Every change under this lock is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one arrival, until it is dropped.
pub(super) struct WindowPlace {
    window: Window,
    is_confirming: bool,
}

impl WindowPlace {
    /// From now on [`Window::poll_settled`] waits for this one.
    pub(super) fn confirm(&mut self) {
        self.is_confirming = true;
        self.window.lock().confirming += 1;
    }

    pub(super) fn end(mut self, result: Result<()>) {
        self.is_confirming = false;
        let mut state = self.window.lock();
        state.confirming -= 1;
        state.failures.extend(result.err());
    }
}

impl Drop for WindowPlace {
    fn drop(&mut self) {
        let mut state = self.window.lock();
        state.open -= 1;
        if self.is_confirming {
            // The runtime dropped the task that commits, and what it has sent of the commit may happen.
            state.confirming -= 1;
            let why = "the runtime of the commit has ended, so the commit may have happened or not";
            state.failures.push_back(Error::new(Code::COMMIT_UNKNOWN, why));
        }
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
    }
}

impl std::fmt::Debug for WindowPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WindowPlace").field("is_confirming", &self.is_confirming).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_whose_runtime_ends_may_have_happened() {
        let window = Window::default();
        let mut place = window.enter();
        place.confirm();
        let context = &Context::from_waker(Waker::noop());
        assert!(window.poll_settled(context).is_pending());
        drop(place);
        let Poll::Ready(Err(error)) = window.poll_settled(context) else { panic!("it is reported") };
        assert_eq!(error.code(), Code::COMMIT_UNKNOWN);
        assert!(window.poll_settled(context).is_ready());
    }
}
