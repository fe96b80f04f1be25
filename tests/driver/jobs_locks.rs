//! What holds up a work queue: locks of strangers and of takes that stay open, claims that arrive late, damaged rows.

use crate::enlisting::on;
use crate::servers::Store;
use crate::stage::SOON;
use dialoq::postgres::Enlisted;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::protocol::definition::TakingTechnique;
use dialoq::work::{JobFilter, ShownState, TakenJob, WorkQueue};
use dialoq::{Act, Broker, Code};
use std::time::Duration;

const W: WorkQueue<String> = WorkQueue::text("w");

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn number(client: &Client, text: &str) -> i64 {
    client.query_one(text, &[]).await.unwrap_or_else(|error| panic!("{text}: {error:?}")).get(0)
}

/// Every advisory lock that the verbs of work queues have ever used, and those of the processes that are alive.
const LOCKS: &str = "
    SELECT count(pg_advisory_lock((17514::bigint << 48) | g.n)) FROM generate_series(0, 99) AS g (n);
    SELECT count(pg_advisory_lock((17515::bigint << 48) | (hashtextextended(g.n || ' u', 0) & 281474976710655)))
    FROM generate_series(0, 99) AS g (n);
    SELECT count(pg_advisory_lock((17491::bigint << 48) | (g.n::bigint << 16))) FROM generate_series(0, 99) AS g (n);";

pub(crate) fn locks_of_a_stranger_stop_no_work_queue(store: Store) {
    on(store, |broker, _, database| async move {
        let stranger = connect(&database.login("")).await;
        // The numbers of the queues are below 100.
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN = 5").await.unwrap();
        let locks = LOCKS.replace("generate_series(0, 99)", "generate_series(65500, 65700)");
        stranger.batch_execute(&locks).await.unwrap();
        let queue = database.sql("SELECT queue_id FROM dialoq.work_queue");
        assert!(
            (65500..=65700).contains(&queue.parse::<i64>().unwrap()),
            "the stranger has locked other numbers: {queue}"
        );
        broker.push_job("w", "a").await.unwrap();
        assert_eq!(broker.take_jobs(W).await.unwrap().len(), 1);
        assert!(broker.push_job("w", "a").unique("u").await.unwrap().is_new);
        // The lock of TAKE_BY = APPLOCK is waited for, but not for long.
        broker.execute("ALTER WORK QUEUE w WITH MAX_TAKEN = 0, TAKE_BY = APPLOCK").await.unwrap();
        assert_eq!(broker.take_jobs(W).count(9).await.unwrap().len(), 1);
        let waits =
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint / 65536 = 17491";
        assert_eq!(number(&stranger, waits).await, 201, "the stranger holds them still");
    });
}

pub(crate) fn a_stranger_keeps_no_job_of_a_dead_process(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        let member = connect(&database.login("dialoq_user")).await;
        let hold = "SELECT dialoq.hold_presence('00000000-0000-0000-0000-0000000000aa')";
        member.batch_execute(hold).await.unwrap();
        // After that: a tick of the broker takes a process without a presence for dead.
        let claim = "SELECT job_id FROM dialoq.claim_jobs('00000000-0000-0000-0000-0000000000aa',
            '00000000-0000-0000-0000-000000000002', 0, 'w', 1, NULL, NULL, NULL, false, false, NULL, '')";
        assert_eq!(client.query(claim, &[]).await.unwrap().len(), 1);
        let stranger = connect(&database.login("")).await;
        let lock = "SELECT pg_advisory_lock_shared((17488::bigint << 48) | 170)";
        stranger.batch_execute(lock).await.unwrap();
        client.batch_execute("SELECT dialoq.tick()").await.unwrap();
        assert_eq!(number(&client, "SELECT state::bigint FROM dialoq.job").await, 2, "its process lives");
        member.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
        // A tick passes over the job while one of the broker has its row.
        let comes_back = async {
            while number(&client, "SELECT state::bigint FROM dialoq.job").await != 1 {
                client.batch_execute("SELECT dialoq.tick()").await.unwrap();
            }
        };
        tokio::time::timeout(SOON, comes_back).await.expect("only a stranger has its lock");
    });
}

