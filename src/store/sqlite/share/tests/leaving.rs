//! Callers that leave while a take of jobs is under way.

use super::*;
use crate::protocol::work::{Due, Hold, Push, Take, TakeFrom};
use std::task::{Context, Waker};
use tokio::io::AsyncReadExt;

/// The caller goes away between the moment at which the owner answers and the one at which the guest reads the answer.
#[tokio::test]
async fn a_take_in_a_transaction_counts_an_attempt_if_its_caller_got_the_job() {
    let _limit = crate::testing::limit();
    for is_seen in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let owner = with_a_job(folder.path()).await;
        let guest = socket::connect(&folder.path().join("a.db"), Durability::Full).await.unwrap();
        let step = |step| Call::InTx { tx: 1, step };
        tell(&guest, &Request { id: 5, call: step(TxStep::Execute(take(Hold::Transaction))) }).await;
        let mut arrived = FrameBuffer::default();
        let answer = loop {
            match arrived.next::<FromOwner>().unwrap() {
                Some(FromOwner::Answer { id: 5, answer, .. }) => break answer,
                Some(_) => {}
                None => assert_ne!((&mut &guest).read_buf(arrived.room()).await.unwrap(), 0, "the owner is there"),
            }
        };
        let Ok(Answer::Outcomes(outcomes)) = answer else { panic!("{answer:?}") };
        assert_eq!(session::taken_jobs(&outcomes.into_iter().map(Outcome::from).collect::<Vec<_>>()).len(), 1);
        if !is_seen {
            tell(&guest, &Request { id: 0, call: Call::Cancel { request: 5 } }).await;
        }
        tell(&guest, &Request { id: 0, call: Call::DropTx { tx: 1 } }).await;
        assert_eq!(next_attempt(&owner).await, if is_seen { 2 } else { 1 }, "seen: {is_seen}");
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
    let mut tx = guest.begin().await.unwrap();
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

fn take(hold: Hold) -> Verb {
    let (queue, taken_by) = ("w".into(), "reader".into());
    Verb::Work(WorkVerb::Take(Box::new(Take { queue, count: 1, job_type: None, from: TakeFrom::Any, hold, taken_by })))
}

/// The owner of a file with one job.
async fn with_a_job(folder: &Path) -> Arc<SharedStore> {
    let owner = SharedStore::open(options(folder)).unwrap();
    owner.submit(vec![definitions("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0")]).await.unwrap();
    let push = Push {
        queue: "w".into(),
        job_type: "".into(),
        key: None,
        level: 5,
        due: Due::Now,
        unique: None,
        body: None,
        pushed_by: "writer".into(),
    };
    owner.submit(vec![Verb::Work(WorkVerb::Push(Box::new(push)))]).await.unwrap();
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
