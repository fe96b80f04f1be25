//! No argument, setting or leftover of one caller of SQL Server's procedures may stop another caller.

use crate::enlisting_mssql::{connect, dialog, on, on_url};
use crate::garbage_mssql::routines;
use crate::jobs_locks_mssql::{SHORTAGES, tells_of};
use crate::rights_mssql::is_relative;
use crate::servers::{Database, Store, limit};
use dialoq::mssql::Client;
use dialoq::mssql::tiberius::error::Error;
use dialoq::{Act, Broker, ConversationHandle};
use std::time::Duration;

const SCHEMA_STATE: &str = include_str!("../../sql/mssql/install/schema_state.sql");

/// The number of the error that a batch is refused with, 0 if it is not.
pub(crate) async fn number(client: &mut Client, text: &str) -> u32 {
    let answer = match client.simple_query(text).await {
        Ok(stream) => stream.into_results().await.map(drop),
        Err(error) => Err(error),
    };
    match answer {
        Ok(()) => 0,
        Err(Error::Server(error)) => error.code(),
        Err(error) => panic!("{text}: {error}"),
    }
}

pub(crate) async fn run(client: &mut Client, text: &str) {
    client.simple_query(text).await.unwrap().into_results().await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

async fn count(client: &mut Client, text: &str) -> i32 {
    let row = client.simple_query(text).await.unwrap().into_row().await.unwrap();
    row.and_then(|row| row.get(0)).unwrap_or_else(|| panic!("{text} gave nothing"))
}

/// Runs tick until a query gives at least that number.
async fn tick_until(client: &mut Client, text: &str, wanted: i32) {
    while count(client, text).await < wanted {
        run(client, "EXEC dialoq.tick").await;
        // What is awaited falls due by the server's clock, half a second after it was noted, and no lock or signal goes with
        // that. Nothing is right because of this pause; it keeps the loop from taking the processor meanwhile.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn bodies(broker: &Broker, queue: &str) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(batch) = broker.receive(queue).await.unwrap() {
        found.extend(batch.iter().map(|message| message.text().unwrap_or_default().into_owned()));
    }
    found
}

fn send(handle: ConversationHandle, fault: &str) -> String {
    format!("EXEC dialoq.send '{}', N'//t/Word', 0x61, NULL, {fault};", handle.0)
}

/// The connection that polls also records what transactions receive. A poll that waits for a lock must not stop them.
pub(crate) fn a_poll_that_waits_for_a_lock_stops_no_transaction(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        for text in ["a", "b", "c", "d", "e"] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        run(&mut client, "BEGIN TRANSACTION; ALTER TABLE dialoq.recheck_queue ADD of_the_test int NULL").await;
        let receiver = broker.clone();
        let waiting = tokio::spawn(async move { receiver.receive("asker").wait(Duration::from_secs(3600)).await });
        for text in ["a", "b", "c", "d", "e"] {
            let tx = broker.begin().await.unwrap();
            let batch = tx.receive("server").top(1).await.unwrap().expect("it was sent");
            assert_eq!(batch.first().text().unwrap(), text);
            tx.commit().await.unwrap();
        }
        run(&mut client, "ROLLBACK").await;
        waiting.abort();
    });
}

/// The connection that reads the definitions also records what transactions receive. A read that waits for a lock must not stop
/// them.
pub(crate) fn definitions_that_wait_for_a_lock_stop_no_transaction(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        for text in ["a", "b", "c", "d", "e"] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        run(&mut client, "UPDATE dialoq.broker SET catalog_version = catalog_version + 1").await;
        run(&mut client, "BEGIN TRANSACTION; ALTER TABLE dialoq.xml_schema_collection ADD of_the_test int NULL").await;
        let definer = broker.clone();
        let waiting = tokio::spawn(async move { definer.execute("CREATE QUEUE later").await });
        for text in ["a", "b", "c", "d", "e"] {
            let tx = broker.begin().await.unwrap();
            let batch = tx.receive("server").top(1).await.unwrap().expect("it was sent");
            assert_eq!(batch.first().text().unwrap(), text);
            tx.commit().await.unwrap();
        }
        run(&mut client, "ROLLBACK").await;
        waiting.await.unwrap().unwrap();
    });
}

