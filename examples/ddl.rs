//! Definitions as a script: applied wholly or not at all, dumped again, and refused with line and column.
//!
//! `cargo run --example ddl`

use dialoq::{Act, Broker, Code, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker.execute(include_str!("shop.sql")).await?;
    let dump = broker.dump();
    println!("{dump}");

    // What was dumped makes the same broker again.
    let copy = Broker::open("sqlite::memory:").await?;
    copy.execute(&dump).await?;
    assert_eq!(copy.dump(), dump);

    // A script with an error anywhere does nothing at all.
    let script = "CREATE QUEUE returns;\nCREATE SERVICE [//shop/Returns] ON QUEUE retruns;";
    let error = broker.execute(script).await.expect_err("the queue's name is misspelt");
    println!("refused: {error}");
    assert_eq!(error.code(), Code::OBJECT_NOT_FOUND);
    assert_eq!(error.position().map(|position| position.line), Some(2));
    assert!(broker.catalog().queue("returns").is_none(), "the first statement was not applied either");

    let dialog = broker.begin_dialog("//shop/Checkout", "//shop/OrderService").contract("//shop/Orders").await?;
    broker.send(dialog, "//shop/PlaceOrder", r#"{"sku": "A-1"}"#).await?;
    let batch = broker.receive("orders").await?.expect("the order is there");
    assert_eq!((batch.first().priority, batch.first().validation.letter()), (9, "J"));
    broker.close().await
}
