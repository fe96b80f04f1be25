//! Work queues beside the API: connections of the user's own, plain SQL, processes and connections that are gone.

use crate::enlisting::{dialog, on};
use crate::jobs_locks::connect;
use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::postgres::Enlisted;
use dialoq::postgres::tokio_postgres::Client;
use dialoq::work::{Job, JobFilter, JobState, WorkQueue};
use dialoq::{Act, Broker, Code, Tx};
use std::time::Duration;

const W: WorkQueue<String> = WorkQueue::text("w");

/// A queue `w` with one job.
async fn with_a_job(broker: &Broker) {
    broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
    broker.push_job("w", "a").await.unwrap();
}

async fn take(act: &impl Act) -> Vec<Job> {
    act.take_jobs(W).pop().await.unwrap()
}

/// Ends the sessions that hold an advisory lock with this prefix: those that show that a process lives.
async fn end_presence(client: &Client) {
    assert!(!client.query(END_PRESENCE, &[]).await.unwrap().is_empty(), "no process shows that it lives");
}

const END_PRESENCE: &str =
    "SELECT pg_terminate_backend(l.pid, 20000) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND l.classid::bigint >> 16 = 17488 AND d.datname = current_database()";

pub(crate) fn a_job_of_an_enlisted_transaction_comes_back_uncounted(store: Store) {
    // DIFFERENCE(attempts-by-clients): only the user learns how the transaction ends.
    on(store, |broker, mut client, _| async move {
        with_a_job(&broker).await;
        for is_commit in [false, true] {
            let transaction = client.transaction().await.unwrap();
            let enlisted = Enlisted::new(&broker, &transaction);
            let jobs = take(&enlisted).await;
            assert_eq!((jobs.len(), jobs[0].attempt), (1, 1));
            assert!(take(&broker).await.is_empty(), "the transaction holds it");
            assert_eq!(broker.complete_job(&jobs[0]).await.unwrap_err().code(), Code::JOB_LOCKED);
            if is_commit {
                transaction.commit().await.unwrap();
                assert_eq!(broker.cancel_job(jobs[0].taken.job).await.unwrap_err().code(), Code::JOB_NOT_FOUND);
            } else {
                transaction.rollback().await.unwrap();
            }
        }
        assert!(take(&broker).await.is_empty());
    });
}

pub(crate) fn an_enlisted_transaction_reports_on_leased_jobs_only(store: Store) {
    on(store, |broker, mut client, _| async move {
        with_a_job(&broker).await;
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let jobs = take(&enlisted).await;
        assert_eq!(enlisted.fail_job(&jobs[0], "no").await.unwrap_err().code(), Code::JOB_NOT_FOUND);
        assert_eq!(enlisted.complete_job(&jobs[0]).await.unwrap_err().code(), Code::JOB_NOT_FOUND);
        transaction.commit().await.unwrap();
        let done = broker.finished_jobs(&JobFilter::default(), 9).await.unwrap();
        assert_eq!((done.len(), done[0].finished_as.name(), done[0].attempts), (1, "done", 1));
        broker.push_job("w", "b").await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let jobs = enlisted.take_jobs(W).lease(SOON).await.unwrap();
        assert_eq!(enlisted.fail_job(&jobs[0], "no").await.unwrap(), JobState::Ready);
        transaction.commit().await.unwrap();
        let left = broker.jobs(&JobFilter::default(), 9).await.unwrap();
        assert_eq!((left.len(), left[0].state.name(), left[0].last_error.as_deref()), (1, "ready", Some("no")));
    });
}

