//! A queue as a stream of transactions: each item is a batch with the transaction that took it.
//!
//! `cargo run --example stream`

use dialoq::{Act, Broker, MessageType, Result};
use tokio_stream::StreamExt;

const LINE: MessageType<String> = MessageType::text("//log/Line");

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(LINE);
            d.contract("//log/Lines").sent_by_initiator(LINE);
            d.queue("lines").queue("source");
            d.service("//log/Collector", "lines", ["//log/Lines"]).service("//log/Source", "source", []);
        })
        .await?;

    let sender = tokio::spawn({
        let broker = broker.clone();
        async move {
            let dialog = broker.begin_dialog("//log/Source", "//log/Collector").contract("//log/Lines").await?;
            for number in 1..=10 {
                broker.send(dialog, LINE, &format!("line {number}")).await?;
            }
            broker.end(dialog).await
        }
    });

    let (mut lines, mut rolled_back) = (Vec::new(), false);
    let mut arrivals = broker.stream("lines").top(4);
    while let Some(arrival) = arrivals.next().await {
        let arrival = arrival?;
        if !rolled_back {
            // Given back: the same lines come again, in the same order.
            rolled_back = true;
            arrival.rollback().await?;
            continue;
        }
        let is_over = arrival.batch.iter().any(|message| message.is_end_dialog());
        for message in arrival.batch.iter().filter(|message| message.is(LINE)) {
            lines.push(message.decode(LINE)?);
        }
        if is_over {
            arrival.tx.end(arrival.batch.first().handle()).await?;
        }
        println!("committing {} messages", arrival.batch.len());
        arrival.commit().await?;
        if is_over {
            break;
        }
    }
    sender.await.expect("the sender ends")?;
    assert_eq!(lines, (1..=10).map(|number| format!("line {number}")).collect::<Vec<_>>());
    broker.close().await
}
