//! Activation: readers that are launched when there is work and leave when there is none.
//!
//! [`Broker::activate`] gives a queue readers with [`Handlers`] by message type, [`Broker::activate_with`] readers that
//! run any receive loop; a [`Program`] hands messages to an external program.
//! [`Broker::procedures`] starts them as the queues' own ACTIVATION clauses say.

mod driver;
pub(crate) mod external;
mod handlers;
mod monitor;
mod procedures;
mod reader;
mod session;

pub use driver::ReaderEvent;
pub(crate) use external::check_program_line;
#[cfg(all(unix, feature = "cli"))]
pub(crate) use external::kill_all;
pub use external::{Mode, Program};
pub use handlers::{Context, Handle, HandlerError, HandlerResult, Handlers};
pub use monitor::Ramp;
pub use procedures::{ActivatedProcedures, Procedures};
pub use session::Session;

use crate::broker::Broker;
use crate::error::Result;
pub use crate::store::{ActivatedTaskRow, MonitorRow};

use crate::store::BoxFuture;
use driver::{Command, Driver, Source};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// The code of an activated reader; made from [`Handlers`], a [`Program`], or an `async` closure over a [`Session`].
#[derive(Clone)]
pub struct Procedure {
    name: Arc<str>,
    start: Arc<dyn Fn(Session) -> BoxFuture<'static, HandlerResult> + Send + Sync>,
    check: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedure").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Procedure {
    /// Any `async` closure as a procedure: it receives in its own way, commits, and leaves when nothing comes.
    pub fn new<F, Running>(name: impl Into<Arc<str>>, run: F) -> Self
    where
        F: FnOnce(Session) -> Running + Clone + Send + Sync + 'static,
        Running: Future<Output = HandlerResult> + Send + 'static,
    {
        Self {
            name: name.into(),
            start: Arc::new(move |session| Box::pin((run.clone())(session))),
            check: Arc::new(|| Ok(())),
        }
    }

    /// The same, with a check before each launch whether it can run at all.
    fn checked(mut self, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn check(&self) -> Result<()> {
        (self.check)()
    }

    fn start(&self, session: Session) -> BoxFuture<'static, HandlerResult> {
        (self.start)(session)
    }
}

/// Types that can serve as an activated reader.
pub trait IntoProcedure {
    /// The procedure each reader runs.
    fn into_procedure(self) -> Procedure;
}

impl IntoProcedure for Procedure {
    fn into_procedure(self) -> Procedure {
        self
    }
}

impl Broker {
    /// Gives a queue readers that serve it with these handlers (or a [`Program`], or a [`Procedure`]). Nothing runs
    /// before [`Activate::start`].
    ///
    /// If the queue has an ACTIVATION clause, its STATUS turns these readers on and off too, and its MAX_QUEUE_READERS
    /// is the limit unless [`Activate::max_queue_readers`] sets one; a later ALTER QUEUE changes it.
    pub fn activate(&self, queue: impl Into<Arc<str>>, procedure: impl IntoProcedure) -> Activate {
        Activate {
            broker: self.clone(),
            queue: queue.into(),
            procedure: procedure.into_procedure(),
            max_queue_readers: None,
            ramp: Ramp::default(),
        }
    }

    /// Gives a queue readers that run an `async` closure: any receive loop over a [`Session`].
    pub fn activate_with<F, Running>(&self, queue: impl Into<Arc<str>>, procedure: F) -> Activate
    where
        F: FnOnce(Session) -> Running + Clone + Send + Sync + 'static,
        Running: Future<Output = HandlerResult> + Send + 'static,
    {
        self.activate(queue, Procedure::new("procedure", procedure))
    }

    /// The queue monitors of this process: `dm_broker_queue_monitors`.
    pub fn queue_monitors(&self) -> Vec<MonitorRow> {
        self.activity().monitors().monitors()
    }

    /// The readers of this process: `dm_broker_activated_tasks`.
    pub fn activated_tasks(&self) -> Vec<ActivatedTaskRow> {
        self.activity().monitors().tasks()
    }
}

/// Readers to be refined and started.
#[must_use = "no reader runs before start"]
#[derive(Debug)]
pub struct Activate {
    broker: Broker,
    queue: Arc<str>,
    procedure: Procedure,
    max_queue_readers: Option<u16>,
    ramp: Ramp,
}

impl Activate {
    /// MAX_QUEUE_READERS: the most at a time. Without it, the queue's own setting, or 1.
    pub fn max_queue_readers(mut self, readers: u16) -> Self {
        self.max_queue_readers = Some(readers);
        self
    }

    /// How their number grows; by default as in Service Broker.
    pub fn ramp(mut self, ramp: Ramp) -> Self {
        self.ramp = ramp;
        self
    }

