//! The state of a job as lists and filters have it.

use crate::error::{Code, Error};
use crate::protocol::work::JobState;
use crate::store::{FromSqlValue, SqlValue};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The state of a job as it is shown: that in its queue, or how it left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ShownState {
    /// Its time has not come.
    Scheduled,
    /// It can be taken.
    Ready,
    /// A reader works on it.
    Taken,
    /// Taken, but the lease is over and the reader has reported nothing; it becomes ready or dead in a moment.
    Lost,
    /// All attempts failed.
    Dead,
    /// Finished: a reader completed it.
    Done,
    /// Finished: it was cancelled.
    Cancelled,
}

impl ShownState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Scheduled, Self::Ready, Self::Taken, Self::Lost, Self::Dead, Self::Done, Self::Cancelled];

    /// Its name in views, lists and filters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Taken => "taken",
            Self::Lost => "lost",
            Self::Dead => "dead",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<JobState> for ShownState {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Scheduled => Self::Scheduled,
            JobState::Ready => Self::Ready,
            JobState::Taken => Self::Taken,
            JobState::Dead => Self::Dead,
        }
    }
}

impl fmt::Display for ShownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// By its name; anything else is 60005.
impl FromStr for ShownState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(
                Code::OUT_OF_RANGE,
                format!("'{}' is no state of a job; it is one of {names}", text.escape_debug()),
            )
        })
    }
}

impl FromSqlValue for ShownState {
    fn from_sql_value(value: &SqlValue) -> Option<Self> {
        String::from_sql_value(value)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_one_name_everywhere() {
        for state in ShownState::ALL {
            assert_eq!(state.name().parse::<ShownState>().unwrap(), state);
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
            assert_eq!(ShownState::from_sql_value(&state.name().into()), Some(state));
        }
        for state in [JobState::Scheduled, JobState::Ready, JobState::Taken, JobState::Dead] {
            assert_eq!(ShownState::from(state).name(), state.name());
        }
        for wrong in ["reday", "", "READY", "a\0b"] {
            let refused = wrong.parse::<ShownState>().unwrap_err();
            assert!(refused.code() == Code::OUT_OF_RANGE && !refused.message().contains('\0'), "{refused}");
        }
    }
}
