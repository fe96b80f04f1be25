//! What it costs to work on a SQLite file through the process that owns it.
//!
//! `cargo bench --bench processes` measures, each row beside its rival in the same run; `cargo test --bench processes`
//! only runs it once. Durability is full, bodies have 256 bytes. `DIALOQ_BENCH_FOLDER` says where the files are, and
//! `cargo bench --bench processes -- lone` (`many`, `take-over`) measures one row in more rounds.
//!
//! - One caller: the median SEND of a process that owns the file, and of one that works through another. With it the limit
//!   of the way: 300 bytes and an answer of 60 over a bare socket, to a process that syncs a file before it answers, against
//!   the same sync without the socket.
//! - 64 callers: SENDs a second of one process, and of eight that have eight callers each.
//! - Take-over: from the kill of the owner, under the load of eight processes, to the next SEND of another process that is
//!   answered.

use dialoq::{Act, Broker, ConversationHandle};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROLE: &str = "DIALOQ_BENCH_ROLE";
const URL: &str = "DIALOQ_BENCH_URL";
const PROCESSES: usize = 8;
const CALLERS: usize = 64;

const DEFINITIONS: &str = "
    CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY);
    CREATE QUEUE [from]; CREATE QUEUE [to];
    CREATE SERVICE [sender] ON QUEUE [from]; CREATE SERVICE [receiver] ON QUEUE [to] ([C])";

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let length = if is_measured { Duration::from_secs(2) } else { Duration::from_millis(100) };
    let rounds = if is_measured { 5 } else { 1 };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(URL)) {
        #[cfg(unix)]
        if role == bare::ROLE {
            return bare::answer(Path::new(&url));
        }
        return runtime.block_on(child(&role, &url, length));
    }
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_asked = |row: &str| asked.is_empty() || asked.iter().any(|asked| asked == row);
    let rounds = if asked.is_empty() { rounds } else { rounds * 4 };
    println!("durability full, 256 bytes, {rounds} rounds of {length:?}, medians; {}", env!("CARGO_PKG_VERSION"));
    if is_asked("lone") {
        let [alone, beside] =
            in_turn(rounds, || [fresh(&runtime, |url| lone(url, false)), fresh(&runtime, |url| lone(url, true))]);
        println!(
            "one caller, SEND p50: owner {:.0} us (least {:.0}), through the owner {:.0} us (least {:.0}), {:+.0} us",
            median(&alone),
            least(&alone),
            median(&beside),
            least(&beside),
            median(&beside) - median(&alone)
        );
        #[cfg(unix)]
        {
            let [alone, beside] = in_turn(rounds, || bare::median_us(length));
            println!(
                "bare sync p50: {:.0} us, through a bare socket {:.0} us, {:+.0} us",
                median(&alone),
                median(&beside),
                median(&beside) - median(&alone)
            );
        }
    }
    if is_asked("many") {
        let [one, eight] =
            in_turn(rounds, || [fresh(&runtime, |url| rate(url, 1)), fresh(&runtime, |url| rate(url, PROCESSES))]);
        let (one, eight) = (median(&one), median(&eight));
        println!(
            "64 callers, SENDs a second: one process {one:.0}, eight processes {eight:.0}, {:.2} of one",
            eight / one
        );
    }
    if is_asked("take-over") {
        let [over] = in_turn(rounds, || [fresh(&runtime, take_over)]);
        println!(
            "take-over after a kill under load: {:.0} ms, {:.0} ms at most",
            median(&over),
            over.iter().copied().fold(0.0, f64::max)
        );
    }
}

/// The figures of each rival, measured in turn.
fn in_turn<const N: usize>(rounds: usize, mut measure: impl FnMut() -> [f64; N]) -> [Vec<f64>; N] {
    let mut figures = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (figures, figure) in figures.iter_mut().zip(measure()) {
            figures.push(figure);
        }
    }
    figures
}

fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(figures: &[f64]) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A database of its own, with the definitions.
fn fresh(runtime: &tokio::runtime::Runtime, measure: impl FnOnce(&str) -> f64) -> f64 {
    let folder = match std::env::var_os("DIALOQ_BENCH_FOLDER") {
        Some(folder) => tempfile::TempDir::new_in(folder),
        None => tempfile::TempDir::new(),
    };
    let folder = folder.expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    runtime.block_on(async {
        let broker = Broker::open(&url).await.expect("a new file opens");
        broker.execute(DEFINITIONS).await.expect("the definitions are right");
        broker.close().await.expect("it closes");
    });
    assert!(Path::new(folder.path()).exists());
    measure(&url)
}

/// The other process, and what it prints.
struct Other(Child, BufReader<std::process::ChildStdout>);

