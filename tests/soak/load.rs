//! Initiators and targets that use every verb, paced, until a stop is requested.

use crate::servers::Store;
use dialoq::{Act, Broker, Code, ConversationHandle, Error, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

const INITIATORS: u64 = 6;
const TARGETS: u64 = 6;
/// Between two scenes of an initiator: a load that leaves the machine free, so that a soak can run for hours with other work.
const PACE: Duration = Duration::from_millis(40);
/// Conversations end by themselves after this, so that none is left after a fault on its two sides.
const LIFETIME: Duration = Duration::from_secs(5);
const WAIT: Duration = Duration::from_millis(100);
/// Rounds of the operator, of half a second each, between two sweeps.
const SWEEP_ROUNDS: u64 = 20;

/// Makes the queues, services and the user's own table.
pub(crate) async fn define(store: Store, broker: &Broker) -> Result<(), Error> {
    broker
        .execute(
            "CREATE MESSAGE TYPE [Text]; CREATE MESSAGE TYPE [Bye] VALIDATION = EMPTY;
             CREATE MESSAGE TYPE [Xml] VALIDATION = WELL_FORMED_XML; CREATE MESSAGE TYPE [Json] VALIDATION = JSON;
             CREATE CONTRACT [C] ([Text] SENT BY ANY, [Bye] SENT BY ANY, [Xml] SENT BY ANY, [Json] SENT BY ANY);
             CREATE QUEUE [QI]; CREATE QUEUE [QT];
             CREATE SERVICE [I] ON QUEUE [QI]; CREATE SERVICE [T] ON QUEUE [QT] ([C]);
             CREATE BROKER PRIORITY [high] FOR CONVERSATION SET (REMOTE_SERVICE_NAME = 'T', PRIORITY_LEVEL = 8)",
        )
        .await?;
    broker.sql(store.sql("CREATE TABLE note (id bigint PRIMARY KEY, body varchar(60))"), ()).await?;
    broker.sql(store.sql("INSERT INTO note (id, body) VALUES (?1, ?2)"), (0, "taken")).await.map(drop)
}

/// The counts of events, by name.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    fn add(&self, what: impl Into<String>) {
        *self.0.lock().expect("counts").entry(what.into()).or_default() += 1;
    }

    /// Counts a refusal. One that says that the store broke something fails the soak.
    fn refused(&self, error: &Error) {
        let broken = [Code::STORE_DAMAGED, Code::STORE_POISONED, Code::STORE_FULL];
        assert!(!broken.contains(&error.code()), "the store broke: {error}");
        self.add(format!("refused with {}", error.code()));
    }
}

pub(crate) struct Load {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    counts: Counts,
}

impl Load {
    pub(crate) fn start(store: Store, broker: Broker) -> Self {
        let (stop, stopped) = watch::channel(false);
        let counts = Counts::default();
        let mut tasks = JoinSet::new();
        for seed in 0..INITIATORS {
            let worker = Worker { store, broker: broker.clone(), dice: Dice(seed + 1), counts: counts.clone() };
            tasks.spawn(worker.initiate(stopped.clone()));
        }
        for seed in 0..TARGETS {
            let worker = Worker { store, broker: broker.clone(), dice: Dice(seed + 100), counts: counts.clone() };
            tasks.spawn(worker.answer(stopped.clone()));
        }
        let worker = Worker { store, broker, dice: Dice(1000), counts: counts.clone() };
        tasks.spawn(worker.operate(stopped));
        Self { stop, tasks, counts }
    }

    /// How many scenes were played so far.
    pub(crate) fn scenes(&self) -> u64 {
        let counts = self.counts.0.lock().expect("counts");
        counts.iter().filter(|(what, _)| what.starts_with("scene ")).map(|(_, count)| count).sum()
    }

    /// Ends the load and gives what happened, by name.
    pub(crate) async fn stop(mut self) -> BTreeMap<String, u64> {
        let _ = self.stop.send(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a task of the load failed");
        }
        self.counts.0.lock().expect("counts").clone()
    }
}

/// A small generator, so that a run needs nothing but its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

struct Worker {
    store: Store,
    broker: Broker,
    dice: Dice,
    counts: Counts,
}

