//! Who is refused, and what a refused one does to the others.

use crate::{DEFINITIONS, Other, Place, received, run, send};
use dialoq::{Act, Broker, Code};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;

#[test]
fn a_file_that_is_not_shared_has_one_process() {
    run(async || {
        let place = Place::new();
        let alone = format!("{}?share=off", place.url());
        let owner = Broker::open(&alone).await.unwrap();
        for url in [&place.url(), &alone] {
            let error = Broker::open(url).await.unwrap_err();
            assert_eq!(error.code(), Code::STORE_OWNED, "{url}: {error}");
        }
        owner.close().await.unwrap();
        let owner = place.open().await;
        let error = Broker::open(&alone).await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_OWNED, "{error}");
        owner.execute(DEFINITIONS).await.unwrap();
    });
}

#[test]
fn a_durability_that_the_owner_does_not_keep_is_refused() {
    run(async || {
        let place = Place::new();
        let normal = format!("{}?durability=normal", place.url());
        let owner = Broker::open(&normal).await.unwrap();
        let error = Broker::open(&place.url()).await.unwrap_err();
        assert_eq!(error.code(), Code::STORE_OWNED);
        assert!(error.message().contains("durability=normal"), "{error}");
        Broker::open(&normal).await.unwrap().close().await.unwrap();
        owner.close().await.unwrap();
        let _full = place.open().await;
        Broker::open(&normal).await.expect("more is kept than was asked for");
    });
}

#[test]
fn the_socket_is_for_its_user_alone() {
    run(async || {
        let place = Place::new();
        let _owner = place.open().await;
        let mode = std::fs::metadata(place.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

#[test]
fn a_long_path_has_a_socket_elsewhere() {
    run(async || {
        let folder = tempfile::TempDir::new().unwrap();
        let deep = folder.path().join("a".repeat(60)).join("b".repeat(60));
        std::fs::create_dir_all(&deep).unwrap();
        let url = format!("sqlite:{}", deep.join("a.db").display());
        let owner = Broker::open(&url).await.unwrap();
        owner.execute(DEFINITIONS).await.unwrap();
        let guest = Broker::open(&url).await.unwrap();
        send(&guest, "hello").await.unwrap();
        assert_eq!(received(&owner).await, ["hello"]);
    });
}

/// A greeting that asks for full durability.
fn greeting(version: u32) -> Vec<u8> {
    [b"dialoq/s".as_slice(), &version.to_le_bytes(), &[0]].concat()
}

/// A connection that has sent this greeting, and the owner's.
fn greeted(place: &Place, greeting: &[u8]) -> (UnixStream, Vec<u8>) {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream.set_read_timeout(Some(crate::PATIENCE)).unwrap();
    stream.write_all(greeting).unwrap();
    let mut answer = vec![0; greeting.len()];
    stream.read_exact(&mut answer).unwrap();
    (stream, answer)
}

/// A connection of the owner's version, of which nothing but the greetings has been sent.
pub(crate) fn connected(place: &Place) -> UnixStream {
    let (_, owners) = greeted(place, &greeting(u32::MAX));
    greeted(place, &owners).0
}

/// Whether the other side has ended the connection.
fn is_ended(stream: &mut UnixStream) -> bool {
    stream.set_read_timeout(Some(crate::PATIENCE)).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_ok()
}

#[test]
fn another_version_gets_the_owners_version_and_nothing_else() {
    run(async || {
        let place = Place::new();
        let _owner = place.open().await;
        let (mut stream, owners) = greeted(&place, &greeting(u32::MAX));
        assert!(is_ended(&mut stream));
        // With the owner's own version it goes on.
        let (_stream, again) = greeted(&place, &owners);
        assert_eq!(again, owners);
    });
}

#[test]
fn malformed_frames_hurt_only_their_sender() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            number
        };
        let mut frames: Vec<Vec<u8>> = vec![
            // Lengths that no frame has, one whose bytes never come, an empty frame, an unknown call.
            u32::MAX.to_le_bytes().to_vec(),
            900_000_000_u32.to_le_bytes().to_vec(),
            0_u32.to_le_bytes().to_vec(),
            [2_u32.to_le_bytes().as_slice(), &[1, 255]].concat(),
        ];
        for _ in 0..400 {
            let length = (random() % 60) as usize;
            let bytes: Vec<u8> = (0..length).map(|_| random() as u8 % 24).collect();
            frames.push([(length as u32).to_le_bytes().as_slice(), &bytes].concat());
        }
        for frame in frames {
            let mut stream = connected(&place);
            // The other side may end the connection first.
            let _ = stream.write_all(&frame);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            assert!(is_ended(&mut stream), "{frame:?}");
        }
        send(&guest, "goes on").await.unwrap();
        assert_eq!(received(&owner).await, ["goes on"]);
        owner.execute("CREATE QUEUE [after]").await.unwrap();
    });
}

