//! An old snapshot keeps every dead row of the database. No verb walks over them, and no message is lost while the rows of the
//! claim index change their generation.

use crate::enlisting::{dialog, on};
use crate::servers::Store;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::{Act, Broker};

/// The reads of tables and of indexes in this session so far, dead rows among them.
const READ: &str = "
    SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'dialoq' AND c.relkind IN ('r', 'i')";

/// The pages of tables and of indexes that this session has read so far. An index shows the entries that it has passed over because
/// they do not meet a condition in its pages only.
const PAGES: &str = "
    SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0)::bigint
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'dialoq' AND c.relkind IN ('r', 'i')";

/// The verbs, and how many messages each handles.
const VERBS: &[(u64, &str)] = &[
    (1, "SELECT * FROM handle AS h, dialoq.send(h.handle, '//t/Word', '\\x03') WHERE h.id = 1"),
    (
        16,
        "SELECT * FROM dialoq.send_batch($handles, array_fill('//t/Word'::text, ARRAY[16]), array_fill('\\x03'::bytea, ARRAY[16]),
        array_fill(NULL::text, ARRAY[16]), array_fill(''::text, ARRAY[16]), array_fill(NULL::uuid, ARRAY[16]))",
    ),
    (
        16,
        "SELECT * FROM dialoq.send_each($handles, array_fill('//t/Word'::text, ARRAY[16]), array_fill('\\x03'::bytea, ARRAY[16]),
        NULL, array_fill(''::text, ARRAY[16]))",
    ),
    (1, "SELECT * FROM dialoq.receive('server', 1)"),
    (4, "SELECT * FROM dialoq.receive('server', 4)"),
    (1, "SELECT * FROM dialoq.receive('server', 1, p_oldest => true)"),
    (1, "SELECT * FROM dialoq.receive('server', 1, p_lowest => 2, p_highest => 9)"),
    (1, "SELECT dialoq.get_conversation_group('server')"),
    (16, "SELECT * FROM dialoq.receive_batch('server', array_fill(1::bigint, ARRAY[16]))"),
    (16, "SELECT * FROM dialoq.receive_batch('server', array_fill(2::bigint, ARRAY[8]))"),
    (16, "SELECT * FROM dialoq.receive_batch('server', array_fill(1::bigint, ARRAY[16]), 5, 1)"),
    (16, "SELECT * FROM dialoq.claim_batch('server', array_fill(1::bigint, ARRAY[16]), '{}', 5, 1)"),
    (
        16,
        "WITH c AS MATERIALIZED (SELECT * FROM dialoq.claim_batch('server', array_fill(1::bigint, ARRAY[16]), '{}') AS c)
        SELECT t.notices FROM (
            SELECT array_agg(c.conversation_group_id) AS groups, array_agg(c.endpoint_id) AS endpoints,
                array_agg(c.queuing_order) AS orders, count(*)::int AS n FROM c WHERE c.status = 1) AS c
        CROSS JOIN LATERAL dialoq.commit_claims(c.groups, c.endpoints, c.orders, c.orders, array_fill(1, ARRAY[c.n])) AS t",
    ),
    (16, POLL),
    (REQUESTS, "SELECT * FROM dialoq.tick()"),
    (1, "SELECT * FROM handle AS h, dialoq.end_conversation(h.handle) WHERE h.id = 1"),
    (16, "SELECT * FROM dialoq.end_batch($handles)"),
    (1, "SELECT * FROM dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', p_contract => '//t/Talk')"),
];

/// Numbers of rows that ANALYZE may have found: it comes at any moment, and a queue may be empty then or full.
const ROWS: [u32; 5] = [0, 1, 30, 1000, 1_000_000];

const POLL: &str = "SELECT * FROM dialoq.poll()";

/// Requests of rechecks that a tick finds.
const REQUESTS: u64 = 200;
/// Conversations, and messages on each of them under the snapshot.
const CONVERSATIONS: u64 = 16;
const MESSAGES: u64 = 400;

/// What a verb may read; 14 to 161 were measured. Without generations and counters of their own it was 897 for a SEND, 7,214 for a
/// RECEIVE, and up to 19,305 for the others.
fn most(messages: u64) -> u64 {
    300 + 20 * messages
}

