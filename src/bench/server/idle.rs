//! What a system costs on which nothing happens, and how fast it wakes up.

use super::fixture::Fixture;
use super::texts::Server;
use crate::bench::Options;
use crate::bench::flow::Side;
use crate::bench::load::new_histogram;
use crate::bench::report::{Figure, Report};
use crate::bench::subject::{REQUESTS, stalled};
use crate::bench::targets::{IDLE, IDLE_EMPTY, WAKE_UP_OTHER, WAKE_UP_OTHER_P99, WAKE_UP_SAME, WAKE_UP_SAME_P99};
use dialoq::internals::ErrorConstructors;
use dialoq::internals::store::database::link::Link;
use dialoq::{Act, Broker, Error, Result};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WAKE_UPS: usize = 300;
/// Long enough for a receiver to be asleep, and for the gathered notices to be sent.
const SETTLING: Duration = Duration::from_millis(20);
/// PostgreSQL's sessions report what they did ten seconds after they fell idle, and the polls of a process whose receivers
/// have just gone to sleep go on for a second. What is seen sooner than this is what came before.
const REPORTING: Duration = Duration::from_secs(15);
const RECEIVERS: usize = 100;
const LONG: Duration = Duration::from_secs(3600);

/// From before a SEND to after the RECEIVE that waited for it, on an idle system: the receiver in the sender's process,
/// and in another. Another broker on the same URL is another process to the server.
pub(super) async fn wake_up(options: &Options, server: &Server, fixture: &Fixture, report: &mut Report) -> Result<()> {
    let other = Broker::open(&server.named).await?;
    for (receiving, p50, p99) in
        [(&fixture.subject.broker, WAKE_UP_SAME, WAKE_UP_SAME_P99), (&other, WAKE_UP_OTHER, WAKE_UP_OTHER_P99)]
    {
        let mut latency = new_histogram();
        for _ in 0..WAKE_UPS {
            let receiver = receiving.clone();
            let waiting = tokio::spawn(async move {
                let batch = receiver.receive(REQUESTS).top(1).wait(Duration::from_secs(10)).await?;
                batch.map(|_| Instant::now()).ok_or_else(|| stalled("a message"))
            });
            tokio::time::sleep(SETTLING).await;
            let before = Instant::now();
            fixture.conversations.send(vec![vec![b'x'; options.body_bytes]]).await?;
            let received = waiting.await.map_err(|_| Error::closed())??;
            latency.saturating_record(received.duration_since(before).as_nanos() as u64);
        }
        for (name, share) in [(p50, 0.5), (p99, 0.99)] {
            let value = latency.value_at_quantile(share) as f64 / 1e6;
            report.figures.push(Figure { name: name.to_owned(), value, unit: "ms" });
        }
    }
    other.close().await
}

/// What the server counts while nothing happens: without and with a hundred receivers that wait. Its own upkeep counts too.
pub(super) async fn idle(options: &Options, server: &Server, fixture: &Fixture, report: &mut Report) -> Result<()> {
    let Some(empty) = per_minute(server, options.idle_length).await? else { return Ok(()) };
    let mut waiting = JoinSet::new();
    for _ in 0..RECEIVERS {
        let broker = fixture.subject.broker.clone();
        waiting.spawn(async move { broker.receive(REQUESTS).wait(LONG).await.map(drop) });
    }
    while fixture.subject.broker.sessions_waiting(REQUESTS) < RECEIVERS {
        tokio::task::yield_now().await;
    }
    let full = per_minute(server, options.idle_length).await?;
    waiting.shutdown().await;
    report.figures.push(Figure { name: IDLE_EMPTY.to_owned(), value: empty, unit: "a minute" });
    if let Some(full) = full {
        report.figures.push(Figure { name: IDLE.to_owned(), value: full, unit: "a minute" });
    }
    Ok(())
}

/// `None` if the server does not count, as relatives of SQL Server do not.
async fn per_minute(server: &Server, length: Duration) -> Result<Option<f64>> {
    // Both readings use the same link, so they add no work but their own.
    let mut link = server.driver.dedicated().await?;
    tokio::time::sleep(REPORTING).await;
    let start = Instant::now();
    let Some(before) = transactions(server, &mut *link).await? else { return Ok(None) };
    tokio::time::sleep(length).await;
    let Some(after) = transactions(server, &mut *link).await? else { return Ok(None) };
    Ok(Some((after - before) as f64 / start.elapsed().as_secs_f64() * 60.0))
}

async fn transactions(server: &Server, link: &mut dyn Link) -> Result<Option<i64>> {
    match link.read(server.texts.transactions).await {
        Ok(rows) => rows.first().map(|row| row.get("transactions")).transpose(),
        Err(failure) if server.is_postgres() => Err(failure.error),
        Err(_) => Ok(None),
    }
}
