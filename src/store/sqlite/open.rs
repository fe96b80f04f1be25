//! Opening a database: its owner, its settings, and its tables and views.

use super::disk_room::DiskRoom;
use super::failure::storage;
use super::guard::Guard;
use super::owner::{self, Held};
use super::reserved;
use super::temp_store;
use crate::error::{Code, Error, Result};
use crate::sql::Script;
use crate::sql::sqlite::DROP_VIEWS;
use crate::sql::sqlite::read::{FOREIGN_OBJECTS, HALF_MADE, VIEW_TEXTS};
use crate::sql::sqlite::schema;
use crate::sql::sqlite::transaction::{BEGIN, COMMIT};
use crate::sql::sqlite::views;
use crate::store::url::{Durability, Location};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// "DLOQ": the application id in the header of our files.
const APPLICATION_ID: i32 = 0x444C_4F51;

/// Each script brings the tables one version further; only ever appended to.
const SCHEMA: &[Script] = schema::SCRIPTS;

/// How long another program may hold a lock before an opening or a read gives up.
pub(super) const BUSY: Duration = Duration::from_secs(20);

/// How long one try of a commit to have the write lock takes; the writer tries again.
const BUSY_TRY: Duration = Duration::from_millis(50);

/// How long an opening on a disk with little room waits for readers that hold back the log.
const LOG_WAIT: Duration = Duration::from_millis(250);

/// Statements that are kept prepared: the store's own, of which it has some 80, and the user's.
const STATEMENTS: usize = 256;

/// The most links in a row that are followed to a file that is still to be made: as many as Linux follows.
const MOST_LINKS: u32 = 40;

/// The path of a file, whatever folder a process is in and by whatever link it is named. A link may name a file that is still
/// to be made: the lock file and the socket beside the link would be found by no process that comes later.
pub(super) fn absolute_path(path: &Path) -> PathBuf {
    let Ok(mut path) = std::path::absolute(path) else { return path.to_owned() };
    for _ in 0..MOST_LINKS {
        if let Ok(settled) = path.canonicalize() {
            return settled;
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return path };
        let Ok(folder) = folder.canonicalize() else { return path };
        let settled = folder.join(name);
        match std::fs::read_link(&settled) {
            Ok(target) => path = folder.join(target),
            Err(_) => return settled,
        }
    }
    path
}

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenFor {
    /// It is made if it is missing.
    Making,
    Writing,
    Reading,
}

/// The longest path of a database on Unix, in bytes: SQLite takes 512, of which it keeps 8 for the files beside it.
const LONGEST_PATH: usize = 504;

/// Refuses a visibly unusable file before SQLite or the lock touch it.
pub(super) fn check_file(path: &Path, purpose: OpenFor) -> Result<()> {
    let done = if purpose == OpenFor::Reading { "read" } else { "opened" };
    let refuse = |code: Code, why: String| {
        Err(Error::new(code, format!("database '{}' cannot be {done}: {why}", path.display())))
    };
    let length = std::path::absolute(path).map_or(0, |path| path.as_os_str().len());
    if cfg!(unix) && length > LONGEST_PATH {
        let why = format!("its path has {length} bytes, and SQLite takes {LONGEST_PATH}; take a shorter one");
        return refuse(Code::STORE_IO, why);
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => refuse(Code::STORE_FOREIGN, "it is a folder".to_owned()),
        // SQLite would make its log beside a device, and delete files there.
        Ok(found) if !found.is_file() => {
            refuse(Code::STORE_FOREIGN, "it is a device, a pipe or a socket; name a file on a disk".to_owned())
        }
        Ok(found) if purpose != OpenFor::Reading && found.permissions().readonly() => {
            refuse(Code::STORE_READ_ONLY, "the file is read-only; allow reading and writing it".to_owned())
        }
        // It is not opened to see whether it can be read: a close would drop the locks that this process has on it.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if purpose == OpenFor::Making {
                // The file itself would be made, and stay as an empty one.
                let longest_beside = std::fs::metadata(owner::beside(path, "-journal"));
                match longest_beside.is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidFilename) {
                    true => refuse(
                        Code::STORE_IO,
                        "its name is too long: those of the files beside it have 8 bytes more; take a shorter one"
                            .to_owned(),
                    ),
                    false => Ok(()),
                }
            } else {
                refuse(Code::STORE_IO, "there is no such file; `dialoq apply` makes it, or Broker::open".to_owned())
            }
        }
        Err(error) => refuse(Code::STORE_IO, error.to_string()),
    }
}

