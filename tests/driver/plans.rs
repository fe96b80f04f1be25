//! No verb's plan depends on what the server's statistics say, or on how full the tables were when it was made.
//!
//! Queues are empty at one moment and full at the next. Statistics gathered at the first, and plans made then, are used at
//! the second: a scan of a whole table, which was right, would cost every SEND as much as there are conversations.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::Broker;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls, SimpleQueryMessage};

const SCRIPT: &str =
    "CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);
    CREATE WORK QUEUE free; CREATE WORK QUEUE limited WITH MAX_TAKEN_PER_KEY = 1, ORDER = PRIORITY;
    CREATE WORK QUEUE by_cte WITH TAKE_BY = CTE; CREATE WORK QUEUE by_cursor WITH TAKE_BY = CURSOR;
    CREATE WORK QUEUE by_applock WITH TAKE_BY = APPLOCK; CREATE WORK QUEUE plain; CREATE WORK QUEUE strict WITH ORDER = FIFO_STRICT;
    CREATE WORK QUEUE keyed WITH MAX_TAKEN_PER_KEY = 1";

/// Conversations that are begun, each with two messages that wait.
const CONVERSATIONS: u64 = 1_000;

/// So many more, whose handles stand in table `handle`.
const FILL: &str = "
    INSERT INTO handle (handle)
    SELECT (dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', 'CURRENT DATABASE', '//t/Talk')).conversation_handle
    FROM generate_series(1, $count);
    SELECT dialoq.send(h.handle, '//t/Word', '\\x01') FROM handle AS h ORDER BY h.id DESC LIMIT $count;
    SELECT dialoq.send(h.handle, '//t/Word', '\\x02') FROM handle AS h ORDER BY h.id DESC LIMIT $count;
    SELECT dialoq.push_job(w.name, t.n::text, p_job_key => (t.n % 7)::text, p_level => 1 + t.n % 10, p_unique_key => l.n + t.n || '')
    FROM generate_series(1, $count) AS t (n), (VALUES ('free'), ('limited'), ('by_cte'), ('by_cursor'), ('by_applock'), ('strict')) AS w (name),
        (SELECT coalesce(max(j.job_id), 0) AS n FROM dialoq.job AS j) AS l;
    SELECT dialoq.push_job('plain') FROM generate_series(1, $count + 100);
    DELETE FROM dialoq.job AS j WHERE j.job_type = 'behind';
    SELECT dialoq.push_job('keyed', 'full', p_job_key => 'full') FROM generate_series(1, $count);
    SELECT dialoq.take_jobs('keyed', p_has_lease => true);
    SELECT dialoq.push_job('keyed', 'behind', p_job_key => t.n::text) FROM generate_series(1, 7) AS t (n);
    SELECT dialoq.push_job('free', p_delay_ms => 1000000) FROM generate_series(1, $count);
    SELECT dialoq.push_job('free', 'taken') FROM generate_series(1, 2);
    SELECT dialoq.take_jobs('free', 2, 'taken', p_has_lease => true);
    SELECT dialoq.push_job('free', 'held') FROM generate_series(1, $count);
    UPDATE dialoq.job AS j SET state = 2, attempts = 1, token = nextval('dialoq.next_job_token'), taken_at = now(), taken_by = '',
        process = '01234567-89ab-cdef-0123-456789abcdef', holder = gen_random_uuid()
    WHERE j.job_type = 'held' AND j.state = 1;";

/// The process whose transactions hold jobs; it lives, so that tick leaves them alone.
const HOLD: &str = "SELECT dialoq.hold_presence('01234567-89ab-cdef-0123-456789abcdef')";

/// Statistics of an ANALYZE in a transaction that has emptied the tables outlive its rollback.
const ANALYZE_EMPTY: &str = "
    BEGIN;
    DELETE FROM dialoq.conversation_endpoint; DELETE FROM dialoq.queue_message; DELETE FROM dialoq.ready_group;
    DELETE FROM dialoq.job; DELETE FROM dialoq.unique_job;
    ANALYZE dialoq.conversation_endpoint, dialoq.queue_message, dialoq.ready_group, dialoq.transmission, dialoq.receive_attempt,
        dialoq.job, dialoq.unique_job;
    ROLLBACK;";

/// The reads of tables and of indexes in this session so far.
pub(crate) const READ: &str = "
    SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'dialoq' AND c.relkind IN ('r', 'i')";

/// The verbs, how many messages each handles, and whether it goes through the queue.
const VERBS: &[(u64, &str)] = &[
    (
        32,
        "SELECT dialoq.send_batch(h.handles, array_fill('//t/Word'::text, ARRAY[h.count]), array_fill('\\x03'::bytea, ARRAY[h.count]),
        array_fill(NULL::text, ARRAY[h.count]), array_fill(''::text, ARRAY[h.count]), array_fill(NULL::uuid, ARRAY[h.count]))
        FROM (SELECT array_agg(h.handle) AS handles, count(*)::int FROM (SELECT * FROM handle ORDER BY id LIMIT 32) AS h) AS h",
    ),
    // Two of each conversation, which is not the short way.
    (
        32,
        "SELECT dialoq.send_batch(h.handles || h.handles, array_fill('//t/Word'::text, ARRAY[2 * h.count]),
        array_fill('\\x03'::bytea, ARRAY[2 * h.count]), array_fill(NULL::text, ARRAY[2 * h.count]), array_fill(''::text, ARRAY[2 * h.count]),
        array_fill(NULL::uuid, ARRAY[2 * h.count]))
        FROM (SELECT array_agg(h.handle) AS handles, count(*)::int FROM (SELECT * FROM handle ORDER BY id LIMIT 16) AS h) AS h",
    ),
    (
        32,
        "SELECT dialoq.send_each(h.handles, array_fill('//t/Word'::text, ARRAY[h.count]), array_fill('\\x03'::bytea, ARRAY[h.count]),
        NULL, array_fill(''::text, ARRAY[h.count]))
        FROM (SELECT array_agg(h.handle) AS handles, count(*)::int FROM (SELECT * FROM handle ORDER BY id LIMIT 32) AS h) AS h",
    ),
    // On one conversation.
    (
        32,
        "SELECT dialoq.send_each(array_fill(h.handle, ARRAY[32]), array_fill('//t/Word'::text, ARRAY[32]), array_fill('\\x03'::bytea, ARRAY[32]),
        NULL, array_fill(''::text, ARRAY[32])) FROM handle AS h WHERE h.id = 1",
    ),
    // Bodies that the server checks.
    (
        8,
        "SELECT dialoq.send_each(h.handles, array_fill('//t/Word'::text, ARRAY[h.count]), array_fill('\\x03'::bytea, ARRAY[h.count]))
        FROM (SELECT array_agg(h.handle) AS handles, count(*)::int FROM (SELECT * FROM handle ORDER BY id LIMIT 8) AS h) AS h",
    ),
    (32, "SELECT dialoq.receive_batch('server', array_fill(1::bigint, ARRAY[32]))"),
    (32, "SELECT dialoq.receive_batch('server', array_fill(2::bigint, ARRAY[16]))"),
    (1, "SELECT dialoq.send(h.handle, '//t/Word', '\\x03') FROM handle AS h WHERE h.id = 1"),
    (
        2,
        "SELECT dialoq.send_many(ARRAY(SELECT h.handle FROM handle AS h ORDER BY h.id LIMIT 2), '//t/Word', '\\x03')",
    ),
    (1, "SELECT dialoq.receive('server', 1)"),
    (2, "SELECT dialoq.receive('server', NULL)"),
    (1, "SELECT dialoq.receive('server', 1, p_oldest => true)"),
    (2, "SELECT dialoq.receive('server', NULL, t.conversation_handle) FROM target AS t"),
    (2, "SELECT dialoq.receive('server', NULL, NULL, t.conversation_group_id) FROM target AS t"),
    (1, "SELECT dialoq.get_conversation_group('server')"),
    (
        1,
        "SELECT dialoq.begin_attempt('01234567-89ab-cdef-0123-456789abcdef', t.queue_id, t.conversation_group_id)
        FROM target AS t;
        SELECT dialoq.count_rollback('01234567-89ab-cdef-0123-456789abcdef')",
    ),
    (1, "SELECT dialoq.end_conversation(h.handle) FROM handle AS h WHERE h.id = 2"),
    (1, "SELECT dialoq.end_conversation(h.handle, 5, 'wrong') FROM handle AS h WHERE h.id = 2"),
    (1, "SELECT dialoq.begin_conversation_timer(h.handle, 60) FROM handle AS h WHERE h.id = 2"),
    (1, "SELECT dialoq.get_transmission_status(h.handle) FROM handle AS h WHERE h.id = 2"),
    (1, "SELECT dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', 'CURRENT DATABASE', '//t/Talk')"),
    (1, "SELECT dialoq.move_conversation(t.asker, t.asker_group) FROM target AS t"),
    (1, "SELECT dialoq.reprioritise(h.handle, 7) FROM handle AS h WHERE h.id = 2"),
    (1, "SELECT dialoq.push_job('free', 'x', 'k', p_unique_key => 'new')"),
    (1, "SELECT dialoq.push_job('free', p_unique_key => '1')"),
    (
        32,
        "SELECT dialoq.push_job_batch('free', array_fill('x'::text, ARRAY[32]), array_fill('k'::text, ARRAY[32]), array_fill(5, ARRAY[32]),
        array_fill(NULL::bigint, ARRAY[32]), array_fill(NULL::bigint, ARRAY[32]), array_fill('\\x01'::bytea, ARRAY[32]),
        array_fill(''::text, ARRAY[32]))",
    ),
    (
        32,
        "SELECT dialoq.take_job_batch('free', NULL, array_fill(1::bigint, ARRAY[32]), array_fill(NULL::bigint, ARRAY[32]),
        array_fill(''::text, ARRAY[32]))",
    ),
    (
        8,
        "SELECT dialoq.claim_job_batch('01234567-89ab-cdef-0123-456789abcdef', 'free', NULL,
        ARRAY['01234567-89ab-cdef-0123-456789abcdee', '01234567-89ab-cdef-0123-456789abcded']::uuid[], ARRAY[0, 0], ARRAY[4, 4],
        ARRAY['', ''])",
    ),
    (1, "SELECT dialoq.complete_job_batch(ARRAY[t.job_id], ARRAY[t.token], ARRAY[NULL]::bytea[]) FROM taken AS t"),
    (
        1,
        "SELECT dialoq.complete_and_take_job_batch(ARRAY[t.job_id, 0], ARRAY[t.token, 0], ARRAY[NULL, NULL]::bytea[], 'plain', NULL,
        ARRAY[1, 1], ARRAY[NULL, NULL]::bigint[], ARRAY['', '']) FROM taken AS t",
    ),
    (1, "SELECT dialoq.complete_and_take_job(t.job_id, t.token, NULL, 'plain') FROM taken AS t"),
    (1, "SELECT dialoq.take_jobs('free')"),
    (32, "SELECT dialoq.take_jobs('free', 32, p_has_lease => true)"),
    (1, "SELECT dialoq.take_jobs('free', 1, '1')"),
    (32, "SELECT dialoq.take_jobs('by_cte', 32, p_has_lease => true)"),
    (1, "SELECT dialoq.take_jobs('by_cte', 1, '1', p_has_lease => true)"),
    (
        32,
        "SELECT dialoq.take_job_batch('by_cte', NULL, array_fill(1::bigint, ARRAY[32]), array_fill(NULL::bigint, ARRAY[32]),
        array_fill(''::text, ARRAY[32]))",
    ),
    (32, "SELECT dialoq.take_jobs('by_cursor', 32, p_has_lease => true)"),
    (1, "SELECT dialoq.take_jobs('by_cursor', 1, '1', p_has_lease => true)"),
    (32, "SELECT dialoq.take_jobs('by_applock', 32, p_has_lease => true)"),
    (1, "SELECT dialoq.take_jobs('limited', p_has_lease => true)"),
    (1, "SELECT dialoq.take_jobs('limited', p_lowest => 2, p_highest => 3)"),
    (1, "SELECT dialoq.take_jobs('limited', p_oldest => true)"),
    (2, "SELECT dialoq.take_jobs('limited', 2, p_has_lease => true)"),
    (2, "SELECT dialoq.take_jobs('strict', 2, p_has_lease => true)"),
    // In a queue of which one key is full, as takes and polls do after 5,000 jobs.
    (
        8,
        "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
        SELECT f.* FROM dialoq.work_queue AS q, dialoq.first_job_of_keys(q.queue_id, NULL, 0, 9, '{full}', false, -1, 0, 500) AS f
        WHERE q.name = 'keyed'",
    ),
    (
        8,
        "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
        SELECT f.* FROM dialoq.work_queue AS q, dialoq.first_job_of_keys(q.queue_id, 'behind', 0, 9, '{full}', false, -1, 0, 500) AS f
        WHERE q.name = 'keyed'",
    ),
    (
        1,
        "SELECT dialoq.claim_jobs('01234567-89ab-cdef-0123-456789abcdef', '01234567-89ab-cdef-0123-456789abcdee', 0, 'free', 1,
        NULL, NULL, NULL, false, false, NULL, '')",
    ),
    // Without unique keys, as most jobs are: the short ways.
    (1, "SELECT dialoq.push_job('plain')"),
    (1, "SELECT dialoq.take_jobs('plain')"),
    (1, "SELECT dialoq.take_jobs('plain', p_has_lease => true)"),
    (
        32,
        "SELECT dialoq.take_job_batch('plain', NULL, array_fill(1::bigint, ARRAY[32]), array_fill(NULL::bigint, ARRAY[32]),
        array_fill(''::text, ARRAY[32]), 1)",
    ),
    (
        1,
        "SELECT f.* FROM (
            SELECT c.job_id FROM dialoq.claim_jobs('01234567-89ab-cdef-0123-456789abcdef', '01234567-89ab-cdef-0123-456789abcdee', 0,
                'plain', 1, NULL, NULL, NULL, false, false, NULL, '') AS c) AS c,
        dialoq.finish_held_jobs('01234567-89ab-cdef-0123-456789abcdef', '01234567-89ab-cdef-0123-456789abcdee', ARRAY[c.job_id]) AS f",
    ),
    (1, "SELECT dialoq.complete_job(t.job_id, t.token, '\\x01') FROM taken AS t"),
    (1, "SELECT dialoq.fail_job(t.job_id, t.token, '') FROM taken AS t"),
    (1, "SELECT dialoq.extend_job(t.job_id, t.token) FROM taken AS t"),
    (1, "SELECT dialoq.report_job(t.job_id, t.token, '') FROM taken AS t"),
    (1, "SELECT dialoq.cancel_job(t.job_id) FROM taken AS t"),
    (1, "SELECT dialoq.return_jobs(ARRAY[t.job_id], ARRAY[t.token]) FROM taken AS t"),
    (
        1,
        "SELECT dialoq.release_jobs('01234567-89ab-cdef-0123-456789abcdef', '01234567-89ab-cdef-0123-456789abcdee', 0, 9, true)",
    ),
    // It reads the first 200 rows of each queue in the claim index, to see how many dead ones lie between.
    (16, "SELECT dialoq.tick()"),
];

