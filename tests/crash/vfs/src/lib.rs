//! A disk under SQLite for tests: it counts writes, truncations, syncs and deletions, and at one of them fails, or loses
//! power.
//!
//! The VFS is the system's own with another table of methods, so that locks and shared memory are the real ones. For the
//! files it keeps what has been written and what of it is synced; after the power is lost, [`Disk::image`] gives the files
//! as the machine would find them. This package is apart from Dialoq because SQLite's interface needs `unsafe`, which
//! Dialoq's own code and tests do without.

use rusqlite::ffi;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The name under which the VFS is registered.
pub const NAME: &str = "dialoq-test-disk";

/// The fault at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is refused, once; everything after it works.
    Fail,
    /// Power is lost: of a write only the first half is on the disk, and all that came before, synced or not.
    Tear,
    /// Power is lost: only synced writes are on the disk.
    Lose,
    /// Power is lost: synced writes are on the disk, and every other one of the rest.
    Mix,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fail, Self::Tear, Self::Lose, Self::Mix];
}

/// One change of a file that is not synced.
#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
    Delete,
}

/// A file: its synced content, and the writes since then.
#[derive(Debug, Default)]
struct File {
    synced: Option<Vec<u8>>,
    unsynced: Vec<Change>,
}

impl File {
    fn with(&self, is_kept: impl Fn(usize) -> bool) -> Option<Vec<u8>> {
        let kept = self.unsynced.iter().enumerate().filter(|(place, _)| is_kept(*place));
        kept.fold(self.synced.clone(), |content, (_, change)| change.apply(content))
    }
}

