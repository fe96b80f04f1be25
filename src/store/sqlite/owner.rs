//! One process owns a database file: a lock on the file beside it says so.
//!
//! The lock is the operating system's, so that it goes with the process however that ends; what is written in the file
//! only tells others whom to ask.

use crate::error::{Code, Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Ownership of one database file; dropping it lets go.
#[derive(Debug)]
pub(super) struct Owner(File);

impl Owner {
    /// Takes ownership of the database at this path.
    ///
    /// # Errors
    /// 60010, naming the process that owns it; 60014 if the lock file cannot be written; 60018.
    pub(super) fn take(database: &Path) -> Result<Self> {
        let path = lock_path(database);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| unwritable(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(owned(database, &mut file)),
            Err(TryLockError::Error(error)) => return Err(unwritable(&path, error)),
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let note = format!("pid {} since {since}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(note.as_bytes()))
            .map_err(|error| unwritable(&path, error))?;
        Ok(Self(file))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The file stays: removing it would let two processes lock two files of the same name.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".owner");
    PathBuf::from(name)
}

fn owned(database: &Path, file: &mut File) -> Error {
    let mut note = String::new();
    let _ = file.read_to_string(&mut note);
    let mut words = note.split_whitespace().skip(1);
    let who = match words.next().and_then(|pid| pid.parse::<u32>().ok()) {
        Some(pid) if pid == std::process::id() => format!("this process (pid {pid}) has it open already"),
        Some(pid) => {
            let since = words.nth(1).and_then(|since| since.parse::<i64>().ok());
            let since = since.and_then(|since| jiff::Timestamp::from_second(since).ok());
            let since = since.map_or(String::new(), |since| format!(", since {since}"));
            format!("process {pid} owns it{since}")
        }
        None => "another process owns it".to_owned(),
    };
    Error::new(
        Code::STORE_OWNED,
        format!(
            "database '{}' cannot be opened: {who}; close it there, or read it here without owning it",
            database.display()
        ),
    )
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Code::STORE_READ_ONLY,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::STORE_FULL,
        _ => Code::STORE_IO,
    };
    Error::new(code, format!("lock file '{}' cannot be written: {error}", path.display())).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let first = Owner::take(&database).unwrap();
        let error = Owner::take(&database).unwrap_err();
        assert_eq!(error.code(), Code::STORE_OWNED);
        assert!(error.message().contains(&std::process::id().to_string()), "{error}");
        drop(first);
        Owner::take(&database).unwrap();
    }

    #[test]
    fn a_missing_folder_is_an_error_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let error = Owner::take(&folder.path().join("nowhere/a.db")).unwrap_err();
        assert_eq!(error.code(), Code::STORE_IO);
    }
}
