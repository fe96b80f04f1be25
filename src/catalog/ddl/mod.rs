//! The definition language as text: Service Broker's CREATE, ALTER and DROP statements.
//!
//! [`parse`] reads a script into definitions with their positions; [`render`] writes the script of a whole catalog, and
//! [`render_definition`] one statement. Rendered text parses to the same definitions.
//!
//! Keywords are read without regard to case, names are `plain`, `[in brackets]` or `"in quotes"`, strings are `'...'`
//! or `N'...'`, comments are `-- to the end of the line` and `/* nested */`. Statements end with `;` or where the next
//! one begins; a line `GO` ends a batch, which means nothing here: a script is applied wholly or not at all.

mod cursor;
mod lexer;
mod parser;
mod render;

pub use render::{definitions, render, render_definition};
pub(crate) use render::{render_entries, render_validation};

use super::Catalog;
use super::apply::apply;
use crate::error::{Position, Result};
use crate::id::IdSource;
use crate::protocol::definition::Definition;

/// One definition of a script, and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The definition.
    pub definition: Definition,
    /// The position of its first word.
    pub position: Position,
}

/// Reads a script.
///
/// # Errors
/// 60004 for a syntax error, 60005 for a number that no setting could hold, 60026 for Service Broker's statements and
/// options that Dialoq does not have; each with its position.
pub fn parse(script: &str) -> Result<Vec<Statement>> {
    parser::script(cursor::Cursor::new(lexer::tokens(script)))
}

/// Tries a script on a copy of the catalog: whether all of it would apply, and where it would not.
///
/// [`apply`](super::apply::apply()) takes definitions without their positions; this restores the position in an error,
/// and checks a script before any change.
///
/// # Errors
/// Those of [`apply`](super::apply::apply()), at the position of the refused statement.
pub fn check(catalog: &Catalog, statements: &[Statement]) -> Result<()> {
    let mut tried = catalog.clone();
    // The ids go with the copy, so they need not be unique.
    let mut ids = IdSource::Counted(0);
    for Statement { definition, position } in statements {
        apply(&mut tried, definition, &mut ids).map_err(|error| error.at(*position))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
