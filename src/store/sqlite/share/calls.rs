//! The calls of a guest whose callers may leave: those under way, and the last ones that were answered with jobs.
//!
//! An answer is on its way for a while. If its caller leaves then, the guest sends that the call is cancelled, and it gives the jobs
//! back when it reads the answer. If it closes before, it reads no more. The owner has answered by then, so it keeps the jobs of its
//! last answers: a job whose caller had left was held to the end of its lease, and that was a failed attempt.

use crate::protocol::work::TakenJob;
use std::collections::{BTreeMap, HashMap};
use tokio::task::AbortHandle;

/// Jobs of answers that are kept. A take gives 10,000 at most.
const MOST_JOBS: usize = 16 * 1024;

#[derive(Default)]
pub(super) struct Calls {
    /// The tasks of those under way.
    under_way: HashMap<u64, AbortHandle>,
    /// The jobs of the last answers. A guest counts its ids up, so the first one is the oldest.
    given: BTreeMap<u64, Vec<TakenJob>>,
    /// How many jobs that are.
    jobs: usize,
}

impl Calls {
    pub(super) fn begin(&mut self, id: u64, task: AbortHandle) {
        self.under_way.insert(id, task);
    }

    /// Notes that a call is answered, with these jobs. False if it was cancelled in this moment.
    pub(super) fn answer(&mut self, id: u64, mut jobs: Vec<TakenJob>) -> bool {
        if self.under_way.remove(&id).is_none() {
            return false;
        }
        if jobs.is_empty() {
            return true;
        }
        jobs.truncate(MOST_JOBS);
        self.forget(id);
        while self.jobs + jobs.len() > MOST_JOBS
            && let Some((_, oldest)) = self.given.pop_first()
        {
            self.jobs -= oldest.len();
        }
        self.jobs += jobs.len();
        self.given.insert(id, jobs);
        true
    }

    /// Ends a call whose caller has left. The jobs of its answer, if it is answered; the store knows whether they are still those of
    /// that take.
    pub(super) fn cancel(&mut self, id: u64) -> Vec<TakenJob> {
        if let Some(task) = self.under_way.remove(&id) {
            task.abort();
        }
        self.forget(id)
    }

    fn forget(&mut self, id: u64) -> Vec<TakenJob> {
        let jobs = self.given.remove(&id).unwrap_or_default();
        self.jobs -= jobs.len();
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;

    fn jobs(first: u64, count: usize) -> Vec<TakenJob> {
        (first..).take(count).map(|job| TakenJob { job: JobId(job), token: job }).collect()
    }

    async fn answered(calls: &mut Calls, id: u64, jobs: Vec<TakenJob>) {
        calls.begin(id, tokio::spawn(async {}).abort_handle());
        assert!(calls.answer(id, jobs));
    }

    #[tokio::test]
    async fn the_jobs_of_a_call_are_given_once_and_those_of_the_oldest_are_forgotten() {
        let _limit = crate::testing::limit();
        let mut calls = Calls::default();
        answered(&mut calls, 1, jobs(1, 1)).await;
        answered(&mut calls, 2, jobs(2, 2)).await;
        assert_eq!(calls.cancel(2), jobs(2, 2));
        assert_eq!(calls.cancel(2), []);
        answered(&mut calls, 3, jobs(4, MOST_JOBS - 1)).await;
        assert_eq!(calls.jobs, MOST_JOBS);
        answered(&mut calls, 4, jobs(1, 1)).await;
        assert_eq!((calls.cancel(1), calls.jobs), (Vec::new(), MOST_JOBS));
        answered(&mut calls, 4, jobs(7, 1)).await;
        assert_eq!((calls.cancel(4), calls.jobs), (jobs(7, 1), MOST_JOBS - 1), "an id that is used twice");
        answered(&mut calls, 5, jobs(1, MOST_JOBS + 9)).await;
        assert_eq!((calls.given.len(), calls.jobs), (1, MOST_JOBS));
        assert_eq!((calls.cancel(5).len(), calls.jobs), (MOST_JOBS, 0));
    }

    #[tokio::test]
    async fn a_call_that_was_cancelled_is_not_answered() {
        let _limit = crate::testing::limit();
        let mut calls = Calls::default();
        calls.begin(1, tokio::spawn(std::future::pending::<()>()).abort_handle());
        assert_eq!(calls.cancel(1), []);
        assert!(!calls.answer(1, jobs(1, 1)));
        assert_eq!(calls.cancel(1), []);
    }
}
