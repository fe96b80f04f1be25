//! Messages under way to a conversation that moves to another group, or to a service that moves to another queue.

use crate::enlisting::{dialog, on};
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::Act;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The texts that a RECEIVE gives.
async fn texts(client: &Client, receive: &str) -> Vec<String> {
    let text =
        format!("SELECT convert_from(message_body, 'UTF8') FROM dialoq.{receive} WHERE message_body IS NOT NULL");
    client.query(&text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// The handles and groups of the other sides of two conversations.
async fn targets(client: &Client, handles: [&str; 2]) -> [(String, String); 2] {
    let mut targets = Vec::new();
    for handle in handles {
        let target = "SELECT t.conversation_handle::text, t.conversation_group_id::text
            FROM dialoq.conversation_endpoint AS i JOIN dialoq.conversation_endpoint AS t
                ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
            WHERE i.is_initiator AND i.conversation_handle = $1::text::uuid";
        let row = client.query_one(target, &[&handle]).await.unwrap();
        targets.push((row.get(0), row.get(1)));
    }
    targets.try_into().unwrap()
}

/// Runs the rechecks that were requested.
async fn recheck(client: &Client) {
    // Those also wait for transactions of other databases of the server.
    while client.query_one("SELECT count(*) FROM dialoq.recheck_queue", &[]).await.unwrap().get::<_, i64>(0) > 0 {
        client
            .batch_execute("UPDATE dialoq.recheck_queue SET noted_at = noted_at - interval '1 minute'; SELECT 1")
            .await
            .unwrap();
        client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
    }
}

async fn moved_ones(client: &Client) -> i64 {
    let count = "SELECT count(*) FROM dialoq.conversation_endpoint WHERE moved_recheck_id IS NOT NULL";
    client.query_one(count, &[]).await.unwrap().get(0)
}

/// An open SEND has announced its message to the group that the conversation leaves meanwhile. The next message is announced to the
/// new one, and does not come before it.
pub(crate) fn a_message_under_way_to_a_conversation_that_moves_comes_before_the_next(store: Store) {
    on(store, |broker, client, database| async move {
        let receives = [
            ("receive('server', 1)", 1),
            ("receive('server', 2)", 2),
            ("receive('server')", 2),
            ("receive('server', 1, p_oldest => true)", 1),
            ("receive('server', 1, p_conversation_handle => '{handle}')", 1),
            ("receive('server', 1, p_conversation_group_id => '{group}')", 1),
            ("receive_batch('server', ARRAY[1]::bigint[])", 1),
            ("receive_batch('server', ARRAY[1, 1]::bigint[])", 2),
            ("receive_batch('server', ARRAY[NULL, NULL]::bigint[])", 2),
            // RECEIVE serves the caller.
            ("claim_batch('server', ARRAY[1]::bigint[], '{}')", 0),
            ("claim_batch('server', ARRAY[2]::bigint[], '{}')", 0),
        ];
        let mut pairs = Vec::new();
        for _ in receives {
            let pair = (dialog(&broker).await, dialog(&broker).await);
            broker.send(pair.0, "//t/Word", "0").await.unwrap();
            broker.send(pair.1, "//t/Word", "0").await.unwrap();
            pairs.push((pair.0.0.to_string(), pair.1.0.to_string()));
        }
        // No tick of its own makes a recheck.
        broker.close().await.unwrap();
        assert_eq!(texts(&client, "receive_batch('server', array_fill(NULL::bigint, ARRAY[22]))").await.len(), 22);
        let sender = self::client(database.url()).await;
        for ((receive, first), (moved, other)) in receives.into_iter().zip(&pairs) {
            let [(handle, _), (_, group)] = targets(&client, [moved, other]).await;
            let send = |text| format!("SELECT * FROM dialoq.send('{moved}', '//t/Word', '{text}')");
            sender.batch_execute(&format!("BEGIN; {}", send("1"))).await.unwrap();
            let command = format!("SELECT dialoq.move_conversation('{handle}', '{group}')");
            client.batch_execute(&command).await.unwrap();
            sender.batch_execute("COMMIT").await.unwrap();
            sender.batch_execute(&send("2")).await.unwrap();
            let mut seen = texts(&client, &receive.replace("{handle}", &handle).replace("{group}", &group)).await;
            assert_eq!(seen.len(), first, "{receive}");
            client.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
            while seen.len() < 2 {
                let next = texts(&client, "receive('server', 1)").await;
                assert!(!next.is_empty(), "a message stays behind after {receive}");
                seen.extend(next);
            }
            assert_eq!(seen, ["1", "2"], "{receive}");
        }
        assert_eq!(moved_ones(&client).await, i64::try_from(pairs.len()).unwrap());
        recheck(&client).await;
        assert_eq!(moved_ones(&client).await, 0, "the rows of their groups are right again");
    });
}

/// The message is counted and its rollback too, although no row of its group names it.
pub(crate) fn a_message_under_way_to_a_conversation_that_moves_is_seen_by_polls_and_notes(store: Store) {
    on(store, |broker, client, database| async move {
        let (moved, other) = (dialog(&broker).await, dialog(&broker).await);
        for handle in [moved, other] {
            broker.send(handle, "//t/Word", "0").await.unwrap();
        }
        broker.close().await.unwrap();
        texts(&client, "receive_batch('server', ARRAY[1, 1]::bigint[])").await;
        let (moved, other) = (moved.0.to_string(), other.0.to_string());
        let [(handle, _), (_, group)] = targets(&client, [&moved, &other]).await;
        let sender = self::client(database.url()).await;
        let send = |to: &str, text| format!("SELECT * FROM dialoq.send('{to}', '//t/Word', '{text}')");
        sender.batch_execute(&format!("BEGIN; {}", send(&moved, "1"))).await.unwrap();
        client.batch_execute(&format!("SELECT dialoq.move_conversation('{handle}', '{group}')")).await.unwrap();
        sender.batch_execute("COMMIT").await.unwrap();
        sender.batch_execute(&send(&moved, "2")).await.unwrap();
        let reader = self::client(database.url()).await;
        reader.batch_execute("BEGIN; SELECT * FROM dialoq.receive('server', 1)").await.unwrap();
        let held = client.query_one("SELECT held_queues FROM dialoq.poll()", &[]).await.unwrap();
        assert!(held.get::<_, String>(0).ends_with(":2"), "{held:?}");
        let note = "SELECT dialoq.begin_attempt(gen_random_uuid(), q.queue_id, $1::text::uuid)
            FROM dialoq.service_queue AS q WHERE q.folded_name = 'server'";
        client.query(note, &[&group]).await.unwrap();
        let notes = client.query_one("SELECT count(*) FROM dialoq.receive_attempt", &[]).await.unwrap();
        assert_eq!(notes.get::<_, i64>(0), 1);
        reader.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// The recheck after the first of two moves says nothing about the second.
pub(crate) fn a_conversation_that_moves_again_waits_for_its_last_recheck(store: Store) {
    on(store, |broker, client, _| async move {
        let handles = [dialog(&broker).await, dialog(&broker).await];
        for handle in handles {
            broker.send(handle, "//t/Word", "0").await.unwrap();
        }
        broker.close().await.unwrap();
        let [first, second] = handles.map(|handle| handle.0.to_string());
        let [(handle, group), (other, to)] = targets(&client, [&first, &second]).await;
        // A group goes with its last conversation.
        let stays = "INSERT INTO dialoq.conversation_endpoint (
                conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator, far_service, state,
                priority, lifetime, receive_sequence, is_peer_known, is_system, is_quarantined, begun_at)
            SELECT gen_random_uuid(), gen_random_uuid(), e.conversation_group_id, e.service_id, e.service_contract_id, false, e.far_service,
                'CO', 5, e.lifetime, 0, true, false, false, e.begun_at
            FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = $1::text::uuid";
        client.execute(stays, &[&handle]).await.unwrap();
        for (handle, group) in [(&handle, &to), (&handle, &group)] {
            client.batch_execute(&format!("SELECT dialoq.move_conversation('{handle}', '{group}')")).await.unwrap();
        }
        assert_ne!(other, handle);
        let step = "SELECT s.is_done FROM dialoq.recheck_queue AS q, dialoq.do_step('recheck', q.endpoint_id, q.recheck_id, NULL) AS s
            WHERE q.recheck_id = (SELECT CASE WHEN $1 THEN max(n.recheck_id) ELSE min(n.recheck_id) END FROM dialoq.recheck_queue AS n)";
        assert!(client.query_one(step, &[&false]).await.unwrap().get::<_, bool>(0));
        assert_eq!(moved_ones(&client).await, 1);
        assert!(client.query_one(step, &[&true]).await.unwrap().get::<_, bool>(0));
        assert_eq!(moved_ones(&client).await, 0);
    });
}

/// An open SEND has announced its message to the queue that the service leaves meanwhile. The message is received although that queue
/// is dropped then.
pub(crate) fn a_message_under_way_to_a_service_that_moves_outlives_its_queue(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the target");
        let sender = broker.begin().await.unwrap();
        sender.send(handle, "//t/Word", "1").await.unwrap();
        broker.execute("CREATE QUEUE other; ALTER SERVICE [//t/Server] ON QUEUE other").await.unwrap();
        sender.commit().await.unwrap();
        // As before the recheck that the move of the service has requested.
        let wrong = "UPDATE dialoq.ready_group AS r SET queue_id = q.queue_id FROM dialoq.service_queue AS q WHERE q.folded_name = 'server'";
        assert_eq!(client.execute(wrong, &[]).await.unwrap(), 1);
        broker.execute("DROP QUEUE server").await.unwrap();
        broker.send(handle, "//t/Word", "2").await.unwrap();
        assert_eq!(texts(&client, "receive_batch('other', ARRAY[NULL, NULL]::bigint[])").await, ["1", "2"]);
    });
}

/// A SEND that is open while the service and its queue are dropped announces its message to a queue that is gone.
pub(crate) fn a_dropped_queue_leaves_no_row_of_a_message_under_way(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the target");
        let sender = broker.begin().await.unwrap();
        sender.send(handle, "//t/Word", "1").await.unwrap();
        broker.execute("DROP SERVICE [//t/Server]; DROP QUEUE server").await.unwrap();
        sender.commit().await.unwrap();
        recheck(&client).await;
        let left = "SELECT (SELECT count(*) FROM dialoq.queue_message) + (SELECT count(*) FROM dialoq.ready_group AS r
            WHERE NOT EXISTS (SELECT FROM dialoq.service_queue AS q WHERE q.queue_id = r.queue_id))";
        // The Error to the sender stays.
        assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 1);
    });
}

