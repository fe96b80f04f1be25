//! Priority: urgent items overtake those that came before them, by broker priority and nothing else.
//!
//! `cargo run --example inventory`

use dialoq::{Act, Broker, Level, MessageType, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct AddItem {
    sku: String,
}

const ADD_ITEM: MessageType<AddItem> = MessageType::json("//inventory/AddItem");

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(ADD_ITEM);
            d.contract("//inventory/Items").sent_by_initiator(ADD_ITEM);
            d.contract("//inventory/UrgentItems").sent_by_initiator(ADD_ITEM);
            d.queue("inventory").queue("loading_dock");
            d.service("//inventory/Inventory", "inventory", ["//inventory/Items", "//inventory/UrgentItems"]);
            d.service("//inventory/LoadingDock", "loading_dock", []);
            // The contract chooses the level; what no broker priority names is at level 5.
            d.broker_priority("urgent items").contract("//inventory/UrgentItems").level(Level::new(9));
            d.broker_priority("items").contract("//inventory/Items").level(Level::new(2));
        })
        .await?;

    for number in 1..=6 {
        let (contract, class) = if number % 3 == 0 { ("UrgentItems", "urgent") } else { ("Items", "plain") };
        let dialog = broker
            .begin_dialog("//inventory/LoadingDock", "//inventory/Inventory")
            .contract(format!("//inventory/{contract}"))
            .await?;
        broker.send(dialog, ADD_ITEM, &AddItem { sku: format!("{class}-{number}") }).await?;
    }

    let mut order = Vec::new();
    while let Some(batch) = broker.receive("inventory").await? {
        for message in &batch {
            let item = message.decode(ADD_ITEM)?;
            println!("level {}: {}", message.priority, item.sku);
            order.push(item.sku);
        }
    }
    assert_eq!(order, ["urgent-3", "urgent-6", "plain-1", "plain-2", "plain-4", "plain-5"]);

    // Only a part of the levels, as a reader kept free for urgent work would ask.
    let none = broker.receive("inventory").levels(8..=10).await?;
    assert!(none.is_none());
    broker.close().await
}
