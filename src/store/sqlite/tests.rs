//! The embedded store from the seam: opening, committing, waiting for groups, failing, recovering.

use super::*;
use crate::id::{ConversationHandle, IdSource};
use crate::protocol::definition::{ContractEntry, Definition, QueueOptions, SentBy, Validation};
use crate::protocol::{Addressee, BeginDialog, EndForm, Message, OutgoingMessage, ReceiveFrom, Relation};
use crate::store::Seen;
use crate::store::SqlValue;
use crate::time::Timestamp;
use std::path::Path;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

mod against_sqlite;
mod bounds;
mod job_bodies;
pub(super) mod jobs;
mod kept_statements;
mod leaving;
mod locks;
mod panics;
mod refused_commits;
mod reopening;
mod timers;
pub(super) mod unwritten;
mod users_sql;

fn definitions() -> Vec<Definition> {
    vec![
        Definition::CreateMessageType { name: "t".into(), owner: None, validation: Validation::None },
        Definition::CreateContract {
            name: "c".into(),
            owner: None,
            entries: vec![ContractEntry { message_type: "t".into(), sent_by: SentBy::Any }],
        },
        Definition::CreateQueue { name: "from".into(), options: QueueOptions::default() },
        Definition::CreateQueue { name: "to".into(), options: QueueOptions::default() },
        Definition::CreateService { name: "a".into(), owner: None, queue: "from".into(), contracts: vec!["c".into()] },
        Definition::CreateService { name: "b".into(), owner: None, queue: "to".into(), contracts: vec!["c".into()] },
    ]
}

fn options(folder: &Path) -> SqliteOptions {
    SqliteOptions::new(Location::File(folder.join("a.db")))
}

async fn defined(options: SqliteOptions) -> Arc<SqliteStore> {
    let store = SqliteStore::open(options).unwrap();
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store
}

/// A store in memory with one conversation.
async fn with_a_dialog() -> (Arc<SqliteStore>, ConversationHandle) {
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let handle = begin(&store).await;
    (store, handle)
}

async fn three_transactions(store: &SqliteStore) -> [Box<dyn StoreTx>; 3] {
    [
        store.begin(Seen::always()).await.unwrap(),
        store.begin(Seen::always()).await.unwrap(),
        store.begin(Seen::always()).await.unwrap(),
    ]
}

fn dialog() -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "a".into(),
        to_service: "b".into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    })
}

async fn begin(store: &SqliteStore) -> ConversationHandle {
    match &store.submit(vec![dialog()]).await.unwrap()[0] {
        Outcome::Began { handle, .. } => *handle,
        other => panic!("{other:?}"),
    }
}

fn send(handle: ConversationHandle, body: &str) -> Verb {
    let body = Some(Arc::new(body.as_bytes().to_vec()));
    Verb::Send { handles: vec![handle], message_type: Some("t".into()), body, trace: None }
}

fn receive() -> Verb {
    Verb::Receive { queue: "to".into(), top: None, from: ReceiveFrom::Any }
}

