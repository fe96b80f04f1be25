//! A handler that fails, its retries, the dead letter, and the redrive once the cause is mended.
//!
//! `cargo run --example dead_letters`

use dialoq::activation::{HandlerError, Handlers};
use dialoq::define::{AfterRetries, Pauses, RetryPolicy};
use dialoq::status::DeadLetterFilter;
use dialoq::{Act, Broker, ConversationHandle, MessageType, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
struct PlaceOrder {
    sku: String,
}

const PLACE_ORDER: MessageType<PlaceOrder> = MessageType::json("//shop/PlaceOrder");
const ORDER_PLACED: MessageType<String> = MessageType::text("//shop/OrderPlaced");
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(PLACE_ORDER).message_type(ORDER_PLACED);
            d.contract("//shop/Orders").sent_by_initiator(PLACE_ORDER).sent_by_target(ORDER_PLACED);
            // Three attempts with pauses of 20 and 40 ms. In earnest the pauses are seconds and minutes.
            let pauses = Pauses { delay_ms: 20, factor_percent: 200, max_delay_ms: 1000, jitter_percent: 0 };
            d.queue("orders").retry(RetryPolicy { max_attempts: 3, pauses, then: AfterRetries::DeadLetter });
            d.queue("checkout");
            d.service("//shop/OrderService", "orders", ["//shop/Orders"]).service("//shop/Checkout", "checkout", []);
        })
        .await?;

    // The warehouse does not know one of the articles, for now.
    let is_known = Arc::new(AtomicBool::new(false));
    let attempts = Arc::new(AtomicU32::new(0));
    let handlers = Handlers::new().on(PLACE_ORDER, {
        let (is_known, attempts) = (is_known.clone(), attempts.clone());
        async move |context, order| {
            if order.sku == "NEW-1" && !is_known.load(Ordering::Relaxed) {
                let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
                println!("attempt {attempt} at {}: the warehouse does not know it", order.sku);
                // Whatever the handler did is rolled back, and the message returns to its queue for the next attempt.
                return Err(HandlerError::new("the warehouse does not know NEW-1"));
            }
            context.reply(ORDER_PLACED, &format!("{} is on its way", order.sku)).await?;
            Ok(())
        }
    });
    let readers = broker.activate("orders", handlers).max_queue_readers(1).start();

    // Two orders on one conversation: the first fails.
    let dialog = broker.begin_dialog("//shop/Checkout", "//shop/OrderService").contract("//shop/Orders").await?;
    for sku in ["NEW-1", "A-2"] {
        broker.send(dialog, PLACE_ORDER, &PlaceOrder { sku: sku.into() }).await?;
    }

    // After the third attempt the message is a dead letter, and its conversation goes on with the next one.
    assert_eq!(answer(&broker, dialog).await?, "A-2 is on its way");
    println!("the conversation goes on: A-2 is on its way");
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
    let letters = broker.dead_letters(&DeadLetterFilter::default(), 10, 1024).await?;
    let [letter] = &letters[..] else { panic!("one dead letter, not {letters:?}") };
    println!(
        "dead letter of queue {}: {} after {} attempts, because {}",
        letter.queue,
        String::from_utf8_lossy(&letter.body.bytes),
        letter.attempts,
        letter.reason.as_deref().unwrap_or("an unknown reason"),
    );
    for finding in broker.doctor().await? {
        println!("doctor: {}", finding.what);
    }

    // The cause is mended, so the letter goes back to its conversation and is handled as if it had just arrived.
    is_known.store(true, Ordering::Relaxed);
    let filter = DeadLetterFilter { queue: Some("orders".into()), ..DeadLetterFilter::default() };
    let done = broker.redrive_dead_letters(&filter).await?;
    println!("redriven: {}", done.redriven);
    assert_eq!(answer(&broker, dialog).await?, "NEW-1 is on its way");
    println!("NEW-1 is on its way");
    assert!(broker.dead_letters(&filter, 10, 0).await?.is_empty());

    readers.stop().await;
    broker.end(dialog).await?;
    broker.close().await
}

async fn answer(broker: &Broker, dialog: ConversationHandle) -> Result<String> {
    let batch = broker.receive("checkout").conversation(dialog).wait(PATIENCE).await?.expect("an answer in time");
    batch.first().decode(ORDER_PLACED)
}
