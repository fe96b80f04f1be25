//! Several processes on one database, killed again and again. On SQLite one of them owns the file, and the others work through it;
//! when the owner is killed one of the others takes over.
//!
//! Four processes send and receive, in transactions and at once, begin conversations and end them. Again and again one of
//! them is killed with work in every stage; the others must go on before another takes its place. What was received in a
//! transaction is written into a table of the tests' own by the same commit. In the end, when the queues are empty:
//!
//! - every message whose SEND was answered stands in that table once; one whose SEND was never answered, at most once;
//! - whatever stands there was sent, and every RECEIVE that was answered as committed stands there;
//! - the messages of a conversation stand there without a gap;
//! - of messages that were received at once, outside a transaction, none was received twice, and no more are missing than
//!   RECEIVEs were under way when a process was killed;
//! - every job whose PUSH was answered was done once, in a transaction that wrote it into another table, and those of a key of a
//!   strict queue were done in their order.
//!
//! On bad days (PostgreSQL) it is not only the processes that are struck: every session is ended, the server falls and
//! recovers, and a process is stopped in the middle of its work and goes on later.
//!
//! `DIALOQ_KILL_MINUTES=10 cargo test --test processes` strikes for that long; a few times by default.

mod jobs;
mod ledger;
#[path = "../servers/mod.rs"]
mod servers;
mod worker;

use dialoq::{Act, Broker};
use ledger::Ledger;
use servers::{Database, OnStores, Store};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const PROCESSES: usize = 4;
/// Strikes by default.
const STRIKES: usize = 12;
/// The longest a process may say nothing; none is silent for so long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(30);

const DEFINITIONS: &str = "
    CREATE MESSAGE TYPE [Text]; CREATE CONTRACT [C] ([Text] SENT BY ANY);
    CREATE QUEUE [from] WITH POISON_MESSAGE_HANDLING (STATUS = OFF);
    CREATE QUEUE [to] WITH POISON_MESSAGE_HANDLING (STATUS = OFF);
    CREATE QUEUE [loose] WITH POISON_MESSAGE_HANDLING (STATUS = OFF);
    CREATE SERVICE [sender] ON QUEUE [from];
    CREATE SERVICE [receiver] ON QUEUE [to] ([C]);
    CREATE SERVICE [taker] ON QUEUE [loose] ([C]);
    CREATE BROKER PRIORITY [high] FOR CONVERSATION SET (LOCAL_SERVICE_NAME = [taker], PRIORITY_LEVEL = 8)";

fn main() -> ExitCode {
    if worker::work_if_asked() {
        return ExitCode::SUCCESS;
    }
    servers::run(&[
        OnStores {
            name: "four_processes_lose_and_double_nothing_when_killed",
            stores: &Store::ALL,
            run: |store| strike_again_and_again(&Database::fresh(store), |_| Strike::Kill),
        },
        OnStores {
            name: "four_processes_lose_and_double_nothing_on_bad_days",
            stores: &[Store::Postgres],
            run: |_| strike_again_and_again(&Database::on_a_server_of_its_own(), Strike::in_turn),
        },
    ])
}

/// The faults while the processes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strike {
    /// A process is killed and another takes its place.
    Kill,
    /// A process does nothing for a while, with all it holds.
    Stop,
    /// Every session of the server is ended.
    EndSessions,
    /// The server falls with all its sessions, and recovers.
    Fall,
}

impl Strike {
    fn in_turn(number: usize) -> Self {
        [Self::Kill, Self::EndSessions, Self::Stop, Self::Kill, Self::Stop, Self::Fall][number % 6]
    }
}

/// One line of a process's output.
struct WorkerLine {
    process: usize,
    line: String,
}

/// A process that works, numbered over all that ever did.
fn start(number: usize, place: usize, database: &Database, lines: &Sender<WorkerLine>) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(worker::URL, database.url())
        .env(worker::STORE, database.store().name())
        .env(worker::NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let lines = lines.clone();
    std::thread::spawn(move || {
        // An incomplete last line of a killed process is dropped.
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if lines.send(WorkerLine { process: place, line }).is_err() {
                return;
            }
        }
    });
    child
}

