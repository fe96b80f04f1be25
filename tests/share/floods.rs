//! A guest that sends too much, or too little, or never reads: what it gets, and that the others go on.

use crate::refusals::connected;
use crate::{Other, PATIENCE, Place, received, run, send, until_it_waits};
use dialoq::protocol::Verb;
use dialoq::{Act, Broker, ConversationHandle};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A number as postcard writes it.
fn number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [number(text.len() as u64), text.as_bytes().to_vec()].concat()
}

/// The numbers of the variants of `Call` in `src/store/sqlite/share/frame.rs`.
const UNIT_HAPPENED: u8 = 2;
const IN_TX: u8 = 5;
const TAKE_SLOT: u8 = 6;
const WATCH: u8 = 12;

/// A request: its id, and its call by the number of the variant.
fn frame(id: u64, call: u8, rest: &[u8]) -> Vec<u8> {
    let value = [number(id), vec![call], rest.to_vec()].concat();
    [(value.len() as u32).to_le_bytes().as_slice(), &value].concat()
}

/// Asks whether a unit has happened.
fn question(id: u64) -> Vec<u8> {
    frame(id, UNIT_HAPPENED, &[vec![16], vec![7; 16]].concat())
}

/// A step of a transaction, of which nothing was seen.
fn step(id: u64, tx: u64, step: Vec<u8>) -> Vec<u8> {
    frame(id, IN_TX, &[number(tx), vec![0], step].concat())
}

/// Sets a savepoint in this transaction, which begins it.
fn savepoint(id: u64, tx: u64) -> Vec<u8> {
    step(id, tx, [vec![4], text("s")].concat())
}

/// Until it is dropped no other test of this page that takes much memory, or measures it, runs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads until these bytes have come.
fn read_until(stream: &mut UnixStream, wanted: &[u8]) {
    let mut read = Vec::new();
    let mut bytes = vec![0; 1 << 20];
    while !read.windows(wanted.len()).any(|found| found == wanted) {
        let count = match stream.read(&mut bytes) {
            // This process was stopped meanwhile, and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert!(count > 0, "the connection ended");
        // What is wanted may stand across two readings.
        read.drain(..read.len().saturating_sub(wanted.len()));
        read.extend_from_slice(&bytes[..count]);
    }
}

/// Bytes that this process has in memory.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[test]
fn more_transactions_than_a_guest_may_have_are_refused_with_the_number() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut stream = connected(&place);
        let mut writing = stream.try_clone().unwrap();
        let flood = std::thread::spawn(move || {
            for id in 1..=10_000 {
                writing.write_all(&savepoint(id, id)).unwrap();
            }
        });
        read_until(&mut stream, b"8192 open transactions");
        send(&owner, "goes on").await.unwrap();
        assert_eq!(received(&owner).await, ["goes on"]);
        // The answers must be read for the flood to end.
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        flood.join().unwrap();
    });
}

/// Refused, the commit left its transaction open in the owner, with all that it held.
#[test]
fn a_transaction_ends_although_its_process_has_too_many_calls_under_way() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut stream = connected(&place);
        let unit_id = uuid::Uuid::from_u128(7);
        stream.write_all(&step(1, 1, [vec![3, 16], unit_id.into_bytes().to_vec()].concat())).unwrap();
        // The steps of another transaction wait behind this one.
        let endless = "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c";
        stream.write_all(&step(2, 2, [vec![2], text(endless), vec![0, 0]].concat())).unwrap();
        let waiting: Vec<u8> = (3..66_000).flat_map(|id| savepoint(id, 2)).collect();
        stream.write_all(&waiting).unwrap();
        read_until(&mut stream, b"65536 calls under way");
        stream.write_all(&step(70_000, 1, vec![6])).unwrap();
        let answer = [vec![0], number(70_000)].concat();
        read_until(&mut stream, &answer);
        assert!(owner.unit_happened(unit_id).await.unwrap(), "the transaction is committed");
    });
}

