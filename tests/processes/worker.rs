//! The work of each process until it is killed.

use crate::jobs;
use crate::servers::Store;
use dialoq::{Act, Broker, Code, Error, Message, OpenOptions, Tx};
use std::io::Write;
use std::time::Duration;

pub(crate) const URL: &str = "DIALOQ_TEST_WORKER_URL";
pub(crate) const STORE: &str = "DIALOQ_TEST_WORKER_STORE";
pub(crate) const NUMBER: &str = "DIALOQ_TEST_WORKER_NUMBER";

const SENDERS: usize = 3;
const RECEIVERS: usize = 3;
/// Tasks that work on jobs.
const WORKERS: usize = 2;
/// Tasks that receive outside a transaction.
pub(crate) const TAKERS: usize = 1;
/// Messages of a conversation before it is ended.
pub(crate) const LENGTH: usize = 20;
/// A RECEIVE that took this long counts as empty: the worker tries again.
pub(crate) const WAIT: Duration = Duration::from_millis(500);

/// One line, whole or not at all: shorter than a pipe's atomic write.
pub(crate) fn print(word: &str, body: &str) {
    let mut out = std::io::stdout().lock();
    // The parent is gone only when the test is.
    let _ = out.write_all(format!("{word} {body}\n").as_bytes()).and_then(|()| out.flush());
}

/// Works until it is killed, if the environment says that this process is a worker.
pub(crate) fn work_if_asked() -> bool {
    let (Ok(url), Ok(store), Ok(number)) = (std::env::var(URL), std::env::var(STORE), std::env::var(NUMBER)) else {
        return false;
    };
    let store = Store::ALL.into_iter().find(|known| known.name() == store).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work(&url, store, &number));
    true
}

async fn work(url: &str, store: Store, number: &str) {
    let broker = opened(url).await.expect("the broker opens");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..SENDERS {
        tasks.spawn(send(broker.clone(), format!("{number}.{task}")));
    }
    for _ in 0..RECEIVERS {
        tasks.spawn(receive(broker.clone(), store));
    }
    for _ in 0..TAKERS {
        tasks.spawn(take(broker.clone()));
    }
    tasks.spawn(jobs::push(broker.clone(), store, number.to_owned()));
    for _ in 0..WORKERS {
        tasks.spawn(jobs::work(broker.clone(), store));
    }
    tasks.spawn(tidy(broker));
    // None of them ends unless it failed. The parent finds that this process says no more.
    if let Some(Ok(Err(error))) = tasks.join_next().await {
        eprintln!("process {number}: {error:?}");
    }
    std::process::exit(1);
}

/// Opens the broker, while its server may be falling.
async fn opened(url: &str) -> Result<Broker, Error> {
    loop {
        // Every other process claims what its transactions receive from the first one on.
        let careful = if std::process::id().is_multiple_of(2) { 0 } else { 256 };
        match Broker::open_with(url, OpenOptions::default().careful_receives(careful)).await {
            Err(error) if is_of_a_lost_server(&error) => tokio::task::yield_now().await,
            done => return done,
        }
    }
}

/// Whether an error says that the server or the connection was lost: then the outcome is unknown, or nothing happened.
pub(crate) fn is_of_a_lost_server(error: &Error) -> bool {
    error.is_retryable() || error.code() == Code::COMMIT_UNKNOWN
}

/// Nothing, if what failed was the server.
pub(crate) fn outlived<T: Default>(done: Result<T, Error>) -> Result<T, Error> {
    match done {
        Err(error) if is_of_a_lost_server(&error) => Ok(T::default()),
        done => done,
    }
}

/// Begins conversations, sends on them in every way there is, and ends them.
async fn send(broker: Broker, name: String) -> Result<(), Error> {
    for round in 0_u64.. {
        outlived(send_round(&broker, &name, round).await)?;
    }
    Ok(())
}

