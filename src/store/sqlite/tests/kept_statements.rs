//! Statements of the user that stay prepared, and what the store remembers of the schema.

use super::*;
use crate::sql::sqlite::read::SCHEMA_VERSION;
use crate::sql::sqlite::transaction::{BEGIN, COMMIT, RELEASE, ROLLBACK_TO, SAVEPOINT};
use crate::store::Seen;

const CHILD: &str = "create table child (parent references parent deferrable initially deferred)";

async fn columns(tx: &mut Box<dyn StoreTx>) -> Vec<usize> {
    let rows = tx.query(sql("select * from t")).await.unwrap();
    rows.rows.iter().map(|row| row.values().len()).collect()
}

/// The store keeps its own statements prepared under their texts, unguarded.
#[tokio::test]
async fn the_stores_own_statements_are_refused_from_a_user_also_when_they_are_prepared() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    store.run_sql(sql("create table t (n)")).await.unwrap();
    for text in [BEGIN, COMMIT, SAVEPOINT, RELEASE, ROLLBACK_TO, SCHEMA_VERSION] {
        for text in [text.to_owned(), format!("{text} "), format!("\n{text}")] {
            let mut tx = store.begin(Seen::always()).await.unwrap();
            tx.execute(send(handle, "x")).await.unwrap();
            tx.sql(sql("insert into t values (1)")).await.unwrap();
            for error in [
                tx.sql(sql(&text)).await.unwrap_err(),
                tx.query(sql(&text)).await.unwrap_err(),
                store.run_sql(sql(&text)).await.unwrap_err(),
            ] {
                assert_eq!(error.code(), Code::USER_SQL_FAILED, "{text}");
                assert!(error.message().contains("PRAGMA; the broker's verbs"), "{text}: {error}");
            }
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(count(&store, "select count(*) from t").await, 18);
}

#[tokio::test]
async fn a_refusal_shows_the_statement_as_it_was_written() {
    let _limit = crate::testing::limit();
    let (store, _) = with_a_dialog().await;
    for text in ["insert into nowhere values (1)", "insert into t", ";"] {
        let error = store.run_sql(sql(text)).await.unwrap_err();
        assert!(!error.to_string().contains("/*"), "{error}");
    }
    store.run_sql(sql("create table t (n primary key)")).await.unwrap();
    store.run_sql(sql("insert into t values (1)")).await.unwrap();
    let error = store.run_sql(sql("insert into t values (1)")).await.unwrap_err();
    assert!(!error.to_string().contains("/*"), "{error}");
}

#[tokio::test]
async fn a_statement_that_is_run_again_has_the_columns_of_now() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    store.run_sql(sql("create table t (a)")).await.unwrap();
    let insert = sql("insert into t (a) values (1)");
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(insert.clone()).await.unwrap();
    assert_eq!(columns(&mut tx).await, [1]);
    tx.sql(sql("alter table t add b")).await.unwrap();
    assert_eq!(columns(&mut tx).await, [2]);
    tx.savepoint("s").await.unwrap();
    tx.sql(sql("alter table t add c")).await.unwrap();
    assert_eq!(columns(&mut tx).await, [3]);
    tx.rollback_to("s").await.unwrap();
    assert_eq!(columns(&mut tx).await, [2]);
    tx.rollback(None).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(insert.clone()).await.unwrap();
    assert_eq!(columns(&mut tx).await, [1]);
    drop(tx);
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    other.execute_batch("alter table t add other").unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(insert).await.unwrap();
    assert_eq!(columns(&mut tx).await, [2]);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_key_that_was_made_since_the_last_statement_counts() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    store.run_sql(sql("create table parent (id integer primary key)")).await.unwrap();
    store.run_sql(sql("insert into parent values (1)")).await.unwrap();
    let orphan = || sql("insert into child values (9)");
    // In the transaction itself, with and without a commit of others between.
    for others in [false, true] {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(sql(CHILD)).await.unwrap();
        if others {
            store.run_sql(sql("insert into parent values (2)")).await.unwrap();
        }
        tx.sql(orphan()).await.unwrap();
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.code(), Code::USER_SQL_FAILED, "{error}");
        // A key that is gone at the end: SQLite counts it all the same.
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(sql(CHILD)).await.unwrap();
        tx.sql(orphan()).await.unwrap();
        tx.sql(sql("drop table child")).await.unwrap();
        let _ = tx.commit().await;
        store.run_sql(sql("delete from parent where id = 2")).await.unwrap();
    }
    // By another program, also after a change of the same number was undone here.
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    for is_one_undone in [false, true] {
        if is_one_undone {
            let mut tx = store.begin(Seen::always()).await.unwrap();
            tx.sql(sql("create table mine (n)")).await.unwrap();
            tx.sql(sql("insert into mine values (1)")).await.unwrap();
            tx.rollback(None).await.unwrap();
        }
        other.execute_batch(CHILD).unwrap();
        let error = store.run_sql(orphan()).await.unwrap_err();
        assert_eq!(error.code(), Code::USER_SQL_FAILED, "{error}");
        store.run_sql(sql("insert into child values (1)")).await.unwrap();
        assert_eq!(count(&store, "select count(*) from child").await, 1);
        other.execute_batch("drop table child").unwrap();
    }
}

/// Such a table stands before SQLite's own function of that name, which the store asks for foreign keys.
#[tokio::test]
async fn a_table_with_the_name_of_a_function_of_sqlite_stops_no_one() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    for text in [
        "create table pragma_foreign_key_list (x)",
        "create view Pragma_Foreign_Key_List as select 1 as x",
        "create table json_each (x)",
    ] {
        let _ = store.run_sql(sql(text)).await;
        store.run_sql(sql("create table if not exists other (n)")).await.unwrap();
        store.run_sql(sql("insert into other values (1)")).await.unwrap();
        store.submit(vec![send(handle, "x")]).await.unwrap();
    }
    store.run_sql(sql("create table plain (x)")).await.unwrap();
    let _ = store.run_sql(sql("alter table plain rename to pragma_foreign_key_list")).await;
    store.run_sql(sql("insert into other values (1)")).await.unwrap();
    store.submit(vec![send(handle, "x")]).await.unwrap();
}