fn messages(outcome: &Outcome) -> &[Message] {
    match outcome {
        Outcome::Received(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn bodies(outcome: &Outcome) -> Vec<String> {
    let text = |message: &Message| String::from_utf8(message.message_body.clone().unwrap()).unwrap();
    messages(outcome).iter().map(text).collect()
}

fn sql(text: &str) -> SqlStatement {
    SqlStatement { text: text.to_owned(), params: Vec::new(), expected_rows: None }
}

async fn count(store: &SqliteStore, text: &str) -> i64 {
    match store.query(sql(text)).await.unwrap().rows[0].values()[0] {
        SqlValue::Integer(number) => number,
        ref other => panic!("{other:?}"),
    }
}

/// Whether a future has come to its end; it is not polled again then.
fn is_ready<T>(future: &mut BoxFuture<'_, T>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[track_caller]
fn assert_pending<T>(future: &mut BoxFuture<'_, T>) {
    assert!(!is_ready(future), "it must wait");
}

/// Waits until the condition holds. The limit of the test ends a wait that does not end.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_unit_counts_by_its_bodies() {
    let handle = ConversationHandle(uuid::Uuid::nil());
    let sends = |bytes: usize, handles: usize| Verb::Send {
        handles: vec![handle; handles],
        message_type: None,
        body: Some(Arc::new(vec![0; bytes])),
        trace: None,
    };
    let share = 16 << 10;
    let part = || OutgoingMessage { handle, message_type: None, body: Some(Arc::new(vec![0; share / 2])), trace: None };
    let taken = TakenJob { job: crate::id::JobId(1), token: 1 };
    for (unit, counts) in [
        (vec![], 1),
        (vec![receive()], 1),
        (vec![sends(share - 1, 1)], 1),
        (vec![sends(share, 1)], 2),
        (vec![sends(share / 2, 1), sends(share / 2, 1)], 2),
        (vec![sends(share, 3), sends(share, 0)], 5),
        (vec![Verb::SendEach(vec![part(), part()])], 2),
        (vec![jobs::push(Some(vec![0; share]))], 2),
        (vec![Verb::Work(WorkVerb::Complete { taken, result: Some(Arc::new(vec![0; share])) })], 2),
    ] {
        assert_eq!(cost(&unit), counts, "{} verbs", unit.len());
    }
}

#[tokio::test]
async fn acknowledged_work_is_there_after_a_drop_and_after_a_close() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "one"), send(handle, "two")]).await.unwrap();
    drop(store);

    let store = SqliteStore::open(options(folder.path())).unwrap();
    store.submit(vec![send(handle, "three")]).await.unwrap();
    let first = Verb::Receive { queue: "to".into(), top: Some(1), from: ReceiveFrom::Any };
    assert_eq!(bodies(&store.submit(vec![first]).await.unwrap()[0]), ["one"]);
    store.close().await.unwrap();
    assert_eq!(store.submit(vec![receive()]).await.unwrap_err().code(), Code::STORE_CLOSED);

    let store = SqliteStore::open(options(folder.path())).unwrap();
    let outcomes = store.submit(vec![receive()]).await.unwrap();
    assert_eq!(bodies(&outcomes[0]), ["two", "three"]);
    assert_eq!(messages(&outcomes[0])[1].message_sequence_number, 2);
    assert!(messages(&store.submit(vec![receive()]).await.unwrap()[0]).is_empty());
}

#[tokio::test]
async fn memory_holds_a_broker_too() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "one")]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert_eq!(bodies(&tx.execute(receive()).await.unwrap()), ["one"]);
    tx.sql(sql("create table note (body)")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from note").await, 0);
    assert_eq!(count(&store, "select count(*) from queue_messages").await, 0);
}

#[tokio::test]
async fn a_dropped_transaction_returns_its_messages() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "one")]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert_eq!(bodies(&tx.execute(receive()).await.unwrap()), ["one"]);
    assert!(messages(&store.submit(vec![receive()]).await.unwrap()[0]).is_empty(), "the group is locked");
    drop(tx);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["one"]);
}

#[tokio::test]
async fn a_verb_waits_for_a_locked_group() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(handle, "first")).await.unwrap();
    let mut other = store.begin(Seen::always()).await.unwrap();
    let mut unit = store.submit(vec![send(handle, "second")]);
    let mut verb = other.execute(send(handle, "third"));
    tokio::select! {
        biased;
        _ = &mut unit => panic!("the group is locked"),
        _ = &mut verb => panic!("the group is locked"),
        () = tokio::task::yield_now() => {}
    }
    tx.commit().await.unwrap();
    unit.await.unwrap();
    verb.await.unwrap();
    other.rollback(None).await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["first", "second"]);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_for_a_group_keeps_its_transaction() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let (one, two) = (begin(&store).await, begin(&store).await);
    let mut holder = store.begin(Seen::always()).await.unwrap();
    holder.execute(send(one, "held")).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    {
        let mut verb = tx.execute(send(one, "never"));
        tokio::select! {
            biased;
            _ = &mut verb => panic!("the group is locked"),
            () = tokio::task::yield_now() => {}
        }
    }
    tx.execute(send(two, "kept")).await.unwrap();
    tx.commit().await.unwrap();
    drop(holder);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["kept"]);
    assert!(messages(&store.submit(vec![receive()]).await.unwrap()[0]).is_empty());
}

