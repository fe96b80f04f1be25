//! The forms in which a case runs on a store: alone, through another process, after another process.

use crate::servers::Store;

/// How a broker uses the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It is the only one.
    Alone,
    /// It works through another that owns the file. Embedded only.
    Guest,
    /// It worked through another that owned the file, and owns it since that one closed. Embedded only.
    Heir,
}

impl Form {
    /// The forms of a store, each with what it adds to the names of cases.
    pub(crate) fn of(store: Store) -> &'static [(Self, &'static str)] {
        match store {
            Store::Sqlite => &[(Self::Alone, ""), (Self::Guest, "_as_guest"), (Self::Heir, "_as_heir")],
            Store::Postgres | Store::Mssql => &[(Self::Alone, "")],
        }
    }
}
