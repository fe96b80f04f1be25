//! Work schedules: jobs that the broker pushes at certain times. Ours. The clock begins at 2026-01-01T00:00:00Z.

use crate::rig::{Rig, code};
use dialoq::work::{Job, JobFilter, WorkScheduleStatus};
use dialoq::{Act, Code, Result, Timestamp};
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A broker with a work queue `w` and a schedule `s` with these options.
async fn with(t: &Rig, options: &str) -> Result<()> {
    t.define(&format!("CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH {options}")).await.map(drop)
}

/// The jobs that were pushed so far, all of which are taken by this.
async fn jobs(t: &Rig) -> Result<Vec<Job>> {
    t.broker.take_jobs("w").count(10_000).pop().await
}

async fn bodies(t: &Rig) -> Result<Vec<String>> {
    Ok(jobs(t).await?.iter().map(|job| String::from_utf8(job.body().to_vec()).unwrap()).collect())
}

async fn schedule(t: &Rig) -> Result<WorkScheduleStatus> {
    Ok(t.broker.work_schedules().await?.remove(0))
}

fn at(text: &str) -> Option<Timestamp> {
    let time =
        (0..).step_by(1_000_000).map(|us| Timestamp(1_767_225_600_000_000 + us)).find(|at| at.to_string() == text);
    Some(time.unwrap())
}

case!(a_schedule_pushes_a_job_at_each_time, [262], async |t| {
    let options = "CRON = '0 3 * * *', TIME_ZONE = 'Europe/Berlin', JOB_TYPE = 'report', JOB_KEY = 'k', LEVEL = 8, BODY = 'for {time}'";
    with(&t, options).await?;
    t.advance(2 * HOUR - 1).await?;
    assert!(jobs(&t).await?.is_empty());
    t.advance(1).await?;
    let found = jobs(&t).await?;
    let [job] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*job.job_type, job.key.as_deref(), job.level, job.pushed_at), ("report", Some("k"), 8, t.now()));
    assert_eq!((job.body(), &*job.pushed_by), (&b"for 2026-01-01T02:00:00Z"[..], "schedule s"));
    for day in 2..=4 {
        t.advance(DAY).await?;
        assert_eq!(bodies(&t).await?, [format!("for 2026-01-0{day}T02:00:00Z")]);
    }
    t.advance(HOUR).await?;
    assert!(jobs(&t).await?.is_empty());
});

case!(schedules_can_be_seen_with_their_times, [262], async |t| {
    with(&t, "CRON = '*/5 * * * *', TIME_ZONE = 'america/new_york'").await?;
    let seen = schedule(&t).await?;
    assert_eq!((&*seen.name, &*seen.queue, &*seen.cron, &*seen.missed), ("s", "w", "*/5 * * * *", "ONCE"));
    assert_eq!((&*seen.time_zone, seen.is_enabled, seen.level, seen.key), ("America/New_York", true, 5, None));
    assert_eq!((seen.next_at, seen.last_at), (at("2026-01-01T00:05:00.000Z"), None));
    t.advance(7 * MINUTE).await?;
    let seen = schedule(&t).await?;
    assert_eq!((seen.next_at, seen.last_at), (at("2026-01-01T00:10:00.000Z"), at("2026-01-01T00:05:00.000Z")));
});

case!(a_time_that_was_fired_is_not_fired_again_by_a_restart, [263], async |t| {
    with(&t, "CRON = '0 * * * *', BODY = '{time}'").await?;
    t.advance(HOUR).await?;
    assert_eq!(bodies(&t).await?, ["2026-01-01T01:00:00Z"]);
    let t = t.restart_after(30 * MINUTE).await?;
    assert!(jobs(&t).await?.is_empty());
    t.advance(30 * MINUTE).await?;
    assert_eq!(bodies(&t).await?, ["2026-01-01T02:00:00Z"], "the schedule outlives the broker");
});

case!(times_that_passed_while_the_broker_was_closed, [263], async |t| {
    let hours = |from: u32| (from..=4).map(|hour| format!("2026-01-01T0{hour}:00:00Z")).collect::<Vec<_>>();
    let mut t = t;
    for (missed, right) in [("ONCE", hours(4)), ("SKIP", vec![]), ("ALL", hours(1))] {
        let bare = t.bare().await?;
        with(&bare, &format!("CRON = '0 * * * *', BODY = '{{time}}', MISSED = {missed}")).await?;
        t = bare.restart_after(4 * HOUR + 10 * MINUTE).await?;
        t.advance(0).await?;
        assert_eq!(bodies(&t).await?, right, "{missed}");
        assert_eq!(schedule(&t).await?.next_at, at("2026-01-01T05:00:00.000Z"), "{missed}");
    }
});

