//! What a close waits for.

use super::*;
use crate::store::Seen;

/// Lets all tasks run for a while, or until that one has ended. The time is a paused one: on a slow machine 300 real
/// sleeps take longer than a close waits.
async fn run_tasks<T>(beside: &JoinHandle<T>) {
    for _ in 0..300 {
        if beside.is_finished() {
            return;
        }
        // The notices to other processes gather for some milliseconds.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn close(store: &Arc<DatabaseStore>) -> JoinHandle<Result<()>> {
    let store = store.clone();
    tokio::spawn(async move { store.close().await })
}

/// A process ends soon after its close: the count of the rollback was lost with it.
#[tokio::test(start_paused = true)]
async fn a_close_waits_for_the_rollback_of_a_transaction_that_was_dropped_before() {
    let _limit = crate::testing::limit();
    for is_asked_for in [false, true] {
        let stage = Stage::new();
        let store = stage.open().await;
        stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(receive()).await.unwrap();
        stage.rollbacks.forget_permits(usize::MAX);
        match is_asked_for {
            false => drop(tx),
            // Its caller does not wait for it.
            true => leaving::leave_during(&stage, tx.rollback(None), "rollback").await,
        }
        let closing = close(&store);
        run_tasks(&closing).await;
        assert!(!closing.is_finished(), "asked for: {is_asked_for}");
        stage.rollbacks.add_permits(10);
        closing.await.unwrap().unwrap();
        assert_eq!(stage.asked(&["rollback", "count_rollback"]), ["rollback", "count_rollback"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_close_waits_for_the_first_and_does_what_that_has_left() {
    let _limit = crate::testing::limit();
    for has_left in [false, true] {
        let stage = Stage::new();
        let store = stage.open().await;
        stage.gate.forget_permits(usize::MAX);
        let sending = tokio::spawn({
            let store = store.clone();
            async move { store.submit(vec![send(1, "Text", b"x")]).await }
        });
        stage.until_asked("send", 1).await;
        let first = close(&store);
        run_tasks(&first).await;
        if has_left {
            first.abort();
        }
        let second = close(&store);
        run_tasks(&second).await;
        assert!(!second.is_finished(), "the SEND is under way; the first has left: {has_left}");
        stage.gate.add_permits(10);
        sending.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(stage.asked(&["close"]), ["close"]);
        store.close().await.unwrap();
        assert_eq!(stage.asked(&["close"]).len(), 1, "it is closed");
    }
}
