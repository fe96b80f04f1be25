//! Messages through a queue, the same for the store and for its limit.

use super::load::{Caller, Part, Round, gather, new_histogram, run};
use dialoq::Result;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};

/// Something that messages go through.
pub(super) trait Side: Send + Sync + 'static {
    /// Sends the bodies in one transaction.
    fn send(&self, bodies: Vec<Vec<u8>>) -> impl Future<Output = Result<()>> + Send;

    /// Receives up to `count` messages in one transaction; with `waits`, some time passes before it comes back empty.
    fn receive(&self, count: usize, waits: bool) -> impl Future<Output = Result<Vec<Stamp>>> + Send;

    /// Sends this many messages as fast as possible and as evenly as possible, unmeasured.
    fn fill(&self, bodies: Bodies, count: usize) -> impl Future<Output = Result<()>> + Send;
}

/// What the first bytes of a body say: when it was sent, in nanoseconds since the bench's own epoch, and a mark in the
/// highest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) sent: u64,
    /// How long the message lay in its queue, where the side knows.
    pub(super) waited_ns: u64,
}

impl Stamp {
    const MARK: u64 = 1 << 63;

    /// Read back from a body; a body too short to hold one was sent at the epoch.
    pub(super) fn of(body: &[u8]) -> Self {
        Self { sent: body.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)), waited_ns: 0 }
    }

    pub(super) fn is_marked(self) -> bool {
        self.sent & Self::MARK != 0
    }

    fn age_ns(self, epoch: Instant) -> u64 {
        (epoch.elapsed().as_nanos() as u64).saturating_sub(self.sent & !Self::MARK)
    }
}

/// Makes bodies of one size with the time in them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bodies {
    pub(super) epoch: Instant,
    pub(super) bytes: usize,
    pub(super) marked: bool,
}

impl Bodies {
    pub(super) fn new(bytes: usize) -> Self {
        Self { epoch: Instant::now(), bytes, marked: false }
    }

    pub(super) fn marked(self) -> Self {
        Self { marked: true, ..self }
    }

    pub(super) fn next(&self) -> Vec<u8> {
        let mut body = vec![b'x'; self.bytes];
        let stamp = self.epoch.elapsed().as_nanos() as u64 | if self.marked { Stamp::MARK } else { 0 };
        if let Some(start) = body.first_chunk_mut() {
            *start = stamp.to_le_bytes();
        }
        body
    }

    pub(super) fn many(&self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Sends `batch` messages a call.
struct Sender<S> {
    side: Arc<S>,
    bodies: Bodies,
    batch: usize,
}

impl<S: Side> Caller for Sender<S> {
    async fn call(&mut self) -> Result<u64> {
        self.side.send(self.bodies.many(self.batch)).await?;
        Ok(self.batch as u64)
    }
}

/// Receives up to `batch` messages a call, until nothing is left.
struct Receiver<S> {
    side: Arc<S>,
    batch: usize,
}

impl<S: Side> Caller for Receiver<S> {
    async fn call(&mut self) -> Result<u64> {
        Ok(self.side.receive(self.batch, false).await?.len() as u64)
    }
}

/// Callers that only send.
pub(super) async fn send<S: Side>(
    side: &Arc<S>,
    bodies: Bodies,
    callers: usize,
    batch: usize,
    length: Duration,
) -> Result<Round> {
    run((0..callers).map(|_| Sender { side: side.clone(), bodies, batch }), length).await
}

/// Callers that only receive.
pub(super) async fn receive<S: Side>(side: &Arc<S>, callers: usize, batch: usize, length: Duration) -> Result<Round> {
    run((0..callers).map(|_| Receiver { side: side.clone(), batch }), length).await
}

/// How fast senders send.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// Again as soon as they are answered.
    Closed,
    /// This many messages a second, all senders together, however long an answer takes.
    PerSecond(f64),
}

/// Which messages are counted, and which time of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// All, from before the send to after the receive.
    All,
    /// The marked ones, likewise.
    Marked,
    /// The marked ones, from when they entered the queue to after the receive.
    MarkedWait,
}

