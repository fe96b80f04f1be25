//! The end of a store: its last batch, exact marks, an empty log, and the lock that others wait for.

use super::Engine;
use crate::core::Change;
use crate::error::{Code, Error, Result};
use crate::store::sqlite::batch::{Batch, WriteSide, writing};
use crate::store::sqlite::board;
use crate::store::sqlite::failure::poisoned;
use crate::store::sqlite::owner::Owner;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The counters as they are when all is written, and the last rows of work queues.
type LastRows = ((u64, u64, u64), Vec<Change>);

/// How long a close waits for readers that hold the log back.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(1);

impl Engine {
    /// Writes the remaining ordered changes, leaves exact marks and an empty log. The store takes no more work.
    pub(in crate::store::sqlite) fn shut(&self) -> Result<()> {
        {
            let mut state = self.lock_even_failed();
            if state.is_closed {
                return Ok(());
            }
            state.is_closed = true;
            self.ending.close();
            state.parked.fail(Error::closed);
            // Their transactions cannot be committed any more.
            for rehearsal in state.take_rehearsals() {
                let _ = rehearsal.sender.send(Err(Error::closed()));
            }
        }
        let mut write = self.write.lock().map_err(|_| {
            self.fail_after_panic();
            poisoned("a thread panicked while it wrote")
        })?;
        self.run_batch(&mut write, true);
        loop {
            while self.lock_even_failed().has_unwritten() {
                self.run_batch(&mut write, true);
            }
            // A store that has failed takes nothing back.
            if self.lock_even_failed().failed.is_some() {
                break;
            }
            self.unseen.take().iter().for_each(|slots| self.give_back(slots));
            let mut state = self.lock_even_failed();
            if !state.has_unwritten() {
                state.is_shut = true;
                break;
            }
        }
        write.is_shut = true;
        let last = {
            let mut state = self.lock_even_failed();
            // The last batch may have parked units at groups that open transactions hold.
            state.forget(Error::closed);
            if let Some(first) = &state.failed {
                return Err(poisoned(first));
            }
            (state.core.counters(), state.core.last_work_changes(self.clock.now()))
        };
        // All that was acknowledged is in the log and synced. A failure from here on costs the next opening some work; as the
        // error of the close, callers took it for that of their own work and did it again. Damage is reported all the same.
        let Err(error) = self.leave_tidy(&mut write, last) else { return Ok(()) };
        write.roll_back();
        if [Code::STORE_DAMAGED, Code::STORE_CHANGED].contains(&error.code()) {
            return Err(error);
        }
        tracing::warn!(%error, "the file could not be tidied at its close; the next opening does it, and nothing is lost");
        Ok(())
    }

    /// Leaves exact marks and an empty log.
    fn leave_tidy(&self, write: &mut WriteSide, (counters, changes): LastRows) -> Result<()> {
        let mut last = Batch { marks: Some(counters), changes, ..Batch::default() };
        self.begin(write)?;
        board::clear(write).map_err(writing)?;
        write.commit(&mut last)?;
        if self.readers.is_some() {
            let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
            let is_log_deleted = owner.as_ref().is_some_and(|owner| owner.deleted_beside().is_some());
            drop(owner);
            if is_log_deleted {
                Self::rescue_log(write);
                return Ok(());
            }
            // A reader of another program may hold the log back; the next opening writes it into the tables then.
            write.empty_log(CHECKPOINT_WAIT).map_err(writing)?;
        }
        Ok(())
    }

    /// Whether the path by which other processes look for the file still names it.
    pub(in crate::store::sqlite) fn is_at_its_path(&self) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().is_some_and(Owner::is_at_its_path)
    }

    /// Whether the lock file is still beside the file.
    pub(in crate::store::sqlite) fn is_announced(&self) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().is_none_or(Owner::is_announced)
    }

    /// Says in the lock file whether other processes may work through this one.
    pub(in crate::store::sqlite) fn announce(&self, is_shared: bool) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = owner.as_mut().map(|owner| owner.announce(is_shared)) {
            tracing::warn!(%error, "the lock file does not name this process");
        }
    }

    /// Stops without another write, for a store that is dropped: all acknowledged work is synced already.
    pub(in crate::store::sqlite) fn abandon(&self) {
        {
            let mut state = self.lock_even_failed();
            state.is_closed = true;
            self.ending.abandon();
            state.forget(Error::closed);
        }
        self.wake_writer();
    }

    /// Closes every connection, then releases the file; a second call does nothing.
    pub(in crate::store::sqlite) fn release(&self) -> Result<()> {
        let mut write = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_released.load(SeqCst) {
            return Ok(());
        }
        write.is_shut = true;
        self.lock_even_failed().forget(Error::closed);
        let nothing = rusqlite::Connection::open_in_memory().map_err(writing)?;
        // The last connection deletes the log, if it may write.
        if let Some(readers) = &self.readers {
            readers.close();
        }
        let closed = std::mem::replace(&mut write.connection, nothing).close();
        self.is_released.store(true, SeqCst);
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        closed.map_err(|(_, error)| writing(error))
    }
}