#[test]
fn more_senders_than_a_guest_has_room_for_wait_for_a_group_and_others_go_on() {
    let _alone = alone();
    run(async || {
        let place = Place::new();
        let _owner = place.defined().await;
        let guest = place.open().await;
        let [held, other] = [0; 2].map(|_| guest.begin_dialog("sender", "receiver").contract("C"));
        let (held, other) = (held.await.unwrap(), other.await.unwrap());
        let holder = guest.begin().await.unwrap();
        holder.send(held, "DEFAULT", "first").await.unwrap();
        // More than the room has places.
        const SENDERS: usize = 17_000;
        let begun = Arc::new(AtomicUsize::new(0));
        let send = |_| {
            let (guest, begun) = (guest.clone(), begun.clone());
            tokio::spawn(async move {
                begun.fetch_add(1, Relaxed);
                guest.send(held, "DEFAULT", "waits").await
            })
        };
        let waiting: Vec<_> = (0..SENDERS).map(send).collect();
        while begun.load(Relaxed) < SENDERS {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(PATIENCE, guest.send(other, "DEFAULT", "goes on")).await.expect("there is room").unwrap();
        holder.commit().await.unwrap();
        for sent in waiting {
            sent.await.unwrap().unwrap();
        }
        let mut count = 0;
        while let Some(batch) = guest.receive("to").top(10_000).await.unwrap() {
            count += batch.len();
        }
        assert_eq!(count, SENDERS + 2);
    });
}

/// Has a guest make so many calls that wait for the group of these conversations, which a transaction of it holds, and another call.
async fn others_go_on<F>(calls: usize, call: impl Fn(Broker, Arc<[ConversationHandle]>, usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let place = Place::new();
    let _owner = place.defined().await;
    let guest = place.open().await;
    let begin = || guest.begin_dialog("sender", "receiver").contract("C");
    let other = begin().await.unwrap();
    let mut held = vec![begin().await.unwrap()];
    while held.len() < 17 {
        held.push(begin().related_to(held[0]).await.unwrap());
    }
    let held: Arc<[_]> = held.into();
    let holder = guest.begin().await.unwrap();
    holder.send(held[0], "DEFAULT", "first").await.unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let begin = |number| {
        let (call, begun) = (call(guest.clone(), held.clone(), number), begun.clone());
        tokio::spawn(async move {
            begun.fetch_add(1, Relaxed);
            call.await;
        })
    };
    let waiting: Vec<_> = (0..calls).map(begin).collect();
    while begun.load(Relaxed) < calls {
        tokio::task::yield_now().await;
    }
    // Until the last of them has got room, or waits for it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::time::timeout(PATIENCE, guest.send(other, "DEFAULT", "goes on")).await.expect("there is room").unwrap();
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    for left in waiting {
        drop(left.await);
    }
    holder.rollback().await.unwrap();
    assert_eq!(received(&guest).await, ["goes on"]);
}

#[test]
fn dialogs_that_wait_for_a_held_one_leave_room_for_others() {
    let _alone = alone();
    run(async || {
        others_go_on(17_000, async |guest, held, _| {
            drop(guest.begin_dialog("sender", "receiver").contract("C").related_to(held[0]).await);
        })
        .await;
    });
}

#[test]
fn senders_on_many_conversations_of_a_held_group_leave_room_for_others() {
    let _alone = alone();
    run(async || {
        others_go_on(17 * 1024, async |guest, held, number| {
            drop(guest.send(held[number % 17], "DEFAULT", "waits").await);
        })
        .await;
    });
}

/// It got the room when no other call was under way, and all later calls waited behind it.
#[test]
fn a_unit_that_needs_the_whole_room_goes_on_beside_one_that_waits_for_a_group() {
    let _alone = alone();
    run(async || {
        others_go_on(2, async |guest, held, number| {
            if number == 0 {
                drop(guest.send(held[0], "DEFAULT", "waits").await);
                return;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            let handles = vec![ConversationHandle(uuid::Uuid::from_u128(1)); 260];
            let body = Some(Arc::new(vec![b'x'; 1 << 20]));
            let refused = guest.submit(vec![Verb::Send { handles, message_type: None, body, trace: None }]).await;
            assert_eq!(refused.unwrap_err().code(), dialoq::Code::CONVERSATION_NOT_FOUND);
        })
        .await;
    });
}

#[test]
fn more_readers_than_a_process_may_have_get_no_place() {
    const MOST: u64 = 64 * 1024;
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut stream = connected(&place);
        let mut writing = stream.try_clone().unwrap();
        let flood = std::thread::spawn(move || {
            for slot in 1..=MOST + 10 {
                // Of a queue each, one at most.
                let rest = [number(slot), number(2 * slot), number(1)].concat();
                writing.write_all(&frame(slot, TAKE_SLOT, &rest)).unwrap();
            }
        });
        let (mut answers, mut places) = (0, 0);
        while answers < MOST + 10 {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut value = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut value).unwrap();
            // Other frames are news.
            answers += u64::from(value[0] == 0);
            places += u64::from(value[0] == 0 && value.ends_with(&[5, 1, 0]));
        }
        assert_eq!(places, MOST);
        flood.join().unwrap();
        send(&owner, "goes on").await.unwrap();
        assert_eq!(received(&owner).await, ["goes on"]);
    });
}

