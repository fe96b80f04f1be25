//! The owner's socket: accepts the connections of guests until the store ends.

use super::Stop;
use super::owned::OwnedStore;
use super::session::{self, Closing, Draining};
use super::socket::{self, Listening};
use super::spin::Turns;
use crate::store::sqlite::SqliteStore;
use crate::store::url::Durability;
use interprocess::local_socket::tokio::{Stream, prelude::*};
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How often the owner looks whether its socket is still there and its store still works.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted: without a free descriptor the next attempt fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often that is worth a warning.
const ACCEPT_WARNING_EVERY: Duration = Duration::from_secs(20);

/// How long the owner waits for the transactions of guests. A connection gives them less; this bounds one whose last step waits behind
/// another one.
const MOST_DRAINING: Duration = Duration::from_secs(3);

/// Why the owner serves no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It closes, or was dropped.
    Stopped,
    /// Its store has failed.
    Failed,
}

/// The connections of guests.
pub(super) struct Connections {
    sessions: JoinSet<()>,
    closing: watch::Sender<Closing>,
    draining: Draining,
    drained: mpsc::Receiver<Infallible>,
    /// The task that polls for the next call of a guest.
    _awake: JoinSet<()>,
}

impl Connections {
    fn new(turns: Arc<Turns>) -> Self {
        let (draining, drained) = mpsc::channel(1);
        let mut awake = JoinSet::new();
        awake.spawn(async move { turns.keep_awake().await });
        Self { sessions: JoinSet::new(), closing: watch::Sender::new(Closing::No), draining, drained, _awake: awake }
    }

    fn start(&mut self, owned: Arc<OwnedStore>, stream: Stream, durability: Durability) {
        let (closing, draining) = (self.closing.subscribe(), self.draining.clone());
        self.sessions.spawn(async move {
            if let Err(error) = session::serve(owned, stream, durability, closing, draining).await {
                tracing::warn!(%error, "the connection of another process was ended");
            }
        });
    }

    /// Whether no other process is connected.
    pub(super) fn are_none(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Tells the guests that the owner closes, and waits until their transactions have ended, but not for long.
    pub(super) async fn drain(mut self) -> Self {
        self.closing.send_replace(Closing::AfterTransactions);
        self.draining = mpsc::channel(1).0;
        let drained = async { while self.drained.recv().await.is_some() {} };
        let _ = tokio::time::timeout(MOST_DRAINING, drained).await;
        self
    }

    /// Tells the guests that the owner closes, and answers what they have under way.
    pub(super) async fn finish(mut self) {
        self.closing.send_if_modified(|closing| std::mem::replace(closing, Closing::AtOnce) == Closing::No);
        while self.sessions.join_next().await.is_some() {}
    }
}

/// Accepts connections until the store ends. The socket is gone when this returns; the connections go on.
///
/// New readers of all processes wait until `complete_at`.
pub(super) async fn run(
    owned: &Arc<OwnedStore>,
    mut listening: Option<Listening>,
    database: &Path,
    durability: Durability,
    mut complete_at: Option<Instant>,
    mut stopping: watch::Receiver<Stop>,
) -> (End, Connections) {
    let mut connections = Connections::new(owned.turns.clone());
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checks.tick().await;
    let mut warned_at: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = stopping.wait_for(Stop::is_asked) => return (End::Stopped, connections),
            Some(_) = connections.sessions.join_next() => {}
            stream = accept(listening.as_ref()) => match stream {
                Ok(stream) => connections.start(owned.clone(), stream, durability),
                Err(error) => {
                    if warned_at.is_none_or(|at| at.elapsed() >= ACCEPT_WARNING_EVERY) {
                        tracing::warn!(%error, "another process could not be connected");
                        warned_at = Some(Instant::now());
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = sleep_until(complete_at.unwrap_or_else(Instant::now)), if complete_at.is_some() => {
                complete_at = None;
                owned.complete_slots();
            }
            () = owned.may_have_failed() => {
                if owned.store.has_failed() {
                    return (End::Failed, connections);
                }
            }
            _ = checks.tick() => {
                if owned.store.has_failed() {
                    return (End::Failed, connections);
                }
                // It was deleted, or could not be made before. In a folder that was renamed the old one still serves; another
                // folder of its name belongs to another owner.
                let engine = &owned.store.engine;
                if !engine.is_at_its_path() {
                    continue;
                }
                if !listening.as_ref().is_some_and(Listening::is_current)
                    && let Ok(again) = socket::listen(database)
                {
                    if let Some(old) = &mut listening {
                        old.keep_file();
                    }
                    listening = Some(again);
                    engine.announce(true);
                } else if !engine.is_announced() {
                    // Without the lock file, a file that is put in the place of this one gets an owner that reads the log of this one.
                    engine.announce(listening.is_some());
                }
            }
        }
    }
}

/// Listens, and says in the lock file whether it does.
pub(super) fn listen(database: &Path, store: &SqliteStore) -> Option<Listening> {
    let listening = socket::listen(database);
    if let Err(error) = &listening {
        tracing::warn!(%error, "other processes cannot use the database: its socket cannot be made; trying again every second");
    }
    store.engine.announce(listening.is_ok());
    listening.ok()
}

async fn accept(listening: Option<&Listening>) -> io::Result<Stream> {
    match listening {
        Some(listening) => listening.listener.accept().await,
        None => std::future::pending().await,
    }
}
