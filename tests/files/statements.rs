//! A statement of the user that does not end: it can be given a limit, ends with its caller, and never holds a close.

use crate::shop::{began, bodies, definitions, dialog, options, receive, send, sql};
use crate::{ENDLESS, PATIENCE, is_free, until};
use dialoq::Code;
use dialoq::internals::store::Seen;
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::{SqliteOptions, SqliteStore};
use dialoq::internals::store::url::Location;
use dialoq::protocol::Verb;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ENDLESS_QUERY: &str = "with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r";

async fn broker(options: SqliteOptions) -> Arc<SqliteStore> {
    let store = SqliteStore::open(options).unwrap();
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store.run_sql(sql("create table t (n integer)", Vec::new())).await.unwrap();
    store
}

fn limited(path: &Path) -> SqliteOptions {
    let mut options = options(path);
    options.sql_timeout = Some(Duration::from_millis(100));
    options
}

async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it ends")
}

#[tokio::test]
async fn a_statement_over_its_limit_fails_alone() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let memory = SqliteOptions { location: Location::Memory, ..limited(Path::new("")) };
    for options in [limited(&folder.path().join("a.db")), memory] {
        let store = broker(options).await;
        let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
        let mut slow = store.begin(Seen::always()).await.unwrap();
        slow.sql(sql("insert into t values (1)", Vec::new())).await.unwrap();
        assert_eq!(slow.sql(sql(ENDLESS, Vec::new())).await.unwrap_err().code(), Code::SQL_TIMEOUT);
        slow.execute(send(handle, "the transaction goes on")).await.unwrap();
        let endless_at_its_commit = crate::endless_at_its_commit(&store).await;
        let mut quick = store.begin(Seen::always()).await.unwrap();
        quick.sql(sql("insert into t values (2)", Vec::new())).await.unwrap();
        let (endless, later, slow, quick, other) = patiently(async {
            tokio::join!(
                store.run_sql(sql(ENDLESS, Vec::new())),
                endless_at_its_commit.commit(),
                slow.commit(),
                quick.commit(),
                store.query(sql(ENDLESS_QUERY, Vec::new())),
            )
        })
        .await;
        assert_eq!(endless.unwrap_err().code(), Code::SQL_TIMEOUT);
        assert_eq!(later.unwrap_err().code(), Code::SQL_TIMEOUT);
        slow.unwrap();
        assert_eq!(other.unwrap_err().code(), Code::SQL_TIMEOUT);
        quick.unwrap();
        store.submit(vec![send(handle, "kept")]).await.unwrap();
        assert_eq!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]), ["the transaction goes on", "kept"]);
        let rows = store.query(sql("select n from t", Vec::new())).await.unwrap();
        assert_eq!(rows.rows.len(), 2, "what did not end was undone alone");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_statement_whose_caller_has_gone_is_stopped() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = broker(options(&path)).await;
    let endless = store.clone();
    let endless = tokio::spawn(async move { endless.run_sql(sql(ENDLESS, Vec::new())).await });
    until("the writer is busy", || !is_free(&path)).await;
    endless.abort();
    let handle = began(&patiently(store.submit(vec![dialog("b")])).await.unwrap()[0]);
    patiently(store.submit(vec![send(handle, "next")])).await.unwrap();

    // A query on a connection of its own blocks no caller, but its thread must end.
    let handles = Arc::strong_count(&store);
    let query = store.clone();
    let query = tokio::spawn(async move { query.query(sql(ENDLESS_QUERY, Vec::new())).await });
    until("the query runs", || Arc::strong_count(&store) > handles + 1).await;
    query.abort();
    until("the query has ended", || Arc::strong_count(&store) == handles).await;
}

#[tokio::test]
async fn a_close_is_not_held_by_a_statement_that_does_not_end() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = broker(options(&path)).await;
    let tx = crate::endless_at_its_commit(&store).await;
    let endless = tokio::spawn(tx.commit());
    until("the writer is busy", || !is_free(&path)).await;
    patiently(store.close()).await.unwrap();
    assert_eq!(endless.await.unwrap().unwrap_err().code(), Code::STORE_CLOSED);
    drop(store);
    assert!(is_free(&path));
}

#[tokio::test]
async fn a_lone_callers_statement_that_does_not_end_leaves_the_callers_thread_free() {
    let _limit = crate::limit();
    // In memory a batch is short on every machine, so that a lone caller writes its SENDs on its own thread.
    let store = broker(SqliteOptions { location: Location::Memory, ..options(Path::new("")) }).await;
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    for _ in 0..100 {
        store.submit(vec![send(handle, "alone")]).await.unwrap();
    }
    let tx = crate::endless_at_its_commit(&store).await;
    let endless = tokio::spawn(tx.commit());
    tokio::task::yield_now().await;
    patiently(store.close()).await.unwrap();
    assert_eq!(endless.await.unwrap().unwrap_err().code(), Code::STORE_CLOSED);
}

#[tokio::test]
async fn a_drop_is_not_held_by_a_statement_that_does_not_end() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = broker(options(&path)).await;
    let tx = crate::endless_at_its_commit(&store).await;
    let endless = tokio::spawn(tx.commit());
    until("the writer is busy", || !is_free(&path)).await;
    endless.abort();
    let _ = endless.await;
    let dropped = tokio::task::spawn_blocking(move || drop(store));
    patiently(dropped).await.unwrap();
    assert!(is_free(&path));
}
