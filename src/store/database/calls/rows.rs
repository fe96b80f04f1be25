//! Reading the answers of a server: values by the names of their columns.

use crate::error::{Code, Error, Result};
use crate::store::database::notifications::notice::Notices;
use crate::store::{SqlRow, SqlValue};
use std::sync::Arc;
use uuid::Uuid;

/// One row of an answer.
#[derive(Clone, Copy)]
pub(in crate::store::database) struct Row<'r>(pub(in crate::store::database) &'r SqlRow);

impl<'r> Row<'r> {
    fn value(self, column: &str) -> Result<&'r SqlValue> {
        let place = self.0.columns.iter().position(|name| name == column);
        place.map(|place| &self.0.values[place]).ok_or_else(|| {
            damaged(format!("it gives no column '{column}'; its columns are {}", self.0.columns.join(", ")))
        })
    }

    /// Whether there is such a column and its value is not NULL.
    pub(in crate::store::database) fn has(self, column: &str) -> bool {
        self.value(column).is_ok_and(|value| *value != SqlValue::Null)
    }

    pub(in crate::store::database) fn int(self, column: &str) -> Result<i64> {
        match self.value(column)? {
            SqlValue::Integer(number) => Ok(*number),
            other => Err(wrong(column, other, "a number")),
        }
    }

    pub(in crate::store::database) fn maybe_int(self, column: &str) -> Result<Option<i64>> {
        if self.has(column) { self.int(column).map(Some) } else { self.value(column).map(|_| None) }
    }

    pub(in crate::store::database) fn id(self, column: &str) -> Result<i32> {
        i32::try_from(self.int(column)?).map_err(|_| damaged(format!("column '{column}' holds no id")))
    }

    pub(in crate::store::database) fn maybe_id(self, column: &str) -> Result<Option<i32>> {
        if self.has(column) { self.id(column).map(Some) } else { self.value(column).map(|_| None) }
    }

    pub(in crate::store::database) fn flag(self, column: &str) -> Result<bool> {
        Ok(self.int(column)? != 0)
    }

    pub(in crate::store::database) fn text(self, column: &str) -> Result<&'r str> {
        match self.value(column)? {
            SqlValue::Text(text) => Ok(text),
            other => Err(wrong(column, other, "text")),
        }
    }

    pub(in crate::store::database) fn maybe_text(self, column: &str) -> Result<Option<&'r str>> {
        if self.has(column) { self.text(column).map(Some) } else { self.value(column).map(|_| None) }
    }

    pub(in crate::store::database) fn name(self, column: &str) -> Result<Arc<str>> {
        self.text(column).map(Arc::from)
    }

    pub(in crate::store::database) fn uuid(self, column: &str) -> Result<Uuid> {
        match self.value(column)? {
            SqlValue::Uuid(id) => Ok(*id),
            SqlValue::Blob(bytes) => {
                Uuid::from_slice(bytes).map_err(|_| damaged(format!("column '{column}' is no id")))
            }
            other => Err(wrong(column, other, "an id")),
        }
    }

    pub(in crate::store::database) fn maybe_uuid(self, column: &str) -> Result<Option<Uuid>> {
        if self.has(column) { self.uuid(column).map(Some) } else { self.value(column).map(|_| None) }
    }
}

/// The only row of an answer.
pub(in crate::store::database) fn only(rows: &[SqlRow]) -> Result<Row<'_>> {
    rows.first().map(Row).ok_or_else(|| damaged("it gives no row"))
}

/// The notices in the rows of an answer.
pub(in crate::store::database) fn notices_in(rows: &[SqlRow]) -> Notices {
    let texts = rows.iter().filter_map(|row| Row(row).maybe_text("notices").ok().flatten());
    texts.flat_map(Notices::decode).collect()
}

fn wrong(column: &str, found: &SqlValue, right: &str) -> Error {
    damaged(format!("column '{column}' holds {found:?}, not {right}"))
}

/// 60012: an answer that our functions never give.
pub(in crate::store::database) fn damaged(why: impl std::fmt::Display) -> Error {
    let message = format!("the answer of the server is not that of this version of Dialoq: {why}; install it again");
    Error::new(Code::STORE_DAMAGED, message)
}