/// A scan of the smallest of the tables that grow reads as much as there are conversations. A message that is sent with
/// another of its conversation reads 14 rows, and 20 while transactions of other databases keep the server from marking
/// entries of indexes as dead.
fn most(messages: u64) -> u64 {
    CONVERSATIONS / 4 + 16 * messages
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    // As the broker's own connections do: they get notices in the answers.
    client.batch_execute("SET dialoq.client = '1'; SET search_path = public").await.unwrap();
    client
}

async fn fill(client: &Client, conversations: u64) {
    client.batch_execute(&FILL.replace("$count", &conversations.to_string())).await.unwrap();
}

/// Runs every verb in a transaction that is rolled back, and gives what each has read.
async fn reads(client: &Client) -> Vec<u64> {
    let mut reads = Vec::new();
    for (_, verb) in VERBS {
        client.batch_execute("BEGIN").await.unwrap();
        let mut read = Vec::new();
        for text in [READ, *verb, READ] {
            let rows = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
            if let (READ, Some(SimpleQueryMessage::Row(row))) =
                (text, rows.iter().find(|row| matches!(row, SimpleQueryMessage::Row(_))))
            {
                read.push(row.get(0).unwrap().parse::<u64>().unwrap());
            }
        }
        client.batch_execute("ROLLBACK").await.unwrap();
        reads.push(read[1] - read[0]);
    }
    reads
}

