//! Batches of SENDs and of RECEIVEs, as the broker makes them.

use crate::enlisting::{dialog, on};
use crate::servers::Store;
use dialoq::Act;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls, error::SqlState, types::ToSql};

/// What a batch refuses: to each of the handles $1, $2 in number, its own text is sent.
const SEND: &str = "SELECT item, error_number FROM dialoq.send_batch(
    $1::text[]::uuid[], array_fill('//t/Word'::text, ARRAY[$2::int]),
    ARRAY(SELECT convert_to(h.handle, 'UTF8') FROM unnest($1) WITH ORDINALITY AS h (handle, place) ORDER BY h.place),
    array_fill(NULL::text, ARRAY[$2]), array_fill(''::text, ARRAY[$2]), array_fill(NULL::uuid, ARRAY[$2]))
    WHERE error_number IS NOT NULL";

/// The sequence numbers of what stands at the other side of conversation $1, and whether each has the text meant for it.
const NUMBERS: &str =
    "SELECT array_agg(m.sequence ORDER BY m.queuing_order), bool_and(convert_from(m.body, 'UTF8') IN ($1, 'alone'))
    FROM dialoq.conversation_endpoint AS i
    JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
    JOIN dialoq.queue_message AS m ON m.endpoint_id = t.endpoint_id
    WHERE i.is_initiator AND i.conversation_handle = $1::text::uuid";

/// A batch has a short way for usual messages. This mixes unusual groups among usual ones, on one level: conversations that
/// are ended, two in one group, and rows of the claim index that promise too much, stand twice, or lead to no group.
pub(crate) fn a_batch_serves_usual_and_unusual_groups(store: Store) {
    on(store, |broker, client, _| async move {
        for number in 0..12 {
            let handle = dialog(&broker).await;
            for text in ["a", "b"] {
                broker.send(handle, "//t/Word", text).await.unwrap();
            }
            if number % 4 == 3 {
                broker.end(handle).await.unwrap();
            }
        }
        let targets = "SELECT conversation_handle::text, conversation_group_id::text FROM dialoq.conversation_endpoint
            WHERE NOT is_initiator ORDER BY endpoint_id";
        let targets = client.query(targets, &[]).await.unwrap();
        let (moved, group): (String, String) = (targets[0].get(0), targets[1].get(1));
        client
            .query("SELECT dialoq.move_conversation($1::text::uuid, $2::text::uuid)", &[&moved, &group])
            .await
            .unwrap();
        let rows = "INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT r.queue_id, r.rank_from_top, r.oldest - d.age, r.conversation_group_id, r.generation
            FROM dialoq.ready_group AS r CROSS JOIN (VALUES (0), (0), (3)) AS d (age)
            WHERE r.conversation_group_id IN ($1::text::uuid, $2::text::uuid)
            UNION ALL
            SELECT r.queue_id, r.rank_from_top, 0, gen_random_uuid(), r.generation
            FROM dialoq.ready_group AS r WHERE r.conversation_group_id = $1::text::uuid";
        let groups: (String, String) = (targets[2].get(1), targets[3].get(1));
        client.execute(rows, &[&groups.0, &groups.1]).await.unwrap();
        let mut seen = std::collections::BTreeMap::<String, Vec<(i64, String)>>::new();
        let mut rounds = 0;
        loop {
            let callers = [3, 5, 2][rounds % 3];
            let batch = "SELECT item, conversation_handle::text, message_sequence_number, message_type_name
                FROM dialoq.receive_batch('server', array_fill(1::bigint, ARRAY[$1::int]))";
            let rows = client.query(batch, &[&callers]).await.unwrap();
            if rows.is_empty() {
                break;
            }
            let mut items: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
            items.sort_unstable();
            items.dedup();
            assert_eq!(items.len(), rows.len(), "each caller asked for one");
            for row in rows {
                seen.entry(row.get(1)).or_default().push((row.get(2), row.get(3)));
            }
            rounds += 1;
            assert!(rounds <= 27, "as many as there are messages, at the very most");
        }
        assert_eq!(seen.len(), 12);
        for (place, target) in targets.iter().enumerate() {
            let messages: Vec<(i64, &str)> =
                seen[target.get::<_, &str>(0)].iter().map(|(n, name)| (*n, &**name)).collect();
            let mut wanted = vec![(0, "//t/Word"), (1, "//t/Word")];
            if place % 4 == 3 {
                wanted.push((2, "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog"));
            }
            assert_eq!(messages, wanted, "conversation {place}");
        }
        let left = "SELECT (SELECT count(*) FROM dialoq.queue_message) + (SELECT count(*) FROM dialoq.ready_group)";
        let left: i64 = client.query_one(left, &[]).await.unwrap().get(0);
        assert_eq!(left, 0, "nothing is left of messages and of the rows that lead to them");
    });
}

