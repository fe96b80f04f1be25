//! A process is killed under load, again and again on the same file.
//!
//! The child sends on several conversations and prints each number once it is answered; it receives in transactions that
//! write the body to a table of its own in the same commit, and prints that too. After each kill every number that was
//! printed as sent must be in that table or in the queue, once; every one printed as received must be in the table;
//! and per conversation both together must be 0, 1, 2, ... without a gap.
//!
//! `DIALOQ_KILL_ROUNDS` says how often; three times by default.

use crate::shop::{began, bodies, definitions, dialog, open, receive, send, sql, texts};
use dialoq::SqlValue;
use dialoq::internals::store::Seen;
use dialoq::internals::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const FILE: &str = "DIALOQ_KILL_FILE";
pub(crate) const ROUND: &str = "DIALOQ_KILL_ROUND";
const CONVERSATIONS: usize = 6;

/// One line, whole or not at all: shorter than a pipe's atomic write.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent is gone only when the test is.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

/// Not a test of its own: what the killed process runs.
#[test]
#[ignore = "run by nothing_acknowledged_is_lost_or_doubled_by_a_kill"]
fn child() {
    let _limit = crate::limit();
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work(&path, &round));
}

async fn work(path: &Path, round: &str) {
    let store = open(path);
    let mut tasks = tokio::task::JoinSet::new();
    for conversation in 0..CONVERSATIONS {
        let (store, round) = (store.clone(), round.to_owned());
        tasks.spawn(async move {
            let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
            for number in 0.. {
                let body = format!("{round}/{conversation} {number}");
                if number % 3 == 0 {
                    let mut tx = store.begin(Seen::always()).await.unwrap();
                    tx.execute(send(handle, &body)).await.unwrap();
                    tx.commit().await.unwrap();
                } else {
                    store.submit(vec![send(handle, &body)]).await.unwrap();
                }
                print_line(&format!("sent {body}"));
            }
        });
    }
    for _ in 0..4 {
        let store = store.clone();
        tasks.spawn(async move {
            loop {
                let mut tx = store.begin(Seen::always()).await.unwrap();
                let taken = bodies(&tx.execute(receive(3)).await.unwrap());
                if taken.is_empty() {
                    drop(tx);
                    tokio::task::yield_now().await;
                    continue;
                }
                for body in &taken {
                    let note = sql("insert into received values (?1)", vec![SqlValue::from(body.as_str())]);
                    tx.sql(note).await.unwrap();
                }
                tx.commit().await.unwrap();
                for body in &taken {
                    print_line(&format!("received {body}"));
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// How often a process is killed.
pub(crate) fn rounds() -> usize {
    std::env::var("DIALOQ_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

/// Runs that test as a child until it has printed so many lines, kills it, and returns all its lines.
pub(crate) fn run_and_kill(child: &str, path: &Path, round: usize, lines: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([child, "--exact", "--ignored", "--nocapture"])
        .env(FILE, path)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines_read = Vec::new();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines_read.len() < lines {
        let line = output.next().expect("the child runs until it is killed").unwrap();
        if line.contains("sent ") || line.contains("received ") {
            lines_read.push(line);
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines_read.extend(output.map_while(Result::ok).filter(|line| line.contains("sent ") || line.contains("received ")));
    lines_read
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_a_kill() {
    let limit = crate::limit();
    let rounds = rounds();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(&path);
        store.submit(vec![dialoq::protocol::Verb::Define(definitions())]).await.unwrap();
        store.run_sql(sql("create table received (body text)", Vec::new())).await.unwrap();
        store.close().await.unwrap();
    });
    let (mut sent, mut received) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..rounds {
        limit.doing(format!("round {round}"));
        // Kills at many places of the load, early and late, without a random number that no one could repeat.
        for line in run_and_kill("kill::child", &path, round, 20 + round * 37 % 400) {
            // The harness may have begun a line of its own before the child's first.
            if let Some((_, body)) = line.split_once("sent ") {
                sent.insert(body.to_owned());
            } else if let Some((_, body)) = line.split_once("received ") {
                received.insert(body.to_owned());
            }
        }
        runtime.block_on(check(&path, &sent, &received));
    }
    assert!(sent.len() >= rounds && !received.is_empty(), "the children did no work");
}

async fn check(path: &Path, sent: &BTreeSet<String>, received: &BTreeSet<String>) {
    let store = open(path);
    let in_table = texts(&*store, "select body from received").await;
    let in_queue = texts(&*store, "select message_body from queue_messages where queue_name = 'to'").await;
    let mut everywhere: Vec<&String> = in_table.iter().chain(&in_queue).collect();
    everywhere.sort();
    let doubled: Vec<_> = everywhere.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(doubled.is_empty(), "delivered twice: {doubled:?}");
    let everywhere: BTreeSet<&String> = everywhere.into_iter().collect();
    let lost: Vec<_> = sent.iter().filter(|body| !everywhere.contains(body)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let taken: BTreeSet<&String> = in_table.iter().collect();
    let undone: Vec<_> = received.iter().filter(|body| !taken.contains(body)).collect();
    assert!(undone.is_empty(), "acknowledged as received and undone: {undone:?}");
    let mut numbers: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for body in everywhere {
        let (conversation, number) = body.split_once(' ').unwrap();
        numbers.entry(conversation).or_default().insert(number.parse().unwrap());
    }
    for (conversation, numbers) in numbers {
        let last = *numbers.last().unwrap();
        assert_eq!(numbers.len() as u64, last + 1, "conversation {conversation} has a gap before {last}");
    }
    store.close().await.unwrap();
}