/// A group of senders on one side.
pub(super) struct Senders<S> {
    pub(super) side: Arc<S>,
    pub(super) callers: usize,
    pub(super) pace: Pace,
    pub(super) bodies: Bodies,
}

/// Senders and receivers at the same time: what was received within `length`, and the time from before the send to
/// after the receive, per message, or what `watch` says.
pub(super) async fn through<S: Side>(
    senders: Vec<Senders<S>>,
    receiving: Arc<S>,
    receivers: usize,
    length: Duration,
    watch: Watch,
) -> Result<Round> {
    let start = Instant::now();
    let mut sending = JoinSet::new();
    let epoch = senders.first().map_or(start, |senders| senders.bodies.epoch);
    for Senders { side, callers, pace, bodies } in senders {
        for place in 0..callers {
            let sender = Sender { side: side.clone(), bodies, batch: 1 };
            sending.spawn(keep_sending(sender, pace, (place, callers), start, length));
        }
    }
    let mut taking = JoinSet::new();
    for _ in 0..receivers {
        let side = receiving.clone();
        taking.spawn(async move {
            let (mut messages, mut latency) = (0, new_histogram());
            while start.elapsed() < length {
                let stamps = side.receive(1, true).await?;
                if start.elapsed() >= length {
                    break;
                }
                for stamp in stamps.into_iter().filter(|stamp| stamp.is_marked() || watch == Watch::All) {
                    messages += 1;
                    let waited = if watch == Watch::MarkedWait { stamp.waited_ns } else { stamp.age_ns(epoch) };
                    latency.saturating_record(waited);
                }
            }
            Ok(Part { messages, latency, ended: Instant::now() })
        });
    }
    // Receivers that wait when the senders stop are woken by stragglers' messages, one for each.
    let (sent, received) = tokio::join!(gather(sending, start), async {
        tokio::time::sleep_until((start + length).into()).await;
        receiving.send(Bodies { epoch, bytes: 8, marked: false }.many(receivers)).await?;
        gather(taking, start).await
    });
    sent?;
    let mut round = received?;
    round.elapsed = length;
    Ok(round)
}

async fn keep_sending<S: Side>(
    mut sender: Sender<S>,
    pace: Pace,
    (place, callers): (usize, usize),
    start: Instant,
    length: Duration,
) -> Result<Part> {
    let mut ticks = match pace {
        Pace::Closed => None,
        Pace::PerSecond(rate) => {
            let period = Duration::from_secs_f64(callers as f64 / rate.max(0.1));
            // Spread over the period, so that the senders do not all fire together.
            let mut ticks = interval_at((start + period.mul_f64(place as f64 / callers as f64)).into(), period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            Some(ticks)
        }
    };
    let mut sent = 0;
    while start.elapsed() < length {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        sent += sender.call().await?;
    }
    Ok(Part { messages: sent, latency: new_histogram(), ended: Instant::now() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rival::log::{Keep, Log};

    #[tokio::test]
    async fn a_stamp_holds_the_age_and_the_mark() {
        let _limit = crate::limit();
        let bodies = Bodies::new(16);
        let (plain, marked) = (Stamp::of(&bodies.next()), Stamp::of(&bodies.marked().next()));
        assert!(!plain.is_marked() && marked.is_marked());
        assert!(marked.age_ns(bodies.epoch) < 10_000_000_000, "the mark is not part of the time");
    }

    #[tokio::test]
    async fn messages_are_counted_and_the_receivers_stop() {
        let _limit = crate::limit();
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(
            Log::create(&folder.path().join("log"), Keep { synced: false, takable: true, in_place: false }).unwrap(),
        );
        let bodies = Bodies::new(16);
        let senders = |pace| vec![Senders { side: log.clone(), callers: 2, pace, bodies }];
        let length = Duration::from_millis(100);
        let closed = through(senders(Pace::Closed), log.clone(), 3, length, Watch::All).await.unwrap();
        assert!(closed.messages > 0 && closed.latency.len() == closed.messages);
        let paced = through(senders(Pace::PerSecond(100.0)), log.clone(), 3, length, Watch::Marked).await.unwrap();
        assert_eq!(paced.messages, 0, "nothing was marked");
    }
}
