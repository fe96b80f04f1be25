//! Callers that leave while a take of jobs is under way.

use super::jobs::{push, take};
use super::*;
use crate::protocol::work::Hold;
use std::sync::mpsc;

fn take_leased() -> Verb {
    take(Hold::Lease(None))
}

/// Makes a work queue with one job.
async fn add_a_job(store: &SqliteStore) {
    let definitions = crate::catalog::ddl::parse("CREATE WORK QUEUE w").unwrap();
    let definitions = definitions.into_iter().map(|parsed| parsed.definition).collect();
    store.submit(vec![Verb::Define(definitions)]).await.unwrap();
    store.submit(vec![push(None)]).await.unwrap();
}

/// The number of the next attempt at the job.
async fn next_attempt(store: &SqliteStore) -> u16 {
    loop {
        match &store.submit(vec![take_leased()]).await.unwrap()[0] {
            Outcome::Jobs(jobs) if jobs.is_empty() => tokio::task::yield_now().await,
            Outcome::Jobs(jobs) => return jobs[0].attempt,
            other => panic!("{other:?}"),
        }
    }
}

/// A take whose batch is being written until what is given with it is dropped.
async fn take_that_is_not_written(store: &SqliteStore) -> (BoxFuture<'_, Result<Vec<Outcome>>>, mpsc::Sender<()>) {
    let queue_id = store.catalog().work_queue("w").unwrap().id;
    let ready = || store.engine.lock_even_failed().core.depth(queue_id).ready_groups;
    let before = ready();
    let (may_commit, commits) = mpsc::channel();
    let asked = {
        // While this holds the connection the caller leaves its batch to the writer.
        let mut write = store.engine.write.lock().unwrap();
        write.connection.commit_hook(Some(move || commits.recv().is_ok())).unwrap();
        let mut asked = store.submit(vec![take_leased()]);
        assert_pending(&mut asked);
        asked
    };
    until(|| ready() < before).await;
    (asked, may_commit)
}

/// A caller that left during the commit left its job to the end of the lease, which was a failed attempt.
#[tokio::test]
async fn a_leased_job_of_a_unit_with_an_id_goes_back_whenever_the_caller_leaves() {
    let _limit = crate::testing::limit();
    // With one look more each time, until the unit is done before its caller leaves.
    for looks in 1_u32.. {
        // So few commits before it that the writer does not leave its commit to the caller's thread.
        let store = SqliteStore::open(SqliteOptions::new(Location::Memory)).unwrap();
        add_a_job(&store).await;
        let mut asked: BoxFuture<'_, _> = store.submit_once(Uuid::from_u128(1), vec![take_leased()]);
        let mut is_done = is_ready(&mut asked);
        for _ in 1..looks {
            if is_done {
                break;
            }
            // What it waits for has come.
            std::thread::sleep(Duration::from_millis(30));
            is_done = is_ready(&mut asked);
        }
        drop(asked);
        if is_done {
            return;
        }
        let attempt = tokio::time::timeout(Duration::from_secs(10), next_attempt(&store)).await;
        assert_eq!(attempt.expect("it is ready again"), 1, "the caller left after {looks} looks");
    }
}

/// The batch with the take is being written when its caller leaves and the store begins to close.
#[tokio::test]
async fn a_leased_job_of_a_caller_that_has_left_goes_back_although_the_store_closes() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(options(folder.path())).unwrap();
    add_a_job(&store).await;
    let (asked, may_commit) = take_that_is_not_written(&store).await;
    drop(asked);
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    until(|| store.engine.lock_even_failed().is_closed).await;
    drop(may_commit);
    closing.await.unwrap().unwrap();
    drop(store);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    let attempt = tokio::time::timeout(Duration::from_secs(10), next_attempt(&store)).await;
    assert_eq!(attempt.expect("it is ready"), 1);
}

/// The callers have not looked at their answers, as tasks that were aborted and not dropped yet.
#[tokio::test]
async fn a_close_gives_leased_jobs_back_that_their_callers_have_not_seen() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(options(folder.path())).unwrap();
    add_a_job(&store).await;
    store.submit(vec![push(None)]).await.unwrap();
    let (asked, may_commit) = take_that_is_not_written(&store).await;
    let mut beside = store.submit(vec![take_leased()]);
    assert_pending(&mut beside);
    drop(may_commit);
    store.close().await.unwrap();
    let again = SqliteStore::open(options(folder.path())).unwrap();
    for asked in [asked, beside] {
        let attempt = tokio::time::timeout(Duration::from_secs(10), next_attempt(&again)).await;
        assert_eq!(attempt.expect("it is ready"), 1);
        assert_eq!(asked.await.unwrap_err().code(), Code::STORE_CLOSED);
    }
}
