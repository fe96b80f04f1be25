//! The driver of one queue's monitor: passes it the facts, launches the readers it decides on, and reaps ended readers.

use super::monitor::{ActivationCounters, Decision, Launches, Monitor, MonitorSettings, ReaderEnd, Running};
use super::reader::panic_text;
use super::session::{Session, Traces};
use super::{HandlerError, Procedure, Ramp};
use crate::catalog::{Activation, Catalog, fold_name};
use crate::error::{Code, Error, ErrorKind};
use crate::protocol::Verb;
use crate::protocol::definition::{QueueEvent, WorkNumber};
use crate::raised_gauge::RaisedGauge;
use crate::store::{
    ActivatedTaskRow, CutShort, MonitorRow, QueueActivity, ReaderSlot, Seen, Store, work_queue_on_board,
};
use crate::time::Timestamp;
use metrics::{counter, gauge};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};

/// While readers are at work the monitor has nothing urgent to decide, and a check per message would only take their
/// time.
const SHORTEST_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The largest MAX_QUEUE_READERS.
const MOST_READERS: u16 = 32_767;

/// Requests of the readers' holder.
pub(super) enum Command {
    SetMaxQueueReaders(u16),
    Check(oneshot::Sender<Option<MonitorRow>>),
    Served(oneshot::Sender<u64>),
    Retry,
    Stop,
    Abort,
}

/// Finds a procedure by its name in an ACTIVATION clause.
pub(super) type FindProcedure = Arc<dyn Fn(&str) -> Option<Procedure> + Send + Sync>;

/// The source of the procedure, and with it the settings.
pub(super) enum Source {
    /// Given by the program; an ACTIVATION clause of the queue may turn it off and change the limit.
    Given { procedure: Procedure, max_queue_readers: Option<u16> },
    /// Named by the ACTIVATION clause of the queue.
    Named(FindProcedure),
    /// None: events are posted to the QUEUE_ACTIVATION notifications of the queue.
    Events,
    /// A worker: the queue is a work queue, whose MAX_QUEUE_READERS counts over all processes.
    Worker {
        procedure: Procedure,
        /// The most readers of this worker.
        readers: u16,
    },
}

/// The definition of the queue that a driver watches.
struct Watched {
    id: i32,
    name: Arc<str>,
    /// Whether messages can be received, or jobs taken.
    is_on: bool,
    activation: Option<Activation>,
    /// The most readers over all processes, if the definition says so.
    max_queue_readers: Option<u16>,
}

/// An event of a reader, like the trace event `Broker:Activation` of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReaderEvent {
    /// A reader was launched.
    Started {
        /// Names it.
        task_id: u64,
    },
    /// A reader has gone.
    Ended {
        /// Names it.
        task_id: u64,
        /// Why, if it did not just leave: 28085 its queue was dropped, 28086 its queue was disabled, 28087 it never ran
        /// a RECEIVE, 28088 it failed, 8415 it left a transaction open.
        code: Option<Code>,
        /// The reason as text; empty if it just left.
        why: String,
        /// How many messages it served, in transactions that were committed.
        messages: u64,
    },
    /// A handler failed; its transaction was rolled back and the reader goes on.
    HandlerFailed {
        /// Names the reader.
        task_id: u64,
        /// The code of the error.
        code: Code,
        /// The reason.
        why: String,
    },
    /// The queue, or the whole broker, was turned off: no message is handed out before it is turned on. Also said if it is
    /// off when the readers are started.
    QueueOff,
    /// The queue is on again.
    QueueOn,
    /// A reader, or the program of one, was due and could not be started.
    LaunchFailed {
        /// The reason, for example a missing procedure.
        why: String,
    },
}

struct Reader {
    task_id: u64,
    traces: Arc<Traces>,
    /// Its own, because those of another queue under the name are stopped apart.
    stopping: watch::Receiver<bool>,
    /// Freed after the reader has gone and its transactions with it.
    place: ReaderPlace,
    _gauge: RaisedGauge,
}

/// A place among the readers of a queue.
struct ReaderPlace {
    queue_id: i32,
    slot: ReaderSlot,
}

/// Why fewer readers were launched than were due.
enum Shortfall {
    /// Readers of other processes hold the places.
    PlacesTaken,
    /// Something is missing.
    Failed(String),
}

