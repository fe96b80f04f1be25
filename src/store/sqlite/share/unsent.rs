//! The owner's answers and reports on their way to a guest.

use super::spin::Turns;
use interprocess::local_socket::tokio::Stream;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

/// The room for frames that is kept between two writes.
const WRITE_BYTES: usize = 64 * 1024;
/// Frames written together.
const MOST_TOGETHER: usize = 1024;
/// How long a guest that takes a few bytes now and then may hold up the end of its connection.
pub(super) const LONGEST_END: Duration = Duration::from_secs(60);

/// Answers that are not written yet, in bytes.
#[derive(Default)]
pub(super) struct Unsent {
    bytes: AtomicUsize,
    written: Notify,
    /// How often an answer has come, or the guest has taken bytes.
    moves: AtomicU64,
}

impl Unsent {
    /// Adds an answer.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.moves.fetch_add(1, Relaxed);
    }

    /// Returns once there are fewer bytes.
    pub(super) async fn below(&self, bytes: usize) {
        loop {
            let written = self.written.notified();
            if self.bytes.load(Relaxed) < bytes {
                return;
            }
            written.await;
        }
    }

    fn note_written(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.written.notify_waiters();
    }

    /// Waits for the end of this work as long as answers come and the guest takes them: gives up once neither has happened for that
    /// long, and at the latest then.
    pub(super) async fn while_it_shrinks(&self, still: Duration, longest: Instant, work: impl Future) {
        let mut work = pin!(work);
        loop {
            let (seen, until) = (self.moves.load(Relaxed), Instant::now() + still);
            let has_ended = timeout_at(until.min(longest), &mut work).await.is_ok();
            if has_ended || self.moves.load(Relaxed) == seen || Instant::now() >= longest {
                return;
            }
        }
    }
}

/// What is noted of the answers that were written to a guest.
pub(super) struct Written {
    unsent: Arc<Unsent>,
    turns: Arc<Turns>,
    connection: u64,
}

impl Written {
    pub(super) fn new(unsent: Arc<Unsent>, turns: Arc<Turns>, connection: u64) -> Self {
        Self { unsent, turns, connection }
    }

    fn note(&self, bytes: usize) {
        self.unsent.note_written(bytes);
        if bytes > 0 {
            self.turns.answered(self.connection);
        }
    }

    /// Writes bytes, and notes each part of them that the guest takes.
    async fn write_all(&self, stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = (&mut &*stream).write(bytes).await?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unsent.moves.fetch_add(1, Relaxed);
            bytes = &bytes[taken..];
        }
        Ok(())
    }
}

/// Writes frames; those that wait go together. Answers come before reports.
pub(super) async fn write(
    stream: Arc<Stream>,
    mut answers: mpsc::UnboundedReceiver<Vec<u8>>,
    mut reports: mpsc::Receiver<Vec<u8>>,
    written: Written,
) {
    let (mut frames, mut bytes) = (Vec::new(), Vec::new());
    loop {
        let mut answered = 0;
        tokio::select! {
            biased;
            count = answers.recv_many(&mut frames, MOST_TOGETHER) => {
                if count == 0 {
                    return;
                }
                answered = frames.iter().map(Vec::len).sum();
            }
            Some(report) = reports.recv() => frames.push(report),
        }
        for frame in frames.drain(..) {
            if frame.len() <= WRITE_BYTES {
                bytes.extend_from_slice(&frame);
                continue;
            }
            // To copy a large one would hold up the other guests.
            for bytes in [&bytes, &frame] {
                if written.write_all(&stream, bytes).await.is_err() {
                    return;
                }
            }
            bytes.clear();
        }
        if written.write_all(&stream, &bytes).await.is_err() {
            return;
        }
        written.note(answered);
        bytes.clear();
        bytes.shrink_to(WRITE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_connection_takes_a_minute_at_most_and_less_if_nothing_moves() {
        let _limit = crate::testing::limit();
        const STILL: Duration = Duration::from_secs(5);
        let (unsent, began) = (Unsent::default(), Instant::now());
        let longest = began + LONGEST_END;
        let moving = async {
            loop {
                tokio::time::sleep(STILL / 2).await;
                unsent.add(1);
            }
        };
        // Both waits of an end.
        let ends = async {
            unsent.while_it_shrinks(STILL, longest, pending::<()>()).await;
            unsent.while_it_shrinks(STILL, longest, pending::<()>()).await;
        };
        tokio::select! {
            () = ends => {}
            () = moving => {}
        }
        assert_eq!(began.elapsed(), LONGEST_END);
        let began = Instant::now();
        unsent.while_it_shrinks(STILL, began + LONGEST_END, pending::<()>()).await;
        assert_eq!(began.elapsed(), STILL);
    }

    #[test]
    fn there_is_room_again_once_the_guest_has_taken_answers() {
        use std::task::{Context, Waker};
        let _limit = crate::testing::limit();
        let unsent = Arc::new(Unsent::default());
        let written = Written::new(unsent.clone(), Arc::new(Turns::new()), 1);
        let mut context = Context::from_waker(Waker::noop());
        unsent.add(9);
        assert!(pin!(unsent.below(10)).poll(&mut context).is_ready());
        unsent.add(1);
        let mut waits = pin!(unsent.below(10));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        written.note(1);
        assert!(waits.as_mut().poll(&mut context).is_ready());
    }
}