/// A broker with the queues of the script, table `handle`, and statistics that only the test makes.
async fn begun(database: &Database) -> (Broker, Client) {
    let broker = Broker::open(database.url()).await.unwrap();
    broker.execute(SCRIPT).await.unwrap();
    let client = client(database.url()).await;
    for table in [
        "conversation_endpoint",
        "queue_message",
        "ready_group",
        "transmission",
        "receive_attempt",
        "job",
        "unique_job",
    ] {
        let off = format!("ALTER TABLE dialoq.{table} SET (autovacuum_enabled = off)");
        client.batch_execute(&off).await.unwrap();
    }
    let handles = "CREATE TABLE handle (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, handle uuid NOT NULL)";
    client.batch_execute(handles).await.unwrap();
    (broker, client)
}

/// What the verbs name. Tables, so that whatever is read is read by the verbs.
async fn name_targets(client: &Client) {
    let target = "CREATE TABLE target AS
        SELECT t.conversation_handle, t.conversation_group_id, s.queue_id, i.conversation_handle AS asker,
            (SELECT o.conversation_group_id FROM dialoq.conversation_endpoint AS o JOIN handle AS h
                ON h.handle = o.conversation_handle WHERE h.id = 1) AS asker_group
        FROM handle AS h
        JOIN dialoq.conversation_endpoint AS i ON i.conversation_handle = h.handle
        JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND NOT t.is_initiator
        JOIN dialoq.service AS s ON s.service_id = t.service_id
        WHERE h.id = 2";
    client.batch_execute(target).await.unwrap();
    let taken = "CREATE TABLE taken AS SELECT j.job_id, j.token FROM dialoq.job AS j WHERE j.state = 2 LIMIT 1";
    client.batch_execute(taken).await.unwrap();
    let second = "SELECT dialoq.send(h.handle, '//t/Word', '\\x00'), dialoq.send(h.handle, '//t/Word', '\\x00') FROM handle AS h";
    client.batch_execute(second).await.unwrap();
}

