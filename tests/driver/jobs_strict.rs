//! Work queues of `ORDER = FIFO_STRICT` beside locks of other sessions: nothing is given rather than a later job before an
//! earlier one of its key.

use crate::enlisting::on;
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::postgres::Enlisted;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::work::{AfterFailure, WorkQueue};
use dialoq::{Act, Broker, Code};
use std::time::Duration;

const W: WorkQueue<String> = WorkQueue::text("w");

async fn push(broker: &Broker, body: &str, job_type: &str, key: Option<&str>) {
    let job = broker.push_job("w", body).job_type(job_type);
    match key {
        Some(key) => job.key(key).await.unwrap(),
        None => job.await.unwrap(),
    };
}

async fn take(broker: &Broker, job_type: Option<&str>) -> Option<String> {
    let take = broker.take_jobs(W);
    let jobs = match job_type {
        Some(job_type) => take.job_type(job_type).await.unwrap(),
        None => take.await.unwrap(),
    };
    jobs.first().map(|job| job.decode(W).unwrap())
}

pub(crate) fn a_take_by_type_gives_no_job_before_the_first_of_its_key(store: Store) {
    on(store, |broker, _, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        for key in [Some("k"), None] {
            push(&broker, "first", "a", key).await;
            push(&broker, "second", "b", key).await;
            assert_eq!(take(&broker, Some("b")).await, None, "the first job of {key:?} is ready");
            push(&broker, "another", "b", Some("l")).await;
            assert_eq!(take(&broker, Some("b")).await.as_deref(), Some("another"), "of a key by itself");
            let first = broker.take_jobs(W).job_type("a").await.unwrap().remove(0);
            assert_eq!(take(&broker, Some("b")).await, None, "the first job of {key:?} is taken");
            broker.complete_job(&first).await.unwrap();
            assert_eq!(take(&broker, Some("b")).await.as_deref(), Some("second"));
            for job in broker.jobs(&dialoq::work::JobFilter::default(), 9).await.unwrap() {
                broker.cancel_job(job.job).await.unwrap();
            }
        }
    });
}

/// Where a key may have two taken jobs, its second one can be taken before the first, and also where it is far from the first ones of
/// its type: behind more jobs than are read one by one, and behind more keys than are.
pub(crate) fn a_take_by_type_finds_the_second_job_of_a_key_however_far_it_is(store: Store) {
    on(store, |broker, client, _| async move {
        let held_up = "SELECT dialoq.push_job('w', 'a', 'held up') FROM generate_series(1, 2);
            SELECT dialoq.push_job('w', 'b', 'held up') FROM generate_series(1, 300);";
        let keys = "SELECT dialoq.push_job('w', 'a', 'a key ' || n) FROM generate_series(1, 1100) AS n;";
        for before in [String::new(), held_up.to_owned(), keys.to_owned() + held_up] {
            broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 2").await.unwrap();
            client.batch_execute(&before).await.unwrap();
            push(&broker, "first", "a", Some("k")).await;
            push(&broker, "second", "b", Some("k")).await;
            push(&broker, "third", "b", Some("k")).await;
            assert_eq!(take(&broker, Some("b")).await.as_deref(), Some("second"), "{before}");
            assert_eq!(take(&broker, Some("b")).await, None, "{before}: the first one is ready");
            broker.execute("DROP WORK QUEUE w").await.unwrap();
        }
    });
}

/// The search behind the first job of a key ends with that key. It went on through the keys behind it, for as many jobs as may be
/// taken of one: beside 1,000 keys a take that found nothing lasted a second, and the other takes of its queue wait for it.
pub(crate) fn a_take_by_type_reads_each_key_once(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 300").await.unwrap();
        // A key that may have no more jobs taken, with more ready ones of the type than are read one by one, and others of another type.
        let many = "SELECT dialoq.push_job('w', 'a', 'held up') FROM generate_series(1, 300);
            SELECT dialoq.take_jobs('w', 300, p_has_lease => true);
            SELECT dialoq.push_job('w', 'b', 'held up') FROM generate_series(1, 300);
            SELECT dialoq.push_job('w', 'a', 'key ' || n % 300) FROM generate_series(1, 600) AS n;";
        client.batch_execute(many).await.unwrap();
        let read = "SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint
            FROM pg_class AS c WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'i')";
        client.batch_execute("BEGIN").await.unwrap();
        let before: i64 = client.query_one(read, &[]).await.unwrap().get(0);
        let taken = client.query("SELECT FROM dialoq.take_jobs('w', 1, 'b', p_has_lease => true)", &[]).await.unwrap();
        let after: i64 = client.query_one(read, &[]).await.unwrap().get(0);
        client.batch_execute("ROLLBACK").await.unwrap();
        assert!(taken.is_empty(), "the key has as many taken jobs as it may have");
        // Each of the 600 jobs once, in the index and in the table, and what is held up.
        assert!(after - before < 10_000, "{} rows were read", after - before);
    });
}

