//! Work schedules that are due.

use super::*;
use crate::store::Seen;

/// Leases, timers and delayed jobs waited until all times of all schedules had fired, for seconds after hours without a process.
#[tokio::test(start_paused = true)]
async fn many_missed_times_of_schedules_let_what_else_is_due_come_between() {
    let _limit = crate::testing::limit();
    const MISSED: usize = 300;
    let stage = Stage::new();
    let store = stage.open().await;
    let minute = 60_000_000;
    let first = (store.clock().now().0 / minute - MISSED as i64 + 1) * minute;
    let mut next = first;
    stage.play(move |name, args| match (name, args) {
        ("tick", _) => Some(Ok(vec![row([
            ("did", 0.into()),
            ("due_at", SqlValue::Null),
            ("notices", SqlValue::Null),
            ("has_due_schedules", i64::from(next < first + MISSED as i64 * minute).into()),
        ])])),
        ("due_schedules", _) if next < first + MISSED as i64 * minute => Some(Ok(vec![row([
            ("schedule_id", 1.into()),
            ("name", "each minute".into()),
            ("queue_id", QUEUE.into()),
            ("is_enabled", 1.into()),
            ("cron", "* * * * *".into()),
            ("time_zone", "UTC".into()),
            ("missed", "ALL".into()),
            ("job_type", "".into()),
            ("job_key", SqlValue::Null),
            ("level", 5.into()),
            ("body", "".into()),
            ("version", 1.into()),
            ("next_at", next.into()),
        ])])),
        ("fire_schedule", [_, _, Arg::Time(due), ..]) => {
            assert_eq!(due.0, next, "each time once");
            next += minute;
            Some(Ok(vec![row([("is_fired", true.into()), ("notices", SqlValue::Null)])]))
        }
        _ => None,
    });
    // The paused clock advances when all tasks sleep.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = stage.asked(&["fire_schedule", "tick"]);
    assert!(asked.iter().filter(|name| *name == "fire_schedule").count() >= MISSED);
    let longest = asked.split(|name| name == "tick").map(<[String]>::len).max();
    assert!(longest < Some(MISSED / 2), "{longest:?} times in a row");
}

/// A process that had lost its connection while many times fired took itself for dead, and ended the attempts at its own jobs.
#[tokio::test(start_paused = true)]
async fn a_process_shows_that_it_lives_before_what_is_due_between_times_of_schedules() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "claim_jobs").then(|| Ok(vec![super::jobs::taken()])));
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(super::jobs::take(crate::protocol::work::Hold::Transaction)).await.unwrap();
    let before = stage.asked(&["hold_presence", "tick"]);
    store.database.run_due_between().await;
    assert_eq!(stage.asked(&["hold_presence", "tick"])[before.len()..], ["tick"], "its connection stands");
    stage.has_ended_sessions.store(true, std::sync::atomic::Ordering::SeqCst);
    store.database.run_due_between().await;
    assert_eq!(stage.asked(&["hold_presence", "tick"])[before.len() + 1..], ["hold_presence", "tick"]);
}

/// Where thousands of timers were due, the connection was lost meanwhile, and a tick of the same process ended the attempts at its jobs; work
/// schedules came last.
#[tokio::test]
async fn between_the_portions_of_what_is_due_a_process_shows_that_it_lives_and_fires_schedules() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.until_asked("tick", 1).await;
    let (server, mut portions) = (stage.clone(), 0);
    stage.play(move |name, _| match name {
        "claim_jobs" => Some(Ok(vec![super::jobs::taken()])),
        "tick" => {
            portions += 1;
            server.has_ended_sessions.store(true, std::sync::atomic::Ordering::SeqCst);
            Some(Ok(vec![row([
                ("did", if portions < 3 { 256 } else { 0 }.into()),
                ("due_at", SqlValue::Null),
                ("notices", SqlValue::Null),
                ("has_due_schedules", true.into()),
            ])]))
        }
        _ => None,
    });
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(super::jobs::take(crate::protocol::work::Hold::Transaction)).await.unwrap();
    store.database.tick().await.unwrap();
    let portion = ["tick", "due_schedules", "hold_presence"].map(str::to_owned);
    let asked = stage.asked(&["tick", "due_schedules", "hold_presence"]);
    assert!(asked.ends_with(&[&portion[..], &portion[..], &portion[..2]].concat()), "{asked:?}");
}
