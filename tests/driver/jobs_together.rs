//! Verbs of work queues of several callers in one call.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::postgres::tokio_postgres::{self, NoTls};
use dialoq::work::{Job, TakenJob, WorkQueue};
use dialoq::{Act, Broker, Code, Gathering, OpenOptions};
use std::future::{Future, IntoFuture};
use std::time::Duration;
use tokio::task::JoinHandle;

const W: WorkQueue<String> = WorkQueue::text("w");

/// A broker whose next batch waits for callers, and a queue `w`.
fn on<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Broker, Gathering, Database) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let gathering = Gathering::default();
        let options = OpenOptions::default().gathering(gathering.clone());
        let broker = Broker::open_with(database.url(), options).await.unwrap();
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        tokio::time::timeout(3 * SOON, test(broker, gathering, database.clone())).await.expect("the test hangs");
    });
}

/// Three jobs, pushed in one call.
async fn push_three(broker: &Broker, gathering: &Gathering) -> Vec<u64> {
    gathering.wait_for(3);
    let later = Duration::from_secs(3600);
    let (a, b, c) = tokio::join!(
        async { broker.push_job(W, &"a".to_owned()).job_type("x").await },
        async { broker.push_job(W, &"b".to_owned()).key("k").level(7).await },
        async { broker.push_job(W, &"c".to_owned()).run_after(later).await },
    );
    let pushed = [a, b, c].map(Result::unwrap);
    assert!(pushed.iter().all(|pushed| pushed.is_new));
    pushed.iter().map(|pushed| pushed.job.unwrap().0).collect()
}

/// The state of a job and who has it.
async fn state(broker: &Broker, taken: TakenJob) -> String {
    let text = "SELECT concat_ws(' ', state, taken_by) AS s FROM dialoq.job WHERE job_id = $1";
    let rows = broker.query(text, (taken.job.0.cast_signed(),)).await.unwrap().rows;
    rows[0].get("s").unwrap()
}

pub(crate) fn each_caller_gets_its_own_answer(store: Store) {
    on(store, |broker, gathering, _| async move {
        let ids = push_three(&broker, &gathering).await;
        let rows =
            "SELECT count(DISTINCT pushed_at) AS times, string_agg(concat_ws(' ', state, job_type, job_key, level,
            convert_from(body, 'UTF8')), ', ' ORDER BY convert_from(body, 'UTF8')) AS jobs FROM dialoq.job";
        let row = broker.query(rows, ()).await.unwrap().rows.remove(0);
        assert_eq!(row.get::<i64>("times").unwrap(), 1, "they went in one call");
        assert_eq!(row.get::<String>("jobs").unwrap(), "1 x 5 a, 1  k 7 b, 0  5 c");
        broker.push_job(W, &"d".to_owned()).await.unwrap();

        gathering.wait_for(3);
        let (one, two, three) = tokio::join!(
            async { broker.take_jobs(W).taken_by("one").await },
            async { broker.take_jobs(W).count(5).lease(Duration::from_secs(5)).taken_by("two").await },
            async { broker.take_jobs(W).await },
        );
        let (mut one, mut two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
        assert_eq!((one.len(), two.len(), three.len()), (1, 2, 0), "in the order of the callers");
        let (first, third, second) = (one.remove(0), two.remove(1), two.remove(0));
        assert_eq!([&first, &second, &third].map(|job| job.decode(W).unwrap()), ["a", "b", "d"]);
        assert_eq!((first.taken.job.0, second.taken.job.0), (ids[0], ids[1]));
        assert!(first.lease_until > second.lease_until, "each has a lease of its own");
        assert!(first.taken.token != second.taken.token && second.taken.token != third.taken.token);
        assert_eq!(state(&broker, third.taken).await, "2 two");

        // A stale token, and two reports on one job, beside one that is right.
        gathering.wait_for(4);
        let stale = TakenJob { token: third.taken.token + 1, ..third.taken };
        let done = tokio::join!(
            async { broker.complete_job_with(&first, b"r").await },
            async { broker.complete_job(stale).await },
            async { broker.complete_job(&second).await },
            async { broker.complete_job(&second).await },
        );
        assert!(done.0.is_ok());
        assert_eq!(done.1.unwrap_err().code(), Code::LEASE_LOST);
        let codes = [done.2, done.3].map(|done| done.map_err(|error| error.code()));
        assert!(codes.contains(&Ok(())) && codes.contains(&Err(Code::JOB_NOT_FOUND)), "{codes:?}");
        assert_eq!(state(&broker, third.taken).await, "2 two");
        let result = "SELECT count(*) AS n FROM dialoq.job_history WHERE result = convert_to('r', 'UTF8')";
        assert_eq!(broker.query(result, ()).await.unwrap().rows[0].get::<i64>("n").unwrap(), 1);
    });
}

