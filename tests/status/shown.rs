//! The figures of `Broker::status`.

use crate::servers::Store;
use crate::{HOUR, Patient, broker, dialog};
use dialoq::status::{OffBy, QueueStatus};
use dialoq::testing::START;
use dialoq::{Act, Broker, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

async fn queue(broker: &Patient, name: &str) -> QueueStatus {
    let queues = broker.status().await.unwrap().queues;
    queues.into_iter().find(|queue| queue.name == name).unwrap_or_else(|| panic!("queue {name} is missing"))
}

pub(crate) async fn messages_are_counted_by_level(store: Store) {
    let broker = broker(store).await;
    broker
        .execute(
            "CREATE CONTRACT urgent ([DEFAULT] SENT BY ANY); ALTER SERVICE worker (ADD CONTRACT urgent);
             CREATE BROKER PRIORITY urgent FOR CONVERSATION SET (CONTRACT_NAME = urgent, PRIORITY_LEVEL = 9);",
        )
        .await
        .unwrap();
    let first = dialog(&broker).await;
    broker.advance(HOUR);
    broker.send(first, "DEFAULT", "y").await.unwrap();
    dialog(&broker).await;
    let urgent = broker.begin_dialog("client", "worker").contract("urgent").await.unwrap();
    broker.send(urgent, "DEFAULT", "z").await.unwrap();
    broker.advance(Duration::from_millis(250));

    let levels = queue(&broker, "work").await.levels;
    let figures: Vec<_> = levels
        .iter()
        .map(|level| (level.priority, level.messages, level.conversation_groups, level.oldest_waiting_ms))
        .collect();
    assert_eq!(figures, [(9, 1, 1, 250), (5, 3, 2, 3_600_250)]);
    assert!(levels.iter().all(|level| !level.is_quarantined), "{levels:?}");
    assert_eq!(queue(&broker, "home").await.levels, []);
}

pub(crate) async fn endpoints_are_counted_by_state(store: Store) {
    let broker = broker(store).await;
    assert_eq!(broker.status().await.unwrap().conversations, []);
    dialog(&broker).await;
    let ended = dialog(&broker).await;
    broker.end(ended).await.unwrap();
    broker.begin_dialog("client", "worker").await.unwrap();
    let status = broker.status().await.unwrap();
    let found: BTreeSet<_> = status
        .conversations
        .iter()
        .map(|row| {
            assert_eq!(row.state_desc, row.state.description());
            (row.service_name.as_str(), row.state.code(), row.endpoints)
        })
        .collect();
    assert_eq!(
        found,
        BTreeSet::from([("client", "CO", 1), ("client", "SO", 1), ("worker", "CO", 1), ("worker", "DI", 1)]),
        "END of the initiator leaves the endpoint of the target"
    );
}

pub(crate) async fn undelivered_messages_have_a_reason(store: Store) {
    let broker = broker(store).await;
    let dialog = broker.begin_dialog("client", "nowhere").lifetime(100 * HOUR).await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    broker.advance(HOUR);
    let rows = broker.status().await.unwrap().transmission_queue;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0].to_service_name.as_str(), rows[0].messages), ("nowhere", 1));
    assert_eq!(rows[0].transmission_status, broker.transmission_status(dialog).await.unwrap());
    assert_eq!(rows[0].oldest_waiting_ms, 3_600_000);
}

pub(crate) async fn a_disabled_queue_and_its_activation_are_shown(store: Store) {
    let broker = broker(store).await;
    let work = queue(&broker, "work").await;
    assert!(work.is_receive_enabled && work.is_enqueue_enabled && !work.is_retention_enabled, "{work:?}");
    assert_eq!((work.is_activation_enabled, work.activation_procedure, work.max_queue_readers), (false, None, None));
    broker
        .execute(
            "ALTER QUEUE work WITH STATUS = OFF, RETENTION = ON,
             ACTIVATION (STATUS = ON, PROCEDURE_NAME = serve, MAX_QUEUE_READERS = 3, EXECUTE AS OWNER)",
        )
        .await
        .unwrap();
    let work = queue(&broker, "work").await;
    assert!(!work.is_receive_enabled && !work.is_enqueue_enabled && work.is_retention_enabled, "{work:?}");
    assert!(work.is_activation_enabled, "{work:?}");
    assert_eq!((work.activation_procedure.as_deref(), work.max_queue_readers), (Some("serve"), Some(3)));
    assert_eq!((work.readers_running, work.sessions_waiting, work.monitors), (None, None, Vec::new()));
}

