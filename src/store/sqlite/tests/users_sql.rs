//! Statements of transactions, which run when they are awaited and again at the commit.

use super::*;
use crate::store::Seen;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

async fn with(tables: &[&str]) -> (Arc<SqliteStore>, ConversationHandle) {
    let (store, handle) = with_a_dialog().await;
    for text in tables {
        store.run_sql(sql(text)).await.unwrap();
    }
    (store, handle)
}

async fn rows(tx: &mut Box<dyn StoreTx>, text: &str) -> Vec<Vec<SqlValue>> {
    let rows = tx.query(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    rows.rows.iter().map(|row| row.values().to_vec()).collect()
}

/// A commit of another caller: the statements of open transactions must run again.
async fn other_commit(store: &SqliteStore) {
    store.run_sql(sql("create table if not exists other (n)")).await.unwrap();
    store.run_sql(sql("insert into other values (1)")).await.unwrap();
}

#[tokio::test]
async fn random_numbers_and_the_time_that_were_returned_are_those_committed() {
    let _limit = crate::testing::limit();
    let table = "create table t (lucky, token, at text, day text default current_timestamp)";
    let (store, _) = with(&[table]).await;
    for _ in 0..3 {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        let insert = "insert into t (lucky, token, at)
                      select random(), randomblob(16), strftime('%Y-%m-%d %H:%M:%f', 'now') from (values (1), (2))
                      returning *";
        let reported = rows(&mut tx, insert).await;
        assert_ne!(reported[0][0], reported[1][0]);
        other_commit(&store).await;
        assert_eq!(rows(&mut tx, "select * from t order by rowid").await, reported);
        other_commit(&store).await;
        tx.commit().await.unwrap();
        let mut tx = store.begin(Seen::always()).await.unwrap();
        assert_eq!(rows(&mut tx, "delete from t returning *").await, reported);
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn the_last_row_is_that_of_the_own_transaction() {
    let _limit = crate::testing::limit();
    let tables = ["create table a (id integer primary key)", "create table line (a integer)"];
    let (store, _) = with(&tables).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into a values (41)")).await.unwrap();
    other_commit(&store).await;
    tx.sql(sql("insert into line values (last_insert_rowid())")).await.unwrap();
    other_commit(&store).await;
    assert_eq!(rows(&mut tx, "select a from line").await, [[SqlValue::Integer(41)]]);
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select a from line").await, 41);
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into line values (last_insert_rowid())")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select min(a) from line").await, 0, "not that of another transaction");
    other_commit(&store).await;
    store.run_sql(sql("insert into line values (last_insert_rowid() - 1)")).await.unwrap();
    assert_eq!(count(&store, "select min(a) from line").await, -1, "nor does a statement by itself see it");
}

#[tokio::test]
async fn the_last_row_of_a_later_statement_and_of_a_trigger_is_that_of_the_own_transaction() {
    let _limit = crate::testing::limit();
    let tables = ["create table a (id integer primary key)", "create table line (a integer)", "create table k (n)"];
    let (store, _) = with(&tables).await;
    let insert_other = || store.run_sql(sql("insert into a select 77 + count(*) from a"));
    insert_other().await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    // The first statement does not ask, so it may run after another one's row.
    tx.sql(sql("update a set id = id")).await.unwrap();
    assert_eq!(rows(&mut tx, "select last_insert_rowid()").await, [[SqlValue::Integer(0)]]);
    tx.savepoint("before").await.unwrap();
    tx.sql(sql("insert into line values (last_insert_rowid())")).await.unwrap();
    tx.rollback_to("before").await.unwrap();
    tx.sql(sql("insert into line select last_insert_rowid()")).await.unwrap();
    store.run_sql(sql("insert into k values (1)")).await.unwrap();
    tx.commit().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(count(&store, "select sum(a) from line").await, 0, "another row was the last one");

    for text in [
        "create trigger noted after update on k begin insert into line values (last_insert_rowid()); end",
        "delete from line",
    ] {
        store.run_sql(sql(text)).await.unwrap();
    }
    for _ in 0..2 {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(sql("update k set n = n + 1")).await.unwrap();
        insert_other().await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(count(&store, "select sum(a) from line").await, 0, "another row was the last one");
}

/// Runs statements in a transaction, then statements of others, and commits. Returns the code of the refusal.
async fn commit_after(tables: &[&str], own: &[&str], others: &[&str]) -> Option<Code> {
    let (store, _) = with(tables).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    for text in own {
        // A statement that returns rows is reported more than its count.
        match *text {
            text if text.starts_with("select") || text.contains("returning") => {
                drop(tx.query(sql(text)).await.unwrap())
            }
            text => drop(tx.sql(sql(text)).await),
        }
    }
    for text in others {
        store.run_sql(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    tx.commit().await.err().map(|error| {
        assert!(error.is_retryable(), "{error}");
        error.code()
    })
}

#[tokio::test]
async fn a_commit_is_refused_if_a_result_has_changed_and_only_then() {
    let _limit = crate::testing::limit();
    let tables = ["create table t (id integer primary key, n integer)", "insert into t values (1, 10), (2, 20)"];
    let conflict = Some(Code::DEADLOCK);
    for (own, others, expected) in [
        // A count.
        (&["update t set n = 0 where n > 15"][..], &["update t set n = 30"][..], conflict),
        (&["update t set n = 0 where n > 15"], &["update t set n = 5 where id = 1"], None),
        // Returned rows, and a number that SQLite chose.
        (&["update t set n = n + 1 where id = 1 returning n"], &["update t set n = 50"], conflict),
        (&["update t set n = n + 1 where id = 1"], &["update t set n = 50"], None),
        (&["insert into t (n) values (1) returning id"], &["insert into t (n) values (1)"], conflict),
        (&["insert into t (n) values (1)"], &["insert into t (n) values (1)"], None),
        (&["insert into t values (9, 1) returning id"], &["insert into t (n) values (1)"], None),
        // An error that was reported.
        (&["insert into t values (1, 1)"], &["delete from t where id = 1"], conflict),
        (&["insert into t values (1, 1)"], &["delete from t where id = 2"], None),
        (&["insert into t values (7, 7)"], &["insert into t values (7, 7)"], conflict),
        // Rows read after the transaction has written, and before.
        (&["insert into t values (7, 7)", "select sum(n) from t"], &["update t set n = 0"], conflict),
        (&["select sum(n) from t", "insert into t values (7, 7)"], &["update t set n = 0"], None),
        (&["insert into t values (7, 7)", "select n from t where id = 7"], &["update t set n = 0"], None),
        // A table that has gone.
        (&["insert into t values (7, 7)"], &["drop table t"], conflict),
    ] {
        assert_eq!(commit_after(&tables, own, others).await, expected, "{own:?} beside {others:?}");
    }
}

/// SQLite says of those for triggers that they only read.
#[tokio::test]
async fn a_definition_that_had_nothing_to_do_holds_at_the_commit() {
    let _limit = crate::testing::limit();
    let made = |kind: &str, name: &str, if_not: &str| match kind {
        "table" => format!("create table {if_not} {name} (n)"),
        "view" => format!("create view {if_not} {name} as select 1"),
        "index" => format!("create index {if_not} {name} on t (n)"),
        _ => format!("create trigger {if_not} {name} after insert on t begin select 1; end"),
    };
    for kind in ["table", "view", "index", "trigger"] {
        let (store, _) = with(&["create table t (n)", &made(kind, "there", "")]).await;
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(sql(&made(kind, "there", "if not exists"))).await.unwrap();
        tx.sql(sql(&format!("drop {kind} if exists gone"))).await.unwrap();
        for text in [format!("drop {kind} there"), made(kind, "gone", "")] {
            store.run_sql(sql(&text)).await.unwrap();
        }
        tx.commit().await.unwrap();
        for (name, expected) in [("there", 1), ("gone", 0)] {
            let found = count(&store, &format!("select count(*) from sqlite_schema where name = '{name}'")).await;
            assert_eq!(found, expected, "{kind} {name}");
        }
    }
}

#[tokio::test]
async fn a_statement_finds_a_conflict_of_an_earlier_one_and_the_transaction_has_ended() {
    let _limit = crate::testing::limit();
    let (store, handle) = with(&["create table t (id integer primary key)"]).await;
    store.submit(vec![send(handle, "back")]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert_eq!(bodies(&tx.execute(receive()).await.unwrap()), ["back"]);
    tx.sql(sql("insert into t values (1)")).await.unwrap();
    store.run_sql(sql("insert into t values (1)")).await.unwrap();
    let error = tx.sql(sql("insert into t values (2)")).await.unwrap_err();
    assert_eq!(error.code(), Code::DEADLOCK);
    assert!(error.message().contains("insert into t values (1)"), "{error}");
    assert_eq!(tx.sql(sql("select 1")).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["back"]);
    assert_eq!(count(&store, "select count(*) from t").await, 1);
}

#[tokio::test]
async fn conflicts_do_not_make_a_message_poison() {
    let _limit = crate::testing::limit();
    let (store, handle) = with(&["create table t (n integer)", "insert into t values (0)"]).await;
    store.submit(vec![send(handle, "innocent")]).await.unwrap();
    for round in 0..20 {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        assert_eq!(bodies(&tx.execute(receive()).await.unwrap()), ["innocent"], "round {round}");
        rows(&mut tx, "update t set n = n + 1 returning n").await;
        store.run_sql(sql("update t set n = n + 1")).await.unwrap();
        let error = if round % 2 == 0 {
            tx.commit().await.unwrap_err()
        } else {
            tx.query(sql("select n from t")).await.unwrap_err()
        };
        assert_eq!(error.code(), Code::DEADLOCK);
    }
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["innocent"]);
}

/// Counts the rows inserted into `t`, also those undone later.
fn count_inserts(store: &SqliteStore) -> Arc<AtomicUsize> {
    let inserted = Arc::new(AtomicUsize::new(0));
    let counted = inserted.clone();
    let mut write = store.engine.write.lock().unwrap();
    let count = move |_, _: &str, table: &str, _| {
        if table == "t" {
            counted.fetch_add(1, Relaxed);
        }
    };
    write.connection.update_hook(Some(count)).unwrap();
    inserted
}

#[tokio::test]
async fn a_lone_transaction_does_not_repeat_its_statements_each_time() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (n integer)"]).await;
    let inserted = count_inserts(&store);
    let mut tx = store.begin(Seen::always()).await.unwrap();
    for _ in 0..100 {
        tx.sql(sql("insert into t values (1)")).await.unwrap();
        until(|| store.engine.lock_even_failed().is_asleep).await;
    }
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from t").await, 100);
    // Repeating all of them for each would insert 5,150.
    let inserted = inserted.load(Relaxed);
    assert!(inserted < 2_500, "{inserted} rows were inserted for 100");
}

#[tokio::test]
async fn in_memory_others_read_and_write_beside_an_open_transaction() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (n integer)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    for committed in 0..10 {
        tx.sql(sql("insert into t values (1)")).await.unwrap();
        assert_eq!(count(&store, "select count(*) from t").await, committed, "nothing that is not committed");
        tx.sql(sql("create table if not exists made (n)")).await.unwrap();
        assert!(store.query(sql("select * from made")).await.is_err());
        store.run_sql(sql("insert into t values (2)")).await.unwrap();
    }
    tx.rollback(None).await.unwrap();
    assert_eq!(count(&store, "select sum(n) from t").await, 20);
}

#[tokio::test]
async fn another_program_can_write_while_a_transaction_is_idle_and_after_it() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    store.run_sql(sql("create table t (n integer)")).await.unwrap();
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into t values (1)")).await.unwrap();
    other.execute("insert into t values (2)", []).unwrap();
    assert_eq!(rows(&mut tx, "select sum(n) from t").await, [[SqlValue::Integer(3)]]);
    drop(tx);
    other.execute("insert into t values (4)", []).unwrap();
    assert_eq!(count(&store, "select sum(n) from t").await, 6);
}

#[tokio::test]
async fn a_statement_that_rolls_everything_back_is_undone_alone() {
    let _limit = crate::testing::limit();
    let (store, handle) = with(&["create table t (id integer primary key)", "insert into t values (1)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into t values (2)")).await.unwrap();
    tx.execute(send(handle, "sent")).await.unwrap();
    let error = tx.sql(sql("insert or rollback into t values (1)")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    // This one keeps its first row, if nothing undoes the whole statement.
    let error = tx.sql(sql("insert or fail into t values (5), (1)")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    tx.sql(sql("insert into t values (3)")).await.unwrap();
    assert_eq!(rows(&mut tx, "select sum(id) from t").await, [[SqlValue::Integer(6)]]);
    other_commit(&store).await;
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select sum(id) from t").await, 6);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["sent"]);
}

#[tokio::test]
async fn a_statement_whose_transaction_is_dropped_is_stopped() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (n integer)"]).await;
    let endless = "insert into t with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r";
    let watch = store.engine.write.lock().unwrap().guard.watch.clone();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let running = tokio::spawn(async move {
        tx.sql(sql("insert into t values (1)")).await.unwrap();
        tx.sql(sql(endless)).await
    });
    until(|| watch.is_running()).await;
    running.abort();
    store.run_sql(sql("insert into t values (2)")).await.unwrap();
    assert_eq!(count(&store, "select sum(n) from t").await, 2);
}

#[tokio::test]
async fn a_query_of_a_transaction_may_write_if_it_returns_rows() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (id integer primary key, n integer)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let made = rows(&mut tx, "with w(n) as (values (5), (6)) insert into t (n) select n from w returning id, n").await;
    assert_eq!(made.len(), 2);
    let error = tx.query(sql("delete from t")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select sum(n) from t").await, 11, "the refused statement was not run");
    let error = store.query(sql("delete from t returning n")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED, "a query outside a transaction only reads");
}

#[tokio::test]
async fn a_reserved_name_is_refused_at_the_statement() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&[]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("create table mine (n)")).await.unwrap();
    let error = tx.sql(sql("alter table mine rename to sys_mine")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    tx.sql(sql("insert into mine values (1)")).await.unwrap();
    // The commit runs the statements again, without the refused one.
    other_commit(&store).await;
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from mine").await, 1);
}

#[tokio::test]
async fn a_statement_of_nothing_but_comments_is_refused_as_such() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (n integer)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    for nothing in ["", " ; ", "-- no\rselect 1", "/* no */ ;", "\u{feff}"] {
        for error in [store.run_sql(sql(nothing)).await.unwrap_err(), tx.sql(sql(nothing)).await.unwrap_err()] {
            assert_eq!(error.code(), Code::USER_SQL_FAILED);
            assert!(error.message().contains("nothing but spaces and comments"), "{nothing:?}: {error}");
        }
    }
    tx.sql(sql("insert into t values (3)")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select n from t").await, 3);
}

/// The columns and the values of a query outside a transaction.
async fn table(store: &SqliteStore, text: &str) -> (Vec<String>, Vec<Vec<SqlValue>>) {
    let found = store.query(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    (found.columns.to_vec(), found.rows.iter().map(|row| row.values().to_vec()).collect())
}

/// Queries, and the first look at a statement, use connections that learn of a change of the schema when they next read.
#[tokio::test]
async fn the_next_query_and_the_next_statement_have_the_schema_that_the_last_one_made() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    store.run_sql(sql("create table t (a)")).await.unwrap();
    store.run_sql(sql("insert into t values (1)")).await.unwrap();
    for (text, columns) in [
        ("alter table t add column b default 2", &["a", "b"][..]),
        ("alter table t rename column b to c", &["a", "c"]),
        ("alter table t drop column c", &["a"]),
    ] {
        store.run_sql(sql(text)).await.unwrap();
        let (names, values) = table(&store, "select * from t").await;
        assert_eq!((names, values[0].len()), (columns.iter().map(|&name| name.to_owned()).collect(), columns.len()));
        let mut tx = store.begin(Seen::always()).await.unwrap();
        assert_eq!(rows(&mut tx, "select * from t").await, values, "{text}");
    }
    for definitions in [
        ["alter table t add column b", "alter table t drop column b"],
        ["create trigger r after insert on t begin select 1; end", "drop trigger r"],
        ["create index i on t (a)", "drop index i"],
        ["alter table t rename to u", "alter table u rename to t"],
    ] {
        for text in [definitions, definitions].concat() {
            store.run_sql(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}

/// A full-text index writes its own tables at each savepoint, and changes() counts those rows.
#[tokio::test]
async fn the_number_of_changes_after_a_statement_on_a_full_text_index_is_no_conflict() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create virtual table words using fts5(body)", "create table t (n)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into words values ('one'), ('two'), ('three')")).await.unwrap();
    let reported = rows(&mut tx, "select changes()").await;
    other_commit(&store).await;
    tx.sql(sql("insert into t values (1), (2)")).await.unwrap();
    assert_eq!(rows(&mut tx, "select changes()").await, [[SqlValue::Integer(2)]]);
    other_commit(&store).await;
    tx.commit().await.unwrap_or_else(|error| panic!("after {reported:?}: {error}"));
}

/// The index may write its own tables during the next statement, and REINDEX does not count again.
#[tokio::test]
async fn a_reindex_after_a_statement_on_a_full_text_index_is_no_conflict() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create virtual table words using fts5(body)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into words values ('one')")).await.unwrap();
    for text in ["reindex", "analyze"] {
        assert_eq!(tx.sql(sql(text)).await.unwrap(), 0, "{text}");
    }
    other_commit(&store).await;
    tx.commit().await.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test]
async fn an_r_tree_can_be_made_and_used() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create virtual table area using rtree(id, west, east)"]).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into area values (1, 0.5, 2), (2, 5, 7)")).await.unwrap();
    other_commit(&store).await;
    assert_eq!(rows(&mut tx, "select id from area where west < 3").await, [[SqlValue::Integer(1)]]);
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select id from area where east > 3").await, 2);
}

