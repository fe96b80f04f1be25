//! Four processes on one server, beside one process with as many callers.
//!
//! `DIALOQ_BENCH_DB=postgres://me@host/empty cargo bench --bench server_processes` measures; without a URL it takes the PostgreSQL of
//! the tests, which does not sync. `cargo test --bench server_processes` only runs it once. 64 callers in all, durability full, 256
//! bytes, 1,024 conversations; one process and four take turns, and the medians of the rounds count.
//!
//! - send, receive, receive_in_tx: one message a call; `receive_in_tx` commits each in a transaction of its own.
//! - both: 64 senders and 64 receivers; what is received counts.
//! - push; take: a job a call; taken by a lease and completed by a second call.

#[path = "../tests/servers/mod.rs"]
mod servers;

use dialoq::act::Outgoing;
use dialoq::{Act, Broker, ConversationHandle, Result};
use servers::{Database, Store};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROLE: &str = "DIALOQ_BENCH_ROLE";
const URL: &str = "DIALOQ_BENCH_URL";
const PROCESSES: usize = 4;
const ROWS: [&str; 6] = ["send", "receive", "receive_in_tx", "both", "push", "take"];
/// No side does more a second: so many messages wait before a round that receives.
const MOST_PER_S: f64 = 50_000.0;

/// A process that has done nothing for so long does nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much is measured.
#[derive(Clone, Copy)]
struct Size {
    /// Callers of all processes together.
    callers: usize,
    /// Conversations of each caller.
    conversations: usize,
    length: Duration,
    rounds: usize,
}

impl Size {
    fn asked() -> Self {
        match std::env::args().any(|argument| argument == "--bench") {
            true => Self { callers: 64, conversations: 16, length: Duration::from_secs(2), rounds: 5 },
            false => Self { callers: 8, conversations: 2, length: Duration::from_millis(100), rounds: 1 },
        }
    }
}

const DEFINITIONS: &str = "
    CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY);
    CREATE QUEUE [from]; CREATE QUEUE [to];
    CREATE SERVICE [sender] ON QUEUE [from]; CREATE SERVICE [receiver] ON QUEUE [to] ([C]);
    CREATE WORK QUEUE [jobs]";
const CLEAN: &str = "
    DROP SERVICE [sender]; DROP SERVICE [receiver]; DROP QUEUE [from]; DROP QUEUE [to]; DROP CONTRACT [C];
    DROP WORK QUEUE [jobs]";

fn main() {
    let size = Size::asked();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(URL)) {
        return runtime.block_on(work(&role, &url, size)).expect("the process works");
    }
    let given = std::env::var("DIALOQ_BENCH_DB").ok();
    if let (None, Some(why)) = (&given, Store::Postgres.why_skipped().or_else(|| Store::Postgres.why_missing())) {
        return println!("not measured: {why}");
    }
    // Dropped at the end, with its database.
    let own = given.is_none().then(|| Database::fresh(Store::Postgres));
    let url = given.as_deref().or(own.as_ref().map(Database::url)).expect("one of them").to_owned();
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!(
        "{} callers in all, durability full, 256 bytes, {} rounds of {:?}, medians; {}; {}",
        size.callers,
        size.rounds,
        size.length,
        machine(),
        runtime.block_on(settings(&url)).expect("the server answers")
    );
    for row in ROWS.into_iter().filter(|row| asked.is_empty() || asked.iter().any(|asked| asked == row)) {
        let (mut one, mut four) = (Vec::new(), Vec::new());
        for _ in 0..size.rounds {
            one.push(rate(&runtime, &url, row, 1, size));
            four.push(rate(&runtime, &url, row, PROCESSES, size));
        }
        let (one, four) = (median(&mut one), median(&mut four));
        println!("{row}: one process {one:.0} a second, four processes {four:.0}, {:.2} of one", four / one);
    }
}

