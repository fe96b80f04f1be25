//! Every write and every sync of SQLite fails in turn, is torn, or is the moment at which the power goes.
//!
//! A disk under SQLite counts its operations: from the opening over a load to the close, recovery and the folding of the log
//! included. After each fault the file is opened again, as the process or the machine would find it.
//!
//! `DIALOQ_DISK=all` strikes at every operation; by default at a few of each kind.

use crate::faults::{Acknowledged, assert_kept, load, prepare};
use crate::shop::{began, bodies, definitions, dialog, options, receive, send};
use dialoq::Code;
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::{SharedStore, SqliteStore};
use dialoq::protocol::Verb;
use dialoq_test_vfs::{Disk, Fault, NAME};
use std::path::Path;

/// Strikes once; false if the load was over before.
async fn strike(prepared: &Path, fault: Fault, nth: u64) -> bool {
    let (folder, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().canonicalize().unwrap().join("a.db");
    for entry in std::fs::read_dir(prepared).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), path.with_file_name(entry.file_name())).unwrap();
    }
    let disk = Disk::under(folder.path(), fault, nth);
    let mut done = Acknowledged::default();
    let opened = SqliteStore::open({
        let mut options = options(&path);
        options.vfs = Some(NAME.to_owned());
        options
    });
    let what = format!("{fault:?} at operation {nth}");
    let is_expected =
        |code: Code| [Code::STORE_IO, Code::STORE_FULL, Code::STORE_POISONED, Code::STORE_READ_ONLY].contains(&code);
    match opened {
        Ok(store) => {
            let ended = load(&store, &mut done).await;
            let closed = store.close().await;
            if let (Ok(()), Err(failure)) = (&ended, &closed) {
                // Everything was acknowledged before, and the caller would take its work for undone.
                assert_eq!(failure.code(), Code::STORE_POISONED, "{what}: only the close has failed: {failure}");
            }
            if let Some(failure) = ended.err().or(closed.err()) {
                assert!(disk.has_struck(), "{what}: {failure}");
                assert!(is_expected(failure.code()), "{what}: {failure}");
            }
        }
        Err(failure) => assert!(disk.has_struck() && is_expected(failure.code()), "{what}: {failure}"),
    }
    let has_struck = disk.has_struck();
    disk.image(after.path());
    assert_kept(&after.path().join("a.db"), &done).await;
    if fault == Fault::Fail {
        // The process goes on: the file itself must be as good as the image.
        assert_kept(&path, &done).await;
    }
    has_struck
}

async fn strike_at_many(fault: Fault, limit: &dialoq_test_support::limit::Limit) {
    let prepared = tempfile::tempdir().unwrap();
    prepare(&prepared.path().join("a.db")).await;
    let is_exhaustive = std::env::var("DIALOQ_DISK").is_ok_and(|asked| asked == "all");
    // Steps without a common factor with the operations of one commit, so that each kind is met.
    let step = if is_exhaustive { 1 } else { 13 };
    let mut nth = 1;
    while strike(prepared.path(), fault, nth).await {
        nth += step;
        limit.doing(format!("{fault:?} at operation {nth}"));
    }
    assert!(nth > 60, "the load took only {nth} operations of the disk");
}

#[tokio::test]
async fn an_operation_of_the_disk_that_fails_costs_nothing_acknowledged() {
    let _limit = crate::limit();
    strike_at_many(Fault::Fail, &_limit).await;
}

#[tokio::test]
async fn a_torn_write_costs_nothing_acknowledged() {
    let _limit = crate::limit();
    strike_at_many(Fault::Tear, &_limit).await;
}

#[tokio::test]
async fn a_loss_of_power_costs_nothing_acknowledged() {
    let _limit = crate::limit();
    strike_at_many(Fault::Lose, &_limit).await;
}

#[tokio::test]
async fn a_loss_of_power_that_keeps_every_other_write_costs_nothing_acknowledged() {
    let _limit = crate::limit();
    strike_at_many(Fault::Mix, &_limit).await;
}

/// Strikes while a new file is made; false if it was made before.
async fn strike_first_opening(fault: Fault, nth: u64) -> bool {
    let (folder, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let disk = Disk::under(folder.path(), fault, nth);
    let opened = SqliteStore::open({
        let mut options = options(&path);
        options.vfs = Some(NAME.to_owned());
        options
    });
    let is_made = opened.is_ok();
    drop(opened);
    disk.image(after.path());
    let what = format!("{fault:?} at operation {nth}");
    let mut paths = vec![after.path().join("a.db")];
    if fault == Fault::Fail {
        paths.push(path);
    }
    for path in paths {
        let store = SqliteStore::open(options(&path)).unwrap_or_else(|error| panic!("{what}: {error}"));
        store.submit(vec![Verb::Define(definitions())]).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(store.repairs().is_empty(), "{what}: {:?}", store.repairs());
        store.close().await.unwrap();
    }
    !is_made || disk.has_struck()
}

#[tokio::test]
async fn a_file_whose_first_opening_is_cut_short_at_any_place_can_be_opened() {
    let limit = crate::limit();
    let step = if std::env::var("DIALOQ_DISK").is_ok_and(|asked| asked == "all") { 1 } else { 3 };
    for fault in [Fault::Fail, Fault::Tear, Fault::Lose, Fault::Mix] {
        let mut nth = 1;
        while strike_first_opening(fault, nth).await {
            nth += step;
            limit.doing(format!("{fault:?} at operation {nth}"));
            assert!(nth < 10_000, "the opening ends");
        }
        assert!(nth > 5, "{fault:?}: the opening took only {nth} operations of the disk");
    }
}

/// The disk has room for the log of a commit and none for its index: SQLite calls that an error of the disk, and another opening may find
/// the commit in the log.
#[tokio::test]
async fn a_full_disk_that_the_index_of_the_log_meets_is_waited_for() {
    let _limit = crate::limit();
    /// A log of 4062 pages needs a second region of the index.
    const PAGES: usize = 1500;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let disk = Disk::under(folder.path(), Fault::Fail, u64::MAX);
    let mut options = options(&path);
    options.vfs = Some(NAME.to_owned());
    disk.limit_index(Some(0));
    let refusal = SharedStore::open(options.clone()).err().expect("the index has no room");
    assert_eq!(refusal.code(), Code::STORE_FULL, "{refusal}");
    disk.limit_index(Some(1));
    let store = SharedStore::open(options).unwrap();
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    let opened = store.submit(vec![dialog("b")]).await.unwrap();
    let handle = began(&opened[0]);
    let mut sent = 0;
    let failure = loop {
        match store.submit(vec![send(handle, &"x".repeat(PAGES * 4096))]).await {
            Ok(_) => sent += 1,
            Err(failure) => break failure,
        }
        assert!(sent < 9, "the log passes 4062 pages before it is emptied");
    };
    assert_eq!(failure.code(), Code::COMMIT_UNKNOWN, "{failure}");
    assert!(store.ended().is_none(), "the file is opened again");
    store.submit(vec![send(handle, "after")]).await.unwrap();
    let received = store.submit(vec![receive(100)]).await.unwrap();
    let lengths: Vec<_> = bodies(&received[0]).iter().map(String::len).collect();
    let large = lengths.len() - 1;
    assert!((sent..=sent + 1).contains(&large), "{sent} acknowledged, {large} received");
    assert_eq!((lengths[0], lengths[large]), (PAGES * 4096, "after".len()));
    store.close().await.unwrap();
}
