//! What others see of this process: that it lives, what its queue monitors do, and which places of readers it holds.

use super::Server;
use super::link::{Arg, Call, Driver, Fate, Link, Linked};
use super::retry::{unsent, verdict};
use super::rows::only;
use crate::error::{Code, Result};
use crate::store::{ActivatedTaskRow, MonitorRow, ReaderSlot, SqlRow};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use uuid::Uuid;

/// Changes that come close together are told together.
const GATHERING: Duration = Duration::from_millis(100);

/// A link of its own whose locks say that the process lives.
pub(super) struct Presence {
    driver: Arc<dyn Driver>,
    process: Uuid,
    host_name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Box<dyn Link>>,
    /// Counts the links; places that were held by an earlier one are gone.
    generation: u64,
    monitors: BTreeMap<u64, MonitorRow>,
    tasks: BTreeMap<u64, ActivatedTaskRow>,
    version: u64,
}

impl State {
    /// Makes a call that may be made twice.
    async fn call(&mut self, presence: &Presence, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let mut is_new = false;
        loop {
            let mut link = match self.link.take() {
                Some(link) => link,
                None => {
                    is_new = true;
                    let mut link = presence.driver.dedicated().await.map_err(unsent)?;
                    let here = Call { name: "hold_presence", args: vec![Arg::Uuid(presence.process)] };
                    link.call(here).await?;
                    self.generation += 1;
                    // Whoever took us for dead has removed what we said.
                    (self.monitors, self.tasks, self.version) = (BTreeMap::new(), BTreeMap::new(), 0);
                    link
                }
            };
            match link.call(call.clone()).await {
                Ok(rows) => {
                    self.link = Some(link);
                    return Ok(rows);
                }
                Err(failure) if failure.is_link_usable => {
                    self.link = Some(link);
                    return Err(failure);
                }
                Err(failure) => {
                    let is_lost = failure.fate == Fate::Unknown || failure.error.code() == Code::SERVER_UNREACHABLE;
                    if is_new || !is_lost {
                        return Err(failure);
                    }
                }
            }
        }
    }
}

impl Presence {
    pub(super) fn new(driver: Arc<dyn Driver>, process: Uuid) -> Self {
        let host_name = std::env::var("HOSTNAME")
            .or_else(|_| std::env::var("COMPUTERNAME"))
            .or_else(|_| std::fs::read_to_string("/etc/hostname"))
            .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned());
        Self { driver, process, host_name, state: Mutex::default() }
    }

    fn monitor<'a>(&'a self, row: &'a MonitorRow) -> Call<'a> {
        let number = |number: u64| Arg::BigInt(number.cast_signed());
        let time = |time: Option<crate::time::Timestamp>| time.map_or(Arg::Null, Arg::Time);
        let args = vec![
            Arg::Uuid(self.process),
            number(row.monitor_id),
            Arg::Int(row.queue_id),
            Arg::Text(row.state),
            time(row.last_empty_rowset_time),
            time(row.last_activated_time),
            number(row.tasks_waiting),
            Arg::Int(row.max_queue_readers.into()),
            number(row.tasks_running),
            number(row.tasks_started_total),
            number(row.tasks_aborted_total),
            number(row.task_limit_reached_total),
            number(row.activation_errors_total),
            Arg::Text(&self.host_name),
            Arg::BigInt(std::process::id().into()),
        ];
        Call { name: "put_queue_monitor", args }
    }

    fn task<'a>(&'a self, row: &'a ActivatedTaskRow) -> Call<'a> {
        let args = vec![
            Arg::Uuid(self.process),
            Arg::BigInt(row.task_id.cast_signed()),
            Arg::BigInt(row.monitor_id.cast_signed()),
            Arg::Int(row.queue_id),
            Arg::Text(&row.procedure_name),
            Arg::BigInt(std::process::id().into()),
            Arg::Time(row.started_at),
        ];
        Call { name: "put_activated_task", args }
    }

    fn delete(&self, name: &'static str, id: u64) -> Call<'static> {
        Call { name, args: vec![Arg::Uuid(self.process), Arg::BigInt(id.cast_signed())] }
    }

    /// Forgets what was said of this process, and lets go.
    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        if let Some(mut link) = state.link.take() {
            // Else somebody who finds us dead does it.
            let _ = link.call(Call { name: "delete_process", args: vec![Arg::Uuid(self.process)] }).await;
        }
    }
}

