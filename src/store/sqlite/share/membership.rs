//! What this process is to the file, and how that changes: the take-over.
//!
//! A thread of its own runs [`Membership::run`]. It owns the file or works through the owner; when the owner is gone it
//! tries both in turn. The obstacles that it meets are of three kinds ([`Obstacle`]). A first opening reports them at once,
//! except for an owner that has just begun or ended. A take-over tries again until the store is closed: calls wait for it
//! [`OWNER_STARTS`] long, then they get the obstacle as their error until an attempt succeeds.

use super::client::Client;
use super::frame::{Answer, Call};
use super::owned::OwnedStore;
use super::serve::{self, End};
use super::socket::{self, NoConnection};
use super::{lock, unexpected};
use crate::catalog::Catalog;
use crate::core::Repair;
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::store::sqlite::open::{OtherName, absolute_path};
use crate::store::sqlite::reader_slots::ReaderSlots;
use crate::store::sqlite::{ReadOnlyStore, SqliteOptions, SqliteStore, blocking, owner};
use crate::store::url::Location;
use crate::store::{ReaderSlot, Store};
use std::collections::HashMap;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The shortest and the longest pause between two attempts to own the file or to connect to its owner.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// The longest pause after an obstacle that is not the owner's coming or going.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long one attempt of a take-over waits for a write lock of another program. A close waits for an attempt under way.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How long an owner that shares may take to read its file and to listen, before an opening gives up.
const OWNER_STARTS: Duration = Duration::from_secs(60);
/// How long a lock file that names no owner, or one that does not share, is believed: an owner that has just locked the
/// file writes it at once. A take-over, whose calls would fail, believes it longer than an opening.
const OWNER_ANNOUNCES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// How long a new owner starts no further readers: the guests of the last owner enter theirs meanwhile. They try to connect
/// every 100 ms.
const SLOTS_ENTER: Duration = Duration::from_secs(1);
/// The shortest and the longest pause before a file is opened again whose disk was full, and how many times as long as its last opening
/// took it is between them. The next write may meet the full disk too, and an opening reads the whole file; but leases are to be prolonged.
const FULL_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const FULL_PAUSE_TIMES: u32 = 4;
/// How often a full disk is worth a warning.
const FULL_WARNING_EVERY: Duration = Duration::from_secs(60);
/// How long the guests of an owner that was dropped, not closed, wait for the answers to calls under way.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Whether and how the store ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    /// It closes: calls under way are answered.
    Close,
    /// It was dropped: this process's own calls are not.
    Drop,
}

impl Stop {
    pub(super) fn is_asked(&self) -> bool {
        *self != Self::No
    }
}

/// What this process is to the file.
#[derive(Clone)]
pub(super) enum Role {
    Owner(Arc<OwnedStore>),
    Guest(Arc<RemoteStore>),
    /// The owner has gone, and the next one is not known yet.
    Pending,
    /// The file cannot be used. Attempts go on, unless the file itself is the obstacle.
    Unusable(Arc<Error>),
    Closed,
}

/// The store as a guest has it: the connection to the owner, and a connection of its own for reading.
pub(super) struct RemoteStore {
    pub(super) client: Arc<Client>,
    pub(super) reader: Arc<ReadOnlyStore>,
}

/// Who gave the slot of a reader, or did a call.
#[derive(Clone)]
pub(super) enum Giver {
    Owner(Arc<OwnedStore>),
    Guest(Arc<RemoteStore>),
}

/// The answer to a routed call.
pub(super) enum Routed {
    /// This process owns the file: the caller does the call.
    Local(Arc<OwnedStore>, Call),
    /// The owner has done it.
    Remote(Arc<RemoteStore>, Answer),
}

pub(super) struct Membership {
    pub(super) options: SqliteOptions,
    pub(super) path: PathBuf,
    full_warned: Mutex<Option<Instant>>,
    /// The file itself, once it was opened.
    file: OnceLock<owner::FileKey>,
    role: watch::Sender<Role>,
    /// The definitions as last known.
    pub(super) catalog: Arc<Mutex<Arc<Catalog>>>,
    /// The slots of this process's readers, by id. The role changes only under this lock, so each owner hears of each slot.
    slots: Mutex<HashMap<u64, Slot>>,
    last_slot: AtomicU64,
    stopping: watch::Sender<Stop>,
    /// The result of closing the store that this process owned.
    closed: Mutex<Option<Result<()>>>,
}

