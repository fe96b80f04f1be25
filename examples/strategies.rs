//! Three ways to read high and low messages, on the same load: which message comes when, and who can starve.
//!
//! `cargo run --example strategies`

use dialoq::receive::{self, strategy::Strategy};
use dialoq::{Act, Broker, Level, Result};
use tokio_stream::StreamExt;

/// Six low messages came first, then four high ones.
const LOAD: [(&str, usize); 2] = [("Low", 6), ("High", 4)];

#[tokio::main]
async fn main() -> Result<()> {
    // One queue; the contract decides between high and low.
    let one_queue = receive::drain_high_then_one_low("items", receive::by_contract("//items/High"));
    let order = play("one queue", one_queue, ["items", "items"]).await?;
    assert_eq!(order, "hhhhllllll", "every high one first");

    // Two queues, one loop that waits on both at once.
    let two_queues = receive::dual_queue_loop("items_high", "items_low");
    let order = play("two queues", two_queues, ["items_high", "items_low"]).await?;
    assert_eq!(order, "hhhhllllll");

    // Shares: of four turns the low queue gets one, whatever the high queue holds.
    let shares = receive::weighted([("items_high", 3), ("items_low", 1)]);
    let order = play("weighted", shares, ["items_high", "items_low"]).await?;
    assert!(order[..4].contains('l'), "the low class is never starved: {order}");
    Ok(())
}

/// Sends the load, reads it by a strategy, and gives the order as letters.
async fn play(name: &str, strategy: impl Strategy + 'static, [high, low]: [&str; 2]) -> Result<String> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .define(|d| {
            d.contract("//items/High").sent_by_initiator("DEFAULT");
            d.contract("//items/Low").sent_by_initiator("DEFAULT");
            d.queue("sources").queue(high);
            if high != low {
                d.queue(low);
            }
            d.service("//items/Source", "sources", []);
            d.service("//items/HighItems", high, ["//items/High"]).service("//items/LowItems", low, ["//items/Low"]);
            d.broker_priority("high").contract("//items/High").level(Level::new(9));
            d.broker_priority("low").contract("//items/Low").level(Level::new(2));
        })
        .await?;
    for (class, count) in LOAD {
        for _ in 0..count {
            let to = format!("//items/{class}Items");
            let dialog = broker.begin_dialog("//items/Source", to).contract(format!("//items/{class}")).await?;
            broker.send(dialog, "DEFAULT", "item").await?;
        }
    }

    let bound = strategy.bound();
    let mut order = String::new();
    let mut turns = broker.receive_by(strategy)?;
    while order.len() < 10 {
        let turn = turns.next().await.expect("a strategy's stream ends only after an error")?;
        for message in &turn.batch {
            order.push(if message.priority == 9 { 'h' } else { 'l' });
        }
        turn.commit().await?;
    }
    println!("{name:>10}: {order}  starvation: {bound}");
    drop(turns);
    broker.close().await?;
    Ok(order)
}
