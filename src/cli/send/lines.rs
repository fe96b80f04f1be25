//! Where messages to send come from.

use crate::cli::failure::Failure;
use crate::cli::lines;
use dialoq::Result;
use dialoq::internals::jsonl::SendLine;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

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
    items: mpsc::Receiver<Item>,
}

impl Source {
    /// The bodies given on the command line.
    pub(super) fn of_bodies(bodies: Vec<Vec<u8>>) -> Self {
        let (sender, items) = mpsc::channel(bodies.len().max(1));
        for (index, body) in bodies.into_iter().enumerate() {
            let line = Ok(SendLine { message_type: None, body: Some(body), conversation: None, end: false });
            // The channel was made to hold them all.
            let _ = sender.try_send(Item { place: InputPosition::Body(index as u64 + 1), line });
        }
        Self { items }
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
        let (sender, items) = mpsc::channel(AHEAD);
        std::thread::spawn(move || read_lines(reader, &sender));
        Ok(Self { items })
    }

    /// Waits for the next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }

    /// Whether it is known that nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.items.is_closed() && self.items.is_empty()
    }

    /// The next message if it is there already.
    pub(super) fn next_available(&mut self) -> Option<Item> {
        self.items.try_recv().ok()
    }
}

fn read_lines(reader: impl BufRead, sender: &mpsc::Sender<Item>) {
    lines::read_lines(reader, |number, line| {
        let line = match line {
            Ok(text) if text.trim().is_empty() => return true,
            Ok(text) => SendLine::parse(text.trim_start_matches('\u{feff}')),
            Err(error) => Err(error),
        };
        sender.blocking_send(Item { place: InputPosition::Line(number), line }).is_ok()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_blank_ones_too() {
        let text: &[u8] = b"\xef\xbb\xbf{\"body\":\"a\"}\n\n{oops}\r\n\"\xff\"\n{\"body\":\"b\"}";
        let (sender, mut items) = mpsc::channel(10);
        std::thread::spawn(move || read_lines(text, &sender)).join().unwrap();
        let mut seen = Vec::new();
        while let Ok(item) = items.try_recv() {
            seen.push((item.place, item.line.map(|line| line.body.unwrap())));
        }
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
