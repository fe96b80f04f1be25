//! Rollbacks of transactions that received, on SQL Server, where the locks of a transaction end before its rollback is counted.

use crate::enlisting_mssql::{connect, dialog, on_url};
use crate::hostile_mssql::run;
use crate::jobs_locks_mssql::{SHORTAGES, tells_of};
use crate::jobs_mssql::one;
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::Act;
use dialoq::mssql::Client;
use std::time::{Duration, Instant};

const RECEIVE: &str = "BEGIN TRANSACTION; EXEC dialoq.receive N'server', 1";

/// Notes that an open transaction has received, as its client does on another connection.
async fn note(client: &mut Client, attempt: u8) {
    note_first(client, attempt, "NULL").await;
}

/// The same, with the first message that it has received.
async fn note_first(client: &mut Client, attempt: u8, queuing_order: &str) {
    let note = format!(
        "DECLARE @group uniqueidentifier, @handle uniqueidentifier, @queue int;
        SELECT @group = e.conversation_group_id, @handle = e.conversation_handle, @queue = s.queue_id
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id WHERE e.is_initiator = 0;
        EXEC dialoq.begin_attempt '{}', @queue, @group, @handle, {queuing_order}",
        id(attempt)
    );
    run(client, &note).await;
}

fn id(attempt: u8) -> uuid::Uuid {
    uuid::Uuid::from_u128(attempt.into())
}

/// How many rollbacks count against the group, and how many attempts are noted.
async fn counted(client: &mut Client) -> (i32, i32) {
    let text = "SELECT (SELECT MAX(rollbacks) FROM dialoq.conversation_endpoint), (SELECT COUNT(*) FROM dialoq.receive_attempt)";
    let row = one(client, text).await;
    (row.get(0).unwrap(), row.get(1).unwrap())
}

/// Between the rollback and its count another receiver takes the group.
pub(crate) fn the_rollback_of_a_group_that_another_receiver_has_counts_when_that_has_ended(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let handle = dialog(&broker).await;
        for text in ["a", "b"] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        // No tick of its own counts.
        broker.close().await.unwrap();
        let mut other = connect(&url).await;
        let policies = [
            "is_poison_quarantine_enabled = 1",
            "retry_max_attempts = 9, retry_delay_ms = 0, retry_factor_percent = 100, retry_max_delay_ms = 0,
             retry_jitter_percent = 0, retry_then = N'QUARANTINE'",
        ];
        for (policy, before) in policies.iter().zip(0..) {
            run(&mut client, &format!("UPDATE dialoq.service_queue SET {policy}")).await;
            run(&mut client, RECEIVE).await;
            note(&mut other, 1).await;
            run(&mut client, "ROLLBACK").await;
            run(&mut other, RECEIVE).await;
            run(&mut client, &format!("EXEC dialoq.count_rollback '{}'", id(1))).await;
            assert_eq!(counted(&mut client).await, (before, 1), "{policy}: the other receiver has the group");
            run(&mut other, "ROLLBACK").await;
            run(&mut client, "EXEC dialoq.tick").await;
            assert_eq!(counted(&mut client).await, (before + 1, 0), "{policy}");
        }
        // What the other one commits ends the row of rollbacks.
        run(&mut client, RECEIVE).await;
        note(&mut other, 1).await;
        run(&mut client, "ROLLBACK").await;
        run(&mut other, RECEIVE).await;
        note(&mut client, 2).await;
        run(&mut client, &format!("EXEC dialoq.count_rollback '{}'", id(1))).await;
        assert_eq!(counted(&mut client).await, (2, 2));
        run(&mut other, &format!("EXEC dialoq.commit_attempt '{}'; COMMIT", id(2))).await;
        run(&mut client, "EXEC dialoq.tick").await;
        assert_eq!(counted(&mut client).await, (0, 0));
    });
}