/// The bodies came by the link that all takes of transactions share, and notices and notes with them.
/// A DO block, a function of the user's, or several statements sent as one go on after the take. One that found nothing kept the limits of
/// the queue, and all other takes were refused.
pub(crate) fn a_take_within_a_longer_statement_keeps_others_from_nothing(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN = 5").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        let gate = connect(database.url()).await;
        let polls =
            "PERFORM * FROM dialoq.take_jobs('w', 1, 'x', p_has_lease => true); PERFORM pg_advisory_lock_shared(7);
            PERFORM pg_advisory_unlock_shared(7);";
        let worker = format!("CREATE FUNCTION worker() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {polls} END $$");
        client.batch_execute(&worker).await.unwrap();
        let several = polls.replace("PERFORM", "SELECT");
        for polling in [
            format!("DO $$ BEGIN {polls} END $$"),
            "SELECT worker()".to_owned(),
            format!("BEGIN; {several} COMMIT"),
            several.clone(),
        ] {
            gate.batch_execute("SELECT pg_advisory_lock(7)").await.unwrap();
            let others = async {
                let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
                while gate.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
                let taken = take(&broker).await;
                assert_eq!(taken.len(), 1, "{polling}");
                broker.push_job("w", "a").await.unwrap();
                gate.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
            };
            let (polled, ()) = tokio::join!(client.batch_execute(&polling), others);
            polled.unwrap();
        }
    });
}

pub(crate) fn a_take_of_large_jobs_holds_up_no_other_queue(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE large; CREATE WORK QUEUE w").await.unwrap();
        let large = "x".repeat(2 << 20);
        for _ in 0..2 {
            broker.push_job("large", large.as_str()).await.unwrap();
        }
        broker.push_job("w", "a").await.unwrap();
        let taken = async |queue: &str| {
            let tx = broker.begin().await.unwrap();
            let jobs = tx.take_jobs(queue).await.unwrap();
            tx.commit().await.unwrap();
            jobs.len()
        };
        assert_eq!(taken("large").await, 1);
        client.batch_execute("SELECT pg_advisory_lock(21)").await.unwrap();
        database.sql(
            "CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_advisory_xact_lock(21); RETURN NEW; END $$;
            CREATE TRIGGER gate BEFORE UPDATE ON dialoq.job FOR EACH ROW WHEN (length(NEW.body) > 1000000)
                EXECUTE FUNCTION wait_for_the_gate()",
        );
        let waits = async {
            let waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 21 AND NOT granted";
            while client.query(waiting, &[]).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let small = tokio::time::timeout(SOON, taken("w")).await;
            client.batch_execute("SELECT pg_advisory_unlock(21)").await.unwrap();
            small
        };
        let (large, small) = tokio::join!(taken("large"), waits);
        assert_eq!((large, small.expect("it waits for the large job")), (1, 1));
    });
}

pub(crate) fn a_reader_of_another_process_is_woken_by_an_enlisted_push(store: Store) {
    on(store, |broker, mut client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let other = Broker::open(database.url()).await.unwrap();
        let sleeper = other.clone();
        let reading = tokio::spawn(async move { sleeper.take_jobs(W).wait(2 * SOON).await.unwrap() });
        let waiting = async {
            while other.sessions_waiting("#w") == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.expect("it never waits");
        let transaction = client.transaction().await.unwrap();
        Enlisted::new(&broker, &transaction).push_job("w", "woken").await.unwrap();
        transaction.commit().await.unwrap();
        let jobs = tokio::time::timeout(SOON, reading).await.expect("no reader was woken").unwrap();
        assert_eq!(jobs[0].body(), b"woken");
    });
}

