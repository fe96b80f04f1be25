use super::*;
use std::task::{Context, Poll, Waker};

const AN_HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, PartialEq)]
struct TestItem {
    name: u32,
    bytes: usize,
    is_abandoned: bool,
    key: Option<Uuid>,
    kind: usize,
}

impl Item for TestItem {
    fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn key(&self) -> Option<Uuid> {
        self.key
    }

    fn kind(&self) -> usize {
        self.kind
    }
}

impl Batcher<TestItem> {
    fn enter(&self, item: TestItem) -> Option<TestItem> {
        self.add(item).pop()
    }
}

fn item(name: u32) -> TestItem {
    TestItem { name, bytes: 1, is_abandoned: false, key: None, kind: 0 }
}

/// Another batcher is active, so this one has one batch under way at a time.
fn active() -> ActiveBatchers {
    Arc::new(AtomicUsize::new(1))
}

/// For tests that are not about slowness: on a machine that stands still for a moment every batch is slow.
fn never_slow(active: ActiveBatchers) -> Batcher<TestItem> {
    Batcher { slow_after: AN_HOUR, slow_together_after: AN_HOUR, ..Batcher::new(active) }
}

fn names(batch: &[TestItem]) -> Vec<u32> {
    batch.iter().map(|item| item.name).collect()
}

#[test]
fn the_first_item_leaves_alone_and_the_others_together() {
    let batcher = never_slow(ActiveBatchers::default());
    assert!(batcher.enter(item(1)).is_some());
    assert!(batcher.enter(item(2)).is_some());
    for name in 3..10 {
        assert!(batcher.enter(item(name)).is_none());
    }
    assert!(batcher.take_place(1).is_empty(), "they wait for the second too");
    assert_eq!(names(&batcher.take_place(1)), [3, 4, 5, 6, 7, 8, 9]);
    assert!(batcher.enter(item(10)).is_none(), "so few go together");
    assert_eq!(names(&batcher.take_place(7)), [10]);
    assert!(batcher.enter(item(11)).is_some(), "two go side by side");
    assert!(batcher.enter(item(12)).is_none());
}

#[test]
fn many_items_go_in_two_batches() {
    let batcher = never_slow(ActiveBatchers::default());
    for name in 0..=MANY_ITEMS {
        batcher.enter(item(u32::try_from(name).unwrap()));
    }
    assert_eq!(batcher.take_place(1).len(), 0);
    assert_eq!(batcher.take_place(1).len(), MANY_ITEMS - 1);
    assert!(batcher.enter(item(0)).is_none());
    assert!(batcher.enter(item(0)).is_some(), "above so many a second batch leaves");
}

#[test]
fn kinds_side_by_side_have_one_batch_each() {
    let active = ActiveBatchers::default();
    let (sends, receives) = (never_slow(active.clone()), never_slow(active.clone()));
    assert!(sends.enter(item(1)).is_some());
    assert!(sends.enter(item(2)).is_some());
    assert!(receives.enter(item(3)).is_some());
    assert!(receives.enter(item(4)).is_none(), "one is under way beside the other kind");
    sends.enter(item(5));
    assert!(sends.take_place(1).is_empty(), "the second place is given up");
    assert_eq!(names(&sends.take_place(1)), [5], "and the first takes what waits");
    assert!(sends.take_place(1).is_empty());
    assert_eq!(names(&receives.take_place(1)), [4]);
    assert!(receives.enter(item(6)).is_some(), "alone again");
    assert!(receives.take_place(1).is_empty());
    assert!(receives.take_place(1).is_empty());
    assert_eq!(active.load(SeqCst), 0);
}

