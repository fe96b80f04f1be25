//! The jobs that an open transaction holds.
//!
//! A short transaction on another connection takes them (`claim_jobs`), so that the attempt counts although this one is
//! rolled back or its process dies. The commit completes those that the transaction has not reported itself.

use crate::error::Result;
use crate::protocol::work::{Job, TakenJob, WorkVerb};
use crate::protocol::{Outcome, Verb};
use crate::store::database::Database;
use crate::store::database::batching::job_batches::Claimant;
use crate::store::database::calls::rows::{Row, notices_in, only};
use crate::store::database::calls::verbs;
use crate::store::database::link::{Arg, Call, Column, Linked};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use uuid::Uuid;

/// The pause before a release that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The pauses before jobs are given back whose rows another session has locked. A take locks the rows that it passes over
/// until its commit, so most of them are free after a few milliseconds.
const LOCK_PAUSES_MS: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// The jobs of one transaction.
#[derive(Debug)]
pub(in crate::store::database) struct HeldJobs {
    /// Identifies the transaction.
    holder: Uuid,
    /// From a take on, unless it got nothing.
    open: Option<Arc<OpenHolder>>,
    jobs: Vec<TakenJob>,
    /// Jobs that the transaction has completed, failed or cancelled itself, as places in `jobs`.
    reported: Vec<usize>,
    /// The last token that it has got; what a savepoint undid counts too.
    last_token: i64,
    /// A claim has no answer: the server may hold jobs for this transaction that it does not know.
    is_uncertain: bool,
}

/// A place in a transaction to come back to.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::database) struct HeldJobsMark {
    jobs: usize,
    reported: usize,
    last_token: i64,
}

/// Jobs that are to be given back: those of a holder with tokens above the first and up to the second.
#[derive(Debug)]
pub(in crate::store::database) struct Release {
    holder: Uuid,
    /// Keeps its transaction among the open ones.
    _open: Option<Arc<OpenHolder>>,
    tokens: (i64, i64),
    is_attempt: bool,
}

/// The transactions of this process that may hold jobs: open ones, and those whose jobs are to be given back.
#[derive(Debug, Default)]
pub(in crate::store::database) struct OpenHolders(Mutex<HashSet<Uuid>>);

/// One of them, until it is dropped.
#[derive(Debug)]
struct OpenHolder {
    holder: Uuid,
    all: Arc<OpenHolders>,
}

impl OpenHolders {
    fn holders(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store::database) fn are_open(&self) -> bool {
        !self.holders().is_empty()
    }

    fn open(self: &Arc<Self>, holder: Uuid) -> Arc<OpenHolder> {
        self.holders().insert(holder);
        Arc::new(OpenHolder { holder, all: self.clone() })
    }
}

impl Drop for OpenHolder {
    fn drop(&mut self) {
        self.all.holders().remove(&self.holder);
    }
}

/// Releases that have failed, because the server could not be reached or another session had locked a row.
#[derive(Debug, Default)]
pub(in crate::store::database) struct OwedReleases(Mutex<Vec<Release>>);

impl Default for HeldJobs {
    fn default() -> Self {
        Self {
            holder: Uuid::new_v4(),
            open: None,
            jobs: Vec::new(),
            reported: Vec::new(),
            last_token: 0,
            is_uncertain: false,
        }
    }
}

impl Release {
    /// The jobs of a claim whose caller has left.
    pub(in crate::store::database) fn unseen(holder: Uuid, last_token: i64) -> Self {
        Self { holder, _open: None, tokens: (last_token, i64::MAX), is_attempt: false }
    }
}

impl HeldJobs {
    /// Whether the transaction holds jobs, or may.
    pub(in crate::store::database) fn may_hold(&self) -> bool {
        self.is_uncertain || !self.jobs.is_empty()
    }

    pub(in crate::store::database) fn mark(&self) -> HeldJobsMark {
        HeldJobsMark { jobs: self.jobs.len(), reported: self.reported.len(), last_token: self.last_token }
    }

    /// Undoes what was done since a mark. Gives the jobs taken since, which no transaction holds any more.
    pub(in crate::store::database) fn go_back(&mut self, mark: HeldJobsMark) -> Option<Release> {
        self.reported.truncate(mark.reported);
        let has_taken = self.jobs.len() > mark.jobs;
        self.jobs.truncate(mark.jobs);
        let tokens = (mark.last_token, self.last_token);
        has_taken.then(|| self.released(tokens, false))
    }

