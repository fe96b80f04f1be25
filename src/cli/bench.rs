//! `dialoq bench`

use super::failure::Failure;
use super::globals::Globals;
use super::interrupt::Interrupt;
use super::output::Output;
use crate::bench::{self, Options, Site, Workload};
use clap::{Args, ValueEnum};
use dialoq::internals::store::url::StoreUrl;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure how fast and how big the broker is on this machine and disk.
///
/// Each workload runs in turn with its limit, a bare log that appends the same bodies and syncs with the same group
/// commit, so that rates mean something on any machine. Everything happens in a scratch folder that is removed again.
///
/// With --db and the URL of a server that server is measured instead, against a table queue written by hand on it. The
/// database must have no other users; the bench removes its objects, after the first ctrl-C too, but for the schema dialoq. The
/// table queue has two connections for each caller, or one with --workload send or receive, beside the pool of the broker:
/// PostgreSQL takes 100 by default, so a full run needs --callers 40 or a higher max_connections.
///
/// `dialoq bench work` measures work queues instead: every order and, on a server, every taking technique (TAKE_BY), with 1, 8
/// and 64 readers and as many writers, on up to three depths of backlog. It prints how often a job was handed out twice and how
/// often an answer was empty although work was pending; both must be 0.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq bench --quick                                everything, roughly, in under a minute
  dialoq bench --workload send --callers 64,256       one workload at full length
  dialoq bench --json > bench.json
  dialoq bench work --quick                           orders of work queues side by side, in a minute
  dialoq bench work --db postgres://me@host/empty     orders and taking techniques
  dialoq bench --workload work --db postgres://me@host/empty   work queues beside rivals: by hand, River, graphile-worker
  dialoq bench --db postgres://me@host/empty --minutes 30   a server, with half an hour of constant load
  dialoq bench --db postgres://me@host/empty --workload load --minutes 40 --per-second 8000   half an hour under a snapshot")]
pub(super) struct Bench {
    /// What to measure instead of the workloads.
    #[arg(value_name = "WHAT")]
    what: Option<What>,
    /// Short rounds and small backlogs.
    #[arg(long)]
    quick: bool,
    /// Which workloads to run [default: all].
    #[arg(long = "workload", value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// How many callers at the same time, one run after the other [default: 1,8,64,256; on a server one number, 64].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: Vec<u16>,
    /// Bytes per message body.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(8..=1 << 26))]
    body_bytes: Option<u32>,
    /// Rounds per workload; the median counts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// How long a round takes.
    #[arg(long, value_name = "SPAN", value_parser = super::globals::parse_span)]
    round_length: Option<Duration>,
    /// Do not sync commits: durability normal instead of full.
    #[arg(long)]
    unsynced: bool,
    /// The folder whose disk is measured [default: the working directory].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// On a server: how long the constant load lasts [default: 1].
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..=1440))]
    minutes: Option<u16>,
    /// On a server: messages a second of the constant load [default: half of what goes through at most].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    per_second: Option<u32>,
    /// Messages in the deepest backlog [default: 1000000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    backlog: Option<u32>,
    /// On a server: also if the database holds conversations.
    #[arg(long)]
    in_use: bool,
}

/// What is measured instead of the workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Orders and taking techniques of work queues side by side.
    Work,
}

/// Below the tables.
const ROWS: &str = "\
Each rate stands beside that of a rival in the same run: the bare log is a file that the same bodies are appended to, synced as
often; SQLite is a table without a broker; on a server it is a table queue by hand. docs/performance.md explains each row.";
/// The same for --quick.
const QUICK: &str = "\
Short rounds: compare each rate with its rival's beside it, which had the same disk at the same moment. The bare log is a file
that the same bodies are appended to, synced as often; SQLite is a table without a broker; on a server the rival is a table queue
by hand. A full run, `dialoq bench`, also compares with the project's targets. docs/performance.md explains each row.";

