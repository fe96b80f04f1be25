//! What a broker priority is worth: how long the high class waits while the low class floods the same queue.

use super::step::{MANY, StepSetting};
use crate::bench::flow::{Pace, Senders, Watch, through};
use crate::bench::load::Round;
use crate::bench::report::{Figure, Measured, Report};
use crate::bench::subject::{Class, Style};
use crate::bench::targets::{FLOOD, FLOOD_END_TO_END};
use dialoq::Result;
use std::sync::Arc;

const HIGH_CONVERSATIONS: usize = 100;
const HIGH_CALLERS: usize = 8;
const HIGH_PER_S: f64 = 500.0;
const LOW_CALLERS: usize = 64;
const RECEIVERS: usize = 64;

pub(in crate::bench) async fn measure(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let (subject, bodies, length) = (at.subject().await?, at.bodies(), at.options.round_length);
    let high = Arc::new(subject.conversations_of(Class::High, HIGH_CONVERSATIONS, Style::AtOnce).await?);
    let low = Arc::new(subject.conversations_of(Class::Low, MANY, Style::AtOnce).await?);
    let high_senders = || Senders {
        side: high.clone(),
        callers: HIGH_CALLERS,
        pace: Pace::PerSecond(HIGH_PER_S),
        bodies: bodies.marked(),
    };
    let low_senders = || Senders { side: low.clone(), callers: LOW_CALLERS, pace: Pace::Closed, bodies };
    for (watch, alone_name, flooded_name, figure) in [
        (Watch::MarkedWait, "high_wait_alone", "high_wait_under_low_flood", FLOOD),
        (Watch::Marked, "high_alone", "high_under_low_flood", FLOOD_END_TO_END),
    ] {
        let (mut alone, mut flooded) = (Vec::new(), Vec::new());
        for _ in 0..at.options.rounds {
            alone.push(through(vec![high_senders()], high.clone(), RECEIVERS, length, watch).await?);
            subject.drain().await?;
            let senders = vec![high_senders(), low_senders()];
            flooded.push(through(senders, high.clone(), RECEIVERS, length, watch).await?);
            subject.drain().await?;
        }
        let (alone, flooded) = (middle(alone), middle(flooded));
        let value = flooded.quantile_us(0.99) / alone.quantile_us(0.99);
        report.figures.push(Figure { name: figure.to_owned(), value, unit: "times" });
        for (workload, round) in [(alone_name, alone), (flooded_name, flooded)] {
            report.results.push(Measured::new(workload, HIGH_CALLERS, 1, at.options.body_bytes, &round));
        }
    }
    subject.close().await
}

/// The round in the middle, by its p99.
pub(in crate::bench) fn middle(mut rounds: Vec<Round>) -> Round {
    rounds.sort_by(|a, b| a.quantile_us(0.99).total_cmp(&b.quantile_us(0.99)));
    rounds.swap_remove(rounds.len() / 2)
}
