//! Messages in a PostgreSQL transaction of the application's own, on its own connection.
//!
//! `cargo run --example enlist_postgres postgres://user:password@host/database`, or with that URL in `DIALOQ_URL`.
//!
//! The database may be any in which that user may make a schema; what the example makes of its own it drops again.

use dialoq::postgres::Enlisted;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::{Act, Broker, MessageType};

const LOW: MessageType<String> = MessageType::json("//example/Low");
type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("DIALOQ_URL").ok());
    match url.filter(|url| url.starts_with("postgres")) {
        Some(url) => run(&url).await,
        None => {
            println!(
                "nothing was done: this example needs a PostgreSQL server, postgres://user:password@host/database"
            );
            println!("name it as the argument, or in DIALOQ_URL");
            Ok(())
        }
    }
}

/// The example itself.
pub(crate) async fn run(url: &str) -> Result<(), Failed> {
    let broker = Broker::open(url).await?;
    broker
        .ensure(|d| {
            d.message_type(LOW);
            d.contract("//example/Restock").sent_by_initiator(LOW);
            d.queue("example_stock").queue("example_orders");
            d.service("//example/Stock", "example_stock", []);
            d.service("//example/Orders", "example_orders", ["//example/Restock"]);
        })
        .await?;

    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute("CREATE TEMPORARY TABLE stock (sku text PRIMARY KEY, pieces int NOT NULL)").await?;
    client.batch_execute("INSERT INTO stock VALUES ('A-1', 12), ('B-2', 11)").await?;

    sell(&broker, &mut client, "A-1", 3, true).await?;
    // The second sale does not happen, and so neither does its message.
    sell(&broker, &mut client, "B-2", 5, false).await?;

    let transaction = client.transaction().await?;
    let enlisted = Enlisted::new(&broker, &transaction);
    let mut ordered = Vec::new();
    while let Some(batch) = enlisted.receive("example_orders").await? {
        for message in batch.iter().filter(|message| &*message.message_type_name == LOW.name()) {
            ordered.push(message.decode(LOW)?);
        }
        enlisted.end(batch.first().handle()).await?;
    }
    let left: i64 = transaction.query_one("SELECT sum(pieces) FROM stock", &[]).await?.get(0);
    transaction.commit().await?;
    println!("to be ordered: {ordered:?}; pieces left: {left}");
    assert_eq!((ordered, left), (vec!["A-1".to_owned()], 9 + 11));

    // The other side of each conversation got its EndDialog.
    while let Some(batch) = broker.receive("example_stock").await? {
        broker.end(batch.first().handle()).await?;
    }
    broker.execute("DROP SERVICE [//example/Stock]; DROP SERVICE [//example/Orders]; DROP QUEUE example_stock").await?;
    broker.execute("DROP QUEUE example_orders; DROP CONTRACT [//example/Restock]").await?;
    broker.execute("DROP MESSAGE TYPE [//example/Low]").await?;
    broker.close().await?;
    drop(client);
    connection.await??;
    Ok(())
}

/// Takes pieces from stock and asks for more if few are left, both or neither.
async fn sell(broker: &Broker, client: &mut Client, sku: &str, pieces: i32, is_paid: bool) -> Result<(), Failed> {
    let transaction = client.transaction().await?;
    let taken = "UPDATE stock SET pieces = pieces - $2 WHERE sku = $1 RETURNING pieces";
    let left: i32 = transaction.query_one(taken, &[&sku, &pieces]).await?.get(0);
    if left < 10 {
        let enlisted = Enlisted::new(broker, &transaction);
        let dialog = enlisted.begin_dialog("//example/Stock", "//example/Orders").contract("//example/Restock").await?;
        enlisted.send(dialog, LOW, &sku.to_owned()).await?;
    }
    if is_paid {
        transaction.commit().await?
    } else {
        transaction.rollback().await?
    }
    Ok(())
}