/// The cause of a refusal of a file that has another name: it ends when that name is removed. Who looks at the file again after the
/// refusal may find the name gone, and would take the refusal for that of a foreign file.
#[derive(Debug)]
pub(super) struct OtherName(String);

impl std::fmt::Display for OtherName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OtherName {}

/// Refuses a file with several hard links. SQLite names its log after the database, so that after a crash an opening by
/// another name would not find the log, and with it the last commits. A file that is mounted by itself has a name in another folder too:
/// of 100 jobs that a container had pushed, none was left after the container was killed and replaced.
#[cfg(unix)]
pub(super) fn check_links(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    check_mount(path)?;
    match std::fs::metadata(path) {
        Ok(found) if found.nlink() > 1 => {
            let other = OtherName(format!("it has {} hard links", found.nlink()));
            let message = format!(
                "database '{}' cannot be opened: {other}, and its log is beside one of them only; keep the \
                 name that has a '-wal' beside it, or any if none has, and remove the others (find DIR -samefile '{}')",
                path.display(),
                path.display()
            );
            Err(Error::new(Code::STORE_FOREIGN, message).caused_by(other))
        }
        // SQLite reports any other cause.
        _ => Ok(()),
    }
}

/// Whether the file is the root of a mount, as far as the system says it.
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn is_mounted(_: &Path) -> bool {
    false
}

/// Refuses a file that is mounted by itself.
pub(super) fn check_mount(path: &Path) -> Result<()> {
    if !is_mounted(path) {
        return Ok(());
    }
    let other = OtherName("the file is mounted by itself".to_owned());
    let message = format!(
        "database '{}' cannot be opened: {other}, as by `docker run -v FILE:FILE`, so its log may not be beside \
         it in the folder that it comes from; mount that folder",
        path.display()
    );
    Err(Error::new(Code::STORE_FOREIGN, message).caused_by(other))
}

#[cfg(not(unix))]
fn is_mounted(_: &Path) -> bool {
    false
}

#[cfg(not(unix))]
pub(super) fn check_links(_: &Path) -> Result<()> {
    Ok(())
}

/// Refuses a database of another program, by reading it only: the connection that writes could roll a journal of that
/// program back, or fold its log.
///
/// # Errors
/// 60011; 60012 if the file is empty and may not become a broker: it was cut off, or emptied by another program.
pub(super) fn check_ours(path: &Path, create_if_missing: bool) -> Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // The opening may still be refused.
    let fixed = fixed_name(path);
    let connection = match owner::opening(|| match &fixed {
        Some(name) => Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI),
        None => Connection::open_with_flags(path, flags),
    }) {
        Ok(connection) => connection,
        // The connection that writes reports the cause.
        Err(_) => return Ok(()),
    };
    match identify(&connection, &Location::File(path.to_owned())) {
        Ok(true) if !create_if_missing => Err(holds_no_tables(path)),
        Err(error) if error.code() == Code::STORE_FOREIGN => Err(error),
        _ => Ok(()),
    }
}

/// 60012: an empty file.
pub(super) fn holds_no_tables(path: &Path) -> Error {
    Error::new(
        Code::STORE_DAMAGED,
        format!(
            "database '{}' is empty: it holds no tables; restore it from a copy, or make a new broker in it with 'dialoq apply'",
            path.display()
        ),
    )
}

