//! One owner, by a lock on the database itself; a refused opening changes nothing for the owner.

use crate::shop::{began, definitions, dialog, open, options, send};
use crate::{elsewhere, is_free};
use dialoq::internals::store::Seen;
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::SqliteStore;
use dialoq::protocol::Verb;
use dialoq::{Code, ConversationHandle};
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::process::Command;
use std::sync::Arc;

async fn broker(path: &Path) -> (Arc<SqliteStore>, ConversationHandle) {
    let store = open(path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    store.submit(vec![send(handle, "one")]).await.unwrap();
    (store, handle)
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The locks of SQLite that this process holds on the database file.
#[cfg(target_os = "linux")]
fn locks(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let process = format!(" {} ", std::process::id());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().filter(|lock| lock.contains("POSIX") && lock.contains(&inode) && lock.contains(&process)).count()
}

/// Another process writes to its own table and closes the file. Had the owner lost its lock, that process would take itself
/// for the last one and delete the log under the owner.
async fn assert_log_is_kept(path: &Path, store: &SqliteStore, handle: ConversationHandle, after: &str) {
    #[cfg(target_os = "linux")]
    assert_eq!(locks(path), 1, "{after}: the owner has lost its lock");
    let log = sibling(path, "-wal");
    assert!(log.exists(), "{after}");
    assert_eq!(elsewhere(path, "write"), "written", "{after}");
    assert!(log.exists(), "{after}: the log was deleted under its owner");
    store.submit(vec![send(handle, "two")]).await.unwrap();
    assert_eq!(elsewhere(path, "count"), "2", "{after}: what the owner writes is not seen by others");
}

#[cfg(unix)]
#[tokio::test]
async fn a_refused_second_opening_keeps_the_locks_of_the_owner() {
    let _limit = crate::limit();
    type Name = fn(&Path) -> PathBuf;
    let names: [(&str, Name); 5] = [
        ("the same name", Path::to_path_buf),
        ("a symbolic link", |path| {
            let link = path.with_file_name("symbolic.db");
            std::os::unix::fs::symlink(path, &link).unwrap();
            link
        }),
        ("a hard link", |path| {
            let link = path.with_file_name("hard.db");
            std::fs::hard_link(path, &link).unwrap();
            link
        }),
        ("a dotted name", |path| {
            path.parent().unwrap().join(".").join("..").join(path.parent().unwrap().file_name().unwrap()).join("a.db")
        }),
        ("a linked folder", |path| {
            let folder = path.parent().unwrap();
            let link = folder.join("folder");
            std::os::unix::fs::symlink(folder, &link).unwrap();
            link.join("a.db")
        }),
    ];
    for (what, name) in names {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let (store, handle) = broker(&path).await;
        let error = SqliteStore::open(options(&name(&path))).err().expect(what);
        assert_eq!(error.code(), Code::STORE_OWNED, "{what}");
        assert_log_is_kept(&path, &store, handle, what).await;
    }
}

#[tokio::test]
async fn a_reader_in_the_process_of_the_owner_keeps_its_locks() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, handle) = broker(&path).await;
    drop(SqliteStore::open_read_only(options(&path)).unwrap());
    assert_log_is_kept(&path, &store, handle, "a reader came and went").await;
}

#[tokio::test]
async fn a_refused_opening_by_another_process_changes_nothing() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, handle) = broker(&path).await;
    assert_eq!(elsewhere(&path, "own"), "60010");
    assert_log_is_kept(&path, &store, handle, "another process was refused").await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn removing_the_owner_file_lets_no_second_owner_in() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, handle) = broker(&path).await;
    std::fs::remove_file(sibling(&path, ".owner")).unwrap();
    assert_eq!(elsewhere(&path, "own"), "60010");
    assert_eq!(SqliteStore::open(options(&path)).err().unwrap().code(), Code::STORE_OWNED);
    assert_log_is_kept(&path, &store, handle, "the owner's file was removed").await;
    let link = path.with_file_name("hard.db");
    std::fs::hard_link(&path, &link).unwrap();
    assert_eq!(elsewhere(&link, "own"), "60010", "by another name of the same file");
}

/// SQLite names the index of its log after the database. A second connection of this process would cut it off under the
/// first one: SIGBUS.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_replaced_is_refused_while_this_process_has_the_first_one_open() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("a.db"), folder.path().join("aside"));
    let (store, handle) = broker(&path).await;
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, "this is no database, and long enough to be seen as such by all who read it").unwrap();
    let error = SqliteStore::open(options(&path)).err().expect("it is refused");
    assert_eq!(error.code(), Code::STORE_OWNED, "{error}");
    assert!(error.message().contains("that was there before"), "{error}");
    assert_eq!(SqliteStore::open_read_only(options(&path)).err().expect("to read, too").code(), Code::STORE_OWNED);
    std::fs::rename(&aside, &path).unwrap();
    assert_log_is_kept(&path, &store, handle, "another file was in its place").await;
}

