//! A crash loses no acknowledged work and doubles none.
//!
//! `kill.rs` and `kill_jobs.rs` kill a process under load, `faults.rs` makes every single statement that writes fail in
//! turn, `disk.rs` every write and sync below SQLite, `rows.rs` compares the tables with the model after random work.

mod disk;
mod faults;
mod kill;
mod kill_jobs;
#[path = "../servers/limit.rs"]
mod limits;
mod rows;
#[path = "../servers/seeds.rs"]
mod seeds;
mod shop;

/// A limit for a test, held to its end.
fn limit() -> limits::Limit {
    limits::limit(|| dialoq::testing::describe_waits().join("\n"))
}
