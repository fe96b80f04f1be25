//! What a crash may cost: nothing that was acknowledged, and nothing twice.
//!
//! `kill.rs` kills a process under load, `faults.rs` makes every single write fail in turn, `rows.rs` compares the
//! tables with the model after random work.

mod faults;
mod kill;
mod rows;
mod shop;