/// The row that announces such a message is on its way to the next generation while the service moves, or while the queue is dropped.
pub(crate) fn a_message_of_a_service_that_moves_outlives_its_queue_in_a_turn_of_the_generations(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the target");
        broker.send(handle, "//t/Word", "1").await.unwrap();
        broker.execute("CREATE QUEUE other").await.unwrap();
        // No tick of its own makes the recheck that the move of the service requests.
        broker.close().await.unwrap();
        let turning = self::client(database.url()).await;
        // As turn_generation.
        let turn = "BEGIN; WITH gone AS (DELETE FROM dialoq.ready_group RETURNING *)
            INSERT INTO dialoq.ready_group SELECT * FROM gone";
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let queue =
            |name: &str| format!("(SELECT q.queue_id FROM dialoq.service_queue AS q WHERE q.folded_name = '{name}')");
        let (server, other) = (queue("server"), queue("other"));
        let service = "s.name = '//t/Server'";
        // As a client does, but without its limit of time.
        let moves = format!(
            "BEGIN; UPDATE dialoq.service AS s SET queue_id = {other} WHERE {service};
            SELECT dialoq.on_service_moved(s.service_id, {server}, {other}) FROM dialoq.service AS s WHERE {service}; COMMIT"
        );
        let drops = format!("SELECT dialoq.on_queue_dropped({server})");
        for (effect, queues) in [(moves, ["other"]), (drops, ["server"])] {
            // A SEND that has read the service before announces its message so.
            let under_way = format!("UPDATE dialoq.ready_group SET queue_id = {server}");
            client.batch_execute(&under_way).await.unwrap();
            turning.batch_execute(turn).await.unwrap();
            let defining = self::client(database.url()).await;
            let defining = tokio::spawn(async move { defining.batch_execute(&effect).await });
            while client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
            turning.batch_execute("COMMIT").await.unwrap();
            defining.await.unwrap().unwrap();
            let rows = "SELECT q.folded_name FROM dialoq.ready_group AS r
                JOIN dialoq.service_queue AS q ON q.queue_id = r.queue_id";
            let rows = client.query(rows, &[]).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<String>>(), queues);
        }
        recheck(&client).await;
        assert_eq!(texts(&client, "receive('other')").await, ["1"]);
    });
}