/// A definition that meets a row of another transaction is tried again, and other definitions go on meanwhile.
pub(crate) fn a_definition_that_waits_for_a_row_stops_no_other(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE QUEUE later").await.unwrap();
        run(&mut client, "BEGIN TRANSACTION; UPDATE dialoq.service SET owner = owner WHERE name = N'//t/Server'").await;
        let definer = broker.clone();
        let waiting = tokio::spawn(async move { definer.execute("ALTER SERVICE [//t/Server] ON QUEUE later").await });
        for queue in ["a", "b", "c", "d", "e"] {
            broker.execute(&format!("CREATE QUEUE {queue}")).await.unwrap();
        }
        run(&mut client, "ROLLBACK").await;
        waiting.await.unwrap().unwrap();
    });
}

/// The claim row of a message that was sent before its service moved, and committed after it, names the old queue.
pub(crate) fn a_message_sent_before_its_service_moves_is_received(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.execute("CREATE QUEUE later").await.unwrap();
        let sender = broker.begin().await.unwrap();
        sender.send(handle, "//t/Word", "a").await.unwrap();
        broker.execute("ALTER SERVICE [//t/Server] ON QUEUE later").await.unwrap();
        sender.commit().await.unwrap();
        run(&mut client, "UPDATE dialoq.recheck_queue SET recheck_at = '2000-01-01'").await;
        let is_checked = "SELECT CASE WHEN EXISTS (SELECT 1 FROM dialoq.recheck_queue) THEN 0 ELSE 1 END";
        tick_until(&mut client, is_checked, 1).await;
        assert_eq!(bodies(&broker, "later").await, ["a"]);
    });
}

/// The session that delivers a message reads the verdict on its body, so the verdict is checked where it enters.
pub(crate) fn an_invalid_verdict_is_refused_at_once(store: Store) {
    limit::allow(5);
    on(store, |broker, mut client| async move {
        let (mine, other) = (dialog(&broker).await, dialog(&broker).await);
        broker.execute("ALTER QUEUE server WITH STATUS = OFF").await.unwrap();
        for fault in ["garbage", "|", "-8470|forged", "5|mine", "99999999999|a", "-84300|a", " "] {
            assert_eq!(number(&mut client, &send(mine, &format!("N'{fault}'"))).await, 60_005, "{fault}");
            let many = format!(
                "DECLARE @h dialoq.send_many_rows; INSERT @h VALUES (0, '{}');
                 EXEC dialoq.send_many @h, N'//t/Word', 0x61, NULL, N'{fault}';",
                mine.0
            );
            assert_eq!(number(&mut client, &many).await, 60_005, "{fault}");
            let batch = format!(
                "DECLARE @s dialoq.send_batch_rows;
                 INSERT @s VALUES (0, '{}', N'//t/Word', 0x61, NULL, N'{fault}', NULL);
                 EXEC dialoq.send_batch @s;",
                mine.0
            );
            let row = client.simple_query(batch).await.unwrap().into_row().await.unwrap().unwrap();
            assert_eq!(row.get::<i32, _>("error_number"), Some(60_005), "{fault}");
        }
        assert_eq!(count(&mut client, "SELECT COUNT(*) FROM dialoq.transmission").await, 0);
        run(&mut client, &send(mine, "N'-8430|as checked'")).await;
        broker.send(other, "//t/Word", "b").await.unwrap();
        broker.execute("ALTER QUEUE server WITH STATUS = ON").await.unwrap();
        let found = bodies(&broker, "server").await;
        assert!(found.iter().any(|body| body == "b"), "the other is delivered: {found:?}");
        assert!(found.iter().any(|body| body.contains("-8430")), "the receiver gets the Error: {found:?}");
    });
}

