//! Rollbacks that are counted late: of statements that are given up, and by tick.

use crate::servers::{Database, Store};
use crate::stage::{SOON, url};
use dialoq::internals::store::database::link::{Driver, Link};
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::{Act, Broker};

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);";
const LETTERS: &str = "SELECT count(*) FROM dialoq.dead_letter";

/// A queue with that policy, in which three messages of one conversation wait.
fn with_policy<F: Future<Output = dialoq::Result<()>>>(
    store: Store,
    policy: &str,
    test: impl FnOnce(Database, Broker) -> F,
) {
    with_queue(store, &format!("RETRY ({policy})"), test);
}

/// The same of a queue with those options.
fn with_queue<F: Future<Output = dialoq::Result<()>>>(
    store: Store,
    options: &str,
    test: impl FnOnce(Database, Broker) -> F,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async {
            let database = Database::fresh(store);
            let broker = Broker::open(database.url()).await?;
            broker.execute(SCRIPT).await?;
            broker.execute(&format!("ALTER QUEUE server WITH {options}")).await?;
            let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
            for text in ["first", "second", "third"] {
                broker.send(dialog, "Word", text).await?;
            }
            test(database, broker).await
        })
        .unwrap();
}

/// The next message that waits.
async fn next(broker: &Broker) -> dialoq::Result<String> {
    let batch = broker.receive("server").top(1).wait(SOON).await?.expect("a message waits");
    Ok(String::from_utf8_lossy(batch.first().body()).into_owned())
}

/// Of that attempt, quoted.
fn id(attempt: u32) -> String {
    format!("'01980000-0000-7000-8000-00000000000{attempt}'")
}

/// A receiver that was killed: plain SQL receives, is noted under this id, and rolls back. Nothing counts it.
async fn killed(database: &Database, link: &mut dyn Link, attempt: u32) {
    link.script("BEGIN; SELECT * FROM dialoq.receive('server', 1)").await.unwrap();
    database.sql(&format!(
        "SELECT dialoq.begin_attempt({}, s.queue_id, e.conversation_group_id)
         FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
         WHERE s.name = 'Server'",
        id(attempt)
    ));
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), attempt.to_string());
    link.script("ROLLBACK").await.unwrap();
}

fn count_all(database: &Database) {
    while database.sql("SELECT count(*) FROM dialoq.receive_attempt") != "0" {
        database.sql("SELECT * FROM dialoq.tick(500)");
    }
}

/// A conversation was received a hundred times in a minute, without its pauses, and its reason was lost.
pub(crate) fn a_rollback_with_a_statement_under_way_counts_before_others_receive(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 4, DELAY_MS = 3600000, THEN = DEAD_LETTER", |database, broker| async move {
        broker.close().await?;
        let broker = Broker::open(&format!("{}&pool_size=3", database.url())).await?;
        let give_up = async || {
            let tx = broker.begin().await?;
            assert!(tx.receive("server").top(1).wait(SOON).await?.is_some());
            // It is given up once the server is at it.
            let hangs = async {
                let at_it = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
                while database.sql(at_it) == "0" {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                slept = tx.query("SELECT pg_sleep(600)", ()) => panic!("it ended: {slept:?}"),
                () = hangs => {}
            }
            tx.rollback_because("the handler hangs").await
        };
        let counted = async |sql: &str, count: &str| {
            while database.sql(sql) != count {
                tokio::task::yield_now().await;
            }
        };
        let plainly = async || {
            let tx = broker.begin().await?;
            assert!(tx.receive("server").top(1).wait(SOON).await?.is_some());
            tx.rollback_because("it fails").await
        };
        for attempt in 1..=3 {
            let (other, attempts) = (broker.clone(), attempt.to_string());
            let receives = async move { other.receive("server").top(1).wait(SOON).await };
            // By turns, because both counts go by connections of the pool.
            if attempt % 2 == 1 {
                give_up().await?
            } else {
                plainly().await?
            };
            tokio::select! {
                biased;
                received = receives => panic!("before the pause after attempt {attempt}: {received:?}"),
                () = counted("SELECT max(rollbacks) FROM dialoq.conversation_endpoint", &attempts) => {}
            }
            database.sql(
                "UPDATE dialoq.conversation_endpoint SET retry_at = now(), due_at = now() WHERE retry_at IS NOT NULL",
            );
        }
        give_up().await?;
        counted(LETTERS, "1").await;
        assert_eq!(database.sql("SELECT reason FROM dialoq.dead_letter"), "the handler hangs");
        assert_eq!(next(&broker).await?, "second");
        broker.close().await
    });
}

