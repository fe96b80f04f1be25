//! The local socket beside a database file: its name, who may use it, and the greetings.

use super::frame::{Greeting, VERSION};
use crate::error::{Code, Error};
use crate::store::sqlite::owner::{self, Peer};
use crate::store::url::Durability;
use interprocess::local_socket::tokio::{Listener, Stream, prelude::*};
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// How long the other side may take for its greeting.
const GREETING_WAIT: Duration = Duration::from_secs(10);

/// The longest path of a socket that every Unix takes.
#[cfg(unix)]
const LONGEST_PATH: usize = 100;

/// The path by which a process reaches the socket of a database file.
pub(super) struct SocketPath {
    path: PathBuf,
    /// Keeps a path through a descriptor of the folder valid.
    #[cfg(target_os = "linux")]
    _folder: Option<std::os::fd::OwnedFd>,
}

/// The socket of a database file: `shop.db.socket` beside `shop.db`.
///
/// The address of a socket is a path of some 100 bytes at most. On Linux a longer path is named through a descriptor of
/// its folder. Elsewhere, or for a very long file name, the name is made of the file's identity.
#[cfg(unix)]
pub(super) fn path_of(database: &Path) -> io::Result<SocketPath> {
    use std::os::unix::fs::MetadataExt;
    let mut beside = database.as_os_str().to_owned();
    beside.push(".socket");
    if beside.len() <= LONGEST_PATH {
        return Ok(SocketPath::of(PathBuf::from(beside)));
    }
    let found = std::fs::metadata(database)?;
    let by_identity = format!("dialoq-{:x}-{:x}.socket", found.dev(), found.ino());
    #[cfg(target_os = "linux")]
    if let (Some(folder), Some(name)) = (database.parent(), Path::new(&beside).file_name()) {
        use rustix::fs::{Mode, OFlags};
        use std::os::fd::AsRawFd;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let reached = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        if reached.exists() {
            let path = reached.join(name);
            let path = if path.as_os_str().len() <= LONGEST_PATH { path } else { reached.join(by_identity) };
            return Ok(SocketPath { path, _folder: Some(folder) });
        }
    }
    Ok(SocketPath::of(std::env::temp_dir().join(by_identity)))
}

impl SocketPath {
    fn of(path: PathBuf) -> Self {
        Self {
            path,
            #[cfg(target_os = "linux")]
            _folder: None,
        }
    }
}

/// The pipe of a database file.
#[cfg(not(unix))]
pub(super) fn path_of(database: &Path) -> io::Result<SocketPath> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    database.hash(&mut hash);
    Ok(SocketPath::of(PathBuf::from(format!(r"\\.\pipe\dialoq-{:016x}", hash.finish()))))
}

fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

/// The socket of an owner. It is deleted on drop.
pub(super) struct Listening {
    pub(super) listener: Listener,
    /// The file that the socket has made.
    #[cfg(unix)]
    file: Option<(u64, u64)>,
    /// After the listener, which is deleted through it.
    path: SocketPath,
}

impl Listening {
    /// Whether other processes find it: its file may have been deleted or replaced.
    #[cfg(unix)]
    pub(super) fn is_current(&self) -> bool {
        self.file.is_some() && file_at(&self.path.path) == self.file
    }

    #[cfg(not(unix))]
    pub(super) fn is_current(&self) -> bool {
        !self.path.path.as_os_str().is_empty()
    }
}

impl Listening {
    /// Does not delete the file on drop: another socket has its name.
    pub(super) fn keep_file(&mut self) {
        self.listener.do_not_reclaim_name_on_drop();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The socket of another owner may have the name by now.
        if !self.is_current() {
            self.keep_file();
        }
    }
}