/// A message that cannot be delivered stops neither a definition nor tick: what belongs to others is delivered.
pub(crate) fn a_row_that_fails_keeps_nothing_else_from_being_done(store: Store) {
    limit::allow(5);
    on(store, |broker, mut client| async move {
        broker.execute("ALTER QUEUE server WITH STATUS = OFF").await.unwrap();
        let (bad, good, timer) = (dialog(&broker).await, dialog(&broker).await, dialog(&broker).await);
        broker.send(bad, "//t/Word", "a").await.unwrap();
        broker.send(good, "//t/Word", "b").await.unwrap();
        // The target of that conversation is there already, so making it fails at each delivery.
        let planted = format!(
            "INSERT dialoq.conversation_endpoint (
                conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
                far_service, state, priority, lifetime, send_sequence, receive_sequence, is_peer_known, is_system,
                is_quarantined, begun_at)
             SELECT NEWID(), conversation_id, NEWID(), service_id, service_contract_id, 0, N'x', N'CO', 5, lifetime, 0, 0, 1, 0,
                0, begun_at
             FROM dialoq.conversation_endpoint WHERE conversation_handle = '{}'",
            bad.0
        );
        run(&mut client, &planted).await;
        broker.execute("ALTER QUEUE server WITH STATUS = ON").await.expect("one message does not stop a definition");
        assert_eq!(bodies(&broker, "server").await, ["b"]);
        tick_until(&mut client, "SELECT COUNT(*) FROM dialoq.tick_failure WHERE endpoint_id > 0", 1).await;
        // The end of its time cannot be computed; the timer of another is due after it.
        let due = format!(
            "UPDATE dialoq.conversation_endpoint
             SET state = N'CD', security_timestamp = NULL, lifetime = '9999-12-31 23:59:59', due_at = '2001-01-01'
             WHERE conversation_handle = '{}';
             UPDATE dialoq.conversation_endpoint SET dialog_timer = '2001-01-02', due_at = '2001-01-02'
             WHERE conversation_handle = '{}'",
            bad.0, timer.0
        );
        run(&mut client, &due).await;
        tick_until(&mut client, "SELECT COUNT(*) FROM dialoq.queue_message WHERE delivery_class = 2", 1).await;
        let failures = "SELECT MAX(failures) FROM dialoq.tick_failure";
        assert!(count(&mut client, failures).await >= 1);
    });
}

/// Nor does one whose failure cannot be written down, in any tick.
pub(crate) fn a_row_whose_failure_cannot_be_noted_keeps_nothing_else_from_being_done(store: Store) {
    limit::allow(5);
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let (bad, good) = (dialog(&broker).await, dialog(&broker).await);
        // No tick of its own.
        broker.close().await.unwrap();
        for shortage in SHORTAGES {
            for (dialog, due) in [(bad, "2001-01-01"), (good, "2001-01-02")] {
                let due = format!(
                    "UPDATE dialoq.conversation_endpoint SET dialog_timer = '{due}', due_at = '{due}'
                     WHERE conversation_handle = '{}'",
                    dialog.0
                );
                run(&mut client, &due).await;
            }
            let job = "DELETE FROM dialoq.queue_message; DELETE FROM dialoq.job; EXEC dialoq.push_job N'w', @delay_ms = 3600000;
                UPDATE dialoq.job SET due_at = '2001-01-01'";
            run(&mut client, job).await;
            let trigger = format!(
                "CREATE TRIGGER dialoq.shortage ON dialoq.conversation_endpoint AFTER UPDATE AS
                 IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.conversation_handle = '{}') {shortage}",
                bad.0
            );
            run(&mut client, &trigger).await;
            for _ in 0..2 {
                tells_of(&mut client, "no space is left").await;
            }
            let fired = "SELECT COUNT(*) FROM dialoq.queue_message WHERE delivery_class = 2";
            assert_eq!(count(&mut client, fired).await, 1, "{shortage}");
            assert_eq!(count(&mut client, "SELECT COUNT(*) FROM dialoq.job WHERE state = 1").await, 1, "{shortage}");
            run(&mut client, "DROP TRIGGER dialoq.shortage; EXEC dialoq.tick").await;
            assert_eq!(count(&mut client, fired).await, 2, "{shortage}");
        }
    });
}

