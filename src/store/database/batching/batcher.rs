//! Batching: while batches are under way, further items gather, and leave together as one batch.
//!
//! No item waits for a timer while batches come back. If few are under way, an item goes at once, alone. Otherwise it gathers with
//! others until a batch comes back, so batches are as large as the load is high. If a batch takes long, as on a connection that hangs,
//! the items that wait leave beside it.

use crate::store::Gathering;
use std::collections::{HashSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;
use uuid::Uuid;

/// The most items of a batch, and the bytes of bodies after which no more are added to it.
const MOST_ITEMS: usize = 256;
const MOST_BYTES: usize = 4 << 20;

/// The numbers of items between which a batcher has one batch under way at a time. A batch costs the server as much as nearly twenty of its
/// items, so callers are faster together: with one batch instead of two 8 to 16 callers SEND and receive a fifth to a third more, 64 as many
/// within the noise. Two callers are faster side by side, each with a call of its own. Of many callers both batches are large, and use more
/// processors of the server.
const FEW_ITEMS: usize = 2;
const MANY_ITEMS: usize = 128;

/// The most times a batch yields to other tasks before it leaves, so that more items can join it. 64 yields gathered no
/// more than 16.
const MOST_YIELDS: usize = 16;

/// The most batches of a batcher under way at once if the last one takes long. One that is a single call may wait for a lock that a stranger
/// holds.
const MOST_SLOW_BATCHES: usize = 2;
const SLOW: Duration = Duration::from_millis(5);

/// The same for batches whose single calls keep their places while they wait for locks.
const MOST_WAITING_BATCHES: usize = 8;
const SLOW_WAITING: Duration = Duration::from_millis(1);

/// How long a batch of several items takes if it is slow. It waits for no lock but for the disk or the processors of the server, of which a
/// second batch finds no more, and it would split the callers in two groups. At 5 ms, where a sync takes 10 ms, 64 callers sent 2,600 messages
/// a second in place of 4,900; where four processes keep two processors busy, they sent and received half as many.
const SLOW_TOGETHER: Duration = Duration::from_millis(50);

/// The most batches of a batcher that hang and have given their places away. Each keeps a connection of the pool, of which other callers need
/// some: while commits waited for a standby that was away, pushes took all 32 in four seconds.
const MOST_HANGING: usize = 8;

/// The same for batches that go by a [`ControlConnection`], which has a second link for what waits behind the first.
///
/// [`ControlConnection`]: crate::store::database::notifications::control_connection::ControlConnection
const MOST_HANGING_BESIDE_POOL: usize = 1;

/// The pause before a batch that hangs looks again whether it may give its place away.
const LOOKS_OF_THE_HANGING: Duration = Duration::from_secs(1);

/// The number of batchers of one store that have items under way.
pub(in crate::store::database) type ActiveBatchers = Arc<AtomicUsize>;

/// An item that can go out in a batch.
pub(in crate::store::database) trait Item {
    /// Whether its caller has left.
    fn is_abandoned(&self) -> bool;

    /// The bytes of its body.
    fn bytes(&self) -> usize;

    /// The key of its order: while an item of the same key is under way, this one waits.
    fn key(&self) -> Option<Uuid>;

    /// The items of a batch are of one kind. If items of several kinds wait, the kinds take turns.
    fn kind(&self) -> usize;
}

/// The items of one kind of call: those that wait, and those that are under way.
#[derive(Debug)]
pub(in crate::store::database) struct Batcher<I> {
    gathered: Mutex<Gathered<I>>,
    active: ActiveBatchers,
    gathering: Gathering,
    /// So many batches may be under way if the last one left so long ago.
    most_if_slow: usize,
    slow_after: Duration,
    /// The same time if it had several items.
    slow_together_after: Duration,
    /// No two batches are under way at once.
    is_one_at_a_time: bool,
    /// So many batches that hang may have given their places away.
    most_hanging: usize,
    /// An item waits.
    waits: Notify,
}

/// What becomes of an item that was added.
#[derive(Debug, PartialEq)]
pub(in crate::store::database) enum Admission<I> {
    /// It is kept until a later batch.
    Kept,
    /// These leave at once.
    Batch(Vec<I>),
    /// The item of a caller alone, which leaves at once beside the batches; [`Batcher::lone_item_done`] is called when it is done.
    Alone(I),
    /// A batch has a place, and is to be gathered now.
    Gather,
}

/// A batch that hangs and has given its place away.
struct Hanging<'b, I: Item>(&'b Batcher<I>);

