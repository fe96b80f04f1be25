//! The disk of the process that owns the file is full: it opens the file again when it can.

use super::*;
use crate::protocol::OutgoingMessage;
use crate::protocol::work::{AfterFailure, Hold, WorkVerb};
use crate::store::sqlite::Fault;
use crate::store::sqlite::tests::jobs::{push, take};
use std::collections::BTreeMap;

fn send(handle: ConversationHandle, text: &str) -> Verb {
    let body = Some(Arc::new(text.as_bytes().to_vec()));
    Verb::Send { handles: vec![handle], message_type: None, body, trace: None }
}

/// A store on a disk that can be filled, with a dialog.
async fn opened(folder: &Path) -> (Arc<Fault>, Arc<SharedStore>, ConversationHandle) {
    let disk = Fault::disk();
    let (store, handle) = opened_on(&disk, folder).await;
    (disk, store, handle)
}

async fn opened_on(disk: &Arc<Fault>, folder: &Path) -> (Arc<SharedStore>, ConversationHandle) {
    let options = SqliteOptions { fault: Some(disk.clone()), ..options(folder) };
    let store = SharedStore::open(options).unwrap();
    store.submit(vec![definitions(SERVICES)]).await.unwrap();
    let Outcome::Began { handle, .. } = store.submit(vec![dialog()]).await.unwrap()[0] else { panic!("no dialog") };
    (store, handle)
}

async fn bodies(store: &SharedStore) -> Vec<String> {
    let receive = Verb::Receive { queue: "q".into(), top: Some(100), from: ReceiveFrom::Any };
    let Outcome::Received(messages) = store.submit(vec![receive]).await.unwrap().remove(0) else {
        panic!("no messages")
    };
    messages.iter().map(|message| String::from_utf8(message.body().to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn an_owner_opens_its_file_again_after_a_full_disk() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (disk, store, handle) = opened(folder.path()).await;
    store.submit(vec![send(handle, "before")]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(dialog()).await.unwrap();
    let other = store.begin(Seen::always()).await.unwrap();
    disk.fill();
    for attempt in 1..=3 {
        let error = store.submit(vec![send(handle, "never")]).await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_FULL, "attempt {attempt}: {error}");
        assert!(error.message().contains("make room"), "{error}");
        assert!(store.ended().is_none(), "it is opened again");
        assert!(store.catalog().queue("q").is_some(), "the definitions are known meanwhile");
    }
    let error = tx.execute(dialog()).await.unwrap_err();
    assert!(error.code() == Code::OWNER_GONE && error.is_retryable(), "it was rolled back: {error}");
    assert_eq!(tx.commit().await.unwrap_err().code(), Code::OWNER_GONE);
    other.rollback(None).await.unwrap();
    disk.make_room();
    store.submit(vec![send(handle, "after")]).await.unwrap();
    assert!(store.is_owner());
    assert_eq!(bodies(&store).await, ["before", "after"]);
    store.close().await.unwrap();
    assert_eq!(store.ended().unwrap().code(), Code::STORE_CLOSED);
}

#[tokio::test]
async fn an_owner_closes_before_it_has_opened_its_file_again() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (disk, store, handle) = opened(folder.path()).await;
    store.submit(vec![send(handle, "before")]).await.unwrap();
    disk.fill();
    store.submit(vec![send(handle, "never")]).await.unwrap_err();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.submit(vec![send(handle, "never")]).await }
    });
    store.close().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!([Code::STORE_CLOSED, Code::STORE_FULL].contains(&error.code()), "{error}");
    let again = SharedStore::open(options(folder.path())).unwrap();
    assert_eq!(bodies(&again).await, ["before"]);
}

