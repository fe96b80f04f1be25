//! How to open an embedded store.

use super::disk_room::Disk;
use super::open::BUSY;
use crate::core::Limits;
use crate::id::IdSource;
use crate::protocol::work::TakenJob;
use crate::store::url::{Durability, Location, SqliteUrl};
use crate::store::{ActivityBoard, OpenOptions};
use crate::time::Clock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How to open an embedded store.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Where the tables are.
    pub location: Location,
    /// The failures that an answered commit survives.
    pub durability: Durability,
    /// Whether a file that is not there is made; otherwise that is 60018.
    pub create_if_missing: bool,
    /// The clock of timers, lifetimes and waits.
    pub clock: Clock,
    /// Where handles and other ids come from.
    pub ids: IdSource,
    /// The largest body, and how long closed endpoints stay.
    pub limits: Limits,
    /// How long one statement of the user's own SQL may run.
    pub sql_timeout: Option<Duration>,
    /// Whether other processes may work through this one.
    pub is_shared: bool,
    /// How long an opening waits for a lock of another program.
    #[doc(hidden)]
    pub lock_wait: Duration,
    /// The activity in the queues, kept by those who wait while the store is opened again.
    #[doc(hidden)]
    pub board: Arc<ActivityBoard>,
    /// The jobs to return without a failed attempt: transactions held them when the last store of this process met a full disk.
    #[doc(hidden)]
    pub held_jobs: Arc<[TakenJob]>,
    /// A fault to strike the writing of tables, for tests of recovery.
    pub fault: Option<Arc<Fault>>,
    /// The name of the registered VFS of the connection that writes, for tests of disks.
    #[doc(hidden)]
    pub vfs: Option<String>,
}

impl SqliteOptions {
    /// The defaults: a file that is made if it is missing, full durability, the system's clock.
    pub fn new(location: Location) -> Self {
        Self {
            location,
            durability: Durability::Full,
            create_if_missing: true,
            clock: Clock::system(),
            ids: IdSource::Random,
            limits: Limits::default(),
            sql_timeout: None,
            is_shared: false,
            lock_wait: BUSY,
            board: Arc::default(),
            held_jobs: Arc::default(),
            fault: None,
            vfs: None,
        }
    }

    /// The settings of a URL, completed by the options.
    pub fn from_url(url: SqliteUrl, otherwise: OpenOptions) -> Self {
        let mut options = Self::new(url.location);
        options.durability = url.common.durability;
        options.create_if_missing = otherwise.create;
        options.clock = otherwise.clock;
        options.ids = otherwise.ids;
        options.is_shared = url.is_shared;
        options.limits.max_body_bytes = otherwise.max_body_bytes;
        options.limits.closed_retention = otherwise.closed_retention;
        options.sql_timeout = url.common.sql_timeout.or(otherwise.sql_timeout);
        if let Some(max_body_bytes) = url.common.max_body_bytes {
            options.limits.max_body_bytes = max_body_bytes;
        }
        if let Some(closed_retention) = url.common.closed_retention {
            options.limits.closed_retention = closed_retention;
        }
        options
    }
}

/// Makes the n-th write to the tables fail; every later one fails too.
#[derive(Debug)]
pub struct Fault {
    left: AtomicU64,
    strikes_after: bool,
    /// It is a full disk, on which there may be room again.
    is_disk: bool,
    /// It strikes one operation only: for the others there is room.
    is_once: AtomicBool,
    strikes: AtomicU64,
    /// The disk as it seems.
    disk: Mutex<Option<Disk>>,
    used_each: AtomicI64,
}

impl Fault {
    /// Fails the `nth` operation, counted from 1, before it happens.
    pub fn before(nth: u64) -> Arc<Self> {
        Arc::new(Self::new(nth, false, false))
    }

    /// Runs the `nth` operation and then fails it, like a disk that loses the answer.
    pub fn after(nth: u64) -> Arc<Self> {
        Arc::new(Self::new(nth, true, false))
    }

    /// A disk that has room until it is filled.
    pub fn disk() -> Arc<Self> {
        Arc::new(Self::new(u64::MAX, false, true))
    }

    fn new(nth: u64, strikes_after: bool, is_disk: bool) -> Self {
        Self {
            left: AtomicU64::new(nth),
            strikes_after,
            is_disk,
            is_once: AtomicBool::new(false),
            strikes: AtomicU64::new(0),
            disk: Mutex::new(None),
            used_each: AtomicI64::new(0),
        }
    }

    /// From the next operation on there is no room.
    pub fn fill(&self) {
        self.left.store(1, SeqCst);
    }

    /// For the second operation from now there is no room, and for those after it there is. The first is the beginning of a
    /// transaction, which a lone caller tries twice.
    pub fn refuse_one(&self) {
        self.is_once.store(true, SeqCst);
        self.left.store(2, SeqCst);
    }

    /// There is room again.
    pub fn make_room(&self) {
        self.left.store(u64::MAX, SeqCst);
    }

    /// The disk seems to have this size, and so many bytes free.
    pub fn shrink(&self, size: i64, free: i64) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(Disk { size, free });
    }

    /// The disk seems to have so much less free each time that it is looked at.
    pub fn use_up(&self, each: i64) {
        self.used_each.store(each, SeqCst);
    }

    pub(super) fn disk_now(&self) -> Option<Disk> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = disk.as_mut()?;
        disk.free -= self.used_each.load(SeqCst);
        Some(*disk)
    }

    /// How many operations it has made fail.
    pub fn strikes(&self) -> u64 {
        self.strikes.load(SeqCst)
    }

    /// Whether it has struck.
    pub fn has_struck(&self) -> bool {
        self.left.load(SeqCst) == 0
    }

    /// Runs the operation, unless the fault strikes it.
    pub(super) fn strike<T>(&self, operation: impl FnOnce() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        // One step: the disk is filled by another thread while this one writes.
        let count = |left: u64| match left {
            1 if self.is_once.load(SeqCst) => u64::MAX,
            left => left.saturating_sub(1),
        };
        let left = self.left.fetch_update(SeqCst, SeqCst, |left| Some(count(left))).unwrap_or_default();
        if left > 1 {
            return operation();
        }
        self.is_once.store(false, SeqCst);
        self.strikes.fetch_add(1, SeqCst);
        if left == 1 && self.strikes_after {
            operation()?;
        }
        Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(if self.is_disk {
                rusqlite::ffi::SQLITE_FULL
            } else {
                rusqlite::ffi::SQLITE_IOERR
            }),
            Some("a fault was asked for".to_owned()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_its_operation_and_every_later_one() {
        for (fault, happens) in
            [(Fault::before(3), [true, true, false, false]), (Fault::after(3), [true, true, true, false])]
        {
            for (place, expected) in happens.into_iter().enumerate() {
                assert_eq!(fault.has_struck(), place > 2, "before operation {place}");
                let mut has_happened = false;
                let done = fault.strike(|| {
                    has_happened = true;
                    Ok(())
                });
                assert_eq!((done.is_ok(), has_happened), (place < 2, expected), "operation {place} of {fault:?}");
            }
            assert!(fault.has_struck());
            assert_eq!(fault.strikes(), 2);
        }
    }
}
