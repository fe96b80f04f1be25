//! The broker's own part of the database schema: checked after the user has changed the schema, and at opening.
//!
//! SQLite's authorizer sees neither the new name of ALTER TABLE .. RENAME TO nor the table that a foreign key names.

use super::failure::storage;
use crate::error::{Code, Error, Result};
use crate::sql::sqlite::read::{NAMES_OF_VIEWS, RESERVED_OBJECTS, TABLES_WITH_FOREIGN_KEYS};
use rusqlite::{Connection, OptionalExtension};

/// One table, view, index or trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    kind: String,
    name: String,
    table: String,
    text: Option<String>,
    is_temporary: bool,
}

/// The objects with reserved names and the temporary ones, as they stood at opening.
#[derive(Debug, Default)]
pub(super) struct Reserved(Vec<Object>);

impl Reserved {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(RESERVED_OBJECTS)?;
        let object = |row: &rusqlite::Row<'_>| {
            let (kind, name, table) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Object { kind, name, table, text: row.get(3)?, is_temporary: row.get(4)? })
        };
        Ok(Self(statement.query_map([], object)?.collect::<rusqlite::Result<_>>()?))
    }

    /// Why the changed schema is refused; `None` if it is allowed.
    pub(super) fn fault(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let now = Self::read(connection)?;
        if let Some(strange) = now.0.iter().find(|object| !self.0.contains(object)) {
            let Object { kind, name, table, is_temporary, .. } = strange;
            if *is_temporary {
                return Ok(Some(format!(
                    "it makes {kind} '{name}' temporary, but the connection serves other callers too, for whom it would stand \
                     before theirs; make it without 'temp'"
                )));
            }
            return Ok(Some(format!(
                "it makes {kind} '{name}' on '{table}', but dialoq_*, sys_*, queue_messages and dead_letters are the broker's own names; \
                 use another name"
            )));
        }
        if let Some(missing) = self.0.iter().find(|object| !now.0.contains(object)) {
            return Ok(Some(format!("it removes {} '{}', which is the broker's own", missing.kind, missing.name)));
        }
        Ok(foreign_key(connection)?.map(|(table, referenced)| {
            format!(
                "table '{table}' has a foreign key to '{referenced}', which is the broker's own and deletes its rows when it \
                 likes; keep the value without REFERENCES"
            )
        }))
    }
}

/// Refuses to write the broker's views where a table, index or view of the user's has such a name: writing them would fail, or remove it.
///
/// # Errors
/// 3716 there is one; those of SQLite.
pub(super) fn check_names_of_views(connection: &Connection, doing: &str) -> Result<()> {
    let failed = |error| storage(doing, error);
    let found = connection
        .query_row(NAMES_OF_VIEWS, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()
        .map_err(failed)?;
    let Some((kind, name)) = found else { return Ok(()) };
    let way = match kind.as_str() {
        "table" => format!("`ALTER TABLE {name} RENAME TO ...`"),
        _ => format!("make it under another name, then `DROP {} {name}`", kind.to_uppercase()),
    };
    Err(Error::new(
        Code::OBJECT_IN_USE,
        format!(
            "{doing}: {kind} '{name}' has the name of a view of the broker's own; nothing was changed. Give it another name with \
             another program (such as sqlite3): {way}; then open the file again"
        ),
    ))
}

/// The first foreign key of a user's table to one of the broker's.
fn foreign_key(connection: &Connection) -> rusqlite::Result<Option<(String, String)>> {
    let tables: Vec<String> = {
        let mut statement = connection.prepare_cached(TABLES_WITH_FOREIGN_KEYS)?;
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
    };
    for table in tables {
        let mut found = None;
        connection.pragma(Some("main"), "foreign_key_list", &table, |key| {
            let referenced: String = key.get("table")?;
            if found.is_none() && referenced.to_ascii_lowercase().starts_with("dialoq_") {
                found = Some(referenced);
            }
            Ok(())
        })?;
        if let Some(referenced) = found {
            return Ok(Some((table, referenced)));
        }
    }
    Ok(None)
}

/// Refuses a database in which another program has put a foreign key on a table of the broker's: the broker's next
/// DELETE would fail.
pub(super) fn check_foreign_keys(connection: &Connection, doing: &str) -> Result<()> {
    match foreign_key(connection).map_err(|error| storage(doing, error))? {
        None => Ok(()),
        Some((table, referenced)) => Err(Error::new(
            Code::OBJECT_IN_USE,
            format!(
                "{doing}: table '{table}' has a foreign key to '{referenced}', so that the broker could not delete its own \
                 rows; make '{table}' again without it"
            ),
        )),
    }
}
