//! Work queues on SQL Server while other sessions hold rows, and after failures.

use crate::enlisting_mssql::{connect, on, on_url};
use crate::hostile_mssql::{number, run};
use crate::jobs_mssql::{DEAD, claim, one, rows, take, with_a_job};
use crate::servers::{Database, Store};
use dialoq::mssql::Client;
use dialoq::{Act, Broker};
use std::time::Duration;

pub(crate) fn a_unique_key_of_a_job_that_is_there_is_answered_at_once(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let job = broker.push_job("w", "a").unique("u").await.unwrap().job;
        run(&mut client, "BEGIN TRANSACTION; EXEC dialoq.push_job N'w', @unique_key = N'u'").await;
        let again = broker.push_job("w", "b").unique("u").await.unwrap();
        assert_eq!((again.is_new, again.job), (false, job), "the other push has changed nothing");
        run(&mut client, "COMMIT").await;
    });
}

/// A claim that finds no job of its type has given back one of another, which a reader may wait for.
pub(crate) fn a_claim_tells_of_the_jobs_that_it_gives_back(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        claim(&mut client, 0).await.unwrap();
        let other = format!("EXEC dialoq.claim_jobs {DEAD}, 0, N'w', 1, N'none', NULL, NULL, 0, 0, NULL, N''");
        let answer = one(&mut client, &other).await;
        assert_eq!(answer.get::<i64, _>("job_id"), None);
        assert!(answer.get::<&str, _>("notices").unwrap().starts_with("q:"));
        assert!(rows(&mut client, &other).await.is_empty(), "it holds none any more");
        assert_eq!(take(&broker).await.len(), 1);
    });
}

pub(crate) fn a_lower_bound_of_a_quiet_history_cuts_it(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w WITH HISTORY_ROWS = 10").await.unwrap();
        let push = "DECLARE @n int = 0; WHILE @n < 12 BEGIN EXEC dialoq.push_job N'w'; SET @n = @n + 1; END";
        run(&mut client, push).await;
        assert_eq!(rows(&mut client, "EXEC dialoq.take_jobs N'w', 12").await.len(), 12);
        for (bound, right) in [(10, 10), (4, 4), (5, 4)] {
            broker.execute(&format!("ALTER WORK QUEUE w WITH HISTORY_ROWS = {bound}")).await.unwrap();
            run(&mut client, "EXEC dialoq.tick").await;
            let kept = one(&mut client, "SELECT COUNT(*) FROM dialoq.job_history").await;
            assert_eq!(kept.get::<i32, _>(0), Some(right), "HISTORY_ROWS = {bound}");
        }
    });
}

pub(crate) fn one_damaged_job_of_a_dead_process_keeps_no_other(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        broker.push_job("w", "b").await.unwrap();
        let (_, token, _) = claim(&mut client, 0).await.unwrap();
        claim(&mut client, token).await.unwrap();
        // No failure of the first job can be written.
        let damage = "ALTER TABLE dialoq.job ADD CONSTRAINT damage CHECK (job_id > 1 OR failed_at IS NULL)";
        run(&mut client, damage).await;
        run(&mut client, "EXEC dialoq.tick").await;
        let row = one(&mut client, "SELECT state, last_error FROM dialoq.job WHERE job_id = 1").await;
        assert_eq!(row.get::<i16, _>("state"), Some(3));
        assert!(row.get::<&str, _>("last_error").unwrap().starts_with("its row is damaged"));
        assert_eq!(take(&broker).await[0].body(), b"b");
        // The database goes to another case, and only rows are removed before.
        run(&mut client, "ALTER TABLE dialoq.job DROP CONSTRAINT damage").await;
    });
}

/// A server that has no space, memory or locks for a moment is no fault of the job that falls due then.
pub(crate) fn no_job_is_dead_because_the_server_lacks_something(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        broker.push_job("w", "b").await.unwrap();
        let leased = "EXEC dialoq.take_jobs N'w', @has_lease = 1, @lease_ms = 1";
        assert_eq!(rows(&mut client, leased).await.len(), 1);
        claim(&mut client, 0).await.unwrap();
        // SQL Server says of severity 17 that a statement has run out of a resource.
        let shortage = "CREATE TRIGGER dialoq.shortage ON dialoq.job AFTER UPDATE AS BEGIN
            IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.failed_at IS NOT NULL)
                RAISERROR (N'no space is left', 17, 1) END";
        run(&mut client, shortage).await;
        broker.close().await.unwrap();
        for _ in 0..3 {
            tells_of(&mut client, "no space is left").await;
        }
        run(&mut client, "DROP TRIGGER dialoq.shortage").await;
        let dead = one(&mut client, "SELECT COUNT(*) FROM dialoq.job WHERE state = 3 OR last_error IS NOT NULL").await;
        assert_eq!(dead.get::<i32, _>(0), Some(0));
        run(&mut client, "EXEC dialoq.tick").await;
        let again = rows(&mut client, "EXEC dialoq.take_jobs N'w', 9").await;
        assert_eq!(again.iter().map(|job| job.get("attempt")).collect::<Vec<_>>(), [Some(2), Some(2)]);
    });
}