impl Change {
    fn apply(&self, content: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut content = content.unwrap_or_default();
        match self {
            Self::Delete => return None,
            Self::Truncate { length } => content.truncate(*length),
            Self::Write { offset, bytes } => {
                if content.len() < offset + bytes.len() {
                    content.resize(offset + bytes.len(), 0);
                }
                content[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
        Some(content)
    }
}

#[derive(Debug)]
struct State {
    files: HashMap<PathBuf, File>,
    operations: u64,
    strikes_at: u64,
    fault: Fault,
    has_struck: bool,
    has_power: bool,
    /// The most regions that the index of a log may have.
    index_regions: Option<c_int>,
}

/// The disk under one folder.
#[derive(Debug, Clone)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// A disk under this folder, which strikes at the `nth` operation, counted from 1.
    pub fn under(folder: &Path, fault: Fault, nth: u64) -> Self {
        register();
        let state = State {
            files: HashMap::new(),
            operations: 0,
            strikes_at: nth,
            fault,
            has_struck: false,
            has_power: true,
            index_regions: None,
        };
        let disk = Self(Arc::new(Mutex::new(state)));
        lock(&DISKS).push((folder.canonicalize().expect("the folder is there"), disk.clone()));
        disk
    }

    /// From now on the disk has no room for more than so many regions of 32 KB of the index of a log; `None` is all the room.
    pub fn limit_index(&self, regions: Option<c_int>) {
        lock(&self.0).index_regions = regions;
    }

    /// Whether the chosen operation was reached.
    pub fn has_struck(&self) -> bool {
        lock(&self.0).has_struck
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        lock(&self.0).operations
    }

    /// Writes the files as they are after the fault into another folder.
    pub fn image(&self, folder: &Path) {
        let state = lock(&self.0);
        for (path, file) in &state.files {
            let content = match state.fault {
                Fault::Fail | Fault::Tear => file.with(|_| true),
                Fault::Lose => file.with(|_| false),
                Fault::Mix => file.with(|place| place % 2 == 0),
            };
            if let (Some(content), Some(name)) = (content, path.file_name()) {
                std::fs::write(folder.join(name), content).expect("the folder of the image can be written");
            }
        }
    }

    /// Notes an operation. `None`: it may happen; else the code that SQLite gets.
    fn operate(&self, path: &Path, mut change: Option<Change>, failure: c_int) -> Option<c_int> {
        let mut state = lock(&self.0);
        if !state.has_power {
            return Some(failure);
        }
        state.operations += 1;
        let strikes = !state.has_struck && state.operations == state.strikes_at;
        let fault = state.fault;
        if strikes {
            state.has_struck = true;
            state.has_power = fault == Fault::Fail;
            match &mut change {
                Some(Change::Write { bytes, .. }) if fault == Fault::Tear => bytes.truncate(bytes.len() / 2),
                _ => change = None,
            }
        }
        let file = state.files.entry(path.to_owned()).or_default();
        match change {
            Some(change) => file.unsynced.push(change),
            None if !strikes => *file = File { synced: file.with(|_| true), unsynced: Vec::new() },
            None => {}
        }
        strikes.then_some(failure)
    }

    fn opened(&self, path: &Path) {
        let mut state = lock(&self.0);
        if !state.files.contains_key(path) {
            let file = File { synced: std::fs::read(path).ok(), unsynced: Vec::new() };
            state.files.insert(path.to_owned(), file);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // One is held by the list itself.
        let mut disks = match DISKS.try_lock() {
            Ok(disks) => disks,
            Err(_) => return,
        };
        if let Some(place) = disks.iter().position(|(_, disk)| Arc::ptr_eq(&disk.0, &self.0))
            && Arc::strong_count(&self.0) == 2
        {
            let last = disks.swap_remove(place);
            drop(disks);
            drop(last);
        }
    }
}

static DISKS: Mutex<Vec<(PathBuf, Disk)>> = Mutex::new(Vec::new());

/// A file that SQLite has open.
struct Open {
    path: PathBuf,
    disk: Disk,
    /// The system's methods.
    system: *const ffi::sqlite3_io_methods,
    /// Ours, which the file points to meanwhile.
    ours: *mut ffi::sqlite3_io_methods,
}

// SAFETY: the pointers are to tables of functions that are never written after they are made.
unsafe impl Send for Open {}

static OPEN: Mutex<Option<HashMap<usize, Open>>> = Mutex::new(None);

/// The system's VFS.
struct System(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite registers it once for the whole process and never changes it.
unsafe impl Send for System {}
// SAFETY: as above.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<System> = OnceLock::new();

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register() {
    SYSTEM.get_or_init(|| {
        // SAFETY: both calls are as SQLite documents them; what is registered is never freed.
        unsafe {
            let system = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!system.is_null(), "SQLite has a VFS");
            let mut ours = std::ptr::read(system);
            ours.zName = CString::new(NAME).expect("a name without NUL").into_raw();
            ours.pNext = std::ptr::null_mut();
            ours.xOpen = Some(open);
            ours.xDelete = Some(delete);
            let ours = Box::into_raw(Box::new(ours));
            assert_eq!(ffi::sqlite3_vfs_register(ours, 0), ffi::SQLITE_OK);
            System(system)
        }
    });
}

fn system() -> *mut ffi::sqlite3_vfs {
    SYSTEM.get().expect("a disk was made before SQLite opened anything on it").0
}

/// The disk that a file lies on.
fn disk_of(path: &Path) -> Option<Disk> {
    let folder = path.parent()?;
    lock(&DISKS).iter().find(|(found, _)| found == folder).map(|(_, disk)| disk.clone())
}

unsafe fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite gives a text with a NUL at its end.
    Some(PathBuf::from(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    given: *mut c_int,
) -> c_int {
    // SAFETY: all arguments are SQLite's; the file has the size that the system's VFS asks for.
    unsafe {
        let path = path_of(name);
        let disk = path.as_deref().and_then(disk_of);
        if let (Some(path), Some(disk)) = (&path, &disk) {
            disk.opened(path);
        }
        let Some(xopen) = (*system()).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = xopen(system(), name, file, flags, given);
        let (Some(path), Some(disk)) = (path, disk) else { return code };
        if code != ffi::SQLITE_OK || (*file).pMethods.is_null() {
            return code;
        }
        let system = (*file).pMethods;
        let mut ours = std::ptr::read(system);
        ours.xWrite = Some(write);
        ours.xTruncate = Some(truncate);
        ours.xSync = Some(sync);
        ours.xShmMap = Some(shm_map);
        ours.xClose = Some(close);
        let ours = Box::into_raw(Box::new(ours));
        (*file).pMethods = ours;
        lock(&OPEN).get_or_insert_default().insert(file as usize, Open { path, disk, system, ours });
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, syncs: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe {
        if let Some(path) = path_of(name)
            && let Some(disk) = disk_of(&path)
        {
            if let Some(code) = disk.operate(&path, Some(Change::Delete), ffi::SQLITE_IOERR_DELETE) {
                return code;
            }
            if syncs != 0 {
                let mut state = lock(&disk.0);
                let file = state.files.entry(path).or_default();
                *file = File { synced: file.with(|_| true), unsynced: Vec::new() };
            }
        }
        match (*system()).xDelete {
            Some(xdelete) => xdelete(system(), name, syncs),
            None => ffi::SQLITE_IOERR_DELETE,
        }
    }
}

/// What is known of an open file, and the system's methods for it.
fn known(file: *mut ffi::sqlite3_file) -> (PathBuf, Disk, *const ffi::sqlite3_io_methods) {
    let open = lock(&OPEN);
    let found = open.as_ref().and_then(|open| open.get(&(file as usize))).expect("the file was opened here");
    (found.path.clone(), found.disk.clone(), found.system)
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, bytes: *const c_void, count: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite gives `count` bytes; the method is the one that the system gave for this file.
    unsafe {
        let (path, disk, system) = known(file);
        let length = usize::try_from(count).unwrap_or(0);
        let content = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
        let change = Change::Write { offset: usize::try_from(offset).unwrap_or(0), bytes: content };
        if let Some(code) = disk.operate(&path, Some(change), ffi::SQLITE_IOERR_WRITE) {
            return code;
        }
        (*system).xWrite.map_or(ffi::SQLITE_IOERR_WRITE, |xwrite| xwrite(file, bytes, count, offset))
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: as in `write`.
    unsafe {
        let (path, disk, system) = known(file);
        let change = Change::Truncate { length: usize::try_from(length).unwrap_or(0) };
        if let Some(code) = disk.operate(&path, Some(change), ffi::SQLITE_IOERR_TRUNCATE) {
            return code;
        }
        (*system).xTruncate.map_or(ffi::SQLITE_IOERR_TRUNCATE, |xtruncate| xtruncate(file, length))
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as in `write`. The real sync is left out: a machine that runs on needs none, and tests run faster.
    let (path, disk, _) = known(file);
    let _ = flags;
    disk.operate(&path, None, ffi::SQLITE_IOERR_FSYNC).unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extends: c_int,
    mapped: *mut *mut c_void,
) -> c_int {
    // SAFETY: the arguments are SQLite's; the method is the one that the system gave for this file.
    unsafe {
        let (_, disk, system) = known(file);
        if extends != 0 && lock(&disk.0).index_regions.is_some_and(|most| region >= most) {
            return ffi::SQLITE_IOERR_SHMSIZE;
        }
        (*system).xShmMap.map_or(ffi::SQLITE_IOERR_SHMMAP, |map| map(file, region, bytes, extends, mapped))
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file gets the system's methods back before the system closes it; ours are freed once nothing uses them.
    unsafe {
        let Some(found) = lock(&OPEN).as_mut().and_then(|open| open.remove(&(file as usize))) else {
            return ffi::SQLITE_IOERR_CLOSE;
        };
        (*file).pMethods = found.system;
        let code = (*found.system).xClose.map_or(ffi::SQLITE_IOERR_CLOSE, |xclose| xclose(file));
        drop(Box::from_raw(found.ours));
        code
    }
}
