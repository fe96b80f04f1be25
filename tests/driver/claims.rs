//! Transactions that only receive and commit: one session of the server claims their messages and commits for all.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::{Act, Broker, Code, ConversationHandle, OpenOptions, Result, Tx};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);";
/// Sessions that have a transaction open.
const OPEN: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'";
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
/// Claims.
const CLAIMED: &str = "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted AND l.classid::bigint >> 16 = 17514";
const UNREAD: &str = "SELECT count(*) FROM dialoq.queue_message";
/// The time after which a session that claims and does not answer is given up, as on a machine that stands still.
const HANGING: Duration = Duration::from_secs(1);

struct Scene {
    database: Database,
    broker: Broker,
}

impl Scene {
    /// Another process.
    async fn another(&self) -> Broker {
        open(&self.database).await
    }

    /// A conversation with one message for each text.
    async fn conversation(&self, texts: &[&str]) -> ConversationHandle {
        let dialog = self.broker.begin_dialog("Asker", "Server").contract("Talk").await.unwrap();
        for text in texts {
            self.broker.send(dialog, "Word", *text).await.unwrap();
        }
        dialog
    }

    fn number(&self, text: &str) -> i64 {
        self.database.sql(text).trim().parse().unwrap()
    }

    /// Waits until the server gives that number.
    async fn until(&self, text: &str, wanted: i64) {
        let waiting = async {
            while self.number(text) != wanted {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{text} is never {wanted}"));
    }
}

/// A broker whose transactions claim from the first RECEIVE on. Their claims do not grow old.
async fn open(database: &Database) -> Broker {
    open_at_age(database, Duration::from_secs(3600)).await
}

async fn open_at_age(database: &Database, age: Duration) -> Broker {
    let options = OpenOptions::default().careful_receives(0).note_after(age);
    Broker::open_with(database.url(), options).await.unwrap()
}

async fn connect(database: &Database) -> dialoq::postgres::tokio_postgres::Client {
    use dialoq::postgres::tokio_postgres::{NoTls, connect};
    let (client, connection) = connect(database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A broker with one connection for its callers.
async fn open_with_one_connection(database: &Database, age: Duration) -> Broker {
    let options = OpenOptions::default().careful_receives(0).note_after(age);
    Broker::open_with(&format!("{}&pool_size=1&pool_wait_s=15", database.url()), options).await.unwrap()
}

fn on<F: Future<Output = Result<()>>>(store: Store, test: impl FnOnce(Scene) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = open(&database).await;
        broker.execute(SCRIPT).await.unwrap();
        tokio::time::timeout(3 * SOON, test(Scene { database, broker })).await.expect("the test hangs").unwrap();
    });
}

/// Asserts what a turn gives. RECEIVE serves the callers of a session that claims and hangs, so a turn that lasted so
/// long is played again if it gave something else, and so are those after it until the session is back.
async fn assert_turn<T: PartialEq + Debug>(what: &str, expected: T, turn: impl AsyncFn() -> Result<T>) -> Result<()> {
    let (began, mut has_hung) = (Instant::now(), false);
    loop {
        let turn_began = Instant::now();
        let given = turn().await?;
        has_hung |= turn_began.elapsed() >= HANGING;
        if given == expected {
            return Ok(());
        }
        assert!(has_hung && began.elapsed() < SOON, "{what}: {given:?} instead of {expected:?}");
    }
}

/// A transaction with the first message of the queue.
async fn received(broker: &Broker) -> Result<(Tx, ConversationHandle, String)> {
    let tx = broker.begin().await?;
    let batch = tx.receive("server").top(1).await?.expect("a message is free");
    let message = batch.first();
    let text = String::from_utf8(message.body().to_vec()).unwrap();
    Ok((tx, message.conversation_handle, text))
}

/// The same where a claim that was given up may hold the message for a moment.
async fn received_in_time(broker: &Broker) -> Result<Tx> {
    let tx = broker.begin().await?;
    assert!(tx.receive("server").top(1).wait(SOON).await?.is_some(), "a message is free");
    Ok(tx)
}

pub(crate) fn a_receiver_alone_opens_a_transaction_and_others_beside_it_claim(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let options = OpenOptions::default().careful_receives(1).note_after(Duration::from_secs(3600));
        let broker = Broker::open_with(scene.database.url(), options).await?;
        // The first receive of a process is careful.
        received(&broker).await?.0.commit().await?;
        for _ in 0..2 {
            let what = "a batch of one is not worth a claim, two callers share the calls of claims";
            let turn = async || {
                scene.conversation(&["b"]).await;
                scene.conversation(&["c"]).await;
                let alone = received_in_time(&broker).await?;
                let of_one = (scene.number(OPEN), scene.number(CLAIMED));
                let beside = received_in_time(&broker).await?;
                let of_two = (scene.number(OPEN), scene.number(CLAIMED));
                beside.commit().await?;
                alone.commit().await?;
                Ok::<_, dialoq::Error>((of_one, of_two))
            };
            assert_turn(what, ((1, 0), (1, 1)), turn).await?;
        }
        broker.close().await
    });
}

