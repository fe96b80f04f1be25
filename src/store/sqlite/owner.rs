//! One broker owns a database: a lock on the database file itself.
//!
//! POSIX drops every `fcntl` lock of a process on a file as soon as the process closes *any* descriptor of that file,
//! and SQLite's locks are of this kind. A broker whose locks are gone loses its write-ahead log to the next program
//! that closes the database. Therefore three rules hold, and decision 0019 gives the reasons:
//!
//! - Only this module opens a database file other than through SQLite, for the descriptor that carries the lock.
//! - The descriptor is closed only if the process has no other descriptor of the file. Otherwise it is kept for the
//!   next owner in this process, or until a later call finds the file closed.
//! - A list of the process says which files it owns, so that a second opening here is refused before it touches the
//!   file.
//! - A path is opened for one file at a time ([`Held`]). SQLite names the log and its index after the path. If the file was
//!   replaced, a second connection of this process would meet no lock on the index of the first, take it for a left one and
//!   cut it off under the first, which ends the process with SIGBUS.
//!
//! The lock file (`.owner`, next to the database) holds the process id for the message to others. It is locked too: it
//! protects the path if the database file is replaced, and it is the only lock where the system has no lock that SQLite
//! does not see (all but Linux).

use crate::error::{Code, Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// How the lock file begins. What holds something else is not written over.
const NOTE_BEGINS: &str = "pid ";

/// A process that uses a file, and its user; `None` where the system does not say it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) process_id: Option<u32>,
    pub(super) user_id: Option<u32>,
}

impl Peer {
    /// This process.
    pub(super) fn this() -> Self {
        #[cfg(unix)]
        let user_id = Some(rustix::process::geteuid().as_raw());
        #[cfg(not(unix))]
        let user_id = None;
        Self { process_id: Some(std::process::id()), user_id }
    }
}

/// The identity of a file, whatever its name: device and inode, or the path where there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileKey {
    #[cfg(unix)]
    Inode(u64, u64),
    #[cfg(not(unix))]
    Path(PathBuf),
}

impl FileKey {
    /// As the lock file names it; nothing where files have no numbers.
    fn noted(&self) -> String {
        match self {
            #[cfg(unix)]
            Self::Inode(device, inode) => format!(" {device:x}:{inode:x}"),
            #[cfg(not(unix))]
            Self::Path(_) => String::new(),
        }
    }
}

/// A database file that this process owns, or whose descriptor must not be closed yet.
#[derive(Debug)]
struct Entry {
    key: FileKey,
    is_owned: bool,
    /// Carries the lock on the database file.
    descriptor: Option<File>,
}

/// The database files of this process. The lock also orders every opening of a database by the store.
static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Which file each path that this process has open stands for.
static HELD: Mutex<Vec<(PathBuf, FileKey)>> = Mutex::new(Vec::new());

/// A path that this process has opened. Drop it after SQLite has closed the file.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    key: FileKey,
}

impl Held {
    /// Keeps the path for the file that is there now.
    ///
    /// # Errors
    /// 60010 if this process has another file open by that path; 60018 if there is none.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let unreadable =
            |why: String| Error::new(Code::STORE_IO, format!("database '{}' cannot be read: {why}", path.display()));
        let key = existing_key(path).map_err(|error| unreadable(error.to_string()))?;
        let key = key.ok_or_else(|| unreadable("there is no such file".to_owned()))?;
        Self::of(path, key)
    }

    fn of(path: &Path, key: FileKey) -> Result<Self> {
        let mut held = held();
        if held.iter().any(|(other, of)| other == path && *of != key) {
            return Err(owned(path, "this process still has the file open that was there before this one"));
        }
        held.push((path.to_owned(), key.clone()));
        Ok(Self { path: path.to_owned(), key })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = held();
        if let Some(place) = held.iter().position(|(path, key)| *path == self.path && *key == self.key) {
            held.swap_remove(place);
        }
    }
}

fn held() -> MutexGuard<'static, Vec<(PathBuf, FileKey)>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ownership of one database file. Drop it after SQLite has closed the file.
#[derive(Debug)]
pub(super) struct Owner {
    database: PathBuf,
    /// Dropped with the owner, so after every connection.
    _held: Held,
    key: FileKey,
    /// The folder of the path, which names the log too.
    folder: Option<FileKey>,
    /// The file had a link when it was locked: some file systems count none.
    has_link_count: bool,
    /// The log and its index, once SQLite has made them.
    beside: Vec<(PathBuf, FileKey)>,
    /// The lock file next to the database, with the process id.
    note: Option<File>,
}