#[test]
fn batches_are_bounded_by_number_and_by_bytes() {
    let batcher = never_slow(active());
    assert!(batcher.enter(item(0)).is_some());
    for name in 0..300 {
        batcher.enter(item(name));
    }
    assert_eq!(batcher.take_place(1).len(), MOST_ITEMS);
    assert_eq!(batcher.take_place(MOST_ITEMS).len(), 300 - MOST_ITEMS);
    for name in 0..3 {
        batcher.enter(TestItem { bytes: MOST_BYTES / 2 + 1, ..item(name) });
    }
    assert_eq!(names(&batcher.take_place(300 - MOST_ITEMS)), [0], "a second body of that size does not fit");
    assert_eq!(names(&batcher.take_place(1)), [1]);
    batcher.enter(TestItem { bytes: 10 * MOST_BYTES, ..item(3) });
    assert_eq!(names(&batcher.take_place(1)), [2]);
    assert_eq!(names(&batcher.take_place(1)), [3], "what fits into no batch goes alone");
}

#[test]
fn items_of_callers_that_left_are_dropped() {
    let batcher = never_slow(active());
    assert!(batcher.enter(item(0)).is_some());
    batcher.enter(TestItem { is_abandoned: true, ..item(1) });
    batcher.enter(item(2));
    assert_eq!(names(&batcher.take_place(1)), [2]);
    batcher.enter(TestItem { is_abandoned: true, ..item(3) });
    assert!(batcher.take_place(1).is_empty());
    assert!(batcher.enter(item(4)).is_some());
}

#[test]
fn kinds_take_turns() {
    let batcher = never_slow(active());
    let of = |kind, name| TestItem { kind, ..item(name) };
    assert!(batcher.enter(of(0, 1)).is_some());
    for (kind, name) in [(0, 2), (1, 3), (0, 4), (1, 5)] {
        batcher.enter(of(kind, name));
    }
    assert_eq!(names(&batcher.take_place(1)), [3, 5], "the other kind comes first");
    batcher.enter(of(1, 6));
    assert_eq!(names(&batcher.take_place(2)), [2, 4], "although another of the kind has come");
    batcher.enter(TestItem { is_abandoned: true, ..of(1, 7) });
    assert_eq!(names(&batcher.take_place(2)), [6]);
    batcher.enter(of(1, 8));
    batcher.enter(TestItem { is_abandoned: true, ..of(0, 9) });
    assert_eq!(names(&batcher.take_place(1)), [8], "the other kind has only callers that left");
    assert!(batcher.take_place(1).is_empty());
}

#[test]
fn an_item_waits_while_one_of_the_same_key_is_under_way() {
    let batcher = never_slow(ActiveBatchers::default());
    let key = |key: u128| Some(Uuid::from_u128(key));
    let of = |name, number| TestItem { key: key(number), ..item(name) };
    assert!(batcher.enter(of(1, 7)).is_some());
    assert!(batcher.enter(of(2, 7)).is_none(), "a place is free, but the first is out");
    batcher.enter(of(3, 8));
    assert_eq!(names(&batcher.take_place(1)), [3]);
    assert_eq!(names(&batcher.release(key(7))), [2], "it takes the free place");
    assert!(batcher.take_place(1).is_empty());
    assert!(batcher.release(key(8)).is_empty());
    for name in 4..6 {
        batcher.enter(of(name, 7));
    }
    assert!(batcher.release(key(7)).is_empty(), "no place is free");
    assert_eq!(names(&batcher.take_place(1)), [4, 5]);
}

/// A batch that came back took the first alone, and the second waited for ever.
#[test]
fn a_place_that_is_free_again_waits_for_as_many_as_a_test_wants() {
    let gathering = Gathering::default();
    let batcher = Batcher::new(ActiveBatchers::default()).gathering(gathering.clone());
    gathering.wait_for(2);
    assert_eq!(batcher.add_and_gather(item(1)), Admission::Kept);
    assert_eq!(batcher.add_and_gather(item(2)), Admission::Batch(vec![item(1), item(2)]));
    gathering.wait_for(2);
    assert_eq!(batcher.add_and_gather(item(3)), Admission::Kept);
    assert!(batcher.take_place(2).is_empty(), "a second is still to come");
    assert_eq!(batcher.add_and_gather(item(4)), Admission::Batch(vec![item(3), item(4)]));
    assert!(batcher.take_place(2).is_empty());
    assert_eq!(batcher.add_and_gather(item(5)), Admission::Gather, "no number is wanted any more");
}

