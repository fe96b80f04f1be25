//! The faults that strike a store under load.

use crate::servers::{Database, Store};
use dialoq::Broker;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Between two faults.
const PACE: Duration = Duration::from_millis(1500);

pub(crate) struct Faults {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Faults {
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        self.task.await.expect("the faults failed");
    }
}

pub(crate) fn start(database: &Database, url: String) -> Faults {
    let (stop, mut stopped) = watch::channel(false);
    let database = database.clone();
    let task = tokio::spawn(async move {
        let mut number = 0_u32;
        while tokio::time::timeout(PACE, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            number += 1;
            match database.store() {
                Store::Sqlite => embedded(number, &url).await,
                Store::Postgres | Store::Mssql => server(number, &database, &url).await,
            }
        }
    });
    Faults { stop, task }
}

/// Another program of the machine uses the file: it works through the owner for a moment, reads for a while, or writes its own
/// table for a while.
async fn embedded(number: u32, url: &str) {
    if number.is_multiple_of(3) {
        let refused = Broker::open(&format!("{url}&share=off")).await.expect_err("the file has an owner");
        assert_eq!(refused.code(), dialoq::Code::STORE_OWNED);
        let guest = Broker::open(url).await.expect("the owner works for another opener");
        guest.query("SELECT count(*) FROM sys_conversation_endpoints", ()).await.expect("the owner answers");
        // It goes without a word.
        drop(guest);
        return;
    }
    let path = url.trim_start_matches("sqlite:").split('?').next().expect("a path").to_owned();
    let text = if number % 3 == 1 {
        "BEGIN; SELECT count(*) FROM note;"
    } else {
        "BEGIN IMMEDIATE; INSERT INTO note (id, body) SELECT max(id) + 1, 'beside' FROM note; DELETE FROM note WHERE id > 0;"
    };
    let held = tokio::task::spawn_blocking(move || -> rusqlite::Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(path)?;
        // SQLite's waiting is not fair: with a busy writer on a busy machine 10 s did not suffice.
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.execute_batch(text)?;
        Ok(connection)
    });
    let connection = held.await.expect("a thread").expect("another program may use its own table");
    // The fault is that time passes while this is held.
    tokio::time::sleep(Duration::from_millis(300)).await;
    tokio::task::spawn_blocking(move || connection.execute_batch("COMMIT").map(|()| drop(connection)))
        .await
        .expect("a thread")
        .expect("it commits");
}

/// Sessions end, a snapshot is held, another process comes and goes.
async fn server(number: u32, database: &Database, url: &str) {
    match number % 3 {
        0 => {
            let database = Arc::new(database.clone());
            tokio::task::spawn_blocking(move || database.end_sessions()).await.expect("a thread");
        }
        1 => {
            let Ok(other) = Broker::open(url).await else { return };
            if let Ok(tx) = other.begin().await {
                let _ = tx.query("SELECT 1 AS one", ()).await;
                // The fault is that time passes while its snapshot is held.
                tokio::time::sleep(Duration::from_millis(500)).await;
                let _ = tx.rollback().await;
            }
            let _ = other.close().await;
        }
        // A process that goes without a word.
        _ => drop(Broker::open(url).await),
    }
}