/// Transactions that have to do with other queues, or with none, hold every connection.
pub(crate) fn a_receiver_alone_waits_for_no_connection(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a", "b"]).await;
        let options = OpenOptions::default().careful_receives(1).note_after(Duration::from_secs(3600));
        let broker = Broker::open_with(&format!("{}&pool_size=1&pool_wait_s=5", scene.database.url()), options).await?;
        // The first receive of a process is careful.
        received(&broker).await?.0.commit().await?;
        let holds_the_connection = broker.begin().await?;
        holds_the_connection.query("SELECT 1", ()).await?;
        let (alone, ..) = received(&broker).await?;
        assert_eq!((scene.number(OPEN), scene.number(CLAIMED)), (1, 1));
        alone.commit().await?;
        holds_the_connection.commit().await?;
        broker.close().await
    });
}

/// The first receives of a process are noted at once, so that their rollbacks count. Of such a queue no receive ever was, so none was a claim.
pub(crate) fn a_queue_whose_rollbacks_do_not_count_is_claimed_from_at_once(store: Store) {
    on(store, |scene| async move {
        scene.broker.execute("ALTER QUEUE server WITH POISON_MESSAGE_HANDLING (STATUS = OFF)").await?;
        let turn = async || {
            scene.conversation(&["a"]).await;
            scene.conversation(&["b"]).await;
            let options = OpenOptions::default().note_after(Duration::from_secs(3600));
            let broker = Broker::open_with(scene.database.url(), options).await?;
            let alone = received_in_time(&broker).await?;
            let beside = received_in_time(&broker).await?;
            let given = (scene.number(OPEN), scene.number(CLAIMED));
            beside.commit().await?;
            alone.commit().await?;
            broker.close().await?;
            Ok::<_, dialoq::Error>(given)
        };
        assert_turn("open transactions, and claims", (1, 1), turn).await
    });
}

/// Each of them sees no other: none has a message yet.
pub(crate) fn receivers_that_come_at_once_are_not_each_alone(store: Store) {
    on(store, |scene| async move {
        for text in ["a", "b", "c", "d", "e", "f", "g"] {
            scene.conversation(&[text]).await;
        }
        let options = OpenOptions::default().careful_receives(1).note_after(Duration::from_secs(3600));
        let url = format!("{}&pool_size=2&pool_wait_s=3600", scene.database.url());
        let broker = Broker::open_with(&url, options).await?;
        received(&broker).await?.0.commit().await?;
        let (one, two, three) = (received(&broker), received(&broker), received(&broker));
        let (four, five, six) = (received(&broker), received(&broker), received(&broker));
        let all = async { tokio::try_join!(one, two, three, four, five, six) };
        let (one, two, three, four, five, six) =
            tokio::time::timeout(SOON, all).await.expect("some wait for connections of the others")?;
        for (tx, ..) in [one, two, three, four, five, six] {
            tx.commit().await?;
        }
        assert_eq!(scene.number(UNREAD), 0);
        broker.close().await
    });
}

