//! Panics: of a thread that writes, and of the application.

use super::*;
use crate::store::Seen;

#[tokio::test]
async fn a_thread_that_panics_while_it_writes_fails_the_callers_and_leaves_none_waiting() {
    let _limit = crate::testing::limit();
    for is_lone in [false, true] {
        let store = defined(SqliteOptions::new(Location::Memory)).await;
        let handle = begin(&store).await;
        // A lone caller writes on its own thread, all others leave it to the writer.
        for _ in 0..if is_lone { 20 } else { 0 } {
            store.submit(vec![send(handle, "x")]).await.unwrap();
        }
        let engine = store.engine.clone();
        let panicked = std::thread::spawn(move || {
            let _write = engine.write.lock().unwrap();
            panic!("asked for");
        });
        assert!(panicked.join().is_err());
        for _ in 0..3 {
            let error = store.submit(vec![send(handle, "never")]).await.unwrap_err();
            assert_eq!(error.code(), Code::STORE_POISONED, "{error}");
        }
        assert!(store.close().await.is_err());
    }
}

#[tokio::test]
async fn a_batch_that_panics_fails_its_callers_and_later_ones() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    // A read for an answer that is not there: the next batch but one panics.
    store.engine.write.lock().unwrap().spare.reads.push(batch::PendingRead { at: 0, answer: 99, slot: 0 });
    store.submit(vec![dialog()]).await.unwrap();
    for _ in 0..2 {
        let error = store.submit(vec![dialog()]).await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_POISONED, "{error}");
    }
    assert!(store.close().await.is_err());
}

/// A panic of the application drops its transactions, and a lone caller writes the rollback on its own thread.
#[tokio::test]
async fn a_panic_of_the_application_with_an_open_transaction_does_not_fail_the_store() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let handle = begin(&store).await;
    for _ in 0..20 {
        store.submit(vec![send(handle, "x")]).await.unwrap();
    }
    // The fifth rollback turns the queue off, which is written.
    for _ in 0..5 {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        assert_eq!(messages(&tx.execute(receive()).await.unwrap()).len(), 20);
        let panicked = std::thread::spawn(move || {
            let _held = tx;
            panic!("asked for");
        });
        assert!(panicked.join().is_err());
    }
    assert_eq!(store.submit(vec![receive()]).await.unwrap_err().code(), Code::QUEUE_DISABLED);
    store.submit(vec![send(handle, "y")]).await.unwrap();
    store.close().await.unwrap();
}
