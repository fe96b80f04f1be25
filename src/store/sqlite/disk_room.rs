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
use std::time::Duration;

/// A checkpoint writes a write-ahead log of so many pages into the tables. Large, because a checkpoint costs two more syncs, and because it
/// writes a page once however often the page has changed.
const LOG_PAGES: i64 = 4000;
/// The fewest, on a small disk.
const FEWEST_LOG_PAGES: i64 = 64;
/// A small disk has so many times the size of the log: 6 MB of disk held 6 MB of log beside 140 KB of content.
const DISK_OF_LOGS: i64 = 32;
const PAGE_BYTES: i64 = 4096;

/// This part of the size of a log is the least that is kept for writing it: for the files beside the database, and for a batch.
const LOG_OF_LEAST: i64 = 4;

/// The bytes that the log may keep once it has been written into the tables, at most: four times what it usually reaches. The log of one
/// large transaction kept its size, 288 MB of one that inserted 300, until the broker was closed.
const LOGS_LEFT: i64 = 4;

/// The part of the size of a log that answers may use of what is kept.
const ANSWERS_OF_LOG: i64 = 2;

/// With so much more than is kept free, it is measured ten times a second, else after each batch.
const PLENTY: i64 = 256 << 20;

/// The pages held in memory, on a disk that is not small: enough for the edges of the tables, where writes happen.
const CACHE_BYTES: i64 = 8 << 20;

/// A statement that adds so much that a disk with plenty of room is full runs for longer.
const LONG: Duration = Duration::from_millis(20);

/// The bytes of a row beside its body, with its places in the indexes.
const ROW_BYTES: i64 = 1024;
/// A large transaction writes this part of its pages to the log twice.
const WRITTEN_TWICE: i64 = 8;

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
        // Not the part that is kept for root: root in a container does not get it.
        let free = found.f_bavail;
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
    /// What the disk has free; `i64::MAX` if that is not known.
    free: AtomicI64,
    /// The pages of the file that no row uses.
    free_inside: AtomicI64,
    /// What the file grows by when the log is written into it.
    in_log: AtomicI64,
    /// The length of the log.
    log_length: AtomicI64,
    /// Whether the two were measured after the last batch. Else batches since then may have made the file grow by a whole log.
    is_exact: AtomicBool,
    /// Whether one of the two has grown since it was measured before. A log that writes its own pages again takes no room.
    log_grows: AtomicBool,
    /// What calls and open transactions add that is not written yet, or was not when it was measured last.
    promised: AtomicI64,
    /// The longest body of a message since the opening. A message that waits to be delivered, or a dead letter that goes back, is written
    /// once more as it is.
    largest_body: AtomicI64,
}

/// For what a call or a transaction adds to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adds {
    /// For itself.
    More,
    /// For what it has received or taken, which it removes: it may use a part of what is kept, as a call may that reports a job done. Else
    /// work that leads to more work would stand still on a disk that is full of it.
    Answers,
}

/// The room for what a call or a transaction adds, until it has ended.
#[derive(Debug, Default)]
pub(super) struct Promise(Option<(Arc<DiskRoom>, i64)>);

impl Promise {
    /// Adds another one to it.
    pub(super) fn join(&mut self, mut other: Self) {
        match (&mut self.0, &mut other.0) {
            (Some((_, bytes)), Some((_, more))) => *bytes += std::mem::take(more),
            (none @ None, more) => *none = more.take(),
            (Some(_), None) => {}
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some((room, bytes)) = &self.0 {
            room.promised.fetch_sub(*bytes, Relaxed);
        }
    }
}

impl DiskRoom {
    pub(super) fn new(path: Option<&Path>, fault: Option<Arc<Fault>>) -> Arc<Self> {
        let mut room = Self {
            path: path.map(Path::to_owned),
            fault,
            log_pages: LOG_PAGES,
            free: AtomicI64::new(i64::MAX),
            free_inside: AtomicI64::new(0),
            in_log: AtomicI64::new(0),
            log_length: AtomicI64::new(0),
            is_exact: AtomicBool::new(false),
            log_grows: AtomicBool::new(true),
            promised: AtomicI64::new(0),
            largest_body: AtomicI64::new(0),
        };
        if let Some(disk) = room.disk() {
            room.log_pages = (disk.size / PAGE_BYTES / DISK_OF_LOGS).clamp(FEWEST_LOG_PAGES, LOG_PAGES);
        }
        room.measure_disk();
        Arc::new(room)
    }