/// After an installation or a fall of the server the numbers of takings are reserved again, by a lock that a take keeps to its end.
pub(crate) fn the_first_take_after_a_fall_of_the_server_holds_up_no_other(store: Store) {
    on(store, |broker, mut client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        broker.push_job("w", "b").await.unwrap();
        // Its tick reserves numbers.
        broker.close().await.unwrap();
        client.batch_execute("DELETE FROM dialoq.job_token_run").await.unwrap();
        let before: i64 = client.query_one("SELECT mark FROM dialoq.job_token_mark", &[]).await.unwrap().get(0);
        let open = client.transaction().await.unwrap();
        let take = "SELECT token FROM dialoq.take_jobs('w', p_has_lease => true)";
        let first: i64 = open.query_one(take, &[]).await.unwrap().get(0);
        let other = connect(database.url()).await;
        let second = tokio::time::timeout(SOON, other.query_one(take, &[]));
        let second: i64 = second.await.expect("the open transaction holds it up").unwrap().get(0);
        assert!(before < first && first < second, "{before} {first} {second}");
        open.rollback().await.unwrap();
        let broker = Broker::open(database.url()).await.unwrap();
        let third = broker.take_jobs("w").await.unwrap();
        assert!(third[0].taken.token > second.cast_unsigned(), "{third:?} {second}");
        broker.close().await.unwrap();
    });
}

/// A member that marks its call as a client's keeps the row of the mark locked for as long as its transaction is open.
pub(crate) fn a_member_that_calls_itself_a_client_holds_up_no_take(store: Store) {
    on(store, |broker, mut client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        for body in ["a", "b", "c"] {
            broker.push_job("w", body).await.unwrap();
        }
        broker.close().await.unwrap();
        // As after a fall of the server.
        client.batch_execute("DELETE FROM dialoq.job_token_run; SET dialoq.client = 'marked'").await.unwrap();
        let open = client.transaction().await.unwrap();
        let take = "SELECT token FROM dialoq.take_jobs('w', p_has_lease => true) /* client */";
        let first: i64 = open.query_one(take, &[]).await.unwrap().get(0);
        let taken = async {
            let broker = Broker::open(database.url()).await.unwrap();
            let jobs = broker.take_jobs("w").await.unwrap();
            // A tick reserves numbers too.
            connect(database.url()).await.batch_execute("SELECT dialoq.tick()").await.unwrap();
            broker.close().await.unwrap();
            jobs[0].taken.token
        };
        let second = tokio::time::timeout(SOON, taken).await.expect("the open transaction holds it up");
        assert!(second > first.cast_unsigned(), "{second} {first}");
        open.rollback().await.unwrap();
    });
}

/// The backend of a call whose connection was lost may commit after the transaction of the caller has ended.
pub(crate) fn a_claim_that_commits_after_its_transaction_goes_back(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        let tx = broker.begin().await.unwrap();
        let held = tx.take_jobs(W).await.unwrap().remove(0);
        let process: String = client.query_one("SELECT process::text FROM dialoq.job", &[]).await.unwrap().get(0);
        broker.push_job("w", "b").await.unwrap();
        let late = format!(
            "SELECT token FROM dialoq.claim_jobs('{process}', '00000000-0000-0000-0000-000000000002', 0, 'w', 1, NULL, NULL,
                NULL, false, false, NULL, '')"
        );
        assert_eq!(client.query(&late, &[]).await.unwrap().len(), 1);
        // It has something to look for.
        client.batch_execute("SELECT pg_notify('dialoq', 'd:0')").await.unwrap();
        let back = broker.take_jobs(W).wait(SOON).await.unwrap();
        assert_eq!((back.len(), back[0].attempt), (1, 1), "no reader has seen it");
        assert_eq!(back[0].decode(W).unwrap(), "b");
        tx.commit().await.unwrap();
        assert_eq!(
            broker.complete_job(&held).await.unwrap_err().code(),
            Code::JOB_NOT_FOUND,
            "an open transaction kept its job"
        );
    });
}