/// The connection that writes, configured, with all tables and views. Returns whether the tables are new.
pub(super) fn write_connection(
    location: &Location,
    durability: Durability,
    lock_wait: Duration,
    room: &DiskRoom,
    vfs: Option<&str>,
) -> Result<(Connection, bool)> {
    let doing = format!("opening database '{location}'");
    let failed = |error| storage(&doing, error);
    // Taking the lock has made the file. If it is missing now, it was removed since, and a new one would not be locked.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match location {
        Location::Memory => Connection::open_in_memory_with_flags(flags),
        Location::File(path) => owner::opening(|| match vfs {
            None => Connection::open_with_flags(path, flags),
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        }),
    }
    .map_err(failed)?;
    connection.busy_timeout(lock_wait).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let is_new = identify(&connection, location)?;
    if connection.is_readonly("main").map_err(failed)? {
        return Err(storage(
            &doing,
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY), None),
        ));
    }
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    let set = || -> rusqlite::Result<()> {
        protect_shadow_tables(&connection)?;
        if matches!(location, Location::File(_)) {
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        }
        connection.pragma_update(None, "synchronous", synchronous)?;
        // Another program may have given the file larger pages.
        let page_bytes = connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))?;
        let log_pages = (room.log_bytes() / page_bytes.max(1)).max(1);
        connection.pragma_update_and_check(None, "wal_autocheckpoint", log_pages, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "journal_size_limit", room.log_bytes_kept(), |_| Ok(()))?;
        connection.pragma_update(None, "cache_size", -(room.cache_bytes() / 1024))?;
        connection.pragma_update(None, "temp_store", "MEMORY")
    };
    set().map_err(failed)?;
    if let Location::File(path) = location
        && room.is_short()
        && std::fs::metadata(owner::beside(path, "-wal")).is_ok_and(|log| log.len() > 0)
    {
        // The log may be what fills the disk, so that nothing can be written before it is empty. If that fails, a later commit does it.
        connection.busy_timeout(LOG_WAIT).map_err(failed)?;
        if let Err(error) = connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())) {
            tracing::debug!(%error, "the log could not be emptied at the opening");
        }
        connection.busy_timeout(lock_wait).map_err(failed)?;
    }
    if !is_new {
        reserved::check_names_of_views(&connection, &doing)?;
    }
    install(&connection, is_new).map_err(|error| {
        if !is_new && is_made_already(&error) { wrong_version(location, "older than they are") } else { failed(error) }
    })?;
    // An earlier version made the tables and their first rows in two transactions.
    let is_new = is_new || connection.query_row(HALF_MADE, [], |row| row.get(0)).map_err(failed)?;
    Ok((connection, is_new))
}

/// Keeps statements of the user from writing the tables behind a virtual table, such as a full-text index. An index that
/// was damaged so can fail at any later commit.
fn protect_shadow_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map(drop)
}

/// Sets the lock timeout of the connection that writes, once the database is open.
pub(super) fn wait_briefly(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TRY)
}

/// A connection that reads committed rows and can do nothing else.
pub(super) struct ReadConnection {
    pub(super) connection: Connection,
    pub(super) guard: Guard,
    /// It sees the file as it was: it must not be used again.
    pub(super) is_fixed: bool,
    /// The last field, so that the path is free after the connection is closed.
    _held: Held,
}

impl ReadConnection {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let held = Held::new(path)?;
        let doing = format!("reading database '{}'", path.display());
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let fixed = without_a_log(path);
        let open = || -> rusqlite::Result<Self> {
            let mut connection = owner::opening(|| match &fixed {
                Some(name) => Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI),
                None => Connection::open_with_flags(path, flags),
            })?;
            connection.busy_timeout(BUSY)?;
            connection.set_prepared_statement_cache_capacity(32);
            connection.pragma_update(None, "query_only", true)?;
            protect_shadow_tables(&connection)?;
            connection.pragma_update(None, "cache_size", -2048)?;
            temp_store::set(&connection)?;
            let guard = Guard::always(&mut connection)?;
            Ok(Self { connection, guard, is_fixed: fixed.is_some(), _held: held })
        };
        open().map_err(|error| storage(&doing, error))
    }
}

/// As [`fixed_name`], if this process may not write the file.
#[cfg(unix)]
fn without_a_log(path: &Path) -> Option<String> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let is_writable = accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    if is_writable { None } else { fixed_name(path) }
}

/// The name by which SQLite reads a file that has no log, and makes no log and no index beside it. It makes them for a reader too. Those
/// of a user who may write in the folder kept the user of the file out for good (60014).
#[cfg(unix)]
fn fixed_name(path: &Path) -> Option<String> {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    // What is in them SQLite would not read by this name.
    let has = |ending| std::fs::metadata(owner::beside(path, ending)).is_ok_and(|file| file.len() > 0);
    if has("-wal") || has("-journal") {
        return None;
    }
    let mut name = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => name.push(char::from(*byte)),
            byte => drop(write!(name, "%{byte:02x}")),
        }
    }
    name.push_str("?immutable=1");
    Some(name)
}

