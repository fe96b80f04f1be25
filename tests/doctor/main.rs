//! What `Broker::doctor` finds, one fault at a time.

use dialoq::maintain::{Finding, FindingKind, PATIENCE};
use dialoq::testing::TestBroker;
use dialoq::{Act, ConversationHandle};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

async fn broker() -> TestBroker {
    let broker = TestBroker::in_memory().await.unwrap();
    broker
        .execute(
            "CREATE QUEUE work; CREATE QUEUE home;
             CREATE SERVICE worker ON QUEUE work ([DEFAULT]);
             CREATE SERVICE client ON QUEUE home;",
        )
        .await
        .unwrap();
    broker
}

async fn dialog(broker: &TestBroker) -> ConversationHandle {
    let dialog = broker.begin_dialog("client", "worker").lifetime(100 * HOUR).await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    dialog
}

/// The only finding, after enough time for it to count.
async fn only(broker: &TestBroker, kind: FindingKind, subject: &str, amount: u64) -> Finding {
    let found = broker.doctor().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.into_iter().next().unwrap();
    assert_eq!((finding.kind, &*finding.subject, finding.amount), (kind, subject, amount));
    assert!(finding.what.contains(subject) && !finding.advice.is_empty(), "{finding}");
    finding
}

#[tokio::test]
async fn a_healthy_broker_has_no_findings() {
    let broker = broker().await;
    assert_eq!(broker.doctor().await.unwrap(), []);
    let dialog = dialog(&broker).await;
    let batch = broker.receive("work").await.unwrap().unwrap();
    broker.end(batch.first().handle()).await.unwrap();
    broker.receive("home").await.unwrap().unwrap();
    broker.end(dialog).await.unwrap();
    broker.advance(HOUR);
    assert_eq!(broker.doctor().await.unwrap(), []);
}

#[tokio::test]
async fn services_that_never_end_are_named() {
    let broker = broker().await;
    for _ in 0..3 {
        let dialog = dialog(&broker).await;
        broker.end(dialog).await.unwrap();
    }
    broker.advance(PATIENCE + Duration::from_secs(1));
    only(&broker, FindingKind::WaitingMessages, "work", 6).await;
    while broker.receive("work").await.unwrap().is_some() {}
    let finding = only(&broker, FindingKind::NeverEnded, "worker", 3).await;
    assert!(finding.advice.contains("'work'"), "{finding}");
    assert_eq!(finding.since, Some(dialoq::testing::START));
}

#[tokio::test]
async fn waiting_messages_count_only_once_they_are_old() {
    let broker = broker().await;
    dialog(&broker).await;
    broker.advance(PATIENCE);
    assert_eq!(broker.doctor().await.unwrap(), []);
    broker.advance(Duration::from_micros(1));
    only(&broker, FindingKind::WaitingMessages, "work", 1).await;
    assert_eq!(broker.doctor_after(HOUR).await.unwrap(), []);
}

#[tokio::test]
async fn disabled_queues_and_what_they_hold_up_are_named() {
    let broker = broker().await;
    dialog(&broker).await;
    broker.execute("ALTER QUEUE work WITH STATUS = OFF").await.unwrap();
    only(&broker, FindingKind::DisabledQueue, "work", 1).await;
    dialog(&broker).await;
    only(&broker, FindingKind::DisabledQueue, "work", 2).await;
    broker.execute("ALTER QUEUE work WITH STATUS = ON").await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

#[tokio::test]
async fn undelivered_messages_come_with_their_status() {
    let broker = broker().await;
    let dialog = broker.begin_dialog("client", "nowhere").lifetime(100 * HOUR).await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    broker.advance(HOUR);
    let finding = only(&broker, FindingKind::Undelivered, "nowhere", 1).await;
    let status = broker.transmission_status(dialog).await.unwrap();
    assert!(!status.is_empty() && finding.what.contains(&status), "{finding}");
}

#[tokio::test]
async fn quarantined_groups_are_named() {
    let broker = broker().await;
    broker.execute("ALTER QUEUE work WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON)").await.unwrap();
    dialog(&broker).await;
    for _ in 0..5 {
        let tx = broker.begin().await.unwrap();
        assert!(tx.receive("work").await.unwrap().is_some());
        tx.rollback().await.unwrap();
    }
    broker.advance(HOUR);
    only(&broker, FindingKind::Quarantined, "work", 1).await;
}

#[tokio::test]
async fn conversations_without_lifetime_are_named() {
    let broker = broker().await;
    let dialog = broker.begin_dialog("client", "worker").await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    assert!(broker.receive("work").await.unwrap().is_some());
    broker.advance(HOUR);
    let finding = only(&broker, FindingKind::WithoutLifetime, "client", 1).await;
    assert!(finding.what.contains("'worker'"), "{finding}");
}
