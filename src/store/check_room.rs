//! Limits the full checks of bodies that run at once: queries and closes use the threads for blocking work too.

use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Room for as many checks as the machine has processors, and for at least two: with room for one, a large body would
/// delay all others.
#[derive(Debug, Clone)]
pub(crate) struct CheckRoom(Arc<Semaphore>);

impl Default for CheckRoom {
    fn default() -> Self {
        let most = std::thread::available_parallelism().map_or(2, |most| most.get().max(2));
        Self(Arc::new(Semaphore::new(most)))
    }
}

impl CheckRoom {
    /// Runs a check on a thread for blocking work when there is room; the caller keeps its body until then.
    ///
    /// # Errors
    /// The runtime is shutting down, or the check panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore is never closed.
        let room = self.0.clone().acquire_owned().await.ok();
        let check = move || {
            // Held to the end of the check, even if its caller has left.
            let _room = room;
            check()
        };
        tokio::task::spawn_blocking(check).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn few_full_checks_run_at_once() {
        let _limit = crate::testing::limit();
        let room = CheckRoom::default();
        let most = room.0.available_permits();
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
                room.run(check).await.unwrap();
            });
        }
        for _ in 0..most {
            starts.recv().await.unwrap();
        }
        // Waiting callers do not delay other blocking work.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(starts.try_recv().is_err(), "no more than {most} at once");
        for _ in 0..most * 8 {
            release.send(()).unwrap();
        }
        while let Some(done) = callers.join_next().await {
            done.unwrap();
        }
    }
}