#[test]
fn a_million_watched_queues_take_no_memory() {
    let _alone = alone();
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut stream = connected(&place);
        let before = memory();
        let long = "x".repeat(100_000);
        for part in 0..100 {
            let names = (0..10_000).map(|name| frame(0, WATCH, &text(&format!("queue {part} {name}"))));
            stream.write_all(&names.flatten().collect::<Vec<_>>()).unwrap();
            stream.write_all(&frame(0, WATCH, &text(&format!("{long} {part}")))).unwrap();
        }
        stream.write_all(&question(1)).unwrap();
        // Reports of the queues come before it.
        read_until(&mut stream, &[6, 0, 0, 0, 0, 1]);
        assert!(memory() < before + (256 << 20), "{} and {before} bytes", memory());
        // A queue that exists has room all the same.
        stream.write_all(&frame(0, WATCH, &text("to"))).unwrap();
        read_until(&mut stream, &[vec![2], text("to")].concat());
        send(&owner, "goes on").await.unwrap();
        assert_eq!(received(&owner).await, ["goes on"]);
    });
}

/// A process that makes a queue for each answer it waits for has used very many in the end.
#[test]
fn a_guest_that_has_used_very_many_queues_hears_of_the_next_one() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        for number in 0..10_100 {
            let error = guest.receive(format!("gone {number}")).await.unwrap_err();
            assert_eq!(error.code(), dialoq::Code::OBJECT_NOT_FOUND);
        }
        let (bodies, ()) = tokio::join!(received(&guest), async {
            until_it_waits(&guest).await;
            send(&owner, "an answer").await.unwrap();
        });
        assert_eq!(bodies, ["an answer"]);
        // It was watched before it was made, like all the others.
        owner.execute("CREATE QUEUE [gone 10099]; CREATE SERVICE [late] ON QUEUE [gone 10099] ([C])").await.unwrap();
        let (batch, ()) = tokio::join!(guest.receive("gone 10099").wait(PATIENCE), async {
            while guest.sessions_waiting("gone 10099") == 0 {
                tokio::task::yield_now().await;
            }
            let dialog = owner.begin_dialog("sender", "late").contract("C").await.unwrap();
            owner.send(dialog, "DEFAULT", "late").await.unwrap();
        });
        assert!(batch.unwrap().is_some());
    });
}

#[test]
fn answers_that_are_never_read_do_not_fill_the_memory_of_the_owner() {
    let _alone = alone();
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut stream = connected(&place);
        let before = memory();
        // 800 answers of 2 MB.
        for id in 1..=800 {
            let query = [vec![2], text("select zeroblob(2000000)"), vec![0, 0]].concat();
            stream.write_all(&step(id, 1, query)).unwrap();
        }
        // The owner has got to work on them when as many as fit are there.
        for round in 0..200 {
            send(&owner, "goes on").await.unwrap();
            assert_eq!(received(&owner).await, ["goes on"], "{round}");
        }
        assert!(memory() < before + (400 << 20), "{} and {before} bytes", memory());
        drop(stream);
    });
}

#[test]
fn half_a_frame_holds_up_no_one() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut stream = connected(&place);
        let whole = question(1);
        let (first, second) = whole.split_at(9);
        stream.write_all(first).unwrap();
        send(&owner, "goes on").await.unwrap();
        assert_eq!(received(&owner).await, ["goes on"]);
        for byte in second {
            stream.write_all(&[*byte]).unwrap();
        }
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        // A close waits for a guest that says nothing, but not for ever.
        owner.close().await.unwrap();
    });
}

#[test]
fn a_process_of_another_user_is_refused_by_its_user() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let knock = |user: Option<u32>| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["floods::other_user", "--exact", "--ignored", "--nocapture"]).env(crate::URL, place.socket());
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        // Whatever the rights of the files say.
        use std::os::unix::fs::PermissionsExt;
        for (path, mode) in [(place.path.parent().unwrap(), 0o755), (place.socket().as_path(), 0o666)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        assert!(knock(None).unwrap().contains("greeted"), "this user");
        match knock(Some(65_534)) {
            Ok(output) if output.contains("refused") => {}
            Ok(output) if output.contains("greeted") => panic!("another user was greeted"),
            Ok(output) => println!("skipped: the other user cannot connect at all: {output}"),
            Err(error) => println!("skipped: only root can start a process of another user ({error})"),
        }
        send(&owner, "goes on").await.unwrap();
        assert_eq!(received(&owner).await, ["goes on"]);
    });
}

