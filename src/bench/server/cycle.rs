//! The full dialog cycle on a server, beside a request and a reply through a table queue.

use super::ServerBench;
use crate::bench::cycle::{Cycle, Exchange};
use crate::bench::load::{self, Round};
use crate::bench::report::Report;
use crate::bench::subject::Style;
use dialoq::Result;
use std::time::Duration;

const EXCHANGE: &str = "request and reply through a table queue: two INSERTs and two DELETEs, a transaction each";

/// Measures cycles whose statements commit one by one, and those of three transactions.
pub(super) async fn cycle(bench: &ServerBench<'_>, report: &mut Report) -> Result<()> {
    for (style, workload) in [(Style::AtOnce, "dialog_cycle"), (Style::InTx, "dialog_cycle_in_tx")] {
        let (mut ours, mut rivals) = (Vec::new(), Vec::new());
        for _ in 0..bench.options.rounds {
            bench.clear().await?;
            ours.push(round(bench, style, bench.options.round_length).await?);
            let exchanges =
                (0..bench.options.callers[0]).map(|_| Exchange { side: bench.rival.clone(), bodies: bench.bodies() });
            rivals.push(load::run(exchanges, bench.options.round_length).await?);
        }
        bench.conclude(report, workload, ours, EXCHANGE, rivals);
    }
    bench.clear().await
}

/// Cycles by all callers.
pub(super) async fn round(bench: &ServerBench<'_>, style: Style, length: Duration) -> Result<Round> {
    let cycles = (0..bench.options.callers[0]).map(|_| Cycle::new(&bench.fixture.subject, style, bench.bodies()));
    load::run(cycles, length).await
}