#[tokio::test]
async fn another_process_takes_the_file_over_and_works_for_the_one_whose_disk_was_full() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (disk, store, handle) = opened(folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    guest.submit(vec![send(handle, "before")]).await.unwrap();
    disk.fill();
    let error = store.submit(vec![send(handle, "never")]).await.unwrap_err();
    assert_eq!(error.code(), Code::STORE_FULL, "{error}");
    store.submit(vec![send(handle, "through the other")]).await.unwrap();
    assert!(guest.is_owner() && !store.is_owner());
    assert_eq!(bodies(&store).await, ["before", "through the other"]);
}

/// The id of the next job and its attempt, taken and held by the transaction.
async fn held(tx: &mut Box<dyn StoreTx>) -> (u64, u16) {
    let Outcome::Jobs(jobs) = tx.execute(take(Hold::Transaction)).await.unwrap() else { panic!("no jobs") };
    (jobs[0].taken.job.0, jobs[0].attempt)
}

/// The second failed attempt would be the end of a job.
#[tokio::test]
async fn a_full_disk_is_a_failed_attempt_of_the_jobs_whose_commit_met_it_and_of_no_others() {
    let _limit = crate::testing::limit();
    // The guest may take the file over, so that only what was written before counts there.
    for (has_guest, has_sql) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (disk, store, _) = opened(folder.path()).await;
        let guest_options = SqliteOptions { fault: Some(disk.clone()), ..options(folder.path()) };
        let guest = has_guest.then(|| SharedStore::open(guest_options).unwrap());
        store.submit(vec![definitions("CREATE WORK QUEUE w WITH MAX_ATTEMPTS = 2, RETRY_DELAY_MS = 0")]).await.unwrap();
        store.submit(vec![push(None), push(None), push(None)]).await.unwrap();
        store.run_sql(statement_of("create table t (n integer)")).await.unwrap();
        let mut attempts = BTreeMap::from([(1, 0), (2, 0), (3, 0)]);
        let mut rounds = vec![3, 2, 1, 1];
        while let Some(guilty) = rounds.pop() {
            let mut held_by = BTreeMap::new();
            for process in [Some(&store), guest.as_ref()].into_iter().flatten() {
                while process.submit(Vec::new()).await.is_err() {}
            }
            for place in 0..attempts.len() {
                let process = guest.as_ref().filter(|_| place == 1).unwrap_or(&store);
                let mut tx = process.begin(Seen::always()).await.unwrap();
                let (job, attempt) = held(&mut tx).await;
                assert_eq!(
                    attempt,
                    attempts[&job] + 1,
                    "job {job} before the fall of {guilty}: {has_guest}, {has_sql}"
                );
                held_by.insert(job, tx);
            }
            let mut tx = held_by.remove(&guilty).unwrap();
            if has_sql {
                tx.sql(statement_of("insert into t values (1)")).await.unwrap();
            }
            if has_guest {
                disk.refuse_one()
            } else {
                disk.fill()
            }
            let error = tx.commit().await.unwrap_err();
            disk.make_room();
            for (_, tx) in held_by {
                let error = tx.commit().await.unwrap_err();
                assert_eq!(error.code(), Code::OWNER_GONE, "{error}");
            }
            if error.code() == Code::OWNER_GONE {
                // The statistics that are written each second met it first.
                rounds.push(guilty);
                continue;
            }
            assert_eq!(error.code(), Code::STORE_FULL, "{error}");
            *attempts.get_mut(&guilty).unwrap() += 1;
            attempts.retain(|_, attempts| *attempts < 2);
        }
    }
}

