//! Batches of beginnings and ends of conversations, and first messages in batches of SENDs.

use crate::enlisting::{dialog, on};
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::postgres::tokio_postgres::{Client, NoTls, connect};
use dialoq::protocol::ConversationState;
use dialoq::{Act, Broker, Code, ConversationHandle, Gathering, OpenOptions};

const BEGIN: &str = "SELECT coalesce(item, -1), is_begun FROM dialoq.begin_batch($1, $2, $3, $4, $5,
    $6::text[]::uuid[], $7::text[]::uuid[], $8::text[]::uuid[]) ORDER BY 1";

/// The state of conversation $1 and how many messages of the system wait for it; no row if it is gone.
const STATE: &str = "SELECT e.state, (
        SELECT count(*) FROM dialoq.queue_message AS m WHERE m.endpoint_id = e.endpoint_id AND m.message_type_id IN (1, 2, 3))
    FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = $1::text::uuid";

async fn ids(client: &Client, count: i32) -> Vec<String> {
    let ids = "SELECT array_agg(gen_random_uuid()::text) FROM generate_series(1, $1)";
    client.query_one(ids, &[&count]).await.unwrap().get(0)
}

/// The other side of a conversation.
async fn target(client: &Client, handle: ConversationHandle) -> String {
    let target = "SELECT t.conversation_handle::text FROM dialoq.conversation_endpoint AS i
        JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND t.is_initiator <> i.is_initiator
        WHERE i.conversation_handle = $1::text::uuid";
    client.query_one(target, &[&handle.0.to_string()]).await.unwrap().get(0)
}

