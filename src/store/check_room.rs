//! Limits the full checks of bodies that run at once: queries and closes use the threads for blocking work too.

use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

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
        // The semaphore is never closed.
        let room = room.clone().acquire_owned().await.ok();
        let check = move || {
            // Held to the end of the check, even if its caller has left.
            let _room = room;
            check()
        };
        tokio::task::spawn_blocking(check).await
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
    use std::sync::Mutex;

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
}
