//! The load benchmark, and the bare log it is measured against.
//!
//! Every workload runs in rounds, the store and its limit in turn (A B A B), in one process and in one folder, and
//! the median round counts. The limit is a bare log that syncs the same bodies with the same group commit; one
//! caller alone is held against bare SQLite as well. A figure without its limit, durability and machine says
//! little, so a [`Report`] carries them all.

mod cycle;
mod flood;
mod flow;
mod hostile;
mod load;
mod log;
mod machine;
mod report;
mod rival;
mod server;
mod sizes;
mod sql;
mod step;
mod subject;

pub(crate) use machine::Machine;
pub(crate) use report::{Report, Settings};
pub(crate) use server::check_unused;
pub(crate) use server::{ServerOptions, run_on_server};

use dialoq::internals::ErrorConstructors;
use dialoq::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MILLION: usize = 1_000_000;

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub(crate) struct Options {
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
    /// Messages in the deepest backlog, and conversations in the largest crowd; smaller backlogs are in proportion.
    pub largest: usize,
}

impl Options {
    /// Every workload at full length: some ten minutes.
    pub(crate) fn full(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            synced: true,
            body_bytes: 256,
            callers: vec![1, 8, 64, 256],
            workloads: Workload::ALL.to_vec(),
            rounds: 9,
            round_length: Duration::from_secs(1),
            largest: MILLION,
        }
    }

    /// Every workload, but short rounds and small backlogs: under a minute.
    pub(crate) fn quick(folder: &Path) -> Self {
        Self { rounds: 3, round_length: Duration::from_millis(200), largest: MILLION / 10, ..Self::full(folder) }
    }
}

impl Options {
    /// So many messages or conversations, in proportion to the largest backlog.
    fn enough(&self, count: usize) -> usize {
        (count as u64 * self.largest as u64 / MILLION as u64) as usize
    }

    fn check(&self) -> Result<()> {
        if self.callers.contains(&0) || self.callers.is_empty() {
            return Err(Error::out_of_range("the number of callers", 0, "at least 1"));
        }
        check_measure(self.rounds, self.round_length, self.largest, self.body_bytes)?;
        let right = "one that an embedded store has; this one is for servers, named by --db";
        check_workloads(&self.workloads, &Workload::ALL, "the workload", right)
    }
}

/// What every run must have enough of.
fn check_measure(rounds: usize, round_length: Duration, largest: usize, body_bytes: usize) -> Result<()> {
    if rounds == 0 {
        return Err(Error::out_of_range("the number of rounds", 0, "at least 1"));
    }
    if round_length.is_zero() {
        return Err(Error::out_of_range("the length of a round", "zero", "above zero"));
    }
    if largest < 1000 {
        return Err(Error::out_of_range("the largest backlog", largest, "at least 1000"));
    }
    if body_bytes < 8 {
        return Err(Error::out_of_range("the size of a body in bytes", body_bytes, "at least 8"));
    }
    Ok(())
}

fn check_workloads(asked: &[Workload], known: &[Workload], what: &str, right: &str) -> Result<()> {
    match asked.iter().find(|workload| !known.contains(workload)) {
        Some(other) => Err(Error::out_of_range(what, format!("{other:?}"), right)),
        None => Ok(()),
    }
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
#[non_exhaustive]
pub(crate) enum Workload {
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
    /// The latency of SEND while one caller sends bodies that are made to be expensive to check.
    Hostile,
    /// On a server: from a SEND to the RECEIVE that waited for it, on an idle system.
    WakeUp,
    /// On a server: what a hundred waiting receivers cost it.
    Idle,
    /// On a server: constant load, for a third of the time with a reader that holds an old snapshot.
    Load,
}

impl Workload {
    /// All on the embedded store, in the order they run: memory first, while the process holds nothing else.
    pub(crate) const ALL: [Self; 10] = [
        Self::Backlog,
        Self::Conversations,
        Self::Send,
        Self::Receive,
        Self::Both,
        Self::Batch,
        Self::Cycle,
        Self::Depth,
        Self::Flood,
        Self::Hostile,
    ];

    /// All on a server, in the order they run: the deep queue last, which leaves most behind.
    pub(crate) const ON_SERVERS: [Self; 8] =
        [Self::Send, Self::Receive, Self::Both, Self::WakeUp, Self::Hostile, Self::Idle, Self::Load, Self::Depth];
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
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
pub(crate) async fn run(options: Options, progress: impl Fn(Progress) + Send + Sync) -> Result<Report> {
    options.check()?;
    let scratch = Scratch::create(&options.folder)?;
    let plan = step::plan(&options);
    let total = plan.len();
    let mut report = Report {
        settings: Settings::of(&options),
        machine: Machine::look(&scratch.path),
        results: Vec::new(),
        figures: Vec::new(),
        targets: Vec::new(),
    };
    for (done, step) in plan.into_iter().enumerate() {
        progress(Progress { done, total, next: step.to_string() });
        let folder = scratch.folder(done)?;
        step::take(step, &options, &folder, &mut report).await?;
        // Deleted now, so that later steps find the page cache and the disk as empty as the first did.
        std::fs::remove_dir_all(&folder).map_err(log::io_error)?;
    }
    progress(Progress { done: total, total, next: String::new() });
    report.judge();
    Ok(report)
}

/// A folder that goes away with this value.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn create(parent: &Path) -> Result<Self> {
        let path = parent.join(format!("dialoq-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(log::io_error)?;
        Ok(Self { path })
    }

    fn folder(&self, number: usize) -> Result<PathBuf> {
        let path = self.path.join(number.to_string());
        std::fs::create_dir_all(&path).map_err(log::io_error)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be deleted is left for its owner to see.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_workload_runs_and_leaves_nothing_behind() {
        let _limit = crate::limit();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            rounds: 1,
            round_length: Duration::from_millis(30),
            callers: vec![1, 4],
            largest: 1000,
            ..Options::full(folder.path())
        };
        let heard = Mutex::new(Vec::new());
        let report = run(options, |progress| heard.lock().unwrap().push(progress)).await.unwrap();

        let heard = heard.into_inner().unwrap();
        assert!(heard.iter().enumerate().all(|(place, progress)| progress.done == place));
        assert_eq!(heard.last().map(|last| last.done), heard.first().map(|first| first.total));
        for row in &report.results {
            // In a round this short the paced load of the flood may come to nothing on a busy machine.
            assert!(row.per_s > 0.0 || row.workload.starts_with("high"), "{row:?}");
            assert!(row.p50_us <= row.p99_us, "{row:?}");
            // A flooded class is held against itself, a dialog against nothing, one batch against the other.
            let has_no_log =
                ["dialog", "high", "receive_at", "send_100_spread", "receive_100_scattered", "log", "send_beside"];
            let is_bare = has_no_log.iter().any(|name| row.workload.starts_with(name));
            assert_eq!(row.ratio_to_log.is_none(), is_bare, "{row:?}");
        }
        let alone = report.results.iter().filter(|row| row.ratio_to_sqlite.is_some()).count();
        assert_eq!(alone, 2, "send and receive of one caller");
        assert_eq!(report.figures.len(), 7);
        assert!(report.targets.iter().all(|target| !target.what.contains("1,000,000")), "nothing was that big");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn options_that_measure_nothing_are_refused() {
        let _limit = crate::limit();
        let none = Options { rounds: 0, ..Options::quick(Path::new(".")) };
        let error = run(none, |_| ()).await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (dialoq::Code::OUT_OF_RANGE, "the number of rounds is 0; it must be at least 1")
        );
    }
}
