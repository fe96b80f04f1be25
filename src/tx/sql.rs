//! The user's own SQL in a transaction.

use super::turns::Call;
use super::{Done, Tx};
use crate::error::Result;
use crate::store::{BoxFuture, SqlStatement};
use std::fmt;
use std::future::IntoFuture;

/// The user's own SQL; set its options, then await it.
#[must_use = "nothing happens before it is awaited"]
pub struct Sql<'a> {
    pub(super) tx: &'a Tx,
    pub(super) statement: SqlStatement,
}

impl fmt::Debug for Sql<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").field("statement", &self.statement).finish_non_exhaustive()
    }
}

impl Sql<'_> {
    /// The number of rows it must change; if it changes another number, it is undone and fails with 60022.
    pub fn expect_rows(mut self, rows: u64) -> Self {
        self.statement.expected_rows = Some(rows);
        self
    }
}

impl<'a> IntoFuture for Sql<'a> {
    type Output = Result<u64>;
    type IntoFuture = BoxFuture<'a, Result<u64>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let statement = self.statement.checked()?;
            match self.tx.turn(Call::Sql(statement)).await? {
                Done::Changed(done) => done,
                _ => unreachable!("a statement gives a count"),
            }
        })
    }
}
