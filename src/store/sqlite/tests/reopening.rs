//! A file that is opened again: its content, its counters, and leftovers of another program.

use super::*;
use crate::store::Seen;
use crate::time::Clock;

#[tokio::test]
async fn no_number_is_given_out_twice_although_nothing_was_closed() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    drop(defined(options(folder.path())).await);
    let counters = |store: &SqliteStore| store.engine.lock_even_failed().core.counters();
    let mut last = (0, 0, 0);
    for _ in 0..3 {
        let store = SqliteStore::open(options(folder.path())).unwrap();
        let now = counters(&store);
        assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2, "{now:?} after {last:?}");
        let status = |is_on| {
            let options = QueueOptions { status: Some(is_on), ..QueueOptions::default() };
            Verb::Define(vec![Definition::AlterQueue { name: "to".into(), options }])
        };
        // Of all these no row is left.
        let handle = begin(&store).await;
        store.submit(vec![status(false)]).await.unwrap();
        store.submit(vec![send(handle, "one"), send(handle, "two")]).await.unwrap();
        store.submit(vec![status(true)]).await.unwrap();
        let received = store.submit(vec![receive()]).await.unwrap();
        for handle in [handle, messages(&received[0])[0].conversation_handle] {
            store.submit(vec![Verb::EndConversation { handle, form: EndForm::Cleanup }]).await.unwrap();
        }
        last = counters(&store);
        assert!(last.0 >= now.0 + 2 && last.1 >= now.1 + 2 && last.2 >= now.2 + 2, "{last:?} after {now:?}");
    }
}

/// A push in a transaction is answered before anything is written. The machine stops then.
#[tokio::test]
async fn no_job_gets_the_number_of_a_push_that_was_not_written() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let queue = Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() };
    store.submit(vec![Verb::Define(vec![queue])]).await.unwrap();
    let mut store = Some(store);
    for is_opened_again in [false, true] {
        if is_opened_again {
            store.take().unwrap().close().await.unwrap();
            store = Some(SqliteStore::open(options(folder.path())).unwrap());
        }
        let store = store.as_ref().unwrap();
        let mut tx = store.begin(Seen::always()).await.unwrap();
        let stopped = tempfile::tempdir().unwrap();
        let mut pushing = tx.execute(jobs::push(None));
        let pushed = {
            let _held = store.engine.write.lock().unwrap();
            let Poll::Ready(pushed) = pushing.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("it is answered from memory")
            };
            for file in std::fs::read_dir(folder.path()).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), stopped.path().join(file.file_name())).unwrap();
            }
            pushed.unwrap()
        };
        drop(pushing);
        let after = SqliteStore::open(options(stopped.path())).unwrap();
        let Outcome::Pushed { job: Some(job), .. } = &after.submit(vec![jobs::push(None)]).await.unwrap()[0] else {
            panic!("it is pushed")
        };
        assert!(!format!("{pushed:?}").contains(&format!("{job:?}")), "{pushed:?} was given already, and now {job:?}");
        tx.rollback(None).await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_receives_what_was_written_before_the_opening_with_its_trace() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    let trace: Option<Arc<str>> = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let Verb::Send { handles, message_type, body, .. } = send(handle, "one") else { unreachable!() };
    store.submit(vec![Verb::Send { handles, message_type, body, trace: trace.clone() }]).await.unwrap();
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let received = tx.execute(receive()).await.unwrap();
    assert_eq!(bodies(&received), ["one"]);
    assert_eq!(messages(&received)[0].trace, trace);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn conversations_go_to_the_services_that_they_were_begun_with() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let third = vec![
        Definition::CreateQueue { name: "third".into(), options: QueueOptions::default() },
        Definition::CreateService { name: "d".into(), owner: None, queue: "third".into(), contracts: vec!["c".into()] },
    ];
    store.submit(vec![Verb::Define(third)]).await.unwrap();
    let mut handles = Vec::new();
    for to_service in ["b", "d", "b", "d"] {
        let Verb::BeginDialog(dialog) = dialog() else { unreachable!() };
        let verb = Verb::BeginDialog(BeginDialog { to_service: to_service.into(), ..dialog });
        match &store.submit(vec![verb]).await.unwrap()[0] {
            Outcome::Began { handle, .. } => handles.push((*handle, to_service)),
            other => panic!("{other:?}"),
        }
    }
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    for (handle, to_service) in handles {
        store.submit(vec![send(handle, to_service)]).await.unwrap();
    }
    for (queue, to_service) in [("to", "b"), ("third", "d")] {
        for _ in 0..2 {
            let verb = Verb::Receive { queue: queue.into(), top: None, from: ReceiveFrom::Any };
            assert_eq!(bodies(&store.submit(vec![verb]).await.unwrap()[0]), [to_service], "queue {queue}");
        }
    }
}