/// A take that has read a row which another take has taken since locks it, although it does not give it.
pub(crate) fn a_take_that_stays_open_keeps_no_job_of_another(store: Store) {
    on(store, |broker, mut client, _| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let mut met = 0;
        for round in 0.. {
            client.batch_execute("DELETE FROM dialoq.job").await.unwrap();
            let (technique, _) = TakingTechnique::ALL[round / 2 % TakingTechnique::ALL.len()];
            broker.execute(&format!("ALTER WORK QUEUE w WITH TAKE_BY = {technique}")).await.unwrap();
            let fill = "SELECT dialoq.push_job('w', 'a') FROM generate_series(1, 3000);
                SELECT dialoq.push_job('w', 'z') FROM generate_series(1, 40)";
            client.batch_execute(fill).await.unwrap();
            let taking = {
                let broker = broker.clone();
                tokio::spawn(async move {
                    let mut jobs = Vec::new();
                    loop {
                        let mut taken = broker.take_jobs(W).job_type("z").lease(SOON).await.unwrap();
                        let Some(job) = taken.pop() else { return jobs };
                        jobs.push(job);
                    }
                })
            };
            let transaction = client.transaction().await.unwrap();
            let taken = match round % 2 {
                0 => transaction.query("SELECT FROM dialoq.take_jobs('w', 5000)", &[]).await.unwrap().len(),
                _ => Enlisted::new(&broker, &transaction).take_jobs(W).count(5000).pop().await.unwrap().len(),
            };
            let jobs = taking.await.unwrap();
            assert_eq!(taken + jobs.len(), 3040, "each is given once");
            for job in &jobs {
                let done = broker.complete_job(job).await;
                done.unwrap_or_else(|error| panic!("round {round}, {technique}: {error}"));
            }
            transaction.rollback().await.unwrap();
            met += usize::from(taken > 3000 && !jobs.is_empty());
            if met == 4 {
                return;
            }
        }
    });
}

/// A take may hold the row of a job that another one has taken just before, to its commit, and commits may be slow.
pub(crate) fn a_worker_reports_again_while_another_session_holds_the_row(store: Store) {
    on(store, |broker, mut client, database| async move {
        let other = connect(database.url()).await;
        broker.execute("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1").await.unwrap();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let held = std::sync::Arc::new(tokio::sync::Notify::new());
        let is_held = held.clone();
        let worker = broker.worker(W, move |context: dialoq::work::Context, _: String| {
            begun.send(context.job.taken.job).unwrap();
            let is_held = is_held.clone();
            async move {
                is_held.notified().await;
                Ok::<_, String>(())
            }
        });
        let running = worker.start();
        broker.push_job(W, &"a".to_owned()).await.unwrap();
        let job = begins.recv().await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let lock = format!("SELECT FROM dialoq.job WHERE job_id = {job} FOR UPDATE");
        transaction.batch_execute(&lock).await.unwrap();
        held.notify_one();
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        // Refused after the first wait, and made again.
        for waits in [1, 0, 1] {
            while number(&other, waiting).await != waits {}
        }
        transaction.rollback().await.unwrap();
        while running.done().completed == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(number(&other, "SELECT count(*) FROM dialoq.job").await, 0, "it is done");
        running.stop().await;
    });
}

/// A full disk takes a take, which is an UPDATE, and no report, which is an INSERT. Finished jobs ran again until they were dead.
pub(crate) fn a_worker_reports_again_while_the_disk_is_full(store: Store) {
    on(store, |broker, client, database| async move {
        let other = connect(database.url()).await;
        broker.execute("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 1, LEASE_MS = 1000").await.unwrap();
        client
            .batch_execute(
                "CREATE TABLE public.full_disk (); CREATE SEQUENCE public.refusals; INSERT INTO public.full_disk DEFAULT VALUES;
                 CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF EXISTS (SELECT FROM public.full_disk) THEN
                         PERFORM nextval('public.refusals');
                         RAISE 'No space left on device' USING ERRCODE = 'disk_full';
                     END IF;
                     RETURN NEW;
                 END $$;
                 CREATE TRIGGER refuses BEFORE INSERT ON dialoq.job_history FOR EACH ROW EXECUTE FUNCTION public.refuse()",
            )
            .await
            .unwrap();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let worker = broker.worker(W, move |context: dialoq::work::Context, _: String| {
            begun.send(context.job.attempt).unwrap();
            async { Ok::<_, String>(()) }
        });
        let running = worker.start();
        broker.push_job(W, &"a".to_owned()).await.unwrap();
        assert_eq!(begins.recv().await, Some(1));
        // The lease is prolonged meanwhile, for longer than it lasts.
        let until = "SELECT max((extract(epoch FROM due_at) * 1000)::bigint) FROM dialoq.job";
        let first = number(&other, until).await;
        while number(&other, until).await < first + 1500 {}
        assert!(number(&other, "SELECT last_value FROM public.refusals").await > 2, "it is reported again and again");
        other.batch_execute("DELETE FROM public.full_disk").await.unwrap();
        while running.done().completed == 0 {
            tokio::task::yield_now().await;
        }
        assert!(begins.try_recv().is_err(), "it ran once");
        assert_eq!(running.stop().await.unreported, 0);
    });
}

