//! Receives of open transactions of this process. Until the commit, the server shows these messages to other sessions
//! as unread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages received in open transactions, by queue.
#[derive(Debug, Default)]
pub(in crate::store::database) struct UncommittedReceives(Mutex<BTreeMap<i32, u64>>);

impl UncommittedReceives {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<i32, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of messages of that queue.
    pub(in crate::store::database) fn of(&self, queue: i32) -> u64 {
        self.counts().get(&queue).copied().unwrap_or(0)
    }
}

/// The receives of one transaction; they count until it is cleared or dropped.
#[derive(Debug)]
pub(in crate::store::database) struct Share {
    all: Arc<UncommittedReceives>,
    own: Vec<(i32, u64)>,
}

impl Share {
    pub(in crate::store::database) fn of(all: &Arc<UncommittedReceives>) -> Self {
        Self { all: all.clone(), own: Vec::new() }
    }

    pub(in crate::store::database) fn add(&mut self, queue: i32, messages: u64) {
        *self.all.counts().entry(queue).or_default() += messages;
        self.own.push((queue, messages));
    }

    /// The number of receives.
    pub(in crate::store::database) fn len(&self) -> usize {
        self.own.len()
    }

    /// Drops the receives made after the savepoint.
    pub(in crate::store::database) fn truncate(&mut self, times: usize) {
        let mut counts = self.all.counts();
        for (queue, messages) in self.own.drain(times.min(self.own.len())..) {
            if let Some(count) = counts.get_mut(&queue) {
                *count = count.saturating_sub(messages);
                if *count == 0 {
                    counts.remove(&queue);
                }
            }
        }
    }

    /// The transaction is over.
    pub(in crate::store::database) fn clear(&mut self) {
        self.truncate(0);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncommitted_receives_count_until_the_end_or_the_rollback_to_a_savepoint() {
        let all = Arc::new(UncommittedReceives::default());
        let (mut one, mut other) = (Share::of(&all), Share::of(&all));
        one.add(7, 2);
        other.add(7, 3);
        let mark = one.len();
        one.add(7, 1);
        one.add(8, 1);
        assert_eq!((all.of(7), all.of(8), all.of(9)), (6, 1, 0));
        one.truncate(mark);
        assert_eq!((all.of(7), all.of(8)), (5, 0));
        drop(one);
        assert_eq!(all.of(7), 3);
        other.clear();
        assert!(all.counts().is_empty());
    }
}
