//! The bytes of a guest's connection: queued for a task that writes, or written and read by a lone caller.
//!
//! A call that goes through two tasks of a process wakes two threads more than one that its caller sends and receives on
//! its own thread. So a lone caller writes its frame, and waits briefly for the answer, on its own thread. With more
//! callers a task writes and reads for all of them, with fewer system calls.

use super::lock;
use interprocess::local_socket::tokio::Stream;
use std::io;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The room for bytes that is kept between two writes.
const WRITE_BYTES: usize = 64 * 1024;

/// Bytes that wait for the owner. With more, the next calls wait in their callers: those that were given up while an owner hung stayed in the
/// memory of this process.
const MOST_QUEUED: usize = if cfg!(test) { 2 << 20 } else { 64 << 20 };

/// The pause before the next write to a socket that is full and that cannot be watched, because the process has no free descriptor.
#[cfg(unix)]
const UNWATCHED_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// A socket, and the bytes that are still to be written.
pub(super) struct Connection {
    /// `None` once this side has ended the connection, even if a transaction still refers to it.
    socket: Mutex<Option<Arc<Socket>>>,
    unsent: Mutex<Unsent>,
    has_unsent: Notify,
    /// Signalled when the task has written all that was queued.
    all_written: Notify,
    /// Signalled when the task has taken what was queued, and at the end of the connection.
    has_room: Notify,
}

#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// The task is writing bytes that it has taken.
    is_writing: bool,
}

impl Connection {
    /// # Errors
    /// The system refuses to hand the socket over.
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        let socket = Arc::new(Socket::of(stream)?);
        Ok(Self {
            socket: Mutex::new(Some(socket)),
            unsent: Mutex::default(),
            has_unsent: Notify::new(),
            all_written: Notify::new(),
            has_room: Notify::new(),
        })
    }

    /// # Errors
    /// `NotConnected` once this side has ended the connection.
    pub(super) fn socket(&self) -> io::Result<Arc<Socket>> {
        lock(&self.socket).clone().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Ends the connection, once no thread reads or writes. What is queued is written as far as the system takes it at once: a job that
    /// a caller has left behind goes back by it, and else waited for the end of its lease.
    pub(super) fn end(&self) {
        let Some(socket) = lock(&self.socket).take() else { return };
        let mut unsent = lock(&self.unsent);
        if !unsent.is_writing {
            let _ = socket.try_write(&std::mem::take(&mut unsent.bytes));
        }
        drop(unsent);
        self.has_room.notify_waiters();
    }

    /// Returns once there is room for another frame, or this side has ended the connection.
    pub(super) async fn room(&self) {
        loop {
            let has_room = self.has_room.notified();
            if lock(&self.unsent).bytes.len() < MOST_QUEUED || lock(&self.socket).is_none() {
                return;
            }
            has_room.await;
        }
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        lock(&self.unsent).bytes.len()
    }

    /// Returns once all that was queued is written.
    pub(super) async fn flushed(&self) {
        loop {
            let written = self.all_written.notified();
            {
                let unsent = lock(&self.unsent);
                if unsent.bytes.is_empty() && !unsent.is_writing {
                    return;
                }
            }
            written.await;
        }
    }

    /// Leaves a frame to the task that writes.
    pub(super) fn queue(&self, frame: &[u8]) {
        lock(&self.unsent).bytes.extend_from_slice(frame);
        self.has_unsent.notify_one();
    }

    /// Writes a frame on this thread as far as the system takes it at once; the task writes the rest.
    ///
    /// # Errors
    /// The connection has ended, and the other side has got nothing of the frame.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut unsent = lock(&self.unsent);
        let is_free = unsent.bytes.is_empty() && !unsent.is_writing;
        let sent = match is_free.then(|| self.socket()?.try_write(frame)) {
            None => 0,
            Some(Ok(sent)) => sent,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Some(Err(error)) => return Err(error),
        };
        if sent < frame.len() {
            unsent.bytes.extend_from_slice(&frame[sent..]);
            drop(unsent);
            self.has_unsent.notify_one();
        }
        Ok(())
    }

    /// Writes what is queued, frames that wait together; ends when a write fails.
    pub(super) async fn write_queued(&self) -> io::Result<()> {
        let socket = self.socket()?;
        let mut bytes = Vec::new();
        loop {
            {
                let mut unsent = lock(&self.unsent);
                std::mem::swap(&mut unsent.bytes, &mut bytes);
                unsent.is_writing = !bytes.is_empty();
            }
            self.has_room.notify_waiters();
            if bytes.is_empty() {
                self.all_written.notify_waiters();
                self.has_unsent.notified().await;
                continue;
            }
            socket.write_all(&bytes).await?;
            bytes.clear();
            bytes.shrink_to(WRITE_BYTES);
        }
    }
}

/// A socket that any thread writes and reads without blocking. The runtime watches it only while a task waits for it, so a
/// thread that reads by itself wakes no other one.
#[cfg(unix)]
pub(super) struct Socket(std::os::unix::net::UnixStream);

#[cfg(unix)]
impl Socket {
    fn of(stream: Stream) -> io::Result<Self> {
        match stream {
            Stream::UdSocket(socket) => Ok(Self(tokio::net::UnixStream::from(socket).into_std()?)),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::SendFlags;
        #[cfg(target_vendor = "apple")]
        let flags = SendFlags::empty();
        #[cfg(not(target_vendor = "apple"))]
        let flags = SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.0, bytes, flags)?)
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self.watch() {
                    Ok(watch) => watch.0.writable().await?,
                    Err(_) => tokio::time::sleep(UNWATCHED_PAUSE).await,
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is there; `WouldBlock` if there is nothing.
    pub(super) fn try_read(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let spare = rustix::buffer::spare_capacity(bytes);
        Ok(rustix::net::recv(&self.0, spare, rustix::net::RecvFlags::empty())?.0)
    }

    /// Blocks this thread until there is something to read; false if there was nothing for so long.
    pub(super) fn wait_readable(&self, most: std::time::Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    /// Has the runtime of this task watch the socket.
    pub(super) fn watch(&self) -> io::Result<Watch> {
        // Through a descriptor of its own, because the reading and the writing task may watch at the same time.
        Ok(Watch(tokio::net::UnixStream::from_std(self.0.try_clone()?)?))
    }
}

/// The runtime's watch of a socket.
#[cfg(unix)]
pub(super) struct Watch(tokio::net::UnixStream);

#[cfg(unix)]
impl Watch {
    /// Returns once something has arrived since the last call.
    pub(super) async fn arrival(&self) -> io::Result<()> {
        self.0.readable().await?;
        let emptied: io::Result<()> =
            self.0.try_io(tokio::io::Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
        debug_assert!(emptied.is_err(), "the watch waits for the next arrival");
        Ok(())
    }
}

/// A pipe: only tasks read and write.
#[cfg(not(unix))]
pub(super) struct Socket(Stream);

#[cfg(not(unix))]
impl Socket {
    fn of(stream: Stream) -> io::Result<Self> {
        Ok(Self(stream))
    }

    fn try_write(&self, _: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        use tokio::io::AsyncWriteExt;
        (&mut &self.0).write_all(bytes).await
    }

    /// Reads what is there, at least one byte; nothing at the end.
    pub(super) async fn read(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        use tokio::io::AsyncReadExt;
        bytes.reserve(WRITE_BYTES);
        (&mut &self.0).read_buf(bytes).await
    }
}