impl Worker {
    async fn initiate(mut self, stopped: watch::Receiver<bool>) {
        let mut pace = tokio::time::interval(PACE);
        while !*stopped.borrow() {
            pace.tick().await;
            if let Err(error) = self.scene().await {
                self.counts.refused(&error);
            }
            // What came back: ends what the other side has ended or broken.
            // A RECEIVE gives the messages of one group, and a scene may answer more than one: all are taken, or they pile up.
            loop {
                match self.broker.receive("QI").top(20).await {
                    Ok(Some(batch)) => end_all(&self.broker, batch.messages()).await,
                    Ok(None) => break,
                    Err(error) => break self.counts.refused(&error),
                }
            }
        }
    }

    async fn begin(&self) -> Result<ConversationHandle, Error> {
        self.broker.begin_dialog("I", "T").contract("C").lifetime(LIFETIME).await
    }

    async fn scene(&mut self) -> Result<(), Error> {
        let dialog = self.begin().await?;
        let choice = self.dice.roll(12);
        self.counts.add(format!("scene {choice:02}"));
        match choice {
            // A plain talk, sent at once.
            0..=2 => {
                for number in 0..self.dice.roll(8) {
                    self.broker.send(dialog, "Text", &format!("message {number}")).await?;
                }
                self.broker.send(dialog, "Bye", "").await
            }
            // Bodies that pass, and bodies that break the conversation.
            3 => {
                self.broker.send(dialog, "Xml", "<a b=\"c\">d</a>").await?;
                self.broker.send(dialog, "Json", "{\"a\":[1,2]}").await?;
                self.broker.send(dialog, if self.dice.roll(2) == 0 { "Xml" } else { "Json" }, "<<{").await
            }
            // In a transaction, with a savepoint and SQL that fails.
            4 | 5 => {
                let tx = self.broker.begin().await?;
                tx.send(dialog, "Text", "kept").await?;
                tx.savepoint("here").await?;
                tx.send(dialog, "Text", "undone").await?;
                tx.rollback_to("here").await?;
                if choice == 5 {
                    let taken = self.store.sql("INSERT INTO note (id, body) VALUES (?1, ?2)");
                    tx.sql(taken, (0, "twice")).await?;
                }
                tx.commit().await
            }
            // A timer, and nothing else until the lifetime is over.
            6 => self.broker.timer(dialog, Duration::from_secs(1)).await,
            // Two conversations in one group, then moved apart.
            7 => {
                let other = self.broker.begin_dialog("I", "T").contract("C").lifetime(LIFETIME).with_ids().await?;
                self.broker.send(dialog, "Text", "moved").await?;
                self.broker.move_conversation(dialog, other.group).await?;
                self.broker.send(other.handle, "Bye", "").await
            }
            8 => self.broker.end_with_error(dialog, 77, "this side gives up").await.map(drop),
            9 => {
                self.broker.send(dialog, "Text", "forgotten").await?;
                self.broker.end_with_cleanup(dialog).await.map(drop)
            }
            // Gives up while a SEND is under way, and drops a transaction.
            10 => {
                let tx = self.broker.begin().await?;
                tx.send(dialog, "Text", "dropped").await?;
                drop(tx);
                let send = self.broker.send(dialog, "Text", "cancelled");
                tokio::select! {
                    biased;
                    done = send => done,
                    () = tokio::task::yield_now() => Ok(()),
                }
            }
            // A service that does not exist: the message waits until the lifetime is over.
            _ => {
                let nowhere = self.broker.begin_dialog("I", "Nowhere").contract("C").lifetime(LIFETIME).await?;
                self.broker.send(nowhere, "Text", "undelivered").await?;
                self.broker.send(dialog, "Bye", "").await
            }
        }
    }

