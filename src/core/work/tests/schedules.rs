//! Work schedules. `NOW` is 2027-01-15T08:00:00Z.

use super::*;
use crate::protocol::definition::{Missed, WorkScheduleOptions};

const MINUTE_MS: i64 = 60_000;

fn hourly(missed: Missed) -> WorkScheduleOptions {
    WorkScheduleOptions {
        cron: Some("0 * * * *".into()),
        missed: Some(missed),
        job_type: Some("report".into()),
        body: Some("{time} ok".into()),
        ..WorkScheduleOptions::default()
    }
}

fn define(memory: &mut Memory, definition: Definition, now: Timestamp) -> crate::error::Result<()> {
    let done = memory.submit(vec![Verb::Define(vec![definition])], now).map(drop);
    is_restored(memory, now);
    done
}

/// A broker with a work queue and a schedule.
fn scheduled(options: WorkScheduleOptions) -> Memory {
    let mut memory = broker(&[]);
    let create = Definition::CreateWorkSchedule { name: "s".into(), queue: "w".into(), options };
    define(&mut memory, create, NOW).unwrap();
    memory
}

fn alter(memory: &mut Memory, options: WorkScheduleOptions, now: Timestamp) {
    define(memory, Definition::AlterWorkSchedule { name: "s".into(), options }, now).unwrap();
}

/// The bodies of the jobs so far, after a tick.
fn bodies(memory: &mut Memory, now: Timestamp) -> Vec<String> {
    memory.tick(now);
    is_restored(memory, now);
    let body = |row: &crate::core::JobRow| String::from_utf8(row.body.as_ref().unwrap().to_vec()).unwrap();
    memory.jobs().jobs.values().map(|(row, _)| body(row)).collect()
}

fn times(memory: &Memory) -> (Option<Timestamp>, Option<Timestamp>) {
    *memory.jobs().schedules.values().next().unwrap()
}

#[test]
fn each_time_pushes_one_job() {
    let mut memory = scheduled(hourly(Missed::Once));
    assert_eq!(times(&memory), (Some(after_ms(60 * MINUTE_MS)), None), "the time of its definition is no time to fire");
    assert_eq!(bodies(&mut memory, after_ms(60 * MINUTE_MS - 1)), [""; 0]);
    for _ in 0..2 {
        assert_eq!(bodies(&mut memory, after_ms(60 * MINUTE_MS)), ["2027-01-15T09:00:00Z ok"]);
    }
    assert_eq!(times(&memory), (Some(after_ms(120 * MINUTE_MS)), Some(after_ms(60 * MINUTE_MS))));
    let (row, _) = memory.jobs().jobs.values().next().unwrap();
    assert_eq!((&*row.job_type, &*row.pushed_by, row.level, row.state), ("report", "schedule s", 5, JobState::Ready));
    assert_eq!(bodies(&mut memory, after_ms(125 * MINUTE_MS)).len(), 2);
}

#[test]
fn a_job_of_a_schedule_is_taken_as_any_other() {
    let mut memory =
        scheduled(WorkScheduleOptions { job_key: Some("k".into()), level: Some(9), ..hourly(Missed::Once) });
    memory.tick(after_ms(60 * MINUTE_MS));
    let take = Take {
        queue: "w".into(),
        count: 5,
        job_type: Some("report".into()),
        from: TakeFrom::Any,
        hold: Hold::Lease(None),
        taken_by: "r".into(),
    };
    let Ok(Outcome::Jobs(jobs)) = submit(&mut memory, WorkVerb::Take(Box::new(take)), after_ms(61 * MINUTE_MS)) else {
        panic!("no jobs")
    };
    assert_eq!((jobs.len(), jobs[0].key.as_deref(), jobs[0].level), (1, Some("k"), 9));
}

#[test]
fn times_that_passed() {
    let late = after_ms(250 * MINUTE_MS);
    for (missed, count) in [(Missed::Once, 1), (Missed::Skip, 0), (Missed::All, 4)] {
        let mut memory = scheduled(hourly(missed));
        let found = bodies(&mut memory, late);
        assert_eq!(found.len(), count, "{missed:?}: {found:?}");
        assert!(found.last().is_none_or(|last| last == "2027-01-15T12:00:00Z ok"), "{found:?}");
        assert_eq!(times(&memory).0, Some(after_ms(300 * MINUTE_MS)), "{missed:?}");
        assert_eq!(bodies(&mut memory, late).len(), count, "{missed:?}: once");
    }
}

#[test]
fn a_paused_schedule_does_not_fire_and_makes_nothing_up() {
    let mut memory = scheduled(hourly(Missed::All));
    alter(&mut memory, WorkScheduleOptions { status: Some(false), ..Default::default() }, NOW);
    assert_eq!(times(&memory), (None, None));
    assert_eq!(bodies(&mut memory, after_ms(200 * MINUTE_MS)), [""; 0]);
    alter(&mut memory, WorkScheduleOptions { status: Some(true), ..Default::default() }, after_ms(200 * MINUTE_MS));
    assert_eq!(bodies(&mut memory, after_ms(240 * MINUTE_MS)), ["2027-01-15T12:00:00Z ok"]);
}