#[tokio::test]
async fn a_rollback_counts_if_a_caller_has_seen_the_messages() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "once")]).await.unwrap();
    let attempts = async |is_seen: bool, is_dropped: bool| {
        for _ in 0..5 {
            let seen = if is_seen { Seen::always() } else { Seen::default() };
            let mut tx = store.begin(seen).await.unwrap();
            assert_eq!(bodies(&tx.execute(receive()).await.unwrap()), ["once"]);
            match is_dropped {
                true => drop(tx),
                false => tx.rollback(None).await.unwrap(),
            }
        }
        // Asked of the queue itself: the definitions that readers see follow when the writer has come round.
        let mut tx = store.begin(Seen::default()).await.unwrap();
        tx.execute(receive()).await.map_err(|error| error.code())
    };
    assert_eq!(bodies(&attempts(false, false).await.unwrap()), ["once"]);
    assert_eq!(bodies(&attempts(false, true).await.unwrap()), ["once"]);
    assert_eq!(attempts(true, true).await.unwrap_err(), Code::QUEUE_DISABLED, "the fifth turns the queue off");
}

#[tokio::test]
async fn two_sessions_that_wait_for_each_other_are_found() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let (one, two) = (begin(&store).await, begin(&store).await);
    let mut first = store.begin(Seen::always()).await.unwrap();
    let mut second = store.begin(Seen::always()).await.unwrap();
    first.execute(send(one, "x")).await.unwrap();
    second.execute(send(two, "x")).await.unwrap();
    let mut waits = first.execute(send(two, "x"));
    tokio::select! {
        biased;
        _ = &mut waits => panic!("the group is locked"),
        () = tokio::task::yield_now() => {}
    }
    let lost = second.execute(send(one, "x")).await.unwrap_err();
    assert_eq!(lost.code(), Code::DEADLOCK);
    waits.await.unwrap();
    assert_eq!(second.execute(send(one, "x")).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    first.commit().await.unwrap();
}

#[tokio::test]
async fn the_users_sql_is_in_the_same_commit_and_only_its_own_unit_fails_with_it() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.run_sql(sql("create table note (id integer primary key, body)")).await.unwrap();
    store.run_sql(sql("create table strict_note (id integer primary key on conflict rollback)")).await.unwrap();
    store.run_sql(sql("insert into strict_note values (1)")).await.unwrap();

    let [mut good, mut bad, mut worse] = three_transactions(&store).await;
    good.sql(sql("insert into note values (1, 'a')")).await.unwrap();
    good.execute(send(handle, "good")).await.unwrap();
    assert_eq!(bad.sql(sql("update note set body = 'b' where id = 7")).await.unwrap(), 0);
    worse.sql(sql("insert into note values (2, 'c')")).await.unwrap();
    worse.sql(sql("insert into strict_note values (2)")).await.unwrap();
    for text in ["insert into strict_note values (2)", "insert into note values (7, 'd')"] {
        store.run_sql(sql(text)).await.unwrap();
    }
    let (good, bad, worse) = tokio::join!(good.commit(), bad.commit(), worse.commit());
    good.unwrap();
    assert_eq!(bad.unwrap_err().code(), Code::DEADLOCK);
    assert_eq!(worse.unwrap_err().code(), Code::DEADLOCK);
    assert_eq!(store.run_sql(sql("delete from note where body = 'd'")).await.unwrap(), 1);
    assert_eq!(count(&store, "select count(*) from note where body = 'a'").await, 1);
    assert_eq!(count(&store, "select count(*) from note").await, 1);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["good"]);
}

