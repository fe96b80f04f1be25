//! A broker that is dropped while its writer is busy writes nothing more.

use crate::shop::{began, definitions, dialog, open, options, send, sql, texts};
use crate::{is_free, until};
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::SqliteStore;
use dialoq::protocol::{EndForm, Outcome, ReceiveFrom, Verb};
use std::time::Duration;

fn end(handle: dialoq::ConversationHandle) -> Verb {
    Verb::EndConversation { handle, form: EndForm::Plain }
}

/// Polls a future once.
async fn start<F: Future + Unpin>(work: &mut F) {
    tokio::select! {
        biased;
        _ = work => panic!("it does not end by itself"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn a_broker_dropped_while_its_writer_is_busy_keeps_acknowledged_work() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open({
        let mut options = options(&path);
        options.limits.closed_retention = Duration::ZERO;
        options
    })
    .unwrap();
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store.run_sql(sql("create table t (n integer)", Vec::new())).await.unwrap();
    let initiator = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    store.submit(vec![send(initiator, "first")]).await.unwrap();
    let first = Verb::Receive { queue: "to".into(), top: Some(1), from: ReceiveFrom::Any };
    let target = match &store.submit(vec![first]).await.unwrap()[0] {
        Outcome::Received(messages) => messages[0].conversation_handle,
        other => panic!("{other:?}"),
    };
    for body in ["one", "two", "three"] {
        store.submit(vec![send(initiator, body)]).await.unwrap();
    }
    store.submit(vec![end(initiator)]).await.unwrap();

    let tx = crate::endless_at_its_commit(&store).await;
    {
        let mut commit = tx.commit();
        start(&mut commit).await;
    }
    until("the writer is busy", || !is_free(&path)).await;
    {
        // Ordered, and not written before the writer is back.
        let mut ended = store.submit(vec![end(target)]);
        start(&mut ended).await;
    }
    drop(store);

    let store = open(&path);
    assert_eq!(texts(&*store, "select count(*) from t").await, ["Integer(0)"], "the commit was never answered");
    let left = texts(&*store, "select message_body from queue_messages where queue_name = 'to' and message_body <> ''");
    assert_eq!(left.await, ["one", "two", "three"]);
}
