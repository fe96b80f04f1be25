//! Where a connection that reads sorts what is large.

use rusqlite::Connection;

/// Lets a connection keep in memory what it sorts if no folder can have temporary files, as in a container whose root may only be
/// read. `doctor`, `status` and lists of jobs failed there with "disk I/O error" from some 40,000 rows on.
pub(super) fn set(connection: &Connection) -> rusqlite::Result<()> {
    if has_folder(folders()) { Ok(()) } else { connection.pragma_update(None, "temp_store", "MEMORY") }
}

/// The folders in which SQLite tries to make temporary files.
#[cfg(unix)]
fn folders() -> impl Iterator<Item = std::path::PathBuf> {
    let named = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().filter_map(std::env::var_os);
    let fixed = ["/var/tmp", "/usr/tmp", "/tmp", "."].into_iter().map(Into::into);
    named.chain(fixed).map(Into::into)
}

#[cfg(unix)]
fn has_folder(mut folders: impl Iterator<Item = std::path::PathBuf>) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    folders.any(|folder| folder.is_dir() && accessat(CWD, &folder, wanted, AtFlags::EACCESS).is_ok())
}

/// Windows gives each user one.
#[cfg(not(unix))]
fn folders() -> std::iter::Empty<std::path::PathBuf> {
    std::iter::empty()
}

#[cfg(not(unix))]
fn has_folder(_: std::iter::Empty<std::path::PathBuf>) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_temporary_files_is_one_that_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(!has_folder([file.clone(), folder.path().join("missing")].into_iter()));
        assert!(has_folder([file, folder.path().to_owned()].into_iter()));
        assert!(has_folder(folders()), "the tests have one");
    }
}