/// A refused report locks the row of its job for a moment.
/// Lines of so many keys wait for the next attempt at their first job, as when a partner is down. A take passes over the jobs behind
/// them, and compares none with each of the keys: one took 7 s, and held up those of others.
pub(crate) fn a_take_passes_over_many_lines_that_wait(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        let fill = "SELECT count(*) FROM generate_series(1, 20) AS r (n)
            CROSS JOIN LATERAL (SELECT ARRAY(SELECT 'k' || k.n FROM generate_series(1, least(r.n, 0) + 3000) AS k (n)) AS keys) AS l
            CROSS JOIN LATERAL dialoq.push_job_batch('w', array_fill('t'::text, ARRAY[3000]), l.keys, array_fill(5, ARRAY[3000]),
                array_fill(NULL::bigint, ARRAY[3000]), array_fill(NULL::bigint, ARRAY[3000]), array_fill(NULL::bytea, ARRAY[3000]),
                array_fill(''::text, ARRAY[3000])) AS p";
        client.batch_execute(fill).await.unwrap();
        let failed = "UPDATE dialoq.job SET state = 0, attempts = 1, due_at = now() + interval '1 hour'
            WHERE job_id IN (SELECT min(j.job_id) FROM dialoq.job AS j GROUP BY j.job_key)";
        client.batch_execute(failed).await.unwrap();
        client.batch_execute("VACUUM ANALYZE dialoq.job").await.unwrap();
        push(&broker, "the only one", "t", Some("free")).await;
        let least = async |text: &str| {
            let mut least = Duration::MAX;
            for _ in 0..5 {
                let begun = std::time::Instant::now();
                client.batch_execute(text).await.unwrap();
                least = least.min(begun.elapsed());
            }
            least
        };
        let read = least(
            "SELECT count(*) FROM dialoq.job AS j WHERE j.state = 1 AND j.job_key NOT IN (SELECT f.job_key FROM dialoq.job AS f WHERE f.state = 0)",
        )
        .await;
        let lasts = least("BEGIN; SELECT count(*) FROM dialoq.take_jobs('w', p_has_lease => true); ROLLBACK").await;
        assert!(lasts < 15 * read, "a take lasts {lasts:?}, to read all jobs once {read:?}");
        assert_eq!(take(&broker, None).await.as_deref(), Some("the only one"));
    });
}

pub(crate) fn a_row_that_is_locked_for_a_moment_lets_no_later_job_pass(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        for key in [Some("k"), None] {
            push(&broker, "first", "a", key).await;
            push(&broker, "second", "a", key).await;
            let lock = "BEGIN; SELECT FROM dialoq.job WHERE body = 'first' FOR UPDATE";
            client.batch_execute(lock).await.unwrap();
            assert_eq!((take(&broker, None).await, take(&broker, Some("a")).await), (None, None), "{key:?}");
            push(&broker, "another", "a", Some("l")).await;
            assert_eq!(take(&broker, None).await.as_deref(), Some("another"));
            client.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(take(&broker, None).await.as_deref(), Some("first"));
            for job in broker.jobs(&dialoq::work::JobFilter::default(), 9).await.unwrap() {
                broker.cancel_job(job.job).await.unwrap();
            }
        }
    });
}

/// As a job that is taken, whatever a take asks for. A take that met it held the others back, one of another type did not.
pub(crate) fn a_row_that_is_locked_has_one_of_the_places_of_its_key(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 3").await.unwrap();
        for (job_type, of_first) in [(None, "a"), (Some("a"), "a"), (Some("a"), "b")] {
            for count in [1, 9] {
                push(&broker, "first", of_first, Some("k")).await;
                for body in ["second", "third", "fourth"] {
                    push(&broker, body, "a", Some("k")).await;
                }
                let lock = "BEGIN; SELECT FROM dialoq.job WHERE body IN ('first', 'third') FOR UPDATE";
                client.batch_execute(lock).await.unwrap();
                let take = async || {
                    let take = broker.take_jobs(W).count(count);
                    let take = if let Some(job_type) = job_type { take.job_type(job_type) } else { take };
                    let jobs = take.await.unwrap();
                    jobs.iter().map(|job| job.decode(W).unwrap()).collect::<Vec<_>>()
                };
                assert_eq!(take().await, ["second"], "{job_type:?} {of_first} {count}");
                assert!(take().await.is_empty(), "{job_type:?} {of_first} {count}: no place is left");
                client.batch_execute("ROLLBACK").await.unwrap();
                let next = if of_first == "a" { "first" } else { "third" };
                assert_eq!(take().await[0], next, "{job_type:?} {of_first} {count}");
                for job in broker.jobs(&dialoq::work::JobFilter::default(), 9).await.unwrap() {
                    broker.cancel_job(job.job).await.unwrap();
                }
            }
        }
    });
}

