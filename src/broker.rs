//! The broker: open one, define, and do verbs at once.
