//! The rows that the queue monitors of this process publish: those behind `dm_broker_queue_monitors` and
//! `dm_broker_activated_tasks`.
//!
//! A store may copy them into its tables, so that another process sees the readers too; it does so when
//! [`MonitorBoard::version`] has changed.

use crate::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A row of `dm_broker_queue_monitors`, with the counters of `Broker Activation`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MonitorRow {
    /// Names the monitor in this process.
    pub monitor_id: u64,
    /// The queue.
    pub queue_id: i32,
    /// Its name as declared.
    pub queue_name: Arc<str>,
    /// INACTIVE, NOTIFIED or RECEIVES_OCCURRING.
    pub state: &'static str,
    /// When a RECEIVE without WHERE last came back empty.
    pub last_empty_rowset_time: Option<Timestamp>,
    /// When a reader was last launched.
    pub last_activated_time: Option<Timestamp>,
    /// Sessions now waiting in RECEIVE without WHERE, activated readers or not.
    pub tasks_waiting: u64,
    /// The most readers at a time.
    pub max_queue_readers: u16,
    /// Readers now running.
    pub tasks_running: u64,
    /// Readers launched so far.
    pub tasks_started_total: u64,
    /// Readers that failed or never received, so far.
    pub tasks_aborted_total: u64,
    /// Launches that the limit forbade, so far.
    pub task_limit_reached_total: u64,
    /// Readers and handlers that ended with an error, and launches that found no procedure, so far.
    pub activation_errors_total: u64,
}

/// A row of `dm_broker_activated_tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActivatedTaskRow {
    /// The id of the reader in this process; `spid` on a server.
    pub task_id: u64,
    /// The monitor that launched it.
    pub monitor_id: u64,
    /// The queue.
    pub queue_id: i32,
    /// Its name as declared.
    pub queue_name: Arc<str>,
    /// The procedure, handler or program.
    pub procedure_name: Arc<str>,
    /// When it was launched.
    pub started_at: Timestamp,
}

/// The published rows of every queue monitor of one store.
#[derive(Debug, Default)]
pub struct MonitorBoard {
    rows: Mutex<Rows>,
    version: AtomicU64,
    next_id: AtomicU64,
    moved: Notify,
    began: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    monitors: BTreeMap<u64, MonitorRow>,
    tasks: BTreeMap<u64, ActivatedTaskRow>,
    /// By connection: the rows of processes that work through this one.
    guests: BTreeMap<u64, ProcessRows>,
}

/// The rows of one process.
#[derive(Debug, Clone, Default)]
pub struct ProcessRows {
    /// The process.
    pub process_id: u32,
    /// Its queue monitors.
    pub monitors: Vec<MonitorRow>,
    /// Its running readers.
    pub tasks: Vec<ActivatedTaskRow>,
}

impl MonitorRow {
    /// The values of its state.
    pub const STATES: [&'static str; 3] = ["INACTIVE", "NOTIFIED", "RECEIVES_OCCURRING"];
}

impl MonitorBoard {
    /// A new id for a monitor or a task.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, SeqCst) + 1
    }

    /// Moves with every change.
    pub fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// The store: waits until something changes; a change since the last time counts.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    /// The store: waits until a monitor begins to watch its queue, which may have messages already.
    pub async fn began(&self) {
        self.began.notified().await;
    }

    /// Writes a monitor's row, new or not.
    pub fn put_monitor(&self, row: MonitorRow) {
        let mut rows = self.rows();
        if rows.monitors.get(&row.monitor_id) != Some(&row) {
            if rows.monitors.insert(row.monitor_id, row).is_none() {
                self.began.notify_one();
            }
            self.notify_change();
        }
    }

    /// Removes a monitor's row: its queue is off, or no longer activated.
    pub fn remove_monitor(&self, monitor_id: u64) {
        if self.rows().monitors.remove(&monitor_id).is_some() {
            self.notify_change();
        }
    }

    /// Writes the row of a reader that was launched.
    pub fn put_task(&self, row: ActivatedTaskRow) {
        self.rows().tasks.insert(row.task_id, row);
        self.notify_change();
    }

    /// Removes the row of a reader that has left.
    pub fn remove_task(&self, task_id: u64) {
        if self.rows().tasks.remove(&task_id).is_some() {
            self.notify_change();
        }
    }

    /// Writes the rows of a process that works through this one; `None` removes them. The ids of its rows are made
    /// different from those of all other processes.
    pub fn put_guest(&self, connection: u64, rows: Option<ProcessRows>) {
        let shift = connection << 32;
        let changed = match rows {
            None => self.rows().guests.remove(&connection).is_some(),
            Some(mut rows) => {
                rows.monitors.iter_mut().for_each(|row| row.monitor_id = row.monitor_id & 0xffff_ffff | shift);
                for row in &mut rows.tasks {
                    (row.task_id, row.monitor_id) =
                        (row.task_id & 0xffff_ffff | shift, row.monitor_id & 0xffff_ffff | shift);
                }
                self.rows().guests.insert(connection, rows);
                true
            }
        };
        if changed {
            self.notify_change();
        }
    }

    /// The rows of this process, and of those that work through it.
    pub fn all_processes(&self) -> Vec<ProcessRows> {
        let rows = self.rows();
        let own = ProcessRows {
            process_id: std::process::id(),
            monitors: rows.monitors.values().cloned().collect(),
            tasks: rows.tasks.values().cloned().collect(),
        };
        std::iter::once(own).chain(rows.guests.values().cloned()).collect()
    }

    /// Whether any monitor is published.
    pub fn has_monitors(&self) -> bool {
        !self.rows().monitors.is_empty()
    }

    /// Every monitor, in the order they were made.
    pub fn monitors(&self) -> Vec<MonitorRow> {
        self.rows().monitors.values().cloned().collect()
    }

    /// Every running reader, in the order they were launched.
    pub fn tasks(&self) -> Vec<ActivatedTaskRow> {
        self.rows().tasks.values().cloned().collect()
    }

    fn notify_change(&self) {
        self.version.fetch_add(1, SeqCst);
        self.moved.notify_one();
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