pub(crate) fn ids_that_are_in_use_are_refused(store: Store) {
    limit::allow(5);
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        let ids = format!(
            "SELECT conversation_id, conversation_group_id FROM dialoq.conversation_endpoint WHERE conversation_handle = '{}'",
            handle.0
        );
        let row = client.simple_query(ids).await.unwrap().into_row().await.unwrap().unwrap();
        let (id, group): (uuid::Uuid, uuid::Uuid) = (row.get(0).unwrap(), row.get(1).unwrap());
        let begin = |handle: &str, id: &str, group: &str| {
            format!(
                "EXEC dialoq.begin_dialog_conversation N'//t/Asker', N'//t/Server', NULL, N'//t/Talk', NULL, NULL, NULL, 0,
                    {handle}, {id}, {group}"
            )
        };
        let quoted = |id: uuid::Uuid| format!("'{id}'");
        assert_eq!(number(&mut client, &begin("NULL", &quoted(id), "NULL")).await, 60_005);
        assert_eq!(number(&mut client, &begin("NULL", "NULL", &quoted(group))).await, 60_005);
        assert_eq!(number(&mut client, &begin(&quoted(handle.0), "NULL", "NULL")).await, 60_005);
        let zeros = quoted(uuid::Uuid::nil());
        for (handle, id, group) in [(&*zeros, "NULL", "NULL"), ("NULL", &*zeros, "NULL"), ("NULL", "NULL", &*zeros)] {
            assert_eq!(number(&mut client, &begin(handle, id, group)).await, 60_005);
        }
        // The initiator is gone, the target is still there.
        run(&mut client, &format!("EXEC dialoq.end_conversation '{}', NULL, NULL, 1", handle.0)).await;
        assert_eq!(number(&mut client, &begin("NULL", &quoted(id), "NULL")).await, 60_005);
        let new = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(quoted);
        run(&mut client, &begin(&new[0], &new[1], &new[2])).await;
    });
}

pub(crate) fn session_settings_do_not_affect_verbs(store: Store) {
    limit::allow(5);
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        for text in ["a", "b", "c", "d"] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        let target = "SELECT conversation_handle FROM dialoq.conversation_endpoint WHERE is_initiator = 0";
        let row = client.simple_query(target).await.unwrap().into_row().await.unwrap().unwrap();
        let target: uuid::Uuid = row.get(0).unwrap();
        run(&mut client, &format!("SET ROWCOUNT 1; EXEC dialoq.end_conversation '{target}', NULL, NULL, 1;")).await;
        run(&mut client, "SET ROWCOUNT 0").await;
        assert_eq!(count(&mut client, "SELECT COUNT(*) FROM dialoq.queue_message WHERE delivery_class = 0").await, 0);
        let options = "SET LOCK_TIMEOUT 0; SET ANSI_WARNINGS OFF; SET CONCAT_NULL_YIELDS_NULL OFF;";
        let begin = "EXEC dialoq.begin_dialog_conversation N'//t/Asker', N'//t/Server', NULL, N'//t/Talk'";
        run(&mut client, &format!("{options} {begin}")).await;
        broker.send(dialog(&broker).await, "//t/Word", "whole").await.unwrap();
        let cut = "SET TEXTSIZE 2; EXEC dialoq.receive N'server', 1";
        let row = client.simple_query(cut).await.unwrap().into_row().await.unwrap().unwrap();
        assert_eq!(row.get::<&[u8], _>("message_body"), Some(&b"whole"[..]));
    });
}

pub(crate) fn tick_is_not_called_in_a_transaction(store: Store) {
    on(store, |broker, mut client| async move {
        run(&mut client, "BEGIN TRANSACTION").await;
        assert_eq!(number(&mut client, "EXEC dialoq.tick").await, 60_005);
        run(&mut client, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION").await;
        assert_eq!(number(&mut client, "EXEC dialoq.tick").await, 0);
        for top in ["0", "-1", "2147483647"] {
            assert_eq!(number(&mut client, &format!("EXEC dialoq.tick {top}")).await, 60_005, "{top}");
        }
        // A step of SQL Agent reads these, because INSERT .. EXEC is a transaction.
        let times = "DECLARE @due_at datetime2(6), @now_at datetime2(6); DECLARE @later datetime2(6) = DATEADD(minute, 5, SYSUTCDATETIME());
            UPDATE dialoq.conversation_endpoint SET due_at = @later;
            EXEC dialoq.tick 256, @due_at = @due_at OUTPUT, @now_at = @now_at OUTPUT;
            IF @due_at <= @later AND @now_at IS NOT NULL PRINT N'given'; ELSE THROW 50001, N'the times are missing', 1;";
        dialog(&broker).await;
        assert_eq!(number(&mut client, times).await, 0);
    });
}

/// Five rollbacks in a row disable a queue, so they must be those of transactions that received.
pub(crate) fn rollbacks_that_are_made_up_are_not_counted(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        for _ in 0..6 {
            let made_up = "DECLARE @id uniqueidentifier = NEWID(), @group uniqueidentifier, @queue int;
                SELECT @group = e.conversation_group_id, @queue = s.queue_id
                FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
                WHERE e.is_initiator = 0;
                EXEC dialoq.begin_attempt @id, @queue, @group; EXEC dialoq.count_rollback @id;";
            run(&mut client, made_up).await;
        }
        assert_eq!(bodies(&broker, "server").await, ["a"], "the queue is still on");
    });
}