/// A job whose transaction fills the disk by a statement would be taken for ever.
#[tokio::test]
async fn a_statement_that_meets_a_full_disk_is_a_failed_attempt_of_the_jobs_of_its_transaction() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (disk, store, _) = opened(folder.path()).await;
    store.submit(vec![definitions("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0")]).await.unwrap();
    store.run_sql(statement_of("create table t (n integer)")).await.unwrap();
    store.submit(vec![push(None), push(None)]).await.unwrap();
    let (mut guilty, mut other) =
        (store.begin(Seen::always()).await.unwrap(), store.begin(Seen::always()).await.unwrap());
    assert_eq!((held(&mut guilty).await, held(&mut other).await), ((1, 1), (2, 1)));
    disk.fill();
    let error = guilty.sql(statement_of("insert into t values (1)")).await.unwrap_err();
    assert!([Code::STORE_FULL, Code::OWNER_GONE].contains(&error.code()), "{error}");
    disk.make_room();
    assert_eq!(other.commit().await.unwrap_err().code(), Code::OWNER_GONE);
    while store.submit(Vec::new()).await.is_err() {}
    let mut again = store.begin(Seen::always()).await.unwrap();
    let attempts = BTreeMap::from([held(&mut again).await, held(&mut again).await]);
    let of_guilty = if error.code() == Code::STORE_FULL { 2 } else { 1 };
    assert_eq!(attempts, BTreeMap::from([(1, of_guilty), (2, 1)]), "{error}");
}