    /// A log of so many bytes is written into the tables.
    pub(super) fn log_bytes(&self) -> i64 {
        self.log_pages * PAGE_BYTES
    }

    /// Keeps room for a message of that length to be written once more.
    pub(super) fn expect_body(&self, bytes: i64) {
        self.largest_body.fetch_max(bytes, Relaxed);
    }

    /// What is kept of the disk in any case.
    fn least(&self) -> i64 {
        self.log_bytes() / LOG_OF_LEAST
    }

    /// The bytes that the log may keep then.
    pub(super) fn log_bytes_kept(&self) -> i64 {
        self.log_bytes() * LOGS_LEFT
    }

    fn disk(&self) -> Option<Disk> {
        let path = self.path.as_ref()?;
        self.fault.as_ref().and_then(|fault| fault.disk_now()).or_else(|| Disk::of(path))
    }

    /// Whether it is to be measured after each batch.
    pub(super) fn is_short(&self) -> bool {
        self.left_for(0) < PLENTY
    }

    /// Measures the disk and the file; on the connection that writes, between two batches.
    pub(super) fn measure(&self, connection: &Connection) {
        let Some(path) = &self.path else { return };
        if let Some(in_log) = growth(connection, path)
            && let (Ok(free), Ok(size)) = (pragma(connection, "freelist_count"), pragma(connection, "page_size"))
        {
            self.free_inside.store(free * size, Relaxed);
            let log = i64::try_from(self.log_now()).unwrap_or(i64::MAX);
            let grows = [in_log > self.in_log.swap(in_log, Relaxed), log > self.log_length.swap(log, Relaxed)];
            self.log_grows.store(grows.contains(&true), Relaxed);
        }
        self.measure_disk();
        self.is_exact.store(self.is_short(), Relaxed);
    }

    fn measure_disk(&self) {
        self.free.store(self.disk().map_or(i64::MAX, |disk| disk.free), Relaxed);
    }

    /// The length of the log.
    fn log_now(&self) -> u64 {
        let log = self.path.as_ref().and_then(|path| std::fs::metadata(owner::beside(path, "-wal")).ok());
        log.map_or(0, |log| log.len())
    }

    /// What is left of the disk when so much has been written to the log and into the tables, beside a whole log of what is waiting, with the
    /// longest message once more, and what that makes the tables grow by.
    fn left_for(&self, added: i64) -> i64 {
        self.left_with(added, 0)
    }

    /// The same if a message has so many bytes.
    fn left_with(&self, added: i64, longest: i64) -> i64 {
        let free = self.free.load(Relaxed);
        if free == i64::MAX {
            return i64::MAX;
        }
        let waiting = self.log_bytes() + longest.max(self.largest_body.load(Relaxed));
        let to_log = waiting + added + added / WRITTEN_TWICE - self.log_length.load(Relaxed);
        let to_tables = waiting - self.least() + added - self.free_inside.load(Relaxed);
        free - self.in_log.load(Relaxed) - self.least() - to_log.max(0) - to_tables.max(0)
    }

