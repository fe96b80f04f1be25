//! `Broker::doctor` finds each fault, one at a time.

use crate::servers::Store;
use crate::{HOUR, Patient, broker, dialog};
use dialoq::status::{FAULT_AGE, Finding, FindingKind};
use dialoq::testing::START;
use dialoq::{Act, Broker, Timestamp};
use std::time::Duration;

/// The only finding, after enough time for it to count.
async fn only(broker: &Patient, kind: FindingKind, subject: &str, amount: u64) -> Finding {
    let found = broker.doctor().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.into_iter().next().unwrap();
    assert_eq!((finding.kind, &*finding.subject, finding.amount), (kind, subject, amount));
    assert!(finding.what.contains(subject) && !finding.advice.is_empty(), "{finding}");
    finding
}

pub(crate) async fn a_healthy_broker_has_no_findings(store: Store) {
    let broker = broker(store).await;
    assert_eq!(broker.doctor().await.unwrap(), []);
    let dialog = dialog(&broker).await;
    let batch = broker.receive("work").await.unwrap().unwrap();
    broker.end(batch.first().handle()).await.unwrap();
    broker.receive("home").await.unwrap().unwrap();
    broker.end(dialog).await.unwrap();
    broker.advance(HOUR);
    assert_eq!(broker.doctor().await.unwrap(), []);
}

pub(crate) async fn services_that_never_end_are_named(store: Store) {
    let broker = broker(store).await;
    for _ in 0..3 {
        let dialog = dialog(&broker).await;
        broker.end(dialog).await.unwrap();
    }
    broker.advance(FAULT_AGE + Duration::from_secs(1));
    only(&broker, FindingKind::WaitingMessages, "work", 6).await;
    while broker.receive("work").await.unwrap().is_some() {}
    let finding = only(&broker, FindingKind::NeverEnded, "worker", 3).await;
    assert!(finding.advice.contains("'work'"), "{finding}");
    assert_eq!(finding.since, Some(START));
}

pub(crate) async fn waiting_messages_count_only_once_they_are_old(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    broker.advance(FAULT_AGE);
    assert_eq!(broker.doctor().await.unwrap(), []);
    broker.advance(Duration::from_micros(1));
    only(&broker, FindingKind::WaitingMessages, "work", 1).await;
    assert_eq!(broker.doctor_after(HOUR).await.unwrap(), []);
}

