//! Verbs in a transaction of the user's own.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::error::Code;
use dialoq::postgres::Enlisted;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::{Act, Broker, ConversationHandle};
use std::future::Future;

const SCRIPT: &str =
    "CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE MESSAGE TYPE [//t/Json] VALIDATION = NONE;
    CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY, [//t/Json] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);";

/// A broker, and a connection that is not its own.
fn on<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Broker, Client, Database) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // It goes when this does, after the test.
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        broker.sql("CREATE TABLE thing (id int PRIMARY KEY)", ()).await.unwrap();
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET search_path = public").await.unwrap();
        tokio::time::timeout(3 * SOON, test(broker, client, database.clone())).await.expect("the test hangs");
    });
}

async fn dialog(act: &impl Act) -> ConversationHandle {
    act.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap()
}

async fn things(broker: &Broker) -> i64 {
    broker.query("SELECT count(*) AS n FROM thing", ()).await.unwrap().rows[0].get("n").unwrap()
}

async fn received(act: &impl Act) -> Vec<String> {
    let batch = act.receive("server").await.unwrap();
    batch.map_or_else(Vec::new, |batch| batch.iter().map(|message| message.text().unwrap().into_owned()).collect())
}

pub(crate) fn verbs_commit_with_what_the_user_writes(store: Store) {
    on(store, |broker, mut client, _| async move {
        for is_committed in [false, true] {
            let transaction = client.transaction().await.unwrap();
            transaction.execute("INSERT INTO thing VALUES (1)", &[]).await.unwrap();
            let enlisted = Enlisted::new(&broker, &transaction);
            let handle = dialog(&enlisted).await;
            enlisted.send(handle, "//t/Word", "a").await.unwrap();
            enlisted.send_many(&[handle], "//t/Word", "b").await.unwrap();
            assert!(received(&broker).await.is_empty(), "nothing is there before the commit");
            if is_committed {
                transaction.commit().await.unwrap();
            } else {
                transaction.rollback().await.unwrap();
            }
            assert_eq!(things(&broker).await, i64::from(is_committed));
        }
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let batch = enlisted.receive("server").await.unwrap().expect("what was committed");
        assert_eq!(batch.iter().map(|message| message.text().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
        enlisted.end(batch.first().handle()).await.unwrap();
        transaction.commit().await.unwrap();
        let ended = broker.receive("asker").await.unwrap().expect("the end is told");
        assert_eq!(&*ended.first().message_type_name, "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog");
    });
}

/// The example that users begin with. It checks itself what it prints.
pub(crate) fn the_example_runs_and_leaves_nothing_behind(store: Store) {
    on(store, |broker, _, database| async move {
        for _ in 0..2 {
            crate::example::run(database.url()).await.unwrap();
        }
        let left = "SELECT count(*) AS n FROM dialoq.sys_conversation_endpoints WHERE state <> 'CD'";
        assert_eq!(broker.query(left, ()).await.unwrap().rows[0].get::<i64>("n").unwrap(), 0);
        let names = "SELECT count(*) AS n FROM dialoq.sys_service_queues WHERE name LIKE 'example%'";
        assert_eq!(broker.query(names, ()).await.unwrap().rows[0].get::<i64>("n").unwrap(), 0);
    });
}

pub(crate) fn a_refusal_leaves_the_users_transaction_as_it_was(store: Store) {
    on(store, |broker, mut client, _| async move {
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO thing VALUES (1)", &[]).await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let handle = dialog(&enlisted).await;
        let nobody = ConversationHandle(uuid::Uuid::nil());
        let refused = enlisted.send(nobody, "//t/Word", "a").await.unwrap_err();
        assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND);
        assert_eq!(enlisted.send(handle, "//t/None", "a").await.unwrap_err().code(), Code::MESSAGE_TYPE_NOT_FOUND);
        enlisted.send(handle, "//t/Word", "b").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!((things(&broker).await, received(&broker).await), (1, vec!["b".to_owned()]));
    });
}

pub(crate) fn without_a_transaction_each_verb_commits(store: Store) {
    on(store, |broker, client, _| async move {
        let enlisted = Enlisted::new(&broker, &client);
        let handle = dialog(&enlisted).await;
        enlisted.send(handle, "//t/Word", "a").await.unwrap();
        let refused = enlisted.send(ConversationHandle(uuid::Uuid::nil()), "//t/Word", "a").await.unwrap_err();
        assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND);
        assert_eq!(received(&broker).await, ["a"]);
        assert_eq!(enlisted.transmission_status(handle).await.unwrap(), "");
    });
}

