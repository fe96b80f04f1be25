//! Work schedules of one database in several processes.

use crate::enlisting::on;
use crate::jobs_locks::connect;
use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::status::FindingKind;
use dialoq::work::JobFilter;
use dialoq::{Act, Broker, Clock, OpenOptions, Timestamp};
use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A database without definitions.
pub(crate) fn in_database<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Database) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(Database::fresh(store)));
}

/// Every process wakes at the same moment, because all follow one clock.
pub(crate) fn many_processes_fire_each_time_once(store: Store) {
    in_database(store, |database| async move {
        let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
        let mut brokers = Vec::new();
        for _ in 0..6 {
            let options = OpenOptions::default().clock(clock.clone());
            brokers.push(Broker::open_with(database.url(), options).await.unwrap());
        }
        let definitions = "CREATE WORK QUEUE w;
            CREATE WORK SCHEDULE hourly ON WORK QUEUE w WITH CRON = '0 * * * *', BODY = '{time}';
            CREATE WORK SCHEDULE all_missed ON WORK QUEUE w WITH CRON = '*/20 * * * *', MISSED = ALL";
        brokers[0].execute(definitions).await.unwrap();
        for hours in 1..=12_usize {
            clock.advance(HOUR);
            // Each has asked the server since the clock moved.
            let asked: Vec<_> = brokers
                .iter()
                .cloned()
                .map(|broker| tokio::spawn(async move { broker.take_jobs("w").job_type("none").await.unwrap() }))
                .collect();
            for one in asked {
                assert!(one.await.unwrap().is_empty());
            }
            let is_done = async || {
                let schedules = brokers[0].work_schedules().await.unwrap();
                schedules.iter().all(|schedule| schedule.next_at.unwrap() > clock.now())
            };
            // Its limit is the case's: a relative on a busy machine is slow.
            while !is_done().await {}
            let jobs = brokers[0].jobs(&JobFilter::default(), 10_000).await.unwrap();
            let by = |writer: &str| jobs.iter().filter(|job| job.pushed_by == writer).count();
            assert_eq!((by("schedule hourly"), by("schedule all_missed")), (hours, 3 * hours), "after {hours} hours");
        }
        for broker in brokers {
            broker.close().await.unwrap();
        }
    });
}

/// The first one counted from the time that the process knew, and was silent until the old time came round.
pub(crate) fn a_schedule_counts_from_a_clock_that_was_set_back(store: Store) {
    in_database(store, |database| async move {
        let broker = Broker::open(database.url()).await.unwrap();
        broker
            .execute("CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '*/10 * * * *'")
            .await
            .unwrap();
        for (now, next, definition) in [
            ("2026-03-28 12:01", "2026-03-28T12:10:00.000Z", "ALTER WORK SCHEDULE s WITH BODY = 'b'"),
            ("2025-03-28 12:01", "2025-03-28T12:05:00.000Z", "ALTER WORK SCHEDULE s WITH CRON = '*/5 * * * *'"),
        ] {
            database.sql(&format!("SELECT dialoq.set_manual_now('{now}Z')"));
            broker.execute(definition).await.unwrap();
            let found = broker.work_schedules().await.unwrap().remove(0).next_at.unwrap().to_string();
            assert_eq!(found, next, "{definition}");
        }
        broker.close().await.unwrap();
    });
}

