//! A crash loses no acknowledged work and doubles none.
//!
//! `kill.rs` and `kill_jobs.rs` kill a process under load, `faults.rs` makes every single statement that writes fail in
//! turn, `disk.rs` every write and sync below SQLite, `rows.rs` compares the tables with the model after random work.

mod disk;
mod faults;
mod kill;
mod kill_jobs;
mod rows;
mod shop;

/// A limit for a test, held to its end.
fn limit() -> dialoq_test_support::limit::Limit {
    dialoq_test_support::limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}