/// It was counted against the next message, which no reader had seen.
pub(crate) fn a_late_count_of_a_message_that_was_handled_since_is_none(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 1, THEN = DEAD_LETTER", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        killed(&database, &mut *link, 1).await;
        link.script("SELECT * FROM dialoq.receive('server', 1)").await.unwrap();
        count_all(&database);
        assert_eq!(database.sql(LETTERS), "0");
        let broker = Broker::open(database.url()).await?;
        assert_eq!(next(&broker).await?, "second");
        broker.close().await
    });
}

/// It died again at once, although no reader had received it since.
pub(crate) fn a_redriven_letter_has_no_late_counts(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 2, THEN = DEAD_LETTER", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        for attempt in 1..=3 {
            killed(&database, &mut *link, attempt).await;
        }
        // While their rows are locked the first two are left for later.
        link.script(&format!("BEGIN; SELECT FROM dialoq.receive_attempt WHERE attempt_id <> {} FOR UPDATE", id(3)))
            .await
            .unwrap();
        database.sql("UPDATE dialoq.service_queue SET retry_max_attempts = 1 WHERE name = 'server'");
        database.sql(&format!("SELECT dialoq.count_rollback({})", id(3)));
        assert_eq!(database.sql(LETTERS), "1");
        link.script("COMMIT").await.unwrap();
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "2");
        database.sql("SELECT dialoq.redrive_dead_letter(queuing_order) FROM dialoq.dead_letter");
        count_all(&database);
        assert_eq!(database.sql(LETTERS), "0");
        let broker = Broker::open(database.url()).await?;
        assert_eq!(next(&broker).await?, "first");
        broker.close().await
    });
}

/// One at the message behind it was counted for the group, and the letter died after one attempt of two.
pub(crate) fn a_redriven_letter_has_no_late_counts_of_its_group(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 2, THEN = DEAD_LETTER", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        for attempt in 1..=2 {
            killed(&database, &mut *link, attempt).await;
        }
        count_all(&database);
        assert_eq!(database.sql(LETTERS), "1");
        killed(&database, &mut *link, 1).await;
        database.sql("SELECT dialoq.redrive_dead_letter(queuing_order) FROM dialoq.dead_letter");
        count_all(&database);
        assert_eq!(database.sql("SELECT max(rollbacks) FROM dialoq.conversation_endpoint"), "0");
        let broker = Broker::open(database.url()).await?;
        assert_eq!(next(&broker).await?, "first");
        broker.close().await
    });
}

/// One was counted for the group, which had one attempt less.
pub(crate) fn a_group_out_of_quarantine_has_no_late_counts(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 2, THEN = QUARANTINE", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        for attempt in 1..=3 {
            killed(&database, &mut *link, attempt).await;
        }
        // While its row is locked it is left for later.
        let locks = format!("BEGIN; SELECT FROM dialoq.receive_attempt WHERE attempt_id = {} FOR UPDATE", id(3));
        link.script(&locks).await.unwrap();
        database.sql(&format!("SELECT dialoq.count_rollback({})", id(1)));
        link.script("COMMIT").await.unwrap();
        let releases = "SELECT count(*) FROM dialoq.conversation_endpoint AS e
            CROSS JOIN LATERAL dialoq.release_quarantine(e.conversation_group_id) WHERE e.is_quarantined";
        assert_eq!(database.sql(releases), "1");
        count_all(&database);
        assert_eq!(database.sql("SELECT max(rollbacks) FROM dialoq.conversation_endpoint"), "0");
        Ok(())
    });
}

/// Each of them was left for later, while the next reader had the group already.
pub(crate) fn a_count_takes_those_before_it_at_the_message_along(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 4, DELAY_MS = 3600000, THEN = DEAD_LETTER", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        for attempt in 1..=3 {
            killed(&database, &mut *link, attempt).await;
        }
        database.sql(&format!("SELECT dialoq.count_rollback({})", id(2)));
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "0");
        assert_eq!(database.sql("SELECT max(rollbacks) FROM dialoq.conversation_endpoint"), "3");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.conversation_endpoint WHERE retry_at IS NOT NULL"), "1");
        Ok(())
    });
}

