//! Who owns the file, what a guest does without calls, and what a reader learns.

use super::*;
use crate::protocol::work::Hold;

#[tokio::test]
async fn a_reader_learns_from_the_owner_who_holds_a_group() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    owner.submit(vec![definitions(SERVICES)]).await.unwrap();
    let Outcome::Began { handle, group, .. } = owner.submit(vec![dialog()]).await.unwrap()[0] else {
        panic!("no dialog")
    };
    let given = SqliteOptions { create_if_missing: false, ..options(folder.path()) };
    let reader = crate::store::sqlite::read_only::ReadOnlyStore::open(given).unwrap();
    assert_eq!(reader.lock_holder(group.0).await.unwrap(), None);
    let mut tx = owner.begin(Seen::always()).await.unwrap();
    tx.execute(Verb::Send { handles: vec![handle], message_type: None, body: None, trace: None }).await.unwrap();
    let holder = reader.lock_holder(group.0).await.unwrap().expect("it is held");
    assert_eq!(holder.process_id, Some(std::process::id().into()));
    tx.rollback(None).await.unwrap();
    owner.close().await.unwrap();
    assert_eq!(reader.lock_holder(group.0).await.unwrap(), None, "no process owns the file");
}

#[tokio::test]
async fn a_new_owner_counts_the_readers_of_all_processes() {
    let _limit = crate::testing::limit();
    while !readers_are_counted_by_a_new_owner().await {}
}

/// False if this machine took longer than the others have to enter their readers.
async fn readers_are_counted_by_a_new_owner() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let both = [0, 1].map(|_| SharedStore::open(options(folder.path())).unwrap());
    let mut slots = Vec::new();
    for store in &both {
        slots.push(store.reader_slot(1, 2).await.unwrap().unwrap());
    }
    let closed = std::time::Instant::now();
    owner.close().await.unwrap();
    let owned = loop {
        match both.iter().find_map(|store| match store.membership.role_now() {
            Role::Owner(owned) => Some(owned),
            _ => None,
        }) {
            Some(owned) => break owned,
            None => tokio::task::yield_now().await,
        }
    };
    if !owned.slots.is_incomplete() {
        assert!(closed.elapsed() > Duration::from_secs(1), "a reader may start before all have entered theirs");
        return false;
    }
    for store in &both {
        // A guest enters its readers before its first call.
        store.submit(Vec::new()).await.unwrap();
    }
    owned.complete_slots();
    for store in &both {
        assert!(store.reader_slot(1, 2).await.unwrap().is_none(), "two run");
    }
    drop(owned);
    true
}

#[tokio::test]
async fn an_empty_transaction_of_a_guest_is_committed_unless_its_broker_is_closed() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let _owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let (empty, late) = (guest.begin(Seen::always()).await.unwrap(), guest.begin(Seen::always()).await.unwrap());
    empty.commit().await.unwrap();
    guest.close().await.unwrap();
    assert_eq!(late.commit().await.unwrap_err().code(), Code::STORE_CLOSED);
}

#[tokio::test]
async fn a_guest_without_calls_learns_that_its_owner_was_dropped() {
    let _limit = crate::testing::limit();
    use tokio::io::AsyncReadExt;
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
    leaving::answer_of(&guest, 1, Call::UnitHappened(uuid(1))).await;
    let dropping = tokio::task::spawn_blocking(move || drop(owner));
    let (mut stream, mut arrived) = (&guest, FrameBuffer::default());
    loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(FromOwner::Closing) => break,
            Some(_) => {}
            None => assert_ne!(stream.read_buf(arrived.room()).await.unwrap(), 0, "it ended without a word"),
        }
    }
    drop(guest);
    dropping.await.unwrap();
}

#[tokio::test]
async fn an_owner_of_another_version_is_refused() {
    let _limit = crate::testing::limit();
    use interprocess::local_socket::traits::tokio::Listener as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    SqliteStore::open(options(folder.path())).unwrap().close().await.unwrap();
    let listening = socket::listen(&path).unwrap();
    let owner = async {
        let stream = listening.listener.accept().await.unwrap();
        (&mut &stream).read_exact(&mut [0; Greeting::BYTES]).await.unwrap();
        let greeting = Greeting { version: VERSION + 1, durability: Durability::Full };
        (&mut &stream).write_all(&greeting.encode()).await.unwrap();
        stream
    };
    let (_owner, connected) = tokio::join!(owner, socket::connect(&path, Durability::Full));
    match connected {
        Err(socket::NoConnection::Refused(error)) => assert!(error.message().contains("version"), "{error}"),
        other => panic!("{:?}", other.map(drop)),
    }
}

#[tokio::test]
async fn a_transaction_that_has_found_nothing_goes_on_with_the_next_owner() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(SharedStore::open(options(folder.path())).unwrap());
    }
    stores[0].submit(vec![definitions(&format!("{SERVICES}; CREATE WORK QUEUE w"))]).await.unwrap();
    let guest = stores.pop().unwrap();
    let receive = || Verb::Receive { queue: "q".into(), top: None, from: ReceiveFrom::Any };
    let (mut waits, mut commits) =
        (guest.begin(Seen::always()).await.unwrap(), guest.begin(Seen::always()).await.unwrap());
    let mut has_work = guest.begin(Seen::always()).await.unwrap();
    has_work.execute(dialog()).await.unwrap();
    commits.execute(receive()).await.unwrap();
    // One owner after the other closes, until the guest owns the file itself.
    for owner in stores {
        let found = waits.execute(receive()).await.unwrap();
        assert!(matches!(found, Outcome::Received(messages) if messages.is_empty()));
        let group = waits.execute(Verb::GetConversationGroup { queue: "q".into() }).await.unwrap();
        assert!(matches!(group, Outcome::Group(None)));
        let jobs = waits.execute(crate::store::sqlite::tests::jobs::take(Hold::Transaction)).await.unwrap();
        assert!(matches!(jobs, Outcome::Jobs(jobs) if jobs.is_empty()));
        owner.close().await.unwrap();
    }
    waits.execute(receive()).await.unwrap();
    waits.execute(dialog()).await.unwrap();
    waits.commit().await.unwrap();
    commits.commit().await.unwrap();
    assert_eq!(has_work.execute(receive()).await.unwrap_err().code(), Code::OWNER_GONE, "its work is rolled back");
    let rows = guest.query(statement_of("select * from sys_conversation_endpoints"));
    assert_eq!(rows.await.unwrap().rows.len(), 1);
}

/// A statement has five seconds from the beginning of a close, which are more than the guests of a dropped owner get.
#[tokio::test]
async fn what_an_owner_that_closes_has_not_finished_is_done_by_the_next_one() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    owner.run_sql(statement_of("create table t (n integer)")).await.unwrap();
    let Role::Owner(owned) = owner.membership.role_now() else { panic!("another process owns the file") };
    let watch = owned.store.engine.write.lock().unwrap().guard.watch.clone();
    drop(owned);
    let running = tokio::spawn({
        let guest = guest.clone();
        let endless =
            "insert into t with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r";
        async move { guest.run_sql(statement_of(endless)).await }
    });
    until(|| watch.is_running()).await;
    owner.close().await.unwrap();
    assert!(!running.is_finished(), "its process would not know whether it has happened");
    running.abort();
}
