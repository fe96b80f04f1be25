//! SQL of the user that SQLite refuses only at the commit, which serves many transactions: it fails its own transaction
//! alone.

use super::*;
use crate::store::Seen;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const FAMILY: [&str; 4] = [
    "create table parent (id integer primary key)",
    "create table child (parent references parent (id) deferrable initially deferred)",
    "insert into parent values (1)",
    "insert into child values (1)",
];

async fn run_each(store: &SqliteStore, texts: &[&str]) {
    for text in texts {
        store.run_sql(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[tokio::test]
async fn a_refusal_at_the_commit_fails_only_its_own_transaction() {
    let _limit = crate::testing::limit();
    // DROP TABLE counts the rows of the child as violations, and the table that takes the name does not undo that.
    let migration = [
        "create table later (id integer primary key, note text)",
        "insert into later select id, null from parent",
        "drop table parent",
        "alter table later rename to parent",
    ];
    // No table with a constraint put off to the commit is left, but the violations stay counted.
    let without_child = [&migration[..], &["drop table child"]].concat();
    for unit in [&migration[..], &without_child[..]] {
        let (store, handle) = with_a_dialog().await;
        run_each(&store, &FAMILY).await;
        run_each(&store, &["create table note (n)"]).await;
        assert_fails_alone(&store, handle, unit).await;
    }
}

/// Full-text search writes its buffer when the transaction ends. After a damage that SQLite reports as SQLITE_CORRUPT,
/// it refuses all later writes of the same transaction, which is the whole batch.
#[tokio::test]
async fn a_damaged_full_text_index_fails_the_transaction_that_writes_it() {
    let _limit = crate::testing::limit();
    for damage in [
        "delete from search_data where id = 10",
        "update search_data set block = x'00'",
        "drop table search_data",
        "drop table search_idx",
        "drop table search_content",
        "drop table search_docsize",
    ] {
        fails_alone_after(damage).await;
    }
}

async fn fails_alone_after(damage: &str) {
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    let made = ["create virtual table search using fts5(body)", "insert into search values ('hello')"];
    run_each(&store, &made).await;
    run_each(&store, &["create table note (n)"]).await;
    store.close().await.unwrap();
    drop(store);
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.execute(damage, []).unwrap();
    drop(other);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    let more = "insert into search values ('more')";
    assert_eq!(store.run_sql(sql(more)).await.unwrap_err().code(), Code::USER_SQL_FAILED, "{damage}");
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert_eq!(
        tx.sql(sql(more)).await.unwrap_err().code(),
        Code::USER_SQL_FAILED,
        "at the statement, after '{damage}'"
    );
    tx.rollback(None).await.unwrap();
    assert_fails_alone(&store, handle, &[more]).await;
}

/// The unit is refused at its commit, and two other transactions of the same batch are not.
async fn assert_fails_alone(store: &SqliteStore, handle: ConversationHandle, unit: &[&str]) {
    let [mut bad, mut good, mut last] = three_transactions(store).await;
    good.sql(sql("insert into note values (1)")).await.unwrap();
    last.sql(sql("insert into note values (2)")).await.unwrap();
    let mut refused = None;
    for text in unit {
        refused = refused.or(bad.sql(sql(text)).await.err());
    }
    bad.execute(send(handle, "never")).await.unwrap();
    let bad = if refused.is_some() { bad.rollback(None) } else { bad.commit() };
    let (good, bad, last) = tokio::join!(good.commit(), bad, last.commit());
    assert_eq!(bad.err().or(refused).expect("it is refused").code(), Code::USER_SQL_FAILED, "{unit:?}");
    good.unwrap();
    last.unwrap();
    assert_eq!(count(store, "select sum(n) from note").await, 3);
    store.submit(vec![send(handle, "kept")]).await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["kept"]);
}

/// A definition that the store does not notice is committed without the check of the keys it has made.
#[tokio::test]
async fn a_definition_is_noticed_behind_whatever_sqlite_skips_at_the_beginning() {
    let _limit = crate::testing::limit();
    for skipped in ["\u{feff}", "/* /* */ ", "-- one line\rSELECT\n", "\u{c};\u{feff}; --\n", "/*/ */"] {
        let (store, handle) = with_a_dialog().await;
        run_each(&store, &["create table note (n)", FAMILY[0]]).await;
        let child = format!("{skipped}{}", FAMILY[1]);
        assert_fails_alone(&store, handle, &[&child, "insert into child values (7)"]).await;
    }
}

#[tokio::test]
async fn a_row_that_breaks_a_deferred_foreign_key_since_before_fails_no_other_statement() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    run_each(&store, &FAMILY).await;
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    other.execute_batch("pragma foreign_keys = off; delete from parent").unwrap();
    drop(other);
    assert_eq!(store.run_sql(sql("insert into parent values (2), (3)")).await.unwrap(), 2);
    assert_eq!(store.run_sql(sql("insert into child values (2)")).await.unwrap(), 1);
    let error = store.run_sql(sql("insert into child values (7)")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    assert_eq!(count(&store, "select count(*) from parent").await, 2);
}

#[tokio::test]
async fn a_deferred_foreign_key_without_an_index_fails_only_statements_that_need_it() {
    let _limit = crate::testing::limit();
    let (store, _) = with_a_dialog().await;
    let made = [
        "create table parent (id)",
        "create table child (parent references parent (id) deferrable initially deferred)",
        "create table note (n)",
        "insert into note values (1)",
    ];
    run_each(&store, &made).await;
    let error = store.run_sql(sql("insert into child values (1)")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
}

#[tokio::test]
async fn a_statement_that_would_do_something_else_the_second_time_fails_no_other_transaction() {
    let _limit = crate::testing::limit();
    let (store, handle) = with_a_dialog().await;
    run_each(&store, &FAMILY).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    // A rollback does not restore last_insert_rowid(): a second run adds a child without a parent.
    for text in [
        "create table once (n)",
        "insert into child values (iif(last_insert_rowid() = 50, 7, 1))",
        "insert into parent values (50)",
    ] {
        tx.sql(sql(text)).await.unwrap();
    }
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select sum(parent) from child").await, 2);
    store.submit(vec![send(handle, "kept")]).await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["kept"]);
}

/// Commits of transactions with rows of their own, and after each one with a statement that fails now. All are in one batch,
/// which begins when `release` has returned. Returns how many rows were inserted, also if the insert was undone later.
async fn commit_beside(store: &Arc<SqliteStore>, failing: &str, each: usize, release: impl FnOnce()) -> usize {
    let inserted = Arc::new(AtomicUsize::new(0));
    let mut commits = Vec::new();
    for number in 0..each {
        let (mut good, mut bad) =
            (store.begin(Seen::always()).await.unwrap(), store.begin(Seen::always()).await.unwrap());
        good.sql(sql(&format!("insert into note values ({number})"))).await.unwrap();
        bad.sql(sql("insert into once values (1)")).await.unwrap();
        assert_eq!(bad.sql(sql(failing)).await.is_err(), failing == REFUSED_ONCE);
        commits.extend([good, bad]);
    }
    // From now on the second of each pair fails.
    store.run_sql(sql("insert into taken values (1)")).await.unwrap();
    let mut commits: Vec<_> = {
        let mut write = store.engine.write.lock().unwrap();
        let counted = inserted.clone();
        let count = move |_, _: &str, table: &str, _| {
            if table == "note" {
                counted.fetch_add(1, Relaxed);
            }
        };
        write.connection.update_hook(Some(count)).unwrap();
        let mut commits: Vec<_> = commits.into_iter().map(|tx| tx.commit()).collect();
        commits.iter_mut().for_each(assert_pending);
        release();
        commits
    };
    for (place, commit) in commits.iter_mut().enumerate() {
        let code = commit.await.err().map(|error| error.code());
        assert_eq!(code, (place % 2 == 1).then_some(Code::DEADLOCK), "commit {place}");
    }
    inserted.load(Relaxed)
}

/// It undoes the whole transaction of SQLite.
const UNDOES_ALL: &str = "insert or rollback into taken values (1)";

/// It is refused the first time, and later no more.
const REFUSED_ONCE: &str = "insert into filled select count(*) from taken";

async fn with_tables(folder: &Path) -> Arc<SqliteStore> {
    let store = defined(options(folder)).await;
    for text in [
        "create table note (id integer primary key)",
        "create table taken (id integer primary key)",
        "create table once (n)",
        "create table filled (id integer primary key)",
        "insert into filled values (0)",
    ] {
        store.run_sql(sql(text)).await.unwrap();
    }
    store
}

#[tokio::test]
async fn many_statements_that_undo_the_batch_do_not_run_the_others_as_often() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = with_tables(folder.path()).await;
    let inserted = commit_beside(&store, UNDOES_ALL, 40, || {}).await;
    assert_eq!(count(&store, "select count(*) from note").await, 40);
    assert!(inserted <= 40 * 5, "{inserted} inserts of 40 rows");
}

#[tokio::test]
async fn a_conflict_at_the_commit_undoes_its_own_transaction_and_repeats_the_others_once() {
    let _limit = crate::testing::limit();
    for failing in ["insert into taken values (1)", REFUSED_ONCE] {
        let folder = tempfile::tempdir().unwrap();
        let store = with_tables(folder.path()).await;
        let inserted = commit_beside(&store, failing, 40, || {}).await;
        assert_eq!(count(&store, "select count(*) from note").await, 40);
        assert_eq!(count(&store, "select count(*) from once").await, 0, "a part of a refused transaction is there");
        assert!(inserted <= 40 * 2, "{inserted} inserts of 40 rows");
    }
}

/// The error of an earlier statement, which the application went on after, is another one or none by now.
#[tokio::test]
async fn a_conflict_at_a_statement_leaves_nothing_for_the_commit_of_others() {
    let _limit = crate::testing::limit();
    for change in ["delete from filled", "drop table filled"] {
        let folder = tempfile::tempdir().unwrap();
        let store = with_tables(folder.path()).await;
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(sql("insert into once values (1)")).await.unwrap();
        tx.sql(sql("insert into filled values (0)")).await.unwrap_err();
        store.run_sql(sql(change)).await.unwrap();
        let (mut next, mut other) = (
            Box::pin(tx.sql(sql("insert into once values (1)"))),
            Box::pin(store.run_sql(sql("insert into note values (1)"))),
        );
        {
            // The statement runs when the writer goes on, and the commit of the other one right after it.
            let _writer = store.engine.write.lock().unwrap();
            assert_pending(&mut next);
            assert_pending(&mut other);
        }
        assert_eq!(next.await.unwrap_err().code(), Code::DEADLOCK, "after '{change}'");
        other.await.unwrap();
        assert_eq!(count(&store, "select count(*) from once").await, 0, "a part of a refused transaction is there");
    }
}

#[tokio::test]
async fn a_close_runs_the_commits_that_wait_for_the_next_batch() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = with_tables(folder.path()).await;
    let closed = Arc::new(Mutex::new(None));
    let (closing, thread) = (store.clone(), closed.clone());
    commit_beside(&store, UNDOES_ALL, 20, || {
        let engine = store.engine.clone();
        *thread.lock().unwrap() = Some(std::thread::spawn(move || closing.close_now()));
        while !engine.lock_even_failed().is_closed {
            std::thread::yield_now();
        }
    })
    .await;
    closed.lock().unwrap().take().unwrap().join().unwrap().unwrap();
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    assert_eq!(count(&store, "select count(*) from note").await, 20);
}

#[tokio::test]
async fn a_statement_is_checked_at_once_unless_one_before_it_makes_tables() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let insert = || sql("insert into later values (1)");
    assert_eq!(tx.sql(insert()).await.unwrap_err().code(), Code::USER_SQL_FAILED);
    tx.savepoint("before").await.unwrap();
    tx.sql(sql("create table later (id integer primary key)")).await.unwrap();
    tx.savepoint("after").await.unwrap();
    tx.sql(insert()).await.unwrap();
    tx.rollback_to("after").await.unwrap();
    tx.sql(insert()).await.unwrap();
    tx.rollback_to("before").await.unwrap();
    tx.sql(sql("create table earlier (id integer primary key)")).await.unwrap();
    tx.rollback_to("before").await.unwrap();
    assert_eq!(tx.sql(insert()).await.unwrap_err().code(), Code::USER_SQL_FAILED);
    tx.rollback(None).await.unwrap();
}
