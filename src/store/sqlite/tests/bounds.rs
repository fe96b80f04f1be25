//! Bounds of the store's input and of its memory.

use super::*;
use crate::store::Seen;

#[test]
fn no_limit_of_bodies_is_above_what_sqlite_can_store() {
    let most = |asked: usize| {
        let mut options = SqliteOptions::new(Location::Memory);
        options.limits.max_body_bytes = asked;
        SqliteStore::open(options).unwrap().engine.lock_even_failed().core.max_body_bytes()
    };
    assert!(most(usize::MAX) < 1_000_000_000, "SQLite's limit for one value");
    assert_eq!(most(1000), 1000);
}

#[tokio::test]
async fn a_dropped_queue_leaves_no_name_in_memory() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let create = Definition::CreateQueue { name: "passing".into(), options: QueueOptions::default() };
    store.submit(vec![Verb::Define(vec![create])]).await.unwrap();
    let activity = Arc::downgrade(&store.activity().queue("passing"));
    store
        .begin(Seen::always())
        .await
        .unwrap()
        .execute(Verb::GetConversationGroup { queue: "passing".into() })
        .await
        .unwrap();
    store.submit(vec![Verb::Define(vec![Definition::DropQueue { name: "passing".into() }])]).await.unwrap();
    store.submit(vec![receive()]).await.unwrap();
    // The board prunes its names when there are many.
    for number in 0..2000 {
        drop(store.activity().queue(&format!("nowhere {number}")));
    }
    assert_eq!(activity.strong_count(), 0);
}
