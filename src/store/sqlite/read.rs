//! Reading rows by key while the broker runs.

use crate::core::{JobRead, ReadRow, TransmissionRow};
use crate::id::MessageId;
use crate::sql::sqlite::read::{self, JOB, TRANSMISSION};
use crate::store::{StoreTexts, store_texts};
use crate::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, Row};
use std::sync::Arc;
use uuid::Uuid;

const MESSAGE: &str = read::QUEUE_MESSAGE;

/// The queries of status and doctor.
pub(super) static TEXTS: StoreTexts = store_texts!(sqlite);

/// Reads messages by their keys.
pub(super) struct Reader<'c> {
    connection: &'c Connection,
    message: Option<CachedStatement<'c>>,
    job: Option<CachedStatement<'c>>,
}

impl<'c> Reader<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, message: None, job: None }
    }

    /// The row of that key; the core guarantees that it exists.
    pub(super) fn message(&mut self, queuing_order: u64) -> Result<ReadRow> {
        let statement = match &mut self.message {
            Some(statement) => statement,
            none => none.insert(self.connection.prepare_cached(MESSAGE)?),
        };
        statement.query_row([queuing_order.cast_signed()], |row| {
            Ok(ReadRow {
                message_type_id: row.get(0)?,
                message_id: MessageId(id(row, 1)?),
                enqueued_at: Timestamp(row.get(2)?),
                body: body(row, 3)?,
                trace: text(row, 4)?,
            })
        })
    }
}

impl Reader<'_> {
    /// The row of that job; the core guarantees that it exists.
    pub(super) fn job(&mut self, job_id: u64) -> Result<JobRead> {
        let statement = match &mut self.job {
            Some(statement) => statement,
            none => none.insert(self.connection.prepare_cached(JOB)?),
        };
        statement.query_row([job_id.cast_signed()], super::work::job_read)
    }
}

/// A message of the transmission queue, if it still waits.
pub(super) fn transmission(connection: &Connection, transmission_id: u64) -> Result<Option<TransmissionRow>> {
    connection
        .prepare_cached(TRANSMISSION)?
        .query_row([transmission_id.cast_signed()], |row| {
            Ok(TransmissionRow {
                transmission_id: unsigned(row, 0)?,
                endpoint_id: unsigned(row, 1)?,
                sequence: unsigned(row, 2)?,
                message_type_id: row.get(3)?,
                is_conversation_error: row.get(4)?,
                is_end_of_dialog: row.get(5)?,
                message_id: MessageId(id(row, 6)?),
                enqueued_at: Timestamp(row.get(7)?),
                priority: row.get(8)?,
                body: body(row, 9)?.map(Arc::new),
                trace: text(row, 10)?,
                status: row.get::<_, String>(11)?.into(),
            })
        })
        .optional()
}

/// The 16 bytes of an id.
pub(super) fn id(row: &Row<'_>, column: usize) -> Result<Uuid> {
    let bytes = row.get_ref(column)?.as_blob()?;
    Uuid::from_slice(bytes).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, Box::new(error))
    })
}

/// No broker uses so many numbers; a larger one is damage, and counting on from it would overflow.
const LARGEST_NUMBER: i64 = 1 << 62;

/// A number that is never negative.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64> {
    let number: i64 = row.get(column)?;
    if !(0..=LARGEST_NUMBER).contains(&number) {
        return Err(rusqlite::Error::IntegralValueOutOfRange(column, number));
    }
    Ok(number.cast_unsigned())
}

fn body(row: &Row<'_>, column: usize) -> Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        value => Some(value.as_blob()?.to_vec()),
    })
}

fn text(row: &Row<'_>, column: usize) -> Result<Option<Arc<str>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        value => Some(value.as_str()?.into()),
    })
}
