//! One consumer of a stream: each commit awaited, and with commits under way.

use super::step::{MANY, StepSetting};
use crate::bench::load::{Round, new_histogram};
use crate::bench::report::Report;
use crate::bench::subject::{REQUESTS, Style};
use dialoq::{Broker, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;

/// How many commits may be under way.
const WINDOW: usize = 64;

pub(super) async fn measure(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let (subject, bodies) = (at.subject().await?, at.bodies());
    let conversations = Arc::new(subject.conversations(MANY, Style::AtOnce).await?);
    let waiting = at.options.enough(200_000);
    let (mut awaited, mut confirmed) = (Vec::new(), Vec::new());
    for _ in 0..at.options.rounds {
        for (window, rounds) in [(1, &mut awaited), (WINDOW, &mut confirmed)] {
            crate::bench::flow::Side::fill(&*conversations, bodies, waiting).await?;
            rounds.push(round(&subject.broker, window, at.options.round_length, waiting as u64).await?);
            subject.drain().await?;
        }
    }
    at.conclude("stream_one_by_one", 1, 1, awaited, Vec::new(), Vec::new(), report);
    at.conclude("stream_window_64", 1, 1, confirmed, Vec::new(), Vec::new(), report);
    subject.close().await
}

/// Receives for `length`, or until nothing is left. The time ends when all that was received is durably gone; a call's
/// latency is from one arrival to the next.
async fn round(broker: &Broker, window: usize, length: Duration, waiting: u64) -> Result<Round> {
    let mut arrivals = broker.stream(REQUESTS).top(1).window(window);
    let (mut messages, mut latency) = (0, new_histogram());
    let start = Instant::now();
    let mut before = start;
    while messages < waiting && before.duration_since(start) < length {
        let Some(arrival) = arrivals.next().await else { break };
        let arrival = arrival?;
        messages += arrival.batch.len() as u64;
        if window == 1 {
            arrival.commit().await?;
        } else {
            arrival.confirm();
        }
        let after = Instant::now();
        latency.saturating_record(after.duration_since(before).as_nanos() as u64);
        before = after;
    }
    arrivals.settled().await?;
    Ok(Round { messages, elapsed: start.elapsed(), latency })
}