/// Messages were acknowledged that no process could read, after a copy had been moved over the file or the file had been deleted.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_takes_nothing_more() {
    let _limit = crate::limit();
    for is_replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a.db"), folder.path().join("other"));
        let (store, handle) = broker(&path).await;
        std::fs::write(&other, "another file").unwrap();
        if is_replaced {
            std::fs::rename(&other, &path).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        // The store looks each tenth of a second.
        let refused = loop {
            if let Err(refused) = store.submit(vec![send(handle, "lost")]).await {
                break refused;
            }
        };
        // The writer may find it before a caller does, whose refusal names the first failure then.
        assert!([Code::STORE_IO, Code::STORE_POISONED].contains(&refused.code()), "{refused}");
        assert!(refused.message().contains("has deleted database"), "{refused}");
        let refused = store.submit(vec![send(handle, "lost")]).await.unwrap_err();
        assert_eq!(refused.code(), Code::STORE_POISONED, "{refused}");
        assert!(store.close().await.is_err(), "a close says that it is lost");
        assert_eq!(path.exists(), is_replaced, "no file was made");
    }
}

/// It was emptied: a database of that name, and a file of which it is another name.
#[tokio::test]
async fn what_is_no_owner_file_stays_in_its_place() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let other = sibling(&path, ".owner");
    drop(open(&other));
    let before = std::fs::read(&other).unwrap();
    assert!(!before.is_empty());
    let error = SqliteStore::open(options(&path)).err().expect("it is refused");
    assert_eq!(error.code(), Code::STORE_FOREIGN);
    assert!(error.message().contains("no lock file"), "{error}");
    assert_eq!(std::fs::read(&other).unwrap(), before);
    std::fs::remove_file(&other).unwrap();
    drop(open(&path));
    // What another process has left there.
    for left in ["pid 1 since 7 shared\n", "", "pi", "\0\0\0\0\0\0\0\0"] {
        std::fs::write(&other, left).unwrap();
        drop(open(&path));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_symbolic_link_in_the_place_of_the_owner_file_is_refused_and_not_followed() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("a.db"), folder.path().join("victim"));
    let link = sibling(&path, ".owner");
    for content in [None, Some("kept")] {
        if let Some(content) = content {
            std::fs::write(&victim, content).unwrap();
        }
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let error = SqliteStore::open(options(&path)).err().expect("it is refused");
        assert_eq!(error.code(), Code::STORE_FOREIGN);
        assert!(error.message().contains("symbolic link"), "{error}");
        assert_eq!(std::fs::read_to_string(&victim).ok().as_deref(), content);
        std::fs::remove_file(&link).unwrap();
    }
    drop(open(&path));
}

/// SQLite names its log after the database: after a crash, an opening by the other name would not find it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_database_that_is_mounted_without_its_folder_is_refused() {
    let _limit = crate::limit();
    /// Ends the mount, also of a test that fails.
    struct Mount(PathBuf);
    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, name) = (folder.path().join("a.db"), folder.path().join("mounted.db"));
    let (store, _) = broker(&path).await;
    store.close().await.unwrap();
    drop(store);
    std::fs::write(&name, "").unwrap();
    let mounted = Command::new("mount").arg("--bind").args([&path, &name]).output();
    // Only root may mount.
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return;
    }
    let mount = Mount(name.clone());
    let to_read = SqliteStore::open_read_only(options(&name)).err();
    for error in [SqliteStore::open(options(&name)).err(), to_read] {
        let error = error.expect("it is refused");
        assert_eq!(error.code(), Code::STORE_FOREIGN);
        assert!(error.message().contains("is mounted by itself"), "{error}");
    }
    assert!(!sibling(&name, "-wal").exists());
    drop(open(&path));
    drop(mount);
}

/// SQLite names its log after the database: after a crash, an opening by the other name would not find it.
#[cfg(unix)]
#[tokio::test]
async fn a_database_with_two_hard_links_is_refused_until_one_is_removed() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("a.db"), folder.path().join("hard.db"));
    let (store, _) = broker(&path).await;
    store.close().await.unwrap();
    drop(store);
    std::fs::hard_link(&path, &link).unwrap();
    let before = std::fs::read(&path).unwrap();
    for name in [&path, &link] {
        let error = SqliteStore::open(options(name)).err().expect("it is refused");
        assert_eq!(error.code(), Code::STORE_FOREIGN);
        assert!(error.message().contains("2 hard links"), "{error}");
        assert!(!sibling(name, "-wal").exists());
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::remove_file(&link).unwrap();
    drop(open(&path));
}

#[tokio::test]
async fn a_closed_broker_owns_nothing_even_if_a_transaction_of_it_lives_on() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, handle) = broker(&path).await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(handle, "never")).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(elsewhere(&path, "own"), "owned");
    let before = std::fs::read(&path).unwrap();
    drop(tx);
    store.close().await.unwrap();
    drop(store);
    assert_eq!(std::fs::read(&path).unwrap(), before, "nothing is written to a file of another owner");
}