#[tokio::test]
async fn the_users_sql_is_checked_and_kept_away_from_the_brokers_tables() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    for text in [
        "selec 1",
        "",
        "insert into nowhere values (1)",
        "delete from dialoq_queue_message",
        "update Dialoq_broker set next_queuing_order = 1",
        "drop view sys_services",
        "create trigger x after insert on dialoq_queue_message begin select 1; end",
        "commit",
        "begin",
        "savepoint x",
        "attach 'x.db' as x",
        "pragma synchronous = off",
        "select 1; select 2",
        "select ?1",
    ] {
        let error = tx.sql(sql(text)).await.expect_err(text);
        assert_eq!(error.code(), Code::USER_SQL_FAILED, "{text}");
    }
    tx.sql(sql("create table later (id)")).await.unwrap();
    tx.sql(sql("insert into later values (1)")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from later").await, 1);
    let error = store.query(sql("delete from later")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
}

#[tokio::test]
async fn a_table_made_after_a_comment_may_be_used_in_the_same_transaction() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    for (table, text) in [("one", "-- for notes\ncreate table one (n)"), ("two", "/* for notes */create table two (n)")]
    {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(sql(text)).await.unwrap();
        tx.sql(sql(&format!("insert into {table} values (1)"))).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(count(&store, &format!("select count(*) from {table}")).await, 1);
    }
}

#[tokio::test]
async fn a_foreign_key_put_off_to_the_commit_fails_its_own_transaction_only() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    store.run_sql(sql("create table parent (id integer primary key)")).await.unwrap();
    let child = "create table child (id references parent(id) deferrable initially deferred)";
    store.run_sql(sql(child)).await.unwrap();
    let error = store.run_sql(sql("insert into child values (5)")).await.unwrap_err();
    assert_eq!(error.code(), Code::USER_SQL_FAILED);
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.sql(sql("insert into child values (6)")).await.unwrap();
    tx.sql(sql("insert into parent values (6)")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from child").await, 1);
}

#[tokio::test]
async fn savepoints_undo_verbs_and_sql_alike() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.run_sql(sql("create table note (body)")).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(handle, "kept")).await.unwrap();
    tx.savepoint("here").await.unwrap();
    tx.execute(send(handle, "undone")).await.unwrap();
    tx.sql(sql("insert into note values ('undone')")).await.unwrap();
    tx.rollback_to("here").await.unwrap();
    assert_eq!(tx.rollback_to("nowhere").await.unwrap_err().code(), Code::SAVEPOINT_NOT_FOUND);
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from note").await, 0);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["kept"]);
}

#[tokio::test]
async fn a_second_owner_is_refused_and_a_reader_is_not() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let error = SqliteStore::open(options(folder.path())).err().unwrap();
    assert_eq!(error.code(), Code::STORE_OWNED);
    let reader = SqliteStore::open_read_only(options(folder.path())).unwrap();
    let services = reader.query(sql("select name from sys_services order by name")).await.unwrap();
    let names: Vec<String> = services.rows.iter().map(|row| row.get("name").unwrap()).collect();
    assert_eq!(names.iter().filter(|name| ["a", "b"].contains(&name.as_str())).count(), 2);
    assert!(reader.catalog().queue("TO").is_some());
    assert_eq!(reader.submit(Vec::new()).await.unwrap_err().code(), Code::STORE_READ_ONLY);
    assert_eq!(reader.run_sql(sql("create table mine (n)")).await.unwrap_err().code(), Code::STORE_READ_ONLY);
    assert_eq!(reader.begin(Seen::always()).await.err().unwrap().code(), Code::STORE_READ_ONLY);
    store.submit_once(Uuid::from_u128(7), Vec::new()).await.unwrap();
    assert!(reader.unit_happened(Uuid::from_u128(7)).await.unwrap());
    assert!(!reader.unit_happened(Uuid::from_u128(8)).await.unwrap());
    assert!(reader.ended().is_none());
    reader.close().await.unwrap();
    assert_eq!(reader.ended().unwrap().code(), Code::STORE_CLOSED);
    assert_eq!(reader.query(sql("select 1")).await.unwrap_err().code(), Code::STORE_CLOSED);
    store.close().await.unwrap();
    let reader = SqliteStore::open_read_only(options(folder.path())).unwrap();
    assert!(reader.catalog().queue("TO").is_some(), "a file without an owner is read too");
    drop(store);
    SqliteStore::open(options(folder.path())).unwrap();
}

