//! Callers that leave while a take of jobs is under way.

use super::*;
use crate::protocol::work::{AfterFailure, Hold};
use crate::store::Seen;
use crate::store::sqlite::tests::jobs::{push, take};
use std::task::{Context, Waker};
use tokio::io::AsyncReadExt;

/// How the guest of a transaction that has taken a job leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// The caller goes away between the moment at which the owner answers and the one at which the guest reads the answer.
    BeforeTheAnswer,
    /// Nothing was handed over.
    EmptyHanded,
    Seen,
    /// As it dies.
    WithoutAWord,
}

#[tokio::test]
async fn a_take_in_a_transaction_counts_an_attempt_if_its_caller_got_the_job() {
    let _limit = crate::testing::limit();
    for leaving in [Leaving::BeforeTheAnswer, Leaving::EmptyHanded, Leaving::Seen, Leaving::WithoutAWord] {
        let folder = tempfile::tempdir().unwrap();
        let owner = with_a_job(folder.path()).await;
        let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
        let step = |step| Call::InTx { tx: 1, is_seen: false, step };
        assert_eq!(jobs_of(&guest, 5, step(TxStep::Execute(take(Hold::Transaction)))).await.len(), 1);
        let is_seen = leaving == Leaving::Seen;
        match leaving {
            Leaving::BeforeTheAnswer => tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await,
            Leaving::WithoutAWord => {
                drop(guest);
                assert_eq!(next_attempt(&owner).await, 2, "{leaving:?}");
                continue;
            }
            Leaving::EmptyHanded | Leaving::Seen => {}
        }
        tell(&guest, &Request { id: 0, call: Call::DropTx { tx: 1, is_seen, is_lost: false } }).await;
        assert_eq!(next_attempt(&owner).await, if is_seen { 2 } else { 1 }, "{leaving:?}");
    }
}

/// The first answer has newer definitions than the guest, which reads them before its caller gets the answer.
#[tokio::test]
async fn a_take_whose_caller_leaves_while_the_definitions_are_read_counts_no_attempt() {
    let _limit = crate::testing::limit();
    for is_in_transaction in [false, true] {
        while !leaves_while_the_definitions_are_read(is_in_transaction).await {}
    }
}

/// False if the definitions had been read before the caller could leave.
async fn leaves_while_the_definitions_are_read(is_in_transaction: bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let owner = with_a_job(folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let mut tx = guest.begin(Seen::always()).await.unwrap();
    let mut asked = match is_in_transaction {
        true => tx.execute(take(Hold::Transaction)),
        false => {
            let asked = guest.submit(vec![take(Hold::Lease(None))]);
            Box::pin(async { Ok(asked.await?.remove(0)) })
        }
    };
    let mut look = || asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(look(), "it is sent");
    let is_taken = || async {
        let rows = owner.query(statement_of("select * from dialoq_job where state = 2")).await.unwrap().rows;
        !rows.is_empty()
    };
    while !is_taken().await {
        tokio::task::yield_now().await;
    }
    // The answer arrives.
    std::thread::sleep(Duration::from_millis(100));
    if !look() {
        return false;
    }
    drop(asked);
    drop(tx);
    let attempt = tokio::time::timeout(Duration::from_secs(10), next_attempt(&owner)).await;
    assert_eq!(attempt.expect("it is ready again"), 1, "in a transaction: {is_in_transaction}");
    true
}

/// The answer has left the owner when its caller goes away, and the guest closes before it reads the answer.
#[tokio::test]
async fn a_leased_job_goes_back_although_the_guest_closes_before_it_reads_the_answer() {
    let _limit = crate::testing::limit();
    for has_id in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let owner = with_a_job(folder.path()).await;
        let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
        let unit = vec![take(Hold::Lease(None))];
        let call = if has_id { Call::SubmitOnce(uuid(1), unit) } else { Call::Submit(unit) };
        assert_eq!(jobs_of(&guest, 5, call).await.len(), 1);
        tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await;
        drop(guest);
        let attempt = tokio::time::timeout(Duration::from_secs(10), next_attempt(&owner)).await;
        assert_eq!(attempt.expect("it is ready again"), 1, "with an id: {has_id}");
    }
}

/// The call is cancelled although its job is done, or another reader has it by now.
#[tokio::test]
async fn a_job_that_its_reader_has_reported_on_does_not_go_back() {
    let _limit = crate::testing::limit();
    for is_done in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let owner = with_a_job(folder.path()).await;
        let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
        let cancel = || Request { id: 0, call: Call::Cancel { request: 5 } };
        let first = jobs_of(&guest, 5, Call::Submit(vec![take(Hold::Lease(None))])).await[0];
        let report = match is_done {
            true => WorkVerb::Complete { taken: first, result: None },
            false => WorkVerb::Fail { taken: first, reason: "".into(), then: AfterFailure::RetryInMs(0) },
        };
        answer_of(&guest, 6, Call::Submit(vec![Verb::Work(report)])).await;
        let second = jobs_of(&guest, 7, Call::Submit(vec![take(Hold::Lease(None))])).await;
        tell(&guest, &cancel()).await;
        tell(&guest, &cancel()).await;
        let third = jobs_of(&guest, 8, Call::Submit(vec![take(Hold::Lease(None))])).await;
        assert_eq!((second.len(), third.len()), (usize::from(!is_done), 0), "done: {is_done}");
        if let Some(second) = second.first() {
            let report = WorkVerb::Complete { taken: *second, result: None };
            owner.submit(vec![Verb::Work(report)]).await.unwrap();
        }
    }
}