#[cfg(not(unix))]
fn without_a_log(_: &Path) -> Option<String> {
    None
}

#[cfg(not(unix))]
fn fixed_name(_: &Path) -> Option<String> {
    None
}

/// Whether the database is empty; an error if another program or a newer Dialoq made it.
pub(super) fn identify(connection: &Connection, location: &Location) -> Result<bool> {
    let failed = |error| storage(&format!("opening database '{location}'"), error);
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(failed);
    let objects: i64 = connection.query_row(FOREIGN_OBJECTS, [], |row| row.get(0)).map_err(failed)?;
    let (application_id, version) = (number("application_id")?, number("user_version")?);
    if application_id == 0 && version == 0 && objects == 0 {
        return Ok(true);
    }
    if application_id != APPLICATION_ID {
        return Err(Error::new(
            Code::STORE_FOREIGN,
            format!(
                "'{location}' is a SQLite database, but not one of Dialoq (its application_id is {application_id}); \
                 name another file, and make your own tables in that"
            ),
        ));
    }
    if version > SCHEMA.len() as i32 {
        return Err(Error::new(
            Code::STORE_NEWER,
            format!(
                "database '{location}' was written by a newer Dialoq: its tables have version {version}, this one \
                 knows {}; use the newer one, or set PRAGMA user_version back if another program has changed it",
                SCHEMA.len()
            ),
        ));
    }
    if version < 1 {
        return Err(wrong_version(location, &format!("of version {version}")));
    }
    Ok(false)
}

/// Refuses a database of an earlier version to a connection that only reads: its tables lack what this version asks for.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<()> {
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0));
    let version = version.map_err(|error| storage(&format!("reading database '{}'", path.display()), error))?;
    if version >= SCHEMA.len() as i32 {
        return Ok(());
    }
    Err(Error::new(
        Code::SCHEMA_MISSING,
        format!(
            "database '{}' was written by an earlier Dialoq: its tables have version {version}, this one reads {}. It is upgraded by \
             the first program of this version that opens it for more than reading, such as 'dialoq apply'; keep a backup, \
             because there is no way back",
            path.display(),
            SCHEMA.len()
        ),
    ))
}

/// Whether a script found its table or column.
fn is_made_already(error: &rusqlite::Error) -> bool {
    let text = error.to_string();
    text.contains("already exists") || text.contains("duplicate column name")
}

/// 60012: tools for migrations count in `PRAGMA user_version`, where the version of the broker's tables is.
fn wrong_version(location: &Location, says: &str) -> Error {
    Error::new(
        Code::STORE_DAMAGED,
        format!(
            "'{location}' says in PRAGMA user_version that its tables are {says}. Another program has changed it; set it back, \
             to {} if this version of Dialoq wrote the file last",
            SCHEMA.len()
        ),
    )
}