pub(crate) fn a_failed_transaction_takes_no_verbs(store: Store) {
    on(store, |broker, mut client, _| async move {
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO nothing VALUES (1)", &[]).await.unwrap_err();
        let refused = Enlisted::new(&broker, &transaction).receive("server").await.unwrap_err();
        assert_eq!(refused.code(), Code::TRANSACTION_ENDED);
        transaction.rollback().await.unwrap();
        let transaction = client.transaction().await.unwrap();
        assert!(Enlisted::new(&broker, &transaction).receive("server").await.unwrap().is_none());
        let defining = Enlisted::new(&broker, &transaction);
        let define = dialoq::act::Perform::perform(&defining, dialoq::protocol::Verb::Define(Vec::new())).await;
        assert_eq!(define.unwrap_err().code(), Code::DEFINITION_IN_TRANSACTION);
    });
}

pub(crate) fn other_processes_hear_of_it(store: Store) {
    on(store, |broker, mut client, database| async move {
        let other = Broker::open(database.url()).await.unwrap();
        let sleeper = other.clone();
        let hearing = tokio::spawn(async move {
            let batch = sleeper.receive("server").wait(2 * SOON).await.unwrap();
            batch.expect("it is woken").first().text().unwrap().into_owned()
        });
        let waiting = async {
            while other.activity().queue("server").facts().waiting == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.expect("it never waits");
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let handle = dialog(&enlisted).await;
        enlisted.send(handle, "//t/Word", "woken").await.unwrap();
        transaction.commit().await.unwrap();
        let heard = tokio::time::timeout(SOON, hearing).await.expect("nobody was woken").unwrap();
        assert_eq!(heard, "woken");
    });
}

pub(crate) fn messages_are_back_after_a_rollback(store: Store) {
    // DIFFERENCE(rollbacks-by-clients): nobody but the user knows how his transaction ends.
    on(store, |broker, mut client, _| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        for _ in 0..6 {
            let transaction = client.transaction().await.unwrap();
            assert_eq!(received(&Enlisted::new(&broker, &transaction)).await, ["a"]);
            assert!(received(&broker).await.is_empty(), "its group is locked");
            transaction.rollback().await.unwrap();
        }
        assert_eq!(received(&broker).await, ["a"]);
    });
}

pub(crate) fn new_definitions_are_noticed(store: Store) {
    on(store, |broker, mut client, database| async move {
        let other = Broker::open(database.url()).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let handle = dialog(&enlisted).await;
        other.execute("CREATE QUEUE another").await.unwrap();
        enlisted.send(handle, "//t/Word", "a").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(received(&broker).await, ["a"]);
    });
}

/// However the planner finds the groups: without an index it sorts them all, and must lock them one by one even so.
pub(crate) fn receivers_lock_only_the_groups_they_take(store: Store) {
    on(store, |broker, client, _| async move {
        for _ in 0..20 {
            let handle = dialog(&broker).await;
            broker.send(handle, "//t/Word", "a").await.unwrap();
        }
        for receive in ["dialoq.receive_batch('server', ARRAY[1, 1, 1]::bigint[])", "dialoq.receive('server', 1)"] {
            client.batch_execute("BEGIN; SET LOCAL enable_indexscan = off").await.unwrap();
            let taken = client.query(&format!("SELECT * FROM {receive}"), &[]).await.unwrap().len();
            let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
            let locked: i64 = client.query_one(locks, &[]).await.unwrap().get(0);
            client.batch_execute("ROLLBACK").await.unwrap();
            assert!(taken > 0);
            assert_eq!(locked, taken as i64, "{receive}");
        }
    });
}