/// What is measured, and where.
fn machine() -> String {
    let log = ["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"];
    let commit = Command::new("git").args(log).output().ok().filter(|output| output.status.success());
    let commit = commit.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("dialoq {} (commit {commit}), {cores} cores, {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

async fn settings(url: &str) -> Result<String> {
    let broker = Broker::open(url).await?;
    let rows = broker
        .query(
            "SELECT 'PostgreSQL ' || current_setting('server_version') || ', fsync ' || current_setting('fsync') || ', synchronous_commit '
                || current_setting('synchronous_commit') AS settings",
            (),
        )
        .await?
        .rows;
    broker.close().await?;
    rows[0].get("settings")
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Calls a second of all processes together, on definitions of their own.
fn rate(runtime: &tokio::runtime::Runtime, url: &str, row: &str, processes: usize, size: Size) -> f64 {
    runtime.block_on(prepare(url, row, size)).expect("the database is prepared");
    let role = format!("{row} {}", size.callers / processes);
    let mut all: Vec<Other> = (0..processes).map(|_| Other::start(&role, url)).collect();
    all.iter_mut().for_each(|other| assert_eq!(other.line(), "ready"));
    all.iter_mut().for_each(|other| writeln!(other.input, "go").expect("it waits"));
    let rate: f64 = all.iter_mut().map(|other| other.line().parse::<f64>().expect("a figure")).sum();
    drop(all);
    assert!(rate > 0.0, "{row}: {processes} processes have done nothing");
    runtime
        .block_on(async {
            let broker = Broker::open(url).await?;
            broker.execute(CLEAN).await?;
            broker.close().await
        })
        .expect("the database is cleaned");
    rate
}

/// The definitions, and what a round receives or takes.
async fn prepare(url: &str, row: &str, size: Size) -> Result<()> {
    let broker = Broker::open(url).await?;
    broker.execute(DEFINITIONS).await?;
    let enough = (size.length.as_secs_f64() * MOST_PER_S) as usize;
    match row {
        "receive" | "receive_in_tx" => {
            let handles = conversations(&broker, size.callers * size.conversations).await?;
            for _ in 0..enough.div_ceil(handles.len()) {
                broker.send_each(handles.iter().map(|handle| Outgoing::new(*handle, "DEFAULT", &body()))).await?;
            }
        }
        "take" => {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..size.callers {
                let broker = broker.clone();
                tasks.spawn(async move {
                    for _ in 0..enough.div_ceil(size.callers) {
                        broker.push_job("jobs", &body()).await?;
                    }
                    Ok::<_, dialoq::Error>(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.expect("a task ends")?;
            }
        }
        _ => {}
    }
    broker.close().await
}

fn body() -> Vec<u8> {
    vec![b'x'; 256]
}

/// Conversations that both sides speak on.
async fn conversations(broker: &Broker, count: usize) -> Result<Vec<ConversationHandle>> {
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        let handle = broker.begin_dialog("sender", "receiver").contract("C").await?;
        broker.send(handle, "DEFAULT", &body()).await?;
        handles.push(handle);
    }
    Ok(handles)
}

/// Another process, its input and what it prints.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(role: &str, url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(std::env::args().skip(1))
            .env(ROLE, role)
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process does: it readies itself, waits for its start, and prints its calls a second.
async fn work(role: &str, url: &str, size: Size) -> Result<()> {
    let (row, callers) = role.split_once(' ').expect("a row and its callers");
    let callers: usize = callers.parse().expect("a number");
    let broker = Broker::open(url).await?;
    let (sends, receives) = (row == "send" || row == "both", row == "both" || row.starts_with("receive"));
    let mut handles = Vec::new();
    if sends {
        handles = conversations(&broker, callers * size.conversations).await?;
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
        .await
        .expect("it ends")
        .expect("a line");
    let (counted, uncounted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for own in handles.chunks(size.conversations) {
        let (broker, own) = (broker.clone(), own.to_vec());
        let count = if receives { uncounted.clone() } else { counted.clone() };
        tasks.spawn(async move {
            for handle in own.iter().cycle() {
                broker.send(*handle, "DEFAULT", &body()).await?;
                count.fetch_add(1, Relaxed);
            }
            Ok::<_, dialoq::Error>(())
        });
    }
    if !sends || receives {
        for _ in 0..callers {
            let (broker, count, row) = (broker.clone(), counted.clone(), row.to_owned());
            tasks.spawn(async move {
                loop {
                    count.fetch_add(u64::from(call(&broker, &row).await?), Relaxed);
                }
            });
        }
    }
    // To warm up: each session plans its statements.
    tokio::time::sleep(size.length / 2).await;
    let (before, since) = (counted.load(Relaxed), Instant::now());
    tokio::time::sleep(size.length / 2).await;
    // A slow machine, and a short round.
    while counted.load(Relaxed) == before && since.elapsed() < PATIENCE {
        tokio::time::sleep(size.length / 10).await;
    }
    println!("{}", (counted.load(Relaxed) - before) as f64 / since.elapsed().as_secs_f64());
    tasks.shutdown().await;
    broker.close().await
}

/// One call of a row; whether it found something to do.
async fn call(broker: &Broker, row: &str) -> Result<bool> {
    match row {
        "push" => broker.push_job("jobs", &body()).await.map(|_| true),
        "take" => {
            let jobs = broker.take_jobs("jobs").await?;
            for job in &jobs {
                broker.complete_job(job).await?;
            }
            Ok(!jobs.is_empty())
        }
        "receive_in_tx" => {
            let tx = broker.begin().await?;
            let batch = tx.receive("to").top(1).await?;
            tx.commit().await?;
            Ok(batch.is_some())
        }
        _ => Ok(broker.receive("to").top(1).wait(Duration::from_secs(1)).await?.is_some()),
    }
}
