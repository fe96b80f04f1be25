//! How long a class can be starved, as data.

use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The starvation bound of a strategy: its guarantee to a class under any load of the other classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// No bound: a class can be starved for ever.
    None,
    /// In any so many receives in a row, a class that has messages on offer throughout is served at least its weight. A
    /// message is on offer while no other reader holds its group, at the highest level of that group's messages.
    Window {
        /// The length of the window: the sum of the weights.
        receives: u64,
        /// Each class and its weight.
        weights: Vec<(Arc<str>, u64)>,
    },
    /// A message of level `l` is overtaken by a receive only if the oldest message of that one was enqueued within
    /// `(10 - l) * per_level` after it; in addition at most once by each other level. If a receive of its level passed it over because it was
    /// not on offer, it counts as enqueued then: another reader held it, its group paused or had messages of another
    /// conversation before it, it had another level, or its transaction had not committed. If one gave a later message, it counts as enqueued with
    /// that one: a DialogTimer, an Error, or one of a group that was chosen for an older message of another
    /// conversation.
    Age {
        /// The waiting time that makes up for one level.
        per_level: Duration,
    },
    /// Only the backlog of its own queue stands before a message: with `n` messages before it, it waits at most for the
    /// launch of a reader and then `n + 1` receives with the service of their messages, whatever the number of readers. A
    /// reader is always at an older message or its group until it is next: one group has one reader at a time. The more
    /// groups those messages are in, the more readers share them. A receive of many messages gives newer ones of an
    /// older group too.
    OwnBacklog {
        /// Each queue and the most readers it gets.
        readers: Vec<(Arc<str>, u16)>,
        /// The pause between the launches of two readers; zero is none.
        launch_pause: Duration,
    },
}

impl Bound {
    /// The most receives of other classes in a row while this class has messages; `None` if there is no bound.
    pub fn longest_run_past(&self, class: &str) -> Option<u64> {
        match self {
            Self::Window { receives, weights } => {
                weights.iter().find(|(name, _)| &**name == class).map(|(_, weight)| receives.saturating_sub(*weight))
            }
            Self::None | Self::Age { .. } | Self::OwnBacklog { .. } => None,
        }
    }

    /// How much newer a message may be and still overtake one of this level, except once by each other level; `None` if
    /// there is no such bound.
    pub fn overtaken_within(&self, level: u8) -> Option<Duration> {
        match self {
            Self::Age { per_level } => Some(per_level.saturating_mul(u32::from(10_u8.saturating_sub(level)))),
            Self::None | Self::Window { .. } | Self::OwnBacklog { .. } => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none: a class can starve for ever"),
            Self::Window { receives, weights } => {
                write!(f, "of any {receives} receives in a row, a class with messages gets at least: ")?;
                for (index, (class, weight)) in weights.iter().enumerate() {
                    write!(f, "{}{class} {weight}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Age { per_level } => write!(
                f,
                "a message of level l is ahead of each receive whose oldest message comes more than (10 - l) x \
                 {per_level:?} after it, but for one receive of each other level"
            ),
            Self::OwnBacklog { readers, launch_pause } => {
                f.write_str(
                    "only a message's own queue stands before it: at most backlog + 1 receives with their service, fewer \
                     the more groups and readers there are; ",
                )?;
                for (index, (queue, most)) in readers.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    match most {
                        1 => write!(f, "{queue} 1 reader")?,
                        most => write!(f, "{queue} 1 to {most} readers")?,
                    }
                }
                match *launch_pause {
                    Duration::ZERO => f.write_str(", launched at once"),
                    pause => write!(f, ", one more each {pause:?}"),
                }
            }
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_state_their_promise() {
        let window = Bound::Window { receives: 9, weights: vec![("high".into(), 8), ("low".into(), 1)] };
        assert_eq!(
            window.to_string(),
            "of any 9 receives in a row, a class with messages gets at least: high 8, low 1"
        );
        assert_eq!(window.longest_run_past("low"), Some(8));
        assert_eq!(window.longest_run_past("high"), Some(1));
        assert_eq!(window.longest_run_past("other"), None);
        let age = Bound::Age { per_level: Duration::from_millis(50) };
        assert_eq!(age.overtaken_within(10), Some(Duration::ZERO));
        assert_eq!(age.overtaken_within(3), Some(Duration::from_millis(350)));
        assert!(age.to_string().contains("50ms"), "{age}");
        assert_eq!(Bound::None.longest_run_past("low"), None);
        let pools = Bound::OwnBacklog { readers: vec![("low".into(), 1)], launch_pause: Duration::from_secs(5) };
        assert!(pools.to_string().ends_with("low 1 reader, one more each 5s"), "{pools}");
    }
}
