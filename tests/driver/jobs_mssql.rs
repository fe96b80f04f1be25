//! Work queues on SQL Server beside the API: connections of the user's own, plain T-SQL, processes that are gone.

use crate::enlisting_mssql::{dialog, on};
use crate::hostile_mssql::{number, run};
use crate::servers::Store;
use dialoq::mssql::tiberius::{Row, ToSql};
use dialoq::mssql::{Client, Enlisted};
use dialoq::work::{AfterFailure, Job, WorkQueue};
use dialoq::{Act, Broker, Code};
use std::time::Duration;

/// Not within a test.
const LONG: Duration = Duration::from_secs(600);

const W: WorkQueue<String> = WorkQueue::text("w");

/// A process that no session shows to live, and a transaction of it.
pub(crate) const DEAD: &str = "'00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'";

/// A queue `w` with one job.
pub(crate) async fn with_a_job(broker: &Broker) {
    broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
    broker.push_job("w", "a").await.unwrap();
}

pub(crate) async fn take(act: &impl Act) -> Vec<Job> {
    act.take_jobs(W).pop().await.unwrap()
}

/// The rows of a batch.
pub(crate) async fn rows(client: &mut Client, text: &str) -> Vec<Row> {
    let none: [&dyn ToSql; 0] = [];
    let answer = client.query(text, &none).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    answer.into_first_result().await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) async fn one(client: &mut Client, text: &str) -> Row {
    rows(client, text).await.pop().unwrap_or_else(|| panic!("{text} gives no row"))
}

/// The claim of a process that is gone: the body, the token and the attempt.
pub(crate) async fn claim(client: &mut Client, last_token: i64) -> Option<(Vec<u8>, i64, i32)> {
    let text = format!("EXEC dialoq.claim_jobs {DEAD}, {last_token}, N'w', 1, NULL, NULL, NULL, 0, 0, NULL, N''");
    let row = rows(client, &text).await.pop()?;
    let body: &[u8] = row.get("body").unwrap();
    Some((body.to_vec(), row.get("token").unwrap(), row.get("attempt").unwrap()))
}

pub(crate) fn a_job_of_an_enlisted_transaction_comes_back_uncounted(store: Store) {
    // DIFFERENCE(attempts-by-clients): only the user learns how the transaction ends.
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        for is_commit in [false, true] {
            run(&mut client, "BEGIN TRANSACTION").await;
            let jobs = take(&Enlisted::new(&broker, &mut client)).await;
            assert_eq!((jobs.len(), jobs[0].attempt), (1, 1));
            assert!(take(&broker).await.is_empty(), "the transaction holds it");
            assert_eq!(broker.complete_job(&jobs[0]).await.unwrap_err().code(), Code::JOB_LOCKED);
            run(&mut client, if is_commit { "COMMIT" } else { "ROLLBACK" }).await;
            if is_commit {
                assert_eq!(broker.cancel_job(jobs[0].taken.job).await.unwrap_err().code(), Code::JOB_NOT_FOUND);
            }
        }
        assert!(take(&broker).await.is_empty());
    });
}

pub(crate) fn a_job_that_a_transaction_cancels_is_passed_over(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        broker.push_job("w", "b").await.unwrap();
        run(&mut client, "BEGIN TRANSACTION; EXEC dialoq.cancel_job 1").await;
        let jobs = broker.take_jobs(W).count(9).await.unwrap();
        assert_eq!(jobs.iter().map(Job::body).collect::<Vec<_>>(), [b"b"]);
        run(&mut client, "ROLLBACK").await;
        assert_eq!(take(&broker).await[0].body(), b"a");
    });
}

pub(crate) fn plain_sql_has_the_same_verbs(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        let client = &mut client;
        let push = "EXEC dialoq.push_job N'W', N'mail', @body = 0x61, @unique_key = N'u'";
        let pushed = one(client, push).await;
        assert_eq!(pushed.get("is_new"), Some(true));
        let id: i64 = pushed.get("job_id").unwrap();
        let again = one(client, push).await;
        assert_eq!((again.get("is_new"), again.get("job_id")), (Some(false), Some(id)));
        let longer = one(client, "EXEC dialoq.push_job N'w', @unique_key = N'u ', @delay_ms = 100000").await;
        assert_eq!(longer.get("is_new"), Some(true), "a space at the end makes another key");
        let lease = "EXEC dialoq.take_jobs N'w', @has_lease = 1";
        let token: i64 = one(client, lease).await.get("token").unwrap();
        let failed = one(client, &format!("EXEC dialoq.fail_job {id}, {token}, N'100% why', @is_last = 1")).await;
        assert_eq!(failed.get("job_state"), Some("dead"));
        run(client, &format!("EXEC dialoq.redrive_job {id}")).await;
        assert_eq!(number(client, &format!("EXEC dialoq.redrive_job {id}")).await, 60_044);
        let again = one(client, lease).await;
        assert_eq!((again.get("attempt"), again.get("last_error")), (Some(1), Some("100% why")));
        let last: i64 = again.get("token").unwrap();
        assert_eq!(number(client, &format!("EXEC dialoq.complete_job {id}, {token}")).await, 60_042);
        run(client, &format!("EXEC dialoq.complete_job {id}, {last}")).await;
        assert_eq!(number(client, &format!("EXEC dialoq.complete_job {id}, {last}")).await, 60_040);
        run(client, "EXEC dialoq.push_job N'w', @body = 0x62").await;
        assert_eq!(one(client, "EXEC dialoq.take_jobs N'w'").await.get("body"), Some(&b"b"[..]));
        assert!(rows(client, "EXEC dialoq.take_jobs N'w'").await.is_empty(), "the take completed it");
    });
}

