//! Lines of an input, for commands that read many.

use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result};
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

fn unreadable(why: String) -> Error {
    Error::new(Code::BAD_INPUT, why)
}