case!(a_paused_schedule_pushes_nothing_and_makes_nothing_up, [264], async |t| {
    with(&t, "CRON = '0 * * * *', BODY = '{time}', MISSED = ALL, STATUS = OFF").await?;
    assert_eq!(schedule(&t).await?.next_at, None);
    t.advance(3 * HOUR).await?;
    t.define("ALTER WORK SCHEDULE S WITH STATUS = ON").await?;
    assert!(jobs(&t).await?.is_empty());
    t.advance(HOUR).await?;
    assert_eq!(bodies(&t).await?, ["2026-01-01T04:00:00Z"]);
    t.define("ALTER WORK SCHEDULE s WITH CRON = '30 * * * *', BODY = ''").await?;
    t.advance(30 * MINUTE).await?;
    let found = jobs(&t).await?;
    assert_eq!((found.len(), found[0].body()), (1, &b""[..]));
    t.define("DROP WORK SCHEDULE s").await?;
    t.advance(HOUR).await?;
    assert!(jobs(&t).await?.is_empty());
    assert!(t.broker.work_schedules().await?.is_empty());
});

case!(a_paused_queue_gets_the_jobs_of_its_schedules, [264], async |t| {
    with(&t, "CRON = '0 * * * *'").await?;
    t.define("ALTER WORK QUEUE w WITH STATUS = OFF").await?;
    t.advance(HOUR).await?;
    assert_eq!(t.broker.jobs(&JobFilter::default(), 9).await?.len(), 1);
    assert!(jobs(&t).await?.is_empty());
});

case!(unusable_schedules_are_refused, [265], async |t| {
    with(&t, "CRON = '0 * * * *'").await?;
    let create = |name: &str, options: &str| format!("CREATE WORK SCHEDULE {name} ON WORK QUEUE w WITH {options}");
    let cases = [
        (create("a", "CRON = '0 25 * * *'"), Code::BAD_CRON),
        (create("a", "CRON = '0 0 31 2 *'"), Code::BAD_CRON),
        (create("a", "CRON = '@daily', TIME_ZONE = 'Europe/Bern'"), Code::BAD_CRON),
        (create("a", "CRON = '@daily', TIME_ZONE = 'Etc/Unknown'"), Code::BAD_CRON),
        (create("a", "MISSED = ALL"), Code::SYNTAX),
        (create("a", "CRON = '@daily', LEVEL = 0"), Code::OUT_OF_RANGE),
        (create("S", "CRON = '@daily'"), Code::DUPLICATE_NAME),
        ("CREATE WORK SCHEDULE a ON WORK QUEUE none WITH CRON = '@daily'".to_owned(), Code::OBJECT_NOT_FOUND),
        ("ALTER WORK SCHEDULE s WITH CRON = 'x'".to_owned(), Code::BAD_CRON),
        ("ALTER WORK SCHEDULE a WITH STATUS = ON".to_owned(), Code::OBJECT_NOT_FOUND),
        ("DROP WORK SCHEDULE a".to_owned(), Code::OBJECT_NOT_FOUND),
        ("DROP WORK QUEUE w".to_owned(), Code::OBJECT_IN_USE),
    ];
    for (script, right) in cases {
        assert_eq!(code(t.define(&script).await), right.0, "{script}");
    }
    let refused = t.define("ALTER WORK SCHEDULE s WITH CRON = '0 25 * * *'").await.unwrap_err().to_string();
    assert!(refused.contains("field 2 (hour) is '25', at character 3"), "{refused}");
    t.advance(HOUR).await?;
    assert_eq!(jobs(&t).await?.len(), 1, "nothing has changed");
});

case!(a_schedule_wakes_a_waiting_reader, [266], async |t| {
    with(&t, "CRON = '0 * * * *'").await?;
    let broker = t.broker.clone();
    let mut reader = Box::pin(async move { broker.take_jobs("w").wait(Duration::from_secs(2 * HOUR)).await });
    t.still_waits(&mut reader).await;
    t.advance(HOUR).await?;
    assert_eq!(reader.await?.len(), 1);
});
