//! How `ensure` shows the setting it found and the one it was asked for: as the definition language writes them.

use crate::catalog::ddl::{render_entries, render_validation};
use crate::protocol::definition::{
    AfterRetries, AnyOr, ContractEntry, Missed, QueueEvent, TakingTechnique, Validation, WorkOrder,
};

/// A setting as text.
pub(super) trait Shown {
    /// As a statement would have it.
    fn shown(&self) -> String;
}

impl Shown for bool {
    fn shown(&self) -> String {
        if *self { "ON" } else { "OFF" }.to_owned()
    }
}

impl Shown for i64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for str {
    fn shown(&self) -> String {
        format!("'{}'", self.replace('\'', "''"))
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        self.as_str().shown()
    }
}

impl<T: Shown + ?Sized> Shown for &T {
    fn shown(&self) -> String {
        T::shown(self)
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| "not set".to_owned(), T::shown)
    }
}

impl Shown for Vec<&str> {
    fn shown(&self) -> String {
        if self.is_empty() { "none".to_owned() } else { self.join(", ") }
    }
}

impl Shown for Vec<ContractEntry> {
    fn shown(&self) -> String {
        render_entries(self)
    }
}

impl Shown for Validation {
    fn shown(&self) -> String {
        render_validation(self)
    }
}

impl Shown for AnyOr {
    fn shown(&self) -> String {
        match self {
            Self::Any => "ANY".to_owned(),
            Self::Name(name) => name.shown(),
        }
    }
}

impl Shown for (QueueEvent, &str) {
    fn shown(&self) -> String {
        format!("{} TO SERVICE {}", self.0.word(), self.1.shown())
    }
}

/// The types that know their word.
macro_rules! by_word {
    ($($name:ty),*) => {
        $(impl Shown for $name {
            fn shown(&self) -> String {
                self.word().to_owned()
            }
        })*
    };
}

by_word!(AfterRetries, Missed, TakingTechnique, WorkOrder);
