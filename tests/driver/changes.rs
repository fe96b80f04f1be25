//! Changes of definitions beside transactions that stay open.

use crate::enlisting::{dialog, on};
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::Act;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use tokio::task::JoinHandle;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn number(client: &Client, text: &str) -> i64 {
    client.query_one(text, &[]).await.unwrap().get(0)
}

/// Runs a change of an administrator, until it is done or waits for a lock.
async fn begun(client: &Client, url: &str, change: String) -> JoinHandle<()> {
    let admin = self::client(url).await;
    let changing = tokio::spawn(async move { admin.batch_execute(&change).await.unwrap() });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waiting = async {
        while !changing.is_finished() && number(client, waits).await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("the change neither ends nor waits");
    changing
}

/// A client gives up its wait for a group after 250 ms and tries again, for as long as a transaction holds the group. If it held the
/// others meanwhile, no message of the service would be received but between two tries.
pub(crate) fn a_change_that_waits_for_one_group_holds_no_other(store: Store) {
    on(store, |broker, client, database| async move {
        for _ in 0..3 {
            broker.send(dialog(&broker).await, "//t/Word", "0").await.unwrap();
        }
        broker.execute("CREATE QUEUE other").await.unwrap();
        let holder = self::client(database.url()).await;
        let hold = "BEGIN; SELECT pg_advisory_xact_lock(max(dialoq.group_key(conversation_group_id)))
            FROM dialoq.conversation_endpoint WHERE NOT is_initiator";
        holder.batch_execute(hold).await.unwrap();
        let change = "BEGIN; UPDATE dialoq.service SET queue_id = (SELECT queue_id FROM dialoq.service_queue WHERE name = 'other')
                WHERE name = '//t/Server';
            SELECT dialoq.on_service_moved(
                (SELECT service_id FROM dialoq.service WHERE name = '//t/Server'),
                (SELECT queue_id FROM dialoq.service_queue WHERE name = 'server'),
                (SELECT queue_id FROM dialoq.service_queue WHERE name = 'other'));
            COMMIT";
        let changing = begun(&client, database.url(), change.to_owned()).await;
        let free = "SELECT count(*) FROM dialoq.conversation_endpoint
            WHERE NOT is_initiator AND dialoq.is_group_free(conversation_group_id)";
        assert_eq!(number(&client, free).await, 2);
        holder.batch_execute("ROLLBACK").await.unwrap();
        changing.await.unwrap();
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.receive('other')").await, 1);
    });
}

/// The SEND of a first message makes the other side, which the change does not see before its commit.
pub(crate) fn an_error_for_all_conversations_reaches_a_side_that_is_being_made(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        let sender = self::client(database.url()).await;
        sender.batch_execute(&format!("BEGIN; SELECT dialoq.send('{}', '//t/Word', '1')", handle.0)).await.unwrap();
        let change = "SELECT dialoq.on_error_broker_conversations()";
        let changing = begun(&client, database.url(), change.to_owned()).await;
        sender.batch_execute("COMMIT").await.unwrap();
        changing.await.unwrap();
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.queue_message WHERE message_type_id = 1").await, 2);
    });
}

/// The open SEND relies on the row that announces the message before its own. With more than 500 conversations they are erased at once.
pub(crate) fn a_queue_is_dropped_beside_an_open_send(store: Store) {
    on(store, |broker, client, _| async move {
        for conversations in [1, 501] {
            let mut handles = Vec::new();
            for _ in 0..conversations {
                handles.push(dialog(&broker).await);
            }
            broker.send_many(&handles, "//t/Word", "0").await.unwrap();
            let sender = broker.begin().await.unwrap();
            sender.send(handles[0], "//t/Word", "1").await.unwrap();
            let drop = broker.execute("DROP SERVICE [//t/Server]; DROP QUEUE server");
            tokio::time::timeout(SOON, drop).await.expect("it waits for the open SEND").unwrap();
            sender.commit().await.unwrap();
            let left = "SELECT count(*) FROM dialoq.ready_group AS r
                WHERE NOT EXISTS (SELECT FROM dialoq.service_queue AS q WHERE q.queue_id = r.queue_id)";
            let gone = async {
                while number(&client, left).await > 0 {
                    client
                        .batch_execute("UPDATE dialoq.recheck_queue SET noted_at = noted_at - interval '1 minute'")
                        .await
                        .unwrap();
                    client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
                }
            };
            tokio::time::timeout(SOON, gone).await.expect("the row stays");
            broker
                .execute("CREATE QUEUE server; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk])")
                .await
                .unwrap();
        }
    });
}

/// One side ends, and the other one is erased before that commits: it does not see the last message, and its peer has gone when it
/// looks for it.
pub(crate) fn a_message_to_a_side_that_is_erased_meanwhile_does_not_stay(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the other side");
        let target = "SELECT conversation_handle::text FROM dialoq.conversation_endpoint WHERE NOT is_initiator";
        let target: String = client.query_one(target, &[]).await.unwrap().get(0);
        // A row of the transmission queue, behind which the erasure waits.
        broker.execute("ALTER QUEUE asker WITH STATUS = OFF").await.unwrap();
        client.batch_execute(&format!("SELECT dialoq.send('{target}', '//t/Word', '1')")).await.unwrap();
        let (ending, holder) = (self::client(database.url()).await, self::client(database.url()).await);
        holder.batch_execute("BEGIN; SELECT FROM dialoq.transmission FOR UPDATE").await.unwrap();
        ending.batch_execute(&format!("BEGIN; SELECT dialoq.end_conversation('{}')", handle.0)).await.unwrap();
        let erase = format!("SELECT dialoq.end_conversation('{target}', NULL, NULL, true)");
        let erasing = begun(&client, database.url(), erase).await;
        ending.batch_execute("COMMIT").await.unwrap();
        holder.batch_execute("ROLLBACK").await.unwrap();
        erasing.await.unwrap();
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.conversation_endpoint").await, 0);
        let gone = async {
            while number(&client, "SELECT count(*) FROM dialoq.queue_message").await > 0 {
                client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, gone).await.expect("the message stays");
    });
}

