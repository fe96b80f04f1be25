//! Inputs that others write and Dialoq reads: kept ones, and random changes of them.
//!
//! `cargo test --test fuzz` reads the kept inputs of `tests/fuzz/corpus` and some thousand made from seeds, the same each
//! time. `DIALOQ_SEED=fresh DIALOQ_MINUTES=60 cargo test --test fuzz` looks for an hour in each target; a name after `--`
//! runs one target. An input that fails is made smaller and kept in the
//! corpus: mend the fault and commit the input with the cure.
//!
//! The arguments of PostgreSQL's granted routines have a test of their own in `tests/driver`.

mod bodies;
mod database;
mod ddl;
#[cfg(unix)]
mod frames;
mod harness;
mod lines;
mod mutate;
mod urls;

use harness::{Make, Target, made_with};
use std::process::ExitCode;
use std::time::Duration;

/// CPU time for a byte that is read once or a few times, with the tests' code unoptimized.
const QUICK: Option<Duration> = Some(Duration::from_micros(10));

static TARGETS: &[Target] = &[
    text("ddl", ddl::check, made_with!(ddl::WORDS), 4000),
    text("urls", urls::url, made_with!(urls::WORDS), 8000),
    text("passwords", urls::password, made_with!(urls::WORDS), 20_000),
    text("send_lines", lines::send_line, made_with!(lines::WORDS), 20_000),
    text("program_lines", lines::program_line, made_with!(lines::WORDS), 20_000),
    text("error_bodies", lines::error_body, made_with!(bodies::WORDS), 2000),
    text("message_lines", lines::message_line, made_with!(lines::WORDS), 20_000),
    text("bodies", bodies::check, made_with!(bodies::WORDS), 4000),
    database("database_rows", database::check_rows, database::make_rows, 60),
    database("database_bytes", database::check_bytes, database::make_bytes, 60),
    #[cfg(unix)]
    database("frames", frames::check, frames::make, 400),
];

const fn text(name: &'static str, check: fn(&[u8]), make: Make, inputs: u64) -> Target {
    Target { name, check, make, inputs, per_byte: QUICK }
}

const fn database(name: &'static str, check: fn(&[u8]), make: Make, inputs: u64) -> Target {
    Target { name, check, make, inputs, per_byte: None }
}

fn main() -> ExitCode {
    harness::run(TARGETS)
}