/// END of each of these in one batch: the state before of each that the batch has ended.
async fn end(client: &Client, handles: &[&str]) -> Vec<Option<String>> {
    let batch = "SELECT state FROM dialoq.end_batch($1::text[]::uuid[]) ORDER BY item";
    client.query(batch, &[&handles]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn state(client: &Client, handle: &str) -> Option<(String, i64)> {
    client.query_opt(STATE, &[&handle]).await.unwrap().map(|row| (row.get(0), row.get(1)))
}

pub(crate) fn a_batch_begins_what_is_plain_and_leaves_the_rest(store: Store) {
    on(store, |broker, client, database| async move {
        let taken = dialog(&broker).await.0.to_string();
        let (mut handles, mut conversations, groups) =
            (ids(&client, 9).await, ids(&client, 9).await, ids(&client, 9).await);
        let nil = "00000000-0000-0000-0000-000000000000".to_owned();
        handles[6].clone_from(&taken);
        conversations[7].clone_from(&nil);
        let holder = connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(holder.1);
        let lock = "SELECT pg_advisory_xact_lock(dialoq.group_key($1::text::uuid))";
        holder.0.batch_execute("BEGIN").await.unwrap();
        holder.0.execute(lock, &[&groups[8]]).await.unwrap();
        let from = [
            "//t/Asker",
            "//t/None",
            "//t/Asker",
            "//t/Asker",
            "//t/Asker",
            "//t/Asker",
            "//t/Asker",
            "//t/Asker",
            "//t/Asker",
        ];
        let long = "s".repeat(257);
        let to = [
            "//t/Server",
            "//t/Server",
            "",
            &long,
            "not yet there",
            "//t/Server",
            "//t/Server",
            "//t/Server",
            "//t/Server",
        ];
        let instances = [Some("CURRENT DATABASE"), None, None, None, None, Some("no guid"), None, None, None];
        let contracts = [Some("//t/Talk"), None, None, None, None, None, None, None, None];
        let lifetimes = [Some(60_i64), None, None, None, None, None, None, None, None];
        let (from, to) = (from.as_slice(), to.as_slice());
        let rows = client
            .query(
                BEGIN,
                &[
                    &from,
                    &to,
                    &instances.as_slice(),
                    &contracts.as_slice(),
                    &lifetimes.as_slice(),
                    &handles,
                    &conversations,
                    &groups,
                ],
            )
            .await
            .unwrap();
        let begun: Vec<bool> = rows.iter().map(|row| row.get(1)).collect();
        assert_eq!(begun, [true, false, false, false, true, false, false, false, false]);
        for (place, handle) in handles.iter().enumerate().filter(|(place, _)| *place != 6) {
            assert_eq!(state(&client, handle).await.is_some(), begun[place], "item {place}");
        }
        let row = "SELECT e.far_broker_instance IS NOT NULL, e.lifetime = e.due_at, e.conversation_group_id::text
            FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = $1::text::uuid";
        let row = client.query_one(row, &[&handles[0]]).await.unwrap();
        assert_eq!(
            (row.get::<_, bool>(0), row.get::<_, bool>(1), row.get::<_, String>(2)),
            (true, true, groups[0].clone())
        );
        holder.0.batch_execute("ROLLBACK").await.unwrap();
        // All begin: one row.
        let (handles, conversations, groups) = (ids(&client, 2).await, ids(&client, 2).await, ids(&client, 2).await);
        let none: &[Option<&str>] = &[None, None];
        let rows = client
            .query(
                BEGIN,
                &[
                    &&from[..1].repeat(2)[..],
                    &&to[..1].repeat(2)[..],
                    &none,
                    &none,
                    &&[None::<i64>; 2][..],
                    &handles,
                    &conversations,
                    &groups,
                ],
            )
            .await
            .unwrap();
        assert_eq!(rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(i32, bool)>>(), [(-1, true)]);
        // One group for two: nothing begins.
        let twice = [groups[0].clone(), groups[0].clone()];
        let (handles, conversations) = (ids(&client, 2).await, ids(&client, 2).await);
        let refused = client
            .query(
                BEGIN,
                &[
                    &&from[..1].repeat(2)[..],
                    &&to[..1].repeat(2)[..],
                    &none,
                    &none,
                    &&[None::<i64>; 2][..],
                    &handles,
                    &conversations,
                    &twice.as_slice(),
                ],
            )
            .await
            .unwrap_err();
        assert!(refused.as_db_error().unwrap().message().contains("a handle or a group twice"), "{refused:?}");
        assert!(state(&client, &handles[0]).await.is_none());
    });
}

pub(crate) fn a_batch_ends_what_is_plain_and_leaves_the_rest(store: Store) {
    on(store, |broker, client, database| async move {
        let mut handles = Vec::new();
        for text in ["a", "b", "c", "d", "e", "f"] {
            let handle = dialog(&broker).await;
            broker.send(handle, "//t/Word", text).await.unwrap();
            handles.push(handle);
        }
        let names: Vec<String> = handles.iter().map(|handle| handle.0.to_string()).collect();
        let mut targets = Vec::new();
        for handle in &handles {
            targets.push(target(&client, *handle).await);
        }
        let silent = dialog(&broker).await.0.to_string();
        // 2 is locked; 3 is there with both sides, 1 twice; 4 is in a group with another; 5 has an Error that has arrived.
        let holder = connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(holder.1);
        holder
            .0
            .batch_execute(&format!("BEGIN; SELECT dialoq.send('{}', '//t/Word', 'locks')", names[2]))
            .await
            .unwrap();
        broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").related_to(handles[4]).await.unwrap();
        client.execute("SELECT dialoq.end_conversation($1::text::uuid, 7, 'wrong')", &[&targets[5]]).await.unwrap();
        let unknown = "10000000-0000-0000-0000-000000000000";
        let batch = [
            &*names[0],
            &*names[1],
            &*names[1],
            &*names[2],
            &*names[3],
            &*targets[3],
            &*names[4],
            &*names[5],
            unknown,
            &*silent,
        ];
        let states = end(&client, &batch).await;
        let co = || Some("CO".to_owned());
        assert_eq!(states, [co(), co(), None, None, None, None, None, None, None, None]);
        for place in 0..2 {
            assert_eq!(state(&client, &names[place]).await, None, "the initiator is erased");
            assert_eq!(state(&client, &targets[place]).await, Some(("CO".into(), 1)), "an EndDialog waits");
        }
        for place in [3, 4] {
            assert_eq!(state(&client, &names[place]).await, Some(("CO".into(), 0)), "left as it is");
        }
        assert!(state(&client, &silent).await.is_some());
        holder.0.batch_execute("ROLLBACK").await.unwrap();
        // The other side, whose EndDialog has arrived: its messages go, it is closed, and nothing leads to it.
        let states = end(&client, &[&targets[0], &targets[1]]).await;
        assert_eq!(states, [Some("DI".to_owned()), Some("DI".to_owned())]);
        for target in &targets[..2] {
            assert_eq!(state(&client, target).await, Some(("CD".into(), 0)));
        }
        let left = "SELECT count(*) FROM dialoq.ready_group AS r JOIN dialoq.conversation_endpoint AS e USING (conversation_group_id)
            WHERE e.conversation_handle = ANY ($1::text[]::uuid[])";
        let left: i64 = client.query_one(left, &[&&targets[..2]]).await.unwrap().get(0);
        assert_eq!(left, 0, "rows of the claim index lead to conversations that have ended");
        let numbers = "SELECT receive_sequence, (SELECT max(n.send_sequence) FROM dialoq.send_counter AS n WHERE n.endpoint_id = e.endpoint_id)
            FROM dialoq.conversation_endpoint AS e
            WHERE conversation_handle = $1::text::uuid";
        let row = client.query_one(numbers, &[&targets[0]]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (2, 0), "one message and the EndDialog have come");
        // A target that ends first.
        assert_eq!(end(&client, &[&targets[2]]).await, [co()]);
        assert_eq!(state(&client, &targets[2]).await, Some(("CD".into(), 0)));
        assert_eq!(state(&client, &names[2]).await, Some(("CO".into(), 1)));
        assert_eq!(end(&client, &[&names[2]]).await, [Some("DI".to_owned())]);
        assert_eq!(state(&client, &names[2]).await, None);
        let counters = "SELECT count(*) FROM dialoq.send_counter AS n
            WHERE NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = n.endpoint_id)";
        let counters: i64 = client.query_one(counters, &[]).await.unwrap().get(0);
        assert_eq!(counters, 0, "a counter of a conversation that is gone");
    });
}

/// First messages, later ones, two on one conversation, one to a service that is not there, one that is refused.
pub(crate) fn first_messages_go_among_others_in_a_batch(store: Store) {
    on(store, |broker, client, _| async move {
        let mut handles = Vec::new();
        for _ in 0..5 {
            handles.push(dialog(&broker).await);
        }
        broker.send(handles[0], "//t/Word", "before").await.unwrap();
        let early = broker.begin_dialog("//t/Asker", "not yet there").contract("//t/Talk").await.unwrap();
        let names: Vec<String> = [0, 1, 2, 2, 3, 4]
            .map(|place: usize| handles[place].0.to_string())
            .into_iter()
            .chain([early.0.to_string()])
            .collect();
        let types = ["//t/Word", "//t/Word", "//t/Word", "//t/Word", "//t/None", "//t/Json", "//t/Word"];
        let batch = "SELECT item, error_number FROM dialoq.send_batch($1::text[]::uuid[], $2,
            ARRAY(SELECT convert_to(h.handle, 'UTF8') FROM unnest($1) WITH ORDINALITY AS h (handle, place) ORDER BY h.place),
            array_fill(NULL::text, ARRAY[7]), array_fill(''::text, ARRAY[7]), array_fill(NULL::uuid, ARRAY[7]))
            WHERE error_number IS NOT NULL";
        let rows = client.query(batch, &[&names, &types.as_slice()]).await.unwrap();
        assert_eq!(rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(i32, i32)>>(), [(4, 8428)]);
        let sent = "SELECT i.state || coalesce(t.state, '--') || i.is_peer_known::text, (
                SELECT coalesce(array_agg(m.sequence ORDER BY m.queuing_order), '{}') FROM dialoq.queue_message AS m WHERE m.endpoint_id = t.endpoint_id),
                (SELECT max(n.send_sequence) FROM dialoq.send_counter AS n WHERE n.endpoint_id = i.endpoint_id)
            FROM dialoq.conversation_endpoint AS i
            LEFT JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
            WHERE i.conversation_handle = $1::text::uuid";
        let wanted: [(&str, &[i64], Option<i64>); 6] = [
            ("COCOtrue", &[0, 1], Some(2)),
            ("COCOtrue", &[0], Some(1)),
            ("COCOtrue", &[0, 1], Some(2)),
            ("SO--false", &[], None),
            ("COCOtrue", &[0], Some(1)),
            ("CO--false", &[], Some(1)),
        ];
        for (handle, wanted) in handles.iter().chain([&early]).zip(wanted) {
            let row = client.query_one(sent, &[&handle.0.to_string()]).await.unwrap();
            let found: (String, Vec<i64>, Option<i64>) = (row.get(0), row.get(1), row.get(2));
            assert_eq!((&*found.0, &*found.1, found.2), wanted, "{handle}");
        }
        let mut texts = Vec::new();
        while let Some(batch) = broker.receive("server").await.unwrap() {
            texts.extend(batch.iter().map(|message| message.text().unwrap().into_owned()));
        }
        texts.sort_unstable();
        let mut wanted: Vec<String> = names
            .iter()
            .enumerate()
            .filter(|(place, _)| ![4, 6].contains(place))
            .map(|(_, name)| name.clone())
            .collect();
        wanted.push("before".into());
        wanted.sort_unstable();
        assert_eq!(texts, wanted, "every message is found");
    });
}