pub(crate) fn plain_sql_has_the_same_verbs(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        let one = async |text: &str| client.query_one(text, &[]).await.unwrap();
        let pushed =
            one("SELECT job_id, is_new FROM dialoq.push_job('W', 'mail', p_body => '\\x61', p_unique_key => 'u')")
                .await;
        assert!(pushed.get::<_, bool>("is_new"));
        assert!(!one("SELECT is_new FROM dialoq.push_job('w', p_unique_key => 'u')").await.get::<_, bool>("is_new"));
        let id: i64 = pushed.get("job_id");
        let lease = "SELECT * FROM dialoq.take_jobs('w', p_has_lease => true)";
        let token: i64 = one(lease).await.get("token");
        let failed =
            one(&format!("SELECT job_state FROM dialoq.fail_job({id}, {token}, 'why', p_is_last => true)")).await;
        assert_eq!(failed.get::<_, &str>("job_state"), JobState::Dead.name());
        one(&format!("SELECT dialoq.redrive_job({id})")).await;
        let again = one(lease).await;
        assert_eq!((again.get::<_, i32>("attempt"), again.get::<_, &str>("last_error")), (1, "why"));
        one(&format!("SELECT dialoq.complete_job({id}, {})", again.get::<_, i64>("token"))).await;
        let refused = client.query(&format!("SELECT dialoq.complete_job({id}, {token})"), &[]).await.unwrap_err();
        assert_eq!(refused.as_db_error().unwrap().detail(), Some("dialoq 60040"));
        one("SELECT dialoq.push_job('w', p_body => '\\x62')").await;
        // It completed the jobs.
        for count in [1, 2] {
            let take = format!("SELECT dialoq.take_jobs('w', {count}, p_lease_ms => 1000)");
            let refused = client.query(&take, &[]).await.unwrap_err();
            assert_eq!(refused.code().map(|code| code.code()), Some("SB005"), "{count}: {refused:?}");
        }
        assert_eq!(one("SELECT body FROM dialoq.take_jobs('w')").await.get::<_, Vec<u8>>("body"), b"b");
        assert!(client.query("SELECT dialoq.take_jobs('w')", &[]).await.unwrap().is_empty(), "the take completed it");
    });
}

/// A transaction that holds the job.
async fn holding(broker: &Broker) -> (Tx, Job) {
    let tx = broker.begin().await.unwrap();
    let job = tx.take_jobs(W).await.unwrap().remove(0);
    (tx, job)
}

pub(crate) async fn soon<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let answer = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, answer).await.unwrap_or_else(|_| panic!("never: {what}"))
}

pub(crate) fn the_attempt_of_a_dead_process_has_failed_and_its_transaction_does_not_commit(store: Store) {
    on(store, |broker, client, database| async move {
        with_a_job(&broker).await;
        broker.sql("CREATE TABLE done (n int)", ()).await.unwrap();
        let (tx, job) = holding(&broker).await;
        tx.sql("INSERT INTO done VALUES (1)", ()).await.unwrap();
        let other = Broker::open(database.url()).await.unwrap();
        client.query("SELECT dialoq.tick()", &[]).await.unwrap();
        assert!(other.take_jobs(W).await.unwrap().is_empty(), "its process lives");
        end_presence(&client).await;
        let again = loop {
            client.query(END_PRESENCE, &[]).await.unwrap();
            client.query("SELECT dialoq.tick()", &[]).await.unwrap();
            // Each five seconds the process may show just then that it lives.
            if let Some(again) = other.take_jobs(W).await.unwrap().pop() {
                break again;
            }
        };
        assert_eq!((again.taken.job, again.attempt), (job.taken.job, 2));
        assert_eq!(again.last_error.as_deref(), Some("its reader ended before its transaction did"));
        assert_eq!(tx.commit().await.unwrap_err().code(), Code::LEASE_LOST);
        let done = broker.query("SELECT count(*) AS n FROM done", ()).await.unwrap().rows[0].get::<i64>("n").unwrap();
        assert_eq!(done, 0, "the work of a lost job is undone");
        other.complete_job(&again).await.unwrap();
        // The process shows again that it lives before its next transaction is believed to be dead.
        broker.push_job("w", "b").await.unwrap();
        let (tx, _) = holding(&broker).await;
        tx.commit().await.unwrap();
    });
}