    async fn answer(mut self, stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            if let Err(error) = self.answer_once().await {
                self.counts.refused(&error);
                // A queue that poison turned off gives nothing until it is on again.
                tokio::time::timeout(WAIT, stopped.clone().wait_for(|stopped| *stopped)).await.ok();
            }
        }
    }

    async fn answer_once(&mut self) -> Result<(), Error> {
        let choice = self.dice.roll(10);
        if choice == 0 {
            // Gives up while it waits or while messages are on their way.
            let receive = self.broker.receive("QT").wait(WAIT);
            return match tokio::time::timeout(Duration::from_millis(3), receive.into_future()).await {
                Ok(Ok(Some(batch))) => {
                    end_all(&self.broker, batch.messages()).await;
                    Ok(())
                }
                Ok(Err(error)) => Err(error),
                Ok(Ok(None)) | Err(_) => Ok(()),
            };
        }
        let tx = self.broker.begin().await?;
        let Some(batch) = tx.receive("QT").top(1 + choice).wait(WAIT).await? else { return tx.rollback().await };
        self.counts.add("batches received");
        if choice == 1 {
            return tx.rollback().await;
        }
        for message in batch.messages() {
            if message.is_end_dialog() || message.is_error() || &*message.message_type_name == "Bye" {
                tx.end(message.handle()).await?;
            } else if choice == 2 {
                tx.send(message.handle(), "Text", "answer").await?;
            }
        }
        tx.commit().await
    }

    /// Turns queues on that poison turned off, and changes definitions while they are used.
    async fn operate(self, stopped: watch::Receiver<bool>) {
        let mut is_high = true;
        let (mut rounds, mut over) = (0_u64, BTreeSet::new());
        let mut pace = tokio::time::interval(Duration::from_millis(500));
        while !*stopped.borrow() {
            pace.tick().await;
            rounds += 1;
            if rounds.is_multiple_of(SWEEP_ROUNDS) {
                match self.sweep(&over).await {
                    Ok(found) => over = found,
                    Err(error) => self.counts.refused(&error),
                }
            }
            is_high = !is_high;
            let level = if is_high { 8 } else { 3 };
            let script = format!(
                "ALTER QUEUE [QT] WITH STATUS = ON; ALTER QUEUE [QI] WITH STATUS = ON;
                 ALTER BROKER PRIORITY [high] FOR CONVERSATION SET (PRIORITY_LEVEL = {level})"
            );
            match self.broker.execute(&script).await {
                Ok(_) => self.counts.add("definitions changed"),
                Err(error) => self.counts.refused(&error),
            }
        }
    }

    /// Ends conversations that were over at the last sweep already, and gives those that are over now.
    ///
    /// A RECEIVE outside a transaction whose caller gives up loses what it took, as documented. If that was an EndDialog or
    /// an Error, only the endpoint's state still says that the conversation is over, so an application looks there.
    async fn sweep(&self, over_before: &BTreeSet<ConversationHandle>) -> Result<BTreeSet<ConversationHandle>, Error> {
        let mut over = BTreeSet::new();
        for (handle, state) in states(self.store, &self.broker).await? {
            if !is_over(&state) {
                continue;
            }
            if over_before.contains(&handle) {
                self.counts.add("ended by a sweep");
                let _ = self.broker.end(handle).await;
            } else {
                over.insert(handle);
            }
        }
        Ok(over)
    }
}

/// Ends what the other side has ended or broken. What is gone already is as it should be.
async fn end_all(broker: &Broker, messages: &[Message]) {
    for message in messages.iter().filter(|message| message.is_end_dialog() || message.is_error()) {
        let _ = broker.end(message.handle()).await;
    }
}

fn is_over(state: &str) -> bool {
    ["DI", "ER"].contains(&state)
}

async fn states(store: Store, broker: &Broker) -> Result<Vec<(ConversationHandle, String)>, Error> {
    let handle =
        if store == Store::Sqlite { "conversation_handle" } else { "CAST(conversation_handle AS varchar(36))" };
    let text = format!("SELECT {handle} AS handle, state FROM {}", store.view("conversation_endpoints"));
    let rows = broker.query(text, ()).await?.rows;
    rows.iter()
        .map(|row| {
            let (handle, state): (String, String) = (row.get("handle")?, row.get("state")?);
            Ok((handle.parse().expect("a handle"), state.trim().to_owned()))
        })
        .collect()
}

/// After the load: empties both queues and ends whatever says that it is over. Gives the states of what stays.
pub(crate) async fn end_open_conversations(store: Store, broker: &Broker) -> Result<Vec<String>, Error> {
    broker.execute("ALTER QUEUE [QT] WITH STATUS = ON; ALTER QUEUE [QI] WITH STATUS = ON").await?;
    for queue in ["QI", "QT"] {
        while let Some(batch) = broker.receive(queue).top(100).await? {
            end_all(broker, batch.messages()).await;
        }
    }
    let mut left = Vec::new();
    for (handle, state) in states(store, broker).await? {
        if is_over(&state) {
            let _ = broker.end(handle).await;
        }
        left.push(state);
    }
    Ok(left)
}