    /// Refuses verbs that add messages, jobs or results for which there is no room.
    ///
    /// # Errors
    /// 60017; nothing has happened.
    pub(super) fn admit(self: &Arc<Self>, verbs: &[Verb], adds: Adds) -> Result<Promise> {
        let sum = |of: fn(&Verb) -> i64| verbs.iter().map(of).fold(0, i64::saturating_add);
        let added = sum(added).min(i64::MAX / 16);
        if added == 0 || self.path.is_none() {
            return Ok(Promise::default());
        }
        let least = match adds {
            Adds::More if !verbs.iter().any(is_completion) => 0,
            _ => -self.log_bytes() / ANSWERS_OF_LOG,
        };
        let longest = verbs.iter().map(longest_message).max().unwrap_or(0);
        let promise = Promise(Some((self.clone(), added)));
        let all = self.promised.fetch_add(added, Relaxed) + added;
        let mut left = self.left_with(all, longest);
        if left < least {
            // There may be room again, and where only messages and jobs are refused no batch measures it.
            self.measure_disk();
            left = self.left_with(all, longest);
        }
        if left >= least {
            self.expect_body(longest);
            return Ok(promise);
        }
        let kb = |bytes: i64| bytes.max(0) / 1024;
        let of_others = self.left_for(all - added);
        Err(Error::new(
            Code::STORE_FULL,
            format!(
                "the disk is almost full: {} KB are left of it beside what is kept so that what is waiting can be received, taken and \
                 reported, and this may take {} KB; make room on the disk, or receive or take what is waiting",
                kb(of_others.saturating_sub(least)),
                kb(of_others.saturating_sub(left))
            ),
        ))
    }

    /// For a statement of the user; `None` if there is no disk.
    pub(super) fn for_statement(self: &Arc<Self>) -> Option<StatementRoom> {
        self.path.as_ref().map(|_| StatementRoom { room: self.clone(), free_before: None })
    }

    /// Whether what a statement of the user has written could be committed and not be written into the file, which would be full for good
    /// then. It is asked of statements that have run for long, and on a disk with little room.
    pub(super) fn has_outgrown(&self, connection: &Connection, ran: Duration) -> bool {
        let Some(path) = self.path.as_ref().filter(|_| ran >= LONG || self.is_short()) else { return false };
        let (Some(grown), Some(disk)) = (growth(connection, path), self.disk()) else { return false };
        grown > self.in_log.load(Relaxed) && disk.free - grown < self.left_by_statements()
    }

    /// The pages held in memory. As many may be changed and not written at a commit, so on a small disk they are few.
    pub(super) fn cache_bytes(&self) -> i64 {
        if self.log_pages == LOG_PAGES { CACHE_BYTES } else { self.least() }
    }

    /// What a statement leaves beside what the log makes the tables grow by, so that it finds room at its commit.
    fn left_by_statements(&self) -> i64 {
        self.least().max(self.cache_bytes())
    }

    /// Refuses to write anything where the log grows and the room is needed to write it into the file: without that, the file is full for
    /// good. It comes to this if a reader holds the log back, or another program fills the disk.
    ///
    /// # Errors
    /// 60017
    pub(super) fn check_log(&self) -> Result<()> {
        let in_log = self.in_log.load(Relaxed);
        let is_needed =
            || self.log_grows.load(Relaxed) && in_log > 0 && self.free.load(Relaxed) - in_log < self.least();
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
                in_log / 1024
            ),
        ))
    }
}

/// What a statement of the user must leave of the disk while it runs.
#[derive(Debug, Clone)]
pub(super) struct StatementRoom {
    room: Arc<DiskRoom>,
    free_before: Option<i64>,
}

