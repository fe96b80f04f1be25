//! The local socket beside a database file: its name, who may use it, and the greetings.

use super::frame::{Greeting, VERSION};
use crate::error::{Code, Error};
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

/// The socket of a database file: `shop.db.socket` for `shop.db`. A path that is too long for a socket gives a name in the
/// folder of temporary files, made of the file's identity.
#[cfg(unix)]
pub(super) fn path_of(database: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let mut beside = database.as_os_str().to_owned();
    beside.push(".socket");
    if beside.len() <= LONGEST_PATH {
        return Ok(PathBuf::from(beside));
    }
    let found = std::fs::metadata(database)?;
    Ok(std::env::temp_dir().join(format!("dialoq-{:x}-{:x}.socket", found.dev(), found.ino())))
}

/// The pipe of a database file.
#[cfg(not(unix))]
pub(super) fn path_of(database: &Path) -> io::Result<PathBuf> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    database.hash(&mut hash);
    Ok(PathBuf::from(format!(r"\\.\pipe\dialoq-{:016x}", hash.finish())))
}

fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

/// Listens on the socket of a database that this process owns. What a killed owner has left there is replaced.
pub(super) fn listen(database: &Path) -> io::Result<Listener> {
    let path = path_of(database)?;
    let options = ListenerOptions::new().name(name(&path)?).try_overwrite(true);
    #[cfg(unix)]
    let options = {
        use interprocess::os::unix::local_socket::ListenerOptionsExt;
        options.mode(0o600).max_spin_time(Duration::from_secs(1))
    };
    options.create_tokio()
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

/// Why there is no connection to the owner.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// No process listens, or not for long: another attempt may succeed.
    Absent,
    /// The owner cannot be used.
    Refused(Error),
}

/// Connects to the owner of a database.
pub(super) async fn connect(database: &Path, durability: Durability) -> std::result::Result<Stream, NoConnection> {
    let stream = match path_of(database) {
        Ok(path) => match name(&path) {
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
        Err(_) => Err(refused(database, "it has not answered for 10 s; end that process if it hangs")),
    }
}

fn refused(database: &Path, why: &str) -> NoConnection {
    NoConnection::Refused(Error::new(
        Code::STORE_OWNED,
        format!("database '{}' is owned by another process that cannot be worked through: {why}", database.display()),
    ))
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

/// The rights of the pipe are those of its user.
#[cfg(not(unix))]
fn check_peer(_: &Stream, _: Option<u32>) -> io::Result<()> {
    Ok(())
}