#[tokio::test]
async fn slow_batches_are_joined_by_others() {
    let _limit = crate::testing::limit();
    let (slow_after, slow_together_after) = (Duration::ZERO, Duration::ZERO);
    let batcher = Batcher { slow_after, slow_together_after, ..Batcher::new(active()).waiting_for_locks() };
    assert_eq!(batcher.add_and_gather(item(1)), Admission::Gather);
    assert_eq!(batcher.add_and_gather(item(2)), Admission::Kept, "it goes with the first");
    assert_eq!(names(&batcher.gather().await), [1, 2]);
    for name in 3..=9 {
        assert_eq!(batcher.add_and_gather(item(name)), Admission::Gather);
        assert_eq!(names(&batcher.gather().await), [name]);
    }
    assert_eq!(batcher.add_and_gather(item(10)), Admission::Kept, "so many are under way");
    assert_eq!(names(&batcher.take_place(2)), [10]);
    for _ in 0..8 {
        assert!(batcher.take_place(1).is_empty());
    }
    assert_eq!(batcher.active.load(SeqCst), 1, "every place is free");
    let by_default = Batcher::<TestItem>::new(active());
    assert_eq!((by_default.slow_after, by_default.slow_together_after), (SLOW, SLOW_TOGETHER));
    let quick = never_slow(active());
    assert_eq!(quick.add_and_gather(item(1)), Admission::Gather);
    assert_eq!(names(&quick.gather().await), [1]);
    assert_eq!(quick.add_and_gather(item(2)), Admission::Kept);
}

#[tokio::test]
async fn a_slow_batch_of_several_items_is_waited_for() {
    let _limit = crate::testing::limit();
    let (slow_after, slow_together_after) = (Duration::ZERO, AN_HOUR);
    let batcher = Batcher { slow_after, slow_together_after, ..Batcher::new(active()).waiting_for_locks() };
    assert_eq!(batcher.add_and_gather(item(1)), Admission::Gather);
    assert_eq!(names(&batcher.gather().await), [1]);
    assert_eq!(batcher.add_and_gather(item(2)), Admission::Gather, "a single call may wait for a lock");
    assert_eq!(batcher.add_and_gather(item(3)), Admission::Kept, "it goes with the second");
    assert_eq!(names(&batcher.gather().await), [2, 3]);
    assert_eq!(batcher.add_and_gather(item(4)), Admission::Kept, "a third batch would only split the callers");
    assert!(batcher.take_place(1).is_empty(), "so does one in the place of the single call");
    assert_eq!(names(&batcher.take_place(2)), [4]);
}

/// The batch of a caller alone has no timer.
#[tokio::test]
async fn items_behind_a_caller_alone_whose_batch_hangs_leave() {
    let _limit = crate::testing::limit();
    let batcher = Batcher::new(ActiveBatchers::default());
    assert_eq!(names(&batcher.add(item(1))), [1]);
    let late = Mutex::new(Vec::new());
    let leave = |batch| late.lock().unwrap().extend(batch);
    let mut hangs = pin!(batcher.await_batch(1, std::future::pending(), Duration::from_secs(3600), leave));
    let mut poll = || hangs.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending();
    assert!(poll());
    assert_eq!(names(&batcher.add(item(2))), [2], "two go side by side");
    assert!(batcher.enter(item(3)).is_none());
    assert!(batcher.enter(item(4)).is_none());
    // The second comes back before the first counts as slow, and gives its place up.
    batcher.gathered().items_under_way -= 1;
    batcher.keep_place(&mut batcher.gathered(), 0);
    while late.lock().unwrap().is_empty() {
        assert!(poll());
        tokio::time::sleep(SLOW).await;
    }
    assert_eq!(names(&late.lock().unwrap()), [3, 4]);
}