impl<I: Item> Drop for Hanging<'_, I> {
    fn drop(&mut self) {
        self.0.gathered().hanging -= 1;
    }
}

#[derive(Debug)]
struct Gathered<I> {
    items: VecDeque<I>,
    /// Batches, and the items in them.
    under_way: usize,
    items_under_way: usize,
    /// The keys of items under way.
    keys_under_way: HashSet<Uuid>,
    last_departure: Instant,
    /// How many items left then.
    last_size: usize,
    /// A batch beyond the usual number has a place and no items yet.
    is_gathering: bool,
    /// The item of a caller alone is under way. It has no place among the batches, so that others do not wait for its caller.
    has_lone: bool,
    /// The kind of the last batch.
    last_kind: usize,
    /// The items that waited when the last batch was done.
    waiting_at_answer: usize,
    /// Batches that hang and have given their places away.
    hanging: usize,
}

impl<I: Item> Gathered<I> {
    fn is_under_way(&self, item: &I) -> bool {
        item.key().is_some_and(|key| self.keys_under_way.contains(&key))
    }

    /// The items that wait or are under way.
    fn known(&self) -> usize {
        self.items.len() + self.items_under_way
    }

    /// The items there are once callers that got an answer have come with the next one. Some that wait may be theirs, so the larger number
    /// counts, not the sum.
    fn known_when_back(&self, back: usize, others: usize) -> usize {
        self.items_under_way - back + self.items.len().max(back + others)
    }

    /// Takes the items that can go together now.
    fn batch(&mut self) -> Vec<I> {
        self.items.retain(|item| !item.is_abandoned());
        let ready = self.items.iter().filter(|item| !self.is_under_way(item)).map(Item::kind);
        self.last_kind = ready.max_by_key(|kind| *kind != self.last_kind).unwrap_or(self.last_kind);
        let mut batch: Vec<I> = Vec::new();
        let (mut bytes, mut is_full) = (0, false);
        let mut left = VecDeque::new();
        for item in std::mem::take(&mut self.items) {
            is_full |= batch.len() >= MOST_ITEMS;
            if is_full || item.kind() != self.last_kind || self.is_under_way(&item) {
                left.push_back(item);
            } else {
                is_full = !batch.is_empty() && bytes + item.bytes() > MOST_BYTES;
                if is_full {
                    left.push_back(item);
                } else {
                    bytes += item.bytes();
                    batch.push(item);
                }
            }
        }
        self.items = left;
        self.keys_under_way.extend(batch.iter().filter_map(Item::key));
        batch
    }
}

impl<I: Item> Batcher<I> {
    /// A batcher of the store that this number belongs to.
    pub(in crate::store::database) fn new(active: ActiveBatchers) -> Self {
        Self {
            gathered: Mutex::new(Gathered {
                items: VecDeque::new(),
                under_way: 0,
                items_under_way: 0,
                keys_under_way: HashSet::new(),
                last_departure: Instant::now(),
                last_size: 0,
                is_gathering: false,
                has_lone: false,
                last_kind: 0,
                waiting_at_answer: 0,
                hanging: 0,
            }),
            active,
            gathering: Gathering::default(),
            most_if_slow: MOST_SLOW_BATCHES,
            slow_after: SLOW,
            slow_together_after: SLOW_TOGETHER,
            is_one_at_a_time: false,
            most_hanging: MOST_HANGING,
            waits: Notify::new(),
        }
    }

