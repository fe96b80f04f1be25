//! The load benchmark, and the bare log it is measured against.
//!
//! Every workload runs in rounds, the store and its limit in turn (A B A B), in one process and in one folder, and
//! the median round counts. The limit is a bare log that syncs the same bodies with the same group commit; one
//! caller alone is held against bare SQLite as well. A figure without its limit, durability and machine says
//! little, so a [`Report`] carries them all.

#![allow(dead_code)] // until the store side of the bench lands

mod flow;
mod load;
mod log;
mod machine;
mod report;
mod rival;

pub use machine::Machine;
pub use report::{Figure, Measured, Report, Settings, Target};

use crate::error::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder under which a scratch folder is made and removed again; its disk is what is measured.
    pub folder: PathBuf,
    /// Whether every commit is synced before it is answered (durability full) or not (normal).
    pub synced: bool,
    /// Bytes per body; at least 8, which hold the time of sending.
    pub body_bytes: usize,
    /// How many callers the plain workloads are run with, one after the other.
    pub callers: Vec<usize>,
    /// Which workloads to run.
    pub workloads: Vec<Workload>,
    /// Rounds per workload.
    pub rounds: usize,
    /// How long a round takes.
    pub round_length: Duration,
    /// Smaller backlogs, so that everything takes under a minute.
    pub quick: bool,
}

impl Options {
    /// Every workload at full length: some ten minutes.
    pub fn full(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            synced: true,
            body_bytes: 256,
            callers: vec![1, 8, 64, 256],
            workloads: Workload::ALL.to_vec(),
            rounds: 5,
            round_length: Duration::from_secs(2),
            quick: false,
        }
    }

    /// Every workload, but short rounds and small backlogs: under a minute.
    pub fn quick(folder: &Path) -> Self {
        Self { rounds: 3, round_length: Duration::from_millis(300), quick: true, ..Self::full(folder) }
    }
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
#[non_exhaustive]
pub enum Workload {
    /// Resident memory with a backlog of 1,000,000 messages in 1,000 conversations.
    Backlog,
    /// Resident memory with 1,000,000 open conversations, and opening them again.
    Conversations,
    /// SEND, each its own transaction.
    Send,
    /// RECEIVE of one message, each its own transaction: many conversations, and 8.
    Receive,
    /// Senders and as many receivers at the same time, and the time from end to end at half load.
    Both,
    /// 100 messages per transaction, 8 callers: send, and receive.
    Batch,
    /// Begin, send, receive, reply, end, end.
    Cycle,
    /// Receiving from a queue that is 10,000, 100,000 and 1,000,000 messages deep.
    Depth,
    /// The waiting time of a high class while a low class floods the queue.
    Flood,
}

impl Workload {
    /// All of them, in the order they run: memory first, while the process holds nothing else.
    pub const ALL: [Self; 9] = [
        Self::Backlog,
        Self::Conversations,
        Self::Send,
        Self::Receive,
        Self::Both,
        Self::Batch,
        Self::Cycle,
        Self::Depth,
        Self::Flood,
    ];
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
    /// What comes next, or nothing at the end.
    pub next: String,
}

/// Measures. Run it in a multi-thread runtime: the callers are its tasks.
///
/// `progress` hears of every step before it begins, and of the end.
///
/// # Errors
/// 60005 for options that measure nothing; whatever a store raises; 60018 if the folder cannot be written.
pub async fn run(options: Options, progress: impl Fn(Progress) + Send + Sync) -> Result<Report> {
    let mut report = Report {
        settings: Settings::of(&options),
        machine: Machine::look(&options.folder),
        results: Vec::new(),
        figures: Vec::new(),
        targets: Vec::new(),
    };
    let total = options.callers.len();
    let path = options.folder.join(format!("dialoq-bench-{}.log", std::process::id()));
    for (done, callers) in options.callers.iter().copied().enumerate() {
        progress(Progress { done, total, next: format!("the bare log, {callers} callers") });
        let log = std::sync::Arc::new(log::Log::create(&path, log::Keep { synced: options.synced, takable: true })?);
        let bodies = flow::Bodies::new(options.body_bytes);
        let length = options.round_length;
        let sent = flow::send(&log, bodies, callers, 1, length).await?;
        report.results.push(Measured::new("log_send", callers, 1, options.body_bytes, &sent));
        let taken = flow::receive(&log, callers, 1, length).await?;
        report.results.push(Measured::new("log_receive", callers, 1, options.body_bytes, &taken));
        while !log.take(1000, false).await?.is_empty() {}
        let senders = vec![flow::Senders { side: log.clone(), callers, pace: flow::Pace::Closed, bodies }];
        let both = flow::through(senders, log.clone(), callers, length, false).await?;
        report.results.push(Measured::new("log_both", callers, 1, options.body_bytes, &both));
        drop(log);
        std::fs::remove_file(&path).map_err(log::io_error)?;
    }
    let path = path.with_extension("db");
    let rival = rival::Rival::create(&path, options.synced)?;
    let inserted = rival.insert(options.body_bytes, options.round_length).await?;
    report.results.push(Measured::new("sqlite_insert", 1, 1, options.body_bytes, &inserted));
    let deleted = rival.delete(options.body_bytes, 20_000, options.round_length).await?;
    report.results.push(Measured::new("sqlite_delete", 1, 1, options.body_bytes, &deleted));
    std::fs::remove_file(&path).map_err(log::io_error)?;
    progress(Progress { done: total, total, next: String::new() });
    report.judge();
    Ok(report)
}