/// Runs tick, which tells of that failure.
pub(crate) async fn tells_of(client: &mut Client, failure: &str) {
    let answer = one(client, "EXEC dialoq.tick").await;
    let said = answer.get::<&str, _>("failure");
    assert!(said.is_some_and(|said| said.contains(failure)), "tick says {said:?}");
}

/// How a trigger says that the server lacks something. The second leaves the transaction unusable.
pub(crate) const SHORTAGES: [&str; 2] =
    ["RAISERROR (N'no space is left', 17, 1)", "BEGIN SET XACT_ABORT ON; THROW 51205, N'no space is left', 1; END"];

/// One job lacks something in every tick. Others fall due after it, and the rest of what tick does is done too.
pub(crate) fn a_lasting_shortage_of_one_job_keeps_nothing_else_from_being_done(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        let client = &mut client;
        broker.push_job("w", "x").unique_within("u", Duration::from_millis(1)).await.unwrap();
        assert_eq!(take(&broker).await.len(), 1);
        broker.close().await.unwrap();
        for shortage in SHORTAGES {
            for job_type in ["bad", "good"] {
                run(client, &format!("EXEC dialoq.push_job N'w', N'{job_type}', @delay_ms = 3600000")).await;
            }
            let due =
                "UPDATE dialoq.job SET due_at = CASE job_type WHEN N'bad' THEN '2001-01-01' ELSE '2001-01-02' END;
                UPDATE dialoq.unique_job SET until_at = '2001-01-01'";
            run(client, due).await;
            let trigger = format!(
                "CREATE TRIGGER dialoq.shortage ON dialoq.job AFTER UPDATE AS
                 IF EXISTS (SELECT 1 FROM inserted AS i WHERE i.job_type = N'bad') {shortage}"
            );
            run(client, &trigger).await;
            for _ in 0..2 {
                tells_of(client, "no space is left").await;
            }
            let done = rows(client, "EXEC dialoq.take_jobs N'w', 9").await;
            let types: Vec<&str> = done.iter().map(|job| job.get("job_type").unwrap()).collect();
            assert_eq!(types, ["good"], "{shortage}");
            let names = one(client, "SELECT COUNT(*) FROM dialoq.unique_job").await;
            assert_eq!(names.get::<i32, _>(0), Some(0), "{shortage}");
            run(client, "DROP TRIGGER dialoq.shortage").await;
            run(client, "EXEC dialoq.tick").await;
            assert_eq!(rows(client, "EXEC dialoq.take_jobs N'w', 9").await.len(), 1, "{shortage}");
        }
    });
}

/// No job of a key is overtaken, whatever another session does to the first one.
pub(crate) fn a_job_that_another_session_changes_is_not_overtaken(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w WITH ORDER = FIFO_STRICT").await.unwrap();
        for name in ["a1", "b2"] {
            broker.push_job("w", name).job_type(&name[..1]).key("k").await.unwrap();
        }
        for change in ["cancel_job 1", "complete_job 1, @token", "fail_job 1, @token, N'', @is_last = 1"] {
            let token = "DECLARE @token bigint = (SELECT token FROM dialoq.job WHERE job_id = 1)";
            run(&mut client, &format!("{token}; BEGIN TRANSACTION; EXEC dialoq.{change}")).await;
            assert!(broker.take_jobs("w").count(9).await.unwrap().is_empty(), "{change}");
            assert!(broker.take_jobs("w").job_type("b").await.unwrap().is_empty(), "{change}");
            run(&mut client, "ROLLBACK").await;
            run(&mut client, "EXEC dialoq.take_jobs N'w', @has_lease = 1").await;
        }
    });
}

/// The next job of a name whose window is over is pushed in a transaction that stays open. The report on the one before it does not
/// wait for that.
pub(crate) fn a_report_does_not_wait_for_a_push_of_its_name(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").unique_within("u", Duration::from_millis(1)).await.unwrap();
        let job = broker.take_jobs("w").await.unwrap().remove(0);
        run(&mut client, "UPDATE dialoq.unique_job SET until_at = DATEADD(hour, -1, until_at)").await;
        run(&mut client, "BEGIN TRANSACTION; EXEC dialoq.push_job N'w', @body = 0x62, @unique_key = N'u'").await;
        broker.complete_job(&job).await.unwrap();
        run(&mut client, "COMMIT").await;
        assert_eq!(take(&broker).await[0].body(), b"b");
    });
}

