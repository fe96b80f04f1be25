//! Definitions by builder.