/// Commands that look report what no process does. They could not if they did it themselves.
pub(crate) fn an_opening_for_reading_leaves_what_is_due(store: Store) {
    in_database(store, |database| async move {
        let broker = Broker::open(database.url()).await.unwrap();
        let definitions = "CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 3 * * *'";
        broker.execute(definitions).await.unwrap();
        broker.push_job("w", "lost").await.unwrap();
        assert_eq!(broker.take_jobs("w").lease(HOUR).await.unwrap().len(), 1);
        broker.close().await.unwrap();
        database.sql(
            "UPDATE dialoq.work_schedule SET next_at = date_trunc('second', now() - interval '1 hour');
             UPDATE dialoq.job SET due_at = now() - interval '1 hour'",
        );
        let reading = Broker::open_read_only(database.url()).await.unwrap();
        // An overdue step would be done among the first of these.
        for _ in 0..20 {
            let found: Vec<FindingKind> = reading.doctor().await.unwrap().iter().map(|finding| finding.kind).collect();
            assert_eq!(found, [FindingKind::LostJobs, FindingKind::OverdueSchedule]);
        }
        reading.close().await.unwrap();
        let is_done = async || {
            let sum = "SELECT (SELECT count(*) FROM dialoq.work_schedule WHERE last_at IS NOT NULL)
                + (SELECT count(*) FROM dialoq.job WHERE state <> 2 AND pushed_by NOT LIKE 'schedule%')";
            database.sql(sum) == "2"
        };
        assert!(!is_done().await);
        // A program that opens the broker for one call is closed before a task beside it has begun.
        let broker = Broker::open(database.url()).await.unwrap();
        assert!(is_done().await, "an opening for changes does it");
        broker.close().await.unwrap();
    });
}

/// Its sessions went on listening, and ran what was due, until the process ended.
pub(crate) fn an_opening_that_is_given_up_leaves_no_session(store: Store) {
    in_database(store, |database| async move {
        let broker = Broker::open(database.url()).await.unwrap();
        let definitions = "CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 3 * * *'";
        broker.execute(definitions).await.unwrap();
        broker.close().await.unwrap();
        database.sql("UPDATE dialoq.work_schedule SET next_at = date_trunc('second', now() - interval '1 hour')");
        // A transaction sees the sessions as they were when it first looked at them.
        let (client, watch) = (connect(database.url()).await, connect(database.url()).await);
        let count = async |which: &str| {
            let text = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {which}");
            watch.query_one(&text, &[]).await.unwrap().get::<_, i64>(0)
        };
        for _ in 0..3 {
            client.batch_execute("BEGIN; LOCK TABLE dialoq.job").await.unwrap();
            tokio::select! {
                opened = Broker::open(database.url()) => panic!("it did not wait: {opened:?}"),
                () = async { while count("wait_event_type = 'Lock'").await == 0 {} } => {}
            }
            client.batch_execute("COMMIT").await.unwrap();
            while count("true").await > 2 {}
        }
    });
}

/// It stood still for every process for ever once a test had used the database.
pub(crate) fn a_database_returns_to_the_time_of_its_server(store: Store) {
    in_database(store, |database| async move {
        let open = async |clock: &Clock| {
            Broker::open_with(database.url(), OpenOptions::default().clock(clock.clone())).await.unwrap()
        };
        let (clock, other) = (Clock::manual(Timestamp(1_000_000)), Clock::manual(Timestamp(7_000_000_000)));
        // A broker lets the time go on from what it has read.
        let is_of = |clock: &Clock, time: Timestamp| time >= clock.now() && time.since(clock.now()) < HOUR;
        let time = async || {
            let looking = Broker::open(database.url()).await.unwrap();
            let now = looking.clock().now();
            looking.close().await.unwrap();
            now
        };
        let (first, second) = (open(&clock).await, open(&clock).await);
        clock.advance(Duration::from_secs(1));
        first.work_queues().await.unwrap();
        first.take_jobs("none").await.unwrap_err();
        first.close().await.unwrap();
        first.close().await.unwrap();
        assert!(is_of(&clock, time().await), "the second broker has that clock");
        second.close().await.unwrap();
        assert!(time().await > Timestamp(1_700_000_000_000_000));
        let again = open(&clock).await;
        assert!(is_of(&clock, time().await));
        let last = open(&other).await;
        again.close().await.unwrap();
        assert!(is_of(&other, time().await), "another clock has set the time since");
        last.close().await.unwrap();
        assert!(time().await > Timestamp(1_700_000_000_000_000));
    });
}

