//! The load benchmark, and the bare log it is measured against.
