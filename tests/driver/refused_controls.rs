//! BEGIN, a savepoint or COMMIT that the server refuses, as after a cancel that was meant for the statement before and came late. It
//! travels with a request, which arrives all the same.

use crate::enlisting::{dialog, on};
use crate::proxy::Network;
use crate::servers::Store;
use dialoq::postgres::Enlisted;
use dialoq::postgres::tokio_postgres::{self, NoTls};
use dialoq::protocol::Verb;
use dialoq::{Act, Broker, Code, ConversationHandle};
use std::sync::Arc;
use uuid::Uuid;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, DEFERRABLE";
/// The release of the verb before, which travels with the savepoint of the next one.
const RELEASE: &str = "RELEASE SAVEPOINT dialoq_0";

async fn received(act: &impl Act) -> Vec<String> {
    let batch = act.receive("server").await.unwrap();
    batch.map_or_else(Vec::new, |batch| batch.iter().map(|message| message.text().unwrap().into_owned()).collect())
}

async fn things(broker: &Broker) -> i64 {
    broker.query("SELECT count(*) AS n FROM thing", ()).await.unwrap().rows[0].get("n").unwrap()
}

fn send(handle: ConversationHandle, text: &str) -> Verb {
    Verb::Send {
        handles: vec![handle],
        message_type: Some("//t/Word".into()),
        body: Some(Arc::new(text.as_bytes().to_vec())),
        trace: None,
    }
}

/// A broker over a network, with one connection for its transactions.
async fn over(network: &Network) -> Broker {
    Broker::open(&format!("{}&pool_size=1", network.url())).await.unwrap()
}

/// The unit committed alone what came with BEGIN: the row of its id, so that the repetition found that it had happened.
pub(crate) fn a_unit_whose_begin_is_refused_has_not_happened(store: Store) {
    on(store, |direct, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let (broker, handle, id) = (over(&network).await, dialog(&direct).await, Uuid::new_v4());
        network.spoil_at(BEGIN);
        broker.submit_once(id, vec![send(handle, "a"), send(handle, "b")]).await.unwrap_err();
        assert!(network.was_cut());
        assert!(!direct.unit_happened(id).await.unwrap());
        assert!(received(&direct).await.is_empty());
        let done = broker.submit_once(id, vec![send(handle, "a"), send(handle, "b")]).await.unwrap();
        assert!(done.is_some(), "it had not happened");
        assert_eq!(received(&direct).await, ["a", "b"]);
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_verb_whose_begin_is_refused_has_not_happened(store: Store) {
    on(store, |direct, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let (broker, handle, id) = (over(&network).await, dialog(&direct).await, Uuid::new_v4());
        let tx = broker.begin().await.unwrap();
        network.spoil_at(BEGIN);
        tx.send(handle, "//t/Word", "a").await.unwrap_err();
        tx.rollback().await.unwrap();
        let tx = broker.begin().await.unwrap();
        network.spoil_at(BEGIN);
        tx.claim(id).await.unwrap_err();
        tx.rollback().await.unwrap();
        assert!(!direct.unit_happened(id).await.unwrap());
        assert!(received(&direct).await.is_empty());
        direct.send(handle, "//t/Word", "kept").await.unwrap();
        let tx = broker.begin().await.unwrap();
        network.spoil_at(BEGIN);
        tx.receive("server").await.unwrap_err();
        drop(tx);
        assert_eq!(received(&direct).await, ["kept"]);
        broker.close().await.unwrap();
    });
}

/// The user's own statement cannot be kept from running: the error says that it may have.
pub(crate) fn a_statement_whose_begin_is_refused_is_not_repeated(store: Store) {
    on(store, |direct, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let broker = over(&network).await;
        let tx = broker.begin().await.unwrap();
        network.spoil_at(BEGIN);
        let error = tx.sql("INSERT INTO thing VALUES (1)", ()).await.unwrap_err();
        assert_eq!(error.code(), Code::COMMIT_UNKNOWN, "{error}");
        assert!(!error.is_retryable());
        tx.commit().await.unwrap_err();
        assert_eq!(things(&direct).await, 1);
        // The reads of the broker's own tables have more after it.
        network.spoil_at("READ ONLY\0");
        let query = broker.query("INSERT INTO thing VALUES (2) RETURNING id", ());
        let error = query.await.unwrap_err();
        assert!(network.was_cut());
        assert_eq!(error.code(), Code::COMMIT_UNKNOWN, "{error}");
        broker.close().await.unwrap();
    });
}

/// Going back to the savepoint of the verb undid the verb before it, and the transaction was committed without that.
pub(crate) fn a_refused_savepoint_ends_the_transaction(store: Store) {
    on(store, |direct, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let (broker, handle) = (over(&network).await, dialog(&direct).await);
        for is_sql in [false, true] {
            let tx = broker.begin().await.unwrap();
            tx.sql("INSERT INTO thing VALUES (1)", ()).await.unwrap();
            tx.send(handle, "//t/Word", "a").await.unwrap();
            network.spoil_at(RELEASE);
            if is_sql {
                tx.sql("INSERT INTO thing VALUES (2)", ()).await.unwrap_err();
            } else {
                tx.send(handle, "//t/Word", "b").await.unwrap_err();
            }
            assert!(network.was_cut());
            assert_eq!(tx.commit().await.unwrap_err().code(), Code::TRANSACTION_ENDED);
            assert_eq!((received(&direct).await.len(), things(&direct).await), (0, 0), "with SQL: {is_sql}");
        }
        broker.close().await.unwrap();
    });
}

/// Its session went back into the pool with the transaction, and every verb on it failed.
pub(crate) fn a_refused_commit_leaves_no_transaction_to_the_next_caller(store: Store) {
    on(store, |direct, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let (broker, handle) = (over(&network).await, dialog(&direct).await);
        for receives in [false, true] {
            let tx = broker.begin().await.unwrap();
            if receives {
                direct.send(handle, "//t/Word", "a").await.unwrap();
                assert_eq!(received(&tx).await, ["a"]);
            } else {
                tx.send(handle, "//t/Word", "b").await.unwrap();
            }
            network.spoil_at("COMMIT");
            tx.commit().await.unwrap_err();
            assert!(network.was_cut());
            for _ in 0..3 {
                dialog(&broker).await;
            }
        }
        assert_eq!(received(&direct).await, ["a"]);
        broker.close().await.unwrap();
    });
}

/// It had happened, and its caller was to try again.
pub(crate) fn a_verb_whose_savepoint_is_refused_without_a_transaction_has_happened(store: Store) {
    on(store, |direct, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let handle = dialog(&direct).await;
        let (client, connection) = tokio_postgres::connect(network.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        network.spoil_at("SAVEPOINT");
        Enlisted::new(&direct, &client).send(handle, "//t/Word", "once").await.unwrap();
        assert!(network.was_cut());
        client.batch_execute("BEGIN").await.unwrap();
        network.spoil_at("SAVEPOINT");
        Enlisted::new(&direct, &client).send(handle, "//t/Word", "not").await.unwrap_err();
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(received(&direct).await, ["once"]);
    });
}
