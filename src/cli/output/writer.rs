//! A thread that writes standard output. A write to a pipe waits for as long as its reader does not read, so the command that
//! prints waits here for the end of the write or for ctrl-C.

use crate::cli::failure::Failure;
use crate::cli::interrupt::Interrupt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a write may take after ctrl-C: a reader that reads gets the line that it waits for.
const LAST_MOMENT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Writer(Mutex<Ends>);

#[derive(Debug)]
struct Ends {
    to_write: Sender<Vec<u8>>,
    news: Receiver<News>,
    is_stop_requested: bool,
    /// The thread is in a write that the command has given up.
    is_given_up: bool,
}

#[derive(Debug)]
enum News {
    Written(io::Result<()>),
    StopRequested,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(mut interrupt: Interrupt) -> Result<Self, Failure> {
        let (to_write, writes) = channel::<Vec<u8>>();
        let (writer, news) = channel();
        let stop = writer.clone();
        let started = std::thread::Builder::new().spawn(move || {
            while let Ok(bytes) = writes.recv() {
                if writer.send(News::Written(write(&bytes))).is_err() {
                    return;
                }
            }
        });
        started.map_err(|error| Failure::input(format!("the thread that prints cannot be started: {error}")))?;
        tokio::spawn(async move {
            interrupt.requested().await;
            let _ = stop.send(News::StopRequested);
        });
        Ok(Self(Mutex::new(Ends { to_write, news, is_stop_requested: false, is_given_up: false })))
    }

    /// Writes; `None` if a stop was requested and the reader does not read.
    pub(super) fn write(&self, bytes: &[u8]) -> Option<io::Result<()>> {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.is_given_up || ends.to_write.send(bytes.to_vec()).is_err() {
            return None;
        }
        loop {
            let news = match ends.is_stop_requested {
                true => ends.news.recv_timeout(LAST_MOMENT),
                false => ends.news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match news {
                Ok(News::Written(written)) => return Some(written),
                Ok(News::StopRequested) => ends.is_stop_requested = true,
                Err(_) => {
                    ends.is_given_up = true;
                    return None;
                }
            }
        }
    }
}

/// Writes to standard output, and waits until it is written.
pub(super) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}
