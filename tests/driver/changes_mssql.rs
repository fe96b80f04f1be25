//! Changes of definitions and of conversations on SQL Server beside transactions that stay open, and the rechecks that follow them.

use crate::enlisting_mssql::{connect, dialog, on_url};
use crate::hostile_mssql::{number, run};
use crate::jobs_mssql::one;
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::mssql::Client;
use dialoq::mssql::tiberius::ColumnData;
use dialoq::{Act, Broker, ConversationHandle};
use tokio::task::JoinHandle;

async fn count(client: &mut Client, text: &str) -> i32 {
    one(client, text).await.get(0).expect("a number")
}

/// Runs a change of an administrator, until it is done or waits for a lock.
async fn begun(store: Store, broker: &Broker, url: &str, change: &str) -> JoinHandle<()> {
    let mut admin = connect(url).await;
    let change = format!("BEGIN TRANSACTION; {change}; COMMIT TRANSACTION");
    let changing = tokio::spawn(async move { run(&mut admin, &change).await });
    let waiting = async {
        while !changing.is_finished() && !store.waits_for_a_lock(broker).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("the change neither ends nor waits");
    changing
}

/// The effects of ALTER SERVICE [//t/Server] ON QUEUE other, and of DROP QUEUE server, without the client's limit of time.
const MOVES: &str = "DECLARE @service int = (SELECT service_id FROM dialoq.service WHERE name = N'//t/Server');
    DECLARE @from int = (SELECT queue_id FROM dialoq.service_queue WHERE folded_name = N'server');
    DECLARE @to int = (SELECT queue_id FROM dialoq.service_queue WHERE folded_name = N'other');
    UPDATE dialoq.service SET queue_id = @to WHERE service_id = @service;
    EXEC dialoq.on_service_moved @service, @from, @to";
const DROPS: &str = "DECLARE @queue int = (SELECT queue_id FROM dialoq.service_queue WHERE folded_name = N'server');
    EXEC dialoq.on_queue_dropped @queue";

/// So many conversations whose other sides have received one message: the handles, and those and the groups of the other sides.
async fn pairs(
    broker: &Broker,
    client: &mut Client,
    pairs: usize,
) -> Vec<(ConversationHandle, uuid::Uuid, uuid::Uuid)> {
    let mut all = Vec::new();
    for _ in 0..pairs {
        let handle = dialog(broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the other side");
        let other = format!(
            "SELECT t.conversation_handle, t.conversation_group_id
            FROM dialoq.conversation_endpoint AS i
            JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND t.is_initiator = 0
            WHERE i.conversation_handle = '{}'",
            handle.0
        );
        let other = one(client, &other).await;
        all.push((handle, other.get(0).unwrap(), other.get(1).unwrap()));
    }
    all
}

/// The statement that holds the group of a conversation to the end of its transaction.
fn hold(handle: uuid::Uuid) -> String {
    format!("BEGIN TRANSACTION; EXEC dialoq.reprioritise '{handle}', 5")
}

fn send(handle: ConversationHandle, text: &str) -> String {
    format!("EXEC dialoq.send '{}', N'//t/Word', {text}", handle.0)
}

/// A client gives up its wait for a group after 250 ms and tries again, for as long as a transaction holds the group. If it held the
/// others meanwhile, no message of the service would be received but between two tries.
pub(crate) fn a_change_that_waits_for_one_group_holds_no_other(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        for _ in 0..3 {
            broker.send(dialog(&broker).await, "//t/Word", "0").await.unwrap();
        }
        broker.execute("CREATE QUEUE other").await.unwrap();
        let mut holder = connect(&url).await;
        let last = "SELECT TOP (1) conversation_handle FROM dialoq.conversation_endpoint WHERE is_initiator = 0
            ORDER BY conversation_group_id DESC";
        let last: uuid::Uuid = one(&mut client, last).await.get(0).unwrap();
        run(&mut holder, &hold(last)).await;
        let changing = begun(store, &broker, &url, MOVES).await;
        let free = "SELECT COUNT(*) FROM dialoq.conversation_endpoint WHERE is_initiator = 0
            AND APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:group:', conversation_group_id), N'Exclusive', N'Session') = 1";
        assert_eq!(count(&mut client, free).await, 2);
        run(&mut holder, "ROLLBACK").await;
        changing.await.unwrap();
        for _ in 0..3 {
            assert!(broker.receive("other").await.unwrap().is_some());
        }
    });
}