impl Server {
    /// Copies what the queue monitors publish into the tables until the store closes.
    pub(super) async fn publish_monitors(self: Arc<Self>) {
        loop {
            self.board.monitors().moved().await;
            if let Err(error) = self.publish().await {
                tracing::warn!(%error, "what the queue monitors do could not be published");
            }
            tokio::time::sleep(GATHERING).await;
        }
    }

    /// Writes what has changed since it was last written.
    pub(super) async fn publish(&self) -> Result<()> {
        let board = self.board.monitors();
        let presence = &self.presence;
        let mut state = presence.state.lock().await;
        while state.version != board.version() {
            let (version, generation) = (board.version(), state.generation);
            let monitors: BTreeMap<_, _> = board.monitors().into_iter().map(|row| (row.monitor_id, row)).collect();
            let tasks: BTreeMap<_, _> = board.tasks().into_iter().map(|row| (row.task_id, row)).collect();
            let mut calls = Vec::new();
            let gone = |id: &&u64| !monitors.contains_key(*id);
            calls.extend(state.monitors.keys().filter(gone).map(|id| presence.delete("delete_queue_monitor", *id)));
            let gone = |id: &&u64| !tasks.contains_key(*id);
            calls.extend(state.tasks.keys().filter(gone).map(|id| presence.delete("delete_activated_task", *id)));
            let changed = |row: &&MonitorRow| state.monitors.get(&row.monitor_id) != Some(*row);
            calls.extend(monitors.values().filter(changed).map(|row| presence.monitor(row)));
            let changed = |row: &&ActivatedTaskRow| state.tasks.get(&row.task_id) != Some(*row);
            calls.extend(tasks.values().filter(changed).map(|row| presence.task(row)));
            for call in calls {
                state.call(presence, call).await.map_err(verdict)?;
            }
            // A link that took another's place has begun from nothing: everything is written again then. The first took
            // nobody's.
            if state.generation <= generation.max(1) {
                (state.monitors, state.tasks, state.version) = (monitors, tasks, version);
            }
        }
        Ok(())
    }

    /// A place among the readers of a queue.
    pub(super) async fn take_slot(
        self: &Arc<Self>,
        queue_id: i32,
        max_queue_readers: u16,
    ) -> Result<Option<ReaderSlot>> {
        let args = vec![Arg::Int(queue_id), Arg::Int(max_queue_readers.into())];
        let mut state = self.presence.state.lock().await;
        let rows = state.call(&self.presence, Call { name: "take_reader_slot", args }).await.map_err(verdict)?;
        let generation = state.generation;
        drop(state);
        let Some(slot) = (match rows.is_empty() {
            true => None,
            false => only(&rows)?.maybe_id("slot")?,
        }) else {
            return Ok(None);
        };
        let server = self.clone();
        Ok(Some(ReaderSlot::freed_by(move || {
            let runtime = server.runtime.clone();
            runtime.spawn(async move { server.free_slot(queue_id, slot, generation).await });
        })))
    }

    async fn free_slot(self: Arc<Self>, queue_id: i32, slot: i32, generation: u64) {
        let mut state = self.presence.state.lock().await;
        if state.generation == generation && state.link.is_some() {
            let args = vec![Arg::Int(queue_id), Arg::Int(slot)];
            if let Err(failure) = state.call(&self.presence, Call { name: "free_reader_slot", args }).await {
                tracing::warn!(error = %failure.error, "a reader's place could not be freed; it is when the process ends");
            }
        }
        drop(state);
        // Whoever was refused a place tries again when he hears of it.
        self.heard(&format!("s:{queue_id}"), 0).await;
    }
}