/// A file that fills its disk could not be emptied.
#[tokio::test]
async fn an_almost_full_disk_refuses_what_adds_to_it_and_lets_the_rest_go_on() {
    let _limit = crate::testing::limit();
    const MB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    disk.shrink(1024 * MB, 100 * MB);
    let (store, handle) = opened_on(&disk, folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    store.submit(vec![definitions("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0")]).await.unwrap();
    for _ in 0..4 {
        guest.submit(vec![send(handle, "before"), push(None)]).await.unwrap();
    }
    disk.shrink(1024 * MB, 20 * MB);
    // It is measured after each batch.
    store.run_sql(statement_of("create table t (n integer)")).await.unwrap();
    let each = Verb::SendEach(vec![OutgoingMessage { handle, message_type: None, body: None, trace: None }]);
    for store in [&store, &guest] {
        for refused in [send(handle, "never"), push(None), each.clone()] {
            let error = store.submit(vec![refused.clone()]).await.unwrap_err();
            assert_eq!(error.code(), Code::STORE_FULL, "{error}");
            assert!(error.message().contains("0 KB are left of it beside what is kept"), "{error}");
            let unit_id = uuid::Uuid::new_v4();
            let error = store.submit_once(unit_id, vec![refused.clone()]).await.unwrap_err();
            assert_eq!(error.code(), Code::STORE_FULL, "{error}");
            assert!(!store.unit_happened(unit_id).await.unwrap());
            let mut tx = store.begin(Seen::always()).await.unwrap();
            assert_eq!(tx.execute(refused).await.unwrap_err().code(), Code::STORE_FULL);
            tx.commit().await.unwrap();
        }
        // A transaction goes on after it.
        let mut tx = store.begin(Seen::always()).await.unwrap();
        assert_eq!(tx.execute(push(None)).await.unwrap_err().code(), Code::STORE_FULL);
        let Outcome::Jobs(jobs) = tx.execute(take(Hold::Transaction)).await.unwrap() else { panic!("no jobs") };
        let done = WorkVerb::Complete { taken: jobs[0].taken, result: None };
        tx.execute(Verb::Work(done)).await.unwrap();
        tx.commit().await.unwrap();
        let Outcome::Jobs(jobs) = store.submit(vec![take(Hold::Lease(None))]).await.unwrap().remove(0) else {
            panic!("no jobs")
        };
        let failed = WorkVerb::Fail { taken: jobs[0].taken, reason: "x".into(), then: AfterFailure::Dead };
        store.submit(vec![Verb::Work(failed)]).await.unwrap();
        assert!(store.ended().is_none());
    }
    assert!(store.is_owner(), "it has not failed");
    assert_eq!(bodies(&store).await, ["before"; 4]);
    disk.shrink(1024 * MB, 1024 * MB);
    guest.submit(vec![send(handle, "after")]).await.unwrap();
    assert_eq!(bodies(&guest).await, ["after"]);
}

/// Consumers filled a disk of 60 MB while a reader held the log back: the file was to grow by one page, and nothing was free for ever.
#[tokio::test]
async fn the_room_that_the_log_needs_is_not_used_up() {
    let _limit = crate::testing::limit();
    const MB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    disk.shrink(64 * MB, 30 * MB);
    let (store, handle) = opened_on(&disk, folder.path()).await;
    let reader = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM dialoq_queue_message").unwrap();
    store.submit(vec![send(handle, &"x".repeat(1 << 20))]).await.unwrap();
    store.run_sql(statement_of("create table t (n integer)")).await.unwrap();
    store.run_sql(statement_of("insert into t values (1)")).await.unwrap();
    // The file is to grow by 1 MB of its log.
    disk.shrink(64 * MB, MB);
    store.run_sql(statement_of("update t set n = 2")).await.unwrap();
    // It is measured now.
    let mut refused = 0;
    while let Err(error) = store.run_sql(statement_of("update t set n = 3")).await {
        assert!([Code::STORE_FULL, Code::OWNER_GONE].contains(&error.code()), "{error}");
        assert!(store.ended().is_none(), "it is opened again");
        refused += 1;
        // The reader goes, and the log can be written.
        let _ = reader.execute_batch("COMMIT");
    }
    assert!(refused > 0, "it uses up the room of the log");
    assert_eq!(bodies(&store).await, ["x".repeat(1 << 20)]);
    store.close().await.unwrap();
}

/// One transaction filled a disk for good: what it had added was forgotten each time that the disk was measured.
#[tokio::test]
async fn a_transaction_adds_no_more_than_there_is_room_for() {
    let _limit = crate::testing::limit();
    const MB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    disk.shrink(64 * MB, 10 * MB);
    let (store, _) = opened_on(&disk, folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    store.submit(vec![definitions("CREATE WORK QUEUE w")]).await.unwrap();
    for store in [&store, &guest] {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        let mut pushed = 0;
        while tx.execute(push(Some(vec![0; 100 << 10]))).await.is_ok() {
            pushed += 1;
            assert!(pushed < 30, "6 MB are left");
        }
        assert!(pushed > 20, "{pushed}");
        let many = vec![push(Some(vec![0; 100 << 10])); 5];
        assert_eq!(store.submit(many).await.unwrap_err().code(), Code::STORE_FULL);
        tx.rollback(None).await.unwrap();
        store.submit(vec![push(Some(vec![0; 100 << 10]))]).await.unwrap();
    }
}

/// Work that leads to more work stood still on a disk that was full of it.
#[tokio::test]
async fn what_a_transaction_took_may_be_answered_where_nothing_else_is_added() {
    let _limit = crate::testing::limit();
    const MB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    disk.shrink(64 * MB, 60 * MB);
    let (store, handle) = opened_on(&disk, folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    store.submit(vec![definitions("CREATE WORK QUEUE w")]).await.unwrap();
    store.submit(vec![send(handle, "m"), send(handle, "m")]).await.unwrap();
    let body = || Some(vec![0; 100 << 10]);
    store.submit(vec![push(body()), push(body())]).await.unwrap();
    for store in [&store, &guest] {
        let mut free = 8 * MB;
        while store.submit(vec![push(body())]).await.is_ok() {
            free -= 100 << 10;
            disk.shrink(64 * MB, free);
        }
        let mut tx = store.begin(Seen::always()).await.unwrap();
        assert_eq!(tx.execute(push(body())).await.unwrap_err().code(), Code::STORE_FULL, "it took nothing");
        let receive = Verb::Receive { queue: "q".into(), top: Some(1), from: ReceiveFrom::Any };
        tx.execute(receive).await.unwrap();
        tx.execute(push(body())).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = store.begin(Seen::always()).await.unwrap();
        let Outcome::Jobs(jobs) = tx.execute(take(Hold::Transaction)).await.unwrap() else { panic!("no jobs") };
        tx.execute(push(body())).await.unwrap();
        tx.execute(Verb::Work(WorkVerb::Complete { taken: jobs[0].taken, result: None })).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(take(Hold::Transaction)).await.unwrap();
        let mut pushed = 0;
        while tx.execute(push(body())).await.is_ok() {
            pushed += 1;
            assert!(pushed < 20, "it may use a quarter of what is kept, 1 MB");
        }
        tx.rollback(None).await.unwrap();
    }
}

/// A large statement filled the disk beside rows that were only in the log so far: they could not be written into the file any more.
#[tokio::test]
async fn a_statement_leaves_the_room_that_the_log_needs() {
    let _limit = crate::testing::limit();
    const MB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    disk.shrink(64 * MB, 40 * MB);
    let (store, handle) = opened_on(&disk, folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    store.run_sql(statement_of("create table t (n blob)")).await.unwrap();
    store.submit(vec![send(handle, "m"), send(handle, "m")]).await.unwrap();
    let rows = "with recursive n (n) as (select 1 union all select n + 1 from n where n < 3000)
        insert into t select randomblob(1000) from n";
    disk.shrink(64 * MB, 2 * MB);
    for store in [&store, &guest] {
        let error = store.run_sql(statement_of(rows)).await.unwrap_err();
        assert!(error.code() == Code::STORE_FULL && error.message().contains("was undone"), "{error}");
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.sql(statement_of("insert into t values (1)")).await.unwrap();
        assert_eq!(tx.sql(statement_of(rows)).await.unwrap_err().code(), Code::STORE_FULL);
        tx.sql(statement_of("insert into t values (1)")).await.unwrap();
        tx.commit().await.unwrap();
        assert!(store.ended().is_none());
    }
    assert!(store.is_owner(), "it has not failed");
    let count = statement_of("select count(*) from t");
    assert_eq!(store.query(count.clone()).await.unwrap().rows[0].values(), [crate::store::SqlValue::Integer(4)]);
    assert_eq!(bodies(&guest).await, ["m"; 2]);
    // One that writes much and adds nothing.
    disk.shrink(64 * MB, 40 * MB);
    store.run_sql(statement_of(rows)).await.unwrap();
    disk.shrink(64 * MB, 5 * MB);
    store.run_sql(statement_of("update t set n = randomblob(1000) where length(n) > 1")).await.unwrap();
    assert_eq!(store.query(count).await.unwrap().rows[0].values(), [crate::store::SqlValue::Integer(3004)]);
}

/// The log of a change of very many rows filled the disk, and what was committed before could not be written into the file any more.
#[tokio::test]
async fn a_change_of_very_many_rows_leaves_the_room_that_the_log_needs() {
    let _limit = crate::testing::limit();
    const MB: i64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let disk = Fault::disk();
    disk.shrink(64 * MB, 60 * MB);
    let (store, handle) = opened_on(&disk, folder.path()).await;
    store.submit(vec![definitions("CREATE WORK QUEUE w")]).await.unwrap();
    for _ in 0..10 {
        store.submit(vec![push(Some(vec![0; 100])); 1000]).await.unwrap();
    }
    store.submit(vec![send(handle, "m")]).await.unwrap();
    disk.shrink(64 * MB, 3 * MB);
    disk.use_up(100 << 10);
    let error = store.submit(vec![definitions("DROP WORK QUEUE w")]).await.unwrap_err();
    assert_eq!(error.code(), Code::STORE_FULL, "{error}");
    assert!(error.message().contains("what is left is needed"), "{error}");
    disk.use_up(0);
    disk.shrink(64 * MB, 60 * MB);
    while store.submit(Vec::new()).await.is_err() {}
    assert_eq!(bodies(&store).await, ["m"]);
    store.submit(vec![definitions("DROP WORK QUEUE w")]).await.unwrap();
}