/// Reports that take the next job along: each caller has its own answer, and one that is refused gets no job.
pub(crate) fn reports_that_take_the_next_job_go_together(store: Store) {
    on(store, |broker, gathering, _| async move {
        for name in ["a", "b", "c", "d", "e"] {
            broker.push_job(W, &name.to_owned()).await.unwrap();
        }
        let held = broker.take_jobs(W).count(3).await.unwrap();
        gathering.wait_for(4);
        let stale = TakenJob { token: held[2].taken.token + 1, ..held[2].taken };
        let (one, two, three, four) = tokio::join!(
            async { broker.take_jobs(W).completing_with(&held[0], "r").taken_by("one").await },
            async { broker.take_jobs(W).completing(stale).taken_by("two").await },
            async { broker.take_jobs(W).completing(&held[1]).lease(Duration::from_secs(5)).taken_by("three").await },
            async { broker.take_jobs(W).completing(&held[1]).taken_by("four").await },
        );
        let (one, three) = (one.unwrap(), three.unwrap());
        assert_eq!([&one[0], &three[0]].map(|job| job.decode(W).unwrap()), ["d", "e"]);
        assert_eq!((one.len(), three.len()), (1, 1));
        assert!(one[0].lease_until > three[0].lease_until, "each has a lease of its own");
        assert_eq!(
            (state(&broker, one[0].taken).await, state(&broker, three[0].taken).await),
            ("2 one".to_owned(), "2 three".to_owned())
        );
        assert_eq!([two, four].map(|refused| refused.unwrap_err().code()), [Code::LEASE_LOST, Code::JOB_NOT_FOUND]);
        let times = "SELECT count(*) AS n, count(DISTINCT finished_at) AS times, string_agg(result, '') AS result FROM dialoq.job_history";
        let row = broker.query(times, ()).await.unwrap().rows.remove(0);
        assert_eq!((row.get::<i64>("n").unwrap(), row.get::<i64>("times").unwrap()), (2, 1), "they went in one call");
        assert_eq!(row.get::<Vec<u8>>("result").unwrap(), b"r");

        // None is left: all are done, and each caller gets that answer.
        gathering.wait_for(3);
        let jobs = [&one[0], &three[0], &held[2]];
        let next = |job: &Job| broker.take_jobs(W).completing(job).into_future();
        let (one, two, three) = tokio::join!(next(jobs[0]), next(jobs[1]), next(jobs[2]));
        assert!([one, two, three].into_iter().all(|jobs| jobs.unwrap().is_empty()));
        let left = broker.query("SELECT count(*) AS n FROM dialoq.job", ()).await.unwrap().rows.remove(0);
        assert_eq!(left.get::<i64>("n").unwrap(), 0);
    });
}

/// Batches begin where the last one began, and a job that comes back is before that place.
pub(crate) fn a_job_that_comes_back_is_taken_while_batches_go_on(store: Store) {
    on(store, |broker, gathering, _| async move {
        for number in 0..200 {
            broker.push_job(W, &format!("{number}")).await.unwrap();
        }
        let take_two = async || {
            gathering.wait_for(2);
            let (one, two) = tokio::join!(async { broker.take_jobs(W).await }, async { broker.take_jobs(W).await });
            [one, two].map(|jobs| jobs.unwrap().remove(0))
        };
        let [first, _] = take_two().await;
        let [third, _] = take_two().await;
        assert_eq!(
            (first.decode(W).unwrap(), third.decode(W).unwrap()),
            ("0".to_owned(), "2".to_owned()),
            "in the order of the pushes"
        );
        broker.fail_job(&first, "again").await.unwrap();
        for batch in 0.. {
            let taken = take_two().await;
            if taken.iter().any(|job| job.taken.job == first.taken.job) {
                break;
            }
            assert!(batch < 20, "the first job is ready and the {batch}th batch passes it over");
        }
        // Too few are left after the last place: the search begins at the first entry.
        assert!(broker.take_jobs(W).count(1000).await.unwrap().len() > 100);
        broker.fail_job(&third, "again").await.unwrap();
        gathering.wait_for(2);
        let (one, two) = tokio::join!(async { broker.take_jobs(W).await }, async { broker.take_jobs(W).await });
        let back: Vec<_> = [one, two].into_iter().flat_map(Result::unwrap).map(|job| job.taken.job).collect();
        assert_eq!(back, [third.taken.job]);
    });
}

