//! Transactions that end without their reader's doing. Of those that are lost together a queue counts one; five losses one after the
//! other turn it off like any five rollbacks.

use crate::servers::{Database, Store};
use crate::stage::{Puppet, Stage, Theatre, define, soon};
use dialoq::activation::{Handlers, Ramp};
use dialoq::work::WorkQueue;
use dialoq::{Act, Broker, Code};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

const LONG: Duration = Duration::from_secs(60);

/// Puts one message into each of five conversations.
async fn five_messages(broker: &Broker) {
    for _ in 0..5 {
        let dialog = broker.begin_dialog("client", "worker").await.unwrap();
        broker.send(dialog, "DEFAULT", "work").await.unwrap();
    }
}

async fn is_on(store: Store, broker: &Broker) -> bool {
    let is_enabled = if store == Store::Postgres { "is_receive_enabled" } else { "is_receive_enabled = 1" };
    let text =
        format!("select count(*) as n from {} where name = 'work' and {is_enabled}", store.view("service_queues"));
    broker.query(text, ()).await.unwrap().rows[0].get::<i64>("n").unwrap() == 1
}

/// Whether five such losses have turned the queue off, and fewer have not. What is read may be a moment old.
async fn has_counted(store: Store, broker: &Broker, losses: u32) {
    if losses < 5 {
        assert!(is_on(store, broker).await, "it is off after {losses}");
    } else {
        soon("the end of the queue", async { while is_on(store, broker).await {} }).await;
    }
}

/// Waits until all five messages are back, and what has ended is counted.
async fn are_back(store: Store, database: &Database, broker: &Broker) {
    let mut holders = Vec::new();
    while holders.len() < 5 {
        let tx = broker.begin().await.unwrap();
        match tx.get_conversation_group("work").wait(LONG).await {
            Ok(group) => holders.push((group.expect("its message is back"), tx)),
            Err(refused) => {
                assert_eq!(refused.code(), Code::QUEUE_DISABLED);
                break;
            }
        }
    }
    drop(holders);
    if store.is_server() {
        let tick = if store == Store::Postgres { "SELECT * FROM dialoq.tick(500)" } else { "EXEC dialoq.tick 500" };
        while database.sql("SELECT count(*) FROM dialoq.receive_attempt").trim() != "0" {
            database.sql(tick);
            tokio::task::yield_now().await;
        }
    }
}

// DIFFERENCE(lost-together): in Service Broker each is a rollback.
staged!(threads, an_abort_of_five_readers_is_one_rollback, async |store| {
    let stage = Stage::new(store).await;
    stage.arrive(5).await;
    for round in 1..=5 {
        let (mut theatre, procedure) = Theatre::new();
        let readers = stage.activate("work", procedure).max_queue_readers(5).ramp(Ramp::Fast).start();
        let mut at_work: Vec<Puppet> = Vec::new();
        while at_work.len() < 5 {
            let reader = theatre.next().await;
            while reader.receives().await == 0 {}
            at_work.push(reader);
        }
        soon("the abort", readers.abort()).await;
        has_counted(store, &stage, round).await;
    }
});

staged!(hosts, a_close_with_five_open_transactions_is_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    five_messages(&broker).await;
    for round in 1..=5 {
        let other = Broker::open(database.url()).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..5 {
            let tx = other.begin().await.unwrap();
            assert!(tx.receive("work").wait(LONG).await.unwrap().is_some());
            open.push(tx);
        }
        soon("the close", other.close()).await.unwrap();
        drop(open);
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});

staged!(servers, connections_that_are_cut_together_are_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    five_messages(&broker).await;
    for round in 1..=5 {
        let mut open = Vec::new();
        for _ in 0..5 {
            let tx = broker.begin().await.unwrap();
            assert!(tx.receive("work").wait(LONG).await.unwrap().is_some());
            // It has a connection of its own now.
            tx.query("select 1 as one", ()).await.unwrap();
            open.push(tx);
        }
        database.end_sessions();
        for tx in open {
            assert!(tx.commit().await.is_err(), "its connection is gone");
        }
        let until_it_works = async { while broker.query("select 1 as one", ()).await.is_err() {} };
        soon("a connection", until_it_works).await;
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});

