//! The store of the process that owns the file, and what the connections of its guests share.

use super::frame::FromOwner;
use super::lock;
use super::spin::Turns;
use crate::catalog::Catalog;
use crate::error::{Code, Error};
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::reader_slots::ReaderSlots;
use crate::store::{ActivityBoard, Store, name_on_board};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, broadcast};

/// Freed slots that wait for a slow connection; if more are freed, one report names all queues.
const MOST_FREED: usize = 256;

pub(super) struct OwnedStore {
    pub(super) store: Arc<SqliteStore>,
    pub(super) slots: ReaderSlots,
    pub(super) board: Arc<ActivityBoard>,
    pub(super) turns: Arc<Turns>,
    /// The queues in which a slot has become free; `None` is any queue.
    freed: broadcast::Sender<Option<i32>>,
    /// The definitions as the last answer found them, and how often they have changed.
    definitions: Mutex<(Arc<Catalog>, u64)>,
    last_connection: AtomicU64,
    /// Signalled by an answer that says that the store has failed.
    failed: Notify,
}

impl OwnedStore {
    pub(super) fn new(store: Arc<SqliteStore>, board: Arc<ActivityBoard>, slots: ReaderSlots) -> Self {
        let definitions = Mutex::new((store.catalog(), 1));
        Self {
            store,
            slots,
            board,
            turns: Arc::new(Turns::new()),
            freed: broadcast::channel(MOST_FREED).0,
            definitions,
            last_connection: AtomicU64::new(0),
            failed: Notify::new(),
        }
    }

    /// The version of the definitions.
    pub(super) fn definitions(&self) -> u64 {
        let now = self.store.catalog();
        let mut last = lock(&self.definitions);
        if !Arc::ptr_eq(&last.0, &now) {
            *last = (now, last.1 + 1);
        }
        last.1
    }

    /// A number that names a connection in the rows of its readers.
    pub(super) fn next_connection(&self) -> u64 {
        self.last_connection.fetch_add(1, Relaxed) + 1
    }

    /// Frees the slot of a reader, and tells this process and the others.
    pub(super) fn free_slot(&self, queue_id: i32, number: i32) {
        if self.slots.free(queue_id, number) {
            if let Some(name) = self.name_of(queue_id) {
                self.board.queue(&name).place_freed();
            }
            let _ = self.freed.send(Some(queue_id));
        }
    }

    /// Lets new readers start, once those of earlier guests have entered.
    pub(super) fn complete_slots(&self) {
        self.slots.complete();
        self.board.names().iter().for_each(|name| self.board.queue(name).place_freed());
        let _ = self.freed.send(None);
    }

    pub(super) fn freed_slots(&self) -> broadcast::Receiver<Option<i32>> {
        self.freed.subscribe()
    }

    /// The report of a freed slot; `None` if the queue is gone.
    pub(super) fn freed_report(&self, queue_id: Option<i32>) -> Option<FromOwner> {
        match queue_id {
            None => Some(FromOwner::SlotFreed { queue: None }),
            Some(queue_id) => self.name_of(queue_id).map(|name| FromOwner::SlotFreed { queue: Some(name) }),
        }
    }

    /// Whether a queue or work queue has this name on the board of activity.
    pub(super) fn is_queue(&self, name: &str) -> bool {
        let catalog = self.store.catalog();
        catalog.queue(name).is_some() || name.strip_prefix('#').is_some_and(|name| catalog.work_queue(name).is_some())
    }

    fn name_of(&self, queue_id: i32) -> Option<String> {
        name_on_board(&self.store.catalog(), queue_id)
    }

    /// Notes the error of an answer: a store that has failed is given up.
    pub(super) fn note_error(&self, error: &Error) {
        const OF_THE_STORE: [Code; 5] =
            [Code::STORE_POISONED, Code::STORE_CHANGED, Code::STORE_IO, Code::STORE_FULL, Code::COMMIT_UNKNOWN];
        if OF_THE_STORE.contains(&error.code()) {
            self.note_failure();
        }
    }

    /// Notes that the store may have failed.
    pub(super) fn note_failure(&self) {
        self.failed.notify_one();
    }

    /// Returns when an answer may show that the store has failed.
    pub(super) async fn may_have_failed(&self) {
        self.failed.notified().await;
    }
}
