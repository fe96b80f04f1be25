//! Folding: units of one kind that come while others are under way gather, and go out together.
//!
//! Nobody waits for a timer. Whoever comes when few are under way goes at once, alone; the others gather, and leave
//! together as soon as something under way has come back. So batches are as large as the load is high.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most items of a batch, and the bytes of bodies after which no more are added to it.
const MOST_ITEMS: usize = 256;
const MOST_BYTES: usize = 4 << 20;

/// Something that can go out in a batch.
pub(super) trait Item {
    /// Whether nobody waits for its answer any more.
    fn is_abandoned(&self) -> bool;

    /// The bytes of its body.
    fn bytes(&self) -> usize;
}

/// What gathers.
#[derive(Debug)]
pub(super) struct Fold<I> {
    gathered: Mutex<Gathered<I>>,
    most_under_way: usize,
}

#[derive(Debug)]
struct Gathered<I> {
    items: VecDeque<I>,
    under_way: usize,
}

impl<I: Item> Fold<I> {
    /// At most so many batches at once.
    pub(super) fn new(most_under_way: usize) -> Self {
        Self { gathered: Mutex::new(Gathered { items: VecDeque::new(), under_way: 0 }), most_under_way }
    }

    /// Gives the item back if it may go at once: then [`Fold::next`] must be called when it is done. Else it is kept until
    /// somebody's `next`.
    pub(super) fn enter(&self, item: I) -> Option<I> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.under_way < self.most_under_way {
            gathered.under_way += 1;
            return Some(item);
        }
        gathered.items.push_back(item);
        None
    }

    /// What goes next, in the place of what has just come back. Nothing if nothing waits; the place is free then.
    pub(super) fn next(&self) -> Vec<I> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < MOST_ITEMS
            && let Some(next) = gathered.items.front()
        {
            let size = next.bytes();
            if !batch.is_empty() && bytes + size > MOST_BYTES {
                break;
            }
            let item = gathered.items.pop_front().expect("the front was just seen");
            if !item.is_abandoned() {
                bytes += size;
                batch.push(item);
            }
        }
        if batch.is_empty() {
            gathered.under_way -= 1;
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing {
        name: u32,
        bytes: usize,
        is_abandoned: bool,
    }

    impl Item for Thing {
        fn is_abandoned(&self) -> bool {
            self.is_abandoned
        }

        fn bytes(&self) -> usize {
            self.bytes
        }
    }

    fn thing(name: u32) -> Thing {
        Thing { name, bytes: 1, is_abandoned: false }
    }

    fn names(batch: &[Thing]) -> Vec<u32> {
        batch.iter().map(|thing| thing.name).collect()
    }

    #[test]
    fn who_comes_first_goes_alone_and_the_others_go_together() {
        let fold = Fold::new(2);
        assert!(fold.enter(thing(1)).is_some());
        assert!(fold.enter(thing(2)).is_some());
        for name in 3..10 {
            assert!(fold.enter(thing(name)).is_none());
        }
        assert_eq!(names(&fold.next()), [3, 4, 5, 6, 7, 8, 9]);
        assert!(fold.next().is_empty(), "the second place is free now");
        assert!(fold.enter(thing(10)).is_some());
        assert!(fold.enter(thing(11)).is_none(), "but the first is still taken");
    }

    #[test]
    fn batches_are_bounded_by_number_and_by_bytes() {
        let fold = Fold::new(1);
        assert!(fold.enter(thing(0)).is_some());
        for name in 0..300 {
            fold.enter(thing(name));
        }
        assert_eq!(fold.next().len(), MOST_ITEMS);
        assert_eq!(fold.next().len(), 300 - MOST_ITEMS);
        for name in 0..3 {
            fold.enter(Thing { bytes: MOST_BYTES / 2 + 1, ..thing(name) });
        }
        assert_eq!(names(&fold.next()), [0], "a second body of that size does not fit");
        assert_eq!(names(&fold.next()), [1]);
        fold.enter(Thing { bytes: 10 * MOST_BYTES, ..thing(3) });
        assert_eq!(names(&fold.next()), [2]);
        assert_eq!(names(&fold.next()), [3], "what fits into no batch goes alone");
    }

    #[test]
    fn who_has_gone_away_is_left_out() {
        let fold = Fold::new(1);
        assert!(fold.enter(thing(0)).is_some());
        fold.enter(Thing { is_abandoned: true, ..thing(1) });
        fold.enter(thing(2));
        assert_eq!(names(&fold.next()), [2]);
        fold.enter(Thing { is_abandoned: true, ..thing(3) });
        assert!(fold.next().is_empty());
        assert!(fold.enter(thing(4)).is_some());
    }
}
