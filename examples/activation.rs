//! Activation: handlers by message type, launched when there is work, at most so many at a time.
//!
//! `cargo run --example activation`

use dialoq::activation::Handlers;
use dialoq::{Act, Broker, MessageType, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Resize {
    picture: String,
}

const RESIZE: MessageType<Resize> = MessageType::json("//pictures/Resize");
const RESIZED: MessageType<String> = MessageType::text("//pictures/Resized");

#[tokio::main]
async fn main() -> Result<()> {
    let broker = Broker::open("sqlite::memory:").await?;
    broker
        .ensure(|d| {
            d.message_type(RESIZE).message_type(RESIZED);
            d.contract("//pictures/Work").sent_by_initiator(RESIZE).sent_by_target(RESIZED);
            d.queue("work").queue("desk");
            d.service("//pictures/Workshop", "work", ["//pictures/Work"]).service("//pictures/Desk", "desk", []);
        })
        .await?;

    // A handler that fails or panics rolls its transaction back. EndDialog and Error end the conversation by themselves.
    let handlers = Handlers::new().on(RESIZE, async |context, resize| {
        context.reply(RESIZED, &format!("{} is small now", resize.picture)).await?;
        context.end_conversation().await?;
        Ok(())
    });
    let readers = broker.activate("work", handlers).max_queue_readers(3).start();

    for number in 1..=8 {
        let dialog = broker.begin_dialog("//pictures/Desk", "//pictures/Workshop").contract("//pictures/Work").await?;
        broker.send(dialog, RESIZE, &Resize { picture: format!("picture {number}") }).await?;
    }

    let mut answers = Vec::new();
    while answers.len() < 8 {
        let batch = broker.receive("desk").wait_forever().await?.expect("a wait without end gives something");
        for message in &batch {
            if message.is(RESIZED) {
                answers.push(message.decode(RESIZED)?);
            } else if message.is_end_dialog() {
                broker.end(message.handle()).await?;
            }
        }
    }
    answers.sort();
    println!("{} pictures, the first: {}", answers.len(), answers[0]);
    assert_eq!(answers[7], "picture 8 is small now");

    // Finishes what is in hand.
    readers.stop().await;
    broker.close().await
}