/// Takes beside reports and redrives that are refused all the time.
pub(crate) fn the_order_holds_beside_refused_reports(store: Store) {
    on(store, |broker, _, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT, RETRY_DELAY_MS = 0").await.unwrap();
        for number in 0..150 {
            push(&broker, &format!("{number:03}"), "a", Some("k")).await;
        }
        let other = Broker::open(database.url()).await.unwrap();
        let refusing: Vec<_> = (0..3)
            .map(|task| {
                let other = other.clone();
                tokio::spawn(async move {
                    loop {
                        let jobs = other.jobs(&dialoq::work::JobFilter::default(), 2).await.unwrap();
                        if jobs.is_empty() {
                            return;
                        }
                        for job in jobs {
                            let taken = dialoq::work::TakenJob { job: job.job, token: 1_000_000_000 };
                            let code = match task {
                                0 => other.redrive_job(job.job).await.unwrap_err().code(),
                                _ => other.report_job(taken, "forged").await.unwrap_err().code(),
                            };
                            let expected =
                                [Code::JOB_NOT_DEAD, Code::LEASE_LOST, Code::JOB_LOCKED, Code::JOB_NOT_FOUND];
                            assert!(expected.contains(&code), "{code}");
                        }
                    }
                })
            })
            .collect();
        let mut done = Vec::new();
        while done.len() < 150 {
            let Some(job) = broker.take_jobs(W).wait(SOON).await.unwrap().pop() else { panic!("stuck after {done:?}") };
            done.push(job.decode(W).unwrap());
            complete(&broker, &job).await;
        }
        assert!(done.is_sorted(), "{done:?}");
        for task in refusing {
            task.await.unwrap();
        }
        other.close().await.unwrap();
    });
}

/// A report on another session's behalf may have locked the row for a moment.
async fn complete(broker: &Broker, job: &dialoq::work::Job) {
    while let Err(error) = broker.complete_job(job).await {
        assert_eq!(error.code(), Code::JOB_LOCKED, "{error}");
    }
}

/// Rows that this session has read of tables and indexes.
async fn rows_read(client: &Client) -> i64 {
    let text = "SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint
        FROM pg_class AS c WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'i')";
    client.query_one(text, &[]).await.unwrap().get(0)
}

pub(crate) fn a_take_does_not_read_the_backlog_of_a_key_that_is_held_up(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        let fill = "SELECT dialoq.push_job('w', 'a', 'k') FROM generate_series(1, 20000);
            SELECT dialoq.push_job('w', 'b', 'l'); SELECT dialoq.push_job('w', 'a', 'm');";
        client.batch_execute(fill).await.unwrap();
        let job = broker.take_jobs("w").lease(Duration::from_secs(3600)).await.unwrap().remove(0);
        assert_eq!(job.key.as_deref(), Some("k"));
        for (take, found) in [
            ("dialoq.take_jobs('w', p_job_type => 'b')", 1),
            ("dialoq.take_jobs('w')", 1),
            ("dialoq.take_jobs('w', p_job_type => 'a')", 1),
            ("dialoq.take_jobs('w', p_job_type => 'c')", 0),
        ] {
            client.batch_execute("BEGIN").await.unwrap();
            let before = rows_read(&client).await;
            let rows = client.query(&format!("SELECT job_key FROM {take}"), &[]).await.unwrap();
            let read = rows_read(&client).await - before;
            client.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(rows.len(), found, "{take}");
            assert!(read < 5_000, "{take} read {read} rows");
        }
        // So does a poll, which comes while readers wait.
        client.batch_execute("BEGIN").await.unwrap();
        let before = rows_read(&client).await;
        let ready: String = client.query_one("SELECT ready_queues FROM dialoq.poll()", &[]).await.unwrap().get(0);
        let read = rows_read(&client).await - before;
        client.batch_execute("ROLLBACK").await.unwrap();
        assert!(!ready.is_empty() && read < 5_000, "a poll read {read} rows");
        let failed = broker.fail_job_then(&job, "no", AfterFailure::Dead).await.unwrap();
        assert_eq!(failed.name(), "dead");
        assert_eq!(take(&broker, Some("a")).await.as_deref(), Some(""), "the next of its key");
    });
}