/// A process that has read a schedule before it fired or was altered fires nothing.
pub(crate) fn a_step_is_taken_from_the_row_as_it_was_read(store: Store) {
    on(store, |broker, client, database| async move {
        broker.close().await.unwrap();
        let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
        let broker = Broker::open_with(database.url(), OpenOptions::default().clock(clock)).await.unwrap();
        let definitions = "CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 * * * *'";
        broker.execute(definitions).await.unwrap();
        // The broker's clock stands still, so that it fires nothing itself.
        client.batch_execute("SELECT dialoq.set_manual_now('2026-01-01 01:30:00Z')").await.unwrap();
        let due = client.query("SELECT schedule_id, version FROM dialoq.due_schedules()", &[]).await.unwrap();
        let (id, version): (i32, i64) = (due[0].get(0), due[0].get(1));
        let fire = async |version: i64, due: &str| -> bool {
            let text = format!(
                "SELECT is_fired FROM dialoq.fire_schedule($1, $2, '{due}', '{due}'::timestamptz + interval '1 hour', '{due}', NULL)"
            );
            client.query_one(&text, &[&id, &version]).await.unwrap().get(0)
        };
        let time = "2026-01-01 01:00:00Z";
        let fired = [
            fire(version + 1, time).await,
            fire(version, "2026-01-01 00:00:00Z").await,
            fire(version, time).await,
            fire(version, time).await,
            fire(version, "2026-01-01 02:00:00Z").await,
        ];
        assert_eq!(fired, [false, false, true, false, false]);
        assert_eq!(broker.jobs(&JobFilter::default(), 9).await.unwrap().len(), 1);
        broker.close().await.unwrap();
    });
}

/// A client computes the next time of an ALTER from the clock as it has read it last; meanwhile another process fires that time.
pub(crate) fn an_altered_schedule_repeats_no_time(store: Store) {
    on(store, |broker, client, database| async move {
        broker.close().await.unwrap();
        let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
        let broker = Broker::open_with(database.url(), OpenOptions::default().clock(clock)).await.unwrap();
        broker
            .execute("CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 * * * *'")
            .await
            .unwrap();
        let fire = async |now: &str, due: &str| -> (bool, usize) {
            client.batch_execute(&format!("SELECT dialoq.set_manual_now('{now}')")).await.unwrap();
            let fire = format!(
                "SELECT f.is_fired FROM dialoq.work_schedule AS s CROSS JOIN LATERAL dialoq.fire_schedule(
                    s.schedule_id, s.version, '{due}', '{due}'::timestamptz + interval '1 hour', '{due}', NULL) AS f"
            );
            let is_fired = client.query_one(&fire, &[]).await.unwrap().get(0);
            (is_fired, broker.jobs(&JobFilter::default(), 9).await.unwrap().len())
        };
        assert_eq!(fire("2026-01-01 02:00:00Z", "2026-01-01 01:00:00Z").await, (true, 1));
        assert_eq!(fire("2026-01-01 02:00:00Z", "2026-01-01 02:00:00Z").await, (true, 2));
        // The broker's clock still is at midnight.
        broker.execute("ALTER WORK SCHEDULE s WITH LEVEL = 9").await.unwrap();
        for (due, jobs) in [("01", 2), ("02", 2), ("03", 3)] {
            let due = format!("2026-01-01 {due}:00:00Z");
            assert_eq!(fire("2026-01-01 03:00:00Z", &due).await, (true, jobs), "{due}");
        }
        broker.close().await.unwrap();
    });
}