    /// Starts watching the queue. Rows that wait already activate at once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> Readers {
        let source = Source::Given { procedure: self.procedure, max_queue_readers: self.max_queue_readers };
        Readers::start(&self.broker, self.queue, source, self.ramp)
    }
}

/// The readers of one queue and the monitor that launches them.
///
/// Dropping it lets the readers finish their current messages and launches no more, without waiting for them.
#[derive(Debug)]
#[must_use = "dropping it stops the readers"]
pub struct Readers {
    commands: mpsc::UnboundedSender<Command>,
    events: broadcast::Sender<ReaderEvent>,
    /// For the first listener: a reader may start before it listens.
    first: Mutex<Option<broadcast::Receiver<ReaderEvent>>>,
    /// Whether the readers are to end: a check that is under way is left then.
    ending: watch::Sender<bool>,
    driver: JoinHandle<()>,
}

/// How many events a listener may lag behind before it misses some.
const EVENTS_KEPT: usize = 1024;

impl Readers {
    fn start(broker: &Broker, queue: Arc<str>, source: Source, ramp: Ramp) -> Self {
        let (commands, asked) = mpsc::unbounded_channel();
        let (events, first) = broadcast::channel(EVENTS_KEPT);
        let driver = Driver::new(broker.shared_store().clone(), queue, source, ramp, asked, events.clone());
        let (ending, to_end) = watch::channel(false);
        Self { commands, events, first: Mutex::new(Some(first)), ending, driver: tokio::spawn(driver.run(to_end)) }
    }

    /// Readers of a work queue, as many as there are jobs for, and at most so many of this worker.
    pub(crate) fn of_worker(broker: &Broker, queue: Arc<str>, procedure: Procedure, readers: u16, ramp: Ramp) -> Self {
        Self::start(broker, queue, Source::Worker { procedure, readers }, ramp)
    }

    /// As [`Readers::stop`], but readers that run after so long are ended.
    pub(crate) async fn stop_within(&mut self, patience: Option<Duration>) {
        self.ask(Command::Stop);
        let Some(patience) = patience else { return drop((&mut self.driver).await) };
        if tokio::time::timeout(patience, &mut self.driver).await.is_err() {
            self.ask(Command::Abort);
            drop((&mut self.driver).await);
        }
    }

    /// Ends the readers without waiting for them.
    pub(crate) fn end(&self) {
        self.ask(Command::Abort);
    }

    /// Changes the limit while running. Raising it may start readers at once; lowering it stops none.
    pub fn set_max_queue_readers(&self, readers: u16) {
        self.ask(Command::SetMaxQueueReaders(readers));
    }

    /// Has the monitor check the queue now, and returns its row; `None` while the queue is off.
    pub async fn monitor(&self) -> Option<MonitorRow> {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Check(answer));
        answered.await.ok().flatten()
    }

    /// How many messages the readers have served so far, in transactions that were committed.
    pub async fn served(&self) -> u64 {
        let (answer, answered) = oneshot::channel();
        self.ask(Command::Served(answer));
        answered.await.unwrap_or_default()
    }

    /// Subscribes to the start and end of every reader, and to the queue being turned off and on: the first listener from the
    /// start of the readers on, others from now on.
    pub fn events(&self) -> ReaderEvents {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        ReaderEvents { receiver: first.unwrap_or_else(|| self.events.subscribe()) }
    }

    /// Launches no more, lets the readers finish their current messages, and waits until the last has left.
    pub async fn stop(self) {
        self.ask(Command::Stop);
        // The task ended by itself, or with its runtime.
        let _ = self.driver.await;
    }

    /// Ends the readers at once, as by a kill: their current messages are rolled back. The queue counts that as one rollback, not one for
    /// each reader.
    pub async fn abort(self) {
        self.ask(Command::Abort);
        let _ = self.driver.await;
    }

    /// Whether they were stopped and the last has left.
    fn have_left(&self) -> bool {
        self.driver.is_finished()
    }

    fn retry(&self) {
        self.ask(Command::Retry);
    }

    fn ask(&self, command: Command) {
        let ends = matches!(command, Command::Stop | Command::Abort);
        // If the driver has ended, because the broker was closed, nothing remains to change.
        let _ = self.commands.send(command);
        if ends {
            self.ending.send_replace(true);
        }
    }
}

/// See [`Readers::events`].
#[derive(Debug)]
pub struct ReaderEvents {
    receiver: broadcast::Receiver<ReaderEvent>,
}

impl ReaderEvents {
    /// The next event; `None` when the readers have been stopped and all have left: a close of the broker alone does not end
    /// the waiting. A listener that lags far behind misses the oldest.
    pub async fn next(&mut self) -> Option<ReaderEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
