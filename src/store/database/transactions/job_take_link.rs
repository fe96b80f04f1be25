//! The link for takes of transactions from work queues.
//!
//! Transactions may hold every link of the pool while they wait for such a take, so it goes by the link for notices and notes, which
//! the whole process shares. A take that keeps that link for long goes another way, so that nothing else waits for it.

use crate::catalog::fold_name;
use crate::error::Code;
use crate::store::SqlRow;
use crate::store::database::Database;
use crate::store::database::link::{Call, Fate, Linked};
use crate::store::sql::SqlValue;
use dashmap::DashSet;

/// A queue has large jobs if one answer has brought more bytes than this. Ten jobs of 30 MiB kept the shared link for 15 s.
const LARGE_BYTES: usize = 1 << 20;

/// The most queues that are known to have large jobs.
const MOST_QUEUES: usize = 1024;

/// The work queues with large jobs, by their folded names.
#[derive(Default)]
pub(in crate::store::database) struct LargeJobs(DashSet<String>);

impl LargeJobs {
    fn note(&self, queue: &str) {
        if self.0.len() >= MOST_QUEUES {
            self.0.clear();
        }
        self.0.insert(fold_name(queue));
    }

    fn has(&self, queue: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&fold_name(queue))
    }
}

impl Database {
    /// Makes a call that takes jobs of a queue for transactions; it may be made twice.
    ///
    /// In the line of a queue with limits a take may wait for seconds, and the bodies of large jobs take long to come. In that time
    /// neither notices to other processes nor takes from other queues wait.
    pub(in crate::store::database) async fn call_for_job_takes<'c>(
        &self,
        queue: &str,
        call: impl Fn() -> Call<'c>,
    ) -> Linked<Vec<SqlRow>> {
        if self.is_limited(queue) {
            return self.line.call(call()).await;
        }
        if let Some(answer) = self.call_by_spare_link(queue, &call).await {
            return answer;
        }
        let rows = self.control.call(call()).await?;
        if bytes(&rows) > LARGE_BYTES {
            self.large_jobs.note(queue);
        }
        Ok(rows)
    }

    /// The same by a link of the pool; `None` if the queue has no large jobs, no link is to spare, or its server was lost.
    async fn call_by_spare_link<'c>(&self, queue: &str, call: impl Fn() -> Call<'c>) -> Option<Linked<Vec<SqlRow>>> {
        // Elsewhere a spare link is waited for.
        if !self.driver.dialect().has_job_batches || !self.large_jobs.has(queue) {
            return None;
        }
        let mut link = self.driver.take_spare().await.ok().flatten()?;
        let answer = link.call(call()).await;
        let is_lost = |fate, code| fate == Fate::Unknown || code == Code::SERVER_UNREACHABLE;
        match answer {
            Err(failure) if is_lost(failure.fate, failure.error.code()) => None,
            answer => Some(answer),
        }
    }
}

fn bytes(rows: &[SqlRow]) -> usize {
    let length = |value: &SqlValue| if let SqlValue::Blob(bytes) = value { bytes.len() } else { 0 };
    rows.iter().flat_map(|row| &row.values).map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_known_by_any_spelling_and_the_known_queues_are_bounded() {
        let large = LargeJobs::default();
        assert!(!large.has("w"));
        large.note("W");
        assert!(large.has("w") && large.has("W") && !large.has("v"));
        for number in 0..MOST_QUEUES {
            large.note(&number.to_string());
        }
        assert!(large.0.len() <= MOST_QUEUES && large.has("1023"));
    }
}
