//! Conversation timers and lifetimes, on a clock that the program moves: a day passes in no time.
//!
//! `cargo run --example timers`

use dialoq::{Act, Broker, Clock, OpenOptions, Result, Timestamp};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<()> {
    let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
    let broker = Broker::open_with("sqlite::memory:", OpenOptions::new().clock(clock.clone())).await?;
    broker
        .ensure(|d| {
            d.queue("watchdog").queue("worker");
            d.service("//watch/Watchdog", "watchdog", []).service("//watch/Worker", "worker", ["DEFAULT"]);
        })
        .await?;

    // Ask, and get a DialogTimer if no answer has come within the hour; give up altogether after a day.
    let dialog = broker.begin_dialog("//watch/Watchdog", "//watch/Worker").lifetime(24 * HOUR).await?;
    broker.send(dialog, "DEFAULT", "are you there?").await?;
    broker.timer(dialog, HOUR).await?;

    clock.advance(HOUR);
    let batch = broker.receive("watchdog").wait_forever().await?.expect("a wait without end gives something");
    assert!(batch.first().is_dialog_timer());
    println!("{}: no answer within the hour", clock.now());

    clock.advance(23 * HOUR);
    let batch = broker.receive("watchdog").wait_forever().await?.expect("a wait without end gives something");
    let error = batch.first().error().expect("the lifetime is over");
    println!("{}: {error}", clock.now());
    assert_eq!(error.code, -8489);
    broker.end(dialog).await?;

    // A wait with a deadline uses the same clock.
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.receive("watchdog").wait(HOUR).await }
    });
    while broker.sessions_waiting("watchdog") == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(HOUR);
    assert!(waiting.await.expect("the task ends")?.is_none());
    println!("{}: nothing more", clock.now());
    broker.close().await
}
