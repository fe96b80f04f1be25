//! Takes of several work queues, one of which a transaction holds that stays open, as plain SQL may on a server.

use super::*;
use crate::protocol::Verb;
use crate::protocol::work::WorkVerb;
use crate::receive::strategy::dual_queue_loop_classic;
use crate::receive::weighted;
use crate::store::layer::{Layer, Request, Unchanged};
use crate::store::{Seen, Store, StoreTx};
use crate::testing::TestBroker;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// How long a take waits for the transaction before it is refused.
const REFUSED_AFTER: Duration = Duration::from_millis(2700);

/// Refuses the takes of the work queue `held` while it is, and counts them; those of `free` too while all are held. A take of the
/// levels from 8 on is answered in any case.
struct Held {
    inner: Arc<dyn Store>,
    is_held: AtomicBool,
    are_all_held: AtomicBool,
    takes: AtomicU64,
    /// How many of the takes that were refused came while the queue was marked as held.
    looks: AtomicU64,
}

impl Layer for Arc<Held> {
    type Call = ();
    type Tx = Unchanged;

    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, request: Request<'_>) -> Result<()> {
        let are_all_held = self.are_all_held.load(SeqCst);
        let is_high = |take: &Take| matches!(take.from, TakeFrom::Levels { lowest: 8.., .. });
        let is_take = |queue: Option<&str>, verb: &Verb| matches!(verb, Verb::Work(WorkVerb::Take(take)) if !is_high(take) && queue.is_none_or(|queue| &*take.queue == queue));
        if request.verbs().iter().any(|verb| is_take(Some("held"), verb)) {
            self.takes.fetch_add(1, SeqCst);
            if !are_all_held && !self.is_held.load(SeqCst) {
                return Ok(());
            }
        } else if !are_all_held || !request.verbs().iter().any(|verb| is_take(None, verb)) {
            return Ok(());
        }
        let is_marked = self.inner.activity().queue(&work_queue_on_board("held")).is_held(self.inner.clock().now());
        self.looks.fetch_add(u64::from(is_marked), SeqCst);
        self.inner.clock().advance(REFUSED_AFTER);
        Err(Error::new(Code::JOB_LOCKED, "a transaction has taken from it and has not ended"))
    }

    fn open(&self, inner: Box<dyn StoreTx>, _: Seen) -> (Unchanged, Box<dyn StoreTx>) {
        (Unchanged, inner)
    }
}

async fn rig() -> (TestBroker, Arc<Held>, Broker) {
    let broker = TestBroker::in_memory().await.unwrap();
    broker.execute("CREATE WORK QUEUE held WITH ORDER = PRIORITY; CREATE WORK QUEUE free").await.unwrap();
    broker.push_job("held", "h").await.unwrap();
    let held = Arc::new(Held {
        inner: broker.shared_store().clone(),
        is_held: AtomicBool::new(true),
        are_all_held: AtomicBool::new(false),
        takes: AtomicU64::new(0),
        looks: AtomicU64::new(0),
    });
    let over = Broker::over(Arc::new(held.clone()));
    (broker, held, over)
}

#[tokio::test]
async fn a_work_queue_that_is_held_holds_up_no_other_of_its_strategy() {
    let _limit = crate::testing::limit();
    let (broker, held, over) = rig().await;
    let strategy = weighted([("held", 8), ("free", 1)]);
    let mut turns = over.take_jobs_by(strategy).unwrap().wait(Duration::from_secs(60));
    for _ in 0..10 {
        broker.push_job("free", "f").await.unwrap();
        assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "free");
    }
    assert_eq!(held.takes.load(SeqCst), 1);
    // Some time later one take looks, and the others go on without it.
    broker.clock().advance(Duration::from_secs(5));
    for _ in 0..10 {
        broker.push_job("free", "f").await.unwrap();
        assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "free");
    }
    assert_eq!(held.takes.load(SeqCst), 2);
    // When the time is over it is looked for once more, and the refusal says why no job came.
    let refused = turns.wait(Duration::ZERO).next(&over).await.unwrap_err();
    assert_eq!((refused.code(), held.takes.load(SeqCst)), (Code::JOB_LOCKED, 3));
    held.is_held.store(false, SeqCst);
    broker.clock().advance(Duration::from_secs(5));
    broker.push_job("free", "f").await.unwrap();
    let mut turns = over.take_jobs_by(weighted([("held", 8), ("free", 1)])).unwrap();
    assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "held");
}

#[tokio::test]
async fn a_reader_that_waits_on_several_finds_a_job_beside_one_that_is_held() {
    let _limit = crate::testing::limit();
    let (broker, held, over) = rig().await;
    let mut turns = over.take_jobs_by(weighted([("held", 8), ("free", 1)])).unwrap();
    let next = tokio::spawn(async move { turns.next(&over).await.unwrap().unwrap().class });
    while broker.activity().queue(&work_queue_on_board("free")).facts().waiting == 0 {
        tokio::task::yield_now().await;
    }
    broker.push_job("free", "f").await.unwrap();
    assert_eq!((&*next.await.unwrap(), held.takes.load(SeqCst)), ("free", 1));
}

/// The classic loop asks the queues one by one, each with a wait of its own.
#[tokio::test]
async fn a_classic_loop_leaves_a_held_queue_out_too() {
    let _limit = crate::testing::limit();
    let (broker, held, over) = rig().await;
    let mut turns = over.take_jobs_by(dual_queue_loop_classic("held", "free")).unwrap().wait(Duration::from_secs(60));
    for _ in 0..10 {
        broker.push_job("free", "f").await.unwrap();
        assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "low");
    }
    assert_eq!(held.takes.load(SeqCst), 1);
    let refused = turns.wait(Duration::ZERO).next(&over).await.unwrap_err();
    assert_eq!((refused.code(), held.takes.load(SeqCst)), (Code::JOB_LOCKED, 2));
}