pub(crate) fn a_claim_holds_its_group_without_a_transaction_of_the_server(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a", "b"]).await;
        scene.conversation(&["c"]).await;
        let (one, _, first) = received(&scene.broker).await?;
        let (two, _, second) = received(&scene.broker).await?;
        assert_eq!((first.as_str(), second.as_str()), ("a", "c"), "each has a group of its own");
        assert_eq!((scene.number(UNREAD), scene.number(OPEN)), (3, 0), "nothing is taken, and no transaction is open");
        let other = scene.another().await;
        assert!(other.receive("server").await?.is_none(), "another process finds no free group");
        assert!(other.begin().await?.receive("server").await?.is_none());
        tokio::try_join!(one.commit(), two.commit())?;
        assert_eq!((scene.number(UNREAD), scene.number(CLAIMED)), (1, 0));
        let rest = other.receive("server").await?.expect("the rest of the first conversation is free");
        assert_eq!(rest.first().body(), b"b");
        Ok(())
    });
}

pub(crate) fn a_transaction_that_does_more_takes_the_lock_before_those_that_wait(store: Store) {
    on(store, |scene| async move {
        let asker = scene.conversation(&["a"]).await;
        let (tx, target, _) = received(&scene.broker).await?;
        let other = scene.another().await;
        let waits = tokio::spawn(async move { other.send(target, "Word", "second").await });
        scene.until(WAITING, 1).await;
        tx.sql("CREATE TABLE noted (n int)", ()).await?;
        tx.send(target, "Word", "first").await?;
        tx.savepoint("s").await?;
        assert!(tx.receive("server").await?.is_none());
        tx.rollback_to("s").await?;
        assert_eq!(scene.number(WAITING), 1, "the other session still waits");
        tx.commit().await?;
        waits.await.unwrap()?;
        let batch = scene.broker.receive("asker").await?.unwrap();
        let texts: Vec<_> = batch.iter().map(|message| String::from_utf8_lossy(message.body()).into_owned()).collect();
        assert_eq!(texts, ["first", "second"]);
        assert_eq!(batch.first().conversation_handle, asker);
        assert_eq!((scene.number(UNREAD), scene.number(CLAIMED), scene.number(OPEN)), (0, 0, 0));
        Ok(())
    });
}

pub(crate) fn a_lost_session_ends_its_claims_and_loses_no_message(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        scene.conversation(&["b"]).await;
        scene.conversation(&["c"]).await;
        let (commits, ..) = received(&scene.broker).await?;
        let (does_more, ..) = received(&scene.broker).await?;
        let (rolls_back, ..) = received(&scene.broker).await?;
        // Each of two sessions may have made some of the claims.
        let sessions = CLAIMED.replace("count(*)", "DISTINCT l.pid");
        scene.database.sql(&format!("SELECT count(pg_terminate_backend(pid, 20000)) FROM ({sessions}) AS c"));
        assert_eq!(commits.commit().await.unwrap_err().code(), Code::SERVER_UNREACHABLE);
        assert_eq!(does_more.sql("CREATE TABLE noted (n int)", ()).await.unwrap_err().code(), Code::SERVER_UNREACHABLE);
        rolls_back.rollback().await?;
        assert_eq!((scene.number(UNREAD), scene.number(CLAIMED), scene.number(OPEN)), (3, 0, 0));
        for expected in ["a", "b", "c"] {
            let (tx, _, text) = received(&scene.broker).await?;
            assert_eq!(text, expected);
            tx.commit().await?;
        }
        Ok(())
    });
}

pub(crate) fn an_old_claim_becomes_a_transaction_of_the_server(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a", "b"]).await;
        let broker = open_at_age(&scene.database, Duration::from_millis(20)).await;
        let (tx, ..) = received(&broker).await?;
        scene.until(OPEN, 1).await;
        scene.until("SELECT count(*) FROM dialoq.receive_attempt", 1).await;
        assert_eq!(scene.number(CLAIMED), 0);
        assert!(scene.another().await.receive("server").await?.is_none(), "the group is still held");
        tx.commit().await?;
        assert_eq!((scene.number(UNREAD), scene.number(OPEN)), (1, 0));
        let (tx, ..) = received(&broker).await?;
        scene.until(OPEN, 1).await;
        drop(tx);
        // A loaded server may take longer for the rollback than a receive waits for it.
        let tx = broker.begin().await?;
        let batch = tx.receive("server").top(1).wait(SOON).await?.expect("a message is free");
        assert_eq!(batch.first().body(), b"b");
        drop(batch);
        tx.commit().await
    });
}