/// A batch that begins where the last one began gives older messages only if no others are left, and messages of a higher
/// level at once. DIFFERENCE(oldest-in-batches)
pub(crate) fn a_batch_begins_where_the_last_one_began(store: Store) {
    on(store, |broker, client, _| async move {
        let mut handles = Vec::new();
        for text in ["a", "b", "c", "d"] {
            let handle = dialog(&broker).await;
            broker.send(handle, "//t/Word", text).await.unwrap();
            handles.push(handle);
        }
        let orders = "SELECT array_agg(m.queuing_order ORDER BY m.queuing_order) FROM dialoq.queue_message AS m";
        let orders: Vec<i64> = client.query_one(orders, &[]).await.unwrap().get(0);
        let batch = "SELECT convert_from(message_body, 'UTF8') FROM dialoq.receive_batch('server', ARRAY[1, 1], 5, $1)";
        let texts = async |from: Option<i64>| -> Vec<String> {
            client.query(batch, &[&from]).await.unwrap().iter().map(|row| row.get(0)).collect()
        };
        assert_eq!(texts(Some(orders[2])).await, ["c", "d"]);
        assert_eq!(texts(Some(orders[2])).await, ["a", "b"], "nothing else was left");
        for handle in &handles {
            broker.send(*handle, "//t/Word", "e").await.unwrap();
        }
        let higher = "SELECT dialoq.reprioritise(t.conversation_handle, 7) FROM dialoq.conversation_endpoint AS i
            JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
            WHERE i.conversation_handle = $1::text::uuid";
        client.execute(higher, &[&handles[0].0.to_string()]).await.unwrap();
        let levels = "SELECT array_agg(r.priority) FROM dialoq.receive_batch('server', ARRAY[1], 5, 1000000) AS r";
        let levels: Vec<i32> = client.query_one(levels, &[]).await.unwrap().get(0);
        assert_eq!(levels, [7]);
        assert_eq!(texts(None).await, ["e", "e"]);
        assert_eq!(texts(Some(1_000_000)).await, ["e"]);
        assert!(texts(Some(1_000_000)).await.is_empty());
    });
}

/// Whichever way a batch of SENDs goes: all usual, two on one conversation, one of them refused.
pub(crate) fn a_batch_numbers_its_messages_and_refuses_one_by_one(store: Store) {
    on(store, |broker, client, _| async move {
        let mut handles = Vec::new();
        for _ in 0..4 {
            handles.push(dialog(&broker).await.0.to_string());
        }
        let ended = dialog(&broker).await;
        broker.end(ended).await.unwrap();
        let pick = |places: &[usize]| places.iter().map(|place| handles[*place].clone()).collect::<Vec<_>>();
        let mut with_ended = pick(&[0, 1, 3]);
        with_ended.insert(2, ended.0.to_string());
        let batches = [pick(&[0, 1, 2, 3]), pick(&[0, 1, 2, 3]), pick(&[0, 1, 0, 2]), with_ended];
        let refusals: [&[(i32, i32)]; 4] = [&[], &[], &[], &[(2, 8426)]];
        for (batch, wanted) in batches.iter().zip(refusals) {
            let rows = client.query(SEND, &[batch, &(batch.len() as i32)]).await.unwrap();
            let refused: Vec<(i32, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            assert_eq!(refused, wanted);
        }
        let sent: Vec<Vec<i64>> = [5, 4, 3, 3].map(|sent| (0..sent).collect()).into();
        assert_eq!(numbers(&client, &handles).await, sent);
        let ways = "SELECT count(*) FROM (SELECT DISTINCT t.conversation_group_id FROM dialoq.conversation_endpoint AS t
            JOIN dialoq.queue_message AS m USING (endpoint_id)
            WHERE NOT EXISTS (SELECT FROM dialoq.ready_group AS r WHERE r.conversation_group_id = t.conversation_group_id)) AS g";
        let lost: i64 = client.query_one(ways, &[]).await.unwrap().get(0);
        assert_eq!(lost, 0, "every group with messages has a row that leads to it");
    });
}