impl Owner {
    /// Locks the database at this path; makes an empty file if there is none.
    ///
    /// # Errors
    /// 60010 if it is owned, with the process that owns it; 60014 if the file cannot be written; 60017; 60018.
    pub(super) fn lock(database: &Path) -> Result<Self> {
        let mut entries = entries();
        sweep(&mut entries);
        let failed = |error| unwritable("database", database, error);
        if let Some(key) = existing_key(database).map_err(failed)?
            && entries.iter().any(|entry| entry.is_owned && entry.key == key)
        {
            return Err(owned(database, &format!("this process (pid {}) has it open already", std::process::id())));
        }
        let key = lock_file(&mut entries, database)?;
        let held = Held::of(database, key.clone()).inspect_err(|_| give_up(&mut entries, &key))?;
        let has_link_count = has_links(&entries, &key) == Some(true);
        let folder = folder_of(database);
        Ok(Self {
            database: database.to_owned(),
            _held: held,
            key,
            folder,
            has_link_count,
            beside: Vec::new(),
            note: None,
        })
    }

    /// Whether the path still names the file. It does not if another program has renamed the file or its folder.
    pub(super) fn is_at_its_path(&self) -> bool {
        existing_key(&self.database).is_ok_and(|key| key.as_ref() == Some(&self.key))
    }

    /// Whether the file has no name any more, or another file has its name: another program has deleted it, or put another file
    /// in its place. The log beside that path belongs to this file, and the other one would be read with it. If its folder
    /// was renamed, the log is still beside the file.
    pub(super) fn is_deleted(&self) -> bool {
        if self.has_link_count && has_links(&entries(), &self.key) == Some(false) {
            return true;
        }
        let is_replaced = existing_key(&self.database).is_ok_and(|key| key.is_some_and(|key| key != self.key));
        is_replaced && self.folder.is_some() && folder_of(&self.database) == self.folder
    }

    /// Notes which files the log and its index are. SQLite has opened them, and keeps them until the last connection is closed.
    pub(super) fn note_log(&mut self) {
        let paths = ["-wal", "-shm"].map(|ending| beside(&self.database, ending));
        let keyed = paths.into_iter().filter_map(|path| Some((existing_key(&path).ok()??, path)));
        self.beside = keyed.map(|(key, path)| (path, key)).collect();
    }

    /// The log or its index, if another program has deleted it, or put another file in its place, while the database has kept its name.
    /// What is in a deleted log is found by no other process, nor by the next opening. A process that comes after the index was
    /// deleted makes another one, and does not see what this process commits: as the next owner it writes over that.
    pub(super) fn deleted_beside(&self) -> Option<&Path> {
        let is_there = |path: &Path, noted: &FileKey| existing_key(path).is_ok_and(|key| key.as_ref() == Some(noted));
        let (deleted, _) = self.beside.iter().find(|(path, noted)| !is_there(path, noted))?;
        self.is_at_its_path().then_some(deleted.as_path())
    }

    /// 60018: the log or its index was deleted.
    pub(super) fn log_deleted(&self, deleted: &Path) -> Error {
        Error::new(
            Code::STORE_IO,
            format!(
                "another program has deleted '{}', which is part of the open database '{}', or put another file in its place; open the \
                 database again, and remove no file beside it while it is open",
                deleted.display(),
                self.database.display()
            ),
        )
    }

    /// 60018: the file was deleted.
    pub(super) fn deleted(&self) -> Error {
        Error::new(
            Code::STORE_IO,
            format!(
                "another program has deleted database '{}', or put another file in its place, while this process had it open; \
                 what was written since is lost. Close the broker before you replace its file, then open it again",
                self.database.display()
            ),
        )
    }

    /// Whether the lock file of this process is still beside the database.
    pub(super) fn is_announced(&self) -> bool {
        self.note.as_ref().is_some_and(|note| is_at(note, &note_path(&self.database)))
    }

