//! What a guest meets when it takes over, and when it comes back from it.

use crate::{DEFINITIONS, Other, PATIENCE, Place, received, run, send};
use dialoq::{Act, Broker, Code};
use std::time::Duration;

#[test]
fn an_obstacle_to_a_take_over_that_passes_is_waited_for() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let guest = place.open().await;
        // The lock file cannot be written while a folder has its name.
        let note = place.path.with_extension("db.owner");
        std::fs::remove_file(&note).unwrap();
        std::fs::create_dir(&note).unwrap();
        owner.kill();
        let sending = tokio::spawn({
            let guest = guest.clone();
            async move { send(&guest, "waits").await }
        });
        // Its first attempts to own the file have failed when the log of the killed owner is still there.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        std::fs::remove_dir(&note).unwrap();
        // The call of that moment may have been under way to the killed owner.
        match sending.await.unwrap() {
            Err(error) if error.code() == Code::OWNER_GONE => send(&guest, "waits").await.unwrap(),
            done => done.unwrap(),
        }
        assert_eq!(received(&guest).await, ["waits"]);
    });
}

/// It went to the file that the link named by then, and did its work.
#[cfg(unix)]
#[test]
fn a_take_over_means_the_file_of_the_opening_whatever_its_link_names_by_then() {
    run(async || {
        let (place, other) = (Place::new(), Place::new());
        let owner = place.defined().await;
        let elsewhere = other.defined().await;
        send(&elsewhere, "in another file").await.unwrap();
        elsewhere.close().await.unwrap();
        let link = place.path.with_file_name("link.db");
        std::os::unix::fs::symlink(&place.path, &link).unwrap();
        let guest = Broker::open(&format!("sqlite:{}", link.display())).await.unwrap();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other.path, &link).unwrap();
        owner.close().await.unwrap();
        send(&guest, "in the file of the opening").await.unwrap();
        assert_eq!(received(&guest).await, ["in the file of the opening"]);
        assert_eq!(received(&other.open().await).await, ["in another file"]);
    });
}

/// It did the work of the file that the link named, or owned the file at a path where no other process looked for it.
#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_the_file_is_not_taken_over() {
    run(async || {
        let (place, other) = (Place::new(), Place::new());
        let owner = place.defined().await;
        other.defined().await.close().await.unwrap();
        let guest = place.open().await;
        let kept = place.path.with_extension("kept");
        std::fs::rename(&place.path, &kept).unwrap();
        std::os::unix::fs::symlink(&other.path, &place.path).unwrap();
        // An error if the owner has seen it already.
        let _ = owner.close().await;
        let error = loop {
            match send(&guest, "to the file of the opening").await {
                Err(error) if error.code() == Code::OWNER_GONE => {}
                done => break done.unwrap_err(),
            }
        };
        assert!(error.code() == Code::STORE_IO && error.message().contains("has taken its place"), "{error}");
        std::fs::remove_file(&place.path).unwrap();
        std::fs::rename(&kept, &place.path).unwrap();
        while send(&guest, "to the file of the opening").await.is_err() {}
        assert_eq!(received(&guest).await, ["to the file of the opening"]);
    });
}

/// A report on a job of the file that was opened completed one of the other file.
#[cfg(unix)]
#[test]
fn another_file_in_the_place_of_the_file_is_not_taken_over() {
    run(async || {
        let (place, other) = (Place::new(), Place::new());
        let owner = place.defined().await;
        other.defined().await.close().await.unwrap();
        let guest = place.open().await;
        let kept = place.path.with_extension("kept");
        std::fs::rename(&place.path, &kept).unwrap();
        std::fs::rename(&other.path, &place.path).unwrap();
        // It looks at the file every 100 ms.
        while owner.execute("ALTER QUEUE [to] WITH RETENTION = OFF").await.is_ok() {}
        let _ = owner.close().await;
        let error = loop {
            match send(&guest, "to the file of the opening").await {
                Err(error) if error.code() == Code::OWNER_GONE => {}
                done => break done.unwrap_err(),
            }
        };
        assert!(
            error.code() == Code::STORE_IO && error.message().contains("another file has taken its place"),
            "{error}"
        );
        std::fs::rename(&place.path, &other.path).unwrap();
        std::fs::rename(&kept, &place.path).unwrap();
        while send(&guest, "to the file of the opening").await.is_err() {}
        assert_eq!(received(&guest).await, ["to the file of the opening"]);
        assert!(other.open().await.receive("to").await.unwrap().is_none());
    });
}