/// Transactions that took jobs of a queue waited for one whose connection was cut in silence, and so did all that receive for two.
#[tokio::test]
async fn batches_that_hang_give_their_places_to_the_items_behind_them() {
    let _limit = crate::testing::limit();
    for batcher in [never_slow(active()), never_slow(active()).one_at_a_time()] {
        let late = Mutex::new(Vec::new());
        let leave = |batch: Vec<TestItem>| late.lock().unwrap().push(names(&batch));
        assert_eq!(names(&batcher.add(item(1))), [1]);
        for name in 2..5 {
            assert!(batcher.enter(item(name)).is_none());
        }
        let (ends, end) = tokio::sync::oneshot::channel::<()>();
        let ended = async { end.await.unwrap() };
        let mut first = pin!(batcher.await_batch(1, ended, Duration::ZERO, leave));
        let mut waker = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut waker).is_pending());
        assert_eq!(*late.lock().unwrap(), [[2, 3, 4]]);
        batcher.enter(item(5));
        let mut second = pin!(batcher.await_batch(3, std::future::pending(), Duration::ZERO, leave));
        assert!(second.as_mut().poll(&mut waker).is_pending());
        assert_eq!(late.lock().unwrap()[1], [5]);
        ends.send(()).unwrap();
        assert_eq!(first.as_mut().poll(&mut waker), Poll::Ready(false), "its place is taken");
        assert!(batcher.take_place(1).is_empty());
        assert_eq!(batcher.active.load(SeqCst), 1, "every place is free");
    }
}

/// Each push that the server kept waiting gave its place to the next, until no connection of the pool was left for any caller.
#[tokio::test(start_paused = true)]
async fn only_so_many_batches_that_hang_give_their_places_away() {
    let _limit = crate::testing::limit();
    let second = Duration::from_secs(1);
    for batcher in [never_slow(active()), never_slow(active()).beside_pool()] {
        let late = Mutex::new(Vec::new());
        let leave = |batch: Vec<TestItem>| late.lock().unwrap().push(names(&batch));
        let mut waker = Context::from_waker(Waker::noop());
        let mut hanging = Vec::new();
        let most = if batcher.is_one_at_a_time { 1 } else { 8 };
        batcher.add(item(0));
        for name in 1..most + 2 {
            assert!(batcher.enter(item(name)).is_none());
            let (end, ends) = tokio::sync::oneshot::channel::<()>();
            let ended = async { ends.await.unwrap() };
            let mut hangs = Box::pin(batcher.await_batch(1, ended, second, leave));
            assert!(hangs.as_mut().poll(&mut waker).is_pending());
            tokio::time::advance(second).await;
            assert!(hangs.as_mut().poll(&mut waker).is_pending());
            hanging.push((hangs, end));
        }
        assert_eq!(*late.lock().unwrap(), (1..=most).map(|name| [name]).collect::<Vec<_>>());
        let (mut last, _end) = hanging.pop().unwrap();
        let (mut ended, end) = hanging.pop().unwrap();
        end.send(()).unwrap();
        assert_eq!(ended.as_mut().poll(&mut waker), Poll::Ready(false));
        tokio::time::advance(second).await;
        assert!(last.as_mut().poll(&mut waker).is_pending());
        assert_eq!(late.lock().unwrap().last(), Some(&vec![most + 1]), "another one may");
    }
}

