//! Frames on the socket of the process that owns a SQLite file: sequences of requests on a live connection.
//!
//! Whatever one connection sends, another process of the file goes on, and the memory stays bounded.

use crate::mutate::Random;
use dialoq::{Act, Broker, Code};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long the owner may take for all that one connection has sent.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the process may need in all: two brokers, and what a connection may hold.
const MOST_MEMORY: u64 = 1 << 30;

/// An owner, a guest, and what a connection says first.
struct Shared {
    runtime: Runtime,
    _owner: Broker,
    guest: Broker,
    socket: PathBuf,
    greeting: [u8; 13],
    _folder: TempDir,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

impl Shared {
    fn open() -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("a.db");
        let url = format!("sqlite:{}?sql_timeout_ms=1000", path.display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (owner, guest) = runtime.block_on(async {
            let owner = Broker::open(&url).await.expect("a new file opens");
            let definitions = "CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY); CREATE QUEUE [from]; CREATE QUEUE [to];
                CREATE SERVICE [sender] ON QUEUE [from]; CREATE SERVICE [receiver] ON QUEUE [to] ([C])";
            owner.execute(definitions).await.expect("the definitions are right");
            (owner, Broker::open(&url).await.expect("the owner shares"))
        });
        let socket = path.with_extension("db.socket");
        // The owner answers any version with its own.
        let mut stream = UnixStream::connect(&socket).expect("the owner listens");
        stream.write_all(b"dialoq/s\xff\xff\xff\xff\0").expect("the greeting is sent");
        let mut greeting = [0; 13];
        stream.read_exact(&mut greeting).expect("the owner greets");
        Self { runtime, _owner: owner, guest, socket, greeting, _folder: folder }
    }
}

pub(crate) fn check(input: &[u8]) {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = shared.get_or_insert_with(Shared::open);
    let mut stream = UnixStream::connect(&shared.socket).expect("the owner listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(&shared.greeting).expect("the greeting is sent");
    stream.read_exact(&mut [0; 13]).expect("the owner greets");
    // The owner may end the connection at the first bad frame.
    let _ = stream.write_all(input).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let mut rest = vec![0; 1 << 16];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the owner neither answers nor ends")
            }
            Err(_) => break,
        }
    }
    // The other process goes on: its call comes back, with whatever the definitions say now.
    let others = shared.runtime.block_on(async { shared.guest.receive("to").await });
    if let Err(error) = others {
        let known = [Code::OBJECT_NOT_FOUND, Code(9617), Code(208)];
        assert!(known.contains(&error.code()), "the guest got {error}");
    }
    assert!(memory() < MOST_MEMORY, "{} bytes of memory", memory());
}

/// Bytes that this process has in memory, where the system shows it.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The frames of an input, each without its length.
fn frames(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<4>() {
        let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
        frames.push(rest[..length].to_vec());
        input = &rest[length..];
    }
    frames
}

/// Kept frames in another order, some of them changed inside, most with a length that is true.
pub(crate) fn make(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let known: Vec<Vec<u8>> = corpus.iter().flat_map(|input| frames(input)).collect();
    let mut input = Vec::new();
    for _ in 0..=random.below(12) {
        let mut frame = known[random.below(known.len())].clone();
        for _ in 0..random.below(4) {
            change(&mut frame, random, &known);
        }
        let length = if random.once_in(50) { random.next() as u32 } else { frame.len() as u32 };
        input.extend_from_slice(&length.to_le_bytes());
        input.extend_from_slice(&frame);
    }
    if random.once_in(10) {
        input.truncate(random.below(input.len()));
    }
    input
}

fn change(frame: &mut Vec<u8>, random: &mut Random, known: &[Vec<u8>]) {
    let place = random.below(frame.len());
    match random.below(6) {
        0 if !frame.is_empty() => frame[place] = random.next() as u8,
        // The variant of the call, of the step, of the verb.
        1 if frame.len() > 1 => frame[1] = random.below(16) as u8,
        2 if !frame.is_empty() => frame[place] = random.below(16) as u8,
        3 => frame.truncate(place),
        // A number without an end, or the largest.
        4 => drop(frame.splice(place..place, [255; 10])),
        _ => {
            let other = &known[random.below(known.len())];
            frame.truncate(place);
            frame.extend_from_slice(&other[random.below(other.len())..]);
        }
    }
}
