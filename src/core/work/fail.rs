//! FAIL, and every other end of an attempt without success: the lease is over, the transaction was rolled back, the
//! reader died.

use super::change::WorkChange;
use super::session::WorkOp;
use crate::core::session::{Op, Session};
use crate::core::state::Core;
use crate::error::{Error, Result};
use crate::protocol::Outcome;
use crate::protocol::definition::{Pauses, WorkNumber, WorkSettings};
use crate::protocol::work::{AfterFailure, JobState, TakenJob};
use crate::time::Timestamp;
use std::sync::Arc;

/// The longest reason or note of progress, in characters; as the description of END WITH ERROR.
const MOST_CHARACTERS: usize = 3000;

/// What a failed attempt leaves.
#[derive(Debug, Clone, Copy)]
pub(in crate::core) struct NextAttempt {
    state: JobState,
    /// The pause before it, from the moment that the failure counts from; 0 if there is none.
    delay_us: i64,
}

impl Core {
    pub(super) fn fail_job(
        &mut self,
        session: &mut Session,
        taken: TakenJob,
        reason: Arc<str>,
        then: AfterFailure,
        now: Timestamp,
    ) -> Result<Outcome> {
        check_text("the reason of a failure", &reason)?;
        if let AfterFailure::RetryInMs(delay_ms) = then {
            super::push::check_delay("the delay of the next attempt in milliseconds", delay_ms, 0)?;
        }
        let job = self.taken_for(session, taken, now)?;
        // Of now, whatever the settings are at the commit: the caller is answered.
        let next = self.after_failure(job, then);
        let was_free = self.hold_job(session, job, true);
        session.record(Op::Work(WorkOp::Fail { job, was_free, reason, next }));
        Ok(Outcome::Failed(next.state))
    }

    /// The attempt at a taken job has failed.
    pub(super) fn fail_attempt(&mut self, place: u32, last_error: Arc<str>, then: AfterFailure, now: Timestamp) {
        let next = self.after_failure(place, then);
        self.apply_fail(place, last_error, next, now);
    }

    pub(super) fn apply_fail(&mut self, place: u32, last_error: Arc<str>, next: NextAttempt, now: Timestamp) {
        let NextAttempt { state, delay_us } = next;
        let at = (state == JobState::Scheduled).then(|| Timestamp(now.0.saturating_add(delay_us)));
        let work = &mut self.work;
        work.change(place, |job| {
            job.state = state;
            job.at = at.map_or(0, |at| at.0);
            (job.session, job.is_reported) = (0, false);
            job.is_retry = true;
        });
        let job_id = work.jobs[place].id;
        work.write(WorkChange::FailJob { job_id, state, at, last_error, failed_at: now });
    }

    fn after_failure(&self, place: u32, then: AfterFailure) -> NextAttempt {
        const NONE: NextAttempt = NextAttempt { state: JobState::Dead, delay_us: 0 };
        let job = &self.work.jobs[place];
        let Some(queue) = self.work.queues.get(&job.queue_id) else { return NONE };
        let settings = &queue.settings;
        let is_last = i64::from(job.attempts) >= settings.get(WorkNumber::MaxAttempts);
        let delay_us = match then {
            _ if is_last => return NONE,
            AfterFailure::Dead => return NONE,
            AfterFailure::RetryInMs(delay_ms) => delay_ms.saturating_mul(1000),
            AfterFailure::Policy => retry_delay_us(settings, job.id, job.attempts),
        };
        let state = if delay_us == 0 { JobState::Ready } else { JobState::Scheduled };
        NextAttempt { state, delay_us }
    }
}

/// The pause before the next attempt, in microseconds.
fn retry_delay_us(settings: &WorkSettings, job_id: u64, attempts: u16) -> i64 {
    let pauses = Pauses {
        delay_ms: settings.get(WorkNumber::RetryDelayMs),
        factor_percent: settings.get(WorkNumber::RetryFactorPercent),
        max_delay_ms: settings.get(WorkNumber::MaxRetryDelayMs),
        jitter_percent: settings.get(WorkNumber::RetryJitterPercent),
    };
    pauses.after_us(job_id, attempts)
}

/// 60005: a text longer than the tables keep.
pub(super) fn check_text(what: &str, text: &str) -> Result<()> {
    match text.chars().count() {
        0..=MOST_CHARACTERS => Ok(()),
        count => {
            let limit = format!("at most {MOST_CHARACTERS} characters");
            Err(Error::out_of_range(what, format_args!("a text of {count} characters"), &limit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::definition::WorkOption;

    fn delays(options: &[WorkOption], job_id: u64) -> Vec<i64> {
        let mut settings = WorkSettings::default();
        options.iter().for_each(|option| settings.set(*option));
        (1..=6).map(|attempts| retry_delay_us(&settings, job_id, attempts) / 1000).collect()
    }

    #[test]
    fn pauses_grow_to_their_bound_and_differ_from_job_to_job() {
        let number = |number, value| WorkOption::Number(number, value);
        let plain = number(WorkNumber::RetryJitterPercent, 0);
        assert_eq!(delays(&[plain], 7), [1000, 2000, 4000, 8000, 16_000, 32_000]);
        assert_eq!(
            delays(&[plain, number(WorkNumber::MaxRetryDelayMs, 5000)], 7),
            [1000, 2000, 4000, 5000, 5000, 5000]
        );
        assert_eq!(delays(&[plain, number(WorkNumber::RetryDelayMs, 0)], 7), [0; 6]);
        assert_eq!(delays(&[plain, number(WorkNumber::RetryFactorPercent, 100)], 7), [1000; 6]);
        let first: Vec<i64> = (1..=1000).map(|job_id| delays(&[], job_id)[0]).collect();
        assert!(first.iter().all(|delay_ms| (800..=1200).contains(delay_ms)), "{first:?}");
        let (least, most) = (first.iter().min().unwrap(), first.iter().max().unwrap());
        assert!(*least < 810 && *most > 1190, "{least} to {most}");
    }
}
