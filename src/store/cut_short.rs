//! Work with transactions, and what becomes of them if it is cut short: by an abort, or by the end of the runtime.

use super::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Does work to its end. If it is dropped before, its open transactions are lost with the others of its process, and count as one rollback
/// together: five readers of a program whose `main` returned were five, and turned their queue off for all processes.
pub(crate) struct CutShort<'w, T, L: FnMut()> {
    /// Marks the transactions as lost.
    lose: L,
    work: BoxFuture<'w, T>,
    /// It waits: a drop is not its own doing then. Work that panics is dropped in the middle of a step.
    waits: bool,
}

impl<'w, T, L: FnMut() + Unpin> CutShort<'w, T, L> {
    pub(crate) fn new(lose: L, work: BoxFuture<'w, T>) -> Self {
        Self { lose, work, waits: true }
    }
}

impl<T, L: FnMut() + Unpin> Future for CutShort<'_, T, L> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<T> {
        self.waits = false;
        let step = self.work.as_mut().poll(task);
        self.waits = step.is_pending();
        step
    }
}

impl<T, L: FnMut()> Drop for CutShort<'_, T, L> {
    /// Before its work, which holds the transactions.
    fn drop(&mut self) {
        if self.waits {
            (self.lose)();
        }
    }
}

/// Whether a task is dropped because its runtime ends, which takes no other task any more.
pub(crate) fn is_cut_short_by_runtime() -> bool {
    let Ok(runtime) = Handle::try_current() else { return false };
    let task = runtime.spawn(std::future::pending::<()>());
    let is_refused = task.is_finished();
    task.abort();
    is_refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;

    #[tokio::test]
    async fn only_work_that_waits_is_cut_short() {
        let _limit = crate::testing::limit();
        let lost = Arc::new(AtomicUsize::new(0));
        let work = |work| {
            let lost = lost.clone();
            CutShort::new(move || _ = lost.fetch_add(1, SeqCst), work)
        };
        work(Box::pin(async {})).await;
        let panics = tokio::spawn(work(Box::pin(async { panic!("ordered") })));
        assert!(panics.await.unwrap_err().is_panic());
        assert_eq!(lost.load(SeqCst), 0);
        let waits = tokio::spawn(work(Box::pin(std::future::pending())));
        tokio::task::yield_now().await;
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        drop(work(Box::pin(async {})));
        assert_eq!(lost.load(SeqCst), 2);
    }

    /// Says how it was dropped.
    struct Says(mpsc::Sender<bool>);

    impl Drop for Says {
        fn drop(&mut self) {
            self.0.send(is_cut_short_by_runtime()).unwrap();
        }
    }

    #[test]
    fn a_drop_by_the_end_of_a_runtime_differs_from_others() {
        let _limit = crate::testing::limit();
        let runtimes: [fn() -> tokio::runtime::Builder; 2] =
            [tokio::runtime::Builder::new_current_thread, tokio::runtime::Builder::new_multi_thread];
        for runtime in runtimes {
            let runtime = runtime().build().unwrap();
            let (says, said) = mpsc::channel();
            let holding = |says: &mpsc::Sender<bool>| {
                let says = Says(says.clone());
                async move {
                    let _says = says;
                    std::future::pending::<()>().await;
                }
            };
            runtime.block_on(async {
                drop(holding(&says));
                let aborted = tokio::spawn(holding(&says));
                tokio::task::yield_now().await;
                aborted.abort();
                let _ = aborted.await;
                tokio::spawn(holding(&says));
                tokio::task::yield_now().await;
            });
            drop(runtime);
            drop(Says(says));
            assert_eq!(said.iter().collect::<Vec<_>>(), [false, false, true, false], "the last one has no runtime");
        }
    }
}