/// What keeps a report from a job, as `lock_job` finds it after it has waited in vain.
async fn in_the_way_of_a_report(client: &Client, taken: TakenJob) -> String {
    let look = format!("SELECT dialoq.check_job({}, {}, dialoq.current_time_utc())", taken.job, taken.token);
    match client.batch_execute(&look).await {
        Ok(()) => "nothing".to_owned(),
        Err(error) => error.as_db_error().unwrap().detail().unwrap_or_default().to_owned(),
    }
}

/// A session that holds a job may roll back between the wait of another session's report and the look at what was in its way.
pub(crate) fn what_has_gone_refuses_no_report(store: Store) {
    on(store, |broker, mut client, database| async move {
        let other = connect(database.url()).await;
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        let job = broker.take_jobs(W).lease(SOON).await.unwrap().remove(0).taken;
        let transaction = client.transaction().await.unwrap();
        Enlisted::new(&broker, &transaction).complete_job(job).await.unwrap();
        assert_eq!(in_the_way_of_a_report(&other, job).await, "dialoq 60043");
        transaction.rollback().await.unwrap();
        assert_eq!(in_the_way_of_a_report(&other, job).await, "nothing", "the job is as it was before");
        broker.fail_job(job, "").await.unwrap();
        assert_eq!(in_the_way_of_a_report(&other, job).await, "dialoq 60041");
        let again = broker.take_jobs(W).lease(SOON).await.unwrap().remove(0).taken;
        assert_eq!(in_the_way_of_a_report(&other, job).await, "dialoq 60042");
        broker.complete_job(again).await.unwrap();
        assert_eq!(in_the_way_of_a_report(&other, again).await, "dialoq 60040");
    });
}

pub(crate) fn a_unique_key_of_a_job_that_is_there_is_answered_at_once(store: Store) {
    on(store, |broker, mut client, _| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let first = broker.push_job("w", "a").unique("u").await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        assert!(!enlisted.push_job("w", "b").unique("u").await.unwrap().is_new);
        let second = broker.push_job("w", "c").unique("u").await.unwrap();
        assert_eq!((second.job, second.is_new), (first.job, false), "the job is committed");
        // A key that an open transaction has taken is refused.
        assert!(enlisted.push_job("w", "d").unique("v").await.unwrap().is_new);
        let refused = broker.push_job("w", "e").unique("v").await.unwrap_err();
        assert_eq!(refused.code(), Code::JOB_LOCKED);
        transaction.rollback().await.unwrap();
        assert!(broker.push_job("w", "f").unique("v").await.unwrap().is_new);
        // A window that is over.
        let short = Duration::from_millis(1);
        let old = broker.push_job("w", "g").unique_within("x", short).await.unwrap();
        while !broker.push_job("w", "h").unique_within("x", short).await.unwrap().is_new {}
        assert_ne!(old.job, None);
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.unique_job WHERE unique_key = 'x'").await, 1);
    });
}