async fn send_round(broker: &Broker, name: &str, round: u64) -> Result<(), Error> {
    let kept = broker.begin_dialog("sender", "receiver").contract("C").await?;
    let other = broker.begin_dialog("sender", "receiver").contract("C").await?;
    let loose = broker.begin_dialog("sender", "taker").contract("C").await?;
    for number in 0..LENGTH {
        let body = |kind: &str| format!("{kind} {name}.{round} {number}");
        let (one, two, free) = (body("one"), body("two"), body("loose"));
        match number % 4 {
            0 => {
                print("tries", &one);
                broker.send(kept, "Text", &one).await?;
                print("sent", &one);
            }
            1 => {
                [&one, &two].iter().for_each(|body| print("tries", body));
                let tx = broker.begin().await?;
                tx.send(kept, "Text", &one).await?;
                tx.send(other, "Text", &two).await?;
                tx.commit().await?;
                [&one, &two].iter().for_each(|body| print("sent", body));
            }
            2 => {
                // The ledger does not count it as sent, because it is rolled back.
                let tx = broker.begin().await?;
                tx.send(kept, "Text", &one).await?;
                tx.rollback().await?;
            }
            _ => {
                print("tries", &two);
                broker.send(other, "Text", &two).await?;
                print("sent", &two);
            }
        }
        print("tries", &free);
        broker.send(loose, "Text", &free).await?;
        print("sent", &free);
    }
    for dialog in [kept, other, loose] {
        broker.end(dialog).await?;
    }
    Ok(())
}

/// Receives in transactions, each with its rows in the tests' own table; now and then gives everything back.
async fn receive(broker: Broker, store: Store) -> Result<(), Error> {
    for round in 0_u64.. {
        outlived(receive_round(&broker, store, round).await)?;
    }
    Ok(())
}

async fn receive_round(broker: &Broker, store: Store, round: u64) -> Result<(), Error> {
    let tx = broker.begin().await?;
    let Some(batch) = tx.receive("to").top(1 + round % 5).wait(WAIT).await? else { return Ok(()) };
    record(&tx, store, batch.messages()).await?;
    if round % 7 == 3 {
        return tx.rollback().await;
    }
    let bodies = texts(batch.messages());
    tx.commit().await?;
    bodies.iter().for_each(|body| print("received", body));
    Ok(())
}

/// Receives outside a transaction.
async fn take(broker: Broker) -> Result<(), Error> {
    loop {
        let Some(batch) = outlived(broker.receive("loose").top(1).wait(WAIT).await)? else { continue };
        texts(batch.messages()).iter().for_each(|body| print("took", body));
        for message in batch.messages().iter().filter(|message| message.is_end_dialog()) {
            end(broker.end(message.handle()).await)?;
        }
    }
}

/// Ends what has come back to the senders.
async fn tidy(broker: Broker) -> Result<(), Error> {
    loop {
        let Some(batch) = outlived(broker.receive("from").wait(WAIT).await)? else { continue };
        for message in batch.messages() {
            end(broker.end(message.handle()).await)?;
        }
    }
}

/// A conversation that is closed on both sides is gone, which is what was wanted.
fn end<T>(ended: Result<T, Error>) -> Result<(), Error> {
    match ended {
        Err(error) if ![Code(8426), Code(8429)].contains(&error.code()) && !is_of_a_lost_server(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Writes what was received into the tests' own table, and ends what the other side has ended.
pub(crate) async fn record(tx: &Tx, store: Store, messages: &[Message]) -> Result<(), Error> {
    for message in messages {
        if message.is_end_dialog() {
            tx.end(message.handle()).await?;
            continue;
        }
        let text = store.sql("insert into received (body, conversation, sequence) values (?1, ?2, ?3)");
        let body = String::from_utf8_lossy(message.body()).into_owned();
        let sequence = i64::try_from(message.message_sequence_number).expect("a short conversation");
        tx.sql(text, (body, message.handle().to_string(), sequence)).await?;
    }
    Ok(())
}

/// The bodies of the application's messages.
pub(crate) fn texts(messages: &[Message]) -> Vec<String> {
    let application = messages.iter().filter(|message| &*message.message_type_name == "Text");
    application.map(|message| String::from_utf8_lossy(message.body()).into_owned()).collect()
}