impl Other {
    fn start(role: &str, url: &str) -> Self {
        let arguments = std::env::args().skip(1);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(arguments)
            .env(ROLE, role)
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self(child, output)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn figure(&mut self) -> f64 {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("'{line}' is no figure"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lone(url: &str, has_owner: bool) -> f64 {
    let _owner = has_owner.then(|| {
        let mut owner = Other::start("own", url);
        owner.line();
        owner
    });
    Other::start("lone", url).figure()
}

fn rate(url: &str, processes: usize) -> f64 {
    let mut owner = Other::start("own", url);
    owner.line();
    drop(owner);
    let role = format!("load {}", CALLERS / processes);
    let mut all: Vec<Other> = (0..processes).map(|_| Other::start(&role, url)).collect();
    all.iter_mut().map(Other::figure).sum()
}

/// Milliseconds.
fn take_over(url: &str) -> f64 {
    let mut owner = Other::start("own", url);
    owner.line();
    let mut others: Vec<Other> = (1..PROCESSES).map(|_| Other::start("survive", url)).collect();
    others.iter_mut().for_each(|other| drop(other.line()));
    owner.0.kill().expect("it runs");
    let killed = now_ms();
    std::fs::write(mark(url), "").expect("a file");
    others.iter_mut().map(|other| other.figure() - killed).fold(0.0, f64::max)
}

/// The file that says that the owner is dead.
fn mark(url: &str) -> String {
    format!("{}.killed", url.trim_start_matches("sqlite:"))
}

fn now_ms() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs_f64() * 1000.0
}

async fn dialog(broker: &Broker) -> ConversationHandle {
    broker.begin_dialog("sender", "receiver").contract("C").await.expect("the services are there")
}

async fn child(role: &str, url: &str, length: Duration) {
    let broker = Broker::open(url).await.expect("the file opens");
    let body = "x".repeat(256);
    match role.split_once(' ').unwrap_or((role, "")) {
        ("own", _) => {
            println!("ready");
            std::future::pending::<()>().await;
        }
        ("lone", _) => {
            let handle = dialog(&broker).await;
            let (started, mut times) = (Instant::now(), Vec::new());
            while started.elapsed() < length {
                let before = Instant::now();
                broker.send(handle, "DEFAULT", &body).await.expect("the message is sent");
                times.push(before.elapsed().as_secs_f64() * 1e6);
            }
            println!("{}", median(&times));
        }
        ("load", callers) => {
            let sent = Arc::new(AtomicU64::new(0));
            let callers: usize = callers.parse().expect("a number");
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..callers {
                let (broker, sent, body) = (broker.clone(), sent.clone(), body.clone());
                tasks.spawn(async move {
                    let handle = dialog(&broker).await;
                    while broker.send(handle, "DEFAULT", &body).await.is_ok() {
                        sent.fetch_add(1, Relaxed);
                    }
                });
            }
            // The processes start one after the other.
            tokio::time::sleep(length / 4).await;
            let (before, started) = (sent.load(Relaxed), Instant::now());
            tokio::time::sleep(length).await;
            println!("{}", (sent.load(Relaxed) - before) as f64 / started.elapsed().as_secs_f64());
            tokio::time::sleep(length / 2).await;
        }
        ("survive", _) => {
            let handle = dialog(&broker).await;
            broker.send(handle, "DEFAULT", &body).await.expect("the message is sent");
            println!("ready");
            loop {
                let is_after = Path::new(&mark(url)).exists();
                if broker.send(handle, "DEFAULT", &body).await.is_ok() && is_after {
                    break;
                }
            }
            println!("{}", now_ms());
            // The one that has taken over works for the others until it is killed.
            std::future::pending::<()>().await;
        }
        (other, _) => panic!("no such role: {other}"),
    }
}

/// The limit of the way to another process: blocking threads, a socket, and nothing else.
#[cfg(unix)]
mod bare {
    use super::{Duration, Instant, Other, Path, median};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    pub(super) const ROLE: &str = "bare";
    const QUESTION: [u8; 300] = [1; 300];
    const ANSWER: [u8; 60] = [2; 60];

    /// Writes a page of the file over and over, as SQLite's log does once it has been folded.
    fn write_and_sync(file: &File) {
        file.write_all_at(&[3; 4096], 0).expect("it is written");
        file.sync_data().expect("it is synced");
    }

    /// The process that answers: a folder in which its socket and its file are made.
    pub(super) fn answer(folder: &Path) {
        let file = File::create(folder.join("log")).expect("a file");
        let listener = UnixListener::bind(folder.join("socket")).expect("a socket");
        println!("ready");
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut question = QUESTION;
        while stream.read_exact(&mut question).is_ok() {
            write_and_sync(&file);
            stream.write_all(&ANSWER).expect("it is answered");
        }
    }

    /// The median of a sync by this thread, and of one by the other process.
    pub(super) fn median_us(length: Duration) -> [f64; 2] {
        let folder = match std::env::var_os("DIALOQ_BENCH_FOLDER") {
            Some(folder) => tempfile::TempDir::new_in(folder),
            None => tempfile::TempDir::new(),
        };
        let folder = folder.expect("a folder");
        let file = File::create(folder.path().join("own")).expect("a file");
        let alone = timed(length, || write_and_sync(&file));
        let mut other = Other::start(ROLE, &folder.path().display().to_string());
        other.line();
        let mut stream = UnixStream::connect(folder.path().join("socket")).expect("it listens");
        let beside = timed(length, || {
            stream.write_all(&QUESTION).expect("it is asked");
            stream.read_exact(&mut { ANSWER }).expect("it answers");
        });
        [alone, beside]
    }

    fn timed(length: Duration, mut call: impl FnMut()) -> f64 {
        let (started, mut times) = (Instant::now(), Vec::new());
        while started.elapsed() < length {
            let before = Instant::now();
            call();
            times.push(before.elapsed().as_secs_f64() * 1e6);
        }
        median(&times)
    }
}