/// A push may wait for another one of its key and find it committed. Its transaction made no job then, and may stay open.
pub(crate) fn a_push_that_comes_too_late_keeps_no_job_of_its_key(store: Store) {
    on(store, |broker, mut client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let mut late = connect(database.url()).await;
        let other = connect(database.url()).await;
        let push = "SELECT is_new FROM dialoq.push_job('w', p_unique_key => 'u')";
        loop {
            let first = client.transaction().await.unwrap();
            first.batch_execute(push).await.unwrap();
            let second = tokio::spawn(async move {
                late.batch_execute("BEGIN").await.unwrap();
                (late.query_one(push, &[]).await, late)
            });
            let waiting = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%dialoq.push_job%'";
            while number(&other, waiting).await == 0 && !second.is_finished() {}
            first.commit().await.unwrap();
            let (pushed, session) = second.await.unwrap();
            late = session;
            let job = broker.take_jobs(W).lease(SOON).await.unwrap().remove(0);
            let Ok(pushed) = pushed else {
                // It has waited in vain for a slow commit.
                late.batch_execute("ROLLBACK").await.unwrap();
                broker.complete_job(&job).await.unwrap();
                continue;
            };
            assert!(!pushed.get::<_, bool>(0));
            let done = tokio::time::timeout(SOON, broker.complete_job(&job)).await;
            done.expect("a transaction that has pushed nothing holds the job up").unwrap();
            late.batch_execute("COMMIT").await.unwrap();
            return;
        }
    });
}

pub(crate) fn a_dropped_queue_of_a_restored_copy_is_cleared(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w; DROP WORK QUEUE w").await.unwrap();
        client.batch_execute("UPDATE dialoq.dropped_work_queue SET after_xid = '999999999999'").await.unwrap();
        let cleared = async {
            while number(&client, "SELECT count(*) FROM dialoq.dropped_work_queue").await > 0 {
                client.batch_execute("SELECT dialoq.tick()").await.unwrap();
            }
        };
        tokio::time::timeout(SOON, cleared).await.expect("it waits for a transaction of another server");
    });
}

pub(crate) fn a_claim_tells_of_the_jobs_that_it_gives_back(store: Store) {
    on(store, |broker, client, _| async move {
        broker
            .execute("CREATE WORK QUEUE v WITH RETRY_DELAY_MS = 0, MAX_ATTEMPTS = 1000; CREATE WORK QUEUE w")
            .await
            .unwrap();
        broker.push_job("v", "a").await.unwrap();
        client.batch_execute("SET dialoq.client = '1'").await.unwrap();
        let ids = "'00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'";
        let rest = "1, NULL, NULL, NULL, false, false, NULL, ''";
        let lose = format!("SELECT FROM dialoq.claim_jobs({ids}, 0, 'v', {rest})");
        let batch = "SELECT notices FROM dialoq.claim_job_batch('00000000-0000-0000-0000-000000000001', 'w', NULL,
            ARRAY['00000000-0000-0000-0000-000000000002'::uuid], ARRAY[0], ARRAY[1], ARRAY[''])";
        for claim in [format!("SELECT notices FROM dialoq.claim_jobs({ids}, 0, 'w', {rest})"), batch.to_owned()] {
            for has_job in [false, true] {
                let queue = number(&client, "SELECT queue_id::bigint FROM dialoq.work_queue WHERE name = 'v'").await;
                // A step of the broker may give the job back before: then its attempt has failed, and it is lost once more.
                let mut failed = 0;
                loop {
                    assert_eq!(client.query(&lose, &[]).await.unwrap().len(), 1);
                    if has_job {
                        broker.push_job("w", "b").await.unwrap();
                    }
                    let rows = client.query(&claim, &[]).await.unwrap();
                    let notices: Option<String> = rows.first().and_then(|row| row.get(0));
                    let of_others = format!("DELETE FROM dialoq.job WHERE queue_id <> {queue}");
                    client.batch_execute(&of_others).await.unwrap();
                    if notices.is_some_and(|text| text.contains(&format!("q:{queue}"))) {
                        break;
                    }
                    let last_error = "SELECT count(*) FROM dialoq.job WHERE last_error IS NOT NULL";
                    assert_eq!(number(&client, last_error).await, 1, "{claim}, {has_job}");
                    failed += 1;
                    assert!(failed < 10, "{claim}, {has_job}");
                }
            }
        }
    });
}