/// The first cut of each history writes a row. Of ticks that come at once only one cuts.
pub(crate) fn ticks_at_once_refuse_none_of_each_other(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        for queue in 0..40 {
            let name = format!("w{queue}");
            broker.execute(&format!("CREATE WORK QUEUE {name} WITH HISTORY_ROWS = 10")).await.unwrap();
            broker.push_job(&*name, "a").await.unwrap();
            broker.take_jobs(&*name).pop().await.unwrap();
        }
        // It ticks no more.
        broker.close().await.unwrap();
        let mut client = connect(database.url()).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(database.url()).await);
        }
        for _ in 0..20 {
            run(&mut client, "DELETE FROM dialoq.job_history_cut").await;
            let mut ticks = tokio::task::JoinSet::new();
            for mut client in clients.drain(..) {
                ticks.spawn(async move { (number(&mut client, "EXEC dialoq.tick").await, client) });
            }
            for (refusal, client) in ticks.join_all().await {
                assert_eq!(refusal, 0);
                clients.push(client);
            }
        }
    });
}

/// A batch that relies on XACT_ABORT must not go on with its transaction open.
pub(crate) fn a_refusal_with_xact_abort_ends_the_transaction(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN = 9").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        broker.push_job("w", "b").await.unwrap();
        let take = "EXEC dialoq.take_jobs N'w', @has_lease = 1";
        let mut holder = connect(&url).await;
        run(&mut holder, &format!("BEGIN TRANSACTION; {take}")).await;
        for (verb, refusal) in [("EXEC dialoq.complete_job 99, 1", 60_040), (take, 60_043)] {
            let batch = format!("SET XACT_ABORT ON; BEGIN TRANSACTION; {verb}; COMMIT");
            assert_eq!(number(&mut client, &batch).await, refusal, "{verb}");
            let open = one(&mut client, "SELECT CAST(@@TRANCOUNT AS int)").await;
            assert_eq!(open.get::<i32, _>(0), Some(0), "{verb}");
        }
        run(&mut holder, "COMMIT").await;
        assert_eq!(rows(&mut client, take).await.len(), 1);
    });
}

/// A take that waits in the line of its queue gives no job of a queue that was paused meanwhile.
pub(crate) fn a_take_that_has_waited_goes_by_the_settings_of_now(store: Store) {
    on_url(store, |broker, mut client, url| async move {
        broker.execute("CREATE WORK QUEUE w WITH MAX_TAKEN = 9").await.unwrap();
        let take = "EXEC dialoq.take_jobs N'w', @has_lease = 1";
        let (mut waiting, mut admin) = (connect(&url).await, connect(&url).await);
        for client in [&mut waiting, &mut admin] {
            // The first call of a session takes long on Babelfish, and the line is waited in for two seconds.
            assert!(rows(client, take).await.is_empty());
        }
        for _ in 0..2 {
            broker.push_job("w", "a").await.unwrap();
        }
        run(&mut client, &format!("BEGIN TRANSACTION; {take}")).await;
        let taking = tokio::spawn(async move { (rows(&mut waiting, take).await.len(), waiting) });
        while !store.waits_for_a_lock(&broker).await {}
        run(&mut admin, "UPDATE dialoq.work_queue SET is_enabled = 0").await;
        run(&mut client, "COMMIT").await;
        let (jobs, mut waiting) = taking.await.unwrap();
        assert_eq!(jobs, 0);
        // The lease is as long as the queue says after the wait.
        run(&mut admin, "UPDATE dialoq.work_queue SET is_enabled = 1; UPDATE dialoq.job SET state = 1, due_at = NULL")
            .await;
        run(&mut client, &format!("BEGIN TRANSACTION; {take}")).await;
        let taking = tokio::spawn(async move { rows(&mut waiting, take).await.len() });
        while !store.waits_for_a_lock(&broker).await {}
        run(&mut admin, "UPDATE dialoq.work_queue SET lease_ms = 86400000").await;
        run(&mut client, "COMMIT").await;
        assert_eq!(taking.await.unwrap(), 1);
        let longest = "SELECT MAX(DATEDIFF(hour, taken_at, due_at)) FROM dialoq.job";
        assert_eq!(one(&mut client, longest).await.get(0), Some(24));
    });
}
