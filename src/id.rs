//! The ids that travel through every layer: small, `Copy`, and fit to be stored in the user's own tables.

use crate::time::is_before_1970;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::{NoContext, Timestamp, Uuid};

macro_rules! id {
    ($(#[doc = $doc:literal])* $name:ident) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id! {
    /// Names one endpoint of a conversation: the two sides of a conversation have different handles.
    ConversationHandle
}
id! {
    /// Names a conversation; both of its endpoints carry it.
    ConversationId
}
id! {
    /// Names a conversation group: the unit of locking, local to one side.
    GroupId
}
id! {
    /// Names one message.
    MessageId
}

/// Names a job of a work queue; grows with each push.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({})", self.0)
    }
}

impl FromStr for JobId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Names a dead letter: its place in the order of arrival, as a message and as a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeadLetterId(pub u64);

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeadLetterId({})", self.0)
    }
}

impl FromStr for DeadLetterId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Where new ids come from: random in production, counted when a run must be repeatable.
#[derive(Debug, Clone)]
pub enum IdSource {
    /// Version 7 UUIDs: they ascend with time, so that rows keyed by them stay together.
    Random,
    /// 1, 2, 3, ... for models and tests.
    Counted(u128),
}

impl IdSource {
    /// The next id.
    pub fn next_id(&mut self) -> Uuid {
        match self {
            Self::Random => random_id(is_before_1970()),
            Self::Counted(last) => {
                *last += 1;
                Uuid::from_u128(*last)
            }
        }
    }
}

/// A version 7 UUID. A clock before 1970, which the crate takes for a fault of the program, counts as 1970.
pub(crate) fn random_id(is_before_1970: bool) -> Uuid {
    match is_before_1970 {
        true => Uuid::new_v7(Timestamp::from_unix(NoContext, 0, 0)),
        false => Uuid::now_v7(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_made_although_the_clock_is_before_1970() {
        let (one, other) = (random_id(true), random_id(true));
        assert_ne!(one, other);
        assert!(one < random_id(false));
    }
}