fn strike_again_and_again(database: &Database, strike: impl Fn(usize) -> Strike) {
    let minutes = std::env::var("DIALOQ_KILL_MINUTES").ok().and_then(|minutes| minutes.parse::<f64>().ok());
    let until = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(prepare(database)).expect("definitions");
    let (sender, output) = channel();
    let mut ledger = Ledger::default();
    let mut started = 0;
    let mut children: Vec<Child> = (0..PROCESSES)
        .map(|place| {
            started += 1;
            start(started, place, database, &sender)
        })
        .collect();
    let mut strikes: BTreeMap<String, usize> = BTreeMap::new();
    // RECEIVEs outside a transaction whose answers may have been lost.
    let mut unheard = 0;
    servers::limit::allow(3);
    for number in 0.. {
        if until.map_or(number >= STRIKES, |until| Instant::now() >= until) {
            break;
        }
        // At many places of the load, early and late, without a random number that no one could repeat.
        let victim = (number * 7 + number / 3) % PROCESSES;
        read_until(&output, &mut ledger, 5 + number * 37 % 200, |process| process == victim);
        let strike = strike(number);
        match strike {
            Strike::Kill => {
                children[victim].kill().expect("it was running");
                children[victim].wait().expect("it was killed");
                if !database.store().is_server() {
                    // The killed process may have owned the file, and have had the answers to all others.
                    unheard += PROCESSES * worker::TAKERS;
                }
            }
            Strike::Stop => signal(&children[victim], "STOP"),
            Strike::EndSessions => {
                database.end_sessions();
                unheard += PROCESSES * worker::TAKERS;
            }
            Strike::Fall => {
                database.fall();
                unheard += PROCESSES * worker::TAKERS;
            }
        }
        *strikes.entry(format!("{strike:?}")).or_default() += 1;
        servers::limit::doing(format!("{strikes:?}"));
        read_until(&output, &mut ledger, 10, |process| process != victim);
        match strike {
            Strike::Kill => {
                started += 1;
                children[victim] = start(started, victim, database, &sender);
            }
            Strike::Stop => signal(&children[victim], "CONT"),
            Strike::EndSessions | Strike::Fall => {}
        }
    }
    for child in &mut children {
        child.kill().expect("it was running");
        child.wait().expect("it was killed");
    }
    drop(sender);
    for line in output.iter() {
        ledger.record(&line.line);
    }
    let left = runtime.block_on(drain(database)).expect("what is left is received");
    ledger.check(&left, started * worker::TAKERS + unheard);
    println!("{}: {strikes:?}; {}", database.store().name(), ledger.summary());
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().expect("kill");
    assert!(done.success(), "the process cannot be sent {name}");
}

/// Reads the output of all processes until the chosen ones have printed so many lines that count.
fn read_until(output: &Receiver<WorkerLine>, ledger: &mut Ledger, mut lines: usize, is_meant: impl Fn(usize) -> bool) {
    while lines > 0 {
        match output.recv_timeout(PATIENCE) {
            Ok(line) => {
                if ledger.record(&line.line) && is_meant(line.process) {
                    lines -= 1;
                }
            }
            Err(RecvTimeoutError::Timeout) => panic!("no worker printed a line for {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => unreachable!("this process can speak too"),
        }
    }
}

async fn prepare(database: &Database) -> dialoq::Result<()> {
    let broker = Broker::open(database.url()).await?;
    broker.execute(DEFINITIONS).await?;
    broker.execute(jobs::DEFINITIONS).await?;
    broker.sql(jobs::TABLE, ()).await?;
    broker
        .sql("create table received (body varchar(80) not null, conversation varchar(40) not null, sequence bigint not null)", ())
        .await?;
    broker.close().await
}

/// Everything in the table, with what is still in the queues brought there first; then what was left in the queue of
/// messages received at once.
async fn drain(database: &Database) -> dialoq::Result<ledger::Left> {
    let broker = Broker::open(database.url()).await?;
    // A server may take a moment to see that a process is gone, and only then frees what it had locked.
    let patience = Duration::from_secs(10);
    loop {
        let tx = broker.begin().await?;
        let Some(batch) = tx.receive("to").wait(patience).await? else { break };
        worker::record(&tx, database.store(), batch.messages()).await?;
        tx.commit().await?;
    }
    let mut loose = Vec::new();
    while let Some(batch) = broker.receive("loose").wait(patience).await? {
        loose.extend(worker::texts(batch.messages()));
    }
    let rows = broker.query("select body, conversation, sequence from received", ()).await?.rows;
    let rows = rows.iter().map(|row| Ok((row.get("body")?, row.get("conversation")?, row.get("sequence")?)));
    let rows = rows.collect::<dialoq::Result<_>>()?;
    let finished = jobs::drain(&broker, database.store(), patience).await?;
    broker.close().await?;
    Ok(ledger::Left { rows, loose, finished })
}