pub(crate) fn the_rollback_of_a_claim_counts(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        for round in 0..5 {
            // A background step may hold its group for a moment.
            let tx = received_in_time(&scene.broker).await?;
            if round % 2 == 0 { tx.rollback().await? } else { drop(tx) }
        }
        // Such a step may count the last rollback instead of its caller. Another receive would be one rollback more.
        let is_off = "SELECT count(*) FROM dialoq.service_queue WHERE name = 'server' AND NOT is_receive_enabled";
        scene.until(is_off, 1).await;
        let error = scene.broker.begin().await?.receive("server").await.unwrap_err();
        assert_eq!(error.code().0, 9617, "{error}");
        Ok(())
    });
}

pub(crate) fn what_happens_to_the_queue_after_a_claim_does_not_change_its_commit(store: Store) {
    on(store, |scene| async move {
        let asker = scene.conversation(&["a"]).await;
        let (tx, ..) = received(&scene.broker).await?;
        // It comes while the group is claimed, with a message of the system.
        scene.broker.send(asker, "Word", "b").await?;
        scene.broker.end(asker).await?;
        scene.broker.execute("ALTER QUEUE server WITH STATUS = OFF").await?;
        scene.broker.execute("ALTER QUEUE server WITH STATUS = ON, RETENTION = ON").await?;
        tx.commit().await?;
        let tx = scene.broker.begin().await?;
        let batch = tx.receive("server").await?.expect("what came meanwhile");
        assert_eq!(batch.len(), 2, "the message and the end of the dialog: {batch:?}");
        tx.commit().await
    });
}

pub(crate) fn a_claim_of_many_messages_takes_them_all_or_leaves_them_to_receive(store: Store) {
    on(store, |scene| async move {
        for count in [2_usize, 16, 17, 40] {
            let texts: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let turn = async || {
                scene.conversation(&texts).await;
                let tx = scene.broker.begin().await?;
                let batch = tx.receive("server").wait(SOON).await?.unwrap();
                assert_eq!(batch.len(), count);
                let is_claimed = scene.number(CLAIMED) == 1;
                tx.commit().await?;
                assert_eq!(scene.number(UNREAD), 0);
                Ok::<_, dialoq::Error>(is_claimed)
            };
            assert_turn(&format!("{count} messages are claimed"), count <= 16, turn).await?;
        }
        scene.conversation(&["a", "b", "c"]).await;
        let tx = scene.broker.begin().await?;
        assert_eq!(tx.receive("server").top(2).await?.unwrap().len(), 2);
        tx.commit().await?;
        let (tx, _, text) = received(&scene.broker).await?;
        assert_eq!(text, "c");
        tx.commit().await
    });
}

/// The session that claims sends nothing else meanwhile: one caller with 300 MB stopped the transactions of all.
pub(crate) fn large_messages_are_left_to_receive(store: Store) {
    on(store, |scene| async move {
        for (bytes, count, top) in [(65_536, 1, 1), (65_537, 1, 1), (32_768, 2, 9), (32_769, 2, 9)] {
            let text = "x".repeat(bytes);
            let turn = async || {
                scene.conversation(&vec![text.as_str(); count]).await;
                let tx = scene.broker.begin().await?;
                assert_eq!(tx.receive("server").top(top).wait(SOON).await?.unwrap().len(), count);
                let is_claimed = scene.number(CLAIMED) == 1;
                tx.commit().await?;
                assert_eq!(scene.number(UNREAD), 0);
                Ok::<_, dialoq::Error>(is_claimed)
            };
            let what = format!("{count} messages of {bytes} bytes are claimed");
            assert_turn(&what, bytes * count <= 65_536, turn).await?;
        }
        Ok(())
    });
}

