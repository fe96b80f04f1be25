//! Limits the full checks of bodies that run at once: queries and closes use the threads for blocking work too.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// Bytes of a body, or of the schemas of a definition, whose check is short: at the limit of its steps half a second, and some seconds with
/// the rows and patterns that cost none.
const SHORT: usize = 64 << 10;

/// Room for as many long checks as the machine has processors, and for at least two, and for as many short ones. A body of
/// 64 MiB may be checked for minutes, and a body of 10 KB waited behind eight of them.
#[derive(Debug, Clone)]
pub(crate) struct CheckRoom {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl Default for CheckRoom {
    fn default() -> Self {
        let most = std::thread::available_parallelism().map_or(2, |most| most.get().max(2));
        Self { short: Arc::new(Semaphore::new(most)), long: Arc::new(Semaphore::new(most)) }
    }
}

impl CheckRoom {
    /// Runs a check of so many bytes on a thread for blocking work when there is room; the caller keeps its body until then.
    ///
    /// # Errors
    /// The runtime is shutting down, or the check panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let room = if bytes <= SHORT { &self.short } else { &self.long };
        let with = |room| {
            let check = move || {
                // Held to the end of the check, even if its caller has left.
                let _room: OwnedSemaphorePermit = room;
                check()
            };
            tokio::task::spawn_blocking(check)
        };
        if let Ok(room) = room.clone().try_acquire_owned() {
            return with(room).await;
        }
        // In a task: its turn may come while its caller keeps the future and does not poll it, and no other check would have the room.
        let room = room.clone();
        let mut waiting = JoinSet::new();
        waiting.spawn(async move {
            // The semaphore is never closed.
            let room = room.acquire_owned().await.expect("the room is open");
            with(room).await
        });
        waiting.join_next().await.expect("it was spawned").flatten()
    }

    /// Leaves no room for long checks until it is dropped.
    #[cfg(test)]
    pub(crate) fn without_room_for_long_ones(&self) -> impl Drop + use<> {
        let most = u32::try_from(self.long.available_permits()).unwrap_or(u32::MAX);
        self.long.clone().try_acquire_many_owned(most).expect("all are free")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::{Context, Waker};

    /// Polls it once.
    fn is_waiting(check: Pin<&mut impl Future>) -> bool {
        check.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn few_full_checks_run_at_once() {
        let _limit = crate::testing::limit();
        let room = CheckRoom::default();
        let most = room.long.available_permits();
        assert!(most >= 2);
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..most * 8 {
            let (room, started, released) = (room.clone(), started.clone(), released.clone());
            callers.spawn(async move {
                let check = move || {
                    started.send(()).unwrap();
                    released.lock().unwrap().recv().unwrap();
                };
                room.run(SHORT + 1, check).await.unwrap();
            });
        }
        for _ in 0..most {
            starts.recv().await.unwrap();
        }
        // Waiting callers do not delay other blocking work.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(starts.try_recv().is_err(), "no more than {most} at once");
        // Nor short checks.
        for _ in 0..most * 2 {
            room.run(SHORT, || ()).await.unwrap();
        }
        for _ in 0..most * 8 {
            release.send(()).unwrap();
        }
        while let Some(done) = callers.join_next().await {
            done.unwrap();
        }
    }

    #[tokio::test]
    async fn a_check_whose_caller_does_not_poll_it_keeps_no_room() {
        let _limit = crate::testing::limit();
        let room = CheckRoom::default();
        let most = room.long.available_permits();
        let none = room.without_room_for_long_ones();
        let mut kept: Vec<_> = (0..most).map(|_| Box::pin(room.run(SHORT + 1, || ()))).collect();
        for check in &mut kept {
            assert!(is_waiting(check.as_mut()), "there is no room");
        }
        drop(none);
        room.run(SHORT + 1, || ()).await.unwrap();
        for check in kept {
            check.await.unwrap();
        }
        assert_eq!(room.long.available_permits(), most);
    }

    #[tokio::test]
    async fn a_check_that_is_given_up_before_its_turn_is_not_made() {
        let _limit = crate::testing::limit();
        let room = CheckRoom::default();
        let most = u32::try_from(room.long.available_permits()).unwrap();
        let none = room.without_room_for_long_ones();
        let is_made = Arc::new(AtomicBool::new(false));
        let made = is_made.clone();
        let mut check = Box::pin(room.run(SHORT + 1, move || made.store(true, Relaxed)));
        assert!(is_waiting(check.as_mut()), "there is no room");
        tokio::task::yield_now().await;
        drop(check);
        drop(none);
        // Behind the check, if that still waits.
        let _whole_room = room.long.acquire_many(most).await.unwrap();
        assert!(!is_made.load(Relaxed), "its caller has left");
    }
}