/// The SEND of a first message makes the other side, which the change does not see before its commit.
pub(crate) fn an_error_for_all_conversations_reaches_a_side_that_is_being_made(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let handle = dialog(&broker).await;
        run(&mut client, &format!("BEGIN TRANSACTION; {}", send(handle, "0x61"))).await;
        let changing = begun(store, &broker, &url, "EXEC dialoq.on_error_broker_conversations").await;
        run(&mut client, "COMMIT").await;
        changing.await.unwrap();
        let errors = "SELECT COUNT(*) FROM dialoq.queue_message WHERE message_type_id = 1";
        assert_eq!(count(&mut client, errors).await, 2);
    });
}

/// An open SEND has announced its message to the queue that the service leaves meanwhile. The message is received although that queue
/// is dropped then.
pub(crate) fn a_message_under_way_to_a_service_that_moves_outlives_its_queue(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let handle = dialog(&broker).await;
        broker.execute("CREATE QUEUE other").await.unwrap();
        // No tick of its own makes a recheck.
        broker.close().await.unwrap();
        let mut sender = connect(&url).await;
        run(&mut sender, &format!("BEGIN TRANSACTION; {}", send(handle, "0x61"))).await;
        run(&mut client, &format!("BEGIN TRANSACTION; {MOVES}; COMMIT")).await;
        run(&mut sender, "COMMIT").await;
        // As if the rechecks that the move has requested had come before the commit.
        run(&mut client, "DELETE FROM dialoq.recheck_queue").await;
        run(&mut client, &format!("BEGIN TRANSACTION; {DROPS}; COMMIT")).await;
        let row = one(&mut client, "EXEC dialoq.receive N'other'").await;
        assert_eq!(row.get::<&[u8], _>("message_body"), Some(&b"a"[..]));
    });
}

/// A recheck waits for the transaction that holds the other side. A message that is committed does not.
pub(crate) fn a_message_under_way_waits_for_no_other_transaction(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let pairs = pairs(&broker, &mut client, 2).await;
        let ((handle, target, _), (_, _, group)) = (pairs[0], pairs[1]);
        broker.close().await.unwrap();
        let mut sender = connect(&url).await;
        let found = async |client: &mut Client, text: &str| {
            let ticking = async {
                while one(client, text).await.get::<i32, _>(0) != Some(0) {
                    run(client, "EXEC dialoq.tick").await;
                }
            };
            tokio::time::timeout(SOON, ticking).await.expect("the message is hidden");
        };
        // Announced to the group that the conversation leaves.
        run(&mut sender, &format!("BEGIN TRANSACTION; {}", send(handle, "0x61"))).await;
        run(&mut client, &format!("EXEC dialoq.move_conversation '{target}', '{group}'")).await;
        run(&mut sender, "COMMIT").await;
        run(&mut sender, &hold(handle.0)).await;
        let hidden = format!("SELECT COUNT(*) - 1 FROM dialoq.ready_group WHERE conversation_group_id = '{group}'");
        found(&mut client, &hidden).await;
        run(&mut sender, "ROLLBACK").await;
        // Put into the transmission queue while the way becomes free.
        run(&mut client, "UPDATE dialoq.service_queue SET is_enqueue_enabled = 0 WHERE folded_name = N'server'").await;
        run(&mut sender, &send(handle, "0x62")).await;
        run(&mut client, "UPDATE dialoq.service_queue SET is_enqueue_enabled = 1 WHERE folded_name = N'server'").await;
        run(&mut sender, &hold(target)).await;
        found(&mut client, "SELECT COUNT(*) FROM dialoq.transmission").await;
        run(&mut sender, "ROLLBACK").await;
        let rows = crate::jobs_mssql::rows(&mut client, "EXEC dialoq.receive N'server'").await;
        assert_eq!(rows.iter().map(|row| row.get("message_body").unwrap()).collect::<Vec<&[u8]>>(), [b"a", b"b"]);
    });
}

/// The target that an open SEND has made has no service any more.
pub(crate) fn a_conversation_of_a_dropped_service_is_not_found(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let handle = dialog(&broker).await;
        let mut sender = connect(&url).await;
        run(&mut sender, &format!("BEGIN TRANSACTION; {}", send(handle, "0x61"))).await;
        broker.execute("DROP SERVICE [//t/Server]").await.unwrap();
        // No tick of its own makes the recheck.
        broker.close().await.unwrap();
        run(&mut sender, "COMMIT").await;
        let target = "SELECT conversation_handle FROM dialoq.conversation_endpoint WHERE is_initiator = 0";
        let target = ConversationHandle(one(&mut client, target).await.get(0).unwrap());
        assert_eq!(number(&mut client, &send(target, "0x62")).await, 58_426);
        let batch = format!(
            "DECLARE @s dialoq.send_batch_rows;
            INSERT @s (item, conversation_handle, message_type_name, body_fault) VALUES (0, '{}', N'//t/Word', N'');
            EXEC dialoq.send_batch @s",
            target.0
        );
        assert_eq!(one(&mut client, &batch).await.get("error_number"), Some(8426));
    });
}