/// As if its connection was cut in silence.
pub(crate) fn receivers_beside_sessions_that_claim_and_hang_go_on(store: Store) {
    on(store, |scene| async move {
        for text in ["a", "b", "c", "d"] {
            scene.conversation(&[text]).await;
        }
        let gate = connect(&scene.database).await;
        gate.batch_execute("SELECT pg_advisory_lock(21)").await.unwrap();
        let hangs = "CREATE OR REPLACE FUNCTION dialoq.claim_group(p_group uuid) RETURNS boolean
            LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(21); RETURN false; END $$";
        scene.database.sql(hangs);
        let callers = async { tokio::try_join!(received(&scene.broker), received(&scene.broker)) };
        let (one, two) = tokio::time::timeout(SOON, callers).await.expect("they wait for the session that hangs")?;
        tokio::try_join!(one.0.commit(), two.0.commit())?;
        gate.batch_execute("SELECT pg_advisory_unlock(21)").await.unwrap();
        while scene.number(UNREAD) > 0 {
            if let Some(batch) = scene.broker.receive("server").await? {
                assert_eq!(batch.len(), 1);
            }
        }
        Ok(())
    });
}

/// As if the connection for notes was cut in silence.
pub(crate) fn an_old_claim_commits_beside_a_note_that_hangs(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let gate = connect(&scene.database).await;
        gate.batch_execute("SELECT pg_advisory_lock(21)").await.unwrap();
        let hangs = "CREATE OR REPLACE FUNCTION dialoq.begin_attempt(
            p_attempt_id uuid, p_queue_id integer, p_conversation_group_id uuid, p_conversation_handle uuid DEFAULT NULL,
            p_queuing_order bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            WHILE NOT pg_try_advisory_lock(21) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$";
        scene.database.sql(hangs);
        let broker = open_at_age(&scene.database, Duration::from_millis(20)).await;
        let (tx, ..) = received(&broker).await?;
        let noted =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND state = 'active' AND query LIKE '%dialoq.begin_attempt(%'";
        scene.until(noted, 1).await;
        tokio::time::timeout(SOON, tx.commit()).await.expect("it waits for the note")?;
        assert_eq!(scene.number(UNREAD), 0);
        gate.batch_execute("SELECT pg_advisory_unlock(21)").await.unwrap();
        broker.close().await
    });
}

/// They kept every connection of the pool while they waited for that session.
pub(crate) fn transactions_that_do_more_than_a_claim_of_a_session_that_hangs_leave_the_pool(store: Store) {
    on(store, |scene| async move {
        let mut asker = None;
        for text in ["a", "b", "c", "d", "e"] {
            asker = Some(scene.conversation(&[text]).await);
        }
        let options = OpenOptions::default().careful_receives(0).note_after(Duration::from_secs(3600));
        let url = format!("{}&pool_size=2&pool_wait_s=3600", scene.database.url());
        let broker = Broker::open_with(&url, options).await?;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(received(&broker).await?.0);
        }
        let late = received(&broker).await?.0;
        let gate = connect(&scene.database).await;
        gate.batch_execute("SELECT pg_advisory_lock(21)").await.unwrap();
        let hangs = "CREATE OR REPLACE FUNCTION dialoq.claim_group(p_group uuid) RETURNS boolean
            LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(21); RETURN false; END $$";
        scene.database.sql(hangs);
        let other = broker.clone();
        let claims = tokio::spawn(async move {
            let tx = other.begin().await?;
            tx.receive("server").await?;
            tx.rollback().await
        });
        scene.until(WAITING, 1).await;
        let doing = open.into_iter().map(|tx| tokio::spawn(async move { tx.query("SELECT 1 AS n", ()).await }));
        let doing: Vec<_> = doing.collect();
        while scene.number(OPEN) < 2 && !doing.iter().all(tokio::task::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        let send = broker.send(asker.unwrap(), "Word", "f");
        tokio::time::timeout(SOON, send).await.expect("a SEND waits for the transactions")?;
        for done in doing {
            assert_eq!(done.await.unwrap().unwrap_err().code(), Code::SERVER_UNREACHABLE);
        }
        // The session is known to hang by now.
        let done = tokio::time::timeout(SOON, late.query("SELECT 1 AS n", ())).await.expect("it waits for the session");
        assert_eq!(done.unwrap_err().code(), Code::SERVER_UNREACHABLE);
        gate.batch_execute("SELECT pg_advisory_unlock(21)").await.unwrap();
        claims.await.unwrap()?;
        scene.until(CLAIMED, 0).await;
        assert_eq!((scene.number(UNREAD), scene.number(OPEN)), (6, 0));
        broker.close().await
    });
}

