//! Databases with casts of an application's own, or of another encoding.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::act::Outgoing;
use dialoq::{Act, Broker, Code};
use std::future::Future;

/// Applications that were written for an old PostgreSQL or for another server have such casts. With them `'q:' || 7` fits several
/// operators, and PostgreSQL refuses it.
const CASTS: &str = "
    CREATE CAST (smallint AS text) WITH INOUT AS IMPLICIT; CREATE CAST (integer AS text) WITH INOUT AS IMPLICIT;
    CREATE CAST (bigint AS text) WITH INOUT AS IMPLICIT; CREATE CAST (numeric AS text) WITH INOUT AS IMPLICIT;
    CREATE CAST (oid AS text) WITH INOUT AS IMPLICIT; CREATE CAST (date AS text) WITH INOUT AS IMPLICIT;
    CREATE CAST (timestamptz AS text) WITH INOUT AS IMPLICIT;";

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON);
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);
    CREATE WORK QUEUE work; CREATE WORK QUEUE limited WITH MAX_TAKEN = 5, RATE_JOBS = 100;
    CREATE WORK QUEUE strict WITH ORDER = FIFO_STRICT;";

fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(3 * SOON, test()).await.expect("the test hangs") });
}

pub(crate) fn implicit_casts_to_text_stop_no_verb(store: Store) {
    run(|| async move {
        let database = Database::bare(store);
        database.sql(CASTS);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let mut dialogs = Vec::new();
        for _ in 0..3 {
            dialogs.push(broker.begin_dialog("Asker", "Server").contract("Talk").await.unwrap());
        }
        broker.send(dialogs[0], "Word", "a").await.unwrap();
        broker.send_each(dialogs.iter().map(|dialog| Outgoing::new(*dialog, "Word", "b"))).await.unwrap();
        let tx = broker.begin().await.unwrap();
        let taken = tx.receive("server").await.unwrap().expect("a message");
        tx.send(taken.first().conversation_handle, "Word", "c").await.unwrap();
        tx.rollback().await.unwrap();
        while let Some(batch) = broker.receive("server").await.unwrap() {
            broker.send(batch.first().conversation_handle, "Word", "d").await.unwrap();
            broker.end_with_error(batch.first().conversation_handle, 5, "no").await.unwrap();
        }
        while broker.receive("asker").await.unwrap().is_some() {}
        for queue in ["work", "limited", "strict"] {
            broker.push_job(queue, "a").unique("key").await.unwrap();
            broker.push_job(queue, "b").key("key").await.unwrap();
            let job = broker.take_jobs(queue).await.unwrap().pop().expect("a job");
            broker.fail_job(&job, "no").await.unwrap();
            broker.redrive_jobs(&dialoq::work::JobFilter::default()).await.unwrap();
        }
        broker
            .execute("ALTER QUEUE server WITH STATUS = OFF; ALTER QUEUE server WITH STATUS = ON; DROP WORK QUEUE work")
            .await
            .unwrap();
        broker.status().await.unwrap();
        broker.doctor().await.unwrap();
        assert!(!broker.work_queues().await.unwrap().is_empty());
        database.sql("SELECT * FROM dialoq.tick(256)");
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_database_of_another_encoding_is_refused(store: Store) {
    run(|| async move {
        let database = Database::bare(store);
        let name = database.sql("SELECT current_database()");
        for encoding in ["LATIN1", "SQL_ASCII"] {
            let other = format!("{}_{}", name.trim(), encoding.to_lowercase());
            database.sql(&format!(
                "CREATE DATABASE {other} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ));
            let refused = Broker::open(&database.url().replace(name.trim(), &other)).await.expect_err("it is not UTF8");
            database.sql(&format!("DROP DATABASE {other} WITH (FORCE)"));
            assert_eq!(refused.code(), Code::UNSUPPORTED, "{refused}");
            assert!(refused.message().contains(encoding) && refused.message().contains("UTF8"), "{refused}");
        }
    });
}

/// As `dialoq status` opens it, with the URL of the application.
pub(crate) fn an_opening_for_reading_changes_nothing_whatever_its_url_says(store: Store) {
    run(|| async move {
        let database = Database::bare(store);
        let url = format!("{}&install=yes&closed_retention_s=60", database.url());
        let missing = Broker::open_read_only(&url).await.unwrap_err();
        assert_eq!(missing.code(), Code::SCHEMA_MISSING);
        assert_eq!(database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'dialoq'"), "0");
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        Broker::open_read_only(&url).await.unwrap().close().await.unwrap();
        assert_eq!(database.sql("SELECT closed_retention_s FROM dialoq.broker"), "1800");
    });
}