    /// Writes this process's id into the lock file, for other processes, and whether they may work through it; again if
    /// that has changed.
    ///
    /// # Errors
    /// 60010 if another process holds that file; 60011 if it is a symbolic link, or holds something else; 60014 if it cannot be written; 60017;
    /// 60018.
    pub(super) fn announce(&mut self, is_shared: bool) -> Result<()> {
        let path = note_path(&self.database);
        let failed = |error| {
            if path.is_symlink() { linked(&path) } else { unwritable("lock file", &path, error) }
        };
        // It may have been deleted since it was written first.
        let kept = self.note.take().filter(|file| is_at(file, &path));
        let mut file = match kept {
            Some(file) => file,
            None => {
                let file = open_note(&path, &self.database).map_err(failed)?;
                if is_foreign(&file) {
                    return Err(no_note(&path));
                }
                match file.try_lock() {
                    Ok(()) => file,
                    Err(TryLockError::WouldBlock) => return Err(owned(&self.database, &holder(&self.database))),
                    Err(TryLockError::Error(error)) => return Err(failed(error)),
                }
            }
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let shared = if is_shared { format!(" shared{}", self.key.noted()) } else { String::new() };
        let note = format!("{NOTE_BEGINS}{} since {since}{shared}\n", std::process::id());
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes())).map_err(failed)?;
        self.note = Some(file);
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(note) = &self.note {
            // The file stays: removing it would let two processes lock two files of the same name.
            let _ = note.set_len(0);
            let _ = note.unlock();
        }
        give_up(&mut entries(), &self.key);
    }
}

/// Whether a file that this process owns has a name; `None` where no descriptor of it is kept, or the system does not say it.
fn has_links(entries: &[Entry], key: &FileKey) -> Option<bool> {
    let entry = entries.iter().find(|entry| entry.is_owned && entry.key == *key)?;
    let found = entry.descriptor.as_ref()?.metadata().ok()?;
    #[cfg(unix)]
    {
        Some(std::os::unix::fs::MetadataExt::nlink(&found) > 0)
    }
    #[cfg(not(unix))]
    {
        found.is_file().then_some(true)
    }
}

/// Ends the ownership of a file.
fn give_up(entries: &mut Vec<Entry>, key: &FileKey) {
    if let Some(entry) = entries.iter_mut().find(|entry| entry.is_owned && entry.key == *key) {
        entry.is_owned = false;
        if let Some(descriptor) = &entry.descriptor {
            let _ = descriptor.unlock();
        }
    }
    sweep(entries);
}

/// Opens a database through SQLite, while no descriptor of a database is being closed.
pub(super) fn opening<T>(open: impl FnOnce() -> T) -> T {
    let _entries = entries();
    open()
}

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the descriptors that are not needed any more.
fn sweep(entries: &mut Vec<Entry>) {
    entries.retain(|entry| entry.is_owned || entry.descriptor.is_some() && is_open_elsewhere(&entry.key));
}

/// Whether the process may have a descriptor of the file besides the one of its entry; closing that would then drop
/// SQLite's locks.
#[cfg(target_os = "linux")]
fn is_open_elsewhere(key: &FileKey) -> bool {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return true };
    let of_this_file = descriptors
        .filter_map(|descriptor| std::fs::metadata(descriptor.ok()?.path()).ok())
        .filter(|found| key_of(found) == *key);
    of_this_file.count() > 1
}

#[cfg(not(target_os = "linux"))]
fn is_open_elsewhere(_: &FileKey) -> bool {
    false
}

/// Takes the system's lock on the database file, and enters the file as owned.
#[cfg(target_os = "linux")]
fn lock_file(entries: &mut Vec<Entry>, database: &Path) -> Result<FileKey> {
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |error| unwritable("database", database, error);
    let kept = existing_key(database).map_err(failed)?;
    let kept = kept.and_then(|key| entries.iter().position(|entry| entry.key == key && entry.descriptor.is_some()));
    let place = match kept {
        Some(place) => place,
        None => {
            // SQLite's own mode, so that the files it makes next to this one have the same.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o644);
            let descriptor = options.open(database).map_err(failed)?;
            let key = key_of(&descriptor.metadata().map_err(failed)?);
            entries.push(Entry { key, is_owned: false, descriptor: Some(descriptor) });
            entries.len() - 1
        }
    };
    let entry = &mut entries[place];
    let locked = match &entry.descriptor {
        Some(descriptor) => descriptor.try_lock(),
        None => Ok(()),
    };
    match locked {
        Ok(()) => {
            entry.is_owned = true;
            Ok(entry.key.clone())
        }
        Err(refusal) => {
            sweep(entries);
            match refusal {
                TryLockError::WouldBlock => Err(owned(database, &holder(database))),
                TryLockError::Error(error) => Err(failed(error)),
            }
        }
    }
}

