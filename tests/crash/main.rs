//! What a crash may cost: nothing that was acknowledged, and nothing twice.
//!
//! `kill.rs` kills a process under load, `faults.rs` makes every single write fail in turn, `rows.rs` compares the
//! tables with the model after random work.

mod faults;
mod kill;
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
