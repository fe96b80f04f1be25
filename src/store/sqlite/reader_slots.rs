//! The count of activated readers by the process that owns the file: of all processes that share it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers of the readers that run, by queue.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct ReaderSlots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    taken: HashMap<i32, BTreeSet<i32>>,
    /// Guests of an earlier owner may still have readers that are not counted here.
    is_incomplete: bool,
}

impl ReaderSlots {
    /// A count that readers of earlier guests have still to enter. No other reader starts until
    /// [`ReaderSlots::complete`], so no more run than the maximum.
    pub(in crate::store::sqlite) fn incomplete() -> Self {
        Self(Mutex::new(State { is_incomplete: true, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store::sqlite) fn is_incomplete(&self) -> bool {
        self.state().is_incomplete
    }

    /// The guests of earlier owners have entered their readers.
    pub(in crate::store::sqlite) fn complete(&self) {
        self.state().is_incomplete = false;
    }

    /// Takes the first free number below the maximum; `None` if all are taken.
    pub(in crate::store::sqlite) fn take(&self, queue_id: i32, most: u16) -> Option<i32> {
        let mut state = self.state();
        if state.is_incomplete {
            return None;
        }
        let taken = state.taken.entry(queue_id).or_default();
        let number = first_free(taken, 0);
        // Numbers above a maximum that was lowered count too.
        if number >= i32::from(most) || taken.len() >= usize::from(most) {
            return None;
        }
        taken.insert(number);
        Some(number)
    }

    /// Enters a reader that runs already: under its number, or the next free one. Returns the number.
    pub(in crate::store::sqlite) fn enter(&self, queue_id: i32, number: i32) -> i32 {
        let mut state = self.state();
        let taken = state.taken.entry(queue_id).or_default();
        let number = first_free(taken, number.max(0));
        taken.insert(number);
        number
    }

    /// Frees a number; returns whether it was taken.
    pub(in crate::store::sqlite) fn free(&self, queue_id: i32, number: i32) -> bool {
        let mut state = self.state();
        let Some(taken) = state.taken.get_mut(&queue_id) else { return false };
        let was_taken = taken.remove(&number);
        if taken.is_empty() {
            state.taken.remove(&queue_id);
        }
        was_taken
    }
}

/// The first number from this one on that is not taken.
fn first_free(taken: &BTreeSet<i32>, from: i32) -> i32 {
    let in_a_row = taken.range(from..).zip(from..=i32::MAX).take_while(|(taken, number)| *taken == number).count();
    i32::try_from(in_a_row).map_or(i32::MAX, |count| from.saturating_add(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_numbers_are_given_than_the_maximum() {
        let slots = ReaderSlots::default();
        assert_eq!([slots.take(1, 2), slots.take(1, 2), slots.take(1, 2)], [Some(0), Some(1), None]);
        assert_eq!(slots.take(2, 1), Some(0), "another queue");
        assert!(slots.free(1, 0));
        assert!(!slots.free(1, 0), "it is free already");
        assert_eq!(slots.take(1, 1), None, "number 1 is above the lowered maximum and still counts");
        assert_eq!(slots.take(1, 2), Some(0));
    }

    #[test]
    fn a_reader_that_runs_gets_a_number_beyond_the_maximum_if_it_must() {
        let slots = ReaderSlots::default();
        assert_eq!([slots.enter(1, 0), slots.enter(1, 0)], [0, 1]);
        assert_eq!(slots.take(1, 2), None);
        assert_eq!([slots.enter(1, 3), slots.enter(1, -7), slots.enter(1, 2)], [3, 2, 4]);
        let last = i32::MAX;
        assert_eq!([slots.enter(1, last), slots.enter(1, last)], [last, last]);
    }

    #[test]
    fn no_reader_starts_while_others_may_have_to_enter() {
        let slots = ReaderSlots::incomplete();
        assert_eq!(slots.take(1, 1), None);
        assert_eq!(slots.enter(1, 0), 0);
        slots.complete();
        assert_eq!([slots.take(1, 1), slots.take(1, 2)], [None, Some(1)]);
    }
}