/// Other takes of the queue wait meanwhile. A take of 5,000 jobs lasted 10 s, because each job was searched from the first one, and
/// counted among all that were taken.
pub(crate) fn a_take_of_many_jobs_reads_each_a_few_times(store: Store) {
    on(store, |broker, client, _| async move {
        const JOBS: i64 = 400;
        for (options, keys, take) in [
            ("ORDER = FIFO_STRICT", JOBS, ""),
            ("ORDER = FIFO_STRICT", JOBS, ", p_job_type => 'a'"),
            ("ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 1000", 40, ""),
            ("ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 1000", 1, ""),
            ("ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 1000", 1, ", p_job_type => 'a'"),
            ("ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 2", JOBS, ", p_job_type => 'a'"),
            ("MAX_TAKEN_PER_KEY = 1", JOBS, ""),
            ("MAX_TAKEN_PER_KEY = 1000", 3, ""),
            ("ORDER = LIFO, MAX_TAKEN = 1000", JOBS, ""),
            ("RATE_JOBS = 1000, RATE_MS = 60000", JOBS, ""),
            ("KEY_RATE_JOBS = 1000, RATE_MS = 60000", 3, ""),
            ("ORDER = PRIORITY, MAX_TAKEN = 1000", JOBS, ", p_oldest => true"),
            ("ORDER = PRIORITY", JOBS, ", p_oldest => true"),
        ] {
            broker.execute(&format!("CREATE WORK QUEUE w WITH {options}")).await.unwrap();
            let fill =
                format!("SELECT dialoq.push_job('w', 'a', 'key ' || n % {keys}) FROM generate_series(1, {JOBS}) AS n");
            client.batch_execute(&fill).await.unwrap();
            client.batch_execute("BEGIN").await.unwrap();
            let before = rows_read(&client).await;
            let text = format!("SELECT job_id FROM dialoq.take_jobs('w', {JOBS}, p_has_lease => true{take})");
            let taken = client.query(&text, &[]).await.unwrap().len();
            let read = rows_read(&client).await - before;
            client.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(i64::try_from(taken).unwrap(), JOBS, "{options}{take}");
            assert!(read < 40 * JOBS, "{options}{take}: a take of {JOBS} jobs read {read} rows");
            broker.execute("DROP WORK QUEUE w").await.unwrap();
        }
    });
}

/// A take of many jobs keeps every limit for each of them.
pub(crate) fn a_take_of_many_jobs_keeps_the_limits(store: Store) {
    on(store, |broker, client, _| async move {
        for (options, right) in [
            ("ORDER = FIFO_STRICT", "1 2 3 4 5"),
            ("ORDER = FIFO_STRICT, MAX_TAKEN_PER_KEY = 2", "1 2 3 4 5 6 7 8 9"),
            ("MAX_TAKEN_PER_KEY = 2", "1 2 3 4 5 6 7 8 9 10 15"),
            ("MAX_TAKEN = 3", "1 2 3"),
            ("ORDER = LIFO, MAX_TAKEN = 6, MAX_TAKEN_PER_KEY = 1", "15 14 13 12 11 10"),
            ("RATE_JOBS = 4, RATE_MS = 60000", "1 2 3 4"),
            ("KEY_RATE_JOBS = 1, RATE_MS = 60000", "1 2 3 4 5 10 15"),
            ("KEY_RATE_JOBS = 2, MAX_TAKEN_PER_KEY = 1, MAX_TAKEN = 6, RATE_MS = 60000", "1 2 3 4 5 10"),
        ] {
            broker.execute(&format!("CREATE WORK QUEUE w WITH {options}")).await.unwrap();
            // Every fifth has no key.
            let fill = "SELECT dialoq.push_job('w', '', nullif('key ' || n % 5, 'key 0'), p_body => convert_to(n::text, 'UTF8'))
                FROM generate_series(1, 15) AS n";
            client.batch_execute(fill).await.unwrap();
            let text = "SELECT string_agg(convert_from(t.body, 'UTF8'), ' ')
                FROM dialoq.take_jobs('w', 100, p_has_lease => true, p_lease_ms => 3600000) AS t";
            let taken: String = client.query_one(text, &[]).await.unwrap().get(0);
            assert_eq!(taken, right, "{options}");
            let again: Option<String> = client.query_one(text, &[]).await.unwrap().get(0);
            assert_eq!(again, None, "{options}");
            broker.execute("DROP WORK QUEUE w").await.unwrap();
        }
    });
}

