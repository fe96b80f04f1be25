//! Jobs of queues that limit their keys, in PostgreSQL: when they are in the index that is searched by key.

use crate::enlisting::on;
use crate::jobs::soon;
use crate::jobs_locks::{connect, number};
use crate::plans::READ;
use crate::servers::{Database, Store};
use dialoq::{Act, Broker};

const MARKED: &str = "SELECT count(*) FROM dialoq.work_queue AS q
    WHERE q.are_jobs_marked AND NOT EXISTS (SELECT FROM dialoq.unmarked_work_queue)
        AND NOT EXISTS (SELECT FROM dialoq.job AS j WHERE NOT j.has_key_limit)";

async fn alter(url: &str, options: &str) {
    let broker = Broker::open(url).await.unwrap();
    broker.execute(&format!("ALTER WORK QUEUE w WITH {options}")).await.unwrap();
    broker.close().await.unwrap();
}

/// Jobs of several keys, all taken at once: then one more of each, which none may take, and one of a key that has none.
const MANY_KEYS: &str = "
    SELECT dialoq.push_job('w', p_job_key => 'k' || n) FROM generate_series(1, 1100) AS g (n);
    SELECT dialoq.take_jobs('w', 1100, p_has_lease => true, p_lease_ms => 1000000);
    SELECT dialoq.push_job('w', p_job_key => 'k' || n) FROM generate_series(1, 1100) AS g (n);
    SELECT dialoq.push_job('w', 'free', 'free')";

pub(crate) fn a_job_behind_those_of_very_many_full_keys_is_found(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN_PER_KEY = 1").await.unwrap();
        client.batch_execute(MANY_KEYS).await.unwrap();
        let of_keys = "SELECT f.is_cut::int::bigint FROM dialoq.work_queue AS q,
            dialoq.first_job_of_keys(q.queue_id, NULL, 0, 0, (dialoq.blocked_keys(q, now())).blocked, false, -1, 0, 500) AS f";
        assert_eq!(number(&client, of_keys).await, 1, "the keys are more than are read");
        let taken = "SELECT count(*) FROM dialoq.take_jobs('w', 9, p_has_lease => true) AS t WHERE t.job_key = 'free'";
        assert_eq!(number(&client, taken).await, 1);
    });
}

/// Jobs of thirty keys and without one, and between them many of five keys, by a named seed.
const RANDOM: &str = "
    SELECT setseed(0.44);
    SELECT dialoq.push_job(q.name, chr(97 + floor(random() * 3)::int),
        CASE WHEN n BETWEEN 400 AND 3600 THEN 'k' || floor(5 * random()) WHEN random() < 0.9 THEN 'k' || floor(30 * random()) END,
        1 + floor(random() * 10)::int, p_body => decode(lpad(n::text, 4, '0'), 'hex'))
    FROM (VALUES ('fifo'), ('lifo'), ('level')) AS q (name), generate_series(1, 4000) AS g (n)";

/// The search by key and the one in order, where the first gives an answer: of each type, some ranks, behind some places, with
/// different keys at their limit.
const DIFFERENT: &str = "
    SELECT count(*), count(*) FILTER (WHERE NOT a.is_cut
            AND (a.job_id, a.job_key, a.take_order) IS DISTINCT FROM (b.job_id, b.job_key, b.take_order)),
        count(*) FILTER (WHERE a.is_cut), count(a.job_id) FILTER (WHERE NOT a.is_cut)
    FROM dialoq.work_queue AS q
    CROSS JOIN (VALUES (NULL), ('a'), ('c'), ('x'), ('z')) AS t (job_type)
    CROSS JOIN (VALUES (0, 9), (2, 6), (7, 7)) AS r (low, high)
    CROSS JOIN LATERAL (
        SELECT r.low - 1, CASE WHEN q.work_order = 'LIFO' THEN -100000 ELSE 0 END::bigint
        UNION ALL SELECT r.low, j.take_order FROM dialoq.job AS j WHERE j.queue_id = q.queue_id AND j.body IN ('\\x0410', '\\x3590')
        UNION ALL SELECT j.rank_from_top, j.take_order FROM dialoq.job AS j WHERE j.queue_id = q.queue_id AND j.body = '\\x2000'
    ) AS p (rank, place)
    CROSS JOIN LATERAL (
        SELECT '{k0}'::text[], false UNION ALL SELECT '{k0,k1,k2,k3,k4}', false UNION ALL SELECT '{k0,k1,k2,k3,k4}', true
        UNION ALL SELECT array_agg('k' || n), false FROM generate_series(0, 25) AS g (n)
        UNION ALL SELECT array_agg('k' || n), true FROM generate_series(0, 28) AS g (n)
    ) AS k (blocked, keyless)
    CROSS JOIN LATERAL
        dialoq.first_job_of_keys(q.queue_id, t.job_type, r.low, r.high, k.blocked, k.keyless, p.rank, p.place, 500) AS a
    CROSS JOIN LATERAL dialoq.scan_jobs(q.queue_id, t.job_type, r.low, r.high, k.blocked, k.keyless, p.rank, p.place, NULL) AS b
    WHERE q.work_order = 'PRIORITY' OR (r.low, r.high) = (0, 9)";