#[tokio::test]
async fn a_caller_alone_leaves_at_once() {
    let _limit = crate::testing::limit();
    let batcher = Batcher::new(ActiveBatchers::default());
    assert_eq!(batcher.add_and_gather(item(1)), Admission::Gather, "others may come at the same moment");
    assert_eq!(names(&batcher.gather().await), [1]);
    assert!(batcher.take_place(1).is_empty());
    for name in 2..4 {
        assert_eq!(batcher.add_and_gather(item(name)), Admission::Alone(item(name)), "none came with the last one");
        assert!(!batcher.is_idle());
        batcher.lone_item_done();
        assert!(batcher.is_idle());
    }
    assert_eq!(batcher.add_and_gather(item(4)), Admission::Alone(item(4)));
    assert_eq!(batcher.add_and_gather(item(5)), Admission::Gather, "there are two callers");
    assert_eq!(batcher.add_and_gather(item(6)), Admission::Kept);
    assert_eq!(names(&batcher.gather().await), [5, 6], "without waiting for the caller alone");
    assert!(batcher.take_place(2).is_empty());
    assert_eq!(batcher.add_and_gather(item(7)), Admission::Gather, "the callers of a batch come back together");
    assert_eq!(names(&batcher.gather().await), [7]);
    batcher.lone_item_done();
    assert!(batcher.take_place(1).is_empty());
    assert_eq!(batcher.active.load(SeqCst), 0);
    assert_eq!(batcher.add_and_gather(item(8)), Admission::Alone(item(8)));
}

/// Enters `items` items, eight at a time, while another task runs.
fn add_items(batcher: &Arc<Batcher<TestItem>>, items: u32) {
    let batcher = batcher.clone();
    tokio::spawn(async move {
        for name in 0..items {
            assert!(batcher.enter(item(name)).is_none());
            if name % 8 == 7 {
                tokio::task::yield_now().await;
            }
        }
    });
}

#[tokio::test]
async fn a_batch_waits_for_the_callers_of_the_one_before() {
    let _limit = crate::testing::limit();
    let batcher = Arc::new(never_slow(active()));
    assert!(batcher.enter(item(0)).is_some());
    for name in 0..32 {
        batcher.enter(item(name));
    }
    assert_eq!(batcher.next_batch(1).await.len(), 32);
    add_items(&batcher, 40);
    assert_eq!(batcher.next_batch(32).await.len(), 32);
    assert_eq!(batcher.next_batch(32).await.len(), 8, "it does not wait for ever for items that do not come");
}

#[tokio::test]
async fn a_batch_waits_for_those_that_are_back_and_for_the_others() {
    let _limit = crate::testing::limit();
    let batcher = Arc::new(never_slow(active()));
    assert!(batcher.enter(item(0)).is_some());
    add_items(&batcher, 40);
    tokio::task::yield_now().await;
    batcher.batch_answered();
    assert_eq!(batcher.next_batch(1).await.len(), 16, "8 waited, and one is back");
}

#[tokio::test]
async fn a_caller_alone_is_not_waited_for() {
    let _limit = crate::testing::limit();
    let batcher = Arc::new(never_slow(active()));
    assert!(batcher.enter(item(0)).is_some());
    let comes_back = batcher.clone();
    let back = tokio::spawn(async move { comes_back.enter(item(1)) });
    assert!(batcher.next_batch(1).await.is_empty(), "the other task has not run yet");
    assert!(back.await.unwrap().is_some(), "its item leaves at once");
}

#[tokio::test]
async fn batches_that_go_at_once_share_out_evenly() {
    let _limit = crate::testing::limit();
    let batcher = Arc::new(never_slow(ActiveBatchers::default()));
    assert!(batcher.enter(item(0)).is_some() && batcher.enter(item(0)).is_some());
    for name in 0..148 {
        batcher.enter(item(name));
    }
    assert_eq!(batcher.next_batch(1).await.len(), 148);
    add_items(&batcher, 148);
    assert_eq!(batcher.next_batch(148).await.len(), 80, "half of the 149 that are known, in steps of eight");
    assert_eq!(batcher.next_batch(1).await.len(), 68, "the others come while the single one is back");
}
