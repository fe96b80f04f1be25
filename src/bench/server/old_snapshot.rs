//! What an old snapshot costs: full rates before it, after minutes of full load under it, and after its end.

use super::ServerBench;
use super::cycle;
use super::fixture::OldReader;
use crate::bench::flow::{self, Pace};
use crate::bench::load::{Round, median};
use crate::bench::report::{Figure, Measured, Report};
use crate::bench::subject::{Conversations, Style};
use dialoq::Result;
use std::sync::Arc;
use std::time::Instant;

const BEFORE: &str = "the same before the snapshot was taken";

/// Measures every kind of call, loads the broker under an old snapshot for the length of the constant load, and measures
/// every kind again while the snapshot is held. Nothing is cleaned between.
pub(super) async fn old_snapshot(bench: &ServerBench<'_>, report: &mut Report) -> Result<()> {
    bench.clear().await?;
    let before = rates(bench).await?;
    bench.clear().await?;
    let reader = OldReader::begin(bench.server).await?;
    let start = Instant::now();
    let slices = (bench.options.load_length.as_secs() / 10).clamp(2, 60) as u32;
    for slice in 0..slices {
        let length = bench.options.load_length / slices;
        // Whole dialogs for a fifth of the time: their beginnings and ends leave dead rows in other places than messages do.
        let is_of_dialogs = slice % 5 == 4;
        let (kind, unit, round) = match is_of_dialogs {
            true => ("dialogs", "dialogs a second", cycle::round(bench, Style::AtOnce, length).await?),
            false => {
                let round = bench.through(&bench.fixture.conversations, Pace::Closed, length).await?;
                bench.fixture.drain().await?;
                ("full load", "messages a second", round)
            }
        };
        let name = format!("{kind}, {:.0} s under the old snapshot", start.elapsed().as_secs_f64());
        report.figures.push(Figure { name, value: round.rate(), unit });
    }
    bench.fixture.drain().await?;
    let under = rates(bench).await?;
    reader.end().await?;
    let round = bench.through(&bench.fixture.conversations, Pace::Closed, bench.options.round_length).await?;
    let name = "full load after the old snapshot".to_owned();
    report.figures.push(Figure { name, value: round.rate(), unit: "messages a second" });
    for ((workload, callers, under), (_, _, before)) in under.into_iter().zip(before) {
        if let Some(round) = median(under) {
            let name = format!("{workload}_under_old_snapshot, {callers}");
            let row = Measured::new(&name, callers, 1, bench.options.body_bytes, &round);
            report.results.push(row.beside_rival(BEFORE, median(before).as_ref()));
        }
    }
    bench.clear().await
}

type Rounds = (&'static str, usize, Vec<Round>);

/// The rounds of each kind of call, by all callers and by one alone.
async fn rates(bench: &ServerBench<'_>) -> Result<Vec<Rounds>> {
    let (conversations, length) = (&bench.fixture.conversations, bench.options.round_length);
    let mut callers = vec![bench.options.callers[0], 1];
    callers.dedup();
    let mut all = Vec::new();
    for callers in callers {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for _ in 0..bench.options.rounds {
            bench.fixture.drain().await?;
            sent.push(flow::send(conversations, bench.bodies(), callers, 1, length).await?);
            received.push(receive(bench, conversations, callers).await?);
        }
        all.push(("send", callers, sent));
        all.push(("receive", callers, received));
        #[cfg(feature = "postgres")]
        {
            let in_tx = Arc::new(conversations.in_tx(None));
            let mut received = Vec::new();
            for _ in 0..bench.options.rounds {
                received.push(receive(bench, &in_tx, callers).await?);
            }
            all.push(("receive_in_tx", callers, received));
        }
    }
    let (mut both, mut cycles) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds {
        bench.fixture.drain().await?;
        both.push(bench.through(conversations, Pace::Closed, length).await?);
    }
    all.push(("both", bench.options.callers[0], both));
    for _ in 0..bench.options.rounds {
        bench.fixture.drain().await?;
        cycles.push(cycle::round(bench, Style::AtOnce, length).await?);
    }
    all.push(("dialog_cycle", bench.options.callers[0], cycles));
    bench.fixture.drain().await?;
    Ok(all)
}

async fn receive(bench: &ServerBench<'_>, side: &Arc<Conversations>, callers: usize) -> Result<Round> {
    bench.fixture.drain().await?;
    // One caller alone takes a tenth of what many take at most.
    bench.fixture.fill(bench.bodies(), bench.enough() * callers.min(10) / 10).await?;
    flow::receive(side, callers, 1, bench.options.round_length).await
}