/// A stopped owner. `dialoq show` by its side took 20 s: 10 s for each side.
#[test]
fn an_owner_that_does_not_answer_is_asked_once_for_the_holders_of_a_conversation() {
    run(async || {
        let place = Place::new();
        let broker = place.defined().await;
        let dialog = broker.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        broker.send(dialog, "DEFAULT", "hello").await.unwrap();
        broker.close().await.unwrap();
        let silent = UnixListener::bind(place.socket()).unwrap();
        silent.set_nonblocking(true).unwrap();
        let asked = || std::iter::from_fn(|| silent.accept().ok()).count();
        let looking = Broker::open_read_only(&place.url()).await.unwrap();
        let shown = looking.conversation(dialog.0, 1, 0).await.unwrap();
        assert_eq!((shown.sides.len(), asked()), (2, 1));
        assert!(shown.sides.iter().all(|side| side.held_by_error.is_some()), "{shown:?}");
        let explained = looking.explain(&dialog.to_string()).await.unwrap();
        assert!(explained.reasons.iter().any(|reason| reason.what.contains("is not known")), "{explained:?}");
        assert_eq!(asked(), 1);
        let explained = looking.explain("receiver").await.unwrap();
        let says_so = |text: &str| text.starts_with("which session holds its first message");
        assert!(explained.reasons.iter().any(|reason| says_so(&reason.what)), "{explained:?}");
    });
}

/// SQLite makes a log and its index for a reader too. Those of another user kept the user of the file out until they were removed.
#[test]
fn a_reader_and_a_refused_opener_of_another_user_leave_nothing_beside_the_file() {
    run(async || {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let path = folder.path().join("a%b ?.db");
        let url = format!("sqlite:{}/a%25b %3F.db", folder.path().display());
        let owner = Broker::open(&url).await.unwrap();
        owner.execute(DEFINITIONS).await.unwrap();
        send(&owner, "waits").await.unwrap();
        owner.close().await.unwrap();
        let is_root = rustix::process::geteuid().is_root();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(if is_root { 0o644 } else { 0o444 })).unwrap();
        let run = |work: &str| {
            let mut command = Other::command("refusals::reader", &url, work);
            if is_root {
                command.uid(65_534).gid(65_534);
            }
            command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        match run("read") {
            Ok(output) => assert!(output.contains("Integer(1)"), "{output}"),
            Err(error) => return println!("skipped: no process of another user can be started ({error})"),
        }
        if is_root {
            // The lock file refuses it.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
            let output = run("open").unwrap();
            assert!(output.contains("60014"), "{output}");
        }
        for ending in ["-wal", "-shm"] {
            let beside = path.with_extension(format!("db{ending}"));
            assert!(!beside.exists(), "{}", beside.display());
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(received(&Broker::open(&url).await.unwrap()).await, ["waits"]);
    });
}

/// Not a test of its own: a process that reads.
#[test]
#[ignore = "run by the test that needs a reader"]
fn reader() {
    let Ok(url) = std::env::var(crate::URL) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if std::env::var(crate::WORK).is_ok_and(|work| work == "open") {
        return println!("{:?}", runtime.block_on(Broker::open(&url)).err());
    }
    let rows = runtime.block_on(async {
        let reader = Broker::open_read_only(&url).await.unwrap();
        reader.query("select count(*) from queue_messages", ()).await.unwrap()
    });
    println!("found {rows:?}");
}

/// The owner closes such a connection without an answer. The other process took it for an owner that starts, for a minute.
#[test]
fn an_opener_of_another_user_is_refused_although_the_rights_let_it_connect() {
    run(async || {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can start a process of another user");
        }
        let place = Place::new();
        let _owner = place.defined().await;
        let folder = place.path.parent().unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        for entry in std::fs::read_dir(folder).unwrap() {
            std::fs::set_permissions(entry.unwrap().path(), std::fs::Permissions::from_mode(0o666)).unwrap();
        }
        let mut command = Other::command("refusals::reader", &place.url(), "open");
        let output = command.uid(65_534).gid(65_534).output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout);
        assert!(output.contains("60010") && output.contains("it runs as another user"), "{output}");
    });
}

/// Processes of three users: the owner's, root, and another one.
#[test]
fn an_owner_works_for_its_user_and_for_root() {
    run(async || {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can start a process of another user");
        }
        let place = Place::new();
        let folder = place.path.parent().unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let start = |user| {
            let mut command = Other::command("other_process", &place.url(), "send");
            command.uid(user).gid(user);
            Other::run(command)
        };
        let mut owner = start(65_534);
        let root = place.open().await;
        root.execute(DEFINITIONS).await.unwrap();
        for user in [&mut owner, &mut start(65_534)] {
            assert_eq!(user.send("hello"), "sent");
        }
        send(&root, "hello").await.unwrap();
        let refused = || {
            let mut command = Other::command("refusals::reader", &place.url(), "open");
            let output = command.uid(65_533).gid(65_533).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for entry in std::fs::read_dir(folder).unwrap() {
            std::fs::set_permissions(entry.unwrap().path(), std::fs::Permissions::from_mode(0o666)).unwrap();
        }
        let allow = |mode| std::fs::set_permissions(place.socket(), std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o600);
        assert!(refused().contains("its socket belongs to another user"), "{}", refused());
        allow(0o666);
        assert!(refused().contains("it runs as another user"), "{}", refused());
        // A process that is neither root's nor that of the file's user.
        std::os::unix::fs::chown(&place.path, Some(65_532), None).unwrap();
        assert!(refused().contains("its socket belongs to another user"), "{}", refused());
    });
}