    /// The end of the transaction without its commit: a failed attempt of its jobs if they were seen, but not of those of a claim whose
    /// answer was lost.
    pub(in crate::store::database) fn release(&self, is_seen: bool) -> Vec<Release> {
        let known = (!self.jobs.is_empty()).then(|| self.released((0, self.last_token), is_seen));
        let unseen = self.is_uncertain.then(|| self.released((self.last_token, i64::MAX), false));
        known.into_iter().chain(unseen).collect()
    }

    fn released(&self, tokens: (i64, i64), is_attempt: bool) -> Release {
        Release { holder: self.holder, _open: self.open.clone(), tokens, is_attempt }
    }

    /// After the commit: jobs of a claim whose answer was lost.
    pub(in crate::store::database) fn leftover(&self) -> Option<Release> {
        self.is_uncertain.then(|| self.released((0, i64::MAX), false))
    }

    /// The call that lets the transaction report on its own jobs; `None` if the verb needs none.
    pub(in crate::store::database) fn introduction(&self, verb: &Verb) -> Option<Call<'static>> {
        let is_report = matches!(verb, Verb::Work(verb) if !matches!(verb, WorkVerb::Push(_) | WorkVerb::Take(_)));
        (is_report && !self.jobs.is_empty()).then(|| Call { name: "own_jobs", args: vec![Arg::Uuid(self.holder)] })
    }

    /// Notes a verb that was done.
    pub(in crate::store::database) fn note(&mut self, verb: &Verb) {
        let job = match verb {
            Verb::Work(WorkVerb::Complete { taken, .. } | WorkVerb::Fail { taken, .. }) => taken.job,
            Verb::Work(WorkVerb::Cancel { job, .. }) => *job,
            _ => return,
        };
        let place = self.jobs.iter().rposition(|taken| taken.job == job);
        self.reported.extend(place);
    }

    fn note_taken(&mut self, jobs: &[Job]) {
        self.jobs.extend(jobs.iter().map(|job| job.taken));
        let last = jobs.iter().map(|job| signed(job.taken.token)).max();
        self.last_token = self.last_token.max(last.unwrap_or(0));
    }

    /// The last call before COMMIT; `None` if the transaction holds no job that it has not reported.
    pub(in crate::store::database) fn finish(&self, process: Uuid) -> Option<Call<'static>> {
        // A set: the number of jobs has no bound.
        let reported: HashSet<usize> = self.reported.iter().copied().collect();
        let left = self.jobs.iter().enumerate().filter(|(place, _)| !reported.contains(place));
        let ids: Vec<_> = left.map(|(_, taken)| Some(signed(taken.job.0))).collect();
        let args =
            vec![Arg::Uuid(process), Arg::Uuid(self.holder), rows("job_id_rows", vec![Column::BigInt(ids.clone())])];
        (!ids.is_empty()).then_some(Call { name: "finish_held_jobs", args })
    }
}

fn rows(type_name: &'static str, columns: Vec<Column<'static>>) -> Arg<'static> {
    Arg::Rows { type_name, columns }
}

