//! `Broker::doctor` finds each fault, one at a time.

use crate::servers::Store;
use crate::{HOUR, Patient, broker, dialog};
use dialoq::Act;
use dialoq::status::{Finding, FindingKind, PATIENCE};
use dialoq::testing::START;
use std::time::Duration;

/// The only finding, after enough time for it to count.
async fn only(broker: &Patient, kind: FindingKind, subject: &str, amount: u64) -> Finding {
    let found = broker.doctor().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.into_iter().next().unwrap();
    assert_eq!((finding.kind, &*finding.subject, finding.amount), (kind, subject, amount));
    assert!(finding.what.contains(subject) && !finding.advice.is_empty(), "{finding}");
    finding
}

pub(crate) async fn a_healthy_broker_has_no_findings(store: Store) {
    let broker = broker(store).await;
    assert_eq!(broker.doctor().await.unwrap(), []);
    let dialog = dialog(&broker).await;
    let batch = broker.receive("work").await.unwrap().unwrap();
    broker.end(batch.first().handle()).await.unwrap();
    broker.receive("home").await.unwrap().unwrap();
    broker.end(dialog).await.unwrap();
    broker.advance(HOUR);
    assert_eq!(broker.doctor().await.unwrap(), []);
}

pub(crate) async fn services_that_never_end_are_named(store: Store) {
    let broker = broker(store).await;
    for _ in 0..3 {
        let dialog = dialog(&broker).await;
        broker.end(dialog).await.unwrap();
    }
    broker.advance(PATIENCE + Duration::from_secs(1));
    only(&broker, FindingKind::WaitingMessages, "work", 6).await;
    while broker.receive("work").await.unwrap().is_some() {}
    let finding = only(&broker, FindingKind::NeverEnded, "worker", 3).await;
    assert!(finding.advice.contains("'work'"), "{finding}");
    assert_eq!(finding.since, Some(START));
}

pub(crate) async fn waiting_messages_count_only_once_they_are_old(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    broker.advance(PATIENCE);
    assert_eq!(broker.doctor().await.unwrap(), []);
    broker.advance(Duration::from_micros(1));
    only(&broker, FindingKind::WaitingMessages, "work", 1).await;
    assert_eq!(broker.doctor_after(HOUR).await.unwrap(), []);
}

pub(crate) async fn disabled_queues_and_their_waiting_messages_are_named(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    broker.execute("ALTER QUEUE work WITH STATUS = OFF").await.unwrap();
    only(&broker, FindingKind::DisabledQueue, "work", 1).await;
    dialog(&broker).await;
    only(&broker, FindingKind::DisabledQueue, "work", 2).await;
    broker.execute("ALTER QUEUE work WITH STATUS = ON").await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

/// A disabled broker was no finding: its messages were, once they had waited for five minutes.
pub(crate) async fn a_disabled_broker_is_named(store: Store) {
    let broker = broker(store).await;
    broker.execute("ALTER DATABASE CURRENT SET DISABLE_BROKER").await.unwrap();
    let finding = only(&broker, FindingKind::BrokerDisabled, "broker", 1).await;
    assert!(finding.advice.contains("ENABLE_BROKER"), "{finding}");
    broker.execute("ALTER DATABASE CURRENT SET ENABLE_BROKER").await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

pub(crate) async fn undelivered_messages_come_with_their_status(store: Store) {
    let broker = broker(store).await;
    let dialog = broker.begin_dialog("client", "nowhere").lifetime(100 * HOUR).await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    broker.advance(HOUR);
    let finding = only(&broker, FindingKind::Undelivered, "nowhere", 1).await;
    let status = broker.transmission_status(dialog).await.unwrap();
    assert!(!status.is_empty() && finding.what.contains(&status), "{finding}");
}

pub(crate) async fn quarantined_groups_are_named(store: Store) {
    let broker = broker(store).await;
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

pub(crate) async fn conversations_without_lifetime_are_named(store: Store) {
    let broker = broker(store).await;
    let dialog = broker.begin_dialog("client", "worker").await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    assert!(broker.receive("work").await.unwrap().is_some());
    broker.advance(HOUR);
    let finding = only(&broker, FindingKind::WithoutLifetime, "client", 1).await;
    assert!(finding.what.contains("'worker'"), "{finding}");
}