#[tokio::test]
async fn after_a_failed_write_the_file_is_free_for_other_programs() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.close().await.unwrap();
    drop(store);
    let mut struck = options(folder.path());
    let fault = Fault::before(2);
    struck.fault = Some(fault.clone());
    let store = SqliteStore::open(struck).unwrap();
    assert!(!fault.has_struck());
    let error = store.submit(vec![send(handle, "never")]).await.unwrap_err();
    assert_eq!(error.code(), Code::STORE_IO);
    assert!(fault.has_struck());
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    other.execute_batch("begin immediate; rollback").unwrap();
    drop(store);
}

/// Makes a database, closes it and lets another program change it.
async fn changed_while_closed(folder: &Path, script: &str) {
    let store = defined(options(folder)).await;
    store.close().await.unwrap();
    drop(store);
    rusqlite::Connection::open(folder.join("a.db")).unwrap().execute_batch(script).unwrap();
}

/// A history is cut from its oldest rows, of which so many are looked at in one go.
#[tokio::test]
async fn rows_of_a_clock_that_was_ahead_keep_no_older_ones_in_a_history() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let create = Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() };
    store.submit(vec![Verb::Define(vec![create])]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    let fill = "with recursive n (n) as (select 1 union all select n + 1 from n where n < 2102)
        insert into dialoq_job_history (
            queue_id, finish_number, job_id, job_type, level, finished_as, attempts, pushed_at, pushed_by, finished_at)
        select q.queue_id, n, n, '', 5, 4, 1, 0, '', case when n <= 2100 then 9000000000000000 else n end
        from dialoq_work_queue as q, n";
    other.execute_batch(fill).unwrap();
    let store = SqliteStore::open(options(folder.path())).unwrap();
    // Answered when all that is due is done.
    store.submit(Vec::new()).await.unwrap();
    let kept = other.query_row("select count(*) from dialoq_job_history", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(kept, 2100, "two are too old");
    drop(store);
}

#[tokio::test]
async fn a_view_of_the_broker_that_another_program_changed_is_made_anew() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let script = "drop view sys_services; create view sys_services as select 'none' as name";
    changed_while_closed(folder.path(), script).await;
    let store = SqliteStore::open(options(folder.path())).unwrap();
    assert_eq!(count(&store, "select count(*) from sys_services where name = 'a'").await, 1);
}

#[tokio::test]
async fn a_version_of_the_tables_that_another_program_has_set_is_named_and_can_be_set_back() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    changed_while_closed(folder.path(), "select 1").await;
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    let version: i32 = other.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    for wrong in 0..version {
        other.pragma_update(None, "user_version", wrong).unwrap();
        let error = SqliteStore::open(options(folder.path())).err().unwrap();
        assert_eq!(error.code(), Code::STORE_DAMAGED, "{wrong}: {error}");
        assert!(error.message().contains("PRAGMA user_version"), "{wrong}: {error}");
    }
    other.pragma_update(None, "user_version", version).unwrap();
    SqliteStore::open(options(folder.path())).unwrap();
}

