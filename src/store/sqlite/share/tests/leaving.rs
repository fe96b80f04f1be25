//! Callers that leave while a take of jobs is under way.

use super::*;
use crate::protocol::work::{AfterFailure, Hold};
use crate::store::Seen;
use crate::store::sqlite::tests::jobs::{push, take};
use crate::store::sqlite::tests::unwritten::Counts;
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
        tell(&guest, &Request { id: 0, call: Call::DropTx { tx: 1, is_seen, is_lost: false, reason: None } }).await;
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
    // On a busy machine the answer comes within the first look.
    if !look() {
        return false;
    }
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

/// An owner whose next connection is served without the thread of a store.
struct Serving {
    store: Arc<SqliteStore>,
    owned: Arc<owned::OwnedStore>,
    connection: tokio::task::JoinHandle<std::io::Result<()>>,
    closing: watch::Sender<session::Closing>,
    _draining: tokio::sync::mpsc::Receiver<std::convert::Infallible>,
}

fn serve_one(folder: &Path) -> Serving {
    let given = options(folder);
    let board = given.board.clone();
    let store = SqliteStore::open(given).unwrap();
    let owned = Arc::new(owned::OwnedStore::new(store.clone(), board, Default::default()));
    let listening = socket::listen(&database_in(folder)).unwrap();
    let (closing, is_closing) = watch::channel(session::Closing::No);
    let (draining, drained) = tokio::sync::mpsc::channel(1);
    let connection = tokio::spawn({
        let owned = owned.clone();
        async move {
            use interprocess::local_socket::traits::tokio::Listener as _;
            let stream = listening.listener.accept().await.unwrap();
            session::serve(owned, stream, Durability::Full, is_closing, draining).await
        }
    });
    Serving { store, owned, connection, closing, _draining: drained }
}

/// The guest has closed when the owner writes to it, and the owner has not read the last requests by then.
#[tokio::test]
async fn the_last_requests_of_a_guest_are_read_although_it_takes_no_answer() {
    let _limit = crate::testing::limit();
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        drop(with_a_job(folder.path()).await);
        let Serving { store, owned, connection, .. } = &mut serve_one(folder.path());
        let queue_id = store.catalog().work_queue("w").unwrap().id;
        let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
        assert_eq!(jobs_of(&guest, 5, Call::Submit(vec![take(Hold::Lease(None))])).await.len(), 1);
        tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await;
        drop(guest);
        // A report for the guest. The tasks of the connection run before the runtime looks at its socket.
        let number = owned.slots.take(queue_id, 1).unwrap();
        owned.free_slot(queue_id, number);
        let _ = connection.await.unwrap();
        let Outcome::Jobs(jobs) = store.submit(vec![take(Hold::Lease(None))]).await.unwrap().remove(0) else {
            panic!()
        };
        assert_eq!(jobs.len(), 1, "round {round}: it went back");
        store.close().await.unwrap();
    }
}

/// Without an answer it was lost with the connection, and stayed taken to the end of its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_job_goes_back_although_the_owner_closes_in_that_moment() {
    let _limit = crate::testing::limit();
    for round in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let owner = with_a_job(folder.path()).await;
        let guest = SharedStore::open(options(folder.path())).unwrap();
        let Outcome::Jobs(jobs) = guest.submit(vec![take(Hold::Lease(None))]).await.unwrap().remove(0) else {
            panic!("no jobs")
        };
        let Role::Guest(remote) = guest.membership.role_now() else { panic!("it works through the owner") };
        let closing = tokio::spawn(async move { owner.close().await });
        // From the moment at which no owner is asked for anything new to that at which the next one is known.
        let mut spins = 0;
        while spins < round * 20 || !remote.client.is_lost() && round % 2 == 0 {
            spins += 1;
            std::hint::spin_loop();
        }
        guest.give_back_jobs(vec![jobs[0].taken]).await;
        closing.await.unwrap().unwrap();
        assert_eq!(next_attempt(&guest).await, 1, "round {round}");
    }
}

/// A worker that was to stop waited for an owner that was stopped.
#[tokio::test]
async fn a_job_that_goes_back_waits_a_moment_for_an_owner_that_hangs() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = with_a_job(folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let Outcome::Jobs(jobs) = guest.submit(vec![take(Hold::Lease(None))]).await.unwrap().remove(0) else {
        panic!("no jobs")
    };
    // What the owner does is not written, so nothing is answered.
    let holder = rusqlite::Connection::open(database_in(folder.path())).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    guest.give_back_jobs(vec![jobs[0].taken]).await;
    drop(holder);
    assert_eq!(next_attempt(&owner).await, 1);
}