pub(crate) fn a_lower_bound_of_a_quiet_history_cuts_it(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH HISTORY_ROWS = 1000").await.unwrap();
        client.batch_execute("SELECT dialoq.push_job('w') FROM generate_series(1, 150)").await.unwrap();
        client.batch_execute("SELECT FROM dialoq.take_jobs('w', 150)").await.unwrap();
        client.batch_execute("SELECT dialoq.tick()").await.unwrap();
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.job_history").await, 150);
        broker.execute("ALTER WORK QUEUE w WITH HISTORY_ROWS = 10").await.unwrap();
        client.batch_execute("SELECT dialoq.tick()").await.unwrap();
        assert_eq!(number(&client, "SELECT count(*) FROM dialoq.job_history").await, 10);
    });
}

pub(crate) fn one_damaged_job_of_a_dead_process_keeps_no_other(store: Store) {
    on(store, |broker, client, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        for body in ["a", "bad", "c"] {
            broker.push_job("w", body).await.unwrap();
        }
        let claim = "SELECT job_id FROM dialoq.claim_jobs('00000000-0000-0000-0000-0000000000aa',
            '00000000-0000-0000-0000-000000000002', 0, 'w', 3, NULL, NULL, NULL, false, false, NULL, '')";
        assert_eq!(client.query(claim, &[]).await.unwrap().len(), 3);
        let plant = "SET client_min_messages = error;
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.body = 'bad' AND NEW.state <> 3 THEN RAISE EXCEPTION 'a damaged row'; END IF; RETURN NEW; END $$;
            CREATE TRIGGER refuse BEFORE UPDATE ON dialoq.job FOR EACH ROW EXECUTE FUNCTION refuse()";
        client.batch_execute(plant).await.unwrap();
        // A step of the broker may be at it just then; its end is waited for.
        let mut states = vec![(ShownState::Taken, String::new())];
        while states.iter().any(|(state, _)| *state == ShownState::Taken) {
            client.batch_execute("SELECT dialoq.tick()").await.unwrap();
            let jobs = broker.jobs(&JobFilter::default(), 9).await.unwrap();
            states = jobs.into_iter().map(|job| (job.state, job.last_error.unwrap_or_default())).collect();
        }
        states.sort_by_key(|(state, _)| state.name());
        assert_eq!(
            states.iter().map(|(state, _)| state.name()).collect::<Vec<_>>(),
            ["dead", "ready", "ready"],
            "{states:?}"
        );
        assert!(states[0].1.contains("a damaged row"), "{states:?}");
    });
}

/// Takes of a queue with limits come one after the other. The time of one that waits is that of its turn: a rate that other takes
/// have used up meanwhile lets it take no more, and its leases begin then.
pub(crate) fn a_take_that_waits_for_its_turn_begins_with_it(store: Store) {
    on(store, |broker, mut client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH RATE_JOBS = 2, RATE_MS = 10000").await.unwrap();
        broker.close().await.unwrap();
        let other = connect(database.url()).await;
        let set = |second: u32| format!("SELECT dialoq.set_manual_now('2030-01-01 00:00:{second:02}Z')");
        let take = "SELECT (extract(epoch FROM lease_until) * 1000)::bigint % 60000
            FROM dialoq.take_jobs('w', 9, p_has_lease => true, p_lease_ms => 1000)";
        // The queue of waiting takes gives up after some seconds. On a slow machine the play begins again.
        loop {
            let clear = format!("DELETE FROM dialoq.job; DELETE FROM dialoq.work_rate; {}", set(0));
            client.batch_execute(&clear).await.unwrap();
            client.batch_execute("SELECT dialoq.push_job('w') FROM generate_series(1, 9)").await.unwrap();
            let first = client.transaction().await.unwrap();
            first.batch_execute("SELECT FROM dialoq.take_jobs('w', 1, p_has_lease => true)").await.unwrap();
            let waiting = connect(database.url()).await;
            let waiting = tokio::spawn(async move { (waiting.query(take, &[]).await, waiting) });
            let waits = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%dialoq.take_jobs%'";
            while number(&other, waits).await == 0 && !waiting.is_finished() {}
            other.batch_execute(&set(5)).await.unwrap();
            let rest = first.query(take, &[]).await.unwrap();
            assert_eq!(rest.len(), 2, "the rate lets two go");
            first.commit().await.unwrap();
            let (taken, waiting) = waiting.await.unwrap();
            let Ok(taken) = taken else { continue };
            assert_eq!(taken.len(), 0, "the rate is used up");
            other.batch_execute(&set(15)).await.unwrap();
            let first = client.transaction().await.unwrap();
            first.batch_execute("SELECT FROM dialoq.take_jobs('w', 1, p_has_lease => true)").await.unwrap();
            let waiting = tokio::spawn(async move { waiting.query(take, &[]).await });
            while number(&other, waits).await == 0 && !waiting.is_finished() {}
            other.batch_execute(&set(30)).await.unwrap();
            first.commit().await.unwrap();
            let Ok(taken) = waiting.await.unwrap() else { continue };
            let leases: Vec<i64> = taken.iter().map(|row| row.get(0)).collect();
            assert_eq!(leases, [31_000, 31_000], "a second from the time of its turn");
            return;
        }
    });
}