/// Under readers that take the group at once a message was received without end.
pub(crate) fn a_count_takes_those_before_it_at_the_message_along(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        // No tick of its own counts.
        broker.close().await.unwrap();
        let mut other = connect(&url).await;
        let first: i64 = one(&mut client, "SELECT MIN(queuing_order) FROM dialoq.queue_message").await.get(0).unwrap();
        let set_aside = "SELECT COUNT(*), COUNT(retry_at) FROM dialoq.conversation_endpoint WHERE is_quarantined = 1";
        let policies = [
            (
                "retry_max_attempts = 6, retry_delay_ms = 60000, retry_factor_percent = 100, retry_max_delay_ms = 60000,
                 retry_jitter_percent = 0, retry_then = N'DEAD_LETTER'",
                5,
                (1, 1),
            ),
            ("retry_max_attempts = NULL, is_poison_quarantine_enabled = 1", 0, (1, 0)),
        ];
        for (policy, rollbacks, expected) in policies {
            run(&mut client, &format!("UPDATE dialoq.service_queue SET {policy}")).await;
            run(&mut client, "UPDATE dialoq.conversation_endpoint SET rollbacks = 0").await;
            for attempt in 1..=5 {
                run(&mut client, RECEIVE).await;
                note_first(&mut other, attempt, &first.to_string()).await;
                run(&mut client, "ROLLBACK").await;
            }
            run(&mut client, &format!("EXEC dialoq.count_rollback '{}'", id(2))).await;
            assert_eq!(counted(&mut client).await, (rollbacks, 0), "{policy}");
            let row = one(&mut client, set_aside).await;
            assert_eq!((row.get::<i32, _>(0).unwrap(), row.get::<i32, _>(1).unwrap()), expected, "{policy}");
            let ends = "DECLARE @group uniqueidentifier = (
                    SELECT TOP (1) conversation_group_id FROM dialoq.conversation_endpoint WHERE is_initiator = 0);
                EXEC dialoq.set_quarantined @group, 0";
            run(&mut client, ends).await;
        }
    });
}

/// How long a count waits for another one.
const TURN: Duration = Duration::from_millis(100);

/// Two processes count the fourth and the fifth rollback, and neither sees the row of the other.
pub(crate) fn rollbacks_that_are_counted_at_once_turn_a_queue_off(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        broker.close().await.unwrap();
        let count = "DECLARE @queue int = (SELECT queue_id FROM dialoq.service_queue WHERE name = N'server'), @notices nvarchar(max);
            EXEC dialoq.count_against_queue @queue, NULL, NULL, @notices OUTPUT";
        let again = "EXEC dialoq.count_against_queue @queue, NULL, NULL, @notices OUTPUT";
        let is_on = "SELECT CAST(is_receive_enabled AS int) FROM dialoq.service_queue WHERE name = N'server'";
        let mut other = connect(&url).await;
        let until = Instant::now() + SOON;
        while one(&mut client, is_on).await.get::<i32, _>(0).unwrap() == 1 {
            assert!(Instant::now() < until, "the queue stays on after five rollbacks");
            // The first calls of a session take long on Babelfish.
            run(&mut other, &format!("BEGIN TRANSACTION; {count}; ROLLBACK")).await;
            let three =
                format!("DELETE FROM dialoq.queue_rollback; BEGIN TRANSACTION; {count}; {again}; {again}; COMMIT");
            run(&mut client, &three).await;
            run(&mut client, &format!("BEGIN TRANSACTION; {count}")).await;
            let counting = tokio::spawn(async move {
                let began = Instant::now();
                run(&mut other, &format!("BEGIN TRANSACTION; {count}; COMMIT")).await;
                (other, began.elapsed())
            });
            tokio::time::sleep(TURN * 6 / 10).await;
            let has_counted = counting.is_finished();
            run(&mut client, "COMMIT").await;
            let took;
            (other, took) = counting.await.unwrap();
            // On a slow machine it has gone on without its turn.
            assert!(!has_counted || took >= TURN, "it does not wait for its turn: {took:?}");
        }
    });
}

