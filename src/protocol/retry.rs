//! The retry policy of a queue, as data: how often a message is tried, the pauses between, and what follows the last attempt.

use serde::{Deserialize, Serialize};

/// What follows the last attempt of a [`RetryPolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum AfterRetries {
    /// The conversation group is set aside until RELEASE QUARANTINE.
    #[default]
    Quarantine,
    /// The conversation of the group's first message ends WITH ERROR 60047, so that its peer learns of it.
    EndWithError,
    /// The queue is disabled, as without a policy.
    QueueOff,
    /// The first message of the group becomes a dead letter, and its conversation goes on with the next one.
    DeadLetter,
}

impl AfterRetries {
    /// Each with its word in the DDL, which the tables keep.
    pub const ALL: [(&'static str, Self); 4] = [
        ("QUARANTINE", Self::Quarantine),
        ("DEAD_LETTER", Self::DeadLetter),
        ("END_WITH_ERROR", Self::EndWithError),
        ("QUEUE_OFF", Self::QueueOff),
    ];

    /// Its word in the DDL.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, then)| *then == self).map_or("QUARANTINE", |(word, _)| *word)
    }
}

/// The settings of a `RETRY` clause; `None` is "not named". Numbers are kept as given, so that the error can name one that is
/// out of range.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RetryOptions {
    /// `MAX_ATTEMPTS`: how often the messages of a group are received before the policy gives up. Default 5.
    pub max_attempts: Option<i64>,
    /// `DELAY_MS`: the pause after the first rollback, in milliseconds. Default 1000.
    pub delay_ms: Option<i64>,
    /// `FACTOR_PERCENT`: by what the pause grows with each further rollback, in percent of the one before. Default 200.
    pub factor_percent: Option<i64>,
    /// `MAX_DELAY_MS`: the longest pause, in milliseconds. Default one hour.
    pub max_delay_ms: Option<i64>,
    /// `JITTER_PERCENT`: by how much a pause is longer or shorter at most, in percent. Default 20.
    pub jitter_percent: Option<i64>,
    /// `THEN`: what follows the last attempt. Default QUARANTINE.
    pub then: Option<AfterRetries>,
}

/// A `RETRY` clause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryChange {
    /// `RETRY (DROP)`: rollbacks count as in Service Broker again.
    Drop,
    /// `RETRY (...)`
    Set(RetryOptions),
}

/// The retry policy of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// How often the messages of a group are received before the policy gives up.
    pub max_attempts: u16,
    /// The pauses between.
    pub pauses: Pauses,
    /// What follows the last attempt.
    pub then: AfterRetries,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let pauses = Pauses { delay_ms: 1000, factor_percent: 200, max_delay_ms: 3_600_000, jitter_percent: 20 };
        Self { max_attempts: 5, pauses, then: AfterRetries::default() }
    }
}

impl RetryPolicy {
    /// The clause that names all its settings.
    pub fn to_options(&self) -> RetryOptions {
        let Pauses { delay_ms, factor_percent, max_delay_ms, jitter_percent } = self.pauses;
        RetryOptions {
            max_attempts: Some(self.max_attempts.into()),
            delay_ms: Some(delay_ms),
            factor_percent: Some(factor_percent),
            max_delay_ms: Some(max_delay_ms),
            jitter_percent: Some(jitter_percent),
            then: Some(self.then),
        }
    }
}

/// The pauses between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pauses {
    /// The first, in milliseconds.
    pub delay_ms: i64,
    /// The next in percent of the one before.
    pub factor_percent: i64,
    /// The longest, in milliseconds.
    pub max_delay_ms: i64,
    /// By how much a pause is longer or shorter at most, in percent, so that what failed together does not come together again.
    pub jitter_percent: i64,
}

impl Pauses {
    /// The pause after so many attempts, in microseconds.
    ///
    /// The jitter is made of an id and the attempt, so that every store gives the same pause; it only has to differ from one
    /// id to the other.
    pub fn after_us(&self, id: u64, attempts: u16) -> i64 {
        let most_us = self.max_delay_ms * 1000;
        let mut delay_us = (self.delay_ms * 1000).min(most_us);
        for _ in 1..attempts {
            if delay_us >= most_us || delay_us == 0 || self.factor_percent == 100 {
                break;
            }
            delay_us = (delay_us.saturating_mul(self.factor_percent) / 100).min(most_us);
        }
        let spread = ((id % 1_000_003) * 7919 + u64::from(attempts) * 104_729) % 2001;
        let jitter = delay_us / 1000 * (spread.cast_signed() - 1000) / 100 * self.jitter_percent;
        (delay_us + jitter).min(most_us)
    }
}