#[test]
fn an_altered_schedule_fires_at_its_new_times() {
    let mut memory = scheduled(hourly(Missed::Once));
    let options =
        WorkScheduleOptions { cron: Some("30 * * * *".into()), body: Some("new".into()), ..Default::default() };
    alter(&mut memory, options, NOW);
    assert_eq!(bodies(&mut memory, after_ms(30 * MINUTE_MS)), ["new"]);
    assert_eq!(bodies(&mut memory, after_ms(60 * MINUTE_MS)), ["new"], "and no more at the old ones");
}

#[test]
fn a_clock_that_goes_back_repeats_no_time() {
    let mut memory = scheduled(hourly(Missed::Once));
    assert_eq!(bodies(&mut memory, after_ms(61 * MINUTE_MS)).len(), 1);
    for minute in [10, 59, 60, 119] {
        assert_eq!(bodies(&mut memory, after_ms(minute * MINUTE_MS)).len(), 1, "minute {minute}");
    }
    assert_eq!(bodies(&mut memory, after_ms(120 * MINUTE_MS)).len(), 2);
}

#[test]
fn an_altered_schedule_repeats_no_time() {
    let mut memory = scheduled(hourly(Missed::All));
    assert_eq!(bodies(&mut memory, after_ms(121 * MINUTE_MS)).len(), 2);
    // On servers a client counts from the server's clock as it was read last.
    let back = || WorkScheduleOptions { level: Some(4), ..Default::default() };
    alter(&mut memory, back(), after_ms(59 * MINUTE_MS));
    assert_eq!(times(&memory), (Some(after_ms(60 * MINUTE_MS)), Some(after_ms(120 * MINUTE_MS))));
    assert_eq!(bodies(&mut memory, after_ms(121 * MINUTE_MS)).len(), 2);
    assert_eq!(bodies(&mut memory, after_ms(180 * MINUTE_MS)).len(), 3);
    // A clock that was years ahead keeps no time back.
    assert_eq!(bodies(&mut memory, after_ms(10_000 * 60 * MINUTE_MS)).len(), 1_003, "the last thousand");
    alter(&mut memory, back(), after_ms(239 * MINUTE_MS));
    assert_eq!(bodies(&mut memory, after_ms(240 * MINUTE_MS)).len(), 1_004);
}

#[test]
fn a_queue_with_a_schedule_is_not_dropped() {
    let mut memory = scheduled(hourly(Missed::Once));
    let refused = define(&mut memory, Definition::DropWorkQueue { name: "W".into() }, NOW).unwrap_err();
    assert_eq!(refused.code(), Code::OBJECT_IN_USE);
    assert!(refused.to_string().contains("work schedule 's'"), "{refused}");
    define(&mut memory, Definition::DropWorkSchedule { name: "S".into() }, NOW).unwrap();
    assert_eq!(bodies(&mut memory, after_ms(90 * MINUTE_MS)), [""; 0], "a dropped schedule does not fire");
    assert!(memory.jobs().schedules.is_empty());
    define(&mut memory, Definition::DropWorkQueue { name: "w".into() }, NOW).unwrap();
}

#[test]
fn refused_definitions() {
    let mut memory = scheduled(hourly(Missed::Once));
    let plain = hourly(Missed::Once);
    let long = || Some("x".repeat(129));
    let cases = [
        ("s", "w", plain.clone(), Code::DUPLICATE_NAME),
        ("t", "none", plain.clone(), Code::OBJECT_NOT_FOUND),
        ("", "w", plain.clone(), Code::BAD_NAME),
        ("t", "w", WorkScheduleOptions::default(), Code::SYNTAX),
        ("t", "w", WorkScheduleOptions { cron: Some("0 25 * * *".into()), ..plain.clone() }, Code::BAD_CRON),
        ("t", "w", WorkScheduleOptions { cron: Some("0 0 31 2 *".into()), ..plain.clone() }, Code::BAD_CRON),
        ("t", "w", WorkScheduleOptions { time_zone: Some("Mars/Base".into()), ..plain.clone() }, Code::BAD_CRON),
        ("t", "w", WorkScheduleOptions { cron: Some(" ".repeat(300)), ..plain.clone() }, Code::OUT_OF_RANGE),
        ("t", "w", WorkScheduleOptions { level: Some(11), ..plain.clone() }, Code::OUT_OF_RANGE),
        ("t", "w", WorkScheduleOptions { job_type: long(), ..plain.clone() }, Code::OUT_OF_RANGE),
        ("t", "w", WorkScheduleOptions { job_key: long(), ..plain.clone() }, Code::OUT_OF_RANGE),
        ("t", "w", WorkScheduleOptions { body: Some("x".repeat(65_537)), ..plain.clone() }, Code::OUT_OF_RANGE),
        ("t", "w", WorkScheduleOptions { body: Some("a\0".into()), ..plain.clone() }, Code::OUT_OF_RANGE),
    ];
    for (name, queue, options, code) in cases {
        let create = Definition::CreateWorkSchedule { name: name.into(), queue: queue.into(), options };
        let refused = define(&mut memory, create, NOW).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    let missing = Definition::AlterWorkSchedule { name: "t".into(), options: plain };
    assert_eq!(define(&mut memory, missing, NOW).unwrap_err().code(), Code::OBJECT_NOT_FOUND);
}
