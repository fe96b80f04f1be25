//! The room on the disk that is kept for those who make room.
//!
//! A file that fills its disk cannot be emptied: a take and a report are written to the log first, and the log can be written into the
//! tables only where they find room to grow. So messages and jobs are refused while there is room for all else: what is waiting is taken
//! and reported, and the pages that it leaves are used again.

use super::options::Fault;
use super::owner;
use crate::error::{Code, Error, Result};
use crate::protocol::work::WorkVerb;
use crate::protocol::{Body, Verb};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// A checkpoint writes a write-ahead log of so many pages into the tables. Large, because a checkpoint costs two more syncs, and because it
/// writes a page once however often the page has changed.
const LOG_PAGES: i64 = 4000;
/// The fewest, on a small disk.
const FEWEST_LOG_PAGES: i64 = 64;
/// A small disk has so many times the size of the log: 6 MB of disk held 6 MB of log beside 140 KB of content.
const DISK_OF_LOGS: i64 = 32;
const PAGE_BYTES: i64 = 4096;

/// How many times the size of the log is kept free: once for the log, once for what it makes the tables grow by.
const LOGS_KEPT: i64 = 2;

/// This part of the size of a log is the least that is kept for writing it: for the files beside the database, and for a batch.
const LOG_OF_LEAST: i64 = 4;

/// The bytes that the log may keep once it has been written into the tables, at most: four times what it usually reaches. The log of one
/// large transaction kept its size, 288 MB of one that inserted 300, until the broker was closed.
const LOGS_LEFT: i64 = 4;

/// With so much more than is kept free, no call is counted: it is measured ten times a second, and no disk takes this much in between.
const PLENTY: i64 = 256 << 20;

/// A row is written to the log and to the tables.
const WRITTEN_TIMES: i64 = 2;
/// The bytes of a row beside its body, with its places in the indexes.
const ROW_BYTES: i64 = 512;

/// The size of a disk, and the bytes of it that this process may still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) size: i64,
    pub(super) free: i64,
}

impl Disk {
    /// Of the disk that a file is on; `None` if the system does not say it.
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        // A part is kept for root.
        let free = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
        (found.f_blocks > 0).then(|| Self { size: bytes(found.f_blocks), free: bytes(free) })
    }

    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

/// How much may still be added to a file.
#[derive(Debug)]
pub(super) struct DiskRoom {
    /// `None` if the database is in memory.
    path: Option<PathBuf>,
    fault: Option<Arc<Fault>>,
    log_pages: i64,
    /// The free pages of the file in bytes, less those that are only in the log so far.
    inside: AtomicI64,
    /// What messages and jobs may take.
    left: AtomicI64,
    /// What the file grows by when the log is written into it.
    in_log: AtomicI64,
    /// What is free beside that and beside the least that is kept for writing the log.
    left_by_log: AtomicI64,
    /// The length of the log when it was measured last, -1 before, and whether it has grown since the time before. A log that writes its
    /// own pages again takes no room.
    log_length: AtomicI64,
    log_grows: AtomicBool,
}

impl DiskRoom {
    pub(super) fn new(path: Option<&Path>, fault: Option<Arc<Fault>>) -> Self {
        let mut room = Self {
            path: path.map(Path::to_owned),
            fault,
            log_pages: LOG_PAGES,
            inside: AtomicI64::new(0),
            left: AtomicI64::new(i64::MAX),
            in_log: AtomicI64::new(0),
            left_by_log: AtomicI64::new(i64::MAX),
            log_length: AtomicI64::new(-1),
            log_grows: AtomicBool::new(true),
        };
        if let Some(disk) = room.disk() {
            room.log_pages = (disk.size / PAGE_BYTES / DISK_OF_LOGS).clamp(FEWEST_LOG_PAGES, LOG_PAGES);
        }
        room.measure_disk();
        room
    }

    /// A log of so many pages is written into the tables.
    pub(super) fn log_pages(&self) -> i64 {
        self.log_pages
    }