/// The line of takes moves, so a take may wait for long.
pub(crate) fn a_take_that_has_waited_goes_by_the_settings_of_now(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN = 9").await.unwrap();
        for _ in 0..3 {
            broker.push_job("w", "a").await.unwrap();
        }
        let look = connect(database.url()).await;
        for alter in ["MAX_TAKEN = 1", "STATUS = OFF"] {
            client.batch_execute("BEGIN; SELECT dialoq.take_jobs('w', p_has_lease => true)").await.unwrap();
            let waiting = tokio::spawn({
                let broker = broker.clone();
                async move { broker.take_jobs(W).wait(Duration::from_secs(3)).await }
            });
            while number(&look, "SELECT count(*) FROM pg_locks WHERE NOT granted").await == 0 {}
            broker.execute(&format!("ALTER WORK QUEUE w WITH {alter}")).await.unwrap();
            client.batch_execute("COMMIT").await.unwrap();
            assert_eq!(waiting.await.unwrap().unwrap().len(), 0, "{alter}");
            broker.execute("ALTER WORK QUEUE w WITH MAX_TAKEN = 9").await.unwrap();
        }
    });
}

/// A push that finds its unique key over replaces it, and keeps its row locked to the end of its transaction.
pub(crate) fn a_queue_is_dropped_beside_an_open_push_of_a_unique_key(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let over = "INSERT INTO dialoq.unique_job (queue_id, unique_key, job_id, until_at)
            SELECT q.queue_id, 'u', 0, now() - interval '1 hour' FROM dialoq.work_queue AS q";
        client.batch_execute(over).await.unwrap();
        client.batch_execute("BEGIN; SELECT dialoq.push_job('w', p_unique_key => 'u')").await.unwrap();
        let drop = tokio::time::timeout(SOON, broker.execute("DROP WORK QUEUE w"));
        drop.await.expect("it waits for the open push").unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        let other = connect(database.url()).await;
        let left = "SELECT (SELECT count(*) FROM dialoq.job) + (SELECT count(*) FROM dialoq.unique_job)
            + (SELECT count(*) FROM dialoq.dropped_work_queue)";
        while number(&other, left).await > 0 {
            other.batch_execute("SELECT dialoq.tick()").await.unwrap();
        }
    });
}

/// Takes of transactions have a connection of their process beside its pool, on which it also notifies other processes.
pub(crate) fn a_take_of_a_transaction_that_waits_in_line_holds_up_no_other(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN = 9; CREATE WORK QUEUE other").await.unwrap();
        for queue in ["w", "w", "other"] {
            broker.push_job(queue, "a").await.unwrap();
        }
        let look = connect(database.url()).await;
        client.batch_execute("BEGIN; SELECT dialoq.take_jobs('w', p_has_lease => true)").await.unwrap();
        // On a slow machine the wait may be over before the other take has begun.
        for _ in 0..9 {
            let tx = broker.begin().await.unwrap();
            let waiting = tokio::spawn(async move { tx.take_jobs(W).await.map(drop) });
            while number(&look, "SELECT count(*) FROM pg_locks WHERE NOT granted").await == 0 {}
            let other = broker.begin().await.unwrap();
            assert_eq!(other.take_jobs("other").await.unwrap().len(), 1);
            let is_waiting = !waiting.is_finished();
            drop(other);
            assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::JOB_LOCKED);
            if is_waiting {
                return;
            }
            broker.push_job("other", "a").await.unwrap();
        }
        panic!("the take from the other queue has always waited for the first one");
    });
}