/// A recheck waits for every transaction of the server that has written something. A message does not.
pub(crate) fn a_message_under_way_waits_for_no_other_transaction(store: Store) {
    on(store, |broker, client, database| async move {
        let (first, second) = (dialog(&broker).await, dialog(&broker).await);
        for handle in [first, second] {
            broker.send(handle, "//t/Word", "0").await.unwrap();
        }
        assert_eq!(texts(&client, "receive_batch('server', ARRAY[NULL, NULL]::bigint[])").await.len(), 2);
        let [(target, _), (_, group)] = targets(&client, [&first.0.to_string(), &second.0.to_string()]).await;
        let long = self::client(database.url()).await;
        long.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let sender = self::client(database.url()).await;
        let move_it = format!("SELECT dialoq.move_conversation('{target}', '{group}')");
        for (number, effect, receive) in [
            (1, "MOVE", "receive('server')"),
            (2, "CREATE QUEUE other; ALTER SERVICE [//t/Server] ON QUEUE other", "receive('other')"),
            (3, "ALTER QUEUE other WITH STATUS = ON", "receive('other')"),
        ] {
            if number == 3 {
                broker.execute("ALTER QUEUE other WITH STATUS = OFF").await.unwrap();
            }
            let send = format!("BEGIN; SELECT dialoq.send('{}', '//t/Word', '{number}')", first.0);
            sender.batch_execute(&send).await.unwrap();
            match effect {
                "MOVE" => client.batch_execute(&move_it).await.unwrap(),
                _ => drop(broker.execute(effect).await.unwrap()),
            }
            sender.batch_execute("COMMIT").await.unwrap();
            assert_eq!(ticked(&client, receive).await, [number.to_string()], "{effect}");
        }
        long.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// Of very many requests a tick looks at a part, another one each time. The ids of requests that hide nothing lie between: after a million
/// conversations that have ended, chance that chose an id chose one before all others.
pub(crate) fn a_message_under_way_is_found_behind_many_requests(store: Store) {
    on(store, |broker, client, database| async move {
        let (first, second) = (dialog(&broker).await, dialog(&broker).await);
        for handle in [first, second] {
            broker.send(handle, "//t/Word", "0").await.unwrap();
        }
        assert_eq!(texts(&client, "receive_batch('server', ARRAY[NULL, NULL]::bigint[])").await.len(), 2);
        let [(target, _), (_, group)] = targets(&client, [&first.0.to_string(), &second.0.to_string()]).await;
        let long = self::client(database.url()).await;
        long.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let many = "SELECT setval('dialoq.unsettled_unsettled_id_seq', 4000000000000);
            INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at, may_hide)
            SELECT 1000000 + n, clock_timestamp(), true FROM generate_series(1, 1000) AS g (n)";
        client.batch_execute(many).await.unwrap();
        let sender = self::client(database.url()).await;
        sender.batch_execute(&format!("BEGIN; SELECT dialoq.send('{}', '//t/Word', '1')", first.0)).await.unwrap();
        client.batch_execute(&format!("SELECT dialoq.move_conversation('{target}', '{group}')")).await.unwrap();
        sender.batch_execute("COMMIT").await.unwrap();
        assert_eq!(ticked(&client, "receive('server')").await, ["1"]);
        long.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// The texts that a RECEIVE gives after some ticks.
async fn ticked(client: &Client, receive: &str) -> Vec<String> {
    let found = async {
        loop {
            client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
            let texts = texts(client, receive).await;
            if !texts.is_empty() {
                return texts;
            }
        }
    };
    tokio::time::timeout(SOON, found).await.expect("the message is hidden")
}

/// The queue that the service has left may have many messages of another service, or may be gone.
pub(crate) fn a_message_under_way_to_a_service_that_moves_waits_for_no_other_transaction(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "0").await.unwrap();
        broker.receive("server").await.unwrap().expect("the first message makes the target");
        broker.execute("CREATE SERVICE [//t/Second] ON QUEUE server ([//t/Talk]); CREATE QUEUE other").await.unwrap();
        let many = "CREATE TABLE handle AS SELECT
                (dialoq.begin_dialog_conversation('//t/Asker', '//t/Second', p_contract => '//t/Talk')).conversation_handle AS handle
            FROM generate_series(1, 300);
            SELECT count(*) FROM handle AS h CROSS JOIN LATERAL dialoq.send(h.handle, '//t/Word', 'before')";
        client.batch_execute(many).await.unwrap();
        let long = self::client(database.url()).await;
        long.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let sender = self::client(database.url()).await;
        for (effect, receive) in [
            ("ALTER SERVICE [//t/Server] ON QUEUE other", "receive('other')"),
            ("CREATE QUEUE third; ALTER SERVICE [//t/Server] ON QUEUE third; DROP QUEUE other", "receive('third')"),
        ] {
            sender.batch_execute(&format!("BEGIN; SELECT dialoq.send('{}', '//t/Word', '1')", handle.0)).await.unwrap();
            broker.execute(effect).await.unwrap();
            sender.batch_execute("COMMIT").await.unwrap();
            assert_eq!(ticked(&client, receive).await, ["1"], "{effect}");
        }
        long.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// An idle process looks for what is due once a minute. It looks sooner after a change that may hide a message.
pub(crate) fn a_message_under_way_is_found_by_an_idle_process(store: Store) {
    on(store, |broker, client, database| async move {
        let (first, second) = (dialog(&broker).await, dialog(&broker).await);
        for handle in [first, second] {
            broker.send(handle, "//t/Word", "0").await.unwrap();
        }
        assert_eq!(texts(&client, "receive_batch('server', ARRAY[NULL, NULL]::bigint[])").await.len(), 2);
        let [(target, _), (_, group)] = targets(&client, [&first.0.to_string(), &second.0.to_string()]).await;
        let sender = self::client(database.url()).await;
        for is_move in [true, false] {
            if !is_move {
                broker.execute("ALTER QUEUE server WITH STATUS = OFF").await.unwrap();
            }
            sender.batch_execute(&format!("BEGIN; SELECT dialoq.send('{}', '//t/Word', '1')", first.0)).await.unwrap();
            match is_move {
                true => {
                    let moves = format!("SELECT dialoq.move_conversation('{target}', '{group}')");
                    client.batch_execute(&moves).await.unwrap();
                }
                false => drop(broker.execute("ALTER QUEUE server WITH STATUS = ON").await.unwrap()),
            }
            sender.batch_execute("COMMIT").await.unwrap();
            let found = broker.receive("server").wait(SOON).await.unwrap().expect("the message is hidden");
            assert_eq!(found.first().text().unwrap(), "1");
            // Else the next tick is near anyway.
            while client.query_one("SELECT count(*) FROM dialoq.recheck_queue", &[]).await.unwrap().get::<_, i64>(0) > 0
            {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    });
}

/// The target that an open SEND has made has no service any more.
pub(crate) fn a_conversation_of_a_dropped_service_is_not_found(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        let sender = self::client(database.url()).await;
        let send = |handle: &str| format!("SELECT * FROM dialoq.send('{handle}', '//t/Word', 'a')");
        sender.batch_execute(&format!("BEGIN; {}", send(&handle.0.to_string()))).await.unwrap();
        broker.execute("DROP SERVICE [//t/Server]").await.unwrap();
        // No tick of its own makes the recheck.
        broker.close().await.unwrap();
        sender.batch_execute("COMMIT").await.unwrap();
        let target = "SELECT conversation_handle::text FROM dialoq.conversation_endpoint WHERE NOT is_initiator";
        let target: String = client.query_one(target, &[]).await.unwrap().get(0);
        let refused = client.batch_execute(&send(&target)).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "SB426", "{refused:?}");
        let batch = format!(
            "SELECT error_number, error_message FROM dialoq.send_batch(ARRAY['{target}']::uuid[], ARRAY['//t/Word'],
                ARRAY['a']::bytea[], ARRAY[NULL]::text[], ARRAY[''], ARRAY[NULL]::uuid[])"
        );
        let refused = client.query_one(&batch, &[]).await.unwrap();
        assert_eq!(refused.get::<_, i32>(0), 8426, "{refused:?}");
    });
}

/// A row of the claim index that leads to nothing, of a group that a session holds.
pub(crate) fn a_held_group_without_messages_counts_for_nothing(store: Store) {
    on(store, |broker, client, database| async move {
        broker.close().await.unwrap();
        // So many that a poll looks at no message of them first.
        let rows = "INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT q.queue_id, 5, n, md5(n::text)::uuid, (SELECT max(g.latest) FROM dialoq.ready_generation AS g)
            FROM dialoq.service_queue AS q, generate_series(1, 60) AS n WHERE q.folded_name = 'server'";
        client.execute(rows, &[]).await.unwrap();
        let holder = self::client(database.url()).await;
        holder.batch_execute("SELECT pg_advisory_lock(dialoq.group_key(md5('1')::uuid))").await.unwrap();
        let held = client.query_one("SELECT has_locked, held_queues FROM dialoq.poll()", &[]).await.unwrap();
        assert_eq!((held.get(0), held.get(1)), (true, ""));
    });
}

/// Requests that were made before the server's clock was set back have times that are still to come.
pub(crate) fn a_recheck_is_done_although_the_clock_was_set_back(store: Store) {
    on(store, |_broker, client, _| async move {
        let request = "INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at) VALUES (1000000, clock_timestamp() + interval '1 hour')";
        client.batch_execute(request).await.unwrap();
        let left = "SELECT count(*) FROM dialoq.recheck_queue";
        let done = async {
            while client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
            }
        };
        tokio::time::timeout(SOON, done).await.expect("the request waits for its time");
    });
}

/// All of them wait for one transaction. A tick that read them all would take seconds, and the next would come at once.
pub(crate) fn a_tick_reads_a_part_of_very_many_requests(store: Store) {
    on(store, |_broker, client, database| async move {
        let long = self::client(database.url()).await;
        long.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let many = "INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at, after_xid)
            SELECT 1000000 + n, clock_timestamp() - interval '1 minute', pg_current_xact_id() FROM generate_series(1, 100000) AS g (n);
            INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at) VALUES (1, clock_timestamp())";
        client.batch_execute(many).await.unwrap();
        let read = "SELECT pg_stat_get_xact_tuples_returned('dialoq.unsettled_pkey'::regclass)";
        client.batch_execute("BEGIN; SELECT * FROM dialoq.tick()").await.unwrap();
        let read: i64 = client.query_one(read, &[]).await.unwrap().get(0);
        client.batch_execute("COMMIT").await.unwrap();
        assert!(read < 100_000, "{read} requests read");
        let unseen = "SELECT count(*) FROM dialoq.recheck_queue WHERE after_xid IS NULL";
        assert_eq!(client.query_one(unseen, &[]).await.unwrap().get::<_, i64>(0), 0, "the last one is seen too");
        long.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// The bounds choose a group by its level. They were ignored where the group was chosen in another way.
pub(crate) fn bounds_of_the_level_are_refused_where_they_choose_nothing(store: Store) {
    on(store, |broker, client, _| async move {
        broker.send(dialog(&broker).await, "//t/Word", "0").await.unwrap();
        broker.close().await.unwrap();
        for way in ["p_oldest => true", "p_conversation_group_id => gen_random_uuid()"] {
            for bounds in ["p_lowest => 2", "p_highest => 9"] {
                let receive = format!("SELECT FROM dialoq.receive('server', 1, {way}, {bounds})");
                let refused = client.query(&receive, &[]).await.unwrap_err();
                let message = refused.as_db_error().unwrap().message();
                assert!(message.contains("leave it out"), "{receive}: {message}");
            }
        }
        let all = "receive('server', 1, p_oldest => true, p_lowest => 1, p_highest => 10)";
        assert_eq!(texts(&client, all).await, ["0"]);
    });
}

/// An open SEND had found its peer before that ended. A RECEIVE of one took this late message, which no receiver gets, for the one that
/// it was to give, and was empty.
pub(crate) fn a_message_that_came_to_a_side_as_it_ended_takes_no_place_of_another(store: Store) {
    on(store, |broker, client, database| async move {
        let receives = [
            "receive('server', 1)",
            "receive('server', 1, p_oldest => true)",
            "receive('server', 1, p_conversation_group_id => '{group}')",
            "receive_batch('server', ARRAY[1]::bigint[])",
        ];
        let mut pairs = Vec::new();
        for _ in receives {
            let pair = (dialog(&broker).await, dialog(&broker).await);
            broker.send(pair.0, "//t/Word", "0").await.unwrap();
            broker.send(pair.1, "//t/Word", "0").await.unwrap();
            pairs.push((pair.0.0.to_string(), pair.1.0.to_string()));
        }
        // No tick of its own makes a recheck.
        broker.close().await.unwrap();
        assert_eq!(texts(&client, "receive_batch('server', array_fill(NULL::bigint, ARRAY[8]))").await.len(), 8);
        let sender = self::client(database.url()).await;
        for (receive, (ended, open)) in receives.into_iter().zip(&pairs) {
            let [(ended_side, group), (open_side, _)] = targets(&client, [ended, open]).await;
            client.batch_execute(&format!("SELECT dialoq.move_conversation('{open_side}', '{group}')")).await.unwrap();
            let send = |to: &str, text| format!("SELECT * FROM dialoq.send('{to}', '//t/Word', '{text}')");
            sender.batch_execute(&format!("BEGIN; {}", send(ended, "late"))).await.unwrap();
            client.batch_execute(&format!("SELECT dialoq.end_conversation('{ended_side}')")).await.unwrap();
            sender.batch_execute("COMMIT").await.unwrap();
            sender.batch_execute(&send(open, "ready")).await.unwrap();
            assert_eq!(texts(&client, &receive.replace("{group}", &group)).await, ["ready"], "{receive}");
            assert!(texts(&client, "receive('server')").await.is_empty());
        }
        recheck(&client).await;
        let late = "SELECT count(*) FROM dialoq.queue_message WHERE body IS NOT NULL";
        let left = client.query_one(late, &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 0, "the rechecks remove what came late");
    });
}