#[tokio::test]
async fn a_statement_of_the_user_returns_the_number_of_rows_changed() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    for location in [Location::File(folder.path().join("a.db")), Location::Memory] {
        let store = defined(SqliteOptions::new(location)).await;
        assert_eq!(store.run_sql(sql("create table note (body)")).await.unwrap(), 0);
        assert_eq!(store.run_sql(sql("insert into note values (1), (2), (3)")).await.unwrap(), 3);
        assert_eq!(store.run_sql(sql("update note set body = 9 where body > 1")).await.unwrap(), 2);
        assert_eq!(store.run_sql(sql("create table other (body)")).await.unwrap(), 0, "not the last count of others");
        let expected = SqlStatement { expected_rows: Some(2), ..sql("delete from note") };
        assert_eq!(store.run_sql(expected).await.unwrap_err().code(), Code::USER_SQL_FAILED);
        let expected = SqlStatement { expected_rows: Some(3), ..sql("delete from note") };
        assert_eq!(store.run_sql(expected).await.unwrap(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_under_load_loses_nothing_that_was_answered() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let answered = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, answered) = (store.clone(), answered.clone());
        let handle = begin(&store).await;
        senders.spawn(async move {
            loop {
                match store.submit(vec![send(handle, "x")]).await {
                    Ok(_) => answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst),
                    Err(closed) => return closed.code(),
                };
            }
        });
    }
    while answered.load(std::sync::atomic::Ordering::SeqCst) < 200 {
        tokio::task::yield_now().await;
    }
    store.close().await.unwrap();
    while let Some(code) = senders.join_next().await {
        assert_eq!(code.unwrap(), Code::STORE_CLOSED);
    }
    let answered = answered.load(std::sync::atomic::Ordering::SeqCst);
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    let there = count(&store, "select count(*) from queue_messages where queue_name = 'to'").await;
    assert_eq!(there.cast_unsigned(), answered, "what was refused is not there");
}

#[tokio::test]
async fn files_that_are_not_ours_are_refused_by_their_own_numbers() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str| {
        let mut options = SqliteOptions::new(Location::File(folder.path().join(name)));
        options.create_if_missing = false;
        SqliteStore::open(options).err().unwrap().code()
    };
    assert_eq!(refused("missing.db"), Code::STORE_IO);
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    assert_eq!(refused("empty.db"), Code::STORE_DAMAGED, "it may not become a broker");
    std::fs::write(folder.path().join("text.db"), "this is no database, only a few words of text").unwrap();
    assert_eq!(refused("text.db"), Code::STORE_FOREIGN);
    let other = rusqlite::Connection::open(folder.path().join("other.db")).unwrap();
    other.execute_batch("create table t (x)").unwrap();
    assert_eq!(refused("other.db"), Code::STORE_FOREIGN);
    assert!(!folder.path().join("text.db.owner").exists(), "no owner file is left for a foreign file");
    std::fs::create_dir(folder.path().join("folder.db")).unwrap();
    assert_eq!(refused("folder.db"), Code::STORE_FOREIGN);

    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    for number in 0..200 {
        store.submit(vec![send(handle, &format!("{number:>400}"))]).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let path = folder.path().join("a.db");
    let good = std::fs::read(&path).unwrap();
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    assert_eq!(refused("a.db"), Code::STORE_NEWER);
    let mut damaged = good.clone();
    damaged[4096..].chunks_mut(4096).for_each(|page| page[..64].fill(0xA5));
    std::fs::write(&path, damaged).unwrap();
    assert_eq!(refused("a.db"), Code::STORE_DAMAGED);
    std::fs::write(&path, &good).unwrap();
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(refused("a.db"), Code::STORE_READ_ONLY);
}

