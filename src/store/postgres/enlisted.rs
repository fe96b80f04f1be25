//! A connection of the user's own, on which the broker executes verbs.

use super::DIALECT;
use super::args::arguments;
use super::connect::Place;
use super::failure::{Asked, AtRisk, ConnectionState, failure};
use super::link::unread;
use super::texts;
use super::values::{RowReader, RowsFor};
use crate::store::database::link::{Call, EnlistedConnection, Failure, Fate, Linked};
use crate::store::{BoxFuture, SqlRow};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

/// The savepoint around a verb.
const BEFORE_THE_VERB: u32 = 0;

/// A connection that the user has opened, and whose transaction the user ends.
pub(crate) struct PgEnlisted<'c> {
    client: &'c Client,
    place: Place,
}

impl<'c> PgEnlisted<'c> {
    pub(crate) fn new(client: &'c Client) -> Self {
        Self { client, place: Place::enlisted() }
    }

    fn failed(&self, error: tokio_postgres::Error, asked: Asked<'_>, at_risk: AtRisk) -> Failure {
        let loss = ConnectionState { is_closed: self.client.is_closed(), why: None };
        failure(error, asked, at_risk, loss, &self.place)
    }

    async fn call_now(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let asked = Asked::Call(call.name);
        let flat = arguments(&call.args);
        let text = texts::call(call.name, flat.len());
        let params: Vec<(&(dyn ToSql + Sync), Type)> =
            flat.iter().map(|argument| (argument as &(dyn ToSql + Sync), argument.declared())).collect();
        let (mark, release) = (texts::savepoint(BEFORE_THE_VERB), texts::release(BEFORE_THE_VERB));
        // All three in one flight. Outside of a transaction the server refuses the savepoint and the release, and the call
        // commits by itself. After a refusal of the call the release is refused as well.
        let (marked, rows, released) = tokio::join!(
            biased;
            self.client.batch_execute(&mark),
            self.client.query_typed(&text, &params),
            self.client.batch_execute(&release),
        );
        let is_in_transaction = match marked {
            Ok(()) => true,
            Err(error) => match error.code() {
                Some(code) if *code == SqlState::NO_ACTIVE_SQL_TRANSACTION => false,
                Some(code) if *code == SqlState::IN_FAILED_SQL_TRANSACTION => {
                    return Err(Failure::of_a_failed_enlisted_transaction(call.name));
                }
                _ => return Err(self.failed(error, asked, AtRisk::Transaction)),
            },
        };
        let at_risk = if is_in_transaction { AtRisk::Transaction } else { AtRisk::Commit };
        match rows {
            Ok(rows) => {
                if is_in_transaction && let Err(error) = released {
                    return Err(self.failed(error, asked, at_risk));
                }
                let Some(first) = rows.first() else { return Ok(Vec::new()) };
                RowReader::of(first.columns()).rows(&rows, RowsFor::Ours).map_err(|why| unread(asked, &why))
            }
            Err(error) => {
                let failure = self.failed(error, asked, at_risk);
                if is_in_transaction && failure.fate == Fate::Undone {
                    let back = format!("{};{release}", texts::rollback_to(BEFORE_THE_VERB));
                    if let Err(error) = self.client.batch_execute(&back).await {
                        return Err(self.failed(error, asked, at_risk));
                    }
                }
                Err(failure)
            }
        }
    }
}

impl EnlistedConnection for PgEnlisted<'_> {
    fn dialect(&self) -> &'static str {
        DIALECT.name
    }

    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(self.call_now(call))
    }
}
