//! The parts of this process that other processes see: that it lives, the rows of its queue monitors, its reader places.

use super::Database;
use crate::error::{Code, Error, Result};
use crate::store::database::calls::rows::only;
use crate::store::database::link::{Arg, Call, Driver, HANGING, Link, Linked};
use crate::store::database::notifications::notice::Notice;
use crate::store::database::retry::{self, KeptLink, call_reconnecting};
use crate::store::{ActivatedTaskRow, BoxFuture, MonitorRow, ReaderSlot, SqlRow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use uuid::Uuid;

/// The pause after a write, in which further changes gather.
const GATHERING: Duration = Duration::from_millis(100);

/// A queue's number that every server accepts. A request for none of its places shows that the connection lives.
const ANY_QUEUE: i32 = 1;

/// A link of its own. Its session locks show that the process lives.
pub(super) struct Presence {
    driver: Arc<dyn Driver>,
    process: Uuid,
    host_name: String,
    state: Mutex<State>,
    /// A link that holds the lock of the process too, while a request on the other one hangs.
    beside: Mutex<Option<Box<dyn Link>>>,
    /// The last link has taken its locks.
    is_shown: AtomicBool,
    /// Whether transactions of this process may hold jobs.
    holds_jobs: AtomicBool,
}

#[derive(Default)]
struct State {
    link: Option<Box<dyn Link>>,
    /// Counts the links; the rows and locks of an earlier link are gone.
    generation: u64,
    /// The places that readers of this process hold, by an own number. A new link takes them again.
    places: BTreeMap<u64, ReaderPlace>,
    last_place: u64,
    monitors: BTreeMap<u64, MonitorRow>,
    tasks: BTreeMap<u64, ActivatedTaskRow>,
    version: u64,
    /// A connection that showed rows was lost: they are to be written again, although none of them changes.
    has_lost_rows: bool,
    /// Rows that another session held when they were last written. They are written last.
    held: BTreeSet<RowKey>,
    /// When writing the rows failed, until it succeeds.
    failed_at: Option<Instant>,
}

/// A place among the readers of a queue.
struct ReaderPlace {
    queue_id: i32,
    max_queue_readers: u16,
    /// The number of the place; `None` if the link was lost and other processes have taken all places since.
    slot: Option<i32>,
}

/// A row of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RowKey {
    Monitor(u64),
    Task(u64),
}

/// The link of a presence, whose locks and rows are made again with it.
struct Registration<'p>(&'p mut State, &'p Presence);

impl KeptLink for Registration<'_> {
    fn kept(&mut self) -> &mut Option<Box<dyn Link>> {
        &mut self.0.link
    }

    fn connect(&mut self) -> BoxFuture<'_, Linked<Box<dyn Link>>> {
        Box::pin(async {
            let Self(state, presence) = self;
            presence.is_shown.store(false, SeqCst);
            let mut link = presence.driver.dedicated().await?;
            link.call(Call { name: "hold_presence", args: vec![Arg::Uuid(presence.process)] }).await?;
            presence.is_shown.store(true, SeqCst);
            state.generation += 1;
            // A process that found ours dead has deleted its rows.
            state.has_lost_rows |= state.shows_rows();
            (state.monitors, state.tasks, state.version) = (BTreeMap::new(), BTreeMap::new(), 0);
            state.held.clear();
            state.take_places_again(&mut *link).await?;
            Ok(link)
        })
    }
}

impl State {
    fn shows_rows(&self) -> bool {
        !(self.monitors.is_empty() && self.tasks.is_empty())
    }

    async fn connect_if_lost(&mut self, presence: &Presence) -> Linked<()> {
        if self.link.as_ref().is_none_or(|link| link.is_closed()) {
            let link = Registration(self, presence).connect().await?;
            self.link = Some(link);
        }
        Ok(())
    }

    /// Makes a call that may be repeated.
    async fn call(&mut self, presence: &Presence, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        call_reconnecting(&mut Registration(self, presence), call).await
    }

    /// The server frees the places when the session ends, but their readers go on. So a new link takes as many places
    /// again; a place that another process has taken meanwhile stays with it.
    async fn take_places_again(&mut self, link: &mut dyn Link) -> Linked<()> {
        self.places.values_mut().for_each(|place| place.slot = None);
        for place in self.places.values_mut() {
            let rows = link.call(take_reader_slot(place.queue_id, place.max_queue_readers)).await?;
            place.slot = slot_of(&rows)?;
        }
        let lost = self.places.values().filter(|place| place.slot.is_none()).count();
        if lost > 0 {
            tracing::warn!(lost, "readers go on whose places other processes took while the connection was lost");
        }
        Ok(())
    }