/// The slot of a reader of this process.
#[derive(Debug, Clone, Copy)]
struct Slot {
    queue_id: i32,
    number: i32,
}

/// How this process has got the file.
enum Acquired {
    Owner(Arc<SqliteStore>, ReaderSlots),
    Guest(Arc<RemoteStore>),
}

/// How long this process has owned the file.
enum Owned {
    /// Its store has ended, or takes nothing more.
    ToTheEnd,
    /// The file is to be opened again.
    UntilTheDiskWasFull(FullStore),
}

/// What the next store of a process must know of its last one, which met a full disk.
#[derive(Default)]
struct FullStore {
    /// No other process worked through this one.
    was_alone: bool,
    /// The jobs that other transactions held than those whose commits met it.
    held_jobs: Arc<[TakenJob]>,
}

/// Why an attempt to own the file or to work through its owner has failed.
enum Obstacle {
    /// Another process has the lock and does not answer: it starts or ends.
    OwnerAbsent(Error),
    /// It may pass by itself or be removed: a full disk, an owner that hangs.
    Passing(Error),
    /// The owner does not work for this process; the next one may. Or the file has another name, which may be removed.
    Refused(Error),
    /// The file itself: it is damaged, not one of Dialoq, or of a newer version.
    Final(Error),
}

/// Since when the file has had an owner that does not answer, and whether that owner has said that it shares the file. It says so
/// a moment after it has the lock. Of many short owners that follow one another an attempt may meet each one in that moment, so
/// the time counts from zero when what they say changes.
#[derive(Default)]
struct Absence(Option<(bool, Instant)>);

impl Absence {
    /// How long it has lasted.
    fn lasts(&mut self, is_shared: bool, now: Instant) -> Duration {
        let since = self.0.filter(|(was_shared, _)| *was_shared == is_shared);
        let (_, since) = *self.0.insert(since.unwrap_or((is_shared, now)));
        now.saturating_duration_since(since)
    }
}

/// What an opening waits for: the repairs of the file, or why it cannot be used.
pub(super) type Opened = Sender<Result<Arc<[Repair]>>>;

