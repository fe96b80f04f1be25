//! One opaque error for everything Dialoq can refuse.

mod broker;
mod code;
mod ours;
mod work;

pub use code::Code;

use std::fmt;

/// The result of everything that can be refused.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of thing went wrong, for programs that treat whole classes alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name or handle that does not exist here.
    NotFound,
    /// A name that exists already, or an object others still refer to.
    InUse,
    /// The conversation, queue or transaction is in a state that does not allow it.
    State,
    /// The input itself is wrong: a name, a value, a body, a statement.
    Input,
    /// Another transaction won; the same work may succeed if it is tried again.
    Conflict,
    /// The store cannot be used: locked by another owner, damaged, newer, full, closed.
    Store,
    /// The user's own SQL or handler failed.
    User,
    /// Something Dialoq does not do.
    Unsupported,
}

/// Where in a script a statement went wrong: both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why something was refused: one opaque error for everything that Dialoq can refuse.
///
/// It names the thing, says what was found and what would be right, and carries a stable [`Code`]: Service Broker's own
/// number where the condition is the same, ours from 60001 where it is not. A program acts on [`Error::code`],
/// [`Error::kind`] and [`Error::is_retryable`], never on the text.
pub struct Error(Box<Inner>);

struct Inner {
    code: Code,
    message: String,
    position: Option<Position>,
    statement: Option<usize>,
    source: Option<Box<dyn std::error::Error + Send + Sync + 'static>>,
}

impl Error {
    /// An error of our own making; everything else in the crate goes through the named constructors.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { code, message: message.into(), position: None, statement: None, source: None }))
    }

    /// The same error with its cause attached.
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error with its place in the script.
    pub(crate) fn at(mut self, position: Position) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// The same error with the place of its statement in the list of definitions, from 0.
    pub(crate) fn in_statement(mut self, index: usize) -> Self {
        self.0.statement.get_or_insert(index);
        self
    }

    /// The same error of one message of a list, whose place is from 0.
    pub(crate) fn of_message(mut self, index: usize, count: usize) -> Self {
        self.0.message = format!("message {} of {count}: {}", index + 1, self.0.message);
        self.in_statement(index)
    }

    /// The same error with the place that [`Error::of_message`], or a server, has written before its text.
    pub(crate) fn with_place_of_its_message(self) -> Self {
        let place = self.0.message.strip_prefix("message ").and_then(|rest| {
            let (place, rest) = rest.split_once(" of ")?;
            let (count, _) = rest.split_once(": ")?;
            count.parse::<usize>().ok()?;
            place.parse::<usize>().ok()?.checked_sub(1)
        });
        match place {
            Some(index) => self.in_statement(index),
            None => self,
        }
    }

    /// The stable number of the condition.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The class of the condition.
    pub fn kind(&self) -> ErrorKind {
        self.0.code.kind()
    }

    /// What happened, without the number and the position.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where in the script it happened, for statements that came as text.
    pub fn position(&self) -> Option<Position> {
        self.0.position
    }

    /// Which definition of a list, or which message of [`Act::send_each`](crate::Act::send_each), was refused, from 0;
    /// `None` for everything else.
    pub fn statement(&self) -> Option<usize> {
        self.0.statement
    }

    /// Whether the same call, made again from the start of its transaction, may succeed.
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Conflict || [Code::SERVER_UNREACHABLE, Code::POOL_EXHAUSTED].contains(&self.0.code)
    }

    /// A second copy for another caller of the same failed batch; the cause is kept as text only.
    pub(crate) fn duplicate(&self) -> Self {
        let source = self.0.source.as_ref().map(|source| source.to_string().into());
        let Inner { code, ref message, position, statement, .. } = *self.0;
        Self(Box::new(Inner { code, message: message.clone(), position, statement, source }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.0.code, self.0.message)?;
        if let Some(position) = self.0.position {
            write!(f, " ({position})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
