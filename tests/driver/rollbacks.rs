//! Which rollbacks count against a queue, and when.

use crate::servers::{Database, Store};
use crate::stage::{SOON, url};
use dialoq::internals::store::database::link::Driver;
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::{Act, Broker, Code, OpenOptions};
use std::time::Duration;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);";
const IS_ON: &str = "SELECT is_receive_enabled FROM dialoq.service_queue WHERE name = 'server'";
const COUNTED: &str = "SELECT count(*) FROM dialoq.queue_rollback";
/// How long a count waits for another one of its queue.
const TURN: Duration = Duration::from_millis(100);

fn on<F: Future<Output = dialoq::Result<()>>>(store: Store, test: impl FnOnce(Database, Broker) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async {
            let database = Database::fresh(store);
            let broker = Broker::open(database.url()).await?;
            broker.execute(SCRIPT).await?;
            let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
            broker.send(dialog, "Word", "once").await?;
            test(database, broker).await
        })
        .unwrap();
}

pub(crate) fn a_savepoint_that_is_undone_is_no_rollback_while_its_transaction_is_open(store: Store) {
    on(store, |database, broker| async move {
        let tx = broker.begin().await?;
        for _ in 0..6 {
            tx.savepoint("before").await?;
            assert!(tx.receive("server").await?.is_some());
            tx.rollback_to("before").await?;
            // The number of the subtransaction that received is that of an aborted one now.
            database.sql("SELECT * FROM dialoq.tick(500)");
        }
        assert_eq!((database.sql(IS_ON), database.sql(COUNTED)), ("t".to_owned(), "0".to_owned()));
        assert!(tx.receive("server").await?.is_some(), "it is still there");
        tx.commit().await?;
        database.sql("SELECT * FROM dialoq.tick(500)");
        assert_eq!((database.sql(IS_ON), database.sql(COUNTED)), ("t".to_owned(), "0".to_owned()));
        broker.close().await
    });
}

pub(crate) fn a_restored_copy_forgets_transactions_of_another_server(store: Store) {
    on(store, |database, broker| async move {
        database.sql(
            "INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at, receiver_xid)
             SELECT gen_random_uuid(), e.conversation_group_id, s.queue_id, now() AT TIME ZONE 'UTC', '99999999999'::xid8
             FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id",
        );
        database.sql("SELECT * FROM dialoq.tick(500)");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "0");
        assert_eq!(database.sql(COUNTED), "0", "their outcome is unknown");
        broker.close().await
    });
}

/// Receives a message of a queue and gives it back. A background step may hold its group for a moment.
async fn roll_back(broker: &Broker, queue: &str) -> dialoq::Result<()> {
    let tx = broker.begin().await?;
    assert!(tx.receive(queue).wait(SOON).await?.is_some());
    tx.rollback().await
}

/// Waits until the queue is off. A background step may count the last rollback instead of its caller.
fn until_off(database: &Database) {
    let until = std::time::Instant::now() + SOON;
    while database.sql(IS_ON) != "f" {
        assert!(std::time::Instant::now() < until, "the queue stays on");
    }
}

pub(crate) fn an_unfinished_definition_does_not_stop_receivers(store: Store) {
    on(store, |database, broker| async move {
        broker.execute("CREATE QUEUE other; CREATE SERVICE [Other] ON QUEUE other ([Talk]);").await?;
        let dialog = broker.begin_dialog("Asker", "Other").contract("Talk").await?;
        broker.send(dialog, "Word", "twice").await?;
        let definer = PostgresDriver::new(&url(database.url())).unwrap();
        let mut definer = definer.dedicated().await?;
        definer.script("BEGIN; SELECT * FROM dialoq.define_begin(0)").await.unwrap();
        let work = async {
            for _ in 0..5 {
                roll_back(&broker, "server").await?;
            }
            roll_back(&broker, "other").await
        };
        tokio::time::timeout(SOON, work).await.expect("a rollback waits for the definition")?;
        assert_eq!(database.sql(IS_ON), "t", "a definition holds the lock of the change");
        definer.script("ROLLBACK").await.unwrap();
        roll_back(&broker, "server").await?;
        until_off(&database);
        broker.close().await
    });
}