/// Another program's write lock holds the take up for longer than the owner that closes waits for transactions.
#[tokio::test]
async fn a_leased_job_goes_back_although_its_caller_leaves_late_in_the_close_of_the_owner() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    drop(with_a_job(folder.path()).await);
    let Serving { store, connection, closing, .. } = &mut serve_one(folder.path());
    let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
    let holder = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    tell(&guest, &Request { id: 5, call: Call::Submit(vec![take(Hold::Lease(None))]) }).await;
    tell(&guest, &Request { id: 6, call: Call::Submit(vec![push(None)]) }).await;
    // Once this is answered, both are under way.
    answer_of(&guest, 7, Call::UnitHappened(uuid(1))).await;
    closing.send_replace(session::Closing::AtOnce);
    let (mut stream, mut arrived) = (&guest, FrameBuffer::default());
    while !matches!(arrived.next::<FromOwner>().unwrap(), Some(FromOwner::Closing)) {
        stream.read_buf(arrived.room()).await.unwrap();
    }
    tokio::time::pause();
    tokio::time::advance(session::LAST_REQUESTS).await;
    tokio::time::resume();
    // The task of the connection sees the time.
    tokio::task::yield_now().await;
    tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await;
    tell(&guest, &Request { id: 8, call: Call::UnitHappened(uuid(1)) }).await;
    let mut until_answer = async |to: u64| loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(FromOwner::Answer { id, answer, .. }) if id == to => return answer,
            Some(_) => {}
            None => {
                assert_ne!(stream.read_buf(arrived.room()).await.unwrap(), 0, "the owner reads the request before {to}")
            }
        }
    };
    let refused = Error::from(until_answer(8).await.unwrap_err());
    assert_eq!(refused.code(), Code::STORE_CLOSED, "{refused}");
    holder.execute_batch("ROLLBACK").unwrap();
    until_answer(6).await.unwrap();
    drop(guest);
    let _ = connection.await.unwrap();
    let outcomes = store.submit(vec![take(Hold::Lease(None))]).await.unwrap();
    let Outcome::Jobs(jobs) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(jobs[0].attempt, 1, "it went back");
    store.close().await.unwrap();
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
pub(super) async fn answer_of(guest: &interprocess::local_socket::tokio::Stream, id: u64, call: Call) -> Answer {
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

/// Waits for a question whether a unit has happened, and gives the id of the call.
async fn until_asked(stream: &interprocess::local_socket::tokio::Stream, buffer: &mut FrameBuffer) -> u64 {
    loop {
        match buffer.next::<Request>().unwrap() {
            Some(Request { id, call: Call::UnitHappened(_) }) => return id,
            Some(_) => {}
            None => assert_ne!((&mut &*stream).read_buf(buffer.room()).await.unwrap(), 0, "the guest is there"),
        }
    }
}

/// Messages are dropped and counted, unless a transaction has them; jobs go back.
#[tokio::test]
async fn an_answer_that_its_caller_does_not_take_is_counted_or_goes_back() {
    let _limit = crate::testing::limit();
    for (is_in_tx, has_come) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (owner, client) = connected(folder.path()).await;
        let counts = Counts::default();
        let _counting = metrics::set_default_local_recorder(&counts);
        let running = tokio::spawn({
            let client = client.clone();
            async move { client.run().await }
        });
        let receive = Verb::Receive { queue: "q".into(), top: None, from: ReceiveFrom::Any };
        let call = match is_in_tx {
            true => Call::InTx { tx: 1, is_seen: false, step: TxStep::Execute(receive) },
            false => Call::Submit(vec![receive]),
        };
        let mut asked = Some(Box::pin(client.call(&call)));
        let first = asked.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "it is sent");
        let mut sent = FrameBuffer::default();
        let id = until_request(&owner, &mut sent).await;
        if !has_come {
            asked = None;
        }
        // Once this call is answered, the answer to the first one has arrived.
        let question = Call::UnitHappened(uuid(1));
        let (done, mut given_back) = tokio::join!(client.call(&question), async {
            let second = until_asked(&owner, &mut sent).await;
            let outcomes = outcomes_of_all_kinds().into_iter().map(WireOutcome::from).collect();
            let answers = [(id, Answer::Outcomes(outcomes)), (second, Answer::Happened(true))];
            for (id, answer) in answers {
                tell(&owner, &FromOwner::Answer { id, definitions: 0, answer: Ok(answer) }).await;
            }
            Vec::new()
        });
        done.unwrap();
        drop(asked);
        client.let_go(1);
        tell(&owner, &FromOwner::Closing).await;
        running.await.unwrap();
        loop {
            match sent.next::<Request>().unwrap() {
                Some(Request { call: Call::GiveBack(jobs), .. }) => given_back.extend(jobs),
                Some(_) => {}
                None if (&mut &owner).read_buf(sent.room()).await.unwrap() == 0 => break,
                None => {}
            }
        }
        let found = (counts.dropped.load(std::sync::atomic::Ordering::SeqCst), given_back.len());
        let expected = if is_in_tx { (0, 0) } else { (2, 1) };
        assert_eq!(found, expected, "in a transaction: {is_in_tx}; the answer had come: {has_come}");
    }
}