    /// The bytes that the log may keep then.
    pub(super) fn log_bytes_kept(&self) -> i64 {
        self.log_pages * PAGE_BYTES * LOGS_LEFT
    }

    /// What is kept free.
    fn kept(&self) -> i64 {
        self.log_pages * PAGE_BYTES * LOGS_KEPT
    }

    fn disk(&self) -> Option<Disk> {
        let path = self.path.as_ref()?;
        self.fault.as_ref().and_then(|fault| fault.disk_now()).or_else(|| Disk::of(path))
    }

    /// Whether it is to be measured after each batch.
    pub(super) fn is_short(&self) -> bool {
        self.left.load(Relaxed) < PLENTY
    }

    /// Measures the disk and the file; on the connection that writes, between two batches.
    pub(super) fn measure(&self, connection: &Connection) {
        let Some(path) = &self.path else { return };
        let pages = |what| connection.pragma_query_value(None, what, |row| row.get::<_, i64>(0));
        if let (Ok(all), Ok(free), Ok(size)) = (pages("page_count"), pages("freelist_count"), pages("page_size"))
            && let Ok(file) = std::fs::metadata(path)
        {
            let in_log = (all * size - i64::try_from(file.len()).unwrap_or(i64::MAX)).max(0);
            self.inside.store(free * size - in_log, Relaxed);
            self.in_log.store(in_log, Relaxed);
        }
        let log = std::fs::metadata(owner::beside(path, "-wal"))
            .map_or(0, |log| i64::try_from(log.len()).unwrap_or(i64::MAX));
        let before = self.log_length.swap(log, Relaxed);
        self.log_grows.store(before < 0 || log > before, Relaxed);
        self.measure_disk();
    }

    fn measure_disk(&self) {
        let free = self.disk().map_or(i64::MAX, |disk| disk.free);
        self.left.store(free.saturating_add(self.inside.load(Relaxed)).saturating_sub(self.kept()), Relaxed);
        let for_log = self.in_log.load(Relaxed).saturating_add(self.log_pages * PAGE_BYTES / LOG_OF_LEAST);
        self.left_by_log.store(free.saturating_sub(for_log), Relaxed);
    }

    /// Refuses to write anything where the log grows and the room is needed to write it into the file: without that, the file is full for
    /// good. It comes to this if a reader holds the log back, or another program fills the disk.
    ///
    /// # Errors
    /// 60017
    pub(super) fn check_log(&self) -> Result<()> {
        let is_needed =
            || self.log_grows.load(Relaxed) && self.in_log.load(Relaxed) > 0 && self.left_by_log.load(Relaxed) < 0;
        if !is_needed() {
            return Ok(());
        }
        self.measure_disk();
        if !is_needed() {
            return Ok(());
        }
        Err(Error::new(
            Code::STORE_FULL,
            format!(
                "the disk is full: the file is to grow by {} KB of its log, and the little more that is free is needed for that; make room on \
                 the disk, or end programs that have read the file for long",
                self.in_log.load(Relaxed) / 1024
            ),
        ))
    }

    /// Refuses verbs that add messages or jobs for which there is no room.
    ///
    /// # Errors
    /// 60017; nothing has happened.
    pub(super) fn admit(&self, verbs: &[Verb]) -> Result<()> {
        if !self.is_short() {
            return Ok(());
        }
        let added = verbs.iter().map(added).sum::<i64>();
        if added == 0 || self.take(added) {
            return Ok(());
        }
        // There may be room again, and where only messages and jobs are refused no batch measures it.
        self.measure_disk();
        if self.take(added) {
            return Ok(());
        }
        let kb = |bytes: i64| bytes.max(0) / 1024;
        Err(Error::new(
            Code::STORE_FULL,
            format!(
                "the disk is almost full: this may take {} KB, and {} KB are left beside the {} KB that are kept so that what is waiting \
                 can be received, taken and reported; make room on the disk, or receive or take what is waiting",
                kb(added),
                kb(self.left.load(Relaxed)),
                kb(self.kept())
            ),
        ))
    }

