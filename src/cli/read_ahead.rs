//! Lines that a thread reads ahead of the commands that take them: bounded by number and by size.

use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many KiB are read ahead: 1,000 lines of 2 MB were 2.5 GB. A longer line waits until nothing else is ahead.
const ROOM_KIB: u32 = 16 << 10;

/// What is ahead, in the order of the input.
#[derive(Debug)]
pub(super) struct ReadAhead<T> {
    items: Receiver<(T, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// The side of the thread that reads.
pub(super) struct Reading<T> {
    items: Sender<(T, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    runtime: Handle,
}

impl<T: Send + 'static> ReadAhead<T> {
    /// Reads up to so many items ahead, on a thread, because a read that waits for input cannot be dropped.
    pub(super) fn new(most: usize, read: impl FnOnce(&Reading<T>) + Send + 'static) -> Self {
        let (sender, items) = mpsc::channel(most);
        let room = Arc::new(Semaphore::new(ROOM_KIB as usize));
        let reading = Reading { items: sender, room: room.clone(), runtime: Handle::current() };
        std::thread::spawn(move || read(&reading));
        Self { items, room }
    }

    /// Items that are all there.
    pub(super) fn of(all: Vec<T>) -> Self {
        let (sender, items) = mpsc::channel(all.len().max(1));
        let room = Arc::new(Semaphore::new(0));
        for item in all {
            // The channel was made to hold them all, and no room is needed.
            if let Ok(none) = room.clone().try_acquire_many_owned(0) {
                let _ = sender.try_send((item, none));
            }
        }
        Self { items, room }
    }
}

impl<T> ReadAhead<T> {
    /// Waits for the next item; `None` at the end.
    pub(super) async fn recv(&mut self) -> Option<T> {
        self.items.recv().await.map(|(item, _)| item)
    }

    /// The next item if it is there already.
    pub(super) fn try_recv(&mut self) -> Option<T> {
        self.items.try_recv().ok().map(|(item, _)| item)
    }

    /// Whether it is known that nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.items.is_closed() && self.items.is_empty()
    }
}

impl<T> Drop for ReadAhead<T> {
    fn drop(&mut self) {
        // The thread may wait for room.
        self.room.close();
    }
}

impl<T> Reading<T> {
    /// Passes an item of so many bytes on, once there is room; whether it is still wanted.
    pub(super) fn pass_on(&self, item: T, bytes: usize) -> bool {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).saturating_add(1).min(ROOM_KIB);
        self.runtime.block_on(async {
            let Ok(room) = self.room.clone().acquire_many_owned(kib).await else { return false };
            self.items.send((item, room)).await.is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn few_long_lines_are_ahead_and_many_short_ones() {
        let _limit = crate::limit();
        for (bytes, most_ahead) in [(2 << 20, 7), (10, 1000), (1 << 30, 1)] {
            let (passed, mut full) = mpsc::unbounded_channel();
            let mut ahead = ReadAhead::new(1000, move |reading: &Reading<usize>| {
                for number in 0..1500 {
                    if !reading.pass_on(number, bytes) {
                        return;
                    }
                    let _ = passed.send(());
                }
            });
            // The thread has passed on all that there is room for, and takes what one gives back.
            for _ in 0..most_ahead {
                full.recv().await.unwrap();
            }
            assert_eq!(ahead.recv().await, Some(0));
            full.recv().await.unwrap();
            assert_eq!(ahead.items.len(), most_ahead, "{bytes}");
            for number in 1..1500 {
                assert_eq!(ahead.recv().await, Some(number));
            }
            assert_eq!(ahead.recv().await, None);
            assert!(ahead.is_over());
        }
    }

    #[tokio::test]
    async fn a_thread_that_waits_for_room_ends_with_its_reader() {
        let _limit = crate::limit();
        let (ended, end) = tokio::sync::oneshot::channel();
        let ahead = ReadAhead::new(10, move |reading: &Reading<()>| {
            while reading.pass_on((), 64 << 20) {}
            let _ = ended.send(());
        });
        drop(ahead);
        end.await.unwrap();
    }
}
