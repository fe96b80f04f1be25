//! Connections, servers and hosts that die.

use crate::servers::Store;
use crate::{Database, SOON, TEXT, broker, dialog, drain, on, things};
use dialoq::internals::activity;
use dialoq::{Act, Broker, Code, ConversationHandle, Result, Tx};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Sends of one task that were answered, and those of unknown outcome.
#[derive(Debug, Default)]
struct Sent {
    known: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

async fn send_until(broker: Broker, task: usize, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) -> Result<Sent> {
    let mut sent = Sent::default();
    let mut handle = None;
    for number in 0.. {
        if stop.load(SeqCst) {
            break;
        }
        let text = format!("{task}-{number}");
        let result = async {
            let handle = match handle {
                Some(handle) => handle,
                None => *handle.insert(dialog(&broker).await?),
            };
            broker.send(handle, TEXT, &text).await
        };
        match result.await {
            Ok(()) => {
                sent.known.insert(text);
                done.fetch_add(1, SeqCst);
            }
            Err(error) if matches!(error.code(), Code::COMMIT_UNKNOWN) => {
                sent.unknown.insert(text);
            }
            Err(error) => assert!(
                error.is_retryable() || error.code() == Code::SERVER_UNREACHABLE,
                "not what a lost connection is called: {error:?}"
            ),
        }
    }
    Ok(sent)
}

async fn is_nothing_left(store: Store, broker: &Broker) -> bool {
    let text = format!("select 1 as one from {} where queue_name = 'server'", store.queue_messages());
    broker.query(text, ()).await.is_ok_and(|left| left.rows.is_empty())
}

/// Receives in transactions that write what they took into a table, until nothing is left after all was sent. A RECEIVE that
/// finds nothing is not enough: a session that was ended holds its messages until its server has noticed.
async fn receive_until(store: Store, broker: Broker, is_all_sent: Arc<AtomicBool>) -> Result<()> {
    let note = store.sql("insert into receipt values (?1)");
    loop {
        let is_last = is_all_sent.load(SeqCst);
        let round = async {
            let tx = broker.begin().await?;
            let Some(batch) = tx.receive("server").await? else { return Ok::<_, dialoq::Error>(false) };
            for message in &batch {
                tx.sql(note.as_str(), (message.decode(TEXT)?,)).await?;
            }
            tx.commit().await?;
            Ok(true)
        };
        match round.await {
            Ok(true) => {}
            Ok(false) if is_last && is_nothing_left(store, &broker).await => return Ok(()),
            Ok(false) => tokio::task::yield_now().await,
            Err(error) => assert!(
                error.is_retryable()
                    || [Code::COMMIT_UNKNOWN, Code::SERVER_UNREACHABLE, Code::TRANSACTION_ENDED]
                        .contains(&error.code()),
                "not what a lost connection is called: {error:?}"
            ),
        }
    }
}

pub(crate) fn every_connection_ended_under_load_loses_and_doubles_nothing(store: Store) {
    on(async move {
        // The relative of SQL Server takes seconds until a new session has read its procedures.
        let (rounds, sends_each) = if store == Store::Mssql { (3, 20) } else { (6, 60) };
        let database = Database::fresh(store);
        let broker = broker(database.url()).await?;
        // Rollbacks are many today, and none of a message's doing.
        broker.execute("ALTER QUEUE [server] WITH POISON_MESSAGE_HANDLING (STATUS = OFF)").await?;
        broker.sql("create table receipt (text varchar(100) not null)", ()).await?;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let is_all_sent = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> =
            (0..6).map(|task| tokio::spawn(send_until(broker.clone(), task, stop.clone(), done.clone()))).collect();
        let receivers: Vec<_> =
            (0..3).map(|_| tokio::spawn(receive_until(store, broker.clone(), is_all_sent.clone()))).collect();
        for round in 1..=rounds {
            // Work must go on between one blow and the next.
            while done.load(SeqCst) < round * sends_each {
                tokio::task::yield_now().await;
            }
            tokio::task::block_in_place(|| database.end_sessions());
        }
        stop.store(true, SeqCst);
        let mut sent = Sent::default();
        for sender in senders {
            let Sent { known, unknown } = sender.await.expect("no panic")?;
            sent.known.extend(known);
            sent.unknown.extend(unknown);
        }
        // Not before: what is under way when the senders are stopped is acknowledged too.
        is_all_sent.store(true, SeqCst);
        for receiver in receivers {
            receiver.await.expect("no panic")?;
        }
        let receipts = broker.query("select text from receipt order by text", ()).await?.rows;
        let receipts: Vec<String> = receipts.iter().map(|row| row.get("text")).collect::<Result<_>>()?;
        let once: BTreeSet<String> = receipts.iter().cloned().collect();
        assert_eq!(once.len(), receipts.len(), "received twice");
        let lost: Vec<_> = sent.known.difference(&once).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let invented: Vec<_> =
            once.iter().filter(|text| !sent.known.contains(*text) && !sent.unknown.contains(*text)).collect();
        assert!(invented.is_empty(), "received and never sent: {invented:?}");
        Ok(())
    });
}

/// Kills the process of the server that serves that session, upon which all of the server falls and recovers.
async fn fell(session: &Tx) -> Result<()> {
    let pid: i64 = session.query("select pg_backend_pid() as pid", ()).await?.rows[0].get("pid")?;
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill");
    assert!(killed.success());
    Ok(())
}

pub(crate) fn a_server_that_falls_comes_back_with_everything(_: Store) {
    on(async {
        let database = Database::on_a_server_of_its_own();
        let broker = broker(database.url()).await?;
        let handle = dialog(&broker).await?;
        broker.send(handle, TEXT, "before").await?;
        let tx = broker.begin().await?;
        assert!(tx.receive("server").await?.is_some());
        tx.sql("insert into thing values (1)", ()).await?;
        fell(&tx).await?;
        let error = tx.commit().await.unwrap_err();
        assert!([Code::SERVER_UNREACHABLE, Code::COMMIT_UNKNOWN].contains(&error.code()), "{error:?}");
        // The broker finds its server again by itself.
        let handle = until_answered(|| dialog(&broker)).await;
        let after = send_until_answered(&broker, handle).await;
        assert_eq!(things(&broker).await?, 0);
        let received = drain(&broker).await?;
        let once: BTreeSet<String> = received.iter().cloned().collect();
        assert_eq!(once.len(), received.len(), "received twice: {received:?}");
        assert!(once.contains("before") && after.known.is_subset(&once), "lost: {received:?} of {after:?}");
        let others: Vec<_> = once.iter().filter(|text| *text != "before" && !after.known.contains(*text)).collect();
        assert!(others.iter().all(|text| after.unknown.contains(*text)), "never sent: {others:?} of {after:?}");
        Ok(())
    });
}

/// A take in a transaction is not on the disk when its jobs are given, so a fall forgets it.
pub(crate) fn no_token_is_given_twice_if_the_server_falls(_: Store) {
    on(async {
        let database = Database::on_a_server_of_its_own();
        let broker = broker(database.url()).await?;
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await?;
        // Only a commit that asks for it brings anything to the disk.
        database.sql("ALTER SYSTEM SET wal_writer_delay = '10s'");
        database.sql("SELECT pg_reload_conf()");
        let mut last = 0;
        for round in 0..3 {
            for _ in 0..80 {
                until_answered(|| async { broker.push_job("w", "a").await }).await;
            }
            let tx = until_answered(|| async { broker.begin().await }).await;
            let mut tokens = Vec::new();
            for _ in 0..70 {
                tokens.extend(tx.take_jobs("w").await?.iter().map(|job| job.taken.token));
            }
            assert!(
                tokens.is_sorted() && tokens[0] > last && tokens.len() == 70,
                "round {round}: {tokens:?} after {last}"
            );
            last = *tokens.last().expect("70 of them");
            fell(&tx).await?;
            drop(tx);
            // By a lease, which is on the disk, or not, like those before.
            if round > 0 {
                let job = until_answered(|| async { broker.take_jobs("w").await }).await.remove(0);
                assert!(job.taken.token > last, "round {round}: {} after {last}", job.taken.token);
                last = job.taken.token;
            }
        }
        Ok(())
    });
}

/// Sends until the server is back and answers, each time another text: one of unknown outcome may be there or not.
async fn send_until_answered(broker: &Broker, handle: ConversationHandle) -> Sent {
    let sending = async {
        let mut sent = Sent::default();
        for number in 0.. {
            let text = format!("after {number}");
            match broker.send(handle, TEXT, &text).await {
                Ok(()) => {
                    sent.known.insert(text);
                    break;
                }
                Err(error) if error.code() == Code::COMMIT_UNKNOWN => {
                    sent.unknown.insert(text);
                }
                Err(error) => assert!(is_of_an_absent_server(&error), "{error:?}"),
            }
        }
        sent
    };
    tokio::time::timeout(SOON, sending).await.expect("the server never came back")
}

/// Whether that is what an absent server is called, of something that is known not to have happened.
fn is_of_an_absent_server(error: &dialoq::Error) -> bool {
    error.is_retryable() || error.code() == Code::SERVER_UNREACHABLE
}

/// Does it until the server is back. What is asked here may be done twice, and so may be a call of unknown outcome.
async fn until_answered<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => {
                    assert!(is_of_an_absent_server(&error) || error.code() == Code::COMMIT_UNKNOWN, "{error:?}");
                }
            }
        }
    };
    tokio::time::timeout(SOON, asking).await.expect("the server never came back")
}