pub(crate) async fn a_queue_says_since_when_and_why_it_is_off(store: Store) {
    let broker = broker(store).await;
    assert_eq!(queue(&broker, "work").await.off, None);
    broker.advance(HOUR);
    broker.execute("ALTER QUEUE work WITH STATUS = OFF, REASON = 'the printer''s maintenance'").await.unwrap();
    let off = queue(&broker, "work").await.off.expect("why it is off");
    let since = Timestamp(START.0 + 3_600_000_000);
    assert_eq!(
        (off.since, off.by, off.reason.as_deref()),
        (since, OffBy::Statement, Some("the printer's maintenance"))
    );
    let json = serde_json::to_value(&off).unwrap();
    assert_eq!((&json["since"], &json["by"]), (&"2026-01-01T01:00:00.000Z".into(), &"statement".into()));

    // Off again without a reason changes nothing; another reason leaves the moment.
    broker.advance(HOUR);
    broker.execute("ALTER QUEUE work WITH STATUS = OFF").await.unwrap();
    assert_eq!(queue(&broker, "work").await.off.as_ref(), Some(&off));
    broker
        .execute("ALTER QUEUE work WITH STATUS = OFF, REASON = 'other'; ALTER QUEUE work WITH RETENTION = ON")
        .await
        .unwrap();
    let changed = queue(&broker, "work").await.off.expect("why it is off");
    assert_eq!((changed.since, changed.reason.as_deref()), (since, Some("other")));
    assert!(broker.dump().contains("REASON = 'other'"), "{}", broker.dump());
    let finding = &broker.doctor().await.unwrap()[0];
    assert!(finding.what.contains("since 2026-01-01T01:00:00.000Z by a statement, because: other"), "{finding}");

    broker.execute("ALTER QUEUE work WITH STATUS = ON").await.unwrap();
    assert_eq!(queue(&broker, "work").await.off, None);
    let refused = broker.execute("ALTER QUEUE work WITH REASON = 'no status'").await.unwrap_err();
    assert_eq!(refused.code().0, 60004, "{refused}");
    let long = format!("ALTER QUEUE work WITH STATUS = OFF, REASON = '{}'", "x".repeat(1001));
    assert_eq!(broker.execute(&long).await.unwrap_err().code().0, 60005);

    dialog(&broker).await;
    for _ in 0..5 {
        let tx = broker.begin().await.unwrap();
        assert!(tx.receive("work").await.unwrap().is_some());
        tx.rollback().await.unwrap();
    }
    let off = queue(&broker, "work").await.off.expect("why it is off");
    assert_eq!((off.since.0, off.by, off.reason), (START.0 + 7_200_000_000, OffBy::Poison, None));
}

/// The broker of the test is open meanwhile, and on SQLite owns the file.
pub(crate) async fn another_process_reads_the_same(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    let reader = Broker::open_read_only(broker.database.url()).await.unwrap();
    let (own, read) = (broker.status().await.unwrap(), reader.status().await.unwrap());
    assert_eq!((own.service_broker_guid, own.is_broker_enabled), (read.service_broker_guid, read.is_broker_enabled));
    assert_eq!(own.conversations, read.conversations);
    let names = |queues: &[QueueStatus]| queues.iter().map(|queue| queue.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&own.queues), names(&read.queues));
    reader.close().await.unwrap();
}

pub(crate) async fn work_queues_are_shown_with_their_jobs_and_readers(store: Store) {
    let broker = broker(store).await;
    assert_eq!(broker.status().await.unwrap().work_queues, []);
    broker.execute("CREATE WORK QUEUE reports; CREATE WORK QUEUE emails WITH MAX_ATTEMPTS = 1").await.unwrap();
    broker.push_job("emails", "later").run_after(HOUR).await.unwrap();
    for body in ["dead", "taken", "ready", "ready too"] {
        broker.push_job("emails", body).await.unwrap();
    }
    let dead = broker.take_jobs("emails").await.unwrap().remove(0);
    broker.fail_job(&dead, "no such address").await.unwrap();
    assert_eq!(broker.take_jobs("emails").lease(HOUR).await.unwrap().len(), 1);
    broker.advance(Duration::from_millis(1500));
    let status = broker.status().await.unwrap();
    assert_eq!(status.work_queues, broker.work_queues().await.unwrap());
    let emails = &status.work_queues[0];
    assert_eq!((emails.name.as_str(), status.work_queues[1].name.as_str()), ("emails", "reports"));
    let jobs = [emails.scheduled, emails.ready, emails.taken, emails.lost, emails.dead, emails.finished];
    assert_eq!((jobs, emails.oldest_ready_ms, emails.readers_running), ([1, 2, 1, 0, 1, 0], Some(1500), None));
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!((&json["work_queues"][0]["name"], &json["work_queues"][0]["dead"]), (&"emails".into(), &1.into()));
}

pub(crate) async fn json_has_the_documented_names(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    let status = broker.status().await.unwrap();
    assert_eq!(status.at, START);
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(json["service_broker_guid"], status.service_broker_guid.to_string());
    assert!(!status.service_broker_guid.is_nil(), "{json}");
    let work = json["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == "work").unwrap();
    assert_eq!(work["levels"][0]["messages"], 1);
    assert_eq!(json["conversations"][0]["state"], "CO");
    assert_eq!(json["conversations"][0]["state_desc"], "CONVERSING");

    broker.advance(HOUR);
    let finding = serde_json::to_value(&broker.doctor().await.unwrap()[0]).unwrap();
    assert_eq!((&finding["kind"], &finding["subject"]), (&"waiting_messages".into(), &"work".into()));
    assert_eq!(finding["since"], "2026-01-01T00:00:00.000Z");
}
