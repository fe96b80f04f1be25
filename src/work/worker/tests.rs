//! Workers over a store whose answers fail for a moment.

use super::*;
use crate::protocol::Verb;
use crate::protocol::work::WorkVerb;
use crate::store::layer::{Layer, Request, TxLayer, TxRequest};
use crate::store::{Store, StoreTx};
use crate::testing::TestBroker;
use std::sync::atomic::Ordering::SeqCst;

const TASKS: WorkQueue<String> = WorkQueue::text("tasks");

/// Refuses the next reports on jobs with a code.
struct Cut {
    inner: Arc<dyn Store>,
    code: Code,
    left: Arc<AtomicU64>,
}

impl Layer for Cut {
    type Call = ();
    type Tx = Unchanged;

    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, request: Request<'_>) -> Result<()> {
        let is_report = |verb: &Verb| matches!(verb, Verb::Work(WorkVerb::Complete { .. } | WorkVerb::Fail { .. }));
        if request.verbs().iter().any(is_report)
            && self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Err(Error::new(self.code, "the connection is gone, as the test asked"));
        }
        Ok(())
    }

    fn open(&self, inner: Box<dyn StoreTx>) -> (Unchanged, Box<dyn StoreTx>) {
        (Unchanged, inner)
    }
}

struct Unchanged;

impl TxLayer for Unchanged {
    type Call = ();

    fn before(&mut self, _: TxRequest<'_>) -> Result<()> {
        Ok(())
    }
}

/// Runs one job whose handler succeeds or fails, over a store that refuses two reports with the code. Gives what the worker has
/// done, and the state and error of the job if it is not done.
async fn reported(code: Code, succeeds: bool) -> (WorkDone, Option<String>) {
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE tasks WITH MAX_ATTEMPTS = 1").await.unwrap();
    broker.push_job(TASKS, &"x".to_owned()).await.unwrap();
    let left = Arc::new(AtomicU64::new(2));
    let cut = Cut { inner: broker.shared_store().clone(), code, left: left.clone() };
    let worker = Broker::over(Arc::new(cut))
        .worker(TASKS, move |_, _| async move { if succeeds { Ok(()) } else { Err("no such address") } });
    let running = worker.start();
    let state = loop {
        tokio::task::yield_now().await;
        let jobs = broker.jobs(&JobFilter::default(), 1).await.unwrap();
        match jobs.first() {
            Some(job) if ["ready", "taken"].contains(&&*job.state) => {}
            job => break job.map(|job| format!("{}: {}", job.state, job.last_error.clone().unwrap_or_default())),
        }
    };
    (running.stop().await, state)
}

#[tokio::test]
async fn a_report_is_made_again_if_the_server_was_gone_for_a_moment() {
    let _limit = crate::testing::limit();
    for code in
        [Code::SERVER_UNREACHABLE, Code::POOL_EXHAUSTED, Code::OWNER_GONE, Code::COMMIT_UNKNOWN, Code::JOB_LOCKED]
    {
        let (done, state) = reported(code, true).await;
        assert_eq!((done.completed, state), (1, None), "{code}");
        let (done, state) = reported(code, false).await;
        assert_eq!((done.failed, state), (1, Some("dead: no such address".to_owned())), "{code}");
    }
}
