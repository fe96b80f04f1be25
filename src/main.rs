//! The command `dialoq`: its subcommands, the lab and the bench.

mod bench;
mod cli;
mod lab;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}

/// A limit for a test of the command, held to the test's end.
#[cfg(test)]
fn limit() -> dialoq_test_support::limit::Limit {
    dialoq_test_support::limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}
