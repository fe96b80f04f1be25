//! The lab: one load through every strategy, and what came of it.