#[tokio::test]
async fn a_statement_that_cannot_be_read_is_shown_once_and_the_place_is_named() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (n integer)"]).await;
    let long = format!("insert into t values {} form", vec!["(1)"; 500].join(","));
    let mut tx = store.begin(Seen::always()).await.unwrap();
    for error in [
        store.run_sql(sql(&long)).await.unwrap_err(),
        store.query(sql(&long)).await.unwrap_err(),
        tx.sql(sql(&long)).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::USER_SQL_FAILED);
        assert!(error.message().len() < 200, "{error}");
        assert!(error.message().ends_with(r#"near "form": syntax error, at character 2022"#), "{error}");
    }
    let error = store.run_sql(sql("insert into u values (1)")).await.unwrap_err();
    assert!(error.message().ends_with("no such table: u"), "{error}");
}

#[tokio::test]
async fn a_commit_repeats_no_statement_that_is_still_applied_and_a_conflict_leaves_the_file_to_others() {
    let _limit = crate::testing::limit();
    let (store, _) = with(&["create table t (id integer primary key)"]).await;
    let inserted = count_inserts(&store);
    let mut tx = store.begin(Seen::always()).await.unwrap();
    {
        let mut write = store.engine.write.lock().unwrap();
        let mut ran = tx.sql(sql("insert into t values (1)"));
        assert_pending(&mut ran);
        store.engine.run_batch(&mut write, true);
        assert!(is_ready(&mut ran));
        drop(ran);
        let mut committed = tx.commit();
        assert_pending(&mut committed);
        store.engine.run_batch(&mut write, true);
        assert!(is_ready(&mut committed));
    }
    assert_eq!(inserted.load(Relaxed), 1);

    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into t values (2)")).await.unwrap();
    store.run_sql(sql("insert into t values (2)")).await.unwrap();
    let mut write = store.engine.write.lock().unwrap();
    let mut next = tx.sql(sql("insert into t values (3)"));
    assert_pending(&mut next);
    store.engine.run_batch(&mut write, true);
    assert!(is_ready(&mut next), "it finds that the first statement would fail now");
    assert!(write.connection.is_autocommit(), "another program can write");
}