/// A count of a rollback may turn the queue off, for which it locks the definitions to the end of its transaction.
pub(crate) fn a_definition_beside_a_transaction_that_keeps_their_lock_names_it(store: Store) {
    on(store, |database, broker| async move {
        // In place of 15 s.
        database.sql(
            "CREATE OR REPLACE FUNCTION dialoq.holder_check_interval() RETURNS text LANGUAGE sql STABLE AS $$ SELECT '1000' $$",
        );
        let holder = PostgresDriver::new(&url(database.url())).unwrap();
        let mut holder = holder.dedicated().await?;
        holder.script("BEGIN; SELECT * FROM dialoq.define_begin(0)").await.unwrap();
        let refused =
            tokio::time::timeout(3 * SOON, broker.execute("CREATE QUEUE late")).await.expect("it waits without end");
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::STORE_IO, "{refused}");
        assert!(refused.message().contains("could not be locked within 1s: session "), "{refused}");
        // A short limit of the role refuses no definition at once.
        let limited = Broker::open(&format!("{}&options=-c%20lock_timeout%3D100ms", database.url())).await?;
        let refused = limited.execute("CREATE QUEUE late").await.unwrap_err();
        assert!(refused.message().contains("could not be locked within 1s: session "), "{refused}");
        limited.close().await?;
        holder.script("ROLLBACK").await.unwrap();
        broker.execute("CREATE QUEUE late").await?;
        broker.close().await
    });
}