/// A message was received eight times and more, of five that lead to quarantine.
pub(crate) fn a_count_takes_those_before_it_at_the_message_along_into_quarantine(store: Store) {
    with_queue(store, "POISON_MESSAGE_HANDLING (QUARANTINE = ON)", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        for attempt in 1..=5 {
            killed(&database, &mut *link, attempt).await;
        }
        database.sql(&format!("SELECT dialoq.count_rollback({})", id(2)));
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "0");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.conversation_endpoint WHERE is_quarantined"), "1");
        Ok(())
    });
}

/// The policy of the queue before was applied: the message was a dead letter although its queue has none.
pub(crate) fn a_late_count_of_a_service_with_another_queue_is_none(store: Store) {
    for policy in ["MAX_ATTEMPTS = 1, THEN = DEAD_LETTER", "MAX_ATTEMPTS = 9, DELAY_MS = 3600000"] {
        with_policy(store, policy, |database, broker| async move {
            broker.execute("CREATE QUEUE other").await?;
            broker.close().await?;
            let driver = PostgresDriver::new(&url(database.url())).unwrap();
            let mut link = driver.dedicated().await?;
            killed(&database, &mut *link, 1).await;
            // While its row is locked it is left for later.
            link.script("BEGIN; SELECT FROM dialoq.receive_attempt FOR UPDATE").await.unwrap();
            let broker = Broker::open(database.url()).await?;
            broker.execute("ALTER SERVICE [Server] ON QUEUE other").await?;
            assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "1");
            link.script("COMMIT").await.unwrap();
            count_all(&database);
            assert_eq!(database.sql(LETTERS), "0");
            assert_eq!(database.sql("SELECT max(rollbacks) FROM dialoq.conversation_endpoint"), "0");
            let batch = broker.receive("other").top(1).wait(SOON).await?.expect("a message waits");
            assert_eq!(batch.first().body(), b"first".as_slice());
            broker.close().await
        });
    }
}

/// The attempts after the last one were counted against the messages behind it, two of which became dead letters unseen.
pub(crate) fn late_counts_are_the_end_of_their_own_message_only(store: Store) {
    for pause in [0, 3_600_000] {
        let policy = format!("MAX_ATTEMPTS = 2, DELAY_MS = {pause}, THEN = DEAD_LETTER");
        with_policy(store, &policy, |database, broker| async move {
            broker.close().await?;
            let driver = PostgresDriver::new(&url(database.url())).unwrap();
            let mut link = driver.dedicated().await?;
            for attempt in 1..=5 {
                killed(&database, &mut *link, attempt).await;
            }
            count_all(&database);
            assert_eq!(database.sql(LETTERS), "1");
            let broker = Broker::open(database.url()).await?;
            assert_eq!(next(&broker).await?, "second", "with a pause of {pause} ms");
            broker.close().await
        });
    }
}

/// A wait is bounded, and needs no attempt.
pub(crate) fn a_count_that_waits_is_checked(store: Store) {
    with_policy(store, "MAX_ATTEMPTS = 2", |database, broker| async move {
        broker.close().await?;
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let mut link = driver.dedicated().await?;
        let count = |wait: &str| format!("SELECT * FROM dialoq.count_rollback(gen_random_uuid(), NULL, {wait})");
        link.script(&count("60000")).await.unwrap();
        for wrong in ["-1", "60001", "NULL"] {
            let refused = link.script(&count(wrong)).await.unwrap_err();
            assert_eq!(refused.error.code(), dialoq::Code::OUT_OF_RANGE, "{wrong}");
        }
        // A transaction that goes on keeps its group, and the count waits no longer than it may.
        let mut open = driver.dedicated().await?;
        open.script("BEGIN; SELECT * FROM dialoq.receive('server', 1)").await.unwrap();
        let attempt = "01980000-0000-7000-8000-000000000001";
        database.sql(&format!(
            "SELECT dialoq.begin_attempt('{attempt}', s.queue_id, e.conversation_group_id)
             FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
             WHERE s.name = 'Server'"
        ));
        link.script(&format!("SELECT * FROM dialoq.count_rollback('{attempt}', NULL, 100)")).await.unwrap();
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "1", "it is still open");
        open.script("ROLLBACK").await.unwrap();
        link.script(&format!("SELECT * FROM dialoq.count_rollback('{attempt}', NULL, 100)")).await.unwrap();
        assert_eq!(database.sql("SELECT max(rollbacks) FROM dialoq.conversation_endpoint"), "1");
        Ok(())
    });
}