pub(in crate::store::database) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Database {
    /// Takes jobs for a transaction. If its caller leaves meanwhile, the jobs go back.
    pub(in crate::store::database) async fn take_jobs_for_transaction(
        self: &Arc<Self>,
        held_jobs: &mut HeldJobs,
        verb: Verb,
    ) -> Result<Outcome> {
        self.presence.hold().await?;
        held_jobs.open.get_or_insert_with(|| self.holders.open(held_jobs.holder));
        held_jobs.is_uncertain = true;
        let claimant = Claimant { holder: held_jobs.holder, last_token: held_jobs.last_token };
        let outcome = match self.goes_in_batch(std::slice::from_ref(&verb), true) {
            true => {
                let outcomes = self.ask_in_batch(vec![verb], Some(claimant), None).await?;
                outcomes.into_iter().next().unwrap_or(Outcome::Done)
            }
            false => self.claim_alone(claimant, verb).await?,
        };
        held_jobs.is_uncertain = false;
        if let Outcome::Jobs(jobs) = &outcome
            && !jobs.is_empty()
        {
            held_jobs.note_taken(jobs);
            self.attempt_began();
        }
        if !held_jobs.may_hold() {
            // A worker that waits for jobs in a transaction does not hold up due work while the process cannot show that it lives.
            held_jobs.open = None;
        }
        Ok(outcome)
    }

    async fn claim_alone(self: &Arc<Self>, claimant: Claimant, verb: Verb) -> Result<Outcome> {
        let (answer, jobs) = oneshot::channel();
        let database = self.clone();
        self.runtime.spawn(async move {
            if answer.send(database.claim_now(claimant, &verb).await).is_err() {
                database.give_back_jobs(Release::unseen(claimant.holder, claimant.last_token)).await;
            }
        });
        self.await_answer(jobs).await
    }

    /// Takes jobs for a transaction in a call of its own.
    pub(in crate::store::database) async fn claim_now(
        self: &Arc<Self>,
        claimant: Claimant,
        verb: &Verb,
    ) -> Result<Outcome> {
        let Claimant { holder, last_token } = claimant;
        let context = self.call_context(verb).await?;
        let queue = if let Verb::Work(WorkVerb::Take(take)) = verb { &*take.queue } else { "" };
        let of_verb = verbs::call(verb, &context)?.args;
        let call = || {
            let mut args = vec![Arg::Uuid(self.process), Arg::Uuid(holder), Arg::BigInt(last_token)];
            args.extend(of_verb.iter().cloned());
            Call { name: "claim_jobs", args }
        };
        let rows = self.call_for_job_takes(queue, call).await?;
        let notices = notices_in(&rows);
        let outcome = verbs::outcome(verb, rows)?;
        self.publish_local(&notices, 1).await;
        self.jobs_were_asked_for();
        Ok(outcome)
    }

    /// Gives jobs of a transaction back; if that fails, it is tried again.
    pub(in crate::store::database) async fn give_back_jobs(self: &Arc<Self>, release: Release) {
        let Release { holder, tokens, is_attempt, .. } = release;
        let call = || Call {
            name: "release_jobs",
            args: vec![
                Arg::Uuid(self.process),
                Arg::Uuid(holder),
                Arg::BigInt(tokens.0),
                Arg::BigInt(tokens.1),
                Arg::Bool(is_attempt),
            ],
        };
        let is_done = match self.give_back_by(call).await {
            Ok(has_more) => !has_more,
            Err(failure) => {
                tracing::warn!(error = %failure.error, "the jobs of a transaction could not be given back; it is tried again");
                false
            }
        };
        if !is_done {
            self.owed.0.lock().unwrap_or_else(PoisonError::into_inner).push(release);
            self.maintenance.falls_due(self.clock.now().after(AGAIN));
        }
    }

    /// Gives jobs back by a call that passes over locked ones; it is repeated for those. True if some are still locked.
    async fn give_back_by<'c>(self: &Arc<Self>, call: impl Fn() -> Call<'c>) -> Linked<bool> {
        let mut pauses = LOCK_PAUSES_MS.iter();
        loop {
            // A tick waits for it, with all that is due.
            let rows = self.control.quick_call(call()).await?;
            let has_more = only(&rows)?.flag("has_more")?;
            self.publish_local(&notices_in(&rows), rows.len()).await;
            match pauses.next() {
                Some(pause_ms) if has_more => tokio::time::sleep(Duration::from_millis(*pause_ms)).await,
                _ => return Ok(has_more),
            }
        }
    }

    /// Gives back the jobs of this process that none of its transactions holds. The call of a claim may be lost while the
    /// server still works on it; then it commits after the call was repeated, or after its transaction has ended.
    pub(in crate::store::database) async fn give_back_stray_jobs(self: &Arc<Self>) -> Result<()> {
        let call = Call { name: "job_holders", args: vec![Arg::Uuid(self.process)] };
        let rows = self.maintenance_control.call(call).await?;
        let holders: Result<Vec<_>> = rows.iter().map(|row| Row(row).uuid("holder")).collect();
        // Asked after the answer: a transaction is among the open ones before it takes its first job.
        for holder in holders?.into_iter().filter(|holder| !self.holders.holders().contains(holder)) {
            tracing::warn!(%holder, "jobs of a transaction that has ended are given back: the answer of their take was lost");
            self.give_back_jobs(Release::unseen(holder, 0)).await;
        }
        Ok(())
    }

    /// Tries again what has failed.
    pub(in crate::store::database) async fn release_owed_jobs(self: &Arc<Self>) {
        let owed = std::mem::take(&mut *self.owed.0.lock().unwrap_or_else(PoisonError::into_inner));
        for release in owed {
            self.give_back_jobs(release).await;
        }
    }

    /// Gives back leased jobs that no reader has seen.
    pub(in crate::store::database) async fn return_unseen_jobs(self: &Arc<Self>, jobs: &[TakenJob]) {
        let call = || {
            let ids = jobs.iter().map(|taken| Some(signed(taken.job.0))).collect();
            let tokens = jobs.iter().map(|taken| Some(signed(taken.token))).collect();
            let args = vec![rows("job_rows", vec![Column::BigInt(ids), Column::BigInt(tokens)])];
            Call { name: "return_jobs", args }
        };
        match self.give_back_by(call).await {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(
                    "jobs whose reader left are locked by another session, so they are not given back; their leases end"
                );
            }
            Err(failure) => {
                tracing::warn!(error = %failure.error, "jobs whose reader left could not be given back; their leases end");
            }
        }
    }
}
