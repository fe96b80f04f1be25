//! Lines of an input, for commands that read many.

use super::output::{counted, printable};
use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result, Tx};
use std::fmt::Display;
use std::io::{BufRead, Read};

/// The longest line that is read into memory.
const LONGEST_LINE_BYTES: u64 = 256 << 20;

/// Reads lines and passes each on, with its number from 1 and with its end; up to the end of the input, to the first that
/// cannot be read, or until one is not taken. A line that is no UTF-8 is passed on as an error.
pub(super) fn read_lines(mut reader: impl BufRead, mut take: impl FnMut(u64, Result<&str>) -> bool) {
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = reader.by_ref().take(LONGEST_LINE_BYTES).read_until(b'\n', &mut bytes);
        let is_broken = read.is_err() || bytes.len() as u64 == LONGEST_LINE_BYTES;
        let line = match read {
            Ok(0) => return,
            Ok(_) if is_broken => Err(unreadable(format!("it is longer than {} MiB", LONGEST_LINE_BYTES >> 20))),
            Ok(_) => std::str::from_utf8(&bytes)
                .map_err(|error| unreadable(format!("it is not UTF-8 from byte {} on", error.valid_up_to() + 1))),
            Err(error) => Err(unreadable(format!("the input cannot be read: {error}"))),
        };
        if !take(number, line) || is_broken {
            return;
        }
    }
}

/// What a command does with each line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineWork {
    /// What a line becomes: "job".
    pub(super) thing: &'static str,
    /// "pushed".
    pub(super) done: &'static str,
}

impl LineWork {
    /// The error of a transaction that is lost with all its lines; `before` things were committed earlier. Only a commit that
    /// failed may have happened all the same.
    pub(super) fn lost(
        self,
        error: Error,
        is_of_commit: bool,
        (first, last): (impl Display, impl Display),
        before: u64,
    ) -> Error {
        let Self { thing, done } = self;
        let (first, last) = (first.to_string(), last.to_string());
        // A commit whose sync failed may be in the log of an embedded store.
        let is_unknown = is_of_commit && matches!(error.code(), Code::COMMIT_UNKNOWN | Code::STORE_IO);
        let fate = match (is_unknown, first == last) {
            (true, true) => format!("it is unknown whether {first} was {done}"),
            (true, false) => format!("it is unknown whether {first} to {last} were {done}"),
            (false, true) => format!("{first} was not {done}"),
            (false, false) => format!("nothing from {first} to {last} was {done}"),
        };
        let why = printable(error.message());
        let message = format!("{fate}: {why}; {} {done} before", were(before, thing));
        Error::new(error.code(), message).caused_by(error)
    }
}

/// "1 job was", "2 jobs were".
pub(super) fn were(number: u64, thing: &str) -> String {
    format!("{} {}", counted(number, thing), if number == 1 { "was" } else { "were" })
}

/// Whether the transaction has ended. A line that is refused leaves it open; a lost connection or owner ends it, and then no
/// line is at fault.
pub(super) async fn has_ended(tx: &Tx) -> bool {
    tx.savepoint("after_failure").await.is_err()
}

fn unreadable(why: String) -> Error {
    Error::new(Code::BAD_INPUT, why)
}
