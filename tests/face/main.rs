//! The face on the embedded store: what an application relies on beyond the single statements.

mod cancelling;
mod defining;
mod streams;
mod transactions;
mod waiting;
mod work_queues;
mod workers;

use dialoq::testing::TestBroker;
use dialoq::{Act, Broker, ConversationHandle, MessageType};
use std::time::Duration;

const NUMBER: MessageType<u64> = MessageType::json("//test/Number");

/// How long something that must happen may take before the test gives up on it.
const SOON: Duration = Duration::from_secs(20);

/// A limit for a test, held to its end.
fn limit() -> dialoq_test_support::limit::Limit {
    dialoq_test_support::limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}

/// Services `//test/Asker` on queue `asker` and `//test/Server` on queue `server`, and a contract between them.
async fn rig() -> TestBroker {
    let broker = TestBroker::in_memory().await.unwrap();
    broker
        .define(|d| {
            d.message_type(NUMBER);
            d.contract("//test/Numbers").sent_by_any(NUMBER);
            d.queue("asker").queue("server");
            d.service("//test/Asker", "asker", []).service("//test/Server", "server", ["//test/Numbers"]);
        })
        .await
        .unwrap();
    broker
}

async fn dialog(act: &impl Act) -> ConversationHandle {
    act.begin_dialog("//test/Asker", "//test/Server").contract("//test/Numbers").await.unwrap()
}

/// A conversation of its own with one number on it.
async fn send(act: &impl Act, number: u64) -> ConversationHandle {
    let handle = dialog(act).await;
    act.send(handle, NUMBER, &number).await.unwrap();
    handle
}

/// Lets other tasks run until so many sessions wait in the queue.
async fn until_waiting(broker: &Broker, queue: &str, sessions: usize) {
    let waiting = async {
        while broker.sessions_waiting(queue) < sessions {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("they never waited");
}
