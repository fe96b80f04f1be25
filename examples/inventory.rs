//! The main job, whole: an app sends high and low messages; receivers take them by each of the three classic
//! strategies; the third is activated readers with a maximum per queue.
//!
//! `cargo run --example inventory`

use dialoq::activation::Handlers;
use dialoq::receive::{self, strategy::Strategy};
use dialoq::{Act, Broker, Level, MessageType, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

#[derive(Debug, Serialize, Deserialize)]
struct AddItem {
    sku: String,
}

const ADD_ITEM: MessageType<AddItem> = MessageType::json("//inventory/AddItem");

/// In the order in which they are sent: u is urgent, p is plain.
const LOAD: &str = "ppuppupp";

#[tokio::main]
async fn main() -> Result<()> {
    // No strategy yet: a plain RECEIVE takes the highest level first, by broker priority alone.
    let broker = shop("inventory", "inventory").await?;
    let mut order = String::new();
    while let Some(batch) = broker.receive("inventory").await? {
        order.extend(batch.iter().map(|message| letter(message.priority)));
    }
    show("by broker priority", &order);
    assert_eq!(order, "uupppppp");
    broker.close().await?;

    // 1: drain every high message, then take one low.
    let drain = receive::drain_high_then_one_low("inventory", receive::by_contract("//inventory/Urgent"));
    assert_eq!(play("drain high, then one low", drain, "inventory", "inventory").await?, "uupppppp");

    // 2: one loop over a high and a low queue.
    let dual = receive::dual_queue_loop("urgent", "plain");
    assert_eq!(play("one loop, two queues", dual, "urgent", "plain").await?, "uupppppp");

    // 3: independent activated readers per queue, each with its own maximum.
    let broker = shop("urgent", "plain").await?;
    let (done, mut served) = mpsc::unbounded_channel();
    let handlers = |letter: char| {
        let done = done.clone();
        Handlers::new().on(ADD_ITEM, async move |context, item: AddItem| {
            // One commit: the message is gone, the conversation has ended and the item is in the table, or none of it.
            context.tx().sql("insert into stock (sku) values (?1)", (item.sku,)).await?;
            context.end_conversation().await?;
            let _ = done.send(letter);
            Ok(())
        })
    };
    broker.sql("create table stock (sku text not null)", ()).await?;
    let urgent = broker.activate("urgent", handlers('u')).max_queue_readers(3).start();
    let plain = broker.activate("plain", handlers('p')).max_queue_readers(1).start();
    let mut order = String::new();
    while order.len() < LOAD.len() {
        order.extend(served.recv().await);
    }
    urgent.stop().await;
    plain.stop().await;
    show("activated readers, 3 and 1", &order);
    let rows = broker.query("select count(*) as items from stock", ()).await?;
    assert_eq!(rows.rows[0].get::<i64>("items")?, LOAD.len() as i64);
    broker.close().await
}

/// Receives the load by a strategy; gives the order in which it came.
async fn play(name: &str, strategy: impl Strategy + 'static, urgent: &str, plain: &str) -> Result<String> {
    let broker = shop(urgent, plain).await?;
    let mut turns = broker.receive_by(strategy)?;
    let mut order = String::new();
    while order.len() < LOAD.len() {
        let turn = turns.next().await.expect("a strategy's stream ends only after an error")?;
        order.extend(turn.batch.iter().map(|message| letter(message.priority)));
        turn.commit().await?;
    }
    drop(turns);
    show(name, &order);
    broker.close().await?;
    Ok(order)
}

/// A broker with both services, and the load sent.
async fn shop(urgent: &str, plain: &str) -> Result<Broker> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(ADD_ITEM);
            d.contract("//inventory/Urgent").sent_by_initiator(ADD_ITEM);
            d.contract("//inventory/Plain").sent_by_initiator(ADD_ITEM);
            d.queue("dock").queue(urgent);
            if urgent != plain {
                d.queue(plain);
            }
            d.service("//inventory/Dock", "dock", []);
            d.service("//inventory/UrgentItems", urgent, ["//inventory/Urgent"]);
            d.service("//inventory/PlainItems", plain, ["//inventory/Plain"]);
            // The contract chooses the level; what no broker priority names is at level 5.
            d.broker_priority("urgent").contract("//inventory/Urgent").level(Level::new(9));
            d.broker_priority("plain").contract("//inventory/Plain").level(Level::new(2));
        })
        .await?;
    for (number, class) in LOAD.chars().enumerate() {
        let class = if class == 'u' { "Urgent" } else { "Plain" };
        let service = format!("//inventory/{class}Items");
        let dialog = broker.begin_dialog("//inventory/Dock", service).contract(format!("//inventory/{class}")).await?;
        broker.send(dialog, ADD_ITEM, &AddItem { sku: format!("A-{number}") }).await?;
    }
    Ok(broker)
}

fn letter(level: u8) -> char {
    if level == 9 { 'u' } else { 'p' }
}

fn show(name: &str, order: &str) {
    println!("{name:>27}: sent {LOAD}, received {order}");
}