/// Takes of one queue come one after the other, and each keeps the others waiting until its commit is on the disk.
pub(crate) fn no_reader_of_many_goes_away_empty_while_jobs_are_ready(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        let slow = "SELECT dialoq.push_job('w', '', 'key ' || n) FROM generate_series(1, 48) AS n;
            CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END';
            CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON dialoq.job DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION slow()";
        client.batch_execute(slow).await.unwrap();
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let host = Broker::open(database.url()).await.unwrap();
            for _ in 0..4 {
                let host = host.clone();
                readers.spawn(async move {
                    [host.take_jobs(W).await.unwrap().len(), host.take_jobs(W).await.unwrap().len()]
                });
            }
        }
        for _ in 0..8 {
            let (plain, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            readers.spawn(async move {
                let take = "SELECT job_id FROM dialoq.take_jobs('w', p_has_lease => true, p_lease_ms => 3600000)";
                [plain.query(take, &[]).await.unwrap().len(), plain.query(take, &[]).await.unwrap().len()]
            });
        }
        let got = readers.join_all().await;
        assert!(got.iter().all(|counts| *counts == [1, 1]), "24 readers took from 48 ready jobs: {got:?}");
        assert_eq!(take(&broker, None).await, None, "each job went to one of them");
    });
}

/// A transaction of plain SQL that has taken and stays open.
pub(crate) fn a_take_beside_a_transaction_that_stays_open_is_refused_or_waits(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT; CREATE WORK QUEUE other").await.unwrap();
        push(&broker, "first", "a", Some("k")).await;
        push(&broker, "second", "a", Some("l")).await;
        client.batch_execute("BEGIN; SELECT dialoq.take_jobs('w')").await.unwrap();
        let (one, two) = tokio::join!(async { broker.take_jobs(W).await }, async { broker.take_jobs(W).await });
        for refused in [one.unwrap_err(), two.unwrap_err()] {
            assert_eq!(refused.code(), Code::JOB_LOCKED, "{refused}");
            assert!(refused.message().contains("work queue 'w' come one after the other"), "{refused}");
        }
        let tx = broker.begin().await.unwrap();
        assert_eq!(tx.take_jobs(W).await.unwrap_err().code(), Code::JOB_LOCKED);
        tx.push_job("other", "by a transaction that was refused a job").await.unwrap();
        tx.commit().await.unwrap();
        let waiting = tokio::spawn({
            let broker = broker.clone();
            async move { broker.take_jobs(W).wait(2 * SOON).await }
        });
        let (look, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let locks = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while look.query_one(locks, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        client.batch_execute("COMMIT").await.unwrap();
        let jobs = waiting.await.unwrap().unwrap();
        assert_eq!(jobs[0].decode(W).unwrap(), "second");
        assert_eq!(broker.take_jobs("other").await.unwrap().len(), 1);
    });
}

/// A transaction of plain SQL that has asked for a job in vain and stays open.
pub(crate) fn a_take_that_gave_nothing_holds_up_no_other(store: Store) {
    on(store, |broker, mut client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        broker.execute("CREATE WORK QUEUE x WITH MAX_TAKEN = 5").await.unwrap();
        for queue in ["w", "x"] {
            for key in ["k", "l", "m"] {
                broker.push_job(queue, "a").job_type("there").key(key).await.unwrap();
            }
            let transaction = client.transaction().await.unwrap();
            let alone = format!("SELECT job_id FROM dialoq.take_jobs('{queue}', p_job_type => 'missing')");
            let batch = format!(
                "SELECT job_id FROM dialoq.take_job_batch('{queue}', 'missing', ARRAY[1], ARRAY[NULL::bigint], ARRAY[''])"
            );
            for take in [&alone, &batch] {
                assert_eq!(transaction.query(take, &[]).await.unwrap().len(), 0);
                assert_eq!(broker.take_jobs(queue).await.unwrap().len(), 1, "{take} holds it up");
            }
            let enlisted = Enlisted::new(&broker, &transaction);
            assert_eq!(enlisted.take_jobs(queue).job_type("missing").await.unwrap().len(), 0);
            assert_eq!(broker.take_jobs(queue).await.unwrap().len(), 1, "an enlisted take holds it up");
            transaction.rollback().await.unwrap();
        }
    });
}
