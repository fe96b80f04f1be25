//! Work queues: a second state machine beside the conversations. It shares their sessions, savepoints and clock, so that
//! one transaction holds both.
//!
//! No verb of a work queue waits for another session: what another transaction holds is passed over by a take and
//! refused to everything else (60043). A take is a change at once, also in a transaction, because it counts an attempt
//! that must not be forgotten when the reader dies; all other changes come with the commit.

mod cancel;
mod change;
mod complete;
mod extend;
mod fail;
mod job;
mod limits;
mod memory;
mod names;
mod push;
mod ready;
mod redrive;
mod restore;
mod schedule;
mod session;
mod state;
mod take;
#[cfg(test)]
mod tests;
mod unique;

pub use change::WorkChange;
pub use job::{FinishedAs, JobRead, JobRow};
pub use memory::{Finished, JobRows};
pub(super) use session::{Undone, WorkOp};
pub(super) use state::Work;
pub use take::TakenRow;
#[cfg(feature = "cli")]
pub(crate) use take::check_reader;

use super::effects::Reply;
use super::session::Session;
use super::state::Core;
use crate::error::Result;
use crate::protocol::Outcome;
use crate::protocol::work::WorkVerb;
use crate::time::Timestamp;

impl Core {
    /// Executes a verb of a work queue in a session.
    pub(super) fn execute_work(&mut self, session: &mut Session, verb: WorkVerb, now: Timestamp) -> Result<Reply> {
        self.work.set_time(now);
        let outcome = match verb {
            WorkVerb::Push(push) => self.push_job(session, *push, now)?,
            WorkVerb::Take(take) => return self.take_jobs(session, &take, now).map(Reply::Jobs),
            WorkVerb::Complete { taken, result } => self.complete_job(session, taken, result, now)?,
            WorkVerb::Fail { taken, reason, then } => self.fail_job(session, taken, reason, then, now)?,
            WorkVerb::Extend { taken, lease_ms } => self.extend_job(session, taken, lease_ms, now)?,
            WorkVerb::Report { taken, progress } => self.report_job(session, taken, progress, now)?,
            WorkVerb::Cancel { job, seen } => self.cancel_job(session, job, seen.as_ref(), now)?,
            WorkVerb::Redrive { job, seen } => self.redrive_job(session, job, seen.as_ref(), now)?,
        };
        Ok(Reply::Outcome(outcome))
    }
}

/// Done, with nothing to give.
const DONE: Outcome = Outcome::Done;