/// A batch has a short way for what is usual. Here is what is not beside what is, on one level: conversations that are ended,
/// two in one group, and rows of the claim index that say better than is true, twice the same, or what is gone.
pub(crate) fn a_batch_shares_out_what_is_usual_and_what_is_not(store: Store) {
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
        let rows = "INSERT INTO dialoq.ready_group (queue_id, below_top, oldest, conversation_group_id)
            SELECT r.queue_id, r.below_top, r.oldest - d.age, r.conversation_group_id
            FROM dialoq.ready_group AS r CROSS JOIN (VALUES (0), (0), (3)) AS d (age)
            WHERE r.conversation_group_id IN ($1::text::uuid, $2::text::uuid)
            UNION ALL
            SELECT r.queue_id, r.below_top, 0, gen_random_uuid() FROM dialoq.ready_group AS r WHERE r.conversation_group_id = $1::text::uuid";
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

/// A batch that is told where the one before began gives what is older only when nothing else is left, and what is of a higher
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
pub(crate) fn a_batch_numbers_what_it_sends_and_refuses_one_by_one(store: Store) {
    on(store, |broker, client, _| async move {
        let mut handles = Vec::new();
        for _ in 0..4 {
            handles.push(dialog(&broker).await.0.to_string());
        }
        // A conversation is begun at the other side by its first message, which is no usual one.
        let send = "SELECT item, error_number FROM dialoq.send_batch($1::text[]::uuid[], array_fill('//t/Word'::text, ARRAY[$2::int]),
            ARRAY(SELECT convert_to(h.handle, 'UTF8') FROM unnest($1) WITH ORDINALITY AS h (handle, place) ORDER BY h.place),
            array_fill(NULL::text, ARRAY[$2]), array_fill(''::text, ARRAY[$2]),
            array_fill(NULL::uuid, ARRAY[$2])) WHERE error_number IS NOT NULL";
        let ended = dialog(&broker).await;
        broker.end(ended).await.unwrap();
        let pick = |places: &[usize]| places.iter().map(|place| handles[*place].clone()).collect::<Vec<_>>();
        let mut with_ended = pick(&[0, 1, 3]);
        with_ended.insert(2, ended.0.to_string());
        let batches = [pick(&[0, 1, 2, 3]), pick(&[0, 1, 2, 3]), pick(&[0, 1, 0, 2]), with_ended];
        let refusals: [&[(i32, i32)]; 4] = [&[], &[], &[], &[(2, 8426)]];
        for (batch, wanted) in batches.iter().zip(refusals) {
            let rows = client.query(send, &[batch, &(batch.len() as i32)]).await.unwrap();
            let refused: Vec<(i32, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            assert_eq!(refused, wanted);
        }
        let numbers = "SELECT array_agg(m.sequence ORDER BY m.queuing_order), bool_and(convert_from(m.body, 'UTF8') = $1) FROM dialoq.conversation_endpoint AS i
            JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
            JOIN dialoq.queue_message AS m ON m.endpoint_id = t.endpoint_id
            WHERE i.is_initiator AND i.conversation_handle = $1::text::uuid";
        for (handle, sent) in handles.iter().zip([5, 4, 3, 3]) {
            let row = client.query_one(numbers, &[handle]).await.unwrap();
            assert_eq!(row.get::<_, Vec<i64>>(0), (0..sent).collect::<Vec<i64>>());
            assert!(row.get::<_, bool>(1), "each body goes to the conversation it was given with");
        }
        let ways = "SELECT count(*) FROM (SELECT DISTINCT t.conversation_group_id FROM dialoq.conversation_endpoint AS t
            JOIN dialoq.queue_message AS m USING (endpoint_id)
            WHERE NOT EXISTS (SELECT FROM dialoq.ready_group AS r WHERE r.conversation_group_id = t.conversation_group_id)) AS g";
        let lost: i64 = client.query_one(ways, &[]).await.unwrap().get(0);
        assert_eq!(lost, 0, "every group with messages has a row that leads to it");
    });
}