pub(crate) fn a_process_that_lost_the_connection_of_its_presence_keeps_its_jobs(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w; CREATE WORK QUEUE later").await.unwrap();
        // A tick that comes before the process has noticed the loss takes it for dead, and the commit is refused.
        within_three("a tick leaves the jobs of its own process alone", async || {
            broker.push_job("w", "a").await.unwrap();
            let (tx, _) = holding(&broker).await;
            end_presence(&client).await;
            // The second job becomes ready by a tick of the process itself.
            broker.push_job("later", "b").run_after(Duration::from_millis(1)).await.unwrap();
            assert_eq!(broker.take_jobs("later").wait(SOON).await.unwrap().len(), 1);
            tx.commit().await.is_ok()
        })
        .await;
        within_three("a take shows that the process lives", async || {
            end_presence(&client).await;
            broker.push_job("w", "c").await.unwrap();
            let (tx, _) = holding(&broker).await;
            client.query("SELECT dialoq.tick()", &[]).await.unwrap();
            tx.commit().await.is_ok()
        })
        .await;
    });
}

async fn within_three(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..3 {
        if holds().await {
            return;
        }
    }
    panic!("not so in three tries: {what}");
}

pub(crate) fn a_transaction_whose_connection_is_lost_is_a_failed_attempt(store: Store) {
    on(store, |broker, client, _| async move {
        with_a_job(&broker).await;
        let (tx, job) = holding(&broker).await;
        let pid: i64 = tx.query("SELECT pg_backend_pid() AS pid", ()).await.unwrap().rows[0].get("pid").unwrap();
        tx.report_job(&job, "half").await.unwrap();
        client.query(&format!("SELECT pg_terminate_backend({pid}, 20000)"), &[]).await.unwrap();
        assert!(tx.commit().await.is_err());
        let again = soon("the job comes back", async || broker.take_jobs(W).await.unwrap().pop()).await;
        assert_eq!((again.attempt, again.last_error.as_deref()), (2, Some("its transaction was rolled back")));
    });
}

pub(crate) fn a_claim_whose_answer_was_lost_goes_back(store: Store) {
    on(store, |broker, client, _| async move {
        with_a_job(&broker).await;
        broker.push_job("w", "b").await.unwrap();
        // A tick of the broker takes a process without a presence for dead, and its attempt has failed then.
        let hold = "SELECT dialoq.hold_presence('00000000-0000-0000-0000-000000000001')";
        client.batch_execute(hold).await.unwrap();
        let claim = |last_token: i64| {
            format!(
                "SELECT body, token FROM dialoq.claim_jobs('00000000-0000-0000-0000-000000000001',
                '00000000-0000-0000-0000-000000000002', {last_token}, 'w', 1, NULL, NULL, NULL, false, false, NULL, '')"
            )
        };
        let first = client.query_one(&claim(0), &[]).await.unwrap();
        let (body, token): (Vec<u8>, i64) = (first.get("body"), first.get("token"));
        let second = client.query_one(&claim(0), &[]).await.unwrap();
        assert_eq!(second.get::<_, Vec<u8>>("body"), body, "the same job, for the first answer was lost");
        let third = client.query_one(&claim(second.get("token")), &[]).await.unwrap();
        assert_eq!(third.get::<_, Vec<u8>>("body"), b"b");
        let attempts = "SELECT attempts FROM dialoq.job ORDER BY job_id";
        let attempts: Vec<i32> = client.query(attempts, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!((attempts, token < second.get("token")), (vec![1, 1], true));
    });
}

pub(crate) fn jobs_pushed_into_a_queue_while_it_is_dropped_go_too(store: Store) {
    on(store, |broker, mut client, database: Database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let transaction = client.transaction().await.unwrap();
        Enlisted::new(&broker, &transaction).push_job("w", "late").await.unwrap();
        broker.execute("DROP WORK QUEUE w").await.unwrap();
        transaction.commit().await.unwrap();
        let other = Broker::open(database.url()).await.unwrap();
        let left = async || {
            client.query("SELECT dialoq.tick()", &[]).await.unwrap();
            let count = "SELECT count(*) FROM dialoq.job UNION ALL SELECT count(*) FROM dialoq.dropped_work_queue";
            let rows = client.query(count, &[]).await.unwrap();
            rows.iter().all(|row| row.get::<_, i64>(0) == 0).then_some(())
        };
        soon("the late job goes", left).await;
        other.close().await.unwrap();
    });
}