impl StatementRoom {
    /// Whether a statement has used up the room, but for what the log needs to be written into the file.
    pub(super) fn is_used_up(&mut self) -> bool {
        let Some(disk) = self.room.disk() else { return false };
        let before = *self.free_before.get_or_insert(disk.free);
        let unmeasured = if self.room.is_exact.load(Relaxed) { 0 } else { self.room.log_bytes() };
        disk.free < before && disk.free < self.room.in_log.load(Relaxed) + unmeasured + self.room.left_by_statements()
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// What a file grows by when all that was written is in it.
fn growth(connection: &Connection, path: &Path) -> Option<i64> {
    let (pages, size) = (pragma(connection, "page_count").ok()?, pragma(connection, "page_size").ok()?);
    let file = std::fs::metadata(path).ok()?;
    Some((pages * size - i64::try_from(file.len()).unwrap_or(i64::MAX)).max(0))
}

/// The bytes of a row. A large body has pages of its own.
fn of_body(body: &Body) -> i64 {
    let length = body.as_ref().map_or(0, |body| bytes(body.len()));
    ROW_BYTES + if length < ROW_BYTES { length } else { (length / PAGE_BYTES + 1) * PAGE_BYTES }
}

/// Whether a verb ends the work on a job.
fn is_completion(verb: &Verb) -> bool {
    matches!(verb, Verb::Work(WorkVerb::Complete { .. }))
}

/// The bytes of the messages, jobs and results that a verb adds.
fn added(verb: &Verb) -> i64 {
    match verb {
        Verb::Send { handles, body, .. } => of_body(body).saturating_mul(bytes(handles.len())),
        Verb::SendEach(messages) => messages.iter().map(|message| of_body(&message.body)).fold(0, i64::saturating_add),
        Verb::Work(WorkVerb::Push(push)) => of_body(&push.body),
        Verb::Work(WorkVerb::Complete { result: result @ Some(_), .. }) => of_body(result),
        _ => 0,
    }
}

/// The bytes of the longest message that a verb adds.
fn longest_message(verb: &Verb) -> i64 {
    match verb {
        Verb::Send { body: Some(body), .. } => bytes(body.len()),
        Verb::SendEach(messages) => {
            bytes(messages.iter().filter_map(|message| message.body.as_ref()).map(|body| body.len()).max().unwrap_or(0))
        }
        _ => 0,
    }
}

fn bytes(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ConversationHandle, JobId};
    use crate::protocol::work::TakenJob;
    use crate::store::sqlite::tests::jobs;

    const MB: i64 = 1 << 20;

    fn add(length: usize) -> Verb {
        jobs::push(Some(vec![0; length]))
    }

    fn send(length: usize) -> Verb {
        let body = Some(Arc::new(vec![0; length]));
        Verb::Send { handles: vec![ConversationHandle(uuid::Uuid::nil())], message_type: None, body, trace: None }
    }

    /// A disk of 64 MB, of which 2 MB are for the log and 2 MB for what it makes the tables grow by.
    fn disk_with(free: i64) -> (Arc<Fault>, Arc<DiskRoom>) {
        let fault = Fault::disk();
        fault.shrink(64 * MB, free);
        let room = DiskRoom::new(Some(Path::new("a")), Some(fault.clone()));
        (fault, room)
    }

    #[test]
    fn the_log_is_smaller_on_a_small_disk() {
        for (size_mb, pages) in [(6, 64), (64, 512), (256, 2048), (1024, 4000), (1 << 20, 4000)] {
            let fault = Fault::disk();
            fault.shrink(size_mb * MB, size_mb * MB);
            let room = DiskRoom::new(Some(Path::new("a")), Some(fault));
            let cache = if pages == 4000 { 8 * MB } else { room.least() };
            assert_eq!((room.log_pages, room.cache_bytes()), (pages, cache), "{size_mb} MB");
        }
        let room = DiskRoom::new(None, None);
        assert!(room.log_pages == LOG_PAGES && !room.is_short(), "in memory there is no disk");
        drop(room.admit(&[add(1 << 20)], Adds::More).unwrap());
    }

    #[test]
    fn what_is_added_is_refused_while_there_is_room_for_all_else() {
        let (fault, room) = disk_with(7 * MB);
        drop(room.admit(&[add(1 << 20)], Adds::More).unwrap());
        fault.shrink(64 * MB, 5 * MB);
        room.measure_disk();
        let refusal = room.admit(&[add(1 << 20)], Adds::More).unwrap_err();
        assert_eq!(refusal.code(), Code::STORE_FULL);
        assert!(refusal.message().contains("1024 KB are left") && refusal.message().contains("2186 KB"), "{refusal}");
        drop(room.admit(&[add(100 << 10)], Adds::More).unwrap());
        fault.shrink(64 * MB, 0);
        room.measure_disk();
        assert!(room.admit(&[add(0)], Adds::More).is_err());
        drop(room.admit(&[Verb::GetConversationGroup { queue: "q".into() }], Adds::More).unwrap());
        // It is measured again when a call is refused.
        fault.shrink(64 * MB, 64 * MB);
        drop(room.admit(&[add(1 << 20)], Adds::More).unwrap());
        assert_eq!(room.promised.load(Relaxed), 0);
    }

    #[test]
    fn answers_are_refused_after_messages_and_reports_without_a_result_are_not() {
        let (fault, room) = disk_with(4 * MB);
        let report = |result: Option<usize>| {
            let taken = TakenJob { job: JobId(1), token: 1 };
            Verb::Work(WorkVerb::Complete { taken, result: result.map(|length| Arc::new(vec![0; length])) })
        };
        assert!(room.admit(&[add(0)], Adds::More).is_err());
        drop(room.admit(&[report(Some(100 << 10))], Adds::More).unwrap());
        drop(room.admit(&[report(None), add(100 << 10)], Adds::More).unwrap());
        drop(room.admit(&[add(100 << 10)], Adds::Answers).unwrap());
        assert!(room.admit(&[add(1 << 20)], Adds::Answers).is_err());
        fault.shrink(64 * MB, 3 * MB);
        room.measure_disk();
        assert_eq!(room.admit(&[report(Some(0))], Adds::More).unwrap_err().code(), Code::STORE_FULL);
        drop(room.admit(&[report(None)], Adds::More).unwrap());
    }

    #[test]
    fn what_calls_and_transactions_will_write_is_counted_until_they_end() {
        let (_, room) = disk_with(10 * MB);
        let mut promise = Promise::default();
        let mut admitted = 0;
        while let Ok(more) = room.admit(&[add(100 << 10)], Adds::More) {
            promise.join(more);
            admitted += 1;
            // Measured before anything is written.
            room.measure_disk();
        }
        assert_eq!(admitted, 27, "6 MB, each written twice");
        assert!(room.admit(&[add(0), add(200 << 10)], Adds::More).is_err());
        drop(promise);
        assert_eq!(room.promised.load(Relaxed), 0);
        drop(room.admit(&[add(100 << 10)], Adds::More).unwrap());
    }

    /// A message of 4.5 MB that waited for its queue filled a disk of 20 MB when it was delivered.
    #[test]
    fn room_is_kept_for_the_longest_message_to_be_written_once_more() {
        let (fault, room) = disk_with(20 * MB);
        assert!(room.admit(&[send(8 << 20)], Adds::More).is_err());
        drop(room.admit(&[send(2 << 20)], Adds::More).unwrap());
        fault.shrink(64 * MB, 9 * MB);
        room.measure_disk();
        drop(room.admit(&[send(200 << 10)], Adds::More).unwrap());
        fault.shrink(64 * MB, 7 * MB);
        room.measure_disk();
        assert!(room.admit(&[send(200 << 10)], Adds::More).is_err(), "4 MB, and 4 for that message");
    }

    #[test]
    fn free_pages_are_room_for_the_tables_and_not_for_the_log() {
        let (_, room) = disk_with(6 * MB);
        let fits = |bytes| room.left_for(bytes) >= 0;
        assert!(fits(MB / 2) && !fits(MB));
        // A file that was emptied takes messages again, although the disk is full of it.
        room.free_inside.store(50 * MB, Relaxed);
        assert!(fits(3 * MB) && !fits(4 * MB));
        // A log of that length is written again.
        room.log_length.store(2 * MB, Relaxed);
        assert!(fits(4 * MB) && !fits(5 * MB));
        // It makes the file grow.
        room.in_log.store(3 * MB, Relaxed);
        assert!(fits(2 * MB) && !fits(3 * MB));
    }

    #[test]
    fn the_pages_of_a_file_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let room = DiskRoom::new(Some(&path), None);
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (b); INSERT INTO t VALUES (zeroblob(2000000))")
            .unwrap();
        room.measure(&connection);
        let in_log = room.in_log.load(Relaxed);
        assert!((2_000_000..2_100_000).contains(&in_log) && room.log_grows.load(Relaxed), "{in_log}");
        connection.execute_batch("DELETE FROM t; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        room.measure(&connection);
        let free = room.free_inside.load(Relaxed);
        assert!((1_990_000..2_100_000).contains(&free), "{free}");
        assert!(room.in_log.load(Relaxed) == 0 && !room.log_grows.load(Relaxed));
    }
}