pub(crate) async fn disabled_queues_and_their_waiting_messages_are_named(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    broker.execute("ALTER QUEUE work WITH STATUS = OFF").await.unwrap();
    only(&broker, FindingKind::DisabledQueue, "work", 1).await;
    dialog(&broker).await;
    only(&broker, FindingKind::DisabledQueue, "work", 2).await;
    broker.execute("ALTER QUEUE work WITH STATUS = ON").await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

/// A disabled broker was no finding: its messages were, once they had waited for five minutes.
pub(crate) async fn a_disabled_broker_is_named(store: Store) {
    let broker = broker(store).await;
    broker.execute("ALTER DATABASE CURRENT SET DISABLE_BROKER").await.unwrap();
    let finding = only(&broker, FindingKind::BrokerDisabled, "broker", 1).await;
    assert!(finding.advice.contains("ENABLE_BROKER"), "{finding}");
    broker.execute("ALTER DATABASE CURRENT SET ENABLE_BROKER").await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

/// A program with a manual clock that was not closed left the clock of the database standing for everyone, and only the log said so.
pub(crate) async fn a_clock_that_stands_still_is_named(store: Store) {
    let broker = broker(store).await;
    assert_eq!(broker.doctor().await.unwrap(), [], "it has stopped the clock itself");
    if !store.is_server() {
        return;
    }
    let other = Broker::open(broker.database.url()).await.unwrap();
    let [finding] = &other.doctor().await.unwrap()[..] else { panic!("one finding is expected") };
    assert_eq!((finding.kind, finding.since), (FindingKind::StoppedClock, Some(START)));
    assert!(finding.advice.contains("dialoq.set_manual_now"), "{finding}");
    other.close().await.unwrap();
}

/// A role with such rights could do what the owner of the tables may, and nothing said that it had them.
pub(crate) async fn a_role_that_may_change_the_tables_is_named(store: Store) {
    let broker = broker(store).await;
    if !store.is_server() {
        assert_eq!(broker.doctor().await.unwrap(), []);
        return;
    }
    broker.database.sql("GRANT SELECT ON dialoq.job TO dialoq_user");
    assert_eq!(broker.doctor().await.unwrap(), [], "reading changes nothing");
    // The view of rights of SQL Server's relative is empty.
    let relative = "SELECT COALESCE(CAST(SERVERPROPERTY('Babelfish') AS int), 0) AS is_relative";
    if store == Store::Mssql
        && broker.query(relative, ()).await.unwrap().rows[0].get::<i64>("is_relative").unwrap() == 1
    {
        return;
    }
    broker
        .database
        .sql("GRANT INSERT, DELETE ON dialoq.job TO dialoq_user; GRANT INSERT ON dialoq.work_queue TO dialoq_user");
    let finding = only(&broker, FindingKind::ForeignPrivileges, "dialoq_user", 2).await;
    assert!(["DELETE", "INSERT"].iter().all(|right| finding.what.contains(right)), "{finding}");
    assert!(finding.advice.contains("dialoq install"), "{finding}");
}

pub(crate) async fn undelivered_messages_come_with_their_status(store: Store) {
    let broker = broker(store).await;
    let dialog = broker.begin_dialog("client", "nowhere").lifetime(100 * HOUR).await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    broker.advance(HOUR);
    let finding = only(&broker, FindingKind::Undelivered, "nowhere", 1).await;
    let status = broker.transmission_status(dialog).await.unwrap();
    assert!(!status.is_empty() && finding.what.contains(&status), "{finding}");
}

pub(crate) async fn quarantined_groups_are_named(store: Store) {
    let broker = broker(store).await;
    broker.execute("ALTER QUEUE work WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON)").await.unwrap();
    let initiator = dialog(&broker).await;
    let mut target = None;
    for _ in 0..5 {
        let tx = broker.begin().await.unwrap();
        let batch = tx.receive("work").await.unwrap();
        target = batch.map(|batch| batch.first().handle());
        tx.rollback().await.unwrap();
    }
    broker.advance(HOUR);
    only(&broker, FindingKind::Quarantined, "work", 1).await;
    // As its advice says; the row of the side that ended last is kept for a while.
    broker.end(initiator).await.unwrap();
    broker.end_with_error(target.expect("it was received"), 42, "not understood").await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

pub(crate) async fn conversations_without_lifetime_are_named(store: Store) {
    let broker = broker(store).await;
    let dialog = broker.begin_dialog("client", "worker").await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    assert!(broker.receive("work").await.unwrap().is_some());
    broker.advance(HOUR);
    let finding = only(&broker, FindingKind::WithoutLifetime, "client", 1).await;
    assert!(finding.what.contains("'worker'"), "{finding}");
}

const MOMENT: Duration = Duration::from_secs(1);

/// A broker with a work queue whose name is no plain word.
async fn with_jobs(store: Store, options: &str) -> Patient {
    let broker = broker(store).await;
    broker.execute(&format!("CREATE WORK QUEUE [night mail]{options}")).await.unwrap();
    broker
}

pub(crate) async fn dead_jobs_are_named_whatever_their_age(store: Store) {
    let broker = with_jobs(store, " WITH MAX_ATTEMPTS = 1").await;
    assert_eq!(broker.doctor().await.unwrap(), []);
    for body in ["a", "b"] {
        broker.push_job("night mail", body).await.unwrap();
        let job = broker.take_jobs("night mail").await.unwrap().remove(0);
        broker.fail_job(&job, "no such address").await.unwrap();
        broker.advance(MOMENT);
    }
    let finding = only(&broker, FindingKind::DeadJobs, "night mail", 2).await;
    assert_eq!(finding.since, Some(START));
    assert_eq!(finding.what, "work queue 'night mail' has 2 dead jobs, the first for 2 s");
    assert!(finding.advice.contains("`dialoq work list 'night mail' --state dead`"), "{finding}");
    assert_eq!(broker.doctor_after(HOUR).await.unwrap(), [finding]);
    broker.redrive_jobs(&dialoq::work::JobFilter::default()).await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), []);
}

pub(crate) async fn a_paused_work_queue_with_ready_jobs_is_named(store: Store) {
    let broker = with_jobs(store, " WITH STATUS = OFF").await;
    broker.push_job("night mail", "later").run_after(HOUR).await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), [], "nothing is ready");
    broker.push_job("night mail", "now").await.unwrap();
    let finding = only(&broker, FindingKind::PausedWorkQueue, "night mail", 1).await;
    assert_eq!(finding.advice, "when the reason is gone, `dialoq work resume 'night mail'`");
    assert_eq!(broker.doctor_after(HOUR).await.unwrap(), [finding]);
    broker.advance(HOUR);
    assert_eq!(only(&broker, FindingKind::PausedWorkQueue, "night mail", 2).await.since, Some(START));
}