#[tokio::test]
async fn views_have_the_sequences_that_memory_has() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "one"), send(handle, "two")]).await.unwrap();
    let first = Verb::Receive { queue: "to".into(), top: Some(1), from: ReceiveFrom::Any };
    store.submit(vec![first]).await.unwrap();
    let text = format!(
        "select conversation_handle, send_sequence, receive_sequence, is_initiator, state_desc \
         from sys_conversation_endpoints where conversation_handle = '{handle}'"
    );
    let rows = store.query(sql(&text)).await.unwrap();
    assert_eq!(rows.rows[0].get::<String>("conversation_handle").unwrap(), handle.to_string());
    assert_eq!(rows.rows[0].get::<i64>("send_sequence").unwrap(), 2);
    let target = "select receive_sequence from sys_conversation_endpoints where is_initiator = 0";
    assert_eq!(count(&store, target).await, 2);
    store.submit(vec![receive()]).await.unwrap();
    assert_eq!(count(&store, target).await, 2);
    store.submit(vec![Verb::EndConversation { handle, form: EndForm::Plain }]).await.unwrap();
    let rows = store.query(sql("select state from sys_conversation_endpoints order by is_initiator")).await.unwrap();
    assert_eq!(rows.rows[0].get::<String>("state").unwrap(), "DI");
}