pub(crate) fn names_are_compared_to_their_last_space(store: Store) {
    on(store, |broker, mut client| async move {
        let begin = |from: &str, contract: &str| {
            format!("EXEC dialoq.begin_dialog_conversation N'{from}', N'//t/Server', NULL, N'{contract}'")
        };
        assert_eq!(number(&mut client, &begin("//t/Asker ", "//t/Talk")).await, 58_423);
        assert_eq!(number(&mut client, &begin("//t/Asker", "//t/Talk  ")).await, 58_425);
        let handle = dialog(&broker).await;
        let send = format!("EXEC dialoq.send '{}', N'//t/Word ', 0x61", handle.0);
        assert_eq!(number(&mut client, &send).await, 58_428);
        assert_eq!(number(&mut client, "EXEC dialoq.receive N'server '").await, 60_002);
        assert_eq!(number(&mut client, "EXEC dialoq.receive N'SERVER'").await, 0);
        let refused = broker.execute("CREATE MESSAGE TYPE [//t/Word ]").await.unwrap_err();
        assert_eq!(refused.code().0, 60_003, "{refused}");
        let percent = broker.receive("100%d").await.unwrap_err();
        assert_eq!(percent.code().0, 60_002, "{percent}");
    });
}

/// The owner of schema dialoq can replace its objects, and the next administrator would run them with his own rights.
pub(crate) fn a_schema_of_another_owner_is_not_trusted(store: Store) {
    let database = Database::bare(store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = connect(database.url()).await;
        let distrust = async |client: &mut Client| {
            let row = client.simple_query(SCHEMA_STATE).await.unwrap().into_row().await.unwrap().unwrap();
            row.get::<&str, _>("distrust").map(str::to_owned)
        };
        assert_eq!(distrust(&mut client).await, None, "there is no schema");
        let intruder = format!("intruder_{}", uuid::Uuid::new_v4().simple());
        run(&mut client, &format!("CREATE LOGIN {intruder} WITH PASSWORD = 'Dialoq-Test-1'")).await;
        run(&mut client, &format!("CREATE USER {intruder} FOR LOGIN {intruder}")).await;
        run(&mut client, &format!("CREATE SCHEMA dialoq AUTHORIZATION {intruder}")).await;
        for made in ["", "CREATE TABLE dialoq.installed (id int)"] {
            if !made.is_empty() {
                run(&mut client, made).await;
            }
            let why = distrust(&mut client).await.expect("the schema is another's");
            assert!(why.contains(&intruder), "{why}");
        }
        run(&mut client, "DROP TABLE dialoq.installed; DROP SCHEMA dialoq").await;
        run(&mut client, "CREATE SCHEMA dialoq").await;
        assert_eq!(distrust(&mut client).await, None, "the schema is this user's");
        run(&mut client, &format!("DROP USER {intruder}")).await;
        run(&mut client, &format!("DROP LOGIN {intruder}")).await;
    });
}

/// What went before it failed, so none of it will be there; a verb that went on would only seem to work.
pub(crate) fn a_transaction_that_can_only_be_rolled_back_takes_no_verb(store: Store) {
    limit::allow(5);
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        run(&mut client, "CREATE TABLE once (id int NOT NULL PRIMARY KEY)").await;
        let definitions = ["configure 1", "define_begin 1", "put_settings NULL, 1, 1, 1"];
        let definitions = definitions.map(|call| (String::new(), call.to_owned()));
        let verbs = routines().into_iter().map(|routine| {
            let (mut declared, mut arguments) = (String::new(), Vec::new());
            for (name, of) in &routine.parameters {
                if of.starts_with("dialoq.") {
                    declared.push_str(&format!("DECLARE @{name} {of};"));
                    arguments.push(format!("@{name} = @{name}"));
                } else {
                    arguments.push(format!("@{name} = NULL"));
                }
            }
            (declared, format!("{} {}", routine.name, arguments.join(", ")))
        });
        for (declared, verb) in verbs.chain(definitions) {
            let doomed = format!(
                "SET XACT_ABORT ON; {declared} BEGIN TRANSACTION;
                 BEGIN TRY INSERT once VALUES (1); INSERT once VALUES (1) END TRY BEGIN CATCH END CATCH;
                 IF XACT_STATE() <> -1 THROW 50001, N'it is not doomed', 1;
                 EXEC dialoq.{verb};"
            );
            assert_eq!(number(&mut client, &doomed).await, 60_020, "{verb}");
            run(&mut client, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET XACT_ABORT OFF").await;
        }
        assert_eq!(bodies(&broker, "server").await, ["a"]);
    });
}