staged!(postgres, an_abort_of_five_readers_at_a_statement_is_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    five_messages(&broker).await;
    for round in 1..=5 {
        let handlers = Handlers::new().on_message("DEFAULT", async |context, _| {
            context.tx().query("select pg_sleep(600)", ()).await?;
            Ok(())
        });
        let readers = broker.activate("work", handlers).max_queue_readers(5).ramp(Ramp::Fast).start();
        let at_work =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
        let all = async {
            while database.sql(at_work).trim() != "5" {
                tokio::task::yield_now().await;
            }
        };
        soon("five readers at a statement", all).await;
        soon("the abort", readers.abort()).await;
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});

staged!(a_worker_that_is_stopped_with_five_messages_in_hand_is_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    broker.execute("CREATE WORK QUEUE jobs WITH MAX_ATTEMPTS = 100, RETRY_DELAY_MS = 0").await.unwrap();
    five_messages(&broker).await;
    for _ in 0..5 {
        broker.push_job("jobs", "job").await.unwrap();
    }
    for round in 1..=5 {
        let (begun, mut at_work) = mpsc::unbounded_channel();
        let worker = broker.worker(WorkQueue::text("jobs"), move |context, _: String| {
            let begun = begun.clone();
            async move {
                let tx = context.tx.clone().unwrap();
                if tx.receive("work").await.map_err(|error| error.to_string())?.is_some() {
                    begun.send(()).unwrap();
                }
                drop(tx);
                std::future::pending::<Result<(), String>>().await
            }
        });
        let worker = worker.readers(5).in_transactions();
        let worker = if round % 2 == 0 { worker.activated() } else { worker }.start();
        for _ in 0..5 {
            soon("five readers at work", at_work.recv()).await.unwrap();
        }
        if round < 3 {
            soon("the end of the worker", worker.stop_within(Duration::ZERO)).await;
        } else {
            drop(worker);
        }
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});

/// Holds five messages in tasks of its own that do not come to an end. Then `main` returns.
fn main_with_tasks_that_returns(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::open(url).await.unwrap();
        let (begun, mut at_work) = mpsc::unbounded_channel();
        for _ in 0..5 {
            let (broker, begun) = (broker.clone(), begun.clone());
            tokio::spawn(async move {
                let arrival = broker.stream("work").top(1).next().await.unwrap().unwrap();
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(arrival);
            });
        }
        for _ in 0..5 {
            soon("five tasks at work", at_work.recv()).await.unwrap();
        }
    });
}

staged!(hosts, the_end_of_a_runtime_with_five_tasks_is_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    five_messages(&broker).await;
    for round in 1..=5 {
        let url = database.url().to_owned();
        tokio::task::spawn_blocking(move || main_with_tasks_that_returns(&url)).await.unwrap();
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});

/// Serves the queue with five readers that do not come to an end, until each has a message. Then `main` returns.
fn main_that_returns(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::open(url).await.unwrap();
        let (begun, mut at_work) = mpsc::unbounded_channel();
        let handlers = Handlers::new().on_message("DEFAULT", async move |_, _| {
            begun.send(()).unwrap();
            std::future::pending().await
        });
        let readers = broker.activate("work", handlers).max_queue_readers(5).ramp(Ramp::Fast).start();
        for _ in 0..5 {
            soon("five readers at work", at_work.recv()).await.unwrap();
        }
        drop(readers);
    });
}

staged!(hosts, the_end_of_a_runtime_with_five_readers_is_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    five_messages(&broker).await;
    for round in 1..=5 {
        let url = database.url().to_owned();
        tokio::task::spawn_blocking(move || main_that_returns(&url)).await.unwrap();
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});

#[cfg(unix)]
staged!(hosts, the_end_of_a_process_with_five_readers_is_one_rollback, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    five_messages(&broker).await;
    for round in 1..=5 {
        let folder = tempfile::TempDir::new().unwrap();
        let program = format!("touch {}/$$; exec sleep 600", folder.path().display());
        let command =
            ["activate", "work", "--max-queue-readers", "5", "--ramp", "fast", "--exec", "sh", "--", "-c", &program];
        let mut host = crate::hosts::Host::start(database.url(), &command);
        let at_work = async {
            // The programs have no other way to tell.
            while std::fs::read_dir(folder.path()).unwrap().count() < 5 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("five readers at work", at_work).await;
        host.kill();
        // They are in groups of their own, and nothing else ends them.
        let programs = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(std::process::Command::new("kill").arg("-9").args(programs).status().unwrap().success());
        soon("the count", are_back(store, &database, &broker)).await;
        has_counted(store, &broker, round).await;
    }
    broker.close().await.unwrap();
});
