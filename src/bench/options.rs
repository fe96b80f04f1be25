//! What to measure, where, and how long.

use dialoq::internals::ErrorConstructors;
use dialoq::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const MILLION: usize = 1_000_000;

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) enum Site {
    /// The embedded store, on the disk of a folder.
    Folder {
        /// The folder under which a scratch folder is made and removed again.
        path: PathBuf,
        /// Whether every commit is synced before it is answered (durability full) or not (normal).
        synced: bool,
    },
    /// A database server.
    Server {
        /// The database; it is left as it was.
        url: String,
        /// Whether a database that holds conversations is taken too.
        is_in_use: bool,
    },
}

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Where.
    pub site: Site,
    /// Bytes per body; at least 8, which hold the time of sending.
    pub body_bytes: usize,
    /// How many callers the plain workloads are run with, one after the other; on a server the first number only.
    pub callers: Vec<usize>,
    /// Which workloads to run.
    pub workloads: Vec<Workload>,
    /// Rounds per workload.
    pub rounds: usize,
    /// How long a round takes.
    pub round_length: Duration,
    /// Messages in the deepest backlog, and conversations in the largest crowd; smaller backlogs are in proportion.
    pub largest: usize,
    /// On a server: how long the constant load lasts; three quarters of it with a reader that holds an old snapshot.
    pub load_length: Duration,
    /// On a server: messages a second of the constant load, instead of half of what goes through at most.
    pub load_per_s: Option<f64>,
    /// On a server: how long the idle system is watched.
    pub idle_length: Duration,
}

impl Options {
    /// Every workload of the embedded store at full length: some ten minutes.
    pub(crate) fn embedded(folder: &Path) -> Self {
        Self {
            site: Site::Folder { path: folder.to_owned(), synced: true },
            body_bytes: 256,
            callers: vec![1, 8, 64, 256],
            workloads: Workload::ALL.to_vec(),
            rounds: 9,
            round_length: Duration::from_secs(1),
            largest: MILLION,
            load_length: Duration::from_secs(60),
            load_per_s: None,
            idle_length: Duration::from_secs(60),
        }
    }

    /// Every workload of a server at full length, but one minute of constant load.
    pub(crate) fn server(url: &str) -> Self {
        Self {
            site: Site::Server { url: url.to_owned(), is_in_use: false },
            callers: vec![64],
            workloads: Workload::ON_SERVERS.to_vec(),
            rounds: 5,
            // In a shorter one the rival has not met its own dead rows yet: its receives fall by a quarter within ten seconds.
            round_length: Duration::from_secs(10),
            ..Self::embedded(Path::new("."))
        }
    }

    /// What `dialoq bench work` measures, instead of workloads: readers and writers, on backlogs of this length at most.
    pub(crate) fn for_work(self) -> Self {
        let (callers, rounds) = (vec![1, 8, 64], 5);
        Self { callers, rounds, round_length: Duration::from_secs(1), largest: MILLION / 10, ..self }
    }

    /// The same with short rounds, in two minutes.
    pub(crate) fn quick_for_work(self) -> Self {
        Self { rounds: 3, round_length: Duration::from_millis(100), largest: MILLION / 100, ..self }
    }

    /// The same workloads with short rounds and small backlogs: on the embedded store under a minute.
    pub(crate) fn quick(self) -> Self {
        let rounds = 3;
        match self.site {
            Site::Folder { .. } => {
                Self { rounds, round_length: Duration::from_millis(200), largest: MILLION / 10, ..self }
            }
            Site::Server { .. } => Self {
                rounds,
                round_length: Duration::from_millis(500),
                largest: MILLION / 50,
                load_length: Duration::from_secs(6),
                idle_length: Duration::from_secs(15),
                ..self
            },
        }
    }

    /// So many messages or conversations, in proportion to the largest backlog.
    pub(super) fn enough(&self, count: usize) -> usize {
        (count as u64 * self.largest as u64 / MILLION as u64) as usize
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.callers.contains(&0) || self.callers.is_empty() {
            return Err(Error::out_of_range("the number of callers", 0, "at least 1"));
        }
        for (what, length) in [
            ("the length of a round", self.round_length),
            ("the length of the constant load", self.load_length),
            ("the length of the idle time", self.idle_length),
        ] {
            if length.is_zero() {
                return Err(Error::out_of_range(what, "zero", "above zero"));
            }
        }
        for (what, found, least) in [
            ("the number of rounds", self.rounds, 1),
            ("the largest backlog", self.largest, 1000),
            ("the size of a body in bytes", self.body_bytes, 8),
        ] {
            if found < least {
                return Err(Error::out_of_range(what, found, &format!("at least {least}")));
            }
        }
        let (known, what, right) = match self.site {
            Site::Folder { .. } => {
                let right = "one that an embedded store has; this one is for servers, named by --db";
                (&Workload::ALL[..], "the workload", right)
            }
            Site::Server { .. } => {
                let right =
                    "one of send, receive, both, tx, cycle, depth, wake-up, hostile, idle, load, old-snapshot, work";
                (&Workload::ON_SERVERS[..], "the workload on a server", right)
            }
        };
        match self.workloads.iter().find(|workload| !known.contains(workload)) {
            Some(other) => Err(Error::out_of_range(what, format!("{other:?}"), right)),
            None => Ok(()),
        }
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
    /// Begin, send, receive, reply, receive, end, end: each committed by itself, and in three transactions.
    Cycle,
    /// Receiving from a queue that is 10,000, 100,000 and 1,000,000 messages deep.
    Depth,
    /// The waiting time of a high class while a low class floods the queue.
    Flood,
    /// The latency of SEND while one caller sends bodies that are made to be expensive to check.
    Hostile,
    /// Jobs of a work queue: pushed; taken and completed, in two calls; both at once; with and without a history. On
    /// PostgreSQL beside a table queue by hand, River and graphile-worker, with 1, 8 and the given number of callers.
    Work,
    /// In transactions: on the embedded store received, alone and with an INSERT of the user's own. On PostgreSQL received,
    /// received with a row and an answer, 100 sent, 100 received, beside a table queue by hand in explicit transactions; with the given
    /// number of callers, 8 and 1.
    Tx,
    /// On a server: from a SEND to the RECEIVE that waited for it, on an idle system.
    WakeUp,
    /// On a server: what a hundred waiting receivers cost it.
    Idle,
    /// On a server: constant load, for three quarters of the time with a reader that holds an old snapshot.
    Load,
    /// On a server: full rates before an old snapshot, and after full load under it, messages and dialogs, for as long as the
    /// constant load lasts.
    OldSnapshot,
}

impl Workload {
    /// All on the embedded store, in the order they run: memory first, while the process holds nothing else.
    pub(crate) const ALL: [Self; 12] = [
        Self::Backlog,
        Self::Conversations,
        Self::Send,
        Self::Receive,
        Self::Both,
        Self::Batch,
        Self::Tx,
        Self::Cycle,
        Self::Depth,
        Self::Flood,
        Self::Work,
        Self::Hostile,
    ];

    /// All on a server, in the order they run: the deep queue last, which leaves most behind.
    pub(crate) const ON_SERVERS: [Self; 12] = [
        Self::Send,
        Self::Receive,
        Self::Both,
        Self::Tx,
        Self::Cycle,
        Self::WakeUp,
        Self::Hostile,
        Self::Idle,
        Self::Load,
        Self::OldSnapshot,
        Self::Work,
        Self::Depth,
    ];
}