/// The pages that a verb may read: 43 to 158 were measured for one message, 281 to 797 for 16.
fn most_pages(messages: u64) -> u64 {
    120 + 50 * messages
}

/// What a long time under the snapshot leaves: in the claim index 8,000 dead rows of each group, below the floor, in some 50 pages
/// of the index by group; as many messages of dialogs that have ended, that waited in the transmission queue, and requests of rechecks.
const MANY_DEAD_ROWS: &str = "
    INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
    SELECT s.queue_id, 5, n.oldest, e.conversation_group_id, -n.oldest
    FROM dialoq.conversation_endpoint AS e
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    CROSS JOIN generate_series(1, 8000) AS n (oldest)
    WHERE NOT e.is_initiator AND NOT e.is_system;
    DELETE FROM dialoq.ready_group AS r WHERE r.generation < 0;
    INSERT INTO dialoq.queue_message (endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at)
    SELECT -n.id, 0, 0, 2, gen_random_uuid(), now() FROM generate_series(1, 8000) AS n (id);
    DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id < 0;
    INSERT INTO dialoq.transmission (
        endpoint_id, sequence, message_type_id, is_conversation_error, is_end_of_dialog, message_id, enqueued_at, priority, status)
    SELECT -n.id, 0, 2, false, false, gen_random_uuid(), now(), 5, '' FROM generate_series(1, 8000) AS n (id);
    DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id < 0;
    INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at, may_hide) SELECT -n.id, now(), true FROM generate_series(1, 8000) AS n (id);
    DELETE FROM dialoq.recheck_queue AS u WHERE u.endpoint_id < 0";

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SET dialoq.client = '1'").await.unwrap();
    client
}

/// Sends and receives so many messages on each conversation, by batches.
async fn go_through(client: &Client, messages: u64) {
    for _ in 0..messages {
        client.batch_execute(&VERBS[1].1.replace("$handles", HANDLES)).await.unwrap();
        client.batch_execute(VERBS[8].1).await.unwrap();
    }
}

const HANDLES: &str = "(SELECT array_agg(h.handle) FROM handle AS h)";

/// Calls tick until the claim index is of one generation again.
async fn settle(client: &Client) {
    loop {
        client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
        let (floor, latest) = generations(client).await;
        if floor == latest {
            break;
        }
    }
}

async fn generations(client: &Client) -> (i64, i64) {
    let row = client.query_one("SELECT floor, latest FROM dialoq.ready_generation ORDER BY turn DESC LIMIT 1", &[]);
    let row = row.await.unwrap();
    (row.get(0), row.get(1))
}

async fn recheck_requests(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM dialoq.recheck_queue", &[]).await.unwrap().get(0)
}

/// The conversations of table `handle`, each with a message through it.
async fn prepare(broker: &Broker, client: &Client) {
    client
        .batch_execute("CREATE TABLE handle (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, handle uuid)")
        .await
        .unwrap();
    for _ in 0..CONVERSATIONS {
        let handle = dialog(broker).await;
        let insert = "INSERT INTO handle (handle) VALUES ($1::text::uuid)";
        client.execute(insert, &[&handle.0.to_string()]).await.unwrap();
    }
    client.batch_execute("SELECT * FROM handle AS h, dialoq.send(h.handle, '//t/Word', '\\x01')").await.unwrap();
    client.batch_execute(VERBS[8].1).await.unwrap();
}

/// A client of a database with the conversations of [`prepare`], and one that holds a snapshot of it.
async fn under_a_snapshot(broker: Broker, url: &str) -> (Client, Client) {
    let (client, holder) = (client(url).await, client(url).await);
    prepare(&broker, &client).await;
    // Its maintenance would settle the claim index at moments of its own.
    broker.close().await.unwrap();
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM handle").await.unwrap();
    (client, holder)
}

