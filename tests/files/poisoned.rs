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