pub(crate) async fn jobs_that_no_reader_takes_are_named(store: Store) {
    let broker = with_jobs(store, " WITH RETRY_JITTER_PERCENT = 0").await;
    for body in ["a", "b", "c"] {
        broker.push_job("night mail", body).await.unwrap();
    }
    broker.advance(FAULT_AGE);
    assert_eq!(broker.doctor().await.unwrap(), [], "not older than the patience");
    broker.advance(MOMENT);
    let finding = only(&broker, FindingKind::WaitingJobs, "night mail", 3).await;
    assert_eq!(finding.since, Some(START));
    assert!(finding.advice.contains("`dialoq work run 'night mail' --exec PROGRAM`"), "{finding}");
    assert_eq!(broker.doctor_after(HOUR).await.unwrap(), []);

    // While a reader has one, and for the patience after it was taken, the others only wait.
    let job = broker.take_jobs("night mail").lease(HOUR).await.unwrap().remove(0);
    assert_eq!(broker.doctor().await.unwrap(), [], "a reader works");
    broker.advance(HOUR / 2);
    assert_eq!(broker.doctor().await.unwrap(), [], "it works on");
    broker.complete_job(&job).await.unwrap();
    assert_eq!(broker.doctor().await.unwrap(), [], "it completed one a moment ago");
    broker.advance(FAULT_AGE + MOMENT);
    only(&broker, FindingKind::WaitingJobs, "night mail", 2).await;

    // A failed job is ready since its failure, and its taking shows a reader too.
    let mut jobs = broker.take_jobs("night mail").count(2).await.unwrap();
    for job in &jobs {
        broker.fail_job(job, "the server is busy").await.unwrap();
    }
    broker.advance(MOMENT);
    assert_eq!(broker.doctor().await.unwrap(), []);
    broker.advance(FAULT_AGE + MOMENT);
    only(&broker, FindingKind::WaitingJobs, "night mail", 2).await;
    jobs = broker.take_jobs("night mail").count(2).pop().await.unwrap();
    assert_eq!((jobs.len(), broker.doctor_after(Duration::ZERO).await.unwrap()), (2, Vec::new()));
}

/// The first job of the line pauses after a failure, so readers can take none.
pub(crate) async fn jobs_behind_a_failed_one_of_a_strict_queue_wait_for_no_reader(store: Store) {
    let options =
        " WITH ORDER = FIFO_STRICT, RETRY_JITTER_PERCENT = 0, RETRY_DELAY_MS = 7200000, MAX_RETRY_DELAY_MS = 7200000";
    let broker = with_jobs(store, options).await;
    for body in ["a", "b", "c"] {
        broker.push_job("night mail", body).await.unwrap();
    }
    let job = broker.take_jobs("night mail").await.unwrap().remove(0);
    broker.fail_job(&job, "the server is busy").await.unwrap();
    broker.advance(HOUR);
    assert_eq!(broker.doctor().await.unwrap(), []);
    broker.advance(HOUR + FAULT_AGE + MOMENT);
    only(&broker, FindingKind::WaitingJobs, "night mail", 3).await;
}

/// No process that may change the broker runs, so nothing ends the lease and nothing fires. On a server the process that looks does both.
pub(crate) async fn lost_jobs_and_schedules_that_stand_still_are_named(store: Store) {
    if !matches!(store, Store::Sqlite) {
        return;
    }
    let broker = with_jobs(store, "").await;
    let script = "CREATE WORK SCHEDULE nightly ON WORK QUEUE [night mail] WITH CRON = '@daily';
        CREATE WORK SCHEDULE paused ON WORK QUEUE [night mail] WITH CRON = '@daily', STATUS = OFF";
    broker.execute(script).await.unwrap();
    broker.push_job("night mail", "x").await.unwrap();
    assert_eq!(broker.take_jobs("night mail").await.unwrap().len(), 1);
    assert_eq!(broker.doctor_after(Duration::ZERO).await.unwrap(), []);
    broker.broker.close().await.unwrap();

    let reader = Broker::open_read_only(broker.database.url()).await.unwrap();
    let found = reader.doctor().await.unwrap();
    let kinds: Vec<_> = found.iter().map(|found| (found.kind, &*found.subject, found.amount, found.since)).collect();
    let due = |seconds: i64| Some(Timestamp(START.0 + seconds * 1_000_000));
    let lost = (FindingKind::LostJobs, "night mail", 1, due(60));
    assert_eq!(kinds, [lost, (FindingKind::OverdueSchedule, "nightly", 1, due(86_400))]);
    assert!(found[0].advice.contains("`dialoq work list 'night mail' --state lost`"), "{}", found[0]);
    assert!(found[1].what.contains("of work queue 'night mail'"), "{}", found[1]);
    let explained = reader.explain("night mail").await.unwrap();
    assert!(explained.summary.ends_with("0 taken, 0 scheduled and 1 lost"), "{explained:?}");
    let whats: Vec<_> = explained.reasons.iter().map(|reason| &*reason.what).collect();
    assert_eq!(whats, ["1 job is lost: its lease is over, and its reader has reported nothing"]);
    reader.close().await.unwrap();
}