/// A failure that a reader survived.
pub(super) enum Failure {
    /// The transaction of this reader was rolled back.
    Handler(u64, Error),
    /// A program cannot be started.
    Start(Error),
}

type ReaderOutcome = (Result<(), Error>, bool);

pub(super) struct Driver {
    store: Arc<dyn Store>,
    activity: Arc<QueueActivity>,
    queue: Arc<str>,
    queue_id: Option<i32>,
    source: Source,
    ramp: Ramp,
    monitor: Monitor,
    /// The monitor's counters as last passed to the metrics.
    measured: ActivationCounters,
    monitor_id: u64,
    /// The limit now in force, and the catalog's when last read.
    limit: u16,
    catalog_limit: Option<u16>,
    /// The program's own, in force while the queue has no ACTIVATION clause.
    given_limit: Option<u16>,
    /// How many readers of a worker are to leave after their job.
    surplus: Arc<AtomicUsize>,
    readers: JoinSet<ReaderOutcome>,
    running: HashMap<Id, Reader>,
    /// The messages that readers served which have gone.
    served: u64,
    /// Whether the queue was on at the last check; of one that is missing there is no event.
    was_on: bool,
    /// The definitions have been asked for the queue.
    has_looked: bool,
    /// Places of readers that have just gone: for readers launched now, else freed.
    spare: Vec<ReaderPlace>,
    commands: mpsc::UnboundedReceiver<Command>,
    stopping: watch::Sender<bool>,
    /// A reader of another queue under the name has left.
    begins_anew: bool,
    failures: (mpsc::UnboundedSender<Failure>, mpsc::UnboundedReceiver<Failure>),
    events: broadcast::Sender<ReaderEvent>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let board = self.store.activity().monitors();
        board.remove_monitor(self.monitor_id);
        self.running.values().for_each(|reader| board.remove_task(reader.task_id));
    }
}

impl Driver {
    pub(super) fn new(
        store: Arc<dyn Store>,
        queue: Arc<str>,
        source: Source,
        ramp: Ramp,
        commands: mpsc::UnboundedReceiver<Command>,
        events: broadcast::Sender<ReaderEvent>,
    ) -> Self {
        let watched = source.watched(&store.catalog(), &queue);
        let catalog_limit = watched.and_then(|watched| watched.max_queue_readers);
        let given_limit = match &source {
            Source::Given { max_queue_readers, .. } => *max_queue_readers,
            _ => None,
        };
        let limit = match &source {
            Source::Given { max_queue_readers: Some(given), .. } => *given,
            Source::Worker { readers, .. } => catalog_limit.map_or(*readers, |limit| limit.min(*readers)),
            _ => catalog_limit.unwrap_or(1),
        };
        let activity = match &source {
            Source::Worker { .. } => store.activity().queue(&work_queue_on_board(&queue)),
            _ => store.activity().queue(&queue),
        };
        Self {
            activity,
            monitor_id: store.activity().monitors().next_id(),
            store,
            queue,
            queue_id: None,
            source,
            ramp,
            monitor: Monitor::new(),
            measured: ActivationCounters::default(),
            limit,
            catalog_limit,
            given_limit,
            surplus: Arc::default(),
            readers: JoinSet::new(),
            running: HashMap::new(),
            served: 0,
            was_on: true,
            has_looked: false,
            spare: Vec::new(),
            commands,
            stopping: watch::Sender::new(false),
            begins_anew: false,
            failures: mpsc::unbounded_channel(),
            events,
        }
    }