#[test]
fn a_guest_that_the_next_owner_refuses_works_through_the_one_after() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let mut guest = Other::start(&place.path, "send");
        assert_eq!(guest.send("through the first"), "sent");
        guest.signal("STOP");
        owner.kill();
        // It keeps less than the guest asked for.
        let next = Broker::open(&format!("{}?durability=normal", place.url())).await.unwrap();
        guest.signal("CONT");
        let mut answer = guest.send("refused");
        if answer.contains("60046") {
            answer = guest.send("refused");
        }
        assert!(answer.contains("60010") && answer.contains("durability=normal"), "{answer}");
        next.close().await.unwrap();
        // It owns the file once it has tried again.
        while guest.send("by itself") != "sent" {}
        drop(guest);
        let last = place.open().await;
        let mut bodies = Vec::new();
        while let Some(batch) = last.receive("to").await.unwrap() {
            bodies.extend(batch.messages().iter().map(|message| String::from_utf8_lossy(message.body()).into_owned()));
        }
        assert_eq!(bodies, ["through the first", "by itself"]);
    });
}

#[test]
fn an_owner_without_a_socket_says_so_at_once_and_makes_it_later() {
    run(async || {
        let place = Place::new();
        std::fs::create_dir(place.socket()).unwrap();
        let owner = place.defined().await;
        let error = Broker::open(&place.url()).await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_OWNED, "{error}");
        assert!(error.message().contains("socket"), "{error}");
        std::fs::remove_dir(place.socket()).unwrap();
        let guest = loop {
            match Broker::open(&place.url()).await {
                Ok(guest) => break guest,
                Err(error) => assert_eq!(error.code(), Code::STORE_OWNED, "{error}"),
            }
        };
        send(&guest, "through the owner").await.unwrap();
        assert_eq!(received(&owner).await, ["through the owner"]);
    });
}

#[test]
fn a_socket_that_was_deleted_is_made_again() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let before = place.open().await;
        std::fs::remove_file(place.socket()).unwrap();
        std::fs::remove_file(place.path.with_extension("db.owner")).unwrap();
        let after = loop {
            match Broker::open(&place.url()).await {
                Ok(guest) => break guest,
                Err(error) => assert_eq!(error.code(), Code::STORE_OWNED, "{error}"),
            }
        };
        for guest in [&before, &after] {
            send(guest, "through the owner").await.unwrap();
            assert_eq!(received(&owner).await, ["through the owner"]);
        }
    });
}

#[test]
fn a_lock_file_that_was_deleted_is_made_again() {
    run(async || {
        let place = Place::new();
        let _owner = place.defined().await;
        let note = place.path.with_extension("db.owner");
        let text = std::fs::read_to_string(&note).unwrap();
        let who = text.split(" since").next().unwrap().to_owned();
        std::fs::remove_file(&note).unwrap();
        // It keeps other processes from a file that is put in the place of this one, whose log they would read with it.
        while !std::fs::read_to_string(&note).is_ok_and(|text| text.starts_with(&who) && text.contains("shared")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn processes_with_other_folders_for_temporary_files_share_a_file_with_a_long_path() {
    run(async || {
        let folder = tempfile::TempDir::new().unwrap();
        let deep = folder.path().join("a".repeat(60)).join("b".repeat(60));
        let temporary = folder.path().join("t");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir_all(&temporary).unwrap();
        let url = format!("sqlite:{}", deep.join("a.db").display());
        let owner = Broker::open(&url).await.unwrap();
        owner.execute(DEFINITIONS).await.unwrap();
        let mut guest = Other::start_on(&url, "send", &[("TMPDIR", &temporary)]);
        assert_eq!(guest.send("from there"), "sent");
        assert_eq!(received(&owner).await, ["from there"]);
    });
}

#[test]
fn the_file_of_an_owner_whose_store_has_failed_goes_to_a_guest() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        send(&guest, "changed by another program").await.unwrap();
        let other = rusqlite::Connection::open(&place.path).unwrap();
        other.execute("delete from dialoq_queue_message", []).unwrap();
        drop(other);
        let error = owner.receive("to").await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_CHANGED, "{error}");
        // The guest may still have met the owner that has failed.
        while let Err(error) = send(&guest, "goes on").await {
            assert!([Code::STORE_POISONED, Code::OWNER_GONE].contains(&error.code()), "{error}");
        }
        assert_eq!(received(&guest).await, ["goes on"]);
        assert_eq!(send(&owner, "refused").await.unwrap_err().code(), Code::STORE_POISONED);
        assert_eq!(owner.sql("CREATE TABLE t (n)", ()).await.unwrap_err().code(), Code::STORE_POISONED);
        assert_eq!(owner.close().await.unwrap_err().code(), Code::STORE_POISONED);
        let again = place.open().await;
        send(&again, "through the guest").await.unwrap();
        assert_eq!(received(&guest).await, ["through the guest"]);
    });
}