/// A push that began while the queue was being dropped may have a higher number than the transaction that dropped it.
pub(crate) fn a_push_that_began_while_its_queue_was_dropped_is_waited_for(store: Store) {
    on(store, |broker, mut client, database: Database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.close().await.unwrap();
        let url = database.url();
        let (mut dropping, ticking) = (connect(url).await, connect(url).await);
        let drop = dropping.transaction().await.unwrap();
        let queue = "SELECT dialoq.delete_work_queue(q.queue_id) FROM dialoq.work_queue AS q";
        drop.batch_execute(queue).await.unwrap();
        let push = client.transaction().await.unwrap();
        push.batch_execute("SELECT dialoq.push_job('w')").await.unwrap();
        drop.commit().await.unwrap();
        let number = async |text: &str| ticking.query_one(text, &[]).await.unwrap().get::<_, i64>(0);
        for _ in 0..4 {
            ticking.batch_execute("SELECT dialoq.tick()").await.unwrap();
        }
        let waiting = "SELECT count(*) FROM dialoq.dropped_work_queue";
        assert_eq!(number(waiting).await, 1, "the push is open");
        push.commit().await.unwrap();
        let left = async || {
            ticking.batch_execute("SELECT dialoq.tick()").await.unwrap();
            (number(waiting).await == 0).then_some(())
        };
        soon("the queue is cleared", left).await;
        assert_eq!(number("SELECT count(*) FROM dialoq.job").await, 0);
    });
}

/// Comparing each job with each other one would take minutes: with 64 kB for a hash table there is no room for a hundred thousand ids.
pub(crate) fn a_queue_of_many_jobs_is_dropped(store: Store) {
    on(store, |broker, client, database| async move {
        let settings =
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = %L', current_database(), '64kB'); END $$";
        client.batch_execute(settings).await.unwrap();
        broker.close().await.unwrap();
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let fill = "INSERT INTO dialoq.job (job_id, queue_id, rank_from_top, take_order, state, level, pushed_at, job_type, pushed_by)
            SELECT g, q.queue_id, 0, g, 1, 5, now(), '', '' FROM dialoq.work_queue AS q, generate_series(1, 100000) AS g";
        client.batch_execute(fill).await.unwrap();
        client.batch_execute("ANALYZE dialoq.job").await.unwrap();
        broker.execute("DROP WORK QUEUE w").await.unwrap();
        let left = client.query_one("SELECT count(*) FROM dialoq.job", &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 0);
        broker.close().await.unwrap();
    });
}

pub(crate) fn the_history_keeps_to_its_bounds(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH HISTORY_ROWS = 100, HISTORY_SECONDS = 3600").await.unwrap();
        let rows = async || {
            client.query("SELECT dialoq.tick()", &[]).await.unwrap();
            client.query_one("SELECT count(*) FROM dialoq.job_history", &[]).await.unwrap().get::<_, i64>(0)
        };
        let fill = "SELECT dialoq.push_job('w') FROM generate_series(1, 150)";
        client.query(fill, &[]).await.unwrap();
        client.query("SELECT FROM dialoq.take_jobs('w', 150)", &[]).await.unwrap();
        assert_eq!(rows().await, 100);
        client
            .batch_execute(
                "UPDATE dialoq.job_history SET finished_at = finished_at - interval '2 hours' WHERE job_id < 100",
            )
            .await
            .unwrap();
        assert_eq!(rows().await, 51);
        broker.execute("ALTER WORK QUEUE w WITH HISTORY = OFF").await.unwrap();
        client.query("SELECT dialoq.push_job('w')", &[]).await.unwrap();
        assert_eq!(client.query("SELECT FROM dialoq.take_jobs('w')", &[]).await.unwrap().len(), 1);
        assert_eq!(rows().await, 51);
    });
}