/// With the real clock: half of the processes leave without a word while the schedule fires.
pub(crate) fn a_process_that_leaves_takes_no_time_with_it(store: Store) {
    in_database(store, |database| async move {
        let broker = Broker::open(database.url()).await.unwrap();
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(Broker::open(database.url()).await.unwrap());
        }
        let definitions = "CREATE WORK QUEUE w;
            CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '* * * * * *', BODY = '{time}', MISSED = ALL";
        others[0].execute(definitions).await.unwrap();
        let mut times = Vec::new();
        while times.len() < 5 {
            let jobs = broker.take_jobs("w").count(100).pop().wait(6 * SOON).await.unwrap();
            assert!(!jobs.is_empty(), "no job came after {times:?}");
            times.extend(jobs.iter().map(|job| String::from_utf8(job.body().to_vec()).unwrap()));
            // The one that defined it first.
            others.drain(..others.len().min(1));
        }
        let seconds: BTreeSet<i64> = times.iter().map(|time| second(time)).collect();
        assert_eq!(seconds.len(), times.len(), "each time fires once: {times:?}");
        let (first, last) = (seconds.first().unwrap(), seconds.last().unwrap());
        assert_eq!(last - first + 1, i64::try_from(seconds.len()).unwrap(), "none is left out: {times:?}");
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_schedule_that_cannot_fire_stops_no_other(store: Store) {
    on(store, |broker, client, database| async move {
        broker.close().await.unwrap();
        let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
        let broker = Broker::open_with(database.url(), OpenOptions::default().clock(clock.clone())).await.unwrap();
        let definitions = "CREATE WORK QUEUE v; CREATE WORK QUEUE w;
            CREATE WORK SCHEDULE a ON WORK QUEUE v WITH CRON = '0 * * * *';
            CREATE WORK SCHEDULE b ON WORK QUEUE w WITH CRON = '0 * * * *';
            CREATE WORK SCHEDULE c ON WORK QUEUE v WITH CRON = '0 * * * *'";
        broker.execute(definitions).await.unwrap();
        client.batch_execute("DELETE FROM dialoq.work_queue WHERE name = 'v'").await.unwrap();
        for hours in 1..=3 {
            clock.advance(HOUR);
            let jobs = broker.take_jobs("w").count(9).pop().wait(SOON).await.unwrap();
            assert_eq!(jobs.len(), 1, "after {hours} hours");
        }
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_step_pushes_the_body_of_its_schedule(store: Store) {
    on(store, |broker, client, database| async move {
        broker.close().await.unwrap();
        let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
        let broker = Broker::open_with(database.url(), OpenOptions::default().clock(clock)).await.unwrap();
        let definitions = "CREATE WORK QUEUE w;
            CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 * * * *', BODY = 'at {time}'";
        broker.execute(definitions).await.unwrap();
        client.batch_execute("SELECT dialoq.set_manual_now('2026-01-01 01:30:00Z')").await.unwrap();
        let due = client.query("SELECT schedule_id, version FROM dialoq.due_schedules()", &[]).await.unwrap();
        let (id, version): (i32, i64) = (due[0].get(0), due[0].get(1));
        let fire = async |next: &str, time: &str, body: &str| -> String {
            let text = format!(
                "SELECT is_fired FROM dialoq.fire_schedule($1, $2, '2026-01-01 01:00:00Z', {next}, {time}, convert_to({body}, 'UTF8'))"
            );
            match client.query_one(&text, &[&id, &version]).await {
                Ok(row) => row.get::<_, bool>(0).to_string(),
                Err(error) => error.as_db_error().unwrap().detail().unwrap_or_default().to_owned(),
            }
        };
        let (next, time) = ("'2026-01-01 02:00:00Z'", "'2026-01-01 01:00:00Z'");
        let right = "'at 2026-01-01T01:00:00Z'";
        assert_eq!(fire(next, time, "'forged'").await, "dialoq 60005");
        assert_eq!(fire(next, time, "NULL").await, "dialoq 60005");
        assert_eq!(fire(next, "NULL", "NULL").await, "dialoq 60005", "only MISSED = SKIP leaves times out");
        assert_eq!(fire("NULL", time, right).await, "dialoq 60005", "every line has another time");
        assert_eq!(fire(next, time, right).await, "true");
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_queue_of_a_schedule_is_not_removed(store: Store) {
    on(store, |broker, client, _| async move {
        let definitions = "CREATE WORK QUEUE w; CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 0 1 1 *'";
        broker.execute(definitions).await.unwrap();
        let remove = "SELECT dialoq.delete_work_queue(queue_id) FROM dialoq.work_queue";
        let refused = client.query(remove, &[]).await.expect_err("a schedule pushes into it");
        assert_eq!(refused.as_db_error().unwrap().detail(), Some("dialoq 3716"));
        broker.execute("DROP WORK SCHEDULE s; DROP WORK QUEUE w").await.unwrap();
    });
}

/// The second of the day of a time such as 2026-01-01T00:00:09Z; a day that ends meanwhile goes on.
fn second(time: &str) -> i64 {
    let part = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
    ((part(8..10) * 24 + part(11..13)) * 60 + part(14..16)) * 60 + part(17..19)
}
