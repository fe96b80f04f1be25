//! The whole of it in one page: define, converse, receive, reply, end.
//!
//! `cargo run --example hello`

use dialoq::{Act, Broker, MessageType, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
struct PlaceOrder {
    sku: String,
    pieces: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OrderPlaced {
    number: u64,
}

const PLACE_ORDER: MessageType<PlaceOrder> = MessageType::json("//shop/PlaceOrder");
const ORDER_PLACED: MessageType<OrderPlaced> = MessageType::json("//shop/OrderPlaced");

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(PLACE_ORDER).message_type(ORDER_PLACED);
            d.contract("//shop/Orders").sent_by_initiator(PLACE_ORDER).sent_by_target(ORDER_PLACED);
            d.queue("orders").queue("checkout");
            d.service("//shop/OrderService", "orders", ["//shop/Orders"]).service("//shop/Checkout", "checkout", []);
        })
        .await?;

    // The checkout asks; the conversation and its first message are one commit.
    let tx = broker.begin().await?;
    let dialog = tx.begin_dialog("//shop/Checkout", "//shop/OrderService").contract("//shop/Orders").await?;
    tx.send(dialog, PLACE_ORDER, &PlaceOrder { sku: "A-1".into(), pieces: 3 }).await?;
    tx.commit().await?;

    // The order service takes it, answers and ends its side; if it failed here, the message would be back in the queue.
    let tx = broker.begin().await?;
    let batch = tx.receive("orders").wait(Duration::from_secs(5)).await?.expect("the order is there");
    let order = batch.first().decode(PLACE_ORDER)?;
    println!("the order service received {order:?} at level {}", batch.first().priority);
    tx.send(batch.first().handle(), ORDER_PLACED, &OrderPlaced { number: 7 }).await?;
    tx.end(batch.first().handle()).await?;
    tx.commit().await?;

    // The checkout reads the answer and the end, and ends its own side.
    let batch = broker.receive("checkout").conversation(dialog).await?.expect("the answer is there");
    let [answer, end] = batch.messages() else { panic!("an answer and an end, not {batch:?}") };
    assert_eq!(answer.decode(ORDER_PLACED)?, OrderPlaced { number: 7 });
    assert!(end.is_end_dialog());
    broker.end(dialog).await?;
    println!("the checkout received {:?}, and the conversation is over", answer.text()?);
    broker.close().await
}
