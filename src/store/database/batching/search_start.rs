//! Where the takes of a work queue begin to search.
//!
//! The index of the ready jobs keeps the entries of jobs that were taken until the server cleans up, all of them before the
//! first that is ready. While a reader holds an old snapshot the server cannot clean up, and each search from the first entry
//! reads all of them.

use std::time::{Duration, Instant};

/// One search in this many begins at the first entry, as [`super::receive_batches`] does.
const BETWEEN_WHOLE_SEARCHES: u32 = 16;

/// Searches from the first entry take a twentieth of the time at most.
const SHARE: u32 = 20;

/// From here on a search from the first entry is long: a take alone is then sent as a batch, which has a place to begin at. A take of
/// one job is shorter than a call of a batch by some 0.1 ms.
const LONG: Duration = Duration::from_millis(1);

/// The place in the order of a work queue before which no job was ready and free when the last batch searched. A job that comes
/// back there waits until too few others are left, or for the next search from the first entry.
#[derive(Debug, Default)]
pub(super) struct SearchStart {
    from: Option<i64>,
    searches: u32,
    /// How long the last search from the place took.
    usual: Option<Duration>,
    /// How much longer the last search from the first entry took.
    excess: Duration,
    /// Before that none begins at the first entry, unless too few jobs are left.
    next_whole: Option<Instant>,
}

impl SearchStart {
    /// Where the next search begins; `None` is the first entry.
    pub(super) fn next(&mut self, now: Instant) -> Option<i64> {
        self.searches += 1;
        if self.searches >= BETWEEN_WHOLE_SEARCHES && self.next_whole.is_none_or(|next| now >= next) {
            self.searches = 0;
            return None;
        }
        self.from
    }

    /// Notes a search: its first job if every caller got all that it asked for, where it began, and its time.
    pub(super) fn found(&mut self, first: Option<i64>, start: Option<i64>, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        match (start, first) {
            (Some(_), Some(_)) => self.usual = Some(took),
            (Some(_), None) => {}
            (None, _) => {
                self.excess = took.saturating_sub(self.usual.unwrap_or(took));
                self.next_whole = Some(ended + self.excess * SHARE);
            }
        }
        self.from = first;
    }

    /// Whether a search from the first entry takes much longer than one from the place.
    pub(super) fn is_long(&self) -> bool {
        self.from.is_some() && self.excess >= LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A search that took so long and found this job first.
    fn search(start: &mut SearchStart, now: &mut Instant, took: Duration, first: Option<i64>) -> Option<i64> {
        let from = start.next(*now);
        let began = *now;
        *now += took;
        start.found(first, from, began, *now);
        from
    }

    #[test]
    fn a_search_begins_where_the_last_one_began() {
        let (mut start, mut now) = (SearchStart::default(), Instant::now());
        assert_eq!(search(&mut start, &mut now, MS, Some(7)), None);
        assert_eq!(search(&mut start, &mut now, MS, Some(9)), Some(7));
        assert_eq!(search(&mut start, &mut now, MS, None), Some(9));
        assert_eq!(
            search(&mut start, &mut now, MS, Some(3)),
            None,
            "too few were found, so jobs may be there that came back"
        );
        assert_eq!(search(&mut start, &mut now, MS, Some(4)), Some(3));
    }

    #[test]
    fn one_in_sixteen_begins_at_the_first_entry() {
        let (mut start, mut now) = (SearchStart::default(), Instant::now());
        let begins: Vec<_> = (0..33).map(|id| search(&mut start, &mut now, MS, Some(id)).is_none()).collect();
        let whole: Vec<usize> = (0..33).filter(|place| begins[*place]).collect();
        assert_eq!(whole, [0, 15, 31]);
    }

    #[test]
    fn long_searches_take_a_twentieth_of_the_time() {
        let (mut start, mut now) = (SearchStart::default(), Instant::now());
        let (mut whole, mut all) = (Duration::ZERO, Duration::ZERO);
        for id in 0..20_000 {
            let is_whole = start.next(now).is_none();
            let from = (!is_whole).then_some(id);
            let took = if is_whole { 101 * MS } else { MS };
            start.found(Some(id), from, now, now + took);
            now += took;
            all += took;
            whole += if is_whole { took } else { Duration::ZERO };
        }
        assert!(whole >= 2 * 101 * MS, "there are some: {whole:?}");
        assert!(whole * 15 < all, "{whole:?} of {all:?}");
        assert!(start.is_long());
    }
}
