//! The command; see the `cli` module of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    dialoq::cli::main()
}