/// The application may read and write its own tables through a connection of its own.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_closed_broker_keeps_the_locks_of_other_connections_of_its_process() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, _) = broker(&path).await;
    let mine = rusqlite::Connection::open(&path).unwrap();
    mine.execute_batch("create table if not exists mine (n)").unwrap();
    store.close().await.unwrap();
    drop(store);
    mine.execute_batch("insert into mine values (7)").unwrap();
    let log = sibling(&path, "-wal");
    assert!(log.exists());
    assert_eq!(elsewhere(&path, "write"), "written");
    assert!(log.exists(), "the log was deleted under a connection of this process");
    assert_eq!(elsewhere(&path, "own"), "owned", "the broker's own lock is gone");
    assert!(is_free(&path));
    drop(mine);
    drop(open(&path));
}

/// The messages that another process would find in the file after a kill, if the log is not found.
fn messages_in_a_copy(path: &Path) -> i64 {
    let copy = path.with_file_name("copy.db");
    std::fs::copy(path, &copy).unwrap();
    let connection = rusqlite::Connection::open(&copy).unwrap();
    connection.query_row("select count(*) from dialoq_queue_message", [], |row| row.get(0)).unwrap()
}

/// Sends until the store refuses it; gives the refusal, and how many messages were acknowledged.
async fn sent_until_refused(store: &SqliteStore, handle: ConversationHandle) -> (dialoq::Error, i64) {
    let started = std::time::Instant::now();
    for acknowledged in 0.. {
        if let Err(refused) = store.submit(vec![send(handle, "acknowledged")]).await {
            return (refused, acknowledged);
        }
        assert!(started.elapsed().as_secs() < 30, "the broker does not notice it");
    }
    unreachable!("it was noticed")
}

/// All that was acknowledged since the last checkpoint was lost when the process was killed afterwards. It was in a log without a
/// name. If only the index was deleted, a reader made another one, which did not show it, and the next owner wrote over it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_in_a_log_that_was_deleted_goes_into_the_file() {
    let _limit = crate::limit();
    for ending in ["-wal", "-shm"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let (store, handle) = broker(&path).await;
        store.submit(vec![send(handle, "acknowledged")]).await.unwrap();
        std::fs::remove_file(sibling(&path, ending)).unwrap();
        let (refused, acknowledged) = sent_until_refused(&store, handle).await;
        assert!(refused.message().contains(&format!("a.db{ending}")), "{refused}");
        assert_eq!(messages_in_a_copy(&path), 2 + acknowledged, "{ending}");
        drop(store);
        drop(open(&path));
    }
}

/// One program that read at that moment was enough to lose it all.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_reader_holds_up_the_rescue_of_a_log_that_was_deleted() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, handle) = broker(&path).await;
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("begin; select count(*) from dialoq_queue_message").unwrap();
    store.submit(vec![send(handle, "acknowledged")]).await.unwrap();
    std::fs::remove_file(sibling(&path, "-wal")).unwrap();
    let reading = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(2));
        reader.execute_batch("rollback").unwrap();
        reader
    });
    let (_, acknowledged) = sent_until_refused(&store, handle).await;
    assert_eq!(messages_in_a_copy(&path), 2 + acknowledged);
    drop(reading.join());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_store_that_writes_nothing_notices_that_its_log_was_deleted() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (store, _) = broker(&path).await;
    std::fs::remove_file(sibling(&path, "-wal")).unwrap();
    let started = std::time::Instant::now();
    let refused = loop {
        if let Some(refused) = store.begin(Seen::always()).await.err() {
            break refused;
        }
        assert!(started.elapsed().as_secs() < 30, "the broker does not notice it");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(refused.message().contains("a.db-wal"), "{refused}");
    assert_eq!(messages_in_a_copy(&path), 1);
}

/// The log and its index have the name of the path. Once a file had been moved away and another one had got its name, the other one
/// was read with the log of the first.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_gets_the_name_of_one_that_was_moved_away_is_not_read_with_its_log() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let [path, away, saved] = ["a.db", "away.db", "saved.db"].map(|name| folder.path().join(name));
    let (store, handle) = broker(&path).await;
    store.close().await.unwrap();
    drop(store);
    std::fs::copy(&path, &saved).unwrap();
    let store = SqliteStore::open(options(&path)).unwrap();
    store.submit(vec![send(handle, "acknowledged")]).await.unwrap();
    std::fs::rename(&path, &away).unwrap();
    std::fs::rename(&saved, &path).unwrap();
    let refused = loop {
        if let Err(refused) = store.submit(vec![send(handle, "in the file that was moved away")]).await {
            break refused;
        }
    };
    assert!(refused.message().contains("has deleted database"), "{refused}");
    assert_eq!(std::fs::metadata(sibling(&path, "-wal")).unwrap().len(), 0, "the log of the other file");
    drop(store);
    let messages = |path: &Path| {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.query_row("select count(*) from dialoq_queue_message", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert!(messages(&away) > messages(&path), "what was acknowledged is in the file that was moved away");
}

/// A pipe has no end: the opening read it for ever.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_pipe_in_the_place_of_the_owner_file_is_refused() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let pipe = sibling(&path, ".owner");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(SqliteStore::open(options(&path)).is_err());
    std::fs::remove_file(&pipe).unwrap();
    drop(open(&path));
}