/// One side ends, and the other one is erased before that commits: it does not see the last message, and its peer has gone when it
/// looks for it.
pub(crate) fn a_message_to_a_side_that_is_erased_meanwhile_does_not_stay(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let pairs = pairs(&broker, &mut client, 1).await;
        let (handle, target, _) = pairs[0];
        // A row of the transmission queue, behind which the erasure waits.
        broker.execute("ALTER QUEUE asker WITH STATUS = OFF").await.unwrap();
        run(&mut client, &send(ConversationHandle(target), "0x61")).await;
        let (mut ending, mut holder, mut erasing) = (connect(&url).await, connect(&url).await, connect(&url).await);
        run(&mut holder, "BEGIN TRANSACTION; UPDATE dialoq.transmission SET status = status").await;
        run(&mut ending, &format!("BEGIN TRANSACTION; EXEC dialoq.end_conversation '{}'", handle.0)).await;
        let erasing = tokio::spawn(async move {
            run(&mut erasing, &format!("EXEC dialoq.end_conversation '{target}', @cleanup = 1")).await;
        });
        while !store.waits_for_a_lock(&broker).await {}
        run(&mut ending, "COMMIT").await;
        run(&mut holder, "ROLLBACK").await;
        erasing.await.unwrap();
        assert_eq!(count(&mut client, "SELECT COUNT(*) FROM dialoq.conversation_endpoint").await, 0);
        // An Error of a change of definitions may come as late.
        let late = "DECLARE @now datetime2(6) = SYSUTCDATETIME(), @notices nvarchar(max);
            EXEC dialoq.add_system_message 1000000, 1, 1, 0x61, @now, @notices OUTPUT";
        run(&mut client, late).await;
        let until = std::time::Instant::now() + SOON;
        while count(&mut client, "SELECT COUNT(*) FROM dialoq.queue_message").await > 0 {
            assert!(std::time::Instant::now() < until, "a message of no conversation stays");
            run(&mut client, "EXEC dialoq.tick").await;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
}

/// Requests that were made before the server's clock was set back have times that are still to come.
pub(crate) fn a_recheck_is_done_although_the_clock_was_set_back(store: Store) {
    on_url(store, |broker, mut client, _| async move {
        broker.close().await.unwrap();
        let request = "INSERT dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at)
            VALUES (1000000, NEWID(), 0, DATEADD(hour, 1, SYSUTCDATETIME()))";
        run(&mut client, request).await;
        let poll = one(&mut client, "EXEC dialoq.poll").await;
        let time = |name: &str| match poll.cells().find(|(column, _)| column.name() == name) {
            Some((_, ColumnData::DateTime2(Some(time)))) => (time.date().days(), time.time().increments()),
            other => panic!("{name} is {other:?}"),
        };
        assert!(time("due_at") <= time("now_at"), "the next event is an hour away");
        run(&mut client, "EXEC dialoq.tick").await;
        assert_eq!(count(&mut client, "SELECT COUNT(*) FROM dialoq.recheck_queue").await, 0);
    });
}

/// All of them wait for one transaction. A tick that read them all would take minutes, and would do nothing else meanwhile.
pub(crate) fn a_tick_reads_a_part_of_very_many_requests(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        let pairs = pairs(&broker, &mut client, 1).await;
        broker.close().await.unwrap();
        let mut holder = connect(&url).await;
        run(&mut holder, &hold(pairs[0].0.0)).await;
        let many = "DELETE FROM dialoq.recheck_queue;
            DECLARE @id uniqueidentifier = (SELECT conversation_id FROM dialoq.conversation_endpoint WHERE is_initiator = 0);
            DECLARE @endpoint bigint = (SELECT endpoint_id FROM dialoq.conversation_endpoint WHERE is_initiator = 0);
            DECLARE @n int = 0;
            WHILE @n < 60
            BEGIN
                INSERT dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at) VALUES (@endpoint, @id, 0, '2000-01-01');
                SET @n = @n + 1;
            END;
            INSERT dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at) VALUES (1000000, NEWID(), 0, '2000-01-02')";
        run(&mut client, many).await;
        let unread = "SELECT COUNT(*) FROM dialoq.recheck_queue WHERE recheck_at < '2001-01-01'";
        run(&mut client, "EXEC dialoq.tick 5").await;
        assert_eq!(count(&mut client, unread).await, 41, "a part is read");
        for _ in 0..3 {
            run(&mut client, "EXEC dialoq.tick 5").await;
        }
        assert_eq!(
            count(&mut client, "SELECT COUNT(*) FROM dialoq.recheck_queue").await,
            60,
            "the others have their turn"
        );
        run(&mut holder, "ROLLBACK").await;
    });
}
