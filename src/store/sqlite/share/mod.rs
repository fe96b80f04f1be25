//! One file, many processes: the one that owns it carries out the calls of the others, its guests.
//!
//! The lock on the database file alone says which process owns it ([`super::owner`]). Each process that opens the file tries
//! to own it. If another one does, it connects to that one's socket ([`socket`]) and sends its calls there ([`client`],
//! [`remote_tx`]). The owner carries them out on its store ([`serve`], [`session`]). When the connection ends, each guest
//! tries again to own the file ([`membership`]): one succeeds, reads the file and listens; the others connect to it.
//!
//! [`SharedStore`] hides the change from those above the seam: the board of activity stays, so receivers go on waiting. A
//! call that was under way fails with 60046, a commit with 60031; a call that comes during the change waits for its end.

mod ask;
mod calls;
mod client;
mod connection;
mod frame;
mod membership;
mod owned;
mod remote_tx;
mod room;
mod serve;
mod session;
mod socket;
mod spin;
#[cfg(test)]
mod tests;
mod unsent;

use super::{SqliteOptions, blocking, open, read};
use crate::catalog::Catalog;
use crate::core::Repair;
use crate::error::{Code, Error, Result};
use crate::protocol::work::TakenJob;
use crate::protocol::{Outcome, Unit, Verb};
use crate::store::database::link::EnlistedConnection;
use crate::store::url::Location;
use crate::store::{
    ActivityBoard, BoxFuture, LockHolder, ReaderSlot, Seen, SqlRows, SqlStatement, Store, StoreTexts, StoreTx,
    no_enlisted_connections,
};
use crate::time::{Clock, Timestamp};
pub(super) use ask::{lock_holder, receive_holds};
use client::outcomes;
use frame::{Answer, Call};
use membership::{Giver, Membership, Role, Routed, Stop};
use owned::OwnedStore;
use remote_tx::SharedTx;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// The error of a call whose owner has gone.
fn owner_gone() -> Error {
    Error::new(
        Code::OWNER_GONE,
        "the process that owned the database file ended during the call, closed it, or its store failed; another process \
         takes over. A transaction that was not committed is rolled back, what was sent without one may have happened or \
         not",
    )
}

/// The error of a commit whose owner has gone before it answered.
fn commit_unknown() -> Error {
    Error::new(
        Code::COMMIT_UNKNOWN,
        "the process that owned the database file ended, or its store failed, while a commit was under way; it is unknown \
         whether it happened. Another process takes over: check, or give the unit an id of its own, which can be tried \
         again",
    )
}