    /// Lets one batch leave at a time, for batches that share one connection.
    pub(in crate::store::database) fn one_at_a_time(mut self) -> Self {
        self.is_one_at_a_time = true;
        self.most_if_slow = 1;
        self
    }

    /// Lets one batch leave at a time, and one beside it if it hangs, for batches by the connection that notifications go by.
    pub(in crate::store::database) fn beside_pool(mut self) -> Self {
        self.most_hanging = MOST_HANGING_BESIDE_POOL;
        self.one_at_a_time()
    }

    /// Lets more batches leave, and earlier, if those under way take long: a single call keeps its place until its lock is free.
    pub(in crate::store::database) fn waiting_for_locks(mut self) -> Self {
        self.most_if_slow = MOST_WAITING_BATCHES;
        self.slow_after = SLOW_WAITING;
        self
    }

    /// Lets a test set how many items the next batch waits for.
    pub(in crate::store::database) fn gathering(mut self, gathering: Gathering) -> Self {
        self.gathering = gathering;
        self
    }

    /// Adds an item; returns the batch that leaves at once, with it or without. Then [`Batcher::next_batch`] must be called when it is done. If it is
    /// empty, the item is kept until a later `next_batch`.
    pub(in crate::store::database) fn add(&self, item: I) -> Vec<I> {
        let mut gathered = self.gathered();
        gathered.items.push_back(item);
        if self.gathering.wanted() == 0 && !self.has_place(&gathered) {
            self.waits.notify_waiters();
            return Vec::new();
        }
        let batch = self.batch(&mut gathered);
        if !batch.is_empty() {
            self.note_departure(&mut gathered, batch.len());
        }
        batch
    }

    /// Whether one more batch may leave.
    fn has_place(&self, gathered: &Gathered<I>) -> bool {
        gathered.under_way < self.most_under_way(gathered, gathered.known())
            || self.is_slow(gathered, gathered.under_way)
    }

    /// Takes the items that can go together now; none while a test waits for more of them.
    fn batch(&self, gathered: &mut Gathered<I>) -> Vec<I> {
        let wanted = self.gathering.wanted();
        if gathered.items.len() < wanted {
            return Vec::new();
        }
        let batch = gathered.batch();
        if wanted > 0 && !batch.is_empty() {
            self.gathering.wait_for(0);
        }
        batch
    }

    /// As [`Batcher::add`], but no item leaves alone if others come at the same moment: callers of one batch come back
    /// together, and one that left before the others would keep them waiting for a sync of the server.
    pub(in crate::store::database) fn add_and_gather(&self, item: I) -> Admission<I> {
        if self.gathering.wanted() > 0 {
            let batch = self.add(item);
            return if batch.is_empty() { Admission::Kept } else { Admission::Batch(batch) };
        }
        let mut gathered = self.gathered();
        gathered.items.push_back(item);
        if gathered.is_gathering || !self.has_place(&gathered) {
            self.waits.notify_waiters();
            return Admission::Kept;
        }
        // A caller alone: to gather costs it 16 rounds of the runtime, some 30 us of the 300 of a call. If others come, they gather.
        // While other verbs are under way, the caller is not alone.
        let is_alone = gathered.under_way == 0 && !gathered.has_lone && self.active.load(SeqCst) == 0;
        if is_alone && gathered.last_size == 1 && gathered.items.len() == 1 {
            gathered.has_lone = true;
            gathered.last_departure = Instant::now();
            return gathered.items.pop_front().map_or(Admission::Kept, Admission::Alone);
        }
        gathered.is_gathering = true;
        self.note_departure(&mut gathered, 0);
        Admission::Gather
    }

    /// The batch for which [`Admission::Gather`] has taken the place; as [`Batcher::next_batch`].
    pub(in crate::store::database) async fn gather(&self) -> Vec<I> {
        for _ in 0..MOST_YIELDS {
            tokio::task::yield_now().await;
        }
        let mut gathered = self.gathered();
        gathered.is_gathering = false;
        let batch = self.batch(&mut gathered);
        self.keep_place(&mut gathered, batch.len());
        batch
    }

