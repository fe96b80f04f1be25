//! Where messages to send come from.

use crate::cli::failure::Failure;
use crate::cli::lines;
use crate::cli::read_ahead::ReadAhead;
use dialoq::Result;
use dialoq::internals::jsonl::SendLine;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// How many lines are read ahead of the commit.
const AHEAD: usize = 4096;

/// The position of a message in its source, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputPosition {
    /// A line of the input, from 1.
    Line(u64),
    /// One of the bodies given as arguments and files, from 1.
    Body(u64),
}

impl fmt::Display for InputPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Body(number) => write!(f, "body {number}"),
        }
    }
}

/// One message to send, or why it cannot be read.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) place: InputPosition,
    pub(super) line: Result<SendLine>,
}

/// A source of messages; read by a thread of its own, so that a slow writer delays no commit.
#[derive(Debug)]
pub(super) struct Source {
    items: ReadAhead<Item>,
}

impl Source {
    /// The bodies given on the command line.
    pub(super) fn of_bodies(bodies: Vec<Vec<u8>>) -> Self {
        let items = bodies.into_iter().enumerate().map(|(index, body)| {
            let line = Ok(SendLine { message_type: None, body: Some(body), conversation: None, end: false });
            Item { place: InputPosition::Body(index as u64 + 1), line }
        });
        Self { items: ReadAhead::of(items.collect()) }
    }

    /// The lines of a file, or of standard input for `-`.
    pub(super) fn of_lines(path: PathBuf) -> Result<Self, Failure> {
        let reader: Box<dyn BufRead + Send> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let failed = |error| Failure::file("read", path.display(), error);
            let file = File::open(&path).map_err(failed)?;
            if file.metadata().map_err(failed)?.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            Box::new(BufReader::new(file))
        };
        let items = ReadAhead::new(AHEAD, |reading| {
            read_lines(reader, |item| {
                let body = item.line.as_ref().ok().and_then(|line| line.body.as_ref());
                let bytes = body.map_or(0, Vec::len);
                reading.pass_on(item, bytes)
            });
        });
        Ok(Self { items })
    }

    /// Waits for the next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }

    /// Whether it is known that nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.items.is_over()
    }

    /// The next message if it is there already.
    pub(super) fn next_available(&mut self) -> Option<Item> {
        self.items.try_recv()
    }
}

fn read_lines(reader: impl BufRead, mut take: impl FnMut(Item) -> bool) {
    lines::read_lines(reader, |number, line| {
        let line = match line {
            Ok(text) if text.trim().is_empty() => return true,
            Ok(text) => SendLine::parse(text.trim_start_matches('\u{feff}')),
            Err(error) => Err(error),
        };
        take(Item { place: InputPosition::Line(number), line })
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_blank_ones_too() {
        let text: &[u8] = b"\xef\xbb\xbf{\"body\":\"a\"}\n\n{oops}\r\n\"\xff\"\n{\"body\":\"b\"}";
        let mut seen = Vec::new();
        read_lines(text, |item| {
            seen.push((item.place, item.line.map(|line| line.body.unwrap())));
            true
        });
        assert_eq!(seen.len(), 4);
        assert_eq!((seen[0].0, seen[0].1.as_deref().unwrap()), (InputPosition::Line(1), &b"a"[..]));
        let fault = seen[1].1.as_ref().unwrap_err().message();
        assert!(
            seen[1].0 == InputPosition::Line(3) && fault.contains("at column 2") && !fault.contains("line 1"),
            "{fault}"
        );
        assert!(seen[2].1.as_ref().unwrap_err().message().contains("UTF-8 from byte 2"));
        assert_eq!((seen[3].0, seen[3].1.as_deref().unwrap()), (InputPosition::Line(5), &b"b"[..]));
    }
}