    /// Makes a call on the kept link, and none on a new one: the place belongs to the old session.
    async fn call_here(&mut self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let Some(mut link) = self.link.take() else { return Ok(Vec::new()) };
        let done = link.call(call).await;
        if done.as_ref().err().is_none_or(|failure| failure.is_link_usable) {
            self.link = Some(link);
        }
        done
    }
}

fn take_reader_slot(queue_id: i32, max_queue_readers: u16) -> Call<'static> {
    Call { name: "take_reader_slot", args: vec![Arg::Int(queue_id), Arg::Int(max_queue_readers.into())] }
}

fn slot_of(rows: &[SqlRow]) -> Result<Option<i32>> {
    if rows.is_empty() { Ok(None) } else { only(rows)?.maybe_id("slot") }
}

impl RowKey {
    fn id(self) -> u64 {
        match self {
            Self::Monitor(id) | Self::Task(id) => id,
        }
    }
}

impl State {
    /// Notes that the table shows a row as it is now.
    fn note_written(&mut self, key: RowKey, monitor: Option<&MonitorRow>, task: Option<&ActivatedTaskRow>) {
        self.held.remove(&key);
        match (key, monitor, task) {
            (RowKey::Monitor(id), Some(row), _) => drop(self.monitors.insert(id, row.clone())),
            (RowKey::Monitor(id), None, _) => drop(self.monitors.remove(&id)),
            (RowKey::Task(id), _, Some(row)) => drop(self.tasks.insert(id, row.clone())),
            (RowKey::Task(id), _, None) => drop(self.tasks.remove(&id)),
        }
    }
}

impl Presence {
    pub(super) fn new(driver: Arc<dyn Driver>, process: Uuid) -> Self {
        let host_name = std::env::var("HOSTNAME")
            .or_else(|_| std::env::var("COMPUTERNAME"))
            .or_else(|_| std::fs::read_to_string("/etc/hostname"))
            .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned());
        Self {
            driver,
            process,
            host_name,
            state: Mutex::default(),
            beside: Mutex::default(),
            is_shown: AtomicBool::default(),
            holds_jobs: AtomicBool::default(),
        }
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

    /// The state; `None` if a request is under way on the link that hangs.
    async fn unless_it_hangs(&self) -> Option<MutexGuard<'_, State>> {
        tokio::time::timeout(HANGING, self.state.lock()).await.ok()
    }

    /// Shows that the process lives, for those that find its jobs.
    pub(super) async fn hold(&self) -> Linked<()> {
        match self.unless_it_hangs().await {
            Some(mut state) => {
                state.connect_if_lost(self).await?;
                self.leave_beside();
            }
            None => self.hold_beside().await?,
        }
        // Not before it is shown: a take that is refused for want of a connection leaves nothing to show.
        self.holds_jobs.store(true, SeqCst);
        Ok(())
    }

    /// Shows it again if the connection that shows it is known to be lost. A tick, of this process too, takes a process without
    /// that connection for dead, and ends the attempts at its jobs.
    pub(super) async fn hold_again(&self) -> Linked<()> {
        let Some(mut state) = self.unless_it_hangs().await else {
            let has_shown = self.holds_jobs() || self.is_shown.load(SeqCst);
            return if has_shown { self.hold_beside().await } else { Ok(()) };
        };
        if self.holds_jobs() || !state.places.is_empty() {
            state.connect_if_lost(self).await?;
        }
        self.leave_beside();
        Ok(())
    }

    /// Shows it by a link of its own: the server may have ended the session of the one that hangs already, and then a tick of this
    /// process would end the attempts at its own jobs. The lock of a process is shared, so two sessions can hold it.
    async fn hold_beside(&self) -> Linked<()> {
        let hold = || Call { name: "hold_presence", args: vec![Arg::Uuid(self.process)] };
        let mut beside = self.beside.lock().await;
        if let Some(mut link) = beside.take()
            && link.call(hold()).await.is_ok()
        {
            *beside = Some(link);
            return Ok(());
        }
        let mut link = self.driver.dedicated().await?;
        link.call(hold()).await?;
        *beside = Some(link);
        Ok(())
    }

    /// Closes the link beside one that goes on.
    fn leave_beside(&self) {
        if let Ok(mut beside) = self.beside.try_lock() {
            beside.take();
        }
    }

    /// The same for its rows, which such a tick deletes.
    async fn show_again(&self) -> Linked<bool> {
        let Some(mut state) = self.unless_it_hangs().await else { return Ok(false) };
        if state.shows_rows() {
            state.connect_if_lost(self).await?;
        }
        Ok(state.has_lost_rows)
    }

    /// Whether the process has held jobs.
    pub(super) fn holds_jobs(&self) -> bool {
        self.holds_jobs.load(SeqCst)
    }

    /// No request is under way while this is held.
    pub(super) async fn rest(&self) -> impl Drop + '_ {
        self.state.lock().await
    }

    /// Deletes the rows of this process, and closes the link.
    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        if let Some(mut link) = state.link.take() {
            // If that fails, a process that finds this one dead does it.
            let _ = link.call(Call { name: "delete_process", args: vec![Arg::Uuid(self.process)] }).await;
        }
        self.leave_beside();
    }
}