#[cfg(unix)]
fn file_at(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether something that is no socket has this path. Another program or the user put it there, so it stays.
#[cfg(unix)]
fn is_taken(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

/// Listens on the socket of a database that this process owns. A socket that a killed owner has left is replaced.
///
/// # Errors
/// `AlreadyExists` if something else has the socket's path; those of the system.
pub(super) fn listen(database: &Path) -> io::Result<Listening> {
    let path = path_of(database)?;
    #[cfg(unix)]
    if is_taken(&path.path) {
        let why = format!("'{}' is no socket; move it, so that other processes can connect", path.path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let options = ListenerOptions::new().name(name(&path.path)?).try_overwrite(true);
    #[cfg(unix)]
    let options = {
        use interprocess::os::unix::local_socket::ListenerOptionsExt;
        options.mode(0o600).max_spin_time(Duration::from_secs(1))
    };
    let listener = options.create_tokio()?;
    Ok(Listening {
        listener,
        #[cfg(unix)]
        file: file_at(&path.path),
        path,
    })
}

/// Accepts the connection of another process, if it is of the same user and speaks this version.
///
/// # Errors
/// `PermissionDenied` if it is another user's; `InvalidData` if its greeting is not understood.
pub(super) async fn greet_client(stream: &Stream, durability: Durability) -> io::Result<()> {
    check_peer(stream, None)?;
    let exchanged = timeout(GREETING_WAIT, async {
        let mut bytes = [0; Greeting::BYTES];
        (&mut &*stream).read_exact(&mut bytes).await?;
        let theirs = Greeting::decode(bytes).ok_or(io::ErrorKind::InvalidData)?;
        // Sent in any case: the other side says what does not fit.
        (&mut &*stream).write_all(&Greeting { version: VERSION, durability }.encode()).await?;
        if theirs.version == VERSION { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
    });
    exchanged.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The process at the other end, and its user.
pub(super) fn peer_of(stream: &Stream) -> Peer {
    let Ok(found) = stream.peer_creds() else { return Peer::default() };
    #[cfg(unix)]
    let user_id = found.euid();
    #[cfg(not(unix))]
    let user_id = None;
    Peer { process_id: found.pid().and_then(|id| u32::try_from(id).ok()), user_id }
}

/// Why there is no connection to the owner.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// No process listens, or not for long: another attempt may succeed.
    Absent,
    /// A process listens and does not answer: it is stopped, or hangs.
    Silent(Error),
    /// The owner cannot be used.
    Refused(Error),
}

/// Connects to the owner of a database.
pub(super) async fn connect(database: &Path, durability: Durability) -> std::result::Result<Stream, NoConnection> {
    let stream = match path_of(database) {
        Ok(path) => match name(&path.path) {
            Ok(name) => Stream::connect(name).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => refused(database, "its socket belongs to another user"),
        _ => NoConnection::Absent,
    })?;
    check_peer(&stream, owner_of(database)).map_err(|_| refused(database, "its socket belongs to another user"))?;
    if !is_served(&stream) {
        return Err(refused(database, "it runs as another user; run both as one user"));
    }
    if owner::is_of_another_file(database) {
        let why = "it has another file open, which had this name before; end that process before you replace its file";
        return Err(refused(database, why));
    }
    let exchanged = timeout(GREETING_WAIT, async {
        (&mut &stream).write_all(&Greeting { version: VERSION, durability }.encode()).await?;
        let mut bytes = [0; Greeting::BYTES];
        (&mut &stream).read_exact(&mut bytes).await?;
        Ok::<_, io::Error>(Greeting::decode(bytes))
    });
    match exchanged.await {
        Ok(Ok(Some(theirs))) if theirs.version != VERSION => Err(refused(
            database,
            &format!(
                "it is a Dialoq whose processes speak version {} with each other, this one speaks {VERSION}; use the same \
                 Dialoq in both",
                theirs.version
            ),
        )),
        Ok(Ok(Some(theirs))) if theirs.durability == Durability::Normal && durability == Durability::Full => {
            Err(refused(
                database,
                "it was opened with durability=normal, which this process was not; open it with durability=normal here too, or \
             with durability=full there",
            ))
        }
        Ok(Ok(Some(_))) => Ok(stream),
        Ok(Ok(None)) => Err(refused(database, "the program that listens on its socket is not Dialoq")),
        Ok(Err(_)) => Err(NoConnection::Absent),
        Err(_) => {
            let why = "it has not answered for 10 s: it is stopped, hangs, has no free file descriptor (ulimit -n), or has ended and \
                       left the file open in a process that it forked (fuser names it); end that process, or wait until it goes on";
            Err(NoConnection::Silent(unusable(database, why)))
        }
    }
}

fn refused(database: &Path, why: &str) -> NoConnection {
    NoConnection::Refused(unusable(database, why))
}

fn unusable(database: &Path, why: &str) -> Error {
    Error::new(
        Code::STORE_OWNED,
        format!("database '{}' is owned by another process that cannot be worked through: {why}", database.display()),
    )
}

/// The user of the database file.
#[cfg(unix)]
fn owner_of(database: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(database).ok().map(|found| found.uid())
}

#[cfg(not(unix))]
fn owner_of(_: &Path) -> Option<u32> {
    None
}

/// Refuses a process of another user. Root may do everything to a file anyway, and so may the file's user.
#[cfg(unix)]
fn check_peer(stream: &Stream, also: Option<u32>) -> io::Result<()> {
    let theirs = stream.peer_creds()?.euid();
    let ours = rustix::process::geteuid().as_raw();
    match theirs {
        Some(theirs) if theirs == ours || theirs == 0 || Some(theirs) == also => Ok(()),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Whether the owner at the other end takes this process: it does not answer one of another user, as if it were not there yet.
#[cfg(unix)]
fn is_served(stream: &Stream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    ours == 0 || stream.peer_creds().is_ok_and(|owner| owner.euid() == Some(ours))
}

#[cfg(not(unix))]
fn is_served(_: &Stream) -> bool {
    true
}

/// The rights of the pipe are those of its user.
#[cfg(not(unix))]
fn check_peer(_: &Stream, _: Option<u32>) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn a_long_path_is_named_through_its_folder_and_a_long_name_by_the_file() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("f".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let of_file = |name: &str| {
            let database = deep.join(name);
            std::fs::write(&database, "").unwrap();
            super::path_of(&database).unwrap()
        };
        let [short, long] = ["a.db".to_owned(), "n".repeat(120)].map(|name| of_file(&name));
        assert!(short.path.ends_with("a.db.socket") && short.path.as_os_str().len() < 50, "{}", short.path.display());
        let name = long.path.file_name().unwrap().to_string_lossy();
        assert!(name.starts_with("dialoq-") && name.len() < 50, "{name}");
        // It opens nothing, and no program inherits it.
        let folder = short._folder.as_ref().unwrap().as_raw_fd();
        let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{folder}")).unwrap();
        let flags = shown.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = rustix::fs::OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).unwrap());
        assert!(flags.contains(rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC), "{flags:?}");
    }
}
