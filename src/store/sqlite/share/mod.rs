//! One file, many processes: the one that owns it carries out the calls of the others.
//!
//! The lock on the database file alone says who owns it ([`super::owner`]). Each process that opens the file tries to own
//! it. If another one does, it connects to that one's socket ([`socket`]) and sends its calls ([`client`]), which the owner
//! carries out on its store ([`serve`]). When the connection ends, each of the others tries again to own the file: one
//! succeeds, reads the file and listens; the others connect to it.
//!
//! [`SharedStore`] hides the change from those above the seam: the board of activity stays, so receivers go on waiting. A
//! call that was under way fails with 60046; a call that comes during the change waits for its end.

mod client;
mod frame;
mod places;
mod serve;
mod socket;
#[cfg(test)]
mod tests;

use super::owner;
use super::read_only::ReadOnlyStore;
use super::{SqliteOptions, SqliteStore, blocking, open, read};
use crate::catalog::Catalog;
use crate::core::Repair;
use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Unit, Verb};
use crate::store::database::link::EnlistedConnection;
use crate::store::url::Location;
use crate::store::{
    ActivityBoard, BoxFuture, ReaderSlot, SqlRows, SqlStatement, Store, StoreTexts, StoreTx, no_enlisted_connections,
};
use crate::time::Clock;
use client::{Client, RemoteTx, outcomes};
use frame::{Answer, Call};
use interprocess::local_socket::tokio::Listener;
use serve::Office;
use socket::NoConnection;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use uuid::Uuid;

/// The shortest and the longest pause between two attempts to own the file or to connect to its owner.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// How long an owner that shares may take to read its file and to listen, before an opening gives up.
const OWNER_STARTS: Duration = Duration::from_secs(60);
/// How long a lock file that names no owner is believed: an owner that has just locked the file writes it at once.
const OWNER_ANNOUNCES: Duration = Duration::from_millis(500);

/// The error of a call whose owner has gone.
fn owner_gone() -> Error {
    Error::new(
        Code::OWNER_GONE,
        "the process that owned the database file ended during the call, or closed it; another process takes over. A \
         transaction that was not committed is rolled back, what was sent without one may have happened or not",
    )
}

