//! The load: callers that call again as soon as they are answered, and what came of it.

use dialoq::internals::ErrorConstructors;
use dialoq::{Error, Result};
use hdrhistogram::Histogram;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A caller that asks the store, or the limit, for one thing repeatedly.
pub(super) trait Caller: Send + 'static {
    /// One call; how many messages it was about. 0: there was nothing left to do, and the caller stops.
    fn call(&mut self) -> impl Future<Output = Result<u64>> + Send;
}

/// What one round of a workload came to.
#[derive(Clone)]
pub(super) struct Round {
    /// Messages (for the dialog cycle: cycles) done.
    pub(super) messages: u64,
    /// From the first call to the last answer.
    pub(super) elapsed: Duration,
    /// Per call, in nanoseconds.
    pub(super) latency: Histogram<u64>,
}

impl Round {
    /// Messages a second.
    pub(super) fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The latency below which this share of the calls stayed, in microseconds.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1000.0
    }
}

/// Up to an hour, to three digits.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid")
}

/// Lets every caller call for `length`, each in a task of its own.
pub(super) async fn run<C: Caller>(callers: impl IntoIterator<Item = C>, length: Duration) -> Result<Round> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in callers {
        tasks.spawn(keep_calling(caller, start, length));
    }
    gather(tasks, start).await
}

async fn keep_calling<C: Caller>(mut caller: C, start: Instant, length: Duration) -> Result<Part> {
    let mut latency = new_histogram();
    let mut messages = 0;
    let mut before = Instant::now();
    // Not the time of a last call that found nothing: it may have waited long to be sure.
    let mut ended = start;
    loop {
        let done = caller.call().await?;
        if done == 0 {
            break;
        }
        let after = Instant::now();
        messages += done;
        latency.saturating_record(after.duration_since(before).as_nanos() as u64);
        (before, ended) = (after, after);
        // A caller that comes late calls once all the same, so that every round has a rate.
        if after.duration_since(start) >= length {
            break;
        }
    }
    Ok(Part { messages, latency, ended })
}

/// What one caller did in a round.
pub(super) struct Part {
    pub(super) messages: u64,
    pub(super) latency: Histogram<u64>,
    /// When the last call was answered.
    pub(super) ended: Instant,
}

/// Waits for all tasks; the first error ends the others.
pub(super) async fn gather(mut tasks: JoinSet<Result<Part>>, start: Instant) -> Result<Round> {
    let mut round = Round { messages: 0, elapsed: Duration::ZERO, latency: new_histogram() };
    while let Some(task) = tasks.join_next().await {
        let Part { messages, latency, ended } = match task {
            Ok(done) => done?,
            Err(panic) if panic.is_panic() => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => return Err(Error::closed()),
        };
        round.messages += messages;
        round.latency.add(&latency).expect("all histograms have the same bounds");
        round.elapsed = round.elapsed.max(ended.duration_since(start));
    }
    Ok(round)
}

/// The round in the middle, by rate.
pub(super) fn median(mut rounds: Vec<Round>) -> Option<Round> {
    rounds.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let middle = rounds.len() / 2;
    rounds.into_iter().nth(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Countdown(u64);

    impl Caller for Countdown {
        async fn call(&mut self) -> Result<u64> {
            let left = self.0;
            self.0 = left.saturating_sub(1);
            Ok(left.min(1))
        }
    }

    #[tokio::test]
    async fn callers_stop_when_nothing_is_left() {
        let _limit = crate::limit();
        let round = run([Countdown(3), Countdown(4)], Duration::from_secs(60)).await.unwrap();
        assert_eq!((round.messages, round.latency.len()), (7, 7));
    }

    #[test]
    fn the_median_is_the_middle_rate() {
        let round = |messages| Round { messages, elapsed: Duration::from_secs(1), latency: new_histogram() };
        assert_eq!(median(vec![round(9), round(1), round(5)]).unwrap().messages, 5);
        assert!(median(Vec::new()).is_none());
    }
}