pub(crate) fn a_waiting_receiver_outlives_the_server(_: Store) {
    on(async {
        let database = Database::on_a_server_of_its_own();
        let broker = broker(database.url()).await?;
        let waiting = {
            let broker = broker.clone();
            tokio::spawn(async move { broker.receive("server").wait(SOON).await })
        };
        while broker.sessions_waiting("server") == 0 {
            tokio::task::yield_now().await;
        }
        fell(&broker.begin().await?).await?;
        // Another process sends, so only the server can tell this one.
        let other = until_answered(|| Broker::open(database.url())).await;
        let handle = until_answered(|| dialog(&other)).await;
        until_answered(|| other.send(handle, TEXT, "awake")).await;
        let batch = waiting.await.expect("no panic")?.expect("it was notified");
        assert_eq!(batch.first().decode(TEXT)?, "awake");
        Ok(())
    });
}

/// What a rollback of a dead host may take to be counted if no caller receives its messages: six times what it should, and less
/// than the minute after which every process polls in any case.
const NOTICING: Duration = Duration::from_secs(30);

pub(crate) fn a_host_that_dies_in_a_receive_counts_once(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let alive = broker(database.url()).await?;
        let handle = dialog(&alive).await?;
        alive.send(handle, TEXT, "poison").await?;
        for death in 1..=5 {
            // A host that dies sends nothing more: its broker is not notified, its server's session just ends.
            let host = Broker::open(database.url()).await?;
            let tx = host.begin().await?;
            let session: i64 = tx.query(store.session(), ()).await?.rows[0].get("session")?;
            let batch = tx.receive("server").wait(SOON).await?.expect("it is back");
            assert_eq!(batch.first().decode(TEXT)?, "poison", "death {death}");
            std::mem::forget(tx);
            std::mem::forget(host);
            tokio::task::block_in_place(|| database.end_session(session));
        }
        // Four deaths left the queue on, or the fifth host would have got nothing; the fifth is one too many. The tick of
        // another host counts the rollbacks of the dead ones. Where the server has no notifications, a process polls only
        // while a receiver waits in it.
        let waits = {
            let alive = alive.clone();
            tokio::spawn(async move { alive.receive("asker").wait_forever().await })
        };
        let died = Instant::now();
        loop {
            let redefined = activity(&alive).register_definitions();
            if alive.catalog().queue("server").is_some_and(|queue| !queue.is_receive_enabled) {
                break;
            }
            redefined.await;
        }
        waits.abort();
        let took = died.elapsed();
        assert!(took < NOTICING, "{took:?}");
        assert_eq!(alive.receive("server").await.unwrap_err().code(), Code::QUEUE_DISABLED);
        Ok(())
    });
}