/// The guest has closed when the owner writes to it, and the owner has not read the last requests by then.
#[tokio::test]
async fn the_last_requests_of_a_guest_are_read_although_it_takes_no_answer() {
    let _limit = crate::testing::limit();
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        drop(with_a_job(folder.path()).await);
        let given = options(folder.path());
        let board = given.board.clone();
        let store = SqliteStore::open(given).unwrap();
        let queue_id = store.catalog().work_queue("w").unwrap().id;
        let owned = Arc::new(owned::OwnedStore::new(store.clone(), board, Default::default()));
        let listening = socket::listen(&path).unwrap();
        let (closing, draining) = (watch::channel(session::Closing::No), tokio::sync::mpsc::channel(1));
        let serving = tokio::spawn({
            let owned = owned.clone();
            async move {
                use interprocess::local_socket::traits::tokio::Listener as _;
                let stream = listening.listener.accept().await.unwrap();
                session::serve(owned, stream, Durability::Full, closing.1, draining.0).await
            }
        });
        let guest = socket::connect(&path, Durability::Full).await.unwrap();
        assert_eq!(jobs_of(&guest, 5, Call::Submit(vec![take(Hold::Lease(None))])).await.len(), 1);
        tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await;
        drop(guest);
        // A report for the guest. The tasks of the connection run before the runtime looks at its socket.
        let number = owned.slots.take(queue_id, 1).unwrap();
        owned.free_slot(queue_id, number);
        let _ = serving.await.unwrap();
        let Outcome::Jobs(jobs) = store.submit(vec![take(Hold::Lease(None))]).await.unwrap().remove(0) else {
            panic!()
        };
        assert_eq!(jobs.len(), 1, "round {round}: it went back");
        store.close().await.unwrap();
    }
}

/// A guest that closes cancels the calls under way, whatever it has still to write.
// A named pipe may take all requests at once.
#[cfg(unix)]
#[tokio::test]
async fn a_guest_that_closes_says_which_answers_its_callers_do_not_get() {
    let _limit = crate::testing::limit();
    for (has_left, is_full) in [(false, false), (false, true), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (owner, client) = connected(folder.path()).await;
        let taking = Call::Submit(vec![take(Hold::Lease(None))]);
        let mut sent = FrameBuffer::default();
        let mut cancelled = None;
        let reads = tokio::sync::Notify::new();
        let guest = async {
            let mut asked = Box::pin(client.call(&taking));
            let mut look = || asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(look().is_pending(), "it is sent");
            if is_full {
                // The owner reads it later.
                client.notify(Call::Watch { queue: "x".repeat(900_000) });
                // The task writes as much as the system takes.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            }
            let closing = client.close();
            reads.notify_one();
            if has_left {
                drop(asked);
                closing.await;
            } else {
                closing.await;
                let refused = asked.await.unwrap_err();
                assert_eq!(refused.code(), Code::STORE_CLOSED, "{refused}");
            }
        };
        let guest = async {
            tokio::select! {
                () = client.run() => {}
                () = guest => {}
            }
        };
        let (id, ()) = tokio::join!(
            async {
                reads.notified().await;
                let id = until_request(&owner, &mut sent).await;
                loop {
                    match sent.next::<Request>().unwrap() {
                        Some(Request { call: Call::Cancel { request }, .. }) => cancelled = Some(request),
                        Some(_) => {}
                        None if (&mut &owner).read_buf(sent.room()).await.unwrap() == 0 => break id,
                        None => {}
                    }
                }
            },
            guest
        );
        assert_eq!(cancelled, Some(id), "its caller has left: {has_left}; the socket was full: {is_full}");
    }
}

/// The answer to a call that the test sends by itself.
async fn answer_of(guest: &interprocess::local_socket::tokio::Stream, id: u64, call: Call) -> Answer {
    tell(guest, &Request { id, call }).await;
    let (mut stream, mut arrived) = (guest, FrameBuffer::default());
    loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(FromOwner::Answer { id: of, answer, .. }) if of == id => return answer.unwrap(),
            Some(_) => {}
            None => assert_ne!(stream.read_buf(arrived.room()).await.unwrap(), 0, "the owner is there"),
        }
    }
}

/// The jobs that a call gives.
async fn jobs_of(guest: &interprocess::local_socket::tokio::Stream, id: u64, call: Call) -> Vec<TakenJob> {
    answer_of(guest, id, call).await.taken_jobs()
}

/// The owner of a file with one job.
pub(super) async fn with_a_job(folder: &Path) -> Arc<SharedStore> {
    let owner = SharedStore::open(options(folder)).unwrap();
    owner.submit(vec![definitions("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0")]).await.unwrap();
    owner.submit(vec![push(None)]).await.unwrap();
    owner
}

/// The number of the next attempt at the job.
async fn next_attempt(owner: &SharedStore) -> u16 {
    loop {
        let outcomes = owner.submit(vec![take(Hold::Lease(None))]).await.unwrap();
        let Outcome::Jobs(jobs) = &outcomes[0] else { panic!("{outcomes:?}") };
        match jobs.first() {
            Some(job) => return job.attempt,
            None => tokio::task::yield_now().await,
        }
    }
}