pub(crate) fn a_search_by_key_gives_the_job_that_a_search_in_order_gives(store: Store) {
    on(store, |broker, client, _| async move {
        for (queue, order) in [("fifo", "FIFO"), ("lifo", "LIFO"), ("level", "PRIORITY")] {
            let create = format!("CREATE WORK QUEUE {queue} WITH MAX_TAKEN_PER_KEY = 1, ORDER = {order}");
            broker.execute(&create).await.unwrap();
        }
        client.batch_execute(RANDOM).await.unwrap();
        client
            .batch_execute(
                "SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off; SET jit = off",
            )
            .await
            .unwrap();
        let row = client.query_one(DIFFERENT, &[]).await.unwrap();
        let [asked, different, cut, found] = [0, 1, 2, 3].map(|column| row.get::<_, i64>(column));
        assert_eq!(different, 0, "of {asked}");
        assert!(cut > 10 && found > asked / 3, "{cut} of {asked} searches were cut, {found} found a job");
    });
}

/// The statistics of a queue in which one key had all jobs: an index without the key looks as good then.
pub(crate) fn a_search_by_key_does_not_read_the_jobs_of_full_keys(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN_PER_KEY = 1").await.unwrap();
        let full =
            "SELECT dialoq.push_job_batch('w', array_fill('x'::text, ARRAY[n]), array_fill('full'::text, ARRAY[n]),
            array_fill(5, ARRAY[n]), array_fill(NULL::bigint, ARRAY[n]), array_fill(NULL::bigint, ARRAY[n]),
            array_fill('a'::bytea, ARRAY[n]), array_fill(''::text, ARRAY[n])) FROM (VALUES (6000)) AS v (n);
            SELECT dialoq.take_jobs('w', p_has_lease => true, p_lease_ms => 1000000);
            ANALYZE dialoq.job;
            SELECT dialoq.push_job('w', 'y', 'k' || n) FROM generate_series(1, 9) AS g (n);
            SELECT dialoq.push_job('w', 'x', 'k' || n) FROM generate_series(1, 9) AS g (n);
            SELECT dialoq.push_job('w', 'x')";
        client.batch_execute(full).await.unwrap();
        for (job_type, count) in [("NULL", 9), ("'x'", 1)] {
            client.batch_execute("BEGIN").await.unwrap();
            let before = number(&client, READ).await;
            let taken = format!(
                "SELECT count(*) FROM dialoq.take_jobs('w', {count}, {job_type}, p_has_lease => true, p_lease_ms => 1000000)"
            );
            assert_eq!(number(&client, &taken).await, count);
            let read = number(&client, READ).await - before;
            // The first 5,000, in the index and in the table, and whether there is another.
            assert!(read < 18_000, "{read} rows by a take of {count} of type {job_type}");
            client.batch_execute("COMMIT").await.unwrap();
        }
        let left = "SELECT count(*) FROM dialoq.take_jobs('w', 9, p_has_lease => true) AS t WHERE t.job_key IS NULL";
        assert_eq!(number(&client, left).await, 0, "it has been taken by its type");
    });
}

pub(crate) fn a_job_behind_many_of_other_types_is_found(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN_PER_KEY = 1").await.unwrap();
        for key in ["'k'", "NULL"] {
            let jobs = format!(
                "SELECT dialoq.push_job('w', 'x', 'full') FROM generate_series(1, 300);
                SELECT dialoq.take_jobs('w', 1, 'x', p_has_lease => true, p_lease_ms => 1000000);
                SELECT dialoq.push_job('w', 'y', {key}) FROM generate_series(1, 300);
                SELECT dialoq.push_job('w', 'x', {key})"
            );
            client.batch_execute(&jobs).await.unwrap();
            let taken = "SELECT count(*) FROM dialoq.take_jobs('w', 9, 'x', p_has_lease => true)";
            assert_eq!(number(&client, taken).await, 1, "{key}");
            client.batch_execute("DELETE FROM dialoq.job").await.unwrap();
        }
    });
}

/// A push that has read the queue before it limited its keys does not mark its job, and may end long after.
pub(crate) fn jobs_of_a_queue_that_limits_its_keys_later_are_marked(store: Store) {
    on(store, |broker, mut client, database: Database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "early").await.unwrap();
        broker.close().await.unwrap();
        let ticking = connect(database.url()).await;
        for options in ["MAX_TAKEN_PER_KEY = 1", "KEY_RATE_JOBS = 5"] {
            let push = client.transaction().await.unwrap();
            push.batch_execute("SELECT dialoq.push_job('w', p_job_key => 'k')").await.unwrap();
            alter(database.url(), options).await;
            for _ in 0..4 {
                ticking.batch_execute("SELECT dialoq.tick()").await.unwrap();
            }
            assert_eq!(number(&ticking, MARKED).await, 0, "the push is open");
            push.commit().await.unwrap();
            // A row that another session has locked, as a report does, stays unmarked.
            let hold = client.transaction().await.unwrap();
            hold.batch_execute("SELECT FROM dialoq.job ORDER BY job_id DESC LIMIT 1 FOR UPDATE").await.unwrap();
            for _ in 0..4 {
                ticking.batch_execute("SELECT dialoq.tick()").await.unwrap();
            }
            assert_eq!(number(&ticking, MARKED).await, 0, "a job is locked");
            hold.rollback().await.unwrap();
            let marked = async || {
                ticking.batch_execute("SELECT dialoq.tick()").await.unwrap();
                (number(&ticking, MARKED).await == 1).then_some(())
            };
            soon("all jobs are marked", marked).await;
            alter(database.url(), "MAX_TAKEN_PER_KEY = 0, KEY_RATE_JOBS = 0").await;
            assert_eq!(number(&ticking, MARKED).await, 0, "the next push will not be marked");
        }
    });
}