#[tokio::test]
async fn messages_that_waited_are_delivered_when_the_broker_is_enabled() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let ids = IdSource::Counted(0);
    let store = defined(SqliteOptions { ids, ..options(folder.path()) }).await;
    use crate::protocol::definition::BrokerOption;
    let alter = |option| vec![Verb::Define(vec![Definition::AlterDatabase { option }])];
    store.submit(alter(BrokerOption::DisableBroker)).await.unwrap();
    let handle = begin(&store).await;
    for number in 0..5 {
        store.submit(vec![send(handle, &number.to_string())]).await.unwrap();
    }
    assert_eq!(count(&store, "select count(*) from sys_transmission_queue").await, 5);
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    store.submit(alter(BrokerOption::EnableBroker)).await.unwrap();
    store.submit(Vec::new()).await.unwrap();
    assert_eq!(count(&store, "select count(*) from sys_transmission_queue").await, 0);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn every_definition_is_read_back_as_it_was_made() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        CREATE XML SCHEMA COLLECTION notes AS N'<s:schema xmlns:s="http://www.w3.org/2001/XMLSchema"/>';
        CREATE MESSAGE TYPE a AUTHORIZATION clerk; CREATE MESSAGE TYPE b VALIDATION = EMPTY;
        CREATE MESSAGE TYPE c VALIDATION = WELL_FORMED_XML; CREATE MESSAGE TYPE e VALIDATION = JSON;
        CREATE MESSAGE TYPE d VALIDATION = VALID_XML WITH SCHEMA COLLECTION notes;
        CREATE MESSAGE TYPE f VALIDATION = JSON SCHEMA N'{"maximum": 9}'; CREATE MESSAGE TYPE gone; DROP MESSAGE TYPE gone;
        CREATE CONTRACT talk AUTHORIZATION clerk (a SENT BY ANY, b SENT BY INITIATOR, c SENT BY TARGET);
        CREATE CONTRACT gone (a SENT BY ANY); DROP CONTRACT gone;
        CREATE QUEUE plain; CREATE QUEUE off WITH STATUS = OFF, RETENTION = ON;
        CREATE QUEUE q1 WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 2, EXECUTE AS SELF);
        CREATE QUEUE q2 WITH ACTIVATION (STATUS = OFF, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 3, EXECUTE AS OWNER);
        CREATE QUEUE q3 WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 4, EXECUTE AS 'clerk'),
            POISON_MESSAGE_HANDLING (STATUS = OFF);
        CREATE QUEUE q4 WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON);
        CREATE QUEUE q5 WITH RETRY (MAX_ATTEMPTS = 3, DELAY_MS = 7, THEN = DEAD_LETTER); CREATE QUEUE q6 WITH RETRY (THEN = QUEUE_OFF);
        CREATE SERVICE s AUTHORIZATION clerk ON QUEUE plain (talk, [DEFAULT]); CREATE SERVICE t ON QUEUE off;
        CREATE BROKER PRIORITY one FOR CONVERSATION SET (CONTRACT_NAME = talk, LOCAL_SERVICE_NAME = s, PRIORITY_LEVEL = 9);
        CREATE BROKER PRIORITY two FOR CONVERSATION SET (REMOTE_SERVICE_NAME = N'far', PRIORITY_LEVEL = 1);
        CREATE EVENT NOTIFICATION n1 ON QUEUE plain FOR QUEUE_ACTIVATION TO SERVICE 's', 'current database';
        CREATE EVENT NOTIFICATION n2 ON QUEUE plain FOR BROKER_QUEUE_DISABLED TO SERVICE 's', 'current database';
        ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON; ALTER DATABASE CURRENT SET DISABLE_BROKER;
    "#;
    let changes = "
        DROP EVENT NOTIFICATION n1 ON QUEUE plain; DROP BROKER PRIORITY two; DROP QUEUE q3;
        ALTER BROKER PRIORITY one FOR CONVERSATION SET (CONTRACT_NAME = ANY, REMOTE_SERVICE_NAME = N'far', PRIORITY_LEVEL = 10);
        ALTER MESSAGE TYPE d VALIDATION = EMPTY; DROP XML SCHEMA COLLECTION notes;
        ALTER SERVICE s ON QUEUE q4 (DROP CONTRACT talk); ALTER SERVICE t (ADD CONTRACT talk);
        ALTER QUEUE q2 WITH ACTIVATION (DROP); ALTER QUEUE off WITH STATUS = ON, RETENTION = OFF;
        ALTER DATABASE CURRENT SET NEW_BROKER; ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY OFF;
    ";
    for script in [script, changes, "DROP SERVICE t; DROP CONTRACT talk; DROP QUEUE off; DROP MESSAGE TYPE b"] {
        let store = SqliteStore::open(options(folder.path())).unwrap();
        let definitions = crate::catalog::ddl::parse(script).unwrap();
        let definitions = definitions.into_iter().map(|statement| statement.definition).collect();
        store.submit(vec![Verb::Define(definitions)]).await.unwrap();
        let made = format!("{:#?}", store.catalog());
        store.close().await.unwrap();
        drop(store);
        let store = SqliteStore::open(options(folder.path())).unwrap();
        assert!(store.catalog().queue("q4").is_some(), "after {script}");
        assert_eq!(format!("{:#?}", store.catalog()), made, "after {script}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_writer_of_a_store_that_failed_ends_although_a_timer_is_due() {
    let _limit = crate::testing::limit();
    let mut options = SqliteOptions::new(Location::Memory);
    options.clock = Clock::manual(Timestamp(1_000_000));
    let store = defined(options).await;
    let handle = begin(&store).await;
    store.submit(vec![Verb::BeginConversationTimer { handle, timeout_seconds: 10 }]).await.unwrap();
    // A lone caller writes on its own thread, so that the writer sleeps while the batch fails.
    for _ in 0..20 {
        store.submit(vec![send(handle, "x")]).await.unwrap();
        store.engine.lock_even_failed().note_callers(1, true);
    }
    store.engine.write.lock().unwrap().fault = Some(Fault::before(1));
    assert!(store.submit(vec![send(handle, "never")]).await.is_err());
    store.clock().advance(Duration::from_secs(20));
    until(|| store.threads.lock().unwrap()[0].is_finished()).await;
    assert!(store.close().await.is_err());
}

#[tokio::test]
async fn a_dropped_store_frees_its_file_although_a_check_still_holds_the_engine() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let engine = store.engine.clone();
    drop(store);
    drop(SqliteStore::open(options(folder.path())).unwrap());
    drop(engine);
}