/// Brings tables and views to this version, wholly or not at all. In a new database the transaction stays open, because
/// the first rows belong to it: tables without them would be damage.
fn install(connection: &Connection, is_new: bool) -> rusqlite::Result<()> {
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let mut standing = {
        let mut statement = connection.prepare(VIEW_TEXTS)?;
        statement
            .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?
            .collect::<rusqlite::Result<Vec<_>>>()?
    };
    let is_ours = |name: &str| views::SCRIPTS.iter().any(|view| view.name == format!("views/{name}.sql"));
    standing.retain(|(name, _)| is_ours(name));
    let views_stand = standing.len() == views::SCRIPTS.len()
        && views::SCRIPTS.iter().all(|view| {
            standing.iter().any(|(_, stands)| view.text.trim_end().trim_end_matches(';').ends_with(stands.as_str()))
        });
    let missing = SCHEMA.get(usize::try_from(version).unwrap_or(0)..).unwrap_or_default();
    if missing.is_empty() && views_stand {
        return Ok(());
    }
    // A failure closes the connection, and that rolls back.
    connection.execute_batch(BEGIN)?;
    for script in missing {
        connection.execute_batch(script.text)?;
    }
    connection.execute_batch(DROP_VIEWS)?;
    for view in views::SCRIPTS {
        connection.execute_batch(view.text)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA.len() as i32)?;
    if is_new { Ok(()) } else { connection.execute_batch(COMMIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_file_has_one_path_by_whatever_link_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (real, link) = (folder.join("real"), folder.join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::fs::write(real.join("a.db"), "").unwrap();
        std::os::unix::fs::symlink(real.join("a.db"), folder.join("b.db")).unwrap();
        assert_eq!(absolute_path(&link.join("a.db")), real.join("a.db"));
        assert_eq!(absolute_path(&folder.join("b.db")), real.join("a.db"));
        assert_eq!(absolute_path(&link.join("new.db")), real.join("new.db"), "before it is made");
        assert_eq!(absolute_path(&folder.join("nowhere/a.db")), folder.join("nowhere/a.db"));
        std::os::unix::fs::symlink("link/made later.db", folder.join("c.db")).unwrap();
        std::os::unix::fs::symlink("../c.db", real.join("d.db")).unwrap();
        for link in ["c.db", "real/d.db", "link/d.db"] {
            let found = absolute_path(&folder.join(link));
            assert_eq!(found, real.join("made later.db"), "{link}: its file is still to be made");
        }
        std::os::unix::fs::symlink("e.db", folder.join("e.db")).unwrap();
        assert_eq!(absolute_path(&folder.join("e.db")), folder.join("e.db"), "a link to itself");
    }

    #[test]
    fn a_try_for_the_write_lock_is_short_so_that_a_drop_is_not_held_up() {
        let connection = Connection::open_in_memory().unwrap();
        connection.busy_timeout(BUSY).unwrap();
        wait_briefly(&connection).unwrap();
        let waits_ms: u32 = connection.query_row("pragma busy_timeout", [], |row| row.get(0)).unwrap();
        assert!(waits_ms <= 100, "{waits_ms} ms");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_and_a_socket_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [Path::new("/dev/null"), &socket, folder.path()] {
            for purpose in [OpenFor::Making, OpenFor::Writing, OpenFor::Reading] {
                let error = check_file(path, purpose).unwrap_err();
                assert_eq!(error.code(), Code::STORE_FOREIGN, "{}", path.display());
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_leaves_no_room_for_the_files_beside_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_file(&folder.path().join("n".repeat(247)), OpenFor::Making).is_ok());
        for length in [248, 255, 300] {
            let error = check_file(&folder.path().join("n".repeat(length)), OpenFor::Making).unwrap_err();
            assert!(error.code() == Code::STORE_IO && error.message().contains("too long"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_sqlite_does_not_take_is_refused_before_a_file_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let mut deep = folder.path().to_owned();
        while deep.as_os_str().len() + 102 <= LONGEST_PATH {
            deep.push("d".repeat(100));
        }
        std::fs::create_dir_all(&deep).unwrap();
        let room = LONGEST_PATH - deep.as_os_str().len() - 1;
        let longest = deep.join("n".repeat(room));
        assert!(check_file(&longest, OpenFor::Making).is_ok());
        // So much is what SQLite takes.
        rusqlite::Connection::open(&longest)
            .unwrap()
            .execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (n)")
            .unwrap();
        for purpose in [OpenFor::Making, OpenFor::Writing, OpenFor::Reading] {
            let error = check_file(&deep.join("n".repeat(room + 1)), purpose).unwrap_err();
            assert!(error.code() == Code::STORE_IO && error.message().contains("505 bytes"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_through_a_file_is_refused_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for purpose in [OpenFor::Making, OpenFor::Writing, OpenFor::Reading] {
            let error = check_file(&file.join("a.db"), purpose).unwrap_err();
            assert_eq!(error.code(), Code::STORE_IO);
            assert!(!error.message().contains("no such file"), "{error}");
        }
        assert!(check_file(&folder.path().join("a.db"), OpenFor::Making).is_ok());
        let error = check_file(&folder.path().join("a.db"), OpenFor::Reading).unwrap_err();
        assert!(error.message().contains("no such file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_read_by_itself_only_if_it_has_no_log() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.db");
        assert!(fixed_name(&path).is_some_and(|name| name.ends_with("/a%20b.db?immutable=1")));
        for ending in ["-wal", "-journal"] {
            let beside = owner::beside(&path, ending);
            std::fs::write(&beside, "").unwrap();
            assert!(fixed_name(&path).is_some(), "an empty one holds nothing");
            std::fs::write(&beside, "x").unwrap();
            assert_eq!(fixed_name(&path), None);
            std::fs::remove_file(&beside).unwrap();
        }
    }
}