/// The rows that tell of a process's readers are written by a session that holds the presence of that process.
pub(crate) fn a_process_writes_its_own_rows_only(store: Store) {
    on(store, |_, mut client| async move {
        let (mine, other) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        let calls = |process: uuid::Uuid| {
            [
                format!(
                    "EXEC dialoq.put_queue_monitor '{process}', 1, 1, N'DORMANT', NULL, NULL, 0, 1, 0, 0, 0, 0, 0, N'h', 1"
                ),
                format!("EXEC dialoq.put_activated_task '{process}', 1, 1, 1, N'p', 1, '2026-01-01'"),
                format!("EXEC dialoq.delete_queue_monitor '{process}', 1"),
                format!("EXEC dialoq.delete_activated_task '{process}', 1"),
                format!("EXEC dialoq.delete_process '{process}'"),
            ]
        };
        run(&mut client, &format!("EXEC dialoq.hold_presence '{mine}'")).await;
        for (own, foreign) in calls(mine).iter().zip(&calls(other)) {
            assert_eq!(number(&mut client, own).await, 0, "{own}");
            assert_eq!(number(&mut client, foreign).await, 60_005, "{foreign}");
        }
    });
}

/// A recheck reads all endpoints, and the last one all messages.
pub(crate) fn definitions_in_a_row_are_rechecked_once(store: Store) {
    on(store, |broker, mut client| async move {
        for number in 0..5 {
            broker
                .execute(&format!("CREATE SERVICE [s{number}] ON QUEUE server; DROP SERVICE [s{number}]"))
                .await
                .unwrap();
        }
        let rechecks = count(&mut client, "SELECT COUNT(*) FROM dialoq.recheck_queue WHERE endpoint_id = 0").await;
        assert!((1..=3).contains(&rechecks), "{rechecks} rechecks are to come");
        let last = "SELECT COUNT(*) FROM dialoq.recheck_queue WHERE endpoint_id = 0 AND is_initiator = 1";
        assert_eq!(count(&mut client, last).await, 1, "one of them reads the messages");
    });
}

/// A time-out of a client sends an attention. What the verb has begun by itself must end then: another verb of that session would
/// join it, and be undone with it.
pub(crate) fn a_verb_that_its_client_stops_leaves_no_transaction(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        // A relative reads no attention while a session waits for a lock.
        if is_relative(&mut client).await {
            return;
        }
        let handle = dialog(&broker).await;
        let send = format!("EXEC dialoq.send '{}', N'//t/Word', 0x61", handle.0);
        let mut holder = connect(&url).await;
        run(&mut holder, &format!("BEGIN TRANSACTION; {send}")).await;
        let waiting = async { client.simple_query(&send).await?.into_results().await };
        assert!(tokio::time::timeout(Duration::from_secs(2), waiting).await.is_err(), "it waits for the group");
        client.cancel_query().await.unwrap();
        assert_eq!(count(&mut client, "SELECT CAST(@@TRANCOUNT AS int)").await, 0);
        run(&mut holder, "ROLLBACK TRANSACTION").await;
        run(&mut client, &send).await;
        drop(client);
        assert_eq!(bodies(&broker, "server").await, ["a"]);
    });
}

pub(crate) fn a_database_that_is_not_there_is_named(store: Store) {
    let database = Database::bare(store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (place, parameters) = database.url().split_once('?').unwrap_or((database.url(), ""));
        let (server, _) = place.rsplit_once('/').unwrap();
        let refused = Broker::open(&format!("{server}/no_such_database?{parameters}")).await.unwrap_err();
        let text = refused.to_string();
        assert_eq!(refused.code().0, 60_034, "{text}");
        assert!(text.contains("no_such_database") && text.contains("CREATE DATABASE"), "{text}");
        assert!(!text.contains("refuses the login"), "the login is good: {text}");
    });
}