const NOTIFIED: &str = "
    CREATE QUEUE watch; CREATE SERVICE [Watch] ON QUEUE watch
        ([http://schemas.microsoft.com/SQL/Notifications/PostEventNotification]);
    CREATE EVENT NOTIFICATION off ON QUEUE server FOR BROKER_QUEUE_DISABLED TO SERVICE 'Watch', 'current database'";

pub(crate) fn a_queue_is_turned_off_without_the_locks_of_its_conversations(store: Store) {
    on(store, |database, broker| async move {
        broker.execute(NOTIFIED).await?;
        broker.close().await?;
        // For a table of few rows PostgreSQL prefers to read all of them.
        database.sql("ANALYZE dialoq.conversation_endpoint; ANALYZE dialoq.event_notification");
        let held = database.sql(
            "DO $$ BEGIN FOR time IN 1..5 LOOP
                PERFORM dialoq.count_against(q.queue_id, '{}') FROM dialoq.service_queue AS q WHERE q.name = 'server';
            END LOOP; END $$;
            SELECT count(*) FROM dialoq.conversation_endpoint AS e
            JOIN pg_locks AS l ON l.classid::bigint << 32 | l.objid::bigint = dialoq.group_key(e.conversation_group_id)
            WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND NOT e.is_system",
        );
        assert_eq!((held, database.sql(IS_ON)), ("0".to_owned(), "f".to_owned()));
        Ok(())
    });
}

pub(crate) fn a_notification_that_another_session_holds_stops_no_rollback_and_no_definition(store: Store) {
    on(store, |database, broker| async move {
        broker.execute(NOTIFIED).await?;
        let member = PostgresDriver::new(&url(database.url())).unwrap();
        let mut member = member.dedicated().await?;
        let hold = "SELECT pg_advisory_lock(dialoq.group_key(e.conversation_group_id))
            FROM dialoq.conversation_endpoint AS e WHERE e.is_system AND e.is_initiator";
        member.script(hold).await.unwrap();
        let work = async {
            for _ in 0..6 {
                roll_back(&broker, "server").await?;
            }
            broker.execute("CREATE QUEUE another").await
        };
        tokio::time::timeout(SOON, work).await.expect("a session waits for the notification's group")?;
        assert_eq!(database.sql(IS_ON), "t", "another session holds the notification's group");
        member.script("SELECT pg_advisory_unlock_all()").await.unwrap();
        roll_back(&broker, "server").await?;
        until_off(&database);
        assert!(broker.receive("watch").wait(SOON).await?.is_some(), "the notification is sent");
        broker.close().await
    });
}

pub(crate) fn a_receive_that_takes_nothing_forgets_no_rollbacks(store: Store) {
    on(store, |database, broker| async move {
        for _ in 0..4 {
            roll_back(&broker, "server").await?;
        }
        let tx = broker.begin().await?;
        assert!(tx.receive("server").wait(SOON).await?.is_some());
        assert!(broker.receive("server").await?.is_none(), "the transaction holds all there is");
        tx.rollback().await?;
        until_off(&database);
        broker.close().await
    });
}

pub(crate) fn a_rollback_counts_once_although_another_session_holds_one_of_its_groups(store: Store) {
    on(store, |database, broker| async move {
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
        broker.send(dialog, "Word", "twice").await?;
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let (mut one, mut other) = (driver.dedicated().await?, driver.dedicated().await?);
        let receive = "SELECT * FROM dialoq.receive('server', 1);";
        one.script(&format!("BEGIN; {receive} {receive}")).await.unwrap();
        let attempt = "01980000-0000-7000-8000-000000000001";
        database.sql(&format!(
            "SELECT dialoq.begin_attempt('{attempt}', s.queue_id, e.conversation_group_id)
             FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id WHERE s.name = 'Server'"
        ));
        let noted = "SELECT count(*) FROM dialoq.receive_attempt";
        assert_eq!(database.sql(noted), "2", "it has received from two groups");
        one.script("ROLLBACK").await.unwrap();
        other.script(&format!("BEGIN; {receive}")).await.unwrap();
        database.sql(&format!("SELECT * FROM dialoq.count_rollback('{attempt}')"));
        other.script("ROLLBACK").await.unwrap();
        database.sql("SELECT * FROM dialoq.tick(500)");
        assert_eq!((database.sql(COUNTED), database.sql(noted)), ("1".to_owned(), "0".to_owned()));
        Ok(())
    });
}

/// Two processes count the fourth and the fifth rollback, and none sees the row of the other.
pub(crate) fn rollbacks_that_are_counted_at_once_turn_a_queue_off(store: Store) {
    on(store, |database, broker| async move {
        broker.close().await?;
        let count =
            "SELECT dialoq.count_against(q.queue_id, '{}') FROM dialoq.service_queue AS q WHERE q.name = 'server';";
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut one = driver.dedicated().await?;
        let until = std::time::Instant::now() + SOON;
        while database.sql(IS_ON) == "t" {
            assert!(std::time::Instant::now() < until, "the queue stays on after five rollbacks");
            database.sql(&format!("DELETE FROM dialoq.queue_rollback; {count} {count} {count}"));
            let mut other = driver.dedicated().await?;
            one.script(&format!("BEGIN; {count}")).await.unwrap();
            let counting = tokio::spawn(async move {
                let began = std::time::Instant::now();
                other.script(count).await.unwrap();
                began.elapsed()
            });
            tokio::time::sleep(TURN * 6 / 10).await;
            let has_counted = counting.is_finished();
            one.script("COMMIT").await.unwrap();
            let took = counting.await.unwrap();
            // On a slow machine it has gone on without its turn.
            assert!(!has_counted || took >= TURN, "it does not wait for its turn: {took:?}");
        }
        Ok(())
    });
}

/// The server finds losses in any order, and late.
pub(crate) fn losses_of_one_group_count_each_however_late_they_are_found(store: Store) {
    on(store, |database, broker| async move {
        broker.close().await?;
        let group = |letter: char| format!("01980000-0000-7000-8000-00000000000{letter}");
        let lost = |groups: &str| {
            let groups = groups.chars().map(group).collect::<Vec<_>>().join(",");
            database.sql(&format!(
                "SELECT dialoq.count_against(q.queue_id, '{{{groups}}}', NULL, clock_timestamp() - interval '1 hour')
                 FROM dialoq.service_queue AS q WHERE q.name = 'server'"
            ));
        };
        for (losses, counted) in [
            (&["a", "b", "c"][..], "1"),
            (&["a", "b", "a", "b"], "2"),
            (&["b", "a", "a", "b"], "2"),
            (&["b", "a", "a", "a"], "3"),
            (&["ab", "b", "b"], "3"),
            (&["ab", "c", "b"], "2"),
        ] {
            losses.iter().for_each(|groups| lost(groups));
            assert_eq!(database.sql(COUNTED), counted, "{losses:?}");
            database.sql("DELETE FROM dialoq.queue_rollback");
        }
        Ok(())
    });
}

/// One transaction that is lost is an attempt at a message of each queue.
pub(crate) fn a_lost_transaction_counts_for_each_of_its_queues(store: Store) {
    on(store, |database, broker| async move {
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
        for text in ["answered", "waits"] {
            broker.send(dialog, "Word", text).await?;
        }
        let asked = broker.receive("server").top(1).await?.expect("two messages wait");
        broker.send(asked.first().conversation_handle, "Word", "answer").await?;
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        for lost in 1..=2 {
            let receives = "BEGIN; SELECT * FROM dialoq.receive('server', 1); SELECT * FROM dialoq.receive('asker', 1)";
            link.script(receives).await.unwrap();
            let attempt = format!("'01980000-0000-7000-8000-00000000000{lost}'");
            database.sql(&format!(
                "SELECT dialoq.begin_attempt({attempt}, s.queue_id, e.conversation_group_id)
                 FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id"
            ));
            link.script("ROLLBACK").await.unwrap();
            database.sql(&format!("SELECT dialoq.count_loss({attempt})"));
            let counted = "SELECT string_agg(n || ' of ' || name, ', ' ORDER BY name) FROM (
                SELECT q.name, count(*) AS n FROM dialoq.queue_rollback AS r JOIN dialoq.service_queue AS q USING (queue_id)
                GROUP BY q.name) AS c";
            assert_eq!(database.sql(counted), format!("{lost} of asker, {lost} of server"));
        }
        Ok(())
    });
}

/// Another receiver has a group again before the rollback is counted, so tick counts it.
pub(crate) fn rollbacks_that_are_left_to_tick_are_no_losses(store: Store) {
    on(store, |database, broker| async move {
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
        broker.send(dialog, "Word", "twice").await?;
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let attempts = ["01980000-0000-7000-8000-000000000001", "01980000-0000-7000-8000-000000000002"];
        let mut rolled_back = Vec::new();
        for attempt in attempts {
            let mut link = driver.dedicated().await?;
            link.script("BEGIN; SELECT * FROM dialoq.receive('server', 1)").await.unwrap();
            database.sql(&format!(
                "SELECT dialoq.begin_attempt('{attempt}', s.queue_id, e.conversation_group_id)
                 FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
                 WHERE s.name = 'Server'"
            ));
            rolled_back.push(link);
        }
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "2");
        for link in &mut rolled_back {
            link.script("ROLLBACK").await.unwrap();
        }
        let mut holder = driver.dedicated().await?;
        let receive = "SELECT * FROM dialoq.receive('server', 1);";
        holder.script(&format!("BEGIN; {receive} {receive}")).await.unwrap();
        for attempt in attempts {
            database.sql(&format!("SELECT * FROM dialoq.count_rollback('{attempt}')"));
        }
        assert_eq!(database.sql(COUNTED), "0", "their groups are held");
        holder.script("ROLLBACK").await.unwrap();
        database.sql("SELECT * FROM dialoq.tick(500)");
        assert_eq!(database.sql(COUNTED), "2");
        Ok(())
    });
}