impl Bench {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let is_server = StoreUrl::parse(&globals.db)?.server().is_some();
        self.check(is_server)?;
        let bar = output.progress(1, "{bar:30} {pos}/{len} {wide_msg} {elapsed}");
        let progress = {
            let bar = bar.clone();
            move |progress: bench::Progress| {
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
                bar.set_message(progress.next);
            }
        };
        let options = self.options(is_server, &globals.db);
        let measured = match self.what {
            Some(What::Work) => bench::run_work(&options, progress, interrupt).await,
            None => bench::run(options, progress, interrupt).await,
        };
        bar.finish_and_clear();
        let Some(mut report) = measured? else {
            return Err(Failure::Interrupted("interrupted; what the bench made is removed".into()));
        };
        if self.quick {
            // The targets are for full rounds on a quiet machine.
            report.targets.clear();
        }
        if output.json {
            return output.json(&report);
        }
        let note = match (self.what, self.quick) {
            (Some(_), _) => "",
            (None, true) => QUICK,
            (None, false) => ROWS,
        };
        output.text(&format!("{report}{note}"))
    }

    /// Refuses what would be passed over: who says it would take the figures for what they are not.
    fn check(&self, is_server: bool) -> Result<(), Failure> {
        let misplaced = if is_server {
            [
                (self.folder.is_some(), "--folder is for the embedded store; a server has its own disk"),
                (self.unsynced, "--unsynced is for the embedded store; say durability=normal in the server's URL"),
                (self.callers.len() > 1 && self.what.is_none(), "on a server --callers takes one number"),
            ]
        } else {
            [
                (self.minutes.is_some(), "--minutes is for a server, which --db names"),
                (self.in_use, "--in-use is for a server, which --db names"),
                (self.per_second.is_some(), "--per-second is for a server, which --db names"),
            ]
        };
        let of_workloads = !self.workloads.is_empty() || self.minutes.is_some() || self.per_second.is_some();
        let of_workloads = self.what.is_some() && of_workloads;
        let misplaced =
            misplaced.into_iter().chain([(of_workloads, "bench work has no --workload, --minutes, --per-second")]);
        match misplaced.into_iter().find(|(is_said, _)| *is_said) {
            Some((_, why)) => Err(Failure::Usage(why.to_owned())),
            None => self.check_workloads(is_server),
        }
    }

    fn check_workloads(&self, is_server: bool) -> Result<(), Failure> {
        let (known, where_it_is) = match is_server {
            true => (&Workload::ON_SERVERS[..], "the embedded store"),
            false => (&Workload::ALL[..], "a server, which --db names"),
        };
        let Some(other) = self.workloads.iter().find(|workload| !known.contains(workload)) else { return Ok(()) };
        let name = other.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        Err(Failure::Usage(format!("--workload {name} is for {where_it_is}")))
    }

    fn options(&self, is_server: bool, url: &str) -> Options {
        let mut options = match is_server {
            true => Options::server(url),
            false => Options::embedded(self.folder.as_deref().unwrap_or(Path::new("."))),
        };
        options = match (self.what, self.quick) {
            (Some(What::Work), false) => options.for_work(),
            (Some(What::Work), true) => options.for_work().quick_for_work(),
            (None, false) => options,
            (None, true) => options.quick(),
        };
        match &mut options.site {
            Site::Folder { synced, .. } => *synced = !self.unsynced,
            Site::Server { is_in_use, .. } => *is_in_use = self.in_use,
        }
        if !self.callers.is_empty() {
            options.callers = self.callers.iter().copied().map(usize::from).collect();
        }
        if !self.workloads.is_empty() {
            options.workloads.clone_from(&self.workloads);
        }
        let minutes = self.minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
        options.load_length = minutes.unwrap_or(options.load_length);
        options.load_per_s = self.per_second.map(f64::from);
        options.body_bytes = self.body_bytes.map_or(options.body_bytes, |bytes| bytes as usize);
        options.rounds = self.rounds.map_or(options.rounds, usize::from);
        options.round_length = self.round_length.unwrap_or(options.round_length);
        options.largest = self.backlog.map_or(options.largest, |backlog| backlog as usize);
        options
    }
}
