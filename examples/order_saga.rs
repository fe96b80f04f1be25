//! Messages and the application's own tables in one commit, and a step that is undone without losing the message.
//!
//! `cargo run --example order_saga`

use dialoq::{Act, Broker, Message, MessageType, Result, Tx};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: i64,
    sku: String,
    pieces: i64,
}

const ORDER: MessageType<Order> = MessageType::json("//shop/Order");
const SHIPPED: MessageType<()> = MessageType::empty("//shop/Shipped");

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(ORDER).message_type(SHIPPED);
            d.contract("//shop/Orders").sent_by_initiator(ORDER).sent_by_target(SHIPPED);
            d.queue("orders").queue("shop");
            d.service("//shop/Warehouse", "orders", ["//shop/Orders"]).service("//shop/Shop", "shop", []);
        })
        .await?;
    broker.sql("create table stock (sku text primary key, pieces integer not null check (pieces >= 0))", ()).await?;
    broker.sql("create table shipment (order_id integer primary key, sku text not null)", ()).await?;
    broker.sql("insert into stock values ('A-1', 5)", ()).await?;

    for (id, pieces) in [(1, 3), (2, 4)] {
        let dialog = broker.begin_dialog("//shop/Shop", "//shop/Warehouse").contract("//shop/Orders").await?;
        broker.send(dialog, ORDER, &Order { id, sku: "A-1".into(), pieces }).await?;
    }

    loop {
        let tx = broker.begin().await?;
        let Some(batch) = tx.receive("orders").top(1).await? else { break };
        let message = batch.first();
        tx.savepoint("before shipping").await?;
        match ship(&tx, message).await {
            Ok(()) => println!("shipped: {}", message.text()?),
            Err(why) => {
                // What was done since is undone; the message is still taken, so the refusal and the taking commit together.
                tx.rollback_to("before shipping").await?;
                tx.end_with_error(message.handle(), 1, why.clone()).await?;
                println!("refused: {}: {why}", message.text()?);
            }
        }
        tx.commit().await?;
    }

    let stock: i64 = broker.query("select pieces from stock where sku = ?1", ("A-1",)).await?.rows[0].get("pieces")?;
    let shipments = broker.query("select order_id from shipment", ()).await?;
    assert_eq!((stock, shipments.rows.len()), (2, 1), "one order was shipped, and only its pieces are gone");

    let mut answers = Vec::new();
    while let Some(batch) = broker.receive("shop").await? {
        answers.extend(batch.iter().map(|message| match message.error() {
            Some(error) => format!("refused: {}", error.description),
            None => message.message_type_name.to_string(),
        }));
        broker.end(batch.first().handle()).await?;
    }
    println!("the shop got {answers:?}");
    assert!(answers.contains(&"refused: 4 pieces of A-1 wanted, 2 there".to_owned()));
    assert!(answers.contains(&"//shop/Shipped".to_owned()));
    broker.close().await
}

/// Takes from stock, notes the shipment, answers. Any of it may turn out impossible after some of it was done.
async fn ship(tx: &Tx, message: &Message) -> Result<(), String> {
    let order = message.decode(ORDER).map_err(|error| error.to_string())?;
    let work = async {
        tx.sql("insert into shipment values (?1, ?2)", (order.id, order.sku.as_str())).expect_rows(1).await?;
        tx.send(message.handle(), SHIPPED, &()).await?;
        let taken = "update stock set pieces = pieces - ?2 where sku = ?1 and pieces >= ?2";
        match tx.sql(taken, (order.sku.as_str(), order.pieces)).await? {
            0 => {
                let found = tx.query("select pieces from stock where sku = ?1", (order.sku.as_str(),)).await?;
                found.rows[0].get::<i64>("pieces").map(Some)
            }
            _ => tx.end(message.handle()).await.map(|_| None),
        }
    };
    match work.await.map_err(|error| error.to_string())? {
        None => Ok(()),
        Some(there) => Err(format!("{} pieces of {} wanted, {there} there", order.pieces, order.sku)),
    }
}
