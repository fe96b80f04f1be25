//! The rival of one caller alone: bare SQLite, one synced statement per transaction, on a thread of its own.
//!
//! No hand-over between threads at all, which is the least a lone caller could pay.

use super::log::io_error;
use crate::bench::load::{Round, new_histogram};
use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const OPEN_FULL: &str = crate::bench::sql::sqlite::OPEN_FULL;
const OPEN_NORMAL: &str = crate::bench::sql::sqlite::OPEN_NORMAL;
const CREATE: &str = crate::bench::sql::sqlite::CREATE_MESSAGE;
const INSERT: &str = crate::bench::sql::sqlite::INSERT_MESSAGE;
const DELETE: &str = crate::bench::sql::sqlite::DELETE_MESSAGE;

/// A database with one table, used directly.
pub(in crate::bench) struct Rival {
    path: PathBuf,
    synced: bool,
}

impl Rival {
    /// Makes the database at `path`.
    pub(in crate::bench) fn create(path: &Path, synced: bool) -> Result<Self> {
        let rival = Self { path: path.to_owned(), synced };
        rival.connect()?.execute_batch(CREATE).map_err(sql_error)?;
        Ok(rival)
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path).map_err(sql_error)?;
        connection.execute_batch(if self.synced { OPEN_FULL } else { OPEN_NORMAL }).map_err(sql_error)?;
        Ok(connection)
    }

    /// Inserts one row per transaction for `length`.
    pub(in crate::bench) async fn insert(&self, body_bytes: usize, length: Duration) -> Result<Round> {
        let connection = self.connect()?;
        on_own_thread(move || {
            let mut insert = connection.prepare(INSERT).map_err(sql_error)?;
            let body = vec![b'x'; body_bytes];
            repeat(length, || insert.execute(params![body]).map_err(sql_error))
        })
        .await
    }

    /// Deletes one row per transaction for `length`; first, unmeasured, puts in `count` rows.
    pub(in crate::bench) async fn delete(&self, body_bytes: usize, count: usize, length: Duration) -> Result<Round> {
        let mut connection = self.connect()?;
        on_own_thread(move || {
            let body = vec![b'x'; body_bytes];
            let filling = connection.transaction().map_err(sql_error)?;
            let mut next = {
                let mut insert = filling.prepare(INSERT).map_err(sql_error)?;
                for _ in 0..count {
                    insert.execute(params![body]).map_err(sql_error)?;
                }
                filling.last_insert_rowid() - count as i64
            };
            filling.commit().map_err(sql_error)?;
            let mut delete = connection.prepare(DELETE).map_err(sql_error)?;
            repeat(length, || {
                next += 1;
                delete.execute(params![next]).map_err(sql_error)
            })
        })
        .await
    }
}

/// Calls until the time is over or a call changes nothing.
fn repeat(length: Duration, mut call: impl FnMut() -> Result<usize>) -> Result<Round> {
    let mut round = Round { messages: 0, elapsed: Duration::ZERO, latency: new_histogram() };
    let start = Instant::now();
    let mut before = start;
    while before.duration_since(start) < length {
        if call()? == 0 {
            break;
        }
        let after = Instant::now();
        round.messages += 1;
        round.latency.saturating_record(after.duration_since(before).as_nanos() as u64);
        before = after;
    }
    round.elapsed = before.duration_since(start);
    Ok(round)
}

async fn on_own_thread(work: impl FnOnce() -> Result<Round> + Send + 'static) -> Result<Round> {
    let (done, answer) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("bare-sqlite".into()).spawn(move || done.send(work())).map_err(io_error)?;
    answer.await.map_err(|_| Error::closed())?
}

fn sql_error(error: rusqlite::Error) -> Error {
    Error::new(Code::STORE_IO, format!("the bare SQLite database failed: {error}")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_inserts_and_deletes_one_by_one() {
        let _limit = crate::limit();
        let folder = tempfile::tempdir().unwrap();
        let rival = Rival::create(&folder.path().join("rival.db"), true).unwrap();
        let inserted = rival.insert(16, Duration::from_millis(20)).await.unwrap();
        assert!(inserted.messages > 0);
        // More time than three rows need: it must stop when they are gone.
        let deleted = rival.delete(16, 3, Duration::from_secs(60)).await.unwrap();
        assert_eq!(deleted.messages, 3);
        let left: i64 =
            rival.connect().unwrap().query_row("select count(*) from message", [], |row| row.get(0)).unwrap();
        assert_eq!(left as u64, inserted.messages);
    }
}
