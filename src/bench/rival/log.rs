//! The limit: a bare log that appends bodies, syncs, and answers; no tables, no priorities, no conversations.
//!
//! It does what any durable queue must do at least, with the store's own group commit: one thread owns the file, takes
//! everything that waits, writes it in one piece, syncs once, and answers every caller. A receive appends a record that
//! says "taken". What a store is slower than this is the price of its semantics.

use crate::bench::flow::{Bodies, Side, Stamp};
use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use tokio::sync::oneshot;

/// A body as callers hand it over; shared, so that handing it on is no copy.
pub(in crate::bench) type Body = Arc<Vec<u8>>;

/// How long a log in place is.
const IN_PLACE_BYTES: u64 = 64 << 20;

fn prepare(file: &mut File) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    for _ in 0..IN_PLACE_BYTES / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    file.rewind()
}

/// The log; dropping it closes the file once everything handed over is answered.
pub(in crate::bench) struct Log {
    requests: Option<Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

/// How a log is kept.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Keep {
    /// Whether every batch is synced before it is answered.
    pub(in crate::bench) synced: bool,
    /// Whether bodies stay in memory to be taken; without it the log is only written.
    pub(in crate::bench) takable: bool,
    /// Whether the file has its full length from the start and is written over and over, as SQLite's own log is: then
    /// a sync need not record a new length.
    pub(in crate::bench) in_place: bool,
}

enum Request {
    Append { bodies: Vec<Body>, done: oneshot::Sender<Result<()>> },
    Take(Take),
}

struct Take {
    count: usize,
    waits: bool,
    done: oneshot::Sender<Result<Vec<Body>>>,
}

enum Answer {
    Appended(oneshot::Sender<Result<()>>),
    Taken(oneshot::Sender<Result<Vec<Body>>>, Vec<Body>),
}

