//! Leased jobs on their way from a committed take to its caller: if the caller has left, they go back uncounted.

use crate::protocol::Outcome;
use crate::protocol::work::TakenJob;
use crate::store::database::Database;
use crate::store::handover::{Handover, HoldsMessages};
use std::sync::Arc;

/// Something that may hold leased jobs.
pub(in crate::store::database) trait HoldsJobs {
    /// Those that it holds.
    fn leased_jobs(&self) -> Vec<TakenJob>;
}

impl HoldsJobs for Outcome {
    fn leased_jobs(&self) -> Vec<TakenJob> {
        match self {
            Self::Jobs(jobs) => jobs.iter().filter(|job| job.lease_until.is_some()).map(|job| job.taken).collect(),
            _ => Vec::new(),
        }
    }
}

impl HoldsJobs for Vec<Outcome> {
    fn leased_jobs(&self) -> Vec<TakenJob> {
        self.iter().flat_map(HoldsJobs::leased_jobs).collect()
    }
}

impl<T: HoldsJobs> HoldsJobs for Option<T> {
    fn leased_jobs(&self) -> Vec<TakenJob> {
        self.as_ref().map_or_else(Vec::new, HoldsJobs::leased_jobs)
    }
}

/// The outcomes of a committed unit, as [`Handover`]; dropped before its caller takes it, it gives the jobs back.
pub(in crate::store::database) struct UnseenJobs<T: HoldsMessages + HoldsJobs> {
    outcome: Option<Handover<T>>,
    jobs: Vec<TakenJob>,
    database: Arc<Database>,
}

impl<T: HoldsMessages + HoldsJobs> UnseenJobs<T> {
    pub(in crate::store::database) fn new(database: Arc<Database>, outcome: T) -> Self {
        Self { jobs: outcome.leased_jobs(), outcome: Some(Handover::new(outcome)), database }
    }

    /// Only the caller takes it, with no await between this and its answer.
    pub(in crate::store::database) fn take(mut self) -> T {
        self.outcome.take().expect("it is taken once").take()
    }
}

impl<T: HoldsMessages + HoldsJobs> Drop for UnseenJobs<T> {
    fn drop(&mut self) {
        if self.outcome.is_some() && !self.jobs.is_empty() {
            let (database, jobs) = (self.database.clone(), std::mem::take(&mut self.jobs));
            let (runtime, work) = (database.runtime.clone(), database.open_work.begin());
            runtime.spawn(async move {
                database.return_unseen_jobs(&jobs).await;
                drop(work);
            });
        }
    }
}
