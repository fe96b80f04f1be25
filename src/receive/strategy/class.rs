//! What counts as high.

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use std::ops::RangeInclusive;

/// The messages that a strategy on one queue treats as high; made by [`by_levels`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HighClass(Named);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    Levels(u8, u8),
}

/// Conversations whose level is within these bounds, 1 (low) to 10 (high).
pub fn by_levels(levels: RangeInclusive<u8>) -> HighClass {
    HighClass(Named::Levels(*levels.start(), *levels.end()))
}

impl From<RangeInclusive<u8>> for HighClass {
    fn from(levels: RangeInclusive<u8>) -> Self {
        by_levels(levels)
    }
}

impl HighClass {
    /// The lowest and the highest level, if they are known without the definitions.
    pub(super) fn levels(&self) -> Option<(u8, u8)> {
        match self.0 {
            Named::Levels(lowest, highest) => Some((lowest, highest)),
        }
    }

    /// The lowest and the highest level of the class in that queue.
    pub(super) fn resolve(&self, catalog: &Catalog, queue: &str) -> Result<(u8, u8)> {
        super::drain::check_queue(catalog, queue)?;
        match self.0 {
            Named::Levels(lowest, highest) => check_levels(lowest, highest).map(|()| (lowest, highest)),
        }
    }
}

/// Refuses a range that holds no level.
pub(super) fn check_levels(lowest: u8, highest: u8) -> Result<()> {
    if lowest == 0 || highest > 10 || lowest > highest {
        let found = format!("{lowest} to {highest}");
        return Err(Error::out_of_range("the range of levels", found, "an ascending range within 1 to 10"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "it is what must be refused")]
    fn ranges_that_hold_no_level_are_refused() {
        for range in [0..=3, 8..=11, 7..=6] {
            let HighClass(Named::Levels(lowest, highest)) = by_levels(range);
            assert_eq!(check_levels(lowest, highest).unwrap_err().code(), crate::Code::OUT_OF_RANGE);
        }
        assert!(check_levels(1, 10).is_ok());
    }
}