/// The look at the others ends after a second, and a refusal comes after two.
#[tokio::test]
async fn a_wait_goes_on_if_another_queue_is_held_too() {
    let _limit = crate::testing::limit();
    let (broker, held, over) = rig().await;
    let mut turns = over.take_jobs_by(weighted([("held", 8), ("free", 1)])).unwrap().wait(Duration::from_secs(600));
    broker.push_job("free", "f").await.unwrap();
    assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "free");
    held.are_all_held.store(true, SeqCst);
    let next = tokio::spawn(async move { turns.next(&over).await });
    while broker.activity().queue(&work_queue_on_board("held")).facts().waiting == 0 && !next.is_finished() {
        tokio::task::yield_now().await;
    }
    held.is_held.store(false, SeqCst);
    held.are_all_held.store(false, SeqCst);
    broker.push_job("free", "f").await.unwrap();
    assert_eq!(&*next.await.unwrap().unwrap().unwrap().class, "held");
}

#[tokio::test]
async fn refusals_of_other_readers_do_not_put_off_the_next_look() {
    let _limit = crate::testing::limit();
    let (broker, held, over) = rig().await;
    let mut turns = over.take_jobs_by(weighted([("held", 8), ("free", 1)])).unwrap();
    broker.push_job("free", "f").await.unwrap();
    assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "free");
    broker.clock().advance(Duration::from_secs(2));
    assert_eq!(over.take_jobs("held").await.unwrap_err().code(), Code::JOB_LOCKED);
    let levels = crate::receive::aging("held", Duration::from_secs(1));
    let refused = over.take_jobs_by(levels).unwrap().wait(Duration::ZERO).next(&over).await.unwrap_err();
    assert_eq!(refused.code(), Code::JOB_LOCKED);
    held.is_held.store(false, SeqCst);
    broker.push_job("free", "f").await.unwrap();
    assert_eq!(&*turns.next(&over).await.unwrap().unwrap().class, "held");
}

/// Each take of it waits for two seconds.
#[tokio::test]
async fn a_queue_that_is_held_is_asked_once_for_all_its_levels() {
    let _limit = crate::testing::limit();
    let (_broker, held, over) = rig().await;
    let levels = crate::receive::aging("held", Duration::from_secs(1));
    let refused = over.take_jobs_by(levels).unwrap().wait(Duration::ZERO).next(&over).await.unwrap_err();
    assert_eq!((refused.code(), held.takes.load(SeqCst)), (Code::JOB_LOCKED, 1));
}

#[tokio::test]
async fn a_refusal_after_the_time_of_a_wait_is_its_answer() {
    let _limit = crate::testing::limit();
    let (_broker, held, over) = rig().await;
    let refused = over.take_jobs("held").wait(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!((refused.code(), held.takes.load(SeqCst)), (Code::JOB_LOCKED, 1));
}

/// If it did, all readers would look at the queue, and not one.
#[tokio::test]
async fn an_empty_range_of_levels_does_not_let_all_readers_look() {
    let _limit = crate::testing::limit();
    let (broker, held, over) = rig().await;
    let levels = |lowest, highest| ReceiveFrom::Levels { lowest, highest };
    let attempts = [("held", levels(8, 10)), ("held", levels(1, 7)), ("free", ReceiveFrom::Any)];
    let attempts = attempts.map(|(queue, from)| ClassAttempt::new(queue, queue, from, None));
    for looks in 0..3 {
        broker.push_job("free", "f").await.unwrap();
        let takes = attempts.iter().map(|attempt| Takes::default().take(&over, attempt).unwrap()).collect();
        let (place, _) = take_first(&over, takes, Deadline::Now).await.unwrap().unwrap();
        assert_eq!((place, held.takes.load(SeqCst), held.looks.load(SeqCst)), (2, looks + 1, looks));
        broker.clock().advance(Duration::from_secs(5));
    }
}

/// Of both kinds of plan: one that waits on all queues at once, and one that waits on each.
#[tokio::test]
async fn a_wait_neither_ends_nor_goes_on_because_the_clock_was_set() {
    let _limit = crate::testing::limit();
    let clock = crate::time::Clock::wrong_by(0);
    let broker =
        Broker::open_with("sqlite::memory:", crate::OpenOptions::default().clock(clock.clone())).await.unwrap();
    broker.execute("CREATE WORK QUEUE a; CREATE WORK QUEUE b").await.unwrap();
    let wait = Duration::from_millis(100);
    for hours in [-1, 1] {
        let shares = broker.take_jobs_by(weighted([("a", 8), ("b", 1)])).unwrap();
        let classic = broker.take_jobs_by(dual_queue_loop_classic("a", "b").timeout(wait / 3)).unwrap();
        for turns in [shares, classic] {
            let mut turns = turns.wait(wait);
            // On a machine that stands still for a moment the turn may be over before its wait is seen.
            loop {
                let (began, is_over) = (std::time::Instant::now(), AtomicBool::new(false));
                let next = async {
                    let turn = turns.next(&broker).await;
                    is_over.store(true, SeqCst);
                    turn
                };
                let set = async {
                    while broker.activity().queue(&work_queue_on_board("a")).facts().waiting == 0 {
                        if is_over.load(SeqCst) {
                            return false;
                        }
                        tokio::task::yield_now().await;
                    }
                    clock.jump(hours * 3600);
                    true
                };
                let (turn, is_set) = tokio::join!(next, set);
                assert!(turn.unwrap().is_none() && began.elapsed() >= wait, "after {:?}", began.elapsed());
                if is_set {
                    break;
                }
            }
        }
    }
}