/// A conversation that was moved after it was read, and before the lock of the group that it was read in.
pub(crate) fn a_first_message_is_not_sent_under_the_lock_of_another_group(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await.0.to_string();
        let send = "SELECT count(*) FROM dialoq.conversation_endpoint AS e CROSS JOIN LATERAL dialoq.send_first(ARRAY[1], ARRAY[e.endpoint_id],
                ARRAY[CASE WHEN $2 THEN e.conversation_group_id ELSE gen_random_uuid() END],
                ARRAY[(SELECT t.message_type_id FROM dialoq.message_type AS t WHERE t.name = '//t/Word')],
                ARRAY['a'::bytea], ARRAY[NULL::text], ARRAY[gen_random_uuid()], false) AS s
            WHERE e.conversation_handle = $1::text::uuid";
        for (is_right, wanted) in [(false, 0), (true, 1)] {
            let sent: i64 = client.query_one(send, &[&handle, &is_right]).await.unwrap().get(0);
            assert_eq!(sent, wanted);
        }
    });
}

/// What a batch leaves is done alone and gets its own error, and a locked conversation keeps no other waiting.
pub(crate) fn what_is_left_of_a_batch_is_done_alone(store: Store) {
    on(store, |first, client, database| async move {
        let gathering = Gathering::default();
        let options = OpenOptions::default().gathering(gathering.clone());
        let broker = Broker::open_with(database.url(), options).await.unwrap();
        gathering.wait_for(3);
        let (good, bad, other) = tokio::join!(
            broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk"),
            broker.begin_dialog("//t/None", "//t/Server").contract("//t/Talk"),
            broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").with_ids(),
        );
        assert_eq!(bad.unwrap_err().code(), Code(8423));
        let (good, other) = (good.unwrap(), other.unwrap());
        let group = "SELECT conversation_group_id::text FROM dialoq.conversation_endpoint WHERE conversation_handle = $1::text::uuid";
        let group: String = client.query_one(group, &[&other.handle.0.to_string()]).await.unwrap().get(0);
        assert_eq!(group, other.group.0.to_string());
        for handle in [good, other.handle] {
            broker.send(handle, "//t/Word", "a").await.unwrap();
        }
        let tx = first.begin().await.unwrap();
        tx.send(other.handle, "//t/Word", "locks").await.unwrap();
        gathering.wait_for(3);
        let unknown = ConversationHandle(uuid::Uuid::from_u128(7));
        let locked = broker.end(other.handle);
        let mut locked = std::pin::pin!(locked.into_future());
        let both = async { tokio::join!(broker.end(good), broker.end(unknown)) };
        tokio::select! {
            ended = &mut locked => panic!("{ended:?} while another transaction holds the group"),
            (ended, refused) = both => {
                assert_eq!(ended.unwrap(), ConversationState::Conversing);
                assert_eq!(refused.unwrap_err().code(), Code(8426));
            }
            // The end of the test, not a wait.
            () = tokio::time::sleep(SOON) => panic!("the locked conversation holds up the others"),
        }
        tx.commit().await.unwrap();
        assert_eq!(locked.await.unwrap(), ConversationState::Conversing);
        broker.close().await.unwrap();
    });
}