    /// Whether no batch is under way.
    pub(in crate::store::database) fn is_idle(&self) -> bool {
        let gathered = self.gathered();
        gathered.under_way == 0 && !gathered.has_lone
    }

    /// Whether batches are under way and none has left for so long.
    pub(in crate::store::database) fn hangs(&self, for_so_long: Duration) -> bool {
        let gathered = self.gathered();
        gathered.under_way > 0 && gathered.last_departure.elapsed() >= for_so_long
    }

    /// Whether the batches under way take so long that another may leave beside so many others.
    fn is_slow(&self, gathered: &Gathered<I>, others: usize) -> bool {
        let slow_after = if gathered.last_size > 1 { self.slow_together_after } else { self.slow_after };
        others < self.most_if_slow && gathered.last_departure.elapsed() >= slow_after
    }

    /// The next batch, in the place of `back` items that have just come back. Empty if no item waits, or if another
    /// batcher needs the place; the place is free then.
    ///
    /// Callers that just got an answer get time to send the next item, until this batch has its even share of all known items.
    /// A caller that misses a batch waits for the whole next one, and a batch costs as much as nearly twenty of its
    /// items. Of 64 callers 28 go together with this, 24 without, and throughput is a tenth higher.
    pub(in crate::store::database) async fn next_batch(&self, back: usize) -> Vec<I> {
        let others = std::mem::take(&mut self.gathered().waiting_at_answer);
        // For a caller alone nothing is to be gathered. In a runtime with nothing else to do each yield wakes another thread in vain:
        // without them a lone RECEIVE in a transaction is a fifth faster.
        let yields = if self.gathered().items_under_way + others > 1 { MOST_YIELDS } else { 0 };
        for _ in 0..yields {
            tokio::task::yield_now().await;
            let gathered = self.gathered();
            let known = gathered.known_when_back(back, others);
            if gathered.items.len() >= known.div_ceil(self.most_under_way(&gathered, known)) {
                break;
            }
        }
        self.take_place(back)
    }

    /// Awaits a batch of so many items. If it takes long, `leave` gets the items that wait behind it: their callers may be all there are, and
    /// then no other item comes that would find the batch slow. A batch that takes as long as `hangs_after` gives its place to them, unless too
    /// many have. Two that hung, on connections that were cut in silence, kept every later item waiting, and one did where one goes at a time.
    ///
    /// Gives whether the batch still has its place, so that [`Batcher::next_batch`] is to be called.
    pub(in crate::store::database) async fn await_batch(
        &self,
        items: usize,
        batch: impl Future<Output = ()>,
        hangs_after: Duration,
        leave: impl Fn(Vec<I>),
    ) -> bool {
        let mut batch = pin!(batch);
        let mut hangs_at = tokio::time::Instant::now() + hangs_after;
        let waits = self.waits.notified();
        // The item of the only caller of the store: a timer would wake another thread, in vain as a rule. It begins when an item waits.
        if self.gathered().known() == 1 && self.active.load(SeqCst) == 1 {
            tokio::select! {
                biased;
                () = &mut batch => return true,
                () = waits => {}
            }
        }
        let _hanging = loop {
            let now = tokio::time::Instant::now();
            if now >= hangs_at {
                if let Some(hanging) = self.hang() {
                    break hanging;
                }
                hangs_at = now + LOOKS_OF_THE_HANGING;
            }
            let left = hangs_at - now;
            if timeout(if self.is_one_at_a_time { left } else { left.min(SLOW) }, &mut batch).await.is_ok() {
                return true;
            }
            let overdue = if self.is_one_at_a_time { Vec::new() } else { self.overdue() };
            if !overdue.is_empty() {
                leave(overdue);
            }
        };
        let behind = self.take_place(items);
        if !behind.is_empty() {
            leave(behind);
        }
        batch.await;
        false
    }