impl Log {
    /// Makes an empty log at `path`.
    pub(in crate::bench) fn create(path: &Path, keep: Keep) -> Result<Self> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path).map_err(io_error)?;
        if keep.in_place {
            prepare(&mut file).map_err(io_error)?;
        }
        let (requests, inbox) = channel();
        let mut writer = Writer {
            file,
            keep,
            record: Vec::new(),
            ready: VecDeque::new(),
            parked: VecDeque::new(),
            answers: Vec::new(),
            taken: 0,
            at: 0,
        };
        let thread = Builder::new().name("bare-log".into()).spawn(move || writer.serve(&inbox)).map_err(io_error)?;
        Ok(Self { requests: Some(requests), writer: Some(thread) })
    }

    /// Appends the bodies as one transaction; answers once they are synced.
    pub(in crate::bench) async fn append(&self, bodies: Vec<Body>) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.submit(Request::Append { bodies, done });
        answer.await.map_err(|_| Error::closed())?
    }

    /// Takes up to `count` bodies; answers once "taken" is synced. With `waits` it never comes back empty.
    pub(in crate::bench) async fn take(&self, count: usize, waits: bool) -> Result<Vec<Body>> {
        let (done, answer) = oneshot::channel();
        self.submit(Request::Take(Take { count, waits, done }));
        answer.await.map_err(|_| Error::closed())?
    }

    fn submit(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // If the writer is gone the request is dropped with its answer, and the caller gets an error.
            let _ = requests.send(request);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Side for Log {
    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<()> {
        self.append(bodies.into_iter().map(Arc::new).collect()).await
    }

    async fn receive(&self, count: usize, waits: bool) -> Result<Vec<Stamp>> {
        Ok(self.take(count, waits).await?.iter().map(|body| Stamp::of(body)).collect())
    }

    async fn fill(&self, bodies: Bodies, count: usize) -> Result<()> {
        self.send(bodies.many(count)).await
    }
}

struct Writer {
    file: File,
    keep: Keep,
    record: Vec<u8>,
    ready: VecDeque<Body>,
    parked: VecDeque<Take>,
    answers: Vec<Answer>,
    taken: u64,
    at: u64,
}

impl Writer {
    fn serve(&mut self, inbox: &Receiver<Request>) {
        while let Ok(first) = inbox.recv() {
            self.accept(first);
            while let Ok(next) = inbox.try_recv() {
                self.accept(next);
            }
            let written = self.write();
            for answer in self.answers.drain(..) {
                // A caller that went away wants no answer.
                match answer {
                    Answer::Appended(done) => drop(done.send(duplicate(&written))),
                    Answer::Taken(done, bodies) => drop(done.send(duplicate(&written).map(|()| bodies))),
                }
            }
        }
    }

    fn accept(&mut self, request: Request) {
        match request {
            Request::Append { bodies, done } => {
                for body in &bodies {
                    self.record.push(b'+');
                    self.record.extend_from_slice(&(body.len() as u32).to_le_bytes());
                    self.record.extend_from_slice(body);
                }
                self.answers.push(Answer::Appended(done));
                if self.keep.takable {
                    self.ready.extend(bodies);
                    while !self.ready.is_empty()
                        && let Some(take) = self.parked.pop_front()
                    {
                        self.give(take);
                    }
                }
            }
            Request::Take(take) if self.ready.is_empty() && take.waits => self.parked.push_back(take),
            Request::Take(take) => self.give(take),
        }
    }

    fn give(&mut self, take: Take) {
        let count = take.count.min(self.ready.len());
        let bodies: Vec<Body> = self.ready.drain(..count).collect();
        for _ in &bodies {
            self.record.push(b'-');
            self.record.extend_from_slice(&self.taken.to_le_bytes());
            self.taken += 1;
        }
        self.answers.push(Answer::Taken(take.done, bodies));
    }

    fn write(&mut self) -> Result<()> {
        if self.record.is_empty() {
            return Ok(());
        }
        let length = self.record.len() as u64;
        let rewound = if self.keep.in_place && self.at + length > IN_PLACE_BYTES {
            self.at = 0;
            self.file.rewind()
        } else {
            Ok(())
        };
        self.at += length;
        let written = rewound.and_then(|()| self.file.write_all(&self.record));
        self.record.clear();
        written.and_then(|()| if self.keep.synced { self.file.sync_data() } else { Ok(()) }).map_err(io_error)
    }
}

fn duplicate(result: &Result<()>) -> Result<()> {
    result.as_ref().map_err(Error::duplicate).copied()
}

/// 60018 with the system's own words.
pub(in crate::bench) fn io_error(error: io::Error) -> Error {
    let message = format!("the bench's folder could not be read or written: {error}");
    Error::new(Code::STORE_IO, message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(names: &[&str]) -> Vec<Body> {
        names.iter().map(|name| Arc::new(name.as_bytes().to_vec())).collect()
    }

    #[tokio::test]
    async fn appended_bodies_are_taken_once_and_in_order() {
        let _limit = crate::limit();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::create(&path, Keep { synced: true, takable: true, in_place: false }).unwrap();
        log.append(bodies(&["a", "b", "c"])).await.unwrap();
        assert_eq!(log.take(2, false).await.unwrap(), bodies(&["a", "b"]));
        assert_eq!(log.take(2, false).await.unwrap(), bodies(&["c"]));
        assert!(log.take(2, false).await.unwrap().is_empty());
        drop(log);
        // Three bodies with a tag and a length, three "taken" with a tag and a number.
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 * (1 + 4 + 1) + 3 * (1 + 8));
    }

    #[tokio::test]
    async fn a_waiting_take_is_answered_by_a_later_append() {
        let _limit = crate::limit();
        let folder = tempfile::tempdir().unwrap();
        let log =
            Log::create(&folder.path().join("log"), Keep { synced: true, takable: true, in_place: false }).unwrap();
        let (taken, appended) = tokio::join!(log.take(1, true), log.append(bodies(&["late"])));
        appended.unwrap();
        assert_eq!(taken.unwrap(), bodies(&["late"]));
    }
}