    /// Runs until it is stopped and the last reader has left.
    pub(super) async fn run(mut self, mut to_end: watch::Receiver<bool>) {
        let clock = self.store.clock().clone();
        let mut stopping = false;
        loop {
            // Registered before the check, so that no later change is missed.
            let signal = self.activity.register_monitor();
            let decision = if stopping { Decision::default() } else { self.check_unless_ending(&mut to_end).await };
            // Places left after the check are free for other processes.
            self.spare.clear();
            if stopping && self.readers.is_empty() {
                return;
            }
            let is_busy = !self.readers.is_empty() && decision.launch == 0;
            let quietly = async {
                if is_busy {
                    tokio::time::sleep(SHORTEST_CHECK_INTERVAL).await;
                }
                signal.await;
            };
            let due = async {
                match decision.next_check {
                    Some(due) => clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // A stop comes first: a reader that leaves after the stop was requested is not replaced.
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::SetMaxQueueReaders(limit)) => (self.limit, self.given_limit) = (limit, Some(limit)),
                    Some(Command::Retry) => self.monitor.retry_now(),
                    Some(Command::Served(answer)) => {
                        let running: u64 = self.running.values().map(|reader| reader.traces.served()).sum();
                        // The caller may have gone away since.
                        let _ = answer.send(self.served + running);
                    }
                    Some(Command::Check(answer)) => {
                        self.take_failures();
                        // Polling the monitor in a loop wins each select, so ended readers are reaped here too.
                        while let Some(ended) = self.readers.try_join_next_with_id() {
                            stopping |= self.reap(ended).await;
                        }
                        if !stopping {
                            self.check_unless_ending(&mut to_end).await;
                        }
                        // The caller may have gone away since.
                        let _ = answer.send(self.row());
                    }
                    Some(Command::Stop) | None if !stopping => {
                        stopping = true;
                        self.stopping.send_replace(true);
                        self.store.activity().monitors().remove_monitor(self.monitor_id);
                    }
                    Some(Command::Stop) => {}
                    // No holder is left: wait for the readers without reading commands.
                    None => self.reap_all().await,
                    Some(Command::Abort) => {
                        self.stopping.send_replace(true);
                        self.readers.shutdown().await;
                        return;
                    }
                },
                Some(ended) = self.readers.join_next_with_id() => {
                    stopping |= self.reap(ended).await;
                }
                Some(failure) = self.failures.1.recv() => self.failed(failure),
                () = quietly, if !stopping => {}
                () = due, if !stopping => {}
            }
        }
    }

    /// Reaps an ended reader; returns whether the readers stop because the store is closed.
    async fn reap(&mut self, ended: Result<(Id, ReaderOutcome), JoinError>) -> bool {
        let is_closed = self.reader_ended(ended).await;
        if is_closed {
            self.stopping.send_replace(true);
        }
        is_closed
    }

    async fn reap_all(&mut self) {
        while let Some(ended) = self.readers.join_next_with_id().await {
            self.reader_ended(ended).await;
        }
    }

    /// Whether this broker is closed. A reader may end with 60016 because it uses another broker, and that one is closed.
    async fn is_closed(&self) -> bool {
        self.store.begin(Seen::default()).await.is_err_and(|error| error.code() == Code::STORE_CLOSED)
    }

    /// A check that is left if the readers are to end. It waited for a server or an owner of the file that hung, and the readers did
    /// not end before.
    async fn check_unless_ending(&mut self, to_end: &mut watch::Receiver<bool>) -> Decision {
        tokio::select! {
            biased;
            // It fails if the holder of the readers has gone, which ends them too.
            _ = to_end.wait_for(|is_to_end| *is_to_end) => Decision::default(),
            decision = self.check() => decision,
        }
    }

    /// Warns of a queue that does not exist at the start: its readers wait in silence, which is what a misspelt name looks like.
    fn say_if_missing(&mut self, is_missing: bool) {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let what = match self.source {
            Source::Worker { .. } => "work queue",
            Source::Given { .. } => "queue",
            // Of the definitions, which have it.
            _ => return,
        };
        if is_first && is_missing {
            tracing::warn!(queue = %self.queue, "this {what} does not exist; its readers start once it is made");
        }
    }

    /// Passes the facts to the monitor and carries out its decision.
    async fn check(&mut self) -> Decision {
        self.store.refresh_facts().await;
        let now = self.store.clock().now();
        let catalog = self.store.catalog();
        let queue = self.source.watched(&catalog, &self.queue);
        let facts = self.activity.facts();
        let running = self.running();
        self.say_if_missing(queue.is_none());
        let queue_id = queue.as_ref().map(|queue| queue.id);
        if std::mem::take(&mut self.begins_anew) || self.queue_id != queue_id {
            // Another queue under the same name has a monitor of its own.
            let none = self.settings(&catalog, None);
            self.monitor.check(&none, &facts, running, now);
            self.queue_id = queue_id;
            // Its readers too: those that are there go on by the name, and hold places of the old queue. The maximum would not count them.
            let is_old = |reader: &Reader| Some(reader.place.queue_id) != queue_id && !*reader.stopping.borrow();
            if queue_id.is_some() && self.running.values().any(is_old) {
                std::mem::replace(&mut self.stopping, watch::channel(false).0).send_replace(true);
            }
        }
        let settings = self.settings(&catalog, queue.as_ref());
        self.send_away();
        let mut decision = self.monitor.check(&settings, &facts, running, now);
        if decision.launch > 0 {
            let before = self.running.len();
            let launched = self.launch(decision.launch, queue.as_ref(), now).await;
            let missing = decision.launch.saturating_sub(self.running.len() - before);
            match launched {
                Ok(()) => {}
                Err(Shortfall::PlacesTaken) => {
                    tracing::debug!(queue = %self.queue, missing, "other processes run the readers that the limit allows");
                    let is_notified = self.store.activity().tells_of_places();
                    self.monitor.places_taken(missing, self.running(), is_notified, now);
                    decision = self.monitor.check(&settings, &facts, self.running(), now);
                }
                Err(Shortfall::Failed(why)) => {
                    tracing::error!(queue = %self.queue, why, "no reader can be launched; trying again in 5 s");
                    self.monitor.launch_failed(missing, now);
                    self.event(ReaderEvent::LaunchFailed { why });
                    decision = self.monitor.check(&settings, &facts, self.running(), now);
                }
            }
        }
        self.measure();
        let board = self.store.activity().monitors();
        match self.row() {
            Some(row) => board.put_monitor(row),
            None => board.remove_monitor(self.monitor_id),
        }
        decision
    }

    /// The counters of `Broker Activation`.
    fn measure(&mut self) {
        let (now, before) = (self.monitor.counters(), self.measured);
        if now == before {
            return;
        }
        let add = |name: &'static str, now: u64, before: u64| {
            counter!(name, "queue" => self.queue.clone()).increment(now.saturating_sub(before));
        };
        add("dialoq_tasks_started_total", now.tasks_started, before.tasks_started);
        add("dialoq_tasks_aborted_total", now.tasks_aborted, before.tasks_aborted);
        add("dialoq_task_limit_reached_total", now.task_limit_reached, before.task_limit_reached);
        add("dialoq_activation_errors_total", now.activation_errors, before.activation_errors);
        self.measured = now;
    }

    fn running(&self) -> Running {
        let starting = self.running.values().filter(|reader| !reader.traces.received()).count();
        Running { readers: self.running.len(), starting }
    }

    fn settings(&mut self, catalog: &Catalog, queue: Option<&Watched>) -> MonitorSettings {
        let activation = queue.and_then(|queue| queue.activation.as_ref());
        let is_wanted = match (&self.source, activation) {
            (Source::Events, _) => catalog.event_notifications.values().any(|notification| {
                notification.event == QueueEvent::QueueActivation
                    && queue.is_some_and(|queue| queue.id == notification.queue_id)
            }),
            (Source::Given { .. }, None) | (Source::Worker { .. }, _) => true,
            (Source::Named(_), None) => false,
            (_, Some(activation)) => activation.is_enabled,
        };
        // The latest change counts: a change of the catalog replaces the program's earlier limit.
        let declared = queue.and_then(|queue| queue.max_queue_readers);
        if queue.is_some() && declared != self.catalog_limit {
            self.catalog_limit = declared;
            self.limit = match &self.source {
                Source::Worker { readers, .. } => declared.map_or(*readers, |limit| limit.min(*readers)),
                _ => declared.or(self.given_limit).unwrap_or(1),
            };
        }
        // A broker that is turned off delivers no messages; jobs are taken all the same.
        let is_broker_on = matches!(self.source, Source::Worker { .. }) || catalog.settings.is_broker_enabled;
        let is_on = queue.is_some_and(|queue| queue.is_on) && is_broker_on;
        if queue.is_some() && is_on != self.was_on {
            self.was_on = is_on;
            self.event(if is_on { ReaderEvent::QueueOn } else { ReaderEvent::QueueOff });
        }
        let launches = match &self.source {
            Source::Events => Launches::Events,
            _ => Launches::Readers { max: self.limit, ramp: self.ramp },
        };
        MonitorSettings { exists: is_on && is_wanted, launches }
    }

    /// The most readers of this kind over all processes.
    fn most(&self) -> u16 {
        match self.source {
            // Readers without a maximum have places too, so that one that is set later finds them.
            Source::Worker { .. } => self.catalog_limit.unwrap_or(MOST_READERS),
            _ => self.limit,
        }
    }

    /// A worker's readers that a lowered maximum has no room for leave after their job: a queue that is never empty would
    /// keep them for ever.
    fn send_away(&self) {
        if !matches!(self.source, Source::Worker { .. }) {
            return;
        }
        let beyond = self.running.values().filter(|reader| reader.place.slot.is_beyond(self.most())).count();
        let kept = (self.running.len() - beyond).min(self.limit.into());
        let leaving = self.running.values().filter(|reader| reader.traces.is_leaving()).count();
        self.surplus.store((self.running.len() - kept).saturating_sub(leaving), SeqCst);
    }

    /// The place of a reader that has gone. The first that goes leaves one beyond a lowered maximum to no other reader: processes that
    /// are never out of work would keep theirs for ever.
    fn place_of(&mut self, reader: Reader) -> Option<ReaderPlace> {
        let mut place = reader.place;
        let most = self.most();
        let of_its_queue =
            |other: &&mut Reader| other.place.queue_id == place.queue_id && other.place.slot.is_beyond(most);
        if let Some(other) = self.running.values_mut().find(of_its_queue) {
            std::mem::swap(&mut place, &mut other.place);
        }
        (!place.slot.is_beyond(most)).then_some(place)
    }

    fn procedure(&self, queue: &Watched) -> Result<(Procedure, Arc<str>), String> {
        let named = queue.activation.as_ref().map(|activation| activation.procedure_name.clone());
        let (procedure, name) = match (&self.source, named) {
            (Source::Worker { procedure, .. }, _) => (procedure.clone(), procedure.name().clone()),
            (Source::Given { procedure, .. }, named) => {
                let name = named.unwrap_or_else(|| procedure.name().clone());
                (procedure.clone(), name)
            }
            (Source::Named(find), Some(name)) => match find(&name) {
                Some(procedure) => (procedure, name),
                None => return Err(format!("procedure '{name}' is not registered in this process")),
            },
            (Source::Named(_) | Source::Events, _) => return Err("the queue names no procedure".to_owned()),
        };
        procedure.check().map_err(|error| error.to_string())?;
        Ok((procedure, name))
    }

    async fn launch(&mut self, readers: usize, queue: Option<&Watched>, now: Timestamp) -> Result<(), Shortfall> {
        let Some(queue) = queue else {
            return Err(Shortfall::Failed(format!("queue '{}' does not exist", self.queue)));
        };
        if let Source::Events = self.source {
            self.post();
            return Ok(());
        }
        let (procedure, procedure_name) = self.procedure(queue).map_err(Shortfall::Failed)?;
        let most = self.most();
        for _ in 0..readers {
            let spare = self.spare.iter().position(|place| place.queue_id == queue.id);
            let slot = match spare.map(|spare| self.spare.swap_remove(spare).slot) {
                Some(slot) => slot,
                None => match self.store.reader_slot(queue.id, most).await {
                    Ok(Some(slot)) => slot,
                    Ok(None) => return Err(Shortfall::PlacesTaken),
                    Err(error) => {
                        return Err(Shortfall::Failed(format!("no place for a reader could be had: {error}")));
                    }
                },
            };
            let task_id = self.store.activity().monitors().next_id();
            let stopping = self.stopping.subscribe();
            let (session, traces) = Session::new(
                self.store.clone(),
                queue.name.clone(),
                task_id,
                stopping.clone(),
                self.failures.0.clone(),
                self.surplus.clone(),
            );
            let (procedure, of_reader) = (procedure.clone(), traces.clone());
            let handle = self.readers.spawn(async move {
                let traces = of_reader.clone();
                let outcome = CutShort::new(move || traces.lose_open(), procedure.start(session)).await;
                let left_open = of_reader.close();
                // Here, as the text of the user's error is the user's code: if it panics, the reader has panicked, and not the driver.
                (outcome.map_err(HandlerError::into_error), left_open)
            });
            let gauge = RaisedGauge::new(gauge!("dialoq_tasks_running", "queue" => self.queue.clone()));
            let place = ReaderPlace { queue_id: queue.id, slot };
            self.running.insert(handle.id(), Reader { task_id, traces, stopping, place, _gauge: gauge });
            self.store.activity().monitors().put_task(ActivatedTaskRow {
                task_id,
                monitor_id: self.monitor_id,
                queue_id: queue.id,
                queue_name: queue.name.clone(),
                procedure_name: procedure_name.clone(),
                started_at: now,
            });
            tracing::debug!(queue = %self.queue, task_id, procedure = %procedure_name, "a reader was launched");
            self.event(ReaderEvent::Started { task_id });
        }
        Ok(())
    }

    /// Posts the event to the notifications, without waiting for it.
    fn post(&self) {
        let (store, queue) = (self.store.clone(), self.queue.clone());
        tokio::spawn(async move {
            if let Err(error) = store.submit(vec![Verb::PostQueueActivation { queue: queue.clone() }]).await {
                tracing::error!(%queue, %error, "a QUEUE_ACTIVATION event could not be sent");
            }
        });
    }

    /// Reaps an ended reader; returns whether it ended because this broker is closed.
    async fn reader_ended(&mut self, ended: Result<(Id, ReaderOutcome), JoinError>) -> bool {
        self.take_failures();
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(reader) = self.running.remove(&id) else { return false };
        let messages = reader.traces.served();
        self.served += messages;
        self.store.activity().monitors().remove_task(reader.task_id);
        let (task_id, received) = (reader.task_id, reader.traces.received());
        let found_nothing = reader.traces.found_nothing();
        let was_stopped = *reader.stopping.borrow();
        let (outcome, left_open) = match ended {
            Ok((_, outcome)) => outcome,
            Err(error) if error.is_panic() => (Err(panicked(&*error.into_panic())), false),
            Err(error) => (Err(Error::new(Code::HANDLER_FAILED, error.to_string())), false),
        };
        let is_of_another_queue = Some(reader.place.queue_id) != self.queue_id;
        let place = self.place_of(reader);
        if found_nothing {
            // Free for readers of other processes. Those of one that asks for a type that no job has held the places for ever.
            drop(place);
        } else {
            self.spare.extend(place);
        }
        let is_closed = matches!(&outcome, Err(error) if error.code() == Code::STORE_CLOSED) && self.is_closed().await;
        let (end, code, why) = match is_closed {
            // A closed broker has no work left; its readers have not failed.
            true => (ReaderEnd::Left, None, String::new()),
            false => self.judge(outcome, left_open, received, was_stopped),
        };
        if is_of_another_queue {
            // The monitor begins anew for the queue that has the name now, so a reader for its messages starts at once.
            self.begins_anew = true;
        }
        let now = self.store.clock().now();
        self.monitor.reader_ended(end, now);
        if found_nothing {
            self.monitor.reader_found_nothing(now);
        } else {
            self.monitor.reader_found_something();
        }
        match code {
            Some(code) if !matches!(end, ReaderEnd::Left | ReaderEnd::WithQueue) => {
                tracing::error!(queue = %self.queue, task_id, %code, why, "a reader was aborted");
            }
            _ => tracing::debug!(queue = %self.queue, task_id, why, "a reader has left"),
        }
        self.event(ReaderEvent::Ended { task_id, code, why, messages });
        is_closed
    }

    /// Why a reader ended.
    fn judge(
        &self,
        outcome: Result<(), Error>,
        left_open: bool,
        received: bool,
        was_stopped: bool,
    ) -> (ReaderEnd, Option<Code>, String) {
        let catalog = self.store.catalog();
        let queue = self.source.watched(&catalog, &self.queue);
        let own = outcome.as_ref().err();
        // A RECEIVE may see a definition before the catalog shows it, so the reader's own error counts too. The error may be
        // about another queue.
        let quoted = fold_name(&format!("'{}'", self.queue));
        let names_queue = |error: &Error| fold_name(error.message()).contains(&quoted);
        let is_dropped = queue.as_ref().is_none_or(|queue| Some(queue.id) != self.queue_id);
        if own.map_or(is_dropped, |error| error.code() == Code::OBJECT_NOT_FOUND && (is_dropped || names_queue(error)))
        {
            let why = format!("the reader was ended because queue '{}' was dropped", self.queue);
            return (ReaderEnd::WithQueue, Some(Code::READER_QUEUE_DROPPED), why);
        }
        let is_disabled = queue.is_some_and(|queue| !queue.is_on);
        if own.map_or(is_disabled, |error| error.code() == Code::QUEUE_DISABLED && (is_disabled || names_queue(error)))
        {
            let why = format!("the reader was ended because queue '{}' was disabled", self.queue);
            return (ReaderEnd::WithQueue, Some(Code::READER_QUEUE_DISABLED), why);
        }
        match outcome {
            Err(error) => {
                let why = format!("the reader ended with an error: {error}");
                let end = match error.kind() {
                    ErrorKind::Store => ReaderEnd::StoreFailed,
                    _ => ReaderEnd::Failed { received },
                };
                (end, Some(Code::READER_FAILED), why)
            }
            Ok(()) if left_open => {
                let why = "the reader left a transaction open; it was rolled back".to_owned();
                (ReaderEnd::Failed { received }, Some(Code::ACTIVATED_TASK_OPEN_TRANSACTION), why)
            }
            Ok(()) if !received && !was_stopped => {
                let why = "the reader ended without a RECEIVE; no other is launched before a session of this process \
                           runs one, or this process sees activation turned off and on. A closure receives by the \
                           session that it is given: only such a RECEIVE counts"
                    .to_owned();
                (ReaderEnd::WithoutReceive, Some(Code::READER_WITHOUT_RECEIVE), why)
            }
            Ok(()) => (ReaderEnd::Left, None, String::new()),
        }
    }

    fn take_failures(&mut self) {
        while let Ok(failure) = self.failures.1.try_recv() {
            self.failed(failure);
        }
    }

    fn failed(&mut self, failure: Failure) {
        self.monitor.handler_failed();
        self.event(match failure {
            Failure::Handler(task_id, error) => {
                ReaderEvent::HandlerFailed { task_id, code: error.code(), why: error.message().to_owned() }
            }
            Failure::Start(error) => ReaderEvent::LaunchFailed { why: error.message().to_owned() },
        });
    }

    fn event(&self, event: ReaderEvent) {
        // An event without a listener is dropped.
        let _ = self.events.send(event);
    }

    fn row(&self) -> Option<MonitorRow> {
        let state = self.monitor.state()?;
        let facts = self.activity.facts();
        let counters = self.monitor.counters();
        Some(MonitorRow {
            monitor_id: self.monitor_id,
            queue_id: self.queue_id?,
            queue_name: self.queue.clone(),
            state: state.description(),
            last_empty_rowset_time: facts.last_empty,
            last_activated_time: self.monitor.last_activated(),
            tasks_waiting: facts.waiting as u64,
            max_queue_readers: if matches!(self.source, Source::Events) { 0 } else { self.limit },
            tasks_running: self.running.len() as u64,
            tasks_started_total: counters.tasks_started,
            tasks_aborted_total: counters.tasks_aborted,
            task_limit_reached_total: counters.task_limit_reached,
            activation_errors_total: counters.activation_errors,
        })
    }
}

impl Source {
    /// The definition of the queue of that name; `None` if there is none.
    fn watched(&self, catalog: &Catalog, name: &str) -> Option<Watched> {
        if let Self::Worker { .. } = self {
            let queue = catalog.work_queue(name)?;
            let limit = queue.settings.limit(WorkNumber::MaxQueueReaders);
            return Some(Watched {
                id: queue.id,
                name: queue.name.clone(),
                is_on: queue.settings.is_enabled,
                activation: None,
                max_queue_readers: limit.and_then(|limit| u16::try_from(limit).ok()),
            });
        }
        let queue = catalog.queue(name)?;
        Some(Watched {
            id: queue.id,
            name: queue.name.clone(),
            is_on: queue.is_receive_enabled,
            activation: queue.activation.clone(),
            max_queue_readers: queue.activation.as_ref().map(|activation| activation.max_queue_readers),
        })
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::new(Code::HANDLER_FAILED, format!("the procedure panicked: {}", panic_text(panic)))
}