/// The short way reads before it locks. Who has sent in between would be overtaken; the batch is refused whole instead.
pub(crate) fn a_batch_is_retried_after_a_send_between_its_read_and_its_lock(store: Store) {
    on(store, |broker, mut client, database| async move {
        let handles = [dialog(&broker).await, dialog(&broker).await];
        for handle in handles {
            broker.send(handle, "//t/Word", "alone").await.unwrap();
        }
        // A session that has set the parameter waits for that lock before it takes a group's key: after it has read the
        // group's row, before it locks the group.
        client
            .batch_execute(
                "CREATE OR REPLACE FUNCTION dialoq.group_key(p_group uuid) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
                    IF current_setting('test.waits', true) = '1' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
                    RETURN (uuid_hash_extended(p_group, 0) & 281474976710655) | (17513::bigint << 48);
                END $$",
            )
            .await
            .unwrap();
        let (sender, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        sender.batch_execute("SET test.waits = '1'").await.unwrap();
        let batch: Vec<String> = handles.iter().map(|handle| handle.0.to_string()).collect();
        let transaction = client.transaction().await.unwrap();
        transaction.execute("SELECT pg_advisory_xact_lock(1)", &[]).await.unwrap();
        let of_the_batch: [&(dyn ToSql + Sync); 2] = [&batch, &2];
        let (sent, ()) = tokio::join!(sender.query(SEND, &of_the_batch), async {
            let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 1
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            while broker.query(waits, ()).await.unwrap().rows[0].get::<i64>("count").unwrap() == 0 {}
            broker.send(handles[1], "//t/Word", "alone").await.unwrap();
            transaction.commit().await.unwrap();
        });
        let refusal = sent.expect_err("it would have given a number twice");
        assert_eq!(refusal.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{refusal:?}");
        assert_eq!(numbers(&client, &batch).await, [vec![0], vec![0, 1]], "nothing of it was sent");
        assert!(
            sender.query(SEND, &[&batch, &2]).await.unwrap().is_empty(),
            "the second try is no different from others"
        );
        assert_eq!(numbers(&client, &batch).await, [vec![0, 1], vec![0, 1, 2]]);
    });
}

/// The sequence numbers at the other sides of these.
async fn numbers(client: &Client, handles: &[String]) -> Vec<Vec<i64>> {
    let mut numbers = Vec::new();
    for handle in handles {
        let row = client.query_one(NUMBERS, &[handle]).await.unwrap();
        assert!(row.get::<_, bool>(1), "each body goes to the conversation it was given with");
        numbers.push(row.get(0));
    }
    numbers
}

/// An open SEND locks the claim row of a group whose conversation has moved away. The claim row of the other group has the same
/// level and age. RECEIVE must find it.
pub(crate) fn a_row_that_a_sender_keeps_hides_no_other_group(store: Store) {
    on(store, |broker, client, _| async move {
        let (moved, other) = (dialog(&broker).await, dialog(&broker).await);
        broker.send(moved, "//t/Word", "a").await.unwrap();
        broker.send(other, "//t/Word", "b").await.unwrap();
        let sender = broker.begin().await.unwrap();
        sender.send(moved, "//t/Word", "late").await.unwrap();
        let command = "SELECT dialoq.move_conversation(m.conversation_handle, o.conversation_group_id)
            FROM dialoq.conversation_endpoint AS m JOIN dialoq.conversation_endpoint AS o ON o.endpoint_id > m.endpoint_id
            WHERE NOT m.is_initiator AND NOT o.is_initiator";
        client.query(command, &[]).await.unwrap();
        for receive in
            ["receive('server')", "receive('server', p_oldest => true)", "receive_batch('server', ARRAY[2::bigint])"]
        {
            client.batch_execute("BEGIN").await.unwrap();
            let taken = client.query(&format!("SELECT 1 FROM dialoq.{receive}"), &[]).await.unwrap().len();
            client.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(taken, 2, "{receive}");
        }
        sender.rollback().await.unwrap();
    });
}

/// The order of the conversations of a group does not depend on the order in which their senders commit.
pub(crate) fn a_batch_passes_over_no_older_message_of_a_conversation(store: Store) {
    on(store, |broker, client, _| async move {
        let (low, high) = (dialog(&broker).await, dialog(&broker).await);
        for handle in [low, high] {
            broker.send(handle, "//t/Word", "first").await.unwrap();
            broker.receive("server").await.unwrap().expect("the first message makes the target");
        }
        let one_group = "SELECT dialoq.move_conversation(h.conversation_handle, l.conversation_group_id), dialoq.reprioritise(h.conversation_handle, 9)
            FROM dialoq.conversation_endpoint AS h JOIN dialoq.conversation_endpoint AS l ON l.endpoint_id < h.endpoint_id
            WHERE NOT h.is_initiator AND NOT l.is_initiator";
        client.query(one_group, &[]).await.unwrap();
        let late = broker.begin().await.unwrap();
        late.send(low, "//t/Word", "1").await.unwrap();
        broker.send(high, "//t/Word", "high").await.unwrap();
        late.commit().await.unwrap();
        broker.send(low, "//t/Word", "2").await.unwrap();
        let batch = "SELECT convert_from(message_body, 'UTF8')
            FROM dialoq.receive_batch('server', ARRAY[NULL, NULL]::bigint[])";
        let texts: Vec<String> = client.query(batch, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(texts, ["high", "1", "2"]);
    });
}

/// A message that comes back is older than rows of its group that open senders keep, and its own row may be kept by one too.
pub(crate) fn a_batch_passes_over_no_message_that_came_back(store: Store) {
    on(store, |broker, mut client, database| async move {
        broker.execute("ALTER QUEUE server WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)").await.unwrap();
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "old").await.unwrap();
        let failed = broker.begin().await.unwrap();
        let letter = failed.receive("server").await.unwrap().expect("it arrived").first().queuing_order;
        failed.rollback().await.unwrap();
        let sender = broker.begin().await.unwrap();
        sender.send(handle, "//t/Word", "new").await.unwrap();
        broker.redrive_dead_letter(dialoq::DeadLetterId(letter)).await.unwrap();
        sender.commit().await.unwrap();
        // As a sender that relies on this row.
        let (keeper, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let keep = "BEGIN; SELECT FROM dialoq.ready_group ORDER BY oldest LIMIT 1 FOR KEY SHARE";
        keeper.batch_execute(keep).await.unwrap();
        for receive in [
            format!("receive_batch('server', ARRAY[1, 1], 5, {})", letter + 1),
            format!("receive_batch('server', ARRAY[2, 2], 5, {})", letter + 1),
            "receive('server', 1)".to_owned(),
        ] {
            let transaction = client.transaction().await.unwrap();
            let text = format!("SELECT convert_from(message_body, 'UTF8') FROM dialoq.{receive}");
            let rows = transaction.query(&text, &[]).await.unwrap();
            assert_eq!(rows[0].get::<_, &str>(0), "old", "{receive}");
            transaction.rollback().await.unwrap();
        }
        keeper.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// A sender keeps the row that announces its group. If what the row names is received meanwhile, the group is younger than the row says.
pub(crate) fn a_lone_receive_takes_no_group_for_older_than_it_is(store: Store) {
    on(store, |broker, mut client, database| async move {
        let (x, y, z) = (dialog(&broker).await, dialog(&broker).await, dialog(&broker).await);
        broker.send(x, "//t/Word", "x").await.unwrap();
        let (keeper, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let keep = "BEGIN; SELECT FROM dialoq.ready_group ORDER BY oldest LIMIT 1 FOR KEY SHARE";
        keeper.batch_execute(keep).await.unwrap();
        broker.receive("server").await.unwrap().expect("the message that the row names");
        for (handle, text) in [(y, "1"), (x, "2"), (z, "3"), (y, "4")] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        // The row is kept; then it may be removed; then it is kept again, and the group is the youngest.
        for which in ["kept", "free", "last"] {
            match which {
                "kept" => {}
                "free" => keeper.batch_execute("ROLLBACK").await.unwrap(),
                _ => {
                    keeper.batch_execute(keep).await.unwrap();
                    let only = "SELECT FROM dialoq.receive('server', 1, p_conversation_group_id => (
                        SELECT t.conversation_group_id FROM dialoq.conversation_endpoint AS t JOIN dialoq.conversation_endpoint AS i USING (conversation_id)
                        WHERE NOT t.is_initiator AND i.is_initiator AND i.conversation_handle = $1::text::uuid))";
                    assert_eq!(client.execute(only, &[&x.0.to_string()]).await.unwrap(), 1);
                    broker.send(x, "//t/Word", "5").await.unwrap();
                }
            }
            for tops in ["1", "2", "NULL"] {
                let transaction = client.transaction().await.unwrap();
                let batch = format!(
                    "SELECT item, convert_from(message_body, 'UTF8') FROM dialoq.receive_batch('server', ARRAY[{tops}]::bigint[])"
                );
                let mut found = Vec::new();
                loop {
                    let rows = transaction.query(&batch, &[]).await.unwrap();
                    if rows.is_empty() {
                        break;
                    }
                    found.extend(rows.iter().map(|row| row.get::<_, String>(1)));
                }
                transaction.rollback().await.unwrap();
                // Who asks for more than one gets all of a group.
                let wanted = match (which, tops) {
                    ("last", "1") => "1345",
                    ("last", _) => "1435",
                    (_, "1") => "1234",
                    _ => "1423",
                };
                assert_eq!(found.concat(), wanted, "{which}, {tops}");
            }
        }
        keeper.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// A list on one conversation and of one type has a short way, and a RECEIVE of many messages another. Bodies that are empty or missing, ids of
/// the caller's and of the server's, traces, and a list of two types between two of one.
pub(crate) fn a_list_on_one_conversation_arrives_whole_and_in_order(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "first").await.unwrap();
        let handle = handle.to_string();
        let send = "SELECT notices FROM dialoq.send_each(array_fill($1::text::uuid, ARRAY[cardinality($2::text[])]), $2,
            ARRAY(SELECT convert_to(b.text, 'UTF8') FROM unnest($3::text[]) WITH ORDINALITY AS b (text, place) ORDER BY b.place), $4::text[],
            array_fill(''::text, ARRAY[cardinality($2)]), $5::text[]::uuid[])";
        let id = |number: usize| format!("00000000-0000-4000-8000-{number:012}");
        let lists: [&[&str]; 3] = [&["//t/Word"], &["//t/Word", "//t/Json"], &["//t/Json"]];
        let mut wanted = vec![("//t/Word".to_owned(), Some("first".to_owned()), None, None)];
        for (list, names) in lists.iter().enumerate() {
            let types: Vec<&str> = names.iter().copied().cycle().take(40).collect();
            let bodies: Vec<Option<String>> = (0..40)
                .map(|place| match place % 4 {
                    2 => None,
                    3 => Some(String::new()),
                    _ => Some(format!("{list}.{place}")),
                })
                .collect();
            let traces: Vec<Option<String>> =
                (0..40).map(|place| (place % 3 == 0).then(|| format!("t{place}"))).collect();
            let ids: Vec<Option<String>> =
                (0..40).map(|place| (place % 2 == 0).then(|| id(100 * list + place))).collect();
            client.query(send, &[&handle, &types, &bodies, &traces, &ids]).await.unwrap();
            for (place, body) in bodies.into_iter().enumerate() {
                let body = body.filter(|body| !body.is_empty());
                wanted.push((types[place].to_owned(), body, traces[place].clone(), ids[place].clone()));
            }
        }
        // One at a time would be another way.
        let receive = "SELECT message_type_name, convert_from(message_body, 'UTF8'), trace, message_id::text, message_sequence_number,
            notices IS NOT NULL FROM dialoq.receive('server', $1)";
        let mut found = Vec::new();
        for top in [50_i64, 21, 50] {
            let rows = client.query(receive, &[&top]).await.unwrap();
            assert!(rows.iter().skip(1).all(|row| !row.get::<_, bool>(5)), "the first row alone has the notices");
            for row in rows {
                assert_eq!(row.get::<_, i64>(4), i64::try_from(found.len()).unwrap(), "the sequence number");
                found.push((row.get(0), row.get(1), row.get(2), row.get::<_, Option<String>>(3)));
            }
        }
        assert_eq!(found.len(), wanted.len());
        for ((found, wanted), place) in found.into_iter().zip(wanted).zip(0..) {
            let (message_type, body, trace, id) = wanted;
            assert_eq!((&found.0, &found.1, &found.2), (&message_type, &body, &trace), "message {place}");
            assert!(found.3.is_some() && (id.is_none() || id == found.3), "message {place} keeps its id");
        }
        let next = "SELECT n.send_sequence FROM dialoq.send_counter AS n
            JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = n.endpoint_id WHERE e.conversation_handle = $1::text::uuid";
        assert_eq!(client.query_one(next, &[&handle]).await.unwrap().get::<_, i64>(0), 121);
    });
}

/// No sort of a RECEIVE of many messages orders them. Rows lie in another order than that of the messages once the server has cleaned up.
pub(crate) fn many_messages_come_in_order_whatever_a_session_has_switched_off(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await.to_string();
        let send = "SELECT dialoq.send_each(array_fill($1::text::uuid, ARRAY[$3::int]), array_fill('//t/Word'::text, ARRAY[$3]),
            ARRAY(SELECT convert_to(n::text, 'UTF8') FROM generate_series($2::int, $2 + $3 - 1) AS g (n)))";
        let receive = "SELECT convert_from(message_body, 'UTF8')::int FROM dialoq.receive('server')";
        for off in ["tidscan", "nestloop", "indexscan", "material"] {
            client.query(send, &[&handle, &0, &200]).await.unwrap();
            client.query(receive, &[]).await.unwrap();
            client.query(send, &[&handle, &0, &10]).await.unwrap();
            client.batch_execute("VACUUM dialoq.queue_message").await.unwrap();
            client.query(send, &[&handle, &10, &90]).await.unwrap();
            client.batch_execute(&format!("SET enable_{off} = off")).await.unwrap();
            let found: Vec<i32> = client.query(receive, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
            assert_eq!(found, (0..100).collect::<Vec<_>>(), "enable_{off} = off");
            client.batch_execute(&format!("RESET enable_{off}")).await.unwrap();
        }
    });
}

/// A group whose row promises too much waits for its level. It keeps its count of rollbacks until a message of it is received.
pub(crate) fn a_batch_keeps_the_rollbacks_of_a_group_that_it_passes_over(store: Store) {
    on(store, |broker, client, _| async move {
        let (poison, other) = (dialog(&broker).await, dialog(&broker).await);
        for (handle, text) in [(poison, "poison"), (other, "other")] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        let target = "SELECT t.endpoint_id FROM dialoq.conversation_endpoint AS i
            JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
            WHERE i.conversation_handle = $1::text::uuid";
        let target: i64 = client.query_one(target, &[&poison.to_string()]).await.unwrap().get(0);
        // A SEND has read the level before it was lowered.
        let promise = "INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT r.queue_id, 1, r.oldest, r.conversation_group_id, r.generation
            FROM dialoq.ready_group AS r JOIN dialoq.conversation_endpoint AS e ON e.conversation_group_id = r.conversation_group_id
            WHERE e.endpoint_id = $1";
        client.execute(promise, &[&target]).await.unwrap();
        let count = "UPDATE dialoq.conversation_endpoint SET rollbacks = 3, priority = 4 WHERE endpoint_id = $1";
        client.execute(count, &[&target]).await.unwrap();
        let rollbacks = "SELECT rollbacks FROM dialoq.conversation_endpoint WHERE endpoint_id = $1";
        let batch = "SELECT convert_from(message_body, 'UTF8') FROM dialoq.receive_batch('server', ARRAY[1]::bigint[])";
        for (text, wanted) in [("other", 3), ("poison", 0)] {
            assert_eq!(client.query_one(batch, &[]).await.unwrap().get::<_, String>(0), text);
            assert_eq!(client.query_one(rollbacks, &[&target]).await.unwrap().get::<_, i32>(0), wanted);
        }
    });
}

/// As receive_batch, which gives no message to a caller that wants none.
pub(crate) fn a_claim_of_no_message_is_left_to_receive(store: Store) {
    on(store, |broker, client, _| async move {
        for _ in 0..2 {
            let handle = dialog(&broker).await;
            broker.send(handle, "//t/Word", "a").await.unwrap();
        }
        let claim = "SELECT c.item, c.status FROM dialoq.claim_batch('server', ARRAY[-1, 2]::bigint[], '{}') AS c";
        let rows = client.query(claim, &[]).await.unwrap();
        let rows: Vec<(i32, Option<i32>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(rows, [(0, None), (1, Some(1))]);
    });
}

/// An event was due by the clock at the beginning of the batch, and is not due any more when the batch comes to it.
pub(crate) fn a_batch_ends_although_the_clock_is_set_back_meanwhile(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        broker.close().await.unwrap();
        let due = "UPDATE dialoq.conversation_endpoint SET dialog_timer = clock_timestamp(), due_at = clock_timestamp() WHERE NOT is_initiator";
        client.batch_execute(due).await.unwrap();
        let set_back = "CREATE OR REPLACE FUNCTION dialoq.current_time_utc() RETURNS timestamptz LANGUAGE sql
            AS 'SELECT clock_timestamp() - interval ''1 hour''; '";
        client.batch_execute(set_back).await.unwrap();
        client.batch_execute("SET statement_timeout = '10s'").await.unwrap();
        let batch = "SELECT convert_from(message_body, 'UTF8') FROM dialoq.receive_batch('server', ARRAY[1]::bigint[])";
        assert_eq!(client.query_one(batch, &[]).await.unwrap().get::<_, String>(0), "a");
    });
}