/// Not a test of its own: a process that connects and sends a greeting.
#[test]
#[ignore = "run by the test that needs a process of another user"]
fn other_user() {
    let Some(socket) = std::env::var_os(crate::URL) else { return };
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => return println!("no connection: {error}"),
    };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let sent = stream.write_all(&[b"dialoq/s".as_slice(), &[0; 5]].concat());
    let mut answer = [0; 13];
    match sent.and_then(|()| stream.read_exact(&mut answer)) {
        Ok(()) => println!("greeted"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => println!("no answer"),
        Err(_) => println!("refused"),
    }
}

#[test]
fn an_owner_that_is_stopped_is_named_to_the_next_opener() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let owner = Other::start(&place.path, "own");
        owner.signal("STOP");
        let error = Broker::open(&place.url()).await.unwrap_err();
        assert!(error.message().contains("has not answered for 10 s"), "{error}");
        owner.signal("CONT");
        let guest = place.open().await;
        send(&guest, "goes on").await.unwrap();
        assert_eq!(received(&guest).await, ["goes on"]);
    });
}

/// A large answer is made on a thread of its own and written alone.
#[test]
fn large_and_small_answers_of_one_connection_arrive_whole() {
    const ROWS: &str = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000) \
                        select i, printf('%040d', i) as text from n";
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let body = "b".repeat(3 << 20);
        let reading = async {
            for _ in 0..4 {
                let tx = guest.begin().await.unwrap();
                let rows = tx.query(ROWS, ()).await.unwrap().rows;
                assert_eq!(rows.len(), 40_000);
                assert_eq!(rows[39_999].get::<String>("text").unwrap(), format!("{:040}", 40_000));
                tx.rollback().await.unwrap();
            }
        };
        let receiving = async {
            for _ in 0..4 {
                send(&owner, &body).await.unwrap();
                assert!(received(&guest).await == [body.as_str()], "the body is whole");
            }
        };
        let asking = async {
            for number in 0..500 {
                assert!(!guest.unit_happened(uuid::Uuid::from_u128(number)).await.unwrap());
            }
        };
        tokio::join!(reading, receiving, asking);
    });
}

/// A process that has used up its descriptors for other things lost the connection, with the calls under way.
#[cfg(target_os = "linux")]
#[test]
fn a_guest_without_a_free_descriptor_goes_on() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    run(async || {
        let place = Place::new();
        let _owner = place.defined().await;
        let mut guest = Other::start(&place.path, "send");
        for number in 0..20 {
            assert_eq!(guest.send(&number.to_string()), "sent");
        }
        // No number below this one is free.
        let most = Rlimit { current: Some(3), maximum: Some(3) };
        prlimit(Pid::from_raw(i32::try_from(guest.child.id()).unwrap()), Resource::Nofile, most).unwrap();
        for number in 0..20 {
            // So that no call is one of a lone caller in a hurry, and the task waits between them.
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(guest.send(&number.to_string()), "sent");
        }
    });
}

/// It said that its file could not be written.
#[cfg(target_os = "linux")]
#[test]
fn an_owner_without_a_free_descriptor_says_so() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let owner = Other::start(&place.path, "own");
        let guest = place.open().await;
        let most = Rlimit { current: Some(3), maximum: Some(1024) };
        prlimit(Pid::from_raw(i32::try_from(owner.child.id()).unwrap()), Resource::Nofile, most).unwrap();
        // It opens a connection for reading.
        let tx = guest.begin().await.unwrap();
        let error = tx.query("select count(*) as n from sys_services", ()).await.unwrap_err();
        assert_eq!(error.code(), dialoq::Code::STORE_IO, "{error}");
        assert!(error.message().contains("no free file descriptor"), "{error}");
        tx.rollback().await.unwrap();
        send(&guest, "goes on").await.unwrap();
        assert_eq!(received(&guest).await, ["goes on"]);
    });
}

#[test]
fn a_guest_learns_of_a_queue_that_is_made_after_it_has_asked_for_it() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        guest.receive("later").await.unwrap_err();
        owner.execute("CREATE QUEUE [later]; CREATE SERVICE [late] ON QUEUE [later] ([C])").await.unwrap();
        let (batch, ()) = tokio::join!(guest.receive("later").wait(PATIENCE), async {
            while guest.sessions_waiting("later") == 0 {
                tokio::task::yield_now().await;
            }
            let dialog = owner.begin_dialog("sender", "late").contract("C").await.unwrap();
            owner.send(dialog, "DEFAULT", "hello").await.unwrap();
        });
        assert!(batch.unwrap().is_some());
    });
}
