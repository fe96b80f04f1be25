//! The measured figures: those of the process, and the rows of the store.

use crate::servers::Store;
use dialoq::Broker;
use std::path::PathBuf;
use std::time::Instant;

/// One sample.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at_s: f64,
    /// How many scenes the load has played so far.
    pub(crate) scenes: u64,
    pub(crate) values: Vec<(&'static str, f64)>,
}

impl Sample {
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

pub(crate) struct Sampler {
    store: Store,
    broker: Broker,
    /// The file of an embedded database.
    file: Option<PathBuf>,
    started: Instant,
}

impl Sampler {
    pub(crate) fn new(store: Store, broker: Broker, url: &str) -> Self {
        let file = url.strip_prefix("sqlite:").map(|rest| rest.split('?').next().unwrap_or(rest).into());
        Self { store, broker, file, started: Instant::now() }
    }

    /// Takes a sample. A store that a fault has just struck is asked again.
    pub(crate) async fn take(&mut self, scenes: u64) -> Sample {
        let mut values = process();
        if let Some(file) = &self.file {
            let size = |suffix: &str| {
                let mut path = file.clone().into_os_string();
                path.push(suffix);
                std::fs::metadata(path).map_or(0.0, |found| found.len() as f64)
            };
            values.push(("file bytes", size("")));
            values.push(("log bytes", size("-wal")));
        }
        for (name, text) in reads(self.store) {
            values.push((name, self.read(&text).await));
        }
        Sample { at_s: self.started.elapsed().as_secs_f64(), scenes, values }
    }

    async fn read(&self, text: &str) -> f64 {
        loop {
            match self.broker.query(text, ()).await {
                Ok(rows) => return rows.rows[0].get::<i64>("n").expect("a number") as f64,
                Err(error) if error.is_retryable() => tokio::task::yield_now().await,
                // PostgreSQL ended this session: that is one of the faults.
                Err(error) if error.to_string().contains("57P01") => tokio::task::yield_now().await,
                Err(error) => panic!("{text}: {error}"),
            }
        }
    }
}

/// Texts that each give one number.
fn reads(store: Store) -> Vec<(&'static str, String)> {
    let view = |name| store.view(name);
    let mut reads = vec![
        ("endpoints", format!("SELECT count(*) AS n FROM {}", view("conversation_endpoints"))),
        ("groups", format!("SELECT count(*) AS n FROM {}", view("conversation_groups"))),
        ("undelivered", format!("SELECT count(*) AS n FROM {}", view("transmission_queue"))),
        ("messages", format!("SELECT count(*) AS n FROM {}", store.queue_messages())),
    ];
    if store == Store::Postgres {
        reads.push(("table bytes", POSTGRES_BYTES.to_owned()));
        reads.push(("transaction locks", POSTGRES_LOCKS.to_owned()));
        reads.push(("sessions", POSTGRES_SESSIONS.to_owned()));
    }
    reads
}

const POSTGRES_BYTES: &str = "
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS n FROM pg_class
    WHERE relnamespace = 'dialoq'::regnamespace AND relkind = 'r'";

/// Locks of transactions on conversation groups; the presence of a process is a lock of its session, and stays.
const POSTGRES_LOCKS: &str = "
    SELECT count(*) AS n FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    WHERE l.locktype = 'advisory' AND a.datname = current_database() AND a.xact_start IS NOT NULL
      AND a.pid <> pg_backend_pid()";

const POSTGRES_SESSIONS: &str = "
    SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()";

/// This process, as Linux shows it; elsewhere only its tasks.
fn process() -> Vec<(&'static str, f64)> {
    let mut values = Vec::new();
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        values.extend(resident.and_then(|kib| kib.trim().parse::<f64>().ok()).map(|kib| ("resident KiB", kib)));
    }
    if let Ok(handles) = std::fs::read_dir("/proc/self/fd") {
        values.push(("handles", handles.count() as f64));
    }
    values.push(("tasks", tokio::runtime::Handle::current().metrics().num_alive_tasks() as f64));
    values
}
