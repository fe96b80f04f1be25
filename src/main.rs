//! The command `dialoq`: its subcommands, the lab and the bench.

mod bench;
mod cli;
mod lab;
#[cfg(test)]
#[path = "../tests/servers/limit.rs"]
mod limit;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}

/// A limit for a test of the command, held to the test's end.
#[cfg(test)]
fn limit() -> limit::Limit {
    limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}
