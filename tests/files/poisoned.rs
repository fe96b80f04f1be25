//! A store that can write no more says so and still closes.

use crate::PATIENCE;
use crate::shop::{began, definitions, dialog, options, send};
use dialoq::Clock;
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::{Fault, SqliteStore};
use dialoq::protocol::Verb;
use dialoq::testing::START;
use std::time::Duration;

#[tokio::test]
async fn a_store_that_failed_closes_although_a_timer_is_due() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder.path().join("a.db"));
    let clock = Clock::manual(START);
    options.clock = clock.clone();
    options.fault = Some(Fault::before(200));
    let store = SqliteStore::open(options).unwrap();
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    store.submit(vec![Verb::BeginConversationTimer { handle, timeout_seconds: 1 }]).await.unwrap();
    while store.submit(vec![send(handle, "until it fails")]).await.is_ok() {}
    // What is due stays due, because nothing more can be written.
    clock.advance(Duration::from_secs(2));
    let closed = tokio::time::timeout(PATIENCE, store.close()).await.expect("a close ends");
    assert!(closed.is_err(), "it says what happened: {closed:?}");
}

/// A process whose handlers only wait for messages would wait for ever.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_only_waits_learns_that_its_store_takes_nothing_more() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let broker = dialoq::Broker::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let failed = tokio::spawn({
        let broker = broker.clone();
        async move { broker.failed().await }
    });
    std::fs::remove_file(&path).unwrap();
    let error = tokio::time::timeout(PATIENCE, failed).await.expect("it is noticed").unwrap();
    assert_eq!(error.code(), dialoq::Code::STORE_POISONED, "{error}");
    let _ = broker.close().await;
    let closed = tokio::time::timeout(PATIENCE, broker.failed()).await.expect("it is noticed");
    assert_eq!(closed.code(), dialoq::Code::STORE_CLOSED, "{closed}");
}