impl Membership {
    pub(super) fn new(options: SqliteOptions, path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            // Settled once: a take-over means the file of this opening, whatever folder the process is in by then and whatever the
            // link names. Settled again later, it led to another database, whose jobs were done.
            options: SqliteOptions { is_shared: true, location: Location::File(path.clone()), ..options },
            path,
            full_warned: Mutex::default(),
            file: OnceLock::new(),
            role: watch::Sender::new(Role::Pending),
            catalog: Arc::default(),
            slots: Mutex::default(),
            last_slot: AtomicU64::new(0),
            stopping: watch::Sender::new(Stop::No),
            closed: Mutex::new(None),
        })
    }

    /// Owns the file or works through its owner, in turn, until the store is closed.
    pub(super) async fn run(self: Arc<Self>, opened: Opened) {
        let mut opened = Some(opened);
        let mut last = FullStore::default();
        while let Some((acquired, took)) = self.acquire(&mut opened, &last).await {
            match acquired {
                Acquired::Owner(store, slots) => {
                    match self.own(store, slots, opened.take()).await {
                        Owned::ToTheEnd => return,
                        Owned::UntilTheDiskWasFull(full) => last = full,
                    }
                    let mut stopping = self.stopping.subscribe();
                    tokio::select! {
                        () = tokio::time::sleep((took * FULL_PAUSE_TIMES).clamp(FULL_PAUSES.0, FULL_PAUSES.1)) => {}
                        _ = stopping.wait_for(Stop::is_asked) => {}
                    }
                }
                Acquired::Guest(remote) => {
                    if !self.publish(Role::Guest(remote.clone()), opened.take(), Arc::default()) {
                        return;
                    }
                    self.work_through(&remote).await;
                    self.lose_owner();
                    last = FullStore::default();
                }
            }
        }
    }

    /// Works for the other processes until the store ends, or the disk is full.
    async fn own(&self, store: Arc<SqliteStore>, slots: ReaderSlots, opened: Option<Opened>) -> Owned {
        let complete_at = slots.is_incomplete().then(|| tokio::time::Instant::now() + SLOTS_ENTER);
        let owned = Arc::new(OwnedStore::new(store.clone(), self.options.board.clone(), slots));
        let repairs = store.repairs().clone();
        // A process that finds the file owned can connect.
        let listening = serve::listen(&self.path, &store);
        if !self.publish(Role::Owner(owned.clone()), opened, repairs) {
            return Owned::ToTheEnd;
        }
        let mut stopping = self.stopping.subscribe();
        let durability = self.options.durability;
        let serving = serve::run(&owned, listening, &self.path, durability, complete_at, stopping.clone());
        let (end, connections) = serving.await;
        let is_full = end == End::Failed && store.is_full();
        let was_alone = connections.are_none();
        if is_full {
            self.warn_of_full_disk();
            *lock(&self.catalog) = store.catalog();
            self.lose_owner();
        } else if end == End::Failed {
            tracing::error!(
                "the store has failed and refuses all calls until it is opened again; another process may take the file over"
            );
        }
        if *stopping.borrow() == Stop::Drop {
            let ending = async {
                connections.finish().await;
                // The next owner reads the file, so the jobs that the others gave back last must be in it. If that fails, they come back at the end
                // of their leases.
                let _ = store.write_all().await;
            };
            let _ = tokio::time::timeout(LAST_ANSWERS, ending).await;
            return Owned::ToTheEnd;
        }
        let connections = if end == End::Failed { connections } else { connections.drain().await };
        // The socket is gone, so the next owner's is not deleted. What is under way is answered by the store that closes.
        let answering = async {
            tokio::select! {
                () = connections.finish() => {}
                // A caller that gave the close up drops the store, and its thread waits.
                () = self.dropped() => {}
            }
        };
        let (closed, ()) = tokio::join!(store.close(), answering);
        if is_full && !stopping.borrow().is_asked() {
            return Owned::UntilTheDiskWasFull(FullStore { was_alone, held_jobs: store.held_jobs() });
        }
        // All that was acknowledged is in the file, and the callers of the rest have their errors.
        let closed = if store.is_full() { Ok(()) } else { closed };
        lock(&self.closed).get_or_insert(closed);
        drop(store);
        let _ = stopping.wait_for(Stop::is_asked).await;
        Owned::ToTheEnd
    }

    fn warn_of_full_disk(&self) {
        let mut warned = lock(&self.full_warned);
        if warned.is_none_or(|at| at.elapsed() >= FULL_WARNING_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(
                "the disk was full; the database is opened again by this process, or taken over by another one that uses it"
            );
        }
    }

    /// Returns soon after the store was dropped.
    async fn dropped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stop| *stop == Stop::Drop).await;
        tokio::time::sleep(LAST_ANSWERS).await;
    }

    /// Carries calls to the owner until it closes or is gone, or this store is closed.
    async fn work_through(&self, remote: &RemoteStore) {
        let mut stopping = self.stopping.subscribe();
        let until_closing = async {
            remote.client.owner_closes().await;
            self.lose_owner();
            std::future::pending::<()>().await;
        };
        let until_stopped = async {
            let is_dropped = stopping.wait_for(Stop::is_asked).await.is_ok_and(|stop| *stop == Stop::Drop);
            if is_dropped { remote.client.leave().await } else { remote.client.close().await }
        };
        tokio::select! {
            () = remote.client.run() => {}
            () = until_closing => {}
            () = until_stopped => {}
        }
        if self.stopping.borrow().is_asked() {
            let closed = remote.reader.close().await;
            lock(&self.closed).get_or_insert(closed);
        }
    }

    /// New calls wait for the next owner.
    fn lose_owner(&self) {
        let _slots = lock(&self.slots);
        self.role.send_if_modified(|role| {
            let is_open = !matches!(role, Role::Closed);
            if is_open {
                *role = Role::Pending;
            }
            is_open
        });
    }

    /// Publishes a role, and enters the slots of this process's readers there; false if the store is closed.
    fn publish(&self, role: Role, opened: Option<Opened>, repairs: Arc<[Repair]>) -> bool {
        let is_open = {
            let mut slots = lock(&self.slots);
            let is_open = !matches!(*self.role.borrow(), Role::Closed);
            if is_open {
                for (id, slot) in slots.iter_mut() {
                    enter(&role, *id, slot);
                }
                self.role.send_replace(role);
            }
            is_open
        };
        if let Some(opened) = opened {
            let _ = opened.send(Ok(repairs));
        }
        // Receivers that waited poll once: signals of the time between are lost.
        self.options.board.wake_all();
        is_open
    }

    /// The file cannot be used for now: calls get this error.
    fn publish_unusable(&self, error: Error) {
        self.publish(Role::Unusable(Arc::new(error)), None, Arc::default());
    }

    /// Owns the file, or connects to its owner; `None` if the store is closed, or an opening was refused. Gives how long the attempt took
    /// that succeeded. `last` is this process's last store, if it was the last owner.
    async fn acquire(&self, opened: &mut Option<Opened>, last: &FullStore) -> Option<(Acquired, Duration)> {
        let started = Instant::now();
        let mut absence = Absence::default();
        let mut pause = PAUSES.0;
        let mut refused = None;
        while !self.stopping.borrow().is_asked() {
            let tried = Instant::now();
            let obstacle = match self.attempt(opened.is_some(), last).await {
                Ok(acquired) => {
                    self.options.board.meet(None);
                    if let (None, Ok(Some(file))) = (self.file.get(), owner::existing_key(&self.path)) {
                        let _ = self.file.set(file);
                    }
                    return Some((acquired, tried.elapsed()));
                }
                Err(obstacle) => obstacle,
            };
            let is_shared = owner::is_shared(&self.path);
            let (error, is_refused, longest) = match obstacle {
                Obstacle::OwnerAbsent(error) => {
                    let (patience, why) = if is_shared {
                        (OWNER_STARTS, "it does not listen on its socket")
                    } else {
                        let patience = if opened.is_some() { OWNER_ANNOUNCES.0 } else { OWNER_ANNOUNCES.1 };
                        (
                            patience,
                            "it was opened with share=off, or its socket could not be made; or another program, such as flock, holds a lock on the file",
                        )
                    };
                    let is_over = absence.lasts(is_shared, Instant::now()) > patience;
                    (
                        if is_over { Error::new(error.code(), format!("{}; {why}", error.message())) } else { error },
                        is_over,
                        PAUSES.1,
                    )
                }
                Obstacle::Passing(error) => {
                    (error, opened.is_some() || started.elapsed() > OWNER_STARTS, LONGEST_PAUSE)
                }
                Obstacle::Refused(error) => (error, true, LONGEST_PAUSE),
                Obstacle::Final(error) => {
                    self.refuse(error, opened);
                    return None;
                }
            };
            if is_refused && opened.is_some() {
                self.refuse(error, opened);
                return None;
            }
            let error = Arc::new(error);
            let is_news = refused.replace((error.code(), is_refused)) != Some((error.code(), is_refused));
            // A guest that closes meanwhile meets the end of itself.
            let is_obstacle = error.code() != Code::STORE_CLOSED;
            if is_news && is_obstacle && (is_refused || longest == LONGEST_PAUSE) {
                tracing::warn!(%error, "the database cannot be taken over yet; trying again");
            }
            if is_news && is_refused {
                self.publish_unusable(error.duplicate());
            }
            self.options.board.meet(Some(error));
            let mut stopping = self.stopping.subscribe();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopping.wait_for(Stop::is_asked) => return None,
            }
            pause = (pause * 2).min(longest);
        }
        None
    }

    /// Gives up: an opening gets the error, or all later calls.
    fn refuse(&self, error: Error, opened: &mut Option<Opened>) {
        match opened.take() {
            Some(opened) => drop(opened.send(Err(error))),
            None => {
                tracing::error!(%error, "the database cannot be used any more; close it and open it again");
                self.publish_unusable(error);
            }
        }
    }

    /// One attempt to own the file, then to connect to its owner.
    async fn attempt(&self, is_first: bool, last: &FullStore) -> std::result::Result<Acquired, Obstacle> {
        let mut stopping = self.stopping.subscribe();
        let mut options = self.options.clone();
        // A file that has gone since must not become an empty one.
        options.create_if_missing &= is_first;
        options.held_jobs = last.held_jobs.clone();
        if !is_first {
            options.lock_wait = LOCK_WAIT;
        }
        if !is_first {
            self.check_place()?;
        }
        // The guests of an owner that was killed, or whose guest this process was, may have readers.
        let has_predecessor = !last.was_alone && (!is_first || owner::is_named(&self.path));
        // A close waits for an opening under way, so the file is free when it returns. A drop does not wait.
        let owned = tokio::select! {
            opened = blocking(move || SqliteStore::open(options)) => match opened {
                Ok(store) => {
                    let slots = if has_predecessor { ReaderSlots::incomplete() } else { ReaderSlots::default() };
                    return Ok(Acquired::Owner(store, slots));
                }
                Err(error) => owned_by_another(error)?,
            },
            _ = stopping.wait_for(|stop| *stop == Stop::Drop) => return Err(Obstacle::Passing(Error::closed())),
        };
        let stream = tokio::select! {
            stream = socket::connect(&self.path, self.options.durability) => stream,
            _ = stopping.wait_for(Stop::is_asked) => return Err(Obstacle::Passing(Error::closed())),
        };
        let stream = stream.map_err(|why| match why {
            NoConnection::Absent => Obstacle::OwnerAbsent(owned.duplicate()),
            NoConnection::Silent(error) => Obstacle::Passing(error),
            NoConnection::Refused(error) => Obstacle::Refused(error),
        })?;
        let options = self.options.clone();
        let reader = blocking(move || ReadOnlyStore::open(options)).await.map_err(Obstacle::Passing)?;
        let client = Client::new(stream, self.options.board.clone(), reader.clone(), self.catalog.clone());
        let client = client.map_err(|_| Obstacle::OwnerAbsent(owned))?;
        Ok(Acquired::Guest(Arc::new(RemoteStore { client, reader })))
    }

    /// Refuses a link that has taken the place of the file since: it means another one, or the file at another path, where other processes
    /// look for the socket of its owner. Refuses another file there too: a report on a job of the old one completed a job of that one.
    fn check_place(&self) -> std::result::Result<(), Obstacle> {
        let path = self.path.display();
        let refuse = |why: String| Err(Obstacle::Refused(Error::new(Code::STORE_IO, why)));
        let found = absolute_path(&self.path);
        if found != self.path {
            let found = found.display();
            return refuse(format!(
                "database '{path}' cannot be opened: a link to '{found}' has taken its place; close the broker and open that file"
            ));
        }
        // A file that cannot be looked at is an obstacle to its opening.
        let found = owner::existing_key(&self.path).unwrap_or_default();
        if let (Some(found), Some(opened)) = (found, self.file.get())
            && found != *opened
        {
            return refuse(format!(
                "database '{path}' cannot be opened: another file has taken its place; close the broker and open it again, which \
                 opens that file"
            ));
        }
        Ok(())
    }

    /// The role as it is.
    pub(super) fn role_now(&self) -> Role {
        self.role.borrow().clone()
    }

    /// Who does calls now, once that is known.
    pub(super) async fn role(&self) -> Result<Giver> {
        let is_known = |role: &Role| match role {
            Role::Pending => false,
            Role::Owner(owned) => !owned.store.is_full(),
            Role::Guest(_) | Role::Unusable(_) | Role::Closed => true,
        };
        let role = match self.role_now() {
            known if is_known(&known) => known,
            unknown => {
                // Its thread may not know yet that the disk was full.
                if let Role::Owner(owned) = &unknown {
                    owned.note_failure();
                }
                drop(unknown);
                let mut role = self.role.subscribe();
                let known = role.wait_for(is_known);
                match tokio::time::timeout(OWNER_STARTS, known).await {
                    Ok(Ok(role)) => role.clone(),
                    Ok(Err(_)) => Role::Closed,
                    Err(_) => return Err(self.pending_error()),
                }
            }
        };
        match role {
            Role::Owner(owned) => Ok(Giver::Owner(owned)),
            Role::Guest(remote) => Ok(Giver::Guest(remote)),
            Role::Unusable(error) => Err(error.duplicate()),
            Role::Closed | Role::Pending => Err(Error::closed()),
        }
    }

    /// Why no process owns the file for a long time.
    fn pending_error(&self) -> Error {
        let obstacle = self.options.board.obstacle().borrow().clone();
        obstacle.map_or_else(
            || {
                let why = "no process owns it yet; another one still reads it";
                Error::new(Code::STORE_OWNED, format!("database '{}' cannot be used: {why}", self.path.display()))
            },
            |error| error.duplicate(),
        )
    }

    /// Has the owner do a call; if this process is the owner, the call comes back. A call that an owner certainly has not
    /// done goes to the next one.
    pub(super) async fn route(&self, call: Call) -> Result<Routed> {
        loop {
            let remote = match self.role().await? {
                Giver::Owner(owned) => return Ok(Routed::Local(owned, call)),
                Giver::Guest(remote) => remote,
            };
            match remote.client.submit(&call).await {
                Ok(answer) => return Ok(Routed::Remote(remote, answer)),
                Err(error) if error.code() == Code::STORE_CLOSED => self.await_other_role(&remote).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until this process no longer works through that connection.
    pub(super) async fn await_other_role(&self, remote: &Arc<RemoteStore>) {
        let mut role = self.role.subscribe();
        let is_same = |role: &Role| matches!(role, Role::Guest(now) if Arc::ptr_eq(now, remote));
        let _ = role.wait_for(|role| !is_same(role)).await;
    }

    /// A slot among the readers that all processes together may run on a queue; `None` if all are taken.
    pub(super) async fn take_slot(self: &Arc<Self>, queue_id: i32, most: u16) -> Result<Option<ReaderSlot>> {
        let mut taking = Taking { membership: self, id: self.last_slot.fetch_add(1, Relaxed) + 1, is_armed: true };
        let call = Call::TakeSlot { slot: taking.id, queue_id, most };
        let (number, giver) = match self.route(call).await? {
            Routed::Local(owned, _) => {
                let number = owned.slots.take(queue_id, most);
                (number, Giver::Owner(owned))
            }
            Routed::Remote(remote, Answer::Slot(number)) => (number, Giver::Guest(remote)),
            Routed::Remote(_, other) => return Err(unexpected(&other)),
        };
        taking.is_armed = false;
        Ok(number.map(|number| self.hold_slot(taking.id, Slot { queue_id, number }, &giver)))
    }

    /// Keeps a slot for the next owner.
    fn hold_slot(self: &Arc<Self>, id: u64, mut slot: Slot, giver: &Giver) -> ReaderSlot {
        let number = slot.number;
        {
            let mut slots = lock(&self.slots);
            let role = self.role.borrow();
            let is_counted = match (&*role, giver) {
                (Role::Owner(now), Giver::Owner(then)) => Arc::ptr_eq(now, then),
                (Role::Guest(now), Giver::Guest(then)) => Arc::ptr_eq(now, then),
                _ => false,
            };
            // The owner has changed meanwhile.
            if !is_counted {
                enter(&role, id, &mut slot);
            }
            slots.insert(id, slot);
        }
        let membership = self.clone();
        ReaderSlot::freed_by(Some(number), move || membership.free_slot(id))
    }

    /// Frees the slot of a reader of this process.
    fn free_slot(&self, id: u64) {
        let mut slots = lock(&self.slots);
        let Some(slot) = slots.remove(&id) else { return };
        match self.role_now() {
            Role::Owner(owned) => owned.free_slot(slot.queue_id, slot.number),
            Role::Guest(remote) => remote.client.notify(Call::FreeSlot { slot: id }),
            _ => {}
        }
    }

    /// Ends the store; the thread answers what is under way and frees the file.
    pub(super) fn stop(&self, stop: Stop) {
        {
            let _slots = lock(&self.slots);
            self.role.send_replace(Role::Closed);
        }
        self.stopping.send_replace(stop);
        self.options.board.wake_all();
    }

    /// The result of closing the store that this process owned.
    pub(super) fn closed(&self) -> Result<()> {
        match &*lock(&self.closed) {
            Some(Err(error)) => Err(error.duplicate()),
            Some(Ok(())) | None => Ok(()),
        }
    }
}

/// The refusal of an opening by the owner of the file; any other one is an obstacle to owning it and to connecting to an owner.
fn owned_by_another(refusal: Error) -> std::result::Result<Error, Obstacle> {
    Err(match refusal.code() {
        // A program that has SQLite's write lock is no owner. It was taken for one that does not share the file.
        Code::STORE_OWNED if refusal.source().is_some() => Obstacle::Passing(refusal),
        Code::STORE_OWNED => return Ok(refusal),
        Code::STORE_FOREIGN if refusal.source().is_some_and(|cause| cause.is::<OtherName>()) => {
            Obstacle::Refused(refusal)
        }
        Code::STORE_FOREIGN | Code::STORE_DAMAGED | Code::STORE_NEWER => Obstacle::Final(refusal),
        _ => Obstacle::Passing(refusal),
    })
}

/// Enters the slot of a reader that runs in the count of an owner.
fn enter(role: &Role, id: u64, slot: &mut Slot) {
    match role {
        Role::Owner(owned) => slot.number = owned.slots.enter(slot.queue_id, slot.number),
        Role::Guest(remote) => {
            remote.client.notify(Call::EnterSlot { slot: id, queue_id: slot.queue_id, number: slot.number });
        }
        _ => {}
    }
}

/// A slot that is being asked for. If its caller goes away, the owner may have given it.
struct Taking<'m> {
    membership: &'m Membership,
    id: u64,
    is_armed: bool,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if self.is_armed
            && let Role::Guest(remote) = self.membership.role_now()
        {
            remote.client.notify(Call::FreeSlot { slot: self.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::url::Location;

    #[tokio::test]
    async fn a_write_lock_of_another_program_is_an_obstacle_that_passes() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut options = SqliteOptions::new(Location::File(path.clone()));
        SqliteStore::open(options.clone()).unwrap().close().await.unwrap();
        // An opening waits as long as it was asked to, a take-over does not.
        options.lock_wait = Duration::from_secs(86_400);
        let holder = rusqlite::Connection::open(&path).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        let membership = Membership::new(options, path);
        match membership.attempt(false, &FullStore::default()).await {
            Err(Obstacle::Passing(error)) => assert_eq!(error.code(), Code::STORE_OWNED, "{error}"),
            _ => panic!("the lock passes by itself"),
        }
        drop(holder);
        assert!(matches!(membership.attempt(false, &FullStore::default()).await, Ok(Acquired::Owner(..))));
    }

    /// A guest whose owner was killed gave up: it was refused for a second name, and the name was removed before it asked why.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_second_name_that_is_removed_is_no_foreign_file() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let options = SqliteOptions::new(Location::File(path.clone()));
        SqliteStore::open(options.clone()).unwrap().close().await.unwrap();
        std::fs::hard_link(&path, folder.path().join("second")).unwrap();
        let refusal = SqliteStore::open(options.clone()).err().unwrap();
        std::fs::remove_file(folder.path().join("second")).unwrap();
        assert!(matches!(owned_by_another(refusal), Err(Obstacle::Refused(_))), "it is asked again");
        std::fs::write(&path, "not a database of anything, but longer than a header of a hundred bytes ".repeat(4))
            .unwrap();
        let refusal = SqliteStore::open(options).err().unwrap();
        assert!(matches!(owned_by_another(refusal), Err(Obstacle::Final(_))), "a foreign file stays one");
    }

    #[test]
    fn an_absence_counts_anew_when_another_owner_has_come() {
        let mut absence = Absence::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let seen = [(false, 0), (false, 400), (true, 600), (false, 700), (false, 900)];
        let lasts = seen.map(|(is_shared, ms)| absence.lasts(is_shared, at(ms)).as_millis());
        assert_eq!(lasts, [0, 400, 0, 0, 200], "no refusal after 500 ms of many owners");
    }
}