/// Enters the file as owned; the lock on the lock file keeps other processes away.
#[cfg(not(target_os = "linux"))]
fn lock_file(entries: &mut Vec<Entry>, database: &Path) -> Result<FileKey> {
    let failed = |error| unwritable("database", database, error);
    if existing_key(database).map_err(failed)?.is_none() {
        let file = OpenOptions::new().write(true).create_new(true).open(database).map_err(failed)?;
        drop(file);
    }
    let key = existing_key(database).map_err(failed)?.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    entries.push(Entry { key: key.clone(), is_owned: true, descriptor: None });
    Ok(key)
}

/// Whether a path still names this file.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        file.metadata().is_ok_and(|found| std::fs::symlink_metadata(path).is_ok_and(|at| key_of(&at) == key_of(&found)))
    }
    // The open file keeps its name there.
    #[cfg(not(unix))]
    {
        file.metadata().is_ok() && path.exists()
    }
}

/// The folder of a path, if the system says which one it is.
fn folder_of(database: &Path) -> Option<FileKey> {
    existing_key(database.parent()?).ok()?
}

/// The identity of the file of that name; `None` if there is no such file.
pub(super) fn existing_key(database: &Path) -> std::io::Result<Option<FileKey>> {
    match std::fs::metadata(database) {
        #[cfg(unix)]
        Ok(found) => Ok(Some(key_of(&found))),
        #[cfg(not(unix))]
        Ok(_) => Ok(Some(FileKey::Path(database.to_owned()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn key_of(found: &std::fs::Metadata) -> FileKey {
    use std::os::unix::fs::MetadataExt;
    FileKey::Inode(found.dev(), found.ino())
}

fn note_path(database: &Path) -> PathBuf {
    beside(database, ".owner")
}

/// The path of a file that is named after the database.
pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Opens the lock file, and makes it if it is missing: with the user and the rights of the database, as SQLite makes its log. One that a
/// command of root had made kept the user of the database out for good.
fn open_note(path: &Path, database: &Path) -> std::io::Result<File> {
    match note_options().create_new(true).open(path) {
        Ok(file) => {
            // A file that was there before may be a link to any other one.
            #[cfg(unix)]
            share_as(&file, &std::fs::metadata(database)?);
            #[cfg(not(unix))]
            let _ = database;
            Ok(file)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => note_options().open(path),
        Err(error) => Err(error),
    }
}

/// Whether a file that was there holds something else, which the note would overwrite: the file of another program, or a database whose name
/// ends so. A note that a loss of power or a full disk has cut short or left as zeros is none.
fn is_foreign(file: &File) -> bool {
    let mut beginning = Vec::new();
    let read = file.take(NOTE_BEGINS.len() as u64).read_to_end(&mut beginning);
    read.is_ok() && !NOTE_BEGINS.as_bytes().starts_with(&beginning) && beginning.iter().any(|byte| *byte != 0)
}

#[cfg(unix)]
fn share_as(file: &File, database: &std::fs::Metadata) {
    use rustix::fs::{Gid, Mode, Uid};
    use std::os::unix::fs::MetadataExt;
    // Only root may give it to another user.
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(database.uid()), Gid::from_raw(database.gid()));
        let _ = rustix::fs::fchown(file, Some(user), Some(group));
    }
    let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(database.mode()) & Mode::from_bits_truncate(0o666));
}

fn note_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // The file is truncated later. Behind a symbolic link that would be a file that another user has chosen. A pipe does not block.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        flags(rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK),
    );
    // Without FILE_SHARE_DELETE no process can remove the file while it is locked.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, 3);
    options
}

#[cfg(unix)]
fn flags(flags: rustix::fs::OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Whether the owner of the database lets other processes work through it, as far as the lock file says so.
pub(super) fn is_shared(database: &Path) -> bool {
    read_note(database).split_whitespace().nth(4) == Some("shared")
}

/// Whether the lock file names another file than the one that is there: the owner has opened it by this path, and another
/// program has put the other file in its place since.
pub(super) fn is_of_another_file(database: &Path) -> bool {
    let note = read_note(database);
    match (note.split_whitespace().nth(5), existing_key(database)) {
        (Some(noted), Ok(Some(key))) => noted != key.noted().trim_start(),
        _ => false,
    }
}

/// Whether the lock file names an owner: the one that has the file, or one that was killed.
pub(super) fn is_named(database: &Path) -> bool {
    !read_note(database).is_empty()
}

fn read_note(database: &Path) -> String {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe or a device in its place neither blocks nor gives bytes without end.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        flags(rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK),
    );
    let mut note = String::new();
    let _ = options.open(note_path(database)).and_then(|file| file.take(100).read_to_string(&mut note));
    note
}

/// The owner of the database, as far as the lock file names it.
fn holder(database: &Path) -> String {
    let note = read_note(database);
    let mut words = note.split_whitespace().skip(1);
    match words.next().and_then(|pid| pid.parse::<u32>().ok()) {
        Some(pid) => {
            let since = words.nth(1).and_then(|since| since.parse::<i64>().ok());
            let since = since.and_then(|since| jiff::Timestamp::from_second(since).ok());
            let since = since.map_or(String::new(), |since| format!(", since {since}"));
            format!("process {pid} owns it{since}")
        }
        None => "another process owns it".to_owned(),
    }
}

fn owned(database: &Path, who: &str) -> Error {
    Error::new(
        Code::STORE_OWNED,
        format!(
            "database '{}' cannot be opened: {who}; close it there, or read it with 'dialoq status', \
             'dialoq dump' or 'dialoq work list', 'show' and 'stats', which do not own it",
            database.display()
        ),
    )
}

fn no_note(path: &Path) -> Error {
    Error::new(
        Code::STORE_FOREIGN,
        format!(
            "'{}' is no lock file: it is not empty and does not begin with '{NOTE_BEGINS}'. The lock file of the database is written \
             there, so move that file away, or give the database another name",
            path.display()
        ),
    )
}

fn linked(path: &Path) -> Error {
    Error::new(
        Code::STORE_FOREIGN,
        format!(
            "lock file '{}' is a symbolic link, which is not followed because the file is written; remove the link, \
             and allow no other user to write in the folder",
            path.display()
        ),
    )
}

fn unwritable(what: &str, path: &Path, error: std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Code::STORE_READ_ONLY,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::STORE_FULL,
        _ => Code::STORE_IO,
    };
    Error::new(code, format!("{what} '{}' cannot be written: {error}", path.display())).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(database: &Path) -> Result<Owner> {
        let mut owner = Owner::lock(database)?;
        owner.announce(false)?;
        Ok(owner)
    }

    #[test]
    fn a_second_owner_in_this_process_is_refused_with_the_process_id() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let first = take(&database).unwrap();
        let error = take(&database).unwrap_err();
        assert_eq!(error.code(), Code::STORE_OWNED);
        assert!(error.message().contains(&format!("this process (pid {})", std::process::id())), "{error}");
        drop(first);
        take(&database).unwrap();
    }

    // Elsewhere the lock keeps readers out of the file too.
    #[cfg(unix)]
    #[test]
    fn other_processes_learn_the_owner_of_the_file_and_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = take(&database).unwrap();
        let note = holder(&database);
        assert!(note.starts_with(&format!("process {} owns it, since 2", std::process::id())), "{note}");
        drop(owner);
        assert_eq!(holder(&database), "another process owns it", "the note is empty");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_of_two_files_of_a_process_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let databases = ["a.db", "b.db", "c.db"].map(|name| folder.path().join(name));
        let _owners = databases.each_ref().map(|database| {
            File::create(database).unwrap();
            take(database).unwrap()
        });
        for database in &databases {
            let refused = File::open(database).unwrap().try_lock().unwrap_err();
            assert!(matches!(refused, TryLockError::WouldBlock), "{}: {refused}", database.display());
        }
    }

    /// A narrow umask, or root, must not keep the other users of the database out.
    #[cfg(unix)]
    #[test]
    fn the_lock_file_has_the_user_and_the_rights_of_the_database() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let file = File::create(&database).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o662)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&database, Some(65534), Some(65534)).unwrap();
        }
        let facts = |path: &Path| {
            let found = std::fs::metadata(path).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        drop(take(&database).unwrap());
        assert_eq!(facts(&note_path(&database)), facts(&database));
        // One that is there stays as it is: it may be a link.
        std::fs::set_permissions(note_path(&database), std::fs::Permissions::from_mode(0o600)).unwrap();
        drop(take(&database).unwrap());
        assert_eq!(facts(&note_path(&database)).2, 0o600);
    }

    #[test]
    fn a_missing_folder_is_an_error_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let error = take(&folder.path().join("nowhere/a.db")).unwrap_err();
        assert_eq!(error.code(), Code::STORE_IO);
    }

    #[test]
    fn every_obstacle_to_writing_a_file_has_its_code() {
        use std::io::ErrorKind;
        for (kind, code) in [
            (ErrorKind::PermissionDenied, Code::STORE_READ_ONLY),
            (ErrorKind::ReadOnlyFilesystem, Code::STORE_READ_ONLY),
            (ErrorKind::StorageFull, Code::STORE_FULL),
            (ErrorKind::QuotaExceeded, Code::STORE_FULL),
            (ErrorKind::NotFound, Code::STORE_IO),
        ] {
            assert_eq!(unwritable("database", Path::new("a.db"), kind.into()).code(), code, "{kind}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_descriptor_is_kept_while_the_process_has_the_file_open_and_closed_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = take(&database).unwrap();
        let other = File::open(&database).unwrap();
        let key = key_of(&other.metadata().unwrap());
        let is_listed = || entries().iter().any(|entry| entry.key == key);
        drop(owner);
        assert!(is_listed(), "closing it would drop the locks of the other one");
        drop(other);
        drop(take(&database).unwrap());
        assert!(!is_listed(), "nothing needs it any more");
    }

    #[cfg(unix)]
    #[test]
    fn a_path_stands_for_one_file_until_its_user_has_gone() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let [path, link, other] = ["a.db", "b.db", "other"].map(|name| folder.path().join(name));
        File::create(&path).unwrap();
        File::create(&other).unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        let (held, by_another_name) = (Held::new(&path).unwrap(), Held::new(&link).unwrap());
        std::fs::rename(&other, &path).unwrap();
        let is_refused = || Held::new(&path).is_err_and(|error| error.code() == Code::STORE_OWNED);
        drop(by_another_name);
        assert!(is_refused(), "the first file is still open by this path");
        drop(held);
        assert!(!is_refused());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn of_two_files_of_a_process_each_is_watched_and_given_up_by_itself() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.db", "b.db"].map(|name| folder.path().join(name));
        let (owner, other) = (take(&first).unwrap(), take(&second).unwrap());
        std::fs::remove_file(&second).unwrap();
        assert!(other.is_deleted() && !owner.is_deleted());
        drop(other);
        let refused = File::open(&first).unwrap().try_lock().unwrap_err();
        assert!(matches!(refused, TryLockError::WouldBlock), "{refused}");
    }

    // Elsewhere the lock keeps readers out of the file too.
    #[cfg(unix)]
    #[test]
    fn the_lock_file_says_whether_others_may_work_through_the_owner() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let says = || (is_named(&database), is_shared(&database));
        assert_eq!(says(), (false, false));
        let mut owner = take(&database).unwrap();
        assert_eq!(says(), (true, false));
        owner.announce(true).unwrap();
        assert_eq!(says(), (true, true));
        let (other, note) = (folder.path().join("other"), note_path(&database));
        std::fs::write(&other, "").unwrap();
        assert!(owner.is_announced());
        std::fs::rename(&other, &note).unwrap();
        assert!(!owner.is_announced(), "another file has its name");
        owner.announce(true).unwrap();
        assert!(owner.is_announced());
        drop(owner);
        assert_eq!(says(), (false, false));
        // Behind a link would be a file that another user has chosen.
        std::fs::write(&other, "pid 1 since 7 shared\n").unwrap();
        std::fs::remove_file(&note).unwrap();
        std::os::unix::fs::symlink(&other, &note).unwrap();
        assert_eq!(says(), (false, false));
    }
}
