//! The repairs of an opening, table by table, and the damage that it refuses.

use crate::shop::{began, bodies, definitions, dialog, enable, open, options, receive, send, sql, texts};
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::SqliteStore;
use dialoq::protocol::definition::{Definition, QueueEvent, QueueOptions};
use dialoq::protocol::{EndForm, Outcome, ReceiveFrom, Verb, system};
use dialoq::testing::START;
use dialoq::{Act, Broker, Clock, Code, ConversationHandle, GroupId, OpenOptions};
use std::path::Path;
use std::time::Duration;

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
    let waiting = began(&store.submit(vec![dialog("missing")]).await.unwrap()[0]);
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
async fn a_broker_reports_its_repairs() {
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
async fn a_contradictory_conversation_is_quarantined_and_the_others_go_on() {
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
        let all = Verb::Receive { queue: "to".into(), top: Some(9), from: ReceiveFrom::Any };
        assert_eq!(bodies(&store.submit(vec![all]).await.unwrap()[0]), ["other"], "{text}");
        let aside = sql("select count(*) as n from dialoq_conversation_endpoint where is_quarantined", Vec::new());
        let aside = store.query(aside).await.unwrap().rows[0].get::<i64>("n").unwrap();
        assert_eq!(aside, 1, "{text}");
        store.close().await.unwrap();
        drop(store);
        // What was set aside stays so, and is reported again until the conversation is ended.
        drop(open(&path));
    }
}

/// Damage that only a backup can repair.
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
async fn an_ambiguous_damage_is_refused_by_name() {
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

/// A queue that got the id of a work queue gave no message, because its depth was that of the work queue.
#[tokio::test]
async fn the_id_of_a_work_queue_or_schedule_is_not_given_out_again() {
    let _limit = crate::limit();
    for (table, id) in [("dialoq_work_queue", "queue_id"), ("dialoq_work_schedule", "schedule_id")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let url = format!("sqlite:{}", path.display());
        let broker = Broker::open(&url).await.unwrap();
        let work = "CREATE WORK QUEUE jobs; CREATE WORK SCHEDULE daily ON WORK QUEUE jobs WITH CRON = '0 0 * * *'";
        broker.execute(work).await.unwrap();
        broker.close().await.unwrap();
        damage(&path, &format!("update dialoq_broker set next_object_id = (select max({id}) from {table})"));
        let broker = Broker::open(&url).await.unwrap();
        let tables: Vec<_> = broker.repairs().iter().map(|repair| repair.table).collect();
        assert_eq!(tables, ["dialoq_broker"], "{table}");
        broker.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])").await.unwrap();
        let dialog = broker.begin_dialog("s", "s").await.unwrap();
        broker.send(dialog, "DEFAULT", "x").await.unwrap();
        assert!(broker.receive("q").await.unwrap().is_some(), "{table}");
        broker.close().await.unwrap();
    }
}

/// Messages of level 0 were received by no RECEIVE. One above 10 ended a test build.
#[tokio::test]
async fn a_definition_whose_level_is_out_of_range_gives_the_nearest_one() {
    let _limit = crate::limit();
    let definitions = "CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT]);
        CREATE BROKER PRIORITY p FOR CONVERSATION SET (PRIORITY_LEVEL = 9);
        CREATE WORK QUEUE jobs WITH ORDER = PRIORITY;
        CREATE WORK SCHEDULE often ON WORK QUEUE jobs WITH CRON = '* * * * *', LEVEL = 9";
    for (written, level) in [(0, 1), (11, 10), (255, 10)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let url = format!("sqlite:{}", path.display());
        let clock = Clock::manual(START);
        let open = || Broker::open_with(&url, OpenOptions::new().clock(clock.clone()));
        let broker = open().await.unwrap();
        broker.execute(definitions).await.unwrap();
        broker.close().await.unwrap();
        damage(&path, &format!("update dialoq_conversation_priority set priority = {written}"));
        damage(&path, &format!("update dialoq_work_schedule set level = {written}"));
        let broker = open().await.unwrap();
        let dialog = broker.begin_dialog("s", "s").await.unwrap();
        broker.send(dialog, "DEFAULT", "x").await.unwrap();
        let received = broker.receive("q").await.unwrap().map(|batch| batch.first().priority);
        assert_eq!(received, Some(level), "{written}");
        clock.advance(Duration::from_secs(61));
        let jobs = broker.take_jobs("jobs").wait_forever().await.unwrap();
        assert_eq!(jobs.first().map(|job| job.level), Some(level), "{written}");
        broker.close().await.unwrap();
    }
}

async fn quarantined(store: &dyn Store) -> Vec<uuid::Uuid> {
    let found =
        sql("select conversation_group_id as g from sys_conversation_endpoints where is_quarantined = 1", Vec::new());
    let rows = store.query(found).await.unwrap().rows;
    rows.iter().map(|row| row.get::<String>("g").unwrap().parse().unwrap()).collect()
}

/// Messages that are missing, whether one more waits in the transmission queue meanwhile, and what is received at last.
const GAPS: [(&str, bool, &[&str]); 2] = [
    ("delete from dialoq_queue_message where sequence = 2", false, &["one", "three", "four"]),
    ("delete from dialoq_queue_message where sequence = 3", true, &["one", "two", "four"]),
];