/// A close takes jobs back from callers that have not looked at their answers, and nothing else.
#[tokio::test]
async fn an_answer_without_jobs_is_its_callers_although_the_connection_ends() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let running = tokio::spawn({
        let client = client.clone();
        async move { client.run().await }
    });
    let call = Call::UnitHappened(uuid(1));
    let mut asked = Box::pin(client.call(&call));
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let id = until_asked(&owner, &mut FrameBuffer::default()).await;
    tell(&owner, &FromOwner::Answer { id, definitions: 0, answer: Ok(Answer::Happened(true)) }).await;
    tell(&owner, &FromOwner::Closing).await;
    running.await.unwrap();
    client.close().await;
    assert!(matches!(asked.await.unwrap(), Answer::Happened(true)));
}

#[tokio::test]
async fn a_leased_job_that_fits_in_no_frame_goes_back() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    owner.submit(vec![definitions("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0")]).await.unwrap();
    owner.submit(vec![push(Some(vec![b'a'; frame::MAX_FRAME_BYTES]))]).await.unwrap();
    let too_long = guest.submit(vec![take(Hold::Lease(None))]).await.unwrap_err();
    assert_eq!(too_long.code(), Code::OUT_OF_RANGE, "{too_long}");
    let attempt = tokio::time::timeout(Duration::from_secs(10), next_attempt(&owner)).await;
    assert_eq!(attempt.expect("it is ready again"), 1);
}

#[tokio::test]
async fn a_message_that_no_caller_has_got_counts_no_attempt_when_its_process_dies() {
    let _limit = crate::testing::limit();
    for is_seen in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let owner = SharedStore::open(options(folder.path())).unwrap();
        let all = "CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY); CREATE QUEUE [q] WITH RETRY (MAX_ATTEMPTS = 9, DELAY_MS = 0); \
                   CREATE SERVICE [a] ON QUEUE [q]; CREATE SERVICE [b] ON QUEUE [q] ([C])";
        owner.submit(vec![definitions(all)]).await.unwrap();
        let Outcome::Began { handle, .. } = owner.submit(vec![dialog()]).await.unwrap()[0] else { panic!("no dialog") };
        owner
            .submit(vec![Verb::Send { handles: vec![handle], message_type: None, body: None, trace: None }])
            .await
            .unwrap();
        let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
        let receive = || Verb::Receive { queue: "q".into(), top: None, from: ReceiveFrom::Any };
        answer_of(&guest, 5, Call::InTx { tx: 1, is_seen: false, step: TxStep::Execute(receive()) }).await;
        if !is_seen {
            tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await;
        }
        drop(guest);
        let mut tx = owner.begin(Seen::default()).await.unwrap();
        while !matches!(tx.execute(receive()).await.unwrap(), Outcome::Received(messages) if !messages.is_empty()) {
            tokio::task::yield_now().await;
        }
        owner.submit(Vec::new()).await.unwrap();
        let counted = statement_of("select * from dialoq_conversation_endpoint where rollbacks = 1");
        assert_eq!(owner.query(counted).await.unwrap().rows.len(), usize::from(is_seen), "seen: {is_seen}");
    }
}

/// The rollback counts an attempt at the job that was seen, and none at the other one.
#[tokio::test]
async fn a_job_that_was_not_seen_counts_no_attempt_beside_one_that_was() {
    let _limit = crate::testing::limit();
    for takes_again in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let owner = with_a_job(folder.path()).await;
        owner.submit(vec![push(None)]).await.unwrap();
        let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
        let taking = |is_seen| Call::InTx { tx: 1, is_seen, step: TxStep::Execute(take(Hold::Transaction)) };
        assert_eq!(jobs_of(&guest, 5, taking(false)).await.len(), 1);
        let second =
            if takes_again { taking(true) } else { Call::InTx { tx: 1, is_seen: true, step: TxStep::Claim(uuid(9)) } };
        answer_of(&guest, 6, second).await;
        let drop = Call::DropTx { tx: 1, is_seen: true, is_lost: false, reason: None };
        for call in [Call::Cancel { request: 6 }, drop] {
            tell(&guest, &Request { id: 0, call }).await;
        }
        let mut attempts = [next_attempt(&owner).await, next_attempt(&owner).await];
        attempts.sort_unstable();
        assert_eq!(attempts, [1, 2]);
    }
}

/// The store that closes is not the caller's: another process takes over.
#[tokio::test]
async fn a_step_that_meets_a_closed_store_says_that_the_owner_has_gone() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    drop(with_a_job(folder.path()).await);
    let Serving { store, connection, .. } = &mut serve_one(folder.path());
    let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
    let step = |id| Request { id, call: Call::InTx { tx: 1, is_seen: false, step: TxStep::Execute(push(None)) } };
    tell(&guest, &step(5)).await;
    let mut arrived = FrameBuffer::default();
    let mut answer = async || loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(FromOwner::Answer { answer, .. }) => return answer.map_err(Error::from),
            Some(_) => {}
            None => assert_ne!((&mut &guest).read_buf(arrived.room()).await.unwrap(), 0, "the owner is there"),
        }
    };
    answer().await.unwrap();
    store.close().await.unwrap();
    tell(&guest, &step(6)).await;
    assert_eq!(answer().await.unwrap_err().code(), Code::OWNER_GONE, "another process takes over, without it");
    drop(guest);
    let _ = connection.await.unwrap();
}