/// What is left of a dropped queue would be read by each commit of a claim of every other queue.
pub(crate) fn a_dropped_queue_leaves_no_rollbacks(store: Store) {
    on(store, |database, broker| async move {
        roll_back(&broker, "server").await?;
        // A background step may count it instead of its caller.
        let until = std::time::Instant::now() + SOON;
        while database.sql(COUNTED) != "1" {
            assert!(std::time::Instant::now() < until, "it is not counted");
        }
        broker.execute("DROP SERVICE [Server]; DROP QUEUE server").await?;
        assert_eq!(database.sql(COUNTED), "0");
        broker.close().await
    });
}

/// Receives and commits until the process notes a RECEIVE only if its transaction stays open.
async fn receive_often(broker: &Broker) -> dialoq::Result<()> {
    for _ in 0..300 {
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
        broker.send(dialog, "Word", "often").await?;
        let tx = broker.begin().await?;
        assert!(tx.receive("server").wait(SOON).await?.is_some());
        tx.commit().await?;
    }
    Ok(())
}

pub(crate) fn rollbacks_count_without_a_note_made_at_once(store: Store) {
    on(store, |database, broker| async move {
        broker.close().await?;
        // A slow machine may keep a transaction open until it is old enough for a note.
        let options = OpenOptions::default().note_after(Duration::from_secs(3600));
        let broker = Broker::open_with(database.url(), options).await?;
        receive_often(&broker).await?;
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "0");
        broker.send(broker.begin_dialog("Asker", "Server").contract("Talk").await?, "Word", "last").await?;
        for _ in 0..4 {
            roll_back(&broker, "server").await?;
        }
        let tx = broker.begin().await?;
        assert!(tx.receive("server").wait(SOON).await?.is_some());
        tx.commit().await?;
        assert_eq!(database.sql(COUNTED), "0", "a commit ends the rollbacks in a row");
        broker.send(broker.begin_dialog("Asker", "Server").contract("Talk").await?, "Word", "last").await?;
        for _ in 0..5 {
            roll_back(&broker, "server").await?;
        }
        until_off(&database);
        broker.close().await
    });
}