pub(crate) fn no_verb_walks_over_the_rows_that_an_old_snapshot_keeps(store: Store) {
    on(store, |broker, _, database| async move {
        let (client, holder) = under_a_snapshot(broker, database.url()).await;
        let before = generations(&client).await.0;
        for _ in 0..8 {
            go_through(&client, MESSAGES / 8).await;
            settle(&client).await;
        }
        assert!(generations(&client).await.0 > before, "no generation has begun");
        client.batch_execute(MANY_DEAD_ROWS).await.unwrap();
        // A search may read some thousand dead rows before a generation begins by itself.
        client.batch_execute(TURN).await.unwrap();
        settle(&client).await;
        // What watch_dead_rows asks again some seconds later walks over dead rows. A slow machine would come to that.
        let later = "UPDATE dialoq.ready_generation SET asks_next_at = clock_timestamp() + interval '50 minutes'";
        client.batch_execute(later).await.unwrap();
        let requests = format!(
            "INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at)
            SELECT -n.id, now() + interval '1 day' FROM generate_series(1, {REQUESTS}) AS n (id)"
        );
        client.batch_execute(&requests).await.unwrap();
        for _ in 0..4 {
            client.batch_execute(&VERBS[1].1.replace("$handles", HANDLES)).await.unwrap();
        }
        let mut wrong = Vec::new();
        let other = self::client(database.url()).await;
        let held = [(16, POLL)];
        // Whatever the statistics say: nothing; what is there now; many rows or few.
        let numbers = ROWS.iter().map(|rows| {
            format!(
                "UPDATE pg_class SET reltuples = {rows}
                WHERE relnamespace = 'dialoq'::regnamespace AND relkind IN ('r', 'i')"
            )
        });
        let statistics: Vec<_> = [String::new(), "ANALYZE".to_owned()].into_iter().chain(numbers).collect();
        let alone = VERBS.iter().map(|verb| (verb, false));
        let all: Vec<_> = alone.chain(held.iter().map(|verb| (verb, true))).collect();
        for (place, ((messages, verb), are_groups_held)) in
            all.iter().cycle().take(all.len() * statistics.len()).enumerate()
        {
            if place % all.len() == 0 {
                client.batch_execute(&statistics[place / all.len()]).await.unwrap();
            }
            let verb = verb.replace("$handles", HANDLES);
            if *are_groups_held {
                other.batch_execute(&format!("BEGIN; {}", VERBS[8].1)).await.unwrap();
            }
            // Rolled back, so that each verb finds the same.
            client.batch_execute("BEGIN").await.unwrap();
            let before: i64 = client.query_one(READ, &[]).await.unwrap().get(0);
            let pages: i64 = client.query_one(PAGES, &[]).await.unwrap().get(0);
            let given = client.query(&verb, &[]).await.unwrap_or_else(|error| panic!("{verb}: {error:?}")).len();
            let read: i64 = client.query_one(READ, &[]).await.unwrap().get(0);
            let pages_read: i64 = client.query_one(PAGES, &[]).await.unwrap().get(0);
            client.batch_execute("ROLLBACK").await.unwrap();
            if *are_groups_held {
                other.batch_execute("ROLLBACK").await.unwrap();
            }
            let read = (read - before).cast_unsigned();
            assert!(given > 0, "{verb}");
            let pages_read = (pages_read - pages).cast_unsigned();
            if read > most(*messages) || pages_read > most_pages(*messages) {
                wrong.push(format!("{read} rows, {pages_read} pages: {verb}"));
            }
        }
        assert!(wrong.is_empty(), "a verb reads rows that are dead:\n{}", wrong.join("\n"));
        while !client.query(VERBS[8].1, &[]).await.unwrap().is_empty() {}
        for verb in OF_EMPTY_GROUPS {
            let before: i64 = client.query_one(READ, &[]).await.unwrap().get(0);
            let rows = client.query(*verb, &[]).await.unwrap();
            let read: i64 = client.query_one(READ, &[]).await.unwrap().get(0);
            assert_eq!(rows.len(), 0, "{verb}");
            assert!((read - before).cast_unsigned() < most(1), "{} rows of an empty group: {verb}", read - before);
        }
        holder.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// Searches in a group that had many messages and has none. Polls and RECEIVEs meet such groups when another session has taken the
/// last message after the group was found.
const OF_EMPTY_GROUPS: &[&str] = &[
    "SELECT r.* FROM dialoq.conversation_endpoint AS e CROSS JOIN LATERAL dialoq.receive('server', 1, e.conversation_handle) AS r
    WHERE e.endpoint_id = (SELECT max(o.endpoint_id) FROM dialoq.conversation_endpoint AS o WHERE NOT o.is_initiator)",
    "SELECT r.* FROM dialoq.conversation_endpoint AS e
    CROSS JOIN LATERAL dialoq.receive('server', 1, NULL, e.conversation_group_id) AS r
    WHERE e.endpoint_id = (SELECT max(o.endpoint_id) FROM dialoq.conversation_endpoint AS o WHERE NOT o.is_initiator)",
    "SELECT r.* FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    CROSS JOIN LATERAL dialoq.group_rank(e.conversation_group_id, s.queue_id) AS r
    WHERE e.endpoint_id = (SELECT max(o.endpoint_id) FROM dialoq.conversation_endpoint AS o WHERE NOT o.is_initiator)",
];

/// Callers that meet many dead rows of their groups, and none by rank, because batches begin where the one before has ended. The
/// background step may be a minute away, and a minute of full load leaves 600 of each group.
pub(crate) fn a_receive_that_reads_many_dead_rows_of_a_group_asks_for_a_new_generation(store: Store) {
    on(store, |broker, _, database| async move {
        let (client, holder) = under_a_snapshot(broker, database.url()).await;
        let dead = "INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT s.queue_id, 5, n.oldest, e.conversation_group_id, g.latest
            FROM dialoq.conversation_endpoint AS e
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            CROSS JOIN generate_series(1, 1100) AS n (oldest)
            CROSS JOIN (SELECT g.latest FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1) AS g
            WHERE NOT e.is_initiator AND NOT e.is_system ORDER BY e.endpoint_id LIMIT 1100;
            DELETE FROM dialoq.ready_group AS r WHERE r.oldest BETWEEN 1 AND 1100";
        let asks = async |verb: &str| {
            let rows = client.query(verb, &[]).await.unwrap();
            assert_eq!(rows.len(), 1, "{verb}");
            let notices: Option<String> = rows[0].get("notices");
            notices.is_some_and(|notices| notices.split(' ').any(|notice| notice.starts_with("d:")))
        };
        let batch = "SELECT * FROM dialoq.receive_batch('server', ARRAY[1], 5, 100000)";
        let single = "SELECT * FROM dialoq.receive('server', 1)";
        for verb in [batch, single] {
            client.batch_execute("TRUNCATE dialoq.ready_group").await.unwrap();
            let send = "SELECT setval('dialoq.queue_message_queuing_order_seq', 200000);
                SELECT s.* FROM handle AS h, dialoq.send(h.handle, '//t/Word', '\\x01') AS s WHERE h.id = 1";
            client.batch_execute(send).await.unwrap();
            assert!(!asks(verb).await, "{verb}");
            client.batch_execute(dead).await.unwrap();
            client.batch_execute(send).await.unwrap();
            assert!(asks(verb).await, "{verb}");
        }
        holder.batch_execute("ROLLBACK").await.unwrap();
    });
}

/// Begins a new generation, as a tick does that finds many dead rows.
const TURN: &str = "INSERT INTO dialoq.ready_generation (turn, floor, latest, moved, next_at, ticked_at)
    SELECT turn + 1, floor, floor + 1, 0, next_at, ticked_at FROM dialoq.ready_generation ORDER BY turn DESC LIMIT 1";

/// Sessions that have used the old generation and are still open, a step of theirs before the turn and one after it: whatever
/// they do, every message has a row at or above the floor.
pub(crate) fn a_generation_ends_after_every_transaction_that_may_use_it(store: Store) {
    on(store, |broker, client, database| async move {
        let handle = dialog(&broker).await;
        let other = dialog(&broker).await;
        broker.send(handle, "//t/Word", "first").await.unwrap();
        broker.close().await.unwrap();
        let session = self::client(database.url()).await;
        let send = format!("SELECT * FROM dialoq.send('{}', '//t/Word', 'text')", other.0);
        let again = format!("SELECT * FROM dialoq.send('{}', '//t/Word', 'text')", handle.0);
        let receive = "SELECT * FROM dialoq.receive('server', 1)".to_owned();
        let batch = "SELECT * FROM dialoq.receive_batch('server', ARRAY[1, 1])".to_owned();
        let number = "SELECT pg_current_xact_id()".to_owned();
        let savepoint = format!("SAVEPOINT s; {receive}; ROLLBACK TO s; {send}");
        let plays = [
            (send.clone(), "SELECT 1".to_owned(), "COMMIT"),
            (send.clone(), "SELECT 1".to_owned(), "ROLLBACK"),
            // It relies on the row of the message before it.
            (again.clone(), "SELECT 1".to_owned(), "COMMIT"),
            (receive.clone(), "SELECT 1".to_owned(), "ROLLBACK"),
            (receive.clone(), "SELECT 1".to_owned(), "COMMIT"),
            (batch.clone(), "SELECT 1".to_owned(), "ROLLBACK"),
            (batch.clone(), send.clone(), "COMMIT"),
            (savepoint, receive.clone(), "ROLLBACK"),
            (number.clone(), send, "COMMIT"),
            (number, again, "COMMIT"),
        ];
        for (before, after, end) in plays {
            session.batch_execute(&format!("BEGIN; {before}")).await.unwrap();
            let old = generations(&client).await.0;
            client.batch_execute(TURN).await.unwrap();
            for _ in 0..4 {
                client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
                assert_eq!(generations(&client).await, (old, old + 1), "{before}: the transaction is open");
            }
            session.batch_execute(&format!("{after}; {end}")).await.unwrap();
            settle(&client).await;
            assert_eq!(generations(&client).await, (old + 1, old + 1), "{before}");
            let waiting = "SELECT count(*) FROM dialoq.queue_message AS m WHERE m.body IS NOT NULL";
            let waiting: i64 = client.query_one(waiting, &[]).await.unwrap().get(0);
            let below = "SELECT count(*) FROM dialoq.ready_group AS r WHERE r.generation < $1";
            let below: i64 = client.query_one(below, &[&(old + 1)]).await.unwrap().get(0);
            assert_eq!(below, 0, "{before}");
            let mut found = 0;
            while !client.query("SELECT * FROM dialoq.receive('server', 1)", &[]).await.unwrap().is_empty() {
                found += 1;
            }
            assert_eq!(found, waiting, "{before}; {after}; {end}");
            // The next play finds a message again.
            let refill = format!("SELECT * FROM dialoq.send('{}', '//t/Word', 'first')", handle.0);
            client.batch_execute(&refill).await.unwrap();
        }
    });
}

/// A turn that waits for a transaction, and whose times are later than now.
pub(crate) fn a_clock_that_is_set_back_in_a_turn_stops_no_tick(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.close().await.unwrap();
        let session = self::client(database.url()).await;
        session.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        let later =
            "UPDATE dialoq.ready_generation SET latest = floor + 1, after_xid = pg_current_xact_id(), moved = 0,
            next_at = clock_timestamp() + interval '1 hour', ticked_at = clock_timestamp() + interval '1 hour'";
        client.batch_execute(later).await.unwrap();
        client.batch_execute("SELECT dialoq.push_job('w', p_delay_ms => 1)").await.unwrap();
        let is_ready = "SELECT EXISTS (SELECT FROM dialoq.job WHERE state = 1)";
        let ticking = async {
            while !client.query_one(is_ready, &[]).await.unwrap().get::<_, bool>(0) {
                client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
            }
        };
        tokio::time::timeout(crate::stage::SOON, ticking).await.expect("tick takes steps of the turn only");
        session.batch_execute("ROLLBACK").await.unwrap();
        settle(&client).await;
    });
}

/// A transaction that got its number before the request for a recheck was committed, and is the latest that has one.
pub(crate) fn a_recheck_waits_for_the_transaction_with_the_latest_number(store: Store) {
    on(store, |broker, client, database| async move {
        let (handle, other) = (dialog(&broker).await, dialog(&broker).await);
        broker.send(handle, "//t/Word", "first").await.unwrap();
        broker.send(other, "//t/Word", "first").await.unwrap();
        broker.close().await.unwrap();
        // A turn before the first request ever: its id is not passed over.
        client.batch_execute(TURN).await.unwrap();
        settle(&client).await;
        client.batch_execute("SELECT * FROM dialoq.receive_batch('server', ARRAY[1, 1])").await.unwrap();
        let targets = "SELECT conversation_handle::text, conversation_group_id::text FROM dialoq.conversation_endpoint
            WHERE NOT is_initiator ORDER BY endpoint_id";
        let targets = client.query(targets, &[]).await.unwrap();
        let (moved, group): (String, String) = (targets[0].get(0), targets[1].get(1));
        let (mover, sender) = (self::client(database.url()).await, self::client(database.url()).await);
        mover.batch_execute(&format!("BEGIN; SELECT dialoq.move_conversation('{moved}', '{group}')")).await.unwrap();
        // It announces its message to the group that the conversation leaves.
        sender
            .batch_execute(&format!("BEGIN; SELECT * FROM dialoq.send('{}', '//t/Word', 'late')", handle.0))
            .await
            .unwrap();
        mover.batch_execute("COMMIT").await.unwrap();
        let age = "UPDATE dialoq.recheck_queue SET noted_at = noted_at - interval '1 minute'";
        for _ in 0..3 {
            client.batch_execute(age).await.unwrap();
            client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
        }
        assert_eq!(recheck_requests(&client).await, 1, "the recheck is over before the transaction that it is for");
        sender.batch_execute("COMMIT").await.unwrap();
        // The recheck also waits for transactions of other databases of the server: numbers belong to the server.
        while recheck_requests(&client).await > 0 {
            client.batch_execute(age).await.unwrap();
            client.batch_execute("SELECT * FROM dialoq.tick()").await.unwrap();
        }
        assert_eq!(client.query("SELECT * FROM dialoq.receive('server', 1)", &[]).await.unwrap().len(), 1);
    });
}

/// A transaction with a fixed snapshot does not see a message that came after it began, and would remove the row that announces it.
pub(crate) fn a_transaction_with_a_fixed_snapshot_changes_no_claim_index(store: Store) {
    on(store, |broker, client, _| async move {
        let handle = dialog(&broker).await;
        for text in ["1", "2"] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        let claim = "SELECT conversation_group_id::text, endpoint_id, queuing_order
            FROM dialoq.claim_batch('server', ARRAY[1]::bigint[], '{}')";
        let claim = client.query_one(claim, &[]).await.unwrap();
        let (group, endpoint, order): (String, i64, i64) = (claim.get(0), claim.get(1), claim.get(2));
        let commit = format!(
            "SELECT dialoq.commit_claims(ARRAY['{group}']::uuid[], ARRAY[{endpoint}]::bigint[],
            ARRAY[{order}]::bigint[], ARRAY[{order}]::bigint[], ARRAY[1])"
        );
        let others = [
            "SELECT dialoq.tick()",
            "SELECT dialoq.count_rollback('00000000-0000-0000-0000-000000000001')",
            "SELECT dialoq.define_begin(1)",
            "SELECT dialoq.begin_attempt('00000000-0000-0000-0000-000000000001', 1, '00000000-0000-0000-0000-000000000002')",
            "SELECT dialoq.commit_attempt('00000000-0000-0000-0000-000000000001')",
            "SELECT dialoq.commit_receives(ARRAY[1], ARRAY[NULL]::uuid[])",
            "SELECT dialoq.claim_unit('00000000-0000-0000-0000-000000000001')",
            "SELECT dialoq.post_queue_activation('server')",
            // It would not see that its service is dropped, or that a group of its id belongs to another service.
            "SELECT dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', p_contract => '//t/Talk')",
        ];
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            client
                .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM dialoq.sys_services"))
                .await
                .unwrap();
            broker.send(handle, "//t/Word", "3").await.unwrap();
            for call in std::iter::once(&*commit).chain(others) {
                let refused = client.batch_execute(&format!("SAVEPOINT s; {call}")).await;
                let refused = refused.err().unwrap_or_else(|| panic!("{level}: {call}"));
                assert_eq!(refused.code().unwrap().code(), "SB026", "{level}: {call}: {refused:?}");
                client.batch_execute("ROLLBACK TO s").await.unwrap();
            }
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        client
            .batch_execute(&format!("{commit}; SELECT dialoq.release_claims(ARRAY['{group}']::uuid[])"))
            .await
            .unwrap();
        let mut texts = Vec::new();
        while let Some(batch) = broker.receive("server").await.unwrap() {
            texts.extend(batch.iter().map(|message| message.text().unwrap().into_owned()));
        }
        assert_eq!(texts, ["2", "3", "3"]);
    });
}