/// No verb has read more than its share, by plans of each kind.
fn check(seen: Vec<(&str, Vec<u64>)>) {
    let mut wrong = Vec::new();
    for (plans, reads) in seen {
        for ((messages, verb), read) in VERBS.iter().zip(reads) {
            if read > most(*messages) {
                wrong.push(format!("{read} by plans {plans}: {verb}"));
            }
        }
    }
    assert!(wrong.is_empty(), "a verb reads more than its share:\n{}", wrong.join("\n"));
}

pub(crate) fn no_plan_depends_on_statistics(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = async {
        let database = Database::fresh(store);
        let (broker, early) = begun(&database).await;
        let alive = client(database.url()).await;
        alive.batch_execute(HOLD).await.unwrap();
        // Plans are made and kept while there is next to nothing.
        fill(&early, 2).await;
        early.batch_execute("ANALYZE").await.unwrap();
        name_targets(&early).await;
        reads(&early).await;
        fill(&client(database.url()).await, CONVERSATIONS).await;
        let mut seen = vec![("made on nearly nothing", reads(&early).await)];
        early.batch_execute(ANALYZE_EMPTY).await.unwrap();
        seen.push(("of tables that were empty", reads(&client(database.url()).await).await));
        early.batch_execute("ANALYZE").await.unwrap();
        seen.push(("of full tables", reads(&client(database.url()).await).await));
        check(seen);
        broker.close().await.unwrap();
    };
    runtime.block_on(async { tokio::time::timeout(6 * SOON, test).await.expect("the test hangs") });
}

