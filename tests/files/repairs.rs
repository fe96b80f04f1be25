//! What an opening mends, table by table, and what it refuses.

use crate::shop::{began, bodies, definitions, dialog, enable, open, options, receive, send, sql};
use dialoq::Code;
use dialoq::id::ConversationHandle;
use dialoq::protocol::definition::{Definition, QueueOptions};
use dialoq::protocol::{From, Verb};
use dialoq::store::Store;
use dialoq::store::sqlite::SqliteStore;
use std::path::Path;

/// A broker with something in every table: one conversation that lives and, in the transmission queue, one message.
async fn broker(path: &Path) -> ConversationHandle {
    let store = open(path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let retention = QueueOptions { retention: Some(true), ..QueueOptions::default() };
    let alter = Definition::AlterQueue { name: "to".into(), options: retention };
    store.submit(vec![Verb::Define(vec![alter])]).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    for body in ["zero", "one", "two", "three"] {
        store.submit(vec![send(handle, body)]).await.unwrap();
    }
    store.submit(vec![receive(1)]).await.unwrap();
    let waiting = began(&store.submit(vec![dialog("nobody")]).await.unwrap()[0]);
    store.submit(vec![send(waiting, "waits")]).await.unwrap();
    store.close().await.unwrap();
    handle
}

fn damage(path: &Path, text: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(text).unwrap();
}

/// A row that belongs to nothing, and the table that is named in the report.
const ORPHANS: [(&str, &str); 10] = [
    (
        "insert into dialoq_queue_message values (999, 77, 0, 0, 65536, randomblob(16), 0, null, null)",
        "dialoq_queue_message",
    ),
    (
        "insert into dialoq_transmission values (999, 77, 0, 65536, 0, 0, randomblob(16), 0, 5, null, null, '')",
        "dialoq_transmission",
    ),
    ("insert into dialoq_receive_sequence values (77, 3)", "dialoq_receive_sequence"),
    (
        "insert into dialoq_retained_message values (77, 5, 0, 0, 0, 65536, randomblob(16), 0, null, null)",
        "dialoq_retained_message",
    ),
    (
        "insert into dialoq_service_contract_message_usage values (7777, 0, 't', 1, 1)",
        "dialoq_service_contract_message_usage",
    ),
    ("insert into dialoq_service_contract_usage values (7777, 0, 6)", "dialoq_service_contract_usage"),
    (
        "insert into dialoq_service_contract_usage select service_id, 9, 7777 from dialoq_service where name = 'b'",
        "dialoq_service_contract_usage",
    ),
    (
        "insert into dialoq_conversation_priority values (7777, 'p', 8888, null, null, 5)",
        "dialoq_conversation_priority",
    ),
    (
        "insert into dialoq_event_notification values (7777, 'n', 8888, 'QUEUE_ACTIVATION', 'b', randomblob(16))",
        "dialoq_event_notification",
    ),
    ("update dialoq_broker set next_object_id = 1", "dialoq_broker"),
];

#[tokio::test]
async fn rows_that_belong_to_nothing_are_removed_and_reported() {
    let _limit = crate::limit();
    for (text, table) in ORPHANS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let handle = broker(&path).await;
        damage(&path, text);
        let store = SqliteStore::open(options(&path)).unwrap_or_else(|error| panic!("{text}: {error}"));
        let tables: Vec<_> = store.repairs().iter().map(|repair| repair.table).collect();
        assert!(tables.contains(&table), "{text}: {tables:?}");
        store.submit(vec![send(handle, "four")]).await.unwrap();
        let received = bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]);
        assert_eq!(received, ["one", "two", "three", "four"], "{text}");
        store.close().await.unwrap();
        drop(store);
        let store = open(&path);
        assert!(store.repairs().is_empty(), "{text}: mended once, {:?}", store.repairs());
    }
}

#[tokio::test]
async fn a_broker_tells_what_was_mended() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    broker(&path).await;
    for (text, _) in ORPHANS {
        damage(&path, text);
    }
    let broker = dialoq::Broker::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let shown: Vec<String> = broker.repairs().iter().map(ToString::to_string).collect();
    assert!(shown.len() >= ORPHANS.len() - 1, "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("message 999 of endpoint 77")), "{shown:#?}");
    broker.close().await.unwrap();
}

/// A contradiction inside one conversation, and the table that is named.
const CONTRADICTIONS: [(&str, &str); 3] = [
    ("delete from dialoq_queue_message where sequence = 2", "dialoq_queue_message"),
    ("update dialoq_queue_message set message_type_id = 7777 where sequence = 2", "dialoq_queue_message"),
    (
        "update dialoq_conversation_endpoint set service_contract_id = 7777 where is_initiator = 0",
        "dialoq_conversation_endpoint",
    ),
];

#[tokio::test]
async fn a_conversation_that_contradicts_itself_is_set_aside_and_the_others_go_on() {
    let _limit = crate::limit();
    for (text, table) in CONTRADICTIONS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        broker(&path).await;
        damage(&path, text);
        let store = SqliteStore::open(options(&path)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(store.repairs()[0].table, table, "{text}: {:?}", store.repairs());
        let other = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
        store.submit(vec![send(other, "other")]).await.unwrap();
        let all = Verb::Receive { queue: "to".into(), top: Some(9), from: From::Any };
        assert_eq!(bodies(&store.submit(vec![all]).await.unwrap()[0]), ["other"], "{text}");
        let aside = sql("select count(*) as n from dialoq_conversation_endpoint where is_quarantined", Vec::new());
        let aside = store.query(aside).await.unwrap().rows[0].get::<i64>("n").unwrap();
        assert_eq!(aside, 1, "{text}");
        store.close().await.unwrap();
        drop(store);
        // What was set aside stays so, and is told again until somebody ends the conversation.
        drop(open(&path));
    }
}

/// What nobody can put right without a backup.
const REFUSED: [(&str, &str); 5] = [
    ("delete from dialoq_broker", "dialoq_broker"),
    ("update dialoq_service set queue_id = 7777 where name = 'b'", "'b'"),
    ("update dialoq_conversation_endpoint set service_id = 7777", "7777"),
    ("update dialoq_conversation_endpoint set state = 'ZZ'", ""),
    (
        "update dialoq_conversation_endpoint set conversation_handle = \
         (select conversation_handle from dialoq_conversation_endpoint limit 1)",
        "handle",
    ),
];

#[tokio::test]
async fn what_is_not_certain_is_refused_by_name() {
    let _limit = crate::limit();
    for (text, name) in REFUSED {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        broker(&path).await;
        damage(&path, text);
        let before = std::fs::read(&path).unwrap();
        let error = SqliteStore::open(options(&path)).err().expect(text);
        assert_eq!(error.code(), Code::STORE_DAMAGED, "{text}: {error}");
        assert!(error.message().contains(name), "{text}: {error}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{text}: a refused file is left as it is");
    }
}

#[tokio::test]
async fn numbers_above_the_marks_are_not_given_out_again() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let handle = broker(&path).await;
    damage(&path, "update dialoq_broker set next_queuing_order = 1, next_endpoint_id = 1, next_transmission_id = 1");
    let store = open(&path);
    assert_eq!(store.repairs().len(), 1, "{:?}", store.repairs());
    store.submit(vec![enable(true)]).await.unwrap();
    store.submit(vec![send(handle, "four")]).await.unwrap();
    let received = bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]);
    assert_eq!(received, ["one", "two", "three", "four"]);
}