fn unexpected(answer: &Answer) -> Error {
    Error::new(Code::STORE_IO, format!("the owner of the database gave another answer than was asked for: {answer:?}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long jobs that are given back wait for the owner's answer.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// A broker in a file that other processes use too.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct SharedStore {
    membership: Arc<Membership>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Ends with the thread.
    running: watch::Receiver<()>,
    repairs: Arc<[Repair]>,
}

impl SharedStore {
    /// Opens a database file, as its owner or through its owner. Call it where a thread may block.
    ///
    /// # Errors
    /// Those of [`super::SqliteStore::open`]; 60010 only if the owner does not share the file, is another user's, or is
    /// another version.
    pub fn open(options: SqliteOptions) -> Result<Arc<Self>> {
        let Location::File(path) = &options.location else {
            return Err(Error::new(Code::UNSUPPORTED, "a database in memory is not shared"));
        };
        let path = open::absolute_path(path);
        let membership = Membership::new(options, path);
        let failed = |error: std::io::Error| {
            Error::new(Code::STORE_IO, format!("a thread for other processes could not be started ({error})"))
        };
        // A runtime of its own, so that other processes are served whatever becomes of the application's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (opened, is_open) = std::sync::mpsc::channel();
        let of_thread = membership.clone();
        let (runs, running) = watch::channel(());
        let run = move || {
            let _runs = runs;
            runtime.block_on(of_thread.run(opened));
            // A drop does not wait for a recovery of the file that is under way.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("dialoq-share".into()).spawn(run).map_err(failed)?;
        let repairs = match is_open.recv() {
            Ok(opened) => opened?,
            Err(_) => return Err(Error::new(Code::STORE_IO, "the thread for other processes has panicked")),
        };
        Ok(Arc::new(Self { membership, thread: Mutex::new(Some(thread)), running, repairs }))
    }

    /// The repairs made when this process opened the file as its owner.
    pub fn repairs(&self) -> &Arc<[Repair]> {
        &self.repairs
    }

    /// Whether this process owns the file now.
    pub fn is_owner(&self) -> bool {
        matches!(self.membership.role_now(), Role::Owner(_))
    }

    /// Closes. A second close waits as the first does, also if the caller of that has left.
    async fn close_now(&self) -> Result<()> {
        self.membership.stop(Stop::Close);
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
        self.membership.closed()
    }
}

/// The result of a call on the store of this process; one that shows that the disk was full is noted.
fn of_own<T>(owned: &OwnedStore, done: Result<T>) -> Result<T> {
    if done.is_err() && owned.store.is_full() {
        owned.note_failure();
    }
    done
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.membership.stop(Stop::Drop);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Store for SharedStore {
    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async move {
            match self.membership.route(Call::Submit(unit)).await? {
                Routed::Local(owned, Call::Submit(unit)) => of_own(&owned, owned.store.submit(unit).await),
                Routed::Remote(_, answer) => outcomes(answer),
                Routed::Local(..) => Err(Error::closed()),
            }
        })
    }

    fn submit_once(&self, unit_id: Uuid, unit: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async move {
            match self.membership.route(Call::SubmitOnce(unit_id, unit)).await? {
                Routed::Local(owned, Call::SubmitOnce(unit_id, unit)) => {
                    of_own(&owned, owned.store.submit_once(unit_id, unit).await)
                }
                Routed::Remote(_, Answer::Done) => Ok(None),
                Routed::Remote(_, answer) => outcomes(answer).map(Some),
                Routed::Local(..) => Err(Error::closed()),
            }
        })
    }

    fn unit_happened(&self, unit_id: Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            match self.membership.route(Call::UnitHappened(unit_id)).await? {
                Routed::Local(owned, _) => of_own(&owned, owned.store.unit_happened(unit_id).await),
                Routed::Remote(_, Answer::Happened(has_happened)) => Ok(has_happened),
                Routed::Remote(_, other) => Err(unexpected(&other)),
            }
        })
    }

    fn reader_slot(&self, queue_id: i32, max_queue_readers: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        Box::pin(self.membership.take_slot(queue_id, max_queue_readers))
    }

    fn perform_on<'a>(&'a self, _: &'a mut dyn EnlistedConnection, _: Verb) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async { Err(no_enlisted_connections()) })
    }

    fn give_back_jobs(&self, jobs: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Without an answer those of a guest were lost if the owner closed in that moment. A job goes back once, so what an owner may
            // have done already is asked of the next one too.
            let call = Call::GiveBack(jobs);
            loop {
                let remote = match self.membership.role().await {
                    Ok(Giver::Owner(owned)) => {
                        if let Call::GiveBack(jobs) = call {
                            owned.store.give_back_jobs(jobs).await;
                        }
                        return;
                    }
                    Ok(Giver::Guest(remote)) => remote,
                    Err(error) => return tracing::warn!(%error, "jobs could not be given back; their leases end"),
                };
                let error = match tokio::time::timeout(GIVEN_BACK, remote.client.submit(&call)).await {
                    Ok(Ok(_)) => return,
                    // A worker that stops does not wait for an owner that is stopped or hangs. That one has read the call, or will.
                    Err(_) => {
                        return tracing::warn!(
                            "the owner of the database has not answered yet that jobs are given back"
                        );
                    }
                    Ok(Err(error)) => error,
                };
                match error.code() {
                    Code::STORE_CLOSED => self.membership.await_other_role(&remote).await,
                    Code::OWNER_GONE => {}
                    _ => return tracing::warn!(%error, "jobs could not be given back; their leases end"),
                }
            }
        })
    }

    fn begin(&self, seen: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        Box::pin(async move {
            match self.membership.role().await? {
                Giver::Owner(owned) => of_own(&owned, owned.store.begin(seen).await),
                Giver::Guest(remote) => {
                    Ok(Box::new(SharedTx::new(self.membership.clone(), remote, seen)) as Box<dyn StoreTx>)
                }
            }
        })
    }

    fn query(&self, sql: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async move {
            match self.membership.role().await? {
                Giver::Owner(owned) => of_own(&owned, owned.store.query(sql).await),
                // Committed rows are in the file, so the owner need not be asked.
                Giver::Guest(remote) => remote.reader.query(sql).await,
            }
        })
    }

    fn run_sql(&self, sql: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            match self.membership.route(Call::RunSql(sql.into())).await? {
                Routed::Local(owned, Call::RunSql(sql)) => of_own(&owned, owned.store.run_sql(sql.into()).await),
                Routed::Remote(_, Answer::Changed(rows)) => Ok(rows),
                Routed::Remote(_, other) => Err(unexpected(&other)),
                Routed::Local(..) => Err(Error::closed()),
            }
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        if let Role::Owner(owned) = self.membership.role_now() {
            return owned.store.catalog();
        }
        lock(&self.membership.catalog).clone()
    }

    fn texts(&self) -> &'static StoreTexts {
        &read::TEXTS
    }

    fn activity(&self) -> &ActivityBoard {
        &self.membership.options.board
    }

    fn refresh_facts(&self) -> BoxFuture<'_, ()> {
        if let Role::Guest(remote) = self.membership.role_now() {
            // A queue monitor reads facts without a RECEIVE of its own.
            self.membership.options.board.names().iter().for_each(|name| remote.client.watch(name));
        }
        Box::pin(async {})
    }

    fn lock_holder(&self, group: Uuid) -> BoxFuture<'_, Result<Option<LockHolder>>> {
        Box::pin(async move {
            match self.membership.route(Call::LockHolder(group)).await? {
                Routed::Local(owned, _) => of_own(&owned, owned.store.lock_holder(group).await),
                Routed::Remote(_, Answer::Holder(holder)) => Ok(holder.map(LockHolder::from)),
                Routed::Remote(_, other) => Err(unexpected(&other)),
            }
        })
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, Timestamp)>>> {
        Box::pin(async move {
            match self.membership.route(Call::ReceiveHolds).await? {
                Routed::Local(owned, _) => of_own(&owned, owned.store.receive_holds().await),
                Routed::Remote(_, Answer::Holds(holds)) => Ok(holds),
                Routed::Remote(_, other) => Err(unexpected(&other)),
            }
        })
    }

    fn clock(&self) -> &Clock {
        &self.membership.options.clock
    }

    fn ended(&self) -> Option<Error> {
        match self.membership.role_now() {
            // After a full disk it is opened again. Asked in this order, because it may fail in between.
            Role::Owner(owned) => owned.store.ended().filter(|_| !owned.store.is_full()),
            // Attempts to take the file over go on as long as the thread does.
            Role::Unusable(error) => self.running.has_changed().is_err().then(|| error.duplicate()),
            Role::Closed => Some(Error::closed()),
            Role::Guest(_) | Role::Pending => None,
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.close_now())
    }
}
