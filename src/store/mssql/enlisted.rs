//! A connection of the user's own, on which the broker executes verbs.

use super::args::{Request, RowsForm};
use super::session::{Client, Session};
use crate::error::{Code, Error};
use crate::sql::mssql::client;
use crate::store::database::link::{Call, EnlistedConnection, Failure, Fate, Linked};
use crate::store::{BoxFuture, SqlRow};

/// The savepoint around a verb.
const BEFORE_THE_VERB: u32 = 0;

/// A connection that the user has opened, and whose transaction the user ends.
pub(crate) struct MssqlEnlisted<'c> {
    client: &'c mut Client,
    session: Session,
}

impl<'c> MssqlEnlisted<'c> {
    pub(crate) fn new(client: &'c mut Client) -> Self {
        Self { client, session: Session::default() }
    }

    async fn call_now(&mut self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let Self { client, session } = self;
        let found = session.read(client, client::GUEST).await?;
        let Some(row) = found.rows.first() else { return Err(unread(no_row())) };
        let number = |column| row.get::<i64>(column).map_err(unread);
        let (transactions, state, is_babelfish) = (number("transactions")?, number("state")?, number("is_babelfish")?);
        if transactions > 0 && state != 1 {
            return Err(Failure::of_a_failed_enlisted_transaction(call.name));
        }
        session.is_in_transaction = transactions > 0;
        session.rows_form = if is_babelfish == 1 { RowsForm::Json } else { RowsForm::Table };
        if session.is_in_transaction {
            session.save(client, BEFORE_THE_VERB).await?;
        }
        let failure = match session.call(client, Request::of_call(&call, session.rows_form)).await {
            Ok(rows) => return Ok(rows.rows),
            Err(failure) => failure,
        };
        if session.is_in_transaction && failure.fate == Fate::Undone {
            session.rollback_to(client, BEFORE_THE_VERB).await?;
        }
        Err(failure)
    }
}

/// 60012: without this answer it is unknown whether the user has a transaction open.
fn no_row() -> Error {
    let why = "the server gave no row to the question what the enlisted connection is like";
    Error::new(Code::STORE_DAMAGED, why)
}

fn unread(error: Error) -> Failure {
    Failure { error, fate: Fate::Undone, is_link_usable: true }
}

impl EnlistedConnection for MssqlEnlisted<'_> {
    fn dialect(&self) -> &'static str {
        super::DIALECT.name
    }

    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(self.call_now(call))
    }
}
