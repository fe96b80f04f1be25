//! The load benchmark: a subject, the broker as its users ask it, beside rivals under the same load.
//!
//! Every workload runs in rounds, the subject and its rivals in turn (A B A B), in one process, and the median round
//! counts. The rivals of the embedded store are a bare log that syncs the same bodies with the same group commit, and
//! bare SQLite for one caller alone. On a server the rival is a table queue written by hand. A figure without its rival,
//! durability and machine says little, so a [`Report`] carries them all.

mod cycle;
mod embedded;
mod flow;
mod hostile;
mod load;
mod machine;
mod options;
mod report;
mod rival;
mod server;
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "jobs are measured on PostgreSQL alone"))]
mod sql;
mod subject;
mod targets;
mod techniques;
mod work;

pub(crate) use options::{Options, Site, Workload};
pub(crate) use report::Report;
pub(crate) use server::check_unused;
pub(crate) use techniques::run_work;

use crate::cli::Interrupt;
use dialoq::Result;

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

/// Measures; `None` if a stop was requested. Run it in a multi-thread runtime: the callers are its tasks.
///
/// `progress` is called before every step, and at the end.
///
/// # Errors
/// 60005 for options that measure nothing; 60018 if the folder cannot be written; 60026 the database is in use; whatever a
/// store raises.
pub(crate) async fn run(
    options: Options,
    progress: impl Fn(Progress) + Send + Sync,
    interrupt: &Interrupt,
) -> Result<Option<Report>> {
    options.check()?;
    match &options.site {
        Site::Folder { path, synced } => {
            interrupt.unless_requested(embedded::run(&options, path, *synced, progress)).await
        }
        Site::Server { url, is_in_use } => server::run(&options, url, *is_in_use, progress, interrupt).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_workload_runs_and_leaves_nothing_behind() {
        let _limit = crate::limit();
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            rounds: 1,
            round_length: Duration::from_millis(30),
            callers: vec![1, 4],
            largest: 1000,
            ..Options::embedded(folder.path())
        };
        let received = Mutex::new(Vec::new());
        let (progress, never) = (|progress| received.lock().unwrap().push(progress), Interrupt::never());
        let report = run(options, progress, &never).await.unwrap().unwrap();

        let received = received.into_inner().unwrap();
        assert!(received.iter().enumerate().all(|(place, progress)| progress.done == place));
        assert_eq!(received.last().map(|last| last.done), received.first().map(|first| first.total));
        for row in &report.results {
            // In a round this short the paced load of the flood may come to nothing on a busy machine.
            assert!(row.per_s > 0.0 || row.workload.starts_with("high"), "{row:?}");
            assert!(row.p50_us <= row.p99_us, "{row:?}");
            // A flooded class is held against itself, a dialog against nothing, one batch against the other.
            let has_no_log = [
                "dialog",
                "high",
                "receive_at",
                "receive_in_tx_alone",
                "receive_in_tx_and_insert",
                "stream_",
                "send_100_spread",
                "receive_100_scattered",
                "log",
                "send_beside",
                "work_both",
                "worker_",
                "take_and_complete_at",
                "take_and_complete_beside",
            ];
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
        let none = Options { rounds: 0, ..Options::embedded(Path::new(".")).quick() };
        let error = run(none, |_| (), &Interrupt::never()).await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (dialoq::Code::OUT_OF_RANGE, "the number of rounds is 0; it must be at least 1")
        );
    }
}
