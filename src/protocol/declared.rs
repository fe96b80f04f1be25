//! What a row of the table of verbs holds: what callers, SQL, traces and documentation have in common. The rows stand
//! beside the verbs, in `verb.rs`.
//!
//! From a row follow the call of its routine on a database and the reading of the result, its span and its name in
//! counters, and its section in `docs/verbs.md`. Who may call a routine stands in the routine's own SQL file.

pub use super::outcome::ResultForm;
use crate::id::ConversationHandle;
use std::sync::Arc;
use uuid::Uuid;

/// One row of the table: a routine of schema `dialoq`, which does one verb.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The routine's name, which is also the verb's in spans and counters.
    pub name: &'static str,
    /// Service Broker's statement, or what a statement of ours does.
    pub statement: &'static str,
    /// The arguments in the routine's order, with their types.
    pub arguments: &'static [(&'static str, &'static str)],
    /// What it gives.
    pub gives: ResultForm,
    /// The numbers of the refusals it may give, ascending; failures of a store are not listed.
    pub errors: &'static [u16],
    /// Whether it changes and locks nothing, so that it may be repeated after a lost answer.
    pub reads_only: bool,
    /// The routine that does many calls of different callers at once, if there is one.
    pub batch: Option<&'static str>,
}

/// The value of an argument; `None` is NULL.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A handle, group or other id.
    Uuid(Option<Uuid>),
    /// An id that the caller makes for what the verb makes: the place in its list of new ids.
    NewId(usize),
    /// A truth value.
    Bool(bool),
    /// A number of 32 bits.
    Int(Option<i32>),
    /// A number of 64 bits.
    BigInt(Option<i64>),
    /// A text.
    Text(Option<&'a str>),
    /// The name of a queue, which is compared without regard to case.
    Queue(&'a str),
    /// A message body.
    Bytes(&'a Option<Arc<Vec<u8>>>),
    /// Many conversations.
    Handles(&'a [ConversationHandle]),
    /// What is wrong with the body, found by the caller's check of it: empty for nothing.
    BodyFault,
    /// The version of the definitions that the check went by.
    CatalogVersion,
    /// The conversations of so many messages, one for each. This and the five below are the columns of one table.
    HandleColumn(usize),
    /// Their types.
    TypeColumn,
    /// Their bodies.
    BodyColumn,
    /// Their trace contexts.
    TraceColumn,
    /// What is wrong with their bodies.
    FaultColumn,
    /// Ids that the caller makes for them.
    IdColumn,
}

impl Value<'_> {
    /// As a span shows it; `None` for what spans leave out.
    pub(super) fn shown(&self) -> Option<String> {
        match self {
            Self::Uuid(id) => id.map(|id| id.to_string()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(value) => value.map(|value| value.to_string()),
            Self::BigInt(value) => value.map(|value| value.to_string()),
            Self::Text(text) => text.map(str::to_owned),
            Self::Queue(name) => Some((*name).to_owned()),
            Self::Bytes(body) => body.as_ref().map(|body| format!("{} bytes", body.len())),
            Self::Handles(handles) => Some(format!("{} conversations", handles.len())),
            Self::HandleColumn(count) => Some(format!("{count} messages")),
            Self::NewId(_)
            | Self::BodyFault
            | Self::CatalogVersion
            | Self::TypeColumn
            | Self::BodyColumn
            | Self::TraceColumn
            | Self::FaultColumn
            | Self::IdColumn => None,
        }
    }
}

/// SQL's name for the type of a kind of value, as PostgreSQL spells it.
macro_rules! sql_type {
    (Uuid) => {
        "uuid"
    };
    (NewId) => {
        "uuid"
    };
    (Bool) => {
        "boolean"
    };
    (Int) => {
        "integer"
    };
    (BigInt) => {
        "bigint"
    };
    (Text) => {
        "text"
    };
    (Queue) => {
        "text"
    };
    (Bytes) => {
        "bytea"
    };
    (Handles) => {
        "uuid[]"
    };
    (BodyFault) => {
        "text"
    };
    (CatalogVersion) => {
        "bigint"
    };
    (HandleColumn) => {
        "uuid[]"
    };
    (TypeColumn) => {
        "text[]"
    };
    (BodyColumn) => {
        "bytea[]"
    };
    (TraceColumn) => {
        "text[]"
    };
    (FaultColumn) => {
        "text[]"
    };
    (IdColumn) => {
        "uuid[]"
    };
}

macro_rules! verbs {
    ($(
        $constant:ident = $name:literal, $statement:literal:
        $pattern:pat $(if $guard:expr)?
            => ($($argument:ident $kind:ident $(($value:expr))?),*)
        -> $gives:expr, [$($error:literal),*], $flag:ident $(($batch:literal))?;
    )*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $statement)]
            pub const $constant: Declaration = Declaration {
                name: $name,
                statement: $statement,
                arguments: &[$((stringify!($argument), sql_type!($kind))),*],
                gives: $gives,
                errors: &[$($error),*],
                reads_only: verbs!(@reads $flag),
                batch: verbs!(@batch $flag $($batch)?),
            };
        )*

        /// All of them.
        pub const VERBS: &[Declaration] = &[$($constant),*];

        impl Verb {
            /// The verb's row in the table.
            #[doc(hidden)]
            pub fn declaration(&self) -> &'static Declaration {
                #[allow(unused_variables, reason = "a row names what its arguments need")]
                match self {
                    $($pattern $(if $guard)? => &$constant,)*
                }
            }

            /// The values of its arguments, in the order of the declaration.
            #[doc(hidden)]
            pub fn arguments(&self) -> Vec<Value<'_>> {
                match self {
                    $($pattern $(if $guard)? => vec![$(Value::$kind $(($value.into()))?),*],)*
                }
            }

            /// The span of the verb, at level debug, with its arguments as fields.
            pub(crate) fn span(&self) -> Span {
                match self {
                    $($pattern $(if $guard)? => debug_span!(
                        $name $(, $argument = $crate::protocol::declared::Value::$kind $(($value.into()))?.shown())*
                    ),)*
                }
            }
        }
    };
    (@reads reads_only) => { true };
    (@reads $other:ident) => { false };
    (@batch batched $name:literal) => { Some($name) };
    (@batch $other:ident) => { None };
}

pub(super) use {sql_type, verbs};
