//! The user's statements on a connection that others used before: the server has them prepared, as they were then.

use crate::servers::{Database, Store};
use dialoq::{Broker, SqlValue};

fn run<F: std::future::Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(6 * crate::stage::SOON, test()).await.expect("the test hangs") });
}

/// A pool of one connection.
async fn broker(database: &Database) -> Broker {
    let url = database.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    Broker::open(&format!("{url}{separator}pool_size=1")).await.unwrap()
}

fn text(rows: &dialoq::SqlRows) -> String {
    rows.rows[0].get("text").unwrap()
}

/// The literals of a statement were those of the caller who had run it first on that connection.
pub(crate) fn literals_are_those_of_each_caller(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = broker(&database).await;
        let day = "SELECT (timestamptz '2026-01-01 00:00' AT TIME ZONE 'UTC')::text AS text";
        let tx = broker.begin().await.unwrap();
        tx.sql("SET LOCAL TimeZone = 'Asia/Tokyo'", ()).await.unwrap();
        assert_eq!(text(&tx.query(day, ()).await.unwrap()), "2025-12-31 15:00:00");
        tx.commit().await.unwrap();
        assert_eq!(text(&broker.query(day, ()).await.unwrap()), "2026-01-01 00:00:00");
        // Prepared in the transaction, so the word means its beginning.
        let now = "SELECT (timestamptz 'now' = transaction_timestamp())::text AS text";
        for _ in 0..2 {
            let tx = broker.begin().await.unwrap();
            tx.sql("SELECT 1", ()).await.unwrap();
            assert_eq!(text(&tx.query(now, ()).await.unwrap()), "true");
            tx.rollback().await.unwrap();
        }
        broker.close().await.unwrap();
    });
}

/// A parameter kept the type that its column had when the statement ran first on that connection: values were cut off without a word.
pub(crate) fn a_column_that_was_altered_gets_whole_values(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = broker(&database).await;
        for (before, after, first, then, stored) in [
            ("date", "timestamptz", "2026-01-01".into(), "2026-01-01 12:30:00+00".into(), "2026-01-01 12:30:00+00"),
            ("integer", "text", "7".into(), "007".into(), "007"),
            ("integer", "bigint", SqlValue::Integer(7), SqlValue::Integer(1 << 40), "1099511627776"),
            ("real", "double precision", SqlValue::Real(0.5), SqlValue::Real(0.1), "0.1"),
            ("text", "integer", "7".into(), "8".into(), "8"),
            ("boolean", "integer", SqlValue::Integer(1), SqlValue::Integer(7), "7"),
        ] {
            let first: SqlValue = first;
            let then: SqlValue = then;
            database.sql(&format!("DROP TABLE IF EXISTS public.mine; CREATE TABLE public.mine (value {before})"));
            let insert = "INSERT INTO mine VALUES ($1)";
            broker.sql(insert, (first,)).await.unwrap();
            database
                .sql(&format!("DELETE FROM public.mine; ALTER TABLE public.mine ALTER value TYPE {after} USING NULL"));
            broker.sql(insert, (then,)).await.unwrap();
            assert_eq!(database.sql("SELECT value FROM public.mine"), stored, "{before} to {after}");
        }
        broker.close().await.unwrap();
    });
}