#[tokio::test]
async fn in_memory_a_statement_that_does_not_end_leaves_the_threads_of_other_callers_free() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    store.run_sql(sql("create table t (n integer)")).await.unwrap();
    let endless = "insert into t with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r";
    let other = store.clone();
    let watch = store.engine.write.lock().unwrap().guard.watch.clone();
    let endless = tokio::spawn(async move { other.run_sql(sql(endless)).await });
    until(|| watch.is_running()).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let (first, second, ()) =
        tokio::join!(store.run_sql(sql("insert into t values (1)")), tx.sql(sql("delete from t where n = 9")), async {
            tokio::task::yield_now().await;
            endless.abort();
        });
    first.unwrap();
    second.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&store, "select count(*) from t").await, 1);
}

#[tokio::test]
async fn a_lone_caller_leaves_no_redelivery_to_a_writer_that_sleeps() {
    let _limit = crate::testing::limit();
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let set = |is_on| {
        let options = QueueOptions { status: Some(is_on), ..QueueOptions::default() };
        vec![Verb::Define(vec![Definition::AlterQueue { name: "to".into(), options }])]
    };
    store.submit(set(false)).await.unwrap();
    let handle = begin(&store).await;
    // More than one batch tries again.
    let most = 2_500;
    store.submit((0..most).map(|_| send(handle, "waits")).collect()).await.unwrap();
    // In memory batches are short, so that a lone caller writes on its own thread and the writer sleeps.
    let other = begin(&store).await;
    for _ in 0..100 {
        let verb = Verb::BeginConversationTimer { handle: other, timeout_seconds: 3600 };
        store.submit(vec![verb]).await.unwrap();
    }
    for _ in 0..10 {
        store.engine.lock_even_failed().note_callers(1, true);
    }
    until(|| store.engine.lock_even_failed().is_asleep).await;
    store.submit(set(true)).await.unwrap();
    {
        let state = store.engine.lock_even_failed();
        assert!(state.effects.redeliver.is_empty() || !state.is_asleep, "no signal wakes it");
    }
    let mut received = 0;
    while received < most {
        received += messages(&store.submit(vec![receive()]).await.unwrap()[0]).len();
    }
}

/// Units that wait for a locked group: five of a quarter of the room each, or more small ones than the room has places.
async fn senders_pass_units_that_wait_for_a_group(units: u32, bytes: usize) {
    let store = defined(SqliteOptions::new(Location::Memory)).await;
    let (held, free) = (begin(&store).await, begin(&store).await);
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(held, "first")).await.unwrap();
    let body = Arc::new(vec![b'x'; bytes]);
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..units {
        let (store, body) = (store.clone(), Some(body.clone()));
        let verb = Verb::Send { handles: vec![held], message_type: Some("t".into()), body, trace: None };
        others.spawn(async move { store.submit(vec![verb]).await });
    }
    until(|| store.engine.lock_even_failed().parked.cost() >= ROOM).await;
    let whole = Some(Arc::new(vec![b'y'; ROOM as usize * BODY_SHARE_BYTES / 4]));
    let whole = Verb::Send { handles: vec![free], message_type: Some("t".into()), body: whole, trace: None };
    let others_send = async {
        store.submit(vec![send(free, "passes")]).await.unwrap();
        store.submit(vec![whole]).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(60), others_send).await.expect("another group's sender waits");
    tx.commit().await.unwrap();
    while let Some(sent) = others.join_next().await {
        sent.unwrap().unwrap();
    }
    assert_eq!(store.engine.lock_even_failed().parked.cost(), 0);
    let nothing_is_under_way = store.room.acquire_many(ROOM);
    drop(tokio::time::timeout(Duration::from_secs(60), nothing_is_under_way).await.expect("all shares are back"));
    assert_eq!(count(&store, "select count(*) from queue_messages").await, i64::from(units) + 3);
}

#[tokio::test]
async fn large_units_that_wait_for_a_group_stop_no_sender_of_another() {
    let _limit = crate::testing::limit();
    senders_pass_units_that_wait_for_a_group(5, ROOM as usize * BODY_SHARE_BYTES / 4).await;
}

#[tokio::test]
async fn many_units_that_wait_for_a_group_stop_no_sender_of_another() {
    let _limit = crate::testing::limit();
    senders_pass_units_that_wait_for_a_group(ROOM + 500, 1).await;
}
