//! What a dropped call of a transaction has taken.

use super::Tx;
use crate::protocol::Outcome;
use crate::protocol::work::Job;

impl Tx {
    /// The jobs that dropped takes of this transaction have taken, whatever they asked for.
    pub(crate) async fn abandoned_jobs(&self) -> Vec<Job> {
        let mut state = self.state.lock().await;
        state.finish_abandoned().await;
        let mut found = Vec::new();
        state.record.abandoned.retain_mut(|abandoned| match &mut abandoned.outcome {
            Outcome::Jobs(jobs) => {
                found.append(jobs);
                false
            }
            _ => true,
        });
        found
    }
}
