//! Where the bodies of jobs are: the long ones are not written again with the rows of their jobs.

use super::*;
use crate::protocol::work::{AfterFailure, Hold, TakenJob, WorkVerb};
use rusqlite::Connection;

const LONG: usize = 2 << 20;

async fn with_a_queue(folder: &Path) -> Arc<SqliteStore> {
    let store = SqliteStore::open(options(folder)).unwrap();
    let queue = Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() };
    store.submit(vec![Verb::Define(vec![queue])]).await.unwrap();
    store
}

/// Takes the next job, and gives its body too.
async fn taken(store: &SqliteStore) -> (TakenJob, Option<Vec<u8>>) {
    let Outcome::Jobs(mut jobs) = store.submit(vec![jobs::take(Hold::Lease(None))]).await.unwrap().remove(0) else {
        panic!("no jobs")
    };
    let job = jobs.pop().expect("a job is ready");
    (job.taken, job.body.map(|body| body.to_vec()))
}

fn long_bodies(folder: &Path) -> i64 {
    let file = Connection::open(folder.join("a.db")).unwrap();
    file.query_row("select count(*) from dialoq_job_body", [], |row| row.get(0)).unwrap()
}

/// Three jobs of 4.5 MB filled a disk of 20 MB when they were taken.
#[tokio::test]
async fn a_long_body_is_not_written_again_when_its_job_is_taken_reported_failed_and_returned() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = with_a_queue(folder.path()).await;
    let body: Vec<u8> = (0..LONG).map(|place| (place % 251) as u8).collect();
    store.submit(vec![jobs::push(Some(body.clone()))]).await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(options(folder.path())).unwrap();
    for attempt in 1..=3 {
        let (job, found) = taken(&store).await;
        assert!(found.as_ref() == Some(&body), "attempt {attempt}");
        let work = |verb| Verb::Work(verb);
        let report = WorkVerb::Report { taken: job, progress: "half".into() };
        store.submit(vec![work(report)]).await.unwrap();
        let failed = WorkVerb::Fail { taken: job, reason: "x".into(), then: AfterFailure::RetryInMs(0) };
        store.submit(vec![work(failed)]).await.unwrap();
    }
    let log = std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len();
    assert!(log < 500_000, "{log} bytes were written for a job of {LONG}");
    assert_eq!(long_bodies(folder.path()), 1);
    let (job, _) = taken(&store).await;
    store.submit(vec![Verb::Work(WorkVerb::Complete { taken: job, result: None })]).await.unwrap();
    assert_eq!(long_bodies(folder.path()), 0);
}

#[tokio::test]
async fn bodies_of_every_length_come_back_also_those_that_an_earlier_version_wrote() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = with_a_queue(folder.path()).await;
    let lengths = [1, 1023, 1024, 1025, 5000];
    for length in lengths {
        store.submit(vec![jobs::push(Some(vec![7; length]))]).await.unwrap();
    }
    store.submit(vec![jobs::push(None), jobs::push(Some(vec![7; 5000]))]).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(long_bodies(folder.path()), 3);
    let file = Connection::open(folder.path().join("a.db")).unwrap();
    let inside = "update dialoq_job set body = (select body from dialoq_job_body where job_id = 8) where job_id = 8;
        delete from dialoq_job_body where job_id = 8";
    file.execute_batch(inside).unwrap();
    drop(file);
    let store = SqliteStore::open(options(folder.path())).unwrap();
    for length in lengths.map(Some).into_iter().chain([None, Some(5000)]) {
        let (job, body) = taken(&store).await;
        let found = body.as_ref().map(Vec::len);
        assert!(body == length.map(|length| vec![7; length]), "{length:?}, and {found:?}");
        store.submit(vec![Verb::Work(WorkVerb::Complete { taken: job, result: None })]).await.unwrap();
    }
    assert_eq!(long_bodies(folder.path()), 0);
}

#[tokio::test]
async fn long_bodies_go_with_their_queue_and_with_jobs_that_another_program_removed() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = with_a_queue(folder.path()).await;
    let other = Definition::CreateWorkQueue { name: "kept".into(), options: Vec::new() };
    store.submit(vec![Verb::Define(vec![other])]).await.unwrap();
    let long = || jobs::push(Some(vec![7; 5000]));
    let mut kept = long();
    if let Verb::Work(WorkVerb::Push(push)) = &mut kept {
        push.queue = "kept".into();
    }
    store.submit(vec![long(), kept, long()]).await.unwrap();
    store.submit(vec![Verb::Define(vec![Definition::DropWorkQueue { name: "w".into() }])]).await.unwrap();
    assert_eq!(long_bodies(folder.path()), 1);
    store.close().await.unwrap();
    Connection::open(folder.path().join("a.db")).unwrap().execute("delete from dialoq_job", []).unwrap();
    let store = SqliteStore::open(options(folder.path())).unwrap();
    let repairs = format!("{:?}", store.repairs());
    assert!(repairs.contains("dialoq_job_body"), "{repairs}");
    assert_eq!(long_bodies(folder.path()), 0);
}
