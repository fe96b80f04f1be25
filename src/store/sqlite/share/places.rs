//! The places of activated readers, counted by the owner over all processes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The places that are taken, by queue.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<i32, BTreeSet<i32>>>);

impl Places {
    fn all(&self) -> MutexGuard<'_, HashMap<i32, BTreeSet<i32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first free place below the maximum; `None` if all are taken.
    pub(super) fn take(&self, queue_id: i32, most: u16) -> Option<i32> {
        let mut all = self.all();
        let taken = all.entry(queue_id).or_default();
        // Places above a maximum that was lowered count too.
        let number = (0..i32::from(most)).find(|number| !taken.contains(number));
        let number = number.filter(|_| taken.len() < usize::from(most))?;
        taken.insert(number);
        Some(number)
    }

    /// Enters the place of a reader that runs already: the one of that number, or the next free one.
    pub(super) fn enter(&self, queue_id: i32, number: i32) -> i32 {
        let mut all = self.all();
        let taken = all.entry(queue_id).or_default();
        let number = (number.max(0)..i32::MAX).find(|number| !taken.contains(number)).unwrap_or(i32::MAX);
        taken.insert(number);
        number
    }

    /// Frees a place; returns whether it was taken.
    pub(super) fn free(&self, queue_id: i32, number: i32) -> bool {
        let mut all = self.all();
        let Some(taken) = all.get_mut(&queue_id) else { return false };
        let was_taken = taken.remove(&number);
        if taken.is_empty() {
            all.remove(&queue_id);
        }
        was_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_given_than_the_maximum() {
        let places = Places::default();
        assert_eq!([places.take(1, 2), places.take(1, 2), places.take(1, 2)], [Some(0), Some(1), None]);
        assert_eq!(places.take(2, 1), Some(0), "another queue");
        assert!(places.free(1, 0));
        assert!(!places.free(1, 0), "it is free already");
        assert_eq!(places.take(1, 1), None, "place 1 is above the lowered maximum and still counts");
        assert_eq!(places.take(1, 2), Some(0));
    }

    #[test]
    fn a_reader_that_runs_gets_a_place_beyond_the_maximum_if_it_must() {
        let places = Places::default();
        assert_eq!([places.enter(1, 0), places.enter(1, 0)], [0, 1]);
        assert_eq!(places.take(1, 2), None);
    }
}