#[tokio::test]
async fn a_row_that_breaks_a_foreign_key_of_the_user_since_before_fails_no_transaction() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    let script = "pragma foreign_keys = off; create table parent (id integer primary key); \
                  create table child (parent references parent (id)); insert into child values (7)";
    other.execute_batch(script).unwrap();
    drop(other);
    assert_eq!(store.run_sql(sql("insert into parent values (1)")).await.unwrap(), 1);
}

#[tokio::test]
async fn a_statement_of_a_transaction_is_checked_when_it_is_given() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    store.run_sql(sql("create table t (n integer)")).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into t values (1)")).await.unwrap();
    let error = tx.sql(sql("insert into nowhere values (1)")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from t").await, 1);
}

#[tokio::test]
async fn a_reader_keeps_to_the_limit_of_its_statements_and_to_its_clock() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let _store = defined(options(folder.path())).await;
    let mut reading = options(folder.path());
    // Any limit will do: the statement never ends by itself.
    reading.sql_timeout = Some(Duration::from_millis(1));
    reading.clock = Clock::manual(Timestamp(1_000_000));
    let reader = SqliteStore::open_read_only(reading).unwrap();
    assert_eq!(reader.clock().now(), Timestamp(1_000_000));
    let endless = "with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r";
    assert_eq!(reader.query(sql(endless)).await.unwrap_err().code(), Code::SQL_TIMEOUT);
}

#[tokio::test]
async fn an_empty_file_with_the_mark_of_another_program_is_not_taken_for_a_new_one() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [("application_id", 7), ("user_version", 7)] {
        let path = folder.path().join(name);
        let other = rusqlite::Connection::open(&path).unwrap();
        other.pragma_update(None, name, value).unwrap();
        drop(other);
        let error = SqliteStore::open(SqliteOptions::new(Location::File(path))).err().unwrap();
        assert_eq!(error.code(), Code::STORE_FOREIGN, "{name}: {error}");
    }
}

#[tokio::test]
async fn a_file_of_each_earlier_version_is_upgraded() {
    let _limit = crate::testing::limit();
    let scripts = crate::sql::sqlite::schema::SCRIPTS;
    for version in 1..scripts.len() {
        let folder = tempfile::tempdir().unwrap();
        let earlier = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
        for script in &scripts[..version] {
            earlier.execute_batch(script.text).unwrap();
        }
        earlier.pragma_update(None, "application_id", 0x444C_4F51).unwrap();
        earlier.pragma_update(None, "user_version", version as i32).unwrap();
        drop(earlier);
        let store = defined(options(folder.path())).await;
        let handle = begin(&store).await;
        store.submit(vec![send(handle, "one")]).await.unwrap();
        assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["one"], "version {version}");
    }
}

#[tokio::test]
async fn a_lock_of_another_program_is_not_taken_for_a_wrong_version() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    // The views are made again, which needs the lock.
    changed_while_closed(folder.path(), "drop view sys_services").await;
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let mut options = options(folder.path());
    options.lock_wait = Duration::ZERO;
    let error = SqliteStore::open(options.clone()).err().unwrap();
    assert_eq!(error.code(), Code::STORE_OWNED, "{error}");
    other.execute_batch("rollback").unwrap();
    SqliteStore::open(options).unwrap();
}

/// The connection that only reads meets the lock first, and does not wait.
#[tokio::test]
async fn an_opening_waits_for_another_program_that_lets_none_read() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    changed_while_closed(folder.path(), "select 1").await;
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(())).unwrap();
    other.execute_batch("create table mine (n)").unwrap();
    let options = options(folder.path());
    let opening = tokio::task::spawn_blocking(move || SqliteStore::open(options));
    // Its lock file names it once it has found that the file is no foreign one.
    let note = folder.path().join("a.db.owner");
    until(|| opening.is_finished() || std::fs::read(&note).is_ok_and(|note| !note.is_empty())).await;
    drop(other);
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_close_leaves_the_exact_numbers() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let counters = |store: &SqliteStore| store.engine.lock_even_failed().core.counters();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "one")]).await.unwrap();
    store.submit(vec![receive()]).await.unwrap();
    let last = counters(&store);
    store.close().await.unwrap();
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    assert_eq!(counters(&store), last);
}