/// Receives are held back for a minute at most. A definition whose process has died leaves its hold to the clock.
pub(crate) fn a_hold_ends_although_the_clock_is_set_back(store: Store) {
    on(store, |broker, client, _| async move {
        broker.send(dialog(&broker).await, "//t/Word", "0").await.unwrap();
        broker.close().await.unwrap();
        for (later, given) in [("30 seconds", 0), ("1 hour", 1)] {
            let hold =
                format!("UPDATE dialoq.service_queue SET receives_held_until = clock_timestamp() + interval '{later}'");
            client.batch_execute(&hold).await.unwrap();
            let received = "SELECT count(*) FROM dialoq.receive('server')";
            assert_eq!(number(&client, received).await, given, "a hold of {later}");
        }
        client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
        let holds = "SELECT count(*) FROM dialoq.service_queue WHERE receives_held_until IS NOT NULL";
        assert_eq!(number(&client, holds).await, 0);
    });
}

/// Both sides of a conversation reach its LIFETIME together. One that has read its Error ended while `tick` was about to write the other's.
pub(crate) fn a_conversation_gets_one_error_however_many_are_raised(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the other side");
        broker.close().await.unwrap();
        let errors = "SELECT count(*) FROM dialoq.queue_message AS m JOIN dialoq.conversation_endpoint AS e
            ON e.endpoint_id = m.endpoint_id WHERE NOT e.is_initiator AND m.message_type_id = 1";
        let overdue = "UPDATE dialoq.conversation_endpoint SET lifetime = clock_timestamp(), due_at = clock_timestamp()
            WHERE is_initiator";
        client.batch_execute(overdue).await.unwrap();
        client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
        let overdue = overdue.replace("WHERE is", "WHERE NOT is");
        client.batch_execute(&overdue).await.unwrap();
        client.batch_execute(&format!("SELECT dialoq.end_conversation('{}')", handle.0)).await.unwrap();
        assert_eq!(number(&client, errors).await, 0, "it is to get another one");
        client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
        assert_eq!(number(&client, errors).await, 1);
        client
            .batch_execute("SELECT dialoq.end_conversation(conversation_handle) FROM dialoq.receive('server')")
            .await
            .unwrap();

        // Two transactions that do not see each other.
        let broker = dialoq::Broker::open(database.url()).await.unwrap();
        broker.send(dialog(&broker).await, "//t/Word", "1").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the other side");
        let other = self::client(database.url()).await;
        for (session, code) in [(&client, -8489), (&other, -8462)] {
            let raise = format!(
                "BEGIN; SELECT dialoq.raise_error(e.endpoint_id, {code}, 'x') FROM dialoq.conversation_endpoint AS e
                    WHERE NOT e.is_initiator AND e.state = 'CO'"
            );
            session.batch_execute(&raise).await.unwrap();
        }
        for session in [&client, &other] {
            session.batch_execute("COMMIT").await.unwrap();
        }
        let received = broker.receive("server").await.unwrap().expect("an Error");
        assert_eq!(
            received.iter().map(|message| message.error().map(|error| error.code)).collect::<Vec<_>>(),
            [Some(-8489)]
        );
    });
}

/// A receiver that a change of very many conversations did not see when it began keeps its message while the change waits for it.
pub(crate) fn no_kept_message_outlives_its_conversation(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("ALTER QUEUE server WITH RETENTION = ON").await.unwrap();
        let mut handles = Vec::new();
        for _ in 0..501 {
            handles.push(dialog(&broker).await);
        }
        broker.send_many(&handles, "//t/Word", "0").await.unwrap();
        broker.close().await.unwrap();
        let (holder, receiver) = (self::client(database.url()).await, self::client(database.url()).await);
        holder.batch_execute("BEGIN; SELECT dialoq.receive('server', 1)").await.unwrap();
        let change = "SELECT dialoq.on_service_dropped(s.service_id, s.queue_id) FROM dialoq.service AS s WHERE s.name = '//t/Server'";
        let changing = begun(&client, database.url(), change.to_owned()).await;
        receiver.batch_execute("BEGIN; SELECT dialoq.receive('server', 1)").await.unwrap();
        holder.batch_execute("ROLLBACK").await.unwrap();
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted";
        while number(&client, waits).await == 0 {
            tokio::task::yield_now().await;
        }
        receiver.batch_execute("COMMIT").await.unwrap();
        changing.await.unwrap();
        assert_eq!(
            number(&client, "SELECT count(*) FROM dialoq.conversation_endpoint WHERE NOT is_initiator").await,
            0
        );
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.retained_message").await, 0);
    });
}