#[test]
fn waits_of_a_guest_go_on_when_the_store_of_the_owner_has_failed() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        owner.execute("CREATE WORK QUEUE jobs").await.unwrap();
        let guest = place.open().await;
        let dialog = guest.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        guest.send(dialog, "DEFAULT", "changed by another program").await.unwrap();
        let (tx, open) = (guest.begin().await.unwrap(), guest.begin().await.unwrap());
        open.send(dialog, "DEFAULT", "rolled back").await.unwrap();
        let of_tx = tokio::spawn(async move {
            let batch = tx.receive("from").wait_forever().await?;
            tx.commit().await?;
            Ok::<_, dialoq::Error>(batch)
        });
        let (receiver, reader) = (guest.clone(), guest.clone());
        let alone = tokio::spawn(async move { receiver.receive("from").wait_forever().await });
        let taking = tokio::spawn(async move { reader.take_jobs("jobs").wait_forever().await });
        while guest.sessions_waiting("from") < 2 || guest.sessions_waiting("#jobs") < 1 {
            tokio::task::yield_now().await;
        }
        let other = rusqlite::Connection::open(&place.path).unwrap();
        other.execute("delete from dialoq_queue_message", []).unwrap();
        drop(other);
        let error = owner.receive("to").await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_CHANGED, "{error}");
        assert_eq!(open.commit().await.unwrap_err().code(), Code::OWNER_GONE, "its work is rolled back");
        // The guest owns the file now.
        guest.push_job("jobs", b"a job").await.unwrap();
        assert_eq!(taking.await.unwrap().unwrap().len(), 1);
        for _ in 0..2 {
            let dialog = guest.begin_dialog("sender", "receiver").contract("C").await.unwrap();
            guest.timer(dialog, Duration::from_secs(1)).await.unwrap();
        }
        assert!(of_tx.await.unwrap().unwrap().is_some());
        assert!(alone.await.unwrap().unwrap().is_some());
    });
}

#[test]
fn processes_find_the_owner_in_a_folder_that_was_renamed() {
    run(async || {
        let folder = tempfile::TempDir::new().unwrap();
        let (before, after) = (folder.path().join("before"), folder.path().join("after"));
        std::fs::create_dir(&before).unwrap();
        let owner = Broker::open(&format!("sqlite:{}", before.join("a.db").display())).await.unwrap();
        owner.execute(DEFINITIONS).await.unwrap();
        std::fs::rename(&before, &after).unwrap();
        let url = format!("sqlite:{}", after.join("a.db").display());
        // Over the second after which the owner looks after its socket.
        let started = std::time::Instant::now();
        while started.elapsed() < std::time::Duration::from_millis(1500) {
            let guest = Broker::open(&url).await.unwrap();
            send(&guest, "by the new name").await.unwrap();
            assert_eq!(received(&owner).await, ["by the new name"]);
            guest.close().await.unwrap();
        }
    });
}