impl Database {
    /// Copies the rows of the queue monitors into the tables until the store closes.
    pub(super) async fn publish_monitors(self: Arc<Self>) {
        loop {
            self.board.monitors().moved().await;
            while let Err(error) = self.publish_in_task().await {
                tracing::warn!(%error, "what the queue monitors do could not be published");
                tokio::time::sleep(retry::TASK).await;
            }
            tokio::time::sleep(GATHERING).await;
        }
    }

    /// Writes changed rows before a query, because the views show the readers of this process as they are now. A row
    /// that cannot be written fails no query: another session may hold it in an open transaction. Nor does a query wait for a
    /// connection that hangs.
    pub(super) async fn publish_before_query(self: &Arc<Self>) {
        if tokio::time::timeout(HANGING, self.publish_changes()).await.is_err() {
            tracing::warn!("the views may show what the queue monitors did earlier: the connection for that hangs");
        }
    }

    async fn publish_changes(self: &Arc<Self>) {
        let state = self.presence.state.lock().await;
        let is_current = state.version == self.board.monitors().version();
        // The task that publishes tries again after this pause; until then no query waits for it.
        let has_just_failed = state.failed_at.is_some_and(|at| at.elapsed() < retry::TASK);
        drop(state);
        if is_current || has_just_failed {
            return;
        }
        if let Err(error) = self.publish_in_task().await {
            tracing::warn!(%error, "the views may show what the queue monitors did earlier");
        }
    }

    /// Publishes in a task of its own: a caller that leaves in the middle would close the connection, and so free the
    /// places of all readers of this process.
    async fn publish_in_task(self: &Arc<Self>) -> Result<()> {
        let database = self.clone();
        let done = self.runtime.spawn(async move { database.publish().await });
        done.await.unwrap_or_else(|failure| Err(self.cut_short(failure)))
    }

    /// Writes the rows that have changed. Waits for one row that another session holds, not for more.
    pub(super) async fn publish(&self) -> Result<()> {
        let board = self.board.monitors();
        let mut state = self.presence.state.lock().await;
        while state.version != board.version() {
            if let Err(error) = self.publish_now(&mut state).await {
                state.failed_at = Some(Instant::now());
                return Err(error);
            }
        }
        (state.failed_at, state.has_lost_rows) = (None, false);
        Ok(())
    }

    /// Writes the rows again if the connection that showed them was lost. An idle queue monitor changes no row, so nothing else
    /// would write them.
    pub(super) async fn publish_lost_rows(self: &Arc<Self>) {
        let published = match self.presence.show_again().await {
            Ok(true) => self.publish_in_task().await,
            Ok(false) => Ok(()),
            Err(failure) => Err(failure.into()),
        };
        if let Err(error) = published {
            tracing::warn!(%error, "the views do not show the queue monitors of this process");
        }
    }

