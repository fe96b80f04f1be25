//! Messages in transactions on PostgreSQL, beside a table queue by hand in explicit transactions.

use super::ServerBench;
use crate::bench::flow::{self, Pace, Senders, Side, Watch};
use crate::bench::load::{Round, median};
use crate::bench::report::{Measured, Report};
use crate::bench::rival::job_tables::Connections;
use crate::bench::rival::table_tx::TableTx;
use crate::bench::sql::postgres as texts;
use crate::bench::subject::Conversations;
use dialoq::Result;
use std::sync::Arc;

const BY_HAND: &str = "by hand: BEGIN, a statement, COMMIT, a connection per caller";
const BOTH_BY_HAND: &str = "by hand: inserts that commit by themselves, deletes in transactions";
const ANSWER_BY_HAND: &str = "by hand: BEGIN, a delete, two inserts, COMMIT, a connection per caller";
const MANY_BY_HAND: &str = "by hand: BEGIN, one statement of 100 rows, COMMIT, a connection per caller";
/// Messages of a transaction that sends or receives many, and its callers.
const MANY: usize = 100;
const CALLERS_OF_MANY: usize = 8;

pub(super) async fn transactions(bench: &ServerBench<'_>, report: &mut Report) -> Result<()> {
    if !bench.server.is_postgres() {
        return Ok(());
    }
    bench.server.script(texts::TX_CREATE).await?;
    let measured = measure(bench, report).await;
    measured.and(bench.server.script(texts::TX_DROP).await)
}

async fn measure(bench: &ServerBench<'_>, report: &mut Report) -> Result<()> {
    let connections = Connections::new(bench.server);
    let ours = |row| Arc::new(bench.fixture.conversations.in_tx(row));
    let in_tx = ours(None);
    let by_hand = Arc::new(TableTx::new(&connections));
    let most = bench.options.callers[0];
    let mut callers = vec![most, 8, 1];
    callers.dedup();
    for callers in callers {
        let name = format!("receive_in_tx, {callers}");
        receive(bench, report, &name, (&in_tx, &by_hand, BY_HAND), callers, 1).await?;
    }
    both(bench, report, &connections, &in_tx).await?;
    let answering = (&ours(Some(texts::TX_ROW)), &Arc::new(TableTx::answering(&connections)), ANSWER_BY_HAND);
    receive(bench, report, "receive_write_answer_in_tx", answering, most, 1).await?;
    let many = (&in_tx, &by_hand, MANY_BY_HAND);
    receive(bench, report, "receive_100_in_tx", many, CALLERS_OF_MANY, MANY).await?;
    let sending = [
        ("send_100_in_tx", in_tx),
        ("send_each_100_in_tx", Arc::new(bench.fixture.conversations.in_tx(None).by_list())),
        ("send_each_100_in_tx_spread", Arc::new(bench.fixture.conversations.in_tx(None).by_list().spread())),
    ];
    for (name, side) in sending {
        let (mut ours, mut rivals) = (Vec::new(), Vec::new());
        for _ in 0..bench.options.rounds {
            clear(bench).await?;
            ours.push(flow::send(&side, bench.bodies(), CALLERS_OF_MANY, MANY, bench.options.round_length).await?);
            rivals.push(flow::send(&by_hand, bench.bodies(), CALLERS_OF_MANY, MANY, bench.options.round_length).await?);
        }
        conclude(bench, report, (name, CALLERS_OF_MANY, MANY), ours, MANY_BY_HAND, rivals);
    }
    clear(bench).await
}

async fn receive(
    bench: &ServerBench<'_>,
    report: &mut Report,
    workload: &str,
    (side, rival, name): (&Arc<Conversations>, &Arc<TableTx>, &'static str),
    callers: usize,
    batch: usize,
) -> Result<()> {
    let length = bench.options.round_length;
    let (mut ours, mut rivals) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds {
        clear(bench).await?;
        let enough = if batch > 1 { bench.enough() * 3 } else { bench.enough() / 3 };
        bench.fixture.fill(bench.bodies(), enough).await?;
        rival.fill(bench.bodies(), enough).await?;
        bench.clean().await?;
        ours.push(flow::receive(side, callers, batch, length).await?);
        rivals.push(flow::receive(rival, callers, batch, length).await?);
    }
    conclude(bench, report, (workload, callers, batch), ours, name, rivals);
    Ok(())
}

async fn both(
    bench: &ServerBench<'_>,
    report: &mut Report,
    connections: &Arc<Connections>,
    in_tx: &Arc<Conversations>,
) -> Result<()> {
    let rival = Arc::new(TableTx::sending_at_once(connections));
    let (mut ours, mut rivals) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds {
        clear(bench).await?;
        ours.push(through(bench, &bench.fixture.conversations, in_tx).await?);
        rivals.push(through(bench, &rival, &rival).await?);
    }
    conclude(bench, report, ("both_in_tx", bench.options.callers[0], 1), ours, BOTH_BY_HAND, rivals);
    Ok(())
}

async fn through<S: Side>(bench: &ServerBench<'_>, sending: &Arc<S>, receiving: &Arc<S>) -> Result<Round> {
    let callers = bench.options.callers[0];
    let senders = vec![Senders { side: sending.clone(), callers, pace: Pace::Closed, bodies: bench.bodies() }];
    flow::through(senders, receiving.clone(), callers, bench.options.round_length, Watch::All).await
}

async fn clear(bench: &ServerBench<'_>) -> Result<()> {
    bench.fixture.drain().await?;
    bench.fixture.subject.drain_replies().await?;
    bench.server.script(texts::TX_EMPTY).await?;
    bench.clear().await
}

fn conclude(
    bench: &ServerBench<'_>,
    report: &mut Report,
    (workload, callers, batch): (&str, usize, usize),
    ours: Vec<Round>,
    rival: &'static str,
    rivals: Vec<Round>,
) {
    if let Some(round) = median(ours) {
        let row = Measured::new(workload, callers, batch, bench.options.body_bytes, &round);
        report.results.push(row.beside_rival(rival, median(rivals).as_ref()));
    }
}