pub(crate) fn transactions_that_take_together_end_by_themselves(store: Store) {
    on(store, |broker, gathering, _| async move {
        broker.push_job(W, &"a".to_owned()).await.unwrap();
        broker.push_job(W, &"b".to_owned()).await.unwrap();
        let (one, two) = (broker.begin().await.unwrap(), broker.begin().await.unwrap());
        gathering.wait_for(2);
        let (first, second) =
            tokio::join!(async { one.take_jobs(W).await.unwrap() }, async { two.take_jobs(W).await.unwrap() });
        let (first, second): (Job, Job) = (first.into_iter().next().unwrap(), second.into_iter().next().unwrap());
        assert_eq!(first.lease_until, None);
        one.commit().await.unwrap();
        two.rollback().await.unwrap();
        assert_eq!(broker.complete_job(&first).await.unwrap_err().code(), Code::JOB_NOT_FOUND);
        let again = broker.take_jobs(W).await.unwrap();
        assert_eq!((again[0].taken.job, again[0].attempt), (second.taken.job, 2));
        assert_eq!(again[0].last_error.as_deref(), Some("its transaction was rolled back"));
    });
}

/// Also jobs that were taken with a report: that is done all the same.
pub(crate) fn jobs_for_a_caller_that_has_left_go_back(store: Store) {
    on(store, |broker, gathering, database| async move {
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        for with_report in [false, true] {
            for name in ["a", "b", "c", "d"] {
                broker.push_job(W, &name.to_owned()).await.unwrap();
            }
            let held = broker.take_jobs(W).count(2).lease(Duration::from_secs(3600)).await.unwrap();
            client.batch_execute("BEGIN; LOCK TABLE dialoq.work_queue").await.unwrap();
            gathering.wait_for(2);
            let taking = |job: &Job| {
                let (broker, job) = (broker.clone(), job.taken);
                tokio::spawn(async move {
                    let take = broker.take_jobs(W);
                    if with_report { take.completing(job).await.unwrap() } else { take.await.unwrap() }
                })
            };
            let (leaving, staying) = (taking(&held[0]), taking(&held[1]));
            while !store.waits_for_a_lock(&broker).await {
                tokio::task::yield_now().await;
            }
            leaving.abort();
            assert!(leaving.await.unwrap_err().is_cancelled());
            client.batch_execute("ROLLBACK").await.unwrap();
            let kept = staying.await.unwrap();
            assert_eq!(kept.len(), 1);
            let back = broker.take_jobs(W).wait(SOON).await.unwrap();
            assert_ne!(back[0].taken.job, kept[0].taken.job);
            assert_eq!(back[0].attempt, 1, "its caller never saw it");
            for job in &held {
                assert_eq!(broker.complete_job(job).await.is_err(), with_report);
            }
            for job in [&kept[0], &back[0]] {
                broker.complete_job(job).await.unwrap();
            }
        }
    });
}

/// A take that has read the row just before it was taken locks it, passes it over, and keeps the lock to its commit.
pub(crate) fn a_report_waits_for_a_take_that_locks_its_row_in_passing(store: Store) {
    on(store, |broker, _, database| async move {
        broker.push_job(W, &"a".to_owned()).await.unwrap();
        let job = broker.take_jobs(W).lease(Duration::from_secs(3600)).await.unwrap().remove(0);
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        loop {
            client.batch_execute("BEGIN; SELECT FROM dialoq.job FOR UPDATE").await.unwrap();
            let reporting = tokio::spawn({
                let (broker, job) = (broker.clone(), job.clone());
                async move { broker.complete_job(&job).await }
            });
            while !reporting.is_finished() && !store.waits_for_a_lock(&broker).await {
                tokio::task::yield_now().await;
            }
            let has_waited = !reporting.is_finished();
            client.batch_execute("ROLLBACK").await.unwrap();
            match reporting.await.unwrap() {
                Ok(()) => {
                    assert!(has_waited, "it did not meet the lock");
                    return;
                }
                // It waits 100 ms, which this machine may have spent elsewhere; a transaction that stays open is not waited for.
                Err(error) => assert_eq!(error.code(), Code::JOB_LOCKED),
            }
        }
    });
}