    async fn publish_now(&self, state: &mut State) -> Result<()> {
        let (board, presence) = (self.board.monitors(), &self.presence);
        let (version, generation) = (board.version(), state.generation);
        let monitors: BTreeMap<_, _> = board.monitors().into_iter().map(|row| (row.monitor_id, row)).collect();
        let tasks: BTreeMap<_, _> = board.tasks().into_iter().map(|row| (row.task_id, row)).collect();
        let mut calls = Vec::new();
        for id in state.monitors.keys().filter(|id| !monitors.contains_key(id)) {
            calls.push((RowKey::Monitor(*id), presence.delete("delete_queue_monitor", *id)));
        }
        for id in state.tasks.keys().filter(|id| !tasks.contains_key(id)) {
            calls.push((RowKey::Task(*id), presence.delete("delete_activated_task", *id)));
        }
        for (id, row) in monitors.iter().filter(|(id, row)| state.monitors.get(id) != Some(row)) {
            calls.push((RowKey::Monitor(*id), presence.monitor(row)));
        }
        for (id, row) in tasks.iter().filter(|(id, row)| state.tasks.get(id) != Some(row)) {
            calls.push((RowKey::Task(*id), presence.task(row)));
        }
        calls.sort_by_key(|(key, _)| state.held.contains(key));
        for (key, call) in calls {
            let written = state.call(presence, call).await.map_err(Error::from);
            // A second connection has begun without rows, so everything is written again. The first replaces none.
            let is_new = state.generation > generation.max(1);
            match written {
                Ok(_) if is_new => return Ok(()),
                Ok(_) => state.note_written(key, monitors.get(&key.id()), tasks.get(&key.id())),
                Err(error) => {
                    if error.code() == Code::LOCK_TIMEOUT {
                        state.held.insert(key);
                    }
                    return Err(error);
                }
            }
        }
        state.version = version;
        Ok(())
    }

    /// Takes a place among the readers of a queue, in a task of its own, so that a caller that leaves in the middle
    /// leaves the connection whole; the place is then freed.
    pub(super) async fn take_slot(
        self: &Arc<Self>,
        queue_id: i32,
        max_queue_readers: u16,
    ) -> Result<Option<ReaderSlot>> {
        let database = self.clone();
        let done = self.runtime.spawn(async move { database.take_slot_now(queue_id, max_queue_readers).await });
        done.await.unwrap_or_else(|failure| Err(self.cut_short(failure)))
    }

    async fn take_slot_now(self: Arc<Self>, queue_id: i32, max_queue_readers: u16) -> Result<Option<ReaderSlot>> {
        let mut state = self.presence.state.lock().await;
        let call = take_reader_slot(queue_id, max_queue_readers);
        let rows = state.call(&self.presence, call).await?;
        let slot = slot_of(&rows)?;
        if slot.is_none() {
            return Ok(None);
        }
        state.last_place += 1;
        let number = state.last_place;
        state.places.insert(number, ReaderPlace { queue_id, max_queue_readers, slot });
        drop(state);
        let database = self.clone();
        Ok(Some(ReaderSlot::freed_by(slot, move || {
            let runtime = database.runtime.clone();
            runtime.spawn(async move { database.free_slot(number).await });
        })))
    }

    async fn free_slot(self: Arc<Self>, number: u64) {
        let mut state = self.presence.state.lock().await;
        let Some(ReaderPlace { queue_id, slot, .. }) = state.places.remove(&number) else { return };
        if let Some(slot) = slot {
            let args = vec![Arg::Int(queue_id), Arg::Int(slot)];
            if let Err(failure) = state.call_here(Call { name: "free_reader_slot", args }).await {
                tracing::warn!(error = %failure.error, "a reader's place could not be freed; it is when the process ends");
            }
        }
        drop(state);
        // A process that was refused a place tries again.
        self.publish_local(&[Notice::PlaceFree(queue_id)].into_iter().collect(), 0).await;
    }

    /// Checks whether the link that holds the places was lost, and takes them again then; also those that were not free at
    /// the last time.
    pub(super) async fn keep_places(&self) -> Result<()> {
        let Some(mut state) = self.presence.unless_it_hangs().await else { return Ok(()) };
        let queue_id = match state.places.values().next() {
            Some(place) => place.queue_id,
            None if self.presence.holds_jobs() => ANY_QUEUE,
            None => return Ok(()),
        };
        state.call(&self.presence, take_reader_slot(queue_id, 0)).await?;
        // Until the server notices the loss of a connection, the places of that connection are taken.
        let missing = state.places.iter().filter(|(_, place)| place.slot.is_none());
        let missing: Vec<_> =
            missing.map(|(number, place)| (*number, place.queue_id, place.max_queue_readers)).collect();
        for (number, queue_id, max_queue_readers) in missing {
            let rows = state.call_here(take_reader_slot(queue_id, max_queue_readers)).await?;
            if let Some(place) = state.places.get_mut(&number) {
                place.slot = slot_of(&rows)?;
            }
        }
        Ok(())
    }
}