    fn take(&self, added: i64) -> bool {
        let take = |left: i64| (left >= added).then(|| left - added);
        self.left.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

/// The bytes that a verb adds to the disk.
fn added(verb: &Verb) -> i64 {
    let of_body = |body: &Body| ROW_BYTES + body.as_ref().map_or(0, |body| bytes(body.len()));
    let added = match verb {
        Verb::Send { handles, body, .. } => of_body(body).saturating_mul(bytes(handles.len())),
        Verb::SendEach(messages) => messages.iter().map(|message| of_body(&message.body)).sum(),
        Verb::Work(WorkVerb::Push(push)) => of_body(&push.body),
        _ => 0,
    };
    added.saturating_mul(WRITTEN_TIMES)
}

fn bytes(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ConversationHandle;

    const MB: i64 = 1 << 20;

    fn send(length: usize) -> Verb {
        let body = Some(Arc::new(vec![0; length]));
        Verb::Send { handles: vec![ConversationHandle(uuid::Uuid::nil())], message_type: None, body, trace: None }
    }

    #[test]
    fn the_log_is_smaller_on_a_small_disk_and_twice_its_size_is_kept_free() {
        for (size_mb, pages) in [(6, 64), (64, 512), (256, 2048), (1024, 4000), (1 << 20, 4000)] {
            let fault = Fault::disk();
            fault.shrink(size_mb * MB, size_mb * MB);
            let room = DiskRoom::new(Some(Path::new("a")), Some(fault));
            assert_eq!(room.log_pages(), pages, "{size_mb} MB");
            assert_eq!(room.kept(), 2 * pages * 4096);
        }
        let room = DiskRoom::new(None, None);
        assert!(room.log_pages() == LOG_PAGES && !room.is_short(), "in memory there is no disk");
    }

    #[test]
    fn what_is_added_is_refused_while_there_is_room_for_all_else() {
        let fault = Fault::disk();
        fault.shrink(64 * MB, 64 * MB);
        let room = DiskRoom::new(Some(Path::new("a")), Some(fault.clone()));
        // 4 MB are kept, and 1 MB written twice.
        fault.shrink(64 * MB, 7 * MB);
        room.measure_disk();
        room.admit(&[send(1 << 20)]).unwrap();
        fault.shrink(64 * MB, 5 * MB);
        let refusal = room.admit(&[send(1 << 20)]).unwrap_err();
        assert_eq!(refusal.code(), Code::STORE_FULL);
        assert!(
            refusal.message().contains("this may take 2049 KB, and 1024 KB are left beside the 4096 KB"),
            "{refusal}"
        );
        room.admit(&[send(100 << 10)]).unwrap();
        fault.shrink(64 * MB, 0);
        room.measure_disk();
        assert!(room.admit(&[send(0)]).is_err());
        room.admit(&[Verb::GetConversationGroup { queue: "q".into() }]).unwrap();
        // It is measured again when a call is refused.
        fault.shrink(64 * MB, 64 * MB);
        room.admit(&[send(1 << 20)]).unwrap();
    }

    #[test]
    fn free_pages_of_the_file_are_room_and_pages_that_are_only_in_the_log_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let fault = Fault::disk();
        fault.shrink(64 * MB, 4 * MB);
        let room = DiskRoom::new(Some(&path), Some(fault));
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (b); INSERT INTO t VALUES (zeroblob(2000000))")
            .unwrap();
        room.measure(&connection);
        let in_log = room.inside.load(Relaxed);
        assert!((-2_100_000..-2_000_000).contains(&in_log), "{in_log}");
        assert!(room.admit(&[send(0)]).is_err(), "the file will grow by what is in the log");
        connection.execute_batch("DELETE FROM t; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        room.measure(&connection);
        let free = room.inside.load(Relaxed);
        assert!((1_990_000..2_100_000).contains(&free), "{free}");
        room.admit(&[send(100 << 10)]).unwrap();
    }
}