/// The statistics of work queues that are quiet after a day of work: one job, in indexes that have seen many.
pub(crate) fn no_plan_depends_on_the_statistics_of_one_job(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = async {
        let database = Database::fresh(store);
        let (broker, early) = begun(&database).await;
        let alive = client(database.url()).await;
        alive.batch_execute(HOLD).await.unwrap();
        // The indexes keep their pages, the one of the ids more than others: one with fewer looks cheaper then.
        fill(&early, CONVERSATIONS).await;
        early.batch_execute("DELETE FROM dialoq.job; DELETE FROM dialoq.unique_job").await.unwrap();
        early.batch_execute("VACUUM").await.unwrap();
        early.batch_execute("SELECT dialoq.push_job('strict')").await.unwrap();
        early.batch_execute("VACUUM ANALYZE").await.unwrap();
        fill(&early, CONVERSATIONS).await;
        name_targets(&early).await;
        check(vec![("of a table that had one job", reads(&client(database.url()).await).await)]);
        broker.close().await.unwrap();
    };
    runtime.block_on(async { tokio::time::timeout(6 * SOON, test).await.expect("the test hangs") });
}

/// Messages that wait in the transmission queue for a queue that is off.
const WAITING: u64 = 1_500;

pub(crate) fn a_long_outbox_is_delivered_in_proportion_to_its_length(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let client = client(database.url()).await;
        let fill = format!(
            "CREATE TEMP TABLE handle AS SELECT dialoq.next_id() AS handle;
             SELECT dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', 'CURRENT DATABASE', '//t/Talk',
                p_conversation_handle => (SELECT h.handle FROM handle AS h));
             UPDATE dialoq.service_queue SET is_enqueue_enabled = false WHERE name = 'server';
             SELECT dialoq.send(h.handle, '//t/Word', '\\x01') FROM handle AS h CROSS JOIN generate_series(1, {WAITING})"
        );
        client.batch_execute(&fill).await.unwrap();
        // A definition, and then a recheck or a SEND.
        for visit in [
            "dialoq.define_end()",
            "(SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e JOIN handle AS h ON h.handle = e.conversation_handle) AS e
                CROSS JOIN LATERAL dialoq.redeliver(e.endpoint_id)",
        ] {
            let text = format!(
                "BEGIN; UPDATE dialoq.service_queue SET is_enqueue_enabled = true WHERE name = 'server';
                 SELECT count(*) FROM {visit}; {READ}; SELECT count(*) FROM dialoq.transmission; ROLLBACK"
            );
            let rows = client.simple_query(&text).await.unwrap();
            let numbers: Vec<u64> = rows
                .iter()
                .filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().parse().unwrap()),
                    _ => None,
                })
                .collect();
            let [_, read, left] = numbers[..] else { panic!("{numbers:?}") };
            assert_eq!(left, 0, "{visit}");
            // 130 to 330 each: the versions of the endpoint's row stay until the commit. Reading the delivered rows again for
            // each would be 750 more.
            assert!(read < 500 * WAITING, "{read} rows were read for {WAITING} messages: {visit}");
        }
        broker.close().await.unwrap();
    };
    runtime.block_on(async { tokio::time::timeout(3 * SOON, test).await.expect("the test hangs") });
}