pub(crate) fn a_process_claims_so_many_messages_and_receive_serves_more(store: Store) {
    const CLAIMS: usize = 1000;
    const MORE: usize = 3;
    on(store, |scene| async move {
        let mut begun = tokio::task::JoinSet::new();
        for _ in 0..CLAIMS + MORE {
            let broker = scene.broker.clone();
            begun.spawn(async move {
                let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
                broker.send(dialog, "Word", "a").await
            });
        }
        while let Some(sent) = begun.join_next().await {
            sent.unwrap()?;
        }
        let mut transactions = Vec::new();
        while transactions.len() < CLAIMS + MORE {
            let mut received_at_once = tokio::task::JoinSet::new();
            for _ in 0..(CLAIMS + MORE - transactions.len()).min(60) {
                let broker = scene.broker.clone();
                received_at_once.spawn(async move { received(&broker).await });
            }
            while let Some(given) = received_at_once.join_next().await {
                transactions.push(given.unwrap()?.0);
            }
        }
        assert_eq!((scene.number(CLAIMED), scene.number(OPEN)), (CLAIMS as i64, MORE as i64));
        for tx in transactions {
            tx.commit().await?;
        }
        assert_eq!((scene.number(UNREAD), scene.number(CLAIMED)), (0, 0));
        Ok(())
    });
}

/// Receives a message in a transaction and ends it; its number if that was a commit. The end goes by the round.
async fn take_a_turn(broker: &Broker, round: &mut usize) -> Result<Option<usize>> {
    let tx = broker.begin().await?;
    let Some(batch) = tx.receive("server").top(1).await? else {
        drop(tx);
        tokio::task::yield_now().await;
        return Ok(None);
    };
    *round += 1;
    match *round % 7 {
        0 => tx.rollback().await?,
        1 => drop(tx),
        end => {
            if end == 2 {
                tx.query("SELECT 1 AS n", ()).await?;
            }
            tx.commit().await?;
            return Ok(Some(std::str::from_utf8(batch.first().body()).unwrap().parse().unwrap()));
        }
    }
    Ok(None)
}