/// A history is cut from its oldest rows, of which so many are looked at in one go.
pub(crate) fn rows_of_a_clock_that_was_ahead_keep_no_older_ones_in_a_history(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH HISTORY_SECONDS = 3600").await.unwrap();
        let fill = "INSERT INTO dialoq.job_history (queue_id, job_id, finished_as, level, attempts, pushed_at, finished_at, job_type, pushed_by)
            SELECT q.queue_id, g, 4, 5, 1, now(), now() + interval '1 year', '', '' FROM dialoq.work_queue AS q, generate_series(1, 2100) AS g;
            INSERT INTO dialoq.job_history (queue_id, job_id, finished_as, level, attempts, pushed_at, finished_at, job_type, pushed_by)
            SELECT q.queue_id, -g, 4, 5, 1, now(), now() - interval '30 minutes' * g, '', ''
            FROM dialoq.work_queue AS q, generate_series(3, 1, -1) AS g;
            SELECT setval('dialoq.next_job_id', 2100)";
        client.batch_execute(fill).await.unwrap();
        let kept = async || {
            client.batch_execute("SELECT dialoq.tick()").await.unwrap();
            let text =
                "SELECT count(*) FILTER (WHERE job_id > 0), count(*) FILTER (WHERE job_id < 0) FROM dialoq.job_history";
            let row = client.query_one(text, &[]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        assert_eq!(kept().await, (2100, 1), "two are too old");
        broker.execute("ALTER WORK QUEUE w WITH HISTORY_ROWS = 10").await.unwrap();
        kept().await;
        assert_eq!(kept().await, (9, 1), "the bound of rows holds for all");
    });
}

pub(crate) fn a_state_that_was_seen_counts_without_a_token(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let job = broker.push_job("w", "a").await.unwrap().job.unwrap();
        let refused = async |call: &str| {
            let error = client.batch_execute(&format!("SELECT dialoq.{call}")).await.unwrap_err();
            assert_eq!(error.code().map(|code| code.code()), Some("SB042"), "{call}: {error:?}");
        };
        refused(&format!("cancel_job({job}, p_seen_state => 'dead')")).await;
        let taken = broker.take_jobs(W).await.unwrap().remove(0);
        broker.fail_job_then(&taken, "broken", dialoq::work::AfterFailure::Dead).await.unwrap();
        refused(&format!("redrive_job({job}, p_seen_state => 'taken')")).await;
        client.batch_execute(&format!("SELECT dialoq.redrive_job({job}, p_seen_state => 'dead')")).await.unwrap();
        client.batch_execute(&format!("SELECT dialoq.cancel_job({job}, p_seen_state => 'ready')")).await.unwrap();
    });
}

/// Of a worker with more readers than its process has connections.
pub(crate) fn a_job_that_waits_for_a_connection_has_no_failed_attempt(store: Store) {
    on(store, |broker, _, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1").await.unwrap();
        for body in ["a", "b"] {
            broker.push_job("w", body).await.unwrap();
        }
        let narrow = Broker::open(&format!("{}&pool_size=1&pool_wait_s=1", database.url())).await.unwrap();
        let worker = narrow.worker(W, async |_, _: String| {
            // Longer than the other reader waits for the connection: it asks again without a word, so there is no signal to wait for.
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, String>(())
        });
        let running = worker.readers(2).in_transactions().start();
        let ended = loop {
            let queue = broker.work_queues().await.unwrap().remove(0);
            if queue.finished + queue.dead == 2 {
                break (queue.finished, queue.dead);
            }
        };
        assert_eq!(ended, (2, 0));
        running.stop().await;
        narrow.close().await.unwrap();
    });
}