/// Without its record a rollback that tick cannot count would never be counted.
pub(crate) fn a_rollback_that_tick_cannot_count_is_counted_later(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        // No tick of its own counts.
        broker.close().await.unwrap();
        let mut other = connect(&url).await;
        run(&mut client, RECEIVE).await;
        note(&mut other, 1).await;
        run(&mut client, "ROLLBACK").await;
        // What falls due by itself is done meanwhile.
        run(&mut client, "EXEC dialoq.push_job N'w', @delay_ms = 3600000; UPDATE dialoq.job SET due_at = '2001-01-01'")
            .await;
        for shortage in SHORTAGES {
            let trigger = format!("CREATE TRIGGER dialoq.shortage ON dialoq.queue_rollback AFTER INSERT AS {shortage}");
            run(&mut other, &trigger).await;
            tells_of(&mut client, "no space is left").await;
            assert_eq!(counted(&mut client).await.1, 1, "tick keeps the record: {shortage}");
            run(&mut other, "DROP TRIGGER dialoq.shortage").await;
        }
        let ready = one(&mut client, "SELECT COUNT(*) FROM dialoq.job WHERE state = 1").await;
        assert_eq!(ready.get::<i32, _>(0), Some(1));
        run(&mut client, "EXEC dialoq.tick").await;
        let rollbacks = one(&mut client, "SELECT COUNT(*) FROM dialoq.queue_rollback").await;
        assert_eq!((rollbacks.get::<i32, _>(0), counted(&mut client).await.1), (Some(1), 0));
    });
}

/// A step that is repeated because a later one left the transaction unusable waits for rows as it did before.
pub(crate) fn a_repeated_step_of_tick_waits_as_before(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let (timer, held) = (dialog(&broker).await, dialog(&broker).await);
        broker.close().await.unwrap();
        let plan = format!(
            "UPDATE dialoq.conversation_endpoint SET dialog_timer = '2001-01-02', due_at = '2001-01-02'
             WHERE conversation_handle = '{}';
             UPDATE dialoq.service_queue SET is_poison_quarantine_enabled = 1 WHERE name = N'asker';
             INSERT dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at)
             SELECT NEWID(), CASE q.name WHEN N'asker' THEN e.conversation_group_id ELSE NEWID() END, q.queue_id, SYSUTCDATETIME()
             FROM dialoq.service_queue AS q CROSS JOIN dialoq.conversation_endpoint AS e
             WHERE q.name IN (N'asker', N'server') AND e.conversation_handle = '{}' ORDER BY q.name",
            timer.0, held.0
        );
        run(&mut client, &plan).await;
        // The first rollback waits for this row, and after that tick waits for no other. The second one ends its transaction.
        let mut other = connect(&url).await;
        let row =
            format!("UPDATE dialoq.conversation_endpoint SET state = state WHERE conversation_handle = '{}'", held.0);
        run(&mut other, &format!("BEGIN TRANSACTION; {row}")).await;
        let ends = "CREATE TRIGGER dialoq.shortage ON dialoq.queue_rollback AFTER INSERT AS
            BEGIN SET XACT_ABORT ON; THROW 60000, N'it cannot be counted', 1; END";
        let waits = "CREATE TRIGGER dialoq.waits ON dialoq.queue_message AFTER INSERT AS
            IF @@LOCK_TIMEOUT = 0 RAISERROR (N'it waits for no row', 16, 1)";
        for trigger in [ends, waits] {
            run(&mut client, trigger).await;
        }
        tells_of(&mut client, "error 1222").await;
        let failed = one(&mut client, "SELECT COUNT(*) FROM dialoq.tick_failure WHERE endpoint_id > 0").await;
        let fired = one(&mut client, "SELECT COUNT(*) FROM dialoq.queue_message WHERE delivery_class = 2").await;
        assert_eq!((failed.get::<i32, _>(0), fired.get::<i32, _>(0)), (Some(0), Some(1)));
        run(&mut client, "DROP TRIGGER dialoq.shortage; DROP TRIGGER dialoq.waits").await;
    });
}
