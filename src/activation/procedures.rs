//! Activation by definition: ACTIVATION (PROCEDURE_NAME = ...) names a procedure that a program registers.

use super::driver::Source;
use super::{IntoProcedure, Procedure, Ramp, Readers};
use crate::broker::Broker;
use crate::protocol::definition::QueueEvent;
use crate::store::Store;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The procedures by [`key`].
#[derive(Debug, Clone, Default)]
struct Registry(Arc<RwLock<HashMap<String, Procedure>>>);

impl Registry {
    fn register(&self, name: &str, procedure: Procedure) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key(name), procedure);
    }

    fn find(&self, name: &str) -> Option<Procedure> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key(name)).cloned()
    }
}

/// A procedure's name without regard to case, and without the schema in front of it: there are no schemas here.
fn key(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_lowercase()
}

impl Broker {
    /// Procedures for the ACTIVATION clauses of the queues. Nothing runs before [`Procedures::start`].
    ///
    /// ```no_run
    /// # use dialoq::{Broker, activation::Handlers};
    /// # async fn example(broker: Broker, handlers: Handlers) {
    /// // CREATE QUEUE orders WITH ACTIVATION (PROCEDURE_NAME = take_orders, MAX_QUEUE_READERS = 4, EXECUTE AS OWNER)
    /// let procedures = broker.procedures().register("take_orders", handlers).start();
    /// # procedures.stop().await;
    /// # }
    /// ```
    pub fn procedures(&self) -> Procedures {
        Procedures { broker: self.clone(), registry: Registry::default(), ramp: Ramp::default() }
    }
}

/// Procedures to be registered and started.
#[must_use = "no reader runs before start"]
#[derive(Debug)]
pub struct Procedures {
    broker: Broker,
    registry: Registry,
    ramp: Ramp,
}

impl Procedures {
    /// Registers a procedure under the name that ACTIVATION clauses use, without regard to case or schema.
    pub fn register(self, name: impl AsRef<str>, procedure: impl IntoProcedure) -> Self {
        self.registry.register(name.as_ref(), procedure.into_procedure());
        self
    }

    /// How the number of readers grows; by default as in Service Broker.
    pub fn ramp(mut self, ramp: Ramp) -> Self {
        self.ramp = ramp;
        self
    }

    /// Watches every queue with an ACTIVATION clause, also those that get one later; and every queue with a
    /// QUEUE_ACTIVATION notification, whose service gets an event when there is work and no receiver.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> ActivatedProcedures {
        let (commands, asked) = mpsc::unbounded_channel();
        let registry = self.registry.clone();
        let supervisor = Supervisor {
            broker: self.broker,
            registry: self.registry,
            ramp: self.ramp,
            readers: HashMap::new(),
            leaving: Vec::new(),
            commands: asked,
        };
        ActivatedProcedures { registry, commands, supervisor: tokio::spawn(supervisor.run()) }
    }
}

enum Command {
    Registered,
    Stop,
    Abort,
}

/// The readers of every queue whose ACTIVATION clause names a registered procedure. A procedure that is missing is
/// logged every 5 s while there is work for it.
///
/// Dropping it lets the readers finish their current messages and launches no more, without waiting for them.
#[derive(Debug)]
#[must_use = "dropping it stops the readers"]
pub struct ActivatedProcedures {
    registry: Registry,
    commands: mpsc::UnboundedSender<Command>,
    supervisor: JoinHandle<()>,
}

impl ActivatedProcedures {
    /// Registers another procedure, or replaces one: the next launch uses it, running readers stay.
    pub fn register(&self, name: impl AsRef<str>, procedure: impl IntoProcedure) {
        self.registry.register(name.as_ref(), procedure.into_procedure());
        self.ask(Command::Registered);
    }

    /// Launches no more, lets the readers finish their current messages, and waits until the last has left.
    pub async fn stop(self) {
        self.ask(Command::Stop);
        let _ = self.supervisor.await;
    }

    /// Ends the readers at once: their current messages are rolled back.
    pub async fn abort(self) {
        self.ask(Command::Abort);
        let _ = self.supervisor.await;
    }

    fn ask(&self, command: Command) {
        // If the supervisor ended with its runtime, no work is left.
        let _ = self.commands.send(command);
    }
}

struct Supervisor {
    broker: Broker,
    registry: Registry,
    ramp: Ramp,
    /// By the id of the queue, and whether they are events rather than readers.
    readers: HashMap<(i32, bool), Readers>,
    /// Readers of queues that are dropped or have no ACTIVATION clause any more, which finish their current messages.
    leaving: Vec<Readers>,
    commands: mpsc::UnboundedReceiver<Command>,
}

impl Supervisor {
    async fn run(mut self) {
        let store: Arc<dyn Store> = self.broker.shared_store().clone();
        loop {
            // Registered before the check, so that no later change is missed.
            let definitions = store.activity().register_definitions();
            self.apply_catalog();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Registered) => self.readers.values().for_each(Readers::retry),
                    Some(Command::Stop) | None => {
                        // All get the stop before the first is awaited.
                        self.readers.values().for_each(|readers| readers.ask(super::Command::Stop));
                        for readers in self.readers.into_values().chain(self.leaving) {
                            readers.stop().await;
                        }
                        return;
                    }
                    Some(Command::Abort) => {
                        for readers in self.readers.into_values().chain(self.leaving) {
                            readers.abort().await;
                        }
                        return;
                    }
                },
                () = definitions => {}
            }
        }
    }

    fn apply_catalog(&mut self) {
        let catalog = self.broker.catalog();
        let procedures = catalog.queues.values().filter(|queue| queue.activation.is_some()).map(|queue| queue.id);
        let notification = catalog
            .event_notifications
            .values()
            .filter(|notification| notification.event == QueueEvent::QueueActivation);
        let wanted: HashSet<(i32, bool)> = procedures
            .map(|id| (id, false))
            .chain(notification.map(|notification| (notification.queue_id, true)))
            .collect();
        // Kept until they have left: if they were dropped here, `stop` would not wait for them, nor would `abort` end them.
        let unwanted = self.readers.extract_if(|key, _| !wanted.contains(key)).map(|(_, readers)| readers);
        self.leaving.extend(unwanted.inspect(|readers| readers.ask(super::Command::Stop)));
        self.leaving.retain(|readers| !readers.have_left());
        for key in wanted {
            let Some(queue) = catalog.queues.get(&key.0) else { continue };
            self.readers.entry(key).or_insert_with(|| {
                let registry = self.registry.clone();
                let source = match key.1 {
                    true => Source::Events,
                    false => Source::Named(Arc::new(move |name| registry.find(name))),
                };
                Readers::start(&self.broker, queue.name.clone(), source, self.ramp)
            });
        }
    }
}