#[tokio::test]
async fn a_released_group_goes_on_without_the_missing_messages_and_stays_released() {
    let _limit = crate::limit();
    for (text, waits, left) in GAPS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let handle = broker(&path).await;
        if waits {
            let store = open(&path);
            store.submit(vec![enable(false)]).await.unwrap();
            store.submit(vec![send(handle, "four")]).await.unwrap();
            store.close().await.unwrap();
        }
        damage(&path, text);
        let store = open(&path);
        let [group] = quarantined(&*store).await[..] else { panic!("{text}: one group is set aside") };
        store.submit(vec![Verb::ReleaseQuarantine { group: GroupId(group) }]).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let store = open(&path);
        assert!(store.repairs().is_empty(), "{text}: accepted by the release, {:?}", store.repairs());
        if waits {
            store.submit(vec![enable(true)]).await.unwrap();
            store.submit(Vec::new()).await.unwrap();
        } else {
            store.submit(vec![send(handle, "four")]).await.unwrap();
        }
        assert!(quarantined(&*store).await.is_empty(), "{text}");
        store.close().await.unwrap();
        drop(store);
        let store = open(&path);
        assert!(store.repairs().is_empty(), "{text}: {:?}", store.repairs());
        assert_eq!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]), left, "{text}");
    }
}

#[tokio::test]
async fn a_gap_in_the_transmission_queue_is_reported_and_quarantines_its_target_group() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let handle = broker(&path).await;
    let store = open(&path);
    store.submit(vec![receive(9)]).await.unwrap();
    store.submit(vec![enable(false)]).await.unwrap();
    for body in ["four", "five", "six"] {
        store.submit(vec![send(handle, body)]).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    damage(&path, "delete from dialoq_transmission where sequence = 5");
    let store = open(&path);
    assert_eq!(store.repairs().len(), 1, "{:?}", store.repairs());
    assert_eq!(store.repairs()[0].table, "dialoq_transmission");
    store.submit(vec![enable(true)]).await.unwrap();
    store.submit(Vec::new()).await.unwrap();
    let [group] = quarantined(&*store).await[..] else { panic!("one group is set aside") };
    assert!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]).is_empty());
    store.submit(vec![Verb::ReleaseQuarantine { group: GroupId(group) }]).await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]), ["four", "six"]);
}

#[tokio::test]
async fn messages_of_a_missing_conversation_are_kept_and_reported() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    broker(&path).await;
    damage(&path, "delete from dialoq_conversation_endpoint where is_initiator = 0");
    for _ in 0..2 {
        let store = open(&path);
        let reported = store.repairs().iter().filter(|repair| repair.table == "dialoq_queue_message").count();
        assert_eq!(reported, 3, "{:?}", store.repairs());
        let kept = texts(&*store, "select body from dialoq_queue_message order by queuing_order").await;
        assert_eq!(kept, ["one", "two", "three"]);
        let other = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
        store.submit(vec![send(other, "other")]).await.unwrap();
        assert_eq!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]), ["other"]);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_whose_making_was_cut_short_by_an_earlier_version_is_completed() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    open(&path).close().await.unwrap();
    damage(
        &path,
        "delete from dialoq_broker; delete from dialoq_message_type; delete from dialoq_service; \
         delete from dialoq_service_contract; delete from dialoq_service_contract_message_usage; \
         delete from dialoq_service_contract_usage",
    );
    broker(&path).await;
    assert!(open(&path).repairs().is_empty());
}

#[tokio::test]
async fn an_error_whose_body_is_damaged_still_ends_the_conversation() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let handle = broker(&path).await;
    let store = open(&path);
    store.submit(vec![receive(9)]).await.unwrap();
    store.submit(vec![enable(false)]).await.unwrap();
    let form = EndForm::WithError { code: 7, description: "why".into() };
    store.submit(vec![Verb::EndConversation { handle, form }]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    damage(&path, "update dialoq_transmission set body = x'00' where is_conversation_error = 1");
    let store = open(&path);
    store.submit(vec![enable(true)]).await.unwrap();
    store.submit(Vec::new()).await.unwrap();
    let outcome = store.submit(vec![receive(9)]).await.unwrap().remove(0);
    let Outcome::Received(messages) = outcome else { panic!("{outcome:?}") };
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(&*messages[0].message_type_name, system::ERROR);
    let reported = system::parse_error_body(messages[0].message_body.as_deref().unwrap()).unwrap();
    assert_eq!(reported.0, -8462, "{}", reported.1);
}

#[tokio::test]
async fn a_conversation_of_the_systems_that_a_damaged_row_opens_to_applications_harms_no_other() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let handle = broker(&path).await;
    let store = open(&path);
    let notification = Definition::CreateEventNotification {
        name: "n".into(),
        queue: "from".into(),
        event: QueueEvent::QueueActivation,
        service: "b".into(),
    };
    store.submit(vec![Verb::Define(vec![notification])]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    damage(&path, "update dialoq_conversation_endpoint set is_system = 0");
    let store = open(&path);
    let handles = texts(&*store, "select conversation_handle from sys_conversation_endpoints").await;
    for text in handles {
        let handle = ConversationHandle(text.parse().unwrap());
        let body = Some(std::sync::Arc::new(b"x".to_vec()));
        let message_type = Some(system::EVENT_NOTIFICATION.into());
        let _ = store.submit(vec![Verb::Send { handles: vec![handle], message_type, body, trace: None }]).await;
        let _ = store.submit(vec![Verb::PostQueueActivation { queue: "from".into() }]).await;
    }
    store.submit(vec![send(handle, "four")]).await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]), ["one", "two", "three", "four"]);
}