    /// Counts one more batch that hangs and gives its place away, until the answer is dropped; `None` if too many have.
    fn hang(&self) -> Option<Hanging<'_, I>> {
        let mut gathered = self.gathered();
        let may_hang = gathered.hanging < self.most_hanging;
        gathered.hanging += usize::from(may_hang);
        may_hang.then(|| Hanging(self))
    }

    /// The items that wait, if the batches under way are slow and one more has a place; as [`Batcher::add`].
    fn overdue(&self) -> Vec<I> {
        let mut gathered = self.gathered();
        if gathered.items.is_empty() || gathered.is_gathering || !self.has_place(&gathered) {
            return Vec::new();
        }
        let batch = self.batch(&mut gathered);
        if !batch.is_empty() {
            self.note_departure(&mut gathered, batch.len());
        }
        batch
    }

    /// Drops the items that wait: no batch will take them.
    pub(in crate::store::database) fn drop_waiting(&self) {
        // Not under the lock: an item may do work as it is dropped.
        let items = std::mem::take(&mut self.gathered().items);
        drop(items);
    }

    /// The items that wait or are under way.
    pub(in crate::store::database) fn items(&self) -> usize {
        self.gathered().known()
    }

    /// A batch is done, and its callers do not have their answers yet: [`Batcher::next_batch`] waits for as many items as they are, beside those that
    /// wait now.
    pub(in crate::store::database) fn batch_answered(&self) {
        let mut gathered = self.gathered();
        gathered.waiting_at_answer = gathered.items.len();
    }

    /// The item of a caller alone is back. Called before the caller gets its answer, so that its next item leaves alone too. It was
    /// called after 16 rounds of the runtime, in which the next item came and gathered: 12 calls of the system in a push of 300 us.
    pub(in crate::store::database) fn lone_item_done(&self) {
        self.gathered().has_lone = false;
    }

    fn take_place(&self, back: usize) -> Vec<I> {
        let mut gathered = self.gathered();
        let most = self.most_under_way(&gathered, gathered.known_when_back(back, 0));
        gathered.items_under_way -= back;
        let has_place = gathered.under_way <= most || self.is_slow(&gathered, gathered.under_way - 1);
        let batch = if has_place { self.batch(&mut gathered) } else { Vec::new() };
        self.keep_place(&mut gathered, batch.len());
        batch
    }

    /// So many items take a place, or give it up.
    fn keep_place(&self, gathered: &mut Gathered<I>, items: usize) {
        gathered.items_under_way += items;
        if items > 0 {
            gathered.last_departure = Instant::now();
            gathered.last_size = items;
        } else {
            gathered.under_way -= 1;
            if gathered.under_way == 0 {
                self.active.fetch_sub(1, SeqCst);
            }
        }
    }

    /// The items of these keys are back. Returns the items that waited for them if a place is free; they take it.
    pub(in crate::store::database) fn release(&self, keys: impl IntoIterator<Item = Uuid>) -> Vec<I> {
        let mut gathered = self.gathered();
        for key in keys {
            gathered.keys_under_way.remove(&key);
        }
        if gathered.items.is_empty() || gathered.under_way >= self.most_under_way(&gathered, gathered.known()) {
            return Vec::new();
        }
        let batch = self.batch(&mut gathered);
        if !batch.is_empty() {
            self.note_departure(&mut gathered, batch.len());
        }
        batch
    }

    fn note_departure(&self, gathered: &mut Gathered<I>, items: usize) {
        if gathered.under_way == 0 {
            self.active.fetch_add(1, SeqCst);
        }
        gathered.under_way += 1;
        gathered.items_under_way += items;
        gathered.last_departure = Instant::now();
        gathered.last_size = items;
    }

    /// The most batches under way at once if there are so many items: one beside another batcher of the store.
    fn most_under_way(&self, gathered: &Gathered<I>, items: usize) -> usize {
        let is_alone = self.active.load(SeqCst) <= usize::from(gathered.under_way > 0);
        if is_alone && !self.is_one_at_a_time && !(FEW_ITEMS + 1..=MANY_ITEMS).contains(&items) { 2 } else { 1 }
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered<I>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