pub(crate) fn many_callers_of_two_processes_receive_each_message_once(store: Store) {
    const MESSAGES: usize = 600;
    on(store, |scene| async move {
        scene.broker.execute("ALTER QUEUE server WITH POISON_MESSAGE_HANDLING (STATUS = OFF)").await?;
        let mut handles = Vec::new();
        for _ in 0..40 {
            handles.push(scene.conversation(&[]).await);
        }
        for number in 0..MESSAGES {
            scene.broker.send(handles[number % handles.len()], "Word", &number.to_string()).await?;
        }
        // The claims of the second grow old at once, and its callers wait for connections.
        let options = OpenOptions::default().careful_receives(0).note_after(Duration::ZERO);
        let url = format!("{}&pool_size=2", scene.database.url());
        let brokers = [scene.another().await, Broker::open_with(&url, options).await?];
        let seen: Arc<Vec<AtomicUsize>> = Arc::new((0..MESSAGES).map(|_| AtomicUsize::new(0)).collect());
        let left = Arc::new(AtomicUsize::new(MESSAGES));
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..24_usize {
            let (broker, seen, left) = (brokers[caller % 2].clone(), seen.clone(), left.clone());
            tasks.spawn(async move {
                let mut round = caller;
                while left.load(SeqCst) > 0 {
                    let began = Instant::now();
                    match take_a_turn(&broker, &mut round).await {
                        Ok(None) => {}
                        Ok(Some(number)) => {
                            seen[number].fetch_add(1, SeqCst);
                            left.fetch_sub(1, SeqCst);
                        }
                        // Its session was given up: the transaction is rolled back, and is to be run again.
                        Err(error) if error.code() == Code::SERVER_UNREACHABLE && began.elapsed() >= HANGING => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok::<_, dialoq::Error>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap()?;
        }
        assert!(seen.iter().all(|times| times.load(SeqCst) == 1), "each message was received once");
        assert_eq!((scene.number(UNREAD), scene.number(CLAIMED)), (0, 0));
        Ok(())
    });
}

pub(crate) fn a_claim_that_grows_old_takes_no_connection_from_its_own_caller(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let broker = open_with_one_connection(&scene.database, Duration::ZERO).await;
        let holder = broker.begin().await?;
        holder.sql("CREATE TABLE noted (n int)", ()).await?;
        let (tx, ..) = received(&broker).await?;
        // The claim, old at once, leaves the only connection to others; its transaction waits for it.
        for _ in 0..20 {
            assert_eq!(scene.number(CLAIMED), 1);
            tokio::task::yield_now().await;
        }
        let (written, committed) = tokio::join!(biased; tx.sql("CREATE TABLE more (n int)", ()), holder.commit());
        committed?;
        written?;
        tx.commit().await?;
        assert_eq!((scene.number(UNREAD), scene.number(CLAIMED), scene.number(OPEN)), (0, 0, 0));
        Ok(())
    });
}

/// With three they would take all.
pub(crate) fn claims_that_grow_old_leave_a_connection_to_others(store: Store) {
    on(store, |scene| async move {
        let mut asker = None;
        for text in ["a", "b", "c", "d", "e"] {
            asker = Some(scene.conversation(&[text]).await);
        }
        let options = OpenOptions::default().careful_receives(0).note_after(Duration::from_millis(20));
        let url = format!("{}&pool_size=3&pool_wait_s=3600", scene.database.url());
        let broker = Broker::open_with(&url, options).await?;
        let mut open = Vec::new();
        for _ in 0..5 {
            open.push(received(&broker).await?.0);
        }
        // A claim that becomes a transaction counts as both for a moment.
        scene.until(OPEN, 2).await;
        scene.until(CLAIMED, 3).await;
        scene.until(OPEN, 2).await;
        for _ in 0..20 {
            assert_eq!((scene.number(OPEN), scene.number(CLAIMED)), (2, 3));
            tokio::task::yield_now().await;
        }
        let send = broker.send(asker.unwrap(), "Word", "f");
        tokio::time::timeout(SOON, send).await.expect("a SEND waits for the transactions")?;
        open.pop().unwrap().rollback().await?;
        for tx in open {
            tx.commit().await?;
        }
        scene.until(CLAIMED, 0).await;
        assert_eq!(scene.number(UNREAD), 2);
        broker.close().await
    });
}

/// A claim that is old at once waits for a connection, which comes only after an hour.
pub(crate) fn a_dropped_transaction_does_not_wait_for_the_connection_of_its_claim(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let options = OpenOptions::default().careful_receives(0).note_after(Duration::ZERO);
        let url = format!("{}&pool_size=1&pool_wait_s=3600", scene.database.url());
        let broker = Broker::open_with(&url, options).await?;
        let holder = broker.begin().await?;
        holder.sql("CREATE TABLE noted (n int)", ()).await?;
        let (tx, ..) = received(&broker).await?;
        for _ in 0..20 {
            assert_eq!(scene.number(CLAIMED), 1);
            tokio::task::yield_now().await;
        }
        drop(tx);
        scene.until(CLAIMED, 0).await;
        holder.commit().await?;
        assert_eq!(received(&scene.broker).await?.2, "a");
        Ok(())
    });
}

pub(crate) fn a_claim_goes_on_while_those_that_wait_for_it_hold_every_connection(store: Store) {
    on(store, |scene| async move {
        for rolls_back in [false, true] {
            scene.conversation(&["a"]).await;
            let broker = open_with_one_connection(&scene.database, Duration::from_secs(3600)).await;
            let (tx, target, _) = received(&broker).await?;
            let other = broker.begin().await?;
            let waits = tokio::spawn(async move {
                other.send(target, "Word", "b").await?;
                other.commit().await
            });
            scene.until(WAITING, 1).await;
            if rolls_back {
                tx.rollback().await?;
            } else {
                tx.send(target, "Word", "a").await?;
                tx.commit().await?;
            }
            waits.await.unwrap()?;
            assert_eq!((scene.number(CLAIMED), scene.number(OPEN)), (0, 0));
            broker.close().await?;
        }
        // The one that waited has the group before the rollback is counted, so the next tick counts it.
        scene.until("SELECT count(*) FROM dialoq.queue_rollback", 1).await;
        Ok(())
    });
}