pub(crate) fn a_commit_that_a_deferred_constraint_refuses_is_a_rollback(store: Store) {
    on(store, |database, broker| async move {
        receive_often(&broker).await?;
        database.sql(
            "CREATE TABLE parent (id bigint PRIMARY KEY);
             CREATE TABLE child (parent bigint REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
        );
        broker.send(broker.begin_dialog("Asker", "Server").contract("Talk").await?, "Word", "last").await?;
        for _ in 0..5 {
            let tx = broker.begin().await?;
            assert!(tx.receive("server").wait(SOON).await?.is_some());
            tx.sql("INSERT INTO child VALUES (1)", ()).await?;
            let refused = tx.commit().await.expect_err("the parent is missing");
            assert_eq!(refused.code(), dialoq::Code::USER_SQL_FAILED, "{refused}");
        }
        until_off(&database);
        assert_eq!(database.sql("SELECT count(*) FROM child"), "0");
        broker.close().await
    });
}

/// A rollback that is counted late lets another reader receive its messages again, without the pause.
pub(crate) fn a_refused_commit_counts_before_others_receive(store: Store) {
    on(store, |database, broker| async move {
        database.sql(
            "CREATE TABLE parent (id bigint PRIMARY KEY);
             CREATE TABLE child (parent bigint REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
        );
        broker.execute("ALTER QUEUE server WITH RETRY (MAX_ATTEMPTS = 3, DELAY_MS = 600000)").await?;
        broker.receive("server").wait(SOON).await?.expect("that of every test");
        // The receives of a process are noted at once, and later only if their transaction stays open.
        for is_noted in [true, false] {
            if !is_noted {
                receive_often(&broker).await?;
            }
            for _ in 0..60 {
                broker.send(broker.begin_dialog("Asker", "Server").contract("Talk").await?, "Word", "refused").await?;
            }
            let read = || async {
                let mut received = 0;
                loop {
                    let tx = broker.begin().await?;
                    if tx.receive("server").await?.is_none() {
                        return Ok::<i32, dialoq::Error>(received);
                    }
                    received += 1;
                    tx.sql("INSERT INTO child VALUES (1)", ()).await?;
                    tx.commit().await.expect_err("the parent is missing");
                }
            };
            let (a, b, c, d) = tokio::try_join!(read(), read(), read(), read())?;
            assert_eq!(a + b + c + d, 60, "noted at once: {is_noted}; once each, and then they pause");
        }
        broker.close().await
    });
}
