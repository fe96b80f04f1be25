//! Hosts whose clocks are wrong.

use crate::servers::Store;
use crate::{Database, SOON, TEXT, broker, dialog, on};
use dialoq::work::{WorkDone, WorkQueue};
use dialoq::{Act, Broker, Clock, OpenOptions};
use std::time::{Duration, Instant};

const YEAR_SECONDS: i64 = 365 * 86_400;

pub(crate) fn a_host_whose_clock_is_wrong_changes_nothing(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let right = broker(database.url()).await?;
        for wrong_by in [YEAR_SECONDS, -YEAR_SECONDS] {
            let options = OpenOptions::default().clock(Clock::wrong_by(wrong_by));
            let wrong = Broker::open_with(database.url(), options).await?;
            // Begun here and there, neither has come to its end, whatever the other's clock says.
            let by_right =
                right.begin_dialog("Asker", "Server").contract("C").lifetime(Duration::from_secs(3600)).await?;
            let by_wrong =
                wrong.begin_dialog("Asker", "Server").contract("C").lifetime(Duration::from_secs(3600)).await?;
            right.timer(by_right, Duration::from_secs(1800)).await?;
            let soon = dialog(&wrong).await?;
            wrong.timer(soon, Duration::from_secs(1)).await?;
            // The timer that is due comes, by the server's clock, and nothing that is not.
            let batch = right.receive("asker").wait(SOON).await?.expect("a timer is due");
            assert_eq!((batch.len(), batch.first().handle()), (1, soon));
            for (broker, handle) in [(&wrong, by_right), (&right, by_wrong)] {
                broker.send(handle, TEXT, "still open").await?;
                let batch = broker.receive("server").wait(SOON).await?.expect("it was sent");
                assert_eq!(batch.first().decode(TEXT)?, "still open");
            }
            assert!(right.receive("asker").await?.is_none());
            wrong.close().await?;
        }
        Ok(())
    });
}

/// What a host that is alone with its wrong clock may take for a second; it polls after a minute in any case.
const ABOUT_A_SECOND: Duration = Duration::from_secs(20);

pub(crate) fn a_clock_that_jumps_delays_no_timer_and_no_wait(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        broker(database.url()).await?.close().await?;
        for (wrong_by, jump) in [(-YEAR_SECONDS, 0), (0, YEAR_SECONDS), (0, -YEAR_SECONDS)] {
            let clock = Clock::wrong_by(wrong_by);
            let host = Broker::open_with(database.url(), OpenOptions::default().clock(clock.clone())).await?;
            let handle = dialog(&host).await?;
            let waiting = {
                let host = host.clone();
                tokio::spawn(async move { host.receive("server").wait(Duration::from_secs(1)).await })
            };
            while host.sessions_waiting("server") == 0 {
                tokio::task::yield_now().await;
            }
            clock.jump(jump);
            let began = Instant::now();
            host.timer(handle, Duration::from_secs(1)).await?;
            // No other host attends to it.
            let batch = host.receive("asker").wait(SOON).await?.expect("the timer is due");
            assert_eq!(batch.first().handle(), handle);
            assert!(batch.first().is_dialog_timer());
            assert!(waiting.await.expect("no panic")?.is_none());
            let took = began.elapsed();
            assert!(took < ABOUT_A_SECOND, "{took:?}, wrong by {wrong_by}, put forward by {jump}");
            // This host takes the time from the server.
            let now = match store {
                Store::Mssql => "SELECT DATEDIFF_BIG(microsecond, '1970-01-01', SYSUTCDATETIME()) AS now",
                _ => "SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now",
            };
            let server = host.query(now, ()).await?;
            let apart = (server.rows[0].get::<i64>("now")? - host.clock().now().0).abs();
            assert!(apart < 60_000_000, "{apart} us apart");
            host.close().await?;
        }
        Ok(())
    });
}

/// Its reader learns the time of the server up to a minute later. It took the lease for one that begins in an hour.
pub(crate) fn a_server_whose_clock_jumps_ends_no_lease_of_a_handler_that_begins_then(store: Store) {
    on(async move {
        const W: WorkQueue<String> = WorkQueue::text("w");
        // A third of it is a heartbeat; a machine that stands still for the other two thirds loses it.
        const LEASE: Duration = Duration::from_secs(6);
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await?;
        broker.execute("CREATE WORK QUEUE w WITH LEASE_MS = 6000").await?;
        let worker = broker.worker(W, async |_, _| {
            // The heartbeat goes by time: the lease is lost if the handler outlasts it without one.
            tokio::time::sleep(2 * LEASE).await;
            Ok::<_, String>(())
        });
        let running = worker.start();
        let jump = "update dialoq.broker set manual_now = clock_timestamp() + interval '1 hour'";
        broker.sql(jump, ()).await?;
        broker.push_job(W, &"a".to_owned()).await?;
        // The server's clock is a value here, which has to go on.
        while running.done() == WorkDone::default() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            broker.sql(jump, ()).await?;
        }
        let done = running.stop().await;
        assert_eq!((done.completed, done.lost), (1, 0));
        broker.close().await
    });
}