/// A RECEIVE in a transaction was refused with 60018: it wanted another connection by the old name.
#[test]
fn the_owner_in_a_folder_that_was_renamed_goes_on() {
    run(async || {
        let folder = tempfile::TempDir::new().unwrap();
        let (before, after) = (folder.path().join("before"), folder.path().join("after"));
        std::fs::create_dir(&before).unwrap();
        let url = format!("sqlite:{}", before.join("a.db").display());
        let broker = Broker::open(&url).await.unwrap();
        broker.execute(DEFINITIONS).await.unwrap();
        send(&broker, "old").await.unwrap();
        broker.close().await.unwrap();
        // The message is in no memory.
        let owner = Broker::open(&url).await.unwrap();
        std::fs::rename(&before, &after).unwrap();
        let tx = owner.begin().await.unwrap();
        let batch = tx.receive("to").await.unwrap().expect("a message waits");
        assert_eq!(batch.first().body(), b"old".as_slice());
        tx.sql("CREATE TABLE mine (n)", ()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(owner.sql("INSERT INTO mine VALUES (1)", ()).await.unwrap(), 1);
        owner.close().await.unwrap();
    });
}

#[test]
fn the_owner_of_a_folder_that_was_moved_away_leaves_its_name_to_the_next_one() {
    run(async || {
        let folder = tempfile::TempDir::new().unwrap();
        let [name, next, away] = ["name", "next", "away"].map(|name| folder.path().join(name));
        for folder in [&name, &next] {
            std::fs::create_dir(folder).unwrap();
            let broker = Broker::open(&format!("sqlite:{}", folder.join("a.db").display())).await.unwrap();
            broker.execute(DEFINITIONS).await.unwrap();
            broker.close().await.unwrap();
        }
        let mut owner = Other::start(&name.join("a.db"), "own");
        std::fs::rename(&name, &away).unwrap();
        std::fs::rename(&next, &name).unwrap();
        // Over the second after which the owner looks after its socket.
        let started = std::time::Instant::now();
        while started.elapsed() < std::time::Duration::from_millis(1500) && !name.join("a.db.socket").exists() {
            tokio::task::yield_now().await;
        }
        let broker = Broker::open(&format!("sqlite:{}", name.join("a.db").display())).await.unwrap();
        send(&broker, "by the name").await.unwrap();
        broker.close().await.unwrap();
        owner.kill();
        let waiting = async |folder: &std::path::Path| {
            let broker = Broker::open(&format!("sqlite:{}", folder.join("a.db").display())).await.unwrap();
            let mut messages = 0;
            while let Some(batch) = broker.receive("to").await.unwrap() {
                messages += batch.messages().len();
            }
            messages
        };
        assert_eq!((waiting(&name).await, waiting(&away).await), (1, 0));
    });
}

#[test]
fn an_owner_whose_file_has_lost_its_name_to_another_file_is_not_worked_through() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let [saved, away] = ["saved.db", "away.db"].map(|name| place.path.with_file_name(name));
        std::fs::copy(&place.path, &saved).unwrap();
        let _owner = Other::start(&place.path, "own");
        std::fs::rename(&place.path, &away).unwrap();
        std::fs::rename(&saved, &place.path).unwrap();
        let error = Broker::open(&place.url()).await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_OWNED, "{error}");
        assert!(error.message().contains("another file"), "{error}");
    });
}

#[test]
fn a_guest_takes_a_file_over_once_its_second_hard_link_is_gone() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let guest = place.open().await;
        let link = place.path.with_file_name("link.db");
        std::fs::hard_link(&place.path, &link).unwrap();
        owner.kill();
        while send(&guest, "refused").await.unwrap_err().code() != Code::STORE_FOREIGN {}
        std::fs::remove_file(&link).unwrap();
        // It owns the file once it has tried again.
        while send(&guest, "by itself").await.is_err() {}
        assert_eq!(received(&guest).await, ["by itself"]);
    });
}

/// The programs that were not upgraded with the one that took the file over: their handlers only wait.
#[test]
fn a_guest_learns_that_it_can_use_its_file_no_more() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let failed = tokio::spawn({
            let guest = guest.clone();
            async move { guest.failed().await }
        });
        let newer = rusqlite::Connection::open(&place.path).unwrap();
        newer.pragma_update(None, "user_version", 999).unwrap();
        owner.close().await.unwrap();
        let error = tokio::time::timeout(PATIENCE, failed).await.expect("it is noticed").unwrap();
        assert_eq!(error.code(), Code::STORE_NEWER, "{error}");
    });
}

#[test]
fn a_call_of_a_guest_that_meets_the_failure_of_the_store_has_its_cause_and_others_can_be_tried_again() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let held = owner.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        send(&guest, "changed by another program").await.unwrap();
        let holder = owner.begin().await.unwrap();
        holder.send(held, "DEFAULT", "holds the group").await.unwrap();
        let waiting = tokio::spawn({
            let guest = guest.clone();
            async move { guest.send(held, "DEFAULT", "waits").await }
        });
        let path = place.path.display().to_string();
        while !dialoq::testing::describe_waits()
            .iter()
            .any(|store| store.contains(&path) && store.contains("parked for"))
        {
            tokio::task::yield_now().await;
        }
        let other = rusqlite::Connection::open(&place.path).unwrap();
        other.execute("delete from dialoq_queue_message", []).unwrap();
        drop(other);
        let error = guest.receive("to").await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_CHANGED, "{error}");
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::OWNER_GONE, "{error}");
    });
}
