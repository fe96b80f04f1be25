//! The connections that only read.

use super::open::ReadConnection;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Connections kept open for the next callers.
const MOST_IDLE: usize = 4;

/// The reading connections of one file: one for each caller at a time, because a query may take any time.
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Idle>,
}

struct Idle {
    connections: Vec<ReadConnection>,
    is_closed: bool,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::new(Idle { connections: Vec::new(), is_closed: false }) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lends a connection, and keeps it for the next caller. No lock is held during the work.
    pub(super) fn lend<T>(&self, work: impl FnOnce(&ReadConnection) -> Result<T>) -> Result<T> {
        let reader = self.connection()?;
        let done = work(&reader);
        self.keep(reader);
        done
    }

    /// The same for work that another connection can do: `None` if there is none to lend. None can be opened in a folder that was renamed,
    /// and by a process that has no descriptor left.
    pub(super) fn lend_if_possible<T>(&self, work: impl FnOnce(&ReadConnection) -> Result<T>) -> Option<Result<T>> {
        let reader = self.connection().ok()?;
        let done = work(&reader);
        self.keep(reader);
        Some(done)
    }

    fn connection(&self) -> Result<ReadConnection> {
        let idle = self.idle()?.connections.pop();
        idle.map_or_else(|| ReadConnection::open(&self.path), Ok)
    }

    pub(super) fn keep(&self, reader: ReadConnection) {
        let mut idle = self.lock();
        if !idle.is_closed && !reader.is_fixed && idle.connections.len() < MOST_IDLE {
            idle.connections.push(reader);
        }
    }

    /// Closes the idle connections; one that is lent is closed when its caller has read. Nothing is lent from now on.
    pub(super) fn close(&self) {
        let mut idle = self.lock();
        idle.is_closed = true;
        idle.connections.clear();
    }

    fn idle(&self) -> Result<MutexGuard<'_, Idle>> {
        let idle = self.lock();
        if idle.is_closed { Err(Error::closed()) } else { Ok(idle) }
    }

    /// A panic under this lock leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn so_many_connections_are_kept_and_none_that_sees_the_file_as_it_was() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "").unwrap();
        let readers = Readers::new(path);
        let open = || ReadConnection::open(readers.path()).unwrap();
        let kept = || readers.lock().connections.len();
        let mut fixed = open();
        fixed.is_fixed = true;
        readers.keep(fixed);
        assert_eq!(kept(), 0);
        let lent: Vec<ReadConnection> = (0..=MOST_IDLE).map(|_| open()).collect();
        lent.into_iter().for_each(|reader| readers.keep(reader));
        assert_eq!(kept(), MOST_IDLE);
        let late = open();
        readers.close();
        assert_eq!(kept(), 0);
        readers.keep(late);
        assert_eq!(kept(), 0, "the close has come before it");
        assert_eq!(readers.lend(|_| Ok(())).unwrap_err().code(), Code::STORE_CLOSED);
    }
}