/// Its process has transactions on all its connections. The lease ended, and the job was handled twice.
pub(crate) fn a_lease_is_prolonged_while_transactions_hold_every_connection(store: Store) {
    on(store, |broker, _, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        let narrow = Broker::open(&format!("{}&pool_size=1&pool_wait_s=3600", database.url())).await.unwrap();
        let job = narrow.take_jobs(W).await.unwrap().remove(0);
        let tx = narrow.begin().await.unwrap();
        tx.sql("select 1", ()).await.unwrap();
        let prolonged = narrow.extend_job(&job, Some(Duration::from_secs(3600)));
        tokio::time::timeout(Duration::from_secs(60), prolonged).await.expect("it waits for the transaction").unwrap();
        tx.rollback().await.unwrap();
        narrow.complete_job(&job).await.unwrap();
        narrow.close().await.unwrap();
    });
}

/// A report waited for the pool while the lease ended, and the job was handled again.
pub(crate) fn a_lease_is_prolonged_while_its_report_waits_for_a_connection(store: Store) {
    on(store, |broker, client, database| async move {
        // A third of it is a heartbeat; a machine that stands still for the other two thirds loses it.
        broker.execute("CREATE WORK QUEUE w WITH LEASE_MS = 6000, RETRY_DELAY_MS = 0").await.unwrap();
        let narrow = Broker::open(&format!("{}&pool_size=1&pool_wait_s=3600", database.url())).await.unwrap();
        let (runs, mut run) = tokio::sync::mpsc::unbounded_channel();
        let (end, may_end) = tokio::sync::watch::channel(false);
        let handler = move |_, _: String| {
            let (runs, mut may_end) = (runs.clone(), may_end.clone());
            async move {
                runs.send(()).unwrap();
                may_end.wait_for(|may_end| *may_end).await.unwrap();
                Ok::<(), String>(())
            }
        };
        let worker = narrow.worker(W, handler).start();
        broker.push_job("w", "a").await.unwrap();
        tokio::time::timeout(SOON, run.recv()).await.expect("the handler does not run");
        let tx = narrow.begin().await.unwrap();
        tx.sql("select 1", ()).await.unwrap();
        end.send(true).unwrap();
        // The first is that of the take; each other is a heartbeat, and three are the lease.
        let mut lease = None;
        for _ in 0..4 {
            let prolonged = async {
                loop {
                    let row = client.query_one("SELECT j.due_at::text FROM dialoq.job AS j", &[]).await.unwrap();
                    let found: Option<String> = row.get(0);
                    assert!(found.is_some(), "the lease has ended");
                    if found != lease {
                        return found;
                    }
                }
            };
            lease = tokio::time::timeout(SOON, prolonged).await.expect("the lease is not prolonged");
        }
        tx.rollback().await.unwrap();
        let left = async {
            while client.query_one("SELECT count(*) FROM dialoq.job", &[]).await.unwrap().get::<_, i64>(0) > 0 {}
        };
        tokio::time::timeout(SOON, left).await.expect("the job is not done");
        worker.stop().await;
        assert!(run.try_recv().is_err(), "it was handled twice");
        narrow.close().await.unwrap();
    });
}

/// Many timers that were due used up each portion of tick: leases and delayed jobs waited for the last of them.
pub(crate) fn timers_that_are_due_leave_room_for_jobs(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").run_after(60 * SOON).await.unwrap();
        for _ in 0..8 {
            let handle = dialog(&broker).await;
            broker.timer(handle, 60 * SOON).await.unwrap();
        }
        broker.close().await.unwrap();
        let due = "UPDATE dialoq.conversation_endpoint SET dialog_timer = now(), due_at = now(); UPDATE dialoq.job SET due_at = now()";
        client.batch_execute(due).await.unwrap();
        client.query("SELECT FROM dialoq.tick(4)", &[]).await.unwrap();
        let row = client
            .query_one(
                "SELECT (SELECT count(*) FROM dialoq.conversation_endpoint WHERE due_at <= now()), (SELECT state FROM dialoq.job)",
                &[],
            )
            .await
            .unwrap();
        assert_eq!(
            (row.get::<_, i64>(0), row.get::<_, i16>(1)),
            (4, 1),
            "timers that are left, and the state of the job"
        );
    });
}