pub(crate) fn a_state_that_was_seen_counts_without_a_token(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        let client = &mut client;
        assert_eq!(number(client, "EXEC dialoq.cancel_job 1, @seen_state = N'dead'").await, 60_042);
        assert_eq!(number(client, "EXEC dialoq.redrive_job 1, @seen_state = N'dead'").await, 60_042);
        let taken = broker.take_jobs("w").await.unwrap().remove(0);
        broker.fail_job_then(&taken, "broken", AfterFailure::Dead).await.unwrap();
        assert_eq!(number(client, "EXEC dialoq.redrive_job 1, @seen_state = N'taken'").await, 60_042);
        assert_eq!(number(client, "EXEC dialoq.redrive_job 1, @seen_state = N'dead'").await, 0);
        assert_eq!(number(client, "EXEC dialoq.cancel_job 1, @seen_state = N'ready'").await, 0);
    });
}

pub(crate) fn the_attempt_of_a_dead_process_has_failed_and_its_transaction_does_not_commit(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        let (_, token, attempt) = claim(&mut client, 0).await.unwrap();
        assert_eq!(attempt, 1);
        assert!(take(&broker).await.is_empty(), "it is held");
        let complete = format!("EXEC dialoq.complete_job 1, {token}");
        assert_eq!(number(&mut client, &complete).await, 60_043, "by another transaction");
        let own = "BEGIN TRANSACTION; EXEC dialoq.own_jobs '00000000-0000-0000-0000-000000000002';";
        run(&mut client, &format!("{own} EXEC dialoq.report_job 1, {token}, N'half'; COMMIT")).await;
        assert_eq!(number(&mut client, &complete).await, 60_043, "the transaction that has shown itself is over");
        run(&mut client, "EXEC dialoq.tick").await;
        let finish = format!(
            "DECLARE @ids dialoq.job_id_rows; INSERT @ids VALUES (0, 1); EXEC dialoq.finish_held_jobs {DEAD}, @ids"
        );
        assert_eq!(number(&mut client, &finish).await, 60_042);
        let again = take(&broker).await.remove(0);
        assert_eq!(
            (again.attempt, again.last_error.as_deref()),
            (2, Some("its reader ended before its transaction did"))
        );
    });
}

pub(crate) fn a_claim_whose_answer_was_lost_goes_back(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        broker.push_job("w", "b").await.unwrap();
        let (body, token, _) = claim(&mut client, 0).await.unwrap();
        let (again, second, attempt) = claim(&mut client, 0).await.unwrap();
        assert_eq!((again, attempt), (body, 1), "the same job, for the first answer was lost");
        assert!(second > token);
        let (third, _, attempt) = claim(&mut client, second).await.unwrap();
        assert_eq!((&third[..], attempt), (&b"b"[..], 1));
        assert_eq!(claim(&mut client, second + 1).await, None);
        let claim =
            format!("BEGIN TRANSACTION; EXEC dialoq.claim_jobs {DEAD}, 0, N'w', 1, NULL, NULL, NULL, 0, 0, NULL, N''");
        assert_eq!(number(&mut client, &claim).await, 60_005, "a claim is not undone with other work");
    });
}

pub(crate) fn jobs_pushed_into_a_queue_while_it_is_dropped_go_too(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        run(&mut client, "BEGIN TRANSACTION; EXEC dialoq.push_job N'w', @body = 0x61").await;
        broker.execute("DROP WORK QUEUE w").await.unwrap();
        run(&mut client, "COMMIT").await;
        let left = "SELECT (SELECT COUNT(*) FROM dialoq.job), (SELECT COUNT(*) FROM dialoq.dropped_work_queue)";
        let left = async |client: &mut Client| {
            run(client, "EXEC dialoq.tick").await;
            let row = one(client, left).await;
            (row.get::<i32, _>(0).unwrap(), row.get::<i32, _>(1).unwrap())
        };
        assert_eq!(left(&mut client).await, (0, 1), "for a while a verb may still push");
        run(&mut client, "UPDATE dialoq.dropped_work_queue SET dropped_at = DATEADD(minute, -1, dropped_at)").await;
        assert_eq!(left(&mut client).await, (0, 0));
    });
}