pub(crate) fn a_session_that_comes_while_a_claim_is_made_does_not_stand_in_its_way(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let target =
            "SELECT conversation_handle FROM dialoq.conversation_endpoint WHERE NOT is_initiator AND NOT is_system";
        let target = scene.database.sql(target);
        let database = &scene.database;
        let (desk, taker, other) = (connect(database).await, connect(database).await, connect(database).await);
        // The call of a process commits by itself; here its transaction stays open until the other session waits.
        desk.batch_execute("BEGIN").await.unwrap();
        let claim = "SELECT conversation_group_id::text, endpoint_id, queuing_order FROM dialoq.claim_batch('server', '{1}', '{}')";
        let claimed = desk.query_one(claim, &[]).await.unwrap();
        let (group, endpoint, order): (String, i64, i64) = (claimed.get(0), claimed.get(1), claimed.get(2));
        let send = format!("SELECT dialoq.send('{target}', 'Word', 'b'::bytea)");
        let waits = tokio::spawn(async move { other.batch_execute(&send).await });
        scene.until(WAITING, 1).await;
        desk.batch_execute("COMMIT").await.unwrap();
        let take = format!("BEGIN; SELECT dialoq.take_claim('{group}', {endpoint}, {order}, {order}, 1)");
        taker.batch_execute(&take).await.expect("the claim can be taken");
        desk.batch_execute(&format!("SELECT dialoq.release_claims('{{{group}}}')")).await.unwrap();
        let send = format!("SELECT dialoq.send('{target}', 'Word', 'a'::bytea); COMMIT");
        taker.batch_execute(&format!("SELECT pg_advisory_xact_lock(dialoq.group_key('{group}'))")).await.unwrap();
        taker.batch_execute(&send).await.unwrap();
        waits.await.unwrap().unwrap();
        let batch = scene.broker.receive("asker").await?.unwrap();
        let texts: Vec<_> = batch.iter().map(|message| String::from_utf8_lossy(message.body()).into_owned()).collect();
        assert_eq!(texts, ["a", "b"]);
        Ok(())
    });
}

pub(crate) fn a_claim_that_fails_in_the_server_holds_no_group(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        // It runs after the group is claimed.
        let names = "CREATE OR REPLACE FUNCTION dialoq.message_names(
            p_service_id integer, p_service_contract_id integer, p_message_type_id integer)
            RETURNS TABLE (service text, contract text, message_type text, validation text)
            LANGUAGE plpgsql STABLE ROWS 1 AS $$ BEGIN RAISE 'no memory' USING ERRCODE = 'out_of_memory'; END $$";
        scene.database.sql(names);
        let tx = scene.broker.begin().await?;
        let _ = tx.receive("server").await;
        scene.until(CLAIMED, 0).await;
        Ok(())
    });
}

/// Every role may share an advisory lock, also that of a claim, which the transaction then needs alone.
pub(crate) fn a_stranger_that_shares_the_lock_of_a_claim_is_not_waited_for_without_end(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let (tx, handle, _) = received(&scene.broker).await?;
        let stranger = crate::jobs_locks::connect(&scene.database.login("")).await;
        let share = "SELECT pg_advisory_lock_shared(l.classid::bigint << 32 | l.objid::bigint)
            FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
            WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted AND l.classid::bigint >> 16 = 17513";
        assert_eq!(stranger.query(share, &[]).await.unwrap().len(), 1, "the group is claimed");
        let refused = tx.send(handle, "Word", "b").await.unwrap_err();
        assert_eq!(refused.code(), Code::STORE_OWNED, "{refused}");
        assert!(tx.commit().await.is_err(), "it was rolled back");
        drop(stranger);
        let back = scene.another().await.receive("server").wait(SOON).await?.expect("the message is back");
        assert_eq!(back.first().body(), b"a");
        Ok(())
    });
}

pub(crate) fn a_claim_that_may_grow_older_than_any_clock_shows_is_committed(store: Store) {
    on(store, |scene| async move {
        scene.conversation(&["a"]).await;
        let broker = open_at_age(&scene.database, Duration::MAX).await;
        received(&broker).await?.0.commit().await?;
        assert_eq!(scene.number(UNREAD), 0);
        broker.close().await
    });
}
