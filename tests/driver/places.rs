//! The places of readers, which count over all sessions.

use crate::enlisting_mssql;
use crate::jobs_mssql::one;
use crate::servers::{Database, Store};
use dialoq::Broker;
use dialoq::mssql::Client;
use dialoq::postgres::tokio_postgres::{self, NoTls};

enum Step {
    /// A place of this many, and whether there is one.
    Take(u8, bool),
    /// The place of this taking.
    Free(usize),
}

use Step::{Free, Take};

/// Steps of two sessions: the maximum is lowered while readers run, and none begins before enough of them have gone.
const LOWERED: [(usize, Step); 22] = [
    (0, Take(9, true)),
    (1, Take(9, true)),
    (0, Take(9, true)),
    (1, Take(9, true)),
    (0, Take(1, false)),
    (0, Free(0)),
    // None below, three above the maximum.
    (0, Take(1, false)),
    (1, Take(3, false)),
    (1, Take(4, true)),
    (1, Free(1)),
    (1, Take(1, false)),
    (1, Take(3, false)),
    (0, Free(2)),
    (0, Take(2, false)),
    (0, Take(3, true)),
    (0, Free(5)),
    (1, Free(4)),
    (0, Take(0, false)),
    (0, Take(1, false)),
    (1, Free(3)),
    (0, Take(1, true)),
    (1, Take(1, false)),
];

enum Session {
    Postgres(tokio_postgres::Client),
    Mssql(Box<Client>),
}

impl Session {
    async fn number(&mut self, text: &str) -> Option<i32> {
        match self {
            Self::Postgres(client) => client.query_one(&format!("SELECT {text}"), &[]).await.unwrap().get(0),
            Self::Mssql(client) => one(client, text).await.get(0),
        }
    }

    async fn queue_id(&mut self) -> i32 {
        let text = match self {
            Self::Postgres(_) => "queue_id FROM dialoq.service_queue WHERE name = 'server'",
            Self::Mssql(_) => "SELECT queue_id FROM dialoq.service_queue WHERE name = N'server'",
        };
        self.number(text).await.unwrap()
    }

    async fn take(&mut self, queue: i32, most: u8) -> Option<i32> {
        let text = match self {
            Self::Postgres(_) => format!("slot FROM dialoq.take_reader_slot({queue}, {most})"),
            Self::Mssql(_) => format!("EXEC dialoq.take_reader_slot {queue}, {most}"),
        };
        self.number(&text).await
    }

    async fn free(&mut self, queue: i32, slot: i32) {
        match self {
            Self::Postgres(client) => {
                client.batch_execute(&format!("SELECT dialoq.free_reader_slot({queue}, {slot})")).await.unwrap();
            }
            Self::Mssql(client) => {
                let text = format!("EXEC dialoq.free_reader_slot {queue}, {slot}");
                client.simple_query(text).await.unwrap().into_results().await.unwrap();
            }
        }
    }
}

pub(crate) fn readers_above_a_lowered_maximum_count(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute("CREATE QUEUE server").await.unwrap();
        broker.close().await.unwrap();
        let mut sessions = Vec::new();
        for _ in 0..2 {
            sessions.push(match store {
                Store::Mssql => Session::Mssql(Box::new(enlisting_mssql::connect(database.url()).await)),
                _ => {
                    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
                    tokio::spawn(connection);
                    Session::Postgres(client)
                }
            });
        }
        let queue = sessions[0].queue_id().await;
        let mut taken = Vec::new();
        for (at, (session, step)) in LOWERED.iter().enumerate() {
            let session = &mut sessions[*session];
            match step {
                Take(most, is_some) => {
                    let slot = session.take(queue, *most).await;
                    assert_eq!(slot.is_some(), *is_some, "step {at}: {slot:?}");
                    taken.extend(slot);
                }
                Free(taking) => session.free(queue, taken[*taking]).await,
            }
        }
    });
}