/// Such takes lock many rows at once. When the first report has waited, the others go together again.
pub(crate) fn reports_that_wait_for_a_take_go_together_after_it(store: Store) {
    on(store, |broker, gathering, database| async move {
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        while !together_after_a_take(store, &broker, &gathering, &client).await {
            client.batch_execute("DELETE FROM dialoq.job; DELETE FROM dialoq.job_history").await.unwrap();
        }
    });
}

/// Whether none was refused: a report waits 100 ms, which this machine may have spent elsewhere.
async fn together_after_a_take(
    store: Store,
    broker: &Broker,
    gathering: &Gathering,
    client: &tokio_postgres::Client,
) -> bool {
    for number in 0..8 {
        broker.push_job(W, &number.to_string()).await.unwrap();
    }
    let held = broker.take_jobs(W).count(4).lease(Duration::from_secs(3600)).await.unwrap();
    client.batch_execute("BEGIN; SELECT FROM dialoq.job WHERE state = 2 FOR UPDATE").await.unwrap();
    gathering.wait_for(4);
    let reports: Vec<_> = (held.iter().map(|job| (broker.clone(), job.taken)))
        .map(|(broker, taken)| tokio::spawn(async move { broker.take_jobs(W).completing(taken).await }))
        .collect();
    while !reports.iter().all(JoinHandle::is_finished) && !store.waits_for_a_lock(broker).await {
        tokio::task::yield_now().await;
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    let mut are_all_reported = true;
    for next in reports {
        match next.await.unwrap() {
            Ok(next) => assert_eq!(next.len(), 1),
            Err(error) => {
                assert_eq!(error.code(), Code::JOB_LOCKED);
                are_all_reported = false;
            }
        }
    }
    if !are_all_reported {
        return false;
    }
    let text = "SELECT count(*) AS n, count(DISTINCT finished_at) AS times FROM dialoq.job_history";
    let row = broker.query(text, ()).await.unwrap().rows.remove(0);
    assert_eq!((row.get::<i64>("n").unwrap(), row.get::<i64>("times").unwrap()), (4, 2), "one, then three together");
    true
}

/// From plain SQL: what no client sends.
pub(crate) fn a_batch_with_unusable_arguments_changes_nothing(store: Store) {
    on(store, |broker, _, database| async move {
        broker.push_job(W, &"a".to_owned()).await.unwrap();
        let job = broker.take_jobs(W).lease(Duration::from_secs(3600)).await.unwrap().remove(0);
        broker.push_job(W, &"b".to_owned()).await.unwrap();
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let id = "'00000000-0000-0000-0000-00000000000a'";
        let held = format!("{}, {}", job.taken.job.0, job.taken.token);
        let jobs = "SELECT string_agg(j::text, ' ' ORDER BY j.job_id) FROM dialoq.job AS j";
        let before: String = client.query_one(jobs, &[]).await.unwrap().get(0);
        let take = |counts: &str, leases: &str, readers: &str| {
            format!("take_job_batch('w', NULL, {counts}, {leases}, {readers})")
        };
        let push = |level: &str, delay: &str, key: &str| {
            format!(
                "push_job_batch('w', '{{x,y}}', ARRAY[NULL, {key}], ARRAY[5, {level}], ARRAY[NULL, {delay}]::bigint[],
                '{{NULL,NULL}}', '{{NULL,NULL}}', '{{NULL,NULL}}')"
            )
        };
        let claim = |process: &str, holders: &str, tokens: &str, counts: &str| {
            format!("claim_job_batch({process}, 'w', NULL, {holders}, {tokens}, {counts}, '{{me}}')")
        };
        let next = |held: &str, queue: &str, counts: &str, leases: &str| {
            let (job, token) = held.split_once(", ").unwrap();
            format!(
                "complete_and_take_job_batch(ARRAY[{job}], ARRAY[{token}], ARRAY[NULL]::bytea[], '{queue}', NULL, {counts}, {leases},
                '{{me}}')"
            )
        };
        let holder = format!("ARRAY[{id}::uuid]");
        let long = "repeat('ä', 129)";
        for (call, number) in [
            (take("NULL", "NULL", "NULL"), "005"),
            (take("'{1,1}'", "'{NULL}'", "'{me,you}'"), "005"),
            (take("'{1,1}'", "'{NULL,NULL}'", "'{me}'"), "005"),
            (take("'{{1},{1}}'", "'{{NULL},{NULL}}'", "'{{me},{you}}'"), "005"),
            (take("'[0:0]={1}'", "'[0:0]={NULL}'", "'[0:0]={me}'"), "005"),
            (take("'{1,NULL}'", "'{NULL,NULL}'", "'{me,you}'"), "005"),
            (take("'{1,0}'", "'{NULL,NULL}'", "'{me,you}'"), "005"),
            (take("'{1,10001}'", "'{NULL,NULL}'", "'{me,you}'"), "005"),
            (take("'{1,-1}'", "'{NULL,NULL}'", "'{me,you}'"), "005"),
            (take("'{1,1}'", "'{NULL,0}'", "'{me,you}'"), "005"),
            (take("'{1,1}'", "'{NULL,9223372036854775807}'", "'{me,you}'"), "005"),
            (take("'{1,1}'", "'{NULL,NULL}'", &format!("ARRAY['me', {long}]")), "005"),
            ("take_job_batch('nowhere', NULL, '{1}', '{NULL}', '{me}')".to_owned(), "002"),
            ("take_job_batch(NULL, NULL, '{1}', '{NULL}', '{me}')".to_owned(), "002"),
            (format!("take_job_batch('w', {long}, '{{1}}', '{{NULL}}', '{{me}}')"), "005"),
            (push("0", "NULL", "'k'"), "005"),
            (push("11", "NULL", "'k'"), "005"),
            (push("NULL", "NULL", "'k'"), "005"),
            (push("5", "-1", "'k'"), "005"),
            (push("5", "315360000001", "'k'"), "005"),
            (push("5", "NULL", long), "005"),
            ("push_job_batch('w', '{x}', NULL, NULL, NULL, NULL, NULL, NULL)".to_owned(), "005"),
            (claim("NULL", &holder, "'{0}'", "'{1}'"), "005"),
            (claim(id, "'{NULL}'", "'{0}'", "'{1}'"), "005"),
            (claim(id, &holder, "'{}'", "'{1}'"), "005"),
            (claim(id, &holder, "'{0}'", "'{0}'"), "005"),
            (format!("complete_job_batch(ARRAY[{held}], '{{1}}', '{{NULL}}')"), "005"),
            ("complete_job_batch(NULL, NULL, NULL)".to_owned(), "005"),
            (next(&held, "w", "'{1}'", "'{NULL,NULL}'"), "005"),
            (next(&held, "w", "'{0}'", "'{NULL}'"), "005"),
            (next(&held, "nowhere", "'{1}'", "'{NULL}'"), "002"),
            ("complete_and_take_job_batch(NULL, NULL, NULL, 'w', NULL, NULL, NULL, NULL)".to_owned(), "005"),
            (format!("complete_and_take_job({held}, NULL, 'nowhere')"), "002"),
            (format!("complete_and_take_job({held}, NULL, 'w', 0)"), "005"),
            ("complete_and_take_job(NULL, NULL, NULL, NULL)".to_owned(), "040"),
        ] {
            let refused = client.query(&format!("SELECT * FROM dialoq.{call}"), &[]).await.unwrap_err();
            let code = refused.code().map_or("", |code| code.code()).to_owned();
            assert_eq!(code, format!("SB{number}"), "{call}: {refused:?}");
        }
        // Those that are right ask for nothing.
        for call in [
            "take_job_batch('w', NULL, '{}', '{}', '{}')",
            "push_job_batch('w', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
            "complete_job_batch('{}', '{}', '{}')",
            "complete_and_take_job_batch('{}', '{}', '{}', 'w', NULL, '{}', '{}', '{}')",
        ] {
            assert!(client.query(&format!("SELECT * FROM dialoq.{call}"), &[]).await.unwrap().is_empty(), "{call}");
        }
        // What names no taken job is an item that was not completed.
        let strange = format!(
            "SELECT item FROM dialoq.complete_job_batch(ARRAY[NULL, 0, -1, {}], ARRAY[NULL, 0, -1, 0], '{{NULL,NULL,NULL,NULL}}')",
            job.taken.job.0
        );
        let items: Vec<i32> = client.query(&strange, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(items, [0, 1, 2, 3]);
        assert_eq!(client.query_one(jobs, &[]).await.unwrap().get::<_, String>(0), before);
        broker.complete_job(&job).await.unwrap();
    });
}