pub(crate) fn the_history_keeps_to_its_bounds(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w WITH HISTORY_ROWS = 10, HISTORY_SECONDS = 3600").await.unwrap();
        let kept = async |client: &mut Client| {
            run(client, "EXEC dialoq.tick").await;
            one(client, "SELECT COUNT(*) FROM dialoq.job_history").await.get::<i32, _>(0).unwrap()
        };
        let push = "DECLARE @n int = 0; WHILE @n < 15 BEGIN EXEC dialoq.push_job N'w'; SET @n = @n + 1; END";
        run(&mut client, push).await;
        assert_eq!(rows(&mut client, "EXEC dialoq.take_jobs N'w', 15").await.len(), 15);
        assert_eq!(kept(&mut client).await, 10);
        let age = "UPDATE dialoq.job_history SET finished_at = DATEADD(hour, -2, finished_at) WHERE job_id < 10";
        run(&mut client, age).await;
        assert_eq!(kept(&mut client).await, 6);
        broker.execute("ALTER WORK QUEUE w WITH HISTORY = OFF").await.unwrap();
        run(&mut client, "EXEC dialoq.push_job N'w'").await;
        assert_eq!(take(&broker).await.len(), 1);
        assert_eq!(kept(&mut client).await, 6);
    });
}

pub(crate) fn a_completion_takes_the_next_job_along_or_is_refused_with_it(store: Store) {
    on(store, |broker, mut client| async move {
        with_a_job(&broker).await;
        broker.push_job("w", "b").await.unwrap();
        let client = &mut client;
        let token: i64 = one(client, "EXEC dialoq.take_jobs N'w', @has_lease = 1").await.get("token").unwrap();
        let next = |job: i64, token: i64, take: &str| {
            format!("EXEC dialoq.complete_and_take_job {job}, {token}, NULL, {take}")
        };
        for (take, refusal) in [("N'nowhere'", 60_002), ("N'w', 0", 60_005)] {
            assert_eq!(number(client, &next(1, token, take)).await, refusal);
            run(client, "BEGIN TRANSACTION").await;
            assert_eq!(number(client, &next(1, token, take)).await, refusal);
            run(client, "COMMIT").await;
            let state = one(client, "SELECT state FROM dialoq.job WHERE job_id = 1").await;
            assert_eq!(state.get::<i16, _>(0), Some(2), "{take}: the job is not completed");
        }
        assert_eq!(number(client, &next(1, token + 1, "N'w'")).await, 60_042);
        let taken = one(client, &next(1, token, "N'W', @taken_by = N'r'")).await;
        assert_eq!((taken.get("job_id"), taken.get("body")), (Some(2_i64), Some(&b"b"[..])));
        let token: i64 = taken.get("token").unwrap();
        run(client, "BEGIN TRANSACTION").await;
        assert!(rows(client, &next(2, token, "N'w'")).await.is_empty(), "there is no other job");
        run(client, "ROLLBACK").await;
        assert!(rows(client, &next(2, token, "N'w'")).await.is_empty());
        assert_eq!(number(client, &next(2, token, "N'w'")).await, 60_040);
    });
}

/// Many timers that were due used up each portion of tick: leases and delayed jobs waited for the last of them.
pub(crate) fn timers_that_are_due_leave_room_for_jobs(store: Store) {
    on(store, |broker, mut client| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").run_after(LONG).await.unwrap();
        for _ in 0..8 {
            let handle = dialog(&broker).await;
            broker.timer(handle, LONG).await.unwrap();
        }
        broker.close().await.unwrap();
        run(
            &mut client,
            "UPDATE dialoq.conversation_endpoint SET dialog_timer = SYSUTCDATETIME(), due_at = SYSUTCDATETIME();
            UPDATE dialoq.job SET due_at = SYSUTCDATETIME()",
        )
        .await;
        run(&mut client, "EXEC dialoq.tick 4").await;
        let left =
            "SELECT (SELECT COUNT(*) FROM dialoq.conversation_endpoint WHERE due_at <= SYSUTCDATETIME()) AS timers,
            CAST((SELECT state FROM dialoq.job) AS int) AS state";
        let row = one(&mut client, left).await;
        assert_eq!(
            (row.get("timers"), row.get("state")),
            (Some(4), Some(1)),
            "timers that are left, and the state of the job"
        );
    });
}