fn unexpected(answer: &Answer) -> Error {
    Error::new(Code::STORE_IO, format!("the owner of the database gave another answer than was asked for: {answer:?}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether and how the store ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    /// It closes: requests under way are answered.
    Close,
    /// It was dropped: they are not.
    Drop,
}

impl Stop {
    fn is_asked(&self) -> bool {
        *self != Self::No
    }
}

/// What this process is to the file.
#[derive(Clone)]
enum Role {
    Owner(Arc<Office>),
    Client(Arc<Guest>),
    /// The owner has gone, and the next one is not known yet.
    Between,
    /// The file cannot be used any more.
    Failed(Arc<Error>),
    Closed,
}

/// A process that works through the owner: the connection, and a connection of its own for reading.
struct Guest {
    client: Arc<Client>,
    reader: Arc<ReadOnlyStore>,
}

/// A broker in a file that other processes use too.
pub struct SharedStore {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
    repairs: Arc<[Repair]>,
}

struct Inner {
    options: SqliteOptions,
    path: PathBuf,
    role: watch::Sender<Role>,
    /// The definitions as last known.
    catalog: Arc<Mutex<Arc<Catalog>>>,
    /// The places of this process's readers, for the next owner: queue and number by an id.
    places: Mutex<HashMap<u64, (i32, i32)>>,
    last_place: AtomicU64,
    stopping: watch::Sender<Stop>,
}

impl SharedStore {
    /// Opens a database file, as its owner or through its owner. Call it where a thread may block.
    ///
    /// # Errors
    /// Those of [`SqliteStore::open`]; 60010 only if the owner does not share the file, is another user's, or is another
    /// version.
    pub fn open(options: SqliteOptions) -> Result<Arc<Self>> {
        let Location::File(path) = &options.location else {
            return Err(Error::new(Code::UNSUPPORTED, "a database in memory is not shared"));
        };
        let path = open::absolute_path(path);
        let inner = Arc::new(Inner {
            path,
            options: SqliteOptions { is_shared: true, ..options },
            role: watch::Sender::new(Role::Between),
            catalog: Arc::default(),
            places: Mutex::default(),
            last_place: AtomicU64::new(0),
            stopping: watch::Sender::new(Stop::No),
        });
        let failed = |error: std::io::Error| {
            Error::new(Code::STORE_IO, format!("a thread for other processes could not be started ({error})"))
        };
        // A runtime of its own, so that other processes are served whatever becomes of the application's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (opened, is_open) = std::sync::mpsc::channel();
        let of_thread = inner.clone();
        let run = move || {
            runtime.block_on(of_thread.run(opened));
            // A recovery of the file that is under way is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("dialoq-share".into()).spawn(run).map_err(failed)?;
        let repairs = match is_open.recv() {
            Ok(opened) => opened?,
            Err(_) => return Err(Error::new(Code::STORE_IO, "the thread for other processes has panicked")),
        };
        Ok(Arc::new(Self { inner, thread: Mutex::new(Some(thread)), repairs }))
    }

    /// The repairs made when this process opened the file as its owner.
    pub fn repairs(&self) -> &Arc<[Repair]> {
        &self.repairs
    }

    /// Whether this process owns the file now.
    pub fn is_owner(&self) -> bool {
        matches!(*self.inner.role.borrow(), Role::Owner(_))
    }

    async fn close_now(&self) -> Result<()> {
        let was = self.inner.role.send_replace(Role::Closed);
        self.inner.stopping.send_replace(Stop::Close);
        let closed = match was {
            // Answers the requests of the other processes too.
            Role::Owner(office) => office.store.close().await,
            Role::Client(guest) => guest.reader.close().await,
            _ => Ok(()),
        };
        self.inner.options.board.wake_all();
        self.join().await;
        closed
    }

    /// Waits for the end of the thread, where no other task is held up.
    async fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.inner.role.send_replace(Role::Closed);
        self.inner.stopping.send_replace(Stop::Drop);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

/// Where a call is done.
enum Asked {
    /// By this process, which owns the file.
    Here(Arc<Office>, Call),
    /// By the owner, with its answer.
    There(Arc<Guest>, Answer),
}

/// How this process has got the file.
enum Acquired {
    Owner(Arc<SqliteStore>, Option<Listener>),
    Client(Arc<Guest>, client::Ends),
}

impl Inner {
    /// Owns the file or works through its owner, in turn, until the store is closed.
    async fn run(self: Arc<Self>, opened: std::sync::mpsc::Sender<Result<Arc<[Repair]>>>) {
        let mut opened = Some(opened);
        let mut stopping = self.stopping.subscribe();
        loop {
            let acquired = tokio::select! {
                acquired = self.acquire(opened.is_some()) => acquired,
                _ = stopping.wait_for(Stop::is_asked) => return,
            };
            match acquired {
                Ok(Acquired::Owner(store, listener)) => {
                    let office = Arc::new(Office::new(store.clone(), self.options.board.clone()));
                    for place in lock(&self.places).values_mut() {
                        place.1 = office.places.enter(place.0, place.1);
                    }
                    let repairs = store.repairs().clone();
                    drop(store);
                    if !self.take_role(Role::Owner(office.clone()), opened.take(), repairs) {
                        return;
                    }
                    match listener {
                        Some(listener) => {
                            serve::run(office, listener, self.options.durability, stopping).await;
                        }
                        None => {
                            let _ = stopping.wait_for(Stop::is_asked).await;
                        }
                    }
                    return;
                }
                Ok(Acquired::Client(guest, ends)) => {
                    for (queue_id, number) in lock(&self.places).values().copied() {
                        guest.client.tell(Call::TakePlace { queue_id, most: u16::MAX, number: Some(number) });
                    }
                    if !self.take_role(Role::Client(guest.clone()), opened.take(), Arc::default()) {
                        return;
                    }
                    let between = async {
                        guest.client.owner_closes().await;
                        self.lose_role();
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        () = guest.client.run(ends) => {}
                        () = between => {}
                        _ = stopping.wait_for(Stop::is_asked) => {
                            guest.client.lose();
                            return;
                        }
                    }
                    self.lose_role();
                }
                Err(error) => {
                    match opened.take() {
                        Some(opened) => drop(opened.send(Err(error))),
                        None => {
                            tracing::error!(%error, "the database file cannot be used any more");
                            self.role.send_replace(Role::Failed(Arc::new(error)));
                            self.options.board.wake_all();
                        }
                    }
                    return;
                }
            }
        }
    }

    /// New calls wait for the next owner.
    fn lose_role(&self) {
        self.role.send_if_modified(|role| {
            let is_open = !matches!(role, Role::Closed);
            if is_open {
                *role = Role::Between;
            }
            is_open
        });
    }

    /// Publishes a role; false if the store is closed.
    fn take_role(
        &self,
        role: Role,
        opened: Option<std::sync::mpsc::Sender<Result<Arc<[Repair]>>>>,
        repairs: Arc<[Repair]>,
    ) -> bool {
        let is_taken = self.role.send_if_modified(|now| {
            let is_open = !matches!(now, Role::Closed);
            if is_open {
                *now = role;
            }
            is_open
        });
        if let Some(opened) = opened {
            let _ = opened.send(Ok(repairs));
        }
        // Receivers that waited poll once: signals of the time between are lost.
        self.options.board.wake_all();
        is_taken
    }

    /// Owns the file, or connects to its owner.
    async fn acquire(&self, is_first: bool) -> Result<Acquired> {
        let started = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let options = self.options.clone();
            let owned = match blocking(move || SqliteStore::open(options)).await {
                Ok(store) => {
                    let listener = socket::listen(&self.path).inspect_err(|error| {
                        tracing::warn!(%error, "other processes cannot use the database, its socket cannot be made");
                    });
                    return Ok(Acquired::Owner(store, listener.ok()));
                }
                Err(error) if error.code() == Code::STORE_OWNED => error,
                Err(error) => return Err(error),
            };
            match socket::connect(&self.path, self.options.durability).await {
                Ok(stream) => {
                    let options = self.options.clone();
                    let reader = blocking(move || ReadOnlyStore::open(options)).await?;
                    let (board, catalog) = (self.options.board.clone(), self.catalog.clone());
                    let (client, ends) = Client::new(stream, board, reader.clone(), catalog);
                    return Ok(Acquired::Client(Arc::new(Guest { client, reader }), ends));
                }
                Err(NoConnection::Refused(error)) => return Err(error),
                Err(NoConnection::Absent) => {}
            }
            let patience = if owner::is_shared(&self.path) { OWNER_STARTS } else { OWNER_ANNOUNCES };
            if is_first && started.elapsed() > patience {
                return Err(owned);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The role, once it is known.
    async fn role(&self) -> Result<Role> {
        let role = self.role.borrow().clone();
        let role = match role {
            Role::Between => {
                let mut role = self.role.subscribe();
                let known = role.wait_for(|role| !matches!(role, Role::Between));
                match tokio::time::timeout(OWNER_STARTS, known).await {
                    Ok(Ok(role)) => role.clone(),
                    Ok(Err(_)) => Role::Closed,
                    Err(_) => return Err(self.ownerless()),
                }
            }
            known => known,
        };
        match role {
            Role::Closed => Err(Error::closed()),
            Role::Failed(error) => Err(error.duplicate()),
            known => Ok(known),
        }
    }

    /// 60010: another process has taken the file and does not share it, or does not answer.
    fn ownerless(&self) -> Error {
        let why = "the process that owns the file now does not share it, or does not answer; close it, or open it without share=off";
        Error::new(Code::STORE_OWNED, format!("database '{}' cannot be used: {why}", self.path.display()))
    }

    /// Has the owner do a call; if this process is the owner, the call comes back. A call that an owner certainly has not
    /// done goes to the next one.
    async fn ask(&self, call: Call) -> Result<Asked> {
        loop {
            let guest = match self.role().await? {
                Role::Owner(office) => return Ok(Asked::Here(office, call)),
                Role::Client(guest) => guest,
                _ => return Err(Error::closed()),
            };
            match guest.client.submit(&call).await {
                Ok(answer) => return Ok(Asked::There(guest, answer)),
                Err(error) if error.code() == Code::STORE_CLOSED => self.await_other_role(&guest).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until this process no longer works through that connection.
    async fn await_other_role(&self, guest: &Arc<Guest>) {
        let mut role = self.role.subscribe();
        let is_same = |role: &Role| matches!(role, Role::Client(now) if Arc::ptr_eq(now, guest));
        let _ = role.wait_for(|role| !is_same(role)).await;
    }

    /// The place of a reader, noted for the next owner.
    fn hold_place(self: &Arc<Self>, queue_id: i32, number: i32, giver: &Role) -> ReaderSlot {
        let id = self.last_place.fetch_add(1, Relaxed) + 1;
        lock(&self.places).insert(id, (queue_id, number));
        // If the owner has changed meanwhile, it does not count this place yet.
        match (&*self.role.borrow(), giver) {
            (Role::Owner(now), Role::Owner(then)) if Arc::ptr_eq(now, then) => {}
            (Role::Client(now), Role::Client(then)) if Arc::ptr_eq(now, then) => {}
            (Role::Owner(office), _) => drop(office.places.enter(queue_id, number)),
            (Role::Client(guest), _) => {
                guest.client.tell(Call::TakePlace { queue_id, most: u16::MAX, number: Some(number) });
            }
            _ => {}
        }
        let inner = self.clone();
        ReaderSlot::freed_by(Some(number), move || inner.free_place(id))
    }

    /// Frees the place of a reader of this process.
    fn free_place(&self, id: u64) {
        let Some((queue_id, number)) = lock(&self.places).remove(&id) else { return };
        match &*self.role.borrow() {
            Role::Owner(office) => office.free_place(queue_id, number),
            Role::Client(guest) => guest.client.tell(Call::FreePlace { queue_id, number }),
            _ => {}
        }
    }
}

impl Store for SharedStore {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async move {
            match self.inner.ask(Call::Submit(unit)).await? {
                Asked::Here(office, Call::Submit(unit)) => office.store.submit(unit).await,
                Asked::There(_, answer) => outcomes(answer),
                Asked::Here(..) => Err(Error::closed()),
            }
        })
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async move {
            match self.inner.ask(Call::SubmitOnce(unit_id, unit)).await? {
                Asked::Here(office, Call::SubmitOnce(unit_id, unit)) => office.store.submit_once(unit_id, unit).await,
                Asked::There(_, Answer::Done) => Ok(None),
                Asked::There(_, answer) => outcomes(answer).map(Some),
                Asked::Here(..) => Err(Error::closed()),
            }
        })
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            match self.inner.ask(Call::UnitHappened(unit_id)).await? {
                Asked::Here(office, _) => office.store.unit_happened(unit_id).await,
                Asked::There(_, Answer::Happened(has_happened)) => Ok(has_happened),
                Asked::There(_, other) => Err(unexpected(&other)),
            }
        })
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        Box::pin(async move {
            let call = Call::TakePlace { queue_id, most: max_queue_readers, number: None };
            let (number, giver) = match self.inner.ask(call).await? {
                Asked::Here(office, _) => (office.places.take(queue_id, max_queue_readers), Role::Owner(office)),
                Asked::There(guest, Answer::Place(number)) => (number, Role::Client(guest)),
                Asked::There(_, other) => return Err(unexpected(&other)),
            };
            Ok(number.map(|number| self.inner.hold_place(queue_id, number, &giver)))
        })
    }

    fn perform_on<'a>(&'a self, _: &'a mut dyn EnlistedConnection, _: Verb) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async { Err(no_enlisted_connections()) })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move {
            match self.inner.role().await? {
                Role::Owner(office) => office.store.begin().await,
                Role::Client(guest) => Ok(Box::new(RemoteTx::new(guest.client.clone())) as Box<dyn StoreTx>),
                _ => Err(Error::closed()),
            }
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            match self.inner.role().await? {
                Role::Owner(office) => office.store.query(sql).await,
                // Committed rows are in the file, so the owner need not be asked.
                Role::Client(guest) => guest.reader.query(sql).await,
                _ => Err(Error::closed()),
            }
        })
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            match self.inner.ask(Call::RunSql(sql.into())).await? {
                Asked::Here(office, Call::RunSql(sql)) => office.store.run_sql(sql.into()).await,
                Asked::There(_, Answer::Changed(rows)) => Ok(rows),
                Asked::There(_, other) => Err(unexpected(&other)),
                Asked::Here(..) => Err(Error::closed()),
            }
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        if let Role::Owner(office) = &*self.inner.role.borrow() {
            return office.store.catalog();
        }
        lock(&self.inner.catalog).clone()
    }

    fn texts(&self) -> &'static StoreTexts {
        &read::TEXTS
    }

    fn activity(&self) -> &ActivityBoard {
        &self.inner.options.board
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        if let Role::Client(guest) = &*self.inner.role.borrow() {
            // A queue monitor reads facts without a RECEIVE of its own.
            self.inner.options.board.names().iter().for_each(|name| guest.client.watch(name));
        }
        Box::pin(async {})
    }

    fn clock(&self) -> &Clock {
        &self.inner.options.clock
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.close_now())
    }
}
