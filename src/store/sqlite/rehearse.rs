//! Statements of open transactions, run between two batches.
//!
//! A statement runs when its caller awaits it: on the connection that writes, in a savepoint, after the earlier statements of
//! its transaction. The caller gets its error, its count and its rows. Then the savepoint is rolled back, and no other caller
//! has waited for more than this statement. The commit runs the statements again in its batch and refuses the transaction if
//! one of them does something else ([0033](../../../docs/decisions/0033-sql-in-a-transaction-runs-twice.md)).
//!
//! While nothing else is to be done, the savepoint stays open. Then the next statement of the same transaction does not
//! repeat the earlier ones, and the commit repeats none.

use super::batch::{Batch, WriteSide};
use super::engine::Engine;
use super::state::Rehearsal;
use super::user_sql;
use std::time::{Duration, Instant};

/// The longest time for which statements that keep coming hold up a batch.
const MOST_TOGETHER: Duration = Duration::from_millis(1);

impl Engine {
    /// Runs the waiting statements. Returns whether a batch is to be written then.
    pub(super) fn rehearse(&self, write: &WriteSide) -> bool {
        let until = Instant::now() + (self.batch_time() / 2).min(MOST_TOGETHER);
        loop {
            let waiting = self.lock_even_failed().take_rehearsals();
            if waiting.is_empty() {
                return true;
            }
            if !self.rehearse_all(write, waiting) {
                return false;
            }
            let state = self.lock_even_failed();
            let has_batch_work = state.has_batch_work(self.clock.now());
            // Statements that came meanwhile run before the batch too: their transactions are soon to be committed, and
            // then share its sync. With 64 callers of one INSERT each, half of them waited for the other half's sync.
            if has_batch_work && state.has_rehearsals() && Instant::now() < until {
                continue;
            }
            drop(state);
            // A statement that came meanwhile runs next: a batch would undo the applied ones first, so that they run again.
            if !has_batch_work && !write.is_rehearsing() {
                write.roll_back();
            }
            return has_batch_work;
        }
    }

    /// Returns whether the connection still works.
    fn rehearse_all(&self, write: &WriteSide, waiting: Vec<Rehearsal>) -> bool {
        let mut waiting = waiting.into_iter();
        for rehearsal in waiting.by_ref() {
            // The transaction of a caller that has gone is rolled back.
            if rehearsal.sender.is_closed() {
                continue;
            }
            let Rehearsal { of, script, form, statement, caller, sender } = rehearsal;
            let ran = self.begin(write).and_then(|()| user_sql::rehearse(write, &script, form, statement, &caller));
            match ran {
                Ok(done) => drop(sender.send(done)),
                Err(failure) => {
                    self.fail_batch(write, &mut Batch::default(), &failure, Some(of));
                    let _ = sender.send(Err(failure.duplicate()));
                    waiting.for_each(|rehearsal| drop(rehearsal.sender.send(Err(failure.duplicate()))));
                    return false;
                }
            }
        }
        true
    }
}
